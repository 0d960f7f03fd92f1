// Control and the resident loop with wide passes, on the CPU executor, which looks for races. What a wide pass computes is
// left out: every row gets K and V that tell its token and its position.
#include "megalith/Driver/Compilation.h"
#include "runtime/cpu/CpuEngine.h"
#include "runtime/cpu/Explorer.h"
#include "test/Unit/Checkpoint/TempDir.h"
#include <gtest/gtest.h>

namespace megalith {
namespace {

/// What the emitted text does not have.
const char *const kHooks = R"(
  __device__ static void beginWide() { ++sharedOfCta().pass_; }
  __device__ static void bringWide(int role) {
    auto &shared = sharedOfCta();
    if (role != 1)
      return;
    fenceAsyncShared();
    barrierArriveExpectOfWarp(&shared.landed, 1024);
    copyBulkOfWarp(shared.ring, shared.params.models[0].stream, 1024, &shared.landed);
  }
  __device__ static bool runWide() {
    auto &shared = sharedOfCta();
    const PassShared &pass = shared.pass;
    barrierAwait(&shared.landed, shared.pass_ & 1);
    shared.scratch[threadIdx.x] = reinterpret_cast<float *>(shared.ring)[threadIdx.x];
    consumerSync();
    reinterpret_cast<float *>(shared.ring)[threadIdx.x] = 0.0f;
    const auto &of = modelOf<Pool>(shared.params);
    for (int i = 0; i < pass.runs; ++i) {
      const PassRun run = pass.byRuns.run[i];
      for (int row = blockIdx.x; row < run.rows; row += gridDim.x) {
        const int position = run.position + row;
        const int page = int(loadWord(pageTableOf(of, run.slot) + position / Pool::pageTokens));
        const u32 token = loadWord(shared.params.tokens + run.firstToken + row);
        for (int layer = 0; layer < Pool::layers; ++layer)
          for (int c = threadIdx.x; c < Pool::kvHeads * Pool::headDim; c += kConsumerThreads) {
            const long long at = pageAddress<Pool>(layer, page, 0, position % Pool::pageTokens) + columnAddress<Pool>(c);
            const_cast<u16 *>(reinterpret_cast<const u16 *>(of.kCache))[at] = u16(0x3c00 + token);
            const_cast<u16 *>(reinterpret_cast<const u16 *>(of.vCache))[at] = u16(0x3c00 + position);
          }
      }
    }
    return loadFlag(shared.grid.stoppedHere) == 0;
  })";

class WideLoopTest : public ::testing::Test {
protected:
  WideLoopTest() {
    options.file = MEGALITH_SOURCE_DIR "/pipelines/autoregressive.yaml";
    options.models = {{"", dir.write("shape.json", R"({"model_type": "llama", "hidden_size": 32, "num_hidden_layers": 2,
        "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "intermediate_size": 48,
        "vocab_size": 70, "rms_norm_eps": 1e-5, "rope_theta": 10000.0})")}};
    options.sets = {{"slots", "4"}, {"kv_pages", "120"}, {"page_tokens", "8"}, {"rows_per_pass", "260"}, {"prefill_chunk", "260"}};
    options.planSettings = {"ctas=3", "ring=3"};
    options.profile = "cpu";
    int length = 0;
    for (const int size : {150, 90, 3, 140, 60, 130}) {
      Request r;
      r.id = std::to_string(size);
      for (int i = 0; i < size; ++i)
        r.tokens.push_back(++length * 7 % 60 + 3);
      r.maxNewTokens = 2;
      requests.push_back(r);
    }
  }

  /// The pipeline's kernel, with wide passes or without.
  std::unique_ptr<cpu::CpuEngine> engine(bool wide) {
    auto compiled = driver::compile(options, diags);
    auto plan = compiled ? driver::makePlan(compiled->module, options, diags) : std::nullopt;
    if (!plan)
      return nullptr;
    plan->wide = wide;
    driver::Source source = driver::emitSource(compiled->module, *plan, diags);
    std::string &text = source.units.tensors.text;
    const auto after = [&](const std::string &place, const std::string &added) {
      const size_t at = text.find(place);
      ASSERT_NE(at, std::string::npos) << place;
      text.insert(at + place.size(), added);
    };
    if (wide) {
      after("  RingShared sync;\n", "  u64 landed; // completes once per wide pass\n  u32 pass_; // number of wide passes, less 1\n");
      after("struct Model {\n", kHooks);
      after("void start(const abi::LaunchParams &p) { ", "barrierInit(&sharedOfCta().landed, 1); barriersReady(); sharedOfCta().pass_ = ~0u; ");
    }
    source.units.more = {"bench.cu", "#include \"megalith/Bench.cuh\"\n"}; // makes weights
    const auto assembled = driver::assembleHost(source.units, {.checked = true}, diags);
    EXPECT_TRUE(assembled) << diags.render();
    if (!assembled)
      return nullptr;
    auto loaded = cpu::CpuEngine::loadRandom(assembled->path, source.manifest);
    EXPECT_TRUE(loaded) << loaded.error.message;
    return loaded ? std::move(*loaded.value) : nullptr;
  }
  Trace trace(cpu::CpuEngine &of, runtime::RunOptions how = {}) {
    how.trace = true;
    auto outcome = of.run(requests, how, {.check = true});
    EXPECT_TRUE(outcome) << outcome.error.message;
    std::string parties;
    if (outcome->launch.finding)
      for (const auto &party : outcome->launch.finding->parties)
        parties += " | " + party.role + " thread " + std::to_string(party.place.thread);
    EXPECT_FALSE(outcome->launch.finding) << outcome->launch.finding->what << parties;
    return outcome ? outcome->run.trace : Trace();
  }

  TempDir dir;
  SourceFiles sources;
  Diagnostics diags{sources};
  driver::CompileOptions options;
  std::vector<Request> requests;
};

TEST_F(WideLoopTest, TracesAreThoseOfPieces) {
  const auto pieces = engine(false), wide = engine(true);
  ASSERT_TRUE(pieces && wide) << diags.render();
  Trace expected = trace(*pieces);
  runtime::RunOptions how;
  how.replay.emplace();
  int large = 0, alone = 0;
  for (const TraceTick &tick : expected.ticks)
    for (const TracePass &pass : tick.passes) {
      for (const Row &row : pass.rows)
        how.replay->push_back(row.result);
      const auto unread = std::count_if(pass.rows.begin(), pass.rows.end(), [](const Row &row) { return !(row.flags & RowWantsLogits); });
      large += unread > 128;
      alone += unread > 128 && unread == int64_t(pass.rows.size());
    }
  EXPECT_GT(alone, 0);
  EXPECT_GT(large, alone) << "some have rows that are read, too";
  EXPECT_EQ(formatTrace(trace(*wide, how)), formatTrace(expected));

  // Of rows that ran in wide passes the hash depends on token and position.
  how.kvHash = true;
  std::map<std::pair<int, int>, uint64_t> hashes;
  const Trace hashed = trace(*wide, how);
  for (const TraceTick &tick : hashed.ticks)
    for (const TracePass &pass : tick.passes) {
      ASSERT_EQ(pass.kvHash.size(), pass.rows.size());
      const auto unread = std::count_if(pass.rows.begin(), pass.rows.end(), [](const Row &row) { return !(row.flags & RowWantsLogits); });
      for (size_t i = 0; unread > 128 && i < size_t(unread); ++i) {
        const auto [at, added] = hashes.insert({{pass.rows[i].token, pass.rows[i].position}, pass.kvHash[i]});
        EXPECT_EQ(at->second, pass.kvHash[i]);
      }
    }
  std::set<uint64_t> different;
  for (const auto &[row, hash] : hashes)
    different.insert(hash);
  EXPECT_GT(different.size(), hashes.size() * 9 / 10);
}

TEST_F(WideLoopTest, NoRaceAndNoStandstill) {
  requests.resize(3);
  const auto wide = engine(true);
  ASSERT_TRUE(wide) << diags.render();
  for (const bool stall : {false, true}) {
    runtime::RunOptions how;
    how.watchdogSeconds = 0.01; // of the executor's clock
    cpu::ExploreOptions explore;
    explore.schedules = 3;
    explore.shrinkRuns = 0;
    explore.stall = stall;
    const auto result = cpu::explore(*wide, requests, how, explore);
    ASSERT_TRUE(result) << result.error.message;
    EXPECT_FALSE(result->failure) << result->failure->kind << ", " << cpu::nameOf(result->failure->schedule)
                                  << (stall ? ", a CTA stands still" : "");
  }
}

} // namespace
} // namespace megalith
