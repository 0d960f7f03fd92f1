//===- ControlPass.cuh - from chosen calls to a pass and back -------------===//
#pragma once

#include "megalith/ChooseCalls.cuh"

namespace megalith::device {

// A pass is of one model. `Pool` is that one's.

/// A row that a field of a request keeps.
struct KeptRow {
  int line = 0; ///< of LaunchParams::selection, below 0; 0: there is none
  int best = 0; ///< token
};
template <class Control> __device__ __forceinline__ KeptRow keptRow(Control &c, int slot, int field, int row) {
  using Config = typename Control::Config;
  if constexpr (keptFieldsOf<Config>() > 0)
    if (field >= 0) {
      const KeptField of = Config::kept(field);
      auto &r = c.seated(slot);
      if (row < of.size(r))
        return {of.line(slot, row), max(0, min(Config::keptVocab - 1, of.words(r)[1 + row]))};
    }
  return {};
}

/// The line in which the logits of row `row` of a call stand: that of `entry`, unless a field of the request keeps
/// them.
template <class Control, class Call>
__device__ __forceinline__ int lineOfKept(Control &c, const Call &call, int slot, int row, int served, int entry) {
  using Config = typename Control::Config;
  if constexpr (keptFieldsOf<Config>() > 0)
#pragma unroll 1
    for (int i = 0; i < call.count; ++i)
      if (const int field = call.queries[i].keptBy(CallQuery::Keeps); field >= 0) {
        const KeptField of = Config::kept(field);
        const auto rows = call.queries[i].rowsOf(served);
        const int place = call.queries[i].at + row - rows.first;
        if (rows.has(row) && place >= 0 && place < of.rows)
          return of.line(slot, place);
      }
  return entry;
}

/// The text of a row of the pass, or of one that a request keeps in line `line`, which is below 0.
template <class Config> __device__ __forceinline__ int textOfRow(int number, int line) {
  if constexpr (hasEdits<Config>())
    return line < 0 ? TextMemory<Config>::ofKept(line) : number;
  return number;
}

/// Writes the queries of row `row` of a call, the `number`th of the pass, which stands at `position`. Returns whether
/// its logits are wanted. Any thread.
template <class Control>
__device__ bool queriesOfRow(Control &c, int vocab, int slot, int row, int served, int number, int position,
                             int promptLen) {
  using Config = typename Control::Config;
  using Memory = QueryMemory<Config>;
  const abi::LaunchParams &p = c.params();
  const auto &call = Memory::ofSlot(p, slot);
  const abi::Settings &of = p.settings[c.request[slot]];
  const u32 key[2] = {of.key[0], of.key[1]};
  bool wanted = false;
  if (p.trace) {
    unsigned *const words = p.reduced + number * Memory::reducedWords;
    words[0] = call.count == 0 ? 0 : call.queries[call.count - 1].place + call.queries[call.count - 1].count;
    for (int i = 0; i < (int)words[0]; ++i)
      words[1 + i] = ~0u;
  }
  constexpr int results = resultsOf<Config>();
#pragma unroll 1
  for (int result = 0; result < results; ++result) {
    const int entry = result * (int)Memory::rows + number;
    const int line = result == 0 ? lineOfKept(c, call, slot, row, served, entry) : entry;
    abi::RowDraw draw = {0.0f, -1, {key[0], key[1]}, 0, 0, line < 0 ? 2 * line + 1 : 0, 0};
#pragma unroll 1
    for (int i = 0; i < call.count; ++i) {
      const CallQuery &query = call.queries[i];
      if (results > 1 && query.result != result)
        continue;
      const auto rows = query.rowsOf(served);
      if (!rows.has(row))
        continue;
      wanted = true;
      if (query.reducer == ReducerKind::ArgMax)
        continue;
      const int at = number * Memory::reducedWords + 1 + query.place, drawn = position + 1 + query.ahead;
      sampling::Settings settings = query.settings;
      int noise = query.noise;
      takeOfRow<Config>(p, slot, query, row - rows.first, settings, noise);
      const float temperature = sampling::isGreedy(settings) ? 0.0f : settings.temperature;
      const u32 purpose = sampling::purposeOfDraw(noise);
      const int token = query.tokens < 0 ? -1 : Memory::tokens(p, slot, i)[row - rows.first];
      const bool edited = query.isEdited(), ofRequest = query.editedByRequest(),
                 byText = ofRequest && of.byText && query.ahead == 0;
      const int answered = drawn - promptLen, early = ofRequest && answered >= 0 && answered < of.minNewTokens,
                text = byText ? number : abi::kNone, edits = ofRequest ? of.edits : abi::kNone,
                hand = tellHand<Config>(p, slot, query, row - rows.first, number * (int)Memory::queries + i);
      const auto store = [&](abi::RowQuery &to, int entryOfRow, int reducer, int word, int lineOfRow, int part,
                             int guessed, int kept) {
        to = {entryOfRow,
              reducer,
              word,
              query.count,
              temperature,
              query.settings.topP,
              query.settings.minP,
              query.settings.topK,
              {key[0], key[1]},
              drawn,
              purpose,
              token,
              part,
              guessed,
              lineOfRow,
              edits,
              byText ? textOfRow<Config>(number, kept) : abi::kNone,
              early,
              hand};
      };
      const KeptRow read = keptRow(c, slot, query.keptBy(CallQuery::Reads), row);
      KeptRow taken = {};
      if (temperature > 0.0f)
        taken = keptRow(c, slot, query.keptBy(CallQuery::Minus), row - rows.first);
      const bool ofPass = read.line >= 0, whole = taken.line >= 0; // nothing is taken away
      if (ofPass && whole && !edited && draw.at < 0 && !draw.guesses && query.isDraw(settings, vocab)) {
        draw = {temperature, at, {key[0], key[1]}, drawn, purpose, draw.kept, 0};
        continue;
      }
      if (ofPass && draw.kept == 0)
        draw.kept = 2 * line + 1;
      if (ofPass && whole && edited && draw.at < 0 && !draw.guesses && query.isDraw(settings, vocab)) {
        draw = {temperature, at, {key[0], key[1]}, drawn, purpose, draw.kept, 2};
        Memory::edits(p)[entry] = {edits, text, early, hand};
        continue;
      }
      const bool one = whole && query.reducer == ReducerKind::Sample && query.count == 1,
                 guessed = one && (edited || (ofPass && draw.at < 0 && !draw.guesses));
      if (guessed && !edited) // else the edited row's draw comes with it
        draw = {temperature, -1, {key[0], key[1]}, drawn, purpose, draw.kept, 1};
      abi::RowQuery *const to = Memory::rowQueries(p) + atomicAdd(&c.rowQueries, whole ? 1 : 2);
      store(to[0], ofPass ? entry : -1 - read.best, int(query.reducer), at, ofPass ? line : read.line,
            whole ? query.part : 1, guessed, read.line);
      if (!whole)
        store(to[1], -1 - taken.best, int(ReducerKind::MaxProb), -1, taken.line, 0, 0, taken.line);
    }
    Memory::draws(p)[entry] = draw;
  }
  return wanted;
}

/// The same of a row of which nothing is asked, though of others of its call something is.
template <class Control> __device__ __forceinline__ void noReducedWords(Control &c, int number) {
  using Memory = QueryMemory<typename Control::Config>;
  if (c.params().trace)
    c.params().reduced[number * Memory::reducedWords] = 0;
}

/// The same of a call that asks for best tokens only.
template <class Control> __device__ bool plainRow(Control &c, int slot, int row, int served, int number) {
  using Memory = QueryMemory<typename Control::Config>;
  const abi::LaunchParams &p = c.params();
  if (c.pass->wantLogits & kQueries) // of another call
    for (int result = 0; result < Memory::results; ++result)
      Memory::draws(p)[result * Memory::rows + number] = {0.0f, -1, {0, 0}, 0, 0, 0, 0};
  if (p.trace) {
    const int words = c.plain[slot] - 1;
    p.reduced[number * Memory::reducedWords] = words;
    if (words > 0) // else rows may have no word after that
      p.reduced[number * Memory::reducedWords + 1] = ~0u;
  }
  return CallQuery::rowsOf(served, c.plainFirst[slot], c.plainLast[slot]).has(row);
}

/// For the trace, what such a call gave.
template <class Control> __device__ void tracePlain(Control &c, int slot) {
  using Memory = QueryMemory<typename Control::Config>;
  const auto rows = CallQuery::rowsOf(c.taken[slot], c.plainFirst[slot], c.plainLast[slot]);
  for (int row = rows.first + laneId(); c.plain[slot] > 1 && row < rows.last; row += 32) {
    const int number = c.rowBegin[slot] + row, token = c.pass->rows[number].result;
    c.params().reduced[number * Memory::reducedWords + 1] = token == RowIsNan ? ~0u : u32(token);
  }
}

/// Tells all CTAs where a row of the pass hangs, and which places earlier passes of its run gave to positions on its
/// path. One lane.
template <class Control, class Pool>
__device__ void openPath(Control &c, Pool &pool, int slot, int number, const Row &row) {
  using Config = typename Control::Config;
  const abi::LaunchParams &p = c.params();
  const int base = c.kvLen[slot];
  if constexpr (Pool::hasPaths) {
    const int begin = base + pool.runRows[slot];
    int place = row.kvSlot, position = row.position;
    int *const path = pool.path(p, number);
    // A chain has none: its places are its positions.
#pragma unroll 1
    for (bool free = row.position != row.kvSlot; free && place >= base;
         place = pool.rowWord(slot, Pool::Parent, place), --position)
      if (place < begin)
        path[position - base] =
            pool.table(slot)[place / Pool::pageTokens] * Pool::pageTokens + place % Pool::pageTokens;
    __threadfence(); // the row's words follow
  }
  openFreeRow(*c.pass, p, number, row, base);
}

/// Rows of a slot's call that stand in the piece of the pass that runs now, one by one; and which number row 0 of the
/// call has, or would have.
struct RowsOfPiece {
  int from, to, begin;
};
template <class Control> __device__ __forceinline__ RowsOfPiece rowsOfPiece(const Control &c, int slot) {
  const int count = c.taken[slot];
  if constexpr (Control::pieces) {
    if (c.isWide())
      return {};
    if (c.unread > 0) {
      const int unread = c.unreadRows(slot), begin = c.firstUnread[slot] - c.from;
      return c.from < c.to ? RowsOfPiece{max(0, -begin), max(0, min(unread, c.to - c.firstUnread[slot])), begin}
                           : RowsOfPiece{unread, count, c.rowBegin[slot]};
    }
  }
  return {0, count, c.rowBegin[slot]};
}

/// In a wide piece: tells all CTAs the rows of a slot's call, as one run. Its pages stand in the slot's table. One
/// lane.
template <class Control, class Pool> __device__ void openRunOfCall(Control &c, Pool &pool, int slot) {
  const abi::LaunchParams &p = c.params();
  const auto &r = c.seated(slot);
  const bool late = c.flags & kLastLayer;
  const int count = late ? c.taken[slot] : c.unreadRows(slot), first = c.firstPlace(pool, slot),
            last = first + count - 1;
  if (p.logits && !p.replay && (!Control::several || Pool::model == 0)) // notes that the line has no logits
    c.logitsLine(pool, slot, chainRow(slot, 0, last, 0), 0);
  openRun(*c.pass, p, c.order[slot], {slot, c.since[slot], count, first, int(r.tokenBegin) + first});
}

/// Tells all CTAs the rows of the pass, and writes the page tables. One warp per slot. `again`: the pass runs in
/// pieces, and this is another one.
template <class Control, class Pool> __device__ void fillRows(Control &c, Pool &pool, bool again = false) {
  using Config = typename Control::Config;
  const abi::LaunchParams &p = c.params();
  if constexpr (Control::tellsFresh)
    if (c.fresh) // what was written is there for all who see the rows' words
      __threadfence();
#pragma unroll 1
  for (int s = warpId(); s < Config::slots; s += kConsumerWarps) {
    const int count = c.taken[s];
    if (count < 0)
      continue;
    auto &r = c.seated(s);
    const auto [from, to, begin] = rowsOfPiece(c, s);
    const int firstPlace = c.firstPlace(pool, s), added = c.newPages[s], top = c.pageTop[s];
    const u32 flagsOfCall = c.callFlags[s] & (kOfPrompt - 1);
#pragma unroll 1
    for (int i = from + laneId(); i < to; i += 32) {
      const int place = firstPlace + i;
      Row row = chainRow(s, pool.fedToken(s, place), place, flagsOfCall);
      if ((c.callFlags[s] & kLastRow) && i + 1 < count)
        row.flags &= ~u32(RowWantsLogits);
      if constexpr (Pool::trees)
        if (pool.someFree[s]) {
          row.position = pool.rowWord(s, Pool::Position, place);
          row.visible = pool.rowWord(s, Pool::Visible, place);
          row.parent = pool.rowWord(s, Pool::Parent, place);
        }
      if constexpr (Control::queries) {
        if ((c.callFlags[s] & kLastRow) && i < c.unreadRows(s))
          noReducedWords(c, begin + i);
        else if (c.plain[s] ? !plainRow(c, s, i, count, begin + i)
                            : !queriesOfRow(c, Pool::vocab, s, i, count, begin + i, row.position, r.promptLen))
          row.flags &= ~u32(RowWantsLogits);
      }
      const int line = p.logits && (!Control::several || Pool::model == 0 || p.replay)
                           ? c.logitsLine(pool, s, row, c.rowsDone + rowsBefore(c) + begin + i)
                           : -1;
      int page = pool.pageAt(s, place / Pool::pageTokens, top), inPage = place % Pool::pageTokens;
      if constexpr (Pool::indexed)
        if (place < pool.sealedOf(s) * Pool::pageTokens) {
          page = Pool::pages + (begin + i) / Pool::pageTokens;
          inPage = (begin + i) % Pool::pageTokens;
        }
      if constexpr (Pool::trees)
        if (passOf<Config>(*c.pass).someFree)
          openPath(c, pool, s, begin + i, row);
      int source = row.token;
      if constexpr (Control::late)
        if (c.pass->wantLogits & kLastLayer)
          source = c.since[s] + i;
      openRow(*c.pass, p, begin + i, row, page * Pool::pageTokens + inPage, line, source);
    }
    __syncwarp(); // all lanes have read the last page
    if (again)
      continue;
    pool.take(s, top, added);
    __syncwarp();
    if constexpr (Control::wide)
      if (laneId() == 0 && c.isWide() && c.unreadRows(s) > 0)
        openRunOfCall(c, pool, s);
    if (laneId() == 0) {
      pool.setHeld(s, pool.held[s] + added);
      r.served = 1;
      r.rows += count;
      r.passes += count > 0;
      if constexpr (abi::kModels > 1)
        r.passesOf[Pool::model] += count > 0;
    }
    __syncwarp();
  }
}

/// Tells of rows whose queries go by it what their text is. The rows themselves are on their way by then. All
/// consumers.
template <class Control, class Pool> __device__ void tellTexts(Control &c, Pool &pool) {
  using Config = typename Control::Config;
  if constexpr (hasEdits<Config>()) {
    const abi::LaunchParams &p = c.params();
    if (!(c.pass->wantLogits & kQueries))
      return;
#pragma unroll 1
    for (int s = warpId(); s < Config::slots; s += kConsumerWarps) {
      const int count = c.taken[s];
      if (count < 0 || c.plain[s])
        continue;
      const abi::Settings &of = p.settings[c.request[s]];
      if (of.edits == abi::kNone || !of.byText)
        continue;
      const auto &r = c.seated(s);
      const auto &call = QueryMemory<Config>::ofSlot(p, s);
      const KnownText known = countText(c, r, s);
      const int firstPlace = c.firstPlace(pool, s);
      const auto [from, to, begin] = rowsOfPiece(c, s);
#pragma unroll 1
      for (int i = from + laneId(); i < to; i += 32) {
        if ((c.callFlags[s] & kLastRow) && i < c.unreadRows(s))
          continue;
        bool reads = false;
#pragma unroll 1
        for (int q = 0; q < call.count; ++q) {
          const CallQuery &query = call.queries[q];
          const auto rows = query.rowsOf(count);
          if (!query.editedByRequest() || query.ahead != 0 || !rows.has(i))
            continue;
          const int lines[] = {keptRow(c, s, query.keptBy(CallQuery::Reads), i).line,
                               keptRow(c, s, query.keptBy(CallQuery::Minus), i - rows.first).line};
          reads = reads || lines[0] == 0;
          for (const int line : lines)
            if (line < 0) // the request may have more tokens than when it was kept
              if (abi::RowText &text = TextMemory<Config>::row(p, TextMemory<Config>::ofKept(line));
                  text.prefix < 0 && text.numTokens != r.numTokens)
                text.prefix = text.numTokens;
        }
        if (reads)
          tellText(c, pool, r, s, firstPlace + i, begin + i, known);
        if (const int line = lineOfKept(c, call, s, i, count, 0); line < 0)
          tellText(c, pool, r, s, firstPlace + i, TextMemory<Config>::ofKept(line), known);
      }
      __syncwarp();
    }
  }
}

/// How many queries the rows have.
template <class Control> __device__ __forceinline__ void tellRowQueries(Control &c) {
  if constexpr (Control::queries) {
    if (c.numRows == 0 || !(c.pass->wantLogits & kQueries)) // without rows there is no pass
      return;
    consumerSync();
    if (threadIdx.x == 0)
      reinterpret_cast<abi::QueryHeader *>(c.params().queries)->count = c.rowQueries;
  }
}

/// Of a pass that runs in pieces: whether it has more of them. Then the next one is open. All consumers.
template <class Control> __device__ bool nextPiece(Control &c) {
  consumerSync();
  const bool more = c.unread > 0 && (c.to < c.unread || c.readLeft > 0);
  if (!more && !c.isWide())
    return false;
  if (c.params().trace && warpId() == 0)
    tracePiece(c);
  consumerSync();
  if (!more) { // a wide piece: no row is left that traceRows() could write
    if (threadIdx.x == 0)
      c.from = c.unread;
    return false;
  }
  c.pools.each([&](auto &pool) {
    if (pool.model != c.pass->model)
      return;
    if (threadIdx.x == 0)
      openPiece(c, pool);
    consumerSync();
    fillRows(c, pool, true);
    tellTexts(c, pool);
  });
  tellRowQueries(c);
  return true;
}

/// Forms the pass of the calls that wait for it. The model runs when `c.numRows` is not 0. A barrier of the CTA must
/// follow before other warps read the rows.
template <class Pool, class Control> __device__ void formPass(Control &c) {
  auto &pool = c.template poolOf<Pool>();
  consumerSync();
  if (warpId() == 0)
    chooseCalls(c, pool);
  consumerSync();
  fillRows(c, pool);
  tellTexts(c, pool);
  tellRowQueries(c);
}
template <class Control> __device__ void formPass(Control &c) { formPass<typename Control::FirstPool>(c); }

/// The same of several passes: number `number` of the tick's list, of calls in a loop, or outside of all. Whether
/// the model runs.
template <class Pool, class Control> __device__ bool formPass(Control &c, int number, int site = -1) {
  bool waits = false; // some slot of this warp
#pragma unroll 1
  for (int s = warpId(); s < Control::Config::slots; s += kConsumerWarps)
    waits = waits || c.template waitsFor<Pool>(s, site);
  if (!consumerSyncAny(waits))
    return false;
  if (warpId() == 0)
    chooseCalls(c, c.template poolOf<Pool>(), site);
  consumerSync();
  fillRows(c, c.template poolOf<Pool>());
  tellTexts(c, c.template poolOf<Pool>());
  tellRowQueries(c);
  if (threadIdx.x == 0)
    c.after = number;
  return c.numRows > 0;
}

/// Whether some call was served in this round of a loop. All consumer threads.
template <class Control> __device__ bool servedRound(Control &c) {
  consumerSync();
  const bool some = c.servedOfRound > 0;
  consumerSync();
  if (threadIdx.x == 0)
    c.servedOfRound = 0;
  if constexpr (Control::loopsNest) // parts count in it, too
    consumerSync();
  return some;
}

/// Whether a lane's rows of those that a call reads have a NaN in another result than the logits. Their words say so.
template <class Control> __device__ bool nanOfOtherResult(Control &c, int slot, int served) {
  using Memory = QueryMemory<typename Control::Config>;
  const abi::LaunchParams &p = c.params();
  const auto &call = Memory::ofSlot(p, slot);
  bool nan = false;
#pragma unroll 1
  for (int i = 0; i < call.count; ++i) {
    const CallQuery &query = call.queries[i];
    const auto rows = query.rowsOf(served);
    if (query.result == 0)
      continue;
    for (int row = rows.first + laneId(); row < rows.last; row += 32)
      nan = nan || loadWord(p.reduced + (c.rowBegin[slot] + row) * Memory::reducedWords + 1 + query.place) ==
                       (query.isEdited() ? abi::kNanOfEdited : ~0u);
  }
  return nan;
}

/// With drafts of the host, the models after the first one guess these: the tokens that the call's rows gave are
/// replaced, when their pass has run. Of several tokens of a row the first one is. The request's warp.
template <class Control> __device__ __noinline__ void putDrafts(Control &c, int number, int slot, int promptLen) {
  const abi::LaunchParams &p = c.params();
  const int *const drafts = p.oracle + (long long)number * p.oracleStride;
  const int begin = c.rowBegin[slot], served = c.taken[slot], firstRead = c.unreadRows(slot);
  const auto draftAt = [&](int row, int ahead) { // -1: none
    const int at = c.pass->rows[begin + row].position + 1 + ahead - promptLen;
    return at >= 0 && at < p.oracleStride ? drafts[at] : -1;
  };
#pragma unroll 1
  for (int row = firstRead + laneId(); row < served; row += 32) {
    const int draft = draftAt(row, 0);
    if constexpr (keptFieldsOf<typename Control::Config>() > 0) // the best token of a kept row is said with it
      if (!c.plain[slot] &&
          lineOfKept(c, QueryMemory<typename Control::Config>::ofSlot(p, slot), slot, row, served, 0) < 0)
        continue;
    if (draft >= 0 && c.pass->rows[begin + row].result >= 0)
      c.pass->rows[begin + row].result = draft;
  }
  if constexpr (Control::queries) {
    using Memory = QueryMemory<typename Control::Config>;
    const auto &call = Memory::ofSlot(p, slot);
    const int queries = c.plain[slot] ? 0 : call.count;
#pragma unroll 1
    for (int i = 0; i < queries; ++i) {
      const CallQuery &query = call.queries[i];
      const bool tokens = query.reducer == ReducerKind::ArgMax || query.reducer == ReducerKind::Sample ||
                          (query.reducer == ReducerKind::TopK && query.part == 0);
      const auto rows = query.rowsOf(served);
#pragma unroll 1
      for (int row = rows.first + laneId(); tokens && query.count > 0 && row < rows.last; row += 32) {
        u32 *const words = p.reduced + (begin + row) * Memory::reducedWords + 1 + query.place;
        const int draft = draftAt(row, query.ahead);
        const u32 first = loadWord(words);
        if (draft < 0 || first == ~0u)
          continue;
#pragma unroll 1
        for (int k = 1; k < query.count; ++k)
          if (loadWord(words + k) == u32(draft))
            words[k] = first;
        words[0] = u32(draft);
      }
    }
  }
  __syncwarp();
}

/// Notes that the model has run on the call's rows. The stage's code after the call follows.
template <class Pool, class Control> __device__ void completeCall(ActivationOf<Control> &t) {
  auto &r = t.r;
  if (Control::loops ? r.served != 1 : !r.served)
    return;
  auto &pool = t.c.template poolOf<Pool>();
  auto &kv = pool.kvOf(r);
  const Results results = t.results();
  bool nan = false; // among rows that are read: the others have no results
#pragma unroll 1
  for (int i = t.c.unreadRows(t.slot) + laneId(); i < results.size(); i += 32)
    nan = nan || results[i] == RowIsNan;
  if constexpr (resultsOf<typename Control::Config>() > 1)
    nan = nan || (!t.c.plain[t.slot] && nanOfOtherResult(t.c, t.slot, results.size()));
  if constexpr (Control::queries && !Control::several) // else tracePass() did
    if (t.p.trace && t.c.plain[t.slot])
      tracePlain(t.c, t.slot);
  const bool draft = t.c.callFlags[t.slot] & RowIsDraft;
  const int begin = pool.firstPlace(t.slot, kv.len, draft), end = begin + results.size();
  int compared = min(end, r.numTokens); // issue() compared what was fed below that
  if constexpr (PoolState<Pool>::trees)
    if (pool.someFree[t.slot])
      compared = pool.plainUpto(t.slot, begin, compared);
  __syncwarp();
  if (laneId() == 0) {
    if (pool.known[t.slot] >= begin)
      pool.known[t.slot] = compared;
    kv.end = end;
    if (!draft)
      kv.len = end;
    if constexpr (PoolState<Pool>::continues)
      pool.runRows[t.slot] = end - kv.len;
  }
  __syncwarp();
  if constexpr (Pool::model > 0)
    if (t.p.oracle && !t.c.isUnread(t.slot))
      putDrafts(t.c, t.number, t.slot, r.promptLen);
  if (__any_sync(~0u, nan))
    t.fail(kNumeric);
}
template <class Control> __device__ void completeCall(ActivationOf<Control> &t) {
  completeCall<typename Control::FirstPool>(t);
}

} // namespace megalith::device
