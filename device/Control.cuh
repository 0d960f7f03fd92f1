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

#include "megalith/Faults.cuh"
#include "megalith/Pages.cuh"
#include "megalith/Texts.cuh"

namespace megalith::device {

/// The passes of a model that a request had rows in.
template <class Request> __device__ __forceinline__ int passesOf(const Request &r, int model) {
  if constexpr (abi::kModels > 1)
    return r.passesOf[model];
  else
    return r.passes;
}

/// Of a call: the host wants the logits of its rows that are the prompt's. Beside RowFlag bits.
constexpr u32 kOfPrompt = 1u << kRowFlagBits;
/// The same: what is asked of it is asked of its last row alone.
constexpr u32 kLastRow = 2u << kRowFlagBits;

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

template <class Config> __device__ constexpr bool doLoopsNest() {
  if constexpr (requires { Config::loopsNest; })
    return Config::loopsNest;
  else
    return false;
}

/// Rows of a pass that calls with `chunk` have at most, all together, while another request holds a slot.
template <class Config> __device__ constexpr int rowsBeside() {
  if constexpr (requires { Config::rowsBeside; })
    return Config::rowsBeside;
  else
    return Config::rowsPerPass;
}

template <class Config> __device__ constexpr bool hasSeveralPasses() { return abi::kModels > 1 || hasLoops<Config>(); }

/// The control plane's working state, in shared memory of CTA 0: words of SharedMemory.h, pools, and what the requests
/// in the slots have. The slot tables mirror LaunchParams::slots. While a request holds a slot, its descriptor stands
/// here too, unless descriptors are large. So what a tick does to it costs no trip to the L2 cache.
template <class ConfigType, class RequestType>
struct ControlState
    : Perhaps<(ConfigType::rowsPerPass > kMaxRows), PassPieces<ConfigType::slots>>,
      Perhaps<hasTrees<ConfigType>() || PoolStates<typename PoolsOf<ConfigType>::List>::indexed, MovedRows>,
      Perhaps<(queriesOf<ConfigType>() > 0), PlainCalls<ConfigType::slots>>,
      ControlNumbersOf<abi::kModels>,
      SlotTables<ConfigType::slots>,
      CallModels<hasSeveralPasses<ConfigType>() ? ConfigType::slots : 1> {
  using Config = ConfigType;
  using Request = RequestType;
  static_assert(Config::states <= limits::states && Config::gauges <= limits::gauges, "flags are bits of one word");

  using Pools = PoolStates<typename PoolsOf<Config>::List>;
  using FirstPool = typename Pools::First;
  /// A tick's list has several passes: of several models, or because calls stand in loops.
  static constexpr bool several = hasSeveralPasses<Config>();
  static constexpr bool reserves = Pools::reserves;              ///< some pool does
  static constexpr bool queries = queriesOf<Config>() > 0;       ///< calls ask for more than the best token of each row
  static constexpr bool trees = hasTrees<Config>();              ///< of some pool
  static constexpr bool indexed = Pools::indexed;                ///< some pool has an index
  static constexpr bool tellsFresh = trees || indexed;           ///< passes read what control wrote in front of them
  static constexpr bool continues = trees || hasRuns<Config>();  ///< the same
  static constexpr bool pieces = Config::rowsPerPass > kMaxRows; ///< a pass may run in pieces
  static constexpr bool wide = pieces && mayRunWide<Config>();   ///< a piece may be wide
  static constexpr bool late = wide && mayBeginLate<Config>();   ///< and one behind it may begin with the last layer
  static constexpr bool bounds = rowsBeside<Config>() < Config::rowsPerPass; ///< calls with `chunk`
  static constexpr int eosAtHand = shape::eosAtHand(Config::slots);
  static constexpr bool seatsAreShared = sizeof(Request) * Config::slots <= seatBytes(abi::kModels, indexed);

  Pools pools;
  Seats<Request, seatsAreShared ? Config::slots : 0> seats;
  u32 gauges[Config::slots][Config::gauges > 0 ? Config::gauges : 1];

  // What is used of these here.
  using Numbers = ControlNumbersOf<abi::kModels>;
  using Numbers::tick, Numbers::changes, Numbers::openRequests, Numbers::unseated;
  using Tables = SlotTables<Config::slots>;
  using Tables::request, Tables::callChunk, Tables::callFlags, Tables::kvLen;
  using CallModels<several ? Config::slots : 1>::callModel;

  __device__ static const abi::LaunchParams &params() { return paramsOfCta(); }
  /// What control keeps of a pool.
  template <class Pool> __device__ __forceinline__ PoolState<Pool> &poolOf() {
    return static_cast<PoolStates<typename TailFrom<Pool, typename PoolsOf<Config>::List>::List> &>(pools).pool;
  }
  /// Whether the call of `slot` waits for a pass of the pool's model.
  template <class Pool> __device__ __forceinline__ bool waitsFor(int slot) {
    return request[slot] >= 0 && seated(slot).waitingSite >= 0 && (!several || callModel[slot] == Pool::model);
  }
  static constexpr bool loops = hasLoops<Config>();        ///< some calls stand in loops of the tick
  static constexpr bool loopsNest = doLoopsNest<Config>(); ///< and some of these in others
  /// The same for the pass of one call in a loop of the tick, by its site; -1: for that of the calls outside of loops.
  template <class Pool> __device__ __forceinline__ bool waitsFor(int slot, int site) {
    if constexpr (!loops)
      return waitsFor<Pool>(slot);
    else
      return request[slot] >= 0 && seated(slot).waitingSite >= 0 && !seated(slot).served &&
             callModel[slot] == (Pool::model | (site + 1) << 8);
  }
  /// Whether the slot's request is at no call that feeds its prompt, as one that decodes.
  __device__ __forceinline__ bool isBeside(int slot) {
    return request[slot] >= 0 && (seated(slot).waitingSite < 0 || !isOfPrompt(slot));
  }
  /// Whether the slot's call feeds a prompt: it has `chunk`, or many rows of which only the last one is read.
  __device__ __forceinline__ bool isOfPrompt(int slot) {
    return callChunk[slot] > 0 || ((callFlags[slot] & kLastRow) && seated(slot).callCount > 1);
  }
  /// Whether the slot's call counts among those that are read: its rows' logits are wanted, or they are no chain.
  template <class Pool> __device__ __forceinline__ bool isRead(const Pool &pool, int slot) const {
    bool read = callFlags[slot] & (RowWantsLogits | kOfPrompt);
    if constexpr (Pool::trees)
      read = read || pool.someFree[slot];
    return read;
  }
  /// How many of the call's `rows` rows count among those that are read, in a pass of more than kMaxRows rows: these
  /// are the last ones.
  template <class Pool> __device__ __forceinline__ int readRows(const Pool &pool, int slot, int rows) const {
    return callFlags[slot] & kLastRow ? min(rows, 1) : isRead(pool, slot) ? rows : 0;
  }
  /// Rows of the slot's call that ran in pieces that are not read.
  __device__ __forceinline__ int unreadRows(int slot) const {
    if constexpr (pieces)
      if (this->unread > 0 && this->firstUnread[slot] >= 0)
        return this->taken[slot] - (callFlags[slot] & kLastRow ? 1 : 0);
    return 0;
  }
  /// Whether all of them did. Such a call has no results.
  __device__ __forceinline__ bool isUnread(int slot) const {
    const int rows = unreadRows(slot);
    return rows > 0 && rows == this->taken[slot];
  }
  /// Whether a wide piece is open.
  __device__ __forceinline__ bool isWide() const {
    if constexpr (wide)
      return this->unread > 0 && this->pass->runs > 0;
    return false;
  }
  /// Whether the rows of a call that is not read may be a run: they are fed the request's own tokens. issueRows()
  /// compared them as far as there are any. Places of sealed pages are none of a run: they are not written.
  template <class Pool> __device__ __forceinline__ bool isRun(const Pool &pool, int slot) {
    const auto &r = seated(slot);
    return !(callFlags[slot] & (RowIsDraft | kOfPrompt)) &&
           firstPlace(pool, slot) >= pool.sealedOf(slot) * Pool::pageTokens &&
           firstPlace(pool, slot) + this->taken[slot] <= r.numTokens && r.tokenBegin + r.numTokens <= 0x7fffffff;
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
  /// after all others, until keepLogits(). Of a live session those that the host was told of stay as they are.
  template <class Pool>
  __device__ __noinline__ int logitsLine(const Pool &pool, int slot, const Row &row, long long number) {
    const abi::LaunchParams &p = params();
    bool wanted = row.flags & RowWantsLogits;
    if (p.replay)
      return wanted && number < p.logitsRows ? int(number) : -1;
    const auto &r = seated(slot);
    const OwnLines own = linesOf(p, r, request[slot]);
    const int token = row.position + 1 - r.promptLen;
    long long line = token < own.from || token >= own.count ? -1 : own.first + token;
    if (token < 0 && callFlags[slot] & kOfPrompt && -token <= promptLinesOf(p, r, request[slot])) {
      line = own.first + token;
      wanted = true;
    }
    if constexpr (Pool::trees)
      if (row.flags & RowIsDraft)
        line = own.count > 0 ? pool.draftLine(slot, row.kvSlot, own) : -1;
    if (line >= 0 && p.logitsRows == 0)
      lineMark(p, line) = wanted;
    return wanted ? int(line) : -1;
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
  /// Of a request that has faulted. One thread.
  __device__ __forceinline__ static void tell(Request &r, const abi::FaultNumbers &numbers) {
    r.waitingSince = numbers.words[0];
    r.callCount = numbers.words[1];
    r.priority = numbers.words[2];
  }
  /// Ends an activation. Moves the request to `state`. Fails it instead when `fault` is set, or when the request is not
  /// as it should be; that fault gets the line `line`. Returns the fault, whose numbers are `numbers`. The request's
  /// warp calls it. There is one copy of this code, because code that runs once in a tick comes from far away.
  __device__ __noinline__ int endActivation(Request &r, int slot, int state, int fault, abi::FaultNumbers numbers,
                                            int line = 0) {
    const int most = max(0, r.numTokens - 1);
    const bool isOwn = pools.all([&](const auto &pool) {
      const int len = pool.kvOf(r).len, own = slot < 0 ? len : min(len, pool.known[slot]);
      if (len <= most && len <= own)
        return true;
      if (!fault)
        numbers = {len, own, most};
      return false;
    });
    if (!fault && !isOwn)
      fault = faultAt(kKvInvariant, line);
    if (!fault && !wellFormed(r, slot))
      fault = faultAt(kCorruptField, line);
    __syncwarp();
    if (laneId() == 0)
      move(r, fault ? Config::faultState : state, fault);
    if (laneId() == 0 && fault)
      tell(r, numbers);
    __syncwarp();
    return fault;
  }
};

} // namespace megalith::device
