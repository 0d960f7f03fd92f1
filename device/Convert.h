//===- Convert.h - numbers of a checkpoint as bf16 ------------------------===//
//
// Host and device convert weights alike: both compile this file. Integers only, so that no mode
// of a floating-point unit can change a bit. It has no system header.
//===----------------------------------------------------------------------===//
#pragma once

#ifdef __CUDACC__
#define MEGALITH_CONVERT __device__ constexpr
#else
#define MEGALITH_CONVERT constexpr
#endif

namespace megalith::convert {

/// The bits of an f32 as those of a bf16. Rounds to nearest, ties to even. What lies beyond the largest bf16 becomes
/// infinite; every NaN becomes 7fff, as `cvt.rn.bf16.f32` makes it.
MEGALITH_CONVERT unsigned short bf16OfF32(unsigned bits) {
  if ((bits & 0x7fffffffu) > 0x7f800000u)
    return 0x7fff;
  // Half of the last kept place, less one when that place is even: a tie then carries only into an odd one.
  return static_cast<unsigned short>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

/// The bits of an f16 as those of an f32; exact.
MEGALITH_CONVERT unsigned f32OfF16(unsigned short bits) {
  const unsigned sign = (bits & 0x8000u) << 16, exponent = bits >> 10 & 31u;
  unsigned mantissa = bits & 0x3ffu;
  if (exponent == 31) // infinite, or a NaN
    return sign | 0x7f800000u | mantissa << 13;
  if (exponent)
    return sign | (exponent + 112) << 23 | mantissa << 13;
  if (!mantissa)
    return sign;
  unsigned scale = 113; // subnormal: an f32 has the exponent for it
  for (; !(mantissa & 0x400u); mantissa <<= 1)
    --scale;
  return sign | scale << 23 | (mantissa & 0x3ffu) << 13;
}

/// The bits of an e4m3 as those of a bf16; exact. It has no infinity; 7f and ff are NaN.
MEGALITH_CONVERT unsigned short bf16OfE4m3(unsigned char bits) {
  const unsigned sign = (bits & 0x80u) << 8, exponent = bits >> 3 & 15u;
  unsigned mantissa = bits & 7u;
  if (exponent == 15 && mantissa == 7)
    return 0x7fff;
  if (exponent)
    return static_cast<unsigned short>(sign | (exponent + 120) << 7 | mantissa << 4);
  if (!mantissa)
    return static_cast<unsigned short>(sign);
  unsigned scale = 121; // subnormal: mantissa * 2^-9
  for (; !(mantissa & 8u); mantissa <<= 1)
    --scale;
  return static_cast<unsigned short>(sign | scale << 7 | (mantissa & 7u) << 4);
}

/// The bits of a finite f32 as those of the nearest e4m3, ties to even. What lies beyond 448 becomes that.
MEGALITH_CONVERT unsigned char e4m3OfF32(unsigned bits) {
  const unsigned sign = bits >> 24 & 0x80u, size = bits & 0x7fffffffu;
  if (size >= 0x43e00000u) // 448
    return static_cast<unsigned char>(sign | 0x7eu);
  if (size < 0x3c800000u) { // below 2^-6: whole numbers of 2^-9
    if (size < 0x3a800000u) // less than half of one
      return static_cast<unsigned char>(sign);
    const unsigned shift = 141u - (size >> 23),
                   whole = (size & 0x7fffffu) | 0x800000u; // `shift` places after the point
    const unsigned kept = whole >> shift, rest = whole & ((1u << shift) - 1u), half = 1u << (shift - 1u);
    return static_cast<unsigned char>(sign | (kept + (rest > half || (rest == half && (kept & 1u)))));
  }
  // Half of the last kept place, less one when that place is even.
  const unsigned rounded = size + 0x7ffffu + (size >> 20 & 1u);
  const unsigned code = (rounded >> 20) - (120u << 3);
  return static_cast<unsigned char>(sign | (code > 0x7eu ? 0x7eu : code));
}

MEGALITH_CONVERT unsigned short bf16OfF16(unsigned short bits) { return bf16OfF32(f32OfF16(bits)); }

} // namespace megalith::convert

#undef MEGALITH_CONVERT // a name of a pipeline
