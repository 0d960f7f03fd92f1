//===- Attention.cuh - grouped-query attention over paged KV --------------===//
//
// Sum tree `blocks16`: keys in blocks of 16 positions counted from 0. A warp
// computes a block's maximum m, p = bf16(exp(s - m)), z = sum of p and o = sum of
// p * v (a chain over the positions); blocks are merged in ascending order with
// f32 (m, z, o). Blocks beyond the row's visible keys do not exist, so a row's
// bits depend on its own visible keys alone.
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

/// Floats of shared scratch that attention needs.
template <class A> __device__ constexpr int attentionScratch() {
  constexpr int heads = headsTogether(A::heads / A::kvHeads);
  return heads * A::headDim + kConsumerWarps * heads * (A::headDim + 2);
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
/// kvHeads, headDim, and the pool's pageTokens, pages.
template <class A, class Own, class Query, class Store>
__device__ __forceinline__ void attend(const abi::LaunchParams &p, const PassShared &pass, int layer, float scale,
                                       float *scratch, Own own, Query query, Store store) {
  constexpr int D = A::headDim, H = headsTogether(A::heads / A::kvHeads);
  constexpr int perRow = A::heads / H;          // units of one row
  constexpr int half = D / 2;                   // dims of a key that one lane multiplies
  constexpr int laneDims = dimsOfLane(D);
  constexpr int owned = (H * D + kConsumerThreads - 1) / kConsumerThreads;
  static_assert(D % 16 == 0 && D <= 256, "head_dim is a multiple of 16, at most 256");
  float *q = scratch;                           // [H][D]
  float *partials = scratch + H * D;            // [warp][H][D + 2]: o, m, z
  const int warp = warpId(), lane = laneId();
  const u16 *kCache = reinterpret_cast<const u16 *>(p.kCache) + kvLayer<A>(layer);
  const u16 *vCache = reinterpret_cast<const u16 *>(p.vCache) + kvLayer<A>(layer);

  for (int unit = blockIdx.x; unit < pass.numRows * perRow; unit += gridDim.x) {
    const int row = unit / perRow, firstHead = unit % perRow * H;
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

    float runM[owned], runZ[owned], runO[owned];
#pragma unroll
    for (int j = 0; j < owned; ++j) {
      runM[j] = __int_as_float(0xff800000);
      runZ[j] = runO[j] = 0.0f;
    }
    for (int round = 0; round * 128 < visible; ++round) {
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
#pragma unroll kValuesInFlight
        for (int j = 0; j < 16; ++j) {
          if (first + j >= visible)
            break;
          const long long at = __shfl_sync(~0u, offset, j);
          float v[laneDims];
          bool inPool = true;
          if constexpr (Own::apart)
            if (const int ownKey = ownRow + first + j - ownFrom; ownKey >= ownRow) {
              inPool = false;
              const int column = kvHead * D + dim;
              if constexpr (laneDims == 8) {
                const Floats<8> f = own.values.load8(ownKey, column);
#pragma unroll
                for (int i = 0; i < 8; ++i)
                  v[i] = f.v[i];
              } else {
#pragma unroll
                for (int i = 0; i < laneDims; ++i)
                  v[i] = own.values.load(ownKey, column + i).v[0];
              }
            }
          if (!inPool) {
          } else if constexpr (laneDims == 8) {
            const Floats<8> f = unpack8(loadWords(vCache + at + dim));
#pragma unroll
            for (int i = 0; i < 8; ++i)
              v[i] = f.v[i];
          } else if constexpr (laneDims % 2 == 0) {
#pragma unroll
            for (int i = 0; i < laneDims; i += 2) {
              const u32 w = loadWord(vCache + at + dim + i);
              v[i] = bf16Low(w);
              v[i + 1] = bf16High(w);
            }
          } else {
#pragma unroll
            for (int i = 0; i < laneDims; ++i)
              v[i] = bf16ToFloat(loadHalfWord(vCache + at + dim + i));
          }
#pragma unroll
          for (int h = 0; h < H; ++h) {
            const float w = __shfl_sync(~0u, weight[h], j);
#pragma unroll
            for (int i = 0; i < laneDims; ++i)
              o[h][i] = __fmaf_rn(w, v[i], o[h][i]);
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
        if (i < H * D)
          for (int w = 0; w < kConsumerWarps && (round * kConsumerWarps + w) * 16 < visible; ++w) {
            const float *at = partials + (w * H + h) * (D + 2);
            const float m = fmaxf(runM[j], at[D]);
            const float before = expf(runM[j] - m), now = expf(at[D] - m);
            runZ[j] = __fadd_rn(__fmul_rn(runZ[j], before), __fmul_rn(at[D + 1], now));
            runO[j] = __fadd_rn(__fmul_rn(runO[j], before), __fmul_rn(at[d], now));
            runM[j] = m;
          }
      }
      consumerSync();
    }
#pragma unroll
    for (int j = 0; j < owned; ++j) {
      const int i = threadIdx.x + j * kConsumerThreads;
      if (i < H * D) // a multiple of four
        store(row, firstHead * D + i, __fdiv_rn(runO[j], runZ[j]));
    }
  }
}

} // namespace megalith::device
