//===- LiveEndTest.cpp - requests that are taken back, and sessions that stop -===//
#include "LiveTesting.h"
#include <thread>

namespace live_testing {

TEST(Live, TakesRequestsBackWhereverTheyAre) {
  const Kernel kernel = loaded(serving());
  // Two run, the third waits in the table, the fourth on the host.
  LiveSession session = opened(kernel, {.places = 3});
  for (uint64_t i = 0; i < 4; ++i)
    ASSERT_EQ(*session.submit(request(2000), i), i);
  Heard heard;
  listenForTokens(session, heard, 0);
  listenForTokens(session, heard, 1);
  LiveStats stats = session.stats();
  EXPECT_EQ(stats.waiting, 1u);
  EXPECT_EQ(stats.running, 3u);
  ASSERT_EQ(stats.slots.size(), 2u);
  EXPECT_EQ(stats.slots[0].request, 0u);
  EXPECT_EQ(stats.slots[0].state, "DECODE");
  EXPECT_EQ(stats.slots[0].promptTokens, 3);
  EXPECT_GT(stats.slots[0].generated, 0);
  EXPECT_GT(stats.slots[0].kvTokens, 2);
  EXPECT_EQ(stats.slots[1].request, 1u);
  EXPECT_EQ(pool(stats).model, "target");
  EXPECT_EQ(pool(stats).pages, 64);
  EXPECT_EQ(pool(stats).used, 2);
  for (uint64_t number : {3, 2, 0}) {
    ASSERT_TRUE(session.cancel(number));
    ASSERT_TRUE(session.cancel(number)); // once more: nothing
    listen(session, heard, [&] { return heard.of[number].end.has_value(); });
    const LiveEnd &end = *heard.of[number].end;
    EXPECT_EQ(end.finish, "cancelled");
    EXPECT_EQ(end.state, "CANCELLED");
    EXPECT_EQ(end.fault, "");
    EXPECT_EQ(end.generated, std::ssize(heard.of[number].tokens));
    EXPECT_EQ(end.admitted >= 0, number == 0);
    EXPECT_EQ(end.firstToken >= 0, number == 0);
  }
  // Its slot is another's, and those that ended are known.
  const uint64_t next = *session.submit(request(1));
  listen(session, heard, [&] { return heard.finish(next) == "length"; });
  EXPECT_TRUE(session.cancel(next));
  EXPECT_TRUE(session.cancel(0));
  EXPECT_REFUSED(session.cancel(5), "there is no request 5: the session was given 5 [live-request]");
  ASSERT_TRUE(session.cancel(1));
  listen(session, heard, [&] { return heard.finish(1) == "cancelled"; });
  ASSERT_TRUE(session.stop());
  stats = session.stats();
  EXPECT_EQ(stats.ended, (std::map<std::string, uint64_t>{{"cancelled", 4}, {"length", 1}}));
  EXPECT_EQ(pool(stats).used, 0);
  EXPECT_EQ(stats.slots[0].request, std::nullopt);
  EXPECT_EQ(stats.running, 0u);
  EXPECT_EQ(stats.promptTokens, 4 * 3); // the fourth never came to the executor
  int64_t tokens = 0;
  for (const auto &[number, one] : heard.of)
    tokens += std::ssize(one.tokens);
  EXPECT_EQ(stats.generatedTokens, tokens);
  EXPECT_EQ(stats.metrics.at("tokens_committed"), tokens);
}

TEST(Live, DeadlinesCountFromWhenARequestIsSubmitted) {
  const Kernel kernel = loaded(serving());
  LiveSession session = opened(kernel, {.places = 3});
  for (int i = 0; i < 2; ++i)
    ASSERT_TRUE(session.submit(request(2000)));
  Heard heard;
  listenForTokens(session, heard, 1);
  Request late = request(2000);
  late.deadlineMs = 60;
  ASSERT_TRUE(session.submit(late)); // waits in the table
  ASSERT_TRUE(session.submit(late)); // on the host
  listen(session, heard, [&] { return heard.of[2].end && heard.of[3].end; });
  ASSERT_TRUE(session.cancel(0));
  // One that runs. How long it needs to have a token is not known.
  uint64_t last = 0;
  do {
    last = *session.submit(late);
    listen(session, heard, [&] { return heard.of[last].end.has_value(); });
    late.deadlineMs *= 2;
  } while (heard.of[last].tokens.empty() && last < 12);
  EXPECT_FALSE(heard.of[last].tokens.empty());
  for (uint64_t number = 2; number <= last; ++number) {
    EXPECT_EQ(heard.of[number].end->finish, "deadline");
    EXPECT_EQ(heard.of[number].end->state, "EXPIRED");
    EXPECT_GE(heard.of[number].end->ended, heard.of[number].end->submitted + 59); // of whole milliseconds
  }
}

TEST(Live, StopsWhenAllHaveEnded) {
  const Kernel kernel = loaded(serving());
  LiveSession session = opened(kernel, {.places = 2});
  for (int i = 0; i < 5; ++i)
    ASSERT_TRUE(session.submit(request(3)));
  EXPECT_TRUE(session.stop());
  EXPECT_FALSE(session.done()); // there are events
  EXPECT_REFUSED(session.submit(request(3)), "the session was stopped, and takes no more requests [live-stopped]");
  Heard heard;
  listen(session, heard);
  for (uint64_t i = 0; i < 5; ++i) {
    EXPECT_EQ(heard.finish(i), "length");
    EXPECT_EQ(heard.of[i].tokens.size(), 3u);
  }
  EXPECT_TRUE(session.stop()); // has nothing to do
  EXPECT_TRUE(session.stop(LiveSession::Stop::Now));
  auto none = session.next(10s); // comes at once
  ASSERT_TRUE(none);
  EXPECT_FALSE(*none);
}

TEST(Live, StopsAtOnce) {
  const Kernel kernel = loaded(serving());
  LiveSession session = opened(kernel, {.places = 3});
  for (int i = 0; i < 4; ++i)
    ASSERT_TRUE(session.submit(request(2000)));
  Heard heard;
  listenForTokens(session, heard, 1);
  // While another thread waits for all of them.
  std::thread drains([&] { EXPECT_TRUE(session.stop()); });
  EXPECT_TRUE(session.stop(LiveSession::Stop::Now));
  drains.join();
  listen(session, heard);
  for (uint64_t i = 0; i < 4; ++i) {
    EXPECT_EQ(heard.finish(i), "limit");
    EXPECT_EQ(heard.of[i].end->state, i < 2 ? "DECODE" : "QUEUED");
    EXPECT_EQ(heard.of[i].end->generated, std::ssize(heard.of[i].tokens));
  }
  EXPECT_FALSE(heard.of[1].tokens.empty());
}

TEST(Live, EndsWithItsObject) {
  const Kernel kernel = loaded(serving());
  {
    LiveSession session = opened(kernel);
    ASSERT_TRUE(session.submit(request(2000)));
    LiveSession other = std::move(session);
    Heard heard;
    listenForTokens(other, heard, 0);
    auto second = LiveSession::open(kernel);
    EXPECT_REFUSED(second, "the kernel is busy with another run or session");
    EXPECT_REFUSED(kernel.run({}), "[kernel-busy]");
  }
  LiveSession session = opened(kernel);
  EXPECT_TRUE(session.stop());
  // The kernel is free, though the session is still there.
  LiveSession next = opened(kernel);
  session = std::move(next); // the first one's object is another's
  ASSERT_TRUE(session.submit(request(1)));
  EXPECT_TRUE(session.stop());
}

} // namespace live_testing
