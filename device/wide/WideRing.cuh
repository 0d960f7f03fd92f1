//===- WideRing.cuh - operands of a wide pass through shared memory -------===//
//
// Warps bring both operands of products into a ring of stages, and eight warps multiply. A stage has 64 columns: of 128
// weight rows, [eight rows][block of 32 columns][row][64 bytes], and of a tile of the pass, as in
// its image.
//
// Two warps bring weights. They wait for nothing but a free stage: so they come before an edge. One warp brings rows of
// the pass, when they are there. One thread tells other CTAs what the consumers have written: these need not wait until
// stores arrive.
//===----------------------------------------------------------------------===//
#pragma once

#include "megalith/SharedMemory.h"
#include "megalith/WideSteps.cuh"
#include "megalith/Sync.cuh"

namespace megalith::device::wide {

/// Where the weights and the rows stand in a stage, and bytes of a stage.
constexpr int kStageColumns = 2 * kBlockColumns;
constexpr int kWeightBytes = kTile * kStageColumns * 2, kStageBytes = 2 * kWeightBytes;
constexpr int kStages = kWideStages;
/// Where scales are of pieces of columns, sums stand after the stages (WideCodes.cuh): 16 bytes of each eight rows.
constexpr int kPieceSumBytes = kConsumerThreads * kTile * 2;
static_assert(kStageBytes == kWideStageBytes);
/// Warps that bring weights.
constexpr int kWeightWarps = 2;
/// Shared memory of a consumer warp: sums that are turned, as two planes of 32 rows (WideTile.cuh).
constexpr int kTurnRowBytes = kWideTurnRowBytes, kTurnPlaneBytes = kWideTurnPlaneBytes, kTurnBytes = kWideTurnBytes;

/// A place in the ring, of a role between two calls, in one word: the stage of the next chunk, and bits of the role.
/// These words stay while other passes run, and every 128 bytes of such may cost the narrow ring a stage.
struct Place {
  u32 word;
};
/// A unit of attention: a tile of rows of one run, a KV head, and some of its query heads.
struct AttendUnit {
  int run;
  int firstRow;   ///< of the tile: a multiple of 8, which may be of the run before
  int begin, end; ///< rows of the run in the tile
  int offset;     ///< from a row of the pass to its position
  int kvHead, firstHead, heads;
  int round, endRound; ///< of positions. No unit follows: 0, 0
};
/// Words of attention. Stages of the ring are used otherwise there, and so have other barriers.
struct AttendSync {
  u64 full[kStages], empty[kStages];
  u64 queries, taken; ///< a unit's queries are there; have been read
  u64 left;           ///< the consumers have ended a layer
  u64 entered;        ///< the producers of K and V have begun one
  Place places[kConsumerWarps + kWeightWarps + 1];
};
/// Words that the roles of one CTA share.
struct Sync {
  u64 full[kStages], empty[kStages];
  u32 written; ///< how many times a consumer warp has written its part of a unit
  u32 told;    ///< how many of them the signals have told
  Place places[kConsumerWarps + kWeightWarps + 2];
  AttendSync attend;
};

/// A step whose products the consumers take.
struct ProductStep {
  int layer, step;
  Deal deal;
  int first; ///< unit
};
/// What the consumers multiply: now, as the last step of their call or not, and then.
struct Multiplied {
  ProductStep now, next;
  int last; ///< whether
};
/// A pass, as the roles see it.
struct Pass {
  int rows;
  Range all, now; ///< what the producers do; what the consumers' next call does
  u32 *done;      ///< for each block of kCountedRows rows: tiles that have been written in this pass
};

static_assert(sizeof(Sync) <= kWideWordsBytes);
/// What is of one pass alone, and stands with its runs.
struct OfPass {
  Pass pass;
  Deals deals;
  Multiplied multiplied;
  AttendUnit units[2]; ///< of attention: this one, and the one that comes
};
static_assert(sizeof(OfPass) <= sizeof(PassRuns::words));
/// Shared memory of a wide pass. It begins at a multiple of kWideAlignment bytes.
struct Memory {
  char turns[kConsumerWarps * kTurnBytes];
  char stages[kStages * kStageBytes];
};
static_assert(sizeof(Memory) == kWideBytes);
/// All of these.
struct Shared {
  Sync &sync;
  Pass &pass;
  Deals &deals;
  Multiplied &multiplied;
  AttendUnit *units;
  char *turns, *stages;
};

/// Bytes up to the end of such memory, where what it may take begins after `begin` bytes.
__device__ constexpr long long endFrom(long long begin) { return roundUp(begin, kWideAlignment) + kWideBytes; }
__device__ __forceinline__ OfPass &ofPass(PassShared &pass) { return *reinterpret_cast<OfPass *>(pass.byRuns.words); }
/// That of a CTA's `shared`, from `first` on.
__device__ __forceinline__ Shared sharedFrom(void *shared, void *first, Sync &sync, PassShared &pass) {
  char *const base = static_cast<char *>(shared);
  auto &memory = *reinterpret_cast<Memory *>(base + roundUp(static_cast<char *>(first) - base, kWideAlignment));
  OfPass &words = ofPass(pass);
  return {sync, words.pass, words.deals, words.multiplied, words.units, memory.turns, memory.stages};
}

/// One thread. A barrier of the CTA follows.
inline __device__ void startSync(Sync &sync) {
  for (int i = 0; i < kStages; ++i) {
    barrierInit(&sync.full[i], kWeightWarps + 1);
    barrierInit(&sync.empty[i], kConsumerWarps);
  }
  sync.written = sync.told = 0;
  for (Place &place : sync.places)
    place = {0};
  AttendSync &attend = sync.attend;
  for (int i = 0; i < kStages; ++i) {
    barrierInit(&attend.full[i], kWeightWarps * 32);
    barrierInit(&attend.empty[i], kConsumerWarps);
  }
  barrierInit(&attend.queries, 1);
  barrierInit(&attend.taken, kConsumerWarps);
  barrierInit(&attend.left, kConsumerWarps);
  barrierInit(&attend.entered, kWeightWarps);
  for (Place &place : attend.places)
    place = {0};
  barriersReady();
}

/// A role's side of the ring. `Codes`: lanes read what copies brought. `Pieces`, not 0: weights take so many bytes of a
/// stage, and all of them stand after the rows of all stages, so that sums have room. There are as many stages as fit.
template <bool Codes, int Pieces = 0> struct RingOf {
  static constexpr int rowBytes = kStageBytes - kWeightBytes, // of the rows of a stage
      fit = (kStages * kStageBytes - kPieceSumBytes) / (rowBytes + Pieces),
                       count = Pieces == 0 || fit > kStages ? kStages : fit;
  static_assert(count >= 3);
  char *stages; ///< 1,024-byte aligned
  Sync *sync;
  Place *home;
  int stage;
  u32 parity;

  __device__ __forceinline__ RingOf(char *stages, Sync &sync, int place)
      : stages(stages), sync(&sync), home(&sync.places[place]), stage(__shfl_sync(~0u, home->word, 0) / 2),
        parity(__shfl_sync(~0u, home->word, 0) % 2) {}
  __device__ __forceinline__ void keep() const {
    __syncwarp(); // lanes may still read it
    if (laneId() == 0)
      *home = {stage * 2 + parity};
    __syncwarp();
  }
  __device__ __forceinline__ void advance() {
    if (++stage == count) {
      stage = 0;
      parity ^= 1;
    }
  }
  /// From one stage's rows to those of the next one.
  static constexpr int rowStride = Pieces ? rowBytes : kStageBytes;
  __device__ __forceinline__ char *weights(int of) const {
    return stages + (Pieces ? count * rowBytes + of * Pieces : of * kStageBytes);
  }
  __device__ __forceinline__ char *rows(int of) const { return stages + (Pieces ? 0 : kWeightBytes) + of * rowStride; }
  __device__ __forceinline__ char *sums() const { return stages + kStages * kStageBytes - kPieceSumBytes; }
  __device__ __forceinline__ void awaitFull() const { barrierAwait(&sync->full[stage], parity); }
  /// A producer, all lanes: waits until the next stage is free, and expects `bytes` bytes in it.
  __device__ __forceinline__ void open(int bytes) const {
    barrierAwait(&sync->empty[stage], parity ^ 1);
    if constexpr (!kAsyncMma || Codes) // wgmma reads as copies do
      fenceAsyncShared();
    barrierArriveExpectOfWarp(&sync->full[stage], bytes);
  }
  __device__ __forceinline__ void copyWeights(int to, const char *from, int bytes) const {
    copyBulkOfWarp(weights(stage) + to, from, bytes, &sync->full[stage]);
  }
  __device__ __forceinline__ void copyRows(int to, const char *from, int bytes) const {
    copyBulkOfWarp(rows(stage) + to, from, bytes, &sync->full[stage]);
  }
};

} // namespace megalith::device::wide
