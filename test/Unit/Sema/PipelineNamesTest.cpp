#include "PipelineBase.h"

using namespace megalith;
using namespace megalith::test;

TEST(PipelineNames, UnknownParamInSet) {
  Check c = check({}, {{"bloc", "2"}});
  EXPECT_FALSE(c.pipeline);
  EXPECT_EQ(c.messages, R"(error: `--set bloc`: the pipeline has no such param [unknown-param]
note: did you mean `block`?
)");
}

TEST(PipelineNames, SetValueOfWrongType) {
  Check c = check({}, {{"block", "2.5"}});
  EXPECT_FALSE(c.pipeline);
  EXPECT_EQ(c.messages,
            R"(error: `--set block=2.5`: the value must be an integer (i32) [bad-set-value]
p.yaml:6:3: note: the param's default has that type
    6 |   block: 4
      |   ^~~~~
)");
}

TEST(PipelineNames, SetBoolOfWrongType) {
  Check c = check({{"rate: 0.5", "rate: 0.5\n  flag: true"}}, {{"flag", "1"}});
  EXPECT_FALSE(c.pipeline);
  EXPECT_EQ(c.messages,
            R"(error: `--set flag=1`: the value must be `true` or `false` [bad-set-value]
p.yaml:8:3: note: the param's default has that type
    8 |   flag: true
      |   ^~~~
)");
}

TEST(PipelineNames, SetFloatOfWrongType) {
  Check c = check({}, {{"rate", "fast"}});
  EXPECT_FALSE(c.pipeline);
  EXPECT_EQ(c.messages,
            R"(error: `--set rate=fast`: the value must be a number (f32) [bad-set-value]
p.yaml:7:3: note: the param's default has that type
    7 |   rate: 0.5
      |   ^~~~
)");
}

TEST(PipelineNames, RowsPerPassTooLarge) {
  Check c = check({{"rows_per_pass: 16", "rows_per_pass: 2049"}});
  EXPECT_FALSE(c.pipeline);
  EXPECT_EQ(c.messages,
            R"(p.yaml:5:3: error: param `rows_per_pass` is 2049, but must be from 1 to 2048 [param-range]
    5 |   rows_per_pass: 2049
      |   ^~~~~~~~~~~~~
)");
}

TEST(PipelineNames, SlotsOutOfRangeBySet) {
  Check c = check({}, {{"slots", "0"}});
  EXPECT_FALSE(c.pipeline);
  EXPECT_EQ(c.messages,
            R"(p.yaml:1:11: error: param `slots` is 0, but must be from 1 to 1024 [param-range]
    1 | pipeline: base
      |           ^~~~
)");
}

TEST(PipelineNames, ParamIsNotConstant) {
  Check c = check({{"block: 4", "block: min(4, sum(i in 0..2, i))"}});
  EXPECT_FALSE(c.pipeline);
  EXPECT_EQ(c.messages,
            R"(p.yaml:6:17: error: `sum` must be known at compile time [not-constant]
    6 |   block: min(4, sum(i in 0..2, i))
      |                 ^~~
)");
}

TEST(PipelineNames, SeatedIsKnownInStagesAndPoliciesAndNoConstant) {
  EXPECT_TRUE(check({{"goto: DONE if finished else PREFILL", "goto: DONE if seated > 3 else PREFILL"}}).pipeline);
  EXPECT_TRUE(check({{"[[0.5, block], [0.0, 1]])", "[[0.5, block], [0.0, 1]]) if seated < 4 else 0"}}).pipeline);
  Check c = check({{"block: 4", "block: seated"}});
  EXPECT_FALSE(c.pipeline);
  EXPECT_EQ(c.messages.substr(0, c.messages.find('\n')), "p.yaml:6:10: error: unknown name `seated` [unknown-name]");
}

TEST(PipelineNames, ParamTooLarge) {
  Check c = check({{"block: 4", "block: 65536 * 65536"}});
  EXPECT_FALSE(c.pipeline);
  EXPECT_EQ(c.messages, R"(p.yaml:6:16: error: 4294967296 does not fit into an i32 [int-range]
    6 |   block: 65536 * 65536
      |                ^
)");
}

TEST(PipelineNames, LaterParamIsUnknown) {
  Check c = check({{"block: 4", "block: rows_per_pas / 4"}});
  EXPECT_FALSE(c.pipeline);
  EXPECT_EQ(c.messages, R"(p.yaml:6:10: error: unknown name `rows_per_pas` [unknown-name]
    6 |   block: rows_per_pas / 4
      |          ^~~~~~~~~~~~
note: did you mean `rows_per_pass`?
)");
}

TEST(PipelineNames, MissingConfigKey) {
  Check c = check({{"block: 4", "block: 4\n  end: target.config.eos_token"}}, {}, {modelFacts("target", 100)});
  EXPECT_FALSE(c.pipeline);
  EXPECT_EQ(
      c.messages,
      R"(p.yaml:7:8: error: the checkpoint of `target` has no number `eos_token` in its config.json [unknown-config-key]
    7 |   end: target.config.eos_token
      |        ^~~~~~~~~~~~~~~~~~~~~~~
)");
}

TEST(PipelineNames, FieldNamedLikeParam) {
  Check c = check({{"accepted: i32 = 0", "accepted: i32 = 0\n  rate: f32"}});
  EXPECT_FALSE(c.pipeline);
  EXPECT_EQ(c.messages, R"(p.yaml:11:3: error: `rate` is already a param [duplicate-name]
   11 |   rate: f32
      |   ^~~~
)");
}

TEST(PipelineNames, FieldNamedLikeBuiltin) {
  Check c = check({{"accepted: i32 = 0", "accepted: i32 = 0\n  tokens: i32"}});
  EXPECT_FALSE(c.pipeline);
  EXPECT_EQ(c.messages,
            R"(p.yaml:11:3: error: `tokens` is a word of the language and cannot name a field [reserved-name]
   11 |   tokens: i32
      |   ^~~~~~
)");
}

TEST(PipelineNames, UnknownName) {
  Check c = check({{"len(tokens) - 1", "len(token) - 1"}});
  EXPECT_FALSE(c.pipeline);
  EXPECT_EQ(c.messages, R"(p.yaml:50:29: error: unknown name `token` [unknown-name]
   50 |       - kv.target.keep: len(token) - 1
      |                             ^~~~~
note: did you mean `tokens`?
)");
}

TEST(PipelineNames, UnknownPoolName) {
  Check c = check({{"kv.target.lag", "kv.target.lags"}});
  EXPECT_FALSE(c.pipeline);
  EXPECT_EQ(c.messages, R"(p.yaml:37:21: error: unknown name `kv.target.lags` [unknown-name]
   37 |     goto: VERIFY if kv.target.lags == 1 else PREFILL
      |                     ^~~~~~~~~~~~~~
note: did you mean `kv.target.lag`?
)");
}

TEST(PipelineNames, UnknownPolicyOutput) {
  Check c = check({{"size.width, budget", "size.widht, budget"}});
  EXPECT_FALSE(c.pipeline);
  EXPECT_EQ(c.messages, R"(p.yaml:41:47: error: unknown name `size.widht` [unknown-name]
   41 |       - draft: ngram_lookup(tokens, width=min(size.widht, budget - 1))
      |                                               ^~~~~~~~~~
note: did you mean `size.width`?
)");
}

TEST(PipelineNames, UnknownCommand) {
  Check c = check({{"size.observe: accepted", "sise.observe: accepted"}});
  EXPECT_FALSE(c.pipeline);
  EXPECT_EQ(c.messages, R"(p.yaml:44:9: error: unknown name `sise.observe` [unknown-name]
   44 |       - sise.observe: accepted, len(draft)
      |         ^~~~~~~~~~~~
note: did you mean `size.observe`?
)");
}

TEST(PipelineNames, AssignParam) {
  Check c = check({{"- best: argmax", "- block: 3\n      - best: argmax"}});
  EXPECT_FALSE(c.pipeline);
  EXPECT_EQ(c.messages,
            R"(p.yaml:42:9: error: `block` is a param and cannot be assigned [cannot-assign]
   42 |       - block: 3
      |         ^~~~~
)");
}

TEST(PipelineNames, AssignPredefined) {
  Check c = check({{"- best: argmax", "- budget: 3\n      - best: argmax"}});
  EXPECT_FALSE(c.pipeline);
  EXPECT_EQ(c.messages,
            R"(p.yaml:42:9: error: `budget` is a predefined name and cannot be assigned [cannot-assign]
   42 |       - budget: 3
      |         ^~~~~~
)");
}

TEST(PipelineNames, LocalNamedLikeFunction) {
  Check c = check({{"- best: argmax", "- len: 3\n      - best: argmax"}});
  EXPECT_FALSE(c.pipeline);
  EXPECT_EQ(c.messages,
            R"(p.yaml:42:9: error: `len` is a word of the language and cannot name a local [reserved-name]
   42 |       - len: 3
      |         ^~~
)");
}

TEST(PipelineNames, MistypedFieldIsUnusedLocal) {
  Check c = check({{"- accepted: prefix", "- acepted: prefix"}, {"accepted, len(draft)", "0, len(draft)"}});
  EXPECT_FALSE(c.pipeline);
  EXPECT_EQ(c.messages,
            R"(p.yaml:43:9: error: `acepted` is assigned but never read, and no field has that name [unused-local]
   43 |       - acepted: prefix_while(i in 0..len(draft), draft[i] == best[i])
      |         ^~~~~~~
note: did you mean `accepted`?
)");
}

TEST(PipelineNames, ReadBeforeAnyPathSetsIt) {
  Check c = check({{"goto: DONE if finished else PREFILL", "goto: DONE if len(best) > 0 else PREFILL"}});
  EXPECT_FALSE(c.pipeline);
  EXPECT_EQ(c.messages,
            R"(p.yaml:32:23: error: `best` is read here, but no path to state `QUEUED` sets it [never-set-before]
   32 |     goto: DONE if len(best) > 0 else PREFILL
      |                       ^~~~
p.yaml:38:3: note: it is set by this stage
   38 |   verify:
      |   ^~~~~~
)");
}

TEST(PipelineNames, TypesThatWaitForEachOther) {
  Check c = check({{"- append(", "- a: b\n      - append("}, {"- best: argmax", "- b: a\n      - best: argmax"}});
  EXPECT_FALSE(c.pipeline);
  EXPECT_EQ(c.messages,
            R"(p.yaml:42:12: error: the type of `a` cannot be inferred; declare it below `request:` [cannot-infer]
   42 |       - b: a
      |            ^
)");
}

TEST(PipelineNames, LocalChangedInIf) {
  Check c = check({{"- size.observe", "- n: 1\n      - if: finished\n        do:\n          - n: "
                                      "2\n      - accepted: n\n      - size.observe"}});
  EXPECT_TRUE(c.pipeline) << c.messages;
}

TEST(PipelineNames, LocalOfAPolicyChangedInIf) {
  Check c = check({{"- ema: rate", "- n: 1\n      - if: seated > 2\n        do:\n          - n: 2\n      - "
                                   "ema: ratio(n, 1) * rate"}});
  EXPECT_FALSE(c.pipeline);
  EXPECT_NE(c.messages.find("local `n` of a policy cannot change inside `if`; make it state, or use `a if c else b` "
                            "[local-in-if]"),
            std::string::npos)
      << c.messages;
}
