#include "megalith/Requests/Replay.h"
#include <cmath>
#include <gtest/gtest.h>

using namespace megalith;

namespace {

constexpr float nan = NAN, infinity = INFINITY;

TEST(Replay, TheArgmaxIsTheLowestIndexOfTheMaximum) {
  EXPECT_EQ(argmaxOf(std::vector<float>{1, 3, 2, 3}), 1);
  EXPECT_EQ(argmaxOf(std::vector<float>{-infinity, -infinity}), 0);
  EXPECT_EQ(argmaxOf(std::vector<float>{-0.0f, 0.0f}), 0);
  EXPECT_EQ(argmaxOf(std::vector<float>{infinity, 1, nan}), -2);
}

/// A trace of two ticks: a row without logits and one with result 1; a row with result 2.
Trace sample() {
  Trace trace;
  trace.ticks.resize(2);
  trace.ticks[0].passes = {{"m", {{0, 7, 0, 0, 1, -1, 0, -1}, {0, 8, 1, 1, 2, 0, RowWantsLogits, 1}}, {}}};
  trace.ticks[1].passes = {{"m", {{0, 9, 2, 2, 3, -1, RowWantsLogits, 2}}, {}}};
  return trace;
}

TEST(Replay, ResultsInTheOrderOfTheRows) { EXPECT_EQ(resultsOf(sample()), (std::vector<int32_t>{-1, 1, 2})); }

/// The mismatches of tick 0 when its second row has these logits.
std::vector<ReplayMismatch> check(const std::vector<float> &logits, double epsilon, int32_t result = 1) {
  Trace given = sample();
  given.ticks[0].passes[0].rows[1].result = result;
  std::vector<ReplayMismatch> out;
  auto of = [&](size_t row) {
    EXPECT_EQ(row, 1u) << "the other row has no logits";
    return std::span<const float>(logits);
  };
  EXPECT_EQ(checkReplay(given, 0, 0, sample().ticks[0].passes[0], epsilon, of, out), &given.ticks[0].passes[0]);
  return out;
}

TEST(Replay, AResultMayLieThatFarBelowTheMaximum) {
  EXPECT_TRUE(check({0, 5, 0}, 0).empty());
  EXPECT_TRUE(check({3, 3, 0}, 0).empty()) << "a tie is no gap";
  EXPECT_TRUE(check({0, 0, 0}, 0).empty());
  // 2-norm 5, gap 1 / 5.
  EXPECT_TRUE(check({4, 3, 0}, 0.2001).empty());
  auto far = check({4, 3, 0}, 0.1999);
  ASSERT_EQ(far.size(), 1u);
  EXPECT_EQ(far[0].tick, 0);
  EXPECT_EQ(far[0].row, 1);
  EXPECT_EQ(far[0].expected, 1);
  EXPECT_EQ(far[0].got, 0);
  EXPECT_DOUBLE_EQ(far[0].gap, 0.2);
}

TEST(Replay, ANanIsOnlyANan) {
  EXPECT_TRUE(check({nan, 5, 0}, 0, -2).empty());
  for (int32_t result : {-2, -1, -7, 3, 1 << 30})
    EXPECT_EQ(check({0, 5, 0}, 1e9, result).size(), 1u) << result;
  auto own = check({0, 5, nan}, 1e9);
  ASSERT_EQ(own.size(), 1u);
  EXPECT_EQ(own[0].got, -2);
  EXPECT_EQ(check({infinity, 5, 0}, 1e9).size(), 1u) << "no gap can be told";
}

TEST(Replay, EveryOtherWordIsTheSame) {
  auto differs = [](auto &&change, int64_t tick = 0, size_t number = 0) {
    const Trace given = sample();
    TracePass own = given.ticks[0].passes[0];
    change(own);
    std::vector<ReplayMismatch> out;
    std::vector<float> logits = {0, 1, 0};
    const TracePass *pass =
        checkReplay(given, tick, number, own, 0, [&](size_t) { return std::span<const float>(logits); }, out);
    EXPECT_EQ(pass == nullptr, !out.empty());
    if (!out.empty()) {
      EXPECT_EQ(out.size(), 1u);
      EXPECT_EQ(out[0].tick, tick);
      EXPECT_EQ(out[0].row, -1);
    }
    return !out.empty();
  };
  auto nothing = [](TracePass &) {};
  EXPECT_FALSE(differs(nothing));
  EXPECT_FALSE(differs([](TracePass &p) { p.rows[1].result = 4; }));
  EXPECT_TRUE(differs([](TracePass &p) { p.rows[0].slot = 1; }));
  EXPECT_TRUE(differs([](TracePass &p) { p.rows[0].token = 1; }));
  EXPECT_TRUE(differs([](TracePass &p) { p.rows[0].position = 1; }));
  EXPECT_TRUE(differs([](TracePass &p) { p.rows[0].kvSlot = 1; }));
  EXPECT_TRUE(differs([](TracePass &p) { p.rows[0].visible = 2; }));
  EXPECT_TRUE(differs([](TracePass &p) { p.rows[0].parent = 7; }));
  EXPECT_TRUE(differs([](TracePass &p) { p.rows[0].flags = RowWantsLogits; }));
  EXPECT_TRUE(differs([](TracePass &p) { p.rows.pop_back(); }));
  EXPECT_TRUE(differs([](TracePass &p) { p.rows.push_back(p.rows[0]); }));
  EXPECT_TRUE(differs([](TracePass &p) { p.model = "other"; }));
  EXPECT_TRUE(differs(nothing, 1));
  EXPECT_TRUE(differs(nothing, 2));
  EXPECT_TRUE(differs(nothing, 0, 1));
}

} // namespace
