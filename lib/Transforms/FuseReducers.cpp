// Nobody reads logits but row reducers: those that calls of a model ask for
// become results of its last segment, so that logits never leave it.
#include "TensorUtil.h"
#include "megalith/IR/Calls.h"
#include "megalith/Transforms/Passes.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>
#include <set>

namespace megalith::transforms {

using namespace ir;

/// Whether some call of `model` reads its logits.
static bool readsLogits(const Module &module, llvm::StringRef model) {
  bool reads = false;
  walk(module.root.region(), [&](const Operation &op) {
    reads |= (op.op == Op::Call || op.op == Op::Issue) && op.name == model && !reducersOf(op).empty();
  });
  return reads;
}

/// Whether some call of `model` reads its result `name`.
static bool readsResult(const Module &module, llvm::StringRef model, llvm::StringRef name) {
  bool reads = false;
  walk(module.root.region(), [&](const Operation &op) {
    if ((op.op == Op::Call || op.op == Op::Issue) && op.name == model)
      for (const Operation &reduce : reducersOf(op))
        reads |= reduce.get<attr::of>() == name;
  });
  return reads;
}

/// Removes what led to results that nobody reads.
static void dropUnused(Region &region) {
  std::set<Value> used;
  std::vector<Operation> kept;
  for (Operation &op : llvm::reverse(region.ops)) {
    const bool stays = op.op == Op::Yield || op.op == Op::KvAppend || !op.regions.empty() ||
                       llvm::any_of(op.results, [&](Value v) { return used.count(v) != 0; });
    if (!stays)
      continue;
    used.insert(op.operands.begin(), op.operands.end());
    for (const Region &inner : op.regions)
      walk(inner, [&](const Operation &o) { used.insert(o.operands.begin(), o.operands.end()); });
    kept.push_back(std::move(op));
  }
  std::reverse(kept.begin(), kept.end());
  region.ops = std::move(kept);
}

Module fuseReducers(Module module) {
  for (Operation &model : module.ops()) {
    if (model.op != Op::Model)
      continue;
    Operation *last = nullptr;
    for (Operation &child : model.region().ops)
      if (child.op == Op::Segment)
        last = &child;
    if (!last)
      continue;
    Region &region = last->region();
    Operation yield = region.ops.back();
    Value logits = yield.operands[0];
    const bool reads = readsLogits(module, model.name);
    if (module.type(logits).elem == Scalar::Token || (!reads && model.get<attr::results>().empty()))
      continue;
    const std::vector<std::string> names = model.get<attr::results>();
    std::vector<std::string> read;
    std::vector<Value> others;
    for (size_t i = 0; i < names.size(); ++i)
      if (readsResult(module, model.name, names[i])) {
        read.push_back(names[i]);
        others.push_back(yield.operands[1 + i]);
      }
    region.ops.pop_back();
    Builder b(module, region);
    b.loc = yield.loc;
    yield.operands = {logits};
    if (reads)
      yield.operands = {b.value(Op::ArgMax, {logits}, Type::rows(1, Scalar::Token), "argmax")};
    for (size_t i = 0; i < read.size(); ++i)
      yield.operands.push_back(b.value(Op::ArgMax, {others[i]}, Type::rows(1, Scalar::Token), read[i]));
    region.ops.push_back(std::move(yield));
    if (read.size() == names.size())
      continue;
    if (read.empty())
      model.erase<attr::results>();
    else
      model.set<attr::results>(read);
    dropUnused(region);
  }
  return module;
}

} // namespace megalith::transforms
