#include "megalith/Json/JsonText.h"
#include <cmath>
#include <fmt/format.h>
#include <gtest/gtest.h>

using namespace megalith;
using nlohmann::json;

/// `line:column: message`.
static std::string problemOf(std::string_view text, const JsonOptions &options = {}) {
  json value;
  auto problem = parseJson(text, value, options);
  return problem ? fmt::format("{}:{}: {}", problem->line, problem->column, problem->message) : "no problem";
}

static json valueOf(std::string_view text, const JsonOptions &options = {}) {
  json value;
  EXPECT_EQ(problemOf(text, options), "no problem") << text;
  parseJson(text, value, options);
  return value;
}

/// The builder is ours: what it makes must be what the library makes.
TEST(JsonText, BuildsWhatTheLibraryBuilds) {
  for (const char *text :
       {"null", "true", "-7", "18446744073709551615", "18446744073709551616", "0.25", "\"a\\u00e9\\n\"", "[]", "{}",
        "[1, [2, [], {}], {\"a\": []}]", R"({"a": {"b": [1, {"c": {"d": 2}}, null]}, "e": "\\", "f\"g": [[true]]})",
        "\xef\xbb\xbf{\"bom\": 1}", " \t\r\n[ 1 , 2 ]\n"})
    EXPECT_EQ(valueOf(text), json::parse(text)) << text;
}

TEST(JsonText, ProblemsHavePlaces) {
  EXPECT_EQ(problemOf("{\n  \"a\": 1,\n  \"b\": }\n"),
            "3:8: syntax error while parsing value - unexpected '}'; expected '[', '{', or a literal");
  EXPECT_EQ(problemOf("[1] 2").substr(0, 5), "1:5: ");
  EXPECT_EQ(problemOf("").substr(0, 5), "1:1: ");
  EXPECT_EQ(problemOf("{\"a\": \"a\", \"b\": 1,\n \"a\": 2}"), "2:2: key `a` occurs twice in one object");
  EXPECT_EQ(problemOf(R"({"x": {"a\"": 1, "a\"": 2}})"), "1:18: key `a\"` occurs twice in one object");
  EXPECT_EQ(problemOf("{\"a\":\n [1, 1e309]}"), "2:6: the number `1e309` is too large for 64 bits of floating point");
  EXPECT_EQ(problemOf("-1e400"), "1:1: the number `-1e400` is too large for 64 bits of floating point");
  EXPECT_EQ(problemOf(std::string_view("[1,\n\0 2]", 8)), "2:1: a byte 0, which is no text");
  EXPECT_EQ(problemOf(std::string_view("{}\0x", 4)), "1:3: a byte 0, which is no text");
}

TEST(JsonText, DepthHasALimit) {
  auto nested = [](size_t depth, const char *open, const char *close, const char *inner) {
    std::string text;
    for (size_t i = 0; i < depth; ++i)
      text += open;
    text += inner;
    for (size_t i = 0; i < depth; ++i)
      text += close;
    return text;
  };
  EXPECT_EQ(problemOf(nested(MaxJsonDepth, "[", "]", "")), "no problem");
  EXPECT_EQ(problemOf(nested(MaxJsonDepth, "{\"a\":", "}", "1")), "no problem");
  const std::string message = "lists and objects are nested more than 100 deep";
  EXPECT_EQ(problemOf(nested(MaxJsonDepth + 1, "[", "]", "")), "1:101: " + message);
  EXPECT_EQ(problemOf(nested(MaxJsonDepth + 1, "{\"a\":", "}", "1")), "1:501: " + message);
  for (size_t depth : {100'000, 1'000'000}) {
    EXPECT_EQ(problemOf(nested(depth, "[", "]", "")), "1:101: " + message);
    EXPECT_EQ(problemOf(nested(depth, "{\"a\":", "}", "1")), "1:501: " + message);
    EXPECT_EQ(problemOf(nested(depth, "[", "", "")), "1:101: " + message);
  }
}

TEST(JsonText, NumbersThatAreNotFiniteAreAnOption) {
  const JsonOptions options{.nonFinite = true};
  json value = valueOf(R"({"a": NaN, "b": [Infinity, -Infinity], "NaN": "Infinity \" NaN", "c": 0.0,
                           "d": -0.000000, "e": "\\", "f":Infinity})",
                       options);
  EXPECT_TRUE(std::isnan(value["a"].get<double>()));
  EXPECT_EQ(value["b"], json::array({INFINITY, -INFINITY}));
  EXPECT_EQ(value["NaN"], "Infinity \" NaN");
  EXPECT_EQ(value["c"], 0.0);
  EXPECT_EQ(value["d"], 0.0);
  EXPECT_EQ(value["f"], INFINITY);
  EXPECT_TRUE(std::isnan(valueOf("NaN", options).get<double>()));
  EXPECT_EQ(problemOf("[NaN]").substr(0, 5), "1:2: ");
  EXPECT_EQ(problemOf("[1,\n Infinit]", options).substr(0, 5), "2:2: ");
  EXPECT_EQ(jsonShort(value["a"]), "NaN");
  EXPECT_EQ(jsonShort(value["b"][1]), "-Infinity");
}

TEST(JsonText, PlacesOfKeys) {
  std::map<std::string, JsonPlace> places;
  JsonOptions options;
  options.places = &places;
  valueOf("{\"a\": 1,\n \"b\": {\"c\": [{\"d\": 1}, [2]],\n  \"e\": {\"f\": 0}},\n\n \"g\": 2}", options);
  std::string all;
  for (const auto &[path, place] : places)
    all += fmt::format("{} {}:{} {}\n", path, place.line, place.column, place.byte);
  EXPECT_EQ(all, "a 1:2 1\nb 2:2 10\nb.c 2:8 16\nb.e 3:3 40\nb.e.f 3:9 46\ng 5:2 58\n");
}

TEST(JsonText, Integers) {
  EXPECT_EQ(jsonInteger(json::parse("9223372036854775807")), INT64_MAX);
  EXPECT_EQ(jsonInteger(json::parse("-9223372036854775808")), INT64_MIN);
  for (const char *text :
       {"9223372036854775808", "18446744073709551615", "18446744073709551616", "1.0", "true", "\"1\"", "null", "[]"})
    EXPECT_FALSE(jsonInteger(json::parse(text))) << text;
  EXPECT_EQ(jsonShort(json::parse("9223372036854775808")), "9223372036854775808");
  EXPECT_EQ(jsonShort(json::array({1, "x\n"})), "[1,\"x\\n\"]");
  EXPECT_EQ(jsonShort(std::string(1000, 'x')).size(), 123u);
}
