#include "TinyModel.h"
#include <algorithm>
#include <cstring>
#include <set>

using namespace tiny;

/// Bit for bit, NaNs and signed zeros included.
static void expectSameLogits(const RunResult &a, const RunResult &b) {
  ASSERT_EQ(a.requests.size(), b.requests.size());
  for (size_t r = 0; r < a.requests.size(); ++r) {
    const auto &x = a.requests[r], &y = b.requests[r];
    EXPECT_EQ(x.tokens, y.tokens) << "request " << r;
    EXPECT_EQ(x.finish, y.finish) << "request " << r;
    ASSERT_EQ(x.logits.size(), x.tokens.size());
    ASSERT_EQ(x.logits.size(), y.logits.size());
    for (size_t i = 0; i < x.logits.size(); ++i) {
      ASSERT_EQ(x.logits[i].size(), size_t(vocab));
      ASSERT_EQ(y.logits[i].size(), size_t(vocab));
      EXPECT_EQ(0, std::memcmp(x.logits[i].data(), y.logits[i].data(), vocab * sizeof(float)))
          << "request " << r << ", token " << i;
    }
  }
}

static Options keepLogits() {
  Options options;
  options.keepLogits = true;
  return options;
}

TEST(Executor, DecodesToTheBudget) {
  RunResult result = run(autoregressive({}), prompts(5, 20));
  ASSERT_EQ(result.requests.size(), 5u);
  for (const auto &r : result.requests) {
    EXPECT_EQ(r.tokens.size(), 20u);
    EXPECT_EQ(r.finish, "length");
  }
  EXPECT_EQ(result.metrics.at("tokens_committed"), 100);
  // Prompts of 1, 5, 9, 13, 17 tokens: all but the last token once, then one row per token.
  EXPECT_EQ(result.rows, (0 + 4 + 8 + 12 + 16) + 100);
}

TEST(Executor, TokensAreTheArgmaxOfTheKeptLogits) {
  RunResult result = run(autoregressive({}), prompts(2, 8), keepLogits());
  for (const auto &r : result.requests)
    for (size_t i = 0; i < r.tokens.size(); ++i)
      EXPECT_EQ(std::max_element(r.logits[i].begin(), r.logits[i].end()) - r.logits[i].begin(), r.tokens[i]);
}

TEST(Executor, StopsAtEosAndAppendsIt) {
  auto requests = prompts(1, 20);
  RunResult free = run(autoregressive({}), requests);
  int32_t eos = free.requests[0].tokens[5];
  requests[0].eos = std::vector<int32_t>{eos};
  RunResult result = run(autoregressive({}), requests);
  const auto &all = free.requests[0].tokens;
  size_t first = std::find(all.begin(), all.end(), eos) - all.begin();
  EXPECT_EQ(result.requests[0].tokens, std::vector<int32_t>(all.begin(), all.begin() + int64_t(first) + 1));
  EXPECT_EQ(result.requests[0].finish, "stop");
}

TEST(Executor, StopsAfterAStopSequence) {
  auto requests = prompts(1, 40);
  RunResult free = run(autoregressive({}), requests);
  const std::vector<int32_t> all = free.requests[0].tokens;
  // Each two or three tokens in turn. With drafts some begin in one append and end in the next.
  for (size_t length : {2, 3})
    for (size_t begin = 0; begin + length <= all.size(); ++begin) {
      const std::vector<int32_t> stop(all.begin() + begin, all.begin() + begin + length);
      requests[0].stop = {{all[begin], -1}, stop};
      const size_t first = std::search(all.begin(), all.end(), stop.begin(), stop.end()) - all.begin();
      const std::vector<int32_t> cut(all.begin(), all.begin() + int64_t(first + length));
      for (const std::string &pipeline : {autoregressive({}), speculative({})}) {
        RunResult result = run(pipeline, requests);
        EXPECT_EQ(result.requests[0].tokens, cut) << begin;
        EXPECT_EQ(result.requests[0].finish, "stop");
      }
    }
}

TEST(Executor, AStopSequenceStandsInGeneratedTokens) {
  auto requests = prompts(1, 20);
  const std::vector<int32_t> all = run(autoregressive({}), requests).requests[0].tokens;
  requests[0].stop = {{requests[0].tokens.back(), all[0]}};
  ASSERT_EQ(std::search(all.begin(), all.end(), requests[0].stop[0].begin(), requests[0].stop[0].end()), all.end());
  EXPECT_EQ(run(autoregressive({}), requests).requests[0].tokens, all);
}

TEST(Executor, ZeroBudgetCompletesAtAdmission) {
  RunResult result = run(autoregressive({}), prompts(3, 0));
  EXPECT_EQ(result.passes, 0);
  EXPECT_EQ(result.requests[2].finish, "length");
  // Never in a slot, but in the trace, since its state changed.
  EXPECT_EQ(result.trace.ticks.at(0).slots.at(2).slot, -1);
  EXPECT_EQ(result.trace.ticks.at(0).slots.at(2).after, "COMPLETE");
}

TEST(Executor, SpeculativeEqualsAutoregressive) {
  auto requests = prompts(5, 40);
  RunResult plain = run(autoregressive({}), requests, keepLogits());
  RunResult drafted = run(speculative({}), requests, keepLogits());
  expectSameLogits(plain, drafted);
  EXPECT_GT(drafted.metrics.at("tokens_accepted"), 0);
  EXPECT_LT(drafted.passes, plain.passes);
}

TEST(Executor, InjectedDraftsKeepTokensAndSavePasses) {
  auto requests = prompts(4, 30);
  RunResult plain = run(autoregressive({}), requests, keepLogits());
  Options perfect = keepLogits();
  for (const auto &r : plain.requests)
    perfect.oracleDrafts.push_back(r.tokens);
  Options half = perfect;
  for (auto &draft : half.oracleDrafts)
    for (size_t i = 1; i < draft.size(); i += 2)
      draft[i] = (draft[i] + 1) % vocab;
  RunResult best = run(speculative({}), requests, perfect);
  RunResult mixed = run(speculative({}), requests, half);
  expectSameLogits(plain, best);
  expectSameLogits(plain, mixed);
  EXPECT_LT(best.passes, mixed.passes);
  EXPECT_LT(best.passes, plain.passes / 2);
}

TEST(Executor, BitsDoNotDependOnPagesChunksOrBatch) {
  auto requests = prompts(5, 24);
  RunResult base = run(speculative({}), requests, keepLogits());
  for (int pageTokens : {1, 3, 16})
    for (int chunk : {1, 7, 16}) {
      Settings s;
      s.pageTokens = pageTokens;
      s.pages = 512 / pageTokens;
      s.chunk = chunk;
      Options options = keepLogits();
      options.shufflePages = 11;
      expectSameLogits(base, run(speculative(s), requests, options));
    }
  Settings alone;
  alone.slots = 1;
  alone.rows = 5;
  expectSameLogits(base, run(speculative(alone), requests, keepLogits()));
}

TEST(Executor, KvHashesDependOnTheTokensOnly) {
  auto requests = prompts(3, 12);
  Options options;
  options.hashKv = true;
  auto hashes = [&](Settings s) {
    RunResult result = run(autoregressive(s), requests, options);
    std::map<std::pair<int32_t, int32_t>, uint64_t> out;
    for (const TraceTick &tick : result.trace.ticks) {
      std::map<int32_t, int32_t> requestOf;
      for (const TraceSlot &slot : tick.slots)
        requestOf[slot.slot] = slot.request;
      for (const TracePass &pass : tick.passes)
        for (size_t i = 0; i < pass.rows.size(); ++i)
          out[{requestOf.at(pass.rows[i].slot), pass.rows[i].position}] = pass.kvHash.at(i);
    }
    return out;
  };
  Settings other;
  other.slots = 1;
  other.chunk = 2;
  other.pageTokens = 3;
  auto a = hashes({});
  EXPECT_EQ(a, hashes(other));
  EXPECT_EQ(a.size(), size_t(0 + 4 + 8 + 3 * 12));
}

TEST(Executor, TickLevelGivesTheTraceOfThePipeLevel) {
  auto requests = prompts(7, 15);
  requests[5].priority = 2;
  RunResult pipe = run(autoregressive({}), requests, keepLogits());
  RunResult tick = run(autoregressiveTick({}), requests, keepLogits());
  EXPECT_EQ(compareTraces(pipe.trace, tick.trace), "");
  expectSameLogits(pipe, tick);
}

TEST(Executor, FusedModelGivesTheSameBits) {
  auto requests = prompts(4, 15);
  Settings fused;
  fused.fused = true;
  RunResult a = run(speculative({}), requests, keepLogits());
  RunResult b = run(speculative(fused), requests, keepLogits());
  EXPECT_EQ(compareTraces(a.trace, b.trace), "");
  expectSameLogits(a, b);
}

TEST(Executor, AdmitsByPriorityThenNumber) {
  auto requests = prompts(4, 3);
  requests[2].priority = 5;
  Settings s;
  s.slots = 1;
  RunResult result = run(autoregressive(s), requests);
  EXPECT_LT(result.requests[2].lastTick, result.requests[0].firstTick);
  EXPECT_LT(result.requests[0].lastTick, result.requests[1].firstTick);
  EXPECT_LT(result.requests[1].lastTick, result.requests[3].firstTick);
}

TEST(Executor, PrefillSharesPassesAndFillsRows) {
  auto requests = prompts(1, 4);
  requests[0].tokens.assign(41, 3);
  Settings s;
  s.rows = 16;
  s.chunk = 16;
  RunResult result = run(autoregressive(s), requests);
  // 40 rows of prefill in chunks of 16, 16, 8, then four tokens.
  EXPECT_EQ(result.passes, 3 + 4);
  EXPECT_EQ(result.trace.ticks[2].passes[0].rows.size(), 8u);
}

TEST(Executor, PromptsLeaveRowsToThoseWhoDecode) {
  auto requests = prompts(3, 12);
  requests[1].tokens.assign(60, 3);
  requests[2].tokens.assign(60, 4);
  Settings s;
  s.chunk = s.rows = 16;
  const auto rowsOfTick = [&](const RunResult &result, size_t tick) {
    std::vector<int64_t> rows(3, 0);
    for (const Row &row : result.trace.ticks.at(tick).passes.at(0).rows)
      ++rows[row.slot];
    return rows;
  };
  // Who waited longer takes the whole pass; the request that decodes waits.
  const RunResult free = run(autoregressive(s), requests);
  EXPECT_EQ(rowsOfTick(free, 0), (std::vector<int64_t>{0, 16, 0}));
  EXPECT_EQ(rowsOfTick(free, 1), (std::vector<int64_t>{0, 0, 16}));
  // It has a row in each pass now. Prompts share six rows in turn, and all while nobody decodes.
  s.beside = 6;
  const RunResult bound = run(autoregressive(s), requests);
  EXPECT_EQ(rowsOfTick(bound, 0), (std::vector<int64_t>{0, 16, 0}));
  for (size_t tick = 1; tick <= 12; ++tick)
    EXPECT_EQ(rowsOfTick(bound, tick), (std::vector<int64_t>{1, tick % 2 ? 0 : 6, tick % 2 ? 6 : 0})) << tick;
  EXPECT_EQ(rowsOfTick(bound, 13), (std::vector<int64_t>{0, 0, 16}));
  for (size_t r = 0; r < requests.size(); ++r)
    EXPECT_EQ(bound.requests[r].tokens, free.requests[r].tokens);
}

TEST(Executor, RowTableFollowsTheContract) {
  auto requests = prompts(2, 10);
  Options options;
  options.oracleDrafts = {{1, 2, 3}, {4, 5, 6}};
  RunResult result = run(speculative({}), requests, options);
  for (const TraceTick &tick : result.trace.ticks)
    for (const TracePass &pass : tick.passes)
      for (size_t i = 0; i < pass.rows.size(); ++i) {
        const Row &row = pass.rows[i];
        EXPECT_EQ(row.kvSlot, row.position);
        EXPECT_EQ(row.visible, row.position + 1);
        EXPECT_EQ(row.parent, row.kvSlot - 1);
        EXPECT_TRUE(i == 0 || pass.rows[i - 1].slot <= row.slot);
        // Prefill wants no logits; verification wants them and is a draft.
        EXPECT_EQ(row.result >= 0, row.flags == (RowWantsLogits | RowIsDraft));
        EXPECT_TRUE(row.result >= 0 || row.flags == 0);
      }
}

TEST(Executor, BlockSizeFollowsTheFormula) {
  auto requests = prompts(1, 60);
  Settings s;
  s.pages = 20; // pressure above 10 pages of 4
  RunResult result = run(speculative(s), requests);
  float ema = 0.8f;
  std::set<double> seen;
  for (const TraceTick &tick : result.trace.ticks) {
    for (const TraceSlot &slot : tick.slots) {
      if (!slot.gauges.count("size.block"))
        continue;
      const auto &rows = tick.passes.at(0).rows;
      float accepted = 0, proposed = float(rows.size() - 1);
      while (accepted < proposed && rows[size_t(accepted)].result == rows[size_t(accepted) + 1].token)
        ++accepted;
      float ratio = proposed == 0 ? 0.0f : accepted / proposed;
      ema = 0.2f * ratio + (1.0f - 0.2f) * ema;
      int block = ema >= 0.5f ? 4 : 1;
      if (100 * tick.live.at("target") > 50 * 20)
        block = std::min(block, 2);
      EXPECT_EQ(slot.gauges.at("size.block"), block) << "tick " << tick.tick;
      EXPECT_EQ(slot.gauges.at("size.ema"), double(ema)) << "tick " << tick.tick;
      seen.insert(block);
    }
  }
  EXPECT_GE(seen.size(), 2u);
}

TEST(Executor, LookupProposesTheMostRecentLongestMatch) {
  // 1 2 3 9 | 2 3 8 | 2 3: the last `2 3` was followed by 8, then 2 3.
  auto requests = prompts(1, 10);
  requests[0].tokens = {1, 2, 3, 9, 2, 3, 8, 2, 3};
  RunResult result = run(speculative({}), requests);
  for (const TraceTick &tick : result.trace.ticks)
    for (const TracePass &pass : tick.passes)
      if (pass.rows[0].position == 8) {
        ASSERT_EQ(pass.rows.size(), 4u);
        EXPECT_EQ(pass.rows[1].token, 8);
        EXPECT_EQ(pass.rows[2].token, 2);
        EXPECT_EQ(pass.rows[3].token, 3);
      }
}

TEST(Executor, ReplayOfTheOwnTraceIsClean) {
  auto requests = prompts(4, 12);
  RunResult base = run(speculative({}), requests);
  Options options;
  options.replay = &base.trace;
  RunResult again = run(speculative({}), requests, options);
  EXPECT_TRUE(again.mismatches.empty());
  EXPECT_EQ(again.replayDifference, "");
}

TEST(Executor, ReplayFollowsAnotherTokenAndReportsIt) {
  auto requests = prompts(1, 6);
  RunResult base = run(autoregressive({}), requests);
  Trace other = base.trace;
  Row &row = other.ticks[2].passes[0].rows[0];
  row.result = (row.result + 1) % vocab;
  Options options;
  options.replay = &other;
  RunResult again = run(autoregressive({}), requests, options);
  ASSERT_FALSE(again.mismatches.empty());
  EXPECT_EQ(again.mismatches[0].tick, 2);
  EXPECT_EQ(again.mismatches[0].row, 0);
  EXPECT_EQ(again.mismatches[0].expected, row.result);
  EXPECT_GT(again.mismatches[0].gap, 0);
  // The next rows of the trace still carry the old token.
  EXPECT_NE(again.replayDifference, "");

  // A gap within the allowance is no mismatch at that row.
  options.replayEpsilon = again.mismatches[0].gap * 1.01;
  RunResult tolerant = run(autoregressive({}), requests, options);
  ASSERT_FALSE(tolerant.mismatches.empty());
  EXPECT_EQ(tolerant.mismatches[0].row, -1);
  EXPECT_EQ(tolerant.mismatches[0].tick, 3);
}

TEST(Executor, TickLimitEndsTheRun) {
  Options options;
  options.maxTicks = 3;
  RunResult result = run(autoregressive({}), prompts(1, 50), options);
  EXPECT_EQ(result.ticks, 3);
  EXPECT_EQ(result.requests[0].finish, "limit");
}

TEST(Executor, MissingTensorIsNamed) {
  Weights weights;
  weights.tensors.erase("layers.1.wo");
  RunResult result = reference::run(parse(autoregressive({})), weights, prompts(1, 2));
  EXPECT_EQ(result.error, "the checkpoint has no tensor `layers.1.wo`");
  weights.tensors["layers.1.wo"] = {{3, 2}, std::vector<uint16_t>(6)};
  result = reference::run(parse(autoregressive({})), weights, prompts(1, 2));
  EXPECT_EQ(result.error, "tensor `layers.1.wo` has the shape [3, 2], the model expects [32, 32]");
}
