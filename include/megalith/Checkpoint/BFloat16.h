//===- BFloat16.h - bf16 conversions ----------------------------*- C++ -*-===//
#ifndef MEGALITH_CHECKPOINT_BFLOAT16_H
#define MEGALITH_CHECKPOINT_BFLOAT16_H

#include <cstdint>
#include <cstring>

namespace megalith {

/// The f32 value of a bf16 bit pattern; exact.
inline float bf16ToFloat(uint16_t bits) {
  uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, sizeof(value));
  return value;
}

/// Rounds to nearest, ties to even. Values beyond the largest bf16 become
/// infinite; every NaN becomes the quiet NaN 0x7fff, as `cvt.rn.bf16.f32` does.
inline uint16_t floatToBf16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  if ((bits & 0x7fffffffu) > 0x7f800000u)
    return 0x7fff;
  // Half of the last kept place, less one when that place is even: a tie then
  // carries only into an odd one.
  bits += 0x7fffu + ((bits >> 16) & 1u);
  return static_cast<uint16_t>(bits >> 16);
}

/// `value` rounded to the nearest bf16 and widened again.
inline float roundToBf16(float value) { return bf16ToFloat(floatToBf16(value)); }

} // namespace megalith

#endif
