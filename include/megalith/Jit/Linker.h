//===- Linker.h - units of a kernel to one cubin --------------------------===//
//
// A kernel's units are relocatable cubins (device/Units.cuh). The CUDA driver links them where there is a GPU
// (runtime/Driver.h); NVIDIA's nvJitLink links them anywhere.
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_JIT_LINKER_H
#define MEGALITH_JIT_LINKER_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include <cstddef>
#include <memory>
#include <string>

namespace megalith::jit {

class Linker {
public:
  virtual ~Linker() = default;

  /// What it is, with its version: a part of the key of what it linked.
  virtual std::string identity() const = 0;

  struct Part {
    std::string name; ///< for messages
    llvm::StringRef cubin;
  };
  struct Result {
    std::string cubin; ///< empty: it failed
    std::string error; ///< what it said then
  };
  /// `arch`: "sm_90a".
  virtual Result link(llvm::StringRef arch, llvm::ArrayRef<Part> parts) const = 0;
};

/// nvJitLink of a CUDA toolkit or of the Python package nvidia-nvjitlink. null, and why, where there is none. What it
/// looks at: $MEGALITH_NVJITLINK alone if it is set; else beside the NVRTC at `nvrtcPath`, which makes what it links,
/// then as Nvrtc::candidates() has it.
std::unique_ptr<Linker> openNvJitLink(const std::string &nvrtcPath, std::string &why);

} // namespace megalith::jit
#endif
