//===- KeptRowsTest.cpp - rows of logits that a field keeps ---------------===//
#include "PipelineBase.h"

namespace megalith::test {

/// The base pipeline with a field `q: logits[block]`, and these statements in place of `best: argmax(...)`.
static Check kept(const std::string &statements, const std::string &field = "q: logits[block]") {
  return check({{"  accepted: i32 = 0", "  accepted: i32 = 0\n  " + field},
                {"- best: argmax(target([last] + draft, kv=draft))", statements}});
}

static std::string said(const Check &c) {
  const size_t begin = c.messages.find("error: ");
  return begin == std::string::npos ? c.messages
                                    : c.messages.substr(begin + 7, c.messages.find('\n', begin) - begin - 7);
}

/// What the call of a statement gives.
static std::string reductions(const sema::Stmt &statement) {
  std::string list;
  for (const sema::Reduction &r : statement.values[0]->as<sema::Call>().reductions->list) {
    list += r.name + " " + r.type.str() + " " + r.kept + "/" + r.minus + "/" + r.keep + ":";
    for (const sema::Operand &operand : r.with)
      list += " " + operand.name;
    list += "\n";
  }
  return list;
}

TEST(KeptRows, AreAssignedAndRead) {
  Check c = kept(R"(- l: target([last] + draft, kv=draft)
      - best: sample(l, sampling, minus=q, noise=2)
      - p: prob(q, draft, sampling)
      - h: entropy(q[1:])
      - trace: p[0] + h[0] + f32(len(q)))");
  ASSERT_TRUE(c.pipeline) << c.messages;
  EXPECT_EQ(reductions(c.pipeline->stages[2].body[1]),
            "sample token[5] /q/: temperature top_k top_p min_p noise minus\n"
            "prob f32[4] q//: kept tokens temperature top_k top_p min_p\n"
            "entropy f32[3] q//: first kept\n");
  c = kept(R"(- q: '[]'
      - l: target([last] + draft, kv=draft)
      - best: argmax(l)
      - q: q + l[-2:]
      - t: argmax(q)
      - trace: i32(t[0]))");
  ASSERT_TRUE(c.pipeline) << c.messages;
  EXPECT_EQ(reductions(c.pipeline->stages[2].body[2]), "argmax token[5] //:\n"
                                                       "argmax logits[2] //q: first at\n");
}

TEST(KeptRows, TypesAreChecked) {
  EXPECT_EQ(said(kept("- best: argmax(target([last] + draft, kv=draft))", "q: logits")),
            "the type of `q` must be `logits[n]`, with the number of rows that it keeps at most, found `logits` "
            "[type-mismatch]");
  EXPECT_EQ(said(kept("- best: argmax(target([last] + draft, kv=draft))", "q: logits[2, 3]")),
            "the type of `q` must be `logits[n]`, with the number of rows that it keeps at most, found a table "
            "[type-mismatch]");
}

TEST(KeptRows, WhatCannotBeKeptOrReadIsAnError) {
  const std::string use =
      "kept rows of logits can only be consumed by a row reducer such as `prob`, and counted by `len` [kept-use]";
  const struct {
    const char *statements;
    std::string message;
  } cases[] = {
      {"- best: argmax(target([last] + draft, kv=draft))\n      - x: q", use},
      {"- best: argmax(target([last] + draft, kv=draft))\n      - x: q[0]", use},
      {"- best: argmax(target([last] + draft, kv=draft))\n      - trace: q == q", use},
      {"- best: argmax(target([last] + draft, kv=draft))\n      - q: draft",
       "`q` keeps rows of logits: assign `[]`, rows of a call such as `l[a:b]`, or `q + l[a:b]` [kept-value]"},
      {"- l: target([last] + draft, kv=draft)\n      - best: argmax(l)\n      - q: l",
       "`q` holds 4 rows, but this value can have 5 [draft-window]"},
      {"- h: entropy(q)\n      - best: argmax(target([last] + draft, kv=draft))\n      - trace: h[0]",
       "`entropy` reads kept rows in a pass, and no call stands before it in this stage whose logits are wanted "
       "[kept-no-pass]"},
      {"- best: sample(target([last] + draft, kv=draft), minus=draft)",
       "argument `minus` of `sample` must be the name of a field that keeps rows of logits, found token[4] "
       "[type-mismatch]"},
      {"- l: target([last] + draft, kv=draft)\n      - best: sample(l, minus=q)\n      - q: l[:2]",
       "`q` cannot keep these rows: a reducer of the same call reads `q` [kept-rows]"},
      {"- l: target([last] + draft, kv=draft)\n      - best: argmax(l)\n      - if: budget > 3\n        do:\n"
       "          - q: l[:2]",
       "`q` cannot keep these rows: they are kept in the pass of their call, so the assignment stands in the same "
       "block "
       "as the call [kept-rows]"},
      {"- l: target([last] + draft, kv=draft)\n      - best: argmax(l)\n      - q: '[]'\n      - q: l[:2]",
       "`q` cannot keep these rows: `q` was assigned between the call and here [kept-rows]"},
      {"- l: target([last] + draft, kv=draft)\n      - best: argmax(l)\n      - q: '[]'\n      - q: q + l[:2]",
       "the length of `q` of `q` must be known before the pass, but `q` may change between the call and here "
       "[reducer-late]"},
      {"- l: target([last] + draft, kv=draft)\n      - best: argmax(l)\n      - q: l[:1]\n      - q: l[1:2]",
       "`q` cannot keep these rows: some rows of this call are kept already [kept-rows]"},
      {"- l: target([last] + draft, chunk=2)\n      - best: argmax(l)\n      - q: l[:1]",
       "a call with `chunk=` has no logits to read: write `keep=none`, or leave `chunk=` out [chunked-logits]"},
  };
  for (const auto &[statements, message] : cases)
    EXPECT_EQ(said(kept(statements)), message) << statements;
}

} // namespace megalith::test
