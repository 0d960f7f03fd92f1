#include "megalith/Tools.h"
#include <gtest/gtest.h>

namespace megalith::tools {
namespace {

TEST(Percentiles, LieOnTheLineBetweenTwoValues) {
  EXPECT_EQ(percentile({7}, 99), 7);
  EXPECT_EQ(percentile({4, 1, 3, 2}, 50), 2.5) << "in any order";
  EXPECT_EQ(percentile({3, 1, 2}, 50), 2);
  EXPECT_DOUBLE_EQ(percentile({10, 20, 30, 40, 50}, 95), 48);
  EXPECT_EQ(percentile({1, 2}, 0), 1);
  EXPECT_EQ(percentile({1, 2}, 100), 2);
  EXPECT_EQ(percentile({1, 2}, 200), 2);

  EXPECT_FALSE(percentilesOf({}));
  const auto all = percentilesOf({5, 1, 9});
  ASSERT_TRUE(all);
  EXPECT_EQ(all->p50, 5);
  EXPECT_DOUBLE_EQ(all->p95, 8.6);
  EXPECT_DOUBLE_EQ(all->p99, 8.92);
  EXPECT_EQ(all->max, 9);
}

TEST(Latency, IsWhatAClientSees) {
  RequestTimes times;
  Latency none = latencyOf(times);
  EXPECT_FALSE(none.queued || none.firstToken || none.perToken);
  EXPECT_TRUE(none.gaps.empty());

  times.admitted = 2;
  times.appends = {{5, 1}};
  Latency one = latencyOf(times);
  EXPECT_EQ(one.queued, 2);
  EXPECT_EQ(one.firstToken, 5);
  EXPECT_FALSE(one.perToken);
  EXPECT_TRUE(one.gaps.empty());

  times.appends = {{5, 2}, {9, 4}, {11, 1}};
  Latency several = latencyOf(times);
  EXPECT_EQ(several.firstToken, 5);
  EXPECT_DOUBLE_EQ(*several.perToken, 6.0 / 5);
  EXPECT_EQ(several.gaps, (std::vector<double>{4, 2}));

  times.arrived = 1.5;
  Latency later = latencyOf(times);
  EXPECT_EQ(later.queued, 0.5);
  EXPECT_EQ(later.firstToken, 3.5);
  EXPECT_DOUBLE_EQ(*later.perToken, 6.0 / 5);
}

} // namespace
} // namespace megalith::tools
