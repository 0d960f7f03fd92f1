//===- ControlUnit.cuh - what the control unit of a kernel includes -------===//
//
// No header of the CUDA toolkit or of the host is included: NVRTC compiles the
// emitted source with these files alone.
//===----------------------------------------------------------------------===//
#pragma once

#include "megalith/Abi.h"
#include "megalith/Contract/Row.h"
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
#include "megalith/Exact.h"
#include "megalith/Sampling.h"
#include "megalith/Faults.cuh"
#include "megalith/Pages.cuh"
#include "megalith/Sequences.cuh"
#include "megalith/LogitsQueries.cuh"
#include "megalith/Texts.cuh"
#include "megalith/ControlTrees.cuh"
#include "megalith/Control.cuh"
#include "megalith/Binders.cuh"
#include "megalith/Activation.cuh"
#include "megalith/HostSide.cuh"
#include "megalith/Live.cuh"
#include "megalith/HostTick.cuh"
#include "megalith/Admission.cuh"
#include "megalith/ControlTick.cuh"
#include "megalith/ChooseCalls.cuh"
#include "megalith/ControlPass.cuh"
#include "megalith/Units.cuh"
