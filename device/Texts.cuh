//===- Texts.cuh - what requests' settings take of their texts ------------===//
//
// Some settings go by the text in front of a token (docs/language.md, "Settings that follow a row's own text"): which
// tokens it has, and in which state of the request's format it leaves the automaton. Control keeps both for the tokens
// of each request in a slot (abi::SlotText). Before a pass it tells of each row that is read what stands behind these
// on the row's path (abi::RowText): drafts. So nothing is rolled back when drafts are rejected.
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
  static constexpr long long ofPass = readRowsOf<Config>(), rows = ofPass + Config::keptTexts,
                             vocab = Config::requestVocab, path = Config::textPath,
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
      TextMemory<Config>::slot(p, slot) = {-1};
}

/// Notes how far the text of a slot is known. One thread.
__device__ __forceinline__ void keepText(abi::SlotText &text, int counted, int state) {
  text.counted = counted;
  text.state = state;
}

/// What control knows of the text of the request in a slot, at hand. All lanes have the same.
struct KnownText {
  int counted, state, eosCount, vocabulary, complete, final;
  bool penalties;
  const char *ends, *format, *spellings; ///< `format` null: it has none
  const u16 *next;

  __device__ __forceinline__ bool isEos(int token) const {
    bool is = false;
#pragma unroll 1
    for (int i = 0; i < eosCount; ++i)
      is = is || (int)loadWord(ends + 4 * i) == token;
    return is;
  }
  __device__ __forceinline__ bool isComplete(int from) const { return from >= complete && from != abi::kDeadState; }
  /// And nothing can follow.
  __device__ __forceinline__ bool isFinal(int from) const { return from >= final && from != abi::kDeadState; }
  /// The state behind a token; kDeadState: no text goes on so. Each byte is a load that waits for the one before.
  __device__ int step(int from, int token) const {
    if (from == abi::kDeadState || !isTokenOf(token, vocabulary))
      return abi::kDeadState;
    const Words4 spelling = loadWords(spellings + 16ll * token);
    const int length = (int)spelling.x;
    if (length == 0)
      return abi::kDeadState;
    const char *const more = spellings - (int)sizeof(abi::TokenBytes) + (int)spelling.y;
    u32 word = 0;
#pragma unroll 1
    for (int i = 0; i < length && from != abi::kDeadState; ++i) {
      if (i % 4 == 0)
        word = length > 12 ? loadWord(more + i) : i == 0 ? spelling.y : i == 4 ? spelling.z : spelling.w;
      from = (int)loadHalfWord(next + from * 256 + (int)(word >> i % 4 * 8 & 255));
    }
    return from;
  }
  /// Where the mask of a state stands, bytes from LaunchParams::edits.
  __device__ __forceinline__ long long maskAt(const abi::LaunchParams &p, int of) const {
    const Words4 a = loadWords(format), b = loadWords(format + 16);
    const int number = (int)loadWord(format + (int)b.y + 4 * of);
    return format - p.edits + (int)b.z + 4ll * number * (int)a.w;
  }
};

/// Drafts along the text about which a format leaves no choice, as it is most likely spelled: up to `width` tokens, up
/// to one that may not come. `edits`: of the request. Returns how many. The warp.
inline __device__ __noinline__ int draftForced(const KnownText &known, const char *edits, int *tokens, int width) {
  const Words4 a = loadWords(edits), b = loadWords(edits + 16);
  const int tokensOfSets = 32 * (int)a.w;
  const auto isIn = [&](u32 set, int token) {
    return token < tokensOfSets && loadWord(edits + set + token / 32 * 4) >> (token & 31) & 1;
  };
  const char *const likely = known.format + (int)loadWord(known.format + 32);
  int count = 0;
#pragma unroll 1
  for (int state = known.state; count < width && state != abi::kDeadState; ++count) {
    const int token = (int)loadWord(likely + 4 * state);
    if (token < 0 || known.isEos(token) || ((int)b.x != abi::kNone && !isIn(b.x, token)) ||
        ((int)b.y != abi::kNone && isIn(b.y, token)))
      break;
    if (laneId() == 0)
      tokens[count] = token;
    state = known.step(state, token);
  }
  __syncwarp();
  return count;
}

/// An abi::SlotText, at hand.
__device__ __forceinline__ KnownText knownText(const abi::LaunchParams &p, const Words4 (&w)[4]) {
  const long long format = longOf(w[1].z, w[1].w);
  return {(int)w[0].x,
          (int)w[0].y,
          (int)w[0].w,
          (int)w[2].z,
          (int)w[2].w,
          (int)w[3].x,
          w[0].z != 0,
          p.edits + longOf(w[1].x, w[1].y),
          format == abi::kNoFormat ? nullptr : p.edits + format,
          p.edits + longOf(w[2].x, w[2].y),
          reinterpret_cast<const u16 *>(p.edits + format + (int)w[3].y)};
}
__device__ __forceinline__ KnownText loadText(const abi::LaunchParams &p, const abi::SlotText &text) {
  Words4 w[4];
#pragma unroll
  for (int i = 0; i < 4; ++i)
    w[i] = loadWords(reinterpret_cast<const char *>(&text) + 16 * i);
  return knownText(p, w);
}

/// What is known of the text of a request with edits at place `edits` before any token was counted.
inline __device__ __noinline__ KnownText beginText(const abi::LaunchParams &p, int place, abi::SlotText *keep) {
  const char *const edits = p.edits + 16ll * place;
  const Words4 a = loadWords(edits), c = loadWords(edits + 32), d = loadWords(edits + 48);
  abi::SlotText text = {0,
                        0,
                        __uint_as_float(a.x) != 1.0f || __uint_as_float(a.y) != 0.0f || __uint_as_float(a.z) != 0.0f,
                        (int)c.w,
                        16ll * place + (int)c.y,
                        abi::kNoFormat,
                        0,
                        0,
                        0,
                        0,
                        0,
                        {0, 0}};
  if ((int)d.x != abi::kNone) {
    text.format = 16ll * (int)d.x;
    const Words4 f = loadWords(p.edits + text.format), g = loadWords(p.edits + text.format + 16);
    text.state = (int)f.x;
    text.complete = (int)f.y;
    text.final = (int)f.z;
    text.next = (int)g.x;
    text.spellings = 16ll * (int)g.w + (int)sizeof(abi::TokenBytes);
    text.vocabulary = (int)loadWord(p.edits + 16ll * (int)g.w);
  }
  const Words4 *const words = reinterpret_cast<const Words4 *>(&text);
  const Words4 w[4] = {words[0], words[1], words[2], words[3]};
  if (keep && laneId() == 0)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      reinterpret_cast<Words4 *>(keep)[i] = w[i];
  return knownText(p, w);
}

/// Brings what is known of the text of the request in a slot up to its tokens. The slot's warp.
template <class Control, class Request>
__device__ __noinline__ KnownText countText(Control &c, const Request &r, int slot) {
  using Config = typename Control::Config;
  using Memory = TextMemory<Config>;
  const abi::LaunchParams &p = c.params();
  abi::SlotText &text = Memory::slot(p, slot);
  KnownText known = loadText(p, text);
  if (known.counted == r.numTokens)
    return known;
  const bool fresh = known.counted < 0;
  if (fresh) {
    __syncwarp(); // all lanes have read it
    known = beginText(p, p.settings[c.request[slot]].edits, &text);
    __syncwarp();
  }
  const int *const tokens = p.tokens + r.tokenBegin;
  if (known.penalties) {
    u32 *const seen = reinterpret_cast<u32 *>(p.texts + Memory::seenAt(slot));
    int *const counts = reinterpret_cast<int *>(p.texts + Memory::countsAt(slot));
    if (fresh) {
      constexpr int words = (int)(Memory::slotBytes - (int)sizeof(abi::SlotText)) / 16;
      for (int i = laneId(); i < words; i += 32)
        reinterpret_cast<Words4 *>(seen)[i] = {0, 0, 0, 0};
      __syncwarp();
    }
    constexpr int together = 8; // of a long prompt several loads are on their way
#pragma unroll 1
    for (int base = known.counted; base < r.numTokens; base += 32 * together) {
      int token[together];
#pragma unroll
      for (int k = 0; k < together; ++k) {
        const int i = base + 32 * k + laneId();
        token[k] = i < r.numTokens ? (int)loadWord(tokens + i) : -1;
      }
#pragma unroll
      for (int k = 0; k < together; ++k)
        if (isTokenOf(token[k], Config::requestVocab)) {
          atomicOr(seen + token[k] / 32, 1u << (token[k] & 31));
          if (base + 32 * k + laneId() >= r.promptLen)
            atomicAdd(counts + token[k], 1);
        }
    }
  }
  if (known.format) {
#pragma unroll 1
    for (int i = max(known.counted, r.promptLen); i < r.numTokens; ++i)
      if (const int token = (int)loadWord(tokens + i); !known.isEos(token))
        known.state = known.step(known.state, token);
  }
  known.counted = r.numTokens;
  __syncwarp();
  if (laneId() == 0)
    keepText(text, known.counted, known.state);
  __syncwarp();
  return known;
}

/// Writes the text of a row of a call as number `number` of TextMemory. `known`: of the request's tokens. Any thread.
template <class Control, class Pool, class Request>
__device__ void tellText(Control &c, Pool &pool, const Request &r, int slot, int place, int number,
                         const KnownText &known) {
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
  abi::RowText text = {Memory::seenAt(slot),
                       Memory::countsAt(slot),
                       0,
                       r.tokenBegin,
                       abi::kNoMask,
                       0,
                       0,
                       -1,
                       r.promptLen,
                       r.numTokens,
                       0};
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
  if (known.format && position + 1 >= r.promptLen) {
    const int *of = reinterpret_cast<const int *>(
        (tree || kept ? p.texts : reinterpret_cast<const char *>(p.callTokens)) + text.path);
    int count = text.pathTokens, state = known.state;
    if (text.prefix >= 0) {
      state = (int)loadWord(known.format);
      of = tokens + r.promptLen;
      count = text.prefix - r.promptLen;
    }
#pragma unroll 1
    for (int i = 0; i < count && state != abi::kDeadState; ++i) {
      const int token = (int)loadWord(of + i);
      state = known.isEos(token) ? abi::kDeadState : known.step(state, token);
    }
    text.mask = state == abi::kDeadState ? abi::kNoTokens : known.maskAt(p, state);
    if (known.isComplete(state) && !known.isFinal(state))
      text.flags |= abi::kMayEnd;
  }
  Memory::row(p, number) = text;
}

/// Of tokens that are appended to the answer of a request with a format, how many can be: up to one behind which
/// nothing comes, and none that the format refuses.
struct FormatCut {
  int count;      ///< the others need not be looked at
  bool ends;      ///< behind these the answer ends
  bool isRefused; ///< what follows is refused
  int refused;    ///< this
  int state;      ///< behind them
  bool isAll;     ///< nothing else is known of the text
};
/// `known`: of the request's tokens. The warp.
template <class View>
__device__ __forceinline__ FormatCut cutByFormat(const KnownText &known, const View &view, int most, int vocab) {
  int state = known.state;
#pragma unroll 1
  for (int i = 0; i < most; ++i) {
    const int token = view[i];
    if (!isTokenOf(token, vocab)) // append() says so
      return {i + 1, false, false, 0, state};
    const bool ends = known.isEos(token);
    const int next = !ends ? known.step(state, token) : known.isComplete(state) ? state : abi::kDeadState;
    if (next == abi::kDeadState)
      return {i, false, true, token, state};
    state = next;
    if (ends || known.isFinal(state))
      return {i + 1, !ends, false, 0, state, !known.penalties};
  }
  return {most, false, false, 0, state, !known.penalties};
}

} // namespace megalith::device
