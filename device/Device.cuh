//===- Device.cuh - everything that an emitted kernel may call ------------===//
#pragma once

#include "megalith/ControlUnit.cuh"
#include "megalith/TensorUnit.cuh"
