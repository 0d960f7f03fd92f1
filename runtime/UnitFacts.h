//===- UnitFacts.h - whether the units of a kernel fit --------------------===//
#ifndef MEGALITH_RUNTIME_UNITFACTS_H
#define MEGALITH_RUNTIME_UNITFACTS_H

#include "device/Abi.h"
#include "runtime/RuntimeError.h"

namespace megalith::runtime {

/// What a unit was compiled with, see device/Units.cuh.
struct UnitFacts {
#define UNIT_FACT(Name, Text) int Name;
#define MODEL_FACT(Name, Text) int Name[limits::models];
#include "device/UnitFacts.def"
};

/// Where a kernel has the facts of its units.
constexpr const char *kControlFacts = "megalith_control_facts", *kTensorFacts = "megalith_tensor_facts";

/// Error `kernel-units`: something that both units must agree on differs between them, or is not this runtime's.
Failure checkUnits(const UnitFacts &control, const UnitFacts &tensors);

} // namespace megalith::runtime
#endif
