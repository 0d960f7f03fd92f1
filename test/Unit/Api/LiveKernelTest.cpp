//===- LiveKernelTest.cpp - sessions of a kernel, through its rings -===//
#include "LiveTesting.h"
#include <algorithm>

namespace live_testing {

/// The rings of a kernel, which rests as often as it can. Its ring is full most of the time.
TEST(LiveKernel, GoesThroughTheRingsAsARunGoes) {
  const Kernel kernel = loaded(serving(), Device::Cpu);
  std::vector<Request> requests;
  for (int i = 0; i < 6; ++i) {
    Request r = request(1 + i, std::vector<int32_t>(1 + 5 * i % 7, 40 + i));
    r.id = "r" + std::to_string(i);
    r.priority = i % 2;
    r.sampling.temperature = i % 3 ? 1.0f : 0.0f;
    requests.push_back(r);
  }
  requests[4].maxNewTokens = 400; // is taken back
  std::vector<Request> shorter = requests;
  shorter[4].maxNewTokens = 20;
  auto results = kernel.run(shorter, {.seed = 9});
  ASSERT_TRUE(results) << results.errors().text();

  LiveSession session = opened(kernel, {.places = 3, .ring = 4, .seed = 9, .idleMs = 0});
  Heard heard;
  ASSERT_TRUE(session.submit(requests[0], 0));
  listen(session, heard, [&] { return !heard.finish(0).empty(); });
  waitUntil([&] { return !session.stats().launched; });
  for (size_t i = 1; i < requests.size(); ++i)
    ASSERT_TRUE(session.submit(requests[i], i));
  listenForTokens(session, heard, 4);
  ASSERT_TRUE(session.cancel(4));
  listen(session, heard, [&] { return heard.finish(4) == "cancelled"; });
  Request late = request(2000);
  late.deadlineMs = 400;
  ASSERT_TRUE(session.submit(late));
  ASSERT_TRUE(session.stop());
  listen(session, heard);
  EXPECT_EQ(heard.finish(6), "deadline");
  EXPECT_EQ(heard.of[6].end->state, "EXPIRED");
  for (size_t i = 0; i < requests.size(); ++i) {
    SCOPED_TRACE(i);
    EXPECT_EQ(heard.of[i].ends, 1);
    const std::vector<int32_t> &all = results->requests[i].tokens;
    if (i == 4) {
      const size_t alike = std::min(all.size(), heard.of[i].tokens.size());
      EXPECT_TRUE(std::equal(all.begin(), all.begin() + alike, heard.of[i].tokens.begin()));
      continue;
    }
    EXPECT_EQ(heard.of[i].tokens, all);
    EXPECT_EQ(heard.finish(i), results->requests[i].finish);
    EXPECT_EQ(heard.of[i].end->rows, results->requests[i].rows);
    EXPECT_GE(heard.of[i].end->admitted, heard.of[i].end->submitted);
  }
  const LiveStats stats = session.stats();
  EXPECT_GE(stats.launches, 2);
  EXPECT_FALSE(stats.launched);
  EXPECT_EQ(pool(stats).used, 0);
  EXPECT_EQ(stats.slots[0].request, std::nullopt);
  EXPECT_GT(stats.hostBytes, 0u);

  // Another one on the same kernel, which ends in the middle.
  LiveSession second = opened(kernel, {.places = 2});
  EXPECT_REFUSED(LiveSession::open(kernel), "[kernel-busy]");
  for (int i = 0; i < 3; ++i)
    ASSERT_TRUE(second.submit(request(2000)));
  Heard of;
  listenForTokens(second, of, 0);
  ASSERT_TRUE(second.stop(LiveSession::Stop::Now));
  listen(second, of);
  for (uint64_t i = 0; i < 3; ++i)
    EXPECT_EQ(of.finish(i), "limit");
}

/// What changes rows of logits comes while the kernel runs, into room for one or two requests at a time.
TEST(LiveKernel, BringsWhatChangesRows) {
  const Kernel kernel = loaded(compiled("sampled.yaml", {{"slots", "4"}, {"kv_pages", "64"}}), Device::Cpu);
  std::vector<Request> requests;
  for (int i = 0; i < 9; ++i) {
    Request r = request(6 + i, std::vector<int32_t>(1 + 5 * i % 7, 40 + i));
    r.id = "r" + std::to_string(i);
    r.sampling.temperature = i % 2 ? 1.0f : 0.0f;
    if (i % 3 == 0)
      r.sampling.format = i == 6 ? R"({"choice": ["yes", "no"]})" : R"({"regex": "[a-f]{2,9}(, [a-f]+)*"})";
    if (i % 3 == 1)
      r.sampling.frequencyPenalty = 1.5f;
    if (i % 4 == 0)
      r.sampling.bias = {{70, 3.0f}};
    requests.push_back(r);
  }
  auto results = kernel.run(requests, {.seed = 9});
  ASSERT_TRUE(results) << results.errors().text();

  LiveSession session = opened(kernel, {.places = 4, .seed = 9, .editBytes = 30000});
  Heard heard;
  for (size_t i = 0; i < requests.size(); ++i)
    ASSERT_TRUE(session.submit(requests[i], i));
  Request large = requests[0];
  large.sampling.format = R"({"regex": "[a-f]{200}"})";
  EXPECT_REFUSED(session.submit(large),
                 "of the device, and the session has 30000; open it with greater `editBytes` [live-edits]");
  ASSERT_TRUE(session.stop());
  listen(session, heard);
  for (size_t i = 0; i < requests.size(); ++i) {
    SCOPED_TRACE(i);
    EXPECT_EQ(heard.of[i].tokens, results->requests[i].tokens);
    EXPECT_EQ(heard.finish(i), results->requests[i].finish);
    EXPECT_EQ(heard.of[i].end->format, results->requests[i].format);
    EXPECT_EQ(heard.of[i].end->format.empty(), i % 3 != 0);
  }
}

/// One that waits for room is taken back, or late, as others that wait are.
TEST(LiveKernel, EndsThoseThatWaitForRoom) {
  const Kernel kernel = loaded(compiled("sampled.yaml", {{"slots", "4"}, {"kv_pages", "64"}}), Device::Cpu);
  Request large = request(1900);
  large.sampling.format = R"({"regex": "[a-f]{40,}"})";
  Request other = request(5);
  other.sampling.format = R"({"regex": "[g-m]{40,}"})";
  LiveSession session = opened(kernel, {.places = 4, .editBytes = 30000});
  Heard heard;
  ASSERT_TRUE(session.submit(large, 0));
  listenForTokens(session, heard, 0);
  Request late = other;
  late.deadlineMs = 50;
  ASSERT_TRUE(session.submit(late, 1));
  ASSERT_TRUE(session.submit(other, 2));
  ASSERT_TRUE(session.submit(other, 3));
  listen(session, heard, [&] { return !heard.finish(1).empty(); });
  EXPECT_EQ(heard.finish(1), "deadline");
  ASSERT_TRUE(session.cancel(2));
  listen(session, heard, [&] { return !heard.finish(2).empty(); });
  EXPECT_EQ(heard.finish(2), "cancelled");
  EXPECT_TRUE(heard.finish(0).empty()); // it still has the room
  ASSERT_TRUE(session.cancel(0));
  ASSERT_TRUE(session.stop());
  listen(session, heard);
  EXPECT_EQ(heard.finish(0), "cancelled");
  EXPECT_EQ(heard.of[3].tokens.size(), 5u);
}

} // namespace live_testing
