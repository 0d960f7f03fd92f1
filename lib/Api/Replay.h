//===- Replay.h - runs that take the results of a trace -------------------===//
#ifndef MEGALITH_LIB_API_REPLAY_H
#define MEGALITH_LIB_API_REPLAY_H

#include "megalith/Requests/Replay.h"
#include "megalith/Support/Diagnostics.h"
#include "runtime/Run.h"

namespace megalith::api {

/// Reports `replay-differs` with the first mismatch, or the first difference of the traces.
/// `executor` names whose argmax `ReplayMismatch::got` is.
void reportReplay(const std::vector<ReplayMismatch> &mismatches, const std::string &difference, const char *executor,
                  Diagnostics &diags);

/// Checks each row of a kernel's run that took the results of `given`, and compares the
/// traces; reports the same.
void checkKernelReplay(const runtime::RunOutcome &run, const Trace &given, double epsilon, Diagnostics &diags);

} // namespace megalith::api
#endif
