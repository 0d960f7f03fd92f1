//===- Selection.cuh - the logits that queries are about, found in rounds -===//
//
// The head keeps the logits of a row with queries (Reducers.cuh). When all are there, each CTA looks at a slice of
// them, adds up what it finds in a table that all share, and waits for the others: a selection round. Sums are of
// integers, so their order does not matter, and all CTAs read the same table: all know what the next round is for.
//===----------------------------------------------------------------------===//
#pragma once

#include "megalith/EditedRows.cuh"

namespace megalith::device {

/// Queries that are settled together, and the numbers of a selection round of one.
constexpr int kQueriesAtOnce = shape::kQueriesAtOnce, kSelectionBins = shape::kSelectionBins;

/// What the next selection round of a query finds. In this order.
enum class SelectionGoal : int {
  Guess, ///< whether the drawn token is in S: what stands before it tells so
  Count, ///< how many logits lie how far from the greatest one: where top_k ends
  Mass,  ///< how much probability they have: where top_p ends
  Ties,  ///< where, among equal logits, it ends
  Sums,  ///< what is asked for: S is known
  Done   ///< nothing: the greatest logit says all
};

/// A query, in shared memory of each CTA. All CTAs know the same, but for `lastTie`. A distance is that of a logit from
/// the row's greatest one, in numbers of f32 between the two, or of bf16.
struct QueryState {
  abi::RowQuery query;
  u64 best;    ///< key of the greatest logit; where a guess was right, that of its logit
  u64 guess;   ///< key of the drawn token's logit; 0: there is none
  float most;  ///< its z / T
  float least; ///< that min_p wants
  SelectionGoal goal;
  u32 limit;    ///< logits that are no farther away are in S;
  u32 tie;      ///< and of those that are so far away,
  int lastTie;  ///< tokens of this CTA's slice up to this one
  u32 low;      ///< the round is about distances from `low` on,
  int widthLog; ///< at so many of them, as a power of two. kAll: at all
  int ties;     ///< equal logits at the border that belong to S
  u64 before;   ///< weight of what is nearer
  u64 target;   ///< S ends where the weight reaches it

  static constexpr int kAll = -1;
  static constexpr u32 kNoTie = ~0u;
};

/// Finds which tokens the queries are about, their sets S: all CTAs together.
template <class Kept> struct Selection {
  GridEdges &grid;
  const Kept kept;
  QueryState *const queries; ///< in shared memory, with the next ones
  u32 *const bins;           ///< [2][kSelectionBins]: low halves, high halves
  u64 *const keys;           ///< [kConsumerWarps]
  u64 *const tables;         ///< [3][kQueriesAtOnce][kSelectionBins]
  u64 *const lists;          ///< [kQueriesAtOnce][CTAs][limits::reduced]
  const EditedRows<Kept> edited;
  const int readRows; ///< of a pass
  int edge, count;

  /// Numbers that are equal where bf16 are differ below this bit. A distance of so many numbers of f32 counts as one
  /// at first.
  static constexpr int kShift = Kept::rounded ? 16 : 0;
  /// The first round has so many bins of one unit, and then bins of so many units.
  static constexpr int kFine = 192, kCoarseLog = 10;
  static_assert(kFine + ((kSelectionBins - kFine) << kCoarseLog) >= 1 << 16, "the last bin ends after the last number");

  /// Edited logits are numbers of f32.
  __device__ __forceinline__ static bool isEdited(const QueryState &s) {
    return s.query.edits != abi::kNone || s.query.hand != abi::kNone;
  }
  __device__ __forceinline__ static int shiftOf(const QueryState &s) { return isEdited(s) ? 0 : kShift; }
  __device__ __forceinline__ static int unitLogOf(const QueryState &s) { return 16 - shiftOf(s); }
  __device__ __forceinline__ static u32 distanceOf(const QueryState &s, float logit) {
    const int shift = shiftOf(s);
    const u32 best = (u32)(s.best >> 32) >> shift, own = Best::ordered(logit) >> shift;
    return own > best ? 0 : best - own; // of a kept row the best is what the request says
  }
  __device__ __forceinline__ static float logitAt(const QueryState &s, u32 distance) {
    const int shift = shiftOf(s);
    const u32 number = (((u32)(s.best >> 32) >> shift) - distance) << shift;
    return Best::valueOf(number >> 31 ? number : number | ((1u << shift) - 1)); // negative numbers stand inverted
  }
  __device__ __forceinline__ static u64 massOf(const QueryState &s, float logit) {
    return sampling::massOf(sampling::weight(sampling::scaled(logit, s.query.temperature), s.most));
  }

  // --- this CTA's slice of a row
  __device__ __forceinline__ static int sliceColumns() { return megalith::device::sliceColumns<Kept>(); }
  /// Columns `column`, which is even, and the next one, of the query's row.
  __device__ __forceinline__ Floats<2> pairOf(const QueryState &s, int column) const {
    return isEdited(s) ? edited.loadPair((int)(&s - queries), column) : kept.loadPair(s.query.line, column);
  }
  /// Calls fn(token, logit) for the logits of the slice that take part, each by one thread.
  template <class Fn> __device__ __forceinline__ void everyLogit(const QueryState &s, Fn fn) const {
    const int vocab = Kept::vocabOf(s.query.line);
    const int begin = (int)blockIdx.x * sliceColumns(), end = min(vocab, begin + sliceColumns());
    const bool holes = isEdited(s);
#pragma unroll 1
    for (int c = begin + (int)threadIdx.x * 2; c < end; c += kConsumerThreads * 2) {
      const Floats<2> logits = pairOf(s, c);
#pragma unroll
      for (int i = 0; i < 2; ++i)
        if ((Kept::even || c + i < vocab) && !(holes && isRefused(logits.v[i])))
          fn(c + i, logits.v[i]);
    }
  }

  /// Edits the rows of queries that want it. All.
  template <class Columns> __device__ __forceinline__ void edit(const Columns &columns) const {
    const int parts = warpsOfEdited(count), together = kConsumerWarps / parts;
    u64 *const ofWarps = reinterpret_cast<u64 *>(bins); // [2][kConsumerWarps]
#pragma unroll 1
    for (int first = 0; first < count; first += together) {
      const int i = first + warpId() / parts;
      EditedBests bests;
      if (i < count && isEdited(queries[i])) {
        const abi::RowQuery &query = queries[i].query;
        const RowToEdit row = {query.line,
                               query.row < 0 ? -1 : query.row / readRows,
                               query.edits,
                               query.text,
                               query.hand,
                               query.early != 0,
                               query.guessed && query.temperature > 0.0f,
                               query.temperature,
                               {query.key[0], query.key[1]},
                               query.position,
                               query.purpose};
        bests = editRow(*grid.params, kept, columns, row, warpId() % parts, parts, edited.row(i));
      }
      if (laneId() == 0) {
        ofWarps[warpId()] = bests.best.key;
        ofWarps[kConsumerWarps + warpId()] = bests.drawn.key;
      }
      consumerSync();
      if (const int mine = first + (int)threadIdx.x; (int)threadIdx.x < together && mine < count) {
        Best ofCta, drawnOfCta;
        for (int w = 0; w < parts; ++w) {
          ofCta.take(ofWarps[threadIdx.x * parts + w]);
          drawnOfCta.take(ofWarps[kConsumerWarps + threadIdx.x * parts + w]);
        }
        edited.firsts(mine)[blockIdx.x] = {(u32)ofCta.key, (u32)(ofCta.key >> 32), (u32)drawnOfCta.key,
                                           (u32)(drawnOfCta.key >> 32)};
      }
      consumerSync(); // they have been read
    }
  }
  /// What all CTAs found of an edited row.
  __device__ __forceinline__ void firstsOf(int i, Best &best, Best &drawn) const {
    constexpr int each = 5;
    const Words4 *const of = edited.firsts(i);
#pragma unroll 1
    for (int cta = laneId(); cta < (int)gridDim.x; cta += each * 32) {
      Words4 words[each] = {};
#pragma unroll
      for (int k = 0; k < each; ++k)
        if (cta + k * 32 < (int)gridDim.x)
          words[k] = loadWords(of + cta + k * 32);
#pragma unroll
      for (int k = 0; k < each; ++k) {
        best.take((u64)words[k].y << 32 | words[k].x);
        drawn.take((u64)words[k].w << 32 | words[k].z);
      }
    }
    best.takeLanes();
    drawn.takeLanes();
  }

  // --- tables
  /// Places in the table of the last round, and of one for SelectionGoal::Guess.
  enum Sum : int { kTotal, kDepths, kOfToken };
  __device__ __forceinline__ u64 *tableOf(int round, int i) const {
    return tables + ((round % 3) * kQueriesAtOnce + i) * kSelectionBins;
  }
  /// The CTAs share the work.
  __device__ __forceinline__ void clearTable(int round) const {
    Words4 *const words = reinterpret_cast<Words4 *>(tableOf(round, 0));
    for (int i = (int)(blockIdx.x * kConsumerThreads + threadIdx.x); i < count * kSelectionBins / 2;
         i += (int)gridDim.x * kConsumerThreads)
      words[i] = {0, 0, 0, 0};
  }
  __device__ __forceinline__ static void loadBins(const u64 *table, u64 (&mine)[kSelectionBins / 32]) {
#pragma unroll
    for (int i = 0; i < kSelectionBins / 32; i += 2) {
      const Words4 w = loadWords(table + laneId() * (kSelectionBins / 32) + i);
      mine[i] = (u64)w.y << 32 | w.x;
      mine[i + 1] = (u64)w.w << 32 | w.z;
    }
  }
  __device__ __forceinline__ void add(int bin, u64 weight) const {
    const u32 low = (u32)weight, high = (u32)(weight >> 32) + (atomicAdd(bins + bin, low) + low < low ? 1u : 0u);
    if (high)
      atomicAdd(bins + kSelectionBins + bin, high);
  }

  /// Adds the lanes' values to a number of the table.
  __device__ __forceinline__ static void addUp(u64 *to, u64 value) {
    __syncwarp();
#pragma unroll
    for (int distance = 16; distance; distance >>= 1)
      value += __shfl_xor_sync(~0u, value, distance);
    if (laneId() == 0 && value)
      atomicAdd(to, value);
  }
  __device__ __forceinline__ static u64 loadSum(const u64 *table, Sum at) {
    return (u64)loadWord(reinterpret_cast<const u32 *>(table + at) + 1) << 32 |
           loadWord(reinterpret_cast<const u32 *>(table + at));
  }
  /// The bin of a distance; -1: the round is not about it.
  __device__ __forceinline__ static int binOf(const QueryState &s, u32 distance) {
    if (s.widthLog == QueryState::kAll) {
      const int units = (int)(distance >> unitLogOf(s));
      return units < kFine ? units : kFine + ((units - kFine) >> kCoarseLog);
    }
    const u32 from = distance - s.low;
    return from >> s.widthLog ? -1 : (int)(from >> max(0, s.widthLog - kBinsLog));
  }
  static constexpr int kBinsLog = 8;
  static_assert(1 << kBinsLog == kSelectionBins);
  /// Goes on with the distances of a bin.
  __device__ __forceinline__ static void narrow(QueryState &s, int bin) {
    if (s.widthLog == QueryState::kAll) {
      const int units = bin < kFine ? bin : kFine + ((bin - kFine) << kCoarseLog);
      s.low = (u32)units << unitLogOf(s);
      s.widthLog = unitLogOf(s) + (bin < kFine ? 0 : kCoarseLog);
    } else {
      const int log = max(0, s.widthLog - kBinsLog);
      s.low += (u32)bin << log;
      s.widthLog = log;
    }
  }
  __device__ __forceinline__ static void setGoal(QueryState &s, SelectionGoal goal) {
    s.goal = goal;
    s.low = 0;
    s.widthLog = QueryState::kAll;
    s.before = 0;
  }

  /// One warp, before the logits are there.
  __device__ __forceinline__ void load(int i, const abi::RowQuery *from) const {
    constexpr int words = sizeof(abi::RowQuery) / 16;
    if (laneId() < words)
      reinterpret_cast<Words4 *>(&queries[i].query)[laneId()] =
          loadWords(reinterpret_cast<const char *>(from) + laneId() * 16);
    __syncwarp();
  }
  /// The best logit of a row, and the best drawn one. All entries are there.
  __device__ __forceinline__ void bestsOf(int row, const Words4 *bests, const Words4 *drawn, Best &best,
                                          Best &guess) const {
    constexpr int each = 4;
    const long long first = (long long)row * gridDim.x;
#pragma unroll 1
    for (int cta = laneId(); cta < (int)gridDim.x; cta += each * 32) {
      Words4 mine[each] = {}, other[each] = {};
#pragma unroll
      for (int k = 0; k < each; ++k)
        if (cta + k * 32 < (int)gridDim.x) {
          mine[k] = loadFlagged(bests + first + cta + k * 32);
          if (drawn)
            other[k] = loadFlagged(drawn + first + cta + k * 32);
        }
#pragma unroll
      for (int k = 0; k < each; ++k) {
        best.take((u64)mine[k].y << 32 | mine[k].x);
        guess.take((u64)other[k].y << 32 | other[k].x);
      }
    }
    best.takeLanes();
    guess.takeLanes();
  }
  __device__ __forceinline__ float logitOf(const QueryState &s, int token) const {
    const Floats<2> pair = pairOf(s, token & ~1);
    return pair.v[token & 1];
  }
  /// The same warp, when they are.
  __device__ __forceinline__ void begin(int i, const Words4 *bests, const Words4 *drawn) const {
    QueryState &s = queries[i];
    // Of lists that a temperature of 0 orders, the best token is the first one.
    const bool known = isGreedy(s) && (s.query.count == 1 || !isList(s.query)),
               guessed = s.query.guessed && !isGreedy(s);
    const bool ofPass = s.query.row >= 0;
    Best best, guess;
    if (isEdited(s))
      firstsOf(i, best, guess);
    else if (ofPass)
      bestsOf(s.query.row, bests, guessed ? drawn : nullptr, best, guess);
    else
      best.take(logitOf(s, -1 - s.query.row), -1 - s.query.row);
    float logit = 0.0f;
    const bool dead = best.key == 0, hasGuess = guessed && !dead && best.key != Best::kNan;
    if (hasGuess)
      logit = logitOf(s, guess.index());
    if (laneId() == 0) {
      Best one;
      if (hasGuess)
        one.take(logit, guess.index());
      s.best = best.key;
      s.guess = one.key;
      s.most = sampling::scaled(Best::valueOf((u32)(best.key >> 32)), s.query.temperature);
      s.least = s.query.minP > 0.0f ? sampling::leastOfMinP(s.query.minP, s.most) : noneOf<true>();
      s.limit = ~0u;
      s.tie = QueryState::kNoTie;
      s.lastTie = -1;
      setGoal(s, dead || best.key == Best::kNan || known ? SelectionGoal::Done
                 : isGreedy(s)                           ? SelectionGoal::Sums
                                                         : firstOf(s));
      s.target = (u64)s.query.topK;
      takeGuess(s);
      // Of one limit alone, where it ends does not matter if what stands before the guess is less.
      if (s.guess && (s.goal == SelectionGoal::Mass || (s.goal == SelectionGoal::Count && s.query.topP >= 1.0f)) &&
          sampling::scaled(logit, s.query.temperature) >= s.least)
        s.goal = SelectionGoal::Guess;
    }
    __syncwarp();
  }
  /// Whether the guess is in S, as far as S is known: nearer logits than `s.low` are. Then the query is done.
  __device__ __forceinline__ static void takeGuess(QueryState &s) {
    if (!s.guess || s.goal == SelectionGoal::Done || (s.goal == SelectionGoal::Count && s.query.topP < 1.0f))
      return;
    const float logit = Best::valueOf((u32)(s.guess >> 32));
    const u32 distance = distanceOf(s, logit);
    const bool near = s.goal == SelectionGoal::Sums ? distance <= s.limit : distance < s.low;
    if (!near || sampling::scaled(logit, s.query.temperature) < s.least)
      return;
    s.goal = SelectionGoal::Done;
    s.best = s.guess;
  }
  __device__ __forceinline__ static SelectionGoal firstOf(const QueryState &s) {
    return s.query.topK > 0 && s.query.topK < Kept::vocabOf(s.query.line) ? SelectionGoal::Count : afterCount(s);
  }
  __device__ __forceinline__ static SelectionGoal afterCount(const QueryState &s) {
    return s.query.topP < 1.0f ? SelectionGoal::Mass : SelectionGoal::Sums;
  }

  /// Adds up what the query's goal wants of the CTA's slice.
  __device__ void runRound(int i, u64 *table) const {
    const QueryState &s = queries[i];
    if (s.goal >= SelectionGoal::Sums)
      return;
    if (s.goal == SelectionGoal::Guess) {
      weighGuess(s, table);
      return;
    }
    consumerSync();
    for (int b = threadIdx.x; b < 2 * kSelectionBins; b += kConsumerThreads)
      bins[b] = 0;
    consumerSync();
    everyLogit(s, [&](int, float logit) {
      const u32 distance = distanceOf(s, logit);
      if (s.goal == SelectionGoal::Ties) {
        if (distance == s.tie)
          add(blockIdx.x, 1);
        return;
      }
      if (distance > s.limit)
        return;
      if (const int bin = binOf(s, distance); bin >= 0)
        add(bin, s.goal == SelectionGoal::Count ? 1 : massOf(s, logit));
    });
    consumerSync();
    for (int b = threadIdx.x; b < kSelectionBins; b += kConsumerThreads)
      if (const u64 weight = (u64)bins[kSelectionBins + b] << 32 | bins[b])
        atomicAdd(table + b, weight);
  }

  /// Adds up what stands before the guess, and all.
  __device__ __forceinline__ void weighGuess(const QueryState &s, u64 *table) const {
    const bool masses = firstOf(s) == SelectionGoal::Mass;
    const float temperature = s.query.temperature, most = s.most;
    u64 before = 0, all = 0;
    everyLogit(s, [&](int token, float logit) {
      Best one;
      one.take(logit, token);
      const u64 weight = masses ? sampling::massOf(sampling::weight(sampling::scaled(logit, temperature), most)) : 1;
      all += weight;
      // top_k keeps all equal logits.
      before += (masses ? one.key > s.guess : one.key >> 32 > s.guess >> 32) ? weight : 0;
    });
    addUp(table + kTotal, all);
    addUp(table + kOfToken, before);
  }
  /// Whether the guess is in S; else S is to be found.
  __device__ void judgeGuess(QueryState &s, const u64 *table) const {
    const u64 before = loadSum(table, kOfToken), all = loadSum(table, kTotal);
    __syncwarp();
    if (laneId() != 0)
      return;
    const SelectionGoal first = firstOf(s);
    if (first == SelectionGoal::Mass ? sampling::staysInTopP(before, sampling::cutOfTopP(s.query.topP, all))
                                     : before < (u64)s.query.topK) {
      s.goal = SelectionGoal::Done;
      s.best = s.guess;
      return;
    }
    s.guess = 0;
    setGoal(s, first);
  }

  /// Goes on from what all have found. One warp.
  __device__ void advance(int i, const u64 *table) const {
    QueryState &s = queries[i];
    if (s.goal >= SelectionGoal::Sums)
      return;
    if (s.goal == SelectionGoal::Guess) {
      judgeGuess(s, table);
      return;
    }
    constexpr int each = kSelectionBins / 32;
    u64 mine[each], sum = 0;
    loadBins(table, mine);
    if (s.goal == SelectionGoal::Ties) {
      int before = 0, own = 0;
#pragma unroll
      for (int k = 0; k < each; ++k) {
        const int cta = laneId() * each + k;
        before += cta < (int)blockIdx.x ? (int)mine[k] : 0;
        own += cta == (int)blockIdx.x ? (int)mine[k] : 0;
      }
      before = __reduce_add_sync(~0u, before);
      own = __reduce_add_sync(~0u, own);
      const int taken = max(0, min(own, s.ties - before));
      const int last = taken == own ? Kept::mostVocab : taken == 0 ? -1 : tokenOfTie(s, taken);
      __syncwarp();
      if (laneId() == 0) {
        s.lastTie = last;
        s.goal = SelectionGoal::Sums;
      }
      return;
    }
#pragma unroll
    for (int k = 0; k < each; ++k)
      sum += mine[k];
    u64 upto = sum; // of all lanes up to this one
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      const u64 below = __shfl_up_sync(~0u, upto, distance);
      upto += laneId() >= distance ? below : 0;
    }
    const bool first = s.widthLog == QueryState::kAll;
    const u64 all = __shfl_sync(~0u, upto, 31), target = first && s.goal == SelectionGoal::Mass
                                                             ? targetOf(sampling::cutOfTopP(s.query.topP, all))
                                                             : s.target;
    u64 before = s.before + upto - sum;
    int bin = -1;
#pragma unroll
    for (int k = 0; k < each; ++k)
      if (bin < 0) {
        if (before + mine[k] >= target)
          bin = laneId() * each + k;
        else
          before += mine[k];
      }
    u64 weight = 0;
#pragma unroll
    for (int k = 0; k < each; ++k)
      weight = bin == laneId() * each + k ? mine[k] : weight;
    const u32 found = __ballot_sync(~0u, bin >= 0);
    const int lane = found ? __ffs(found) - 1 : 0;
    bin = __shfl_sync(~0u, bin, lane);
    before = __shfl_sync(~0u, before, lane);
    weight = __shfl_sync(~0u, weight, lane);
    __syncwarp(); // all lanes have read the state
    if (laneId() == 0) {
      s.target = target;
      if (!found) { // S ends where the row does
        setGoal(s, s.goal == SelectionGoal::Count ? afterCount(s) : SelectionGoal::Sums);
      } else {
        s.before = before;
        narrow(s, bin);
        if (s.widthLog == 0)
          end(s, weight);
      }
      takeGuess(s);
    }
  }
  /// The least mass before a token that leaves it out of S.
  __device__ __forceinline__ static u64 targetOf(double cut) {
    u64 mass = (u64)cut; // what rounds to a number below `cut`, or not, is near
#pragma unroll 1
    while (sampling::staysInTopP(mass, cut))
      ++mass;
#pragma unroll 1
    while (mass > 1 && !sampling::staysInTopP(mass - 1, cut))
      --mass;
    return mass;
  }
  /// S ends among the logits of distance `s.low`, which have `weight` together.
  __device__ __forceinline__ void end(QueryState &s, u64 weight) const {
    if (s.goal == SelectionGoal::Count) { // with all of them
      s.limit = s.low;
      setGoal(s, afterCount(s));
      return;
    }
    const u64 each = massOf(s, logitAt(s, s.low)), wanted = s.target - s.before, ties = (wanted + each - 1) / each;
    s.goal = SelectionGoal::Sums;
    s.limit = s.low;
    if (ties * each < weight) { // with some of them
      s.tie = s.low;
      s.ties = (int)ties;
      s.goal = SelectionGoal::Ties;
    }
  }
  /// The token of the `number`th (from 1 on) of the equal logits at the border in this CTA's slice. One warp.
  __device__ int tokenOfTie(const QueryState &s, int number) const {
    const int begin = (int)blockIdx.x * sliceColumns(), end = min(Kept::vocabOf(s.query.line), begin + sliceColumns());
    int before = 0;
#pragma unroll 1
    for (int base = begin; base < end; base += 256) {
      const int c = base + laneId() * 8;
      u32 mine = 0;
#pragma unroll
      for (int k = 0; k < 8; ++k)
        if (c + k < end) {
          const Floats<2> pair = pairOf(s, c + k / 2 * 2);
          mine |= distanceOf(s, pair.v[k % 2]) == s.tie ? 1u << k : 0;
        }
      int upto = __popc(mine);
#pragma unroll
      for (int distance = 1; distance < 32; distance *= 2) {
        const int below = __shfl_up_sync(~0u, upto, distance);
        upto += laneId() >= distance ? below : 0;
      }
      const u32 reached = __ballot_sync(~0u, before + upto >= number);
      if (reached) {
        int token = 0, left = number - before - (upto - __popc(mine));
        for (int k = 0; k < 8; ++k)
          if ((mine >> k & 1) && --left == 0)
            token = c + k;
        return __shfl_sync(~0u, token, __ffs(reached) - 1);
      }
      before += __shfl_sync(~0u, upto, 31);
    }
    return -1;
  }

  __device__ __forceinline__ static bool isList(const abi::RowQuery &query) {
    return query.reducer == (int)ReducerKind::Sample || query.reducer == (int)ReducerKind::TopK;
  }
  __device__ __forceinline__ static bool isGreedy(const QueryState &s) { return s.query.temperature == 0.0f; }
  __device__ __forceinline__ static bool inSet(const QueryState &s, int token, float logit) {
    if (isGreedy(s))
      return true;
    const u32 distance = distanceOf(s, logit);
    if (distance > s.limit || (distance == s.tie && token > s.lastTie))
      return false;
    return sampling::scaled(logit, s.query.temperature) >= s.least;
  }
};

} // namespace megalith::device
