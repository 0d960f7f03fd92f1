#include "megalith/LiveSession.h"
#include <algorithm>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <gtest/gtest.h>
#include <mutex>
#include <numeric>
#include <random>
#include <set>
#include <thread>

using namespace megalith;
using namespace std::chrono_literals;

namespace live_sessions {

static Program compiled(const char *pipeline, std::vector<std::pair<std::string, std::string>> params = {}) {
  auto program = Program::compile({.file = MEGALITH_SOURCE_DIR "/pipelines/" + std::string(pipeline),
                                   .models = {{"", MEGALITH_SOURCE_DIR "/models/demo"}},
                                   .params = std::move(params)});
  EXPECT_TRUE(program) << program.errors().text();
  return *program;
}

/// A pipeline that has states for what the host ends, with two slots.
static Program serving() { return compiled("priority_serving.yaml", {{"slots", "2"}, {"kv_pages", "64"}}); }

static Kernel loaded(const Program &program, Device device = Device::Reference) {
  auto kernel = Kernel::load(program, {.device = device});
  EXPECT_TRUE(kernel) << kernel.errors().text();
  return *kernel;
}

static LiveSession opened(const Kernel &kernel, const LiveOptions &options = {}) {
  auto session = LiveSession::open(kernel, options);
  EXPECT_TRUE(session) << session.errors().text();
  return std::move(*session);
}

static Request request(int64_t budget, std::vector<int32_t> tokens = {73, 110, 32}) {
  return {.id = {}, .tokens = std::move(tokens), .maxNewTokens = budget, .eos = std::vector<int32_t>()};
}

template <class T> static std::string errorOf(const Expected<T> &failed) {
  return failed ? "no error" : failed.errors().text();
}
#define EXPECT_REFUSED(failed, part)                                                                                   \
  EXPECT_NE(errorOf(failed).find(part), std::string::npos) << errorOf(failed) << "\nnot: " << (part)

/// What came of each request.
struct Heard {
  struct One {
    std::vector<int32_t> tokens;
    std::vector<LiveLogprob> logprobs, promptLogprobs;
    std::vector<std::string> states;
    std::optional<LiveEnd> end;
    uint64_t user = 0;
    int ends = 0;
  };
  std::map<uint64_t, One> of;

  void add(const LiveEvent &event) {
    One &one = of[event.request];
    EXPECT_FALSE(one.end) << "behind the end of request " << event.request;
    if (!event.promptLogprobs.empty()) {
      EXPECT_TRUE(one.tokens.empty() && one.promptLogprobs.empty());
      one.promptLogprobs = event.promptLogprobs;
    }
    one.tokens.insert(one.tokens.end(), event.tokens.begin(), event.tokens.end());
    one.logprobs.insert(one.logprobs.end(), event.logprobs.begin(), event.logprobs.end());
    one.states.push_back(event.state);
    one.user = event.user;
    one.ends += event.end.has_value();
    if (event.end)
      one.end = event.end;
  }
  std::string finish(uint64_t number) const {
    return of.count(number) && of.at(number).end ? of.at(number).end->finish : "";
  }
};

/// Reads until `enough`; half a minute at most.
template <class Enough> static void listen(LiveSession &session, Heard &heard, Enough enough) {
  const auto until = std::chrono::steady_clock::now() + 30s;
  while (!enough()) {
    auto event = session.next(100ms);
    ASSERT_TRUE(event) << event.errors().text();
    if (*event)
      heard.add(**event);
    else if (session.done())
      return;
    ASSERT_LT(std::chrono::steady_clock::now(), until);
  }
}
static void listen(LiveSession &session, Heard &heard) {
  listen(session, heard, [] { return false; });
  EXPECT_TRUE(session.done());
}

/// Until the request has some tokens: it runs.
static void listenForTokens(LiveSession &session, Heard &heard, uint64_t number) {
  listen(session, heard, [&] { return !heard.of[number].tokens.empty(); });
}

static const LiveStats::Pool &pool(const LiveStats &stats) { return stats.pools.at(0); }

//===----------------------------------------------------------------------===//

TEST(Live, TellsTokensAsTheyAreMade) {
  const Kernel kernel = loaded(serving());
  LiveSession session = opened(kernel);
  auto number = session.submit(request(200), 77);
  ASSERT_TRUE(number) << number.errors().text();
  EXPECT_EQ(*number, 0u);
  std::vector<LiveEvent> events;
  while (events.empty() || !events.back().end) {
    auto event = session.next(10s);
    ASSERT_TRUE(event && *event);
    events.push_back(**event);
  }
  ASSERT_GT(events.size(), 1u); // not all of it at the end
  double at = 0;
  std::vector<int32_t> tokens;
  for (const LiveEvent &event : events) {
    EXPECT_EQ(event.request, 0u);
    EXPECT_EQ(event.user, 77u);
    EXPECT_GE(event.at, at);
    at = event.at;
    tokens.insert(tokens.end(), event.tokens.begin(), event.tokens.end());
  }
  EXPECT_EQ(events.back().state, "COMPLETE");
  const LiveEnd &end = *events.back().end;
  EXPECT_EQ(end.finish, "length");
  EXPECT_EQ(end.state, "COMPLETE");
  EXPECT_EQ(end.promptTokens, 3);
  EXPECT_EQ(end.generated, 200);
  EXPECT_EQ(end.rows, 202); // the prompt, and all new tokens but the last
  EXPECT_GE(end.passes, 200);
  EXPECT_GE(end.submitted, 0);
  EXPECT_GE(end.admitted, end.submitted);
  EXPECT_GE(end.firstToken, end.admitted);
  EXPECT_GE(end.ended, end.firstToken);
  EXPECT_FALSE(session.done());
  EXPECT_TRUE(session.stop());
  EXPECT_TRUE(session.done());
  // As a run has it.
  auto run = Session::open(kernel);
  ASSERT_TRUE(run) << run.errors().text();
  Request same = request(200);
  same.id = "a";
  ASSERT_TRUE(run->submit(same));
  auto results = run->run();
  ASSERT_TRUE(results) << results.errors().text();
  EXPECT_EQ(results->requests[0].tokens, tokens);
}

TEST(Live, TokensAreThoseOfARunWhateverComesWhen) {
  const Kernel kernel = loaded(serving());
  std::vector<Request> requests;
  std::mt19937 random(5);
  for (int i = 0; i < 12; ++i) {
    Request r = request(1 + int64_t(random() % 6), {});
    r.id = "r" + std::to_string(i);
    r.tokens.resize(1 + random() % 9);
    for (int32_t &token : r.tokens)
      token = static_cast<int32_t>(random() % 256);
    if (i % 2) {
      r.sampling.temperature = 1;
      if (i % 4 == 1)
        r.sampling.seed = uint32_t(i);
    }
    r.priority = i % 3;
    requests.push_back(r);
  }
  auto run = Session::open(kernel, {.seed = 9});
  ASSERT_TRUE(run) << run.errors().text();
  for (const Request &r : requests)
    ASSERT_TRUE(run->submit(r));
  auto results = run->run();
  ASSERT_TRUE(results) << results.errors().text();
  // Three threads hand over a third each, in an order of their own.
  LiveSession session = opened(kernel, {.places = 5, .seed = 9});
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 3; ++t)
    threads.emplace_back([&, t] {
      std::vector<size_t> mine;
      for (size_t i = t; i < requests.size(); i += 3)
        mine.push_back(i);
      std::mt19937 order(t);
      std::shuffle(mine.begin(), mine.end(), order);
      for (size_t i : mine) {
        auto number = session.submit(requests[i], i);
        EXPECT_TRUE(number) << number.errors().text();
        std::this_thread::sleep_for(std::chrono::milliseconds(order() % 20));
      }
    });
  Heard heard;
  size_t ended = 0;
  listen(session, heard, [&] {
    ended = std::count_if(heard.of.begin(), heard.of.end(), [](const auto &one) { return one.second.end.has_value(); });
    return ended == requests.size();
  });
  for (std::thread &thread : threads)
    thread.join();
  ASSERT_EQ(ended, requests.size());
  for (const auto &[number, one] : heard.of) {
    EXPECT_EQ(one.tokens, results->requests.at(one.user).tokens) << "request r" << one.user;
    EXPECT_EQ(one.end->finish, results->requests.at(one.user).finish);
  }
}

TEST(Live, RequestsWithoutAnIdDrawByTheirNumber) {
  const Kernel kernel = loaded(serving());
  LiveSession session = opened(kernel);
  Request drawn = request(8);
  drawn.sampling.temperature = 2;
  ASSERT_TRUE(session.submit(drawn));
  ASSERT_TRUE(session.submit(drawn));
  drawn.id = "1"; // once more: ids need not differ
  ASSERT_TRUE(session.submit(drawn));
  ASSERT_TRUE(session.stop());
  Heard heard;
  listen(session, heard);
  EXPECT_NE(heard.of[0].tokens, heard.of[1].tokens);
  EXPECT_EQ(heard.of[1].tokens, heard.of[2].tokens);
}

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
    EXPECT_REFUSED(second, "the kernel runs another session");
    auto run = Session::open(kernel);
    ASSERT_TRUE(run);
    EXPECT_REFUSED(run->run(), "[kernel-busy]");
  }
  LiveSession session = opened(kernel);
  EXPECT_TRUE(session.stop());
  // The kernel is free, though the session is still there.
  LiveSession next = opened(kernel);
  session = std::move(next); // the first one's object is another's
  ASSERT_TRUE(session.submit(request(1)));
  EXPECT_TRUE(session.stop());
}

TEST(Live, ARequestWaitsForRoomAsLongAsItMay) {
  const Kernel kernel = loaded(serving());
  LiveSession session = opened(kernel, {.places = 1, .queue = 2});
  ASSERT_TRUE(session.submit(request(2000)));
  Heard heard;
  listenForTokens(session, heard, 0);
  ASSERT_TRUE(session.submit(request(1)));
  ASSERT_TRUE(session.submit(request(1)));
  EXPECT_REFUSED(session.submit(request(1)), "2 requests wait already, and no more may; submit it later, or open the "
                                             "session with a greater `queue` [live-full]");
  EXPECT_REFUSED(session.submit(request(1), 0, 20ms), "[live-full]");
  std::thread waits([&] {
    auto number = session.submit(request(1), 5, std::chrono::milliseconds::max());
    ASSERT_TRUE(number) << number.errors().text();
    EXPECT_EQ(*number, 3u); // those that were refused have none
  });
  std::this_thread::sleep_for(20ms);
  ASSERT_TRUE(session.cancel(2)); // makes room
  waits.join();
  // A stop ends the wait of others, too.
  std::thread refused([&] { EXPECT_REFUSED(session.submit(request(1), 0, 1h), "[live-stopped]"); });
  std::this_thread::sleep_for(20ms);
  ASSERT_TRUE(session.stop(LiveSession::Stop::Now));
  refused.join();
  listen(session, heard);
  EXPECT_EQ(heard.of.size(), 4u);
  EXPECT_EQ(heard.of[3].user, 5u);
}

TEST(Live, WaitsForNewsAsLongAsItMay) {
  const Kernel kernel = loaded(serving());
  LiveSession session = opened(kernel);
  const auto begin = std::chrono::steady_clock::now();
  auto none = session.next(30ms);
  ASSERT_TRUE(none);
  EXPECT_FALSE(*none);
  EXPECT_GE(std::chrono::steady_clock::now() - begin, 30ms);
  EXPECT_FALSE(session.done());
  none = session.next(std::chrono::milliseconds(-5));
  ASSERT_TRUE(none);
  EXPECT_FALSE(*none);
  // News and the end wake who waits.
  std::atomic<int> events = 0;
  std::thread reader([&] {
    while (true) {
      auto event = session.next(std::chrono::milliseconds::max());
      if (!event || !*event)
        return;
      ++events;
    }
  });
  ASSERT_TRUE(session.submit(request(1)));
  EXPECT_TRUE(session.stop());
  reader.join();
  EXPECT_GT(events, 0);
  EXPECT_TRUE(session.done());
}

TEST(Live, NewsThatNobodyReadBecomeOneEvent) {
  const Kernel kernel = loaded(serving());
  LiveSession session = opened(kernel);
  ASSERT_TRUE(session.submit(request(5)));
  ASSERT_TRUE(session.stop());
  auto event = session.next();
  ASSERT_TRUE(event && *event);
  EXPECT_EQ((*event)->tokens.size(), 5u);
  ASSERT_TRUE((*event)->end);
  EXPECT_EQ((*event)->at, (*event)->end->ended);
  EXPECT_TRUE(session.done());
}

TEST(Live, IdleTicksDoNotCount) {
  const Kernel kernel = loaded(serving());
  LiveSession session = opened(kernel);
  Heard heard;
  ASSERT_TRUE(session.submit(request(3)));
  listen(session, heard, [&] { return heard.of[0].end.has_value(); });
  std::this_thread::sleep_for(30ms);
  const int64_t ticks = session.stats().ticks;
  EXPECT_GT(ticks, 3);
  EXPECT_LT(ticks, 8);
  std::this_thread::sleep_for(30ms);
  EXPECT_EQ(session.stats().ticks, ticks);
  ASSERT_TRUE(session.submit(request(3)));
  listen(session, heard, [&] { return heard.of[1].end.has_value(); });
  EXPECT_TRUE(session.stop());
  EXPECT_LE(session.stats().ticks, 2 * ticks + 1);
  EXPECT_EQ(heard.of[0].tokens, heard.of[1].tokens);
}

TEST(Live, AccountsForEachOfManyRequests) {
  const Kernel kernel = loaded(serving());
  constexpr size_t count = 2000, threads = 4;
  LiveSession session = opened(kernel, {.places = 100, .queue = 300});
  std::vector<std::thread> submitting;
  std::atomic<size_t> cancelled = 0;
  for (size_t t = 0; t < threads; ++t)
    submitting.emplace_back([&, t] {
      std::mt19937 random(static_cast<unsigned>(t));
      for (size_t i = t; i < count; i += threads) {
        // Most end where they are admitted: what counts here is who comes and goes.
        auto number = session.submit(request(i % 16 == t, {int32_t(i % 256)}), i, 1h);
        ASSERT_TRUE(number) << number.errors().text();
        if (random() % 8 == 0) {
          EXPECT_TRUE(session.cancel(*number));
          ++cancelled;
        }
      }
    });
  // Two threads read; the first one that sees the end ends the other.
  std::mutex mutex;
  std::map<uint64_t, Heard::One> heard;
  std::set<uint64_t> users;
  std::map<std::string, uint64_t> finishes;
  size_t tokens = 0, ends = 0;
  const auto read = [&] {
    while (true) {
      auto event = session.next(10ms);
      ASSERT_TRUE(event) << event.errors().text();
      const std::lock_guard<std::mutex> lock(mutex);
      if (*event) {
        tokens += (*event)->tokens.size();
        if ((*event)->end) {
          ++ends;
          ++finishes[(*event)->end->finish];
          EXPECT_TRUE(users.insert((*event)->user).second) << "the end of " << (*event)->user << " came twice";
        }
      } else if (session.done()) {
        return;
      }
    }
  };
  std::thread first(read), second(read);
  for (std::thread &thread : submitting)
    thread.join();
  EXPECT_TRUE(session.stop());
  first.join();
  second.join();
  EXPECT_EQ(ends, count);
  EXPECT_EQ(users.size(), count);
  const LiveStats stats = session.stats();
  EXPECT_EQ(stats.ended, finishes);
  EXPECT_LE(finishes["cancelled"], cancelled);
  EXPECT_EQ(finishes["cancelled"] + finishes["length"], count);
  EXPECT_EQ(size_t(stats.generatedTokens), tokens);
  EXPECT_EQ(stats.waiting + stats.running, 0u);
}

TEST(Live, FaultsOfARequestAreItsOwn) {
  // Two requests of a page each fill the pool, and each needs a second one.
  const Kernel kernel =
      loaded(compiled("autoregressive.yaml", {{"slots", "2"}, {"kv_pages", "2"}, {"page_tokens", "8"}}));
  // Who comes while another one runs alone may find no page at all, or all of them: not each round has a fault.
  int faults = 0;
  for (int round = 0; round < 20 && faults == 0; ++round) {
    LiveSession session = opened(kernel);
    EXPECT_EQ(session.options().maxTokens, 16);
    Heard heard;
    for (int i = 0; i < 2; ++i)
      ASSERT_TRUE(session.submit(request(12)));
    listen(session, heard, [&] { return !heard.finish(0).empty() && !heard.finish(1).empty(); });
    ASSERT_TRUE(session.submit(request(12)));
    ASSERT_TRUE(session.stop());
    listen(session, heard);
    for (uint64_t number : {0, 1}) {
      const LiveEnd &end = *heard.of[number].end;
      if (end.finish == "length")
        continue;
      ++faults;
      EXPECT_EQ(end.finish, "fault");
      EXPECT_EQ(end.fault, "POOL_EXHAUSTED");
      EXPECT_EQ(end.faultState, "DECODE");
      EXPECT_EQ(end.state, "FAILED");
      EXPECT_NE(end.place.find("autoregressive.yaml:"), std::string::npos) << end.place;
    }
    EXPECT_EQ(heard.finish(2), "length"); // alone
    EXPECT_EQ(heard.of[2].tokens.size(), 12u);
  }
  EXPECT_GT(faults, 0);
}

/// What was told before the executor failed can be read; then comes the reason.
TEST(Live, TellsWhyItFailed) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "megalith-live-weights";
  std::filesystem::remove_all(folder);
  std::filesystem::copy(MEGALITH_SOURCE_DIR "/models/demo", folder, std::filesystem::copy_options::recursive);
  auto program = Program::compile(
      {.file = MEGALITH_SOURCE_DIR "/pipelines/priority_serving.yaml", .models = {{"", folder.string()}}});
  ASSERT_TRUE(program) << program.errors().text();
  const Kernel kernel = loaded(*program);
  LiveSession session = opened(kernel, {.places = 1, .queue = 1});
  ASSERT_TRUE(session.submit(request(2000)));
  Heard heard;
  listenForTokens(session, heard, 0);
  ASSERT_TRUE(session.submit(request(2000)));
  std::thread waits([&] { EXPECT_REFUSED(session.submit(request(1), 0, 1h), "[input-changed]"); });
  for (const auto &file : std::filesystem::directory_iterator(folder))
    std::filesystem::last_write_time(file, std::filesystem::file_time_type::clock::now() + 1h);
  std::string why;
  while (why.empty())
    if (auto event = session.next(10s); !event)
      why = event.errors().first().kind;
    else
      EXPECT_TRUE(*event && (*event)->request == 0 && !(*event)->end);
  EXPECT_EQ(why, "input-changed");
  waits.join();
  EXPECT_TRUE(session.done());
  EXPECT_REFUSED(session.submit(request(1)), "[input-changed]");
  EXPECT_REFUSED(session.stop(), "[input-changed]");
  EXPECT_TRUE(session.cancel(0)); // known, and over
  auto next = Session::open(kernel);
  ASSERT_TRUE(next);
  EXPECT_REFUSED(next->run(), "[input-changed]"); // the kernel is free
}

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
  refused({.ring = 12}, "`ring` must be a power of two from 4 to 16777216, found 12");
  refused({.ring = 2}, "`ring` must be a power of two from 4 to 16777216, found 2");
  refused({.logitLines = -1}, "`logitLines` must be from 0 to 16777216, found -1");
  refused({.logitLines = 1, .trace = 4096},
          "`trace` and `logitLines` do not go together: a request that waits for lines is "
          "overtaken, and a replay would not know of it");
  refused({.watchdogSeconds = -1}, "`watchdogSeconds` must be 0 (never) or above, found -1");
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

TEST(Live, TakesNoMoreWhenEndsAreNotRead) {
  const Kernel kernel = loaded(serving());
  LiveSession session = opened(kernel, {.places = 1, .queue = 1});
  for (int i = 0; i < 4; ++i)
    ASSERT_TRUE(session.submit(request(1), 0, 10s)) << i;
  EXPECT_REFUSED(session.submit(request(1), 0, 100ms), "the ends of ");
  EXPECT_REFUSED(session.submit(request(1), 0, 100ms), "call `next` [live-unread]");
  Heard heard;
  listen(session, heard, [&] { return heard.finish(0) == "length"; });
  EXPECT_TRUE(session.submit(request(1), 0, 10s));
}

//===----------------------------------------------------------------------===//

/// Whether what was told of a token is what the softmax of its row says.
static void expectLogprob(const LiveLogprob &told, const std::vector<float> &row, int32_t of, int most) {
  long double sum = 0;
  for (float logit : row)
    sum += std::exp(static_cast<long double>(logit));
  const auto logprob = [&](int32_t token) { return static_cast<double>(row[token] - std::log(sum)); };
  ASSERT_TRUE(told.logprob);
  EXPECT_NEAR(*told.logprob, logprob(of), 1e-9);
  std::vector<int32_t> order(row.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return row[a] > row[b]; });
  EXPECT_EQ(order.at(told.rank - 1), of);
  ASSERT_EQ(std::ssize(told.likeliest), most);
  for (int k = 0; k < most; ++k) {
    EXPECT_EQ(told.likeliest[k].token, order[k]);
    EXPECT_NEAR(told.likeliest[k].logprob, logprob(order[k]), 1e-9);
  }
}

/// Whether a request was told what the softmax of a run's logits says. `logits` of all tokens of the run.
static void expectLogprobs(const Heard::One &is, const RequestResult &should, int most) {
  ASSERT_EQ(is.tokens, should.tokens);
  ASSERT_EQ(is.logprobs.size(), is.tokens.size());
  const size_t vocabulary = should.logits.size() / std::max<size_t>(1, should.tokens.size());
  for (size_t i = 0; i < is.tokens.size(); ++i) {
    SCOPED_TRACE(i);
    const std::vector<float> row(should.logits.begin() + i * vocabulary, should.logits.begin() + (i + 1) * vocabulary);
    expectLogprob(is.logprobs[i], row, is.tokens[i], most);
  }
}

class LiveLogprobs : public ::testing::TestWithParam<std::tuple<const char *, Device>> {};

/// Of requests that ask for them and others, side by side and one behind the other in the same lines.
TEST_P(LiveLogprobs, AreThoseOfTheLogitsOfARun) {
  const auto &[pipeline, device] = GetParam();
  const Kernel kernel = loaded(compiled(pipeline, {{"slots", "2"}, {"kv_pages", "64"}}), device);
  std::vector<Request> requests;
  for (int i = 0; i < 6; ++i) {
    Request r = request(i == 3 ? 0 : 3 + i % 4 * 5, {}); // one without tokens takes nobody's lines
    r.id = "r" + std::to_string(i);
    for (int k = 0; k < 12 + i; ++k) // it repeats itself, so that drafts are kept
      r.tokens.push_back(97 + k % 4);
    if (std::string(pipeline) == "priority_serving.yaml")
      r.sampling.temperature = static_cast<float>(i % 3);
    requests.push_back(r);
  }
  auto run = Session::open(kernel, {.seed = 9, .logits = true});
  ASSERT_TRUE(run) << run.errors().text();
  for (const Request &r : requests)
    ASSERT_TRUE(run->submit(r));
  auto results = run->run();
  ASSERT_TRUE(results) << results.errors().text();
  // Where rows may be a tree, drafts need some, too.
  LiveSession session =
      opened(kernel, {.places = 4, .seed = 9, .logitLines = std::string(pipeline)[0] == 't' ? 200 : 30});
  const auto logprobsOf = [](size_t i) { return i % 3 == 2 ? -1 : static_cast<int>(i); };
  for (size_t i = 0; i < requests.size(); ++i)
    ASSERT_EQ(*session.submit(requests[i], i, 0ms, logprobsOf(i)), i);
  ASSERT_TRUE(session.stop());
  Heard heard;
  listen(session, heard);
  for (size_t i = 0; i < requests.size(); ++i) {
    SCOPED_TRACE(requests[i].id.text);
    if (logprobsOf(i) < 0)
      EXPECT_TRUE(heard.of[i].logprobs.empty());
    else
      expectLogprobs(heard.of[i], results->requests[i], logprobsOf(i));
  }
  // No increment is so large here that it is not counted by itself.
  const LiveStats stats = session.stats();
  EXPECT_GT(stats.metrics.at("tokens_committed"), 0);
  for (const auto &[name, value] : stats.metrics) {
    const std::vector<int64_t> &times = stats.increments.at(name);
    ASSERT_EQ(times.size(), 32u);
    int64_t sum = 0;
    for (size_t by = 0; by < times.size(); ++by)
      sum += static_cast<int64_t>(by) * times[by];
    EXPECT_EQ(sum, value) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(All, LiveLogprobs,
                         ::testing::Values(std::tuple("priority_serving.yaml", Device::Reference),
                                           std::tuple("speculative_lookup.yaml", Device::Reference),
                                           std::tuple("token_tree_lookup.yaml", Device::Reference),
                                           std::tuple("speculative_lookup.yaml", Device::Cpu),
                                           std::tuple("token_tree_lookup.yaml", Device::Cpu)));

struct OfPrompt {
  int64_t budget, length;
  int logprobs, promptLogprobs;
};
static const std::vector<OfPrompt> ofPrompts = {
    {2, 19, 1, 2}, {0, 18, -1, 0}, {2, 9, -1, -1}, {1, 1, 0, 1}, {1, 12, -1, 1}};

static std::vector<int32_t> prompt(int64_t length) {
  std::vector<int32_t> out;
  for (int64_t k = 0; k < length; ++k)
    out.push_back(static_cast<int32_t>(97 + k * k % 23));
  return out;
}

static Kernel narrow(const char *pipeline, Device device) { // a prompt takes several passes
  return loaded(compiled(pipeline, {{"slots", "2"}, {"kv_pages", "64"}, {"rows_per_pass", "16"}}), device);
}

static Heard hearPrompts(const Kernel &kernel) {
  LiveSession session = opened(kernel, {.places = 4, .logitLines = 60});
  for (const OfPrompt &each : ofPrompts)
    EXPECT_TRUE(session.submit(request(each.budget, prompt(each.length)), 0, 0ms, each.logprobs, each.promptLogprobs));
  EXPECT_TRUE(session.stop());
  Heard heard;
  listen(session, heard);
  return heard;
}

static void expectAsAsked(const Heard &heard) {
  for (size_t i = 0; i < ofPrompts.size(); ++i) {
    SCOPED_TRACE(i);
    const Heard::One &is = heard.of.at(i);
    EXPECT_EQ(is.end->finish, "length");
    EXPECT_EQ(std::ssize(is.tokens), ofPrompts[i].budget);
    EXPECT_EQ(is.end->generated, ofPrompts[i].budget);
    EXPECT_EQ(is.logprobs.size(), ofPrompts[i].logprobs < 0 ? 0 : is.tokens.size());
    ASSERT_EQ(std::ssize(is.promptLogprobs), ofPrompts[i].promptLogprobs < 0 ? 0 : ofPrompts[i].length);
    for (size_t k = 0; k < is.promptLogprobs.size(); ++k)
      EXPECT_EQ(is.promptLogprobs[k].logprob.has_value(), k > 0) << k;
  }
}

class PromptLogprobs : public ::testing::TestWithParam<std::tuple<const char *, Device>> {};

/// The row that predicts a token of a prompt is the one that a request with the prompt up to there draws from, whatever
/// else is under way.
TEST_P(PromptLogprobs, AreThoseOfShorterPrompts) {
  const auto &[pipeline, device] = GetParam();
  if (device == Device::Cuda && !std::filesystem::exists("/dev/nvidiactl"))
    GTEST_SKIP() << "there is no GPU";
  const Kernel kernel = narrow(pipeline, device);
  const Heard heard = hearPrompts(kernel);
  expectAsAsked(heard);
  auto run = Session::open(kernel, {.logits = true});
  ASSERT_TRUE(run) << run.errors().text();
  const std::vector<int64_t> lengths = {1, 9, 15, 16, 17, 18};
  for (int64_t length : lengths) {
    Request shorter = request(1, prompt(length));
    shorter.id = RequestId::ofInteger(std::to_string(length));
    ASSERT_TRUE(run->submit(shorter));
  }
  auto results = run->run();
  ASSERT_TRUE(results) << results.errors().text();
  for (size_t i = 0; i < ofPrompts.size(); ++i)
    for (size_t k = 0; k < lengths.size(); ++k)
      if (const int64_t token = lengths[k]; ofPrompts[i].promptLogprobs >= 0 && token < ofPrompts[i].length) {
        SCOPED_TRACE(i);
        SCOPED_TRACE(token);
        expectLogprob(heard.of.at(i).promptLogprobs[token], results->requests[k].logits, prompt(token + 1)[token],
                      ofPrompts[i].promptLogprobs);
      }
}

INSTANTIATE_TEST_SUITE_P(All, PromptLogprobs,
                         ::testing::Values(std::tuple("autoregressive.yaml", Device::Reference),
                                           std::tuple("sampled.yaml", Device::Reference),
                                           std::tuple("token_tree_lookup.yaml", Device::Reference),
                                           std::tuple("token_tree_lookup.yaml", Device::Cpu)));
INSTANTIATE_TEST_SUITE_P(Gpu, PromptLogprobs,
                         ::testing::Values(std::tuple("autoregressive.yaml", Device::Cuda),
                                           std::tuple("sampled.yaml", Device::Cuda),
                                           std::tuple("token_tree_lookup.yaml", Device::Cuda)));

/// Rows of drafts do not say how likely a prompt is. So who asks is told before anything runs.
TEST(Live, PipelinesThatFeedPromptsAsDraftsTellNoLogprobsOfThem) {
  EXPECT_EQ(serving().whyNoPromptLogprobs(), "");
  const std::string pipeline = R"(
pipeline: draft_prompts
models:
  target: {}
params: {slots: 2, rows_per_pass: 16}
request:
  fed: i32 = 0
states:
  fault: FAILED
  QUEUED:   {initial: true, next: [PREFILL]}
  PREFILL:  {slot: true, next: [PREFILL, DECODE]}
  DECODE:   {slot: true, next: [DECODE, COMPLETE]}
  COMPLETE: {terminal: true}
  FAILED:   {terminal: true}
kv:
  target: {pages: 32, page_tokens: 16, on_full: fail}
stages:
  admit: {on: QUEUED, do: [], goto: PREFILL}
  prefill:
    on: PREFILL
    progress: fed
    do:
      - target(tokens[kv.target.len:-1][:8], kv=draft, keep=none)
      - fed: min(fed + 8, len(tokens) - 1)
      - kv.target.keep: fed
    goto: DECODE if kv.target.lag == 1 else PREFILL
  decode:
    on: DECODE
    do:
      - append(argmax(target([last])))
    goto: COMPLETE if finished else DECODE
)";
  auto program = Program::compile({.file = MEGALITH_SOURCE_DIR "/pipelines/drafts.yaml",
                                   .texts = {{MEGALITH_SOURCE_DIR "/pipelines/drafts.yaml", pipeline}},
                                   .models = {{"", MEGALITH_SOURCE_DIR "/models/demo"}}});
  ASSERT_TRUE(program) << program.errors().text();
  LiveSession session = opened(loaded(*program), {.logitLines = 40});
  for (int64_t length : {1, 30, 60}) // there is a row for it or not
    EXPECT_REFUSED(
        session.submit(request(1, prompt(length)), 0, 0ms, -1, 0),
        "request `0` wants logprobs of its prompt, and the pipeline has none: it feeds prompts to `target` by "
        "calls with `kv=draft` (" MEGALITH_SOURCE_DIR "/pipelines/drafts.yaml:23); ask without them, or feed "
        "prompts by a call without `kv=draft` [live-prompt-logprobs]");
  EXPECT_TRUE(session.submit(request(2, prompt(30)), 0, 0ms, 1));
  ASSERT_TRUE(session.stop());
  Heard heard;
  listen(session, heard);
  EXPECT_EQ(heard.of.at(0).logprobs.size(), 2u);
}

/// A canvas is no prediction of its tokens: it is filled in any order, and nothing of it is kept.
TEST(Live, TokensThatNoRowPredictedHaveNoLogprobs) {
  const Kernel kernel = loaded(compiled("canvas_refinement.yaml", {{"slots", "2"}}));
  LiveSession session = opened(kernel, {.logitLines = 1000});
  ASSERT_TRUE(session.submit(request(12), 0, 0ms, 1));
  ASSERT_TRUE(session.stop());
  Heard heard;
  listen(session, heard);
  ASSERT_EQ(heard.of[0].logprobs.size(), 12u);
  for (const LiveLogprob &told : heard.of[0].logprobs) {
    EXPECT_FALSE(told.logprob);
    EXPECT_TRUE(told.likeliest.empty());
  }
}

/// Requests wait for lines on the host: those that need none go past them, and they go in their order.
TEST(Live, RequestsWaitForLinesOfLogits) {
  const Kernel kernel = loaded(serving());
  LiveSession session = opened(kernel, {.queue = 8, .logitLines = 1000});
  EXPECT_REFUSED(session.submit(request(1001), 0, 0ms, 3), "it needs 1001 rows of logits, and the session has 1000");
  ASSERT_TRUE(session.submit(request(900), 0, 0ms, 3));
  Heard heard;
  listenForTokens(session, heard, 0);
  for (int64_t budget : {1000, 2, 900}) // the second one has room, but waits behind the first
    ASSERT_TRUE(session.submit(request(budget), 0, 0ms, 0));
  ASSERT_TRUE(session.submit(request(2)));
  listen(session, heard, [&] { return heard.finish(4) == "length"; });
  EXPECT_FALSE(heard.of[0].end);
  EXPECT_EQ(heard.of[4].logprobs.size(), 0u);
  EXPECT_EQ(session.stats().waiting, 3u);
  ASSERT_TRUE(session.submit(request(900), 0, 0ms, 0));
  // Half of the queue is for requests that need no lines.
  EXPECT_REFUSED(session.submit(request(1), 0, 0ms, 0), "4 requests wait already");
  ASSERT_TRUE(session.submit(request(1)));
  ASSERT_TRUE(session.cancel(1));
  listen(session, heard, [&] { return heard.finish(1) == "cancelled" && heard.finish(2) == "length"; });
  EXPECT_FALSE(heard.of[0].end);
  EXPECT_EQ(heard.of[2].logprobs.size(), 2u);
  ASSERT_TRUE(session.cancel(0)); // gives its lines back
  listenForTokens(session, heard, 3);
  EXPECT_EQ(heard.of[0].logprobs.size(), heard.of[0].tokens.size());
  // The last one waits while the session stops.
  ASSERT_TRUE(session.cancel(3));
  ASSERT_TRUE(session.stop());
  listen(session, heard);
  EXPECT_EQ(heard.finish(5), "length");
  EXPECT_EQ(heard.of[5].logprobs.size(), 900u);
  EXPECT_TRUE(heard.of[5].logprobs.back().likeliest.empty());
}

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
  auto run = Session::open(kernel, {.seed = 9});
  ASSERT_TRUE(run) << run.errors().text();
  for (size_t i = 0; i < requests.size(); ++i) {
    Request r = requests[i];
    r.maxNewTokens = std::min<int64_t>(r.maxNewTokens, 20);
    ASSERT_TRUE(run->submit(r));
  }
  auto results = run->run();
  ASSERT_TRUE(results) << results.errors().text();

  LiveSession session = opened(kernel, {.places = 3, .ring = 4, .seed = 9, .idleMs = 0});
  Heard heard;
  ASSERT_TRUE(session.submit(requests[0], 0));
  listen(session, heard, [&] { return !heard.finish(0).empty(); });
  while (session.stats().launched)
    std::this_thread::sleep_for(1ms);
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

} // namespace live_sessions
