#include "Bench.h"
#include "EngineRun.h"
#include "Executors.h"
#include "FindingText.h"
#include "megalith/Text/Text.h"
#include "runtime/Engine.h"
#include "runtime/cpu/CpuEngine.h"

namespace megalith::tool {

namespace {

class CudaBench : public BenchEngine {
public:
  explicit CudaBench(std::unique_ptr<runtime::Engine> engine) : engine(std::move(engine)) {}
  const runtime::Manifest &manifest() const override { return engine->manifest(); }
  std::optional<runtime::RunOutcome> run(const std::vector<runtime::RunRequest> &requests,
                                         const runtime::RunOptions &options, Diagnostics &diags) override {
    auto outcome = engine->run(requests, options);
    if (!outcome)
      reportRuntime(diags, outcome.error);
    return std::move(outcome.value);
  }
  std::optional<double> bandwidth(Diagnostics &diags) override {
    auto measured = engine->readBandwidth();
    if (!measured)
      reportRuntime(diags, measured.error);
    return measured.value;
  }

private:
  std::unique_ptr<runtime::Engine> engine;
};

class CpuBench : public BenchEngine {
public:
  CpuBench(std::unique_ptr<cpu::CpuEngine> engine, std::string manifest)
      : engine(std::move(engine)), manifestText(std::move(manifest)) {
    device = "CPU executor";
    this->engine->onProgress = [](int64_t ticks, int64_t rows) {
      showProgress(fmt::format("CPU executor: tick {}, {} rows", ticks, rows));
    };
  }
  const runtime::Manifest &manifest() const override { return engine->manifest(); }
  std::optional<runtime::RunOutcome> run(const std::vector<runtime::RunRequest> &requests,
                                         const runtime::RunOptions &options, Diagnostics &diags) override {
    runtime::RunOptions how = options;
    how.watchdogSeconds = 0; // the executor sees by itself that nothing moves
    auto outcome = engine->run(requests, how);
    clearProgress();
    if (!outcome) {
      reportRuntime(diags, outcome.error);
      return std::nullopt;
    }
    if (!outcome->launch.finding)
      return std::move(outcome->run);
    reportFinding(*outcome->launch.finding, manifestText, diags);
    return std::nullopt;
  }
  std::optional<double> bandwidth(Diagnostics &) override { return std::nullopt; }

private:
  std::unique_ptr<cpu::CpuEngine> engine;
  std::string manifestText;
};

int64_t streamedBytes(const plan::Plan &plan) {
  int64_t bytes = 0;
  for (const plan::Matrix &m : plan.matrices)
    for (const plan::PairRange &r : m.ranges)
      bytes += 2 * r.columns * m.k * (r.second.empty() ? 1 : 2) * std::max<int64_t>(1, m.layers);
  return bytes;
}

} // namespace

std::unique_ptr<BenchEngine> makeBenchEngine(const BenchCommand &command, const driver::Compilation &compiled,
                                             runtime::Device *device, bool stamps, Diagnostics &diags) {
  driver::CompileOptions options = command.compile;
  if (stamps)
    options.planSettings.push_back("stamps=1");
  if (!command.profileGiven && device)
    chooseProfile(options, device->info());
  else if (!command.profileGiven)
    options.profile = cpuProfile;
  auto plan = driver::makePlan(compiled.module, options, diags);
  if (!plan)
    return nullptr;
  driver::Source source = driver::emitSource(compiled.module, *plan, diags);
  source.cuda += "\n#include \"megalith/Bench.cuh\"\n";
  const std::string name = compiled.module.root.name + ".cu";
  showProgress("compiling the kernel");
  std::unique_ptr<BenchEngine> bench;
  if (device) {
    auto kernel = driver::assemble(source.cuda, name, {runtime::archFor(device->info())}, diags);
    if (!kernel)
      return nullptr;
    showProgress("making weights");
    auto engine = runtime::Engine::loadRandom(*device, kernel->cubin, source.manifest);
    if (!engine)
      reportRuntime(diags, engine.error);
    else
      bench = std::make_unique<CudaBench>(std::move(*engine.value));
  } else {
    auto kernel = driver::assembleHost(source.cuda, name, {.arch = command.cpuArch}, diags);
    if (!kernel)
      return nullptr;
    showProgress("making weights");
    auto engine = cpu::CpuEngine::loadRandom(kernel->path, source.manifest);
    if (!engine)
      reportRuntime(diags, engine.error);
    else
      bench = std::make_unique<CpuBench>(std::move(*engine.value), source.manifest);
  }
  clearProgress();
  if (bench) {
    if (device)
      bench->device = text::printable(device->info().name);
    bench->weightBytes = streamedBytes(*plan);
  }
  return bench;
}

} // namespace megalith::tool
