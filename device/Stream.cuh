//===- Stream.cuh - products of activations with streamed weights ---------===//
//
// A matrix (one or more weight matrices with the same input) is a struct of
// constants that the plan prints:
//
//   k, kPadded     columns, and columns padded to a multiple of 256
//   blocks         kPadded / 256: blocks of 32 columns that one warp owns
//   chunkBlocks    blocks of a warp in one chunk of the stream
//   group          8-row tiles in one chunk
//   groups         groups of tiles, dealt to the CTAs round robin from firstCta
//   descending     walk the groups from the last one
//
// Sum tree `split8`: warp w owns columns [w*kPadded/8, (w+1)*kPadded/8) and adds
// its products in two chains of mma steps in ascending order, of the even and of the odd
// pairs of columns; the two are added, and the eight sums in ascending order of w. Neither the
// number of rows nor the plan changes it.
//
// Packed layout, in the order of consumption:
//   [group][chunk][warp 8][block chunkBlocks][tile group][row 8][32 columns] bf16
// so that a lane's 16 bytes are 8 consecutive columns of weight row lane/4, in the order
// 0, 1, 4, 5, 2, 3, 6, 7: one mma step sees the first four of lane t as its k, another
// the rest.
//
// Activations are the operand A. Of a single row one quad of registers serves both steps:
// its rows 0 to 7 carry the columns of the first, its rows 8 to 15 those of the second; of
// each step's sums one half counts.
//===----------------------------------------------------------------------===//
#pragma once

namespace megalith::device {

template <class M> __device__ constexpr int chunkBytes() { return M::group * M::chunkBlocks * 4096; }
template <class M> __device__ constexpr int chunksPerGroup() { return M::blocks / M::chunkBlocks; }
template <class M> __device__ constexpr long long matrixBytes() {
  return (long long)M::groups * M::blocks * M::group * 4096;
}

/// The groups of tiles of this CTA.
template <class M> struct CtaGroups {
  int first;
  __device__ __forceinline__ CtaGroups() {
    int shift = M::firstCta;
    while (shift >= (int)gridDim.x) // fewer CTAs than planned: seldom, and a division is slow
      shift -= gridDim.x;
    first = (int)blockIdx.x - shift;
    if (first < 0)
      first += gridDim.x;
  }
  /// The i-th, or -1 behind the last.
  __device__ __forceinline__ int at(int i) const {
    const int g = first + i * (int)gridDim.x;
    if (g >= M::groups)
      return -1;
    return M::descending ? M::groups - 1 - g : g;
  }
};

/// Producer: streams this CTA's part of a matrix that begins at `base`.
template <class M, class P> __device__ bool streamWeights(P &producer, const char *base) {
  const CtaGroups<M> mine;
  for (int i = 0, g; (g = mine.at(i)) >= 0; ++i) {
    const char *chunk = base + (long long)g * chunksPerGroup<M>() * chunkBytes<M>();
#pragma unroll 1
    for (int c = 0; c < chunksPerGroup<M>(); ++c, chunk += chunkBytes<M>())
      if (!producer.push(chunk, chunkBytes<M>()))
        return false;
  }
  return true;
}

/// Tiles of a group, at most.
constexpr int kMostTiles = 2;
/// 32-bit floats of one of the two cross-warp buffers: 8 warps x tiles x 16 rows x 8.
constexpr int kSumFloats = kConsumerWarps * kMostTiles * kTileRows * 8;
/// Groups whose sums are added over the warps together, at most.
constexpr int kGroupsAtOnce = 4;

/// Where a warp stands in the stream, between two phases. In shared memory: what a thread
/// keeps in its own is far away when the L1 cache is small.
struct StreamPlace {
  int stage;
  u32 parity;
  int buffer; ///< of the cross-warp sums: which of the two comes next
};

/// A consumer warp's side of the stream; during a phase in registers.
///   OperandBytes   shared memory for the activations of a product, all warps together
template <class R, int OperandBytes> struct Consumer {
  using Ring = R;
  static constexpr int operandBytes = OperandBytes;
  R ring;
  float *scratch;   ///< shared: two buffers of cross-warp sums; attention
  char *operands;   ///< shared
  StreamPlace *home;
  int buffer;

  __device__ __forceinline__ Consumer(char *stages, RingShared *sync, float *scratch, char *operands, StreamPlace *home)
      : ring{stages, sync, home->stage, home->parity}, scratch(scratch), operands(operands), home(home),
        buffer(home->buffer) {}
  /// At the end of a phase.
  __device__ __forceinline__ void keep() const {
    if (laneId() == 0)
      *home = {ring.stage, ring.parity, buffer};
    __syncwarp();
  }

  /// Of the two buffers the one that was not used last: a barrier of the consumers stands
  /// between two uses of one.
  __device__ __forceinline__ float *nextScratch() {
    float *sums = scratch + buffer * kSumFloats;
    buffer ^= 1;
    return sums;
  }

  /// Waits for the next chunk; its bytes are valid until release().
  __device__ __forceinline__ const char *acquire() {
    if (!barrierTest(&ring.shared->full[ring.stage], ring.parity))
      awaitFull(*ring.shared, ring.stage, ring.parity);
    const char *chunk = ring.data + ring.stage * R::stageBytes;
    ring.advance();
    return chunk;
  }
  /// The warp has its fragments of the last `Count` chunks in registers. The fence keeps the
  /// reads before the arrivals: without it a stage could be refilled under them.
  template <int Count = 1> __device__ __forceinline__ void release() {
    fenceCta();
    __syncwarp();
    if (laneId() == 0)
#pragma unroll
      for (int back = Count; back > 0; --back)
        barrierArrive(&ring.shared->empty[ring.before(back).stage]);
  }
};

/// Row tiles of 16 that a variant for so many rows handles.
__device__ constexpr int tilesOf(int rows) { return (rows + kTileRows - 1) / kTileRows; }

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
  static constexpr int Tiles = tilesOf(Rows);
  const int numRows = Rows == 1 ? 1 : pass.numRows;
  const CtaGroups<M> groups;
  const bool active = groups.at(0) >= 0;
  char *const staged = consumer.operands + warpId() * (C::operandBytes / kConsumerWarps);
  /// A lane's share of a row, in 8 columns; a single row stays in registers until it is finished.
  static constexpr int share = (M::blocks * 4 + 31) / 32;
  static constexpr bool single = Rows == 1 && share <= 8 && C::operandBytes >= M::blocks * 64 * kConsumerWarps;
  /// Chunks of weights that a warp takes at a time. Several rows need the registers.
  static constexpr int chunksTaken = Rows == 1 && chunksPerGroup<M>() % 2 == 0 ? 2 : 1;
  static constexpr int blocksTaken = chunksTaken * M::chunkBlocks;
  /// Blocks of 32 columns that fit at a time; of one row tile what is taken together.
  static constexpr int step = Tiles == 1 ? blocksTaken : 1;
  static_assert(Tiles > 1 || C::operandBytes >= step * Rows * 64 * kConsumerWarps, "room for a step");
  const int window = single ? M::blocks : min(M::blocks, pass.blocksAtOnce / step * step);
  const bool resident = single || (Tiles == 1 && window == M::blocks); // several row tiles seldom fit
  Words4 held[single ? share : 1] = {};
  decltype(aside(0)) heldAside[single ? share : 1] = {};
  float scalars[kRowScalars] = {}; ///< of a single row

  /// A lane's share of the chunks that have been taken.
  Words4 taken[Tiles == 1 ? blocksTaken : 1][M::group] = {};

  /// Sums of several groups are added over the warps together, as many as their rows leave room
  /// for. What a thread is handed then: (tile of these groups, row, pair); its row stays.
  const int rowsLog = Rows == 1 ? 0 : Tiles == 1 ? pass.rowsLog : 4;
  const int atOnce = Tiles == 1 ? max(1, min(kGroupsAtOnce, (kMostTiles * kTileRows >> rowsLog) / M::group)) : 1;
  const int itemTile = (int)threadIdx.x >> (2 + rowsLog), itemRow = ((int)threadIdx.x >> 2) & ((1 << rowsLog) - 1);
  decltype(early(0, 0)) beside = {}; // of one row tile

  __device__ __forceinline__ int pairOf(int i) const {
    return (groups.at(i + itemTile / M::group) * M::group + itemTile % M::group) * 4 + ((int)threadIdx.x & 3);
  }
  __device__ __forceinline__ bool hasItem(int i, int row) const {
    return itemTile < atOnce * M::group && row < numRows && groups.at(i + itemTile / M::group) >= 0;
  }
  /// For the sums of the groups from the i-th of this CTA on.
  __device__ __forceinline__ void lookAhead(int i) {
    if (Tiles == 1 && hasItem(i, itemRow)) // with more row tiles there are no registers for it
      beside = early(itemRow, pairOf(i));
  }

  /// A warp's part of the next chunk.
  __device__ __forceinline__ const Words4 *chunk() {
    return reinterpret_cast<const Words4 *>(consumer.acquire()) + warpId() * (M::chunkBlocks * M::group * 32) + laneId();
  }
  /// Takes the next chunks out of the ring. All loads are under way together.
  __device__ __forceinline__ void take() {
#pragma unroll
    for (int c = 0; c < chunksTaken; ++c) {
      const Words4 *weights = chunk();
#pragma unroll
      for (int b = 0; b < M::chunkBlocks; ++b)
#pragma unroll
        for (int n = 0; n < M::group; ++n)
          taken[c * M::chunkBlocks + b][n] = loadShared4(weights, (b * M::group + n) * 512);
    }
    consumer.template release<chunksTaken>();
  }

  __device__ __forceinline__ static int columnOf(int block, int quarter) {
    return (warpId() * M::blocks + block) * 32 + quarter * 8;
  }
  /// The lane's `j`th column of a single row.
  __device__ __forceinline__ static int columnHeld(int j) { return columnOf(0, j * 32 + laneId()); }
  __device__ __forceinline__ static bool holds(int j) {
    return (M::blocks % 8 == 0 || j * 32 + laneId() < M::blocks * 4) &&
           (M::k == M::kPadded || columnHeld(j) < M::k);
  }
  __device__ __forceinline__ Words4 &at(int block, int row, int quarter) const {
    return reinterpret_cast<Words4 *>(staged)[(block * numRows + row) * 4 + quarter];
  }
  /// A lane's part of the mma's operand A.
  __device__ __forceinline__ Words4 fragment(int block, int row, bool used) const {
    Words4 words = {0, 0, 0, 0};
    if (used)
      words = at(block, row, laneId() & 3);
    return words;
  }
  __device__ __forceinline__ Words4 load(int row, int column) const {
    Words4 words = source.peek(row, column);
    source.settle(row, column, words);
    return keepBelow<M::k>(words, column);
  }
  /// How the lanes share out `count` blocks: so many, as a power of two, stand side by side in a
  /// row. Those that the columns do not need take other rows.
  __device__ __forceinline__ static int lanesAcross(int count) { return count <= 1 ? 2 : count <= 2 ? 3 : count <= 4 ? 4 : 5; }

  /// Brings blocks [first, first + count) of the source into shared memory; several loads at
  /// once: of neighbouring columns of a single row, of several rows otherwise.
  __device__ __forceinline__ void stage(int first, int count) const {
    constexpr int batch = Rows > 1 && Tiles == 1 ? 8 : 4; // four row tiles leave few registers
    constexpr int across = Rows == 1 ? batch : 1, down = batch / across;
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
        settleAll(source, words, wanted, rowOf, column);
#pragma unroll
        for (int j = 0; j < batch; ++j)
          if (inside(j))
            at(placeOf(j) >> 2, rowOf(j), placeOf(j) & 3) = keepBelow<M::k>(words[j], column(j));
      }
    __syncwarp();
  }
  /// Makes the operand of blocks [first, first + count) that stage() brought.
  template <class Finish> __device__ __forceinline__ void finishStaged(int first, int count, Finish finish) const {
    const int wideLog = lanesAcross(count), wide = 1 << wideLog, tall = 32 >> wideLog;
#pragma unroll 1
    for (int i = laneId() & (wide - 1); i < count * 4; i += wide) {
      const int column = columnOf(first, i);
      if (column >= M::k)
        break;
      const auto beside = aside(column);
#pragma unroll 1
      for (int row = laneId() >> wideLog; row < numRows; row += tall)
        at(i >> 2, row, i & 3) = finish(row, column, at(i >> 2, row, i & 3), beside);
    }
    __syncwarp();
  }

  /// The first of all: what does not depend on the source, then its words as they are.
  template <bool Reduced> __device__ __forceinline__ void begin() {
    if (!active)
      return;
    lookAhead(0);
    if constexpr (single) {
#pragma unroll
      for (int j = 0; j < share; ++j)
        if (holds(j))
          heldAside[j] = aside(columnHeld(j));
    }
    const auto wanted = [&](int j) { return holds(j); };
    const auto rowOf = [](int) { return 0; };
    const auto column = [&](int j) { return columnHeld(j); };
    if constexpr (single)
      peekAll(source, held, wanted, rowOf, column);
    if constexpr (Tiles == 1)
      take();
    if constexpr (single) {
      settleAll(source, held, wanted, rowOf, column);
#pragma unroll
      for (int j = 0; j < share; ++j)
        held[j] = keepBelow<M::k>(held[j], columnHeld(j));
    } else if (Reduced && resident) {
      stage(0, M::blocks);
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

  /// Reduces columns [0, Columns) of every row: sums as `parts8`, or maxima. terms(row, column,
  /// words) -> Floats<8>; scalarOf(Slot, row) becomes then(row, the result). All consumer warps,
  /// after begin().
  template <int Slot, bool Max, int Columns, class Terms, class Then = AsItIs>
  __device__ __forceinline__ void reduce(Terms terms, Then then = {}) {
    if (!active)
      return;
    constexpr int part = partColumns<Columns>();
    float *sums = consumer.nextScratch(); // [row][warp]
    const int warp = warpId();
    const auto ofWarps = [&](int row) {
      const float *mine = sums + row * kConsumerWarps;
      float total = mine[0];
#pragma unroll
      for (int w = 1; w < kConsumerWarps; ++w)
        total = together<Max>(total, mine[w]);
      return total;
    };
    if constexpr (Columns == M::k && single) {
      float total = noneOf<Max>();
#pragma unroll
      for (int j = 0; j < share; ++j)
        if (holds(j))
          takeColumns<Max, Columns>(total, columnHeld(j), terms(0, columnHeld(j), held[j]));
      total = acrossLanes<Max>(total);
      if (laneId() == 0)
        sums[warp] = total;
      consumerSync();
      scalars[Slot] = then(0, ofWarps(0));
    } else {
      constexpr int batch = Rows == 1 ? 1 : 4; // rows side by side
#pragma unroll 1
      for (int top = 0; top < numRows; top += batch) {
        float totals[batch];
#pragma unroll
        for (int j = 0; j < batch; ++j)
          totals[j] = noneOf<Max>();
        const auto wanted = [&](int j) { return top + j < numRows; };
#pragma unroll 1
        for (int c = warp * part + laneId() * 8; c < min(Columns, (warp + 1) * part); c += 256) {
          Words4 words[batch] = {};
          if (Columns == M::k && !resident) {
            const auto rowOf = [&](int j) { return top + j; };
            const auto column = [&](int) { return c; };
            peekAll(source, words, wanted, rowOf, column);
            settleAll(source, words, wanted, rowOf, column);
          }
#pragma unroll
          for (int j = 0; j < batch; ++j)
            if (wanted(j)) {
              const int inPart = c - warp * part;
              if (Columns == M::k && resident)
                words[j] = at(inPart / 32, top + j, inPart % 32 / 8);
              takeColumns<Max, Columns>(totals[j], c, terms(top + j, c, keepBelow<M::k>(words[j], c)));
            }
        }
#pragma unroll
        for (int d = 16; d; d >>= 1) // as acrossLanes does
#pragma unroll
          for (int j = 0; j < batch; ++j)
            totals[j] = together<Max>(totals[j], __shfl_xor_sync(~0u, totals[j], d));
#pragma unroll
        for (int j = 0; j < batch; ++j)
          if (laneId() == j && wanted(j))
            sums[(top + j) * kConsumerWarps + warp] = totals[j];
      }
      consumerSync();
      if (threadIdx.x < numRows)
        pass.scalars[Slot][threadIdx.x] = then(threadIdx.x, ofWarps(threadIdx.x));
      consumerSync();
      if (single)
        scalars[Slot] = pass.scalars[Slot][0];
    }
  }
  __device__ __forceinline__ float scalarOf(int slot, int row) const {
    return single ? scalars[slot] : pass.scalars[slot][row];
  }
};

template <class M, int Rows, class C, class Source, class AsideOf, class Early>
__device__ __forceinline__ Operand<M, Rows, C, Source, AsideOf, Early>
operandOf(C consumer, PassShared &pass, Source source, AsideOf aside, Early early) {
  return {consumer, pass, source, aside, early};
}

/// The sums of one row tile, without an index that would send all of them to memory.
template <int Tiles> __device__ __forceinline__ void pick(float (&out)[2][4], const float (&of)[Tiles][2][4], int tile) {
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    out[i / 4][i % 4] = of[0][i / 4][i % 4];
#pragma unroll
    for (int t = 1; t < Tiles; ++t)
      out[i / 4][i % 4] = tile == t ? of[t][i / 4][i % 4] : out[i / 4][i % 4];
  }
}

/// y = a * M^T for all rows of the pass.
///   Rows     at most so many does this variant handle: 1, 16 or 64. That for one row is short:
///            code that runs once in a layer comes from far away in the instruction memory
///   Reduced  begin() and reductions came before
///   early(row, pair)   loads what the epilogue needs beside the products; of one row tile
///            before them, so that it comes meanwhile
///   epilogue(tile, row, pair, y0, y1, what early returned)   one thread holds packed rows 2*pair and
///            2*pair+1 of the matrix. The four lanes that hold a row's pairs 4i to 4i+3 call it together
template <bool Reduced, class M, int Rows, class C, class Source, class AsideOf, class Early, class Finish, class Epilogue>
__device__ __forceinline__ void streamProduct(Operand<M, Rows, C, Source, AsideOf, Early> &operand, Finish finish,
                                              Epilogue epilogue) {
  constexpr int Tiles = tilesOf(Rows);
  constexpr bool single = Operand<M, Rows, C, Source, AsideOf, Early>::single;
  static_assert(M::group <= kMostTiles);
  if (!operand.active)
    return;
  C &consumer = operand.consumer;
  const int numRows = operand.numRows, rowsLog = operand.rowsLog, itemRow = operand.itemRow;
  const int warp = warpId(), lane = laneId(), rowInTile = lane >> 2;
  if constexpr (!Reduced)
    operand.template begin<false>();
  if constexpr (single)
    operand.finishHeld(finish);
  bool staged = operand.resident && Reduced, finished = false; // all blocks, of several rows
  // A warp's sums, as the `n`th tile of these that are added together.
  const auto handIn = [&](float *sums, const float (&even)[4], const float (&odd)[4], int n) {
    float *at = sums + warp * (kMostTiles * kTileRows * 8) + (n << rowsLog) * 8 + rowInTile * 8 + (lane & 3) * 2;
    if (rowsLog == 4 || rowInTile >> rowsLog == 0)
      *reinterpret_cast<Float2 *>(at) = {__fadd_rn(even[0], odd[0]), __fadd_rn(even[1], odd[1])};
    if (rowsLog == 4)
      *reinterpret_cast<Float2 *>(at + 64) = {__fadd_rn(even[2], odd[2]), __fadd_rn(even[3], odd[3])};
  };
  // Adds them up, a pair of columns to a thread. Two buffers alternate, so one barrier is enough.
  const auto sumUp = [&](const float *sums) {
    const Float2 *at = reinterpret_cast<const Float2 *>(sums) + threadIdx.x;
    Float2 y = at[0];
#pragma unroll
    for (int w = 1; w < kConsumerWarps; ++w) {
      const Float2 s = at[w * (kMostTiles * kTileRows * 4)];
      y.x = __fadd_rn(y.x, s.x);
      y.y = __fadd_rn(y.y, s.y);
    }
    return y;
  };
  const bool below = rowInTile < numRows, above = 8 + rowInTile < numRows; // rows of the first tile
#pragma unroll 1
  for (int i = 0; operand.groups.at(i) >= 0; i += operand.atOnce) {
    float *sums = consumer.nextScratch();
#pragma unroll 1
    for (int group = i; group < i + operand.atOnce && operand.groups.at(group) >= 0; ++group) {
      const bool last = operand.groups.at(group + 1) < 0;
      float acc[M::group][Tiles][2][4] = {};
      // `first`: of the blocks in shared memory.
      const auto takenChunks = [&](int first, int count) {
#pragma unroll 1
        for (int block = 0; block < count; block += operand.blocksTaken) {
          const Words4 *activations = &operand.at(block, rowInTile, lane & 3);
#pragma unroll
          for (int b = 0; b < operand.blocksTaken; ++b) {
            Words4 low = {0, 0, 0, 0}, high = {0, 0, 0, 0};
            if (below)
              low = loadShared4(activations, b * numRows * 64);
            if (Rows > 1 && above)
              high = loadShared4(activations, b * numRows * 64 + 512);
#pragma unroll
            for (int n = 0; n < M::group; ++n) {
              const Words4 &both = operand.taken[b][n];
              if constexpr (Rows == 1) {
                mma(acc[n][0][0], low.x, low.y, low.z, low.w, both.x, both.y);
                mma(acc[n][0][1], low.x, low.y, low.z, low.w, both.z, both.w);
              } else {
                mma(acc[n][0][0], low.x, high.x, low.z, high.z, both.x, both.y);
                mma(acc[n][0][1], low.y, high.y, low.w, high.w, both.z, both.w);
              }
            }
          }
          if (!last || first + block + operand.blocksTaken < M::blocks)
            operand.take();
        }
      };
      const Words4 *weights = nullptr; // of a chunk, which may go on in the next window
#pragma unroll 1
      for (int first = 0; first < M::blocks; first += operand.window) {
        const int count = min(operand.window, M::blocks - first);
        if constexpr (!single) {
          if (!staged)
            operand.stage(first, count);
          if (changes<Finish> && !finished)
            operand.finishStaged(first, count, finish);
          staged = finished = operand.resident;
        }
        if constexpr (Tiles == 1) {
          takenChunks(first, count);
        } else {
#pragma unroll 1
          for (int block = 0; block < count; ++block) {
            const int inChunk = (first + block) % M::chunkBlocks;
            if (inChunk == 0)
              weights = operand.chunk();
            Words4 w[M::group];
#pragma unroll
            for (int n = 0; n < M::group; ++n)
              w[n] = weights[(inChunk * M::group + n) * 32];
#pragma unroll
            for (int t = 0; t < Tiles; ++t) {
              if (t * kTileRows >= numRows)
                break;
              const int row = t * kTileRows + rowInTile;
              const Words4 a[2] = {operand.fragment(block, row, row < numRows),
                                   operand.fragment(block, row + 8, row + 8 < numRows)};
#pragma unroll
              for (int n = 0; n < M::group; ++n) {
                mma(acc[n][t][0], a[0].x, a[1].x, a[0].z, a[1].z, w[n].x, w[n].y);
                mma(acc[n][t][1], a[0].y, a[1].y, a[0].w, a[1].w, w[n].z, w[n].w);
              }
            }
            if (inChunk == M::chunkBlocks - 1)
              consumer.release();
          }
        }
      }
      if constexpr (Tiles == 1) {
#pragma unroll
        for (int n = 0; n < M::group; ++n) {
          if constexpr (Rows == 1) // the second step's sums stand in the other half
#pragma unroll
            for (int e = 0; e < 2; ++e)
              acc[n][0][1][e] = acc[n][0][1][2 + e];
          handIn(sums, acc[n][0][0], acc[n][0][1], (group - i) * M::group + n);
        }
      } else {
#pragma unroll 1
        for (int t = 0; t * kTileRows < numRows; ++t) {
          if (t > 0)
            sums = consumer.nextScratch();
#pragma unroll
          for (int n = 0; n < M::group; ++n) {
            float tile[2][4];
            pick(tile, acc[n], t);
            handIn(sums, tile[0], tile[1], n);
          }
          consumerSync();
          if (const int row = t * kTileRows + itemRow; operand.hasItem(i, row)) {
            const Float2 y = sumUp(sums);
            epilogue(t, row, operand.pairOf(i), y.x, y.y, operand.early(row, operand.pairOf(i)));
          }
        }
      }
    }
    if constexpr (Tiles == 1) {
      consumerSync();
      if (operand.hasItem(i, itemRow)) {
        const Float2 y = sumUp(sums);
        epilogue(0, itemRow, operand.pairOf(i), y.x, y.y, operand.beside);
      }
      operand.lookAhead(i + operand.atOnce);
    }
  }
  consumer.keep();
}

/// Packs one matrix of one layer: `rowOf(packedRow)` is the weight row to take,
/// or null for padding. All threads of the grid.
template <class M, class RowOf> __device__ void packMatrix(char *target, RowOf rowOf) {
  const long long words = matrixBytes<M>() / 16;
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < words;
       i += (long long)gridDim.x * blockDim.x) {
    const int lane = (int)(i & 31);
    long long rest = i >> 5;
    const int tile = (int)(rest % M::group);
    rest /= M::group;
    const int block = (int)(rest % M::chunkBlocks);
    rest /= M::chunkBlocks;
    const int warp = (int)(rest % kConsumerWarps);
    rest /= kConsumerWarps;
    const int chunk = (int)(rest % chunksPerGroup<M>());
    const int g = (int)(rest / chunksPerGroup<M>());
    const u16 *row = rowOf((g * M::group + tile) * 8 + (lane >> 2));
    const int column = (warp * M::blocks + chunk * M::chunkBlocks + block) * 32 + (lane & 3) * 8;
    u32 out[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const u32 low = row && column + 2 * j < M::k ? row[column + 2 * j] : 0;
      const u32 high = row && column + 2 * j + 1 < M::k ? row[column + 2 * j + 1] : 0;
      out[j] = low | high << 16;
    }
    reinterpret_cast<Words4 *>(target)[i] = {out[0], out[2], out[1], out[3]};
  }
}

/// Copies a weight vector behind the matrices. All threads of the grid.
template <int Length> __device__ void packVector(char *target, const u16 *weights) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < Length; i += gridDim.x * blockDim.x)
    reinterpret_cast<u16 *>(target)[i] = weights[i];
}

} // namespace megalith::device
