//===- HostCalls.cpp - the table of Host.h --------------------------------===//
//
// A kernel calls these from its fibers. What they return to is the place that
// findings name.
//===----------------------------------------------------------------------===//
#include "runtime/cpu/Machine.h"

#include <chrono>
#include <cstring>

namespace megalith::cpu {

thread_local Machine *activeMachine;

namespace {

#define ENTER                                                                                                          \
  Machine &m = *activeMachine;                                                                                         \
  Fiber *const f = m.enter(__builtin_return_address(0))

void access(const void *at, unsigned bytes, int isWrite, const void *pc) {
  Machine &m = *activeMachine;
  if (m.check)
    m.plain(m.current, at, bytes, isWrite, pc);
}
void readOnly(const void *at, unsigned bytes) {
  Machine &m = *activeMachine;
  m.current->pc = __builtin_return_address(0);
  m.readOnly(m.current, at, bytes);
}

void barrier(unsigned id, unsigned threads) {
  ENTER;
  m.barrier(f, id, threads, false);
}
bool barrierAny(unsigned id, unsigned threads, bool mine) {
  ENTER;
  return m.barrier(f, id, threads, mine);
}
const char *warp(WarpOp op, unsigned mask, const void *in, unsigned bytes, void (*combine)(char *)) {
  ENTER;
  return m.warpMeet(f, op, mask, in, bytes, combine);
}

unsigned long long atomic(AtomicOp op, void *at, unsigned bytes, unsigned long long operand, unsigned long long compare,
                          Order order, Scope scope) {
  ENTER;
  const Value old = m.atomic(f, op, at, bytes, {operand, 0}, {compare, 0}, order, scope);
  return op == AtomicOp::Store ? 0 : old.low;
}
void load16(const void *at, void *out, Order order, Scope scope) {
  ENTER;
  const Value v = m.atomic(f, AtomicOp::Load, const_cast<void *>(at), 16, {}, {}, order, scope);
  std::memcpy(out, &v, 16);
}
void store16(void *at, const void *in, Order order, Scope scope) {
  ENTER;
  Value v;
  std::memcpy(&v, in, 16);
  m.atomic(f, AtomicOp::Store, at, 16, v, {}, order, scope);
}
void fence(Scope scope) {
  ENTER;
  m.fence(f, scope);
}

void mbarrierInit(unsigned long long *bar, unsigned count) {
  ENTER;
  m.mbarrierInit(f, bar, count);
}
void proxyFence(Space space) {
  ENTER;
  m.proxyFence(f, space);
}
void mbarrierArrive(unsigned long long *bar) {
  ENTER;
  m.mbarrierArrive(f, m.findMbarrier(f, bar, "arrives"), 0);
}
void mbarrierArriveExpect(unsigned long long *bar, unsigned bytes) {
  ENTER;
  m.mbarrierArrive(f, m.findMbarrier(f, bar, "arrives"), bytes);
}
bool mbarrierTest(unsigned long long *bar, unsigned parity) {
  ENTER;
  return m.mbarrierTest(f, bar, parity);
}
void copyBulk(void *to, const void *from, unsigned bytes, unsigned long long *bar) {
  ENTER;
  m.copyBulk(f, to, from, bytes, bar);
}
void prefetchBulk(const void *from, unsigned bytes) {
  ENTER;
  m.prefetchBulk(f, from, bytes);
}
void copyAsync(void *to, const void *from) {
  ENTER;
  m.copyAsync(f, to, from);
}
void copyAsyncArrive(unsigned long long *bar) {
  ENTER;
  m.copyAsyncArrive(f, bar);
}

unsigned long long nanoseconds() {
  Machine &m = *activeMachine;
  if (m.options.live)
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  m.timeOffset += 16; // a loop that looks at nothing else must end, too
  return m.now();
}
void sleepFor(unsigned nanoseconds) {
  ENTER;
  m.sleep(f, nanoseconds);
}
void edge(int number) {
  Machine &m = *activeMachine;
  Cta &cta = m.ctaOf(m.current);
  cta.edge = number;
  ++cta.edges;
}
void stops() {
  Machine &m = *activeMachine;
  m.ctaOf(m.current).stops = true;
}
void brokenPool(int model, const char *what) {
  activeMachine->fail(FindingKind::PoolMisuse, "ends a tick", "the pages of pool %d do not add up: %s", model, what);
}

} // namespace

void fillHost(Host &host) {
  host.version = kHostVersion;
  host.access = access;
  host.readOnly = readOnly;
  host.barrier = barrier;
  host.barrierAny = barrierAny;
  host.warp = warp;
  host.atomic = atomic;
  host.load16 = load16;
  host.store16 = store16;
  host.fence = fence;
  host.mbarrierInit = mbarrierInit;
  host.proxyFence = proxyFence;
  host.mbarrierArrive = mbarrierArrive;
  host.mbarrierArriveExpect = mbarrierArriveExpect;
  host.mbarrierTest = mbarrierTest;
  host.copyBulk = copyBulk;
  host.prefetchBulk = prefetchBulk;
  host.copyAsync = copyAsync;
  host.copyAsyncArrive = copyAsyncArrive;
  host.nanoseconds = nanoseconds;
  host.sleep = sleepFor;
  host.edge = edge;
  host.stops = stops;
  host.brokenPool = brokenPool;
}

} // namespace megalith::cpu
