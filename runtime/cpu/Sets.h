//===- Sets.h - sets of epochs --------------------------------------------===//
//
// Who read a granule (or wrote it atomically) since it was last written. A set is a
// list whose nodes are shared: granules with the same history have the same node, and
// whether all of a node is known to some clock is asked once.
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_RUNTIME_CPU_SETS_H
#define MEGALITH_RUNTIME_CPU_SETS_H

#include "runtime/cpu/Clocks.h"
#include "runtime/cpu/FlatMap.h"
#include <algorithm>
#include <functional>

namespace megalith::cpu {

/// One who does something, and what it knows.
struct Actor {
  const Clock *base;
  uint32_t thread, own;
  bool knows(Word epoch) const {
    const unsigned t = threadOf(epoch);
    return clockOf(epoch) <= (t == thread ? own : base->at[t]);
  }
};

class Sets {
public:
  /// `floor`: epochs up to it are of launches before and known to all.
  /// `threads`: with the agents.
  void start(uint32_t floor, uint32_t launch, size_t threads);
  bool old(Word w) const { return isSet(w) ? launchOf(w) != launch : clockOf(w) <= floor; }

  /// `word` with `epoch` of `actor` in it. What the actor knows may leave.
  Word add(Word word, Word epoch, const Actor &actor);
  /// Some epoch in `word` that the actor does not know; 0: none. `plainOnly`: atomic ones do not count.
  Word unknown(Word word, const Actor &actor, bool plainOnly = false);
  /// Whether the actor knows some epoch in `word`.
  bool knowsAny(Word word, const Actor &actor) const;

  /// So many nodes that words should be collected: keep() every word in use between
  /// begin and end. Epochs up to `known` are known to every thread.
  bool crowded() const { return nodes.size() >= limit; }
  void beginCollect(const Clock *knownBase);
  Word keep(Word word);
  void endCollect();

private:
  struct Node {
    Word epoch;
    uint64_t knownTo; ///< serial of a clock that knows all of it
    uint32_t parent, length;
    uint32_t built; ///< length when it was last made without what may leave
    bool plain;     ///< not all of it is atomic
  };
  struct Edge {
    uint32_t node;
    Word epoch;
    bool operator==(const Edge &o) const { return node == o.node && epoch == o.epoch; }
    uint64_t hash() const { return mixBits(epoch ^ (uint64_t)node * 0x9E3779B97F4A7C15ull); }
  };
  struct Birth { ///< number of the first node that can hold an epoch of this clock
    uint32_t clock, node;
  };
  static constexpr uint32_t kAlone = 0xFFFFFFFE; ///< of an edge: the epoch itself is the set

  uint32_t push(uint32_t parent, Word epoch);
  uint32_t follow(uint32_t node, Word epoch, const Actor &actor);
  uint32_t rebuild(uint32_t node, Word epoch, const Actor &actor);
  /// Whether `earlier` may leave when `epoch` comes: who knows of that knows of it. A plain
  /// access stays for the sake of atomic ones that are in no order with an atomic `epoch`.
  static bool covers(Word epoch, Word earlier, const Actor &actor) {
    return actor.knows(earlier) && (!isAtomic(epoch) || isAtomic(earlier));
  }

  uint32_t floor = 0, launch = 0;
  size_t limit = 1 << 15;
  std::vector<Node> nodes, oldNodes;
  FlatMap<Edge> edges;
  const Clock *known = nullptr;
  std::vector<uint32_t> moved;
  std::vector<Birth> births;    ///< of threads
  std::vector<uint32_t> stamps; ///< of threads, by rebuild
  uint32_t rebuilds = 0;
};

} // namespace megalith::cpu
#endif
