//===- CallEngine.h - calls a kernel of a pipeline of buffers on a GPU -----===//
//
// A call is one launch on the caller's stream. It allocates nothing and waits for nothing.
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_RUNTIME_CALLENGINE_H
#define MEGALITH_RUNTIME_CALLENGINE_H

#include "runtime/CallManifest.h"
#include "runtime/DriverObjects.h"
#include <memory>
#include <string_view>
#include <unordered_map>

namespace megalith::runtime {

/// The first fault of calls that have run.
struct CallFault {
  unsigned word; ///< as RequestHeader::fault
  int numbers[3];
};

class CallEngine {
public:
  /// `cuda-driver`, `manifest`, `gpu-out-of-memory`.
  static Outcome<std::unique_ptr<CallEngine>> load(Device &device, std::string_view cubin, const std::string &manifest);
  CallEngine(const CallEngine &) = delete;

  const CallManifest &manifest() const { return info; }
  CallImage &image() { return *calls; }

  /// Launches what image() has prepared. Calls of one stream run one after the other. A call that is captured into a
  /// graph has counters of its own, so that graphs may run beside each other and beside other calls.
  Failure launch(CUstream stream);

  /// One call with buffers of the host, for which image() was prepared: they are copied, and it has ended then.
  Outcome<std::optional<CallFault>> runOnHost(std::span<const CallBuffer> buffers, bool perStage);

  /// Waits for the stream and tells the first fault since it was asked last.
  Outcome<std::optional<CallFault>> check(CUstream stream);

private:
  explicit CallEngine(Device &device) : device(device) {}
  Outcome<abi::CallCounters *> countersOf(CUstream stream);

  /// Streams, and calls that are captured into graphs, in the life of a kernel.
  static constexpr size_t kCounters = 8192;
  /// Each in a line of its own.
  static constexpr size_t kCountersStride = 128;

  Device &device;
  CallManifest info;
  std::optional<CallImage> calls;
  std::optional<Module> module;
  CUfunction kernel = nullptr;
  DeviceBuffer counters, status;
  std::unordered_map<unsigned long long, size_t> ofStream; ///< by the stream's id
  CUstream lastStream = nullptr;
  size_t taken = 0;
  unsigned serial = 0;
};

} // namespace megalith::runtime
#endif
