#include "CudaLibraries.h"
#include "llvm/ADT/StringRef.h"
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace fs = std::filesystem;

namespace megalith::jit {

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

std::vector<std::string> cudaLibraries(const char *variable, const std::vector<std::string> &names,
                                       const std::string &package) {
  if (std::string path = env(variable); !path.empty())
    return {path};
  std::vector<std::string> out = names;
  const auto addFrom = [&](const fs::path &folder) {
    std::error_code error;
    for (const std::string &name : names)
      if (fs::exists(folder / name, error))
        out.push_back((folder / name).string());
  };

  std::vector<fs::path> toolkits;
  for (const char *name : {"CUDA_HOME", "CUDA_PATH"})
    if (std::string path = env(name); !path.empty())
      toolkits.push_back(path);
  for (fs::path &path : entriesWithPrefix("/usr/local", "cuda"))
    toolkits.push_back(std::move(path));
  for (const fs::path &toolkit : toolkits)
    for (const char *sub : {"lib64", "lib", "targets/x86_64-linux/lib"})
      addFrom(toolkit / sub);

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
        for (const std::string &of : {std::string("cu13"), package})
          addFrom(python / packages / "nvidia" / of / "lib");
  return out;
}

std::string realFileName(const std::string &path) {
  std::error_code error;
  const fs::path real = fs::canonical(path, error);
  return (error ? fs::path(path) : real).filename().string();
}

} // namespace megalith::jit
