//===- Resident.cuh - the resident loop -----------------------------------===//
//
// One CTA runs on each SM, launched once. CTA 0 runs the control code. All CTAs run the passes
// together. Warp 8 of each CTA streams weights. Warp 9 brings the activations of passes of many rows.
//
// The text of the tensor unit gives `K`, which is all that is special to its models. Control is the other unit's
// (Units.cuh).
//
//
//   Shared, Ring, Stream, Workspace, Pool   types
//   many       passes may have more rows than a row tile
//   words      activations cross as words, which are set back to ones after a pass
//   head       the model has a head, for passes that want logits
//   stamps     the kernel takes the time of each phase; lastEvent is the results' number
//   start(p)                        what the producer begins a pass with
//   streamBody, streamHead(producer)   the weights of a segment
//   bringBody, bringHead(windows)      the activations of a segment
//   runBody, runHead(numRows)          a segment; false when the kernel stops
//   tokens(p)                       the table in which the next pass looks its tokens up
//===----------------------------------------------------------------------===//
#pragma once

namespace megalith::device {

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

/// Warp 8: the weights of all passes, until the kernel leaves.
template <class K, class P> __device__ __forceinline__ void streamPasses(P &producer) {
  while (producer.nextPass() && K::streamBody(producer))
    if constexpr (K::head)
      if (producer.headFollows() && !K::streamHead(producer))
        break;
}

/// Warp 9: the activations of all passes of many rows.
template <class K> __device__ __forceinline__ void bringWindows() {
  if constexpr (K::many) {
    auto &shared = K::shared();
    using Windows = WindowProducer<typename K::Stream>;
    if (laneId() >= Windows::lanes)
      return;
    Windows windows(&shared.sync, &shared.grid, shared.scratch);
    while (windows.nextPass() && K::bringBody(windows)) {
      if constexpr (K::head)
        if (shared.sync.wide.wantLogits && !K::bringHead(windows))
          break;
      windows.finishPass();
    }
    windows.drain();
  }
}

/// Sets the words of the pass before back to ones.
template <class K> __device__ __forceinline__ void clearLastPass(const abi::LaunchParams &p, const PassShared &pass) {
  using Workspace = typename K::Workspace;
  char *const last = modelOf<typename K::Pool>(p).workspace + (pass.sets.current ^ 1) * Workspace::setBytes;
  if constexpr (K::many)
    if (pass.sets.rowsBefore > kTileRows) { // the other buffers are images
      clearRecords<Workspace::rowBytes, Workspace::wideBegin, Workspace::wideEnd>(last, pass.sets.rowsBefore);
      return;
    }
  clearWords(last, pass.sets.rowsBefore == 1 ? Workspace::narrowBytes : pass.sets.rowsBefore * Workspace::rowBytes);
}

/// The consumers: tick after tick. Only CTA 0 takes part in a tick without rows.
template <class K> __device__ __forceinline__ void runTicks(const abi::LaunchParams &p) {
  using Pool = typename K::Pool;
  auto &shared = K::shared();
  PassShared &pass = shared.pass;
  GridEdges &grid = shared.grid;
  if (blockIdx.x == 0)
    controlStart(pass);
  for (bool behindPass = false;; behindPass = true) {
    const u64 began = K::stamps ? nanoseconds() : 0; // of which tick is known later
    if (threadIdx.x == 0)
      awaitPlanRead(shared.sync);
    if (blockIdx.x == 0)
      controlTicks(behindPass);
    else
      awaitPass(grid, 0, pass);
    consumerSync();
    if (pass.done)
      break;
    if (threadIdx.x == 0)
      grid.tick = pass.tick;
    if constexpr (K::stamps) {
      stampWord(grid, 0, began);
      stampEnd(grid, 0);
    }
    if (warpId() == kConsumerWarps - 1) { // the others go on meanwhile
      planPass<Pool, typename K::Stream>(pass);
      if (laneId() == 0)
        announcePlan(shared.sync, pass);
    }
    if (!K::runBody(pass.numRows))
      break;
    if constexpr (K::words)
      clearLastPass<K>(p, pass);
    if constexpr (K::head)
      if (pass.wantLogits && !K::runHead(pass.numRows))
        break;
    leavePass(grid);
    if constexpr (K::stamps)
      stampBegin(grid, K::lastEvent);
    if (blockIdx.x == 0 && !finishPass<Pool>(grid, K::passEdge, K::bestEdge, pass, K::best, K::tokens(p)))
      break;
    if constexpr (K::stamps)
      stampEnd(grid, K::lastEvent);
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
        keepPasses(pass, grid.arrivals, *p.kept);
      }
    }
  }
  if (threadIdx.x == 0)
    storeFlag(&shared.sync.leave, 1);
}

} // namespace megalith::device
