// Numbers of tests of wide passes, and where they stand in images (device/wide/WideImage.cuh).
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>

namespace megalith {

inline uint16_t bf16(float v) {
  const uint32_t bits = std::bit_cast<uint32_t>(v);
  return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
inline float value(uint16_t bits) { return std::bit_cast<float>(uint32_t(bits) << 16); }

/// Where a piece of eight columns of a row stands in 64-byte rows.
inline size_t swizzled(int row, int column) {
  return row * 64 + size_t((column / 8 % 4) ^ (row / 2 % 4)) * 16 + column % 8 * 2;
}
inline size_t placeInImage(int row, int column, int columns) {
  return (size_t(row / 128) * ((columns + 255) / 256 * 8) + column / 32) * 8192 + swizzled(row % 128, column);
}

} // namespace megalith
