#include "Command.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include <cmath>
#include <fmt/format.h>

namespace megalith::tool {

using llvm::StringRef;

template <class T> std::string readNumber(StringRef text, T least, T most, T &to) {
  if constexpr (std::is_floating_point_v<T>) {
    if (text.getAsDouble(to) || std::isnan(to))
      return "expected a number";
    return to < 0 ? "expected at least 0" : to > 1e9 ? "expected at most 1e9" : "";
  } else {
    StringRef digits = text;
    const bool negative = digits.consume_front("-");
    if (digits.empty() || !llvm::all_of(digits, llvm::isDigit))
      return "expected a whole number";
    const bool fits = !text.getAsInteger(10, to);
    if (fits ? to < least : negative)
      return fmt::format("expected at least {}", least);
    return !fits || to > most ? fmt::format("expected at most {}", most) : "";
  }
}
template std::string readNumber(StringRef, double, double, double &);
template std::string readNumber(StringRef, int64_t, int64_t, int64_t &);
template std::string readNumber(StringRef, uint64_t, uint64_t, uint64_t &);
template std::string readNumber(StringRef, uint32_t, uint32_t, uint32_t &);

Value flag(bool &to) {
  return {.form = "", .take = [&to](StringRef text) {
            to = text.empty() || text == "true" || text == "1";
            return std::string();
          }};
}

Value text(std::string &to, std::string form) {
  return {.form = std::move(form), .take = [&to](StringRef text) {
            to = text.str();
            return std::string();
          }};
}

Value texts(std::vector<std::string> &to, std::string form) {
  return {.form = std::move(form),
          .take =
              [&to](StringRef text) {
                to.push_back(text.str());
                return std::string();
              },
          .isList = true};
}

Value numbers(std::vector<int64_t> &to, std::string form, int64_t most) {
  const auto take = [&to, most](StringRef text) -> std::string {
    int64_t &number = to.emplace_back();
    if (text.getAsInteger(10, number))
      return "expected a number, or several with commas";
    return number < 1 || number > most ? fmt::format("expected a number from 1 to {}", most) : "";
  };
  return {.form = std::move(form), .take = take, .isList = true, .isComma = true};
}

Value realNumbers(std::vector<double> &to, std::string form) {
  return {.form = std::move(form),
          .take =
              [&to](StringRef text) {
                double &number = to.emplace_back();
                const bool wrong = text.getAsDouble(number) || !(number > 0) || number > 1e9;
                return wrong ? "expected a number above 0, or several with commas" : "";
              },
          .isList = true,
          .isComma = true};
}

Value pairs(std::vector<std::pair<std::string, std::string>> &to, std::string form) {
  return {.form = std::move(form),
          .take =
              [&to](StringRef text) {
                const auto [key, value] = text.split('=');
                to.push_back({key.trim().str(), value.trim().str()});
                return key.empty() || key.size() == text.size() ? "expected `name=value`" : "";
              },
          .isList = true};
}

Value models(std::vector<std::pair<std::string, std::string>> &to, std::string what) {
  const auto take = [&to, what](StringRef text) -> std::string {
    // A name has no path separator, so `./a=b` is a directory.
    const auto [front, back] = text.split('=');
    const bool named = front.size() != text.size() && !front.contains('/');
    const std::string name = named ? front.str() : "", directory = named ? back.str() : text.str();
    if (directory.empty() || (named && name.empty()))
      return fmt::format("expected `[NAME=]{}`", what);
    if (llvm::any_of(to, [&](const auto &other) { return other.first == name; }))
      return fmt::format("{} a {} {}already", named ? "this model has" : "there is", what == "DIR" ? "directory" : what,
                         named ? "" : "for all models ");
    to.push_back({name, directory});
    return "";
  };
  return {.form = "[NAME=]" + what, .take = take, .isList = true};
}

Value inputFile(Value value) {
  value.file = Value::Input;
  return value;
}

Value outputFile(Value value) {
  value.file = Value::Output;
  return value;
}

std::vector<std::string> Value::names() const {
  std::vector<std::string> names;
  for (const Choice &choice : choices)
    names.push_back(choice.name);
  return names;
}

std::vector<std::string> Command::words() const {
  llvm::SmallVector<StringRef> words;
  StringRef(about.operand).split(words, '|', -1, /*KeepEmpty=*/false);
  return {words.begin(), words.end()};
}

const Option *Command::find(StringRef name) const {
  const auto found = llvm::find_if(options, [&](const Option &option) { return option.name == name; });
  return found == options.end() ? nullptr : &*found;
}

std::string Command::shown(StringRef name) const {
  const Option &option = *find(name);
  return option.dashed() + " " + llvm::join(option.given, ",");
}

std::vector<const Option *> Command::sorted() const {
  std::vector<const Option *> all;
  for (const Option &option : options)
    all.push_back(&option);
  llvm::sort(all, [](const Option *a, const Option *b) { return a->name < b->name; });
  return all;
}

std::vector<NamedFile> Command::files(decltype(Value::file) kind) const {
  std::vector<NamedFile> all;
  for (const Option &option : options)
    if (option.value.file == kind)
      for (const std::string &path : option.given)
        all.push_back({option.dashed(), path});
  return all;
}

Option &Command::add(std::string name, Value value, std::string help) {
  return options.emplace_back(Option{std::move(name), std::move(value), std::move(help)});
}

bool badOption(Diagnostics &diags, const std::string &what, const std::string &why) {
  diags.report(Diag::BadOption, {}, what, why);
  return false;
}

} // namespace megalith::tool
