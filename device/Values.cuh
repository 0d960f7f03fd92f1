//===- Values.cuh - bf16, short vectors of f32, loads and stores ----------===//
#pragma once

#include "megalith/Primitives.cuh"

namespace megalith::device {

__device__ __forceinline__ int laneId() { return threadIdx.x & 31; }
__device__ __forceinline__ int warpId() { return threadIdx.x >> 5; }

// --- bf16 -------------------------------------------------------------------

__device__ __forceinline__ float bf16Low(u32 pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float bf16High(u32 pair) { return __uint_as_float(pair & 0xffff0000u); }
__device__ __forceinline__ float bf16ToFloat(u16 bits) { return __uint_as_float((u32)bits << 16); }

__device__ __forceinline__ u16 floatToBf16(float v) { return (u16)packBf16(v, 0.0f); }
__device__ __forceinline__ float roundBf16(float v) { return bf16Low(packBf16(v, 0.0f)); }

/// Neither NaN nor infinite, all eight.
__device__ __forceinline__ bool allFinite(Words4 words) {
  const auto finite = [](u32 pair) { return (pair & 0x7f80u) != 0x7f80u && (pair & 0x7f800000u) != 0x7f800000u; };
  return finite(words.x) && finite(words.y) && finite(words.z) && finite(words.w);
}

// --- N floats of one row, at N columns --------------------------------------

template <int N> struct Floats {
  float v[N];
};

template <int N, class Fn> __device__ __forceinline__ Floats<N> mapFloats(Fn fn) {
  Floats<N> r;
#pragma unroll
  for (int i = 0; i < N; ++i)
    r.v[i] = fn(i);
  return r;
}
template <int N> __device__ __forceinline__ Floats<N> splat(float s) {
  return mapFloats<N>([&](int) { return s; });
}

/// Each is a bf16.
template <int N> struct Bf16Floats : Floats<N> {};
/// What rounding gave: it may be packed as it is for the CTA's own use. (What crosses to other CTAs is rounded again,
/// for a NaN may be any, and two in a word must not be all ones: Exchange.cuh.)
template <int N> struct RoundedFloats : Bf16Floats<N> {};

/// Values 2i and 2i + 1 in a word. The compiler sees that this undoes bf16Low and bf16High.
template <int N> __device__ __forceinline__ u32 wordOf(const Bf16Floats<N> &f, int i) {
  return __float_as_uint(f.v[2 * i]) >> 16 | (__float_as_uint(f.v[2 * i + 1]) & 0xffff0000u);
}
/// The values of N/2 words: wordAt(i).
template <class Values, class WordAt> __device__ __forceinline__ Values fromWords(WordAt wordAt) {
  Values values;
#pragma unroll
  for (int i = 0; i < int(sizeof(values.v) / 8); ++i) {
    const u32 word = wordAt(i);
    values.v[2 * i] = bf16Low(word);
    values.v[2 * i + 1] = bf16High(word);
  }
  return values;
}

// Every operation is rounded once: contraction would change the bits from one
// fusion to another.
#define MEGALITH_BINARY(Name, Expr)                                                                                    \
  template <int N> __device__ __forceinline__ Floats<N> Name(Floats<N> a, Floats<N> b) {                               \
    return mapFloats<N>([&](int i) {                                                                                   \
      const float x = a.v[i], y = b.v[i];                                                                              \
      return Expr;                                                                                                     \
    });                                                                                                                \
  }                                                                                                                    \
  template <int N> __device__ __forceinline__ Floats<N> Name(Floats<N> a, float b) { return Name(a, splat<N>(b)); }    \
  template <int N> __device__ __forceinline__ Floats<N> Name(float a, Floats<N> b) { return Name(splat<N>(a), b); }    \
  __device__ __forceinline__ float Name(float x, float y) { return Expr; }
MEGALITH_BINARY(add, __fadd_rn(x, y))
MEGALITH_BINARY(sub, __fsub_rn(x, y))
MEGALITH_BINARY(mul, __fmul_rn(x, y))
/// Products of bf16: an f32 holds them, or they round to the same bf16; so rounding them is one step for two (toBf16).
template <int N> struct Bf16Products : Floats<N> {
  Bf16Floats<N> a, b;
};
template <int N> __device__ __forceinline__ Bf16Products<N> mul(Bf16Floats<N> a, Bf16Floats<N> b) {
  Bf16Products<N> products;
#pragma unroll
  for (int i = 0; i < N; ++i)
    products.v[i] = __fmul_rn(a.v[i], b.v[i]);
  products.a = a;
  products.b = b;
  return products;
}
MEGALITH_BINARY(div, __fdiv_rn(x, y))
MEGALITH_BINARY(maximum, fmaxf(x, y))
MEGALITH_BINARY(minimum, fminf(x, y))
#undef MEGALITH_BINARY

#define MEGALITH_UNARY(Name, Expr)                                                                                     \
  __device__ __forceinline__ float Name(float x) { return Expr; }                                                      \
  template <int N> __device__ __forceinline__ Floats<N> Name(Floats<N> a) {                                            \
    return mapFloats<N>([&](int i) { return Name(a.v[i]); });                                                          \
  }
MEGALITH_UNARY(neg, -x)
MEGALITH_UNARY(sigmoid, quotient(1.0f, __fadd_rn(1.0f, expf(-x))))
MEGALITH_UNARY(silu, quotient(x, __fadd_rn(1.0f, expf(-x))))
MEGALITH_UNARY(relu, fmaxf(x, 0.0f))
MEGALITH_UNARY(softplus, __fadd_rn(fmaxf(x, 0.0f), log1pf(expf(-fabsf(x)))))
MEGALITH_UNARY(exponential, expf(x))
MEGALITH_UNARY(hyperbolicTangent, tanhf(x))
MEGALITH_UNARY(reciprocalSqrt, __frsqrt_rn(x))
MEGALITH_UNARY(gelu, __fmul_rn(__fmul_rn(0.5f, x), __fadd_rn(1.0f, erff(__fmul_rn(x, 0.70710678118654752f)))))
MEGALITH_UNARY(
    geluTanh,
    __fmul_rn(__fmul_rn(0.5f, x),
              __fadd_rn(1.0f, tanhf(__fmul_rn(0.7978845608028654f,
                                              __fadd_rn(x, __fmul_rn(0.044715f, __fmul_rn(x, __fmul_rn(x, x)))))))))
#undef MEGALITH_UNARY

__device__ __forceinline__ float toBf16(float x) { return roundBf16(x); }
template <int N> __device__ __forceinline__ RoundedFloats<N> toBf16(Floats<N> f) {
  if constexpr (N % 2 == 0) {
    return fromWords<RoundedFloats<N>>([&](int i) { return packBf16(f.v[2 * i], f.v[2 * i + 1]); });
  } else {
    RoundedFloats<N> rounded;
#pragma unroll
    for (int i = 0; i < N; ++i)
      rounded.v[i] = roundBf16(f.v[i]);
    return rounded;
  }
}
template <int N> __device__ __forceinline__ RoundedFloats<N> toBf16(Bf16Products<N> products) {
  if constexpr (N % 2 == 0)
    return fromWords<RoundedFloats<N>>([&](int i) { return mulBf16(wordOf(products.a, i), wordOf(products.b, i)); });
  else
    return toBf16(Floats<N>(products));
}

/// rotate_half on a pair of columns (j, j + dim/2) held by one thread.
__device__ __forceinline__ Floats<2> rotatePair(Floats<2> a) { return {{-a.v[1], a.v[0]}}; }
/// The same where neighbours are partners.
template <int N> __device__ __forceinline__ Floats<N> rotatePairs(Floats<N> a) {
  return mapFloats<N>([&](int i) { return i % 2 ? a.v[i ^ 1] : -a.v[i ^ 1]; });
}
template <int N> __device__ __forceinline__ Bf16Floats<N> rotatePairs(Bf16Floats<N> a) {
  return {rotatePairs(Floats<N>(a))};
}

// --- memory -----------------------------------------------------------------
// Activations are written by one CTA and read by another: loads bypass L1
// (`.cg`). Weights never change during a launch: `.nc`.

__device__ __forceinline__ Bf16Floats<8> unpack8(Words4 w) {
  return fromWords<Bf16Floats<8>>([&](int i) { return i == 0 ? w.x : i == 1 ? w.y : i == 2 ? w.z : w.w; });
}
__device__ __forceinline__ Words4 pack8(RoundedFloats<8> f) {
  return {wordOf(f, 0), wordOf(f, 1), wordOf(f, 2), wordOf(f, 3)};
}
__device__ __forceinline__ Words4 pack8(Floats<8> f) {
  return {packBf16(f.v[0], f.v[1]), packBf16(f.v[2], f.v[3]), packBf16(f.v[4], f.v[5]), packBf16(f.v[6], f.v[7])};
}

/// `words` with the columns from k on replaced by zero: padding may hold anything.
__device__ __forceinline__ Words4 keepBelow(Words4 words, int column, int k) {
  if (column + 8 <= k)
    return words;
  u32 w[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
  for (int i = 0; i < 4; ++i)
    w[i] = column + 2 * i >= k ? 0 : column + 2 * i + 1 >= k ? w[i] & 0xffffu : w[i];
  return {w[0], w[1], w[2], w[3]};
}
template <int K> __device__ __forceinline__ Words4 keepBelow(Words4 words, int column) {
  return K % 8 == 0 ? words : keepBelow(words, column, K);
}

/// A number of two words.
__device__ __forceinline__ long long longOf(u32 low, u32 high) { return (long long)((u64)high << 32 | low); }

/// Whether a model with so many tokens has this one.
__device__ __forceinline__ bool isTokenOf(int token, int vocab) { return (unsigned)token < (unsigned)vocab; }

/// The line of a token in the table of a model with so many tokens. One that the model lacks has the first line.
__device__ __forceinline__ int lineOfToken(int token, int vocab) { return isTokenOf(token, vocab) ? token : 0; }

/// A weight matrix read row by row (an embedding table).
template <int Columns> struct WeightRows {
  const u16 *base;
  __device__ __forceinline__ Bf16Floats<8> load8(int row, int col) const {
    const u16 *at = base + (long long)row * Columns + col;
    if constexpr (Columns % 8 == 0)
      return unpack8(loadConstWords(at));
    else
      return {mapFloats<8>([&](int i) { return col + i < Columns ? bf16ToFloat(__ldg(at + i)) : 0.0f; })};
  }
};

/// A weight vector [Length] that repeats every Length columns.
template <int Length> struct WeightVector {
  const u16 *base;
  __device__ __forceinline__ Floats<1> load(int col) const { return {{bf16ToFloat(__ldg(base + col % Length))}}; }
  __device__ __forceinline__ Floats<2> loadPair(int c0, int c1) const { return {{load(c0).v[0], load(c1).v[0]}}; }
  /// Eight columns, as they are; Length is a multiple of 8.
  __device__ __forceinline__ Words4 words(int col) const { return loadConstWords(base + col % Length); }
  __device__ __forceinline__ Bf16Floats<8> load8(int col) const {
    if constexpr (Length % 8 == 0)
      return unpack8(words(col));
    else
      return {mapFloats<8>([&](int i) { return load(col + i).v[0]; })};
  }
};

} // namespace megalith::device
