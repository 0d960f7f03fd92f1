//===- CpuCalls.h - calls a kernel of a pipeline of buffers on the CPU ------===//
#ifndef MEGALITH_RUNTIME_CPU_CPUCALLS_H
#define MEGALITH_RUNTIME_CPU_CPUCALLS_H

#include "runtime/CallEngine.h"
#include "runtime/cpu/Executor.h"
#include <map>

namespace megalith::cpu {

/// A call, and how its launches went.
struct CallOutcome {
  std::optional<runtime::CallFault> fault;
  LaunchResult launch; ///< steps and decisions of all
};

class CpuCalls {
public:
  /// Loads a shared object that lib/Jit/HostCompiler made; errors as of CpuEngine::load.
  static runtime::Outcome<std::unique_ptr<CpuCalls>> load(const std::string &sharedObject, const std::string &manifest);
  CpuCalls(const CpuCalls &) = delete;
  ~CpuCalls();

  const runtime::CallManifest &manifest() const { return info; }
  runtime::CallImage &image() { return *calls; }

  /// Runs what image() has prepared for these buffers. Their memory is copied in, and what is written is copied out, so
  /// that a checked launch sees each access that leaves it.
  runtime::Outcome<CallOutcome> run(std::span<const runtime::CallBuffer> buffers, bool perStage,
                                    const LaunchOptions &how);

private:
  CpuCalls() = default;
  runtime::Failure open(const std::string &sharedObject);
  char *place(const std::string &name, size_t bytes, Initial initial, const void *image);

  /// CTAs of a stage, at most: as many as show how they work together.
  static constexpr int64_t kMostCtas = 3;

  void *library = nullptr;
  runtime::CallManifest info;
  std::optional<runtime::CallImage> calls;
  void (*bind)(const Host *) = nullptr;
  void *kernel = nullptr; ///< `megalith_call`, whose parameter each pipeline has its own of
  Executor executor;
  std::map<std::pair<std::string, size_t>, char *> memories; ///< by name and bytes
  abi::CallCounters last = {};                               ///< as the last call has left them
  unsigned serial = 0;
};

} // namespace megalith::cpu
#endif
