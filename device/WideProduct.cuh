//===- WideProduct.cuh - products of more rows than one tile --------------===//
//
// With more than 16 rows most of what a CTA reads is activations. If they were loaded for each group of tiles, they
// would cross from the L2 cache once per group. So in such a pass a CTA takes eight groups at a time: a set. The
// activations are loaded once for the set, in windows of columns (Windows.cuh).
//
// The weights are operand A here, 16 weight rows to a warp. The activations are operand B. A warp multiplies one eighth
// of the columns after the other, in the order of the sum tree (Matrices.cuh). Where there is `wgmma`, four warps
// together read B straight from shared memory.
//
// A matrix with too few sets is cut by its columns as well. What a CTA takes at a time is a unit:
//
//   M::unitParts 8   a unit is all eighths of the columns of a set
//   M::unitParts 1   a unit is one eighth of the columns of a set. Its sums go to global memory, at M::parts. When the
//                    sums of all eighths are there, the unit of eighth p adds them up for group p of the set
//
// The weights are packed as for fewer rows. A stage takes a piece of each of the eight groups. A piece is the bytes of
// a chunk that one warp would read in a pass of fewer rows. A window has up to C::wideRows rows. When a pass has more
// rows, a unit takes that many at a time, and its weights are loaded again.
//===----------------------------------------------------------------------===//
#pragma once

#include "megalith/Stream.cuh"
#include "megalith/Product.cuh"
#include "megalith/Windows.cuh"

namespace megalith::device {

/// The group that is number `number` of a set. -1: there is none.
__device__ __forceinline__ int groupOfSet(int groups, bool descending, int set, int number) {
  const int g = set * kParts + number;
  return g >= groups ? -1 : descending ? groups - 1 - g : g;
}

/// Producer: copies the chunks of a matrix in the order of wideProduct. False when the kernel ends.
template <int WideRows, class P>
__device__ __forceinline__ bool streamUnits(P &producer, const StreamStep &step, const char *base) {
  const int perSet = kParts / step.unitParts, units = unitsOf(step.groups, step.unitParts);
  const int bytes = step.chunkBytes, piece = bytes / kParts, chunks = step.chunks, parts = step.unitParts;
  const int times = WideRows == kMaxRows ? 1 : ((int)producer.ring.shared->numRows + WideRows - 1) / WideRows;
  const long long ofGroup = (long long)chunks * bytes, toNext = step.descending ? -ofGroup : ofGroup;
#pragma unroll 1
  for (int unit = firstUnit(step.firstUnitCta); unit < units; unit += gridDim.x) {
    const int set = unit / perSet, groups = min(kParts, step.groups - set * kParts);
    const char *const first = base + groupOfSet(step.groups, step.descending, set, 0) * ofGroup + unit % perSet * piece;
#pragma unroll 1
    for (int p = 0; p < parts * times; ++p) {
      const char *chunk = first + p % parts * piece;
#pragma unroll 1
      for (int c = 0; c < chunks; ++c, chunk += bytes) {
        if (!producer.open(bytes))
          return false;
        char *target = producer.target();
        const char *source = chunk;
        if (P::lanes == 1 && groups == kParts) { // with several lanes each copy is a loop of its own
#pragma unroll
          for (int i = 0; i < kParts; ++i, target += piece, source += toNext)
            producer.copy(target, source, piece);
        } else {
#pragma unroll 1
          for (int i = 0; i < kParts;
               ++i, target += piece, source += i < groups ? toNext : 0) // for a missing group, the last one again
            producer.copy(target, source, piece);
        }
        producer.close();
      }
    }
  }
  return true;
}

/// Producer: streamSteps for a pass of many rows. Out of line, so that the code for one row stays short.
template <int WideRows, class P, class Kv>
__device__ __noinline__ bool streamWideSteps(P &home, const StreamStep *steps, int count, int first, int end,
                                             int layers, const char *stream, Kv kv) {
  assumeLocal(&home);
  P producer = home; // in registers
  bool whole = true;
  int layer = 0;
#pragma unroll 1
  for (int i = 0; whole && i < count;) {
    const StreamStep &step = steps[i];
    const char *base = stream + step.offset + layer * step.layerBytes;
    if (step.chunkBytes == 0)
      whole = kv(producer, layer);
    else if (step.chunks == 0)
      producer.announce(base, step.chunkBytes);
    else
      whole = streamUnits<WideRows>(producer, step, base);
    if (++i == end && ++layer < layers)
      i = first;
    else if (i == end)
      layer = 0;
  }
  home = producer;
  return whole;
}

/// Producer: does a segment's steps, in the order that the pass needs. Before the producer knows the pass, it takes the
/// order of at most 16 rows. When the pass turns out to have many rows, or to start again, the consumers drop what was
/// copied by then (dropAhead). False when the kernel ends, and when the pass starts again.
template <int WideRows, class P, class Kv>
__device__ __forceinline__ bool streamSegment(P &producer, const StreamStep *steps, int count, int first, int end,
                                              int layers, const char *stream, Kv kv) {
  assumeLocal(&producer);
  const bool known = !producer.followsWhole() || producer.awaitPlan();
  if (known && !producer.wide() &&
      streamSteps(producer, steps, count, first, end, producer.beginsLate() ? layers - 1 : 0, layers, stream, kv) &&
      producer.awaitPlan())
    return true;
  return producer.wide() && streamWideSteps<WideRows>(producer, steps, count, first, end, layers, stream, kv);
}

/// Number of chunks of M that this CTA takes in a pass of at most 16 rows.
template <class M> __device__ __forceinline__ int chunksOf() {
  const CtaGroups<M> groups;
  return groups.some() ? groups.count * chunksPerGroup<M>() : 0;
}
/// Consumers: drop the chunks that the producer copied before it knew that the pass has many rows, or starts again.
///   chunks   chunks of all matrices in front of the first step at which the producer waits for its plan. It also waits
///            for the plan before it fills a stage below `lentBefore`, so it may have copied fewer
template <class C> __device__ __forceinline__ void dropAhead(C consumer, int chunks, int lent, int lentBefore) {
  using R = typename C::Ring;
  if (const int begin = R::beginsAt(lentBefore); begin > 0)
    chunks = min(chunks, R::stages - begin);
#pragma unroll 1
  for (int i = 0; i < chunks; ++i) {
    consumer.acquire();
    consumer.release();
  }
  consumer.ring.lend(lent);
  __syncwarp(); // lanes may still read where the warp stood
  consumer.keep();
}

/// Whether they do: in passes of many rows, and in those that start again.
template <int Rows, class C> __device__ __forceinline__ bool dropsAhead(const PassShared &pass) {
  return Rows > kTileRows || (Rows > kOneRow && C::Ring::startsAgain(pass.numRows, pass.products.lentBefore));
}

/// The same where the producer took the pass for one of another model, before it knew that: of `chunks` chunks.
template <int Rows, class C>
__device__ __forceinline__ void dropGuess(C consumer, int chunks, int lent, int lentBefore) {
  dropAhead(consumer, chunks, Rows > kOneRow ? lent : 0, lentBefore);
}

/// A lane's sums of 16 weight rows and 8 rows of the pass. Lane 4i + j has rows 2j and 2j + 1 of the pass: first with
/// weight row i, then with weight row i + 8.
struct alignas(16) TileSums {
  float v[4];
};
/// Transposes 8 x 8 values. Lane 4i + j has row i, columns 2j and 2j + 1, of the matrix before and of its transpose
/// after. The whole warp calls it.
__device__ __forceinline__ Float2 turned(Float2 of) {
  const u32 a = __float_as_uint(of.x), b = __float_as_uint(of.y);
  const u32 low = transposed(lowHalves(a, b)), high = transposed(highHalves(a, b));
  return {__uint_as_float(lowHalves(low, high)), __uint_as_float(highHalves(low, high))};
}

/// Whether the kernel stops. A wait of this CTA may then have ended early, and what it waited for may not be there.
__device__ __forceinline__ bool stops(const GridEdges &grid) { return loadFlag(grid.stoppedHere) != 0; }

/// Thread i serves unit number i of the CTA. Returns the counter of that unit's set; null: there is no such unit. In
/// each use of the matrix the counter counts each unit of the set twice: when the unit has stored its sums, and when it
/// has read the sums of its group.
template <class M> __device__ __forceinline__ u32 *counterOfThread(const abi::LaunchParams &p) {
  const int unit = firstUnit(M::firstUnitCta) + (int)threadIdx.x * (int)gridDim.x;
  return unit < unitsOf(M::groups, M::unitParts) ? reinterpret_cast<u32 *>(p.flagged + M::partsDone) + unit / kParts
                                                 : nullptr;
}

/// How the eight consumer warps share a unit. Its weights are strips of 16 weight rows. Warps 0 to 3 take one strip
/// each, and so do warps 4 to 7.
///   Group 2   a unit has eight strips. Each warp has its own strip, and takes all rows of a window
///   Group 1   a unit has four strips. Warps 0 to 3 take one half of the rows of a window, warps 4 to 7 the other half
template <int Group> struct UnitShare {
  static_assert(Group == 1 || Group == 2);
  static constexpr int strips = 4 * Group; ///< of 16 weight rows
  __device__ static __forceinline__ int strip() { return Group == 2 ? warpId() : warpId() % 4; }
  /// The number in the unit of the group that tile `n` of a strip belongs to.
  __device__ static __forceinline__ int groupOf(int strip, int n) { return Group == 2 ? strip : 2 * strip + n; }
  /// Number of eights of rows that a warp takes of a window of so many row steps; and the first of them.
  __device__ static constexpr int eights(int steps) { return (Group == 2 ? 4 : 2) * steps; }
  __device__ static __forceinline__ int firstEight(int steps) { return Group == 2 ? 0 : warpId() / 4 * eights(steps); }
};
/// The sums of a unit, as a lane sees those of strip `strip`. They stand in shared memory. Those of a unit of one
/// eighth stand in global memory, for each window of rows. The order is [strip][eight rows][lane]. For groups of one
/// tile it is [strip][tile][eight rows][lane], because these tiles are read one by one.
template <int Group> struct UnitSums {
  char *base;
  int steps, strip; ///< row steps of the window; the strip
  __device__ __forceinline__ TileSums &both(int eight) const {
    return reinterpret_cast<TileSums *>(base)[(strip * (4 * steps) + eight) * 32 + laneId()];
  }
  /// The sums of tile `n` of the strip.
  __device__ __forceinline__ Float2 &tile(int n, int eight) const {
    if (Group == 2)
      return reinterpret_cast<Float2 *>(&both(eight))[n];
    return reinterpret_cast<Float2 *>(base)[((2 * strip + n) * (4 * steps) + eight) * 32 + laneId()];
  }
  __device__ __forceinline__ TileSums load(int eight) const {
    if (Group == 2)
      return both(eight);
    const Float2 low = tile(0, eight), high = tile(1, eight);
    return {low.x, low.y, high.x, high.y};
  }
  __device__ __forceinline__ void store(int eight, TileSums sum) const {
    if (Group == 2) {
      both(eight) = sum;
    } else {
      tile(0, eight) = {sum.v[0], sum.v[1]};
      tile(1, eight) = {sum.v[2], sum.v[3]};
    }
  }
};
template <class M> __device__ constexpr int partBytes() { return unitPartBytes(M::group); } ///< of one unit
template <class M, class C>
__device__ __forceinline__ char *partsOf(const abi::LaunchParams &p, int unit, int firstRow) {
  return p.flagged + M::parts + (long long)unit * partBytes<M>() + firstRow * (UnitShare<M::group>::strips * 64);
}

/// sums += a * b. `a` is 16 weight rows of each of four warps. `b` is rows of the pass: one core (Windows.cuh) stands
/// at `b`, the other `stride` bytes after it.
template <int Eights>
__device__ __forceinline__ void multiplyCores(float (&sums)[Eights][4], u32 a0, u32 a1, u32 a2, u32 a3, const char *b,
                                              int stride) {
  if constexpr (kAsyncMma) {
    asyncMma(sums, a0, a1, a2, a3, b, stride);
  } else {
    b += laneId() * 4;
#pragma unroll
    for (int i = 0; i < Eights; ++i)
      mma(sums[i], a0, a1, a2, a3, loadShared(b, i * 128), loadShared(b, i * 128 + stride));
  }
}

/// Waits until a window is full. A warp calls it. Out of line: mostly the window is full already.
inline __device__ __noinline__ void awaitWindow(RingShared &s, int window, u32 parity) {
  assumeShared(&s);
  for (u32 spin = 1; !barrierTest(&s.windowFull[window], parity); ++spin)
    if (stopSeen(s, spin)) { // the window warp has left; the next edge returns
      noteStop();
      return;
    }
}

/// Multiplies one eighth of the columns, which are `chunks` chunks. A warp multiplies 16 weight rows with its part of
/// the rows of `Steps` row steps. Its sums go where StreamPlace::sums says, as UnitSums. Those of a unit's first eighth
/// are stored, the others are added to what stands there. Where StreamPlace::sums is null, they are dropped.
///
/// Most registers hold sums. So addresses in shared memory have to be constants, and what the caller keeps must not
/// take registers.
///   Kind   of codes (Codes.cuh), or NoCodes. Sums of pieces then go into those of the eighth, `eighth` of all columns
///   S      the CTA's shared memory: ring, sync, scratch, places
template <int Group, int ChunkBlocks, int Steps, class Kind, class S>
__device__ __forceinline__ void multiplyColumns(int chunks, [[maybe_unused]] int eighth) {
  S &shared = *reinterpret_cast<S *>(dynamicShared());
  using C = decltype(shared.stream());
  using W = Windows<C>;
  using Share = UnitShare<Group>;
  constexpr int window = W::blocks(Steps), step = ChunkBlocks < window ? ChunkBlocks : window; // blocks
  constexpr int ofChunk = ChunkBlocks / step, ofWindow = window / step, eights = Share::eights(Steps);
  constexpr int blockBytes = W::blockBytes(Steps), coreBytes = blockBytes / 4;
  static_assert(ChunkBlocks % step == 0 && window % step == 0);
  const int lane = laneId(), warp = warpId(), steps = chunks * ofChunk;
  StreamPlace &home = shared.places[warp];
  typename C::Ring ring{shared.ring, &shared.sync, home.stage, home.state};
  int windowNext = home.window; // goes around twice: each window comes with both parities
  const auto windowAt = [&] { return windowNext - (windowNext < W::count ? 0 : W::count); };
  constexpr int partBytes = Kind::template partBytes<Group, ChunkBlocks>();
  const char *const pieces = shared.ring + Share::groupOf(Share::strip(), 0) * partBytes;
  const char *const windows =
      reinterpret_cast<const char *>(shared.scratch) + W::sumBytes(Steps) + Share::firstEight(Steps) * 128;
  const auto await = [&](bool chunk, bool activations) {
    const bool chunkThere = !chunk || barrierPeek(&shared.sync.full[ring.stage], ring.parity(ring.stage));
    const bool windowThere = !activations || barrierPeek(&shared.sync.windowFull[windowAt()], windowNext >= W::count);
    if (!chunkThere)
      awaitFull(shared.sync, ring.stage, ring.parity(ring.stage));
    if (!windowThere)
      awaitWindow(shared.sync, windowAt(), windowNext >= W::count);
    __syncwarp(); // lanes poll one by one, and multiply together
  };
  float sums[eights][4] = {};                                      // the chain of the sum tree
  [[maybe_unused]] float whole[Kind::pieces ? eights : 1][4] = {}; // of the eighth, where the chain is of a piece
  await(true, true);
#pragma unroll 1
  for (int left = steps; left > 0; --left) {
    const int i = steps - left;
    const char *const piece = pieces + ring.stage * C::Ring::stageBytes;
    const int block = ofChunk > 1 ? i % ofChunk * step : 0; // of the chunk
    const char *const activations =
        windows + windowAt() * W::bytes + (ofWindow > 1 ? i % ofWindow * (step * blockBytes) : 0);
    Words4 weights[step][2];
    [[maybe_unused]] Float2 scales[Kind::pieces ? step : 1];
#pragma unroll
    for (int b = 0; b < step; ++b)
      Kind::template load<Group, ChunkBlocks>(piece, block, b, weights[b], scales[Kind::pieces ? b : 0]);
    if constexpr (kAsyncMma && !Kind::pieces)
      asyncMmaBegin();
#pragma unroll
    for (int b = 0; b < step; ++b) {
      if constexpr (kAsyncMma && Kind::pieces)
        asyncMmaBegin();
      const Words4 &w = weights[b][0], &v = weights[b][1];
      const char *const first = activations + b * blockBytes, *const second = first + 2 * coreBytes;
      if constexpr (Group == 2) { // packed as A
        multiplyCores(sums, w.x, w.y, w.z, w.w, first, coreBytes);
        multiplyCores(sums, v.x, v.y, v.z, v.w, second, coreBytes);
      } else {
        multiplyCores(sums, w.x, v.x, w.y, v.y, first, coreBytes);
        multiplyCores(sums, w.z, v.z, w.w, v.w, second, coreBytes);
      }
      if constexpr (Kind::pieces) {
        if constexpr (kAsyncMma)
          asyncMmaEnd();
        const int done = i * step + b + 1;
        if (done % Kind::scaleBlocks == 0 && pieceEnds<Kind>(eighth, chunks * ChunkBlocks, done)) {
#pragma unroll
          for (int n = 0; n < eights; ++n)
#pragma unroll
            for (int e = 0; e < 4; ++e) {
              whole[n][e] = __fmaf_rn(e < 2 ? scales[b].x : scales[b].y, sums[n][e], whole[n][e]);
              sums[n][e] = 0.0f;
            }
        }
      }
    }
    if constexpr (kAsyncMma && !Kind::pieces)
      asyncMmaEnd();
    const bool chunkEnds = ofChunk == 1 || (i + 1) % ofChunk == 0,
               windowEnds = ofWindow == 1 || (i + 1) % ofWindow == 0 || left == 1;
    __syncwarp();
    if (lane == 0) {
      if (chunkEnds)
        barrierArrive(&shared.sync.empty[ring.stage]);
      if (windowEnds)
        barrierArrive(&shared.sync.windowEmpty[windowAt()]);
    }
    if (chunkEnds)
      ring.advance();
    if (windowEnds)
      windowNext = windowNext + 1 == 2 * W::count ? 0 : windowNext + 1;
    if (left > 1)
      await(chunkEnds, windowEnds);
  }
  if (lane == 0) {
    home.stage = ring.stage;
    home.state = ring.state;
    home.window = windowNext;
  }
  __syncwarp();
  const UnitSums<Group> unit = {home.sums, Steps, Share::strip()};
  const bool add = home.part > 0;
  if (!unit.base)
    return;
  const int firstEight = Share::firstEight(Steps);
#pragma unroll
  for (int eight = 0; eight < eights; ++eight) {
    const auto &of = [&]() -> auto & {
      if constexpr (Kind::pieces)
        return whole[eight];
      else
        return sums[eight];
    }();
    TileSums part = {{of[0], of[1], of[2], of[3]}};
    if (add) {
      const TileSums before = unit.load(firstEight + eight);
#pragma unroll
      for (int e = 0; e < 4; ++e)
        part.v[e] = __fadd_rn(before.v[e], part.v[e]);
    }
    unit.store(firstEight + eight, part);
  }
}

/// Weights in bf16.
struct NoCodes {
  static constexpr bool pieces = false;
  template <int Group, int ChunkBlocks> static constexpr int partBytes() {
    return ChunkBlocks * Group * kWarpBlockBytes;
  }
  /// What mma takes of block `block + b` of a chunk, of the pieces of a strip. `b` is a constant.
  template <int Group, int ChunkBlocks>
  __device__ __forceinline__ static void load(const char *piece, int block, int b, Words4 (&to)[2], Float2 &) {
#pragma unroll
    for (int n = 0; n < 2; ++n)
      to[n] = loadWeights<Group, ChunkBlocks>(
          piece + block * kWarpBlockBytes + (Group == 1 ? n * (ChunkBlocks * kWarpBlockBytes) : 0), b, n);
  }
};
/// The same of codes.
template <class Of> struct StripKind : Of {
  template <int Group, int ChunkBlocks> static constexpr int partBytes() {
    return (int)shape::partBytes(Group, ChunkBlocks, Of::coding);
  }
  template <int Group, int ChunkBlocks>
  __device__ __forceinline__ static void load(const char *piece, int block, int b, Words4 (&to)[2], Float2 &scales) {
    CodedBlock<Of, Group> codes[2 / Group];
#pragma unroll
    for (int n = 0; n < 2 / Group; ++n)
      codes[n].template load<true>(piece + n * partBytes<Group, ChunkBlocks>(), block + b, true);
    if constexpr (Group == 2) {
      const BlockWeights<2> of = codes[0].expanded(codes[0]);
      to[0] = of[0], to[1] = of[1];
      scales = codes[0].scales;
    } else {
      to[0] = codes[0].expanded(codes[0])[0], to[1] = codes[1].expanded(codes[1])[0];
      scales = {codes[0].scales.x, codes[1].scales.x};
    }
  }
};

/// multiplyColumns, out of line: one function for all matrices in bf16, and one for each kind of codes.
template <int Group, int ChunkBlocks, int Steps, class S> __device__ __noinline__ void multiplyEighth(int chunks) {
  multiplyColumns<Group, ChunkBlocks, Steps, NoCodes, S>(chunks, 0);
}
template <int Group, int ChunkBlocks, int Steps, class Kind, class S>
__device__ __noinline__ void multiplyCodes(int chunks, int eighth) {
  multiplyColumns<Group, ChunkBlocks, Steps, StripKind<Kind>, S>(chunks, eighth);
}

/// Runs the epilogue for unit `unit` of M, and for the window of rows that begins with row `firstRow`. Where a unit is
/// one eighth, it runs it for all units that the CTA has, and `unit` and `firstRow` mean nothing.
///
/// A function of its own calls it, so that nothing that it needs is in registers while a product is multiplied.
///   early, epilogue   as of streamProduct, but the epilogue's `tile` is one of eight rows
template <class M, class S, class Early, class Epilogue>
__device__ __forceinline__ void endOfUnit(S &shared, int unit, int firstRow, Early early, Epilogue epilogue) {
  using C = decltype(shared.stream());
  using W = Windows<C>;
  using Share = UnitShare<M::group>;
  constexpr int units = unitsOf(M::groups, M::unitParts), perSet = kParts / M::unitParts;
  constexpr bool byWarps = kByWarps<Epilogue, decltype(early(0, 0))>;
  const int numRows = shared.pass.numRows, steps = W::stepsOfPass(numRows), lane = laneId();
  const auto pairOf = [&](int ofUnit, int number, int n) { // of a tile of columns; -1: there is no such tile
    const int group = groupOfSet(M::groups, M::descending, ofUnit / perSet, number);
    return group < 0 ? -1 : (group * M::group + n) * 4 + (lane & 3);
  };
  if constexpr (M::unitParts == kParts) {
    const int left = min(C::wideRows, numRows - firstRow), firstEight = Share::firstEight(steps),
              strip = Share::strip();
    const UnitSums<M::group> sums = {reinterpret_cast<char *>(shared.scratch), steps, strip};
    constexpr int atOnce = Share::eights(1); // eights of rows at a time: their loads are under way together
    int pairs[2];
#pragma unroll
    for (int n = 0; n < 2; ++n)
      pairs[n] = pairOf(unit, Share::groupOf(strip, n), n % M::group);
#pragma unroll 1
    for (int base = firstEight; base < firstEight + Share::eights(steps) && base * 8 < left; base += atOnce) {
      constexpr int count = 2 * atOnce;
      __syncwarp(); // lanes may have waited for words one by one
      Float2 y[count];
      decltype(early(0, 0)) beside[count];
      const auto rowOf = [&](int i) { return (base + i / 2) * 8 + (lane >> 2); };
#pragma unroll
      for (int i = 0; i < count; i += 2) {
        const TileSums sum = sums.load(base + i / 2);
        y[i] = turned({sum.v[0], sum.v[1]});
        y[i + 1] = turned({sum.v[2], sum.v[3]});
      }
      const auto finish = [&](bool whole) { // `whole`: no branch separates what can run side by side
#pragma unroll
        for (int i = 0; i < count; ++i)
          if (whole || (pairs[i % 2] >= 0 && rowOf(i) < left))
            beside[i] = early(firstRow + rowOf(i), pairs[i % 2]);
#pragma unroll
        for (int i = 0; i < count; ++i)
          if (whole || (pairs[i % 2] >= 0 && (byWarps || rowOf(i) < left)))
            epilogue((firstRow + base * 8) / 8 + i / 2, rowOfEpilogue<byWarps>(firstRow + rowOf(i), rowOf(i) < left),
                     pairs[i % 2], y[i].x, y[i].y, beside[i]);
      };
      if ((M::groups % kParts == 0 || (pairs[0] >= 0 && pairs[1] >= 0)) && (byWarps || left >= (base + atOnce) * 8))
        finish(true);
      else
        finish(false);
    }
  } else {
#pragma unroll 1
    for (unit = firstUnit(M::firstUnitCta); unit < units; unit += gridDim.x) {
      const int ofSet = unit % kParts;
      if (pairOf(unit, ofSet, 0) < 0)
        return; // only groups at the end of the last set are missing
      // A warp takes eight rows of a tile of columns at a time. More would not stay in registers while it waits for
      // words.
#pragma unroll 1
      for (int item = warpId(); item / M::group * 8 < numRows; item += kConsumerWarps) {
        const int eight = item / M::group, n = item % M::group, row = eight * 8 + (lane >> 2),
                  first = eight * 8 / C::wideRows * C::wideRows;
        const int pair = pairOf(unit, ofSet, n);
        const UnitSums<M::group> sums = {partsOf<M, C>(shared.params, unit - ofSet, first), steps,
                                         ofSet * M::group / 2};
        const char *const at =
            reinterpret_cast<const char *>(&sums.tile(M::group == 2 ? n : ofSet % 2, eight - first / 8));
        Float2 parts[kParts];
#pragma unroll
        for (int part = 0; part < kParts; ++part)
          parts[part] = *reinterpret_cast<const Float2 *>(at + part * partBytes<M>());
        decltype(early(0, 0)) beside;
        if (row < numRows)
          beside = early(row, pair);
        Float2 y = parts[0];
#pragma unroll
        for (int part = 1; part < kParts; ++part) {
          y.x = __fadd_rn(y.x, parts[part].x);
          y.y = __fadd_rn(y.y, parts[part].y);
        }
        __syncwarp(); // lanes may have waited for words one by one
        y = turned(y);
        if (byWarps || row < numRows)
          epilogue(eight, rowOfEpilogue<byWarps>(row, row < numRows), pair, y.x, y.y, beside);
      }
    }
  }
}

/// Counts the CTA's units of M, when all consumers have stored, or read, their sums. Then waits until the counters of
/// their sets are at least `least`; with 0 it does not wait.
template <class M, class S> __device__ __noinline__ void countUnits(S &shared, u32 least) {
  assumeShared(&shared);
  consumerSync();
  if (u32 *counter = counterOfThread<M>(shared.params); counter && !stops(shared.grid)) {
    addRelease(counter, 1);
    if (least)
      awaitCount(shared.grid, M::partsEdge, counter, least);
  }
  if (least)
    consumerSync();
}

/// y = a * M^T for all rows of a pass of many rows. The window warp loads a (Windows.cuh).
///   layer   the layer that the pass is in
///   use     how many uses of the matrix in passes of many rows came before this one
///   end(layer, unit, firstRow)   calls endOfUnit. It captures nothing, for that would have to stay in registers
template <class M, class S, class End>
__device__ __forceinline__ void wideProduct(S &shared, int layer, u32 use, End end) {
  using C = decltype(shared.stream());
  using W = Windows<C>;
  constexpr bool split = M::unitParts < kParts;
  static_assert(M::unitParts == kParts || M::unitParts == 1);
  constexpr int units = unitsOf(M::groups, M::unitParts);
  if (firstUnit(M::firstUnitCta) >= units)
    return;
  const auto home = [&]() -> StreamPlace & { return shared.places[threadAgain() / 32]; };
  const auto keep = [&](auto set) {
    __syncwarp();
    if (laneId() == 0)
      set(home());
    __syncwarp();
  };
  keep([&](StreamPlace &place) {
    place.layer = layer, place.use = use, place.unit = firstUnit(M::firstUnitCta);
    place.sums = reinterpret_cast<char *>(shared.scratch);
  });
  consumerSync(); // scratch may still be read
  if (laneId() == 0)
    barrierArrive(&shared.sync.opened);
  if constexpr (split) {
    if (const u32 *counter = counterOfThread<M>(shared.params)) // until the sums of the last use have been read
      awaitCount(shared.grid, M::partsEdge, counter, 2 * kParts * use);
    consumerSync();
  }

#pragma unroll 1
  while (home().unit < units) {
#pragma unroll 1
    for (int firstRow = 0; firstRow < (C::wideRows < kMaxRows ? shared.pass.numRows : 1); firstRow += C::wideRows) {
      keep([](StreamPlace &place) { place.part = 0; });
#pragma unroll 1
      while (home().part < M::unitParts) {
        if constexpr (split) { // when the kernel stops, others may still read the sums in memory
          char *const sums = stops(shared.grid) ? nullptr : partsOf<M, C>(shared.params, home().unit, firstRow);
          keep([&](StreamPlace &place) { place.sums = sums; });
        }
        const int steps = W::stepsOfPass(shared.pass.numRows);
        if constexpr (kCoded<M>) {
          const int eighth = split ? home().unit % kParts : home().part;
          if (W::steps >= 4 && steps == 4)
            multiplyCodes<M::group, M::chunkBlocks, (W::steps >= 4 ? 4 : 1), KindOf<M>, S>(chunksPerGroup<M>(), eighth);
          else if (W::steps >= 2 && steps == 2)
            multiplyCodes<M::group, M::chunkBlocks, (W::steps >= 2 ? 2 : 1), KindOf<M>, S>(chunksPerGroup<M>(), eighth);
          else
            multiplyCodes<M::group, M::chunkBlocks, 1, KindOf<M>, S>(chunksPerGroup<M>(), eighth);
        } else if (W::steps >= 4 && steps == 4) {
          multiplyEighth<M::group, M::chunkBlocks, (W::steps >= 4 ? 4 : 1), S>(chunksPerGroup<M>());
        } else if (W::steps >= 2 && steps == 2) {
          multiplyEighth<M::group, M::chunkBlocks, (W::steps >= 2 ? 2 : 1), S>(chunksPerGroup<M>());
        } else {
          multiplyEighth<M::group, M::chunkBlocks, 1, S>(chunksPerGroup<M>());
        }
        keep([](StreamPlace &place) { ++place.part; });
      }
      if constexpr (!split)
        end(home().layer, home().unit, firstRow);
    }
    keep([](StreamPlace &place) { place.unit += (int)ctasAgain(); });
  }

  if constexpr (split) {
    countUnits<M>(shared, 2 * kParts * home().use + kParts);
    if (!__any_sync(~0u, stops(shared.grid)))
      end(home().layer, 0, 0);
    countUnits<M>(shared, 0);
  }
}

} // namespace megalith::device
