//===- Index.cuh - the pages of a pool that requests find by their tokens --===//
//
// A page stands in the index by its tokens and the page in front of it. So what a request finds there is what it would
// compute itself. Pages of the index that no slot holds are cached: they stand in a list, those that were let go first
// in front. docs/ir.md, "The index of a pool", has the rules; the reference executor's are in Pages.cpp.
//
// All of it is one warp's, that which reclaims, admits and chooses calls. It takes 32 pages at a time, since each word
// of a page comes from far away.
//===----------------------------------------------------------------------===//
#pragma once

#include "megalith/Pool.cuh"
#include "megalith/Sync.cuh"
#include "megalith/Values.cuh"

namespace megalith::device {

template <class P> __device__ constexpr bool hasIndex() {
  if constexpr (requires { P::index; })
    return P::index;
  else
    return false;
}

/// What stands in front of a page: the hash and the serial number of the page there, or those of a request's root.
struct PagesBefore {
  u64 hash;
  long long serial;
};

__device__ __forceinline__ u64 mixed(u64 x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ x >> 27) * 0x94d049bb133111ebull;
  return x ^ x >> 31;
}
/// In front of a request's first page. No page has such a serial number.
__device__ __forceinline__ PagesBefore rootOf(long long cache) {
  return {mixed(u64(cache) + 0x9e3779b97f4a7c15ull), -1 - cache};
}

template <class P> struct PageIndex : IndexTables<P::slots> {
  using Tables = IndexTables<P::slots>;
  using Tables::sealed, Tables::ownOnly, Tables::cached, Tables::oldest, Tables::newest, Tables::serials,
      Tables::foundPages, Tables::foundCached;
  static constexpr int buckets = abi::indexBuckets(P::pages), pageTokens = P::pageTokens;

  __device__ __forceinline__ static abi::IndexedPage *entries() {
    return reinterpret_cast<abi::IndexedPage *>(modelOf<P>(paramsOfCta()).index);
  }
  __device__ __forceinline__ static int *heads() { return reinterpret_cast<int *>(entries() + P::pages); }
  __device__ __forceinline__ static int &headOf(u64 hash) { return heads()[int(hash >> 32) & (buckets - 1)]; }
  /// The tokens of a page of the index.
  __device__ __forceinline__ static int *tokensOf(int page) { return heads() + buckets + (long long)page * pageTokens; }

  /// Before the first tick. The host has written zeros. One thread.
  __device__ void startIndex() {
    cached = oldest = newest = 0;
    serials = 0;
  }
  /// A request takes the slot. One thread.
  __device__ __forceinline__ void openIndex(int slot) { sealed[slot] = ownOnly[slot] = 0; }

  /// The hashes of `count` pages, at most 32, whose tokens begin at `tokens`: lane i has that of the first i + 1. A
  /// page's is that of its tokens, plus a multiple of the one before: so the warp adds them up in five steps.
  __device__ static u64 hashesOf(const int *tokens, int count, u64 before) {
    u64 mine = 0;
#pragma unroll 8
    for (int page = 0; page < count; ++page) {
      u64 sum = 0;
      for (int i = laneId(); i < pageTokens; i += 32)
        sum += mixed(u64(u32(tokens[page * pageTokens + i])) << 32 | u32(i));
      const u32 low = u32(__reduce_add_sync(~0u, int(u32(sum)))),
                high = u32(__reduce_add_sync(~0u, int(u32(sum >> 32))));
      if (laneId() == page)
        mine = u64(high) << 32 | low;
    }
    u64 factor = 0x9e3779b97f4a7c15ull;
    mine += laneId() == 0 ? before * factor : 0;
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2, factor *= factor) {
      const u64 below = __shfl_up_sync(~0u, mine, distance);
      mine += laneId() >= distance ? below * factor : 0;
    }
    return mine;
  }

  /// Of the pages that were looked for, what the index has. Each lane has one of them.
  struct Found {
    int count;  ///< the leading ones that are there
    bool isAll; ///< the one after these is not there, or was not looked for; else it is to be looked for again
    int page, holders;
    long long serial;
    u64 hash; ///< of the tokens that were looked for
  };
  /// Whether a page of the index has these tokens. The warp.
  __device__ __forceinline__ static bool hasTokens(int page, const int *tokens) {
    const int *const has = tokensOf(page);
    bool equal = true;
    for (int k = laneId(); k < pageTokens; k += 32)
      equal = equal && has[k] == tokens[k];
    return __all_sync(~0u, equal);
  }
  /// How many of tokens [first, end) are those of the lanes' pages, counted from 0: they are the same up to that one.
  /// The warp.
  __device__ static int sameTokens(int page, const int *tokens, int first, int end) {
    constexpr int together = 8; // loads under way
#pragma unroll 1
    for (; first < end; first += 32 * together) {
      u32 others[together];
#pragma unroll
      for (int k = 0; k < together; ++k) {
        const int i = first + 32 * k + laneId(), of = __shfl_sync(~0u, page, i / pageTokens % 32);
        others[k] = __ballot_sync(~0u, i < end && tokensOf(of)[i % pageTokens] != tokens[i]);
      }
#pragma unroll
      for (int k = 0; k < together; ++k)
        if (others[k])
          return first + 32 * k + __ffs(others[k]) - 1;
    }
    return end;
  }
  /// Looks for `count` pages, 1 to 32, whose tokens begin at `tokens`, each behind the one before; `hash`: as
  /// hashesOf() gives them. A hash is of 64 bits: that two pages have the same one happens in tests only. The first
  /// page is found all the same; another one that such a page hides is to be looked for as the first.
  __device__ static Found find(const int *tokens, int count, const PagesBefore &before, u64 hash) {
    Found found = {0, true, -1, 0, 0, hash};
    int page = laneId() < count ? headOf(found.hash) : 0;
    long long parent = 0;
#pragma unroll 1
    for (;;) {
#pragma unroll 1
      for (; page > 0; page = entries()[page - 1].next)
        if (const abi::IndexedPage &entry = entries()[page - 1];
            entry.hash == found.hash && (laneId() > 0 || entry.parent == before.serial)) {
          found.page = page - 1;
          found.holders = entry.holders;
          found.serial = entry.serial;
          parent = entry.parent;
          break;
        }
      __syncwarp();
      const int first = __shfl_sync(~0u, page, 0);
      if (first == 0)
        return found;
      if (hasTokens(first - 1, tokens))
        break;
      if (laneId() == 0)
        page = entries()[page - 1].next;
    }
    const long long above = __shfl_up_sync(~0u, found.serial, 1);
    const u32 others = ~__ballot_sync(~0u, page > 0 && (laneId() == 0 || parent == above));
    const int chain = others ? __ffs(others) - 1 : 32;
    found.count = sameTokens(found.page, tokens, pageTokens, chain * pageTokens) / pageTokens;
    found.isAll = found.count == count || __shfl_sync(~0u, page, found.count % 32) == 0;
    return found;
  }

  /// Finds the leading pages of a request, but leaves one token to be fed: its row gives the next one. Their numbers
  /// stand in `table` then, which no request has.
  template <class Request> __device__ void findPages(const abi::LaunchParams &p, const Request &r, int *table) {
    // Rows that the host wants are fed. For measurements, what is in place is not what the index would have.
    const int most = r.promptLines || p.kvInPlace > 0 ? 0 : max(0, r.numTokens - 1) / pageTokens;
    const int *const tokens = p.tokens + r.tokenBegin;
    PagesBefore before = rootOf(r.cache);
    int number = 0, notHeld = 0;
#pragma unroll 1
    for (bool goesOn = true; goesOn && number < most;) {
      const int asked = min(32, most - number);
      const int *const next = tokens + number * pageTokens;
      const Found found = find(next, asked, before, hashesOf(next, asked, before.hash));
      const bool mine = laneId() < found.count;
      if (mine)
        table[number + laneId()] = found.page;
      notHeld += __popc(__ballot_sync(~0u, mine && found.holders == 0));
      number += found.count;
      goesOn = found.count == asked || !found.isAll;
      const int last = max(0, found.count - 1);
      before = {__shfl_sync(~0u, found.hash, last), __shfl_sync(~0u, found.serial, last)};
    }
    __syncwarp();
    if (laneId() == 0) {
      foundPages = number;
      foundCached = notHeld;
    }
    __syncwarp();
  }

  /// The found pages, in `table`, have one more holder.
  __device__ void holdFound(int slot, const int *table) {
#pragma unroll 1
    for (int base = 0; base < foundPages; base += 32) {
      const int page = base + laneId() < foundPages ? table[base + laneId()] : -1;
      const bool leaves = page >= 0 && entries()[page].holders++ == 0; // the list of cached pages
      const int newer = leaves ? entries()[page].newer : 0;
      // Pages stand in the list as they were let go, the last one of a table first. So most of these are one run of it.
      const int deeper = __shfl_down_sync(~0u, newer, 1), above = __shfl_up_sync(~0u, leaves ? page + 1 : 0, 1);
      const bool ends = leaves && !(laneId() < 31 && deeper == page + 1); // no page of the run is older
      const bool begins = leaves && !(laneId() > 0 && newer > 0 && newer == above);
      const u32 firsts = __ballot_sync(~0u, begins), lasts = __ballot_sync(~0u, ends);
#pragma unroll 1
      for (u32 left = firsts; left; left &= left - 1) {
        const int first = __ffs(left) - 1, last = __ffs(lasts & ~0u << first) - 1;
        const int newestOfRun = __shfl_sync(~0u, page, first), oldestOfRun = __shfl_sync(~0u, page, last);
        if (laneId() == 0) {
          const int before = entries()[oldestOfRun].older, after = entries()[newestOfRun].newer;
          (before > 0 ? entries()[before - 1].newer : oldest) = after;
          (after > 0 ? entries()[after - 1].older : newest) = before;
        }
        __syncwarp();
      }
      const int left = __popc(__ballot_sync(~0u, leaves));
      if (laneId() == 0)
        cached -= left;
      __syncwarp();
    }
    if (laneId() == 0)
      sealed[slot] = foundPages;
    __syncwarp();
  }

  /// Enters the pages of a slot that end at or before position `end`, behind those that the index has. They are sealed
  /// from then on.
  template <class Request>
  __device__ void enterPages(const abi::LaunchParams &p, const Request &r, int slot, const int *table, int end) {
    const int *const tokens = p.tokens + r.tokenBegin;
#pragma unroll 1
    while (sealed[slot] < end / pageTokens) {
      const int first = sealed[slot], count = min(32, end / pageTokens - first);
      PagesBefore before = rootOf(r.cache);
      if (first > 0) {
        const abi::IndexedPage &last = entries()[table[first - 1]];
        before = {last.hash, last.serial};
      }
      // Behind a page that is new stands none.
      const u64 hash = hashesOf(tokens + first * pageTokens, count, before.hash);
      if (find(tokens + first * pageTokens, 1, before, hash).count > 0) { // another request fed the same
        if (laneId() == 0)
          ownOnly[slot] = 1;
        __syncwarp();
        return;
      }
      const int page = laneId() < count ? table[first + laneId()] : -1;
      if (page >= 0) {
        abi::IndexedPage &entry = entries()[page];
        entry.serial = serials + 1 + laneId();
        entry.parent = laneId() == 0 ? before.serial : serials + laneId();
        entry.hash = hash;
        entry.next = atomicExch(&headOf(hash), page + 1);
      }
#pragma unroll 8
      for (int base = 0; base < count * pageTokens; base += 32) {
        const int i = base + laneId(), to = __shfl_sync(~0u, page, i / pageTokens % 32);
        if (i < count * pageTokens)
          tokensOf(to)[i % pageTokens] = tokens[first * pageTokens + i];
      }
      __syncwarp();
      if (laneId() == 0) {
        serials += count;
        sealed[slot] = first + count;
      }
      __syncwarp();
    }
  }

  /// A slot lets go the pages of its table from number `kept` on, the last one first. Those that no other slot holds
  /// and the index does not have go onto the stack of free ones, which begins at `freeList`.
  __device__ void letGo(const int *table, int held, int kept, int *freeList, int &freePages) {
#pragma unroll 1
    for (int base = 0; base < held - kept; base += 32) {
      const int number = held - 1 - base - laneId(), page = number >= kept ? table[number] : -1;
      bool unheld = false, isIndexed = false;
      if (page >= 0) {
        abi::IndexedPage &entry = entries()[page];
        unheld = --entry.holders == 0;
        isIndexed = entry.serial != 0;
      }
      const u32 below = (1u << laneId()) - 1, free = __ballot_sync(~0u, unheld && !isIndexed),
                cache = __ballot_sync(~0u, unheld && isIndexed);
      if (unheld && !isIndexed)
        freeList[freePages + __popc(free & below)] = page;
      // The new cached ones stand at the end of the list, in the order of lanes.
      const u32 before = cache & below, after = cache & ~below & ~(1u << laneId());
      const int older = __shfl_sync(~0u, page, before ? 63 - __clzll((long long)before) : 0),
                newer = __shfl_sync(~0u, page, after ? __ffs(after) - 1 : 0);
      const int end = newest;
      __syncwarp();
      if (unheld && isIndexed) {
        entries()[page].older = before ? older + 1 : end;
        entries()[page].newer = after ? newer + 1 : 0;
        if (!before)
          (end > 0 ? entries()[end - 1].newer : oldest) = page + 1;
        if (!after)
          newest = page + 1;
      }
      __syncwarp();
      if (laneId() == 0) {
        freePages += __popc(free);
        cached += __popc(cache);
      }
      __syncwarp();
    }
  }

  /// Drops cached pages, those let go first, until `count` pages are free.
  __device__ void dropCached(int count, int *freeList, int &freePages) {
#pragma unroll 1
    while (freePages < count && oldest > 0) {
      // A lane gets each page, one page after the other. Then all leave their buckets.
      int page = 0, next = oldest, dropped = 0;
#pragma unroll 1
      for (; next > 0 && dropped < min(32, count - freePages); ++dropped) {
        page = laneId() == dropped ? next : page;
        next = entries()[next - 1].newer;
      }
      const u64 hash = page > 0 ? entries()[page - 1].hash : 0;
      const u32 sharers = __match_any_sync(~0u, page > 0 ? int(hash >> 32) & (buckets - 1) : -1 - laneId());
      const int turn = __popc(sharers & ((1u << laneId()) - 1)), turns = __reduce_max_sync(~0u, page > 0 ? turn : 0);
#pragma unroll 1
      for (int t = 0; t <= turns; ++t) { // pages of one bucket, one after the other
        if (page > 0 && turn == t) {
          int *place = &headOf(hash);
#pragma unroll 1
          while (*place != page)
            place = &entries()[*place - 1].next;
          *place = entries()[page - 1].next;
          entries()[page - 1].serial = 0;
          freeList[freePages + laneId()] = page - 1;
        }
        __syncwarp();
      }
      if (laneId() == 0) {
        (next > 0 ? entries()[next - 1].older : newest) = 0;
        oldest = next;
        cached -= dropped;
        freePages += dropped;
      }
      __syncwarp();
    }
  }
};

} // namespace megalith::device
