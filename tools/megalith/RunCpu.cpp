#include "EngineRun.h"
#include "Executors.h"
#include "FindingText.h"
#include "runtime/cpu/Explorer.h"

namespace megalith::tool {

std::optional<RunReport> runOnCpu(const RunCommand &command, const driver::Compilation &compiled,
                                  const RunInputs &inputs, bool trace, const Trace *replay,
                                  Diagnostics &diags) {
  driver::CompileOptions compileOptions = command.compile;
  if (!command.profileGiven)
    compileOptions.profile = cpuProfile;
  auto source = makeSource(command, compileOptions, compiled, diags);
  if (!source)
    return std::nullopt;
  const bool checked = command.check || command.schedule;
  showProgress("compiling the kernel");
  auto kernel = driver::assembleHost(source->cuda, source->fileName, {.checked = checked, .arch = command.cpuArch}, diags);
  clearProgress();
  if (!kernel)
    return std::nullopt;
  auto loaded = cpu::CpuEngine::load(kernel->path, source->manifest, *compiled.models.front().weights);
  if (!loaded) {
    reportRuntime(diags, loaded.error);
    return std::nullopt;
  }
  cpu::CpuEngine &engine = **loaded;

  engine.onProgress = [](int64_t ticks, int64_t rows) {
    showProgress(fmt::format("CPU executor: tick {}, {} rows", ticks, rows));
  };
  const auto requests = engineRequests(inputs);
  auto options = engineOptions(command, engine.manifest(), inputs, trace, 1 << 20);
  // A schedule counts the threads' steps: the same work as in `explore`, the same run.
  if (command.schedule)
    options.trace = options.kvHash = options.logits = true;
  if (!command.watchdogGiven)
    options.watchdogSeconds = 0; // the executor sees by itself that nothing moves
  auto report = repeatRuns(
      command, options, replay, "cpu", diags,
      [&](const runtime::RunOptions &how, unsigned number) -> std::optional<runtime::RunOutcome> {
        cpu::LaunchOptions launch;
        launch.check = checked;
        launch.schedule = command.schedule.value_or(cpu::Schedule());
        launch.schedule.seed += number;
        auto outcome = engine.run(requests, how, launch);
        if (!outcome) {
          reportRuntime(diags, outcome.error);
          return std::nullopt;
        }
        if (!outcome->launch.finding)
          return std::move(outcome->run);
        clearProgress();
        reportFinding(*outcome->launch.finding, source->manifest, diags);
        if (checked)
          diags.note("found with `--schedule=" + cpu::nameOf(launch.schedule) + "`");
        return std::nullopt;
      });
  if (!report)
    return std::nullopt;
  report->loadMs = engine.loadMs();
  report->compileMs = kernel->milliseconds;
  report->cacheHit = kernel->cacheHit;
  return report;
}

} // namespace megalith::tool
