//===- Scheduler.cpp - who goes next --------------------------------------===//
//
// Nothing here looks at addresses, times or orders in hash tables: a launch is decided
// by its kernel, its memory and the seed.
//===----------------------------------------------------------------------===//
#include "runtime/cpu/Machine.h"

#include <algorithm>
#include <chrono>
#include <thread>

namespace megalith::cpu {

using boost::context::detail::jump_fcontext;
using boost::context::detail::transfer_t;

namespace {
constexpr std::chrono::milliseconds kLiveNap(1); ///< of a launch in which nothing is left to do
constexpr uint64_t kCheckEvery = 1 << 16;        ///< steps between looks at progress
constexpr uint64_t kPollerEvery = 1 << 10;       ///< steps after which a poller is let in anyway
constexpr uint64_t kFirstChanges = 1 << 10;      ///< Pct: change points per doubling from here
constexpr uint64_t kLateServes = 256;            ///< of pollers, before a copy lands for them
constexpr uint64_t kFirstJump = 1'000'000;       ///< ns
constexpr uint64_t kLastJump = 100'000'000'000;
} // namespace

void Machine::startSchedule() {
  const Schedule &s = options.schedule;
  kind = s.prefix == 0 ? Schedule::RoundRobin : s.kind;
  random.state = s.seed;
  random.state = random.next(); // else the next seed's numbers were this one's from the second on
  coins = coinsLeft = 0;
  steps = decisions = timeOffset = 0;
  changes = stamp = idleServes = lateServes = jumped = jumpedAt = 0;
  stalled = sleepersTurn = false;
  sleepers.clear();
  pollHead = pollTail = ~0u;
  pollCount = 0;
  buckets.assign(kBuckets, ~0u);
  slowPoint = kind != Schedule::RoundRobin || options.stalledCta;
  changeAt.clear();
  changeBlock = 0;
  lastSwitch = lastProgressStep = 0;
  lastProgress = options.progress ? options.progress() : 0;
  idleCheckAt = kCheckEvery;
  ready.start(fibers.size() + 1);
  if (kind == Schedule::Pct) {
    ++decisions; // the priorities
    std::vector<uint32_t> order(warps.size());
    for (uint32_t i = 0; i < order.size(); ++i) {
      const uint32_t j = random.below(i + 1);
      order[i] = order[j];
      order[j] = i;
    }
    ranks.start(std::move(order));
    drawChanges();
  }
  for (Fiber &f : fibers)
    makeReady(&f);
  planEvents();
}

/// Change points of the next block of steps, twice as long as all before it.
void Machine::drawChanges() {
  if (options.schedule.changePoints == 0)
    return;
  const uint64_t begin = changeBlock, length = std::max(begin, kFirstChanges);
  for (unsigned i = 0; i < options.schedule.changePoints; ++i)
    changeAt.push_back(begin + 1 + random.next() % length);
  changeBlock = begin + length;
  std::sort(changeAt.rbegin(), changeAt.rend());
}

/// Whether the seed decides once more. After the prefix it does not.
bool Machine::decide() {
  if (kind == Schedule::RoundRobin)
    return false;
  if (decisions >= options.schedule.prefix) {
    becomeRoundRobin();
    return false;
  }
  ++decisions;
  return true;
}

void Machine::becomeRoundRobin() {
  if (kind == Schedule::Pct) {
    std::vector<uint32_t> left;
    while (ranks.count()) {
      const auto [warp, lane] = ranks.pop();
      left.push_back(warp / warpsPerCta() * shape.threads + warp % warpsPerCta() * 32 + lane);
    }
    std::sort(left.begin(), left.end());
    for (uint32_t i : left)
      ready.push(i);
    changeAt.clear();
  }
  kind = Schedule::RoundRobin;
  slowPoint = options.stalledCta.has_value();
}

void Machine::makeReady(Fiber *f) {
  f->state = Fiber::Ready;
  if (kind == Schedule::Pct)
    ranks.push(f->warp, f->lane);
  else
    ready.push(f->index);
}

Fiber *Machine::takeReady() {
  if (kind == Schedule::Pct) {
    const auto [warp, lane] = ranks.pop();
    return &fibers[warp / warpsPerCta() * shape.threads + warp % warpsPerCta() * 32 + lane];
  }
  if (kind == Schedule::Random && ready.count() > 1 && decide())
    return &fibers[ready.popAt(random.below(ready.count()))];
  return &fibers[ready.pop()];
}

void Machine::planEvents() {
  nextEvent = idleCheckAt;
  if (pollCount)
    nextEvent = std::min(nextEvent, servePollerAt);
  if (!changeAt.empty())
    nextEvent = std::min(nextEvent, changeAt.back());
  if (!pieces.empty())
    nextEvent = std::min(nextEvent, pieces.front().due);
  if (!sleepers.empty()) {
    const uint64_t at = fibers[sleepers.front()].wakeAt;
    nextEvent = std::min(nextEvent, at > timeOffset ? at - timeOffset : 0);
  }
}

void Machine::event() {
  if (steps >= idleCheckAt) {
    idleCheckAt = steps + kCheckEvery;
    if (options.interrupted && options.interrupted())
      stop(Ending::Interrupted);
    if (options.progress) {
      const uint64_t p = options.progress();
      if (p != lastProgress) {
        lastProgress = p;
        lastProgressStep = steps;
      } else if (options.maxIdleSteps && steps - lastProgressStep >= options.maxIdleSteps) {
        stop(Ending::Livelock);
      }
    }
    // A warp that waits in a way that does not look like polling must not go on for ever.
    if (kind == Schedule::Pct && steps - lastSwitch >= kCheckEvery && decide())
      ranks.demote(current->warp);
  }
  if (pollCount && steps >= servePollerAt) {
    Fiber *f = &fibers[pollHead];
    leaveQueue(f);
    makeReady(f);
    servePollerAt = steps + kPollerEvery;
  }
  while (!pieces.empty() && pieces.front().due <= steps)
    land();
  while (!sleepers.empty() && fibers[sleepers.front()].wakeAt <= now())
    wakeSleeper();
  while (!changeAt.empty() && changeAt.back() <= steps) {
    changeAt.pop_back();
    if (decide())
      ranks.demote(current->warp);
    if (changeAt.empty() && kind == Schedule::Pct)
      drawChanges();
  }
  if (check && sets.crowded())
    collectSets();
  planEvents();
  // Also a thread that waits in a way that does not look like polling lets others go on.
  if (kind == Schedule::RoundRobin && steps - lastSwitch >= kCheckEvery && readyCount()) {
    makeReady(current);
    switchTo(takeReady());
  }
}

void Machine::reschedule(Fiber *f) {
  if (options.stalledCta && f->pub.cta == *options.stalledCta && ctaOf(f).steps++ >= options.stallAt) {
    stalled = true;
    f->state = Fiber::Stalled;
    block();
  }
  if (kind == Schedule::Random) {
    if (ready.count() == 0 || !decide())
      return;
    if (coinsLeft == 0) {
      coins = random.next();
      coinsLeft = 32;
    }
    const bool stays = coins & 3;
    coins >>= 2;
    --coinsLeft;
    if (stays)
      return;
    makeReady(f);
    switchTo(takeReady());
  } else if (kind == Schedule::Pct && ranks.before(f->warp, f->lane)) {
    makeReady(f);
    switchTo(takeReady());
  }
}

Fiber *Machine::pick() {
  for (;;) {
    if (readyCount())
      return takeReady();
    // Pollers may see what is new to them first: copies that are late stay so for a while.
    if (!pieces.empty() && (kind == Schedule::RoundRobin || pollCount == 0 || ++lateServes >= kLateServes)) {
      lateServes = 0;
      land();
      continue;
    }
    if (sleepers.empty() && pollCount == 0)
      stop(Ending::Deadlock);
    if (++idleServes >= 1024 + fibers.size())
      idle();
    sleepersTurn = !sleepersTurn;
    if (!sleepers.empty() && (pollCount == 0 || sleepersTurn)) {
      wakeSleeper();
      continue;
    }
    Fiber *f = &fibers[pollHead];
    leaveQueue(f);
    return f;
  }
}

/// Nobody but pollers and sleepers ran for a while: does any of them do something?
void Machine::idle() {
  idleServes = 0;
  for (const Fiber &f : fibers)
    if ((f.state == Fiber::Ready || f.state == Fiber::Running || f.state == Fiber::Polling ||
         f.state == Fiber::Sleeping) &&
        !idleFiber(&f))
      return;
  if (!stalled)
    stop(Ending::Deadlock);
  // The kernel's own watchdog may still fire: time passes, ever faster.
  if (jumpedAt != changes) {
    jumpedAt = changes;
    jumped = 0;
  }
  if (jumped >= kLastJump)
    stop(Ending::Deadlock);
  const uint64_t step = std::max(kFirstJump, jumped);
  jumped += step;
  timeOffset += step;
  ++stamp;
  nextEvent = 0;
}

void Machine::switchTo(Fiber *next) {
  Fiber *self = current;
  next->state = Fiber::Running;
  if (next == self)
    return;
  if (stacks.overrun(self->index))
    stop(Ending::Overflow);
  lastSwitch = steps;
  current = next;
  publicThread = &next->pub;
  const transfer_t t = jump_fcontext(next->context, self);
  static_cast<Fiber *>(t.data)->context = t.fctx;
}

void Machine::stop(Ending why) {
  ending = why;
  Fiber *self = current;
  jump_fcontext(outside.context, self);
  __builtin_unreachable();
}

void Machine::sleep(Fiber *f, unsigned nanoseconds) {
  if (options.live && readyCount() == 0 && pieces.empty())
    std::this_thread::sleep_for(kLiveNap);
  f->wakeAt = now() + std::max(1u, nanoseconds);
  f->state = Fiber::Sleeping;
  const auto later = [this](uint32_t a, uint32_t b) {
    return fibers[a].wakeAt != fibers[b].wakeAt ? fibers[a].wakeAt > fibers[b].wakeAt : a > b;
  };
  sleepers.push_back(f->index);
  std::push_heap(sleepers.begin(), sleepers.end(), later);
  planEvents();
  block();
}

void Machine::wakeSleeper() {
  const auto later = [this](uint32_t a, uint32_t b) {
    return fibers[a].wakeAt != fibers[b].wakeAt ? fibers[a].wakeAt > fibers[b].wakeAt : a > b;
  };
  Fiber *f = &fibers[sleepers.front()];
  std::pop_heap(sleepers.begin(), sleepers.end(), later);
  sleepers.pop_back();
  if (f->wakeAt > now())
    timeOffset += f->wakeAt - now();
  nextEvent = 0;
  makeReady(f);
}

void Machine::exitFiber() {
  Fiber *f = current;
  act(f);
  leaveGroups(f);
  Cta &cta = ctaOf(f);
  if (--cta.live == 0 && cta.copies)
    fail(FindingKind::CopyMisuse, "returns from the kernel",
         "the last thread of CTA %u returns while asynchronous copies to its shared memory are under way", f->pub.cta);
  f->state = Fiber::Done;
  noteChange();
  --live;
  // A CTA that stands still never returns; the others have to.
  if (live == 0 || (stalled && live == ctas[*options.stalledCta].live))
    stop(Ending::Done);
  switchTo(pick());
}

} // namespace megalith::cpu
