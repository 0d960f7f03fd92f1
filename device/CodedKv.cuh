//===- CodedKv.cuh - codes of keys and values on their way to the pool ----===//
//
// A scale is of a whole head of a token, so who makes codes has all of it (docs/compiler.md, "K and V in e4m3").
//===----------------------------------------------------------------------===//
#pragma once

#include "megalith/E4m3.cuh"
#include "megalith/Pool.cuh"
#include "megalith/SharedMemory.h"

namespace megalith::device {

/// Stores codes of K and V, and their scales.
template <class Pool> struct CodedKv {
  using S = PoolStrides<Pool>;
  char *keys, *values; ///< of the present layer
  const PassShared *pass;
  __device__ __forceinline__ CodedKv(const abi::ModelParams &model, int layer, const PassShared &pass)
      : keys(model.kCache + pageAddress<Pool>(layer, 0, 0, 0)),
        values(model.vCache + pageAddress<Pool>(layer, 0, 0, 0)), pass(&pass) {}
  /// The lane's eight values of a head of the row: those from column lane % Lanes * 8 on. Its first lane stores the
  /// scale.
  template <int Lanes = kLanesOfHead<Pool::headDim>>
  __device__ __forceinline__ void keep(bool isKey, int row, int head, Words4 words, HeadScale scale) const {
    keepAt<Lanes>(isKey, pass->kv[row].element, head, words, scale);
  }
  /// The same of a row whose first head begins at `element` of the layer.
  template <int Lanes = kLanesOfHead<Pool::headDim>>
  __device__ __forceinline__ void keepAt(bool isKey, long long element, int head, Words4 words, HeadScale scale) const {
    char *const cache = isKey ? keys : values;
    const int lane = laneId() % Lanes;
    *reinterpret_cast<Words2 *>(cache + element + head * S::head + lane * 8) = scale.codesOf(words);
    if (lane == 0)
      *reinterpret_cast<u16 *>(cache + scaleAddress<Pool>(element, head)) = scale.bits();
  }
  /// What attention reads of a head that a warp made, eight values to a lane. `keep`: it goes to the pool, too.
  __device__ __forceinline__ Words4 made(bool isKey, int row, int head, Words4 words, bool keep) const {
    const bool mine = laneId() * 8 < Pool::headDim; // others have anything
    const HeadScale scale = scaleOfHead<Pool::headDim, 32>(mine ? words : Words4{0, 0, 0, 0});
    if (keep && mine)
      this->keep<32>(isKey, row, head, words, scale);
    return scale.through(words);
  }
};

} // namespace megalith::device
