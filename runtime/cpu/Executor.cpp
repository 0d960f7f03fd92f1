//===- Executor.cpp - runs a grid of threads on the CPU -------------------===//
#include "runtime/cpu/Executor.h"
#include "runtime/Memory.h"
#include "runtime/cpu/Machine.h"

#include <cstring>
#include <new>
#include <sys/mman.h>
#include <utility>

namespace megalith::cpu {

using boost::context::detail::jump_fcontext;
using boost::context::detail::transfer_t;

namespace {

constexpr unsigned char kPattern = 0xA5;

void enterFiber(transfer_t t) {
  static_cast<Fiber *>(t.data)->context = t.fctx;
  Machine &m = *activeMachine;
  (*m.kernel)();
  m.exitFiber();
}

void onTrap(void *at) {
  Machine *m = activeMachine;
  if (m && m->stacks.trapped(at) != Stacks::kMost && m->current != &m->outside)
    m->stop(Machine::Ending::Overflow);
}

/// Where memory is short. No exception can pass the kernel's own code: a thread stops the launch.
void onNoMemory() {
  Machine *m = activeMachine;
  if (m && m->ending == Machine::Ending::Running && m->current != &m->outside)
    m->stop(Machine::Ending::NoMemory);
  throw std::bad_alloc();
}

/// A launch of this machine, which may be inside one of another. However it ends, nothing of it stays.
class Launching {
public:
  explicit Launching(Machine &machine)
      : machine(machine), before(std::exchange(activeMachine, &machine)), handler(std::set_new_handler(onNoMemory)) {}
  ~Launching() {
    machine.forgetLaunch();
    std::set_new_handler(handler);
    activeMachine = before;
  }
  Launching(const Launching &) = delete;

private:
  Machine &machine;
  Machine *before;
  std::new_handler handler;
};

} // namespace

Machine::Machine() : pcs(1, nullptr) {
  fillHost(host);
  host.current = &publicThread;
  host.stacksBegin = stacks.begin();
  host.stacksEnd = stacks.end();
}

LaunchResult Machine::launch(const LaunchShape &newShape, const LaunchOptions &newOptions,
                             const std::function<void()> &newKernel) {
  shape = newShape;
  options = newOptions;
  kernel = &newKernel;
  check = options.check;
  const size_t count = (size_t)shape.ctas * shape.threads;
  if (count == 0 || shape.ctas > Executor::mostCtas(shape.threads) || shape.sharedBytes > Executor::mostShared())
    throw runtime::NoRoom("the CPU executor cannot run " + std::to_string(shape.ctas) + " CTAs of " +
                          std::to_string(shape.threads) + " threads and " + std::to_string(shape.sharedBytes) +
                          " bytes of shared memory");
  const Launching launching(*this);
  start(count);
  {
    FaultHandler faults(onTrap);
    current = &outside;
    ending = Ending::Running;
    Fiber *first = takeReady();
    switchTo(first);
    // A thread came back by stop(): its data is the thread, which is not resumed.
  }

  switch (ending) {
  case Ending::Deadlock:
    waitGraph(FindingKind::Deadlock);
    break;
  case Ending::Livelock:
    waitGraph(FindingKind::Livelock);
    break;
  case Ending::Overflow:
    note(FindingKind::StackOverflow,
         "a thread needs more than the " + std::to_string(Stacks::kBytes >> 10) + " KB of its stack",
         {party(current, "last called the executor here")});
    break;
  default:
    break;
  }
  result.steps = steps;
  result.decisions = decisions;
  if (check)
    endMemory();
  if (ending == Ending::NoMemory)
    throw std::bad_alloc();
  return std::move(result);
}

/// Everything as it is before the first step of a launch of so many threads.
void Machine::start(size_t count) {
  result = {};
  live = count;
  warps.resize((size_t)shape.ctas * warpsPerCta());
  for (Warp &w : warps) {
    w.lanes = w.exited = 0;
    w.meetings.clear();
    w.spare.clear();
  }
  deposits.clear();
  ctas.resize(shape.ctas);
  for (Cta &cta : ctas) {
    cta.live = shape.threads;
    cta.edge = -1;
    cta.edges = cta.steps = cta.copies = 0;
    cta.stops = false;
    for (NamedBarrier &b : cta.barriers)
      b.came.clear();
    cta.mbarriers.clear();
  }
  fibers.clear();
  fibers.resize(count);
  stacks.prepare(count);
  for (uint32_t i = 0; i < count; ++i) {
    Fiber &f = fibers[i];
    const unsigned cta = i / shape.threads, thread = i % shape.threads;
    f.pub = {thread, cta, shape.threads, shape.ctas, arena.base + cta * Arena::kSharedSlot};
    f.index = i;
    f.warp = cta * warpsPerCta() + thread / 32;
    f.lane = thread % 32;
    f.context = stacks.context(i, enterFiber);
    warps[f.warp].lanes |= 1u << f.lane;
  }
  for (unsigned cta = 0; cta < shape.ctas; ++cta)
    std::memset(arena.base + cta * Arena::kSharedSlot, kPattern, shape.sharedBytes);
  if (check)
    startMemory();
  pieceNumber = 0;
  startSchedule();
}

/// Nothing of this launch holds a clock when the next one begins.
void Machine::forgetLaunch() {
  fibers.clear();
  mbarriers.clear();
  locations.clear();
  locationNumbers.clear();
  pieces.clear();
  lateArrivals.clear();
  joining.clear();
  publicThread = nullptr;
}

struct Executor::Impl {
  Machine machine;
};

Executor::Executor() : impl(std::make_unique<Impl>()) {}
Executor::~Executor() = default;

char *Executor::allocate(const std::string &name, size_t bytes, Initial initial, const void *image) {
  Machine &m = impl->machine;
  char *at = m.arena.base + m.arena.allocate(name, bytes, initial);
  if (initial == Initial::Unwritten)
    std::memset(at, kPattern, bytes);
  else if (initial != Initial::Zero && bytes)
    std::memcpy(at, image, bytes);
  return at;
}

void Executor::reset(char *memory, Initial initial, const void *image) {
  Machine &m = impl->machine;
  Region &r = m.arena.regionOf(memory - m.arena.base);
  const size_t bytes = r.end - r.begin;
  r.initial = initial;
  if (initial == Initial::Unwritten) {
    std::memset(memory, kPattern, bytes);
    m.clearCells(r.begin, r.end);
  } else if (initial == Initial::Zero) {
    std::memset(memory, 0, bytes);
  } else if (bytes && image != memory) {
    std::memcpy(memory, image, bytes);
  }
}

void Executor::drop(char *memory) {
  Machine &m = impl->machine;
  const Region &r = m.arena.regionOf(memory - m.arena.base);
  const size_t begin = (r.begin + Arena::kPage - 1) / Arena::kPage * Arena::kPage,
               end = r.end / Arena::kPage * Arena::kPage;
  if (begin < end)
    madvise(m.arena.base + begin, end - begin, MADV_DONTNEED);
}

unsigned Executor::mostCtas(unsigned threads) {
  return std::min<unsigned>(Arena::kMostCtas, (kMostThreads - 1) / std::max(1u, threads));
}

size_t Executor::mostShared() { return Arena::kSharedSlot - Arena::kPage; }

LaunchResult Executor::launch(const LaunchShape &shape, const LaunchOptions &options,
                              const std::function<void()> &kernel) {
  return impl->machine.launch(shape, options, kernel);
}

const Host *Executor::host() const { return &impl->machine.host; }

} // namespace megalith::cpu
