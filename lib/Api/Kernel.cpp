//===- Kernel.cpp - a program on a device ---------------------------------===//
#include "State.h"
#include "megalith/IR/Buffers.h"
#include "megalith/Jit/KernelCache.h"
#include "megalith/Plan/Plan.h"
#include "megalith/Text/Text.h"
#include "megalith/Tools.h"
#include "runtime/HostRange.h"
#include "llvm/ADT/StringExtras.h"
#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>

namespace megalith {

using namespace api;

void api::chooseProfile(driver::CompileOptions &options, const runtime::DeviceInfo &info) {
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

runtime::Outcome<runtime::Device> api::openGpu(int ordinal) {
  auto driver = runtime::Driver::open();
  if (!driver)
    return driver.error;
  return runtime::Device::open(**driver, ordinal);
}

std::string DriverLinker::identity() const { return "CUDA driver " + driver.version(); }

jit::Linker::Result DriverLinker::link(llvm::StringRef, llvm::ArrayRef<Part> parts) const {
  std::vector<std::pair<std::string, std::string_view>> cubins;
  for (const Part &part : parts)
    cubins.emplace_back(part.name, std::string_view(part.cubin.data(), part.cubin.size()));
  auto linked = runtime::linkCubins(driver, cubins);
  return linked ? Result{std::move(*linked.value), ""} : Result{"", linked.error.message};
}

runtime::LoadOptions api::loading(const Report &progress, bool random) {
  using Clock = std::chrono::steady_clock;
  const char *what = random ? "making weights" : "loading weights";
  tell(progress, what);
  runtime::LoadOptions options;
  options.progress = [progress, what, random, begin = Clock::now(),
                      shown = Clock::time_point()](uint64_t done, uint64_t total) mutable {
    const auto now = Clock::now();
    if (now - shown < std::chrono::milliseconds(100))
      return;
    shown = now;
    const double seconds = std::chrono::duration<double>(now - begin).count();
    const std::string share = fmt::format("{} {} %", what, done * 100 / std::max<uint64_t>(total, 1));
    tell(progress, random ? share : fmt::format("{}, {:.1f} GB/s", share, double(done) / seconds / 1e9));
  };
  return options;
}

/// Of either engine.
template <class Engine> static LoadedWeights weightsOf(const Engine &engine) {
  const runtime::WeightBytes bytes = engine.weightBytes();
  return {engine.loadMs(), static_cast<int64_t>(bytes.read), static_cast<int64_t>(bytes.packed),
          static_cast<int64_t>(bytes.byRow)};
}

namespace {

class Loader {
public:
  Loader(const Program &program, const KernelOptions &options, std::optional<tools::Weights> measured = {})
      : options(options), measured(measured), kernel(std::make_shared<Kernel::State>()),
        diags(program.internals()->sources) {
    kernel->program = program.internals();
  }

  Expected<Kernel> load() {
    const bool loaded = runs() && chooseDevice() &&
                        (kernel->device == Device::Cuda  ? loadOnCuda()
                         : kernel->device == Device::Cpu ? loadOnCpu()
                                                         : true);
    tell(options.progress, "");
    if (!loaded)
      return diags.messages();
    kernel->messages = diags.messages();
    return Kernel(std::move(kernel));
  }

  /// As far as the kernel cache has it then.
  Messages compile() {
    if (runs() && chooseDevice()) {
      if (kernel->device == Device::Cuda)
        assembleOnCuda();
      else if (kernel->device == Device::Cpu)
        assembleOnCpu();
    }
    return diags.messages();
  }

private:
  const KernelOptions &options;
  const std::optional<tools::Weights> measured; ///< of a kernel that measures, too
  std::shared_ptr<Kernel::State> kernel;
  Diagnostics diags;

  /// In the order of the kernel's models.
  runtime::Checkpoints weights() const {
    const driver::Compilation &compiled = kernel->program->compiled;
    std::vector<const SafetensorsFile *> files;
    std::vector<const Quantisation *> quantisations;
    for (const ir::Operation *model : ir::modelsByNumber(compiled.module))
      for (const driver::LoadedModel &loaded : compiled.models)
        if (loaded.name == model->name) {
          files.push_back(&*loaded.weights);
          quantisations.push_back(loaded.checked.quantisation.get());
        }
    return {files, quantisations};
  }
  bool random() const { return measured == tools::Weights::Random; }

  /// With what a benchmark runs beside them, where it is wanted.
  emit::Units units() const {
    emit::Units units = unitsOf(kernel->source);
    if (random() || (measured && kernel->gpu))
      units.more = benchUnit();
    return units;
  }

  /// Whether the program is one that can run there.
  bool runs() {
    const Program::State &program = *kernel->program;
    const bool isCall = ir::ofBuffers(program.compiled.module);
    if ((!isCall || measured) && !canRun(program, diags))
      return false;
    if (random() && options.device == Device::Reference)
      diags.report(Diag::KernelProgram, {}, "the reference executor has no random weights; choose another device");
    else if (!random() && !isCall && !program.options.needWeights)
      diags.report(Diag::KernelProgram, {}, "the program was compiled without its weights; leave `weights` true");
    else if (!program.options.stopAfter.empty() && options.device != Device::Reference)
      diags.report(Diag::KernelProgram, {},
                   "the program stopped after pass `" + program.options.stopAfter +
                       "`, and only the reference executor runs the IR after any pass");
    return !diags.hasErrors();
  }

  bool chooseDevice() {
    kernel->device = options.device;
    if (options.device == Device::Reference && !options.sourceFiles.empty()) {
      diags.report(Diag::KernelProgram, {}, "the reference executor runs no source; choose another device");
      return false;
    }
    if (options.device != Device::Auto && options.device != Device::Cuda)
      return true;
    auto opened = openGpu(options.ordinal);
    if (opened) {
      kernel->device = Device::Cuda;
      kernel->gpu.emplace(std::move(*opened.value));
      return true;
    }
    // Without an explicit wish for the GPU, the executor that works everywhere.
    if (options.device == Device::Auto && options.sourceFiles.empty() && !options.wholeKernel) {
      kernel->device = Device::Reference;
      return true;
    }
    reportRuntime(diags, opened.error);
    return false;
  }

  bool plan(const driver::CompileOptions &how) {
    auto source = makeSource(*kernel->program, how, options.sourceFiles, diags);
    if (source)
      kernel->source = std::move(*source);
    tell(options.progress, "compiling the kernel");
    return source.has_value();
  }

  std::optional<jit::CompileResult> assembleOnCuda() {
    driver::CompileOptions how = kernel->program->options;
    const runtime::DeviceInfo &info = kernel->gpu->info();
    if (!how.profileGiven)
      chooseProfile(how, info);
    if (!plan(how))
      return std::nullopt;
    const DriverLinker linker(kernel->gpu->driver());
    const runtime::HostRange range(runtime::HostStep::Compile);
    return driver::assemble(units(), {.arch = runtime::archFor(info), .whole = options.wholeKernel, .linker = &linker},
                            diags);
  }

  bool loadOnCuda() {
    const auto assembled = assembleOnCuda();
    if (!assembled)
      return false;
    kernel->compileMs = assembled->milliseconds;
    kernel->cacheHit = assembled->cacheHit;
    kernel->how = assembled->how;
    if (ir::ofBuffers(kernel->program->compiled.module))
      return loaded(runtime::CallEngine::load(*kernel->gpu, assembled->cubin, kernel->source.manifest),
                    kernel->cudaCalls);
    const runtime::LoadOptions how = loading(options.progress, random());
    auto engine = random()
                      ? runtime::Engine::loadRandom(*kernel->gpu, assembled->cubin, kernel->source.manifest, how)
                      : runtime::Engine::load(*kernel->gpu, assembled->cubin, kernel->source.manifest, weights(), how);
    if (!engine) {
      reportRuntime(diags, engine.error);
      return false;
    }
    kernel->cuda = std::move(*engine.value);
    kernel->weights = weightsOf(*kernel->cuda);
    return true;
  }

  template <class T> bool loaded(runtime::Outcome<std::unique_ptr<T>> engine, std::unique_ptr<T> &to) {
    if (engine)
      to = std::move(*engine.value);
    else
      reportRuntime(diags, engine.error);
    return to != nullptr;
  }

  std::optional<driver::HostKernel> assembleOnCpu() {
    driver::CompileOptions how = kernel->program->options;
    if (!how.profileGiven)
      how.profile = cpuProfile;
    if (!plan(how))
      return std::nullopt;
    const runtime::HostRange range(runtime::HostStep::Compile);
    return driver::assembleHost(
        units(), {.checked = options.check, .arch = options.cpuArch, .whole = options.wholeKernel}, diags);
  }

  bool loadOnCpu() {
    const auto assembled = assembleOnCpu();
    kernel->checked = options.check;
    if (!assembled)
      return false;
    kernel->compileMs = assembled->milliseconds;
    kernel->cacheHit = assembled->cacheHit;
    kernel->how = assembled->how;
    const std::lock_guard<std::mutex> lock(cpuMutex());
    if (ir::ofBuffers(kernel->program->compiled.module))
      return loaded(cpu::CpuCalls::load(assembled->path, kernel->source.manifest), kernel->cpuCalls);
    const runtime::LoadOptions how = loading(options.progress, random());
    auto engine = random() ? cpu::CpuEngine::loadRandom(assembled->path, kernel->source.manifest, how)
                           : cpu::CpuEngine::load(assembled->path, kernel->source.manifest, weights(), how);
    if (!engine) {
      reportRuntime(diags, engine.error);
      return false;
    }
    kernel->cpu = std::move(*engine.value);
    kernel->weights = weightsOf(*kernel->cpu);
    return true;
  }
};

} // namespace

Kernel::Kernel(std::shared_ptr<State> state) : state(std::move(state)) {}

Expected<Kernel> Kernel::load(const Program &program, const KernelOptions &options) {
  return guarded<Kernel>([&] { return Loader(program, options).load(); });
}

const Messages &Kernel::messages() const { return state->messages; }
Device Kernel::device() const { return state->device; }
std::string Kernel::deviceName() const { return state->gpu ? state->gpu->info().name : ""; }
const Source &Kernel::source() const { return state->source; }
double Kernel::compileMilliseconds() const { return state->compileMs; }
double Kernel::loadMilliseconds() const { return state->weights.milliseconds; }
LoadedWeights Kernel::weights() const { return state->weights; }
std::optional<bool> Kernel::cacheHit() const { return state->cacheHit; }
std::string Kernel::how() const { return state->how; }

Expected<Kernel> tools::loadToMeasure(const Program &program, const KernelOptions &options, Weights weights) {
  return guarded<Kernel>([&] { return Loader(program, options, weights).load(); });
}

Status tools::compileAhead(const std::vector<Program> &programs, const KernelOptions &options, Weights weights) {
  return guarded<Done>([&]() -> Status {
    SourceFiles none;
    Diagnostics unheard(none); // what is wrong with the cache is told when a kernel is loaded
    if (options.device == Device::Reference || !jit::KernelCache::open(unheard).enabled())
      return Done();
    KernelOptions quiet = options;
    quiet.progress = nullptr;
    std::vector<Messages> said(programs.size());
    std::atomic<size_t> next = 0;
    std::atomic<bool> failed = false;
    std::mutex mutex;
    size_t made = 0;
    const auto show = [&] {
      tell(options.progress, fmt::format("compiling kernels: {} of {}", made, programs.size()));
    };
    const auto work = [&] {
      for (size_t i; !failed && (i = next++) < programs.size();) {
        // What it throws is thrown again, and told, when this kernel is loaded.
        try {
          said[i] = Loader(programs[i], quiet, weights).compile();
        } catch (...) {
        }
        if (said[i].hasErrors())
          failed = true;
        const std::lock_guard<std::mutex> lock(mutex);
        ++made;
        show();
      }
    };
    show();
    {
      // A kernel's units are compiled side by side already.
      const size_t threads = std::clamp<size_t>(std::thread::hardware_concurrency() / 2, 1, 8);
      std::vector<std::jthread> others;
      for (size_t i = 1; i < std::min(threads, programs.size()); ++i)
        others.emplace_back(work);
      work();
    }
    tell(options.progress, "");
    for (Messages &messages : said)
      if (messages.hasErrors())
        return std::move(messages);
    return Done();
  });
}

Expected<std::string> tools::findGpu() {
  return guarded<std::string>([]() -> Expected<std::string> {
    auto opened = openGpu(0);
    if (opened)
      return text::printable(opened.value->info().name);
    return failure(AnyDiag{diagByKebab(opened.error.kind)}, opened.error.message);
  });
}

} // namespace megalith
