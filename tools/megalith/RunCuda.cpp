#include "EngineRun.h"
#include "Executors.h"
#include "megalith/Plan/Plan.h"
#include "runtime/Engine.h"
#include "llvm/ADT/StringExtras.h"
#include <cmath>

namespace megalith::tool {

void chooseProfile(driver::CompileOptions &options, const runtime::DeviceInfo &info) {
  const std::string name = llvm::StringRef(info.name).lower();
  const plan::DeviceProfile *nearest = nullptr;
  auto distance = [&](const plan::DeviceProfile *p) {
    // A profile with more shared memory than the device has comes last.
    return std::abs(p->smCount - info.smCount) + (p->sharedBytes > int64_t(info.sharedPerBlockOptin) ? 1000000 : 0);
  };
  for (const std::string &candidate : plan::profileNames()) {
    if (candidate == cpuProfile)
      continue;
    const plan::DeviceProfile *profile = plan::findProfile(candidate);
    if (name.find(candidate) != std::string::npos && profile->smCount <= info.smCount) {
      options.profile = candidate;
      return;
    }
    if (!nearest || distance(profile) < distance(nearest))
      nearest = profile;
  }
  options.profile = nearest->name;
  options.planSettings.insert(options.planSettings.begin(), fmt::format("ctas={}", info.smCount));
}

/// Plan, source, cubin and weights on the device.
static std::unique_ptr<runtime::Engine> makeEngine(const RunCommand &command, const driver::Compilation &compiled,
                                                   runtime::Device &device, jit::CompileResult &kernel,
                                                   Diagnostics &diags) {
  driver::CompileOptions options = command.compile;
  if (!command.profileGiven)
    chooseProfile(options, device.info());
  auto source = makeSource(command, options, compiled, diags);
  if (!source)
    return nullptr;
  showProgress("compiling the kernel");
  auto assembled = driver::assemble(source->cuda, source->fileName, {runtime::archFor(device.info())}, diags);
  if (!assembled)
    return nullptr;
  kernel = std::move(*assembled);
  showProgress("loading the weights");
  auto engine = runtime::Engine::load(device, kernel.cubin, source->manifest, *compiled.models.front().weights);
  clearProgress();
  if (!engine) {
    reportRuntime(diags, engine.error);
    return nullptr;
  }
  return std::move(*engine.value);
}

std::optional<RunReport> runOnCuda(const RunCommand &command, const driver::Compilation &compiled,
                                   const RunInputs &inputs, runtime::Device &device, bool trace,
                                   const Trace *replay, Diagnostics &diags) {
  jit::CompileResult kernel;
  auto engine = makeEngine(command, compiled, device, kernel, diags);
  if (!engine)
    return std::nullopt;

  const auto requests = engineRequests(inputs);
  // Less than 64 MiB for the trace is never worth saving.
  const auto options = engineOptions(command, engine->manifest(), inputs, trace, 64 << 20);
  auto report = repeatRuns(command, options, replay, "cuda", diags,
                           [&](const runtime::RunOptions &how, unsigned) -> std::optional<runtime::RunOutcome> {
                             auto outcome = engine->run(requests, how);
                             if (!outcome)
                               reportRuntime(diags, outcome.error);
                             return std::move(outcome.value);
                           });
  if (!report)
    return std::nullopt;
  report->deviceName = device.info().name;
  report->loadMs = engine->loadMs();
  report->compileMs = kernel.milliseconds;
  report->cacheHit = kernel.cacheHit;
  return report;
}

} // namespace megalith::tool
