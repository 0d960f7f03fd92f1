//===- Numbers.h - numbers on the command line ----------------------------===//
//
// LLVM's own options for numbers take hexadecimal, `1e999` and `nan`, and say "value
// invalid for ullong argument". These take decimal numbers within bounds, and leave
// what is wrong to be reported like everything else.
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_TOOLS_NUMBERS_H
#define MEGALITH_TOOLS_NUMBERS_H

#include "Usage.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/CommandLine.h"
#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <string>
#include <vector>

namespace megalith::tool {

/// An option that takes a number.
class NumberOption {
public:
  virtual ~NumberOption() = default;
  /// Reads what stands on the command line; why that is no such number, or "".
  virtual std::string read() = 0;

  bool given() const { return text.getNumOccurrences() != 0; }
  /// As the command line has it.
  std::string shown() const {
    return fmt::format("--{} {}", text.ArgStr.str(), text.empty() ? "''" : std::string(text));
  }

  /// All there are.
  static std::vector<NumberOption *> &all() {
    static std::vector<NumberOption *> options;
    return options;
  }

protected:
  template <class... Modifiers> explicit NumberOption(const Modifiers &...modifiers) : text(modifiers...) {
    all().push_back(this);
  }
  Option<std::string> text;
};

/// A whole number from `Least` to `Most`.
template <class T, T Least = std::numeric_limits<T>::min(), T Most = std::numeric_limits<T>::max()>
class WholeNumber : public NumberOption {
public:
  template <class... Modifiers>
  WholeNumber(T otherwise, const Modifiers &...modifiers) : NumberOption(modifiers...), value(otherwise) {}
  operator T() const { return value; }

  std::string read() override {
    llvm::StringRef all = llvm::StringRef(text), digits = all;
    const bool negative = digits.consume_front("-");
    if (digits.empty() || !llvm::all_of(digits, llvm::isDigit))
      return "expected a whole number";
    T number = 0;
    const bool fits = !all.getAsInteger(10, number);
    if (fits ? number < Least : negative)
      return fmt::format("expected at least {}", Least);
    if (!fits || number > Most)
      return fmt::format("expected at most {}", Most);
    value = number;
    return "";
  }

private:
  T value;
};

/// A number from 0 to 1e9.
class RealNumber : public NumberOption {
public:
  template <class... Modifiers>
  RealNumber(double otherwise, const Modifiers &...modifiers) : NumberOption(modifiers...), value(otherwise) {}
  operator double() const { return value; }

  std::string read() override {
    double number = 0;
    if (llvm::StringRef(text).getAsDouble(number) || std::isnan(number))
      return "expected a number";
    if (number < 0)
      return "expected at least 0";
    if (number > 1e9)
      return "expected at most 1e9";
    value = number;
    return "";
  }

private:
  double value;
};

} // namespace megalith::tool
#endif
