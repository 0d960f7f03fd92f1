//===- Fill.h - random tensors made on the device -------------------------===//
#ifndef MEGALITH_RUNTIME_FILL_H
#define MEGALITH_RUNTIME_FILL_H

#include "runtime/Manifest.h"
#include <optional>
#include <string_view>

namespace megalith::runtime {

/// Arguments of `megalith_fill`; the formula stands in device/Bench.cuh.
struct Fill {
  uint32_t seed;
  float scale, mean;
};

/// Of the tensor that a checkpoint calls `name`.
Fill fillOf(std::string_view name, const std::vector<int64_t> &shape);

/// Of the KV pool's buffer that ModelParams calls `member`, with a variance of 1; nothing for others.
std::optional<Fill> fillOfKv(std::string_view member);

/// CRC-32, the same as zlib's.
uint32_t crc32(std::string_view bytes);

/// A tensor of a model.
struct FilledTensor {
  std::string name;
  uint64_t elements;
  Fill fill;
};
/// All of them, in the order of ModelParams::weights.
std::vector<FilledTensor> filledTensors(const Manifest::Model &model);

} // namespace megalith::runtime
#endif
