//===- Product.cuh - products of activations with streamed weights --------===//
//
// See Matrices.cuh for the layout of the weights and for the sum tree.
//===----------------------------------------------------------------------===//
#pragma once

#include "megalith/Operand.cuh"

namespace megalith::device {

/// The epilogue takes a RowOfWarp: all lanes of a warp call it together.
template <class Epilogue, class Beside>
constexpr bool kByWarps = !requires(Epilogue epilogue, Beside beside) { epilogue(0, 0, 0, 0.0f, 0.0f, beside); };
/// What it takes.
template <bool ByWarps> __device__ __forceinline__ auto rowOfEpilogue(int row, bool mine) {
  if constexpr (ByWarps)
    return RowOfWarp{row, mine};
  else
    return row;
}

/// y = a * M^T for all rows of a pass of one row tile.
///   Rows     at most so many does this variant handle: kOneRow or kTileRows. That for one row is short:
///            code that runs once in a layer comes from far away in the instruction memory
///   Reduced  begin() and reductions came before
///   early(row, pair)   loads what the epilogue needs beside the products, before them, so that it comes meanwhile
///   epilogue(tile, row, pair, y0, y1, what early returned)   one thread holds packed rows 2*pair and
///            2*pair+1 of the matrix. The four lanes that hold a row's pairs 4i to 4i+3 call it together, or all of a
///            warp (kByWarps)
template <bool Reduced, class M, int Rows, class C, class Source, class AsideOf, class Early, class Finish,
          class Epilogue>
__device__ __forceinline__ void streamProduct(Operand<M, Rows, C, Source, AsideOf, Early> &operand, Finish finish,
                                              Epilogue epilogue) {
  static_assert(Rows <= kTileRows, "see WideProduct.cuh");
  constexpr bool single = Operand<M, Rows, C, Source, AsideOf, Early>::single;
  constexpr int groupsTaken = Operand<M, Rows, C, Source, AsideOf, Early>::groupsTaken;
  constexpr int blocksTaken = Operand<M, Rows, C, Source, AsideOf, Early>::blocksTaken;
  constexpr bool ahead = Operand<M, Rows, C, Source, AsideOf, Early>::ahead;
  static_assert(kGroupsAtOnce % groupsTaken == 0);
  static_assert(M::group <= kMostTiles);
  if (!operand.active)
    return;
  C &consumer = operand.consumer;
  const int numRows = operand.numRows, rowsLog = operand.rowsLog, itemRow = operand.itemRow;
  constexpr bool weightsAreA = M::group == 2; // see Matrices.cuh
  constexpr bool inPieces = kPieces<M>;
  const int warp = warpId(), lane = laneId(), rowInTile = lane >> 2;
  if constexpr (!Reduced)
    operand.begin();
  if constexpr (single)
    operand.finishHeld(finish);
  bool staged = operand.resident && Reduced, finished = false; // all blocks, of several rows
  // A warp's sums, from the `n`th tile on of these that are added together: [tile][row][8 weight rows].
  const auto handIn = [&](float *sums, const float(&acc)[M::group][4], int n) {
    float *const at = sums + warp * sumFloats(Rows) + (n << rowsLog) * 8;
    const auto has = [&](int row) { return row >> rowsLog == 0; };
    if constexpr (weightsAreA) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (const int row = i / 2 * 8 + (lane & 3) * 2 + i % 2; has(row)) {
          at[row * 8 + rowInTile] = acc[i / 2][i % 2];
          at[((1 << rowsLog) + row) * 8 + rowInTile] = acc[i / 2][2 + i % 2];
        }
    } else {
#pragma unroll
      for (int half = 0; half < 2; ++half)
        if (const int row = half * 8 + rowInTile; has(row))
          *reinterpret_cast<Float2 *>(at + row * 8 + (lane & 3) * 2) = {acc[0][2 * half], acc[0][2 * half + 1]};
    }
  };
  // A piece's sums, which begin anew, into those of the eighth.
  [[maybe_unused]] const auto addPiece = [](auto &whole, float(&acc)[M::group][4], Float2 scales) {
#pragma unroll
    for (int half = 0; half < M::group; ++half)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const bool second = weightsAreA ? e >= 2 : e % 2;
        whole[half][e] = __fmaf_rn(second ? scales.y : scales.x, acc[half][e], whole[half][e]);
        acc[half][e] = 0.0f;
      }
  };
  // Adds them up, a pair of columns to a thread.
  const auto sumUp = [&](const float *sums, int item) {
    const Float2 *at = reinterpret_cast<const Float2 *>(sums) + item;
    Float2 y = at[0];
#pragma unroll
    for (int w = 1; w < kConsumerWarps; ++w) {
      const Float2 s = at[w * (sumFloats(Rows) / 2)];
      y.x = __fadd_rn(y.x, s.x);
      y.y = __fadd_rn(y.y, s.y);
    }
    return y;
  };
  // Eight columns of a row in the bth block after `block`. Those that are no row of the pass are one that is.
  const auto eightAt = [&](int block, int b, int row, int quarter) {
    if constexpr (Rows == kOneRow)
      return reinterpret_cast<const char *>(&operand.at(block + b, 0, quarter));
    row = min(row, numRows - 1);
    const int toOther = (operand.rowAt(1, row) - row) * 64; // where the row stands in odd blocks
    return reinterpret_cast<const char *>(&operand.at(block, row, quarter)) + b * numRows * 64 + b % 2 * toOther;
  };
#pragma unroll 1
  for (int i = 0; operand.groups.has(i); i += operand.atOnce) {
    float *const sums = consumer.template nextSums<Rows>(); // the two alternate: one barrier is enough
#pragma unroll 1
    for (int from = i; from < i + operand.atOnce && operand.groups.has(from); from += groupsTaken) {
#pragma unroll
      for (int g = 0; g < groupsTaken; ++g) {
        const int group = from + g;
        if (g > 0 && !operand.groups.has(group))
          break;
        const bool last = !operand.groups.has(group + 1);
        float acc[M::group][4] = {}; // of rows 0 to 7, rows 8 to 15, where the weights are A; else of both
        // Of codes with a scale for each piece of columns: `acc` is of a piece, and this is of the eighth.
        [[maybe_unused]] float whole[inPieces ? M::group : 1][4] = {};
#pragma unroll 1
        for (int first = 0; first < M::blocks; first += operand.window) {
          const int count = min(operand.window, M::blocks - first);
          if constexpr (!single) {
            if (!staged)
              operand.stage(first, count);
            if constexpr (changes<Finish>)
              if (!finished)
                operand.finishStaged(first, count, finish);
            staged = finished = operand.resident;
          }
          const auto multiply = [&](const typename TakenOf<M>::Block(&chunk)[blocksTaken], int block) {
#pragma unroll
            for (int b = 0; b < blocksTaken; ++b) {
              const auto &weights = weightsOf(chunk, b);
              if constexpr (weightsAreA) {
#pragma unroll
                for (int half = 0; half < (operand.halfTile ? 1 : 2); ++half) {
                  const Words4 rows = loadEights([&](int i, int j) { return eightAt(block, b, half * 8 + i, j); });
                  mma(acc[half], weights[0].x, weights[0].y, weights[0].z, weights[0].w, rows.x, rows.y);
                  mma(acc[half], weights[1].x, weights[1].y, weights[1].z, weights[1].w, rows.z, rows.w);
                }
              } else {
                Words4 first, second; // of 16 columns each
                if (operand.halfTile) {
                  first = loadEights([&](int i, int j) { return eightAt(block, b, i, j % 2 * 2 + j / 2); });
                  second = {first.y, first.y, first.w, first.w};
                } else {
                  first = loadEights([&](int i, int j) { return eightAt(block, b, i + j % 2 * 8, j / 2); });
                  second = loadEights([&](int i, int j) { return eightAt(block, b, i + j % 2 * 8, 2 + j / 2); });
                }
                mma(acc[0], first.x, first.y, first.z, first.w, weights[0].x, weights[0].y);
                mma(acc[0], second.x, second.y, second.z, second.w, weights[0].z, weights[0].w);
              }
              if constexpr (inPieces)
                if ((b + 1) % KindOf<M>::scaleBlocks == 0 &&
                    (kSlotsArePieces<M> || pieceEnds<KindOf<M>>(warp, M::blocks, first + block + b + 1)))
                  addPiece(whole, acc, chunk[TakenOf<M>::Block::firstOfSlot(b)].scales);
            }
          };
          if constexpr (ahead) {
#pragma unroll 1
            for (int block = 0; block < count; block += 2 * blocksTaken) {
              operand.template takeOne<1>();
              multiply(operand.taken[0], block);
              if (!last || first + block + 2 * blocksTaken < M::blocks)
                operand.template takeOne<0>();
              multiply(operand.taken[1], block + blocksTaken);
            }
          } else {
#pragma unroll 1
            for (int block = 0; block < count; block += blocksTaken) {
              multiply(operand.taken[g], block);
              if (g + 1 == groupsTaken && (!last || first + block + blocksTaken < M::blocks))
                operand.take(group + 1);
            }
          }
        }
        if constexpr (inPieces)
          handIn(sums, whole, (group - i) * M::group);
        else
          handIn(sums, acc, (group - i) * M::group);
      }
    }
    consumerSync();
    constexpr bool byWarps = kByWarps<Epilogue, decltype(operand.beside)>;
    const bool mine = operand.hasItem(i, itemRow);
    if (byWarps ? __any_sync(~0u, mine) : mine) {
      const Float2 y = !byWarps || mine ? sumUp(sums, threadIdx.x) : Float2{0.0f, 0.0f};
      epilogue(0, rowOfEpilogue<byWarps>(itemRow, mine), operand.pairOf(i), y.x, y.y, operand.beside);
    }
    operand.readAhead(i + operand.atOnce);
  }
  consumer.template keep<true>();
}

} // namespace megalith::device
