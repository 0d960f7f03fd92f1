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
//   codes, coding, pieceBlocks   of one whose weights are not bf16: Codes.cuh
//   order          where a layer's order of columns stands, after its first chunk, if it has one: Order.cuh
//
// Sum tree `split8`: warp w owns columns [w*kPadded/8, (w+1)*kPadded/8) and adds
// its products in one chain of mma steps of 16 columns each, in ascending order; then the eight
// sums are added in ascending order of w. Neither the number of rows nor the plan changes it.
//
// Packed layout, in the order of consumption:
//   [group][chunk][warp 8][tile group][block chunkBlocks][row 8][64 bytes] bf16
// where a row's four pieces of 16 bytes stand at piece ^ (row / 2 % 4): then lanes that read a piece of eight rows meet
// in no bank, and `wgmma` reads eights of rows where they lie.
//
// Of groups of two tiles the weights are the operand A, of groups of one the activations. Of up to eight rows of these,
// only rows 0 to 7 of A's 16 count.
//===----------------------------------------------------------------------===//
#pragma once

#include "megalith/Values.cuh"

namespace megalith::device {

/// What the weights are where they are not bf16: e4m3, or unsigned numbers with zero points (Codes.cuh).
enum class Codes { E4m3, Unsigned };
using shape::Coding;
template <class M> constexpr bool kCoded = requires { M::codes; };
template <class M> __device__ constexpr Coding codingOf() {
  if constexpr (kCoded<M>)
    return M::coding;
  else
    return {};
}

template <class M> __device__ constexpr int chunkBytes() {
  return (int)shape::chunkBytes(M::group, M::chunkBlocks, codingOf<M>());
}
template <class M> __device__ constexpr int chunksPerGroup() { return M::blocks / M::chunkBlocks; }
/// Of all chunks.
template <class M> __device__ constexpr long long matrixBytes() {
  return shape::matrixBytes(M::groups, M::blocks, M::group, M::chunkBlocks, codingOf<M>());
}

/// What a lane brings of four eights of columns to mma steps: word t of eight number j of row g. at(i, j): where eight
/// number j of row i stands, `bytes` before. The whole warp calls it.
template <class At> __device__ __forceinline__ Words4 loadEights(At at, int bytes = 0) {
  const int lane = laneId();
  if constexpr (kMatrixLoads) {
    return loadMatrices(at(lane & 7, lane >> 3), bytes);
  } else {
    const auto word = [&](int j) { return loadShared(at(lane >> 2, j), bytes + (lane & 3) * 4); };
    return {word(0), word(1), word(2), word(3)};
  }
}
/// The same of block `block` of a warp's part of a chunk. Of groups of two tiles what a lane brings to mma step `step`
/// as A: of the step's first eight, of weight row lane/4 of the one tile and of the other, then the same of its second.
/// Of groups of one tile, the block's four eights.
template <int Group, int ChunkBlocks>
__device__ __forceinline__ Words4 loadWeights(const char *part, int block, int step) {
  return loadEights(
      [&](int i, int j) {
        const int tile = Group == 2 ? j % 2 : 0, eight = Group == 2 ? 2 * step + j / 2 : j;
        return part + tile * (ChunkBlocks * kWarpBlockBytes) + i * 64 + (eight ^ (i >> 1)) * 16;
      },
      block * kWarpBlockBytes);
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
