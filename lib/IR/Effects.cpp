#include "megalith/IR/Effects.h"
#include "llvm/ADT/STLExtras.h"

namespace megalith::ir {

/// A field may be called `kv` or `tokens`, and a buffer as well.
static std::string field(const Operation &op) { return "." + op.name; }

Resources readsOf(const Operation &op) {
  switch (op.op) {
  case Op::Tokens:
  case Op::Budget:
  case Op::Finished:
  case Op::NgramLookup:
  case Op::Forced:
    return {"tokens"}; // injected drafts start at the generated tokens, forced ones follow the text
  case Op::KvLen:
    return {"kv"};
  case Op::KvLag:
  case Op::KvDrafts:
    return {"kv", "tokens"};
  case Op::FieldGet:
  case Op::BufferAt:
    return {field(op)};
  default:
    return {};
  }
}

Resources writesOf(const Operation &op) {
  switch (op.op) {
  case Op::FieldSet:
  case Op::BufferSet:
  case Op::BufferCopy:
  case Op::BufferScan:
  case Op::BufferSort:
    return {field(op)};
  case Op::Append:
    return {"tokens"};
  case Op::KvKeep:
    return {"kv"};
  default:
    return {};
  }
}

Resources writesBelow(const Operation &op) {
  Resources writes = writesOf(op);
  for (const Region &region : op.regions)
    walk(region, [&](const Operation &inner) { writes.merge(writesOf(inner)); });
  return writes;
}

bool meet(const Resources &a, const Resources &b) {
  return llvm::any_of(a, [&](const std::string &r) { return b.count(r) != 0; });
}

} // namespace megalith::ir
