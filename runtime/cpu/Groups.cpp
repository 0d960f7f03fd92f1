//===- Groups.cpp - threads of a CTA and of a warp that meet --------------===//
#include "runtime/cpu/Machine.h"

#include <cstring>
#include <utility>

namespace megalith::cpu {

namespace {
const char *const kOps[] = {"Sync", "Shuffle", "Vote", "Mma"};
}

/// What each of these threads did so far is known to all of them.
void Machine::joinAll(const uint32_t *who, size_t count) {
  joining.clear();
  for (size_t i = 0; i < count; ++i) {
    Fiber &f = fibers[who[i]];
    joining.push_back({f.base, f.index, f.own, f.proxied});
  }
  const ClockRef all = clocks.gather(joining);
  const Proxied proxied = clocks.gatherProxied(joining);
  joining.clear();
  for (size_t i = 0; i < count; ++i) {
    Fiber &f = fibers[who[i]];
    f.base = all;
    f.proxied = proxied;
    ++f.own;
  }
}

bool Machine::barrier(Fiber *f, unsigned id, unsigned threads, bool mine) {
  act(f);
  if (id >= 16)
    fail(FindingKind::BarrierMisuse, "comes", "barrier %u does not exist: a CTA has 16", id);
  if (threads == 0 || threads % 32 || threads > shape.threads)
    fail(FindingKind::BarrierMisuse, "comes",
         "barrier %u is for %u threads: not a multiple of 32 up to the %u threads of the CTA", id, threads,
         shape.threads);
  NamedBarrier &b = ctaOf(f).barriers[id];
  if (!b.came.empty() && b.threads != threads) {
    note(FindingKind::BarrierMisuse,
         "threads come to barrier " + std::to_string(id) + " of CTA " + std::to_string(f->pub.cta) +
             " with different counts",
         {party(f, "comes for " + std::to_string(threads) + " threads"),
          party(&fibers[b.came[0]], "waits for " + std::to_string(b.threads) + " threads")});
    stop(Ending::Found);
  }
  b.threads = threads;
  b.came.push_back(f->index);
  b.any |= mine;
  if (b.came.size() < threads) {
    f->barrier = id;
    f->state = Fiber::AtBarrier;
    block();
    return f->anyOfBarrier;
  }
  if (check)
    joinAll(b.came.data(), b.came.size());
  noteChange();
  const bool any = std::exchange(b.any, false);
  for (uint32_t i : b.came) {
    fibers[i].anyOfBarrier = any;
    if (i != f->index)
      makeReady(&fibers[i]);
  }
  b.came.clear();
  return any;
}

const char *Machine::warpMeet(Fiber *f, WarpOp op, unsigned mask, const void *in, unsigned bytes,
                              void (*combine)(char *)) {
  Warp &w = warps[f->warp];
  const uint32_t base = f->index - f->lane;
  const char *name = kOps[(int)op];
  if (f->held && --f->held->readers == 0)
    w.spare.push_back(f->held);
  f->held = nullptr;
  if (!(mask >> f->lane & 1))
    fail(FindingKind::WarpDivergence, "comes", "lane %u comes to a %s of lanes %#x, which it is not one of", f->lane,
         name, mask);
  if (bytes > kLaneBytes)
    fail(FindingKind::WarpDivergence, "comes", "a lane brings %u bytes to a %s: at most %u fit", bytes, name,
         kLaneBytes);
  if (mask & w.exited)
    fail(FindingKind::WarpDivergence, "comes", "a %s names lanes %#x, which have returned from the kernel", name,
         mask & w.exited);

  Meeting *m = nullptr;
  for (Meeting &other : w.meetings) {
    const bool stuck = other.mask != mask && (other.mask >> f->lane & 1) && (other.came & mask);
    if (other.mask == mask && other.op == op && other.bytes == bytes) {
      m = &other;
    } else if (other.mask == mask || stuck) {
      const unsigned came = stuck ? other.came & mask : other.came;
      char mine[100], theirs[100];
      std::snprintf(mine, sizeof mine, "comes to a %s of lanes %#x with %u bytes", name, mask, bytes);
      std::snprintf(theirs, sizeof theirs, "waits at a %s of lanes %#x with %u bytes", kOps[(int)other.op], other.mask,
                    other.bytes);
      note(FindingKind::WarpDivergence, "lanes of one warp wait for each other at different operations",
           {party(f, mine), party(&fibers[base + __builtin_ctz(came)], theirs)});
      stop(Ending::Found);
    }
  }
  if (!m) {
    if (w.spare.empty())
      w.spare.push_back(&deposits.emplace_back());
    w.meetings.push_back({op, mask, 0, bytes, w.spare.back()});
    w.spare.pop_back();
    m = &w.meetings.back();
    if (mask != ~0u)
      std::memset(m->deposits->bytes, 0, sizeof m->deposits->bytes);
  }
  m->came |= 1u << f->lane;
  if (in)
    std::memcpy(m->deposits->bytes + f->lane * kLaneBytes, in, bytes);
  if (m->came != (mask & w.lanes)) {
    f->state = Fiber::AtWarp;
    block();
    return f->held->bytes;
  }

  Deposits *result = m->deposits;
  const unsigned came = m->came;
  *m = w.meetings.back();
  w.meetings.pop_back();
  if (combine)
    combine(result->bytes);
  result->readers = __builtin_popcount(came);
  uint32_t who[32] = {};
  unsigned count = 0;
  for (unsigned left = came; left; left &= left - 1)
    who[count++] = base + __builtin_ctz(left);
  if (check && op == WarpOp::Sync)
    joinAll(who, count);
  for (unsigned i = 0; i < count; ++i) {
    Fiber *lane = &fibers[who[i]];
    lane->held = result;
    if (lane != f)
      makeReady(lane);
  }
  return result->bytes;
}

/// The thread returns: nobody may wait for it in its warp.
void Machine::leaveGroups(Fiber *f) {
  Warp &w = warps[f->warp];
  w.exited |= 1u << f->lane;
  if (f->held && --f->held->readers == 0)
    w.spare.push_back(f->held);
  f->held = nullptr;
  for (const Meeting &m : w.meetings)
    if (m.mask >> f->lane & 1) {
      char waits[100];
      std::snprintf(waits, sizeof waits, "waits at a %s of lanes %#x", kOps[(int)m.op], m.mask);
      note(FindingKind::WarpDivergence,
           "lane " + std::to_string(f->lane) + " returns from the kernel while lanes of its warp wait for it",
           {party(f, "returns"), party(&fibers[f->index - f->lane + __builtin_ctz(m.came)], waits)});
      stop(Ending::Found);
    }
}

} // namespace megalith::cpu
