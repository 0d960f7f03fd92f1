#include "megalith/Automata/LikelyTokens.h"

using namespace megalith;
using namespace megalith::automata;

/// Whether a blank may stand in a state, and what comes behind it is what may come in its place. Who writes JSON
/// mostly writes it.
static bool mayTakeBlank(const Automaton &automaton, uint16_t state) {
  const uint16_t behind = automaton.step(state, ' ');
  if (behind == Automaton::Dead || automaton.accepting[state] || automaton.accepting[behind])
    return false;
  for (uint32_t c = 0; c < automaton.classes; ++c) {
    const uint16_t with = automaton.next[behind * size_t{automaton.classes} + c];
    const uint16_t without = automaton.next[state * size_t{automaton.classes} + c];
    if (with != (c == automaton.classOf[' '] ? Automaton::Dead : without))
      return false;
  }
  return true;
}

std::vector<int32_t> automata::likelyTokens(const Automaton &automaton, const TokenTree &tree) {
  constexpr int16_t none = -1;
  std::vector<int16_t> byteOf(automaton.states(), none);
  for (uint32_t s = 0; s < automaton.states(); ++s) {
    const auto state = static_cast<uint16_t>(s);
    if (const auto byte = automaton.forcedByte(state))
      byteOf[s] = *byte;
    else if (mayTakeBlank(automaton, state))
      byteOf[s] = ' ';
  }
  std::vector<int32_t> likely(automaton.states(), -1);
  for (uint32_t s = 0; s < automaton.states(); ++s) {
    auto state = static_cast<uint16_t>(s);
    for (uint32_t node = 0; byteOf[state] != none;) {
      const auto byte = static_cast<uint8_t>(byteOf[state]);
      uint32_t child = node + 1;
      while (child < tree.end[node] && tree.byte[child] != byte)
        child = tree.end[child];
      if (child >= tree.end[node])
        break;
      node = child;
      state = automaton.step(state, byte);
      // Of several with the same bytes the last one: those of single bytes, which tokenizers avoid, stand in front.
      if (tree.firstRank[node + 1] > tree.firstRank[node])
        likely[s] = static_cast<int32_t>(tree.order[tree.firstRank[node + 1] - 1]);
    }
  }
  return likely;
}
