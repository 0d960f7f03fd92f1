//===- Rows.cuh - row-wise work: reductions, rope, KV rows ----------------===//
#pragma once

#include "megalith/Pass.cuh"

namespace megalith::device {

/// Stores values of K or V of one row at columns of [kvHeads * headDim].
template <class Pool> struct KvRows {
  u16 *cache; ///< K or V of the present layer
  const PassShared *pass;
  __device__ __forceinline__ KvRows(char *cache, int layer, const PassShared &pass)
      : cache(reinterpret_cast<u16 *>(cache) + pageAddress<Pool>(layer, 0, 0, 0)), pass(&pass) {}
  __device__ __forceinline__ long long at(int row, int col) const {
    return pass->kv[row].element + columnAddress<Pool>(col);
  }
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

/// The same of a mixed pool, of whose layers those of bf16 alone take them: of the others attention makes codes.
template <class Pool> struct KvRowsOfBf16 {
  KvRows<InBf16<Pool>> rows;
  bool takes; ///< the present layer does
  __device__ __forceinline__ KvRowsOfBf16(char *cache, int layer, const PassShared &pass)
      : rows(cache, layer, pass), takes(isInBf16<Pool>(layer)) {}
  __device__ __forceinline__ void storePair(int row, int c0, int c1, Floats<2> f) const {
    if (takes)
      rows.storePair(row, c0, c1, f);
  }
  __device__ __forceinline__ void storeOne(int row, int c, Floats<1> f) const {
    if (takes)
      rows.storeOne(row, c, f);
  }
  __device__ __forceinline__ void store8(int row, int c, Floats<8> f) const {
    if (takes)
      rows.store8(row, c, f);
  }
};

/// Which columns of a head rope turns against each other: of the first `Turned` the two halves, or with `Adjacent`
/// neighbours. The rest is paired alike, and turned by no angle.
template <int Dim, int Turned = Dim, bool Adjacent = false> struct HeadPairs {
  /// The partners of eight columns are neighbours, and so are their angles.
  static constexpr bool inEights = !Adjacent && Dim % 16 == 0 && Turned % 16 == 0;
  __device__ __forceinline__ static bool isRest(int col) { return Turned < Dim && col % Dim >= Turned; }
  __device__ __forceinline__ static int half(int col) { return isRest(col) ? (Dim - Turned) / 2 : Turned / 2; }
  __device__ __forceinline__ static bool isFirst(int col) {
    if constexpr (Adjacent)
      return col % 2 == 0;
    else
      return isRest(col) ? col % Dim < (Dim + Turned) / 2 : col % Dim < Turned / 2;
  }
  __device__ __forceinline__ static int partner(int col) {
    if constexpr (Adjacent)
      return col ^ 1;
    else
      return isFirst(col) ? col + half(col) : col - half(col);
  }
  /// Of the head's Dim / 2.
  __device__ __forceinline__ static int pair(int col) {
    if constexpr (Adjacent)
      return col % Dim / 2;
    else if constexpr (Turned == Dim)
      return col % (Dim / 2);
    else
      return col % Dim - (isRest(col) ? Turned / 2 : 0) - (isFirst(col) ? 0 : half(col));
  }
};

/// Table number `table` of the model.
template <int Dim> __device__ __forceinline__ const float *ropeTable(const abi::ModelParams &model, int table) {
  return model.ropeCosSin + (long long)table * model.maxPositions * Dim;
}

/// cos and sin of the rope angle of a column, rounded to bf16.
template <int Dim, int Turned = Dim, bool Adjacent = false> struct Rope {
  using Pairs = HeadPairs<Dim, Turned, Adjacent>;
  const float *table; ///< [positions][Dim / 2][2]
  __device__ __forceinline__ float at(int position, int col, int which) const {
    return __ldg(table + ((long long)position * (Dim / 2) + Pairs::pair(col)) * 2 + which);
  }
  template <int N> __device__ __forceinline__ Bf16Floats<N> cosAt(int position, int col) const {
    return valuesAt<N, 0>(position, col);
  }
  template <int N> __device__ __forceinline__ Bf16Floats<N> sinAt(int position, int col) const {
    return valuesAt<N, 1>(position, col);
  }
  template <int N, int Which> __device__ __forceinline__ Bf16Floats<N> valuesAt(int position, int col) const {
    if constexpr (N == 8 && Pairs::inEights) { // side by side
      const float *const first = table + ((long long)position * (Dim / 2) + Pairs::pair(col)) * 2;
      return fromWords<Bf16Floats<N>>([&](int i) {
        const Words4 two = loadConstWords(first + 4 * i);
        return Which ? highHalves(two.y, two.w) : highHalves(two.x, two.z);
      });
    } else {
      return {mapFloats<N>([&](int i) { return at(position, col + i, Which); })};
    }
  }
  /// Of two columns that are turned against each other: they have one angle.
  __device__ __forceinline__ Floats<2> cosPair(int position, int c0, int) const {
    return splat<2>(at(position, c0, 0));
  }
  __device__ __forceinline__ Floats<2> sinPair(int position, int c0, int) const {
    return splat<2>(at(position, c0, 1));
  }
};

/// The column that rotate_half takes a value from, and the sign it gives it.
template <int Dim, int Turned = Dim> __device__ __forceinline__ int partnerColumn(int col) {
  return HeadPairs<Dim, Turned>::partner(col);
}
template <int Dim, int Turned = Dim, int N = 8>
__device__ __forceinline__ Floats<N> rotated(int col, Floats<N> partner) {
  using Pairs = HeadPairs<Dim, Turned>;
  if constexpr (Pairs::inEights)
    return Pairs::isFirst(col) ? neg(partner) : partner;
  else
    return mapFloats<N>([&](int i) { return Pairs::isFirst(col + i) ? -partner.v[i] : partner.v[i]; });
}
template <int Dim, int Turned = Dim, int N = 8>
__device__ __forceinline__ Bf16Floats<N> rotated(int col, Bf16Floats<N> partner) {
  return {rotated<Dim, Turned>(col, Floats<N>(partner))};
}

/// Weight number `index` of the manifest (of a layer: its first number plus the layer).
__device__ __forceinline__ const u16 *weightAt(const abi::ModelParams &model, int index) {
  return static_cast<const u16 *>(model.weights[index]);
}

/// A weight vector's copy at byte `offset` of the stream.
__device__ __forceinline__ const u16 *packedVector(const abi::ModelParams &model, long long offset) {
  return reinterpret_cast<const u16 *>(model.stream + offset);
}

/// The sum, or the maximum, of no values.
template <bool Max> __device__ __forceinline__ float noneOf() { return Max ? __int_as_float(0xff800000) : 0.0f; }

template <bool Max> __device__ __forceinline__ float together(float a, float b) {
  return Max ? fmaxf(a, b) : __fadd_rn(a, b);
}
/// Adds the values at columns c..c+7 to `total`, or takes their maximum with it. Columns from `Columns` on do not
/// count.
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

/// Reduces columns [first, end) of a row, by one warp. values(c) -> Floats<8> gives those at c..c+7. Lane j takes
/// columns first + 8j..8j+7, then first + 256 + 8j.., and so on, in ascending order. Then the lanes' totals are
/// combined: those at distance 16, then 8, 4, 2, 1.
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

/// A lane's first column in a block of up to 256 columns, say a head, that a warp holds at once. Lane j has columns
/// 8j..8j+7. Lanes beyond the block take its last 8 columns.
template <int Columns> __device__ __forceinline__ int columnOfLane() {
  static_assert(Columns % 8 == 0 && Columns <= 256, "eight columns for each lane of a warp, at most");
  return min(laneId() * 8, Columns - 8);
}
template <int Columns> __device__ __forceinline__ bool isLaneOfBlock() { return laneId() * 8 < Columns; }
/// Reduces such a block, of which the lanes have the values: to the sum, with the sum tree `lanes32`, or to the
/// maximum.
template <bool Max, int Columns> __device__ __forceinline__ float blockReduce(Floats<8> f) {
  float total = noneOf<Max>();
  if (isLaneOfBlock<Columns>())
    takeColumns<Max, Columns>(total, laneId() * 8, f);
  return acrossLanes<Max>(total);
}
/// The lane that holds partnerColumn(c), where this lane holds column c. ofPartner returns what that lane has.
template <int Dim, int Turned = Dim> __device__ __forceinline__ int partnerLane(int c) {
  static_assert(HeadPairs<Dim, Turned>::inEights, "half of them are whole lanes'");
  return (laneId() + (partnerColumn<Dim, Turned>(c) - c) / 8) & 31;
}
/// The same where the partners of a lane's columns stand in several lanes.
template <int Dim, int Turned> __device__ __forceinline__ Floats<8> gatherPartners(int c, Floats<8> f) {
  return mapFloats<8>([&](int i) {
    const int partner = partnerColumn<Dim, Turned>(c + i), lane = (laneId() + (partner / 8 * 8 - c) / 8) & 31;
    float found = 0.0f;
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      const float theirs = __shfl_sync(~0u, f.v[k], lane);
      found = partner % 8 == k ? theirs : found;
    }
    return found;
  });
}
template <int Dim, int Turned = Dim> __device__ __forceinline__ Floats<8> ofPartner(int c, Floats<8> f) {
  if constexpr (HeadPairs<Dim, Turned>::inEights) {
    const int lane = partnerLane<Dim, Turned>(c);
    return mapFloats<8>([&](int i) { return __shfl_sync(~0u, f.v[i], lane); });
  } else {
    return gatherPartners<Dim, Turned>(c, f);
  }
}
template <int Dim, int Turned = Dim> __device__ __forceinline__ Bf16Floats<8> ofPartner(int c, Bf16Floats<8> f) {
  if constexpr (HeadPairs<Dim, Turned>::inEights) {
    const int lane = partnerLane<Dim, Turned>(c);
    return fromWords<Bf16Floats<8>>([&](int i) { return __shfl_sync(~0u, wordOf(f, i), lane); });
  } else {
    return {gatherPartners<Dim, Turned>(c, Floats<8>(f))};
  }
}

/// Sum tree `parts8`: the columns, padded to a multiple of 256, are cut into 8 parts. Each part is added as `lanes32`,
/// then the parts in ascending order. reducePart does part `part`, and rowSum all eight.
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

/// Sum tree `parts8`, or the maximum, by all warps of the CTA, one part each. `sums` is in shared memory.
template <bool Max, int Columns, class Values> __device__ __forceinline__ float ctaReduce(float *sums, Values values) {
  consumerSync(); // another phase's sums may still be read
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
/// The warp's part is columns [partBegin, partEnd).
template <int Columns> __device__ __forceinline__ int partBegin() { return warpId() * partColumns<Columns>(); }
template <int Columns> __device__ __forceinline__ int partEnd() {
  return min(Columns, (warpId() + 1) * partColumns<Columns>());
}

/// Calls fn for each row, by one CTA.
template <class Fn> __device__ __forceinline__ void rowsOfCtas(int numRows, Fn fn) {
  for (int row = blockIdx.x; row < numRows; row += gridDim.x)
    fn(row);
}

/// Calls fn for each row, by one warp of this CTA. Every CTA does the same rows.
template <class Fn> __device__ __forceinline__ void everyRow(int numRows, Fn fn) {
  for (int row = (int)threadAgain() / 32; row < numRows;
       row += kConsumerWarps) // the warp's number is asked for long before as well
    fn(row);
}

/// Calls fn for each (row, part), by one warp of the grid. So the work is spread over the CTAs. The first pairs are
/// those of CTA 0, which knows the pass before the others do.
template <class Fn> __device__ __forceinline__ void spreadRows(int numRows, int parts, Fn fn) {
  for (int i = blockIdx.x * kConsumerWarps + warpId(); i < numRows * parts; i += gridDim.x * kConsumerWarps)
    fn(i / parts, i % parts);
}

/// Calls fn(c) for the first column of each 8 columns that the lane has in quarter `part` of a row. What these calls
/// load is under way together.
template <int Columns, class Fn> __device__ __forceinline__ void quarterOfRow(int part, Fn fn) {
  constexpr int each = (Columns + 1023) / 1024;
#pragma unroll
  for (int i = 0; i < each; ++i)
    if (const int c = (part * each + i) * 256 + laneId() * 8; c < Columns)
      fn(c);
}

} // namespace megalith::device
