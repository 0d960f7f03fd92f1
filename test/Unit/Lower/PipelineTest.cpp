#include "megalith/Lower/Pipeline.h"
#include "../Sema/PipelineBase.h"
#include "megalith/IR/Text.h"

using namespace megalith;
using namespace megalith::test;

namespace {
/// The base pipeline after some edits as IR, verified.
struct Lowered {
  ir::Module module;
  std::string messages;

  /// The printed stage or policy without locations.
  std::string text(const std::string &head) const {
    std::string all = ir::print(module, {.locations = false});
    size_t begin = all.find("  " + head);
    size_t end = all.find("\n  }\n", begin);
    return begin == std::string::npos ? "no " + head : all.substr(begin, end + 5 - begin);
  }
};

Lowered lower(const std::vector<Edit> &edits) {
  Check c = check(edits);
  Lowered result;
  if (!c.pipeline) {
    ADD_FAILURE() << c.messages;
    result.module.root.regions.emplace_back();
    return result;
  }
  SourceFiles files;
  files.add("p.yaml", basePipeline);
  Diagnostics diags(files);
  result.module = lowerPipeline(*c.pipeline, files);
  EXPECT_TRUE(ir::verify(result.module, diags)) << diags.render();
  return result;
}

class ShippedPipeline : public testing::TestWithParam<const char *> {};
} // namespace

TEST_P(ShippedPipeline, IsValidIrThatReadsBack) {
  SourceFiles files;
  std::string reason;
  auto file = files.open(std::string(MEGALITH_SOURCE_DIR) + "/pipelines/" + GetParam(), reason);
  ASSERT_TRUE(file) << reason;
  Diagnostics diags(files);
  auto parsed = ast::parsePipeline(diags, *file);
  ASSERT_TRUE(parsed) << diags.render();
  auto checked = checkPipeline(*parsed, {}, {}, diags);
  ASSERT_TRUE(checked) << diags.render();
  ir::Module module = lowerPipeline(*checked, files);
  EXPECT_TRUE(ir::verify(module, diags)) << diags.render();
  std::string text = ir::print(module);
  auto again = ir::parse(diags, files.add("pipe.ir", text));
  ASSERT_TRUE(again) << diags.render();
  EXPECT_EQ(ir::print(*again), text);
  EXPECT_EQ(diags.render(), "");
}

INSTANTIATE_TEST_SUITE_P(All, ShippedPipeline,
                         testing::Values("adaptive_aimd.yaml", "adaptive_expected_gain.yaml",
                                         "adaptive_speculative.yaml", "autoregressive.yaml", "canvas_refinement.yaml",
                                         "draft_model_speculative.yaml", "speculative_speculative.yaml",
                                         "token_tree_draft_model.yaml", "lookahead.yaml", "medusa.yaml",
                                         "multi_token.yaml", "prefix_cache.yaml", "reference_speculative.yaml",
                                         "sampled.yaml", "speculative_lookup.yaml", "structured.yaml",
                                         "token_tree_lookup.yaml", "typical_acceptance.yaml"));

TEST(LowerPipeline, Declarations) {
  Lowered l = lower({});
  std::string all = ir::print(l.module, {.locations = false});
  EXPECT_EQ(all.substr(0, all.find("  policy")),
            R"(module @base {after = "lower", fault = "FAILED"} {
  file {index = 0, path = "p.yaml"}
  param @rows_per_pass {type = "i32", value = 16}
  param @block {type = "i32", value = 4}
  param @rate {type = "f32", value = 0.5}
  param @slots {type = "i32", value = 8}
  param @rows_beside {type = "i32", value = 16}
  field @draft {capacity = 4, type = "token"}
  field @accepted {init = 0, type = "i32"}
  field @best {capacity = 5, inferred, type = "token"}
  state @QUEUED {initial, next = ["PREFILL", "DONE"]}
  state @PREFILL {next = ["PREFILL", "VERIFY"], slot}
  state @VERIFY {next = ["COMMIT"], slot}
  state @COMMIT {next = ["VERIFY", "DONE"], slot}
  state @DONE {terminal}
  state @FAILED {terminal}
  pool @target {on_full = "fail", page_tokens = 16, pages = 64, rows_beyond = 5, watermark = 85}
)");
}

TEST(LowerPipeline, InputsAreDeclaredAndReadOnce) {
  Lowered l = lower({{"accepted: i32 = 0", "accepted: i32 = 0\n  tenant: i32 in 0..16 = input(3)\n"
                                           "  text: token[2000] = input\n  few: token[2] = input([5])"},
                     {"draft[i] == best[i]", "draft[i] == best[i] and text[i] == few[tenant]"}});
  std::string all = ir::print(l.module, {.locations = false});
  EXPECT_NE(all.find("  input @tenant {init = 3, least = 0, most = 15, optional, type = \"i32\"}\n"
                     "  input @text {capacity = 2000, type = \"token\"}\n"
                     "  input @few {capacity = 2, items = [5], optional, type = \"token\"}\n  state"),
            std::string::npos)
      << all;
  const std::string verify = l.text("stage @verify");
  EXPECT_NE(verify.find("    %text = input.get @text : token<>\n"
                        "    %few = input.get @few : token<2>\n"
                        "    %tenant = input.get @tenant : i32\n"
                        "    %accepted = prefix_while"),
            std::string::npos)
      << verify << "they are read before the loop";
}

TEST(LowerPipeline, TiersTakeTheFirstThresholdThatIsReached) {
  EXPECT_EQ(lower({{"[0.0, 1]", "[0.25, 2], [0.0, 1]"}}).text("policy @size"),
            R"(  policy @size {per = "request"} {
    policy.state @ema {init = 0.8, type = "f32"}
    policy.observe {
      ^(%good : i32, %ran : i32):
      %k = const {value = 0.5} : f32
      %0 = ratio(%good, %ran) : f32
      %1 = mul(%k, %0) : f32
      %k_1 = const {value = 1.0} : f32
      %k_2 = const {value = 0.5} : f32
      %2 = sub(%k_1, %k_2) : f32
      %ema = policy.get @size {state = "ema"} : f32
      %3 = mul(%2, %ema) : f32
      %4 = add(%1, %3) : f32
      policy.set @size(%4) {state = "ema"}
    }
    policy.output @width {
      %ema = policy.get @size {state = "ema"} : f32
      %k = const {value = 0.5} : f32
      %c4 = const {value = 4} : i32
      %k_1 = const {value = 0.25} : f32
      %c2 = const {value = 2} : i32
      %c1 = const {value = 1} : i32
      %0 = ge(%ema, %k_1) : bool
      %1 = select(%0, %c2, %c1) : i32
      %2 = ge(%ema, %k) : bool
      %3 = select(%2, %c4, %1) : i32
      yield(%3)
    }
  }
)");
}

TEST(LowerPipeline, NegativeBoundsCountFromTheEnd) {
  EXPECT_EQ(lower({}).text("stage @prefill"), R"(  stage @prefill {on = "PREFILL"} {
    %0 = tokens : token<>
    %1 = kv.len @target : i32
    %2 = seq.len(%0) : i32
    %c1 = const {value = 1} : i32
    %3 = sub(%2, %c1) : i32
    %4 = seq.slice(%0, %1, %3) : token<>
    call @target(%4) {chunk = 8, kv = "commit", site = 0}
    %5 = kv.lag @target : i32
    %c1_1 = const {value = 1} : i32
    %6 = eq(%5, %c1_1) : bool
    goto(%6) {to = ["VERIFY", "PREFILL"]}
  }
)");
}

TEST(LowerPipeline, FieldsAreReadAgainAfterACall) {
  EXPECT_EQ(lower({}).text("stage @verify"), R"(  stage @verify {on = "VERIFY"} {
    %0 = tokens : token<>
    %width = policy.read @size {output = "width"} : i32
    %1 = budget : i32
    %c1 = const {value = 1} : i32
    %2 = sub(%1, %c1) : i32
    %3 = min(%width, %2) : i32
    %draft = ngram_lookup(%0, %3) {ngram = 3} : token<4>
    field.set @draft(%draft)
    %4 = tokens : token<>
    %5 = seq.len(%4) : i32
    %c1_1 = const {value = 1} : i32
    %6 = sub(%5, %c1_1) : i32
    %7 = seq.at(%4, %6) : token
    %8 = seq.make(%7) : token<1>
    %9 = seq.concat(%8, %draft) : token<5>
    %best = call @target(%9) {kv = "draft", site = 1} : token<5> {
      reduce @argmax
    }
    field.set @best(%best)
    %draft_1 = field.get @draft : token<4>
    %10 = seq.len(%draft_1) : i32
    %accepted = prefix_while(%10) : i32 {
      ^(%i : i32):
      %11 = seq.at(%draft_1, %i) : token
      %12 = seq.at(%best, %i) : token
      %13 = eq(%11, %12) : bool
      yield(%13)
    }
    field.set @accepted(%accepted)
    %14 = seq.len(%draft_1) : i32
    observe @size(%accepted, %14)
    goto {to = ["COMMIT"]}
  }
)");
}

TEST(LowerPipeline, FieldsSetInABranchAreReadAgainAfterIt) {
  Lowered l = lower({{"- size.observe: accepted, len(draft)",
                      "- if: finished\n        do:\n          - accepted: 0\n        else:\n"
                      "          - accepted: accepted + 1\n      - count: total += accepted"}});
  std::string stage = l.text("stage @verify");
  EXPECT_EQ(stage.substr(stage.find("    %14")), R"(    %14 = finished : bool
    if(%14) {
      %c0 = const {value = 0} : i32
      field.set @accepted(%c0)
    }, {
      %c1_2 = const {value = 1} : i32
      %accepted_1 = add(%accepted, %c1_2) : i32
      field.set @accepted(%accepted_1)
    }
    %accepted_2 = field.get @accepted : i32
    count.add @total(%accepted_2)
    goto {to = ["COMMIT"]}
  }
)");
}

TEST(LowerPipeline, LogitsMayBeNamedBeforeTheyAreReduced) {
  Lowered l = lower({{"- best: argmax(target([last] + draft, kv=draft))", "- logits: target([last] + draft, kv=draft)\n"
                                                                          "      - best: argmax(logits)"}});
  EXPECT_NE(l.text("stage @verify")
                .find("%best = call @target(%9) {kv = \"draft\", site = 1} : token<5> {\n"
                      "      reduce @argmax\n    }\n    field.set @best(%best)"),
            std::string::npos)
      << l.text("stage @verify");
}

TEST(LowerPipeline, GotoTakesTheFirstConditionThatHolds) {
  Lowered l = lower(
      {{"goto: DONE if finished else VERIFY", "goto: (VERIFY if accepted > 0 else DONE) if budget > 1 else DONE"}});
  std::string stage = l.text("stage @commit");
  EXPECT_EQ(stage.substr(stage.find("    goto")), "    goto(%11, %13) {to = [\"VERIFY\", \"DONE\", \"DONE\"]}\n  }\n")
      << stage;
}

TEST(LowerPipeline, StageOnSeveralStatesHasItsOwnCallSites) {
  Lowered l = lower({{"VERIFY: {slot: true, next: [COMMIT]}", "VERIFY: {slot: true, next: [COMMIT]}\n"
                                                              "  AGAIN: {slot: true, next: [COMMIT]}"},
                     {"next: [VERIFY, DONE]", "next: [VERIFY, AGAIN, DONE]"},
                     {"on: VERIFY", "on: [VERIFY, AGAIN]"},
                     {"else VERIFY\n", "else VERIFY if accepted > 0 else AGAIN\n"}});
  EXPECT_NE(l.text("stage @verify {on = \"VERIFY\"}").find("site = 1"), std::string::npos);
  EXPECT_NE(l.text("stage @\"verify.AGAIN\" {on = \"AGAIN\"}").find("site = 2"), std::string::npos);
}

TEST(LowerPipeline, OperationsKnowTheirPlaceInTheFile) {
  Lowered l = lower({});
  std::string all = ir::print(l.module);
  EXPECT_NE(all.find("call @target(%4) {chunk = 8, kv = \"commit\", site = 0} "
                     "@0:36:9\n"),
            std::string::npos)
      << all;
  unsigned without = 0;
  ir::walk(l.module.root.region(), [&](const ir::Operation &op) { without += op.op != ir::Op::File && !op.loc; });
  EXPECT_EQ(without, 0u);
}
