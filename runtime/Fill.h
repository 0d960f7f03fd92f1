//===- Fill.h - random tensors made on the device -------------------------===//
#ifndef MEGALITH_RUNTIME_FILL_H
#define MEGALITH_RUNTIME_FILL_H

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

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

} // namespace megalith::runtime
#endif
