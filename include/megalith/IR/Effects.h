//===- Effects.h - what operations of control code read and change --------===//
#ifndef MEGALITH_IR_EFFECTS_H
#define MEGALITH_IR_EFFECTS_H

#include "megalith/IR/IR.h"
#include <set>

namespace megalith::ir {

/// Parts of a request: `tokens` (and with them the budget and whether it is finished), `kv`, or a field, by its name
/// after a dot.
using Resources = std::set<std::string>;

/// What an operation by itself reads, beside its operands.
Resources readsOf(const Operation &op);
/// What an operation by itself changes.
Resources writesOf(const Operation &op);
/// What it changes with all below it.
Resources writesBelow(const Operation &op);
bool meet(const Resources &a, const Resources &b);

} // namespace megalith::ir
#endif
