// What computes the operand of a stream from stored values moves into it, such
// as a norm: each CTA then computes it for itself, which is cheaper than a grid
// barrier. A prologue is a first pass over the columns for its reductions and a
// second one that computes the operand, so a reduction of a value that itself
// depends on a reduction stays outside. A value that several streams take is
// computed in each of them.
#include "TensorUtil.h"
#include "megalith/Transforms/Passes.h"
#include <algorithm>
#include <optional>

namespace megalith::transforms {

using namespace ir;

namespace {

class PrologueFuser {
public:
  PrologueFuser(Module &module, Region &region) : module(module), region(region), index(region) {}

  void run() {
    choose();
    for (size_t i = 0; i < region.ops.size(); ++i)
      if (region.ops[i].op == Op::Stream)
        moveInto(region.ops[i]);
    std::set<size_t> gone;
    for (const auto &[i, info] : chosen)
      gone.insert(i);
    eraseOps(region, gone);
    removeUnusedLeaves(module, region);
  }

private:
  struct Info {
    int64_t columns;     ///< of the operand that it helps to compute
    bool feedsReduction; ///< a reduction depends on it
  };

  /// The operand of the stream's products.
  static Value operandOf(const Operation &stream) {
    for (const Operation &op : stream.region().ops)
      if (op.op == Op::MatMul)
        return op.operands[0];
    return Value();
  }

  /// True when `stream` uses `v` as the operand of its products and in no other way.
  static bool takesOnlyAsOperand(const Operation &stream, Value v) {
    if (stream.op != Op::Stream || operandOf(stream) != v)
      return false;
    for (const Operation &op : stream.region().ops)
      for (Value used : op.operands)
        if (used == v && op.op != Op::MatMul)
          return false;
    return true;
  }

  /// Finds the operations whose results only prologues need, users first.
  void choose() {
    for (size_t i = region.ops.size(); i-- > 0;) {
      const Operation &op = region.ops[i];
      bool reduces = isReduction(op.op) && op.get<attr::groups>() == 1;
      if ((!isElementwise(op.op) && !reduces) || isLeaf(module, op))
        continue;
      std::optional<Info> info = whatUsersNeed(op.result());
      if (!info || (reduces && info->feedsReduction))
        continue;
      auto fits = [&](Value v) {
        const Type &type = module.type(v);
        return type.kind != Type::Rows || type.size == info->columns || type.size == 1;
      };
      if (!fits(op.result()) || !std::all_of(op.operands.begin(), op.operands.end(), fits))
        continue;
      info->feedsReduction |= reduces;
      chosen[i] = *info;
    }
  }

  /// What the users of `v` have in common; nullopt when one of them is no stream
  /// or part of a prologue.
  std::optional<Info> whatUsersNeed(Value v) const {
    std::optional<Info> all;
    for (size_t user : index.usersOf(v)) {
      Info info{module.type(v).size, false};
      if (auto found = chosen.find(user); found != chosen.end())
        info = found->second;
      else if (!takesOnlyAsOperand(region.ops[user], v))
        return std::nullopt;
      if (all && all->columns != info.columns)
        return std::nullopt;
      all = Info{info.columns, info.feedsReduction || (all && all->feedsReduction)};
    }
    return all;
  }

  void moveInto(Operation &stream) {
    Value operand = operandOf(stream);
    std::set<size_t> slice;
    addSlice(operand, slice);
    if (slice.empty())
      return;
    Region group;
    std::map<Value, Value> copies;
    for (size_t i : slice) {
      Operation copy = region.ops[i];
      // Leaves first: the operation's own results are renamed after its operands.
      appendToGroup(module, region, index, group, std::move(copy), copies);
      std::map<Value, Value> results;
      group.ops.back() = cloneOperation(module, group.ops.back(), results);
      copies.insert(results.begin(), results.end());
    }
    for (Operation &op : stream.region().ops)
      if (op.op == Op::MatMul)
        op.operands[0] = copies.at(operand);
    stream.region().ops.insert(stream.region().ops.begin(), std::make_move_iterator(group.ops.begin()),
                               std::make_move_iterator(group.ops.end()));
  }

  void addSlice(Value v, std::set<size_t> &slice) const {
    int at = index.definedAt(v);
    if (at < 0 || !chosen.count(at) || !slice.insert(at).second)
      return;
    for (Value operand : region.ops[at].operands)
      addSlice(operand, slice);
  }

  Module &module;
  Region &region;
  RegionIndex index;
  std::map<size_t, Info> chosen; ///< index of an operation of a prologue
};

} // namespace

Module fusePrologues(Module module) {
  forEachTensorRegion(module, [&](Operation &, Region &, Region &region) { PrologueFuser(module, region).run(); });
  return module;
}

} // namespace megalith::transforms
