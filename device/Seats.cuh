//===- Seats.cuh - how an admitted request gets its slot -------------------===//
//
// The end of the activation that admits it.
//===----------------------------------------------------------------------===//
#pragma once

#include "megalith/Control.cuh"

namespace megalith::device {

/// For measurements: the first `count` positions count as fed. Their pages leave the
/// free stack as if they had been.
template <class Activation, class Pool> __device__ void takeKv(Activation &t, Pool &pool, int seat, int count) {
  const int first = pool.firstSeen(count), pages = pool.pagesFor(count) - first;
  if (pages > pool.freePages) {
    t.fail(kPoolExhausted);
    return;
  }
  pool.startAt(seat, first);
  pool.take(seat, pool.freePages, pages);
  __threadfence(); // other CTAs read the page table in this pass already, see awaitPass
  __syncwarp();
  if (laneId() == 0) {
    pool.setHeld(seat, first + pages);
    pool.freePages -= pages;
    auto &kv = pool.kvOf(t.r);
    kv.len = kv.end = pool.known[seat] = count;
    if constexpr (Pool::indexed)
      pool.ownOnly[seat] = 1; // nobody is to find what is there
  }
  __syncwarp();
}

/// The pages that were found for the request become its first ones. What they have counts as fed.
template <class Activation, class Pool> __device__ void takeFound(Activation &t, Pool &pool, int seat) {
  if constexpr (Pool::indexed) {
    int *const table = pool.table(seat);
    const int pages = pool.foundPages;
    if (pages == 0)
      return;
    pool.holdFound(seat, table);
    if (laneId() == 0) {
      ++t.c.moved; // other CTAs read the page table in this pass already
      pool.setHeld(seat, pages);
      pool.lastPage[seat] = table[pages - 1];
      auto &kv = pool.kvOf(t.r);
      kv.len = kv.end = pool.known[seat] = pages * Pool::pageTokens;
    }
    __syncwarp();
  }
}

/// Reserves pages for a request that takes a slot, beside those that were found for it. One thread.
template <class Pool, class Request> __device__ __forceinline__ void reserve(Pool &pool, const Request &r, int seat) {
  if (!Pool::reserves)
    return;
  const int needs = pool.reserved[seat] = pool.pagesToReserve(r);
  if constexpr (Pool::indexed)
    pool.unreserved -= max(0, needs - pool.foundPages) + pool.foundCached;
  else
    pool.unreserved -= needs;
}

/// The lowest free slot; there is one. The warp.
template <class Control> __device__ int freeSeat(Control &c) {
  int first = 0;
#pragma unroll 1
  for (int base = 0; base < Control::Config::slots; base += 32) {
    const int s = base + laneId();
    if (const u32 open = __ballot_sync(~0u, s < Control::Config::slots && c.request[s] < 0)) {
      first = base + __ffs(open) - 1;
      break;
    }
  }
  __syncwarp(); // all lanes have read who sits there
  return first;
}

/// Seats an admitted request in the lowest free slot.
template <class Activation> __device__ void takeSlot(Activation &t) {
  using Control = typename Activation::Control;
  const abi::LaunchParams &p = t.p;
  auto &c = t.c;
  auto &r = t.r;
  const int seat = freeSeat(c);
  if (laneId() == 0) {
    c.request[seat] = p.slots[seat].request = t.number;
    c.gaugesSet[seat] = 0;
    openText<typename Control::Config>(p, seat);
    c.pools.each([&](auto &pool) {
      pool.open(seat);
      pool.known[seat] = pool.fedFrom[seat] = 0;
      if constexpr (requires { pool.runRows; })
        pool.runRows[seat] = 0;
      reserve(pool, r, seat);
    });
    r.slot = seat;
    --c.freeSlots;
    --c.unseated;
    if (p.times && p.times[r.timeBegin].tokens == 0)
      c.noteTime(p.times[r.timeBegin], 1);
    c.newest[seat] = r.numTokens > 0 ? p.tokens[r.tokenBegin + r.numTokens - 1] : 0;
    for (int e = 0; e < min(r.eosCount, Control::eosAtHand); ++e)
      c.eos[seat][e] = p.eos[r.eosBegin + e];
  }
  __syncwarp();
  if constexpr (Control::indexed) {
    c.pools.each([&](auto &pool) { takeFound(t, pool, seat); });
    if (laneId() == 0 && r.passes == 0) // its first slot
      r.foundFirst = r.kv[0].len;
    __syncwarp();
  }
  if (p.kvInPlace > 0)
    c.pools.each([&](auto &pool) { takeKv(t, pool, seat, min(p.kvInPlace, r.promptLen - 1)); });
  if (Control::seatsAreShared)
    Control::copy(r, c.seated(seat));
}

} // namespace megalith::device
