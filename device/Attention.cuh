//===- Attention.cuh - grouped-query attention over paged KV --------------===//
//
// A tile is up to 16 pairs (row of the pass, query head) of one slot and one KV head; keys and
// values are read once for all of them. Those of committed positions come through the ring of
// the weights, in the same order on both sides; the pass's own come from where it wrote them.
// Tensor cores multiply, with the keys, or the dims of the values, as the 16 rows of operand A
// and 8 pairs as the columns of B: a tile mostly has few pairs, and B has half as twoHalves columns.
//
// Sum tree `rounds8`, see docs/ir.md: a score s is a chain of mma steps of 16 dims each. Keys are taken in rounds of
// 256 positions from 0, of which warp w of eight takes 8w to 8w+7 of each 64: a leaf. Of a round m is the greatest
// score, p = bf16(exp2(s * f - m * f)), rounded once before the power (AttentionShape::weight), z = sum of p and o =
// sum of p * v: of a leaf a chain of mma steps over two of its eights each (o), or the key of a lane in each eight in
// ascending order and lanes at distance 4, 8, 16 (z); of the round the eight leaves in ascending order. Eight
// neighbouring rounds make the next larger part, eight of these the next, and so on: (m, z, o) of the eight, in f32 and
// ascending order. What lies beyond the row's visible keys, or in front of its window, adds zeros, which change no bit:
// a row's bits depend on its own visible keys alone, wherever its parts are computed. (Where a value is infinite or
// NaN, rows that share a tile with the row it comes from get NaN in all columns, others in some.)
//
// AttentionPlan.cuh says how the work is dealt, AttentionParts.cuh how parts are put together.
//===----------------------------------------------------------------------===//
#pragma once

#include "megalith/AttentionParts.cuh"
#include "megalith/OwnRows.cuh"

namespace megalith::device {

/// A constant that a function takes.
template <bool Value> struct Flag {
  static constexpr bool value = Value;
};

/// A CTA's attention of one layer: it goes through its units round by round. In a round it loads keys and values,
/// computes scores, then weights with the values' sums, and folds these into the unit's parts. All of it is in line:
/// what the members hold stays in registers. So no member is an array: the compiler would keep all of them in memory.
///
/// A phase with few keys lasts as long as the chain of its instructions. So what can be done before the query is there
/// comes first, and blocks of keys go side by side.
///
/// What lane (g, t) takes of a block, as A of the two products: of each 16 dims of key g four (loadDims), and dims
/// 64i + 8g.. of the values 2t and 2t + 1. It has scores of pairs 2t, 2t + 1, 2t + 8, 2t + 9.
template <class A, int Rows, class C, class Own, class Query, class Out> struct TileAttention {
  using S = AttentionShape<A>;
  using Cursor = RoundCursor<A, Rows == kOneRow>;
  static constexpr int D = S::dim, keys = S::keysOfChunk(C::Ring::stageBytes);
  static_assert(keys <= 64 * S::batch, "a stage takes no more keys than a batch");
  /// Leaves are added up beside the scores of the next round.
  static constexpr bool deferred = Rows == kOneRow && S::deferred;
  static constexpr typename S::Scratch begins = S::scratch(Rows == kOneRow ? 1 : A::rows);
  static constexpr int pairsOfOutputs = deferred ? S::headsOfTile : 8;
  static constexpr int aside = S::batch > 1;                  ///< a second block stands beside the first
  static constexpr int together = deferred ? S::together : 1; ///< units whose queries and own rows come together
  static constexpr bool small = keys < 64; ///< a whole round is loaded, too, but ptxas does not see that
  /// What is there already comes before the wait for the query. For several rows there are no registers for all of it,
  /// nor while attention makes what it attends with.
  static constexpr bool valuesToo = S::batches == 1 && Rows == kOneRow && !Own::made;
  using Part = Soft<2 * S::valueSlabs>; ///< a thread's two columns of each slab
  using Keys = Words4[S::batch][S::keyPieces];
  using Values = Words4[S::batch][2 * S::valueSlabs];
  using Scores = float[S::blocks][4];
  using Seen = int[4];                                       ///< positions, by each of the lane's pairs
  using Trees = SoftTree<S::levels(), 2 * S::valueSlabs>[2]; ///< of pairs 0 to 7, 8 to 15
  using Outputs = float[2][S::valueSlabs][4][4]; ///< [pairs 0 to 7, 8 to 15][slab][two dims of the lane's eight]

  const PassShared &pass;
  const float scale;
  const int window; ///< of the layer: positions up to its own that a row sees
  C consumer;
  const Own own;
  const Query query;
  const Out out;
  u64 *const sums; ///< [unit][pair][D + 2]: o, m, z
  const u32 tag;
  char *const scratch = reinterpret_cast<char *>(consumer.scratch); ///< the sums' and operands' room
  const int warp = warpId(), lane = laneId(), g = lane >> 2, t = lane & 3;
  const float nothing = __int_as_float(0xff800000);

  int turn = 0;      ///< of two rounds' maxima and sums, where they are deferred
  bool late = false; ///< the leaves of the round before are still to be added up
  float lateMost = nothing;
  bool fresh = true; ///< the unit's first round
  int nth = 0;       ///< of the units that come together
  Cursor at = Cursor(pass, window);

  // of the round
  bool onlyRound = false; ///< the unit's only one
  int first = 0;          ///< position of the warp's first key
  int rows = 0;           ///< of the tile
  int from = 0;           ///< the first position that some row of the tile sees
  bool full = false;      ///< nothing is missing, out of the window or the pass's own
  bool twoHalves = false; ///< the tile has more than 8 pairs

  // --- places in scratch
  __device__ __forceinline__ float *maxima() const { // [pair][warp]
    return reinterpret_cast<float *>(scratch + begins.maxima) + turn * begins.sumsOfRound;
  }
  __device__ __forceinline__ float *weights(int turn) const {
    return reinterpret_cast<float *>(scratch + begins.weights) + turn * begins.sumsOfRound;
  }
  /// [64 dims][warp][pair][outputStride] of a round, or [warp][pair % 8][outputStride]
  __device__ __forceinline__ float *outputsOf(int turn, int slab) const {
    float *const outputs = reinterpret_cast<float *>(scratch + begins.outputs);
    return outputs + (deferred ? turn * S::outputsOfRound + slab * S::outputsOfRow : 0);
  }
  __device__ __forceinline__ const char *ownRow(int position, int rows) const {
    return scratch + rows + (nth + position - at.ownFrom) * S::rowBytes;
  }

  // --- which pairs, dims and positions
  __device__ __forceinline__ int pairAt(int e) const { return 2 * t + (e & 1) + (e & 2) * 4; }
  __device__ __forceinline__ int valueDim(int i) const {
    return D % 64 == 0 || 64 * i + 8 * g < D ? 64 * i + 8 * g : 0;
  }
  __device__ __forceinline__ bool isOwn(int position) const { return position >= at.ownFrom && position < at.visible; }

  __device__ __forceinline__ void run() {
    Trees trees;
    for (; !at.done(); at.next(pass)) {
      beginRound();
      Keys k;
      Values v;
      fetchKeys(k, 0);
      if constexpr (valuesToo)
        fetchValues(v, 0);
      bringOwn();
      Seen seen;
      lookAtRows(seen);

      Scores s;
      float most[4] = {nothing, nothing, nothing, nothing};
      computeScores(k, seen, s, most);
      shareMaxima(most, trees);

      Outputs o = {};
      float z[4] = {};
      bool lost[4] = {};
      addValues(v, seen, s, most, o, z, lost);
      shareSums(z, lost);

      fresh = at.round + 1 == at.end;
      if (deferred && putOff(o))
        continue;
#pragma unroll 1
      for (int h = 0; h < (twoHalves ? 2 : 1); ++h) // pairs 0 to 7, 8 to 15
        fold(h, o, trees[h]);
      if (deferred) { // the next unit may begin while these leaves are still read
        turn ^= 1;
        nth = (nth + 1) % together;
      }
    }
  }

  __device__ __forceinline__ void beginRound() {
    onlyRound = fresh && at.round + 1 == at.end;
    first = at.first() + 8 * warp;
    rows = Rows == kOneRow ? 1 : at.rows;
    from = at.from();
    full = at.first() + S::round <= at.ownFrom && (!S::windowed || from <= at.first());
    twoHalves = (Rows > kOneRow || S::headsOfTile > 8) && rows * S::headsOfTile > 8;
  }

  // --- loads

  /// Committed keys or values, a batch of blocks at a time. `whole` says that none is missing.
  /// fn(whole, block of the batch, the chunk, the warp's first row of it).
  template <class Whole, class Fn> __device__ __forceinline__ void fetch(Whole whole, int batch, Fn fn) {
#pragma unroll
    for (int c = 0; c < S::batch * 64 / keys; ++c) {
      const int start = at.first() + batch * S::batch * 64 + c * keys;
      if (!whole.value && start >= at.ownFrom)
        break;
      if (S::windowed && !whole.value && min(start + keys, at.ownFrom) <= from)
        continue;
      const char *chunk = consumer.acquire();
      if constexpr (keys >= 64) {
#pragma unroll
        for (int block = 0; block < keys / 64; ++block)
          fn(whole, c * keys / 64 + block, chunk, 64 * block + 8 * warp);
      } else if (8 * warp / keys == c % 2) {
        fn(whole, c / 2, chunk, 8 * warp % keys);
      }
      if (S::windowed && !whole.value)
        consumer.release();
      else if (c % 2)
        consumer.template release<2>();
      else if (c + 1 == S::batch * 64 / keys || (!whole.value && start + keys >= at.ownFrom))
        consumer.release();
    }
  }
  /// The same into `blocks`; what is not loaded is zero.
  template <class Blocks, class Load>
  __device__ __forceinline__ void fill(Blocks &blocks, bool partly, int batch, Load load) {
    if (!full || partly)
#pragma unroll
      for (auto &block : blocks)
#pragma unroll
        for (Words4 &words : block)
          words = {0, 0, 0, 0};
    if (full)
      fetch(Flag<true>(), batch, load);
    else
      fetch(Flag<false>(), batch, load);
  }
  __device__ __forceinline__ void fetchKeys(Keys &k, int batch) {
    fill(k, small, batch, [&](auto whole, int block, const char *chunk, int firstRow) {
      if (const int position = first + 64 * (batch * S::batch + block) + g;
          whole.value || (position < at.ownFrom && (!S::windowed || position >= from))) {
        const typename S::ChunkRow row = S::template rowOfChunk<keys>(chunk, firstRow + g);
#pragma unroll
        for (int i = 0; i < S::keyPieces; ++i)
          k[block][i] = row.dims(i);
      }
    });
  }
  __device__ __forceinline__ void fetchValues(Values &v, int batch) { // zeros where nothing is: finite
    fill(v, small, batch, [&](auto whole, int block, const char *chunk, int firstRow) {
#pragma unroll
      for (int i = 0; i < 2 * S::valueSlabs; ++i)
        if (const int position = first + 64 * (batch * S::batch + block) + 2 * t + i % 2;
            whole.value || (position < at.ownFrom && (!S::windowed || position >= from)))
          v[block][i] = S::template rowOfChunk<keys>(chunk, firstRow + 2 * t + i % 2).eight(valueDim(i / 2));
    });
  }

  /// Queries, and keys and values of the pass's own rows, come to scratch: those of `together` units.
  __device__ __forceinline__ void bringOwn() {
    const bool bring = fresh && nth == 0;
    if (bring || !deferred)
      consumerSync(); // the scratch may still be read
    if constexpr (Own::made) {
      static_assert(Rows == kOneRow, "a row's keys are made once");
      if (bring) {
        bringMade<A, together>(pass, scratch, window, at.unit, at.group, own.make);
        consumerSync();
      }
    } else if (bring) {
      copyOwn();
      consumerSync();
    }
  }
  __device__ __forceinline__ void copyOwn() {
    Cursor of = at;
#pragma unroll 1
    for (int unit = 0;;) { // other threads for each
      const int ownRows =
          !kE4m3<A> && of.end * S::round > of.ownFrom ? max(0, of.visible - of.ownFrom) : 0; // as they are
      if constexpr (kE4m3<A>)
        codeOwnRows<A>(pass, own, of, (warp + 4 - unit) & (kConsumerWarps - 1), // others bring the first queries
                       [&](bool isKey, int row, int column, Words2 codes, HeadScale scale) {
                         char *const rows = scratch + (isKey ? begins.ownKeys : begins.ownValues);
                         *reinterpret_cast<Words4 *>(rows + (unit + row) * S::rowBytes + column * 2) =
                             scale.valuesOf(codes);
                       });
      const int pieces = rows * S::headsOfTile * (D / 8);
      int i = threadIdx.x;
      if (together > 1)
        i = (i - unit * (S::headsOfTile * (D / 8) + D / 4)) & (kConsumerThreads - 1);
#pragma unroll 1
      for (; i < pieces + ownRows * (D / 4); i += kConsumerThreads) {
        const int item = i - pieces, row = (item >> 1) / (D / 8), column = (item >> 1) % (D / 8) * 8;
        Words4 words;
        char *target;
        if (item < 0) {
          const int pair = i / (D / 8), column = i % (D / 8) * 8;
          if (!of.has(pair))
            continue;
          words = query.words(of.rowOf(pair), of.columnOf(pair) + column);
          target = scratch + (unit * S::headsOfTile + pair) * S::queryStride + column * 2;
        } else if (item & 1) {
          words = own.values.words(of.ownRowAt(pass, of.ownFrom + row), of.kvHead * D + column);
          target = scratch + begins.ownValues + (unit + row) * S::rowBytes + column * 2;
        } else {
          words = own.keys.words(of.ownRowAt(pass, of.ownFrom + row), of.kvHead * D + column);
          target = scratch + begins.ownKeys + (unit + row) * S::rowBytes + column * 2;
        }
        *reinterpret_cast<Words4 *>(target) = words;
      }
      if (++unit >= together)
        break;
      of.toNextUnit(pass);
      if (of.done())
        break;
    }
  }
  __device__ __forceinline__ void lookAtRows(Seen &seen) const {
#pragma unroll
    for (int e = 0; e < 4; ++e)
      seen[e] = (e < 2 || twoHalves) && at.has(pairAt(e)) ? pass.rows[at.rowOf(pairAt(e))].visible : 0;
  }

  // --- scores: s = q * k

  __device__ __forceinline__ void computeScores(Keys &k, const Seen &seen, Scores &s, float (&most)[4]) {
    const char *const queries = scratch + nth * S::headsOfTile * S::queryStride;
    Words4 low[S::keyPieces] = {}, high[S::keyPieces] = {}; // of pairs g and g + 8
#pragma unroll
    for (int i = 0; i < S::keyPieces; ++i) {
      if (at.has(g))
        low[i] = S::loadDims(queries + g * S::queryStride, i);
      if (twoHalves && at.has(g + 8))
        high[i] = S::loadDims(queries + (g + 8) * S::queryStride, i);
    }
#pragma unroll
    for (int batch = 0; batch < S::batches; ++batch) {
      if (batch > 0)
        fetchKeys(k, batch);
#pragma unroll
      for (int inBatch = 0; inBatch < S::batch && !full; ++inBatch)
        if (const int position = first + 64 * (batch * S::batch + inBatch) + g; isOwn(position))
#pragma unroll
          for (int i = 0; i < S::keyPieces; ++i)
            k[inBatch][i] = S::loadDims(ownRow(position, begins.ownKeys), i);
#pragma unroll
      for (int inBatch = 0; inBatch < S::batch; inBatch += 1 + aside) { // two blocks are the rows of A
        const int block = batch * S::batch + inBatch;
        float sums[2][4] = {}; // of pairs 0 to 7, 8 to 15: block, and block + 1
#pragma unroll
        for (int i = 0; i < S::keyPieces; ++i) {
          const Words4 &key = k[inBatch][i], next = aside ? k[inBatch + aside][i] : Words4{0, 0, 0, 0};
          mma(sums[0], key.x, next.x, key.y, next.y, low[i].x, low[i].y);
          if (S::hasStep(2 * i + 1))
            mma(sums[0], key.z, next.z, key.w, next.w, low[i].z, low[i].w);
          if (twoHalves) {
            mma(sums[1], key.x, next.x, key.y, next.y, high[i].x, high[i].y);
            if (S::hasStep(2 * i + 1))
              mma(sums[1], key.z, next.z, key.w, next.w, high[i].z, high[i].w);
          }
        }
#pragma unroll
        for (int b = 0; b < 1 + aside; ++b)
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            s[block + b][e] = S::sees(first + 64 * (block + b) + g, seen[e], window)
                                  ? S::score(sums[e / 2][2 * b + e % 2], scale)
                                  : nothing;
            most[e] = fmaxf(most[e], s[block + b][e]);
          }
      }
    }
  }

  /// The maxima of the round, of all warps, as what is taken off. The leaves of the round before are added up
  /// meanwhile.
  __device__ __forceinline__ void shareMaxima(float (&most)[4], Trees &trees) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      if (e >= 2 && !twoHalves)
        break;
#pragma unroll
      for (int d = 4; d < 32; d *= 2)
        most[e] = fmaxf(most[e], __shfl_xor_sync(~0u, most[e], d));
      if (g == 0)
        maxima()[pairAt(e) * kConsumerWarps + warp] = most[e];
    }
    consumerSync();
    if (deferred && late && at.has(warp)) { // beside what follows
      Part sum;
      sum.m = lateMost;
      addLeaves(turn ^ 1, 0, S::valueSlabs, warp, sum);
      trees[0].push(0, at.round - 1, sum);
    }
#pragma unroll
    for (int e = 0; e < 4; ++e)
      if (e < 2 || twoHalves)
        most[e] = S::shift(maximumOf(pairAt(e)), scale);
  }
  __device__ __forceinline__ float maximumOf(int pair) const {
    const Float4 *all = reinterpret_cast<const Float4 *>(maxima() + pair * kConsumerWarps);
    const Float4 low = all[0], high = all[1];
    return fmaxf(fmaxf(fmaxf(low.x, low.y), fmaxf(low.z, low.w)), fmaxf(fmaxf(high.x, high.y), fmaxf(high.z, high.w)));
  }

  // --- weights: p = exp(s - m), o = v * p

  __device__ __forceinline__ void addValues(Values &v, const Seen &seen, const Scores &s, const float (&shift)[4],
                                            Outputs &o, float (&z)[4], bool (&lost)[4]) {
#pragma unroll
    for (int batch = 0; batch < S::batches; ++batch) {
      if constexpr (!valuesToo)
        fetchValues(v, batch);
      takeOwnValues(v, batch, seen, lost);
#pragma unroll
      for (int inBatch = 0; inBatch < S::batch; inBatch += 1 + aside) {
        u32 weight[2][2] = {}; // as B: [block, block + 1][pairs 0 to 7, 8 to 15]
#pragma unroll
        for (int b = 0; b < 1 + aside; ++b) {
          const int block = batch * S::batch + inBatch + b;
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            if (half && !twoHalves)
              break;
            const auto weightOf = [&](int pair) { return S::weight(s[block][pair], shift[pair], scale); };
            const u32 words = packBf16(weightOf(2 * half), weightOf(2 * half + 1));
            z[2 * half] = __fadd_rn(z[2 * half], bf16Low(words));
            z[2 * half + 1] = __fadd_rn(z[2 * half + 1], bf16High(words));
            weight[b][half] = transposed(words);
          }
        }
#pragma unroll
        for (int i = 0; i < S::valueSlabs; ++i)
#pragma unroll
          for (int c = 0; c < 8; c += 2) {
            // Dims 8g + c and 8g + c + 1 of values 2t and 2t + 1.
            const auto columns = [&](int block, bool odd) {
              const auto word = [&](const Words4 &w) { return c < 2 ? w.x : c < 4 ? w.y : c < 6 ? w.z : w.w; };
              const u32 x = word(v[block][2 * i]), y = word(v[block][2 * i + 1]);
              return odd ? highHalves(x, y) : lowHalves(x, y);
            };
            const u32 even = columns(inBatch, false), odd = columns(inBatch, true);
            const u32 nextEven = aside ? columns(inBatch + aside, false) : 0;
            const u32 nextOdd = aside ? columns(inBatch + aside, true) : 0;
            mma(o[0][i][c / 2], even, odd, nextEven, nextOdd, weight[0][0], weight[1][0]);
            if (twoHalves)
              mma(o[1][i][c / 2], even, odd, nextEven, nextOdd, weight[0][1], weight[1][1]);
          }
      }
    }
  }

  /// Values of the pass's own rows, in a batch of blocks. A row must not get 0 * infinity from a later row of its slot.
  /// So where a tile has several rows, values that are not finite become zeros, and the rows that see them get NaN.
  __device__ __forceinline__ void takeOwnValues(Values &v, int batch, const Seen &seen, bool (&lost)[4]) {
#pragma unroll
    for (int inBatch = 0; inBatch < S::batch && !full; ++inBatch) {
      const int begin = first + 64 * (batch * S::batch + inBatch);
      if (begin + 8 <= at.ownFrom || begin >= at.visible)
        continue;
      Words4(&values)[2 * S::valueSlabs] = v[inBatch];
#pragma unroll
      for (int i = 0; i < 2 * S::valueSlabs; ++i)
        if (isOwn(begin + 2 * t + i % 2))
          values[i] = loadShared4(ownRow(begin + 2 * t + i % 2, begins.ownValues), valueDim(i / 2) * 2);
      if (rows == 1)
        continue;
      u32 bad = 0;
#pragma unroll
      for (int i = 0; i < 2 * S::valueSlabs; ++i)
        bad |= allFinite(values[i]) ? 0 : 1u << (2 * t + i % 2);
#pragma unroll
      for (int d = 1; d < 32; d *= 2)
        bad |= __shfl_xor_sync(~0u, bad, d);
      if (bad) {
#pragma unroll
        for (int i = 0; i < 2 * S::valueSlabs; ++i)
          if (bad >> (2 * t + i % 2) & 1)
            values[i] = {0, 0, 0, 0};
        const int position = begin + __ffs(bad) - 1;
#pragma unroll
        for (int e = 0; e < 4; ++e)
          lost[e] |= S::sees(position, seen[e], window);
      }
    }
  }

  /// The warp's sums of the weights, for all warps.
  __device__ __forceinline__ void shareSums(float (&z)[4], const bool (&lost)[4]) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      if (e >= 2 && !twoHalves)
        break;
#pragma unroll
      for (int d = 4; d < 32; d *= 2)
        z[e] = __fadd_rn(z[e], __shfl_xor_sync(~0u, z[e], d));
      if (g == 0)
        weights(turn)[pairAt(e) * kConsumerWarps + warp] = lost[e] ? __int_as_float(0x7fffffff) : z[e];
    }
  }

  // --- folding: leaves become the round's part, and rounds the unit's

  /// A warp's outputs of pairs 8h to 8h + 7 and dims 64i to 64i + 63: lane (g, t) has dims 8g.. of pairs 2t and 2t + 1;
  /// an mma's two dims lie 2 apart.
  __device__ __forceinline__ void handIn(int h, int i, const Outputs &o) const {
#pragma unroll
    for (int e = 0; e < 2; ++e)
      if (64 * i + 8 * g < D && at.has(pairAt(e + 2 * h))) {
        const auto out = [&](int c) { return h ? o[1][i][c / 2][c % 2 * 2 + e] : o[0][i][c / 2][c % 2 * 2 + e]; };
        float *row = outputsOf(turn, i) + (warp * pairsOfOutputs + 2 * t + e) * S::outputStride;
        const auto place = [&](int four) {
          return reinterpret_cast<Float4 *>(row + S::outputPlace(2 * g + four, 2 * t + e));
        };
        *place(0) = {out(0), out(1), out(2), out(3)};
        *place(1) = {out(4), out(5), out(6), out(7)};
      }
  }
  /// The leaves' sums, warp by warp of a pair, lane by lane of two columns: of dims [64 first, 64 end).
  __device__ __forceinline__ void addLeaves(int turn, int first, int end, int pair, Part &sum) const {
#pragma unroll
    for (int i = 0; i < S::valueSlabs; ++i)
      if (i >= first && i < end) {
        Float2 leaf[kConsumerWarps] = {}; // zeros, where there are no keys, change no bit
        float ofWarp[kConsumerWarps];
#pragma unroll
        for (int w = 0; w < kConsumerWarps; ++w) {
          if (64 * i + 2 * lane < D)
            leaf[w] =
                *reinterpret_cast<const Float2 *>(outputsOf(turn, i) + (w * pairsOfOutputs + warp) * S::outputStride +
                                                  S::outputPlace(lane / 2, warp) + lane % 2 * 2);
          if (i == 0)
            ofWarp[w] = weights(turn)[pair * kConsumerWarps + w];
        }
#pragma unroll
        for (int w = 0; w < kConsumerWarps; ++w) {
          sum.o[2 * i] = __fadd_rn(sum.o[2 * i], leaf[w].x);
          sum.o[2 * i + 1] = __fadd_rn(sum.o[2 * i + 1], leaf[w].y);
          if (i == 0)
            sum.z = __fadd_rn(sum.z, ofWarp[w]);
        }
      }
  }
  /// Where they are deferred: hands in the leaves. True when the unit has another round, which will add them up.
  __device__ __forceinline__ bool putOff(const Outputs &o) {
#pragma unroll
    for (int i = 0; i < S::valueSlabs; ++i)
      handIn(0, i, o);
    late = !fresh;
    if (late) {
      lateMost = at.has(warp) ? S::scaled(maximumOf(warp), scale) : nothing;
      turn ^= 1;
      return true;
    }
    consumerSync();
    return false;
  }
  /// The round's part of a pair, which becomes one of the unit; the whole unit's is stored.
  __device__ __forceinline__ void fold(int h, const Outputs &o, SoftTree<S::levels(), 2 * S::valueSlabs> &tree) {
    const int pair = warp + 8 * h;
    const bool mine = at.has(pair);
    Part sum;
    sum.m = mine ? S::scaled(maximumOf(pair), scale) : nothing;
    if (deferred) {
      if (mine)
        addLeaves(turn, 0, S::valueSlabs, pair, sum);
    } else {
#pragma unroll
      for (int i = 0; i < S::valueSlabs; ++i) {
        if (h + i > 0)
          consumerSync(); // the outputs before these have been read
        handIn(h, i, o);
        consumerSync();
        if (mine)
          addLeaves(0, i, i + 1, pair, sum);
      }
    }
    if (!mine)
      return;
    if (!onlyRound) {
      tree.push(0, at.round, sum);
      if (!fresh)
        return;
      sum = tree.total();
      tree = {};
    }
    store(pair, sum);
  }
  /// What the tile's rows get, or a part of it that mergeRanges takes.
  __device__ __forceinline__ void store(int pair, const Part &sum) const {
#pragma unroll
    for (int i = 0; i < S::valueSlabs; ++i) {
      const int d = 64 * i + 2 * lane;
      if (d >= D)
        continue;
      if (at.whole) {
        out.storePair(at.rowOf(pair), at.columnOf(pair) + d, at.columnOf(pair) + d + 1,
                      Floats<2>{{__fdiv_rn(sum.o[2 * i], sum.z), __fdiv_rn(sum.o[2 * i + 1], sum.z)}});
        continue;
      }
      u64 *to = sums + ((long long)at.unit * 16 + pair) * (D + 2);
      storeFlagged2(to + d, __float_as_uint(sum.o[2 * i]), tag);
      storeFlagged2(to + d + 1, __float_as_uint(sum.o[2 * i + 1]), tag);
      if (d == 0) {
        storeFlagged2(to + D, __float_as_uint(sum.m), tag);
        storeFlagged2(to + D + 1, __float_as_uint(sum.z), tag);
      }
    }
  }
};

/// For each row and query head: store(row, column, two values) with an even column in
/// [0, heads * headDim). `A`: heads, kvHeads, headDim, rows of a pass at most, the pool's
/// layers, pageTokens, pages, and room for the sums of units at byte `sums` of the flagged
/// words. `edge`: after this phase. `Rows` 1: no slot has two rows in the pass. `own`: OwnRows, or MadeRows.
template <class A, int Rows, class C, class Own, class Query, class Out>
__device__ __forceinline__ void attend(const GridEdges &grid, int edge, const PassShared &pass, int layer, float scale,
                                       C consumer, Own own, Query query, Out out) {
  if (pass.attention.firstUnit.unit < 0 && !pass.attention.split)
    return;
  u64 *const sums = reinterpret_cast<u64 *>(grid.params->flagged + A::sums);
  const u32 tag = pass.number * A::layers + layer + 1;
  char *const scratch = reinterpret_cast<char *>(consumer.scratch);
  const int window = AttentionShape<A>::window(layer);
  TileAttention<A, Rows, C, Own, Query, Out> tiles{pass, scale, window, consumer, own, query, out, sums, tag};
  tiles.run();
  if (pass.attention.split)
    mergeRanges<A>(grid, edge, pass, window, scratch, sums, tag, out);
  consumerSync(); // the next phase's operands come where the scratch is
  tiles.consumer.keep();
}

} // namespace megalith::device
