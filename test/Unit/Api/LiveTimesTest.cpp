#include "megalith/Tools.h"
#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>

namespace megalith::tools {
namespace {

TEST(OpenArrivals, AreThoseOfTheirSeed) {
  const auto first = openArrivals(4, 2, 64, 512, 7);
  ASSERT_EQ(first.size(), 4u);
  // bench/test_bench.py has the same numbers.
  EXPECT_EQ(first[0].at, 0);
  EXPECT_NEAR(first[1].at, 0.529464829, 1e-9);
  EXPECT_NEAR(first[3].at, 1.331258432, 1e-9);
  EXPECT_EQ(first[0].prompt, 422);
  EXPECT_EQ(first[3].prompt, 169);
  EXPECT_NE(openArrivals(4, 2, 64, 512, 8)[1].at, first[1].at) << "another seed";
  EXPECT_DOUBLE_EQ(openArrivals(4, 8, 64, 512, 7)[3].at, first[3].at / 4) << "another rate: the same but faster";
}

TEST(OpenArrivals, ComeAtTheirRate) {
  const auto many = openArrivals(20000, 50, 3, 9, 0);
  EXPECT_NEAR(many.back().at, 20000 / 50.0, 10);
  int64_t sum = 0;
  for (const OpenArrival &arrival : many) {
    EXPECT_TRUE(arrival.prompt >= 3 && arrival.prompt <= 9);
    sum += arrival.prompt;
  }
  EXPECT_NEAR(double(sum) / 20000, 6, 0.1);
  // A third of the gaps, 1/e, is longer than the mean.
  int longer = 0;
  for (size_t i = 1; i < many.size(); ++i)
    longer += many[i].at - many[i - 1].at > 1 / 50.0;
  EXPECT_NEAR(longer / 20000.0, std::exp(-1), 0.02);
}

TEST(AfterFastest, FindsDelaysBetweenTwoClocks) {
  EXPECT_TRUE(afterFastest({}).empty());
  EXPECT_EQ(afterFastest({{5, 100}}), (std::vector<double>{0}));
  // One clock is 12 millionths faster than the other, and began at another time: within the ten seconds that is more
  // than the delays. Each second there is one without any.
  std::vector<TwoTimes> seen;
  std::vector<double> delays;
  for (int i = 0; i <= 1000; ++i) {
    const double us = i * 1e4, delay = i % 100 == 0 ? 0 : 5 + i * 7 % 30;
    delays.push_back(delay);
    seen.push_back({1'700'000'000'000'000'000u + uint64_t(us * 1e3), us * 1.000012 + delay - 777});
  }
  const auto found = afterFastest(seen);
  for (size_t i = 0; i < delays.size(); ++i)
    EXPECT_NEAR(found[i], delays[i], 1e-3) << i;
  // In any order.
  std::reverse(seen.begin(), seen.end());
  EXPECT_NEAR(afterFastest(seen)[1000 - 7], delays[7], 1e-3);
  // Of two at the same time, the earlier one.
  EXPECT_EQ(afterFastest({{10, 5}, {10, 3}}), (std::vector<double>{2, 0}));
}

TEST(SteadyRate, IsThatOfTheTimeInWhichAllGenerate) {
  EXPECT_FALSE(steadyRate({}));
  EXPECT_FALSE(steadyRate({{{1, 1}}})) << "one token is no time";
  EXPECT_FALSE(steadyRate({{{1, 1}, {2, 1}}, {}}));
  EXPECT_EQ(steadyRate({{{1, 1}, {2, 1}, {3, 1}}}), 1);
  // From 2 to 4: three tokens of the one, two of the other.
  EXPECT_EQ(steadyRate({{{1, 1}, {2, 1}, {3, 2}, {4, 1}}, {{2, 1}, {3, 1}, {4, 1}, {5, 1}}}), 2.5);
  EXPECT_FALSE(steadyRate({{{1, 1}, {2, 1}}, {{3, 1}, {4, 1}}})) << "one after the other";
}

} // namespace
} // namespace megalith::tools
