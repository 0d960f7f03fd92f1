// What a host wants of a kernel: the rings of a live session, with a host that is written out, and a batch.
#include "../Waiting.h"
#include "megalith/Driver/Compilation.h"
#include "runtime/cpu/CpuEngine.h"
#include "test/Unit/Checkpoint/TempDir.h"

using namespace megalith;

namespace {

class LiveRings : public ::testing::Test {
protected:
  std::unique_ptr<cpu::CpuEngine> load() {
    driver::CompileOptions options;
    options.file = MEGALITH_SOURCE_DIR "/pipelines/autoregressive.yaml";
    options.models = {{"", dir.write("shape.json", R"({"model_type": "llama", "hidden_size": 32, "num_hidden_layers": 1,
        "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "intermediate_size": 48,
        "vocab_size": 70, "rms_norm_eps": 1e-5, "rope_theta": 10000.0})")}};
    options.sets = {{"slots", "2"}, {"kv_pages", "20"}, {"page_tokens", "4"}, {"rows_per_pass", "16"}};
    options.profile = "cpu";
    options.planSettings = {"ctas=1"};
    auto compiled = driver::compile(options, diags);
    EXPECT_TRUE(compiled) << diags.render();
    auto plan = driver::makePlan(compiled->module, options, diags);
    EXPECT_TRUE(plan) << diags.render();
    auto source = driver::emitSource(compiled->module, *plan, diags);
    source.units.more = {"bench.cu", "#include \"megalith/Bench.cuh\"\n"};
    driver::HostOptions how;
    how.quick = true;
    auto kernel = driver::assembleHost(source.units, how, diags);
    EXPECT_TRUE(kernel) << diags.render();
    auto engine = cpu::CpuEngine::loadRandom(kernel->path, source.manifest);
    EXPECT_TRUE(engine) << engine.error.message;
    return engine ? std::move(*engine.value) : nullptr;
  }

  /// Reads until so many requests have ended; how many did.
  int readEnds(runtime::HostRings &rings, int wanted) {
    int ends = 0;
    waiting::waitUntil([&] {
      while (auto update = rings.next([](int) { return 0; }))
        ends += update->news.ended;
      rings.release();
      return ends >= wanted;
    });
    return ends;
  }

  TempDir dir;
  SourceFiles sources;
  Diagnostics diags{sources};
};

/// Where nothing is left to do, control of a batch sleeps until the next request's time. No ticks pass meanwhile.
TEST_F(LiveRings, ABatchSleepsUntilItsNextRequest) {
  const auto engine = load();
  ASSERT_TRUE(engine);
  std::vector<Request> requests = {{"a", {1, 2, 3}, 2, {}, 0}, {"b", {1, 2, 3}, 2, {}, 0}};
  requests[1].arrives.ms = 40;
  runtime::RunOptions options;
  options.realClock = true;
  const auto out = engine->run(requests, options);
  ASSERT_TRUE(out) << out.error.message;
  const auto &ended = out->run.requests;
  EXPECT_EQ(ended[0].tokens.size(), 2u);
  EXPECT_EQ(ended[1].tokens, ended[0].tokens);
  const auto &first = out->run.times[0], &second = out->run.times[1];
  ASSERT_TRUE(second.admitted && !first.appends.empty());
  EXPECT_GE(second.admitted->nanoseconds, 40'000'000u);
  EXPECT_LT(second.admitted->nanoseconds, 41'000'000u);
  EXPECT_LE(second.admitted->tick, first.appends.back().tick + 2);
}

/// What comes too late counts as an event of its tick. More of these than a tick has events do not keep an idle kernel
/// from hearing what comes after them.
TEST_F(LiveRings, CancellationsThatChangeNothingDoNotFillATick) {
  const auto engine = load();
  ASSERT_TRUE(engine);
  runtime::LiveTable table;
  table.entries = 40; // room for 120 orders
  table.tokens = 16;
  table.endWords = 4;
  table.newsSlots = 4;
  auto live = engine->openLive(table, {});
  ASSERT_TRUE(live) << live.error.message;
  runtime::HostMemory memory;
  runtime::HostRings rings((*live)->manifest(), (*live)->layout(), (*live)->rings(), memory, 0);
  ASSERT_FALSE((*live)->launch());
  const Request request = {"a", {1, 2, 3}, 2, {}, 0};
  rings.arrive(0, 0, request, megalith::abi::kNone);
  ASSERT_EQ(readEnds(rings, 1), 1);
  for (int i = 0; i < megalith::abi::kMostHostEvents + 5; ++i)
    rings.cancel(0, 0);
  rings.arrive(0, 1, request, megalith::abi::kNone);
  EXPECT_EQ(readEnds(rings, 1), 1);
  rings.stop(megalith::abi::kStopsNow);
  waiting::waitUntil([&] {
    const auto state = (*live)->poll();
    EXPECT_TRUE(state) << state.error.message;
    return !state || *state == runtime::LiveRun::Launch::Ended;
  });
}

} // namespace
