// Stands for the tensor unit: the entry, and what checks it.
#include "megalith/Abi.h"
#include "megalith/Packing.cuh"
#include "megalith/Contract/Row.h"
#include "megalith/Rows.cuh"
#include "megalith/WideRoles.cuh"
namespace abi = megalith::abi;
using namespace megalith::device;
#include "WideTestShapes.h"

extern "C" {
__device__ void megalith_wide_deal();
__device__ void megalith_wide_work();
__device__ void megalith_wide_multiply();
__device__ void megalith_wide_weights(int part);
__device__ void megalith_wide_rows();
__device__ void megalith_wide_signal();
}
extern "C" __global__ void __launch_bounds__(384, 1) run(const __grid_constant__ TestParams p) {
  Shared &shared = sharedOfCta();
  if (threadIdx.x == 0) {
    shared.params = p;
    shared.pass = {p.rows, {0, p.layers - 1, p.first, p.first + p.count}, {}, p.done};
    wide::startSync(shared.sync);
  }
  __syncthreads();
  if (threadIdx.x < 32)
    megalith_wide_deal();
  __syncthreads();
  const int warp = threadIdx.x / 32;
  if (warp < kConsumerWarps) {
    const auto tell = [&](int layer, int first, int end) {
      if (threadIdx.x == 0)
        shared.pass.now = {layer, layer, first, end};
    };
    const auto isWork = [](int step) { return step == 0 || step == 3; }; // see unit.cu
    for (int layer = 0; layer < p.layers; ++layer)
      for (int step = p.first; step < p.first + p.count;) {
        int end = step + 1;
        while (!isWork(step) && end < p.first + p.count && !isWork(end))
          ++end;
        tell(layer, step, end);
        if (isWork(step))
          megalith_wide_work();
        else
          megalith_wide_multiply();
        step = end;
      }
  } else if (warp < kConsumerWarps + wide::kWeightWarps) {
    megalith_wide_weights(warp - kConsumerWarps);
  } else if (warp == kConsumerWarps + wide::kWeightWarps) {
    megalith_wide_rows();
  } else {
    megalith_wide_signal();
  }
}

__device__ float randomOf(u64 i, u32 seed) {
  u64 z = (i + 1) * 0x9e3779b97f4a7c15ull + (u64)seed * 0xbf58476d1ce4e5b9ull;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull, z = (z ^ z >> 27) * 0x94d049bb133111ebull, z ^= z >> 31;
  return (float)(u32)(z >> 40) * (2.f / (1 << 24)) - 1.f;
}
#define EACH(i, n)                                                                                                     \
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < (n); i += (long long)gridDim.x * blockDim.x)
extern "C" __global__ void fillRandom(u16 *to, long long n, float scale, u32 seed) {
  EACH(i, n) to[i] = floatToBf16(scale * randomOf(i, seed));
}
extern "C" __global__ void fillRope(float *to, int positions) { // [position][32][2], rounded to bf16
  EACH(i, (long long)positions * 64) {
    const int position = i / 64, j = i / 2 % 32;
    const float angle = position * exp2f(-j * (18.93f / 32));
    to[i] = roundBf16(i % 2 ? sinf(angle) : cosf(angle));
  }
}
/// The natural row of a packed row: of wq, wk, wv; gate, up; others.
__device__ int rowOf(int kind, int packed) {
  const int pair = packed / 2, odd = packed % 2;
  if (kind == 0 && pair < 1280) {
    const int base = pair < 1024 ? 0 : 1024, j = pair - base;
    return 2 * base + j / 32 * 64 + j % 32 + 32 * odd;
  }
  if (kind == 2)
    return pair + 8192 * odd;
  return packed;
}
template <class M> __device__ void pack(char *to, const u16 *w, int kind) {
  constexpr int chunks = M::blocks / M::chunkBlocks;
  EACH(i, (long long)M::groups * M::group * 8 * M::k / 8) { // a piece of 16 bytes
    long long rest = i;
    const int piece = rest % 4;
    rest /= 4;
    const int row = rest % 8;
    rest /= 8;
    const int block = rest % M::chunkBlocks;
    rest /= M::chunkBlocks;
    const int tile = rest % M::group;
    rest /= M::group;
    const int eighth = rest % 8;
    rest /= 8;
    const int chunk = rest % chunks, g = rest / chunks;
    const int packed = (g * M::group + tile) * 8 + row;
    const int column = (eighth * M::blocks + chunk * M::chunkBlocks + block) * 32 + (piece ^ row / 2 % 4) * 8;
    reinterpret_cast<Words4 *>(to)[i] =
        *reinterpret_cast<const Words4 *>(w + (long long)rowOf(kind, packed) * M::k + column);
  }
}
extern "C" __global__ void packWeights(char *stream, const u16 *w, int kind, int layer) {
  if (kind == 0)
    pack<matrices::WqWkWv>(stream + matrices::WqWkWv::offset + layer * matrices::WqWkWv::layerBytes, w, 0);
  else if (kind == 1)
    pack<matrices::Wo>(stream + matrices::Wo::offset + layer * matrices::Wo::layerBytes, w, 1);
  else if (kind == 2)
    pack<matrices::GateUp>(stream + matrices::GateUp::offset + layer * matrices::GateUp::layerBytes, w, 2);
  else
    pack<matrices::Down>(stream + matrices::Down::offset + layer * matrices::Down::layerBytes, w, 3);
}
extern "C" __global__ void packRows(char *to, const u16 *x, int rows) {
  wide::Image<2048> image{to};
  EACH(i, (long long)rows * 256)
  image.from(i / 256 / 128 * 128).store(i / 256 % 128, i % 256 * 8, *reinterpret_cast<const Words4 *>(x + i * 8));
}
/// y[M][N] = x w^T in the order of sums. A warp: 16 rows by 32 weight rows. grid (N / 32, rows / 64), 128 threads.
extern "C" __global__ void product(const u16 *w, const u16 *x, float *y, int N, int K, int rows) {
  const int lane = threadIdx.x % 32, m0 = (blockIdx.y * 4 + threadIdx.x / 32) * 16, r = lane / 4, c = lane % 4 * 2;
  const auto word = [&](const u16 *p) { return *reinterpret_cast<const u32 *>(p); };
  const u16 *a = x + (long long)min(m0 + r, rows - 1) * K + c, *a8 = x + (long long)min(m0 + r + 8, rows - 1) * K + c;
  float total[4][4];
  for (int e = 0; e < 8; ++e) {
    float sum[4][4] = {};
    for (int k = e * (K / 8); k < (e + 1) * (K / 8); k += 16)
#pragma unroll
      for (int t = 0; t < 4; ++t) {
        const u16 *b = w + (long long)(blockIdx.x * 32 + t * 8 + r) * K + k + c;
        mma(sum[t], word(a + k), word(a8 + k), word(a + k + 8), word(a8 + k + 8), word(b), word(b + 8));
      }
#pragma unroll
    for (int t = 0; t < 4; ++t)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        total[t][i] = e ? __fadd_rn(total[t][i], sum[t][i]) : sum[t][i];
  }
#pragma unroll
  for (int t = 0; t < 4; ++t)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (m0 + r + i / 2 * 8 < rows)
        y[(long long)(m0 + r + i / 2 * 8) * N + blockIdx.x * 32 + t * 8 + c + i % 2] = total[t][i];
}
__device__ int positionIn(const TestParams &p, int row, int &slot) {
  int i = 0;
  while (i + 1 < p.runs && row >= p.run[i + 1].firstRow)
    ++i;
  slot = p.run[i].slot;
  return p.run[i].position + row - p.run[i].firstRow;
}
extern "C" __global__ void norms(const u16 *norm, const u16 *x, u16 *to, int rows) {
  for (int row = blockIdx.x * 8 + threadIdx.x / 32; row < rows; row += gridDim.x * 8)
    normOfRow(
        norm, [&](int c) { return unpack8(*reinterpret_cast<const Words4 *>(x + row * 2048ll + c)); },
        [&](int c, Words4 words) { *reinterpret_cast<Words4 *>(to + row * 2048ll + c) = words; });
}
/// What comes after a product, one column (of rope: a pair) at a time.
extern "C" __global__ void after(const __grid_constant__ TestParams p, const float *y, u16 *to, int kind, int layer) {
  if (kind == 0) {
    EACH(i, (long long)p.rows * 1536) {
      const int row = i / 1536, pair = i % 1536;
      int slot;
      const int position = positionIn(p, row, slot);
      const int n0 = rowOf(0, 2 * pair), n1 = rowOf(0, 2 * pair + 1);
      auto v = toBf16(Floats<2>{{y[row * 3072ll + n0], y[row * 3072ll + n1]}});
      Floats<2> out = v;
      if (pair < 1280) {
        const float *cs = p.ropeCosSin + position * 64 + pair % 32 * 2;
        const float c = cs[0], s = cs[1];
        out.v[0] = roundBf16(roundBf16(v.v[0] * c) + roundBf16(-v.v[1] * s));
        out.v[1] = roundBf16(roundBf16(v.v[1] * c) + roundBf16(v.v[0] * s));
      }
      for (int j = 0; j < 2; ++j) {
        const int n = j ? n1 : n0;
        if (n < 2048) {
          to[row * 2048ll + n] = floatToBf16(out.v[j]);
        } else {
          const int col = (n - 2048) % 512, page = p.pageTable[slot * p.pageTableStride + position / 128];
          u16 *cache = (n < 2560 ? p.keys : p.values) + layer * PoolStrides<Pool>::layer;
          cache[pageAddress<Pool>(0, page, 0, position % 128) + columnAddress<Pool>(col)] = floatToBf16(out.v[j]);
        }
      }
    }
  } else if (kind == 2) {
    EACH(i, (long long)p.rows * 8192) {
      const int row = i / 8192, c = i % 8192;
      const float g = roundBf16(y[row * 16384ll + c]), u = roundBf16(y[row * 16384ll + 8192 + c]);
      to[i] = floatToBf16(__fmul_rn(roundBf16(silu(g)), u));
    }
  } else {
    EACH(i, (long long)p.rows * 2048) to[i] = floatToBf16(__fadd_rn(bf16ToFloat(to[i]), roundBf16(y[i])));
  }
}
template <int Columns> __device__ void count(const char *image, const u16 *y, int rows, u64 *different) {
  wide::Image<Columns> of{const_cast<char *>(image)};
  EACH(i, (long long)rows * Columns) {
    const int row = i / Columns, c = i % Columns;
    if (reinterpret_cast<const u16 *>(of.from(row / 128 * 128).at(row % 128, c))[c % 8] != y[i])
      atomicAdd(different, 1ull);
  }
}
extern "C" __global__ void countImage(const char *image, const u16 *y, int rows, int columns, u64 *different) {
  if (columns == 2048)
    count<2048>(image, y, rows, different);
  else
    count<8192>(image, y, rows, different);
}
extern "C" __global__ void countPlain(const u32 *a, const u32 *b, long long n, u64 *different) {
  EACH(i, n) if (a[i] != b[i]) atomicAdd(different, 1ull);
}
