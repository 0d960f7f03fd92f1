//===- WideRing.cuh - operands of a wide pass through shared memory -------===//
//
// Warps bring both operands of products into a ring of stages, and eight warps multiply. A stage has 64 columns: of 128
// weight rows, [eight rows][block of 32 columns][row][64 bytes] (Step::eightBytes), and of a tile of the pass, as in
// its image.
//
// Two warps bring weights. They wait for nothing but a free stage: so they come before an edge. One warp brings rows of
// the pass, when they are there. One warp tells other CTAs what the consumers have written: these need not wait until
// stores arrive.
//===----------------------------------------------------------------------===//
#pragma once

#include "megalith/WideSteps.cuh"
#include "megalith/Sync.cuh"

namespace megalith::device::wide {

/// Where the weights and the rows stand in a stage, and bytes of a stage.
constexpr int kStageColumns = 2 * kBlockColumns;
constexpr int kWeightBytes = kTile * kStageColumns * 2, kStageBytes = 2 * kWeightBytes;
constexpr int kStages = kWideStages;
static_assert(kStageBytes == kWideStageBytes);
/// Warps that bring weights.
constexpr int kWeightWarps = 2;
/// Shared memory of a consumer warp: sums that are turned, as two planes of 32 rows (WideTile.cuh), and two words of
/// each row of a tile.
constexpr int kTurnRowBytes = kWideTurnRowBytes, kTurnPlaneBytes = kWideTurnPlaneBytes, kTurnBytes = kWideTurnBytes;

/// A place in the ring, of a role between two passes.
struct Place {
  int stage;
  u32 parity;
};
/// Words that the roles of one CTA share.
struct Sync {
  u64 full[kStages], empty[kStages];
  u32 written; ///< how many times a consumer warp has written its part of a unit
  u32 told;    ///< how many of them the signals have told
  Place places[kConsumerWarps + kWeightWarps + 2];
};

/// A pass, as the roles see it.
struct Pass {
  int rows;
  Range all, now; ///< what the producers do; what the consumers' next call does
  u32 *done;      ///< for each block of kCountedRows rows: tiles that have been written in this pass
};

/// What roles keep from one wide pass to the next one, and what tells them a pass.
struct Words {
  Sync sync;
  Pass pass;
};
static_assert(sizeof(Words) <= kWideWordsBytes);
/// Shared memory of a wide pass alone. It begins at a multiple of kWideAlignment bytes.
struct Memory {
  char turns[kConsumerWarps * kTurnBytes];
  char stages[kStages * kStageBytes];
};
static_assert(sizeof(Memory) == kWideBytes);
/// Both.
struct Shared {
  Sync &sync;
  Pass &pass;
  char *turns, *stages;
};

/// Bytes up to the end of such memory, where what it may take begins after `begin` bytes.
__device__ constexpr long long endFrom(long long begin) { return roundUp(begin, kWideAlignment) + kWideBytes; }
/// That of a CTA's `shared`, from `first` on.
__device__ __forceinline__ Shared sharedFrom(void *shared, void *first, Words &words) {
  char *const base = static_cast<char *>(shared);
  auto &memory = *reinterpret_cast<Memory *>(base + roundUp(static_cast<char *>(first) - base, kWideAlignment));
  return {words.sync, words.pass, memory.turns, memory.stages};
}

/// One thread. A barrier of the CTA follows.
inline __device__ void startSync(Sync &sync) {
  for (int i = 0; i < kStages; ++i) {
    barrierInit(&sync.full[i], kWeightWarps + 1);
    barrierInit(&sync.empty[i], kConsumerWarps);
  }
  sync.written = sync.told = 0;
  for (Place &place : sync.places)
    place = {0, 0};
  barriersReady();
}

/// A role's side of the ring.
struct Ring {
  char *stages; ///< 1,024-byte aligned
  Sync *sync;
  Place *home;
  int stage;
  u32 parity;

  __device__ __forceinline__ Ring(char *stages, Sync &sync, int place)
      : stages(stages), sync(&sync), home(&sync.places[place]), stage(__shfl_sync(~0u, home->stage, 0)),
        parity(__shfl_sync(~0u, home->parity, 0)) {}
  __device__ __forceinline__ void keep() const {
    __syncwarp(); // lanes may still read it
    if (laneId() == 0)
      *home = {stage, parity};
    __syncwarp();
  }
  __device__ __forceinline__ void advance() {
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
  __device__ __forceinline__ char *at(int of) const { return stages + of * kStageBytes; }
  __device__ __forceinline__ void awaitFull() const { barrierAwait(&sync->full[stage], parity); }
  /// A producer, all lanes: waits until the next stage is free, and expects `bytes` bytes in it.
  __device__ __forceinline__ void open(int bytes) const {
    barrierAwait(&sync->empty[stage], parity ^ 1);
    if constexpr (!kAsyncMma) // which reads as copies do
      fenceAsyncShared();
    barrierArriveExpectOfWarp(&sync->full[stage], bytes);
  }
  __device__ __forceinline__ void copy(int to, const char *from, int bytes) const {
    copyBulkOfWarp(at(stage) + to, from, bytes, &sync->full[stage]);
  }
};

} // namespace megalith::device::wide
