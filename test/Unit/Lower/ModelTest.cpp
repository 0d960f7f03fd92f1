#include "megalith/Lower/Model.h"
#include "megalith/IR/Text.h"
#include "megalith/Syntax/Parse.h"
#include <gtest/gtest.h>

using namespace megalith;

namespace {

/// Lowers a model of `weights` and `graph` (indented lines) and returns the text
/// of its segment.
std::string lowered(const std::string &weights, const std::string &graph,
                    const std::string &numerics = "transformers") {
  SourceFiles files;
  Diagnostics diags(files);
  uint32_t file = files.add("m.yaml", "model: m\nnumerics: " + numerics +
                                          "\nconfig:\n  layers: layers\n  head_dim: head_dim\n  eps: eps\n  scale: s\n"
                                          "  rope: {theta: rope_theta}\nweights:\n  e: {shape: '[64, 32]', from: e}\n" +
                                          weights + "graph:\n  - x: e[tokens]\n" + graph +
                                          "harmless: {keys: [layers, head_dim, eps, s, rope_theta]}\n");
  std::optional<ast::ModelFile> parsed = ast::parseModel(diags, file);
  Result<ConfigFile> config =
      ConfigFile::parse(R"({"layers": 2, "head_dim": 16, "eps": 0.5, "s": 3, "rope_theta": 10000.0})", "", "c.json");
  std::optional<CheckedModel> model;
  Acceptance acceptance;
  if (parsed && config)
    model = checkModel(*parsed, *config, acceptance, diags);
  EXPECT_TRUE(model) << diags.render();
  ir::Module module;
  module.root.regions.resize(1);
  module.root.name = "p";
  module.root.set<ir::attr::after>("lower");
  if (!model)
    return "";
  lowerModel(*model, "target", module);
  EXPECT_TRUE(ir::verify(module, diags)) << diags.render();
  std::string text = ir::print(module, {.locations = false});
  size_t begin = text.find("    segment @forward {\n");
  return text.substr(begin, text.rfind("  }\n}") - begin);
}

TEST(LowerModel, RoundsAfterEveryOperation) {
  EXPECT_EQ(lowered("", "  - y: silu(x) * x - 2 * x\n  - logits: matmul(-y / scale, e)\n"),
            R"(    segment @forward {
      %x = embed @e : [R, 32] bf16
      %0 = silu(%x) : [R, 32] f32
      %1 = round(%0) : [R, 32] bf16
      %2 = mul(%1, %x) : [R, 32] f32
      %3 = round(%2) : [R, 32] bf16
      %k = const {value = 2.0} : f32
      %4 = mul(%k, %x) : [R, 32] f32
      %5 = round(%4) : [R, 32] bf16
      %6 = sub(%3, %5) : [R, 32] f32
      %y = round(%6) : [R, 32] bf16
      %7 = neg(%y) : [R, 32] f32
      %8 = round(%7) : [R, 32] bf16
      %k_1 = const {value = 3.0} : f32
      %9 = div(%8, %k_1) : [R, 32] f32
      %10 = round(%9) : [R, 32] bf16
      %11 = matmul @e(%10) {tree = "split8"} : [R, 64] f32
      %logits = round(%11) : [R, 64] bf16
      yield(%logits)
    }
)");
}

TEST(LowerModel, RmsNormRoundsBeforeAndAfterItsWeight) {
  EXPECT_EQ(lowered("  w: {shape: '[32]', from: w}\n", "  - logits: matmul(rms_norm(x, w, eps), e)\n"),
            R"(    segment @forward {
      %x = embed @e : [R, 32] bf16
      %0 = mul(%x, %x) : [R, 32] f32
      %1 = reduce_sum(%0) {groups = 1, tree = "parts8"} : [R, 1] f32
      %k = const {value = 0.03125} : f32
      %2 = mul(%1, %k) : [R, 1] f32
      %k_1 = const {value = 0.5} : f32
      %3 = add(%2, %k_1) : [R, 1] f32
      %4 = rsqrt(%3) : [R, 1] f32
      %5 = mul(%x, %4) : [R, 32] f32
      %6 = round(%5) : [R, 32] bf16
      %w = weight.get @w : [32] bf16
      %7 = mul(%w, %6) : [R, 32] f32
      %8 = round(%7) : [R, 32] bf16
      %9 = matmul @e(%8) {tree = "split8"} : [R, 64] f32
      %logits = round(%9) : [R, 64] bf16
      yield(%logits)
    }
)");
}

TEST(LowerModel, RmsNormRoundsOnceWhereItIsToldTo) {
  std::string text =
      lowered("  w: {shape: '[32]', from: w}\n", "  - logits: matmul(rms_norm(x, w, eps, once=true), e)\n");
  EXPECT_NE(text.find("      %5 = mul(%x, %4) : [R, 32] f32\n"
                      "      %w = weight.get @w : [32] bf16\n"
                      "      %6 = mul(%w, %5) : [R, 32] f32\n"
                      "      %7 = round(%6) : [R, 32] bf16\n"),
            std::string::npos)
      << text;
  EXPECT_EQ(lowered("  w: {shape: '[32]', from: w}\n", "  - logits: matmul(rms_norm(x, w, eps, once=false), e)\n"),
            lowered("  w: {shape: '[32]', from: w}\n", "  - logits: matmul(rms_norm(x, w, eps), e)\n"));
}

TEST(LowerModel, WhatWeightsAloneMakeIsAVectorThatIsNotRounded) {
  const std::string weights = "  w: {shape: '[32]', from: w}\n";
  std::string text = lowered(weights, "  - logits: matmul(rms_norm(x, 1 + w, eps, once=true), e)\n");
  EXPECT_NE(text.find("      %5 = mul(%x, %4) : [R, 32] f32\n"
                      "      %k_2 = const {value = 1.0} : f32\n"
                      "      %w = weight.get @w : [32] bf16\n"
                      "      %6 = add(%k_2, %w) : [32] f32\n"
                      "      %7 = mul(%6, %5) : [R, 32] f32\n"
                      "      %8 = round(%7) : [R, 32] bf16\n"),
            std::string::npos)
      << text;
  // A name for it makes no difference, but that the IR has the name.
  std::string named = lowered(weights, "  - s: 1 + w\n  - logits: matmul(rms_norm(x, s, eps, once=true), e)\n");
  EXPECT_NE(named.find("      %s = add(%k_2, %w) : [32] f32\n      %6 = mul(%s, %5) : [R, 32] f32\n"),
            std::string::npos)
      << named;
}

TEST(LowerModel, AConstantMayBeRoundedToBf16) {
  // sqrt(3072) = 55.4256...; 3 is the config's.
  std::string text = lowered("", "  - logits: matmul(x * bf16(sqrt(1024 * scale)) + bf16(scale), e)\n");
  EXPECT_NE(text.find("const {value = 55.5}"), std::string::npos) << text;
  EXPECT_NE(text.find("const {value = 3.0}"), std::string::npos) << text;
}

TEST(LowerModel, AWeightWhoseConditionDoesNotHoldIsNotAdded) {
  const auto with = [](const std::string &condition, const std::string &logits) {
    return lowered("  b: {shape: '[64]', from: b, if: " + condition + "}\n", "  - logits: " + logits + "\n");
  };
  const std::string plain = lowered("", "  - logits: matmul(x, e)\n");
  EXPECT_EQ(with("scale == 4", "matmul(x, e) + b"), plain);
  EXPECT_EQ(with("scale == 4", "b + matmul(x, e)"), plain);
  EXPECT_EQ(with("scale == 3", "matmul(x, e) + b"),
            lowered("  b: {shape: '[64]', from: b}\n", "  - logits: matmul(x, e) + b\n"));
}

TEST(LowerModel, ASoftCapOfNoneIsNothing) {
  EXPECT_EQ(lowered("", "  - logits: softcap(matmul(x, e), none)\n"), lowered("", "  - logits: matmul(x, e)\n"));
}

TEST(LowerModel, AVectorIsMadeAnewForEachUse) {
  EXPECT_EQ(lowered("  w: {shape: '[32]', from: w}\n  b: {shape: '[64]', from: b}\n",
                    "  - s: w * w\n  - logits: matmul(x * s + -s, e) + b / 2\n"),
            R"(    segment @forward {
      %x = embed @e : [R, 32] bf16
      %w = weight.get @w : [32] bf16
      %w_1 = weight.get @w : [32] bf16
      %s = mul(%w, %w_1) : [32] f32
      %0 = mul(%x, %s) : [R, 32] f32
      %1 = round(%0) : [R, 32] bf16
      %w_2 = weight.get @w : [32] bf16
      %w_3 = weight.get @w : [32] bf16
      %s_1 = mul(%w_2, %w_3) : [32] f32
      %2 = neg(%s_1) : [32] f32
      %3 = add(%1, %2) : [R, 32] f32
      %4 = round(%3) : [R, 32] bf16
      %5 = matmul @e(%4) {tree = "split8"} : [R, 64] f32
      %b = weight.get @b : [64] bf16
      %k = const {value = 2.0} : f32
      %6 = div(%b, %k) : [64] f32
      %7 = add(%5, %6) : [R, 64] f32
      %logits = round(%7) : [R, 64] bf16
      yield(%logits)
    }
)");
}

TEST(LowerModel, ANormWithAShorterWeightWorksOnBlocks) {
  std::string text = lowered("  w: {shape: '[8]', from: w}\n", "  - logits: matmul(rms_norm(x, w, eps), e)\n");
  EXPECT_NE(text.find("reduce_sum(%0) {groups = 4, tree = \"lanes32\"} : [R, 4] f32"), std::string::npos);
  EXPECT_NE(text.find("const {value = 0.125}"), std::string::npos);
  EXPECT_NE(text.find("%5 = mul(%x, %4) : [R, 32] f32"), std::string::npos);
}

TEST(LowerModel, LayerNormRoundsOnce) {
  EXPECT_EQ(lowered("  w: {shape: '[32]', from: w}\n  b: {shape: '[32]', from: b}\n",
                    "  - logits: matmul(layer_norm(x, w, b, eps), e)\n"),
            R"(    segment @forward {
      %x = embed @e : [R, 32] bf16
      %0 = reduce_sum(%x) {groups = 1, tree = "parts8"} : [R, 1] f32
      %k = const {value = 0.03125} : f32
      %1 = mul(%0, %k) : [R, 1] f32
      %2 = sub(%x, %1) : [R, 32] f32
      %3 = mul(%2, %2) : [R, 32] f32
      %4 = reduce_sum(%3) {groups = 1, tree = "parts8"} : [R, 1] f32
      %k_1 = const {value = 0.03125} : f32
      %5 = mul(%4, %k_1) : [R, 1] f32
      %k_2 = const {value = 0.5} : f32
      %6 = add(%5, %k_2) : [R, 1] f32
      %7 = rsqrt(%6) : [R, 1] f32
      %8 = mul(%2, %7) : [R, 32] f32
      %w = weight.get @w : [32] bf16
      %9 = mul(%8, %w) : [R, 32] f32
      %b = weight.get @b : [32] bf16
      %10 = add(%9, %b) : [R, 32] f32
      %11 = round(%10) : [R, 32] bf16
      %12 = matmul @e(%11) {tree = "split8"} : [R, 64] f32
      %logits = round(%12) : [R, 64] bf16
      yield(%logits)
    }
)");
}

TEST(LowerModel, ABiasBelongsToItsProduct) {
  std::string weights = "  b: {shape: '[64]', from: b}\n";
  std::string together = lowered(weights, "  - logits: matmul(x, e) + b\n");
  EXPECT_EQ(together, R"(    segment @forward {
      %x = embed @e : [R, 32] bf16
      %0 = matmul @e(%x) {tree = "split8"} : [R, 64] f32
      %b = weight.get @b : [64] bf16
      %1 = add(%0, %b) : [R, 64] f32
      %logits = round(%1) : [R, 64] bf16
      yield(%logits)
    }
)");
  EXPECT_EQ(lowered(weights, "  - logits: b + matmul(x, e)\n"), together);
  // Two statements are two operations.
  EXPECT_EQ(lowered(weights, "  - y: matmul(x, e)\n  - logits: y + b\n"),
            R"(    segment @forward {
      %x = embed @e : [R, 32] bf16
      %0 = matmul @e(%x) {tree = "split8"} : [R, 64] f32
      %y = round(%0) : [R, 64] bf16
      %b = weight.get @b : [64] bf16
      %1 = add(%y, %b) : [R, 64] f32
      %logits = round(%1) : [R, 64] bf16
      yield(%logits)
    }
)");
}

TEST(LowerModel, AttentionAndRopeInARepeat) {
  EXPECT_EQ(lowered("  layer:\n    wk: {shape: '[16, 32]', from: 'k{i}'}\n",
                    "  - repeat: layer\n    do:\n"
                    "      - k: matmul(x, wk)\n"
                    "      - x: attention(rope(x, position), k, k, scale=0.5)\n"
                    "  - logits: matmul(x, e)\n"),
            R"(    segment @forward {
      %x = embed @e : [R, 32] bf16
      %x_1 = repeat(%x) {count = 2} : [R, 32] bf16 {
        ^(%x_2 : [R, 32] bf16):
        %0 = matmul @wk(%x_2) {tree = "split8"} : [R, 16] f32
        %k = round(%0) : [R, 16] bf16
        %cos = rope_cos {dim = 16} : [R, 32] bf16
        %1 = mul(%x_2, %cos) : [R, 32] f32
        %2 = round(%1) : [R, 32] bf16
        %3 = rotate_half(%x_2) {dim = 16} : [R, 32] f32
        %sin = rope_sin {dim = 16} : [R, 32] bf16
        %4 = mul(%3, %sin) : [R, 32] f32
        %5 = round(%4) : [R, 32] bf16
        %6 = add(%2, %5) : [R, 32] f32
        %7 = round(%6) : [R, 32] bf16
        %8 = kv.append(%k, %k) {dim = 16, kv_heads = 1} : kv
        %9 = attention(%7, %8) {dim = 16, heads = 2, kv_heads = 1, scale = 0.5, tree = "rounds8"} : [R, 32] f32
        %x_3 = round(%9) : [R, 32] bf16
        yield(%x_3)
      }
      %10 = matmul @e(%x_1) {tree = "split8"} : [R, 64] f32
      %logits = round(%10) : [R, 64] bf16
      yield(%logits)
    }
)");
}

TEST(LowerModel, FunctionsKeepTheirNames) {
  for (const char *name : {"silu", "gelu", "gelu_tanh", "relu", "softplus", "sigmoid", "tanh", "exp", "rsqrt", "neg"}) {
    std::string text = lowered("", "  - logits: matmul(" + std::string(name) + "(x), e)\n");
    EXPECT_NE(text.find(" = " + std::string(name) + "(%x) : [R, 32] f32"), std::string::npos) << text;
  }
  for (const char *name : {"max", "min"}) {
    std::string text = lowered("", "  - logits: matmul(" + std::string(name) + "(x, 0.5), e)\n");
    EXPECT_NE(text.find(" = " + std::string(name) + "(%x, %k) : [R, 32] f32"), std::string::npos) << text;
  }
}

TEST(LowerModel, ASoftCapIsWhatItStandsFor) {
  std::string text = lowered("", "  - logits: matmul(softcap(x, 30), e)\n");
  EXPECT_EQ(text, R"(    segment @forward {
      %x = embed @e : [R, 32] bf16
      %k = const {value = 30.0} : f32
      %0 = div(%x, %k) : [R, 32] f32
      %1 = round(%0) : [R, 32] bf16
      %2 = tanh(%1) : [R, 32] f32
      %3 = round(%2) : [R, 32] bf16
      %k_1 = const {value = 30.0} : f32
      %4 = mul(%3, %k_1) : [R, 32] f32
      %5 = round(%4) : [R, 32] bf16
      %6 = matmul @e(%5) {tree = "split8"} : [R, 64] f32
      %logits = round(%6) : [R, 64] bf16
      yield(%logits)
    }
)");
  EXPECT_EQ(text, lowered("", "  - logits: matmul(tanh(x / 30) * 30, e)\n"));
  EXPECT_EQ(text, lowered("", "  - logits: matmul(softcap(x, scale * 10), e)\n")); // 3 in config.json
}

TEST(LowerModel, FusedNumericsLowerToTheSameOperations) {
  std::string graph = "  - logits: matmul(silu(x) * x, e)\n";
  EXPECT_EQ(lowered("", graph, "fused"), lowered("", graph, "transformers"));
}

} // namespace
