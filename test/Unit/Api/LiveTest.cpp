//===- LiveTest.cpp - what a session tells of its requests -===//
#include "LiveTesting.h"
#include <algorithm>
#include <atomic>
#include <filesystem>
#include <mutex>
#include <random>
#include <set>
#include <thread>

namespace live_testing {

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
  Request same = request(200);
  same.id = "a";
  auto results = kernel.run({same});
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
  auto results = kernel.run(requests, {.seed = 9});
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
        letTicksPass(session, order() % 8);
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
  std::atomic<int> idle = 0; // how often nothing was left to do
  LiveSession session = opened(kernel, {.progress = [&](const std::string &what) { idle += what.empty(); }});
  waitUntil([&] { return idle == 1; });
  EXPECT_EQ(session.stats().ticks, 0);
  Heard heard;
  ASSERT_TRUE(session.submit(request(3)));
  listen(session, heard, [&] { return heard.of[0].end.has_value(); });
  waitUntil([&] { return idle == 2; });
  const int64_t ticks = session.stats().ticks;
  EXPECT_GT(ticks, 2);
  EXPECT_LT(ticks, 8);
  ASSERT_TRUE(session.submit(request(3)));
  listen(session, heard, [&] { return heard.of[1].end.has_value(); });
  waitUntil([&] { return idle == 3; });
  EXPECT_EQ(session.stats().ticks, 2 * ticks);
  EXPECT_TRUE(session.stop());
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
  EXPECT_TRUE(session.cancel(0));                    // known, and over
  EXPECT_REFUSED(kernel.run({}), "[input-changed]"); // the kernel is free
}

} // namespace live_testing
