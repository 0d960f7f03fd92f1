//===- WideRoles.cuh - what the warps of a CTA do in a wide pass ----------===//
//
// All lanes of a role's warps call its function, once for each range of steps. Producers' ranges do not go over a step
// of attention (WideAttend.cuh). What reads a counter in memory, and so waits, is no product's: see takeRange.
//
//   W::shared()        shared memory: stages, turns (kTurnBytes of each consumer warp), sync, pass
//   W::steps(), W::rows()   see eachUnit
//   W::operand(i, layer)   an image of an operand
//   W::stream()        packed weights
//   W::await(counter, least)   waits until a counter is at least `least`, or the kernel stops
//   W::row(number, layer, row)        work number `number` on a row, by a warp
//   W::end(number, layer, pair, fn)   calls fn(end) with the epilogue of a pair (WideTile.cuh), if there is such a pair
//===----------------------------------------------------------------------===//
#pragma once

#include "megalith/WideTile.cuh"

namespace megalith::device::wide {

/// What counters are at least when all steps before have written their rows.
struct Before {
  u32 ofBlock, ofRow;
  __device__ __forceinline__ u32 of(int block, int rows) const {
    return ofBlock + ofRow * min(kCountedRows, rows - block * kCountedRows);
  }
};
template <class W> __device__ __forceinline__ Before countBefore(const Walk &walk) {
  const Range all = W::shared().pass.all;
  u32 before[2] = {}, ofLayer[2] = {}; // of blocks, of rows
#pragma unroll 1
  for (int i = all.first; i < all.end; ++i) {
    const Step &step = W::steps()[i];
#pragma unroll
    for (int kind = 0; kind < 2; ++kind) {
      const int tiles = kind == (step.work == Work::Attention) ? step.tiles : 0;
      before[kind] += i < walk.step ? tiles : 0;
      ofLayer[kind] += tiles;
    }
  }
  const u32 layers = walk.layer - all.layer;
  return {layers * ofLayer[0] + before[0], layers * ofLayer[1] + before[1]};
}

/// What the consumers' call is to do, which their thread 0 wrote before. ptxas sees that all lanes of a warpgroup are
/// here, and read alike: else it lets each product end before the next one begins (C7520).
template <class W> __device__ __forceinline__ Range takeRange() {
  consumerSync();
  const Range range = W::shared().pass.now;
  consumerSync(); // the next one may be written
  return range;
}

/// Warps 0 to 7: steps that are work on rows. Not with products in one function: no wait may stand between these.
template <class W> __device__ __forceinline__ void workOnRows() {
  auto &&shared = W::shared();
  eachUnit<W>(shared.pass.all, takeRange<W>(), [&](const Walk &walk) {
    const Here now = Here::at<W>(walk);
    const int row = now.unit.rows * kConsumerWarps + warpId();
    // Also where the pass has no such row: what is counted early would stand for what others have not written yet.
    const int block = row / kCountedRows;
    W::await(shared.pass.done + block, countBefore<W>(walk).of(block, now.rows));
    __syncwarp();
    if (row < now.rows)
      W::row(now.step.end, walk.layer, row);
    consumerSync(); // no warp is a unit ahead: each unit is counted by itself
    if (threadIdx.x == 0)
      addFlag(&shared.sync.written, kConsumerWarps);
  });
}

/// Warps 0 to 7: steps that are products.
template <class W> __device__ __forceinline__ void multiply() {
  auto &&shared = W::shared();
  const Range range = takeRange<W>();
  Ring ring(shared.stages, shared.sync, warpId());
  eachUnit<W>(shared.pass.all, range, [&](const Walk &walk) {
    if (Here::at<W>(walk).deal.tileRows == kTile)
      multiplyUnit<W, kTile>(ring, walk);
    else
      multiplyUnit<W, kTile / 2>(ring, walk);
  });
  ring.keep();
}

/// Two warps: the packed weights. Each brings the weights of half a tile's rows, group by group.
template <class W> __device__ __forceinline__ void bringWeights(Range range, int part) {
  auto &&shared = W::shared();
  Ring ring(shared.stages, shared.sync, kConsumerWarps + part);
  fenceAsyncShared();
  eachUnit<W>(shared.pass.all, range, [&](const Walk &walk) {
    const Here now = Here::at<W>(walk);
    const Step &step = now.step;
    if (step.work != Work::Product)
      return;
    const auto bring = [&](auto tilesOfGroup) {
      constexpr int tiles = decltype(tilesOfGroup)::value, count = kTile / kTileColumns / kWeightWarps / tiles;
      const int first = (now.unit.weights * kWeightWarps + part) * count, bytes = tiles * step.eightBytes(),
                ofEighth = tiles * step.chunkBlocks * kWarpBlockBytes;
      const char *from = W::stream() + step.weights + walk.layer * step.layerBytes;
      long long group[count];
#pragma unroll
      for (int g = 0; g < count; ++g)
        group[g] = min(first + g, step.groups - 1) * step.groupBytes;
#pragma unroll 1
      for (int eighth = 0; eighth < kParts; ++eighth, from += ofEighth)
#pragma unroll 1
        for (int i = 0; i < step.blocks; i += 2) {
          const int here = min(2, step.blocks - i);
          ring.open(here * (kWeightBytes / 2 / kWeightWarps));
#pragma unroll 1
          for (int block = 0; block < (step.chunkBlocks == 1 ? here : 1); ++block) {
            const int chunk = (i + block) / step.chunkBlocks, ofChunk = (i + block) % step.chunkBlocks;
            const char *const piece =
                from + (long long)chunk * (tiles * step.chunkBlocks * kBlockBytes) + ofChunk * kWarpBlockBytes;
#pragma unroll
            for (int g = 0; g < count; ++g)
              ring.copy(block * kTileBlockBytes + (part * count + g) * bytes, piece + group[g], bytes);
          }
          ring.advance();
        }
    };
    if (step.group == 1)
      bring(Number<1>());
    else
      bring(Number<2>());
  });
  ring.keep();
}

/// One warp: the rows of the pass.
template <class W> __device__ __forceinline__ void bringRows(Range range) {
  auto &&shared = W::shared();
  Ring ring(shared.stages, shared.sync, kConsumerWarps + kWeightWarps);
  fenceAsyncShared();
  eachUnit<W>(shared.pass.all, range, [&](const Walk &walk) {
    const Here now = Here::at<W>(walk);
    if (now.step.work != Work::Product)
      return;
    const int firstRow = now.unit.rows * now.deal.tileRows, end = min(firstRow + now.deal.tileRows, now.rows);
    const bool there = firstRow < end;
    const int bytes = there ? now.deal.tileRows * kRowBytes : 0; // of a block
    const Before before = countBefore<W>(walk);
    for (int row = firstRow; row < end; row += kCountedRows)
      W::await(shared.pass.done + row / kCountedRows, before.of(row / kCountedRows, now.rows));
    __syncwarp();
    fenceAsync(); // others wrote them as plain stores
    const Operand operand = W::operand(now.step.operand, walk.layer);
    const char *from =
        operand.image + (long long)(firstRow / kTile) * operand.blocks * kTileBlockBytes + firstRow % kTile * kRowBytes;
#pragma unroll 1
    for (int eighth = 0; eighth < kParts; ++eighth)
#pragma unroll 1
      for (int i = 0; i < now.step.blocks; i += 2) {
        const int here = min(2, now.step.blocks - i);
        ring.open(here * bytes);
        if (bytes == kTileBlockBytes) { // blocks of a whole tile stand one after the other
          ring.copy(kWeightBytes, from, here * kTileBlockBytes);
        } else if (there) {
          ring.copy(kWeightBytes, from, bytes);
          if (here == 2)
            ring.copy(kWeightBytes + bytes, from + kTileBlockBytes, bytes);
        }
        from += here * kTileBlockBytes;
        ring.advance();
      }
  });
  ring.keep();
}

/// One warp: tells what has been written.
template <class W> __device__ __forceinline__ void signal(Range range) {
  auto &&shared = W::shared();
  u32 expected = shared.sync.told;
  eachUnit<W>(shared.pass.all, range, [&](const Walk &walk) {
    const Here now = Here::at<W>(walk);
    expected += kConsumerWarps;
    while ((int)(loadFlag(&shared.sync.written) - expected) < 0) {
    }
    fenceAsync(); // the next reader is an asynchronous copy
    __syncwarp();
    const int block = now.unit.rows * now.deal.tileRows / kCountedRows + laneId();
    if (now.unit.weights < now.step.tiles && laneId() < max(1, now.deal.tileRows / kCountedRows) &&
        block * kCountedRows < now.rows)
      addRelease(shared.pass.done + block, 1);
  });
  __syncwarp(); // lanes may still read it
  if (laneId() == 0)
    shared.sync.told = expected;
  __syncwarp();
}

} // namespace megalith::device::wide
