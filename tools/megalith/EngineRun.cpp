#include "EngineRun.h"
#include "Executors.h"
#include "Replay.h"
#include "megalith/Plan/Plan.h"
#include "megalith/Text/Text.h"
#include <algorithm>

namespace megalith::tool {

void reportRuntime(Diagnostics &diags, const runtime::RuntimeError &error) {
  diags.report(diagByKebab(error.kind), {}, error.message);
}

std::optional<EngineSource> makeSource(const RunCommand &command, const driver::CompileOptions &options,
                                       const driver::Compilation &compiled, Diagnostics &diags) {
  auto plan = driver::makePlan(compiled.module, options, diags);
  if (!plan)
    return std::nullopt;
  driver::Source source = driver::emitSource(compiled.module, *plan, diags);
  EngineSource out{std::move(source.cuda), compiled.module.root.name + ".cu", std::move(source.manifest)};
  if (!command.cuFile.empty() && !driver::readEditedSource(command.cuFile, out.cuda, out.fileName, diags))
    return std::nullopt;
  return out;
}

std::vector<runtime::RunRequest> engineRequests(const RunInputs &inputs) {
  std::vector<runtime::RunRequest> requests;
  for (const Request &r : inputs.requests)
    requests.push_back({r.id, r.tokens, r.maxNewTokens, *r.eos, r.priority});
  return requests;
}

/// Bytes for the trace of the longest possible run: every request alone, one token
/// per tick. More than 2 GiB is never needed.
static size_t traceBytes(const runtime::Manifest &m, const RunInputs &inputs, size_t least) {
  double words = 0;
  for (const Request &r : inputs.requests) {
    double ticks = double(r.tokens.size()) + r.maxNewTokens + 8;
    double pages = (double(r.tokens.size()) + r.maxNewTokens + m.rowsBeyond) / m.pageTokens + 1;
    words += ticks * (16 + pages + 2.0 * m.gauges.size()) + ticks * (m.rowsBeyond + 1) * 9;
  }
  return static_cast<size_t>(std::clamp(words * 4, double(least), double(2ull << 30))) / 4 * 4;
}

runtime::RunOptions engineOptions(const RunCommand &command, const runtime::Manifest &manifest,
                                  const RunInputs &inputs, bool trace, size_t leastTraceBytes) {
  runtime::RunOptions options;
  options.maxTicks = command.maxTicks;
  options.shufflePages = command.shufflePages;
  options.trace = trace || command.repeat > 1;
  options.traceBytes = traceBytes(manifest, inputs, leastTraceBytes);
  options.kvHash = command.kvHash || command.repeat > 1;
  options.logits = !command.logitsFile.empty() || command.repeat > 1;
  options.watchdogSeconds = command.watchdogSeconds;
  options.oracleDrafts = inputs.drafts;
  for (const RunInputs::Corruption &c : inputs.corruptions)
    options.corruptions.push_back({c.tick, c.request, c.field, c.value});
  return options;
}

SourceLoc placeOf(llvm::StringRef place, Diagnostics &diags) {
  auto [file, line] = place.rsplit(':');
  SourceLoc loc;
  for (uint32_t i = 0; i < diags.sources().size(); ++i)
    if (text::utf8(diags.sources().name(i)) == file.str() && !line.getAsInteger(10, loc.line)) {
      llvm::StringRef text = diags.sources().line(i, loc.line);
      loc.file = i;
      loc.column = static_cast<uint32_t>(text.size() - text.ltrim().size()) + 1;
      loc.length = static_cast<uint32_t>(std::max<size_t>(1, text.trim().size()));
      break;
    }
  return loc;
}

void reportStop(const runtime::RunOutcome::Stop &stop, double seconds, Diagnostics &diags) {
  diags.report(Diag::KernelStopped, placeOf(stop.place, diags), stop.cta, stop.edge, stop.name, stop.tick, seconds);
}

RunReport reportOf(runtime::RunOutcome &&outcome, const std::string &device) {
  RunReport out;
  out.device = device;
  for (size_t i = 0; i < outcome.requests.size(); ++i) {
    TraceRequest &r = outcome.requests[i];
    RequestReport request;
    request.tokens = std::move(r.tokens);
    request.finish = std::move(r.finish);
    request.state = std::move(r.state);
    request.fault = std::move(r.fault);
    request.faultState = std::move(r.faultState);
    request.place = std::move(r.place);
    request.passes = outcome.counts[i].passes;
    request.rows = outcome.counts[i].rows;
    if (i < outcome.logits.size())
      request.logits = std::move(outcome.logits[i]);
    out.requests.push_back(std::move(request));
  }
  out.trace = std::move(outcome.trace);
  out.metrics = std::move(outcome.metrics);
  out.ticks = outcome.ticks;
  out.passes = outcome.passes;
  out.rows = outcome.rows;
  out.runMs = outcome.kernelMs;
  return out;
}

std::optional<RunReport>
repeatRuns(const RunCommand &command, runtime::RunOptions options, const Trace *replay, const std::string &device,
           Diagnostics &diags,
           const std::function<std::optional<runtime::RunOutcome>(const runtime::RunOptions &, unsigned)> &run) {
  if (replay) {
    options.replay = resultsOf(*replay);
    options.trace = true;
  }
  std::optional<runtime::RunOutcome> first;
  for (unsigned i = 0; i < command.repeat; ++i) {
    options.delaySeed = command.delaySeed ? command.delaySeed + i : 0;
    showProgress(command.repeat > 1 ? fmt::format("running, {} of {}", i + 1, command.repeat) : "running");
    auto outcome = run(options, i);
    clearProgress();
    if (!outcome)
      return std::nullopt;
    if (outcome->traceDropped)
      diags.report(Diag::TraceDropped, {}, outcome->traceDropped);
    if (outcome->stop) {
      reportStop(*outcome->stop, options.watchdogSeconds, diags);
      return std::nullopt;
    }
    if (replay)
      checkKernelReplay(*outcome, *replay, command.replayEpsilon, diags);
    if (!first)
      first = std::move(outcome);
    else if (!checkRepeat(*first, *outcome, i + 1, diags))
      break;
  }
  RunReport report = reportOf(std::move(*first), device);
  report.launches = command.repeat;
  return report;
}

} // namespace megalith::tool
