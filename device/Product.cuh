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
  static_assert(kGroupsAtOnce % groupsTaken == 0);
  static_assert(M::group <= kMostTiles);
  if (!operand.active)
    return;
  C &consumer = operand.consumer;
  const int numRows = operand.numRows, rowsLog = operand.rowsLog, itemRow = operand.itemRow;
  const int warp = warpId(), lane = laneId(), rowInTile = lane >> 2;
  if constexpr (!Reduced)
    operand.begin();
  if constexpr (single)
    operand.finishHeld(finish);
  bool staged = operand.resident && Reduced, finished = false; // all blocks, of several rows
  // A warp's sums, as the `n`th tile of these that are added together.
  const auto handIn = [&](float *sums, const float(&even)[4], const float(&odd)[4], int n) {
    float *at = sums + warp * sumFloats(Rows) + (n << rowsLog) * 8 + rowInTile * 8 + (lane & 3) * 2;
    if (rowsLog == 4 || rowInTile >> rowsLog == 0)
      *reinterpret_cast<Float2 *>(at) = {__fadd_rn(even[0], odd[0]), __fadd_rn(even[1], odd[1])};
    if (rowsLog == 4)
      *reinterpret_cast<Float2 *>(at + 64) = {__fadd_rn(even[2], odd[2]), __fadd_rn(even[3], odd[3])};
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
  const int toOther = (operand.rowAt(1, rowInTile) - rowInTile) * 64; // where the row stands in odd blocks
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
        float acc[M::group][2][4] = {};
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
#pragma unroll 1
          for (int block = 0; block < count; block += operand.blocksTaken) {
            const Words4 *activations = &operand.at(block, rowInTile, lane & 3);
            if (operand.halfTile) {
#pragma unroll
              for (int b = 0; b < operand.blocksTaken; ++b) {
                Words4 both = {0, 0, 0, 0};
                if (rowInTile < numRows)
                  both = loadShared4(activations, b * numRows * 64 + b % 2 * toOther);
#pragma unroll
                for (int n = 0; n < M::group; ++n) {
                  const Words4 &weights = operand.taken[g][b][n];
                  mma(acc[n][0], both.x, both.y, both.z, both.w, weights.x, weights.y);
                  mma(acc[n][1], both.x, both.y, both.z, both.w, weights.z, weights.w);
                }
              }
            } else {
#pragma unroll
              for (int b = 0; b < operand.blocksTaken; ++b) {
                const Words4 low = loadShared4(activations, b * numRows * 64 + b % 2 * toOther);
                Words4 high = {0, 0, 0, 0};
                if (8 + rowInTile < numRows)
                  high = loadShared4(activations, b * numRows * 64 + b % 2 * toOther + 512);
#pragma unroll
                for (int n = 0; n < M::group; ++n) {
                  const Words4 &weights = operand.taken[g][b][n];
                  mma(acc[n][0], low.x, high.x, low.z, high.z, weights.x, weights.y);
                  mma(acc[n][1], low.y, high.y, low.w, high.w, weights.z, weights.w);
                }
              }
            }
            if (g + 1 == groupsTaken && (!last || first + block + operand.blocksTaken < M::blocks))
              operand.take(group + 1);
          }
        }
#pragma unroll
        for (int n = 0; n < M::group; ++n) {
          if (operand.halfTile) // the second step's sums stand in the other half
#pragma unroll
            for (int e = 0; e < 2; ++e)
              acc[n][1][e] = acc[n][1][2 + e];
          handIn(sums, acc[n][0], acc[n][1], (group - i) * M::group + n);
        }
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
