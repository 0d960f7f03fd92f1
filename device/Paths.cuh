//===- Paths.cuh - which row has which position ---------------------------===//
//
// Mostly the rows of a slot are a chain: position p is that of the row that stands p - ownFrom after the slot's first
// one. Where they may be a tree (`A::trees`), a free row has a tile of its own. Its path are the rows from it up to the
// one that hangs on no row of the pass; after its position, which it may see as well, stand the rows after it. In
// front of them stand what earlier passes of the run wrote, and the committed positions.
//
// Keys and values are taken by position, whatever their place. So rounds, leaves and orders of the sums are those of
// plain decoding, and so are the bits.
//===----------------------------------------------------------------------===//
#pragma once

#include "megalith/Pass.cuh"

namespace megalith::device {

/// The row of the pass that row `row` hangs on; -1: it is none.
__device__ __forceinline__ int parentRow(const PassShared &pass, int row) {
  const int first = pass.attention.firstOfSlot[row], parent = first + pass.rows[row].parent - pass.rows[first].kvSlot;
  return parent < first ? -1 : parent;
}
/// Finds the free rows of the pass. One warp.
template <class A> __device__ __forceinline__ void findPaths(PassShared &pass) {
  if constexpr (hasTrees<A>())
    if (TreePass &tree = passOf<A>(pass); tree.someFree) {
      // A lane has two rows, whose bytes it writes together: the CPU executor orders accesses to two bytes.
      for (int first = 2 * laneId(); first < pass.numRows; first += 64) {
        u32 both = 0;
        for (int row = first; row < min(first + 2, pass.numRows); ++row) {
          const Row &r = pass.rows[row];
          u32 own = 0;
          // On a path that begins at the committed positions, places ascend. So a row at the place of its position has
          // all rows before it on its path.
          if (r.kvSlot != r.position || r.visible != r.position + 1)
            for (int on = row; on >= 0; on = parentRow(pass, on))
              ++own;
          both |= own << 8 * (row - first);
        }
        *reinterpret_cast<u16 *>(tree.own + first) = (u16)both;
      }
      __syncwarp();
    }
}
template <class A> __device__ __forceinline__ bool isFree(const PassShared &pass, int row) {
  if constexpr (hasTrees<A>())
    return passOf<A>(pass).someFree && passOf<A>(pass).own[row] > 0;
  return false;
}
/// The row of the pass at a position that the free row `row` sees.
__device__ __forceinline__ int rowOnPath(const PassShared &pass, int row, int position) {
  int steps = pass.rows[row].position - position;
  if (steps < 0)
    return row - steps;
#pragma unroll 1
  for (; steps > 0; --steps)
    row = parentRow(pass, row);
  return row;
}

/// Rows of the pass by the position after the first one that a tile's rows see: of a free row, or of a chain that
/// begins with row `ownRow`.
template <class A, class Rows> struct PathRows {
  Rows rows;
  const PassShared *pass;
  int row, ownFrom, ownRow;
  __device__ __forceinline__ Words4 peek(int after, int column) const {
    return rows.peek(isFree<A>(*pass, row) ? rowOnPath(*pass, row, ownFrom + after) : ownRow + after, column);
  }
};

/// Where earlier passes of a run may have written positions of a free row: `A::paths` is the byte of the flagged words
/// at which their places begin, A::pathPlaces of each row of the pass.
template <class A> __device__ constexpr bool hasPaths() {
  return requires { A::paths; };
}
/// The places of a row's positions from baseOfFree() on, each page * page_tokens + position in the page.
template <class A> __device__ __forceinline__ int *pathOf(const abi::LaunchParams &p, int row) {
  return reinterpret_cast<int *>(p.flagged + A::paths) + row * A::pathPlaces;
}

} // namespace megalith::device
