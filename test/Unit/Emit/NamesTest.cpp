// The user's names in the emitted source. tools/check_names.py compiles every word in every place
// (test/Emit/words-as-names.test).
#include "../../../lib/Emit/Names.h"
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <regex>
#include <sstream>

using namespace megalith;
using emit::cppName, emit::localName, emit::typeName, emit::functionName;

namespace {

std::string read(const std::filesystem::path &path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

/// Words of C++ text, without comments and strings.
std::set<std::string> wordsOf(const std::string &text) {
  std::set<std::string> words;
  const std::string code = std::regex_replace(text, std::regex("//[^\n]*|#line[^\n]*|\"[^\"\n]*\""), "");
  const std::regex word("[A-Za-z_]\\w*");
  for (std::sregex_iterator it(code.begin(), code.end(), word), none; it != none; ++it)
    words.insert(it->str());
  return words;
}

TEST(Names, StayThemselves) {
  for (const char *name : {"x", "q", "w_down", "attn_norm", "tokens2", "hidden", "row", "Layer", "NULL", "blockIdx",
                           "std", "x_", "a__b", "t"})
    EXPECT_EQ(cppName(name), name);
  EXPECT_EQ(localName("h"), "h_");
  EXPECT_EQ(typeName("wq_wk_wv"), "WqWkWv");
  EXPECT_EQ(functionName("fill_cache"), "fillCache");
  EXPECT_EQ(functionName("FillCache"), "fillCache");
}

TEST(Names, WhatTheLanguageTakesIsMarked) {
  for (const char *word : {"class", "float", "concept", "requires", "char16_t", "co_await", "and_eq", "static_assert"})
    EXPECT_EQ(cppName(word), std::string(word) + "_");
  // The compilers' own: their macros and keywords, of any version.
  for (const char *word : {"_x", "__LINE__", "__CUDA_ARCH__", "_Float16", "_", "__device__"}) {
    EXPECT_EQ(cppName(word), std::string("v") + word);
    EXPECT_EQ(localName(word), std::string("v") + word + "_");
  }
  EXPECT_EQ(functionName("float"), "float_");
  EXPECT_EQ(functionName("_"), "v");
  EXPECT_EQ(typeName("__"), "v");
}

TEST(Names, OfIrTextBecomeWords) {
  EXPECT_EQ(cppName("block.size"), "block_size");
  EXPECT_EQ(cppName("wqkv[:, 0]"), "wqkv_0_");
  EXPECT_EQ(cppName("2x"), "v2x");
  EXPECT_EQ(cppName(""), "v");
  EXPECT_EQ(typeName("2x"), "v2x");
  const std::regex word("[A-Za-z]\\w*");
  for (int byte = 0; byte < 256; ++byte) {
    const std::string name = std::string("a") + char(byte) + "b", first = std::string(1, char(byte)) + "b";
    for (const std::string &made :
         {cppName(name), cppName(first), localName(first), typeName(first), functionName(first)})
      EXPECT_TRUE(std::regex_match(made, word)) << byte << ": " << made;
  }
}

TEST(Names, NoTwoOfAPlaceAreEqual) {
  emit::NameSet place{"t", "r"};
  std::set<std::string> given = {"t", "r"};
  for (const char *name : {"float", "float_", "_x", "v_x", "t", "t2", "t", "fill_cache", "a.b", "a_b", "r"})
    EXPECT_TRUE(given.insert(place.claim(cppName(name))).second) << name;
  emit::NameSet functions;
  given.clear();
  for (const char *name : {"fill_cache", "fillCache", "FillCache", "fill_cache2", "_fill_cache", "fill__cache"})
    EXPECT_TRUE(given.insert(functions.claim(functionName(name))).second) << name;
}

TEST(Names, LocalsOfAScopeMeetNoneAroundIt) {
  emit::Locals stage = emit::Locals::ofStage();
  EXPECT_EQ(stage.variable("tier"), "tier");
  EXPECT_EQ(stage.variable("t"), "t2") << "the activation";
  EXPECT_EQ(stage.variable("float"), "float_");
  EXPECT_EQ(stage.variable("", "count"), "count");
  emit::Locals inner = stage;
  EXPECT_EQ(inner.variable("tier"), "tier2");
  EXPECT_EQ(stage.variable("next"), "next");
  EXPECT_EQ(inner.variable("next"), "next") << "beside it, not around it";
  emit::Locals model = emit::Locals::ofModel();
  EXPECT_EQ(model.variable("h"), "h_");
  EXPECT_EQ(model.variable("h", "t", "Partner"), "h_Partner");
  EXPECT_EQ(model.variable("", "t"), "t");
  EXPECT_EQ(model.variable("", "t"), "t2");
}

TEST(Names, NoneOfTheKernelsOwnEndsAsAModelsLocalsDo) {
  // In functions of a model, locals of the user end in `_`, or in `_` and a number.
  const std::regex local("(?!__)\\w*_(\\d*|Partner\\d*)");
  std::set<std::string> own;
  for (const auto &file : std::filesystem::recursive_directory_iterator(MEGALITH_SOURCE_DIR "/device"))
    if (file.is_regular_file() && file.path().extension() != ".txt") // the flags for editors
      own.merge(wordsOf(read(file.path())));
  EXPECT_GT(own.size(), 1000u);
  for (const std::string &word : own)
    EXPECT_FALSE(!word.starts_with("_") && std::regex_match(word, local)) << word;
  // And of kernels those that do are names of the shipped model.
  const std::set<std::string> ofModel = {"attn_norm_", "embed_", "h_", "mlp_norm_", "norm_", "x_"};
  for (const char *golden : {"autoregressive", "speculative_lookup", "adaptive_speculative"})
    for (const std::string &word : wordsOf(read(std::string(MEGALITH_SOURCE_DIR "/test/Goldens/") + golden + ".cu")))
      EXPECT_EQ(!word.starts_with("_") && std::regex_match(word, local), ofModel.count(word) != 0) << word;
}

TEST(Names, DeviceCodeLeavesNoMacro) {
  // But with a first `_`: they would meet names that a file of the user gives.
  const std::regex macro("#\\s*(define|undef)\\s+([A-Za-z]\\w*)");
  std::set<std::string> defined, undefined;
  std::vector<std::filesystem::path> files;
  for (const char *folder : {"/device", "/include/megalith/Contract"})
    for (const auto &file : std::filesystem::recursive_directory_iterator(std::string(MEGALITH_SOURCE_DIR) + folder))
      if (file.is_regular_file() && file.path().extension() != ".cpp")
        files.push_back(file.path());
  for (const auto &path : files) {
    const std::string text = read(path);
    for (std::sregex_iterator it(text.begin(), text.end(), macro), none; it != none; ++it)
      ((*it)[1] == "define" ? defined : undefined).insert((*it)[2]);
  }
  EXPECT_GT(defined.size(), 5u);
  EXPECT_EQ(defined, undefined);
}

} // namespace
