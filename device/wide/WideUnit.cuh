//===- WideUnit.cuh - what the wide unit of a kernel includes -------------===//
//
// The unit of passes that run whole.
//===----------------------------------------------------------------------===//
#pragma once

#include "megalith/TensorUnit.cuh"

#include "megalith/WideRows.cuh"
#include "megalith/WideRoles.cuh"
#include "megalith/WideAttend.cuh"
