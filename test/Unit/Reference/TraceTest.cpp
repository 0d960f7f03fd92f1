#include "TinyModel.h"
#include <cstdio>
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
  auto again = parseTrace(formatTrace(trace), "t.jsonl");
  ASSERT_TRUE(again) << again.error.message;
  EXPECT_EQ(compareTraces(trace, *again), "");
  EXPECT_EQ(formatTrace(*again), formatTrace(trace));
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
  EXPECT_EQ(key.error.message, "unknown member `dead` of a tick; it has `tick`, `live`, `passes`, `slots`, `faults`");

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
