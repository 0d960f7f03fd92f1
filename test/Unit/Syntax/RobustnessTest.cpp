#include "../Terminal.h"
#include "SyntaxTesting.h"
#include <filesystem>
#include <gtest/gtest.h>
#include <random>

namespace megalith {
namespace {

/// Every text gives a tree or a diagnostic, never both, never neither.
void parseBoth(const std::string &text) {
  ParsedPipeline pipeline(text);
  ASSERT_NE(pipeline.ast.has_value(), pipeline.diags.hasErrors()) << text;
  ParsedModel model(text);
  ASSERT_NE(model.ast.has_value(), model.diags.hasErrors()) << text;
  // Rendering looks up every place that was given.
  ASSERT_FALSE(controlsTerminal(pipeline.diags.render())) << text;
  ASSERT_FALSE(controlsTerminal(model.diags.render())) << text;
  if (pipeline.ast)
    ast::print(*pipeline.ast);
  if (model.ast)
    ast::print(*model.ast);
}

std::vector<std::string> shippedTexts() {
  std::vector<std::string> texts;
  const std::filesystem::path root = std::filesystem::path(MEGALITH_SOURCE_DIR) / "pipelines";
  SourceFiles files;
  std::string reason;
  for (const auto &entry : std::filesystem::recursive_directory_iterator(root))
    if (entry.path().extension() == ".yaml")
      texts.push_back(files.text(*files.open(entry.path().string(), reason)).str());
  return texts;
}

TEST(Robustness, Prefixes) {
  size_t begin = 0; // the files have much in common, and another place in each
  for (const std::string &text : shippedTexts())
    for (size_t size = begin++; size <= text.size(); size += 23)
      parseBoth(text.substr(0, size));
}

TEST(Robustness, EveryByte) {
  const std::string text = "pipeline: p\nparams:\n  a: 'min(1, 2)' # c\nstates:\n  A: {initial: true}\nstages: {}\n";
  for (int b = 0; b < 256; ++b)
    for (size_t at = 0; at <= text.size(); at += 5) {
      std::string edited = text;
      parseBoth(edited.insert(at, 1, static_cast<char>(b)));
    }
}

TEST(Robustness, ManyErrorsAndManyValues) {
  std::string text = "pipeline: p\n";
  for (int i = 0; i < 9'000; ++i)
    text += "x: 1\n";
  ParsedPipeline repeated(text);
  EXPECT_GT(repeated.diags.errors(), 8'900u);
  EXPECT_LT(repeated.diags.render().size(), 10'000u);
  EXPECT_NE(repeated.diags.render().find(" more errors\n"), std::string::npos);

  text.clear();
  for (int i = 0; i < 1'000'000; ++i)
    text += "x: 1\n";
  ParsedPipeline many(text);
  EXPECT_EQ(many.diags.render(), "t.yaml:10000:4: error: YAML has more than 20000 values [too-many-values]\n"
                                 "10000 | x: 1\n"
                                 "      |    ^\n");
}

TEST(Robustness, Mutations) {
  std::mt19937 random(1);
  const std::string alphabet = " \n\t:-[]{}()'\"#&*!|>%@`?,.=+<0a_\xC3\x80\x04";
  for (const std::string &original : shippedTexts()) {
    for (int round = 0; round < 120; ++round) {
      std::string text = original;
      for (unsigned edits = 1 + random() % 4; edits > 0; --edits) {
        size_t at = random() % text.size();
        char c = alphabet[random() % alphabet.size()];
        switch (random() % 4) {
        case 0:
          text[at] = c;
          break;
        case 1:
          text.insert(at, 1, c);
          break;
        case 2:
          text.erase(at, 1 + random() % 8);
          break;
        case 3:
          text.insert(at, original.substr(random() % original.size(), random() % 40));
          break;
        }
        if (text.empty())
          text.push_back(' ');
      }
      parseBoth(text);
    }
  }
}

TEST(Robustness, RandomExpressions) {
  std::mt19937 random(2);
  const std::vector<std::string> words = {"a",   "b.c", "1",  "0.5",  "''s''", "(",  ")",        "[", "]",       ",",
                                          ":",   "..",  "=",  "+=",   "==",    "<",  "+",        "-", "*",       "not",
                                          "and", "or",  "if", "else", "in",    "f(", "i in 0..", "&", "\xC3\xA9"};
  unsigned accepted = 0;
  for (int round = 0; round < 4000; ++round) {
    std::string text;
    for (unsigned count = random() % 10; count > 0; --count)
      text += words[random() % words.size()] + (random() % 2 ? " " : "");
    ParsedPipeline parsed(withParams("  x: '" + text + "'\n"));
    ASSERT_NE(parsed.ast.has_value(), parsed.diags.hasErrors()) << text;
    ASSERT_LE(parsed.diags.errors(), 1u) << text;
    accepted += parsed.ast.has_value();
  }
  EXPECT_GT(accepted, 50u);
}

} // namespace
} // namespace megalith
