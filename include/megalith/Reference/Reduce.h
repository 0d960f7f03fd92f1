//===- Reduce.h - what is made of one row's logits --------------*- C++ -*-===//
//
// The reducers of Contract/Reducers.def on a whole row, in the arithmetic of device/Sampling.h: what the reference
// executor gives, and by what a replay checks the values of others. docs/ir.md says what they are.
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_REFERENCE_REDUCE_H
#define MEGALITH_REFERENCE_REDUCE_H

#include "megalith/Automata/TokenFormat.h"
#include "megalith/Contract/Reducers.h"
#include "megalith/Request.h"
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace megalith {

/// What a request's settings change in a row, by the text that stands before the token that the row gives.
struct RowEdits {
  const Sampling *settings = nullptr; ///< null: nothing
  bool knowsText = true;              ///< else only what follows no text counts
  std::vector<int32_t> text = {};     ///< prompt and answer
  size_t prompt = 0;                  ///< tokens of it that are the prompt's
  std::vector<int32_t> early = {};    ///< tokens that may not come yet
  const automata::TokenFormat *format = nullptr;
  uint16_t state = automata::Automaton::Dead; ///< of the format, behind the text
  std::vector<int32_t> eos = {};              ///< end the text: allowed where the format is complete, and only there
  // By hand, for one row: tokens that may come, that may not, and numbers that are added in this order.
  std::optional<std::vector<int32_t>> only = {};
  std::vector<int32_t> without = {};
  std::vector<std::pair<int32_t, float>> added = {};
  bool byHand = false; ///< there are some
  bool some() const { return settings || byHand; }
};

/// A row after its edits: logits, and which tokens take no part in anything.
struct EditedRow {
  std::vector<float> logits;
  std::vector<bool> refused;
};
/// In this order, each step rounded to f32: what is added by hand, then bias is added; by `repetition_penalty` logits
/// of tokens in the text are divided where above 0, else multiplied; `frequency_penalty` times its number in the answer
/// is taken away, then `presence_penalty`. A step whose setting changes nothing is left out. Behind the end of a format
/// nothing comes.
EditedRow edit(const RowEdits &edits, std::span<const float> logits);

/// A reducer and what it is given for a row.
struct RowReduction {
  Reducer reducer = Reducer::ArgMax;
  bool probs = false; ///< of top_k: the probabilities of its tokens
  // Settings.
  float temperature = 1;
  int32_t topK = 0;
  float topP = 1, minP = 0;
  // Of a draw.
  uint32_t runSeed = 0, requestSeed = 0;
  int32_t position = 0; ///< of the token drawn
  int32_t noise = 0;
  int32_t token = 0; ///< of `prob`
  int32_t n = 1;     ///< results at most; fewer where S has fewer tokens
  /// Of a draw with `minus`: the logits whose probabilities are taken away; empty: none.
  std::span<const float> minus = {};
  RowEdits edits = {}, minusEdits = {}; ///< of the row, and of that one
};

/// Tokens, or the bits of f32 values. The logits have no NaN. Where edits leave no token, there is none; probabilities
/// and the entropy are 0, the logarithm of the sum is minus infinity.
std::vector<int32_t> reduceRow(const RowReduction &with, std::span<const float> logits);

/// Whether `values` can be what these logits give, when each may be wrong by `error`: `values` of an executor that adds
/// in another order. Empty when they can, else what is wrong.
std::string whyNotReduced(const RowReduction &with, std::span<const float> logits, const std::vector<int32_t> &values,
                          double error);

/// How far a logit of this row may be off, as `--replay-error` says it: `part` of the row's root mean square, and one
/// step of bf16 at its greatest.
double errorOfLogits(std::span<const float> logits, double part);

/// The tokens that settings leave, ascending.
std::vector<int32_t> tokensLeft(const RowReduction &with, std::span<const float> logits);

} // namespace megalith
#endif
