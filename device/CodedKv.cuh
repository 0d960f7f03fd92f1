//===- CodedKv.cuh - codes of keys and values on their way to the pool ----===//
//
// A scale is of a whole head of a token, so who makes codes has all of it (docs/compiler.md, "K and V in e4m3").
//===----------------------------------------------------------------------===//
#pragma once

#include "megalith/E4m3.cuh"
#include "megalith/Pool.cuh"
#include "megalith/SharedMemory.h"

namespace megalith::device {

/// Goes through heads of `Dim` values from number `first` on, as many at a time as a warp has lanes for, and `step`
/// farther each time. words(head) gives a lane eight values of it, those from columnOfHead on; fn(head, codes, scale)
/// is called by the lanes that have some, with their codes. The whole warp.
template <int Dim, class Words, class Fn>
__device__ __forceinline__ void forHeads(int count, int first, int step, Words words, Fn fn) {
#pragma unroll 1
  for (int base = first; base < count; base += step) {
    const int mine = base + laneId() / kLanesOfHead<Dim>, head = min(mine, count - 1);
    const Words4 of = words(head);
    const HeadScale scale = scaleOfHead<Dim>(of);
    if (head == mine && isLaneOfHead<Dim>())
      fn(head, scale.codesOf(of), scale);
  }
}

/// Stores codes of K and V, and their scales.
template <class Pool> struct CodedKv {
  using S = PoolStrides<Pool>;
  char *keys, *values; ///< of the present layer
  const PassShared *pass;
  __device__ __forceinline__ CodedKv(const abi::ModelParams &model, int layer, const PassShared &pass)
      : keys(model.kCache + pageAddress<Pool>(layer, 0, 0, 0)),
        values(model.vCache + pageAddress<Pool>(layer, 0, 0, 0)), pass(&pass) {}
  /// The lane's eight codes of a head of the row: those from column lane % Lanes * 8 on. Its first lane stores the
  /// scale.
  template <int Lanes = kLanesOfHead<Pool::headDim>>
  __device__ __forceinline__ void keep(bool isKey, int row, int head, Words2 codes, HeadScale scale) const {
    keepAt<Lanes>(isKey, pass->kv[row].element, head, codes, scale);
  }
  /// The same of a row whose first head begins at `element` of the layer.
  template <int Lanes = kLanesOfHead<Pool::headDim>>
  __device__ __forceinline__ void keepAt(bool isKey, long long element, int head, Words2 codes, HeadScale scale) const {
    char *const cache = isKey ? keys : values;
    const int lane = laneId() % Lanes;
    *reinterpret_cast<Words2 *>(cache + element + head * S::head + lane * 8) = codes;
    if (lane == 0)
      *reinterpret_cast<u16 *>(cache + scaleAddress<Pool>(element, head)) = scale.bits();
  }
  /// What attention reads of a head that a warp made, eight values to a lane. `keep`: it goes to the pool, too.
  __device__ __forceinline__ Words4 made(bool isKey, int row, int head, Words4 words, bool keep) const {
    const bool mine = laneId() * 8 < Pool::headDim; // others have anything
    const HeadScale scale = scaleOfHead<Pool::headDim, 32>(mine ? words : Words4{0, 0, 0, 0});
    const Words2 codes = scale.codesOf(words);
    if (keep && mine)
      this->keep<32>(isKey, row, head, codes, scale);
    return scale.valuesOf(codes);
  }
};

/// Stores K and V of a layer of bf16 in a mixed pool, where attention makes them.
template <class Pool> struct PlainKv {
  u16 *keys, *values; ///< of the present layer
  const PassShared *pass;
  __device__ __forceinline__ PlainKv(const abi::ModelParams &model, int layer, const PassShared &pass)
      : keys(reinterpret_cast<u16 *>(model.kCache) + layerAddress<Pool>(layer)),
        values(reinterpret_cast<u16 *>(model.vCache) + layerAddress<Pool>(layer)), pass(&pass) {}
  /// As that of CodedKv.
  __device__ __forceinline__ Words4 made(bool isKey, int row, int head, Words4 words, bool keep) const {
    u16 *const first = (isKey ? keys : values) + pass->kv[row].element + head * PoolStrides<Pool>::head;
    if (keep && laneId() * 8 < Pool::headDim)
      *reinterpret_cast<Words4 *>(first + laneId() * 8) = words;
    return words;
  }
};
/// Of a layer of a mixed pool, as `Pool` has it.
template <class Pool>
__device__ __forceinline__ auto kvOfLayer(const abi::ModelParams &model, int layer, const PassShared &pass) {
  if constexpr (kE4m3<Pool>)
    return CodedKv<Pool>(model, layer, pass);
  else
    return PlainKv<Pool>(model, layer, pass);
}

} // namespace megalith::device
