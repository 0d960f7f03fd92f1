//===- Exact.h - functions whose bits are the same everywhere -------------===//
//
// The reference executor and device code compile this file. A function is made of operations that IEEE 754
// rounds once (+, *, fused multiply-add, division, square root, conversions), in one fixed order, so that every
// executor gets the same bits: a platform's own `exp` may round otherwise. A result that is no number is always the
// same NaN. It has no system header.
//===----------------------------------------------------------------------===//
#pragma once

#ifdef __CUDACC__
#define MEGALITH_EXACT __device__ __forceinline__
#else
#define MEGALITH_EXACT inline // compiled without contraction
#endif

namespace megalith::exact {

#ifdef __CUDACC__
MEGALITH_EXACT unsigned bitsOf(float v) { return __float_as_uint(v); }
MEGALITH_EXACT float ofBits(unsigned bits) { return __uint_as_float(bits); }
MEGALITH_EXACT float add(float a, float b) { return __fadd_rn(a, b); }
MEGALITH_EXACT float mul(float a, float b) { return __fmul_rn(a, b); }
MEGALITH_EXACT float fma(float a, float b, float c) { return __fmaf_rn(a, b, c); }
MEGALITH_EXACT float sqrtRounded(float v) { return __fsqrt_rn(v); }
MEGALITH_EXACT double add(double a, double b) { return __dadd_rn(a, b); }
MEGALITH_EXACT double mul(double a, double b) { return __dmul_rn(a, b); }
MEGALITH_EXACT double fma(double a, double b, double c) { return __fma_rn(a, b, c); }
MEGALITH_EXACT double div(double a, double b) { return __ddiv_rn(a, b); }
MEGALITH_EXACT float toFloat(double v) { return __double2float_rn(v); }
MEGALITH_EXACT double ofBits64(unsigned long long bits) { return __longlong_as_double((long long)bits); }
#else
MEGALITH_EXACT unsigned bitsOf(float v) { return __builtin_bit_cast(unsigned, v); }
MEGALITH_EXACT float ofBits(unsigned bits) { return __builtin_bit_cast(float, bits); }
MEGALITH_EXACT float add(float a, float b) { return a + b; }
MEGALITH_EXACT float mul(float a, float b) { return a * b; }
MEGALITH_EXACT float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
MEGALITH_EXACT float sqrtRounded(float v) { return __builtin_sqrtf(v); }
MEGALITH_EXACT double add(double a, double b) { return a + b; }
MEGALITH_EXACT double mul(double a, double b) { return a * b; }
MEGALITH_EXACT double fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
MEGALITH_EXACT double div(double a, double b) { return a / b; }
MEGALITH_EXACT float toFloat(double v) { return static_cast<float>(v); }
MEGALITH_EXACT double ofBits64(unsigned long long bits) { return __builtin_bit_cast(double, bits); }
#endif

constexpr unsigned kInfinity = 0x7f800000u, kNan = 0x7fffffffu, kSign = 0x80000000u;

MEGALITH_EXACT bool isNan(float v) { return (bitsOf(v) & ~kSign) > kInfinity; }
/// 2^n, for n from -126 to 127.
MEGALITH_EXACT float power2(int n) { return ofBits(unsigned(n + 127) << 23); }

/// log(x) of a positive number that is not infinite, in f64, within 2^-44 of it.
MEGALITH_EXACT double longLog(float x) {
  unsigned bits = bitsOf(x);
  int exponent = 0;
  if (bits < 0x00800000u) {
    bits = bitsOf(mul(x, 8388608.0f));
    exponent = -23;
  }
  const unsigned up = (bits - 0x3f2aaaabu) & 0xff800000u;
  exponent += int(up) >> 23;
  const double m = double(ofBits(bits - up));
  // log(m) = 2 * atanh(q)
  const double q = div(add(m, -1.0), add(m, 1.0)), s = mul(q, q);
  double r = 1.0 / 21;
  r = fma(r, s, 1.0 / 19);
  r = fma(r, s, 1.0 / 17);
  r = fma(r, s, 1.0 / 15);
  r = fma(r, s, 1.0 / 13);
  r = fma(r, s, 1.0 / 11);
  r = fma(r, s, 1.0 / 9);
  r = fma(r, s, 1.0 / 7);
  r = fma(r, s, 1.0 / 5);
  r = fma(r, s, 1.0 / 3);
  r = fma(mul(r, s), q, q);
  return fma(double(exponent), 0.69314718055994531, add(r, r));
}

/// e to the power of `x`, which is from -200 to 200, in f64.
MEGALITH_EXACT double longExp(double x) {
  const double whole = 6755399441055744.0; // 1.5 * 2^52
  const double n = add(fma(x, 1.4426950408889634, whole), -whole);
  double f = fma(n, -0.69314718055994531, x);
  double e = 1.0 / 6227020800;
  e = fma(e, f, 1.0 / 479001600);
  e = fma(e, f, 1.0 / 39916800);
  e = fma(e, f, 1.0 / 3628800);
  e = fma(e, f, 1.0 / 362880);
  e = fma(e, f, 1.0 / 40320);
  e = fma(e, f, 1.0 / 5040);
  e = fma(e, f, 1.0 / 720);
  e = fma(e, f, 1.0 / 120);
  e = fma(e, f, 1.0 / 24);
  e = fma(e, f, 1.0 / 6);
  e = fma(e, f, 0.5);
  e = fma(e, f, 1.0);
  e = fma(e, f, 1.0);
  return mul(e, ofBits64((unsigned long long)((long long)n + 1023) << 52));
}

} // namespace megalith::exact

namespace megalith {

/// e to the power of `x`, within 0.87 of a last place.
MEGALITH_EXACT float exactExp(float x) {
  if (exact::isNan(x))
    return exact::ofBits(exact::kNan);
  // Beyond these the result is what it is at them. It keeps the numbers below in their range.
  x = x > 89.0f ? 89.0f : x < -104.0f ? -104.0f : x;
  // x = n * log(2) + f. Adding 1.5 * 2^23 rounds to an integer.
  constexpr float whole = 12582912.0f;
  const float shifted = exact::fma(x, 1.442695f, whole);
  const int n = int(exact::bitsOf(shifted) - exact::bitsOf(whole));
  const float n0 = exact::add(shifted, -whole);
  float f = exact::fma(n0, -6.93145752e-1f, x);
  f = exact::fma(n0, -1.42860677e-6f, f);
  float e = 1.37805939e-3f;
  e = exact::fma(e, f, 8.37312452e-3f);
  e = exact::fma(e, f, 4.16695364e-2f);
  e = exact::fma(e, f, 1.66664720e-1f);
  e = exact::fma(e, f, 4.99999851e-1f);
  e = exact::fma(e, f, 1.0f);
  e = exact::fma(e, f, 1.0f);
  // In two steps: 2^n may be no number by itself. The second one rounds where the result is subnormal.
  const int half = n >> 1;
  return exact::mul(exact::mul(e, exact::power2(half)), exact::power2(n - half));
}

/// The natural logarithm, within 0.86 of a last place. Of zeros it is minus infinity, of what is below no number.
MEGALITH_EXACT float exactLog(float x) {
  unsigned bits = exact::bitsOf(x);
  if ((bits & ~exact::kSign) == 0)
    return exact::ofBits(exact::kSign | exact::kInfinity);
  if (exact::isNan(x) || bits >= exact::kSign)
    return exact::ofBits(exact::kNan);
  if (bits == exact::kInfinity)
    return x;
  float exponent = 0.0f;
  if (bits < 0x00800000u) { // subnormal
    bits = exact::bitsOf(exact::mul(x, 8388608.0f));
    exponent = -23.0f;
  }
  // x = m * 2^exponent with m from 2/3 to 4/3.
  const unsigned up = (bits - 0x3f2aaaabu) & 0xff800000u;
  exponent = exact::add(exponent, float(int(up) >> 23));
  const float f = exact::add(exact::ofBits(bits - up), -1.0f), s = exact::mul(f, f);
  float r = -0.130310059f, t = 0.140869141f;
  r = exact::fma(r, s, -0.121483512f);
  t = exact::fma(t, s, 0.139814854f);
  r = exact::fma(r, s, -0.166846126f);
  t = exact::fma(t, s, 0.200120345f);
  r = exact::fma(r, s, -0.249996200f);
  r = exact::fma(t, f, r);
  r = exact::fma(r, f, 0.333331972f);
  r = exact::fma(r, f, -0.500000000f);
  r = exact::fma(r, s, f);
  return exact::fma(exponent, 0.693147182f, r);
}

/// The square root, rounded once; of what is below zero no number. (That of -0 is -0.)
MEGALITH_EXACT float exactSqrt(float x) {
  return exact::isNan(x) || (exact::bitsOf(x) > exact::kSign) ? exact::ofBits(exact::kNan) : exact::sqrtRounded(x);
}

/// The absolute value; a NaN stays one.
MEGALITH_EXACT float exactAbs(float x) { return exact::ofBits(exact::bitsOf(x) & ~exact::kSign); }

/// The integer part of `x`: what i32 cannot hold becomes its nearest number, a NaN becomes 0.
MEGALITH_EXACT int exactInt(float x) {
  if (exact::isNan(x))
    return 0;
  return x >= 2147483648.0f ? 0x7fffffff : x <= -2147483648.0f ? -0x7fffffff - 1 : int(x);
}

/// `x` to the power of `y`, within 0.51 of a last place, with the special cases of C's `pow`.
MEGALITH_EXACT float exactPow(float x, float y) {
  if (exact::bitsOf(x) == 0x3f800000u || (exact::bitsOf(y) & ~exact::kSign) == 0)
    return 1.0f; // even where the other one is a NaN
  if (exact::isNan(x) || exact::isNan(y))
    return exact::ofBits(exact::kNan);
  const float size = exactAbs(x), power = exactAbs(y);
  // Whether y is an integer, and whether it is odd. From 2^24 on all are even.
  const bool large = power >= 16777216.0f;
  const bool integer = large || float(int(large ? 0.0f : power)) == power;
  const bool odd = integer && !large && (int(power) & 1);
  const unsigned sign = odd ? exact::bitsOf(x) & exact::kSign : 0u;
  const bool grows = (size > 1.0f) == (y > 0.0f); // size is not 1 where this is asked
  if (exact::bitsOf(power) == exact::kInfinity)
    return size == 1.0f ? 1.0f : grows ? power : 0.0f;
  if (exact::bitsOf(size) == 0 || exact::bitsOf(size) == exact::kInfinity)
    return exact::ofBits(sign | (grows ? exact::kInfinity : 0u));
  if (exact::bitsOf(x) >= exact::kSign && !integer)
    return exact::ofBits(exact::kNan);
  double exponent = exact::mul(double(y), exact::longLog(size));
  exponent = exponent > 200.0 ? 200.0 : exponent < -200.0 ? -200.0 : exponent;
  return exact::ofBits(sign | exact::bitsOf(exact::toFloat(exact::longExp(exponent))));
}

} // namespace megalith

#undef MEGALITH_EXACT // a name of a pipeline
