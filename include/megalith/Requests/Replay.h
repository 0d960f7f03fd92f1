//===- Replay.h - checking a run that takes a trace's results ---*- C++ -*-===//
//
// An executor that replays a trace computes its own logits and goes on with the
// results of the trace (docs/trace.md). The check is the same for every executor.
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_REQUESTS_REPLAY_H
#define MEGALITH_REQUESTS_REPLAY_H

#include "megalith/Requests/Trace.h"
#include <functional>
#include <span>

namespace megalith {

struct ReplayMismatch {
  int64_t tick = 0;
  int32_t row = 0;          ///< of the pass; -1: the row tables differ
  int32_t expected = 0;     ///< the trace's result
  int32_t got = 0;          ///< own argmax, -2 for a NaN
  double gap = 0;           ///< (max - logit[expected]) / 2-norm; infinite where a side has none
  std::string reduced = {}; ///< another reducer's value is wrong: which, and how
};

/// The result of a row with these logits: the lowest index of the maximum, -2 with a NaN.
int32_t argmaxOf(std::span<const float> logits);

/// The pass of `given` that lies where `own` does: pass `number` of tick `tick`. Null, and
/// a mismatch of row -1, when there is none or when its model, or any word of its rows but
/// the result, is another. Else each result of a row that wants logits is checked: it has to
/// be the argmax, or max - logit <= epsilon * the 2-norm. `logits` is called for these rows
/// in ascending order and gives the logits of the row `own.rows[row]`.
const TracePass *checkReplay(const Trace &given, int64_t tick, size_t number, const TracePass &own, double epsilon,
                             const std::function<std::span<const float>(size_t row)> &logits,
                             std::vector<ReplayMismatch> &mismatches);

/// The results of all rows in the order in which they were fed.
std::vector<int32_t> resultsOf(const Trace &trace);

} // namespace megalith

#endif
