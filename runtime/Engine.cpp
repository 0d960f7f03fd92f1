#include "runtime/Engine.h"
#include "runtime/HostRange.h"
#include "runtime/Memory.h"
#include "runtime/Try.h"
#include "runtime/UnitFacts.h"
#include <algorithm>
#include <chrono>
#include <cstring>

namespace megalith::runtime {

static double millisecondsSince(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

Outcome<std::unique_ptr<Engine>> Engine::load(Device &device, std::string_view cubin, const std::string &manifest,
                                              const Checkpoints &weights, const LoadOptions &how) {
  const HostRange range(HostStep::Load);
  auto begin = std::chrono::steady_clock::now();
  auto engine = open(device, cubin, manifest);
  if (!engine)
    return engine;
  TRY((*engine)->upload(weights, how));
  (*engine)->loadTime = millisecondsSince(begin);
  return engine;
}

Outcome<std::unique_ptr<Engine>> Engine::loadRandom(Device &device, std::string_view cubin, const std::string &manifest,
                                                    const LoadOptions &how) {
  const HostRange range(HostStep::Load);
  auto begin = std::chrono::steady_clock::now();
  auto engine = open(device, cubin, manifest);
  if (!engine)
    return engine;
  TRY((*engine)->makeRandom(how));
  (*engine)->loadTime = millisecondsSince(begin);
  return engine;
}

Outcome<std::unique_ptr<Engine>> Engine::open(Device &device, std::string_view cubin, const std::string &manifest) {
  std::unique_ptr<Engine> engine(new Engine(device));
  auto info = Manifest::parse(manifest);
  if (!info)
    return info.error;
  engine->info = std::move(*info);
  const Manifest &m = engine->info;
  const DeviceInfo &gpu = device.info();
  if (gpu.smCount < m.ctas || gpu.sharedPerBlockOptin < static_cast<size_t>(m.sharedBytes) || !gpu.cooperative)
    return RuntimeError{"plan-mismatch", "the kernel was planned for " + std::to_string(m.ctas) + " CTAs with " +
                                             std::to_string(m.sharedBytes) + " bytes of shared memory (`" + m.profile +
                                             "`), but this device has " + std::to_string(gpu.smCount) + " SMs and " +
                                             std::to_string(gpu.sharedPerBlockOptin) +
                                             " bytes; compile with `--plan ctas=" + std::to_string(gpu.smCount) +
                                             "` or another `--device-profile`"};
  const Driver &driver = device.driver();
  auto stream = Stream::create(driver);
  if (!stream)
    return stream.error;
  engine->stream.emplace(std::move(*stream.value));
  auto module = Module::load(driver, cubin);
  if (!module)
    return module.error;
  engine->module.emplace(std::move(*module.value));
  UnitFacts control = {}, tensors = {};
  TRY(engine->module->read(*engine->stream, kControlFacts, &control, sizeof control));
  TRY(engine->module->read(*engine->stream, kTensorFacts, &tensors, sizeof tensors));
  TRY(checkUnits(control, tensors));
  auto run = engine->module->function("megalith_run"), pack = engine->module->function("megalith_pack");
  if (!run)
    return run.error;
  if (!pack)
    return pack.error;
  engine->runKernel = *run;
  engine->packKernel = *pack;
  TRY(driver.check("cuFuncSetAttribute",
                   driver.cuFuncSetAttribute(engine->runKernel, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                             static_cast<int>(m.sharedBytes))));
  return engine;
}

Outcome<DeviceBuffer> Engine::place(const LaunchBuffer &buffer, size_t least, abi::HostParams &params) {
  auto memory = DeviceBuffer::allocate(device.driver(), std::max(buffer.bytes, least));
  if (!memory)
    return memory;
  TRY(buffer.image.empty() ? memory->fill(*stream, 0) : memory->copyFrom(*stream, buffer.image.data(), buffer.bytes));
  buffer.bind(params, reinterpret_cast<const void *>(memory->address()));
  return memory;
}

Failure Engine::launchPlain(const Stream &on, CUfunction kernel, unsigned ctas, unsigned threads, size_t shared,
                            void **arguments) {
  const Driver &driver = device.driver();
  return driver.check("cuLaunchKernel",
                      driver.cuLaunchKernel(kernel, ctas, 1, 1, threads, 1, 1, static_cast<unsigned>(shared), on.get(),
                                            arguments, nullptr));
}

} // namespace megalith::runtime
