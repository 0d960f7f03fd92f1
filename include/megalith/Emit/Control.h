//===- Control.h - the control half of the source -------------------------===//
#ifndef MEGALITH_EMIT_CONTROL_H
#define MEGALITH_EMIT_CONTROL_H

#include "megalith/IR/IR.h"
#include "megalith/Support/CodeWriter.h"
#include "megalith/Support/Diagnostics.h"
#include <string>

namespace megalith::emit {

/// How the text is written, and what it has to know of the plan.
struct ControlOptions {
  bool lineDirectives = true; ///< `#line` back to the YAML
  int64_t controlBegin = 0;   ///< byte of shared memory at which control's state stands
  bool wide = false;          ///< see plan::Plan
  bool late = false;          ///< the same
};

/// The control plane of a tick-level module with one model: the constants
/// `Config`, `enum class State`, `struct Fields` in `struct Request`, metrics, gauges,
/// call sites, one function per part in `stages`, and
///
///   using Control = ControlState<Config, Request>;   // in shared memory of CTA 0
///   __device__ void controlTicks(bool afterPass);   // Control::done: leave; numRows: the model runs
///
/// which the consumer warps of CTA 0 call after startControl(). The text uses
/// device/Control.cuh. `files` (may be null) supplies the YAML lines that
/// stand as comments over the statements.
void emitControl(CodeWriter &w, const ir::Module &module, const SourceFiles *files, const ControlOptions &options);

/// The control part of the manifest, a JSON object:
///
///   {"request_bytes", "fields": [{"name", "type", "offset", "capacity", "init"}],
///    "states": [{"name", "place", "initial", "terminal", "slot", "parked", "preemptible"}],
///    "initial_state", "file", "calls": [place], "fault_state", "metrics": [],
///    "gauges": [{"name", "type"}]}
///
/// Offsets are in bytes from the RequestHeader. `capacity` stands at sequences
/// and tables only: a word with the length, then that many elements, or of a table lengths and rows. States are
/// indices, places `file:line`; calls are in the order of their sites.
std::string requestLayoutJson(const ir::Module &module);

} // namespace megalith::emit
#endif
