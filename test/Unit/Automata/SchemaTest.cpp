#include "megalith/Automata/Schema.h"
#include "megalith/Automata/Automaton.h"
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <random>

using namespace megalith::automata;

static Automaton schemaAutomaton(std::string_view schema, std::optional<uint32_t> depth = {}) {
  return compile(readSchema(schema, {depth, {}}).expression);
}

static std::string schemaProblem(std::string_view schema, std::optional<uint32_t> depth = {}) {
  try {
    schemaAutomaton(schema, depth);
  } catch (const Refused &refused) {
    return refused.message;
  }
  return "no problem";
}

/// What is accepted, and what is not.
static void checkSchema(std::string_view schema, std::vector<std::string_view> yes, std::vector<std::string_view> no,
                        std::optional<uint32_t> depth = {}) {
  ASSERT_EQ(schemaProblem(schema, depth), "no problem") << schema;
  const Automaton automaton = schemaAutomaton(schema, depth);
  for (const std::string_view text : yes)
    EXPECT_TRUE(automaton.accepts(text)) << schema << " refuses " << text;
  for (const std::string_view text : no)
    EXPECT_FALSE(automaton.accepts(text)) << schema << " accepts " << text;
}

TEST(Schema, Scalars) {
  checkSchema(R"({"type": "null"})", {"null"}, {"", "nul", "0"});
  checkSchema(R"({"type": "boolean"})", {"true", "false"}, {"null", "True"});
  checkSchema(R"({"type": "integer"})", {"0", "-0", "-12", "1234567890123"}, {"01", "+1", "1.0", "1e3", "-", ""});
  checkSchema(R"({"type": "number"})", {"0", "-1.5", "0.001", "1e5", "2.5E-10", "1e+0"},
              {".5", "1.", "1e", "NaN", "0x1"});
  checkSchema(R"({"type": "string"})", {R"("")", R"("é☃😀")", R"("\"\\\/\b\f\n\r\t")", "\"\x7f\""},
              {R"(")", R"("a)", R"("a"b")", R"("\x")", "\"\n\"", R"("\u0041")", "\"\xff\""});
  checkSchema(R"({"type": ["integer", "null"]})", {"1", "null"}, {"true", "1.5"});
}

TEST(Schema, BoundsOfNumbers) {
  checkSchema(R"({"type": "integer", "minimum": 3, "maximum": 1204})", {"3", "9", "10", "99", "100", "1000", "1204"},
              {"2", "1205", "03", "-3", "12040", "1e1", "3.0", ""});
  checkSchema(R"({"type": "integer", "minimum": -12, "exclusiveMaximum": 5})", {"-12", "-9", "-1", "0", "4"},
              {"-13", "5", "-0", "-20"});
  checkSchema(R"({"type": "integer", "exclusiveMinimum": 99})", {"100", "999", "1000", "123456789012345678"},
              {"99", "10"});
  checkSchema(R"({"type": "integer", "maximum": -99})", {"-99", "-100", "-12345678"}, {"-98", "0", "99"});
  checkSchema(R"({"type": "integer", "minimum": 0.5, "maximum": 2.5})", {"1", "2"}, {"0", "3"});
  checkSchema(R"({"type": "number", "minimum": 0, "maximum": 1})", {"0", "0.0", "0.25", "1", "1.00"},
              {"1.01", "-0.1", "2", "-0", "1e0"});
  checkSchema(R"({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 12})",
              {"0.5", "0.05", "0.012", "11.999", "1"}, {"0", "0.0", "0.00", "12", "12.0", "-1"});
  checkSchema(R"({"type": "number", "minimum": -2, "exclusiveMaximum": -1})", {"-2", "-2.0", "-1.5", "-1.01"},
              {"-1", "-1.0", "-2.1", "0", "1.5"});
  checkSchema(R"({"type": "number", "exclusiveMinimum": -2})", {"-1.9", "0", "0.3", "1000000"}, {"-2", "-2.1", "-3"});
  // Draft 4 says by a flag that a bound itself is not allowed.
  checkSchema(R"({"type": "integer", "minimum": 3, "exclusiveMinimum": true, "maximum": 5, "exclusiveMaximum": false})",
              {"4", "5"}, {"3", "6"});
  checkSchema(R"({"type": ["integer", "null"], "minimum": 3, "maximum": 3})", {"3", "null"}, {"2", "4"});
  EXPECT_EQ(schemaProblem(R"({"type": "integer", "minimum": 3, "exclusiveMaximum": 3})"),
            "the schema at `#`: no number lies between its bounds");
  EXPECT_EQ(schemaProblem(R"({"type": "number", "minimum": 0.5})"),
            "the schema at `#`: `minimum` of numbers must be an integer here, found `0.5`; write one that lies inside, "
            "or check the value");
  EXPECT_EQ(
      schemaProblem(R"({"type": "integer", "maximum": 1e300})"),
      "the schema at `#`: `maximum` must be from -10^15 to 10^15, found `1e+300`; leave it out and check the value");
  EXPECT_EQ(schemaProblem(R"({"type": "integer", "maximum": "3"})"),
            "the schema at `#`: `maximum` must be a number, found `\"3\"`");
}

TEST(Schema, Strings) {
  checkSchema(R"({"type": "string", "minLength": 2, "maxLength": 3})", {R"("ab")", R"("é☃😀")", R"("\n\"")"},
              {R"("a")", R"("abcd")", R"("\n")"});
  checkSchema(R"({"type": "string", "maxLength": 0})", {R"("")"}, {R"("a")"});
  checkSchema(R"({"type": "string", "minLength": 2})", {R"("ab")", R"("abcdef")"}, {R"("a")"});
  checkSchema(R"({"type": "string", "format": "date"})", {R"("2024-02-29")", R"("2000-02-29")", R"("1999-12-31")"},
              {R"("2023-02-29")", R"("1900-02-29")", R"("2024-04-31")", R"("0000-01-01")", R"("2024-13-01")"});
  checkSchema(
      R"({"type": "string", "format": "date-time"})",
      {R"("2024-02-29T23:59:59Z")", R"("1985-04-12T23:20:50.52+01:00")"},
      {R"("2024-02-29")", R"("2024-02-29T24:00:00Z")", R"("2024-02-29T23:59:59")", R"("2024-02-29 23:59:59Z")"});
  checkSchema(R"({"type": "string", "format": "time"})", {R"("00:00:00Z")"}, {R"("00:00:00")", R"("00:00:60Z")"});
  checkSchema(R"({"type": "string", "format": "ipv4"})", {R"("255.0.10.1")"},
              {R"("256.0.0.1")", R"("01.1.1.1")", R"("1.1.1")"});
  checkSchema(R"({"type": "string", "format": "uuid"})", {R"("123e4567-E89b-12d3-a456-426614174000")"},
              {R"("123e4567e89b12d3a456426614174000")"});
}

/// ECMAScript looks for it anywhere; what it means for characters that strings have to escape.
TEST(Schema, Patterns) {
  checkSchema(R"({"type": "string", "pattern": "b"})", {R"("b")", R"("abc")", R"("\nb\"")"}, {R"("ac")", "b"});
  checkSchema(R"({"type": "string", "pattern": "^b"})", {R"("b")", R"("bc")"}, {R"("ab")"});
  checkSchema(R"({"type": "string", "pattern": "b$"})", {R"("ab")"}, {R"("ba")"});
  checkSchema(R"({"type": "string", "pattern": "^a$|b"})", {R"("a")", R"("xbx")"}, {R"("ax")"});
  checkSchema(R"({"type": "string", "pattern": "^.*$"})", {R"("")", R"("a\"b")", R"("\\")"},
              {R"("a"b")", R"("\n")", R"("\")"});
  checkSchema(R"({"type": "string", "pattern": "^[^a]{2}$"})", {R"("\"\n")", R"("/\/")"},
              {R"("""")", R"("b")", R"("\")"});
  checkSchema(R"({"type": "string", "pattern": "^\\\\\"$"})", {R"("\\\"")"}, {R"("\"")", R"("\\"")"});
  checkSchema(R"({"type": "string", "pattern": "^\\s\\S$"})", {R"(" a")", R"("\té")"}, {"\"\u00a0a\"", "\" \u00a0\""});
  checkSchema(R"({"type": "string", "pattern": "^[^\\s][^\\S]$"})", {R"("a ")"}, {"\"\u3000 \"", "\"a\u3000\""});
  checkSchema(R"({"type": "string", "pattern": "^.$"})", {R"("😀")"}, {"\"\u2028\"", R"("\r")"});
  EXPECT_EQ(schemaProblem(R"s({"pattern": "a(?=b)"})s").substr(0, 71),
            "the schema at `#`: `pattern`: column 2 of the expression: look-ahead `(");
  for (const char *pattern : {"[]a]", "[^]a]", "a{,2}", "a{,}", R"(\\Aa)", R"(a\\Z)", R"(a\\z)", R"(\\U00000041)"})
    EXPECT_NE(schemaProblem(fmt::format(R"({{"pattern": "{}"}})", pattern)).find("else in ECMAScript"),
              std::string::npos)
        << pattern << schemaProblem(fmt::format(R"({{"pattern": "{}"}})", pattern));
}

TEST(Schema, Constants) {
  checkSchema(R"({"enum": [1, "a\"é\n", null, {"b": [1, 2], "a": {}}, []]})",
              {"1", R"("a\"é\n")", "null", R"({"b": [1, 2], "a": {}})", R"({"b":[1,2],"a":{}})", "[]"},
              {"2", R"({"a": {}, "b": [1, 2]})", "1.0", "[ ]", R"({"b":  [1,2],"a":{}})"});
  checkSchema(R"({"const": "/"})", {R"("/")"}, {R"("\/")"});
  checkSchema(R"({"enum": [1, "a", 2.5, 1.0], "type": "integer"})", {"1"}, {R"("a")", "2.5", "1.0"});
  EXPECT_EQ(schemaProblem(R"({"enum": ["a"], "type": "integer"})"),
            "the schema at `#`: no value of `enum` has the `type`; correct one of them");
  EXPECT_EQ(schemaProblem(R"({"enum": []})"), "the schema at `#`: `enum` must be a list with at least one value");
  EXPECT_EQ(schemaProblem(R"({"enum": [1], "minimum": 2})"),
            "the schema at `#`: `minimum` beside `enum` is not supported; put all that is meant into one of them");
  EXPECT_EQ(schemaProblem(R"({"enum": ["a"], "maxLength": 2})").substr(0, 44),
            "the schema at `#`: `maxLength` beside `enum`");
  EXPECT_NE(schemaProblem(R"({"const": 18446744073709551617})").find("may not be kept exactly"), std::string::npos);
}

TEST(Schema, Objects) {
  // Every set of optional members, in their order.
  for (const std::string required : {"", "a", "c", "e", "b,d"}) {
    nlohmann::json schema = {
        {"type", "object"}, {"additionalProperties", false}, {"required", nlohmann::json::array()}};
    for (const char *key : {"a", "b", "c", "d", "e"}) {
      schema["properties"][key] = {{"const", 1}};
      if (required.find(key) != std::string::npos)
        schema["required"].push_back(key);
    }
    const Automaton automaton = schemaAutomaton(schema.dump());
    EXPECT_EQ(readSchema(schema.dump()).notes, std::vector<std::string>());
    for (unsigned set = 0; set < 32; ++set) {
      std::string text = "{";
      bool all = true;
      for (int i = 0; i < 5; ++i) {
        const char key = static_cast<char>('a' + i);
        if (set >> i & 1)
          text += fmt::format("{}\"{}\": 1", text.size() > 1 ? i % 2 ? "," : ", " : "", key);
        else
          all &= required.find(key) == std::string::npos;
      }
      EXPECT_EQ(automaton.accepts(text + "}"), all) << text << " required " << required;
      EXPECT_FALSE(automaton.accepts(text + ",}")) << text;
    }
    EXPECT_FALSE(automaton.accepts(R"({,"b":1,"c":1,"d":1,"e":1})"));
    EXPECT_FALSE(automaton.accepts(R"({"b":1,"a":1,"c":1,"d":1,"e":1})"));
    EXPECT_FALSE(automaton.accepts(R"({"a":1,"a":1,"b":1,"c":1,"d":1,"e":1})"));
  }
  checkSchema(R"({"type": "object", "additionalProperties": {"type": "integer"}})",
              {"{}", R"({"a":1})", R"({"\"": 1, "b": 2})"}, {R"({"a":"b"})", R"({"a":1,})", R"({a:1})"});
  checkSchema(R"({"type": "object", "properties": {}, "additionalProperties": false})", {"{}"}, {R"({"a":1})", "{ }"});
  checkSchema(R"({"type": "object", "properties": {"k\"\\é": {"type": "null"}}})", {R"({"k\"\\é":null})", "{}"},
              {R"({"k":null})"});
  EXPECT_EQ(schemaProblem(R"({"type": "object", "properties": {"a": {"type": "null"}}, "required": ["a", "b"]})"),
            "the schema at `#`: `required` has `b`, which is not in `properties`; add it there");
  // The order of keys is that of the text, not of the alphabet.
  checkSchema(R"({"properties": {"b": {"const": 1}, "a": {"const": 2}}, "required": ["a", "b"]})",
              {R"({"b": 1, "a": 2})"}, {R"({"a": 2, "b": 1})"});
}

TEST(Schema, ManyOptionalMembersAreFew) {
  nlohmann::json schema = {{"type", "object"}};
  for (int i = 0; i < 200; ++i)
    schema["properties"][fmt::format("key_{:03}", i)] = {{"type", "string"}};
  const Automaton automaton = schemaAutomaton(schema.dump());
  EXPECT_LT(automaton.states(), 200u * 40);
  EXPECT_TRUE(automaton.accepts(R"({"key_000": "a", "key_007": "b", "key_199": ""})"));
  EXPECT_FALSE(automaton.accepts(R"({"key_007": "a", "key_000": "b"})"));
}

TEST(Schema, Lists) {
  checkSchema(R"({"type": "array", "items": {"type": "null"}})", {"[]", "[null]", "[null, null,null]"},
              {"[null,]", "[,]", "[1]"});
  const auto counts = [](std::string_view schema, std::vector<int> wanted) {
    const Automaton automaton = schemaAutomaton(schema);
    std::vector<int> found;
    for (int count = 0; count < 8; ++count) {
      std::string text = "[";
      for (int i = 0; i < count; ++i)
        text += i ? ", 1" : "1";
      if (automaton.accepts(text + "]"))
        found.push_back(count);
    }
    EXPECT_EQ(found, wanted) << schema;
  };
  const std::string one = R"({"const": 1})";
  counts(R"({"type": "array", "items": {"const": 1}, "minItems": 1})", {1, 2, 3, 4, 5, 6, 7});
  counts(R"({"type": "array", "items": {"const": 1}, "minItems": 3})", {3, 4, 5, 6, 7});
  counts(R"({"type": "array", "items": {"const": 1}, "maxItems": 2})", {0, 1, 2});
  counts(R"({"type": "array", "items": {"const": 1}, "minItems": 2, "maxItems": 4})", {2, 3, 4});
  counts(R"({"type": "array", "items": {"const": 1}, "maxItems": 0})", {0});
  counts(R"({"type": "array", "maxItems": 0})", {0});
  counts(R"({"type": "array", "items": false})", {0});
  counts(R"({"type": "array", "prefixItems": [{"const": 1}, {"const": 1}, {"const": 1}]})", {0, 1, 2, 3});
  counts(R"({"type": "array", "prefixItems": [{"const": 1}, {"const": 1}], "minItems": 1, "items": false})", {1, 2});
  counts(R"({"type": "array", "prefixItems": [{"const": 1}, {"const": 1}], "minItems": 1, "items": {"const": 1}})",
         {1, 2, 3, 4, 5, 6, 7});
  counts(R"({"type": "array", "prefixItems": [{"const": 1}], "items": {"const": 1}, "minItems": 3, "maxItems": 5})",
         {3, 4, 5});
  counts(R"({"type": "array", "prefixItems": [{"const": 1}, {"const": 1}], "items": {"const": 1}, "maxItems": 1})",
         {0, 1});
  checkSchema(R"({"type": "array", "prefixItems": [{"const": 1}, {"const": 2}], "items": {"const": 3}})",
              {"[1, 2, 3, 3]", "[1,2]"}, {"[2]", "[1, 3]", "[1, 2, 2]"});
  EXPECT_EQ(schemaProblem(R"({"type": "array", "items": true, "minItems": 2, "maxItems": 1})"),
            "the schema at `#`: `minItems` 2 is more than `maxItems` 1; exchange them");
  EXPECT_NE(schemaProblem(R"({"type": "array", "items": [{"const": 1}]})").find("write `prefixItems`"),
            std::string::npos);
  EXPECT_NE(schemaProblem(R"({"type": "array", "prefixItems": [{"const": 1}], "minItems": 2})").find("write `items`"),
            std::string::npos);
}

TEST(Schema, Alternatives) {
  checkSchema(R"({"anyOf": [{"type": "null"}, {"type": "integer"}]})", {"null", "1"}, {"true"});
  checkSchema(R"({"allOf": [{"type": "null"}]})", {"null"}, {"1"});
  checkSchema(R"({"oneOf": [{"type": "null"}, {"type": "integer"}, {"const": "a"}]})", {"null", "1", R"("a")"},
              {R"("b")"});
  checkSchema(R"({"oneOf": [{"enum": [1, 2]}, {"enum": [3, "1"]}]})", {"1", "2", "3", R"("1")"}, {"4"});
  checkSchema(R"({"oneOf": [
          {"type": "object", "properties": {"kind": {"const": "a"}, "x": {"type": "null"}}, "required": ["kind"]},
          {"type": "object", "properties": {"kind": {"enum": ["b", "c"]}}, "required": ["kind"]},
          {"$ref": "#/$defs/list"}], "$defs": {"list": {"type": "array", "items": {"const": 1}}}})",
              {R"({"kind":"a","x":null})", R"({"kind":"c"})", "[1]"}, {R"({"kind":"b","x":null})", "{}"});
  for (const char *list : {R"({"type": "number"}, {"type": "integer"})", R"({"type": "string"}, {"const": "a"})",
                           R"({"enum": [1]}, {"enum": [2, 1.0]})", R"({"type": "null"}, {})",
                           R"({"type": "object", "properties": {"k": {"const": 1}}, "required": ["k"]},
                              {"type": "object", "properties": {"k": {"const": 2}}})",
                           R"({"const": {"a": 1, "b": 2}}, {"const": {"b": 2, "a": 1}})"})
    EXPECT_NE(schemaProblem(fmt::format(R"({{"oneOf": [{}]}})", list)).find("may both be satisfied"), std::string::npos)
        << list;
  EXPECT_NE(schemaProblem(R"({"allOf": [{"type": "null"}, {}]})").find("`allOf` with 2 entries"), std::string::npos);
  EXPECT_NE(schemaProblem(R"({"anyOf": [{"type": "null"}], "type": "null"})").find("`type` beside `anyOf`"),
            std::string::npos);
}

TEST(Schema, References) {
  checkSchema(R"({"$ref": "#/$defs/a~1~0b", "$defs": {"a/~b": {"type": "null"}}})", {"null"}, {"1"});
  checkSchema(R"({"properties": {"x": {"$ref": "#/definitions/n"}}, "definitions": {"n": {"type": "null"}}})",
              {R"({"x":null})"}, {R"({"x":1})"});
  const char *tree = R"({"$ref": "#/$defs/t", "$defs": {"t": {"type": "array", "items": {"$ref": "#/$defs/t"}}}})";
  EXPECT_EQ(schemaProblem(tree),
            "the schema at `#/$defs/t/items`: the `$ref` `#/$defs/t` stands in itself; give a depth to "
            "which it is written out");
  checkSchema(tree, {"[]"}, {"[[]]"}, 0);
  checkSchema(tree, {"[]", "[[],[[], []]]"}, {"[[[[]]]]"}, 2);
  const char *self = R"({"type": "array", "items": {"$ref": "#"}})";
  checkSchema(self, {"[]"}, {"[[]]"}, 0);
  checkSchema(self, {"[[[]]]"}, {"[[[[]]]]"}, 2);
  EXPECT_EQ(schemaProblem(self).substr(0, 40), "the schema at `#/items`: the `$ref` `#` ");
  EXPECT_NE(schemaProblem(R"({"$ref": "#/$defs/a"})").find("leads nowhere"), std::string::npos);
  EXPECT_NE(schemaProblem(R"({"$ref": "#/properties/a"})").find("is not supported; refer to `#`"), std::string::npos);
  EXPECT_NE(schemaProblem(R"({"$ref": "other.json"})").find("is not supported; refer to `#`"), std::string::npos);
  EXPECT_NE(schemaProblem(R"({"$ref": "#/$defs/a/items", "$defs": {"a": {}}})").find("entry of `$defs` itself"),
            std::string::npos);
  EXPECT_NE(schemaProblem(R"({"$ref": "#/$defs/a", "type": "null", "$defs": {"a": {}}})").find("`type` beside `$ref`"),
            std::string::npos);
  EXPECT_NE(schemaProblem(self, 1'000'000).find("more than 100 deep"), std::string::npos);
  // Only through itself: there is no text at all.
  EXPECT_EQ(schemaProblem(R"({"$ref": "#"})", 3).substr(0, 15), "no text matches");
  std::string chain = R"({"$ref": "#/$defs/d0", "$defs": {"d5000": {"type": "null"})";
  for (int i = 0; i < 5000; ++i)
    chain += fmt::format(R"(, "d{}": {{"$ref": "#/$defs/d{}"}})", i, i + 1);
  EXPECT_NE(schemaProblem(chain + "}}").find("more than 100 deep"), std::string::npos);
}

TEST(Schema, ValuesOfAnyKind) {
  for (const char *schema : {"{}", "true", R"({"title": "x"})"}) {
    EXPECT_NE(schemaProblem(schema).find("or give a depth"), std::string::npos) << schema;
    checkSchema(schema, {"1", "null", "\"a\""}, {"[]", "{}"}, 0);
    checkSchema(schema, {R"([1, {"a": []}])", R"({"a":[[]], "b":{}})"}, {"[[[[]]]]"}, 3);
    EXPECT_EQ(schemaAutomaton(schema, 2), compile(jsonOfDepth(2)));
  }
  checkSchema(R"({"type": "object"})", {"{}", R"({"a": 1})"}, {R"({"a": []})", "[]"}, 1);
  checkSchema(R"({"type": "array"})", {"[]", "[1]"}, {"[[]]", "{}"}, 1);
  EXPECT_EQ(schemaProblem("false").substr(0, 15), "no text matches");
  std::vector<uint32_t> states;
  for (uint32_t depth = 0; depth < 10; ++depth)
    states.push_back(compile(jsonOfDepth(depth)).states());
  EXPECT_EQ(states[9] - states[8], 2 * (states[8] - states[7])); // a level doubles them
  EXPECT_THROW(jsonOfDepth(1'000'000), Refused);
}

/// Every keyword that is not on the list, by its name and place.
TEST(Schema, OtherKeywordsAreRefused) {
  for (const char *keyword :
       {"multipleOf", "uniqueItems", "contains", "minContains", "minProperties", "maxProperties", "propertyNames",
        "patternProperties", "dependentRequired", "dependentSchemas", "if", "then", "else", "not",
        "unevaluatedProperties", "additionalItems", "$anchor", "$dynamicRef", "contentEncoding"}) {
    const std::string problem =
        schemaProblem(fmt::format(R"({{"properties": {{"a~/b": {{"type": "integer", "{}": 1}}}}}})", keyword));
    EXPECT_TRUE(problem.starts_with(
        fmt::format("the schema at `#/properties/a~0~1b`: the keyword `{}` is not supported", keyword)))
        << problem;
  }
  checkSchema(
      R"({"type": "null", "title": "t", "description": "d", "default": 1, "examples": [], "$schema": "s", "$id": "i",
            "$comment": "c", "deprecated": true, "readOnly": true, "writeOnly": false, "$defs": {"x": 7}})",
      {"null"}, {});
  // Of OpenAPI, as pydantic writes it: it only says which property tells the alternatives apart.
  checkSchema(R"({"oneOf": [{"type": "null"}, {"const": "a"}], "discriminator": {"propertyName": "kind"}})",
              {"null", R"("a")"}, {R"("b")"});
  for (const char *id : {"$id", "id"}) {
    EXPECT_NE(schemaProblem(fmt::format(R"({{"properties": {{"a": {{"{}": "x", "items": {{"$ref": "#"}}}}}}}})", id))
                  .find(fmt::format("`{}` inside", id)),
              std::string::npos);
    checkSchema(fmt::format(R"({{"{0}": "r", "properties": {{"a": {{"{0}": "x", "type": "null"}}}}}})", id),
                {R"({"a":null})"}, {R"({"a":1})"});
  }
  // What no draft knows says nothing, unless it is a slip.
  EXPECT_EQ(schemaProblem(R"({"type": "null", "Type": "string"})"),
            "the schema at `#`: `Type` is no keyword of JSON Schema; write `type`, or leave it out");
  EXPECT_EQ(schemaProblem(R"({"type": "object", "propertys": {}})"),
            "the schema at `#`: `propertys` is no keyword of JSON Schema; write `properties`, or leave it out");
  checkSchema(R"({"type": "null", "example": 1, "readonly": true, "$def": {}})", {"null"},
              {"1"}); // near what says nothing
  std::string many = R"({"type": "null")";
  for (int i = 0; i < 1001; ++i)
    many += fmt::format(R"(, "x-{}": 1)", i);
  EXPECT_EQ(schemaProblem(many + "}"),
            "the schema at `#`: more than 1000 keys are no keywords of JSON Schema; leave them out");
  checkSchema(R"({"type": "null", "nullable": true, "self": {"name": "a"}, "x-go-type": "T", "_enum": [1]})", {"null"},
              {"1"});
  EXPECT_NE(schemaProblem(R"({"type": "strin"})").find("the type `\"strin\"` is unknown"), std::string::npos);
  EXPECT_NE(schemaProblem(R"({"type": []})").find("is unknown"), std::string::npos);
  EXPECT_NE(schemaProblem(R"({"type": "string", "format": "email"})").find("the format `\"email\"`"),
            std::string::npos);
  EXPECT_NE(schemaProblem(R"({"type": "string", "format": "date", "maxLength": 3})").find("only one"),
            std::string::npos);
  EXPECT_NE(schemaProblem(R"({"type": "string", "minLength": 3, "maxLength": 2})").find("exchange them"),
            std::string::npos);
  checkSchema(R"({"type": "string", "format": "my-own"})", {R"("a")"}, {"1"});
  checkSchema(R"({"type": "integer", "format": "int32"})", {"1"}, {R"("a")"});
  EXPECT_NE(schemaProblem(R"({"$schema": "http://json-schema.org/draft-07/schema#", "prefixItems": [true]})")
                .find("no keyword of the `$schema`"),
            std::string::npos);
  EXPECT_NE(schemaProblem(R"({"type": "string", "minLength": -1})").find("must be an integer from 0"),
            std::string::npos);
  EXPECT_NE(schemaProblem(R"({"type": "string", "minLength": 2.0})").find("must be an integer from 0"),
            std::string::npos);
  EXPECT_EQ(schemaProblem("[1"),
            "the schema is no JSON: line 1, column 3: syntax error while parsing array - unexpected end of "
            "input; expected ']'");
  EXPECT_NE(schemaProblem(R"({"type": "null", "type": "string"})").find("occurs twice"), std::string::npos);
  EXPECT_EQ(schemaProblem("[]"), "the schema at `#`: a schema must be an object, `true` or `false`");
}

TEST(Schema, WhatIsNarrowerIsTold) {
  const auto notes = [](std::string_view schema, std::optional<uint32_t> depth = {}) {
    return readSchema(schema, {depth, {}}).notes;
  };
  using Notes = std::vector<std::string>;
  EXPECT_EQ(notes(R"({"type": "object", "properties": {"a": {"type": "null"}}, "additionalProperties": false})"),
            Notes{});
  EXPECT_EQ(notes(R"({"properties": {"a": {"type": "null"}}})"),
            (Notes{"at `#`: there is no `type`; values have the types that its keywords are about: object",
                   "at `#`: there are no keys but those of `properties`"}));
  EXPECT_EQ(notes(R"({"type": "array", "prefixItems": [{"type": "null"}]})"),
            Notes{"at `#`: there are no items but those of `prefixItems`"});
  EXPECT_EQ(notes(R"({"type": "array"})", 3), Notes{"at `#`: values of any kind are nested at most 3 deep"});
  EXPECT_EQ(notes(R"({"type": "array", "items": {"$ref": "#"}})", 3),
            Notes{"at `#/items`: `#` stands in itself at most 3 deep"});
  EXPECT_EQ(notes(R"({"type": "integer", "format": "int32", "self": 1})"),
            (Notes{"at `#`: `self` is no keyword of JSON Schema; it says nothing of texts",
                   "at `#`: `format` is about strings; of others it says nothing"}));
  EXPECT_EQ(notes(R"({"type": "string", "format": "tel"})"),
            Notes{"at `#`: `tel` is no format of JSON Schema; it says nothing of texts"});
  EXPECT_EQ(notes(R"({"type": "number", "minimum": -120})"),
            Notes{"at `#`: numbers between bounds have no exponent, and at most 9 digits behind the point"});
  EXPECT_EQ(notes(R"({"type": "integer", "enum": [1, "a"]})"),
            Notes{"at `#`: `\"a\"` is left out, it has not the `type`"});
}

/// Texts drawn at random from the automaton are JSON.
TEST(Schema, DrawnTextsAreJson) {
  std::mt19937 random(2);
  for (const Automaton &automaton :
       {compile(jsonOfDepth(3)), schemaAutomaton(R"({"type": "string", "pattern": "[\\s\\S]\""})"),
        schemaAutomaton(R"({"properties": {"a": {"type": "string"}, "b": {}, "c": {"type": "array"}}})", 2)})
    for (int i = 0; i < 40; ++i) {
      std::string text;
      uint16_t state = automaton.start;
      while (!automaton.accepting[state] || (!automaton.final[state] && random() % 4 != 0)) {
        std::vector<uint8_t> bytes;
        for (int byte = 0; byte < 256; ++byte)
          if (automaton.step(state, byte) != Automaton::Dead)
            bytes.insert(bytes.end(),
                         std::string_view("\"]},").find(static_cast<char>(byte)) != std::string::npos ? 40 : 1,
                         static_cast<uint8_t>(byte));
        const uint8_t byte = bytes[random() % bytes.size()];
        text += static_cast<char>(byte);
        state = automaton.step(state, byte);
      }
      try {
        EXPECT_FALSE(nlohmann::json::parse(text).is_discarded());
      } catch (const nlohmann::json::out_of_range &) { // 1e999 is JSON, though f64 cannot hold it
      } catch (const nlohmann::json::exception &error) {
        ADD_FAILURE() << text << ": " << error.what();
      }
    }
}
