//===- Resident.cuh - the resident loop -----------------------------------===//
//
// One CTA runs on each SM, launched once. CTA 0 runs the control code. All CTAs run the passes
// together. Warp 8 of each CTA streams weights. Warp 9 brings the activations of passes of many rows.
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
  if (!M::streamBody(producer))
    return false;
  if constexpr (M::head)
    return !producer.headFollows() || M::streamHead(producer);
  return true;
}

/// Warp 8: the weights of all passes, until the kernel leaves. Of several models, a pass begins with those of the one
/// that control guessed. When it turns out to be another model's, the consumers drop what was copied by then
/// (dropGuess).
template <class K, class P> __device__ __forceinline__ void streamPasses(P &producer) {
  while (producer.nextPass()) {
    const auto stream = [&](auto model) { return streamPass<decltype(model)>(producer); };
    if (withModel<K>((int)producer.model, stream))
      continue;
    if constexpr (abi::kModels > 1)
      if (producer.guessedWrong()) {
        producer.model = producer.ring.shared->model;
        if (withModel<K>((int)producer.model, stream))
          continue;
      }
    break;
  }
}

/// Warp 9: the activations of all passes of many rows.
template <class K> __device__ __forceinline__ void bringWindows() {
  if constexpr (K::many) {
    auto &shared = K::shared();
    using Windows = WindowProducer<typename K::Stream>;
    if (laneId() >= Windows::lanes)
      return;
    Windows windows(&shared.sync, &shared.grid, shared.scratch);
    const auto bring = [&](auto model) {
      using M = decltype(model);
      if (!M::bringBody(windows))
        return false;
      if constexpr (M::head)
        return !shared.sync.wide.wantLogits || M::bringHead(windows);
      return true;
    };
    while (windows.nextPass() && withModel<K>((int)shared.sync.model, bring))
      windows.finishPass();
    windows.drain();
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
    if (!withModel<K>(pass.model, [&](auto model) { return runPass<K, decltype(model)>(p, pass, grid, began); }))
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
}

} // namespace megalith::device
