//===- MergeValues.cpp - values that compute the same become one ----------===//
//
// A policy's output is inlined wherever it is read, so a part computes the same value several
// times. The first operation stays; the later ones go, and what used them uses the first, as long
// as nothing between the two changes what they read.
//
// Only operations that stand directly in a part are merged, not those in its `if`s and loops.
//===----------------------------------------------------------------------===//
#include "megalith/IR/Effects.h"
#include "megalith/IR/Text.h"
#include "megalith/Transforms/Passes.h"
#include <fmt/format.h>

namespace megalith::transforms {

using namespace ir;

namespace {

class Merger {
public:
  explicit Merger(Module &module) : module(module) {}

  void run(Region &part) {
    std::vector<Operation> kept;
    for (Operation &op : part.ops) {
      replaceOperands(op);
      const Resources writes = writesBelow(op);
      std::erase_if(known, [&](const auto &entry) { return meet(entry.second.reads, writes); });
      if (!isMergeable(op)) {
        kept.push_back(std::move(op));
        continue;
      }
      Resources all = readsOf(op);
      for (Value v : op.operands)
        all.insert(reads[v].begin(), reads[v].end());
      const auto [first, isNew] = known.try_emplace(key(op), Known{op.result(), all});
      if (isNew) {
        reads[op.result()] = std::move(all);
        kept.push_back(std::move(op));
      } else {
        const Value value = replaced[op.result()] = first->second.value;
        if (module.hint(value).empty())
          module.values[value.id].hint = module.hint(op.result()).str();
      }
    }
    part.ops = std::move(kept);
  }

private:
  struct Known {
    Value value;
    Resources reads;
  };

  /// Two appends append twice.
  static bool isMergeable(const Operation &op) {
    return op.results.size() == 1 && op.regions.empty() && !hasTrait(op.op, Trait::Changes);
  }

  void replaceOperands(Operation &op) {
    for (Value &v : op.operands)
      if (auto it = replaced.find(v); it != replaced.end())
        v = it->second;
    for (Region &region : op.regions)
      for (Operation &inner : region.ops)
        replaceOperands(inner);
  }

  /// All that makes an operation what it is, but its result and its place.
  std::string key(const Operation &op) const {
    std::string key = fmt::format("{} @{} {}", mnemonic(op.op).str(), op.name, module.type(op.result()).str());
    for (Value v : op.operands)
      key += fmt::format(" %{}", v.id);
    for (const auto &[name, value] : op.attrs)
      key += fmt::format(" {}={}", name, print(value));
    return key;
  }

  Module &module;
  std::map<std::string, Known> known;
  std::map<Value, Resources> reads;
  std::map<Value, Value> replaced;
};

} // namespace

Module mergeValues(Module module) {
  for (Operation &tick : module.ops())
    if (tick.op == Op::Tick)
      for (Operation &part : tick.region().ops)
        if (part.op == Op::Part)
          Merger(module).run(part.region());
  return module;
}

} // namespace megalith::transforms
