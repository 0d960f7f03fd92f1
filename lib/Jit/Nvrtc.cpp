#include "megalith/Jit/Nvrtc.h"
#include <algorithm>
#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>
#include <system_error>

namespace fs = std::filesystem;

namespace megalith::jit {

static const char *const libraryNames[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};

static std::string env(const char *name) {
  const char *value = std::getenv(name);
  return value ? value : "";
}

/// Entries of `dir` whose name begins with `prefix`, the newest name first
/// (cuda-13.0 before cuda-12.8).
static std::vector<fs::path> entriesWithPrefix(const fs::path &dir, llvm::StringRef prefix) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator it(dir, error), end; !error && it != end; it.increment(error))
    if (llvm::StringRef(it->path().filename().string()).starts_with(prefix))
      found.push_back(it->path());
  std::sort(found.rbegin(), found.rend());
  return found;
}

static void addFrom(std::vector<std::string> &out, const fs::path &libDir) {
  std::error_code error;
  for (const char *name : libraryNames)
    if (fs::exists(libDir / name, error))
      out.push_back((libDir / name).string());
}

/// The layouts of the package for CUDA 12 and for CUDA 13.
static void addFromPackages(std::vector<std::string> &out, const fs::path &packages) {
  addFrom(out, packages / "nvidia" / "cu13" / "lib");
  addFrom(out, packages / "nvidia" / "cuda_nvrtc" / "lib");
}

std::vector<std::string> Nvrtc::candidates() {
  if (std::string path = env("MEGALITH_NVRTC"); !path.empty())
    return {path};
  std::vector<std::string> out(std::begin(libraryNames), std::end(libraryNames));

  std::vector<fs::path> toolkits;
  for (const char *name : {"CUDA_HOME", "CUDA_PATH"})
    if (std::string path = env(name); !path.empty())
      toolkits.push_back(path);
  for (fs::path &path : entriesWithPrefix("/usr/local", "cuda"))
    toolkits.push_back(std::move(path));
  for (const fs::path &toolkit : toolkits)
    for (const char *sub : {"lib64", "lib", "targets/x86_64-linux/lib"})
      addFrom(out, toolkit / sub);

  // Places of the user's or of the system's only: a library is code that will run.
  std::vector<fs::path> pythons;
  if (std::string path = env("VIRTUAL_ENV"); !path.empty())
    pythons.push_back(fs::path(path) / "lib");
  if (std::string path = env("HOME"); !path.empty())
    pythons.push_back(fs::path(path) / ".local" / "lib");
  pythons.push_back("/usr/local/lib");
  pythons.push_back("/usr/lib");
  for (const fs::path &lib : pythons)
    for (const fs::path &python : entriesWithPrefix(lib, "python3"))
      for (const char *packages : {"site-packages", "dist-packages"})
        addFromPackages(out, python / packages);
  return out;
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
  if (!env("MEGALITH_NVRTC").empty())
    diags.note("`MEGALITH_NVRTC` is set, so that nothing else was tried: " + lastError);
  else
    diags.note(advice);
  return std::nullopt;
}

} // namespace megalith::jit
