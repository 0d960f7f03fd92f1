//===- Bench.cuh - kernels of `megalith bench` ----------------------------===//
//
// `megalith bench` compiles this file as a unit of its own, and links it with the kernel's.
//
// Random tensors. Element `i` (row-major, from 0) of the tensor whose name in the
// checkpoint is NAME:
//
//   seed    = CRC-32 of the bytes of NAME (that of zlib)
//   x       = hash32(u32(i) ^ hash32(u32(i >> 32) ^ seed))        hash32: Sync.cuh
//   centred = (x >> 8) * 2^-24 - 0.5                              exact in f32
//   value   = bf16(mean + centred * scale)                        each step rounds to nearest even
//
//   two dimensions              mean 0, scale = f32(2 sqrt(3) / sqrt(columns)): variance 1 / columns
//   one dimension               mean 1, scale 0.25
//   one dimension, `*.bias`     mean 0, scale 0.1
//
// runtime/Fill.h computes seed, scale and mean.
//===----------------------------------------------------------------------===//
#pragma once

#include "megalith/Abi.h"
#include "megalith/Contract/Row.h"
#include "megalith/Shape.h"

#include "megalith/Types.cuh"
#include "megalith/Primitives.cuh"
#include "megalith/Values.cuh"
#include "megalith/Sync.cuh"

namespace megalith::device {

__device__ __forceinline__ u16 fillValue(u64 i, u32 seed, float scale, float mean) {
  const u32 x = hash32((u32)i ^ hash32((u32)(i >> 32) ^ seed));
  const float centred = (float)(x >> 8) * 0x1p-24f - 0.5f;
  // Not contracted: a fused multiply-add would round once.
  return (u16)packBf16(__fadd_rn(mean, __fmul_rn(centred, scale)), 0.0f);
}

constexpr int kReadChunk = 16384;

} // namespace megalith::device

/// Makes elements `first` to `first + count` of a tensor.
extern "C" __global__ void __launch_bounds__(256)
    megalith_fill(unsigned short *out, unsigned long long first, unsigned long long count, unsigned seed, float scale,
                  float mean) {
  const unsigned long long step = (unsigned long long)gridDim.x * blockDim.x;
  for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step)
    out[i] = megalith::device::fillValue(first + i, seed, scale, mean);
}

/// Reads `chunks` chunks of 16 KB, `passes` times: how fast a kernel of one CTA per SM can
/// read. `stages` chunks of each CTA are on their way at a time, in shared memory with a
/// barrier each after it. `sum` grows by the first word of each chunk read (below sm_90: by
/// every word).
extern "C" __global__ void __launch_bounds__(256, 1)
    megalith_read(const char *source, unsigned chunks, unsigned passes, unsigned stages, unsigned *sum) {
  using namespace megalith::device;
  const u32 mine = blockIdx.x < chunks ? (chunks - blockIdx.x + gridDim.x - 1) / gridDim.x : 0;
  u32 total = 0;
#if __CUDA_ARCH__ >= 900
  if (threadIdx.x != 0)
    return;
  char *ring = dynamicShared();
  u64 *full = reinterpret_cast<u64 *>(ring + stages * kReadChunk);
  for (u32 s = 0; s < stages; ++s)
    barrierInit(&full[s], 1);
  barriersReady();
  const u32 count = mine * passes;
  u32 stage = 0, parity = 1, chunk = 0;
  // Step `n` waits for chunk `n - stages` and asks for chunk `n`.
  for (u32 n = 0; n < count + stages; ++n) {
    char *slot = ring + stage * kReadChunk;
    if (n >= stages && n - stages < count) {
      while (!barrierTest(&full[stage], parity)) {
      }
      total += *reinterpret_cast<const u32 *>(slot);
      fenceAsyncShared(); // the slot is copied to next
    }
    if (n < count) {
      barrierArriveExpect(&full[stage], kReadChunk);
      copyBulk(slot, source + ((u64)chunk * gridDim.x + blockIdx.x) * kReadChunk, kReadChunk, &full[stage]);
      chunk = chunk + 1 == mine ? 0 : chunk + 1;
    }
    if (++stage == stages) {
      stage = 0;
      parity ^= 1;
    }
  }
#else
  for (u32 pass = 0; pass < passes; ++pass)
    for (u32 chunk = 0; chunk < mine; ++chunk) {
      const char *from = source + ((u64)chunk * gridDim.x + blockIdx.x) * kReadChunk + threadIdx.x * 16;
#pragma unroll
      for (int i = 0; i < kReadChunk; i += 4096) {
        const Words4 w = loadWords(from + i);
        total += w.x + w.y + w.z + w.w;
      }
    }
#endif
  atomicAdd(sum, total);
}
