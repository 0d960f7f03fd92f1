//===- Shadow.cpp - who touched which bytes -------------------------------===//
//
// As in FastTrack (Flanagan, Freund, PLDI 2009): a granule remembers its last write and
// the reads since. Atomic accesses take part as such: they are unordered with plain
// ones, but not with each other.
//===----------------------------------------------------------------------===//
#include "runtime/cpu/Machine.h"

#include <cstring>
#include <sys/mman.h>

namespace megalith::cpu {

namespace {
constexpr size_t kCellBytes = Arena::kSize / 2 * sizeof(Cell);
constexpr size_t kMarkBytes = Arena::kSize / 2 * sizeof(uint16_t);
constexpr uint32_t kAgentsPerCta = 80; ///< mbarriers, and threads with cp.async
} // namespace

void Machine::startMemory() {
  if (!cells) {
    Reserved forCells(kCellBytes), forMarks(kMarkBytes), forPages(Arena::kSize / Arena::kPage);
    cells = static_cast<Cell *>(forCells.at);
    readOnlyMarks = static_cast<uint16_t *>(forMarks.at);
    setPages = static_cast<char *>(forPages.at);
    shadow = {std::move(forCells), std::move(forMarks), std::move(forPages)};
  }
  if (floorClock > kMostClock || launchNumber + 1 >= kMostLaunches)
    forgetClocks();
  if ((uint16_t)++launchNumber == 0) { // a mark holds 16 bits of it
    madvise(readOnlyMarks, kMarkBytes, MADV_DONTNEED);
    ++launchNumber;
  }
  agents = std::min<uint32_t>(ctas.size() * kAgentsPerCta, kMostThreads - fibers.size());
  agentsUsed = 0;
  agentState.assign(agents, {floorClock, 0});
  clocks.start(fibers.size() + agents, floorClock);
  sets.start(floorClock, launchNumber, fibers.size() + agents);
  for (Fiber &f : fibers) {
    f.base = clocks.root();
    f.proxied = {};
    f.own = floorClock + 1;
  }
}

void Machine::endMemory() {
  for (const Fiber &f : fibers)
    floorClock = std::max(floorClock, f.own);
  for (const Agent &a : agentState)
    floorClock = std::max(floorClock, a.clock);
}

/// Clocks begin anew: what was written stays written, and known to all.
void Machine::forgetClocks() {
  for (const Region &r : arena.regions) {
    if (r.initial == Initial::Const)
      continue;
    for (Cell *c = cells + r.begin / 2; c < cells + (r.bytewise ? r.begin / 2 + r.end - r.begin : (r.end + 1) / 2); ++c)
      if (c->write | c->read)
        *c = {c->write ? epochWord(0, 1, 0, false) : 0, 0};
  }
  madvise(cells, Arena::kShared / 2 * sizeof(Cell), MADV_DONTNEED);
  madvise(readOnlyMarks, kMarkBytes, MADV_DONTNEED);
  floorClock = launchNumber = 0;
}

/// Nobody wrote these bytes.
void Machine::clearCells(size_t begin, size_t end) {
  if (cells)
    std::memset(cells + begin / 2, 0, ((end + 1) / 2 - begin / 2) * sizeof(Cell));
}

uint32_t Machine::newAgent() { return fibers.size() + agentsUsed++ % agents; }

uint32_t Machine::tickAgent(uint32_t agent, uint32_t issuer) {
  Agent &a = agentState[agent - fibers.size()];
  a.issuer = issuer;
  return ++a.clock;
}

uint32_t Machine::slowPcNumber(const void *pc) {
  uint32_t n = pcNumbers.find({pc});
  if (n == FlatMap<PcKey>::kNone) {
    n = pcs.size();
    if (n >> kPcBits)
      return 0;
    pcs.push_back(pc);
    pcNumbers.insert({pc}, n);
  }
  pcCache[((uintptr_t)pc ^ (uintptr_t)pc >> 10) & 1023] = {pc, n};
  return n;
}

/// Checks that the running thread may touch these bytes at all.
inline Machine::Reach Machine::reach(Fiber *f, const void *at, unsigned bytes, bool isWrite, bool wantGlobal) {
  const size_t offset = static_cast<const char *>(at) - arena.base;
  Reach r;
  const char *role = isWrite ? "write" : "read";
  if (offset >= Arena::kSize) [[unlikely]] {
    if ((at >= stacks.begin() && at < stacks.end()) || arena.inModule(at))
      return r;
    if ((uintptr_t)at < Arena::kPage)
      fail(FindingKind::OutOfBounds, role, "%u bytes at a null pointer (%#zx)", bytes, (size_t)at);
    fail(FindingKind::OutOfBounds, role, "%u bytes outside of the memory of the device", bytes);
  }
  if (offset < Arena::kShared) {
    const size_t cta = offset / Arena::kSharedSlot;
    if (cta != f->pub.cta) [[unlikely]]
      fail(FindingKind::OutOfBounds, role, "%u bytes at %s, which is not the thread's own CTA (%u)", bytes,
           where(at).c_str(), f->pub.cta);
    if (offset % Arena::kSharedSlot + bytes > shape.sharedBytes) [[unlikely]]
      fail(FindingKind::OutOfBounds, role, "%u bytes at %s, of %zu bytes", bytes, where(at).c_str(), shape.sharedBytes);
    if (wantGlobal)
      fail(FindingKind::OutOfBounds, role, "%u bytes at %s through the read-only path, which reads global memory only",
           bytes, where(at).c_str());
    r.checked = r.unwritten = r.shared = true;
    return r;
  }
  Region &region = arena.regionOf(offset);
  if (offset < region.begin || offset + bytes > region.end) [[unlikely]]
    fail(FindingKind::OutOfBounds, role, "%u bytes at %s, of %zu bytes", bytes, where(at).c_str(),
         arena.nearest(offset).end - arena.nearest(offset).begin);
  r.region = &region;
  if (region.initial == Initial::Const) {
    if (isWrite)
      fail(FindingKind::ReadOnlyWrite, role, "%u bytes at %s, which is constant, are written", bytes,
           where(at).c_str());
    return r;
  }
  r.checked = true;
  r.unwritten = region.initial == Initial::Unwritten;
  return r;
}

Machine::Reach Machine::reachOf(Fiber *f, const void *at, unsigned bytes, bool isWrite) {
  return reach(f, at, bytes, isWrite);
}

inline bool Machine::known(const Fiber *f, Word w) const {
  const unsigned t = threadOf(w);
  if (t >= kMark)
    return false;
  return t == f->index || clockOf(w) <= floorClock || clockOf(w) <= f->base->at[t];
}

/// A plain access to a granule that may not be in order: reports it, or comes back.
void Machine::conflict(Fiber *f, const void *pc, const Reach &r, const Cell &cell, size_t offset, unsigned bytes,
                       bool isWrite) {
  if (threadOf(cell.write) == kMark && !sets.old(cell.write)) {
    f->pc = pc;
    fail(FindingKind::MbarrierMisuse, isWrite ? "write" : "read",
         "%u bytes at %s are an mbarrier, and %s as plain memory", bytes, where(arena.base + offset).c_str(),
         isWrite ? "written" : "read");
  }
  Word other = threadOf(cell.write) == kMark ? 0 : sets.unknown(cell.write, f->actor());
  bool otherWrites = true;
  if (!other && isWrite) {
    other = sets.unknown(cell.read, f->actor());
    otherWrites = false;
  }
  if (other) {
    f->pc = pc;
    race(party(f, isWrite ? "write" : "read"), isWrite, false, offset, bytes, other, otherWrites);
  }
}

void Machine::plain(Fiber *f, const void *at, unsigned bytes, bool isWrite, const void *pc) {
  const void *lastCall = f->pc;
  f->pc = pc;
  const Reach r = reach(f, at, bytes, isWrite);
  f->pc = lastCall;
  if (!r.checked)
    return;
  const size_t offset = static_cast<const char *>(at) - arena.base;
  const Word mine = f->epoch(pcNumber(pc));
  // Where its granules would begin if each had two bytes.
  size_t granules = offset, count = (offset + bytes + 1) / 2 - offset / 2;
  if (r.region && r.region->bytewise) [[unlikely]] {
    granules += offset - r.region->begin;
    count = bytes;
  }
  Cell *c = cells + granules / 2;
  Cell *const end = c + count;
  if (isWrite) {
    f->rounds = f->looks = f->inRow = 0; // a thread that writes is not idle
    if (r.region && r.region->readOnlyIn == launchNumber) [[unlikely]]
      for (size_t g = offset / 2; g < (offset + bytes + 1) / 2; ++g)
        if (readOnlyMarks[g] == (uint16_t)launchNumber) {
          f->pc = pc;
          fail(FindingKind::ReadOnlyWrite, "write",
               "%u bytes at %s are written after this launch read them through the read-only path (.nc)", bytes,
               where(at).c_str());
        }
    Cell last{0, 0};
    for (; c < end; ++c) {
      if (c->write != last.write || c->read != last.read) {
        last = *c;
        if (!known(f, c->write) || !known(f, c->read)) [[unlikely]]
          conflict(f, pc, r, *c, offset, bytes, true);
      }
      *c = {mine, 0};
    }
    return;
  }
  if (r.shared && ctaOf(f).stops) [[unlikely]]
    return;
  Cell last{~0ull, ~0ull};
  Word read = 0;
  for (; c < end; ++c) {
    if (c->write != last.write || c->read != last.read) {
      last = *c;
      if (!known(f, c->write)) [[unlikely]]
        conflict(f, pc, r, *c, offset, bytes, false);
      if (r.unwritten && isUnwritten(r, c->write)) [[unlikely]] {
        f->pc = pc;
        fail(FindingKind::UnwrittenRead, "read", "%u bytes at %s are read, and nobody wrote them", bytes,
             where(at).c_str());
      }
      // Mostly the thread's own read, or one that is long ago.
      if (threadOf(c->read) == f->index && !isAtomic(c->read))
        read = mine;
      else
        read = sets.add(c->read, mine, f->actor());
    }
    install(c->read, read, granules);
  }
}

void Machine::readOnly(Fiber *f, const void *at, unsigned bytes) {
  if (!check)
    return;
  const Reach r = reach(f, at, bytes, false, true);
  if (!r.checked)
    return;
  const size_t offset = static_cast<const char *>(at) - arena.base;
  r.region->readOnlyIn = launchNumber;
  for (size_t g = offset / 2; g < (offset + bytes + 1) / 2; ++g) {
    const Word w = cells[g].write;
    if (w && !sets.old(w)) {
      note(FindingKind::ReadOnlyWrite,
           std::to_string(bytes) + " bytes at " + where(at) +
               " are read through the read-only path (.nc), and this launch wrote them",
           {party(f, "read"), {"earlier write", placeOf(w), 1}});
      stop(Ending::Found);
    }
    if (isUnwritten(r, w))
      fail(FindingKind::UnwrittenRead, "read", "%u bytes at %s are read, and nobody wrote them", bytes,
           where(at).c_str());
    readOnlyMarks[g] = launchNumber;
  }
}

/// An atomic access to granules. `asPlain`: no access so far was to the same bytes
/// atomically, so that all must be in order.
void Machine::atomicTouch(Fiber *f, const Reach &r, size_t offset, unsigned bytes, bool isWrite, bool asPlain,
                          uint32_t pc) {
  const Word mine = f->epoch(pc, true);
  const Actor who = f->actor();
  if (isWrite && r.region && r.region->readOnlyIn == launchNumber)
    for (size_t g = offset / 2; g < (offset + bytes + 1) / 2; ++g)
      if (readOnlyMarks[g] == (uint16_t)launchNumber)
        fail(FindingKind::ReadOnlyWrite, "atomic write",
             "%u bytes at %s are written after this launch read them through the read-only path (.nc)", bytes,
             where(arena.base + offset).c_str());
  Cell last{~0ull, ~0ull}, next{};
  for (Cell *c = cells + offset / 2; c < cells + (offset + bytes + 1) / 2; ++c) {
    if (c->write != last.write || c->read != last.read) {
      last = next = *c;
      if (threadOf(c->write) == kMark && !sets.old(c->write))
        fail(FindingKind::MbarrierMisuse, "atomic access", "%u bytes at %s are an mbarrier, and accessed as a word",
             bytes, where(arena.base + offset).c_str());
      const Word write = threadOf(c->write) == kMark ? 0 : c->write;
      const char *role = isWrite ? "atomic write" : "atomic read";
      if (!known(f, write))
        if (const Word other = sets.unknown(write, who, !asPlain))
          race(party(f, role), isWrite, true, offset, bytes, other, true);
      if (isUnwritten(r, c->write) && !isWrite)
        fail(FindingKind::UnwrittenRead, role, "%u bytes at %s are read, and nobody wrote them", bytes,
             where(arena.base + offset).c_str());
      if (isWrite) {
        if (!known(f, c->read))
          if (const Word other = sets.unknown(c->read, who, !asPlain))
            race(party(f, role), true, true, offset, bytes, other, false);
        next.write = sets.unknown(write, who) ? sets.add(write, mine, who) : mine;
        next.read = sets.unknown(c->read, who) ? c->read : 0;
      } else {
        next.read = c->read == mine ? mine : sets.add(c->read, mine, who);
      }
    }
    install(c->write, next.write, offset);
    install(c->read, next.read, offset);
  }
}

/// A piece of an asynchronous copy lands: it knows what its issuer knew at that time; a bulk copy, of what threads did,
/// only what lies before a proxy fence.
void Machine::copyTouch(const Piece &p) {
  const Actor issuer{p.base.get(), p.issuer, p.own};
  const Word mine = epochWord(p.agentClock, p.agent, p.pc, false);
  const auto role = [](bool isWrite) { return isWrite ? "asynchronous copy (writes)" : "asynchronous copy (reads)"; };
  const auto check = [&](Word word, size_t offset, bool isWrite, bool otherWrites) {
    if (threadOf(word) == kMark) {
      if (!sets.old(word)) {
        note(FindingKind::MbarrierMisuse,
             std::to_string(p.bytes) + " bytes at " + where(arena.base + offset) +
                 " are overwritten by an asynchronous copy, and an mbarrier is among them",
             {{"asynchronous copy", placeOf(mine), 1}});
        stop(Ending::Found);
      }
      return;
    }
    if (const Word racing = sets.unknown(word, issuer))
      race({role(isWrite), placeOf(mine), 1}, isWrite, false, offset, p.bytes, racing, otherWrites);
    if (p.mbarrier == ~0u) // cp.async is of the same proxy as plain accesses
      return;
    const Space space = isWrite ? Space::Shared : Space::Global;
    if (const Word other = sets.unknown(word, {p.known[(int)space].get(), kMark, 0})) {
      note(FindingKind::CopyMisuse,
           std::to_string(p.bytes) + " bytes at " + where(arena.base + offset) + " are " +
               (isWrite ? "overwritten" : "read") + " by a bulk copy, they were " + (otherWrites ? "written" : "read") +
               " before, and no proxy fence lies between",
           {{role(isWrite), placeOf(mine), 1}, {otherWrites ? "earlier write" : "earlier read", placeOf(other), 1}});
      stop(Ending::Found);
    }
  };
  size_t offset = p.from - arena.base;
  if (offset >= Arena::kShared && offset < Arena::kSize && arena.regionOf(offset).initial != Initial::Const) {
    const bool unwritten = arena.regionOf(offset).initial == Initial::Unwritten;
    Cell last{~0ull, ~0ull};
    Word read = 0;
    for (Cell *c = cells + offset / 2; c < cells + (offset + p.bytes) / 2; ++c) {
      if (c->write != last.write || c->read != last.read) {
        last = *c;
        check(c->write, offset, false, true);
        if (unwritten && c->write == 0) {
          note(FindingKind::UnwrittenRead,
               std::to_string(p.bytes) + " bytes at " + where(p.from) + " are copied, and nobody wrote some of them",
               {{"asynchronous copy (reads)", placeOf(mine), 1}});
          stop(Ending::Found);
        }
        read = sets.add(c->read, mine, issuer);
      }
      install(c->read, read, (c - cells) * 2);
    }
  }
  offset = p.to - arena.base;
  Cell last{0, 0};
  for (Cell *c = cells + offset / 2; c < cells + (offset + p.bytes) / 2; ++c) {
    if (c->write != last.write || c->read != last.read) {
      last = *c;
      check(c->write, offset, true, true);
      check(c->read, offset, true, false);
    }
    *c = {mine, 0};
  }
}

void Machine::markMbarrier(size_t offset) {
  for (size_t g = offset / 2; g < offset / 2 + 4; ++g)
    cells[g] = {epochWord(floorClock + 1, kMark, 0, false), 0};
}

/// Forgets nodes of sets that no granule names any more.
void Machine::collectSets() {
  Clock *known = nullptr;
  std::vector<uint64_t> space((sizeof(Clock) + (fibers.size() + agents + 4) * sizeof(uint32_t)) / 8 + 2);
  known = reinterpret_cast<Clock *>(((uintptr_t)space.data() + 15) & ~(uintptr_t)15);
  const size_t size = fibers.size() + agents;
  std::fill_n(known->at, size, ~0u);
  const auto lower = [&](const Clock *base, uint32_t thread, uint32_t own) {
    for (size_t i = 0; i < size; ++i)
      known->at[i] = std::min(known->at[i], i == thread ? own : base->at[i]);
  };
  for (const Fiber &f : fibers)
    if (f.state != Fiber::Done)
      lower(f.base.get(), f.index, f.own);
  for (const Piece &p : pieces)
    lower(p.base.get(), p.issuer, p.own);
  sets.beginCollect(known);
  const auto page = [&](size_t p) {
    if (setPages[p]) {
      Cell *c = cells + p * Arena::kPage / 2;
      for (size_t i = 0; i < Arena::kPage / 2; ++i)
        c[i] = {sets.keep(c[i].write), sets.keep(c[i].read)};
    }
  };
  const size_t perSlot = Arena::kSharedSlot / Arena::kPage;
  for (size_t p = 0; p < ctas.size() * perSlot; ++p)
    page(p);
  for (size_t p = Arena::kShared / Arena::kPage; p < arena.used() / Arena::kPage; ++p)
    page(p);
  for (Location &l : locations) {
    l.word = sets.keep(l.word);
    for (unsigned i = 0; i < l.count; ++i)
      l.at(i).readers = sets.keep(l.at(i).readers);
  }
  sets.endCollect();
}

} // namespace megalith::cpu
