//===- WideRoles.cuh - what the warps of a CTA do in a wide pass ----------===//
//
// Each function is called once a pass by all lanes of its warps. Sums of products stay in registers of eight warps.
//
//   W::shared()        shared memory: stages, turns (kTurnBytes of each consumer warp), sync, pass
//   W::products(), W::count(), W::layers(), W::rows()   see eachUnit
//   W::operand(i)      an image of an operand
//   W::stream()        packed weights
//   W::await(counter, least)   waits until a counter is at least `least`, or the kernel stops
//   W::end(number, layer, pair, fn)   calls fn(end) with the epilogue of a pair (WideTile.cuh), if there is such a pair
//===----------------------------------------------------------------------===//
#pragma once

#include "megalith/WideTile.cuh"

namespace megalith::device::wide {

/// Warps 0 to 7.
template <class W> __device__ __forceinline__ void multiply() {
  auto &shared = W::shared();
  consumerSync(); // ptxas is to see that all lanes of a warpgroup are here: else it lets each wgmma end (C7520)
  Ring ring(shared.stages, shared.sync, warpId());
  eachUnit<W>([&](const Walk &walk) {
    if (Here::at<W>(walk).deal.tileRows == kTile)
      multiplyUnit<W, kTile>(ring, walk);
    else
      multiplyUnit<W, kTile / 2>(ring, walk);
  });
  ring.keep();
}

template <int Count> struct Bytes {
  static constexpr int count = Count;
};
/// Two warps: the packed weights. Each brings a part of a stage's pieces. A piece has two blocks of 32 columns, of the
/// rows of a group.
template <class W> __device__ __forceinline__ void bringWeights(int part) {
  auto &shared = W::shared();
  Ring ring(shared.stages, shared.sync, kConsumerWarps + part);
  fenceAsyncShared();
  eachUnit<W>([&](const Walk &walk) {
    const Here now = Here::at<W>(walk);
    const Product &product = now.product;
    // Groups of one tile have twice as many columns in a chunk.
    const auto bring = [&](auto ofPiece) {
      constexpr int bytes = decltype(ofPiece)::count, ofChunk = 2048 / bytes,
                    count = kWeightBytes / kWeightWarps / bytes;
      const int first = (now.unit.weights * kWeightWarps + part) * count;
      const char *from = W::stream() + product.weights + walk.layer * product.layerBytes;
      long long group[count];
#pragma unroll
      for (int g = 0; g < count; ++g)
        group[g] = min(first + g, product.groups - 1) * product.groupBytes;
#pragma unroll 1
      for (int eighth = 0; eighth < kParts; ++eighth, from += 2048)
#pragma unroll 1
        for (int i = 0; i < product.blocks / 2; ++i) {
          const char *const piece = from + (long long)(i / ofChunk) * product.chunkBytes + i % ofChunk * bytes;
          ring.open(kWeightBytes / kWeightWarps);
#pragma unroll
          for (int g = 0; g < count; ++g)
            ring.copy((part * count + g) * bytes, piece + group[g], bytes);
          ring.advance();
        }
    };
    if (product.oneTile)
      bring(Bytes<1024>());
    else
      bring(Bytes<2048>());
  });
  ring.keep();
}

/// Tiles of weights that each row of the pass has seen before a product.
template <class W> __device__ __forceinline__ u32 tilesBefore(const Walk &walk) {
  u32 before = 0, all = 0;
#pragma unroll 1
  for (int i = 0; i < W::count(); ++i) {
    const int tiles = W::products()[i].tiles;
    before += i < walk.product ? tiles : 0;
    all += tiles;
  }
  return walk.layer * all + before;
}

/// One warp: the rows of the pass.
template <class W> __device__ __forceinline__ void bringRows() {
  auto &shared = W::shared();
  Ring ring(shared.stages, shared.sync, kConsumerWarps + kWeightWarps);
  fenceAsyncShared();
  eachUnit<W>([&](const Walk &walk) {
    const Here now = Here::at<W>(walk);
    const int firstRow = now.unit.rows * now.deal.tileRows, end = min(firstRow + now.deal.tileRows, now.rows);
    const bool there = firstRow < end;
    const int bytes = there ? now.deal.tileRows * kRowBytes : 0; // of a block
    const u32 least = tilesBefore<W>(walk);
    for (int row = firstRow; row < end; row += kCountedRows)
      W::await(shared.pass.done + row / kCountedRows, least);
    __syncwarp();
    fenceAsync(); // others wrote them as plain stores
    const Operand operand = W::operand(now.product.operand);
    const char *from =
        operand.image + (long long)(firstRow / kTile) * operand.blocks * kTileBlockBytes + firstRow % kTile * kRowBytes;
#pragma unroll 1
    for (int i = kParts * now.product.blocks / 2; i > 0; --i, from += 2 * kTileBlockBytes) {
      ring.open(2 * bytes);
      if (bytes == kTileBlockBytes) {
        ring.copy(kWeightBytes, from, 2 * kTileBlockBytes);
      } else if (there) {
        ring.copy(kWeightBytes, from, bytes);
        ring.copy(kWeightBytes + bytes, from + kTileBlockBytes, bytes);
      }
      ring.advance();
    }
  });
  ring.keep();
}

/// One warp: tells what has been written.
template <class W> __device__ __forceinline__ void signal() {
  auto &shared = W::shared();
  u32 expected = shared.sync.told;
  eachUnit<W>([&](const Walk &walk) {
    const Here now = Here::at<W>(walk);
    expected += kConsumerWarps;
    while ((int)(loadFlag(&shared.sync.written) - expected) < 0) {
    }
    fenceAsync(); // the next reader is an asynchronous copy
    __syncwarp();
    const int row = now.unit.rows * now.deal.tileRows + laneId() * kCountedRows;
    if (now.unit.weights < now.product.tiles && laneId() < now.deal.tileRows / kCountedRows && row < now.rows)
      addRelease(shared.pass.done + row / kCountedRows, 1);
  });
  if (laneId() == 0)
    shared.sync.told = expected;
  __syncwarp();
}

} // namespace megalith::device::wide
