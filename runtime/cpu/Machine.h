//===- Machine.h - everything of a launch ---------------------------------===//
//
// One struct; its methods are in the file of their topic: Scheduler.cpp (who goes
// next), Polls.cpp (threads that wait by looking), Groups.cpp (barriers and warps),
// Shadow.cpp (plain memory), Atomics.cpp, Mbarriers.cpp, Copies.cpp, Report.cpp
// (findings and the wait graph), HostCalls.cpp (the table of Host.h).
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_RUNTIME_CPU_MACHINE_H
#define MEGALITH_RUNTIME_CPU_MACHINE_H

#include "runtime/cpu/Arena.h"
#include "runtime/cpu/Clocks.h"
#include "runtime/cpu/Fibers.h"
#include "runtime/cpu/Ready.h"
#include "runtime/cpu/Sets.h"
#include <array>
#include <deque>

namespace megalith::cpu {

/// What the lanes of a warp brought; lives until its last reader comes to its next operation.
struct Deposits {
  alignas(16) char bytes[32 * kLaneBytes];
  int readers = 0;
};

/// Lanes of a warp that wait for the others of their mask.
struct Meeting {
  WarpOp op;
  unsigned mask, came = 0, bytes;
  Deposits *deposits;
};

struct Warp {
  unsigned lanes = 0, exited = 0; ///< masks
  std::vector<Meeting> meetings;
  std::vector<Deposits *> spare;
};

struct NamedBarrier {
  unsigned threads = 0;
  bool any = false;           ///< what those that came brought
  std::vector<uint32_t> came; ///< numbers of fibers
};

struct Cta {
  unsigned live = 0;
  int edge = -1;
  unsigned long long edges = 0;
  uint64_t steps = 0;
  unsigned copies = 0; ///< pieces in flight to it
  bool stops = false;  ///< what it reads of its shared memory means nothing
  NamedBarrier barriers[16];
  std::vector<uint32_t> mbarriers; ///< numbers
};

/// One granule of two bytes.
struct Cell {
  Word write, read;
};

struct Fiber {
  enum State : uint8_t { Ready, Running, Polling, Sleeping, AtBarrier, AtWarp, Stalled, Done };

  Thread pub{};
  boost::context::detail::fcontext_t context = nullptr;
  uint32_t index = 0, warp = 0, lane = 0;
  State state = Ready;
  const void *pc = nullptr; ///< of its last call into the host

  // What it waits for.
  unsigned barrier = 0;
  bool anyOfBarrier = false; ///< result of its last barrier
  Deposits *held = nullptr;  ///< result of its last warp operation
  uint64_t wakeAt = 0;

  // What it looked at since it last did something. kSeen places; more make it look busy (the
  // merge of attention looks at 16 words and a flag).
  static constexpr unsigned kSeen = 24;
  struct Seen {
    const void *at;
    uint64_t value;
  } seen[kSeen] = {};
  unsigned seenCount = 0, seenNext = 0;
  unsigned inRow = 0;     ///< looks in a row that showed nothing new
  uint64_t pollStamp = 0; ///< Machine::stamp when the two below began
  uint64_t rounds = 0, looks = 0;
  const void *lookedAt = nullptr;              ///< the last place; null: it is not polling
  unsigned lookedBytes = 0;                    ///< 0: an mbarrier
  bool looksAtBarrier = false;                 ///< an mbarrier is among the places
  uint32_t waitBarrier = ~0u;                  ///< number of the mbarrier whose test failed last ...
  uint64_t waitPhase = 0;                      ///< ... and its phase then
  uint32_t pollPrevious = ~0u, pollNext = ~0u; ///< in the queue of pollers
  uint32_t bucketPrevious = ~0u, bucketNext = ~0u;

  // Memory model.
  ClockRef base;
  uint32_t own = 0;
  Proxied proxied;
  Release fenced[2];           ///< [0]: last fence; [1]: last of GPU scope
  Pending unfenced[2];         ///< of relaxed loads, until a fence: [0] of its CTA, [1] others
  unsigned late = 0;           ///< old values seen in a row
  uint32_t agent = 0;          ///< of its cp.async copies; 0: none yet
  unsigned copiesInFlight = 0; ///< of cp.async

  Actor actor() const { return {base.get(), index, own}; }
  Word epoch(uint32_t pcNumber, bool atomic = false) const { return epochWord(own, index, pcNumber, atomic); }
};

struct Mbarrier {
  unsigned long long *at;
  uint32_t cta, count, pending;
  int64_t bytes = 0;     ///< expected and not yet arrived
  uint64_t expected = 0; ///< bytes of this phase
  uint64_t phase = 0;
  uint32_t initThread, initClock, fenceClock = 0;    ///< 0: not fenced yet
  uint32_t agent = 0;                                ///< 0: none yet
  std::vector<Release> arrivals;                     ///< of this phase
  std::vector<std::pair<uint32_t, uint32_t>> landed; ///< agents' clocks
  ClockRef done;                                     ///< of the phase before
  Proxied proxied;                                   ///< of that, too
  std::vector<uint32_t> waiters, lagging;            ///< failed tests in this phase, and in the one before
};

/// A part of an asynchronous copy under way.
struct Piece {
  uint64_t due, number;
  char *to;
  const char *from;
  uint32_t bytes, issuer, pc, own;
  uint32_t agent, agentClock;
  uint32_t mbarrier; ///< ~0u: cp.async
  ClockRef base;
  ClockRef known[2]; ///< of a bulk copy: of `base`, what it may rely on in shared and in global memory
  bool operator<(const Piece &o) const { return due != o.due ? due > o.due : number > o.number; }
};

/// cp.async.mbarrier.arrive.noinc that waits for copies of its thread.
struct LateArrival {
  uint32_t fiber, mbarrier, clock, pc;
  uint64_t lastPiece; ///< number of the last piece it waits for
  unsigned missing;
  Release release;
};

/// One value that an atomic location held.
struct Store {
  uint64_t low, high;
  Word by; ///< 0: known to all
  uint32_t cta;
  Release release[2]; ///< what a reader in the same CTA, or in another, acquires
  Word readers = 0;
};

struct Location {
  static constexpr unsigned kStores = 8;
  size_t offset;
  uint32_t bytes;
  Word word = 0; ///< of its granules when it was last written atomically
  unsigned first = 0, count = 0;
  Store stores[kStores];
  Store &at(unsigned i) { return stores[(first + i) % kStores]; }
  Store &newest() { return at(count - 1); }
};

struct LocationKey {
  uint64_t key;
  bool operator==(const LocationKey &o) const { return key == o.key; }
  uint64_t hash() const { return mixBits(key); }
};

struct PcKey {
  const void *pc;
  bool operator==(const PcKey &o) const { return pc == o.pc; }
  uint64_t hash() const { return mixBits((uint64_t)pc); }
};

/// A 16-byte value; smaller ones are in `low`.
struct Value {
  uint64_t low = 0, high = 0;
  bool operator==(const Value &o) const { return low == o.low && high == o.high; }
  uint64_t folded() const { return low ^ (high << 29 | high >> 35); }
};

struct Machine {
  Machine();
  LaunchResult launch(const LaunchShape &shape, const LaunchOptions &options, const std::function<void()> &kernel);

  Host host{};
  Arena arena;
  Stacks stacks;

  // --- the launch
  LaunchShape shape;
  LaunchOptions options;
  const std::function<void()> *kernel = nullptr;
  bool check = false;
  std::vector<Fiber> fibers;
  std::vector<Cta> ctas;
  std::vector<Warp> warps;
  std::deque<Deposits> deposits;
  Fiber outside; ///< the caller of launch
  Fiber *current = nullptr;
  Thread *publicThread = nullptr; ///< what Host::current points to
  unsigned live = 0;
  LaunchResult result;
  enum class Ending : uint8_t {
    Running,
    Done,
    Found,
    Deadlock,
    Livelock,
    Overflow,
    NoMemory,
    Interrupted
  } ending = Ending::Done;
  unsigned warpsPerCta() const { return (shape.threads + 31) / 32; }
  Cta &ctaOf(const Fiber *f) { return ctas[f->pub.cta]; }

  // --- Scheduler.cpp
  uint64_t steps = 0, nextEvent = 0, decisions = 0;
  Schedule::Kind kind = Schedule::RoundRobin;
  Random random;
  uint64_t coins = 0;
  unsigned coinsLeft = 0;
  bool slowPoint = false; ///< more to do at a scheduling point than to count it
  ReadyQueue ready;
  ReadyRanks ranks;               ///< Pct
  std::vector<uint64_t> changeAt; ///< steps, the next one last
  uint64_t changeBlock = 0;
  uint64_t idleCheckAt = 0, servePollerAt = 0, lastSwitch = 0;
  uint64_t timeOffset = 0;
  std::vector<uint32_t> sleepers; ///< heap, earliest on top
  uint64_t lastProgress = 0, lastProgressStep = 0;
  bool stalled = false;
  uint64_t changes = 0, stamp = 0; ///< of what a polling thread could see; also of time jumps
  uint64_t idleServes = 0, lateServes = 0, jumped = 0, jumpedAt = 0;
  bool sleepersTurn = false;

  void start(size_t count);
  void forgetLaunch();
  void startSchedule();
  uint64_t now() const { return steps + timeOffset; }
  /// A call of the running thread into the host, from `pc`. Others may run before it returns.
  Fiber *enter(const void *pc) {
    Fiber *f = current;
    f->pc = pc;
    if (++steps >= nextEvent)
      event();
    if (slowPoint)
      reschedule(f);
    return f;
  }
  void event();
  void planEvents();
  void reschedule(Fiber *f);
  bool decide();
  void becomeRoundRobin();
  void drawChanges();
  void makeReady(Fiber *f);
  size_t readyCount() const { return kind == Schedule::Pct ? ranks.count() : ready.count(); }
  Fiber *takeReady();
  Fiber *pick();
  void switchTo(Fiber *next);
  /// The running thread, whose state says why, waits; comes back when it was woken.
  void block() { switchTo(pick()); }
  void sleep(Fiber *f, unsigned nanoseconds);
  void wakeSleeper();
  void exitFiber();
  void noteChange() {
    ++changes;
    ++stamp;
    idleServes = 0;
  }
  [[noreturn]] void stop(Ending why);
  void idle();

  // --- Polls.cpp
  static constexpr uint32_t kBuckets = 1024;
  static constexpr unsigned kPatience = 8; ///< looks in a row before a thread counts as waiting
  uint32_t pollHead = ~0u, pollTail = ~0u, pollCount = 0;
  std::vector<uint32_t> buckets;
  uint32_t bucketOf(const void *at) const { return mixBits(((const char *)at - arena.base) >> 2) % kBuckets; }
  /// The thread did something that is not a look.
  void act(Fiber *f) {
    f->inRow = f->seenCount = f->seenNext = 0;
    f->rounds = f->looks = 0;
    f->lookedAt = nullptr;
    f->looksAtBarrier = false;
    f->waitBarrier = ~0u;
  }
  bool wouldHold(const Fiber *f, const void *at, uint64_t value, bool barrier) const;
  void look(Fiber *f, const void *at, unsigned bytes, uint64_t value);
  void hold(Fiber *f, const void *at, unsigned bytes);
  void leaveQueue(Fiber *f);
  void wakeWatchers(const void *at);
  bool idleFiber(const Fiber *f) const;

  // --- Groups.cpp
  bool barrier(Fiber *f, unsigned id, unsigned threads, bool mine);
  const char *warpMeet(Fiber *f, WarpOp op, unsigned mask, const void *in, unsigned bytes, void (*combine)(char *));
  void leaveGroups(Fiber *f);
  void joinAll(const uint32_t *who, size_t count);
  std::vector<Release> joining;

  // --- Shadow.cpp
  Clocks clocks;
  Sets sets;
  std::array<Reserved, 3> shadow; ///< memory of the next three
  Cell *cells = nullptr;
  uint16_t *readOnlyMarks = nullptr; ///< per granule: the last launch that read it so
  char *setPages = nullptr;          ///< pages of data whose cells hold sets
  uint32_t floorClock = 0, launchNumber = 0;
  uint32_t agents = 0, agentsUsed = 0; ///< asynchronous agents: numbered after the threads
  struct Agent {
    uint32_t clock, issuer; ///< of its last copy
  };
  std::vector<Agent> agentState;
  std::vector<const void *> pcs;
  FlatMap<PcKey> pcNumbers;
  struct PcSlot {
    const void *pc;
    uint32_t number;
  } pcCache[1024] = {};
  void startMemory();
  void endMemory();
  void forgetClocks();
  uint32_t newAgent();
  uint32_t tickAgent(uint32_t agent, uint32_t issuer);
  uint32_t pcNumber(const void *pc) {
    PcSlot &s = pcCache[((uintptr_t)pc ^ (uintptr_t)pc >> 10) & 1023];
    return s.pc == pc ? s.number : slowPcNumber(pc);
  }
  uint32_t slowPcNumber(const void *pc);
  struct Reach {          ///< what an access may touch
    bool checked = false; ///< cells say more; else it is in bounds, or nobody looks
    bool unwritten = false, shared = false;
    Region *region = nullptr;
  };
  Reach reach(Fiber *f, const void *at, unsigned bytes, bool isWrite, bool wantGlobal = false);
  Reach reachOf(Fiber *f, const void *at, unsigned bytes, bool isWrite); ///< not inlined
  bool isUnwritten(const Reach &r, Word write) const {
    return r.unwritten && (r.shared ? sets.old(write) : write == 0);
  }
  bool known(const Fiber *f, Word w) const; ///< quick; false: ask sets
  void plain(Fiber *f, const void *at, unsigned bytes, bool isWrite, const void *pc);
  void readOnly(Fiber *f, const void *at, unsigned bytes);
  void atomicTouch(Fiber *f, const Reach &r, size_t offset, unsigned bytes, bool isWrite, bool asPlain, uint32_t pc);
  void conflict(Fiber *f, const void *pc, const Reach &r, const Cell &cell, size_t offset, unsigned bytes,
                bool isWrite);
  void copyTouch(const Piece &p);
  void install(Word &word, Word value, size_t offset) {
    word = value;
    if (isSet(value))
      setPages[offset / Arena::kPage] = 1;
  }
  void markMbarrier(size_t offset);
  void collectSets();
  void clearCells(size_t begin, size_t end);

  // --- Atomics.cpp
  std::deque<Location> locations;
  FlatMap<LocationKey> locationNumbers;
  Value atomic(Fiber *f, AtomicOp op, void *at, unsigned bytes, Value operand, Value compare, Order order, Scope scope);
  Value checkedAtomic(Fiber *f, const Reach &r, AtomicOp op, void *at, unsigned bytes, Value operand, Value compare,
                      Order order, Scope scope);
  void holdBefore(Fiber *f, AtomicOp op, void *at, unsigned bytes, Value operand, Value compare);
  bool wroteAtomically(const Cell *cell, unsigned bytes) const;
  bool mustSee(const Store &s, const Actor &who) const;
  Store &pickStore(Fiber *f, Location &l);
  void acquire(Fiber *f, Store &s, Order order, Scope scope);
  void fence(Fiber *f, Scope scope);
  void learn(Fiber *f, const ClockRef &what) { f->base = clocks.join(f->base, what); }
  Release releaseOf(Fiber *f) { return {f->base, f->index, f->own++, f->proxied}; }

  // --- Mbarriers.cpp
  std::vector<Mbarrier> mbarriers;
  Mbarrier &findMbarrier(Fiber *f, unsigned long long *bar, const char *use);
  void mbarrierInit(Fiber *f, unsigned long long *bar, unsigned count);
  void proxyFence(Fiber *f, Space space);
  void mbarrierArrive(Fiber *f, Mbarrier &b, unsigned expect);
  void arriveOnce(Mbarrier &b, const Release &release);
  void completeBytes(Mbarrier &b, unsigned bytes);
  void settle(Mbarrier &b);
  bool mbarrierTest(Fiber *f, unsigned long long *bar, unsigned parity);

  // --- Copies.cpp
  std::vector<Piece> pieces; ///< heap, the next due on top
  std::vector<LateArrival> lateArrivals;
  uint64_t pieceNumber = 0;
  void copyBulk(Fiber *f, void *to, const void *from, unsigned bytes, unsigned long long *bar);
  void prefetchBulk(Fiber *f, const void *from, unsigned bytes);
  void copyAsync(Fiber *f, void *to, const void *from);
  void copyAsyncArrive(Fiber *f, unsigned long long *bar);
  void checkCopy(Fiber *f, void *to, const void *from, unsigned bytes);
  uint64_t landingStep();
  void launchPiece(Piece p);
  void land();
  void landed(LateArrival &a);

  // --- Report.cpp
  using Parties = std::vector<Finding::Party>;
  Place placeOf(const Fiber *f) const;
  Place placeOf(Word epoch) const;
  Finding::Party party(const Fiber *f, std::string role) const { return {std::move(role), placeOf(f), 1}; }
  std::string where(const void *at) const;
  /// Reports, with the running thread as the party, and ends the launch.
  [[noreturn]] void fail(FindingKind kind, const char *role, const char *format, ...)
      __attribute__((format(printf, 4, 5)));
  void note(FindingKind kind, std::string what, Parties parties);
  [[noreturn]] void race(const Finding::Party &now, bool isWrite, bool atomic, size_t offset, unsigned bytes,
                         Word other, bool otherWrites);
  void describeRace(Finding::Party now, bool isWrite, bool atomic, size_t offset, unsigned bytes, Word other,
                    bool otherWrites);
  std::string situation(const Fiber *f) const;
  void waitGraph(FindingKind kind);
};

/// The machine whose launch runs in this thread.
extern thread_local Machine *activeMachine;

void fillHost(Host &host);

} // namespace megalith::cpu
#endif
