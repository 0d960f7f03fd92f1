#include "megalith/Automata/Format.h"
#include <gtest/gtest.h>

using namespace megalith::automata;

static std::string formatProblem(std::string_view format, const Limits &limits = {}) {
  try {
    readFormat(format, limits);
  } catch (const Refused &refused) {
    return refused.message;
  }
  return "no problem";
}
static bool formatAccepts(std::string_view format, std::string_view text) {
  return readFormat(format).automaton.accepts(text);
}

TEST(Format, HasFourKinds) {
  EXPECT_TRUE(formatAccepts(R"({"regex": "[a-c]+\\d"})", "abc7"));
  EXPECT_FALSE(formatAccepts(R"({"regex": "[a-c]+\\d"})", "abc"));
  // Texts, not expressions; one may begin another.
  for (const char *text : {"a.c", "a.cd", "é|"})
    EXPECT_TRUE(formatAccepts(R"({"choice": ["a.c", "a.cd", "é|"]})", text)) << text;
  for (const char *text : {"abc", "a.", "", "é", "a.ca.c"})
    EXPECT_FALSE(formatAccepts(R"({"choice": ["a.c", "a.cd", "é|"]})", text)) << text;
  EXPECT_EQ(readFormat(R"({"choice": ["yes", "yes", "no"]})").automaton, compile("yes|no"));
  EXPECT_TRUE(formatAccepts(R"({"json": 1})", "[1, 2]"));
  EXPECT_FALSE(formatAccepts(R"({"json": 1})", "[[1]]"));
  EXPECT_TRUE(formatAccepts(R"({"json": 0})", "\"a\""));
  // The order of keys is that of the schema, which is not that of the alphabet.
  const char *schema =
      R"({"json_schema": {"type": "object", "properties": {"b": {"type": "null"}, "a": {"type": "null"}},
                                           "required": ["a", "b"], "additionalProperties": false}})";
  EXPECT_TRUE(formatAccepts(schema, R"({"b": null, "a": null})"));
  EXPECT_FALSE(formatAccepts(schema, R"({"a": null, "b": null})"));
  EXPECT_EQ(readFormat(schema).notes.size(), 0u);
  const char *deep = R"({"depth": 2, "json_schema": {"$defs": {"n": {"type": "array", "items": {"$ref": "#/$defs/n"}}},
                                                     "$ref": "#/$defs/n"}})";
  EXPECT_TRUE(formatAccepts(deep, "[[]]"));
  EXPECT_FALSE(readFormat(deep).notes.empty()); // what is deeper
}

TEST(Format, SaysWhatItIsNot) {
  const std::string kinds = "`regex`, `choice`, `json_schema` or `json`";
  EXPECT_EQ(formatProblem("[1]"), "the format must be an object with one of " + kinds + ", found `[1]`");
  EXPECT_EQ(formatProblem("{}"), "the format has none of " + kinds);
  EXPECT_EQ(formatProblem(R"({"depth": 1})"), "the format has none of " + kinds);
  EXPECT_EQ(formatProblem(R"({"grammar": ""})"), "the format has a member `grammar`; it has one of " + kinds);
  EXPECT_EQ(formatProblem(R"({"regex": "a", "json": 1})"),
            "the format has both `regex` and `json`; it has one of " + kinds);
  EXPECT_EQ(formatProblem(R"({"regex": "a", "depth": 1})"),
            "`depth` of the format is of `json_schema`, not of `regex`");
  EXPECT_EQ(formatProblem(R"({"regex": 1})"), "`regex` of the format must be a text, found `1`");
  EXPECT_EQ(formatProblem(R"({"choice": []})"), "`choice` of the format must be a list of texts, found `[]`");
  EXPECT_EQ(formatProblem(R"({"choice": ["a", ""]})"),
            "`choice` of the format must hold texts that are not empty, found `\"\"`");
  for (const char *depth : {"-1", "1.5", "\"a\"", "1001", "true"})
    EXPECT_EQ(formatProblem(std::string(R"({"json": )") + depth + "}"),
              "`json` of the format must be a whole number, how deep lists and objects may be nested, found `" +
                  std::string(depth) + "`");
  EXPECT_EQ(formatProblem(R"({"json_schema": {}, "depth": []})").substr(0, 36), "`depth` of the format must be a whol");
  EXPECT_EQ(formatProblem(R"({"regex": "a)").substr(0, 22), "the format is no JSON:");
  EXPECT_NE(formatProblem(R"({"json": 20})"), "no problem");
  EXPECT_NE(formatProblem(R"x({"regex": "(?=a)"})x"), "no problem");
  EXPECT_NE(formatProblem(R"({"json_schema": {"multipleOf": 1}})"), "no problem");
  Limits few;
  few.nodes = 40;
  EXPECT_EQ(formatProblem(R"({"choice": ["abcdefgh", "ijklmnop"]})", few).substr(0, 30),
            "`choice` of the format has mor");
}
