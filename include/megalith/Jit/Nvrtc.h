//===- Nvrtc.h - NVIDIA's run-time compiler, opened with dlopen -----------===//
//
// The binary does not link NVRTC: a machine without a CUDA toolkit still runs
// everything but the compilation of CUDA text.
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_JIT_NVRTC_H
#define MEGALITH_JIT_NVRTC_H

#include "megalith/Support/Diagnostics.h"
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace megalith::jit {

/// A loaded NVRTC. Copies refer to the same library, which stays loaded until
/// the process ends.
class Nvrtc {
public:
  /// The oldest accepted version: the first one that knows sm_100a.
  static constexpr int minMajor = 12, minMinor = 8;

  /// Opens the first NVRTC that is new enough, in the order of `candidates`.
  /// Reports `nvrtc-not-found` or `nvrtc-too-old` and returns nullopt otherwise.
  static std::optional<Nvrtc> open(Diagnostics &diags);
  /// What `open` tries: $MEGALITH_NVRTC alone if it is set; else the loader's
  /// libnvrtc, CUDA toolkits ($CUDA_HOME, $CUDA_PATH, /usr/local/cuda*), then the
  /// Python package nvidia-cuda-nvrtc of $VIRTUAL_ENV, ~/.local or the system.
  /// Only paths that exist, plus bare names.
  static std::vector<std::string> candidates();

  int major() const { return versionMajor; }
  int minor() const { return versionMinor; }
  /// "13.0"
  std::string version() const;
  /// The version, and the name of the library's real file, which tells builds of one version apart.
  std::string identity() const;
  /// The file that the loader opened.
  const std::string &path() const { return libraryPath; }

#define NVRTC(name, result, parameters) result(*name) parameters = nullptr;
#include "megalith/Jit/NvrtcSymbols.def"

private:
  Nvrtc() = default;
  /// Resolves every symbol; false if `handle` lacks one.
  bool resolve(void *handle);
  int versionMajor = 0, versionMinor = 0;
  std::string libraryPath;
};

} // namespace megalith::jit
#endif
