#include "megalith/IR/Host.h"

namespace megalith::ir {

bool readsHost(const Module &module) {
  bool reads = false;
  walk(module.root.region(),
       [&](const Operation &op) { reads |= op.op == Op::Host && op.get<attr::number>() != HostNumber::Tick; });
  return reads;
}

const Operation *orderOf(const Region &region) {
  return !region.ops.empty() && region.ops.front().op == Op::Order ? &region.ops.front() : nullptr;
}

} // namespace megalith::ir
