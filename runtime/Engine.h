//===- Engine.h - loads a compiled pipeline and runs requests -------------===//
//
//   auto driver = Driver::open();
//   auto device = Device::open(**driver);
//   auto engine = Engine::load(*device, cubin, manifestJson, weights);
//   auto result = (*engine)->run(requests, {});
//
// load() uploads and packs the weights once. run() is one cooperative launch and
// one synchronisation, whatever the number of requests and tokens.
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_RUNTIME_ENGINE_H
#define MEGALITH_RUNTIME_ENGINE_H

#include "runtime/DriverObjects.h"
#include "runtime/LaunchImage.h"
#include <memory>

namespace megalith::runtime {

class Engine {
public:
  /// `plan-mismatch` when the kernel was planned for more SMs or shared memory
  /// than the device has; `weight-missing` when a tensor is absent.
  static Outcome<std::unique_ptr<Engine>> load(Device &device, std::string_view cubin,
                                               const std::string &manifest, const SafetensorsFile &weights);
  const Manifest &manifest() const { return info; }
  /// Milliseconds of uploading and packing.
  double loadMs() const { return loadTime; }

  Outcome<RunOutcome> run(const std::vector<RunRequest> &requests, const RunOptions &options);

private:
  Engine(Device &device) : device(device) {}
  Failure upload(const SafetensorsFile &weights);
  /// Memory for `buffer` with its first content; `params` points to it.
  Outcome<DeviceBuffer> place(const LaunchBuffer &buffer, size_t least, abi::LaunchParams &params);
  Failure launch(abi::LaunchParams &params);

  Device &device;
  Manifest info;
  std::optional<Module> module;
  std::optional<Stream> stream;
  CUfunction runKernel = nullptr, packKernel = nullptr;
  DeviceBuffer raw, pointers, packed;
  std::vector<DeviceBuffer> lasting; ///< of lastingBuffers()
  unsigned launches = 0;             ///< of the resident kernel
  double loadTime = 0;
};

} // namespace megalith::runtime
#endif
