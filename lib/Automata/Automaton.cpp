#include "megalith/Automata/Automaton.h"
#include "ListTable.h"
#include "Wide.h"
#include <algorithm>
#include <bitset>
#include <map>
#include <tuple>

using namespace megalith;
using namespace megalith::automata;

// --- bytes of code points

namespace {

/// Bytes from `first` to `last` lead to the node `target`.
struct ByteEdge {
  uint8_t first, last;
  uint32_t target;
};

/// One character of a set as a graph of bytes. Node 0 is the start; the others are shared by all characters that end
/// alike, so that a set beyond ASCII has eight nodes, not dozens.
struct Bytes {
  static constexpr uint32_t End = UINT32_MAX;
  std::vector<std::vector<ByteEdge>> nodes;
};

class BytesBuilder {
public:
  explicit BytesBuilder(const std::vector<CodeRange> &set) {
    out.nodes.emplace_back();
    for (const CodeRange &range : set)
      bySize(range);
  }
  Bytes out;

private:
  static uint32_t sizeOf(uint32_t code) { return code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4; }
  static std::array<uint8_t, 4> encode(uint32_t code, uint32_t size) {
    static constexpr uint8_t lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
    std::array<uint8_t, 4> bytes{};
    for (uint32_t i = size; i-- > 1; code >>= 6)
      bytes[i] = 0x80 | (code & 0x3f);
    bytes[0] = static_cast<uint8_t>(lead[size] | code);
    return bytes;
  }

  void bySize(CodeRange range) {
    for (const uint32_t last : {0x7fu, 0x7ffu, 0xffffu, LastCodePoint})
      if (range.first <= last) {
        add({range.first, std::min(range.last, last)}, sizeOf(range.first));
        if (range.last <= last)
          return;
        range.first = last + 1;
      }
  }
  /// Codes of `size` bytes, split until their bytes are ranges that do not depend on each other.
  void add(CodeRange range, uint32_t size) {
    for (uint32_t i = 1; i < size; ++i) {
      const uint32_t low = (1u << 6 * i) - 1; // of the last i bytes
      if ((range.first & ~low) == (range.last & ~low))
        continue;
      if ((range.first & low) != 0) {
        add({range.first, range.first | low}, size);
        return add({(range.first | low) + 1, range.last}, size);
      }
      if ((range.last & low) != low) {
        add({range.first, (range.last & ~low) - 1}, size);
        return add({range.last & ~low, range.last}, size);
      }
    }
    const std::array<uint8_t, 4> from = encode(range.first, size), to = encode(range.last, size);
    uint32_t node = Bytes::End;
    for (uint32_t i = size; i-- > 1;) {
      auto [found, isNew] = shared.try_emplace({from[i], to[i], node}, static_cast<uint32_t>(out.nodes.size()));
      if (isNew)
        out.nodes.push_back({{from[i], to[i], node}});
      node = found->second;
    }
    std::vector<ByteEdge> &edges = out.nodes[0];
    if (!edges.empty() && edges.back().target == node && edges.back().last + 1 == from[0])
      edges.back().last = to[0];
    else
      edges.push_back({from[0], to[0], node});
  }

  std::map<std::tuple<uint8_t, uint8_t, uint32_t>, uint32_t> shared;
};

// --- an automaton with choices

/// States of an expression, made from its end to its beginning.
struct Choices {
  static constexpr uint32_t Split = UINT32_MAX, Accept = UINT32_MAX - 1;
  struct State {
    uint32_t node;  ///< Split, Accept, or a node of bytes
    uint32_t first; ///< Split: its entries of `targets`; else what End is
    uint32_t count; ///< Split: how many; else the state of node 0 of the same bytes
  };
  std::vector<State> states;
  std::vector<uint32_t> targets;
  uint32_t start = 0;

  /// All nodes of bytes; targets are numbers in the same character.
  std::vector<std::vector<ByteEdge>> nodes;
};

class ChoicesBuilder {
public:
  ChoicesBuilder(const Expression &expression, const Limits &limits) : expression(expression), limits(limits) {}
  Choices build();

private:
  /// A part on its way, with what comes behind it.
  struct Frame {
    Expression::Id part;
    uint32_t behind;  ///< state
    uint32_t stage;   ///< how many of its pieces are made
    uint32_t current; ///< state of what is made so far
    uint32_t loop;    ///< state of a repeat without an end
    uint32_t first;   ///< state of the part of a list
  };
  void boundNodes() const;
  uint32_t add(Choices::State state) {
    bound(out.states.size() + 1, limits.nfaStates, "nfaStates", "the automaton with choices needs states:");
    out.states.push_back(state);
    return static_cast<uint32_t>(out.states.size() - 1);
  }
  uint32_t split(std::initializer_list<uint32_t> targets) {
    out.targets.insert(out.targets.end(), targets);
    const uint32_t count = static_cast<uint32_t>(targets.size());
    return add({Choices::Split, static_cast<uint32_t>(out.targets.size()) - count, count});
  }
  uint32_t character(uint32_t set, uint32_t behind);
  bool advance();

  const Expression &expression;
  const Limits &limits;
  Choices out;
  std::vector<std::pair<uint32_t, uint32_t>> nodesOfSet; ///< first and count
  std::vector<Frame> frames;
  std::vector<uint32_t> entries; ///< of choices on their way
  uint32_t result = 0;           ///< state of the part made last
};

/// The parts once counted repeats are written out.
void ChoicesBuilder::boundNodes() const {
  std::vector<uint64_t> sizes;
  const auto capped = [&](uint64_t size) { return std::min(size, limits.nodes + 1); };
  for (const Expression::Node &node : expression.nodes()) {
    uint64_t size = 1;
    if (node.kind == Expression::Kind::Repeat) {
      const uint64_t times = node.most == Expression::NoEnd ? std::max(node.least, 1u) : node.most;
      size = times > limits.nodes ? limits.nodes + 1 : 1 + times * capped(sizes[node.first] + 1);
    } else if (node.kind != Expression::Kind::Empty && node.kind != Expression::Kind::Set) {
      for (const Expression::Id child : expression.childrenOf(node))
        size = capped(size + sizes[child]);
    }
    sizes.push_back(capped(size));
  }
  if (!sizes.empty())
    bound(sizes[expression.root], limits.nodes, "nodes", "with its repeats written out the expression has parts:");
}

/// A state for each node of the set's bytes. Node n of the set is n states behind the first one.
uint32_t ChoicesBuilder::character(uint32_t set, uint32_t behind) {
  if (nodesOfSet.empty())
    nodesOfSet.resize(expression.setCount(), {0, 0});
  auto &[first, count] = nodesOfSet[set];
  if (count == 0) {
    Bytes bytes = std::move(BytesBuilder(expression.setWith(set)).out);
    first = static_cast<uint32_t>(out.nodes.size());
    count = static_cast<uint32_t>(bytes.nodes.size());
    bound(out.nodes.size() + bytes.nodes[0].size() + count, limits.nfaStates, "nfaStates",
          "the automaton with choices needs states:");
    std::move(bytes.nodes.begin(), bytes.nodes.end(), std::back_inserter(out.nodes));
  }
  const uint32_t begin = static_cast<uint32_t>(out.states.size());
  for (uint32_t i = 0; i < count; ++i)
    add({first + i, behind, begin});
  return begin;
}

/// Makes the next piece of the innermost part, or enters one; false: the part is made.
bool ChoicesBuilder::advance() {
  Frame &frame = frames.back();
  const Expression::Node &node = expression.nodes()[frame.part];
  const uint32_t stage = frame.stage++;
  if (stage > 0 && node.kind != Expression::Kind::Choice)
    frame.current = result;
  const auto enter = [&](Expression::Id part, uint32_t behind) {
    frames.push_back({part, behind, 0, behind, 0, 0}); // frame is gone
    return true;
  };
  switch (node.kind) {
  case Expression::Kind::Empty:
    result = frame.behind;
    return false;
  case Expression::Kind::Set:
    result = character(node.first, frame.behind);
    return false;
  case Expression::Kind::Sequence:
    if (stage < node.count)
      return enter(expression.childrenOf(node)[node.count - 1 - stage], frame.current);
    result = frame.current;
    return false;
  case Expression::Kind::Choice:
    if (stage > 0)
      entries.push_back(result);
    if (stage < node.count)
      return enter(expression.childrenOf(node)[stage], frame.behind);
    out.targets.insert(out.targets.end(), entries.end() - node.count, entries.end());
    entries.resize(entries.size() - node.count);
    result = add({Choices::Split, static_cast<uint32_t>(out.targets.size() - node.count), node.count});
    return false;
  case Expression::Kind::List: {
    const std::span<const Expression::Id> children = expression.childrenOf(node);
    if (stage == 0) {
      frame.loop = split({0, frame.behind});
      return enter(children[0], frame.loop);
    }
    if (stage == 1) {
      frame.first = frame.current;
      return enter(children[1], frame.first);
    }
    out.targets[out.states[frame.loop].first] = frame.current;
    result = frame.first;
    return false;
  }
  case Expression::Kind::Repeat: {
    if (node.most == Expression::NoEnd) {
      // x{m,}: m - 1 times x, then x that may come again.
      if (stage == 0) {
        frame.loop = split({0, frame.behind});
        return enter(node.first, frame.loop);
      }
      if (stage == 1) {
        out.targets[out.states[frame.loop].first] = frame.current;
        if (node.least == 0)
          frame.current = frame.loop;
      }
      if (stage < node.least)
        return enter(node.first, frame.current);
      result = frame.current;
      return false;
    }
    // x{m,n}: each that may be left out leaves all behind it out, too, so that a place in the text is one state.
    const uint32_t optional = node.most - node.least;
    if (stage > 0 && stage <= optional)
      frame.current = split({frame.current, frame.behind});
    if (stage < node.most)
      return enter(node.first, frame.current);
    result = frame.current;
    return false;
  }
  }
  return false;
}

Choices ChoicesBuilder::build() {
  boundNodes();
  result = add({Choices::Accept, 0, 0});
  if (expression.nodes().empty())
    return std::move(out);
  frames.push_back({expression.root, result, 0, result, 0, 0});
  while (!frames.empty())
    if (!advance())
      frames.pop_back();
  out.start = result;
  return std::move(out);
}

// --- classes of bytes

/// Joins bytes that no set tells apart.
class Classes {
public:
  void tellApart(const std::bitset<256> &bytes) {
    std::array<int, 512> number;
    number.fill(-1);
    uint32_t count = 0;
    for (int byte = 0; byte < 256; ++byte) {
      int &made = number[classOf[byte] * 2 + bytes[byte]];
      if (made < 0)
        made = static_cast<int>(count++);
      classOf[byte] = static_cast<uint8_t>(made);
    }
    classes = count;
  }
  std::array<uint8_t, 256> classOf{};
  uint32_t classes = 1;
};

// --- subsets

class Subsets {
public:
  Subsets(const Choices &choices, const Limits &limits) : choices(choices), limits(limits) {}
  Wide build();

private:
  struct Edge {
    uint8_t label;
    uint32_t target; ///< a node of the same character, or Bytes::End
  };
  void readClasses();
  uint32_t stateOf(std::span<const uint32_t> targets);
  void count(uint64_t more) {
    steps += more;
    bound(steps, limits.steps, "steps", "making the automaton deterministic takes steps:");
  }

  const Choices &choices;
  const Limits &limits;
  Wide out;
  std::vector<std::vector<Edge>> edges; ///< of a node
  ListTable subsets;                    ///< states of `choices` that read a byte or accept, ascending
  ListTable lists;                      ///< targets of edges whose subset is known
  std::vector<uint32_t> stateOfList;
  std::vector<uint32_t> stateOfOne; ///< the same of a single target; NotKnown
  static constexpr uint32_t NotKnown = UINT32_MAX;
  std::vector<uint32_t> seen; ///< by state of `choices`: the round of the last look
  uint32_t round = 0;
  std::vector<uint32_t> open, subset;
  uint64_t steps = 0;
};

void Subsets::readClasses() {
  Classes classes;
  std::map<std::array<uint64_t, 4>, bool> told;
  for (const std::vector<ByteEdge> &node : choices.nodes) {
    // By target: edges of one target in a node are one set.
    std::map<uint32_t, std::bitset<256>> sets;
    for (const ByteEdge &edge : node)
      for (int byte = edge.first; byte <= edge.last; ++byte)
        sets[edge.target].set(byte);
    for (const auto &[target, bytes] : sets) {
      std::array<uint64_t, 4> key{};
      for (int byte = 0; byte < 256; ++byte)
        key[byte / 64] |= uint64_t{bytes[byte]} << byte % 64;
      if (told.try_emplace(key, true).second)
        classes.tellApart(bytes);
    }
  }
  out.classOf = classes.classOf;
  out.classes = classes.classes;
  for (const std::vector<ByteEdge> &node : choices.nodes) {
    std::vector<Edge> &own = edges.emplace_back();
    for (const ByteEdge &edge : node)
      for (int byte = edge.first; byte <= edge.last; ++byte)
        if (own.empty() || own.back().label != out.classOf[byte] || own.back().target != edge.target)
          own.push_back({out.classOf[byte], edge.target});
    count(own.size());
    const auto key = [](const Edge &edge) { return std::pair(edge.target, edge.label); };
    std::sort(own.begin(), own.end(), [&](const Edge &a, const Edge &b) { return key(a) < key(b); });
    own.erase(std::unique(own.begin(), own.end(), [&](const Edge &a, const Edge &b) { return key(a) == key(b); }),
              own.end());
  }
}

/// The state of all that is reached from `targets` without a byte.
uint32_t Subsets::stateOf(std::span<const uint32_t> targets) {
  ++round;
  subset.clear();
  open.assign(targets.begin(), targets.end());
  while (!open.empty()) {
    const uint32_t at = open.back();
    open.pop_back();
    if (seen[at] == round)
      continue;
    seen[at] = round;
    const Choices::State &state = choices.states[at];
    count(1);
    if (state.node != Choices::Split) {
      subset.push_back(at);
      continue;
    }
    count(state.count);
    for (uint32_t i = 0; i < state.count; ++i)
      open.push_back(choices.targets[state.first + i]);
  }
  std::sort(subset.begin(), subset.end());
  const uint32_t number = subsets.numberOf(subset);
  if (number == out.accepting.size()) {
    // The state that accepts is the first that is made.
    out.accepting.push_back(!subset.empty() && subset[0] == 0);
    bound(out.accepting.size(), limits.wideStates, "wideStates", "the deterministic automaton has states:");
  }
  return number;
}

Wide Subsets::build() {
  readClasses();
  seen.assign(choices.states.size(), 0);
  stateOfOne.assign(choices.states.size(), NotKnown);
  stateOf(std::span(&choices.start, 1));
  std::vector<std::vector<uint32_t>> buckets(out.classes); ///< targets, by class
  std::vector<uint32_t> members;
  for (uint32_t state = 0; state < out.accepting.size(); ++state) {
    const std::span<const uint32_t> found = subsets[state];
    members.assign(found.begin(), found.end()); // the table moves
    for (const uint32_t at : members) {
      const Choices::State &from = choices.states[at];
      if (from.node == Choices::Accept)
        continue;
      count(edges[from.node].size());
      for (const Edge &edge : edges[from.node])
        buckets[edge.label].push_back(edge.target == Bytes::End ? from.first : from.count + edge.target);
    }
    count(out.classes);
    for (uint32_t label = 0; label < out.classes; ++label) {
      std::vector<uint32_t> &bucket = buckets[label];
      if (bucket.empty())
        continue;
      if (bucket.size() > 1) {
        std::sort(bucket.begin(), bucket.end());
        bucket.erase(std::unique(bucket.begin(), bucket.end()), bucket.end());
      }
      uint32_t target;
      if (bucket.size() == 1) {
        uint32_t &known = stateOfOne[bucket[0]];
        if (known == NotKnown)
          known = stateOf(bucket);
        target = known;
      } else {
        const uint32_t list = lists.numberOf(bucket);
        if (list == stateOfList.size())
          stateOfList.push_back(stateOf(bucket));
        target = stateOfList[list];
      }
      bucket.clear();
      out.label.push_back(static_cast<uint8_t>(label));
      out.head.push_back(target);
    }
    bound(out.head.size(), limits.wideEdges, "wideEdges", "the deterministic automaton has edges:");
    out.firstEdge.push_back(static_cast<uint32_t>(out.head.size()));
  }
  return std::move(out);
}

} // namespace

Automaton automata::compile(const Expression &expression, const Limits &limits) {
  const Choices choices = ChoicesBuilder(expression, limits).build();
  return minimised(Subsets(choices, limits).build(), limits);
}

Automaton automata::compile(std::string_view pattern, const Limits &limits) {
  return compile(readExpression(pattern, limits), limits);
}

Automaton automata::intersect(const Automaton &a, const Automaton &b, const Limits &limits) {
  Wide out;
  std::vector<std::pair<uint8_t, uint8_t>> classes; ///< of a and b
  for (int byte = 0; byte < 256; ++byte) {
    const std::pair both(a.classOf[byte], b.classOf[byte]);
    auto found = std::find(classes.begin(), classes.end(), both);
    out.classOf[byte] = static_cast<uint8_t>(found - classes.begin());
    if (found == classes.end())
      classes.push_back(both);
  }
  out.classes = static_cast<uint32_t>(classes.size());
  ListTable pairs;
  const auto stateOf = [&](uint32_t stateA, uint32_t stateB) {
    const std::array<uint32_t, 2> both{stateA, stateB};
    const uint32_t number = pairs.numberOf(both);
    if (number == out.accepting.size()) {
      out.accepting.push_back(a.accepting[stateA] && b.accepting[stateB]);
      bound(out.accepting.size(), limits.wideStates, "wideStates", "the product of two automata has states:");
    }
    return number;
  };
  stateOf(a.start, b.start);
  uint64_t steps = 0;
  for (uint32_t state = 0; state < out.accepting.size(); ++state) {
    const uint32_t stateA = pairs[state][0], stateB = pairs[state][1];
    bound(steps += classes.size(), limits.steps, "steps", "the product of two automata takes steps:");
    for (uint32_t label = 0; label < classes.size(); ++label) {
      const uint16_t nextA = a.next[size_t{stateA} * a.classes + classes[label].first];
      const uint16_t nextB = b.next[size_t{stateB} * b.classes + classes[label].second];
      if (nextA == Automaton::Dead || nextB == Automaton::Dead)
        continue;
      out.label.push_back(static_cast<uint8_t>(label));
      out.head.push_back(stateOf(nextA, nextB));
    }
    bound(out.head.size(), limits.wideEdges, "wideEdges", "the product of two automata has edges:");
    out.firstEdge.push_back(static_cast<uint32_t>(out.head.size()));
  }
  return minimised(std::move(out), limits);
}

// --- what an automaton says

uint16_t Automaton::walk(uint16_t state, std::string_view bytes) const {
  for (const char c : bytes)
    state = step(state, static_cast<uint8_t>(c));
  return state;
}

bool Automaton::accepts(std::string_view bytes) const {
  const uint16_t state = walk(start, bytes);
  return state != Dead && accepting[state];
}

std::optional<uint8_t> Automaton::forcedByte(uint16_t state) const {
  std::optional<uint8_t> found;
  if (state == Dead || accepting[state])
    return found;
  for (int byte = 0; byte < 256; ++byte)
    if (step(state, static_cast<uint8_t>(byte)) != Dead) {
      if (found)
        return std::nullopt;
      found = static_cast<uint8_t>(byte);
    }
  return found;
}

std::string Automaton::forcedText(uint16_t state, size_t most) const {
  std::string out;
  while (out.size() < most) {
    const std::optional<uint8_t> byte = forcedByte(state);
    if (!byte)
      break;
    out += static_cast<char>(*byte);
    state = step(state, *byte);
  }
  return out;
}

uint64_t Automaton::hash() const {
  uint64_t out = mixed(classes, start);
  const auto add = [&](const auto &values) {
    out = mixed(out, values.size());
    for (const auto value : values)
      out = mixed(out, value);
  };
  add(classOf);
  add(next);
  add(accepting);
  return out;
}
