// The demo model on the reference executor against what `transformers` computes for
// it (test/Goldens/demo_transformers.json, written by tools/make_goldens.py).
#include "megalith/Driver/Compilation.h"
#include "megalith/Reference/Executor.h"
#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

using namespace megalith;

namespace {

/// Copies, because the file does not promise alignment.
class Weights : public reference::WeightSource {
public:
  explicit Weights(const SafetensorsFile &file) : file(file) {}
  const uint16_t *find(const std::string &, const std::string &name, std::vector<int64_t> &shape) override {
    const TensorView *tensor = file.find(name);
    if (!tensor)
      return nullptr;
    shape = tensor->shape;
    std::vector<uint16_t> &copy = copies[name];
    if (copy.empty()) {
      copy.resize(tensor->size / 2);
      std::memcpy(copy.data(), tensor->data, tensor->size);
    }
    return copy.data();
  }

private:
  const SafetensorsFile &file;
  std::map<std::string, std::vector<uint16_t>> copies;
};

/// Errors over the rows so far.
struct Errors {
  double ours = 0, theirs = 0; ///< sums of squares of relative errors
  int rows = 0, nearTies = 0;
};

class TransformersTest : public ::testing::Test {
protected:
  void SetUp() override {
    driver::CompileOptions options;
    options.file = MEGALITH_SOURCE_DIR "/pipelines/autoregressive.yaml";
    options.models = {{"", MEGALITH_SOURCE_DIR "/models/demo"}};
    options.needWeights = true;
    compiled = driver::compile(options, diags);
    ASSERT_TRUE(compiled) << diags.render();
    std::ifstream file(MEGALITH_SOURCE_DIR "/test/Goldens/demo_transformers.json");
    golden = nlohmann::json::parse(file);
  }

  std::vector<reference::RequestResult> decode(const std::vector<Request> &requests) {
    Weights weights(*compiled->models[0].weights);
    reference::Options options;
    options.keepLogits = true;
    reference::RunResult result = reference::run(compiled->module, weights, requests, options);
    EXPECT_EQ(result.error, "");
    return result.requests;
  }

  SourceFiles files;
  Diagnostics diags{files};
  std::optional<driver::Compilation> compiled;
  nlohmann::json golden;
};

/// Compares our row with the golden one; true when both choose the same token.
bool compareRow(const std::vector<float> &logits, const nlohmann::json &row, Errors &errors) {
  double norm = row["norm"], theirs = row["bf16_error"], square = 0;
  size_t ids = row["ids"].size();
  for (size_t i = 0; i < ids; ++i) {
    double difference = logits.at(row["ids"][i].get<size_t>()) - row["logits"][i].get<double>();
    square += difference * difference;
  }
  // The golden has a few of the row's logits: their share of the error, scaled up.
  square *= static_cast<double>(logits.size()) / static_cast<double>(ids);
  errors.ours += square / (norm * norm);
  errors.theirs += theirs * theirs;
  ++errors.rows;
  // From so few logits it is an estimate; what all rows have together is compared closely.
  EXPECT_LE(std::sqrt(square) / norm, 6 * theirs) << "position " << row["position"];

  auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
  if (best == row["ids"][0].get<ptrdiff_t>())
    return true;
  // Another token is right only where the best two are closer than the error.
  ++errors.nearTies;
  double gap = row["logits"][0].get<double>() - row["logits"][1].get<double>();
  EXPECT_EQ(best, row["ids"][1].get<ptrdiff_t>()) << "position " << row["position"];
  EXPECT_LE(gap, 1.25 * theirs * norm) << "position " << row["position"];
  return false;
}

TEST_F(TransformersTest, tokensAndLogitsOfTheDemoModel) {
  Errors errors;
  std::vector<size_t> done(golden["prompts"].size(), 0);
  for (bool more = true; more;) {
    std::vector<Request> requests;
    std::vector<size_t> promptOf;
    for (size_t i = 0; i < done.size(); ++i) {
      const nlohmann::json &prompt = golden["prompts"][i];
      if (done[i] == prompt["greedy"].size())
        continue;
      // After a near tie we go on from the golden's token.
      Request r;
      r.id = std::to_string(i);
      r.tokens = prompt["tokens"].get<std::vector<int32_t>>();
      for (size_t j = 0; j < done[i]; ++j)
        r.tokens.push_back(prompt["greedy"][j]);
      r.maxNewTokens = static_cast<int64_t>(prompt["greedy"].size() - done[i]);
      requests.push_back(r);
      promptOf.push_back(i);
    }
    more = !requests.empty();
    std::vector<reference::RequestResult> results = decode(requests);
    for (size_t n = 0; n < results.size(); ++n) {
      size_t i = promptOf[n];
      ASSERT_EQ(results[n].finish, "length");
      for (const std::vector<float> &logits : results[n].logits)
        if (!compareRow(logits, golden["prompts"][i]["rows"][done[i]++], errors))
          break;
    }
  }
  EXPECT_EQ(errors.rows, 8 * 32);
  EXPECT_LE(errors.nearTies, 8);
  double ours = std::sqrt(errors.ours / errors.rows), theirs = std::sqrt(errors.theirs / errors.rows);
  EXPECT_LE(ours, 1.25 * theirs);
  RecordProperty("relative_error", std::to_string(ours));
  RecordProperty("transformers_bf16_error", std::to_string(theirs));
}

} // namespace
