#include "megalith/IR/Scalar.h"
#include "device/Exact.h"

namespace megalith::ir {

template <typename T> static std::optional<bool> compared(Op op, T a, T b) {
  switch (op) {
  case Op::Eq:
    return a == b;
  case Op::Ne:
    return a != b;
  case Op::Lt:
    return a < b;
  case Op::Le:
    return a <= b;
  case Op::Gt:
    return a > b;
  case Op::Ge:
    return a >= b;
  default:
    return std::nullopt;
  }
}

/// Rounded once.
static std::optional<float> real(Op op, float a, float b) {
  switch (op) {
  case Op::Add:
    return a + b;
  case Op::Sub:
    return a - b;
  case Op::Mul:
    return a * b;
  case Op::Div:
    return a / b;
  case Op::Min: // `a` also of zeros with two signs, and where one is a NaN
    return b < a ? b : a;
  case Op::Max:
    return a < b ? b : a;
  case Op::Neg:
    return -a;
  case Op::Exp:
    return exactExp(a);
  case Op::Log:
    return exactLog(a);
  case Op::Pow:
    return exactPow(a, b);
  case Op::Sqrt:
    return exactSqrt(a);
  case Op::Abs:
    return exactAbs(a);
  default:
    return std::nullopt;
  }
}

static std::optional<int64_t> whole(Op op, int64_t a, int64_t b) {
  switch (op) {
  case Op::Add:
    return a + b;
  case Op::Sub:
    return a - b;
  case Op::Mul:
    return a * b;
  case Op::Div: // truncates; by 0 gives 0
    return b ? a / b : 0;
  case Op::Mod:
    return b ? a % b : 0;
  case Op::Min:
    return std::min(a, b);
  case Op::Max:
    return std::max(a, b);
  case Op::Neg:
    return -a;
  case Op::Abs:
    return a < 0 ? -a : a;
  case Op::And:
    return a && b;
  case Op::Or:
    return a || b;
  case Op::Not:
    return !a;
  default:
    return std::nullopt;
  }
}

std::optional<ScalarValue> valueOf(Op op, llvm::ArrayRef<ScalarValue> operands, bool toReal) {
  if (operands.empty())
    return std::nullopt;
  const ScalarValue a = operands[0], b = operands.size() > 1 ? operands[1] : ScalarValue();
  if (op == Op::Select)
    return a.i ? operands[1] : operands[2];
  if (op == Op::Cast)
    return toReal ? ScalarValue::real(a.isReal ? a.f : static_cast<float>(static_cast<int32_t>(a.i)))
                  : ScalarValue::whole(a.isReal ? exactInt(a.f) : a.i);
  if (op == Op::Ratio)
    return ScalarValue::real(b.i == 0 ? 0.0f : static_cast<float>(wrapped(a.i)) / static_cast<float>(wrapped(b.i)));
  if (const auto truth = a.isReal ? compared(op, a.f, b.f) : compared(op, a.i, b.i))
    return ScalarValue::whole(*truth);
  if (a.isReal) {
    const auto f = real(op, a.f, b.f);
    return f ? std::optional(ScalarValue::real(*f)) : std::nullopt;
  }
  const auto i = whole(op, a.i, b.i);
  return i ? std::optional(ScalarValue::whole(*i)) : std::nullopt;
}

Interval exactInterval(Op op, Interval a, Interval b) {
  switch (op) {
  case Op::Add:
    return {a.lo + b.lo, a.hi + b.hi};
  case Op::Sub:
    return {a.lo - b.hi, a.hi - b.lo};
  case Op::Mul: {
    const auto [least, most] = std::minmax({a.lo * b.lo, a.lo * b.hi, a.hi * b.lo, a.hi * b.hi});
    return {least, most};
  }
  case Op::Div: {
    if (b.lo == b.hi && b.lo > 0)
      return {a.lo / b.lo, a.hi / b.lo};
    // Truncation never moves a quotient away from zero; 0 when the divisor is 0.
    if (a.lo >= 0 && b.lo >= 0)
      return {0, a.hi};
    const int64_t most = std::max(-a.lo, a.hi); // of the least i32 by -1 it is no i32
    return {-most, most};
  }
  case Op::Mod: {
    // The sign is the dividend's, and neither number is smaller; 0 when the divisor is 0.
    const int64_t most = std::max<int64_t>(0, std::max(-b.lo, b.hi) - 1);
    return {a.lo >= 0 ? 0 : -std::min(most, -a.lo), a.hi <= 0 ? 0 : std::min(most, a.hi)};
  }
  case Op::Neg:
    return {-a.hi, -a.lo};
  case Op::Abs:
    return {std::max<int64_t>({0, a.lo, -a.hi}), std::max(-a.lo, a.hi)};
  case Op::Min:
    return {std::min(a.lo, b.lo), std::min(a.hi, b.hi)};
  case Op::Max:
    return {std::max(a.lo, b.lo), std::max(a.hi, b.hi)};
  default:
    return {};
  }
}

Interval intervalOf(Op op, Interval a, Interval b) {
  const Interval exact = exactInterval(op, a, b);
  return exact.isI32() ? exact : Interval();
}

} // namespace megalith::ir
