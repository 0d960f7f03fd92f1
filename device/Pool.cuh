//===- Pool.cuh - where keys and values stand in a pool -------------------===//
//
// A pool has keys and values of all layers, each as bf16
//
//   [layer][page][KV head][position in the page][head_dim]
//
// or, with `P::e4m3`, as codes of a byte (E4m3.cuh), after which come the scales of a head's positions in the page,
// each a bf16:
//
//   [layer][page][KV head]([position in the page][head_dim], [position in the page] up to a multiple of 16 bytes)
//
// Of a mixed pool some layers have bf16 all the same. Such a layer takes the place of two of codes, and its elements
// stand where codes would, with room for scales that it has not: so an element of a layer has one number, whichever it
// is of. `P::place(layer)` counts the places before a layer.
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

/// Whether keys and values are codes, in a mixed pool those of most layers.
template <class P> constexpr bool kE4m3 = requires { requires P::e4m3; };
template <class P> constexpr bool kMixed = requires { P::place(0); };
/// A mixed pool as its layers of bf16 have it.
template <class P> struct InBf16 : P {
  static constexpr bool e4m3 = false;
};
/// Whether the layer is one of them.
template <class P> __device__ __forceinline__ bool isInBf16(int layer) {
  return P::place(layer + 1) - P::place(layer) == 2;
}

/// Elements from one position, head, page or place of a layer to the next. Of codes an element is a byte.
template <class P> struct PoolStrides {
  static constexpr int elementBytes = kE4m3<P> ? 1 : 2, rowBytes = P::headDim * elementBytes;
  static constexpr long long position = P::headDim,
                             head = kMixed<P> ? abi::kvHeadBytes(P::pageTokens, P::headDim, true)
                                              : abi::kvHeadBytes(P::pageTokens, P::headDim, kE4m3<P>) / elementBytes,
                             page = P::kvHeads * head, layer = (P::pages + sparePages<P>()) * page;
};

/// The element where a layer begins.
template <class P> __device__ __forceinline__ long long layerAddress(int layer) {
  using S = PoolStrides<P>;
  if constexpr (kMixed<P>)
    return layer == 0 ? 0 : P::place(layer) * (S::layer / S::elementBytes); // no load where it is known
  else
    return layer * S::layer;
}
/// The element where the keys, or the values, of a position begin. `inPage`: the position in its page.
template <class P> __device__ __forceinline__ long long pageAddress(int layer, int page, int head, int inPage) {
  using S = PoolStrides<P>;
  return layerAddress<P>(layer) + page * S::page + head * S::head + inPage * S::position;
}

/// The offset of column `col` of [kvHeads * headDim] from the first element of head 0, in elements.
template <class P> __device__ __forceinline__ long long columnAddress(int col) {
  return pageAddress<P>(0, 0, col / P::headDim, 0) + col % P::headDim;
}

/// Where the scale of a position stands, in bytes from where its head of the page begins.
template <class P> __device__ __forceinline__ constexpr long long scaleInHead(int inPage) {
  return (long long)P::pageTokens * P::headDim + 2 * inPage;
}
/// The same from the layer on. `element`: of a position's first head in the layer, as pageAddress has it.
template <class P> __device__ __forceinline__ long long scaleAddress(long long element, int head) {
  using S = PoolStrides<P>;
  constexpr int unit = 16; // bytes; so that the remainder is one of 32 bits
  static_assert(P::headDim % unit == 0 && S::page % unit == 0 && S::layer / unit <= 0xffffffffll);
  const int inPage = (int)((u32)(element / unit) % (u32)(S::page / unit)) / (P::headDim / unit);
  return element - inPage * S::position + head * S::head + scaleInHead<P>(inPage);
}

template <class P> __device__ __forceinline__ const abi::ModelParams &modelOf(const abi::LaunchParams &p) {
  return p.models[P::model];
}

/// The page numbers of the request in `slot`, in the order of positions.
__device__ __forceinline__ int *pageTableOf(const abi::ModelParams &model, int slot) {
  return model.pageTable + (long long)slot * model.pageTableStride;
}

} // namespace megalith::device
