//===- Primitives.cuh - device/Primitives.def on the CPU executor -----------===//
//
// In place of cuda/Primitives.cuh: the device code and the emitted source are the
// same text as for a GPU.
//===----------------------------------------------------------------------===//
#pragma once

#include "megalith/Convert.h"
#include "megalith/Types.cuh"

#include "megalith/Cuda.h"

namespace megalith::device {

#define PRIMITIVE(Result, Name, Parameters, Memory) __device__ __forceinline__ Result Name Parameters;
#include "megalith/Primitives.def"

// --- arithmetic ---------------------------------------------------------------

u32 packE4m3(float low, float high) {
  return convert::e4m3OfF32(__float_as_uint(low)) | (u32)convert::e4m3OfF32(__float_as_uint(high)) << 8;
}

u32 packBf16(float low, float high) {
  const auto round = [](float f) -> u32 {
    const u32 bits = __float_as_uint(f);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
      return 0x7fff; // the GPU's NaN
    return (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
  };
  return round(low) | round(high) << 16;
}

float exp2OfScore(float x) { return exp2f(x); }
float quotient(float n, float d) { return n / d; }
float quotientOfAny(float n, float d) { return n / d; }
u32 lowHalves(u32 low, u32 high) { return (low & 0xffffu) | high << 16; }
u32 highHalves(u32 low, u32 high) { return low >> 16 | (high & 0xffff0000u); }
u32 transposed(u32 words) {
  const int i = (int)(threadIdx.x & 31) >> 2, j = (int)threadIdx.x & 3; // from column i of rows 2j and 2j + 1
  const u32 even = __shfl_sync(~0u, words, 8 * j + i / 2), odd = __shfl_sync(~0u, words, 8 * j + 4 + i / 2);
  return i & 1 ? highHalves(even, odd) : lowHalves(even, odd);
}
u32 mulBf16(u32 a, u32 b) {
  return packBf16(__uint_as_float(a << 16) * __uint_as_float(b << 16),
                  __uint_as_float(a & 0xffff0000u) * __uint_as_float(b & 0xffff0000u));
}

u32 maskedOr(u32 bits, u32 mask, u32 more) { return (bits & mask) | more; }
u32 fmaBf16(u32 a, u32 b, u32 c) { // f64 holds the sum of what codes become
  const auto one = [](u32 x, u32 y, u32 z) {
    return (float)((double)__uint_as_float(x) * (double)__uint_as_float(y) + (double)__uint_as_float(z));
  };
  return packBf16(one(a << 16, b << 16, c << 16), one(a & 0xffff0000u, b & 0xffff0000u, c & 0xffff0000u));
}

void mma(float (&c)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  const cpu::MmaLane mine = {{c[0], c[1], c[2], c[3]}, {a0, a1, a2, a3}, {b0, b1}};
  const char *all = cpu::kernel::warp(cpu::WarpOp::Mma, ~0u, &mine, sizeof(mine), cpu::kernel::mmaOfWarp);
  const cpu::MmaLane result = peek<cpu::MmaLane>(all + (threadIdx.x & 31) * cpu::kLaneBytes);
  for (int i = 0; i < 4; ++i)
    c[i] = result.c[i];
}

constexpr bool kAsyncMma = false;
/// The address, and above it how far eights of rows are apart. Bit 48: rows have 128 bytes.
SharedMatrix sharedMatrix(const char *p, int eight) { return (u64)p | (u64)eight << 48; }
SharedMatrix sharedMatrix128(const char *p, int eight) { return sharedMatrix(p, eight | 1); }
SharedMatrix laterColumns(SharedMatrix matrix, int bytes) { return matrix + bytes; }
/// Where column k of a row stands.
__device__ inline const char *atMatrix(SharedMatrix matrix, int row, int k) {
  const bool long128 = matrix >> 48 & 1;
  const int rowBytes = long128 ? 128 : 64, inEight = row % 8, swizzle = long128 ? inEight : inEight / 2;
  const u64 at = matrix & ((1ull << 48) - 1), block = at & ~u64(8 * rowBytes - 1);
  const int piece = int(at % rowBytes) / 16 + k / 8;
  return (const char *)block + row / 8 * int(matrix >> 48 & ~1) + inEight * rowBytes + (piece ^ swizzle) * 16 +
         k % 8 * 2;
}
/// The word of columns k and k + 1 of a row.
__device__ inline u32 wordOfMatrix(SharedMatrix matrix, int row, int k) {
  return loadShared(atMatrix(matrix, row, k), 0);
}
/// Lane 4g + t brings columns k and k + 1, and others `toNext` later, as those with the numbers 2t, 2t + 1, 2t + 8, 2t
/// + 9.
template <int N>
__device__ inline void multiplyMatrices(float (&c)[N][4], SharedMatrix a, SharedMatrix b, bool add, int k, int toNext) {
  const int lane = threadIdx.x & 31, row = (threadIdx.x >> 5) % 4 * 16 + lane / 4;
  const u32 a0 = wordOfMatrix(a, row, k), a1 = wordOfMatrix(a, row + 8, k), a2 = wordOfMatrix(a, row, k + toNext),
            a3 = wordOfMatrix(a, row + 8, k + toNext);
  for (int i = 0; i < N; ++i) {
    for (float &sum : c[i])
      sum = add ? sum : 0.0f;
    mma(c[i], a0, a1, a2, a3, wordOfMatrix(b, 8 * i + lane / 4, k), wordOfMatrix(b, 8 * i + lane / 4, k + toNext));
  }
}
template <int N> __device__ inline void multiplyMatrices(float (&c)[N][4], SharedMatrix a, SharedMatrix b, bool add) {
  multiplyMatrices(c, a, b, add, (threadIdx.x & 3) * 2, 8);
}
template <int N>
__device__ inline void multiplyRows(float (&c)[N][4], u32 a0, u32 a1, u32 a2, u32 a3, SharedMatrix b, bool add) {
  const int lane = threadIdx.x & 31, k = lane % 4 * 2;
  for (int i = 0; i < N; ++i) {
    const auto pairAt = [&](int row) {
      const auto half = [&](int row) { return u32(*(const u16 *)atMatrix(b, row, 8 * i + lane / 4)); };
      return half(row) | half(row + 1) << 16;
    };
    for (float &sum : c[i])
      sum = add ? sum : 0.0f;
    mma(c[i], a0, a1, a2, a3, pairAt(k), pairAt(k + 8));
  }
}
void asyncMma(float (&c)[8][4], SharedMatrix a, SharedMatrix b, bool add) { multiplyMatrices(c, a, b, add); }
void asyncMma(float (&c)[16][4], SharedMatrix a, SharedMatrix b, bool add) { multiplyMatrices(c, a, b, add); }
template <int N>
__device__ inline void multiplyByMatrix(float (&c)[N][4], u32 a0, u32 a1, u32 a2, u32 a3, SharedMatrix b, bool add) {
  const int lane = threadIdx.x & 31, k = lane % 4 * 2;
  for (int i = 0; i < N; ++i) {
    for (float &sum : c[i])
      sum = add ? sum : 0.0f;
    mma(c[i], a0, a1, a2, a3, wordOfMatrix(b, 8 * i + lane / 4, k), wordOfMatrix(b, 8 * i + lane / 4, k + 8));
  }
}
void asyncMma(float (&c)[8][4], u32 a0, u32 a1, u32 a2, u32 a3, SharedMatrix b, bool add) {
  multiplyByMatrix(c, a0, a1, a2, a3, b, add);
}
void asyncMma(float (&c)[16][4], u32 a0, u32 a1, u32 a2, u32 a3, SharedMatrix b, bool add) {
  multiplyByMatrix(c, a0, a1, a2, a3, b, add);
}
void asyncMmaScores(float (&c)[32][4], SharedMatrix a, SharedMatrix b, bool add) {
  multiplyMatrices(c, a, b, add, (threadIdx.x & 3) * 4, 2);
}
void asyncMmaOfRows(float (&c)[4][4], u32 a0, u32 a1, u32 a2, u32 a3, SharedMatrix b, bool add) {
  multiplyRows(c, a0, a1, a2, a3, b, add);
}
void asyncMmaOfRows(float (&c)[8][4], u32 a0, u32 a1, u32 a2, u32 a3, SharedMatrix b, bool add) {
  multiplyRows(c, a0, a1, a2, a3, b, add);
}
void asyncMmaBegin() {}
void asyncMmaEnd() {}
void asyncMmaCommit() {}
void asyncMmaWaitLast() {}
void asyncMmaSettle(float (&)[8][4]) {}
void asyncMmaSettle(float (&)[16][4]) {}
void asyncMmaSettle(float (&)[4][4]) {}
void asyncMmaSettle(float (&)[32][4]) {}
constexpr bool kMatrixLoads = false; // that lanes meet costs more than the loads

// --- plain loads: the compiler's instrumentation sees them ----------------------

u16 loadHalfWord(const void *p) { return *static_cast<const u16 *>(p); }
u32 loadWord(const void *p) { return *static_cast<const u32 *>(p); }
Words4 loadWords(const void *p) { return *static_cast<const Words4 *>(p); }
Words4 loadWordsUpTo(const void *p, int bytes) {
  if (bytes >= 16)
    return loadWords(p);
  u16 halves[8] = {};
  for (int i = 0; 2 * i < bytes; ++i)
    halves[i] = static_cast<const u16 *>(p)[i];
  return __builtin_bit_cast(Words4, halves);
}
Words4 loadConstWords(const void *p) {
  cpu::kernel::readOnly(p, 16);
  return peek<Words4>(p);
}

// --- the CTA ----------------------------------------------------------------------

char *dynamicShared() { return cpu::kernel::shared(); }
void assumeShared(const void *) {}
void assumeGlobal(const void *) {}
void assumeLocal(const void *) {}
u32 threadAgain() { return threadIdx.x; }
u32 ctasAgain() { return gridDim.x; }
u32 ctaAgain() { return blockIdx.x; }
u32 loadShared(const void *p, int bytes) {
  return *reinterpret_cast<const u32 *>(static_cast<const char *>(p) + bytes);
}
Words2 loadShared2(const void *p, int bytes) {
  return *reinterpret_cast<const Words2 *>(static_cast<const char *>(p) + bytes);
}
Words4 loadShared4(const void *p, int bytes) {
  return *reinterpret_cast<const Words4 *>(static_cast<const char *>(p) + bytes);
}
void consumerSync() { cpu::kernel::barrier(1, kConsumerThreads); }
void idleSync() { cpu::kernel::barrier(2, kIdleThreads); }
bool consumerSyncAny(bool mine) { return cpu::kernel::barrierAny(1, kConsumerThreads, mine); }
u32 loadFlag(const u32 *p) { return load(p, cpu::Order::Acquire, cpu::Scope::Cta); }
void storeFlag(u32 *p, u32 value) { atomic(cpu::AtomicOp::Store, p, value, cpu::Order::Release, cpu::Scope::Cta); }
void addFlag(u32 *p, u32 value) { atomic(cpu::AtomicOp::Add, p, value, cpu::Order::Release, cpu::Scope::Cta); }

// --- the grid ---------------------------------------------------------------------

u32 loadRelaxed(const u32 *p) { return load(p, cpu::Order::Relaxed, cpu::Scope::Gpu); }
u32 loadAcquire(const u32 *p) { return load(p, cpu::Order::Acquire, cpu::Scope::Gpu); }
u32 addAcquireRelease(u32 *p, u32 value) {
  return u32(atomic(cpu::AtomicOp::Add, p, value, cpu::Order::AcquireRelease, cpu::Scope::Gpu));
}
void addRelease(u32 *p, u32 value) { atomic(cpu::AtomicOp::Add, p, value, cpu::Order::Release, cpu::Scope::Gpu); }
Words4 loadFlagged(const Words4 *p) {
  Words4 w;
  cpu::kernel::load16(p, &w, cpu::Order::Relaxed, cpu::Scope::Gpu);
  return w;
}
void storeFlagged(Words4 *p, Words4 w) { cpu::kernel::store16(p, &w, cpu::Order::Relaxed, cpu::Scope::Gpu); }
u64 loadFlagged2(const u64 *p) { return load(p, cpu::Order::Relaxed, cpu::Scope::Gpu); }
void storeFlagged2(u64 *p, u32 value, u32 tag) {
  atomic(cpu::AtomicOp::Store, p, u64(tag) << 32 | value, cpu::Order::Relaxed, cpu::Scope::Gpu);
}
Words4 loadFresh4(const void *p) {
  const u32 *words = static_cast<const u32 *>(p);
  return {loadRelaxed(words), loadRelaxed(words + 1), loadRelaxed(words + 2), loadRelaxed(words + 3)};
}
void storeFresh(void *p, u32 word) {
  atomic(cpu::AtomicOp::Store, static_cast<u32 *>(p), word, cpu::Order::Relaxed, cpu::Scope::Gpu);
}
void storeFresh4(void *p, Words4 w) {
  u32 *words = static_cast<u32 *>(p);
  storeFresh(words, w.x);
  storeFresh(words + 1, w.y);
  storeFresh(words + 2, w.z);
  storeFresh(words + 3, w.w);
}

// --- the host -----------------------------------------------------------------------

u32 loadSystem(const u32 *p) { return load(p, cpu::Order::Acquire, cpu::Scope::System); }
u32 hearWord(const u32 *p) { return load(p, cpu::Order::Relaxed, cpu::Scope::System); }
void storeSystem(u32 *p, u32 value) { atomic(cpu::AtomicOp::Store, p, value, cpu::Order::Release, cpu::Scope::System); }
void tellWord(u32 *p, u32 value) { atomic(cpu::AtomicOp::Store, p, value, cpu::Order::Relaxed, cpu::Scope::System); }

// --- barriers and asynchronous copies -----------------------------------------------

void barrierInit(u64 *bar, u32 count) { cpu::kernel::mbarrierInit(bar, count); }
void barriersReady() { cpu::kernel::proxyFence(cpu::Space::Shared); }
void barrierArrive(u64 *bar) { cpu::kernel::mbarrierArrive(bar); }
void barrierArriveExpect(u64 *bar, u32 bytes) { cpu::kernel::mbarrierArriveExpect(bar, bytes); }
void barrierAwait(u64 *bar, u32 parity) {
  while (!barrierTest(bar, parity)) {
  }
}
bool barrierTest(u64 *bar, u32 parity) { return cpu::kernel::mbarrierTest(bar, parity); }
bool barrierPeek(u64 *bar, u32 parity) { return cpu::kernel::mbarrierTest(bar, parity); }
void prefetch(const void *) {}
void bringNear(const void *) {}
void prefetchBulk(const void *p, u32 bytes) { cpu::kernel::prefetchBulk(p, bytes); }
void fenceAsync() { cpu::kernel::proxyFence(cpu::Space::Global); }
void fenceAsyncShared() { cpu::kernel::proxyFence(cpu::Space::Shared); }
void copyBulk(void *to, const void *from, u32 bytes, u64 *bar) { cpu::kernel::copyBulk(to, from, bytes, bar); }
void copyBulkAgain(void *to, const void *from, u32 bytes, u64 *bar) { cpu::kernel::copyBulk(to, from, bytes, bar); }
void copyBulkOfWarp(void *to, const void *from, u32 bytes, u64 *bar) {
  if (__any_sync(~0u, true) && threadIdx.x % 32 == 0) // waits for all lanes, and orders nothing
    cpu::kernel::copyBulk(to, from, bytes, bar);
}
void barrierArriveExpectOfWarp(u64 *bar, u32 bytes) {
  if (__any_sync(~0u, true) && threadIdx.x % 32 == 0)
    barrierArriveExpect(bar, bytes);
}
void copyAsync(void *to, const void *from) { cpu::kernel::copyAsync(to, from); }
void copyAsyncOrZeros(void *to, const void *from, bool there) {
  if (there)
    copyAsync(to, from);
  else
    *static_cast<Words4 *>(to) = {0, 0, 0, 0};
}
void copyAsyncArrive(u64 *bar) { cpu::kernel::copyAsyncArrive(bar); }

// --- time ---------------------------------------------------------------------------

u64 nanoseconds() { return cpu::kernel::nanoseconds(); }
void noteEdge(int edge) { cpu::kernel::edge(edge); }
void noteStop() { cpu::kernel::stops(); }
constexpr bool kChecksPools = true;
void brokenPool(int pool, const char *what) { cpu::kernel::brokenPool(pool, what); }

} // namespace megalith::device

#undef MEGALITH_CPU_PLAIN // the emitted source sees no macro without a first `_`
