// The config.json files that versions of transformers write, and those of well-known checkpoints as their authors wrote
// them (tools/make_family_configs.py recorded both): each is right, or refused for a reason.
#include "megalith/Driver/Compilation.h"
#include "megalith/IR/Text.h"
#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fstream>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

using namespace megalith;
using nlohmann::json;

namespace {

const std::string root = MEGALITH_SOURCE_DIR;

/// What is computed with a config.json: the IR of pipeline and model, and how far positions go, where it says so. Or
/// the ids of the errors.
struct Outcome {
  std::string computes;
  std::optional<double> positions;
  std::vector<std::string> errors;
};

Outcome outcomeOf(const json &config) {
  const std::string path = testing::TempDir() + "megalith-family-config.json";
  std::ofstream(path) << config.dump();
  SourceFiles files;
  Diagnostics diags(files);
  driver::CompileOptions options;
  options.file = root + "/pipelines/autoregressive.yaml";
  options.models = {{"", path}};
  options.stopAfter = "lower";
  const auto compiled = driver::compile(options, diags);
  Outcome outcome;
  for (const Error &message : diags.messages().list)
    if (!message.warning)
      outcome.errors.push_back(message.kind);
  if (compiled) {
    outcome.computes = ir::print(compiled->module);
    outcome.positions = compiled->models.front().positions();
  }
  return outcome;
}

/// The configurations of a line, each with who wrote it.
std::vector<std::pair<std::string, json>> spellingsOf(const json &line) {
  std::vector<std::pair<std::string, json>> all = {{line["versions"].dump(), line["config"]}};
  for (const json &other : line["others"]) {
    json config = line["config"];
    config.update(other["set"]);
    for (const json &key : other.value("drop", json::array()))
      config.erase(key.get<std::string>());
    all.emplace_back(other["versions"].dump(), std::move(config));
  }
  return all;
}

TEST(FamilyConfigs, AreRightOrRefused) {
  std::ifstream file(root + "/test/Families/Inputs/configs.jsonl");
  std::set<std::string> families, versions, built;
  std::vector<std::string> alike;
  size_t right = 0, refused = 0, models = 0;
  for (std::string text; std::getline(file, text);) {
    const json line = json::parse(text);
    const auto name = line["name"].get<std::string>(), reason = line.value("refused", "");
    families.insert(line["config"]["model_type"].get<std::string>());
    std::string computes;
    std::optional<double> positions; // old files leave out what is the class's default
    for (const auto &[writers, config] : spellingsOf(line)) {
      for (const json &version : json::parse(writers))
        versions.insert(version.get<std::string>());
      const Outcome outcome = outcomeOf(config);
      const bool isRefused = std::find(outcome.errors.begin(), outcome.errors.end(), reason) != outcome.errors.end();
      EXPECT_EQ(isRefused, !reason.empty()) << name << " of " << writers << ": " << fmt::format("{}", outcome.errors);
      if (!reason.empty()) {
        ++refused;
        continue;
      }
      EXPECT_TRUE(outcome.errors.empty()) << name << " of " << writers << ": " << fmt::format("{}", outcome.errors);
      if (computes.empty())
        computes = outcome.computes;
      EXPECT_EQ(outcome.computes, computes) << name << " of " << writers << " is another model";
      if (!positions)
        positions = outcome.positions;
      if (outcome.positions) {
        EXPECT_EQ(outcome.positions, positions) << name << " of " << writers << " has other positions";
      }
      ++right;
    }
    if (reason.empty() && name.starts_with("built-")) {
      ++models;
      if (!built.insert(fmt::format("{} {}", computes, positions.value_or(0))).second)
        alike.push_back(name);
    }
  }
  // A pattern, and the types of layers that it stands for; the others show something of their own.
  EXPECT_EQ(alike, std::vector<std::string>{"built-gemma3-pattern"});
  EXPECT_EQ(families.size(), 13u) << fmt::format("{}", families); // two model files are for GPT-NeoX
  EXPECT_GE(versions.size(), 14u);
  EXPECT_GE(right, 450u);
  EXPECT_GE(refused, 74u);
  EXPECT_GE(models, 45u);
}

} // namespace
