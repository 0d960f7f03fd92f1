//===- Engine.h - loads a compiled pipeline and runs requests -------------===//
//
//   auto driver = Driver::open();
//   auto device = Device::open(**driver);
//   auto engine = Engine::load(*device, cubin, manifestJson, weights);
//   auto result = (*engine)->run(requests, {});
//
// load() uploads and packs the weights once; the checkpoint itself does not stay on the device. run() is one
// cooperative launch and one synchronisation, whatever the number of requests and tokens, unless RunOptions has another
// `control` or a number of ticks per launch.
//
// A kernel that has device/Bench.cuh as a third unit needs no weights: loadRandom() makes
// them on the device. readBandwidth() needs that unit, too.
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_RUNTIME_ENGINE_H
#define MEGALITH_RUNTIME_ENGINE_H

#include "runtime/DriverObjects.h"
#include "runtime/LaunchImage.h"
#include "runtime/Live.h"
#include "runtime/Weights.h"
#include <memory>

namespace megalith::runtime {

class Engine {
public:
  /// `plan-mismatch` when the kernel was planned for more SMs or shared memory
  /// than the device has; `weight-missing` when a tensor is absent, `input-changed` when
  /// a file of weights changed meanwhile.
  static Outcome<std::unique_ptr<Engine>> load(Device &device, std::string_view cubin, const std::string &manifest,
                                               const Checkpoints &weights, const LoadOptions &how = {});
  /// With random weights, K and V.
  static Outcome<std::unique_ptr<Engine>> loadRandom(Device &device, std::string_view cubin,
                                                     const std::string &manifest, const LoadOptions &how = {});
  const Manifest &manifest() const { return info; }
  /// Milliseconds of uploading and packing.
  double loadMs() const { return loadTime; }
  WeightBytes weightBytes() const {
    WeightBytes bytes = {loadedBytes, 0, 0};
    for (const ModelMemory &model : models) {
      bytes.packed += model.packed.size();
      bytes.byRow += model.rows.size();
    }
    return bytes;
  }

  Outcome<RunOutcome> run(const std::vector<Request> &requests, const RunOptions &options);

  /// A kernel that takes requests while it runs. The engine must outlive it, and runs nothing else meanwhile.
  Outcome<std::unique_ptr<LiveRun>> openLive(const LiveTable &table, const RunOptions &options);

  /// Bytes per second at which one CTA per SM reads device memory, of `megalith_read` on a
  /// buffer of 2 GiB (or of half of the free memory) that the first call makes. One launch.
  Outcome<double> readBandwidth();

private:
  class Interrupter;
  friend class CudaRun;
  Engine(Device &device) : device(device) {}
  /// Everything but the weights.
  static Outcome<std::unique_ptr<Engine>> open(Device &device, std::string_view cubin, const std::string &manifest);
  Outcome<RunOutcome> runWithin(const std::vector<Request> &requests, const RunOptions &options);
  struct Staging;
  Failure makeRoom(const std::vector<WeightBatches> &batches);
  Failure makeRoom(size_t model, const std::vector<WeightTensor> &tensors);
  Failure upload(const Checkpoints &weights, const LoadOptions &how);
  Failure upload(size_t model, const SafetensorsFile &weights, const WeightBatches &batches, uint64_t total,
                 const LoadOptions &how);
  Failure findBench();
  Failure makeRandom(const LoadOptions &how);
  Failure pack(size_t model, const Staging &staging);
  /// Makes elements `first` to `first + elements` of a tensor at `memory`.
  Failure fill(const Stream &on, CUdeviceptr memory, uint64_t first, uint64_t elements, const Fill &how);
  Failure launchPlain(const Stream &on, CUfunction kernel, unsigned ctas, unsigned threads, size_t shared,
                      void **arguments);
  /// Memory for `buffer` with its first content; `params` points to it.
  Outcome<DeviceBuffer> place(const LaunchBuffer &buffer, size_t least, abi::HostParams &params);

  Device &device;
  Manifest info;
  std::optional<Module> module;
  std::optional<Stream> stream;
  CUfunction runKernel = nullptr, packKernel = nullptr;
  CUfunction fillKernel = nullptr, readKernel = nullptr; ///< of a benchmark
  /// What of a model stays on the device.
  struct ModelMemory {
    DeviceBuffer packed;         ///< the weights as the kernel streams them
    DeviceBuffer rows, pointers; ///< weights of which single rows are read, and the table of ModelParams::weights
  };
  std::vector<ModelMemory> models;
  std::vector<DeviceBuffer> lasting; ///< of lastingBuffers()
  DeviceBuffer readSource, readSum;  ///< of readBandwidth()
  double loadTime = 0;
  uint64_t loadedBytes = 0;
};

} // namespace megalith::runtime
#endif
