//===- HostSide.cuh - arrivals, cancellations, deadlines ------------------===//
//
// What comes of what the host wants while the kernel runs. Warp 0 takes it at a tick's start, before anything else, and
// all of the tick sees the same: HostTick.cuh. docs/ir.md, "The host's side".
//===----------------------------------------------------------------------===//
#pragma once

#include "megalith/Faults.cuh"
#include "megalith/Pages.cuh"

namespace megalith::device {

/// Where requests go that the host takes back, and those whose time is over: the state of faults, if the pipeline names
/// no other.
template <class Config> __device__ constexpr int cancelStateOf() {
  if constexpr (requires { Config::cancelState; })
    return Config::cancelState;
  else
    return Config::faultState;
}
template <class Config> __device__ constexpr int deadlineStateOf() {
  if constexpr (requires { Config::deadlineState; })
    return Config::deadlineState;
  else
    return Config::faultState;
}

/// Milliseconds since the run began, as the tick sees them. Without a clock of its own the run counts ticks.
__device__ __forceinline__ int millisecondsOfRun(const abi::LaunchParams &p, int tick) {
  const abi::HostSide &h = *p.host;
  if (h.clockTicks > 0)
    return hostClock(p)[min(h.samples, h.clockTicks - 1)];
  if (!h.realClock)
    return tick;
  const u64 milliseconds = (nanoseconds() - p.stats->begin) / 1000000;
  return milliseconds < 0x7fffffff ? int(milliseconds) : 0x7fffffff;
}

/// Sleeps a little. The watchdog sees that control goes on. One thread.
__device__ __forceinline__ void nap(const abi::LaunchParams &p, u32 naps, u32 nanoseconds) {
  __nanosleep(nanoseconds);
  storeFresh(p.sync + kTicksAlone, ~naps);
}

/// Ends a request in any state. A call that it waits at is withdrawn. One thread.
template <class Control> __device__ void endByHost(Control &c, int number, int state, int code) {
  auto &r = c.anywhere(number);
  if (Control::isState(r.state) && !Control::isTerminal(r.state))
    c.move(r, state, code);
}

/// The request in an entry of the table arrives. One thread.
template <class Control> __device__ void arrive(Control &c, const abi::Order &order) {
  abi::HostSide &h = *c.params().host;
  auto &r = c.tableEntry(order.entry);
  r.state = r.stateBefore = h.initialState;
  arrivalsOf(c.params())[order.entry] = {c.tick, h.nowMs, order.deadlineMs, -1, 0, 0, nanoseconds()};
  ++c.openRequests;
  ++c.unseated;
  --h.coming;
  if (const long long deadline = (long long)h.nowMs + order.deadlineMs;
      order.deadlineMs > 0 && deadline < h.nextDeadline)
    h.nextDeadline = deadline;
}

/// Ends the requests whose time is over, those first whose was over first. Warp 0.
template <class Control> __device__ __noinline__ void endByDeadlines(Control &c) {
  using Config = typename Control::Config;
  const abi::LaunchParams &p = c.params();
  abi::HostSide &h = *p.host;
#pragma unroll 1
  for (int ended = 0;; ++ended) {
    // Milliseconds above, the request's number below.
    u64 first = ~0ull;
    int entry = -1;
#pragma unroll 1
    for (int i = laneId(); i < p.numRequests; i += 32) {
      const abi::Arrival &arrival = arrivalsOf(p)[i];
      const auto &r = c.anywhere(i);
      const u64 when = ((u64)arrival.ms + arrival.deadlineMs) << 32 | (u32)r.number;
      if (arrival.deadlineMs > 0 && Control::isState(r.state) && !Control::isTerminal(r.state) && when < first) {
        first = when;
        entry = i;
      }
    }
#pragma unroll
    for (int distance = 16; distance; distance >>= 1) {
      const u64 other = __shfl_xor_sync(~0u, first, distance);
      const int entryOfOther = __shfl_xor_sync(~0u, entry, distance);
      if (other < first) {
        first = other;
        entry = entryOfOther;
      }
    }
    const long long when = first == ~0ull ? abi::kNoDeadline : (long long)(first >> 32);
    const bool due = when <= h.nowMs;
    __syncwarp();
    if (laneId() == 0) {
      h.nextDeadline = when;
      if (due && ended < abi::kMostHostEvents)
        endByHost(c, entry, deadlineStateOf<Config>(), kDeadline);
    }
    __syncwarp();
    if (!due || ended == abi::kMostHostEvents)
      return;
  }
}

} // namespace megalith::device
