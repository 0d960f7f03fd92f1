#include "runtime/CallEngine.h"

namespace megalith::runtime {

Outcome<std::unique_ptr<CallEngine>> CallEngine::load(Device &device, std::string_view cubin,
                                                      const std::string &manifest) {
  std::unique_ptr<CallEngine> engine(new CallEngine(device));
  auto info = CallManifest::parse(manifest);
  if (!info)
    return info.error;
  engine->info = std::move(*info);
  const Driver &driver = device.driver();
  auto module = Module::load(driver, cubin);
  if (!module)
    return module.error;
  engine->module.emplace(std::move(*module));
  auto kernel = engine->module->function("megalith_call");
  if (!kernel)
    return kernel.error;
  engine->kernel = *kernel;
  const auto most = static_cast<int>(abi::kCallSharedBytes +
                                     std::max<int64_t>(4 * engine->info.sortWords, 8 * abi::kCallScanNumbers));
  if (Failure f = driver.check(
          "cuFuncSetAttribute",
          driver.cuFuncSetAttribute(engine->kernel, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, most)))
    return *f;
  int each = 1;
  if (Failure f = driver.check("cuOccupancyMaxActiveBlocksPerMultiprocessor",
                               driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(
                                   &each, engine->kernel, abi::kCallThreads, abi::kCallSharedBytes)))
    return *f;
  engine->calls.emplace(engine->info, int64_t(device.info().smCount) * std::max(1, each));
  auto counters = DeviceBuffer::allocate(driver, kCounters * kCountersStride);
  if (!counters)
    return counters.error;
  engine->counters = std::move(*counters);
  auto status = DeviceBuffer::allocate(driver, sizeof(abi::CallStatus));
  if (!status)
    return status.error;
  engine->status = std::move(*status);
  auto stream = Stream::create(driver);
  if (!stream)
    return stream.error;
  for (const DeviceBuffer *buffer : {&engine->counters, &engine->status})
    if (Failure f = buffer->fill(*stream, 0))
      return *f;
  if (Failure f = stream->synchronize())
    return *f;
  return engine;
}

Outcome<abi::CallCounters *> CallEngine::countersOf(CUstream stream) {
  const Driver &driver = device.driver();
  int capturing = 0;
  if (Failure f = driver.check("cuStreamIsCapturing", driver.cuStreamIsCapturing(stream, &capturing)))
    return *f;
  size_t number = taken;
  if (!capturing) {
    unsigned long long id = 0;
    if (Failure f = driver.check("cuStreamGetId", driver.cuStreamGetId(stream, &id)))
      return *f;
    number = ofStream.try_emplace(id, taken).first->second;
  }
  if (number >= kCounters)
    return RuntimeError{"cuda-driver", "the kernel was called on more streams, and captured more often, than the " +
                                           std::to_string(kCounters) + " that it keeps apart; load it again"};
  taken = std::max(taken, number + 1);
  return reinterpret_cast<abi::CallCounters *>(counters.address() + number * kCountersStride);
}

Failure CallEngine::launch(CUstream stream) {
  const Driver &driver = device.driver();
  if (calls->launches().empty()) // there is no item
    return std::nullopt;
  const auto own = countersOf(stream);
  if (!own)
    return own.error;
  ++serial;
  for (const CallImage::Launch &launch : calls->launches()) {
    void *arguments[] = {calls->paramsOf(launch, *own, reinterpret_cast<abi::CallStatus *>(status.address()), serial)};
    if (Failure f =
            driver.check("cuLaunchKernel", driver.cuLaunchKernel(kernel, launch.ctas, 1, 1, abi::kCallThreads, 1, 1,
                                                                 calls->sharedBytes(), stream, arguments, nullptr)))
      return f;
  }
  return std::nullopt;
}

Outcome<std::optional<CallFault>> CallEngine::runOnHost(std::span<const CallBuffer> buffers, bool perStage) {
  const Driver &driver = device.driver();
  auto stream = Stream::create(driver);
  if (!stream)
    return stream.error;
  std::vector<DeviceBuffer> memory;
  std::vector<CallBuffer> inside(buffers.begin(), buffers.end());
  for (size_t b = 0; b < buffers.size(); ++b) {
    const auto bytes = static_cast<size_t>(calls->bytesOf(b));
    auto own = DeviceBuffer::allocate(driver, bytes);
    if (!own)
      return own.error;
    if (bytes > 0)
      if (Failure f = own->copyFrom(*stream, buffers[b].data, bytes))
        return *f;
    inside[b].data = reinterpret_cast<void *>(own->address());
    memory.push_back(std::move(*own));
  }
  if (calls->prepare(inside, perStage))
    return RuntimeError{"cuda-driver", "the memory that the driver gave cannot be used for the call"};
  if (Failure f = launch(stream->get()))
    return *f;
  for (size_t b = 0; b < buffers.size(); ++b)
    if (info.buffers[b].written && calls->bytesOf(b) > 0)
      if (Failure f = memory[b].copyTo(*stream, buffers[b].data, static_cast<size_t>(calls->bytesOf(b))))
        return *f;
  return check(stream->get());
}

Outcome<std::optional<CallFault>> CallEngine::check(CUstream stream) {
  const Driver &driver = device.driver();
  abi::CallStatus seen = {};
  const auto step = [&](const char *name, CUresult result) { return driver.check(name, result); };
  if (Failure f = step("cuMemcpyDtoHAsync", driver.cuMemcpyDtoHAsync(&seen, status.address(), sizeof(seen), stream)))
    return *f;
  if (Failure f = step("cuStreamSynchronize", driver.cuStreamSynchronize(stream)))
    return *f;
  if (seen.fault == 0)
    return std::optional<CallFault>();
  if (Failure f = step("cuMemsetD8Async", driver.cuMemsetD8Async(status.address(), 0, sizeof(seen), stream)))
    return *f;
  if (Failure f = step("cuStreamSynchronize", driver.cuStreamSynchronize(stream)))
    return *f;
  return std::optional(
      CallFault{static_cast<unsigned>(seen.fault), {seen.numbers[0], seen.numbers[1], seen.numbers[2]}});
}

} // namespace megalith::runtime
