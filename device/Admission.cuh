//===- Admission.cuh - who of those that wait gets a slot -----------------===//
//
// A stage on a state without slot runs for requests in that state, in an order: that of the pipeline, a struct beside
// the stage that gives a request's keys, or that of their priorities.
//===----------------------------------------------------------------------===//
#pragma once

#include "megalith/Activation.cuh"

namespace megalith::device {

/// A number whose order as u32 is that of the key. A NaN comes last; -0 is 0.
__device__ __forceinline__ u32 orderKey(int key) { return u32(key) ^ 0x80000000u; }
__device__ __forceinline__ u32 orderKey(float key) {
  const u32 bits = __float_as_uint(__fadd_rn(key, 0.0f));
  return key != key ? ~0u : bits >> 31 ? ~bits : bits | 0x80000000u;
}

/// Without an order of the pipeline: the greatest priority.
struct ByPriority {
  static constexpr int keys = 1;
  template <class Activation> __device__ static void of(Activation &t, u32 *key) { key[0] = ~orderKey(t.priority()); }
};

/// A place in an order: keys, then the number. Who has it stands in entry `entry` of the table.
template <int Keys> struct PlaceInOrder {
  u32 words[Keys + 1];
  int entry;
  __device__ static PlaceInOrder last() {
    PlaceInOrder place;
    place.entry = -1;
#pragma unroll
    for (int k = 0; k <= Keys; ++k)
      place.words[k] = ~0u;
    return place;
  }
  __device__ bool before(const PlaceInOrder &other) const {
    bool less = false;
#pragma unroll
    for (int k = Keys; k >= 0; --k)
      less = words[k] < other.words[k] || (words[k] == other.words[k] && less);
    return less;
  }
  /// The first of the warp's.
  __device__ PlaceInOrder firstOfWarp() const {
    PlaceInOrder first = *this;
#pragma unroll
    for (int distance = 16; distance; distance >>= 1) {
      PlaceInOrder other;
#pragma unroll
      for (int k = 0; k <= Keys; ++k)
        other.words[k] = __shfl_xor_sync(~0u, first.words[k], distance);
      other.entry = __shfl_xor_sync(~0u, first.entry, distance);
      if (other.before(first))
        first = other;
    }
    return first;
  }
};

/// Requests that a stage without slot looks at in a tick, if it says no other number.
constexpr int kLookedAt = 32;

/// Whether the pages of a slot still enter the index, and it does not have so many of them yet. One thread.
template <class Pool> __device__ __forceinline__ bool stillEnter(const Pool &pool, int slot, int pages) {
  if constexpr (Pool::indexed)
    return !pool.ownOnly[slot] && pool.sealed[slot] < pages;
  return false;
}
/// Whether the pages that a request waits for still come: its feeder has its slot, and has not fed all of them. One
/// thread.
template <class Control, class Request> __device__ bool stillFed(Control &c, const Request &r) {
  const int slot = r.feederSlot;
  if (r.feeder <= 0 || c.request[slot] < 0)
    return false;
  bool comes = false;
  c.pools.each([&](auto &pool) { comes = comes || (pool.model == r.feederPool && stillEnter(pool, slot, r.awaited)); });
  return comes && c.seated(slot).number == r.feeder - 1 && Control::holdsSlot(c.seated(slot).state);
}

/// How many of the first `most` tokens at two places are the same. The warp.
__device__ __forceinline__ int sameTokens(const int *a, const int *b, int most) {
  constexpr int together = 4;
#pragma unroll 1
  for (int base = 0; base < most; base += 32 * together) {
    u32 others[together];
#pragma unroll
    for (int k = 0; k < together; ++k) {
      const int i = base + 32 * k + laneId();
      others[k] = __ballot_sync(~0u, i >= most || a[i] != b[i]);
    }
#pragma unroll
    for (int k = 0; k < together; ++k)
      if (others[k])
        return min(most, base + 32 * k + __ffs(others[k]) - 1);
  }
  return most;
}

/// Finds pages of a request; their numbers stand in the table of `seat`, which is free. The warp.
template <class Pool, class Request>
__device__ void findPages(Pool &pool, const abi::LaunchParams &p, Request &r, int seat) {
  if constexpr (Pool::indexed) {
    pool.findPages(p, r, pool.table(seat));
    if (laneId() == 0)
      r.found[Pool::model] = pool.foundPages * Pool::pageTokens;
  }
}
/// The pages that a request has in common with the one in a slot, if these are more than were found, and the slot's
/// still enter; else 0. `same`: tokens that both begin with; below 0: not counted yet. The warp.
template <class Control, class Pool, class Request>
__device__ int pagesToCome(Control &c, Pool &pool, const Request &r, int slot, int &same) {
  if constexpr (Pool::indexed) {
    const abi::LaunchParams &p = c.params();
    const auto &other = c.seated(slot);
    const int most = min(r.numTokens - 1, other.promptLen);
    if (pool.ownOnly[slot] || most / Pool::pageTokens <= pool.foundPages)
      return 0;
    same = same < 0 ? sameTokens(p.tokens + r.tokenBegin, p.tokens + other.tokenBegin, most) : same;
    return same / Pool::pageTokens > pool.foundPages ? same / Pool::pageTokens : 0;
  }
  return 0;
}

/// Whether that may be: a look at two tokens, since most requests differ there. One thread.
template <class Control, class Pool, class Request>
__device__ bool mayCome(Control &c, const Pool &pool, const Request &r, int slot) {
  if constexpr (Pool::indexed) {
    const auto &other = c.seated(slot);
    const int *const mine = c.params().tokens + r.tokenBegin, *const its = c.params().tokens + other.tokenBegin;
    const int end = (pool.foundPages + 1) * Pool::pageTokens;
    return !pool.ownOnly[slot] && end <= min(r.numTokens - 1, other.promptLen) && mine[0] == its[0] &&
           mine[end - 1] == its[end - 1];
  }
  return false;
}

/// Looks for pages of the request that admission visits. Whether the request is to wait, because another one in a slot
/// feeds what it could find afterwards: it waits for one such request, once. Warp 0.
template <class Control, class Request> __device__ __noinline__ bool findOrWait(Control &c, Request &r, int seat) {
  const abi::LaunchParams &p = c.params();
  c.pools.each([&](auto &pool) { findPages(pool, p, r, seat); });
  __syncwarp();
  const bool looks = !r.promptLines && p.kvInPlace == 0 && r.feeder == 0;
  __syncwarp(); // all lanes have read it
  int feeder = -1, of = 0, inPool = 0, awaited = 0;
#pragma unroll 1
  for (int base = 0; looks && feeder < 0 && base < Control::Config::slots; base += 32) {
    const int s = base + laneId();
    bool may = false;
    if (s < Control::Config::slots && c.request[s] >= 0 && c.seated(s).cache == r.cache &&
        Control::holdsSlot(c.seated(s).state))
      c.pools.each([&](auto &pool) { may = may || mayCome(c, pool, r, s); });
#pragma unroll 1
    for (u32 left = __ballot_sync(~0u, may); feeder < 0 && left; left &= left - 1) {
      of = base + __ffs(left) - 1;
      int same = -1;
      c.pools.each([&](auto &pool) {
        if (const int pages = feeder < 0 ? pagesToCome(c, pool, r, of, same) : 0) {
          feeder = c.seated(of).number;
          inPool = pool.model;
          awaited = pages;
        }
      });
    }
  }
  __syncwarp();
  if (laneId() == 0) {
    r.feeder = feeder < 0 ? -1 : 1 + feeder;
    r.feederSlot = of;
    r.feederPool = inPool;
    r.awaited = awaited;
  }
  __syncwarp();
  return feeder >= 0;
}

/// Whether a pool has the pages to reserve for a request that is visited, beside those found for it.
template <class Pool, class Request> __device__ __forceinline__ bool canReserve(const Pool &pool, const Request &r) {
  if constexpr (!Pool::reserves)
    return true;
  else if constexpr (Pool::indexed)
    return max(0, pool.pagesToReserve(r) - pool.foundPages) <= pool.unreserved - pool.foundCached;
  else
    return pool.pagesToReserve(r) <= pool.unreserved;
}

/// Runs `stage` for requests in `state`, in their order: `limit` at most. Goes on while a slot is free and the next
/// request finds the pages to reserve. Warp 0.
template <class Order, class Control, class Stage>
__device__ __noinline__ void admitRequests(Control &c, int state, int limit, Stage stage) {
  const abi::LaunchParams &p = c.params();
  using Place = PlaceInOrder<Order::keys>;
  Place next; // requests that are not after it have been looked at
  for (int looked = 0; c.freeSlots > 0 && looked < limit; ++looked) {
    Place first = Place::last();
#pragma unroll 1
    for (int i = laneId(); i < p.numRequests; i += 32) {
      const auto &r = c.tableEntry(i);
      if (r.state != state || r.slot >= 0)
        continue;
      if constexpr (Control::indexed)
        if (stillFed(c, r)) // it is not visited
          continue;
      ActivationOf<Control> t(c, i, -1);
      Place place;
      Order::of(t, place.words);
      place.words[Order::keys] = u32(r.number);
      place.entry = i;
      if ((looked == 0 || next.before(place)) && place.before(first))
        first = place;
    }
    next = first.firstOfWarp();
    if (next.entry < 0)
      break;
    ActivationOf<Control> t(c, next.entry, -1);
    const auto number = [](long long n) { return int(n < 0x7fffffff ? n : 0x7fffffff); };
    int tooSmall = -1; // the first pool that could not hold the request if it were alone
    c.pools.each([&](auto &pool) {
      if (tooSmall < 0 && pool.mostPositions(t.r) > pool.mostTokens()) {
        tooSmall = pool.model;
        t.numbers = {number(pool.mostPositions(t.r)), number(pool.mostTokens()), 0};
      }
    });
    if (tooSmall >= 0) {
      t.fail(abi::kModels > 1 ? faultAtPool(kKvTooLarge, tooSmall) : int(kKvTooLarge));
      continue;
    }
    if constexpr (Control::indexed)
      if (findOrWait(c, t.r, freeSeat(c)))
        continue;
    // Nobody overtakes a request that waits for pages.
    if (!c.pools.all([&](const auto &pool) { return canReserve(pool, t.r); })) {
      if (laneId() == 0)
        c.refused = 1;
      break;
    }
    stage(t);
  }
}
template <class Order = ByPriority, class Control, class State, class Stage>
__device__ __forceinline__ void admission(Control &c, State state, Stage stage, int limit = kLookedAt) {
  // Only warp 0 changes these, between two barriers.
  if (c.unseated == 0 || (Control::reserves && c.refused != 0))
    return;
  consumerSync();
  if (warpId() == 0)
    admitRequests<Order>(c, int(state), limit, stage);
  consumerSync();
}

} // namespace megalith::device
