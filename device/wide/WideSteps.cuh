//===- WideSteps.cuh - the steps of a wide pass, and how they are dealt ----===//
//
// A wide pass goes through a table of steps, once a layer. All roles of a CTA read the same table, and deal the units
// of a step alike: so they meet in the ring (WideRing.cuh) without a word to each other.
//
// A step is a product, or work on whole rows, as a norm, or attention, which deals its units itself
// (WideAttendUnits.cuh). A unit of work on rows is eight rows, one to a warp. A unit of a product is a tile of 128
// weight rows times a tile of rows of the pass. Tiles have 128 rows, or 64 where that takes less time. Neighbouring
// CTAs are pairs. The two units of a pair have the weights in common, or the rows: so what both read crosses from the
// L2 cache once. Pairs take tiles of rows first: what all work at needs few weights.
//===----------------------------------------------------------------------===//
#pragma once

#include "megalith/Matrices.cuh"
#include "megalith/WideImage.cuh"

namespace megalith::device::wide {

enum class Work { Product, OnRows, Attention };
/// A step of the table. Of what is no product all but the last four is 0.
struct Step {
  long long weights, layerBytes; ///< in LaunchParams::stream: of layer 0, and from one layer to the next
  long long groupBytes;          ///< from one group to the next
  int groups, group;             ///< groups; tiles of eight rows in a group
  int blocks, chunkBlocks;       ///< of 32 columns in an eighth, and in a chunk of it
  int partBytes, slotBlocks;     ///< of codes: of a warp in a chunk; blocks that share a slot (Codes.cuh)
  int operand;                   ///< number of the operand's image
  Work work;
  int dealtRows; ///< of each block of kCountedRows rows, of work on rows: all
  /// Of 128 weight rows, or of eight rows in each kCountedRows rows: units that each row's counter counts. Of attention
  /// units of each row: the counter of a block of rows counts them of each of these.
  int tiles;
  int end; ///< number of the epilogue, or of the work
};
/// That of M, whose operand is image number `operand` and whose epilogue is number `end`.
template <class M> __device__ constexpr Step productStep(bool inLayers, int operand, int end) {
  return {M::offset,
          inLayers ? M::layerBytes : 0,
          (long long)chunksPerGroup<M>() * chunkBytes<M>(),
          M::groups,
          M::group,
          M::blocks,
          M::chunkBlocks,
          chunkBytes<M>() / kConsumerWarps,
          codingOf<M>().scaleBlocks,
          operand,
          Work::Product,
          0,
          ceilDiv(M::groups * M::group * kTileColumns, kTile),
          end};
}
/// Work number `end` on rows.
__device__ constexpr Step rowStep(int end) {
  Step step = {};
  step.work = Work::OnRows;
  step.dealtRows = kCountedRows;
  step.tiles = kCountedRows / kConsumerWarps;
  step.end = end;
  return step;
}
/// Attention with so many units of each row: AttendShape::tilesOfRow.
__device__ constexpr Step attentionStep(int tilesOfRow) {
  Step step = {};
  step.work = Work::Attention;
  step.tiles = tilesOfRow;
  return step;
}

/// An operand of products.
struct Operand {
  const char *image;
  int blocks; ///< of 32 columns
};

/// What the products of a table have in common, so that no loop asks for it.
struct Layouts {
  bool apart, together; ///< chunks of one block of an eighth; of more
  bool odd;             ///< eighths with an odd number of blocks
};
template <class... M> __device__ constexpr Layouts layoutsOf() {
  return {((M::chunkBlocks == 1) || ...), ((M::chunkBlocks != 1) || ...), ((M::blocks % 2 != 0) || ...)};
}

/// Whether the two blocks of a stage of weights come from chunks of their own, and so do not stand together.
template <class W> __device__ __forceinline__ bool standApart(const Step &product) {
  return W::layouts.apart && (!W::layouts.together || product.chunkBlocks == 1);
}

/// Where a unit stands.
struct Unit {
  int rows, weights; ///< numbers of the two tiles
};

/// How a step is dealt. All CTAs find the same.
struct Deal {
  int tileRows, rowTiles; ///< rows of a tile; tiles of rows
  int shareWeights;       ///< whether: no byte of these is padding, which nobody would write
  int pairs;              ///< of units

  Deal() = default;

  /// In tiles of so many rows. A pair whose units have the weights in common needs an even number of tiles of rows.
  __device__ __forceinline__ Deal(int weightTiles, int rows, int tileRows)
      : tileRows(tileRows), rowTiles((rows + tileRows - 1) / tileRows) {
    const int byWeights = (rowTiles + 1) / 2 * weightTiles, byRows = rowTiles * ((weightTiles + 1) / 2);
    shareWeights = byWeights < byRows || (byWeights == byRows && rowTiles <= 8);
    pairs = shareWeights ? byWeights : byRows;
  }
  __device__ __forceinline__ int rounds() const { return (pairs + (int)ctasAgain() / 2 - 1) / ((int)ctasAgain() / 2); }
  /// A unit of half as many rows takes some 13/16 of the time.
  __device__ __forceinline__ static Deal of(const Step &step, int rows) {
    if (step.work != Work::Product) // each block is counted as a whole
      return {1, (rows + kCountedRows - 1) / kCountedRows * step.dealtRows, kConsumerWarps};
    const Deal whole(step.tiles, rows, kTile), half(step.tiles, rows, kTile / 2);
    return 13 * half.rounds() < 16 * whole.rounds() ? half : whole;
  }
  /// Unit of a CTA that is number `rank` of its pair. A tile may lie after the last one: nothing of it is kept.
  __device__ __forceinline__ Unit unit(int pair, int rank) const {
    const int across = shareWeights ? (rowTiles + 1) / 2 : rowTiles, m = pair % across, n = pair / across;
    return shareWeights ? Unit{2 * m + rank, n} : Unit{m, 2 * n + rank};
  }
};

/// What counters count: blocks of rows, and rows (Step::tiles).
struct Counts {
  u32 ofBlock, ofRow;
};
/// A step of a pass, and what is before it in its layer.
struct DealtStep {
  Deal deal;
  int pairsBefore;
  Counts before;
};
/// How the steps of a pass are dealt, which is found once: divisions in front of each unit would take their time.
constexpr int kMostSteps = kWideSteps;
static_assert(kMostSteps == 32); // a lane has one
struct Deals {
  int pairs; ///< of a layer
  Counts counts;
  DealtStep step[kMostSteps];
};

/// Where a warp stands in the table: at unit `next` of the step's.
struct Walk {
  int layer, step, next;
};
/// What that says.
struct Here {
  const Step &step;
  int rows; ///< of the pass
  Deal deal;
  Unit unit;

  template <class W> __device__ __forceinline__ static Here at(const Walk &walk) {
    return at<W>(walk, W::shared().deals.step[walk.step].deal);
  }
  template <class W> __device__ __forceinline__ static Here at(const Walk &walk, const Deal &deal) {
    return {W::steps()[walk.step], W::rows(), deal, deal.unit(walk.next, ctaAgain() % 2)};
  }
};

/// Steps of the table, [first, end), in layers [layer, lastLayer].
struct Range {
  int layer, lastLayer, first, end;
};
/// This CTA's first unit of a step. A step begins with the pair of CTAs after that which took the last unit of the one
/// before.
template <class W> __device__ __forceinline__ int firstUnit(int layer, int step) {
  const Deals &deals = W::shared().deals;
  const int pairs = (int)ctasAgain() / 2, before = (layer - W::shared().pass.all.layer) * deals.pairs;
  const int first = (int)ctaAgain() / 2 - (deals.step[step].pairsBefore + before) % pairs;
  return first < 0 ? first + pairs : first;
}
/// Calls fn(walk) at each unit of this CTA.
///   W     `W::steps()`: the table; `W::rows()`: of the pass, read anew
template <class W, class Fn> __device__ __forceinline__ void eachUnit(const Range &range, Fn fn) {
  Walk walk;
#pragma unroll 1
  for (walk.layer = range.layer; walk.layer <= range.lastLayer; ++walk.layer)
#pragma unroll 1
    for (walk.step = range.first; walk.step < range.end; ++walk.step)
#pragma unroll 1
      for (walk.next = firstUnit<W>(walk.layer, walk.step); walk.next < W::shared().deals.step[walk.step].deal.pairs;
           walk.next += (int)ctasAgain() / 2)
        fn(walk);
}

} // namespace megalith::device::wide
