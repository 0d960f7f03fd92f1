//===- WideProduct.cuh - products of more rows than one tile --------------===//
//
// With more than 16 rows it is the activations that a CTA reads most of: were they brought for each group of tiles,
// they would cross from the L2 cache as often as there are groups. So in such a pass a CTA takes the groups by
// eights, a group to each warp: the activations come once for all of them, as windows of columns in two
// alternating buffers, and a warp adds up the eighths of its columns in the order of the sum tree (Stream.cuh).
//
// A matrix with too few such sets of eight groups is cut by its columns as well. What a CTA does in one go is a unit:
//
//   M::unitParts 8   all eighths of the columns for a set of eight groups
//   M::unitParts 1   one eighth. Its sums go to memory, at M::parts; when those of all eighths are there, the unit of
//                    eighth p adds them up for group p of the set
//
// The weights lie as they are packed for fewer rows. A stage takes a piece of each of the eight groups: the bytes that
// one warp would take of a chunk.
//===----------------------------------------------------------------------===//
#pragma once

namespace megalith::device {

/// Eighths of a matrix's columns; groups of a set.
constexpr int kParts = 8;
static_assert(kParts == kConsumerWarps);

__device__ constexpr int setsOf(int groups) { return (groups + kParts - 1) / kParts; }
__device__ constexpr int unitsOf(int groups, int unitParts) { return setsOf(groups) * (kParts / unitParts); }

/// Group number `number` of a set, or -1.
__device__ __forceinline__ int groupOfSet(int groups, bool descending, int set, int number) {
  const int g = set * kParts + number;
  return g >= groups ? -1 : descending ? groups - 1 - g : g;
}

/// The first unit of this CTA, where CTA `firstCta` has unit 0.
__device__ __forceinline__ int firstUnit(int firstCta) {
  const int first = (int)blockIdx.x - firstCta;
  return first < 0 ? first + (int)gridDim.x : first;
}

/// Producer: the chunks of a matrix in the order of wideProduct. False when the kernel leaves.
template <class P>
__device__ __forceinline__ bool streamUnits(P &producer, const StreamStep &step, const char *base) {
  const int perSet = kParts / step.unitParts, units = unitsOf(step.groups, step.unitParts);
  const int bytes = step.chunkBytes, piece = bytes / kParts, chunks = step.chunks, parts = step.unitParts;
  const long long ofGroup = (long long)chunks * bytes, toNext = step.descending ? -ofGroup : ofGroup;
#pragma unroll 1
  for (int unit = firstUnit(step.firstUnitCta); unit < units; unit += gridDim.x) {
    const int set = unit / perSet, groups = min(kParts, step.groups - set * kParts);
    const char *part = base + groupOfSet(step.groups, step.descending, set, 0) * ofGroup + unit % perSet * piece;
#pragma unroll 1
    for (int p = 0; p < parts; ++p, part += piece) {
      const char *chunk = part;
#pragma unroll 1
      for (int c = 0; c < chunks; ++c, chunk += bytes) {
        if (!producer.open(groups * piece))
          return false;
        char *target = producer.target();
        const char *source = chunk;
        if (P::lanes == 1 && groups == kParts) { // of several lanes each copy is a loop of its own
#pragma unroll
          for (int i = 0; i < kParts; ++i, target += piece, source += toNext)
            producer.copy(target, source, piece);
        } else {
#pragma unroll 1
          for (int i = 0; i < groups; ++i, target += piece, source += toNext)
            producer.copy(target, source, piece);
        }
        producer.close();
      }
    }
  }
  return true;
}

/// Producer: streamSteps of a pass of more than one row tile. Out of line: one row's code is to be short.
template <class P, class Kv>
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
      whole = streamUnits(producer, step, base);
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
template <class P, class Kv>
__device__ __forceinline__ bool streamSegment(P &producer, const StreamStep *steps, int count, int first, int end,
                                              int layers, const char *stream, Kv kv) {
  assumeLocal(&producer);
  if (!producer.wide() && streamSteps(producer, steps, count, first, end, layers, stream, kv) && producer.awaitPlan())
    return true;
  return producer.wide() && streamWideSteps(producer, steps, count, first, end, layers, stream, kv);
}

/// Chunks of M that this CTA takes in a pass of few rows.
template <class M> __device__ __forceinline__ int chunksOf() {
  const CtaGroups<M> groups;
  return groups.some() ? groups.count * chunksPerGroup<M>() : 0;
}
/// The same of all matrices in front of the first place where the producer waits for its plan, as far as it has copied
/// them by then.
template <class C> __device__ __forceinline__ void dropAhead(C consumer, int chunks) {
  using R = typename C::Ring;
  if (R::lent > 0)
    chunks = min(chunks, R::stages - R::lent);
#pragma unroll 1
  for (int i = 0; i < chunks; ++i) {
    consumer.acquire();
    consumer.release();
  }
  __syncwarp(); // of none: lanes may still read where the warp stood
  consumer.keep();
}

/// Of a lane, of one tile of 16 rows and 8 columns.
struct alignas(16) TileSums {
  float v[4];
};
/// Bytes of the warps' sums of a unit, behind the two buffers.
constexpr int kUnitSumBytes = kConsumerWarps * kMostTiles * 8 * kMaxRows * 4;
/// 32-column blocks of all rows' activations in one of the two buffers.
template <class C> __device__ constexpr int wideWindow() {
  const int fit = (C::wideBytes() - kUnitSumBytes) / (2 * kMaxRows * 64);
  return fit < 4 ? fit : 4;
}

/// The kernel stops, and a wait of this CTA may have ended early. What it waited for may not be there.
__device__ __forceinline__ bool stops(const GridEdges &grid) { return loadFlag(grid.stoppedHere) != 0; }

/// Waits until `counter` is at least `least`; when the kernel stops, no longer.
__device__ __noinline__ void awaitCount(GridEdges &grid, int edge, const u32 *counter, u32 least) {
  assumeShared(&grid);
  noteEdge(edge);
  u64 since = 0;
  for (u32 spin = 1; (int)(loadAcquire(counter) - least) < 0 && !grid.stopSeen(edge, spin, since); ++spin) {
  }
}

/// A unit of M, one of its eighths of the columns, and a window of that.
template <class M> struct UnitCursor {
  static constexpr int perSet = kParts / M::unitParts, units = unitsOf(M::groups, M::unitParts);
  int unit, part, block = 0;
  __device__ __forceinline__ static int partOf(int unit) { return unit % perSet * M::unitParts; }
  __device__ __forceinline__ explicit UnitCursor(int unit) : unit(unit), part(partOf(unit)) {}
  __device__ __forceinline__ bool done() const { return unit >= units; }
  __device__ __forceinline__ int group(int number) const {
    return groupOfSet(M::groups, M::descending, unit / perSet, number);
  }
  /// What a warp takes of the set's chunks; one without a group does what the last one with a group does, for nothing.
  __device__ __forceinline__ int piece(int warp) const {
    return M::groups % kParts == 0 ? warp : min(warp, M::groups - unit / perSet * kParts - 1);
  }
  __device__ __forceinline__ bool endsPart(int window) const { return block + window >= M::blocks; }
  __device__ __forceinline__ bool endsUnit(int window) const {
    return endsPart(window) && part + 1 == partOf(unit) + M::unitParts;
  }
  __device__ __forceinline__ void next(int window) {
    if (!endsPart(window)) {
      block += window;
      return;
    }
    const bool last = endsUnit(window);
    block = 0;
    ++part;
    if (last) {
      unit += gridDim.x;
      part = partOf(unit);
    }
  }
};

/// Where a unit of one eighth of the columns puts its sums of group number `number` of its set: of the four pairs of columns
/// of tile `n` of that, one.
template <class M>
__device__ __forceinline__ Float2 *partsAt(const abi::LaunchParams &p, int unit, int number, int n, int row, int pair) {
  return reinterpret_cast<Float2 *>(p.tagged + M::parts) +
         ((((long long)unit * kParts + number) * M::group + n) * kMaxRows + row) * 4 + pair;
}

/// Thread i looks after unit number i of the CTA. The counter of its set, which counts the set's units in each use: once
/// when they have stored their sums, and once when they have read those of their group. Null: there is no such unit.
template <class M> __device__ __forceinline__ u32 *counterOfThread(const abi::LaunchParams &p) {
  const int unit = firstUnit(M::firstUnitCta) + (int)threadIdx.x * (int)gridDim.x;
  return unit < UnitCursor<M>::units ? reinterpret_cast<u32 *>(p.tagged + M::partsDone) + unit / kParts : nullptr;
}

/// A warp's share of the weights, in a chunk a block ahead of what it multiplies.
template <class M> struct BlockWeights {
  const Words4 *chunk;
  Words4 words[2][M::group]; ///< of even and of odd blocks of a chunk
  __device__ __forceinline__ void load(int block) {
#pragma unroll
    for (int n = 0; n < M::group; ++n)
      words[block % 2][n] = chunk[(block * M::group + n) * 32];
  }
  /// The first block of the next chunk, of its piece number `piece`.
  template <class C> __device__ __forceinline__ void acquire(C &consumer, int piece) {
    chunk = reinterpret_cast<const Words4 *>(consumer.acquire()) + piece * (M::chunkBlocks * M::group * 32) + laneId();
    load(0);
  }
};

/// A warp's products of `count` blocks of 32 columns, whole chunks, for `All` row tiles or for half of them. The weights of the
/// first block are there; those of the block behind the last come, too, if there is `more`: of piece number `next`, where
/// `piece` is that of the others.
template <class M, bool All, class C>
__device__ __forceinline__ void multiplyWindow(C &consumer, float (&acc)[M::group][kMaxRows / kTileRows][2][4],
                                               BlockWeights<M> &weights, const Words4 *activations, int count, int piece, int next,
                                               bool more) {
  constexpr int blocks = M::chunkBlocks, tiles = kMaxRows / kTileRows, some = All ? tiles : tiles / 2;
  static_assert(some % 2 == 0);
  Words4 a[2][2]; // a row tile is loaded before the products of the last one
  const auto load = [&](int block, int tile) {
#pragma unroll
    for (int i = 0; i < 2; ++i)
      a[tile % 2][i] = activations[((block * tiles + tile) * 2 + i) * 32];
  };
  load(0, 0);
#pragma unroll 1
  for (int first = 0; first < count; first += blocks, activations += blocks * kMaxRows * 4) {
#pragma unroll
    for (int block = 0; block < blocks; ++block) {
      const auto multiply = [&](int tile) {
#pragma unroll
        for (int n = 0; n < M::group; ++n) {
          const Words4 &one = a[tile % 2][0], &two = a[tile % 2][1], &both = weights.words[block % 2][n];
          mma(acc[n][tile][0], one.x, one.y, one.z, one.w, both.x, both.y);
          mma(acc[n][tile][1], two.x, two.y, two.z, two.w, both.z, both.w);
        }
      };
#pragma unroll
      for (int tile = 0; tile < some; ++tile) {
        if (tile + 1 < some)
          load(block, tile + 1);
        else if (block + 1 < blocks || first + blocks < count)
          load(block + 1, 0);
        if (tile == some / 2 && block + 1 < blocks)
          weights.load(block + 1);
        multiply(tile);
      }
    }
    // Behind the products, where no registers are short. The loads were done long ago.
    consumer.release();
    if (first + blocks < count || more)
      weights.acquire(consumer, first + blocks < count ? piece : next);
  }
}

/// y = a * M^T for all rows of a pass of more than one row tile.
///   use       of the matrix, in passes of more than one row tile: how many came before
///   source    the activations: bf16 rows in memory
///   early, epilogue   as of streamProduct; its `tile` is one of eight rows
template <class M, class C, class Source, class Early, class Epilogue>
__device__ __forceinline__ void wideProduct(C consumer, PassShared &pass, GridEdges &grid, u32 use, Source source,
                                            Early early, Epilogue epilogue) {
  constexpr int tiles = kMaxRows / kTileRows;
  constexpr int window = wideWindow<C>() / M::chunkBlocks * M::chunkBlocks, windowBytes = window * kMaxRows * 64;
  static_assert(window > 0, "room for the columns of a chunk");
  constexpr bool split = M::unitParts < kParts;
  static_assert(M::unitParts == kParts || M::unitParts == 1);
  constexpr bool byWarps = kByWarps<Epilogue, decltype(early(0, 0))>;
  using Cursor = UnitCursor<M>;
  const int first = firstUnit(M::firstUnitCta);
  if (first >= Cursor::units)
    return;
  const int numRows = pass.numRows, warp = warpId(), lane = laneId();
  char *const staged = reinterpret_cast<char *>(consumer.scratch);
  // A lane's sums of the eighths so far: four of each tile.
  TileSums *const sums = reinterpret_cast<TileSums *>(staged + 2 * windowBytes) + warp * (M::group * tiles * 32) + lane;

  // A window's activations stand in shared memory as [block][row tile][step 2][lane] words of mma fragments. A warp
  // brings one block of two row tiles: a lane the same columns of rows 0 to 7 and of rows 8 to 15 of a tile.
  const int blockOf = warp % 4;
  const auto tileOf = [&](int j) { return warp / 4 + j / 2 * 2; };
  // Behind the last row comes that one again.
  const auto rowOf = [&](int j) { return min(tileOf(j) * kTileRows + j % 2 * 8 + (lane >> 2), numRows - 1); };
  Words4 held[tiles];
  Cursor at(first); // whose activations are on their way
  const auto columnOf = [&](int) { return (at.part * M::blocks + at.block + blockOf) * 32 + (lane & 3) * 8; };
  const auto wanted = [&](int j) {
    return ((M::blocks % window == 0 && window == 4) || blockOf < min(window, M::blocks - at.block)) &&
           (M::k == M::kPadded || columnOf(j) < M::k);
  };
  peekAll(source, held, wanted, rowOf, columnOf);

  if constexpr (split)
    if (const u32 *counter = counterOfThread<M>(*grid.params)) // the sums of the last use have been read
      awaitCount(grid, M::partsEdge, counter, 2 * kParts * use);

  float acc[M::group][tiles][2][4] = {};
  BlockWeights<M> weights;
  weights.acquire(consumer, at.piece(warp));
  int buffer = 0;
  consumerSync(); // scratch may still be read
#pragma unroll 1
  while (!at.done()) {
    settleAll(source, held, wanted, rowOf, columnOf);
    Words4 *const activations = reinterpret_cast<Words4 *>(staged + buffer * windowBytes) + lane;
    if (blockOf < window) {
#pragma unroll
      for (int j = 0; j < tiles; j += 2) {
        const Words4 low = keepBelow<M::k>(held[j], columnOf(j)), high = keepBelow<M::k>(held[j + 1], columnOf(j));
        Words4 *const fragment = activations + (blockOf * tiles + tileOf(j)) * 64;
        fragment[0] = {low.x, high.x, low.z, high.z};
        fragment[32] = {low.y, high.y, low.w, high.w};
      }
    }
    buffer ^= 1;
    consumerSync();
    const Cursor now = at;
    at.next(window);
    if (!at.done())
      peekAll(source, held, wanted, rowOf, columnOf);

    const int group = now.group(warp), count = min(window, M::blocks - now.block);
    const int piece = now.piece(warp), next = at.piece(warp);
    if (numRows > kMaxRows / 2)
      multiplyWindow<M, true>(consumer, acc, weights, activations, count, piece, next, !at.done());
    else
      multiplyWindow<M, false>(consumer, acc, weights, activations, count, piece, next, !at.done());
    if (!now.endsPart(window) || group < 0 || (split && stops(grid))) // others may still read what stands in memory
      continue;

#pragma unroll
    for (int t = 0; t < tiles; ++t) {
      if (t * kTileRows >= numRows)
        break;
#pragma unroll
      for (int n = 0; n < M::group; ++n) {
        TileSums part;
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          part.v[e] = __fadd_rn(acc[n][t][0][e], acc[n][t][1][e]);
          acc[n][t][0][e] = acc[n][t][1][e] = 0;
        }
        if constexpr (split) {
#pragma unroll
          for (int half = 0; half < 2; ++half)
            if (const int row = t * kTileRows + half * 8 + (lane >> 2); row < numRows)
              *partsAt<M>(*grid.params, now.unit, warp, n, row, lane & 3) = {part.v[2 * half], part.v[2 * half + 1]};
        } else {
          TileSums &sum = sums[(t * M::group + n) * 32];
          if (now.part > 0) {
            const TileSums before = sum;
#pragma unroll
            for (int e = 0; e < 4; ++e)
              part.v[e] = __fadd_rn(before.v[e], part.v[e]);
          }
          sum = part;
        }
      }
    }
    if constexpr (!split) {
      if (!now.endsUnit(window))
        continue;
      const auto pairOf = [&](int n) { return (group * M::group + n) * 4 + (lane & 3); };
#pragma unroll 1
      for (int t = 0; t * kTileRows < numRows; ++t) {
        decltype(early(0, 0)) beside[M::group][2];
        const auto finish = [&](int rows) {
#pragma unroll
          for (int i = 0; i < 2 * M::group; ++i)
            if (const int row = i % 2 * 8 + (lane >> 2); row < rows)
              beside[i / 2][i % 2] = early(t * kTileRows + row, pairOf(i / 2));
#pragma unroll
          for (int n = 0; n < M::group; ++n) {
            const TileSums y = sums[(t * M::group + n) * 32];
#pragma unroll
            for (int half = 0; half < 2; ++half)
              if (const int row = half * 8 + (lane >> 2); byWarps || row < rows)
                epilogue(2 * t + half, rowOfEpilogue<byWarps>(t * kTileRows + row, t * kTileRows + row < numRows), pairOf(n),
                         y.v[2 * half], y.v[2 * half + 1], beside[n][half]);
          }
        };
        if (byWarps || (t + 1) * kTileRows <= numRows)
          finish(kTileRows); // no branch parts what can be done side by side
        else
          finish(numRows - t * kTileRows);
      }
    }
  }

  if constexpr (split) {
    consumerSync();
    if (u32 *counter = counterOfThread<M>(*grid.params); counter && !stops(grid)) {
      addRelease(counter, 1);
      awaitCount(grid, M::partsEdge, counter, 2 * kParts * use + kParts);
    }
    consumerSync();
    static_assert(kMaxRows * 4 == kConsumerThreads, "a pair of each row to a thread");
    const int row = threadIdx.x >> 2, pair = threadIdx.x & 3;
#pragma unroll 1
    for (int unit = first; unit < Cursor::units; unit += gridDim.x) {
      const int number = unit % kParts, group = Cursor(unit).group(number);
      if (group < 0 || __any_sync(~0u, stops(grid)))
        break; // of a set's groups the last ones are missing, and of the sets the last
      if (byWarps ? __all_sync(~0u, row >= numRows) : row >= numRows)
        continue;
      Float2 parts[M::group][kParts];
      decltype(early(0, 0)) beside[M::group];
#pragma unroll
      for (int n = 0; n < M::group; ++n) {
#pragma unroll
        for (int part = 0; part < kParts; ++part)
          parts[n][part] = !byWarps || row < numRows ? *partsAt<M>(*grid.params, unit - number + part, number, n, row, pair)
                                                     : Float2{0.0f, 0.0f};
        beside[n] = early(row, (group * M::group + n) * 4 + pair);
      }
#pragma unroll
      for (int n = 0; n < M::group; ++n) {
        Float2 y = parts[n][0];
#pragma unroll
        for (int part = 1; part < kParts; ++part) {
          y.x = __fadd_rn(y.x, parts[n][part].x);
          y.y = __fadd_rn(y.y, parts[n][part].y);
        }
        epilogue(row / 8, rowOfEpilogue<byWarps>(row, row < numRows), (group * M::group + n) * 4 + pair, y.x, y.y, beside[n]);
      }
    }
    consumerSync();
    if (u32 *counter = counterOfThread<M>(*grid.params); counter && !stops(grid))
      addRelease(counter, 1);
  }
  consumer.keep();
}

} // namespace megalith::device
