//===- Results.cuh - what a pass leaves: best logits, and its end ---------===//
//
// Each CTA finds the best of its logits of a row. CTA 0 finds the best of all, and gives control the
// rows' results. Other reducers than argmax stand in Reducers.cuh.
//===----------------------------------------------------------------------===//
#pragma once

#include "megalith/E4m3.cuh"
#include "megalith/Rows.cuh"

namespace megalith::device {

/// The greatest value so far, and the lowest index that has it, as one number. The number is greater for a greater
/// value, and for a lower index where values are equal. So it needs no branch to tell which of two is better.
struct Best {
  static constexpr u64 kNan = ~0ull; ///< a NaN was seen
  u64 key = 0;                       ///< at first that of no value, which is below all others

  __device__ __forceinline__ void take(u64 other) { key = other > key ? other : key; }
  /// Numbers in the order of their values.
  __device__ __forceinline__ static u32 ordered(float v) {
    const u32 bits = __float_as_uint(__fadd_rn(v, 0.0f)); // -0 becomes 0
    return bits ^ ((u32)((int)bits >> 31) | 0x80000000u);
  }
  __device__ __forceinline__ static float valueOf(u32 ordered) {
    return __uint_as_float(ordered >> 31 ? ordered ^ 0x80000000u : ~ordered);
  }
  __device__ __forceinline__ void take(float v, int i) { take(v != v ? kNan : (u64)ordered(v) << 32 | ~(u32)i); }
  __device__ __forceinline__ void takeLane(int distance) { take(__shfl_xor_sync(~0u, key, distance)); }
  /// The best of all lanes.
  __device__ __forceinline__ void takeLanes() {
    const u32 high = (u32)(key >> 32), highest = __reduce_max_sync(~0u, high);
    key = (u64)highest << 32 | __reduce_max_sync(~0u, high == highest ? (u32)key : 0u);
  }
  /// The index, or RowIsNan once a NaN was seen.
  __device__ __forceinline__ int index() const { return key == kNan ? (int)RowIsNan : (int)~(u32)key; }
};

/// Number of Bests that a thread keeps in the variant for `rows` rows: one for each tile of rows that an epilogue
/// names.
__device__ constexpr int bestsOf(int rows) { return rows <= kTileRows ? 1 : rows / 8; }

/// Reduces `best` over the CTA, and writes one entry per row: partial[row][cta]. A thread's `best` is of the rows that
/// streamProduct or wideProduct deals to it. Entries carry the pass's number, so no barrier has to tell old entries
/// from new ones.
template <int Rows>
__device__ __forceinline__ void publishBest(Best *best, const abi::LaunchParams &p, const PassShared &pass,
                                            float *scratch, Words4 *partial) {
  const auto publish = [&](int row, Best b) {
    storeFlagged(partial + (long long)row * gridDim.x + blockIdx.x, {(u32)b.key, (u32)(b.key >> 32), pass.number, 0});
  };
  if constexpr (Rows == kOneRow) {
    if (warpId() != 0) // warp 0 has all pairs of columns
      return;
    best[0].takeLanes();
    if (laneId() == 0)
      publish(0, best[0]);
    return;
  }
  constexpr int tile = Rows <= kTileRows ? kTileRows : 8;
  const int rowsLog = Rows <= kTileRows ? pass.products.rowsLog : 3, rowsOfWarp = min(8, 1 << rowsLog);
#pragma unroll 1
  for (int t = 0; t < bestsOf(Rows); ++t) {
    best[t].takeLane(1);
    best[t].takeLane(2);
    for (int d = 4 << rowsLog; d < 32; d *= 2)
      best[t].takeLane(d);
    consumerSync();
    u64 *entries = reinterpret_cast<u64 *>(scratch); // [warp][8 rows]
    if ((laneId() & 3) == 0)
      entries[threadIdx.x >> 2] = best[t].key;
    consumerSync();
    const int inTile = threadIdx.x, row = t * tile + inTile;
    if (inTile < tile && row < pass.numRows) {
      Best b;
      for (int w = inTile / rowsOfWarp; w < kConsumerWarps; w += (1 << rowsLog) / rowsOfWarp)
        b.take(entries[w * 8 + inTile % rowsOfWarp]);
      publish(row, b);
    }
  }
}

/// Stores two logits of a row in the caller's dump. `stride`: logits of a line, where models differ.
__device__ __forceinline__ void storeLogits(const abi::LaunchParams &p, int line, int column, Floats<2> logits,
                                            int vocab, int stride) {
  if (line < 0)
    return;
  float *at = p.logits + (long long)line * stride + column;
  at[0] = logits.v[0];
  if (column + 1 < vocab)
    at[1] = logits.v[1];
}
__device__ __forceinline__ void storeLogits(const abi::LaunchParams &p, int line, int column, Floats<2> logits,
                                            int vocab) {
  storeLogits(p, line, column, logits, vocab, vocab);
}

/// The table in which a pass looks up its tokens: `rows` rows of `rowBytes` bytes.
struct TokenTable {
  const void *table;
  int rowBytes, rows;
};

/// The last word of an entry that is of a row which settings of its request change. In its place stands another one
/// before.
constexpr u32 kOfEditedRow = 1;

/// The best of the entries of all CTAs for a row. Waits until all have the tag `tag`, at edge `edge` of the plan; when
/// the kernel stops, it takes whatever is there. The whole warp calls it, and finds the same. `kind`: the last word of
/// the entries; 0: whatever it is.
__device__ __forceinline__ Best bestOfRow(const GridEdges &grid, int edge, u32 tag, const Words4 *entries,
                                          u32 kind = 0) {
  constexpr int batch = 5; // entries of a lane that are loaded together
  const auto isThere = [&](const Words4 &entry) { return entry.z == tag && (kind == 0 || entry.w == kind); };
  Best b;
  u64 since = 0;
#pragma unroll 1
  for (int base = laneId(); base < (int)gridDim.x; base += 32 * batch) {
    Words4 e[batch];
#pragma unroll
    for (int i = 0; i < batch; ++i)
      e[i] = {0, 0, tag - 1, 0};
    // Each iteration loads all that were not of this pass: to wait for one after the other would cost a trip to the L2
    // cache for each.
#pragma unroll 1
    for (u32 spin = 1;; ++spin) {
#pragma unroll
      for (int i = 0; i < batch; ++i)
        if (!isThere(e[i]))
          e[i] = loadFlagged(entries + min(base + 32 * i, (int)gridDim.x - 1));
      bool all = true;
#pragma unroll
      for (int i = 0; i < batch; ++i)
        all = all && isThere(e[i]);
      if (all || grid.stopSeen(edge, spin, since))
        break;
    }
#pragma unroll
    for (int i = 0; i < batch; ++i)
      b.take((u64)e[i].y << 32 | e[i].x);
  }
  __syncwarp();
  b.takeLanes();
  return b;
}

/// CTA 0: reduces the entries of all CTAs, one warp per row. The next pass looks up most of the results in `next`. So
/// these rows are prefetched.
__device__ __forceinline__ void reduceBest(GridEdges &grid, int edge, PassShared &pass, const Words4 *partial,
                                           TokenTable next) {
  everyRow(pass.numRows, [&](int row) {
    const Best b = bestOfRow(grid, edge, pass.number, partial + (long long)row * gridDim.x);
    if ((u32)b.index() < (u32)next.rows)
      for (int i = laneId() * 128; i < next.rowBytes; i += 32 * 128)
        prefetch(static_cast<const char *>(next.table) + (long long)b.index() * next.rowBytes + i);
    const abi::LaunchParams &p = *grid.params;
    const long long number = pass.firstRow + row;
    if (laneId() == 0)
      pass.rows[row].result = !(pass.rows[row].flags & RowWantsLogits) ? RowNotWanted
                              : p.replay && number < p.replayRows      ? p.replay[number]
                                                                       : b.index();
  });
}

/// The bits of column `col` of a row's keys, or values, in a layer: a bf16. `element`: as in KvOfRow.
template <class Pool> __device__ __forceinline__ u32 kvBits(const char *layer, long long element, int col) {
  if constexpr (kE4m3<Pool>) {
    const u32 code = codeOfE4m3(loadWord(layer + element + columnAddress<Pool>(col & ~3)), col & 3);
    const u32 scale = loadHalfWord(layer + scaleAddress<Pool>(element, col / Pool::headDim));
    return mulBf16(convert::bf16OfE4m3((unsigned char)code), scale) & 0xffff;
  } else {
    return loadHalfWord(reinterpret_cast<const u16 *>(layer) + element + columnAddress<Pool>(col));
  }
}

/// The same of layer number `number`, as that has them.
template <class Pool>
__device__ __forceinline__ u32 kvBitsOf(int number, const char *layer, long long element, int col) {
  if constexpr (kMixed<Pool>)
    if (isInBf16<Pool>(number))
      return kvBits<InBf16<Pool>>(layer, element, col);
  return kvBits<Pool>(layer, element, col);
}

/// A hash of a row's K and V in all layers, for the trace: equal bits, equal hash. `element`: as in KvOfRow.
template <class Pool> __device__ __forceinline__ u32 kvHashOfRow(const abi::LaunchParams &p, long long element) {
  u32 h = 0;
  for (int layer = 0; layer < Pool::layers; ++layer)
    for (int i = laneId(); i < Pool::kvHeads * Pool::headDim; i += 32) {
      const long long at = layerAddress<Pool>(layer) * PoolStrides<Pool>::elementBytes;
      const u32 k = kvBitsOf<Pool>(layer, modelOf<Pool>(p).kCache + at, element, i),
                v = kvBitsOf<Pool>(layer, modelOf<Pool>(p).vCache + at, element, i);
      h += hash32((k | v << 16) ^ hash32(layer * Pool::kvHeads * Pool::headDim + i));
    }
#pragma unroll
  for (int d = 16; d; d >>= 1)
    h += __shfl_xor_sync(~0u, h, d);
  return h;
}

/// CTA 0, at the end of a pass: the hashes of its rows' K and V.
template <class Pool> __device__ __noinline__ void hashRows(const abi::LaunchParams &p, PassShared &pass) {
  everyRow(pass.numRows, [&](int row) {
    const u32 hash = kvHashOfRow<Pool>(p, pass.kv[row].element);
    __syncwarp(); // all lanes have read where the row stands: the hash takes that place
    if (laneId() == 0)
      pass.kv[row].hash = hash;
  });
}

/// The same of a wide pass, to where control wants them.
template <class Pool> __device__ __noinline__ void hashRuns(const abi::LaunchParams &p, const PassShared &pass) {
#pragma unroll 1
  for (int i = 0; i < pass.runs; ++i) {
    const PassRun run = pass.byRuns.run[i];
    const int *const table = pageTableOf(modelOf<Pool>(p), run.slot);
    everyRow(run.rows, [&](int row) {
      const int position = run.position + row, page = (int)loadWord(table + position / Pool::pageTokens);
      const u32 hash = kvHashOfRow<Pool>(p, pageAddress<Pool>(0, page, 0, position % Pool::pageTokens));
      if (laneId() == 0)
        pass.byRuns.hashes[(long long)(run.firstRow + row) * pass.byRuns.hashStride] = hash;
    });
  }
}

/// Ends a wide pass, as finishPass any other. CTA 0, all consumers. `clear`: what the next one wants to find.
template <class Pool, class Clear>
__device__ __forceinline__ bool finishWidePass(GridEdges &grid, int edge, PassShared &pass, Clear clear) {
  if (threadIdx.x == kConsumerThreads - 32)
    awaitLeft(grid, edge);
  if (consumerSyncAny(loadFlag(grid.stoppedHere) != 0))
    return false;
  clear();
  if (pass.byRuns.hashes)
    hashRuns<Pool>(*grid.params, pass);
  consumerSync();
  if (threadIdx.x == kConsumerThreads - 32)
    tellLeft(grid);
  return true;
}

/// Takes the rows' results from the flagged words at byte `best`, and waits until all CTAs have left the pass. False
/// when the kernel stops. CTA 0, all consumers. One thread then tells the other CTAs, and meanwhile control goes on.
/// `next`: as of reduceBest. `reduceOthers` takes what other reducers gave. In line, like what follows it, because code
/// that is called once in a tick comes from far away.
template <class Pool, class Others>
__device__ __forceinline__ bool finishPass(GridEdges &grid, int edge, int bestEdge, PassShared &pass, long long best,
                                           TokenTable next, Others reduceOthers) {
  if (threadIdx.x == kConsumerThreads - 32)
    awaitLeft(grid, edge);
  if (pass.wantLogits) {
    if (threadIdx.x == 0)
      noteEdge(bestEdge);
    reduceBest(grid, bestEdge, pass, reinterpret_cast<const Words4 *>(grid.params->flagged + best), next);
    reduceOthers();
  }
  // All threads are to find the same: the flag may be set meanwhile.
  if (consumerSyncAny(loadFlag(grid.stoppedHere) != 0))
    return false;
  if (grid.params->kvHash) {
    hashRows<Pool>(*grid.params, pass);
    consumerSync();
  }
  if (threadIdx.x == kConsumerThreads - 32)
    tellLeft(grid);
  return true;
}

} // namespace megalith::device
