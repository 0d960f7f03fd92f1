//===- TokenFormat.h - a format over the tokens of a vocabulary -*- C++ -*-===//
#ifndef MEGALITH_AUTOMATA_TOKENFORMAT_H
#define MEGALITH_AUTOMATA_TOKENFORMAT_H

#include "megalith/Automata/Format.h"
#include "megalith/Automata/LikelyTokens.h"
#include <list>
#include <memory>
#include <mutex>

namespace megalith::automata {

/// What a vocabulary spells: the bytes of each token in the middle of a text. Empty: it is never part of a format
/// (special tokens, padding).
struct TokenBytes {
  explicit TokenBytes(std::vector<std::string> tokens) : tokens(std::move(tokens)), tree(this->tokens) {}
  const std::vector<std::string> tokens;
  const TokenTree tree;
};

/// A format, and which tokens it allows in each state.
struct TokenFormat {
  Format format;
  Masks masks;
  std::vector<int32_t> likely; ///< of a state: likelyTokens
  std::shared_ptr<const TokenBytes> tokens;

  /// The state behind a token; Dead: no text of the format goes on so. Any number may be asked for.
  uint16_t step(uint16_t state, int32_t token) const {
    if (token < 0 || size_t(token) >= tokens->tokens.size() || tokens->tokens[token].empty())
      return Automaton::Dead;
    return format.automaton.walk(state, tokens->tokens[token]);
  }
  bool allows(uint16_t state, int32_t token) const {
    return state != Automaton::Dead && token >= 0 && uint32_t(token) < masks.vocabulary && masks.allows(state, token);
  }
  bool isComplete(uint16_t state) const { return state != Automaton::Dead && format.automaton.accepting[state]; }
  /// It is complete, and nothing can follow.
  bool isFinal(uint16_t state) const { return state != Automaton::Dead && format.automaton.final[state]; }
  /// RequestEnd::format of an answer that leaves it in this state.
  const char *endOf(uint16_t state) const { return isComplete(state) ? "complete" : "partial"; }
  /// Of memory.
  size_t bytes() const;
};

/// The formats of one vocabulary, by their text. Those that were not asked for longest go first when together they take
/// more than `mostBytes`; who holds one keeps it. For any number of threads.
class Formats {
public:
  explicit Formats(std::shared_ptr<const TokenBytes> tokens, size_t mostBytes = 256 << 20)
      : tokens(std::move(tokens)), mostBytes(mostBytes) {}
  /// Throws Refused.
  std::shared_ptr<const TokenFormat> find(const std::string &text);

private:
  struct Entry {
    std::string text;
    std::shared_ptr<const TokenFormat> format;
  };

  const std::shared_ptr<const TokenBytes> tokens;
  const size_t mostBytes;
  std::mutex mutex;
  std::list<Entry> entries; ///< the one that was asked for last is in front
  size_t held = 0;
};

} // namespace megalith::automata

#endif
