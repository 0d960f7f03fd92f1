//===- WideKeys.cuh - attention of a wide pass: what the producers bring --===//
//
// K and V stand in the pool as they do for narrow passes: [position][dims] of a head's page. Two warps copy them 16
// bytes at a time, each every other eight of positions, to where the swizzle wants them. What no row of the tile sees
// becomes zeros: there may be anything. A third warp brings the unit's queries, and what the unit is.
//
//   W::model()      abi::ModelParams, of the pool
//   W::runs(), W::run(i)   the PassRuns of the pass
//   W::queries()    the image of heads * headDim columns
//
// What each role waits for:
//   at the beginning   producers: until all stages of products have been read, by all warps
//   bringKeys          a free stage; and, before the first round that has rows of this pass, the counters of the run's
//                      rows up to the tile's last
//   bringQueries       until the queries before have been read; counters of the tile's rows
//   attend             queries, and then stages. It waits for no counter
//   at the end         producers: until the consumers have left attention; consumers: until the producers of K and V
//   have
//                      begun it, so that they are never two layers behind, where a barrier's parity says nothing
//===----------------------------------------------------------------------===//
#pragma once

#include "megalith/WideAttendUnits.cuh"

namespace megalith::device::wide {

/// A producer, at the beginning of attention. Phases of the ring stay as they are.
template <bool Codes, int Pieces> __device__ void awaitProductsRead(RingOf<Codes, Pieces> ring) {
#pragma unroll 1
  for (int i = 0; i < ring.count; ++i) {
    barrierAwait(&ring.sync->empty[ring.stage], ring.parity ^ 1);
    ring.advance();
  }
  if constexpr (Codes) // what lanes read and wrote there
    fenceAsyncShared();
  __syncwarp();
}
/// At its end: the ring is that of products again, whose producers begin with a fence. `layer`: number of the layers
/// before.
inline __device__ void awaitAttended(Sync &sync, u32 layer) {
  barrierAwait(&sync.attend.left, layer & 1);
  __syncwarp();
}

/// A lane waits for every 32nd block of rows [firstRow, end).
template <class W> __device__ __forceinline__ void awaitBlocks(const Before &before, int firstRow, int end) {
  const int rows = W::rows();
#pragma unroll 1
  for (int block = firstRow / kCountedRows + laneId(); block * kCountedRows < end; block += 32)
    W::await(W::shared().pass.done + block, before.of(block, rows));
  __syncwarp();
}

/// Copies positions of a round of K or V into a stage: those from `from` on and before `upTo`, counted from the first
/// of the round. place: where the lane's eight stands. `Dims` of the head's, from `pool` on.
template <class A, int Dims>
__device__ __forceinline__ void copyPositions(char *stage, const char *pool, long long place, int from, int upTo,
                                              int part) {
  constexpr int pieces = Dims / 8, atOnce = 32 / pieces; // positions
  const int lane = laneId(), piece = lane % pieces, ofEight = lane / pieces;
#pragma unroll 4
  for (int eight = part; eight < AttendShape<A>::round / 8; eight += kWeightWarps) {
    const char *const source = pool + __shfl_sync(~0u, place, eight) + piece * 16;
#pragma unroll
    for (int i = 0; i < 8; i += atOnce) {
      const int inEight = i + ofEight, position = eight * 8 + inEight;
      char *const to = stage + position * (2 * Dims) + (piece ^ (Dims == 64 ? inEight : inEight / 2 % 4)) * 16;
      const bool there = position >= from && position < upTo;
      copyAsyncOrZeros(to, there ? source + inEight * (2 * A::headDim) : pool, there);
    }
  }
}

/// The same of codes, by way of registers: a lane has 16 dims of a position at a time.
template <class A, int Dims> struct CodedPositions {
  static constexpr int lanes = Dims / 16, atOnce = 32 / lanes,
                       eights = atOnce / 8; ///< of a position; positions; eights
  static constexpr int loads = AttendShape<A>::round / atOnce / kWeightWarps;
  Words4 codes[loads];
  u32 scales[loads];
  /// The lane's position in an eight, and which of its loads this is of.
  __device__ __forceinline__ static int inEight() { return laneId() / lanes % 8; }
  __device__ __forceinline__ static int eightOf(int load, int part) {
    return (load * kWeightWarps + part) * eights + laneId() / (8 * lanes);
  }
  /// scalePlace: where the scales of the lane's eight stand, from `scalesOfPool` on.
  __device__ __forceinline__ CodedPositions(const char *pool, const char *scalesOfPool, long long place,
                                            long long scalePlace, int from, int upTo, int part) {
#pragma unroll
    for (int i = 0; i < loads; ++i) {
      const int eight = eightOf(i, part), position = eight * 8 + inEight();
      const long long codesAt = __shfl_sync(~0u, place, eight), scalesAt = __shfl_sync(~0u, scalePlace, eight);
      codes[i] = {0, 0, 0, 0};
      scales[i] = 0;
      if (position >= from && position < upTo) {
        codes[i] = loadWords(pool + codesAt + inEight() * A::headDim + laneId() % lanes * 16);
        scales[i] = loadHalfWord(scalesOfPool + scalesAt + 2 * inEight());
      }
    }
  }
  __device__ __forceinline__ void store(char *stage, int part) const {
    const int piece = laneId() % lanes * 2, turn = Dims == 64 ? inEight() : inEight() / 2 % 4;
#pragma unroll
    for (int i = 0; i < loads; ++i) {
      char *const to = stage + (eightOf(i, part) * 8 + inEight()) * (2 * Dims);
      const u32 scale = scales[i] | scales[i] << 16;
      *reinterpret_cast<Words4 *>(to + (piece ^ turn) * 16) = valuesOfE4m3(Words2{codes[i].x, codes[i].y}, scale);
      *reinterpret_cast<Words4 *>(to + ((piece + 1) ^ turn) * 16) = valuesOfE4m3(Words2{codes[i].z, codes[i].w}, scale);
    }
  }
};

/// `A`: as the layer's keys and values are.
template <class W, class A> __device__ __forceinline__ void bringKeysOf(int layer, int part) {
  using T = AttendShape<A>;
  using S = AttentionShape<A>;
  constexpr int elementBytes = PoolStrides<A>::elementBytes;
  auto &&shared = W::shared();
  const int role = kConsumerWarps + part, window = S::window(layer), lane = laneId();
  AttendRing<A> ring(shared.stages, shared.sync.attend, role);
  ring.arrive(&ring.sync->entered);
  awaitProductsRead(Ring<W>(shared.stages, shared.sync, role));
  const Before before = countBeforeAttention<W>(layer);
  eachAttended<W, A>(window, [&](const AttendUnit &unit) {
    const PassRun run = W::run(unit.run);
    const abi::ModelParams &model = W::model();
    const int *const pages = pageTableOf(model, run.slot);
    const long long head = pageAddress<A>(layer, 0, unit.kvHead, 0) * elementBytes;
    const int visible = unit.end + unit.offset, from = S::windowFrom(unit.begin + unit.offset + 1, window);
    // The lane's eight of a round, in bytes from page 0 on. Page numbers come a round ahead.
    const auto pageOf = [&](int round) {
      const int position = round * T::round + 8 * lane;
      return position < visible && position + 8 > from ? (int)loadWord(pages + position / A::pageTokens) : 0;
    };
    bool own = false;
    int page = pageOf(unit.round);
#pragma unroll 1
    for (int round = unit.round; round < unit.endRound; ++round) {
      const int first = round * T::round;
      const int inPage = (first + 8 * lane) % A::pageTokens;
      const long long place = pageAddress<A>(0, page, 0, inPage) * elementBytes;
      page = pageOf(round + 1);
      if (!own && first + T::round > run.position) {
        awaitBlocks<W>(before, run.firstRow, unit.end);
        own = true;
      }
#pragma unroll 1
      for (int slab = 0; slab < 2 * T::slabs; ++slab) {
        const int dims = slab % T::slabs * 64;
        const char *const ofHead = (slab < T::slabs ? model.kCache : model.vCache) + head;
        const char *const pool = ofHead + dims * elementBytes;
        if constexpr (kE4m3<A>) {
          const long long scalePlace = place - inPage * A::headDim + scaleInHead<A>(inPage);
          const auto bring = [&](auto columns) {
            const CodedPositions<A, decltype(columns)::value> positions(pool, ofHead, place, scalePlace, from - first,
                                                                        visible - first, part);
            barrierAwait(&ring.sync->empty[ring.stage], ring.parity() ^ 1);
            __syncwarp();
            positions.store(ring.at(ring.stage), part);
          };
          if (T::dim % 64 == 0 || (T::dim > 64 && dims == 0))
            bring(Number<64>());
          else
            bring(Number<32>());
          barrierArrive(&ring.sync->full[ring.stage]);
          ring.advance();
          continue;
        }
        barrierAwait(&ring.sync->empty[ring.stage], ring.parity() ^ 1);
        __syncwarp();
        if (T::dim % 64 == 0 || (T::dim > 64 && dims == 0))
          copyPositions<A, 64>(ring.at(ring.stage), pool, place, from - first, visible - first, part);
        else
          copyPositions<A, 32>(ring.at(ring.stage), pool, place, from - first, visible - first, part);
        copyAsyncArrive(&ring.sync->full[ring.stage]);
        ring.advance();
      }
    }
  });
  awaitAttended(shared.sync, ring.layer++);
  ring.keep();
}

/// Two warps.
template <class W, class A> __device__ __forceinline__ void bringKeys(int layer, int part) {
  if constexpr (kMixed<A>)
    if (isInBf16<A>(layer))
      return bringKeysOf<W, InBf16<A>>(layer, part);
  bringKeysOf<W, A>(layer, part);
}

/// One warp.
template <class W, class A> __device__ __forceinline__ void bringQueries(int layer) {
  using T = AttendShape<A>;
  auto &&shared = W::shared();
  constexpr int role = kConsumerWarps + kWeightWarps, blocks = Image<A::heads * A::headDim>::blocks;
  AttendRing<A> ring(shared.stages, shared.sync.attend, role);
  awaitProductsRead(Ring<W>(shared.stages, shared.sync, role));
  const Before before = countBeforeAttention<W>(layer);
  char *const queries = shared.stages + T::queriesAt;
  if constexpr (!kAsyncMma) // eights that the tile lacks are read, too: the CPU executor wants them to be something
#pragma unroll 1
    for (int i = laneId() * 16; i < T::queryBytes; i += 512)
      *reinterpret_cast<Words4 *>(queries + i) = {0, 0, 0, 0};
  const auto open = [&](const AttendUnit &unit, int bytes) {
    barrierAwait(&ring.sync->taken, (ring.turn & 1) ^ 1);
    __syncwarp();
    if (laneId() == 0)
      shared.units[ring.turn & 1] = unit;
    ++ring.turn;
    if constexpr (!kAsyncMma) // which reads as copies do
      fenceAsyncShared();
    __syncwarp();
    barrierArriveExpectOfWarp(&ring.sync->queries, bytes);
  };
  eachAttended<W, A>(AttentionShape<A>::window(layer), [&](const AttendUnit &unit) {
    awaitBlocks<W>(before, unit.begin, unit.end);
    fenceAsync(); // others wrote them as plain stores
    const int eights = (unit.end - unit.firstRow + 7) / 8, tileEnd = (unit.firstRow / kTile + 1) * kTile;
    const int here = min(eights, (tileEnd - unit.firstRow) / 8); // the others stand in the next tile
    open(unit, unit.heads * eights * (T::dim / kBlockColumns) * kEightBytes);
    const char *const image = W::queries(layer);
    const auto rows = [&](int row) {
      return image + (long long)(row / kTile) * (blocks * kTileBlockBytes) + row % kTile * kRowBytes;
    };
#pragma unroll 1
    for (int head = 0; head < unit.heads; ++head)
#pragma unroll 1
      for (int block = 0; block < T::dim / kBlockColumns; ++block) {
        char *const to = queries + block * T::queryBlockBytes + head * T::rowEights * kEightBytes;
        const int ofImage = ((unit.firstHead + head) * (T::dim / kBlockColumns) + block) * kTileBlockBytes;
        copyBulkOfWarp(to, rows(unit.firstRow) + ofImage, here * kEightBytes, &ring.sync->queries);
        if (here < eights)
          copyBulkOfWarp(to + here * kEightBytes, rows(tileEnd) + ofImage, (eights - here) * kEightBytes,
                         &ring.sync->queries);
      }
  });
  open(AttendUnit{}, 0);
  // The consumers leave once in a layer, as they find a unit that is none: that one's phase tells of it, too.
  barrierAwait(&ring.sync->taken, (ring.turn & 1) ^ 1);
  ring.keep();
}

} // namespace megalith::device::wide
