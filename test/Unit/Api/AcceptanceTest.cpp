#include "megalith/Tools.h"
#include <gtest/gtest.h>

namespace megalith::tools {
namespace {

TEST(Acceptance, HoldsByRequestOrByPhase) {
  auto one = Acceptance::parse("0.25");
  ASSERT_TRUE(one);
  EXPECT_EQ(one->text(), "0.25");
  EXPECT_EQ(one->at(7, 1000), 0.25);

  auto requests = Acceptance::parse("0.9,0.5,0");
  ASSERT_TRUE(requests);
  for (size_t r = 0; r < 9; ++r)
    EXPECT_EQ(requests->at(r, 3), r % 3 == 0 ? 0.9 : r % 3 == 1 ? 0.5 : 0);

  auto phases = Acceptance::parse("1:2,0.5:3");
  ASSERT_TRUE(phases);
  const double expected[] = {1, 1, 0.5, 0.5, 0.5, 1, 1, 0.5};
  for (int64_t position = 0; position < 8; ++position)
    EXPECT_EQ(phases->at(4, position), expected[position]) << position;
}

TEST(Acceptance, RefusesWhatItDoesNotUnderstand) {
  for (const char *text : {"", ",", "x", "-0.1", "1.01", "inf", "nan", "0.5:", "0.5:x", "0.5:-1", "0.5:3000000000",
                           "0.5:1:2", "0.5,0.5:3"})
    EXPECT_EQ(Acceptance::parse(text).errors().first().kind, "bad-option") << text;
}

} // namespace
} // namespace megalith::tools
