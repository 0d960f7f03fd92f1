// The pass of a model over rows that want no logits ends with the last layer:
// what follows the last operation that appends K and V becomes a segment of its
// own, which runs for the rows that want logits only.
#include "TensorUtil.h"
#include "megalith/Transforms/Passes.h"

namespace megalith::transforms {

using namespace ir;

static bool appendsKv(const Operation &op) {
  bool found = op.op == Op::KvAppend;
  for (const Region &r : op.regions)
    walk(r, [&](const Operation &inner) { found |= inner.op == Op::KvAppend; });
  return found;
}

/// Cuts `forward` after operation `last`; it keeps the first part, the rest is returned.
static Operation cutAfter(Module &module, Operation &forward, size_t last) {
  Region &body = forward.region();
  Operation head;
  head.op = Op::Segment;
  head.name = "head";
  head.loc = forward.loc;
  head.regions.resize(1);
  std::vector<Operation> rest(std::make_move_iterator(body.ops.begin() + last + 1),
                              std::make_move_iterator(body.ops.end()));
  body.ops.resize(last + 1);
  forward.name = "body";
  head.region().ops = std::move(rest);

  std::set<Value> used;
  walk(head.region(), [&](Operation &op) { used.insert(op.operands.begin(), op.operands.end()); });
  Operation yield;
  yield.op = Op::Yield;
  yield.loc = body.ops.back().loc;
  std::vector<Operation> leaves;
  std::map<Value, Value> copies;
  const RegionIndex index(body);
  auto pass = [&](Value v) {
    std::string hint = module.hint(v).str();
    Value argument = module.newValue(module.type(v), hint);
    yield.operands.push_back(v);
    head.region().args.push_back(argument);
    replaceUses(head.region(), v, argument);
  };
  for (Value v : body.args)
    if (used.count(v))
      pass(v);
  for (const Operation &op : body.ops)
    for (Value v : op.results) {
      if (!used.count(v))
        continue;
      if (!isLeaf(module, op)) {
        pass(v);
        continue;
      }
      if (!copies.count(v))
        copyLeaf(module, body, index, index.definedAt(v), leaves, copies);
      replaceUses(head.region(), v, copies[v]);
    }
  head.region().ops.insert(head.region().ops.begin(), leaves.begin(), leaves.end());
  body.ops.push_back(std::move(yield));
  removeUnusedLeaves(module, body);
  return head;
}

Module splitSegments(Module module) {
  for (Operation &model : module.ops()) {
    if (model.op != Op::Model)
      continue;
    std::vector<Operation> &children = model.region().ops;
    for (size_t i = 0; i < children.size(); ++i) {
      if (children[i].op != Op::Segment || children[i].name != "forward")
        continue;
      std::vector<Operation> &ops = children[i].region().ops;
      size_t last = ops.size();
      for (size_t j = 0; j < ops.size(); ++j)
        if (appendsKv(ops[j]))
          last = j;
      // Without K and V nothing outlives a pass but the logits.
      if (last == ops.size()) {
        children[i].name = "head";
        break;
      }
      Operation head = cutAfter(module, children[i], last);
      children.insert(children.begin() + i + 1, std::move(head));
      break;
    }
  }
  return module;
}

} // namespace megalith::transforms
