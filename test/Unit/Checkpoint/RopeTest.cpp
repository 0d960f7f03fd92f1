#include "megalith/Checkpoint/BFloat16.h"
#include "megalith/Checkpoint/RopeTable.h"
#include <cmath>
#include <gtest/gtest.h>

using namespace megalith;

TEST(Rope, DefaultFrequencies) {
  RopeParams params;
  params.headDim = 8;
  auto frequencies = inverseFrequencies(params);
  ASSERT_EQ(frequencies.size(), 4u);
  const float expected[] = {1.0f, 0.1f, 0.01f, 0.001f};
  for (int i = 0; i < 4; ++i)
    EXPECT_FLOAT_EQ(frequencies[i], expected[i]);
}

TEST(Rope, LinearDivides) {
  RopeParams params;
  params.headDim = 4;
  params.type = "linear";
  params.factor = 4;
  auto frequencies = inverseFrequencies(params);
  EXPECT_FLOAT_EQ(frequencies[0], 0.25f);
  EXPECT_FLOAT_EQ(frequencies[1], 0.0025f);
}

/// The formula once more, in f64.
static double llama3(double frequency, const RopeParams &p) {
  double wavelength = 2 * M_PI / frequency;
  double low = p.originalMaxPositions / p.lowFreqFactor;
  double high = p.originalMaxPositions / p.highFreqFactor;
  if (wavelength > low)
    return frequency / p.factor;
  if (wavelength < high)
    return frequency;
  double smooth = (p.originalMaxPositions / wavelength - p.lowFreqFactor) / (p.highFreqFactor - p.lowFreqFactor);
  return (1 - smooth) * frequency / p.factor + smooth * frequency;
}

TEST(Rope, Llama3Frequencies) {
  RopeParams params{500000.0, "llama3", 32.0, 1.0, 4.0, 8192, 64};
  auto frequencies = inverseFrequencies(params);
  ASSERT_EQ(frequencies.size(), 32u);
  int kept = 0, divided = 0, smooth = 0;
  for (int i = 0; i < 32; ++i) {
    double plain = std::pow(500000.0, -2.0 * i / 64);
    double expected = llama3(plain, params);
    EXPECT_NEAR(frequencies[i], expected, expected * 1e-5) << i;
    kept += expected == plain;
    divided += expected == plain / 32;
    smooth += expected != plain && expected != plain / 32;
  }
  // Llama 3.2 has all three kinds, or the comparison would show little.
  EXPECT_GT(kept, 0);
  EXPECT_GT(divided, 0);
  EXPECT_GT(smooth, 0);
}

TEST(Rope, CosinesAreBf16) {
  RopeParams params;
  params.headDim = 4;
  float cos[2], sin[2];
  ropeCosSin(params, 0, cos, sin);
  EXPECT_EQ(cos[0], 1.0f);
  EXPECT_EQ(sin[1], 0.0f);
  ropeCosSin(params, 3, cos, sin);
  EXPECT_EQ(cos[0], roundToBf16(std::cos(3.0f)));
  EXPECT_EQ(sin[0], roundToBf16(std::sin(3.0f)));
  EXPECT_EQ(sin[1], roundToBf16(std::sin(0.03f)));
  EXPECT_NE(cos[0], std::cos(3.0f));
}
