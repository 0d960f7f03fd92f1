#include "PipelineBase.h"

using namespace megalith;
using namespace megalith::test;

namespace {

/// What is said about `statement` in front of the append of the base pipeline; without the file's lines.
std::string said(const std::string &statement, const std::vector<Edit> &more = {}) {
  std::vector<Edit> edits = {{"      - append(draft", "      " + statement + "\n      - append(draft"}};
  edits.insert(edits.end(), more.begin(), more.end());
  const std::string messages = check(edits).messages;
  return messages.substr(0, messages.find('\n'));
}

} // namespace

TEST(PipelineNumbers, AnF32IsFinite) {
  EXPECT_EQ(said("- trace: 1e39"),
            "p.yaml:49:16: error: this is 1e+39, which is no finite f32 (3.4028235e+38 at most) [float-range]");
  EXPECT_EQ(said("- trace: 1.0 / 0.0"),
            "p.yaml:49:20: error: this is inf, which is no finite f32 (3.4028235e+38 at most) [float-range]");
  EXPECT_EQ(said("- trace: 0.0 / 0.0 * rate").find("p.yaml:49:20: error: this is nan, which"), 0u);
  EXPECT_EQ(said("- trace: -(3e38 * 10.0)").find("p.yaml:49:23: error: this is inf"), 0u);
  // What is not written but comes out of names becomes infinite when it runs.
  EXPECT_EQ(said("- trace: rate / (rate - rate)"), "");
  EXPECT_EQ(said("- trace: 3.4028235e38"), "");
  for (const char *param : {"1e39", "rate / (rate - rate)", "-1e38 * (rate * 2000)"}) {
    Check c = check({{"  rate: 0.5\n", std::string("  rate: 0.5\n  x: '") + param + "'\n"}});
    EXPECT_NE(c.messages.find("[float-range]"), std::string::npos) << param << c.messages;
    EXPECT_EQ(c.messages.find("p.yaml:8:"), 0u) << c.messages;
  }
  EXPECT_EQ(check({{"accepted: i32 = 0", "accepted: i32 = 0\n  x: f32 = -1e39"}})
                .messages.find("p.yaml:11:13: error: this is 1e+39"),
            0u);
  EXPECT_EQ(check({{"{ema: f32 = 0.8}", "{ema: f32 = 1e39}"}}).messages.find("p.yaml:23:24: error: this is 1e+39"), 0u);
  EXPECT_EQ(check({{"[0.5, block]", "[1e40, block]"}}).messages.find("p.yaml:27:27: error: this is 1e+40"), 0u);
}

TEST(PipelineNumbers, TheLeastI32IsWritten) {
  EXPECT_EQ(said("- trace: -2147483648"), "");
  EXPECT_EQ(said("- trace: -2147483649"), "p.yaml:49:17: error: 2147483649 does not fit into an i32 [int-range]");
  EXPECT_EQ(said("- trace: -2147483648 - 1"), "p.yaml:49:28: error: -2147483649 does not fit into an i32 [int-range]");
  EXPECT_EQ(said("- trace: -(-2147483648)"), "p.yaml:49:16: error: 2147483648 does not fit into an i32 [int-range]");
  // Each step of a constant counts, not its result alone.
  Check c = check({{"  block: 4\n", "  block: 4\n  big: 2147483647\n  x: big * big * big / big\n"}});
  EXPECT_EQ(c.messages.find("p.yaml:8:10: error: 4611686014132420609 does not fit into an i32 [int-range]"), 0u)
      << c.messages;
}

TEST(PipelineNumbers, AConstantCountsFromTheEnd) {
  // As many tokens as the field holds, by a number or by a param.
  for (const char *bound : {"-4", "-block", "-(block)", "0 - block", "-(2 * block - 4)", "least"})
    EXPECT_EQ(said(std::string("- draft: tokens[") + bound + ":]", {{"  block: 4\n", "  block: 4\n  least: -4\n"}}), "")
        << bound;
  EXPECT_EQ(said("- draft: draft[-2147483648:]"), "");
  EXPECT_NE(said("- draft: tokens[-block - 1:]"), "");
  // What is written with a minus counts from the end, whatever it is; another computed bound is clamped to 0.
  EXPECT_EQ(said("- draft: tokens[-clamp(accepted, 0, 4):]"), "");
  EXPECT_EQ(said("- draft: tokens[-0:]"), "");
  EXPECT_NE(said("- draft: tokens[-accepted:]").find("[draft-window]"), std::string::npos);
  EXPECT_NE(said("- draft: tokens[accepted - 4:]").find("[draft-window]"), std::string::npos);
}

TEST(PipelineNumbers, AConstantIsATokenWhereOneIsNeeded) {
  EXPECT_EQ(said("- append([block, block + 1, 2 * 3])"), "");
  EXPECT_NE(said("- append([block - 5])").find("[type-mismatch]"), std::string::npos);
}

TEST(PipelineNumbers, RangesHaveBounds) {
  const auto loop = [](const std::string &bound) { return said("- count: m += count(i in 0.." + bound + ", i > 2)"); };
  for (const char *good :
       {"len(tokens)", "len(tokens) + len(draft)", "kv.target.len", "budget - 1", "65536", "min(accepted, 100)",
        "max(0, min(accepted, 100))", "accepted % 100", "len(draft) * 3", "kv.target.pages", "seated * 2"})
    EXPECT_EQ(loop(good), "") << good;
  EXPECT_EQ(loop("2000000000"),
            "p.yaml:49:35: error: `count` can take 2000000000 rounds, more than 66560; bound its range with "
            "`min(..., N)` [range-bound]");
  EXPECT_EQ(loop("accepted"),
            "p.yaml:49:35: error: `count` can take any number of rounds, more than 66560; bound its range with "
            "`min(..., N)` [range-bound]");
  for (const char *bad : {"len(tokens) * 2", "max(accepted, 5)", "accepted / 2", "accepted - 1", "0 - accepted",
                          "2000000000 + min(budget, 2000000000)"})
    EXPECT_NE(loop(bad).find("[range-bound]"), std::string::npos) << bad;
  // More positions, longer ranges.
  EXPECT_NE(said("- count: m += count(i in 0..100000, i > 2)").find("[range-bound]"), std::string::npos);
  EXPECT_EQ(said("- count: m += count(i in 0..100000, i > 2)", {{"pages: 64", "pages: 10000"}}), "");
}

TEST(PipelineNumbers, NoMoreRequestsAreSeatedThanThereAreSlots) {
  const auto with = [](const std::string &slots) {
    return said("- draft: ngram_lookup(tokens, width=seated)",
                {{"  block: 4\n", "  block: 4\n  slots: " + slots + "\n"}});
  };
  EXPECT_EQ(with("4"), "");
  EXPECT_NE(with("5").find("[draft-window]"), std::string::npos) << with("5");
}

TEST(PipelineNumbers, RangesInRangesAreCountedTogether) {
  const auto pair = [](const std::string &outer, const std::string &inner) {
    return said("- count: m += count(i in 0.." + outer + ", count(j in 0.." + inner + ", i == j) > 0)");
  };
  EXPECT_EQ(pair("len(tokens)", "len(draft)"), "");
  EXPECT_EQ(pair("4096", "4096"), "");
  EXPECT_EQ(pair("4096", "4097"),
            "p.yaml:49:55: error: `count` and the ranges around it can take 16781312 rounds, more than "
            "16777216; bound its range with `min(..., N)` [range-bound]");
  EXPECT_NE(pair("len(tokens)", "len(tokens)").find("[range-bound]"), std::string::npos);
  EXPECT_NE(said("- count: m += count(i in 0..len(tokens), len(ngram_lookup(tokens[:i], 2)) > 0)")
                .find("`ngram_lookup` and the ranges"),
            std::string::npos);
  EXPECT_EQ(said("- count: m += count(i in 0..8, len(ngram_lookup(tokens[:i], 2)) > 0)"), "");
}

TEST(PipelineNumbers, WhatWrapsHasNoBound) {
  // Not the 4 that the bounds say before they wrap.
  EXPECT_NE(said("- draft: tokens[2000000000 + min(accepted, 2000000000):2000000004]").find("[draft-window]"),
            std::string::npos);
  EXPECT_NE(said("- draft: ngram_lookup(tokens, min(accepted, 2000000000) * 2)").find("any number of them"),
            std::string::npos);
  EXPECT_EQ(said("- draft: tokens[2:6]"), "");
}

TEST(PipelineNumbers, SequencesHaveLimits) {
  const Edit field = {"  accepted: i32", "  long: token[1024]\n  accepted: i32"};
  EXPECT_EQ(said("- append(long[:1020] + draft)", {field}), "");
  EXPECT_EQ(said("- append(long + draft)", {field}),
            "p.yaml:50:21: error: the length of what `+` joins must be at most 1024, found 1028 [type-mismatch]");
  std::string tokens = "1", chain = "draft[:1]";
  for (int i = 1; i < 256; ++i)
    tokens += ", 1";
  for (int i = 1; i < 32; ++i)
    chain += " + draft[:1]";
  EXPECT_EQ(said("- append([" + tokens + "])"), "");
  EXPECT_NE(said("- append([" + tokens + ", 1])")
                .find("put together of 33 pieces, more than 32; keep a part of it in a field [sequence-pieces]"),
            std::string::npos);
  EXPECT_EQ(said("- append(" + chain + ")"), "");
  EXPECT_NE(said("- append(" + chain + " + draft[:1])").find("of 33 pieces"), std::string::npos);
  // Names and choices do not hide them; a field does.
  std::string doubled = "- x0: draft[:1]";
  for (int i = 1; i <= 6; ++i)
    doubled += "\n      - x" + std::to_string(i) + ": x" + std::to_string(i - 1) + " + x" + std::to_string(i - 1);
  EXPECT_NE(said(doubled).find("of 64 pieces"), std::string::npos);
  EXPECT_NE(said("- append(" + chain + " if finished else " + chain + ")").find("of 64 pieces"), std::string::npos);
}
