//===- Pages.cuh - the pages of a pool, and who holds them ----------------===//
//
// Free pages stand on a stack in memory. The request in a slot holds pages. Their numbers stand in its
// page table. Only control takes and gives pages, in CTA 0. Requests share pages where the pool has an index
// (Index.cuh): then each page counts its holders.
//
// Where all layers of the model have a window, a request gives back its first pages as it goes on. The others keep
// their places in the table; the entries of those given back are never read.
//===----------------------------------------------------------------------===//
#pragma once

#include "megalith/Index.cuh"
#include "megalith/Paths.cuh"

namespace megalith::device {

/// The most positions that a row sees in any layer, itself among them; 0: all.
template <class P> constexpr int windowOf() {
  if constexpr (requires { P::kvWindow; })
    return P::kvWindow;
  else
    return 0;
}
/// Where a slot's fed tokens of a pool stand in LaunchParams::callTokens.
struct CallTokens {
  int stride, begin;
};
template <class P> constexpr CallTokens callTokensOf() {
  if constexpr (requires { P::callBegin; })
    return {P::callStride, P::callBegin};
  else
    return {P::callTokens * (hasTrees<P>() ? 4 : 1), 0};
}
/// What a table has for a page that was given back. No pool has such a page, nor memory where it would be.
constexpr int kPageGone = (int)0x80000000u;

/// `P`: the pool's constants: slots, model, pages, pageTokens, and perhaps kvWindow.
template <class P>
struct Pages : Perhaps<(windowOf<P>() > 0), FirstPages<P::slots>>,
               Perhaps<hasIndex<P>(), PageIndex<P>>,
               PoolTables<P::slots> {
  static constexpr int window = windowOf<P>();
  static constexpr bool indexed = hasIndex<P>();
  static_assert(!indexed || window == 0, "pages that were given back cannot be found");
  using Tables = PoolTables<P::slots>;
  using Tables::freePages, Tables::held, Tables::lastPage;

  __device__ __forceinline__ static const abi::ModelParams &memory() { return modelOf<P>(paramsOfCta()); }
  __device__ __forceinline__ static int *table(int slot) { return pageTableOf(memory(), slot); }
  __device__ static int pagesFor(int tokens) {
    return int((u32(tokens) + (P::pageTokens - 1)) / P::pageTokens); // pages can be as large as 2^30
  }
  /// The first page that a row at `position`, or a later one, sees.
  __device__ __forceinline__ static int firstSeen(int position) {
    return window > 0 ? max(0, position - window + 1) / P::pageTokens : 0;
  }
  /// The first page that a slot has not given back.
  __device__ __forceinline__ int firstOf(int slot) const {
    if constexpr (window > 0)
      return this->firstPage[slot];
    else
      return 0;
  }
  /// Pages that a slot holds.
  __device__ __forceinline__ int holds(int slot) const { return held[slot] - firstOf(slot); }
  /// Of the snapshot of the tick.
  __device__ __forceinline__ int cachedPages() const {
    if constexpr (indexed)
      return this->cachedSeen;
    else
      return 0;
  }
  /// Words of a slot's table in a trace. The first one is firstOf(), negated, where that is not 0.
  __device__ __forceinline__ int tracedWords(int slot) const { return holds(slot) + (firstOf(slot) > 0); }
  __device__ __forceinline__ int tracedWord(int slot, int i) const {
    if constexpr (window > 0)
      if (const int first = firstOf(slot); first > 0)
        return i == 0 ? -first : table(slot)[first + i - 1];
    return table(slot)[i];
  }
  /// Pages that a slot lacks for `tokens` positions.
  __device__ __forceinline__ int lacking(int slot, int tokens) const { return max(0, pagesFor(tokens) - held[slot]); }

  /// Before the first tick. One thread.
  __device__ void start() {
    freePages = P::pages;
    for (int s = 0; s < P::slots; ++s)
      held[s] = 0;
    if constexpr (indexed)
      this->startIndex();
  }
  /// Pages that no slot holds: free ones, and those that the index would drop.
  __device__ __forceinline__ int available() const {
    if constexpr (indexed)
      return freePages + this->cached;
    else
      return freePages;
  }
  /// The index drops pages until `count` are free, as far as it has any that no slot holds.
  /// The whole warp.
  __device__ __forceinline__ void makeFree(int count) {
    if constexpr (indexed)
      this->dropCached(count, memory().freeList, freePages);
  }
  /// The leading pages of a slot that the index has.
  __device__ __forceinline__ int sealedOf(int slot) const {
    if constexpr (indexed)
      return this->sealed[slot];
    else
      return 0;
  }
  /// Notes how many pages a slot has. One thread.
  __device__ __forceinline__ void setHeld(int slot, int count) {
    held[slot] = count;
    if constexpr (P::model == 0)
      paramsOfCta().slots[slot].heldPages = count;
  }
  /// A request takes the slot. One thread.
  __device__ __forceinline__ void open(int slot) {
    setHeld(slot, 0);
    if constexpr (window > 0)
      this->firstPage[slot] = 0;
    if constexpr (indexed)
      this->openIndex(slot);
  }

  /// Page number `number` of a slot that takes pages from the stack, downwards from `top`. It is a page that the slot
  /// holds, or one that take() will give it.
  __device__ __forceinline__ int pageAt(int slot, int number, int top) const {
    const int have = held[slot];
    return number == have - 1 ? lastPage[slot]
           : number < have    ? table(slot)[number]
                              : memory().freeList[top - 1 - (number - have)];
  }
  /// Writes `count` pages from the stack, downwards from `top`, into the slot's table, after the pages that the slot
  /// holds. The caller counts them. The whole warp.
  __device__ __forceinline__ void take(int slot, int top, int count) {
    int *const target = table(slot) + held[slot];
    const int *const stack = memory().freeList + top - 1;
#pragma unroll 1
    for (int i = laneId(); i < count; i += 32) {
      const int page = target[i] = stack[-i];
      if constexpr (indexed)
        this->entries()[page].holders = 1;
      if (i == count - 1)
        lastPage[slot] = page;
    }
  }
  /// Of a slot without pages: the first `first` are to count as given back. The whole warp.
  __device__ __forceinline__ void startAt(int slot, int first) {
    if constexpr (window > 0) {
      for (int i = laneId(); i < first; i += 32)
        table(slot)[i] = kPageGone;
      __syncwarp();
      if (laneId() == 0) {
        this->firstPage[slot] = first;
        setHeld(slot, first);
      }
      __syncwarp();
    }
  }
  /// What the slot's pages have is to be computed again from position 0 on: they become its first ones. The whole
  /// warp.
  __device__ __noinline__ void startAgain(int slot) {
    if constexpr (window > 0) {
      const int first = firstOf(slot), count = holds(slot);
      int *const target = table(slot);
#pragma unroll 1
      for (int base = 0; base < count; base += 32) {
        const int i = base + laneId(), page = i < count ? target[first + i] : 0;
        __syncwarp();
        if (i < count)
          target[i] = page;
        __syncwarp();
      }
      if (laneId() == 0) {
        this->firstPage[slot] = 0;
        setHeld(slot, count);
      }
      __syncwarp();
    }
  }
  /// Gives back the pages of a slot in front of number `first`, the first one first, as give() does.
  __device__ __forceinline__ void giveFront(int slot, int first, int begin) {
    if constexpr (window > 0) {
      int *const from = table(slot);
      int *const stack = memory().freeList + begin - firstOf(slot);
#pragma unroll 1
      for (int i = firstOf(slot); i < first; ++i) {
        stack[i] = from[i];
        from[i] = kPageGone;
      }
      this->firstPage[slot] = first;
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
      if (kept > firstOf(slot))
        lastPage[slot] = from[kept - 1];
    }
  }
};

// What comes after abi::HostSide.
__device__ __forceinline__ abi::Arrival *arrivalsOf(const abi::LaunchParams &p) {
  return reinterpret_cast<abi::Arrival *>(p.host + 1);
}
__device__ __forceinline__ const int *hostClock(const abi::LaunchParams &p) {
  return reinterpret_cast<const int *>(arrivalsOf(p) + p.numRequests);
}

/// The lines of LaunchParams::logits that are a request's, one for each token that it may generate.
struct OwnLines {
  long long first;
  int from, count; ///< those that a row may write: for which generated tokens. `count` is 0 of one that has none
};
template <class Request>
__device__ __forceinline__ OwnLines linesOf(const abi::LaunchParams &p, const Request &r, int number) {
  if (p.logitsRows > 0) // all requests have as many
    return {number * p.logitsRows, 0, int(p.logitsRows)};
  // The host may read those of tokens that it was told of.
  return {r.firstLine - 1, r.generated, r.firstLine > 0 ? r.maxNewTokens : 0};
}
/// How many lines in front of these the rows of its prompt still write. The host may read them once it was told that
/// all were fed.
template <class Request>
__device__ __forceinline__ int promptLinesOf(const abi::LaunchParams &p, const Request &r, int number) {
  const int rows = r.promptLen - 1;
  return r.promptLines && arrivalsOf(p)[number].toldFed < rows ? rows : 0;
}

/// Of a live session: whether a line has what its token was predicted by.
__device__ __forceinline__ u32 &lineMark(const abi::LaunchParams &p, long long line) {
  return reinterpret_cast<u32 *>(p.host->rings + p.host->lineMarks)[line];
}

/// Words of a line of the caller's dump, which has room for the logits of any model.
template <class P> __device__ constexpr int dumpedWordsOf() {
  if constexpr (requires { P::dumpedWords; })
    return P::dumpedWords;
  else
    return P::vocab;
}

/// A pool as control sees it: its pages, and what of them is reserved.
template <class P>
struct PoolState : Pages<P>,
                   Perhaps<hasRuns<P>(), RunRows<P::slots>>,
                   Perhaps<hasTrees<P>(), FreeRows<P::slots>>,
                   Reservations<P::failWhenFull ? 1 : P::slots> {
  static constexpr bool trees = hasTrees<P>(), continues = hasRuns<P>();
  static constexpr bool reserves = !P::failWhenFull;
  static constexpr int model = P::model, pages = P::pages, pageTokens = P::pageTokens, vocab = P::vocab;
  static constexpr int dumpedWords = dumpedWordsOf<P>();
  using Tables = PoolTables<P::slots>;
  using Tables::live, Tables::pressure, Tables::callStart, Tables::fedFrom, Tables::known;

  /// The most pages that a request holds at once: of what the first row of a pass sees, of drafts that were written
  /// after it before, and of a pass.
  __device__ static constexpr int mostHeld() {
    constexpr long long positions = windowOf<P>() + 2ll * P::rowsPerPass - 2,
                        pages = (positions + P::pageTokens - 1) / P::pageTokens + 1;
    return windowOf<P>() > 0 && pages < P::pages ? int(pages) : 0x7fffffff;
  }
  /// What is left of a slot's reservation.
  __device__ int reservationLeft(int slot) const {
    return reserves ? max(0, this->reserved[slot] - this->holds(slot)) : 0;
  }
  /// Sets `live` and `pressure`. One thread.
  __device__ __forceinline__ void takeSnapshot() {
    live = P::pages - this->available();
    if constexpr (Pages<P>::indexed)
      this->cachedSeen = this->cached;
    pressure = 100ll * live > (long long)P::watermark * P::pages;
  }

  // The request in a slot.
  static constexpr int atHand = tokensAtHand(P::slots);

  /// What the request has in this pool.
  template <class Request> __device__ __forceinline__ static auto &kvOf(Request &r) { return r.kv[P::model]; }
  /// The slot's fed tokens in memory.
  __device__ __forceinline__ static int *fedTokens(int slot) {
    constexpr CallTokens at = callTokensOf<P>();
    return paramsOfCta().callTokens + slot * at.stride + at.begin;
  }
  /// The token that was fed, or waits to be fed, at a place, which mostly is a position. Places begin at fedFrom. A
  /// slot keeps these tokens of all calls of a stage, because they may not be tokens of the request yet.
  __device__ int fedToken(int slot, int place) const {
    const int i = place - fedFrom[slot];
    return i < atHand ? callStart[slot][i] : fedTokens(slot)[i];
  }
  __device__ __forceinline__ void setFedToken(int slot, int place, int token) {
    const int i = place - fedFrom[slot];
    if (i < atHand)
      callStart[slot][i] = token;
    fedTokens(slot)[i] = token;
  }

  // Where rows may be a tree, the places of the rows' parents, the rows' positions and what they see come after the
  // tokens.
  enum RowWord { Parent = 1, Position, Visible };
  __device__ __forceinline__ int &rowWord(int slot, RowWord word, int place) const {
    return fedTokens(slot)[word * P::callTokens + place - fedFrom[slot]];
  }
  /// The place of the first row of a call, when `len` positions are valid.
  __device__ __forceinline__ int firstPlace(int slot, int len, bool draft) const {
    if constexpr (continues)
      return len + (draft ? this->runRows[slot] : 0);
    return len;
  }
  /// From which place on the slot keeps what is fed: what an earlier call of this stage fed may still have to be
  /// compared with what is appended, or be what rows hang on.
  __device__ __forceinline__ int keepFrom(int slot, int len) const {
    if constexpr (continues)
      if (this->runRows[slot] > 0)
        return fedFrom[slot];
    return P::callTokens > P::rowsPerPass && known[slot] < len ? fedFrom[slot] : len;
  }
  /// Whether what was fed at a place is what plain decoding feeds at the position of that number, but for the token.
  __device__ __forceinline__ bool isPlain(int slot, int place) const {
    if constexpr (trees)
      return rowWord(slot, Parent, place) == place - 1 && rowWord(slot, Position, place) == place &&
             rowWord(slot, Visible, place) == place + 1;
    return true;
  }
  /// Whether a row may stand at a place: in a sealed page only where it is what the page has.
  __device__ __forceinline__ bool maySeal(int slot, int place) const {
    if constexpr (trees && Pages<P>::indexed)
      return place >= this->sealed[slot] * P::pageTokens || isPlain(slot, place);
    return true;
  }
  /// The first place from `place` on of which that does not hold; at most `end`. The whole warp.
  __device__ int plainUpto(int slot, int place, int end) const {
#pragma unroll 1
    for (; place < end; place += 32) {
      const u32 others = __ballot_sync(~0u, place + laneId() >= end || !isPlain(slot, place + laneId()));
      if (others)
        return place + __ffs(others) - 1;
    }
    return end;
  }
  /// Whether earlier passes of a run may have written positions on a row's path, see Paths.cuh; and where their places
  /// stand.
  static constexpr bool hasPaths = megalith::device::hasPaths<P>();
  __device__ __forceinline__ static int *path(const abi::LaunchParams &p, int row) { return pathOf<P>(p, row); }
  /// The line of LaunchParams::logits in which the logits of a draft wait to be kept.
  __device__ __forceinline__ int draftLine(int slot, int place, const OwnLines &own) const {
    const abi::LaunchParams &p = paramsOfCta();
    const int begin =
        p.logitsRows > 0 ? int(p.numRequests * p.logitsRows) + slot * P::draftRows : int(own.first) + own.count;
    return begin + place - fedFrom[slot];
  }
  /// The most that the pool has room for.
  __device__ static constexpr long long mostTokens() { return (long long)P::pages * P::pageTokens; }
  /// The most positions that a request can ever write.
  template <class Request> __device__ static long long mostPositions(const Request &r) {
    return (long long)r.promptLen + r.maxNewTokens + P::rowsBeyond;
  }
  /// Pages to reserve for a request that gains a slot. Its mostPositions() fit into the pool.
  template <class Request> __device__ static int pagesToReserve(const Request &r) {
    const int worst = min(Pages<P>::pagesFor(int(mostPositions(r))), mostHeld());
    return P::reserve < 0 ? worst : min(worst, Pages<P>::pagesFor(r.numTokens + P::reserve + P::rowsBeyond));
  }
  /// Whether the request in `slot` (-1: none) has all pages that its next row sees.
  template <class Request> __device__ __forceinline__ bool hasWhatItSees(const Request &r, int slot) const {
    return Pages<P>::window == 0 || slot < 0 || Pages<P>::firstSeen(kvOf(r).len) >= this->firstOf(slot);
  }
  /// Whether this part of a descriptor can be trusted.
  template <class Request> __device__ __forceinline__ bool wellFormed(const Request &r, int slot) const {
    const int room = slot < 0 ? 0 : this->held[slot] * P::pageTokens;
    return kvOf(r).len >= 0 && kvOf(r).len <= kvOf(r).end && kvOf(r).end <= room && hasWhatItSees(r, slot);
  }
};

/// The pools of a pipeline, by the numbers of their models.
template <class... Pools> struct PoolList {};
/// Their states. `each` calls fn(pool) for all in order, `all` whether test(pool) holds for all.
template <class List> struct PoolStates;
template <> struct PoolStates<PoolList<>> {
  static constexpr bool reserves = false, indexed = false;
  template <class Fn> __device__ __forceinline__ void each(Fn) {}
  template <class Test> __device__ __forceinline__ bool all(Test) const { return true; }
};
template <class P, class... Others> struct PoolStates<PoolList<P, Others...>> : PoolStates<PoolList<Others...>> {
  using First = P;
  static constexpr bool reserves = PoolState<P>::reserves || PoolStates<PoolList<Others...>>::reserves;
  static constexpr bool indexed = PoolState<P>::indexed || PoolStates<PoolList<Others...>>::indexed;
  PoolState<P> pool;
  template <class Fn> __device__ __forceinline__ void each(Fn fn) {
    fn(pool);
    PoolStates<PoolList<Others...>>::each(fn);
  }
  template <class Test> __device__ __forceinline__ bool all(Test test) const {
    return test(pool) && PoolStates<PoolList<Others...>>::all(test);
  }
};
/// The pools of `Config`: those of `Config::Pools`, or the one whose constants stand in `Config` itself.
template <class Config> struct PoolsOf {
  using List = PoolList<Config>;
};
template <class Config>
  requires requires { typename Config::Pools; }
struct PoolsOf<Config> {
  using List = typename Config::Pools;
};

} // namespace megalith::device
