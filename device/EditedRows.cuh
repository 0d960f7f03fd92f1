//===- EditedRows.cuh - rows of logits that settings of requests change ---===//
//
// A query of a row that a request's settings change (abi::Edits) does not read the row as the head kept it. When all of
// it is there, each CTA makes its slice of the edited row: numbers of f32, and kRefused where a token may not come. The
// rounds of selection read that. The best token and the drawn one come with it.
//
// The order of the steps is that of docs/language.md; the reference executor has the same in Reduce.cpp.
//===----------------------------------------------------------------------===//
#pragma once

#include "megalith/Reducers.cuh"

namespace megalith::device {

/// In place of a logit: the token takes no part in the row. A NaN that no addition gives.
constexpr u32 kRefused = ~0u;
__device__ __forceinline__ bool isRefused(float logit) { return __float_as_uint(logit) == kRefused; }

/// What changes a row. All lanes of a warp have the same, but for `token`.
struct RowEdits {
  const char *edits; ///< abi::Edits
  const abi::LaunchParams *params;
  float repetition, presence, frequency;
  int bits, allowed, banned, biased, biases, biasCount, ends, endCount, eosCount;
  bool early, penalties, masked;
  // of the text, where it is known
  const char *seen, *counts;
  const int *path, *tokens;
  const u32 *mask; ///< null: none may come
  int pathTokens, prefix, promptLen, seenWords;
  bool mayEnd;

  __device__ __forceinline__ static long long longOf(u32 low, u32 high) { return (long long)((u64)high << 32 | low); }

  __device__ __forceinline__ void load(const abi::LaunchParams &p, const abi::RowQuery &query) {
    params = &p;
    edits = p.edits + 16ll * query.edits;
    const char *const row = p.texts + (long long)query.text * (int)sizeof(abi::RowText);
    const bool known = query.text != abi::kNone;
    const Words4 a = loadWords(edits), b = loadWords(edits + 16), c = loadWords(edits + 32);
    Words4 of[4] = {};
    if (known)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        of[i] = loadWords(row + 16 * i);
    repetition = __uint_as_float(a.x);
    presence = __uint_as_float(a.y);
    frequency = __uint_as_float(a.z);
    bits = (int)a.w;
    allowed = (int)b.x;
    banned = (int)b.y;
    biased = (int)b.z;
    biases = (int)b.w;
    biasCount = (int)c.x;
    ends = (int)c.y;
    endCount = (int)c.z;
    eosCount = (int)c.w;
    early = query.early;
    penalties = known && (repetition != 1.0f || presence != 0.0f || frequency != 0.0f);
    seen = p.texts + longOf(of[0].x, of[0].y);
    counts = p.texts + longOf(of[0].z, of[0].w);
    tokens = p.tokens + longOf(of[1].z, of[1].w);
    const long long maskAt = longOf(of[2].x, of[2].y);
    masked = known && maskAt != abi::kNoMask;
    mask = masked && maskAt != abi::kNoTokens ? reinterpret_cast<const u32 *>(p.edits + maskAt) : nullptr;
    pathTokens = (int)of[2].z;
    path = reinterpret_cast<const int *>(
        (of[2].w & abi::kGathered ? p.texts : reinterpret_cast<const char *>(p.callTokens)) + longOf(of[1].x, of[1].y));
    prefix = (int)of[3].x;
    promptLen = (int)of[3].y;
    mayEnd = of[2].w & abi::kMayEnd;
    seenWords = (int)of[3].w;
  }

  /// Word `word` of one of its sets.
  __device__ __forceinline__ u32 setWord(int set, int word) const {
    return set != abi::kNone && word < bits ? loadWord(edits + set + 4 * word) : 0;
  }
  /// Of the tokens of a word those that end an answer: the first `count` of the list. The warp.
  __device__ __forceinline__ u32 endsAt(int word, int count) const {
    u32 found = 0;
#pragma unroll 1
    for (int base = 0; base < count; base += 32) {
      const int i = base + laneId(), token = i < count ? (int)loadWord(edits + ends + 4 * i) : -1;
      found |= __reduce_or_sync(~0u, token >> 5 == word ? 1u << (token & 31) : 0u);
    }
    return found;
  }
  /// Which tokens of a word may not come. The warp.
  __device__ __forceinline__ u32 refusedAt(int word) const {
    u32 refused = setWord(banned, word);
    if (allowed != abi::kNone)
      refused |= ~setWord(allowed, word);
    if (masked) {
      const u32 ofEos = endsAt(word, eosCount), may = mask && word < bits ? loadWord(mask + word) : 0;
      refused |= ~((may & ~ofEos) | (mayEnd ? ofEos : 0));
    }
    if (early)
      refused |= endsAt(word, endCount);
    return refused;
  }
  /// How often a token stands on the path. The warp.
  __device__ __forceinline__ int onPath(int token) const {
    int count = 0;
#pragma unroll 1
    for (int base = 0; base < pathTokens; base += 32) {
      const int mine = base + laneId() < pathTokens ? (int)loadWord(path + base + laneId()) : -1;
      const int last = min(32, pathTokens - base);
#pragma unroll 1
      for (int i = 0; i < last; ++i)
        count += __shfl_sync(~0u, mine, i) == token;
    }
    return count;
  }
  /// The number that is added to the token. It has one.
  __device__ float biasOf(int token) const {
    int low = 0, high = biasCount - 1;
    while (low < high) {
      const int middle = (low + high) / 2;
      if ((int)loadWord(edits + biases + 4 * middle) < token)
        low = middle + 1;
      else
        high = middle;
    }
    return __uint_as_float(loadWord(edits + biases + 4 * (biasCount + low)));
  }
  /// How often a token stands in the text, and in its answer; of the first number only whether it is 0 counts. `known`:
  /// of the request's tokens it is one; `more`: so often it stands on the path.
  struct Times {
    int inText, inAnswer;
  };
  __device__ __forceinline__ Times timesOf(int token, bool known, int more) const {
    if (prefix < 0)
      return {known + more, more + (known ? (int)loadWord(counts + 4ll * token) : 0)};
    Times times = {more, more};
    if (known)
#pragma unroll 1
      for (int i = 0; i < prefix; ++i)
        if ((int)loadWord(tokens + i) == token) {
          ++times.inText;
          times.inAnswer += i >= promptLen;
        }
    return times;
  }
  /// A logit, but for whether its token may come. `seenWord`: of the request's tokens.
  __device__ __forceinline__ float edited(float z, int token, u32 biasedWord, u32 seenWord, int more) const {
    const u32 bit = 1u << (token & 31);
    if (biasedWord & bit)
      z = __fadd_rn(z, biasOf(token));
    if (penalties && ((seenWord & bit) || more)) {
      const Times times = timesOf(token, seenWord & bit, more);
      if (times.inText && repetition != 1.0f)
        z = z > 0.0f ? __fdiv_rn(z, repetition) : __fmul_rn(z, repetition);
      if (times.inAnswer && frequency != 0.0f)
        z = __fadd_rn(z, -__fmul_rn(frequency, (float)times.inAnswer));
      if (times.inAnswer && presence != 0.0f)
        z = __fadd_rn(z, -presence);
    }
    return z;
  }
};

/// Where edited rows stand: [kQueriesAtOnce][roundUp(vocab, 8)] numbers, then of each query and CTA the keys of the
/// best token and of the drawn one.
template <class Kept> struct EditedRows {
  float *rows;
  static constexpr int stride = (Kept::mostVocab + 7) / 8 * 8;

  __device__ __forceinline__ float *row(int i) const { return rows + (long long)i * stride; }
  __device__ __forceinline__ Words4 *firsts(int i) const {
    return reinterpret_cast<Words4 *>(row(shape::kQueriesAtOnce)) + i * (int)gridDim.x;
  }
  __device__ __forceinline__ Floats<2> loadPair(int i, int column) const {
    const float *const at = row(i) + column;
    return {{__uint_as_float(loadWord(at)), __uint_as_float(loadWord(at + 1))}};
  }

  /// Makes the columns from `begin` to `end`, which are multiples of 32 but for the vocabulary's end, every `parts`th 32
  /// of them. Their best token and the drawn one. The warp.
  __device__ __forceinline__ void make(const abi::LaunchParams &p, const Kept &kept, const abi::RowQuery &query, int i,
                                       int begin, int end, int part, int parts, Best &best, Best &drawn) const {
    RowEdits edits;
    edits.load(p, query);
    const bool draws = query.guessed && query.temperature > 0.0f;
    float *const to = row(i);
#pragma unroll 2
    for (int first = begin + 32 * part; first < end; first += 32 * parts) {
      const int word = first / 32, token = first + laneId();
      const bool mine = token < end;
      const float raw = mine ? kept.load(query.line, token) : 0.0f;
      const u32 biased = edits.setWord(edits.biased, word),
                seen = edits.penalties && word < edits.seenWords ? loadWord(edits.seen + 4 * word) : 0,
                refused = edits.refusedAt(word);
      const int more = edits.penalties ? edits.onPath(token) : 0;
      const float z = edits.edited(raw, token, biased, seen, more);
      const bool out = refused >> laneId() & 1;
      if (mine)
        to[token] = out ? __uint_as_float(kRefused) : z;
      if (mine && raw != raw)
        best.key = Best::kNan;
      else if (mine && !out) {
        best.take(z, token);
        if (draws) {
          const sampling::Words words =
              sampling::words({query.key[0], query.key[1]}, query.position, (u32)token / 4, query.purpose);
          const u32 low = token & 1 ? words.w[1] : words.w[0], high = token & 1 ? words.w[3] : words.w[2];
          drawn.take(sampling::score(sampling::scaled(z, query.temperature), token & 2 ? high : low), token);
        }
      }
    }
  }
};

} // namespace megalith::device
