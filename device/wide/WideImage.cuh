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

/// A buffer of bf16 as an image, by rows of the pass. `Columns` is a multiple of 8.
template <int Columns> struct ImageRows {
  Image<Columns> image;
  __device__ __forceinline__ explicit ImageRows(char *base) : image{base} {}
  __device__ __forceinline__ Image<Columns> tile(int firstRow) const { return image.from(firstRow); }
  __device__ __forceinline__ Image<Columns> tileOf(int row) const { return image.from(row / kTile * kTile); }
  __device__ __forceinline__ Bf16Floats<8> load8(int row, int col) const {
    return unpack8(tileOf(row).load(row % kTile, col));
  }
  __device__ __forceinline__ Floats<1> load(int row, int col) const {
    return {{bf16ToFloat(loadHalfWord(reinterpret_cast<const u16 *>(tileOf(row).at(row % kTile, col)) + col % 8))}};
  }
  __device__ __forceinline__ Floats<2> loadPair(int row, int c0, int c1) const {
    return {{load(row, c0).v[0], load(row, c1).v[0]}};
  }
  __device__ __forceinline__ void store8(int row, int col, Floats<8> f) const {
    tileOf(row).store(row % kTile, col, pack8(f));
  }
};
/// A buffer of f32: [row][Columns].
template <int Columns> struct PlainRows {
  float *base;
  __device__ __forceinline__ explicit PlainRows(char *base) : base(reinterpret_cast<float *>(base)) {}
  __device__ __forceinline__ float *at(int row, int col) const { return base + (long long)row * Columns + col; }
  __device__ __forceinline__ Floats<1> load(int row, int col) const {
    return {{__uint_as_float(loadWord(at(row, col)))}};
  }
  __device__ __forceinline__ Floats<2> loadPair(int row, int c0, int c1) const {
    return {{load(row, c0).v[0], load(row, c1).v[0]}};
  }
  __device__ __forceinline__ Floats<8> load8(int row, int col) const {
    return mapFloats<8>([&](int i) { return load(row, col + i).v[0]; });
  }
  __device__ __forceinline__ void store(int row, int col, Floats<1> f) const { *at(row, col) = f.v[0]; }
  __device__ __forceinline__ void store8(int row, int col, Floats<8> f) const {
#pragma unroll
    for (int i = 0; i < 8; ++i)
      *at(row, col + i) = f.v[i];
  }
};

} // namespace megalith::device::wide
