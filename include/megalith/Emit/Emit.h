//===- Emit.h - plan and IR to one CUDA source ----------------------------===//
#ifndef MEGALITH_EMIT_EMIT_H
#define MEGALITH_EMIT_EMIT_H

#include "megalith/IR/IR.h"
#include "megalith/Plan/Plan.h"
#include "megalith/Support/Diagnostics.h"
#include <string>

namespace megalith::emit {

/// How the text is written; nothing here changes what the kernel computes.
struct EmitOptions {
  std::string fileName = "pipeline.cu"; ///< what `#line` calls the generated file
  bool lineDirectives = true;           ///< `#line` back to the YAML
};

/// The whole source: `megalith_run` (the resident kernel) and `megalith_pack`
/// (lays the weights out as the kernel streams them). `module` is at the tick
/// and tensor level, with every pass run.
std::string emitCuda(const ir::Module &module, const plan::Plan &plan, const SourceFiles &files,
                     const EmitOptions &options);

/// The manifest that the runtime reads beside the cubin: JSON with the launch
/// shape, the request layout, weights, pools, rope and the names of the edges.
std::string emitManifest(const ir::Module &module, const plan::Plan &plan, const SourceFiles &files);

} // namespace megalith::emit
#endif
