//===- CudaLibraries.h - where libraries of the CUDA toolkit are ----------===//
#ifndef MEGALITH_LIB_JIT_CUDALIBRARIES_H
#define MEGALITH_LIB_JIT_CUDALIBRARIES_H

#include <string>
#include <vector>

namespace megalith::jit {

/// Where a library may be, in the order in which to try: what the environment variable `variable` names, and then
/// nothing else; else `names` for the loader, in CUDA toolkits ($CUDA_HOME, $CUDA_PATH, /usr/local/cuda*), and in
/// NVIDIA's Python packages of $VIRTUAL_ENV, ~/.local or the system: that of CUDA 13, and nvidia/`package` of CUDA 12.
/// Only paths that exist, plus bare names.
std::vector<std::string> cudaLibraries(const char *variable, const std::vector<std::string> &names,
                                       const std::string &package);

/// `libnvrtc.so.13.0.88` of a link to it.
std::string realFileName(const std::string &path);

} // namespace megalith::jit
#endif
