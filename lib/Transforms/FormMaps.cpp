// Whatever is not fused into a stream yet is grouped into `map`s, as few as the
// order of streams and attentions allows: each map stands as early as its
// operands permit, and takes every operation that is ready by then.
#include "TensorUtil.h"
#include "megalith/Transforms/Passes.h"
#include <algorithm>

namespace megalith::transforms {

using namespace ir;

namespace {

class MapFormer {
public:
  MapFormer(Module &module, Region &segment, Region &region)
      : module(module), segment(segment), region(region), index(region),
        done(region.ops.size(), false) {}

  void run() {
    std::vector<Operation> ops;
    std::vector<size_t> maps;
    for (size_t next = 0; next < region.ops.size();) {
      std::vector<size_t> ready = takeReady();
      if (!ready.empty()) {
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
    return isRowWise(op.op) && (!isLeaf(op.op) || isNeededOutside(i));
  }

  bool isNeededOutside(size_t leaf) const {
    const std::vector<size_t> &users = index.usersOf(region.ops[leaf].result());
    return std::any_of(users.begin(), users.end(),
                       [&](size_t user) { return !isRowWise(region.ops[user].op); });
  }

  /// Operations for a map whose operands are all computed, in order.
  std::vector<size_t> takeReady() {
    std::vector<size_t> ready;
    for (size_t i = 0; i < region.ops.size(); ++i) {
      if (done[i] || !isMapped(i))
        continue;
      bool isReady = std::all_of(
          region.ops[i].operands.begin(), region.ops[i].operands.end(), [&](Value v) {
            int at = index.definedAt(v);
            return at < 0 || done[at] || isLeaf(region.ops[at].op);
          });
      if (!isReady)
        continue;
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
  forEachTensorRegion(module, [&](Operation &, Region &segment, Region &region) {
    MapFormer(module, segment, region).run();
  });
  return module;
}

} // namespace megalith::transforms
