#include "PipelineBase.h"

using namespace megalith;
using namespace megalith::test;

TEST(PipelineCalls, PoolOfUnknownModel) {
  Check c = check({{"kv:\n  target:", "kv:\n  tarket:"}});
  EXPECT_FALSE(c.pipeline);
  EXPECT_EQ(c.messages, R"(p.yaml:20:3: error: the pipeline has no model `tarket` [unknown-model]
   20 |   tarket: {pages: 64, page_tokens: 16, watermark: 0.85, on_full: fail}
      |   ^~~~~~
note: did you mean `target`?
)");
}

TEST(PipelineCalls, KeepOfUnknownModel) {
  Check c = check({{"kv.target.keep", "kv.tarket.keep"}});
  EXPECT_FALSE(c.pipeline);
  EXPECT_EQ(c.messages, R"(p.yaml:50:12: error: the pipeline has no model `tarket` [unknown-model]
   50 |       - kv.tarket.keep: len(tokens) - 1
      |            ^~~~~~
note: did you mean `target`?
)");
}

TEST(PipelineCalls, ModelWithoutPool) {
  Check c = check({{"target: {graph: m.yaml}", "target: {graph: m.yaml}\n  small: {graph: m.yaml}"}});
  EXPECT_FALSE(c.pipeline);
  EXPECT_EQ(c.messages,
            R"(p.yaml:4:3: error: model `small` has no pool; add it below `kv:` [missing-pool]
    4 |   small: {graph: m.yaml}
      |   ^~~~~
)");
}

TEST(PipelineCalls, VocabulariesMayDiffer) {
  Check c = check({{"target: {graph: m.yaml}", "target: {graph: m.yaml}\n  small: {graph: m.yaml}"},
                   {"kv:\n", "kv:\n  small: {pages: 1, page_tokens: 1}\n"}},
                  {}, {modelFacts("target", 100), modelFacts("small", 101)});
  EXPECT_TRUE(c.pipeline) << c.messages;
}

TEST(PipelineCalls, NoPages) {
  Check c = check({{"pages: 64", "pages: 0"}});
  EXPECT_FALSE(c.pipeline);
  EXPECT_EQ(c.messages,
            R"(p.yaml:20:19: error: `pages` of pool `target` must be at least 1, is 0 [bad-pool]
   20 |   target: {pages: 0, page_tokens: 16, watermark: 0.85, on_full: fail}
      |                   ^
)");
}

TEST(PipelineCalls, PoolBeyondPositions) {
  Check c = check({{"pages: 64", "pages: 2000000000"}});
  EXPECT_FALSE(c.pipeline);
  EXPECT_NE(c.messages.find("`pages` of pool `target` must be at most 67108864 with pages of 16 tokens, is "
                            "2000000000 [bad-pool]"),
            std::string::npos)
      << c.messages;
}

TEST(PipelineCalls, ManyPagesOfNoTokens) {
  Check c = check({{"pages: 64, page_tokens: 16", "pages: 2000000000, page_tokens: 0"}});
  EXPECT_FALSE(c.pipeline);
  EXPECT_NE(c.messages.find("`page_tokens` of pool `target` must be at least 1, is 0 [bad-pool]"), std::string::npos)
      << c.messages;
}

TEST(PipelineCalls, WatermarkTooHigh) {
  Check c = check({{"watermark: 0.85", "watermark: 85"}});
  EXPECT_FALSE(c.pipeline);
  EXPECT_EQ(
      c.messages,
      R"(p.yaml:20:51: error: `watermark` of pool `target` must be a whole number of percents, from 0.01 to 1.0 [bad-pool]
   20 |   target: {pages: 64, page_tokens: 16, watermark: 85, on_full: fail}
      |                                                   ^~
)");
}

TEST(PipelineCalls, UnknownOnFull) {
  Check c = check({{"on_full: fail", "on_full: wai"}});
  EXPECT_FALSE(c.pipeline);
  EXPECT_EQ(c.messages,
            R"(p.yaml:20:66: error: `on_full` of pool `target` must be `fail` or `wait` [bad-pool]
   20 |   target: {pages: 64, page_tokens: 16, watermark: 0.85, on_full: wai}
      |                                                                  ^~~
note: did you mean `wait`?
)");
}

TEST(PipelineCalls, DraftWindowTooSmall) {
  Check c = check({{"width=min(size.width, budget - 1)", "width=size.width + 2"}});
  EXPECT_FALSE(c.pipeline);
  EXPECT_EQ(c.messages,
            R"(p.yaml:41:16: error: `draft` holds 4 tokens, but this value can have 6 [draft-window]
   41 |       - draft: ngram_lookup(tokens, width=size.width + 2)
      |                ^~~~~~~~~~~~
p.yaml:9:3: note: declared here
    9 |   draft: token[block]
      |   ^~~~~
)");
}

TEST(PipelineCalls, DraftWindowUnbounded) {
  Check c = check({{"width=min(size.width, budget - 1)", "width=budget - 1"}});
  EXPECT_FALSE(c.pipeline);
  EXPECT_EQ(c.messages,
            R"(p.yaml:41:16: error: `draft` holds 4 tokens, but this value can have any number of them [draft-window]
   41 |       - draft: ngram_lookup(tokens, width=budget - 1)
      |                ^~~~~~~~~~~~
p.yaml:9:3: note: declared here
    9 |   draft: token[block]
      |   ^~~~~
)");
}

TEST(PipelineCalls, CallTooLarge) {
  Check c = check({}, {{"rows_per_pass", "4"}});
  EXPECT_FALSE(c.pipeline);
  EXPECT_EQ(c.messages,
            R"(p.yaml:42:22: error: this call can feed 5 rows, but `rows_per_pass` is 4; feed fewer [call-too-large]
   42 |       - best: argmax(target([last] + draft, kv=draft))
      |                      ^~~~~~
)");
  // Rows without logits may be served in part.
  c = check({{"[kv.target.len:-1], chunk=8", "[-20:-1]"}});
  EXPECT_NE(c.messages.find("this call can feed 19 rows, but `rows_per_pass` is 16; feed fewer or add `chunk=` "
                            "[call-too-large]"),
            std::string::npos)
      << c.messages;
}

TEST(PipelineCalls, CallTooLargeToBeRead) {
  // A call that is not read may fill a pass.
  Check c = check({{"[kv.target.len:-1], chunk=8", "[-200:-1]"}}, {{"rows_per_pass", "2048"}});
  EXPECT_EQ(c.messages.find("call-too-large"), std::string::npos) << c.messages;
  c = check({{"[last] + draft, kv=draft", "tokens[-130:], kv=draft"}}, {{"rows_per_pass", "2048"}});
  EXPECT_NE(c.messages.find("this call can feed 130 rows, but a call that is read has 128 at most; feed fewer "
                            "[call-too-large]"),
            std::string::npos)
      << c.messages;
  const char *tooLarge = "this call can feed 130 rows, but a call of which more than the last row is read has 128 at "
                         "most; feed fewer [call-too-large]";
  // Of such a call the last row alone may be read, by all that reads it.
  const auto committing = [](const char *reads) {
    return check(
               {{"argmax(target([last] + draft, kv=draft))", "argmax(target([last] + draft, kv=draft))\n      - long: "
                                                             "target(tokens[-130:])\n      - end: " +
                                                                 std::string(reads) + "\n      - append(end[:1])"}},
               {{"rows_per_pass", "2048"}})
        .messages;
  };
  EXPECT_EQ(committing("argmax(long[-1:])").find("call-too-large"), std::string::npos)
      << committing("argmax(long[-1:])");
  for (const char *more : {"argmax(long)", "argmax(long[-2:])", "argmax(long[:-1])", "argmax(long[129:])",
                           "argmax(long[-1:]) + argmax(long[:1])", "argmax(long[-1:-1])"})
    EXPECT_NE(committing(more).find(tooLarge), std::string::npos) << more << committing(more);
}

TEST(PipelineCalls, CallUnbounded) {
  Check c = check({{", chunk=8", ""}});
  EXPECT_FALSE(c.pipeline);
  EXPECT_EQ(
      c.messages,
      R"(p.yaml:36:9: error: the number of rows of this call has no upper bound of 1024 or less; add `chunk=` or cut the tokens with a slice [call-unbounded]
   36 |       - target(tokens[kv.target.len:-1], keep=none)
      |         ^~~~~~
)");
  c = check({{"argmax(target([last] + draft, kv=draft))", "argmax(target(tokens[kv.target.len:], kv=draft))"}});
  EXPECT_EQ(
      c.messages,
      R"(p.yaml:42:22: error: the number of rows of this call has no upper bound of 1024 or less; cut the tokens with a slice such as `[:8]`, or say with `most=` how many there are [call-unbounded]
   42 |       - best: argmax(target(tokens[kv.target.len:], kv=draft))
      |                      ^~~~~~
)");
}

/// How many rows of such a call a tick serves depends on other requests.
TEST(PipelineCalls, ChunkedLogits) {
  Check c = check({{", keep=none", ""}});
  EXPECT_FALSE(c.pipeline);
  EXPECT_EQ(
      c.messages,
      R"(p.yaml:36:9: error: a call with `chunk=` has no logits to read: write `keep=none`, or leave `chunk=` out [chunked-logits]
   36 |       - target(tokens[kv.target.len:-1], chunk=8)
      |         ^~~~~~
note: how many rows of it one tick serves depends on the load. To read rows of many tokens, feed a piece at a time: `target(tokens[kv.target.len:-1][:8])`
)");
  const std::string call = "best: argmax(target([last] + draft, kv=draft))";
  for (const std::string reads : {"l: target([last] + draft, chunk=2)\n      - best: argmax(l)",
                                  "l: target([last] + draft, chunk=2)\n      - best: argmax(l[-1:])",
                                  "best: sample(target([last] + draft, chunk=40), sampling)"}) {
    c = check({{call, reads}});
    EXPECT_EQ(c.errors, 1u) << c.messages;
    EXPECT_NE(c.messages.find("[chunked-logits]"), std::string::npos) << c.messages;
  }
  // What the note says.
  c = check({{"- target(tokens[kv.target.len:-1], chunk=8, keep=none)",
              "- l: target(tokens[kv.target.len:-1][:8])\n      - h: max_prob(l)\n      - trace: len(h)"}});
  EXPECT_TRUE(c.pipeline) << c.messages;
}

TEST(PipelineCalls, LogitsAreNoValue) {
  Check c = check({{"best: argmax(target([last] + draft, kv=draft))", "best: target([last] + draft, kv=draft)"}});
  EXPECT_FALSE(c.pipeline);
  EXPECT_EQ(c.messages,
            R"(p.yaml:42:15: error: logits can only be consumed by a row reducer such as `argmax` [logits-use]
   42 |       - best: target([last] + draft, kv=draft)
      |               ^~~~~~
)");
}

TEST(PipelineCalls, LogitsUnused) {
  Check c = check({{", chunk=8, keep=none", "[:8]"}});
  EXPECT_FALSE(c.pipeline);
  EXPECT_EQ(
      c.messages,
      R"(p.yaml:36:9: error: nothing consumes the logits of this call; reduce them with `argmax` or write `keep=none` [logits-unused]
   36 |       - target(tokens[kv.target.len:-1][:8])
      |         ^~~~~~
)");
}

TEST(PipelineCalls, KeepNoneReduced) {
  Check c = check({{"kv=draft)", "kv=draft, keep=none)"}});
  EXPECT_FALSE(c.pipeline);
  EXPECT_EQ(c.messages,
            R"(p.yaml:42:22: error: this call has `keep=none`: it leaves no logits to reduce [keep-none-reduced]
   42 |       - best: argmax(target([last] + draft, kv=draft, keep=none))
      |                      ^~~~~~
)");
}

TEST(PipelineCalls, ChunkedDraft) {
  Check c = check({{"kv=draft)", "kv=draft, chunk=2)"}});
  EXPECT_FALSE(c.pipeline);
  EXPECT_EQ(
      c.messages,
      R"(p.yaml:42:22: error: a call with `kv=draft` cannot have `chunk=`: the rows of the next chunk would overwrite it [chunked-draft]
   42 |       - best: argmax(target([last] + draft, kv=draft, chunk=2))
      |                      ^~~~~~
)");
}

TEST(PipelineCalls, BadKvWord) {
  Check c = check({{"kv=draft)", "kv=draf)"}});
  EXPECT_FALSE(c.pipeline);
  EXPECT_EQ(c.messages,
            R"(p.yaml:42:48: error: argument `kv` of `target` must be `draft` or `commit` [bad-argument]
   42 |       - best: argmax(target([last] + draft, kv=draf))
      |                                                ^~~~
note: did you mean `draft`?
)");
}

TEST(PipelineCalls, ArgmaxOfTokens) {
  Check c = check({{"argmax(target([last] + draft, kv=draft))", "argmax(draft)"}});
  EXPECT_FALSE(c.pipeline);
  EXPECT_EQ(
      c.messages,
      R"(p.yaml:42:22: error: the argument of `argmax` must be the logits of a model call, found token[4] [type-mismatch]
   42 |       - best: argmax(draft)
      |                      ^~~~~
note: of a sequence it is `argmax(i in 0..len(draft), draft[i])`
)");
}

TEST(PipelineCalls, FreeRows) {
  const Edit tree = {"kv=draft))", "kv=draft, parents=map(i in 0..len(draft) + 1, i - 1)))"};
  const Edit path = {"kv.target.keep: len(tokens) - 1", "kv.target.keep: len(tokens) - 1, path=map(i in 0..2, i)"};
  EXPECT_EQ(check({tree, path}).messages, "");
  EXPECT_EQ(check({{"kv=draft))", "kv=draft, visible=kv.target.len + 1))"}}).messages, "");
  EXPECT_EQ(check({{"kv=draft))", "visible=map(i in 0..len(draft) + 1, kv.target.len + 1 + i)))"}}).messages, "");
  const auto message = [](std::string with, const std::string &call = "target([last] + draft, ") {
    const std::string text = check({{"target([last] + draft, kv=draft)", call + with + ")"}}).messages;
    return text.substr(0, text.find('\n'));
  };
  EXPECT_EQ(
      message("parents=map(i in 0..3, i - 1)"),
      "p.yaml:42:45: error: a call with `parents=` feeds drafts: give `kv=draft`, and say with `kv.target.keep: n, "
      "path=p` which rows to keep [free-rows]");
  EXPECT_EQ(message("kv=draft, parents=map(i in 0..3, i - 1), visible=kv.target.len"),
            "p.yaml:42:86: error: a call with `visible=` has no `parents=`: rows of a tree see their own paths "
            "[free-rows]");
  EXPECT_EQ(message("visible=kv.target.len, chunk=2"),
            "p.yaml:42:45: error: a call with `visible=` is fed at once: it has no `chunk=` [free-rows]");
  EXPECT_EQ(
      message("kv=draft, parents=draft"),
      "p.yaml:42:63: error: argument `parents` of `target` must be a sequence of i32, found token[4] [type-mismatch]");
  EXPECT_EQ(message("kv=draft, visible=true"), "p.yaml:42:63: error: argument `visible` of `target` must be i32, or a "
                                               "sequence of i32, found bool [type-mismatch]");
  EXPECT_EQ(message("kv=draft, parent=draft"),
            "p.yaml:42:55: error: `target` has no argument `parent` [unknown-argument]");
  for (const std::string name : {"pages", "positions"})
    EXPECT_EQ(message("kv=draft, " + name + "=draft"),
              "p.yaml:42:55: error: `" + name +
                  "=` of a call is not supported yet; use `parents=` or `visible=`, which "
                  "say where rows stand and what they see [unsupported]");
}

TEST(PipelineCalls, KeptPath) {
  const auto message = [](const std::string &values) {
    const std::string text = check({{"kv.target.keep: len(tokens) - 1", "kv.target.keep: " + values}}).messages;
    return text.substr(0, text.find('\n'));
  };
  EXPECT_EQ(message("len(tokens) - 1, path=draft"),
            "p.yaml:50:47: error: `path` of `kv.target.keep` must be a sequence of "
            "i32, found token[4] [type-mismatch]");
  EXPECT_EQ(message("len(tokens) - 1, paths=map(i in 0..2, i)"),
            "p.yaml:50:42: error: `kv.target.keep` has no argument `paths` [unknown-argument]");
  EXPECT_EQ(message("path=map(i in 0..2, i), 1"),
            "p.yaml:50:49: error: expected a named value `name=value`, found `1` [expr-syntax]");
  const std::string text =
      check({{"size.observe: accepted, len(draft)", "size.observe: accepted, ran=len(draft)"}}).messages;
  EXPECT_NE(text.find("`size.observe` has no argument `ran`"), std::string::npos) << text;
}
