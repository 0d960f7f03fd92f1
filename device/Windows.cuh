//===- Windows.cuh - activations of a product of many rows, on their way --===//
//
// In a pass of more than one row tile a product takes its activations from shared memory, a window of some columns of
// all rows after the other. Who makes such an operand stores it in the order in which the tensor cores take it
// (OperandImage), so that a window is a piece of memory which one bulk copy brings: the window warp asks for it, beside
// the producer of the weights, and the consumers only multiply. A few windows stand side by side, each with a barrier
// that says it is there and one that says it is read, as the stages of the ring of weights do.
//
// An operand is complete when all CTAs have counted themselves at its counter, which only grows: one for each layer,
// for a CTA that has nothing to do may be a layer ahead of others, but not a pass. The window warp waits for that, and
// until the consumers have opened the product, for its windows stand in scratch, which other phases use as well.
//===----------------------------------------------------------------------===//
#pragma once

namespace megalith::device {

/// The first unit of this CTA, where CTA `firstCta` has unit 0.
__device__ __forceinline__ int firstUnit(int firstCta) {
  const int first = (int)blockIdx.x - firstCta;
  return first < 0 ? first + (int)gridDim.x : first;
}

/// Where windows stand in the scratch of such a pass: behind a unit's sums.
template <class C> struct Windows {
  static constexpr int rows = C::wideRows, steps = rows / kRowStep; ///< at most
  static_assert(steps == stepsOf(rows) && kMaxRows % rows == 0);
  __device__ static constexpr int sumBytes(int steps) { return unitSumBytes(kRowStep * steps); } ///< of a unit
  /// Of 32 columns: [core of 8 columns 4][row][16 bytes]. A core has the columns 8i + 2j and 8i + 2j + 1, i from 0 to
  /// 3, that are k = 2i, 2i + 1 of the lower (cores 0 and 2) or upper (1, 3) half of a step of the sum tree's chain of
  /// even (0, 1) or odd pairs (2, 3): j is 0, 2, 1, 3.
  __device__ static constexpr int blockBytes(int steps) { return windowBlockBytes(steps * kRowStep); }
  static constexpr int bytes = windowBytes(rows);
  __device__ static constexpr int fit(int steps) { // with any number of rows up to these
    const int most = (C::wideBytes(steps * kRowStep) - sumBytes(steps)) / bytes,
              less = steps > 1 ? fit(steps / 2) : kMostWindows;
    return most < less ? most : less;
  }
  static constexpr int count = fit(steps);
  static_assert(count >= 2, "the plan leaves room for two");
  /// Blocks of 32 columns of a window; the last one of an eighth may have fewer.
  __device__ static constexpr int blocks(int steps) { return bytes / blockBytes(steps); }
  /// Row steps of all windows of a pass of so many rows.
  __device__ static __forceinline__ int stepsOfPass(int numRows) { return stepsOf(min(rows, numRows)); }
};

/// An operand of products in passes of more than one row tile: an instance of a buffer, in memory, as windows need it:
/// [rows of a window][32 columns] as in Windows. Columns from `Columns` on are zero from the begin, so for each number
/// of row steps it has a place of its own where there are such columns. Stores as of Bf16Rows; nobody reads it but
/// window warps.
template <int Columns, class C> struct OperandImage {
  using W = Windows<C>;
  static constexpr int blocks = (int)paddedColumns(Columns) / kBlockColumns; ///< of 32 columns
  char *base;
  int steps;
  __device__ __forceinline__ OperandImage(char *image, int numRows) : base(image), steps(W::stepsOfPass(numRows)) {
    if (Columns % 256 != 0)
      base += (long long)blocks * (kMaxRows / W::rows) * W::blockBytes(2 * (W::steps - steps));
  }

  /// Of columns col and col + 1, of which the first is even.
  __device__ __forceinline__ u32 *at(int row, int col) const {
    const int block = row / W::rows * blocks + col / 32, word = col % 8 / 2, core = word % 2 * 2 + word / 2;
    return reinterpret_cast<u32 *>(base + (block * 4 + core) * (steps * kRowStep * 16) + row % W::rows * 16) +
           col % 32 / 8;
  }
  __device__ __forceinline__ void storeWord(int row, int col, u32 word) const {
    if (Columns % 8 == 0 || col < Columns)
      *at(row, col) = Columns % 2 != 0 && col + 1 == Columns ? word & 0xffffu : word;
  }
  __device__ __forceinline__ void store8(int row, int col, Floats<8> f) const {
    const Words4 words = pack8(f);
    storeWord(row, col, words.x);
    storeWord(row, col + 2, words.y);
    storeWord(row, col + 4, words.z);
    storeWord(row, col + 6, words.w);
  }
  __device__ __forceinline__ void storeOne(int row, int col, Floats<1> f) const {
    const float next = __shfl_xor_sync(lanesOfRow(), f.v[0], 1);
    if (laneId() % 2 == 0)
      storeWord(row, col, packBf16(f.v[0], next));
  }
  __device__ __forceinline__ void storeOne(RowOfWarp row, int col, Floats<1> f) const {
    const float next = __shfl_xor_sync(~0u, f.v[0], 1);
    if (laneId() % 2 == 0 && row.mine)
      storeWord(row, col, packBf16(f.v[0], next));
  }
  __device__ __forceinline__ void storePair(int row, int c0, int c1, Floats<2> f) const {
    if (c1 == c0 + 1) {
      storeWord(row, c0, packBf16(f.v[0], f.v[1]));
      return;
    }
    const bool odd = laneId() & 1;
    const float other = __shfl_xor_sync(lanesOfRow(), odd ? f.v[0] : f.v[1], 1);
    storeWord(row, odd ? c1 - 1 : c0, odd ? packBf16(other, f.v[1]) : packBf16(f.v[0], other));
  }
};

/// Where a phase stores what is rows in passes of one row tile, and an image in others: of the variant for `Rows` rows.
template <int Rows, class Few, class Many> __device__ __forceinline__ auto forRows(Few few, Many many) {
  if constexpr (Rows > kTileRows)
    return many;
  else
    return few;
}
/// The same where it is the pass that tells.
template <class Few, class Many> struct RowsOrImage {
  Few few;
  Many many;
  bool wide;
  __device__ __forceinline__ void storePair(int row, int c0, int c1, Floats<2> f) const {
    if (wide)
      many.storePair(row, c0, c1, f);
    else
      few.storePair(row, c0, c1, f);
  }
};
template <class Few, class Many>
__device__ __forceinline__ RowsOrImage<Few, Many> rowsOrImage(Few few, Many many, int numRows) {
  return {few, many, numRows > kTileRows};
}

/// The same, made when something is stored: no register is kept for it until then.
template <class Make> struct LateRows {
  Make make;
  __device__ __forceinline__ void storePair(int row, int c0, int c1, Floats<2> f) const {
    make().storePair(row, c0, c1, f);
  }
};
template <class Make> __device__ __forceinline__ LateRows<Make> lateRows(Make make) { return {make}; }

__device__ __forceinline__ u32 *counterAt(const abi::LaunchParams &p, long long offset) {
  return reinterpret_cast<u32 *>(p.tagged + offset);
}
/// This CTA has stored what it will of an operand. All consumers.
__device__ __noinline__ void countOperand(u32 *counter) {
  consumerSync();
  if (threadIdx.x == 0) {
    delayCta(paramsOfCta(), hash32((u32)(u64)counter));
    addRelease(counter, 1);
  }
}

/// Waits until `counter` is at least `least`; when the kernel stops, no longer.
__device__ __noinline__ void awaitCount(const GridEdges &grid, int edge, const u32 *counter, u32 least) {
  assumeShared(&grid);
  noteEdge(edge);
  u64 since = 0;
  for (u32 spin = 1; (int)(loadAcquire(counter) - least) < 0 && !grid.stopSeen(edge, spin, since); ++spin) {
  }
}

/// The operand of a product, and what of it this CTA needs.
struct WindowSteps {
  const char *image;
  int rowSteps;
  const u32 *counter;
  u32 least; ///< of the counter
  int edge;
  int blocks, unitParts, first, units; ///< as of M; this CTA's first unit
};
template <class M, int Columns, class C>
__device__ __forceinline__ WindowSteps windowSteps(OperandImage<Columns, C> image, const u32 *counter, u32 use,
                                                   int edge) {
  static_assert(Columns == M::k);
  return {image.base,
          image.steps,
          counter,
          gridDim.x * (use + 1),
          edge,
          M::blocks,
          M::unitParts,
          firstUnit(M::firstUnitCta),
          unitsOf(M::groups, M::unitParts)};
}

/// The window warp: where one lane copies whole windows, there is but one.
template <class C> struct WindowProducer {
  using W = Windows<C>;
  static constexpr int lanes = kProducerLanes;
  RingShared *shared;
  const GridEdges *grid;
  char *scratch;            ///< in shared memory
  int window = 0;           ///< the next one
  u32 parities = 0;         ///< a bit for each: of the phase that its next fill completes
  u32 wide = 0, opened = 0; ///< parities

  __device__ __forceinline__ WindowProducer(RingShared *shared, const GridEdges *grid, float *scratch)
      : shared(shared), grid(grid), scratch(reinterpret_cast<char *>(scratch)) {}

  /// False when the kernel leaves.
  __device__ __noinline__ static bool await(const RingShared &shared, u64 *bar, u32 parity) {
    assumeShared(&shared);
    const auto all = [](bool mine) { return lanes == 1 ? mine : __all_sync(~0u, mine); };
    for (u32 spin = 1; !all(barrierTest(bar, parity)); ++spin)
      if (!all(!leaves(shared, spin)))
        return false;
    return true;
  }
  /// The next pass of more than one row tile. False when the kernel leaves.
  __device__ __forceinline__ bool nextPass() {
    const bool begun = await(*shared, &shared->wideBegun, wide);
    wide ^= 1;
    return begun;
  }
  /// It needs nothing more of the pass.
  __device__ __forceinline__ void finishPass() {
    if constexpr (lanes > 1)
      __syncwarp();
    if (laneId() == 0)
      barrierArrive(&shared->wideWindows);
  }

  /// The windows of a product. False when the kernel leaves.
  __device__ __forceinline__ bool bring(const WindowSteps &steps) {
    return steps.first >= steps.units || bringUnits(*this, steps);
  }
  /// Out of line, for all matrices.
  __device__ __noinline__ static bool bringUnits(WindowProducer &home, const WindowSteps &steps) {
    assumeLocal(&home);
    assumeLocal(&steps);
    WindowProducer p = home; // in registers
    RingShared &shared = *p.shared;
    const auto leave = [&] {
      home = p; // drain() has to know what was asked for
      return false;
    };
    if (!await(shared, &shared.opened, p.opened))
      return false;
    p.opened ^= 1;
    awaitCount(*p.grid, steps.edge, steps.counter, steps.least);
    if (lanes > 1 ? __any_sync(~0u, leaves(shared, 1)) : leaves(shared, 1)) // the wait has looked at the flag in memory
      return false;
    fenceAsync(); // it was stored by others' ordinary stores
    const int numRows = shared.wide.numRows, perSet = kParts / steps.unitParts, ofRows = steps.blocks * kParts,
              ofBlock = W::blockBytes(steps.rowSteps);
#pragma unroll 1
    for (int unit = steps.first; unit < steps.units; unit += gridDim.x)
#pragma unroll 1
      for (int firstRow = 0; firstRow < numRows; firstRow += W::rows) {
        const int count = steps.unitParts * steps.blocks;
        const char *source = steps.image + (long long)(firstRow / W::rows * ofRows + unit % perSet * count) * ofBlock;
#pragma unroll 1
        for (int block = 0, bytes; block < count; block += bytes / ofBlock, source += bytes) {
          bytes = min(W::blocks(steps.rowSteps), steps.blocks - block % steps.blocks) * ofBlock;
          u64 *const full = &shared.windowFull[p.window];
          if (!await(shared, &shared.windowEmpty[p.window], (p.parities >> p.window & 1) ^ 1))
            return leave();
          fenceAsyncShared(); // as of awaitRoom of Ring.cuh
          char *const target = p.scratch + W::sumBytes(steps.rowSteps) + p.window * W::bytes;
          if constexpr (lanes == 1) {
            barrierArriveExpect(full, bytes);
            copyBulkAgain(target, source, bytes, full);
          } else {
            for (int i = laneId() * 16; i < bytes; i += 512)
              copyAsync(target + i, source + i);
            copyAsyncArrive(full);
          }
          p.parities ^= 1u << p.window;
          p.window = p.window + 1 == W::count ? 0 : p.window + 1;
        }
      }
    home = p;
    return true;
  }
  /// Shared memory must not be given back while a copy is on its way to it.
  __device__ void drain() {
    for (int i = 0; i < W::count; ++i)
      while (!barrierTest(&shared->windowFull[i], (parities >> i & 1) ^ 1)) {
      }
  }
};

} // namespace megalith::device
