//===- Activation.cuh - a stage activation: what stages can do -------------===//
//
// A stage of the pipeline becomes a function of an activation. What it reads, stores, appends, keeps and calls is here;
// the functions over ranges are in Binders.cuh.
//===----------------------------------------------------------------------===//
#pragma once

#include "megalith/IssueCalls.cuh"
#include "megalith/Seats.cuh"
#include "megalith/Binders.cuh"

namespace megalith::device {

/// The ControlState of CTA 0, which comes last in shared memory. An address that the compiler knows takes less code
/// than one that is passed on.
template <class Control> __device__ __forceinline__ Control &controlOfCta() {
  return *reinterpret_cast<Control *>(dynamicShared() + Control::Config::controlBegin);
}

/// Of the tokens number `from` to `to` after those of request r, one per lane, the first with which its generated
/// tokens end in one of its stop sequences. They are written. Returns how many tokens these are, from 0; 0 when there
/// is none. In front of `minNewTokens` none of several tokens counts.
inline __device__ __noinline__ int stopsAfter(const abi::LaunchParams &p, const abi::RequestHeader &r, int from, int to,
                                              int minNewTokens) {
  __syncwarp();
  const int i = from + laneId();
  const int *token = p.tokens + r.tokenBegin + r.numTokens + i;
  const int generated = i < to ? r.generated + i + 1 : 0;
  const int *sequence = p.eos + r.eosBegin + r.eosCount;
  bool ends = false;
#pragma unroll 1
  for (int s = 0; s < r.stopCount; ++s) {
    const int length = *sequence;
    bool same = length <= generated && (length == 1 || generated >= minNewTokens);
#pragma unroll 1
    for (int k = 0; same && k < length; ++k)
      same = token[-k] == sequence[length - k];
    ends = ends || same;
    sequence += 1 + length;
  }
  const u32 stops = __ballot_sync(~0u, ends);
  return stops ? from + __ffs(stops) : 0;
}

/// A stage activation: what stages can do, to their own request only. The whole warp holds the activation, with the
/// same values in every lane. After a fault the activation has no more effects, and ends in the fault state.
template <class ControlType> struct ActivationOf : Binders {
  using Control = ControlType;
  using Config = typename Control::Config;
  using Request = typename Control::Request;
  using FirstPool = typename Control::FirstPool; ///< what is not said otherwise is of it

  Control &c;
  const abi::LaunchParams &p;
  Request &r;
  const int number; ///< of the request
  const int slot;   ///< -1 during admission

  __device__ ActivationOf(Control &c, int number, int slot)
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
  /// A table that it brought: how many rows there are, the length of each, then rows of `Columns` words.
  template <int Columns, class T = int> __device__ TableItems<T> inputTable(const abi::InputRange &range) const {
    const int *const words = p.inputs + range.begin;
    const int rows = range.length > 0 ? words[0] : 0;
    return {words + 1, reinterpret_cast<const WordOf<T> *>(words + 1 + rows), Columns, rows};
  }
  __device__ Results results() const { return {c.pass->rows + c.rowBegin[slot], c.taken[slot]}; }
  /// Of the last row alone.
  __device__ Results lastResult() const {
    const int rows = c.taken[slot];
    return {c.pass->rows + c.rowBegin[slot] + rows - 1, min(rows, 1)};
  }
  /// What reducer `Which` of the call gave.
  template <class Which> __device__ auto results() const {
    const bool plain = c.plain[slot] != 0;
    const auto rows = plain ? CallQuery::rowsOf(c.taken[slot], c.plainFirst[slot], c.plainLast[slot])
                            : QueryMemory<Config>::ofSlot(p, slot).queries[Which::index].rowsOf(c.taken[slot]);
    const int first = c.rowBegin[slot] + rows.first;
    if constexpr (Which::reducer == ReducerKind::ArgMax)
      return Results{c.pass->rows + first, rows.count()};
    else if (plain)
      return Reduced<typename Which::Value>{reinterpret_cast<const u32 *>(&c.pass->rows[first].result),
                                            int(sizeof(Row) / 4), rows.count(), true};
    else
      return Reduced<typename Which::Value>{p.reduced + first * QueryMemory<Config>::reducedWords + 1 + Which::place,
                                            QueryMemory<Config>::reducedWords, rows.count()};
  }
  /// The same where it gave several for each row, of at most `Rows` rows: a table at `words`, whose rows may be
  /// shorter.
  template <class Which, int Rows> __device__ auto results(int *words) {
    using T = typename Which::Value;
    using Memory = QueryMemory<Config>;
    if (c.plain[slot]) {
      const auto tokens = results<Which>();
#pragma unroll 1
      for (int i = 0; i < tokens.size(); ++i)
        storeRow<Rows, Which::count, T>(words, i, Slice<Reduced<T>>{tokens, i, 1}, 0);
      return tableAt<Rows, Which::count, T>(words, tokens.size());
    }
    const auto rows = Memory::ofSlot(p, slot).queries[Which::index].rowsOf(c.taken[slot]);
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
    return {s.temperature, s.topK, s.topP, s.minP};
  }
  /// What changes its rows of logits: place of an abi::Edits; kNone: nothing does.
  __device__ __forceinline__ int edits() const { return hasEdits<Config>() ? p.settings[number].edits : abi::kNone; }
  __device__ __forceinline__ int minNewTokens() const {
    return edits() == abi::kNone ? 0 : p.settings[number].minNewTokens;
  }
  __device__ __forceinline__ bool hasFormat() const {
    return hasEdits<Config>() && p.settings[number].byText & abi::kHasFormat;
  }
  /// A random number from 0 to 1, which is neither.
  __device__ float uniform(int position, int lane, int noise) const {
    const abi::Settings &s = p.settings[number];
    return sampling::uniform({s.key[0], s.key[1]}, position, lane, noise);
  }
  __device__ int budget() const { return r.maxNewTokens - r.generated; }
  __device__ bool finished() const { return r.eosSeen || r.generated >= r.maxNewTokens; }
  /// Tokens that end it.
  __device__ Span eos() const { return {p.eos + r.eosBegin, r.eosCount}; }
  __device__ bool isEos(int token) const {
    bool is = false;
#pragma unroll 1
    for (int e = 0; e < r.eosCount; ++e) // the first ones stand at hand
      is = is || (slot >= 0 && e < Control::eosAtHand ? c.eos[slot][e] : p.eos[r.eosBegin + e]) == token;
    return is;
  }
  __device__ int promptLen() const { return r.promptLen; }
  __device__ int priority() const { return r.priority; }
  template <class Pool = FirstPool> __device__ int kvLen() const { return r.kv[Pool::model].len; }
  /// Positions that the index of the pool had.
  template <class Pool = FirstPool> __device__ int kvFound() const {
    if constexpr (Control::indexed)
      return r.found[Pool::model];
    return 0;
  }
  /// Rows of drafts after it that this run of the stage has fed.
  template <class Pool = FirstPool> __device__ int kvDrafts() const { return poolOf<Pool>().runRows[slot]; }
  template <class Pool = FirstPool> __device__ int kvLag() const { return r.numTokens - kvLen<Pool>(); }
  __device__ int seated() const { return c.slotsHeld; }
  __device__ int tick() const { return c.tick; }
  __device__ int nowMs() const { return p.host->nowMs; }
  __device__ int arrived() const { return arrival().tick; }
  __device__ int arrivedMs() const { return arrival().ms; }
  __device__ int deadlineMs() const { return arrival().deadlineMs; }
  template <class Pool = FirstPool> __device__ int livePages() const { return poolOf<Pool>().live; }
  template <class Pool = FirstPool> __device__ bool pressure() const { return poolOf<Pool>().pressure != 0; }

  __device__ const abi::Arrival &arrival() const { return arrivalsOf(p)[number]; }

  /// Words that this warp keeps in a stage, from `at` on.
  __device__ int *scratch(int at) const { return p.scratch + warpId() * Config::scratchWords + at; }

  // --- lookups
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

  /// Drafts along the text about which the request's format leaves no choice: up to `width` of them, at most
  /// `Capacity`, which stand in `words`. Never the last token that the request may have.
  template <int Capacity> __device__ Items<int> forced(int *words, int width) const {
    width = min(min(width, Capacity), budget() - 1);
    if constexpr (hasEdits<Config>())
      if (width > 0 && hasFormat())
        return {words, draftForced(textNow(), p.edits + 16ll * edits(), words, width)};
    return {words, 0};
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
      if (i % Columns < from[i / Columns]) // nobody wrote what comes after a row
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

  /// Appends tokens until the budget is used up, or until an EOS or the last token of a stop sequence, which is
  /// appended, too. A token that is none faults. Returns how many it appended.
  template <class View> __device__ int append(const View &sequence, int line = __builtin_LINE()) {
    return appendView(asView(sequence), line);
  }
  template <class View> __device__ int appendView(const View &view, int line) {
    int most = fault || r.eosSeen ? 0 : min(view.size(), budget());
    int *end = p.tokens + r.tokenBegin + r.numTokens;
    int count = 0;
    int stranger = 0; // what is no token
    bool stopped = false, wrong = false;
    FormatCut cut = {};
    if constexpr (hasEdits<Config>())
      if (most > 0 && hasFormat()) {
        cut = cutByFormat(view, most);
        most = cut.count;
      }
#pragma unroll 1
    while (count < most && !stopped && !wrong) {
      const int i = count + laneId();
      const int token = i < most ? view[i] : 0;
      const bool ends = isEos(token);
      const u32 stops = __ballot_sync(~0u, i < most && ends);
      const u32 none = __ballot_sync(~0u, i < most && !isTokenOf(token, Config::requestVocab));
      int next = stops ? count + __ffs(stops) : min(count + 32, most);
      if (none && count + __ffs(none) - 1 < next) {
        next = count + __ffs(none) - 1;
        stranger = __shfl_sync(~0u, token, __ffs(none) - 1);
        wrong = true;
      }
      if (i < next)
        end[i] = token;
      stopped = stops != 0 && !wrong;
      if (r.stopCount > 0)
        if (const int upTo = stopsAfter(p, r, count, next, minNewTokens())) {
          next = upTo;
          stopped = true;
          wrong = false;
        }
      if (i == next - 1 && slot >= 0)
        c.newest[slot] = token;
      c.pools.each([&](auto &pool) { confirmFed(pool, r.numTokens + count, next - count, token); });
      count = next;
    }
    const bool atCut = count == most && !stopped && !wrong;
    stopped = stopped || (cut.ends && atCut);
    __syncwarp();
    if (p.logits && p.logitsRows == 0 && r.firstLine > 0)
      dropLines(count);
    if (laneId() == 0) {
      if (count > 0 && p.times)
        c.noteTime(p.times[r.timeBegin + 1 + r.generated], count);
      r.numTokens += count;
      r.generated += count;
      if constexpr (hasEdits<Config>())
        if (cut.isAll && atCut && slot >= 0) // control need not walk it again
          keepText(TextMemory<Config>::slot(p, slot), r.numTokens, cut.state);
      if (stopped)
        r.eosSeen = 1;
    }
    __syncwarp();
    if (cut.isRefused && atCut)
      raise(kFormat, line, cut.refused, r.generated);
    else if (wrong && hasEdits<Config>() && stranger == -1 && edits() != abi::kNone)
      raise(kNoToken, line);
    else if (wrong)
      raise(kTokenRange, line, stranger, Config::requestVocab);
    return count;
  }

  /// The same, but not beyond the first place where the request's tokens end in `stop`, wherever that began.
  template <class View, class Stop>
  __device__ int append(const View &sequence, const Stop &stopOf, int line = __builtin_LINE()) {
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
    return appendView(Slice<decltype(asView(sequence))>{view, 0, min(size, kept + 1)}, line);
  }

  /// Keeps at most the first `count` positions of the KV that was written. When the rows after would see a page that
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
  /// The same for rows of the run, of which number path[j] moves to the j-th position after kvLen().
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
    if (laneId() == 0 && !fault) {
      atomicAdd(reinterpret_cast<u64 *>(p.metrics) + int(metric), u64((long long)n));
      if (p.increments)
        atomicAdd(reinterpret_cast<u64 *>(p.metrics) + p.increments + int(metric) * abi::kIncrements +
                      min(max(n, 0), abi::kIncrements - 1),
                  u64(1));
    }
  }
  template <class Gauge> __device__ void trace(Gauge gauge, int value) const {
    if (laneId() == 0 && !fault) {
      c.gauges[slot][int(gauge)] = u32(value);
      c.gaugesSet[slot] |= 1u << int(gauge);
    }
  }
  template <class Gauge> __device__ void trace(Gauge gauge, float value) const { trace(gauge, __float_as_int(value)); }

  // --- how an activation ends
  /// What a call is fed, if these are no more tokens than `Most`.
  template <int Most, class View> __device__ auto atMost(const View &sequence, int line = __builtin_LINE()) {
    const auto view = asView(sequence);
    if (view.size() > Most)
      raise(kTooManyRows, line, view.size(), Most);
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
  /// site. `queries`: of the rows' logits.
  template <class Call, class View, class... Queries>
  __device__ void issue(const View &sequence, const Queries &...queries) {
    issueRows<Call>(*this, asView(sequence), RowBefore(), 0, queries...);
  }
  template <class Call, class View, class Hangs, class... Queries>
  __device__ void issue(const FedRows<View, Hangs> &rows, const Queries &...queries) {
    issueRows<Call>(*this, rows.view, rows.hangs, rows.line, queries...);
  }
  /// At a loop of the tick: the request goes on with a round, or after the loop.
  template <class Round, class After> __device__ void enter(bool more) {
    if (fault) {
      fail(fault);
      return;
    }
    __syncwarp();
    if (laneId() == 0) {
      r.waitingSite = more ? Round::site : After::site;
      r.waitingSince = c.tick;
      r.served = kStandsAtLoop;
      if constexpr (Control::loopsNest) // a round of the outer one may have none of the inner one
        atomicAdd(&c.servedOfRound, 1);
      if constexpr (Control::bounds)
        c.callChunk[slot] = 0; // it is at no call
    }
    __syncwarp();
  }

  /// Ends a stage: checks the request, then moves it.
  template <class State> __device__ void goTo(State state, int line = __builtin_LINE()) {
    fault = c.endActivation(r, slot, int(state), fault, numbers, line);
    if constexpr (Control::continues)
      endRuns(*this);
    if (slot < 0 && !fault && Control::holdsSlot(int(state)))
      takeSlot(*this);
  }

  __device__ void fail(int code) { c.endActivation(r, slot, Config::faultState, code, numbers); }

  template <class Pool> __device__ __forceinline__ PoolState<Pool> &poolOf() const { return c.template poolOf<Pool>(); }
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
  /// What is known of its text. It has a format.
  __device__ __noinline__ KnownText textNow() const {
    if (slot >= 0)
      return countText(c, r, slot);
    KnownText known = beginText(p, edits(), nullptr);
#pragma unroll 1
    for (int i = r.promptLen; i < r.numTokens; ++i)
      known.state = known.step(known.state, (int)loadWord(p.tokens + r.tokenBegin + i));
    return known;
  }
  /// Of `most` tokens that may be appended. The request has a format.
  template <class View> __device__ __noinline__ FormatCut cutByFormat(const View &view, int most) const {
    return megalith::device::cutByFormat(textNow(), view, most, Config::requestVocab);
  }

  /// Of a live session, when `count` tokens are appended: those that no row predicted, because tokens before them were
  /// not fed, or others were, have no line of logits.
  __device__ __noinline__ void dropLines(int count) const {
    const OwnLines own = linesOf(p, r, number);
    c.pools.each([&](auto &pool) {
      if (pool.model == 0)
        for (int i = laneId(); i < count; i += 32)
          if (slot < 0 || r.numTokens + i > pool.known[slot])
            lineMark(p, own.first + r.generated + i) = 0;
    });
    __syncwarp();
  }

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
};

} // namespace megalith::device
