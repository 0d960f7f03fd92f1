//===- Emit.h - plan and IR to the CUDA text of a kernel's units ----------===//
#ifndef MEGALITH_EMIT_EMIT_H
#define MEGALITH_EMIT_EMIT_H

#include "megalith/IR/IR.h"
#include "megalith/Plan/Plan.h"
#include "megalith/Support/Diagnostics.h"
#include <optional>
#include <string>

namespace megalith::emit {

/// How the text is written; nothing here changes what the kernel computes.
struct EmitOptions {
  bool lineDirectives = true; ///< `#line` back to the YAML
};

/// The text of one unit.
struct Unit {
  std::string fileName; ///< what `#line` calls it
  std::string text;
};

/// A kernel's units (device/Units.cuh). One text after the other, they are the whole kernel in one unit.
struct Units {
  Unit control; ///< PIPELINE.control.cu: the states, the stages, the ticks
  /// Of a pipeline of buffers there is this one alone, PIPELINE.call.cu (Calls.h), and `tensors` is empty.
  bool isCall() const { return tensors.text.empty(); }
  /// MODEL.tensors.cu: the models, `megalith_run` (the resident kernel) and `megalith_pack` (lays the weights out as
  /// the kernel streams them). It depends on the models and the plan alone.
  Unit tensors;
  /// MODEL.wide.cu: the models in passes that run whole (device/wide). As the tensor unit, it is of the models and the
  /// plan alone.
  std::optional<Unit> wide;
  std::optional<Unit> more; ///< kernels of a tool, which call neither of them
};

/// The first line of a unit's text.
constexpr const char *kControlUnit = "//===- control unit -------------------------------------------------------===//";
constexpr const char *kWideUnit = "//===- wide unit ----------------------------------------------------------===//";
constexpr const char *kCallUnit = "//===- call unit ----------------------------------------------------------===//";
constexpr const char *kTensorUnit = "//===- tensor unit --------------------------------------------------------===//";

/// `module` is at the tick and tensor level, with every pass run.
Units emitCuda(const ir::Module &module, const plan::Plan &plan, const SourceFiles &files, const EmitOptions &options);

/// The manifest that the runtime reads beside the cubin: JSON with the launch
/// shape, the request layout, weights, pools, rope and the names of the edges.
std::string emitManifest(const ir::Module &module, const plan::Plan &plan, const SourceFiles &files);

} // namespace megalith::emit
#endif
