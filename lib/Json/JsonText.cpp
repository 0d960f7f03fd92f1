#include "megalith/Json/JsonText.h"
#include "megalith/Text/Text.h"
#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <limits>
#include <vector>

using namespace megalith;

namespace {

using nlohmann::json;

/// Iterates over a text and leaves behind how far the parser has read, which is
/// how a handler of its events learns where it is.
class Reading {
public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char *;
  using reference = const char &;

  Reading(const char *at, const char **reached) : at(at), reached(reached) {}
  reference operator*() const { return *at; }
  Reading &operator++() {
    *reached = ++at;
    return *this;
  }
  bool operator==(const Reading &other) const { return at == other.at; }
  bool operator!=(const Reading &other) const { return at != other.at; }

private:
  const char *at;
  const char **reached;
};

/// Builds the value from the parser's events.
class Builder : public nlohmann::json_sax<json> {
public:
  Builder(std::string_view text, json &out, const JsonOptions &options)
      : reached(text.data()), text(text), out(out), options(options) {}

  const char *reached; ///< how far the parser has read
  std::optional<JsonProblem> problem;
  /// Where each number ends that stands for one that is not finite, and that.
  std::map<uint64_t, double> nonFinite;

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(int64_t value) override { return add(value); }
  bool number_unsigned(uint64_t value) override { return add(value); }
  bool string(std::string &value) override { return add(std::move(value)); }
  bool binary(json::binary_t &) override { return false; } // not in JSON
  bool number_float(double value, const std::string &) override {
    // The parser reads one byte after a number, unless the text ends there.
    for (uint64_t end : {here(), here() - 1})
      if (auto found = nonFinite.find(end); found != nonFinite.end())
        value = found->second;
    return add(value);
  }
  bool start_object(size_t) override { return enter(json::object()); }
  bool start_array(size_t) override { return enter(json::array()); }
  bool end_object() override { return leave(); }
  bool end_array() override { return leave(); }

  bool key(std::string &name) override {
    const uint64_t begin = beginOfString();
    if (open.back()->contains(name))
      return fail(begin, "key `" + text::printable(name) + "` occurs twice in one object");
    member = name;
    const bool inObjectsOnly = path.size() == open.size() - 1;
    if (options.places && inObjectsOnly) {
      std::string dotted;
      for (const std::string &outer : path)
        dotted += outer + ".";
      place(begin, (*options.places)[dotted + name]);
    }
    return true;
  }

  bool parse_error(size_t byte, const std::string &token, const nlohmann::detail::exception &error) override {
    // The library counts the byte it stopped after, from 1.
    const uint64_t at = std::min<uint64_t>(byte == 0 ? 0 : byte - 1, text.size());
    constexpr int outOfRange = 406;
    if (error.id == outOfRange)
      return fail(byte - std::min(byte, token.size()),
                  "the number `" + token + "` is too large for 64 bits of floating point");
    // `[json.exception.parse_error.101] parse error at line 1, column 3: syntax
    // error while ...` keeps its last part.
    const std::string what = error.what();
    const size_t colon = what.find(": ");
    return fail(at, colon == std::string::npos ? what : what.substr(colon + 2));
  }

  bool fail(uint64_t byte, std::string message) {
    problem.emplace();
    problem->message = text::printable(message, 300); // the library's quote what it has read
    place(byte, *problem);
    return false;
  }

private:
  uint64_t here() const { return reached - text.data(); }

  /// Where the string begins that the parser has just read.
  uint64_t beginOfString() const {
    uint64_t at = here() - 1; // the closing quote
    bool escaped = true;
    while (escaped && at > 0) {
      at = text.rfind('"', at - 1);
      uint64_t slashes = at;
      while (slashes > 0 && text[slashes - 1] == '\\')
        --slashes;
      escaped = (at - slashes) % 2 == 1;
    }
    return at;
  }

  /// Places are asked for from front to back, so that lines are counted once.
  void place(uint64_t byte, JsonPlace &result) {
    if (byte < lineBegin) {
      line = 1;
      lineBegin = 0;
    }
    for (size_t newline; (newline = text.find('\n', lineBegin)) < byte; ++line)
      lineBegin = newline + 1;
    result.byte = byte;
    result.line = line;
    result.column = 1 + byte - lineBegin;
  }

  /// Puts a value where the parser is; the last one of a list stays where it is
  /// while it is open.
  json *put(json value) {
    if (open.empty())
      return &(out = std::move(value));
    if (open.back()->is_array()) {
      open.back()->push_back(std::move(value));
      return &open.back()->back();
    }
    return &((*open.back())[member] = std::move(value));
  }
  bool add(json value) {
    put(std::move(value));
    return true;
  }
  bool enter(json value) {
    if (open.size() == MaxJsonDepth)
      return fail(here() - 1, "lists and objects are nested more than " + std::to_string(MaxJsonDepth) + " deep");
    if (!open.empty() && open.back()->is_object() && path.size() == open.size() - 1)
      path.push_back(member);
    open.push_back(put(std::move(value)));
    return true;
  }
  bool leave() {
    open.pop_back();
    if (!open.empty() && path.size() > open.size() - 1)
      path.pop_back();
    return true;
  }

  std::string_view text;
  json &out;
  const JsonOptions &options;
  std::vector<json *> open;      ///< from the outermost
  std::vector<std::string> path; ///< keys of the open values, while these stand in objects only
  std::string member;            ///< the key that the next value belongs to
  unsigned line = 1;             ///< of the last place asked for
  uint64_t lineBegin = 0;
};

/// Replaces `NaN`, `Infinity` and `-Infinity` outside strings by zeros of the
/// same length, which the parser knows, and notes where they end.
std::string withoutNonFinite(std::string_view text, std::map<uint64_t, double> &ends) {
  static const std::pair<std::string_view, double> words[] = {{"NaN", std::numeric_limits<double>::quiet_NaN()},
                                                              {"Infinity", std::numeric_limits<double>::infinity()}};
  std::string result(text);
  bool inString = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (inString && text[i] == '\\')
      ++i;
    else if (text[i] == '"')
      inString = !inString;
    for (const auto &[word, value] : words) {
      if (inString || i >= text.size() || text.substr(i, word.size()) != word)
        continue;
      result.replace(i, word.size(), "0." + std::string(word.size() - 2, '0'));
      const bool negative = i > 0 && text[i - 1] == '-' && value == value;
      i += word.size();
      ends[i--] = negative ? -value : value;
      break;
    }
  }
  return result;
}

} // namespace

std::optional<JsonProblem> megalith::parseJson(std::string_view text, json &out, const JsonOptions &options) {
  std::string edited;
  std::map<uint64_t, double> ends;
  if (options.nonFinite && (text.find("NaN") != text.npos || text.find("Infinity") != text.npos)) {
    edited = withoutNonFinite(text, ends);
    text = edited;
  }
  Builder builder(text, out, options);
  builder.nonFinite = std::move(ends);
  if (size_t zero = text.find('\0'); zero != text.npos) {
    builder.fail(zero, "a byte 0, which is no text");
    return builder.problem;
  }
  Reading begin(text.data(), &builder.reached), end(text.data() + text.size(), &builder.reached);
  json::sax_parse(begin, end, &builder);
  return builder.problem;
}

std::optional<int64_t> megalith::jsonInteger(const json &value) {
  if (!value.is_number_integer())
    return std::nullopt;
  if (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
    return std::nullopt;
  return value.get<int64_t>();
}

std::optional<double> megalith::jsonNumber(const json &value) {
  double number = 0;
  if (value.is_number()) {
    number = value.get<double>();
  } else if (value.is_string()) {
    const std::string &text = value.get_ref<const std::string &>();
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || end != text.data() + text.size())
      return std::nullopt;
  } else {
    return std::nullopt;
  }
  return std::isfinite(number) ? std::optional(number) : std::nullopt;
}

bool megalith::isLfsPointer(std::string_view text) {
  return text.starts_with("version https://git-lfs.github.com/spec/");
}

std::string megalith::jsonShort(const json &value) {
  if (value.is_number_float()) {
    const double number = value.get<double>();
    if (std::isnan(number))
      return "NaN";
    if (std::isinf(number))
      return number < 0 ? "-Infinity" : "Infinity";
  }
  const std::string all = value.dump(-1, ' ', /*ensure_ascii=*/false, json::error_handler_t::replace);
  return text::printable(all, 120);
}
