#include "runtime/DriverObjects.h"
#include <cassert>

namespace megalith::runtime {

Outcome<Stream> Stream::create(const Driver &driver) {
  CUstream stream = nullptr;
  if (Failure f = driver.check("cuStreamCreate", driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING)))
    return *f;
  Stream out;
  out.handle = {driver, stream};
  return out;
}

Failure Stream::synchronize() const {
  const Driver &driver = handle.driver();
  return driver.check("cuStreamSynchronize", driver.cuStreamSynchronize(get()));
}

Outcome<bool> Stream::done() const {
  const Driver &driver = handle.driver();
  CUresult result = driver.cuStreamQuery(get());
  if (result == CUDA_ERROR_NOT_READY)
    return false;
  if (Failure f = driver.check("cuStreamQuery", result))
    return *f;
  return true;
}

Outcome<Event> Event::create(const Driver &driver) {
  CUevent event = nullptr;
  if (Failure f = driver.check("cuEventCreate", driver.cuEventCreate(&event, 0)))
    return *f;
  Event out;
  out.handle = {driver, event};
  return out;
}

Failure Event::record(const Stream &stream) const {
  const Driver &driver = handle.driver();
  return driver.check("cuEventRecord", driver.cuEventRecord(handle.get(), stream.get()));
}

Failure Event::synchronize() const {
  const Driver &driver = handle.driver();
  return driver.check("cuEventSynchronize", driver.cuEventSynchronize(handle.get()));
}

Outcome<float> Event::millisecondsSince(const Event &start) const {
  const Driver &driver = handle.driver();
  float milliseconds = 0;
  if (Failure f = driver.check("cuEventElapsedTime",
                               driver.cuEventElapsedTime(&milliseconds, start.handle.get(), handle.get())))
    return *f;
  return milliseconds;
}

Outcome<DeviceBuffer> DeviceBuffer::allocate(const Driver &driver, size_t bytes) {
  DeviceBuffer out;
  if (bytes == 0)
    return out;
  CUdeviceptr pointer = 0;
  CUresult result = driver.cuMemAlloc(&pointer, bytes);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) {
    size_t free = 0, total = 0;
    driver.cuMemGetInfo(&free, &total);
    return gpuOutOfMemory(bytes, free);
  }
  if (Failure f = driver.check("cuMemAlloc", result))
    return *f;
  out.handle = {driver, pointer};
  out.bytes = bytes;
  return out;
}

Failure DeviceBuffer::fill(const Stream &stream, unsigned char value) const {
  if (bytes == 0)
    return std::nullopt;
  const Driver &driver = handle.driver();
  return driver.check("cuMemsetD8Async", driver.cuMemsetD8Async(address(), value, bytes, stream.get()));
}

Failure DeviceBuffer::copyFrom(const Stream &stream, const void *source, size_t count, size_t offset) const {
  assert(offset <= bytes && count <= bytes - offset && "copy outside the buffer");
  if (count == 0)
    return std::nullopt;
  const Driver &driver = handle.driver();
  return driver.check("cuMemcpyHtoDAsync", driver.cuMemcpyHtoDAsync(address() + offset, source, count, stream.get()));
}

Failure DeviceBuffer::copyTo(const Stream &stream, void *target, size_t count, size_t offset) const {
  assert(offset <= bytes && count <= bytes - offset && "copy outside the buffer");
  if (count == 0)
    return std::nullopt;
  const Driver &driver = handle.driver();
  return driver.check("cuMemcpyDtoHAsync", driver.cuMemcpyDtoHAsync(target, address() + offset, count, stream.get()));
}

Outcome<PinnedBuffer> PinnedBuffer::allocate(const Driver &driver, size_t bytes) {
  PinnedBuffer out;
  if (bytes == 0)
    return out;
  void *pointer = nullptr;
  if (Failure f =
          driver.check("cuMemHostAlloc",
                       driver.cuMemHostAlloc(&pointer, bytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP)))
    return *f;
  out.handle = {driver, pointer};
  out.bytes = bytes;
  if (Failure f =
          driver.check("cuMemHostGetDevicePointer", driver.cuMemHostGetDevicePointer(&out.deviceAddress, pointer, 0)))
    return *f;
  return out;
}

Outcome<KernelGraph> KernelGraph::create(const Driver &driver, CUfunction kernel, unsigned ctas, unsigned threads,
                                         unsigned sharedBytes, void **arguments) {
  KernelGraph out;
  CUgraph graph = nullptr;
  if (Failure f = driver.check("cuGraphCreate", driver.cuGraphCreate(&graph, 0)))
    return *f;
  out.graph = {driver, graph};
  const CUDA_KERNEL_NODE_PARAMS parameters = {kernel, ctas,        1,         1,       threads, 1,
                                              1,      sharedBytes, arguments, nullptr, nullptr, nullptr};
  CUgraphNode node = nullptr;
  if (Failure f =
          driver.check("cuGraphAddKernelNode", driver.cuGraphAddKernelNode(&node, graph, nullptr, 0, &parameters)))
    return *f;
  CUlaunchAttributeValue cooperative = {};
  cooperative.cooperative = 1;
  if (Failure f =
          driver.check("cuGraphKernelNodeSetAttribute",
                       driver.cuGraphKernelNodeSetAttribute(node, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &cooperative)))
    return *f;
  CUgraphExec executable = nullptr;
  if (Failure f = driver.check("cuGraphInstantiate", driver.cuGraphInstantiate(&executable, graph, 0)))
    return *f;
  out.executable = {driver, executable};
  return out;
}

Failure KernelGraph::launch(const Stream &stream) const {
  const Driver &driver = executable.driver();
  return driver.check("cuGraphLaunch", driver.cuGraphLaunch(executable.get(), stream.get()));
}

Outcome<Module> Module::load(const Driver &driver, std::string_view cubin) {
  CUmodule module = nullptr;
  if (Failure f = driver.check("cuModuleLoadData", driver.cuModuleLoadData(&module, cubin.data())))
    return *f;
  Module out;
  out.handle = {driver, module};
  return out;
}

Outcome<CUfunction> Module::function(const char *name) const {
  const Driver &driver = handle.driver();
  CUfunction function = nullptr;
  if (Failure f = driver.check("cuModuleGetFunction", driver.cuModuleGetFunction(&function, handle.get(), name)))
    return RuntimeError{f->kind, f->message + " (looking for `" + name + "`)"};
  return function;
}

Failure Module::read(const Stream &stream, const char *name, void *target, size_t bytes) const {
  const Driver &driver = handle.driver();
  CUdeviceptr address = 0;
  size_t there = 0;
  if (Failure f = driver.check("cuModuleGetGlobal", driver.cuModuleGetGlobal(&address, &there, handle.get(), name)))
    return RuntimeError{f->kind, f->message + " (looking for `" + name + "`)"};
  if (there != bytes)
    return RuntimeError{"kernel-units", "`" + std::string(name) + "` of the kernel has " + std::to_string(there) +
                                            " bytes, this runtime reads " + std::to_string(bytes) +
                                            "; compile the pipeline again"};
  if (Failure f = driver.check("cuMemcpyDtoHAsync", driver.cuMemcpyDtoHAsync(target, address, bytes, stream.get())))
    return f;
  return stream.synchronize();
}

Outcome<std::string> linkCubins(const Driver &driver,
                                const std::vector<std::pair<std::string, std::string_view>> &cubins) {
  std::vector<char> log(1 << 14, 0);
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void *values[] = {log.data(), reinterpret_cast<void *>(log.size())};
  CUlinkState state = nullptr;
  if (Failure f = driver.check("cuLinkCreate", driver.cuLinkCreate(2, options, values, &state)))
    return *f;
  Failure failed;
  for (const auto &[name, cubin] : cubins)
    if (!failed)
      failed = driver.check("cuLinkAddData",
                            driver.cuLinkAddData(state, CU_JIT_INPUT_CUBIN, const_cast<char *>(cubin.data()),
                                                 cubin.size(), name.c_str(), 0, nullptr, nullptr));
  void *linked = nullptr;
  size_t bytes = 0;
  if (!failed)
    failed = driver.check("cuLinkComplete", driver.cuLinkComplete(state, &linked, &bytes));
  std::string code; // it is the state's until that goes
  if (!failed)
    code.assign(static_cast<const char *>(linked), bytes);
  (void)driver.cuLinkDestroy(state);
  log.back() = 0;
  if (failed)
    return RuntimeError{failed->kind, failed->message + (log.front() ? std::string(": ") + log.data() : "")};
  return code;
}

} // namespace megalith::runtime
