//===- SamplingTest.cpp - the functions of device/Sampling.h --------------===//
#include "device/Sampling.h"
#include "device/Exact.h"
#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <string_view>

namespace megalith::sampling {
namespace {

std::vector<u32> philoxWords(Words counter, u32 k0, u32 k1) {
  const Words words = philox(counter, k0, k1);
  return {words.w[0], words.w[1], words.w[2], words.w[3]};
}

// The known answers of Random123 (kat_vectors, philox4x32 10).
TEST(SamplingTest, PhiloxHasItsKnownAnswers) {
  EXPECT_EQ(philoxWords({{0, 0, 0, 0}}, 0, 0), (std::vector<u32>{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u}));
  EXPECT_EQ(philoxWords({{~0u, ~0u, ~0u, ~0u}}, ~0u, ~0u),
            (std::vector<u32>{0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu}));
  EXPECT_EQ(philoxWords({{0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u}}, 0xa4093822u, 0x299f31d0u),
            (std::vector<u32>{0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u}));
}

TEST(SamplingTest, AnIdIsHashedByFnv1a) {
  const auto hash = [](std::string_view id) { return hashOfId(id.data(), id.size()); };
  EXPECT_EQ(hash(""), 0x811c9dc5u);
  EXPECT_EQ(hash("a"), 0xe40c292cu);
  EXPECT_EQ(hash("foobar"), 0xbf9cf968u);
  EXPECT_NE(hash("\xff"), hash("\x7f")); // bytes have no sign
}

TEST(SamplingTest, AUniformNumberIsNeitherZeroNorOne) {
  EXPECT_EQ(unit(0), std::ldexp(1.0f, -24));
  EXPECT_EQ(unit(~0u), 1.0f - std::ldexp(1.0f, -24));
  EXPECT_LT(unit(~0u), 1.0f);
  for (u32 word : {0u, 1u, 0x1ffu, 0x200u, 0x7fffffffu, 0x80000000u, ~0u}) {
    EXPECT_TRUE(std::isfinite(gumbel(word))) << word;
    EXPECT_EQ(double(unit(word)), (2.0 * (word >> 9) + 1) / 16777216) << word;
  }
  EXPECT_NEAR(gumbel(0x80000000u), -std::log(-std::log(0.5)), 1e-6);
  EXPECT_NEAR(gumbel(~0u), 24 * std::log(2.0), 1e-5);
}

// A draft is accepted where coin * q < p. Of probability 0 none is, whatever the coin. Where q is p, each is.
TEST(SamplingTest, CoinsDecideRightAtTheirEnds) {
  const float least = exact::toFloat(1.0 / (double(kUnitMass) * 131072)); // of a token that has some
  for (u32 word : {0u, 0x1ffu, ~0u}) {
    EXPECT_GT(exact::mul(unit(word), least), 0.0f); // so a coin <= 0 does not come, either
    EXPECT_FALSE(exact::mul(unit(word), least) < 0.0f);
  }
  for (u32 i = 1; i < 5000; ++i) {
    const float q = unit(i * 0x9E3779B9u);
    EXPECT_LT(exact::mul(unit(~0u), q), q) << i;
  }
  for (float q : {1.0f, 0.75f, 0.5f, least})
    EXPECT_LT(exact::mul(unit(~0u), q), q);
  // What others took: a coin of k / 2^23 can be 0, one of (k + 1) / 2^23 or an f64 rounded to f32 can be 1.
  EXPECT_TRUE(0.0f * 0.5f <= 0.0f);
  EXPECT_EQ(float(1.0 - 1e-9), 1.0f);
}

TEST(SamplingTest, CoinsAndDrawsShareNoWords) {
  const Key key{1, 2};
  EXPECT_NE(uniform(key, 5, 0, 0), unit(words(key, 5, 0, purposeOfDraw(0)).w[0]));
  EXPECT_NE(uniform(key, 5, 0, 0), uniform(key, 5, 1, 0));
  EXPECT_NE(uniform(key, 5, 0, 0), uniform(key, 6, 0, 0));
  EXPECT_NE(uniform(key, 5, 0, 0), uniform(key, 5, 0, 1));
  EXPECT_NE(uniform(key, 5, 0, 0), uniform({2, 1}, 5, 0, 0));
  EXPECT_EQ(uniform(key, 5, 6, 3), unit(philox({{5, 1, 7, 0}}, 1, 2).w[2]));
}

TEST(SamplingTest, KeysOrderNumbersAndThenTokens) {
  const float infinite = std::numeric_limits<float>::infinity();
  const float numbers[] = {-infinite, -2.0f, -1e-40f, 0.0f, 1e-40f, 2.0f, infinite};
  for (size_t i = 0; i + 1 < std::size(numbers); ++i) {
    EXPECT_LT(keyOf(numbers[i], 0), keyOf(numbers[i + 1], 9)) << i;
    EXPECT_GT(keyOf(numbers[i], 0), keyOf(numbers[i], 9)) << i;
    EXPECT_EQ(numberOf(keyOf(numbers[i], 7)), numbers[i]);
    EXPECT_EQ(tokenOf(keyOf(numbers[i], 7)), 7u);
  }
  EXPECT_EQ(keyOf(-0.0f, 3), keyOf(0.0f, 3));
}

TEST(SamplingTest, WeightsOfSpecialLogits) {
  const float infinite = std::numeric_limits<float>::infinity();
  EXPECT_EQ(weight(infinite, infinite), 1.0f);
  EXPECT_EQ(weight(1.0f, infinite), 0.0f);
  EXPECT_EQ(weight(-infinite, 1.0f), 0.0f);
  EXPECT_EQ(weight(-infinite, -infinite), 1.0f);
  EXPECT_EQ(massTimesDepth(0.0f, infinite), 0u);
  EXPECT_EQ(massOf(1.0f), u64(1) << 40);
  EXPECT_TRUE(isGreedy({0.0f, 0, 1, 0}));
  EXPECT_TRUE(isGreedy({-1.0f, 0, 1, 0}));
  EXPECT_TRUE(isGreedy({std::nanf(""), 0, 1, 0}));
  EXPECT_FALSE(isGreedy({0.01f, 0, 1, 0}));
}

TEST(SamplingTest, SumsGiveProbabilityAndEntropy) {
  const float logits[] = {2.0f, 1.0f, 0.5f, -3.0f};
  u64 total = 0, depths = 0;
  double sum = 0, mean = 0;
  for (float z : logits) {
    total += massOf(weight(z, 2.0f));
    depths += massTimesDepth(weight(z, 2.0f), below(z, 2.0f));
    sum += std::exp(double(z));
    mean += std::exp(double(z)) * z;
  }
  EXPECT_NEAR(probability(weight(0.5f, 2.0f), total), std::exp(0.5) / sum, 1e-7);
  EXPECT_NEAR(logSumExp(2.0f, total), std::log(sum), 1e-6);
  EXPECT_NEAR(entropy(total, depths), std::log(sum) - mean / sum, 1e-6);
}

} // namespace
} // namespace megalith::sampling
