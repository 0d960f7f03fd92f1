//===- LiveLogprobsTest.cpp - what a session tells of logits -===//
#include "LiveTesting.h"
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>

namespace live_testing {

/// Whether what was told of a token is what the softmax of its row says.
static void expectLogprob(const LiveLogprob &told, const std::vector<float> &row, int32_t of, int most) {
  long double sum = 0;
  for (float logit : row)
    sum += std::exp(static_cast<long double>(logit));
  const auto logprob = [&](int32_t token) { return static_cast<double>(row[token] - std::log(sum)); };
  ASSERT_TRUE(told.logprob);
  EXPECT_NEAR(*told.logprob, logprob(of), 1e-9);
  std::vector<int32_t> order(row.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return row[a] > row[b]; });
  EXPECT_EQ(order.at(told.rank - 1), of);
  ASSERT_EQ(std::ssize(told.likeliest), most);
  for (int k = 0; k < most; ++k) {
    EXPECT_EQ(told.likeliest[k].token, order[k]);
    EXPECT_NEAR(told.likeliest[k].logprob, logprob(order[k]), 1e-9);
  }
}

/// Whether a request was told what the softmax of a run's logits says. `logits` of all tokens of the run.
static void expectLogprobs(const Heard::One &is, const RequestResult &should, int most) {
  ASSERT_EQ(is.tokens, should.tokens);
  ASSERT_EQ(is.logprobs.size(), is.tokens.size());
  const size_t vocabulary = should.logits.size() / std::max<size_t>(1, should.tokens.size());
  for (size_t i = 0; i < is.tokens.size(); ++i) {
    SCOPED_TRACE(i);
    const std::vector<float> row(should.logits.begin() + i * vocabulary, should.logits.begin() + (i + 1) * vocabulary);
    expectLogprob(is.logprobs[i], row, is.tokens[i], most);
  }
}

class LiveLogprobs : public ::testing::TestWithParam<std::tuple<const char *, Device>> {};

/// Of requests that ask for them and others, side by side and one after the other in the same lines.
TEST_P(LiveLogprobs, AreThoseOfTheLogitsOfARun) {
  const auto &[pipeline, device] = GetParam();
  const Kernel kernel = loaded(compiled(pipeline, {{"slots", "2"}, {"kv_pages", "64"}}), device);
  std::vector<Request> requests;
  for (int i = 0; i < 6; ++i) {
    Request r = request(i == 3 ? 0 : 3 + i % 4 * 5, {}); // one without tokens takes nobody's lines
    r.id = "r" + std::to_string(i);
    for (int k = 0; k < 12 + i; ++k) // it repeats itself, so that drafts are kept
      r.tokens.push_back(97 + k % 4);
    if (std::string(pipeline) == "priority_serving.yaml")
      r.sampling.temperature = static_cast<float>(i % 3);
    requests.push_back(r);
  }
  auto results = kernel.run(requests, {.seed = 9, .logits = true});
  ASSERT_TRUE(results) << results.errors().text();
  // Where rows may be a tree, drafts need some, too.
  LiveSession session =
      opened(kernel, {.places = 4, .seed = 9, .logitLines = std::string(pipeline)[0] == 't' ? 200 : 30});
  const auto logprobsOf = [](size_t i) { return i % 3 == 2 ? -1 : static_cast<int>(i); };
  for (size_t i = 0; i < requests.size(); ++i)
    ASSERT_EQ(*session.submit(requests[i], i, 0ms, logprobsOf(i)), i);
  ASSERT_TRUE(session.stop());
  Heard heard;
  listen(session, heard);
  for (size_t i = 0; i < requests.size(); ++i) {
    SCOPED_TRACE(requests[i].id.text);
    if (logprobsOf(i) < 0)
      EXPECT_TRUE(heard.of[i].logprobs.empty());
    else
      expectLogprobs(heard.of[i], results->requests[i], logprobsOf(i));
  }
  // No increment is so large here that it is not counted by itself.
  const LiveStats stats = session.stats();
  EXPECT_GT(stats.metrics.at("tokens_committed"), 0);
  for (const auto &[name, value] : stats.metrics) {
    const std::vector<int64_t> &times = stats.increments.at(name);
    ASSERT_EQ(times.size(), 32u);
    int64_t sum = 0;
    for (size_t by = 0; by < times.size(); ++by)
      sum += static_cast<int64_t>(by) * times[by];
    EXPECT_EQ(sum, value) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(All, LiveLogprobs,
                         ::testing::Values(std::tuple("priority_serving.yaml", Device::Reference),
                                           std::tuple("speculative_lookup.yaml", Device::Reference),
                                           std::tuple("token_tree_lookup.yaml", Device::Reference),
                                           std::tuple("speculative_lookup.yaml", Device::Cpu),
                                           std::tuple("token_tree_lookup.yaml", Device::Cpu)));

struct OfPrompt {
  int64_t budget, length;
  int logprobs, promptLogprobs;
};
static const std::vector<OfPrompt> ofPrompts = {
    {2, 19, 1, 2}, {0, 18, -1, 0}, {2, 9, -1, -1}, {1, 1, 0, 1}, {1, 12, -1, 1}};

static std::vector<int32_t> prompt(int64_t length) {
  std::vector<int32_t> out;
  for (int64_t k = 0; k < length; ++k)
    out.push_back(static_cast<int32_t>(97 + k * k % 23));
  return out;
}

static Kernel narrow(const char *pipeline, Device device, const char *rows = "16") { // a prompt takes several passes
  return loaded(compiled(pipeline, {{"slots", "2"},
                                    {"kv_pages", "64"},
                                    {"page_tokens", "16"},
                                    {"rows_per_pass", rows},
                                    {"prefill_chunk", rows}}),
                device);
}

static Heard hearPrompts(const Kernel &kernel, const std::vector<OfPrompt> &prompts = ofPrompts,
                         int64_t logitLines = 60) {
  LiveSession session = opened(kernel, {.places = 4, .logitLines = logitLines});
  for (const OfPrompt &each : prompts)
    EXPECT_TRUE(session.submit(request(each.budget, prompt(each.length)), 0, 0ms, each.logprobs, each.promptLogprobs));
  EXPECT_TRUE(session.stop());
  Heard heard;
  listen(session, heard);
  return heard;
}

static void expectAsAsked(const Heard &heard) {
  for (size_t i = 0; i < ofPrompts.size(); ++i) {
    SCOPED_TRACE(i);
    const Heard::One &is = heard.of.at(i);
    EXPECT_EQ(is.end->finish, "length");
    EXPECT_EQ(std::ssize(is.tokens), ofPrompts[i].budget);
    EXPECT_EQ(is.end->generated, ofPrompts[i].budget);
    EXPECT_EQ(is.logprobs.size(), ofPrompts[i].logprobs < 0 ? 0 : is.tokens.size());
    ASSERT_EQ(std::ssize(is.promptLogprobs), ofPrompts[i].promptLogprobs < 0 ? 0 : ofPrompts[i].length);
    for (size_t k = 0; k < is.promptLogprobs.size(); ++k)
      EXPECT_EQ(is.promptLogprobs[k].logprob.has_value(), k > 0) << k;
  }
}

class PromptLogprobs : public ::testing::TestWithParam<std::tuple<const char *, Device>> {};

/// The row that predicts a token of a prompt is the one that a request with the prompt up to there draws from, whatever
/// else is under way.
TEST_P(PromptLogprobs, AreThoseOfShorterPrompts) {
  const auto &[pipeline, device] = GetParam();
  if (device == Device::Cuda && !std::filesystem::exists("/dev/nvidiactl"))
    GTEST_SKIP() << "there is no GPU";
  const Kernel kernel = narrow(pipeline, device);
  const Heard heard = hearPrompts(kernel);
  expectAsAsked(heard);
  std::vector<Request> each;
  const std::vector<int64_t> lengths = {1, 9, 15, 16, 17, 18};
  for (int64_t length : lengths) {
    each.push_back(request(1, prompt(length)));
    each.back().id = RequestId::ofInteger(std::to_string(length));
  }
  auto results = kernel.run(each, {.logits = true});
  ASSERT_TRUE(results) << results.errors().text();
  for (size_t i = 0; i < ofPrompts.size(); ++i)
    for (size_t k = 0; k < lengths.size(); ++k)
      if (const int64_t token = lengths[k]; ofPrompts[i].promptLogprobs >= 0 && token < ofPrompts[i].length) {
        SCOPED_TRACE(i);
        SCOPED_TRACE(token);
        expectLogprob(heard.of.at(i).promptLogprobs[token], results->requests[k].logits, prompt(token + 1)[token],
                      ofPrompts[i].promptLogprobs);
      }
}

INSTANTIATE_TEST_SUITE_P(All, PromptLogprobs,
                         ::testing::Values(std::tuple("autoregressive.yaml", Device::Reference),
                                           std::tuple("sampled.yaml", Device::Reference),
                                           std::tuple("token_tree_lookup.yaml", Device::Reference),
                                           std::tuple("token_tree_lookup.yaml", Device::Cpu)));
INSTANTIATE_TEST_SUITE_P(Gpu, PromptLogprobs,
                         ::testing::Values(std::tuple("autoregressive.yaml", Device::Cuda),
                                           std::tuple("sampled.yaml", Device::Cuda),
                                           std::tuple("token_tree_lookup.yaml", Device::Cuda)));

/// Rows of drafts do not say how likely a prompt is. So who asks is told before anything runs.
static void expectSameOfPrompts(const char *pipeline, const std::vector<OfPrompt> &prompts) {
  std::vector<Heard> heard;
  for (const char *rows : {"16", "200"})
    heard.push_back(hearPrompts(narrow(pipeline, Device::Cpu, rows), prompts, 400));
  for (size_t i = 0; i < prompts.size(); ++i) {
    SCOPED_TRACE(i);
    const Heard::One &is = heard[1].of.at(i), &should = heard[0].of.at(i);
    EXPECT_EQ(is.tokens, should.tokens);
    ASSERT_EQ(is.promptLogprobs.size(), should.promptLogprobs.size());
    for (size_t k = 0; k < is.promptLogprobs.size(); ++k)
      EXPECT_EQ(is.promptLogprobs[k].logprob, should.promptLogprobs[k].logprob) << k;
  }
  EXPECT_EQ(std::ssize(heard[1].of.at(0).promptLogprobs), prompts[0].length);
}
/// Where a pass runs in pieces, rows of prompts whose logits are wanted are in the last one; or in all, of a call of
/// which a stage reads the last row alone.
TEST(Live, PiecesOfAPassTellTheSameOfPrompts) {
  expectSameOfPrompts("token_tree_lookup.yaml", {{2, 100, 0, 1}, {1, 40, 0, -1}});
  expectSameOfPrompts("sampled.yaml", {{2, 150, 0, 1}, {1, 40, 0, -1}});
}

TEST(Live, PipelinesThatFeedPromptsAsDraftsTellNoLogprobsOfThem) {
  EXPECT_EQ(serving().whyNoPromptLogprobs(), "");
  const std::string pipeline = R"(
pipeline: draft_prompts
models:
  target: {}
params: {slots: 2, rows_per_pass: 16}
request:
  fed: i32 = 0
states:
  fault: FAILED
  QUEUED:   {initial: true, next: [PREFILL]}
  PREFILL:  {slot: true, next: [PREFILL, DECODE]}
  DECODE:   {slot: true, next: [DECODE, COMPLETE]}
  COMPLETE: {terminal: true}
  FAILED:   {terminal: true}
kv:
  target: {pages: 32, page_tokens: 16, on_full: fail}
stages:
  admit: {on: QUEUED, do: [], goto: PREFILL}
  prefill:
    on: PREFILL
    progress: fed
    do:
      - target(tokens[kv.target.len:-1][:8], kv=draft, keep=none)
      - fed: min(fed + 8, len(tokens) - 1)
      - kv.target.keep: fed
    goto: DECODE if kv.target.lag == 1 else PREFILL
  decode:
    on: DECODE
    do:
      - append(argmax(target([last])))
    goto: COMPLETE if finished else DECODE
)";
  auto program = Program::compile({.file = MEGALITH_SOURCE_DIR "/pipelines/drafts.yaml",
                                   .texts = {{MEGALITH_SOURCE_DIR "/pipelines/drafts.yaml", pipeline}},
                                   .models = {{"", MEGALITH_SOURCE_DIR "/models/demo"}}});
  ASSERT_TRUE(program) << program.errors().text();
  LiveSession session = opened(loaded(*program), {.logitLines = 40});
  for (int64_t length : {1, 30, 60}) // there is a row for it or not
    EXPECT_REFUSED(
        session.submit(request(1, prompt(length)), 0, 0ms, -1, 0),
        "request `0` wants logprobs of its prompt, and the pipeline has none: it feeds prompts to `target` by "
        "calls with `kv=draft` (" MEGALITH_SOURCE_DIR "/pipelines/drafts.yaml:23); ask without them, or feed "
        "prompts by a call without `kv=draft` [live-prompt-logprobs]");
  EXPECT_TRUE(session.submit(request(2, prompt(30)), 0, 0ms, 1));
  ASSERT_TRUE(session.stop());
  Heard heard;
  listen(session, heard);
  EXPECT_EQ(heard.of.at(0).logprobs.size(), 2u);
}

/// A canvas is no prediction of its tokens: it is filled in any order, and nothing of it is kept.
TEST(Live, TokensThatNoRowPredictedHaveNoLogprobs) {
  const Kernel kernel = loaded(compiled("canvas_refinement.yaml", {{"slots", "2"}}));
  LiveSession session = opened(kernel, {.logitLines = 1000});
  ASSERT_TRUE(session.submit(request(12), 0, 0ms, 1));
  ASSERT_TRUE(session.stop());
  Heard heard;
  listen(session, heard);
  ASSERT_EQ(heard.of[0].logprobs.size(), 12u);
  for (const LiveLogprob &told : heard.of[0].logprobs) {
    EXPECT_FALSE(told.logprob);
    EXPECT_TRUE(told.likeliest.empty());
  }
}

/// Requests wait for lines on the host: those that need none go past them, and they go in their order.
TEST(Live, RequestsWaitForLinesOfLogits) {
  const Kernel kernel = loaded(serving());
  LiveSession session = opened(kernel, {.queue = 8, .logitLines = 1000});
  EXPECT_REFUSED(session.submit(request(1001), 0, 0ms, 3), "it needs 1001 rows of logits, and the session has 1000");
  ASSERT_TRUE(session.submit(request(900), 0, 0ms, 3));
  Heard heard;
  listenForTokens(session, heard, 0);
  for (int64_t budget : {1000, 2, 900}) // the second one has room, but waits after the first
    ASSERT_TRUE(session.submit(request(budget), 0, 0ms, 0));
  ASSERT_TRUE(session.submit(request(2)));
  listen(session, heard, [&] { return heard.finish(4) == "length"; });
  EXPECT_FALSE(heard.of[0].end);
  EXPECT_EQ(heard.of[4].logprobs.size(), 0u);
  EXPECT_EQ(session.stats().waiting, 3u);
  ASSERT_TRUE(session.submit(request(900), 0, 0ms, 0));
  // Half of the queue is for requests that need no lines.
  EXPECT_REFUSED(session.submit(request(1), 0, 0ms, 0), "4 requests wait already");
  ASSERT_TRUE(session.submit(request(1)));
  ASSERT_TRUE(session.cancel(1));
  listen(session, heard, [&] { return heard.finish(1) == "cancelled" && heard.finish(2) == "length"; });
  EXPECT_FALSE(heard.of[0].end);
  EXPECT_EQ(heard.of[2].logprobs.size(), 2u);
  ASSERT_TRUE(session.cancel(0)); // gives its lines back
  listenForTokens(session, heard, 3);
  EXPECT_EQ(heard.of[0].logprobs.size(), heard.of[0].tokens.size());
  // The last one waits while the session stops.
  ASSERT_TRUE(session.cancel(3));
  ASSERT_TRUE(session.stop());
  listen(session, heard);
  EXPECT_EQ(heard.finish(5), "length");
  EXPECT_EQ(heard.of[5].logprobs.size(), 900u);
  EXPECT_TRUE(heard.of[5].logprobs.back().likeliest.empty());
}

} // namespace live_testing
