//===- Limits.h - how much work an expression may cost ----------*- C++ -*-===//
#ifndef MEGALITH_AUTOMATA_LIMITS_H
#define MEGALITH_AUTOMATA_LIMITS_H

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace megalith::automata {

/// Bounds of work and memory. They count what is done, never time: the same input meets the same
/// bound on every machine. The defaults end the worst case in about a second and 300 MB.
struct Limits {
  /// Parts of an expression (characters, classes and their ranges, groups), counted repeats written out; also the
  /// bytes of a pattern.
  uint64_t nodes = 1'000'000;
  /// Of the automaton that still has a choice: about one a part of an expression, up to eight where it is a class
  /// beyond ASCII.
  uint64_t nfaStates = 2'000'000;
  /// What is looked at to make a deterministic automaton or the product of two.
  uint64_t steps = 20'000'000;
  /// States and edges (one for each class of bytes) before equal states become one.
  uint64_t wideStates = 200'000;
  uint64_t wideEdges = 4'000'000;
  /// Of the result; more than 65,535 do not fit its 16 bits.
  uint64_t states = 65'535;
  /// Pairs of a node of the tree of tokens and a state, of `masksOf`.
  uint64_t maskSteps = 400'000'000;
  /// Parts of masks that are kept until all masks are known: 12 bytes and some each.
  uint64_t maskParts = 8'000'000;
  /// Of all distinct masks.
  uint64_t maskBytes = 64 << 20;
};

/// An expression, schema or automaton that is not taken. Thrown by everything here. The message says what, where
/// and what to do; it is safe on a terminal.
struct Refused {
  std::string message;
  /// Of the pattern, from 0. The message has it as a column, from 1.
  std::optional<size_t> byte;
};

} // namespace megalith::automata

#endif
