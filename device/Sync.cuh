//===- Sync.cuh - barriers of the consumers of one CTA and of the grid ----===//
#pragma once

namespace megalith::device {

/// Words of LaunchParams::sync. Each stands in its own 128-byte line.
enum SyncWord { kGridArrivals = 0, kStopFlag = 32, kSyncWords = 64 };

__device__ __forceinline__ u32 hash32(u32 x) {
  x ^= x >> 16;
  x *= 0x7feb352du;
  x ^= x >> 15;
  x *= 0x846ca68bu;
  return x ^ (x >> 16);
}

/// State of the grid barrier in one CTA, in shared memory. Thread 0 writes it.
struct GridEdges {
  const abi::LaunchParams *params;
  u32 *stoppedHere; ///< flag in shared memory: 1 once this CTA knows that the kernel stops
  u32 arrivals = 0; ///< value of kGridArrivals when the present epoch is complete
  int tick = 0;

  /// True when some CTA asked all to leave.
  __device__ bool stopRequested() const {
    return loadRelaxed(params->sync + kStopFlag) != 0;
  }

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

  /// For a wait at edge `edge` that has lasted a while: whether the kernel stops, asked for
  /// by another CTA or, when nothing moved for too long, by this one. `since`: 0 at first.
  __device__ bool givesUp(int edge, u64 &since) const {
    if (stopRequested()) {
      storeFlag(stoppedHere, 1);
      return true;
    }
    if (params->watchdogNs > 0) {
      const u64 now = nanoseconds();
      if (since == 0)
        since = now;
      else if (now - since > (u64)params->watchdogNs)
        requestStop(1, edge);
    }
    return false;
  }
  /// The same for any thread of the CTA, in its `spin`th look.
  __device__ __forceinline__ bool stopSeen(int edge, u32 spin, u64 &since) const {
    return (spin % 64 == 1 && loadFlag(stoppedHere)) || (spin % 1024 == 0 && givesUp(edge, since));
  }
};

/// Grid-wide edge number `edge` of the plan: what any CTA wrote before it is
/// visible to every CTA after it. Arrivals only grow, so no reset races with a
/// late reader. Returns false when the kernel stops; callers return at once. `meanwhile`: what
/// all consumers of a CTA do between its own arrival and that of the last one.
template <class Meanwhile> __device__ __forceinline__ bool gridEdge(GridEdges &grid, int edge, Meanwhile meanwhile) {
  consumerSync();
  if (threadIdx.x == 0) {
    const abi::LaunchParams &p = *grid.params;
    noteEdge(edge);
    grid.arrivals += gridDim.x;
    if (p.delaySeed) { // a test hook: let other CTAs run ahead by up to 8 us
      const u32 spins = hash32(p.delaySeed ^ hash32(blockIdx.x ^ hash32(grid.arrivals))) & 8191;
      for (u32 i = 0; i < spins; i += 32)
        __nanosleep(32);
    }
    // Release: cumulative over what the barrier above ordered before it.
    addRelease(p.sync + kGridArrivals, 1);
  }
  meanwhile();
  if (threadIdx.x == 0) {
    u64 since = 0;
    const u32 *counter = grid.params->sync + kGridArrivals;
    for (u32 spin = 1; (int)(loadAcquire(counter) - grid.arrivals) < 0; ++spin)
      if (spin % 1024 == 0 && grid.givesUp(edge, since))
        break;
  }
  consumerSync();
  return loadFlag(grid.stoppedHere) == 0;
}
__device__ __forceinline__ bool gridEdge(GridEdges &grid, int edge) {
  return gridEdge(grid, edge, [] {});
}

} // namespace megalith::device
