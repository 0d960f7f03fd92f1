//===- WideCodes.cuh - products of a wide pass with weights that are codes ===//
//
// Codes stand in the stream as one lane takes them of a block (Codes.cuh), which is how mma takes weights from
// registers. So a stage has codes in place of weights, and a warp expands those of its strip when it multiplies. All
// matrices of a wide unit have one kind of codes.
//
//   stage   [group 8]{ codes of two blocks, slots of scales and zero points }
//
// Where scales are of pieces of columns, a chain is of a piece, and goes into the sums of the eighth with the scale.
// Then a thread has two sums of each of its outputs in registers. The third, that of the eighths before, stands in
// shared memory: in the last two stages of the ring, which is shorter then. So a warp gives back a unit's last stage
// when it needs these no more: attention fills the whole of it.
//===----------------------------------------------------------------------===//
#pragma once

#include "megalith/Codes.cuh"
#include "megalith/WideTile.cuh"

namespace megalith::device::wide {

/// The kind of codes as stages have it: a slot for each block, or for both.
template <class M> struct StageKind {
  using Of = void;
};
template <class M>
  requires kCoded<M>
struct StageKind<M> {
  using Of = CodeKind<M::codes, M::coding.bits, M::coding.scaleBlocks ? 1 : 0, M::coding.scalesOfTile, M::coding.zeros,
                      M::pieceBlocks>;
};
template <class A, class B> constexpr bool kSame = false;
template <class A> constexpr bool kSame<A, A> = true;
/// That of all these matrices; void: they are bf16.
template <class First, class... Others> struct KindOfAll {
  using Of = typename StageKind<First>::Of;
  static_assert((... && kSame<Of, typename StageKind<Others>::Of>), "the wide unit has one kind of codes");
};
template <class Kind> constexpr bool kInPieces = Kind::pieces;
template <> inline constexpr bool kInPieces<void> = false;

/// Where the codes of a group of two tiles stand in a stage.
template <class Kind> struct StageCodes {
  static constexpr int blockBytes = (int)shape::codeBytes(2, 1, Kind::coding),
                       slotBytes = Kind::scaleBlocks ? (int)shape::slotBytes(2, Kind::coding) : 0,
                       groupBytes = 2 * (blockBytes + slotBytes);
  static_assert(kTile / (2 * kTileColumns) * groupBytes <= kWeightBytes && slotBytes % 16 == 0);
};

/// The part of a warp that brings weights: codes of its four groups of a unit.
template <class W, class Kind, class R>
__device__ __forceinline__ void bringCodes(R &ring, const Step &step, const Unit &unit, int layer, int part) {
  using S = StageCodes<Kind>;
  constexpr int count = kTile / (2 * kTileColumns) / kWeightWarps;
  const char *const from = W::stream() + step.weights + layer * step.layerBytes;
  const int first = (unit.weights * kWeightWarps + part) * count;
  long long group[count];
#pragma unroll
  for (int g = 0; g < count; ++g)
    group[g] = min(first + g, step.groups - 1) * step.groupBytes;
  const auto copy = [&](int to, const char *piece, int bytes) {
#pragma unroll
    for (int g = 0; g < count; ++g)
      ring.copy((part * count + g) * S::groupBytes + to, piece + group[g], bytes);
  };
#pragma unroll 1
  for (int eighth = 0; eighth < kParts; ++eighth) {
    const char *chunk = from + eighth * step.partBytes;
    int inChunk = 0;
#pragma unroll 1
    for (int block = 0; block < step.blocks; block += 2) {
      const int here = min(2, step.blocks - block), slots = step.slotBlocks == 1 ? here : 1;
      ring.open(count * (here * S::blockBytes + slots * S::slotBytes));
      const auto slotOf = [&](int of) { return step.chunkBlocks * S::blockBytes + of * S::slotBytes; };
      if (step.chunkBlocks == 1) {
#pragma unroll 1
        for (int b = 0; b < here; ++b, chunk += kParts * step.partBytes) {
          copy(b * S::blockBytes, chunk, S::blockBytes);
          if constexpr (S::slotBytes > 0)
            copy(2 * S::blockBytes + b * S::slotBytes, chunk + slotOf(0), S::slotBytes);
        }
      } else {
        copy(0, chunk + inChunk * S::blockBytes, 2 * S::blockBytes);
        if constexpr (S::slotBytes > 0)
          copy(2 * S::blockBytes, chunk + slotOf(inChunk / step.slotBlocks), slots * S::slotBytes);
        inChunk += 2;
        if (inChunk == step.chunkBlocks) {
          inChunk = 0;
          chunk += kParts * step.partBytes;
        }
      }
      ring.advance();
    }
  }
}

/// As multiplyUnit, with codes. While a block is multiplied, the next one is expanded.
template <class W, int Rows, class Kind, class R>
__device__ __forceinline__ void multiplyUnitOfCodes(R &ring, int next) {
  using S = StageCodes<Kind>;
  constexpr int eights = Rows / 8;
  const int warp = __shfl_sync(~0u, warpId(), 0), lane = laneId();
  const auto release = [&](int stage) {
    // A warp multiplies together, and what it multiplies has been loaded; so ptxas need not hear of lanes that meet.
    if constexpr (!kAsyncMma)
      __syncwarp();
    if (lane == 0)
      barrierArrive(&ring.sync->empty[stage]);
  };
  float chain[eights][4], whole[eights][4]; // of pieces: `whole` is of the eighth; else of all before
#pragma unroll
  for (int i = 0; i < eights; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      chain[i][j] = 0.0f;
      whole[i][j] = Kind::pieces ? 0.0f : -0.0f; // -0 + x is x, of every x
    }
  const Step &product = W::steps()[W::shared().multiplied.now.step];
  const int blocks = product.blocks;
  const bool slotEach = product.slotBlocks == 1;
  const SharedMatrix firstB = sharedMatrix(ring.stages + kWeightBytes, kEightBytes); // of stage 0
  struct Taken {
    BlockWeights<2> a;
    Float2 scales;
  };
  const auto take = [&](int i) -> Taken { // of the stage that comes
    if (i == 0) {
      ring.awaitFull();
      __syncwarp();
    }
    const char *const codes = ring.at(ring.stage) + warp * S::groupBytes;
    CodedBlock<Kind, 2> block;
    block.template load<2, true>(codes, i, false);
    block.template loadSlot<2, true>(codes, slotEach ? i : 0);
    return {block.expanded(block), block.scales};
  };
  const auto begin = [&](const Taken &of, SharedMatrix b, bool add) {
    asyncMmaBegin();
    asyncMma(chain, of.a[0].x, of.a[0].y, of.a[0].z, of.a[0].w, b, add);
    asyncMma(chain, of.a[1].x, of.a[1].y, of.a[1].z, of.a[1].w, laterColumns(b, 32), true);
  };
  // Whether the chain goes on.
  const auto end = [&](const Taken &of, int eighth, int done) {
    asyncMmaEnd();
    asyncMmaSettle(chain);
    if constexpr (Kind::pieces)
      if (pieceEnds<Kind>(eighth, blocks, done)) {
#pragma unroll
        for (int n = 0; n < eights; ++n)
#pragma unroll
          for (int e = 0; e < 4; ++e)
            whole[n][e] = __fmaf_rn(e < 2 ? of.scales.x : of.scales.y, chain[n][e], whole[n][e]);
        return false;
      }
    return true;
  };
  Taken even = take(0);
#pragma unroll 1
  for (int eighth = 0; eighth < kParts; ++eighth) {
    bool add = false;
    int stage = 0;
#pragma unroll 1
    for (int block = 0; block < blocks; block += 2) {
      stage = ring.stage;
      const SharedMatrix b = laterColumns(firstB, stage * kStageBytes);
      const bool last = block + 2 >= blocks, more = !last || eighth + 1 < kParts;
      begin(even, b, add);
      if (W::layouts.odd && block + 1 == blocks) {
        add = end(even, eighth, block + 1);
        ring.advance();
        if (more)
          even = take(0);
      } else {
        const Taken odd = take(1);
        ring.advance();
        add = end(even, eighth, block + 1);
        begin(odd, laterColumns(b, Rows * kRowBytes), add);
        if (more)
          even = take(0);
        add = end(odd, eighth, block + 2);
      }
      if (!last)
        release(stage);
    }
    if constexpr (Kind::pieces) {
      Float4 *const before = reinterpret_cast<Float4 *>(ring.stages + kPieceStages * kStageBytes) + threadAgain();
#pragma unroll
      for (int n = 0; n < eights; ++n) {
        Float4 &of = before[n * kConsumerThreads];
        if (eighth > 0) {
          const Float4 sum = of;
          whole[n][0] = __fadd_rn(sum.x, whole[n][0]), whole[n][1] = __fadd_rn(sum.y, whole[n][1]);
          whole[n][2] = __fadd_rn(sum.z, whole[n][2]), whole[n][3] = __fadd_rn(sum.w, whole[n][3]);
        }
        if (eighth + 1 < kParts) {
          of = {whole[n][0], whole[n][1], whole[n][2], whole[n][3]};
#pragma unroll
          for (int e = 0; e < 4; ++e)
            whole[n][e] = 0.0f;
        }
      }
    } else {
#pragma unroll
      for (int n = 0; n < eights; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          whole[n][e] = __fadd_rn(whole[n][e], chain[n][e]);
    }
    release(stage);
  }
  endUnit<W, Rows>(ring, whole, warp, next);
}

} // namespace megalith::device::wide
