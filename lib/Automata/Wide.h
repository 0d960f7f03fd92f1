//===- Wide.h - a deterministic automaton before it is minimal --*- C++ -*-===//
#ifndef MEGALITH_LIB_AUTOMATA_WIDE_H
#define MEGALITH_LIB_AUTOMATA_WIDE_H

#include "megalith/Automata/Automaton.h"

namespace megalith::automata {

/// Every state can be reached from state 0, which is the start.
struct Wide {
  std::array<uint8_t, 256> classOf{}; ///< by ascending first byte
  uint32_t classes = 0;
  std::vector<uint8_t> accepting;
  /// Of a state: edges firstEdge[state] to firstEdge[state + 1], by ascending class.
  std::vector<uint32_t> firstEdge{0};
  std::vector<uint8_t> label;
  std::vector<uint32_t> head;
};

/// Throws Refused, `what` says what went over: "the automaton needs", ...
void bound(uint64_t reached, uint64_t most, const char *name, const char *what);

/// The smallest automaton of the same language.
Automaton minimised(Wide wide, const Limits &limits);

} // namespace megalith::automata

#endif
