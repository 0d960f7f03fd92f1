#include "runtime/CudaError.h"

namespace megalith::runtime {

RuntimeError gpuAbsent(const std::string &why) {
  return {"gpu-absent", "no usable GPU: " + why + "; `--device=reference` runs on any machine"};
}

RuntimeError gpuTooOld(const std::string &name, int major, int minor) {
  return {"gpu-too-old", "the GPU `" + name + "` is too old: its compute capability is " + std::to_string(major) + "." +
                             std::to_string(minor) +
                             ", 8.0 or newer is needed; `--device=reference` runs on any machine"};
}

RuntimeError gpuOutOfMemory(size_t needed, size_t available) {
  return {"gpu-out-of-memory", "not enough GPU memory: " + std::to_string(needed) + " bytes are needed, " +
                                   std::to_string(available) + " are available"};
}

RuntimeError cudaDriver(const std::string &function, const std::string &code, const std::string &text) {
  return {"cuda-driver", "`" + function + "` failed with " + code + ": " + text};
}

} // namespace megalith::runtime
