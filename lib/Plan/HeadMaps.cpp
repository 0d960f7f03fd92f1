// A map in front of an attention that makes its queries, and keys and values for the pool, of what a product stored,
// head by head: norms over each head, say, and rope. Where no slot has two rows in a pass, attention makes them where
// it takes them, and the map and the edge behind it fall away.
#include "Layout.h"
#include "llvm/ADT/STLExtras.h"

namespace megalith::plan {

using ir::Op;
using ir::Operation;
using ir::Scalar;
using ir::Value;

namespace {

/// Whether a warp can make the `heads` heads of `value`, each from the same columns of what is stored.
bool isMadeByHeads(const Plan &plan, const ir::Module &module, const ir::Region &region, Value value, int64_t heads) {
  const int64_t columns = module.type(value).size, dim = columns / heads;
  if (columns % heads || dim % 8 || dim > 256) // a lane's eight columns
    return false;
  std::map<Value, const Operation *> defs;
  for (const Operation &op : region.ops)
    for (Value v : op.results)
      defs[v] = &op;
  std::vector<Value> open = {value};
  while (!open.empty()) {
    const Value v = open.back();
    open.pop_back();
    const ir::Type &type = module.type(v);
    const auto def = defs.find(v);
    if (def == defs.end()) { // stored
      const auto place = plan.placeOf.find(v.id);
      if (place == plan.placeOf.end() || plan.buffers[place->second.buffer].dtype != Scalar::BF16 || type.size != columns)
        return false;
      continue;
    }
    const Operation &op = *def->second;
    switch (op.op) {
    case Op::Embed:
      return false;
    case Op::WeightGet: // repeats from head to head, or has all columns
      if (type.size != dim && type.size != columns)
        return false;
      break;
    case Op::ReduceSum:
    case Op::ReduceMax:
      if (op.getInt("groups", 1) != heads || module.type(op.operands[0]).size != columns)
        return false;
      break;
    case Op::RotateHalf:
      if (op.getInt("dim") % 16 || dim % op.getInt("dim"))
        return false;
      break;
    default:
      if (type.kind == ir::Type::Rows && type.size != columns && type.size != heads)
        return false;
    }
    open.insert(open.end(), op.operands.begin(), op.operands.end());
  }
  return true;
}

} // namespace

bool isMadeByAttention(const Plan &plan, const ir::Module &module, const Operation &map, const Operation &attention) {
  const ir::Region &region = map.region();
  const Operation &yield = region.ops.back();
  const Operation *append = nullptr;
  for (const Operation &op : region.ops)
    if (op.op == Op::KvAppend)
      append = &op;
  if (!append || !llvm::is_contained(map.results, attention.operands[0]) || !llvm::is_contained(map.results, attention.operands[1]))
    return false;
  bool alone = true; // nobody else needs what the map makes
  ir::walk(module.root.region(), [&](const Operation &op) {
    if (&op != &attention)
      alone &= llvm::none_of(op.operands, [&](Value v) { return llvm::is_contained(map.results, v); });
  });
  if (!alone)
    return false;
  for (auto [result, value] : llvm::zip(map.results, yield.operands)) {
    const bool isQuery = result == attention.operands[0];
    if (!isQuery && result != attention.operands[1])
      return false;
    if (isQuery && !isMadeByHeads(plan, module, region, value, attention.getInt("heads")))
      return false;
  }
  const int64_t kvHeads = attention.getInt("kv_heads");
  return isMadeByHeads(plan, module, region, append->operands[0], kvHeads) &&
         isMadeByHeads(plan, module, region, append->operands[1], kvHeads);
}

} // namespace megalith::plan
