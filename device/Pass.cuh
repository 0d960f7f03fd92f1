//===- Pass.cuh - how CTAs come to a pass of the model, and leave it ------===//
//
// CTA 0 forms a pass, and tells the others in words that carry the pass's number: how many rows,
// and of each row what the CTAs' consumers need. A CTA that has done its part of a pass counts itself
// out and waits for the next one; when all have, CTA 0 goes on. So two ways through the L2 cache lie
// between two passes. What takes longer goes beside that: that all have left the pass, so that what they and control
// wrote until then is there, keys, values and page tables among it. A tick without rows is CTA 0's alone.
//===----------------------------------------------------------------------===//
#pragma once

#include "megalith/SharedMemory.h"
#include "megalith/Pool.cuh"
#include "megalith/Ring.cuh"

namespace megalith::device {

/// At the beginning of LaunchParams::flagged stand a word of the pass and two of each row; where rows may be free, one
/// more of each row after those of kMaxRows rows. Of a wide pass each run has two in place of rows. In the first one,
/// beside the number of rows (of a wide pass: countOfRuns):
enum PassFlag : u32 {
  kRunsHead = 1,
  kNoPass = 2,
  kSomeFree = 64, ///< each row has its third word
  kFresh = 128,   ///< before the rows' words CTA 0 wrote what is read without a number: moved rows, paths, found pages
  kQueries = 256, ///< some row is asked for more than its best token. The head runs then
  kWide = 512,
  // kLastLayer: 1024
};
/// And of several models the pass's, and the one of which the pass after it will be, as control guesses.
constexpr int kPassModelShift = 2, kPassNextShift = 4, kPassRowsShift = 11;
static_assert(limits::models == 4, "two bits");
constexpr int kRunBits = 8;
static_assert(kMaxRows < 1 << kRunBits && limits::rowsPerPass < 1 << (32 - kPassRowsShift - kRunBits));
__device__ __forceinline__ int countOfRuns(int rows, int runs) { return rows << kRunBits | runs; }

/// Before a launch's first pass, for which model 0 is the guess. `countsOf(i)`: of model i.
template <int Models, class Of> __device__ __forceinline__ void startModels(PassModel<Models> &pass, Of countsOf) {
  if constexpr (Models > 1) {
    pass.model = pass.guess = pass.next = 0;
    for (int i = 0; i < Models; ++i)
      pass.ofPast[i] = countsOf(i);
  }
}
/// A pass begins. `flags` has its model and the guess after it. Takes the counts `of` of the pass before, and
/// returns its own.
template <int Models>
__device__ __forceinline__ PassCounts enterModel(PassModel<Models> &pass, u32 flags, const PassCounts &of) {
  if constexpr (Models > 1) {
    pass.ofPast[pass.model] = of;
    pass.guess = pass.next;
    pass.model = (int)(flags >> kPassModelShift) % limits::models;
    pass.next = (int)(flags >> kPassNextShift) % limits::models;
    return pass.ofPast[pass.model];
  }
  return of;
}
/// keep(i, counts) for all models.
template <int Models, class Keep>
__device__ __forceinline__ void keepModels(const PassModel<Models> &pass, const PassCounts &own, Keep keep) {
  if constexpr (Models > 1)
    for (int i = 0; i < Models; ++i)
      keep(i, i == pass.model ? own : pass.ofPast[i]);
  else
    keep(0, own);
}

template <bool Trees> struct PassWithTrees {
  using Type = PassShared;
};
template <> struct PassWithTrees<true> {
  using Type = TreePass;
};
/// `P`: constants of a pipeline or a pool. Of several pools some may have trees.
template <class P> __device__ constexpr bool hasTrees() {
  if constexpr (requires { P::trees; })
    return P::trees;
  else
    return false;
}
/// Whether the drafts of a stage's run stand one after the other, or some part of it has to know how many there are.
template <class P> __device__ constexpr bool hasRuns() {
  if constexpr (requires { P::continues; })
    return P::continues;
  else
    return hasTrees<P>();
}
/// Whether unread rows of a large pass may run as a wide one. `K`: constants of a pipeline, or a kernel.
template <class K> __device__ constexpr bool mayRunWide() {
  if constexpr (requires { K::wide; })
    return K::wide;
  else
    return false;
}
/// Whether a pass may begin with the last layer, behind a wide one. `K`: constants of a pipeline.
template <class K> __device__ constexpr bool mayBeginLate() {
  if constexpr (requires { K::late; })
    return K::late;
  else
    return false;
}
/// Whether the models' code is that of all that calls may ask for, and not that of the best token of each row of a
/// chain alone. A pipeline without trees may have it, too.
template <class P> __device__ constexpr bool asksMore() {
  if constexpr (requires { P::asksMore; })
    return P::asksMore;
  else
    return hasTrees<P>();
}
template <class P> using PassOf = typename PassWithTrees<asksMore<P>()>::Type;
template <class P> __device__ __forceinline__ PassOf<P> &passOf(PassShared &pass) {
  return static_cast<PassOf<P> &>(pass);
}
template <class P> __device__ __forceinline__ const PassOf<P> &passOf(const PassShared &pass) {
  return static_cast<const PassOf<P> &>(pass);
}

/// Before the first pass. One thread; the caller synchronises. `lent`: stages that a pass of several rows may lend, at
/// least.
__device__ __forceinline__ void startPasses(PassShared &pass, int lent) {
  pass.products.lent = lent;
  pass.number = pass.wide.passes = pass.wide.heads = 0;
  pass.wantLogits = pass.done = 0; // a launch may go on with a tick that has no pass
  pass.sets.current = pass.sets.rowsLast = pass.sets.rowsBefore = 0;
  startModels(pass, [&](int) -> PassCounts { return {pass.sets, pass.wide}; });
}

/// Before the first pass of a launch that goes on where another one ended. One thread.
__device__ __forceinline__ void resumePasses(PassShared &pass, const abi::Kept &kept) {
  pass.number = kept.passNumber;
  const auto countsOf = [&](int model) -> PassCounts {
    const abi::Kept::OfModel &of = kept.models[model];
    return {{of.currentSet, of.rowsLast, of.rowsBefore}, {of.widePasses, of.wideHeads}};
  };
  startModels(pass, countsOf);
  pass.sets = countsOf(0).sets;
  pass.wide = countsOf(0).wide;
}
/// After the last pass of a launch. One thread of CTA 0. `renews`: counts begin anew.
__device__ __forceinline__ void keepPasses(const PassShared &pass, u32 arrivals, abi::Kept &kept, bool renews) {
  kept.valid = 1;
  kept.passNumber = renews ? 0 : pass.number;
  kept.arrivals = renews ? 0 : arrivals;
  keepModels(pass, {pass.sets, pass.wide}, [&](int model, const PassCounts &of) {
    kept.models[model] = {renews ? 0 : of.wide.passes, renews ? 0 : of.wide.heads, of.sets.current, of.sets.rowsLast,
                          of.sets.rowsBefore};
  });
}

/// One thread: a pass begins, of which `plan` is the first word.
template <class Pass> __device__ __forceinline__ void enterPass(Pass &pass, Words4 plan) {
  pass.number = plan.w;
  pass.done = (plan.x & kNoPass) != 0;
  if (pass.done) // the counts stay those of the last pass: another launch may go on from them
    return;
  if constexpr (abi::kModels > 1) {
    const PassCounts own = enterModel(pass, plan.x, {pass.sets, pass.wide});
    pass.sets = own.sets;
    pass.wide = own.wide;
  }
  const int count = (int)(plan.x >> kPassRowsShift);
  pass.runs = plan.x & kWide ? count % (1 << kRunBits) : 0;
  pass.numRows = pass.runs > 0 ? count >> kRunBits : count;
  pass.wantLogits = plan.x & (kRunsHead | kQueries | kLastLayer);
  pass.tick = (int)plan.y;
  pass.firstRow = (int)plan.z;
  pass.products.lentBefore = pass.products.lent;
  if (pass.runs > 0) // it has neither words of a set nor images
    return;
  pass.wide.passes += pass.numRows > kTileRows;
  pass.wide.heads += pass.numRows > kTileRows && pass.wantLogits != 0;
  pass.sets.rowsBefore = pass.sets.rowsLast;
  pass.sets.rowsLast = pass.numRows;
  pass.sets.current ^= 1;
  if constexpr (requires { pass.someFree; })
    pass.someFree = plan.x & kSomeFree ? plan.x & (kSomeFree | kFresh) : 0;
}

/// One thread of CTA 0: begins a pass, and tells the others. `count`: of its rows, or countOfRuns. `flags`: PassFlag,
/// and the models.
template <class Pass>
__device__ __forceinline__ void openPass(Pass &pass, const abi::LaunchParams &p, int count, u32 flags, int tick,
                                         int firstRow) {
  const Words4 plan = {(u32)count << kPassRowsShift | flags, (u32)tick, (u32)firstRow, pass.number + 1};
  enterPass(pass, plan);
  Words4 *words = reinterpret_cast<Words4 *>(p.flagged);
  storeFlagged(words, plan);
  if (count == 0) // the others wait for a row's words, too
    for (int i = 1; i < 3; ++i)
      storeFlagged(words + i, {0, 0, 0, plan.w});
}

/// The reducers of logits.
enum class ReducerKind : int {
#define REDUCER(Id, ...) Id,
#include "megalith/Contract/Reducers.def"
};

/// How many reducers a call has at most, where some call asks for more than the best token of each row; else 0.
template <class Config> __device__ constexpr int queriesOf() {
  if constexpr (requires { Config::queries; })
    return Config::queries;
  else
    return 0;
}

/// Rows of a pass of calls that are read, at most: they run together.
template <class Config> __device__ constexpr int readRowsOf() {
  return Config::rowsPerPass < kMaxRows ? Config::rowsPerPass : kMaxRows;
}

/// How many results of a model calls may ask for, where some call asks for another one than the logits; else 1.
template <class Config> __device__ constexpr int resultsOf() {
  if constexpr (requires { Config::results; })
    return Config::results;
  else
    return 1;
}

/// A row's flags and the line of its logits (-1: none) in one word.
__device__ __forceinline__ u32 packLine(int line, u32 flags) { return (u32)(line + 1) << kRowFlagBits | flags; }
__device__ __forceinline__ u32 flagsOf(u32 packed) { return packed & ((1u << kRowFlagBits) - 1); }
__device__ __forceinline__ int lineOf(u32 packed) { return (int)(packed >> kRowFlagBits) - 1; }

/// CTA 0: one of its rows, whose K and V go to `place`, and logits to the line `line`. `source`: its token, or what
/// rowOfWidePass returns. Any thread.
__device__ __forceinline__ void openRow(PassShared &pass, const abi::LaunchParams &p, int number, const Row &row,
                                        int place, int line, int source) {
  pass.rows[number] = row;
  pass.logitsOf[number] = line;
  pass.kv[number].place = place;
  Words4 *words = reinterpret_cast<Words4 *>(p.flagged) + 1 + 2 * number;
  storeFlagged(words, {(u32)row.slot, (u32)source, (u32)row.position, pass.number});
  storeFlagged(words + 1, {(u32)place, (u32)row.visible, packLine(line, row.flags), pass.number});
}

/// Which row of the wide pass in front of this one a row is, in a pass with kLastLayer.
__device__ __forceinline__ int rowOfWidePass(const abi::LaunchParams &p, int number) {
  return (int)loadFlagged(reinterpret_cast<const Words4 *>(p.flagged) + 1 + 2 * number).y;
}

/// The same of a run of a wide pass. One lane. Other CTAs see what it saw in memory.
__device__ __forceinline__ void openRun(PassShared &pass, const abi::LaunchParams &p, int number, const PassRun &run) {
  pass.byRuns.run[number] = run;
  __threadfence();
  Words4 *words = reinterpret_cast<Words4 *>(p.flagged) + 1 + 2 * number;
  storeFlagged(words, {(u32)run.slot, (u32)run.firstRow, (u32)run.rows, pass.number});
  storeFlagged(words + 1, {(u32)run.position, (u32)run.firstToken, 0, pass.number});
}

/// The third word of a row: where it hangs. Positions below `base` stand at the places of their numbers.
__device__ __forceinline__ Words4 *freeWordOf(const abi::LaunchParams &p, int number) {
  return reinterpret_cast<Words4 *>(p.flagged) + 1 + 2 * kMaxRows + number;
}
__device__ __forceinline__ void openFreeRow(const PassShared &pass, const abi::LaunchParams &p, int number,
                                            const Row &row, int base) {
  storeFlagged(freeWordOf(p, number), {(u32)row.kvSlot, (u32)row.parent, (u32)base, pass.number});
}
/// `base` of a row whose third word has come.
__device__ __forceinline__ int baseOfFree(const abi::LaunchParams &p, int number) {
  return (int)loadFlagged(freeWordOf(p, number)).z;
}

/// Looks of a CTA that waits, after which it sleeps between two of them: some milliseconds. Between two passes control
/// needs a hundredth of that.
constexpr u32 kLongWait = 4096, kWaitNap = 1000;

/// Another CTA waits for the next pass, or for the news that none follows. All consumers; a barrier
/// of the CTA follows.
template <class Pass> __device__ __noinline__ void awaitPass(GridEdges &grid, int edge, Pass &pass) {
  if (warpId() != 0)
    return;
  const abi::LaunchParams &p = *grid.params;
  const Words4 *words = reinterpret_cast<const Words4 *>(p.flagged);
  const u32 number = pass.number + 1;
  const int lane = laneId();
  if (lane == 0) {
    noteEdge(edge);
    delayCta(p, number);
    u64 since = 0;
    for (u32 spin = 1; (int)(loadAcquire(p.sync + kPassesLeft) - pass.number) < 0 && !grid.stopSeen(edge, spin, since);
         ++spin) {
    }
  }
  __syncwarp();
  Words4 w = {0, 0, 0, 0};
  bool there = true;
  const auto await = [&](int at) {
    u64 since = 0;
    u32 ticks = 0;
    for (u32 spin = 1; (w = loadFlagged(words + at)).w != number; ++spin) {
      if (spin % 1024 == 0) // ticks without rows are progress, too
        if (const u32 now = loadRelaxed(p.sync + kTicksAlone); now != ticks) {
          ticks = now;
          since = 0;
        }
      if (spin > kLongWait && p.host) // perhaps control sleeps until a request comes
        __nanosleep(kWaitNap);
      if (grid.stopSeen(edge, spin, since)) {
        there = false;
        return;
      }
    }
  };
  // The words of a pass of one row, together. More than these would delay the one that is waited for.
  if (lane < 3)
    await(lane);
  const u32 first = __shfl_sync(~0u, w.x, 0);
  const bool wide = first & kWide;
  const int rows = (int)(first >> kPassRowsShift), count = !__all_sync(~0u, there) ? 1
                                                           : wide                  ? 1 + 2 * (rows % (1 << kRunBits))
                                                                                   : 1 + 2 * rows;
  if (lane == 0)
    enterPass(pass, there ? w : Words4{kNoPass, (u32)grid.tick, 0, number});
  for (int at = lane; at < count && there; at += 32) {
    if (at >= 3)
      await(at);
    const int rowNumber = (at - 1) / 2;
    if (wide) {
      PassRun &run = pass.byRuns.run[rowNumber];
      if (at % 2) {
        run.slot = (int)w.x;
        run.firstRow = (int)w.y;
        run.rows = (int)w.z;
      } else if (at > 0) {
        run.position = (int)w.x;
        run.firstToken = (int)w.y;
      }
      continue;
    }
    Row &row = pass.rows[rowNumber];
    if (at % 2) {
      row.slot = (int)w.x;
      row.token = (int)w.y;
      row.position = (int)w.z;
    } else if (at > 0) {
      pass.kv[rowNumber].place = (int)w.x;
      row.visible = (int)w.y;
      row.flags = flagsOf(w.z);
      pass.logitsOf[rowNumber] = lineOf(w.z);
    }
  }
  if constexpr (requires { pass.someFree; }) {
    if (first & kSomeFree)
      for (int rowNumber = lane; 2 * rowNumber + 1 < count && there; rowNumber += 32) {
        await(1 + 2 * kMaxRows + rowNumber);
        pass.rows[rowNumber].kvSlot = (int)w.x;
        pass.rows[rowNumber].parent = (int)w.y;
      }
  }
  if (p.kvInPlace > 0 || first & (kFresh | kWide))
    __threadfence(); // page tables of this pass, and what kFresh stands for
  const bool all = __all_sync(~0u, there);
  if (lane == 0 && !all)
    pass.done = 1;
}

/// Where the rows of each slot begin: they follow each other. One warp.
__device__ __forceinline__ void findSlots(PassShared &pass) {
  const int lane = laneId(), numRows = pass.numRows;
  int last = -1, begun = 0; // the slot of the row before, and where it begins
#pragma unroll 1
  for (int base = 0; base < numRows; base += 32) {
    const int slot = base + lane < numRows ? pass.rows[base + lane].slot : -1, before = __shfl_up_sync(~0u, slot, 1);
    const u32 starts = __ballot_sync(~0u, slot != (lane == 0 ? last : before)), upto = starts & ((2u << lane) - 1);
    pass.attention.firstOfSlot[base + lane] = (short)(upto ? base + 63 - __clzll(upto) : begun);
    last = __shfl_sync(~0u, slot, 31);
    begun = starts ? base + 63 - __clzll(starts) : begun;
  }
  __syncwarp();
}

/// Where the rows' keys and values go. One warp.
template <class Pool> __device__ __forceinline__ void findPlaces(PassShared &pass) {
  for (int row = laneId(); row < pass.numRows; row += 32) {
    const int place = pass.kv[row].place;
    pass.kv[row].element = pageAddress<Pool>(0, place / Pool::pageTokens, 0, place % Pool::pageTokens);
  }
}

/// Plans the products of the pass's rows. One lane. `Stream`: the Consumer.
template <class Stream> __device__ __forceinline__ void planProducts(PassShared &pass) {
  const int numRows = pass.numRows;
  pass.products.lent = Stream::Ring::lentTo(numRows, pass.attention.wideTiles);
  pass.products.blocksAtOnce = Stream::operandBytesOf(numRows) / (kConsumerWarps * 64 * numRows);
  pass.products.rowsLog = numRows <= 1 ? 0 : numRows <= 2 ? 1 : numRows <= 4 ? 2 : numRows <= 8 ? 3 : 4;
}

/// The CTA has read and written what it will in this pass. All consumers.
__device__ __forceinline__ void leavePass(GridEdges &grid) {
  if (threadIdx.x == 0)
    grid.arrivals += gridDim.x;
  consumerSync();
  if (threadIdx.x == kConsumerThreads - 32) {
    delayCta(*grid.params, grid.arrivals);
    // Release: cumulative over what the barrier above ordered before it.
    addRelease(grid.params->sync + kGridArrivals, 1);
  }
}

/// CTA 0, one thread: until all have left.
__device__ __forceinline__ void awaitLeft(GridEdges &grid, int edge) {
  noteEdge(edge);
  u64 since = 0;
  for (u32 spin = 1; (int)(loadAcquire(grid.params->sync + kGridArrivals) - grid.arrivals) < 0; ++spin)
    if (spin % 1024 == 0 && (since = grid.givesUp(edge, since)) == GridEdges::kStops)
      return;
  // What they left may be none: whoever sees that the kernel stops goes on without what it waited for.
  if (grid.stopRequested())
    storeFlag(grid.stoppedHere, 1);
}
/// CTA 0, one thread after a barrier of the CTA: tells the others that all have left. What any CTA wrote before is
/// there for all from then on.
__device__ __forceinline__ void tellLeft(const GridEdges &grid) { addRelease(grid.params->sync + kPassesLeft, 1); }

} // namespace megalith::device
