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
  int sums[32];
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
  static constexpr bool firstBallots = true; ///< it gains by AheadOfCall
  __device__ static int rank() { return laneId(); }
  /// What a lane has written, others read behind it.
  __device__ static void meet() { __syncwarp(); }
  template <int> __device__ static void move(char *to, const char *from, long long bytes) {
    meet();
    copyBytes(to, from, bytes, laneId(), 32);
    meet();
  }

  /// Several ballots at once: their loads do not wait for each other.
  template <class Test> __device__ __forceinline__ int prefixWhile(int count, Test test) {
    int base = 0;
#pragma unroll 1
    for (; count - base > 32; base += 32 * kBallots)
      if (const int found = firstFailure<kBallots>(base, count, test); found >= 0)
        return found;
    const int found = base < count ? firstFailure<1>(base, count, test) : -1;
    return found >= 0 ? found : count > 0 ? count : 0;
  }
  template <class Test> __device__ int prefixWhile(int count, InTurn<Test> test) {
    return prefixWhileInTurn(count, test.function);
  }
  template <class Test> __device__ int prefixWhile(int low, int high, Test test) {
    return prefixWhile(lengthOf(low, high), from(low, test));
  }

private:
  static constexpr int kBallots = 4;
  /// The first of 32 * `Ballots` numbers from `base` on for which test() does not hold; -1: none.
  template <int Ballots, class Test> __device__ __forceinline__ int firstFailure(int base, int count, Test test) {
    const int earlier = fault;
    bool holds[Ballots];
#pragma unroll
    for (int k = 0; k < Ballots; ++k) {
      // No branch: a lane without a number looks at the last one.
      const int i = base + k * 32 + laneId();
      const bool held = test(i < count ? i : count - 1);
      holds[k] = held || i >= count;
    }
    // Which fault counts, if any, is seen one ballot after the other.
    if (__any_sync(~0u, fault != earlier)) {
      fault = earlier;
      const int end = min(count, base + 32 * Ballots), found = base + Binders::prefixWhile(base, end, test);
      return found < end || fault ? found : -1;
    }
#pragma unroll
    for (int k = 0; k < Ballots; ++k)
      if (const u32 failed = __ballot_sync(~0u, !holds[k]))
        return base + k * 32 + __ffs(failed) - 1;
    return -1;
  }
};

/// What an item looks at is brought near before the item is run, or known to be the warp's. It changes nothing.
struct AheadOfCall : FaultingFunctions {
  template <class Function> __device__ static void each(int count, Function function) {
#pragma unroll 1
    for (int i = laneId(); i < count && i < 256; i += 32)
      function(i);
  }
  template <class T> __device__ static void bring(const Known<T> &place) { bringNear(place.data + place.number); }
};

/// A stage without items: all warps go through it together, and find the same.
struct CtaOfCall : WarpOfCall {
  bool writes = true; ///< a scan goes into its buffer
  bool own = false;   ///< it goes into shared memory
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
    constexpr int each = 4; // numbers of a thread, whose loads do not wait for each other
    static_assert(each * kCallWarps == 32);
    CallShared &shared = sharedOfCall();
    int total = 0;
#pragma unroll 1
    for (int base = 0; base < count; base += each * kCallThreads) {
      const int earlier = fault, first = base + int(threadIdx.x);
      int sums[each];
#pragma unroll
      for (int k = 0; k < each; ++k)
        sums[k] = sumToLane(valueAt(first + k * kCallThreads, count, function));
      if (laneId() == 31) {
#pragma unroll
        for (int k = 0; k < each; ++k)
          shared.sums[k * kCallWarps + warpId()] = sums[k];
      }
      if (__syncthreads_or(fault != earlier))
        firstFault(base, count, earlier, function);
      const int sumsBefore = sumToLane(shared.sums[laneId()]); // lane i: of places 0 to i
#pragma unroll
      for (int k = 0; k < each; ++k) {
        const int place = k * kCallWarps + warpId() - 1, i = first + k * kCallThreads;
        const int before = __shfl_sync(~0u, sumsBefore, place & 31);
        const T sum = Element<T>::stored(wrapAdd(total, wrapAdd(place < 0 ? 0 : before, sums[k])));
        if (i < count && writes)
          out.data[i] = sum;
        if (i < count && own)
          reinterpret_cast<T *>(dynamicShared() + abi::kCallSharedBytes)[i] = sum;
      }
      total = wrapAdd(total, __shfl_sync(~0u, sumsBefore, 31));
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
  /// function(i) of a lane; 0 from `count` on. What takes the whole warp is called for one lane's i after the other.
  template <class Function> __device__ __forceinline__ int valueAt(int i, int count, const Function &function) {
    return i < count ? function(i) : 0;
  }
  template <class Function> __device__ int valueAt(int i, int count, const InTurn<Function> &function) {
    return evaluate(i - laneId(), count, function);
  }
  /// Some thread has found a fault in a chunk of a scan: all take the first one, by the numbers.
  template <class Function>
  __device__ __forceinline__ void firstFault(int base, int count, int earlier, const Function &function) {
    __syncthreads();
    fault = earlier;
#pragma unroll 1
    for (int at = base; at < count && at < base + 4 * kCallThreads && fault == earlier; at += kCallThreads) {
      evaluate(at + warpId() * 32, count, function);
      agreeOfCta(earlier);
    }
    __syncthreads();
  }
  template <class Function> __device__ void keepKeys(int *keys, int count, const Function &function) {
    const int earlier = fault;
#pragma unroll 1
    for (int base = 0; base < count; base += kCallThreads) {
      const int i = base + int(threadIdx.x);
      const u32 key = rankOf<false>(evaluate(base + warpId() * 32, count, function));
      if (__syncthreads_or(fault != earlier))
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

/// One thread tells of a fault of an item. The numbers come by value: who has an address stands in memory.
__device__ __noinline__ void tellFault(const abi::CallHeader &header, int stage, int item, int fault, int first,
                                       int second, int third) {
  abi::CallStatus &status = *header.status;
  const u64 key = u64(header.serial & 0xffffff) << 40 | u64(stage) << 32 | u32(item);
  while (atomicCAS(&status.lock, 0u, 1u) != 0)
    __nanosleep(32);
  __threadfence();
  if (loadRelaxed(reinterpret_cast<const u32 *>(&status.fault)) == 0 || key < status.key) {
    status.key = key;
    status.numbers[0] = first;
    status.numbers[1] = second;
    status.numbers[2] = third;
    atomicExch(&status.fault, fault);
  }
  __threadfence();
  atomicExch(&status.lock, 0u);
}
template <class T>
__device__ __forceinline__ void tellFaultOf(const abi::CallHeader &header, int stage, int item, const T &t) {
  if (t.fault && t.rank() == 0)
    tellFault(header, stage, item, t.fault, t.numbers.words[0], t.numbers.words[1], t.numbers.words[2]);
}

// --- a stage ------------------------------------------------------------------

/// Whether a warp can ask for what an item looks at before it does.
template <class Stage, class Who> __device__ constexpr bool brings() {
  if constexpr (requires { Stage::brings; })
    return Stage::brings && requires(Who who) { who.firstBallots; };
  else
    return false;
}

/// The items that thread or warp `rank` of `ranks` takes.
template <class Stage, class Who, class Call, class Buffers>
__device__ __forceinline__ void runItems(const Call &call, const Buffers &buffers, const abi::StageWork &work,
                                         long long rank, long long ranks) {
#pragma unroll 1
  for (long long i = work.low + rank; i < work.high; i += ranks) {
    if constexpr (brings<Stage, Who>()) {
      AheadOfCall ahead;
      Stage::ahead(ahead, call.dims, buffers, int(i));
    }
    OnBuffers<Who> t;
    Stage::run(t, call.dims, buffers, int(i));
    tellFaultOf(call.header, Stage::number, int(i - work.low), t);
  }
}

/// Copies, in parts of kCallPartBytes. A lane looks for each part, then the warp copies one after the other.
template <class Stage, class Call, class Buffers>
__device__ __forceinline__ void dealCopies(const Call &call, const Buffers &buffers, const abi::StageWork &work,
                                           int ticket) {
  const u32 warps = u32(work.tickets * kCallWarps);
  const u32 units =
      u32(work.high - work.low) * u32(Stage::copies * work.parts); // the host has seen that they are so few
  const u32 warp = u32(ticket * kCallWarps + warpId());
#pragma unroll 1
  for (u32 base = warp; base < units; base += warps * 32) {
    const u32 unit = base + warps * u32(laneId());
    OnBuffers<CopyOfCall> t;
    char *to = nullptr;
    const char *from = nullptr;
    int bytes = 0;
    if (unit < units) {
      // Neighbours in memory are copied at the same time.
      const u32 copy = unit / u32(work.parts), part = unit - copy * u32(work.parts);
      const int item = int(copy / Stage::copies);
      t.wanted = int(copy % Stage::copies);
      Stage::run(t, call.dims, buffers, work.low + item);
      if (part == 0 && t.wanted == 0)
        tellFaultOf(call.header, Stage::number, item, t);
      // Parts are cut where 16 bytes begin. The first one has what is in front.
      const auto cut = [&](u32 number) {
        const u64 at = ((u64)t.to + u64(number) * abi::kCallPartBytes) & ~15ull;
        return number == 0 ? 0 : min(t.bytes, (long long)(at - (u64)t.to));
      };
      const long long begin = cut(part);
      to = t.to + begin;
      from = t.from + begin;
      bytes = t.fault ? 0 : int((part + 1 == u32(work.parts) ? t.bytes : cut(part + 1)) - begin);
    }
    u32 some = __ballot_sync(~0u, bytes > 0);
#pragma unroll 1
    for (; some; some &= some - 1) {
      const int lane = __ffs(some) - 1;
      char *const partTo = reinterpret_cast<char *>(__shfl_sync(~0u, (u64)to, lane));
      const char *const partFrom = reinterpret_cast<const char *>(__shfl_sync(~0u, (u64)from, lane));
      const int partBytes = __shfl_sync(~0u, bytes, lane);
      if ((((u64)partTo | (u64)partFrom) & 15) == 0 && partBytes <= abi::kCallPartBytes)
        copyPart(partTo, partFrom, partBytes);
      else
        copyBytes(partTo, partFrom, partBytes, laneId(), 32);
    }
  }
}

/// A lane that looks where the first part that its warp copies comes from, if that is known before all else is.
struct SourceOfCall : LaneBinders {
  const char *from = nullptr;
  long long bytes = 0; ///< there, at most
  __device__ static int rank() { return 0; }
  __device__ static void meet() {}
};

/// Asks for the first part that a warp copies, as far as it may be copied.
template <class Stage, class Call>
__device__ __forceinline__ void copiesAhead(const Call &call, const abi::StageWork &work, u32 unit) {
  if constexpr (requires { Stage::brings; }) {
    const u32 units = u32(work.high - work.low) * u32(Stage::copies * work.parts);
    if (unit >= units)
      return;
    const u32 copy = unit / u32(work.parts), part = unit - copy * u32(work.parts);
    OnBuffers<SourceOfCall> t;
    Stage::ahead(t, call.dims, call.buffers, work.low + int(copy / Stage::copies), int(copy % Stage::copies));
    const long long at = (long long)part * abi::kCallPartBytes + laneId() * 128;
    if (at < t.bytes)
      prefetch(t.from + at);
  }
}

/// A CTA's part of a stage: its `ticket`th.
template <class Stage, class Call, class Buffers>
__device__ __forceinline__ void runStage(const Call &call, const Buffers &buffers, int ticket) {
  const abi::StageWork &work = call.work[Stage::number];
  if constexpr (Stage::once) {
    OnBuffers<CtaOfCall> t;
    Stage::run(t, call.dims, buffers);
    tellFaultOf(call.header, Stage::number, 0, t);
  } else if constexpr (Stage::copies > 0) {
    dealCopies<Stage>(call, buffers, work, ticket);
  } else {
    if constexpr (Stage::lanes)
      if (work.taken != int(abi::Taken::Warp)) {
        const bool serial = work.taken == int(abi::Taken::Serial);
        if (!serial || threadIdx.x == 0)
          runItems<Stage, LaneOfCall>(call, buffers, work, serial ? 0 : (long long)ticket * kCallThreads + threadIdx.x,
                                      serial ? 1 : (long long)work.tickets * kCallThreads);
        return;
      }
    if constexpr (Stage::warps)
      runItems<Stage, WarpOfCall>(call, buffers, work, (long long)ticket * kCallWarps + warpId(),
                                  (long long)work.tickets * kCallWarps);
  }
}

/// The same behind a stage `Scan`, which each CTA goes through for itself: what it scans stands in shared memory.
template <class Scan, class Stage, class Call> __device__ __forceinline__ void runBehind(const Call &call, int ticket) {
  OnBuffers<CtaOfCall> t;
  t.writes = ticket == 0; // for who reads it later
  t.own = true;
  Scan::run(t, call.dims, call.buffers);
  if (ticket == 0)
    tellFaultOf(call.header, Scan::number, 0, t);
  runStage<Stage>(call, Scan::behind(call.buffers, dynamicShared() + abi::kCallSharedBytes), ticket);
}

/// The stages of a pipeline, in their order.
template <class... Stages> struct StageList {
  static constexpr int count = int(sizeof...(Stages));
  template <class Call> __device__ __forceinline__ static void run(const Call &call, int stage, int ticket) {
    each<Call, void, Stages...>(call, stage, ticket);
  }

  /// Asks for what a CTA's part of a stage will look at.
  template <class Call> __device__ __forceinline__ static void ahead(const Call &call, int stage, int ticket) {
    ((stage == Stages::number ? aheadOf<Stages>(call, ticket) : void()), ...);
  }

private:
  template <class Stage, class Call> __device__ __forceinline__ static void aheadOf(const Call &call, int ticket) {
    const abi::StageWork &work = call.work[Stage::number];
    const long long warp = (long long)ticket * kCallWarps + warpId();
    if constexpr (Stage::copies > 0) {
      copiesAhead<Stage>(call, work, u32(warp));
    } else if constexpr (brings<Stage, WarpOfCall>()) {
      if (work.taken == int(abi::Taken::Warp) && warp < (long long)work.high - work.low) {
        AheadOfCall t;
        Stage::ahead(t, call.dims, call.buffers, int(work.low + warp));
      }
    }
  }
  template <class Call, class Before, class Stage, class... More>
  __device__ __forceinline__ static void each(const Call &call, int stage, int ticket) {
    if (stage == Stage::number) {
      if constexpr (scans<Before>())
        if (call.work[Before::number].taken == int(abi::Taken::Each))
          return runBehind<Before, Stage>(call, ticket);
      return runStage<Stage>(call, call.buffers, ticket);
    }
    if constexpr (sizeof...(More) > 0)
      each<Call, Stage, More...>(call, stage, ticket);
  }
  /// Whether each CTA of the next stage may go through it for itself.
  template <class Stage> __device__ static constexpr bool scans() {
    if constexpr (requires { Stage::scans; })
      return Stage::scans;
    else
      return false;
  }
};

// --- a launch -----------------------------------------------------------------

/// Takes this CTA's ticket of the call, whose number is above kCallTicketBits.
__device__ __forceinline__ u32 takeTicket(abi::CallCounters &counters) {
  CallShared &shared = sharedOfCall();
  if (threadIdx.x == 0) {
    const u32 taken = atomicAdd(&counters.ticket, 1u);
    shared.ticket = taken;
    // All have theirs. The next call begins at ticket 0, with the other counter, which nobody uses now.
    if ((taken & ((1u << abi::kCallTicketBits) - 1)) == gridDim.x - 1) {
      atomicExch(&counters.done[(taken >> abi::kCallTicketBits & 1) ^ 1], 0u);
      atomicAdd(&counters.ticket, (1u << abi::kCallTicketBits) - gridDim.x);
    }
  }
  __syncthreads();
  return shared.ticket;
}

template <class Stages, class Call> __device__ void runCall(const Call &call) {
  const abi::CallHeader &header = call.header;
  if (header.last - header.first == 1) // no CTA waits for another
    return Stages::run(call, header.first, blockIdx.x);
  const bool alone = gridDim.x == 1;
  abi::CallCounters &counters = *header.counters;
  // Tickets come in the order of CTAs, most often.
  if (blockIdx.x < u32(call.work[header.first].tickets))
    Stages::ahead(call, header.first, blockIdx.x);
  const u32 taken = alone ? 0 : takeTicket(counters);
  const int ticket = int(taken & ((1u << abi::kCallTicketBits) - 1));
  u32 *const done = &counters.done[taken >> abi::kCallTicketBits & 1];
  int stage = header.first;
#pragma unroll 1
  while (!alone && ticket >= call.work[stage].begin + call.work[stage].tickets)
    ++stage;
  int part = alone ? 0 : ticket - call.work[stage].begin;
  if (!alone && call.work[stage].need > 0) {
    Stages::ahead(call, stage, part);
    if (threadIdx.x == 0)
      while (loadAcquire(done) < u32(call.work[stage].need))
        ;
    __syncthreads();
  }
#pragma unroll 1
  while (true) {
    if (call.work[stage].taken != int(abi::Taken::Each)) // the next one goes through it, too
      Stages::run(call, stage, part);
    if (++stage == header.last)
      return;
    part = 0;
    __syncthreads(); // what all threads of the CTA have written
    if (alone)
      continue;
    const abi::StageWork &next = call.work[stage];
    if (next.tickets > 0 || next.taken != int(abi::Taken::Once)) {
      if (threadIdx.x == 0)
        addRelease(done, 1);
      return;
    }
    CallShared &shared = sharedOfCall();
    if (threadIdx.x == 0)
      shared.ended = addAcquireRelease(done, 1) + 1 == u32(next.need);
    __syncthreads();
    if (!shared.ended)
      return;
  }
}

} // namespace megalith::device
