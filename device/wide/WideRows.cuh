//===- WideRows.cuh - rows of a wide pass ---------------------------------===//
//
// A wide pass is a list of runs (PassRun). What is asked of a row follows from its run: its token, its position, and
// the place of its keys and values. The pass's buffers have one instance each, for all rows and all layers.
//
//   W::params()   the launch's parameters
//   W::pass()     PassShared
//===----------------------------------------------------------------------===//
#pragma once

#include "megalith/Rows.cuh"
#include "megalith/WideTile.cuh"

namespace megalith::device::wide {

/// The run of a row, where the row's is not one before run `from`.
__device__ __forceinline__ const PassRun &runOfRow(const PassShared &pass, int row, int from = 0) {
  while (from + 1 < pass.runs && row >= pass.byRuns.run[from + 1].firstRow)
    ++from;
  return pass.byRuns.run[from];
}
/// Where the keys and values of a row go: page * page_tokens + position in the page.
template <class Pool>
__device__ __forceinline__ int placeOfRow(const abi::LaunchParams &p, const PassRun &run, int row) {
  const int position = run.position + row - run.firstRow;
  return (int)loadWord(pageTableOf(modelOf<Pool>(p), run.slot) + position / Pool::pageTokens) * Pool::pageTokens +
         position % Pool::pageTokens;
}

/// A row, as `pass.rows[row]` is in other passes. What is not used is not loaded.
struct RowOfRun {
  int position, token;
};
template <class W> struct RowsOfRuns {
  __device__ __forceinline__ RowOfRun operator[](int row) const {
    const PassRun &run = runOfRow(W::pass(), row);
    return {run.position + row - run.firstRow, W::params().tokens[run.firstToken + row - run.firstRow]};
  }
};
/// What functions of a row call `pass`.
template <class W> struct PassOfRuns {
  RowsOfRuns<W> rows;
};

/// A buffer of bf16 as an image (WideImage.cuh), by rows of the pass. `Columns` is a multiple of 8.
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
template <int Columns> __device__ __forceinline__ Operand operandOf(ImageRows<Columns> rows) {
  return {rows.image.base, Image<Columns>::blocks};
}
/// The first element of a layer's keys or values in the pool.
template <class Pool> __device__ __forceinline__ u16 *layerOf(char *cache, int layer) {
  return reinterpret_cast<u16 *>(cache) + pageAddress<Pool>(layer, 0, 0, 0);
}
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

/// Keys or values of a row in the pool.
template <class Pool> struct KvOfOneRow {
  u16 *first;
  __device__ __forceinline__ KvOfOneRow(const abi::LaunchParams &p, const PassShared &pass, char *cache, int layer,
                                        int row)
      : first(reinterpret_cast<u16 *>(cache)) {
    const int place = placeOfRow<Pool>(p, runOfRow(pass, row), row);
    first += pageAddress<Pool>(layer, place / Pool::pageTokens, 0, place % Pool::pageTokens);
  }
  __device__ __forceinline__ void store8(int, int col, Floats<8> f) const {
    *reinterpret_cast<Words4 *>(first + columnAddress<Pool>(col)) = pack8(f);
  }
};

template <class Pool> constexpr bool isPool = true;
template <> constexpr bool isPool<void> = false;
/// What an epilogue knows of the rows of its tile: their positions, and where their keys and values go in `Pool`, if it
/// is one.
template <class W, class Pool = void> struct TileRows {
  const int *words; ///< in shared memory of the warp
  /// All lanes.
  __device__ __forceinline__ void begin(int firstRow, int *words) {
    this->words = words;
    const PassShared &pass = W::pass();
    int run = 0;
#pragma unroll 4
    for (int i = 0; i < kTile; i += 32) {
      const int number = min(firstRow + i + laneId(), W::rows() - 1);
      while (run + 1 < pass.runs && number >= pass.byRuns.run[run + 1].firstRow)
        ++run;
      const PassRun &of = pass.byRuns.run[run];
      words[i + laneId()] = of.position + number - of.firstRow;
      if constexpr (isPool<Pool>)
        words[kTile + i + laneId()] = placeOfRow<Pool>(W::params(), of, number);
    }
    __syncwarp();
  }
  __device__ __forceinline__ int position(int row) const { return words[row]; }
  __device__ __forceinline__ int place(int row) const { return words[kTile + row]; }
};

/// Columns col and col + 1, of which the first is even, of the eight that stand in `words`.
__device__ __forceinline__ Floats<2> pairOf(Words4 words, int col) {
  const u32 w = col % 8 == 0 ? words.x : col % 8 == 2 ? words.y : col % 8 == 4 ? words.z : words.w;
  return {{bf16Low(w), bf16High(w)}};
}

/// Keys or values of a tile.
template <class Pool> struct KvOfTile {
  u16 *cache; ///< of the layer
  __device__ __forceinline__ void store(int place, int col, Words4 words) const {
    const unsigned of = place;
    *reinterpret_cast<Words4 *>(cache + pageAddress<Pool>(0, of / Pool::pageTokens, 0, of % Pool::pageTokens) +
                                columnAddress<Pool>(col)) = words;
  }
};

} // namespace megalith::device::wide
