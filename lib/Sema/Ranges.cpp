//===- Ranges.cpp - intervals and the spelling of types -------------------===//
#include "Checker.h"
#include <algorithm>

namespace megalith::sema {

std::string elemName(Elem e) {
  switch (e) {
  case Elem::I32: return "i32";
  case Elem::F32: return "f32";
  case Elem::Bool: return "bool";
  case Elem::Token: return "token";
  case Elem::Logits: return "logits";
  }
  return "";
}

std::string Type::str() const {
  if (!seq)
    return elemName(elem);
  if (elem == Elem::Logits)
    return "logits";
  return capacity >= Unbounded ? fmt::format("{}[]", elemName(elem))
                               : fmt::format("{}[{}]", elemName(elem), capacity);
}

std::string plural(size_t n, const char *noun) {
  return fmt::format("{} {}{}", n, noun, n == 1 ? "" : "s");
}

static int64_t clampBound(int64_t v) { return std::clamp(v, -Unbounded, Unbounded); }

static bool known(int64_t bound) { return bound > -Unbounded && bound < Unbounded; }

Range hull(Range a, Range b) { return {std::min(a.lo, b.lo), std::max(a.hi, b.hi)}; }

Range arithmetic(BinaryOp op, Range a, Range b) {
  switch (op) {
  case BinaryOp::Add:
    return {known(a.lo) && known(b.lo) ? clampBound(a.lo + b.lo) : -Unbounded,
            known(a.hi) && known(b.hi) ? clampBound(a.hi + b.hi) : Unbounded};
  case BinaryOp::Sub:
    return {known(a.lo) && known(b.hi) ? clampBound(a.lo - b.hi) : -Unbounded,
            known(a.hi) && known(b.lo) ? clampBound(a.hi - b.lo) : Unbounded};
  case BinaryOp::Mul: {
    if (!known(a.lo) || !known(a.hi) || !known(b.lo) || !known(b.hi)) {
      // Two values that are never negative keep that, whatever their upper bounds.
      return {a.lo >= 0 && b.lo >= 0 ? 0 : -Unbounded, Unbounded};
    }
    int64_t p[] = {clampBound(a.lo * b.lo), clampBound(a.lo * b.hi), clampBound(a.hi * b.lo),
                   clampBound(a.hi * b.hi)};
    return {*std::min_element(p, p + 4), *std::max_element(p, p + 4)};
  }
  case BinaryOp::Div:
    if (b.lo == b.hi && known(b.lo) && b.lo > 0)
      return {known(a.lo) ? a.lo / b.lo : -Unbounded, known(a.hi) ? a.hi / b.lo : Unbounded};
    // Truncation never moves a quotient away from zero; 0 when the divisor is 0.
    return {a.lo >= 0 && b.lo >= 0 ? 0 : -Unbounded,
            a.lo >= 0 && b.lo >= 0 ? a.hi : Unbounded};
  case BinaryOp::Mod:
    if (b.lo == b.hi && known(b.lo) && b.lo > 0)
      return {a.lo >= 0 ? 0 : 1 - b.lo, std::min(b.lo - 1, std::max<int64_t>(a.hi, 0))};
    return {a.lo >= 0 ? 0 : -Unbounded, a.lo >= 0 ? a.hi : Unbounded};
  default:
    return {};
  }
}

int64_t upperLength(Range r) { return std::clamp<int64_t>(r.hi, 0, Unbounded); }

} // namespace megalith::sema
