//===- HostCompiler.h - CUDA text to a shared object of this machine ------===//
//
// The emitted CUDA text, with the headers of device/cpu, is C++ that g++ or
// clang++ compiles. A checked kernel tells its host of every plain load and store:
// it is instrumented with -fsanitize=thread, and device/cpu/Hooks.cpp stands in for
// the sanitizer's runtime, which is not linked.
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_JIT_HOSTCOMPILER_H
#define MEGALITH_JIT_HOSTCOMPILER_H

#include "megalith/Jit/KernelCache.h"

namespace megalith::jit {

/// How well a kernel is optimised. `Less`: two thirds of the time to compile, for those that run for seconds; they take
/// a fifth longer. `Least`: a third of the time to compile, and half the speed. Of checked ones copies of a struct read
/// what lies between its members.
enum class Effort { Full, Less, Least };

/// A g++ or clang++ that compiles C++20.
class HostCompiler {
public:
  /// $MEGALITH_HOST_CXX (a path, or a name to look for on PATH) alone if it is set; else
  /// the first of g++, clang++ and c++ on PATH that works. Reports
  /// `host-compiler-not-found`.
  static std::optional<HostCompiler> open(Diagnostics &diags);

  const std::string &path() const { return file; }
  /// 12 of g++ 12.2, 14 of clang++ 14.0.6.
  int major() const { return majorVersion; }
  /// The first line of `--version`.
  const std::string &version() const { return versionLine; }
  /// All that its output depends on beside options and input: path, version, and the
  /// macros it predefines for this machine's processor.
  const std::string &identity() const { return identityText; }

  /// How the kernel is compiled, and how other sources are.
  std::vector<std::string> kernelOptions(bool checked, int arch, Effort effort = Effort::Full) const;
  std::vector<std::string> plainOptions(bool checked, int arch) const;
  std::vector<std::string> linkOptions(bool checked) const;

private:
  HostCompiler() = default;
  /// Asks the compiler about itself; returns why it is of no use, or "".
  std::string probe(const std::string &path);
  std::string file, versionLine, identityText;
  bool clang = false, native = false;
  int majorVersion = 0;
};

struct HostCompileRequest {
  struct Unit {
    /// The CUDA text, and the name its errors and lines carry where no `#line` says otherwise.
    std::string source, fileName;
    std::string name; ///< "control unit"; empty where there is one
  };
  /// Compiled side by side, each taken from the cache when it is there.
  std::vector<Unit> units;
  /// What they and `extraSources` can include, by relative names.
  std::vector<Header> headers;
  /// Compiled without instrumentation and linked with it: device/cpu/Hooks.cpp.
  std::vector<Header> extraSources;
  /// Instrument plain accesses; defines MEGALITH_CPU_CHECKED.
  bool checked = false;
  /// __CUDA_ARCH__
  int arch = 900;
  Effort effort = Effort::Full;
};

struct HostCompileResult {
  /// The shared object: KernelCache::loadPath or, without a cache, in a directory that is removed when
  /// the process ends.
  std::string path;
  /// What the compiler said.
  std::string log;
  /// Wall time of the compilation or, on a hit, of the look-up.
  double milliseconds = 0;
  bool cacheHit = false;
  std::string how; ///< see CompileResult
};

/// Takes the shared object from the cache or compiles and stores it. Reports each error
/// as `cpu-compile` (see reportHostErrors).
std::optional<HostCompileResult> compileHostCached(const HostCompiler &compiler, const KernelCache &cache,
                                                   const HostCompileRequest &request, Diagnostics &diags);

/// Reports the first 20 different errors of the log of g++, clang++, assembler or linker,
/// placed like those of reportErrors. A name that the compiler does not know is called one
/// that the CPU executor does not know. Returns how many were reported.
unsigned reportHostErrors(llvm::StringRef log, Diagnostics &diags);

} // namespace megalith::jit
#endif
