//===- ChooseCalls.cuh - which calls a pass serves ------------------------===//
#pragma once

#include "megalith/ControlTick.cuh"

namespace megalith::device {

// A pass is of one model. `Pool` is that one's.

/// Whether slot `a` is served before slot `b`. First comes the one that has waited longer, then the one whose call
/// feeds no prompt, then the one of higher priority, then the one with fewer passes of the model so far, then the one
/// that arrived first.
template <class Control> __device__ bool goesFirst(Control &c, int a, int b) {
  if (c.since[a] != c.since[b])
    return c.since[a] < c.since[b];
  if (c.isOfPrompt(a) != c.isOfPrompt(b))
    return c.isOfPrompt(b);
  if (c.priority[a] != c.priority[b])
    return c.priority[a] > c.priority[b];
  if (c.passes[a] != c.passes[b])
    return c.passes[a] < c.passes[b];
  return c.seated(a).number < c.seated(b).number;
}

/// Gives the calls their rows and pages when all can be served in full. Rows are given by a scan in slot order, pages
/// in the order of serving. `inTurn`: that order matters. Warp 0.
template <class Control, class Pool> __device__ void serveAll(Control &c, Pool &pool, bool inTurn) {
  using Config = typename Control::Config;
  int before = 0;
  for (int base = 0; base < Config::slots; base += 32) {
    const int s = base + laneId();
    const bool waits = s < Config::slots && c.wanted[s] >= 0;
    const int mine = waits ? c.wanted[s] : 0;
    int end = mine; // inclusive scan
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      const int below = __shfl_up_sync(~0u, end, distance);
      end += laneId() >= distance ? below : 0;
    }
    if (waits) {
      c.taken[s] = mine;
      c.rowBegin[s] = before + end - mine; // a pass that runs in pieces deals its rows anew
      int above = 0;
      if (inTurn && c.newPages[s] > 0)
#pragma unroll 1
        for (int other = 0; other < Config::slots; ++other)
          above += c.wanted[other] >= 0 && c.newPages[other] > 0 && goesFirst(c, other, s) ? c.newPages[other] : 0;
      c.pageTop[s] = pool.freePages - above;
    }
    before += __shfl_sync(~0u, end, 31);
  }
}

/// The numbers of the fault of a call that must not be served, see ControlOf::badRow. One thread.
template <class Control, class Pool> __device__ abi::FaultNumbers numbersOfBadCall(Control &c, Pool &pool, int slot) {
  using Config = typename Control::Config;
  const abi::LaunchParams &p = c.params();
  const auto &r = c.seated(slot);
  if constexpr (Control::queries)
    if (c.badRow[slot] < 0) {
      const auto &all = QueryMemory<Config>::ofSlot(p, slot);
      for (int i = 0; i < all.count; ++i)
        if (all.queries[i].readsTooMany(r.callCount))
          return all.queries[i].tooMany(r.callCount);
    }
  const int place = c.firstPlace(pool, slot) + c.badRow[slot], token = pool.fedToken(slot, place);
  if (c.badCode[slot] == kTokenRange)
    return {token, Pool::model == 0 && !(c.callFlags[slot] & RowIsDraft) ? Pool::vocab : 0x7fffffff, 0};
  if constexpr (Pool::indexed)
    if (c.badCode[slot] == kSealedPage)
      return {place, pool.sealedOf(slot) * Pool::pageTokens, 0};
  int position = place;
  if constexpr (Pool::trees)
    position = pool.rowWord(slot, Pool::Position, place);
  return {position, token, p.tokens[r.tokenBegin + position]};
}

/// Gives the calls their rows and pages when not everything fits. Each call in turn takes both or neither. So when a
/// call finds no page, the calls after it can have its rows. `chunkLeft`: rows of those that feed prompts,
/// where Control::bounds. Returns the number of calls served. One thread.
template <class Control, class Pool> __device__ int serveInOrder(Control &c, Pool &pool, int waiting, int chunkLeft) {
  using Config = typename Control::Config;
  int left = Config::rowsPerPass, readLeft = kMaxRows, available = pool.available(), served = 0;
  int unreserved = Pool::reserves ? pool.unreserved : 0; // never written where nothing is reserved
  bool blocked = false;                                  // a call waits for pages
  const int allChunks = chunkLeft;
#pragma unroll 1
  for (int k = 0; k < waiting; ++k) {
    const int s = c.order[k], wanted = c.wanted[s];
    const bool read = Control::pieces && c.isRead(pool, s), lastRow = Control::pieces && (c.callFlags[s] & kLastRow);
    const bool divisible = c.callChunk[s] > 0;
    int most = !read ? left : !lastRow ? min(left, readLeft) : readLeft > 0 ? left : 0;
    const bool ofPrompt = c.isOfPrompt(s);
    if (Control::bounds && divisible)
      most = min(most, chunkLeft);
    else if (Control::bounds && ofPrompt && wanted > chunkLeft && chunkLeft < allChunks)
      most = 0; // one that has more than these may is the only one
    const int takes = divisible ? min(wanted, most) : wanted;
    if (wanted > 0 && (takes < 1 || takes > most))
      continue;
    if (c.badRow[s] < takes) {
      const abi::FaultNumbers numbers = numbersOfBadCall(c, pool, s);
      c.fail(c.seated(s), c.badCode[s]);
      c.tell(c.seated(s), numbers);
      continue;
    }
    const int needs = pool.lacking(s, c.firstPlace(pool, s) + takes);
    int beyond = 0;
    if (Pool::reserves) {
      // Reserved pages are there. Beyond its reservation no call takes a page after a call that waits for pages.
      beyond = max(0, needs - pool.reservationLeft(s));
      if (beyond > 0 && (blocked || beyond > unreserved)) {
        blocked = true;
        continue;
      }
    }
    if (needs > available) { // of a pool that reserves: what was reserved is not there
      c.fail(c.seated(s), kPoolExhausted);
      continue;
    }
    unreserved -= beyond;
    c.taken[s] = takes;
    c.newPages[s] = needs;
    c.pageTop[s] = pool.freePages - (pool.available() - available); // dropped pages come on top, see chooseCalls
    available -= needs;
    left -= takes;
    readLeft -= Control::pieces ? c.readRows(pool, s, takes) : 0;
    chunkLeft = max(0, chunkLeft - (ofPrompt ? takes : 0));
    ++served;
  }
  if (Pool::reserves)
    pool.unreserved = unreserved;
  int rows = 0;
#pragma unroll 1
  for (int s = 0; s < Config::slots; ++s)
    if (c.taken[s] >= 0) {
      c.rowBegin[s] = rows;
      rows += c.taken[s];
    }
  return served;
}

/// Flags of a piece of rows that are not read: until the last piece the model stays the same, and no stage wants
/// logits.
template <class Pool, class Control> __device__ __forceinline__ u32 flagsOfUnread(const Control &c) {
  constexpr u32 same = abi::kModels > 1 ? u32(Pool::model) << kPassModelShift | u32(Pool::model) << kPassNextShift : 0;
  return c.to == c.unread && c.readLeft == 0 ? c.flags : same | (c.flags & kFresh);
}
/// Whether the host wants logits of rows that no stage reads. One thread.
template <class Control> __device__ bool wantsUnread(Control &c) {
  bool wants = false;
#pragma unroll 1
  for (int s = 0; s < Control::Config::slots; ++s)
    wants = wants || (c.taken[s] > 0 && (c.callFlags[s] & kOfPrompt) && c.unreadRows(s) > 0);
  return wants;
}

/// Opens the next piece of a pass that runs in pieces. One thread.
template <class Control, class Pool> __device__ void openPiece(Control &c, Pool &) {
  auto &pass = passOf<typename Control::Config>(*c.pass);
  const abi::LaunchParams &p = c.params();
  c.from = c.to;
  c.to = min(c.from + kMaxRows, c.unread);
  const int first = int(c.rowsDone) + c.from;
  if (c.from == c.to) {
    openPass(pass, p, c.readLeft, c.flags, c.tick, first);
    c.readLeft = 0;
    return;
  }
  openPass(pass, p, c.to - c.from, flagsOfUnread<Pool>(c) | (wantsUnread(c) ? kRunsHead : 0), c.tick, first);
}

/// Opens the one wide piece of all rows that are not read, and of `lastRows` that are: it has `runs` runs. One thread.
template <class Control, class Pool> __device__ void openWidePiece(Control &c, Pool &, int runs, int lastRows) {
  const abi::LaunchParams &p = c.params();
  c.from = 0;
  c.to = c.unread;
  openPass(passOf<typename Control::Config>(*c.pass), p, countOfRuns(c.unread + lastRows, runs),
           flagsOfUnread<Pool>(c) | kWide, c.tick, int(c.rowsDone));
  const int rowWords = wordsOfTracedRow(c);
  u32 *const rows = p.trace && p.kvHash ? placeOfPiece(c, rowWords) : nullptr;
  c.pass->byRuns.hashes = rows ? rows + rowWords - 1 : nullptr;
  c.pass->byRuns.hashStride = rowWords;
}

/// Deals the rows of a pass of more than kMaxRows to pieces, and opens the first one. `flags`: of the piece of rows
/// that are read. Where a kernel has wide passes, the others are one wide piece, if they are many and all of them runs.
///
/// A call of which only the last row is read has that row in the last piece. When nobody else reads, the wide piece has
/// the whole call, and the last piece begins with the last layer: weights are read twice for that one alone. One
/// thread.
template <class Control, class Pool> __device__ __noinline__ void cutPass(Control &c, Pool &pool, u32 flags) {
  c.unread = c.to = c.readLeft = 0;
  int runs = 0, lastRows = 0;
  bool wide = Control::wide;
#pragma unroll 1
  for (int s = 0; s < Control::Config::slots; ++s) {
    if (c.taken[s] < 0)
      continue;
    const int read = c.readRows(pool, s, c.taken[s]), unread = c.taken[s] - read;
    c.firstUnread[s] = unread > 0 ? c.unread : -1;
    c.rowBegin[s] = c.readLeft - unread;
    c.unread += unread;
    c.readLeft += read;
    if (unread == 0)
      continue;
    lastRows += read;
    if constexpr (Control::wide) {
      c.order[s] = runs++;
      wide = wide && c.isRun(pool, s);
    }
  }
  c.flags = flags;
  if (!wide || c.unread + lastRows <= kMaxRows || runs > kMaxRows) {
    openPiece(c, pool);
    return;
  }
  // Where hashes go, rows of the wide piece are those of the trace.
  const bool late =
      Control::late && lastRows > 0 && lastRows == c.readLeft && lastRows <= kTileRows && !c.params().kvHash;
  int before = 0; // last rows of the wide piece
#pragma unroll 1
  for (int s = 0; s < Control::Config::slots; ++s)
    if (c.taken[s] >= 0 && c.firstUnread[s] >= 0) {
      c.since[s] = c.firstUnread[s] + before;
      before += late && (c.callFlags[s] & kLastRow);
    }
  c.flags |= late ? kLastLayer : 0;
  openWidePiece(c, pool, runs, before);
}

/// Sorts the calls into the order of serving, then serves them as serveInOrder. Warp 0.
template <class Control, class Pool>
__device__ __noinline__ int serveSome(Control &c, Pool &pool, int waiting, int chunkLeft) {
  using Config = typename Control::Config;
#pragma unroll 1
  for (int s = laneId(); s < Config::slots; s += 32) {
    if (c.wanted[s] < 0)
      continue;
    int rank = 0;
#pragma unroll 1
    for (int other = 0; other < Config::slots; ++other)
      rank += c.wanted[other] >= 0 && goesFirst(c, other, s);
    c.order[rank] = s;
  }
  __syncwarp();
  int served = 0;
  if (laneId() == 0)
    served = serveInOrder(c, pool, waiting, chunkLeft);
  return __shfl_sync(~0u, served, 0);
}

/// Flags of a pass of this model. The pass after it will be of the model that followed the last time. One thread.
template <class Control> __device__ __forceinline__ u32 modelFlags(Control &c, int model) {
  if constexpr (abi::kModels == 1)
    return 0;
  c.follower[c.lastModel] = model;
  c.lastModel = model;
  return u32(model) << kPassModelShift | u32(c.follower[model]) << kPassNextShift;
}

/// Of a pool with an index: frees the `needs` pages of the pass. Those that the index drops come on top of the stack.
/// Warp 0.
template <class Control, class Pool> __device__ __noinline__ void dropForPass(Control &c, Pool &pool, int needs) {
  const int before = pool.freePages;
  __syncwarp(); // all lanes have read it
  pool.makeFree(needs);
  if (const int dropped = pool.freePages - before)
#pragma unroll 1
    for (int s = laneId(); s < Control::Config::slots; s += 32)
      if (c.taken[s] >= 0)
        c.pageTop[s] += dropped;
  __syncwarp();
}

/// Decides which calls the pass serves, and which pages they get, in the order of serving. Their rows stand in
/// ascending order of slots. Warp 0.
template <class Control, class Pool> __device__ void chooseCalls(Control &c, Pool &pool, int site = -1) {
  using Config = typename Control::Config;
  const abi::LaunchParams &p = c.params();
  int waiting = 0, rows = 0, readRows = 0, chunkRows = 0, needs = 0, needy = 0;
  bool fits = true, beside = false;
#pragma unroll 1
  for (int s = laneId(); s < Config::slots; s += 32) {
    c.taken[s] = c.wanted[s] = -1;
    if constexpr (Control::bounds)
      beside = beside || c.isBeside(s);
    if (!c.template waitsFor<Pool>(s, site))
      continue;
    const auto &r = c.seated(s);
    const int wanted = r.callCount;
    c.wanted[s] = wanted;
    c.since[s] = r.waitingSince;
    c.priority[s] = r.priority;
    c.passes[s] = passesOf(r, Pool::model);
    c.kvLen[s] = pool.kvOf(r).len;
    c.newPages[s] = pool.lacking(s, c.firstPlace(pool, s) + wanted);
    ++waiting;
    rows += wanted;
    if constexpr (Control::pieces)
      readRows += c.readRows(pool, s, wanted);
    if constexpr (Control::bounds)
      chunkRows += c.isOfPrompt(s) ? wanted : 0;
    needs += c.newPages[s];
    needy += c.newPages[s] > 0;
    fits = fits && c.badRow[s] >= wanted && (!Pool::reserves || c.newPages[s] <= pool.reservationLeft(s));
  }
  __syncwarp();
  waiting = warpTotal(waiting);
  rows = warpTotal(rows);
  needs = warpTotal(needs);
  needy = warpTotal(needy);
  if constexpr (Control::pieces)
    readRows = warpTotal(readRows);
  int chunkLeft = Config::rowsPerPass;
  if constexpr (Control::bounds) {
    chunkRows = warpTotal(chunkRows);
    chunkLeft = __any_sync(~0u, beside) ? rowsBeside<Config>() : chunkLeft;
  }
  int served = waiting;
  if (__all_sync(~0u, fits) && rows <= Config::rowsPerPass && readRows <= kMaxRows && chunkRows <= chunkLeft &&
      needs <= pool.available()) {
    serveAll(c, pool, needy > 1);
  } else {
    served = serveSome(c, pool, waiting, chunkLeft);
    __syncwarp();
    rows = needs = 0;
#pragma unroll 1
    for (int s = laneId(); s < Config::slots; s += 32)
      if (c.taken[s] >= 0) {
        rows += c.taken[s];
        needs += c.newPages[s];
      }
    rows = warpTotal(rows);
    needs = warpTotal(needs);
  }
  __syncwarp();
  bool wantLogits = false, someFree = false, queried = false;
#pragma unroll 1
  for (int s = laneId(); s < Config::slots; s += 32) {
    wantLogits = wantLogits || (c.taken[s] > 0 && (c.callFlags[s] & (RowWantsLogits | kOfPrompt)));
    if constexpr (Control::queries)
      queried = queried || (c.taken[s] > 0 && !c.plain[s]);
    if constexpr (Pool::trees)
      someFree = someFree || (c.taken[s] > 0 && pool.someFree[s]);
  }
  wantLogits = __any_sync(~0u, wantLogits);
  u32 flags = wantLogits ? kRunsHead : 0;
  if constexpr (Control::queries)
    flags |= wantLogits && __any_sync(~0u, queried) ? kQueries : 0;
  if constexpr (Pool::trees)
    if (__any_sync(~0u, someFree))
      flags |= kSomeFree | (Pool::hasPaths ? kFresh : 0);
  if constexpr (Control::tellsFresh) {
    flags |= c.moved > 0 ? kFresh : 0;
    __syncwarp(); // all lanes have read it
  }
  if constexpr (Pool::indexed) {
    const bool drops = needs > pool.freePages;
    __syncwarp(); // all lanes have read it
    if (drops)
      dropForPass(c, pool, needs);
  }
  if (laneId() == 0) {
    if constexpr (Control::several) {
      c.served += served;
      if constexpr (Control::loops)
        c.servedOfRound += site >= 0 ? served : 0;
    } else {
      c.waiting = waiting;
      c.served = served;
    }
    pool.freePages -= needs;
    c.numRows = rows;
    c.wantLogits = wantLogits;
    if (Control::queries)
      c.rowQueries = 0;
    if constexpr (Control::tellsFresh) {
      c.fresh = flags & kFresh;
      c.moved = rows > 0 ? 0 : c.moved;
    }
    if (rows > 0)
      flags |= modelFlags(c, Pool::model);
    if constexpr (Control::pieces) {
      c.unread = 0;
      if (rows > kMaxRows) {
        cutPass(c, pool, flags);
        rows = 0; // is open
      }
    }
    if (rows > 0)
      openPass(passOf<Config>(*c.pass), p, rows, flags, c.tick, (int)c.rowsDone);
  }
}

} // namespace megalith::device
