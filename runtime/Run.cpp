#include "runtime/Run.h"
#include <algorithm>
#include <cstring>

using namespace megalith::runtime;

void RunOutcome::Times::append(const Moment &moment) {
  if (!appends.empty() && appends.back().tick == moment.tick)
    appends.back().tokens += moment.tokens;
  else
    appends.push_back(moment);
}

/// Nanoseconds are never the same.
static bool sameTicks(const RunOutcome::Times &a, const RunOutcome::Times &b) {
  const auto same = [](const RunOutcome::Moment &x, const RunOutcome::Moment &y) {
    return x.tick == y.tick && x.tokens == y.tokens;
  };
  return a.admitted.has_value() == b.admitted.has_value() && (!a.admitted || same(*a.admitted, *b.admitted)) &&
         std::equal(a.appends.begin(), a.appends.end(), b.appends.begin(), b.appends.end(), same);
}

std::string megalith::runtime::differenceOfTimes(const RunOutcome &a, const RunOutcome &b) {
  for (size_t i = 0; i < a.times.size() && i < b.times.size(); ++i)
    if (!sameTicks(a.times[i], b.times[i]))
      return "the ticks of admission and appends of request `" + a.requests[i].id.text + "`";
  return "";
}

std::string megalith::runtime::differenceOf(const RunOutcome &a, const RunOutcome &b) {
  for (size_t i = 0; i < a.requests.size() && i < b.requests.size(); ++i) {
    if (!(a.requests[i] == b.requests[i]))
      return "the tokens or the end of request `" + a.requests[i].id.text + "`";
    // Bits, not values: a NaN differs from itself.
    if (i < a.logits.size() && i < b.logits.size() &&
        (a.logits[i].size() != b.logits[i].size() ||
         std::memcmp(a.logits[i].data(), b.logits[i].data(), a.logits[i].size() * sizeof(float)) != 0))
      return "the logits of request `" + a.requests[i].id.text + "`";
  }
  if (std::string difference = compareTraces(a.trace, b.trace); !difference.empty())
    return "the trace, " + difference;
  for (size_t t = 0; t < a.trace.ticks.size(); ++t)
    for (size_t p = 0; p < a.trace.ticks[t].passes.size(); ++p)
      if (a.trace.ticks[t].passes[p].kvHash != b.trace.ticks[t].passes[p].kvHash)
        return "K and V written in tick " + std::to_string(a.trace.ticks[t].tick);
  if (std::string difference = differenceOfTimes(a, b); !difference.empty())
    return difference;
  return a.metrics == b.metrics ? "" : "the metrics";
}
