//===- LiveLimitsTest.cpp - what a session refuses, and what waits for room -===//
#include "LiveTesting.h"
#include <condition_variable>

namespace live_testing {

TEST(Live, RefusesOptions) {
  const Kernel kernel = loaded(serving());
  const auto refused = [&](const LiveOptions &options, const std::string &why) {
    EXPECT_REFUSED(LiveSession::open(kernel, options), "the live session cannot be opened: " + why + " [live-options]");
  };
  refused({.places = 0}, "`places` must be from 1 to 65536, found 0");
  refused({.places = 65537}, "`places` must be from 1 to 65536, found 65537");
  refused({.queue = 0}, "`queue` must be from 1 to 1000000, found 0");
  refused({.maxTokens = -1}, "`maxTokens` must be from 0 to 268435456, found -1");
  refused({.maxEnds = -1}, "`maxEnds` must be from 0 to 16384, found -1");
  refused({.ring = 12}, "`ring` must be a power of two, found 12");
  refused({.ring = 2}, "`ring` must be from 4 to 16777216, found 2");
  refused({.logitLines = -1}, "`logitLines` must be from 0 to 16777216, found -1");
  refused({.logitLines = 1, .trace = 4096},
          "`trace` and `logitLines` do not go together: a request that waits for lines is "
          "overtaken, and a replay would not know of it");
  refused({.watchdogSeconds = -1}, "`watchdogSeconds` must be from 0 to 1000000000, found -1");
  LiveSession session = opened(kernel);         // none of them has kept the kernel
  EXPECT_EQ(session.options().maxTokens, 2048); // the model's positions
  EXPECT_EQ(session.options().places, 256u);
}

TEST(Live, RefusesRequestsThatCannotRun) {
  const Kernel kernel = loaded(serving());
  LiveSession session = opened(kernel, {.maxTokens = 20, .maxEnds = 2});
  Request r = request(18);
  EXPECT_REFUSED(session.submit(r),
                 "request `0` has 21 tokens with its new ones, and the session takes 20; ask for fewer, "
                 "or open it with a greater `maxTokens` [live-too-long]");
  r = request(5000);
  EXPECT_REFUSED(session.submit(r), "[request-too-long]");
  r = request(1);
  r.eos = {1, 2, 3};
  EXPECT_REFUSED(session.submit(r),
                 "request `0` has 3 words of tokens that end it, and the session takes 2; open it with "
                 "a greater `maxEnds` [live-ends]");
  r = request(1);
  r.id = "x";
  r.arrives = {0, 5};
  EXPECT_REFUSED(session.submit(r),
                 "request `x` says when it arrives; in a live session it arrives when it is submitted, "
                 "and `cancel` takes it back [request-time]");
  r = request(1);
  r.cancelled = When{};
  EXPECT_REFUSED(session.submit(r), "request `0` says when it is cancelled");
  EXPECT_REFUSED(session.submit(request(1, {})), "request `0` has an empty prompt");
  EXPECT_REFUSED(session.submit(request(1, {260})), "token 260 in `tokens` is outside the vocabulary of 260");
  EXPECT_REFUSED(session.submit(request(1), 0, 0ms, -2),
                 "request `0` wants the -2 likeliest tokens of each; this must be from 0 to 20, or -1 for no logprobs "
                 "[live-logprobs]");
  EXPECT_REFUSED(session.submit(request(1), 0, 0ms, -1, 21), "wants the 21 likeliest tokens of each of its prompt;");
  EXPECT_REFUSED(session.submit(request(1), 0, 0ms, -1, 0),
                 "request `0` wants logprobs, for which it needs 3 rows of logits, and the session has 0; ask for "
                 "those of a shorter prompt, or open it with greater `logitLines` [live-lines]");
  EXPECT_REFUSED(session.submit(request(1), 0, 0ms, 21), "[live-logprobs]");
  EXPECT_REFUSED(
      session.submit(request(2), 0, 0ms, 0),
      "request `0` wants logprobs, for which it needs 2 rows of logits, and the session has 0; ask for fewer "
      "new tokens, or open it with greater `logitLines` [live-lines]");
  EXPECT_REFUSED(session.cancel(0), "there is no request 0: the session was given 0 [live-request]");
  // The checkpoint's EOS are those of a request that has none.
  r = request(1);
  r.eos.reset();
  EXPECT_EQ(*session.submit(r), 0u);
  EXPECT_TRUE(session.stop());
}

/// Holds an executor in its first tick with a request, so that none ends.
class Hold {
public:
  std::function<void(const std::string &)> progress() {
    return [this](const std::string &what) {
      std::unique_lock lock(mutex);
      idle |= what.empty();
      goesOn.wait(lock, [&] { return open || !idle || what.empty(); });
    };
  }
  void release() {
    const std::lock_guard lock(mutex);
    open = true;
    goesOn.notify_all();
  }

private:
  std::mutex mutex;
  std::condition_variable goesOn;
  bool idle = false, open = false;
};

TEST(Live, ARequestWaitsForRoomAsLongAsItMay) {
  const Kernel kernel = loaded(serving());
  Hold hold;
  LiveSession session = opened(kernel, {.places = 1, .queue = 2, .progress = hold.progress()});
  ASSERT_TRUE(session.submit(request(1)));
  waitUntil([&] { return session.stats().running == 1; });
  ASSERT_TRUE(session.submit(request(1)));
  ASSERT_TRUE(session.submit(request(1)));
  EXPECT_REFUSED(session.submit(request(1)), "2 requests wait already, and no more may; submit it later, or open the "
                                             "session with a greater `queue` [live-full]");
  EXPECT_REFUSED(session.submit(request(1), 0, 20ms), "[live-full]");
  Waiter waits([&] {
    auto number = session.submit(request(1), 5, std::chrono::milliseconds::max());
    ASSERT_TRUE(number) << number.errors().text();
    EXPECT_EQ(*number, 3u); // those that were refused have none
  });
  waits.waitUntilAsleep();
  EXPECT_TRUE(session.cancel(2)); // makes room
  waits.join();
  // A stop ends the wait of others, too.
  Waiter refused([&] { EXPECT_REFUSED(session.submit(request(1), 0, 1h), "[live-stopped]"); });
  refused.waitUntilAsleep();
  Waiter stops([&] { EXPECT_TRUE(session.stop(LiveSession::Stop::Now)); });
  refused.join();
  hold.release(); // the session's end waits for the tick's
  stops.join();
  Heard heard;
  listen(session, heard);
  EXPECT_EQ(heard.of.size(), 4u);
  EXPECT_EQ(heard.of[3].user, 5u);
}

TEST(Live, TakesNoMoreWhenEndsAreNotRead) {
  const Kernel kernel = loaded(serving());
  LiveSession session = opened(kernel, {.places = 1, .queue = 1});
  for (uint64_t ended = 1; ended <= 4; ++ended) {
    ASSERT_TRUE(session.submit(request(1), 0, hangs)) << ended;
    waitUntil([&] { return session.stats().ended["length"] == ended; });
  }
  EXPECT_REFUSED(session.submit(request(1)), "the ends of 4 requests");
  EXPECT_REFUSED(session.submit(request(1), 0, 1ms), "call `next` [live-unread]");
  Heard heard;
  listen(session, heard, [&] { return heard.finish(0) == "length"; });
  EXPECT_TRUE(session.submit(request(1))); // the end that was read has made room
}

} // namespace live_testing
