// What a call is made of: sizes by formulas, items, tickets, and what its buffers cannot be.
#include "runtime/CallManifest.h"
#include <gtest/gtest.h>

using namespace megalith::runtime;

namespace {

TEST(Polish, Evaluates) {
  const std::vector<std::string> names = {"b", "g"};
  const int64_t dims[] = {6, 4};
  const auto of = [&](const char *text) { return Polish::parse(text, names)->of(dims); };
  EXPECT_EQ(of("b g 1 + *"), 30);
  EXPECT_EQ(of("g b -"), -2);
  EXPECT_EQ(of("b 4 /"), 1);
  EXPECT_EQ(of("b 4 %"), 2);
  EXPECT_EQ(of("b 0 /"), 0); // as stages divide
  EXPECT_EQ(of("b 0 %"), 0);
  EXPECT_EQ(of("b g min"), 4);
  EXPECT_EQ(of("b g max"), 6);
  EXPECT_EQ(of("2147483647 b +"), std::nullopt);
  EXPECT_EQ(Polish::parse("g", names)->dim(), 1);
  EXPECT_EQ(Polish::parse("g 0 +", names)->dim(), -1);
  for (const char *wrong : {"", "+", "b +", "b g", "c", "b 1.5 +", "b g ^"})
    EXPECT_FALSE(Polish::parse(wrong, names)) << wrong;
}

constexpr const char *text = R"({"call": "p", "abi": 1, "sms": 4, "params_bytes": 200, "sort_words": 0,
  "lane_costs": [600, 45, 1, 2048], "warp_costs": [650, 120, 128, 64],
  "dims": [{"name": "b", "least": 0, "most": 65536}, {"name": "w", "least": 1, "most": 65536}],
  "buffers": [{"name": "n", "dtype": "i64", "written": false, "shape": ["b"]},
              {"name": "x", "dtype": "f16", "written": false, "shape": ["b", "w"]},
              {"name": "at", "dtype": "i32", "written": true, "shape": ["b 1 +"]},
              {"name": "y", "dtype": "f16", "written": true, "shape": ["b", "w"]}],
  "stages": [
    {"name": "first", "once": false, "mapping": "auto", "copies": 0, "low": "0", "high": "b", "span": "w",
     "scan": "", "scan_bytes": 0, "copy_bytes": ""},
    {"name": "scan", "once": true, "mapping": "auto", "copies": 0, "low": "", "high": "", "span": "",
     "scan": "b 1 +", "scan_bytes": 4, "copy_bytes": ""},
    {"name": "move", "once": false, "mapping": "auto", "copies": 1, "low": "0", "high": "b", "span": "",
     "scan": "", "scan_bytes": 0, "copy_bytes": "2 w *"}]})";

struct Image : testing::Test {
  Image() {
    auto parsed = CallManifest::parse(text);
    EXPECT_TRUE(parsed) << parsed.error.message;
    manifest = std::move(*parsed);
    held.emplace(manifest, 16);
  }
  CallProblem prepare(int64_t b, int64_t w, bool perStage = false) {
    n[0] = x[0] = y[0] = b;
    x[1] = y[1] = w;
    at[0] = b + 1;
    const CallBuffer buffers[] = {{memory, n}, {memory + 4096, x}, {memory + 8192, at}, {memory + 12288, y}};
    return held->prepare(buffers, perStage);
  }
  const megalith::abi::StageWork &work(int stage) {
    const auto *params = static_cast<char *>(held->paramsOf(held->launches()[0], nullptr, nullptr, 1));
    return reinterpret_cast<const megalith::abi::StageWork *>(params + sizeof(megalith::abi::CallHeader))[stage];
  }

  CallManifest manifest;
  std::optional<CallImage> held;
  alignas(16) char memory[20480];
  int64_t n[1], x[2], at[1], y[2];
};

TEST_F(Image, DealsTheStages) {
  ASSERT_FALSE(prepare(9, 100));
  ASSERT_EQ(held->launches().size(), 1u);
  EXPECT_EQ(work(0).taken, int(megalith::abi::Taken::Warp));
  EXPECT_EQ(work(0).tickets, 2); // eight warps each
  EXPECT_EQ(work(1).taken, int(megalith::abi::Taken::Each));
  EXPECT_EQ(work(2).taken, int(megalith::abi::Taken::Bytes));
  EXPECT_EQ(work(2).begin, 2);
  EXPECT_EQ(work(2).need, 2);
  EXPECT_EQ(held->launches()[0].ctas, unsigned(2 + work(2).tickets));
  EXPECT_EQ(held->sharedBytes(), unsigned(megalith::abi::kCallSharedBytes + 40));
  ASSERT_FALSE(prepare(9, 100, true));
  EXPECT_EQ(held->launches().size(), 3u);
  EXPECT_EQ(work(1).taken, int(megalith::abi::Taken::Once));
}

TEST_F(Image, TakesWhatCostsLess) {
  static char large[65536 * 24];
  n[0] = x[0] = y[0] = 65536;
  x[1] = y[1] = 1;
  at[0] = 65537;
  const CallBuffer buffers[] = {{large, n}, {large + 65536 * 8, x}, {large + 65536 * 10, at}, {large + 65536 * 16, y}};
  ASSERT_FALSE(held->prepare(buffers, false));
  EXPECT_EQ(work(0).taken, int(megalith::abi::Taken::Lane)); // many items of one number
  EXPECT_EQ(work(1).taken, int(megalith::abi::Taken::Once)); // too many for each CTA
  EXPECT_EQ(work(1).tickets, 0);                             // the last CTA of the first stage goes on
  EXPECT_EQ(work(2).need, work(0).tickets + 1);
}

TEST_F(Image, OfNothing) {
  ASSERT_FALSE(prepare(0, 100));
  ASSERT_EQ(held->launches().size(), 1u); // the scan has one number
  EXPECT_EQ(held->launches()[0].ctas, 1u);
  EXPECT_EQ(work(1).taken, int(megalith::abi::Taken::Once));
  EXPECT_EQ(work(1).tickets, 1);
}

TEST_F(Image, SeesWhatCannotBe) {
  const auto why = [&](CallBuffer a, CallBuffer b, CallBuffer c, CallBuffer d) {
    const CallBuffer buffers[] = {a, b, c, d};
    return held->prepare(buffers, false);
  };
  ASSERT_FALSE(prepare(9, 100));
  const CallBuffer first = {memory, n}, second = {memory + 4096, x}, third = {memory + 8192, at},
                   fourth = {memory + 12288, y};
  EXPECT_FALSE(why(first, second, third, fourth));
  EXPECT_EQ(why(first, second, third, {nullptr, y}).kind, CallProblem::Missing);
  EXPECT_EQ(why({memory + 4, n}, second, third, fourth).kind, CallProblem::Alignment);
  const CallProblem overlap = why(first, second, third, {memory + 4096 + 1798, y});
  EXPECT_EQ(overlap.kind, CallProblem::Overlap);
  EXPECT_EQ(overlap.which, 3u);
  EXPECT_EQ(overlap.other, 1u);
  EXPECT_FALSE(why(first, second, third, {memory + 4096 + 1800, y})); // right behind it
  at[0] = 9;
  EXPECT_EQ(why(first, second, third, fourth).kind, CallProblem::Shapes);
  EXPECT_EQ(prepare(70000, 1).kind, CallProblem::Shapes); // beyond the dim
  EXPECT_EQ(prepare(1, 0).kind, CallProblem::Shapes);
}

TEST(CallManifest, IsOfThisVersion) {
  std::string other = text;
  other.replace(other.find("\"abi\": 1"), 8, "\"abi\": 9");
  const auto parsed = CallManifest::parse(other);
  ASSERT_FALSE(parsed);
  EXPECT_EQ(parsed.error.message,
            "the manifest has version 9 of calls, this runtime has 1; compile the pipeline again");
  EXPECT_FALSE(CallManifest::parse("{}"));
}

} // namespace
