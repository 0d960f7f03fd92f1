//===- NvJitLink.cpp - NVIDIA's linker, opened with dlopen ----------------===//
#include "CudaLibraries.h"
#include "megalith/Jit/Linker.h"
#include <dlfcn.h>
#include <filesystem>
#include <fmt/format.h>

namespace megalith::jit {

namespace {

class NvJitLink : public Linker {
public:
  /// False if `library` lacks a function.
  bool resolve(void *library) {
#define NVJITLINK(name, parameters)                                                                                    \
  name = reinterpret_cast<int(*) parameters>(dlsym(library, #name));                                                   \
  if (!name)                                                                                                           \
    return false;
#include "megalith/Jit/NvJitLinkSymbols.def"
    Dl_info info;
    if (dladdr(reinterpret_cast<void *>(nvJitLinkVersion), &info) && info.dli_fname)
      file = realFileName(info.dli_fname);
    return nvJitLinkVersion(&major, &minor) == 0;
  }

  std::string identity() const override { return fmt::format("nvJitLink {}.{} ({})", major, minor, file); }

  Result link(llvm::StringRef arch, llvm::ArrayRef<Part> parts) const override {
    const std::string archOption = "-arch=" + arch.str();
    const char *options[] = {archOption.c_str()};
    void *handle = nullptr;
    Result result;
    int code = nvJitLinkCreate(&handle, 1, options);
    if (code != 0) {
      result.error = fmt::format("nvJitLinkCreate({}) gives {}", archOption, code);
      return result;
    }
    constexpr int cubinInput = 1;
    for (const Part &part : parts)
      if (code == 0)
        code = nvJitLinkAddData(handle, cubinInput, part.cubin.data(), part.cubin.size(), part.name.c_str());
    if (code == 0)
      code = nvJitLinkComplete(handle);
    size_t bytes = 0;
    if (code == 0)
      code = nvJitLinkGetLinkedCubinSize(handle, &bytes);
    if (code == 0) {
      result.cubin.resize(bytes);
      code = nvJitLinkGetLinkedCubin(handle, result.cubin.data());
    }
    if (code != 0) {
      result.cubin.clear();
      if (nvJitLinkGetErrorLogSize(handle, &bytes) == 0 && bytes > 0) {
        result.error.resize(bytes);
        nvJitLinkGetErrorLog(handle, result.error.data());
        result.error = llvm::StringRef(result.error.c_str()).trim().str();
      }
      if (result.error.empty())
        result.error = fmt::format("error {}", code);
    }
    nvJitLinkDestroy(&handle);
    return result;
  }

private:
#define NVJITLINK(name, parameters) int(*name) parameters = nullptr;
#include "megalith/Jit/NvJitLinkSymbols.def"
  unsigned major = 0, minor = 0;
  std::string file;
};

} // namespace

std::unique_ptr<Linker> openNvJitLink(const std::string &nvrtcPath, std::string &why) {
  const std::vector<std::string> names = {"libnvJitLink.so.13", "libnvJitLink.so.12", "libnvJitLink.so"};
  std::vector<std::string> candidates = cudaLibraries("MEGALITH_NVJITLINK", names, "nvjitlink");
  const std::filesystem::path beside = std::filesystem::path(nvrtcPath).parent_path();
  if (candidates.size() > 1 && !beside.empty()) { // one: the variable names it
    std::vector<std::string> first;
    for (const std::filesystem::path &folder : {beside, beside / "../../nvjitlink/lib"})
      for (const std::string &name : names)
        first.push_back((folder / name).string());
    candidates.insert(candidates.begin(), first.begin(), first.end());
  }
  for (const std::string &candidate : candidates) {
    void *library = dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) {
      if (const char *error = dlerror())
        why = error;
      continue;
    }
    auto linker = std::make_unique<NvJitLink>();
    if (linker->resolve(library))
      return linker;
    why = "`" + candidate + "` is not a usable nvJitLink";
    dlclose(library);
  }
  return nullptr;
}

} // namespace megalith::jit
