//===- TensorUnit.cuh - what the tensor unit of a kernel includes ---------===//
//
// No header of the CUDA toolkit or of the host is included: NVRTC compiles the
// emitted source with these files alone.
//===----------------------------------------------------------------------===//
#pragma once

#include "megalith/Abi.h"
#include "megalith/Contract/Row.h"
#include "megalith/Convert.h"
#include "megalith/Shape.h"

#include "megalith/Types.cuh"
#include "megalith/Primitives.cuh"
#include "megalith/Values.cuh"
#include "megalith/Sync.cuh"
#include "megalith/Exchange.cuh"
#include "megalith/Stamps.cuh"
#include "megalith/Pool.cuh"
#include "megalith/Matrices.cuh"
#include "megalith/Steps.cuh"
#include "megalith/Ring.cuh"
#include "megalith/Pass.cuh"
#include "megalith/Paths.cuh"
#include "megalith/Rows.cuh"
#include "megalith/Packing.cuh"
#include "megalith/Results.cuh"
#include "megalith/Exact.h"
#include "megalith/Sampling.h"
#include "megalith/Reducers.cuh"
#include "megalith/Selection.cuh"
#include "megalith/Answers.cuh"
#include "megalith/Stream.cuh"
#include "megalith/Operand.cuh"
#include "megalith/Product.cuh"
#include "megalith/Windows.cuh"
#include "megalith/WideProduct.cuh"
#include "megalith/AttentionPlan.cuh"
#include "megalith/AttentionParts.cuh"
#include "megalith/OwnRows.cuh"
#include "megalith/Attention.cuh"
#include "megalith/WideAttention.cuh"
#include "megalith/Units.cuh"
#include "megalith/Resident.cuh"
