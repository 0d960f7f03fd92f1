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

#include "megalith/Checkpoint/SafetensorsFile.h"
#include "megalith/Checkpoint/Trace.h"
#include "runtime/DriverObjects.h"
#include "runtime/Manifest.h"
#include <memory>

namespace megalith::runtime {

/// One request; the same members as the reference executor's.
struct RunRequest {
  std::string id;
  std::vector<int32_t> tokens; ///< the prompt; not empty, every id below the vocabulary
  int64_t maxNewTokens = 0;
  std::vector<int32_t> eos;
  int32_t priority = 0;
};

/// Test hook: the field's 4-byte word (or `state`) of a request becomes `value` at `tick`.
struct RunCorruption {
  int64_t tick;
  int32_t request;
  std::string field;
  int64_t value;
};

struct RunOptions {
  int64_t maxTicks = 0;                  ///< 0 = no limit
  std::optional<uint64_t> shufflePages;  ///< order of the free list (PageOrder.h)
  bool trace = false;
  size_t traceBytes = 64 << 20;
  bool kvHash = false;                   ///< with trace: hash every row's K and V
  bool logits = false;                   ///< keep the row of logits behind each generated token
  double watchdogSeconds = 10;           ///< 0 = off
  uint32_t delaySeed = 0;                ///< random delays before waits
  std::vector<std::vector<int32_t>> oracleDrafts; ///< per request, instead of looking up
  std::vector<RunCorruption> corruptions;
};

struct RunOutcome {
  std::vector<TraceRequest> requests; ///< id, generated tokens, finish, fault
  struct Counts {
    int64_t passes, rows;
  };
  std::vector<Counts> counts;         ///< per request
  std::vector<std::vector<float>> logits; ///< per request [generated][vocab] when wanted
  Trace trace;                        ///< when wanted
  int64_t traceDropped = 0;           ///< records that did not fit
  std::map<std::string, int64_t> metrics;
  int64_t ticks = 0, passes = 0, rows = 0;
  double kernelMs = 0;
  /// Set when the watchdog stopped the kernel: CTA, edge, tick, and what the edge is.
  struct Stop {
    int cta, edge, tick;
    std::string name, place;
  };
  std::optional<Stop> stop;
};

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

  Device &device;
  Manifest info;
  std::optional<Module> module;
  std::optional<Stream> stream;
  CUfunction runKernel = nullptr, packKernel = nullptr;
  DeviceBuffer raw, pointers, packed, workspace, keys, values;
  double loadTime = 0;
};

/// Words that control wrote on the device (device/Abi.h, "Trace words") to a trace.
Outcome<Trace> decodeTrace(const Manifest &manifest, const std::vector<RunRequest> &requests,
                           const unsigned *words, size_t count);

} // namespace megalith::runtime
#endif
