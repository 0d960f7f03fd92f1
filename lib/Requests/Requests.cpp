#include "megalith/Requests/Requests.h"
#include "megalith/Contract/Limits.h"
#include "megalith/Json/JsonText.h"
#include "megalith/Json/JsonView.h"
#include "megalith/Requests/HostEvents.h"
#include "megalith/Requests/Inputs.h"
#include "megalith/Text/Text.h"
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <map>
#include <unordered_map>

using namespace megalith;
using nlohmann::json;

namespace {

constexpr const char *Keys[] = {"id",       "tokens", "text",    "max_new_tokens", "eos",         "stop", "priority",
                                "sampling", "inputs", "arrives", "cancelled",      "deadline_ms", "cache"};

/// Reads the object of one line.
class LineReader {
public:
  LineReader(std::string_view text, const RequestOptions &options, const std::string &file, unsigned line)
      : Text(text), Options(options), File(file) {
    Out.line = line;
  }

  std::optional<FileError> read();
  FileError fail(const char *kind, std::string message, const char *key = nullptr) const {
    return {kind, std::move(message), File, Out.line, key ? columnOfMember(Text, key) : 1};
  }

  Request Out;

private:
  std::optional<FileError> readId();
  std::optional<FileError> readPrompt();
  std::optional<FileError> readBudgetAndPriority();
  std::optional<FileError> readEnds();
  std::optional<FileError> readInputValues();
  std::optional<FileError> readSampling();
  std::optional<FileError> readEdit(const std::string &key, const json &value);
  std::optional<FileError> readTimes();
  std::optional<FileError> readTokens(const char *key, const json &list, std::vector<int32_t> &out);
  /// The id, for messages.
  std::string shownId() const { return text::printable(Out.id.text, 120); }

  std::string_view Text;
  const RequestOptions &Options;
  const std::string &File;
  json Object;
};

/// Calls `each(row, line)` for every line that is not blank, with its number from
/// 1, until it returns an error.
template <class Each>
std::optional<FileError> eachLine(std::string_view text, const std::string &file, const char *kind, Each each) {
  constexpr std::string_view byteOrderMark = "\xef\xbb\xbf";
  size_t begin = text.starts_with(byteOrderMark) ? byteOrderMark.size() : 0;
  for (unsigned line = 1; !text.empty(); ++line, begin = 0) {
    const size_t newline = text.find('\n');
    const std::string_view row = text.substr(0, newline);
    text.remove_prefix(newline == text.npos ? text.size() : newline + 1);
    if (row.size() > MaxRequestLineBytes)
      return FileError{
          kind,
          fmt::format("the line has {} bytes, more than the {} that one may have", row.size(), MaxRequestLineBytes),
          file, line, 1};
    if (row.find_first_not_of(" \t\r", begin) != row.npos)
      if (auto error = each(row, line))
        return error;
  }
  return std::nullopt;
}

} // namespace

std::optional<FileError> LineReader::read() {
  if (auto problem = parseJson(Text, Object)) {
    FileError error = fail("request-syntax", fmt::format("not valid JSON: {}", problem->message));
    error.column = problem->column;
    return error;
  }
  if (!Object.is_object())
    return fail("request-syntax", fmt::format("expected an object per line, found {}", Object.type_name()));
  for (const auto &[key, value] : Object.items())
    if (std::find(std::begin(Keys), std::end(Keys), key) == std::end(Keys))
      return fail(
          "request-key",
          fmt::format("unknown key `{}`; a request has `{}`", text::printable(key, 120), fmt::join(Keys, "`, `")),
          key.c_str());
  if (auto error = readId())
    return error;
  if (auto error = readPrompt())
    return error;
  if (auto error = readBudgetAndPriority())
    return error;
  if (auto error = readSampling())
    return error;
  if (auto error = readInputValues())
    return error;
  if (auto error = readTimes())
    return error;
  return readEnds();
}

std::optional<FileError> LineReader::readId() {
  auto found = Object.find("id");
  if (found == Object.end())
    return fail("request-key", "the request has no `id`");
  if (found->is_string() && !found->get_ref<const std::string &>().empty())
    Out.id = RequestId(found->get<std::string>());
  else if (found->is_number_integer())
    Out.id = RequestId::ofInteger(found->dump());
  else
    return fail("request-key", fmt::format("`id` must be a string or an integer, found `{}`", jsonShort(*found)), "id");
  return std::nullopt;
}

std::optional<FileError> LineReader::readTokens(const char *key, const json &list, std::vector<int32_t> &out) {
  for (const json &token : list) {
    if (!token.is_number_integer())
      return fail("request-key",
                  fmt::format("request `{}`: `{}` must hold token ids, found "
                              "`{}`",
                              shownId(), key, jsonShort(token)),
                  key);
    const std::optional<int64_t> id = jsonInteger(token);
    if (!id || *id < 0 || *id >= Options.vocabSize)
      return fail("request-token-range",
                  fmt::format("request `{}`: token {} in `{}` is outside the "
                              "vocabulary of {}",
                              shownId(), jsonShort(token), key, Options.vocabSize),
                  key);
    out.push_back(static_cast<int32_t>(*id));
  }
  return std::nullopt;
}

std::optional<FileError> LineReader::readPrompt() {
  auto tokens = Object.find("tokens"), text = Object.find("text");
  bool hasTokens = tokens != Object.end(), hasText = text != Object.end();
  if (hasTokens == hasText)
    return fail("request-key",
                fmt::format("request `{}` must have one of `tokens` and "
                            "`text`, found {}",
                            shownId(), hasText ? "both" : "neither"),
                hasText ? "text" : nullptr);
  const char *key = hasText ? "text" : "tokens";
  if (hasText) {
    if (!Options.byteVocabulary)
      return fail("request-key",
                  fmt::format("request `{}`: `text` needs a model whose "
                              "vocabulary is bytes; give `tokens`. The Python package has the tokenizers of others: "
                              "`python -m megalith run` takes this file",
                              shownId()),
                  key);
    if (!text->is_string())
      return fail("request-key",
                  fmt::format("request `{}`: `text` must be a string, found "
                              "`{}`",
                              shownId(), jsonShort(*text)),
                  key);
    for (unsigned char byte : text->get_ref<const std::string &>())
      Out.tokens.push_back(byte);
  } else {
    if (!tokens->is_array())
      return fail("request-key",
                  fmt::format("request `{}`: `tokens` must be a list of token "
                              "ids, found `{}`",
                              shownId(), jsonShort(*tokens)),
                  key);
    if (auto error = readTokens(key, *tokens, Out.tokens))
      return error;
  }
  if (Out.tokens.empty())
    return fail("request-empty-prompt",
                fmt::format("request `{}` has an empty prompt; give at least "
                            "one token",
                            shownId()),
                key);
  return std::nullopt;
}

std::optional<FileError> LineReader::readBudgetAndPriority() {
  auto budget = Object.find("max_new_tokens");
  if (budget == Object.end())
    return fail("request-key", fmt::format("request `{}` has no `max_new_tokens`", shownId()));
  const std::optional<int64_t> tokens = jsonInteger(*budget);
  if (!tokens)
    return fail("request-key",
                fmt::format("request `{}`: `max_new_tokens` must be an "
                            "integer, found `{}`",
                            shownId(), jsonShort(*budget)),
                "max_new_tokens");
  Out.maxNewTokens = *tokens;
  if (Out.maxNewTokens < 0)
    return fail("request-budget",
                fmt::format("request `{}`: `max_new_tokens` {} is negative", shownId(), Out.maxNewTokens),
                "max_new_tokens");
  if (const auto cache = Object.find("cache"); cache != Object.end()) {
    const std::optional<int64_t> number = jsonInteger(*cache);
    if (!number || *number < 0)
      return fail("request-key",
                  fmt::format("request `{}`: `cache` must be a number from 0 (the common one) to {}, found `{}`",
                              shownId(), INT64_MAX, jsonShort(*cache)),
                  "cache");
    Out.cache = *number;
  }
  auto priority = Object.find("priority");
  if (priority == Object.end())
    return std::nullopt;
  const std::optional<int64_t> rank = jsonInteger(*priority);
  if (!rank || *rank < std::numeric_limits<int32_t>::min() || *rank > std::numeric_limits<int32_t>::max())
    return fail("request-key",
                fmt::format("request `{}`: `priority` must be a 32-bit "
                            "integer, found `{}`",
                            shownId(), jsonShort(*priority)),
                "priority");
  Out.priority = static_cast<int32_t>(*rank);
  return std::nullopt;
}

std::optional<FileError> LineReader::readSampling() {
  const auto given = Object.find("sampling");
  if (given == Object.end())
    return std::nullopt;
  const auto wrong = [&](const std::string &what) {
    return fail("request-sampling", fmt::format("request `{}`: {}", shownId(), what), "sampling");
  };
  constexpr const char *keys[] = {"temperature",
                                  "top_k",
                                  "top_p",
                                  "min_p",
                                  "seed",
                                  "repetition_penalty",
                                  "presence_penalty",
                                  "frequency_penalty",
                                  "min_new_tokens",
                                  "bias",
                                  "banned",
                                  "allowed",
                                  "format"};
  if (!given->is_object())
    return wrong(fmt::format("`sampling` must be an object with some of `{}`, found `{}`", fmt::join(keys, "`, `"),
                             jsonShort(*given)));
  for (const auto &[key, value] : given->items()) {
    if (std::find(std::begin(keys), std::end(keys), key) == std::end(keys))
      return wrong(
          fmt::format("unknown setting `{}`; `sampling` has `{}`", text::printable(key, 120), fmt::join(keys, "`, `")));
    if (key == "format") {
      if (!value.is_object() && !value.is_string())
        return wrong(
            fmt::format("`format` must be an object, such as `{{\"regex\": \"[a-z]+\"}}`, or its text, found `{}`",
                        jsonShort(value)));
      // In a schema the order of keys counts, which `value` does not have.
      Out.sampling.format = value.is_string()
                                ? value.get<std::string>()
                                : text::dump(nlohmann::ordered_json::parse(Text).at("sampling").at("format"));
      continue;
    }
    if (key == "bias" || key == "banned" || key == "allowed") {
      if (auto error = readEdit(key, value))
        return error;
      continue;
    }
    const bool whole = key == "top_k" || key == "seed" || key == "min_new_tokens";
    const std::optional<int64_t> integer = jsonInteger(value);
    if (whole ? !integer : !value.is_number())
      return wrong(
          fmt::format("`{}` must be {}, found `{}`", key, whole ? "an integer" : "a number", jsonShort(value)));
    if (whole && key != "seed" && *integer >= INT32_MIN && *integer <= INT32_MAX)
      (key == "top_k" ? Out.sampling.topK : Out.sampling.minNewTokens) = static_cast<int32_t>(*integer);
    else if (key == "seed" && *integer >= 0 && *integer <= UINT32_MAX)
      Out.sampling.seed = static_cast<uint32_t>(*integer);
    else if (whole)
      return wrong(fmt::format("`{}` must be from 0 to {}, found {}", key, key == "seed" ? UINT32_MAX : INT32_MAX,
                               jsonShort(value)));
    else
      (key == "temperature"          ? Out.sampling.temperature
       : key == "top_p"              ? Out.sampling.topP
       : key == "min_p"              ? Out.sampling.minP
       : key == "repetition_penalty" ? Out.sampling.repetitionPenalty
       : key == "presence_penalty"   ? Out.sampling.presencePenalty
                                     : Out.sampling.frequencyPenalty) = static_cast<float>(value.get<double>());
  }
  if (const std::string problem = whyNot(Out.sampling); !problem.empty())
    return wrong(problem);
  return std::nullopt;
}

/// `banned` and `allowed` are lists of tokens, `bias` one of pairs of a token and a number.
std::optional<FileError> LineReader::readEdit(const std::string &key, const json &value) {
  const auto wrong = [&](const std::string &what) {
    return fail("request-sampling", fmt::format("request `{}`: {}", shownId(), what), "sampling");
  };
  if (!value.is_array())
    return wrong(fmt::format("`{}` must be a list, found `{}`", key, jsonShort(value)));
  std::vector<int32_t> &tokens = key == "allowed" ? Out.sampling.allowed.emplace() : Out.sampling.banned;
  for (const json &each : value) {
    const bool isBias = key == "bias", isPair = each.is_array() && each.size() == 2 && each[1].is_number();
    const json &token = isBias && isPair ? each[0] : each;
    const std::optional<int64_t> id = token.is_number_integer() ? jsonInteger(token) : std::nullopt;
    if (!token.is_number_integer() || (isBias && !isPair))
      return wrong(isBias ? fmt::format("`bias` must hold pairs of a token and a number, found `{}`; write "
                                        "`[[5, -2.5]]`",
                                        jsonShort(each))
                          : fmt::format("`{}` must hold tokens, found `{}`", key, jsonShort(each)));
    if (!id || *id < 0 || *id >= Options.vocabSize)
      return fail("request-token-range",
                  fmt::format("request `{}`: token {} in `{}` is outside the vocabulary of {}", shownId(),
                              jsonShort(token), key, Options.vocabSize),
                  "sampling");
    const auto number = static_cast<int32_t>(*id);
    if (!isBias)
      tokens.push_back(number);
    else if (!Out.sampling.bias.emplace(number, static_cast<float>(each[1].get<double>())).second)
      return wrong(fmt::format("`bias` has token {} twice", number));
  }
  return std::nullopt;
}

std::optional<FileError> LineReader::readTimes() {
  const auto wrong = [&](const char *key, const std::string &what) {
    return fail(
        "request-time",
        fmt::format("request `{}`: `{}` must be {}, found `{}`", shownId(), key, what, jsonShort(Object.at(key))), key);
  };
  const auto within = [](const std::optional<int64_t> &number) {
    return number && *number >= 0 && *number <= INT32_MAX;
  };
  // {"tick": 3} or {"ms": 20}
  const auto when = [&](const char *key, auto &into) -> std::optional<FileError> {
    const auto given = Object.find(key);
    if (given == Object.end())
      return std::nullopt;
    const bool one = given->is_object() && given->size() == 1 && (given->contains("tick") || given->contains("ms"));
    const std::optional<int64_t> number = one ? jsonInteger(*given->begin()) : std::nullopt;
    if (!within(number))
      return wrong(key, "`{\"tick\": N}` or `{\"ms\": N}`, N from 0 to 2147483647");
    When time;
    (given->contains("tick") ? time.tick : time.ms) = *number;
    into = time;
    return std::nullopt;
  };
  if (auto error = when("arrives", Out.arrives))
    return error;
  if (auto error = when("cancelled", Out.cancelled))
    return error;
  const auto deadline = Object.find("deadline_ms");
  if (deadline == Object.end())
    return std::nullopt;
  const std::optional<int64_t> milliseconds = jsonInteger(*deadline);
  if (!within(milliseconds))
    return wrong("deadline_ms", "a number of milliseconds from 0 (none) to 2147483647");
  Out.deadlineMs = static_cast<int32_t>(*milliseconds);
  return std::nullopt;
}

std::string megalith::whyNot(const Sampling &s) {
  if (!std::isfinite(s.temperature) || s.temperature < 0)
    return fmt::format("`temperature` must be 0 or above, found {}", s.temperature);
  if (s.topK < 0)
    return fmt::format("`top_k` must be 0 (all) or above, found {}", s.topK);
  if (!(s.topP > 0 && s.topP <= 1))
    return fmt::format("`top_p` must be above 0 and at most 1, found {}", s.topP);
  if (!(s.minP >= 0 && s.minP <= 1))
    return fmt::format("`min_p` must be from 0 to 1, found {}", s.minP);
  // So large that anything can be said, and so small that neither the logits' differences nor the noise are lost.
  constexpr float most = 10000;
  if (!(s.repetitionPenalty >= 0.001f && s.repetitionPenalty <= 1000))
    return fmt::format("`repetition_penalty` must be from 0.001 to 1000, found {}", s.repetitionPenalty);
  for (const auto &[name, number] :
       {std::pair("presence_penalty", s.presencePenalty), std::pair("frequency_penalty", s.frequencyPenalty)})
    if (!(std::fabs(number) <= most))
      return fmt::format("`{}` must be from -{} to {}, found {}", name, most, most, number);
  if (s.minNewTokens < 0)
    return fmt::format("`min_new_tokens` must be 0 or above, found {}", s.minNewTokens);
  for (const auto &[token, number] : s.bias)
    if (!(std::fabs(number) <= most))
      return fmt::format("`bias` of token {} must be from -{} to {}, found {}", token, most, most, number);
  if (s.allowed && s.allowed->empty())
    return "`allowed` allows no token; leave it out to allow all";
  for (const auto &[name, count] : {std::pair("bias", s.bias.size()), std::pair("banned", s.banned.size()),
                                    std::pair("allowed", s.allowed ? s.allowed->size() : 0)})
    if (count > limits::edits)
      return fmt::format("`{}` has {} tokens; {} at most", name, count, limits::edits);
  return "";
}

std::optional<FileError> LineReader::readEnds() {
  if (auto eos = Object.find("eos"); eos != Object.end())
    if (auto error = readTokens("eos", eos->is_array() ? *eos : json::array({*eos}), Out.eos.emplace()))
      return error;
  const auto stop = Object.find("stop");
  if (stop == Object.end())
    return std::nullopt;
  const auto wrong = [&](const std::string &what) {
    return fail("request-stop", fmt::format("request `{}`: {}", shownId(), what), "stop");
  };
  if (!stop->is_array())
    return wrong(fmt::format("`stop` must be a list of sequences of tokens, found `{}`", jsonShort(*stop)));
  for (const json &sequence : *stop) {
    if (!sequence.is_array())
      return wrong(
          fmt::format("`stop` must hold sequences of tokens, found `{}`; write `[[1, 2], [3]]`", jsonShort(sequence)));
    if (auto error = readTokens("stop", sequence, Out.stop.emplace_back()))
      return error;
  }
  if (const std::string problem = whyNot(Out.stop); !problem.empty())
    return wrong(problem);
  return std::nullopt;
}

std::string megalith::whyNot(const std::vector<std::vector<int32_t>> &stop) {
  if (stop.size() > MaxStops)
    return fmt::format("`stop` has {} sequences, more than the {} that a request may have", stop.size(), MaxStops);
  for (size_t i = 0; i < stop.size(); ++i)
    if (stop[i].empty())
      return fmt::format("sequence {} of `stop` is empty; give it at least one token, or leave it out", i + 1);
    else if (stop[i].size() > MaxStopTokens)
      return fmt::format("sequence {} of `stop` has {} tokens, more than the {} that one may have", i + 1,
                         stop[i].size(), MaxStopTokens);
  return "";
}

std::optional<FileError> LineReader::readInputValues() {
  const auto inputs = Object.find("inputs");
  const bool given = inputs != Object.end();
  if (given && !inputs->is_object())
    return fail("request-input",
                fmt::format("request `{}`: `inputs` must be an object, found `{}`", shownId(), jsonShort(*inputs)),
                "inputs");
  auto problem = given ? readInputs(*inputs, Options.inputs, Options.byteVocabulary, Out) : std::nullopt;
  if (!problem)
    problem = checkInputs(Options.inputs, Out, Options.vocabSize);
  if (!problem)
    return std::nullopt;
  const std::string member = problem->input.empty() ? "inputs" : "inputs." + problem->input;
  return fail("request-input", fmt::format("request `{}`: {}", shownId(), problem->message), member.c_str());
}

Result<std::vector<Request>> megalith::parseRequests(std::string_view text, const RequestOptions &options,
                                                     const std::string &file) {
  std::vector<Request> result;
  std::unordered_map<std::string, size_t> known; // by the text of the id
  auto error =
      eachLine(text, file, "request-syntax", [&](std::string_view row, unsigned line) -> std::optional<FileError> {
        LineReader reader(row, options, file, line);
        if (result.size() == options.most)
          return reader.fail("request-count", fmt::format("a run has at most {} requests; give the "
                                                          "others to another run",
                                                          options.most));
        if (auto error = reader.read())
          return error;
        const RequestId &id = reader.Out.id;
        auto [first, isNew] = known.emplace(id.text, result.size());
        if (!isNew) {
          const Request &other = result[first->second];
          bool sameForm = other.id.isInteger == id.isInteger;
          return reader.fail("request-duplicate-id",
                             fmt::format("id `{}` is already used on line {}{}", text::printable(id.text, 120),
                                         other.line,
                                         sameForm ? ""
                                                  : "; an integer and a string of "
                                                    "its digits are the same id"),
                             "id");
        }
        result.push_back(std::move(reader.Out));
        if (const std::string problem = whyNotThen(result, result.size() - 1); !problem.empty())
          return reader.fail("request-time",
                             fmt::format("request `{}`: {}", text::printable(result.back().id.text, 120), problem),
                             result.back().cancelled ? "cancelled" : "arrives");
        return std::nullopt;
      });
  if (error)
    return *error;
  return result;
}

namespace {
/// Lines `{"id", ...}` of some of the requests, each of one of them once.
class LinesOfRequests {
public:
  LinesOfRequests(const std::vector<Request> &requests, const char *kind, const std::string &file)
      : Kind(kind), File(file) {
    for (size_t i = 0; i < requests.size(); ++i)
      NumberOf.emplace(requests[i].id.text, i);
  }

  /// Calls `each(object, number of the request)`, which may throw JsonWrong.
  template <class Each>
  std::optional<FileError> read(std::string_view text, std::initializer_list<std::string_view> keys, Each each) {
    return eachLine(text, File, Kind, [&](std::string_view row, unsigned line) -> std::optional<FileError> {
      try {
        json value;
        parseJsonText(row, value);
        const JsonView object(value, "a line");
        object.only(keys);
        each(object, numberOf(object, line));
        return std::nullopt;
      } catch (const JsonWrong &problem) {
        const unsigned column = problem.column ? problem.column : columnOfMember(row, problem.member);
        return FileError{Kind, problem.message, File, line, column};
      }
    });
  }

private:
  size_t numberOf(const JsonView &object, unsigned line) {
    const JsonView id = object.at("id");
    const std::string name = id.json().is_number_integer() ? id.json().dump() : id.string();
    const auto request = NumberOf.find(name);
    if (request == NumberOf.end())
      throw JsonWrong{fmt::format("no request has the id `{}`", text::printable(name, 120)), "id"};
    const auto [first, isNew] = LineOf.emplace(request->second, line);
    if (!isNew)
      throw JsonWrong{fmt::format("id `{}` is already used on line {}", text::printable(name, 120), first->second),
                      "id"};
    return request->second;
  }

  const char *Kind;
  const std::string &File;
  std::unordered_map<std::string, size_t> NumberOf;
  std::map<size_t, unsigned> LineOf;
};
} // namespace

Result<std::vector<Request>> megalith::parseArrivals(std::string_view text, std::vector<Request> requests,
                                                     const std::string &file) {
  LinesOfRequests lines(requests, "arrivals-file", file);
  auto error = lines.read(text, {"id", "tick", "ms"}, [&](const JsonView &object, size_t number) {
    const auto tick = object.find("tick"), ms = object.find("ms");
    if (!tick == !ms)
      throw JsonWrong{"a line has `id` and one of `tick` and `ms`", tick ? "tick" : "id"};
    requests[number].arrives = {tick ? tick->integer(0, INT32_MAX) : 0, ms ? ms->integer(0, INT32_MAX) : 0};
  });
  if (error)
    return *error;
  std::stable_sort(requests.begin(), requests.end(),
                   [](const Request &a, const Request &b) { return a.arrives < b.arrives; });
  for (size_t i = 0; i < requests.size(); ++i)
    if (const std::string problem = whyNotThen(requests, i); !problem.empty())
      return FileError{"arrivals-file",
                       fmt::format("request `{}`: {}", text::printable(requests[i].id.text, 120), problem), file};
  return requests;
}

Result<std::vector<std::vector<int32_t>>> megalith::parseDrafts(std::string_view text,
                                                                const std::vector<Request> &requests, int64_t vocabSize,
                                                                const std::string &file) {
  std::vector<std::vector<int32_t>> drafts(requests.size());
  LinesOfRequests lines(requests, "drafts-file", file);
  auto error = lines.read(text, {"id", "tokens"}, [&](const JsonView &object, size_t number) {
    object.at("tokens").list([&](const JsonView &token) {
      drafts[number].push_back(static_cast<int32_t>(token.integer(0, vocabSize - 1)));
    });
  });
  if (error)
    return *error;
  return drafts;
}
