//===- Executors.h - the three ways to run a compilation ------------------===//
#ifndef MEGALITH_TOOLS_EXECUTORS_H
#define MEGALITH_TOOLS_EXECUTORS_H

#include "Inputs.h"
#include "Report.h"
#include "runtime/Driver.h"
#include "runtime/Run.h"

namespace megalith::tool {

// With `replay` a run takes the results of that trace and is checked: `replay-differs`.

/// On `device`: plan, source, cubin, upload, one launch per repetition. `trace`:
/// record it. nullopt after an error.
std::optional<RunReport> runOnCuda(const RunCommand &command, const driver::Compilation &compiled,
                                   const RunInputs &inputs, runtime::Device &device, bool trace,
                                   const Trace *replay, Diagnostics &diags);

/// Plans for the GPU that is there: by its name, else like the profile with the nearest number
/// of SMs, with one CTA per SM.
void chooseProfile(driver::CompileOptions &options, const runtime::DeviceInfo &info);

/// The profile to plan for the CPU executor; no GPU is like it.
constexpr const char *cpuProfile = "cpu";

/// On the CPU executor: plan, source, the host's compiler, one launch per repetition,
/// each with the next seed of the schedule. Reports `cpu-finding`. nullopt after an error.
std::optional<RunReport> runOnCpu(const RunCommand &command, const driver::Compilation &compiled,
                                  const RunInputs &inputs, bool trace, const Trace *replay,
                                  Diagnostics &diags);

/// On the reference executor.
std::optional<RunReport> runOnReference(const RunCommand &command, const driver::Compilation &compiled,
                                        const RunInputs &inputs, Diagnostics &diags,
                                        const Trace *replay = nullptr);

/// Reports `repeat-differs` unless run number `number` (from 2) equals the first.
bool checkRepeat(const runtime::RunOutcome &first, const runtime::RunOutcome &again, unsigned number,
                 Diagnostics &diags);

} // namespace megalith::tool
#endif
