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
  case Elem::Kept:
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

/// Whether both are the same value for sure, where nothing happens between them.
static bool sameValue(const Expr &a, const Expr &b) {
  if (a.kind != b.kind || a.args.size() != b.args.size() || a.name != b.name || a.member != b.member ||
      a.index != b.index || a.intValue != b.intValue || a.floatValue != b.floatValue || a.ngram != b.ngram ||
      a.matches != b.matches || a.binary != b.binary || a.predefined != b.predefined || a.poolName != b.poolName ||
      a.function != b.function || a.loFromEnd != b.loFromEnd || a.hiFromEnd != b.hiFromEnd || !(a.type == b.type) ||
      a.kind == Expr::ModelCall || a.kind == Expr::LogitRows)
    return false;
  for (size_t i = 0; i < a.args.size(); ++i)
    if (a.args[i] != b.args[i] && (!a.args[i] || !b.args[i] || !sameValue(*a.args[i], *b.args[i])))
      return false;
  return true;
}

static bool hasEffect(const Expr &e) {
  return e.kind == Expr::Append || e.kind == Expr::ModelCall ||
         std::any_of(e.args.begin(), e.args.end(), [](const ExprRef &arg) { return arg && hasEffect(*arg); });
}

namespace {
/// An i32 as a sum: what it is but for multiples of 2^32.
struct Sum {
  std::vector<std::pair<const Expr *, int64_t>> terms; ///< and how often
  int64_t constant = 0;

  void add(const Expr &e, int64_t times) {
    const bool sum = e.kind == Expr::Binary && (e.binary == BinaryOp::Add || e.binary == BinaryOp::Sub);
    if (e.kind == Expr::Const) {
      constant += times * e.intValue;
    } else if (e.kind == Expr::Neg) {
      add(*e.args[0], -times);
    } else if (sum) {
      add(*e.args[0], times);
      add(*e.args[1], e.binary == BinaryOp::Sub ? -times : times);
    } else if (isShort()) {
      for (auto &[term, count] : terms)
        if (sameValue(*term, e)) {
          count += times;
          return;
        }
      terms.emplace_back(&e, times);
    }
  }
  bool isShort() const { return terms.size() <= 16; } // others are not worth the time
  /// Where nothing wraps.
  Range range() const {
    Range r = Range::of(constant);
    for (const auto &[term, count] : terms) {
      r.lo += count * (count < 0 ? term->range.hi : term->range.lo);
      r.hi += count * (count < 0 ? term->range.lo : term->range.hi);
    }
    return r;
  }
};
} // namespace

int64_t mostBetween(const Expr &low, const Expr &high) {
  int64_t most = high.range.hi - low.range.lo;
  if (hasEffect(low) || hasEffect(high))
    return std::max<int64_t>(0, most);
  // `x..x + 4` has 4, whatever x is: x + 4 may wrap, and then there are none.
  Sum a, b, between;
  a.add(low, 1);
  b.add(high, 1);
  between.add(high, 1);
  between.add(low, -1);
  const auto fits = [](Range r) { return r.lo >= INT32_MIN && r.hi <= INT32_MAX; };
  const Range difference = between.range();
  if (!between.isShort() || !a.isShort() || !b.isShort())
    return std::max<int64_t>(0, most);
  if ((difference.lo >= 0 && difference.hi <= INT32_MAX) || (fits(a.range()) && fits(b.range())))
    most = std::min(most, difference.hi);
  return std::max<int64_t>(0, most);
}

int64_t asLength(int64_t most) { return most > mostCapacity ? Unbounded : std::max<int64_t>(0, most); }

} // namespace megalith::sema
