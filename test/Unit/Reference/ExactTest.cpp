//===- ExactTest.cpp - the functions of device/Exact.h ----------------------===//
#include "device/Exact.h"
#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <random>

using namespace megalith;

namespace {

constexpr float infinite = std::numeric_limits<float>::infinity();
const float nan = exact::ofBits(exact::kNan);

/// The last place of an f32 of this size.
double lastPlace(double value) {
  if (std::fabs(value) < std::numeric_limits<float>::min())
    return std::numeric_limits<float>::denorm_min();
  return std::ldexp(1.0, std::ilogb(value) - 23);
}

/// Empty: `got` is within `places` last places of `want`, or they are the same special value.
std::string wrong(float got, double want, double places) {
  const float rounded = static_cast<float>(want);
  bool good;
  if (std::isnan(want))
    good = exact::bitsOf(got) == exact::kNan;
  else if (std::isinf(rounded) || std::isinf(got))
    good = rounded == got;
  else
    good = std::fabs(got - want) <= places * lastPlace(want) && (want == 0 || std::signbit(got) == std::signbit(want));
  return good ? "" : testing::PrintToString(got) + " is not " + testing::PrintToString(want);
}

/// f32 values of all exponents and signs, in steps of a prime.
template <class Check> void everywhere(Check check) {
  for (uint64_t bits = 0; bits < (uint64_t(1) << 32); bits += 10007) {
    const float x = exact::ofBits(static_cast<unsigned>(bits));
    const std::string error = check(x);
    ASSERT_EQ(error, "") << "at " << x << ", " << std::hex << bits;
  }
}

TEST(ExactTest, ExpIsWithinALastPlace) {
  everywhere([](float x) { return wrong(exactExp(x), std::exp(double(x)), 0.87); });
  for (float x = -104.5f; x < -86.0f; x += 0.003f) // subnormal results
    ASSERT_EQ(wrong(exactExp(x), std::exp(double(x)), 0.87), "") << x;
  EXPECT_EQ(exactExp(0.0f), 1.0f);
  EXPECT_EQ(exactExp(-0.0f), 1.0f);
  EXPECT_EQ(exactExp(infinite), infinite);
  EXPECT_EQ(exactExp(-infinite), 0.0f);
  EXPECT_EQ(exactExp(88.7228317f), 3.40279851e38f); // the last one that is finite
  EXPECT_EQ(exactExp(88.7228394f), infinite);
  EXPECT_EQ(exactExp(-103.972076f), std::numeric_limits<float>::denorm_min());
  EXPECT_EQ(exactExp(-103.972084f), 0.0f);
}

TEST(ExactTest, LogIsWithinALastPlace) {
  everywhere([](float x) { return wrong(exactLog(x), std::log(double(x)), 0.86); });
  for (float x = 0.5f; x < 1.5f; x += 1.0e-6f)
    ASSERT_EQ(wrong(exactLog(x), std::log(double(x)), 0.86), "") << x;
  EXPECT_EQ(exact::bitsOf(exactLog(1.0f)), 0u);
  EXPECT_EQ(exactLog(0.0f), -infinite);
  EXPECT_EQ(exactLog(-0.0f), -infinite);
  EXPECT_EQ(exactLog(infinite), infinite);
}

TEST(ExactTest, PowIsRoundedAsIfByPow) {
  std::mt19937 random(7);
  for (int i = 0; i < 300000; ++i) {
    float x = exact::ofBits(random()), y = exact::ofBits(random());
    if (i % 2) { // where results are neither 0 nor infinite
      x = exact::ofBits(0x3f000000u + (random() & 0xffffffu));
      y = static_cast<float>(static_cast<int>(random())) / 1.0e7f;
    }
    if (i % 7 == 0)
      y = static_cast<float>(static_cast<int>(random() % 41) - 20);
    ASSERT_EQ(wrong(exactPow(x, y), std::pow(double(x), double(y)), 0.51), "") << x << " ** " << y;
  }
}

TEST(ExactTest, PowHasTheSpecialCasesOfC) {
  const float special[] = {0.0f,  -0.0f, 1.0f, -1.0f,    2.0f,        -2.0f,        0.5f,     -0.5f,    3.0f,
                           -3.0f, nan,   2.5f, 1.0e-40f, 16777216.0f, -16777217.0f, infinite, -infinite};
  for (float x : special)
    for (float y : special) {
      const float want = std::pow(x, y), got = exactPow(x, y);
      if (std::isnan(want))
        EXPECT_EQ(exact::bitsOf(got), exact::kNan) << x << " ** " << y;
      else
        EXPECT_EQ(exact::bitsOf(got), exact::bitsOf(want)) << x << " ** " << y;
    }
}

TEST(ExactTest, SqrtIsRoundedOnce) {
  everywhere([](float x) { return wrong(exactSqrt(x), std::sqrt(double(x)), 0.5); });
  EXPECT_TRUE(std::signbit(exactSqrt(-0.0f)));
}

TEST(ExactTest, AbsTakesTheSignAway) {
  EXPECT_EQ(exact::bitsOf(exactAbs(-0.0f)), 0u);
  EXPECT_EQ(exactAbs(-2.5f), 2.5f);
  EXPECT_EQ(exactAbs(-infinite), infinite);
}

TEST(ExactTest, IntegersSaturate) {
  EXPECT_EQ(exactInt(2.99f), 2);
  EXPECT_EQ(exactInt(-2.99f), -2);
  EXPECT_EQ(exactInt(nan), 0);
  EXPECT_EQ(exactInt(2147483520.0f), 2147483520);
  EXPECT_EQ(exactInt(2147483648.0f), INT32_MAX);
  EXPECT_EQ(exactInt(-2147483648.0f), INT32_MIN);
  EXPECT_EQ(exactInt(infinite), INT32_MAX);
  EXPECT_EQ(exactInt(-infinite), INT32_MIN);
}

} // namespace
