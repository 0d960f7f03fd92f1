//===- E4m3.cuh - numbers of eight bits -----------------------------------===//
//
// Codes of weights (Codes.cuh), and keys and values (Pool.cuh) of which each token and head has a scale. A word has
// four, and gives two pairs of bf16: one of its bytes 1 and 3, one of its bytes 0 and 2. (So of four values in a row
// the second and the third change places.) A bf16 has a sign in bit 15, and what a code has beside it in bits 10 to 4,
// where its exponent is 120 too small. The word's bits are arranged for that, in each half:
//
//   bit    15  14 13 12 11  10  9  8  7  6  5  4   3   2  1  0
//          S   e  e  e  e   E   E  E  E  M  M  M   s   m  m  m
//
// S, E, M: of the first pair, where they belong. e, m: of the second one. s: its sign in the other half, so that one
// rotation brings it along.
//===----------------------------------------------------------------------===//
#pragma once

#include "megalith/Values.cuh"

namespace megalith::device {

/// The word of four codes. Of some of their bits: these bits.
__device__ __forceinline__ u32 arrangedE4m3(u32 codes) {
  return (codes & 0x80008000u) | (codes >> 4 & 0x07f007f0u) | (codes & 0x00780078u) << 8 | (codes & 0x00070007u) |
         (codes & 0x80u) << 12 | (codes >> 20 & 8u);
}
/// The four codes of a word.
__device__ __forceinline__ u32 codesOfE4m3(u32 word) {
  return (word & 0x80008000u) | (word & 0x07f007f0u) << 4 | (word >> 8 & 0x00780078u) | (word & 0x00070007u) |
         (word >> 12 & 0x80u) | (word & 8u) << 20;
}

/// The values of a word as two pairs of bf16, exactly. A product mends their exponents, also those of subnormal ones.
__device__ __forceinline__ void expandE4m3(u32 word, u32 &odd, u32 &even) {
  constexpr u32 toTheSize = 0x7b807b80u; // 2^120, twice
  const u32 turned = word >> 4 | word << 28;
  odd = mulBf16(word & 0x87f087f0u, toTheSize);
  even = mulBf16((turned & 0x87808780u) | (word << 4 & 0x00700070u), toTheSize);
}

/// The four values of a word of codes as bf16. `scale`: a bf16, twice.
__device__ __forceinline__ Words2 valuesOfE4m3(u32 codes, u32 scale) {
  u32 first, second;
  expandE4m3(codes, second, first);
  return {mulBf16(first, scale), mulBf16(second, scale)};
}
__device__ __forceinline__ Words4 valuesOfE4m3(Words2 codes, u32 scale) {
  const Words2 low = valuesOfE4m3(codes.x, scale), high = valuesOfE4m3(codes.y, scale);
  return {low.x, low.y, high.x, high.y};
}

/// The code of value number `i` of a word, from 0 on.
__device__ __forceinline__ u32 codeOfE4m3(u32 word, int i) {
  return codesOfE4m3(word) >> 8 * (i == 1 ? 2 : i == 2 ? 1 : i) & 0xff;
}

/// The greatest size of eight bf16, as the bits of one. What is not finite is greater than what is.
__device__ __forceinline__ u32 greatestOf(Words4 w) {
  const auto ofPair = [](u32 pair) { return max(int(pair & 0x7fffu), int(pair >> 16 & 0x7fffu)); };
  return (u32)max(max(ofPair(w.x), ofPair(w.y)), max(ofPair(w.z), ofPair(w.w)));
}

/// What becomes of the values of one head of a token, of which `greatest` is the greatest size (docs/ir.md, "KV in
/// e4m3").
struct HeadScale {
  u32 pair;      ///< the scale, a bf16, twice; NaN where a value is not finite
  float inverse; ///< 0 there
  __device__ __forceinline__ u16 bits() const { return (u16)pair; }

  __device__ __forceinline__ static HeadScale of(u32 greatest) {
    if (greatest >= 0x7f80u)
      return {0x7fff7fffu, 0.0f};
    // Up to a bf16: the next one, where a bit beyond it is set.
    const u32 up = (__float_as_uint(__fdiv_rn(__uint_as_float(greatest << 16), 448.0f)) + 0xffffu) & 0xffff0000u;
    const float scale = fmaxf(__uint_as_float(up), __uint_as_float(0x00800000u)); // at least 2^-126
    const u32 bits = __float_as_uint(scale) >> 16;
    return {bits | bits << 16, __fdiv_rn(1.0f, scale)};
  }
  /// The codes of two pairs of bf16; 0 where there is no scale.
  __device__ __forceinline__ u32 codesOf(u32 first, u32 second) const {
    const auto codes = [&](float one, float other) {
      return packE4m3(__fmul_rn(one, inverse), __fmul_rn(other, inverse));
    };
    const u32 word = codes(bf16Low(first), bf16Low(second)) | codes(bf16High(first), bf16High(second)) << 16;
    return inverse == 0.0f ? 0 : arrangedE4m3(word);
  }
  __device__ __forceinline__ Words2 codesOf(Words4 values) const {
    return {codesOf(values.x, values.y), codesOf(values.z, values.w)};
  }
  /// What is read later, of codes and of values.
  __device__ __forceinline__ Words4 valuesOf(Words2 codes) const { return valuesOfE4m3(codes, pair); }
  __device__ __forceinline__ Words4 through(Words4 values) const { return valuesOf(codesOf(values)); }
};

/// Lanes that have a head's values, eight each: so many lanes after each other that a warp is dealt without a rest.
template <int Dim> constexpr int kLanesOfHead = Dim <= 64 ? 8 : Dim <= 128 ? 16 : 32;
template <int Dim> __device__ __forceinline__ int columnOfHead() {
  return min(laneId() % kLanesOfHead<Dim> * 8, Dim - 8);
}
template <int Dim> __device__ __forceinline__ bool isLaneOfHead() { return laneId() % kLanesOfHead<Dim> * 8 < Dim; }
/// The scale of a head, of which each of its lanes has the values from columnOfHead on. The whole warp.
template <int Dim, int Lanes = kLanesOfHead<Dim>> __device__ __forceinline__ HeadScale scaleOfHead(Words4 words) {
  u32 greatest = greatestOf(words);
#pragma unroll
  for (int d = Lanes / 2; d; d /= 2)
    greatest = (u32)max((int)greatest, (int)__shfl_xor_sync(~0u, greatest, d));
  return HeadScale::of(greatest);
}

} // namespace megalith::device
