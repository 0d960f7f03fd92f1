#include "runtime/Driver.h"
#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>

namespace megalith::runtime {

// --- what is counted. A run keeps to one thread, so that each thread's counts are those of its runs.

static thread_local HostCalls callsOfThread;

HostCalls Driver::calls() { return callsOfThread; }

namespace {
/// A function of the driver that counts its calls with `Count`.
template <auto Member, auto Count> struct Counted;
template <class... Args, CUresult (*Driver::*Member)(Args...), auto Count> struct Counted<Member, Count> {
  static inline CUresult (*real)(Args...) = nullptr;
  static CUresult call(Args... args) {
    Count(args...);
    return real(args...);
  }
  static void install(Driver &driver) {
    real = driver.*Member;
    driver.*Member = call;
  }
};
} // namespace

static void countCopy(size_t bytes) {
  ++callsOfThread.copies;
  callsOfThread.bytes += static_cast<int64_t>(bytes);
}

static void installCounters(Driver &driver) {
  constexpr auto launch = [](auto...) { ++callsOfThread.launches; };
  constexpr auto wait = [](auto...) { ++callsOfThread.synchronizations; };
  constexpr auto copy = [](auto, auto, size_t bytes, auto) { countCopy(bytes); };
  Counted<&Driver::cuLaunchKernel, launch>::install(driver);
  Counted<&Driver::cuLaunchCooperativeKernel, launch>::install(driver);
  Counted<&Driver::cuGraphLaunch, [](auto...) { ++callsOfThread.graphLaunches; }>::install(driver);
  Counted<&Driver::cuStreamSynchronize, wait>::install(driver);
  Counted<&Driver::cuEventSynchronize, wait>::install(driver);
  Counted<&Driver::cuMemcpyHtoDAsync, copy>::install(driver);
  Counted<&Driver::cuMemcpyDtoHAsync, copy>::install(driver);
}

Failure Driver::load() {
  const char *path = std::getenv("MEGALITH_LIBCUDA");
  if (!path || !*path)
    path = "libcuda.so.1";
  // Global, so that the search of the whole process below finds its functions
  // after those of preloaded libraries.
  if (!dlopen(path, RTLD_NOW | RTLD_GLOBAL))
    return gpuAbsent(std::string("the NVIDIA driver's library cannot be opened (") + dlerror() + ")");
#define CU_FUNCTION(name, symbol, parameters)                                                                          \
  name = reinterpret_cast<CUresult(*) parameters>(dlsym(RTLD_DEFAULT, #symbol));                                       \
  if (!name)                                                                                                           \
    return gpuAbsent("the NVIDIA driver is too old, it has no `" #symbol "`");
#include "runtime/DriverSymbols.def"
  installCounters(*this);

  if (CUresult result = cuInit(0))
    return gpuAbsent("the NVIDIA driver does not start (" + error("cuInit", result).message + ")");
  int count = 0;
  if (CUresult result = cuDeviceGetCount(&count))
    return gpuAbsent(error("cuDeviceGetCount", result).message);
  if (count == 0)
    return gpuAbsent("the NVIDIA driver finds no device");
  return std::nullopt;
}

Outcome<const Driver *> Driver::open() {
  static Driver driver;
  static const Failure failure = driver.load();
  if (failure)
    return *failure;
  return &driver;
}

RuntimeError Driver::error(const char *function, CUresult result) const {
  const char *name = nullptr, *text = nullptr;
  if (cuGetErrorName(result, &name) != CUDA_SUCCESS || !name)
    name = "an unknown error";
  if (cuGetErrorString(result, &text) != CUDA_SUCCESS || !text)
    text = "the driver does not say more";
  std::string code = name;
  if (code == "an unknown error")
    code += " (" + std::to_string(result) + ")";
  return cudaDriver(function, code, text);
}

std::string Driver::version() const {
  int version = 0;
  if (cuDriverGetVersion(&version) != CUDA_SUCCESS)
    return "of an unknown version";
  std::string text = std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
  Dl_info info;
  std::error_code error;
  if (dladdr(reinterpret_cast<void *>(cuDriverGetVersion), &info) && info.dli_fname)
    if (const auto file = std::filesystem::canonical(info.dli_fname, error); !error)
      text += " (" + file.filename().string() + ")";
  return text;
}

Failure Driver::check(const char *function, CUresult result) const {
  if (result == CUDA_SUCCESS)
    return std::nullopt;
  return error(function, result);
}

std::string archFor(const DeviceInfo &info) {
  if (info.major == 8)
    return "sm_80";
  std::string arch = "sm_" + std::to_string(info.major) + std::to_string(info.minor);
  // Features that only this chip has, which later ones need not run.
  if (arch == "sm_90" || arch == "sm_100")
    arch += "a";
  return arch;
}

Outcome<Device> Device::open(const Driver &driver, int ordinal) {
  Device device;
  DeviceInfo &info = device.properties;
  if (CUresult result = driver.cuDeviceGet(&device.device, ordinal)) {
    if (result == CUDA_ERROR_INVALID_DEVICE)
      return gpuAbsent("there is no device number " + std::to_string(ordinal));
    return driver.error("cuDeviceGet", result);
  }
  char name[256] = "";
  if (Failure f = driver.check("cuDeviceGetName", driver.cuDeviceGetName(name, sizeof name - 1, device.device)))
    return *f;
  info.name = name;
  int shared = 0;
  const struct {
    int *value;
    CUdeviceAttribute attribute;
  } attributes[] = {
      {&info.major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR},
      {&info.minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR},
      {&info.smCount, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT},
      {&shared, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN},
      {&info.cooperative, CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH},
  };
  for (auto [value, attribute] : attributes)
    if (Failure f = driver.check("cuDeviceGetAttribute", driver.cuDeviceGetAttribute(value, attribute, device.device)))
      return *f;
  info.sharedPerBlockOptin = shared;
  if (info.major < 8)
    return gpuTooOld(info.name, info.major, info.minor);

  if (Failure f =
          driver.check("cuDevicePrimaryCtxRetain", driver.cuDevicePrimaryCtxRetain(&device.context, device.device)))
    return *f;
  device.api = &driver; // from here on the destructor releases the context
  if (Failure f = device.makeCurrent())
    return *f;
  size_t free = 0;
  if (Failure f = driver.check("cuMemGetInfo", driver.cuMemGetInfo(&free, &info.totalMemory)))
    return *f;
  return device;
}

Device::Device(Device &&other) noexcept
    : api(std::exchange(other.api, nullptr)), device(other.device), context(other.context),
      properties(std::move(other.properties)) {}

Device::~Device() {
  if (api)
    api->cuDevicePrimaryCtxRelease(device);
}

Failure Device::makeCurrent() const { return api->check("cuCtxSetCurrent", api->cuCtxSetCurrent(context)); }

} // namespace megalith::runtime
