//===- Sync.cuh - barriers of the consumers of one CTA and of the grid ----===//
#pragma once

#include "megalith/SharedMemory.h"
#include "megalith/Primitives.cuh"

namespace megalith::device {

/// Words of LaunchParams::sync. Each stands in its own 128-byte line.
enum SyncWord {
  kGridArrivals = 0, ///< of CTAs, at edges and at the ends of passes
  kStopFlag = abi::kStopWord,
  kPassesLeft = 64,   ///< passes that all CTAs have left
  kTicksAlone = 96,   ///< the last tick that had no rows
  kQueriesThere = 128 ///< passes whose queries are there; of pipelines that have some
};
static_assert(kQueriesThere + 32 <= abi::kSyncWords);

__device__ __forceinline__ u32 hash32(u32 x) {
  x ^= x >> 16;
  x *= 0x7feb352du;
  x ^= x >> 15;
  x *= 0x846ca68bu;
  return x ^ (x >> 16);
}

/// The kernel's parameters, at the beginning of each CTA's shared memory: at hand, where constants that no
/// code has used for a while are not.
__device__ __forceinline__ abi::LaunchParams &paramsOfCta() {
  return *reinterpret_cast<abi::LaunchParams *>(dynamicShared());
}

/// A test hook: lets other CTAs run ahead by up to 8 us.
__device__ __forceinline__ void delayCta(const abi::LaunchParams &p, u32 number) {
  if (p.delaySeed) {
    const u32 spins = hash32(p.delaySeed ^ hash32(blockIdx.x ^ hash32(number))) & 8191;
    for (u32 i = 0; i < spins; i += 32)
      __nanosleep(32);
  }
}

/// The grid barrier in one CTA.
struct GridEdges : GridWords {
  /// True when some CTA asked all to leave.
  __device__ bool stopRequested() const { return loadRelaxed(params->sync + kStopFlag) != 0; }

  /// Records why the kernel stops, once, and asks every CTA to leave.
  __device__ void requestStop(int code, int edge) const {
    if (atomicCAS(&params->stop->code, 0, code) == 0) {
      params->stop->cta = blockIdx.x;
      params->stop->edge = edge;
      params->stop->tick = tick;
    }
    __threadfence();
    atomicExch(params->sync + kStopFlag, 1u);
  }

  static constexpr u64 kStops = ~0ull;
  /// For a wait at edge `edge` that has lasted a while: kStops when the kernel stops, asked for
  /// by another CTA or, when nothing moved for too long, by this one; else since when nothing has. `since`: the
  /// same of the last call, 0 at first.
  __device__ __noinline__ u64 givesUp(int edge, u64 since) const {
    assumeShared(this);
    if (stopRequested()) {
      storeFlag(stoppedHere, 1);
      return kStops;
    }
    if (params->watchdogNs > 0) {
      const u64 now = nanoseconds();
      if (since == 0)
        return now;
      if (now - since > (u64)params->watchdogNs)
        requestStop(1, edge);
    }
    return since;
  }
  /// The same for any thread of the CTA, in its `spin`th look: whether the kernel stops.
  __device__ __forceinline__ bool stopSeen(int edge, u32 spin, u64 &since) const {
    if (spin % 64 == 1 && loadFlag(stoppedHere))
      return true;
    if (spin % 1024 == 0)
      since = givesUp(edge, since);
    return since == kStops;
  }
};

/// Grid-wide edge number `edge` of the plan: what any CTA wrote before it is
/// visible to every CTA after it. Arrivals only grow, so no reset races with a
/// late reader. Returns false when the kernel stops; callers return at once.
__device__ __forceinline__ bool gridEdge(GridEdges &grid, int edge) {
  consumerSync();
  if (threadIdx.x == 0) {
    const abi::LaunchParams &p = *grid.params;
    noteEdge(edge);
    grid.arrivals += gridDim.x;
    delayCta(p, grid.arrivals);
    // Release: cumulative over what the barrier above ordered before it.
    addRelease(p.sync + kGridArrivals, 1);
    u64 since = 0;
    const u32 *counter = p.sync + kGridArrivals;
    for (u32 spin = 1; (int)(loadAcquire(counter) - grid.arrivals) < 0; ++spin)
      if (spin % 1024 == 0 && (since = grid.givesUp(edge, since)) == GridEdges::kStops)
        break;
  }
  // All threads are to find the same: the flag may be set meanwhile.
  return !consumerSyncAny(loadFlag(grid.stoppedHere) != 0);
}

} // namespace megalith::device
