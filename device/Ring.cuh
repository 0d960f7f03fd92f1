//===- Ring.cuh - the weight stream through shared memory -----------------===//
//
// One producer warp copies chunks of packed weights into a ring of stages;
// eight consumer warps drain them in the same static order. The producer never
// waits for an activation: only for an empty stage, and once in a pass for its plan.
//===----------------------------------------------------------------------===//
#pragma once

namespace megalith::device {

/// Units of attention whose pages are looked up once in a pass, and pages of each, at most.
constexpr int kPageWindows = 4, kPageWindow = 128;

/// Windows of activations in shared memory, at most (Windows.cuh).
constexpr int kMostWindows = 4;

/// Passes of more than one row tile so far, this one among them; and those with logits.
struct WideCounts {
  u32 passes, heads;
};
/// Of a pass of more than one row tile, what the window warp needs: as in PassShared, which the end of a kernel that
/// stops may write while that warp has not seen it.
struct WidePlan {
  int numRows;
  WideCounts wide;
  int wantLogits;
};

/// Words that consumers and producer of one CTA share.
struct RingShared {
  StreamBegin begin;
  u64 full[kMostStages], empty[kMostStages];
  u64 planned; ///< completes once per pass, when runHead, numRows and the pass table are valid
  u64 wideBegun,
      wideWindows; ///< the same of passes of more than one row tile, and when the window warp has done its part of it
  u64 opened;      ///< completes once per product of such a pass that the CTA has units of: scratch is free for windows
  u64 windowFull[kMostWindows], windowEmpty[kMostWindows];
  u32 runHead;            ///< this pass needs logits
  u32 numRows, lent;      ///< of this pass; stages that it lends if it has several rows
  u32 leave;              ///< flag: the resident loop ended or stopped
  u32 stopped;            ///< flag: GridEdges::stoppedHere
  u32 passes, widePasses; ///< planned so far; of these, of more than one row tile
  WidePlan wide;
  const u32 *stopFlag; ///< of the grid: every poll loop looks at it now and then
  u32 plansRead;       ///< flag: of these, that the producer needs no more
  /// The producer's page numbers: of the first units of attention, which come again in each layer,
  /// and of one round of a unit that has no room there.
  int pages[kPageWindows * kPageWindow + 256];
};

/// `Stages` slots of `StageBytes` each. At most `Flight` copies are under way at a time: a
/// deep queue at the memory delays every word that a CTA waits for. Half as many while two thirds
/// of the ring lie unread, for then the CTA waits at an edge. (Where a pass begins in another stage than
/// the last one ended, a few more may start.)
///
/// A pass of several rows needs more room for its activations than one row does: the first `Lent`
/// stages are that room, and the ring is the others. A pass begins behind them, and the producer
/// comes to them only when it knows that the pass has one row. One of more than `Many` rows takes `WideLent`, as does
/// one with attention in wide tiles, and the pass behind it begins behind these, for then they may still be in use.
template <int Stages, int StageBytes, int Flight, int Lent, int WideLent = Lent, int Many = kTileRows> struct Ring {
  static_assert(Stages <= kMostStages && Stages - WideLent >= 2 && WideLent >= Lent);
  static constexpr int stages = Stages, stageBytes = StageBytes, flight = Flight, lent = Lent, wideLent = WideLent,
                       many = Many;
  char *data;
  RingShared *shared;
  int stage = 0; ///< of the next chunk
  u32 state =
      0; ///< one register: bit s is the parity of the phases of stage s for the next chunk there; from 16 on first()

  /// Stages before it are lent.
  __device__ __forceinline__ int first() const { return (int)(state >> 16); }
  __device__ __forceinline__ u32 parity(int of) const { return state >> of & 1; }
  /// The phases of the last chunk in a stage. Of none before the first one: these count as complete.
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
  /// The place of the first chunk of a pass.
  __device__ __forceinline__ void beginPass(int lentBefore) {
    state &= 0xffff;
    stage = lentBefore;
  }
  /// Stages that a pass takes, or may take.
  __device__ __forceinline__ static int lentTo(int rows, bool wideTiles) {
    return rows > Many || wideTiles ? WideLent : Lent;
  }
  __device__ __forceinline__ int behind(int of) const { return of + 1 == Stages ? first() : of + 1; }
  /// To the end of the pass.
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
    barrierInit(&shared->opened, kConsumerWarps);
    for (int i = 0; i < kMostWindows; ++i) {
#if __CUDA_ARCH__ >= 900
      barrierInit(&shared->windowFull[i], 1);
#else
      barrierInit(&shared->windowFull[i], 32);
#endif
      barrierInit(&shared->windowEmpty[i], kConsumerWarps);
    }
    shared->runHead = shared->numRows = shared->leave = shared->stopped = 0;
    shared->passes = shared->plansRead = shared->widePasses = 0;
    shared->stopFlag = p.sync + kStopFlag;
    barriersReady();
  }
}

/// Whether a wait inside the CTA is in vain: the kernel stops.
__device__ __forceinline__ bool stopSeen(const RingShared &s, u32 spin) {
  return loadFlag(&s.stopped) || (spin % 1024 == 0 && loadRelaxed(s.stopFlag));
}

/// The producer's look, in a wait that lasts.
__device__ __noinline__ bool leaves(const RingShared &s, u32 spin) { return loadFlag(&s.leave) || stopSeen(s, spin); }

/// Waits for a stage. Out of line: many places ask, and mostly it is there.
__device__ __noinline__ void awaitFull(RingShared &s, int stage, u32 parity) {
  assumeShared(&s);
  for (u32 spin = 1; !barrierTest(&s.full[stage], parity); ++spin)
    if (stopSeen(s, spin)) { // the producer has left; the next edge returns
      noteStop();
      return;
    }
}

/// Consumer thread 0: waits until producer and window warp read nothing more of the last pass's plan.
__device__ __forceinline__ void awaitPlanRead(RingShared &s) {
  for (u32 spin = 1; loadFlag(&s.plansRead) != s.passes; ++spin)
    if (stopSeen(s, spin))
      return;
  if (s.numRows > (u32)kTileRows) // else it is done with those before
    for (u32 spin = 1; !barrierTest(&s.wideWindows, (s.widePasses - 1) & 1); ++spin)
      if (stopSeen(s, spin))
        return;
}

/// One consumer thread, once per pass, when its table is in shared memory: tells the producer, and
/// how many rows there are, and whether the head follows.
template <class Pass> __device__ __forceinline__ void announcePlan(RingShared &s, const Pass &pass) {
  s.passes = s.passes + 1;
  s.numRows = pass.numRows;
  s.lent = pass.products.lent;
  s.runHead = pass.wantLogits;
  barrierArrive(&s.planned);
  if (pass.numRows > kTileRows) {
    s.widePasses = s.widePasses + 1;
    s.wide = {pass.numRows, pass.wide, pass.wantLogits};
    barrierArrive(&s.wideBegun);
  }
}

/// The producer warp's side. All its lanes call it together.
template <class R> struct Producer {
  static constexpr int lanes = kProducerLanes;
  __device__ __forceinline__ static bool all(bool mine) { return lanes == 1 ? mine : __all_sync(~0u, mine); }
  __device__ __forceinline__ static bool any(bool mine) { return lanes == 1 ? mine : __any_sync(~0u, mine); }

  R ring;
  __device__ static constexpr int twoThirds(int stages) { return (2 * stages + 2) / 3; }
  int soon = twoThirds(R::stages); ///< of the ring that the pass has
  int underWay = 0;                ///< copies, at most
  int oldest = 0;                  ///< of these: its stage
  int room = 0;                    ///< empty stages from the next one on, at least
  u32 plannedParity = 0;
  bool planned = false;     ///< the pass that is being streamed
  bool fewBefore = true;    ///< the pass before was of one row tile: so may this one be
  int lentBefore = R::lent; ///< by the pass before, at least
  u32 plansRead = 0;
  u32 windows = 0;                                   ///< bits: the pages of these units are at hand
  int pagesSlot = -1, pagesFrom = 0, pagesCount = 0; ///< the round whose pages are at hand
  static constexpr int stageBytes = R::stageBytes;

  /// Whether it is known that the pass has more than one row tile.
  __device__ __forceinline__ bool wide() const { return planned && ring.shared->numRows > (u32)kTileRows; }

  /// Waits for the phase of a barrier. False when the kernel leaves. Votes: no lane may leave
  /// while another goes on. Out of line, for the producer's own loop is to be short.
  __device__ __noinline__ static bool await(const RingShared &shared, u64 *bar, u32 parity) {
    assumeShared(&shared);
    for (u32 spin = 1; !all(barrierTest(bar, parity)); ++spin)
      if (any(leaves(shared, spin)))
        return false;
    return true;
  }

  /// Limits of awaitFlight: while the CTA waits at an edge, and otherwise. The rest of the ring
  /// is never shorter.
  static constexpr int shortest = R::stages - R::wideLent, most = R::flight < shortest ? R::flight : shortest,
                       least = (most + 1) / 2;
  /// Waits until so few copies are under way that one more may start. Looks, and does not wait
  /// at a barrier: consumers may catch up meanwhile. False when the kernel leaves.
  __device__ __forceinline__ bool awaitFlight() {
    const int unread = ring.before(soon);
    for (u32 spin = 1; underWay >= least; ++spin) {
      const bool landed = all(barrierPeek(&ring.shared->full[oldest], ring.lastParity(oldest)));
      const bool read = underWay < most && all(barrierPeek(&ring.shared->empty[unread], ring.lastParity(unread)));
      if (landed) {
        --underWay;
        oldest = ring.behind(oldest);
      } else if (read) {
        break;
      } else if (spin % 16 == 0 && any(leaves(*ring.shared, spin))) {
        return false;
      }
    }
    return true;
  }
  /// Waits until the next stage is empty. In a pass they become so in their order, and those of the
  /// pass before are: one that lies farther on stands for all up to it.
  __device__ __forceinline__ bool awaitRoom() {
    if (!planned && ring.stage < lentBefore && !awaitPlan()) // it may be lent
      return false;
    constexpr int farther = 3;
    const int last = ring.stage + farther;
    room = 1;
    if (planned && last < R::stages && all(barrierPeek(&ring.shared->empty[last], ring.lastParity(last))))
      room += farther;
    else if (u64 *const next = &ring.shared->empty[ring.stage]; !all(barrierPeek(next, ring.lastParity(ring.stage))) &&
                                                                !await(*ring.shared, next, ring.lastParity(ring.stage)))
      return false;
    // The consumers' arrivals order their loads before what this thread does, but copies are of another proxy: without
    // this fence some came too early.
    fenceAsyncShared();
    return true;
  }

  /// Waits for the next stage, for copies of `bytes` together. False when the kernel leaves.
  __device__ __forceinline__ bool open(int bytes) {
    if (underWay >= least && !awaitFlight())
      return false;
    if (room == 0 && !awaitRoom())
      return false;
    --room;
    if constexpr (lanes == 1)
      barrierArriveExpect(&ring.shared->full[ring.stage], bytes);
    return true;
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
  /// Copies one chunk into the next stage. False when the kernel leaves.
  __device__ __forceinline__ bool push(const char *source, int bytes) {
    if (!open(bytes))
      return false;
    copy(target(), source, bytes);
    close();
    return true;
  }

  /// The consumers will soon read `bytes` bytes there: a few CTAs bring them into the L2 cache.
  __device__ __forceinline__ void announce(const void *weights, int bytes) {
    if (blockIdx.x % 8 != 0)
      return;
    bringNear(static_cast<const char *>(weights), bytes);
  }

  /// Waits until this pass is planned. False when the kernel leaves; and once when the pass turns out to be one of more
  /// than one row tile, whose chunks come in another order (streamSegment).
  __device__ __forceinline__ bool awaitPlan() {
    if (planned)
      return true;
    if (fewBefore && !all(barrierPeek(&ring.shared->planned, plannedParity)))
      bringAhead(ring.shared->begin, (ring.stage - R::lent + R::stages) % R::stages);
    if (!await(*ring.shared, &ring.shared->planned, plannedParity))
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
    return !wide();
  }

  /// Page numbers of a slot, those of pages [first, first + count) of the pass's unit number
  /// `unit`, of which a round needs [roundFirst, roundFirst + roundCount). Where that of page 0
  /// would stand.
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
      __syncwarp(); // the numbers before may still be read
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

  /// Behind a model's body. True: the head's weights follow.
  __device__ __forceinline__ bool headFollows() { return ring.shared->runHead != 0; }

  /// The next pass. False when the resident loop ended: a CTA without any chunk of its own learns
  /// it here only.
  __device__ __forceinline__ bool nextPass() {
    if (planned)
      fewBefore = !wide(), lentBefore = (int)ring.shared->lent;
    ring.beginPass(lentBefore);
    soon = twoThirds(R::stages);
    room = underWay = 0; // more may be: none of them long
    oldest = ring.stage;
    if constexpr (lanes > 1)
      __syncwarp();
    if (planned && laneId() == 0)
      storeFlag(&ring.shared->plansRead, ++plansRead);
    planned = false;
    return !any(leaves(*ring.shared, 0));
  }

  /// Shared memory must not be given back while a copy is on its way to it.
  __device__ void drain() {
    for (int i = 0; i < R::stages; ++i)
      while (!barrierTest(&ring.shared->full[i], ring.lastParity(i))) {
      }
  }
};

} // namespace megalith::device
