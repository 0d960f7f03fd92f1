//===- Ring.cuh - the weight stream through shared memory -----------------===//
//
// One producer warp copies chunks of packed weights into a ring of stages. Eight consumer warps read
// them in the same static order. The producer never waits for an activation. It waits for empty
// stages, and once in a pass for the pass's plan.
//===----------------------------------------------------------------------===//
#pragma once

#include "megalith/Sync.cuh"
#include "megalith/Pool.cuh"
#include "megalith/Steps.cuh"

namespace megalith::device {

/// A ring of `Stages` stages of `StageBytes` bytes each.
///
/// At most `Flight` copies are under way at a time. A deeper queue at the memory would delay every word that a CTA
/// waits for. While two thirds of the ring are unread, the limit is half as high, for the CTA then waits at an edge.
/// (A few more copies may start where a pass begins in another stage than the one where the last pass ended.)
///
/// A pass of several rows needs more room for its activations than a pass of one row. It lends the first `Lent` stages
/// to them, and uses the other stages as its ring. Every pass begins after the first `Lent` stages. The producer
/// fills these stages only when it knows that the pass has one row, or at most kFewRows, which lend `FewLent` stages.
/// More of a row tile lend `TallLent`. Where that is more than the pass begins after, the consumers drop what was
/// copied by then, and the producer brings it again (startsAgain).
///
/// A pass of more than `LentRows` rows lends the first `WideLent` stages. So does a pass with attention in wide tiles.
/// The next pass then begins after `WideLent` stages, for these may still be in use. A pass of one row step lends
/// `StepLent`, if it is not such a pass.
///
/// In a kernel with passes that run whole (`Whole`) such a pass lends all stages, so the producer waits for the plan of
/// the next one before it fills any.
template <int Stages, int StageBytes, int Flight, int Lent, int FewLent = Lent, int StepLent = Lent,
          int WideLent = Lent, int LentRows = kTileRows, bool Whole = false, int TallLent = Lent>
struct Ring {
  static constexpr bool whole = Whole;
  static_assert(Stages <= kMostStages && Stages - WideLent >= 2 && WideLent >= Lent && Lent >= FewLent &&
                Lent >= StepLent && TallLent >= Lent && Stages - TallLent >= 2);
  static constexpr int stages = Stages, stageBytes = StageBytes, flight = Flight, lent = Lent, wideLent = WideLent,
                       lentRows = LentRows;
  /// Passes of up to LentRows rows lend `Lent`.
  static constexpr bool sameLent = FewLent == Lent && StepLent == Lent && TallLent == Lent;
  static constexpr bool tall = TallLent > Lent;
  static constexpr int mostLent = TallLent > WideLent ? TallLent : WideLent;
  char *data;
  RingShared *shared;
  int stage = 0; ///< the stage of the next chunk
  /// Two values in one register. Bit s is the phase parity of the next chunk in stage s. Bits 16 and up are first().
  u32 state = 0;

  /// The first stage of the ring. The stages before it are lent.
  __device__ __forceinline__ int first() const { return (int)(state >> 16); }
  __device__ __forceinline__ u32 parity(int of) const { return state >> of & 1; }
  /// The phase parity of the last chunk in a stage. Before the first chunk it is that of a phase that counts as
  /// complete.
  __device__ __forceinline__ u32 lastParity(int of) const { return parity(of) ^ 1; }
  __device__ __forceinline__ void advance() {
    state ^= 1u << stage;
    if (++stage == Stages)
      stage = first();
  }
  /// The stage of the chunk that came `count` chunks ago.
  __device__ __forceinline__ int before(int count) const {
    const int then = stage - count;
    return then < first() ? then + Stages - first() : then;
  }
  /// The stage of a pass's first chunk. `lentBefore`: stages that the pass before lent; a wide pass all.
  __device__ static constexpr int beginsAt(int lentBefore) { return sameLent || lentBefore > Lent ? lentBefore : Lent; }
  /// Goes there: to `stage`.
  __device__ __forceinline__ void beginPass(int begin) {
    state &= 0xffff;
    stage = !Whole || begin < Stages ? begin : 0;
  }
  /// Number of stages that a pass of so many rows lends. A pass of one row has such a number, too, but lends none.
  __device__ static constexpr int lentTo(int rows, bool wideTiles) {
    return rows > LentRows || wideTiles ? WideLent
           : rows <= kFewRows           ? FewLent
           : rows <= kTileRows          ? TallLent
           : rows <= kRowStep           ? StepLent
                                        : Lent;
  }
  /// Whether a pass of several rows of one row tile lends stages after which it begins.
  __device__ static constexpr bool startsAgain(int rows, int lentBefore) {
    return tall && rows > kOneRow && rows <= kTileRows && lentTo(rows, false) > beginsAt(lentBefore);
  }
  __device__ __forceinline__ int after(int of) const { return of + 1 == Stages ? first() : of + 1; }
  /// Lends the first `count` stages until the end of the pass.
  __device__ __forceinline__ void lend(int count) {
    state = (state & 0xffff) | (u32)count << 16;
    stage = max(stage, count);
  }
};

template <int Stages> __device__ void ringInit(RingShared *shared, const abi::LaunchParams &p) {
  if (threadIdx.x == 0) {
    for (int i = 0; i < Stages; ++i) {
#if __CUDA_ARCH__ >= 900
      barrierInit(&shared->full[i], 1);
#else
      barrierInit(&shared->full[i], 32);
#endif
      barrierInit(&shared->empty[i], kConsumerWarps);
    }
    barrierInit(&shared->planned, 1);
    barrierInit(&shared->wideBegun, 1);
    barrierInit(&shared->wideWindows, 1);
    barrierInit(&shared->wholePass, kConsumerWarps + kWarpsBeside);
    barrierInit(&shared->opened, kConsumerWarps);
    for (int i = 0; i < kMostWindows; ++i) {
#if __CUDA_ARCH__ >= 900
      barrierInit(&shared->windowFull[i], 1);
#else
      barrierInit(&shared->windowFull[i], 32);
#endif
      barrierInit(&shared->windowEmpty[i], kConsumerWarps);
    }
    shared->runHead = shared->numRows = shared->model = shared->leave = shared->stopped = 0;
    shared->passes = shared->plansRead = shared->widePasses = 0;
    shared->stopFlag = p.sync + kStopFlag;
    barriersReady();
  }
}

/// Whether the kernel stops, so that a wait inside the CTA is in vain.
__device__ __forceinline__ bool stopSeen(const RingShared &s, u32 spin) {
  return loadFlag(&s.stopped) || (spin % 1024 == 0 && loadRelaxed(s.stopFlag));
}

/// Whether the producer or the window warp must end a wait: the resident loop ended, or the kernel stops. Spin
/// `kUnplanned`: the next pass may run whole, which needs all warps of the CTA until the consumers leave.
constexpr u32 kUnplanned = ~0u;
inline __device__ __noinline__ bool leaves(const RingShared &s, u32 spin) {
  return loadFlag(&s.leave) || (spin != kUnplanned && stopSeen(s, spin));
}

/// Waits until a stage is full. Out of line: it is called from many places, and mostly the stage is full already.
inline __device__ __noinline__ void awaitFull(RingShared &s, int stage, u32 parity) {
  assumeShared(&s);
  for (u32 spin = 1; !barrierTest(&s.full[stage], parity); ++spin)
    if (stopSeen(s, spin)) { // the producer has left; the next edge returns
      noteStop();
      return;
    }
}

/// Waits until the producer and the window warp read nothing more of the last pass's plan. Consumer thread 0 calls it.
__device__ __forceinline__ void awaitPlanRead(RingShared &s) {
  for (u32 spin = 1; loadFlag(&s.plansRead) != s.passes; ++spin)
    if (stopSeen(s, spin))
      return;
  if (s.numRows > (u32)kTileRows) // else the window warp has no part in that pass
    for (u32 spin = 1; !barrierTest(&s.wideWindows, (s.widePasses - 1) & 1); ++spin)
      if (stopSeen(s, spin))
        return;
}

/// Tells the producer that the pass is planned, how many rows it has, and whether the head follows. Tells the window
/// warp of a pass of many rows. One consumer thread calls it once per pass, when the pass table is in shared memory.
template <class Pass> __device__ __forceinline__ void announcePlan(RingShared &s, const Pass &pass) {
  s.passes = s.passes + 1;
  s.numRows = pass.numRows;
  s.lent = pass.products.lent;
  if constexpr (abi::kModels > 1) {
    s.model = pass.model;
    s.next = pass.next;
  }
  s.runHead = pass.wantLogits;
  barrierArrive(&s.planned);
  if (pass.numRows > kTileRows) {
    s.widePasses = s.widePasses + 1;
    s.wide = {pass.numRows, pass.wide, pass.wantLogits};
    barrierArrive(&s.wideBegun);
  }
}
/// The same of a pass that runs whole. To the ring it has no rows.
template <class Pass> __device__ __forceinline__ void announceWhole(RingShared &s, const Pass &pass) {
  s.passes = s.passes + 1;
  s.numRows = 0;
  s.lent = pass.products.lent;
  if constexpr (abi::kModels > 1) {
    s.model = pass.model;
    s.next = pass.next;
  }
  s.runHead = 0;
  barrierArrive(&s.planned);
  barrierArrive(&s.wideBegun);
}

/// The producer warp's side of the ring. All its lanes call a function together.
template <class R> struct Producer {
  static constexpr int lanes = kProducerLanes;
  __device__ __forceinline__ static bool all(bool mine) { return lanes == 1 ? mine : __all_sync(~0u, mine); }
  __device__ __forceinline__ static bool any(bool mine) { return lanes == 1 ? mine : __any_sync(~0u, mine); }

  R ring;
  __device__ static constexpr int twoThirds(int stages) { return (2 * stages + 2) / 3; }
  int soon = twoThirds(R::stages); ///< two thirds of the stages that are the pass's ring
  int underWay = 0;                ///< copies under way, at most
  int oldest = 0;                  ///< the stage of the oldest copy under way
  int room = 0;                    ///< stages known to be empty, from the next one on
  u32 plannedParity = 0;
  bool planned = false;     ///< the plan of the present pass is known
  bool fewBefore = true;    ///< the pass before had at most 16 rows, so this one may, too
  int lentBefore = R::lent; ///< stages lent by the pass before, at least: where this pass begins
  u32 plansRead = 0;
  u32 model = 0;   ///< whose weights it brings: until the plan is known, those of a guess
  u32 windows = 0; ///< bit u: the page numbers of unit u are in shared memory
  int pagesSlot = -1, pagesFrom = 0, pagesCount = 0; ///< the round whose page numbers are in shared memory
  static constexpr int stageBytes = R::stageBytes;

  /// Whether the pass is known to be of another model.
  __device__ __forceinline__ bool guessedWrong() const {
    return abi::kModels > 1 && planned && ring.shared->model != model;
  }
  /// Whether the pass is known to have many rows, of this model.
  __device__ __forceinline__ bool wide() const {
    return planned && ring.shared->numRows > (u32)kTileRows && !guessedWrong();
  }
  /// Whether the pass is known to lend stages that were filled before that was known.
  __device__ __forceinline__ bool startsAgain() const {
    return R::tall && planned && R::startsAgain((int)ring.shared->numRows, lentBefore) && !guessedWrong();
  }
  /// Whether the pass is known to be wide, of any model: nothing of it comes through this ring.
  __device__ __forceinline__ bool byRuns() const { return R::whole && planned && ring.shared->numRows == 0; }

  /// Whether the producer must end a wait. Until the pass is planned, it may run whole.
  __device__ __forceinline__ bool leavesNow(u32 spin) const {
    return any(leaves(*ring.shared, R::whole && !planned ? kUnplanned : spin));
  }
  /// Waits for a phase of a barrier. False when the kernel ends. The lanes vote, so that no lane leaves while another
  /// goes on. Out of line and with one call, so that the producer's own loop stays short. Bit 1 of `phase`: the pass is
  /// not planned.
  __device__ __noinline__ static bool await(const RingShared &shared, u64 *bar, u32 phase) {
    assumeShared(&shared);
    for (u32 spin = 1; !all(barrierTest(bar, phase & 1)); ++spin)
      if (any(leaves(shared, R::whole && phase > 1 ? kUnplanned : spin)))
        return false;
    return true;
  }
  __device__ __forceinline__ bool await(u64 *bar, u32 parity) const {
    return await(*ring.shared, bar, R::whole && !planned ? parity | 2 : parity);
  }

  /// Limits of awaitFlight: `least` while the CTA waits at an edge, `most` otherwise. The stages that a pass does not
  /// lend are never fewer than `shortest`, but where it lends TallLent. Then none starts beside more than `soon`
  /// others: so each has a stage of its own.
  static constexpr int shortest = R::stages - R::wideLent, most = R::flight < shortest ? R::flight : shortest,
                       least = (most + 1) / 2;
  __device__ __forceinline__ bool mayBeMore() const {
    return underWay < most && (R::stages - R::mostLent >= most || underWay <= soon);
  }
  /// Waits until so few copies are under way that one more may start. False when the kernel ends. It polls instead of
  /// waiting at a barrier, because consumers may catch up meanwhile, which raises the limit.
  __device__ __forceinline__ bool awaitFlight() {
    const int unread = ring.before(soon);
    for (u32 spin = 1; underWay >= least; ++spin) {
      const bool landed = all(barrierPeek(&ring.shared->full[oldest], ring.lastParity(oldest)));
      const bool read = mayBeMore() && all(barrierPeek(&ring.shared->empty[unread], ring.lastParity(unread)));
      if (landed) {
        --underWay;
        oldest = ring.after(oldest);
      } else if (read) {
        break;
      } else if (spin % 16 == 0 && leavesNow(spin)) {
        return false;
      }
    }
    return true;
  }
  /// Waits until the next stage is empty. False when the kernel ends. The stages of a pass become empty in their order,
  /// and those of the pass before are empty. So when a stage farther on is empty, all stages up to it are.
  __device__ __forceinline__ bool awaitRoom() {
    if (!planned && ring.stage < lentBefore && !awaitPlan()) // it may be lent
      return false;
    constexpr int farther = 3;
    const int last = ring.stage + farther;
    room = 1;
    if (planned && last < R::stages && all(barrierPeek(&ring.shared->empty[last], ring.lastParity(last))))
      room += farther;
    else if (u64 *const next = &ring.shared->empty[ring.stage];
             !all(barrierPeek(next, ring.lastParity(ring.stage))) && !await(next, ring.lastParity(ring.stage)))
      return false;
    // The consumers' arrivals order their loads before what this thread does. They do not order its copies, which
    // belong to another proxy: without this fence some copies came too early.
    fenceAsyncShared();
    return true;
  }

  /// Opens the next stage for copies of `bytes` bytes in all, when it is empty. False when the kernel ends.
  __device__ __forceinline__ bool open(int bytes) {
    if (!enter())
      return false;
    expect(bytes);
    return true;
  }
  /// The same in two steps. Between them the producer itself may write to the stage.
  __device__ __forceinline__ bool enter() {
    if (underWay >= least && !awaitFlight())
      return false;
    if (room == 0 && !awaitRoom())
      return false;
    --room;
    return true;
  }
  __device__ __forceinline__ void expect(int bytes) {
    if constexpr (lanes == 1)
      barrierArriveExpect(&ring.shared->full[ring.stage], bytes);
  }
  __device__ __forceinline__ char *target() const { return ring.data + ring.stage * R::stageBytes; }
  /// Copies into the open stage.
  __device__ __forceinline__ void copy(char *target, const char *source, int bytes) {
    if constexpr (lanes == 1) {
      copyBulk(target, source, bytes, &ring.shared->full[ring.stage]);
    } else {
      for (int i = laneId() * 16; i < bytes; i += 512)
        copyAsync(target + i, source + i);
    }
  }
  __device__ __forceinline__ void close() {
    if constexpr (lanes > 1)
      copyAsyncArrive(&ring.shared->full[ring.stage]);
    ++underWay;
    ring.advance();
  }
  /// Copies one chunk into the next stage. False when the kernel ends.
  __device__ __forceinline__ bool push(const char *source, int bytes) {
    if (!open(bytes))
      return false;
    copy(target(), source, bytes);
    close();
    return true;
  }

  /// Brings `bytes` bytes that the consumers will soon read into the L2 cache. One CTA in 8 does that.
  __device__ __forceinline__ void announce(const void *weights, int bytes) {
    if (blockIdx.x % 8 != 0)
      return;
    bringNear(static_cast<const char *>(weights), bytes);
  }

  /// Waits until this pass is planned. False when the kernel ends. Also false, once, when the pass turns out to have
  /// many rows, for its chunks come in another order (streamSegment); when it turns out to be wide, or another
  /// model's; and when it starts again.
  __device__ __forceinline__ bool awaitPlan() {
    if (planned)
      return true;
    if (fewBefore && !all(barrierPeek(&ring.shared->planned, plannedParity)))
      bringAhead(ring.shared->begin[abi::kModels > 1 ? model : 0], (ring.stage - R::lent + R::stages) % R::stages);
    if (!await(&ring.shared->planned, plannedParity))
      return false;
    plannedParity ^= 1;
    planned = true;
    fenceAsync(); // keys and values that the passes before stored are copied from here on
    windows = 0;
    pagesSlot = -1;
    if (R::wideLent > 0 && ring.shared->numRows > kOneRow) {
      ring.lend((int)ring.shared->lent);
      oldest = max(oldest, ring.first());
      soon = twoThirds(R::stages - ring.first());
    }
    return !wide() && !byRuns() && !guessedWrong() && !startsAgain();
  }

  /// Brings page numbers of a slot into shared memory. The pass's unit number `unit` needs those of pages
  /// [first, first + count). Its present round needs [roundFirst, roundFirst + roundCount) of these. Returns where the
  /// number of page 0 would stand.
  template <class Pool>
  __device__ __forceinline__ const int *pagesOf(int slot, int unit, int first, int count, int roundFirst,
                                                int roundCount) {
    if (unit < kPageWindows && count <= kPageWindow) {
      int *const window = ring.shared->pages + unit * kPageWindow;
      if (!(windows >> unit & 1))
        lookUp<Pool>(window, slot, first, count);
      windows |= 1u << unit;
      return window - first;
    }
    int *const window = ring.shared->pages + kPageWindows * kPageWindow;
    if (slot != pagesSlot || roundFirst != pagesFrom || roundCount != pagesCount)
      lookUp<Pool>(window, slot, roundFirst, roundCount);
    pagesSlot = slot;
    pagesFrom = roundFirst;
    pagesCount = roundCount;
    return window - roundFirst;
  }
  template <class Pool> __device__ __noinline__ void lookUp(int *target, int slot, int first, int count) const {
    const int *table = pageTableOf(modelOf<Pool>(paramsOfCta()), slot) + first;
    constexpr int batch = lanes == 1 ? 16 : 2; // 16 lanes of 32 find most of them at once
    if constexpr (lanes > 1)
      __syncwarp(); // lanes may still read the page numbers that stand there
    for (int base = laneId(); base < count; base += batch * lanes) {
      u32 pages[batch];
#pragma unroll
      for (int i = 0; i < batch; ++i)
        pages[i] = loadWord(table + min(base + i * lanes, count - 1));
#pragma unroll
      for (int i = 0; i < batch; ++i)
        if (base + i * lanes < count)
          target[base + i * lanes] = (int)pages[i];
    }
    if constexpr (lanes > 1)
      __syncwarp();
  }

  /// Whether the pass is known to begin with the last layer.
  __device__ __forceinline__ bool beginsLate() const {
    return R::whole && planned && (ring.shared->runHead & kLastLayer);
  }
  /// Whether the pass is the one after a wide one: then nothing of it comes before its plan is known.
  __device__ __forceinline__ bool followsWhole() const { return R::whole && lentBefore == R::stages; }

  /// Whether the head's weights follow. Called after the weights of a model's body.
  __device__ __forceinline__ bool headFollows() { return ring.shared->runHead != 0; }

  /// Goes on to the next pass. False when the resident loop ended. A CTA without a chunk of its own learns that only
  /// here.
  __device__ __forceinline__ bool nextPass() {
    if (planned) {
      fewBefore = !wide() && !byRuns(), lentBefore = R::beginsAt((int)ring.shared->lent);
      if constexpr (abi::kModels > 1)
        model = ring.shared->next;
    }
    ring.beginPass(lentBefore);
    soon = twoThirds(R::stages);
    room = underWay = 0; // more copies may be under way, but none of them for long
    oldest = ring.stage;
    if constexpr (lanes > 1)
      __syncwarp();
    if (planned && laneId() == 0)
      storeFlag(&ring.shared->plansRead, ++plansRead);
    planned = false;
    return !leavesNow(0);
  }

  /// Waits until all copies have landed. A CTA must not give back its shared memory while a copy to it is under way.
  __device__ void drain() {
    for (int i = 0; i < R::stages; ++i)
      while (!barrierTest(&ring.shared->full[i], ring.lastParity(i))) {
      }
  }
};

} // namespace megalith::device
