//===- Automaton.h - deterministic automata over bytes ----------*- C++ -*-===//
#ifndef MEGALITH_AUTOMATA_AUTOMATON_H
#define MEGALITH_AUTOMATA_AUTOMATON_H

#include "megalith/Automata/Expression.h"
#include <array>
#include <optional>

namespace megalith::automata {

/// The smallest automaton of a language of bytes: of a language of texts these are UTF-8. From every state an accepting
/// one can be reached. States are numbered breadth first from the start, by ascending byte, and classes of bytes by
/// their first byte, so equal languages have equal contents.
struct Automaton {
  /// In place of a state: no text of the language begins so.
  static constexpr uint16_t Dead = 0xffff;

  std::array<uint8_t, 256> classOf{}; ///< of a byte: bytes of one class lead on alike everywhere
  uint32_t classes = 0;               ///< 1 to 256
  uint16_t start = 0;
  std::vector<uint16_t> next;     ///< [state * classes + class]: a state, or Dead
  std::vector<uint8_t> accepting; ///< of a state, 0 or 1
  std::vector<uint8_t> final;     ///< of a state: accepting, and no byte leads on

  uint32_t states() const { return static_cast<uint32_t>(accepting.size()); }
  /// `state` may be Dead.
  uint16_t step(uint16_t state, uint8_t byte) const {
    return state == Dead ? Dead : next[state * size_t{classes} + classOf[byte]];
  }
  uint16_t walk(uint16_t state, std::string_view bytes) const;
  bool accepts(std::string_view bytes) const;

  /// The one byte that leads on from a state that is not accepting; nullopt: there is a choice, or an end.
  std::optional<uint8_t> forcedByte(uint16_t state) const;
  /// The bytes behind `state`, up to `most`, about which there is no choice. They need not end with a character.
  std::string forcedText(uint16_t state, size_t most) const;

  /// Of the contents, the same on every machine. Equal hashes still have to be compared.
  uint64_t hash() const;
  bool operator==(const Automaton &) const = default;
};

/// All throw Refused: a bound is met, or no text matches.
Automaton compile(const Expression &expression, const Limits &limits = {});
Automaton compile(std::string_view pattern, const Limits &limits = {});
/// The texts of both.
Automaton intersect(const Automaton &a, const Automaton &b, const Limits &limits = {});

} // namespace megalith::automata

#endif
