#include "megalith/Automata/Automaton.h"
#include <fmt/format.h>
#include <gtest/gtest.h>

using namespace megalith::automata;

static bool matches(std::string_view pattern, std::string_view text) { return compile(pattern).accepts(text); }

/// `byte: message`, or what the pattern became.
static std::string problemOf(std::string_view pattern, const Limits &limits = {}) {
  try {
    readExpression(pattern, limits);
  } catch (const Refused &refused) {
    return fmt::format("{}: {}", refused.byte ? static_cast<int>(*refused.byte) : -1, refused.message);
  }
  return "no problem";
}

TEST(Expression, Characters) {
  EXPECT_TRUE(matches("", ""));
  EXPECT_FALSE(matches("", "a"));
  EXPECT_TRUE(matches("abc", "abc"));
  EXPECT_FALSE(matches("abc", "ab"));
  EXPECT_FALSE(matches("abc", "abcd"));
  EXPECT_TRUE(matches("é☃😀", "é☃😀"));
  EXPECT_TRUE(matches(R"(\n\t\r\f\v\0)", std::string_view("\n\t\r\f\v\0", 6)));
  EXPECT_TRUE(matches(R"(\x41\xe9\u2603\u{1F600}\U0001F600\u{41})", "Aé☃😀😀A"));
  EXPECT_TRUE(matches(R"(\\\.\*\+\?\(\)\[\]\{\}\|\^\$\-\/\"\ \#)", R"(\.*+?()[]{}|^$-/" #)"));
  EXPECT_TRUE(matches("a{b}]{,x{1,x{}", "a{b}]{,x{1,x{}"));
}

TEST(Expression, Classes) {
  for (const char *text : {"a", "é", "☃", "😀", "\r", "\x7f"})
    EXPECT_TRUE(matches(".", text)) << text;
  for (const char *text : {"", "\n", "ab", "\xff", "\xc3", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xc0\x80"})
    EXPECT_FALSE(matches(".", text)) << text;
  EXPECT_EQ(compile("[a-cx]"), compile("a|b|c|x"));
  EXPECT_EQ(compile("[]a]"), compile(R"([\]a])"));
  EXPECT_EQ(compile("[^]a]"), compile(R"([^\]a])"));
  EXPECT_EQ(compile("[a-]"), compile(R"(a|-)"));
  EXPECT_EQ(compile("[-a]"), compile(R"(a|-)"));
  EXPECT_EQ(compile(R"([\d-])"), compile("[0-9]|-"));
  EXPECT_EQ(compile(R"(\d\w\s)"), compile(R"([0-9][0-9A-Z_a-z][ \t\n\r\f\v])"));
  EXPECT_EQ(compile(R"(\D\W\S)"), compile(R"([^0-9][^0-9A-Z_a-z][^ \t\n\r\f\v])"));
  EXPECT_EQ(compile(R"([\D])"), compile(R"([^\d])"));
  EXPECT_EQ(compile(R"([\s\S])"), compile(R"(.|\n)"));
  EXPECT_EQ(compile(R"([^\n])"), compile("."));
  EXPECT_EQ(compile(R"([\u0000-\U0010FFFF])"), compile(R"([\s\S])"));
  EXPECT_EQ(compile("[é-☃]"), compile(R"([\u00e9-\u2603])"));
  EXPECT_EQ(compile("[[a]"), compile(R"(\[|a)"));
  EXPECT_FALSE(matches(R"(\d)", "٣")); // ASCII
  EXPECT_FALSE(matches(R"(\w)", "é"));
}

TEST(Expression, GroupsAlternativesRepeats) {
  for (const char *pattern :
       {"(ab|c)+", "(?:ab|c)+", "(?P<name>ab|c)+", "(?<n_1>ab|c)+?", "(ab|c)(ab|c)*", "(ab|c){1,}"})
    EXPECT_EQ(compile(pattern), compile("(?:ab|c)(?:ab|c)*?")) << pattern;
  EXPECT_EQ(compile("a{2}"), compile("aa"));
  EXPECT_EQ(compile("a{2,}"), compile("aaa*"));
  EXPECT_EQ(compile("a{2,4}?"), compile("aa|aaa|aaaa"));
  EXPECT_EQ(compile("a{,2}"), compile("|a|aa"));
  EXPECT_EQ(compile("a{,}"), compile("a*"));
  EXPECT_EQ(compile("a{0}"), compile(""));
  EXPECT_EQ(compile("(a*)*"), compile("a*"));
  EXPECT_EQ(compile("(a?){3}"), compile("a{0,3}"));
  EXPECT_EQ(compile("(a{2}){3}"), compile("a{6}"));
  EXPECT_EQ(compile("a|"), compile("a?"));
  EXPECT_EQ(compile("()"), compile(""));
}

TEST(Expression, AnchorsAtTheEnds) {
  for (const char *pattern : {"^ab$", R"(\Aab\Z)", R"(ab\z)", "^^ab$$", R"(^\Aab)"})
    EXPECT_EQ(compile(pattern), compile("ab")) << pattern;
  EXPECT_EQ(compile("^a|^b$|c$"), compile("a|b|c"));
  EXPECT_EQ(compile("^$"), compile(""));
  EXPECT_EQ(problemOf("a^"),
            "1: column 2 of the expression: the anchor `^` with something before it; the whole text is "
            "meant anyway: leave it out, or put a backslash before `^` or `$` for the character");
  EXPECT_EQ(problemOf("ab|c$d").substr(0, 67), "4: column 5 of the expression: `$` with something behind it, which ");
  EXPECT_EQ(problemOf(R"(x\Z(a))").substr(0, 50), R"(1: column 2 of the expression: `\Z` with something)");
  EXPECT_EQ(problemOf("(^a)").substr(0, 60), "1: column 2 of the expression: the anchor `^` inside of a gr");
  EXPECT_EQ(problemOf("(?:a$)").substr(0, 60), "4: column 5 of the expression: the anchor `$` inside of a gr");
  EXPECT_EQ(problemOf("$^").substr(0, 50), "1: column 2 of the expression: the anchor `^` with");
  EXPECT_EQ(problemOf("^*").substr(0, 52), "1: column 2 of the expression: nothing to repeat bef");
}

/// Each with its place and its name.
TEST(Expression, Refusals) {
  const struct {
    std::string_view pattern;
    int byte;
    const char *says;
  } cases[] = {
      {"a(?=b)", 1, "look-ahead `(?=`"},
      {"a(?!b)", 1, "negative look-ahead `(?!`"},
      {"(?<=b)a", 0, "look-behind `(?<=`"},
      {"(?<!b)a", 0, "negative look-behind `(?<!`"},
      {R"((a)\1)", 3, R"(backreference `\1`)"},
      {R"((?P<n>a)(?P=n))", 8, "backreference `(?P=`"},
      {R"((?<n>a)\k<n>)", 7, R"(backreference `\k`)"},
      {R"(a\b)", 1, R"(`\b` is not supported: a boundary)"},
      {R"(\Ba)", 0, R"(`\B` is not supported: a boundary)"},
      {R"([\b])", 1, R"(`\x08`)"},
      {"(?>a)", 0, "atomic group"},
      {"a++", 1, "possessive repeat `+`"},
      {"a{2}+", 1, "possessive repeat `{2}`"},
      {"(a)(?(1)b|c)", 3, "conditional"},
      {"(?i)a", 0, "inline flags `(?i)` are not supported; for `i` write both cases"},
      {"a(?s:.)", 1, R"(for `s` write `[\s\S]`)"},
      {"(?-m)a", 0, "`m` means nothing"},
      {"(?ix)a", 0, "for `x` leave blanks"},
      {"(?#text)a", 0, "comment"},
      {"(?R)", 0, "recursion"},
      {"(?Q)", 0, "inline flags"},
      {"(?", 0, "unknown group"},
      {"(?P<n", 0, "name of the group"},
      {"(?P<>a)", 4, "group's name"},
      {"(?P<1>a)", 4, "group's name"},
      {"(?P<n-m>a)", 5, "group's name"},
      {R"(\p{L})", 0, R"(properties of Unicode, `\p`)"},
      {R"([\P{L}])", 1, R"(properties of Unicode, `\P`)"},
      {"[[:alpha:]]", 1, "POSIX classes"},
      {R"(a\q)", 1, R"(unknown escape `\q`)"},
      {R"(\012)", 0, "octal"},
      {R"(\é)", 0, "beyond ASCII"},
      {"a\\", 1, "backslash at the end"},
      {"a)", 1, "closes no group"},
      {"a(b", 1, "not closed; add `)`"},
      {"a[b", 1, "not closed; add `]`"},
      {"[]", 0, "not closed; add `]`"},
      {"*a", 0, "nothing to repeat before `*`"},
      {"a|+", 2, "nothing to repeat before `+`"},
      {"({2})", 1, "nothing to repeat before `{2}`"},
      {"a**", 2, "`*` repeats a repeat"},
      {"a{2}{3}", 4, "`{3}` repeats a repeat"},
      {"a+?*", 3, "`*` repeats a repeat"},
      {"a{3,2}", 1, "`{3,2}` has more at least than at most"},
      {"a{99999999999999999999}", 2, "a repeat of 99999999999999999999 times"},
      {"a{1,4294967295}", 4, "a repeat of 4294967295 times"},
      {"[b-a]", 1, "from U+0062 down to U+0061"},
      {R"([a-\d])", 1, "ends in a class"},
      {R"([\d-a])", 1, "ends in a class"},
      {"a\xff", 1, "0xff is no UTF-8"},
      {"a\xed\xa0\x80", 1, "0xed is no UTF-8"},
      {"\xf4\x90\x80\x80", 0, "no UTF-8"},
      {"[\xc3]", 1, "no UTF-8"},
      {R"(\ud83d\ude00)", 0, "surrogate"},
      {R"([a-\udfff])", 3, "surrogate"},
      {R"(\U00110000)", 0, "beyond U+10FFFF"},
      {R"(\u{110000})", 0, "beyond U+10FFFF"},
      {R"(\u{})", 0, "0 hexadecimal digits"},
      {R"(\u{41)", 0, "does not end with `}`"},
      {R"(a\x4)", 1, "1 hexadecimal digits where 2"},
      {R"(\u12g4)", 0, "2 hexadecimal digits where 4"},
      {R"(\U1234567)", 0, "7 hexadecimal digits where 8"},
  };
  for (const auto &[pattern, byte, says] : cases) {
    const std::string problem = problemOf(pattern);
    EXPECT_TRUE(problem.starts_with(fmt::format("{}: column {} of", byte, byte + 1))) << pattern << "\n" << problem;
    EXPECT_NE(problem.find(says), std::string::npos) << pattern << "\n" << problem;
  }
}

TEST(Expression, MessagesAreSafe) {
  const std::string problem = problemOf("(?P<a>b)[\x1b-\x02]");
  EXPECT_EQ(problem.find('\x1b'), std::string::npos) << problem;
  EXPECT_NE(problem.find("\\x1b"), std::string::npos) << problem;
}

TEST(Expression, EscapedTextMatchesItselfAlone) {
  std::string all;
  for (char c = 1; c < 127; ++c)
    all += c;
  all += "é☃😀";
  const Automaton automaton = compile(escaped(all));
  EXPECT_TRUE(automaton.accepts(all));
  EXPECT_EQ(automaton.states(), all.size() + 1);
  EXPECT_EQ(automaton.forcedText(automaton.start, 1000), all);
  EXPECT_TRUE(matches(escaped("a.b") + "|" + escaped("x|y"), "x|y"));
  EXPECT_FALSE(matches(escaped("a.b") + "|" + escaped("x|y"), "x"));
  EXPECT_THROW(escaped("\xff"), Refused);
}

TEST(Expression, LengthHasALimit) {
  EXPECT_EQ(problemOf("aaaaaaaaaaa", {.nodes = 10}), "10: the expression has 11 bytes, 10 are allowed (limit `nodes`); "
                                                     "write a shorter one");
  EXPECT_EQ(problemOf("[abcdefgh][abc]", {.nodes = 15}), "no problem");
  EXPECT_EQ(problemOf("a(b)c(d)", {.nodes = 8}).substr(0, 55),
            "8: column 9 of the expression: the expression has more ");
  const std::string deep = std::string(300'000, '(') + "a" + std::string(300'000, ')');
  EXPECT_EQ(compile(deep), compile("a"));
  EXPECT_EQ(problemOf(std::string(300'000, '(')).substr(0, 40), "299999: column 300000 of the expression:");
  EXPECT_EQ(compile(std::string(100'000, '(') + "a" +
                    [] {
                      std::string end;
                      for (int i = 0; i < 100'000; ++i)
                        end += ")?";
                      return end;
                    }()),
            compile("a?"));
}
