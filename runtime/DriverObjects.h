//===- DriverObjects.h - owners of what the driver gives ------------------===//
//
// Each object frees what it owns when destroyed, can be moved and not copied, and
// must not outlive the Device whose context was current when it was made.
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_RUNTIME_DRIVEROBJECTS_H
#define MEGALITH_RUNTIME_DRIVEROBJECTS_H

#include "runtime/Driver.h"
#include <string_view>
#include <utility>
#include <vector>

namespace megalith::runtime {

/// Owns one handle and gives it back with `Destroy`, a member of Driver.
template <class Handle, CUresult (*Driver::*Destroy)(Handle)> class Owned {
public:
  Owned() = default;
  Owned(const Driver &driver, Handle handle) : api(&driver), value(handle) {}
  Owned(Owned &&other) noexcept : api(std::exchange(other.api, nullptr)), value(std::exchange(other.value, Handle())) {}
  Owned &operator=(Owned &&other) noexcept {
    std::swap(api, other.api);
    std::swap(value, other.value);
    return *this;
  }
  ~Owned() {
    if (api)
      (api->*Destroy)(value);
  }
  const Driver &driver() const { return *api; }
  Handle get() const { return value; }

private:
  const Driver *api = nullptr;
  Handle value = Handle();
};

/// Order of work on the device.
class Stream {
public:
  static Outcome<Stream> create(const Driver &driver);
  CUstream get() const { return handle.get(); }
  Failure synchronize() const;
  /// Whether all work is done, without waiting.
  Outcome<bool> done() const;

private:
  Owned<CUstream, &Driver::cuStreamDestroy> handle;
};

/// A point in a stream, with its time.
class Event {
public:
  static Outcome<Event> create(const Driver &driver);
  Failure record(const Stream &stream) const;
  Failure synchronize() const;
  /// Milliseconds from `start` to this event; both must have happened.
  Outcome<float> millisecondsSince(const Event &start) const;

private:
  Owned<CUevent, &Driver::cuEventDestroy> handle;
};

/// Device memory, aligned to 256 bytes.
class DeviceBuffer {
public:
  DeviceBuffer() = default;
  /// `gpu-out-of-memory` says how much was needed and free. 0 bytes give an empty
  /// buffer whose address is 0.
  static Outcome<DeviceBuffer> allocate(const Driver &driver, size_t bytes);
  CUdeviceptr address() const { return handle.get(); }
  size_t size() const { return bytes; }

  /// All three run in stream order and check that they stay inside the buffer.
  /// The host memory must stay as it is until the stream has passed the copy.
  Failure fill(const Stream &stream, unsigned char value) const;
  Failure copyFrom(const Stream &stream, const void *source, size_t count, size_t offset = 0) const;
  Failure copyTo(const Stream &stream, void *target, size_t count, size_t offset = 0) const;

private:
  Owned<CUdeviceptr, &Driver::cuMemFree> handle;
  size_t bytes = 0;
};

/// Page-locked host memory that the device can read and write in place.
class PinnedBuffer {
public:
  PinnedBuffer() = default;
  static Outcome<PinnedBuffer> allocate(const Driver &driver, size_t bytes);
  void *data() const { return handle.get(); }
  /// Where the device finds it.
  CUdeviceptr address() const { return deviceAddress; }
  size_t size() const { return bytes; }

private:
  Owned<void *, &Driver::cuMemFreeHost> handle;
  CUdeviceptr deviceAddress = 0;
  size_t bytes = 0;
};

/// A CUDA graph of one cooperative launch.
class KernelGraph {
public:
  /// `arguments` may change once this has returned: the graph has a copy of what they point to.
  static Outcome<KernelGraph> create(const Driver &driver, CUfunction kernel, unsigned ctas, unsigned threads,
                                     unsigned sharedBytes, void **arguments);
  Failure launch(const Stream &stream) const;

private:
  Owned<CUgraph, &Driver::cuGraphDestroy> graph;
  Owned<CUgraphExec, &Driver::cuGraphExecDestroy> executable;
};

/// A loaded cubin.
class Module {
public:
  static Outcome<Module> load(const Driver &driver, std::string_view cubin);
  Outcome<CUfunction> function(const char *name) const;
  /// A constant of so many bytes, copied to the host. `cuda-driver` when it is not there.
  Failure read(const Stream &stream, const char *name, void *target, size_t bytes) const;

private:
  Owned<CUmodule, &Driver::cuModuleUnload> handle;
};

/// Links relocatable cubins, each with a name for messages, to one. Needs a current context.
Outcome<std::string> linkCubins(const Driver &driver,
                                const std::vector<std::pair<std::string, std::string_view>> &cubins);

} // namespace megalith::runtime
#endif
