#include "PipelineBase.h"

using namespace megalith;
using namespace megalith::test;

static int64_t intParam(const Check &c, const std::string &name) {
  for (const CheckedParam &p : c.pipeline->params)
    if (p.name == name)
      return p.value.intValue;
  ADD_FAILURE() << "no param " << name;
  return -1;
}

static const CheckedField *field(const Check &c, const std::string &name) {
  for (const CheckedField &f : c.pipeline->fields)
    if (f.name == name)
      return &f;
  return nullptr;
}

TEST(Pipeline, BaseHasNoMessages) {
  Check c = check({});
  EXPECT_TRUE(c.pipeline);
  EXPECT_EQ(c.messages, "");
}

TEST(Pipeline, DerivedParamsFollowSet) {
  Check c = check({{"block: 4", "block: min(rows_per_pass / 2, 7) - 1"}}, {{"rows_per_pass", "12"}});
  ASSERT_TRUE(c.pipeline) << c.messages;
  EXPECT_EQ(intParam(c, "block"), 5);
  EXPECT_EQ(intParam(c, "rows_per_pass"), 12);
}

TEST(Pipeline, ReservedParamsHaveDefaults) {
  Check c = check({{"  rows_per_pass: 16\n", ""}}, {{"slots", "3"}});
  ASSERT_TRUE(c.pipeline) << c.messages;
  EXPECT_EQ(intParam(c, "rows_per_pass"), 64);
  EXPECT_EQ(intParam(c, "slots"), 3);
}

TEST(Pipeline, RowsBesideAreRowsOfAPass) {
  const Edit edit = {"  block: 4\n", "  rows_beside: rows_per_pass / 2\n  block: 4\n"};
  EXPECT_EQ(intParam(check({}), "rows_beside"), 16);
  EXPECT_EQ(intParam(check({}, {{"rows_per_pass", "9"}}), "rows_beside"), 9);
  EXPECT_EQ(intParam(check({}, {{"rows_beside", "3"}}), "rows_beside"), 3);
  EXPECT_EQ(intParam(check({edit}), "rows_beside"), 8);
  EXPECT_EQ(intParam(check({edit}, {{"rows_beside", "16"}}), "rows_beside"), 16);
  EXPECT_EQ(intParam(check({{"  rows_per_pass: 16\n", "  rows_beside: 64\n"}}), "rows_beside"), 64);
  for (const char *wrong : {"0", "17"}) {
    Check c = check({{"  block: 4\n", std::string("  rows_beside: ") + wrong + "\n  block: 4\n"}});
    EXPECT_FALSE(c.pipeline);
    EXPECT_EQ(c.messages, std::string("p.yaml:6:3: error: param `rows_beside` is ") + wrong +
                              ", but must be from 1 to 16, which is `rows_per_pass` [param-range]\n"
                              "    6 |   rows_beside: " +
                              wrong + "\n      |   ^~~~~~~~~~~\n");
  }
  Check c = check({{"  block: 4\n", "  rows_beside: seated\n  block: 4\n"}});
  EXPECT_EQ(c.messages.substr(0, c.messages.find('\n')), "p.yaml:6:16: error: unknown name `seated` [unknown-name]");
  c = check({{"  block: 4\n", "  rows_beside: 0.5\n  block: 4\n"}});
  EXPECT_EQ(c.messages.substr(0, c.messages.find('\n')),
            "p.yaml:6:3: error: param `rows_beside` must be i32, found f32 [type-mismatch]");
  // What is wrong is told once.
  for (const char *rows : {"0", "4000", "0.5", "nothing"})
    EXPECT_EQ(check({{"rows_per_pass: 16", std::string("rows_per_pass: ") + rows + "\n  rows_beside: 100"}})
                  .messages.find("param `rows_beside`"),
              std::string::npos)
        << rows;
}

TEST(Pipeline, FloatParamsAreRoundedToF32AndTakeIntegersFromSet) {
  Check c = check({}, {{"rate", "1"}});
  ASSERT_TRUE(c.pipeline) << c.messages;
  EXPECT_EQ(c.pipeline->params[2].value.elem, sema::Elem::F32);
  EXPECT_EQ(c.pipeline->params[2].value.floatValue, 1.0);
  EXPECT_EQ(c.pipeline->policies[0].state[0].init.floatValue, static_cast<float>(0.8));
}

TEST(Pipeline, ConfigValues) {
  Check c = check({{"rate: 0.5", "rate: target.config.rope.factor\n  end: target.config.eos_token_id"}}, {},
                  {modelFacts("target", 100)});
  ASSERT_TRUE(c.pipeline) << c.messages;
  EXPECT_EQ(intParam(c, "end"), 2);
  EXPECT_EQ(c.pipeline->params[2].value.floatValue, 0.5);
}

TEST(Pipeline, NameAssignedInOneStageAndReadInAnotherIsAField) {
  Check c = check({});
  ASSERT_TRUE(c.pipeline) << c.messages;
  const CheckedField *best = field(c, "best");
  ASSERT_TRUE(best);
  EXPECT_TRUE(best->inferred);
  EXPECT_EQ(best->type, sema::Type::sequence(5)); // the last token and 4 drafts
  EXPECT_FALSE(field(c, "draft")->inferred);
}

TEST(Pipeline, LocalOfOneStageIsNoField) {
  Check c = check({{"- append(", "- n: len(tokens)\n      - accepted: n\n      - append("}});
  ASSERT_TRUE(c.pipeline) << c.messages;
  EXPECT_FALSE(field(c, "n"));
}

TEST(Pipeline, CapacityFollowsConditionalsAndSlices) {
  // At most 3 of 4 drafts and the last two tokens: 5 rows.
  Edit feed{"target([last] + draft, kv=draft)", "target(tokens[-2:] + draft[1:] if finished else [last], kv=draft)"};
  EXPECT_TRUE(check({feed}, {{"rows_per_pass", "5"}}).pipeline);
  Check tooSmall = check({feed}, {{"rows_per_pass", "4"}});
  EXPECT_FALSE(tooSmall.pipeline);
  EXPECT_NE(tooSmall.messages.find("can feed 5 rows"), std::string::npos) << tooSmall.messages;
}

TEST(Pipeline, CapacityFollowsPolicyOutputs) {
  Edit wider{"[[0.5, block], [0.0, 1]]", "[[0.5, block + 1], [0.0, 1]]"};
  Check c = check({wider});
  EXPECT_FALSE(c.pipeline);
  EXPECT_NE(c.messages.find("`draft` holds 4 tokens, but this value can have 5"), std::string::npos) << c.messages;
  EXPECT_TRUE(check({wider, {"min(size.width, budget - 1)", "min(size.width, 4)"}}).pipeline);
}

TEST(Pipeline, ProgressMayBeDeclared) {
  Check c = check({{"  commit:\n    on: COMMIT\n", "  commit:\n    on: COMMIT\n    progress: accepted\n"},
                   {"- append(draft[:accepted] + [best[accepted]])", "- accepted: accepted + len(best)"}});
  EXPECT_TRUE(c.pipeline) << c.messages;
}

TEST(Pipeline, StageOnSeveralStates) {
  Check c = check(
      {{"VERIFY: {slot: true, next: [COMMIT]}",
        "VERIFY: {slot: true, next: [COMMIT]}\n  AGAIN: {slot: true, next: [COMMIT]}"},
       {"COMMIT: {slot: true, next: [VERIFY, DONE]}", "COMMIT: {slot: true, next: [VERIFY, DONE, AGAIN]}"},
       {"    on: VERIFY", "    on: [VERIFY, AGAIN]"},
       {"goto: DONE if finished else VERIFY", "goto: DONE if finished else (VERIFY if accepted > 0 else AGAIN)"}});
  ASSERT_TRUE(c.pipeline) << c.messages;
  EXPECT_EQ(c.messages, "");
  EXPECT_EQ(c.pipeline->stages[2].on, (std::vector<std::string>{"VERIFY", "AGAIN"}));
  EXPECT_EQ(c.pipeline->stages[3].go.size(), 3u);
}

TEST(Pipeline, WatermarkIsWholePercents) {
  Check c = check({});
  ASSERT_TRUE(c.pipeline);
  EXPECT_EQ(c.pipeline->pools[0].watermark, 85);
  EXPECT_EQ(check({{"watermark: 0.85, ", ""}}).pipeline->pools[0].watermark, 100);
}
