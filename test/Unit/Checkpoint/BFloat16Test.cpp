#include "megalith/Checkpoint/BFloat16.h"
#include <cmath>
#include <gtest/gtest.h>
#include <limits>

using namespace megalith;

static float fromBits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

TEST(BFloat16, EveryPatternComesBack) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    float value = bf16ToFloat(static_cast<uint16_t>(bits));
    if (std::isnan(value))
      EXPECT_EQ(floatToBf16(value), 0x7fff);
    else
      EXPECT_EQ(floatToBf16(value), bits);
  }
}

TEST(BFloat16, RoundsToNearestEven) {
  EXPECT_EQ(floatToBf16(fromBits(0x3f807fff)), 0x3f80);
  EXPECT_EQ(floatToBf16(fromBits(0x3f808000)), 0x3f80); // tie, kept place even
  EXPECT_EQ(floatToBf16(fromBits(0x3f808001)), 0x3f81);
  EXPECT_EQ(floatToBf16(fromBits(0x3f818000)), 0x3f82); // tie, kept place odd
  EXPECT_EQ(floatToBf16(fromBits(0xbf818000)), 0xbf82);
}

TEST(BFloat16, OverflowsToInfinity) {
  EXPECT_EQ(floatToBf16(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_EQ(floatToBf16(-std::numeric_limits<float>::max()), 0xff80);
}

TEST(BFloat16, NanWhoseHighBitsAreZeroStaysNan) {
  EXPECT_TRUE(std::isnan(roundToBf16(fromBits(0x7f800001))));
  EXPECT_TRUE(std::isnan(roundToBf16(fromBits(0xffffffff))));
}
