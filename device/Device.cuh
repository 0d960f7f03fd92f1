//===- Device.cuh - everything that an emitted kernel may call ------------===//
//
// For texts that are no unit of a kernel: tests and tools.
//===----------------------------------------------------------------------===//
#pragma once

#include "megalith/ControlUnit.cuh"
#include "megalith/TensorUnit.cuh"
