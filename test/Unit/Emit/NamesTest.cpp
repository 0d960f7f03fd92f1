// Names of a model file stand beside the emitted code's own: whatever that says itself must be no name of theirs.
#include "../../../lib/Emit/Tensor.h"
#include <fstream>
#include <gtest/gtest.h>
#include <regex>
#include <set>
#include <sstream>

using namespace megalith;

namespace {

/// What the shipped model files and the plan name in the golden kernels.
const std::set<std::string> ofModels = {
    "Down",    "GateUp", "Head", "TargetKv", "Wo",    "WqWkWv",   "attention",    "attn_norm",        "embed", "gate_up",
    "gate_up_operand", "h", "head_operand",  "mlp_norm", "new_keys", "new_values", "norm", "q",   "t",     "t2",
    "wq_wk_wv_operand", "x", "x2"};

/// The tensor half of a golden kernel, without comments and constants of matrices.
std::string tensorHalf(const std::string &name) {
  std::ifstream file(MEGALITH_SOURCE_DIR "/test/Goldens/" + name + ".cu");
  std::stringstream text;
  text << file.rdbuf();
  const std::string all = text.str();
  const size_t begin = all.find("struct Buffers {"), end = all.find("megalith_pack(");
  EXPECT_TRUE(begin < end && end != std::string::npos) << name;
  return std::regex_replace(all.substr(begin, end - begin), std::regex("//.*|#.*|\"[^\"]*\"|static constexpr.*"), "");
}

std::set<std::string> wordsOf(const std::string &text) {
  std::set<std::string> words;
  const std::regex word("([.]|->)?\\b([A-Za-z_][A-Za-z_0-9]*)");
  for (std::sregex_iterator it(text.begin(), text.end(), word), none; it != none; ++it)
    if (!(*it)[1].matched)
      words.insert((*it)[2]);
  return words;
}

TEST(Names, WhatTheKernelSaysItselfIsReserved) {
  for (const char *golden : {"autoregressive", "speculative_lookup", "adaptive_speculative"}) {
    size_t own = 0;
    for (const std::string &word : wordsOf(tensorHalf(golden))) {
      // Functions of phases and segments begin with the model's name, as no local name does, and words of the compiler with two underscores.
      if (ofModels.count(word) || word.starts_with("target") || word.starts_with("__"))
        continue;
      EXPECT_NE(emit::identifier(word), word) << golden << " says `" << word << "`, which a model file may name as well";
      ++own;
    }
    EXPECT_GT(own, 100u);
  }
}

TEST(Names, MacrosAndKeywordsAreReserved) {
  for (const char *name : {"assert", "EOF", "NULL", "blockIdx", "gridDim", "threadIdx", "__restrict__", "class", "float", "float4"})
    EXPECT_NE(emit::identifier(name), name);
}

TEST(Names, OthersStay) {
  for (const char *name : {"x", "q", "w_down", "attn_norm", "tokens2", "hidden"})
    EXPECT_EQ(emit::identifier(name), name);
  EXPECT_EQ(emit::identifier("row"), "row_");
  EXPECT_EQ(emit::identifier("row_"), "row__");
  EXPECT_EQ(emit::identifier("2x"), "v2x");
  EXPECT_EQ(emit::identifier("a.b"), "a_b");
}

} // namespace
