//===- Atomics.cpp - atomics, flagged words and fences ---------------------===//
//
// Memory holds the newest value of an atomic location. A checked launch also keeps the
// last values before it, for loads that need not see the newest yet.
//===----------------------------------------------------------------------===//
#include "runtime/cpu/Machine.h"

#include <cstring>

namespace megalith::cpu {

namespace {
constexpr unsigned kMostLate = 4; ///< old values in a row: visibility is late, not never

Value readMemory(const void *at, unsigned bytes) {
  Value v;
  std::memcpy(&v, at, bytes);
  return v;
}

uint64_t compared(Value compare, unsigned bytes) { return bytes == 4 ? (uint32_t)compare.low : compare.low; }

/// What memory holds after the operation.
Value applied(AtomicOp op, Value old, Value operand, Value compare, unsigned bytes) {
  const uint64_t mask = bytes == 4 ? 0xFFFFFFFFull : ~0ull;
  const uint64_t a = old.low, b = operand.low & mask;
  switch (op) {
  case AtomicOp::Load:
    return old;
  case AtomicOp::Store:
  case AtomicOp::Exchange:
    return {b, operand.high};
  case AtomicOp::Add:
    return {(a + b) & mask, 0};
  case AtomicOp::And:
    return {a & b, 0};
  case AtomicOp::Or:
    return {a | b, 0};
  case AtomicOp::Min:
    return {a < b ? a : b, 0};
  case AtomicOp::Max:
    return {a > b ? a : b, 0};
  case AtomicOp::CompareExchange:
    return {a == compared(compare, bytes) ? b : a, 0};
  }
  return old;
}
} // namespace

/// Lets the thread wait when it would find once more what it found before, and change nothing.
inline void Machine::holdBefore(Fiber *f, AtomicOp op, void *at, unsigned bytes, Value operand, Value compare) {
  if (f->inRow < kPatience || op == AtomicOp::Store)
    return;
  const Value now = readMemory(at, bytes);
  if (applied(op, now, operand, compare, bytes) == now && wouldHold(f, at, now.folded(), false))
    hold(f, at, bytes);
}

Value Machine::atomic(Fiber *f, AtomicOp op, void *at, unsigned bytes, Value operand, Value compare, Order order,
                      Scope scope) {
  if (check) {
    if ((uintptr_t)at % bytes)
      fail(FindingKind::Misaligned, "atomic access", "%u bytes at %s are accessed atomically but not aligned to %u",
           bytes, where(at).c_str(), bytes);
    const Reach r = reachOf(f, at, bytes, op != AtomicOp::Load);
    holdBefore(f, op, at, bytes, operand, compare);
    if (r.checked)
      return checkedAtomic(f, r, op, at, bytes, operand, compare, order, scope);
  } else {
    if (options.live && scope == Scope::System && bytes == 4) { // another thread of the process may be there, too
      auto *word = static_cast<uint32_t *>(at);
      noteChange();
      act(f);
      if (op == AtomicOp::Load)
        return {__atomic_load_n(word, __ATOMIC_SEQ_CST), 0};
      if (op == AtomicOp::Store) {
        __atomic_store_n(word, static_cast<uint32_t>(operand.low), __ATOMIC_SEQ_CST);
        return {};
      }
    }
    holdBefore(f, op, at, bytes, operand, compare);
  }
  const Value old = readMemory(at, bytes), now = applied(op, old, operand, compare, bytes);
  const bool changed = !(now == old);
  if (changed) {
    std::memcpy(at, &now, bytes);
    noteChange();
    wakeWatchers(at);
  }
  if (changed || op == AtomicOp::Store)
    act(f);
  else
    look(f, at, bytes, old.folded());
  return old;
}

/// Whether something in this launch wrote some of these granules atomically.
bool Machine::wroteAtomically(const Cell *cell, unsigned bytes) const {
  for (unsigned g = 0; g < bytes / 2; ++g) {
    const Word w = cell[g].write;
    if (w && !sets.old(w) && (isSet(w) || isAtomic(w)))
      return true;
  }
  return false;
}

/// Known, or known to have been read: nothing older may be seen.
bool Machine::mustSee(const Store &s, const Actor &who) const {
  return s.by == 0 || clockOf(s.by) <= floorClock || who.knows(s.by) || sets.knowsAny(s.readers, who);
}

/// What a load returns: the newest store, or an older one that it may still see.
Store &Machine::pickStore(Fiber *f, Location &l) {
  unsigned oldest = l.count - 1;
  const Actor who = f->actor();
  while (oldest && !mustSee(l.at(oldest), who))
    --oldest;
  if (oldest + 1 < l.count && f->late < kMostLate && decide() && random.next() >> 63) {
    ++f->late;
    return l.at(oldest + random.below(l.count - 1 - oldest));
  }
  f->late = 0;
  return l.newest();
}

void Machine::acquire(Fiber *f, Store &s, Order order, Scope scope) {
  const bool elsewhere = s.cta != f->pub.cta;
  if (elsewhere && scope == Scope::Cta)
    return;
  Release &released = s.release[elsewhere];
  if (!released)
    return;
  if (order == Order::Acquire || order == Order::AcquireRelease)
    learn(f, clocks.whole(released));
  else
    clocks.collect(f->unfenced[elsewhere], released);
}

Value Machine::checkedAtomic(Fiber *f, const Reach &r, AtomicOp op, void *at, unsigned bytes, Value operand,
                             Value compare, Order order, Scope scope) {
  const size_t offset = static_cast<char *>(at) - arena.base;
  const uint32_t pc = pcNumber(f->pc);
  Cell *const cell = cells + offset / 2;
  const Value newest = readMemory(at, bytes);
  const Value now = applied(op, newest, operand, compare, bytes);
  const bool writes =
      op == AtomicOp::Store ||
      (op != AtomicOp::Load && !(op == AtomicOp::CompareExchange && newest.low != compared(compare, bytes)));
  // The history holds while nothing but atomics of this size wrote there.
  const LocationKey key{offset << 5 | bytes};
  uint32_t number = locationNumbers.find(key);
  Location *l = number == FlatMap<LocationKey>::kNone ? nullptr : &locations[number];
  bool fresh = !l || l->count == 0;
  for (unsigned g = 0; g < bytes / 2 && !fresh; ++g)
    fresh = cell[g].write != l->word;

  if (!writes && fresh) {
    // Written plainly or long ago: in order with this, or a race.
    atomicTouch(f, r, offset, bytes, false, wroteAtomically(cell, bytes), pc);
    look(f, at, bytes, newest.folded());
    return newest;
  }
  atomicTouch(f, r, offset, bytes, writes, fresh && wroteAtomically(cell, bytes), pc);
  if (!writes) {
    Store &seen = op == AtomicOp::Load ? pickStore(f, *l) : l->newest();
    const Value value{seen.low, seen.high};
    // Who knows of this read must see as much. Of reads in order the first says it all.
    if (!mustSee(seen, f->actor()))
      seen.readers = sets.add(seen.readers, f->epoch(0), f->actor());
    acquire(f, seen, order, scope);
    if (&seen == &l->newest())
      look(f, at, bytes, value.folded());
    return value;
  }

  if (!l) {
    number = locations.size();
    l = &locations.emplace_back();
    l->offset = offset;
    l->bytes = bytes;
    locationNumbers.insert(key, number);
  }
  if (fresh) {
    for (Store &s : l->stores)
      s = {};
    l->first = 0;
    l->count = 1;
    l->newest() = {newest.low, newest.high, 0, f->pub.cta, {}, 0};
  }
  Store s{now.low, now.high, f->epoch(pc, true), f->pub.cta, {}, 0};
  const bool releases = order == Order::Release || order == Order::AcquireRelease;
  if (op != AtomicOp::Store)
    acquire(f, l->newest(), order, scope);
  if (releases) {
    s.release[0] = releaseOf(f);
    if (scope != Scope::Cta)
      s.release[1] = s.release[0];
  } else {
    s.release[0] = f->fenced[0];
    if (scope != Scope::Cta)
      s.release[1] = f->fenced[1];
  }
  if (op != AtomicOp::Store) { // goes on with the release sequence
    Store &before = l->newest();
    const bool elsewhere = before.cta != f->pub.cta;
    for (int i = 0; i < 2; ++i) {
      Release &from = before.release[i == 0 ? elsewhere : 1];
      if (from)
        s.release[i] = {clocks.join(clocks.whole(from), clocks.whole(s.release[i])), ~0u, 0, {}};
    }
  }
  if (l->count == Location::kStores)
    l->first = (l->first + 1) % Location::kStores;
  else
    ++l->count;
  l->newest() = std::move(s);
  l->word = cell->write;
  std::memcpy(at, &now, bytes);
  if (now == newest && op != AtomicOp::Store) {
    look(f, at, bytes, newest.folded());
  } else {
    if (!(now == newest)) {
      noteChange();
      wakeWatchers(at);
    }
    act(f);
  }
  return newest;
}

void Machine::fence(Fiber *f, Scope scope) {
  if (!check)
    return;
  for (int elsewhere = 0; elsewhere <= (scope != Scope::Cta); ++elsewhere) {
    learn(f, f->unfenced[elsewhere].sum);
    f->unfenced[elsewhere] = {}; // it is known now
  }
  f->fenced[0] = releaseOf(f);
  if (scope != Scope::Cta)
    f->fenced[1] = f->fenced[0];
}

} // namespace megalith::cpu
