//===- Copies.cpp - asynchronous copies -----------------------------------===//
//
// A checked launch lets copies land later, bulk ones in pieces and in any order.
//===----------------------------------------------------------------------===//
#include "runtime/cpu/Machine.h"

#include <algorithm>
#include <cstring>

namespace megalith::cpu {

namespace {
constexpr uint64_t kRoundRobinDelay = 64; ///< steps
constexpr unsigned kMostDelayBits = 14;
constexpr unsigned kMostPieces = 4;
} // namespace

void Machine::checkCopy(Fiber *f, void *to, const void *from, unsigned bytes) {
  if (((uintptr_t)to | (uintptr_t)from) % 16)
    fail(FindingKind::Misaligned, "copies", "an asynchronous copy from %s to %s is not aligned to 16 bytes",
         where(from).c_str(), where(to).c_str());
  const size_t target = static_cast<char *>(to) - arena.base, source = static_cast<const char *>(from) - arena.base;
  if (target >= Arena::kShared)
    fail(FindingKind::CopyMisuse, "copies", "an asynchronous copy goes to %s, which is not shared memory",
         where(to).c_str());
  reachOf(f, to, bytes, true);
  if (source < Arena::kShared)
    fail(FindingKind::CopyMisuse, "copies", "an asynchronous copy comes from %s, which is not global memory",
         where(from).c_str());
  reachOf(f, from, bytes, false);
}

uint64_t Machine::landingStep() {
  if (!decide())
    return steps + kRoundRobinDelay;
  // Soon as often as late, and now and then only when nobody can go on without it.
  if (random.below(16) == 0)
    return UINT64_MAX;
  return steps + 1 + random.below(1u << random.below(kMostDelayBits + 1));
}

void Machine::launchPiece(Piece p) {
  p.number = ++pieceNumber;
  p.due = landingStep();
  ++ctas[(p.to - arena.base) / Arena::kSharedSlot].copies;
  pieces.push_back(std::move(p));
  std::push_heap(pieces.begin(), pieces.end());
  nextEvent = std::min(nextEvent, pieces.front().due);
}

void Machine::copyBulk(Fiber *f, void *to, const void *from, unsigned bytes, unsigned long long *bar) {
  Mbarrier &b = findMbarrier(f, bar, "copies");
  act(f);
  if (!check) {
    std::memcpy(to, from, bytes);
    completeBytes(b, bytes);
    return;
  }
  if (bytes == 0 || bytes % 16)
    fail(FindingKind::CopyMisuse, "copies", "a bulk copy is of %u bytes: not a multiple of 16", bytes);
  checkCopy(f, to, from, bytes);
  if (b.fenceClock == 0 || (b.initThread != f->index && f->base->at[b.initThread] < b.fenceClock)) {
    note(FindingKind::CopyMisuse,
         "a bulk copy uses the mbarrier at " + where(bar) +
             ", and no proxy fence of the thread that initialised it is before",
         {party(f, "copies"), party(&fibers[b.initThread], "initialised it")});
    stop(Ending::Found);
  }
  if (b.agent == 0)
    b.agent = newAgent();
  Piece p{};
  p.issuer = f->index;
  p.pc = pcNumber(f->pc);
  p.base = f->base;
  for (int space = 0; space < 2; ++space)
    p.known[space] = clocks.beside(f->proxied.of[space], f->base, fibers.size());
  p.own = f->own++; // what the thread does from here on is not ordered before
  p.agent = b.agent;
  p.agentClock = tickAgent(b.agent, f->index);
  p.mbarrier = &b - mbarriers.data();
  unsigned cuts[kMostPieces + 1] = {0}, count = 1;
  if (bytes > 16 && decide())
    for (unsigned more = random.below(kMostPieces); more--;)
      cuts[count++] = (1 + random.below(bytes / 16 - 1)) * 16;
  cuts[count] = bytes;
  std::sort(cuts, cuts + count + 1);
  for (unsigned i = 0; i < count; ++i)
    if (cuts[i] != cuts[i + 1]) {
      p.to = static_cast<char *>(to) + cuts[i];
      p.from = static_cast<const char *>(from) + cuts[i];
      p.bytes = cuts[i + 1] - cuts[i];
      launchPiece(p);
    }
  noteChange();
}

void Machine::prefetchBulk(Fiber *f, const void *from, unsigned bytes) {
  if (!check)
    return;
  if (bytes == 0 || bytes % 16 || (uintptr_t)from % 16)
    fail(FindingKind::CopyMisuse, "prefetches", "a bulk prefetch is of %u bytes from %s: not of multiples of 16", bytes,
         where(from).c_str());
  reachOf(f, from, bytes, false);
}

void Machine::copyAsync(Fiber *f, void *to, const void *from) {
  act(f);
  if (!check) {
    std::memcpy(to, from, 16);
    return;
  }
  checkCopy(f, to, from, 16);
  if (f->agent == 0) {
    f->agent = newAgent();
    tickAgent(f->agent, f->index);
  }
  Piece p{};
  p.to = static_cast<char *>(to);
  p.from = static_cast<const char *>(from);
  p.bytes = 16;
  p.issuer = f->index;
  p.pc = pcNumber(f->pc);
  p.base = f->base;
  p.own = f->own++;
  p.agent = f->agent;
  p.agentClock = agentState[f->agent - fibers.size()].clock;
  p.mbarrier = ~0u;
  ++f->copiesInFlight;
  launchPiece(std::move(p));
}

void Machine::copyAsyncArrive(Fiber *f, unsigned long long *bar) {
  Mbarrier &b = findMbarrier(f, bar, "arrives");
  act(f);
  if (!check) {
    arriveOnce(b, {});
    return;
  }
  LateArrival a{};
  a.fiber = f->index;
  a.mbarrier = &b - mbarriers.data();
  a.lastPiece = pieceNumber;
  a.missing = f->copiesInFlight;
  a.release = releaseOf(f);
  if (f->agent) {
    a.clock = agentState[f->agent - fibers.size()].clock;
    tickAgent(f->agent, f->index); // later copies are not of this arrival
  }
  if (a.missing)
    lateArrivals.push_back(std::move(a));
  else
    landed(a);
}

void Machine::landed(LateArrival &a) {
  Mbarrier &b = mbarriers[a.mbarrier];
  if (const uint32_t agent = fibers[a.fiber].agent)
    b.landed.push_back({agent, a.clock});
  arriveOnce(b, a.release);
}

/// The next piece arrives.
void Machine::land() {
  std::pop_heap(pieces.begin(), pieces.end());
  const Piece p = std::move(pieces.back());
  pieces.pop_back();
  copyTouch(p);
  std::memcpy(p.to, p.from, p.bytes);
  --ctas[(p.to - arena.base) / Arena::kSharedSlot].copies;
  noteChange();
  if (p.mbarrier != ~0u) {
    Mbarrier &b = mbarriers[p.mbarrier];
    b.landed.push_back({p.agent, p.agentClock});
    // Who knows of the copy knows what was before it was issued.
    b.arrivals.push_back({p.base, p.issuer, p.own, {}});
    completeBytes(b, p.bytes);
    return;
  }
  --fibers[p.issuer].copiesInFlight;
  for (size_t i = 0; i < lateArrivals.size();) {
    LateArrival &a = lateArrivals[i];
    if (a.fiber != p.issuer || p.number > a.lastPiece || --a.missing) {
      ++i;
      continue;
    }
    LateArrival done = std::move(a);
    lateArrivals.erase(lateArrivals.begin() + i);
    landed(done);
  }
}

} // namespace megalith::cpu
