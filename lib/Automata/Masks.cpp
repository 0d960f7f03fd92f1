//===- Masks.cpp - one walk over the tree of tokens for all states ---------===//
//
// What a state allows below a node depends on its next `height` bytes alone. So the walk takes along
// one state of each kind that these bytes tell apart: near the leaves, where nearly all nodes are,
// these are few, however many states there are. On the way back each of them gets the tokens that it
// allows below the node as a part: nothing, everything, or two parts side by side. Equal parts are
// one, so equal masks are found without looking at a bit.
//===----------------------------------------------------------------------===//
#include "megalith/Automata/Masks.h"
#include "ListTable.h"
#include <algorithm>
#include <fmt/format.h>
#include <numeric>

using namespace megalith;
using namespace megalith::automata;

// --- the tree

TokenTree::TokenTree(std::span<const std::string> tokens) { build({tokens.begin(), tokens.end()}); }

TokenTree::TokenTree(std::span<const uint64_t> offsets, std::string_view bytes) {
  std::vector<std::string_view> tokens;
  for (size_t t = 0; t + 1 < offsets.size(); ++t) {
    if (offsets[t] > offsets[t + 1] || offsets[t + 1] > bytes.size())
      throw Refused{fmt::format("token {} goes from byte {} to {} of {}; offsets must ascend, and end with the bytes",
                                t, offsets[t], offsets[t + 1], bytes.size()),
                    {}};
    tokens.push_back(bytes.substr(offsets[t], offsets[t + 1] - offsets[t]));
  }
  build(tokens);
}

void TokenTree::build(const std::vector<std::string_view> &tokens) {
  uint64_t total = 0;
  for (const std::string_view token : tokens)
    total += token.size();
  if (tokens.size() >= UINT32_MAX || total >= UINT32_MAX)
    throw Refused{
        fmt::format("a vocabulary of {} tokens with {} bytes; both have to be below 2^32", tokens.size(), total), {}};
  vocabulary = static_cast<uint32_t>(tokens.size());
  for (uint32_t t = 0; t < vocabulary; ++t)
    if (!tokens[t].empty())
      order.push_back(t);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    const int less = tokens[a].compare(tokens[b]); // by unsigned bytes
    return less != 0 ? less < 0 : a < b;
  });
  std::vector<uint32_t> path{0}; ///< nodes from the root to the token before
  const auto add = [&](uint8_t last, uint32_t rank) {
    byte.push_back(last);
    end.push_back(0);
    height.push_back(0);
    firstRank.push_back(rank);
  };
  const auto leave = [&](size_t depth) {
    for (; path.size() > depth + 1; path.pop_back()) {
      const uint32_t node = path.back(), parent = path[path.size() - 2];
      end[node] = nodes();
      height[parent] = std::max(height[parent], height[node] + 1);
    }
  };
  add(0, 0);
  std::string_view before;
  for (uint32_t rank = 0; rank < order.size(); ++rank) {
    const std::string_view token = tokens[order[rank]];
    const size_t common =
        std::mismatch(before.begin(), before.end(), token.begin(), token.end()).first - before.begin();
    leave(common);
    for (const char c : token.substr(common)) {
      path.push_back(nodes());
      add(static_cast<uint8_t>(c), rank);
    }
    before = token;
  }
  leave(0);
  end[0] = nodes();
  firstRank.push_back(static_cast<uint32_t>(order.size()));
}

// --- kinds of states

namespace {

void boundMasks(uint64_t reached, uint64_t most, const char *name, const char *what) {
  if (reached > most)
    throw Refused{fmt::format("{} more than {} (limit `{}`); write an expression with fewer states, such as one with "
                              "shorter counted repeats",
                              what, most, name),
                  {}};
}

/// States by what their next h bytes tell apart, for h from 0.
class Kinds {
public:
  Kinds(const Automaton &automaton, uint32_t most, uint64_t &steps, uint64_t mostSteps) {
    const uint32_t states = automaton.states();
    std::vector<uint32_t> firstEdge{0};
    std::vector<std::pair<uint8_t, uint16_t>> edges;
    for (uint32_t s = 0; s < states; ++s) {
      for (uint32_t c = 0; c < automaton.classes; ++c)
        if (const uint16_t target = automaton.next[size_t{s} * automaton.classes + c]; target != Automaton::Dead)
          edges.push_back({static_cast<uint8_t>(c), target});
      firstEdge.push_back(static_cast<uint32_t>(edges.size()));
    }
    of.emplace_back(states, uint16_t{0});
    uint32_t count = 1;
    size_t slotCount = 64;
    while (slotCount < states * size_t{2})
      slotCount *= 2;
    std::vector<uint32_t> slots(slotCount);
    std::vector<uint64_t> hashes(states);
    while (of.size() <= std::min(most, MostRounds)) {
      steps += edges.size() + states;
      boundMasks(steps, mostSteps, "maskSteps", "the masks of tokens take steps:");
      const std::vector<uint16_t> &before = of.back();
      std::vector<uint16_t> now(states);
      const auto equal = [&](uint32_t a, uint32_t b) {
        return std::equal(edges.begin() + firstEdge[a], edges.begin() + firstEdge[a + 1], edges.begin() + firstEdge[b],
                          edges.begin() + firstEdge[b + 1], [&](const auto &x, const auto &y) {
                            return x.first == y.first && before[x.second] == before[y.second];
                          });
      };
      std::fill(slots.begin(), slots.end(), 0);
      uint32_t made = 0;
      for (uint32_t s = 0; s < states; ++s) {
        uint64_t hash = 0;
        for (uint32_t e = firstEdge[s]; e < firstEdge[s + 1]; ++e)
          hash = mixed(hash, uint64_t{edges[e].first} << 16 | before[edges[e].second]);
        hashes[s] = hash;
        size_t at = hash & (slotCount - 1);
        while (slots[at] != 0 && (hashes[slots[at] - 1] != hash || !equal(slots[at] - 1, s)))
          at = (at + 1) & (slotCount - 1);
        if (slots[at] == 0) {
          slots[at] = s + 1;
          now[s] = static_cast<uint16_t>(made++);
        } else {
          now[s] = now[slots[at] - 1];
        }
      }
      if (made == count && of.size() > 1)
        return; // more bytes tell nothing more apart
      count = made;
      of.push_back(std::move(now));
    }
    if (most >= of.size()) { // each state is a kind of its own
      std::vector<uint16_t> &all = of.emplace_back(states);
      std::iota(all.begin(), all.end(), uint16_t{0});
    }
  }
  const std::vector<uint16_t> &at(uint32_t height) const { return of[std::min<size_t>(height, of.size() - 1)]; }

private:
  /// Longer tokens are few, so that their nodes may have a state for each state.
  static constexpr uint32_t MostRounds = 16;
  std::vector<std::vector<uint16_t>> of; ///< by height, of a state
};

/// Sets of ranks. The range that a part is about is known where it is used.
class Parts {
public:
  static constexpr uint32_t Nothing = 0, Everything = 1;
  explicit Parts(const Limits &limits) : limits(limits), parts(2), slots(1024, 0) {}

  /// `left` up to the rank `middle`, `right` from there.
  uint32_t join(uint32_t left, uint32_t right, uint32_t middle) {
    if (left == right && left <= Everything)
      return left;
    size_t at = slotOf(left, right, middle);
    for (; slots[at] != 0; at = (at + 1) & (slots.size() - 1)) {
      const Part &part = parts[slots[at]];
      if (part.left == left && part.right == right && part.middle == middle)
        return slots[at];
    }
    boundMasks(parts.size(), limits.maskParts, "maskParts", "the masks of tokens have parts:");
    const uint32_t made = static_cast<uint32_t>(parts.size());
    slots[at] = made;
    parts.push_back({left, right, middle});
    if (parts.size() * 2 > slots.size())
      grow();
    return made;
  }
  /// Calls each(begin, end) for the ranks from 0 to `ranks` that are in `part`.
  template <class Each> void ranges(uint32_t part, uint32_t ranks, Each each) {
    open.push_back({part, 0, ranks});
    while (!open.empty()) {
      const auto [at, begin, end] = open.back();
      open.pop_back();
      if (at == Everything)
        each(begin, end);
      if (at > Everything) {
        open.push_back({parts[at].right, parts[at].middle, end});
        open.push_back({parts[at].left, begin, parts[at].middle});
      }
    }
  }

private:
  struct Part {
    uint32_t left, right, middle;
  };
  struct Range {
    uint32_t part, begin, end;
  };
  size_t slotOf(uint32_t left, uint32_t right, uint32_t middle) const {
    return mixed(uint64_t{left} << 32 | right, middle) & (slots.size() - 1);
  }
  void grow() {
    slots.assign(slots.size() * 2, 0);
    for (uint32_t part = 2; part < parts.size(); ++part) {
      size_t at = slotOf(parts[part].left, parts[part].right, parts[part].middle);
      while (slots[at] != 0)
        at = (at + 1) & (slots.size() - 1);
      slots[at] = part;
    }
  }

  const Limits &limits;
  std::vector<Part> parts;
  std::vector<uint32_t> slots; ///< 0: free
  std::vector<Range> open;
};

/// The walk.
class Walk {
public:
  Walk(const Automaton &automaton, const TokenTree &tree, const Limits &limits)
      : automaton(automaton), tree(tree), limits(limits), kinds(automaton, tree.height[0], steps, limits.maskSteps),
        parts(limits), stamp(automaton.states(), {0, 0}) {}
  Masks masks();

private:
  static constexpr uint32_t NoEntry = UINT32_MAX;
  /// A node on the way from the root.
  struct Level {
    uint32_t node, child;         ///< the child that comes next
    std::vector<uint16_t> states; ///< one of each kind that comes here alive
    std::vector<uint32_t> parts;  ///< what each allows up to the child
    std::vector<uint32_t> entry;  ///< of an entry of the level above: the one here, or NoEntry
  };
  void enter(size_t depth, uint32_t node);
  void join(Level &level, uint32_t child, size_t entry, uint32_t part) {
    uint32_t &all = level.parts[entry];
    const uint32_t middle = tree.firstRank[child];
    all = middle == tree.firstRank[level.node] ? part : parts.join(all, part, middle);
  }
  void count(uint64_t more) {
    steps += more;
    boundMasks(steps, limits.maskSteps, "maskSteps", "the masks of tokens take steps:");
  }

  const Automaton &automaton;
  const TokenTree &tree;
  const Limits &limits;
  uint64_t steps = 0;
  Kinds kinds;
  Parts parts;
  std::vector<Level> levels;
  std::vector<std::pair<uint32_t, uint32_t>> stamp; ///< of a kind: the round and its entry
  uint32_t round = 0;
};

/// Fills levels[depth] but for its states, which are there.
void Walk::enter(size_t depth, uint32_t node) {
  Level &level = levels[depth];
  level.node = node;
  level.child = node + 1;
  level.parts.assign(level.states.size(), Parts::Everything); // the node's own tokens
}

Masks Walk::masks() {
  Masks out;
  out.vocabulary = tree.vocabulary;
  out.words = (tree.vocabulary + 31) / 32;
  const uint32_t states = automaton.states();
  out.maskOf.resize(states);
  levels.resize(2);
  const std::vector<uint16_t> &first = kinds.at(tree.height[0]);
  std::vector<uint32_t> entryOf(states);
  ++round;
  for (uint32_t s = 0; s < states; ++s) {
    auto &[seen, entry] = stamp[first[s]];
    if (seen != round) {
      seen = round;
      entry = static_cast<uint32_t>(levels[0].states.size());
      levels[0].states.push_back(static_cast<uint16_t>(s));
    }
    entryOf[s] = entry;
  }
  enter(0, 0);
  if (tree.order.empty())
    std::fill(levels[0].parts.begin(), levels[0].parts.end(), Parts::Nothing);

  for (size_t depth = 0;;) {
    Level &level = levels[depth];
    if (level.child == tree.end[level.node]) {
      if (depth == 0)
        break;
      Level &above = levels[depth - 1];
      for (size_t entry = 0; entry < above.states.size(); ++entry)
        join(above, level.node, entry,
             level.entry[entry] == NoEntry ? Parts::Nothing : level.parts[level.entry[entry]]);
      --depth;
      continue;
    }
    const uint32_t child = level.child, byteClass = automaton.classOf[tree.byte[child]];
    level.child = tree.end[child];
    count(level.states.size());
    if (tree.height[child] == 0) {
      for (size_t entry = 0; entry < level.states.size(); ++entry) {
        const uint16_t state = automaton.next[size_t{level.states[entry]} * automaton.classes + byteClass];
        join(level, child, entry, state == Automaton::Dead ? Parts::Nothing : Parts::Everything);
      }
      continue;
    }
    const std::vector<uint16_t> &kind = kinds.at(tree.height[child]);
    Level &below = levels[depth + 1];
    below.states.clear();
    below.entry.assign(level.states.size(), NoEntry);
    ++round;
    for (size_t entry = 0; entry < level.states.size(); ++entry) {
      const uint16_t state = automaton.next[size_t{level.states[entry]} * automaton.classes + byteClass];
      if (state == Automaton::Dead)
        continue;
      auto &[seen, known] = stamp[kind[state]];
      if (seen != round) {
        seen = round;
        known = static_cast<uint32_t>(below.states.size());
        below.states.push_back(state);
      }
      below.entry[entry] = known;
    }
    if (below.states.empty()) {
      for (size_t entry = 0; entry < level.states.size(); ++entry)
        join(level, child, entry, Parts::Nothing);
      continue;
    }
    enter(++depth, child);
    if (levels.size() == depth + 1)
      levels.emplace_back();
  }

  // One mask for each part that the root has.
  const std::vector<uint32_t> &roots = levels[0].parts;
  std::vector<uint32_t> distinct = roots;
  std::sort(distinct.begin(), distinct.end());
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  boundMasks(distinct.size() * uint64_t{out.words} * sizeof(uint32_t), limits.maskBytes, "maskBytes",
             "the distinct masks of tokens have bytes:");
  out.bits.resize(distinct.size() * size_t{out.words});
  std::vector<uint32_t> number(distinct.size(), UINT32_MAX);
  uint32_t made = 0;
  for (uint32_t s = 0; s < states; ++s) {
    const uint32_t part = roots[entryOf[s]];
    uint32_t &mask = number[std::lower_bound(distinct.begin(), distinct.end(), part) - distinct.begin()];
    if (mask == UINT32_MAX) {
      mask = made++;
      uint32_t *bits = out.bits.data() + size_t{mask} * out.words;
      parts.ranges(part, static_cast<uint32_t>(tree.order.size()), [&](uint32_t begin, uint32_t end) {
        for (uint32_t rank = begin; rank < end; ++rank)
          bits[tree.order[rank] / 32] |= 1u << tree.order[rank] % 32;
      });
    }
    out.maskOf[s] = mask;
  }
  return out;
}

} // namespace

Masks automata::masksOf(const Automaton &automaton, const TokenTree &tree, const Limits &limits) {
  return Walk(automaton, tree, limits).masks();
}
