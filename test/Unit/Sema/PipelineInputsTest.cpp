#include "PipelineBase.h"

using namespace megalith;
using namespace megalith::test;

/// The base pipeline with `line` below `request:`, which is line 11, and with these edits.
static Check with(const std::string &line, std::vector<Edit> edits = {}) {
  edits.insert(edits.begin(), {"accepted: i32 = 0\n", "accepted: i32 = 0\n  " + line + "\n"});
  return check(edits);
}

/// The messages without the source.
static std::string errorOf(const std::string &line, const std::vector<Edit> &edits = {}) {
  Check c = with(line, edits);
  EXPECT_FALSE(c.pipeline);
  return c.messages.substr(0, c.messages.find("\n"));
}

static const std::string draft = "ngram_lookup(tokens, width=min(size.width, budget - 1))";

TEST(PipelineInputs, HaveTypesRangesAndDefaults) {
  Check c = with("tenant: i32 in -1..block * 4 = input(block - 4)\n  text: token[16384] = input\n"
                 "  few: token[4] = input([block, 7])\n  none_: token[4] = input([])\n  share: f32 = input(1)\n"
                 "  eager: bool = input(true)\n  mark: token = input(block)\n  own: i32 = input\n"
                 "  rates: f32[3] = input([1, 0.5])\n  flags: bool[9] = input([true])\n  left: i32[2] = input(pair)\n"
                 "  stops: token[2] = input(pair)",
                 {{"  block: 4\n", "  block: 4\n  pair: '[3, 4]'\n"}});
  ASSERT_TRUE(c.pipeline) << c.messages;
  const auto &inputs = c.pipeline->inputs;
  ASSERT_EQ(inputs.size(), 12u);
  EXPECT_EQ(inputs[0].range, (sema::Range{-1, 15}));
  EXPECT_EQ(inputs[0].init.intValue, 0);
  EXPECT_FALSE(inputs[0].required);
  EXPECT_EQ(inputs[1].type.str(), "token[16384]");
  EXPECT_TRUE(inputs[1].required);
  ASSERT_EQ(inputs[2].items.size(), 2u);
  EXPECT_EQ(inputs[2].items[0].intValue, 4);
  EXPECT_EQ(inputs[2].items[1].intValue, 7);
  EXPECT_FALSE(inputs[3].required);
  EXPECT_TRUE(inputs[3].items.empty());
  EXPECT_EQ(inputs[4].init.floatValue, 1.0);
  EXPECT_EQ(inputs[5].init.intValue, 1);
  EXPECT_EQ(inputs[6].init.elem, sema::Elem::Token);
  EXPECT_EQ(inputs[7].range, sema::Range());
  EXPECT_EQ(inputs[8].type.str(), "f32[3]");
  ASSERT_EQ(inputs[8].items.size(), 2u);
  EXPECT_EQ(inputs[8].items[0].floatValue, 1.0);
  EXPECT_EQ(inputs[9].items[0].intValue, 1);
  EXPECT_EQ(inputs[10].items[1].intValue, 4) << "a param may be a list";
  EXPECT_EQ(inputs[11].items[1].elem, sema::Elem::Token);
  EXPECT_EQ(c.pipeline->fields.size(), 2u + 1u) << "draft, accepted, best: inputs are no fields";
}

TEST(PipelineInputs, AreReadLikeOtherNames) {
  // In a stage, a policy, a binder and a `goto`; its range bounds what is made of it.
  Check c = with("most: i32 in 0..5 = input\n  text: token[3000] = input\n  stop: bool = input(false)",
                 {{"width: tiers(ema, [[0.5, block], [0.0, 1]])", "width: min(most, 4)"},
                  {draft, "text[kv.target.len:][:most]"},
                  {"draft[i] == best[i]", "draft[i] == best[i] and (text[i] == draft[i] or len(text) < 2)"},
                  {"goto: DONE if finished else VERIFY", "goto: DONE if finished or stop else VERIFY"}});
  EXPECT_TRUE(c.pipeline) << c.messages;
}

TEST(PipelineInputs, MayBeHiddenByAPolicy) {
  EXPECT_TRUE(with("good: i32 = input").pipeline) << "an argument of `observe`";
  EXPECT_TRUE(with("ema: f32 = input").pipeline) << "a policy's state";
}

TEST(PipelineInputs, CannotBeAssigned) {
  Check c = with("tenant: i32 = input", {{"    do: []\n", "    do:\n      - tenant: 1\n"}});
  EXPECT_FALSE(c.pipeline);
  EXPECT_EQ(c.messages,
            R"(p.yaml:33:9: error: `tenant` is an input of the request and cannot be assigned [cannot-assign]
   33 |       - tenant: 1
      |         ^~~~~~
)");
}

TEST(PipelineInputs, ADefaultLiesInTheRange) {
  EXPECT_EQ(errorOf("tenant: i32 in 0..16 = input(16)"),
            "p.yaml:11:32: error: the range of input `tenant` allows 0 to 15, but its default is 16 [input-range]");
  EXPECT_EQ(errorOf("tenant: i32 in 3..3 = input"),
            "p.yaml:11:19: error: the range of input `tenant` is empty: it ends before 3 [input-range]");
}

TEST(PipelineInputs, OnlyAnI32HasARange) {
  EXPECT_EQ(errorOf("share: f32 in 0..1 = input"),
            "p.yaml:11:18: error: input `share`, which has a range, must be i32, found f32 [type-mismatch]");
  EXPECT_EQ(errorOf("text: token[4] in 0..1 = input"),
            "p.yaml:11:22: error: input `text`, which has a range, must be i32, found token[4] [type-mismatch]");
  EXPECT_EQ(errorOf("count_: i32 in 0..4 = 1"), "p.yaml:11:19: error: a range of a field is not supported yet; use `in "
                                                "a..b` for an input only [unsupported]");
}

TEST(PipelineInputs, DefaultsAreConstantsOfTheType) {
  EXPECT_EQ(errorOf("tenant: i32 = input(budget)"), "p.yaml:11:23: error: unknown name `budget` [unknown-name]");
  EXPECT_EQ(errorOf("tenant: i32 = input(0.5)"),
            "p.yaml:11:23: error: the default of input `tenant` must be i32, found f32 [type-mismatch]");
  EXPECT_EQ(errorOf("text: token[4] = input(3)"),
            "p.yaml:11:26: error: the default of input `text` must be token[4], found token [type-mismatch]");
  EXPECT_EQ(errorOf("text: token[4] = input([true])"),
            "p.yaml:11:26: error: the default of input `text` must be token[4], found bool[1] [type-mismatch]");
  EXPECT_EQ(errorOf("text: token[4] = input([-1])"),
            "p.yaml:11:26: error: the default of input `text` must be token[4], found i32[1] [type-mismatch]");
  EXPECT_EQ(errorOf("left: i32[4] = input([1] + [2])"),
            "p.yaml:11:28: error: the default of input `left` must be known at compile time [not-constant]");
  EXPECT_EQ(
      errorOf("left: i32[4, 2] = input([[1]])"),
      "p.yaml:11:27: error: a default with rows is not supported yet; use `input([])`, which has none [unsupported]");
  EXPECT_EQ(errorOf("left: i32[1024, 65] = input"),
            "p.yaml:11:9: error: the number of elements of `left` must be at most 65536, found 66560 [type-mismatch]");
  EXPECT_EQ(errorOf("left: i32[4, 2000] = input"),
            "p.yaml:11:16: error: the capacity of `left` must be from 1 to 1024, found 2000 [type-mismatch]");
  EXPECT_EQ(errorOf("text: token[2] = input([1, 2, 3])"),
            "p.yaml:11:26: error: the default of input `text` must be at most 2 elements, found 3 [type-mismatch]");
}

TEST(PipelineInputs, AreBoundedByAPool) {
  EXPECT_TRUE(with("text: token[65536] = input").pipeline);
  EXPECT_EQ(errorOf("text: token[65537] = input"),
            "p.yaml:11:15: error: the capacity of `text` must be from 1 to 65536, found 65537 [type-mismatch]");
  EXPECT_EQ(errorOf("text: token[65536]"),
            "p.yaml:11:15: error: the capacity of `text` must be from 1 to 1024, found 65536 [type-mismatch]");
}

TEST(PipelineInputs, LongOnesAreCutBeforeTheyAreKept) {
  EXPECT_EQ(errorOf("text: token[2000] = input", {{draft, "text"}}),
            "p.yaml:42:16: error: `draft` holds 4 tokens, but this value can have 2000 [draft-window]");
  EXPECT_EQ(errorOf("text: token[2000] = input", {{"target([last] + draft", "target([last] + text"}}),
            "p.yaml:43:36: error: the length of what `+` joins must be at most 1024, found 2001 [type-mismatch]");
  EXPECT_EQ(errorOf("text: token[2000] = input", {{"      - size.observe", "      - copy: text\n      - size.observe"},
                                                  {"- kv.target.keep", "- trace: len(copy)\n      - kv.target.keep"}}),
            "p.yaml:45:9: error: the length of `copy`, which another stage reads, must be at most 1024, found 2000 "
            "[type-mismatch]");
}

TEST(PipelineInputs, APartOfATableIsACopy) {
  EXPECT_EQ(
      errorOf("texts: token[64, 1024] = input",
              {{"      - size.observe", "      - some: texts[1:]\n      - trace: len(some)\n      - size.observe"}}),
      "p.yaml:45:9: error: the number of elements of `some` must be at most 4096, found 64512 [type-mismatch]");
}

TEST(PipelineInputs, StandBelowRequest) {
  Check c = check({{"ema: f32 = 0.8", "ema: f32 = input(0.8)"}});
  EXPECT_FALSE(c.pipeline);
  EXPECT_EQ(c.messages.substr(0, c.messages.find('\n')),
            "p.yaml:23:24: error: an input in a policy's state is not supported yet; use an input below `request:` "
            "[unsupported]");
  c = check({{"  block: 4", "  block: 4\n  input: 1"}});
  EXPECT_FALSE(c.pipeline);
  EXPECT_EQ(c.messages.substr(0, c.messages.find('\n')),
            "p.yaml:7:3: error: `input` is a word of the language and cannot name a param [reserved-name]");
}

TEST(PipelineInputs, ATypoIsSuggested) {
  Check c = with("tenant: i32 = input",
                 {{"    goto: DONE if finished else PREFILL", "    goto: DONE if tennant > 1 else PREFILL"}});
  EXPECT_FALSE(c.pipeline);
  EXPECT_NE(c.messages.find("unknown name `tennant` [unknown-name]"), std::string::npos) << c.messages;
  EXPECT_NE(c.messages.find("did you mean `tenant`?"), std::string::npos) << c.messages;
}
