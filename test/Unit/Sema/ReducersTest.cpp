//===- ReducersTest.cpp - rows of logits and what reads them --------------===//
#include "PipelineBase.h"

namespace megalith::test {

/// The base pipeline with these statements in place of `best: argmax(...)`. Something reads `best`.
static Check reduced(const std::string &statements) {
  return check({{"- best: argmax(target([last] + draft, kv=draft))", statements}});
}

/// What the first message says, without its place.
static std::string said(const Check &c) {
  const size_t begin = c.messages.find("error: ");
  return begin == std::string::npos ? c.messages
                                    : c.messages.substr(begin + 7, c.messages.find('\n', begin) - begin - 7);
}

TEST(Reducers, SeveralReadOneCall) {
  Check c = reduced(R"(- l: target([last] + draft, kv=draft)
      - best: sample(l, sampling, noise=1)
      - p: prob(l, draft, sampling)
      - h: entropy(l[1:], temperature=0.5, top_k=3)
      - again: sample(l, sampling, noise=1)
      - pmx: max_prob(l[-1:])
      - trace: p[0] + h[0] + pmx[0] if again[0] == best[0] else logsumexp(l)[0])");
  ASSERT_TRUE(c.pipeline) << c.messages;
  const sema::Expr &call = *c.pipeline->stages[2].body[1].values[0];
  ASSERT_EQ(call.kind, sema::Expr::ModelCall);
  std::string names;
  for (const sema::Reduction &r : call.as<sema::Call>().reductions->list) {
    names += r.name + " " + r.type.str() + ":";
    for (const sema::Operand &operand : r.with)
      names += " " + operand.name;
    names += "\n";
  }
  EXPECT_EQ(names, "sample token[5]: temperature top_k top_p min_p noise\n"
                   "prob f32[4]: tokens temperature top_k top_p min_p\n"
                   "entropy f32[4]: first temperature top_k\n"
                   "max_prob f32[1]: first\n"
                   "logsumexp f32[5]:\n");
}

TEST(Reducers, MisspeltSampling) {
  const auto near = [](const std::string &statements) {
    const std::string messages = reduced(statements).messages;
    const size_t at = messages.find("did you mean ");
    return at == std::string::npos ? messages : messages.substr(at + 13, messages.find('?', at) - at - 13);
  };
  for (const std::string word : {"samplng", "sampl", "Sampling", "smapling"}) {
    const std::string call = "- best: sample(target([last] + draft, kv=draft)";
    EXPECT_EQ(near(call + ", " + word + ")"), "`sampling`");
    EXPECT_EQ(near(call + ", sampling=" + word + ")"), "`sampling`");
    EXPECT_EQ(near(call + ", " + word + "=sampling)"), "`sampling`");
    EXPECT_EQ(near(call + ")\n      - trace: " + word + ".top_p"), "`sampling`");
    EXPECT_EQ(near(call + ")\n      - trace: " + word), "`sampling`");
  }
}

TEST(Reducers, WhatTheyAreGivenIsKnownAtTheCall) {
  const struct {
    const char *statements, *message;
  } cases[] = {
      {"- l: target([last] + draft, kv=draft)\n      - best: argmax(l)\n      - own: argmax(l)\n"
       "      - p: prob(l, own)\n      - trace: p[0]",
       "`tokens` of `prob` must be known before the pass, but `own` is assigned after the call [reducer-late]"},
      {"- l: target([last] + draft, kv=draft)\n      - best: argmax(l)\n      - draft: draft[1:]\n"
       "      - p: prob(l, draft)\n      - trace: p[0]",
       "`tokens` of `prob` must be known before the pass, but `draft` may change between the call and here "
       "[reducer-late]"},
      {"- l: target([last] + draft, kv=draft)\n      - best: sample(l, noise=kv.target.len)",
       "`noise` of `sample` must be known before the pass, but the pool of `target` may change between the call and "
       "here [reducer-late]"},
      {"- l: target([last] + draft, kv=draft)\n      - append(draft)\n      - best: sample(l, noise=budget)",
       "`noise` of `sample` must be known before the pass, but what is appended may change between the call and here "
       "[reducer-late]"},
      {"- l: target([last] + draft, kv=draft)\n      - best: argmax(l)\n      - size.observe: 1, 1\n"
       "      - p: sample(l, noise=size.width)\n      - trace: p[0]",
       "`noise` of `sample` must be known before the pass, but `size.width` may change between the call and here "
       "[reducer-late]"},
      {"- l: target([last] + draft, kv=draft)\n      - best: argmax(l)\n"
       "      - n: count(i in 0..len(draft), sample(l, noise=i)[i] == draft[i])\n      - trace: n",
       "`noise` of `sample` must be known before the pass, but `i` differs from round to round [reducer-late]"},
      {"- l: target([last] + draft, kv=draft)\n      - best: argmax(l)\n      - p: argmax(l[accepted:])\n      - "
       "trace: p[0]",
       ""},
      {"- l: target([last] + draft, kv=draft)\n      - best: argmax(l)\n      - accepted: 2\n"
       "      - p: argmax(l[accepted:])\n      - trace: p[0]",
       "`first` of `argmax` must be known before the pass, but `accepted` may change between the call and here "
       "[reducer-late]"},
      {"- l: target([last] + draft, kv=draft)\n      - best: sample(l, noise=append(draft))",
       "`append` cannot stand in what a reducer is given [effect-not-allowed]"},
      // Before the call it is known.
      {"- noise: budget\n      - l: target([last] + draft, kv=draft)\n      - append(draft)\n"
       "      - best: sample(l, noise=noise)",
       ""},
  };
  for (const auto &c : cases)
    EXPECT_EQ(said(reduced(c.statements)), c.message) << c.statements;
}

TEST(Reducers, Arguments) {
  const struct {
    const char *statements, *message;
  } cases[] = {
      {"- best: sample(target([last] + draft, kv=draft), 0.7)",
       "argument `sampling` of `sample` must be `sampling`, the request's settings; write others by name: "
       "`temperature=0.7` [bad-argument]"},
      {"- best: sample(target([last] + draft, kv=draft), temperature=1)", ""},
      {"- best: sample(target([last] + draft, kv=draft), sampling, top_k=40)", ""},
      {"- best: sample(target([last] + draft, kv=draft), top_k=0.5)",
       "argument `top_k` of `sample` must be i32, found f32 [type-mismatch]"},
      {"- best: sample(target([last] + draft, kv=draft), sampling, only=[5, 6], without=draft)", ""},
      {"- best: sample(target([last] + draft, kv=draft), sampling, only=map(i in 0..5, [last]), bias=[5], by=[1.5])",
       ""},
      {"- best: sample(target([last] + draft, kv=draft), only=5)",
       "argument `only` of `sample` must be a sequence of tokens, or a table with one for each row, found token "
       "[type-mismatch]"},
      {"- best: sample(target([last] + draft, kv=draft), without=tokens)",
       "the length of argument `without` of `sample` has no upper bound; cut it with a slice such as `[:8]` "
       "[unbounded-sequence]"},
      {"- best: sample(target([last] + draft, kv=draft), bias=[5])",
       "argument `bias` of `sample` must be given together with `by`: `bias=tokens, by=numbers` [bad-argument]"},
      {"- best: sample(target([last] + draft, kv=draft), bias=[5], by=draft)",
       "argument `by` of `sample` must be a sequence of f32, found token[4] [type-mismatch]"},
      {"- l: target([last] + draft, kv=draft)\n      - best: argmax(l)\n      - p: max_prob(l, only=best)\n      - "
       "trace: p[0]",
       "`only` of `max_prob` must be known before the pass, but `best` may change between the call and here "
       "[reducer-late]"},
      {"- best: sample(draft)",
       "the argument of `sample` must be the logits of a model call, found token[4] [type-mismatch]"},
      {"- best: argmax(target([last] + draft, kv=draft), sampling)",
       "`argmax` takes 1 argument, found 2 [argument-count]"},
      {"- l: target([last] + draft, kv=draft)\n      - best: argmax(l)\n      - p: prob(l, 3)\n      - trace: p[0]",
       "argument `tokens` of `prob` must be a sequence of tokens, found i32 [type-mismatch]"},
      {"- l: target([last] + draft, kv=draft)\n      - best: argmax(l)\n      - p: prob(l, [5, -1])\n      - trace: "
       "p[0]",
       "argument `tokens` of `prob` must be a sequence of tokens, found i32[2] [type-mismatch]"},
      {"- l: target([last] + draft, kv=draft)\n      - best: argmax(l)\n      - p: top_k(l, 65)\n      - trace: p[0]",
       "argument `n` of `top_k` must be from 1 to 64, is 65 [bad-argument]"},
      {"- l: target([last] + draft, kv=draft)\n      - best: argmax(l)\n      - p: top_k(l, 3)\n      - trace: p[0]",
       "what is read of `top_k` must be `.token` or `.prob` of a name for it, found both [type-mismatch]"},
      {"- l: target([last] + draft, kv=draft)\n      - best: argmax(l)\n      - p: top_k(l, 3)\n      - q: p.prob[1:]\n"
       "      - trace: q[0][0]",
       ""},
      {"- l: target([last] + draft, kv=draft)\n      - best: argmax(l)\n      - p: top_k(l, 3)\n      - q: p[1:]\n"
       "      - trace: q[0][0]",
       "what is read of `top_k` must be `.token` or `.prob` of a name for it, found both [type-mismatch]"},
      {"- l: target([last] + draft, kv=draft)\n      - best: argmax(l)\n      - p: top_k(l, 3)\n"
       "      - trace: p.mass[0][0]",
       "unknown name `p.mass` [unknown-name]"},
      {"- l: target([last] + draft, kv=draft)\n      - best: argmax(l)\n      - p: top_k(l, 3)",
       "`p` is assigned but never read, and no field has that name [unused-local]"},
      {"- best: argmax(target([last] + draft, kv=draft))\n      - draft: top_k(target(draft, kv=draft), 3)",
       "what is read of `top_k` must be `.token` or `.prob` of a name for it, found both [type-mismatch]"},
      {"- l: target([last] + draft, kv=draft)\n      - best: argmax(l[1:][1:])",
       "a slice of some rows of a call is not supported yet; use one slice of the call's rows [unsupported]"},
      {"- l: target([last] + draft, kv=draft)\n      - best: argmax(l)\n      - trace: l[0]",
       "logits can only be consumed by a row reducer such as `argmax` [logits-use]"},
      {"- l: target([last] + draft, kv=draft)\n      - best: argmax(l)\n      - trace: sampling",
       "`sampling` outside a reducer must be one of its settings, `sampling.top_p`, found all of them [type-mismatch]"},
      {"- l: target([last] + draft, kv=draft)\n      - best: argmax(l)\n      - trace: sampling.top",
       "unknown name `sampling.top` [unknown-name]"},
      {"- l: target([last] + draft, kv=draft)\n      - best: argmax(l)\n      - trace: sampling.temperature * 0.5", ""},
      {"- l: target([last] + draft, kv=draft)\n      - best: argmax(l)\n      - trace: uniform(len(tokens), noise=2)",
       ""},
      {"- l: target([last] + draft, kv=draft)\n      - best: argmax(l)\n      - trace: uniform(0.5)",
       "argument `position` of `uniform` must be i32, found f32 [type-mismatch]"},
      {"- l: target([last] + draft, kv=draft)\n      - m: l\n      - best: argmax(m[:2])", ""},
      {"- l: target([last] + draft, kv=draft)\n      - best: argmax(l)\n      - rows: l[1:]",
       "`rows` is assigned but never read, and no field has that name [unused-local]"},
  };
  for (const auto &c : cases)
    EXPECT_EQ(said(reduced(c.statements)), c.message) << c.statements;
}

TEST(Reducers, SeveralOfARowAreATable) {
  Check c = reduced(R"(- t: top_k(target([last] + draft, kv=draft), 3, temperature=0.5)
      - best: map(i in 0..len(t.token), t.token[i][0])
      - trace: t.prob[0][0] + t.prob[1][0])");
  ASSERT_TRUE(c.pipeline) << c.messages;
  const sema::Expr &call = *c.pipeline->stages[2].body[1].values[0];
  ASSERT_EQ(call.kind, sema::Expr::ModelCall); // it runs where it stands
  ASSERT_EQ(call.as<sema::Call>().reductions->list.size(), 2u);
  EXPECT_EQ(call.as<sema::Call>().reductions->list[0].type.str(), "token[5, 3]");
  EXPECT_EQ(call.as<sema::Call>().reductions->list[1].type.str(), "f32[5, 3]");
  EXPECT_EQ(call.as<sema::Call>().reductions->list[1].part, "prob");
  // What nobody reads is not computed.
  c = reduced(R"(- l: target([last] + draft, kv=draft)
      - t: top_k(l, 3)
      - two: sample(l[:2], sampling, n=2)
      - best: map(i in 0..len(t.token), t.token[i][0])
      - trace: len(two[0]))");
  ASSERT_TRUE(c.pipeline) << c.messages;
  const sema::Expr &other = *c.pipeline->stages[2].body[1].values[0];
  ASSERT_EQ(other.as<sema::Call>().reductions->list.size(), 2u);
  EXPECT_EQ(other.as<sema::Call>().reductions->list[0].type.str(), "token[2, 2]");
  EXPECT_EQ(other.as<sema::Call>().reductions->list[1].type.str(), "token[5, 3]");
}

TEST(Reducers, NamedResults) {
  const auto named = [](const std::string &statements, std::vector<std::string> results = {"h1", "h2"}) {
    ModelFacts facts = modelFacts("target", 64);
    facts.results = std::move(results);
    return check({{"- best: argmax(target([last] + draft, kv=draft))", statements}}, {}, {facts});
  };
  Check c = named(R"(- l: target([last] + draft, kv=draft)
      - best: argmax(l)
      - one: argmax(l.h1)
      - two: sample(l.h2[1:], sampling, ahead=2, n=3)
      - again: argmax(l.h1)
      - same: argmax(l.logits)
      - t: top_k(l.h1, 2)
      - trace: one[0] == again[0] and same[0] == best[0] and two[0][0] == t.token[0][0])");
  ASSERT_TRUE(c.pipeline) << c.messages;
  std::string list;
  for (const sema::Reduction &r : c.pipeline->stages[2].body[1].values[0]->as<sema::Call>().reductions->list)
    list += r.name + " of " + (r.of.empty() ? "logits" : r.of) + " " + r.type.str() + "\n";
  EXPECT_EQ(list, "argmax of logits token[5]\n"
                  "argmax of h1 token[5]\n"
                  "sample of h2 token[4, 3]\n"
                  "top_k of h1 token[5, 2]\n");
  const std::string call = "- l: target([last] + draft, kv=draft)\n      - best: argmax(l";
  EXPECT_EQ(named(call + ".h3)").messages, R"(p.yaml:43:22: error: model `target` has no result `h3` [unknown-result]
   43 |       - best: argmax(l.h3)
      |                      ^~~~
note: did you mean `h1`?
)");
  EXPECT_EQ(said(named(call + "[1:])\n      - part: l[1:]\n      - trace: len(argmax(part.h1))")),
            "another result of some rows of a call is not supported yet; use some rows of another result: `r.h1[a:b]` "
            "[unsupported]");
  EXPECT_EQ(named(call + ".h1)", {}).messages,
            R"(p.yaml:43:22: error: model `target` has no result `h1` [unknown-result]
   43 |       - best: argmax(l.h1)
      |                      ^~~~
note: its model file names none: it has no `results`
)");
}

TEST(Reducers, WrittenNumbersAreTokens) {
  const Check c = reduced("- l: target([last], kv=draft)\n      - best: argmax(l)\n      - p: prob(l, [5])\n"
                          "      - trace: p[0]");
  ASSERT_TRUE(c.pipeline) << c.messages;
  const sema::Expr &call = *c.pipeline->stages[2].body[1].values[0];
  EXPECT_EQ(call.as<sema::Call>().reductions->list[1].with[0].value->type.str(), "token[1]");
}

TEST(Reducers, SamplingIsNoConstant) {
  Check c = check({{"rate: 0.5", "rate: uniform(3)"}});
  EXPECT_EQ(said(c), "`uniform` must be known at compile time [not-constant]");
}

TEST(Reducers, SequencesOfTwoTypesDoNotJoin) {
  Check c =
      reduced("- l: target([last] + draft, kv=draft)\n      - best: argmax(l)\n      - trace: len(best + max_prob(l))");
  EXPECT_EQ(said(c), "`+` needs two sequences of the same type, found token[5] and f32[5] [operand-types]");
}

} // namespace megalith::test
