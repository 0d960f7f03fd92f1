//===- Mbarriers.cpp - barriers in shared memory --------------------------===//
//
// The eight bytes of an mbarrier hold its number; its state is in a table.
//===----------------------------------------------------------------------===//
#include "runtime/cpu/Machine.h"

namespace megalith::cpu {

namespace {
constexpr unsigned long long kMagic = 0x4D42ull << 48; ///< of the bytes of an mbarrier
constexpr unsigned kMostCount = (1 << 20) - 1;         ///< of arrivals, and of bytes
} // namespace

Mbarrier &Machine::findMbarrier(Fiber *f, unsigned long long *bar, const char *use) {
  if (check)
    reachOf(f, bar, sizeof *bar, false);
  if ((uintptr_t)bar % 8)
    fail(FindingKind::Misaligned, use, "the mbarrier at %s is not aligned to 8 bytes", where(bar).c_str());
  const unsigned long long number = *bar ^ kMagic;
  if (number >= mbarriers.size() || mbarriers[number].at != bar)
    fail(FindingKind::MbarrierMisuse, use, "the mbarrier at %s is used before it was initialised", where(bar).c_str());
  Mbarrier &b = mbarriers[number];
  if (check && b.initThread != f->index && f->base->at[b.initThread] < b.initClock) {
    note(FindingKind::MbarrierMisuse,
         "the mbarrier at " + where(bar) + " is used, and its initialisation is not ordered before",
         {party(f, use), party(&fibers[b.initThread], "initialised it")});
    stop(Ending::Found);
  }
  return b;
}

void Machine::mbarrierInit(Fiber *f, unsigned long long *bar, unsigned count) {
  act(f);
  const size_t offset = reinterpret_cast<char *>(bar) - arena.base;
  if (offset >= Arena::kShared || offset / Arena::kSharedSlot != f->pub.cta)
    fail(FindingKind::OutOfBounds, "initialises", "an mbarrier at %s, which is not shared memory of the thread's CTA",
         where(bar).c_str());
  if ((uintptr_t)bar % 8)
    fail(FindingKind::Misaligned, "initialises", "the mbarrier at %s is not aligned to 8 bytes", where(bar).c_str());
  if (count == 0 || count > kMostCount)
    fail(FindingKind::MbarrierMisuse, "initialises", "the mbarrier at %s expects %u arrivals: 1 to %u are possible",
         where(bar).c_str(), count, kMostCount);
  for (const uint32_t other : ctaOf(f).mbarriers)
    if (mbarriers[other].at == bar && (check || *bar == (kMagic | other)))
      fail(FindingKind::MbarrierMisuse, "initialises", "the mbarrier at %s is initialised a second time",
           where(bar).c_str());
  if (check) {
    plain(f, bar, sizeof *bar, true, f->pc);
    markMbarrier(offset);
  }
  const uint32_t number = mbarriers.size();
  Mbarrier b{};
  b.at = bar;
  b.cta = f->pub.cta;
  b.count = b.pending = count;
  b.initThread = f->index;
  b.initClock = f->own;
  mbarriers.push_back(std::move(b));
  ctaOf(f).mbarriers.push_back(number);
  *bar = kMagic | number;
  noteChange();
}

void Machine::proxyFence(Fiber *f, Space space) {
  if (!check)
    return;
  if (space == Space::Shared)
    for (const uint32_t number : ctaOf(f).mbarriers) {
      Mbarrier &b = mbarriers[number];
      if (b.initThread == f->index && b.fenceClock == 0)
        b.fenceClock = f->own;
    }
  Release all = releaseOf(f);
  f->proxied.of[(int)space] = clocks.whole(all);
}

/// The phase is over when nothing is missing.
void Machine::settle(Mbarrier &b) {
  if (b.pending || b.bytes)
    return;
  if (check) {
    for (const uint32_t i : b.lagging)
      if (fibers[i].waitBarrier == (uint32_t)(&b - mbarriers.data()) && fibers[i].waitPhase + 1 == b.phase) {
        note(FindingKind::PhaseOverrun,
             "the mbarrier at " + where(b.at) + " completes phase " + std::to_string(b.phase) +
                 " while a thread that waits for phase " + std::to_string(b.phase - 1) +
                 " has not seen that one complete",
             {party(&fibers[i], "waits for phase " + std::to_string(b.phase - 1)), party(current, "completes")});
        stop(Ending::Found);
      }
    b.done = clocks.gather(b.arrivals, b.landed);
    b.proxied = clocks.gatherProxied(b.arrivals);
    b.arrivals.clear();
    b.landed.clear();
    b.lagging.swap(b.waiters);
    b.waiters.clear();
  }
  ++b.phase;
  b.pending = b.count;
  b.expected = 0;
  noteChange();
  wakeWatchers(b.at);
}

void Machine::arriveOnce(Mbarrier &b, const Release &release) {
  if (b.pending == 0)
    fail(FindingKind::MbarrierMisuse, "arrives",
         "more than the expected %u threads arrive at the mbarrier at %s in phase %llu", b.count, where(b.at).c_str(),
         (unsigned long long)b.phase);
  --b.pending;
  if (check)
    b.arrivals.push_back(release);
  noteChange();
  settle(b);
}

void Machine::completeBytes(Mbarrier &b, unsigned bytes) {
  b.bytes -= bytes;
  if (b.bytes < -(int64_t)kMostCount)
    fail(FindingKind::MbarrierMisuse, "runs", "%lld bytes more than expected land at the mbarrier at %s",
         (long long)-b.bytes, where(b.at).c_str());
  noteChange();
  settle(b);
}

void Machine::mbarrierArrive(Fiber *f, Mbarrier &b, unsigned expect) {
  act(f);
  b.bytes += expect;
  b.expected += expect;
  if (b.bytes > (int64_t)kMostCount)
    fail(FindingKind::MbarrierMisuse, "arrives", "the mbarrier at %s expects %lld bytes: at most %u are possible",
         where(b.at).c_str(), (long long)b.bytes, kMostCount);
  arriveOnce(b, check ? releaseOf(f) : Release{});
}

bool Machine::mbarrierTest(Fiber *f, unsigned long long *bar, unsigned parity) {
  uint32_t number = &findMbarrier(f, bar, "waits") - mbarriers.data();
  parity &= 1;
  if ((mbarriers[number].phase & 1) == parity && wouldHold(f, bar, mbarriers[number].phase, true))
    hold(f, bar, 0);
  Mbarrier &b = mbarriers[number];
  if ((b.phase & 1) != parity) {
    if (check) {
      learn(f, b.done);
      clocks.join(f->proxied, b.proxied);
      if (f->waitBarrier == number)
        f->waitBarrier = ~0u;
    }
    act(f);
    return true;
  }
  if (check && (f->waitBarrier != number || f->waitPhase != b.phase)) {
    f->waitBarrier = number;
    f->waitPhase = b.phase;
    b.waiters.push_back(f->index);
  }
  look(f, bar, 0, b.phase);
  return false;
}

} // namespace megalith::cpu
