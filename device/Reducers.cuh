//===- Reducers.cuh - what is made of rows' logits beside argmax ----------===//
//
// Control writes the logits queries of a pass's rows into LaunchParams::queries (Abi.h). Two ways lead to the answers:
//
//   draws   a token drawn from all tokens is the best of z / T + gumbel. Each CTA keeps the best of its own logits
//           while it makes them, beside the best logit, and CTA 0 takes the best of all (Results.cuh).
//   queries what needs sums over the row, or a part of it that is found by them. The head keeps the row's logits, and
//           selection rounds give the answers (Selection.cuh, Answers.cuh).
//
// The arithmetic is that of Sampling.h.
//===----------------------------------------------------------------------===//
#pragma once

#include "megalith/Exact.h"
#include "megalith/Sampling.h"
#include "megalith/Results.cuh"

namespace megalith::device {

/// A row whose answer is its best token, or that is not asked for any.
constexpr abi::RowDraw kNoQuery = {0.0f, -1, {0, 0}, 0, 0, 0, 0};

__device__ __forceinline__ const abi::RowDraw *drawsOf(const abi::LaunchParams &p) {
  return reinterpret_cast<const abi::RowDraw *>(p.queries + sizeof(abi::QueryHeader));
}
/// `Lines`: rows of a pass, of all results.
template <int Lines> __device__ __forceinline__ const abi::RowEdit *rowEditsOf(const abi::LaunchParams &p) {
  return reinterpret_cast<const abi::RowEdit *>(drawsOf(p) + Lines);
}
template <int Lines> __device__ __forceinline__ const abi::RowQuery *rowQueriesOf(const abi::LaunchParams &p) {
  return reinterpret_cast<const abi::RowQuery *>(rowEditsOf<Lines>(p) + Lines);
}

/// CTA 0, one thread after a barrier of the CTA: the queries of the pass are there for all from then on. The word has
/// the number of the last pass with some.
__device__ __forceinline__ void tellQueries(const GridEdges &grid, const PassShared &pass) {
  u32 *const word = grid.params->sync + kQueriesThere;
  addRelease(word, pass.number - loadWord(word));
}

/// Whether it is drawn when all of the row is there, as settings of the request change it (EditedRows.cuh).
__device__ __forceinline__ bool isEditedDraw(const abi::RowDraw &draw) { return draw.guesses == 2; }
/// Whether a row draws a token that is not the best one, while its logits are made.
__device__ __forceinline__ bool draws(const abi::RowDraw &draw) {
  return draw.temperature > 0.0f && (draw.at >= 0 || draw.guesses) && !isEditedDraw(draw);
}

/// Waits for the queries of the pass, and takes the rows' draws. One warp, while the others go on; a barrier of the CTA
/// stands before any thread looks at them.
template <int Rows, int Results>
__device__ __noinline__ void takeQueries(const GridEdges &grid, int edge, const PassShared &pass,
                                         PassDraws<Rows, Results> &of) {
  assumeShared(&grid);
  assumeShared(&pass);
  assumeShared(&of);
  if (warpId() != kConsumerWarps - 1)
    return;
  const abi::LaunchParams &p = *grid.params;
  if (!(pass.wantLogits & kQueries)) {
    for (int i = laneId(); i < Results * Rows; i += 32)
      of.rows[i] = kNoQuery;
    if (laneId() == 0)
      of.queries = of.draws = of.edited = 0;
    return;
  }
  if (laneId() == 0) {
    u64 since = 0;
    for (u32 spin = 1; (int)(loadAcquire(p.sync + kQueriesThere) - pass.number) < 0; ++spin)
      if (grid.stopSeen(edge, spin, since))
        break;
  }
  __syncwarp();
  const int queries = (int)loadWord(p.queries);
  bool drawn = false, edited = false;
#pragma unroll 1
  for (int n = laneId(); n < Results * pass.numRows; n += 32) {
    const int i = Results > 1 ? n / pass.numRows * Rows + n % pass.numRows : n;
    Words4 *const row = reinterpret_cast<Words4 *>(of.rows + i);
    const char *const from = reinterpret_cast<const char *>(drawsOf(p) + i);
    const Words4 low = loadWords(from), high = loadWords(from + 16);
    row[0] = low;
    row[1] = high;
    drawn = drawn || draws(of.rows[i]);
    edited = edited || isEditedDraw(of.rows[i]);
  }
  drawn = __any_sync(~0u, drawn);
  edited = __any_sync(~0u, edited);
  if (laneId() == 0) {
    of.queries = queries;
    of.draws = drawn;
    of.edited = edited;
  }
}

/// Rows of logits that the head keeps for queries, as it rounds them: Number is u16 (bf16) or float. In front of them,
/// in lines below 0, stand those that requests keep; of a model with `KeptVocab` tokens.
template <class Number, int Vocab, int KeptVocab = Vocab> struct KeptLogits {
  static constexpr int vocab = Vocab;
  static constexpr bool even = Vocab % 2 == 0 && KeptVocab % 2 == 0;
  static constexpr int mostVocab = KeptVocab > Vocab ? KeptVocab : Vocab;
  static constexpr long long keptRowBytes = shape::keptRowBytes(KeptVocab, sizeof(Number));
  static constexpr bool rounded = sizeof(Number) == 2;
  static constexpr long long rowBytes = shape::keptRowBytes(Vocab, sizeof(Number));
  char *base;

  __device__ __forceinline__ static int vocabOf(int row) { return row < 0 ? KeptVocab : Vocab; }
  __device__ __forceinline__ char *at(int row, int column) const {
    return base + row * (row < 0 ? keptRowBytes : rowBytes) + column * (int)sizeof(Number);
  }
  /// Columns `column`, which is even, and the next one. The row has room for it even where there is none.
  __device__ __forceinline__ void storePair(int row, int column, Floats<2> logits) const {
    if constexpr (rounded)
      *reinterpret_cast<u32 *>(at(row, column)) = packBf16(logits.v[0], logits.v[1]);
    else
      *reinterpret_cast<Float2 *>(at(row, column)) = {logits.v[0], logits.v[1]};
  }
  /// Of a row that begins at `row`.
  __device__ __forceinline__ static float loadAt(const char *row, int column) {
    if constexpr (rounded)
      return bf16ToFloat((u16)loadHalfWord(row + column * 2));
    else
      return __uint_as_float(loadWord(row + column * 4));
  }
  __device__ __forceinline__ Floats<2> loadPair(int row, int column) const {
    const u32 word = loadWord(at(row, column));
    if constexpr (rounded)
      return {{bf16Low(word), bf16High(word)}};
    else
      return {{__uint_as_float(word), __uint_as_float(loadWord(at(row, column + 1)))}};
  }
};

/// A thread's two logits of a row, in columns `column`, which is even, and the next one. Logits from Kept::vocab on do
/// not count. Draws the row's token among them, and keeps them where queries will read them.
template <class Kept>
__device__ __forceinline__ void takeDraws(const Kept &kept, const abi::RowDraw &draw, Best &best, int column,
                                          Floats<2> logits) {
  if (draws(draw)) {
    const sampling::Words words =
        sampling::words({draw.key[0], draw.key[1]}, draw.position, (u32)column / 4, draw.purpose);
    const bool second = column & 2;
    const auto take = [&](float logit, int token, u32 word) {
      best.take(sampling::score(sampling::scaled(logit, draw.temperature), word), token);
    };
    take(logits.v[0], column, second ? words.w[2] : words.w[0]);
    if (Kept::vocab % 2 == 0 || column + 1 < Kept::vocab)
      take(logits.v[1], column + 1, second ? words.w[3] : words.w[1]);
  }
  if (draw.kept)
    kept.storePair(draw.kept >> 1, column, logits);
}

/// CTA 0: the rows' drawn tokens, from the entries of all CTAs. After reduceBest, whose results it sees. `bests`: of
/// models with several results, the entries of the best ones.
template <int Rows, int Results>
__device__ __noinline__ void reduceDraws(GridEdges &grid, int edge, const PassShared &pass,
                                         const PassDraws<Rows, Results> &draws, const Words4 *partial,
                                         const Words4 *bests = nullptr) {
  assumeShared(&grid);
  if (!(pass.wantLogits & kQueries))
    return;
  __syncwarp();
#pragma unroll 1
  for (int result = 0; result < Results; ++result)
    everyRow(pass.numRows, [&](int row) {
      const int line = result * Rows + row;
      const abi::RowDraw &draw = draws.rows[line];
      if (draw.at < 0)
        return;
      int token = pass.rows[row].result;
      const bool edited = isEditedDraw(draw);
      if (draw.temperature > 0.0f || result > 0 || edited) {
        const Words4 *const entries = draw.temperature > 0.0f || edited ? partial : bests;
        token = bestOfRow(grid, edge, pass.number, entries + (long long)line * gridDim.x, edited ? kOfEditedRow : 0)
                    .index(); // -1 where no token may come
      }
      if (laneId() == 0)
        grid.params->reduced[draw.at] = token != RowIsNan ? (u32)token : edited ? abi::kNanOfEdited : ~0u;
    });
}

} // namespace megalith::device
