//===- Stream.cuh - matrices in the stream, and who reads them ------------===//
//
// A matrix (one or more weight matrices with the same input) is a struct of
// constants that the plan prints:
//
//   k, kPadded     columns, and columns padded to a multiple of 256
//   blocks         kPadded / 256: blocks of 32 columns that one warp owns
//   chunkBlocks    blocks of a warp in one chunk of the stream
//   group          8-row tiles in one chunk
//   groups         groups of tiles, dealt to the CTAs round robin
//   firstCta, ctas the CTAs that have groups: the first, and how many
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
// Activations are the operand A. Of up to eight rows one quad of registers serves both steps:
// its rows 0 to 7 carry the columns of the first, its rows 8 to 15 those of the second; of
// each step's sums one half counts.
//===----------------------------------------------------------------------===//
#pragma once

namespace megalith::device {

template <class M> __device__ constexpr int chunkBytes() { return (int)shape::chunkBytes(M::group, M::chunkBlocks); }
template <class M> __device__ constexpr int chunksPerGroup() { return M::blocks / M::chunkBlocks; }
template <class M> __device__ constexpr long long matrixBytes() { return shape::matrixBytes(M::groups, M::blocks, M::group); }

/// The groups of tiles of this CTA; the runtime starts as many CTAs as were planned. Every matrix is dealt from the first
/// CTAs on, so that of each the same ones have a group less, the last ones: attention is dealt from the last one on.
template <class M> struct CtaGroups {
  const int number = (int)blockIdx.x - M::firstCta; ///< of the CTA, among those that may have some
  const int count = M::groups / M::ctas + (number < M::groups % M::ctas); ///< if it has some
  __device__ __forceinline__ bool some() const { return (M::firstCta == 0 || number >= 0) && count > 0; }
  __device__ __forceinline__ bool has(int i) const { return i < count; }
  /// The i-th, from 0 on.
  __device__ __forceinline__ int at(int i) const {
    const int g = number + i * M::ctas;
    return M::descending ? M::groups - 1 - g : g;
  }
};

/// What the producer does at one point of its order: a matrix, keys and values, or a vector that
/// consumers will read. In layers the second one lies `layerBytes` behind the first.
struct StreamStep {
  long long offset, layerBytes; ///< in LaunchParams::stream
  int chunkBytes;               ///< 0: keys and values; of a vector all of it
  int chunks;                   ///< of a group; 0: a vector
  int groups, descending;
  int firstCta;                 ///< of those that have groups
  int unitParts, firstUnitCta; ///< of passes of more than one row tile, see WideProduct.cuh
};
template <class M> __device__ constexpr StreamStep matrixStep(bool inLayers) {
  StreamStep step = {M::offset, inLayers ? M::layerBytes : 0, chunkBytes<M>(), chunksPerGroup<M>(), M::groups,
                     M::descending, M::firstCta};
  if constexpr (requires { M::unitParts; }) {
    step.unitParts = M::unitParts;
    step.firstUnitCta = M::firstUnitCta;
  }
  return step;
}
__device__ constexpr StreamStep vectorStep(long long offset, long long layerBytes, int bytes) {
  return {offset, layerBytes, bytes};
}
__device__ constexpr StreamStep kvStep() { return {}; }

/// What streams keys and values of a layer, of a model that has none.
struct NoKv {
  template <class P> __device__ __forceinline__ bool operator()(P &, int) const { return true; }
};

/// One thread, before the first pass: with these steps passes of few rows begin.
template <int Count>
__device__ __forceinline__ void startStream(RingShared &shared, const StreamStep (&steps)[Count], const char *stream) {
  shared.begin.steps = steps;
  shared.begin.count = Count;
  shared.begin.stream = stream;
}

/// The first of this CTA's groups, or none of them.
__device__ __forceinline__ int firstGroup(const StreamStep &step) {
  const int number = (int)blockIdx.x - step.firstCta;
  return number < 0 ? step.groups : number;
}

/// Chunks that a CTA asks for while it waits for a pass's plan, and has no stage for: the memory would rest then. More of
/// them would come no sooner than the ring asks for them, and delay the words that control waits for.
constexpr int kChunksAhead = 8;

__device__ __noinline__ void bringAhead(const StreamBegin &begin, int skip) {
  assumeShared(&begin);
  int left = kChunksAhead;
#pragma unroll 1
  for (int i = 0; i < begin.count && left > 0; ++i) {
    const StreamStep &step = begin.steps[i];
#pragma unroll 1
    for (int g = firstGroup(step); step.chunks > 0 && g < step.groups && left > 0; g += gridDim.x - step.firstCta) {
      const long long group = step.descending ? step.groups - 1 - g : g;
      const int from = min(skip, step.chunks), count = min(left, step.chunks - from);
      if (count > 0)
        bringNear(begin.stream + step.offset + (group * step.chunks + from) * step.chunkBytes, count * step.chunkBytes);
      skip -= from;
      left -= count;
    }
  }
}

/// Producer: a segment's steps, of which [first, end) are done `layers` times. One loop for all
/// matrices, and its state in registers: an edge is as long as it takes to ask for the next chunks. False when the kernel
/// leaves.
template <class P, class Kv>
__device__ __forceinline__ bool streamSteps(P &home, const StreamStep *steps, int count, int first, int end, int layers,
                                            const char *stream, Kv kv) {
  assumeLocal(&home);
  P producer = home;
  bool whole = true;
  int layer = 0;
#pragma unroll 1
  for (int i = 0; whole && i < count;) {
    const StreamStep &step = steps[i];
    const char *base = stream + step.offset + layer * step.layerBytes;
    if (step.chunkBytes == 0) {
      whole = kv(producer, layer);
    } else if (step.chunks == 0) {
      producer.announce(base, step.chunkBytes);
    } else {
      const int bytes = step.chunkBytes, chunks = step.chunks, groups = step.groups, ctas = gridDim.x - step.firstCta;
#pragma unroll 1
      for (int g = firstGroup(step); whole && g < groups; g += ctas) {
        const char *chunk = base + (long long)(step.descending ? groups - 1 - g : g) * (chunks * bytes);
#pragma unroll 1
        for (int c = 0; whole && c < chunks; ++c, chunk += bytes)
          whole = producer.push(chunk, bytes);
      }
    }
    if (++i == end && ++layer < layers)
      i = first;
    else if (i == end)
      layer = 0;
  }
  home = producer;
  return whole;
}

static_assert(sumFloats(1) / 2 <= 32, "of one row, warp 0 has all pairs of columns: see publishBest");

/// Where a warp stands in the stream, between two phases. In shared memory: what a thread
/// keeps in its own is far away when the L1 cache is small.
struct StreamPlace {
  int stage;
  u32 state;
  int buffer; ///< of the cross-warp sums: which of the two comes next
  int window; ///< the next window of activations; of odd phases, behind all those of even ones (Windows.cuh)
  // Of products of many rows (WideProduct.cuh): their sums leave no registers for what others need behind them.
  int layer;
  int unit, part;
  u32 use;
  char *sums;  ///< where those of an eighth go
};

/// The layer that a pass is in. Of more than one row it stands in shared memory `S`, see StreamPlace.
template <int Rows, class S> struct Layer {
  int number = 0;
  __device__ __forceinline__ Layer() { set(0); }
  __device__ __forceinline__ operator int() const { return Rows > 1 ? place().layer : number; }
  __device__ __forceinline__ void operator++() { set(*this + 1); }

private:
  __device__ __forceinline__ static StreamPlace &place() { return reinterpret_cast<S *>(dynamicShared())->places[threadAgain() / 32]; }
  __device__ __forceinline__ void set(int layer) {
    if constexpr (Rows > 1) {
      __syncwarp();
      if (laneId() == 0)
        place().layer = layer;
      __syncwarp();
    } else {
      number = layer;
    }
  }
};

/// A consumer warp's side of the stream; during a phase in registers.
///   ScratchBytes   shared memory for cross-warp sums and the activations of a product; in a pass
///                  of several rows lent stages lie behind it
///   WideRows       rows that a product of more than one row tile takes at a time (WideProduct.cuh)
template <class R, int ScratchBytes, int WideRows = 0> struct Consumer {
  using Ring = R;
  static constexpr int wideRows = WideRows;
  R ring;
  float *scratch;   ///< shared: two buffers of sums, and operands; attention
  StreamPlace *home;
  int buffer;

  __device__ __forceinline__ Consumer(char *stages, RingShared *sync, float *scratch, StreamPlace *home)
      : ring{stages, sync, home->stage, home->state}, scratch(scratch), home(home), buffer(home->buffer) {}
  /// Bytes for the activations of a product, of all warps together.
  __device__ static constexpr int operandBytes(int rows) {
    return ScratchBytes + (rows > 1 ? R::lent * R::stageBytes : 0) - sumBytes(rows);
  }
  /// Of a pass of more than one row tile: for all that a product of so many rows needs, or attention in wide tiles.
  __device__ static constexpr int wideBytes(int rows = kMaxRows) { return ScratchBytes + (rows > R::many ? R::wideLent : R::lent) * R::stageBytes; }
  /// Those of this warp.
  template <int Rows> __device__ __forceinline__ char *operands() const {
    return reinterpret_cast<char *>(scratch + 2 * kConsumerWarps * sumFloats(Rows)) +
           warpId() * (operandBytes(Rows) / kConsumerWarps);
  }
  /// At the end of a phase; of one that took sums, their buffer, too.
  template <bool Sums = false> __device__ __forceinline__ void keep() const {
    if (laneId() == 0) {
      home->stage = ring.stage;
      home->state = ring.state;
      if (Sums)
        home->buffer = buffer;
    }
    __syncwarp();
  }

  /// Before the first phase of a pass.
  __device__ __forceinline__ void beginPass(int numRows, int lentBefore) {
    ring.beginPass(lentBefore);
    if (numRows > 1)
      ring.lend(R::lent); // of many rows more: dropAhead
    __syncwarp(); // lanes may still read where the warp stood
    keep();
  }

  /// Of the two buffers the one that was not used last: a barrier of the consumers stands
  /// between two uses of one.
  template <int Rows> __device__ __forceinline__ float *nextSums() {
    float *sums = scratch + buffer * kConsumerWarps * sumFloats(Rows);
    buffer ^= 1;
    return sums;
  }

  /// Waits for the next chunk; its bytes are valid until release().
  __device__ __forceinline__ const char *acquire() {
    if (!barrierTest(&ring.shared->full[ring.stage], ring.parity(ring.stage)))
      awaitFull(*ring.shared, ring.stage, ring.parity(ring.stage));
    const char *chunk = ring.data + ring.stage * R::stageBytes;
    ring.advance();
    return chunk;
  }
  /// The warp has read the last `Count` chunks: its arrival releases what its lanes did before. No
  /// fence: that would wait for all that the lanes have asked for elsewhere. The producer has one.
  template <int Count = 1> __device__ __forceinline__ void release() {
    __syncwarp();
    if (laneId() == 0)
#pragma unroll
      for (int back = Count; back > 0; --back)
        barrierArrive(&ring.shared->empty[ring.before(back)]);
  }
  /// The chunk that came `count` chunks ago.
  __device__ __forceinline__ const char *earlier(int count) const { return ring.data + ring.before(count) * R::stageBytes; }
  /// Releases that one alone.
  __device__ __forceinline__ void releaseEarlier(int count) {
    __syncwarp();
    if (laneId() == 0)
      barrierArrive(&ring.shared->empty[ring.before(count)]);
  }
};

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
