// The reducers of device/Reducers.cuh on the CPU executor, against what the reference executor makes of a whole row.
#include "device/Abi.h"
#include "device/Shape.h"
#include "megalith/Driver/Compilation.h"
#include "megalith/IR/Reducers.h"
#include "megalith/Reference/Reduce.h"
#include "runtime/Edits.h"
#include "runtime/cpu/CpuEngine.h"
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <limits>
#include <random>
#include <span>

namespace megalith {
namespace {

constexpr int kRows = 24, kVocab = 1003;

const char *const selectionKernel = R"(#include "megalith/Device.cuh"
namespace abi = megalith::abi;
using namespace megalith::device;
constexpr int kRows = 24, kVocab = 1003;
struct Shared {
  abi::LaunchParams params;
  PassShared pass;
  GridEdges grid;
  u32 stopped;
  PassDraws<kRows> draws;
  alignas(16) float scratch[kSelectionScratchBytes / 4];
  u64 keys[2][kConsumerWarps];
};
template <class Number> __device__ void reduce(const abi::LaunchParams &p, const float *logits, int rows) {
  Shared &shared = *reinterpret_cast<Shared *>(dynamicShared());
  PassShared &pass = shared.pass;
  if (threadIdx.x == 0) {
    shared.params = p;
    shared.stopped = 0;
    shared.grid = {&shared.params, &shared.stopped};
    pass.numRows = rows;
    pass.tick = 7;
    pass.wantLogits = kRunsHead | kQueries;
    pass.number = 1;
    pass.firstRow = 0;
    for (int row = 0; row < rows; ++row)
      pass.rows[row].flags = megalith::RowWantsLogits;
    if (blockIdx.x == 0)
      tellQueries(shared.grid, pass);
  }
  consumerSync();
  takeQueries(shared.grid, 0, pass, shared.draws);
  consumerSync();
  const KeptLogits<Number, kVocab> kept{p.selection};
  Words4 *const bests = reinterpret_cast<Words4 *>(p.flagged), *const drawn = bests + kRows * gridDim.x;
  for (int row = 0; row < rows; ++row) {
    Best best, draw;
    for (int c = 2 * (int)(threadIdx.x * gridDim.x + blockIdx.x); c < kVocab; c += 2 * (int)gridDim.x * kConsumerThreads) {
      const float *at = logits + row * kVocab + c;
      const Floats<2> pair = {{__ldg(at), c + 1 < kVocab ? __ldg(at + 1) : 5.0f}};
      best.take(pair.v[0], c);
      if (c + 1 < kVocab)
        best.take(pair.v[1], c + 1);
      takeDraws(kept, shared.draws.rows[row], draw, c, pair);
    }
    best.takeLanes();
    draw.takeLanes();
    if (laneId() == 0) {
      shared.keys[0][warpId()] = best.key;
      shared.keys[1][warpId()] = draw.key;
    }
    consumerSync();
    if (threadIdx.x < 2) {
      Best b;
      for (u64 key : shared.keys[threadIdx.x])
        b.take(key);
      storeFlagged((threadIdx.x ? drawn : bests) + row * gridDim.x + blockIdx.x,
                  {(u32)b.key, (u32)(b.key >> 32), pass.number, 0});
    }
    consumerSync();
  }
  if (shared.draws.queries && !settleQueries(shared.grid, 0, shared.draws, kept, bests, drawn, shared.scratch,
                                            EditedColumns<>{false, sliceColumns<decltype(kept)>()}))
    return;
  gridEdge(shared.grid, 0);
  if (blockIdx.x == 0) {
    reduceBest(shared.grid, 0, pass, bests, {});
    reduceDraws(shared.grid, 0, pass, shared.draws, drawn);
    if (shared.draws.queries)
      finishQueries(shared.grid, 0, shared.draws, kept, shared.scratch);
  }
}
extern "C" __global__ void reduce16(const abi::LaunchParams p, const float *logits, int rows) {
  reduce<u16>(p, logits, rows);
}
extern "C" __global__ void reduce32(const abi::LaunchParams p, const float *logits, int rows) {
  reduce<float>(p, logits, rows);
}
)";

/// What changes rows of some queries. Nothing of it goes by a text.
Request editing() {
  Request request;
  request.sampling.bias = {{3, 2.5f}, {40, -7.0f}, {kVocab - 1, 4.0f}};
  for (int token = 0; token < kVocab; token += 3)
    request.sampling.banned.push_back(token);
  return request;
}

/// What the reference executor makes of a row.
std::vector<uint32_t> expectedOf(const abi::RowQuery &query, std::span<const float> logits) {
  std::vector<uint32_t> out(query.count, ~0u);
  const Request edits = editing();
  if (query.edits != abi::kNone && std::any_of(logits.begin(), logits.end(), [](float z) { return std::isnan(z); }))
    return std::vector<uint32_t>(query.count, abi::kNanOfEdited);
  if (std::any_of(logits.begin(), logits.end(), [](float z) { return std::isnan(z); }))
    return out;
  RowReduction with;
  with.reducer = Reducer(query.reducer);
  with.probs = query.part;
  with.temperature = query.temperature;
  with.topK = query.topK;
  with.topP = query.topP;
  with.minP = query.minP;
  with.runSeed = query.key[0];
  with.requestSeed = query.key[1];
  with.position = query.position;
  with.noise = int(query.purpose / 2);
  with.token = query.token;
  with.n = query.count;
  if (query.edits != abi::kNone)
    with.edits.settings = &edits.sampling;
  const std::vector<int32_t> values = reduceRow(with, logits);
  std::copy(values.begin(), values.end(), out.begin());
  return out;
}

float toBf16(float v) {
  uint32_t bits = std::bit_cast<uint32_t>(v);
  if (std::isnan(v))
    return v;
  bits += 0x7fff + (bits >> 16 & 1);
  return std::bit_cast<float>(bits & 0xffff0000u);
}

struct SelectionTest : testing::Test {
  void *library = nullptr;
  using Kernel = void (*)(abi::LaunchParams, const float *, int);
  Kernel rounded = nullptr, whole = nullptr;
  void (*bind)(const cpu::Host *) = nullptr;
  std::mt19937 random{42};

  void SetUp() override {
    SourceFiles sources;
    Diagnostics diags{sources};
    const auto compiled =
        driver::assembleHostText(selectionKernel, "selection.cu", {.checked = true, .arch = 900}, diags);
    ASSERT_TRUE(compiled) << diags.render();
    library = dlopen(compiled->path.c_str(), RTLD_NOW | RTLD_LOCAL);
    ASSERT_TRUE(library) << dlerror();
    bind = reinterpret_cast<void (*)(const cpu::Host *)>(dlsym(library, "megalith_cpu_bind"));
    rounded = reinterpret_cast<Kernel>(dlsym(library, "reduce16"));
    whole = reinterpret_cast<Kernel>(dlsym(library, "reduce32"));
    ASSERT_TRUE(bind && rounded && whole);
  }
  void TearDown() override {
    if (library)
      dlclose(library);
  }

  template <class T> T pick(std::initializer_list<T> list) { return list.begin()[random() % list.size()]; }

  /// Rows of logits: wide ones, flat ones, with many equal ones, with infinities, with a NaN.
  void fillRow(float *row, int kind, bool round) {
    std::normal_distribution<float> normal;
    const float spread = pick({0.01f, 1.0f, 3.0f, 20.0f}), middle = pick({0.0f, -30.0f, 15.0f});
    for (int i = 0; i < kVocab; ++i) {
      float z = middle + spread * normal(random);
      if (kind == 1)
        z = std::round(z);
      if (kind == 2 && random() % 3 == 0)
        z = -std::numeric_limits<float>::infinity();
      if (kind == 3)
        z = 0.0f * (random() % 2 ? 1.0f : -1.0f);
      row[i] = round ? toBf16(z) : z;
    }
    if (kind == 4)
      row[random() % kVocab] = 60.0f; // one token has nearly all
    if (kind == 5)
      row[random() % kVocab] = std::numeric_limits<float>::quiet_NaN();
    if (kind == 6)
      row[random() % kVocab] = std::numeric_limits<float>::infinity();
  }

  abi::RowQuery someQuery(int row, int &words) {
    abi::RowQuery query = {};
    query.hand = abi::kNone;
    query.row = query.line = row;
    query.reducer = 1 + int(random() % 6);
    query.count = 1;
    const auto reducer = Reducer(query.reducer);
    if (reducer == Reducer::Sample || reducer == Reducer::TopK)
      query.count = pick({1, 1, 2, 5, 64});
    query.part = reducer == Reducer::TopK ? int(random() % 2) : 0;
    query.temperature = pick({0.0f, 0.3f, 0.8f, 1.0f, 1.3f});
    query.topK = pick({0, 0, 1, 5, 40, 500, kVocab - 1, kVocab});
    query.topP = pick({1.0f, 1.0f, 0.0f, 1e-6f, 0.3f, 0.9f, 0.999f});
    query.minP = pick({0.0f, 0.0f, 0.05f, 1.0f});
    query.key[0] = random();
    query.key[1] = random();
    query.position = int(random() % 1000);
    query.purpose = pick({0u, 2u, 14u});
    query.token = reducer == Reducer::Prob ? int(random() % kVocab) : -1;
    query.edits = random() % 2 ? 0 : abi::kNone;
    query.text = abi::kNone;
    query.at = words;
    words += query.count;
    return query;
  }

  void check(bool round, int rows, int ctas, int queriesOfRow, int seed) {
    random.seed(seed);
    std::vector<float> logits(size_t(rows) * kVocab);
    for (int row = 0; row < rows; ++row)
      fillRow(&logits[size_t(row) * kVocab], int(random() % 7), round);
    int words = 0;
    std::vector<abi::RowQuery> queries;
    std::vector<abi::RowDraw> draws(kRows, abi::RowDraw{0, -1, {0, 0}, 0, 0, 0, 0});
    for (int row = 0; row < rows; ++row) {
      for (int i = 0; i < queriesOfRow; ++i) {
        queries.push_back(someQuery(row, words));
        draws[row].kept = 2 * row + 1;
      }
      if (abi::RowQuery &query = queries.back(); random() % 2 && Reducer(query.reducer) == Reducer::Sample) {
        query.count = query.guessed = 1;
        if (query.edits == abi::kNone)
          draws[row] = {query.temperature, -1, {query.key[0], query.key[1]}, query.position, query.purpose,
                        2 * row + 1,       1};
      } else if (random() % 2) {
        abi::RowDraw &draw = draws[row];
        draw.temperature = pick({0.0f, 0.7f, 1.0f});
        draw.at = words++;
        draw.position = row * 3;
        draw.key[1] = random();
      }
    }
    const size_t ofRows = kRows * (sizeof(abi::RowDraw) + sizeof(abi::RowEdit));
    std::vector<char> memory(16 + ofRows + queries.size() * sizeof(abi::RowQuery));
    const std::vector<char> edits = runtime::editsOf(editing(), abi::kNone, kVocab);
    const int count = int(queries.size());
    std::memcpy(memory.data(), &count, 4);
    std::memcpy(memory.data() + 16, draws.data(), kRows * sizeof(abi::RowDraw));
    std::memcpy(memory.data() + 16 + ofRows, queries.data(), queries.size() * sizeof(abi::RowQuery));

    cpu::Executor executor;
    bind(executor.host());
    abi::LaunchParams p = {};
    p.queries = executor.allocate("queries", memory.size(), cpu::Initial::Image, memory.data());
    p.edits = executor.allocate("edits", edits.size(), cpu::Initial::Const, edits.data());
    p.selection = executor.allocate("selection", shape::selectionBytes(kRows, kVocab, round ? 2 : 4, ctas, kVocab),
                                    cpu::Initial::Unwritten);
    p.reduced = reinterpret_cast<unsigned *>(executor.allocate("reduced", words * 4 + 16, cpu::Initial::Zero));
    p.flagged = executor.allocate("flagged", 2 * kRows * ctas * 16, cpu::Initial::Zero);
    p.sync = reinterpret_cast<unsigned *>(executor.allocate("sync", abi::kSyncWords * 4, cpu::Initial::Zero));
    p.stop =
        reinterpret_cast<abi::StopRecord *>(executor.allocate("stop", sizeof(abi::StopRecord), cpu::Initial::Zero));
    const auto *values = reinterpret_cast<const float *>(
        executor.allocate("logits", logits.size() * 4, cpu::Initial::Const, logits.data()));
    cpu::LaunchOptions how;
    how.check = true;
    const auto result = executor.launch({unsigned(ctas), shape::kConsumerThreads, 48 << 10}, how,
                                        [&] { (round ? rounded : whole)(p, values, rows); });
    ASSERT_FALSE(result.finding) << result.finding->what;
    for (const abi::RowQuery &query : queries) {
      const std::span<const float> row(&logits[size_t(query.row) * kVocab], kVocab);
      const std::vector<uint32_t> found(p.reduced + query.at, p.reduced + query.at + query.count);
      EXPECT_EQ(found, expectedOf(query, row))
          << ir::reducers()[query.reducer].name.str() << " of row " << query.row << ", temperature "
          << query.temperature << ", top_k " << query.topK << ", top_p " << query.topP << ", min_p " << query.minP
          << ", n " << query.count << ", token " << query.token << ", seed " << seed;
    }
    for (int row = 0; row < rows; ++row)
      if (const abi::RowDraw &draw = draws[row]; draw.at >= 0) {
        abi::RowQuery query = {};
        query.hand = abi::kNone;
        query.reducer = int(Reducer::Sample);
        query.count = 1;
        query.key[1] = draw.key[1];
        query.position = draw.position;
        query.temperature = draw.temperature;
        query.topP = 1;
        query.edits = abi::kNone;
        const std::span<const float> of(&logits[size_t(row) * kVocab], kVocab);
        EXPECT_EQ(p.reduced[draw.at], expectedOf(query, of)[0]) << "draw of row " << row << ", seed " << seed;
      }
  }
};

TEST_F(SelectionTest, OneRowOfBf16) {
  for (int seed = 0; seed < 20; ++seed)
    check(true, 1, 1 + seed % 4, 2, seed);
}
TEST_F(SelectionTest, OneRowOfF32) {
  for (int seed = 100; seed < 100 + 20; ++seed)
    check(false, 1, 1 + seed % 4, 2, seed);
}
TEST_F(SelectionTest, SeveralRows) {
  for (int seed = 200; seed < 204; ++seed) {
    check(true, 7, 3, 1, seed);
    check(false, kRows, 2, 3, seed); // more queries than are settled together
  }
}

} // namespace
} // namespace megalith
