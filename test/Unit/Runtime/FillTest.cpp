#include "runtime/Fill.h"
#include "TinyManifest.h"
#include "runtime/Weights.h"
#include <cmath>
#include <gtest/gtest.h>

using namespace megalith::runtime;

TEST(FillTest, SeedsAreZlibsCrc) {
  EXPECT_EQ(crc32(""), 0u);
  EXPECT_EQ(crc32("123456789"), 0xcbf43926u);
  EXPECT_EQ(crc32("model.embed_tokens.weight"), 0x15da8852u);
}

TEST(FillTest, ScalesFollowTheShape) {
  const Fill matrix = fillOf("a.weight", {3, 64}), norm = fillOf("a.weight", {64}), bias = fillOf("a.bias", {64});
  EXPECT_EQ(matrix.seed, crc32("a.weight"));
  EXPECT_EQ(matrix.scale, static_cast<float>(2 * std::sqrt(3.0) / 8));
  EXPECT_EQ(matrix.mean, 0);
  EXPECT_EQ(norm.scale, 0.25f);
  EXPECT_EQ(norm.mean, 1);
  EXPECT_EQ(bias.scale, 0.1f);
  EXPECT_EQ(bias.mean, 0);
  EXPECT_EQ(fillOf("a.bias", {3, 64}).scale, matrix.scale) << "two dimensions come first";
  EXPECT_TRUE(fillOfKv("kCache"));
  EXPECT_NE(fillOfKv("kCache")->seed, fillOfKv("vCache")->seed);
  EXPECT_FALSE(fillOfKv("workspace"));
}

TEST(FillTest, FillsEveryTensorOfTheManifest) {
  const auto tensors = randomWeights(Manifest::parse(tinyManifest())->models[0]);
  ASSERT_EQ(tensors.size(), 2u);
  EXPECT_EQ(tensors[1].name, "layers.1.w");
  EXPECT_EQ(tensors[1].elements, 6u);
  EXPECT_EQ(tensors[1].fill.seed, crc32("layers.1.w"));
}
