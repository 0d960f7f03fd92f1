//===- WideAttendUnits.cuh - how attention of a wide pass is cut and dealt -===//
//
// A tile is up to 128 pairs of a query head and a row of a run (PassRun), of one KV head: 16 eights of pairs. Eights
// of rows are those of the pass, as they stand in images: rows of other runs in them are computed, and not kept. Of
// heads of more than 128 dims a tile is 64 pairs, and each of two warpgroups has half of the dims.
//
// The CTA's shared memory, but for the turns, is that of the ring. While the CTA attends it has stages of K and V, of
// 256 positions and 64 dims, then the queries of a unit, then its sums of the rounds so far, but for (m, z), which
// stand in the turns.
//
// A unit is a tile of a KV head, or of a slice of its query heads. Units are dealt there and back, those first that
// go to the most positions. All roles find them from the runs.
//===----------------------------------------------------------------------===//
#pragma once

#include "megalith/AttentionShape.cuh"
#include "megalith/Pool.cuh"
#include "megalith/WideRoles.cuh"

namespace megalith::device::wide {

/// How attention `A` is cut.
template <class A> struct AttendShape {
  using S = AttentionShape<A>;
  static constexpr int dim = S::dim, round = S::round;
  static constexpr float softCap = [] {
    if constexpr (S::capped)
      return A::softCap;
    return 0.0f;
  }();
  static_assert(wideDims(dim) && A::pageTokens % 8 == 0 && (!S::capped || (softCap >= 1.0f && softCap <= 0x1p64f)),
                "passes of such a model run in pieces");
  static constexpr bool halves = dim > 128; ///< a warpgroup has half of the dims of all pairs of the tile

  static constexpr int eights = halves ? 8 : 16; ///< of pairs of a tile
  static constexpr int headsOfTile = S::group < eights ? S::group : eights;
  static constexpr int rowEights = eights / headsOfTile, rowsOfTile = 8 * rowEights;
  static constexpr int slices = ceilDiv(S::group, headsOfTile), tilesOfRow = A::kvHeads * slices;
  /// A stage of K or V: a slab of 64 dims; of heads of 32 or 96 dims there is one of 32.
  static constexpr int slabs = ceilDiv(dim, 64);
  __device__ static constexpr int dimsOfSlab(int slab) { return 64 * slab + 64 <= dim ? 64 : 32; }
  static constexpr int ownDims = halves ? dim / 2 : dim; ///< of a warpgroup

  static constexpr int queryBlockBytes = eights * kEightBytes; ///< of 32 dims
  static constexpr int queryBytes = dim / kBlockColumns * queryBlockBytes;
  static constexpr int words = ownDims / 8; ///< of a thread's sums: dims 8i + 2t, 8i + 2t + 1 of two pairs
  static constexpr int wordBytes = kConsumerThreads * 16, sumBytes = words * wordBytes;
  static constexpr int stages = (kStages * kStageBytes - queryBytes - sumBytes) / kStageBytes;
  static_assert(stages >= 3 && round * 64 * 2 == kStageBytes);
  static constexpr int queriesAt = stages * kStageBytes, sumsAt = queriesAt + queryBytes;

  /// Bytes of memory of a CTA for parts of more than eight rounds: of each level above, (m, z) and the sums.
  static constexpr long long levelBytes = wideLevelBytes(dim), partBytes = (S::levels() - 1) * levelBytes;
  static_assert(levelBytes == (1 + words) * wordBytes);

  /// As AttentionShape::score, without a call.
  __device__ __forceinline__ static float score(float sum, float scale) {
    if (S::scalesLate(scale))
      return sum;
    const float scaled = __fmul_rn(sum, scale);
    if constexpr (S::capped)
      return __fmul_rn(tanhf(quotient(scaled, softCap)), softCap);
    return scaled;
  }
};

/// The tiles of a run.
template <class A> struct RunTiles {
  using T = AttendShape<A>;
  PassRun run;
  __device__ __forceinline__ int firstEight() const { return run.firstRow / 8 * 8; }
  __device__ __forceinline__ int offset() const { return run.position - run.firstRow; }
  __device__ __forceinline__ int end() const { return run.firstRow + run.rows; }
  __device__ __forceinline__ int tiles() const { return (end() - firstEight() + T::rowsOfTile - 1) / T::rowsOfTile; }
  /// Tiles that see no more than so many rounds of positions, from position 0 on: the first ones.
  __device__ __forceinline__ int upTo(int rounds) const {
    const int rows = rounds * T::round - offset(); // before this one
    return rows >= end() ? tiles() : max(0, rows - firstEight()) / T::rowsOfTile;
  }
  /// The most rounds that some tile sees, below `limit`. Neighbours differ by one at most.
  __device__ __forceinline__ int mostBelow(int limit) const {
    static_assert(T::rowsOfTile <= T::round);
    const auto rounds = [&](int end) { return (end + offset() + T::round - 1) / T::round; };
    if (run.rows == 0 || rounds(min(firstEight() + T::rowsOfTile, end())) >= limit)
      return 0;
    return min(rounds(end()), limit - 1);
  }
  __device__ __forceinline__ AttendUnit unit(int number, int tile, int head, int window) const {
    AttendUnit unit;
    unit.run = number;
    unit.firstRow = firstEight() + tile * T::rowsOfTile;
    unit.begin = max(unit.firstRow, run.firstRow);
    unit.end = min(unit.firstRow + T::rowsOfTile, end());
    unit.offset = offset();
    const int slice = head % T::slices * T::headsOfTile;
    unit.kvHead = head / T::slices;
    unit.firstHead = unit.kvHead * T::S::group + slice;
    unit.heads = min(T::headsOfTile, T::S::group - slice);
    unit.round = T::S::windowFrom(unit.begin + offset() + 1, window) / T::round;
    unit.endRound = (unit.end + offset() + T::round - 1) / T::round;
    return unit;
  }
};

/// Calls fn(unit) at each unit of this CTA. A warp: a lane looks at every 32nd run.
template <class W, class A, class Fn> __device__ __forceinline__ void eachAttended(int window, Fn fn) {
  using T = AttendShape<A>;
  const int lane = laneId(), runs = W::runs(), ctas = (int)ctasAgain();
  const auto tilesAt = [&](int number) {
    return RunTiles<A>{number < runs ? PassRun(W::run(number)) : PassRun{0, 0, 0, 0, 0}};
  };
  int before = 0, next = (int)ctaAgain(), toNext = 2 * ctas - 1 - 2 * next; // there, and then back
#pragma unroll 1
  for (int rounds = 0x7fffffff;;) {
    int most = 0;
#pragma unroll 1
    for (int base = 0; base < runs; base += 32)
      most = max(most, tilesAt(base + lane).mostBelow(rounds));
#pragma unroll
    for (int d = 16; d; d /= 2)
      most = max(most, __shfl_xor_sync(~0u, most, d));
    rounds = most;
    if (rounds == 0)
      break;
#pragma unroll 1
    for (int base = 0; base < runs; base += 32) {
      const RunTiles<A> mine = tilesAt(base + lane);
      const int end = mine.run.rows ? mine.upTo(rounds) : 0, first = mine.run.rows ? mine.upTo(rounds - 1) : 0;
      int upTo = end - first;
#pragma unroll
      for (int d = 1; d < 32; d *= 2) {
        const int lower = __shfl_up_sync(~0u, upTo, d);
        upTo += lane >= d ? lower : 0;
      }
      const int all = __shfl_sync(~0u, upTo, 31) * T::tilesOfRow;
#pragma unroll 1
      for (; next < before + all; next += toNext, toNext = 2 * ctas - toNext) {
        const int tile = (next - before) / T::tilesOfRow, head = (next - before) % T::tilesOfRow;
        const int owner = __popc(__ballot_sync(~0u, upTo <= tile));
        const int ofRun = __shfl_sync(~0u, first + upTo, owner) - 1 - tile; // its longest first
        fn(tilesAt(base + owner).unit(base + owner, ofRun, head, window));
      }
      before += all;
    }
  }
}

/// A role's side of the stages of K and V. Models of one kernel share the barriers, and may have other numbers of
/// stages: so each stage has a parity of its own, and each layer begins with stage 0.
template <class A> struct AttendRing {
  using T = AttendShape<A>;
  char *stages;
  AttendSync *sync;
  int role;
  int stage = 0;
  u32 parities;    ///< bit s: of the next round in stage s
  u32 turn, layer; ///< units and layers so far, of which the last bit counts

  __device__ __forceinline__ AttendRing(char *stages, AttendSync &sync, int role)
      : stages(stages), sync(&sync), role(role), parities(__shfl_sync(~0u, sync.places[role].word, 0) / 4),
        turn(__shfl_sync(~0u, sync.places[role].word, 0) / 2 % 2),
        layer(__shfl_sync(~0u, sync.places[role].word, 0) % 2) {}
  __device__ __forceinline__ void keep() const {
    __syncwarp(); // lanes may still read it
    if (laneId() == 0)
      sync->places[role] = {parities * 4 + turn % 2 * 2 + layer % 2};
    __syncwarp();
  }
  __device__ __forceinline__ char *at(int of) const { return stages + of * kStageBytes; }
  __device__ __forceinline__ void advance() {
    parities ^= 1u << stage;
    if (++stage == T::stages)
      stage = 0;
  }
  __device__ __forceinline__ u32 parity() const { return parities >> stage & 1; }
  /// A consumer. What cp.async has written is there for products after this.
  __device__ __forceinline__ void awaitFull() const {
    barrierAwait(&sync->full[stage], parity());
    __syncwarp();
    fenceAsyncShared();
  }
  __device__ __forceinline__ void release(int of) const { arrive(&sync->empty[of]); }
  /// A consumer warp has read something.
  __device__ __forceinline__ void arrive(u64 *bar) const {
    if constexpr (!kAsyncMma) // all lanes read it
      __syncwarp();
    if (laneId() == 0)
      barrierArrive(bar);
  }
};

/// What counters are at least in front of attention.
template <class W> __device__ __forceinline__ Before countBeforeAttention(int layer) {
  const Range all = W::shared().pass.all;
  int step = all.first;
#pragma unroll 1
  while (step + 1 < all.end && W::steps()[step].work != Work::Attention)
    ++step;
  return countBefore<W>(layer, step);
}

} // namespace megalith::device::wide
