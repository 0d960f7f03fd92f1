//===- CallUnit.cuh - what the kernel of a pipeline of buffers includes ----===//
#pragma once

#include "megalith/Abi.h"
#include "megalith/Call.cuh"
