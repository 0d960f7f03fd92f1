//===- Control.cuh - the control plane: requests, slots, pages ------------===//
//
// Control runs on the consumer warps of CTA 0. Warp w serves slots w, w + 8, and so on. Every lane
// executes the stages' scalar code on the same values. Lane 0 stores. What must happen in one order
// (reclaim, admission, choosing the calls of a pass) runs on warp 0, between barriers of the CTA. See
// docs/ir.md, "The tick".
//
// The text of the control unit gives two types: `Config`, the pipeline's constants, and
// `Request`, the header and the pipeline's own fields. Of several models `Config::Pools` lists the pools, each a type
// with the constants that are its own. Of one they stand in `Config`.
//===----------------------------------------------------------------------===//
#pragma once

namespace megalith::device {

/// kPoolExhausted and so on.
enum FaultCode : int {
#define FAULT(Enum, Code, Name, Text) k##Enum = Code,
#include "megalith/Faults.def"
};
#define FAULT(Enum, Code, Name, Text) static_assert(Code < abi::kFaultAtCall);
#include "megalith/Faults.def"

} // namespace megalith::device

#include "megalith/Pages.cuh"
#include "megalith/Sequences.cuh"
#include "megalith/Asks.cuh"
#include "megalith/ControlTrees.cuh"

namespace megalith::device {

/// A fault's code with the line of the pipeline's file that raised it. This is RequestHeader::fault without the state.
/// Functions that stages call take the line of their caller. `#line` makes it a line of the YAML.
__device__ constexpr int faultAt(int code, int line) {
  return line <= abi::kFaultMaxLine ? code | line << abi::kFaultPlaceShift : code;
}

/// A fault with the pool that raised it.
__device__ constexpr int faultAtPool(int code, int model) {
  return code | abi::kFaultAtCall | model << abi::kFaultPlaceShift;
}

/// The passes of a model that a request had rows in.
template <class Request> __device__ __forceinline__ int passesOf(const Request &r, int model) {
  if constexpr (abi::kModels > 1)
    return r.passesOf[model];
  else
    return r.passes;
}

/// RequestHeader::served of a request that no call keeps from going on.
constexpr int kStandsAtLoop = 2;

/// The resident loop ends after this many ticks in a row without a row or a change of state. The watchdog would never
/// stop it, because ticks still advance.
constexpr int kIdleTicks = 1 << 20;

/// Descriptors of requests that hold a slot. With `Count` 0 there are none.
template <class Request, int Count> struct Seats {
  Request items[Count];
  __device__ Request &operator[](int slot) { return items[slot]; }
};
template <class Request> struct Seats<Request, 0> {};

/// `List` from `Pool` on.
template <class Pool, class List> struct TailFrom;
template <class Pool, class... Others> struct TailFrom<Pool, PoolList<Pool, Others...>> {
  using List = PoolList<Pool, Others...>;
};
template <class Pool, class First, class... Others>
struct TailFrom<Pool, PoolList<First, Others...>> : TailFrom<Pool, PoolList<Others...>> {};

template <class Config> __device__ constexpr bool hasLoops() {
  if constexpr (requires { Config::loops; })
    return Config::loops;
  else
    return false;
}

/// Of kernels in which rows may be a tree.
template <bool Trees> struct MovedRows {
  int moved; ///< since the last pass, kept rows moved
  int fresh; ///< the pass has kFresh
};
template <> struct MovedRows<false> {};

/// The control plane's working state, in shared memory of CTA 0. The slot tables mirror LaunchParams::slots. While a
/// request holds a slot, its descriptor stands here too, unless descriptors are large. So what a tick does to it costs
/// no trip to the L2 cache.
template <class ConfigType, class RequestType> struct ControlState : MovedRows<hasTrees<ConfigType>()> {
  using Config = ConfigType;
  using Request = RequestType;
  static_assert(Config::states <= 64 && Config::gauges <= kMostGauges, "flags are bits of one word");

  using Pools = PoolStates<typename PoolsOf<Config>::List>;
  using FirstPool = typename Pools::First;
  static constexpr bool several = abi::kModels > 1;
  static constexpr bool reserves = Pools::reserves; ///< some pool does

  Pools pools;
  PassShared *pass;               ///< the pass, in CTA 0
  long long passesDone, rowsDone; ///< what Stats counts
  int tick;
  int firstTick;    ///< of the launch
  int done;         ///< leave the resident loop
  int openRequests; ///< requests that are not in a terminal state
  int unseated;     ///< open requests without a slot
  int freeSlots;
  int slotsHeld;       ///< snapshot of the tick: requests that hold a slot
  int changes;         ///< changes of state in this tick
  int idle;            ///< ticks in a row in which nothing moved
  int still;           ///< ticks in a row in which calls waited and nothing moved
  int ranNoPass;       ///< the last tick had no rows, so no other CTA took part
  int refused;         ///< a request found no pages to reserve in this tick
  int waiting, served; ///< calls that waited when the pass was formed, and calls that it serves. Of several models:
                       ///< served in this tick
  int numRows, wantLogits;
  int rowsOfTick;    ///< of several models
  int behind;        ///< which pass of the tick's list was the last, of several models; they are counted from 1
  int lastModel;     ///< the model of the last pass
  int servedOfRound; ///< of a loop: calls, so far
  int follower[several ? abi::kModels : 1]; ///< by model: of which model the pass behind its last one was
  int rowAsks;                              ///< of the pass that is being formed

  static constexpr bool asks = asksOf<Config>() > 0;            ///< calls ask for more than the best token of each row
  static constexpr bool trees = hasTrees<Config>();             ///< of some pool
  static constexpr bool continues = trees || hasRuns<Config>(); ///< the same
  static constexpr int eosAtHand = shape::eosAtHand(Config::slots);

  // per slot
  static constexpr bool seatsAreShared = sizeof(Request) * Config::slots <= seatBytes(abi::kModels);
  Seats<Request, seatsAreShared ? Config::slots : 0> seats;
  int request[Config::slots]; ///< -1: free
  int callChunk[Config::slots];
  int callModel[several ? Config::slots : 1]; ///< of several models: whose pass the slot's call waits for
  u32 callFlags[Config::slots];               ///< RowFlag bits of its rows
  int badRow[Config::slots];                  ///< first row of the call that must not be fed
  int badCode[Config::slots];                 ///< the fault of that row
  int newest[Config::slots];                  ///< the request's last token
  int eos[Config::slots][eosAtHand];          ///< the request's first EOS tokens
  u32 gaugesSet[Config::slots];
  u32 gauges[Config::slots][Config::gauges > 0 ? Config::gauges : 1];

  // the pass that is being formed, per slot
  int wanted[Config::slots]; ///< rows that the call asks for; -1: the slot does not wait
  int taken[Config::slots];  ///< rows that it gets; -1: it is not served
  int since[Config::slots], priority[Config::slots], passes[Config::slots], kvLen[Config::slots];
  int order[Config::slots]; ///< waiting slots, longest waiting first
  int rowBegin[Config::slots];
  int newPages[Config::slots], pageTop[Config::slots];

  __device__ static const abi::LaunchParams &params() { return paramsOfCta(); }
  /// What control keeps of a pool.
  template <class Pool> __device__ __forceinline__ PoolState<Pool> &poolOf() {
    return static_cast<PoolStates<typename TailFrom<Pool, typename PoolsOf<Config>::List>::List> &>(pools).pool;
  }
  /// Whether the call of `slot` waits for a pass of the pool's model.
  template <class Pool> __device__ __forceinline__ bool waitsFor(int slot) {
    return request[slot] >= 0 && seated(slot).waitingSite >= 0 && (!several || callModel[slot] == Pool::model);
  }
  static constexpr bool loops = hasLoops<Config>(); ///< some calls stand in loops of the tick
  /// The same of calls in a loop of the tick; -1: outside of all.
  template <class Pool> __device__ __forceinline__ bool waitsFor(int slot, int loop) {
    if constexpr (!loops)
      return waitsFor<Pool>(slot);
    else
      return request[slot] >= 0 && seated(slot).waitingSite >= 0 && !seated(slot).served &&
             callModel[slot] == (Pool::model | (loop + 1) << 8);
  }
  /// The place of the first row of the slot's call.
  template <class Pool> __device__ __forceinline__ int firstPlace(const Pool &pool, int slot) const {
    return pool.firstPlace(slot, kvLen[slot], callFlags[slot] & RowIsDraft);
  }
  /// A request's descriptor in the host's table. While the request holds a slot, only `slot` is up to date there.
  __device__ Request &tableEntry(int number) const { return reinterpret_cast<Request *>(params().requests)[number]; }
  __device__ Request &seated(int slot) {
    if constexpr (seatsAreShared)
      return seats[slot];
    else
      return tableEntry(request[slot]);
  }
  __device__ Request &anywhere(int number) {
    const int slot = tableEntry(number).slot;
    return slot >= 0 ? seated(slot) : tableEntry(number);
  }
  /// Copies a descriptor. The whole warp calls it.
  __device__ static void copy(const Request &from, Request &to) {
    __syncwarp();
    for (int i = laneId(); i < int(sizeof(Request) / 4); i += 32)
      reinterpret_cast<u32 *>(&to)[i] = reinterpret_cast<const u32 *>(&from)[i];
    __syncwarp();
  }

  __device__ static bool isState(int state) { return state >= 0 && state < Config::states; }
  __device__ static bool holdsSlot(int state) { return isState(state) && (Config::slotStates >> state & 1); }
  __device__ static bool isTerminal(int state) { return isState(state) && (Config::terminalStates >> state & 1); }

  /// The line of the caller's dump that keeps the logits of a row in `slot`; -1: they are not wanted. A line belongs to
  /// the position that the logits predict. Rejected drafts write lines of positions that are fed again later. With
  /// `replay` a line belongs to the row, the `number`th of the run. Of several models without it: those of the first.
  /// Where rows may be a tree, several drafts may predict the same position. So their lines are those of their places,
  /// behind all others, until keepLogits().
  template <class Pool>
  __device__ __noinline__ int logitsLine(const Pool &pool, int slot, const Row &row, long long number) {
    const abi::LaunchParams &p = params();
    if (!(row.flags & RowWantsLogits))
      return -1;
    if constexpr (Pool::trees)
      if (!p.replay && (row.flags & RowIsDraft))
        return pool.draftLine(slot, row.kvSlot);
    const long long line = p.replay ? number : row.position + 1 - seated(slot).promptLen;
    return line < 0 || line >= p.logitsRows ? -1 : int(p.replay ? line : request[slot] * p.logitsRows + line);
  }

  /// One thread. It waits for nothing.
  __device__ __forceinline__ void noteTime(abi::TimeRecord &record, int tokens) const {
    const u64 now = nanoseconds();
    record = {u32(now), u32(now >> 32), tick, tokens};
  }

  /// Whether the descriptor of a request in `slot` (-1: none) can be trusted.
  __device__ __forceinline__ bool wellFormed(const Request &r, int slot) const {
    return isState(r.state) && r.slot == slot && (slot >= 0 || !holdsSlot(r.state)) && r.fieldsInRange() &&
           pools.all([&](const auto &pool) { return pool.wellFormed(r, slot); }) && r.generated >= 0 &&
           r.generated <= r.maxNewTokens && r.numTokens == r.promptLen + r.generated && r.waitingSite >= -1 &&
           r.waitingSite < Config::sites;
  }
  /// Ends a request whose descriptor cannot be trusted. One thread.
  __device__ void check(Request &r, int slot) {
    if (wellFormed(r, slot))
      return;
    r.slot = slot;
    if (r.state != Config::faultState || r.fault == 0) // else the fault is known already
      fail(r, kCorruptField);
  }

  /// Adds the request's state to `fault`, which is a code and perhaps a line. Without a line it adds the call at which
  /// the request waits.
  __device__ static int faultOf(const Request &r, int fault) {
    if (fault >> abi::kFaultPlaceShift == 0 && r.waitingSite >= 0)
      fault |= abi::kFaultAtCall | r.waitingSite << abi::kFaultPlaceShift;
    return fault | (isState(r.state) ? r.state : abi::kFaultNoState) << abi::kFaultStateShift;
  }

  /// Moves a request to another state and ends its call. One thread.
  __device__ __forceinline__ void move(Request &r, int state, int fault = 0) {
    if (r.state != state)
      atomicAdd(&changes, 1);
    if (!isTerminal(r.state) && isTerminal(state)) {
      atomicSub(&openRequests, 1);
      if (r.slot < 0)
        atomicSub(&unseated, 1);
    }
    r.fault = fault ? faultOf(r, fault) : 0;
    r.state = state;
    r.waitingSite = -1;
    r.served = 0;
  }
  __device__ __noinline__ void fail(Request &r, int code) { move(r, Config::faultState, code); }
  /// Ends a turn. Moves the request to `state`. Fails it instead when `fault` is set, or when the request is not as it
  /// should be; that fault gets the line `line`. Returns the fault. The request's warp calls it. There is one copy of
  /// this code, because code that runs once in a tick comes from far away.
  __device__ __noinline__ int endTurn(Request &r, int slot, int state, int fault, int line = 0) {
    const bool isOwn = pools.all([&](const auto &pool) {
      const int len = pool.kvOf(r).len;
      return len <= max(0, r.numTokens - 1) && (slot < 0 || len <= pool.known[slot]);
    });
    if (!fault && !isOwn)
      fault = faultAt(kKvInvariant, line);
    if (!fault && !wellFormed(r, slot))
      fault = faultAt(kCorruptField, line);
    __syncwarp();
    if (laneId() == 0)
      move(r, fault ? Config::faultState : state, fault);
    __syncwarp();
    return fault;
  }
};

/// The pool whose model a call is of.
template <class Call, class First> struct PoolOfCall {
  using Pool = First;
};
template <class Call, class First>
  requires requires { typename Call::Pool; }
struct PoolOfCall<Call, First> {
  using Pool = typename Call::Pool;
};

/// The ControlState of CTA 0, which stands behind the parameters in shared memory. An address that the compiler knows
/// takes less code than one that is passed on.
template <class Control> __device__ __forceinline__ Control &controlOfCta() {
  return *reinterpret_cast<Control *>(dynamicShared() + sizeof(abi::LaunchParams));
}

/// A request's turn in a part: what stages can do, to their own request only. The whole warp holds the turn, with the
/// same values in every lane. After a fault the turn has no more effects, and ends in the fault state.
template <class Control> struct TurnOf : StageFunctions {
  using Config = typename Control::Config;
  using Request = typename Control::Request;
  using FirstPool = typename Control::FirstPool; ///< what is not said otherwise is of it

  Control &c;
  const abi::LaunchParams &p;
  Request &r;
  const int number; ///< of the request
  const int slot;   ///< -1 during admission
  int fault = 0;    ///< first fault of this turn: faultAt

  __device__ TurnOf(Control &c, int number, int slot)
      : c(c), p(c.params()), r(slot < 0 ? c.tableEntry(number) : c.seated(slot)), number(number), slot(slot) {}

  // --- where the request stands
  template <class State> __device__ bool in(State state) const { return r.state == int(state) && r.waitingSite < 0; }
  template <class Call> __device__ bool resumes() const { return r.served && r.waitingSite == Call::site; }

  // --- what stages read
  __device__ Span tokens() const {
    const int *items = p.tokens + r.tokenBegin;
    return slot < 0 ? Span{items, r.numTokens} : Span{items, r.numTokens, r.numTokens - 1, c.newest[slot]};
  }
  /// A sequence that the request brought.
  template <class T = int> __device__ Items<T> input(const abi::InputRange &range) const {
    return {reinterpret_cast<const WordOf<T> *>(p.inputs + range.begin), range.length};
  }
  __device__ Results results() const { return {c.pass->rows + c.rowBegin[slot], c.taken[slot]}; }
  /// What reducer `Which` of the call gave.
  template <class Which> __device__ auto results() const {
    const auto rows = AskMemory<Config>::ofSlot(p, slot).asks[Which::index].rowsOf(c.taken[slot]);
    const int first = c.rowBegin[slot] + rows.first;
    if constexpr (Which::reducer == ReducerKind::ArgMax)
      return Results{c.pass->rows + first, rows.count()};
    else
      return Reduced<typename Which::Value>{p.reduced + first * AskMemory<Config>::reducedWords + 1 + Which::place,
                                            AskMemory<Config>::reducedWords, rows.count()};
  }
  /// The same where it gave several for each row, of at most `Rows` rows: a table at `words`, whose rows may be
  /// shorter.
  template <class Which, int Rows> __device__ auto results(int *words) {
    using T = typename Which::Value;
    using Memory = AskMemory<Config>;
    const auto rows = Memory::ofSlot(p, slot).asks[Which::index].rowsOf(c.taken[slot]);
    const unsigned *from = p.reduced + (c.rowBegin[slot] + rows.first) * Memory::reducedWords + 1 + Which::place;
#pragma unroll 1
    for (int i = 0; i < rows.count(); ++i, from += Memory::reducedWords) {
      Reduced<T> row{from, 1, Which::count};
      while (row.count > 0 && loadWord(from + row.count - 1) == ~0u) // there were fewer
        --row.count;
      storeRow<Rows, Which::count, T>(words, i, row, 0);
    }
    return tableAt<Rows, Which::count, T>(words, rows.count());
  }
  /// How the request wants tokens to be drawn.
  __device__ sampling::Settings sampling() const {
    const abi::Settings &s = p.settings[number];
    return {__ldg(&s.temperature), __ldg(&s.topK), __ldg(&s.topP), __ldg(&s.minP)};
  }
  /// A random number from 0 to 1, which is neither.
  __device__ float uniform(int position, int lane, int noise) const {
    const abi::Settings &s = p.settings[number];
    return sampling::uniform({__ldg(&s.key[0]), __ldg(&s.key[1])}, position, lane, noise);
  }
  __device__ int budget() const { return r.maxNewTokens - r.generated; }
  __device__ bool finished() const { return r.eosSeen || r.generated >= r.maxNewTokens; }
  __device__ int promptLen() const { return r.promptLen; }
  __device__ int priority() const { return r.priority; }
  template <class Pool = FirstPool> __device__ int kvLen() const { return r.kv[Pool::model].len; }
  /// Rows of drafts behind it that this run of the stage has fed.
  template <class Pool = FirstPool> __device__ int kvDrafts() const { return poolOf<Pool>().runRows[slot]; }
  template <class Pool = FirstPool> __device__ int kvLag() const { return r.numTokens - kvLen<Pool>(); }
  __device__ int seated() const { return c.slotsHeld; }
  template <class Pool = FirstPool> __device__ int livePages() const { return poolOf<Pool>().live; }
  template <class Pool = FirstPool> __device__ bool pressure() const { return poolOf<Pool>().pressure != 0; }

  __device__ void raise(int code, int line) { fault = fault ? fault : faultAt(code, line); }
  __device__ void raiseRange(int line) { raise(kIndexRange, line); }

  /// Element `i`; outside the sequence it is 0, or empty, and the turn faults.
  template <class View> __device__ auto at(const View &sequence, int i, int line = __builtin_LINE()) {
    const auto view = asView(sequence);
    if (i >= 0 && i < view.size())
      return view[i];
    raise(kIndexRange, line);
    return ItemOf<View>{};
  }

  /// Words that this warp keeps in a stage, from `at` on.
  __device__ int *scratch(int at) const { return p.scratch + warpId() * Config::scratchWords + at; }

  /// Number of leading i in [0, count) for which test(i) holds. One lane per i. A fault that test() raises behind the
  /// first failure does not count.
  template <class Test> __device__ int prefixWhile(int count, Test test) {
#pragma unroll 1
    for (int base = 0; base < count; base += 32) {
      const int i = base + laneId(), earlier = fault;
      const bool holds = i < count && test(i);
      const u32 failed = __ballot_sync(~0u, !holds);
      const int first = failed ? __ffs(failed) - 1 : 32;
      agree(earlier, first < 31 ? (2u << first) - 1 : ~0u);
      if (failed)
        return base + first;
    }
    return count > 0 ? count : 0;
  }

  /// Number of i in [0, count) for which test(i) holds. One lane per i.
  template <class Test> __device__ int countIf(int count, Test test) {
    int total = 0;
#pragma unroll 1
    for (int base = 0; base < count; base += 32) {
      const int i = base + laneId(), earlier = fault;
      total += __popc(__ballot_sync(~0u, i < count && test(i)));
      agree(earlier);
    }
    return total;
  }

  /// prefixWhile and countIf for a test that uses the whole warp itself: one i after the other.
  template <class Test> __device__ static int prefixWhileInTurn(int count, Test test) {
    int i = 0;
#pragma unroll 1
    while (i < count && test(i))
      ++i;
    return i;
  }
  template <class Test> __device__ static int countIfInTurn(int count, Test test) {
    int total = 0;
#pragma unroll 1
    for (int i = 0; i < count; ++i)
      total += test(i) ? 1 : 0;
    return total;
  }
  template <class Test> __device__ int prefixWhile(int count, InTurn<Test> test) {
    return prefixWhileInTurn(count, test.function);
  }
  template <class Test> __device__ int countIf(int count, InTurn<Test> test) {
    return countIfInTurn(count, test.function);
  }
  /// The same for i in [low, high).
  template <class Test> __device__ int prefixWhile(int low, int high, Test test) {
    return prefixWhile(lengthOf(low, high), from(low, test));
  }
  template <class Test> __device__ int countIf(int low, int high, Test test) {
    return countIf(lengthOf(low, high), from(low, test));
  }

  /// The first i in [low, high) for which test(i) holds; -1: none. A fault behind it does not count.
  template <class Test> __device__ int find(int low, int high, Test test) {
    const int before = prefixWhile(low, high, negated(test));
    return before < lengthOf(low, high) ? low + before : -1;
  }
  template <class Test> __device__ bool all(int low, int high, Test test) {
    return prefixWhile(low, high, test) == lengthOf(low, high);
  }
  template <class Test> __device__ bool any(int low, int high, Test test) {
    return prefixWhile(low, high, negated(test)) < lengthOf(low, high);
  }

  /// The sum of function(i), i ascending, rounded at each step. One lane per i computes what is added.
  template <class Function> __device__ auto sum(int low, int high, Function function) {
    using T = ValueOf<Function>;
    T total = 0;
#pragma unroll 1
    for (int base = low; base < high; base += 32) {
      const T mine = evaluate(base, high, function);
      total = addUp(total, mine, min(32, high - base), [](int, T) {});
    }
    return total;
  }

  /// The greatest and the least function(i), the first of equal ones; 0 of an empty range.
  template <class Function> __device__ auto greatest(int low, int high, Function function) {
    ValueOf<Function> best = 0;
    bestOf<true>(low, high, function, best);
    return best;
  }
  template <class Function> __device__ auto least(int low, int high, Function function) {
    ValueOf<Function> best = 0;
    bestOf<false>(low, high, function, best);
    return best;
  }
  /// Where they stand; -1 of an empty range.
  template <class Function> __device__ int argGreatest(int low, int high, Function function) {
    ValueOf<Function> best = 0;
    return bestOf<true>(low, high, function, best);
  }
  template <class Function> __device__ int argLeast(int low, int high, Function function) {
    ValueOf<Function> best = 0;
    return bestOf<false>(low, high, function, best);
  }

  /// function(i) for each i in [low, high), which are `Capacity` at most. It stands at `words`.
  template <int Capacity, class Function>
  __device__ auto map(int *words, int low, int high, Function function, int line = __builtin_LINE()) {
    using T = ValueOf<Function>;
    auto *items = reinterpret_cast<WordOf<T> *>(words);
    const int count = roomFor<Capacity>(low, high, line);
    __syncwarp();
#pragma unroll 1
    for (int base = 0; base < count; base += 32) {
      const T mine = evaluate(low + base, low + count, function);
      if (base + laneId() < count)
        items[base + laneId()] = WordOf<T>(mine);
    }
    __syncwarp();
    return Items<T>{items, count};
  }
  /// The same where function(i) is a sequence of at most `Columns` elements. The whole warp evaluates it.
  template <int Rows, int Columns, class Function>
  __device__ auto mapRows(int *words, int low, int high, Function function, int line = __builtin_LINE()) {
    using T = ItemOf<decltype(function(0))>;
    const int count = roomFor<Rows>(low, high, line);
#pragma unroll 1
    for (int i = 0; i < count; ++i)
      storeRow<Rows, Columns, T>(words, i, function(low + i), line);
    return tableAt<Rows, Columns, T>(words, count);
  }
  /// A table of the given rows.
  template <int Rows, int Columns, class First, class... More>
  __device__ auto table(int *words, const First &first, const More &...more) {
    using T = ItemOf<First>;
    int i = 0;
    storeRow<Rows, Columns, T>(words, i++, first, __builtin_LINE());
    (storeRow<Rows, Columns, T>(words, i++, more, __builtin_LINE()), ...);
    return tableAt<Rows, Columns, T>(words, i);
  }

  /// For each i in [low, high) the sum of function(j) for j from low to i, rounded at each step.
  template <int Capacity, class Function>
  __device__ auto scan(int *words, int low, int high, Function function, int line = __builtin_LINE()) {
    using T = ValueOf<Function>;
    T *items = reinterpret_cast<T *>(words);
    const int count = roomFor<Capacity>(low, high, line);
    T total = 0;
    __syncwarp();
#pragma unroll 1
    for (int base = 0; base < count; base += 32) {
      const T mine = evaluate(low + base, low + count, function);
      total = addUp(total, mine, min(32, count - base), [&](int k, T sum) {
        if (laneId() == k)
          items[base + k] = sum;
      });
    }
    __syncwarp();
    return Items<T>{items, count};
  }

  /// The `k` values of i in [low, high) with the greatest function(i), the greatest first, of equal ones the lower i
  /// first. `Range` bounds the range, `Capacity` the result. Keys stand behind it.
  template <int Range, int Capacity, class Function>
  __device__ Items<int> top(int *words, int low, int high, int k, Function function, int line = __builtin_LINE()) {
    const int count = roomFor<Range>(low, high, line);
    int *keys = words + Capacity;
    storeKeys<true>(keys, low, count, function);
    return arrange(words, words + Capacity, 0, low, count, max(0, min(min(k, Capacity), count)));
  }
  /// The values of i in [low, high), by ascending keys, of equal ones the lower i first.
  template <int Capacity, class... Functions>
  __device__ Items<int> sort(int *words, int low, int high, Functions... functions) {
    const int count = roomFor<Capacity>(low, high, __builtin_LINE());
    int *keys = words + Capacity;
    (storeKeys<false>(keys, low, count, functions), ...);
    return arrange(words, words + Capacity, int(sizeof...(Functions)) - 1, low, count, count);
  }

  /// The longest path from row `root` on which each row's token is `best` at its parent; the lowest of equal ones.
  template <int Capacity, class Rows, class Parents, class Best>
  __device__ Items<int> follow(int *words, const Rows &rowsOf, const Parents &parentsOf, const Best &choices,
                               int root) {
    const auto rows = asView(rowsOf);
    const auto parents = asView(parentsOf);
    const auto best = asView(choices);
    const int count = min(Capacity, min(rows.size(), min(parents.size(), best.size())));
    u64 longest = 0; // length, then the row from behind
#pragma unroll 1
    for (int i = laneId(); i < count; i += 32) {
      int at = i, length = 1;
#pragma unroll 1
      while (at != root) {
        const int parent = parents[at];
        if (parent < 0 || parent >= at || rows[at] != best[parent])
          break;
        at = parent;
        ++length;
      }
      const u64 mine = at == root ? u64(length) << 32 | (0xffffffffu - u32(i)) : 0;
      longest = mine > longest ? mine : longest;
    }
    longest = warpGreatest(longest);
    const int length = int(longest >> 32);
    __syncwarp();
    if (laneId() == 0) {
      int at = int(0xffffffffu - u32(longest));
#pragma unroll 1
      for (int i = length - 1; i >= 0; --i) {
        words[i] = at;
        at = parents[at];
      }
    }
    __syncwarp();
    return {words, length};
  }

  /// A row for `last` and one for each token of the table's rows, unless its parent has one with that token already.
  template <int Capacity, class Branches> __device__ TreeRows tree(int *words, int last, const Branches &branchesOf) {
    const auto branches = asView(branchesOf);
    int *rows = words, *parents = words + Capacity;
    int count = 1;
    __syncwarp();
    if (laneId() == 0) {
      rows[0] = last;
      parents[0] = -1;
    }
    __syncwarp();
#pragma unroll 1
    for (int b = 0; b < branches.size(); ++b) {
      const auto branch = branches[b];
      int at = 0;
#pragma unroll 1
      for (int i = 0; i < branch.size() && count < Capacity; ++i) {
        const int token = branch[i];
        int child = count;
#pragma unroll 1
        for (int base = at + 1; base < count && child == count; base += 32) {
          const int row = base + laneId();
          const u32 same = __ballot_sync(~0u, row < count && parents[row] == at && rows[row] == token);
          child = same ? base + __ffs(same) - 1 : count;
        }
        if (child == count) {
          if (laneId() == 0) {
            rows[child] = token;
            parents[child] = at;
          }
          ++count;
          __syncwarp();
        }
        at = child;
      }
    }
    return {{rows, count}, {parents, count}};
  }

  /// The tokens that followed the most recent earlier occurrence of the longest suffix of `Ngram` or fewer tokens. Up
  /// to `width` of them, at most `Capacity`.
  template <int Ngram, int Capacity, class View> __device__ auto ngramLookup(const View &sequence, int width) {
    return ngramLookup<Ngram, Capacity>(sequence, width, sequence);
  }
  /// The same of occurrences in another text, of suffixes of at most `most` tokens.
  template <int Ngram, int Capacity, class View, class Text>
  __device__ auto ngramLookup(const View &sequence, int width, const Text &textOf, int most = Ngram) {
    const auto text = asView(textOf);
    Found<decltype(asView(textOf))> found{text, nullptr, 0, 0};
    width = min(width, Capacity);
    if (width <= 0)
      return found;
    if (p.oracle) {
      found.injected = injected();
      found.count = countInjected(width);
      return found;
    }
    const int end = findSuffix<Ngram>(asView(sequence), text, most, [](int) { return true; });
    if (end > 0) {
      found.first = end;
      found.count = min(width, text.size() - end);
    }
    return found;
  }
  /// What follows `Rows` occurrences, with distinct first tokens: longer suffixes first, then later occurrences.
  template <int Ngram, int Rows, int Columns, class View, class Text>
  __device__ TableItems<int> ngramMatches(int *words, const View &sequence, int width, const Text &textOf,
                                          int most = Ngram) {
    const auto text = asView(textOf);
    int count = 0;
    width = min(width, Columns);
    if (width > 0 && p.oracle) {
      const Items<int> drafts{injected(), countInjected(width)};
      if (drafts.count > 0)
        storeRow<Rows, Columns, int>(words, count++, drafts, 0);
    } else if (width > 0) {
      const int *first = words + Rows;
#pragma unroll 1
      while (count < Rows) {
        const int end = findSuffix<Ngram>(asView(sequence), text, most, [&](int at) {
          bool fresh = true;
#pragma unroll 1
          for (int row = 0; fresh && row < count; ++row)
            fresh = first[row * Columns] != text[at];
          return fresh;
        });
        if (end == 0)
          break;
        storeRow<Rows, Columns, int>(words, count++,
                                     Slice<decltype(asView(textOf))>{text, end, min(width, text.size() - end)}, 0);
      }
    }
    return tableAt<Rows, Columns, int>(words, count);
  }

  // --- what stages do
  /// Stores a scalar. All lanes have read what they need before lane 0 writes.
  template <class Value, class Given> __device__ void set(Value &field, Given value) {
    __syncwarp();
    if (laneId() == 0 && !fault)
      field = Value(value);
    __syncwarp();
  }
  /// Stores a sequence, which may be a view of the field itself. A long one goes by way of `words`.
  template <int Capacity, class T, class View>
  __device__ void set(Sequence<Capacity, T> &field, const View &sequence, int line = __builtin_LINE()) {
    constexpr int each = (Capacity + 31) / 32;
    const auto view = asView(sequence);
    const int count = view.size();
    if (count > Capacity)
      raise(kCorruptField, line);
    if (fault)
      return;
    WordOf<T> mine[each];
#pragma unroll
    for (int k = 0; k < each; ++k)
      mine[k] = k * 32 + laneId() < count ? WordOf<T>(view[k * 32 + laneId()]) : WordOf<T>(0);
    __syncwarp();
#pragma unroll
    for (int k = 0; k < each; ++k)
      if (k * 32 + laneId() < count)
        field.items[k * 32 + laneId()] = mine[k];
    if (laneId() == 0)
      field.length = count;
    __syncwarp();
  }

  template <int Capacity, class T, class View>
  __device__ void set(Sequence<Capacity, T> &field, const View &sequence, int *words, int line = __builtin_LINE()) {
    const auto view = asView(sequence);
    if (view.size() > Capacity)
      raise(kCorruptField, line);
    if (fault)
      return;
    const Items<T> copy = keep<T>(words, view);
    for (int i = laneId(); i < copy.count; i += 32)
      field.items[i] = copy.items[i];
    if (laneId() == 0)
      field.length = copy.count;
    __syncwarp();
  }
  /// Stores a table, by way of `words`.
  template <int Rows, int Columns, class T, class View>
  __device__ void set(Table<Rows, Columns, T> &field, const View &rowsOf, int *words, int line = __builtin_LINE()) {
    const auto rows = asView(rowsOf);
    const int count = rows.size();
    if (count > Rows)
      raise(kCorruptField, line);
    if (fault)
      return;
#pragma unroll 1
    for (int i = 0; i < count; ++i)
      storeRow<Rows, Columns, T>(words, i, rows[i], line);
    if (fault)
      return;
    // As it stands there, it stands in the field.
    const auto *from = reinterpret_cast<const int *>(words);
    for (int i = laneId(); i < count; i += 32)
      field.lengths[i] = from[i];
    const auto *items = reinterpret_cast<const WordOf<T> *>(words + Rows);
    for (int i = laneId(); i < count * Columns; i += 32)
      if (i % Columns < from[i / Columns]) // nobody wrote what stands behind a row
        field.items[i] = items[i];
    if (laneId() == 0)
      field.length = count;
    __syncwarp();
  }
  /// A copy at `words` that later writes to its source do not change.
  template <int Capacity, class T> __device__ Items<T> hold(const Sequence<Capacity, T> &field, int *words) {
    return keep<T>(words, asView(field));
  }
  template <int Rows, int Columns, class T>
  __device__ TableItems<T> hold(const Table<Rows, Columns, T> &field, int *words) {
    const auto rows = asView(field);
#pragma unroll 1
    for (int i = 0; i < rows.count; ++i)
      storeRow<Rows, Columns, T>(words, i, rows[i], 0);
    return tableAt<Rows, Columns, T>(words, rows.count);
  }
  using StageFunctions::hold;

  /// Appends tokens until the budget is used up, or until an EOS, which is appended, too. Returns how many it appended.
  template <class View> __device__ int append(const View &sequence) {
    const auto view = asView(sequence);
    const int most = fault || r.eosSeen ? 0 : min(view.size(), budget());
    int *end = p.tokens + r.tokenBegin + r.numTokens;
    int count = 0;
    bool stopped = false;
#pragma unroll 1
    while (count < most && !stopped) {
      const int i = count + laneId();
      const int token = i < most ? view[i] : 0;
      bool ends = false;
#pragma unroll 1
      for (int e = 0; e < r.eosCount; ++e)
        ends = ends || (slot >= 0 && e < Control::eosAtHand ? c.eos[slot][e] : p.eos[r.eosBegin + e]) == token;
      const u32 stops = __ballot_sync(~0u, i < most && ends);
      const int next = stops ? count + __ffs(stops) : min(count + 32, most);
      if (i < next)
        end[i] = token;
      if (i == next - 1 && slot >= 0)
        c.newest[slot] = token;
      c.pools.each([&](auto &pool) { confirmFed(pool, r.numTokens + count, next - count, token); });
      stopped = stops != 0;
      count = next;
    }
    __syncwarp();
    if (laneId() == 0) {
      if (count > 0)
        c.noteTime(p.times[r.timeBegin + 1 + r.generated], count);
      r.numTokens += count;
      r.generated += count;
      if (stopped)
        r.eosSeen = 1;
    }
    __syncwarp();
    return count;
  }

  /// The same, but not beyond the first place where the request's tokens end in `stop`, wherever that began.
  template <class View, class Stop> __device__ int append(const View &sequence, const Stop &stopOf) {
    const auto view = asView(sequence);
    const auto stop = asView(stopOf);
    const auto before = tokens();
    const int size = view.size(), length = stop.size();
    const int kept = length == 0 ? size : prefixWhile(size, [&](int i) {
      bool same = before.size() + i + 1 >= length;
#pragma unroll 1
      for (int k = 0; same && k < length; ++k)
        same = (k <= i ? view[i - k] : before[before.size() + i - k]) == stop[length - 1 - k];
      return !same;
    });
    return append(Slice<decltype(asView(sequence))>{view, 0, min(size, kept + 1)});
  }

  /// Keeps at most the first `count` positions of the KV that was written. When the rows behind would see a page that
  /// was given back, it keeps none.
  template <class Pool = FirstPool> __device__ void keepKv(int count) {
    auto &pool = poolOf<Pool>();
    auto &kv = pool.kvOf(r);
    int kept = max(0, min(kv.end, count));
    if constexpr (PoolState<Pool>::window > 0)
      if (!fault && pool.firstSeen(kept) < pool.firstOf(slot)) {
        kept = 0;
        pool.startAgain(slot);
      }
    if constexpr (PoolState<Pool>::trees)
      if (!fault)
        keepLogits(*this, pool, kept);
    __syncwarp();
    if (laneId() == 0 && !fault) {
      kv.len = kv.end = kept;
      pool.known[slot] = min(pool.known[slot], kept);
      if constexpr (PoolState<Pool>::continues)
        pool.runRows[slot] = 0;
    }
    __syncwarp();
  }
  /// The same for rows of the run, of which number path[j] moves to the j-th position behind kvLen().
  template <class Pool = FirstPool, class Path>
  __device__ void keepPath(int count, const Path &path, int line = __builtin_LINE()) {
    const auto rows = asView(path);
    auto &pool = poolOf<Pool>();
    const int len = kvLen<Pool>(), kept = min(len + rows.size(), count);
    // Where pages are lacking, nothing is kept.
    if (!fault && kept > len && pool.firstSeen(kept) >= pool.firstOf(slot))
      moveRows(*this, pool, kept - len, rows, line);
    keepKv<Pool>(kept);
  }

  template <class Metric> __device__ void count(Metric metric, int n) const {
    if (laneId() == 0 && !fault)
      atomicAdd(reinterpret_cast<u64 *>(p.metrics) + int(metric), u64((long long)n));
  }
  template <class Gauge> __device__ void trace(Gauge gauge, int value) const {
    if (laneId() == 0 && !fault) {
      c.gauges[slot][int(gauge)] = u32(value);
      c.gaugesSet[slot] |= 1u << int(gauge);
    }
  }
  template <class Gauge> __device__ void trace(Gauge gauge, float value) const { trace(gauge, __float_as_int(value)); }

  // --- how a turn ends
  /// What a call is fed, if these are no more tokens than `Most`.
  template <int Most, class View> __device__ auto atMost(const View &sequence, int line = __builtin_LINE()) {
    const auto view = asView(sequence);
    if (view.size() > Most)
      raise(kTooManyRows, line);
    return view;
  }
  /// Tokens of which each hangs on a row of this run, or on the last position before it: `parents` has -1 then.
  template <class View, class Parents>
  __device__ auto onTree(const View &sequence, const Parents &parents, int line = __builtin_LINE()) {
    return fedRows(asView(sequence), HangsOn<decltype(asView(parents))>{asView(parents)}, line);
  }
  /// Tokens of which each, or all alike, sees so many positions.
  template <class View, class Visible>
  __device__ auto seeing(const View &sequence, const Visible &visible, int line = __builtin_LINE()) {
    return fedRows(asView(sequence), Sees<decltype(asView(visible))>{{}, asView(visible)}, line);
  }
  template <class View> __device__ auto seeing(const View &sequence, int visible, int line = __builtin_LINE()) {
    return fedRows(asView(sequence), SeesAlike{{}, visible}, line);
  }
  /// Asks the next pass to feed `sequence`, or what onTree() and seeing() make of one. The slot then waits at this call
  /// site. `asked`: Asks of the rows' logits.
  template <class Call, class View, class... Asked> __device__ void issue(const View &sequence, const Asked &...asked) {
    issueRows<Call>(asView(sequence), RowBefore(), 0, asked...);
  }
  template <class Call, class View, class Hangs, class... Asked>
  __device__ void issue(const FedRows<View, Hangs> &rows, const Asked &...asked) {
    issueRows<Call>(rows.view, rows.hangs, rows.line, asked...);
  }
  template <class Call, class View, class Hangs, class... Asked>
  __device__ __forceinline__ void issueRows(const View &view, const Hangs &hangs, int line, const Asked &...asked) {
    using Pool = typename PoolOfCall<Call, FirstPool>::Pool;
    constexpr int atHand = PoolState<Pool>::atHand;
    auto &pool = poolOf<Pool>();
    if constexpr (PoolState<Pool>::trees)
      if (!fault)
        noteRows<Call>(*this, pool, view.size(), hangs, line);
    if (fault) {
      fail(fault);
      return;
    }
    const int len = pool.firstPlace(slot, kvLen<Pool>(), Call::draft);
    const int size = view.size(), wanted = Call::chunk > 0 ? min(size, min(Call::chunk, Config::rowsPerPass)) : size;
    const int from = pool.keepFrom(slot, kvLen<Pool>()), before = len - from;
    // The tokens do not change while the call waits. So the rows that it must not feed are known now.
    int *fed = pool.fedTokens(slot) + before;
    const Span known = tokens();
    const int count = min(wanted, Config::rowsPerPass);
    int badRow = Config::rowsPerPass, badCode = 0;
#pragma unroll 1
    for (int base = 0; base < count; base += 32) {
      const int i = base + laneId();
      int position = len + i, code = 0;
      if (i < count) {
        if constexpr (PoolState<Pool>::trees)
          position = pool.rowWord(slot, pool.Position, position);
        const int token = fed[i] = view[i];
        if (before + i < atHand)
          pool.callStart[slot][before + i] = token;
        if (token < 0 || token >= Pool::vocab)
          code = kTokenRange;
        else if (position < r.numTokens && known[position] != token)
          code = kFeedMismatch;
      }
      const u32 bad = __ballot_sync(~0u, code != 0);
      if (bad && !badCode) {
        badRow = base + __ffs(bad) - 1;
        badCode = __shfl_sync(~0u, code, __ffs(bad) - 1);
      }
    }
    if constexpr (Control::asks) {
      (asked.template store<Config>(p, slot), ...);
      if (laneId() == 0)
        AskMemory<Config>::ofSlot(p, slot).count = int(sizeof...(Asked));
    }
    __syncwarp();
    if (laneId() == 0) {
      r.waitingSite = Call::site;
      r.waitingSince = c.tick;
      r.served = 0;
      r.callCount = wanted;
      pool.fedFrom[slot] = from;
      if constexpr (Control::loops)
        c.callModel[slot] = Pool::model | (Call::loop + 1) << 8;
      else if constexpr (Control::several)
        c.callModel[slot] = Pool::model;
      c.badRow[slot] = badRow;
      c.badCode[slot] = badCode;
      c.callChunk[slot] = Call::chunk;
      c.callFlags[slot] = (Call::wantsLogits ? RowWantsLogits : 0u) | (Call::draft ? RowIsDraft : 0u);
    }
    __syncwarp();
  }

  /// At a loop of the tick: the request goes on with a round, or behind the loop.
  template <class Round, class Behind> __device__ void enter(bool more) {
    if (fault) {
      fail(fault);
      return;
    }
    __syncwarp();
    if (laneId() == 0) {
      r.waitingSite = more ? Round::site : Behind::site;
      r.waitingSince = c.tick;
      r.served = kStandsAtLoop;
    }
    __syncwarp();
  }

  /// Ends a stage: checks the request, then moves it.
  template <class State> __device__ void goTo(State state, int line = __builtin_LINE()) {
    fault = c.endTurn(r, slot, int(state), fault, line);
    if constexpr (Control::continues)
      endRuns(*this);
    if (slot < 0 && !fault && Control::holdsSlot(int(state)))
      takeSlot();
  }

  __device__ void fail(int code) { c.endTurn(r, slot, Config::faultState, code); }

  template <class Pool> __device__ __forceinline__ PoolState<Pool> &poolOf() const { return c.template poolOf<Pool>(); }
  /// All lanes take the fault of the first of those in `reached` that has one. `earlier`: what it was before.
  __device__ void agree(int earlier, u32 reached = ~0u) {
    const u32 faulted = __ballot_sync(~0u, fault != earlier) & reached;
    fault = faulted ? __shfl_sync(~0u, fault, __ffs(faulted) - 1) : earlier;
  }

  __device__ static int lengthOf(int low, int high) { return low < high ? high - low : 0; }
  /// As a function of numbers from 0 on.
  template <class Test> __device__ static auto from(int low, Test test) {
    return [=](int i) { return test(low + i); };
  }
  template <class Test> __device__ static auto from(int low, InTurn<Test> test) {
    return StageFunctions::inTurn([=](int i) { return test.function(low + i); });
  }
  template <class Test> __device__ static auto negated(Test test) {
    return [=](int i) { return !test(i); };
  }
  template <class Test> __device__ static auto negated(InTurn<Test> test) {
    return StageFunctions::inTurn([=](int i) { return !test.function(i); });
  }

  template <class Function> __device__ static auto called(const Function &function) { return function(0); }
  template <class Function> __device__ static auto called(const InTurn<Function> &function) {
    return function.function(0);
  }
  template <class Function> using ValueOf = decltype(called(*static_cast<const Function *>(nullptr)));

  /// function(i) of this lane, whose i is `base` + its number; nothing from `high` on.
  template <class Function> __device__ auto evaluate(int base, int high, const Function &function) {
    const int i = base + laneId(), earlier = fault;
    ValueOf<Function> mine{};
    if (i < high)
      mine = function(i);
    agree(earlier);
    return mine;
  }
  template <class Function> __device__ auto evaluate(int base, int high, const InTurn<Function> &function) {
    ValueOf<InTurn<Function>> mine{};
#pragma unroll 1
    for (int k = 0; k < 32 && base + k < high; ++k) {
      const auto value = function.function(base + k);
      if (laneId() == k)
        mine = value;
    }
    return mine;
  }

  /// Adds the values of the first `count` lanes, one after the other; each(k, sum) sees every step.
  template <class T, class Each> __device__ static T addUp(T total, T mine, int count, Each each) {
#pragma unroll 1
    for (int k = 0; k < count; ++k) {
      total = sumOf(total, __shfl_sync(~0u, mine, k));
      each(k, total);
    }
    return total;
  }
  __device__ static int sumOf(int a, int b) { return StageFunctions::wrapAdd(a, b); }
  __device__ static float sumOf(float a, float b) { return __fadd_rn(a, b); }

  __device__ static u64 warpGreatest(u64 mine) {
#pragma unroll
    for (int distance = 16; distance; distance >>= 1) {
      const u64 other = __shfl_xor_sync(~0u, mine, distance);
      mine = other > mine ? other : mine;
    }
    return mine;
  }

  /// Where the greatest or least function(i) stands, and what it is; -1 when there is none.
  template <bool Greatest, class Function, class T>
  __device__ int bestOf(int low, int high, const Function &function, T &best) {
    u64 first = ~0ull; // rank, then the number's place
    T mine = 0;
#pragma unroll 1
    for (int base = low; base < high; base += 32) {
      const T value = evaluate(base, high, function);
      const u64 place = u64(rankOf<Greatest>(value)) << 32 | u32(base + laneId() - low);
      if (base + laneId() < high && place < first) {
        first = place;
        mine = value;
      }
    }
    if (low >= high)
      return -1;
    const u64 winner = ~warpGreatest(~first);
    const int at = int(u32(winner));
    best = __shfl_sync(~0u, mine, at & 31);
    return low + at;
  }

  /// How many numbers the range has. More than `Capacity` are a fault: what bounds them was overwritten.
  template <int Capacity> __device__ int roomFor(int low, int high, int line) {
    const int count = lengthOf(low, high);
    if (count <= Capacity)
      return count;
    raise(kCorruptField, line);
    return 0;
  }

  /// Copies a view to `words`.
  template <class T, class View> __device__ static Items<T> keep(int *words, const View &view) {
    auto *items = reinterpret_cast<WordOf<T> *>(words);
    const int count = view.size();
    __syncwarp();
#pragma unroll 1
    for (int i = laneId(); i < count; i += 32)
      items[i] = WordOf<T>(view[i]);
    __syncwarp();
    return {items, count};
  }

  /// A table at `words`: the lengths of `Rows` rows, then their elements.
  template <int Rows, int Columns, class T, class View>
  __device__ void storeRow(int *words, int row, const View &sequence, int line) {
    const auto view = asView(sequence);
    const int count = view.size();
    if (count > Columns || row >= Rows) {
      raise(kCorruptField, line);
      return;
    }
    keep<T>(words + Rows + row * Columns, view);
    if (laneId() == 0)
      words[row] = count;
    __syncwarp();
  }
  template <int Rows, int Columns, class T> __device__ static TableItems<T> tableAt(const int *words, int count) {
    return {words, reinterpret_cast<const WordOf<T> *>(words + Rows), Columns, count};
  }

  /// Writes the rank of each number to `keys`, which then stands behind them.
  template <bool Descending, class Function>
  __device__ void storeKeys(int *&keys, int low, int count, const Function &function) {
    __syncwarp();
#pragma unroll 1
    for (int base = 0; base < count; base += 32) {
      const u32 key = rankOf<Descending>(evaluate(low + base, low + count, function));
      if (base + laneId() < count)
        keys[base + laneId()] = int(key);
    }
    __syncwarp();
    keys += count;
  }
  /// The first `kept` of the numbers low + i in the order of their keys; `more` further keys stand behind the first.
  __device__ static Items<int> arrange(int *words, const int *keys, int more, int low, int count, int kept) {
#pragma unroll 1
    for (int i = laneId(); i < count; i += 32) {
      int before = 0;
#pragma unroll 1
      for (int j = 0; j < count; ++j) {
        int k = 0;
        while (k < more && keys[k * count + j] == keys[k * count + i])
          ++k;
        const u32 other = u32(keys[k * count + j]), own = u32(keys[k * count + i]);
        before += other < own || (other == own && j < i);
      }
      if (before < kept)
        words[before] = low + i;
    }
    __syncwarp();
    return {words, kept};
  }

  /// Drafts of the host, from the next token on.
  __device__ const int *injected() const { return p.oracle + (long long)number * p.oracleStride + r.generated; }
  __device__ int countInjected(int width) const {
    const int *drafts = injected();
    int count = 0;
#pragma unroll 1
    while (count < width && r.generated + count < p.oracleStride && drafts[count] >= 0)
      ++count;
    return count;
  }

private:
  /// Called when `count` tokens are appended from position `first` on, of which this lane has one: `token`. Counts the
  /// leading ones that were fed at their positions as known. From the first position on where another token was fed,
  /// the KV stays unknown.
  template <class Pool> __device__ void confirmFed(Pool &pool, int first, int count, int token) {
    const int end = pool.kvOf(r).end;
    if (slot < 0 || end <= first || pool.known[slot] != first)
      return;
    const int position = first + laneId();
    const bool same = laneId() < count && position < end && pool.fedToken(slot, position) == token &&
                      (!Pool::trees || pool.isPlain(slot, position));
    const u32 others = __ballot_sync(~0u, !same);
    __syncwarp();
    if (laneId() == 0)
      pool.known[slot] = first + (others ? __ffs(others) - 1 : 32);
    __syncwarp();
  }

  /// For measurements: the first `count` positions count as fed. Their pages leave the
  /// free stack as if they had been.
  template <class Pool> __device__ void takeKv(Pool &pool, int seat, int count) {
    const int first = pool.firstSeen(count), pages = pool.pagesFor(count) - first;
    if (pages > pool.freePages) {
      fail(kPoolExhausted);
      return;
    }
    pool.startAt(seat, first);
    pool.take(seat, pool.freePages, pages);
    __threadfence(); // other CTAs read the page table in this pass already, see awaitPass
    __syncwarp();
    if (laneId() == 0) {
      pool.setHeld(seat, first + pages);
      pool.freePages -= pages;
      auto &kv = pool.kvOf(r);
      kv.len = kv.end = pool.known[seat] = count;
    }
    __syncwarp();
  }

  /// Seats an admitted request in the lowest free slot.
  __device__ void takeSlot() {
    for (int base = 0; base < Config::slots; base += 32) {
      const int s = base + laneId();
      const u32 open = __ballot_sync(~0u, s < Config::slots && c.request[s] < 0);
      if (!open)
        continue;
      __syncwarp();
      const int seat = base + __ffs(open) - 1;
      if (laneId() == 0) {
        c.request[seat] = p.slots[seat].request = number;
        c.gaugesSet[seat] = 0;
        c.pools.each([&](auto &pool) {
          pool.open(seat);
          pool.known[seat] = pool.fedFrom[seat] = 0;
          if constexpr (requires { pool.runRows; })
            pool.runRows[seat] = 0;
          if (pool.reserves) {
            pool.promised[seat] = pool.pagesToPromise(r);
            pool.unpromised -= pool.promised[seat];
          }
        });
        r.slot = seat;
        --c.freeSlots;
        --c.unseated;
        if (abi::TimeRecord &admitted = p.times[r.timeBegin]; admitted.tokens == 0)
          c.noteTime(admitted, 1);
        c.newest[seat] = r.numTokens > 0 ? p.tokens[r.tokenBegin + r.numTokens - 1] : 0;
        for (int e = 0; e < min(r.eosCount, Control::eosAtHand); ++e)
          c.eos[seat][e] = p.eos[r.eosBegin + e];
      }
      __syncwarp();
      if (p.kvInPlace > 0)
        c.pools.each([&](auto &pool) { takeKv(pool, seat, min(p.kvInPlace, r.promptLen - 1)); });
      if (Control::seatsAreShared)
        Control::copy(r, c.seated(seat));
      return;
    }
  }
};

} // namespace megalith::device

#include "megalith/ControlTick.cuh"
#include "megalith/ControlPass.cuh"
