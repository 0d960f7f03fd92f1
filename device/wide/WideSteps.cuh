//===- WideSteps.cuh - the products of a wide pass, and how they are dealt ===//
//
// A wide pass goes through a table of products, once a layer. All roles of a CTA read the same table, and deal the
// units of a product alike: so they meet in the ring (WideRing.cuh) without a word to each other.
//
// A unit is a tile of 128 weight rows times a tile of rows of the pass. Tiles have 128 rows, or 64 where that takes
// less time. Neighbouring CTAs are pairs. The two units of a pair have the weights in common, or the rows: so what both
// read crosses from the L2 cache once. Pairs take tiles of rows first: what all work at needs few weights.
//===----------------------------------------------------------------------===//
#pragma once

#include "megalith/Matrices.cuh"
#include "megalith/WideImage.cuh"

namespace megalith::device::wide {

/// A product in the table.
struct Product {
  long long weights, layerBytes; ///< in LaunchParams::stream: of layer 0, and from one layer to the next
  long long groupBytes;          ///< from one group to the next
  int groups, tiles;             ///< groups; tiles of 128 weight rows
  int oneTile;                   ///< groups are of one tile of eight rows, else of two
  int blocks;                    ///< of 32 columns in an eighth
  int chunkBytes;
  int operand; ///< number of the operand's image
  int end;     ///< number of the epilogue
};
/// That of M, whose operand is image number `operand` and whose epilogue is number `end`.
template <class M> __device__ constexpr Product productOf(bool inLayers, int operand, int end) {
  static_assert(M::group * M::chunkBlocks == 4 && M::blocks % 2 == 0, "a piece has 2 KB");
  return {M::offset,
          inLayers ? M::layerBytes : 0,
          (long long)M::blocks * M::group * kBlockBytes,
          M::groups,
          ceilDiv(M::groups * M::group * kTileColumns, kTile),
          M::group == 1,
          M::blocks,
          chunkBytes<M>(),
          operand,
          end};
}

/// An operand of products.
struct Operand {
  const char *image;
  int blocks; ///< of 32 columns
};

/// Where a unit stands.
struct Unit {
  int rows, weights; ///< numbers of the two tiles
};

/// How a product is dealt. All CTAs find the same.
struct Deal {
  int tileRows, rowTiles; ///< rows of a tile; tiles of rows
  bool shareWeights;
  int pairs; ///< of units

  /// In tiles of so many rows. A pair whose units have the weights in common needs an even number of tiles of rows.
  __device__ __forceinline__ Deal(int weightTiles, int rows, int tileRows)
      : tileRows(tileRows), rowTiles((rows + tileRows - 1) / tileRows) {
    const int byWeights = (rowTiles + 1) / 2 * weightTiles, byRows = rowTiles * ((weightTiles + 1) / 2);
    shareWeights = byWeights < byRows || (byWeights == byRows && rowTiles <= 8);
    pairs = shareWeights ? byWeights : byRows;
  }
  __device__ __forceinline__ int rounds() const { return (pairs + (int)ctasAgain() / 2 - 1) / ((int)ctasAgain() / 2); }
  /// A unit of half as many rows takes some 13/16 of the time.
  __device__ __forceinline__ static Deal of(const Product &product, int rows) {
    const Deal whole(product.tiles, rows, kTile), half(product.tiles, rows, kTile / 2);
    return 13 * half.rounds() < 16 * whole.rounds() ? half : whole;
  }
  /// Unit of a CTA that is number `rank` of its pair. A tile may lie after the last one: nothing of it is kept.
  __device__ __forceinline__ Unit unit(int pair, int rank) const {
    const int across = shareWeights ? (rowTiles + 1) / 2 : rowTiles, m = pair % across, n = pair / across;
    return shareWeights ? Unit{2 * m + rank, n} : Unit{m, 2 * n + rank};
  }
};

/// Where a warp stands in the table: at unit `next` of the product's. Nothing else stays in registers while it
/// multiplies.
struct Walk {
  int layer, product, next;
};
/// What that says.
struct Here {
  const Product &product;
  int rows; ///< of the pass
  Deal deal;
  Unit unit;

  template <class W> __device__ __forceinline__ static Here at(const Walk &walk) {
    const Product &product = W::products()[walk.product];
    const int rows = W::rows();
    const Deal deal = Deal::of(product, rows);
    return {product, rows, deal, deal.unit(walk.next, ctaAgain() % 2)};
  }
};

/// Calls fn(walk) at each unit of this CTA. A product begins with the pair of CTAs after that which took the last unit
/// of the one before. Plain loops whose ends all lanes see alike: else ptxas lets each product end before the next one
/// begins (C7520).
///   W   `W::products()`: the table, of `W::count()`; `W::layers()`; `W::rows()`: of the pass, read anew
template <class W, class Fn> __device__ __forceinline__ void eachUnit(Fn fn) {
  int first = 0;
  Walk walk;
#pragma unroll 1
  for (walk.layer = 0; walk.layer < W::layers(); ++walk.layer)
#pragma unroll 1
    for (walk.product = 0; walk.product < W::count(); ++walk.product) {
      const auto end = [&] { return Deal::of(W::products()[walk.product], W::rows()).pairs; };
      walk.next = (int)ctaAgain() / 2 - first;
      walk.next += walk.next < 0 ? (int)ctasAgain() / 2 : 0;
      first = (first + end()) % ((int)ctasAgain() / 2);
#pragma unroll 1
      for (; walk.next < end(); walk.next += (int)ctasAgain() / 2)
        fn(walk);
    }
}

} // namespace megalith::device::wide
