//===- Primitives.cuh - device/Primitives.def in PTX ----------------------===//
#pragma once

#include "megalith/Convert.h"
#include "megalith/Types.cuh"

namespace megalith::device {

#define PRIMITIVE(Result, Name, Parameters, Memory) __device__ __forceinline__ Result Name Parameters;
#include "megalith/Primitives.def"

/// Of a value that the host finds by its name. It is no `__constant__`: of linked units the driver cannot copy those.
#define MEGALITH_VISIBLE
/// `offsetof`, as NVRTC spells it.
#define MEGALITH_OFFSET(Type, Member) int(__INTADDR__(&static_cast<Type *>(nullptr)->Member))

// --- arithmetic ---------------------------------------------------------------

u32 packBf16(float low, float high) {
  u32 word;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  return word;
}

u32 packE4m3(float low, float high) {
#if __CUDA_ARCH__ >= 890
  u16 codes;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(high), "f"(low));
  return codes;
#else
  return convert::e4m3OfF32(__float_as_uint(low)) | (u32)convert::e4m3OfF32(__float_as_uint(high)) << 8;
#endif
}

float exp2OfScore(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// The steps of __fdiv_rn without its branch, so that several quotients go side by side: a large divisor is scaled down,
// and zeros and what is not finite are a product. (For silu and sigmoid compared with __fdiv_rn for all 2^32
// arguments.)
float quotient(float n, float d) {
  const float scale = d > 0x1p64f ? 0x1p-64f : 1.0f, top = __fmul_rn(n, scale), bottom = __fmul_rn(d, scale);
  float near;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(near) : "f"(bottom));
  const float inverse = __fmaf_rn(near, __fmaf_rn(-bottom, near, 1.0f), near), first = __fmul_rn(top, inverse);
  const float whole = __fmaf_rn(__fmaf_rn(-bottom, first, top), inverse, first);
  const float infinity = __int_as_float(0x7f800000);
  return n != 0.0f && fabsf(n) < infinity && d < infinity ? whole : __fmul_rn(n, near);
}
// In f64 nothing overflows, and what is rounded to f32 then is rounded once: the quotient of two f32 is no middle of
// two others but for those that f64 holds.
float quotientOfAny(float n, float d) {
  double inverse;
  asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(inverse) : "d"((double)d));
#pragma unroll
  for (int i = 0; i < 3; ++i) // of 20 bits
    inverse = __fma_rn(inverse, __fma_rn(-(double)d, inverse, 1.0), inverse);
  const double first = __dmul_rn((double)n, inverse);
  const float whole = (float)__fma_rn(__fma_rn(-(double)d, first, (double)n), inverse, first);
  float near;
  asm("rcp.approx.f32 %0, %1;" : "=f"(near) : "f"(d));
  const float infinity = __int_as_float(0x7f800000);
  return n != 0.0f && fabsf(n) < infinity && d > 0.0f && d < infinity ? whole : __fmul_rn(n, near);
}
u32 lowHalves(u32 low, u32 high) {
  u32 word;
  asm("prmt.b32 %0, %1, %2, 0x5410;" : "=r"(word) : "r"(low), "r"(high));
  return word;
}
u32 highHalves(u32 low, u32 high) {
  u32 word;
  asm("prmt.b32 %0, %1, %2, 0x7632;" : "=r"(word) : "r"(low), "r"(high));
  return word;
}
u32 transposed(u32 words) {
  u32 result;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(result) : "r"(words));
  return result;
}
u32 mulBf16(u32 a, u32 b) {
  u32 word; // sm_80 has no mul; minus zero is what changes no product
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(word) : "r"(a), "r"(b), "r"(0x80008000u));
  return word;
}
u32 fmaBf16(u32 a, u32 b, u32 c) {
  u32 word;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(word) : "r"(a), "r"(b), "r"(c));
  return word;
}

u32 maskedOr(u32 bits, u32 mask, u32 more) {
  u32 word;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(word) : "r"(bits), "r"(mask), "r"(more));
  return word;
}

void mma(float (&c)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
               "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// --- plain loads ----------------------------------------------------------------

u16 loadHalfWord(const void *p) {
  u16 h;
  asm volatile("ld.global.cg.u16 %0, [%1];" : "=h"(h) : "l"(p) : "memory");
  return h;
}
u32 loadWord(const void *p) {
  u32 w;
  asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(w) : "l"(p) : "memory");
  return w;
}
Words4 loadWords(const void *p) {
  Words4 w;
  asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(w.x), "=r"(w.y), "=r"(w.z), "=r"(w.w)
               : "l"(p)
               : "memory");
  return w;
}
Words4 loadWordsUpTo(const void *p, int) { return loadWords(p); }
Words4 loadConstWords(const void *p) {
  Words4 w;
  asm("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(w.x), "=r"(w.y), "=r"(w.z), "=r"(w.w) : "l"(p));
  return w;
}

// --- the CTA ----------------------------------------------------------------------

__device__ __forceinline__ u32 sharedAddress(const void *p) { return (u32)__cvta_generic_to_shared(p); }

char *dynamicShared() {
  extern __shared__ __align__(128) char bytes[];
  return bytes;
}
void assumeShared(const void *p) { __builtin_assume(__isShared(p)); }
void assumeGlobal(const void *p) { __builtin_assume(__isGlobal(p)); }
void assumeLocal(const void *p) { __builtin_assume(__isLocal(p)); }
u32 threadAgain() {
  u32 thread;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
  return thread;
}
u32 ctasAgain() {
  u32 ctas;
  asm volatile("mov.u32 %0, %%nctaid.x;" : "=r"(ctas));
  return ctas;
}
u32 ctaAgain() {
  u32 cta;
  asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(cta));
  return cta;
}
u32 loadShared(const void *p, int bytes) {
  u32 w;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(w) : "r"(sharedAddress(p) + bytes) : "memory");
  return w;
}
Words2 loadShared2(const void *p, int bytes) {
  Words2 w;
  asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(w.x), "=r"(w.y) : "r"(sharedAddress(p) + bytes));
  return w;
}
Words4 loadShared4(const void *p, int bytes) {
  Words4 w;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(w.x), "=r"(w.y), "=r"(w.z), "=r"(w.w)
               : "r"(sharedAddress(p) + bytes));
  return w;
}
constexpr bool kMatrixLoads = true;
Words4 loadMatrices(const void *p, int bytes) {
  Words4 w;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(w.x), "=r"(w.y), "=r"(w.z), "=r"(w.w)
               : "r"(sharedAddress(p) + bytes));
  return w;
}
void consumerSync() { asm volatile("bar.sync 1, %0;" ::"n"(kConsumerThreads) : "memory"); }
void idleSync() { asm volatile("bar.sync 2, %0;" ::"n"(kIdleThreads) : "memory"); }
bool consumerSyncAny(bool mine) {
  u32 any;
  asm volatile("{\n"
               "  .reg .pred mine, any;\n"
               "  setp.ne.u32 mine, %1, 0;\n"
               "  bar.red.or.pred any, 1, %2, mine;\n"
               "  selp.u32 %0, 1, 0, any;\n"
               "}"
               : "=r"(any)
               : "r"((u32)mine), "n"(kConsumerThreads)
               : "memory");
  return any;
}
u32 loadFlag(const u32 *p) {
  u32 v;
  asm volatile("ld.acquire.cta.shared.u32 %0, [%1];" : "=r"(v) : "r"(sharedAddress(p)) : "memory");
  return v;
}
void storeFlag(u32 *p, u32 value) {
  asm volatile("st.release.cta.shared.u32 [%0], %1;" ::"r"(sharedAddress(p)), "r"(value) : "memory");
}
void addFlag(u32 *p, u32 value) {
  asm volatile("red.release.cta.shared.add.u32 [%0], %1;" ::"r"(sharedAddress(p)), "r"(value) : "memory");
}

// --- asynchronous products --------------------------------------------------------

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define MEGALITH_ASYNC_MMA 1
#else
#define MEGALITH_ASYNC_MMA 0
#endif
constexpr bool kAsyncMma = MEGALITH_ASYNC_MMA;
/// The descriptor of a matrix in shared memory without a swizzle: eight columns lie 128 bytes from the next eight.
__device__ __forceinline__ u64 columnsInShared(const char *b, int stride) {
  return (u64)((sharedAddress(b) & 0x3ffff) >> 4) | (u64)(stride >> 4) << 16 | (u64)(128 >> 4) << 32;
}
void asyncMmaBegin() {
#if MEGALITH_ASYNC_MMA
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}
void asyncMmaEnd() {
#if MEGALITH_ASYNC_MMA
  asm volatile("wgmma.commit_group.sync.aligned;\n\twgmma.wait_group.sync.aligned 0;" ::: "memory");
#endif
}
// Operands of an asm: sums, from eight number `i` of columns on.
#define MEGALITH_SUMS1(c, i) "+f"(c[i][0]), "+f"(c[i][1]), "+f"(c[i][2]), "+f"(c[i][3])
#define MEGALITH_SUMS2(c, i) MEGALITH_SUMS1(c, i), MEGALITH_SUMS1(c, i + 1)
#define MEGALITH_SUMS4(c, i) MEGALITH_SUMS2(c, i), MEGALITH_SUMS2(c, i + 2)
#define MEGALITH_SUMS8(c, i) MEGALITH_SUMS4(c, i), MEGALITH_SUMS4(c, i + 4)
#define MEGALITH_SUMS16(c, i) MEGALITH_SUMS8(c, i), MEGALITH_SUMS8(c, i + 8)
#define MEGALITH_SUMS32(c, i) MEGALITH_SUMS16(c, i), MEGALITH_SUMS16(c, i + 16)
void asyncMma(float (&c)[2][4], u32 a0, u32 a1, u32 a2, u32 a3, const char *b, int stride) {
#if MEGALITH_ASYNC_MMA
  asm volatile("wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {"
               "%0, %1, %2, %3, %4, %5, %6, %7}, "
               "{%8, %9, %10, %11}, %12, 1, 1, 1, 0;"
               : MEGALITH_SUMS2(c, 0)
               : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(columnsInShared(b, stride))
               : "memory");
#endif
}
void asyncMma(float (&c)[4][4], u32 a0, u32 a1, u32 a2, u32 a3, const char *b, int stride) {
#if MEGALITH_ASYNC_MMA
  asm volatile("wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {"
               "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "
               "{%16, %17, %18, %19}, %20, 1, 1, 1, 0;"
               : MEGALITH_SUMS4(c, 0)
               : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(columnsInShared(b, stride))
               : "memory");
#endif
}
void asyncMma(float (&c)[8][4], u32 a0, u32 a1, u32 a2, u32 a3, const char *b, int stride) {
#if MEGALITH_ASYNC_MMA
  asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
               "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
               "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
               "{%32, %33, %34, %35}, %36, 1, 1, 1, 0;"
               : MEGALITH_SUMS8(c, 0)
               : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(columnsInShared(b, stride))
               : "memory");
#endif
}
void asyncMma(float (&c)[16][4], u32 a0, u32 a1, u32 a2, u32 a3, const char *b, int stride) {
#if MEGALITH_ASYNC_MMA
  asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
               "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
               "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
               "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
               "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
               "{%64, %65, %66, %67}, %68, 1, 1, 1, 0;"
               : MEGALITH_SUMS16(c, 0)
               : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(columnsInShared(b, stride))
               : "memory");
#endif
}

SharedMatrix sharedMatrix(const char *p, int eight) {
  return (u64)(sharedAddress(p) >> 4) | (u64)1 << 16 | (u64)(eight >> 4) << 32 | (u64)2 << 62; // a swizzle of 64 bytes
}
SharedMatrix sharedMatrix128(const char *p, int eight) {
  return (u64)(sharedAddress(p) >> 4) | (u64)1 << 16 | (u64)(eight >> 4) << 32 | (u64)1 << 62; // of 128 bytes
}
SharedMatrix laterColumns(SharedMatrix matrix, int bytes) { return matrix + (bytes >> 4); }
void asyncMma(float (&c)[8][4], SharedMatrix a, SharedMatrix b, bool add) {
#if MEGALITH_ASYNC_MMA
  asm volatile(
      "{ .reg .pred add; setp.ne.b32 add, %34, 0; "
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, "
      "%13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "%32, %33, add, 1, 1, 0, 0; }"
      : MEGALITH_SUMS8(c, 0)
      : "l"(a), "l"(b), "r"((u32)add));
#endif
}
void asyncMma(float (&c)[16][4], SharedMatrix a, SharedMatrix b, bool add) {
#if MEGALITH_ASYNC_MMA
  asm volatile("{ .reg .pred add; setp.ne.b32 add, %66, 0; "
               "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, "
               "%11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, "
               "%31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, "
               "%51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
               "%64, %65, add, 1, 1, 0, 0; }"
               : MEGALITH_SUMS16(c, 0)
               : "l"(a), "l"(b), "r"((u32)add));
#endif
}
void asyncMma(float (&c)[8][4], u32 a0, u32 a1, u32 a2, u32 a3, SharedMatrix b, bool add) {
#if MEGALITH_ASYNC_MMA
  asm volatile("{ .reg .pred add; setp.ne.b32 add, %37, 0; wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
               "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
               "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
               "{%32, %33, %34, %35}, %36, add, 1, 1, 0; }"
               : MEGALITH_SUMS8(c, 0)
               : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b), "r"((u32)add));
#endif
}
void asyncMma(float (&c)[16][4], u32 a0, u32 a1, u32 a2, u32 a3, SharedMatrix b, bool add) {
#if MEGALITH_ASYNC_MMA
  asm volatile("{ .reg .pred add; setp.ne.b32 add, %69, 0; wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
               "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
               "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
               "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
               "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
               "{%64, %65, %66, %67}, %68, add, 1, 1, 0; }"
               : MEGALITH_SUMS16(c, 0)
               : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b), "r"((u32)add));
#endif
}
void asyncMmaScores(float (&c)[32][4], SharedMatrix a, SharedMatrix b, bool add) {
#if MEGALITH_ASYNC_MMA
  asm volatile("{ .reg .pred add; setp.ne.b32 add, %130, 0; wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 "
               "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, "
               "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, "
               "%40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, "
               "%59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, "
               "%78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, "
               "%97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, "
               "%113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}, "
               "%128, %129, add, 1, 1, 0, 0; }"
               : MEGALITH_SUMS32(c, 0)
               : "l"(a), "l"(b), "r"((u32)add));
#endif
}
void asyncMmaOfRows(float (&c)[4][4], u32 a0, u32 a1, u32 a2, u32 a3, SharedMatrix b, bool add) {
#if MEGALITH_ASYNC_MMA
  asm volatile("{ .reg .pred add; setp.ne.b32 add, %21, 0; wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 "
               "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "
               "{%16, %17, %18, %19}, %20, add, 1, 1, 1; }"
               : MEGALITH_SUMS4(c, 0)
               : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b), "r"((u32)add));
#endif
}
void asyncMmaOfRows(float (&c)[8][4], u32 a0, u32 a1, u32 a2, u32 a3, SharedMatrix b, bool add) {
#if MEGALITH_ASYNC_MMA
  asm volatile("{ .reg .pred add; setp.ne.b32 add, %37, 0; wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
               "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, "
               "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
               "{%32, %33, %34, %35}, %36, add, 1, 1, 1; }"
               : MEGALITH_SUMS8(c, 0)
               : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b), "r"((u32)add));
#endif
}
void asyncMmaCommit() {
#if MEGALITH_ASYNC_MMA
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}
void asyncMmaWaitLast() {
#if MEGALITH_ASYNC_MMA
  asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
#endif
}
template <int N> __device__ __forceinline__ void settle(float (&c)[N][4]) {
#pragma unroll
  for (int i = 0; i < N; ++i)
    asm volatile("" : "+f"(c[i][0]), "+f"(c[i][1]), "+f"(c[i][2]), "+f"(c[i][3])::"memory");
}
void asyncMmaSettle(float (&c)[8][4]) { settle(c); }
void asyncMmaSettle(float (&c)[16][4]) { settle(c); }
void asyncMmaSettle(float (&c)[4][4]) { settle(c); }
void asyncMmaSettle(float (&c)[32][4]) { settle(c); }

// --- the grid ---------------------------------------------------------------------

u32 loadRelaxed(const u32 *p) {
  u32 v;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}
u32 loadAcquire(const u32 *p) {
  u32 v;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}
u32 addAcquireRelease(u32 *p, u32 value) {
  u32 before;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;" : "=r"(before) : "l"(p), "r"(value) : "memory");
  return before;
}
void addRelease(u32 *p, u32 value) {
  asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(p), "r"(value) : "memory");
}
// A vector access may be torn; one of b128 is not.
Words4 loadFlagged(const Words4 *p) {
  u64 low, high;
  asm volatile("{ .reg .b128 t; ld.relaxed.gpu.global.b128 t, [%2]; mov.b128 {%0, %1}, t; }"
               : "=l"(low), "=l"(high)
               : "l"(p)
               : "memory");
  return {(u32)low, (u32)(low >> 32), (u32)high, (u32)(high >> 32)};
}
void storeFlagged(Words4 *p, Words4 w) {
  asm volatile("{ .reg .b128 t; mov.b128 t, {%1, %2}; st.relaxed.gpu.global.b128 [%0], t; }" ::"l"(p),
               "l"((u64)w.y << 32 | w.x), "l"((u64)w.w << 32 | w.z)
               : "memory");
}

u64 loadFlagged2(const u64 *p) {
  u64 w;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(w) : "l"(p) : "memory");
  return w;
}
void storeFlagged2(u64 *p, u32 value, u32 tag) {
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(p), "l"((u64)tag << 32 | value) : "memory");
}
Words4 loadFresh4(const void *p) {
  Words4 w;
  asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(w.x), "=r"(w.y), "=r"(w.z), "=r"(w.w)
               : "l"(p)
               : "memory");
  return w;
}
void storeFresh(void *p, u32 word) {
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(p), "r"(word) : "memory");
}
void storeFresh4(void *p, Words4 w) {
  asm volatile("st.relaxed.gpu.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(w.x), "r"(w.y), "r"(w.z), "r"(w.w)
               : "memory");
}

// --- the host -----------------------------------------------------------------------

u32 loadSystem(const u32 *p) {
  u32 v;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}
u32 hearWord(const u32 *p) {
  u32 v;
  asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}
void storeSystem(u32 *p, u32 value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(p), "r"(value) : "memory");
}
void tellWord(u32 *p, u32 value) {
  asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(p), "r"(value) : "memory");
}

// --- barriers and asynchronous copies -----------------------------------------------

void barrierInit(u64 *bar, u32 count) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(sharedAddress(bar)), "r"(count) : "memory");
}
void barriersReady() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}
void barrierArrive(u64 *bar) {
  asm volatile("{ .reg .b64 state; mbarrier.arrive.shared.b64 state, [%0]; }" ::"r"(sharedAddress(bar)) : "memory");
}
void barrierArriveExpect(u64 *bar, u32 bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(sharedAddress(bar)), "r"(bytes) : "memory");
#endif
}
bool barrierTest(u64 *bar, u32 parity) {
  u32 ok;
#if __CUDA_ARCH__ >= 900
  asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
#else
  asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
#endif
               : "=r"(ok)
               : "r"(sharedAddress(bar)), "r"(parity)
               : "memory");
  return ok;
}
bool barrierPeek(u64 *bar, u32 parity) {
  u32 ok;
  asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
               : "=r"(ok)
               : "r"(sharedAddress(bar)), "r"(parity)
               : "memory");
  return ok;
}
// One asm, so that ptxas sees no loop: it serializes each wgmma behind one that may part the lanes (C7520).
void barrierAwait(u64 *bar, u32 parity) {
#if __CUDA_ARCH__ >= 900
  asm volatile("{\n"
               "  .reg .pred done;\n"
               "again:\n"
               "  mbarrier.try_wait.parity.shared.b64 done, [%0], %1;\n"
               "  @!done bra again;\n"
               "}" ::"r"(sharedAddress(bar)),
               "r"(parity)
               : "memory");
#endif
}
void prefetch(const void *p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); }
void bringNear(const void *p) { // prefetch.global.L1 brings nothing there on sm_90
  asm volatile("{\n"
               "  .reg .b16 unused;\n"
               "  ld.global.ca.u8 unused, [%0];\n"
               "}" ::"l"(p));
}
void prefetchBulk(const void *p, u32 bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(p), "r"(bytes));
#endif
}
void fenceAsync() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async.global;" ::: "memory");
#endif
}
void fenceAsyncShared() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}
void copyBulk(void *to, const void *from, u32 bytes, u64 *bar) {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
               "[%0], [%1], %2, [%3], %4;" ::"r"(sharedAddress(to)),
               "l"(from), "r"(bytes), "r"(sharedAddress(bar)), "l"(0x12F0000000000000ull) // evict first
               : "memory");
#endif
}
void copyBulkAgain(void *to, const void *from, u32 bytes, u64 *bar) {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   sharedAddress(to)),
               "l"(from), "r"(bytes), "r"(sharedAddress(bar))
               : "memory");
#endif
}
void copyBulkOfWarp(void *to, const void *from, u32 bytes, u64 *bar) {
#if __CUDA_ARCH__ >= 900
  asm volatile("{\n"
               "  .reg .pred one;\n"
               "  elect.sync _|one, 0xffffffff;\n"
               "  @one cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];\n"
               "}" ::"r"(sharedAddress(to)),
               "l"(from), "r"(bytes), "r"(sharedAddress(bar))
               : "memory");
#endif
}
void barrierArriveExpectOfWarp(u64 *bar, u32 bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile("{\n"
               "  .reg .pred one;\n"
               "  elect.sync _|one, 0xffffffff;\n"
               "  @one mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;\n"
               "}" ::"r"(sharedAddress(bar)),
               "r"(bytes)
               : "memory");
#endif
}
void copyAsync(void *to, const void *from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(sharedAddress(to)), "l"(from) : "memory");
}
void copyAsyncOrZeros(void *to, const void *from, bool there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(sharedAddress(to)), "l"(from), "r"(there ? 16 : 0)
               : "memory");
}
void copyAsyncArrive(u64 *bar) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(sharedAddress(bar)) : "memory");
}

// --- time ---------------------------------------------------------------------------

u64 nanoseconds() {
  u64 t;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
  return t;
}
void noteEdge(int) {}
void noteStop() {}
constexpr bool kChecksPools = false;
void brokenPool(int, const char *) {}

} // namespace megalith::device

#undef MEGALITH_SUMS1
#undef MEGALITH_SUMS2
#undef MEGALITH_SUMS4
#undef MEGALITH_SUMS8
#undef MEGALITH_SUMS16
#undef MEGALITH_SUMS32
#undef MEGALITH_ASYNC_MMA // the emitted source sees no macro without a first `_`
