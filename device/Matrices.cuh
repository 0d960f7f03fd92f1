//===- Matrices.cuh - matrices as they lie in the stream -------------------===//
//
// A matrix (one or more weight matrices with the same input) is a struct of
// constants that the plan prints:
//
//   k, kPadded     columns, and columns padded to a multiple of 256
//   blocks         kPadded / 256: blocks of 32 columns that one warp owns
//   chunkBlocks    blocks of a warp in one chunk of the stream
//   group          8-row tiles in one chunk
//   groups         groups of tiles, dealt to the CTAs round robin
//   firstCta, ctas the CTAs that have groups: the first, and how many
//   descending     walk the groups from the last one
//
// Sum tree `split8`: warp w owns columns [w*kPadded/8, (w+1)*kPadded/8) and adds
// its products in two chains of mma steps in ascending order, of the even and of the odd
// pairs of columns; the two are added, and the eight sums in ascending order of w. Neither the
// number of rows nor the plan changes it.
//
// Packed layout, in the order of consumption:
//   [group][chunk][warp 8][block chunkBlocks][tile group][row 8][32 columns] bf16
// so that a lane's 16 bytes are 8 consecutive columns of weight row lane/4, in the order
// 0, 1, 4, 5, 2, 3, 6, 7: one mma step sees the first four of lane t as its k, another
// the rest.
//
// Activations are the operand A. Of up to eight rows one quad of registers serves both steps:
// its rows 0 to 7 carry the columns of the first, its rows 8 to 15 those of the second; of
// each step's sums one half counts.
//===----------------------------------------------------------------------===//
#pragma once

#include "megalith/Primitives.cuh"

namespace megalith::device {

template <class M> __device__ constexpr int chunkBytes() { return (int)shape::chunkBytes(M::group, M::chunkBlocks); }
template <class M> __device__ constexpr int chunksPerGroup() { return M::blocks / M::chunkBlocks; }
template <class M> __device__ constexpr long long matrixBytes() {
  return shape::matrixBytes(M::groups, M::blocks, M::group);
}

/// The groups of tiles of this CTA; the runtime starts as many CTAs as were planned. Every matrix is dealt from the
/// first CTAs on, so that of each the same ones have a group less, the last ones: attention is dealt from the last one
/// on.
template <class M> struct CtaGroups {
  const int number = (int)blockIdx.x - M::firstCta; ///< of the CTA, among those that may have some
  const int count = M::groups / M::ctas + (number < M::groups % M::ctas); ///< if it has some
  __device__ __forceinline__ bool some() const { return (M::firstCta == 0 || number >= 0) && count > 0; }
  __device__ __forceinline__ bool has(int i) const { return i < count; }
  /// The i-th, from 0 on.
  __device__ __forceinline__ int at(int i) const {
    const int g = number + i * M::ctas;
    return M::descending ? M::groups - 1 - g : g;
  }
};

} // namespace megalith::device
