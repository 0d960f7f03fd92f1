//===- Reducers.h - what is made of a row's logits, by Reducers.def -------===//
#ifndef MEGALITH_IR_REDUCERS_H
#define MEGALITH_IR_REDUCERS_H

#include "megalith/IR/IR.h"
#include "llvm/ADT/ArrayRef.h"

namespace megalith::ir {

enum class Reducer : uint8_t {
#define REDUCER(Id, Name, Result, Arguments, State, Merge, Order, Text) Id,
#include "megalith/IR/Reducers.def"
};

/// One line of Reducers.def.
struct ReducerInfo {
  Reducer id;
  llvm::StringRef enumName, name;
  Scalar result;
  llvm::StringRef arguments, state, merge, order, text;

  bool takesSettings() const { return arguments.contains('s'); }
  bool draws() const { return arguments.contains('d'); }
  bool takesMinus() const { return arguments.contains('m'); }
  bool takesCount() const { return arguments.contains('n'); }
  bool takesTokens() const { return arguments.contains('t'); }
};

llvm::ArrayRef<ReducerInfo> reducers();
/// Null: no reducer has that name.
const ReducerInfo *reducerNamed(llvm::StringRef name);

/// The reducer of a verified `reduce`.
const ReducerInfo &reducerOf(const Operation &reduce);
/// The type of what a `reduce` gives for each of `rows` rows.
Type reducedType(const Operation &reduce, int64_t rows);

} // namespace megalith::ir
#endif
