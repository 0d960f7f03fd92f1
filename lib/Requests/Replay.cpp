#include "megalith/Requests/Replay.h"
#include <algorithm>
#include <cmath>
#include <tuple>

using namespace megalith;

int32_t megalith::argmaxOf(std::span<const float> logits) {
  size_t best = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (std::isnan(logits[i]))
      return RowIsNan;
    if (logits[i] > logits[best])
      best = i;
  }
  return static_cast<int32_t>(best);
}

/// How far the logit of `token` lies below that of the argmax `best`, in 2-norms.
static double gapOf(std::span<const float> logits, int32_t best, int32_t token) {
  if (best < 0 || token < 0 || token >= static_cast<int64_t>(logits.size()))
    return INFINITY;
  if (logits[token] == logits[best]) // also of zeros and of infinities
    return 0;
  double square = 0;
  for (float value : logits)
    square += double(value) * value;
  return (double(logits[best]) - logits[token]) / std::sqrt(square);
}

/// Equal in all but the result.
static bool fedAlike(const Row &a, const Row &b) {
  auto words = [](const Row &r) {
    return std::tie(r.slot, r.token, r.position, r.kvSlot, r.visible, r.parent, r.flags);
  };
  return words(a) == words(b);
}

const TracePass *megalith::checkReplay(const Trace &given, int64_t tick, size_t number, const TracePass &own,
                                       double epsilon, const std::function<std::span<const float>(size_t)> &logits,
                                       std::vector<ReplayMismatch> &mismatches) {
  const TracePass *pass = nullptr;
  // Numbers of ticks may be left out.
  const auto at = std::lower_bound(given.ticks.begin(), given.ticks.end(), tick,
                                   [](const TraceTick &each, int64_t wanted) { return each.tick < wanted; });
  if (at != given.ticks.end() && at->tick == tick && number < at->passes.size())
    pass = &at->passes[number];
  if (!pass || pass->model != own.model ||
      !std::equal(own.rows.begin(), own.rows.end(), pass->rows.begin(), pass->rows.end(), fedAlike)) {
    mismatches.push_back({tick, -1, 0, 0, 0});
    return nullptr;
  }
  for (size_t i = 0; i < own.rows.size(); ++i) {
    if (!(own.rows[i].flags & RowWantsLogits))
      continue;
    const std::span<const float> line = logits(i);
    const int32_t expected = pass->rows[i].result, got = argmaxOf(line);
    if (expected == got)
      continue;
    const double gap = gapOf(line, got, expected);
    if (!(gap <= epsilon)) // a NaN, of infinite logits, is no allowance
      mismatches.push_back({tick, static_cast<int32_t>(i), expected, got, gap});
  }
  return pass;
}

std::vector<int32_t> megalith::resultsOf(const Trace &trace) {
  std::vector<int32_t> results;
  for (const TraceTick &tick : trace.ticks)
    for (const TracePass &pass : tick.passes)
      for (const Row &row : pass.rows)
        results.push_back(row.result);
  return results;
}
