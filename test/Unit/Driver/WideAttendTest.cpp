// Attention of a wide pass (device/wide/WideAttend.cuh) on the CPU executor, which looks for races: in each of two
// layers rows make queries, keys and values, rows attend, and a product takes the result. All of it against the law of
// docs/ir.md, bit by bit.
#include "WideNumbers.h"
#include "device/Shape.h"
#include "megalith/Driver/Compilation.h"
#include "runtime/cpu/CpuEngine.h"
#include <algorithm>
#include <cmath>
#include <cstring>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <random>

namespace megalith {
namespace attend_test {

constexpr int kX = 256, kLayers = 2, kPageTokens = 16, kPages = 640, kTablePages = 168, kMostRuns = 40;
struct Run {
  int slot, firstRow, rows, position, firstToken;
};
struct Shape {
  const char *name;
  int dim, heads, kvHeads;
  float scale;
  std::vector<std::pair<int, int>> runs; ///< rows, and the position of the first one
  bool first = false;                    ///< runs of many kinds, too
  int window = 0;                        ///< of the second layer; the first one has half of it
  float cap = 0;
};
struct Params {
  const char *stream;
  char *x, *q, *attended; ///< images
  char *keys, *values;
  int *pageTable;
  char *parts;
  unsigned *done;
  int rows, runs;
  Run run[kMostRuns];
};

const std::string attendKernel = std::string(R"(#include "megalith/Abi.h"
#include "megalith/Contract/Row.h"
#include "megalith/WideAttend.cuh"
namespace abi = megalith::abi;
using namespace megalith::device;
constexpr int H = HEADS * DIM;
struct Pool {
  static constexpr int model = 0, heads = HEADS, kvHeads = KV_HEADS, headDim = DIM, layers = 2, pages = 640, pageTokens = 16;
#ifdef WINDOW
  static constexpr int mostWindow = WINDOW;
  __device__ static int window(int layer) { return layer ? WINDOW : WINDOW / 2; }
#endif
#ifdef CAP
  static constexpr float softCap = CAP;
#endif
};
struct Down {
  static constexpr int k = H, blocks = paddedColumns(H) / 256, chunkBlocks = 1, group = 1, groups = 32;
  static constexpr long long offset = 0, layerBytes = 256 * paddedColumns(H) * 2;
};
struct Params {
  const char *stream;
  char *x, *q, *attended;
  char *keys, *values;
  int *pageTable;
  char *parts;
  unsigned *done;
  int rows, runs;
  PassRun run[40];
};
)") + sharedOfTest + addEnd + R"(
__constant__ wide::Step kSteps[] = {
    wide::rowStep(0),
    wide::attentionStep(wide::AttendShape<Pool>::tilesOfRow),
    wide::productStep<Down>(true, 0, 0),
};
struct Wide {
  static constexpr float scale = SCALE;
  __device__ static Shared &shared() { return sharedOfCta(); }
  __device__ static int rows() { return sharedOfCta().pass.rows; }
  __device__ static const wide::Step *steps() { return kSteps; }
  static constexpr wide::Layouts layouts = wide::layoutsOf<Down>();
  using Kind = void; // of codes: bf16
  __device__ static const char *stream() { return sharedOfCta().params.stream; }
  __device__ static wide::Operand operand(int, int) { return {sharedOfCta().params.attended, wide::Image<H>::blocks}; }
  __device__ static void await(const u32 *counter, u32 least) {
    while ((int)(loadAcquire(counter) - least) < 0) {
    }
  }
  __device__ static const abi::ModelParams &model() { return sharedOfCta().model; }
  __device__ static int runs() { return sharedOfCta().params.runs; }
  __device__ static PassRun run(int i) { return sharedOfCta().params.run[i]; }
  __device__ static const char *queries(int) { return sharedOfCta().params.q; }
  __device__ static char *attended(int) { return sharedOfCta().params.attended; }
  __device__ static char *parts() {
    return sharedOfCta().params.parts + blockIdx.x * wide::AttendShape<Pool>::partBytes;
  }
  __device__ static Words4 made(Words4 x, int column, int salt) {
    Floats<8> f = Floats<8>(unpack8(x));
    for (int i = 0; i < 8; ++i)
      f.v[i] = f.v[i] * (((column + i) * 37 + salt) % 64 * 0.0625f - 2.0f);
    return pack8(f);
  }
  __device__ static void row(int, int layer, int row) {
    const Params &p = sharedOfCta().params;
    const int tile = row / wide::kTile * wide::kTile;
    const auto x = wide::Image<256>{p.x}.from(tile);
    const auto q = wide::Image<H>{p.q}.from(tile);
    int i = 0;
    while (row >= p.run[i].firstRow + p.run[i].rows)
      ++i;
    const int position = p.run[i].position + row - p.run[i].firstRow;
    const int page = loadWord(pageTableOf(model(), p.run[i].slot) + position / Pool::pageTokens);
    for (int c = laneId() * 8; c < H; c += 256) {
      const Words4 words = x.load(row - tile, c % 256);
      q.store(row - tile, c, made(words, c, 5));
      if (c < KV_HEADS * DIM) {
        const long long at = (pageAddress<Pool>(layer, page, 0, position % Pool::pageTokens) + columnAddress<Pool>(c)) * 2;
        // Not as the callee's result: gcc's instrumentation overlooks what a callee writes as that.
        const Words4 key = made(words, c, 11), value = made(words, c, 23);
        *reinterpret_cast<Words4 *>(p.keys + at) = key;
        *reinterpret_cast<Words4 *>(p.values + at) = value;
      }
    }
  }
  template <class Fn> __device__ static void end(int, int, int pair, Fn fn) {
    if (pair < 128)
      fn(AddEnd<256>{{sharedOfCta().params.x}});
  }
};
__device__ void start(const Params &p, wide::Range all) {
  Shared &shared = sharedOfCta();
  if (threadIdx.x == 0) {
    shared.params = p;
    shared.model = {};
    shared.model.kCache = p.keys;
    shared.model.vCache = p.values;
    shared.model.pageTable = p.pageTable;
    shared.model.pageTableStride = 168;
    shared.pass = {p.rows, all, {}, p.done};
    wide::startSync(shared.sync);
  }
  __syncthreads();
  if (threadIdx.x < 32)
    wide::dealSteps<Wide>();
  __syncthreads();
}
/// Attention alone, layer after layer.
extern "C" __global__ void alone(const Params *params) {
  start(*params, {0, 1, 1, 2});
  const int part = threadIdx.x / 32 - kConsumerWarps;
  for (int layer = 0; layer < 2; ++layer)
    if (part < 0)
      wide::attend<Wide, Pool>(layer);
    else if (part < wide::kWeightWarps)
      wide::bringKeys<Wide, Pool>(layer, part);
    else if (part == wide::kWeightWarps)
      wide::bringQueries<Wide, Pool>(layer);
}
extern "C" __global__ void run(const Params *params) {
  Shared &shared = sharedOfCta();
  start(*params, {0, 1, 0, 3});
  const int warp = threadIdx.x / 32, part = warp - kConsumerWarps;
  if (part > wide::kWeightWarps) {
    wide::signal<Wide>(shared.pass.all);
    return;
  }
  for (int layer = 0; layer < 2; ++layer) {
    const wide::Range product = {layer, layer, 2, 3};
    if (part < 0) {
      if (threadIdx.x == 0)
        shared.pass.now = {layer, layer, 0, 1};
      wide::workOnRows<Wide>();
      wide::attend<Wide, Pool>(layer);
      if (threadIdx.x == 0)
        shared.pass.now = product;
      wide::multiply<Wide>();
    } else if (part < wide::kWeightWarps) {
      wide::bringKeys<Wide, Pool>(layer, part);
      wide::bringWeights<Wide>(product, part);
    } else {
      wide::bringQueries<Wide, Pool>(layer);
      wide::bringRows<Wide>(product);
    }
  }
}
)";

/// (m, z, o) of some positions.
struct Part {
  float m = -INFINITY, z = 0;
  std::vector<float> o;
};
Part joined(const Part &a, const Part &b) {
  if (b.m == -INFINITY && b.z == 0)
    return a;
  if (a.m == -INFINITY && a.z == 0)
    return b;
  const float L = 1.44269504f, m = std::fmax(a.m, b.m);
  const float ea = exp2f((a.m - m) * L), eb = exp2f((b.m - m) * L);
  Part sum{m, a.z * ea + b.z * eb, a.o};
  for (size_t d = 0; d < a.o.size(); ++d)
    sum.o[d] = a.o[d] * ea + b.o[d] * eb;
  return sum;
}

struct WideAttendTest : testing::TestWithParam<Shape> {
  void *library = nullptr;
  void (*bind)(const cpu::Host *) = nullptr;
  void (*kernel)(const Params *) = nullptr, (*alone)(const Params *) = nullptr;
  std::mt19937 random{7};
  const Shape shape = GetParam();
  std::vector<uint16_t> pool[2]; ///< keys, values
  std::vector<int> pageTable;
  std::vector<uint16_t> weights[kLayers];

  void SetUp() override {
    SourceFiles sources;
    Diagnostics diags{sources};
    std::string text = fmt::format("#define DIM {}\n#define HEADS {}\n#define KV_HEADS {}\n#define SCALE {}f\n",
                                   shape.dim, shape.heads, shape.kvHeads, std::to_string(shape.scale));
    if (shape.window)
      text += fmt::format("#define WINDOW {}\n", shape.window);
    if (shape.cap > 0)
      text += fmt::format("#define CAP {}f\n", std::to_string(shape.cap));
    const auto compiled =
        driver::assembleHostText(text + attendKernel, "attend.cu", {.checked = true, .arch = 900}, diags);
    ASSERT_TRUE(compiled) << diags.render();
    library = dlopen(compiled->path.c_str(), RTLD_NOW | RTLD_LOCAL);
    ASSERT_TRUE(library) << dlerror();
    bind = reinterpret_cast<void (*)(const cpu::Host *)>(dlsym(library, "megalith_cpu_bind"));
    kernel = reinterpret_cast<void (*)(const Params *)>(dlsym(library, "run"));
    alone = reinterpret_cast<void (*)(const Params *)>(dlsym(library, "alone"));
    ASSERT_TRUE(bind && kernel && alone);
  }
  void TearDown() override {
    if (library)
      dlclose(library);
  }

  int columns() const { return shape.heads * shape.dim; }
  int padded() const { return (columns() + 255) / 256 * 256; }
  std::vector<uint16_t> numbers(size_t count, float scale) {
    std::uniform_real_distribution<float> any(-scale, scale);
    std::vector<uint16_t> all(count);
    for (uint16_t &number : all)
      number = bf16(any(random));
    return all;
  }
  /// [group][chunk][eighth][tile][block][row 8][64 bytes]: groups and chunks of one.
  std::vector<char> packed() {
    std::vector<char> stream;
    const int blocks = padded() / 256;
    for (const auto &of : weights) {
      const size_t begin = stream.size();
      stream.resize(begin + size_t(kX) * padded() * 2);
      for (int row = 0; row < kX; ++row)
        for (int c = 0; c < columns(); ++c)
          std::memcpy(&stream[begin + ((size_t(row / 8) * blocks + c / 32 % blocks) * 8 + c / (blocks * 32)) * 512 +
                              swizzled(row % 8, c)],
                      &of[size_t(row) * columns() + c], 2);
    }
    return stream;
  }
  size_t placeInPool(int layer, int slot, int position, int column) const {
    const int page = pageTable[slot * kTablePages + position / kPageTokens];
    return (((size_t(layer) * kPages + page) * shape.kvHeads + column / shape.dim) * kPageTokens +
            position % kPageTokens) *
               shape.dim +
           column % shape.dim;
  }

  /// A column of keys and values of positions before the pass. `flat`: all have the same score, and large values come
  /// in pairs whose sum is 0. So what is left over shows in which order they were added.
  void fillPast(int layer, int slot, int positions, int column, bool flat) {
    std::vector<uint16_t> keys = numbers(positions, flat ? 0.0f : 1.0f), values = numbers(positions, 1.0f);
    if (flat)
      for (int i = 2; i + 1 < positions; i += i % 8 == 6 ? 4 : 2) {
        values[i] = bf16(value(values[i]) * float(1 << random() % 13));
        values[i + 1] = values[i] ^ 0x8000;
      }
    std::shuffle(values.begin(), values.end(), random);
    for (int i = 0; i < positions; ++i) {
      pool[0][placeInPool(layer, slot, i, column)] = keys[i];
      pool[1][placeInPool(layer, slot, i, column)] = values[i];
    }
  }
  /// What a head of a row gets.
  void attend(int layer, int slot, int position, int head, const uint16_t *query, uint16_t *to) const {
    const int dim = shape.dim, kvHead = head / (shape.heads / shape.kvHeads);
    const int window = shape.window ? layer ? shape.window : shape.window / 2 : INT32_MAX;
    const int from = position < window ? 0 : position + 1 - window;
    const float L = 1.44269504f;
    const bool late = shape.cap == 0 && shape.scale > 0;
    const float f = late ? shape.scale * L : L, u = late ? shape.scale : 1.0f;
    std::vector<Part> open(4);
    for (int round = from / 256; round <= position / 256; ++round) {
      float s[256];
      float m = -INFINITY;
      for (int i = 0; i < 256; ++i) {
        const int key = round * 256 + i;
        s[i] = -INFINITY;
        if (key < from || key > position)
          continue;
        const uint16_t *k = &pool[0][placeInPool(layer, slot, key, kvHead * dim)];
        float d = 0;
        for (int step = 0; step < dim; step += 16)
          for (int half = 0; half < 4; half += 2)
            for (int t = 0; t < 16; t += 4)
              for (int e = 0; e < 2; ++e)
                d += value(query[step + t + half + e]) * value(k[step + t + half + e]);
        s[i] = late ? d : d * shape.scale;
        if (shape.cap > 0)
          s[i] = tanhf(s[i] / shape.cap) * shape.cap;
        m = std::fmax(m, s[i]);
      }
      const float c = std::fmax(m * f, -3.40282347e38f);
      Part part{m * u, 0, std::vector<float>(dim)};
      uint16_t p[256];
      for (int i = 0; i < 256; ++i)
        p[i] = bf16(exp2f(std::fma(s[i], f, -c)));
      for (int leaf = 0; leaf < 8; ++leaf) {
        float sums[8] = {};
        std::vector<float> chain(dim);
        for (int block = 0; block < 4; ++block)
          for (int e = 0; e < 8; ++e) {
            const int i = 64 * block + 8 * leaf + e, key = round * 256 + i;
            sums[e] += value(p[i]);
            if (key < from || key > position)
              continue;
            const uint16_t *v = &pool[1][placeInPool(layer, slot, key, kvHead * dim)];
            for (int d = 0; d < dim; ++d)
              chain[d] += value(p[i]) * value(v[d]);
          }
        part.z += ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
        for (int d = 0; d < dim; ++d)
          part.o[d] += chain[d];
      }
      for (size_t level = 0, number = round;; ++level, number /= 8) {
        open[level] = joined(open[level], part);
        if (number % 8 != 7)
          break;
        part = std::move(open[level]);
        open[level] = {};
      }
    }
    Part sum = open[0];
    for (size_t level = 1; level < open.size(); ++level)
      sum = joined(open[level], sum);
    for (int d = 0; d < dim; ++d)
      to[d] = bf16(sum.o[d] / sum.z);
  }
  /// A row's sum with a row of weights.
  float product(const uint16_t *of, const uint16_t *row) const {
    float total = -0.0f;
    const int eighth = padded() / 8;
    for (int first = 0; first < padded(); first += eighth) {
      float chain = 0.0f;
      for (int c = first; c < std::min(first + eighth, columns()); ++c)
        chain += value(row[c]) * value(of[c]);
      total += chain;
    }
    return total;
  }
  void make(const uint16_t *x, uint16_t *to, int columns, int salt) const {
    for (int c = 0; c < columns; ++c)
      to[c] = bf16(value(x[c % kX]) * ((c * 37 + salt) % 64 * 0.0625f - 2.0f));
  }

  /// A CTA without units waits for no other one: so its consumers could be two layers ahead of who brings keys.
  void checkLayersWithoutUnits() {
    for (unsigned seed = 0; seed < 8; ++seed) {
      cpu::Executor executor;
      bind(executor.host());
      Params p = {};
      p.done = reinterpret_cast<unsigned *>(executor.allocate("done", 4, cpu::Initial::Zero));
      const auto *params = reinterpret_cast<const Params *>(
          executor.allocate("params", sizeof(p), cpu::Initial::Image, reinterpret_cast<const char *>(&p)));
      cpu::LaunchOptions how;
      how.check = true;
      how.schedule = {.kind = cpu::Schedule::Pct, .seed = seed};
      const auto result = executor.launch({2, shape::kConsumerThreads + 128, 220 << 10}, how, [&] { alone(params); });
      ASSERT_FALSE(result.finding) << seed << ": " << result.finding->what;
    }
  }

  /// Runs of so many rows, from these positions on.
  void check(std::vector<std::pair<int, int>> lengths, int ctas, cpu::Schedule schedule = {}) {
    Params p = {};
    for (const auto &[rows, position] : lengths) {
      p.run[p.runs] = {p.runs, p.rows, rows, position, 0};
      p.rows += rows;
      ++p.runs;
    }
    pageTable.resize(p.runs * kTablePages);
    std::vector<int> pages(kPages);
    for (int i = 0; i < kPages; ++i)
      pages[i] = (i * 37 + 11) % kPages;
    size_t next = 0;
    for (int run = 0; run < p.runs; ++run)
      for (int i = 0; i <= (p.run[run].position + p.run[run].rows - 1) / kPageTokens; ++i)
        pageTable[run * kTablePages + i] = pages.at(next++);
    // NaN, where nothing was written.
    for (auto &of : pool)
      of.assign(size_t(kLayers) * kPages * shape.kvHeads * kPageTokens * shape.dim, 0xffff);
    const int kvColumns = shape.kvHeads * shape.dim;
    for (int layer = 0; layer < kLayers; ++layer)
      for (int run = 0; run < p.runs; ++run)
        for (int column = 0; column < kvColumns; ++column)
          fillPast(layer, run, p.run[run].position, column, run % 2 == 1);
    for (auto &of : weights)
      of = numbers(size_t(kX) * columns(), 0.05f);
    std::vector<uint16_t> x = numbers(size_t(p.rows) * kX, 1.0f);
    const size_t tiles = (p.rows + 127) / 128, imageBytes = tiles * 128 * padded() * 2;
    std::vector<char> image(tiles * 128 * kX * 2);
    for (int row = 0; row < p.rows; ++row)
      for (int c = 0; c < kX; ++c)
        std::memcpy(&image[placeInImage(row, c, kX)], &x[size_t(row) * kX + c], 2);
    const std::vector<char> stream = packed();

    cpu::Executor executor;
    bind(executor.host());
    p.stream = executor.allocate("stream", stream.size(), cpu::Initial::Const, stream.data());
    p.x = executor.allocate("x", image.size(), cpu::Initial::Image, image.data());
    p.q = executor.allocate("q", imageBytes, cpu::Initial::Zero);
    p.attended = executor.allocate("attended", imageBytes, cpu::Initial::Zero);
    for (int which = 0; which < 2; ++which)
      (which ? p.values : p.keys) =
          executor.allocate(which ? "values" : "keys", pool[which].size() * 2, cpu::Initial::Image,
                            reinterpret_cast<char *>(pool[which].data()));
    p.pageTable = reinterpret_cast<int *>(executor.allocate("pages", pageTable.size() * 4, cpu::Initial::Image,
                                                            reinterpret_cast<char *>(pageTable.data())));
    p.parts = executor.allocate("parts", size_t(ctas) * 8 * 34 * 4096, cpu::Initial::Zero);
    p.done = reinterpret_cast<unsigned *>(executor.allocate("done", 2 * tiles * 4, cpu::Initial::Zero));
    const auto *params = reinterpret_cast<const Params *>(
        executor.allocate("params", sizeof(p), cpu::Initial::Image, reinterpret_cast<const char *>(&p)));
    cpu::LaunchOptions how;
    how.check = true;
    how.schedule = schedule;
    const auto result =
        executor.launch({unsigned(ctas), shape::kConsumerThreads + 128, 220 << 10}, how, [&] { kernel(params); });
    std::string parties;
    if (result.finding)
      for (const auto &party : result.finding->parties)
        parties += fmt::format(" | {} CTA {} thread {} pc {}", party.role, party.place.cta, party.place.thread,
                               party.place.pc);
    ASSERT_FALSE(result.finding) << result.finding->what << parties;

    int differ = 0;
    std::vector<uint16_t> q(columns()), row(std::max(columns(), kvColumns)), attended(size_t(p.rows) * columns());
    for (int layer = 0; layer < kLayers; ++layer) {
      for (int run = 0; run < p.runs; ++run)
        for (int i = 0; i < p.run[run].rows; ++i)
          for (int which = 0; which < 2; ++which) {
            make(&x[size_t(p.run[run].firstRow + i) * kX], row.data(), kvColumns, which ? 23 : 11);
            for (int head = 0; head < shape.kvHeads; ++head)
              std::copy_n(&row[head * shape.dim], shape.dim,
                          &pool[which][placeInPool(layer, run, p.run[run].position + i, head * shape.dim)]);
          }
      for (int run = 0; run < p.runs; ++run)
        for (int i = 0; i < p.run[run].rows; ++i) {
          const int of = p.run[run].firstRow + i;
          make(&x[size_t(of) * kX], q.data(), columns(), 5);
          for (int head = 0; head < shape.heads; ++head)
            attend(layer, run, p.run[run].position + i, head, &q[head * shape.dim],
                   &attended[size_t(of) * columns() + head * shape.dim]);
        }
      for (int of = 0; of < p.rows; ++of)
        for (int c = 0; c < kX; ++c)
          x[size_t(of) * kX + c] = bf16(value(x[size_t(of) * kX + c]) + product(&weights[layer][size_t(c) * columns()],
                                                                                &attended[size_t(of) * columns()]));
    }
    for (int of = 0; of < p.rows; ++of)
      for (int c = 0; c < columns(); ++c)
        differ +=
            std::memcmp(p.attended + placeInImage(of, c, columns()), &attended[size_t(of) * columns() + c], 2) != 0;
    EXPECT_EQ(differ, 0) << "attended, of " << attended.size();
    for (int of = 0; of < p.rows; ++of)
      for (int c = 0; c < kX; ++c)
        differ += std::memcmp(p.x + placeInImage(of, c, kX), &x[size_t(of) * kX + c], 2) != 0;
    EXPECT_EQ(differ, 0) << "of x, too";
  }
};

TEST_P(WideAttendTest, Bits) {
  const Shape &shape = GetParam();
  if (shape.first) {
    check({{61, 0}, {3, 2570}, {75, 250}, {1, 0}}, 10);
    checkLayersWithoutUnits();
  }
  check(shape.runs, 2, {.kind = cpu::Schedule::Random, .seed = 3});
}

INSTANTIATE_TEST_SUITE_P(Shapes, WideAttendTest,
                         testing::Values(Shape{"Group4", 64, 4, 1, 0.125f, {{9, 4}}, true},
                                         Shape{"Group1Of96", 96, 2, 2, 0.1f, {{120, 3}, {13, 270}}},
                                         Shape{"Group3Of128", 128, 3, 1, 0.0884f, {{5, 1}, {45, 240}, {90, 2}}},
                                         Shape{"Group7InWindow", 64, 7, 1, 0.125f, {{4, 0}, {22, 700}}, false, 300},
                                         Shape{"Group8Bent", 64, 8, 1, 0.125f, {{11, 30}, {10, 250}}, false, 0, 3.0f},
                                         Shape{"Group16", 32, 16, 1, 0.2f, {{3, 1}, {14, 0}}},
                                         Shape{"Slices", 64, 20, 1, -0.125f, {{1, 0}, {10, 255}}},
                                         Shape{"Group2Of256", 256, 2, 1, 0.0625f, {{6, 3}, {37, 240}}}),
                         [](const auto &info) { return std::string(info.param.name); });

} // namespace attend_test
} // namespace megalith
