//===- WideRoles.cuh - what the warps of a CTA do in a wide pass ----------===//
//
// All lanes of a role's warps call its function, once for each range of steps, when dealSteps has dealt them; `signal`
// is one thread's. Producers' ranges do not go over a step of attention (WideAttend.cuh). What reads a counter in
// memory, and so waits, is no product's: see takeRange.
//
//   W::shared()        shared memory (Shared in WideRing.cuh)
//   W::steps(), W::rows()   see eachUnit
//   W::operand(i, layer)   an image of an operand
//   W::stream()        packed weights
//   W::layouts         of all products
//   W::Kind            of their codes (WideCodes.cuh); void: weights are bf16
//   W::await(counter, least)   waits until a counter is at least `least`, or the kernel stops
//   W::row(number, layer, row)        work number `number` on a row, by a warp
//   W::end(number, layer, pair, fn)   calls fn(end) with the epilogue of a pair (WideTile.cuh), if there is such a pair
//===----------------------------------------------------------------------===//
#pragma once

#include "megalith/WideCodes.cuh"

namespace megalith::device::wide {

/// The ring of products.
template <class W> constexpr bool kOfCodes = !kSame<typename W::Kind, void>;
template <class W> using Ring = RingOf<kOfCodes<W>, kPieceBytes<typename W::Kind>>;

/// What counters are at least when all steps before have written their rows.
struct Before {
  Counts counts;
  __device__ __forceinline__ u32 of(int block, int rows) const {
    return counts.ofBlock + counts.ofRow * min(kCountedRows, rows - block * kCountedRows);
  }
};
template <class W> __device__ __forceinline__ Before countBefore(int layer, int step) {
  const Deals &deals = W::shared().deals;
  const Counts before = deals.step[step].before;
  const u32 layers = layer - W::shared().pass.all.layer;
  return {{layers * deals.counts.ofBlock + before.ofBlock, layers * deals.counts.ofRow + before.ofRow}};
}

/// What the consumers' call is to do, which their thread 0 wrote before.
template <class W> __device__ __forceinline__ Range takeRange() {
  consumerSync();
  const Range range = W::shared().pass.now;
  consumerSync(); // the next one may be written
  return range;
}

/// Warps 0 to 7: steps that are work on rows. Not with products in one function: no wait may stand between these.
template <class W> __device__ __forceinline__ void workOnRows() {
  auto &&shared = W::shared();
  eachUnit<W>(takeRange<W>(), [&](const Walk &walk) {
    const Here now = Here::at<W>(walk);
    const int row = now.unit.rows * kConsumerWarps + warpId();
    // Also where the pass has no such row: what is counted early would stand for what others have not written yet.
    const int block = row / kCountedRows;
    W::await(shared.pass.done + block, countBefore<W>(walk.layer, walk.step).of(block, now.rows));
    __syncwarp();
    if (row < now.rows)
      W::row(now.step.end, walk.layer, row);
    consumerSync(); // no warp is a unit ahead: each unit is counted by itself
    if (threadIdx.x == 0)
      addFlag(&shared.sync.written, kConsumerWarps);
  });
}

/// The first step of products from one on, if there is one.
template <class W> __device__ __forceinline__ ProductStep productFrom(int layer, int step) {
  const Range all = W::shared().pass.all;
#pragma unroll 1
  for (int count = all.end - all.first; count > 0; --count, ++step) {
    if (step == all.end) {
      step = all.first;
      ++layer;
    }
    if (W::steps()[step].work == Work::Product)
      break;
  }
  return {layer, step, W::shared().deals.step[step].deal, firstUnit<W>(layer, step)};
}
/// Finds how the steps of the pass are dealt. A warp: a lane has a step.
template <class W> __device__ __forceinline__ void dealSteps() {
  const Range all = W::shared().pass.all;
  Deals &deals = W::shared().deals;
  const int lane = laneId();
  DealtStep mine = {};
  u32 of[3] = {}; // pairs, blocks, rows
  if (lane >= all.first && lane < all.end) {
    const Step &step = W::steps()[lane];
    mine.deal = Deal::of(step, W::rows());
    of[0] = mine.deal.pairs;
    of[step.work == Work::Attention ? 2 : 1] = step.tiles;
  }
  u32 upTo[3] = {of[0], of[1], of[2]};
#pragma unroll
  for (u32 &sum : upTo)
#pragma unroll
    for (int d = 1; d < kMostSteps; d *= 2) {
      const u32 lower = __shfl_up_sync(~0u, sum, d);
      sum += lane >= d ? lower : 0;
    }
  mine.pairsBefore = upTo[0] - of[0];
  mine.before = {upTo[1] - of[1], upTo[2] - of[2]};
  deals.step[lane] = mine;
  if (lane == kMostSteps - 1) {
    deals.pairs = upTo[0];
    deals.counts = {upTo[1], upTo[2]};
  }
  __syncwarp();
  if (lane == 0)
    W::shared().multiplied.next = productFrom<W>(all.layer, all.first);
}

/// The next step of a call of `multiply`. What comes behind it is found while others multiply.
template <class W> __device__ __forceinline__ void takeStep() {
  Multiplied &of = W::shared().multiplied;
  consumerSync(); // all have read what was there
  if (threadIdx.x == 0) {
    const Range range = W::shared().pass.now;
    of.now = of.next;
    of.last = of.now.layer == range.lastLayer && of.now.step + 1 == range.end;
  }
  consumerSync();
  if (threadIdx.x == 0)
    of.next = productFrom<W>(of.now.layer, of.now.step + 1);
  __syncwarp();
}

template <class W, int Rows> __device__ __forceinline__ void multiplyAny(Ring<W> &ring, int next) {
  if constexpr (kOfCodes<W>)
    multiplyUnitOfCodes<W, Rows, typename W::Kind>(ring, next);
  else
    multiplyUnit<W, Rows>(ring, next);
}

/// Warps 0 to 7: steps that are products.
///
/// ptxas is to see that all lanes of a warpgroup go the same way: else it lets each product end before the next one
/// begins (C7520), or computes what they read in a lane's registers, which takes their time. It sees that of what lies
/// at one place in shared memory, but of no place that it finds by a number; and of nothing that it moves to local
/// memory. So what is to do stands in `multiplied`, and of all that only the unit's number is in a register.
template <class W> __device__ __forceinline__ void multiply() {
  const Multiplied &of = W::shared().multiplied;
#pragma unroll 1
  do {
    takeStep<W>();
    Ring<W> ring(W::shared().stages, W::shared().sync, warpId());
#pragma unroll 1
    for (int next = of.now.first; next < of.now.deal.pairs; next += (int)ctasAgain() / 2)
      if (of.now.deal.tileRows == kTile)
        multiplyAny<W, kTile>(ring, next);
      else
        multiplyAny<W, kTile / 2>(ring, next);
    ring.keep();
  } while (!of.last);
}

/// Two warps: the packed weights. Each brings the weights of half a tile's rows, group by group.
template <class W> __device__ __forceinline__ void bringWeights(Range range, int part) {
  auto &&shared = W::shared();
  Ring<W> ring(shared.stages, shared.sync, kConsumerWarps + part);
  fenceAsyncShared();
  eachUnit<W>(range, [&](const Walk &walk) {
    const Here now = Here::at<W>(walk);
    const Step &step = now.step;
    if (step.work != Work::Product)
      return;
    if constexpr (kOfCodes<W>) {
      bringCodes<W, typename W::Kind>(ring, step, now.unit, walk.layer, part);
      return;
    }
    const auto bring = [&](auto tilesOfGroup, auto apart) {
      constexpr int tiles = decltype(tilesOfGroup)::value, count = kTile / kTileColumns / kWeightWarps / tiles;
      constexpr int bytes = tiles * (decltype(apart)::value ? 1 : 2) * kEightBytes; // of a piece
      const int first = (now.unit.weights * kWeightWarps + part) * count;
      const int ofChunk = step.chunkBlocks * kWarpBlockBytes; // and of a warp and a tile
      const char *from = W::stream() + step.weights + walk.layer * step.layerBytes;
      long long group[count];
#pragma unroll
      for (int g = 0; g < count; ++g)
        group[g] = min(first + g, step.groups - 1) * step.groupBytes;
      const auto copy = [&](int to, const char *piece) {
#pragma unroll
        for (int g = 0; g < count; ++g)
          ring.copyWeights(to + (part * count + g) * bytes, piece + group[g], bytes);
      };
#pragma unroll 1
      for (int eighth = 0; eighth < kParts; ++eighth, from += tiles * ofChunk) {
        const char *chunk = from;
        if constexpr (decltype(apart)::value) {
#pragma unroll 1
          for (int block = 0; block < step.blocks; ++block, chunk += kParts * tiles * ofChunk) {
            if (block % 2 == 0)
              ring.open(min(2, step.blocks - block) * (kWeightBytes / 2 / kWeightWarps));
            copy(block % 2 * kTileBlockBytes, chunk);
            if (block % 2 != 0 || block + 1 == step.blocks)
              ring.advance();
          }
        } else {
#pragma unroll 1
          for (int block = 0; block < step.blocks; block += step.chunkBlocks, chunk += kParts * tiles * ofChunk)
#pragma unroll 1
            for (int at = 0; at < ofChunk; at += 2 * kWarpBlockBytes) {
              ring.open(kWeightBytes / kWeightWarps);
              copy(0, chunk + at);
              ring.advance();
            }
        }
      }
    };
    const auto bringGroups = [&](auto apart) {
      if (step.group == 1)
        bring(Number<1>(), apart);
      else
        bring(Number<2>(), apart);
    };
    if (standApart<W>(step))
      bringGroups(Number<true>());
    else
      bringGroups(Number<false>());
  });
  ring.keep();
}

/// One warp: the rows of the pass.
template <class W> __device__ __forceinline__ void bringRows(Range range) {
  auto &&shared = W::shared();
  Ring<W> ring(shared.stages, shared.sync, kConsumerWarps + kWeightWarps);
  fenceAsyncShared();
  eachUnit<W>(range, [&](const Walk &walk) {
    const Here now = Here::at<W>(walk);
    if (now.step.work != Work::Product)
      return;
    const int firstRow = now.unit.rows * now.deal.tileRows, end = min(firstRow + now.deal.tileRows, now.rows);
    const bool there = firstRow < end;
    const int bytes = there ? now.deal.tileRows * kRowBytes : 0; // of a block
    const Before before = countBefore<W>(walk.layer, walk.step);
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
        const int here = W::layouts.odd ? min(2, now.step.blocks - i) : 2;
        if constexpr (!kAsyncMma) // rows that are not there are read, too: the CPU executor wants them to be something
          if (!there) {
            barrierAwait(&ring.sync->empty[ring.stage], ring.parity ^ 1);
#pragma unroll 1
            for (int at = laneId() * 16; at < 2 * now.deal.tileRows * kRowBytes; at += 512)
              *reinterpret_cast<Words4 *>(ring.rows(ring.stage) + at) = {0, 0, 0, 0};
            __syncwarp();
          }
        ring.open(here * bytes);
        if (bytes == kTileBlockBytes) { // blocks of a whole tile stand one after the other
          ring.copyRows(0, from, here * kTileBlockBytes);
        } else if (there) {
          ring.copyRows(0, from, bytes);
          if (here == 2)
            ring.copyRows(bytes, from + kTileBlockBytes, bytes);
        }
        from += here * kTileBlockBytes;
        ring.advance();
      }
  });
  ring.keep();
}

/// One thread tells what has been written. A warp may call it.
template <class W> __device__ __forceinline__ void signal(Range range) {
  if (laneId() != 0)
    return;
  auto &&shared = W::shared();
  u32 expected = shared.sync.told;
  eachUnit<W>(range, [&](const Walk &walk) {
    const Here now = Here::at<W>(walk);
    expected += kConsumerWarps;
    while ((int)(loadFlag(&shared.sync.written) - expected) < 0) {
    }
    if (now.unit.weights >= now.step.tiles)
      return;
    fenceAsync(); // the next reader is an asynchronous copy
    const int first = now.unit.rows * now.deal.tileRows / kCountedRows,
              count = max(1, now.deal.tileRows / kCountedRows);
#pragma unroll 1
    for (int block = first; block < first + count && block * kCountedRows < now.rows; ++block)
      addRelease(shared.pass.done + block, 1);
  });
  shared.sync.told = expected;
}

} // namespace megalith::device::wide
