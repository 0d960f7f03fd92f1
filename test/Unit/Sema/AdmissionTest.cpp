//===- AdmissionTest.cpp - order, limit, and the ends that the host asks for ----===//
#include "PipelineBase.h"

using namespace megalith;
using namespace megalith::test;

namespace {

/// The base pipeline with these lines in the stage `admit`, from line 31 on.
Check admitting(const std::string &lines, std::vector<Edit> more = {}) {
  more.push_back({"    on: QUEUED\n", "    on: QUEUED\n" + lines});
  return check(more);
}

/// The first line of the one error.
std::string errorOf(const Check &c) {
  EXPECT_EQ(c.errors, 1u) << c.messages;
  return c.messages.substr(0, c.messages.find('\n'));
}

TEST(Admission, KeysAndLimits) {
  const Check c = admitting(
      "    order: [arrived - block * priority, rate * f32(prompt_len), -deadline_ms, -tenant]\n    limit: block + 1\n",
      {{"accepted: i32 = 0", "accepted: i32 = 0\n  tenant: i32 in 0..4 = input(0)"}});
  ASSERT_TRUE(c.pipeline) << c.messages;
  const CheckedStage &admit = c.pipeline->stages[0];
  ASSERT_EQ(admit.order.size(), 4u);
  EXPECT_TRUE(admit.order[0]->type.is(sema::Elem::I32));
  EXPECT_TRUE(admit.order[1]->type.is(sema::Elem::F32));
  EXPECT_EQ(admit.limit, 5);
  EXPECT_FALSE(check({}).pipeline->stages[0].limit);
  EXPECT_TRUE(admitting("    order: [accepted]\n").pipeline) << "a field that the stage does not set";
}

TEST(Admission, KeysStayWhileARequestWaits) {
  const struct {
    const char *key, *column, *what;
  } cases[] = {
      {"now_ms - arrived_ms", "13", "what changes while the request waits"},
      {"priority + tick", "24", "what changes while the request waits"},
      {"len(tokens)", "13", "this"},
      {"kv.target.live", "13", "this"},
      {"size.width", "13", "this"},
      {"seated", "13", "what changes while the request waits"},
      {"\"min(priority, len(draft))\"", "28", "this"},
  };
  for (const auto &c : cases)
    EXPECT_EQ(errorOf(admitting(std::string("    order: [") + c.key + "]\n")),
              std::string("p.yaml:31:") + c.column + ": error: a key of `order` cannot use " + c.what +
                  ": the requests that wait for stage `admit` keep their keys [order-key]")
        << c.key;
  EXPECT_EQ(
      errorOf(admitting("    order: [accepted]\n", {{"    do: []", "    do:\n      - accepted: 1"}})),
      "p.yaml:31:13: error: a key of `order` cannot use field `accepted`, which the stage sets: the requests that "
      "wait for stage `admit` keep their keys [order-key]");
}

TEST(Admission, Errors) {
  EXPECT_EQ(errorOf(admitting("    order: [finished]\n")),
            "p.yaml:31:13: error: a key of `order` must be i32 or f32, found bool [type-mismatch]");
  EXPECT_EQ(errorOf(admitting("    order: priority\n")),
            "p.yaml:31:12: error: `order` of stage `admit` must be a list of keys, found `priority` [wrong-node-kind]");
  EXPECT_EQ(errorOf(admitting("    order: [1, 2, 3, 4, 5]\n")),
            "p.yaml:31:25: error: the number of keys of `order` must be from 1 to 4, found 5 [admission-range]");
  EXPECT_EQ(errorOf(admitting("    limit: 0\n")),
            "p.yaml:31:12: error: `limit` must be from 1 to 1024, found 0 [admission-range]");
  EXPECT_EQ(errorOf(admitting("    limit: 1025\n")),
            "p.yaml:31:12: error: `limit` must be from 1 to 1024, found 1025 [admission-range]");
  EXPECT_EQ(errorOf(admitting("    limit: priority\n")), "p.yaml:31:12: error: unknown name `priority` [unknown-name]");
  EXPECT_EQ(errorOf(check({{"    on: VERIFY\n", "    on: VERIFY\n    order: [priority]\n"}})),
            "p.yaml:40:12: error: `order` of stage `verify` is of requests that wait for a slot, but those in state "
            "`VERIFY` have one [admission-only]");
  EXPECT_EQ(errorOf(check({{"    on: VERIFY\n", "    on: VERIFY\n    limit: 3\n"}})),
            "p.yaml:40:12: error: `limit` of stage `verify` is of requests that wait for a slot, but those in state "
            "`VERIFY` have one [admission-only]");
}

TEST(Admission, EndsOfTheHost) {
  const Check c = check({{"  fault: FAILED\n", "  fault: FAILED\n  cancel: GONE\n  deadline: DONE\n"},
                         {"  FAILED: {terminal: true}", "  FAILED: {terminal: true}\n  GONE: {terminal: true}"}});
  ASSERT_TRUE(c.pipeline) << c.messages;
  EXPECT_EQ(c.pipeline->cancel, "GONE");
  EXPECT_EQ(c.pipeline->deadline, "DONE");
  EXPECT_EQ(errorOf(check({{"  fault: FAILED\n", "  fault: FAILED\n  cancel: VERIFY\n"}})),
            "p.yaml:16:3: error: state `VERIFY` is the cancel state and needs `terminal: true` [bad-state-flags]");
  EXPECT_EQ(errorOf(check({{"  fault: FAILED\n", "  fault: FAILED\n  deadline: GONE\n"}})),
            "p.yaml:13:13: error: unknown state `GONE` [unknown-state]");
  EXPECT_EQ(errorOf(check({{"    do: []", "    do:\n      - now_ms: 1"}})),
            "p.yaml:32:9: error: `now_ms` is a predefined name and cannot be assigned [cannot-assign]");
}

} // namespace
