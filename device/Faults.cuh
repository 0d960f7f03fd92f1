//===- Faults.cuh - why a request ends in the fault state -----------------===//
//
// The codes of Contract/Faults.def, and what stands beside one in RequestHeader::fault.
//===----------------------------------------------------------------------===//
#pragma once

#include "megalith/Abi.h"
#include "megalith/Primitives.cuh"

namespace megalith::device {

/// kPoolExhausted and so on.
enum FaultCode : int {
#define FAULT(Enum, Code, Name, Text, Numbers) k##Enum = Code,
#include "megalith/Contract/Faults.def"
};
#define FAULT(Enum, Code, Name, Text, Numbers) static_assert(Code < abi::kFaultAtCall);
#include "megalith/Contract/Faults.def"

/// A fault's code with the line of the pipeline's file that raised it. This is RequestHeader::fault without the state.
/// Functions that stages call take the line of their caller. `#line` makes it a line of the YAML.
__device__ constexpr int faultAt(int code, int line) {
  return line <= abi::kFaultMaxLine ? code | line << abi::kFaultPlaceShift : code;
}

/// A fault with the pool that raised it.
__device__ constexpr int faultAtPool(int code, int model) {
  return code | abi::kFaultAtCall | model << abi::kFaultPlaceShift;
}

} // namespace megalith::device
