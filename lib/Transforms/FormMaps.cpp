// Whatever is not fused into a stream yet is grouped into `map`s, as few as the
// order of streams and attentions allows: each map stands as early as its
// operands permit, and takes every operation that is ready by then. A map is walked
// in one way: reductions over blocks of another size begin another map.
#include "TensorUtil.h"
#include "megalith/Transforms/Passes.h"
#include <algorithm>
#include <optional>

namespace megalith::transforms {

using namespace ir;

namespace {

class MapFormer {
public:
  MapFormer(Module &module, Region &segment, Region &region)
      : module(module), segment(segment), region(region), index(region), done(region.ops.size(), false) {}

  void run() {
    std::vector<Operation> ops;
    std::vector<size_t> maps;
    for (size_t next = 0; next < region.ops.size();) {
      for (std::vector<size_t> ready = takeReady(); !ready.empty(); ready = takeReady()) {
        maps.push_back(ops.size());
        ops.push_back(makeMap(ready));
      }
      while (next < region.ops.size() && (done[next] || isRowWise(region.ops[next].op)))
        ++next;
      if (next == region.ops.size())
        break;
      done[next] = true;
      ops.push_back(region.ops[next]);
    }
    region.ops = std::move(ops);
    for (size_t i : maps)
      closeGroup(module, segment, region.ops[i]);
  }

private:
  /// Leaves are copied into the maps that use them; one that is used by something
  /// else is computed by a map.
  bool isMapped(size_t i) const {
    const Operation &op = region.ops[i];
    return isRowWise(op.op) && (!isLeaf(module, op) || isNeededOutside(i));
  }

  bool isNeededOutside(size_t leaf) const {
    const std::vector<size_t> &users = index.usersOf(region.ops[leaf].result());
    return std::any_of(users.begin(), users.end(), [&](size_t user) { return !isRowWise(region.ops[user].op); });
  }

  /// How a map has to be walked for a value: row by row, or by blocks of columns.
  struct Walk {
    int64_t groups = 0;   ///< of the reductions that it depends on; 0: none
    bool rotates = false; ///< it depends on a rotate_half
  };

  /// The walk of operation `i` in a map with values of `walks`; nullopt when one
  /// map cannot hold it: blocks of two sizes, or a rotation beyond a block or twice.
  std::optional<Walk> walkOf(size_t i, const std::map<Value, Walk> &walks) const {
    const Operation &op = region.ops[i];
    Walk all;
    auto add = [&](int64_t groups) {
      bool fits = !groups || !all.groups || all.groups == groups;
      all.groups = groups ? groups : all.groups;
      return fits;
    };
    for (Value v : op.operands) {
      auto found = walks.find(v);
      if (found == walks.end())
        continue;
      if (!add(found->second.groups))
        return std::nullopt;
      all.rotates |= found->second.rotates;
    }
    if (isReduction(op.op) && !add(op.get<attr::groups>()))
      return std::nullopt;
    if (op.op == Op::RotateHalf) {
      int64_t columns = module.type(op.operands[0]).size;
      if (all.rotates || (all.groups && columns / all.groups % op.get<attr::dim>()))
        return std::nullopt;
      all.rotates = true;
    }
    return all;
  }

  /// Operations for a map whose operands are all computed, in order.
  std::vector<size_t> takeReady() {
    std::vector<size_t> ready;
    std::map<Value, Walk> walks;
    for (size_t i = 0; i < region.ops.size(); ++i) {
      if (done[i] || !isMapped(i))
        continue;
      bool isReady = std::all_of(region.ops[i].operands.begin(), region.ops[i].operands.end(), [&](Value v) {
        int at = index.definedAt(v);
        return at < 0 || done[at] || isLeaf(module, region.ops[at]);
      });
      std::optional<Walk> walk = isReady ? walkOf(i, walks) : std::nullopt;
      if (!walk)
        continue;
      for (Value v : region.ops[i].results)
        walks[v] = *walk;
      done[i] = true;
      ready.push_back(i);
    }
    return ready;
  }

  Operation makeMap(const std::vector<size_t> &members) {
    Operation map;
    map.op = Op::Map;
    map.loc = region.ops[members.front()].loc;
    map.regions.resize(1);
    std::map<Value, Value> copies;
    for (size_t i : members)
      appendToGroup(module, region, index, map.region(), region.ops[i], copies);
    return map;
  }

  Module &module;
  Region &segment;
  Region &region;
  RegionIndex index;
  std::vector<bool> done;
};

} // namespace

Module formMaps(Module module) {
  forEachTensorRegion(module,
                      [&](Operation &, Region &segment, Region &region) { MapFormer(module, segment, region).run(); });
  return module;
}

} // namespace megalith::transforms
