#include "megalith/Sema/Model.h"
#include "megalith/Syntax/Parse.h"
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <unistd.h>

using namespace megalith;
namespace fs = std::filesystem;

namespace {

const char *const config1B = R"({
  "hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32,
  "num_key_value_heads": 8, "intermediate_size": 8192, "vocab_size": 128256,
  "rms_norm_eps": 1e-05, "rope_theta": 500000.0, "tie_word_embeddings": true, "head_dim": null,
  "eos_token_id": [128001, 128009],
  "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                   "original_max_position_embeddings": 8192, "rope_type": "llama3"}})";

class ModelTest : public testing::Test {
protected:
  SourceFiles files;
  Diagnostics diags{files};
  Acceptance acceptance;

  std::optional<CheckedModel> check(uint32_t file, const char *config) {
    std::optional<ast::ModelFile> parsed = ast::parseModel(diags, file);
    Result<ConfigFile> read = ConfigFile::parse(config, "", "model/config.json");
    if (!parsed || !read)
      return std::nullopt;
    return checkModel(*parsed, *read, acceptance, diags);
  }
  std::optional<CheckedModel> checkShipped(const std::string &name, const char *config) {
    std::string reason;
    auto file = files.open(MEGALITH_SOURCE_DIR "/pipelines/models/" + name, reason);
    return file ? check(*file, config) : std::nullopt;
  }
  std::optional<CheckedModel> checkText(const std::string &text, const char *config) {
    return check(files.add("m.yaml", text), config);
  }
};

const CheckedWeight &weight(const CheckedModel &model, const std::string &name) {
  for (const CheckedWeight &w : model.weights)
    if (w.name == name)
      return w;
  ADD_FAILURE() << "no weight " << name;
  return model.weights.front();
}

TEST_F(ModelTest, FillsInTheNumbersOfACheckpoint) {
  std::optional<CheckedModel> model = checkShipped("llama.yaml", config1B);
  ASSERT_TRUE(model) << diags.render();
  EXPECT_EQ(diags.render(), "");
  EXPECT_EQ(model->graphName, "llama");
  EXPECT_EQ(model->numerics, "transformers");
  EXPECT_EQ(model->vocab, 128256);
  EXPECT_EQ(model->hidden, 2048);
  EXPECT_EQ(model->layers, 16);
  EXPECT_EQ(model->kvLayers, 16);
  EXPECT_EQ(model->heads, 32);
  EXPECT_EQ(model->kvHeads, 8);
  // `head_dim: null` in config.json means the default.
  EXPECT_EQ(model->headDim, 64);
  ASSERT_TRUE(model->rope);
  EXPECT_EQ(model->rope->type, "llama3");
  EXPECT_EQ(model->rope->theta, 500000.0);
  EXPECT_EQ(model->rope->headDim, 64);
  EXPECT_EQ(model->eos, (std::vector<int32_t>{128001, 128009}));
  EXPECT_EQ(weight(*model, "head").alias, "embed");
  EXPECT_EQ(weight(*model, "wk").shape, (std::vector<int64_t>{512, 2048}));
  EXPECT_EQ(weight(*model, "wk").tensorName(7), "model.layers.7.self_attn.k_proj.weight");
  EXPECT_EQ(weight(*model, "norm").tensorName(0), "model.norm.weight");
}

TEST_F(ModelTest, AnswersQuestionsAboutConfig) {
  std::optional<CheckedModel> model = checkShipped("llama.yaml", config1B);
  ASSERT_TRUE(model) << diags.render();
  EXPECT_EQ(model->configNumber("rope_scaling.factor"), 32.0);
  EXPECT_EQ(model->configNumber("vocab_size"), 128256.0);
  EXPECT_EQ(model->configNumber("rope_scaling.rope_type"), std::nullopt);
  EXPECT_EQ(model->configNumber("absent"), std::nullopt);
}

TEST_F(ModelTest, PerHeadNormsAndAnUntiedHead) {
  std::string config = config1B;
  config.replace(config.find("true"), 4, "false");
  config.replace(config.find("null"), 4, "128");
  std::optional<CheckedModel> model = checkShipped("qwen3.yaml", config.c_str());
  ASSERT_TRUE(model) << diags.render();
  EXPECT_EQ(model->headDim, 128);
  EXPECT_EQ(weight(*model, "head").alias, "");
  EXPECT_EQ(weight(*model, "q_norm").shape, (std::vector<int64_t>{128}));
  EXPECT_EQ(weight(*model, "wq").shape, (std::vector<int64_t>{4096, 2048}));
}

TEST_F(ModelTest, ThetaMayStandUnderAnotherKeyOrHaveADefault) {
  for (const auto &[rope, config] : {std::pair("{theta: {key: rope_theta, default: 20000}}", R"({"d": 16})"),
                                     std::pair("{theta: base}", R"({"d": 16, "base": 20000.0})")}) {
    std::string text = "model: m\nconfig:\n  head_dim: d\n  rope: " + std::string(rope) +
                       "\nweights:\n  e: {shape: '[40, 32]', from: e}\n"
                       "graph:\n  - x: e[tokens]\n  - logits: matmul(rope(x, position), e)\n";
    std::optional<CheckedModel> model = checkText(text, config);
    ASSERT_TRUE(model) << diags.render();
    ASSERT_TRUE(model->rope);
    EXPECT_EQ(model->rope->theta, 20000.0);
    EXPECT_EQ(model->rope->type, "default");
    EXPECT_EQ(model->rope->headDim, 16);
    EXPECT_EQ(model->layers, 0);
    EXPECT_EQ(model->kvLayers, 0);
  }
}

TEST_F(ModelTest, ANameMayChangeItsMeaningAndGoAroundTheLoop) {
  std::optional<CheckedModel> model = checkText(R"(model: m
config: {layers: n}
weights:
  e: {shape: '[40, 32]', from: e}
  layer:
    w: {shape: '[32, 32]', from: 'w{i}'}
graph:
  - x: e[tokens]
  - y: x * 2
  - t: y + 1
  - repeat: layer
    do:
      - t: matmul(x, w)
      - x: x + t
      - y: y * t
  - logits: matmul(x + y, e)
)",
                                                R"({"n": 3})");
  // The first `t` is overwritten before anything reads it.
  EXPECT_FALSE(model);
  EXPECT_EQ(diags.render(), "m.yaml:10:5: error: the value of `t` is never used "
                            "[unused-graph-value]\n   10 |   - t: y + 1\n      |     ^\n");
}

TEST_F(ModelTest, CarriesWhatIsReadBeforeItIsAssigned) {
  std::optional<CheckedModel> model = checkText(R"(model: m
config: {layers: n}
weights:
  e: {shape: '[40, 32]', from: e}
  layer:
    w: {shape: '[32, 32]', from: 'w{i}'}
graph:
  - x: e[tokens]
  - y: x * 2
  - z: x * 3
  - repeat: layer
    do:
      - t: matmul(x, w)
      - x: x + t
      - y: t * z
  - logits: matmul(x + y, e)
)",
                                                R"({"n": 3})");
  ASSERT_TRUE(model) << diags.render();
  std::vector<std::string> carried;
  for (const graph::Carried &c : model->graph.carried)
    carried.push_back(model->graph.nodes[c.argument].hint);
  // `y` is read after the repeat, `z` and `t` are not carried.
  EXPECT_EQ(carried, (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(model->layers, 3);
}

//===--- weights ------------------------------------------------------------===//

class ModelWeightsTest : public ModelTest {
protected:
  fs::path path = fs::temp_directory_path() / ("megalith-model-test-" + std::to_string(getpid()) + ".safetensors");
  ~ModelWeightsTest() override { fs::remove(path); }

  std::string text = R"(model: m
config: {layers: n}
weights:
  e: {shape: '[4, 2]', from: embed.weight}
  layer:
    w: {shape: '[2, 2]', from: 'layers.{i}.w'}
graph:
  - x: e[tokens]
  - repeat: layer
    do:
      - x: matmul(x, w)
  - logits: matmul(x, e)
)";

  std::string checkAgainst(const std::string &header, size_t bytes) {
    return checkAgainst(header, std::string(bytes, '\0'));
  }
  std::string checkAgainst(const std::string &header, const std::string &data) {
    std::optional<CheckedModel> model = checkText(text, R"({"n": 2})");
    EXPECT_TRUE(model) << diags.render();
    std::string padded = header + std::string((8 - header.size() % 8) % 8, ' ');
    uint64_t size = padded.size();
    std::ofstream out(path, std::ios::binary);
    out.write(reinterpret_cast<const char *>(&size), 8);
    out << padded << data;
    out.close();
    Result<SafetensorsFile> file = SafetensorsFile::open(path.string());
    EXPECT_TRUE(file) << file.error.message;
    bool good = checkWeights(*model, *file, acceptance, diags);
    EXPECT_EQ(good, !diags.hasErrors());
    accepted = model->accepted;
    std::string said = diags.render();
    for (size_t at; (at = said.find(path.string())) != std::string::npos;)
      said.replace(at, path.string().size(), "FILE");
    return said;
  }
  std::vector<std::string> accepted;

  /// The tensors that the text needs, and more.
  static std::string withMore(std::initializer_list<std::pair<const char *, const char *>> more) {
    std::string header = R"({"embed.weight":{"dtype":"BF16","shape":[4,2],"data_offsets":[0,16]},)"
                         R"("layers.0.w":{"dtype":"BF16","shape":[2,2],"data_offsets":[16,24]},)"
                         R"("layers.1.w":{"dtype":"BF16","shape":[2,2],"data_offsets":[24,32]})";
    size_t at = 32;
    for (const auto &[name, shape] : more) {
      const size_t end = at + (std::string(shape) == "[2]" ? 4 : 16);
      header += ",\"" + std::string(name) + R"(":{"dtype":"BF16","shape":)" + shape + R"(,"data_offsets":[)" +
                std::to_string(at) + "," + std::to_string(end) + "]}";
      at = end;
    }
    return header + "}";
  }
};

TEST_F(ModelWeightsTest, AllThere) {
  EXPECT_EQ(checkAgainst(R"({"embed.weight":{"dtype":"BF16","shape":[4,2],"data_offsets":[0,16]},)"
                         R"("layers.0.w":{"dtype":"BF16","shape":[2,2],"data_offsets":[16,24]},)"
                         R"("layers.1.w":{"dtype":"BF16","shape":[2,2],"data_offsets":[24,32]}})",
                         32),
            "");
}

TEST_F(ModelWeightsTest, MissingTensor) {
  EXPECT_EQ(checkAgainst(R"({"embed.weights":{"dtype":"BF16","shape":[4,2],"data_offsets":[0,16]},)"
                         R"("layers.0.w":{"dtype":"BF16","shape":[2,2],"data_offsets":[16,24]},)"
                         R"("layers.1.w":{"dtype":"BF16","shape":[2,2],"data_offsets":[24,32]}})",
                         32),
            R"(m.yaml:4:3: error: `FILE` has no tensor `embed.weight` for weight `e` [missing-tensor]
    4 |   e: {shape: '[4, 2]', from: embed.weight}
      |   ^
note: did you mean `embed.weights`?
)");
}

TEST_F(ModelWeightsTest, WrongShapeAndType) {
  EXPECT_EQ(
      checkAgainst(R"({"embed.weight":{"dtype":"I16","shape":[4,2],"data_offsets":[0,16]},)"
                   R"("layers.0.w":{"dtype":"BF16","shape":[2,2],"data_offsets":[16,24]},)"
                   R"("layers.1.w":{"dtype":"BF16","shape":[4],"data_offsets":[24,32]}})",
                   32),
      R"(m.yaml:4:3: error: tensor `embed.weight` of `FILE` holds I16; weights may be BF16, F16 or F32: take the checkpoint from before it was quantised [tensor-type]
    4 |   e: {shape: '[4, 2]', from: embed.weight}
      |   ^
m.yaml:6:5: error: tensor `layers.1.w` of `FILE` is [4], but weight `w` is [2, 2] [tensor-shape]
    6 |     w: {shape: '[2, 2]', from: 'layers.{i}.w'}
      |     ^
)");
}

/// Tensors of one pattern are one message.
TEST_F(ModelWeightsTest, TensorsThatNothingReads) {
  const char *note =
      R"(m.yaml:3:1: note: this is what the graph reads; put a tensor that cannot change logits into `tensors:` of `harmless:`, with `{i}` for numbers, or take it on your word with `--accept NAME`
    3 | weights:
      | ^~~~~~~
)";
  EXPECT_EQ(
      checkAgainst(withMore({{"layers.0.b", "[2]"}, {"layers.1.b", "[2]"}, {"layers.2.w", "[2]"}}), 44),
      R"(m.yaml:3:1: error: no weight of the graph reads tensor `layers.0.b` of `FILE` and 1 more like `layers.{i}.b` [unread-tensor]
    3 | weights:
      | ^~~~~~~
m.yaml:3:1: error: no weight of the graph reads tensor `layers.2.w` of `FILE` [unread-tensor]
    3 | weights:
      | ^~~~~~~
)" + std::string(note));
}

TEST_F(ModelWeightsTest, TensorsThatAreHarmlessOrAccepted) {
  text += "harmless: {tensors: ['layers.{i}.inv_freq']}\n";
  acceptance = Acceptance({"layers.{i}.b", "c", "d"});
  EXPECT_EQ(
      checkAgainst(withMore({{"layers.0.b", "[2]"}, {"layers.1.b", "[2]"}, {"layers.1.inv_freq", "[2]"}, {"c", "[2]"}}),
                   48),
      "");
  EXPECT_EQ(accepted, (std::vector<std::string>{"layers.{i}.b", "c"}));
  EXPECT_EQ(acceptance.unneeded(), std::vector<std::string>{"d"});
}

TEST_F(ModelWeightsTest, AWeightThatNothingUsesReadsNothing) {
  text.replace(text.find("  layer:"), 0, "  b: {shape: '[2]', from: b}\n");
  const std::string said = checkAgainst(withMore({{"b", "[2]"}}), 36);
  EXPECT_NE(said.find("m.yaml:5:3: warning: weight `b` is not used by the graph [unused-weight]"), said.npos) << said;
  EXPECT_NE(said.find("m.yaml:5:3: error: no weight of the graph reads tensor `b` of `FILE` [unread-tensor]"),
            said.npos)
      << said;
  EXPECT_NE(said.find("note: nothing in the graph uses weight `b`\n"), said.npos) << said;
}

/// Two readers of a tied checkpoint that has both tensors agree only if these are equal.
TEST_F(ModelWeightsTest, TiedWeightsWithTensorsOfTheirOwn) {
  text.replace(text.find("  layer:"), 0, "  h: {shape: '[4, 2]', from: head, or: e}\n");
  text.replace(text.find("matmul(x, e)"), 12, "matmul(x, h)");
  EXPECT_EQ(checkAgainst(withMore({}), 32), "");
  EXPECT_EQ(checkAgainst(withMore({{"head", "[4,2]"}}), 48), "");
  std::string data(48, '\0');
  data.back() = 1;
  acceptance = Acceptance({"head"});
  EXPECT_EQ(checkAgainst(withMore({{"head", "[4,2]"}}), data), "");
  acceptance = Acceptance();
  const std::string said = checkAgainst(withMore({{"head", "[4,2]"}}), data);
  EXPECT_EQ(said.substr(0, said.find('\n')),
            "m.yaml:5:3: error: tensor `head` of `FILE` differs from `embed.weight`, though "
            "weight `h` has the storage of `e` [tied-tensor]");
}

TEST_F(ModelWeightsTest, EveryPlaceOfTheLayerIsReplaced) {
  text.replace(text.find("layers.{i}.w"), 12, "b{i}.{i}.w");
  const std::string said = checkAgainst(withMore({}), 32);
  EXPECT_NE(said.find("has no tensor `b0.0.w` for weight `w`"), said.npos) << said;
}

} // namespace
