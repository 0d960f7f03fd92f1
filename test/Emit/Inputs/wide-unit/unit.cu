//===- what the emitter will write of a wide pass -------------------------===//
//
// Products of the 1B shape, with every kind of epilogue that the shipped models have. entry.cu calls its functions.
//===----------------------------------------------------------------------===//
#include "megalith/Abi.h"
#include "megalith/Contract/Row.h"
#include "megalith/Rows.cuh"
#include "megalith/WideRoles.cuh"

namespace abi = megalith::abi;
using namespace megalith::device;

#include "WideTestShapes.h"

/// Fields of a tile's rows: position, and place in the pool.
struct RowsOfTile {
  int firstRow;
  const int *positions;
  __device__ __forceinline__ void begin(int row, int *words) {
    firstRow = row;
    positions = words;
#pragma unroll 1
    for (int i = laneId(); i < wide::kTile; i += 32) {
      const int number = min(firstRow + i, sharedOfCta().params.rows - 1);
      const Run &run = runOf(number);
      words[i] = run.position + number - run.firstRow;
    }
    __syncwarp();
  }
  __device__ __forceinline__ const Run &runOf(int number) const {
    const TestParams &p = sharedOfCta().params;
    int run = 0;
    while (run + 1 < p.runs && number >= p.run[run + 1].firstRow)
      ++run;
    return p.run[run];
  }
  __device__ __forceinline__ int position(int row) const { return positions[row]; }
  __device__ __forceinline__ int place(int row) const {
    const TestParams &p = sharedOfCta().params;
    const Run &run = runOf(firstRow + row);
    const int slot = run.slot, at = run.position + firstRow + row - run.firstRow;
    return __ldg(p.pageTable + (long long)slot * p.pageTableStride + at / Pool::pageTokens) * Pool::pageTokens +
           at % Pool::pageTokens;
  }
};
struct ToImage : RowsOfTile {
  wide::Image<2048> to;
  __device__ __forceinline__ void begin(int firstRow, int *words) {
    RowsOfTile::begin(firstRow, words);
    to = to.from(firstRow);
  }
  __device__ __forceinline__ void store(int row, int col, Words4 words) const { to.store(row, col, words); }
};
struct ToPool : RowsOfTile {
  u16 *cache;
  __device__ __forceinline__ void store(int row, int col, Words4 words) const {
    const unsigned of = place(row);
    *reinterpret_cast<Words4 *>(cache + pageAddress<Pool>(0, of / Pool::pageTokens, 0, of % Pool::pageTokens) +
                                columnAddress<Pool>(col)) = words;
  }
};

struct NoEarly {};
struct Angle {
  Bf16Floats<2> cos, sin;
};
/// A column's bias, or none.
struct NoBias {
  __device__ __forceinline__ RoundedFloats<2> of(Floats<2> y, int, int) const { return toBf16(y); }
};
struct BiasAt {
  WeightVector<2048> bias;
  __device__ __forceinline__ RoundedFloats<2> of(Floats<2> y, int c0, int c1) const {
    return toBf16(add(toBf16(y), bias.loadPair(c0, c1)));
  }
};
/// q and k.
template <class Store, class Bias = NoBias> struct RopeEnd {
  static constexpr auto pairs = wide::Pairs::Halves;
  static constexpr bool residual = false;
  const float *ropeTable;
  int firstPair;
  Store to;
  Bias bias;
  __device__ __forceinline__ void begin(int firstRow, int *words) { to.begin(firstRow, words); }
  __device__ __forceinline__ wide::Columns columns(int pair) const {
    const int j = pair - firstPair, c0 = j / 32 * 64 + j % 32;
    return {c0, c0 + 32};
  }
  __device__ __forceinline__ Angle early(int row, int c0, int) const {
    const Float2 angle = reinterpret_cast<const Float2 *>(ropeTable)[to.position(row) * 32 + c0 % 64];
    return {{angle.x, angle.x}, {angle.y, angle.y}};
  }
  __device__ __forceinline__ Floats<2> value(int c0, int c1, float y0, float y1, Floats<2>, const Angle &angle) const {
    const auto t = bias.of({{y0, y1}}, c0, c1);
    return add(Floats<2>(toBf16(mul(t, angle.cos))), Floats<2>(toBf16(mul(rotatePairs(t), angle.sin))));
  }
  __device__ __forceinline__ void store(int row, int col, Words4 words) const { to.store(row, col, words); }
};
/// Adjacent columns.
struct PairEnd {
  static constexpr auto pairs = wide::Pairs::Adjacent;
  static constexpr bool residual = false;
  __device__ __forceinline__ wide::Columns columns(int pair) const { return {2 * pair, 2 * pair + 1}; }
  __device__ __forceinline__ NoEarly early(int, int, int) const { return {}; }
};
struct ValueEnd : PairEnd {
  int firstPair;
  ToPool to;
  u32 *spoiled;
  __device__ __forceinline__ void begin(int firstRow, int *words) { to.begin(firstRow, words); }
  __device__ __forceinline__ wide::Columns columns(int pair) const { return PairEnd::columns(pair - firstPair); }
  __device__ __forceinline__ Floats<2> value(int, int, float y0, float y1, Floats<2>, NoEarly) const {
    return {{y0, y1}};
  }
  __device__ __forceinline__ void store(int row, int col, Words4 words) const {
    if (!allFinite(words))
      *spoiled = 1;
    to.store(row, col, words);
  }
};
/// wo and down.
template <class Bias = NoBias> struct ResidualEnd : PairEnd {
  static constexpr bool residual = true;
  wide::Image<2048> from, to;
  Bias bias;
  __device__ __forceinline__ void begin(int firstRow, int *words) {
    from = from.from(firstRow);
    to = to.from(firstRow);
  }
  __device__ __forceinline__ Floats<2> value(int c0, int c1, float y0, float y1, Floats<2> old, NoEarly) const {
    return add(old, Floats<2>(bias.of({{y0, y1}}, c0, c1)));
  }
  __device__ __forceinline__ Words4 load(int row, int col) const { return from.load(row, col); }
  __device__ __forceinline__ void store(int row, int col, Words4 words) const { to.store(row, col, words); }
};
/// gate and up; without a gate, and plain.
struct Silu {
  template <int N> __device__ __forceinline__ static Floats<N> of(Floats<N> x) { return silu(x); }
};
struct GeluTanh {
  template <int N> __device__ __forceinline__ static Floats<N> of(Floats<N> x) { return geluTanh(x); }
};
struct Gelu {
  template <int N> __device__ __forceinline__ static Floats<N> of(Floats<N> x) { return gelu(x); }
};
struct Same {
  template <int N> __device__ __forceinline__ static Floats<N> of(Floats<N> x) { return x; }
};
template <class Activation> struct GatedEnd {
  static constexpr auto pairs = wide::Pairs::One;
  static constexpr bool residual = false;
  wide::Image<8192> to;
  __device__ __forceinline__ void begin(int firstRow, int *words) { to = to.from(firstRow); }
  __device__ __forceinline__ wide::Columns columns(int pair) const { return {pair, pair}; }
  __device__ __forceinline__ NoEarly early(int, int, int) const { return {}; }
  __device__ __forceinline__ Floats<1> value(int, int, float y0, float y1, Floats<2>, NoEarly) const {
    const auto gate = toBf16(Floats<2>{{y0, y1}}); // both in one step
    return mul(Floats<1>(toBf16(Activation::of(Floats<1>{{gate.v[0]}}))), Floats<1>{{gate.v[1]}});
  }
  __device__ __forceinline__ void store(int row, int col, Words4 words) const { to.store(row, col, words); }
};
template <class Activation, class Bias = NoBias> struct PlainEnd : PairEnd {
  wide::Image<8192> to;
  Bias bias;
  __device__ __forceinline__ void begin(int firstRow, int *words) { to = to.from(firstRow); }
  __device__ __forceinline__ Floats<2> value(int c0, int c1, float y0, float y1, Floats<2>, NoEarly) const {
    return Activation::of(Floats<2>(bias.of({{y0, y1}}, c0, c1)));
  }
  __device__ __forceinline__ void store(int row, int col, Words4 words) const { to.store(row, col, words); }
};

__constant__ wide::Step kSteps[] = {
    wide::rowStep(0), wide::productStep<matrices::WqWkWv>(true, 0, 0), wide::productStep<matrices::Wo>(true, 1, 1),
    wide::rowStep(0), wide::productStep<matrices::GateUp>(true, 0, 2), wide::productStep<matrices::Down>(true, 2, 1),
};

struct Wide {
  __device__ __forceinline__ static Shared &shared() { return sharedOfCta(); }
  __device__ __forceinline__ static int rows() { return sharedOfCta().pass.rows; }
  __device__ __forceinline__ static const wide::Step *steps() { return kSteps; }
  __device__ __forceinline__ static const char *stream() { return sharedOfCta().params.stream; }
  __device__ __forceinline__ static wide::Operand operand(int number, int) {
    const TestParams &p = sharedOfCta().params;
    return number == 0 ? wide::Operand{p.n, 64} : number == 1 ? wide::Operand{p.q, 64} : wide::Operand{p.h, 256};
  }
  __device__ __forceinline__ static void await(const u32 *counter, u32 least) {
    while ((int)(loadAcquire(counter) - least) < 0) {
    }
  }
  __device__ __forceinline__ static void row(int, int, int row) {
    const TestParams &p = sharedOfCta().params;
    const int tile = row / wide::kTile * wide::kTile;
    const auto x = wide::Image<2048>{p.x}.from(tile), n = wide::Image<2048>{p.n}.from(tile);
    normOfRow(
        p.norm, [&](int c) { return unpack8(x.load(row - tile, c)); },
        [&](int c, Words4 words) { n.store(row - tile, c, words); });
  }
  template <class Fn> __device__ __forceinline__ static void end(int number, int layer, int pair, Fn fn) {
    const TestParams &p = sharedOfCta().params;
    const long long ofLayer = layer * PoolStrides<Pool>::layer;
    [[maybe_unused]] const BiasAt bias{{p.bias}};
    switch (number) {
    case 0:
      if (pair < 1024)
        fn(RopeEnd<ToImage>{p.ropeCosSin, 0, {{}, {p.q}}, {}});
      else if (pair < 1280)
        fn(RopeEnd<ToPool>{p.ropeCosSin, 1024, {{}, p.keys + ofLayer}, {}});
      else if (pair < 1536)
        fn(ValueEnd{{}, 1280, {{}, p.values + ofLayer}, p.spoiled});
      break;
    case 1: // wo and down
      if (pair < 1024)
        fn(ResidualEnd<>{{}, {p.x}, {p.x}, {}});
      break;
    case 2:
      if (pair < 8192)
        fn(GatedEnd<Silu>{{p.h}});
      break;
#if MEGALITH_TEST_FAMILIES // what other models have
    case 3:
      if (pair < 1024)
        fn(RopeEnd<ToImage, BiasAt>{p.ropeCosSin, 0, {{}, {p.q}}, bias});
      break;
    case 4:
      if (pair < 1024)
        fn(ResidualEnd<BiasAt>{{}, {p.x}, {p.x}, bias});
      break;
    case 5:
      if (pair < 8192)
        fn(GatedEnd<GeluTanh>{{p.h}});
      break;
    case 6:
      if (pair < 4096)
        fn(PlainEnd<Gelu, BiasAt>{{}, {p.h}, bias});
      break;
    case 7:
      if (pair < 4096)
        fn(PlainEnd<Same>{{}, {p.h}, {}});
      break;
#endif
    }
  }
};

#if MEGALITH_TEST_INLINED // no registers of a caller are saved: what ptxas spills then is a spill
extern "C" __global__ void __launch_bounds__(kConsumerThreads + 128, 1) inlined() { wide::multiply<Wide>(); }
#else
extern "C" {
__device__ void megalith_wide_work() { wide::workOnRows<Wide>(); }
__device__ void megalith_wide_multiply() { wide::multiply<Wide>(); }
__device__ void megalith_wide_weights(int part) { wide::bringWeights<Wide>(Wide::shared().pass.all, part); }
__device__ void megalith_wide_rows() { wide::bringRows<Wide>(Wide::shared().pass.all); }
__device__ void megalith_wide_signal() { wide::signal<Wide>(Wide::shared().pass.all); }
}
#endif
