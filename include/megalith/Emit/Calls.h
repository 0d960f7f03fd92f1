//===- Calls.h - a pipeline of buffers to the CUDA text of its kernel -----===//
#ifndef MEGALITH_EMIT_CALLS_H
#define MEGALITH_EMIT_CALLS_H

#include "megalith/Emit/Emit.h"
#include "megalith/Plan/Calls.h"

namespace megalith::emit {

/// The kernel is one unit, PIPELINE.call.cu, with the entry `megalith_call`.
Unit emitCall(const ir::Module &module, const plan::CallPlan &plan, const SourceFiles &files,
              const EmitOptions &options);
/// What the runtime reads beside the cubin (runtime/CallManifest.h): dims, buffers and stages, with sizes in reverse
/// Polish notation.
std::string emitCallManifest(const ir::Module &module, const plan::CallPlan &plan);

} // namespace megalith::emit
#endif
