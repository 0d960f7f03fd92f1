//===- SafetensorsFile.h - Memory-mapped weights ----------------*- C++ -*-===//
#ifndef MEGALITH_CHECKPOINT_SAFETENSORSFILE_H
#define MEGALITH_CHECKPOINT_SAFETENSORSFILE_H

#include "megalith/Os/MappedFile.h"
#include "megalith/Os/Result.h"
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace megalith {

/// The element types of the format.
enum class DType : uint8_t {
  Bool,
  U8,
  I8,
  F8E5M2,
  F8E4M3,
  I16,
  U16,
  F16,
  BF16,
  I32,
  U32,
  F32,
  I64,
  U64,
  F64,
  C64,
  F8E8M0
};

/// Bytes per element.
unsigned dtypeSize(DType dtype);
/// As the file spells it: `BF16`.
std::string_view dtypeName(DType dtype);

/// One tensor of a mapped file, row-major, little-endian.
struct TensorView {
  DType dtype;
  std::vector<int64_t> shape;
  /// Points into the mapping, so it lives as long as the file. The format does
  /// not promise alignment.
  const uint8_t *data;
  /// Bytes; equals the product of `shape` times the element size.
  uint64_t size;

  /// How many values it has.
  uint64_t elements() const { return size / dtypeSize(dtype); }
  /// `[2048, 512]`, for messages.
  std::string shapeText() const;
};

/// One file of tensors, in the order of their names, as text of the format.
std::string safetensorsText(const std::map<std::string, TensorView> &tensors);

/// Whether weights may have this type: bf16, or what is converted to it.
bool isWeightType(DType dtype);
/// Whether the values are converted.
inline bool isConverted(DType dtype) { return dtype != DType::BF16; }
/// `count` values of such a type at `from`, as bf16: rounded to nearest, ties to even.
void toBf16(DType dtype, const void *from, uint64_t count, uint16_t *to);

/// `pattern` with the number of a layer in place of each `{i}`.
std::string layerTensor(std::string_view pattern, int64_t layer);
/// Whether `name` is `pattern` with a number in place of each `{i}`.
bool matchesPattern(std::string_view pattern, std::string_view name);
/// `name` with `{i}` in place of each part between dots that is a number.
std::string patternOf(std::string_view name);

/// The weights of a checkpoint directory: model.safetensors, or else the shards
/// that model.safetensors.index.json names, with all that these hold; without either the only
/// file, the only index, or a whole set of numbered parts. Read-only mappings; every size and
/// offset in the headers is checked before the first tensor is handed out.
class SafetensorsFile {
public:
  /// Errors: `safetensors-missing`, `safetensors-truncated` (the file ends
  /// early), `safetensors-header` (not the format, or an index that
  /// contradicts its shards), `safetensors-offsets` (ranges reversed,
  /// overlapping, leaving holes, or disagreeing with shapes) and
  /// `safetensors-dtype`.
  static Result<SafetensorsFile> load(const std::string &dir);

  /// One file by its path.
  static Result<SafetensorsFile> open(const std::string &path);

  /// The tensor called `name`, or null.
  const TensorView *find(std::string_view name) const;

  /// Every tensor, ordered by name.
  const std::map<std::string, TensorView, std::less<>> &tensors() const { return Tensors; }

  /// Copies `count` bytes of `tensor` from `offset` on. Faster than by `TensorView::data`, and `input-changed` where
  /// that would end the process. Several threads may read.
  std::optional<FileError> read(const TensorView &tensor, uint64_t offset, uint64_t count, void *to) const;
  /// Tells the system that all tensors will be read.
  void willRead() const;
  /// `input-changed` when a file is no longer what it was: asked by who has read
  /// the tensors, before the results are used. (One that becomes shorter ends the
  /// process where its end is read, os::MappedFile.)
  std::optional<FileError> changed() const;
  /// The shard in which the index puts a tensor that no shard holds, or null.
  const std::string *listedIn(std::string_view name) const;

  /// The path of the file, or of the index of several, for messages.
  const std::string &path() const { return Path; }

  /// The paths of all files that were opened, without the index.
  std::vector<std::string> files() const;

private:
  using Places = std::map<std::string, std::string>; ///< by tensor: its file, as an index has it
  static Result<SafetensorsFile> loadOther(const std::string &dir);
  std::optional<FileError> add(const std::string &path, const Places &placed, const std::string &shard);
  std::optional<FileError> addShards(const std::string &dir);

  std::vector<std::shared_ptr<const os::MappedFile>> Mappings;
  std::map<std::string, TensorView, std::less<>> Tensors;
  std::map<std::string, std::string, std::less<>> Listed; ///< in the index, and in no shard
  std::string Path;
};

} // namespace megalith

#endif
