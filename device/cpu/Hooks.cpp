//===- Hooks.cpp - part of every kernel compiled for the CPU --------------===//
//
// Compiled without instrumentation and linked into the kernel's shared object.
// Holds the host that the kernel calls, and in a checked kernel
// (MEGALITH_CPU_CHECKED) takes the place of ThreadSanitizer's runtime: the calls
// that g++ and clang++ put before plain accesses go to Host::access.
//
// A checked kernel is linked with --wrap for memcpy, memmove and memset, because
// g++, and clang++ before 16, leave these to the runtime's interceptors.
//===----------------------------------------------------------------------===//
#include "megalith/Host.h"

using megalith::cpu::Host;

#define EXPORTED __attribute__((visibility("default")))

extern "C" {
extern EXPORTED const int megalith_cpu_version;
EXPORTED void megalith_cpu_bind(const Host *host);
extern __attribute__((visibility("hidden"))) const Host *megalith_cpu_host;
}

/// Until a host is bound: constructors of the kernel's globals may run before.
static const Host unbound{};

const int megalith_cpu_version = megalith::cpu::kHostVersion;
const Host *megalith_cpu_host = &unbound;
void megalith_cpu_bind(const Host *host) { megalith_cpu_host = host; }

namespace megalith::cpu::kernel {
#define HIDDEN __attribute__((visibility("hidden")))
#define HOST_CALL(Result, Name, Parameters, Arguments)                                                                 \
  HIDDEN Result Name Parameters { return megalith_cpu_host->Name Arguments; }
#include "megalith/HostCalls.def"
HIDDEN __attribute__((const)) unsigned threadX() { return (*megalith_cpu_host->current)->thread; }
HIDDEN __attribute__((const)) unsigned ctaX() { return (*megalith_cpu_host->current)->cta; }
HIDDEN __attribute__((const)) unsigned threads() { return (*megalith_cpu_host->current)->threads; }
HIDDEN __attribute__((const)) unsigned ctas() { return (*megalith_cpu_host->current)->ctas; }
HIDDEN __attribute__((const)) char *shared() { return (*megalith_cpu_host->current)->shared; }

/// The 16 x 8 sums of a warp: products in ascending order of k, one chain. Here, because this file is optimised
/// whatever the kernel is.
HIDDEN void mmaOfWarp(char *deposits) {
  const auto low = [](unsigned pair) { return __builtin_bit_cast(float, pair << 16); };
  const auto high = [](unsigned pair) { return __builtin_bit_cast(float, pair & 0xffff0000u); };
  using Four = float __attribute__((vector_size(16), may_alias));
  MmaLane *lanes[32];
  alignas(16) float a[16][16], b[16][8], c[16][8]; // [m][k], [k][n], [m][n]
  for (int i = 0; i < 32; ++i) {
    const MmaLane &lane = *(lanes[i] = reinterpret_cast<MmaLane *>(deposits + i * kLaneBytes));
    const int row = i / 4, pair = i % 4 * 2;
    for (int j = 0; j < 2; ++j) {
      b[pair + j * 8][row] = low(lane.b[j]);
      b[pair + j * 8 + 1][row] = high(lane.b[j]);
      for (int m = 0; m < 2; ++m) {
        a[row + m * 8][pair + j * 8] = low(lane.a[m + j * 2]);
        a[row + m * 8][pair + j * 8 + 1] = high(lane.a[m + j * 2]);
        c[row + m * 8][pair + j] = lane.c[m * 2 + j];
      }
    }
  }
  for (int m = 0; m < 16; ++m)
    for (int n = 0; n < 8; n += 4) {
      Four sums = *reinterpret_cast<Four *>(c[m] + n);
      for (int k = 0; k < 16; ++k)
        sums += a[m][k] * *reinterpret_cast<const Four *>(b[k] + n);
      *reinterpret_cast<Four *>(c[m] + n) = sums;
    }
  for (int i = 0; i < 32; ++i)
    for (int j = 0; j < 4; ++j)
      lanes[i]->c[j] = c[i / 4 + j / 2 * 8][i % 4 * 2 + j % 2];
}
} // namespace megalith::cpu::kernel

#ifdef MEGALITH_CPU_CHECKED

using size = decltype(sizeof(0));

extern "C" {
[[noreturn]] void abort();
long write(int file, const void *bytes, size count);
void *__real_memcpy(void *to, const void *from, size bytes);
void *__real_memmove(void *to, const void *from, size bytes);
void *__real_memset(void *to, int value, size bytes);
}

static inline __attribute__((always_inline)) void plainAccess(const void *at, size bytes, int isWrite, const void *pc) {
  const Host *host = megalith_cpu_host;
  const char *begin = static_cast<const char *>(at);
  if (begin >= host->stacksBegin && begin < host->stacksEnd)
    return;
  if (host->access && bytes != 0)
    host->access(at, unsigned(bytes), isWrite, pc);
}

/// The kernel's instruction after the call of the hook.
#define PC __builtin_return_address(0)

[[noreturn]] static void refuse(const char *name, size length) {
  static const char text[] =
      "megalith: this kernel uses a C++ atomic; on the CPU, atomics go through megalith/Device.cuh: ";
  (void)!write(2, text, sizeof text - 1);
  (void)!write(2, name, length);
  (void)!write(2, "\n", 1);
  abort();
}

extern "C" {

// --- loads and stores
#define HOOK(Name, Bytes, IsWrite)                                                                                     \
  void __tsan_##Name##Bytes(void *at) { plainAccess(at, Bytes, IsWrite, PC); }
#define HOOKS(Bytes)                                                                                                   \
  HOOK(read, Bytes, 0)                                                                                                 \
  HOOK(write, Bytes, 1)                                                                                                \
  HOOK(unaligned_read, Bytes, 0)                                                                                       \
  HOOK(unaligned_write, Bytes, 1)                                                                                      \
  HOOK(volatile_read, Bytes, 0)                                                                                        \
  HOOK(volatile_write, Bytes, 1)                                                                                       \
  HOOK(unaligned_volatile_read, Bytes, 0)                                                                              \
  HOOK(unaligned_volatile_write, Bytes, 1)                                                                             \
  void __tsan_read_write##Bytes(void *at) {                                                                            \
    plainAccess(at, Bytes, 0, PC);                                                                                     \
    plainAccess(at, Bytes, 1, PC);                                                                                     \
  }                                                                                                                    \
  void __tsan_unaligned_read_write##Bytes(void *at) {                                                                  \
    plainAccess(at, Bytes, 0, PC);                                                                                     \
    plainAccess(at, Bytes, 1, PC);                                                                                     \
  }
HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)

void __tsan_read_range(void *at, size bytes) { plainAccess(at, bytes, 0, PC); }
void __tsan_write_range(void *at, size bytes) { plainAccess(at, bytes, 1, PC); }
void __tsan_vptr_read(void **at) { plainAccess(at, sizeof *at, 0, PC); }
void __tsan_vptr_update(void **at, void *) { plainAccess(at, sizeof *at, 1, PC); }

// --- whole ranges: __tsan_memcpy of clang++ 16 and later, memcpy of the others
#define RANGE_HOOKS(Prefix)                                                                                            \
  void *Prefix##memcpy(void *to, const void *from, size bytes) {                                                       \
    plainAccess(from, bytes, 0, PC);                                                                                   \
    plainAccess(to, bytes, 1, PC);                                                                                     \
    return __real_memcpy(to, from, bytes);                                                                             \
  }                                                                                                                    \
  void *Prefix##memmove(void *to, const void *from, size bytes) {                                                      \
    plainAccess(from, bytes, 0, PC);                                                                                   \
    plainAccess(to, bytes, 1, PC);                                                                                     \
    return __real_memmove(to, from, bytes);                                                                            \
  }                                                                                                                    \
  void *Prefix##memset(void *to, int value, size bytes) {                                                              \
    plainAccess(to, bytes, 1, PC);                                                                                     \
    return __real_memset(to, value, bytes);                                                                            \
  }
RANGE_HOOKS(__tsan_)
RANGE_HOOKS(__wrap_)

// --- nothing to do
void __tsan_init() {}
void __tsan_func_entry(void *) {}
void __tsan_func_exit() {}
void __tsan_ignore_thread_begin() {}
void __tsan_ignore_thread_end() {}
void __tsan_atomic_signal_fence(int) {}

// --- C++ atomics: device code has none. The arguments do not matter.
#define REFUSE(Name)                                                                                                   \
  [[noreturn]] void __tsan_atomic##Name() { refuse("__tsan_atomic" #Name, sizeof "__tsan_atomic" #Name - 1); }
#define REFUSE_ALL(Bits)                                                                                               \
  REFUSE(Bits##_load)                                                                                                  \
  REFUSE(Bits##_store)                                                                                                 \
  REFUSE(Bits##_exchange)                                                                                              \
  REFUSE(Bits##_fetch_add)                                                                                             \
  REFUSE(Bits##_fetch_sub)                                                                                             \
  REFUSE(Bits##_fetch_and)                                                                                             \
  REFUSE(Bits##_fetch_or)                                                                                              \
  REFUSE(Bits##_fetch_xor)                                                                                             \
  REFUSE(Bits##_fetch_nand)                                                                                            \
  REFUSE(Bits##_compare_exchange_strong)                                                                               \
  REFUSE(Bits##_compare_exchange_weak)                                                                                 \
  REFUSE(Bits##_compare_exchange_val)
REFUSE_ALL(8)
REFUSE_ALL(16)
REFUSE_ALL(32)
REFUSE_ALL(64)
REFUSE_ALL(128)
REFUSE(_thread_fence)

} // extern "C"
#endif
