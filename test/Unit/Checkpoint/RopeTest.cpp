#include "megalith/Checkpoint/BFloat16.h"
#include "megalith/Checkpoint/ConfigFile.h"
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

static RopeParams ropeOf(const char *text, int headDim) {
  auto config = ConfigFile::parse(text);
  auto rope = config->rope(headDim, {}, headDim);
  EXPECT_TRUE(rope) << (rope ? "" : rope.error.message);
  return rope ? *rope : RopeParams();
}

/// Frequencies, and cosines and sines of the first four at position 1000, of `transformers` 5.17.
static void expectRope(const RopeParams &params, double attention, const std::vector<float> &frequencies,
                       const std::vector<float> &cosines, const std::vector<float> &sines) {
  EXPECT_DOUBLE_EQ(params.attention, attention);
  const std::vector<float> found = inverseFrequencies(params);
  ASSERT_EQ(found.size(), frequencies.size());
  for (size_t i = 0; i < found.size(); ++i)
    EXPECT_FLOAT_EQ(found[i], frequencies[i]) << i;
  std::vector<float> cos(found.size()), sin(found.size());
  ropeCosSin(params, 1000, cos.data(), sin.data());
  for (size_t i = 0; i < cosines.size(); ++i) {
    EXPECT_NEAR(cos[i], cosines[i], 1e-5) << i;
    EXPECT_NEAR(sin[i], sines[i], 1e-5) << i;
  }
}

TEST(Rope, YarnIsThatOfTransformers) {
  expectRope(ropeOf(R"({"rope_theta": 10000.0, "rope_scaling": {"rope_type": "yarn", "factor": 4.0,
                        "original_max_position_embeddings": 2048}})",
                    32),
             1.138629436111989,
             {1.0, 0.5623413324356079, 0.3162277638912201, 0.17782793939113617, 0.10000000149011612,
              0.05020904168486595, 0.02484646998345852, 0.012066896073520184, 0.0057142856530845165,
              0.0026108704041689634, 0.0011293849674984813, 0.00044456985779106617, 0.0002500000118743628,
              0.00014058532542549074, 7.905694656074047e-05, 4.4456985051510856e-05},
             {0.640625, -1.140625, -0.54296875, -0.3671875}, {0.94140625, 0.004302978515625, 1.0, 1.078125});
  expectRope(ropeOf(R"({"rope_parameters": {"rope_theta": 150000.0, "rope_type": "yarn", "factor": 32.0,
                        "original_max_position_embeddings": 4096, "beta_fast": 32.0, "beta_slow": 1.0,
                        "truncate": false, "mscale": 1.0, "mscale_all_dim": 0.5}})",
                    32),
             1.1476934674947155,
             {1.0, 0.4747820496559143, 0.22541800141334534, 0.1070244163274765, 0.05081327259540558,
              0.019335001707077026, 0.006794959306716919, 0.002093792660161853, 0.0004564839182421565,
              3.830881178146228e-05, 1.818833698052913e-05, 8.635495760245249e-06, 4.099978468730114e-06,
              1.9465962850517826e-06, 9.242089618055616e-07, 4.38797854940276e-07},
             {0.64453125, -1.0546875, 0.8203125, 1.125}, {0.94921875, -0.44921875, -0.8046875, 0.2392578125});
  expectRope(ropeOf(R"({"rope_parameters": {"rope_theta": 10000.0, "rope_type": "yarn", "factor": 4.0,
                        "original_max_position_embeddings": 2048, "attention_factor": 1.5}})",
                    16),
             1.5,
             {1.0, 0.3162277638912201, 0.10000000149011612, 0.025693506002426147, 0.00624999962747097,
              0.0013834965648129582, 0.0002500000118743628, 7.905694656074047e-05},
             {0.84375, -0.71484375, 1.296875, 1.2734375}, {1.2421875, 1.3203125, -0.7578125, 0.796875});
}

TEST(Rope, LongRopeIsThatOfTransformers) {
  const RopeParams rope = ropeOf(R"({"rope_theta": 10000.0, "max_position_embeddings": 8192,
      "original_max_position_embeddings": 4096, "rope_scaling": {"type": "longrope",
        "short_factor": [1.0, 1.1, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0],
        "long_factor": [1.0, 1.5, 2.5, 4.0, 6.0, 9.0, 12.0, 16.0]}})",
                                 16);
  expectRope(rope, 1.0408329997330663,
             {1.0, 0.2874797582626343, 0.07999999821186066, 0.021081849932670593, 0.0057142856530845165,
              0.0015811389312148094, 0.00039999998989515007, 0.00010540925723034889},
             {0.5859375, 0.0250244140625, -0.11474609375, -0.640625}, {0.859375, -1.0390625, -1.03125, 0.8203125});
  EXPECT_EQ(rope.mostPositions(), 4096);
  EXPECT_FALSE(RopeParams().mostPositions());
}

TEST(Rope, FurtherTables) {
  RopeParams own;
  own.headDim = 4;
  own.type = "linear";
  own.factor = 2;
  const std::vector<RopeParams> tables = ropeTables(own, {100.0, 0.0});
  ASSERT_EQ(tables.size(), 3u);
  EXPECT_EQ(inverseFrequencies(tables[0]), (std::vector<float>{0.5f, 0.005f}));
  EXPECT_EQ(inverseFrequencies(tables[1]), (std::vector<float>{1.0f, 0.1f}));
  float cos[2], sin[2];
  ropeCosSin(tables[2], 1234, cos, sin);
  for (int i : {0, 1}) {
    EXPECT_EQ(cos[i], 1.0f);
    EXPECT_EQ(sin[i], 0.0f);
  }
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
