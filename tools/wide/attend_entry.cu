// Stands for the tensor unit: an entry that attends, and what checks it. Compiled for each shape as attend.cu is.
#include "megalith/Abi.h"
#include "megalith/Contract/Row.h"
#include "megalith/WideAttend.cuh"
namespace abi = megalith::abi;
using namespace megalith::device;
#include "AttendTestShapes.h"

constexpr int D = Pool::headDim, kColumns = Pool::heads * D;
using S = AttentionShape<Pool>;
extern "C" {
__device__ void megalith_wide_deal();
__device__ void megalith_wide_attend(int layer);
__device__ void megalith_wide_keys(int layer, int part);
__device__ void megalith_wide_queries(int layer);
}
extern "C" __global__ void __launch_bounds__(384, 1) run(const __grid_constant__ AttendParams p) {
  Shared &shared = sharedOfCta();
  if (threadIdx.x == 0) {
    shared.params = p;
    shared.model = {};
    shared.model.kCache = p.keys, shared.model.vCache = p.values;
    shared.model.pageTable = p.pageTable, shared.model.pageTableStride = p.pageTableStride;
    shared.pass = {p.rows, {0, p.layers - 1, 0, 1}, {}, p.done};
    wide::startSync(shared.sync);
  }
  __syncthreads();
  if (threadIdx.x < 32)
    megalith_wide_deal();
  __syncthreads();
  const int part = threadIdx.x / 32 - kConsumerWarps;
  for (int layer = 0; layer < p.layers; ++layer)
    if (part < 0)
      megalith_wide_attend(layer);
    else if (part < wide::kWeightWarps)
      megalith_wide_keys(layer, part);
    else if (part == wide::kWeightWarps)
      megalith_wide_queries(layer);
}

__device__ float randomOf(u64 i, u32 seed) {
  u64 z = (i + 1) * 0x9e3779b97f4a7c15ull + (u64)seed * 0xbf58476d1ce4e5b9ull;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull, z = (z ^ z >> 27) * 0x94d049bb133111ebull, z ^= z >> 31;
  return (float)(u32)(z >> 40) * (2.f / (1 << 24)) - 1.f;
}
#define EACH(i, n)                                                                                                     \
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < (n); i += (long long)gridDim.x * blockDim.x)
__device__ u16 *at(const AttendParams &p, char *cache, int layer, int slot, int position, int kvHead) {
  const int page = p.pageTable[slot * p.pageTableStride + position / Pool::pageTokens];
  return reinterpret_cast<u16 *>(cache) + pageAddress<Pool>(layer, page, kvHead, position % Pool::pageTokens);
}
/// Keys and values of a run's positions, in all layers. Elsewhere there is NaN.
extern "C" __global__ void fillPool(const __grid_constant__ AttendParams p, int run) {
  const int positions = p.run[run].position + p.run[run].rows;
  EACH(i, (long long)p.layers * positions * Pool::kvHeads * D) {
    const int d = i % D, head = i / D % Pool::kvHeads, position = i / D / Pool::kvHeads % positions,
              layer = i / D / Pool::kvHeads / positions;
    at(p, p.keys, layer, p.run[run].slot, position, head)[d] = floatToBf16(2 * randomOf(i, 2 * run + 1));
    at(p, p.values, layer, p.run[run].slot, position, head)[d] = floatToBf16(randomOf(i, 2 * run + 2));
  }
}
extern "C" __global__ void fillQueries(char *to, int rows) {
  const wide::Image<kColumns> image{to};
  EACH(i, (long long)rows * kColumns) {
    const int row = i / kColumns, c = i % kColumns;
    reinterpret_cast<u16 *>(image.from(row / 128 * 128).at(row % 128, c))[c % 8] = floatToBf16(2 * randomOf(i, 99));
  }
}

/// (m, z, o) of some positions. Lane t has dims 8i + 2t and 8i + 2t + 1.
struct Part {
  float m = __int_as_float(0xff800000), z = 0, o[D / 4] = {};
  __device__ void take(const Part &part) {
    if (isNoPart(part.m, part.z))
      return;
    const PartScales scales = scalesOfParts(m, part.m);
    m = scales.m, z = sumOfParts(z, scales.before, part.z, scales.now);
    for (int i = 0; i < D / 4; ++i)
      o[i] = sumOfParts(o[i], scales.before, part.o[i], scales.now);
  }
};
/// The law of docs/ir.md with mma.sync: a warp goes through the rounds of a row and a head. y: [row][kColumns].
extern "C" __global__ void law(const __grid_constant__ AttendParams p, int layer, u16 *y) {
  __shared__ float scores[4][256];
  __shared__ u32 weights[4][128];
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, w = threadIdx.x / 32;
  const long long number = blockIdx.x * 4ll + w;
  const int row = number / Pool::heads, head = number % Pool::heads, kvHead = head / S::group;
  if (row >= p.rows)
    return;
  int run = 0;
  while (row >= p.run[run].firstRow + p.run[run].rows)
    ++run;
  const int slot = p.run[run].slot, seen = p.run[run].position + row - p.run[run].firstRow + 1,
            window = S::window(layer), from = S::windowFrom(seen, window);
  const wide::Image<kColumns> image{const_cast<char *>(p.queries)};
  const auto query = [&](int d) {
    return *(reinterpret_cast<const u32 *>(image.from(row / 128 * 128).at(row % 128, head * D + d / 8 * 8)) + d % 8 / 2);
  };
  Part open[4];
  for (int round = from / 256; round * 256 < seen; ++round) {
    const auto sees = [&](int i) { return S::sees(round * 256 + i, seen, window); };
    const auto row32 = [&](char *cache, int i, int d) { // two dims of a position, zeros where it is not seen
      return sees(i) ? *reinterpret_cast<const u32 *>(at(p, cache, layer, slot, round * 256 + i, kvHead) + d) : 0u;
    };
    float most = __int_as_float(0xff800000);
    for (int i = 0; i < 256; i += 16) {
      float c[4] = {};
      for (int d = 0; d < D; d += 16)
        mma(c, row32(p.keys, i + g, d + 4 * t), row32(p.keys, i + g + 8, d + 4 * t),
            row32(p.keys, i + g, d + 4 * t + 2), row32(p.keys, i + g + 8, d + 4 * t + 2), g ? 0 : query(d + 4 * t),
            g ? 0 : query(d + 4 * t + 2));
      if (t == 0)
        for (int j = 0; j < 2; ++j) {
          const float s = sees(i + g + 8 * j) ? S::score(c[2 * j], SCALE) : __int_as_float(0xff800000);
          scores[w][i + g + 8 * j] = s;
          most = fmaxf(most, s);
        }
    }
    for (int d = 1; d < 32; d *= 2)
      most = fmaxf(most, __shfl_xor_sync(~0u, most, d));
    __syncwarp();
    const float shift = S::shift(most, SCALE);
    for (int i = lane; i < 128; i += 32)
      weights[w][i] =
          packBf16(S::weight(scores[w][2 * i], shift, SCALE), S::weight(scores[w][2 * i + 1], shift, SCALE));
    __syncwarp();
    Part part;
    part.m = S::scaled(most, SCALE);
    for (int leaf = 0; leaf < 8; ++leaf) {
      const auto pairOf = [&](int block, int pair) { return weights[w][32 * block + 4 * leaf + pair]; };
      float z[8] = {};
      for (int block = 0; block < 4; ++block)
        for (int i = 0; i < 8; ++i)
          z[i] = __fadd_rn(z[i], i % 2 ? bf16High(pairOf(block, i / 2)) : bf16Low(pairOf(block, i / 2)));
      for (int d = 1; d < 8; d *= 2)
        for (int i = 0; i < 8; i += 2 * d)
          z[i] = __fadd_rn(z[i], z[i + d]);
      part.z = __fadd_rn(part.z, z[0]);
      for (int eight = 0; eight < D / 8; ++eight) {
        const auto values = [&](int block) { // of dim g, positions 2t and 2t + 1 of the eight
          const auto one = [&](int i) { return row32(p.values, i, eight * 8 + g / 2 * 2) >> g % 2 * 16 & 0xffff; };
          const int first = 64 * block + 8 * leaf + 2 * t;
          return one(first) | one(first + 1) << 16;
        };
        float c[4] = {};
        if (D > 128)
          for (int block = 0; block < 4; ++block)
            mma(c, g ? 0 : pairOf(block, t), 0, 0, 0, values(block), 0);
        else
          for (int block = 0; block < 4; block += 2)
            mma(c, g ? 0 : pairOf(block, t), 0, g ? 0 : pairOf(block + 1, t), 0, values(block), values(block + 1));
        for (int j = 0; j < 2; ++j)
          part.o[2 * eight + j] = __fadd_rn(part.o[2 * eight + j], c[j]);
      }
    }
    for (int level = 0, index = round;; ++level, index /= 8) {
      open[level].take(part);
      if (index % 8 != 7)
        break;
      part = open[level];
      open[level] = Part();
    }
  }
  Part sum = open[0];
  for (int level = 1; level < 4; ++level) {
    const Part lower = sum;
    sum = open[level];
    sum.take(lower);
  }
  if (g == 0)
    for (int i = 0; i < D / 4; ++i)
      y[row * (long long)kColumns + head * D + i / 2 * 8 + 2 * t + i % 2] = floatToBf16(__fdiv_rn(sum.o[i], sum.z));
}
extern "C" __global__ void countImage(const char *image, const u16 *y, int rows, u64 *different) {
  const wide::Image<kColumns> of{const_cast<char *>(image)};
  EACH(i, (long long)rows * kColumns) {
    const int row = i / kColumns, c = i % kColumns;
    if (reinterpret_cast<const u16 *>(of.from(row / 128 * 128).at(row % 128, c))[c % 8] != y[i])
      atomicAdd(different, 1ull);
  }
}
/// What the host has to know of the shape.
extern "C" __global__ void sizes(long long *to) {
  to[0] = kColumns;
  to[1] = PoolStrides<Pool>::layer * 2;
  to[2] = wide::AttendShape<Pool>::partBytes;
}
