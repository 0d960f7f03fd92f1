#include "Executors.h"
#include "megalith/Plan/Plan.h"
#include "runtime/Engine.h"
#include "llvm/ADT/StringExtras.h"
#include <cmath>

namespace megalith::tool {

static void report(Diagnostics &diags, const runtime::RuntimeError &error) {
  diags.report(diagByKebab(error.kind), {}, error.message);
}

/// Plans for the device that is there: by its name, else like the profile with the
/// nearest number of SMs, with one CTA per SM.
static void chooseProfile(driver::CompileOptions &options, const runtime::DeviceInfo &info) {
  const std::string name = llvm::StringRef(info.name).lower();
  const plan::DeviceProfile *nearest = nullptr;
  auto distance = [&](const plan::DeviceProfile *p) {
    // A profile with more shared memory than the device has comes last.
    return std::abs(p->smCount - info.smCount) + (p->sharedBytes > int64_t(info.sharedPerBlockOptin) ? 1000000 : 0);
  };
  for (const std::string &candidate : plan::profileNames()) {
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

/// Bytes for the trace of the longest possible run: every request alone, one token
/// per tick. Less than 64 MiB is never worth saving, more than 2 GiB never needed.
static size_t traceBytes(const runtime::Manifest &m, const RunInputs &inputs) {
  double words = 0;
  for (const Request &r : inputs.requests) {
    double ticks = double(r.tokens.size()) + r.maxNewTokens + 8;
    double pages = (double(r.tokens.size()) + r.maxNewTokens + m.draftRows) / m.pageTokens + 1;
    words += ticks * (16 + pages + 2.0 * m.gauges.size()) + ticks * (m.draftRows + 1) * 9;
  }
  return static_cast<size_t>(std::clamp(words * 4, double(64 << 20), double(2ull << 30))) / 4 * 4;
}

static void reportStop(const runtime::RunOutcome::Stop &stop, double seconds, Diagnostics &diags) {
  // `place` is FILE:LINE of the YAML.
  auto [file, line] = llvm::StringRef(stop.place).rsplit(':');
  SourceLoc loc;
  for (uint32_t i = 0; i < diags.sources().size(); ++i)
    if (diags.sources().name(i) == file && !line.getAsInteger(10, loc.line)) {
      llvm::StringRef text = diags.sources().line(i, loc.line);
      loc.file = i;
      loc.column = static_cast<uint32_t>(text.size() - text.ltrim().size()) + 1;
      loc.length = static_cast<uint32_t>(std::max<size_t>(1, text.trim().size()));
      break;
    }
  diags.report(Diag::KernelStopped, loc, stop.cta, stop.edge, stop.name, stop.tick, seconds);
}

static RunReport reportOf(runtime::RunOutcome &&outcome) {
  RunReport out;
  out.device = "cuda";
  for (size_t i = 0; i < outcome.requests.size(); ++i) {
    TraceRequest &r = outcome.requests[i];
    RequestReport request;
    request.tokens = std::move(r.tokens);
    request.finish = std::move(r.finish);
    request.fault = std::move(r.fault);
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

/// Plan, source, cubin and weights on the device.
static std::unique_ptr<runtime::Engine> makeEngine(const RunCommand &command, const driver::Compilation &compiled,
                                                   runtime::Device &device, jit::CompileResult &kernel,
                                                   Diagnostics &diags) {
  driver::CompileOptions options = command.compile;
  if (!command.profileGiven)
    chooseProfile(options, device.info());
  auto plan = driver::makePlan(compiled.module, options, diags);
  if (!plan)
    return nullptr;
  driver::Source source = driver::emitSource(compiled.module, *plan, diags);
  std::string name = compiled.module.root.name + ".cu";
  if (!command.cuFile.empty() && !driver::readEditedSource(command.cuFile, source.cuda, name, diags))
    return nullptr;
  showProgress("compiling the kernel");
  auto assembled = driver::assemble(source.cuda, name, {runtime::archFor(device.info())}, diags);
  if (!assembled)
    return nullptr;
  kernel = std::move(*assembled);
  showProgress("loading the weights");
  auto engine = runtime::Engine::load(device, kernel.cubin, source.manifest, *compiled.models.front().weights);
  clearProgress();
  if (!engine) {
    report(diags, engine.error);
    return nullptr;
  }
  return std::move(*engine.value);
}

std::optional<RunReport> runOnCuda(const RunCommand &command, const driver::Compilation &compiled,
                                   const RunInputs &inputs, runtime::Device &device, bool trace,
                                   Diagnostics &diags) {
  jit::CompileResult kernel;
  auto engine = makeEngine(command, compiled, device, kernel, diags);
  if (!engine)
    return std::nullopt;

  std::vector<runtime::RunRequest> requests;
  for (const Request &r : inputs.requests)
    requests.push_back({r.id, r.tokens, r.maxNewTokens, *r.eos, r.priority});
  runtime::RunOptions options;
  options.maxTicks = command.maxTicks;
  options.shufflePages = command.shufflePages;
  options.trace = trace || command.repeat > 1;
  options.traceBytes = traceBytes(engine->manifest(), inputs);
  options.kvHash = command.kvHash || command.repeat > 1;
  options.logits = !command.logitsFile.empty() || command.repeat > 1;
  options.watchdogSeconds = command.watchdogSeconds;
  options.oracleDrafts = inputs.drafts;
  for (const RunInputs::Corruption &c : inputs.corruptions)
    options.corruptions.push_back({c.tick, c.request, c.field, c.value});

  std::optional<RunReport> first;
  for (unsigned i = 1; i <= command.repeat; ++i) {
    options.delaySeed = command.delaySeed ? command.delaySeed + i - 1 : 0;
    showProgress(command.repeat > 1 ? fmt::format("running, {} of {}", i, command.repeat) : "running");
    auto outcome = engine->run(requests, options);
    clearProgress();
    if (!outcome) {
      report(diags, outcome.error);
      return std::nullopt;
    }
    if (outcome->traceDropped)
      diags.report(Diag::TraceDropped, {}, outcome->traceDropped);
    if (outcome->stop) {
      reportStop(*outcome->stop, command.watchdogSeconds, diags);
      return std::nullopt;
    }
    RunReport result = reportOf(std::move(*outcome.value));
    if (!first)
      first = std::move(result);
    else if (!checkRepeat(*first, result, i, diags))
      break;
  }
  first->deviceName = device.info().name;
  first->loadMs = engine->loadMs();
  first->compileMs = kernel.milliseconds;
  first->cacheHit = kernel.cacheHit;
  first->launches = command.repeat;
  return first;
}

} // namespace megalith::tool
