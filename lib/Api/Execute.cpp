//===- Execute.cpp - one run on a kernel's device -------------------------===//
#include "FindingText.h"
#include "Replay.h"
#include "Schedule.h"
#include "State.h"
#include "megalith/Text/Text.h"
#include "runtime/cpu/Explorer.h"
#include <algorithm>

namespace megalith::api {

void reportRuntime(Diagnostics &diags, const runtime::RuntimeError &error) {
  diags.report(AnyDiag{diagByKebab(error.kind)}, {}, error.message);
}

SourceLoc placeOf(llvm::StringRef place, const SourceFiles &files) {
  auto [file, line] = place.rsplit(':');
  SourceLoc loc;
  for (uint32_t i = 0; i < files.size(); ++i)
    if (text::utf8(files.name(i)) == file.str() && !line.getAsInteger(10, loc.line)) {
      llvm::StringRef text = files.line(i, loc.line);
      loc.file = i;
      loc.column = static_cast<uint32_t>(text.size() - text.ltrim().size()) + 1;
      loc.length = static_cast<uint32_t>(std::max<size_t>(1, text.trim().size()));
      break;
    }
  return loc;
}

void reportStop(const runtime::RunOutcome::Stop &stop, double seconds, Diagnostics &diags) {
  diags.report(Diag::KernelStopped, placeOf(stop.place, diags.sources()), stop.cta, stop.edge, stop.name, stop.tick,
               seconds);
}

/// Bytes for the trace of the longest possible run: every request alone, one token
/// per tick. More than 2 GiB is never needed.
static size_t traceBytes(const runtime::Manifest &m, const std::vector<Request> &requests, size_t least) {
  const double rowWords = 9 + (m.reducing.any ? 1 + m.reducing.words : 0);
  double words = 0;
  for (const Request &r : requests) {
    double ticks = double(r.tokens.size()) + r.maxNewTokens + 8;
    words += ticks * (16 + 2.0 * m.gauges.size() + 8.0 * double(m.tickPasses));
    for (const runtime::Manifest::Model &model : m.models) {
      const double beyond = double(model.pool.rowsBeyond);
      const double pages = (double(r.tokens.size()) + r.maxNewTokens + beyond) / model.pool.pageTokens + 1;
      words += ticks * (pages + (beyond + 1) * rowWords);
    }
  }
  return static_cast<size_t>(std::clamp(words * 4, double(least), double(2ull << 30))) / 4 * 4;
}

runtime::RunOptions engineOptions(const RunOptions &options, const runtime::Manifest &manifest,
                                  const std::vector<Request> &requests, size_t leastTraceBytes) {
  runtime::RunOptions out;
  out.maxTicks = options.maxTicks;
  out.control = options.control;
  out.ticksPerLaunch = options.ticksPerLaunch;
  out.seed = options.seed;
  out.shufflePages = options.shufflePages;
  out.trace = options.trace || (options.gauges && !manifest.gauges.empty()) || options.repeat > 1;
  out.traceBytes = traceBytes(manifest, requests, leastTraceBytes);
  out.kvHash = options.kvHash || options.repeat > 1;
  out.logits = options.logits || options.repeat > 1;
  out.watchdogSeconds = 0; // but for a GPU, an executor sees by itself that nothing moves
  out.oracleDrafts = options.drafts;
  out.corruptions = options.corruptions;
  out.interrupt.asked = options.interrupted;
  return out;
}

bool checkRepeat(const runtime::RunOutcome &first, const runtime::RunOutcome &again, unsigned number,
                 Diagnostics &diags) {
  const std::string difference = differenceOf(first, again);
  if (!difference.empty())
    diags.report(Diag::RepeatDiffers, {}, number, difference);
  return difference.empty();
}

using OneRun = std::function<std::optional<runtime::RunOutcome>(const runtime::RunOptions &, unsigned)>;

/// Calls `run` as often as the session wants, with the number of the run from 0, and compares the
/// outcomes. `run` reports its errors and returns nullopt then. With `replay` the runs take that
/// trace's results and are checked against it.
static std::optional<runtime::RunOutcome> repeatRuns(const RunOptions &options, runtime::RunOptions how,
                                                     size_t requests, const Trace *replay, Diagnostics &diags,
                                                     const OneRun &run) {
  if (replay) {
    how.replay = resultsOf(*replay);
    how.host = hostScript(*replay, requests);
    how.trace = true;
  }
  std::optional<runtime::RunOutcome> first;
  for (unsigned i = 0; i < options.repeat; ++i) {
    how.delaySeed = options.delaySeed ? options.delaySeed + i : 0;
    tell(options.progress, options.repeat > 1 ? fmt::format("running, {} of {}", i + 1, options.repeat) : "running");
    auto outcome = run(how, i);
    tell(options.progress, "");
    if (!outcome)
      return std::nullopt;
    if (outcome->interrupted)
      return first ? std::move(first) : std::move(outcome);
    if (outcome->traceDropped)
      diags.report(Diag::TraceDropped, {}, outcome->traceDropped);
    if (outcome->stop) {
      reportStop(*outcome->stop, how.watchdogSeconds, diags);
      return std::nullopt;
    }
    if (replay)
      checkKernelReplay(*outcome, *replay, options.replayEpsilon, diags);
    if (!first) {
      first = std::move(outcome);
      continue;
    }
    first->launches += outcome->launches;
    first->calls = first->calls + outcome->calls;
    if (!checkRepeat(*first, *outcome, i + 1, diags))
      break;
  }
  return first;
}

/// That a run takes, as traceBytes() counts them, and one more of its end.
static int64_t mostTicks(const RunOptions &options, const std::vector<Request> &requests) {
  int64_t ticks = 1, last = 0;
  for (const Request &r : requests) {
    ticks += static_cast<int64_t>(r.tokens.size()) + r.maxNewTokens + 8;
    last = std::max(last, r.arrives.tick);
  }
  ticks += last;
  return options.maxTicks > 0 ? std::min(ticks, options.maxTicks + 1) : ticks;
}

static std::optional<runtime::RunOutcome> executeOnCuda(Kernel::State &kernel, const RunOptions &options,
                                                        const std::vector<Request> &requests, const Trace *replay,
                                                        Diagnostics &diags) {
  // The thread may be another one than that which loaded the kernel.
  if (runtime::Failure failure = kernel.gpu->makeCurrent()) {
    reportRuntime(diags, *failure);
    return std::nullopt;
  }
  // Less than 64 MiB for the trace is never worth saving.
  auto how = engineOptions(options, kernel.cuda->manifest(), requests, 64 << 20);
  how.realClock = true;
  how.watchdogSeconds = options.watchdogSeconds;
  how.tickRecords = options.tickTimes ? mostTicks(options, requests) : 0;
  return repeatRuns(options, how, requests.size(), replay, diags,
                    [&](const runtime::RunOptions &run, unsigned) -> std::optional<runtime::RunOutcome> {
                      auto outcome = kernel.cuda->run(requests, run);
                      if (!outcome)
                        reportRuntime(diags, outcome.error);
                      return std::move(outcome.value);
                    });
}

std::mutex &cpuMutex() {
  static std::mutex one;
  return one;
}

static std::optional<runtime::RunOutcome> executeOnCpu(Kernel::State &kernel, const RunOptions &options,
                                                       const std::vector<Request> &requests, const Trace *replay,
                                                       Diagnostics &diags) {
  const std::lock_guard<std::mutex> lock(cpuMutex());
  cpu::CpuEngine &engine = *kernel.cpu;
  engine.onProgress = [&](int64_t ticks, int64_t rows) {
    tell(options.progress, fmt::format("CPU executor: tick {}, {} rows", ticks, rows));
  };
  std::optional<cpu::Schedule> schedule;
  if (!options.schedule.empty())
    schedule = parseSchedule(options.schedule);
  auto how = engineOptions(options, engine.manifest(), requests, 1 << 20);
  // A schedule counts the threads' steps: the same work as in `explore`, the same run.
  if (schedule)
    how.trace = how.kvHash = how.logits = true;
  return repeatRuns(options, how, requests.size(), replay, diags,
                    [&](const runtime::RunOptions &run, unsigned number) -> std::optional<runtime::RunOutcome> {
                      cpu::LaunchOptions launch;
                      launch.check = kernel.checked;
                      launch.schedule = schedule.value_or(cpu::Schedule());
                      launch.schedule.seed += number;
                      auto outcome = engine.run(requests, run, launch);
                      if (!outcome) {
                        reportRuntime(diags, outcome.error);
                        return std::nullopt;
                      }
                      if (!outcome->launch.finding)
                        return std::move(outcome->run);
                      tell(options.progress, "");
                      reportFinding(*outcome->launch.finding, kernel.source.manifest, diags);
                      if (kernel.checked)
                        diags.note("found with `--schedule=" + cpu::nameOf(launch.schedule) + "`");
                      return std::nullopt;
                    });
}

std::optional<runtime::RunOutcome> execute(Kernel::State &kernel, const RunOptions &options,
                                           const std::vector<Request> &requests, const Trace *replay,
                                           Diagnostics &diags) {
  if (kernel.cuda)
    return executeOnCuda(kernel, options, requests, replay, diags);
  if (kernel.cpu)
    return executeOnCpu(kernel, options, requests, replay, diags);
  return executeOnReference(*kernel.program, options, requests, replay, diags);
}

} // namespace megalith::api
