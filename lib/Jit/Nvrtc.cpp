#include "megalith/Jit/Nvrtc.h"
#include "CudaLibraries.h"
#include <cstdlib>
#include <dlfcn.h>

namespace megalith::jit {

std::vector<std::string> Nvrtc::candidates() {
  return cudaLibraries("MEGALITH_NVRTC", {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"}, "cuda_nvrtc");
}

bool Nvrtc::resolve(void *handle) {
#define NVRTC(name, result, parameters)                                                                                \
  name = reinterpret_cast<result(*) parameters>(dlsym(handle, #name));                                                 \
  if (!name)                                                                                                           \
    return false;
#include "megalith/Jit/NvrtcSymbols.def"
  Dl_info info;
  if (dladdr(reinterpret_cast<void *>(nvrtcVersion), &info) && info.dli_fname)
    libraryPath = info.dli_fname;
  return nvrtcVersion(&versionMajor, &versionMinor) == 0;
}

std::string Nvrtc::identity() const { return version() + " " + realFileName(libraryPath); }

std::string Nvrtc::version() const { return fmt::format("{}.{}", versionMajor, versionMinor); }

std::optional<Nvrtc> Nvrtc::open(Diagnostics &diags) {
  std::optional<Nvrtc> newestOld;
  std::string lastError;
  for (const std::string &candidate : candidates()) {
    void *handle = dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
      if (const char *error = dlerror())
        lastError = error;
      continue;
    }
    Nvrtc nvrtc;
    if (!nvrtc.resolve(handle)) {
      lastError = "`" + candidate + "` is not a usable NVRTC";
      dlclose(handle);
      continue;
    }
    std::pair found(nvrtc.versionMajor, nvrtc.versionMinor);
    if (found >= std::pair(minMajor, minMinor))
      return nvrtc;
    if (!newestOld || found > std::pair(newestOld->versionMajor, newestOld->versionMinor))
      newestOld = nvrtc;
    dlclose(handle);
  }
  const char *advice = "install CUDA 12.8 or newer, or `pip install nvidia-cuda-nvrtc`, or set "
                       "`MEGALITH_NVRTC` to the path of a libnvrtc.so";
  if (newestOld) {
    diags.report(Diag::NvrtcTooOld, SourceLoc(), newestOld->version(), newestOld->path());
    diags.note(advice);
    return std::nullopt;
  }
  diags.report(Diag::NvrtcNotFound, SourceLoc());
  if (const char *path = std::getenv("MEGALITH_NVRTC"); path && *path)
    diags.note("`MEGALITH_NVRTC` is set, so that nothing else was tried: " + lastError);
  else
    diags.note(advice);
  return std::nullopt;
}

} // namespace megalith::jit
