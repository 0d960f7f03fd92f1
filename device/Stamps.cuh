//===- Stamps.cuh - when each CTA came to each phase ----------------------===//
//
// For measurements: a kernel with `--plan stamps=1` calls these around every phase,
// any other kernel has none of it. Event `i` of a tick (the manifest lists them as
// `stamps`) has two words in LaunchParams::stamps, its begin and its end.
//===----------------------------------------------------------------------===//
#pragma once

#include "megalith/Sync.cuh"

namespace megalith::device {

__device__ __forceinline__ void stampWord(const GridEdges &grid, int word, u64 time) {
  const abi::LaunchParams &p = *grid.params;
  if (threadIdx.x == 0 && p.stamps)
    p.stamps[((long long)(grid.tick % p.stampTicks) * gridDim.x + blockIdx.x) * p.stampWords + word] = time;
}

__device__ __forceinline__ void stampBegin(const GridEdges &grid, int event) {
  stampWord(grid, 2 * event, nanoseconds());
}

/// All consumer threads: what ends is the work of the whole CTA.
__device__ __forceinline__ void stampEnd(const GridEdges &grid, int event) {
  consumerSync();
  stampWord(grid, 2 * event + 1, nanoseconds());
}

} // namespace megalith::device
