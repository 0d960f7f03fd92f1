//===- WideCodes.cuh - products of a wide pass with weights that are codes ===//
//
// Codes stand in the stream as one lane takes them of a block (Codes.cuh), which is how mma takes weights from
// registers. So a stage has codes in place of weights, and a warp expands those of its strip when it multiplies. All
// matrices of a wide unit have one kind of codes.
//
//   [group 8]{ codes of two blocks, and their slots of scales and zero points, as they stand in the stream }
//
// Where scales are of pieces of columns, a chain is of a piece, and goes into the sums of the eighth with the scale.
// Then a thread has two sums of each of its outputs in registers. The third, that of the eighths before, stands in
// shared memory: after the ring, which is shorter then. So a warp gives back a unit's last stage when it needs these no
// more: attention fills all of that memory.
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
  /// Where of a group in a stage block `i` of the two begins, and its slot. `of`: blocks that share a slot. `later`:
  /// these are not the first two of them.
  __device__ __forceinline__ static int block(int i, int of, bool later) {
    return i * (blockBytes + (of == 1 ? slotBytes : 0)) + (later ? slotBytes : 0);
  }
  __device__ __forceinline__ static int slot(int i, int of, bool later) {
    return of == 1 ? blockBytes + i * (blockBytes + slotBytes) : later ? 0 : 2 * blockBytes;
  }
};
/// What codes take of a stage, where scales are of pieces; else 0.
template <class Kind> constexpr int kPieceBytes = 0;
template <class Kind>
  requires kInPieces<Kind>
constexpr int kPieceBytes<Kind> = kTile / (2 * kTileColumns) * StageCodes<Kind>::groupBytes;

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
      ring.copyWeights((part * count + g) * S::groupBytes + to, piece + group[g], bytes);
  };
  const int shared = S::slotBytes > 0 ? step.slotBlocks : 1, // blocks that share a slot
      withSlot = S::blockBytes + (shared == 1 ? S::slotBytes : 0),
            ofTwo = 2 * withSlot + (shared == 1 ? 0 : S::slotBytes);
#pragma unroll 1
  for (int eighth = 0; eighth < kParts; ++eighth) {
    const char *chunk = from + eighth * step.partBytes, *at = chunk, *slot = nullptr;
    int inChunk = 0;
#pragma unroll 1
    for (int block = 0; block < step.blocks; block += 2) {
      if (step.chunkBlocks == 1) { // each has a slot, if there are some
        const int here = min(2, step.blocks - block);
        ring.open(count * here * withSlot);
#pragma unroll 1
        for (int b = 0; b < here; ++b, chunk += kParts * step.partBytes)
          copy(b * withSlot, chunk, withSlot);
      } else {
        ring.open(count * ofTwo);
        const int before = inChunk & (shared - 1); // blocks of the slot
        if (before == 0) {
          copy(0, at, ofTwo);
          slot = at + 2 * S::blockBytes;
          at += ofTwo;
        } else if (before == 2) { // it stands in front of these
          copy(0, at - S::slotBytes, ofTwo);
          at += 2 * S::blockBytes;
        } else {
          copy(0, slot, S::slotBytes);
          copy(S::slotBytes, at, 2 * S::blockBytes);
          at += 2 * S::blockBytes;
        }
        inChunk += 2;
        if (inChunk == step.chunkBlocks) {
          inChunk = 0;
          at = chunk += kParts * step.partBytes;
        }
      }
      ring.advance();
    }
  }
}

/// As multiplyUnit, with codes. While a block is multiplied, the next one is expanded. The tensor cores have the next
/// one when they end one, but where a stage or a chain ends.
template <class W, int Rows, class Kind, class R>
__device__ __forceinline__ void multiplyUnitOfCodes(R &ring, int next) {
  using S = StageCodes<Kind>;
  constexpr int eights = Rows / 8;
  // By shuffles, so that registers keep them: else the loop reads the number of the thread again and again.
  const int warp = __shfl_sync(~0u, warpId(), 0), lane = __shfl_sync(~0u, laneId(), laneId());
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
  const int shared = S::slotBytes > 0 ? product.slotBlocks : 1; // blocks that share a slot
  const SharedMatrix firstB = sharedMatrix(ring.rows(0), kEightBytes);
  using Coded = CodedBlock<Kind, 2>;
  using Taken = BlockWeights<2>;
  const auto load = [&](int i, int first) -> Coded { // of the stage that comes, whose first block this is
    if (i == 0) {
      ring.awaitFull();
      __syncwarp();
    }
    const char *const codes = ring.weights(ring.stage) + warp * S::groupBytes;
    const bool later = (first & (shared - 1)) != 0;
    Coded block;
    block.loadCodes(codes, S::block(i, shared, later), lane);
    if constexpr (Kind::zeros)
      block.template loadSlot<true>(codes, S::slot(i, shared, later), lane);
    return block;
  };
  const auto scalesOf = [&](int stage, int i, int first) { // of a stage that has not been given back
    Coded block;
    block.template loadSlot<true>(ring.weights(stage) + warp * S::groupBytes,
                                  S::slot(i, shared, (first & (shared - 1)) != 0), lane);
    return block.scales;
  };
  const auto begin = [&](const Taken &of, SharedMatrix b, bool add) {
    asyncMmaBegin();
    asyncMma(chain, of[0].x, of[0].y, of[0].z, of[0].w, b, add);
    asyncMma(chain, of[1].x, of[1].y, of[1].z, of[1].w, laterColumns(b, 32), true);
    asyncMmaCommit();
  };
  const auto bOf = [&](int stage, int i) {
    return laterColumns(firstB, stage * ring.rowStride + i * (Rows * kRowBytes));
  };
  // A chain has ended: it goes into the eighth's sums, or into those of the eighths before.
  const auto end = [&](Float2 scales) {
#pragma unroll
    for (int n = 0; n < eights; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        whole[n][e] = Kind::pieces ? __fmaf_rn(e < 2 ? scales.x : scales.y, chain[n][e], whole[n][e])
                                   : __fadd_rn(whole[n][e], chain[n][e]);
  };
  // Whether no chain ends between two blocks of a stage. (With blocks under way from one stage to the next one ptxas
  // serializes all of them where chains are of pieces, C7520, and spills twice as much where they are not.)
  constexpr bool byStages = !W::layouts.odd && Kind::pieceBlocks % 2 == 0;
  // Codes of a stage's first block are loaded while the tensor cores are still at the one before, and those of its
  // second one as early, where no scales of pieces are in its way: these hold up what comes first.
  constexpr bool secondEarly = !Kind::pieces;
  Coded coming;
  Taken even;
  const auto expandFirst = [&](int first) {
    even = coming.expanded(coming);
    if (secondEarly && (!W::layouts.odd || first + 1 < blocks))
      coming = load(1, first);
  };
  coming = load(0, 0);
  expandFirst(0);
#pragma unroll 1
  for (int eighth = 0; eighth < kParts; ++eighth) {
    int stage = 0;
    bool add = false;
    // Whether the chain goes on after so many blocks, of which the last is block `i` of the stage.
    const auto endAfter = [&](int i, int done) {
      [[maybe_unused]] Float2 scales = {};
      if constexpr (Kind::pieces)
        scales = scalesOf(stage, i, done - 1 - i);
      asyncMmaEnd();
      asyncMmaSettle(chain);
      if constexpr (Kind::pieces)
        add = !pieceEnds<Kind>(eighth, blocks, done);
      else
        add = done < blocks;
      if (!add)
        end(scales);
    };
#pragma unroll 1
    for (int block = 0; block < blocks; block += 2) {
      stage = ring.stage;
      const bool last = block + 2 >= blocks, more = !last || eighth + 1 < kParts;
      begin(even, bOf(stage, 0), add);
      if (W::layouts.odd && block + 1 == blocks) {
        ring.advance();
        endAfter(0, block + 1);
        if (more) {
          coming = load(0, 0);
          expandFirst(0);
        }
      } else {
        if (!secondEarly)
          coming = load(1, block);
        const Taken odd = coming.expanded(coming);
        ring.advance();
        if constexpr (!byStages)
          endAfter(0, block + 1);
        begin(odd, bOf(stage, 1), byStages || add);
        const int following = last ? 0 : block + 2;
        if (more)
          coming = load(0, following);
        asyncMmaWaitLast();
        if (more)
          expandFirst(following);
        endAfter(1, block + 2);
      }
      if (!last)
        release(stage);
    }
    if constexpr (Kind::pieces) {
      Float4 *const sums = reinterpret_cast<Float4 *>(ring.sums()) + threadAgain();
#pragma unroll
      for (int n = 0; n < eights; ++n) {
        Float4 &of = sums[n * kConsumerThreads];
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
    }
    release(stage);
  }
  endUnit<W, Rows>(ring, whole, warp, next);
}

} // namespace megalith::device::wide
