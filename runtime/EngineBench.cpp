// What a benchmark's engine does beside running: the read stream. (Random weights: EngineWeights.cpp.)
#include "runtime/CudaError.h"
#include "runtime/Engine.h"
#include "runtime/Try.h"
#include <algorithm>

namespace megalith::runtime {

/// As device/Bench.cuh has it.
constexpr size_t kReadChunk = 16384;
constexpr size_t kReadStages = 12;

Failure Engine::fill(const Stream &on, CUdeviceptr memory, uint64_t first, uint64_t elements, const Fill &how) {
  uint32_t seed = how.seed;
  float scale = how.scale, mean = how.mean;
  void *arguments[] = {&memory, &first, &elements, &seed, &scale, &mean};
  return launchPlain(on, fillKernel, device.info().smCount * 8, 256, 0, arguments);
}

Failure Engine::findBench() {
  auto fillFunction = module->function("megalith_fill"), readFunction = module->function("megalith_read");
  if (!fillFunction)
    return fillFunction.error;
  if (!readFunction)
    return readFunction.error;
  fillKernel = *fillFunction;
  readKernel = *readFunction;
  return std::nullopt;
}

Outcome<double> Engine::readBandwidth() {
  const Driver &driver = device.driver();
  const bool bulk = device.info().major >= 9;
  const size_t room = device.info().sharedPerBlockOptin;
  uint32_t stages = static_cast<uint32_t>(std::clamp<size_t>((room - 1024) / kReadChunk, 1, kReadStages));
  const size_t shared = bulk ? stages * (kReadChunk + 8) : 0;
  const unsigned ctas = device.info().smCount;
  if (!readSource.size()) {
    TRY(findBench());
    size_t free = 0, total = 0;
    TRY(driver.check("cuMemGetInfo", driver.cuMemGetInfo(&free, &total)));
    auto source = DeviceBuffer::allocate(driver, std::min<size_t>(2ull << 30, free / 2) / kReadChunk * kReadChunk);
    if (!source)
      return source.error;
    if (!source->size())
      return gpuOutOfMemory(kReadChunk, free);
    auto sum = DeviceBuffer::allocate(driver, 16);
    if (!sum)
      return sum.error;
    readSource = std::move(*source.value);
    readSum = std::move(*sum.value);
    TRY(driver.check("cuFuncSetAttribute",
                     driver.cuFuncSetAttribute(readKernel, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                               static_cast<int>(shared))));
    TRY(fill(*stream, readSource.address(), 0, readSource.size() / 2,
             {1, 1, 0})); // what compresses might be read faster
    TRY(readSum.fill(*stream, 0));
  }
  auto start = Event::create(driver), end = Event::create(driver);
  if (!start)
    return start.error;
  if (!end)
    return end.error;
  CUdeviceptr from = readSource.address(), sum = readSum.address();
  uint32_t chunks = static_cast<uint32_t>(readSource.size() / kReadChunk), passes = 1;
  void *arguments[] = {&from, &chunks, &passes, &stages, &sum};
  TRY(launchPlain(*stream, readKernel, ctas, 256, shared, arguments)); // clocks and TLBs get ready
  passes = 4;
  TRY(start->record(*stream));
  TRY(launchPlain(*stream, readKernel, ctas, 256, shared, arguments));
  TRY(end->record(*stream));
  TRY(stream->synchronize());
  auto ms = end->millisecondsSince(*start);
  if (!ms)
    return ms.error;
  return double(chunks) * kReadChunk * passes / (*ms * 1e-3);
}

} // namespace megalith::runtime
