#include "megalith/Tools.h"
#include <gtest/gtest.h>

namespace megalith::tools {
namespace {

const std::string pipelines = MEGALITH_SOURCE_DIR "/pipelines/", demo = MEGALITH_SOURCE_DIR "/models/demo";

Expected<Program> compile(const char *pipeline, bool weights = true) {
  return Program::compile(
      {.file = pipelines + pipeline, .models = {{"", demo}}, .params = {{"page_tokens", "16"}}, .weights = weights});
}

TEST(Measure, ReadsATrace) {
  auto program = compile("speculative_lookup.yaml");
  ASSERT_TRUE(program) << program.errors().text();
  EXPECT_TRUE(takesDrafts(*program));
  auto kernel = Kernel::load(*program, {.device = Device::Reference});
  ASSERT_TRUE(kernel);
  // A prompt is fed; then two verifies, of two drafts and of none. After the last one 17 of 32 positions are valid.
  Results results;
  results.trace =
      R"({"megalith_trace":2,"pipeline":"p"}
{"tick":0,"live":{"target":0},"passes":[{"model":"target","rows":[[0,5,0,0,1,-1,0,-1]]}],)"
      R"("slots":[{"slot":0,"request":0,"before":"QUEUED","after":"PROPOSE","kv":[{"pool":"target","len":1,"pages":[3]}]}]}
{"tick":1,"live":{"target":1},"passes":[{"model":"target","rows":[[0,6,1,1,2,-1,3,7],[0,7,2,2,3,0,3,9],[0,8,3,3,4,1,3,9]]}],)"
      R"("slots":[{"slot":0,"request":0,"before":"PROPOSE","after":"PROPOSE","kv":[{"pool":"target","len":16,"pages":[3,4]}]}]}
{"tick":2,"live":{"target":2},"passes":[{"model":"target","rows":[[0,9,16,16,17,-1,3,1]]}],)"
      R"("slots":[{"slot":0,"request":0,"before":"PROPOSE","after":"PROPOSE","kv":[{"pool":"target","len":17,"pages":[3,4]}]}]}
{"results":[{"id":"a","tokens":[],"finish":"limit","state":"PROPOSE"}],"metrics":{}}
)";
  auto figures = figuresOf(*kernel, results);
  ASSERT_TRUE(figures) << figures.errors().text();
  EXPECT_EQ(figures->leastBlock, 0);
  EXPECT_EQ(figures->mostBlock, 2);
  EXPECT_EQ(figures->meanBlock, 1);
  EXPECT_EQ(figures->pagesMost, 2);
  EXPECT_DOUBLE_EQ(figures->fragmentation, 1 - (1 + 16 + 17) / (16.0 + 32 + 32));
  EXPECT_FALSE(figures->bytes) << "there is no GPU";
  EXPECT_FALSE(readBandwidth(*kernel)->has_value());

  results.trace = "{}";
  EXPECT_EQ(figuresOf(*kernel, results).errors().first().kind, "trace-key");
}

TEST(Measure, TellsKernelsApart) {
  auto plain = compile("autoregressive.yaml", false);
  ASSERT_TRUE(plain) << plain.errors().text();
  EXPECT_FALSE(takesDrafts(*plain));
  EXPECT_EQ(paramNames(*plain).front(), "slots");
  const std::string own = identityOf(*plain, {});
  EXPECT_EQ(own, identityOf(*compile("autoregressive.yaml", false), {}));
  EXPECT_NE(own, identityOf(*compile("speculative_lookup.yaml", false), {}));
  EXPECT_NE(own, identityOf(*compile("autoregressive.yaml", true), {})) << "the weights' files count";
  EXPECT_NE(own, identityOf(*plain, {.wholeKernel = true}));
  auto other = recompile(*plain, {{"slots", "2"}, {"prefill_chunk", "4"}});
  ASSERT_TRUE(other);
  EXPECT_EQ(other->param("slots"), 2);
  EXPECT_EQ(other->param("prefill_chunk"), 4);
  EXPECT_NE(own, identityOf(*other, {}));
}

TEST(Measure, CountsWhatIsReadOfWindows) {
  EXPECT_EQ(kvBytesRead({{0, 3}, {10, 2}, {40, 3}}, 25), 3 * 25 + 2 * 10 + 3 * 25);
  EXPECT_EQ(kvBytesRead({}, 25), 0) << "without attention";
}

TEST(Measure, ChecksWhatItIsGiven) {
  auto plain = compile("autoregressive.yaml", false);
  ASSERT_TRUE(plain);
  const Request fits = {.id = "a", .tokens = {1}, .maxNewTokens = 4},
                large = {.id = "b", .tokens = {1}, .maxNewTokens = 1 << 20};
  EXPECT_TRUE(checkRequests(*plain, {fits, fits}));
  EXPECT_EQ(checkRequests(*plain, {fits, large}).errors().first().kind, "request-too-large");
  // Random weights need a kernel, and none needs them compiled.
  EXPECT_EQ(loadToMeasure(*plain, {.device = Device::Reference}, Weights::Random).errors().first().kind,
            "kernel-program");
  EXPECT_EQ(compileAhead({*plain}, {.device = Device::Cpu}, Weights::Checkpoint).errors().first().kind,
            "kernel-program");
  EXPECT_TRUE(compileAhead({*plain}, {.device = Device::Reference}, Weights::Random));
}

} // namespace
} // namespace megalith::tools
