#include "megalith/Checkpoint/Requests.h"
#include "TempDir.h"
#include <fmt/format.h>
#include <gtest/gtest.h>

using namespace megalith;

static Result<std::vector<Request>> parse(const std::string &text,
                                          bool bytes = true) {
  return parseRequests(text, {260, bytes}, "r.jsonl");
}

/// `kind:line:column: message`.
static std::string errorOfLine(const std::string &text, bool bytes = true) {
  auto result = parse(text, bytes);
  if (result)
    return "no error";
  EXPECT_EQ(result.error.file, "r.jsonl");
  return fmt::format("{}:{}:{}: {}", result.error.kind, result.error.line,
                     result.error.column, result.error.message);
}

TEST(Requests, ReadsEveryKey) {
  auto result = parse("{\"id\": \"a\", \"tokens\": [1, 259], "
                      "\"max_new_tokens\": 5, \"eos\": [3, 4], "
                      "\"priority\": -2}\r\n"
                      "\n"
                      "{\"id\": 7, \"text\": \"h\\u00e9\", "
                      "\"max_new_tokens\": 0, \"eos\": 9}\n"
                      "{\"id\": 8, \"tokens\": [0], \"max_new_tokens\": 1}");
  ASSERT_TRUE(result) << result.error.message;
  ASSERT_EQ(result->size(), 3u);
  const Request &first = (*result)[0], &second = (*result)[1];
  EXPECT_EQ(first.id, "a");
  EXPECT_EQ(first.tokens, (std::vector<int32_t>{1, 259}));
  EXPECT_EQ(first.maxNewTokens, 5);
  EXPECT_EQ(first.eos, (std::vector<int32_t>{3, 4}));
  EXPECT_EQ(first.priority, -2);
  EXPECT_EQ(first.line, 1u);
  EXPECT_EQ(second.id, "7");
  EXPECT_EQ(second.tokens, (std::vector<int32_t>{'h', 0xc3, 0xa9}));
  EXPECT_EQ(second.eos, (std::vector<int32_t>{9}));
  EXPECT_EQ(second.line, 3u);
  EXPECT_FALSE((*result)[2].eos.has_value());
}

TEST(Requests, Syntax) {
  std::string good = "{\"id\": 1, \"tokens\": [0], \"max_new_tokens\": 1}\n";
  EXPECT_EQ(errorOfLine(good + "{\"id\": 2, }"),
            "request-syntax:2:11: not valid JSON: syntax error while parsing "
            "object key - unexpected '}'; expected string literal");
  EXPECT_EQ(errorOfLine("[]"),
            "request-syntax:1:1: expected an object per line, found array");
  EXPECT_EQ(errorOfLine("{\"id\": 1, \"id\": 2}"),
            "request-syntax:1:11: not valid JSON: key `id` occurs twice in one "
            "object");
  EXPECT_EQ(errorOfLine("{\"id\": \"\xff\"}").substr(0, 21),
            "request-syntax:1:9: n");
}

TEST(Requests, Keys) {
  EXPECT_EQ(errorOfLine(R"({"id": 1, "prompt": [0]})"),
            "request-key:1:11: unknown key `prompt`; a request has `id`, "
            "`tokens`, `text`, `max_new_tokens`, `eos`, `priority`");
  EXPECT_EQ(errorOfLine(R"({"tokens": [0], "max_new_tokens": 1})"),
            "request-key:1:1: the request has no `id`");
  EXPECT_EQ(
      errorOfLine(R"({"id": 1.5})"),
      "request-key:1:2: `id` must be a string or an integer, found `1.5`");
  EXPECT_EQ(errorOfLine(R"({"id": 1, "tokens": [0]})"),
            "request-key:1:1: request `1` has no `max_new_tokens`");
  EXPECT_EQ(
      errorOfLine(R"({"id": 1, "max_new_tokens": 1})"),
      "request-key:1:1: request `1` must have one of `tokens` and `text`, "
      "found neither");
  EXPECT_EQ(errorOfLine(R"({"id": 1, "tokens": [0], "text": "a"})"),
            "request-key:1:26: request `1` must have one of `tokens` and "
            "`text`, found both");
  EXPECT_EQ(errorOfLine(R"({"id": 1, "tokens": 0})"),
            "request-key:1:11: request `1`: `tokens` must be a list of token "
            "ids, found `0`");
  EXPECT_EQ(
      errorOfLine(R"({"id": 1, "tokens": [true]})"),
      "request-key:1:11: request `1`: `tokens` must hold token ids, found "
      "`true`");
  // The key's column, not that of the same word as a value.
  EXPECT_EQ(errorOfLine(R"({"id": "text", "text": "a"})", false),
            "request-key:1:16: request `text`: `text` needs a model whose "
            "vocabulary is bytes; give `tokens`");
  EXPECT_EQ(errorOfLine(R"({"id": 1, "tokens": [0],
                        "max_new_tokens": 1})")
                .substr(0, 18),
            "request-syntax:1:2");
  EXPECT_EQ(
      errorOfLine(
          R"({"id": 1, "tokens": [0], "max_new_tokens": 9223372036854775808})"),
      "request-key:1:26: request `1`: `max_new_tokens` must be an integer, "
      "found `9223372036854775808`");
  EXPECT_EQ(errorOfLine(R"({"id": 1, "tokens": [0], "max_new_tokens": 1, )"
                    R"("priority": 2147483648})"),
            "request-key:1:47: request `1`: `priority` must be a 32-bit "
            "integer, found `2147483648`");
}

TEST(Requests, Values) {
  EXPECT_EQ(errorOfLine(R"({"id": 1, "tokens": [], "max_new_tokens": 1})"),
            "request-empty-prompt:1:11: request `1` has an empty prompt; give "
            "at least one token");
  EXPECT_EQ(
      errorOfLine(R"({"id": 1, "tokens": [0], "max_new_tokens": -1})"),
      "request-budget:1:26: request `1`: `max_new_tokens` -1 is negative");
  EXPECT_EQ(errorOfLine(R"({"id": 1, "tokens": [260], "max_new_tokens": 1})"),
            "request-token-range:1:11: request `1`: token 260 in `tokens` is "
            "outside the vocabulary of 260");
  EXPECT_EQ(errorOfLine(R"({"id": 1, "tokens": [-1], "max_new_tokens": 1})"),
            "request-token-range:1:11: request `1`: token -1 in `tokens` is "
            "outside the vocabulary of 260");
  EXPECT_EQ(errorOfLine(R"({"id": 1, "tokens": [18446744073709551615]})"),
            "request-token-range:1:11: request `1`: token 18446744073709551615 "
            "in `tokens` is outside the vocabulary of 260");
  EXPECT_EQ(errorOfLine(R"({"id": 1, "tokens": [0], "max_new_tokens": 1, )"
                    R"("eos": 300})"),
            "request-token-range:1:47: request `1`: token 300 in `eos` is "
            "outside the vocabulary of 260");
}

TEST(Requests, DuplicateId) {
  EXPECT_EQ(errorOfLine("{\"id\": 1, \"tokens\": [0], \"max_new_tokens\": 1}\n\n"
                    "{\"tokens\": [0], \"max_new_tokens\": 1, \"id\": \"1\"}"),
            "request-duplicate-id:3:38: id `1` is already used on line 1");
}

TEST(Requests, Missing) {
  TempDir dir;
  auto result = readRequests(dir.path() + "/none.jsonl", {260, true});
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error.kind, "requests-missing");
  std::string path = dir.write("r.jsonl", "");
  auto empty = readRequests(path, {260, true});
  ASSERT_TRUE(empty);
  EXPECT_TRUE(empty->empty());
}
