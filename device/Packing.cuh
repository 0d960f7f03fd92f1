//===- Packing.cuh - from the tensors of a checkpoint to the stream --------===//
//
// `megalith_pack` lays weights out as the kernel streams them. A checkpoint need not be on the device as a whole: a
// launch packs what is there, and the host launches until everything was. A launch writes the places of the elements
// that it has, and no others. So launches may run at the same time. Padding is never written: the host clears the
// stream before.
//
// Elements are converted on the way: the stream is bf16.
//===----------------------------------------------------------------------===//
#pragma once

#include "megalith/Convert.h"
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
