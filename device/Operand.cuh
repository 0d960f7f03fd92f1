//===- Operand.cuh - the activations of a product -------------------------===//
//
// What the rows of a pass multiply with a matrix: brought from other CTAs, normalised,
// and kept in shared memory in the order of the mma fragments.
//===----------------------------------------------------------------------===//
#pragma once

namespace megalith::device {

/// Where a product's operand comes from when that is not one bf16 buffer: finish() loads.
struct NoSource {
  static constexpr int columns = 0;
  static constexpr bool polls = false;
  __device__ __forceinline__ Words4 peek(int, int) const { return {0, 0, 0, 0}; }
  __device__ __forceinline__ void settle(int, int, Words4 &) const {}
};

/// What finish() needs beside the source: `Count` times 8 bf16 of weight vectors.
template <int Count> struct Aside {
  Words4 words[Count];
};
struct Nothing {};
struct NoAside {
  __device__ __forceinline__ Nothing operator()(int) const { return {}; }
};

/// The finish() of a product whose operand is its source.
struct Unchanged {
  __device__ __forceinline__ Words4 operator()(int, int, Words4 words, Nothing) const { return words; }
};
template <class Finish> __device__ constexpr bool changes = true;
template <> __device__ constexpr bool changes<Unchanged> = false;

/// What follows from a reduction's result: that.
struct AsItIs {
  __device__ __forceinline__ float operator()(int, float result) const { return result; }
};

/// What an epilogue needs beside the products.
template <int Words, int Values> struct Beside {
  PairWords words[Words > 0 ? Words : 1];
  Floats<2> values[Values > 0 ? Values : 1];
};

/// Those of one group with `chunks` chunks: all of them, or a part that divides them. No more than the
/// ring's stages, for none is released before the last has come.
__device__ constexpr int takenOfGroup(int chunks, int stages) {
  int taken = stages < kChunksTaken ? stages : kChunksTaken;
  while (chunks % taken != 0)
    --taken;
  return taken;
}

/// The rows that a CTA multiplies with M. Each warp takes its own eighth of the columns:
/// it waits for no more than that, and keeps it in shared memory in the order of the mma
/// fragments, [block][row][32 columns]: all of it when the rows fit, else a window of it.
///   Source   peek(row, column) and settle(row, column, words): 8 bf16 of a buffer
///   aside(column)   what finish() needs of weights there; of a single row it is on its way
///            before the wait for the source
///   finish(row, column, words, aside) -> Words4   the operand there, from the source's words
/// called for rows below numRows and columns below k. A CTA without tiles of M does nothing.
///
/// Before they wait for the source, the warps take the first chunks of the matrix out of the
/// ring, so that it goes on filling.
template <class M, int Rows, class C, class Source, class AsideOf, class Early> struct Operand {
  C consumer;
  PassShared &pass;
  Source source;
  AsideOf aside;
  Early early;
  static_assert(Rows <= kTileRows);
  const int numRows = Rows == kOneRow ? 1 : pass.numRows;
  /// The rows fill half a row tile: the other half serves the second mma step.
  const bool halfTile = Rows == kOneRow || numRows <= kHalfTileRows;
  const bool eager = Rows > kOneRow &&numRows <= 2; ///< of a lane's looks, see settleAll
  const CtaGroups<M> groups;
  const bool active = groups.some();
  char *const staged = consumer.template operands<Rows>();
  /// A lane's share of a row, in 8 columns; a single row stays in registers until it is finished.
  static constexpr int share = (M::blocks * 4 + 31) / 32;
  static constexpr bool single = Rows == kOneRow && share <= 8 && C::operandBytes(1) >= M::blocks * 64 * kConsumerWarps;
  /// Chunks of weights that a warp takes of a group at a time, and of how many groups. Several rows need
  /// the registers.
  static constexpr int chunksTaken = Rows > kOneRow ? 1 : takenOfGroup(chunksPerGroup<M>(), C::Ring::stages);
  static constexpr int blocksTaken = chunksTaken * M::chunkBlocks;
  static constexpr int groupsTaken = Rows > kOneRow || chunksTaken < chunksPerGroup<M>() ? 1
                                                                                         : kChunksTaken / chunksTaken;
  static_assert(C::operandBytes(Rows) >= blocksTaken * Rows * 64 * kConsumerWarps, "room for what is taken together");
  /// Blocks of 32 columns that fit at a time.
  const int fit = Rows == kOneRow ? C::operandBytes(1) / (64 * kConsumerWarps) : pass.products.blocksAtOnce;
  static constexpr bool alwaysFits = single || C::operandBytes(Rows) >= M::blocks * Rows * 64 * kConsumerWarps;
  const int window = alwaysFits ? M::blocks : min(M::blocks, fit / blocksTaken * blocksTaken);
  const bool resident = alwaysFits || window == M::blocks;
  Words4 held[single ? share : 1] = {};
  decltype(aside(0)) heldAside[single ? share : 1] = {};
  float scalars[kRowScalars] = {}; ///< of a single row

  /// A lane's share of the chunks that have been taken.
  Words4 taken[groupsTaken][blocksTaken][M::group] = {};

  /// Sums of several groups are added over the warps together, as many as their rows leave room
  /// for. What a thread is handed then: (tile of these groups, row, pair); its row stays.
  const int rowsLog = Rows == kOneRow ? 0 : pass.products.rowsLog;
  const int atOnce = max(1, min(kGroupsAtOnce, (kMostTiles * kTileRows >> rowsLog) / M::group));
  const int itemTile = (int)threadIdx.x >> (2 + rowsLog), itemRow = ((int)threadIdx.x >> 2) & ((1 << rowsLog) - 1);
  decltype(early(0, 0)) beside = {};

  __device__ __forceinline__ int pairOf(int i) const {
    return (groups.at(i + itemTile / M::group) * M::group + itemTile % M::group) * 4 + ((int)threadIdx.x & 3);
  }
  __device__ __forceinline__ bool hasItem(int i, int row) const {
    return itemTile < atOnce * M::group && row < numRows && groups.has(i + itemTile / M::group);
  }
  /// For the sums of the groups from the i-th of this CTA on.
  __device__ __forceinline__ void lookAhead(int i) {
    if (hasItem(i, itemRow))
      beside = early(itemRow, pairOf(i));
  }

  /// A warp's part of the next chunk.
  __device__ __forceinline__ const Words4 *chunk() {
    return reinterpret_cast<const Words4 *>(consumer.acquire()) + warpId() * (M::chunkBlocks * M::group * 32) +
           laneId();
  }
  /// Takes the next chunks out of the ring, from this CTA's group number `group` on. All loads are under
  /// way together.
  __device__ __forceinline__ void take(int group) {
#pragma unroll
    for (int g = 0; g < groupsTaken; ++g) {
      if (g > 0 && !groups.has(group + g))
        break;
#pragma unroll
      for (int c = 0; c < chunksTaken; ++c) {
        const Words4 *weights = chunk();
#pragma unroll
        for (int b = 0; b < M::chunkBlocks; ++b)
#pragma unroll
          for (int n = 0; n < M::group; ++n)
            taken[g][c * M::chunkBlocks + b][n] = loadShared4(weights, (b * M::group + n) * 512);
      }
      consumer.template release<chunksTaken>();
    }
  }

  __device__ __forceinline__ static int columnOf(int block, int quarter) {
    return (warpId() * M::blocks + block) * 32 + quarter * 8;
  }
  /// The lane's `j`th column of a single row.
  __device__ __forceinline__ static int columnHeld(int j) { return columnOf(0, j * 32 + laneId()); }
  __device__ __forceinline__ static bool holds(int j) {
    return (M::blocks % 8 == 0 || j * 32 + laneId() < M::blocks * 4) && (M::k == M::kPadded || columnHeld(j) < M::k);
  }
  /// Rows of odd blocks stand in pairs the other way round when there are as many as even numbers
  /// of them: else lanes side by side would meet in half of the banks.
  __device__ __forceinline__ int rowAt(int block, int row) const { return row ^ (block & ~numRows & 1); }
  __device__ __forceinline__ Words4 &at(int block, int row, int quarter) const {
    return reinterpret_cast<Words4 *>(staged)[(block * numRows + rowAt(block, row)) * 4 + quarter];
  }
  __device__ __forceinline__ Words4 load(int row, int column) const {
    Words4 words = source.peek(row, column);
    source.settle(row, column, words);
    return keepBelow<M::k>(words, column);
  }
  /// How the lanes share out `count` blocks: so many, as a power of two, stand side by side in a
  /// row. Those that the columns do not need take other rows.
  __device__ __forceinline__ static int lanesAcross(int count) {
    return count <= 1 ? 2 : count <= 2 ? 3 : count <= 4 ? 4 : 5;
  }

  /// Brings blocks [first, first + count) of the source into shared memory; several loads at
  /// once: of neighbouring columns of a single row, of several rows otherwise.
  __device__ __forceinline__ void stage(int first, int count) const {
    constexpr int batch = Rows > kOneRow && M::k % 8 == 0 ? 8 : 4; // as many as there are registers
    constexpr int across = Rows == kOneRow ? batch : 1, down = batch / across;
    const int wideLog = lanesAcross(count), wide = 1 << wideLog, tall = 32 >> wideLog;
    __syncwarp(); // lanes may still read what stands there
#pragma unroll 1
    for (int base = laneId() & (wide - 1); base < count * 4; base += wide * across)
#pragma unroll 1
      for (int top = laneId() >> wideLog; top < numRows; top += down * tall) {
        Words4 words[batch];
        const auto placeOf = [&](int j) { return base + j / down * wide; };
        const auto rowOf = [&](int j) { return top + j % down * tall; };
        const auto column = [&](int j) { return columnOf(first, placeOf(j)); };
        const auto inside = [&](int j) { return placeOf(j) < count * 4 && rowOf(j) < numRows; };
        const auto wanted = [&](int j) { return inside(j) && column(j) < M::k; };
        peekAll(source, words, wanted, rowOf, column);
        settleAll(source, words, wanted, rowOf, column, eager);
#pragma unroll
        for (int j = 0; j < batch; ++j)
          if (inside(j))
            at(placeOf(j) >> 2, rowOf(j), placeOf(j) & 3) = keepBelow<M::k>(words[j], column(j));
      }
    __syncwarp();
  }
  /// Makes the operand of blocks [first, first + count) of a single row that came.
  template <class Finish> __device__ __forceinline__ void finishStaged(int first, int count, Finish finish) const {
    static_assert(Rows == kOneRow, "of several rows a phase in front makes it");
#pragma unroll 1
    for (int i = laneId(); i < count * 4; i += 32) {
      const int column = columnOf(first, i);
      if (column >= M::k)
        break;
      Words4 &words = at(i >> 2, 0, i & 3);
      words = finish(0, column, words, aside(column));
    }
    __syncwarp();
  }

  /// The first of all: what does not depend on the source, then its words as they are.
  __device__ __forceinline__ void begin() {
    if (!active)
      return;
    take(0);
    lookAhead(0);
    if constexpr (single) {
#pragma unroll
      for (int j = 0; j < share; ++j)
        if (holds(j))
          heldAside[j] = aside(columnHeld(j));
      const auto wanted = [&](int j) { return holds(j); };
      const auto rowOf = [](int) { return 0; };
      const auto column = [&](int j) { return columnHeld(j); };
      peekAll(source, held, wanted, rowOf, column);
      settleAll(source, held, wanted, rowOf, column);
#pragma unroll
      for (int j = 0; j < share; ++j)
        held[j] = keepBelow<M::k>(held[j], columnHeld(j));
    }
  }
  /// Makes the operand of the single row that begin() brought.
  template <class Finish> __device__ __forceinline__ void finishHeld(Finish finish) const {
    __syncwarp(); // lanes may still read what stands there
#pragma unroll
    for (int j = 0; j < share; ++j) {
      const Words4 words = holds(j) ? finish(0, columnHeld(j), held[j], heldAside[j]) : Words4{0, 0, 0, 0};
      if (M::blocks % 8 == 0 || j * 32 + laneId() < M::blocks * 4)
        reinterpret_cast<Words4 *>(staged)[j * 32 + laneId()] = words;
    }
    __syncwarp();
  }

  /// Reduces columns [0, Columns) of a single row: the sum as `parts8`, or the maximum. terms(row, column,
  /// words) -> Floats<8>; scalarOf(Slot, row) becomes then(row, the result). All consumer warps,
  /// after begin().
  template <int Slot, bool Max, int Columns, class Terms, class Then = AsItIs>
  __device__ __forceinline__ void reduce(Terms terms, Then then = {}) {
    if (!active)
      return;
    static_assert(Rows == kOneRow, "of several rows a phase in front does");
    float *sums = consumer.template nextSums<Rows>(); // of the warps
    const int warp = warpId();
    float total = noneOf<Max>();
    if constexpr (Columns == M::k && single) {
#pragma unroll
      for (int j = 0; j < share; ++j)
        if (holds(j))
          takeColumns<Max, Columns>(total, columnHeld(j), terms(0, columnHeld(j), held[j]));
    } else {
      // The first reduction takes the words as they come to shared memory.
      constexpr int part = partColumns<Columns>();
      const bool asTheyCome = Slot == 0 && Columns == M::k, stay = asTheyCome && resident;
      if (Slot == 0 && Columns != M::k && resident && !single)
        stage(0, M::blocks);
#pragma unroll 1
      for (int c = warp * part + laneId() * 8; c < (warp + 1) * part; c += 256) {
        const u32 inPart = c - warp * part;
        Words4 words = {0, 0, 0, 0};
        if (Columns == M::k && c < Columns)
          words = asTheyCome || !resident ? load(0, c) : keepBelow<M::k>(at(inPart / 32, 0, inPart % 32 / 8), c);
        if (stay)
          at(inPart / 32, 0, inPart % 32 / 8) = words;
        if (c < Columns)
          takeColumns<Max, Columns>(total, c, terms(0, c, words));
      }
    }
    total = acrossLanes<Max>(total);
    if (laneId() == 0)
      sums[warp] = total;
    consumerSync();
    const Float4 low = reinterpret_cast<const Float4 *>(sums)[0], high = reinterpret_cast<const Float4 *>(sums)[1];
    total = together<Max>(together<Max>(together<Max>(low.x, low.y), low.z), low.w);
    total = together<Max>(together<Max>(total, high.x), high.y);
    total = together<Max>(together<Max>(total, high.z), high.w);
    scalars[Slot] = then(0, total);
  }
  __device__ __forceinline__ float scalarOf(int slot, int) const { return scalars[slot]; }
};

template <class M, int Rows, class C, class Source, class AsideOf, class Early>
__device__ __forceinline__ Operand<M, Rows, C, Source, AsideOf, Early>
operandOf(C consumer, PassShared &pass, Source source, AsideOf aside, Early early) {
  return {consumer, pass, source, aside, early};
}

} // namespace megalith::device
