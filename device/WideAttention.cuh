//===- WideAttention.cuh - attention of many rows of a slot ---------------===//
//
// In a pass of more than one row tile in which some slot has several rows (a prompt's, mostly) a tile may be up to 128
// pairs of a row and a query head, 16 to each warp: where planRanges expects that to take less time, and there is room.
// Keys and values of a round of 256 positions come to shared memory once for all of them, as fragments of the mma
// steps, and a warp goes through the round alone: it looks for the maxima of its pairs first, and then takes leaf after
// leaf of keys once more, for their weights, and of values.
//
// The pairs are the 16 rows of operand A here, keys and dims of the values the columns of B: each mma step has the same
// keys, or dims, in the same places as in Attention.cuh, so the sum tree is the same one, and with it the bits.
//
// Of heads of more than 64 dims a warp takes 64 dims of the values at a time, and computes the weights anew for each:
// the sums of all dims would leave it no registers.
//
// A unit is a range of one round, or of eight where a head has no more than 64 dims and shared memory has room for a
// thread's sums of the rounds before. The parts of a tile's ranges, of a single one, too, cross as words of 16 bytes:
// two dims, m (of even words) or z (of odd ones), and the number of the pass and the layer.
//===----------------------------------------------------------------------===//
#pragma once

#include "megalith/Exchange.cuh"
#include "megalith/AttentionParts.cuh"

namespace megalith::device {

/// How attention `A` is cut for many rows. `C`: the Consumer, whose scratch has room for the keys of a round and for
/// the values of some of its leaves.
template <class A, class C> struct WideTile {
  using S = AttentionShape<A>;
  static constexpr shape::WideAttention numbers = {S::numbers};
  static constexpr int keys = S::keysOfChunk(C::Ring::stageBytes); ///< of a chunk; a round's values are held together
  static_assert(numbers.fits(C::wideBytes(), C::Ring::stageBytes, C::Ring::stages - C::Ring::wideLent),
                "of a long head, or in a short ring, attention of many rows is not planned");
  static constexpr int keyBytes = (int)numbers.keyBytes(); ///< [eight keys][32 dims][lane]
  static constexpr int slabs = S::valueSlabs;              ///< of 64 dims, one after the other
  static constexpr int leafBytes = numbers.leafBytes;      ///< of a slab: [step 2][two columns of B, of eight][lane]
  static constexpr int outputs =
      numbers.outputs; ///< of a thread, of each of its two pairs: dims 16t to 16t + 15 of a slab
  /// Of a unit of several rounds: what a thread has of the rounds before for each pair, in words of 16 bytes.
  static constexpr int kept = numbers.kept, stateBytes = A::wideLevels > 0 ? numbers.stateBytes : 0;
  static_assert(slabs == 1 || stateBytes == 0, "of a longer head a unit is one round");
  static constexpr int room = C::wideBytes() - keyBytes - numbers.spoiledBytes - numbers.ownScaleBytes() - stateBytes;
  static constexpr int leaves = room >= 8 * leafBytes ? 8 : room >= 4 * leafBytes ? 4 : room >= 2 * leafBytes ? 2 : 1;
  static_assert(room >= leafBytes, "room for keys and values as fragments");
  static constexpr int ownScales = keyBytes + leaves * leafBytes + numbers.spoiledBytes; ///< where they begin
  static constexpr int begin = ownScales + numbers.ownScaleBytes(); ///< of what is kept of the rounds before
};

/// Own rows, as they are once they are codes. `scales`: in shared memory.
template <class Rows> struct ThroughCodes {
  Rows rows;
  const HeadScale *scales;
  __device__ __forceinline__ Words4 peek(int after, int column) const {
    return scales[after].through(rows.peek(after, column));
  }
};

/// Words of a lane in a unit's parts, of a slab.
constexpr int kWideWords = shape::WideAttention::words;
/// The lane's word number `word`: those of a warp's lanes stand side by side.
template <class A>
__device__ __forceinline__ Words4 *wideWord(const GridEdges &grid, long long unit, int warp, int word) {
  Words4 *const words = reinterpret_cast<Words4 *>(grid.params->flagged + A::wideSums);
  return words + ((unit * kConsumerWarps + warp) * (kWideWords * AttentionShape<A>::valueSlabs) + word) * 32 + laneId();
}
template <class A> __device__ __forceinline__ u32 wideTag(const PassShared &pass, int layer) {
  return pass.number * A::layers + layer + 1;
}

/// After attendWide: puts the ranges of tiles together. A lane takes four dims of a pair that a lane of the same
/// number had.
template <class A, class Out>
__device__ __noinline__ void mergeWide(const GridEdges &grid, int edge, const PassShared &pass, int layer, Out out) {
  assumeShared(&grid);
  assumeShared(&pass);
  const u32 tag = wideTag<A>(pass, layer);
  using S = AttentionShape<A>;
  const int window = S::window(layer);
  constexpr int perWarp = S::valueSlabs * kWideWords / 2, perTile = kConsumerWarps * perWarp, ahead = 4;
  const int g = laneId() >> 2, t = laneId() & 3;
  int item = unitsFrom() * kConsumerWarps + warpId(); // of a warp
  for (int group = 0; group < pass.attention.groups; ++group) {
    const int before = group ? pass.attention.rangesUpto[group - 1] : 0,
              ranges = pass.attention.rangesUpto[group] - before;
    const int firstRow = pass.attention.groupFirst[group],
              pairs = (pass.attention.groupFirst[group + 1] - firstRow) * S::headsOfTile;
    const SeenRanges seen = seenRanges<A>(pass, firstRow, window);
#pragma unroll 1
    for (; item < S::tilesOfRows * perTile; item += gridDim.x * kConsumerWarps) {
      const int tile = item / perTile, warp = item % perTile / perWarp, words = item % perWarp * 2; // and the next
      const int pair = 16 * warp + words % kWideWords / 8 * 8 + g,
                dims = words / kWideWords * 64 + 16 * t + words % 8 * 2;
      const int head = tile / S::slices * S::group + tile % S::slices * S::headsOfTile + pair % S::headsOfTile;
      if (pair >= pairs || head >= (tile / S::slices + 1) * S::group || dims >= S::dim)
        continue;
      const auto from = [&](int range) {
        return wideWord<A>(grid, (long long)(before + range) * S::tilesOfRows + tile, warp, words);
      };
      SoftTree<S::levels(), 4> tree;
#pragma unroll 1
      for (int begin = seen.first; begin < ranges; begin += ahead) {
        Words4 part[ahead][2];
        u64 since = 0;
        bool absent = true;
#pragma unroll 1
        for (u32 spin = 1; absent; ++spin) {
          absent = false;
#pragma unroll
          for (int k = 0; k < ahead; ++k)
#pragma unroll
            for (int i = 0; i < 2; ++i) {
              part[k][i] = loadFlagged(from(min(begin + k, ranges - 1)) + i * 32);
              absent |= part[k][i].w != tag;
            }
          absent = absent && !grid.stopSeen(edge, spin, since);
        }
#pragma unroll
        for (int k = 0; k < ahead; ++k)
          if (begin + k < ranges) {
            Soft<4> one;
            one.o[0] = __uint_as_float(part[k][0].x);
            one.o[1] = __uint_as_float(part[k][0].y);
            one.o[2] = __uint_as_float(part[k][1].x);
            one.o[3] = __uint_as_float(part[k][1].y);
            one.m = __uint_as_float(part[k][0].z);
            one.z = __uint_as_float(part[k][1].z);
            tree.push(0, seen.number - seen.first + begin + k, one);
          }
      }
      const Soft<4> total = tree.total();
      const int row = firstRow + pair / S::headsOfTile, column = head * S::dim + dims;
#pragma unroll
      for (int i = 0; i < 4; i += 2)
        out.storePair(row, column + i, column + i + 1,
                      Floats<2>{{__fdiv_rn(total.o[i], total.z), __fdiv_rn(total.o[i + 1], total.z)}});
    }
    item -= S::tilesOfRows * perTile;
  }
}

constexpr int kNoPosition = 0x7fffffff;

/// Values of leaves [leaf, leaf + W::leaves), counted from slab to slab, of the round that begins at position `first`,
/// from chunks, of which `chunk` is the first, and from the pass's own rows, of which `own` begins with the one at
/// `ownFrom`: a warp takes one of a leaf's two steps at a time. A row must not get 0 * infinity from a later row of its
/// slot: in eights that end after `ownFrom` such values become zeros, and the rows that see them get NaN in these
/// dims. The lowest of these positions that the warp has seen, or kNoPosition. Out of line: it needs few of the
/// registers that the sums leave. `from`, in a window: positions before it are not there.
template <class A, class C, class Rows, class... From>
__device__ __noinline__ int bringWideValues(char *to, const char *chunk, const char *ringEnd, int ringBytes, Rows own,
                                            int first, int ownFrom, int last, int leaf, From... from) {
  assumeShared(to);
  assumeShared(chunk);
  using S = AttentionShape<A>;
  using W = WideTile<A, C>;
  constexpr int items = 2 * W::leaves;
  const int lane = laneId(), g = lane >> 2, t = lane & 3,
            dims = (W::slabs > 1 ? leaf / kConsumerWarps * 64 : 0) + 8 * g;
  const auto rowOf = [&](int key) { // chunks follow each other, around the end of the ring
    const char *const at = chunk + key / W::keys * C::Ring::stageBytes;
    return S::template rowOfChunk<W::keys>(at < ringEnd ? at : at - ringBytes, key % W::keys);
  };
  int bad = kNoPosition;
#pragma unroll 1
  for (int item = warpId(); item < items; item += kConsumerWarps) {
    const int ofLeaf = item / 2, step = item % 2;                        // of two blocks of 64 keys
    const int eight = 128 * step + 8 * (leaf % kConsumerWarps + ofLeaf); // of the first block
    Words4 v[2][2] = {};                                                 // keys 2t and 2t + 1 of both
    if (dims < S::dim) {
      if (first + eight + 64 + 8 <= ownFrom && (... && (first + eight >= from))) {
#pragma unroll
        for (int b = 0; b < 2; ++b) {
          v[b][0] = rowOf(eight + 64 * b + 2 * t).eight(dims);
          v[b][1] = rowOf(eight + 64 * b + 2 * t + 1).eight(dims);
        }
      } else {
#pragma unroll
        for (int b = 0; b < 2; ++b)
#pragma unroll
          for (int j = 0; j < 2; ++j)
            if (const int key = eight + 64 * b + 2 * t + j; (... || (first + key < from)))
              v[b][j] = {0, 0, 0, 0};
            else if (first + key < ownFrom)
              v[b][j] = rowOf(key).eight(dims);
            else if (first + key <= last)
              v[b][j] = own.peek(first + key - ownFrom, dims);
      }
    }
    if (first + eight + 64 + 8 > ownFrom) {
#pragma unroll
      for (int b = 0; b < 2; ++b) {
        u32 lost = 0; // of the eight
#pragma unroll
        for (int j = 0; j < 2; ++j)
          lost |= first + eight + 64 * b + 8 <= ownFrom || allFinite(v[b][j]) ? 0 : 1u << (2 * t + j);
#pragma unroll
        for (int d = 1; d < 32; d *= 2)
          lost |= __shfl_xor_sync(~0u, lost, d);
        if (lost) {
          bad = min(bad, first + eight + 64 * b + __ffs(lost) - 1);
#pragma unroll
          for (int j = 0; j < 2; ++j)
            if (lost >> (2 * t + j) & 1)
              v[b][j] = {0, 0, 0, 0};
        }
      }
    }
    Words4 *const target = reinterpret_cast<Words4 *>(to) + item * 128 + lane;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const auto word = [&](const Words4 &w) { return j == 0 ? w.x : j == 1 ? w.y : j == 2 ? w.z : w.w; };
      const u32 a = word(v[0][0]), b = word(v[0][1]), c = word(v[1][0]), d = word(v[1][1]);
      target[j * 32] = {lowHalves(a, b), lowHalves(c, d), highHalves(a, b), highHalves(c, d)};
    }
  }
  return bad;
}

/// A CTA's attention in wide tiles of one layer: it goes through its units round by round. All of it is in line: what
/// the members hold stays in registers. So no member is an array. Few registers are left beside the sums: what is at
/// hand in shared memory is looked up where it is needed.
template <class A, class C, class Own, class Query> struct WideUnits {
  using S = AttentionShape<A>;
  using W = WideTile<A, C>;
  static constexpr int D = S::dim, keys = W::keys, pieces = S::keyPieces;
  using Queries = u32[pieces][2][4]; ///< of the lane's two pairs, as A of two steps (loadDims)
  using Sums = Soft<W::outputs>[2];  ///< of the two pairs: of the round, of a slab

  const GridEdges &grid;
  const PassShared &pass;
  const int layer;
  const float scale;
  const int window; ///< of the layer: positions up to its own that a row sees
  C consumer;
  const Own own;
  const Query query;
  char *const scratch = reinterpret_cast<char *>(consumer.scratch);
  Words4 *const keysAt = reinterpret_cast<Words4 *>(scratch), *const valuesAt = keysAt + W::keyBytes / 16;
  int *const spoiled = reinterpret_cast<int *>(scratch + W::keyBytes + W::leaves * W::leafBytes); ///< of each warp
  const int warp = warpId(), lane = laneId(), g = lane >> 2, t = lane & 3;
  const float nothing = __int_as_float(0xff800000);
  RoundCursor<A> at = RoundCursor<A>(pass, window);

  // of the round
  int first = 0, last = 0, committed = 0;
  int from = 0;      ///< the first position that some row sees
  int outside = 0;   ///< chunks in front of it, which do not come
  bool fresh = true; ///< the unit's first round
  bool full = false; ///< all rows see all of it, and none of it is the pass's own
  int held = 0;      ///< chunks of values

  __device__ __forceinline__ bool hasKeyDim(int i) const { return D % 32 == 0 || 32 * i + 8 * t < D; }
  __device__ __forceinline__ int pairOf(int h) const { return 16 * warp + 8 * h + g; } // the lane's two

  __device__ __forceinline__ void run() {
    Queries a = {};
    for (; !at.done(); at.next(pass)) {
      first = at.first(), last = at.visible - 1, committed = min(S::round, at.ownFrom - first);
      if (!S::windowed)
        fresh = at.round % (1 << 3 * pass.attention.rangeLevel) == 0;
      full = first + S::round <= at.ownFrom;
      if (S::windowed) {
        from = at.from();
        full &= first >= S::windowFrom(at.visible, window);
        outside = from - first >= committed ? (max(0, committed) + keys - 1) / keys : max(0, from - first) / keys;
      }
      awaitOwnRows();
      bringKeys();
      held = 0;
#pragma unroll 1
      for (; (outside + held) * keys < committed; ++held)
        consumer.acquire();
      int seen[2];
#pragma unroll
      for (int h = 0; h < 2; ++h)
        seen[h] = at.has(pairOf(h)) ? pass.rows[at.rowOf(pairOf(h))].visible : 0;
      Sums sum;
      float shift[2] = {}; // what is taken off the scores
#pragma unroll 1
      for (int slab = 0; slab < W::slabs; ++slab) {
#pragma unroll 1
        for (int part = 0; part < kConsumerWarps; part += W::leaves) {
          if (part > 0 || slab > 0)
            consumerSync(); // the values before have been read
          bringValues(part, slab);
          if (part == 0 && slab == 0 && fresh)
            loadQueries(a);
          consumerSync();
          if (part == 0 && slab == 0)
            findMaxima(a, seen, sum, shift);
#pragma unroll 1
          for (int leaf = part; leaf < part + W::leaves; ++leaf)
            addLeaf(a, seen, shift, leaf, sum);
        }
        spoil(seen, sum);
        storePart(slab, sum);
      }
      if (S::windowed)
        fresh = at.round + 1 == at.end;
    }
  }

  // --- loads

  /// The unit's own rows are waited for here, once: where they are used there are no registers for a call.
  __device__ __forceinline__ void awaitOwnRows() const {
    if (!fresh || (at.end * S::round <= at.ownFrom && !(kE4m3<A> && at.isLast())))
      return;
    if constexpr (kE4m3<A>) {
      consumerSync(); // others may still read the operand of the product before
      codeOwnRows<A>(pass, own, at, warp, [&](bool isKey, int after, int column, Words2, HeadScale scale) {
        if (column == 0)
          scalesOfOwn(isKey)[after] = scale;
      });
    } else {
#pragma unroll 1
      for (int i = threadIdx.x; i < (last + 1 - at.ownFrom) * (D / 4); i += kConsumerThreads) {
        const int row = at.ownRowAt(pass, at.ownFrom + i / (D / 4)), column = at.kvHead * D + i % (D / 8) * 8;
        const auto rows = i / (D / 8) % 2 ? own.values : own.keys;
        Words4 words = rows.peek(row, column);
        rows.settle(row, column, words);
      }
    }
  }
  __device__ __forceinline__ HeadScale *scalesOfOwn(bool keys) const {
    return reinterpret_cast<HeadScale *>(scratch + W::ownScales) + (keys ? 0 : kMaxRows);
  }
  __device__ __forceinline__ Words4 ownKeys(int position, int dim) const {
    const Words4 words = own.keys.peek(at.ownRowAt(pass, position), at.kvHead * D + dim);
    if constexpr (kE4m3<A>)
      return scalesOfOwn(true)[position - at.ownFrom].through(words);
    else
      return words;
  }
  /// The round's keys: of each block of 64 a warp takes an eight. A lane stores what lanes will bring to mma steps.
  __device__ __forceinline__ void bringKeys() {
    consumerSync(); // what stands there may still be read
    const char *chunk = scratch;
#pragma unroll 1
    for (int block = 0; block < 4; ++block) {
      const int block64 = 64 * block, eight = block64 + 8 * warp + g, position = first + eight;
      if (block64 % keys == 0 && block64 < committed && block64 / keys >= outside)
        chunk = consumer.acquire();
      Words4 words[pieces] = {};
      const bool came = position < at.ownFrom && (!S::windowed || position >= from);
#pragma unroll
      for (int i = 0; i < pieces; ++i)
        if (came)
          words[i] = S::template rowOfChunk<keys>(chunk, eight % keys).dims(i);
        else if (position >= at.ownFrom && position <= last && hasKeyDim(i))
          words[i] = ownKeys(position, 32 * i + 8 * t);
      char *const target = reinterpret_cast<char *>(keysAt + (8 * block + warp) * pieces * 32);
#pragma unroll
      for (int i = 0; i < pieces; ++i)
        if (position < at.ownFrom) {
          *reinterpret_cast<Words4 *>(target + i * 512 + lane * 16) = words[i];
        } else { // eight dims are what two lanes bring to a step
          char *const halves = target + i * 512 + (4 * g + t % 2 * 2) * 16 + t / 2 * 8;
          *reinterpret_cast<Words2 *>(halves) = {words[i].x, words[i].y};
          *reinterpret_cast<Words2 *>(halves + 16) = {words[i].z, words[i].w};
        }
      if ((block64 + 64) % keys == 0 && block64 / keys * keys < committed && block64 / keys >= outside)
        consumer.release();
    }
  }
  /// Those of the pass's own rows: peek(position after ownFrom, dims).
  __device__ __forceinline__ auto valuesOfUnit() const {
    const auto through = [&](auto rows) {
      if constexpr (kE4m3<A>)
        return ThroughCodes<decltype(rows)>{rows, scalesOfOwn(false)};
      else
        return rows;
    };
    auto rows = own.values;
    if constexpr (hasTrees<A>()) {
      rows.base = own.values.at(0, at.kvHead * D);
      return through(PathRows<A, decltype(rows)>{rows, &pass, at.firstRow, at.ownFrom, at.ownRow});
    } else {
      rows.base = own.values.at(at.ownRow, at.kvHead * D);
      return through(rows);
    }
  }
  /// Values of W::leaves leaves from `leaf` on, of a slab.
  __device__ __forceinline__ void bringValues(int leaf, int slab) {
    const auto ownValues = valuesOfUnit();
    const char *const ringEnd = consumer.ring.data + C::Ring::stages * C::Ring::stageBytes;
    const int ringBytes = (C::Ring::stages - consumer.ring.first()) * C::Ring::stageBytes;
    const auto bring = [&](auto... from) {
      return bringWideValues<A, C>(
          scratch + W::keyBytes, consumer.earlier(held) - (S::windowed ? outside * C::Ring::stageBytes : 0), ringEnd,
          ringBytes, ownValues, first, at.ownFrom, last, slab * kConsumerWarps + leaf, from...);
    };
    int bad;
    if constexpr (S::windowed)
      bad = bring(from);
    else
      bad = bring();
    if (lane == 0)
      spoiled[warp] = leaf > 0 ? min(bad, spoiled[warp]) : bad;
    if (leaf + W::leaves == kConsumerWarps && slab + 1 == W::slabs)
      for (int back = held; back > 0; --back)
        consumer.releaseEarlier(back);
  }
  __device__ __forceinline__ void loadQueries(Queries &a) const {
    const auto pairOfWord = [&](int j) { return pairOf(j / pieces); };
    const auto wanted = [&](int j) { return at.has(pairOfWord(j)) && hasKeyDim(j % pieces); };
    const auto rowOf = [&](int j) { return at.rowOf(pairOfWord(j)); };
    const auto columnOf = [&](int j) { return at.columnOf(pairOfWord(j)) + 32 * (j % pieces) + 8 * t; };
    Words4 q[2 * pieces];
    peekAll(query, q, wanted, rowOf, columnOf);
    settleAll(query, q, wanted, rowOf, columnOf);
#pragma unroll
    for (int i = 0; i < pieces; ++i) {
      const Words4 &one = q[i], &other = q[pieces + i];
#pragma unroll
      for (int step = 0; step < 2; ++step) { // a lane has eight dims of a step, four for each of two lanes
        const auto take = [&](u32 low, u32 high) {
          const int from = (lane & ~3) + 2 * step + t / 2;
          const u32 even = __shfl_sync(~0u, low, from), odd = __shfl_sync(~0u, high, from);
          return t % 2 ? odd : even;
        };
        a[i][step][0] = take(one.x, one.z);
        a[i][step][1] = take(other.x, other.z);
        a[i][step][2] = take(one.y, one.w);
        a[i][step][3] = take(other.y, other.w);
      }
    }
  }

  // --- scores

  /// Of keys 2t and 2t + 1 of two eights, which are `step` apart: of the first pair, of the second.
  __device__ __forceinline__ void scores(const Queries &a, const int (&seen)[2], int eight, int step,
                                         float (&s)[2][4]) const {
#pragma unroll
    for (int e = 0; e < 4; ++e)
      s[0][e] = s[1][e] = 0.0f;
#pragma unroll
    for (int i = 0; i < pieces; ++i) {
      const Words4 one = loadShared4(keysAt + eight * (pieces * 32) + lane, i * 512),
                   two = loadShared4(keysAt + eight * (pieces * 32) + lane, (step * pieces + i) * 512);
      mma(s[0], a[i][0][0], a[i][0][1], a[i][0][2], a[i][0][3], one.x, one.y);
      mma(s[1], a[i][0][0], a[i][0][1], a[i][0][2], a[i][0][3], two.x, two.y);
      if (S::hasStep(2 * i + 1)) {
        mma(s[0], a[i][1][0], a[i][1][1], a[i][1][2], a[i][1][3], one.z, one.w);
        mma(s[1], a[i][1][0], a[i][1][1], a[i][1][2], a[i][1][3], two.z, two.w);
      }
    }
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        s[n][e] = S::score(s[n][e], scale);
    if (full)
      return;
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        if (!S::sees(first + 8 * (eight + n * step) + 2 * t + e % 2, seen[e / 2], window))
          s[n][e] = nothing;
  }
  __device__ __forceinline__ void findMaxima(const Queries &a, const int (&seen)[2], Sums &sum,
                                             float (&shift)[2]) const {
    const int eights = min(S::round / 8, (last - first) / 8 + 1);
#pragma unroll 1
    for (int eight = 0; eight < eights; eight += 2) {
      float s[2][4];
      scores(a, seen, eight, 1, s);
#pragma unroll
      for (int n = 0; n < 2; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          sum[e / 2].m = fmaxf(sum[e / 2].m, s[n][e]);
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
#pragma unroll
      for (int d = 1; d < 4; d *= 2)
        sum[h].m = fmaxf(sum[h].m, __shfl_xor_sync(~0u, sum[h].m, d));
      shift[h] = S::shift(sum[h].m, scale);
      sum[h].m = S::scaled(sum[h].m, scale);
    }
  }

  // --- weights and values

  __device__ __forceinline__ void addLeaf(const Queries &a, const int (&seen)[2], const float (&shift)[2], int leaf,
                                          Sums &sum) const {
    u32 weight[4][2];   // p = exp(s - m) as A: [block of 64][pair]
    float z[2][2] = {}; // of keys 2t and 2t + 1
#pragma unroll
    for (int block = 0; block < 4; block += 2) {
      float s[2][4];
      scores(a, seen, 8 * block + leaf, 8, s);
#pragma unroll
      for (int n = 0; n < 2; ++n)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          u32 &both = weight[block + n][h];
          both = packBf16(S::weight(s[n][2 * h], shift[h], scale), S::weight(s[n][2 * h + 1], shift[h], scale));
          z[h][0] = __fadd_rn(z[h][0], bf16Low(both));
          z[h][1] = __fadd_rn(z[h][1], bf16High(both));
        }
    }
    // o = p * v
    const Words4 *const ofLeaf = valuesAt + leaf % W::leaves * (W::leafBytes / 16) + lane;
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      const Words4 one = loadShared4(ofLeaf, n * 512), two = loadShared4(ofLeaf, (4 + n) * 512);
      float even[4] = {}, odd[4] = {};
      mma(even, weight[0][0], weight[0][1], weight[1][0], weight[1][1], one.x, one.y);
      mma(odd, weight[0][0], weight[0][1], weight[1][0], weight[1][1], one.z, one.w);
      mma(even, weight[2][0], weight[2][1], weight[3][0], weight[3][1], two.x, two.y);
      mma(odd, weight[2][0], weight[2][1], weight[3][0], weight[3][1], two.z, two.w);
#pragma unroll
      for (int e = 0; e < 4; ++e) { // the eights 2t and 2t + 1 of the dims, of the first pair and the second
        float *const o = sum[e / 2].o + e % 2 * 8 + 2 * n;
        o[0] = __fadd_rn(o[0], even[e]);
        o[1] = __fadd_rn(o[1], odd[e]);
      }
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float ofKeys = __fadd_rn(z[h][0], z[h][1]);
#pragma unroll
      for (int d = 1; d < 4; d *= 2)
        ofKeys = __fadd_rn(ofKeys, __shfl_xor_sync(~0u, ofKeys, d));
      sum[h].z = __fadd_rn(sum[h].z, ofKeys);
    }
  }
  /// Rows that see a value which is not finite get NaN, see bringWideValues.
  __device__ __forceinline__ void spoil(const int (&seen)[2], Sums &sum) const {
    if (first + S::round > at.ownFrom) {
      int lowestBad = kNoPosition;
#pragma unroll
      for (int w = 0; w < kConsumerWarps; ++w)
        lowestBad = min(lowestBad, spoiled[w]);
#pragma unroll
      for (int h = 0; h < 2; ++h)
        if (lowestBad < seen[h]) // of an earlier one its window may have nothing: NaN all the same
          sum[h].z = __int_as_float(0x7fffffff);
    }
  }

  // --- parts

  /// The round's sums are folded into the unit's. After its last round these are stored, where mergeWide finds them.
  __device__ __forceinline__ void storePart(int slab, Sums &sum) const {
    const bool end = at.round + 1 == at.end;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float ofRound = sum[h].m;
      if constexpr (W::stateBytes > 0) {
        Float4 *const kept =
            reinterpret_cast<Float4 *>(scratch + W::begin) + h * W::kept * kConsumerThreads + threadIdx.x;
        Soft<W::outputs> unit;
        if (!fresh) {
          unit.m = kept[0].x;
          unit.z = kept[0].y;
#pragma unroll
          for (int i = 0; i < W::outputs; i += 4) {
            const Float4 four = kept[(i / 4 + 1) * kConsumerThreads];
            unit.o[i] = four.x, unit.o[i + 1] = four.y, unit.o[i + 2] = four.z, unit.o[i + 3] = four.w;
          }
        }
        unit.take(sum[h]);
        if (!end) {
          kept[0] = {unit.m, unit.z, 0, 0};
#pragma unroll
          for (int i = 0; i < W::outputs; i += 4)
            kept[(i / 4 + 1) * kConsumerThreads] = {unit.o[i], unit.o[i + 1], unit.o[i + 2], unit.o[i + 3]};
          continue;
        }
        sum[h] = unit;
      }
#pragma unroll
      for (int word = 0; word < kWideWords / 2; ++word)
        storeFlagged(wideWord<A>(grid, at.unit, warp, slab * kWideWords + h * kWideWords / 2 + word),
                     {__float_as_uint(sum[h].o[2 * word]), __float_as_uint(sum[h].o[2 * word + 1]),
                      __float_as_uint(word % 2 ? sum[h].z : sum[h].m), wideTag<A>(pass, layer)});
      if constexpr (W::slabs > 1) { // the maximum is that of the next slab, too
        sum[h] = {};
        sum[h].m = ofRound;
      }
    }
  }
};

/// As attend(), where the pass has wideTiles, up to the parts: mergeWide follows. `A::wideSums`: byte of the flagged
/// words where the parts begin.
template <class A, class C, class Own, class Query>
__device__ __forceinline__ void attendWide(const GridEdges &grid, const PassShared &pass, int layer, float scale,
                                           C consumer, Own own, Query query) {
  WideUnits<A, C, Own, Query> units{grid, pass, layer, scale, AttentionShape<A>::window(layer), consumer, own, query};
  units.run();
  consumerSync(); // the next phase's operands come where the scratch is
  units.consumer.keep();
}

} // namespace megalith::device
