//===- Numbers.h - constants as C++, and what integers can be -------------===//
#ifndef MEGALITH_LIB_EMIT_NUMBERS_H
#define MEGALITH_LIB_EMIT_NUMBERS_H

#include "megalith/IR/IR.h"
#include "megalith/IR/Scalar.h"
#include <string>

namespace megalith::emit {

/// An expression that is this f32, of any value: infinities and NaN have no literal.
std::string floatLiteral(double value);
/// The same of an i32.
std::string intLiteral(int32_t value);

/// Bounds of the i32 values of a part, from what operations say about themselves.
class Intervals {
public:
  Intervals(const ir::Module &module, const ir::Region &part);

  /// Whether the exact result of the operation is an i32. C++ leaves open what its signed numbers do beyond.
  bool fits(const ir::Operation &op) const { return exact(op).isI32(); }

private:
  using Interval = ir::Interval;
  Interval of(ir::Value v) const;
  /// Of the exact result.
  Interval exact(const ir::Operation &op) const;
  void look(const ir::Operation &op);

  const ir::Module &module;
  std::map<uint32_t, Interval> known;
};

} // namespace megalith::emit
#endif
