#include "ControlUtil.h"
#include "llvm/ADT/STLExtras.h"

namespace megalith::transforms {

using namespace ir;

namespace {

class Sweeper {
public:
  explicit Sweeper(const Module &module) : uses(countUses(module, module.root.region())) {}

  /// One walk backwards: a user is seen, and perhaps dropped, before what it uses.
  void sweep(Region &region) {
    std::vector<Operation> kept;
    for (Operation &op : llvm::reverse(region.ops)) {
      bool used = llvm::any_of(op.results, [&](Value v) { return uses[v.id] != 0; });
      bool dead = !used && removable(op);
      if (!dead) {
        for (Region &inner : op.regions)
          sweep(inner);
        dead = op.op == Op::If && llvm::all_of(op.regions, [](const Region &r) { return r.ops.empty(); });
      }
      if (dead)
        release(op);
      else
        kept.push_back(std::move(op));
    }
    region.ops.assign(std::make_move_iterator(kept.rbegin()), std::make_move_iterator(kept.rend()));
  }

private:
  /// Whether `op` may go when its results are unused.
  static bool removable(const Operation &op) {
    if (hasTrait(op.op, Trait::Changes | Trait::Stays) || op.results.empty())
      return false;
    bool all = true;
    for (const Region &region : op.regions)
      walk(region, [&](const Operation &inner) { all &= inner.op == Op::Yield || removable(inner); });
    return all;
  }

  void release(const Operation &op) {
    for (Value v : op.operands)
      --uses[v.id];
    for (const Region &r : op.regions)
      for (const Operation &inner : r.ops)
        release(inner);
  }

  std::vector<unsigned> uses;
};

} // namespace

void dropUnused(Module &module) { Sweeper(module).sweep(module.root.region()); }

void insertFields(Module &module, std::vector<Operation> fields) {
  auto &ops = module.ops();
  auto last = llvm::find_if(llvm::reverse(ops), [](const Operation &o) {
                return o.op == Op::Field || o.op == Op::Param || o.op == Op::File;
              }).base();
  ops.insert(last, std::make_move_iterator(fields.begin()), std::make_move_iterator(fields.end()));
}

} // namespace megalith::transforms
