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
// pairs of columns; the two are added, and the eight sums in ascending order of w. Neither the number of rows nor the plan changes it.
//
// Packed layout, in the order of consumption:
//   [group][chunk][warp 8][block chunkBlocks][tile group][row 8][32 columns] bf16
// so that a lane's 16 bytes are 8 consecutive columns of weight row lane/4, in the order
// 0, 1, 4, 5, 2, 3, 6, 7: one mma step sees the first four of lane t as its k, another
// the rest.
//
// Activations are the operand A. For up to 8 rows one quad of registers serves both
// steps: its rows 0 to 7 carry the columns of the first, its rows 8 to 15 those of the
// second; of each step's sums one half counts.
//===----------------------------------------------------------------------===//
#pragma once

namespace megalith::device {

template <class M> __device__ constexpr int chunkBytes() { return M::group * M::chunkBlocks * 4096; }
template <class M> __device__ constexpr int chunksPerGroup() { return M::blocks / M::chunkBlocks; }
template <class M> __device__ constexpr long long matrixBytes() {
  return (long long)M::groups * M::blocks * M::group * 4096;
}

/// The i-th group of tiles of this CTA, or -1 behind the last.
template <class M> __device__ __forceinline__ int groupOfCta(int i) {
  int first = (int)blockIdx.x - M::firstCta % (int)gridDim.x;
  if (first < 0)
    first += gridDim.x;
  const int g = first + i * (int)gridDim.x;
  if (g >= M::groups)
    return -1;
  return M::descending ? M::groups - 1 - g : g;
}

/// Producer: streams this CTA's part of a matrix that begins at `base`.
template <class M, class P> __device__ bool streamWeights(P &producer, const char *base) {
  for (int i = 0, g; (g = groupOfCta<M>(i)) >= 0; ++i) {
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

/// What a consumer thread carries through a pass.
///   OperandBytes   shared memory for the activations of a product, all warps together
template <class R, int OperandBytes> struct Consumer {
  using Ring = R;
  static constexpr int operandBytes = OperandBytes;
  R ring;
  float *scratch;   ///< shared: two buffers of cross-warp sums; attention
  char *operands;   ///< shared
  int buffer = 0;   ///< which of the two comes next

  /// A copy that lives in registers, and whose loads are of shared memory.
  __device__ __forceinline__ Consumer local() const {
    return {{inShared(ring.data), inShared(ring.shared), ring.stage, ring.parity}, inShared(scratch), inShared(operands), buffer};
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
    RingShared &s = *ring.shared;
    for (u32 spin = 1; !barrierTest(&s.full[ring.stage], ring.parity); ++spin)
      if (stopSeen(s, spin))
        break; // the producer has left; the next edge returns
    return ring.data + ring.stage * R::stageBytes;
  }
  /// The warp has its fragments in registers. The fence keeps the reads before
  /// the arrival: without it the stage could be refilled under them.
  __device__ __forceinline__ void release() {
    fenceCta();
    __syncwarp();
    if (laneId() == 0)
      barrierArrive(&ring.shared->empty[ring.stage]);
    ring.advance();
  }
};

/// Where a product's operand comes from when that is not one bf16 buffer: finish() loads.
struct NoSource {
  static constexpr int columns = 0;
  __device__ __forceinline__ Words4 peek(int, int) const { return {0, 0, 0, 0}; }
  __device__ __forceinline__ void settle(int, int, Words4 &) const {}
};

/// The rows that a CTA multiplies with M. Each warp takes its own eighth of the columns:
/// it waits for no more than that, and keeps it in shared memory in the order of the mma
/// fragments, [block][row][32 columns]: all of it when the rows fit, else a window of it.
///   Source   peek(row, column) and settle(row, column, words): 8 bf16 of a buffer
///   finish(row, column, words) -> Words4   the operand there, from the source's words
/// called for rows below numRows and columns below k. A CTA without tiles of M does nothing.
template <class M, int Tiles, class C, class Source> struct Operand {
  C &home;    ///< where the consumer's place in the ring is kept between products
  C consumer;
  PassShared &pass;
  Source source;
  const int numRows = pass.numRows;
  const bool active = groupOfCta<M>(0) >= 0;
  char *const staged = consumer.operands + warpId() * (C::operandBytes / kConsumerWarps);
  /// Blocks of 32 columns that fit at a time; of one row tile whole chunks.
  static constexpr int step = Tiles == 1 ? M::chunkBlocks : 1;
  const int window = min(M::blocks, C::operandBytes / kConsumerWarps / (64 * max(numRows, 1)) / step * step);
  const bool resident = Tiles == 1 && window == M::blocks; // several row tiles seldom fit

  __device__ __forceinline__ static int columnOf(int block, int quarter) {
    return (warpId() * M::blocks + block) * 32 + quarter * 8;
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
    return words;
  }

  /// Brings blocks [first, first + count) into shared memory; several loads at once.
  template <class Finish> __device__ __forceinline__ void stage(int first, int count, Finish finish) const {
#if __CUDA_ARCH__ >= 900
    constexpr int batch = Tiles == 1 ? 4 : 2; // four row tiles leave few registers
#else
    constexpr int batch = Tiles == 1 ? 4 : 1;
#endif
    __syncwarp(); // lanes may still read what stands there
    for (int base = laneId(); base < count * numRows * 4; base += 32 * batch) {
      Words4 words[batch];
      int row[batch], column[batch];
#pragma unroll
      for (int j = 0; j < batch; ++j) {
        const int i = base + 32 * j;
        row[j] = numRows == 1 ? 0 : (i >> 2) % numRows;
        column[j] = columnOf(first + (numRows == 1 ? i >> 2 : (i >> 2) / numRows), i & 3);
        if (i >= count * numRows * 4)
          column[j] = -1;
        words[j] = {0, 0, 0, 0};
        if (column[j] >= 0 && column[j] < M::k)
          words[j] = source.peek(row[j], column[j]);
      }
#pragma unroll
      for (int j = 0; j < batch; ++j) {
        if (column[j] < 0)
          continue;
        if (column[j] < M::k) {
          source.settle(row[j], column[j], words[j]);
          words[j] = finish(row[j], column[j], words[j]);
        }
        reinterpret_cast<Words4 *>(staged)[base + 32 * j] = words[j];
      }
    }
    __syncwarp();
  }

  /// In front of reductions: the source's words, as they are.
  __device__ __forceinline__ void begin() const {
    if (active && resident)
      stage(0, M::blocks, [](int, int, Words4 words) { return words; });
  }
  /// Makes the operand of them.
  template <class Finish> __device__ __forceinline__ void finishStaged(Finish finish) const {
    for (int i = laneId(); i < M::blocks * numRows * 4; i += 32) {
      Words4 &words = reinterpret_cast<Words4 *>(staged)[i];
      const int column = columnOf((i >> 2) / numRows, i & 3);
      if (column < M::k)
        words = finish((i >> 2) % numRows, column, words);
    }
    __syncwarp();
  }

  /// Reduces columns [0, Columns) of every row into pass.scalars[slot]: sums as `parts8`, or
  /// maxima. terms(row, column, words) -> Floats<8>. All consumer warps, after begin().
  template <bool Max, int Columns, class Terms>
  __device__ __forceinline__ void reduce(int slot, Terms terms) {
    if (!active)
      return;
    constexpr int part = partColumns<Columns>();
    float *sums = consumer.nextScratch(); // [row][warp]
    const int warp = warpId();
    for (int row = 0; row < numRows; ++row) {
      const auto values = [&](int c) __attribute__((always_inline)) { // for reports of the CPU executor
        if constexpr (Columns != M::k)
          return terms(row, c, Words4{0, 0, 0, 0});
        const int inPart = c - warp * part;
        return terms(row, c, resident ? at(inPart / 32, row, inPart % 32 / 8) : load(row, c));
      };
      const float total = reducePart<Max, Columns>(warp, values);
      if (laneId() == 0)
        sums[row * kConsumerWarps + warp] = total;
    }
    consumerSync();
    if (threadIdx.x < numRows) {
      const float *mine = sums + threadIdx.x * kConsumerWarps;
      float total = mine[0];
#pragma unroll
      for (int w = 1; w < kConsumerWarps; ++w)
        total = Max ? fmaxf(total, mine[w]) : __fadd_rn(total, mine[w]);
      pass.scalars[slot][threadIdx.x] = total;
    }
    consumerSync();
  }
};

template <class M, int Tiles, class C, class Source>
__device__ __forceinline__ Operand<M, Tiles, C, Source> operandOf(C &consumer, PassShared &pass, Source source) {
  return {consumer, consumer.local(), pass, source};
}

struct Yes {
  static constexpr bool value = true;
};
struct No {
  static constexpr bool value = false;
};

/// What an epilogue needs beside the products.
template <int Words, int Values> struct Beside {
  PairWords words[Words > 0 ? Words : 1];
  Floats<2> values[Values > 0 ? Values : 1];
};
struct Nothing {};

/// y = a * M^T for all rows of the pass.
///   Tiles    row tiles of 16 that this variant handles (1 or 4)
///   Reduced  begin() and reductions came before
///   early(row, pair)   loads what the epilogue needs beside the products; before them, so
///            that it comes meanwhile
///   epilogue(rowTile, row, pair, y0, y1, what early returned)   one thread holds packed rows 2*pair and
///            2*pair+1 of the matrix; rowTile is a compile-time constant after unrolling.
///            The four lanes that hold a row's pairs 4i to 4i+3 call it together
template <bool Reduced, class M, int Tiles, class C, class Source, class Finish, class Early, class Epilogue>
__device__ __forceinline__ void streamProduct(Operand<M, Tiles, C, Source> &operand, Finish finish, Early early,
                                              Epilogue epilogue) {
  static_assert(M::group <= kMostTiles);
  if (!operand.active)
    return;
  C consumer = operand.consumer;
  const int numRows = operand.numRows;
  const int warp = warpId(), lane = laneId();
  const int rowInTile = lane >> 2;
  // What a thread is handed behind a group of tiles: (tile, row, pair); its row stays.
  const int item = threadIdx.x;
  const auto rowOf = [&](int tile) { return tile * kTileRows + ((item >> 2) & 15); };
  const auto pairOf = [&](int group) { return (group * M::group + (item >> 6)) * 4 + (item & 3); };
  decltype(early(0, 0)) beside[Tiles] = {};
  const auto lookAhead = [&](int i) { // with more row tiles there are no registers for it
    if (const int g = groupOfCta<M>(i); Tiles == 1 && g >= 0 && item < M::group * 64 && rowOf(0) < numRows)
      beside[0] = early(rowOf(0), pairOf(g));
  };
  lookAhead(0);
  if (operand.resident) {
    if constexpr (Reduced)
      operand.finishStaged(finish);
    else
      operand.stage(0, M::blocks, finish);
  }
  const bool below = rowInTile < numRows, above = 8 + rowInTile < numRows; // rows of the first tile
  const auto multiply = [&](float (&acc)[M::group][Tiles][2][4], const Words4 (&w)[M::group], int block) {
#pragma unroll
    for (int t = 0; t < Tiles; ++t) {
      if (Tiles > 1 && t * kTileRows >= numRows)
        break;
      const int row = t * kTileRows + rowInTile;
      const Words4 a[2] = {operand.fragment(block, row, row < numRows), operand.fragment(block, row + 8, row + 8 < numRows)};
#pragma unroll
      for (int n = 0; n < M::group; ++n) {
        mma(acc[n][t][0], a[0].x, a[1].x, a[0].z, a[1].z, w[n].x, w[n].y);
        mma(acc[n][t][1], a[0].y, a[1].y, a[0].w, a[1].w, w[n].z, w[n].w);
      }
    }
  };
#pragma unroll 1
  for (int i = 0, g; (g = groupOfCta<M>(i)) >= 0; ++i) {
    float acc[M::group][Tiles][2][4] = {};

    const auto chunk = [&] {
      return reinterpret_cast<const Words4 *>(consumer.acquire()) + warp * (M::chunkBlocks * M::group * 32) + lane;
    };
    // All of a chunk's loads are under way together: the release stands behind them.
    const auto wholeChunks = [&](auto few, int count) {
#pragma unroll 1
      for (int block = 0; block < count; block += M::chunkBlocks) {
        const Words4 *weights = chunk(), *activations = &operand.at(block, rowInTile, lane & 3);
        Words4 w[M::chunkBlocks][M::group], a[M::chunkBlocks][2] = {};
#pragma unroll
        for (int b = 0; b < M::chunkBlocks; ++b) {
#pragma unroll
          for (int n = 0; n < M::group; ++n)
            w[b][n] = loadShared4(weights, (b * M::group + n) * 512);
          if (below)
            a[b][0] = loadShared4(activations, b * numRows * 64);
          if (!few.value && above)
            a[b][1] = loadShared4(activations, b * numRows * 64 + 512);
        }
        consumer.release();
#pragma unroll
        for (int b = 0; b < M::chunkBlocks; ++b)
#pragma unroll
          for (int n = 0; n < M::group; ++n) {
            const Words4 &low = a[b][0], &high = a[b][1], &both = w[b][n];
            if (few.value) {
              mma(acc[n][0][0], low.x, low.y, low.z, low.w, both.x, both.y);
              mma(acc[n][0][1], low.x, low.y, low.z, low.w, both.z, both.w);
            } else {
              mma(acc[n][0][0], low.x, high.x, low.z, high.z, both.x, both.y);
              mma(acc[n][0][1], low.y, high.y, low.w, high.w, both.z, both.w);
            }
          }
      }
    };
    const Words4 *weights = nullptr; // of a chunk, which may go on in the next window
#pragma unroll 1
    for (int first = 0; first < M::blocks; first += operand.window) {
      const int count = min(operand.window, M::blocks - first);
      if (!operand.resident)
        operand.stage(first, count, finish);
      if constexpr (Tiles == 1) {
        if (numRows <= 8)
          wholeChunks(Yes(), count);
        else
          wholeChunks(No(), count);
      } else {
#pragma unroll 1
        for (int block = 0; block < count; ++block) {
          const int inChunk = (first + block) % M::chunkBlocks;
          if (inChunk == 0)
            weights = chunk();
          Words4 w[M::group];
#pragma unroll
          for (int n = 0; n < M::group; ++n)
            w[n] = weights[(inChunk * M::group + n) * 32];
          multiply(acc, w, block);
          if (inChunk == M::chunkBlocks - 1)
            consumer.release();
        }
      }
    }
    if (Tiles == 1 && numRows <= 8) // the second step's sums stand in the other half
#pragma unroll
      for (int n = 0; n < M::group; ++n)
#pragma unroll
        for (int e = 0; e < 2; ++e)
          acc[n][0][1][e] = acc[n][0][1][2 + e];

    // Add the eight warps' sums, one row tile at a time, and hand each pair of
    // columns to a thread. Two buffers alternate, so one barrier is enough.
#pragma unroll
    for (int t = 0; t < Tiles; ++t) {
      if (Tiles > 1 && t * kTileRows >= numRows)
        break;
      float *sums = consumer.nextScratch();
#pragma unroll
      for (int n = 0; n < M::group; ++n)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          float *at = sums + ((warp * M::group + n) * kTileRows + h * 8 + rowInTile) * 8 + (lane & 3) * 2;
          const auto &[even, odd] = acc[n][t];
          *reinterpret_cast<Float2 *>(at) = {__fadd_rn(even[2 * h], odd[2 * h]), __fadd_rn(even[2 * h + 1], odd[2 * h + 1])};
        }
      consumerSync();
      const int row = rowOf(t);
      if (item < M::group * 64 && row < numRows) {
        const Float2 *at = reinterpret_cast<const Float2 *>(sums) + item;
        Float2 y = at[0];
#pragma unroll
        for (int w = 1; w < kConsumerWarps; ++w) {
          const Float2 s = at[w * (M::group * 64)];
          y.x = __fadd_rn(y.x, s.x);
          y.y = __fadd_rn(y.y, s.y);
        }
        if (Tiles > 1)
          beside[t] = early(row, pairOf(g));
        epilogue(t, row, pairOf(g), y.x, y.y, beside[t]);
      }
    }
    lookAhead(i + 1);
  }
  operand.home = consumer;
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

} // namespace megalith::device
