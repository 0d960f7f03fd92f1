//===- OwnRows.cuh - queries, keys and values of the pass's own rows ------===//
//
// Paths.cuh says which row has which position.
//===----------------------------------------------------------------------===//
#pragma once

#include "megalith/Rows.cuh"
#include "megalith/AttentionPlan.cuh"
#include "megalith/CodedKv.cuh"

namespace megalith::device {

/// K and V of the pass's own rows: buffers [rows][kvHeads * headDim] of the pass.
template <class Rows> struct OwnRows {
  Rows keys, values;
  static constexpr bool made = false;
};
template <class Rows> __device__ __forceinline__ OwnRows<Rows> ownRows(Rows keys, Rows values) {
  return {keys, values};
}

/// The same of a pool of codes: attention puts them there, for a scale is of a whole head.
template <class Rows, class Pool> struct CodedOwnRows {
  Rows keys, values;
  CodedKv<Pool> pool;
  static constexpr bool made = false;
};
template <class Pool, class Rows>
__device__ __forceinline__ CodedOwnRows<Rows, Pool> codedOwnRows(Rows keys, Rows values, CodedKv<Pool> pool) {
  return {keys, values, pool};
}

/// The same of a layer of a mixed pool, as `Pool` has it.
template <class Pool, class Rows>
__device__ __forceinline__ auto ownRowsOfLayer(Rows keys, Rows values, const abi::ModelParams &model, int layer,
                                               const PassShared &pass) {
  if constexpr (kE4m3<Pool>)
    return codedOwnRows(keys, values, CodedKv<Pool>(model, layer, pass));
  else
    return ownRows(keys, values);
}

/// Makes codes of the unit's own rows; those of rows of its tile go to the pool. A warp takes as many heads at a time
/// as it has lanes for. `warp`: which heads are its first ones. fn(whether of the keys, row after the first own one,
/// column of the head, the lane's eight codes from there on, scale).
template <class A, class Own, class Cursor, class Fn>
__device__ __forceinline__ void codeOwnRows(const PassShared &pass, const Own &own, const Cursor &of, int warp, Fn fn) {
  constexpr int dim = A::headDim, atOnce = 32 / kLanesOfHead<dim>;
  const auto rowOf = [&](int item) { return of.ownRowAt(pass, of.ownFrom + item / 2); }; // its key, then its value
  forHeads<dim>(
      2 * of.ownRowsOf(pass), warp * atOnce, kConsumerWarps * atOnce,
      [&](int item) {
        const auto rows = item % 2 == 0 ? own.keys : own.values;
        return rows.words(rowOf(item), of.kvHead * dim + columnOfHead<dim>());
      },
      [&](int item, Words2 codes, HeadScale scale) {
        const int row = rowOf(item);
        fn(item % 2 == 0, item / 2, columnOfHead<dim>(), codes, scale);
        if (of.keepsOwn(row))
          own.pool.keep(item % 2 == 0, row, of.kvHead, codes, scale);
      });
}

/// The same where attention makes them, and the queries, too, a warp a head at a time: make(what, row, head, keep)
/// gives each lane its columns of that (columnOfLane); keys and values go to the pool, too, where `keep` says so. Where
/// no slot has two rows in the pass: others would have to make a row's keys for each tile.
enum class Made { Query, Key, Value };
template <class Make> struct MadeRows {
  Make make;
  static constexpr bool made = true;
};
template <class Make> __device__ __forceinline__ MadeRows<Make> madeRows(Make make) { return {make}; }

/// Brings what the `Together` units from the cursor's on attend with. Out of line: where it is called few
/// registers are left.
template <class A, int Together, class Make>
__device__ __noinline__ void bringMade(const PassShared &pass, char *scratch, int window, int unit, int group,
                                       Make make) {
  assumeShared(&pass);
  assumeShared(scratch);
  using S = AttentionShape<A>;
  constexpr typename S::Scratch begins = S::scratch(1);
  RoundCursor<A, true> of(pass, window, unit, group);
#pragma unroll 1
  for (int nth = 0; nth < Together && !of.done(); ++nth, of.toNextUnit(pass)) { // other warps for each
    const int items = S::headsOfTile + (of.isLast() ? 2 : 0);
#pragma unroll 1
    for (int i = (warpId() - nth * (S::headsOfTile + 2)) & (kConsumerWarps - 1); i < items; i += kConsumerWarps) {
      const bool isQuery = i < S::headsOfTile, isKey = i == S::headsOfTile;
      if (isQuery && !of.has(i))
        continue;
      char *const target = scratch + (isQuery ? (nth * S::headsOfTile + i) * S::queryStride
                                      : isKey ? begins.ownKeys + nth * S::rowBytes
                                              : begins.ownValues + nth * S::rowBytes);
      const bool once = of.firstHead == of.kvHead * S::group; // of the slices of a group
      const Words4 words = make(isQuery ? Made::Query
                                : isKey ? Made::Key
                                        : Made::Value,
                                isQuery ? of.firstRow : of.ownRow, isQuery ? of.firstHead + i : of.kvHead, once);
      if (isLaneOfBlock<S::dim>())
        *reinterpret_cast<Words4 *>(target + laneId() * 16) = words;
    }
  }
}

} // namespace megalith::device
