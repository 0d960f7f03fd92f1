//===- Packing.cuh - from the tensors of a checkpoint to the stream --------===//
//
// `megalith_pack` lays weights out as the kernel streams them. A checkpoint need not be on the device as a whole: a
// launch packs what is there, and the host launches until everything was. A launch writes the places of the elements
// that it has, and no others. So launches may run at the same time. Padding is never written: the host clears the
// stream before.
//
// Elements are converted on the way: the stream is bf16. Codes stay what they are, from wherever the checkpoint has
// them.
//===----------------------------------------------------------------------===//
#pragma once

#include "megalith/Codes.cuh"
#include "megalith/Convert.h"
#include "megalith/Order.cuh"
#include "megalith/Rows.cuh"

namespace megalith::device {

/// A row of a weight: elements of `tensor` from `first` on, `stride` apart. Null: padding.
struct RawRow {
  const abi::RawTensor *tensor;
  long long first;
  long long stride = 1;
};

__device__ __forceinline__ bool isHere(const abi::RawTensor &tensor, long long element) {
  return element >= tensor.begin && element < tensor.end;
}
/// One that is here, as bf16.
__device__ __forceinline__ u16 elementOf(const abi::RawTensor &tensor, long long element) {
  const long long at = element - tensor.begin;
  if (tensor.type == abi::kRawF32)
    return convert::bf16OfF32(static_cast<const u32 *>(tensor.data)[at]);
  const u16 bits = static_cast<const u16 *>(tensor.data)[at];
  return tensor.type == abi::kRawF16 ? convert::bf16OfF16(bits) : bits;
}

/// Whether some of these tensors is here.
template <class... Index> __device__ __forceinline__ bool someHere(const abi::RawTensor *raw, Index... index) {
  return (... || (raw[index].begin < raw[index].end));
}

/// Two columns of a row.
struct RawPair {
  const abi::RawTensor *tensor;
  long long first, second;
  bool hasFirst, hasSecond; ///< whether they are here
  __device__ __forceinline__ RawPair(const RawRow &row, int column, int columns)
      : tensor(row.tensor), first(row.first + column * row.stride), second(first + row.stride),
        hasFirst(tensor && column < columns && isHere(*tensor, first)),
        hasSecond(tensor && column + 1 < columns && isHere(*tensor, second)) {}
  __device__ __forceinline__ u32 word() const {
    return (u32)elementOf(*tensor, first) | (u32)elementOf(*tensor, second) << 16;
  }
  __device__ __forceinline__ void storeHere(u16 *target) const {
    if (hasFirst)
      target[0] = elementOf(*tensor, first);
    if (hasSecond)
      target[1] = elementOf(*tensor, second);
  }
};

/// Packs what is here of one matrix of one layer: `rowOf(packedRow)` is the RawRow to take. All threads of the grid.
template <class M, class RowOf> __device__ void packMatrix(char *target, RowOf rowOf) {
  const long long words = matrixBytes<M>() / 16;
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < words;
       i += (long long)gridDim.x * blockDim.x) {
    const int piece = (int)(i & 3), row = (int)(i >> 2 & 7);
    long long rest = i >> 5;
    const int block = (int)(rest % M::chunkBlocks);
    rest /= M::chunkBlocks;
    const int tile = (int)(rest % M::group);
    rest /= M::group;
    const int warp = (int)(rest % kConsumerWarps);
    rest /= kConsumerWarps;
    const int chunk = (int)(rest % chunksPerGroup<M>());
    const int g = (int)(rest / chunksPerGroup<M>());
    const int column = (warp * M::blocks + chunk * M::chunkBlocks + block) * 32 + (piece ^ row >> 1) * 8;
    const RawRow raw = rowOf((g * M::group + tile) * 8 + row);
    const auto pair = [&](int j) { return RawPair(raw, column + 2 * j, M::k); };
    bool whole = true;
#pragma unroll
    for (int j = 0; j < 4; ++j)
      whole &= pair(j).hasFirst && pair(j).hasSecond;
    if (whole) {
      *reinterpret_cast<Words4 *>(target + i * 16) = {pair(0).word(), pair(1).word(), pair(2).word(), pair(3).word()};
    } else { // the row ends within, or what is here does: another launch has the rest
      for (int j = 0; j < 4; ++j)
        pair(j).storeHere(reinterpret_cast<u16 *>(target + i * 16) + 2 * j);
    }
  }
}

//===--- codes ----------------------------------------------------------------===//

/// A row of codes: row `row` of a tensor [rows, columns]; its scales and zero points are those of a row of blocks.
/// Without tensor: padding.
struct CodedRow {
  const abi::RawTensor *codes = nullptr, *scales = nullptr, *zeros = nullptr;
  int row = 0, rows = 0, columns = 0;
  int scaleRow = 0, scaleRows = 1, scaleColumns = 1; ///< its row of blocks, and how many blocks there are
};

/// Where a code stands: an element of the raw tensor, and which one of its codes.
struct CodePlace {
  long long element;
  int number;
};
/// Of the code at a column.
template <int Bits> __device__ __forceinline__ CodePlace placeOfCode(const CodedRow &of, int column) {
  constexpr int perWord = 32 / Bits;
  switch (of.codes->type) {
  case abi::kRawCodes:
    return {(long long)of.row * of.columns + column, 0};
  case abi::kRawCodeRows:
    return {(long long)of.row * ((of.columns + perWord - 1) / perWord) + column / perWord, column % perWord};
  case abi::kRawCodeAwq: {
    const int output = of.row % perWord;
    return {(long long)column * (of.rows / perWord) + of.row / perWord, output / 2 + output % 2 * 4};
  }
  default:
    return {(long long)(column / perWord) * of.rows + of.row, column % perWord};
  }
}
/// Of a row's zero point for block `block` of columns. Rows have zero points of their own.
template <int Bits> __device__ __forceinline__ CodePlace placeOfZero(const CodedRow &of, int block) {
  constexpr int perWord = 32 / Bits;
  const int output = of.row % perWord;
  if (of.zeros->type == abi::kRawCodeRows)
    return {(long long)(of.row / perWord) * of.scaleColumns + block, output};
  return {(long long)block * (of.rows / perWord) + of.row / perWord,
          of.zeros->type == abi::kRawCodeAwq ? output / 2 + output % 2 * 4 : output};
}
template <int Bits> __device__ __forceinline__ u32 codeAt(const abi::RawTensor &tensor, CodePlace place, u32 more = 0) {
  const long long at = place.element - tensor.begin;
  if (tensor.type == abi::kRawCodes)
    return static_cast<const unsigned char *>(tensor.data)[at];
  return (static_cast<const u32 *>(tensor.data)[at] + more) >> place.number * Bits & ((1u << Bits) - 1);
}
/// The scale of a row's block of columns, as f32.
__device__ __forceinline__ long long placeOfScale(const CodedRow &of, int block) {
  const bool turned = of.codes->type >= abi::kRawCodeAwq;
  return turned ? (long long)block * of.scaleRows + of.scaleRow : (long long)of.scaleRow * of.scaleColumns + block;
}
__device__ __forceinline__ float scaleAt(const abi::RawTensor &tensor, long long element) {
  const long long at = element - tensor.begin;
  switch (tensor.type) {
  case abi::kRawF32:
    return static_cast<const float *>(tensor.data)[at];
  case abi::kRawE8m0: {
    const u32 exponent = static_cast<const unsigned char *>(tensor.data)[at];
    return __uint_as_float(exponent ? exponent << 23 : 0x00400000u); // 2^-127 is subnormal
  }
  case abi::kRawF16:
    return __uint_as_float(convert::f32OfF16(static_cast<const u16 *>(tensor.data)[at]));
  default:
    return bf16ToFloat(static_cast<const u16 *>(tensor.data)[at]);
  }
}

/// The checkpoint's column that stands at a place. The host writes the order before anything is packed.
template <class M> __device__ __forceinline__ int columnAt(const char *target, int place) {
  if constexpr (kOrdered<M>)
    return ColumnOrder<M::k>{reinterpret_cast<const u16 *>(target + M::order)}.column(place);
  else
    return place;
}

/// Packs what is here of a matrix of codes of one layer: `rowOf(packedRow)` is the CodedRow to take. All threads of the
/// grid.
template <class M, class RowOf> __device__ void packCodes(char *target, RowOf rowOf) {
  using Kind = KindOf<M>;
  constexpr int words = CodedBlock<Kind, M::group>::count, codesOfWord = 32 / Kind::bits;
  constexpr int partBytes = chunkBytes<M>() / kConsumerWarps, chunks = chunksPerGroup<M>();
  constexpr int slots = Kind::scaleBlocks ? M::chunkBlocks / Kind::scaleBlocks : 0;
  const long long thread = blockIdx.x * (long long)blockDim.x + threadIdx.x,
                  threads = (long long)gridDim.x * blockDim.x;
  // Parts are [group][chunk][warp].
  const auto firstBlock = [&](long long part) {
    return int(part % kConsumerWarps) * M::blocks + int(part / kConsumerWarps % chunks) * M::chunkBlocks;
  };
  const auto packedRow = [&](long long part, int tile, int row) {
    return (int(part / kConsumerWarps / chunks) * M::group + tile) * 8 + row;
  };
  constexpr long long parts = (long long)M::groups * chunks * kConsumerWarps;
  for (long long i = thread; i < parts * (M::chunkBlocks * 32 * words); i += threads) {
    const int t = int(i % words), lane = int(i / words % 32), block = int(i / (32 * words) % M::chunkBlocks);
    const long long part = i / (M::chunkBlocks * 32 * words);
    const int columns = (firstBlock(part) + block) * 32;
    u32 word = 0;
    bool whole = true, some = false;
    for (int k = 0; k < codesOfWord; ++k) {
      const int reg = Kind::bits == 4 ? 4 * t + k % 4 : 2 * t + 1 - k % 2, second = Kind::bits == 4 ? k / 4 : k / 2;
      const int tile = M::group == 2 ? reg % 2 : 0, eight = M::group == 2 ? reg / 2 : reg;
      const int column = columns + eight * 8 + (lane & 3) * 2 + second;
      const CodedRow of = rowOf(packedRow(part, tile, lane >> 2));
      if (!of.codes || column >= M::k)
        continue; // padding meets operands that are 0
      const CodePlace place = placeOfCode<Kind::bits>(of, columnAt<M>(target, column));
      const bool here = isHere(*of.codes, place.element);
      whole &= here;
      some |= here;
      if (here)
        word |= codeAt<Kind::bits>(*of.codes, place) << k * Kind::bits;
    }
    if constexpr (Kind::codes == Codes::E4m3)
      word = arrangedE4m3(word); // as it arranges parts of it
    u32 *const to =
        reinterpret_cast<u32 *>(target + part * partBytes + shape::codeOffset(M::group, block, Kind::coding)) +
        lane * words + t;
    if (whole && some)
      *to = word;
    else if (some) // other launches have the rest of the word
      atomicOr(to, word);
  }
  if constexpr (Kind::scalesOfTile > 0)
    for (long long i = thread; i < parts * (slots * M::group * Kind::scalesOfTile); i += threads) {
      const int tile = int(i % M::group), row = int(i / M::group % Kind::scalesOfTile);
      const int slot = int(i / (M::group * Kind::scalesOfTile) % slots);
      const long long part = i / (slots * M::group * Kind::scalesOfTile);
      const int block = firstBlock(part) + slot * Kind::scaleBlocks;
      const CodedRow of = rowOf(packedRow(part, tile, row));
      // The last slot of a piece counts, also where columns end before it.
      if (!of.codes || block / Kind::pieceBlocks * Kind::pieceBlocks * 32 >= M::k)
        continue;
      if (const long long place = placeOfScale(of, block / Kind::pieceBlocks); isHere(*of.scales, place))
        reinterpret_cast<float *>(target + part * partBytes +
                                  shape::slotOffset(M::group, slot, Kind::coding))[row * M::group + tile] =
            scaleAt(*of.scales, place);
    }
  if constexpr (Kind::zeros)
    for (long long i = thread; i < parts * (slots * M::group * 8); i += threads) {
      const int tile = int(i % M::group), row = int(i / M::group % 8), slot = int(i / (M::group * 8) % slots);
      const long long part = i / (slots * M::group * 8);
      const int block = firstBlock(part) + slot * Kind::scaleBlocks;
      const CodedRow of = rowOf(packedRow(part, tile, row));
      if (!of.codes || block * 32 >= M::k)
        continue;
      const CodePlace place = placeOfZero<Kind::bits>(of, Kind::pieces ? block / max(Kind::pieceBlocks, 1) : 0);
      if (isHere(*of.zeros, place.element))
        target[part * partBytes + shape::slotOffset(M::group, slot, Kind::coding) + 4 * M::group * Kind::scalesOfTile +
               row * M::group + tile] = (char)codeAt<Kind::bits>(*of.zeros, place,
                                                                 of.zeros->type == abi::kRawCodeGptqLess
                                                                     ? (Kind::bits == 4 ? 0x11111111u : 0x01010101u)
                                                                     : 0u);
    }
  if constexpr (!Kind::pieces)
    for (long long i = thread; i < M::groups * M::group * 8; i += threads) {
      const CodedRow of = rowOf((int)i);
      if (!of.codes)
        continue;
      if (const long long place = placeOfScale(of, 0); isHere(*of.scales, place))
        reinterpret_cast<float *>(target + matrixBytes<M>())[i] = scaleAt(*of.scales, place);
    }
}

/// Copies what is here of a tensor, element by element. All threads of the grid.
__device__ __forceinline__ void packElements(u16 *target, const abi::RawTensor &tensor) {
  for (long long i = tensor.begin + blockIdx.x * (long long)blockDim.x + threadIdx.x; i < tensor.end;
       i += (long long)gridDim.x * blockDim.x)
    target[i] = elementOf(tensor, i);
}
/// A weight vector, which lies after the matrices.
__device__ __forceinline__ void packVector(char *target, const abi::RawTensor &tensor) {
  packElements(reinterpret_cast<u16 *>(target), tensor);
}
/// One that is a view of a tensor: `placeOf(i)` is where its element i stands.
template <class PlaceOf>
__device__ __forceinline__ void packVector(char *target, const abi::RawTensor &tensor, int length, PlaceOf placeOf) {
  for (int i = (int)(blockIdx.x * blockDim.x + threadIdx.x); i < length; i += (int)(gridDim.x * blockDim.x))
    if (const long long place = placeOf(i); isHere(tensor, place))
      reinterpret_cast<u16 *>(target)[i] = elementOf(tensor, place);
}
/// A weight that the kernel reads as it is.
__device__ __forceinline__ void keepTensor(const abi::ModelParams &model, int index, const abi::RawTensor *raw) {
  packElements(const_cast<u16 *>(weightAt(model, index)), raw[index]);
}

} // namespace megalith::device
