//===- Steps.cuh - the order in which weights arrive ----------------------===//
//
// A segment of a model is a list of steps, the same in every pass. The producer goes through it.
//===----------------------------------------------------------------------===//
#pragma once

#include "megalith/SharedMemory.h"
#include "megalith/Values.cuh"
#include "megalith/Matrices.cuh"

namespace megalith::device {

/// What the producer does at one point of its order: a matrix, keys and values, or a vector that
/// consumers will read. In layers the second one lies `layerBytes` after the first.
struct StreamStep {
  long long offset, layerBytes; ///< in LaunchParams::stream
  int chunkBytes;               ///< 0: keys and values; of a vector all of it
  int chunks;                   ///< of a group; 0: a vector
  int groups, descending;
  int firstCta;                ///< of those that have groups
  int unitParts, firstUnitCta; ///< of passes of more than one row tile, see WideProduct.cuh
};
template <class M> __device__ constexpr StreamStep matrixStep(bool inLayers) {
  StreamStep step = {
      M::offset,  inLayers ? M::layerBytes : 0, chunkBytes<M>(), chunksPerGroup<M>(), M::groups, M::descending,
      M::firstCta};
  if constexpr (requires { M::unitParts; }) {
    step.unitParts = M::unitParts;
    step.firstUnitCta = M::firstUnitCta;
  }
  return step;
}
__device__ constexpr StreamStep vectorStep(long long offset, long long layerBytes, int bytes) {
  return {offset, layerBytes, bytes};
}
__device__ constexpr StreamStep kvStep() { return {}; }

/// Lanes of the producer warp; where one lane copies whole chunks there is but one.
#if __CUDA_ARCH__ >= 900
constexpr int kProducerLanes = 1;
#else
constexpr int kProducerLanes = 32;
#endif

/// Asks for these bytes to be in the L2 cache soon.
__device__ __forceinline__ void bringNear(const char *bytes, int count) {
  if constexpr (kProducerLanes == 1)
    prefetchBulk(bytes, count);
  else
    for (int i = laneId() * 128; i < count; i += kProducerLanes * 128)
      prefetch(bytes + i);
}

/// The first of this CTA's groups, or none of them.
__device__ __forceinline__ int firstGroup(const StreamStep &step) {
  const int number = (int)blockIdx.x - step.firstCta;
  return number < 0 ? step.groups : number;
}

/// Chunks that a CTA asks for while it waits for a pass's plan, and has no stage for: the memory would rest then. More
/// of them would come no sooner than the ring asks for them, and delay the words that control waits for.
constexpr int kChunksAhead = 8;

/// Of this CTA's chunks there, asks for those after the first `skip` to be in the L2 cache soon: some of the first
/// layer only.
inline __device__ __noinline__ void bringAhead(const StreamBegin &begin, int skip) {
  assumeShared(&begin);
  int left = kChunksAhead;
#pragma unroll 1
  for (int i = 0; i < begin.count && left > 0; ++i) {
    const StreamStep &step = begin.steps[i];
#pragma unroll 1
    for (int g = firstGroup(step); step.chunks > 0 && g < step.groups && left > 0; g += gridDim.x - step.firstCta) {
      const long long group = step.descending ? step.groups - 1 - g : g;
      const int from = min(skip, step.chunks), count = min(left, step.chunks - from);
      if (count > 0)
        bringNear(begin.stream + step.offset + (group * step.chunks + from) * step.chunkBytes, count * step.chunkBytes);
      skip -= from;
      left -= count;
    }
  }
}

} // namespace megalith::device
