//===- Explore.cpp - a program under many schedules -----------------------===//
#include "FindingText.h"
#include "Replay.h"
#include "State.h"
#include "megalith/Text/Text.h"
#include "megalith/Tools.h"
#include "runtime/cpu/Explorer.h"
#include <chrono>

namespace megalith {

using namespace api;

/// The failing schedule, and how to see it again.
static void reportFailure(const cpu::ExploreFailure &failure, const std::string &manifest, Diagnostics &diags) {
  if (failure.finding)
    reportFinding(*failure.finding, manifest, diags);
  else
    diags.report(Diag::ScheduleDiffers, {}, failure.difference);
  if (failure.schedule.kind == cpu::Schedule::RoundRobin)
    diags.note("found with `--schedule=round-robin`, the first schedule");
  else
    diags.note(fmt::format("found with `--schedule={}`: {} of the schedule's {} decisions, the shortest prefix that "
                           "{} further runs found",
                           cpu::nameOf(failure.schedule), std::min(failure.schedule.prefix, failure.decisions),
                           failure.decisions, failure.shrinkRuns));
}

namespace {

class Exploring {
public:
  Exploring(const Program &program, const std::vector<Request> &given, const tools::ExploreOptions &options)
      : program(program), options(options), diags(program.internals()->sources),
        requests(checkedRequests(*program.internals(), given, diags)) {}

  Expected<tools::Exploration> run() {
    if (diags.hasErrors())
      return diags.messages();
    KernelOptions how;
    how.device = Device::Cpu;
    how.sourceFiles = options.sourceFiles;
    how.wholeKernel = options.wholeKernel;
    how.cpuArch = options.cpuArch;
    how.check = true;
    how.progress = options.progress;
    auto kernel = Kernel::load(program, how);
    if (!kernel)
      return kernel.errors();
    diags.adopt(kernel->messages());
    Kernel::State &state = *kernel->internals();

    RunOptions oneRun;
    oneRun.trace = true;
    oneRun.shufflePages = options.shufflePages;
    oneRun.seed = options.seed;
    oneRun.drafts = options.drafts;
    const auto start = std::chrono::steady_clock::now();
    const auto seconds = [&] {
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    };
    cpu::ExploreOptions explore;
    explore.schedules = options.schedules;
    explore.firstSeed = options.firstSeed;
    if (options.live) {
      for (const Request &request : requests)
        if (request.arrives != When() || request.cancelled || request.deadlineMs > 0)
          return failure(Diag::BadOption, "--live",
                         fmt::format("request `{}` says when it arrives, is cancelled or ends; the host of a live "
                                     "session decides that",
                                     text::printable(request.id.text, 120)));
      explore.live.emplace();
    }
    explore.progress = [&](uint64_t done, uint64_t steps) {
      tell(options.progress, fmt::format("schedule {} of {}, {:.1f} million steps, {:.0f} s", done,
                                         options.schedules + 1, double(steps) / 1e6, seconds()));
    };
    auto result = [&] {
      const std::lock_guard<std::mutex> lock(cpuMutex());
      return cpu::explore(*state.cpu, requests, engineOptions(oneRun, state.cpu->manifest(), requests, 1 << 20),
                          explore);
    }();
    tell(options.progress, "");
    if (!result)
      reportRuntime(diags, result.error);
    else if (result->failure)
      reportFailure(*result->failure, state.source.manifest, diags);
    else
      compareWithReference(oneRun, result->first);
    if (diags.hasErrors())
      return diags.messages();
    tools::Exploration out;
    out.runs = result->runs;
    out.steps = result->steps;
    out.seconds = seconds();
    out.ticks = result->first.ticks;
    out.rows = result->first.rows;
    out.launches = result->launches;
    for (const TraceRequest &r : result->first.requests)
      out.tokens += static_cast<int64_t>(r.tokens.size());
    out.messages = diags.messages();
    return out;
  }

private:
  const Program &program;
  const tools::ExploreOptions &options;
  Diagnostics diags;
  const std::vector<Request> requests;

  /// Replays the first schedule's trace on the reference executor. All others were equal to it.
  void compareWithReference(RunOptions oneRun, const runtime::RunOutcome &run) {
    tell(options.progress, "replaying on the reference executor");
    oneRun.replayEpsilon = options.replayEpsilon;
    oneRun.replayError = options.replayError;
    const auto reference = executeOnReference(*program.internals(), oneRun, requests, &run.trace, diags);
    tell(options.progress, "");
    if (reference && !diags.hasErrors())
      reportReplay({}, differenceOfTimes(run, *reference), "the reference", diags);
  }
};

} // namespace

Expected<tools::Exploration> tools::explore(const Program &program, const std::vector<Request> &requests,
                                            const ExploreOptions &options) {
  return guarded<Exploration>([&] { return Exploring(program, requests, options).run(); });
}

} // namespace megalith
