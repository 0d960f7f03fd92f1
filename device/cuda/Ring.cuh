//===- Ring.cuh - the weight stream through shared memory -----------------===//
//
// One producer warp copies chunks of packed weights into a ring of stages;
// eight consumer warps drain them in the same static order. The producer never
// waits for an activation: only for an empty stage, and at the end of a model's
// body for the pass table's word whether the head follows.
//===----------------------------------------------------------------------===//
#pragma once

namespace megalith::device {

__device__ __forceinline__ u32 sharedAddress(const void *p) {
  return (u32)__cvta_generic_to_shared(p);
}
__device__ __forceinline__ void barrierInit(u64 *bar, u32 count) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(sharedAddress(bar)), "r"(count) : "memory");
}
__device__ __forceinline__ void barrierArrive(u64 *bar) {
  asm volatile("{ .reg .b64 state; mbarrier.arrive.shared.b64 state, [%0]; }" ::"r"(sharedAddress(bar))
               : "memory");
}
__device__ __forceinline__ bool barrierTest(u64 *bar, u32 parity) {
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

/// Words that consumers and producer of one CTA share.
struct RingShared {
  u64 full[16], empty[16];
  u64 planned;        ///< completes once per pass, when `runHead` is valid
  u32 runHead;        ///< this pass needs logits
  u32 leave;          ///< the resident loop ended or stopped
  u32 stopped;        ///< GridEdges::stoppedHere
  u32 passes;         ///< planned so far
  const u32 *stopFlag; ///< of the grid: every poll loop looks at it now and then
  u32 plansRead;      ///< of these, whose `runHead` the producer has read
};

/// `Stages` slots of `StageBytes` each.
template <int Stages, int StageBytes> struct Ring {
  static_assert(Stages <= 16);
  static constexpr int stages = Stages, stageBytes = StageBytes;
  char *data;
  RingShared *shared;
  int stage = 0;
  u32 parity = 0;

  __device__ __forceinline__ void advance() {
    if (++stage == Stages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

template <int Stages> __device__ void ringInit(RingShared *shared, const abi::LaunchParams &p) {
  if (threadIdx.x == 0) {
    for (int i = 0; i < Stages; ++i) {
#if __CUDA_ARCH__ >= 900
      barrierInit(&shared->full[i], 1);
#else
      barrierInit(&shared->full[i], 32);
#endif
      barrierInit(&shared->empty[i], kConsumerWarps);
    }
    barrierInit(&shared->planned, 1);
    shared->runHead = shared->leave = shared->stopped = 0;
    shared->passes = shared->plansRead = 0;
    shared->stopFlag = p.sync + kStopFlag;
#if __CUDA_ARCH__ >= 900
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
  }
}

/// Whether a wait inside the CTA is in vain: the kernel stops.
__device__ __forceinline__ bool stopSeen(const RingShared &s, u32 spin) {
  return *(const volatile u32 *)&s.stopped || (spin % 1024 == 0 && loadRelaxed(s.stopFlag));
}

/// Consumer thread 0, once per pass: tells the producer whether the head follows.
/// The word of the pass before must have been read.
__device__ __forceinline__ void planHead(RingShared &s, bool wanted) {
  for (u32 spin = 1; *(volatile u32 *)&s.plansRead != s.passes; ++spin)
    if (stopSeen(s, spin))
      return;
  s.passes = s.passes + 1;
  *(volatile u32 *)&s.runHead = wanted;
  __threadfence_block();
  barrierArrive(&s.planned);
}

/// The producer warp's side. All 32 lanes call it together.
template <class R> struct Producer {
  R ring;
  int filled = 0;    ///< chunks issued; at most Stages of them are unread
  u32 plannedParity = 0;

  /// Copies one chunk into the next stage. False when the kernel leaves.
  __device__ __forceinline__ bool push(const char *source, int bytes) {
    RingShared &s = *ring.shared;
    // Votes: no lane may leave while another goes on.
    for (u32 spin = 1; !__all_sync(~0u, barrierTest(&s.empty[ring.stage], ring.parity ^ 1)); ++spin)
      if (__any_sync(~0u, *(volatile u32 *)&s.leave || stopSeen(s, spin)))
        return false;
    char *target = ring.data + ring.stage * R::stageBytes;
    u64 *full = &s.full[ring.stage];
#if __CUDA_ARCH__ >= 900
    if (laneId() == 0) {
      asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(sharedAddress(full)), "r"(bytes)
                   : "memory");
      asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
                   "[%0], [%1], %2, [%3], %4;" ::"r"(sharedAddress(target)),
                   "l"(source), "r"(bytes), "r"(sharedAddress(full)), "l"(0x12F0000000000000ull) // evict first
                   : "memory");
    }
#else
    for (int i = laneId() * 16; i < bytes; i += 512)
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(sharedAddress(target + i)), "l"(source + i)
                   : "memory");
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(sharedAddress(full)) : "memory");
#endif
    ++filled;
    ring.advance();
    return true;
  }

  /// Waits until this pass is planned. True: the head's weights follow.
  __device__ __forceinline__ bool headFollows() {
    RingShared &s = *ring.shared;
    for (u32 spin = 1; !__all_sync(~0u, barrierTest(&s.planned, plannedParity)); ++spin)
      if (__any_sync(~0u, *(volatile u32 *)&s.leave || stopSeen(s, spin)))
        return false;
    plannedParity ^= 1;
    const bool follows = *(volatile u32 *)&s.runHead != 0;
    __syncwarp();
    if (laneId() == 0)
      *(volatile u32 *)&s.plansRead = s.plansRead + 1;
    return follows;
  }

  /// The resident loop ended. A CTA without any chunk of its own learns it here only.
  __device__ __forceinline__ bool leaving() const {
    return __any_sync(~0u, *(volatile u32 *)&ring.shared->leave || stopSeen(*ring.shared, 0));
  }

  /// Shared memory must not be given back while a copy is on its way to it.
  __device__ void drain() {
    const int unread = filled < R::stages ? filled : R::stages;
    for (int i = 0; i < unread; ++i) {
      if (--ring.stage < 0) {
        ring.stage = R::stages - 1;
        ring.parity ^= 1;
      }
      while (!barrierTest(&ring.shared->full[ring.stage], ring.parity)) {
      }
    }
  }
};

} // namespace megalith::device
