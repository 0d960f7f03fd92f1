//===- Buffers.h - the reference of pipelines of buffers ------------------===//
#ifndef MEGALITH_REFERENCE_BUFFERS_H
#define MEGALITH_REFERENCE_BUFFERS_H

#include "megalith/IR/Buffers.h"
#include "megalith/Requests/Trace.h"
#include <optional>

namespace megalith::reference {

/// What ended a call early. What the buffers hold then means nothing.
struct CallFault {
  int32_t code;  ///< of Contract/Faults.def
  SourceLoc loc; ///< of the statement
  FaultNumbers numbers;
};

/// Runs the stages, the items of each in ascending order. `call`: of callShapes, without an error. `buffers`: where
/// the elements of each stand, row-major.
std::optional<CallFault> runBuffers(const ir::Module &module, const ir::CallShapes &call,
                                    const std::map<std::string, void *> &buffers);

} // namespace megalith::reference
#endif
