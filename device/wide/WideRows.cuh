//===- WideRows.cuh - rows of a wide pass ---------------------------------===//
//
// A wide pass is a list of runs (PassRun). What is asked of a row follows from its run: its token, its position, and
// the place of its keys and values. The pass's buffers have one instance each, for all rows and all layers.
//
//   W::params()   the launch's parameters
//   W::pass()     PassShared
//===----------------------------------------------------------------------===//
#pragma once

#include "megalith/CodedKv.cuh"
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

template <int Columns> __device__ __forceinline__ Operand operandOf(ImageRows<Columns> rows) {
  return {rows.image.base, Image<Columns>::blocks};
}
/// The first element of a layer's keys or values in the pool.
template <class Pool> __device__ __forceinline__ u16 *layerOf(char *cache, int layer) {
  return reinterpret_cast<u16 *>(cache) + pageAddress<Pool>(layer, 0, 0, 0);
}
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

/// Stores the keys and values of a row, which stand in these buffers, as they are. A warp.
template <class Pool, class Rows>
__device__ __forceinline__ void copyRow(const abi::LaunchParams &p, const PassShared &pass, int layer, int row,
                                        Rows keys, Rows values) {
  const abi::ModelParams &model = modelOf<Pool>(p);
  const int place = placeOfRow<Pool>(p, runOfRow(pass, row), row);
  const long long element = pageAddress<Pool>(layer, place / Pool::pageTokens, 0, place % Pool::pageTokens);
  for (int col = laneId() * 8; col < Pool::kvHeads * Pool::headDim; col += 256) {
    const long long at = (element + columnAddress<Pool>(col)) * PoolStrides<Pool>::elementBytes;
    *reinterpret_cast<Words4 *>(model.kCache + at) = keys.tileOf(row).load(row % kTile, col);
    *reinterpret_cast<Words4 *>(model.vCache + at) = values.tileOf(row).load(row % kTile, col);
  }
}

/// Stores them as codes, where the layer has such. A warp.
template <class Pool, class Rows>
__device__ __forceinline__ void codeRow(const abi::LaunchParams &p, const PassShared &pass, int layer, int row,
                                        Rows keys, Rows values) {
  if constexpr (kMixed<Pool>)
    if (isInBf16<Pool>(layer))
      return copyRow<InBf16<Pool>>(p, pass, layer, row, keys, values);
  constexpr int dim = Pool::headDim, atOnce = 32 / kLanesOfHead<dim>;
  const CodedKv<Pool> pool(modelOf<Pool>(p), layer, pass);
  const int place = placeOfRow<Pool>(p, runOfRow(pass, row), row);
  const long long element = pageAddress<Pool>(0, place / Pool::pageTokens, 0, place % Pool::pageTokens);
  forHeads<dim>(
      2 * Pool::kvHeads, 0, atOnce, // a head of the keys, then one of the values
      [&](int item) {
        return (item % 2 == 0 ? keys : values).tileOf(row).load(row % kTile, item / 2 * dim + columnOfHead<dim>());
      },
      [&](int item, Words2 codes, HeadScale scale) { pool.keepAt(item % 2 == 0, element, item / 2, codes, scale); });
}

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
