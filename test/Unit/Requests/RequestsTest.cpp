#include "megalith/Requests/Requests.h"
#include "../Terminal.h"
#include "megalith/Requests/Inputs.h"
#include <fmt/format.h>
#include <gtest/gtest.h>

using namespace megalith;

static Result<std::vector<Request>> parse(const std::string &text, bool bytes = true) {
  return parseRequests(text, {260, bytes}, "r.jsonl");
}

/// `kind:line:column: message`.
static std::string errorOfLine(const std::string &text, bool bytes = true) {
  auto result = parse(text, bytes);
  if (result)
    return "no error";
  EXPECT_EQ(result.error.file, "r.jsonl");
  return fmt::format("{}:{}:{}: {}", result.error.kind, result.error.line, result.error.column, result.error.message);
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
  EXPECT_EQ(second.id, RequestId::ofInteger("7"));
  EXPECT_EQ(second.tokens, (std::vector<int32_t>{'h', 0xc3, 0xa9}));
  EXPECT_EQ(second.eos, (std::vector<int32_t>{9}));
  EXPECT_EQ(second.line, 3u);
  EXPECT_FALSE((*result)[2].eos.has_value());
}

TEST(Requests, AreWrittenAsTheyAreRead) {
  RequestOptions options;
  options.vocabSize = 260;
  for (const auto &[name, type] : {std::pair("n", "i32"), {"x", "f32"}, {"b", "bool"}, {"t", "token"}, {"f", "f32"}}) {
    Input &input = options.inputs.emplace_back();
    input.name = name;
    input.type = type;
    if (input.name == "t" || input.name == "f")
      input.capacity = 4;
  }
  std::vector<Request> requests(2);
  Request &full = requests[0], &plain = requests[1];
  full.id = "a\"\n";
  full.tokens = {1, 259};
  full.maxNewTokens = 5;
  full.eos = std::vector<int32_t>();
  full.stop = {{1, 2}, {3}};
  full.priority = -2;
  full.cache = 7;
  full.sampling = {0.1f, 3, 0.3f, 0.7f, UINT32_MAX};
  full.sampling.repetitionPenalty = 1.1f;
  full.sampling.presencePenalty = -0.3f;
  full.sampling.frequencyPenalty = 0.7f;
  full.sampling.minNewTokens = 4;
  full.sampling.bias = {{3, 0.1f}, {9, -100.0f}};
  full.sampling.banned = {5, 6};
  full.sampling.allowed = {1, 2, 3};
  full.inputs = {{"n", int64_t(-7)},
                 {"x", 1.0},
                 {"b", true},
                 {"t", std::vector<int32_t>{4, 5}},
                 {"f", std::vector<float>{0.1f, -2.0f}}};
  full.arrives = {3, 0};
  full.cancelled = When{9, 0};
  full.deadlineMs = 20;
  full.line = 1;
  plain.id = RequestId::ofInteger("7");
  plain.tokens = {0};
  plain.arrives = {4, 0};
  plain.inputs = full.inputs;
  plain.line = 2;
  const std::string text = formatRequests(requests);
  const auto result = parseRequests(text, options, "R.jsonl");
  ASSERT_TRUE(result) << result.error.message << "\n" << text;
  EXPECT_EQ(*result.value, requests) << text;
}

TEST(Requests, Syntax) {
  std::string good = "{\"id\": 1, \"tokens\": [0], \"max_new_tokens\": 1}\n";
  EXPECT_EQ(errorOfLine(good + "{\"id\": 2, }"), "request-syntax:2:11: not valid JSON: syntax error while parsing "
                                                 "object key - unexpected '}'; expected string literal");
  EXPECT_EQ(errorOfLine("[]"), "request-syntax:1:1: expected an object per line, found array");
  EXPECT_EQ(errorOfLine("{\"id\": 1, \"id\": 2}"), "request-syntax:1:11: not valid JSON: key `id` occurs twice in one "
                                                   "object");
  EXPECT_EQ(errorOfLine("{\"id\": \"\xff\"}").substr(0, 21), "request-syntax:1:9: n");
}

TEST(Requests, Keys) {
  EXPECT_EQ(errorOfLine(R"({"id": 1, "prompt": [0]})"),
            "request-key:1:11: unknown key `prompt`; a request has `id`, "
            "`tokens`, `text`, `max_new_tokens`, `eos`, `stop`, `priority`, `sampling`, "
            "`inputs`, `arrives`, `cancelled`, `deadline_ms`, `cache`");
  for (const char *cache : {"-1", "9223372036854775808", "1.5", "\"a\""})
    EXPECT_EQ(
        errorOfLine(fmt::format(R"({{"id": 1, "tokens": [0], "max_new_tokens": 1, "cache": {}}})", cache)),
        fmt::format(
            "request-key:1:47: request `1`: `cache` must be a number from 0 (the common one) to 9223372036854775807, "
            "found `{}`",
            cache));
  EXPECT_EQ(errorOfLine(R"({"tokens": [0], "max_new_tokens": 1})"), "request-key:1:1: the request has no `id`");
  EXPECT_EQ(errorOfLine(R"({"id": 1.5})"), "request-key:1:2: `id` must be a string or an integer, found `1.5`");
  EXPECT_EQ(errorOfLine(R"({"id": 1, "tokens": [0]})"), "request-key:1:1: request `1` has no `max_new_tokens`");
  EXPECT_EQ(errorOfLine(R"({"id": 1, "max_new_tokens": 1})"),
            "request-key:1:1: request `1` must have one of `tokens` and `text`, "
            "found neither");
  EXPECT_EQ(errorOfLine(R"({"id": 1, "tokens": [0], "text": "a"})"),
            "request-key:1:26: request `1` must have one of `tokens` and "
            "`text`, found both");
  EXPECT_EQ(errorOfLine(R"({"id": 1, "tokens": 0})"), "request-key:1:11: request `1`: `tokens` must be a list of token "
                                                      "ids, found `0`");
  EXPECT_EQ(errorOfLine(R"({"id": 1, "tokens": [true]})"),
            "request-key:1:11: request `1`: `tokens` must hold token ids, found "
            "`true`");
  // The key's column, not that of the same word as a value.
  EXPECT_EQ(errorOfLine(R"({"id": "text", "text": "a"})", false),
            "request-key:1:16: request `text`: `text` needs a model whose "
            "vocabulary is bytes; give `tokens`. The Python package has the tokenizers of others: `python -m megalith "
            "run` takes this file");
  EXPECT_EQ(errorOfLine(R"({"id": 1, "tokens": [0],
                        "max_new_tokens": 1})")
                .substr(0, 18),
            "request-syntax:1:2");
  EXPECT_EQ(errorOfLine(R"({"id": 1, "tokens": [0], "max_new_tokens": 9223372036854775808})"),
            "request-key:1:26: request `1`: `max_new_tokens` must be an integer, "
            "found `9223372036854775808`");
  EXPECT_EQ(errorOfLine(R"({"id": 1, "tokens": [0], "max_new_tokens": 1, )"
                        R"("priority": 2147483648})"),
            "request-key:1:47: request `1`: `priority` must be a 32-bit "
            "integer, found `2147483648`");
}

TEST(Requests, SettingsOfSampling) {
  const auto row = [](const std::string &settings) {
    return R"({"id": "a", "tokens": [0], "max_new_tokens": 1, "sampling": )" + settings + "}\n";
  };
  const auto given = [&](const std::string &settings) {
    auto result = parseRequests(row(settings), {10, true}, "r.jsonl");
    EXPECT_TRUE(result) << settings;
    return result ? (*result)[0].sampling : Sampling();
  };
  EXPECT_EQ(given("{}"), Sampling());
  EXPECT_EQ(given(R"({"temperature": 0.7, "top_k": 40, "top_p": 1, "min_p": 0.05, "seed": 4294967295})"),
            (Sampling{0.7f, 40, 1.0f, 0.05f, 4294967295u}));
  const auto error = [&](const std::string &settings) {
    const std::string text = errorOfLine(row(settings));
    EXPECT_EQ(text.substr(0, 36), "request-sampling:1:49: request `a`: ") << text;
    return text.size() > 36 ? text.substr(36) : text;
  };
  const std::string all = "`temperature`, `top_k`, `top_p`, `min_p`, `seed`, `repetition_penalty`, `presence_penalty`, "
                          "`frequency_penalty`, `min_new_tokens`, `bias`, `banned`, `allowed`, `format`";
  EXPECT_EQ(error("0.7"), "`sampling` must be an object with some of " + all + ", found `0.7`");
  EXPECT_EQ(error(R"({"temp": 1})"), "unknown setting `temp`; `sampling` has " + all);
  EXPECT_EQ(error(R"({"temperature": "hot"})"), "`temperature` must be a number, found `\"hot\"`");
  EXPECT_EQ(error(R"({"temperature": -0.5})"), "`temperature` must be 0 or above, found -0.5");
  EXPECT_EQ(error(R"({"temperature": 1e39})"), "`temperature` must be 0 or above, found inf");
  EXPECT_EQ(error(R"({"top_k": 2.5})"), "`top_k` must be an integer, found `2.5`");
  EXPECT_EQ(error(R"({"top_k": -1})"), "`top_k` must be 0 (all) or above, found -1");
  EXPECT_EQ(error(R"({"top_p": 0})"), "`top_p` must be above 0 and at most 1, found 0");
  EXPECT_EQ(error(R"({"top_p": 1.5})"), "`top_p` must be above 0 and at most 1, found 1.5");
  EXPECT_EQ(error(R"({"min_p": -0.1})"), "`min_p` must be from 0 to 1, found -0.1");
  EXPECT_EQ(error(R"({"seed": -1})"), "`seed` must be from 0 to 4294967295, found -1");
  EXPECT_EQ(error(R"({"seed": 4294967296})"), "`seed` must be from 0 to 4294967295, found 4294967296");
}

TEST(Requests, TimesOfTheHost) {
  const auto row = [](const char *id, const std::string &more) {
    return fmt::format("{{\"id\": \"{}\", \"tokens\": [0], \"max_new_tokens\": 1{}}}\n", id, more);
  };
  const auto result = parseRequests(row("a", R"(, "arrives": {"ms": 3}, "cancelled": {"ms": 3}, "deadline_ms": 7)") +
                                        row("b", R"(, "arrives": {"ms": 4})"),
                                    {10, true}, "r.jsonl");
  ASSERT_TRUE(result) << result.error.message;
  EXPECT_EQ((*result)[0].arrives, (When{0, 3}));
  EXPECT_EQ((*result)[0].cancelled, (When{0, 3}));
  EXPECT_EQ((*result)[0].deadlineMs, 7);
  EXPECT_EQ((*result)[1].arrives, (When{0, 4}));
  EXPECT_FALSE((*result)[1].cancelled);
  const auto error = [&](const std::string &more) { return errorOfLine(row("a", more)); };
  for (const char *value : {"3", "{}", "{\"tick\": -1}", "{\"tick\": 1.0}", "{\"tick\": 1, \"ms\": 2}", "{\"s\": 1}",
                            "{\"ms\": 2147483648}", "null"})
    EXPECT_EQ(error(std::string(", \"arrives\": ") + value).substr(0, 86),
              "request-time:1:49: request `a`: `arrives` must be `{\"tick\": N}` or `{\"ms\": N}`, N from")
        << value;
  EXPECT_EQ(error(", \"deadline_ms\": -1"), "request-time:1:49: request `a`: `deadline_ms` must be a number of "
                                            "milliseconds from 0 (none) to 2147483647, found `-1`");
  EXPECT_EQ(error(R"(, "arrives": {"tick": 3}, "cancelled": {"tick": 2})"),
            "request-time:1:73: request `a`: it is cancelled at tick 2, and arrives at tick 3; a request is cancelled "
            "when it has arrived");
  EXPECT_EQ(error(R"(, "arrives": {"tick": 3}, "cancelled": {"ms": 5})"),
            "request-time:1:73: request `a`: times are in ticks or in milliseconds, of all requests of a run alike");
  EXPECT_EQ(
      errorOfLine(row("a", R"(, "arrives": {"tick": 3})") + row("b", R"(, "arrives": {"tick": 2})")),
      "request-time:2:49: request `b`: it arrives at tick 2, before request `a` (at tick 3), which stands in front "
      "of it; requests arrive in their order");
}

TEST(Requests, NumbersAreIntegersInRange) {
  // `KEY`, what comes after it, and whether that is an integer.
  for (const char *value : {"1.0", "0.9", "1e0", "true", "null", "\"1\"", "[1]", "{}", "9223372036854775808",
                            "18446744073709551615", "18446744073709551616", "-9223372036854775809", "4294967554"}) {
    const std::string row = R"({"id": 1, "tokens": [0], "max_new_tokens": 1, "priority": )";
    EXPECT_EQ(errorOfLine(row + value + "}").substr(0, 53), "request-key:1:47: request `1`: `priority` must be a 3")
        << value;
    for (const char *key : {"tokens", "eos", "stop"}) {
      std::string text = R"({"id": 1, "max_new_tokens": 1, "tokens": [0]})";
      if (std::string(key) == "tokens")
        text.replace(text.find("[0]"), 3, std::string("[1, ") + value + "]");
      else if (std::string(key) == "eos")
        text.insert(text.size() - 1, std::string(", \"eos\": [1, ") + value + "]");
      else
        text.insert(text.size() - 1, std::string(", \"stop\": [[2], [1, ") + value + "]]");
      const std::string error = errorOfLine(text);
      EXPECT_NE(error, "no error") << text;
      // Nothing is shown as another number than it is.
      EXPECT_NE(error.find(std::string(value) == "1e0"                             ? "1.0"
                           : value[0] == '-' || value[0] == '1' || value[0] == '"' ? ""
                                                                                   : value),
                error.npos)
          << error;
    }
    if (std::string(value) != "4294967554") {
      EXPECT_EQ(errorOfLine(std::string(R"({"id": 1, "tokens": [0], "max_new_tokens": )") + value + "}").substr(0, 62),
                "request-key:1:26: request `1`: `max_new_tokens` must be an int")
          << value;
    }
  }
  EXPECT_EQ(
      errorOfLine(R"({"id": 1, "tokens": [9223372036854775808], "max_new_tokens": 1})"),
      "request-token-range:1:11: request `1`: token 9223372036854775808 in `tokens` is outside the vocabulary of 260");
  EXPECT_EQ(errorOfLine(R"({"id": 1, "tokens": [0], "max_new_tokens": 1e309})"),
            "request-syntax:1:44: not valid JSON: the number `1e309` is too large for 64 bits of floating point");
}

TEST(Requests, DeepJson) {
  for (const char *key : {"id", "tokens", "text", "max_new_tokens", "eos", "stop", "priority", "other"})
    for (size_t depth : {150, 100'000}) {
      const std::string deep = std::string(depth, '[') + std::string(depth, ']');
      EXPECT_EQ(errorOfLine("{\"" + std::string(key) + "\": " + deep + "}").substr(0, 17), "request-syntax:1:") << key;
    }
}

TEST(Requests, BytesThatAreNotText) {
  const std::string good = R"({"id": "a", "tokens": [1, 2], "max_new_tokens": 1, "eos": []})";
  for (int b = 0; b < 256; ++b)
    for (size_t at : {size_t(0), size_t(1), size_t(8), size_t(9), size_t(12), size_t(24), good.size()}) {
      std::string text = good;
      text.insert(at, 1, static_cast<char>(b));
      auto result = parse(text + "\n" + R"({"id": "b", "tokens": [1], "max_new_tokens": 1})");
      if (!result) {
        EXPECT_FALSE(controlsTerminal(result.error.message)) << b << " at " << at << ": " << result.error.message;
        EXPECT_EQ(result.error.line, 1u);
      } else if (b != '\n') { // a newline at an end makes a blank line
        EXPECT_EQ(result->size(), 2u) << b << " at " << at;
      }
    }
  // What follows a byte 0 is not dropped.
  EXPECT_EQ(errorOfLine(good + std::string(1, '\0') + "x"),
            "request-syntax:1:62: not valid JSON: a byte 0, which is no text");
  EXPECT_EQ(errorOfLine("{\"id\": \"\x1b[31m\"}").substr(0, 16), "request-syntax:1");
  // An escaped one is part of the id, and messages show it as text.
  EXPECT_EQ(errorOfLine(R"({"id": "\u001b[31m\u009b", "tokens": []})"),
            "request-empty-prompt:1:28: request `\\x1b[31m\\xc2\\x9b` has an empty prompt; give at least one token");
}

TEST(Requests, LinesAndMarks) {
  const std::string good = R"({"id": 1, "tokens": [0], "max_new_tokens": 1})";
  for (const std::string &text :
       {"\xef\xbb\xbf" + good, "\xef\xbb\xbf\n" + good + "\r\n\r\n", good, "\r\n \t\n" + good, good + "\r"}) {
    auto result = parse(text);
    ASSERT_TRUE(result) << text << result.error.message;
    EXPECT_EQ(result->size(), 1u) << text;
  }
  EXPECT_TRUE(parse(""));
  EXPECT_TRUE(parse("\xef\xbb\xbf"));
  // A carriage return alone ends no line.
  EXPECT_EQ(errorOfLine(good + "\r" + good).substr(0, 20), "request-syntax:1:47:");
  EXPECT_EQ(errorOfLine("\xef\xbb\xbf{\"id\": 1, \"x\": 0}").substr(0, 17), "request-key:1:14:");
}

TEST(Requests, ManyAndLong) {
  std::string text;
  for (int i = 0; i < 20'000; ++i)
    text += fmt::format("{{\"id\":{},\"tokens\":[1],\"max_new_tokens\":1}}\n", i);
  auto all = parse(text);
  ASSERT_TRUE(all) << all.error.message;
  EXPECT_EQ(all->size(), 20'000u);
  auto more = parseRequests(text, {260, true, 19'999}, "r.jsonl");
  EXPECT_EQ(more.error.kind, "request-count");
  EXPECT_EQ(more.error.line, 20'000u);
  EXPECT_EQ(more.error.message, "a run has at most 19999 requests; give the others to another run");

  std::string tokens = "[0";
  for (int i = 1; i < 100'000; ++i)
    tokens += ",1";
  auto one = parse("{\"id\": 1, \"tokens\": " + tokens + "], \"max_new_tokens\": 1}");
  ASSERT_TRUE(one);
  EXPECT_EQ(one->front().tokens.size(), 100'000u);
  const std::string id(100'000, 'i');
  EXPECT_LT(errorOfLine("{\"id\": \"" + id + "\", \"tokens\": []}").size(), 320u);
  EXPECT_LT(errorOfLine("{\"id\": 1, \"" + id + "\": []}").size(), 320u);
  EXPECT_LT(errorOfLine("{\"id\": 1, \"tokens\": {\"a\": " + tokens + "]}}").size(), 320u);
}

TEST(Requests, Values) {
  EXPECT_EQ(errorOfLine(R"({"id": 1, "tokens": [], "max_new_tokens": 1})"),
            "request-empty-prompt:1:11: request `1` has an empty prompt; give "
            "at least one token");
  EXPECT_EQ(errorOfLine(R"({"id": 1, "tokens": [0], "max_new_tokens": -1})"),
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

TEST(Requests, StopSequences) {
  const auto with = [](const std::string &stop) {
    return R"({"id": 1, "tokens": [0], "max_new_tokens": 1, "stop": )" + stop + "}";
  };
  auto result = parse(with("[[1, 259], [3]]") + "\n" + R"({"id": 2, "tokens": [0], "max_new_tokens": 1, "stop": []})");
  ASSERT_TRUE(result) << result.error.message;
  EXPECT_EQ((*result)[0].stop, (std::vector<std::vector<int32_t>>{{1, 259}, {3}}));
  EXPECT_FALSE((*result)[0].eos.has_value());
  EXPECT_TRUE((*result)[1].stop.empty());
  const auto problem = [&](const std::string &stop) { return errorOfLine(with(stop)); };
  EXPECT_EQ(problem("3"), "request-stop:1:47: request `1`: `stop` must be a list of sequences of tokens, found `3`");
  EXPECT_EQ(problem("[[1], 3]"),
            "request-stop:1:47: request `1`: `stop` must hold sequences of tokens, found `3`; write "
            "`[[1, 2], [3]]`");
  EXPECT_EQ(problem("[[1], []]"), "request-stop:1:47: request `1`: sequence 2 of `stop` is empty; give it at least one "
                                  "token, or leave it out");
  EXPECT_EQ(problem("[[1, true]]"), "request-key:1:47: request `1`: `stop` must hold token ids, found `true`");
  EXPECT_EQ(problem("[[1, 260]]"),
            "request-token-range:1:47: request `1`: token 260 in `stop` is outside the vocabulary of 260");
  // The longest, and the most.
  const auto list = [](size_t count, const std::string &item) {
    std::string out;
    for (size_t i = 0; i < count; ++i)
      out += (i ? ", " : "") + item;
    return "[" + out + "]";
  };
  EXPECT_TRUE(parse(with(list(16, list(32, "5")))));
  EXPECT_EQ(problem(list(1, list(33, "5"))),
            "request-stop:1:47: request `1`: sequence 1 of `stop` has 33 tokens, more than the 32 that one may have");
  EXPECT_EQ(problem(list(17, "[5]")),
            "request-stop:1:47: request `1`: `stop` has 17 sequences, more than the 16 that a request may have");
}

TEST(Requests, DuplicateId) {
  EXPECT_EQ(errorOfLine("{\"id\": 1, \"tokens\": [0], \"max_new_tokens\": 1}\n\n"
                        "{\"tokens\": [0], \"max_new_tokens\": 1, \"id\": \"1\"}"),
            "request-duplicate-id:3:38: id `1` is already used on line 1; an "
            "integer and a string of its digits are the same id");
  EXPECT_EQ(errorOfLine("{\"id\": \"1\", \"tokens\": [0], \"max_new_tokens\": 1}\n"
                        "{\"id\": \"1\", \"tokens\": [0], \"max_new_tokens\": 1}"),
            "request-duplicate-id:2:2: id `1` is already used on line 1");
}

/// What came in goes out.
TEST(Requests, IdKeepsItsType) {
  for (const char *id : {"7", "\"7\"", "-3", "18446744073709551615", R"("a\"b")"}) {
    auto result = parse(fmt::format(R"({{"id": {}, "tokens": [0], "max_new_tokens": 1}})", id));
    ASSERT_TRUE(result) << result.error.message;
    EXPECT_EQ((*result)[0].id.json(), id);
  }
}

static std::string draftsError(const std::string &text) {
  auto requests = parse("{\"id\": \"a\", \"tokens\": [0], \"max_new_tokens\": 1}\n"
                        "{\"id\": \"b\", \"tokens\": [0], \"max_new_tokens\": 1}\n");
  auto drafts = parseDrafts(text, *requests, 260, "d.jsonl");
  if (drafts)
    return fmt::format("{} {}", (*drafts)[0].size(), (*drafts)[1].size());
  EXPECT_EQ(drafts.error.kind, "drafts-file");
  EXPECT_EQ(drafts.error.file, "d.jsonl");
  return fmt::format("{}:{}: {}", drafts.error.line, drafts.error.column, drafts.error.message);
}

TEST(Drafts, ReadStrictly) {
  EXPECT_EQ(draftsError("{\"id\": \"b\", \"tokens\": [1, 259, 0]}\r\n\n"), "0 3");
  EXPECT_EQ(draftsError("{\"id\": \"c\", \"tokens\": []}"), "1:2: no request has the id `c`");
  EXPECT_EQ(draftsError("{\"id\": \"a\", \"tokens\": []}\n{\"id\": \"a\", \"tokens\": []}"),
            "2:2: id `a` is already used on line 1");
  EXPECT_EQ(draftsError("{\"id\": \"a\", \"drafts\": []}"),
            "1:13: unknown member `drafts` of a line; it has `id`, `tokens`");
  EXPECT_EQ(draftsError("{\"id\": \"a\"}"), "1:1: a line has no `tokens`");
  EXPECT_EQ(draftsError("[]"), "1:1: a line must be an object, found `[]`");
  for (const char *token : {"260", "-1", "4294967297", "0.5", "1.0", "9223372036854775808", "\"1\"", "[]"})
    EXPECT_EQ(draftsError(std::string("{\"id\": \"a\", \"tokens\": [1, ") + token + "]}"),
              std::string("1:13: `tokens[1]` must be an integer from 0 to 259, found `") + token + "`");
  EXPECT_EQ(draftsError("{\"id\": " + std::string(200'000, '[')).substr(0, 6), "1:107:");
  EXPECT_EQ(draftsError(std::string("{\"id\": \"a\", \"tokens\": []}\0x", 27)), "1:26: a byte 0, which is no text");
}

//===--- inputs ---------------------------------------------------------------===//

static Input inputOf(const char *name, const char *type, std::optional<int64_t> capacity = {},
                     std::optional<InputValue> otherwise = InputValue(int64_t(0))) {
  Input input;
  input.name = name;
  input.type = type;
  input.capacity = capacity;
  input.otherwise = std::move(otherwise);
  return input;
}

static Input tenant() {
  Input input = inputOf("tenant", "i32");
  input.least = 0;
  input.most = 15;
  return input;
}

/// One request with these members of `inputs`, or the kind, the column and the message of what is wrong, without
/// "request `a`: ".
static std::string readInputsOf(const std::string &members, const std::vector<Input> &declared, Request *out = nullptr,
                                bool bytes = true) {
  RequestOptions options{260, bytes};
  options.inputs = declared;
  auto result = parseRequests(R"({"id": "a", "tokens": [1], "max_new_tokens": 1, "inputs": {)" + members + "}}",
                              options, "r.jsonl");
  if (!result)
    return fmt::format("{}:{}: {}", result.error.kind, result.error.column,
                       result.error.message.substr(std::string("request `a`: ").size()));
  if (out)
    *out = std::move(result->front());
  return "";
}

TEST(RequestInputs, AreValuesOfTheirTypes) {
  const std::vector<Input> declared = {tenant(),
                                       inputOf("share", "f32"),
                                       inputOf("eager", "bool"),
                                       inputOf("mark", "token"),
                                       inputOf("text", "token", 4),
                                       inputOf("rates", "f32", 3),
                                       inputOf("flags", "bool", 3),
                                       inputOf("left", "i32", 3, InputValue(std::vector<int32_t>{7, 8}))};
  Request request;
  ASSERT_EQ(readInputsOf(R"("tenant": 15, "share": 1, "eager": true, "mark": 259, "text": "h\u00e9", )"
                         R"("rates": [1, 0.5], "flags": [true, false])",
                         declared, &request),
            "");
  EXPECT_EQ(request.inputs.at("tenant"), InputValue(int64_t(15)));
  EXPECT_EQ(request.inputs.at("text"), InputValue(std::vector<int32_t>{'h', 0xc3, 0xa9}));
  const auto words = [&](size_t i) { return inputWords(declared[i], request); };
  EXPECT_EQ(words(0), std::vector<int32_t>{15});
  EXPECT_EQ(words(1), std::vector<int32_t>{0x3f800000}) << "an integer is a number";
  EXPECT_EQ(words(2), std::vector<int32_t>{1});
  EXPECT_EQ(words(3), std::vector<int32_t>{259});
  EXPECT_EQ(words(4), (std::vector<int32_t>{'h', 0xc3, 0xa9}));
  EXPECT_EQ(words(5), (std::vector<int32_t>{0x3f800000, 0x3f000000}));
  EXPECT_EQ(words(6), (std::vector<int32_t>{1, 0}));
  EXPECT_EQ(words(7), (std::vector<int32_t>{7, 8})) << "the default";
  ASSERT_EQ(readInputsOf(R"("rates": [], "share": 0.5, "left": [-1])", declared, &request), "");
  EXPECT_TRUE(words(5).empty());
  EXPECT_EQ(words(1), std::vector<int32_t>{0x3f000000});
  EXPECT_EQ(words(7), std::vector<int32_t>{-1});
}

TEST(RequestInputs, MustBeKnownAndThere) {
  EXPECT_EQ(readInputsOf(R"("tennant": 1)", {tenant(), inputOf("share", "f32")}),
            "request-input:60: the pipeline has no input `tennant`; it has `tenant`, `share`");
  EXPECT_EQ(readInputsOf(R"("tenant": 1)", {}), "request-input:60: the pipeline has no input `tenant`; it has none");
  const std::vector<Input> needed = {inputOf("reference", "token", 64, std::nullopt)};
  EXPECT_EQ(readInputsOf("", needed),
            "request-input:49: input `reference` (token[64]) is missing, and it has no default");
  RequestOptions options{260, true};
  options.inputs = needed;
  auto none = parseRequests(R"({"id": "a", "tokens": [1], "max_new_tokens": 1})", options, "r.jsonl");
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error.column, 1u);
  auto list = parseRequests(R"({"id": "a", "tokens": [1], "max_new_tokens": 1, "inputs": [1]})", options, "r.jsonl");
  ASSERT_FALSE(list);
  EXPECT_EQ(list.error.message, "request `a`: `inputs` must be an object, found `[1]`");
  EXPECT_EQ(list.error.column, 49u);
}

TEST(RequestInputs, MustBeWhatThePipelineDeclares) {
  const std::vector<Input> i32 = {tenant()}, f32 = {inputOf("share", "f32")}, flag = {inputOf("eager", "bool")},
                           token = {inputOf("mark", "token")}, text = {inputOf("text", "token", 3)},
                           rates = {inputOf("rates", "f32", 3)}, left = {inputOf("left", "i32", 3)},
                           flags = {inputOf("flags", "bool", 3)};
  std::vector<Input> texts = {inputOf("texts", "token", 3)};
  texts[0].rows = 2;
  const auto wrong = [](const std::string &member, const std::vector<Input> &declared, bool bytes = true) {
    const std::string message = readInputsOf(member, declared, nullptr, bytes);
    EXPECT_EQ(message.substr(0, 18), "request-input:60: ") << message;
    return message.substr(std::min<size_t>(18, message.size()));
  };
  EXPECT_EQ(wrong(R"("tenant": 16)", i32), "input `tenant` must be an integer from 0 to 15, found `16`");
  EXPECT_EQ(wrong(R"("tenant": 1.5)", i32), "input `tenant` must be an integer from 0 to 15, found `1.5`");
  EXPECT_EQ(wrong(R"("tenant": true)", i32), "input `tenant` must be an integer from 0 to 15, found `true`");
  EXPECT_EQ(wrong(R"("tenant": [1])", i32), "input `tenant` must be an integer from 0 to 15, found a list of integers");
  EXPECT_EQ(wrong(R"("tenant": "x")", i32), "input `tenant` must be an integer from 0 to 15, found a list of integers");
  EXPECT_EQ(wrong(R"("share": 1e39)", f32), "input `share` must be a number that an f32 can hold, found `1e+39`");
  EXPECT_EQ(wrong(R"("share": false)", f32), "input `share` must be a number that an f32 can hold, found `false`");
  EXPECT_EQ(wrong(R"("eager": 1)", flag), "input `eager` must be `true` or `false`, found `1`");
  EXPECT_EQ(wrong(R"("mark": 260)", token), "input `mark` must be a token of the vocabulary of 260, found `260`");
  EXPECT_EQ(wrong(R"("text": [1, 260])", text), "input `text` has token 260, which is outside the vocabulary of 260");
  EXPECT_EQ(wrong(R"("text": [1, 2, 3, 4])", text), "input `text` has 4 elements, more than the 3 that it may have");
  EXPECT_EQ(wrong(R"("text": 1)", text), "input `text` must be a list of token ids, found `1`");
  EXPECT_EQ(wrong(R"("text": [0.5])", text), "input `text` must be a list of token ids, found a list of numbers");
  EXPECT_EQ(wrong(R"("text": "abc")", text, false),
            "input `text` is a text, which needs a model whose vocabulary is bytes; give token ids");
  EXPECT_EQ(wrong(R"("text": [1, "a"])", text),
            "input `text` must be a number, `true`, `false`, a list of one of these, or "
            "a list of such lists, found `[1,\"a\"]`");
  EXPECT_EQ(wrong(R"("text": {})", text), "input `text` must be a number, `true`, `false`, a list of one of these, "
                                          "or a list of such lists, found `{}`");
  EXPECT_EQ(wrong(R"("text": null)", text), "input `text` must be a number, `true`, `false`, a list of one of "
                                            "these, or a list of such lists, found `null`");
  EXPECT_EQ(wrong(R"("text": [4294967296])", text), "input `text` must be a number, `true`, `false`, a list of one "
                                                    "of these, or a list of such lists, found `[4294967296]`");
  EXPECT_EQ(wrong(R"("rates": [1e39])", rates), "input `rates` has a number that an f32 cannot hold");
  EXPECT_EQ(wrong(R"("rates": [true])", rates), "input `rates` must be f32[3], found `[true]`");
  EXPECT_EQ(wrong(R"("left": [1, true])", left), "input `left` must be i32[3], found `[1,true]`");
  EXPECT_EQ(wrong(R"("texts": [1])", texts), "input `texts` must be a list of lists, found a list of integers");
  EXPECT_EQ(wrong(R"("texts": 1)", texts), "input `texts` must be a list of lists, found `1`");
  EXPECT_EQ(wrong(R"("texts": [[1], [2], [3]])", texts), "input `texts` has 3 rows, more than the 2 that it may have");
  EXPECT_EQ(wrong(R"("texts": [[1], [2, 3, 4, 5]])", texts),
            "input `texts` has 4 elements, more than the 3 that it may have in row 1");
  EXPECT_EQ(wrong(R"("texts": [[1], [260]])", texts),
            "input `texts` has token 260, which is outside the vocabulary of 260 in row 1");
  EXPECT_EQ(wrong(R"("texts": [[1], [0.5]])", texts),
            "input `texts` must be a list of token ids, found a list of numbers in row 0"); // one row with a point
                                                                                            // makes all such
  EXPECT_EQ(wrong(R"("texts": ["ab", [1, 2, 3, 4]])", texts),
            "input `texts` has 4 elements, more than the 3 that it may have in row 1");
  EXPECT_EQ(readInputsOf(R"("rates": [3000000000, 1])", rates, nullptr), "");
  EXPECT_EQ(wrong(R"("texts": [[[1]]])", texts), "input `texts` must be a number, `true`, `false`, a list of one of "
                                                 "these, or a list of such lists, found `[[[1]]]`");
  EXPECT_EQ(wrong(R"("text": [[1]])", text), "input `text` must be a list of token ids, found a list of lists");
  EXPECT_EQ(wrong(R"("left": [0.5])", left), "input `left` must be a list of integers, found a list of numbers");
  EXPECT_EQ(wrong(R"("flags": [2])", flags), "input `flags` has 2, expected 0 to 1");
}

TEST(RequestInputs, AreSpelledAsInTheLanguage) {
  EXPECT_EQ(tenant().spelling(), "i32 in 0..16");
  EXPECT_EQ(inputOf("a", "i32").spelling(), "i32");
  EXPECT_EQ(inputOf("a", "token", 64).spelling(), "token[64]");
  Input table = inputOf("a", "token", 64);
  table.rows = 4;
  EXPECT_EQ(table.spelling(), "token[4, 64]");
}

TEST(Requests, FormatsKeepTheOrderOfTheirKeys) {
  const auto formatOf = [](const std::string &json) {
    const auto read =
        parseRequests(R"({"id": "a", "tokens": [1], "max_new_tokens": 2, "sampling": {"format": )" + json + "}}\n",
                      {.vocabSize = 9}, "r.jsonl");
    return read ? read->at(0).sampling.format : read.error.message;
  };
  EXPECT_EQ(formatOf(R"({"json_schema": {"b": 1, "a": {"d": "é", "c": []}}})"),
            R"({"json_schema":{"b":1,"a":{"d":"é","c":[]}}})");
  EXPECT_EQ(formatOf(R"("{\"regex\": \"a\"}")"), R"({"regex": "a"})");
  EXPECT_EQ(formatOf("[1]"),
            "request `a`: `format` must be an object, such as `{\"regex\": \"[a-z]+\"}`, or its text, found `[1]`");
  // What is written is read again.
  Request request;
  request.id = "a";
  request.tokens = {1};
  request.sampling.format = R"({"choice": ["b", "a"]})";
  const auto again = parseRequests(formatRequests({request}), {.vocabSize = 9}, "r.jsonl");
  ASSERT_TRUE(again);
  EXPECT_EQ(again->at(0).sampling, request.sampling);
}
