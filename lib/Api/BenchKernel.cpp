//===- BenchKernel.cpp - kernels with random weights ----------------------===//
#include "FindingText.h"
#include "State.h"
#include "megalith/Jit/KernelCache.h"
#include "megalith/Plan/Plan.h"
#include "megalith/Text/Text.h"
#include "megalith/Tools.h"
#include "runtime/HostRange.h"
#include <algorithm>
#include <thread>

namespace megalith {

using namespace api;
using tools::BenchKernel;

struct BenchKernel::State {
  std::shared_ptr<Program::State> program;
  std::optional<runtime::Device> gpu; ///< outlives its engine
  std::unique_ptr<runtime::Engine> cuda;
  std::unique_ptr<cpu::CpuEngine> cpu;
  std::string manifest;
  Shape shape;
  Report progress;
  Messages messages;
};

void tools::makeRoom(Program &program, int64_t batch, int64_t positions) {
  ir::Module &module = program.internals()->compiled.module;
  const int64_t rows = module.param("rows_per_pass");
  // After the last token a pass may write as many positions as it has rows. The pool is
  // never under pressure.
  for (ir::Operation &op : module.root.region().ops)
    if (op.op == ir::Op::Pool) {
      const int64_t needed = batch * ((positions + 2 * rows) / op.get<ir::attr::page_tokens>() + 1);
      const int64_t watermark = op.get<ir::attr::watermark>();
      op.set<ir::attr::pages>(std::max(op.get<ir::attr::pages>(), (needed * 100 + watermark - 1) / watermark));
    }
}

int64_t api::streamedBytes(const plan::Plan &plan, size_t model) {
  int64_t bytes = 0;
  for (const plan::Matrix &m : plan.models[model].matrices)
    for (const plan::PairRange &r : m.ranges)
      bytes += bytesOf(m.scheme(), r.columns, m.k) * (r.second.empty() ? 1 : 2) * std::max<int64_t>(1, m.layers);
  return bytes;
}

std::vector<tools::LayerKv> api::layersOfKv(const ir::Module &module, const ir::Operation &model) {
  std::vector<tools::LayerKv> layers;
  const int64_t heads = 2 * model.get<ir::attr::kv_heads>(), dim = model.get<ir::attr::head_dim>();
  for (auto [window, format] : llvm::zip(ir::windowsOf(model), ir::kvFormats(module, model)))
    layers.push_back({window, heads * (format == WeightFormat::E4m3 ? dim + 2 : 2 * dim)});
  return layers;
}

double tools::kvBytesRead(const std::vector<LayerKv> &layers, double positions) {
  double read = 0;
  for (const LayerKv &layer : layers)
    read += double(layer.tokenBytes) * (layer.window ? std::min(positions, double(layer.window)) : positions);
  return read;
}

static BenchKernel::Shape shapeOf(const runtime::Manifest &m) {
  BenchKernel::Shape shape;
  shape.pipeline = m.pipeline;
  const runtime::Manifest::Model &model = m.models.front();
  shape.vocabulary = model.vocab;
  shape.pages = model.pool.pages;
  shape.ctas = m.ctas;
  for (const runtime::Manifest::Stamp &stamp : m.stamps)
    shape.stamps.push_back({stamp.name, stamp.layer});
  return shape;
}

namespace {
struct Planned {
  plan::Plan plan;
  driver::Source source;
};
} // namespace

/// `stamps`: of the kernel that takes the time of its phases.
static std::optional<Planned> planFor(const BenchKernel::State &state, bool stamps, Diagnostics &diags) {
  const ir::Module &module = state.program->compiled.module;
  driver::CompileOptions how = state.program->options;
  if (stamps)
    how.planSettings.push_back("stamps=1");
  if (!how.profileGiven && state.gpu)
    chooseProfile(how, state.gpu->info());
  else if (!how.profileGiven)
    how.profile = cpuProfile;
  auto plan = driver::makePlan(module, how, diags);
  if (!plan)
    return std::nullopt;
  driver::Source source = driver::emitSource(module, *plan, diags);
  source.units.more = benchUnit();
  return Planned{std::move(*plan), std::move(source)};
}

static std::optional<jit::CompileResult> assembleFor(const BenchKernel::State &state,
                                                     const BenchKernel::Options &options, const emit::Units &units,
                                                     Diagnostics &diags) {
  const runtime::HostRange range(runtime::HostStep::Compile);
  const DriverLinker linker(state.gpu->driver());
  return driver::assemble(
      units, {.arch = runtime::archFor(state.gpu->info()), .whole = options.wholeKernel, .linker = &linker}, diags);
}

/// Compiles the kernel with stamps into the cache. What is wrong with it is told when it is loaded.
static std::jthread compileStamped(const BenchKernel::State &state, const BenchKernel::Options &options) {
  return std::jthread([&] {
    Diagnostics unheard(state.program->sources);
    try {
      if (!jit::KernelCache::open(unheard).enabled() || state.gpu->makeCurrent())
        return; // nowhere to keep it
      if (auto stamped = planFor(state, true, unheard))
        assembleFor(state, options, stamped->source.units, unheard);
    } catch (...) { // memory is short: the load will say so
    }
  });
}

static std::shared_ptr<BenchKernel::State> load(const Program &program, const BenchKernel::Options &options,
                                                Diagnostics &diags) {
  auto state = std::make_shared<BenchKernel::State>();
  state->program = program.internals();
  state->progress = options.progress;
  if (options.device == Device::Cuda) {
    auto opened = openGpu(0);
    if (!opened) {
      reportRuntime(diags, opened.error);
      return nullptr;
    }
    state->gpu.emplace(std::move(*opened.value));
  }
  auto planned = planFor(*state, options.stamps, diags);
  if (!planned)
    return nullptr;
  const driver::Source &source = planned->source;
  state->manifest = source.manifest;
  tell(options.progress, "compiling the kernel");
  if (state->gpu) {
    std::jthread beside;
    if (options.stampsFollow)
      beside = compileStamped(*state, options);
    auto kernel = assembleFor(*state, options, source.units, diags);
    if (beside.joinable())
      beside.join();
    if (!kernel)
      return nullptr;
    auto engine =
        runtime::Engine::loadRandom(*state->gpu, kernel->cubin, source.manifest, loading(options.progress, true));
    if (!engine) {
      reportRuntime(diags, engine.error);
      return nullptr;
    }
    state->cuda = std::move(*engine.value);
    state->shape = shapeOf(state->cuda->manifest());
    state->shape.device = text::printable(state->gpu->info().name);
  } else {
    auto kernel = [&] {
      const runtime::HostRange range(runtime::HostStep::Compile);
      return driver::assembleHost(source.units, {.arch = options.cpuArch, .whole = options.wholeKernel}, diags);
    }();
    if (!kernel)
      return nullptr;
    const std::lock_guard<std::mutex> lock(cpuMutex());
    auto engine = cpu::CpuEngine::loadRandom(kernel->path, source.manifest, loading(options.progress, true));
    if (!engine) {
      reportRuntime(diags, engine.error);
      return nullptr;
    }
    state->cpu = std::move(*engine.value);
    state->cpu->onProgress = [progress = options.progress](int64_t ticks, int64_t rows) {
      tell(progress, fmt::format("CPU executor: tick {}, {} rows", ticks, rows));
    };
    state->shape = shapeOf(state->cpu->manifest());
    state->shape.device = "CPU executor";
  }
  const runtime::Manifest &m = state->cuda ? state->cuda->manifest() : state->cpu->manifest();
  state->shape.weightBytes = m.tickPasses > 0 ? 0 : streamedBytes(planned->plan, 0);
  const ir::Module &module = program.internals()->compiled.module;
  state->shape.kv = layersOfKv(module, *ir::modelsByNumber(module)[0]);
  return state;
}

BenchKernel::BenchKernel(std::shared_ptr<State> state) : state(std::move(state)) {}
const BenchKernel::Shape &BenchKernel::shape() const { return state->shape; }
const Messages &BenchKernel::messages() const { return state->messages; }

Expected<BenchKernel> BenchKernel::load(const Program &program, const Options &options) {
  return guarded<BenchKernel>([&]() -> Expected<BenchKernel> {
    Diagnostics diags(program.internals()->sources);
    auto state = megalith::load(program, options, diags);
    tell(options.progress, "");
    if (!state)
      return diags.messages();
    state->messages = diags.messages();
    return BenchKernel(std::move(state));
  });
}

/// One run on the device; nullopt after an error.
static std::optional<runtime::RunOutcome> runOnce(BenchKernel::State &state, const std::vector<Request> &requests,
                                                  runtime::RunOptions how, Diagnostics &diags) {
  if (state.cuda) {
    auto outcome = state.cuda->run(requests, how);
    if (!outcome)
      reportRuntime(diags, outcome.error);
    return std::move(outcome.value);
  }
  const std::lock_guard<std::mutex> lock(cpuMutex());
  how.watchdogSeconds = 0; // the executor sees by itself that nothing moves
  auto outcome = state.cpu->run(requests, how);
  tell(state.progress, "");
  if (!outcome) {
    reportRuntime(diags, outcome.error);
    return std::nullopt;
  }
  if (!outcome->launch.finding)
    return std::move(outcome->run);
  reportFinding(*outcome->launch.finding, state.manifest, diags);
  return std::nullopt;
}

Expected<BenchKernel::Run> BenchKernel::run(const std::vector<Request> &requests, const RunOptions &options) {
  return guarded<Run>([&]() -> Expected<Run> {
    Diagnostics diags(state->program->sources);
    runtime::RunOptions how;
    how.kvInPlace = options.kvInPlace;
    how.tickRecords = options.tickRecords;
    how.stampTicks = options.stampTicks;
    how.control = options.control;
    how.ticksPerLaunch = options.ticksPerLaunch;
    auto outcome = runOnce(*state, requests, how, diags);
    if (!outcome)
      return diags.messages();
    if (outcome->stop)
      reportStop(*outcome->stop, how.watchdogSeconds, diags);
    for (const TraceRequest &r : outcome->requests)
      if (!outcome->stop && r.finish == "fault" && !diags.hasErrors())
        reportFaulted(r.id.text, r.fault, {}, diags);
    if (diags.hasErrors())
      return diags.messages();
    Run out;
    for (TraceRequest &r : outcome->requests)
      out.tokens.push_back(std::move(r.tokens));
    out.ticks = outcome->ticks;
    out.passes = outcome->passes;
    out.milliseconds = outcome->kernelMs;
    for (const runtime::RunOutcome::TickRecord &t : outcome->tickRecords)
      out.records.push_back({t.begin, t.open, t.prompts, t.generated, t.kvTokens, t.rows});
    out.stamps = std::move(outcome->stamps);
    return out;
  });
}

Expected<std::optional<double>> api::bandwidthOf(runtime::Engine *engine) {
  using Bandwidth = std::optional<double>;
  return guarded<Bandwidth>([&]() -> Expected<Bandwidth> {
    if (!engine)
      return Bandwidth();
    auto measured = engine->readBandwidth();
    if (!measured)
      return failure(AnyDiag{diagByKebab(measured.error.kind)}, measured.error.message);
    return Bandwidth(*measured);
  });
}

Expected<std::optional<double>> BenchKernel::bandwidth() { return bandwidthOf(state->cuda.get()); }
Expected<std::optional<double>> tools::readBandwidth(const Kernel &kernel) {
  return bandwidthOf(kernel.internals()->cuda.get());
}

} // namespace megalith
