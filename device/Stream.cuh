//===- Stream.cuh - how warps read the stream -----------------------------===//
//
// The producer goes through the steps of a segment (Steps.cuh). Consumers take the chunks out of the
// ring (Ring.cuh).
//===----------------------------------------------------------------------===//
#pragma once

#include "megalith/Ring.cuh"

namespace megalith::device {

/// Streams the keys and values of a layer, for a model that has none.
struct NoKv {
  template <class P> __device__ __forceinline__ bool operator()(P &, int) const { return true; }
};

/// Notes the steps with which passes of at most 16 rows begin. One thread calls it, before the first pass.
template <int Count>
__device__ __forceinline__ void startStream(RingShared &shared, const StreamStep (&steps)[Count], const char *stream,
                                            int model = 0) {
  shared.begin[model] = {steps, Count, stream};
}

/// Producer: does a segment's steps. Steps [first, end) are done once for each layer from `layer` on. One loop serves
/// all matrices, and its state is in registers, because an edge takes as long as it takes to ask for the next chunks.
/// False when the kernel ends.
template <class P, class Kv>
__device__ __forceinline__ bool streamSteps(P &home, const StreamStep *steps, int count, int first, int end, int layer,
                                            int layers, const char *stream, Kv kv) {
  assumeLocal(&home);
  P producer = home;
  bool whole = true;
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

/// The layer that a pass is in. In a pass of more than one row its number stands in shared memory `S`: see StreamPlace.
template <int Rows, class S> struct Layer {
  int number = 0;
  __device__ __forceinline__ explicit Layer(int first = 0) { set(first); }
  __device__ __forceinline__ operator int() const { return Rows > kOneRow ? place().layer : number; }
  __device__ __forceinline__ void operator++() { set(*this + 1); }

private:
  __device__ __forceinline__ static StreamPlace &place() {
    return reinterpret_cast<S *>(dynamicShared())->places[threadAgain() / 32];
  }
  __device__ __forceinline__ void set(int layer) {
    if constexpr (Rows > kOneRow) {
      __syncwarp();
      if (laneId() == 0)
        place().layer = layer;
      __syncwarp();
    } else {
      number = layer;
    }
  }
};

/// A consumer warp's side of the stream. During a phase it is in registers.
///   ScratchBytes   shared memory for cross-warp sums and the activations of a product. In a pass of more than one row
///                  the lent stages lie after it
///   WideRows       rows that a product takes at a time in a pass of many rows (WideProduct.cuh)
template <class R, int ScratchBytes, int WideRows = 0> struct Consumer {
  using Ring = R;
  static constexpr int wideRows = WideRows;
  R ring;
  float *scratch; ///< in shared memory: two buffers of sums, and operands; or what attention needs
  StreamPlace *home;
  int buffer;

  __device__ __forceinline__ Consumer(char *stages, RingShared *sync, float *scratch, StreamPlace *home)
      : ring{stages, sync, home->stage, home->state}, scratch(scratch), home(home), buffer(home->buffer) {}
  /// Bytes for the activations of a product, for all warps together.
  __device__ static constexpr int operandBytes(int rows) {
    return ScratchBytes + (rows > 1 ? R::lent * R::stageBytes : 0) - sumBytes(rows);
  }
  /// Bytes in a pass of many rows: for all that a product of `rows` rows needs, or attention in wide tiles.
  __device__ static constexpr int wideBytes(int rows = kMaxRows) {
    return ScratchBytes + R::lentTo(rows, false) * R::stageBytes;
  }
  /// The same of several rows, as many as these.
  __device__ static constexpr int operandBytesOf(int rows) {
    return ScratchBytes + R::lentTo(rows, false) * R::stageBytes - sumBytes(kTileRows);
  }
  /// This warp's part of the operands. Of several rows it has `bytes` bytes.
  template <int Rows> __device__ __forceinline__ char *operands(int bytes) const {
    if constexpr (Rows == kOneRow || R::sameLent)
      bytes = operandBytes(Rows) / kConsumerWarps;
    return reinterpret_cast<char *>(scratch + 2 * kConsumerWarps * sumFloats(Rows)) + warpId() * bytes;
  }
  /// Stores where the warp stands, at the end of a phase. `Sums`: the phase used a buffer of sums, so which one comes
  /// next is stored, too.
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
    ring.beginPass(R::beginsAt(lentBefore));
    if (numRows > kOneRow && numRows <= kTileRows && !R::startsAgain(numRows, lentBefore)) // else dropAhead does so
      ring.lend(R::lentTo(numRows, false));
    __syncwarp(); // lanes may still read where the warp stood
    keep();
  }

  /// The one of the two buffers of sums that was not used last. A barrier of the consumers stands between two uses of
  /// the same buffer.
  template <int Rows> __device__ __forceinline__ float *nextSums() {
    float *sums = scratch + buffer * kConsumerWarps * sumFloats(Rows);
    buffer ^= 1;
    return sums;
  }

  /// Waits for the next chunk. Its bytes are valid until release().
  __device__ __forceinline__ const char *acquire() {
    if (!barrierTest(&ring.shared->full[ring.stage], ring.parity(ring.stage)))
      awaitFull(*ring.shared, ring.stage, ring.parity(ring.stage));
    const char *chunk = ring.data + ring.stage * R::stageBytes;
    ring.advance();
    return chunk;
  }
  /// Gives back the last `Count` chunks, which the warp has read. Its arrival releases what its lanes did before. There
  /// is no fence here: it would wait for all that the lanes have asked for elsewhere. The producer has a fence.
  template <int Count = 1> __device__ __forceinline__ void release() {
    __syncwarp();
    if (laneId() == 0)
#pragma unroll
      for (int back = Count; back > 0; --back)
        barrierArrive(&ring.shared->empty[ring.before(back)]);
  }
  /// The chunk that came `count` chunks ago.
  __device__ __forceinline__ const char *earlier(int count) const {
    return ring.data + ring.before(count) * R::stageBytes;
  }
  /// Gives back only the chunk that came `count` chunks ago.
  __device__ __forceinline__ void releaseEarlier(int count) {
    __syncwarp();
    if (laneId() == 0)
      barrierArrive(&ring.shared->empty[ring.before(count)]);
  }
};

} // namespace megalith::device
