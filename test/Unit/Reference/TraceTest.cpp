#include "TinyModel.h"
#include "megalith/Text/Text.h"
#include <cmath>
#include <cstdio>
#include <fmt/format.h>
#include <fstream>

using namespace tiny;

static Trace sample() {
  auto requests = prompts(3, 8);
  requests[1].maxNewTokens = 1000; // ends in a fault
  Options options;
  options.hashKv = true;
  return run(speculative({}), requests, options).trace;
}

TEST(Trace, TextReadsBackEqual) {
  Trace trace = sample();
  trace.synthetic = "0.5";
  auto again = parseTrace(formatTrace(trace), "t.jsonl");
  ASSERT_TRUE(again) << again.error.message;
  EXPECT_EQ(compareTraces(trace, *again), "");
  EXPECT_EQ(formatTrace(*again), formatTrace(trace));
  EXPECT_EQ(again->synthetic, "0.5");
  EXPECT_EQ(compareTraces(sample(), *again), "") << "the mark is no part of what was done";
}

TEST(Trace, TheHostsSide) {
  Trace trace = sample();
  ASSERT_GT(trace.ticks.size(), 3u);
  trace.ticks[1].nowMs = 7;
  trace.ticks[1].events = {{false, 2}, {true, 0}};
  auto again = parseTrace(formatTrace(trace), "t.jsonl");
  ASSERT_TRUE(again) << again.error.message;
  EXPECT_EQ(compareTraces(trace, *again), "");
  EXPECT_NE(formatTrace(trace).find("\"now_ms\":7,\"events\":[{\"arrives\":2},{\"cancels\":0}]"), std::string::npos);
  again->ticks[1].nowMs = 8;
  EXPECT_EQ(compareTraces(trace, *again), "tick 1, milliseconds of the clock: 7 against 8");
  again = parseTrace(formatTrace(trace), "t.jsonl");
  again->ticks[1].events[1].request = 1;
  EXPECT_EQ(compareTraces(trace, *again), "tick 1, events: request 2 arrives, request 0 is cancelled against request 2 "
                                          "arrives, request 1 is cancelled");
  // Numbers are left out in front of what the host wants: an arrival, or a cancellation of who has ended.
  for (size_t i = 1; i < trace.ticks.size(); ++i)
    trace.ticks[i].tick += 100;
  EXPECT_TRUE(parseTrace(formatTrace(trace), "t.jsonl"));
  trace.ticks[1].events = {{true, 0}};
  EXPECT_TRUE(parseTrace(formatTrace(trace), "t.jsonl"));
  trace.ticks[1].events = {};
  EXPECT_EQ(parseTrace(formatTrace(trace), "t.jsonl").error.message,
            "`tick` must be 1: ticks follow each other from 0, found `101`");
  trace.ticks[1].events = {{false, 99}};
  EXPECT_EQ(parseTrace(formatTrace(trace), "t.jsonl").error.message, "request 99 has no result: the last line has 3");
}

TEST(Trace, FileReadsBackEqual) {
  Trace trace = sample();
  std::string path = testing::TempDir() + "megalith_trace_test.jsonl";
  ASSERT_TRUE(writeTrace(path, trace));
  std::ifstream file(path, std::ios::binary);
  auto again = parseTrace(std::string(std::istreambuf_iterator<char>(file), {}), path);
  std::remove(path.c_str());
  ASSERT_TRUE(again) << again.error.message;
  EXPECT_EQ(compareTraces(trace, *again), "");
}

TEST(Trace, ErrorsNameTheLine) {
  EXPECT_EQ(writeTrace("/nonexistent/t.jsonl", {}).error.kind, "trace-write");

  std::string text = formatTrace(sample());
  auto at = [&](size_t line) {
    size_t pos = 0;
    while (--line)
      pos = text.find('\n', pos) + 1;
    return pos;
  };
  std::string broken = text;
  broken.insert(at(3), "{");
  auto syntax = parseTrace(broken, "t.jsonl");
  EXPECT_EQ(syntax.error.kind, "trace-syntax");
  EXPECT_EQ(syntax.error.line, 3u);

  broken = text;
  broken.replace(broken.find("\"live\"", at(4)), 6, "\"dead\"");
  auto key = parseTrace(broken, "t.jsonl");
  EXPECT_EQ(key.error.kind, "trace-key");
  EXPECT_EQ(key.error.line, 4u);
  EXPECT_EQ(key.error.message, "unknown member `dead` of a tick; it has `tick`, `now_ms`, `events`, `live`, `cached`, "
                               "`passes`, `slots`, `faults`");

  auto cut = parseTrace(text.substr(0, at(5)), "t.jsonl");
  EXPECT_EQ(cut.error.kind, "trace-end");
  EXPECT_EQ(cut.error.line, 4u);
}

TEST(Trace, ComparisonNamesTheFirstDifference) {
  Trace a = sample(), b = a;
  b.ticks[2].passes[0].rows[1].token += 1;
  b.ticks[3].live["target"] += 1;
  std::string text = compareTraces(a, b);
  EXPECT_EQ(text.find("tick 2, pass 0, row 1, token: "), 0u) << text;

  b = a;
  b.ticks[1].slots[0].kv[0].pages.push_back(9);
  text = compareTraces(a, b);
  EXPECT_EQ(text.find("tick 1, request 0, pages: "), 0u) << text;

  b = a;
  b.metrics["tokens_committed"] += 1;
  EXPECT_EQ(compareTraces(a, b).find("metrics: "), 0u);

  b = a;
  b.ticks.pop_back();
  EXPECT_EQ(compareTraces(a, b).find("ticks: "), 0u);

  b = a;
  b.ticks[0].passes[0].kvHash[0] ^= 1;
  EXPECT_EQ(compareTraces(a, b), "");
}

TEST(Trace, InputsReadBackAndAreCompared) {
  Trace a = sample();
  a.requests[0].inputs = {{"tenant", int64_t(3)},
                          {"share", 1.0},
                          {"loud", true},
                          {"text", std::vector<int32_t>{7, 8}},
                          {"rates", std::vector<float>{1.0f, 0.25f}}};
  const std::string text = formatTrace(a);
  EXPECT_NE(text.find(R"("inputs":{"loud":true,"rates":[1.0,0.25],"share":1.0,"tenant":3,"text":[7,8]})"),
            std::string::npos)
      << text.substr(text.rfind("{\"results\""));
  auto b = parseTrace(text, "t.jsonl");
  ASSERT_TRUE(b) << b.error.message;
  EXPECT_EQ(b->requests[0].inputs, a.requests[0].inputs);
  EXPECT_TRUE(b->requests[1].inputs.empty());
  EXPECT_EQ(compareTraces(a, *b), "");
  b->ticks.pop_back();
  b->requests[0].inputs["tenant"] = int64_t(4);
  EXPECT_EQ(compareTraces(a, *b), "request 0, input tenant: 3 against 4") << "it explains all else";
  b->requests[0].inputs.erase("tenant");
  EXPECT_EQ(compareTraces(a, *b), "request 0, input tenant: 3 against nothing");
  EXPECT_EQ(compareTraces(*b, a), "request 0, input tenant: nothing against 3");
}

/// `kind:line: message` of the trace with `from`, first seen in line `line`, replaced.
static std::string errorWith(std::string text, size_t line, const std::string &from, const std::string &to) {
  size_t at = 0;
  for (size_t i = 1; i < line; ++i)
    at = text.find('\n', at) + 1;
  at = text.find(from, at);
  EXPECT_LT(at, text.size()) << from;
  text.replace(at, from.size(), to);
  auto trace = parseTrace(text, "t.jsonl");
  return trace ? "no error" : fmt::format("{}:{}: {}", trace.error.kind, trace.error.line, trace.error.message);
}

TEST(Trace, NumbersAreIntegersInRange) {
  const std::string text = formatTrace(sample());
  auto with = [&](const std::string &from, const std::string &to) { return errorWith(text, 2, from, to); };
  EXPECT_EQ(with("\"tick\":0", "\"tick\":0.9"), "trace-key:2: `tick` must be an integer, found `0.9`");
  EXPECT_EQ(with("\"tick\":0", "\"tick\":0.0"), "trace-key:2: `tick` must be an integer, found `0.0`");
  EXPECT_EQ(with("\"tick\":0", "\"tick\":1"),
            "trace-key:2: `tick` must be 0: ticks follow each other from 0, found `1`");
  EXPECT_EQ(with("\"rows\":[[", "\"rows\":[[4294967296,").substr(0, 58),
            "trace-key:2: `rows[0]` must be a list of 8 integers, found");
  const size_t begin = text.find("\"rows\":[[") + 8;
  const std::string row = text.substr(begin, text.find(']', begin) - begin + 1);
  auto withRow = [&](const char *words) { return with(row, words); };
  EXPECT_EQ(withRow("[0,10,0,0,1,-1,0,-1]"), "no error");
  for (const char *wrong : {"4294967554", "9223372036854775808", "-3", "0.9", "\"1\"", "true", "1e300"})
    for (int i = 0; i < 8; ++i) {
      std::vector<std::string> words = {"0", "10", "0", "0", "1", "-1", "0", "-1"};
      words[i] = wrong;
      EXPECT_EQ(withRow(fmt::format("[{}]", fmt::join(words, ",")).c_str()).substr(0, 42),
                fmt::format("trace-key:2: `rows[0][{}]` must be an integ", i).substr(0, 42))
          << wrong;
    }
  EXPECT_EQ(with("\"request\":0", "\"request\":99"), "trace-key:2: request 99 has no result: the last line has 3");
  EXPECT_EQ(with("\"request\":0", "\"request\":-1"),
            "trace-key:2: `request` must be an integer from 0 to 2147483647, found `-1`");
  EXPECT_EQ(errorWith(text, 3, "\"pages\":[", "\"pages\":[4294967296,").substr(0, 41),
            "trace-key:3: `pages[0]` must be an intege");
  EXPECT_EQ(with("\"live\":{", "\"live\":{\"x\":1.5,"),
            "trace-key:2: `x` must be an integer from 0 to 9223372036854775807, found `1.5`");
  EXPECT_EQ(
      with("\"kv_hash\":[\"", "\"kv_hash\":[\"x"), "trace-key:2: " + [&] {
        return "`kv_hash[0]` must be 16 hexadecimal digits, found `\"x" +
               text.substr(text.find("kv_hash\":[\"") + 11, 16) + "\"`";
      }());
  EXPECT_EQ(with("\"kv_hash\":[", "\"kv_hash\":[\"0123456789abcdef\",").substr(0, 45),
            "trace-key:2: `kv_hash` must have one hash for");
  EXPECT_NE(with("\"metrics\":{", "\"metrics\":{\"m\":1e3,").find(": `m` must be an integer, found `1000.0`"),
            std::string::npos);
}

TEST(Trace, NothingUnknownAndNothingAfterTheEnd) {
  const std::string text = formatTrace(sample());
  for (const char *object : {"{\"tick\":", "{\"model\":", "{\"slot\":", "{\"pool\":", "{\"results\":", "{\"id\":"}) {
    const std::string error = errorWith(text, 2, object, std::string("{\"more\":1,") + (object + 1));
    EXPECT_NE(error.find(": unknown member `more` of "), std::string::npos) << error;
  }
  EXPECT_EQ(errorWith(text, 1, "\"megalith_trace\":2", "\"megalith_trace\":2.0"),
            "trace-key:1: this version reads `megalith_trace` 2");
  EXPECT_EQ(errorWith(text, 2, "\"finish\":\"", "\"finish\":\"x"),
            fmt::format("trace-key:{}: `finish` must be one of `fault`, `limit`, `stop`, `length`, `state`, "
                        "`cancelled`, `deadline`, found `\"xlength\"`",
                        std::count(text.begin(), text.end(), '\n')));
  EXPECT_EQ(errorWith(text, 2, "\"finish\":\"length\"", "\"finish\":\"fault\"").substr(14),
            "`finish` must be `fault` if there is a `fault`, and only then, found `\"fault\"`");
  const auto lines = std::count(text.begin(), text.end(), '\n');
  for (const std::string &more : {std::string("x"), std::string("\n"), text, std::string(1, '\0')}) {
    auto trace = parseTrace(text + more, "t.jsonl");
    EXPECT_EQ(trace.error.kind, "trace-end");
    EXPECT_EQ(trace.error.line, lines + 1);
  }
  EXPECT_TRUE(parseTrace(text.substr(0, text.size() - 1), "t.jsonl")) << "the last newline may be missing";
  // The first half of one, and another.
  auto joined = parseTrace(text.substr(0, text.find("{\"tick\":1,")) + text, "t.jsonl");
  EXPECT_EQ(joined.error.message, "a second trace begins before the first one has its results");
}

TEST(Trace, BytesThatAreNotText) {
  const std::string text = formatTrace(sample());
  for (int b = 0; b < 256; ++b)
    for (size_t at : {size_t(0), size_t(1), text.find("\"DECODE") + 1, text.find("\"rows\":[[") + 9, text.size()}) {
      std::string edited = text;
      auto trace = parseTrace(edited.insert(at, 1, static_cast<char>(b)), "t.jsonl");
      if (!trace) {
        EXPECT_EQ(trace.error.message, text::printable(trace.error.message)) << b << " at " << at;
      }
    }
}

TEST(Trace, ValuesThatAreNotFinite) {
  Trace a = sample();
  auto &gauges = a.ticks[1].slots[0].gauges;
  gauges = {{"a", NAN}, {"b", INFINITY}, {"c", -INFINITY}, {"d", 0.1}};
  auto again = parseTrace(formatTrace(a), "t.jsonl");
  ASSERT_TRUE(again) << again.error.message;
  EXPECT_EQ(compareTraces(a, *again), "");
  EXPECT_TRUE(std::isnan(again->ticks[1].slots[0].gauges.at("a")));
  again->ticks[1].slots[0].gauges["a"] = 1;
  EXPECT_NE(compareTraces(a, *again), "");
}
