//===- Cuda.h - CUDA's built-ins on the CPU executor ----------------------===//
//
// What emitted sources and device/*.cuh use of the language, and no more: a name
// that is not here is an error of the compiler, which the driver turns into one
// that names it.
//===----------------------------------------------------------------------===//
#pragma once

#include "megalith/Host.h"

// Not the host's <math.h>: these are all that the device code may call.
extern "C" {
float expf(float);
float logf(float);
float exp2f(float);
float log1pf(float);
float tanhf(float);
float erff(float);
double sqrt(double);
}

namespace megalith::cpu::kernel {
// Defined by Hooks.cpp. What is read there is the executor's own, so nothing of it is
// instrumented; a thread keeps its identity as long as it lives.
#define HOST_CALL(Result, Name, Parameters, Arguments) __attribute__((visibility("hidden"))) Result Name Parameters;
#include "megalith/HostCalls.def"
__attribute__((visibility("hidden"))) void mmaOfWarp(char *deposits);
__attribute__((visibility("hidden"), const)) unsigned threadX();
__attribute__((visibility("hidden"), const)) unsigned ctaX();
__attribute__((visibility("hidden"), const)) unsigned threads();
__attribute__((visibility("hidden"), const)) unsigned ctas();
__attribute__((visibility("hidden"), const)) char *shared();
} // namespace megalith::cpu::kernel

#define __device__
#define __constant__ const
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __global__ __attribute__((visibility("default")))
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) alignas(n)
#define __restrict__ __restrict
// Of a value that the host finds by its name.
#define MEGALITH_VISIBLE __attribute__((visibility("default")))
#define MEGALITH_OFFSET(Type, Member) int(__builtin_offsetof(Type, Member))

#define MEGALITH_CPU_PLAIN __attribute__((no_sanitize("thread")))

// Objects and no macros: what the user names may have these names, too.
template <unsigned (*Of)()> struct MegalithCpuWord {
  operator unsigned() const { return Of(); }
};
template <unsigned (*Of)(), unsigned Others> struct MegalithCpuIndex {
  MegalithCpuWord<Of> x;
  static constexpr unsigned y = Others, z = Others;
};
inline constexpr MegalithCpuIndex<megalith::cpu::kernel::threadX, 0> threadIdx = {};
inline constexpr MegalithCpuIndex<megalith::cpu::kernel::ctaX, 0> blockIdx = {};
inline constexpr MegalithCpuIndex<megalith::cpu::kernel::threads, 1> blockDim = {};
inline constexpr MegalithCpuIndex<megalith::cpu::kernel::ctas, 1> gridDim = {};

// --- bits and arithmetic, each rounded once (-ffp-contract=off) -----------------

inline float __uint_as_float(unsigned v) { return __builtin_bit_cast(float, v); }
inline unsigned __float_as_uint(float v) { return __builtin_bit_cast(unsigned, v); }
inline float __int_as_float(int v) { return __builtin_bit_cast(float, v); }
inline int __float_as_int(float v) { return __builtin_bit_cast(int, v); }
inline float __int2float_rn(int v) { return float(v); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline float __frsqrt_rn(float v) { return float(1.0 / sqrt(double(v))); }
inline float fmaxf(float a, float b) { return a != a ? b : b != b ? a : a < b ? b : a; }
inline float fminf(float a, float b) { return a != a ? b : b != b ? a : b < a ? b : a; }
/// These are estimates: nothing that is told may depend on their last bits.
inline float __logf(float v) { return logf(v); }
inline float __fdividef(float a, float b) { return a / b; }
inline float fabsf(float v) { return __builtin_fabsf(v); }
inline int __popc(unsigned v) { return __builtin_popcount(v); }
inline int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
inline int __ffs(unsigned v) { return __builtin_ffs(int(v)); }
inline int min(int a, int b) { return b < a ? b : a; }
inline int max(int a, int b) { return a < b ? b : a; }
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }
inline long long min(long long a, long long b) { return b < a ? b : a; }
inline long long max(long long a, long long b) { return a < b ? b : a; }

// --- memory ---------------------------------------------------------------------

namespace megalith::device {

/// A load that the compiler does not report: the executor has been told otherwise.
template <class T> MEGALITH_CPU_PLAIN inline T peek(const void *p) { return *static_cast<const T *>(p); }
template <class T>
inline T atomic(cpu::AtomicOp op, T *p, T value, cpu::Order order, cpu::Scope scope, T compare = T()) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  using Bits = unsigned long long;
  return T(megalith::cpu::kernel::atomic(op, p, sizeof(T), sizeof(T) == 4 ? Bits(unsigned(value)) : Bits(value),
                                         sizeof(T) == 4 ? Bits(unsigned(compare)) : Bits(compare), order, scope));
}
template <class T> inline T load(const T *p, cpu::Order order, cpu::Scope scope) {
  return atomic(cpu::AtomicOp::Load, const_cast<T *>(p), T(), order, scope);
}

} // namespace megalith::device

template <class T> inline T __ldg(const T *p) {
  megalith::cpu::kernel::readOnly(p, sizeof(T));
  return megalith::device::peek<T>(p);
}

#define MEGALITH_CPU_ATOMIC(Name, Op)                                                                                  \
  template <class T> inline T Name(T *p, T value) {                                                                    \
    return megalith::device::atomic(megalith::cpu::AtomicOp::Op, p, value, megalith::cpu::Order::Relaxed,              \
                                    megalith::cpu::Scope::Gpu);                                                        \
  }
MEGALITH_CPU_ATOMIC(atomicAdd, Add)
MEGALITH_CPU_ATOMIC(atomicExch, Exchange)
MEGALITH_CPU_ATOMIC(atomicAnd, And)
MEGALITH_CPU_ATOMIC(atomicOr, Or)
MEGALITH_CPU_ATOMIC(atomicMin, Min)
MEGALITH_CPU_ATOMIC(atomicMax, Max)
#undef MEGALITH_CPU_ATOMIC
template <class T> inline T atomicSub(T *p, T value) { return atomicAdd(p, T(0) - value); }
template <class T> inline T atomicCAS(T *p, T compare, T value) {
  return megalith::device::atomic(megalith::cpu::AtomicOp::CompareExchange, p, value, megalith::cpu::Order::Relaxed,
                                  megalith::cpu::Scope::Gpu, compare);
}

inline void __threadfence() { megalith::cpu::kernel::fence(megalith::cpu::Scope::Gpu); }
inline void __threadfence_block() { megalith::cpu::kernel::fence(megalith::cpu::Scope::Cta); }
inline void __threadfence_system() { megalith::cpu::kernel::fence(megalith::cpu::Scope::System); }
inline void __syncthreads() { megalith::cpu::kernel::barrier(0, megalith::cpu::kernel::threads()); }
inline int __syncthreads_or(int mine) {
  return megalith::cpu::kernel::barrierAny(0, megalith::cpu::kernel::threads(), mine != 0);
}
inline void __nanosleep(unsigned nanoseconds) { megalith::cpu::kernel::sleep(nanoseconds); }

// --- warps ----------------------------------------------------------------------

inline void __syncwarp(unsigned mask = ~0u) {
  megalith::cpu::kernel::warp(megalith::cpu::WarpOp::Sync, mask, nullptr, 0, nullptr);
}

/// The value that lane `source` of the warp brought; the deposits are the executor's.
template <class T> inline T megalithCpuShuffle(unsigned mask, T value, int source) {
  const char *all = megalith::cpu::kernel::warp(megalith::cpu::WarpOp::Shuffle, mask, &value, sizeof(T), nullptr);
  return megalith::device::peek<T>(all + source * megalith::cpu::kLaneBytes);
}
template <class T> inline T __shfl_sync(unsigned mask, T value, int lane) {
  return megalithCpuShuffle(mask, value, lane & 31);
}
template <class T> inline T __shfl_xor_sync(unsigned mask, T value, int distance) {
  return megalithCpuShuffle(mask, value, int(threadIdx.x & 31) ^ distance);
}
template <class T> inline T __shfl_up_sync(unsigned mask, T value, int distance) {
  const int lane = int(threadIdx.x & 31);
  return megalithCpuShuffle(mask, value, lane >= distance ? lane - distance : lane);
}
template <class T> inline T __shfl_down_sync(unsigned mask, T value, int distance) {
  const int lane = int(threadIdx.x & 31);
  return megalithCpuShuffle(mask, value, lane + distance < 32 ? lane + distance : lane);
}

inline int __reduce_add_sync(unsigned mask, int value) {
  for (int distance = 16; distance; distance >>= 1)
    value += __shfl_xor_sync(mask, value, distance);
  return value;
}
inline unsigned __reduce_or_sync(unsigned mask, unsigned value) {
  for (int distance = 16; distance; distance >>= 1)
    value |= __shfl_xor_sync(mask, value, distance);
  return value;
}
inline unsigned __reduce_max_sync(unsigned mask, unsigned value) {
  for (int distance = 16; distance; distance >>= 1) {
    const unsigned other = __shfl_xor_sync(mask, value, distance);
    value = other > value ? other : value;
  }
  return value;
}

/// Bit i: what lane i said.
MEGALITH_CPU_PLAIN inline unsigned __ballot_sync(unsigned mask, int predicate) {
  const unsigned mine = predicate != 0;
  const char *all = megalith::cpu::kernel::warp(megalith::cpu::WarpOp::Vote, mask, &mine, sizeof(mine), nullptr);
  unsigned votes = 0;
  for (int lane = 0; lane < 32; ++lane)
    if (mask >> lane & 1)
      votes |= *reinterpret_cast<const unsigned *>(all + lane * megalith::cpu::kLaneBytes) << lane;
  return votes;
}
/// The lanes that brought the same value.
inline unsigned __match_any_sync(unsigned mask, int value) {
  unsigned same = 0;
  for (int lane = 0; lane < 32; ++lane)
    same |= unsigned(__shfl_sync(mask, value, lane) == value) << lane;
  return same & mask;
}
inline int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
inline int __all_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) == mask; }

// PTX has no meaning here.
#pragma GCC poison asm
