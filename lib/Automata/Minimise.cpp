//===- Minimise.cpp - states that can end, equal ones joined, numbered -----===//
//
// Antti Valmari, "Fast brief practical DFA minimization" (2012): blocks of states and sets of edges
// split each other, in m log m for m edges. Edges that are not there cost nothing.
//===----------------------------------------------------------------------===//
#include "ListTable.h"
#include "Wide.h"
#include <algorithm>
#include <fmt/format.h>
#include <numeric>

using namespace megalith;
using namespace megalith::automata;

void automata::bound(uint64_t reached, uint64_t most, const char *name, const char *what) {
  if (reached > most)
    throw Refused{fmt::format("{} more than {} (limit `{}`); write a simpler expression: fewer or shorter counted "
                              "repeats, and alternatives that differ early",
                              what, most, name),
                  {}};
}

namespace {

/// Elements 0 to n - 1 in disjoint sets. Marked elements of a set become one of their own.
class Partition {
public:
  explicit Partition(uint32_t count) : elements(count), place(count), setOf(count, 0) {
    std::iota(elements.begin(), elements.end(), 0);
    std::iota(place.begin(), place.end(), 0);
    if (count)
      addSet(0, count);
  }
  /// One set for each `key`, which is below `keys`.
  template <class Key> void byKey(uint32_t keys, Key key) {
    std::vector<uint32_t> at(keys + 1, 0);
    for (uint32_t e = 0; e < elements.size(); ++e)
      ++at[key(e) + 1];
    std::partial_sum(at.begin(), at.end(), at.begin());
    const std::vector<uint32_t> begins = at;
    first.clear(), past.clear(), marked.clear();
    std::vector<uint32_t> number(keys);
    for (uint32_t k = 0; k < keys; ++k)
      if (begins[k] != begins[k + 1]) {
        number[k] = sets();
        addSet(begins[k], begins[k + 1]);
      }
    for (uint32_t e = 0; e < elements.size(); ++e) {
      place[e] = at[key(e)]++;
      elements[place[e]] = e;
      setOf[e] = number[key(e)];
    }
  }

  uint32_t sets() const { return static_cast<uint32_t>(first.size()); }
  uint32_t set(uint32_t element) const { return setOf[element]; }
  std::span<const uint32_t> of(uint32_t set) const {
    return std::span(elements).subspan(first[set], past[set] - first[set]);
  }
  void mark(uint32_t element) {
    const uint32_t set = setOf[element], from = place[element], to = first[set] + marked[set];
    if (from < to)
      return;
    elements[from] = elements[to];
    place[elements[from]] = from;
    elements[to] = element;
    place[element] = to;
    if (marked[set]++ == 0)
      touched.push_back(set);
  }
  /// The smaller half gets the new number.
  void split() {
    while (!touched.empty()) {
      const uint32_t set = touched.back(), middle = first[set] + marked[set];
      touched.pop_back();
      const uint32_t count = marked[set];
      marked[set] = 0;
      if (middle == past[set])
        continue;
      const uint32_t made = sets();
      if (count <= past[set] - middle) {
        addSet(first[set], middle);
        first[set] = middle;
      } else {
        addSet(middle, past[set]);
        past[set] = middle;
      }
      for (uint32_t i = first[made]; i < past[made]; ++i)
        setOf[elements[i]] = made;
    }
  }

private:
  void addSet(uint32_t from, uint32_t to) {
    first.push_back(from);
    past.push_back(to);
    marked.push_back(0);
  }

  std::vector<uint32_t> elements, place; ///< in the order of sets; where each stands there
  std::vector<uint32_t> setOf;
  std::vector<uint32_t> first, past, marked; ///< of a set; marked elements stand at its front
  std::vector<uint32_t> touched;             ///< sets with marked elements
};

/// Edges by a state: `of(state)`.
struct Adjacent {
  std::vector<uint32_t> begins, edges;
  Adjacent(uint32_t states, const std::vector<uint32_t> &ends) : begins(states + 1, 0), edges(ends.size()) {
    for (const uint32_t state : ends)
      ++begins[state + 1];
    std::partial_sum(begins.begin(), begins.end(), begins.begin());
    std::vector<uint32_t> at(begins.begin(), begins.end() - 1);
    for (uint32_t e = 0; e < ends.size(); ++e)
      edges[at[ends[e]]++] = e;
  }
  std::span<const uint32_t> of(uint32_t state) const {
    return std::span(edges).subspan(begins[state], begins[state + 1] - begins[state]);
  }
};

std::vector<uint32_t> tailsOf(const Wide &wide) {
  std::vector<uint32_t> tails(wide.head.size());
  for (uint32_t s = 0; s < wide.accepting.size(); ++s)
    std::fill(tails.begin() + wide.firstEdge[s], tails.begin() + wide.firstEdge[s + 1], s);
  return tails;
}

/// Leaves out states from which no accepting one is reached, and edges to them.
Wide trimmed(Wide wide) {
  const uint32_t states = static_cast<uint32_t>(wide.accepting.size());
  std::vector<uint8_t> alive = wide.accepting;
  {
    const std::vector<uint32_t> tails = tailsOf(wide);
    const Adjacent into(states, wide.head);
    std::vector<uint32_t> open;
    for (uint32_t s = 0; s < states; ++s)
      if (alive[s])
        open.push_back(s);
    while (!open.empty()) {
      const uint32_t state = open.back();
      open.pop_back();
      for (const uint32_t edge : into.of(state))
        if (!alive[tails[edge]]) {
          alive[tails[edge]] = 1;
          open.push_back(tails[edge]);
        }
    }
  }
  if (states == 0 || !alive[0])
    throw Refused{"no text matches; look for a class without characters, such as `[^\\s\\S]`, or for two formats that "
                  "have no text in common",
                  {}};
  std::vector<uint32_t> number(states, 0);
  uint32_t kept = 0, keptEdges = 0;
  for (uint32_t s = 0; s < states; ++s)
    number[s] = alive[s] ? kept++ : UINT32_MAX;
  uint32_t edge = 0; // firstEdge is overwritten while it is read
  for (uint32_t s = 0; s < states; ++s) {
    const uint32_t end = wide.firstEdge[s + 1];
    for (; edge < end; ++edge)
      if (alive[s] && alive[wide.head[edge]]) {
        wide.label[keptEdges] = wide.label[edge];
        wide.head[keptEdges++] = number[wide.head[edge]];
      }
    if (alive[s]) {
      wide.accepting[number[s]] = wide.accepting[s];
      wide.firstEdge[number[s] + 1] = keptEdges;
    }
  }
  wide.accepting.resize(kept);
  wide.firstEdge.resize(kept + 1);
  wide.label.resize(keptEdges);
  wide.head.resize(keptEdges);
  return wide;
}

/// States with the same texts in one set.
Partition blocksOf(const Wide &wide) {
  const uint32_t states = static_cast<uint32_t>(wide.accepting.size());
  Partition blocks(states), cords(static_cast<uint32_t>(wide.head.size()));
  for (uint32_t s = 0; s < states; ++s)
    if (wide.accepting[s])
      blocks.mark(s);
  blocks.split();
  if (wide.head.empty())
    return blocks;
  cords.byKey(wide.classes, [&](uint32_t edge) { return wide.label[edge]; });
  const std::vector<uint32_t> tails = tailsOf(wide);
  const Adjacent into(states, wide.head);
  uint32_t block = 1;
  for (uint32_t cord = 0; cord < cords.sets(); ++cord) {
    for (const uint32_t edge : cords.of(cord))
      blocks.mark(tails[edge]);
    blocks.split();
    for (; block < blocks.sets(); ++block) {
      for (const uint32_t state : blocks.of(block))
        for (const uint32_t edge : into.of(state))
          cords.mark(edge);
      cords.split();
    }
  }
  return blocks;
}

} // namespace

Automaton automata::minimised(Wide wide, const Limits &limits) {
  wide = trimmed(std::move(wide));
  const Partition blocks = blocksOf(wide);
  const uint64_t most = std::min<uint64_t>(limits.states, Automaton::Dead);
  bound(blocks.sets(), most, "states", "the automaton has states:");

  // Breadth first from the start.
  const uint32_t states = blocks.sets();
  std::vector<uint32_t> number(states, UINT32_MAX), order{blocks.set(0)};
  number[order[0]] = 0;
  for (uint32_t i = 0; i < order.size(); ++i) {
    const uint32_t state = blocks.of(order[i])[0];
    for (uint32_t edge = wide.firstEdge[state]; edge < wide.firstEdge[state + 1]; ++edge) {
      const uint32_t target = blocks.set(wide.head[edge]);
      if (number[target] == UINT32_MAX) {
        number[target] = static_cast<uint32_t>(order.size());
        order.push_back(target);
      }
    }
  }

  // Classes whose columns are equal become one; the first byte of each is smaller than that of the next.
  std::vector<std::vector<std::pair<uint32_t, uint32_t>>> columns(wide.classes); ///< pairs of state and target
  for (uint32_t i = 0; i < states; ++i) {
    const uint32_t state = blocks.of(order[i])[0];
    for (uint32_t edge = wide.firstEdge[state]; edge < wide.firstEdge[state + 1]; ++edge)
      columns[wide.label[edge]].push_back({i, number[blocks.set(wide.head[edge])]});
  }
  std::vector<uint32_t> joined(wide.classes);
  Automaton out;
  std::vector<uint32_t> keptClasses;
  std::vector<uint64_t> hashes;
  for (uint32_t c = 0; c < wide.classes; ++c) {
    uint64_t hash = 0;
    for (const auto &[state, target] : columns[c])
      hash = mixed(hash, uint64_t{state} << 32 | target);
    uint32_t same = 0;
    while (same < keptClasses.size() && (hashes[same] != hash || columns[keptClasses[same]] != columns[c]))
      ++same;
    joined[c] = same;
    if (same == keptClasses.size()) {
      keptClasses.push_back(c);
      hashes.push_back(hash);
    }
  }
  out.classes = static_cast<uint32_t>(keptClasses.size());
  for (int byte = 0; byte < 256; ++byte)
    out.classOf[byte] = static_cast<uint8_t>(joined[wide.classOf[byte]]);
  out.next.assign(size_t{states} * out.classes, Automaton::Dead);
  out.accepting.resize(states);
  out.final.resize(states);
  for (uint32_t c = 0; c < out.classes; ++c)
    for (const auto &[state, target] : columns[keptClasses[c]])
      out.next[size_t{state} * out.classes + c] = static_cast<uint16_t>(target);
  for (uint32_t i = 0; i < states; ++i) {
    const uint32_t state = blocks.of(order[i])[0];
    out.accepting[i] = wide.accepting[state];
    out.final[i] = wide.accepting[state] && wide.firstEdge[state] == wide.firstEdge[state + 1];
  }
  return out;
}
