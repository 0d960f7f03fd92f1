#include "TinyModel.h"
#include <set>

using namespace tiny;

/// All requests but `faulty` give what they give in `base`.
static void expectOnlyFault(const RunResult &result, const RunResult &base, size_t faulty, const std::string &code) {
  for (size_t i = 0; i < result.requests.size(); ++i) {
    if (i == faulty) {
      EXPECT_EQ(result.requests[i].finish, "fault");
      EXPECT_EQ(result.requests[i].fault, code);
    } else {
      EXPECT_EQ(result.requests[i].finish, base.requests[i].finish) << "request " << i;
      EXPECT_EQ(result.requests[i].tokens, base.requests[i].tokens) << "request " << i;
    }
  }
  // Everything was given back.
  const TraceTick &last = result.trace.ticks.back();
  int faults = 0;
  for (const TraceTick &tick : result.trace.ticks)
    faults += int(tick.faults.size());
  EXPECT_EQ(faults, 1);
  EXPECT_FALSE(last.slots.empty());
}

TEST(Faults, RequestThatCanNeverFit) {
  auto requests = prompts(4, 10);
  RunResult base = run(speculative({}), requests);
  requests[1].maxNewTokens = 64 * 4; // the whole pool, and a prompt
  const RunResult result = run(speculative({}), requests);
  expectOnlyFault(result, base, 1, "KV_TOO_LARGE");
  EXPECT_EQ(result.trace.requests[1].faultDetail, "it may need 266 positions, and the pool has 256");
}

TEST(Faults, DraftRowsCountForTheFit) {
  // 1 + 10 tokens and 5 draft rows need 4 pages of 4; without drafts 3 do.
  auto requests = prompts(1, 10);
  Settings s;
  s.pages = 3;
  EXPECT_EQ(run(autoregressive(s), requests).requests[0].finish, "length");
  EXPECT_EQ(run(speculative(s), requests).requests[0].fault, "KV_TOO_LARGE");
  s.pages = 4;
  EXPECT_EQ(run(speculative(s), requests).requests[0].finish, "length");
}

TEST(Faults, ExhaustedPoolFailsOne) {
  auto requests = prompts(2, 16);
  Settings s;
  s.slots = 2;
  RunResult base = run(autoregressive(s), requests);
  s.pages = 8; // 4 and 5 are needed in the end
  RunResult result = run(autoregressive(s), requests);
  size_t faulty = result.requests[0].finish == "fault" ? 0 : 1;
  expectOnlyFault(result, base, faulty, "POOL_EXHAUSTED");
}

TEST(Faults, WaitingForPagesSucceedsWhenOthersEnd) {
  auto requests = prompts(2, 16);
  Settings s;
  s.slots = 2;
  RunResult base = run(autoregressive(s), requests);
  s.pages = 8; // 5 and 6 are reserved: the second request waits for the end of the first, without a slot
  s.onFull = "wait";
  RunResult result = run(autoregressive(s), requests);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(result.requests[i].finish, "length");
    EXPECT_EQ(result.requests[i].tokens, base.requests[i].tokens);
  }
  EXPECT_GT(result.requests[1].firstTick, result.requests[0].lastTick);
}

TEST(Faults, RowsOfACallThatFindsNoPagesGoToOthers) {
  // One row a pass, and pages reserved for the prompts only. Each request comes to need 3 of the
  // 5 pages. The one that finds none is first in turn from then on; the row must go to the other.
  auto requests = prompts(2, 8);
  requests[0].tokens.assign(4, 1);
  requests[1].tokens.assign(3, 2);
  Settings s;
  s.slots = 2;
  s.rows = 1;
  RunResult base = run(autoregressive(s), requests);
  s.pages = 5;
  s.onFull = "wait";
  s.reserve = 0;
  RunResult result = run(autoregressive(s), requests);
  for (size_t i = 0; i < 2; ++i)
    EXPECT_EQ(result.requests[i].tokens, base.requests[i].tokens) << i;
}

TEST(Faults, StandstillEndsTheOneThatWaitsLongest) {
  auto requests = prompts(2, 16);
  Settings s;
  s.slots = 2;
  RunResult base = run(autoregressive(s), requests);
  s.pages = 7;
  s.onFull = "wait";
  s.reserve = 0; // for prompts only
  RunResult result = run(autoregressive(s), requests);
  // Both grow until neither can; then one goes and the other finishes.
  size_t faulty = result.requests[0].finish == "fault" ? 0 : 1;
  expectOnlyFault(result, base, faulty, "POOL_EXHAUSTED");
  // What all have reserved is never missed.
  s.reserve = -1;
  result = run(autoregressive(s), requests);
  for (size_t i = 0; i < 2; ++i)
    EXPECT_EQ(result.requests[i].tokens, base.requests[i].tokens) << i;
}

TEST(Faults, NanHitsItsRequestOnly) {
  auto requests = prompts(4, 10);
  RunResult base = run(autoregressive({}), requests);
  std::set<int32_t> used;
  for (size_t i = 0; i < requests.size(); ++i) {
    used.insert(requests[i].tokens.begin(), requests[i].tokens.end());
    used.insert(base.requests[i].tokens.begin(), base.requests[i].tokens.end());
  }
  // A token that no other request sees.
  int32_t poison = 0;
  while (used.count(poison))
    ++poison;
  ASSERT_LT(poison, vocab);
  requests[2].tokens[3] = poison;
  Weights weights;
  weights.tensors["embed"].data[size_t(poison) * hidden + 5] = 0x7fc0;
  RunResult result = reference::run(parse(autoregressive({})), weights, requests);
  expectOnlyFault(result, base, 2, "NUMERIC");
  EXPECT_TRUE(result.requests[2].tokens.empty());
}

TEST(Faults, CorruptedLengthAndState) {
  auto requests = prompts(3, 12);
  RunResult base = run(speculative({}), requests);
  for (auto [field, value] :
       {std::pair("draft", int64_t(1000)), std::pair("draft", int64_t(-1)), std::pair("state", int64_t(99))}) {
    Options options;
    options.corruptions = {{4, 1, field, value}};
    RunResult result = run(speculative({}), requests, options);
    expectOnlyFault(result, base, 1, "CORRUPT_FIELD");
    EXPECT_EQ(result.trace.ticks.at(4).faults.at(0).request, 1);
  }
}

TEST(Faults, IndexOutOfRange) {
  auto requests = prompts(2, 6);
  std::string text = autoregressive({});
  size_t at = text.find("sub(%dn, %done1)");
  ASSERT_NE(at, text.npos);
  text.replace(at, 3, "add");
  RunResult result = run(text, requests);
  for (const auto &r : result.requests)
    EXPECT_EQ(r.fault, "INDEX_RANGE");
}

TEST(Faults, FedTokenMustBeTheRequests) {
  std::string text = autoregressive({});
  size_t at = text.find("%row = seq.make(%last)");
  ASSERT_NE(at, text.npos);
  text.replace(at, 22, "%w = const {value = 39} : token\n    %row = seq.make(%w)");
  auto requests = prompts(2, 6);
  requests[0].tokens = {39};
  RunResult result = run(text, requests);
  EXPECT_EQ(result.requests[1].fault, "FEED_MISMATCH");

  text.replace(text.find("value = 39"), 10, "value = 40");
  result = run(text, requests);
  EXPECT_EQ(result.requests[1].fault, "TOKEN_RANGE");
}

TEST(Faults, KeptKvBeyondTheLastToken) {
  // Prefill of everything, the last token included.
  std::string text = autoregressive({});
  size_t at = text.find("seq.slice(%t, %a, %b)");
  ASSERT_NE(at, text.npos);
  text.replace(at, 21, "seq.slice(%t, %a, %n)");
  auto requests = prompts(2, 6);
  RunResult result = run(text, requests);
  for (const auto &r : result.requests)
    EXPECT_EQ(r.fault, "KV_INVARIANT");
}

TEST(Faults, KeptKvOfTokensThatWereNotAppended) {
  // Appends one token a fed row, whatever the drafts were, and keeps the KV of the drafts.
  std::string text = speculative({});
  size_t at = text.find("%app = append(%all)");
  ASSERT_NE(at, text.npos);
  text.replace(at, 19, "%app = append(%cb)");
  auto requests = prompts(2, 16);
  Options options;
  // Drafts that cannot be right, but for the first of the second request.
  options.oracleDrafts.assign(2, std::vector<int32_t>(64, 0));
  RunResult base = run(autoregressive({}), requests);
  for (size_t i = 0; i < 2; ++i)
    for (size_t j = 0; j < base.requests[i].tokens.size(); ++j)
      options.oracleDrafts[i][j] = (base.requests[i].tokens[j] + 1) % vocab;
  RunResult result = run(text, requests, options);
  for (const auto &r : result.requests)
    EXPECT_EQ(r.fault, "KV_INVARIANT");
  // Drafts that are all right: the same stage keeps the right KV.
  for (size_t i = 0; i < 2; ++i)
    std::copy(base.requests[i].tokens.begin(), base.requests[i].tokens.end(), options.oracleDrafts[i].begin());
  result = run(text, requests, options);
  for (size_t i = 0; i < 2; ++i)
    EXPECT_EQ(result.requests[i].tokens, base.requests[i].tokens);
}

TEST(Faults, DraftsSurviveUntilTheirKeepInTheNextTick) {
  // `commit` before `verify` in the list: it runs one tick after the verification.
  std::string text = speculative({});
  size_t commit = text.find("  stage @commit"), model = text.find("model @target");
  std::string stage = text.substr(commit, model - commit);
  text.erase(commit, model - commit);
  text.insert(text.find("  stage @propose"), stage);
  auto requests = prompts(3, 24);
  RunResult base = run(speculative({}), requests);
  RunResult result = run(text, requests);
  for (size_t i = 0; i < requests.size(); ++i)
    EXPECT_EQ(result.requests[i].tokens, base.requests[i].tokens);
  EXPECT_GT(result.metrics.at("tokens_accepted"), 0);
}
