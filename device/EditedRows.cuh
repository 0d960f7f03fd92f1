//===- EditedRows.cuh - rows of logits that settings of requests change ---===//
//
// A draw or a query of a row that a request's settings change (abi::Edits) does not read the row as the head kept it:
// each CTA edits some columns of it. In a pass of few rows these are the ones that it made itself, so it waits for no
// other CTA. What comes of it is the best token of those that may come, or the drawn one; for queries, also the edited
// row: numbers of f32, and kRefused where a token may not come.
//
// The order of the steps is that of docs/language.md; the reference executor has the same in Reduce.cpp.
//===----------------------------------------------------------------------===//
#pragma once

#include "megalith/Reducers.cuh"

namespace megalith::device {

/// In place of a logit: the token takes no part in the row. A NaN that no addition gives.
constexpr u32 kRefused = ~0u;
__device__ __forceinline__ bool isRefused(float logit) { return __float_as_uint(logit) == kRefused; }

/// Which columns of a row a CTA edits, in units of 32, a lane has one of each. `Heads`: the matrices of the model's
/// results. In a pass of few rows a CTA has those that it makes of a row of the pass; else, and of a row that was kept
/// before, a slice.
template <class... Heads> struct EditedColumns {
  bool own;  ///< of rows of the pass
  int slice; ///< columns of one, a multiple of 32

  template <class M> __device__ __forceinline__ static int unitsOf() {
    const CtaGroups<M> groups;
    return groups.some() ? (groups.count * M::group * shape::kTileColumns + 31) / 32 : 0;
  }
  template <class M> __device__ __forceinline__ static int columnOf(int unit) {
    constexpr int each = M::group * shape::kTileColumns;
    const CtaGroups<M> groups;
    const int i = unit * (32 / each) + laneId() / each;
    return groups.has(i) ? groups.at(i) * each + laneId() % each : -1;
  }
  /// `result` of the model; -1: of a row that was kept before.
  __device__ __forceinline__ int units(int result) const {
    int count = slice / 32, i = 0;
    if (own)
      ((count = i++ == result ? unitsOf<Heads>() : count), ...);
    return count;
  }
  /// The lane's column in a unit; -1: it has none. It may be none of the row, where this has no whole number of units:
  /// of four lanes either all have columns that follow each other, or none.
  __device__ __forceinline__ int column(int result, int unit) const {
    int at = (int)blockIdx.x * slice + 32 * unit + laneId(), i = 0;
    if (own)
      ((at = i++ == result ? columnOf<Heads>(unit) : at), ...);
    return at;
  }
};

/// A row to edit, and its draw.
struct RowToEdit {
  int line, result; ///< of LaunchParams::selection; of EditedColumns
  int edits, text, hand;
  bool early, draws; ///< else the best token is wanted
  float temperature;
  u32 key[2];
  int position;
  u32 purpose;
};

/// Units of columns that a warp edits side by side, a lane's of each; bit k of a word is of unit k.
constexpr int kUnitsAtOnce = 4;
struct EditedUnits {
  int column[kUnitsAtOnce];
  float z[kUnitsAtOnce];
  u32 has, left;      ///< the lane has a column; its token may come
  u32 hasBias, known; ///< a number is added to it; it is one of the request's tokens
};

/// What changes a row. All lanes of a warp have the same, but for `end` and `onPath`.
struct RowEdits {
  const char *edits; ///< abi::Edits
  float repetition, presence, frequency;
  const u32 *allowed, *banned, *biased; ///< sets of tokens below `tokensOfSets`; null: there is none
  int tokensOfSets, biases, biasCount, ends, endCount, eosCount;
  bool early, penalties, masked;
  int hand; ///< place of a RowHand; kNone
  // of the text, where it is known
  const char *counts;
  const u32 *seen, *mask; ///< `mask` null: no token may come but those of `eos`, if they may
  const int *path, *tokens;
  int pathTokens, prefix, promptLen;
  bool mayEnd;
  int end, onPath; ///< the lane's of the first 32 of each list

  __device__ __forceinline__ static int itemOf(const void *list, int i, int count) {
    return i < count ? (int)loadWord(static_cast<const int *>(list) + i) : -1;
  }

  __device__ __forceinline__ RowEdits(const abi::LaunchParams &p, const RowToEdit &of) {
    edits = p.edits + 16ll * of.edits;
    const char *const row = p.texts + (long long)of.text * (int)sizeof(abi::RowText);
    const bool known = of.text != abi::kNone;
    hand = of.hand;
    // Without settings of the request: what changes nothing.
    const u32 none = (u32)abi::kNone;
    const bool some = of.edits != abi::kNone;
    const Words4 a = some ? loadWords(edits) : Words4{__float_as_uint(1.0f), 0, 0, 0},
                 b = some ? loadWords(edits + 16) : Words4{none, none, none, 0},
                 c = some ? loadWords(edits + 32) : Words4{0, 0, 0, 0};
    Words4 text[4] = {};
    if (known)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        text[i] = loadWords(row + 16 * i);
    repetition = __uint_as_float(a.x);
    presence = __uint_as_float(a.y);
    frequency = __uint_as_float(a.z);
    const auto setAt = [&](u32 at) {
      return (int)at == abi::kNone ? nullptr : reinterpret_cast<const u32 *>(edits + at);
    };
    tokensOfSets = 32 * (int)a.w;
    allowed = setAt(b.x);
    banned = setAt(b.y);
    biased = setAt(b.z);
    biases = (int)b.w;
    biasCount = (int)c.x;
    ends = (int)c.y;
    endCount = (int)c.z;
    eosCount = (int)c.w;
    early = of.early;
    penalties = known && (repetition != 1.0f || presence != 0.0f || frequency != 0.0f);
    seen = reinterpret_cast<const u32 *>(p.texts + longOf(text[0].x, text[0].y));
    counts = p.texts + longOf(text[0].z, text[0].w);
    tokens = p.tokens + longOf(text[1].z, text[1].w);
    const long long maskAt = longOf(text[2].x, text[2].y);
    masked = known && maskAt != abi::kNoMask;
    mask = masked && maskAt != abi::kNoTokens ? reinterpret_cast<const u32 *>(p.edits + maskAt) : nullptr;
    pathTokens = penalties ? (int)text[2].z : 0;
    path = reinterpret_cast<const int *>(
        (text[2].w & abi::kGathered ? p.texts : reinterpret_cast<const char *>(p.callTokens)) +
        longOf(text[1].x, text[1].y));
    mayEnd = text[2].w & abi::kMayEnd;
    prefix = (int)text[3].x;
    promptLen = (int)text[3].y;
    end = itemOf(edits + ends, laneId(), endCount);
    onPath = itemOf(path, laneId(), pathTokens);
  }

  /// Word `word` of a set; `otherwise` where there is none.
  __device__ __forceinline__ static u32 setWord(const u32 *set, int word, u32 otherwise) {
    return set ? loadWord(set + word) : otherwise;
  }
  /// Whether a set says that a token may not come.
  __device__ __forceinline__ bool isOut(int token) const {
    if (token >= tokensOfSets)
      return allowed != nullptr;
    return (setWord(banned, token / 32, 0) | ~setWord(allowed, token / 32, ~0u)) >> (token & 31) & 1;
  }
  /// How often a token stands in a list, of which `first` has the lane's of the first 32. The warp.
  __device__ __forceinline__ static int timesIn(const void *list, int first, int count, int token) {
    int times = 0;
#pragma unroll 1
    for (int base = 0; base < count; base += 32) {
      if (base > 0)
        first = itemOf(list, base + laneId(), count);
#pragma unroll 1
      for (int i = 0; i < min(32, count - base); ++i)
        times += __shfl_sync(~0u, first, i) == token;
    }
    return times;
  }
  /// Whether one of the tokens may stand in a list of the row, which have few. The warp.
  __device__ __forceinline__ bool isListed(const int (&tokens)[kUnitsAtOnce]) const {
    if (max(endCount, pathTokens) > 32)
      return true;
    bool is = false;
    const auto look = [&](int first, int count) {
#pragma unroll 1
      for (int i = 0; i < count; ++i) {
        const int listed = __shfl_sync(~0u, first, i);
#pragma unroll
        for (int k = 0; k < kUnitsAtOnce; ++k)
          is = is || tokens[k] == listed;
      }
    };
    look(end, endCount);
    look(onPath, pathTokens);
    return __any_sync(~0u, is);
  }
  /// What depends on the lists of a row: whether its token may come, which the sets say so far; and how often it stands
  /// on the path. The warp.
  __device__ __forceinline__ int takeText(int token, bool &may) const {
    if (masked && eosCount > 0 && timesIn(edits + ends, end, eosCount, token))
      may = mayEnd && !isOut(token);
    if (early && timesIn(edits + ends, end, endCount, token))
      may = false;
    return pathTokens ? timesIn(path, onPath, pathTokens, token) : 0;
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
  /// it is one of the request's tokens; `more`: so often it stands on the path.
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
  /// Changes what is not only left out. Out of line: few tokens are changed, and code that runs once in a pass comes
  /// from far away. `takesText`: the lists count, too. The warp.
  __device__ __noinline__ void change(const char *queries, EditedUnits &of, bool takesText) const {
    assumeLocal(&of);
    if (hand != abi::kNone)
      changeByHand(queries, of);
#pragma unroll 1
    for (int k = 0; k < kUnitsAtOnce; ++k) {
      const int token = of.has >> k & 1 ? of.column[k] : -1;
      bool may = of.left >> k & 1;
      const int more = takesText ? takeText(token, may) : 0;
      if (may)
        of.z[k] = edited(of.z[k], token, of.hasBias >> k & 1, of.known >> k & 1, more);
      of.left = (of.left & ~(1u << k)) | (may ? 1u : 0u) << k;
    }
  }
  /// What the stage changes by hand, which comes first. Its lists are short.
  __device__ __forceinline__ void changeByHand(const char *queries, EditedUnits &of) const {
    const Words4 a = loadWords(queries + 16ll * hand), b = loadWords(queries + 16ll * hand + 16);
#pragma unroll 1
    for (int i = 0; i < (int)b.z; ++i) {
      const int token = (int)loadWord(queries + (int)b.x + 4 * i);
      const float number = __uint_as_float(loadWord(queries + (int)b.y + 4 * i));
#pragma unroll 1
      for (int k = 0; k < kUnitsAtOnce; ++k)
        if ((of.has >> k & 1) && of.column[k] == token)
          of.z[k] = __fadd_rn(of.z[k], number);
    }
    if ((int)b.z > 0) // what is no number any more is left out
#pragma unroll 1
      for (int k = 0; k < kUnitsAtOnce; ++k)
        of.left &= ~((of.z[k] != of.z[k] ? 1u : 0u) << k);
    const auto marked = [&](int at, int count) {
      u32 marks = 0;
#pragma unroll 1
      for (int i = 0; i < count; ++i) {
        const int token = (int)loadWord(queries + at + 4 * i);
#pragma unroll 1
        for (int k = 0; k < kUnitsAtOnce; ++k)
          marks |= (of.column[k] == token ? 1u : 0u) << k;
      }
      return marks;
    };
    if ((int)a.x != abi::kNone)
      of.left &= marked((int)a.x, (int)a.y);
    if ((int)a.z != abi::kNone)
      of.left &= ~marked((int)a.z, (int)a.w);
  }
  /// A logit, but for whether its token may come. `known`, `more`: as of timesOf.
  __device__ __forceinline__ float edited(float z, int token, bool hasBias, bool known, int more) const {
    if (hasBias)
      z = __fadd_rn(z, biasOf(token));
    if (known || more) {
      const Times times = timesOf(token, known, more);
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

/// Out of line: few tokens have one.
inline __device__ __noinline__ float exactScore(float z, float temperature, u32 word) {
  return sampling::score(sampling::scaled(z, temperature), word);
}
/// An estimate of z / T + gumbel, no farther off than `off`; z / T is about `y`. Exact scores take ten times as long,
/// so only those tokens have one whose estimates come near the best one.
struct ScoreEstimate {
  float score, off;
  __device__ __forceinline__ static ScoreEstimate of(float y, u32 word) {
    // 1 - unit(word), which is exact. -log(1 - v) is a short sum where v is small: there `__logf` is far off.
    const float v = __fmul_rn((float)(((~word >> 9) & 0x7fffff) * 2 + 1), 5.9604644775390625e-8f);
    const float depth = v < 0.015625f ? v * (1.0f + v * (0.5f + v * 0.333333333f)) : -__logf(1.0f - v);
    return {y - __logf(depth), 1e-3f + 1e-6f * fabsf(y)};
  }
};

/// The best token of what a warp edits, and the drawn one if there is a draw.
struct EditedBests {
  Best best, drawn;
};
/// Edits every `parts`th unit of a row from `part` on. `keep`: the edited row goes there; null: nowhere. The warp. Out
/// of line, as code that runs once in a pass comes from far away.
template <class Kept, class Columns>
__device__ __noinline__ EditedBests editRow(const abi::LaunchParams &p, Kept kept, Columns columns,
                                            const RowToEdit &given, int part, int parts, float *keep) {
  assumeShared(&p);
  constexpr int together = kUnitsAtOnce;
  const RowToEdit row = given;
  const RowEdits edits(p, row);
  const int units = columns.units(row.result), vocab = Kept::vocabOf(row.line);
  const bool takesText = (edits.masked && edits.eosCount > 0) || edits.early || edits.pathTokens > 0;
  const float scale = row.draws ? __fdividef(1.0f, row.temperature) : 0.0f;
  const u32 *const banned = edits.banned, *const allowed = edits.allowed, *const mask = edits.mask,
                   *const biased = edits.biased, *const seen = edits.penalties ? edits.seen : nullptr;
  const u32 ofNoMask = edits.masked ? 0 : ~0u, beyond = allowed || edits.masked ? ~0u : 0;
  const int tokensOfSets = edits.tokensOfSets;
  const char *const logits = kept.at(row.line, 0);
  Best best, drawn;
  float bestLogit = 0.0f;
  int bestColumn = -1;
  bool nan = false;
#pragma unroll 1
  for (int first = part; first < units; first += parts * together) {
    int column[together];
    float z[together];
    u32 out[together], changed[together], biases[together];
#pragma unroll
    for (int k = 0; k < together; ++k) {
      const int unit = first + k * parts;
      column[k] = unit < units ? columns.column(row.result, unit) : -1;
      const int word = max(min(column[k], tokensOfSets - 1), 0) / 32;
      const bool some = (u32)column[k] < (u32)vocab; // others are of other CTAs
      z[k] = some ? Kept::loadAt(logits, column[k]) : 0.0f;
      out[k] = RowEdits::setWord(banned, word, 0) | ~RowEdits::setWord(allowed, word, ~0u) |
               ~RowEdits::setWord(mask, word, ofNoMask);
      biases[k] = RowEdits::setWord(biased, word, 0);
      changed[k] = RowEdits::setWord(seen, word, 0);
    }
    // Bit k: of unit k the lane has a column; its token may come; a number is added to it; the request has it.
    u32 has = 0, left = 0, hasBias = 0, known = 0;
#pragma unroll
    for (int k = 0; k < together; ++k) {
      const bool some = (u32)column[k] < (u32)vocab, ofSets = column[k] < tokensOfSets; // others have other models
      const int bit = column[k] & 31;
      nan = nan || z[k] != z[k];
      has |= (some ? 1u : 0u) << k;
      left |= (some && !((ofSets ? out[k] >> bit : beyond) & 1) ? 1u : 0u) << k;
      hasBias |= (ofSets ? biases[k] >> bit & 1 : 0) << k;
      known |= (ofSets ? changed[k] >> bit & 1 : 0) << k;
    }
    const bool isListed = takesText && edits.isListed(column);
    if (isListed || row.hand != abi::kNone || __any_sync(~0u, (left & (hasBias | known)) != 0)) {
      EditedUnits of = {{}, {}, has, left, hasBias, known};
#pragma unroll
      for (int k = 0; k < together; ++k)
        of.column[k] = column[k], of.z[k] = z[k];
      edits.change(p.queries, of, isListed);
      left = of.left;
#pragma unroll
      for (int k = 0; k < together; ++k)
        z[k] = of.z[k];
    }
#pragma unroll
    for (int k = 0; k < together; ++k) {
      const bool may = left >> k & 1,
                 isBest = may && (bestColumn < 0 || z[k] > bestLogit || (z[k] == bestLogit && column[k] < bestColumn));
      bestLogit = isBest ? z[k] : bestLogit;
      bestColumn = isBest ? column[k] : bestColumn;
      if (keep && (u32)column[k] < (u32)(vocab + (vocab & 1))) // they are read in pairs
        keep[column[k]] = may ? z[k] : __uint_as_float(kRefused);
    }
    if (!row.draws || !__any_sync(~0u, left != 0))
      continue;
    float most[together]; // of each score, at most
    u32 word[together];
    float least = -3.4e38f; // of the best score
    // Four lanes have four tokens that share words: each makes those of one unit.
    static_assert(together == 4);
    const int mine = laneId() & 3, four = laneId() & ~3;
    const int own = mine < 2 ? (mine == 0 ? column[0] : column[1]) : (mine == 2 ? column[2] : column[3]);
    const sampling::Words words =
        sampling::words({row.key[0], row.key[1]}, row.position, (u32)max(own, 0) / 4, row.purpose);
#pragma unroll
    for (int k = 0; k < together; ++k) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const u32 other = __shfl_sync(~0u, words.w[i], four + k);
        word[k] = i == 0 || mine == i ? other : word[k];
      }
      const ScoreEstimate estimate = ScoreEstimate::of(z[k] * scale, word[k]);
      most[k] = estimate.score + estimate.off;
      if (left >> k & 1)
        least = fmaxf(least, estimate.score - estimate.off);
    }
    least = Best::valueOf(__reduce_max_sync(~0u, Best::ordered(least)));
#pragma unroll
    for (int k = 0; k < together; ++k)
      if ((left >> k & 1) && !(most[k] < least))
        drawn.take(exactScore(z[k], row.temperature, word[k]), column[k]);
  }
  if (bestColumn >= 0)
    best.take(bestLogit, bestColumn);
  if (nan)
    best.key = drawn.key = Best::kNan;
  best.takeLanes();
  drawn.takeLanes();
  return {best, drawn};
}

/// How many warps edit a row together, where `count` rows are to be edited: as many as there are for each.
__device__ __forceinline__ int warpsOfEdited(int count) {
  static_assert(kConsumerWarps == 8);
  return count <= 1 ? 8 : count == 2 ? 4 : count <= 4 ? 2 : 1;
}

/// Where edited rows of queries stand: [kQueriesAtOnce][roundUp(vocab, 8)] numbers, then of each query and CTA the keys
/// of the best token and of the drawn one.
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
};

/// Columns of a slice: a word of a set of tokens is of one.
template <class Kept> __device__ __forceinline__ int sliceColumns() {
  return (Kept::mostVocab + 32 * (int)gridDim.x - 1) / (32 * (int)gridDim.x) * 32;
}

/// The draws of rows that settings of requests change, which ask for nothing else. All consumers; CTA 0 takes the best
/// of all (reduceDraws).
template <int Rows, int Results, class Kept, class Columns>
__device__ __noinline__ void editDraws(const GridEdges &grid, const PassShared &pass,
                                       const PassDraws<Rows, Results> &draws, Kept kept, Columns columns, Words4 *drawn,
                                       float *scratch) {
  assumeShared(&grid);
  assumeShared(&pass);
  assumeShared(&draws);
  assumeShared(scratch);
  const abi::LaunchParams &p = *grid.params;
  constexpr int lines = Results * Rows;
  u64 *const ofWarps = reinterpret_cast<u64 *>(scratch);
  // The `number`th line with edits, and how many there are. The warp.
  const auto find = [&](int number, int &count) {
    int found = -1;
    count = 0;
#pragma unroll 1
    for (int base = 0; base < lines; base += 32) {
      const int line = base + laneId();
      u32 some = __ballot_sync(~0u, line < lines && line % Rows < pass.numRows && isEditedDraw(draws.rows[line]));
#pragma unroll 1
      for (; some; some &= some - 1)
        if (count++ == number)
          found = base + __ffs(some) - 1;
    }
    return found;
  };
  int total = 0;
  (void)find(-1, total);
  consumerSync(); // scratch may still be read
#pragma unroll 1
  for (int first = 0; first < total; first += kConsumerWarps) {
    const int count = min(kConsumerWarps, total - first), parts = warpsOfEdited(count), i = warpId() / parts;
    int line = -1;
    if (i < count) {
      line = find(first + i, total);
      const abi::RowDraw &draw = draws.rows[line];
      const Words4 edit = loadWords(rowEditsOf<lines>(p) + line);
      const bool isDraw = draw.temperature > 0.0f;
      const RowToEdit row = {draw.kept >> 1, line / Rows,      (int)edit.x,
                             (int)edit.y,    (int)edit.w,      edit.z != 0,
                             isDraw,         draw.temperature, {draw.key[0], draw.key[1]},
                             draw.position,  draw.purpose};
      const EditedBests bests = editRow(p, kept, columns, row, warpId() % parts, parts, nullptr);
      if (laneId() == 0)
        ofWarps[warpId()] = isDraw ? bests.drawn.key : bests.best.key;
    }
    consumerSync();
    if (i < count && warpId() % parts == 0 && laneId() == 0) {
      Best ofCta;
      for (int w = 0; w < parts; ++w)
        ofCta.take(ofWarps[warpId() + w]);
      storeFlagged(drawn + (long long)line * gridDim.x + blockIdx.x,
                   {(u32)ofCta.key, (u32)(ofCta.key >> 32), pass.number, kOfEditedRow});
    }
    consumerSync();
  }
}

} // namespace megalith::device
