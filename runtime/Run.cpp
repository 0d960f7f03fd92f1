#include "runtime/Run.h"
#include <cstring>

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
  return a.metrics == b.metrics ? "" : "the metrics";
}
