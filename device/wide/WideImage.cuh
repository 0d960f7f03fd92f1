//===- WideImage.cuh - activations of a wide pass in memory ---------------===//
//
// A wide pass multiplies with `wgmma`, which reads both operands from shared memory. So the operands lie in memory as
// shared memory wants them, and bulk copies bring them. An image of an operand is
//
//   [128 rows][block of 32 columns][row][64 bytes, 16-byte pieces at piece ^ (row / 2 % 4)]
//
// Packed weights have the same swizzle (Matrices.cuh).
//===----------------------------------------------------------------------===//
#pragma once

#include "megalith/Values.cuh"

namespace megalith::device::wide {

/// Rows of a tile of the pass, and weight rows of a tile of products.
constexpr int kTile = kWideTile;
/// Rows of the pass that one counter counts for.
constexpr int kCountedRows = kWideCountedRows;
/// Bytes of a row in a block of 32 columns, and of a block of a tile.
constexpr int kRowBytes = kBlockColumns * 2, kTileBlockBytes = kTile * kRowBytes;
/// Bytes of eight rows of a block: the swizzle repeats.
constexpr int kEightBytes = 8 * kRowBytes;

/// Rows of an operand with `Columns` columns. What is there is bf16. Columns that pad it are zero from the beginning.
template <int Columns> struct Image {
  static_assert(Columns % 8 == 0);
  static constexpr int blocks = paddedColumns(Columns) / kBlockColumns;
  char *base;
  /// Bytes for so many rows.
  __device__ static constexpr long long bytes(long long rows) {
    return ceilDiv(rows, (long long)kTile) * blocks * kTileBlockBytes;
  }
  /// With the rows from `firstRow` on, the first of a tile, numbered from 0 on.
  __device__ __forceinline__ Image from(int firstRow) const {
    return {base + (long long)(firstRow / kTile) * (blocks * kTileBlockBytes) + firstRow % kTile * kRowBytes};
  }
  /// The piece of columns col to col + 7 of a row of the first tile.
  __device__ __forceinline__ Words4 *at(int row, int col) const {
    const unsigned piece = (unsigned)col / 8 % 4 ^ (unsigned)row / 2 % 4;
    return reinterpret_cast<Words4 *>(base + (unsigned)col / kBlockColumns * kTileBlockBytes + row * kRowBytes +
                                      piece * 16);
  }
  __device__ __forceinline__ void store(int row, int col, Words4 words) const { *at(row, col) = words; }
  __device__ __forceinline__ Words4 load(int row, int col) const { return loadWords(at(row, col)); }
};

} // namespace megalith::device::wide
