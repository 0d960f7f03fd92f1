//===- WideAttend.cuh - attention of a wide pass --------------------------===//
//
// The bits are those of Attention.cuh: the law stands in docs/ir.md. A warpgroup has 64 pairs, a warp 16. All scores of
// a round are in registers: so its maximum is known before any power. Its weights are operand A of the products with
// values, leaf by leaf.
//
// Where a value is infinite or NaN, rows of the same run that share the tile may get NaN in that dim, though they do
// not see it. Rows of other runs never do.
//
//   W::scale             of scores
//   W::attended(layer)   where the result goes: the image of heads * headDim columns
//   W::parts()           AttendShape::partBytes of memory of this CTA
//
// WideKeys.cuh says what each role waits for.
//===----------------------------------------------------------------------===//
#pragma once

#include "megalith/WideKeys.cuh"

namespace megalith::device::wide {

/// q * k of a round: of pairs g and g + 8 of the warp and keys 8i + 2t, 8i + 2t + 1.
template <class A>
__device__ __forceinline__ void multiplyKeys(AttendRing<A> &ring, const char *queries, float (&s)[32][4]) {
  using T = AttendShape<A>;
  int before = 0;
#pragma unroll
  for (int slab = 0; slab < T::slabs; ++slab) {
    ring.awaitFull();
    const bool wide = T::dimsOfSlab(slab) == 64;
    const char *const stage = ring.at(ring.stage);
    const SharedMatrix keys = wide ? sharedMatrix128(stage, 2 * kEightBytes) : sharedMatrix(stage, kEightBytes);
    asyncMmaBegin();
#pragma unroll
    for (int i = 0; i < (wide ? 4 : 2); ++i)
      asyncMmaScores(
          s, laterColumns(sharedMatrix(queries + (2 * slab + i / 2) * T::queryBlockBytes, kEightBytes), i % 2 * 32),
          laterColumns(keys, i * 32), slab + i > 0);
    asyncMmaCommit();
    if (slab > 0) {
      asyncMmaWaitLast();
      ring.release(before);
    }
    before = ring.stage;
    ring.advance();
  }
  asyncMmaEnd();
  asyncMmaSettle(s);
  ring.release(before);
}

/// Weights of a round, from its scores: of each eight of keys, of the two pairs. m is scaled.
template <class A>
__device__ __forceinline__ void findWeights(const float (&s)[32][4], float scale, u32 (&weights)[32][2], float (&m)[2],
                                            float (&z)[2]) {
  using S = AttentionShape<A>;
  float shift[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    m[h] = __int_as_float(0xff800000);
#pragma unroll
    for (int i = 0; i < 32; ++i)
      m[h] = fmaxf(m[h], fmaxf(s[i][2 * h], s[i][2 * h + 1]));
#pragma unroll
    for (int d = 1; d < 4; d *= 2)
      m[h] = fmaxf(m[h], __shfl_xor_sync(~0u, m[h], d));
    shift[h] = S::shift(m[h], scale);
    m[h] = S::scaled(m[h], scale);
    z[h] = 0.0f;
  }
#pragma unroll
  for (int leaf = 0; leaf < 8; ++leaf) {
    float of[2][2] = {}; // of keys 2t and 2t + 1
#pragma unroll
    for (int i = leaf; i < 32; i += 8)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const u32 both = packBf16(S::weight(s[i][2 * h], shift[h], scale), S::weight(s[i][2 * h + 1], shift[h], scale));
        weights[i][h] = both;
        of[h][0] = __fadd_rn(of[h][0], bf16Low(both));
        of[h][1] = __fadd_rn(of[h][1], bf16High(both));
      }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float sum = __fadd_rn(of[h][0], of[h][1]);
#pragma unroll
      for (int d = 1; d < 4; d *= 2)
        sum = __fadd_rn(sum, __shfl_xor_sync(~0u, sum, d));
      z[h] = __fadd_rn(z[h], sum);
    }
  }
}

/// p * v of a round and 8 * N dims, which stand in a stage. OneEight: a step has one eight of keys.
template <int N, bool OneEight>
__device__ __forceinline__ void multiplyValues(const char *stage, const u32 (&weights)[32][2], const int &positive,
                                               float (&o)[N][4]) {
  constexpr int eight = 16 * N * 8; // bytes of eight positions
  const auto matrix = [&](int first) {
    return N == 8 ? sharedMatrix128(stage + first * eight, 8 * eight) : sharedMatrix(stage + first * eight, 8 * eight);
  };
  float leafSums[N][4];
#pragma unroll
  for (int i = 0; i < N; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j)
      o[i][j] = leafSums[i][j] = 0.0f;
#pragma unroll
  for (int leaf = 0; leaf < 8; ++leaf) {
#pragma unroll
    for (int step = 0; step < 2; ++step) {
      const int first = leaf + 16 * step, second = first + 8;
      const u32(&one)[2] = weights[first], (&two)[2] = weights[second];
      const auto take = [&](u32 a0, u32 a1, u32 a2, u32 a3, bool add) {
        if constexpr (OneEight) { // a copy, which ptxas does not see through: it would keep zeros beside all weights
          const u32 zero = loadShared(&positive, 0) >> 31;
          a0 |= zero, a1 |= zero, a2 |= zero, a3 |= zero;
        }
        if (OneEight || !add)
          asyncMmaBegin(); // what was read of the sums has been read: without it bits are wrong
        asyncMmaOfRows(leafSums, a0, a1, a2, a3, matrix(first), add);
      };
      take(one[0], one[1], OneEight ? 0 : two[0], OneEight ? 0 : two[1], step > 0);
      if (OneEight)
        take(0, 0, two[0], two[1], true);
    }
    asyncMmaEnd();
    asyncMmaSettle(leafSums);
#pragma unroll
    for (int i = 0; i < N; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j)
        o[i][j] = __fadd_rn(o[i][j], leafSums[i][j]);
  }
}

/// Of two pairs: how a part is taken into another.
struct Taking {
  float before[2], now[2];
  bool some[2]; ///< else the part is of nothing
  /// The sums of it, too.
  __device__ __forceinline__ void take(Float4 *into, bool there, Float4 part) const {
    Float4 sum = there ? *into : Float4{0, 0, 0, 0};
    const auto both = [&](int h, float x, float y) { return some[h] ? sumOfParts(x, before[h], y, now[h]) : x; };
    *into = {both(0, sum.x, part.x), both(0, sum.y, part.y), both(1, sum.z, part.z), both(1, sum.w, part.w)};
  }
};
/// A consumer thread's attention of a layer. Of the warp's 16 pairs it has g and g + 8, and of each eight of dims 2t
/// and 2t + 1. Words of the unit are read where they are needed: while it multiplies few registers are left.
template <class W, class A> struct Attending {
  using T = AttendShape<A>;
  using S = AttentionShape<A>;
  const int layer;
  const float scale;
  const int warp = __shfl_sync(~0u, warpId(), 0);
  AttendRing<A> ring = AttendRing<A>(W::shared().stages, W::shared().sync.attend, warp);
  int open = 0; ///< levels of which there is a part: bit 0 that of single rounds, in shared memory

  __device__ __forceinline__ const AttendUnit &unit() const { return W::shared().units[ring.turn & 1]; }
  /// (m, z) of the two pairs of the unit's open part, and its sums.
  __device__ __forceinline__ Float4 *openMost() const {
    return reinterpret_cast<Float4 *>(W::shared().turns + warp * kTurnBytes) + laneId();
  }
  __device__ __forceinline__ Float4 *openSums() const {
    return reinterpret_cast<Float4 *>(W::shared().stages + T::sumsAt) + threadIdx.x;
  }
  /// The same of a level above, in memory.
  __device__ __forceinline__ Float4 *most(int level) const {
    return reinterpret_cast<Float4 *>(W::parts() + (level - 1) * T::levelBytes) + threadIdx.x;
  }
  /// Eight of the thread's pair h in the tile.
  __device__ __forceinline__ int eightOf(int h) const { return 2 * (T::halves ? warp % 4 : warp) + h; }
  __device__ __forceinline__ int headOf(int h) const { return eightOf(h) / T::rowEights; }
  __device__ __forceinline__ int rowOf(int h) const {
    return unit().firstRow + eightOf(h) % T::rowEights * 8 + laneId() / 4;
  }
  __device__ __forceinline__ bool has(int h) const {
    const int row = rowOf(h);
    return headOf(h) < unit().heads && row >= unit().begin && row < unit().end;
  }

  __device__ __forceinline__ void run() {
#pragma unroll 1
    for (;; ++ring.turn) {
      barrierAwait(&ring.sync->queries, ring.turn & 1);
      __syncwarp();
      const int end = __shfl_sync(~0u, unit().endRound, 0);
      if (end == 0)
        break;
      open = 0;
#pragma unroll 1
      for (int round = __shfl_sync(~0u, unit().round, 0); round < end; ++round) {
        takeRound(round, round + 1 == end);
        if (S::levels() > 1 && round % 8 == 7 && round + 1 < end)
          close(round / 8);
      }
      finish();
      count();
    }
    ring.arrive(&ring.sync->taken);
    __syncwarp();
    barrierAwait(&ring.sync->entered, ring.layer++ & 1);
    __syncwarp(); // no lane still waits when the producers have begun the next layer
    ring.arrive(&ring.sync->left);
    ++ring.turn;
    ring.keep();
  }

  /// A round becomes part of the unit's open part.
  __device__ __forceinline__ void takeRound(int round, bool last) {
    const int lane = laneId(), t = lane & 3, first = round * T::round, window = S::window(layer);
    float s[32][4];
    multiplyKeys<A>(ring, W::shared().stages + T::queriesAt + (T::halves ? 0 : warp / 4 * 8 * kEightBytes), s);
    if (last)
      ring.arrive(&ring.sync->taken);
    if constexpr (S::capped)
#pragma unroll
      for (int i = 0; i < 32; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j)
          s[i][j] = T::score(s[i][j], scale);
    else if (!S::scalesLate(scale))
#pragma unroll
      for (int i = 0; i < 32; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j)
          s[i][j] = T::score(s[i][j], scale);
    const int visible = unit().begin + unit().offset + 1; // to the first row
    if (first + T::round > visible || first < S::windowFrom(unit().end + unit().offset, window)) {
      const int seen[2] = {has(0) ? rowOf(0) + unit().offset + 1 : 0, has(1) ? rowOf(1) + unit().offset + 1 : 0};
#pragma unroll
      for (int i = 0; i < 32; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j)
          if (!S::sees(first + 8 * i + 2 * t + j % 2, seen[j / 2], window))
            s[i][j] = __int_as_float(0xff800000);
    }
    u32 weights[32][2];
    float m[2], z[2];
    findWeights<A>(s, scale, weights, m, z);
    const Taking taking = take(openMost(), open & 1, m, z);
    // Of heads whose dims two warpgroups share, a warpgroup leaves the other's stages as they are.
    const int group = T::halves ? warp / 4 : 0;
    constexpr int ownSlabs = T::halves ? T::slabs / 2 : T::slabs;
    skip(group * ownSlabs);
#pragma unroll
    for (int slab = 0; slab < ownSlabs; ++slab)
      if (T::dimsOfSlab(slab) == 64)
        takeValues<8>(slab, weights, taking);
      else
        takeValues<4>(slab, weights, taking);
    if (T::halves)
      skip((1 - group) * ownSlabs);
    open |= 1;
  }
  template <int N>
  __device__ __forceinline__ void takeValues(int slab, const u32 (&weights)[32][2], const Taking &taking) {
    ring.awaitFull();
    float o[N][4];
    multiplyValues<N, T::halves>(ring.at(ring.stage), weights, unit().endRound, o);
    ring.release(ring.stage);
    ring.advance();
#pragma unroll
    for (int i = 0; i < N; ++i)
      taking.take(openSums() + (8 * slab + i) * kConsumerThreads, open & 1, {o[i][0], o[i][1], o[i][2], o[i][3]});
  }
  __device__ __forceinline__ void skip(int stages) {
#pragma unroll 1
    for (; stages > 0; --stages) {
      ring.awaitFull();
      ring.release(ring.stage);
      ring.advance();
    }
  }

  /// Takes (m, z) of a part into those at `into`, if there are some.
  __device__ __forceinline__ static Taking take(Float4 *into, bool there, const float (&m)[2], const float (&z)[2]) {
    const float nothing = __int_as_float(0xff800000);
    const Float4 sum = there ? *into : Float4{nothing, nothing, 0, 0};
    float ms[2] = {sum.x, sum.y}, zs[2] = {sum.z, sum.w};
    Taking taking;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      taking.some[h] = !isNoPart(m[h], z[h]);
      const PartScales scales = scalesOfParts(ms[h], m[h]);
      taking.before[h] = scales.before;
      taking.now[h] = scales.now;
      zs[h] = taking.some[h] ? sumOfParts(zs[h], scales.before, z[h], scales.now) : zs[h];
      ms[h] = taking.some[h] ? scales.m : ms[h];
    }
    *into = {ms[0], ms[1], zs[0], zs[1]};
    return taking;
  }

  /// The open part becomes one of the level above, as number `number` of that level; and so on.
  __device__ __forceinline__ void close(int number) {
    int level = 0;
#pragma unroll 1
    do {
      push(level);
      open &= ~(1 << level);
      ++level;
    } while (level + 1 < S::levels() && number % 8 == 7 && (number /= 8, true));
  }
  /// Takes a level's part into that of the level above.
  __device__ __forceinline__ void push(int level) {
    if constexpr (S::levels() > 1) {
      const Float4 *const from = level ? most(level) : openMost();
      const Float4 *const sums = level ? from + kConsumerThreads : openSums();
      pushInto(level + 1, *from, sums);
    }
  }
  __device__ __forceinline__ void pushInto(int level, Float4 mz, const Float4 *sums) {
    const bool there = open >> level & 1;
    Float4 *const into = most(level);
    const Taking taking = take(into, there, {mz.x, mz.y}, {mz.z, mz.w});
#pragma unroll 2
    for (int i = 0; i < T::words; ++i)
      taking.take(into + (1 + i) * kConsumerThreads, there, sums[i * kConsumerThreads]);
    open |= 1 << level;
  }

  /// The unit's parts become what its rows get.
  __device__ __forceinline__ void finish() {
    Float4 mz = *openMost();
    const Float4 *sums = openSums();
#pragma unroll 1
    for (int level = 1; level < S::levels(); ++level)
      if (open >> level & 1) {
        pushInto(level, mz, sums);
        mz = *most(level);
        sums = most(level) + kConsumerThreads;
      }
    const int lane = laneId(), t = lane & 3, dims = T::halves ? warp / 4 * T::ownDims : 0;
    const Image<A::heads * A::headDim> image{W::attended(layer)};
#pragma unroll 1
    for (int block = 0; block < T::words / 4; ++block) { // of 32 dims
      u32 words[2][4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const Float4 sum = sums[(4 * block + i) * kConsumerThreads];
        words[0][i] = packBf16(quotientOfAny(sum.x, mz.z), quotientOfAny(sum.y, mz.z));
        words[1][i] = packBf16(quotientOfAny(sum.z, mz.w), quotientOfAny(sum.w, mz.w));
      }
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        turn(words[h]);
        const int row = rowOf(h), head = unit().firstHead + headOf(h);
        if (has(h))
          image.from(row / kTile * kTile)
              .store(row % kTile, head * A::headDim + dims + 32 * block + 8 * t,
                     {words[h][0], words[h][1], words[h][2], words[h][3]});
      }
    }
  }
  /// Word i of lane t becomes word t of lane i, of each four lanes.
  __device__ __forceinline__ static void turn(u32 (&words)[4]) {
    const int t = laneId() & 3;
#pragma unroll
    for (int d = 1; d < 4; d *= 2)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (!(i & d)) {
          u32 &low = words[i], &high = words[i | d];
          const u32 other = __shfl_xor_sync(~0u, t & d ? low : high, d);
          (t & d ? low : high) = other;
        }
  }

  /// Tells that the unit has been written.
  __device__ __forceinline__ void count() const {
    consumerSync();
    if (threadIdx.x == 0) {
      fenceAsync(); // the next reader is an asynchronous copy
      const int begin = unit().begin, end = unit().end;
#pragma unroll 1
      for (int row = begin, next; row < end; row = next) {
        next = min(end, (row / kCountedRows + 1) * kCountedRows);
        addRelease(W::shared().pass.done + row / kCountedRows, next - row);
      }
    }
  }
};

/// Warps 0 to 7: all units of this CTA in a layer.
template <class W, class A> __device__ __forceinline__ void attend(int layer) {
  Attending<W, A>{layer, W::scale}.run();
}

} // namespace megalith::device::wide
