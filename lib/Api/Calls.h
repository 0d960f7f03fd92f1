//===- Calls.h - calls of pipelines of buffers, below Kernel::call ---------===//
#ifndef MEGALITH_LIB_API_CALLS_H
#define MEGALITH_LIB_API_CALLS_H

#include "State.h"
#include "megalith/IR/Buffers.h"

namespace megalith::api {

ElementType elementTypeOf(ir::Scalar dtype);

/// Whether the buffers are such that the pipeline can be called with them; reports `call-buffers`. `all`: those that
/// stages write must be given, too.
std::optional<ir::CallShapes> shapesOfCall(const ir::Module &module, const CallBuffer *buffers, size_t count, bool all,
                                           Diagnostics &diags);

/// Reports `call-fault`. Of a kernel the place is a line.
void reportCallFault(int code, const FaultNumbers &numbers, SourceLoc loc, Diagnostics &diags);
void reportCallFault(const runtime::CallFault &fault, const ir::Module &module, Diagnostics &diags);

/// Why buffers cannot be those of a call; `call-buffers`.
void reportCallProblem(const runtime::CallProblem &problem, const ir::Module &module, const CallBuffer *buffers,
                       size_t count, Diagnostics &diags);

/// The buffers of a call in the order of the manifest; false where one is missing or of another type.
bool inOrder(const runtime::CallManifest &manifest, const CallBuffer *buffers, size_t count,
             std::vector<runtime::CallBuffer> &out);

} // namespace megalith::api
#endif
