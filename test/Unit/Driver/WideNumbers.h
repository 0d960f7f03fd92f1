// What tests of wide passes have in common: numbers, where they stand in images (device/wide/WideImage.cuh), and parts
// of the kernels.
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

/// Text of the kernels: rows of x become what they are and two sums of a pair of adjacent columns.
inline const char *const addEnd = R"(
struct Nothing2 {};
template <int Columns> struct AddEnd {
  static constexpr auto pairs = wide::Pairs::Adjacent;
  static constexpr bool residual = true;
  wide::Image<Columns> to;
  __device__ void begin(int firstRow, int *) { to = to.from(firstRow); }
  __device__ wide::Columns columns(int pair) const { return {2 * pair, 2 * pair + 1}; }
  __device__ Nothing2 early(int, int, int) const { return {}; }
  __device__ Floats<2> value(int, int, float y0, float y1, Floats<2> old, Nothing2) const {
    return add(old, Floats<2>{{y0, y1}});
  }
  __device__ Words4 load(int row, int col) const { return to.load(row, col); }
  __device__ Nothing2 place(int) const { return {}; }
  __device__ void store(int row, Nothing2, int col, Words4 words) const { to.store(row, col, words); }
};
)";
/// And shared memory of a CTA, with `Params` in it.
inline const char *const sharedOfTest = R"(
struct Shared {
  Params params;
  abi::ModelParams model;
  wide::Sync sync;
  wide::Pass pass;
  wide::Deals deals;
  wide::Multiplied multiplied;
  wide::AttendUnit units[2];
  alignas(1024) char turns[kConsumerWarps * wide::kTurnBytes];
  alignas(1024) char stages[wide::kStages * wide::kStageBytes];
};
__device__ __forceinline__ Shared &sharedOfCta() { return *reinterpret_cast<Shared *>(dynamicShared()); }
)";

} // namespace megalith
