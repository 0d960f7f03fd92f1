#include "TinyManifest.h"
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

using namespace megalith::runtime;

static std::string messageOf(const std::string &json) {
  auto manifest = Manifest::parse(json);
  return manifest ? "" : manifest.error.message + " [" + manifest.error.kind + "]";
}

TEST(Manifest, errorsSayWhatIsWrong) {
  EXPECT_EQ(messageOf(R"({"abi": 0})"), "the manifest has ABI version 0, this runtime has " +
                                            std::to_string(megalith::abi::kAbiVersion) +
                                            "; compile the pipeline "
                                            "again [manifest]");
  EXPECT_TRUE(messageOf("{").starts_with("the manifest cannot be read: "));
  EXPECT_TRUE(messageOf("{\"abi\": " + std::to_string(megalith::abi::kAbiVersion) + "}")
                  .find("the manifest has no `pipeline`") != std::string::npos);
}

TEST(Manifest, readsStrictly) {
  ASSERT_EQ(messageOf(tinyManifest()), "");
  const auto with = [](const std::string &from, const std::string &to) {
    std::string text = tinyManifest();
    const size_t at = text.find(from);
    EXPECT_LT(at, text.size()) << from;
    return messageOf(text.replace(at, from.size(), to));
  };
  EXPECT_EQ(
      with("\"slots\": 2", "\"slots\": 2.5"),
      "the manifest cannot be read: `slots` must be an integer from 0 to 9223372036854775807, found `2.5` [manifest]");
  EXPECT_EQ(with("\"abi\": " + std::to_string(megalith::abi::kAbiVersion), "\"abi\": 0.5"),
            "the manifest cannot be read: `abi` must be an integer, found `0.5` [manifest]");
  const std::string deep(200'000, '[');
  EXPECT_EQ(messageOf(deep), "the manifest cannot be read: lists and objects are nested more than 100 deep [manifest]");
  EXPECT_NE(messageOf(tinyManifest() + "x"), "");
}

TEST(Manifest, givesEachModelItsOwn) {
  const auto manifest = Manifest::parse(tinyManifest());
  ASSERT_TRUE(manifest) << manifest.error.message;
  ASSERT_EQ(manifest->models.size(), 1u);
  const Manifest::Model &model = manifest->model("target");
  EXPECT_EQ(&model, &manifest->models[0]);
  EXPECT_EQ(model.name, "m");
  EXPECT_EQ(model.vocab, 5);
  EXPECT_EQ(model.streamBytes, 4096);
  EXPECT_EQ(model.workspaceBytes, 512);
  EXPECT_EQ(model.extraRows, 3);
  EXPECT_EQ(model.pool.pages, 4);
  EXPECT_EQ(model.pool.pageTokens, 2);
  EXPECT_EQ(model.pool.layers, 2);
  EXPECT_EQ(model.pool.kvHeads, 1);
  EXPECT_EQ(model.pool.headDim, 4);
  EXPECT_EQ(model.pool.rowsBeyond, 2);
  EXPECT_EQ(model.pool.place, "p.yaml:9");
  EXPECT_EQ(model.rope.headDim, 4);
  ASSERT_EQ(model.weights.size(), 1u);
  EXPECT_EQ(model.weights[0].shape, (std::vector<int64_t>{2, 3}));
}

TEST(Manifest, readsWhatRequestsBring) {
  std::string text = tinyManifest();
  EXPECT_TRUE(Manifest::parse(text)->inputs.empty());
  const std::string from = "\"metrics\"";
  text.insert(text.find(from), R"("inputs": [{"name": "text", "type": "token", "offset": 104, "capacity": 5000},
      {"name": "few", "type": "token", "offset": 120, "capacity": 4, "otherwise": [1, 2]},
      {"name": "share", "type": "f32", "offset": 136, "otherwise": 0.25},
      {"name": "rates", "type": "f32", "offset": 140, "capacity": 2, "otherwise": [1.0, 0.5]}], )");
  const auto manifest = Manifest::parse(text);
  ASSERT_TRUE(manifest) << manifest.error.message;
  ASSERT_EQ(manifest->inputs.size(), 4u);
  EXPECT_EQ(manifest->inputs[0].name, "text");
  EXPECT_EQ(manifest->inputs[0].capacity, 5000);
  EXPECT_EQ(manifest->inputs[0].offset, 104);
  EXPECT_FALSE(manifest->inputs[0].otherwise);
  EXPECT_EQ(manifest->inputs[1].otherwise, megalith::InputValue(std::vector<int32_t>{1, 2}));
  EXPECT_EQ(manifest->inputs[2].type, "f32");
  EXPECT_EQ(manifest->inputs[2].otherwise, megalith::InputValue(0.25));
  EXPECT_EQ(manifest->inputs[3].otherwise, megalith::InputValue(std::vector<float>{1.0f, 0.5f}));
}

/// Kernels have a few models.
TEST(Manifest, hasAsManyModelsAsTheKernel) {
  const nlohmann::json good = nlohmann::json::parse(tinyManifest());
  const auto with = [&](nlohmann::json models) {
    nlohmann::json changed = good;
    changed["models"] = std::move(models);
    return messageOf(changed.dump());
  };
  const nlohmann::json model = good["models"][0];
  ASSERT_EQ(with(nlohmann::json::array({model})), "");
  const std::string wrong = "the manifest cannot be read: `models` must be a list of 1 to 4 models, found `";
  EXPECT_EQ(with(nlohmann::json::array()), wrong + "[]` [manifest]");
  EXPECT_EQ(with(nullptr), wrong + "null` [manifest]");
  EXPECT_EQ(with(nlohmann::json::array({model, model})), "");
  EXPECT_EQ(with(nlohmann::json::array({model, model, model, model})), "");
  EXPECT_TRUE(with(nlohmann::json::array({model, model, model, model, model})).starts_with(wrong + "[{"));
  EXPECT_TRUE(with(model).starts_with(wrong + "{"));
  EXPECT_EQ(with(nlohmann::json::array({7})),
            "the manifest cannot be read: `models[0]` must be an object, found `7` [manifest]");
  for (const char *member :
       {"name", "vocab", "stream_bytes", "workspace_bytes", "extra_rows", "pool", "rope", "weights"}) {
    nlohmann::json less = model;
    less.erase(member);
    EXPECT_EQ(with(nlohmann::json::array({less})),
              std::string("the manifest cannot be read: `models[0]` has no `") + member + "` [manifest]");
  }
  nlohmann::json pages = model;
  pages["pool"]["page_tokens"] = 0;
  EXPECT_EQ(with(nlohmann::json::array({pages})),
            "the manifest cannot be read: `page_tokens` must be an integer from 1 to "
            "9223372036854775807, found `0` [manifest]");
  nlohmann::json format = model;
  format["pool"]["format"] = "e5m2";
  EXPECT_EQ(with(nlohmann::json::array({format})),
            "the manifest cannot be read: `format` must be e4m3, found `\"e5m2\"` [manifest]");
  nlohmann::json layers = model;
  const int64_t count = layers["pool"]["layers"].get<int64_t>();
  layers["pool"]["format"] = "e4m3";
  layers["pool"]["bf16_layers"] = count;
  EXPECT_EQ(with(nlohmann::json::array({layers})), "");
  layers["pool"]["bf16_layers"] = count + 1;
  EXPECT_TRUE(with(nlohmann::json::array({layers})).starts_with("the manifest cannot be read: `bf16_layers` must be"));
  nlohmann::json none = good;
  none.erase("models");
  EXPECT_EQ(messageOf(none.dump()), "the manifest cannot be read: the manifest has no `models` [manifest]");
}

TEST(Manifest, tensorNamesCountLayers) {
  Manifest::Weight weight{"wq", "layers.{i}.q{i}", 4, 0, {2, 2}, false};
  EXPECT_EQ(Manifest::tensorName(weight, 3), "layers.3.q3");
}
