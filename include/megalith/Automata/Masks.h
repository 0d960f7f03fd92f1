//===- Masks.h - which tokens an automaton allows ---------------*- C++ -*-===//
#ifndef MEGALITH_AUTOMATA_MASKS_H
#define MEGALITH_AUTOMATA_MASKS_H

#include "megalith/Automata/Automaton.h"

namespace megalith::automata {

/// The bytes of all tokens of a vocabulary as a tree, made once. A node is a beginning of tokens, node 0 the empty one.
/// Nodes stand depth first, by ascending byte: the first child of a node is the next node, its other children begin
/// where the subtree of the one before ends.
struct TokenTree {
  /// `tokens[t]` has the bytes of token t as it stands in the middle of a text. Empty: it is never allowed (special
  /// tokens, padding).
  explicit TokenTree(std::span<const std::string> tokens);
  /// The same: token t is `bytes` from offsets[t] to offsets[t + 1]; one offset more than tokens.
  TokenTree(std::span<const uint64_t> offsets, std::string_view bytes);

  uint32_t vocabulary = 0;
  /// Tokens that are not empty, by their bytes; their places here are ranks.
  std::vector<uint32_t> order;
  /// Of a node: its last byte; where its subtree ends; the bytes of the longest way down; the first rank below it.
  std::vector<uint8_t> byte;
  std::vector<uint32_t> end, height;
  /// One more than nodes: the node's own tokens are ranks firstRank[n] to firstRank[n + 1] where it has children, and
  /// its subtree's go to firstRank[end[n]].
  std::vector<uint32_t> firstRank;

  uint32_t nodes() const { return static_cast<uint32_t>(byte.size()); }

private:
  void build(const std::vector<std::string_view> &tokens);
};

/// For each state the tokens that do not lead to Dead, as bits: token t is bit t % 32 of word t / 32. Equal masks are
/// one; they are numbered in the order of their first state. No mask has the end of a text: Automaton::accepting says
/// where it is allowed.
struct Masks {
  uint32_t vocabulary = 0;
  uint32_t words = 0;           ///< of a mask: vocabulary / 32, rounded up
  std::vector<uint32_t> maskOf; ///< of a state
  std::vector<uint32_t> bits;   ///< masks * words

  uint32_t count() const { return words == 0 ? 0 : static_cast<uint32_t>(bits.size() / words); }
  std::span<const uint32_t> mask(uint32_t number) const {
    return std::span(bits).subspan(number * size_t{words}, words);
  }
  bool allows(uint16_t state, uint32_t token) const {
    return bits[maskOf[state] * size_t{words} + token / 32] >> token % 32 & 1;
  }
};

/// Throws Refused where a limit (maskSteps, maskParts, maskBytes) is met.
Masks masksOf(const Automaton &automaton, const TokenTree &tree, const Limits &limits = {});

} // namespace megalith::automata

#endif
