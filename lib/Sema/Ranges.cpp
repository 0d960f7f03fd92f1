//===- Ranges.cpp - intervals and the spelling of types -------------------===//
#include "Checker.h"
#include <algorithm>

namespace megalith::sema {

std::string elemName(Elem e) {
  switch (e) {
  case Elem::I32:
    return "i32";
  case Elem::F32:
    return "f32";
  case Elem::Bool:
    return "bool";
  case Elem::Token:
    return "token";
  case Elem::Logits:
    return "logits";
  case Elem::None: // the parameter of a message; no type has it
    return "empty";
  }
  return "";
}

std::string Type::str() const {
  if (elem == Elem::None)
    return "[]";
  if (table)
    return fmt::format("{}[{}, {}]", elemName(elem), rows, capacity);
  if (!seq)
    return elemName(elem);
  if (elem == Elem::Logits)
    return "logits";
  return capacity >= Unbounded ? fmt::format("{}[]", elemName(elem)) : fmt::format("{}[{}]", elemName(elem), capacity);
}

std::string plural(size_t n, const char *noun) { return fmt::format("{} {}{}", n, noun, n == 1 ? "" : "s"); }

Range hull(Range a, Range b) { return {std::min(a.lo, b.lo), std::max(a.hi, b.hi)}; }

/// i32 wraps: what may leave it can be anything.
static Range wrapped(int64_t lo, int64_t hi) { return lo < INT32_MIN || hi > INT32_MAX ? Range() : Range{lo, hi}; }

Range arithmetic(BinaryOp op, Range a, Range b) {
  switch (op) {
  case BinaryOp::Add:
    return wrapped(a.lo + b.lo, a.hi + b.hi);
  case BinaryOp::Sub:
    return wrapped(a.lo - b.hi, a.hi - b.lo);
  case BinaryOp::Mul: {
    const int64_t p[] = {a.lo * b.lo, a.lo * b.hi, a.hi * b.lo, a.hi * b.hi};
    return wrapped(*std::min_element(p, p + 4), *std::max_element(p, p + 4));
  }
  case BinaryOp::Div: {
    if (b.lo == b.hi && b.lo > 0)
      return {a.lo / b.lo, a.hi / b.lo};
    // Truncation never moves a quotient away from zero; 0 when the divisor is 0.
    if (a.lo >= 0 && b.lo >= 0)
      return {0, a.hi};
    const int64_t most = std::max(-a.lo, a.hi); // the least i32 by -1 wraps
    return wrapped(-most, most);
  }
  case BinaryOp::Mod: {
    // The sign is the dividend's, and neither number is smaller; 0 when the divisor is 0.
    const int64_t most = std::max<int64_t>(0, std::max(-b.lo, b.hi) - 1);
    return {a.lo >= 0 ? 0 : -std::min(most, -a.lo), a.hi <= 0 ? 0 : std::min(most, a.hi)};
  }
  default:
    return {};
  }
}

/// Whether both read the same value for sure.
static bool sameValue(const Expr &a, const Expr &b) {
  if (a.kind == Expr::Const && b.kind == Expr::Const)
    return a.intValue == b.intValue;
  return a.kind == b.kind && (a.kind == Expr::BinderRead || a.kind == Expr::LocalRead) && a.index == b.index;
}

int64_t mostBetween(const Expr &low, const Expr &high) {
  int64_t most = high.range.hi - low.range.lo;
  // `i..i + 4` has 4, whatever i is.
  if (high.kind == Expr::Binary && high.binary == BinaryOp::Add)
    for (size_t side : {0, 1})
      if (sameValue(*high.args[side], low))
        most = std::min(most, high.args[1 - side]->range.hi);
  return std::max<int64_t>(0, most);
}

int64_t asLength(int64_t most) { return most > mostCapacity ? Unbounded : std::max<int64_t>(0, most); }

} // namespace megalith::sema
