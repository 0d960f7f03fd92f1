//===- WideTile.cuh - a tile of a product: sums, and what becomes of them -===//
//
// Sums are those of the narrow products (Matrices.cuh): an eighth of the columns is one chain of mma steps in ascending
// order, and the eighths are added in ascending order.
//
// A warp has 16 weight rows, a strip, and all rows of the tile. Packed rows 2j and 2j + 1 are a pair: a strip has eight
// pairs, which are of one epilogue. The epilogue takes a row and a pair at a time, and stores eight columns of a row.
//
//   E::pairs      what the two columns of a pair are
//   E::residual   the epilogue takes what stands at the columns in another buffer
//   scales(pair)  of codes with a scale for each packed row: those of the pair's, which its sums are multiplied with
//   begin(firstRow, words)     first: all lanes. Rows are numbered from `firstRow` on. `words`: in shared memory, two
//   of
//                              each row, until the last `early` and `place`
//   columns(pair)              the two columns of a pair
//   early(row, c0, c1)         loads what else the epilogue needs
//   place(row)                 what `store` needs to know of a row: all are asked for at once
//   value(c0, c1, y0, y1, old, early)   Floats<2>, or Floats<1> where the pair has one column. They are rounded to bf16
//   load(row, col)             eight columns of the other buffer
//   store(row, place, col, words)   eight columns
//===----------------------------------------------------------------------===//
#pragma once

#include "megalith/WideRing.cuh"

namespace megalith::device::wide {

template <int Value> struct Number {
  static constexpr int value = Value;
};

enum class Pairs {
  Adjacent, ///< columns c and c + 1
  Halves,   ///< c and c + d; eight pairs have eight columns each, side by side
  One,      ///< two products are one column
};
struct Columns {
  int c0, c1;
};

/// Eight columns whose words have columns i and i + 4.
__device__ __forceinline__ Words4 sideBySide(Words4 w) {
  return {lowHalves(w.x, w.y), lowHalves(w.z, w.w), highHalves(w.x, w.y), highHalves(w.z, w.w)};
}

/// Ends a warp's strip of a tile: `firstPair` and `firstRow` are those of the strip and the tile. `turn`: kTurnBytes of
/// shared memory of its own.
///
/// The words of a plane stand 16 bytes a row, and the other plane's after a gap: lanes that read together meet in no
/// bank.
template <class E, int Eights>
__device__ __forceinline__ void endStrip(E end, const float (&sums)[Eights][4], int firstPair, int firstRow, int rows,
                                         char *turn) {
  static_assert(kTurnBytes >= 2 * kTile * 4);
  constexpr int atOnce = 4;                              // eights of rows: 32 rows
  constexpr int planes = E::pairs == Pairs::One ? 1 : 2; // words of a pair's row
  const int lane = laneId(), odd = lane >> 2 & 1, pair = lane >> 3, rowOfLane = (lane & 3) * 2 + odd;
  const Columns first = end.columns(firstPair);
  end.begin(firstRow, reinterpret_cast<int *>(turn));
  const int left = rows - firstRow;
  // Of 32 rows a lane loads and stores so many pieces of eight columns.
  const auto rowOfPiece = [&](int i) { return planes == 1 ? lane : i * 16 + lane / 2; };
  const auto planeOfPiece = [&] { return planes == 1 ? 0 : lane % 2; };
  const int column = E::pairs == Pairs::Adjacent ? first.c0 + 8 * planeOfPiece() : planeOfPiece() ? first.c1 : first.c0;
  const auto pieceAt = [&](int i) {
    return reinterpret_cast<Words4 *>(turn + planeOfPiece() * kTurnPlaneBytes + rowOfPiece(i) * kTurnRowBytes);
  };
  Words4 old[E::residual ? Eights / atOnce * planes : 1];
  if constexpr (E::residual) { // all loads first: one way to the L2 cache and back
    static_assert(E::pairs == Pairs::Adjacent);
#pragma unroll
    for (int i = 0; i < Eights / atOnce * planes; ++i) {
      const int row = i / planes * 32 + rowOfPiece(i % planes);
      old[i] = row < left ? end.load(row, column) : Words4{0, 0, 0, 0};
    }
  }
  decltype(end.place(0)) places[Eights / atOnce * planes]; // the same
#pragma unroll
  for (int i = 0; i < Eights / atOnce * planes; ++i)
    places[i] = end.place(i / planes * 32 + rowOfPiece(i % planes));
  decltype(end.early(0, 0, 0)) beside[Eights][2];
#pragma unroll
  for (int e = 0; e < Eights; ++e)
#pragma unroll
    for (int tile = 0; tile < 2; ++tile) {
      const Columns c = end.columns(firstPair + tile * kPairsOfTile + pair);
      beside[e][tile] = end.early(e * 8 + rowOfLane, c.c0, c.c1);
    }
  constexpr bool scaled = requires { end.scales(0); };
  [[maybe_unused]] Floats<2> scales[2];
  if constexpr (scaled)
#pragma unroll
    for (int tile = 0; tile < 2; ++tile)
      scales[tile] = end.scales(firstPair + tile * kPairsOfTile + pair);
  __syncwarp(); // the words may be overwritten
#pragma unroll
  for (int base = 0; base < Eights; base += atOnce) {
    if constexpr (E::residual) {
#pragma unroll
      for (int i = 0; i < planes; ++i)
        *pieceAt(i) = old[base / atOnce * planes + i];
      __syncwarp();
    }
#pragma unroll
    for (int e = 0; e < atOnce; ++e) {
      float out[2][2];
#pragma unroll
      for (int tile = 0; tile < 2; ++tile) {
        // Lanes of weight rows 2j and 2j + 1 have two rows of the pass each. Each takes one row with both weight rows.
        const float *of = sums[base + e] + 2 * tile;
        const float other = __shfl_xor_sync(~0u, odd ? of[0] : of[1], 4);
        float y0 = odd ? other : of[0], y1 = odd ? of[1] : other;
        if constexpr (scaled)
          y0 = __fmul_rn(y0, scales[tile].v[0]), y1 = __fmul_rn(y1, scales[tile].v[1]);
        const Columns c = end.columns(firstPair + tile * kPairsOfTile + pair);
        char *const word = turn + (E::pairs == Pairs::Adjacent ? tile * kTurnPlaneBytes : 0) +
                           (e * 8 + rowOfLane) * kTurnRowBytes + pair * 4;
        Floats<2> before = {};
        if constexpr (E::residual) {
          const u32 bits = *reinterpret_cast<u32 *>(word);
          before = {{bf16Low(bits), bf16High(bits)}};
        }
        const auto value = end.value(c.c0, c.c1, y0, y1, before, beside[base + e][tile]);
        out[tile][0] = value.v[0];
        if constexpr (planes == 2)
          out[tile][1] = value.v[1];
        if constexpr (E::pairs == Pairs::Adjacent)
          *reinterpret_cast<u32 *>(word) = packBf16(value.v[0], value.v[1]);
      }
      if constexpr (E::pairs != Pairs::Adjacent)
#pragma unroll
        for (int plane = 0; plane < planes; ++plane)
          *reinterpret_cast<u32 *>(turn + plane * kTurnPlaneBytes + (e * 8 + rowOfLane) * kTurnRowBytes + pair * 4) =
              packBf16(out[0][plane], out[1][plane]);
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < planes; ++i) {
      const int row = base * 8 + rowOfPiece(i);
      if (row < left)
        end.store(row, places[base / atOnce * planes + i], column,
                  E::pairs == Pairs::Adjacent ? *pieceAt(i) : sideBySide(*pieceAt(i)));
    }
    __syncwarp();
  }
}

/// Ends the warp's strip of a unit.
template <class W, int Rows, class R>
__device__ __forceinline__ void endUnit(R &ring, const float (&total)[Rows / 8][4], int warp, int next) {
  const ProductStep &of = W::shared().multiplied.now;
  const Here now = Here::at<W>({of.layer, of.step, next}, of.deal);
  const int firstPair = (now.unit.weights * kTile + warp * 16) / 2, firstRow = now.unit.rows * Rows;
  if (firstRow < now.rows)
    W::end(now.step.end, of.layer, firstPair, [&](const auto &end) {
      endStrip(end, total, firstPair, firstRow, now.rows, W::shared().turns + warp * kTurnBytes);
    });
  __syncwarp();
  if (laneId() == 0)
    addFlag(&ring.sync->written, 1);
}

/// Multiplies the warp's next unit, with `Rows` rows, and ends it. Inlined in the role's function, and that calls
/// nothing: else ptxas lets each wgmma end before the next one begins.
template <class W, int Rows, class R> __device__ __forceinline__ void multiplyUnit(R &ring, int next) {
  constexpr int eights = Rows / 8;
  // ptxas is to see that the lanes of a warp agree on what a product reads.
  const int warp = __shfl_sync(~0u, warpId(), 0), lane = laneId();
  const auto release = [&](int stage) {
    if constexpr (!kAsyncMma) // a warp's products read a stage as a whole
      __syncwarp();
    if (lane == 0)
      barrierArrive(&ring.sync->empty[stage]);
  };
  float chain[eights][4], total[eights][4];
  // A chain's first product does not add. But unless ptxas sees zeros here, the chain keeps its registers through the
  // epilogue before.
#pragma unroll
  for (int i = 0; i < eights; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      chain[i][j] = 0.0f;
      total[i][j] = -0.0f; // -0 + x is x, of every x
    }
  const Step &product = W::steps()[W::shared().multiplied.now.step];
  const int blocks = product.blocks;
  // Where the weights stand in a stage: how far eights of rows are apart, and blocks.
  const bool apart = standApart<W>(product);
  const int eightBytes = apart ? kEightBytes : 2 * kEightBytes, blockBytes = apart ? kTileBlockBytes : kEightBytes;
  const SharedMatrix firstA = sharedMatrix(ring.weights(0) + warp / 4 * 8 * eightBytes, eightBytes),
                     firstB = sharedMatrix(ring.rows(0), kEightBytes);
  int before = -1;                                 // a stage that this warp has not given back
  const auto take = [&](bool add, auto mmaSteps) { // the next stage
    ring.awaitFull();
    __syncwarp();
    const SharedMatrix a = laterColumns(firstA, ring.stage * kStageBytes),
                       b = laterColumns(firstB, ring.stage * kStageBytes);
    asyncMmaBegin();
#pragma unroll
    for (int i = 0; i < decltype(mmaSteps)::value; ++i) {
      asyncMma(chain, laterColumns(a, i / 2 * blockBytes + i % 2 * 32),
               laterColumns(b, i / 2 * (Rows * kRowBytes) + i % 2 * 32), add || i > 0);
      if (i == 0) { // the stage before has been read when this one's first product is under way
        asyncMmaCommit();
        asyncMmaWaitLast();
        if (before >= 0)
          release(before);
      }
    }
    asyncMmaCommit();
    before = ring.stage;
    ring.advance();
  };
#pragma unroll 1
  for (int eighth = 0; eighth < kParts; ++eighth) {
#pragma unroll 1
    for (int i = 0; i + 1 < blocks; i += 2)
      take(i > 0, Number<4>());
    if (W::layouts.odd && blocks % 2 != 0)
      take(blocks > 1, Number<2>());
    asyncMmaEnd();
    asyncMmaSettle(chain);
    release(before);
    before = -1;
#pragma unroll
    for (int i = 0; i < eights; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j)
        total[i][j] = __fadd_rn(total[i][j], chain[i][j]);
  }
  endUnit<W, Rows>(ring, total, warp, next);
}

} // namespace megalith::device::wide
