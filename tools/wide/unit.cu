//===- products of a wide pass, on their own ------------------------------===//
//
// Products of the 1B shape, which are written here as megalith writes them. entry.cu calls its functions.
//===----------------------------------------------------------------------===//
#include "megalith/Abi.h"
#include "megalith/Contract/Row.h"
#include "megalith/Rows.cuh"
#include "megalith/WideRoles.cuh"

namespace abi = megalith::abi;
using namespace megalith::device;

#include "WideTestShapes.h"

struct NoEarly {};
/// Fields of a tile's rows: position, and place in the pool.
struct RowsOfTile {
  const int *words;
  __device__ __forceinline__ void begin(int firstRow, int *words) {
    this->words = words;
    const TestParams &p = sharedOfCta().params;
    int number = 0;
#pragma unroll 4
    for (int i = laneId(); i < wide::kTile; i += 32) {
      const int row = min(firstRow + i, p.rows - 1);
      while (number + 1 < p.runs && row >= p.run[number + 1].firstRow)
        ++number;
      const Run &run = p.run[number];
      const int at = run.position + row - run.firstRow;
      words[i] = at;
      words[wide::kTile + i] =
          __ldg(p.pageTable + (long long)run.slot * p.pageTableStride + at / Pool::pageTokens) * Pool::pageTokens +
          at % Pool::pageTokens;
    }
    __syncwarp();
  }
  __device__ __forceinline__ int position(int row) const { return words[row]; }
};
struct ToImage : RowsOfTile {
  wide::Image<2048> to;
  __device__ __forceinline__ void begin(int firstRow, int *words) {
    RowsOfTile::begin(firstRow, words);
    to = to.from(firstRow);
  }
  __device__ __forceinline__ NoEarly place(int) const { return {}; }
  __device__ __forceinline__ void store(int row, NoEarly, int col, Words4 words) const { to.store(row, col, words); }
};
struct ToPool : RowsOfTile {
  u16 *cache;
  __device__ __forceinline__ int place(int row) const { return words[wide::kTile + row]; }
  __device__ __forceinline__ void store(int, int place, int col, Words4 words) const {
    const unsigned of = place;
    *reinterpret_cast<Words4 *>(cache + pageAddress<Pool>(0, of / Pool::pageTokens, 0, of % Pool::pageTokens) +
                                columnAddress<Pool>(col)) = words;
  }
};

struct Angle {
  Bf16Floats<2> cos, sin;
};
/// q and k.
template <class Store> struct RopeEnd {
  static constexpr auto pairs = wide::Pairs::Halves;
  static constexpr bool residual = false;
  const float *ropeTable;
  int firstPair;
  Store to;
  __device__ __forceinline__ void begin(int firstRow, int *words) { to.begin(firstRow, words); }
  __device__ __forceinline__ wide::Columns columns(int pair) const {
    const int j = pair - firstPair, c0 = j / 32 * 64 + j % 32;
    return {c0, c0 + 32};
  }
  __device__ __forceinline__ Angle early(int row, int c0, int) const {
    const Float2 angle = reinterpret_cast<const Float2 *>(ropeTable)[to.position(row) * 32 + c0 % 64];
    return {{angle.x, angle.x}, {angle.y, angle.y}};
  }
  __device__ __forceinline__ Floats<2> value(int, int, float y0, float y1, Floats<2>, const Angle &angle) const {
    const auto t = toBf16(Floats<2>{{y0, y1}});
    return add(Floats<2>(toBf16(mul(t, angle.cos))), Floats<2>(toBf16(mul(rotatePairs(t), angle.sin))));
  }
  __device__ __forceinline__ auto place(int row) const { return to.place(row); }
  template <class Place> __device__ __forceinline__ void store(int row, Place place, int col, Words4 words) const {
    to.store(row, place, col, words);
  }
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
  __device__ __forceinline__ int place(int row) const { return to.place(row); }
  __device__ __forceinline__ void store(int row, int place, int col, Words4 words) const {
    if (!allFinite(words))
      *spoiled = 1;
    to.store(row, place, col, words);
  }
};
/// wo and down.
struct ResidualEnd : PairEnd {
  static constexpr bool residual = true;
  wide::Image<2048> from, to;
  __device__ __forceinline__ void begin(int firstRow, int *words) {
    from = from.from(firstRow);
    to = to.from(firstRow);
  }
  __device__ __forceinline__ Floats<2> value(int, int, float y0, float y1, Floats<2> old, NoEarly) const {
    return add(old, Floats<2>(toBf16(Floats<2>{{y0, y1}})));
  }
  __device__ __forceinline__ Words4 load(int row, int col) const { return from.load(row, col); }
  __device__ __forceinline__ NoEarly place(int) const { return {}; }
  __device__ __forceinline__ void store(int row, NoEarly, int col, Words4 words) const { to.store(row, col, words); }
};
/// gate and up.
struct Silu {
  template <int N> __device__ __forceinline__ static Floats<N> of(Floats<N> x) { return silu(x); }
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
  __device__ __forceinline__ NoEarly place(int) const { return {}; }
  __device__ __forceinline__ void store(int row, NoEarly, int col, Words4 words) const { to.store(row, col, words); }
};
__constant__ wide::Step kSteps[] = {
    wide::rowStep(0), wide::productStep<matrices::WqWkWv>(true, 0, 0), wide::productStep<matrices::Wo>(true, 1, 1),
    wide::rowStep(0), wide::productStep<matrices::GateUp>(true, 0, 2), wide::productStep<matrices::Down>(true, 2, 1),
};

struct Wide {
  __device__ __forceinline__ static Shared &shared() { return sharedOfCta(); }
  __device__ __forceinline__ static int rows() { return sharedOfCta().pass.rows; }
  __device__ __forceinline__ static const wide::Step *steps() { return kSteps; }
  static constexpr wide::Layouts layouts = wide::layoutsOf<matrices::WqWkWv, matrices::Wo, matrices::GateUp, matrices::Down>();
  using Kind = void; // of codes: bf16
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
    switch (number) {
    case 0:
      if (pair < 1024)
        fn(RopeEnd<ToImage>{p.ropeCosSin, 0, {{}, {p.q}}});
      else if (pair < 1280)
        fn(RopeEnd<ToPool>{p.ropeCosSin, 1024, {{}, p.keys + ofLayer}});
      else if (pair < 1536)
        fn(ValueEnd{{}, 1280, {{}, p.values + ofLayer}, p.spoiled});
      break;
    case 1: // wo and down
      if (pair < 1024)
        fn(ResidualEnd{{}, {p.x}, {p.x}});
      break;
    case 2:
      if (pair < 8192)
        fn(GatedEnd<Silu>{{p.h}});
      break;
    }
  }
};

extern "C" {
__device__ void megalith_wide_deal() { wide::dealSteps<Wide>(); }
__device__ void megalith_wide_work() { wide::workOnRows<Wide>(); }
__device__ void megalith_wide_multiply() { wide::multiply<Wide>(); }
__device__ void megalith_wide_weights(int part) { wide::bringWeights<Wide>(Wide::shared().pass.all, part); }
__device__ void megalith_wide_rows() { wide::bringRows<Wide>(Wide::shared().pass.all); }
__device__ void megalith_wide_signal() { wide::signal<Wide>(Wide::shared().pass.all); }
}
