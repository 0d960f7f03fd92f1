//===- IssueCalls.cuh - what a stage's call is to be fed -------------------===//
//
// A stage activation leaves a call's tokens and its logits queries with the slot; ChooseCalls.cuh gives them to passes.
//===----------------------------------------------------------------------===//
#pragma once

#include "megalith/ControlTrees.cuh"
#include "megalith/Control.cuh"

namespace megalith::device {

/// The pool whose model a call is of.
template <class Call, class First> struct PoolOfCall {
  using Pool = First;
};
template <class Call, class First>
  requires requires { typename Call::Pool; }
struct PoolOfCall<Call, First> {
  using Pool = typename Call::Pool;
};

/// Whether what is asked of a call is asked of its last row alone, and it may have more rows than may be read.
template <class Call> __device__ constexpr bool readsLastRow() {
  if constexpr (requires { Call::lastRow; })
    return Call::lastRow;
  return false;
}

/// Whether it was given a number of rows that the call need not have.
template <class Query> __device__ constexpr bool mayReadTooMany() {
  return requires(const Query &query) { query.view; } || fieldsOfQuery<typename Query::Reducer>() != 0 ||
         requires { typename Query::Reducer::Hand; };
}
template <class Config, class Query>
__device__ bool readsTooMany(const abi::LaunchParams &p, const Query &, int slot, int rows) {
  if constexpr (mayReadTooMany<Query>())
    return QueryMemory<Config>::ofSlot(p, slot).queries[Query::Reducer::index].readsTooMany(rows);
  return false;
}
/// The slot waits at the call's site from now on. `queries`: of the rows' logits. The whole warp.
template <class Call, class Activation, class View, class Hangs, class... Queries>
__device__ __forceinline__ void issueRows(Activation &t, const View &view, const Hangs &hangs, int line,
                                          const Queries &...queries) {
  using Control = typename Activation::Control;
  using Config = typename Activation::Config;
  using Pool = typename PoolOfCall<Call, typename Activation::FirstPool>::Pool;
  constexpr int atHand = PoolState<Pool>::atHand;
  const int slot = t.slot;
  auto &pool = t.template poolOf<Pool>();
  if constexpr (PoolState<Pool>::trees)
    if (!t.fault)
      noteRows<Call>(t, pool, view.size(), hangs, line);
  if (t.fault) {
    t.fail(t.fault);
    return;
  }
  const int len = pool.firstPlace(slot, t.template kvLen<Pool>(), Call::draft);
  const int size = view.size(), wanted = Call::chunk > 0 ? min(size, min(Call::chunk, Config::rowsPerPass)) : size;
  const int from = pool.keepFrom(slot, t.template kvLen<Pool>()), before = len - from;
  // A draft that the model lacks cannot be accepted, and what a model after the first one gives are drafts.
  constexpr bool mustKnow = Pool::model == 0 && !Call::draft;
  // The tokens do not change while the call waits. So the rows that it must not feed are known now.
  int *fed = pool.fedTokens(slot) + before;
  const Span known = t.tokens();
  const int count = min(wanted, Config::rowsPerPass);
  const bool ofPrompt =
      Pool::model == 0 && !Call::draft && t.template kvLen<Pool>() < promptLinesOf(t.p, t.r, t.number);
  int badRow = Config::rowsPerPass, badCode = 0;
  bool deadRows = false; // no token has a row that the request's format refuses
  if constexpr (hasEdits<Config>())
    deadRows = t.hasFormat();
  // Calls that may have many rows load several words of a lane before they look at the first one.
  constexpr int atOnce = Call::chunk > 0 || readsLastRow<Call>() ? 8 : 1;
#pragma unroll 1
  for (int base = 0; base < count; base += 32 * atOnce) {
    int tokens[atOnce], expected[atOnce];
#pragma unroll
    for (int j = 0; j < atOnce; ++j) {
      const int i = base + 32 * j + laneId();
      tokens[j] = expected[j] = -1;
      if (i >= count)
        continue;
      int position = len + i;
      if constexpr (PoolState<Pool>::trees)
        position = pool.rowWord(slot, pool.Position, position);
      tokens[j] = view[i];
      expected[j] = position < t.r.numTokens ? known[position] : tokens[j];
    }
#pragma unroll
    for (int j = 0; j < atOnce; ++j) {
      const int first = base + 32 * j, i = first + laneId(), token = tokens[j];
      int code = 0;
      if (i < count) {
        fed[i] = token;
        if (before + i < atHand)
          pool.callStart[slot][before + i] = token;
        if (!isTokenOf(token, mustKnow ? Pool::vocab : 0x7fffffff) && !(token == -1 && deadRows))
          code = kTokenRange;
        else if (expected[j] != token)
          code = kFeedMismatch;
        else if (!pool.maySeal(slot, len + i))
          code = kSealedPage;
      }
      const u32 bad = __ballot_sync(~0u, code != 0);
      if (bad && !badCode) {
        badRow = first + __ffs(bad) - 1;
        badCode = __shfl_sync(~0u, code, __ffs(bad) - 1);
      }
    }
  }
  if constexpr (Control::queries) {
    bool edited = false;
    if constexpr ((mayBeEdited<typename Queries::Reducer>() || ...))
      edited = t.edits() != abi::kNone;
    const bool plain = sizeof...(Queries) <= 1 && !edited && (queries.isPlain() && ...);
    if (!plain)
      (queries.template store<Config>(t.p, slot, edited), ...);
    if constexpr (!Call::chunk && (mayReadTooMany<Queries>() || ...)) {
      __syncwarp();
      if (!badCode && (readsTooMany<Config>(t.p, queries, slot, size) || ...)) {
        badRow = -1;
        badCode = kIndexRange;
      }
    }
    if (laneId() == 0) {
      if (!plain)
        QueryMemory<Config>::ofSlot(t.p, slot).count = int(sizeof...(Queries));
      t.c.plain[slot] = plain;
      t.c.plainFirst[slot] = t.c.plainLast[slot] = 0;
      if (plain)
        ((t.c.plain[slot] = 1 + queries.words, t.c.plainFirst[slot] = queries.first,
          t.c.plainLast[slot] = queries.last),
         ...);
    }
  }
  __syncwarp();
  if (laneId() == 0) {
    t.r.waitingSite = Call::site;
    t.r.waitingSince = t.c.tick;
    t.r.served = 0;
    t.r.callCount = wanted;
    pool.fedFrom[slot] = from;
    if constexpr (Control::loops)
      t.c.callModel[slot] = Pool::model | (Call::ownPass + 1) << 8;
    else if constexpr (Control::several)
      t.c.callModel[slot] = Pool::model;
    t.c.badRow[slot] = badRow;
    t.c.badCode[slot] = badCode;
    t.c.callChunk[slot] = Call::chunk;
    t.c.callFlags[slot] = (Call::wantsLogits ? RowWantsLogits : 0u) | (Call::draft ? RowIsDraft : 0u) |
                          (ofPrompt ? kOfPrompt : 0u) | (readsLastRow<Call>() ? kLastRow : 0u);
  }
  __syncwarp();
}

} // namespace megalith::device
