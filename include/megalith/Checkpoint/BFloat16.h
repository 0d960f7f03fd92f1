//===- BFloat16.h - bf16 conversions ----------------------------*- C++ -*-===//
#ifndef MEGALITH_CHECKPOINT_BFLOAT16_H
#define MEGALITH_CHECKPOINT_BFLOAT16_H

#include "device/Convert.h"
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
  return convert::bf16OfF32(bits);
}

/// `value` rounded to the nearest bf16 and widened again.
inline float roundToBf16(float value) { return bf16ToFloat(floatToBf16(value)); }

} // namespace megalith

#endif
