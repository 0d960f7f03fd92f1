//===- ReferenceWeights.h - checkpoints for the reference executor --------===//
#ifndef MEGALITH_LIB_API_REFERENCEWEIGHTS_H
#define MEGALITH_LIB_API_REFERENCEWEIGHTS_H

#include "megalith/Driver/Compilation.h"
#include "megalith/Reference/Executor.h"
#include <memory>

namespace megalith::api {

/// The checkpoints of all models. `compiled` outlives it.
std::unique_ptr<reference::WeightSource> checkpointWeights(const driver::Compilation &compiled);
/// Whether the files of weights are as they were when they were opened; reports when they are not.
bool weightsStayed(const driver::Compilation &compiled, Diagnostics &diags);

} // namespace megalith::api
#endif
