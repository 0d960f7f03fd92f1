//===- LiveTesting.h - sessions of the demo model, and what came of their requests -===//
#ifndef MEGALITH_TEST_API_LIVETESTING_H
#define MEGALITH_TEST_API_LIVETESTING_H

#include "../Waiting.h"
#include "megalith/LiveSession.h"
#include <map>

namespace live_testing {

using namespace megalith;
using namespace std::chrono_literals;
using namespace waiting;

/// With two CTAs where a kernel runs on the CPU: enough to wait for each other.
inline Program compiled(const char *pipeline, std::vector<std::pair<std::string, std::string>> params = {}) {
  auto program = Program::compile({.file = MEGALITH_SOURCE_DIR "/pipelines/" + std::string(pipeline),
                                   .models = {{"", MEGALITH_SOURCE_DIR "/models/demo"}},
                                   .params = std::move(params),
                                   .plan = {"ctas=2"}});
  EXPECT_TRUE(program) << program.errors().text();
  return *program;
}

/// A pipeline that has states for what the host ends, with two slots.
inline Program serving() { return compiled("priority_serving.yaml", {{"slots", "2"}, {"kv_pages", "64"}}); }

inline Kernel loaded(const Program &program, Device device = Device::Reference) {
  auto kernel = Kernel::load(program, {.device = device});
  EXPECT_TRUE(kernel) << kernel.errors().text();
  return *kernel;
}

inline LiveSession opened(const Kernel &kernel, const LiveOptions &options = {}) {
  auto session = LiveSession::open(kernel, options);
  EXPECT_TRUE(session) << session.errors().text();
  return std::move(*session);
}

inline Request request(int64_t budget, std::vector<int32_t> tokens = {73, 110, 32}) {
  return {.id = {}, .tokens = std::move(tokens), .maxNewTokens = budget, .eos = std::vector<int32_t>()};
}

template <class T> std::string errorOf(const Expected<T> &failed) {
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
    EXPECT_FALSE(one.end) << "after the end of request " << event.request;
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

/// Reads until `enough`.
template <class Enough> void listen(LiveSession &session, Heard &heard, Enough enough) {
  const auto until = std::chrono::steady_clock::now() + hangs;
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
inline void listen(LiveSession &session, Heard &heard) {
  listen(session, heard, [] { return false; });
  EXPECT_TRUE(session.done());
}

/// So that what comes next comes that many ticks later, or when nothing is left to do.
inline void letTicksPass(const LiveSession &session, int64_t count) {
  const int64_t until = session.stats().ticks + count;
  waitUntil([&] {
    const LiveStats now = session.stats();
    return now.ticks >= until || now.running + now.waiting == 0;
  });
}

/// Until the request has some tokens: it runs.
inline void listenForTokens(LiveSession &session, Heard &heard, uint64_t number) {
  listen(session, heard, [&] { return !heard.of[number].tokens.empty(); });
}

inline const LiveStats::Pool &pool(const LiveStats &stats) { return stats.pools.at(0); }

} // namespace live_testing

#endif
