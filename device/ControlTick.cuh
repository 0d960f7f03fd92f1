//===- ControlTick.cuh - begin and end of a tick, the trace ----------------===//
#pragma once

#include "megalith/Activation.cuh"
#include "megalith/Live.cuh"
#include "megalith/HostTick.cuh"

namespace megalith::device {

__device__ __forceinline__ int warpTotal(int mine) { return __reduce_add_sync(~0u, mine); }

/// Counts the requests that are not in a terminal state, and those of them without a slot. Warp 0.
template <class Control> __device__ __noinline__ void countRequests(Control &c) {
  int open = 0, unseated = 0;
#pragma unroll 1
  for (int i = laneId(); i < c.params().numRequests; i += 32) {
    const auto &r = c.anywhere(i);
    const bool isOpen = Control::isState(r.state) && !Control::isTerminal(r.state); // others have not arrived
    open += isOpen;
    unseated += isOpen && r.slot < 0;
  }
  open = warpTotal(open);
  unseated = warpTotal(unseated);
  __syncwarp();
  if (laneId() == 0) {
    c.openRequests = open;
    c.unseated = unseated;
  }
  __syncwarp();
}

/// All consumer threads. `bytes`: a multiple of 4.
__device__ __forceinline__ void copyControl(void *to, const void *from, int bytes) {
  for (int i = threadIdx.x; i < bytes / 4; i += kConsumerThreads)
    static_cast<u32 *>(to)[i] = static_cast<const u32 *>(from)[i];
}

/// Keeps control's state for the next launch. All consumer threads of CTA 0 call it.
template <class Control> __device__ void keepControl(const Control &c, const abi::LaunchParams &p) {
  copyControl(p.kept + 1, &c, sizeof(Control));
}

/// Reads what the host prepared, once. No request holds a slot yet. All consumer threads of CTA 0 call it.
template <class Control> __device__ void startControl(Control &c, const abi::LaunchParams &p, PassShared &pass) {
  using Config = typename Control::Config;
  if (p.kept && threadIdx.x == 0)
    p.stats->unfinished = 0; // a kernel that stops here is not launched again
  if (p.kept && p.kept->valid) {
    copyControl(&c, p.kept + 1, sizeof(Control));
    consumerSync();
    if (threadIdx.x == 0) {
      c.pass = &pass;
      c.done = 0;
      c.firstTick = c.tick;
      if (p.host)
        p.host->rests = 0;
    }
    consumerSync();
    return;
  }
  if (p.kept) { // all of it is kept, what has no value yet as well
    for (int i = threadIdx.x; i < (int)sizeof(Control) / 4; i += kConsumerThreads)
      reinterpret_cast<u32 *>(&c)[i] = 0;
    consumerSync();
  }
  if (threadIdx.x == 0) {
    p.stats->begin = nanoseconds();
    c.pass = &pass;
    c.firstTick = 0;
    c.passesDone = c.rowsDone = 0;
    c.tick = c.done = c.idle = c.still = c.ranNoPass = 0;
    c.pools.each([](auto &pool) { pool.start(); });
    if constexpr (Control::tellsFresh)
      c.moved = 0;
    c.freeSlots = Config::slots;
    if constexpr (Control::several) {
      c.lastModel = 0;
      c.servedOfRound = 0;
      for (int m = 0; m < abi::kModels; ++m)
        c.follower[m] = m;
    }
    for (int s = 0; s < Config::slots; ++s) {
      c.request[s] = -1;
      c.gaugesSet[s] = 0;
    }
  }
  consumerSync();
  if (warpId() == 0)
    countRequests(c);
  for (int i = threadIdx.x; i < p.numRequests; i += kConsumerThreads)
    c.tableEntry(i).stateBefore = c.tableEntry(i).state;
  consumerSync();
}

/// A test hook: overwrites words in the descriptors of requests that have not ended. Warp 0.
template <class Control> __device__ __noinline__ void applyCorruptions(Control &c) {
  const abi::LaunchParams &p = c.params();
  if (laneId() == 0)
    for (int i = 0; i < p.numCorruptions; ++i) {
      const abi::Corruption &hook = p.corruptions[i];
      auto &r = c.anywhere(hook.request);
      if (hook.tick != c.tick || Control::isTerminal(r.state))
        continue;
      const int slot = r.slot;
      *reinterpret_cast<int *>(reinterpret_cast<char *>(&r) + hook.offset) = hook.value;
      c.check(r, slot);
    }
  __syncwarp();
  countRequests(c);
}

/// Writes the descriptor of the request in `slot` back to the host's table.
template <class Control> __device__ __noinline__ void leaveSeat(Control &c, int slot) {
  Control::copy(c.seated(slot), c.tableEntry(c.request[slot]));
}

/// Of a pool with an index: how far the pages of a slot may enter, if another one is full; else 0. Of a faulted request
/// nothing enters: its K and V may be what was found wrong.
template <class Control, class Pool>
__device__ __forceinline__ int entersUpto(Control &c, Pool &pool, int s, bool leaves) {
  const auto &r = c.seated(s);
  const int next = (pool.sealed[s] + 1) * Pool::pageTokens;
  const int end = min(min(pool.kvOf(r).len, pool.known[s]), min(r.numTokens - 1, leaves ? r.numTokens : r.promptLen));
  return next <= end && !pool.ownOnly[s] && r.fault == 0 ? end : 0;
}
/// Of a pool with an index, the same as reclaimPages: pages enter the index up to `enters`, then those that the slot
/// gives up, from number `kept` on, lose a holder.
template <class Control, class Pool>
__device__ __noinline__ void shareOrFree(Control &c, Pool &pool, int s, int enters, int kept, int freed) {
#pragma unroll 1
  for (u32 left = __ballot_sync(~0u, enters > 0); left; left &= left - 1) {
    const int lane = __ffs(left) - 1, slot = __shfl_sync(~0u, s, lane);
    pool.enterPages(c.params(), c.seated(slot), slot, pool.table(slot), __shfl_sync(~0u, enters, lane));
  }
#pragma unroll 1
  for (u32 left = __ballot_sync(~0u, freed > 0); left; left &= left - 1) {
    const int lane = __ffs(left) - 1, slot = __shfl_sync(~0u, s, lane);
    pool.letGo(pool.table(slot), pool.held[slot], __shfl_sync(~0u, kept, lane), pool.memory().freeList, pool.freePages);
  }
  __syncwarp();
  if (freed > 0) {
    pool.setHeld(s, kept);
    if (kept > 0)
      pool.lastPage[s] = pool.table(s)[kept - 1];
  }
  __syncwarp();
}

/// Of the request in slot `s` (`seated`: there is one), frees the pages beyond its KV, and those below what its rows to
/// come see; all when it leaves. Pages leave a table from its end, then from its front. Each lane has one slot, and a
/// scan gives the slot its place on the free stack.
template <class Control, class Pool>
__device__ __forceinline__ void reclaimPages(Control &c, Pool &pool, int s, bool seated, bool leaves) {
  if constexpr (Pool::indexed) {
    // Sealed pages stay, so that what is reserved for others is there.
    const int enters = seated ? entersUpto(c, pool, s, leaves) : 0;
    const int kept = !seated || leaves ? 0 : max(pool.sealed[s], pool.pagesFor(pool.kvOf(c.seated(s)).end));
    const int freed = seated ? max(0, pool.held[s] - kept) : 0;
    if (__any_sync(~0u, enters > 0 || freed > 0))
      shareOrFree(c, pool, s, enters, kept, freed);
    if (leaves)
      pool.openIndex(s);
    return;
  }
  const int held = seated ? pool.held[s] : 0;
  int kept = 0, passed = 0; // pages in front
  if (seated) {
    const auto &kv = pool.kvOf(c.seated(s));
    // Up to kv.end, not kv.len: drafts may wait for their kv.keep.
    kept = leaves ? 0 : min(held, pool.pagesFor(kv.end));
    if constexpr (Pool::window > 0) {
      kept = max(kept, pool.firstOf(s));
      passed = leaves ? 0 : pool.firstSeen(kv.len) - pool.firstOf(s);
    }
  }
  const int freed = held - kept + passed;
  if (!__any_sync(~0u, freed > 0))
    return;
  int end = freed; // inclusive scan
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const int below = __shfl_up_sync(~0u, end, distance);
    end += laneId() >= distance ? below : 0;
  }
  if (freed > 0)
    pool.give(s, kept, pool.freePages + end - freed);
  if (passed > 0)
    pool.giveFront(s, pool.firstOf(s) + passed, pool.freePages + end - passed);
  const int total = __shfl_sync(~0u, end, 31);
  __syncwarp();
  if (laneId() == 0)
    pool.freePages += total;
}

/// Takes the slots of requests whose state holds none, and pages, as reclaimPages says. Slots give up their pages in
/// ascending order. Warp 0.
template <class Control> __device__ void reclaim(Control &c) {
  using Config = typename Control::Config;
  const abi::LaunchParams &p = c.params();
  for (int base = 0; base < Config::slots; base += 32) {
    const int s = base + laneId();
    const bool seated = s < Config::slots && c.request[s] >= 0;
    bool leaves = false;
    if (seated) {
      auto &r = c.seated(s);
      c.check(r, s);
      leaves = !Control::holdsSlot(r.state);
    }
    c.pools.each([&](auto &pool) { reclaimPages(c, pool, s, seated, leaves); });
    if (!__any_sync(~0u, leaves)) {
      __syncwarp();
      continue;
    }
    if (leaves) {
      auto &r = c.seated(s);
      r.slot = r.waitingSite = -1;
      r.served = 0;
      for (auto &kv : r.kv)
        kv.len = kv.end = 0;
      if constexpr (Control::indexed)
        for (int &found : r.found)
          found = 0;
      if constexpr (keptFieldsOf<Config>() > 0) // kept rows are the slot's
        for (int i = 0; i < keptFieldsOf<Config>(); ++i)
          *Config::kept(i).words(r) = 0;
      p.slots[s].request = -1;
      atomicAdd(&c.freeSlots, 1);
      if (!Control::isTerminal(r.state))
        atomicAdd(&c.unseated, 1);
    }
    if (Control::seatsAreShared)
#pragma unroll 1
      for (u32 left = __ballot_sync(~0u, leaves); left; left &= left - 1)
        leaveSeat(c, base + __ffs(left) - 1);
    __syncwarp();
    if (leaves)
      c.request[s] = -1;
    __syncwarp();
  }
}

/// Counts the free pages that are not reserved. Warp 0.
template <class Control, class Pool> __device__ void countUnreserved(Control &c, Pool &pool) {
  using Config = typename Control::Config;
  int reserved = 0;
#pragma unroll 1
  for (int s = laneId(); s < Config::slots; s += 32)
    reserved += c.request[s] >= 0 ? pool.reservationLeft(s) : 0;
  reserved = warpTotal(reserved);
  if (laneId() == 0) {
    pool.unreserved = pool.available() - reserved;
    c.refused = 0;
  }
  __syncwarp();
}

/// For measurements: records what the tick finds. Warp 0.
template <class Control> __device__ __forceinline__ void recordTick(Control &c) {
  using Config = typename Control::Config;
  int prompts = 0, generated = 0, kvTokens = 0;
#pragma unroll 1
  for (int s = laneId(); s < Config::slots; s += 32)
    if (c.request[s] >= 0) {
      const auto &r = c.seated(s);
      prompts += r.kv[0].len < r.promptLen - 1;
      generated += r.generated;
      kvTokens += r.kv[0].len;
    }
  prompts = warpTotal(prompts);
  generated = warpTotal(generated);
  kvTokens = warpTotal(kvTokens);
  if (laneId() == 0)
    c.params().ticks[c.tick] = {nanoseconds(), c.openRequests, prompts + c.unseated, generated, kvTokens, 0};
}

/// Begins a tick: reclaims, takes the snapshot, and decides whether to stop. `c.done`: the resident loop ends here.
template <class Control> __device__ void beginTick(Control &c) {
  using Config = typename Control::Config;
  const abi::LaunchParams &p = c.params();
  if (warpId() == 0) {
    if (laneId() == 0)
      c.changes = c.waiting = c.served = c.numRows = c.wantLogits = c.rowsOfTick = 0;
    __syncwarp();
    const bool renews = p.kept && p.kept->renewPasses > 0 && c.pass->number >= p.kept->renewPasses;
    const bool full = renews || (p.ticksPerLaunch > 0 && c.tick - c.firstTick >= p.ticksPerLaunch); // the next goes on
    if (p.host && !full)
      sampleHost(c);
    if (p.numCorruptions > 0 && !full)
      applyCorruptions(c);
    if (!full || c.openRequests == 0) // else the next launch does, after what the host wants
      reclaim(c);
    __syncwarp(); // all lanes have read of the pass what the end of a launch changes
    c.pools.each([&](auto &pool) {
      if (pool.reserves)
        countUnreserved(c, pool);
    });
    if (laneId() == 0) {
      c.pools.each([](auto &pool) { pool.takeSnapshot(); });
      c.slotsHeld = Config::slots - c.freeSlots;
      // A tick in which the host ended the last one counts.
      c.done = (c.openRequests == 0 && !(p.host && (c.changes > 0 || p.host->coming > 0))) || isPastLast(c) ||
               (c.idle >= kIdleTicks && !(p.host && p.host->rings)) ||
               (c.ranNoPass && loadRelaxed(p.sync + kStopFlag)) || (p.host && p.host->stops == abi::kStopsNow);
      const bool rests = !c.done && (full || (p.host && p.host->rests));
      if (p.kept)
        p.stats->unfinished = !rests ? 0 : renews ? abi::kRenews : 1;
      c.done = c.done || rests;
      if (c.done) {
        if (p.host && p.host->rings)
          endLaunch(*p.host);
        openPass(*c.pass, p, 0, kNoPass, c.tick, 0);
      }
    }
    __syncwarp();
    if (p.ticks && c.tick < p.tickCapacity)
      recordTick(c);
    // At the tick limit some requests still hold their slots.
    for (int s = 0; Control::seatsAreShared && c.done && s < Config::slots; ++s)
      if (c.request[s] >= 0)
        leaveSeat(c, s);
  }
  consumerSync();
}

/// Runs the parts for every slot that holds a request. Slots do not see each other, so nothing is synchronised.
template <class Control, class Parts> __device__ void everySlot(Control &c, Parts parts) {
#pragma unroll 1
  for (int s = warpId(); s < Control::Config::slots; s += kConsumerWarps)
    if (c.request[s] >= 0) {
      ActivationOf<Control> t(c, c.request[s], s);
      parts(t);
    }
}

/// Writes the record of one request at `out`. Abi.h describes its layout.
template <class Control> __device__ void traceRequest(Control &c, int number, int slot, u32 *out) {
  using Config = typename Control::Config;
  const abi::LaunchParams &p = c.params();
  auto &r = slot < 0 ? c.tableEntry(number) : c.seated(slot);
  const u32 set = slot < 0 ? 0 : c.gaugesSet[slot];
  if (laneId() == 0) {
    out[0] = u32(slot);
    out[1] = u32(r.number);
    out[2] = u32(r.stateBefore);
    out[3] = u32(r.state);
    out[4] = u32(r.fault);
    out[5 + 2 * abi::kModels] = u32(__popc(set));
  }
  u32 *word = out + abi::kTraceRequestWords;
  c.pools.each([&](auto &pool) {
    const int pages = slot < 0 ? 0 : pool.tracedWords(slot);
    if (laneId() == 0) {
      out[5 + 2 * pool.model] = u32(pool.kvOf(r).len);
      out[6 + 2 * pool.model] = u32(pages);
    }
#pragma unroll 1
    for (int i = laneId(); i < pages; i += 32)
      word[i] = u32(pool.tracedWord(slot, i));
    word += pages;
  });
  if (laneId() == 0) {
    u32 *gauge = word;
    for (int g = 0; g < Config::gauges; ++g)
      if (set >> g & 1) {
        gauge[0] = u32(g);
        gauge[1] = c.gauges[slot][g];
        gauge += 2;
      }
  }
}

/// Words of traceRequest for a request in a slot.
template <class Control> __device__ __forceinline__ int tracedWords(Control &c, int slot) {
  int words = abi::kTraceRequestWords + 2 * __popc(c.gaugesSet[slot]);
  c.pools.each([&](auto &pool) { words += pool.tracedWords(slot); });
  return words;
}

/// A row that sees all positions up to its own.
__device__ __forceinline__ Row chainRow(int slot, int token, int position, u32 flags) {
  return {slot, token, position, position, position + 1, position - 1, flags, RowNotWanted};
}

/// Rows of the pass in front of the piece that runs, or has run.
template <class Control> __device__ __forceinline__ int rowsBefore(const Control &c) {
  if constexpr (Control::pieces)
    if (c.unread > 0)
      return c.from;
  return 0;
}

/// Writes `rows` rows, those of the pass's last piece, where `out` is the place of the pass's first row. The warp.
template <class Control> __device__ __forceinline__ void traceRows(Control &c, u32 *out, int rows, int rowWords) {
  constexpr int wordsOfRow = sizeof(Row) / 4;
  out += rowsBefore(c) * rowWords;
#pragma unroll 1
  for (int i = laneId(); i < rows * rowWords; i += 32) {
    const int row = i / rowWords, word = i % rowWords;
    if constexpr (Control::queries) {
      constexpr int reduced = QueryMemory<typename Control::Config>::reducedWords;
      if (word >= wordsOfRow && word < wordsOfRow + reduced) {
        out[i] = loadWord(c.params().reduced + row * reduced + word - wordsOfRow);
        continue;
      }
    }
    out[i] = word >= wordsOfRow ? c.pass->kv[row].hash : reinterpret_cast<const u32 *>(c.pass->rows + row)[word];
  }
}

template <class Control> __device__ __forceinline__ int wordsOfTracedRow(Control &c) {
  int words = int(sizeof(Row) / 4) + (c.params().kvHash ? 1 : 0);
  if constexpr (Control::queries)
    words += QueryMemory<typename Control::Config>::reducedWords;
  return words;
}

/// Of a pass that runs in pieces: where the record will have its first row, if the trace has room up to the end of the
/// present piece; else null.
template <class Control> __device__ __forceinline__ u32 *placeOfPiece(Control &c, int rowWords) {
  const abi::LaunchParams &p = c.params();
  const long long begin =
      p.stats->traceWords + (Control::several ? int(abi::kTracePassWords) : int(abi::kTraceTickWords));
  const bool fits =
      p.stats->traceDropped == 0 && begin + (long long)(rowsBefore(c) + c.pass->numRows) * rowWords <= p.traceCapacity;
  return fits ? p.trace + begin : nullptr;
}

/// Writes the rows of a wide piece, whose hashes are there (PassRuns), where `out` is the place of the first one. The
/// warp.
template <class Control> __device__ void traceRuns(Control &c, u32 *out, int rowWords) {
  constexpr int wordsOfRow = sizeof(Row) / 4;
  const abi::LaunchParams &p = c.params();
  const int words = rowWords - (p.kvHash ? 1 : 0);
#pragma unroll 1
  for (int i = 0; i < c.pass->runs; ++i) {
    const PassRun run = c.pass->byRuns.run[i];
    const int first = c.firstUnread[run.slot], rows = c.unreadRows(run.slot);
#pragma unroll 1
    for (int row = laneId(); row < rows; row += 32) {
      u32 *const to = out + (long long)(first + row) * rowWords;
      const Row traced = chainRow(run.slot, p.tokens[run.firstToken + row], run.position + row, 0);
      for (int word = 0; word < words; ++word) // no call that is not read has queries
        to[word] = word < wordsOfRow ? reinterpret_cast<const u32 *>(&traced)[word] : 0;
    }
  }
}

/// Of a pass that runs in pieces, writes the rows of one to where the record will have them, if the trace has room.
/// Warp 0.
template <class Control> __device__ __noinline__ void tracePiece(Control &c) {
  const int rowWords = wordsOfTracedRow(c);
  u32 *const out = placeOfPiece(c, rowWords);
  if (!out)
    return;
  if constexpr (Control::wide)
    if (c.isWide()) {
      traceRuns(c, out, rowWords);
      return;
    }
  traceRows(c, out, c.pass->numRows, rowWords);
}

/// Where a record of so many words goes in the trace; null: it does not fit, and is counted as dropped. Warp 0.
template <class Control> __device__ __forceinline__ u32 *openRecord(Control &c, long long words) {
  const abi::LaunchParams &p = c.params();
  const long long begin = p.stats->traceWords;
  const bool fits = p.stats->traceDropped == 0 && begin + words <= p.traceCapacity;
  __syncwarp();
  if (laneId() == 0) {
    if (fits)
      p.stats->traceWords = begin + words;
    else
      ++p.stats->traceDropped;
  }
  __syncwarp();
  return fits ? p.trace + begin : nullptr;
}

/// Of several passes: appends the record of the pass that has run. Warp 0.
template <class Control> __device__ __noinline__ void tracePass(Control &c) {
  if constexpr (Control::queries)
    for (int s = 0; s < Control::Config::slots; ++s)
      if (c.request[s] >= 0 && c.taken[s] > 0 && c.plain[s])
        tracePlain(c, s);
  __syncwarp();
  const int rowWords = wordsOfTracedRow(c);
  const int words = abi::kTracePassWords + c.numRows * rowWords;
  u32 *const out = openRecord(c, words);
  if (!out)
    return;
  if (laneId() == 0) {
    out[0] = abi::kTracePass;
    out[1] = u32(words);
    out[2] = u32(c.tick);
    out[3] = u32(c.numRows);
    out[4] = u32(rowWords) | u32(c.pass->model) << abi::kTraceModelShift;
  }
  traceRows(c, out + abi::kTracePassWords, c.numRows - rowsBefore(c), rowWords);
}

/// Whether request `number` changed state in this tick without holding a slot.
template <class Control> __device__ bool changedUnseated(Control &c, int number) {
  if (number >= c.params().numRequests)
    return false;
  const auto &r = c.tableEntry(number);
  return r.slot < 0 && r.state != r.stateBefore;
}

/// Appends the record of this tick, or counts it as dropped. Warp 0.
template <class Control> __device__ __noinline__ void traceTick(Control &c) {
  using Config = typename Control::Config;
  const abi::LaunchParams &p = c.params();
  const int rowWords = wordsOfTracedRow(c);
  const bool anyUnseated = c.changes > 0;
  const int numRows = Control::several ? 0 : c.numRows; // else each pass has a record
  int records = 0;
  long long words = abi::kTraceTickWords + (long long)numRows * rowWords;
#pragma unroll 1
  for (int s = 0; s < Config::slots; ++s)
    if (c.request[s] >= 0) {
      ++records;
      words += tracedWords(c, s);
    }
  if (p.host)
    words += hostTraceWords(*p.host);
#pragma unroll 1
  for (int base = 0; anyUnseated && base < p.numRequests; base += 32) {
    const int found = __popc(__ballot_sync(~0u, changedUnseated(c, base + laneId())));
    records += found;
    words += found * abi::kTraceRequestWords;
  }
  if (u32 *out = openRecord(c, words)) {
    if (laneId() == 0) {
      out[0] = abi::kTraceTick;
      out[1] = u32(words);
      out[2] = u32(c.tick);
      c.pools.each([&](auto &pool) {
        out[3 + pool.model] = u32(pool.live);
        out[3 + abi::kModels + pool.model] = u32(pool.cachedPages());
      });
      u32 *const rest = out + 3 + 2 * abi::kModels;
      rest[0] = u32(numRows);
      rest[1] = u32(rowWords);
      rest[2] = u32(records) | (p.host ? abi::kTraceHost : 0u);
    }
    out += abi::kTraceTickWords;
    if constexpr (!Control::several)
      traceRows(c, out, c.numRows - rowsBefore(c), rowWords);
    out += numRows * rowWords;
#pragma unroll 1
    for (int s = 0; s < Config::slots; ++s)
      if (c.request[s] >= 0) {
        traceRequest(c, c.request[s], s, out);
        out += tracedWords(c, s);
      }
#pragma unroll 1
    for (int base = 0; anyUnseated && base < p.numRequests; base += 32)
      for (u32 found = __ballot_sync(~0u, changedUnseated(c, base + laneId())); found; found &= found - 1) {
        traceRequest(c, base + __ffs(found) - 1, -1, out);
        out += abi::kTraceRequestWords;
      }
    if (p.host)
      traceHost(p, out);
  }
  __syncwarp();
#pragma unroll 1
  for (int s = laneId(); s < Config::slots; s += 32)
    if (c.request[s] >= 0) {
      c.gaugesSet[s] = 0;
      c.seated(s).stateBefore = c.seated(s).state;
    }
  __syncwarp(); // large descriptors have no copy in shared memory: these are entries of the table, too
#pragma unroll 1
  for (int i = laneId(); anyUnseated && i < p.numRequests; i += 32)
    c.tableEntry(i).stateBefore = c.tableEntry(i).state;
  __syncwarp();
}

/// Of several passes: after one that has run, before its rows are those of another one. All consumer threads.
template <class Control> __device__ __forceinline__ void countPass(Control &c) {
  static_assert(Control::several);
  const abi::LaunchParams &p = c.params();
  if (warpId() == 0) {
    if (p.trace)
      tracePass(c);
    if (laneId() == 0) {
      c.rowsOfTick += c.numRows;
      p.stats->passes = ++c.passesDone;
      p.stats->rows = c.rowsDone += c.numRows;
    }
    __syncwarp();
  }
  // Stages change what was traced: what a slot's next call asks for, and drafts of the host that are put into the rows.
  if constexpr (Control::queries || abi::kModels > 1)
    if (p.oracle || (Control::queries && p.trace))
      consumerSync();
}

/// Of several models: the slot whose call waits first, whatever model it waits for; -1: no call waits. One thread.
template <class Control> __device__ __noinline__ int firstWaiting(Control &c) {
  using Config = typename Control::Config;
  int best = -1;
#pragma unroll 1
  for (int s = 0; s < Config::slots; ++s) {
    if (c.request[s] < 0 || c.seated(s).waitingSite < 0 || (Control::loops && c.seated(s).served))
      continue;
    const auto &r = c.seated(s);
    c.since[s] = r.waitingSince;
    c.priority[s] = r.priority;
    c.passes[s] = passesOf(r, Control::loops ? c.callModel[s] & 0xff : c.callModel[s]);
    if (best < 0 || goesFirst(c, s, best))
      best = s;
  }
  return best;
}

/// For tools, when a tick has ended: every page of a pool is free, cached, or held by as many slots as have it in their
/// tables; and what is reserved is there. Warp 0.
template <class Control, class Pool> __device__ void checkPool(Control &c, Pool &pool) {
  using Config = typename Control::Config;
  __syncwarp();
  if (laneId() == 0) {
    int held = 0, reserved = 0;
    const auto ofTables = [&](auto fn) {
      for (int s = 0; s < Config::slots; ++s)
        for (int i = pool.firstOf(s); c.request[s] >= 0 && i < pool.held[s]; ++i)
          fn(pool.table(s)[i]);
    };
    for (int s = 0; s < Config::slots; ++s)
      reserved += c.request[s] >= 0 ? pool.reservationLeft(s) : 0;
    if constexpr (Pool::indexed) {
      bool right = true;
      int cached = 0;
      ofTables([&](int page) { // pages that count down from their holders are 0 then
        if (int &holders = pool.entries()[page].holders; holders > 0) {
          holders = -holders;
          ++held;
        }
      });
      ofTables([&](int page) { ++pool.entries()[page].holders; });
      ofTables([&](int page) { right = right && pool.entries()[page].holders == 0; });
      ofTables([&](int page) { ++pool.entries()[page].holders; });
      for (int page = pool.oldest; page > 0 && cached <= Pool::pages; page = pool.entries()[page - 1].newer, ++cached)
        right = right && pool.entries()[page - 1].holders == 0 && pool.entries()[page - 1].serial != 0;
      if (!right || cached != pool.cached)
        brokenPool(Pool::model, right ? "a count of cached pages is wrong" : "a count of holders is wrong");
    } else {
      for (int s = 0; s < Config::slots; ++s)
        held += c.request[s] >= 0 ? pool.holds(s) : 0;
    }
    if (held + pool.available() != Pool::pages)
      brokenPool(Pool::model, "held, cached and free ones are not all");
    if (reserved > pool.available() && pool.reserves)
      brokenPool(Pool::model, "more are reserved than are there");
  }
  __syncwarp();
}

/// Ends the tick. When calls wait, and nothing moved in this tick and in the one before, nothing can free a page any
/// more. Then the request that waits longest fails, which makes room for the others.
template <class Control> __device__ void endTick(Control &c) {
  const abi::LaunchParams &p = c.params();
  consumerSync();
  if (warpId() == 0) {
    if (laneId() == 0) {
      if constexpr (Control::several)
        c.waiting = c.served == 0 && c.changes == 0 && firstWaiting(c) >= 0;
      c.still = c.waiting > 0 && c.served == 0 && c.changes == 0 ? c.still + 1 : 0;
      if (c.still == 2) {
        c.still = 0;
        c.fail(c.seated(Control::several ? firstWaiting(c) : c.order[0]), kPoolExhausted);
      }
    }
    __syncwarp();
    if constexpr (kChecksPools)
      c.pools.each([&](auto &pool) { checkPool(c, pool); });
    if (p.trace)
      traceTick(c);
    if (p.host && p.host->rings)
      tellHost(c);
    if (laneId() == 0) {
      const int numRows = Control::several ? c.rowsOfTick : c.numRows;
      if (p.ticks && c.tick < p.tickCapacity)
        p.ticks[c.tick].rows = numRows;
      ++c.tick;
      c.idle = numRows > 0 || c.changes > 0 ? 0 : c.idle + 1;
      if (p.host && p.host->rings && c.idle > kTicksAwake) { // requests wait for the clock, or for others
        nap(p, (u32)c.idle, kNapNs);
        c.idle = kTicksAwake;
      }
      p.stats->ticks = c.tick;
      c.ranNoPass = numRows == 0;
      if (c.ranNoPass) {
        storeFresh(p.sync + kTicksAlone, (u32)c.tick);
      } else if (!Control::several) { // else countPass has
        p.stats->passes = ++c.passesDone;
        p.stats->rows = c.rowsDone += c.numRows;
      }
    }
    __syncwarp();
  }
}

} // namespace megalith::device
