//===- WideProduct.cuh - products of more rows than one tile --------------===//
//
// With more than 16 rows it is the activations that a CTA reads most of: were they brought for each group of tiles,
// they would cross from the L2 cache as often as there are groups. So in such a pass a CTA takes the groups by
// eights: the activations come once for all of them, in windows of columns (Windows.cuh). The weights are operand A
// here, 16 rows to a warp, the activations B; a warp goes through an eighth of the columns after the other, in the
// order of the sum tree (Matrices.cuh). Where there is `wgmma` four warps together take B out of shared memory as it
// is.
//
// A matrix with too few such sets of eight groups is cut by its columns as well. What a CTA does in one go is a unit:
//
//   M::unitParts 8   all eighths of the columns for a set of eight groups
//   M::unitParts 1   one eighth. Its sums go to memory, at M::parts; when those of all eighths are there, the unit of
//                    eighth p adds them up for group p of the set
//
// The weights lie as they are packed for fewer rows. A stage takes a piece of each of the eight groups: the bytes that
// one warp would take of a chunk. Of more rows than a window has (C::wideRows) a unit takes so many at a time, and its
// weights come again.
//===----------------------------------------------------------------------===//
#pragma once

namespace megalith::device {

/// Group number `number` of a set, or -1.
__device__ __forceinline__ int groupOfSet(int groups, bool descending, int set, int number) {
  const int g = set * kParts + number;
  return g >= groups ? -1 : descending ? groups - 1 - g : g;
}

/// Producer: the chunks of a matrix in the order of wideProduct. False when the kernel leaves.
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
        if (P::lanes == 1 && groups == kParts) { // of several lanes each copy is a loop of its own
#pragma unroll
          for (int i = 0; i < kParts; ++i, target += piece, source += toNext)
            producer.copy(target, source, piece);
        } else {
#pragma unroll 1
          for (int i = 0; i < kParts;
               ++i, target += piece, source += i < groups ? toNext : 0) // for a group that is missing the last one
            producer.copy(target, source, piece);
        }
        producer.close();
      }
    }
  }
  return true;
}

/// Producer: streamSteps of a pass of more than one row tile. Out of line: one row's code is to be short.
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

/// Producer: a segment, in whichever order the pass asks for. Before it knows the pass it takes the order of few
/// rows; what it has copied then, consumers drop (dropAhead) when there are many. False when the kernel leaves.
template <int WideRows, class P, class Kv>
__device__ __forceinline__ bool streamSegment(P &producer, const StreamStep *steps, int count, int first, int end,
                                              int layers, const char *stream, Kv kv) {
  assumeLocal(&producer);
  if (!producer.wide() && streamSteps(producer, steps, count, first, end, layers, stream, kv) && producer.awaitPlan())
    return true;
  return producer.wide() && streamWideSteps<WideRows>(producer, steps, count, first, end, layers, stream, kv);
}

/// Chunks of M that this CTA takes in a pass of few rows.
template <class M> __device__ __forceinline__ int chunksOf() {
  const CtaGroups<M> groups;
  return groups.some() ? groups.count * chunksPerGroup<M>() : 0;
}
/// The same of all matrices in front of the first place where the producer waits for its plan, as far as it has copied
/// them by then.
template <class C> __device__ __forceinline__ void dropAhead(C consumer, int chunks, int lent, int lentBefore) {
  using R = typename C::Ring;
  if (lentBefore > 0)
    chunks = min(chunks, R::stages - lentBefore);
#pragma unroll 1
  for (int i = 0; i < chunks; ++i) {
    consumer.acquire();
    consumer.release();
  }
  consumer.ring.lend(lent);
  __syncwarp(); // lanes may still read where the warp stood
  consumer.keep();
}

/// Of lane 4i + j, of 16 weight rows and 8 rows of the pass: of weight row i rows 2j and 2j + 1 of the pass, and the
/// same of weight row i + 8.
struct alignas(16) TileSums {
  float v[4];
};
/// Of 8 x 8 values lane 4i + j has row i, columns 2j and 2j + 1. The same of the transpose. All of a warp.
__device__ __forceinline__ Float2 turned(Float2 of) {
  const u32 a = __float_as_uint(of.x), b = __float_as_uint(of.y);
  const u32 low = transposed(lowHalves(a, b)), high = transposed(highHalves(a, b));
  return {__uint_as_float(lowHalves(low, high)), __uint_as_float(highHalves(low, high))};
}

/// The kernel stops, and a wait of this CTA may have ended early. What it waited for may not be there.
__device__ __forceinline__ bool stops(const GridEdges &grid) { return loadFlag(grid.stoppedHere) != 0; }

/// Thread i looks after unit number i of the CTA. The counter of its set, which counts the set's units in each use:
/// once when they have stored their sums, and once when they have read those of their group. Null: there is no such
/// unit.
template <class M> __device__ __forceinline__ u32 *counterOfThread(const abi::LaunchParams &p) {
  const int unit = firstUnit(M::firstUnitCta) + (int)threadIdx.x * (int)gridDim.x;
  return unit < unitsOf(M::groups, M::unitParts) ? reinterpret_cast<u32 *>(p.tagged + M::partsDone) + unit / kParts
                                                 : nullptr;
}

/// How the eight consumer warps share out a unit: 16 weight rows to each of four warps, which begin at a multiple of
/// four. Of groups with two tiles the other four take the rest of the unit's weights, and all take all rows of a
/// window; of groups with one the other four take the other half of the rows.
template <int Group> struct UnitShare {
  static_assert(Group == 1 || Group == 2);
  static constexpr int strips = 4 * Group; ///< of 16 weight rows
  __device__ static __forceinline__ int strip() { return Group == 2 ? warpId() : warpId() % 4; }
  /// Of tile n of those: the number of its group in the unit.
  __device__ static __forceinline__ int groupOf(int strip, int n) { return Group == 2 ? strip : 2 * strip + n; }
  /// Eights of rows of a warp, in a pass of so many row steps; and the first one.
  __device__ static constexpr int eights(int steps) { return (Group == 2 ? 4 : 2) * steps; }
  __device__ static __forceinline__ int firstEight(int steps) { return Group == 2 ? 0 : warpId() / 4 * eights(steps); }
};
/// Sums of a unit, in shared memory, and in memory those of units of one eighth for each window of rows: [strip][eight
/// rows][lane], of groups with one tile [strip][tile][eight rows][lane], for these are read one by one. A lane's in
/// strip `strip`.
template <int Group> struct UnitSums {
  char *base;
  int steps, strip; ///< row steps; the strip
  __device__ __forceinline__ TileSums &both(int eight) const {
    return reinterpret_cast<TileSums *>(base)[(strip * (4 * steps) + eight) * 32 + laneId()];
  }
  /// Of one of the strip's tiles.
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
template <class M> __device__ constexpr int partBytes() { return unitPartBytes(M::group); } ///< of a unit
template <class M, class C>
__device__ __forceinline__ char *partsOf(const abi::LaunchParams &p, int unit, int firstRow) {
  return p.tagged + M::parts + (long long)unit * partBytes<M>() + firstRow * (UnitShare<M::group>::strips * 64);
}

/// sums += a * b: 16 weight rows of each of four warps, and rows of the pass whose cores stand at `b` and `stride`
/// bytes behind it.
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

/// A warp waits for a window. Out of line: mostly it is there.
__device__ __noinline__ void awaitWindow(RingShared &s, int window, u32 parity) {
  assumeShared(&s);
  for (u32 spin = 1; !barrierTest(&s.windowFull[window], parity); ++spin)
    if (stopSeen(s, spin)) { // the window warp has left; the next edge returns
      noteStop();
      return;
    }
}

/// A warp's products of one eighth of the columns, `chunks` chunks: 16 weight rows with its part of `Steps` row steps.
/// Its sums become UnitSums where StreamPlace says, or are added to what stands there. Null: they are dropped. Out of
/// line, and one function for all matrices: most registers are sums, so places in shared memory are to be constants,
/// and what the caller keeps in registers is to stay out of the way.
///   S   the CTA's shared memory: ring, sync, scratch, places
template <int Group, int ChunkBlocks, int Steps, class S> __device__ __noinline__ void multiplyEighth(int chunks) {
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
  int windowNext = home.window; // twice around: each window with both parities
  const auto windowAt = [&] { return windowNext - (windowNext < W::count ? 0 : W::count); };
  const char *const pieces = shared.ring + Share::groupOf(Share::strip(), 0) * (ChunkBlocks * Group * 512) + lane * 16;
  const char *const windows =
      reinterpret_cast<const char *>(shared.scratch) + W::sumBytes(Steps) + Share::firstEight(Steps) * 128;
  const auto await = [&](bool chunk, bool activations) {
    const bool chunkThere = !chunk || barrierPeek(&shared.sync.full[ring.stage], ring.parity(ring.stage));
    const bool windowThere = !activations || barrierPeek(&shared.sync.windowFull[windowAt()], windowNext >= W::count);
    if (!chunkThere)
      awaitFull(shared.sync, ring.stage, ring.parity(ring.stage));
    if (!windowThere)
      awaitWindow(shared.sync, windowAt(), windowNext >= W::count);
    __syncwarp(); // lanes look one by one, and multiply together
  };
  float even[eights][4] = {}, odd[eights][4] = {}; // chains
  await(true, true);
#pragma unroll 1
  for (int left = steps; left > 0; --left) {
    const int i = steps - left;
    const char *const piece =
        pieces + ring.stage * C::Ring::stageBytes + (ofChunk > 1 ? i % ofChunk * (step * Group * 512) : 0);
    const char *const activations =
        windows + windowAt() * W::bytes + (ofWindow > 1 ? i % ofWindow * (step * blockBytes) : 0);
    Words4 weights[step][2];
#pragma unroll
    for (int b = 0; b < step; ++b)
#pragma unroll
      for (int n = 0; n < 2; ++n)
        weights[b][n] = loadShared4(piece, Group == 2 ? (b * 2 + n) * 512 : (n * ChunkBlocks + b) * 512);
    if constexpr (kAsyncMma)
      asyncMmaBegin();
#pragma unroll
    for (int b = 0; b < step; ++b) {
      const Words4 &w = weights[b][0], &v = weights[b][1];
      multiplyCores(even, w.x, v.x, w.y, v.y, activations + b * blockBytes, coreBytes);
      multiplyCores(odd, w.z, v.z, w.w, v.w, activations + b * blockBytes + 2 * coreBytes, coreBytes);
    }
    if constexpr (kAsyncMma)
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
  const UnitSums<Group> sums = {home.sums, Steps, Share::strip()};
  const bool add = home.part > 0;
  if (!sums.base)
    return;
  const int firstEight = Share::firstEight(Steps);
#pragma unroll
  for (int eight = 0; eight < eights; ++eight) {
    TileSums part;
#pragma unroll
    for (int e = 0; e < 4; ++e)
      part.v[e] = __fadd_rn(even[eight][e], odd[eight][e]);
    if (add) {
      const TileSums before = sums.load(firstEight + eight);
#pragma unroll
      for (int e = 0; e < 4; ++e)
        part.v[e] = __fadd_rn(before.v[e], part.v[e]);
    }
    sums.store(firstEight + eight, part);
  }
}

/// What follows from a unit of M, and from the window of rows that begins with row `firstRow`; of units of one eighth
/// all that the CTA has end together, and both mean nothing. A function of its own calls it: nothing that it needs is
/// to be in registers while others multiply.
///   early, epilogue   as of streamProduct; its `tile` is one of eight rows
template <class M, class S, class Early, class Epilogue>
__device__ __forceinline__ void endOfUnit(S &shared, int unit, int firstRow, Early early, Epilogue epilogue) {
  using C = decltype(shared.stream());
  using W = Windows<C>;
  using Share = UnitShare<M::group>;
  constexpr int units = unitsOf(M::groups, M::unitParts), perSet = kParts / M::unitParts;
  constexpr bool byWarps = kByWarps<Epilogue, decltype(early(0, 0))>;
  const int numRows = shared.pass.numRows, steps = W::stepsOfPass(numRows), lane = laneId();
  const auto pairOf = [&](int ofUnit, int number, int n) { // of a tile of columns; -1: there is none
    const int group = groupOfSet(M::groups, M::descending, ofUnit / perSet, number);
    return group < 0 ? -1 : (group * M::group + n) * 4 + (lane & 3);
  };
  if constexpr (M::unitParts == kParts) {
    const int left = min(C::wideRows, numRows - firstRow), firstEight = Share::firstEight(steps),
              strip = Share::strip();
    const UnitSums<M::group> sums = {reinterpret_cast<char *>(shared.scratch), steps, strip};
    constexpr int atOnce = Share::eights(1); // eights of rows, so that what is far away comes for all of them together
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
      const auto finish = [&](bool whole) { // no branch parts what can be done side by side
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
        return; // of a set's groups the last ones are missing, and of the sets the last
      // A warp takes eight rows of a tile of columns at a time: more would not stay in registers while words are waited
      // for.
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

/// All consumers have stored, or read, the sums of the CTA's units of M: these are counted. Then the others' are waited
/// for, until the counters are `least`; 0: they are not.
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

/// y = a * M^T for all rows of a pass of more than one row tile. The window warp brings a (Windows.cuh).
///   layer   that the pass is in
///   use     of the matrix, in passes of more than one row tile: how many came before
///   end(layer, unit, firstRow)   calls endOfUnit; with nothing of its own, which would have to stay in registers
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
    if (const u32 *counter = counterOfThread<M>(shared.params)) // the sums of the last use have been read
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
        if constexpr (split) { // when the kernel stops, others may still read what stands in memory
          char *const sums = stops(shared.grid) ? nullptr : partsOf<M, C>(shared.params, home().unit, firstRow);
          keep([&](StreamPlace &place) { place.sums = sums; });
        }
        const int steps = W::stepsOfPass(shared.pass.numRows);
        if (W::steps >= 4 && steps == 4)
          multiplyEighth<M::group, M::chunkBlocks, (W::steps >= 4 ? 4 : 1), S>(chunksPerGroup<M>());
        else if (W::steps >= 2 && steps == 2)
          multiplyEighth<M::group, M::chunkBlocks, (W::steps >= 2 ? 2 : 1), S>(chunksPerGroup<M>());
        else
          multiplyEighth<M::group, M::chunkBlocks, 1, S>(chunksPerGroup<M>());
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
