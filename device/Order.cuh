//===- Order.cuh - columns in the order of a checkpoint --------------------===//
//
// A checkpoint may have its groups of columns in an order of their weight (`desc_act` of GPTQ). The matrix is packed in
// that order, so that a group's columns stand side by side, and its operand is put in it. After a layer's chunks stand
// two tables of 16 bits a column: which column stands at a place, and at which place a column stands.
//===----------------------------------------------------------------------===//
#pragma once

#include "megalith/Exchange.cuh"
#include "megalith/Matrices.cuh"
#include "megalith/Rows.cuh"

namespace megalith::device {

template <class M> constexpr bool kOrdered = requires { M::order; };

/// The order of `Columns` columns, of which eight are asked for at a time.
template <int Columns> struct ColumnOrder {
  static_assert(Columns % 8 == 0 && Columns <= 65536);
  const u16 *table;
  __device__ __forceinline__ int column(int place) const { return table[place]; }
  __device__ __forceinline__ Words4 columns(int place) const { return loadConstWords(table + place); }
  __device__ __forceinline__ Words4 places(int column) const { return loadConstWords(table + Columns + column); }
  /// What stands at places place to place + 7 of a row.
  template <class Rows> __device__ __forceinline__ Floats<8> load8(const Rows &rows, int row, int place) const {
    const Words4 of = columns(place);
    const int column[8] = {int(of.x & 0xffff), int(of.x >> 16), int(of.y & 0xffff), int(of.y >> 16),
                           int(of.z & 0xffff), int(of.z >> 16), int(of.w & 0xffff), int(of.w >> 16)};
    if constexpr (requires { rows.peek(0, 0); }) {
      Words4 words[8];
      const auto wanted = [](int) { return true; };
      const auto rowOf = [&](int) { return row; };
      const auto eightOf = [&](int j) { return column[j] & ~7; };
      peekAll(rows, words, wanted, rowOf, eightOf);
      settleAll(rows, words, wanted, rowOf, eightOf);
      return mapFloats<8>([&](int j) {
        const int word = column[j] % 8 / 2;
        const u32 two = word == 0 ? words[j].x : word == 1 ? words[j].y : word == 2 ? words[j].z : words[j].w;
        return column[j] % 2 ? bf16High(two) : bf16Low(two);
      });
    } else {
      return mapFloats<8>([&](int j) { return rows.load(row, column[j]).v[0]; });
    }
  }
  /// Puts a row in order, by one warp. What several steps load is under way together.
  template <class To, class From>
  __device__ __forceinline__ void copyRow(const To &to, const From &from, int row) const {
    constexpr int atOnce = 4;
#pragma unroll 1
    for (int base = laneId() * 8; base < Columns; base += atOnce * 256) {
      Floats<8> made[atOnce];
#pragma unroll
      for (int i = 0; i < atOnce; ++i)
        if (base + i * 256 < Columns)
          made[i] = load8(from, row, base + i * 256);
#pragma unroll
      for (int i = 0; i < atOnce; ++i)
        if (base + i * 256 < Columns)
          to.store8(row, base + i * 256, made[i]);
    }
  }
  /// The same of one part of `parts`, of 256 columns each.
  static constexpr int parts = ceilDiv(Columns, 256);
  template <class To, class From>
  __device__ __forceinline__ void copyPart(const To &to, const From &from, int row, int part) const {
    if (const int c = part * 256 + laneId() * 8; c < Columns)
      to.store8(row, c, load8(from, row, c));
  }
};
struct NoOrder {};

template <class M> __device__ constexpr auto noOrderOf() {
  if constexpr (kOrdered<M>)
    return ColumnOrder<M::k>{};
  else
    return NoOrder{};
}
/// Of a matrix that may have none.
template <class M> using OrderOf = decltype(noOrderOf<M>());

/// Of M in a layer.
template <class M>
__device__ __forceinline__ ColumnOrder<M::k> columnOrder(const abi::ModelParams &model, int layer = 0) {
  return {packedVector(model, M::offset + layer * M::layerBytes + M::order)};
}

} // namespace megalith::device
