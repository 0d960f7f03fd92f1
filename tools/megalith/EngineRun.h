//===- EngineRun.h - what the engines of the GPU and the CPU share --------===//
#ifndef MEGALITH_TOOLS_ENGINERUN_H
#define MEGALITH_TOOLS_ENGINERUN_H

#include "Inputs.h"
#include "Report.h"
#include "runtime/Manifest.h"
#include "runtime/Run.h"
#include <functional>

namespace megalith::tool {

void reportRuntime(Diagnostics &diags, const runtime::RuntimeError &error);

/// FILE:LINE of a source as a place, all of its line; no place when it is none.
SourceLoc placeOf(llvm::StringRef place, Diagnostics &diags);

/// The source that an engine runs: the emitted one, or that of `--cu`.
struct EngineSource {
  std::string cuda, fileName, manifest;
};
/// Plans with these options and emits. nullopt after an error.
std::optional<EngineSource> makeSource(const RunCommand &command, const driver::CompileOptions &options,
                                       const driver::Compilation &compiled, Diagnostics &diags);

std::vector<runtime::RunRequest> engineRequests(const RunInputs &inputs);
/// `trace`: record it, in at least `leastTraceBytes`.
runtime::RunOptions engineOptions(const RunCommand &command, const runtime::Manifest &manifest,
                                  const RunInputs &inputs, bool trace, size_t leastTraceBytes);

/// The watchdog ended a kernel that was allowed to stand still for so long.
void reportStop(const runtime::RunOutcome::Stop &stop, double seconds, Diagnostics &diags);

/// `device`: the report's. The time is that of the kernel.
RunReport reportOf(runtime::RunOutcome &&outcome, const std::string &device);

/// Calls `run` as often as the command wants, with the number of the run from 0, and
/// compares the outcomes. `run` reports its errors and returns nullopt then. With `replay`
/// the runs take that trace's results and are checked against it.
std::optional<RunReport>
repeatRuns(const RunCommand &command, runtime::RunOptions options, const Trace *replay, const std::string &device,
           Diagnostics &diags,
           const std::function<std::optional<runtime::RunOutcome>(const runtime::RunOptions &, unsigned)> &run);

} // namespace megalith::tool
#endif
