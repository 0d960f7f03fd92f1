#include "megalith/Support/Diagnostics.h"
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
  diags.report(Diag::ExprSyntax, {file, 2, 2, 1}, "x", "y"); // tabs and control bytes become blanks
  EXPECT_EQ(diags.render(), "p.yaml:1:2: error: expected x, found y [expr-syntax]\n"
                            "    1 | ab\n"
                            "      |  ^\n"
                            "p.yaml:1:3: error: expected x, found y [expr-syntax]\n"
                            "    1 | ab\n"
                            "      |   ^\n"
                            "p.yaml:2:2: error: expected x, found y [expr-syntax]\n"
                            "    2 |  c \n"
                            "      |  ^\n");
}

TEST_F(DiagnosticsTest, longLinesAreClippedAroundTheCaret) {
  std::string line = std::string(500, 'a') + "!" + std::string(500, 'b');
  uint32_t file = add(line);
  diags.report(Diag::ExprSyntax, {file, 1, 501, 1}, "x", "y");
  EXPECT_EQ(diags.render(), "p.yaml:1:501: error: expected x, found y [expr-syntax]\n"
                            "    1 | ..." + std::string(60, 'a') + "!" + std::string(99, 'b') + "...\n"
                            "      | " + std::string(63, ' ') + "^\n");
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
