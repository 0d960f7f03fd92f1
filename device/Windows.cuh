//===- Windows.cuh - activations of a product of many rows, on their way --===//
//
// In a pass of many rows a product reads its activations from shared memory, one window after the other. A window is
// some columns of the rows. The producer of an operand stores it in the order the tensor cores read (OperandImage). So
// a window is contiguous, and one bulk copy loads it. The window warp starts these copies, beside the producer warp,
// which copies the weights. The consumers only multiply. Shared memory holds a few windows. As a stage of the ring of
// weights, each has two barriers: one says that it is full, the other that it has been read.
//
// An operand is complete when all CTAs have counted themselves at its counter. A counter only grows. There is one for
// each layer, because a CTA with nothing to do may be a layer ahead of others, but not a pass. The window warp waits
// until the operand is complete. It also waits until the consumers have opened the product, because windows stand in
// scratch, which other phases use as well.
//===----------------------------------------------------------------------===//
#pragma once

#include "megalith/Exchange.cuh"
#include "megalith/Ring.cuh"

namespace megalith::device {

/// The first unit of this CTA, where CTA `firstCta` has unit 0.
__device__ __forceinline__ int firstUnit(int firstCta) {
  const int first = (int)blockIdx.x - firstCta;
  return first < 0 ? first + (int)gridDim.x : first;
}

/// Where windows stand in scratch, in a pass of many rows: after a unit's sums.
template <class C> struct Windows {
  static constexpr int rows = C::wideRows, steps = rows / kRowStep; ///< rows and row steps of a window, at most
  static_assert(steps == stepsOf(rows) && kMaxRows % rows == 0);
  __device__ static constexpr int sumBytes(int steps) { return unitSumBytes(kRowStep * steps); } ///< of a unit
  /// Bytes of a block of 32 columns: [core 4][row][16 bytes]. A core has 8 columns: half of those of an mma step.
  __device__ static constexpr int blockBytes(int steps) { return windowBlockBytes(steps * kRowStep); }
  static constexpr int bytes = windowBytes(rows);
  __device__ static constexpr int fit(int steps) { // windows that fit, with any number of row steps up to `steps`
    const int most = (C::wideBytes(steps * kRowStep) - sumBytes(steps)) / bytes,
              less = steps > 1 ? fit(steps / 2) : kMostWindows;
    return most < less ? most : less;
  }
  static constexpr int count = fit(steps);
  static_assert(count >= 2, "the plan leaves room for two");
  /// Blocks of 32 columns in a window. The last window of an eighth may have fewer.
  __device__ static constexpr int blocks(int steps) { return bytes / blockBytes(steps); }
  /// Row steps of each window in a pass of `numRows` rows.
  __device__ static __forceinline__ int stepsOfPass(int numRows) { return stepsOf(min(rows, numRows)); }
};

/// An operand of products in passes of many rows: one instance of a buffer in global memory, in the order in which
/// windows need it. That is [rows of a window][block of 32 columns], with blocks as in Windows. Columns from `Columns`
/// on are zero from the beginning. Where they stand depends on the number of row steps. So if there are such columns,
/// each number of row steps has a place of its own. The stores are those of Bf16Rows. Only window warps read an image.
template <int Columns, class C> struct OperandImage {
  using W = Windows<C>;
  static constexpr int blocks = (int)paddedColumns(Columns) / kBlockColumns; ///< of 32 columns
  char *base;
  int steps;
  __device__ __forceinline__ OperandImage(char *image, int numRows) : base(image), steps(W::stepsOfPass(numRows)) {
    if (Columns % 256 != 0)
      base += (long long)blocks * (kMaxRows / W::rows) * W::blockBytes(2 * (W::steps - steps));
  }

  /// The word of columns col and col + 1. `col` is even.
  __device__ __forceinline__ u32 *at(int row, int col) const {
    const int core = (row / W::rows * blocks) * 4 + col / 8;
    return reinterpret_cast<u32 *>(base + core * (steps * kRowStep * 16) + row % W::rows * 16) + col % 8 / 2;
  }
  __device__ __forceinline__ void storeWord(int row, int col, u32 word) const {
    if (Columns % 8 == 0 || col < Columns)
      *at(row, col) = Columns % 2 != 0 && col + 1 == Columns ? word & 0xffffu : word;
  }
  __device__ __forceinline__ void store8(int row, int col, Floats<8> f) const {
    const Words4 words = pack8(f);
    if constexpr (Columns % 8 == 0) {
      *reinterpret_cast<Words4 *>(at(row, col)) = words;
    } else {
      storeWord(row, col, words.x);
      storeWord(row, col + 2, words.y);
      storeWord(row, col + 4, words.z);
      storeWord(row, col + 6, words.w);
    }
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

/// Where a phase stores a buffer that is rows in passes of at most 16 rows (`few`), and an image in passes of many rows
/// (`many`). `Rows`: rows of the variant of the code.
template <int Rows, class Few, class Many> __device__ __forceinline__ auto forRows(Few few, Many many) {
  if constexpr (Rows > kTileRows)
    return many;
  else
    return few;
}
/// forRows where the pass decides, not the variant of the code.
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

/// A place to store to that is made when something is stored. So it takes no register until then.
template <class Make> struct LateRows {
  Make make;
  __device__ __forceinline__ void storePair(int row, int c0, int c1, Floats<2> f) const {
    make().storePair(row, c0, c1, f);
  }
};
template <class Make> __device__ __forceinline__ LateRows<Make> lateRows(Make make) { return {make}; }

__device__ __forceinline__ u32 *counterAt(const abi::LaunchParams &p, long long offset) {
  return reinterpret_cast<u32 *>(p.flagged + offset);
}
/// Counts this CTA at an operand, when it has stored its part of it. All consumers.
inline __device__ __noinline__ void countOperand(u32 *counter) {
  consumerSync();
  if (threadIdx.x == 0) {
    delayCta(paramsOfCta(), hash32((u32)(u64)counter));
    addRelease(counter, 1);
  }
}

/// Waits until `counter` is at least `least`, or the kernel stops.
inline __device__ __noinline__ void awaitCount(const GridEdges &grid, int edge, const u32 *counter, u32 least) {
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
  u32 least; ///< what the counter is at least when the operand is complete
  int edge;
  int blocks, unitParts, first, units; ///< those of M; `first`: this CTA's first unit
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

/// The window warp's side of the windows. Where one lane copies whole windows, only one lane runs.
template <class C> struct WindowProducer {
  using W = Windows<C>;
  static constexpr int lanes = kProducerLanes;
  RingShared *shared;
  const GridEdges *grid;
  char *scratch;            ///< in shared memory
  int window = 0;           ///< the next one
  u32 parities = 0;         ///< bit w: parity of the phase that the next fill of window w completes
  u32 wide = 0, opened = 0; ///< parities of the phases of wideBegun and opened

  __device__ __forceinline__ WindowProducer(RingShared *shared, const GridEdges *grid, float *scratch)
      : shared(shared), grid(grid), scratch(reinterpret_cast<char *>(scratch)) {}

  /// Waits for a phase of a barrier. False when the kernel ends. Bit 1 of `phase`: for the next pass, which is not
  /// planned.
  __device__ __noinline__ static bool await(const RingShared &shared, u64 *bar, u32 phase) {
    assumeShared(&shared);
    const auto all = [](bool mine) { return lanes == 1 ? mine : __all_sync(~0u, mine); };
    for (u32 spin = 1; !all(barrierTest(bar, phase & 1)); ++spin)
      if (!all(!leaves(shared, C::Ring::whole && phase > 1 ? kUnplanned : spin)))
        return false;
    return true;
  }
  /// Waits for the next pass of many rows, or wide pass. False when the kernel ends.
  __device__ __forceinline__ bool nextPass() {
    const bool begun = await(*shared, &shared->wideBegun, C::Ring::whole ? wide | 2 : wide);
    wide ^= 1;
    return begun;
  }
  /// Tells the consumers that the window warp needs nothing more of the pass.
  __device__ __forceinline__ void finishPass() {
    if constexpr (lanes > 1)
      __syncwarp();
    if (laneId() == 0)
      barrierArrive(&shared->wideWindows);
  }

  /// Loads the windows of a product. False when the kernel ends.
  __device__ __forceinline__ bool bring(const WindowSteps &steps) {
    return steps.first >= steps.units || bringUnits(*this, steps);
  }
  /// Out of line: one function for all matrices.
  __device__ __noinline__ static bool bringUnits(WindowProducer &home, const WindowSteps &steps) {
    assumeLocal(&home);
    assumeLocal(&steps);
    WindowProducer p = home; // in registers
    RingShared &shared = *p.shared;
    const auto leave = [&] {
      home = p; // drain() has to know which copies were started
      return false;
    };
    if (!await(shared, &shared.opened, p.opened))
      return false;
    p.opened ^= 1;
    awaitCount(*p.grid, steps.edge, steps.counter, steps.least);
    if (lanes > 1 ? __any_sync(~0u, leaves(shared, 1)) : leaves(shared, 1)) // awaitCount polled the flag in memory
      return false;
    fenceAsync(); // other CTAs stored the operand with ordinary stores
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
          fenceAsyncShared(); // see awaitRoom in Ring.cuh
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
  /// Waits until all copies have landed. A CTA must not give back its shared memory while a copy to it is under way.
  __device__ void drain() {
    for (int i = 0; i < W::count; ++i)
      while (!barrierTest(&shared->windowFull[i], (parities >> i & 1) ^ 1)) {
      }
  }
};

} // namespace megalith::device
