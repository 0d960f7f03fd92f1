//===- Pages.cuh - the pages of a pool, and who holds them ----------------===//
//
// Free pages stand on a stack in memory. The request in a slot holds pages. Their numbers stand in its
// page table. Only control takes and gives pages, in CTA 0. No two requests share a page yet: `share` and
// the counts of holders will stand beside `take` and `give`.
//===----------------------------------------------------------------------===//
#pragma once

namespace megalith::device {

/// `P`: the pool's constants in `Config`: slots, model, pages, pageTokens.
template <class P> struct Pages {
  int freePages;          ///< on the stack
  int held[P::slots];     ///< pages of each slot
  int lastPage[P::slots]; ///< the last page of each slot: in shared memory, where the table is not

  __device__ __forceinline__ static const abi::ModelParams &memory() { return modelOf<P>(paramsOfCta()); }
  __device__ __forceinline__ static int *table(int slot) { return pageTableOf(memory(), slot); }
  __device__ static int pagesFor(int tokens) {
    return int((u32(tokens) + (P::pageTokens - 1)) / P::pageTokens); // pages can be as large as 2^30
  }
  /// Pages that a slot lacks for `tokens` positions.
  __device__ __forceinline__ int lacking(int slot, int tokens) const { return max(0, pagesFor(tokens) - held[slot]); }

  /// Reads what the host prepared, before the first tick. One thread.
  __device__ void start() {
    freePages = *memory().freeCount;
    for (int s = 0; s < P::slots; ++s)
      held[s] = 0;
  }
  /// Tells the host how many pages are free. One thread.
  __device__ __forceinline__ void publishFree() const { *memory().freeCount = freePages; }
  /// Notes how many pages a slot holds. One thread.
  __device__ __forceinline__ void setHeld(int slot, int count) {
    held[slot] = paramsOfCta().slots[slot].heldPages = count;
  }

  /// Page number `number` of a slot that takes pages from the stack, downwards from `top`. It is a page that the slot
  /// holds, or one that take() will give it.
  __device__ __forceinline__ int pageAt(int slot, int number, int top) const {
    const int have = held[slot];
    return number == have - 1 ? lastPage[slot]
           : number < have    ? table(slot)[number]
                              : memory().freeList[top - 1 - (number - have)];
  }
  /// Writes `count` pages from the stack, downwards from `top`, into the slot's table, behind the pages that the slot
  /// holds. The caller counts them. The whole warp.
  __device__ __forceinline__ void take(int slot, int top, int count) {
    int *const target = table(slot) + held[slot];
    const int *const stack = memory().freeList + top - 1;
#pragma unroll 1
    for (int i = laneId(); i < count; i += 32) {
      const int page = target[i] = stack[-i];
      if (i == count - 1)
        lastPage[slot] = page;
    }
  }
  /// Gives back the pages of a slot from number `kept` on, the last one first, to places on the stack from `begin` on.
  /// One lane. The other lanes of the warp may do so at the same time, for other slots and places.
  __device__ __forceinline__ void give(int slot, int kept, int begin) {
    const int have = held[slot];
    const int *const from = table(slot);
    int *const stack = memory().freeList + begin;
#pragma unroll 1
    for (int i = 0; i < have - kept; ++i)
      stack[i] = from[have - 1 - i];
    if (have > kept) {
      setHeld(slot, kept);
      if (kept > 0)
        lastPage[slot] = from[kept - 1];
    }
  }
};

/// A pool as control sees it: its pages, and what was promised of them.
template <class P> struct PoolState : Pages<P> {
  static constexpr bool reserves = !P::failWhenFull;
  int live, pressure; ///< snapshot of the tick: pages that requests hold; whether that is above the watermark
  int unpromised;     ///< free pages that no request in a slot was promised
  int promised[reserves ? P::slots : 1]; ///< pages that admission reserved, those that are held included

  /// What is left of a slot's promise.
  __device__ int promiseLeft(int slot) const { return reserves ? max(0, promised[slot] - this->held[slot]) : 0; }
  /// Sets `live` and `pressure`. One thread.
  __device__ __forceinline__ void takeSnapshot() {
    live = P::pages - this->freePages;
    pressure = 100ll * live > (long long)P::watermark * P::pages;
  }
};

} // namespace megalith::device
