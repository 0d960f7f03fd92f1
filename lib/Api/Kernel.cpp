//===- Kernel.cpp - a program on a device ---------------------------------===//
#include "State.h"
#include "megalith/Plan/Plan.h"
#include "megalith/Tools.h"
#include "runtime/HostRange.h"
#include "llvm/ADT/StringExtras.h"
#include <cmath>

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

namespace {

class Loader {
public:
  Loader(const Program &program, const KernelOptions &options)
      : options(options), kernel(std::make_shared<Kernel::State>()), diags(program.internals()->sources) {
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

private:
  const KernelOptions &options;
  std::shared_ptr<Kernel::State> kernel;
  Diagnostics diags;

  const SafetensorsFile &weights() const { return *kernel->program->compiled.models.front().weights; }

  /// Whether the program is one that can run there.
  bool runs() {
    const Program::State &program = *kernel->program;
    if (!canRun(program, diags))
      return false;
    if (!program.options.needWeights)
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

  bool loadOnCuda() {
    driver::CompileOptions how = kernel->program->options;
    const runtime::DeviceInfo &info = kernel->gpu->info();
    if (!how.profileGiven)
      chooseProfile(how, info);
    if (!plan(how))
      return false;
    const DriverLinker linker(kernel->gpu->driver());
    auto assembled = [&] {
      const runtime::HostRange range(runtime::HostStep::Compile);
      return driver::assemble(unitsOf(kernel->source),
                              {.arch = runtime::archFor(info), .whole = options.wholeKernel, .linker = &linker}, diags);
    }();
    if (!assembled)
      return false;
    kernel->compileMs = assembled->milliseconds;
    kernel->cacheHit = assembled->cacheHit;
    kernel->how = assembled->how;
    tell(options.progress, "loading the weights");
    auto engine = runtime::Engine::load(*kernel->gpu, assembled->cubin, kernel->source.manifest, weights());
    if (!engine) {
      reportRuntime(diags, engine.error);
      return false;
    }
    kernel->cuda = std::move(*engine.value);
    kernel->loadMs = kernel->cuda->loadMs();
    return true;
  }

  bool loadOnCpu() {
    driver::CompileOptions how = kernel->program->options;
    if (!how.profileGiven)
      how.profile = cpuProfile;
    if (!plan(how))
      return false;
    kernel->checked = options.check;
    auto assembled = [&] {
      const runtime::HostRange range(runtime::HostStep::Compile);
      return driver::assembleHost(unitsOf(kernel->source),
                                  {.checked = options.check, .arch = options.cpuArch, .whole = options.wholeKernel},
                                  diags);
    }();
    if (!assembled)
      return false;
    kernel->compileMs = assembled->milliseconds;
    kernel->cacheHit = assembled->cacheHit;
    kernel->how = assembled->how;
    const std::lock_guard<std::mutex> lock(cpuMutex());
    auto engine = cpu::CpuEngine::load(assembled->path, kernel->source.manifest, weights());
    if (!engine) {
      reportRuntime(diags, engine.error);
      return false;
    }
    kernel->cpu = std::move(*engine.value);
    kernel->loadMs = kernel->cpu->loadMs();
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
double Kernel::loadMilliseconds() const { return state->loadMs; }
std::optional<bool> Kernel::cacheHit() const { return state->cacheHit; }
std::string Kernel::how() const { return state->how; }

Status tools::findGpu() {
  return guarded<Done>([]() -> Status {
    auto opened = openGpu(0);
    if (opened)
      return Done();
    return failure(diagByKebab(opened.error.kind), opened.error.message);
  });
}

} // namespace megalith
