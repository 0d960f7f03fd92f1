// Kernels of a cubin, and how long they take.
#pragma once
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>
#include <string>

#define CHECK(call)                                                                                                    \
  do {                                                                                                                 \
    cudaError_t e_ = (call);                                                                                           \
    if (e_ != cudaSuccess) {                                                                                           \
      printf("%s:%d %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(e_));                                     \
      exit(1);                                                                                                         \
    }                                                                                                                  \
  } while (0)
using u16 = unsigned short;
using u32 = unsigned;
using u64 = unsigned long long;
struct Module {
  cudaLibrary_t lib;
  explicit Module(const std::string &path) {
    CHECK(cudaLibraryLoadFromFile(&lib, path.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  }
  void *get(const char *name) const {
    cudaKernel_t k;
    CHECK(cudaLibraryGetKernel(&k, lib, name));
    return (void *)k;
  }
  template <class... A> void launch(const char *name, dim3 grid, dim3 block, A... args) const {
    void *list[] = {&args...};
    CHECK(cudaLaunchKernel(get(name), grid, block, list, 0, 0));
  }
};
/// A kernel of 384 threads on each SM, all of which run at the same time.
class ResidentKernel {
  void *kernel;
  cudaLaunchAttribute attr[1];
  cudaLaunchConfig_t config = {};
  cudaEvent_t begin, end;

public:
  ResidentKernel(const ResidentKernel &) = delete;
  ResidentKernel(const Module &m, const char *name) : kernel(m.get(name)) {
    const int bytes = 216 << 10;
    CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    attr[0].id = cudaLaunchAttributeCooperative, attr[0].val.cooperative = 1;
    config.gridDim = 132, config.blockDim = 384, config.dynamicSmemBytes = bytes, config.attrs = attr,
    config.numAttrs = 1;
    CHECK(cudaEventCreate(&begin));
    CHECK(cudaEventCreate(&end));
  }
  ~ResidentKernel() {
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
  }
  /// Milliseconds of a launch with this parameter.
  float time(void *parameter) const {
    void *args[] = {parameter};
    float ms;
    CHECK(cudaEventRecord(begin));
    CHECK(cudaLaunchKernelExC(&config, kernel, args));
    CHECK(cudaEventRecord(end));
    CHECK(cudaEventSynchronize(end));
    CHECK(cudaEventElapsedTime(&ms, begin, end));
    return ms;
  }
};
