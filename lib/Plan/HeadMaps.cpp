// A map in front of an attention that makes its queries, and keys and values for the pool, of what a product stored,
// head by head: norms over each head, say, and rope. Where no slot has two rows in a pass, attention makes them where
// it takes them, and the map and the edge after it fall away.
#include "Layout.h"
#include "llvm/ADT/STLExtras.h"
#include <map>
#include <set>
#include <vector>

namespace megalith::plan {

using ir::Op;
using ir::Operation;
namespace attr = ir::attr;
using ir::Scalar;
using ir::Value;

namespace {

/// Whether a warp can make the `heads` heads of `value`, each from the same columns of what is stored.
bool isMadeByHeads(const ModelPlan &planned, const ir::Module &module, const ir::Region &region, Value value,
                   int64_t heads) {
  const int64_t columns = module.type(value).size, dim = columns / heads;
  std::map<Value, const Operation *> defs;
  for (const Operation &op : region.ops)
    for (Value v : op.results)
      defs[v] = &op;
  std::vector<Value> open = {value};
  std::set<Value> seen = {value};
  std::vector<const Operation *> slice;
  for (size_t next = 0; next < open.size(); ++next) {
    const Value v = open[next];
    const ir::Type &type = module.type(v);
    const auto def = defs.find(v);
    if (def == defs.end()) { // stored
      const auto place = planned.placeOf.find(v.id);
      if (place == planned.placeOf.end() || planned.buffers[place->second.buffer].dtype != Scalar::BF16 ||
          type.size != columns)
        return false;
      continue;
    }
    const Operation &op = *def->second;
    slice.push_back(&op);
    if (op.op == Op::Embed ||
        (op.op == Op::WeightGet && type.size != dim && type.size != columns)) // a weight repeats from head to head
      return false;
    for (Value operand : op.operands)
      if (seen.insert(operand).second)
        open.push_back(operand);
  }
  return fitsLanes(module, slice, columns, heads);
}

} // namespace

bool fitsLanes(const ir::Module &module, llvm::ArrayRef<const Operation *> slice, int64_t columns, int64_t parts) {
  const int64_t block = columns / parts;
  if (columns % parts || block % 8 || block > 256)
    return false;
  return llvm::all_of(slice, [&](const Operation *op) {
    if (op->results.empty())
      return true;
    switch (op->op) {
    case Op::Const:
    case Op::WeightGet:
    case Op::Embed:
      return true;
    case Op::ReduceSum:
    case Op::ReduceMax:
      return op->get<attr::groups>() == parts && module.type(op->operands[0]).size == columns &&
             (op->op == Op::ReduceMax || op->get<attr::tree>() == ir::SumTree::Lanes32);
    case Op::RotateHalf:
      return op->get<attr::dim>() % 16 == 0 && block % op->get<attr::dim>() == 0;
    default: { // of weights, of all columns, or one value for the block
      const ir::Type &type = module.type(op->result());
      return type.kind == ir::Type::Vector ||
             (type.kind == ir::Type::Rows && (type.size == columns || type.size == parts || type.size == 1));
    }
    }
  });
}

/// Operations of `region` that `v` depends on.
static std::vector<const Operation *> sliceOf(const ir::Region &region, Value v) {
  std::set<Value> needed = {v};
  std::vector<const Operation *> slice;
  for (const Operation &op : llvm::reverse(region.ops))
    if (llvm::any_of(op.results, [&](Value r) { return needed.count(r) != 0; })) {
      slice.push_back(&op);
      needed.insert(op.operands.begin(), op.operands.end());
    }
  return slice;
}

const Operation *rotationOfScattered(const ir::Module &module, const Operation &group) {
  const ir::Region &region = group.region();
  std::vector<Value> made;
  for (const Operation &op : region.ops)
    if (op.op == Op::MatMul || op.op == Op::KvAppend || op.op == Op::Yield)
      llvm::copy_if(op.operands, std::back_inserter(made),
                    [&](Value v) { return module.type(v).kind == ir::Type::Rows; });
  for (Value v : made) {
    const auto slice = sliceOf(region, v);
    const auto rotation = llvm::find_if(slice, [](const Operation *op) {
      return op->op == Op::RotateHalf && op->get<attr::turned>() % 16 && !op->get<attr::adjacent>();
    });
    // A thread that has a product's partners has no others.
    if (rotation == slice.end() || llvm::any_of(slice, [](const Operation *op) { return op->op == Op::MatMul; }))
      continue;
    int64_t parts = 1;
    for (const Operation *op : slice)
      if (op->op == Op::ReduceSum || op->op == Op::ReduceMax)
        parts = std::max(parts, op->get<attr::groups>());
    if (group.op != Op::Map || parts == 1 || !fitsLanes(module, slice, module.type(v).size, parts))
      return *rotation;
  }
  return nullptr;
}

bool isMadeByAttention(const ModelPlan &planned, const ir::Module &module, const Operation &map,
                       const Operation &attention) {
  const ir::Region &region = map.region();
  const Operation &yield = region.ops.back();
  const Operation *append = nullptr;
  for (const Operation &op : region.ops)
    if (op.op == Op::KvAppend)
      append = &op;
  if (!append || !llvm::is_contained(map.results, attention.operands[0]) ||
      !llvm::is_contained(map.results, attention.operands[1]))
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
    if (isQuery && !isMadeByHeads(planned, module, region, value, attention.get<attr::heads>()))
      return false;
  }
  const int64_t kvHeads = attention.get<attr::kv_heads>();
  return isMadeByHeads(planned, module, region, append->operands[0], kvHeads) &&
         isMadeByHeads(planned, module, region, append->operands[1], kvHeads);
}

} // namespace megalith::plan
