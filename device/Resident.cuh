//===- Resident.cuh - the resident loop -----------------------------------===//
//
// One CTA runs on each SM, launched once. CTA 0 runs the control code. All CTAs run the passes
// together. Warp 8 of each CTA streams weights. Warp 9 brings the activations of passes of many rows.
//
// A kernel may have wide passes (`wide`), and two more warps for them. Of such a pass nothing comes through the ring:
// its shared memory and scratch are the wide pass's own from one barrier of the CTA to the next one, and all warps have
// a role in it. No warp leaves the kernel before the consumers do, also when it stops.
//
// The text of the tensor unit gives `K`, which is all that is special to its models. Control is the other unit's
// (Units.cuh).
//
//   Shared, Ring, Stream   types
//   Models     the list of its models
//   many       passes may have more rows than a row tile
//   words      activations cross as words, which are set back to ones after a pass
//   stamps     the kernel takes the time of each phase
//   queries    calls of some model have reducers beside argmax
//   wide       there, and true: the kernel has wide passes
//   passEdge   the end of a pass
//   start(p)   what the producer begins a pass with
//
// And of each model, in a type of `K::Models`:
//
//   Workspace, Pool   types
//   head       the model has a head, for passes that want logits
//   bestEdge, best   where the logits' maxima cross
//   firstEvent, lastEvent   numbers of control and of the results, of a kernel with stamps
//   reduces    its calls have reducers beside argmax (Reducers.cuh)
//   streamBody, streamHead(producer)   the weights of a segment
//   bringBody, bringHead(windows)      the activations of a segment
//   runBody, runHead(numRows)          a segment; false when the kernel stops
//   tokens(p)                       the table in which the next pass looks its tokens up
//   settle()                        where it reduces: the logits queries of the pass; false when the kernel stops
//   reduceDraws()                   where it reduces: the rows' drawn tokens, in CTA 0
//   finishQueries()                 where it reduces: what the queries gave, in CTA 0 after the end of the pass
//
// Of a kernel with wide passes:
//
//   chunksAhead()     chunks that the producer copies before it knows the pass, at most
//   beginWide()       before the CTA's warps begin a wide pass; a barrier of the CTA follows. All lanes of warp 0
//   endWide()         CTA 0's consumers, when all CTAs have left it
//   runWide()         the consumers' role; false when the kernel stops
//   bringWide(role)   another warp's, all lanes; of the last role the producer's lanes alone, so it calls nothing that
//                     is for a whole warp. They return in any case: when the kernel stops, what they wait for counts
//                     as there
//===----------------------------------------------------------------------===//
#pragma once

#include "megalith/Stamps.cuh"
#include "megalith/Results.cuh"
#include "megalith/Answers.cuh"
#include "megalith/Windows.cuh"
#include "megalith/AttentionPlan.cuh"
#include "megalith/Units.cuh"

namespace megalith::device {

/// The models of a kernel.
template <class... Models> struct ModelList {
  /// fn(M()) for model number `number`.
  template <class Fn> __device__ __forceinline__ static bool with(int number, Fn fn) {
    bool result = true;
    int i = 0;
    (void)((i++ == number && (result = fn(Models()), true)) || ...);
    return result;
  }
};
template <class M> struct ModelList<M> {
  template <class Fn> __device__ __forceinline__ static bool with(int, Fn fn) { return fn(M()); }
};
template <class K, class Fn> __device__ __forceinline__ bool withModel(int number, Fn fn) {
  return K::Models::with(number, fn);
}

/// All threads.
template <class K> __device__ __forceinline__ void startResident(const abi::LaunchParams &p) {
  auto &shared = K::shared();
  ringInit<K::Ring::stages>(&shared.sync, p);
  if (threadIdx.x == 0) {
    shared.params = p;
    K::start(p);
    shared.grid = {&shared.params, &shared.sync.stopped};
    startPasses(shared.pass, K::Ring::lent);
    if (const abi::Kept *kept = p.kept; kept && kept->valid) {
      resumePasses(shared.pass, *kept);
      shared.grid.arrivals = kept->arrivals;
    }
  }
  if (threadIdx.x < kConsumerWarps)
    shared.places[threadIdx.x] = {0, 0, 0};
  __syncthreads();
}

/// The weights of a pass of one model, as far as it is that one's. False when the kernel leaves, or when it is not.
template <class M, class P> __device__ __forceinline__ bool streamPass(P &producer) {
  if (!M::streamBody(producer) && !(producer.startsAgain() && M::streamBody(producer)))
    return false;
  if constexpr (M::head)
    return !producer.headFollows() || M::streamHead(producer);
  return true;
}

/// Warp 8: the weights of all passes, until the kernel leaves, or until the next wide pass. Of several models, a pass
/// begins with those of the one that control guessed. When it turns out to be another model's, the consumers drop what
/// was copied by then (dropGuess).
template <class K, class P> __device__ __forceinline__ void streamPasses(P &producer) {
  while (producer.nextPass()) {
    const auto stream = [&](auto model) { return streamPass<decltype(model)>(producer); };
    if (withModel<K>((int)producer.model, stream))
      continue;
    if (mayRunWide<K>() && producer.byRuns())
      return;
    if constexpr (abi::kModels > 1)
      if (producer.guessedWrong()) {
        producer.model = producer.ring.shared->model;
        if (withModel<K>((int)producer.model, stream))
          continue;
      }
    break;
  }
}

/// Warp 9: the activations of all passes of many rows, until the kernel leaves, or until the next wide pass.
template <class K, class Windows> __device__ __forceinline__ void bringWindows(Windows &windows) {
  auto &shared = K::shared();
  const auto bring = [&](auto model) {
    using M = decltype(model);
    if (!M::bringBody(windows))
      return false;
    if constexpr (M::head)
      return !shared.sync.wide.wantLogits || M::bringHead(windows);
    return true;
  };
  while (windows.nextPass() && !(mayRunWide<K>() && shared.sync.numRows == 0) &&
         withModel<K>((int)shared.sync.model, bring))
    windows.finishPass();
}
template <class K> __device__ __forceinline__ void bringWindows() {
  if constexpr (K::many) {
    auto &shared = K::shared();
    using Windows = WindowProducer<typename K::Stream>;
    if (laneId() >= Windows::lanes)
      return;
    Windows windows(&shared.sync, &shared.grid, shared.scratch);
    bringWindows<K>(windows);
    windows.drain();
  }
}

/// All warps of a CTA begin a pass that runs whole, or end it; or the kernel leaves, which is as a beginning. `Lanes`
/// of a warp: where others have returned, a barrier of threads would wait for them. Warps without work in other passes
/// have called idleSync before: in such a barrier they take no time of the others, as they would if they looked.
template <class K, int Lanes = 32> __device__ __forceinline__ void meet(bool ends) {
  u64 *const bar = &K::shared().sync.wholePass;
  if (!ends && warpId() == 0)
    idleSync();
  if constexpr (Lanes > 1)
    __syncwarp();
  if (laneId() == 0)
    barrierArrive(bar);
  barrierAwait(bar, ends);
  if constexpr (Lanes > 1)
    __syncwarp();
}

/// A warp beside the consumers, or `Lanes` of its lanes, in a kernel with wide passes. `between`: what it does until
/// the next one.
template <class K, int Lanes, class Between> __device__ __forceinline__ void takePart(int role, Between between) {
  auto &shared = K::shared();
  for (;;) {
    between();
    meet<K, Lanes>(false); // the ring and scratch are free, or the kernel leaves
    if (loadFlag(&shared.sync.leave))
      return;
    withModel<K>((int)shared.sync.model, [&](auto model) {
      decltype(model)::bringWide(role);
      return true;
    });
    meet<K, Lanes>(true);
  }
}

/// Warps 8 and up of a kernel with wide passes. Their roles in these are 0 and 1, the weights; 2, the rows; 3, what
/// tells others. That needs one thread: so the producer of other passes has no lanes beside it that wait. With them it
/// brought weights a tenth slower.
template <class K> __device__ __forceinline__ void runBeside() {
  using Producer = megalith::device::Producer<typename K::Ring>;
  using Windows = WindowProducer<typename K::Stream>;
  auto &shared = K::shared();
  const int warp = warpId() - kConsumerWarps;
  if (warp == 0) {
    if (laneId() >= Producer::lanes)
      return;
    Producer producer{{shared.ring, &shared.sync}};
    takePart<K, Producer::lanes>(3, [&] { streamPasses<K>(producer); });
    producer.drain();
  } else if (warp == 1) {
    Windows windows(&shared.sync, &shared.grid, shared.scratch);
    const bool mine = laneId() < Windows::lanes;
    takePart<K, 32>(2, [&] {
      if (mine)
        bringWindows<K>(windows);
    });
    if (mine)
      windows.drain();
  } else {
    takePart<K, 32>(warp - 2, [] { idleSync(); });
  }
}

/// Sets the words of the model's pass before back to ones.
template <class K, class M>
__device__ __forceinline__ void clearLastPass(const abi::LaunchParams &p, const PassShared &pass) {
  using Workspace = typename M::Workspace;
  char *const last = modelOf<typename M::Pool>(p).workspace + (pass.sets.current ^ 1) * Workspace::setBytes;
  if constexpr (K::many)
    if (pass.sets.rowsBefore > kTileRows) { // the other buffers are images
      clearRecords<Workspace::rowBytes, Workspace::wideBegin, Workspace::wideEnd>(last, pass.sets.rowsBefore);
      return;
    }
  clearWords(last, pass.sets.rowsBefore == 1 ? Workspace::narrowBytes : pass.sets.rowsBefore * Workspace::rowBytes);
}

/// The consumers: a pass of model M. `began`: when the CTA came to wait for it. False when the kernel stops.
template <class K, class M>
__device__ __forceinline__ bool runPass(const abi::LaunchParams &p, PassShared &pass, GridEdges &grid, u64 began) {
  using Pool = typename M::Pool;
  auto &shared = K::shared();
  if constexpr (K::stamps) {
    stampWord(grid, 2 * M::firstEvent, began);
    stampEnd(grid, M::firstEvent);
  }
  if (warpId() == kConsumerWarps - 1) { // the others go on meanwhile
    planPass<Pool, typename K::Stream>(pass);
    if (laneId() == 0)
      announcePlan(shared.sync, pass);
  }
  if (!M::runBody(pass.numRows))
    return false;
  if constexpr (K::words)
    clearLastPass<K, M>(p, pass);
  if constexpr (M::head)
    if (pass.wantLogits && !M::runHead(pass.numRows))
      return false;
  if constexpr (M::reduces)
    if (pass.wantLogits && !M::settle())
      return false;
  leavePass(grid);
  if constexpr (K::stamps)
    stampBegin(grid, M::lastEvent);
  if (blockIdx.x == 0 && !finishPass<Pool>(grid, K::passEdge, M::bestEdge, pass, M::best, M::tokens(p), [] {
        if constexpr (M::reduces)
          M::reduceDraws();
      }))
    return false;
  if constexpr (M::reduces)
    if (blockIdx.x == 0 && pass.wantLogits) {
      M::finishQueries();
      consumerSync();
    }
  if constexpr (K::stamps)
    stampEnd(grid, M::lastEvent);
  return true;
}

/// The consumers: a wide pass of model M. False when the kernel stops.
template <class K, class M> __device__ __forceinline__ bool runWidePass(PassShared &pass, GridEdges &grid) {
  using R = typename K::Ring;
  auto &shared = K::shared();
  if (threadIdx.x == 0) {
    pass.products.lent = R::stages;
    announceWhole(shared.sync, pass);
  }
  shared.stream().beginPass(kOneRow, pass.products.lentBefore);
  dropAhead(shared.stream(), M::chunksAhead(), 0, pass.products.lentBefore);
  if (warpId() == 0)
    M::beginWide();
  meet<K>(false);
  const bool whole = M::runWide();
  meet<K>(true);
  if (consumerSyncAny(!whole))
    return false;
  leavePass(grid);
  return blockIdx.x != 0 || finishWidePass<typename M::Pool>(grid, K::passEdge, pass, [] { M::endWide(); });
}

/// The consumers: tick after tick. Only CTA 0 takes part in a tick without rows.
template <class K> __device__ __forceinline__ void runTicks(const abi::LaunchParams &p) {
  auto &shared = K::shared();
  auto &pass = shared.pass;
  GridEdges &grid = shared.grid;
  if (blockIdx.x == 0)
    controlStart(pass);
  for (bool afterPass = false;; afterPass = true) {
    const u64 began = K::stamps ? nanoseconds() : 0; // of which tick is known later
    if (threadIdx.x == 0)
      awaitPlanRead(shared.sync);
    if (blockIdx.x == 0)
      controlTicks(afterPass);
    else
      awaitPass(grid, 0, pass);
    consumerSync();
    if constexpr (K::queries)
      if (blockIdx.x == 0 && threadIdx.x == 0 && !pass.done && (pass.wantLogits & kQueries))
        tellQueries(grid, pass);
    if (pass.done)
      break;
    if (threadIdx.x == 0)
      grid.tick = pass.tick;
    if (!withModel<K>(pass.model, [&](auto model) {
          if constexpr (mayRunWide<K>())
            if (pass.runs > 0)
              return runWidePass<K, decltype(model)>(pass, grid);
          return runPass<K, decltype(model)>(p, pass, grid, began);
        }))
      break;
  }
  consumerSync();
  if (p.kept) {
    // Another launch may follow. It counts the news that no pass follows as a pass, and what is kept may be overwritten
    // when all CTAs have read it.
    leavePass(grid);
    if (blockIdx.x == 0) {
      controlKeep();
      if (threadIdx.x == 0) {
        awaitLeft(grid, 0);
        tellLeft(grid);
        keepPasses(pass, grid.arrivals, *p.kept, p.stats->unfinished == abi::kRenews);
      }
    }
  }
  if (threadIdx.x == 0)
    storeFlag(&shared.sync.leave, 1);
  if constexpr (mayRunWide<K>())
    meet<K>(false);
}

} // namespace megalith::device
