//===- Ops.h - the operations of the IR, by Ops.def -----------------------===//
#ifndef MEGALITH_IR_OPS_H
#define MEGALITH_IR_OPS_H

#include "llvm/ADT/StringRef.h"
#include <cstdint>

namespace megalith::ir {

enum class Op : uint16_t {
#define OP(Enum, ...) Enum,
#include "megalith/IR/Ops.def"
};

/// Number of operations in Ops.def.
constexpr unsigned numOps = 0
#define OP(Enum, ...) +1
#include "megalith/IR/Ops.def"
    ;

/// What holds of operations beside their counts.
struct Trait {
  enum Bits : unsigned {
    Plain = 0,
    Arithmetic = 1, ///< of control code: its result depends on its operands alone (Scalar.h)
    Steady = 2,     ///< its value stays as long as a request waits for a slot
    Changes = 4,    ///< it changes something, or what stands in it may
    Stays = 8,      ///< also where nobody uses its results: it can fault, or stands for more than these
    InSlot = 16,    ///< only of requests that hold a slot
    Ends = 32,      ///< a region
    ForValue = 64,  ///< its regions are evaluated for what they yield, and change nothing
    Truth = 128,    ///< its result is a bool
    OverRange = 256 ///< its region is evaluated for each number of a range: its operands begin with the range's
  };
};

struct OpInfo {
  const char *mnemonic;
  int operands, results, regions; ///< exact counts; -1 = any
  const char *levels;             ///< letters of Ops.def
  unsigned traits;
};
const OpInfo &opInfo(Op op);

/// Whether it has one of these traits.
inline bool hasTrait(Op op, unsigned traits) { return opInfo(op).traits & traits; }
inline bool isOverRange(Op op) { return hasTrait(op, Trait::OverRange); }

/// Operands of an operation of Elementwise.def; 0 for every other operation.
constexpr int elementwiseOperands(Op op) {
  switch (op) {
#define ELEMENTWISE1(Id, function, name)                                                                               \
  case Op::Id:                                                                                                         \
    return 1;
#define ELEMENTWISE2(Id, function, name)                                                                               \
  case Op::Id:                                                                                                         \
    return 2;
#include "megalith/IR/Elementwise.def"
  default:
    return 0;
  }
}

/// Whether rows are fed to a model.
constexpr bool isCall(Op op) { return op == Op::Call || op == Op::Issue; }

llvm::StringRef mnemonic(Op op);

} // namespace megalith::ir
#endif
