//===- AttentionParts.cuh - parts of attention, and their sums ------------===//
//
// What attention makes of some keys is a part, and the parts of a pair are put together in a
// fixed tree, see Attention.cuh. A tile of several ranges is put together by one CTA for each
// pair, from words that carry the number of the pass and the layer.
//===----------------------------------------------------------------------===//
#pragma once

#include "megalith/AttentionPlan.cuh"

namespace megalith::device {

/// (m, z, o) of N columns of one pair over some keys. m is scaled.
template <int N> struct Soft {
  float m = __int_as_float(0xff800000), z = 0.0f, o[N] = {};
  /// Nothing taken in changes nothing.
  __device__ __forceinline__ void take(const Soft &part) {
    if (isNoPart(part.m, part.z))
      return;
    const PartScales scales = scalesOfParts(m, part.m);
    z = sumOfParts(z, scales.before, part.z, scales.now);
#pragma unroll
    for (int i = 0; i < N; ++i)
      o[i] = sumOfParts(o[i], scales.before, part.o[i], scales.now);
    m = scales.m;
  }
};

/// Puts parts together, eight of a level into one of the next. Taking a single part in
/// changes no bit, so a part is the same however many levels lie above it.
template <int Levels, int N> struct SoftTree {
  Soft<N> open[Levels];
  /// Part number `index` of its level; in ascending order.
  __device__ __forceinline__ void push(int level, int index, Soft<N> part) {
    bool carry = true;
#pragma unroll
    for (int k = 0; k < Levels; ++k)
      if (carry && k >= level) {
        open[k].take(part);
        carry = k + 1 < Levels && index % 8 == 7;
        if (carry) {
          part = open[k];
          open[k] = Soft<N>();
          index /= 8;
        }
      }
  }
  __device__ __forceinline__ Soft<N> total() const {
    Soft<N> sum = open[0];
#pragma unroll
    for (int k = 1; k < Levels; ++k) {
      const Soft<N> lower = sum;
      sum = open[k];
      sum.take(lower);
    }
    return sum;
  }
};

/// The ranges of a group that the layer sees: the first of those that were dealt, and the number of that one, counted
/// from position 0.
struct SeenRanges {
  int first, number;
};
template <class A> __device__ __forceinline__ SeenRanges seenRanges(const PassShared &pass, int firstRow, int window) {
  using S = AttentionShape<A>;
  if constexpr (S::windowed) {
    const int visible = pass.rows[firstRow].visible, size = S::round << 3 * pass.attention.rangeLevel;
    const int dealt = S::windowFrom(visible, S::mostWindow()) / size, seen = S::windowFrom(visible, window) / size;
    return {seen - dealt, seen};
  }
  return {0, 0};
}

/// Tiles of several ranges: a CTA for each pair.
template <class A, class Out>
__device__ __noinline__ void mergeRanges(const GridEdges &grid, int edge, const PassShared &pass, int window,
                                         char *scratch, const u64 *sums, u32 tag, Out out) {
  assumeShared(&grid);
  assumeShared(&pass);
  assumeShared(scratch);
  using S = AttentionShape<A>;
  constexpr int D = S::dim;
  constexpr int together = (D / 2 + 31) / 32 * 32; // threads that take two columns each
  constexpr int teams = kConsumerThreads / together;
  const int units = pass.attention.rangesUpto[pass.attention.groups - 1] * S::tilesOfRows;
  const int team = threadIdx.x / together, column = threadIdx.x % together * 2;
  float *const nodes = reinterpret_cast<float *>(scratch); // [node][D + 2]: o, m, z
  // The CTAs that had a unit less begin.
  int item = (unitsFrom() + (int)gridDim.x - units % (int)gridDim.x) % (int)gridDim.x;
  for (int group = 0; group < pass.attention.groups; ++group) {
    int before = group ? pass.attention.rangesUpto[group - 1] : 0, ranges = pass.attention.rangesUpto[group] - before;
    if (ranges == 1)
      continue;
    const int firstRow = pass.attention.groupFirst[group];
    const SeenRanges seen = seenRanges<A>(pass, firstRow, window);
    const int firstNode = seen.number / 8, ofNode = seen.number % 8; // the first range in it
    before += seen.first - ofNode;                                   // of range 0 of the first node
    ranges += ofNode - seen.first;
    const int pairs = (pass.attention.groupFirst[group + 1] - firstRow) * S::headsOfTile;
    for (; item < S::tilesOfRows * pairs; item += gridDim.x) {
      const int tile = item / pairs, pair = item % pairs;
      const int head = tile / S::slices * S::group + tile % S::slices * S::headsOfTile + pair % S::headsOfTile;
      if (head >= (tile / S::slices + 1) * S::group)
        continue;
      const auto at = [&](int range) {
        return sums + (((long long)before + min(range, ranges - 1)) * S::tilesOfRows + tile) * (16 * (D + 2)) +
               pair * (D + 2);
      };
      const int count = (ranges + 7) / 8;
      consumerSync(); // the scratch may still be read
      if (column < D)
        for (int node = team; node < count; node += teams) {
          Soft<2> sum;
#pragma unroll 1
          for (int begin = node * 8 + (node ? 0 : ofNode); begin < min(ranges, node * 8 + 8); begin += 4) {
            u64 words[4][4], since = 0;
            bool absent = true;
#pragma unroll 1
            for (u32 spin = 1; absent; ++spin) {
              absent = false;
#pragma unroll
              for (int k = 0; k < 4; ++k) {
                const u64 *from = at(begin + k);
                words[k][0] = loadFlagged2(from + column);
                words[k][1] = loadFlagged2(from + column + 1);
                words[k][2] = loadFlagged2(from + D);
                words[k][3] = loadFlagged2(from + D + 1);
              }
#pragma unroll
              for (int k = 0; k < 4; ++k)
#pragma unroll
                for (int i = 0; i < 4; ++i)
                  absent |= (u32)(words[k][i] >> 32) != tag;
              absent = absent && !grid.stopSeen(edge, spin, since);
            }
#pragma unroll
            for (int k = 0; k < 4; ++k)
              if (begin + k < (AttentionShape<A>::windowed ? min(ranges, node * 8 + 8) : ranges)) {
                Soft<2> one;
                one.o[0] = __uint_as_float((u32)words[k][0]);
                one.o[1] = __uint_as_float((u32)words[k][1]);
                one.m = __uint_as_float((u32)words[k][2]);
                one.z = __uint_as_float((u32)words[k][3]);
                sum.take(one);
              }
          }
          *reinterpret_cast<Float2 *>(nodes + node * (D + 2) + column) = {sum.o[0], sum.o[1]};
          if (column == 0)
            *reinterpret_cast<Float2 *>(nodes + node * (D + 2) + D) = {sum.m, sum.z};
        }
      consumerSync();
      if (team == 0 && column < D) {
        SoftTree<S::levels(), 2> tree; // of the levels above the nodes
        for (int node = 0; node < count; ++node) {
          const Float2 o = *reinterpret_cast<const Float2 *>(nodes + node * (D + 2) + column);
          const Float2 mz = *reinterpret_cast<const Float2 *>(nodes + node * (D + 2) + D);
          Soft<2> sum;
          sum.m = mz.x;
          sum.z = mz.y;
          sum.o[0] = o.x;
          sum.o[1] = o.y;
          tree.push(0, firstNode + node, sum);
        }
        const Soft<2> total = tree.total();
        out.storePair(firstRow + pair / S::headsOfTile, head * D + column, head * D + column + 1,
                      Floats<2>{{__fdiv_rn(total.o[0], total.z), __fdiv_rn(total.o[1], total.z)}});
      }
    }
    item -= S::tilesOfRows * pairs;
  }
}

} // namespace megalith::device
