//===- LiveTraceTest.cpp - sessions, gone through again from their traces -===//
#include "LiveTesting.h"
#include "megalith/Requests/Trace.h"
#include <algorithm>
#include <random>
#include <thread>

namespace live_testing {

/// Reads events up to the end of a request, or up to its first tokens. Its end.
static std::optional<LiveEnd> wait(LiveSession &session, uint64_t number, bool tokens = false) {
  for (int i = 0; i < 600; ++i) {
    auto event = session.next(100ms);
    EXPECT_TRUE(event) << event.errors().text();
    if (!event)
      break;
    if (*event && (*event)->request == number && ((*event)->end || (tokens && !(*event)->tokens.empty())))
      return (*event)->end;
  }
  ADD_FAILURE() << "nothing came of request " << number;
  return std::nullopt;
}

static SessionTrace traceOf(const LiveSession &session) {
  auto trace = session.trace();
  EXPECT_TRUE(trace) << trace.errors().text();
  return trace ? *trace : SessionTrace();
}

static Trace parsed(const SessionTrace &of) {
  auto trace = parseTrace(of.trace, "T.jsonl");
  EXPECT_TRUE(trace) << trace.error.message;
  return trace ? *trace.value : Trace();
}

/// What going through it again finds; empty: it is the same.
static std::string replayed(const Program &program, const Kernel &kernel, const SessionTrace &of, uint32_t seed) {
  auto requests = program.parseRequests(of.requests, "R.jsonl");
  if (!requests)
    return requests.errors().text();
  auto results = kernel.run(
      *requests, {.seed = seed, .replay = of.trace, .replayName = "T.jsonl", .replayEpsilon = 0, .replayError = 0});
  if (!results)
    return results.errors().text();
  for (const RequestResult &result : results->requests)
    EXPECT_FALSE(result.finish == "limit" && result.error);
  return results->messages.text();
}

#define EXPECT_FOUND(found, part) EXPECT_NE((found).find(part), std::string::npos) << (found)

/// Requests come, are taken back, and end at their deadlines. The session is stopped while two run.
static SessionTrace lived(const Kernel &kernel, unsigned random, int count, LiveOptions options) {
  LiveSession session = opened(kernel, options);
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t)
    threads.emplace_back([&, t] {
      std::mt19937 draw(2 * random + t);
      for (int i = 0; i < count; ++i) {
        Request r = request(int64_t(draw() % 8), std::vector<int32_t>(1 + draw() % 20, int32_t(draw() % 256)));
        r.priority = int32_t(draw() % 3);
        if (draw() % 2)
          r.sampling.temperature = 0.7f;
        if (draw() % 4 == 0)
          r.id = "often";
        if (draw() % 4 == 0)
          r.deadlineMs = 1 + int32_t(draw() % 40);
        if (draw() % 4 == 0)
          r.stop = {{int32_t(draw() % 256)}, {32, 32}};
        auto number = session.submit(r, 0, 1h);
        ASSERT_TRUE(number) << number.errors().text();
        const uint64_t other = *number - draw() % (1 + std::min<uint64_t>(*number, 3));
        EXPECT_TRUE(draw() % 4 != 0 || session.cancel(other));
        if (draw() % 3 == 0)
          letTicksPass(session, draw() % 6);
      }
    });
  for (std::thread &thread : threads)
    thread.join();
  const uint64_t back = *session.submit(request(1000));
  wait(session, back, true);
  EXPECT_TRUE(session.cancel(back));
  wait(session, back);
  Request late = request(1500);
  late.deadlineMs = 150;
  EXPECT_EQ(wait(session, *session.submit(late))->finish, "deadline");
  const uint64_t open = *session.submit(request(1500));
  for (int i = 0; i < 3; ++i)
    EXPECT_TRUE(session.submit(request(1500)));
  wait(session, open, true);
  EXPECT_TRUE(session.stop(LiveSession::Stop::Now));
  return traceOf(session);
}

static size_t ticksWith(const Trace &trace, const char *fault) {
  const auto has = [&](const TraceTick &tick) {
    return std::any_of(tick.faults.begin(), tick.faults.end(), [&](const TraceFault &f) { return f.code == fault; });
  };
  return std::find_if(trace.ticks.begin(), trace.ticks.end(), has) - trace.ticks.begin();
}

TEST(LiveTrace, TheReferenceGoesThroughItAgain) {
  const Program program = serving();
  const Kernel kernel = loaded(program);
  for (unsigned random = 1; random <= 2; ++random) {
    SCOPED_TRACE(random);
    const SessionTrace made = lived(kernel, random, 12, {.places = 5, .seed = 9, .trace = 16 << 20});
    EXPECT_EQ(replayed(program, kernel, made, 9), "");
  }
}

TEST(LiveTrace, ChangesOfTheTraceAreFound) {
  const Program program = serving();
  const Kernel kernel = loaded(program);
  const SessionTrace made = lived(kernel, 3, 4, {.places = 5, .trace = 16 << 20});
  const Trace trace = parsed(made);
  ASSERT_EQ(replayed(program, kernel, made, 0), "");
  const auto found = [&](const Trace &changed) {
    return replayed(program, kernel, {formatTrace(changed), made.requests}, 0);
  };
  EXPECT_FOUND(replayed(program, kernel, made, 1), "seed: 1 against 0");

  Trace changed = trace; // the clock, where it has an effect
  const size_t late = ticksWith(trace, "DEADLINE");
  ASSERT_LT(late, trace.ticks.size());
  ASSERT_GT(late, 0u);
  changed.ticks[late].nowMs = trace.ticks[late - 1].nowMs;
  EXPECT_FOUND(found(changed), "[replay-differs]");

  changed = trace; // an event that is not there any more
  const size_t back = ticksWith(trace, "CANCELLED");
  ASSERT_LT(back, trace.ticks.size());
  std::erase_if(changed.ticks[back].events, [](const TraceEvent &event) { return event.cancels; });
  EXPECT_FOUND(found(changed), "[replay-differs]");

  changed = trace; // the first request, which leaves the queue in its first tick, comes a tick later
  ASSERT_GT(trace.ticks.size(), 1u);
  ASSERT_EQ(trace.ticks[0].events.at(0), (TraceEvent{false, 0}));
  changed.ticks[0].events.erase(changed.ticks[0].events.begin());
  changed.ticks[1].events.insert(changed.ticks[1].events.begin(), TraceEvent{false, 0});
  EXPECT_FOUND(found(changed), "[replay-differs]");

  changed = trace; // what was generated
  for (TraceRequest &r : changed.requests)
    if (!r.tokens.empty())
      ++r.tokens.back();
  EXPECT_FOUND(found(changed), "tokens: ");

  changed = trace; // how requests ended
  for (TraceRequest &r : changed.requests)
    r.finish = r.finish == "deadline" ? "cancelled" : r.finish;
  EXPECT_FOUND(found(changed), "finish: deadline against cancelled [replay-differs]");
}

/// Also without a deadline, and where all are there in the first tick.
TEST(LiveTrace, HasTheClockOfEverySession) {
  const Program program = compiled("autoregressive.yaml", {{"slots", "2"}});
  const Kernel kernel = loaded(program);
  LiveSession session = opened(kernel, {.trace = 1 << 20});
  ASSERT_TRUE(session.submit(request(4)));
  ASSERT_TRUE(session.stop());
  const SessionTrace made = traceOf(session);
  const Trace trace = parsed(made);
  ASSERT_FALSE(trace.ticks.empty());
  EXPECT_EQ(trace.ticks.front().events, (std::vector<TraceEvent>{{false, 0}}));
  for (const TraceTick &tick : trace.ticks)
    EXPECT_TRUE(tick.nowMs);
  ASSERT_EQ(trace.requests.size(), 1u);
  EXPECT_EQ(trace.requests[0].tokens.size(), 4u);
  EXPECT_EQ(trace.requests[0].finish, "length");
  EXPECT_EQ(made.requests, "{\"id\":0,\"tokens\":[73,110,32],\"max_new_tokens\":4,\"eos\":[]}\n");
  EXPECT_EQ(replayed(program, kernel, made, 0), "");
}

/// Requests that never came to the executor are no part of the run, and ids of a file of requests differ.
TEST(LiveTrace, HasTheRequestsThatArrived) {
  const Program program = serving();
  const Kernel kernel = loaded(program);
  LiveSession session = opened(kernel, {.places = 1, .trace = 1 << 20});
  Request drawn = request(6);
  drawn.sampling.temperature = 2;
  const uint64_t first = *session.submit(request(1000));
  wait(session, first, true);
  ASSERT_TRUE(session.submit(drawn)); // waits on the host
  ASSERT_TRUE(session.cancel(1));
  drawn.id = "2"; // as the number of the next one
  ASSERT_TRUE(session.submit(drawn));
  drawn.id = "0";
  ASSERT_TRUE(session.submit(drawn));
  ASSERT_TRUE(session.cancel(first));
  ASSERT_TRUE(session.stop());
  const SessionTrace made = traceOf(session);
  const Trace trace = parsed(made);
  ASSERT_EQ(trace.requests.size(), 3u);
  EXPECT_EQ(trace.requests[0].id, RequestId::ofInteger("0"));
  EXPECT_EQ(trace.requests[0].finish, "cancelled");
  EXPECT_EQ(trace.requests[1].id, RequestId("2"));
  EXPECT_EQ(trace.requests[1].sampling.seed, std::nullopt);
  EXPECT_EQ(trace.requests[2].id, RequestId("0#2"));
  EXPECT_TRUE(trace.requests[2].sampling.seed);
  EXPECT_EQ(trace.requests[1].finish, "length");
  EXPECT_EQ(replayed(program, kernel, made, 0), "");
}

TEST(LiveTrace, IsRefusedWhereThereIsNone) {
  const Program program = serving();
  const Kernel kernel = loaded(program);
  for (const auto &[wrong, why] :
       {std::pair(size_t(4095), "`trace` must be 0 (none) or at least 4096 bytes, found 4095"),
        std::pair((size_t(1) << 34) + 1, "`trace` must be from 0 to 17179869184, found 17179869185")}) {
    auto refused = LiveSession::open(kernel, {.trace = wrong});
    ASSERT_FALSE(refused);
    EXPECT_FOUND(refused.errors().text(), why);
  }
  {
    LiveSession session = opened(kernel);
    ASSERT_TRUE(session.stop());
    EXPECT_FOUND(session.trace().errors().text(),
                 "there is no trace of the session: open it with `trace` [live-trace]");
  }
  LiveSession session = opened(kernel, {.trace = 4096});
  EXPECT_FOUND(session.trace().errors().text(), "it goes on; call `stop` [live-trace]");
  ASSERT_TRUE(session.submit(request(100)));
  ASSERT_TRUE(session.stop());
  EXPECT_FOUND(session.trace().errors().text(), "there is no trace of the session: it does not fit into 4096 bytes of "
                                                "memory; open the session with a greater `trace` [live-trace]");
}

//===----------------------------------------------------------------------===//

/// A kernel's session, which rests in between, gone through again by both executors.
TEST(LiveTrace, OfAKernel) {
  const Program program = serving();
  const Kernel kernel = loaded(program, Device::Cpu);
  const SessionTrace made = lived(kernel, 5, 2, {.places = 5, .ring = 4, .seed = 9, .idleMs = 0, .trace = 4 << 20});
  EXPECT_EQ(replayed(program, loaded(program), made, 9), "");
  EXPECT_EQ(replayed(program, kernel, made, 9), "");
  {
    LiveSession session = opened(kernel, {.trace = 1 << 20}); // no deadline, nobody comes later
    ASSERT_TRUE(session.submit(request(2)));
    ASSERT_TRUE(session.stop());
    EXPECT_EQ(replayed(program, kernel, traceOf(session), 0), "");
  }
  {
    LiveSession session = opened(kernel, {.trace = 4096});
    ASSERT_TRUE(session.submit(request(60)));
    ASSERT_TRUE(session.stop());
    EXPECT_FOUND(session.trace().errors().text(), "it does not fit into 4096 bytes of memory");
  }
  LiveSession session = opened(kernel, {.trace = 4096}); // nothing happens in it
  ASSERT_TRUE(session.stop());
  EXPECT_EQ(parsed(traceOf(session)).requests.size(), 0u);
}

} // namespace live_testing
