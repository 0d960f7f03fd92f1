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

/// Whether some call of `model` has reducers that `reads` is true of.
static bool someReducer(const Module &module, llvm::StringRef model,
                        llvm::function_ref<bool(const Operation &)> reads) {
  bool some = false;
  walk(module.root.region(), [&](const Operation &op) {
    if (isCall(op.op) && op.name == model)
      some |= llvm::any_of(reducersOf(op), reads);
  });
  return some;
}

/// Removes what led to results that nobody reads, and weights that were there for it.
static void dropUnused(Operation &model, Region &region) {
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

  std::set<std::string> read;
  for (const Operation &segment : model.region().ops)
    if (segment.op == Op::Segment)
      walk(segment.region(), [&](const Operation &op) { read.insert(op.name); });
  for (const Operation &weight : model.region().ops)
    if (weight.op == Op::Weight && weight.has<attr::alias>() && read.count(weight.name))
      read.insert(weight.get<attr::alias>());
  llvm::erase_if(model.region().ops, [&](const Operation &op) { return op.op == Op::Weight && !read.count(op.name); });
}

/// What leads from a product to its argmax comes after all else: then no result waits for what another one makes.
static void orderHeads(const Module &module, Region &region) {
  const RegionIndex index(region);
  std::vector<bool> last(region.ops.size(), false);
  for (size_t i = region.ops.size(); i-- > 0;) {
    const Operation &op = region.ops[i];
    last[i] = op.op == Op::Yield || op.op == Op::ArgMax;
    if (last[i] || op.results.empty() || isLeaf(module, op))
      continue;
    const std::vector<size_t> &users = index.usersOf(op.result());
    last[i] = llvm::all_of(users, [&](size_t user) { return last[user] && region.ops[user].op != Op::MatMul; });
  }
  std::vector<Operation> ordered;
  for (bool late : {false, true})
    for (size_t i = 0; i < region.ops.size(); ++i)
      if (last[i] == late)
        ordered.push_back(std::move(region.ops[i]));
  region.ops = std::move(ordered);
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
    const std::vector<std::string> names = model.get<attr::results>();
    const bool reads = someReducer(module, model.name, [](const Operation &) { return true; });
    if (module.type(region.ops.back().operands[0]).elem == Scalar::Token || (!reads && names.empty()))
      continue;
    Operation yield = std::move(region.ops.back());
    region.ops.pop_back();
    Builder b(module, region);
    const auto best = [&](Value of, llvm::StringRef hint) {
      const auto made =
          llvm::find_if(region.ops, [&](const Operation &op) { return llvm::is_contained(op.results, of); });
      b.loc = hint == "argmax" || made == region.ops.end() ? yield.loc : made->loc;
      return b.value(Op::ArgMax, {of}, Type::rows(1, Scalar::Token), hint);
    };
    const std::vector<Value> results(yield.operands.begin(), yield.operands.end());
    yield.operands = {reads ? best(results[0], "argmax") : results[0]};
    std::vector<std::string> read;
    for (size_t i = 0; i < names.size(); ++i)
      if (someReducer(module, model.name, [&](const Operation &r) { return r.get<attr::result>() == names[i]; })) {
        read.push_back(names[i]);
        yield.operands.push_back(best(results[1 + i], names[i]));
      }
    region.ops.push_back(std::move(yield));
    if (read.size() < names.size()) {
      model.erase<attr::results>();
      if (!read.empty())
        model.set<attr::results>(read);
      dropUnused(model, region);
    }
    if (!read.empty())
      orderHeads(module, region);
  }
  return module;
}

} // namespace megalith::transforms
