//===- AttentionPlan.cuh - which CTA attends to what, and its KV ----------===//
//
// Work is dealt to the CTAs in units: a tile (up to 16 pairs of a row of the pass and a query
// head, of one slot and one KV head; in a wide tile, see WideAttention.cuh, 128) over a range of
// 8^level rounds of 256 positions. Tiles and level follow from the lengths of the pass: those that should
// be done first. Producer and consumers walk over a CTA's units in the same order; the producer copies the keys and
// values of committed positions through the ring of the weights.
//
// Where every layer has a window, work is dealt over the positions in the greatest one. In a layer with a smaller
// window than what was dealt, rounds and units in front of it fall away.
//===----------------------------------------------------------------------===//
#pragma once

#include "megalith/AttentionShape.cuh"
#include "megalith/Pool.cuh"
#include "megalith/Paths.cuh"

namespace megalith::device {

/// A CTA's first unit: the last CTAs begin, which are dealt the fewest tiles of products.
__device__ __forceinline__ int unitsFrom() { return (int)gridDim.x - 1 - (int)blockIdx.x; }

/// One round of one unit: what producer and consumers walk over in the same order. `OneRowEach`: no slot has two rows
/// in the pass. Then a free row is like any other: of its path it alone is in the pass.
template <class A, bool OneRowEach = false> struct RoundCursor : AttentionUnit {
  using S = AttentionShape<A>;
  static constexpr bool trees = hasTrees<A>() && !OneRowEach;
  int window;        ///< of the layer
  int begin;         ///< of the rounds of the unit that was dealt: the layer's window may begin after it
  bool free = false; ///< the unit is of a free row (Paths.cuh)

  /// At the CTA's first unit.
  __device__ __forceinline__ explicit RoundCursor(const PassShared &pass, int window)
      : AttentionUnit(pass.attention.firstUnit), window(window), begin(round) {
    if constexpr (trees)
      free = unit >= 0 && isFree<A>(pass, firstRow);
    if constexpr (S::windowed)
      toWindow(pass);
  }
  /// `group`: the unit's, or one before.
  __device__ __forceinline__ RoundCursor(const PassShared &pass, int window, int first, int group)
      : AttentionUnit(), window(window) {
    unit = first;
    this->group = group;
    seek(pass);
  }
  /// To the unit `unit`, or the first after it of which the layer sees something; after the last it becomes -1.
  __device__ __forceinline__ void seek(const PassShared &pass) {
    find(pass);
    if constexpr (S::windowed)
      toWindow(pass);
  }
  __device__ __forceinline__ void toWindow(const PassShared &pass) {
    for (; !done(); find(pass)) {
      round = max(round, from() / S::round);
      if (round < end)
        return;
      unit += gridDim.x;
    }
  }
  /// The first position that some row of the tile sees in this layer.
  __device__ __forceinline__ int from() const { return S::windowFrom(visible - rows + 1, window); }
  __device__ __forceinline__ void find(const PassShared &pass) {
    if (unit >= pass.attention.rangesUpto[pass.attention.groups - 1] * S::tilesOfRows) {
      unit = -1;
      return;
    }
    const int range = unit / S::tilesOfRows, tile = unit % S::tilesOfRows;
    while (range >= pass.attention.rangesUpto[group])
      ++group;
    const int before = group ? pass.attention.rangesUpto[group - 1] : 0, rounds = 1 << 3 * pass.attention.rangeLevel;
    whole = pass.attention.rangesUpto[group] - before == 1;
    kvHead = tile / S::slices;
    firstHead = kvHead * S::group + tile % S::slices * S::headsOfTile;
    firstRow = pass.attention.groupFirst[group];
    rows = pass.attention.groupFirst[group + 1] - firstRow;
    slot = pass.rows[firstRow].slot;
    visible = pass.rows[firstRow + rows - 1].visible;
    ownRow = pass.attention.firstOfSlot[firstRow];
    ownFrom = pass.rows[ownRow].position;
    if constexpr (trees)
      if ((free = isFree<A>(pass, firstRow))) {
        ownRow = firstRow;
        ownFrom = pass.rows[firstRow].position + 1 - passOf<A>(pass).own[firstRow];
      }
    const int dealtFrom = S::windowFrom(visible - this->rows + 1, S::mostWindow()) / S::round;
    round = (range - before + (dealtFrom >> 3 * pass.attention.rangeLevel)) * rounds;
    end = min(round + rounds, (visible + S::round - 1) / S::round);
    if (S::windowed)
      round = max(round, dealtFrom);
    begin = round;
  }
  __device__ __forceinline__ bool done() const { return unit < 0; }
  /// Which of the CTA's units this is.
  __device__ __forceinline__ int number() const { return (unit - unitsFrom()) / (int)gridDim.x; }
  __device__ __forceinline__ void next(const PassShared &pass) {
    if (++round >= end)
      toNextUnit(pass);
  }
  __device__ __forceinline__ void toNextUnit(const PassShared &pass) {
    unit += gridDim.x;
    seek(pass);
  }
  __device__ __forceinline__ int first() const { return round * S::round; }
  /// The row of the pass at one of its own positions.
  __device__ __forceinline__ int ownRowAt(const PassShared &pass, int position) const {
    if constexpr (trees)
      if (free)
        return rowOnPath(pass, firstRow, position);
    return ownRow + position - ownFrom;
  }
  /// Whether it is the last one of its tile that was dealt: no window skips it.
  __device__ __forceinline__ bool isLast() const { return end * S::round >= visible; }
  /// Own rows that the unit needs, where it stores their codes: a row need not see itself.
  __device__ __forceinline__ int ownRowsOf(const PassShared &pass) const {
    return isLast()                   ? max(visible, pass.rows[firstRow + rows - 1].position + 1) - ownFrom
           : end * S::round > ownFrom ? visible - ownFrom
                                      : 0;
  }
  /// Whether the unit is the one that stores the codes of this row of the pass: one of each KV head.
  __device__ __forceinline__ bool keepsOwn(int row) const {
    return row >= firstRow && row < firstRow + rows && isLast() && firstHead == kvHead * S::group;
  }
  __device__ __forceinline__ int rowOf(int pair) const { return firstRow + pair / S::headsOfTile; }
  __device__ __forceinline__ int columnOf(int pair) const { return (firstHead + pair % S::headsOfTile) * S::dim; }
  /// The last slice of a group may have fewer heads than a tile has room for.
  __device__ __forceinline__ bool has(int pair) const {
    return pair < rows * S::headsOfTile &&
           (S::group % S::headsOfTile == 0 || firstHead + pair % S::headsOfTile < (kvHead + 1) * S::group);
  }
};

/// There is no room for the sums of wide tiles' ranges.
constexpr int kNoTime = 0x7fffffff;
/// Deals the pass's attention, in wide tiles or not: which rows share a tile, the level of the ranges, and how many
/// the tiles before have. One warp. How long it should take, in tenths of half a round of a tile of 16 pairs; or
/// kNoTime.
template <class A> __device__ __forceinline__ int dealRanges(PassShared &pass, bool wide) {
  using S = AttentionShape<A>;
  const int lane = laneId(), numRows = pass.numRows, rowsOfTile = wide ? S::rowsOfWideTile : S::rowsOfTile;
  bool someFree = false;
  if constexpr (hasTrees<A>())
    someFree = passOf<A>(pass).someFree != 0;
  int groups = 0;
#pragma unroll 1
  for (int base = 0; base < numRows; base += 32) {
    const int row = base + lane;
    bool first = row < numRows && (row - pass.attention.firstOfSlot[row]) % rowsOfTile == 0;
    if (someFree)
      first = first || (row < numRows && (isFree<A>(pass, row) || (row > 0 && isFree<A>(pass, row - 1))));
    const u32 all = __ballot_sync(~0u, first);
    if (first)
      pass.attention.groupFirst[groups + __popc(all & ((1u << lane) - 1))] = (short)row;
    groups += __popc(all);
  }
  if (lane == 0) {
    pass.attention.groups = groups;
    pass.attention.groupFirst[groups] = (short)numRows;
  }
  __syncwarp();
  const auto visibleOf = [&](int group) {
    return group < groups ? pass.rows[pass.attention.groupFirst[group + 1] - 1].visible : 0;
  };
  constexpr int ofLane = kMaxRows / 32; // groups
  // In a window the first row of a group sees positions from `from` on.
  int visible[ofLane], from[ofLane] = {}, longest = 0;
#pragma unroll
  for (int i = 0; i < ofLane; ++i) {
    visible[i] = 32 * i < groups ? visibleOf(32 * i + lane) : 0;
    if (const int group = 32 * i + lane; S::windowed && group < groups)
      from[i] = S::windowFrom(pass.rows[pass.attention.groupFirst[group]].visible, S::mostWindow());
    longest = max(longest, visible[i] - from[i]);
  }
  // How long the CTAs should take: on average, and at least a whole unit. A unit begins and ends, which is half a
  // round; parts are put together in a few of these. Wide tiles take longer; the plan says how much.
  int best = kNoTime, all = 0;
#pragma unroll
  for (int d = 16; d; d /= 2)
    longest = max(longest, __shfl_xor_sync(~0u, longest, d));
  const int rounds = (longest + S::round - 1) / S::round, levels = wide ? A::wideLevels : S::levels();
#pragma unroll 1
  for (int level = 0;; ++level) {
    const int size = S::round << 3 * level;
    int upto[ofLane], ranges = 0;
    bool tooMany = false;
#pragma unroll
    for (int i = 0; i < ofLane; ++i) {
      upto[i] = ranges;
      if (32 * i >= groups)
        continue;
      int sum = (visible[i] + size - 1) / size - from[i] / size;
      tooMany |= __any_sync(~0u, sum > (S::windowed ? kMostRanges - 8 : kMostRanges)) != 0;
#pragma unroll
      for (int d = 1; d < 32; d *= 2) {
        const int before = __shfl_up_sync(~0u, sum, d);
        sum += lane >= d ? before : 0;
      }
      upto[i] += sum;
      ranges += __shfl_sync(~0u, sum, 31);
    }
    const int ctas = gridDim.x;
    all = level ? all : ranges; // of single rounds
    // There is no room for their sums.
    tooMany |= wide ? ranges * S::tilesOfRows > A::wideUnits : (ranges - groups) * S::tilesOfRows > kSplitUnits * ctas;
    const int average = ((2 * all + ranges) * S::tilesOfRows + ctas - 1) / ctas, ofUnit = min(1 << 3 * level, rounds);
    const int time =
        wide ? (ranges * S::tilesOfRows + ctas - 1) / ctas * (A::wideRound * ofUnit + A::wideUnit) + A::wideParts
             : 10 * (max(average, 2 * ofUnit + 1) + (ranges > groups ? 4 : 0));
    if (time < best && (!tooMany || (!wide && level == levels))) {
      best = time;
#pragma unroll
      for (int i = 0; i < ofLane; ++i)
        if (32 * i < groups)
          pass.attention.rangesUpto[32 * i + lane] = (u16)upto[i];
      if (lane == 0)
        pass.attention.rangeLevel = level;
    }
    if (ranges == groups || level == levels)
      break;
  }
  __syncwarp();
  return best;
}

/// The same, and this CTA's first unit. One warp; the caller synchronises.
template <class A> __device__ __noinline__ void planRanges(PassShared &pass) {
  const int lane = laneId();
  int oneRowEach = 1;
#pragma unroll 1
  for (int row = lane; row < pass.numRows; row += 32)
    oneRowEach &= pass.attention.firstOfSlot[row] == row;
  oneRowEach = __all_sync(~0u, oneRowEach);
  // Once as wide tiles, once as others, and if that takes longer once more as wide ones.
  const bool mayBeWide = A::wideUnits > 0 && pass.numRows > kTileRows && !oneRowEach;
  bool wide = mayBeWide;
  int ofWide = 0;
#pragma unroll 1
  for (int turn = 0;; ++turn) {
    const int time = dealRanges<A>(pass, wide);
    if (turn == 0)
      ofWide = time;
    constexpr bool always = requires { A::alwaysWide; };
    if (!mayBeWide || turn == 2 || (turn == 1 ? time <= ofWide : always && time != kNoTime))
      break;
    wide = turn == 1;
  }
  if (lane == 0) {
    pass.attention.oneRowEach = oneRowEach;
    pass.attention.wideTiles = wide;
    pass.attention.split = pass.attention.rangesUpto[pass.attention.groups - 1] > pass.attention.groups;
    RoundCursor<A> at(pass, AttentionShape<A>::mostWindow(), unitsFrom(), 0);
    pass.attention.firstUnit = at;
  }
  __syncwarp();
}

/// What a CTA has to know of a pass beside its rows, for itself and for its producer. One warp; a barrier
/// of the CTA follows.
template <class A, class Stream> __device__ __noinline__ void planPass(PassShared &pass) {
  findSlots(pass);
  findPaths<A>(pass);
  planRanges<A>(pass);
  if (laneId() == 0)
    planProducts<Stream>(pass);
  findPlaces<A>(pass);
  __syncwarp();
}

/// Producer: scales of positions [start, end) of one head to their places in the stage that was entered, of which
/// `first` is the first position: those that no copy of 16 bytes can bring. `placeOf`: of a position, the page's number
/// times page_tokens, and its place in the page.
template <class A, int Keys, class P, class Place>
__device__ __forceinline__ void bringScales(P &producer, const char *head, int start, int end, int first,
                                            Place placeOf) {
  constexpr int batch = 8; // loads under way together
  char *const target = producer.target() + Keys * A::headDim;
#pragma unroll 1
  for (int base = start + (P::lanes > 1 ? laneId() : 0); base < end; base += batch * P::lanes) {
    u16 scales[batch];
#pragma unroll
    for (int i = 0; i < batch; ++i) {
      const int place = placeOf(min(base + i * P::lanes, end - 1));
      scales[i] = loadHalfWord(head + place / A::pageTokens * (PoolStrides<A>::page * PoolStrides<A>::elementBytes) +
                               scaleInHead<A>(place % A::pageTokens));
    }
#pragma unroll
    for (int i = 0; i < batch; ++i)
      if (base + i * P::lanes < end)
        *reinterpret_cast<u16 *>(target + (base + i * P::lanes - first) * 2) = scales[i];
  }
  if constexpr (P::lanes > 1) // an arrival by copies need not order these
    __threadfence();
}

/// Producer: the next chunk, keys or values of positions [start, start + count) of one head. `head`: those of page 0;
/// `pages`: the number of page 0, in shared memory. The first `outside` positions are not in the window: their place in
/// the chunk stays as it is. False when the kernel leaves.
template <class A, int Keys, class P>
__device__ __forceinline__ bool pushPositions(P &producer, const char *head, const int *pages, int start, int count,
                                              int outside) {
  constexpr int rowBytes = PoolStrides<A>::rowBytes; // of one head
  constexpr long long stride = PoolStrides<A>::page * PoolStrides<A>::elementBytes;
  // Scales come eight at a time, where pages have them so. In front of a window stands nothing that may not be read;
  // after the last position others may write.
  constexpr bool eights = kE4m3<A> && A::pageTokens % 8 == 0;
  const auto copyScales = [&](const char *page, int place, int after, int count) {
    if constexpr (eights)
      producer.copy(producer.target() + Keys * rowBytes + after * 2, page + scaleInHead<A>(place), count * 2);
  };
  // A chunk is some whole pages, or one of the equal parts of a page; more pages would be too many registers.
  constexpr int part = Keys < A::pageTokens ? Keys : A::pageTokens, parts = Keys / part;
  if constexpr (Keys % part == 0 && A::pageTokens % part == 0 && parts <= 16 && (!kE4m3<A> || part % 8 == 0)) {
    if (count == Keys && outside == 0) { // one lane asks for all: as few steps as can be
      u32 page[parts];
#pragma unroll
      for (int i = 0; i < parts; ++i)
        page[i] = loadShared(pages + start / A::pageTokens, i * 4);
      if (!producer.open(Keys * rowBytes + (kE4m3<A> ? Keys * 2 : 0)))
        return false;
      const int inPage = Keys < A::pageTokens ? start % A::pageTokens : 0;
      const char *const source = head + (long long)inPage * rowBytes;
#pragma unroll
      for (int i = 0; i < parts; ++i) {
        producer.copy(producer.target() + i * part * rowBytes, source + page[i] * stride, part * rowBytes);
        copyScales(head + page[i] * stride, inPage, i * part, part);
      }
      producer.close();
      return true;
    }
  }
  const int first = start + outside, end = start + count;
  const int scalesFrom = eights ? first / 8 * 8 : end, scalesUpto = eights ? max(scalesFrom, end / 8 * 8) : end;
  if constexpr (kE4m3<A>) {
    if (!producer.enter())
      return false;
    bringScales<A, Keys>(producer, head, eights ? max(first, scalesUpto) : first, end, start, [&](int position) {
      return (int)loadShared(pages + position / A::pageTokens, 0) * A::pageTokens + position % A::pageTokens;
    });
    producer.expect((end - first) * rowBytes + (scalesUpto - scalesFrom) * 2);
  } else if (!producer.open((end - first) * rowBytes)) {
    return false;
  }
#pragma unroll 1
  for (int position = first, next; position < end; position = next) {
    const int place = position % A::pageTokens;
    next = min(end, position - place + A::pageTokens);
    const u32 page = loadShared(pages + position / A::pageTokens, 0);
    producer.copy(producer.target() + (position - start) * rowBytes, head + page * stride + (long long)place * rowBytes,
                  (next - position) * rowBytes);
    if (const int from = position / 8 * 8, upto = min(next, scalesUpto); eights && from < upto)
      copyScales(head + page * stride, from % A::pageTokens, from - start, upto - from);
  }
  producer.close();
  return true;
}

/// The same where positions from `base` on stand at places of their own: `places` has those of each.
template <class A, int Keys, class P>
__device__ __forceinline__ bool pushPath(P &producer, const char *head, const int *pages, int start, int count,
                                         int outside, int base, const int *places) {
  constexpr int rowBytes = PoolStrides<A>::rowBytes, batch = 4; // of one head; loads under way together
  constexpr long long stride = PoolStrides<A>::page * PoolStrides<A>::elementBytes;
  const int end = start + count;
  if constexpr (kE4m3<A>) {
    if (!producer.enter())
      return false;
    bringScales<A, Keys>(producer, head, start + outside, end, start, [&](int position) {
      return position < base
                 ? (int)loadShared(pages + position / A::pageTokens, 0) * A::pageTokens + position % A::pageTokens
                 : (int)loadWord(places + position - base);
    });
    producer.expect((count - outside) * rowBytes);
  } else if (!producer.open((count - outside) * rowBytes)) {
    return false;
  }
#pragma unroll 1
  for (int position = start + outside, next; position < min(end, base); position = next) {
    const int place = position % A::pageTokens;
    next = min(min(end, base), position - place + A::pageTokens);
    const u32 page = loadShared(pages + position / A::pageTokens, 0);
    producer.copy(producer.target() + (position - start) * rowBytes, head + page * stride + (long long)place * rowBytes,
                  (next - position) * rowBytes);
  }
#pragma unroll 1
  for (int position = max(start + outside, base); position < end; position += batch) {
    u32 place[batch];
#pragma unroll
    for (int i = 0; i < batch; ++i)
      place[i] = loadWord(places + min(position + i, end - 1) - base);
#pragma unroll
    for (int i = 0; i < batch; ++i)
      if (position + i < end)
        producer.copy(producer.target() + (position + i - start) * rowBytes,
                      head + place[i] / A::pageTokens * stride + (long long)(place[i] % A::pageTokens) * rowBytes,
                      rowBytes);
  }
  producer.close();
  return true;
}

/// Producer: K and V of the committed positions that this CTA's units see.
template <class A, class P>
__device__ __forceinline__ bool streamKv(P &producer, const abi::LaunchParams &p, const PassShared &pass, int layer) {
  using S = AttentionShape<A>;
  constexpr int keys = S::keysOfChunk(P::stageBytes);
  static_assert(keys >= 32, "a stage is too small for the keys of 32 positions");
  if (!producer.awaitPlan())
    return false;
  if (pass.attention.firstUnit.unit < 0)
    return true;
  RoundCursor<A> at(pass, S::window(layer));
  constexpr int elementBytes = PoolStrides<A>::elementBytes;
  const long long ofLayer = pageAddress<A>(layer, 0, 0, 0) * elementBytes;
  for (int next = 0; !at.done(); at.toNextUnit(pass)) { // of the CTA's units
    const int number = S::windowed ? at.number() : next++, from = at.from();
    // Page numbers are looked up for all layers, so from where the greatest window begins.
    const int dealtFrom = S::windowFrom(at.visible - at.rows + 1, S::mostWindow());
    const int begin = S::windowed ? max(at.begin * S::round, dealtFrom) : at.first(),
              upto = min(at.end * S::round, at.ownFrom);
    const long long head = ofLayer + pageAddress<A>(0, 0, at.kvHead, 0) * elementBytes;
    const char *const ofKeys = modelOf<A>(p).kCache + head, *const ofValues = modelOf<A>(p).vCache + head;
    int base = 0x7fffffff; // positions from there on stand at places of their own
    if constexpr (hasPaths<A>())
      if (at.free && (passOf<A>(pass).someFree & kFresh))
        base = baseOfFree(p, at.firstRow);
    const auto page = [](int position) { return position / A::pageTokens; };
#pragma unroll 1
    for (int first = S::windowed ? at.first() : begin; first < upto; first += S::round) {
      const int end = min(first + S::round, upto), seen = S::windowed ? max(first, from) : first;
      if (S::windowed && seen >= end)
        continue;
      const int *pages = producer.template pagesOf<A>(at.slot, number, page(begin), page(upto - 1) - page(begin) + 1,
                                                      page(seen), page(end - 1) - page(seen) + 1);
#pragma unroll 1
      for (int which = 0; which < 2; ++which)
#pragma unroll 1
        for (int start = S::windowed ? first + (seen - first) / keys * keys : first; start < end; start += keys) {
          if constexpr (hasPaths<A>())
            if (min(start + keys, end) > base) {
              if (!pushPath<A, keys>(producer, which ? ofValues : ofKeys, pages, start, min(keys, end - start),
                                     S::windowed ? max(0, seen - start) : 0, base, pathOf<A>(p, at.firstRow)))
                return false;
              continue;
            }
          if (!pushPositions<A, keys>(producer, which ? ofValues : ofKeys, pages, start, min(keys, end - start),
                                      S::windowed ? max(0, seen - start) : 0))
            return false;
        }
    }
  }
  return true;
}

} // namespace megalith::device
