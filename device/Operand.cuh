//===- Operand.cuh - the activations of a product -------------------------===//
//
// An operand is the rows that a product multiplies with a matrix. Each CTA loads them from where other
// CTAs stored them, normalises them, and keeps them in shared memory.
//===----------------------------------------------------------------------===//
#pragma once

#include "megalith/Codes.cuh"
#include "megalith/Exchange.cuh"
#include "megalith/Order.cuh"
#include "megalith/Rows.cuh"

namespace megalith::device {

/// The source of an operand that does not come from one bf16 buffer. It loads nothing: finish() does.
struct NoSource {
  static constexpr int columns = 0;
  static constexpr bool polls = false;
  __device__ __forceinline__ Words4 peek(int, int) const { return {0, 0, 0, 0}; }
  __device__ __forceinline__ void settle(int, int, Words4 &) const {}
};

/// What finish() needs beside the source: `Count` times 8 values of weight vectors, in bf16.
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

/// The value that follows from a reduction's result, where that is the result itself.
struct AsItIs {
  __device__ __forceinline__ float operator()(int, float result) const { return result; }
};

/// What an epilogue needs beside the products.
template <int Words, int Values> struct Beside {
  PairWords words[Words > 0 ? Words : 1];
  Floats<2> values[Values > 0 ? Values : 1];
};

/// Chunks that a warp takes at a time of one group with `chunks` chunks, in a pass of one row. The number divides
/// `chunks`. It is no more than the ring's stages, for no chunk is released before the last one has come.
__device__ constexpr int takenOfGroup(int chunks, int stages) {
  int taken = stages < kChunksTaken ? stages : kChunksTaken;
  while (chunks % taken != 0)
    --taken;
  return taken;
}

/// The rows that a CTA multiplies with M. Each warp takes its own eighth of the columns, and waits for no other
/// columns. It keeps them in shared memory: [block][row][32 columns]. It keeps all blocks when the rows fit, else a
/// window of some blocks at a time.
///   Source   peek(row, column) and settle(row, column, words) load 8 bf16 of a buffer
///   aside(column)   loads what finish() needs of weights at that column. For a single row that load is under way
///            before the wait for the source
///   finish(row, column, words, aside) -> Words4   makes the operand there from the source's words
/// These are called for rows below numRows and columns below k. A CTA without tiles of M does nothing.
///
/// Before the warps wait for the source, they take the first chunks of the matrix out of the ring. So the ring goes on
/// filling.
template <class M, int Rows, class C, class Source, class AsideOf, class Early> struct Operand {
  C consumer;
  PassShared &pass;
  Source source;
  AsideOf aside;
  Early early;
  static_assert(Rows <= kTileRows);
  const int numRows = Rows == kOneRow ? 1 : pass.numRows;
  /// The rows fill at most half of a row tile. What stands in the other half then means nothing.
  const bool halfTile = Rows == kOneRow || numRows <= kHalfTileRows;
  const bool eager = Rows > kOneRow &&numRows <= 2; ///< how a lane waits, see settleAll
  const CtaGroups<M> groups;
  const bool active = groups.some();
  char *const staged = consumer.template operands<Rows>(64 * pass.products.blocksAtOnce * numRows);
  /// A lane's share of a row, in units of 8 columns. `single`: a single row stays in registers until finish().
  static constexpr int share = (M::blocks * 4 + 31) / 32;
  static constexpr bool single = Rows == kOneRow && share <= 8 && C::operandBytes(1) >= M::blocks * 64 * kConsumerWarps;
  /// Chunks of weights that a warp takes of a group at a time, and the number of groups that it takes together. In a
  /// pass of several rows both are 1, because its rows need the registers. Codes in pieces bring scales along: of these
  /// it takes one group.
  static constexpr int chunksTaken = Rows > kOneRow ? 1 : takenOfGroup(chunksPerGroup<M>(), C::Ring::stages);
  static constexpr int blocksTaken = chunksTaken * M::chunkBlocks;
  static constexpr int groupsTaken = Rows > kOneRow || chunksTaken < chunksPerGroup<M>() || kPieces<M>
                                         ? 1
                                         : kChunksTaken / chunksTaken;
  /// Of several rows a chunk is taken while the one before it is multiplied, where a group has an even number of
  /// chunks.
  static constexpr bool ahead = Rows > kOneRow &&chunksPerGroup<M>() % 2 == 0 && C::operandBytes(Rows) >=
                                                                                     2 * blocksTaken *Rows *
                                                                                         64 * kConsumerWarps;
  static constexpr int blocksOfStep = ahead ? 2 * blocksTaken : blocksTaken;
  static_assert(C::operandBytes(Rows) >= blocksTaken * Rows * 64 * kConsumerWarps, "room for what is taken together");
  /// Blocks of 32 columns that fit into shared memory at a time.
  const int fit = Rows == kOneRow ? C::operandBytes(1) / (64 * kConsumerWarps) : pass.products.blocksAtOnce;
  static constexpr bool alwaysFits = single || C::operandBytes(Rows) >= M::blocks * Rows * 64 * kConsumerWarps;
  static_assert(Rows == kOneRow || C::operandBytesOf(kFewRows) >=
                                       (alwaysFits ? M::blocks : blocksOfStep) * kFewRows * 64 * kConsumerWarps,
                "room for the operands of few rows");
  const int window = alwaysFits ? M::blocks : min(M::blocks, fit / blocksOfStep * blocksOfStep);
  const bool resident = alwaysFits || window == M::blocks;
  Words4 held[single ? share : 1] = {};
  decltype(aside(0)) heldAside[single ? share : 1] = {};
  float scalars[kRowScalars] = {}; ///< results of reduce(), of a single row
  static_assert(!kOrdered<M> || Rows > kOneRow || single, "a row is put in order on its way from registers");
  OrderOf<M> order = {};
  /// Where the columns that are held go.
  [[maybe_unused]] Words4 heldPlaces[single && kOrdered<M> ? share : 1] = {};

  /// A lane's share of the chunks that have been taken.
  typename TakenOf<M>::Block taken[ahead ? 2 : groupsTaken][blocksTaken] = {};

  /// The sums of `atOnce` groups are added over the warps together: as many as their rows leave room for. A thread then
  /// gets one item: a tile of these groups (`itemTile`), a row (`itemRow`) and a pair of columns. Its row is always the
  /// same.
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
  /// Loads what the epilogue needs beside the sums, for the groups from the i-th of this CTA on.
  __device__ __forceinline__ void readAhead(int i) {
    if (hasItem(i, itemRow))
      beside = early(itemRow, pairOf(i));
  }

  /// A warp's part of the next chunk.
  __device__ __forceinline__ const char *chunk() {
    return consumer.acquire() + warpId() * (chunkBytes<M>() / kConsumerWarps);
  }
  /// Takes the next chunk out of the ring, as number `Place` of those taken.
  template <int Place> __device__ __forceinline__ void takeOne() {
    const char *weights = chunk();
#pragma unroll
    for (int b = 0; b < M::chunkBlocks; ++b)
      takeBlock<M>(taken[Place][b], weights, b);
    consumer.template release<1>();
  }
  /// Takes the next chunks out of the ring, from this CTA's group number `group` on. All loads are under way together.
  __device__ __forceinline__ void take(int group) {
#pragma unroll
    for (int g = 0; g < groupsTaken; ++g) {
      if (g > 0 && !groups.has(group + g))
        break;
#pragma unroll
      for (int c = 0; c < chunksTaken; ++c) {
        const char *weights = chunk();
#pragma unroll
        for (int b = 0; b < M::chunkBlocks; ++b)
          takeBlock<M>(taken[g][c * M::chunkBlocks + b], weights, b);
      }
      consumer.template release<chunksTaken>();
    }
  }

  __device__ __forceinline__ static int columnOf(int block, int quarter) {
    return (warpId() * M::blocks + block) * 32 + quarter * 8;
  }
  /// The first of the lane's `j`th 8 columns of a single row.
  __device__ __forceinline__ static int columnHeld(int j) { return columnOf(0, j * 32 + laneId()); }
  __device__ __forceinline__ static bool holds(int j) {
    return (M::blocks % 8 == 0 || j * 32 + laneId() < M::blocks * 4) && (M::k == M::kPadded || columnHeld(j) < M::k);
  }
  /// Where a row stands in a block. When the number of rows is even, rows 2i and 2i + 1 change places in odd blocks.
  /// Else neighbouring lanes would meet in half of the banks.
  __device__ __forceinline__ int rowAt(int block, int row) const { return row ^ (block & ~numRows & 1); }
  /// Eight columns of a row. The four of a row and block change places, so that no two of eight rows meet in a bank.
  __device__ __forceinline__ Words4 &at(int block, int row, int quarter) const {
    return reinterpret_cast<Words4 *>(staged)[(block * numRows + rowAt(block, row)) * 4 + (quarter ^ (row >> 1 & 3))];
  }
  __device__ __forceinline__ Words4 load(int row, int column) const {
    Words4 words = source.peek(row, column);
    source.settle(row, column, words);
    return keepBelow<M::k>(words, column);
  }
  /// How the lanes share `count` blocks: 2 to this power take neighbouring columns of one row. The lanes that the
  /// columns do not need take other rows.
  __device__ __forceinline__ static int lanesAcross(int count) {
    return count <= 1 ? 2 : count <= 2 ? 3 : count <= 4 ? 4 : 5;
  }

  /// Brings blocks [first, first + count) of the source into shared memory. Each lane has several loads under way: of
  /// several columns of a single row, otherwise of several rows.
  __device__ __forceinline__ void stage(int first, int count) const {
    constexpr int batch = Rows > kOneRow && M::k % 8 == 0 ? 8 : 4; // loads: as many as there are registers for
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
  /// Makes the operand of blocks [first, first + count) from a single row that stage() brought.
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

  /// Called first. Loads what does not depend on the source. Then loads the source's words, unchanged, of a single row
  /// that stays in registers.
  __device__ __forceinline__ void begin() {
    if (!active)
      return;
    take(0);
    readAhead(0);
    if constexpr (single) {
#pragma unroll
      for (int j = 0; j < share; ++j)
        if (holds(j))
          heldAside[j] = aside(columnHeld(j));
      if constexpr (kOrdered<M>) {
#pragma unroll
        for (int j = 0; j < share; ++j)
          if (holds(j))
            heldPlaces[j] = order.places(columnHeld(j));
      }
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
  /// Makes the operand from the single row that begin() loaded. With an order a column mostly goes to another warp's
  /// part. No warp reads its own one any more: a barrier stands behind each product.
  template <class Finish> __device__ __forceinline__ void finishHeld(Finish finish) const {
    __syncwarp(); // lanes may still read what stands there
    if constexpr (kOrdered<M>) {
#pragma unroll
      for (int j = 0; j < share; ++j)
        if (holds(j))
          putInOrder(heldPlaces[j], finish(0, columnHeld(j), held[j], heldAside[j]));
        else if (M::k < M::kPadded && (M::blocks % 8 == 0 || j * 32 + laneId() < M::blocks * 4))
          *reinterpret_cast<Words4 *>(placeAt(columnHeld(j))) = {0, 0, 0, 0};
      consumerSync();
      return;
    }
#pragma unroll
    for (int j = 0; j < share; ++j) {
      const Words4 words = holds(j) ? finish(0, columnHeld(j), held[j], heldAside[j]) : Words4{0, 0, 0, 0};
      if (M::blocks % 8 == 0 || j * 32 + laneId() < M::blocks * 4)
        reinterpret_cast<Words4 *>(staged)[j * 32 + laneId()] = words;
    }
    __syncwarp();
  }
  /// Stores eight halves, each to a place of its own.
  __device__ __forceinline__ void putInOrder(Words4 places, Words4 halves) const {
    const auto put = [&](u32 two, u32 values) {
      *reinterpret_cast<u16 *>(placeAt(two & 0xffff)) = (u16)values;
      *reinterpret_cast<u16 *>(placeAt(two >> 16)) = (u16)(values >> 16);
    };
    put(places.x, halves.x);
    put(places.y, halves.y);
    put(places.z, halves.z);
    put(places.w, halves.w);
  }
  /// Where a column of a single row stands in shared memory, in whichever warp's part.
  __device__ __forceinline__ char *placeAt(int column) const {
    constexpr int columns = M::blocks * 32, bytes = C::operandBytes(1) / kConsumerWarps;
    return staged + (column / columns - warpId()) * bytes + column % columns * 2;
  }

  /// Reduces columns [0, Columns) of a single row: to the sum, with the sum tree `parts8`, or to the maximum.
  ///   terms(row, column, words) -> Floats<8>   makes the values to reduce from the source's words
  /// scalarOf(Slot, row) becomes then(row, the result). All consumer warps call it, after begin().
  template <int Slot, bool Max, int Columns, class Terms, class Then = AsItIs>
  __device__ __forceinline__ void reduce(Terms terms, Then then = {}) {
    if (!active)
      return;
    static_assert(Rows == kOneRow, "of several rows a phase in front does");
    float *sums = consumer.template nextSums<Rows>(); // one of each warp
    const int warp = warpId();
    float total = noneOf<Max>();
    if constexpr (Columns == M::k && single) {
#pragma unroll
      for (int j = 0; j < share; ++j)
        if (holds(j))
          takeColumns<Max, Columns>(total, columnHeld(j), terms(0, columnHeld(j), held[j]));
    } else {
      // The first reduction, if it is over the operand's columns, loads the words itself. It stores them to shared
      // memory if all blocks fit there.
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
