//===- Reducers.h - what is made of a row's logits, by Reducers.def -------===//
#ifndef MEGALITH_IR_REDUCERS_H
#define MEGALITH_IR_REDUCERS_H

#include "megalith/Contract/Reducers.h"
#include "megalith/IR/IR.h"
#include "llvm/ADT/ArrayRef.h"

namespace megalith::ir {

/// One line of Reducers.def.
struct ReducerInfo {
  Reducer id;
  llvm::StringRef enumName, name;
  Scalar result;
  llvm::StringRef arguments, state, merge, order, text;

  bool takesCount() const { return arguments.contains('n'); }
  bool takesTokens() const { return arguments.contains('t'); }
  /// `keeps`: it is one that keeps the rows in a field.
  bool takes(Operand operand, bool keeps) const;
};

/// Those operands that requests have as settings.
inline constexpr Operand settings[] = {Operand::Temperature, Operand::TopK, Operand::TopP, Operand::MinP};

llvm::ArrayRef<ReducerInfo> reducers();
/// What an operand of a reducer is; a sequence of tokens has no length here.
Type typeOf(Operand operand);
/// Whether it may as well be a table of tokens, with one row for each row that is read.
bool mayBeTable(Operand operand);
/// Whether it is a number that may as well be a sequence, with one for each row that is read.
bool mayBeOfEach(Operand operand);
/// What changes rows of logits by hand, and numbers that rows may have each for itself.
inline constexpr Operand byHand[] = {Operand::Only, Operand::Without, Operand::Bias, Operand::By};
inline constexpr Operand ofEach[] = {Operand::Temperature, Operand::Noise};
/// Null: no reducer has that name.
const ReducerInfo *reducerNamed(llvm::StringRef name);

/// The reducer of a verified `reduce`.
const ReducerInfo &reducerOf(const Operation &reduce);
/// The type of what a `reduce` gives for each of `rows` rows.
Type reducedType(const Operation &reduce, int64_t rows);

} // namespace megalith::ir
#endif
