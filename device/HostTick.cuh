//===- HostTick.cuh - the host's part of a tick ---------------------------===//
//
// What the host wants is looked at once in a tick. It comes as orders. The host of a batch has put in all of them
// before the launch, each with a time; that of a live session puts them into a ring when it likes, and they are due at
// once.
//===----------------------------------------------------------------------===//
#pragma once

#include "megalith/HostSide.cuh"
#include "megalith/Live.cuh"

namespace megalith::device {

constexpr int kStopsEvery = 16; ///< ticks between two looks at whether the host wants to stop
constexpr u32 kNapNs = 20000;   ///< between two looks at what the host wants where nothing is left to do

/// Order number `number`. It is there.
__device__ __forceinline__ const abi::Order &orderOf(const abi::HostSide &h, u32 number) {
  const char *const from = h.rings ? h.rings : reinterpret_cast<const char *>(&h);
  return reinterpret_cast<const abi::Order *>(from + h.orders)[number & h.ordersMask];
}

/// This tick does not count, so it takes nothing.
template <class Control> __device__ __forceinline__ bool isPastLast(const Control &c) {
  return c.params().maxTicks > 0 && c.tick >= c.params().maxTicks;
}

/// How many orders there are. `heard`: those of which the end of the last tick heard are enough. One thread.
__device__ __forceinline__ u32 ordersPut(const abi::HostSide &h, bool heard) {
  if (!h.rings)
    return h.ordersHeard;
  abi::HostRings &rings = ringsOf(h);
  u32 put = heard ? h.ordersHeard : hearWord(&rings.ordersPut);
  // Mostly there is nothing. Only who takes something has to see what comes after the word.
  if (put != h.ordersTaken)
    put = loadSystem(&rings.ordersPut);
  return put;
}

/// Whether the host of a live session wants to stop, and whether more may come of it. One thread.
template <class Control> __device__ __forceinline__ void hearStops(const Control &c, abi::HostSide &h) {
  abi::HostRings &rings = ringsOf(h);
  // A word of the host's memory takes a while to come. While requests go on, there is no hurry.
  if (c.openRequests == 0 || c.tick % kStopsEvery == 0)
    h.stops = int(loadSystem(&rings.stops));
  // The host puts no order in after its word to stop, so that there is none where others were counted before it.
  h.coming = !(h.stops == int(abi::kStopsDrained) && h.ordersTaken == loadSystem(&rings.ordersPut) && !h.newsPending);
}

/// Takes the orders that are due. The warp.
template <class Control> __device__ void takeOrders(Control &c, bool heard) {
  using Config = typename Control::Config;
  abi::HostSide &h = *c.params().host;
  u32 put = 0;
  if (laneId() == 0) {
    put = isPastLast(c) ? h.ordersTaken : ordersPut(h, heard);
    h.nowMs = millisecondsOfRun(c.params(), c.tick);
  }
  put = __shfl_sync(~0u, put, 0); // what the other lanes read is after it
  __syncwarp();
  u32 taken = h.ordersTaken;
  int events = h.taken;
#pragma unroll 1
  for (; taken != put && events < abi::kMostHostEvents; ++taken) {
    const abi::Order order = orderOf(h, taken);
    if (order.tick > c.tick || order.ms > h.nowMs)
      break;
    if (!order.cancels && c.tableEntry(order.entry).slot >= 0)
      break;      // the one before it gives its slot back in this tick
    __syncwarp(); // all lanes have seen that
    if (h.rings && !order.cancels)
      bringRequest(c, order.entry);
    if (laneId() == 0) {
      h.takenEvents[events] = u32(order.number) | (order.cancels ? abi::kTraceCancels : 0u);
      if (!order.cancels)
        arrive(c, order);
      else if (c.anywhere(order.entry).number == order.number) // else it has ended
        endByHost(c, order.entry, cancelStateOf<Config>(), kCancelled);
    }
    ++events;
    __syncwarp();
  }
  __syncwarp();
  if (laneId() == 0) {
    h.ordersTaken = taken;
    h.taken = events;
    if (h.rings)
      hearStops(c, h);
  }
  __syncwarp();
}

/// Nothing is left to do until the next order of a batch: goes on to its tick, or sleeps a little until its time. One
/// thread.
template <class Control> __device__ void goToOrder(Control &c, u32 naps) {
  const abi::HostSide &h = *c.params().host;
  const abi::Order &next = orderOf(h, h.ordersTaken);
  c.tick = max(c.tick, h.realClock ? next.tick : max(next.tick, next.ms));
  if (h.realClock && millisecondsOfRun(c.params(), c.tick) < next.ms)
    nap(c.params(), naps, kNapNs);
}

/// The host's orders of this tick. Where nothing is left to do, waits for one. The warp.
template <class Control> __device__ void listen(Control &c) {
  const abi::LaunchParams &p = c.params();
  abi::HostSide &h = *p.host;
  u64 since = 0;
#pragma unroll 1
  for (u32 naps = 1;; ++naps) {
    takeOrders(c, naps == 1 && c.openRequests > 0);
    if (c.openRequests > 0 || c.changes > 0 || h.stops == int(abi::kStopsNow) || isPastLast(c))
      break;
    // Another CTA may ask to stop at any time: all lanes are to find the same. What else they ask here stays as it is
    // until all have asked.
    if (__shfl_sync(~0u, laneId() == 0 && loadRelaxed(p.sync + kStopFlag) != 0, 0))
      break;
    if (!h.rings) { // a batch says in which ticks its orders are taken, even those that change nothing
      if (h.taken > 0 || h.coming == 0)
        break;
      __syncwarp();
      if (laneId() == 0)
        goToOrder(c, naps);
      __syncwarp();
      continue;
    }
    if (c.freeSlots < Control::Config::slots) // of those that ended in the last tick. Their entries may be wanted
      reclaim(c);
    if (h.newsPending)
      tellHost(c);
    if (since == 0)
      tellState(c);
    if (!h.coming)
      break;
    const u64 now = __shfl_sync(~0u, nanoseconds(), 0);
    since = since ? since : now;
    if (h.idleNs >= 0 && now - since >= u64(h.idleNs) && !h.newsPending) {
      if (laneId() == 0)
        h.rests = 1;
      break;
    }
    if (laneId() == 0) {
      h.taken = 0; // what was taken changed nothing
      nap(p, naps, kNapNs);
    }
    __syncwarp();
  }
  __syncwarp();
}

/// The host's part of a tick. Warp 0.
template <class Control> __device__ __noinline__ void sampleHost(Control &c) {
  __syncwarp(); // all lanes have read the tick, which may be another one now
  abi::HostSide &h = *c.params().host;
  if (laneId() == 0)
    h.taken = 0;
  __syncwarp();
  listen(c);
  if (laneId() == 0)
    h.samples += h.clockTicks > 0;
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
