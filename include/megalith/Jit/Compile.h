//===- Compile.h - CUDA text to cubin -------------------------------------===//
#ifndef MEGALITH_JIT_COMPILE_H
#define MEGALITH_JIT_COMPILE_H

#include "megalith/Jit/Nvrtc.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace megalith::jit {

/// A file that the source can `#include` by this name; nothing is read from disk.
struct Header {
  std::string name, text;
};

/// Those of `headers` that a source includes by name, or that one of these includes. Nothing else is given to a
/// compiler: a header that this does not find is an error there.
std::vector<Header> headersOf(llvm::StringRef source, llvm::ArrayRef<Header> headers);

/// What a piece of code is: a unit of a kernel, or the kernel. Messages and the cache name them so.
namespace kind {
constexpr const char *control = "control unit", *tensors = "tensor unit", *wide = "wide unit",
                     *tool = "unit of the tool", *linked = "linked kernel", *whole = "whole kernel";
} // namespace kind

struct CompileRequest {
  /// The CUDA text, and the name its errors carry where no `#line` says otherwise.
  std::string source, fileName;
  std::vector<Header> headers;
  /// "sm_80", "sm_90a", "sm_100a", ...
  std::string arch;
  /// Given to NVRTC after `defaultOptions()`.
  std::vector<std::string> options;
  /// What it is.
  std::string unit = kind::whole;
};

/// What one kernel takes on the device, as ptxas reports it. The numbers of
/// functions that it calls (not inlined) are included.
struct KernelResources {
  std::string kernel;
  /// 32-bit registers of one thread.
  int registers = 0;
  /// Bytes per thread.
  int spillStores = 0, spillLoads = 0, stackBytes = 0;
  /// Static shared memory of a block, bytes.
  int sharedBytes = 0;
  bool spills() const { return spillStores || spillLoads; }
  bool operator==(const KernelResources &) const = default;
};

struct CompileResult {
  std::string cubin;
  /// Empty in a result that comes from the cache.
  std::string ptx;
  /// Everything the compiler said, warnings included.
  std::string log;
  /// In order of name.
  std::vector<KernelResources> kernels;
  /// Wall time of the compilation or, on a hit, of the look-up.
  double milliseconds = 0;
  bool cacheHit = false;
  /// What was done for it: "compiled", "control unit compiled", "taken from the kernel cache", ...
  std::string how;
};

/// Options of every compilation: C++20, unannotated functions are device
/// functions, line information, ptxas' resource report. Multiply-add contraction
/// stays on, NVRTC's default: arithmetic whose rounding matters uses intrinsics.
/// Functions are optimised side by side, in a fixed number of threads: the code is the
/// same on any machine.
std::vector<std::string> defaultOptions(llvm::StringRef arch);

/// Compiles; on failure reports each error as `cuda-compile` (see reportErrors). Where NVRTC ends the process (SIGABRT,
/// SIGSEGV), its last words are printed and the exit status is 1. Any thread may call it, also while others do.
std::optional<CompileResult> compileCuda(const Nvrtc &nvrtc, const CompileRequest &request, Diagnostics &diags);

/// make(0..count), each on a thread of its own and with messages of its own, which are reported in order, equal ones
/// once. nullopt when one of them failed. What one throws is thrown when all have ended.
std::optional<std::vector<CompileResult>>
sideBySide(size_t count, const std::function<std::optional<CompileResult>(size_t, Diagnostics &)> &make,
           Diagnostics &diags);

/// CompileResult::how of a kernel of so many units, of which these were compiled for it.
std::string howMade(size_t units, llvm::ArrayRef<std::string> compiled);

/// Reads ptxas' resource report (`--ptxas-options=-v`) out of a compile log.
std::vector<KernelResources> parseResources(llvm::StringRef log);

/// Reports every error of a compile log. One whose file, by `#line` or by name,
/// is among the sources of `diags` is placed at that line's first visible
/// character; another keeps `file:line` in its text. Returns their number.
unsigned reportErrors(llvm::StringRef log, Diagnostics &diags);

} // namespace megalith::jit
#endif
