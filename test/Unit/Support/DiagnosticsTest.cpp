#include "megalith/Support/Diagnostics.h"
#include "../Terminal.h"
#include <algorithm>
#include <gtest/gtest.h>

using namespace megalith;

namespace {

class DiagnosticsTest : public ::testing::Test {
protected:
  uint32_t add(const std::string &text) { return files.add("p.yaml", text); }
  SourceFiles files;
  Diagnostics diags{files};
};

TEST_F(DiagnosticsTest, pointsAtThePlace) {
  uint32_t file = add("kv:\n  target: {page: 16}\n");
  diags.report(Diag::UnknownKey, {file, 2, 12, 4}, "page", "`kv.target`");
  diags.suggest("page", {"pages", "watermark"});
  EXPECT_EQ(diags.render(), "p.yaml:2:12: error: unknown key `page` in `kv.target` [unknown-key]\n"
                            "    2 |   target: {page: 16}\n"
                            "      |            ^~~~\n"
                            "note: did you mean `pages`?\n");
  EXPECT_EQ(diags.errors(), 1u);
}

TEST_F(DiagnosticsTest, warningsAreNoErrors) {
  diags.report(Diag::CacheUnsafe, {}, "/x", "it is writable by others");
  EXPECT_FALSE(diags.hasErrors());
  EXPECT_EQ(diags.render(), "warning: the kernel cache `/x` is not used: it is writable by others [cache-unsafe]\n");
}

TEST_F(DiagnosticsTest, notesHavePlacesToo) {
  uint32_t file = add("a: 1\na: 2\n");
  diags.report(Diag::DuplicateKey, {file, 2, 1, 1}, "a", "the file");
  diags.note({file, 1, 1, 1}, "first here");
  EXPECT_EQ(diags.render(), "p.yaml:2:1: error: key `a` appears twice in the file [duplicate-key]\n"
                            "    2 | a: 2\n"
                            "      | ^\n"
                            "p.yaml:1:1: note: first here\n"
                            "    1 | a: 1\n"
                            "      | ^\n");
}

TEST_F(DiagnosticsTest, caretStaysInTheLine) {
  uint32_t file = add("ab\n\tc\x01");
  diags.report(Diag::ExprSyntax, {file, 1, 2, 99}, "x", "y");
  diags.report(Diag::ExprSyntax, {file, 1, 3, 5}, "x", "y"); // one past the end
  diags.report(Diag::ExprSyntax, {file, 2, 2, 1}, "x", "y"); // a tab becomes a blank
  EXPECT_EQ(diags.render(), "p.yaml:1:2: error: expected x, found y [expr-syntax]\n"
                            "    1 | ab\n"
                            "      |  ^\n"
                            "p.yaml:1:3: error: expected x, found y [expr-syntax]\n"
                            "    1 | ab\n"
                            "      |   ^\n"
                            "p.yaml:2:2: error: expected x, found y [expr-syntax]\n"
                            "    2 |  c\\x01\n"
                            "      |  ^\n");
}

// Edited IR names them.
TEST_F(DiagnosticsTest, placesAfterTheFileAreNone) {
  uint32_t file = add("ab\nc\n");
  for (const SourceLoc &loc :
       {SourceLoc{file, 3, 1}, {file, 4, 1}, {file, 2147483648, 1}, {file, 2, 2}, {file, 2, 3}, {file + 1, 1, 1}}) {
    diags.report(Diag::ExprSyntax, loc, "x", "y");
    diags.note(loc, "so");
  }
  EXPECT_EQ(diags.render(), "p.yaml:3:1: error: expected x, found y [expr-syntax]\n"
                            "    3 | \n"
                            "      | ^\n"
                            "p.yaml:3:1: note: so\n"
                            "    3 | \n"
                            "      | ^\n"
                            "error: expected x, found y [expr-syntax]\n"
                            "note: so\n"
                            "error: expected x, found y [expr-syntax]\n"
                            "note: so\n"
                            "p.yaml:2:2: error: expected x, found y [expr-syntax]\n"
                            "    2 | c\n"
                            "      |  ^\n"
                            "p.yaml:2:2: note: so\n"
                            "    2 | c\n"
                            "      |  ^\n"
                            "error: expected x, found y [expr-syntax]\n"
                            "note: so\n"
                            "error: expected x, found y [expr-syntax]\n"
                            "note: so\n");
}

/// Line 1 of the shown source and the caret's line.
std::string shown(const std::string &line, uint32_t column, uint32_t length) {
  SourceFiles files;
  Diagnostics diags(files);
  diags.report(Diag::ExprSyntax, {files.add("f", line), 1, column, length}, "x", "y");
  const std::string text = diags.render();
  return text.substr(text.find('\n') + 1);
}

TEST_F(DiagnosticsTest, caretStandsBelowWhatIsShown) {
  // An escape takes four columns, a wide character two, an accent of its own none.
  EXPECT_EQ(shown("a\x1b[b c", 5, 1), "    1 | a\\x1b[b c\n      |        ^\n");
  EXPECT_EQ(shown("a\x1b[b", 2, 2), "    1 | a\\x1b[b\n      |  ^~~~~\n");
  EXPECT_EQ(shown("\xe6\xbc\xa2\xe5\xad\x97 x", 8, 1), "    1 | \xe6\xbc\xa2\xe5\xad\x97 x\n      |      ^\n");
  EXPECT_EQ(shown("\xe6\xbc\xa2\xe5\xad\x97 x", 4, 3), "    1 | \xe6\xbc\xa2\xe5\xad\x97 x\n      |   ^~\n");
  EXPECT_EQ(shown("e\xcc\x81 x", 5, 1), "    1 | e\xcc\x81 x\n      |   ^\n");
  EXPECT_EQ(shown("caf\xc3\xa9 x", 7, 1), "    1 | caf\xc3\xa9 x\n      |      ^\n");
  EXPECT_EQ(shown("caf\xe9 x", 6, 1), "    1 | caf\\xe9 x\n      |         ^\n");
  EXPECT_EQ(shown("x y\r\nz", 3, 1), "    1 | x y\n      |   ^\n");
  EXPECT_EQ(shown("x\ry", 3, 1), "    1 | x\\x0dy\n      |      ^\n");
  EXPECT_EQ(shown("", 1, 1), "    1 | \n      | ^\n");
}

TEST_F(DiagnosticsTest, noByteControlsTheTerminal) {
  for (int b = 0; b < 256; ++b) {
    const std::string byte(1, static_cast<char>(b));
    SourceFiles sources;
    Diagnostics all(sources);
    const uint32_t file = sources.add("d" + byte + "/f", "a" + byte + "c\n" + byte + byte + "\xe2\x80" + byte + "\n");
    long lines = 0;
    for (uint32_t line = 1; line <= 3; ++line)
      for (uint32_t column = 0; column <= 7; ++column) {
        const bool reports = column % 4 == 0;
        lines += (sources.has({file, line, column}) ? 3 : 1) * (reports ? 2 : 1);
        if (reports)
          all.report(Diag::UnknownKey, {file, line, column, 1 + column % 3}, byte + "k", "a" + byte);
        all.note({file, line, column, 3}, "n" + byte);
      }
    EXPECT_FALSE(controlsTerminal(all.render())) << b << "\n" << all.render();
    const std::string rendered = all.render();
    // A message is one line: whoever chose the text cannot forge a second one.
    EXPECT_EQ(std::count(rendered.begin(), rendered.end(), '\n'), lines) << b;
  }
  diags.report(Diag::UnknownKey, {},
               "\xc2\x9b"
               "31m",
               "x\nerror: y");
  EXPECT_EQ(diags.render(), "error: unknown key `\\xc2\\x9b31m` in x\\x0aerror: y [unknown-key]\n");
}

TEST_F(DiagnosticsTest, longTextIsCut) {
  const std::string name(1'000'000, 'n');
  diags.report(Diag::UnknownKey, {}, name, "`kv`");
  EXPECT_EQ(diags.render(), "error: unknown key `" + std::string(1000, 'n') + "...` in `kv` [unknown-key]\n");
  diags.suggest(name, {"pages"});
  diags.note(name);
  EXPECT_LT(diags.render().size(), 6000u);
  // Not inside a character.
  std::string accents = "x";
  for (int i = 0; i < 1000; ++i)
    accents += "\xc3\xa9";
  SourceFiles sources;
  Diagnostics other(sources);
  other.report(Diag::UnknownKey, {}, accents, "`kv`");
  EXPECT_EQ(other.render(), "error: unknown key `" + accents.substr(0, 999) + "...` in `kv` [unknown-key]\n");
  // Whatever stands around the caret, a source line is short.
  for (uint32_t column : {1, 2, 3, 500, 501, 1000, 1999, 2000, 2001, 2002, 5000}) {
    EXPECT_LT(shown(accents, column, 5000).size(), 450u) << column;
    EXPECT_FALSE(controlsTerminal(shown(accents, column, 5000))) << column;
  }
}

TEST_F(DiagnosticsTest, onlyTheFirstErrorsAreShown) {
  const uint32_t file = add("a\n");
  for (unsigned i = 1; i <= 1'000'000; ++i) {
    diags.report(Diag::UnknownName, {file, 1, 1, 1}, std::to_string(i));
    diags.suggest("x", {"x"});
    diags.note("a note of " + std::to_string(i));
  }
  const std::string text = diags.render();
  EXPECT_EQ(diags.errors(), 1'000'000u);
  EXPECT_NE(text.find("unknown name `20`"), text.npos);
  EXPECT_NE(text.find("a note of 20\n"), text.npos);
  EXPECT_EQ(text.find("unknown name `21`"), text.npos);
  EXPECT_EQ(text.find("a note of 21\n"), text.npos);
  EXPECT_EQ(text.substr(text.size() - 28), "\n... and 999980 more errors\n");

  SourceFiles sources;
  Diagnostics warnings(sources);
  for (unsigned i = 0; i < 21; ++i)
    warnings.report(Diag::CacheUnsafe, {}, "/x", std::to_string(i));
  warnings.report(Diag::UnknownName, {}, "an error is shown, however many warnings there were");
  EXPECT_NE(warnings.render().find("an error is shown"), text.npos);
  EXPECT_NE(warnings.render().find("\n... and 1 more warning\n"), text.npos);
}

TEST_F(DiagnosticsTest, longLinesAreClippedAroundTheCaret) {
  std::string line = std::string(500, 'a') + "!" + std::string(500, 'b');
  uint32_t file = add(line);
  diags.report(Diag::ExprSyntax, {file, 1, 501, 1}, "x", "y");
  EXPECT_EQ(diags.render(), "p.yaml:1:501: error: expected x, found y [expr-syntax]\n"
                            "    1 | ..." +
                                std::string(60, 'a') + "!" + std::string(99, 'b') +
                                "...\n"
                                "      | " +
                                std::string(63, ' ') + "^\n");
}

TEST_F(DiagnosticsTest, linesOfAFile) {
  uint32_t file = add("one\ntwo");
  EXPECT_EQ(files.line(file, 1), "one");
  EXPECT_EQ(files.line(file, 2), "two");
  EXPECT_EQ(files.line(file, 3), "");
  EXPECT_EQ(files.line(file, 0), "");
  std::string reason;
  EXPECT_FALSE(files.open("/none/at/all", reason));
  EXPECT_EQ(reason, "No such file or directory");
}

TEST(NearestName, allowsOneErrorInThreeLetters) {
  std::vector<std::string> names = {"slots", "rows_per_pass", "ngram"};
  EXPECT_EQ(nearestName("slot", names), "slots");
  EXPECT_EQ(nearestName("row_per_passs", names), "rows_per_pass");
  EXPECT_EQ(nearestName("ngram", names), "ngram");
  EXPECT_EQ(nearestName("pages", names), "");
  EXPECT_EQ(nearestName("x", {}), "");
  EXPECT_EQ(nearestName("widht", {"width"}), "width");
  EXPECT_EQ(nearestName("mihs", {"min", "mish_like"}), "");
}

TEST(DiagTable, kebabsAreUniqueAndFound) {
  std::vector<std::string> kebabs = {
#define DIAG(Id, Kebab, Severity, Text) Kebab,
#include "megalith/Support/Diagnostics.def"
  };
  for (size_t i = 0; i < kebabs.size(); ++i) {
    EXPECT_EQ(static_cast<size_t>(diagByKebab(kebabs[i])), i) << kebabs[i];
    EXPECT_STREQ(diagInfo(static_cast<Diag>(i)).kebab, kebabs[i].c_str());
  }
}

} // namespace
