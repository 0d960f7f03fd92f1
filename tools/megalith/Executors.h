//===- Executors.h - the two ways to run a compilation --------------------===//
#ifndef MEGALITH_TOOLS_EXECUTORS_H
#define MEGALITH_TOOLS_EXECUTORS_H

#include "Inputs.h"
#include "Report.h"
#include "runtime/Driver.h"

namespace megalith::tool {

/// On `device`: plan, source, cubin, upload, one launch per repetition. `trace`:
/// record it. nullopt after an error.
std::optional<RunReport> runOnCuda(const RunCommand &command, const driver::Compilation &compiled,
                                   const RunInputs &inputs, runtime::Device &device, bool trace,
                                   Diagnostics &diags);

/// On the reference executor, with `replay` when given.
std::optional<RunReport> runOnReference(const RunCommand &command, const driver::Compilation &compiled,
                                        const RunInputs &inputs, Diagnostics &diags);

/// Reports `repeat-differs` unless run number `number` (from 2) equals the first.
bool checkRepeat(const RunReport &first, const RunReport &again, unsigned number, Diagnostics &diags);

} // namespace megalith::tool
#endif
