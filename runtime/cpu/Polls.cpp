//===- Polls.cpp - threads that wait by looking ---------------------------===//
//
// A thread that looks at the same places again and again, and finds nothing new,
// waits in a queue until one of them changes, nobody else can go on, or its turn
// comes anyway.
//===----------------------------------------------------------------------===//
#include "runtime/cpu/Machine.h"

namespace megalith::cpu {

namespace {
/// Looks at its first place after which a thread counts as idle; device code may look
/// at its stop flag in every 1024th round only. Plain writes, which show that a thread
/// does something, are seen in a checked launch only.
constexpr uint64_t kIdleRounds = 4200, kIdleRoundsUnchecked = 65536;
/// Looks in all, for loops over many places.
constexpr uint64_t kIdleLooks = 1 << 20;
} // namespace

/// Whether the thread should wait before it looks at `at` again, where `value` stands.
bool Machine::wouldHold(const Fiber *f, const void *at, uint64_t value, bool barrier) const {
  if (!barrier && (f->looksAtBarrier || f->inRow < kPatience))
    return false;
  for (unsigned i = 0; i < f->seenCount; ++i)
    if (f->seen[i].at == at)
      return f->seen[i].value == value;
  return false;
}

/// The thread looked at `at`, found `value` and did nothing. `bytes` 0: an mbarrier.
void Machine::look(Fiber *f, const void *at, unsigned bytes, uint64_t value) {
  if (f->pollStamp != stamp) {
    f->pollStamp = stamp;
    f->rounds = f->looks = 0;
  }
  ++f->looks;
  f->lookedAt = at;
  f->lookedBytes = bytes;
  f->looksAtBarrier |= bytes == 0;
  for (unsigned i = 0; i < f->seenCount; ++i)
    if (f->seen[i].at == at) {
      if (f->seen[i].value == value) {
        ++f->inRow;
        f->rounds += i == 0;
      } else {
        f->seen[i].value = value;
        f->inRow = f->rounds = 0;
      }
      return;
    }
  f->inRow = f->rounds = 0;
  if (f->seenCount < Fiber::kSeen) {
    f->seen[f->seenCount++] = {at, value};
  } else {
    f->seen[f->seenNext] = {at, value};
    f->seenNext = (f->seenNext + 1) % Fiber::kSeen;
  }
}

bool Machine::idleFiber(const Fiber *f) const {
  return f->lookedAt && f->pollStamp == stamp &&
         (f->rounds >= (check || stalled ? kIdleRounds : kIdleRoundsUnchecked) || f->looks >= kIdleLooks);
}

/// `bytes` as in look().
void Machine::hold(Fiber *f, const void *at, unsigned bytes) {
  f->state = Fiber::Polling;
  f->lookedAt = at;
  f->lookedBytes = bytes;
  f->pollPrevious = pollTail;
  f->pollNext = ~0u;
  (pollTail == ~0u ? pollHead : fibers[pollTail].pollNext) = f->index;
  pollTail = f->index;
  uint32_t &bucket = buckets[bucketOf(at)];
  f->bucketPrevious = ~0u;
  f->bucketNext = bucket;
  if (bucket != ~0u)
    fibers[bucket].bucketPrevious = f->index;
  bucket = f->index;
  if (pollCount++ == 0) {
    servePollerAt = steps + 1024;
    nextEvent = std::min(nextEvent, servePollerAt);
  }
  block();
}

void Machine::leaveQueue(Fiber *f) {
  (f->pollPrevious == ~0u ? pollHead : fibers[f->pollPrevious].pollNext) = f->pollNext;
  (f->pollNext == ~0u ? pollTail : fibers[f->pollNext].pollPrevious) = f->pollPrevious;
  (f->bucketPrevious == ~0u ? buckets[bucketOf(f->lookedAt)] : fibers[f->bucketPrevious].bucketNext) = f->bucketNext;
  if (f->bucketNext != ~0u)
    fibers[f->bucketNext].bucketPrevious = f->bucketPrevious;
  --pollCount;
}

/// What is at `at` changed.
void Machine::wakeWatchers(const void *at) {
  for (uint32_t i = buckets[bucketOf(at)], next; i != ~0u; i = next) {
    Fiber *f = &fibers[i];
    next = f->bucketNext;
    if (f->lookedAt == at) {
      leaveQueue(f);
      makeReady(f);
    }
  }
}

} // namespace megalith::cpu
