//===- Ops.h - the operations of the IR, by Ops.def -----------------------===//
#ifndef MEGALITH_IR_OPS_H
#define MEGALITH_IR_OPS_H

#include "llvm/ADT/StringRef.h"
#include <cstdint>

namespace megalith::ir {

enum class Op : uint16_t {
#define OP(Enum, Mnemonic, Operands, Results, Regions, Levels) Enum,
#include "megalith/IR/Ops.def"
};

/// Number of operations in Ops.def.
constexpr unsigned numOps = 0
#define OP(Enum, Mnemonic, Operands, Results, Regions, Levels) +1
#include "megalith/IR/Ops.def"
    ;

struct OpInfo {
  const char *mnemonic;
  int operands, results, regions; ///< exact counts; -1 = any
  const char *levels;             ///< letters of Ops.def
};
const OpInfo &opInfo(Op op);

/// Operands of an operation of Elementwise.def; 0 for every other operation.
constexpr int elementwiseOperands(Op op) {
  switch (op) {
#define ELEMENTWISE1(Id, function)                                                                                     \
  case Op::Id:                                                                                                         \
    return 1;
#define ELEMENTWISE2(Id, function)                                                                                     \
  case Op::Id:                                                                                                         \
    return 2;
#include "megalith/IR/Elementwise.def"
  default:
    return 0;
  }
}

/// Whether the region of an operation is evaluated for each number of a range: its operands begin with the range's.
constexpr bool isOverRange(Op op) {
  switch (op) {
#define OVER(Enum, Mnemonic)                                                                                           \
  case Op::Enum:                                                                                                       \
    return true;
#include "megalith/IR/Ops.def"
  default:
    return false;
  }
}

/// Whether rows are fed to a model.
constexpr bool isCall(Op op) { return op == Op::Call || op == Op::Issue; }

llvm::StringRef mnemonic(Op op);

} // namespace megalith::ir
#endif
