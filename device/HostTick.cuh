//===- HostTick.cuh - the host's part of a tick ---------------------------===//
//
// What the host wants is looked at once in a tick: events of a script, or orders of a live session.
//===----------------------------------------------------------------------===//
#pragma once

#include "megalith/HostSide.cuh"
#include "megalith/Live.cuh"

namespace megalith::device {

/// The host's part of a tick. Warp 0.
template <class Control> __device__ __noinline__ void sampleHost(Control &c) {
  __syncwarp(); // all lanes have read the tick, which may be another one now
  abi::HostSide &h = *c.params().host;
  if (laneId() == 0) {
    h.taken = 0;
    if (!h.rings)
      takeEvents(c);
  }
  __syncwarp();
  if (h.rings)
    listen(c);
  if (h.nextDeadline <= h.nowMs)
    endByDeadlines(c);
}

/// Words of the tick's trace, and what stands in them: Abi.h, "Trace words".
__device__ __forceinline__ int hostTraceWords(const abi::HostSide &h) { return 2 + h.taken; }
__device__ __forceinline__ void traceHost(const abi::LaunchParams &p, u32 *out) {
  const abi::HostSide &h = *p.host;
  if (laneId() == 0) {
    out[0] = u32(h.nowMs);
    out[1] = u32(h.taken);
  }
  for (int i = laneId(); i < h.taken; i += 32)
    out[2 + i] = h.takenEvents[i];
}

} // namespace megalith::device
