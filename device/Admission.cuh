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
    // Nobody overtakes a request that waits for pages.
    if (!c.pools.all([&](const auto &pool) { return !pool.reserves || pool.pagesToReserve(t.r) <= pool.unreserved; })) {
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
