#include "SyntaxTesting.h"
#include <filesystem>
#include <gtest/gtest.h>

namespace megalith {
namespace {

TEST(Parse, AcceptsEveryShippedFile) {
  unsigned pipelines = 0, models = 0;
  const std::filesystem::path root = std::filesystem::path(MEGALITH_SOURCE_DIR) / "pipelines";
  for (const auto &entry : std::filesystem::recursive_directory_iterator(root)) {
    // A list that model files name; they read it.
    if (entry.path().extension() != ".yaml" || entry.path().filename() == "harmless.yaml")
      continue;
    SourceFiles files;
    Diagnostics diags(files);
    std::string reason;
    auto file = files.open(entry.path().string(), reason);
    ASSERT_TRUE(file) << reason;
    bool isModel = entry.path().parent_path().filename() == "models";
    if (isModel ? ast::parseModel(diags, *file).has_value() : ast::parsePipeline(diags, *file).has_value())
      ++(isModel ? models : pipelines);
    EXPECT_EQ(diags.render(), "");
  }
  EXPECT_GE(pipelines, 3u);
  EXPECT_GE(models, 2u);
}

TEST(Parse, PipelineOfEveryConstruct) {
  ParsedPipeline parsed(R"(pipeline: demo
models:
  target: {graph: models/any.yaml}
params:
  slots: 8
  window: slots * 2
request:
  draft: token[window]
  tree: token[4, 3]
  accepted: i32 = 0
  flag: bool
states:
  fault: FAILED
  A: {initial: true, next: [B, DONE]}
  B: {slot: true, preemptible: true, next: A}
  P: {parked: true}
  DONE: {terminal: true}
  FAILED: {terminal: true}
kv:
  target: {pages: 64, page_tokens: 16, watermark: 0.85, on_full: fail}
policies:
  size:
    per: request
    state: {ema: f32 = 0.8}
    observe(accepted, proposed):
      - ema: ema + ratio(accepted, proposed)
    outputs:
      block: 4 if ema > 0.5 else 1
stages:
  go:
    on: [A, B]
    do:
      - target(tokens[0:1], chunk=4)
      - draft: f(tokens)
      - if: flag and accepted > 0
        do:
          - size.observe: accepted, min(a, b)
        else:
          - trace: [a, b][0] + 1
      - kv.target.keep: 3
      - count: tokens_committed += len(draft)
      - trace: size.block
    progress: accepted
    goto: DONE if flag else B
)");
  // The `trace` with brackets first is not YAML.
  EXPECT_EQ(parsed.diags.render(), "t.yaml:39:26: error: not valid YAML: expected the next entry, at "
                                   "the indentation of "
                                   "those before it [yaml-syntax]\n"
                                   "   39 |           - trace: [a, b][0] + 1\n"
                                   "      |                          ^\n"
                                   "note: if a value begins with a bracket or a quote, put the whole "
                                   "expression in single "
                                   "quotes: `'[last] + draft'`\n");
  std::string text = parsed.files.text(0).str();
  size_t at = text.find("[a, b][0] + 1");
  ParsedPipeline fixed(text.replace(at, 13, "'[a, b][0] + 1'"));
  ASSERT_TRUE(fixed.ast) << fixed.diags.render();
  EXPECT_EQ(ast::print(*fixed.ast), R"(1:11    pipeline demo
3:3     model target: models/any.yaml
5:3     param slots: 8
6:3     param window: (* slots 2)
8:3     field draft: token[window]
9:3     field tree: token[4, 3]
10:3    field accepted: i32 = 0
11:3    field flag: bool
13:10   fault FAILED
14:3    state A initial -> B, DONE
15:3    state B slot preemptible -> A
16:3    state P parked
17:3    state DONE terminal
18:3    state FAILED terminal
20:3    pool target: pages=64 page_tokens=16 watermark=0.85 on_full=fail
22:3    policy size per request
24:13     state ema: f32 = 0.8
25:13     observe(accepted, proposed)
26:9        ema: (+ ema (call ratio accepted proposed))
28:7      output block: (if (> ema 0.5) 4 1)
30:3    stage go on A, B
33:9      (call target (slice tokens 0 1) chunk=4)
34:9      draft: (call f tokens)
35:9      if (and flag (> accepted 0))
37:13       size.observe: accepted, (call min a b)
35:9      else
39:13       trace (+ (index [a, b] 0) 1)
40:9      kv.target.keep: 3
41:9      count tokens_committed += (call len draft)
42:9      trace size.block
44:16     goto (if flag DONE B)
43:15     progress accepted
)");
}

TEST(Parse, ModelOfEveryConstruct) {
  ParsedModel parsed(R"(model: any
numerics: transformers
config:
  hidden: hidden_size
  head_dim: {key: head_dim, default: hidden / heads}
  rope: {theta: rope_theta, scaling: rope_scaling}
  sliding: {key: sliding_window, default: 4096, if_null: none}
  layer:
    window: {key: layer_types, values: {sliding_attention: sliding, full_attention: none}, default: none}
    turns: {default: layer % 2 == 0}
    plain: a_list
weights:
  head: {shape: '[vocab, hidden]', from: lm_head.weight, or: embed if tied}
  tail: {shape: '[hidden]', from: tail.weight, or: head}
  layer:
    wq: {shape: '[heads * head_dim, hidden]', from: 'model.layers.{i}.q.weight'}
graph:
  - x: embed[tokens]
  - repeat: layer
    do:
      - x: x + matmul(x, wq)
  - logits: matmul(x, head)
for: {model_type: any, architectures: [A, B], sliding_window: {is: null, default: 4096}}
requires:
  hidden_act: [silu, 'true']
  window: {is: null, default: 4096}
  layer_types: {each: [full_attention]}
  pruned_heads: {is: {}}
  rope_theta: {same: [base, rope.base]}
harmless:
  keys: [use_cache, 'a.b c']
  tensors: ['layers.{i}.inv_freq']
)");
  ASSERT_TRUE(parsed.ast) << parsed.diags.render();
  EXPECT_EQ(parsed.ast->requirements[0].values[1].kind, ast::Literal::String);
  EXPECT_EQ(parsed.ast->requirements[1].values[0].kind, ast::Literal::Null);
  EXPECT_EQ(parsed.ast->requirements[1].fallback->number, 4096);
  EXPECT_EQ(ast::print(*parsed.ast), R"(1:8     model any
2:11    numerics transformers
4:3     config hidden: hidden_size
5:3     config head_dim: head_dim default (/ hidden heads)
6:3     config rope
6:10      config theta: rope_theta
6:29      config scaling: rope_scaling
7:3     config sliding: sliding_window if null none default 4096
9:5     config layer.window: layer_types values sliding_attention = sliding, full_attention = none default none
10:5    config layer.turns default (== (% layer 2) 0)
11:5    config layer.plain: a_list
13:3    weight head: [vocab, hidden] from lm_head.weight or (if tied embed _)
14:3    weight tail: [hidden] from tail.weight or head
16:5    weight layer.wq: [(* heads head_dim), hidden] from model.layers.{i}.q.weight
18:5    graph
18:5      x: (index embed tokens)
19:5      repeat layer
21:9        x: (+ x (call matmul x wq))
22:5      logits: (call matmul x head)
23:7    for model_type: any
23:24   for architectures: each A or B
23:47   for sliding_window: null, default 4096
25:3    requires hidden_act: silu or true
26:3    requires window: null, default 4096
27:3    requires layer_types: each full_attention
28:3    requires pruned_heads: {}
29:3    requires rope_theta: same as base or rope.base
31:10   harmless key use_cache
31:22   harmless key a.b c
32:14   harmless tensor layers.{i}.inv_freq
)");
}

TEST(Parse, ReportsErrorsOfAllSectionsAtOnce) {
  ParsedPipeline parsed("pipeline: p\nparams:\n  a: 1 +\n  b: 2 +\nstates: {A: {slot: yes}}\n"
                        "stages:\n  s: {on: A, do: [], goto: 3}\n");
  EXPECT_FALSE(parsed.ast);
  EXPECT_EQ(parsed.diags.errors(), 4u) << parsed.diags.render();
}

TEST(ParsePipeline, InputsOfRequests) {
  ParsedPipeline parsed("pipeline: p\nstates: {}\nstages: {}\nrequest:\n  a: i32 in 0..2 * n = input(1)\n"
                        "  b: token[n] = input\n  c: token[4] = input([])\n  d: bool = input(x or y)\n");
  ASSERT_TRUE(parsed.ast) << parsed.diags.render();
  EXPECT_EQ(ast::print(*parsed.ast), R"(1:11    pipeline p
5:3     field a: i32 in (range 0 (* 2 n)) = input 1
6:3     field b: token[n] = input
7:3     field c: token[4] = input []
8:3     field d: bool = input (or x y)
)");
  EXPECT_FALSE(parsed.ast->fields[1].init);
  EXPECT_EQ(parsed.ast->fields[1].input->loc.column, 17u);
}

} // namespace
} // namespace megalith
