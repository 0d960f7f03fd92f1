//===- Host.h - what a module has of the host's side ------------*- C++ -*-===//
#ifndef MEGALITH_IR_HOST_H
#define MEGALITH_IR_HOST_H

#include "megalith/IR/IR.h"

namespace megalith::ir {

/// Whether something goes by the host's clock, by when requests arrived or by their deadlines. The number of the tick
/// is known without.
bool readsHost(const Module &module);

/// The `order` of a part or stage, which stands in front of all else; null: it has none.
const Operation *orderOf(const Region &region);

} // namespace megalith::ir
#endif
