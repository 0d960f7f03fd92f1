#include "megalith/IR/Scalar.h"
#include <cmath>
#include <gtest/gtest.h>
#include <random>

using namespace megalith::ir;

namespace {

int64_t whole(Op op, int64_t a, int64_t b = 0) {
  return valueOf(op, {ScalarValue::whole(a), ScalarValue::whole(b)})->i;
}
float real(Op op, float a, float b = 0) { return valueOf(op, {ScalarValue::real(a), ScalarValue::real(b)})->f; }

} // namespace

TEST(Scalar, WholeNumbersAreExactAndThenWrap) {
  EXPECT_EQ(whole(Op::Add, INT32_MAX, 1), 2147483648);
  EXPECT_EQ(wrapped(whole(Op::Add, INT32_MAX, 1)), INT32_MIN);
  EXPECT_EQ(wrapped(whole(Op::Mul, INT32_MIN, INT32_MIN)), 0);
  EXPECT_EQ(wrapped(whole(Op::Neg, INT32_MIN)), INT32_MIN);
  EXPECT_EQ(wrapped(whole(Op::Abs, INT32_MIN)), INT32_MIN);
  EXPECT_EQ(wrapped(whole(Op::Div, INT32_MIN, -1)), INT32_MIN);
  EXPECT_EQ(whole(Op::Div, -7, 2), -3);
  EXPECT_EQ(whole(Op::Div, 7, 0), 0);
  EXPECT_EQ(whole(Op::Mod, -7, 2), -1);
  EXPECT_EQ(whole(Op::Mod, 7, 0), 0);
  EXPECT_EQ(whole(Op::Le, 3, 3), 1);
}

TEST(Scalar, RealNumbersAreRoundedOnce) {
  EXPECT_EQ(real(Op::Add, 1.0f, 0x1p-24f), 1.0f);
  EXPECT_EQ(real(Op::Min, 2.0f, std::nanf("")), 2.0f);
  EXPECT_TRUE(std::isnan(real(Op::Min, std::nanf(""), 2.0f)));
  EXPECT_TRUE(std::signbit(real(Op::Max, -0.0f, 0.0f))) << "the first of equal ones";
  EXPECT_EQ(valueOf(Op::Ratio, {ScalarValue::whole(1), ScalarValue::whole(0)})->f, 0.0f);
  EXPECT_EQ(valueOf(Op::Cast, {ScalarValue::real(1e30f)})->i, INT32_MAX);
  EXPECT_EQ(valueOf(Op::Cast, {ScalarValue::whole(16777217)}, true)->f, 16777216.0f);
  EXPECT_FALSE(valueOf(Op::Mod, {ScalarValue::real(1), ScalarValue::real(1)}));
  EXPECT_FALSE(valueOf(Op::Const, {}));
}

// Every value lies in the interval of its operation.
TEST(Scalar, IntervalsHoldTheValues) {
  std::mt19937 random(1);
  const int64_t ends[] = {INT32_MIN, INT32_MIN + 1, -9, -1, 0, 1, 2, 7, INT32_MAX - 1, INT32_MAX};
  const auto any = [&] { return ends[random() % std::size(ends)] + (random() % 2 ? 0 : int64_t(random() % 5) - 2); };
  const auto interval = [&] {
    const int64_t a = std::clamp<int64_t>(any(), INT32_MIN, INT32_MAX),
                  b = std::clamp<int64_t>(any(), INT32_MIN, INT32_MAX);
    return Interval{std::min(a, b), std::max(a, b)};
  };
  const auto in = [&](Interval i) {
    return std::clamp<int64_t>(random() % 2 ? any() : i.lo + int64_t(random() % uint64_t(i.hi - i.lo + 1)), i.lo, i.hi);
  };
  for (int round = 0; round < 200000; ++round)
    for (Op op : {Op::Add, Op::Sub, Op::Mul, Op::Div, Op::Mod, Op::Min, Op::Max, Op::Neg, Op::Abs}) {
      const Interval a = interval(), b = interval();
      const int64_t x = in(a), y = in(b), value = whole(op, x, y);
      const Interval exact = exactInterval(op, a, b), known = intervalOf(op, a, b);
      ASSERT_TRUE(exact.lo <= value && value <= exact.hi) << mnemonic(op).str() << " of " << x << ", " << y;
      ASSERT_TRUE(known.lo <= wrapped(value) && wrapped(value) <= known.hi) << mnemonic(op).str();
      ASSERT_TRUE(known.isI32());
    }
}
