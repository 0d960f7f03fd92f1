// The roles of a wide pass (device/wide) on the CPU executor, which looks for races: two products and a row's work in
// each of two layers, against the same sums in the same order.
#include "WideNumbers.h"
#include "device/Shape.h"
#include "megalith/Driver/Compilation.h"
#include "runtime/cpu/CpuEngine.h"
#include <cstring>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <random>

namespace megalith {
namespace {

// 512 columns of x. The first product makes columns of h out of pairs of its sums, the second adds to x.
constexpr int kX = 512, kLayers = 2;
/// How the second product's weights are packed.
struct Packed {
  int columns, group, chunkBlocks;
};

struct Params {
  const char *stream;
  char *x, *n, *h; ///< images
  unsigned *done;
  int rows;
};

const std::string wideKernel = std::string(R"(#include "megalith/Abi.h"
#include "megalith/Contract/Row.h"
#include "megalith/Rows.cuh"
#include "megalith/WideRoles.cuh"
namespace abi = megalith::abi;
using namespace megalith::device;
namespace matrices {
struct Up {
  static constexpr int k = 512, blocks = 2, chunkBlocks = 2, group = 2, groups = H / 8;
  static constexpr long long offset = 0, layerBytes = 2 * H * 512 * 2;
};
struct Down {
  static constexpr int k = H, blocks = H / 256, chunkBlocks = CHUNK_BLOCKS, group = GROUP, groups = 64 / GROUP;
  static constexpr long long offset = 2 * Up::layerBytes, layerBytes = 512 * H * 2;
};
} // namespace matrices
struct Params {
  const char *stream;
  char *x, *n, *h;
  unsigned *done;
  int rows;
};
)") + sharedOfTest + addEnd + R"(
__constant__ wide::Step kSteps[] = {
    wide::rowStep(0),
    wide::productStep<matrices::Up>(true, 0, 0),
    wide::productStep<matrices::Down>(true, 1, 1),
};
struct UpEnd {
  static constexpr auto pairs = wide::Pairs::One;
  static constexpr bool residual = false;
  wide::Image<H> to;
  __device__ void begin(int firstRow, int *words) { to = to.from(firstRow); }
  __device__ wide::Columns columns(int pair) const { return {pair, pair}; }
  __device__ Nothing2 early(int, int, int) const { return {}; }
  __device__ Floats<1> value(int, int, float y0, float y1, Floats<2>, Nothing2) const { return {{y0 - y1}}; }
  __device__ Nothing2 place(int) const { return {}; }
  __device__ void store(int row, Nothing2, int col, Words4 words) const { to.store(row, col, words); }
};
struct Wide {
  __device__ static Shared &shared() { return sharedOfCta(); }
  __device__ static int rows() { return sharedOfCta().pass.rows; }
  __device__ static const wide::Step *steps() { return kSteps; }
  static constexpr wide::Layouts layouts = wide::layoutsOf<matrices::Up, matrices::Down>();
  using Kind = void; // of codes: bf16
  __device__ static const char *stream() { return sharedOfCta().params.stream; }
  __device__ static wide::Operand operand(int number, int) {
    const Params &p = sharedOfCta().params;
    return number == 0 ? wide::Operand{p.n, 16} : wide::Operand{p.h, H / 32};
  }
  __device__ static void await(const u32 *counter, u32 least) {
    while ((int)(loadAcquire(counter) - least) < 0) {
    }
  }
  __device__ static void row(int, int, int row) {
    const Params &p = sharedOfCta().params;
    const int tile = row / wide::kTile * wide::kTile;
    const auto x = wide::Image<512>{p.x}.from(tile), n = wide::Image<512>{p.n}.from(tile);
    for (int c = laneId() * 8; c < 512; c += 256)
      n.store(row - tile, c, pack8(mul(Floats<8>(unpack8(x.load(row - tile, c))), 0.5f)));
  }
  template <class Fn> __device__ static void end(int number, int, int pair, Fn fn) {
    const Params &p = sharedOfCta().params;
    if (number == 0 && pair < H)
      fn(UpEnd{{p.h}});
    else if (number == 1 && pair < 256)
      fn(AddEnd<512>{{p.x}});
  }
};
extern "C" __global__ void run(const Params p) {
  Shared &shared = sharedOfCta();
  if (threadIdx.x == 0) {
    shared.params = p;
    shared.pass = {p.rows, {0, 1, 0, 3}, {}, p.done};
    wide::startSync(shared.sync);
  }
  __syncthreads();
  if (threadIdx.x < 32)
    wide::dealSteps<Wide>();
  __syncthreads();
  const int warp = threadIdx.x / 32;
  if (warp < kConsumerWarps) {
    for (int layer = 0; layer < 2; ++layer) {
      if (threadIdx.x == 0)
        shared.pass.now = {layer, layer, 0, 1};
      wide::workOnRows<Wide>();
      if (threadIdx.x == 0)
        shared.pass.now = {layer, layer, 1, 3};
      wide::multiply<Wide>();
    }
  } else if (warp < kConsumerWarps + wide::kWeightWarps) {
    wide::bringWeights<Wide>(shared.pass.all, warp - kConsumerWarps);
  } else if (warp == kConsumerWarps + wide::kWeightWarps) {
    wide::bringRows<Wide>(shared.pass.all);
  } else {
    wide::signal<Wide>({0, 1, 0, 3});
  }
}
)";

struct WideUnitTest : testing::TestWithParam<Packed> {
  void *library = nullptr;
  void (*bind)(const cpu::Host *) = nullptr;
  void (*kernel)(Params) = nullptr;
  std::mt19937 random{42};
  std::vector<uint16_t> weights[2][kLayers]; ///< [packed row][column]

  void SetUp() override {
    SourceFiles sources;
    Diagnostics diags{sources};
    const auto [columns, group, chunkBlocks] = GetParam();
    const std::string text =
        fmt::format("constexpr int H = {}, GROUP = {}, CHUNK_BLOCKS = {};\n", columns, group, chunkBlocks) + wideKernel;
    const auto compiled = driver::assembleHostText(text, "wide.cu", {.checked = true, .arch = 900}, diags);
    ASSERT_TRUE(compiled) << diags.render();
    library = dlopen(compiled->path.c_str(), RTLD_NOW | RTLD_LOCAL);
    ASSERT_TRUE(library) << dlerror();
    bind = reinterpret_cast<void (*)(const cpu::Host *)>(dlsym(library, "megalith_cpu_bind"));
    kernel = reinterpret_cast<void (*)(Params)>(dlsym(library, "run"));
    ASSERT_TRUE(bind && kernel);
  }
  void TearDown() override {
    if (library)
      dlclose(library);
  }

  int columnsOf(int i) { return i == 0 ? kX : GetParam().columns; }
  std::vector<uint16_t> numbers(size_t count, float scale) {
    std::uniform_real_distribution<float> any(-scale, scale);
    std::vector<uint16_t> all(count);
    for (uint16_t &number : all)
      number = bf16(any(random));
    return all;
  }
  /// [group][chunk][eighth][tile][block][row 8][64 bytes].
  std::vector<char> packed() {
    std::vector<char> stream;
    for (int i = 0; i < 2; ++i)
      for (int layer = 0; layer < kLayers; ++layer) {
        const int k = columnsOf(i), group = i == 0 ? 2 : GetParam().group,
                  chunkBlocks = i == 0 ? 2 : GetParam().chunkBlocks, blocks = k / 256;
        const int rows = int(weights[i][layer].size()) / k;
        const size_t begin = stream.size();
        stream.resize(begin + size_t(rows) * k * 2);
        for (int row = 0; row < rows; ++row)
          for (int c = 0; c < k; ++c) {
            const int eighth = c / (blocks * 32), block = c / 32 % blocks, g = row / 8 / group, tile = row / 8 % group;
            const size_t at =
                ((((size_t(g) * (blocks / chunkBlocks) + block / chunkBlocks) * 8 + eighth) * group + tile) *
                     chunkBlocks +
                 block % chunkBlocks) *
                    512 +
                swizzled(row % 8, c);
            std::memcpy(&stream[begin + at], &weights[i][layer][size_t(row) * k + c], 2);
          }
      }
    return stream;
  }
  /// A row's sum with one packed row of weights.
  float sum(const std::vector<uint16_t> &of, const uint16_t *row, int packedRow, int k) {
    float total = -0.0f;
    for (int eighth = 0; eighth < 8; ++eighth) {
      float chain = 0.0f;
      for (int c = eighth * k / 8; c < (eighth + 1) * k / 8; ++c)
        chain += value(row[c]) * value(of[size_t(packedRow) * k + c]);
      total += chain;
    }
    return total;
  }

  void check(int rows, int ctas, cpu::Schedule schedule = {}) {
    const int columns = columnsOf(1);
    for (int layer = 0; layer < kLayers; ++layer) {
      weights[0][layer] = numbers(2 * columns * kX, 0.1f);
      weights[1][layer] = numbers(kX * columns, 0.1f);
    }
    std::vector<uint16_t> x = numbers(size_t(rows) * kX, 1.0f);
    const size_t tiles = (rows + 127) / 128;
    std::vector<char> image(tiles * 128 * kX * 2);
    for (int row = 0; row < rows; ++row)
      for (int c = 0; c < kX; ++c)
        std::memcpy(&image[placeInImage(row, c, kX)], &x[size_t(row) * kX + c], 2);
    const std::vector<char> stream = packed();

    cpu::Executor executor;
    bind(executor.host());
    Params p = {};
    p.stream = executor.allocate("stream", stream.size(), cpu::Initial::Const, stream.data());
    p.x = executor.allocate("x", image.size(), cpu::Initial::Image, image.data());
    p.n = executor.allocate("n", image.size(), cpu::Initial::Zero);
    p.h = executor.allocate("h", tiles * 128 * columns * 2, cpu::Initial::Zero);
    p.done = reinterpret_cast<unsigned *>(executor.allocate("done", 2 * tiles * 4, cpu::Initial::Zero));
    p.rows = rows;
    cpu::LaunchOptions how;
    how.check = true;
    how.schedule = schedule;
    const auto result =
        executor.launch({unsigned(ctas), shape::kConsumerThreads + 128, 220 << 10}, how, [&] { kernel(p); });
    std::string parties;
    if (result.finding)
      for (const auto &party : result.finding->parties)
        parties += " | " + party.role + " thread " + std::to_string(party.place.thread);
    ASSERT_FALSE(result.finding) << result.finding->what << parties;

    std::vector<uint16_t> n(kX), h(columns);
    int differ = 0;
    for (int row = 0; row < rows; row += row % 5 == 4 ? 7 : 1) { // most of them
      uint16_t *const own = &x[size_t(row) * kX];
      for (int layer = 0; layer < kLayers; ++layer) {
        for (int c = 0; c < kX; ++c)
          n[c] = bf16(value(own[c]) * 0.5f);
        for (int c = 0; c < columns; ++c)
          h[c] = bf16(sum(weights[0][layer], n.data(), 2 * c, kX) - sum(weights[0][layer], n.data(), 2 * c + 1, kX));
        for (int c = 0; c < kX; ++c)
          own[c] = bf16(value(own[c]) + sum(weights[1][layer], h.data(), c, columns));
      }
      for (int c = 0; c < kX; ++c)
        differ += std::memcmp(p.x + placeInImage(row, c, kX), &own[c], 2) != 0;
    }
    EXPECT_EQ(differ, 0) << rows << " rows, " << ctas << " CTAs";
  }
};

TEST_P(WideUnitTest, Bits) {
  check(257, 2);                                           // whole tiles, and a row
  check(140, 10, {.kind = cpu::Schedule::Pct, .seed = 2}); // halves
}
INSTANTIATE_TEST_SUITE_P(Packings, WideUnitTest,
                         testing::Values(Packed{1024, 1, 4}, Packed{512, 1, 2}, Packed{768, 2, 1}, Packed{256, 1, 1}));

} // namespace
} // namespace megalith
