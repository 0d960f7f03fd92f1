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
// its products in ascending order in one chain of mma steps; the eight sums are
// added in ascending order of w. Neither the number of rows nor the plan changes it.
//
// Packed layout, in the order of consumption:
//   [group][chunk][warp 8][block chunkBlocks][tile group][row 8][32 columns] bf16
// so that a lane's 16 bytes are 8 consecutive columns of weight row lane/4. The
// mma step sees columns {8t, 8t+1, 8t+2, 8t+3} of lane t as its k and the next
// four in a second step; activations are loaded in the same order.
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

/// What a consumer thread carries through a pass.
template <class R> struct Consumer {
  R ring;
  float *scratch;   ///< shared: two buffers of cross-warp sums; attention
  int buffer = 0;   ///< which of the two comes next

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
    __threadfence_block();
    __syncwarp();
    if (laneId() == 0)
      barrierArrive(&ring.shared->empty[ring.stage]);
    ring.advance();
  }
};

/// Blocks of the operand that a warp keeps in registers: a lane has 168, and with
/// four row tiles the sums take 64 of them.
__device__ constexpr int operandBlocks(int blocks, int tiles) {
#if __CUDA_ARCH__ >= 900
  const int most = tiles == 1 ? 8 : 1;
#else
  const int most = tiles == 1 ? 4 : 1;
#endif
  return blocks < most ? blocks : most;
}

/// 32-bit floats of one of the two cross-warp buffers: 8 warps x 4 tiles x 16 rows x 8.
constexpr int kSumFloats = kConsumerWarps * 4 * kTileRows * 8;

/// y = a * M^T for all rows of the pass.
///   Tiles    row tiles of 16 that this variant handles (1 or 4)
///   operand(row, column) -> Words4   8 bf16 of the activation, columns column..column+7;
///            called for rows below numRows and columns below k
///   epilogue(rowTile, row, pair, y0, y1)   one thread holds packed rows 2*pair and
///            2*pair+1 of the matrix; rowTile is a compile-time constant after unrolling
template <class M, int Tiles, class C, class Operand, class Epilogue>
__device__ __forceinline__ void streamProduct(C &kept, int numRows, Operand operand, Epilogue epilogue) {
  C consumer = kept; // in registers while the product lasts
  constexpr int window = operandBlocks(M::blocks, Tiles);
  constexpr bool resident = M::blocks <= window;
  const int warp = warpId(), lane = laneId();
  const int rowInTile = lane >> 2;
  Words4 a[window][Tiles][2];

  const auto load = [&](int firstBlock) {
#pragma unroll
    for (int b = 0; b < window; ++b) {
      const int column = (warp * M::blocks + firstBlock + b) * 32 + (lane & 3) * 8;
#pragma unroll
      for (int t = 0; t < Tiles; ++t)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const int row = t * kTileRows + h * 8 + rowInTile;
          a[b][t][h] = {0, 0, 0, 0};
          if (row < numRows && column < M::k && (resident || firstBlock + b < M::blocks))
            a[b][t][h] = operand(row, column);
        }
    }
  };

  if constexpr (resident)
    load(0);
#pragma unroll 1
  for (int i = 0, g; (g = groupOfCta<M>(i)) >= 0; ++i) {
    float acc[M::group][Tiles][4];
#pragma unroll
    for (int n = 0; n < M::group; ++n)
#pragma unroll
      for (int t = 0; t < Tiles; ++t)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          acc[n][t][e] = 0.0f;

    const Words4 *weights = nullptr;
#pragma unroll 1
    for (int first = 0; first < M::blocks; first += window) {
      if constexpr (!resident)
        load(first);
#pragma unroll
      for (int b = 0; b < window; ++b) {
        const int block = first + b;
        if (!resident && block >= M::blocks)
          break;
        if (block % M::chunkBlocks == 0)
          weights = reinterpret_cast<const Words4 *>(consumer.acquire()) +
                    warp * (M::chunkBlocks * M::group * 32) + lane;
        Words4 w[M::group];
#pragma unroll
        for (int n = 0; n < M::group; ++n)
          w[n] = weights[((block % M::chunkBlocks) * M::group + n) * 32];
        if (block % M::chunkBlocks == M::chunkBlocks - 1)
          consumer.release();
#pragma unroll
        for (int t = 0; t < Tiles; ++t) {
          if (Tiles > 1 && t * kTileRows >= numRows)
            break;
          const Words4 low = a[b][t][0], high = a[b][t][1];
#pragma unroll
          for (int n = 0; n < M::group; ++n) {
            mma(acc[n][t], low.x, high.x, low.y, high.y, w[n].x, w[n].y);
            mma(acc[n][t], low.z, high.z, low.w, high.w, w[n].z, w[n].w);
          }
        }
      }
    }

    // Add the eight warps' sums, one row tile at a time, and hand each pair of
    // columns to a thread. Two buffers alternate, so one barrier is enough.
#pragma unroll
    for (int t = 0; t < Tiles; ++t) {
      if (Tiles > 1 && t * kTileRows >= numRows)
        break;
      float *sums = consumer.scratch + consumer.buffer * kSumFloats;
      consumer.buffer ^= 1;
#pragma unroll
      for (int n = 0; n < M::group; ++n)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          float *at = sums + ((warp * M::group + n) * kTileRows + h * 8 + rowInTile) * 8 + (lane & 3) * 2;
          *reinterpret_cast<Float2 *>(at) = {acc[n][t][2 * h], acc[n][t][2 * h + 1]};
        }
      consumerSync();
      const int item = threadIdx.x; // (tile, row, pair); a thread keeps its row in every group
      const int row = t * kTileRows + ((item >> 2) & 15);
      if (item < M::group * 64 && row < numRows) {
        const Float2 *at = reinterpret_cast<const Float2 *>(sums) + item;
        Float2 y = at[0];
#pragma unroll
        for (int w = 1; w < kConsumerWarps; ++w) {
          const Float2 s = at[w * (M::group * 64)];
          y.x = __fadd_rn(y.x, s.x);
          y.y = __fadd_rn(y.y, s.y);
        }
        epilogue(t, row, (g * M::group + (item >> 6)) * 4 + (item & 3), y.x, y.y);
      }
    }
  }
  kept = consumer;
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
    reinterpret_cast<Words4 *>(target)[i] = {out[0], out[1], out[2], out[3]};
  }
}

} // namespace megalith::device
