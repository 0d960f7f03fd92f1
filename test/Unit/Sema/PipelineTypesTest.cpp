#include "PipelineBase.h"

using namespace megalith;
using namespace megalith::test;

TEST(PipelineTypes, UnknownFieldType) {
  Check c = check({{"accepted: i32 = 0", "accepted: int = 0"}});
  EXPECT_FALSE(c.pipeline);
  EXPECT_EQ(c.messages,
            R"(p.yaml:10:13: error: `int` cannot be the type of a field; use i32, f32, bool or token [unknown-type]
   10 |   accepted: int = 0
      |             ^~~
)");
  c = check({{"accepted: i32 = 0", "accepted: i32 = 0\n  f: rows[3]"}});
  EXPECT_EQ(
      c.messages,
      R"(p.yaml:11:6: error: a field of rows of a result is not supported yet; use what reducers read of them, in a field of `token[n]` or `f32[n]` [unsupported]
   11 |   f: rows[3]
      |      ^~~~
)");
}

TEST(PipelineTypes, FieldInitOfWrongType) {
  Check c = check({{"accepted: i32 = 0", "accepted: i32 = 0.5"}});
  EXPECT_FALSE(c.pipeline);
  EXPECT_EQ(c.messages,
            R"(p.yaml:10:19: error: the initial value of `accepted` must be i32, found f32 [type-mismatch]
   10 |   accepted: i32 = 0.5
      |                   ^~~
)");
}

TEST(PipelineTypes, SequenceCapacity) {
  Check c = check({{"token[block]", "token[0]"}});
  EXPECT_FALSE(c.pipeline);
  EXPECT_EQ(c.messages,
            R"(p.yaml:9:16: error: the capacity of `draft` must be from 1 to 1024, found 0 [type-mismatch]
    9 |   draft: token[0]
      |                ^
)");
}

TEST(PipelineTypes, AssignWrongType) {
  Check c = check({{"accepted: prefix_while(i in 0..len(draft), draft[i] == best[i])", "accepted: ratio(1, 2)"}});
  EXPECT_FALSE(c.pipeline);
  EXPECT_EQ(c.messages,
            R"(p.yaml:43:19: error: the value of `accepted` must be i32, found f32 [type-mismatch]
   43 |       - accepted: ratio(1, 2)
      |                   ^~~~~
note: nothing is converted silently: write `i32(ratio(1, 2))`, which rounds towards zero
)");
}

TEST(PipelineTypes, FloatIntoInteger) {
  Check c = check({{"len(tokens) - 1", "len(tokens) - 0.5"}});
  EXPECT_FALSE(c.pipeline);
  EXPECT_EQ(c.messages,
            R"(p.yaml:50:37: error: `-` needs two i32 or two f32, found i32 and f32 [operand-types]
   50 |       - kv.target.keep: len(tokens) - 0.5
      |                                     ^
note: nothing is converted silently: write `f32(len(tokens))`
)");
}

TEST(PipelineTypes, ParamIsNotWidened) {
  Check c = check({{"rate * ratio", "block * ratio"}});
  EXPECT_FALSE(c.pipeline);
  EXPECT_EQ(c.messages,
            R"(p.yaml:25:20: error: `*` needs two i32 or two f32, found i32 and f32 [operand-types]
   25 |       - ema: block * ratio(good, ran) + (1 - rate) * ema
      |                    ^
note: nothing is converted silently: write `f32(block)`
)");
}

TEST(PipelineTypes, CompareTokenWithSequence) {
  Check c = check({{"draft[i] == best[i]", "draft[i] == best"}});
  EXPECT_FALSE(c.pipeline);
  EXPECT_EQ(
      c.messages,
      R"(p.yaml:43:61: error: `==` needs two values of the same type, no tables, found token and token[5] [operand-types]
   43 |       - accepted: prefix_while(i in 0..len(draft), draft[i] == best)
      |                                                             ^~
note: an element of it is `best[0]`
)");
}

TEST(PipelineTypes, IntegerLiteralTooLarge) {
  Check c = check({{"len(tokens) - 1", "len(tokens) - 3000000000"}});
  EXPECT_FALSE(c.pipeline);
  EXPECT_EQ(c.messages, R"(p.yaml:50:39: error: 3000000000 does not fit into an i32 [int-range]
   50 |       - kv.target.keep: len(tokens) - 3000000000
      |                                       ^~~~~~~~~~
)");
}

TEST(PipelineTypes, UnknownFunction) {
  Check c = check({{"ngram_lookup(", "ngram_lokup("}});
  EXPECT_FALSE(c.pipeline);
  EXPECT_EQ(c.messages, R"(p.yaml:41:16: error: unknown function `ngram_lokup` [unknown-function]
   41 |       - draft: ngram_lokup(tokens, width=min(size.width, budget - 1))
      |                ^~~~~~~~~~~
note: did you mean `ngram_lookup`?
)");
}

TEST(PipelineTypes, TooFewArguments) {
  Check c = check({{"ratio(good, ran)", "ratio(good)"}});
  EXPECT_FALSE(c.pipeline);
  EXPECT_EQ(c.messages, R"(p.yaml:25:21: error: `ratio` takes 2 arguments, found 1 [argument-count]
   25 |       - ema: rate * ratio(good) + (1 - rate) * ema
      |                     ^~~~~
)");
}

TEST(PipelineTypes, TooManyValuesToObserve) {
  Check c = check({{"size.observe: accepted, len(draft)", "size.observe: accepted"}});
  EXPECT_FALSE(c.pipeline);
  EXPECT_EQ(c.messages,
            R"(p.yaml:44:9: error: `size.observe` takes 2 values, found 1 [argument-count]
   44 |       - size.observe: accepted
      |         ^~~~~~~~~~~~
)");
}

TEST(PipelineTypes, UnknownArgument) {
  Check c = check({{"width=min", "widht=min"}});
  EXPECT_FALSE(c.pipeline);
  EXPECT_EQ(c.messages,
            R"(p.yaml:41:37: error: `ngram_lookup` has no argument `widht` [unknown-argument]
   41 |       - draft: ngram_lookup(tokens, widht=min(size.width, budget - 1))
      |                                     ^~~~~
note: did you mean `width`?
)");
}

TEST(PipelineTypes, UnknownCallArgument) {
  Check c = check({{"chunk=8", "chunks=8"}});
  EXPECT_FALSE(c.pipeline);
  EXPECT_EQ(c.messages, R"(p.yaml:36:42: error: `target` has no argument `chunks` [unknown-argument]
   36 |       - target(tokens[kv.target.len:-1], chunks=8, keep=none)
      |                                          ^~~~~~
note: did you mean `chunk`?
)");
}

TEST(PipelineTypes, TiersNeedPairs) {
  Check c = check({{"[[0.5, block], [0.0, 1]]", "[0.5, block]"}});
  EXPECT_FALSE(c.pipeline);
  EXPECT_EQ(
      c.messages,
      R"(p.yaml:27:25: error: argument `table` of `tiers` must be a list of pairs `[[threshold, value], ...]` [bad-argument]
   27 |       width: tiers(ema, [0.5, block])
      |                         ^
)");
}

TEST(PipelineTypes, RangeFromOne) {
  Check c = check({{"0..len(draft)", "1..len(draft)"}});
  EXPECT_TRUE(c.pipeline) << c.messages;
}

TEST(PipelineTypes, ExpressionWithoutEffect) {
  Check c = check({{"- append(draft", "- len(tokens)\n      - append(draft"}});
  EXPECT_FALSE(c.pipeline);
  EXPECT_EQ(c.messages,
            R"(p.yaml:49:9: error: this expression has no effect; assign its value or remove it [no-effect]
   49 |       - len(tokens)
      |         ^~~
)");
}

TEST(PipelineTypes, AppendInCondition) {
  Check c = check({{"goto: DONE if finished else VERIFY", "goto: DONE if append([last]) == 0 else VERIFY"}});
  EXPECT_FALSE(c.pipeline);
  EXPECT_EQ(c.messages, R"(p.yaml:51:19: error: `append` cannot stand in `goto` [effect-not-allowed]
   51 |     goto: DONE if append([last]) == 0 else VERIFY
      |                   ^~~~~~
)");
}

TEST(PipelineTypes, CallInIfOfALoopInALoop) {
  Check c = check(
      {{"- size.observe", "- for: a in 0..2\n        do:\n          - for: b in 0..2\n            do:\n              "
                          "- if: finished\n                do:\n                  - target([last], "
                          "keep=none)\n      - size.observe"}});
  EXPECT_TRUE(c.pipeline) << c.messages;
}

TEST(PipelineTypes, CallInPrefixWhile) {
  Check c = check({{"draft[i] == best[i]", "argmax(target([last]))[0] == best[i]"}});
  EXPECT_FALSE(c.pipeline);
  EXPECT_EQ(c.messages,
            R"(p.yaml:43:59: error: a call of `target` cannot stand in `prefix_while` [effect-not-allowed]
   43 |       - accepted: prefix_while(i in 0..len(draft), argmax(target([last]))[0] == best[i])
      |                                                           ^~~~~~
note: call it above, for all at once: `best: argmax(target(s, kv=draft))`, and read `best[i]` here
)");
}

TEST(PipelineTypes, CallWithoutSlot) {
  Check c = check({{"do: []", "do:\n      - target([last], keep=none)"}});
  EXPECT_FALSE(c.pipeline);
  EXPECT_EQ(
      c.messages,
      R"(p.yaml:32:9: error: a call of `target` needs a slot, but state `QUEUED` has none; do it in a state with `slot: true` [needs-slot]
   32 |       - target([last], keep=none)
      |         ^~~~~~
)");
}

TEST(PipelineTypes, KvLenWithoutSlot) {
  Check c = check({{"goto: DONE if finished else PREFILL", "goto: DONE if kv.target.len > 0 else PREFILL"}});
  EXPECT_FALSE(c.pipeline);
  EXPECT_EQ(
      c.messages,
      R"(p.yaml:32:19: error: `kv.target.len` needs a slot, but state `QUEUED` has none; do it in a state with `slot: true` [needs-slot]
   32 |     goto: DONE if kv.target.len > 0 else PREFILL
      |                   ^~~~~~~~~~~~~
)");
}

TEST(PipelineTypes, PreemptIsUnsupported) {
  Check c = check({{"on_full: fail", "on_full: preempt"}});
  EXPECT_FALSE(c.pipeline);
  EXPECT_EQ(c.messages,
            R"(p.yaml:20:66: error: `on_full: preempt` is not supported yet; use `fail` or `wait` [unsupported]
   20 |   target: {pages: 64, page_tokens: 16, watermark: 0.85, on_full: preempt}
      |                                                                  ^~~~~~~
)");
}

TEST(PipelineTypes, PolicyPerPool) {
  Check c = check({{"    state: {ema", "    per: pool\n    state: {ema"}});
  EXPECT_FALSE(c.pipeline);
  EXPECT_EQ(c.messages,
            R"(p.yaml:23:10: error: `per: pool` is not supported yet; use `per: request` [unsupported]
   23 |     per: pool
      |          ^~~~
note: a policy has one state for each request. What differs from group to group is an input, which each request brings: `group: i32 in 0..4 = input(0)`, and `level[group]` of a param that is a list
)");
}

TEST(PipelineTypes, ConcatUnbounded) {
  Check c = check({{"append(draft[:accepted] +", "append(tokens +"}});
  EXPECT_FALSE(c.pipeline);
  EXPECT_EQ(
      c.messages,
      R"(p.yaml:49:16: error: the length of this operand of `+` has no upper bound; cut it with a slice such as `[:8]` [unbounded-sequence]
   49 |       - append(tokens + [best[accepted]])
      |                ^~~~~~
)");
}

TEST(PipelineTypes, WhatIsTracedHasItsTextAsName) {
  Check c = check({{"- kv.target.keep", "- trace: (budget) -3\n      - trace: budget - 3\n      - kv.target.keep"}});
  ASSERT_TRUE(c.pipeline) << c.messages;
  ASSERT_EQ(c.pipeline->gauges.size(), 1u);
  EXPECT_EQ(c.pipeline->gauges[0].name, "budget - 3");
}

TEST(PipelineTypes, OneNameOfTwoTypesCannotBeTraced) {
  Check c = check({{"- size.observe", "- x: 1\n      - trace: x\n      - size.observe"},
                   {"- kv.target.keep", "- x: 0.5\n      - trace: x\n      - kv.target.keep"}});
  EXPECT_FALSE(c.pipeline);
  EXPECT_EQ(c.messages, R"(p.yaml:53:16: error: what is traced as `x` must be i32, found f32 [type-mismatch]
   53 |       - trace: x
      |                ^
p.yaml:45:9: note: it is traced here, too
   45 |       - trace: x
      |         ^~~~~
)");
}

TEST(PipelineTypes, TraceNeedsASlot) {
  Check c = check({{"do: []", "do:\n      - trace: budget"}});
  EXPECT_FALSE(c.pipeline);
  EXPECT_EQ(
      c.messages,
      R"(p.yaml:32:9: error: `trace` needs a slot, but state `QUEUED` has none; do it in a state with `slot: true` [needs-slot]
   32 |       - trace: budget
      |         ^~~~~
)");
}

TEST(PipelineTypes, MapOfAConstantIsOfTokens) {
  EXPECT_EQ(check({{"ngram_lookup(tokens, width=min(size.width, budget - 1))", "map(i in 0..4, block)"}}).messages, "");
  Check c = check({{"ngram_lookup(tokens, width=min(size.width, budget - 1))", "map(i in 0..4, i)"}});
  EXPECT_FALSE(c.pipeline);
  EXPECT_EQ(c.messages, R"(p.yaml:41:16: error: the value of `draft` must be token[4], found i32[4] [type-mismatch]
   41 |       - draft: map(i in 0..4, i)
      |                ^~~
)");
}
