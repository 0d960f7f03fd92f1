//===- Driver.h - the CUDA driver, opened at run time ---------------------===//
//
// Types and numbers below are facts of the driver's public binary interface, so
// that building needs no toolkit and a binary runs where there is no driver.
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_RUNTIME_DRIVER_H
#define MEGALITH_RUNTIME_DRIVER_H

#include "megalith/HostLoop.h"
#include "runtime/CudaError.h"
#include "runtime/RuntimeError.h"
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace megalith::runtime {

using CUdevice = int;
using CUcontext = struct CUctx_st *;
using CUmodule = struct CUmod_st *;
using CUfunction = struct CUfunc_st *;
using CUstream = struct CUstream_st *;
using CUevent = struct CUevent_st *;
using CUlinkState = struct CUlinkState_st *;
using CUgraph = struct CUgraph_st *;
using CUgraphNode = struct CUgraphNode_st *;
using CUgraphExec = struct CUgraphExec_st *;
using CUdeviceptr = unsigned long long;

enum CUjit_option : int { CU_JIT_ERROR_LOG_BUFFER = 5, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES = 6 };
enum CUjitInputType : int { CU_JIT_INPUT_CUBIN = 0 };

enum CUdeviceAttribute : int {
  CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
  CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH = 95,
  CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97,
};

enum CUfunctionAttribute : int {
  CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 0,
  CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES = 1,
  CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES = 3,
  CU_FUNC_ATTRIBUTE_NUM_REGS = 4,
  CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8,
};

enum CUlaunchAttributeID : int { CU_LAUNCH_ATTRIBUTE_COOPERATIVE = 2 };
union CUlaunchAttributeValue {
  char pad[64];
  int cooperative;
};

struct CUDA_KERNEL_NODE_PARAMS {
  CUfunction func;
  unsigned gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
  void **kernelParams, **extra;
  struct CUkern_st *kern;
  CUcontext ctx;
};

constexpr unsigned CU_STREAM_NON_BLOCKING = 1;
constexpr unsigned CU_EVENT_BLOCKING_SYNC = 1, CU_EVENT_DISABLE_TIMING = 2;
constexpr unsigned CU_MEMHOSTALLOC_PORTABLE = 1, CU_MEMHOSTALLOC_DEVICEMAP = 2;

/// The functions of libcuda, as members with the names of the interface.
class Driver {
public:
  /// Opens libcuda.so.1 ($MEGALITH_LIBCUDA names another file) and initialises
  /// it, once; `gpu-absent` if there is none or it finds no device. Functions are
  /// looked up in the whole process, so that libraries in LD_PRELOAD can wrap them.
  static Outcome<const Driver *> open();

  /// Success, or the `cuda-driver` error that names `function`.
  Failure check(const char *function, CUresult result) const;
  RuntimeError error(const char *function, CUresult result) const;
  /// The CUDA version that it knows, and its library's real file: "13.0 (libcuda.so.580.65.06)".
  std::string version() const;
  /// What the calling thread has asked so far.
  static HostCalls calls();

#define CU_FUNCTION(name, symbol, parameters) CUresult(*name) parameters = nullptr;
#include "runtime/DriverSymbols.def"

private:
  Driver() = default;
  Failure load();
};

struct DeviceInfo {
  std::string name;
  /// Compute capability.
  int major = 0, minor = 0;
  int smCount = 0;
  /// Bytes of shared memory that one block can ask for; bytes of device memory.
  size_t sharedPerBlockOptin = 0, totalMemory = 0;
  /// Whether the device can launch a grid whose blocks all run at once.
  int cooperative = 0;
};

/// The `--arch` whose cubin runs on this device: "sm_80" for every 8.x, whose
/// cubins are compatible within the major version; "sm_90a" and "sm_100a", which
/// run on exactly 9.0 and 10.0; otherwise `sm_` and the capability.
std::string archFor(const DeviceInfo &info);

/// A device with its primary context, current on the thread that opened it.
class Device {
public:
  /// `gpu-absent` if there is no such device, `gpu-too-old` below 8.0.
  static Outcome<Device> open(const Driver &driver, int ordinal = 0);
  Device(Device &&other) noexcept;
  Device &operator=(Device &&) = delete;
  ~Device();

  const Driver &driver() const { return *api; }
  const DeviceInfo &info() const { return properties; }
  /// Makes the context current on the calling thread.
  Failure makeCurrent() const;

private:
  Device() = default;
  const Driver *api = nullptr;
  CUdevice device = 0;
  CUcontext context = nullptr;
  DeviceInfo properties;
};

} // namespace megalith::runtime
#endif
