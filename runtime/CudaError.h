//===- CudaError.h - the driver's result codes ----------------------------===//
#ifndef MEGALITH_RUNTIME_CUDAERROR_H
#define MEGALITH_RUNTIME_CUDAERROR_H

#include "runtime/RuntimeError.h"
#include <cstddef>
#include <string>

namespace megalith::runtime {

/// Codes that the runtime tells apart; the driver names the others.
enum CUresult : int {
  CUDA_SUCCESS = 0,
  CUDA_ERROR_INVALID_VALUE = 1,
  CUDA_ERROR_OUT_OF_MEMORY = 2,
  CUDA_ERROR_NO_DEVICE = 100,
  CUDA_ERROR_INVALID_DEVICE = 101,
  CUDA_ERROR_NOT_READY = 600,
};

/// `gpu-absent`: why there is no GPU, and what works without one.
RuntimeError gpuAbsent(const std::string &why);
/// `gpu-too-old`.
RuntimeError gpuTooOld(const std::string &name, int major, int minor);
/// `gpu-out-of-memory`: what was asked for and what the device had, in bytes.
RuntimeError gpuOutOfMemory(size_t needed, size_t available);
/// `cuda-driver`: a call that failed, the name of its code, and the driver's text.
RuntimeError cudaDriver(const std::string &function, const std::string &code, const std::string &text);

} // namespace megalith::runtime
#endif
