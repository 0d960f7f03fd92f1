// The kernels of `megalith bench`, on the CPU executor with every access checked.
#include "megalith/Driver/Compilation.h"
#include "runtime/cpu/CpuEngine.h"
#include "test/Unit/Checkpoint/TempDir.h"
#include <dlfcn.h>
#include <gtest/gtest.h>

using namespace megalith;

namespace {

class BenchKernelTest : public ::testing::Test {
protected:
  static constexpr const char *benchUnit = "#include \"megalith/Bench.cuh\"\n";
  std::string assemble(std::optional<emit::Units> units, int arch = 900) {
    if (units)
      units->more = {"bench.cu", benchUnit};
    const driver::HostOptions how = {.checked = true, .arch = arch};
    auto kernel =
        units ? driver::assembleHost(*units, how, diags) : driver::assembleHostText(benchUnit, "bench.cu", how, diags);
    EXPECT_TRUE(kernel) << diags.render();
    return kernel ? kernel->path : "";
  }

  TempDir dir;
  SourceFiles sources;
  Diagnostics diags{sources};
};

class ReadStreamTest : public BenchKernelTest, public ::testing::WithParamInterface<int> {};

/// The words that a chunk does not begin with are 0: both variants have the same sum.
TEST_P(ReadStreamTest, ReadsEveryChunk) {
  void *library = dlopen(assemble(std::nullopt, GetParam()).c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_TRUE(library) << dlerror();
  auto bind = reinterpret_cast<void (*)(const cpu::Host *)>(dlsym(library, "megalith_cpu_bind"));
  auto read = reinterpret_cast<void (*)(const char *, unsigned, unsigned, unsigned, unsigned *)>(
      dlsym(library, "megalith_read"));
  ASSERT_TRUE(bind && read);
  {
    cpu::Executor executor;
    bind(executor.host());
    constexpr unsigned chunks = 11, words = 16384 / 4, ctas = 3, passes = 2;
    std::vector<unsigned> image(chunks * words);
    unsigned expected = 0;
    for (unsigned c = 0; c < chunks; ++c)
      expected += passes * (image[c * words] = 1u << 2 * c);
    const char *source = executor.allocate("source", image.size() * 4, cpu::Initial::Const, image.data());
    auto *sum = reinterpret_cast<unsigned *>(executor.allocate("sum", 16, cpu::Initial::Zero));
    for (unsigned stages : {1u, 3u, 12u}) // fewer, and more than a CTA has chunks
      for (unsigned seed = 0; seed < 20; ++seed) {
        executor.reset(reinterpret_cast<char *>(sum), cpu::Initial::Zero);
        cpu::LaunchOptions how;
        how.check = true;
        how.schedule = {seed % 2 ? cpu::Schedule::Pct : cpu::Schedule::Random, seed};
        const auto result =
            executor.launch({ctas, 256, stages * (16384 + 8)}, how, [&] { read(source, chunks, passes, stages, sum); });
        ASSERT_FALSE(result.finding) << result.finding->what << ", " << stages << " stages, seed " << seed;
        ASSERT_EQ(*sum, expected) << stages << " stages, seed " << seed;
      }
  }
  dlclose(library);
}

INSTANTIATE_TEST_SUITE_P(Architectures, ReadStreamTest, ::testing::Values(800, 900));

/// Random weights, K and V in place, records of the ticks, stamps: nothing of it races.
TEST_F(BenchKernelTest, AStampedKernelRunsOnRandomWeights) {
  driver::CompileOptions options;
  options.file = MEGALITH_SOURCE_DIR "/pipelines/autoregressive.yaml";
  options.models = {{"", dir.write("shape.json", R"({"model_type": "llama", "hidden_size": 32, "num_hidden_layers": 2,
      "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "intermediate_size": 48,
      "vocab_size": 70, "rms_norm_eps": 1e-5, "rope_theta": 10000.0})")}};
  options.sets = {{"slots", "2"}, {"kv_pages", "20"}, {"page_tokens", "4"}, {"rows_per_pass", "16"}};
  options.planSettings = {"stamps=1"};
  options.profile = "cpu";
  auto compiled = driver::compile(options, diags);
  ASSERT_TRUE(compiled) << diags.render();
  auto plan = driver::makePlan(compiled->module, options, diags);
  ASSERT_TRUE(plan) << diags.render();
  const auto source = driver::emitSource(compiled->module, *plan, diags);
  auto engine = cpu::CpuEngine::loadRandom(assemble(source.units), source.manifest);
  ASSERT_TRUE(engine) << engine.error.message;
  const runtime::Manifest &m = (*engine)->manifest();
  std::vector<std::string> names;
  for (const auto &stamp : m.stamps)
    names.push_back(stamp.name + (stamp.layer < 0 ? "" : std::to_string(stamp.layer)));
  EXPECT_EQ(names, (std::vector<std::string>{"control", "x", "wq_wk_wv operand0", "wq_wk_wv0", "attention0", "wo0",
                                             "gate_up operand0", "gate_up0", "down0", "wq_wk_wv operand1", "wq_wk_wv1",
                                             "attention1", "wo1", "gate_up operand1", "gate_up1", "down1",
                                             "head operand", "head", "results"}));

  const std::vector<Request> requests = {
      {"a", {1, 2, 3, 4, 5, 6, 7}, 3, {}, 0}, {"b", {9}, 3, {}, 0}, {"c", std::vector<int32_t>(30, 5), 2, {}, 0}};
  runtime::RunOptions how;
  how.kvInPlace = 20;
  how.tickRecords = 16;
  how.stampTicks = 4;
  std::optional<runtime::RunOutcome> first;
  for (unsigned seed = 0; seed < 6; ++seed) {
    cpu::LaunchOptions launch;
    launch.check = true;
    launch.schedule = {seed == 0  ? cpu::Schedule::RoundRobin
                       : seed % 2 ? cpu::Schedule::Pct
                                  : cpu::Schedule::Random,
                       seed};
    auto outcome = (*engine)->run(requests, how, launch);
    ASSERT_TRUE(outcome) << outcome.error.message;
    ASSERT_FALSE(outcome->launch.finding) << outcome->launch.finding->what << ", seed " << seed;
    if (!first)
      first = outcome->run;
    EXPECT_EQ(runtime::differenceOf(*first, outcome->run), "");
  }
  ASSERT_EQ(first->requests.size(), 3u);
  for (const auto &r : first->requests)
    EXPECT_EQ(r.finish, "length") << r.fault;
  // Rows that were fed: of c, 9 tokens after the 20 in place, then the last and one more.
  EXPECT_EQ(first->requests[0].rows, 3);
  EXPECT_EQ(first->requests[1].rows, 3);
  EXPECT_EQ(first->requests[2].rows, 9 + 2);

  const auto &ticks = first->tickRecords;
  ASSERT_EQ(static_cast<int64_t>(ticks.size()), first->ticks + 1);
  EXPECT_EQ(ticks[0].open, 3);
  EXPECT_EQ(ticks[0].prompts, 3) << "nobody has a slot yet";
  EXPECT_EQ(ticks[1].prompts, 1) << "the third waits for one";
  EXPECT_EQ(ticks[1].kvTokens, 6 + 0);
  EXPECT_EQ(ticks[1].rows, 2);
  EXPECT_EQ(ticks[2].generated, 2);
  EXPECT_EQ(ticks.back().open, 0);
  for (size_t t = 0; t + 1 < ticks.size(); ++t)
    EXPECT_LT(ticks[t].begin, ticks[t + 1].begin);

  // Of the last tick, each CTA has every event, in order, but the five operands that a pass of one row leaves out.
  const size_t words = 2 * m.stamps.size();
  for (int64_t cta = 0; cta < m.ctas; ++cta) {
    const uint64_t *stamps = first->stamps.data() + (((first->ticks - 1) % 4) * m.ctas + cta) * words;
    uint64_t last = stamps[0];
    int left = 0;
    EXPECT_GT(last, 0u);
    for (size_t i = 0; i < words; ++i) {
      if (m.stamps[i / 2].name.find("operand") != std::string::npos) {
        left += stamps[i] < stamps[0]; // of an earlier tick
        continue;
      }
      EXPECT_LE(last, stamps[i]) << "CTA " << cta << ", word " << i;
      last = stamps[i];
    }
    EXPECT_EQ(left, 10) << "CTA " << cta;
  }
}

} // namespace
