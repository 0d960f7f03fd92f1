//===- LikelyTokens.h - what comes where there is no choice -----*- C++ -*-===//
#ifndef MEGALITH_AUTOMATA_LIKELYTOKENS_H
#define MEGALITH_AUTOMATA_LIKELYTOKENS_H

#include "megalith/Automata/Masks.h"

namespace megalith::automata {

/// Of each state the token that a model most likely says there; -1: it has a choice, or the text may end. The bytes of
/// the token are those about which there is no choice, and a blank that may stand there or not. Of the tokens that
/// begin these bytes it is the longest one, as tokenizers mostly spell. It is a guess: the model may spell otherwise.
std::vector<int32_t> likelyTokens(const Automaton &automaton, const TokenTree &tree);

} // namespace megalith::automata

#endif
