//===- Pool.cuh - where keys and values stand in a pool -------------------===//
//
// A pool has keys and values of all layers, each as bf16
//
//   [layer][page][KV head][position in the page][head_dim]
//
// `P` gives a pool's constants: layers, pages, kvHeads, pageTokens, headDim, and `model`, the number of
// its model in LaunchParams::models.
//===----------------------------------------------------------------------===//
#pragma once

#include "megalith/Abi.h"
#include "megalith/Primitives.cuh"

namespace megalith::device {

/// Pages of the memory after those of the pool. Rows at places of pages that others may read are written there: what
/// they give is there already.
template <class P> __device__ constexpr int sparePages() {
  if constexpr (requires { P::sparePages; })
    return P::sparePages;
  else
    return 0;
}

/// Elements from one position, head, page or layer to the next.
template <class P> struct PoolStrides {
  static constexpr long long position = P::headDim, head = P::pageTokens * position, page = P::kvHeads * head,
                             layer = (P::pages + sparePages<P>()) * page;
};

/// The element where the keys, or the values, of a position begin. `inPage`: the position in its page.
template <class P> __device__ __forceinline__ long long pageAddress(int layer, int page, int head, int inPage) {
  using S = PoolStrides<P>;
  return layer * S::layer + page * S::page + head * S::head + inPage * S::position;
}

/// The offset of column `col` of [kvHeads * headDim] from the first element of head 0, in elements.
template <class P> __device__ __forceinline__ long long columnAddress(int col) {
  return pageAddress<P>(0, 0, col / P::headDim, 0) + col % P::headDim;
}

template <class P> __device__ __forceinline__ const abi::ModelParams &modelOf(const abi::LaunchParams &p) {
  return p.models[P::model];
}

/// The page numbers of the request in `slot`, in the order of positions.
__device__ __forceinline__ int *pageTableOf(const abi::ModelParams &model, int slot) {
  return model.pageTable + (long long)slot * model.pageTableStride;
}

} // namespace megalith::device
