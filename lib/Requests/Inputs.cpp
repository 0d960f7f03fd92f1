#include "megalith/Requests/Inputs.h"
#include "megalith/Json/JsonValue.h"
#include "megalith/Text/Text.h"
#include <algorithm>
#include <bit>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <limits>

using namespace megalith;
using nlohmann::json;

std::string Input::spelling() const {
  if (rows)
    return fmt::format("{}[{}, {}]", type, *rows, *capacity);
  if (capacity)
    return fmt::format("{}[{}]", type, *capacity);
  if (least == INT32_MIN && most == INT32_MAX)
    return type;
  return fmt::format("{} in {}..{}", type, least, most + 1);
}

namespace {

bool fits(int64_t value, int64_t least, int64_t most) { return value >= least && value <= most; }
bool isF32(double value) { return std::isfinite(static_cast<float>(value)); }

/// What stands there, for messages.
std::string shown(const InputValue &value) {
  if (const auto *i = std::get_if<int64_t>(&value))
    return fmt::format("`{}`", *i);
  if (const auto *d = std::get_if<double>(&value))
    return fmt::format("`{}`", *d);
  if (const auto *b = std::get_if<bool>(&value))
    return *b ? "`true`" : "`false`";
  const bool whole = std::holds_alternative<std::vector<int32_t>>(value);
  return whole || std::holds_alternative<std::vector<float>>(value) ? whole ? "a list of integers" : "a list of numbers"
                                                                    : "a list of lists";
}

/// The rows of a table; nullopt: it is none. A list without elements may be one without rows.
std::optional<std::vector<InputValue>> rowsOf(const InputValue &value) {
  return std::visit(
      [](const auto &held) -> std::optional<std::vector<InputValue>> {
        if constexpr (requires { held.size(); }) {
          if constexpr (requires { held[0].size(); })
            return std::vector<InputValue>(held.begin(), held.end());
          if (held.empty())
            return std::vector<InputValue>();
        }
        return std::nullopt;
      },
      value);
}

/// Checks one value against its declaration. The result is what is wrong with `input NAME`; empty: nothing.
class ValueCheck {
public:
  ValueCheck(const Input &input, int64_t vocabSize) : input(input), vocabSize(vocabSize) {
    if (input.type == "token")
      least = 0, most = vocabSize - 1;
    else if (input.type == "bool")
      least = 0, most = 1;
    else
      least = input.least, most = input.most;
  }

  std::string scalar(const InputValue &value) const {
    const auto *whole = std::get_if<int64_t>(&value);
    const auto *real = std::get_if<double>(&value);
    if (input.type == "f32") {
      if ((whole && isF32(static_cast<double>(*whole))) || (real && isF32(*real)))
        return "";
      return "must be a number that an f32 can hold, found " + shown(value);
    }
    if (input.type == "bool")
      return std::holds_alternative<bool>(value) ? "" : "must be `true` or `false`, found " + shown(value);
    if (whole && fits(*whole, least, most))
      return "";
    if (input.type == "token")
      return fmt::format("must be a token of the vocabulary of {}, found {}", vocabSize, shown(value));
    return fmt::format("must be an integer from {} to {}, found {}", least, most, shown(value));
  }

  std::string sequence(const InputValue &value) const {
    const auto *whole = std::get_if<std::vector<int32_t>>(&value);
    const auto *real = std::get_if<std::vector<float>>(&value);
    const bool numbers = input.type == "f32";
    // A list without elements has no type of its own.
    if (!(whole || (real && (numbers || real->empty()))))
      return fmt::format("must be a list of {}, found {}",
                         input.type == "token"  ? "token ids"
                         : input.type == "bool" ? "`true` and `false`"
                         : numbers              ? "numbers"
                                                : "integers",
                         shown(value));
    const size_t count = whole ? whole->size() : real->size();
    if (count > static_cast<uint64_t>(*input.capacity))
      return fmt::format("has {} elements, more than the {} that it may have", count, *input.capacity);
    if (whole && !numbers)
      for (int32_t item : *whole)
        if (!fits(item, least, most))
          return input.type == "token"
                     ? fmt::format("has token {}, which is outside the vocabulary of {}", item, vocabSize)
                     : fmt::format("has {}, expected {} to {}", item, least, most);
    if (real && !std::all_of(real->begin(), real->end(), [](float f) { return std::isfinite(f); }))
      return "has a number that an f32 cannot hold";
    return "";
  }

  std::string table(const InputValue &value) const {
    const auto rows = rowsOf(value);
    if (!rows)
      return "must be a list of lists, found " + shown(value);
    if (rows->size() > static_cast<uint64_t>(*input.rows))
      return fmt::format("has {} rows, more than the {} that it may have", rows->size(), *input.rows);
    for (size_t i = 0; i < rows->size(); ++i)
      if (const std::string wrong = sequence((*rows)[i]); !wrong.empty())
        return fmt::format("{} in row {}", wrong, i);
    return "";
  }

private:
  const Input &input;
  int64_t vocabSize, least, most;
};

/// "`a`, `b`"
std::string namesOf(const std::vector<Input> &declared) {
  std::vector<std::string> names;
  for (const Input &input : declared)
    names.push_back("`" + input.name + "`");
  return fmt::format("{}", fmt::join(names, ", "));
}

} // namespace

std::optional<InputProblem> megalith::checkInputs(const std::vector<Input> &declared, const Request &request,
                                                  int64_t vocabSize) {
  const auto named = [&](const std::string &name) {
    return std::find_if(declared.begin(), declared.end(), [&](const Input &input) { return input.name == name; });
  };
  for (const auto &[name, value] : request.inputs) {
    const auto input = named(name);
    if (input == declared.end())
      return InputProblem{name, fmt::format("the pipeline has no input `{}`; {}", text::printable(name, 120),
                                            declared.empty() ? "it has none" : "it has " + namesOf(declared))};
    const ValueCheck check(*input, vocabSize);
    if (const std::string wrong = input->rows       ? check.table(value)
                                  : input->capacity ? check.sequence(value)
                                                    : check.scalar(value);
        !wrong.empty())
      return InputProblem{name, fmt::format("input `{}` {}", name, wrong)};
  }
  for (const Input &input : declared)
    if (!input.otherwise && !request.inputs.count(input.name))
      return InputProblem{
          "", fmt::format("input `{}` ({}) is missing, and it has no default", input.name, input.spelling())};
  return std::nullopt;
}

std::optional<InputValue> megalith::tableOf(const std::vector<InputValue> &rows) {
  std::vector<std::vector<int32_t>> whole;
  std::vector<std::vector<float>> real;
  bool isReal = false;
  for (const InputValue &row : rows) {
    const auto *integers = std::get_if<std::vector<int32_t>>(&row);
    const auto *numbers = std::get_if<std::vector<float>>(&row);
    if (!integers && !numbers)
      return std::nullopt;
    isReal |= numbers != nullptr;
    whole.push_back(integers ? *integers : std::vector<int32_t>());
    real.push_back(numbers ? *numbers : std::vector<float>(integers->begin(), integers->end()));
  }
  if (isReal)
    return real;
  return whole;
}

static std::vector<int32_t> bytesOf(const json &text) {
  std::vector<int32_t> bytes;
  for (unsigned char byte : text.get_ref<const std::string &>())
    bytes.push_back(byte);
  return bytes;
}

/// A text, or a list with one.
static bool hasText(const json &value) {
  return value.is_string() ||
         (value.is_array() && std::any_of(value.begin(), value.end(), [](const json &row) { return row.is_string(); }));
}

/// A text or a list of JSON; nullopt when its elements are not of one kind. `isReal`: it is for numbers with a point.
static std::optional<InputValue> listOf(const json &list, bool isReal) {
  if (list.is_string())
    return bytesOf(list);
  if (!list.is_array())
    return std::nullopt;
  if (!list.empty() &&
      std::all_of(list.begin(), list.end(), [](const json &row) { return row.is_array() || row.is_string(); })) {
    std::vector<InputValue> rows;
    for (const json &row : list) {
      auto items = listOf(row, isReal);
      if (!items)
        return std::nullopt;
      rows.push_back(std::move(*items));
    }
    return tableOf(rows);
  }
  const auto all = [&](auto test) { return std::all_of(list.begin(), list.end(), test); };
  std::vector<int32_t> whole;
  std::vector<float> real;
  if (all([](const json &v) { return v.is_boolean(); })) {
    for (const json &v : list)
      whole.push_back(v.get<bool>());
    return whole;
  }
  if (!isReal && all([](const json &v) { return v.is_number_integer(); })) {
    for (const json &v : list) {
      const auto i = jsonInteger(v);
      if (!i || !fits(*i, INT32_MIN, INT32_MAX))
        return std::nullopt;
      whole.push_back(static_cast<int32_t>(*i));
    }
    return whole;
  }
  if (!all([](const json &v) { return v.is_number(); }))
    return std::nullopt;
  for (const json &v : list)
    real.push_back(static_cast<float>(v.get<double>()));
  return real;
}

/// A list of bools, or rows that are.
static bool hasBools(const json &value) {
  return value.is_array() &&
         std::any_of(value.begin(), value.end(), [](const json &item) { return item.is_boolean() || hasBools(item); });
}

std::optional<InputProblem> megalith::readInputs(const json &inputs, const std::vector<Input> &declared,
                                                 bool byteVocabulary, Request &request) {
  for (const auto &[name, value] : inputs.items()) {
    const auto wrong = [&](const std::string &what) {
      return InputProblem{name, fmt::format("input `{}` {}", text::printable(name, 120), what)};
    };
    const auto input =
        std::find_if(declared.begin(), declared.end(), [&, of = name](const Input &each) { return each.name == of; });
    if (input != declared.end() && input->type != "bool" && hasBools(value)) // they are no numbers
      return wrong(fmt::format("must be {}, found `{}`", input->spelling(), jsonShort(value)));
    std::optional<InputValue> taken;
    if (value.is_boolean())
      taken = value.get<bool>();
    else if (const auto whole = jsonInteger(value))
      taken = *whole;
    else if (value.is_number())
      taken = value.get<double>();
    else if (hasText(value) && !byteVocabulary)
      return wrong("is a text, which needs a model whose vocabulary is bytes; give token ids");
    else
      taken = listOf(value, input != declared.end() && input->type == "f32");
    if (!taken)
      return wrong(
          fmt::format("must be a number, `true`, `false`, a list of one of these, or a list of such lists, found `{}`",
                      jsonShort(value)));
    request.inputs[name] = std::move(*taken);
  }
  return std::nullopt;
}

namespace {

/// The words of a value, of which all are f32 or none.
struct InputWords {
  bool isF32;
  std::vector<int32_t> words;

  template <class Number> void add(Number value) {
    words.push_back(isF32 ? std::bit_cast<int32_t>(static_cast<float>(value)) : static_cast<int32_t>(value));
  }
  template <class Number> void operator()(Number value) { add(value); }
  template <class Number> void operator()(const std::vector<Number> &items) {
    for (Number item : items)
      add(item);
  }
  template <class Number> void operator()(const std::vector<std::vector<Number>> &rows) {
    for (const std::vector<Number> &row : rows)
      (*this)(row);
  }
};

/// A table of words, as Inputs.h says.
std::vector<int32_t> tableWords(const Input &input, const std::vector<InputValue> &rows) {
  std::vector<int32_t> out = {static_cast<int32_t>(rows.size())};
  std::vector<InputWords> each;
  for (const InputValue &row : rows) {
    std::visit(each.emplace_back(InputWords{input.type == "f32", {}}), row);
    out.push_back(static_cast<int32_t>(each.back().words.size()));
  }
  for (InputWords &row : each) {
    row.words.resize(*input.capacity);
    out.insert(out.end(), row.words.begin(), row.words.end());
  }
  return out;
}

} // namespace

std::vector<int32_t> megalith::inputWords(const Input &input, const Request &request) {
  const auto found = request.inputs.find(input.name);
  const bool given = found != request.inputs.end();
  InputWords words{input.type == "f32", {}};
  if (input.rows)
    return tableWords(input, given             ? rowsOf(found->second).value_or(std::vector<InputValue>())
                             : input.otherwise ? rowsOf(*input.otherwise).value_or(std::vector<InputValue>())
                                               : std::vector<InputValue>());
  if (given || input.otherwise)
    std::visit(words, given ? found->second : *input.otherwise);
  return std::move(words.words);
}

std::vector<std::vector<int32_t>> megalith::inputRows(const Input &input, const Request &request) {
  const std::vector<int32_t> words = inputWords(input, request);
  std::vector<std::vector<int32_t>> rows;
  for (int32_t i = 0; i < words[0]; ++i) {
    const auto begin = words.begin() + 1 + words[0] + i * *input.capacity;
    rows.emplace_back(begin, begin + words[1 + i]);
  }
  return rows;
}

int64_t megalith::mostWords(const Input &input) {
  return input.rows ? 1 + *input.rows * (1 + *input.capacity) : input.capacity.value_or(0);
}

InputValue megalith::inputValue(const Input &input, const Request &request) {
  std::vector<int32_t> words = inputWords(input, request);
  const auto real = [](int32_t word) { return std::bit_cast<float>(word); };
  if (input.rows) {
    std::vector<std::vector<int32_t>> rows = inputRows(input, request);
    if (input.type != "f32")
      return rows;
    std::vector<std::vector<float>> numbers;
    for (const std::vector<int32_t> &row : rows) {
      numbers.emplace_back();
      for (const int32_t word : row)
        numbers.back().push_back(real(word));
    }
    return numbers;
  }
  if (input.capacity && input.type != "f32")
    return words;
  if (input.capacity) {
    std::vector<float> items;
    for (int32_t word : words)
      items.push_back(real(word));
    return items;
  }
  const int32_t word = words.empty() ? 0 : words[0];
  if (input.type == "f32")
    return double(real(word));
  if (input.type == "bool")
    return word != 0;
  return int64_t(word);
}
