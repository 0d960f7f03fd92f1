//===- Answers.cuh - what logits queries give, once their sets are known --===//
//
// Selection.cuh finds the set S of each query. The CTAs then add up what is asked for, or list the keys that come
// first, each in its slice; and one warp of CTA 0 puts an answer together.
//===----------------------------------------------------------------------===//
#pragma once

#include "megalith/Selection.cuh"

namespace megalith::device {

/// Settles queries: all CTAs together.
template <class Kept> struct Answers : Selection<Kept> {
  using Base = Selection<Kept>;
  using Base::grid, Base::queries, Base::keys, Base::lists, Base::edge, Base::count, Base::tableOf, Base::clearTable;
  using Base::inSet, Base::isGreedy, Base::isList, Base::isEdited, Base::edit, Base::everyLogit, Base::addUp,
      Base::loadSum;
  using Base::kTotal, Base::kDepths, Base::kOfToken, Base::load, Base::begin, Base::advance, Base::runRound;

  __device__ void sum(int i, u64 *table) const {
    const QueryState &s = queries[i];
    if (s.goal == SelectionGoal::Done)
      return;
    const bool leaves = takesAway(s);
    if (isList(s.query) && !leaves)
      list(i);
    if ((s.query.reducer == (int)ReducerKind::Sample && !leaves) || isGreedy(s))
      return;
    u64 total = 0, depths = 0, ofToken = 0;
    everyLogit(s, [&](int token, float logit) {
      if (!inSet(s, token, logit))
        return;
      const float y = sampling::scaled(logit, s.query.temperature), weight = sampling::weight(y, s.most);
      total += sampling::massOf(weight);
      depths += sampling::massTimesDepth(weight, sampling::below(y, s.most));
      if (token == s.query.token)
        ofToken = (u64)1 << 32 | __float_as_uint(weight);
    });
    addUp(table + kTotal, total);
    addUp(table + kDepths, depths);
    addUp(table + kOfToken, ofToken);
  }
  /// The keys of the slice that come first, the greatest one first; 0 ends them.
  __device__ void list(int i) const {
    const QueryState &s = queries[i];
    listBy(s, listOf(i, blockIdx.x), [&](int token, float logit) {
      Best one;
      one.take(s.query.reducer == (int)ReducerKind::TopK || isGreedy(s) ? logit : scoreOf(s, token, logit), token);
      return one.key;
    });
  }
  /// Whether the query is a draw from what another row leaves: that of the query after it. At a temperature of 0 the
  /// other row says nothing: the best token comes.
  __device__ __forceinline__ static bool takesAway(const QueryState &s) {
    return s.query.reducer == (int)ReducerKind::Sample && s.query.part != 0 && !isGreedy(s);
  }
  /// Of such a draw, when all sums are known: the keys of max(0, p - q), and for the case that nothing is left those of
  /// p, which stand in the list of the query after it.
  __device__ __noinline__ void listOfRest(int i, const u64 *table, const u64 *tableOfOther) const {
    const QueryState &s = queries[i], &other = queries[i + 1];
    if (s.goal == SelectionGoal::Done) // a NaN
      return;
    const u64 total = loadSum(table, kTotal), totalOfOther = loadSum(tableOfOther, kTotal);
    listBy(s, listOf(i, blockIdx.x), [&](int token, float logit) {
      const float p = probabilityOf(s, logit, total);
      float q = 0.0f;
      if (token < Kept::vocabOf(other.query.line))
        if (const float z = Base::logitOf(other, token); !isRefused(z) && inSet(other, token, z))
          q = probabilityOf(other, z, totalOfOther);
      Best one;
      if (const float rest = sampling::rest(p, q); rest > 0.0f)
        one.take(sampling::scoreOfRest(rest, wordOf(s, token)), token);
      return one.key;
    });
    listBy(s, listOf(i + 1, blockIdx.x), [&](int token, float logit) {
      Best one;
      one.take(scoreOf(s, token, logit), token);
      return one.key;
    });
  }
  /// `key(token, logit)`: 0 leaves it out.
  template <class Key> __device__ __forceinline__ void listBy(const QueryState &s, u64 *out, Key key) const {
    u64 previous = ~0ull;
#pragma unroll 1
    for (int r = 0; r < s.query.count && previous; ++r) {
      Best best;
      everyLogit(s, [&](int token, float logit) {
        if (!inSet(s, token, logit))
          return;
        if (const u64 own = key(token, logit); own < previous)
          best.take(own);
      });
      best.takeLanes();
      consumerSync(); // those of the round before have been read
      if (laneId() == 0)
        keys[warpId()] = best.key;
      consumerSync();
      previous = 0;
#pragma unroll
      for (int w = 0; w < kConsumerWarps; ++w)
        previous = keys[w] > previous ? keys[w] : previous;
      if (threadIdx.x == 0)
        out[r] = previous;
    }
  }
  __device__ __forceinline__ u64 *listOf(int i, int cta) const {
    return lists + ((long long)i * gridDim.x + cta) * limits::reduced;
  }
  __device__ __forceinline__ static u32 wordOf(const QueryState &s, int token) {
    const sampling::Words words =
        sampling::words({s.query.key[0], s.query.key[1]}, s.query.position, (u32)token / 4, s.query.purpose);
    const u32 low = token & 1 ? words.w[1] : words.w[0], high = token & 1 ? words.w[3] : words.w[2];
    return token & 2 ? high : low;
  }
  __device__ __forceinline__ static float scoreOf(const QueryState &s, int token, float logit) {
    return sampling::score(sampling::scaled(logit, s.query.temperature), wordOf(s, token));
  }

  /// The answer. One warp of one CTA.
  __device__ __noinline__ void finish(int i, const u64 *table) const {
    const QueryState &s = queries[i];
    if (s.query.at < 0) // of the row that another query takes away
      return;
    u32 *const out = grid.params->reduced + s.query.at;
    const bool sums = s.goal != SelectionGoal::Done;
    const u64 total = sums ? loadSum(table, kTotal) : 0, depths = sums ? loadSum(table, kDepths) : 0,
              ofToken = sums ? loadSum(table, kOfToken) : 0;
    const auto answer = [&](int r, u32 word) {
      if (laneId() == 0)
        out[r] = word;
    };
    const auto number = [&](float v) { answer(0, __float_as_uint(v)); };
    if (s.best == Best::kNan) { // the request ends
      for (int r = 0; r < s.query.count; ++r)
        answer(r, isEdited(s) ? abi::kNanOfEdited : ~0u);
      return;
    }
    if (s.best == 0) { // a dead row: no token is left
      for (int r = 0; r < s.query.count; ++r)
        answer(r, isList(s.query)                                  ? ~0u
                  : s.query.reducer == (int)ReducerKind::LogSumExp ? __float_as_uint(noneOf<true>())
                                                                   : 0);
      return;
    }
    if (!sums && isList(s.query) && s.query.count == 1 && s.query.part == 0) {
      answer(0, (u32)Best{s.best}.index());
      return;
    }
    switch ((ReducerKind)s.query.reducer) {
    case ReducerKind::ArgMax:
      break;
    case ReducerKind::Sample:
    case ReducerKind::TopK:
      finishList(s, i, total, out);
      break;
    case ReducerKind::MaxProb:
      number(sums ? sampling::probability(1.0f, total) : 1.0f);
      break;
    case ReducerKind::LogSumExp:
      number(sums ? sampling::logSumExp(s.most, total) : Best::valueOf((u32)(s.best >> 32)));
      break;
    case ReducerKind::Entropy:
      number(sums ? sampling::entropy(total, depths) : 0.0f);
      break;
    case ReducerKind::Prob:
      number(!sums         ? (s.query.token == Best{s.best}.index() ? 1.0f : 0.0f)
             : ofToken > 0 ? sampling::probability(__uint_as_float((u32)ofToken), total)
                           : 0.0f);
      break;
    }
  }
  /// The greatest of the keys that the CTAs found. Each list is in order, so a lane has the first key of each that is
  /// left.
  __device__ __noinline__ void finishList(const QueryState &s, int i, u64 total, u32 *out) const {
    constexpr int each = 8; // lists of a lane
    static_assert(each * 32 >= kSelectionBins, "there are no more CTAs");
    const bool sums = s.goal != SelectionGoal::Done;
    u64 first[each];
    int next[each];
#pragma unroll
    for (int k = 0; k < each; ++k) {
      const int cta = k * 32 + laneId();
      next[k] = 0;
      first[k] = sums && cta < (int)gridDim.x ? loadKey(listOf(i, cta)) : 0;
    }
    if (!sums && laneId() == 0)
      first[0] = s.best;
    int of = i; // whose lists
    if (sums && takesAway(s)) {
      bool some = false;
#pragma unroll
      for (int k = 0; k < each; ++k)
        some = some || first[k] != 0;
      if (!__any_sync(~0u, some)) { // nothing is left
        of = i + 1;
#pragma unroll
        for (int k = 0; k < each; ++k) {
          const int cta = k * 32 + laneId();
          first[k] = cta < (int)gridDim.x ? loadKey(listOf(of, cta)) : 0;
        }
      }
    }
#pragma unroll 1
    for (int r = 0; r < s.query.count; ++r) {
      Best best;
#pragma unroll
      for (int k = 0; k < each; ++k)
        best.take(first[k]);
      best.takeLanes();
#pragma unroll
      for (int k = 0; k < each; ++k)
        if (first[k] == best.key && best.key != 0)
          first[k] = sums && ++next[k] < s.query.count ? loadKey(listOf(of, k * 32 + laneId()) + next[k]) : 0;
      if (laneId() == 0)
        out[r] = best.key == 0 ? ~0u // there are fewer
                 : s.query.part == 0 || s.query.reducer == (int)ReducerKind::Sample
                     ? (u32)best.index()
                     : __float_as_uint(probabilityOf(s, best, total, r));
    }
  }
  __device__ __forceinline__ static u64 loadKey(const u64 *key) {
    const u32 *words = reinterpret_cast<const u32 *>(key);
    return (u64)loadWord(words + 1) << 32 | loadWord(words);
  }
  __device__ __forceinline__ static float probabilityOf(const QueryState &s, Best best, u64 total, int number) {
    if (isGreedy(s))
      return number == 0 ? 1.0f : 0.0f;
    return probabilityOf(s, Best::valueOf((u32)(best.key >> 32)), total);
  }
  __device__ __forceinline__ static float probabilityOf(const QueryState &s, float logit, u64 total) {
    return sampling::probability(sampling::weight(sampling::scaled(logit, s.query.temperature), s.most), total);
  }

  __device__ __forceinline__ bool anyEdited() const {
    bool any = false;
    for (int i = 0; i < count; ++i)
      any = any || isEdited(queries[i]);
    return any;
  }

  /// All CTAs. Returns the number of the round that found the sums; negative when the kernel stops. `columns`: that
  /// this CTA edits.
  template <class Columns>
  __device__ int settle(const abi::RowQuery *from, const Words4 *bests, const Words4 *drawn,
                        const Columns &columns) const {
    clearTable(0);
#pragma unroll 1
    for (int i = warpId(); i < count; i += kConsumerWarps)
      load(i, from + i);
    consumerSync();
    if (anyEdited()) {
      if (!columns.own && !gridEdge(grid, edge)) // other CTAs made the row
        return -1;
      edit(columns);
    }
    int round = 0;
#pragma unroll 1
    for (;; ++round) {
      // At first all logits are there, and the CTAs' best ones.
      if (!gridEdge(grid, edge))
        return -1;
#pragma unroll 1
      for (int i = warpId(); i < count; i += kConsumerWarps)
        if (round == 0)
          begin(i, bests, drawn);
        else
          advance(i, tableOf(round - 1, i));
      consumerSync();
      bool known = true;
#pragma unroll 1
      for (int i = 0; i < count; ++i)
        known = known && queries[i].goal >= SelectionGoal::Sums;
      if (known)
        break;
      clearTable(round + 1);
#pragma unroll 1
      for (int i = 0; i < count; ++i)
        runRound(i, tableOf(round, i));
    }
#pragma unroll 1
    for (int i = 0; i < count; ++i)
      sum(i, tableOf(round, i));
    bool rests = false;
    for (int i = 0; i < count; ++i)
      rests = rests || takesAway(queries[i]);
    if (rests) {
      if (!gridEdge(grid, edge))
        return -1;
#pragma unroll 1
      for (int i = 0; i < count; ++i)
        if (takesAway(queries[i]))
          listOfRest(i, tableOf(round, i), tableOf(round, i + 1));
    }
    return round;
  }
  /// The answers, when all CTAs have found their sums.
  __device__ void finishAll(int round) const {
#pragma unroll 1
    for (int i = warpId(); i < count; i += kConsumerWarps)
      finish(i, tableOf(round, i));
  }
};

/// `Lines`: rows of a pass, of all results; `readRows` of one.
template <int Lines, class Kept>
__device__ __forceinline__ Answers<Kept> answersAt(GridEdges &grid, int edge, Kept kept, float *scratch, int count,
                                                   int readRows) {
  static_assert(kQueriesAtOnce * sizeof(QueryState) + 8 * kSelectionBins + 8 * kConsumerWarps <=
                kSelectionScratchBytes);
  char *const at = reinterpret_cast<char *>(scratch);
  u64 *const tables = reinterpret_cast<u64 *>(kept.base + Lines * Kept::rowBytes);
  assumeGlobal(tables);
  const int ctas = (int)gridDim.x;
  return {grid,
          kept,
          reinterpret_cast<QueryState *>(at),
          reinterpret_cast<u32 *>(at + kQueriesAtOnce * sizeof(QueryState)),
          reinterpret_cast<u64 *>(at + kQueriesAtOnce * sizeof(QueryState) + 8 * kSelectionBins),
          tables,
          tables + selectionTableBytes() / 8,
          {reinterpret_cast<float *>(tables + (selectionTableBytes() + shape::selectionListBytes(ctas)) / 8)},
          readRows,
          edge,
          count};
}

/// Of `left` queries, how many are settled now. A query that another row is taken away from stands beside that one.
__device__ __forceinline__ int queriesAtOnce(const abi::RowQuery *queries, int left) {
  const int count = min(kQueriesAtOnce, left);
  if (count < left) {
    const abi::RowQuery &last = queries[count - 1];
    if ((int)loadWord(&last.reducer) == (int)ReducerKind::Sample && loadWord(&last.part) != 0)
      return count - 1;
  }
  return count;
}

/// Settles the queries of the pass. All consumers of all CTAs. What the last round found is left to finishQueries: the
/// end of the pass stands between. False when the kernel stops.
template <int Rows, int Results, class Kept, class Columns>
__device__ __noinline__ bool settleQueries(GridEdges &grid, int edge, PassDraws<Rows, Results> &draws, Kept kept,
                                           const Words4 *bests, const Words4 *drawn, float *scratch, Columns columns) {
  assumeShared(&grid);
  assumeShared(&draws);
  assumeShared(scratch);
  const int queries = draws.queries;
  consumerSync(); // scratch may still be read
  for (int first = 0, count;; first += count) {
    count = queriesAtOnce(rowQueriesOf<Rows * Results>(*grid.params) + first, queries - first);
    const auto answers = answersAt<Rows * Results>(grid, edge, kept, scratch, count, Rows);
    const int round = answers.settle(rowQueriesOf<Rows * Results>(*grid.params) + first, bests, drawn, columns);
    if (round < 0)
      return false;
    if (first + count >= queries) {
      if (threadIdx.x == 0) {
        draws.left = first;
        draws.round = round;
      }
      return true;
    }
    if (!gridEdge(grid, edge))
      return false;
    if (blockIdx.x == 0)
      answers.finishAll(round);
    if (!gridEdge(grid, edge)) // tables and lists have been read
      return false;
  }
}

/// What is to do behind the head of a pass: draws from edited rows, then queries. `heads`: rows of those that the CTA
/// edits are those of matrices. All consumers of all CTAs. False when the kernel stops.
template <class... Heads, int Rows, int Results, class Kept>
__device__ __forceinline__ bool settlePass(GridEdges &grid, int edge, const PassShared &pass,
                                           PassDraws<Rows, Results> &draws, Kept kept, const Words4 *bests,
                                           Words4 *drawn, float *scratch) {
  const EditedColumns<Heads...> columns = {pass.numRows <= kTileRows, sliceColumns<Kept>()};
  if (draws.edited) {
    if (!columns.own && !gridEdge(grid, edge)) // other CTAs made the rows
      return false;
    editDraws(grid, pass, draws, kept, columns, drawn, scratch);
  }
  return draws.queries == 0 || settleQueries(grid, edge, draws, kept, bests, drawn, scratch, columns);
}

/// CTA 0, all consumers, after the end of the pass: the last queries' answers. A barrier of the CTA follows.
template <int Rows, int Results, class Kept>
__device__ __noinline__ void finishQueries(GridEdges &grid, int edge, const PassDraws<Rows, Results> &draws, Kept kept,
                                           float *scratch) {
  assumeShared(&grid);
  assumeShared(&draws);
  assumeShared(scratch);
  answersAt<Rows * Results>(grid, edge, kept, scratch, draws.queries - draws.left, Rows).finishAll(draws.round);
}

} // namespace megalith::device
