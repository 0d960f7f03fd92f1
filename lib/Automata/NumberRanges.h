//===- NumberRanges.h - numbers between bounds, as expressions --*- C++ -*-===//
#ifndef MEGALITH_LIB_AUTOMATA_NUMBERRANGES_H
#define MEGALITH_LIB_AUTOMATA_NUMBERRANGES_H

#include <cstdint>
#include <optional>
#include <string>

namespace megalith::automata {

/// Bounds of integers, which are allowed themselves; none: there is no end.
struct IntegerBounds {
  std::optional<int64_t> least, most;
};
/// Bounds of numbers; an exclusive one is not allowed itself.
struct NumberBounds {
  IntegerBounds bounds;
  bool aboveLeast = false, belowMost = false;
};

/// The greatest bound, either way.
inline constexpr int64_t MostBound = 1'000'000'000'000'000; // 10^15: exact as a double, with one digit after the point
/// Digits after the point that numbers between bounds have at most. As many in all as a double tells apart near them.
int digitsAfterPoint(const NumberBounds &bounds);

/// An expression of JSON's integers between bounds, each spelled in one way; empty: there is none.
std::string integersBetween(const IntegerBounds &bounds);
/// The same of numbers, without exponents.
std::string numbersBetween(const NumberBounds &bounds);

} // namespace megalith::automata

#endif
