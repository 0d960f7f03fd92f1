//===- FindingText.h - findings of the CPU executor, for readers ----------===//
#ifndef MEGALITH_LIB_API_FINDINGTEXT_H
#define MEGALITH_LIB_API_FINDINGTEXT_H

#include "megalith/Support/Diagnostics.h"
#include "runtime/cpu/Executor.h"

namespace megalith::api {

/// Reports a finding as `cpu-finding`: the sentence at the first party's YAML line, then
/// a note for each party with CTA, thread, stage or phase, place in the device code and
/// the edge that its CTA came to last. `manifest` (JSON) names stages, phases, buffers
/// and edges. Asks the debugger information of the loaded kernel for lines.
void reportFinding(const cpu::Finding &finding, const std::string &manifest, Diagnostics &diags);

} // namespace megalith::api
#endif
