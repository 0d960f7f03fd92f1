#include "megalith/Checkpoint/Requests.h"
#include "JsonText.h"
#include "megalith/Os/ReadFile.h"
#include <algorithm>
#include <fmt/format.h>
#include <limits>
#include <map>

using namespace megalith;
using nlohmann::json;

namespace {

constexpr const char *Keys[] = {"id",  "tokens",  "text", "max_new_tokens",
                                "eos", "priority"};

/// Reads the object of one line.
class LineReader {
public:
  LineReader(std::string_view text, const RequestOptions &options,
             const std::string &file, unsigned line)
      : Text(text), Options(options), File(file) {
    Out.line = line;
  }

  std::optional<CheckpointError> read();
  CheckpointError fail(const char *kind, std::string message,
                       const char *key = nullptr) const {
    return {kind, std::move(message), File, Out.line, key ? columnOf(key) : 1};
  }

  Request Out;

private:
  unsigned columnOf(const std::string &key) const;
  std::optional<CheckpointError> readId();
  std::optional<CheckpointError> readPrompt();
  std::optional<CheckpointError> readBudgetAndPriority();
  std::optional<CheckpointError> readTokens(const char *key, const json &list,
                                            std::vector<int32_t> &out);

  std::string_view Text;
  const RequestOptions &Options;
  const std::string &File;
  json Object;
};

} // namespace

/// Where `"key" :` stands; the parsed object keeps no positions.
unsigned LineReader::columnOf(const std::string &key) const {
  std::string quoted = '"' + key + '"';
  for (size_t at = Text.find(quoted); at != std::string_view::npos;
       at = Text.find(quoted, at + 1)) {
    size_t next = Text.find_first_not_of(" \t", at + quoted.size());
    if (next != std::string_view::npos && Text[next] == ':')
      return at + 1;
  }
  return 1;
}

std::optional<CheckpointError> LineReader::read() {
  if (auto problem = parseJson(Text, Object)) {
    CheckpointError error = fail(
        "request-syntax", fmt::format("not valid JSON: {}", problem->message));
    error.column = problem->column;
    return error;
  }
  if (!Object.is_object())
    return fail("request-syntax",
                fmt::format("expected an object per line, found {}",
                            Object.type_name()));
  for (const auto &[key, value] : Object.items())
    if (std::find(std::begin(Keys), std::end(Keys), key) == std::end(Keys))
      return fail("request-key",
                  fmt::format("unknown key `{}`; a request has `{}`", key,
                              fmt::join(Keys, "`, `")),
                  key.c_str());
  if (auto error = readId())
    return error;
  if (auto error = readPrompt())
    return error;
  if (auto error = readBudgetAndPriority())
    return error;
  auto eos = Object.find("eos");
  if (eos == Object.end())
    return std::nullopt;
  return readTokens("eos", eos->is_array() ? *eos : json::array({*eos}),
                    Out.eos.emplace());
}

std::optional<CheckpointError> LineReader::readId() {
  auto found = Object.find("id");
  if (found == Object.end())
    return fail("request-key", "the request has no `id`");
  if (found->is_string() && !found->get_ref<const std::string &>().empty())
    Out.id = found->get<std::string>();
  else if (found->is_number_integer())
    Out.id = found->dump();
  else
    return fail("request-key",
                fmt::format("`id` must be a string or an integer, found `{}`",
                            found->dump()),
                "id");
  return std::nullopt;
}

std::optional<CheckpointError>
LineReader::readTokens(const char *key, const json &list,
                       std::vector<int32_t> &out) {
  for (const json &token : list) {
    if (!token.is_number_integer())
      return fail("request-key",
                  fmt::format("request `{}`: `{}` must hold token ids, found "
                              "`{}`",
                              Out.id, key, token.dump()),
                  key);
    if (token < 0 || token >= Options.vocabSize)
      return fail("request-token-range",
                  fmt::format("request `{}`: token {} in `{}` is outside the "
                              "vocabulary of {}",
                              Out.id, token.dump(), key, Options.vocabSize),
                  key);
    out.push_back(token.get<int32_t>());
  }
  return std::nullopt;
}

std::optional<CheckpointError> LineReader::readPrompt() {
  auto tokens = Object.find("tokens"), text = Object.find("text");
  bool hasTokens = tokens != Object.end(), hasText = text != Object.end();
  if (hasTokens == hasText)
    return fail("request-key",
                fmt::format("request `{}` must have one of `tokens` and "
                            "`text`, found {}",
                            Out.id, hasText ? "both" : "neither"),
                hasText ? "text" : nullptr);
  const char *key = hasText ? "text" : "tokens";
  if (hasText) {
    if (!Options.byteVocabulary)
      return fail("request-key",
                  fmt::format("request `{}`: `text` needs a model whose "
                              "vocabulary is bytes; give `tokens`",
                              Out.id),
                  key);
    if (!text->is_string())
      return fail("request-key",
                  fmt::format("request `{}`: `text` must be a string, found "
                              "`{}`",
                              Out.id, text->dump()),
                  key);
    for (unsigned char byte : text->get_ref<const std::string &>())
      Out.tokens.push_back(byte);
  } else {
    if (!tokens->is_array())
      return fail("request-key",
                  fmt::format("request `{}`: `tokens` must be a list of token "
                              "ids, found `{}`",
                              Out.id, tokens->dump()),
                  key);
    if (auto error = readTokens(key, *tokens, Out.tokens))
      return error;
  }
  if (Out.tokens.empty())
    return fail("request-empty-prompt",
                fmt::format("request `{}` has an empty prompt; give at least "
                            "one token",
                            Out.id),
                key);
  return std::nullopt;
}

std::optional<CheckpointError> LineReader::readBudgetAndPriority() {
  auto budget = Object.find("max_new_tokens");
  if (budget == Object.end())
    return fail("request-key",
                fmt::format("request `{}` has no `max_new_tokens`", Out.id));
  if (!budget->is_number_integer() ||
      (budget->is_number_unsigned() &&
       budget->get<uint64_t>() >
           static_cast<uint64_t>(std::numeric_limits<int64_t>::max())))
    return fail("request-key",
                fmt::format("request `{}`: `max_new_tokens` must be an "
                            "integer, found `{}`",
                            Out.id, budget->dump()),
                "max_new_tokens");
  Out.maxNewTokens = budget->get<int64_t>();
  if (Out.maxNewTokens < 0)
    return fail("request-budget",
                fmt::format("request `{}`: `max_new_tokens` {} is negative",
                            Out.id, Out.maxNewTokens),
                "max_new_tokens");
  auto priority = Object.find("priority");
  if (priority == Object.end())
    return std::nullopt;
  if (!priority->is_number_integer() ||
      *priority < std::numeric_limits<int32_t>::min() ||
      *priority > std::numeric_limits<int32_t>::max())
    return fail("request-key",
                fmt::format("request `{}`: `priority` must be a 32-bit "
                            "integer, found `{}`",
                            Out.id, priority->dump()),
                "priority");
  Out.priority = priority->get<int32_t>();
  return std::nullopt;
}

Result<std::vector<Request>>
megalith::parseRequests(std::string_view text, const RequestOptions &options,
                        const std::string &file) {
  std::vector<Request> result;
  std::map<std::string, unsigned> lineOf;
  unsigned line = 0;
  while (!text.empty()) {
    size_t newline = text.find('\n');
    std::string_view row = text.substr(0, newline);
    text.remove_prefix(newline == std::string_view::npos ? text.size()
                                                         : newline + 1);
    ++line;
    if (row.find_first_not_of(" \t\r") == std::string_view::npos)
      continue;
    LineReader reader(row, options, file, line);
    if (auto error = reader.read())
      return *error;
    auto [first, isNew] = lineOf.emplace(reader.Out.id, line);
    if (!isNew)
      return reader.fail("request-duplicate-id",
                         fmt::format("id `{}` is already used on line {}",
                                     reader.Out.id, first->second),
                         "id");
    result.push_back(std::move(reader.Out));
  }
  return result;
}

Result<std::vector<Request>>
megalith::readRequests(const std::string &path, const RequestOptions &options) {
  std::string reason;
  std::optional<std::string> text = os::readFile(path, os::dataBytes, reason);
  if (!text)
    return CheckpointError{"requests-missing",
                           fmt::format("cannot read the requests: {}", reason),
                           path};
  return parseRequests(*text, options, path);
}
