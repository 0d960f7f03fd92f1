//===- Executor.cpp - runs a grid of threads on the CPU -------------------===//
#include "runtime/cpu/Executor.h"
#include "runtime/Live.h"
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
  if (m.current->pub.cta == m.shape.ctas)
    m.options.outside();
  else
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
  size_t count = (size_t)shape.ctas * shape.threads;
  if (count == 0 || shape.ctas > Executor::mostCtas(shape.threads) || shape.sharedBytes > Executor::mostShared())
    throw runtime::NoRoom("the CPU executor cannot run " + std::to_string(shape.ctas) + " CTAs of " +
                          std::to_string(shape.threads) + " threads and " + std::to_string(shape.sharedBytes) +
                          " bytes of shared memory");
  const Launching launching(*this);
  count += options.outside ? 1 : 0;
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
  result.interrupted = ending == Ending::Interrupted;
  if (check && ending != Ending::Interrupted)
    endMemory();
  if (ending == Ending::NoMemory)
    throw std::bad_alloc();
  return std::move(result);
}

/// Everything as it is before the first step of a launch of so many threads.
void Machine::start(size_t count) {
  result = {};
  live = count;
  const unsigned groups = shape.ctas + (options.outside ? 1 : 0);
  warps.resize((size_t)groups * warpsPerCta());
  for (Warp &w : warps) {
    w.lanes = w.exited = 0;
    w.meetings.clear();
    w.spare.clear();
  }
  deposits.clear();
  ctas.resize(groups);
  for (Cta &cta : ctas) {
    cta.live = &cta - ctas.data() < shape.ctas ? shape.threads : 1;
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

char *Executor::allocate(const std::string &name, size_t bytes, Initial initial, const void *image, bool bytewise) {
  Machine &m = impl->machine;
  char *at = m.arena.base + m.arena.allocate(name, bytes, initial, bytewise);
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

namespace {
/// Memory of the launch as its thread outside of the grid reaches it.
class OutsideMemory : public runtime::HostMemory {
public:
  uint32_t loadAcquire(const uint32_t *at) override { return load(at, Order::Acquire); }
  uint32_t loadRelaxed(const uint32_t *at) override { return load(at, Order::Relaxed); }
  void storeRelease(uint32_t *at, uint32_t value) override {
    Machine &m = *activeMachine;
    m.atomic(m.enter(nullptr), AtomicOp::Store, at, 4, {value, 0}, {}, Order::Release, Scope::System);
  }
  void read(void *to, const void *at, size_t bytes) override {
    touch(at, bytes, false);
    std::memcpy(to, at, bytes);
  }
  void write(void *at, const void *from, size_t bytes) override {
    touch(at, bytes, true);
    std::memcpy(at, from, bytes);
  }

private:
  static uint32_t load(const uint32_t *at, Order order) {
    Machine &m = *activeMachine;
    return uint32_t(
        m.atomic(m.enter(nullptr), AtomicOp::Load, const_cast<uint32_t *>(at), 4, {}, {}, order, Scope::System).low);
  }
  static void touch(const void *at, size_t bytes, bool isWrite) {
    Machine &m = *activeMachine;
    Fiber *f = m.enter(nullptr);
    for (size_t done = 0; m.check && done < bytes; done += 4) // an access is no longer than a vector
      m.plain(f, static_cast<const char *>(at) + done, std::min<size_t>(4, bytes - done), isWrite, nullptr);
  }
};
} // namespace

runtime::HostMemory &Executor::outside() {
  static OutsideMemory memory;
  return memory;
}

const Host *Executor::host() const { return &impl->machine.host; }

} // namespace megalith::cpu
