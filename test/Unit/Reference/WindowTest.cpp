// Pages below a window of all layers are given back.
#include "TinyModel.h"
#include <algorithm>
#include <set>

using namespace tiny;

namespace {

int64_t ceilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

Settings windowed(int window = 6, int pageTokens = 4) {
  Settings s;
  s.window = window;
  s.pageTokens = pageTokens;
  s.pages = 64 * 4 / pageTokens;
  return s;
}

Settings keepsAll(Settings s) {
  s.givesBack = false;
  return s;
}

Options withLogits() {
  Options options;
  options.keepLogits = true;
  return options;
}

/// Tokens and logits, bit for bit.
void expectSame(const RunResult &a, const RunResult &b) {
  ASSERT_EQ(a.requests.size(), b.requests.size());
  for (size_t i = 0; i < a.requests.size(); ++i) {
    EXPECT_EQ(a.requests[i].finish, b.requests[i].finish) << "request " << i;
    EXPECT_EQ(a.requests[i].tokens, b.requests[i].tokens) << "request " << i;
    EXPECT_TRUE(a.requests[i].logits == b.requests[i].logits) << "request " << i;
  }
}

/// Follows the page tables of a trace. Nobody else holds a request's pages, it has all that its next row sees, and it
/// holds no more than `most`. Returns the number of pages that were given back from the front.
int64_t checkTables(const RunResult &result, const Settings &s, int64_t most) {
  int64_t back = 0, held = 0;
  for (const TraceTick &tick : result.trace.ticks) {
    EXPECT_LE(tick.live.at("target"), held) << "pages that nobody holds, tick " << tick.tick;
    std::set<int32_t> all;
    held = 0;
    for (const TraceSlot &slot : tick.slots) {
      const TraceKv &kv = slot.kv.at(0);
      back = std::max(back, kv.first);
      held += int64_t(kv.pages.size());
      all.insert(kv.pages.begin(), kv.pages.end());
      EXPECT_LE(int64_t(kv.pages.size()), most) << "tick " << tick.tick << ", " << slot.before;
      EXPECT_LE(kv.first * s.pageTokens, std::max<int64_t>(0, kv.len - s.window + 1)) << "tick " << tick.tick;
      EXPECT_GE((kv.first + int64_t(kv.pages.size())) * s.pageTokens, kv.len) << "tick " << tick.tick;
    }
    EXPECT_EQ(int64_t(all.size()), held) << "a page of two requests, tick " << tick.tick;
  }
  return back;
}

} // namespace

TEST(Windows, ARequestHoldsThePagesOfItsWindow) {
  for (int window : {1, 2, 6, 16})
    for (int pageTokens : {1, 4, 16}) {
      Settings s = windowed(window, pageTokens);
      s.chunk = 1;
      const RunResult result = run(autoregressive(s), prompts(4, 40));
      EXPECT_GT(checkTables(result, s, ceilDiv(window, pageTokens) + 2), 1) << window << ", " << pageTokens;
      const TraceKv &last = result.trace.ticks[40].slots[0].kv[0];
      EXPECT_GE(last.first * pageTokens, last.len - window - pageTokens) << "given back as soon as it can be";
    }
}

TEST(Windows, ResultsDoNotDependOnPagesThatAreGivenBack) {
  const auto requests = prompts(5, 24);
  for (int window : {1, 6}) {
    const RunResult base = run(autoregressive(keepsAll(windowed(window))), requests, withLogits());
    EXPECT_EQ(checkTables(base, windowed(window), 64), 0);
    for (int pageTokens : {1, 3, 16})
      for (int chunk : {1, 7, 16}) {
        Settings s = windowed(window, pageTokens);
        s.chunk = chunk;
        Options options = withLogits();
        options.shufflePages = 11;
        expectSame(base, run(autoregressive(s), requests, options));
        expectSame(base, run(speculative(s), requests, options));
      }
  }
  EXPECT_NE(run(autoregressive(windowed(6)), requests).requests[4].tokens,
            run(autoregressive({}), requests).requests[4].tokens)
      << "the window matters";
}

TEST(Windows, DraftsDoNotCount) {
  // `commit` before `verify` in the list: drafts wait for their `kv.keep` over the start of a tick.
  Settings s = windowed(3, 2);
  std::string text = speculative(s);
  const size_t commit = text.find("  stage @commit"), model = text.find("model @target");
  const std::string stage = text.substr(commit, model - commit);
  text.erase(commit, model - commit);
  text.insert(text.find("  stage @propose"), stage);
  const auto requests = prompts(3, 40);
  const RunResult base = run(autoregressive(keepsAll(s)), requests, withLogits());
  const RunResult result = run(text, requests, withLogits());
  expectSame(base, result);
  EXPECT_GT(checkTables(result, s, ceilDiv(s.window + 2 * s.rows - 2, s.pageTokens) + 1), 1);
  EXPECT_GT(result.metrics.at("tokens_accepted"), 0);
}

/// Decoding that goes back to `keep` leading tokens when 20 tokens are left to generate.
static std::string goesBack(const Settings &s, int keep) {
  std::string text = autoregressive(s);
  const std::string end = "    %fin = finished : bool\n    goto(%fin) {to = [\"COMPLETE\", \"DECODE\"]}\n";
  const size_t at = text.find(end), next = text.find("next = [\"DECODE\", \"COMPLETE\"]");
  text.replace(at, end.size(),
               fmt::format(R"(    %left = budget : i32
    %when = const {{value = 20}} : i32
    %now = eq(%left, %when) : bool
    if(%now) {{
      %keep = const {{value = {}}} : i32
      kv.keep @target(%keep)
    }}
    %fin = finished : bool
    %after = kv.lag @target : i32
    %few = const {{value = 1}} : i32
    %again = gt(%after, %few) : bool
    goto(%fin, %again) {{to = ["COMPLETE", "PREFILL", "DECODE"]}}
)",
                           keep));
  text.replace(next, 29, "next = [\"DECODE\", \"PREFILL\", \"COMPLETE\"]");
  return text;
}

TEST(Windows, KvThatWouldLackPagesIsComputedAgain) {
  const auto requests = prompts(3, 40);
  Settings s = windowed(6, 4);
  const RunResult base = run(autoregressive(keepsAll(s)), requests, withLogits());
  // Request 0 has 1 + 20 tokens then, of which 20 are valid, and gave back the pages of positions 0 to 11.
  const auto lengthsAfter = [&](int keep) {
    const RunResult result = run(goesBack(s, keep), {requests[0]});
    for (const TraceTick &tick : result.trace.ticks)
      if (tick.slots[0].after == "PREFILL" && tick.slots[0].before == "DECODE")
        return std::pair(tick.slots[0].kv[0].len, tick.slots[0].kv[0].first);
    ADD_FAILURE() << "it never went back";
    return std::pair<int64_t, int64_t>();
  };
  EXPECT_EQ(lengthsAfter(17), std::pair(int64_t(17), int64_t(3))) << "position 12 is the first that row 17 sees";
  EXPECT_EQ(lengthsAfter(16), std::pair(int64_t(0), int64_t(0)));
  EXPECT_EQ(lengthsAfter(5), std::pair(int64_t(0), int64_t(0)));
  for (int keep : {0, 1, 5, 16, 17, 19}) {
    const RunResult result = run(goesBack(s, keep), requests, withLogits());
    expectSame(base, result);
    EXPECT_GT(checkTables(result, s, ceilDiv(s.window + 2 * s.rows - 2, s.pageTokens) + 1), 5);
  }
  // In a model without windows nothing was given back.
  Settings whole = s;
  whole.window = 0;
  expectSame(run(autoregressive(whole), requests, withLogits()), run(goesBack(whole, 5), requests, withLogits()));
}

TEST(Windows, ReservationsAreForWhatIsHeldAtOnce) {
  // 60 + 1 positions and more fill 16 pages of 4; no more than ceil((6 + 2 * 4 - 2) / 4) + 1 = 4 are held at once.
  const auto requests = prompts(5, 44);
  Settings s = windowed(6, 4);
  s.slots = 5;
  s.rows = s.chunk = 4;
  s.onFull = "wait";
  s.pages = 20;
  const RunResult base = run(autoregressive(keepsAll(windowed(6, 4))), requests, withLogits());
  const RunResult result = run(autoregressive(s), requests, withLogits());
  expectSame(base, result);
  EXPECT_GT(checkTables(result, s, 4), 5);
  for (const auto &r : result.requests)
    EXPECT_EQ(r.firstTick, 0) << "all have a reservation at once";
  // One page less, and the last one waits.
  s.pages = 19;
  const RunResult fewer = run(autoregressive(s), requests, withLogits());
  expectSame(base, fewer);
  EXPECT_GT(fewer.requests[4].firstTick, 0);
  // Without the window each reserves all of its positions.
  const RunResult whole = run(autoregressive(keepsAll(s)), requests, withLogits());
  expectSame(base, whole);
  EXPECT_GT(whole.requests[1].firstTick, result.requests[0].lastTick / 2);
}

TEST(Windows, APoolThatFailsHasRoomForMore) {
  const auto requests = prompts(4, 44);
  Settings s = windowed(6, 4);
  s.slots = 4;
  s.rows = s.chunk = 4;
  s.pages = 16;
  for (const auto &r : run(autoregressive(s), requests).requests)
    EXPECT_EQ(r.finish, "length");
  const RunResult whole = run(autoregressive(keepsAll(s)), requests);
  EXPECT_TRUE(std::any_of(whole.requests.begin(), whole.requests.end(),
                          [](const auto &r) { return r.fault == "POOL_EXHAUSTED"; }));
}

TEST(Windows, TracesSayHowManyPagesWereGivenBack) {
  const RunResult result = run(autoregressive(windowed(6, 4)), prompts(2, 20));
  const std::string text = formatTrace(result.trace);
  EXPECT_NE(text.find("{\"pool\":\"target\",\"len\":10,\"first\":1,\"pages\":["), std::string::npos) << text;
  EXPECT_EQ(text.find("\"first\":0"), std::string::npos);
  auto again = parseTrace(text, "t.jsonl");
  ASSERT_TRUE(again) << again.error.message;
  EXPECT_EQ(compareTraces(result.trace, *again), "");
  TraceTick &last = again->ticks[15];
  last.slots[0].kv[0].first += 1;
  EXPECT_EQ(compareTraces(result.trace, *again).find("tick 15, request 0, first page: "), 0u);
  auto none =
      parseTrace(fmt::format("{}{}", text.substr(0, text.find("\"first\":1")), "\"first\":0}]}]}\n"), "t.jsonl");
  EXPECT_EQ(none.error.kind, "trace-key") << none.error.message;
}

TEST(Windows, APageThatWasGivenBackIsNeverRead) {
  // The text of a module whose model promises less than its layers see.
  std::string text = autoregressive(windowed(6, 4));
  const size_t at = text.find("kv_window = 6");
  ASSERT_NE(at, std::string::npos);
  text.replace(at, 13, "kv_window = 2");
  SourceFiles files;
  Diagnostics diags(files);
  auto module = ir::parse(diags, files.add("tiny.mir", text));
  ASSERT_TRUE(module);
  Weights weights;
  const RunResult result = reference::run(*module, weights, prompts(1, 20), {});
  EXPECT_EQ(result.error,
            "a row sees keys of a page that was given back: `kv_window` is less than the window of a layer");
}
