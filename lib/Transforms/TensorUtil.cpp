#include "TensorUtil.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>

namespace megalith::transforms {

using namespace ir;

bool isReduction(Op op) { return op == Op::ReduceSum || op == Op::ReduceMax; }

static bool isLeafOp(Op op) { return op == Op::Const || op == Op::WeightGet || op == Op::RopeCos || op == Op::RopeSin; }

bool isLeaf(const Module &module, const Operation &op) {
  return isLeafOp(op.op) || (isElementwise(op.op) && module.type(op.result()).kind == Type::Vector);
}

bool isRowWise(Op op) {
  return isElementwise(op) || isReduction(op) || isLeafOp(op) || op == Op::Embed || op == Op::RotateHalf ||
         op == Op::KvAppend || op == Op::ArgMax;
}

static void visitRegion(Operation &model, Region &segment, Region &region,
                        llvm::function_ref<void(Operation &, Region &, Region &)> f) {
  for (Operation &op : region.ops)
    if (op.op == Op::Repeat)
      visitRegion(model, segment, op.region(), f);
  f(model, segment, region);
}

void forEachTensorRegion(Module &module, llvm::function_ref<void(Operation &, Region &, Region &)> f) {
  for (Operation &model : module.ops())
    if (model.op == Op::Model)
      for (Operation &segment : model.region().ops)
        if (segment.op == Op::Segment)
          visitRegion(model, segment.region(), segment.region(), f);
}

static void collectDefined(const Operation &op, std::set<Value> &defined) {
  for (const Region &r : op.regions) {
    defined.insert(r.args.begin(), r.args.end());
    for (const Operation &inner : r.ops) {
      defined.insert(inner.results.begin(), inner.results.end());
      collectDefined(inner, defined);
    }
  }
}

std::vector<Value> capturedValues(const Operation &op) {
  std::set<Value> seen;
  collectDefined(op, seen);
  std::vector<Value> captured;
  auto use = [&](const Operation &user) {
    for (Value v : user.operands)
      if (seen.insert(v).second)
        captured.push_back(v);
  };
  use(op);
  for (const Region &r : op.regions)
    walk(r, use);
  return captured;
}

RegionIndex::RegionIndex(const Region &region) {
  for (size_t i = 0; i < region.ops.size(); ++i) {
    for (Value v : region.ops[i].results)
      definitions[v] = i;
    for (Value v : capturedValues(region.ops[i]))
      users[v].push_back(i);
  }
}

int RegionIndex::definedAt(Value v) const {
  auto found = definitions.find(v);
  return found == definitions.end() ? -1 : found->second;
}

const std::vector<size_t> &RegionIndex::usersOf(Value v) const {
  static const std::vector<size_t> none;
  auto found = users.find(v);
  return found == users.end() ? none : found->second;
}

Operation cloneOperation(Module &module, const Operation &op, std::map<Value, Value> &map) {
  Operation copy = op;
  for (Value &v : copy.operands)
    if (auto found = map.find(v); found != map.end())
      v = found->second;
  for (Value &v : copy.results) {
    Type type = module.type(v);
    std::string hint = module.hint(v).str();
    v = map[v] = module.newValue(type, hint);
  }
  return copy;
}

void copyLeaf(Module &module, const Region &region, const RegionIndex &index, size_t at, std::vector<Operation> &ops,
              std::map<Value, Value> &copies) {
  for (Value v : region.ops[at].operands)
    if (int leaf = index.definedAt(v); leaf >= 0 && !copies.count(v))
      copyLeaf(module, region, index, leaf, ops, copies);
  ops.push_back(cloneOperation(module, region.ops[at], copies));
}

void appendToGroup(Module &module, const Region &region, const RegionIndex &index, Region &group, Operation op,
                   std::map<Value, Value> &copies) {
  for (Value &v : op.operands) {
    int at = index.definedAt(v);
    if (!copies.count(v) && at >= 0 && isLeaf(module, region.ops[at]))
      copyLeaf(module, region, index, at, group.ops, copies);
    if (auto found = copies.find(v); found != copies.end())
      v = found->second;
  }
  group.ops.push_back(std::move(op));
}

void openGroup(Region &segment, Operation &group) {
  Operation yield = std::move(group.region().ops.back());
  group.region().ops.pop_back();
  for (size_t i = 0; i < group.results.size(); ++i)
    replaceUses(segment, group.results[i], yield.operands[i]);
  group.results.clear();
}

static void walkOutside(Region &region, const Operation &skipped, llvm::function_ref<void(Operation &)> f) {
  for (Operation &op : region.ops) {
    if (&op == &skipped)
      continue;
    f(op);
    for (Region &r : op.regions)
      walkOutside(r, skipped, f);
  }
}

void closeGroup(Module &module, Region &segment, Operation &group) {
  std::set<Value> usedOutside;
  walkOutside(segment, group, [&](Operation &op) { usedOutside.insert(op.operands.begin(), op.operands.end()); });
  Operation yield;
  yield.op = Op::Yield;
  yield.loc = group.loc;
  std::map<Value, Value> results;
  for (const Operation &op : group.region().ops)
    for (Value v : op.results)
      if (usedOutside.count(v)) {
        yield.operands.push_back(v);
        std::string hint = module.hint(v).str();
        Value result = module.newValue(module.type(v), hint);
        results[v] = result;
        group.results.push_back(result);
      }
  walkOutside(segment, group, [&](Operation &op) {
    for (Value &v : op.operands)
      if (auto found = results.find(v); found != results.end())
        v = found->second;
  });
  group.region().ops.push_back(std::move(yield));
}

void removeUnusedLeaves(const Module &module, Region &region) {
  RegionIndex index(region);
  std::set<size_t> gone;
  for (size_t i = region.ops.size(); i-- > 0;) // users first
    if (isLeaf(module, region.ops[i]) &&
        llvm::all_of(index.usersOf(region.ops[i].result()), [&](size_t user) { return gone.count(user); }))
      gone.insert(i);
  eraseOps(region, gone);
}

void eraseOps(Region &region, const std::set<size_t> &gone) {
  size_t out = 0;
  for (size_t i = 0; i < region.ops.size(); ++i) {
    if (gone.count(i))
      continue;
    if (out != i)
      region.ops[out] = std::move(region.ops[i]);
    ++out;
  }
  region.ops.resize(out);
}

} // namespace megalith::transforms
