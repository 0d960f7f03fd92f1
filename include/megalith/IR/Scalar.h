//===- Scalar.h - the arithmetic of control code --------------------------===//
//
// What an operation with the trait Arithmetic gives: its value, and the values that it
// can have. Checking, folding, the reference executor and the emitter ask here; device
// code has its own (Sequences.cuh), and tests compare the two.
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_IR_SCALAR_H
#define MEGALITH_IR_SCALAR_H

#include "megalith/IR/Ops.h"
#include "llvm/ADT/ArrayRef.h"
#include <algorithm>
#include <optional>

namespace megalith::ir {

/// A number: of an i32, a token or a bool `i`, of an f32 `f`.
struct ScalarValue {
  bool isReal = false;
  int64_t i = 0;
  float f = 0;
  static ScalarValue whole(int64_t v) { return {false, v, 0}; }
  static ScalarValue real(float v) { return {true, 0, v}; }
};

/// The value of an operation, which for `const` is none. A whole number is exact: no result needs more than 64 bits.
/// `toReal`: of a cast.
std::optional<ScalarValue> valueOf(Op op, llvm::ArrayRef<ScalarValue> operands, bool toReal = false);

/// i32 wraps.
constexpr int32_t wrapped(int64_t v) { return static_cast<int32_t>(static_cast<uint32_t>(v)); }

/// All values that an i32 can have.
struct Interval {
  int64_t lo = INT32_MIN, hi = INT32_MAX;
  static Interval of(int64_t v) { return {v, v}; }
  bool isI32() const { return lo >= INT32_MIN && hi <= INT32_MAX; }
  bool operator==(const Interval &) const = default;
};

/// What either may be.
inline Interval hull(Interval a, Interval b) { return {std::min(a.lo, b.lo), std::max(a.hi, b.hi)}; }
/// What an operation on i32 may give before it wraps; `b` is the second operand, if there is one.
Interval exactInterval(Op op, Interval a, Interval b = {});
/// The same once it has wrapped: what may leave the range of i32 can be anything.
Interval intervalOf(Op op, Interval a, Interval b = {});

} // namespace megalith::ir
#endif
