//===- CallManifest.h - what a kernel of a pipeline of buffers is called with -//
//
// Sizes become known when a call comes. What a call says of them is checked here, and the kernel's parameter is put
// together: see device/CallAbi.h.
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_RUNTIME_CALLMANIFEST_H
#define MEGALITH_RUNTIME_CALLMANIFEST_H

#include "device/CallAbi.h"
#include "runtime/RuntimeError.h"
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace megalith::runtime {

/// Arithmetic on dims in reverse Polish notation.
class Polish {
public:
  /// `text` knows the words + - * / % min max, whole numbers and `dims`. nullopt: another word, or no expression.
  static std::optional<Polish> parse(const std::string &text, const std::vector<std::string> &dims);
  /// nullopt where a step leaves the range of i32.
  std::optional<int64_t> of(std::span<const int64_t> dims) const;
  /// The dim that it is, alone; -1: it is something else.
  int dim() const;

private:
  enum Kind : uint8_t { Number, Dim, Add, Sub, Mul, Div, Mod, Min, Max };
  struct Word {
    Kind kind;
    int64_t value;
  };
  std::vector<Word> words;
};

/// As manifests spell them.
constexpr const char *elementTypes[] = {"i32", "i64", "f32", "bool", "f16", "bf16"};

/// lib/Emit/Calls.cpp writes it.
struct CallManifest {
  struct Dim {
    std::string name;
    int64_t least, most;
  };
  struct Buffer {
    std::string name, dtype;
    int64_t elementBytes;
    int type; ///< of elementTypes
    bool written;
    std::vector<Polish> shape;
  };
  struct Stage {
    std::string name, mapping;
    bool once;
    int64_t copies; ///< of an item, dealt by bytes
    std::optional<Polish> low, high, span, copyBytes;
    std::optional<Polish> scan; ///< numbers of the one scan of a stage without items, if the next one may do it
    int64_t scanBytes;          ///< of a number
  };
  struct Costs {
    int64_t first, step, stepNumbers, itemsOfSm;
  };
  std::string name;
  int64_t sms, paramsBytes, sortWords;
  Costs lane, warp;
  std::vector<Dim> dims;
  std::vector<Buffer> buffers;
  std::vector<Stage> stages;

  /// `manifest` when it is none, or one of another version.
  static Outcome<CallManifest> parse(const std::string &text);
};

/// A buffer that a call brings.
struct CallBuffer {
  void *data = nullptr;
  const int64_t *shape = nullptr; ///< of so many sizes as the buffer has dimensions
};

/// The memory of a buffer.
struct CallMemory {
  const void *at;
  int64_t bytes, elementBytes;
  bool written;
};
/// What is wrong with the buffers of a call.
struct CallProblem {
  enum Kind {
    None,
    Shapes,    ///< they are not those of the buffers: ir::callShapes says why
    Missing,   ///< buffer `which` has elements and no memory
    Alignment, ///< of buffer `which`
    Overlap    ///< buffers `which`, which is written, and `other`
  } kind = None;
  size_t which = 0, other = 0;
  explicit operator bool() const { return kind != None; }
};
/// Whether each has memory, and none that another one writes.
CallProblem checkMemory(std::span<const CallMemory> buffers);

/// The grids of a call, and its parameter.
class CallImage {
public:
  /// CTAs that a stage has at most.
  CallImage(const CallManifest &manifest, int64_t mostCtas);

  struct Launch {
    unsigned ctas;
    int first, last; ///< stages
  };
  /// Of buffers in the manifest's order. `perStage`: a launch for each stage, and not one for all. Memory is not
  /// touched. After a call of the same shapes only addresses change.
  CallProblem prepare(std::span<const CallBuffer> buffers, bool perStage);

  std::span<const Launch> launches() const { return grids; }
  /// The parameter of one of these launches.
  void *paramsOf(const Launch &launch, abi::CallCounters *counters, abi::CallStatus *status, unsigned serial);
  /// Bytes of a buffer of the last call.
  int64_t bytesOf(size_t buffer) const { return bytes[buffer]; }
  /// Of shared memory, that each CTA of the last call needs.
  unsigned sharedBytes() const { return shared; }

private:
  bool findDims(std::span<const CallBuffer> buffers);
  bool layOut(bool perStage);
  bool planStage(const CallManifest::Stage &stage, abi::StageWork &work) const;
  abi::CallHeader &header() { return *reinterpret_cast<abi::CallHeader *>(params.data()); }
  abi::StageWork *work() { return reinterpret_cast<abi::StageWork *>(&header() + 1); }

  const CallManifest &manifest;
  const int64_t mostCtas;
  std::vector<int64_t> dims, sizes, lastSizes; ///< sizes of all buffers, one after the other
  std::vector<int64_t> bytes;
  std::vector<CallMemory> memory;
  std::vector<size_t> places; ///< of the buffers in `params`
  std::vector<uint64_t> params;
  std::vector<Launch> grids;
  unsigned shared = 0;
  bool ready = false, lastPerStage = false;
};

} // namespace megalith::runtime
#endif
