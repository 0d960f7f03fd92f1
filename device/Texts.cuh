//===- Texts.cuh - what requests' settings take of their texts ------------===//
//
// Some settings go by the text in front of a token (docs/language.md, "Settings that follow a row's own text"): which
// tokens it has, and in which state of the request's format it leaves the automaton. Control keeps both for the tokens
// of each request in a slot (abi::SlotText). Before a pass it tells of each row that is read what stands behind these on
// the row's path (abi::RowText): drafts. So nothing is rolled back when drafts are rejected.
//===----------------------------------------------------------------------===//
#pragma once

#include "megalith/LogitsQueries.cuh"

namespace megalith::device {

/// Whether settings of requests may change rows of logits.
template <class Config> __device__ constexpr bool hasEdits() {
  if constexpr (requires { Config::edits; })
    return Config::edits;
  else
    return false;
}

/// LaunchParams::texts: of the rows of a pass, then of those that requests keep. A path that is no chain, or that is
/// kept, is gathered: of at most so many tokens.
template <class Config> struct TextMemory {
  static constexpr long long ofPass = readRowsOf<Config>(), rows = ofPass + Config::keptTexts, vocab = Config::requestVocab, path = Config::textPath,
                             begin = abi::slotTextsBegin(rows, path), slotBytes = abi::slotTextBytes(vocab),
                             seenWords = abi::textWords(vocab);
  /// The number of a row that stands in line `line` of LaunchParams::selection, below 0.
  __device__ __forceinline__ static int ofKept(int line) { return (int)ofPass - 1 - line; }
  __device__ __forceinline__ static abi::RowText &row(const abi::LaunchParams &p, int number) {
    return reinterpret_cast<abi::RowText *>(p.texts)[number];
  }
  __device__ __forceinline__ static long long pathAt(int number) {
    return rows * (int)sizeof(abi::RowText) + number * abi::rowPathBytes(path);
  }
  __device__ __forceinline__ static long long slotAt(int slot) { return begin + slot * slotBytes; }
  __device__ __forceinline__ static long long seenAt(int slot) { return slotAt(slot) + (int)sizeof(abi::SlotText); }
  __device__ __forceinline__ static long long countsAt(int slot) { return seenAt(slot) + 4 * seenWords; }
  __device__ __forceinline__ static abi::SlotText &slot(const abi::LaunchParams &p, int slot) {
    return *reinterpret_cast<abi::SlotText *>(p.texts + slotAt(slot));
  }
};

/// A request takes a slot: nothing is known there of its text. One thread.
template <class Config> __device__ __forceinline__ void openText(const abi::LaunchParams &p, int slot) {
  if constexpr (hasEdits<Config>())
    if (p.texts)
      TextMemory<Config>::slot(p, slot).counted = -1;
}

/// What changes the rows of a request, of that what control reads.
struct EditsOfRequest {
  const abi::LaunchParams &p;
  const char *edits;
  bool penalties;
  int ends, eosCount;
  const char *format; ///< null: it has none

  __device__ __forceinline__ EditsOfRequest(const abi::LaunchParams &p, int place)
      : p(p), edits(p.edits + 16ll * place) {
    const Words4 a = loadWords(edits), c = loadWords(edits + 32), d = loadWords(edits + 48);
    penalties = __uint_as_float(a.x) != 1.0f || __uint_as_float(a.y) != 0.0f || __uint_as_float(a.z) != 0.0f;
    ends = (int)c.y;
    eosCount = (int)c.w;
    format = (int)d.x == abi::kNone ? nullptr : p.edits + 16ll * (int)d.x;
  }
  __device__ __forceinline__ bool isEos(int token) const {
    bool is = false;
#pragma unroll 1
    for (int i = 0; i < eosCount; ++i)
      is = is || (int)loadWord(edits + ends + 4 * i) == token;
    return is;
  }
};

/// A format, for a thread that walks it. Each step is a load that waits for the one before, so what else it takes comes
/// beside it.
struct FormatWalk {
  const char *format, *classOf, *next, *tokens;
  const abi::LaunchParams &p;
  int classes, start, vocabulary, offsets;

  __device__ __forceinline__ FormatWalk(const abi::LaunchParams &p, const char *format) : format(format), p(p) {
    const Words4 a = loadWords(format), b = loadWords(format + 16), c = loadWords(format + 32);
    classes = (int)a.y;
    start = (int)a.z;
    classOf = format + (int)b.x;
    next = format + (int)b.y;
    tokens = p.edits + 16ll * (int)c.y;
    const Words4 of = loadWords(tokens);
    vocabulary = (int)of.x;
    offsets = (int)of.y;
  }
  __device__ __forceinline__ static int byteAt(const char *at) {
    const auto address = reinterpret_cast<u64>(at);
    return loadWord(reinterpret_cast<const char *>(address & ~3ull)) >> 8 * (int)(address & 3) & 255;
  }
  /// The state behind a token; kDeadState: no text goes on so.
  __device__ int step(int state, int token) const {
    if (state == abi::kDeadState || !isTokenOf(token, vocabulary))
      return abi::kDeadState;
    const char *const at = tokens + offsets + 4ll * token;
    int byte = (int)loadWord(at);
    const int end = (int)loadWord(at + 4);
    if (byte == end)
      return abi::kDeadState;
    constexpr int together = 4;
#pragma unroll 1
    for (; byte < end && state != abi::kDeadState; byte += together) {
      int classesOf[together];
#pragma unroll
      for (int k = 0; k < together; ++k)
        classesOf[k] = byte + k < end ? byteAt(tokens + byte + k) : -1;
#pragma unroll
      for (int k = 0; k < together; ++k)
        if (byte + k < end)
          classesOf[k] = byteAt(classOf + classesOf[k]);
#pragma unroll
      for (int k = 0; k < together; ++k)
        if (byte + k < end && state != abi::kDeadState)
          state = (int)loadHalfWord(next + 2ll * ((long long)state * classes + classesOf[k]));
    }
    return state;
  }
  /// abi::FormatState of a state that is not dead.
  __device__ __forceinline__ int accepts(int state) const {
    return byteAt(format + (int)loadWord(format + 24) + state);
  }
  /// Where its mask stands, bytes from LaunchParams::edits.
  __device__ __forceinline__ long long maskAt(int state) const {
    const Words4 b = loadWords(format + 16);
    const int number = (int)loadWord(format + (int)b.w + 4 * state), bits = (int)loadWord(format + 12);
    return format - p.edits + (int)loadWord(format + 32) + 4ll * number * bits;
  }
};

/// Brings what is known of the text of the request in a slot up to its tokens. Its state behind them. The slot's warp.
template <class Control, class Request>
__device__ __noinline__ int countText(Control &c, const Request &r, int slot, const EditsOfRequest &edits) {
  using Config = typename Control::Config;
  using Memory = TextMemory<Config>;
  const abi::LaunchParams &p = c.params();
  abi::SlotText &text = Memory::slot(p, slot);
  const Words4 was = loadWords(&text);
  int counted = (int)was.x, state = (int)was.y;
  if (counted == r.numTokens)
    return state;
  const int *const tokens = p.tokens + r.tokenBegin;
  u32 *const seen = reinterpret_cast<u32 *>(p.texts + Memory::seenAt(slot));
  int *const counts = reinterpret_cast<int *>(p.texts + Memory::countsAt(slot));
  const bool fresh = counted < 0;
  counted = max(0, counted);
  if (edits.penalties) {
    if (fresh) {
      constexpr int words = (int)(Memory::slotBytes - (int)sizeof(abi::SlotText)) / 16;
      for (int i = laneId(); i < words; i += 32)
        reinterpret_cast<Words4 *>(seen)[i] = {0, 0, 0, 0};
      __syncwarp();
    }
#pragma unroll 1
    for (int i = counted + laneId(); i < r.numTokens; i += 32)
      if (const int token = (int)loadWord(tokens + i); isTokenOf(token, Config::requestVocab)) {
        atomicOr(seen + token / 32, 1u << (token & 31));
        if (i >= r.promptLen)
          atomicAdd(counts + token, 1);
      }
  }
  if (edits.format) {
    const FormatWalk walk(p, edits.format);
    if (fresh)
      state = walk.start;
#pragma unroll 1
    for (int i = max(counted, r.promptLen); i < r.numTokens; ++i)
      if (const int token = (int)loadWord(tokens + i); !edits.isEos(token))
        state = walk.step(state, token);
  }
  __syncwarp();
  if (laneId() == 0)
    *reinterpret_cast<Words4 *>(&text) = {(u32)r.numTokens, (u32)state, 0, 0};
  __syncwarp();
  return state;
}

/// Writes the text of a row of a call as number `number` of TextMemory. `state`: behind the request's tokens. Any
/// thread.
template <class Control, class Pool, class Request>
__device__ void tellText(Control &c, Pool &pool, const Request &r, int slot, int place, int number,
                         const EditsOfRequest &edits, int state) {
  using Memory = TextMemory<typename Control::Config>;
  const abi::LaunchParams &p = c.params();
  bool tree = false;
  const bool kept = number >= (int)Memory::ofPass;
  int position = place;
  if constexpr (Pool::trees)
    if (pool.someFree[slot]) {
      tree = true;
      position = pool.rowWord(slot, Pool::Position, place);
    }
  abi::RowText text = {Memory::seenAt(slot), Memory::countsAt(slot), 0, r.tokenBegin,
                       abi::kNoMask,         0,                      0, -1,
                       r.promptLen,          r.numTokens,            (int)Memory::seenWords};
  const int *const tokens = p.tokens + r.tokenBegin;
  if (position + 1 < r.numTokens) {
    text.prefix = position + 1;
  } else {
    text.pathTokens = position + 1 - r.numTokens;
    if (tree || kept) {
      text.flags = abi::kGathered;
      text.path = Memory::pathAt(number);
      int *const path = reinterpret_cast<int *>(p.texts + text.path);
      int at = place;
#pragma unroll 1
      for (int i = text.pathTokens; i > 0;) {
        path[--i] = pool.fedToken(slot, at);
        if constexpr (Pool::trees)
          at = tree ? pool.rowWord(slot, Pool::Parent, at) : at - 1;
        else
          --at;
      }
    } else {
      text.path = reinterpret_cast<const char *>(pool.fedTokens(slot) + (r.numTokens - pool.fedFrom[slot])) -
                  reinterpret_cast<const char *>(p.callTokens);
    }
  }
  if (edits.format && position + 1 >= r.promptLen) {
    const FormatWalk walk(p, edits.format);
    const int *of = reinterpret_cast<const int *>((tree || kept ? p.texts : reinterpret_cast<const char *>(p.callTokens)) +
                                                  text.path);
    int count = text.pathTokens;
    if (text.prefix >= 0) {
      state = walk.start;
      of = tokens + r.promptLen;
      count = text.prefix - r.promptLen;
    }
#pragma unroll 1
    for (int i = 0; i < count && state != abi::kDeadState; ++i) {
      const int token = (int)loadWord(of + i);
      state = edits.isEos(token) ? abi::kDeadState : walk.step(state, token);
    }
    text.mask = state == abi::kDeadState ? abi::kNoTokens : walk.maskAt(state);
    if (state != abi::kDeadState && walk.accepts(state) == abi::kAccepts)
      text.flags |= abi::kMayEnd;
  }
  Memory::row(p, number) = text;
}

/// Of tokens that are appended to the answer of a request with a format, how many can be: up to one behind which nothing
/// comes, and none that the format refuses.
struct FormatCut {
  int count;       ///< the others need not be looked at
  bool ends;       ///< behind these the answer ends
  bool isRefused;  ///< what follows is refused
  int refused;     ///< this
  int state;       ///< behind them
  bool isAll;      ///< nothing else is known of the text
};
/// The warp.
template <class View>
__device__ FormatCut cutByFormat(const EditsOfRequest &edits, int state, const View &view, int most, int vocab) {
  const FormatWalk walk(edits.p, edits.format);
#pragma unroll 1
  for (int i = 0; i < most; ++i) {
    const int token = view[i];
    if (!isTokenOf(token, vocab)) // append() says so
      return {i + 1, false, false, 0, state};
    const bool ends = edits.isEos(token);
    const int next = !ends                                                                              ? walk.step(state, token)
                     : state != abi::kDeadState && (walk.accepts(state) & abi::kAccepts) ? state
                                                                                         : abi::kDeadState;
    if (next == abi::kDeadState)
      return {i, false, true, token, state};
    state = next;
    if (ends || (walk.accepts(state) & abi::kEnds))
      return {i + 1, !ends, false, 0, state, !edits.penalties};
  }
  return {most, false, false, 0, state, !edits.penalties};
}

} // namespace megalith::device
