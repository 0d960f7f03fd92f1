//===- Attention.cuh - grouped-query attention over paged KV --------------===//
//
// Sum tree `radix8`: keys in blocks of 16 positions counted from 0. A warp computes a
// block's maximum m, p = bf16(exp(s - m)), z = sum of p and o = sum of p * v (a chain over
// the positions). Eight neighbouring blocks make a round of 128 positions, eight rounds
// the next larger part, and so on: (m, z, o) of the eight, in f32 and ascending order.
// What lies beyond the row's visible keys does not exist, so a row's bits depend on its own
// visible keys alone, wherever its parts are computed.
//
// Work is dealt to the CTAs in units: the heads of a group, of one row, over a range of
// 128 * 8^level positions. The level follows from the lengths of the pass: ranges as short
// as the room for their sums allows. A row of several ranges is put together by one CTA,
// from words that carry the number of the pass and the layer.
//===----------------------------------------------------------------------===//
#pragma once

namespace megalith::device {

/// Heads of one KV head that a CTA takes together: the largest divisor of the
/// group that is at most 4.
__device__ constexpr int headsTogether(int group) {
  for (int n = 4; n > 1; --n)
    if (group % n == 0)
      return n;
  return 1;
}

/// Dims of a value that one lane adds up: the fewest that divide `dim` evenly among at
/// most 32 lanes.
__device__ constexpr int dimsOfLane(int dim) {
  int n = (dim + 31) / 32;
  while (dim % n != 0)
    ++n;
  return n;
}

/// Positions whose values a warp loads at once.
#if __CUDA_ARCH__ >= 900
constexpr int kValuesInFlight = 16;
#else
constexpr int kValuesInFlight = 4; // ptxas spills with more
#endif

/// (m, z, o) of one output column over some keys.
struct Soft {
  float m = __int_as_float(0xff800000), z = 0.0f, o = 0.0f;
  __device__ __forceinline__ void take(float m2, float z2, float o2) {
    const float larger = fmaxf(m, m2), before = expf(m - larger), now = expf(m2 - larger);
    z = __fadd_rn(__fmul_rn(z, before), __fmul_rn(z2, now));
    o = __fadd_rn(__fmul_rn(o, before), __fmul_rn(o2, now));
    m = larger;
  }
};

/// Puts parts together, eight of a level into one of the next. Taking a single part in
/// changes no bit, so a part is the same however many levels lie above it.
template <int Levels> struct SoftTree {
  Soft open[Levels];
  /// Part number `index` of its level; in ascending order.
  __device__ __forceinline__ void push(int level, int index, Soft part) {
    bool carry = true;
#pragma unroll
    for (int k = 0; k < Levels; ++k)
      if (carry && k >= level) {
        open[k].take(part.m, part.z, part.o);
        carry = k + 1 < Levels && index % 8 == 7;
        if (carry) {
          part = open[k];
          open[k] = Soft();
          index /= 8;
        }
      }
  }
  __device__ __forceinline__ Soft total() const {
    Soft sum = open[0];
#pragma unroll
    for (int k = 1; k < Levels; ++k) {
      const Soft lower = sum;
      sum = open[k];
      if (lower.m > __int_as_float(0xff800000) || lower.z != 0.0f)
        sum.take(lower.m, lower.z, lower.o);
    }
    return sum;
  }
};

/// Levels above rounds that the pool's positions can fill, and heads of a row's units.
template <class A> __device__ constexpr int softLevels() {
  int levels = 1;
  for (long long covered = 1024; covered < (long long)A::pages * A::pageTokens; covered *= 8)
    ++levels;
  return levels;
}
template <class A> __device__ constexpr int unitsOfRow() { return A::heads / headsTogether(A::heads / A::kvHeads); }

/// Deals the pass's attention: the level of its ranges, and how many the rows before have.
/// Warp 0; the caller synchronises.
template <class A> __device__ __forceinline__ void planRanges(PassShared &pass) {
  const int lane = laneId();
  const int low = lane < pass.numRows ? pass.rows[lane].visible : 0;
  const int high = lane + 32 < pass.numRows ? pass.rows[lane + 32].visible : 0;
  int level = 0, ofLow, ofHigh, uptoLow, uptoHigh;
  for (;; ++level) {
    const int size = 128 << 3 * level;
    uptoLow = ofLow = (low + size - 1) / size;
    uptoHigh = ofHigh = (high + size - 1) / size;
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
      const int beforeLow = __shfl_up_sync(~0u, uptoLow, d), beforeHigh = __shfl_up_sync(~0u, uptoHigh, d);
      uptoLow += lane >= d ? beforeLow : 0;
      uptoHigh += lane >= d ? beforeHigh : 0;
    }
    uptoHigh += __shfl_sync(~0u, uptoLow, 31);
    if (level == softLevels<A>() || __shfl_sync(~0u, uptoHigh, 31) * unitsOfRow<A>() <= A::mostUnits)
      break;
  }
  pass.rangesUpto[lane] = uptoLow;
  pass.rangesUpto[lane + 32] = uptoHigh;
  if (lane == 0)
    pass.rangeLevel = level;
}

/// K and V of the pass's own rows. In the pool, when a barrier stands behind the append ...
struct InPool {
  static constexpr bool apart = false;
};
/// ... or in buffers [rows][kvHeads * headDim] of the pass.
template <class Rows> struct InRows {
  static constexpr bool apart = true;
  Rows keys, values;
};
template <class Rows> __device__ __forceinline__ InRows<Rows> inRows(Rows keys, Rows values) { return {keys, values}; }

/// For each row and query head: store(row, column, value) with column in
/// [0, heads * headDim); four neighbouring lanes store neighbouring columns. `A`: heads,
/// kvHeads, headDim, the pool's layers, pageTokens, pages, and room for the sums of
/// `mostUnits` units at byte `sums` of the tagged words. `edge`: behind this phase.
template <class A, class Own, class Query, class Store>
__device__ __forceinline__ void attend(const GridEdges &grid, int edge, const PassShared &pass, int layer, float scale,
                                       float *scratch, Own own, Query query, Store store) {
  const abi::LaunchParams &p = *grid.params;
  constexpr int D = A::headDim, H = headsTogether(A::heads / A::kvHeads);
  constexpr int perRow = unitsOfRow<A>();
  constexpr int half = D / 2;                   // dims of a key that one lane multiplies
  constexpr int laneDims = dimsOfLane(D);
  constexpr int owned = (H * D + kConsumerThreads - 1) / kConsumerThreads;
  static_assert(D % 16 == 0 && D <= 256, "head_dim is a multiple of 16, at most 256");
  using Tree = SoftTree<softLevels<A>()>;
  float *q = scratch;                           // [H][D]
  float *partials = scratch + H * D;            // [warp][H][D + 2]: o, m, z
  const int warp = warpId(), lane = laneId();
  const u16 *kCache = reinterpret_cast<const u16 *>(p.kCache) + kvLayer<A>(layer);
  const u16 *vCache = reinterpret_cast<const u16 *>(p.vCache) + kvLayer<A>(layer);
  u64 *sums = reinterpret_cast<u64 *>(p.tagged + A::sums); // [unit][H][D + 2]: o, m, z
  const u32 tag = pass.number * A::layers + layer + 1;
  const int level = pass.rangeLevel, rangeRounds = 1 << 3 * level;
  const int units = pass.rangesUpto[pass.numRows - 1] * perRow;

  for (int unit = blockIdx.x, row = 0; unit < units; unit += gridDim.x) {
    while (unit / perRow >= pass.rangesUpto[row])
      ++row;
    const int before = row ? pass.rangesUpto[row - 1] : 0, range = unit / perRow - before;
    const bool whole = pass.rangesUpto[row] - before == 1;
    const int firstHead = unit % perRow * H;
    const int kvHead = firstHead / (A::heads / A::kvHeads);
    const int visible = pass.rows[row].visible;
    const int *pages = p.pageTable + (long long)pass.rows[row].slot * p.pageTableStride;
    // Positions from `ownFrom` on are rows of this pass, from `ownRow` on.
    const int ownRow = pass.firstOfSlot[row], ownFrom = pass.rows[ownRow].position;
    const auto keyOffset = [&](int position) {
      const int page = (int)loadWord(pages + position / A::pageTokens);
      return (((long long)page * A::kvHeads + kvHead) * A::pageTokens + position % A::pageTokens) * D;
    };
    consumerSync(); // the scratch may still be read by the previous unit or phase
    for (int i = threadIdx.x; i < H * D; i += kConsumerThreads)
      q[i] = query(row, firstHead * D + i);
    consumerSync();

    Tree trees[owned];
    for (int round = range * rangeRounds; round < (range + 1) * rangeRounds && round * 128 < visible; ++round) {
      const int first = (round * kConsumerWarps + warp) * 16;
      if (first < visible) {
        const int position = first + (lane & 15), part = lane >> 4;
        const bool seen = position < visible;
        const long long offset = keyOffset(seen ? position : first);
        float s[H];
#pragma unroll
        for (int h = 0; h < H; ++h)
          s[h] = 0.0f;
        const auto multiply = [&](int d, Words4 words) {
          const Floats<8> k = unpack8(words);
#pragma unroll
          for (int h = 0; h < H; ++h)
#pragma unroll
            for (int i = 0; i < 8; ++i)
              s[h] = __fmaf_rn(q[h * D + part * half + d + i], k.v[i], s[h]);
        };
        bool inPool = true;
        if constexpr (Own::apart)
          if (const int ownKey = ownRow + (seen ? position : first) - ownFrom; ownKey >= ownRow) {
            inPool = false;
#pragma unroll
            for (int d = 0; d < half; d += 32) {
              Words4 words[4];
#pragma unroll
              for (int i = 0; i < 4 && d + i * 8 < half; ++i)
                words[i] = own.keys.peek(ownKey, kvHead * D + part * half + d + i * 8);
#pragma unroll
              for (int i = 0; i < 4 && d + i * 8 < half; ++i) {
                own.keys.settle(ownKey, kvHead * D + part * half + d + i * 8, words[i]);
                multiply(d + i * 8, words[i]);
              }
            }
          }
        if (inPool) {
#pragma unroll
          for (int d = 0; d < half; d += 8)
            multiply(d, loadWords(kCache + offset + part * half + d));
        }
        float m[H], z[H], weight[H];
#pragma unroll
        for (int h = 0; h < H; ++h) {
          s[h] = __fadd_rn(s[h], __shfl_xor_sync(~0u, s[h], 16));
          s[h] = seen ? __fmul_rn(s[h], scale) : __int_as_float(0xff800000);
          m[h] = s[h];
#pragma unroll
          for (int d = 8; d; d >>= 1)
            m[h] = fmaxf(m[h], __shfl_xor_sync(~0u, m[h], d));
          weight[h] = seen ? roundBf16(expf(s[h] - m[h])) : 0.0f;
          z[h] = weight[h];
#pragma unroll
          for (int d = 8; d; d >>= 1)
            z[h] = __fadd_rn(z[h], __shfl_xor_sync(~0u, z[h], d));
        }
        float o[H][laneDims];
#pragma unroll
        for (int h = 0; h < H; ++h)
#pragma unroll
          for (int i = 0; i < laneDims; ++i)
            o[h][i] = 0.0f;
        const int dim = lane * laneDims < D ? lane * laneDims : 0;
        const auto addUp = [&](int j, Floats<laneDims> v) {
#pragma unroll
          for (int h = 0; h < H; ++h) {
            const float w = __shfl_sync(~0u, weight[h], j);
#pragma unroll
            for (int i = 0; i < laneDims; ++i)
              o[h][i] = __fmaf_rn(w, v.v[i], o[h][i]);
          }
        };
        const int fromPool = Own::apart ? min(16, ownFrom - first) : 16;
        // No branch stands between these loads: they are under way together.
        const auto addPool = [&](int j) {
          const long long at = __shfl_sync(~0u, offset, j);
          Floats<laneDims> v;
          if constexpr (laneDims == 8) {
            v = unpack8(loadWords(vCache + at + dim));
          } else if constexpr (laneDims % 2 == 0) {
#pragma unroll
            for (int i = 0; i < laneDims; i += 2) {
              const u32 w = loadWord(vCache + at + dim + i);
              v.v[i] = bf16Low(w);
              v.v[i + 1] = bf16High(w);
            }
          } else {
#pragma unroll
            for (int i = 0; i < laneDims; ++i)
              v.v[i] = bf16ToFloat(loadHalfWord(vCache + at + dim + i));
          }
          addUp(j, v);
        };
#pragma unroll kValuesInFlight
        for (int j = 0; j < 16; ++j) {
          if (j >= fromPool || first + j >= visible)
            break;
          addPool(j);
        }
        if constexpr (Own::apart) {
          for (int j = max(fromPool, 0); j < 16 && first + j < visible; ++j) {
            const int ownKey = ownRow + first + j - ownFrom, column = kvHead * D + dim;
            addUp(j, own.values.template loadMany<laneDims>(ownKey, column));
          }
        }
#pragma unroll
        for (int h = 0; h < H; ++h) {
          float *at = partials + (warp * H + h) * (D + 2);
          if (lane * laneDims < D)
#pragma unroll
            for (int i = 0; i < laneDims; ++i)
              at[lane * laneDims + i] = o[h][i];
          if (lane == 0) {
            at[D] = m[h];
            at[D + 1] = z[h];
          }
        }
      }
      consumerSync();
#pragma unroll
      for (int j = 0; j < owned; ++j) {
        const int i = threadIdx.x + j * kConsumerThreads, h = i / D, d = i % D;
        if (i < H * D) {
          Soft sum;
          for (int w = 0; w < kConsumerWarps && (round * kConsumerWarps + w) * 16 < visible; ++w) {
            const float *at = partials + (w * H + h) * (D + 2);
            sum.take(at[D], at[D + 1], at[d]);
          }
          trees[j].push(0, round, sum);
        }
      }
      consumerSync();
    }
#pragma unroll
    for (int j = 0; j < owned; ++j) {
      const int i = threadIdx.x + j * kConsumerThreads, h = i / D, d = i % D;
      if (i < H * D) { // a multiple of four
        const Soft sum = trees[j].total();
        if (whole) {
          store(row, firstHead * D + i, __fdiv_rn(sum.o, sum.z));
          continue;
        }
        u64 *at = sums + ((long long)unit * H + h) * (D + 2);
        storeTagged2(at + d, __float_as_uint(sum.o), tag);
        if (d < 2)
          storeTagged2(at + D + d, __float_as_uint(d ? sum.z : sum.m), tag);
      }
    }
  }

  // Rows of several ranges; the CTAs that had a unit less begin.
  for (int item = ((int)blockIdx.x + (int)gridDim.x - units % (int)gridDim.x) % (int)gridDim.x;
       item < pass.numRows * perRow; item += gridDim.x) {
    const int row = item / perRow, group = item % perRow;
    const int before = row ? pass.rangesUpto[row - 1] : 0, ranges = pass.rangesUpto[row] - before;
    if (ranges == 1)
      continue;
#pragma unroll
    for (int j = 0; j < owned; ++j) {
      const int i = threadIdx.x + j * kConsumerThreads, h = i / D, d = i % D;
      if (i >= H * D)
        continue;
      Tree tree;
      constexpr int batch = 4;
      for (int base = 0; base < ranges; base += batch) {
        u64 words[batch][3];
        const auto at = [&](int k) {
          return sums + (((long long)before + min(base + k, ranges - 1)) * perRow + group) * (H * (D + 2)) + h * (D + 2);
        };
#pragma unroll
        for (int k = 0; k < batch; ++k) {
          words[k][0] = loadTagged2(at(k) + d);
          words[k][1] = loadTagged2(at(k) + D);
          words[k][2] = loadTagged2(at(k) + D + 1);
        }
#pragma unroll
        for (int k = 0; k < batch; ++k)
          if (base + k < ranges)
            tree.push(level, base + k,
                      {awaitTagged(grid, edge, at(k) + D, words[k][1], tag),
                       awaitTagged(grid, edge, at(k) + D + 1, words[k][2], tag),
                       awaitTagged(grid, edge, at(k) + d, words[k][0], tag)});
      }
      const Soft sum = tree.total();
      store(row, group * H * D + i, __fdiv_rn(sum.o, sum.z));
    }
  }
}

} // namespace megalith::device
