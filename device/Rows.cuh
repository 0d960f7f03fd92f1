//===- Rows.cuh - row-wise work: reductions, argmax, rope, KV addresses ---===//
#pragma once

namespace megalith::device {

/// Stores values of K or V of one row at columns of [kvHeads * headDim].
template <class Pool> struct KvRows {
  u16 *cache;       ///< of the present layer
  const PassShared *pass;
  __device__ __forceinline__ KvRows(char *cache, int layer, const PassShared &pass)
      : cache(reinterpret_cast<u16 *>(cache) + pageAddress<Pool>(layer, 0, 0, 0)), pass(&pass) {}
  __device__ __forceinline__ long long at(int row, int col) const { return pass->kv[row].element + columnAddress<Pool>(col); }
  __device__ __forceinline__ void storePair(int row, int c0, int c1, Floats<2> f) const {
    if (c1 == c0 + 1) {
      *reinterpret_cast<u32 *>(cache + at(row, c0)) = packBf16(f.v[0], f.v[1]);
      return;
    }
    cache[at(row, c0)] = floatToBf16(f.v[0]);
    cache[at(row, c1)] = floatToBf16(f.v[1]);
  }
  __device__ __forceinline__ void storeOne(int row, int c, Floats<1> f) const {
    cache[at(row, c)] = floatToBf16(f.v[0]);
  }
  __device__ __forceinline__ void store8(int row, int c, Floats<8> f) const {
    *reinterpret_cast<Words4 *>(cache + at(row, c)) = pack8(f);
  }
};

/// cos and sin of the rope angle of frequency `i` below Dim/2, rounded to bf16.
template <int Dim> struct Rope {
  const float *table; ///< [positions][Dim / 2][2]
  __device__ __forceinline__ float at(int position, int col, int which) const {
    return __ldg(table + ((long long)position * (Dim / 2) + col % (Dim / 2)) * 2 + which);
  }
  template <int N> __device__ __forceinline__ Bf16Floats<N> cosAt(int position, int col) const { return valuesAt<N, 0>(position, col); }
  template <int N> __device__ __forceinline__ Bf16Floats<N> sinAt(int position, int col) const { return valuesAt<N, 1>(position, col); }
  template <int N, int Which> __device__ __forceinline__ Bf16Floats<N> valuesAt(int position, int col) const {
    if constexpr (N == 8 && Dim % 16 == 0) { // side by side
      const float *const first = table + ((long long)position * (Dim / 2) + col % (Dim / 2)) * 2;
      return fromWords<Bf16Floats<N>>([&](int i) {
        const Words4 two = loadConstWords(first + 4 * i);
        return Which ? highHalves(two.y, two.w) : highHalves(two.x, two.z);
      });
    } else {
      return {mapFloats<N>([&](int i) { return at(position, col + i, Which); })};
    }
  }
  __device__ __forceinline__ Floats<2> cosPair(int position, int c0, int c1) const {
    return {{at(position, c0, 0), at(position, c1, 0)}};
  }
  __device__ __forceinline__ Floats<2> sinPair(int position, int c0, int c1) const {
    return {{at(position, c0, 1), at(position, c1, 1)}};
  }
};

/// The column that rotate_half takes a value from, and the sign it gives it.
template <int Dim> __device__ __forceinline__ int partnerColumn(int col) {
  return col % Dim < Dim / 2 ? col + Dim / 2 : col - Dim / 2;
}
template <int Dim, int N> __device__ __forceinline__ Floats<N> rotated(int col, Floats<N> partner) {
  return col % Dim < Dim / 2 ? neg(partner) : partner;
}
template <int Dim, int N> __device__ __forceinline__ Bf16Floats<N> rotated(int col, Bf16Floats<N> partner) {
  return col % Dim < Dim / 2 ? Bf16Floats<N>{neg(Floats<N>(partner))} : partner;
}

/// Weight number `index` of the manifest (of a layer: its first number plus the layer).
__device__ __forceinline__ const u16 *weightAt(const abi::ModelParams &model, int index) {
  return static_cast<const u16 *>(model.weights[index]);
}

/// A weight vector's copy at byte `offset` of the stream.
__device__ __forceinline__ const u16 *packedVector(const abi::ModelParams &model, long long offset) {
  return reinterpret_cast<const u16 *>(model.stream + offset);
}

/// Of no values: the sum, or the maximum.
template <bool Max> __device__ __forceinline__ float noneOf() { return Max ? __int_as_float(0xff800000) : 0.0f; }

template <bool Max> __device__ __forceinline__ float together(float a, float b) {
  return Max ? fmaxf(a, b) : __fadd_rn(a, b);
}
/// Takes in the values at columns c..c+7 of `Columns`.
template <bool Max, int Columns> __device__ __forceinline__ void takeColumns(float &total, int c, Floats<8> f) {
#pragma unroll
  for (int i = 0; i < 8; ++i)
    if (Columns % 8 == 0 || c + i < Columns)
      total = together<Max>(total, f.v[i]);
}
template <bool Max> __device__ __forceinline__ float acrossLanes(float total) {
#pragma unroll
  for (int d = 16; d; d >>= 1)
    total = together<Max>(total, __shfl_xor_sync(~0u, total, d));
  return total;
}

/// Columns [first, end) of a row by one warp: values(c) -> Floats<8> at c..c+7. Lane j takes
/// columns 8j..8j+7, 256+8j.. from `first` on in ascending order; then lanes at distance 16,
/// 8, 4, 2, 1.
template <bool Max, int Columns, class Values>
__device__ __forceinline__ float reduceLanes(int first, int end, Values values) {
  float total = noneOf<Max>();
  for (int c = first + laneId() * 8; c < end; c += 256)
    takeColumns<Max, Columns>(total, c, values(c));
  return acrossLanes<Max>(total);
}

/// Sum tree `lanes32`: all columns by one warp.
template <int Columns, class Values> __device__ __forceinline__ float warpSum(Values values) {
  return reduceLanes<false, Columns>(0, Columns, values);
}
template <int Columns, class Values> __device__ __forceinline__ float warpMax(Values values) {
  return reduceLanes<true, Columns>(0, Columns, values);
}

/// A block of up to 256 columns, say a head, that a warp holds at once: lane j has columns 8j..8j+7 of it. Lanes behind the
/// last ones do as these.
template <int Columns> __device__ __forceinline__ int columnOfLane() {
  static_assert(Columns % 8 == 0 && Columns <= 256, "eight columns for each lane of a warp, at most");
  return min(laneId() * 8, Columns - 8);
}
template <int Columns> __device__ __forceinline__ bool isLaneOfBlock() { return laneId() * 8 < Columns; }
/// `lanes32` of such a block, or the maximum, of the values that the lanes have.
template <bool Max, int Columns> __device__ __forceinline__ float blockReduce(Floats<8> f) {
  float total = noneOf<Max>();
  if (isLaneOfBlock<Columns>())
    takeColumns<Max, Columns>(total, laneId() * 8, f);
  return acrossLanes<Max>(total);
}
/// What the lane has that holds partnerColumn<Dim>(c), where this one holds column c.
template <int Dim> __device__ __forceinline__ int partnerLane(int c) {
  static_assert(Dim % 16 == 0, "half of them are whole lanes'");
  return (laneId() + (partnerColumn<Dim>(c) - c) / 8) & 31;
}
template <int Dim> __device__ __forceinline__ Floats<8> ofPartner(int c, Floats<8> f) {
  const int lane = partnerLane<Dim>(c);
  return mapFloats<8>([&](int i) { return __shfl_sync(~0u, f.v[i], lane); });
}
template <int Dim> __device__ __forceinline__ Bf16Floats<8> ofPartner(int c, Bf16Floats<8> f) {
  const int lane = partnerLane<Dim>(c);
  return fromWords<Bf16Floats<8>>([&](int i) { return __shfl_sync(~0u, wordOf(f, i), lane); });
}

/// Sum tree `parts8`: the columns, padded to a multiple of 256, in 8 parts; each part as
/// `lanes32`; the parts in ascending order. Part `part`, and all eight.
template <int Columns> __device__ constexpr int partColumns() { return (Columns + 255) / 256 * 32; }
template <bool Max, int Columns, class Values> __device__ __forceinline__ float reducePart(int part, Values values) {
  return reduceLanes<Max, Columns>(part * partColumns<Columns>(), min(Columns, (part + 1) * partColumns<Columns>()),
                                   values);
}
template <int Columns, class Values> __device__ __forceinline__ float rowSum(Values values) {
  float sum = reducePart<false, Columns>(0, values);
  for (int part = 1; part < 8; ++part)
    sum = __fadd_rn(sum, reducePart<false, Columns>(part, values));
  return sum;
}

/// The same by all warps of the CTA, a part each. `sums`: shared.
template <bool Max, int Columns, class Values> __device__ __forceinline__ float ctaReduce(float *sums, Values values) {
  consumerSync(); // another phase's may still be read
  const float mine = reducePart<Max, Columns>(warpId(), values);
  if (laneId() == 0)
    sums[warpId()] = mine;
  consumerSync();
  float total = sums[0];
#pragma unroll
  for (int part = 1; part < kConsumerWarps; ++part)
    total = together<Max>(total, sums[part]);
  consumerSync(); // the next phase may write there
  return total;
}
/// The warp's part.
template <int Columns> __device__ __forceinline__ int partBegin() { return warpId() * partColumns<Columns>(); }
template <int Columns> __device__ __forceinline__ int partEnd() {
  return min(Columns, (warpId() + 1) * partColumns<Columns>());
}

/// A CTA for each row.
template <class Fn> __device__ __forceinline__ void rowsOfCtas(int numRows, Fn fn) {
  for (int row = blockIdx.x; row < numRows; row += gridDim.x)
    fn(row);
}

/// One warp of this CTA for each row; every CTA does the same rows.
template <class Fn> __device__ __forceinline__ void everyRow(int numRows, Fn fn) {
  for (int row = (int)threadAgain() / 32; row < numRows; row += kConsumerWarps) // the warp's number is asked for long before as well
    fn(row);
}

/// One warp of the grid for each (row, part): the work is spread over the CTAs.
/// The first are CTA 0's, which knows the pass before the others do.
template <class Fn> __device__ __forceinline__ void spreadRows(int numRows, int parts, Fn fn) {
  for (int i = blockIdx.x * kConsumerWarps + warpId(); i < numRows * parts; i += gridDim.x * kConsumerWarps)
    fn(i / parts, i % parts);
}

/// Column 8j of each eight in quarter `part` of a row. What fn(c) loads is on its way together.
template <int Columns, class Fn> __device__ __forceinline__ void quarterOfRow(int part, Fn fn) {
  constexpr int each = (Columns + 1023) / 1024;
#pragma unroll
  for (int i = 0; i < each; ++i)
    if (const int c = (part * each + i) * 256 + laneId() * 8; c < Columns)
      fn(c);
}

// --- argmax -------------------------------------------------------------------

/// The greatest value so far and the lowest index that has it, as one number that is greater for a greater value, and
/// of equal values for a lower index: which of two is better needs no branch.
struct Best {
  static constexpr u64 kNan = ~0ull; ///< one was seen
  u64 key = 0;                       ///< of nothing: below all others

  __device__ __forceinline__ void take(u64 other) { key = other > key ? other : key; }
  __device__ __forceinline__ void take(float v, int i) {
    const u32 bits = __float_as_uint(__fadd_rn(v, 0.0f)); // of the zeros one
    const u32 ordered = bits ^ ((u32)((int)bits >> 31) | 0x80000000u);
    take(v != v ? kNan : (u64)ordered << 32 | ~(u32)i);
  }
  __device__ __forceinline__ void takeLane(int distance) { take(__shfl_xor_sync(~0u, key, distance)); }
  /// The best of all lanes.
  __device__ __forceinline__ void takeLanes() {
    const u32 high = (u32)(key >> 32), highest = __reduce_max_sync(~0u, high);
    key = (u64)highest << 32 | __reduce_max_sync(~0u, high == highest ? (u32)key : 0u);
  }
  /// The index, or RowIsNan once a NaN was seen.
  __device__ __forceinline__ int index() const { return key == kNan ? (int)RowIsNan : (int)~(u32)key; }
};

/// What a thread keeps of the logits of a variant for so many rows: one for each tile that an epilogue names.
__device__ constexpr int bestsOf(int rows) { return rows <= kTileRows ? 1 : rows / 8; }

/// Reduces `best` (of the rows that streamProduct or wideProduct deals to a thread)
/// over the CTA and writes one entry per row: partial[row][cta]. Entries carry the tick, so
/// that no barrier has to tell old ones from new ones.
template <int Rows>
__device__ __forceinline__ void publishBest(Best (&best)[bestsOf(Rows)], const abi::LaunchParams &p, const PassShared &pass,
                                            float *scratch, Words4 *partial) {
  const auto publish = [&](int row, Best b) {
    storeTagged(partial + (long long)row * gridDim.x + blockIdx.x,
                {(u32)b.key, (u32)(b.key >> 32), (u32)pass.tick + 1, 0});
  };
  if constexpr (Rows == 1) {
    if (warpId() != 0) // which has all pairs of columns
      return;
    best[0].takeLanes();
    if (laneId() == 0)
      publish(0, best[0]);
    return;
  }
  constexpr int tile = Rows <= kTileRows ? kTileRows : 8;
  const int rowsLog = Rows <= kTileRows ? pass.rowsLog : 3, rowsOfWarp = min(8, 1 << rowsLog);
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

/// Two logits of a row into the caller's dump.
__device__ __forceinline__ void storeLogits(const abi::LaunchParams &p, int line, int column, Floats<2> logits,
                                            int vocab) {
  if (line < 0)
    return;
  float *at = p.logits + (long long)line * vocab + column;
  at[0] = logits.v[0];
  if (column + 1 < vocab)
    at[1] = logits.v[1];
}

/// Where a pass looks up its tokens: a table of so many rows of so many bytes.
struct TokenTable {
  const void *table;
  int rowBytes, rows;
};

/// Edge `edge` of the plan: one warp per row reduces all CTAs' entries (CTA 0 calls this). The next pass looks up
/// most of the results in `next`: these rows come nearer meanwhile.
__device__ __forceinline__ void reduceBest(GridEdges &grid, int edge, PassShared &pass, const Words4 *partial,
                                           TokenTable next) {
  constexpr int batch = 5; // entries of a lane that are looked for together
  const u32 tag = (u32)pass.tick + 1;
  everyRow(pass.numRows, [&](int row) {
    Best b;
    const Words4 *entries = partial + (long long)row * gridDim.x;
    u64 since = 0;
#pragma unroll 1
    for (int base = laneId(); base < (int)gridDim.x; base += 32 * batch) {
      Words4 e[batch];
#pragma unroll
      for (int i = 0; i < batch; ++i)
        e[i] = {0, 0, tag - 1, 0};
      // Until those of all are of this pass; when the kernel stops, whatever is there. Each round looks for all that
      // were not: one behind the other they would cost a way to the L2 cache each.
#pragma unroll 1
      for (u32 spin = 1;; ++spin) {
#pragma unroll
        for (int i = 0; i < batch; ++i)
          if (e[i].z != tag)
            e[i] = loadTagged(entries + min(base + 32 * i, (int)gridDim.x - 1));
        bool all = true;
#pragma unroll
        for (int i = 0; i < batch; ++i)
          all = all && e[i].z == tag;
        if (all || grid.stopSeen(edge, spin, since))
          break;
      }
#pragma unroll
      for (int i = 0; i < batch; ++i)
        b.take((u64)e[i].y << 32 | e[i].x);
    }
    __syncwarp();
    b.takeLanes();
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


/// A hash of the row's K and V in all layers, for the trace: equal bits, equal hash.
template <class Pool> __device__ __forceinline__ u32 kvHashOfRow(const abi::LaunchParams &p, const PassShared &pass, int row) {
  u32 h = 0;
  for (int layer = 0; layer < Pool::layers; ++layer)
    for (int i = laneId(); i < Pool::kvHeads * Pool::headDim; i += 32) {
      const long long at = pageAddress<Pool>(layer, 0, 0, 0) + pass.kv[row].element + columnAddress<Pool>(i);
      const u32 k = loadHalfWord(reinterpret_cast<const u16 *>(modelOf<Pool>(p).kCache) + at);
      const u32 v = loadHalfWord(reinterpret_cast<const u16 *>(modelOf<Pool>(p).vCache) + at);
      h += hash32((k | v << 16) ^ hash32(layer * Pool::kvHeads * Pool::headDim + i));
    }
#pragma unroll
  for (int d = 16; d; d >>= 1)
    h += __shfl_xor_sync(~0u, h, d);
  return h;
}

/// CTA 0, at the end of a pass: the hashes of its rows' K and V.
template <class Pool>
__device__ __noinline__ void hashRows(const abi::LaunchParams &p, PassShared &pass) {
  everyRow(pass.numRows, [&](int row) {
    const u32 hash = kvHashOfRow<Pool>(p, pass, row);
    __syncwarp(); // all lanes know where the row stands
    if (laneId() == 0)
      pass.kv[row].hash = hash;
  });
}

/// CTA 0, all consumers: takes the rows' results, from the tagged words at byte `best`, and waits until all CTAs have
/// left the pass. False when the kernel stops. Control goes on meanwhile when the others are told. `next`: as of
/// reduceBest. In line, like what follows it: code that is called once in a tick comes from far away.
template <class Pool>
__device__ __forceinline__ bool finishPass(GridEdges &grid, int edge, int bestEdge, PassShared &pass, long long best,
                                           TokenTable next) {
  if (threadIdx.x == kConsumerThreads - 32)
    awaitLeft(grid, edge);
  if (pass.wantLogits) {
    if (threadIdx.x == 0)
      noteEdge(bestEdge);
    reduceBest(grid, bestEdge, pass, reinterpret_cast<const Words4 *>(grid.params->tagged + best), next);
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
