//===- Host.h - what a kernel compiled for the CPU calls ------------------===//
//
// The boundary between a kernel's shared object and the executor that runs it
// (runtime/cpu): plain structs and function pointers, included by both. Every
// thread of the grid is a fiber of one operating system thread; a call may hand
// the processor to other fibers before it returns.
//
// A checked kernel is compiled with -fsanitize=thread and without its runtime:
// the compiler puts a call before every plain load and store, and Hooks.cpp
// hands it to Host::access.
//===----------------------------------------------------------------------===//
#pragma once

namespace megalith::cpu {

/// Counts up with any change here.
constexpr int kHostVersion = 4;

/// Who runs. Stays the same while a thread of the grid lives.
struct Thread {
  unsigned thread, cta;   ///< threadIdx.x, blockIdx.x
  unsigned threads, ctas; ///< blockDim.x, gridDim.x
  char *shared;           ///< shared memory of its CTA, 1024-byte aligned
};

/// What the lanes of a warp do together. All lanes of a mask must come to the same one.
enum class WarpOp : int {
  Sync, ///< orders memory among the lanes; the others do not
  Shuffle,
  Vote,
  Mma,
};
/// Bytes that a lane can bring to a warp operation.
constexpr unsigned kLaneBytes = 48;

/// What each lane brings to an mma; the sums are replaced.
struct MmaLane {
  float c[4];
  unsigned a[4], b[2];
};

enum class AtomicOp : int { Load, Store, Add, And, Or, Min, Max, Exchange, CompareExchange };
enum class Order : int { Relaxed, Acquire, Release, AcquireRelease };
enum class Scope : int { Cta, Gpu, System };
enum class Space : int { Shared, Global };

struct Host {
  int version; ///< kHostVersion
  Thread *const *current;

  // --- plain memory
  const char *stacksBegin, *stacksEnd; ///< stacks of the fibers: never shared
  /// Before a plain load or store at `pc`. Null: nothing is checked.
  void (*access)(const void *at, unsigned bytes, int isWrite, const void *pc);
  /// A load through the read-only path (ld.global.nc): nothing may write there
  /// while the kernel runs.
  void (*readOnly)(const void *at, unsigned bytes);

  // --- threads of a CTA and of a warp
  /// bar.sync: waits until `threads` threads of the CTA have come to barrier `id`.
  void (*barrier)(unsigned id, unsigned threads);
  /// bar.red.or: the same; whether `mine` is true of any of them.
  bool (*barrierAny)(unsigned id, unsigned threads, bool mine);
  /// Waits for all lanes of `mask` and gives their 32 deposits, kLaneBytes apart.
  /// The lane that comes last calls `combine` on them, when given, before any returns.
  /// The deposits stay as they are until the lane's next warp operation.
  const char *(*warp)(WarpOp op, unsigned mask, const void *in, unsigned bytes, void (*combine)(char *deposits));

  // --- atomics and flagged words: 4, 8 or 16 (Load and Store) bytes
  /// The old value (of Load: the value; of Store: 0).
  unsigned long long (*atomic)(AtomicOp op, void *at, unsigned bytes, unsigned long long operand,
                               unsigned long long compare, Order order, Scope scope);
  void (*load16)(const void *at, void *out, Order order, Scope scope);
  void (*store16)(void *at, const void *in, Order order, Scope scope);
  void (*fence)(Scope scope); ///< fence.acq_rel

  // --- mbarriers, of shared memory, and asynchronous copies
  void (*mbarrierInit)(unsigned long long *bar, unsigned count);
  /// fence.proxy.async: accesses of `space` that this thread knows of, of shared memory also its inits, come before the
  /// bulk copies that follow it.
  void (*proxyFence)(Space space);
  void (*mbarrierArrive)(unsigned long long *bar);                       ///< release, CTA
  void (*mbarrierArriveExpect)(unsigned long long *bar, unsigned bytes); ///< release, CTA
  bool (*mbarrierTest)(unsigned long long *bar, unsigned parity);        ///< acquire, CTA
  /// cp.async.bulk global -> shared; 16-byte aligned; ends with complete_tx on `bar`.
  void (*copyBulk)(void *to, const void *from, unsigned bytes, unsigned long long *bar);
  /// cp.async.bulk.prefetch of global memory: does nothing, but has the same limits.
  void (*prefetchBulk)(const void *from, unsigned bytes);
  /// cp.async of 16 bytes, and the arrival on `bar` of all such copies of this thread
  /// so far, once they have landed (noinc).
  void (*copyAsync)(void *to, const void *from);
  void (*copyAsyncArrive)(unsigned long long *bar);

  // --- the rest
  unsigned long long (*nanoseconds)(); ///< %globaltimer
  void (*sleep)(unsigned nanoseconds);
  void (*edge)(int edge); ///< this CTA comes to grid-wide edge `edge` of the plan
  void (*stops)();        ///< what this CTA reads of its shared memory from now on means nothing
  void (*brokenPool)(int model, const char *what); ///< the pages of the model's pool do not add up
};

} // namespace megalith::cpu
