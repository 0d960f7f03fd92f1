//===- Buffers.h - checking a pipeline of buffers -------------------------===//
//
// A pipeline with `buffers:` has no model, request or state. Another program calls it: it brings the buffers, whose
// shapes say what the dims are. Stages run one after the other, each behind all of the one before. A stage goes
// through items, which run in any order and beside each other, so no item may meet what another one writes. That is
// proved here, or the stage is refused.
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_SEMA_BUFFERS_H
#define MEGALITH_SEMA_BUFFERS_H

#include "megalith/Sema/Pipeline.h"

namespace megalith {

struct CheckedDim {
  std::string name;
  int64_t least = 0, most = 0;
  SourceLoc loc;
};

/// Types of elements, as the language and the IR spell them.
inline constexpr const char *bufferTypes[] = {"i32", "i64", "f32", "bool", "f16", "bf16"};

struct CheckedBuffer {
  std::string name;
  std::string dtype;                ///< of bufferTypes
  std::vector<sema::ExprRef> shape; ///< sums of products of dims
  bool written = false;             ///< some stage writes it: an output of the call
  SourceLoc loc;
};

/// One statement of a stage.
struct BufferStmt {
  enum Kind : uint8_t {
    SetLocal,   ///< index, name; values[0]
    SetElement, ///< name; values = {the value, an index for each dimension}
    Copy,       ///< name, from; values = {indices, low, high, indices of `from`, low, high}; `lead` indices in front
    Scan,       ///< name; binder; values = {high, the value}: sums of the values of 0..high, each up to its own
    Sort,       ///< name; binder; values = {high, keys...}: 0..high by ascending keys
    If          ///< values[0]; body; otherwise
  } kind = SetLocal;
  std::string name = {}, from = {}, binder = {};
  int index = 0;
  int64_t lead = 0;
  std::vector<sema::ExprRef> values = {};
  std::vector<BufferStmt> body = {}, otherwise = {};
  SourceLoc loc = {};
};

struct CheckedItems {
  std::string name;
  std::string binder;      ///< the number of an item; empty: the stage runs once
  sema::ExprRef low, high; ///< of the items; null: the stage runs once
  std::string mapping = "auto";
  std::vector<BufferStmt> body;
  SourceLoc loc;
};

/// A pipeline of buffers without errors.
struct CheckedBuffers {
  std::string name;
  SourceLoc loc;
  std::vector<CheckedParam> params;
  std::vector<CheckedDim> dims;
  std::vector<CheckedBuffer> buffers;
  std::vector<CheckedItems> stages;
};

/// Resolves params (`sets` are the `--set name=value` pairs), names and types, and proves that items do not meet.
/// Reports everything it finds; nullopt when something was an error.
std::optional<CheckedBuffers> checkBuffers(const ast::PipelineFile &pipeline,
                                           const std::vector<std::pair<std::string, std::string>> &sets,
                                           Diagnostics &diags);

} // namespace megalith
#endif
