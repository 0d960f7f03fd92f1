#include "runtime/Run.h"
#include <cmath>
#include <gtest/gtest.h>

using namespace megalith::runtime;

namespace {

RunOutcome sample() {
  RunOutcome run;
  run.requests = {{{"length", "DONE"}, "a", {1, 2}}, {{"stop", "DONE"}, "b", {3}}};
  run.logits = {{1, NAN}, {0}};
  run.trace.ticks.resize(2);
  run.trace.ticks[0].tick = 4;
  run.trace.ticks[0].passes = {{"m", {{0, 1, 0, 0, 1, -1, 0, -1}}, {77}}};
  run.times = {{RunOutcome::Moment{0, 1, 50}, {{1, 1, 90}, {2, 1, 120}}}, {}};
  run.metrics = {{"hits", 2}};
  return run;
}

TEST(Run, TheFirstDifferenceHasAName) {
  auto difference = [](auto &&change) {
    RunOutcome other = sample();
    change(other);
    return differenceOf(sample(), other);
  };
  EXPECT_EQ(difference([](RunOutcome &r) { r.kernelMs = 7; }), "") << "a NaN equals itself";
  EXPECT_EQ(difference([](RunOutcome &r) { r.requests[1].tokens[0] = 4; }), "the tokens or the end of request `b`");
  EXPECT_EQ(difference([](RunOutcome &r) { r.requests[0].finish = "stop"; }), "the tokens or the end of request `a`");
  EXPECT_EQ(difference([](RunOutcome &r) { r.requests[1].state = "LOOPED"; }), "the tokens or the end of request `b`");
  EXPECT_EQ(difference([](RunOutcome &r) { r.logits[1][0] = -0.0f; }), "the logits of request `b`");
  EXPECT_EQ(difference([](RunOutcome &r) { r.logits[0].pop_back(); }), "the logits of request `a`");
  EXPECT_EQ(difference([](RunOutcome &r) { r.trace.ticks[0].passes[0].rows[0].token = 2; }),
            "the trace, tick 4, pass 0, row 0, token: 1 against 2");
  EXPECT_EQ(difference([](RunOutcome &r) { r.trace.ticks[0].passes[0].kvHash[0] = 78; }), "K and V written in tick 4");
  EXPECT_EQ(difference([](RunOutcome &r) { r.metrics["hits"] = 3; }), "the metrics");
  EXPECT_EQ(difference([](RunOutcome &r) { r.times[0].appends[1].nanoseconds = 7; }), "")
      << "no two runs agree in them";
  const char *a = "the ticks of admission and appends of request `a`";
  EXPECT_EQ(difference([](RunOutcome &r) { r.times[0].admitted->tick = 1; }), a);
  EXPECT_EQ(difference([](RunOutcome &r) { r.times[0].admitted.reset(); }), a);
  EXPECT_EQ(difference([](RunOutcome &r) { r.times[0].appends[1].tick = 3; }), a);
  EXPECT_EQ(difference([](RunOutcome &r) { r.times[0].appends[0].tokens = 2; }), a);
  EXPECT_EQ(difference([](RunOutcome &r) { r.times[0].appends.pop_back(); }), a);
}

TEST(Run, AppendsOfOneTickAreOne) {
  RunOutcome::Times times;
  times.append({3, 2, 50});
  times.append({3, 1, 60});
  times.append({4, 1, 70});
  ASSERT_EQ(times.appends.size(), 2u);
  EXPECT_EQ(times.appends[0].tick, 3);
  EXPECT_EQ(times.appends[0].tokens, 3);
  EXPECT_EQ(times.appends[0].nanoseconds, 50u);
  EXPECT_EQ(times.appends[1].tokens, 1);
}

} // namespace
