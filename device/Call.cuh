//===- Call.cuh - one call of a pipeline of buffers ------------------------===//
//
// A CTA takes one ticket and leaves. Tickets are dealt in the order of the stages, so a CTA that waits for the stages
// before its own waits for CTAs that run: no two CTAs need to be there at once, and a call runs beside any other work.
// The last CTA of a stage goes on with the stages without items that follow.
//===----------------------------------------------------------------------===//
#pragma once

#include "megalith/Buffers.cuh"
#include "megalith/CallAbi.h"
#include "megalith/CallCopies.cuh"
#include "megalith/LaneBinders.cuh"

namespace megalith::device {

using abi::kCallThreads;
constexpr int kCallWarps = kCallThreads / 32;

/// Of a CTA of a call. What sorts has its keys behind it.
struct CallShared {
  u32 ticket, ended;
  int faults[kCallWarps];
  abi::FaultNumbers numbers[kCallWarps];
  int sums[2 * 32];
};
static_assert(sizeof(CallShared) <= abi::kCallSharedBytes);
__device__ __forceinline__ CallShared &sharedOfCall() { return *reinterpret_cast<CallShared *>(dynamicShared()); }

// --- who goes through an item -------------------------------------------------

struct LaneOfCall : LaneBinders {
  __device__ static int rank() { return 0; }
  __device__ static void meet() {}
  template <int> __device__ static void move(char *to, const char *from, long long bytes) {
    copyBytes(to, from, bytes, 0, 1);
  }
};

struct WarpOfCall : Binders {
  __device__ static int rank() { return laneId(); }
  /// What a lane has written, others read behind it.
  __device__ static void meet() { __syncwarp(); }
  template <int> __device__ static void move(char *to, const char *from, long long bytes) {
    meet();
    copyBytes(to, from, bytes, laneId(), 32);
    meet();
  }

  using Binders::prefixWhile;
  /// Four ballots at once: their loads do not wait for each other.
  template <class Test> __device__ int prefixWhile(int count, Test test) {
    constexpr int ballots = 4;
#pragma unroll 1
    for (int base = 0; base < count; base += 32 * ballots) {
      const int earlier = fault;
      bool holds[ballots];
      int faults[ballots];
      abi::FaultNumbers with[ballots];
#pragma unroll
      for (int k = 0; k < ballots; ++k) {
        const int i = base + k * 32 + laneId();
        holds[k] = i < count && test(i);
        faults[k] = fault;
        with[k] = numbers;
        fault = earlier;
      }
#pragma unroll
      for (int k = 0; k < ballots; ++k) {
        const u32 failed = __ballot_sync(~0u, !holds[k]);
        const int first = failed ? __ffs(failed) - 1 : 32;
        if (earlier == 0) {
          fault = faults[k];
          numbers = with[k];
          agree(0, first < 31 ? (2u << first) - 1 : ~0u);
        }
        if (failed)
          return base + k * 32 + first;
      }
    }
    return count > 0 ? count : 0;
  }
  template <class Test> __device__ int prefixWhile(int low, int high, Test test) {
    return prefixWhile(lengthOf(low, high), from(low, test));
  }
};

/// A stage without items: all warps go through it together, and find the same.
struct CtaOfCall : WarpOfCall {
  __device__ static int rank() { return threadIdx.x; }
  __device__ static void meet() { __syncthreads(); }
  template <int> __device__ static void move(char *to, const char *from, long long bytes) {
    meet();
    copyBytes(to, from, bytes, threadIdx.x, kCallThreads);
    meet();
  }

  /// Element i becomes the sum of function(0) to function(i), which wraps.
  template <class T, class Function>
  __device__ void scan(const Buffer<T, 1> &out, int count, const Function &function) {
    constexpr int each = 8; // numbers of a thread, whose loads do not wait for each other
    CallShared &shared = sharedOfCall();
    int total = 0;
#pragma unroll 1
    for (int base = 0; base < count; base += each * kCallThreads) {
      const int earlier = fault, rounds = min(each, (count - base + kCallThreads - 1) / kCallThreads);
      int sums[each];
#pragma unroll
      for (int k = 0; k < each; ++k)
        sums[k] = k < rounds ? evaluate(base + k * kCallThreads + warpId() * 32, count, function) : 0;
      agreeOfCta(earlier);
#pragma unroll
      for (int k = 0; k < each; ++k)
        if (k < rounds) {
          sums[k] = sumToLane(sums[k]);
          if (laneId() == 31)
            shared.sums[k * kCallWarps + warpId()] = sums[k];
        }
      __syncthreads();
      // Of all before this warp's: lane i has those of places i and i + 32.
      const int places = rounds * kCallWarps;
      const int low = laneId() < places ? shared.sums[laneId()] : 0;
      const int high = laneId() + 32 < places ? shared.sums[laneId() + 32] : 0;
      const int lows = sumToLane(low), half = __shfl_sync(~0u, lows, 31), highs = wrapAdd(half, sumToLane(high));
#pragma unroll
      for (int k = 0; k < each; ++k) {
        const int place = k * kCallWarps + warpId() - 1, i = base + k * kCallThreads + int(threadIdx.x);
        const int before = __shfl_sync(~0u, place < 32 ? lows : highs, place & 31);
        if (k < rounds && i < count)
          out.data[i] = Element<T>::stored(wrapAdd(total, wrapAdd(place < 0 ? 0 : before, sums[k])));
      }
      total = wrapAdd(total, __shfl_sync(~0u, highs, 31));
      __syncthreads();
    }
  }

  /// The numbers from 0 to count - 1 by ascending keys, of equal ones the lower first.
  template <class T, class... Functions>
  __device__ void sort(const Buffer<T, 1> &out, int count, const Functions &...functions) {
    int *keys = reinterpret_cast<int *>(dynamicShared() + abi::kCallSharedBytes);
    int kept = 0;
    __syncthreads();
    (keepKeys(keys + kept++ * count, count, functions), ...);
    __syncthreads();
#pragma unroll 1
    for (int i = threadIdx.x; i < count; i += kCallThreads) {
      int before = 0;
#pragma unroll 1
      for (int j = 0; j < count; ++j) {
        int k = 0;
        while (k < kept - 1 && keys[k * count + j] == keys[k * count + i])
          ++k;
        const u32 other = u32(keys[k * count + j]), own = u32(keys[k * count + i]);
        before += other < own || (other == own && j < i);
      }
      out.data[before] = Element<T>::stored(i);
    }
    __syncthreads();
  }

private:
  template <class Function> __device__ void keepKeys(int *keys, int count, const Function &function) {
    const int earlier = fault;
#pragma unroll 1
    for (int base = 0; base < count; base += kCallThreads) {
      const int i = base + int(threadIdx.x);
      const u32 key = rankOf<false>(evaluate(base + warpId() * 32, count, function));
      agreeOfCta(earlier);
      if (i < count)
        keys[i] = int(key);
    }
  }
  /// Of this lane and all before it.
  __device__ static int sumToLane(int mine) {
#pragma unroll
    for (int distance = 1; distance < 32; distance <<= 1) {
      const int before = __shfl_up_sync(~0u, mine, distance);
      mine = laneId() >= distance ? wrapAdd(mine, before) : mine;
    }
    return mine;
  }
  /// All warps take the fault of the first of them that has one. `earlier`: what it was before.
  __device__ void agreeOfCta(int earlier) {
    CallShared &shared = sharedOfCall();
    if (laneId() == 0) {
      shared.faults[warpId()] = fault == earlier ? 0 : fault;
      shared.numbers[warpId()] = numbers;
    }
    __syncthreads();
    if (earlier == 0) {
      fault = 0;
#pragma unroll 1
      for (int w = 0; w < kCallWarps && fault == 0; ++w) {
        fault = shared.faults[w];
        numbers = shared.numbers[w];
      }
    } else {
      fault = earlier;
    }
    __syncthreads();
  }
};

/// A lane that looks for copy number `wanted` of an item, and does none.
struct CopyOfCall : LaneBinders {
  int wanted = 0;
  char *to = nullptr;
  const char *from = nullptr;
  long long bytes = 0;

  __device__ static int rank() { return 0; }
  __device__ static void meet() {}
  template <int Number> __device__ void move(char *copyTo, const char *copyFrom, long long copied) {
    if (Number != wanted)
      return;
    to = copyTo;
    from = copyFrom;
    bytes = copied;
  }
};

// --- faults -------------------------------------------------------------------

/// One thread tells of a fault of an item.
__device__ __noinline__ void tellFault(const abi::CallHeader &header, int stage, int item, int fault,
                                       const abi::FaultNumbers &numbers) {
  abi::CallStatus &status = *header.status;
  const u64 key = u64(header.serial & 0xffffff) << 40 | u64(stage) << 32 | u32(item);
  while (atomicCAS(&status.lock, 0u, 1u) != 0)
    __nanosleep(32);
  __threadfence();
  if (loadRelaxed(reinterpret_cast<const u32 *>(&status.fault)) == 0 || key < status.key) {
    status.key = key;
    for (int i = 0; i < 3; ++i)
      status.numbers[i] = numbers.words[i];
    atomicExch(&status.fault, fault);
  }
  __threadfence();
  atomicExch(&status.lock, 0u);
}
template <class T>
__device__ __forceinline__ void tellFaultOf(const abi::CallHeader &header, int stage, int item, const T &t) {
  if (t.fault && t.rank() == 0)
    tellFault(header, stage, item, t.fault, t.numbers);
}

// --- a stage ------------------------------------------------------------------

/// The items that thread or warp `rank` of `ranks` takes.
template <class Stage, class Who, class Call>
__device__ void runItems(const Call &call, const abi::StageWork &work, long long rank, long long ranks) {
  for (long long i = work.low + rank; i < work.high; i += ranks) {
    OnBuffers<Who> t;
    Stage::run(t, call.dims, call.buffers, int(i));
    tellFaultOf(call.header, Stage::number, int(i - work.low), t);
  }
}

/// Copies, in parts of at most so many bytes. A lane looks for each part, then the warp copies one after the other.
template <class Stage, class Call>
__device__ void dealCopies(const Call &call, const abi::StageWork &work, int ticket) {
  const long long items = (long long)work.high - work.low, units = items * Stage::copies * work.parts;
  const long long warps = (long long)work.tickets * kCallWarps;
  const long long warp = (long long)ticket * kCallWarps + warpId();
#pragma unroll 1
  for (long long base = warp; base < units; base += warps * 32) {
    const long long unit = base + warps * laneId();
    OnBuffers<CopyOfCall> t;
    char *to = nullptr;
    const char *from = nullptr;
    long long bytes = 0;
    if (unit < units) {
      const int item = int(unit % items);
      const long long rest = unit / items, part = rest / Stage::copies;
      t.wanted = int(rest % Stage::copies);
      Stage::run(t, call.dims, call.buffers, work.low + item);
      if (part == 0 && t.wanted == 0)
        tellFaultOf(call.header, Stage::number, item, t);
      // Parts are cut where 16 bytes begin.
      const auto cut = [&](long long number) {
        const u64 at = ((u64)t.to + u64(number * work.partBytes)) & ~15ull;
        return number == 0 ? 0 : min(t.bytes, (long long)(at - (u64)t.to));
      };
      const long long begin = cut(part), end = part + 1 == work.parts ? t.bytes : cut(part + 1);
      to = t.to + begin;
      from = t.from + begin;
      bytes = t.fault ? 0 : end - begin;
    }
    u32 some = __ballot_sync(~0u, bytes > 0);
#pragma unroll 1
    for (; some; some &= some - 1) {
      const int lane = __ffs(some) - 1;
      copyBytes(reinterpret_cast<char *>(__shfl_sync(~0u, (u64)to, lane)),
                reinterpret_cast<const char *>(__shfl_sync(~0u, (u64)from, lane)), __shfl_sync(~0u, bytes, lane),
                laneId(), 32);
    }
  }
}

/// A CTA's part of a stage: its `ticket`th.
template <class Stage, class Call> __device__ void runStage(const Call &call, int ticket) {
  const abi::StageWork &work = call.work[Stage::number];
  if constexpr (Stage::once) {
    OnBuffers<CtaOfCall> t;
    Stage::run(t, call.dims, call.buffers);
    tellFaultOf(call.header, Stage::number, 0, t);
  } else if constexpr (Stage::copies > 0) {
    dealCopies<Stage>(call, work, ticket);
  } else {
    if constexpr (Stage::lanes)
      if (work.taken != int(abi::Taken::Warp)) {
        const bool serial = work.taken == int(abi::Taken::Serial);
        if (!serial || threadIdx.x == 0)
          runItems<Stage, LaneOfCall>(call, work, serial ? 0 : (long long)ticket * kCallThreads + threadIdx.x,
                                      serial ? 1 : (long long)work.tickets * kCallThreads);
        return;
      }
    if constexpr (Stage::warps)
      runItems<Stage, WarpOfCall>(call, work, (long long)ticket * kCallWarps + warpId(),
                                  (long long)work.tickets * kCallWarps);
  }
}

/// The stages of a pipeline, in their order.
template <class... Stages> struct StageList {
  static constexpr int count = int(sizeof...(Stages));
  template <class Call> __device__ __forceinline__ static void run(const Call &call, int stage, int ticket) {
    ((stage == Stages::number ? runStage<Stages>(call, ticket) : void()), ...);
  }
};

// --- a launch -----------------------------------------------------------------

/// The ticket of this CTA.
__device__ __forceinline__ int takeTicket(const abi::CallHeader &header) {
  CallShared &shared = sharedOfCall();
  if (threadIdx.x == 0)
    shared.ticket = atomicInc(&header.counters->ticket, gridDim.x - 1); // from the last one back to 0
  __syncthreads();
  return int(shared.ticket);
}

template <class Stages, class Call> __device__ void runCall(const Call &call) {
  const abi::CallHeader &header = call.header;
  if (header.last - header.first == 1) // no CTA waits for another
    return Stages::run(call, header.first, blockIdx.x);
  CallShared &shared = sharedOfCall();
  const bool alone = gridDim.x == 1;
  if (alone) {
#pragma unroll 1
    for (int stage = header.first; stage < header.last; ++stage) {
#pragma unroll 1
      for (int ticket = 0; ticket < max(1, call.work[stage].tickets); ++ticket)
        Stages::run(call, stage, ticket);
      __syncthreads();
    }
    return;
  }
  const int ticket = takeTicket(header);
  int stage = header.first;
#pragma unroll 1
  while (ticket >= call.work[stage].begin + call.work[stage].tickets)
    ++stage;
  abi::CallCounters &counters = *header.counters;
  if (call.work[stage].need > 0) {
    if (threadIdx.x == 0)
      while (loadAcquire(&counters.done) < u32(call.work[stage].need))
        __nanosleep(0);
    __syncthreads();
  }
  Stages::run(call, stage, ticket - call.work[stage].begin);
#pragma unroll 1
  while (true) {
    __syncthreads();
    if (threadIdx.x == 0) {
      __threadfence(); // what all threads of the CTA have written
      const u32 done = atomicInc(&counters.done, header.ends - 1) + 1;
      __threadfence();
      shared.ended = stage + 1 < header.last && done == u32(call.work[stage + 1].need) &&
                     call.work[stage + 1].tickets == 0 && call.work[stage + 1].taken == int(abi::Taken::Once);
    }
    __syncthreads();
    if (!shared.ended)
      return;
    Stages::run(call, ++stage, 0);
  }
}

} // namespace megalith::device
