//===- Sets.cpp - sets of epochs ------------------------------------------===//
#include "runtime/cpu/Sets.h"

namespace megalith::cpu {

void Sets::start(uint32_t newFloor, uint32_t newLaunch, size_t threads) {
  births.assign(threads, {});
  floor = newFloor;
  launch = newLaunch;
  nodes.assign(1, {});
  edges.clear();
  limit = 1 << 15;
}

uint32_t Sets::push(uint32_t parent, Word epoch) {
  const Edge edge{parent, epoch};
  uint32_t node = edges.find(edge);
  if (node < kAlone && node && nodes[node].parent == parent && nodes[node].epoch == epoch)
    return node;
  node = nodes.size();
  const Node &above = nodes[parent];
  nodes.push_back({epoch, 0, parent, above.length + 1, above.built, above.plain || !isAtomic(epoch)});
  edges.insert(edge, node);
  return node;
}

/// `node` with `epoch`, and without what that covers and threads' older epochs.
uint32_t Sets::rebuild(uint32_t node, Word epoch, const Actor &actor) {
  ++rebuilds;
  stamps.resize(1 << 16);
  std::vector<Word> kept;
  stamps[threadOf(epoch)] = rebuilds;
  kept.push_back(epoch);
  for (uint32_t i = node; i; i = nodes[i].parent) {
    const Word e = nodes[i].epoch;
    const unsigned t = threadOf(e);
    if (stamps[t] == rebuilds) {
      if (!isAtomic(e)) // a plain access stays one
        for (Word &k : kept)
          if (threadOf(k) == t)
            k &= ~kAtomicBit;
    } else if (!covers(epoch, e, actor)) {
      stamps[t] = rebuilds;
      kept.push_back(e);
    }
  }
  uint32_t result = 0;
  for (size_t i = kept.size(); i--;)
    result = push(result, kept[i]);
  nodes[result].built = kept.size();
  return result;
}

/// The set `node` with `epoch`: how it is made is remembered, as an edge.
uint32_t Sets::follow(uint32_t node, Word epoch, const Actor &actor) {
  const Edge edge{node, epoch};
  uint32_t result = edges.find(edge);
  if (result != FlatMap<Edge>::kNone)
    return result;
  if ((!nodes[node].plain || !isAtomic(epoch)) && !unknown(setWord(node, launch), actor)) {
    result = kAlone;
  } else if (nodes[node].length >= 2 * nodes[node].built + 32) {
    result = rebuild(node, epoch, actor);
  } else {
    // Nodes are younger than their parents: none older than the epoch has it. (One that
    // another thread made of it earlier is missed, and the epoch is twice in the set.)
    Birth &b = births[threadOf(epoch)];
    if (b.clock != clockOf(epoch))
      b = {clockOf(epoch), (uint32_t)nodes.size()};
    uint32_t at = node;
    while (at >= b.node && nodes[at].epoch != epoch)
      at = nodes[at].parent;
    if (at < b.node)
      return push(node, epoch);
    result = node;
  }
  edges.insert(edge, result);
  return result;
}

Word Sets::add(Word word, Word epoch, const Actor &actor) {
  if (word == 0 || old(word))
    return epoch;
  uint32_t node;
  if (!isSet(word)) {
    if (threadOf(word) == threadOf(epoch))
      return isAtomic(word) ? epoch : epoch & ~kAtomicBit;
    if (covers(epoch, word, actor))
      return epoch;
    node = push(push(0, word), epoch);
  } else {
    node = follow(nodeOf(word), epoch, actor);
    if (node == kAlone)
      return epoch;
  }
  return setWord(node, launch);
}

Word Sets::unknown(Word word, const Actor &actor, bool plainOnly) {
  if (word == 0 || old(word))
    return 0;
  if (!isSet(word))
    return (plainOnly && isAtomic(word)) || actor.knows(word) ? 0 : word;
  Node &first = nodes[nodeOf(word)];
  if (first.knownTo == actor.base->serial)
    return 0;
  bool ofBase = true;
  for (uint32_t i = nodeOf(word); i; i = nodes[i].parent) {
    const Word e = nodes[i].epoch;
    if (clockOf(e) <= actor.base->at[threadOf(e)])
      continue;
    ofBase = false;
    if (!(plainOnly && isAtomic(e)) && !actor.knows(e))
      return e;
  }
  if (ofBase)
    first.knownTo = actor.base->serial;
  return 0;
}

bool Sets::knowsAny(Word word, const Actor &actor) const {
  if (word == 0)
    return false;
  if (old(word))
    return true;
  if (!isSet(word))
    return actor.knows(word);
  for (uint32_t i = nodeOf(word); i; i = nodes[i].parent)
    if (actor.knows(nodes[i].epoch))
      return true;
  return false;
}

void Sets::beginCollect(const Clock *knownBase) {
  known = knownBase;
  oldNodes = std::move(nodes);
  nodes.assign(1, {});
  edges.clear();
  births.assign(births.size(), {});
  moved.assign(oldNodes.size(), ~0u);
  moved[0] = 0;
}

Word Sets::keep(Word word) {
  if (!isSet(word))
    return word;
  if (old(word))
    return epochWord(0, 1, 0, false);
  std::vector<uint32_t> path;
  uint32_t at = nodeOf(word);
  while (moved[at] == ~0u) {
    path.push_back(at);
    at = oldNodes[at].parent;
  }
  uint32_t node = moved[at];
  for (size_t i = path.size(); i--;) {
    const Word e = oldNodes[path[i]].epoch;
    if (clockOf(e) > known->at[threadOf(e)])
      node = push(node, e);
    nodes[node].built = nodes[node].length;
    moved[path[i]] = node;
  }
  // All known to all: its last epoch says as much.
  return node ? setWord(node, launch) : oldNodes[nodeOf(word)].epoch;
}

void Sets::endCollect() {
  oldNodes.clear();
  oldNodes.shrink_to_fit();
  limit = std::max<size_t>(1 << 15, 2 * nodes.size());
}

} // namespace megalith::cpu
