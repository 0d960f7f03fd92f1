#include "Replay.h"
#include <cmath>
#include <fmt/format.h>

namespace megalith::api {

static std::string describe(const ReplayMismatch &m, const char *executor) {
  if (m.row < 0)
    return fmt::format("in tick {} the row tables differ", m.tick);
  if (!m.reduced.empty())
    return fmt::format("in tick {} row {}: {}", m.tick, m.row, m.reduced);
  auto result = [](int32_t token) { return token == -2 ? std::string("NaN") : std::to_string(token); };
  std::string text =
      fmt::format("in tick {} row {} has token {}, {} {}", m.tick, m.row, result(m.expected), executor, result(m.got));
  return std::isfinite(m.gap) ? fmt::format("{} (gap {:.3g} of the norm)", text, m.gap) : text;
}

void reportReplay(const std::vector<ReplayMismatch> &mismatches, const std::string &difference, const char *executor,
                  Diagnostics &diags) {
  if (mismatches.empty()) {
    if (!difference.empty())
      diags.report(Diag::ReplayDiffers, {}, difference);
    return;
  }
  diags.report(Diag::ReplayDiffers, {}, describe(mismatches.front(), executor));
  if (!difference.empty())
    diags.note(difference);
  if (mismatches.size() > 1)
    diags.note(fmt::format("{} more rows differ", mismatches.size() - 1));
}

void checkKernelReplay(const runtime::RunOutcome &run, const Trace &given, double epsilon, Diagnostics &diags) {
  std::vector<ReplayMismatch> mismatches;
  size_t before = 0; // rows of earlier passes
  auto logits = [&](size_t row) { return std::span<const float>(run.rowLogits[before + row]); };
  // After other rows, results and logits belong to no row of the trace.
  bool alike = true;
  for (size_t t = 0; t < run.trace.ticks.size(); ++t) {
    const std::vector<TracePass> &passes = run.trace.ticks[t].passes;
    for (size_t p = 0; alike && p < passes.size(); ++p) {
      alike = checkReplay(given, run.trace.ticks[t].tick, p, passes[p], epsilon, logits, mismatches);
      before += passes[p].rows.size();
    }
  }
  reportReplay(mismatches, compareTraces(run.trace, given), "the kernel", diags);
}

} // namespace megalith::api
