#include "EngineRun.h"
#include "Executors.h"
#include "FindingText.h"
#include "runtime/cpu/Explorer.h"
#include "llvm/Support/raw_ostream.h"
#include <chrono>

namespace megalith::tool {

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

/// Replays the first schedule's trace on the reference executor. All others were equal to it.
static bool agreesWithReference(const RunCommand &command, const driver::Compilation &compiled,
                                const RunInputs &inputs, const Trace &trace, Diagnostics &diags) {
  showProgress("replaying on the reference executor");
  auto report = runOnReference(command, compiled, inputs, diags, &trace);
  clearProgress();
  return report && !diags.hasErrors();
}

bool exploreCommand(const ExploreCommand &command, Diagnostics &diags) {
  const RunCommand &run = command.run;
  driver::CompileOptions options = run.compile;
  options.needWeights = true;
  auto compiled = driver::compile(options, diags);
  if (!compiled)
    return false;
  reportAccepted(*compiled, diags);
  auto inputs = readInputs(run, *compiled, diags);
  if (!inputs)
    return false;
  if (!run.profileGiven)
    options.profile = cpuProfile;
  auto source = makeSource(run, options, *compiled, diags);
  if (!source)
    return false;
  showProgress("compiling the kernel");
  auto kernel = driver::assembleHost(source->cuda, source->fileName, {.checked = true, .arch = run.cpuArch}, diags);
  clearProgress();
  if (!kernel)
    return false;
  auto loaded = cpu::CpuEngine::load(kernel->path, source->manifest, *compiled->models.front().weights);
  if (!loaded) {
    reportRuntime(diags, loaded.error);
    return false;
  }

  auto how = engineOptions(run, (*loaded)->manifest(), *inputs, /*trace=*/true, 1 << 20);
  how.watchdogSeconds = 0; // the executor sees by itself that nothing moves
  cpu::ExploreOptions explore;
  explore.schedules = command.seeds;
  explore.firstSeed = command.firstSeed;
  const auto start = std::chrono::steady_clock::now();
  const auto seconds = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  explore.progress = [&](uint64_t done, uint64_t steps) {
    showProgress(fmt::format("schedule {} of {}, {:.1f} million steps, {:.0f} s", done, command.seeds + 1,
                             double(steps) / 1e6, seconds()));
  };
  auto result = cpu::explore(**loaded, engineRequests(*inputs), how, explore);
  clearProgress();
  if (!result) {
    reportRuntime(diags, result.error);
    return false;
  }
  if (result->failure) {
    reportFailure(*result->failure, source->manifest, diags);
    return false;
  }
  if (!agreesWithReference(run, *compiled, *inputs, result->first.trace, diags))
    return false;
  llvm::outs() << acceptedLine(compiled->accepted()) << fmt::format(
      "{} schedules (round robin, then seeds {} to {}), {:.1f} million steps in {:.1f} s: nothing found\n"
      "{} ticks, {} rows, {} tokens: tokens, logits, K and V and traces equal bit for bit in all; the reference "
      "executor agrees\n",
      result->runs, command.firstSeed, command.firstSeed + command.seeds - 1, double(result->steps) / 1e6, seconds(),
      result->first.ticks, result->first.rows, [&] {
        size_t tokens = 0;
        for (const TraceRequest &r : result->first.requests)
          tokens += r.tokens.size();
        return tokens;
      }());
  return true;
}

} // namespace megalith::tool
