// Every message about the graph of a model file, with its exact text and place.
#include "ModelErrors.h"

using namespace megalith;
using namespace megalith::modelErrors;

namespace {

const Case graphCases[] = {
    // clang-format off
    {"GraphArguments",
     false,
     {{"rms_norm(x, norm, eps)", "rms_norm(x, norm)"}},
     R"(
tiny.yaml:29:20: error: `rms_norm` takes (x, weight, eps, once=b), found 2 arguments [graph-arguments]
   29 |   - logits: matmul(rms_norm(x, norm), head)
      |                    ^~~~~~~~
)"},
    {"GraphArgumentsElementwise",
     false,
     {{"v: matmul(x, wv)", "v: silu(matmul(x, wv), x)"}},
     R"(
tiny.yaml:27:12: error: `silu` takes (x), found 2 arguments [graph-arguments]
   27 |       - v: silu(matmul(x, wv), x)
      |            ^~~~
)"},
    {"GraphArgumentsOne",
     false,
     {{"v: matmul(x, wv)", "v: max(matmul(x, wv))"}},
     R"(
tiny.yaml:27:12: error: `max` takes (x, y), found 1 argument [graph-arguments]
   27 |       - v: max(matmul(x, wv))
      |            ^~~
)"},
    {"GraphArgumentsByName",
     false,
     {{"v: matmul(x, wv)", "v: softcap(matmul(x, wv), cap=30)"}},
     R"(
tiny.yaml:27:35: error: `softcap` has no argument `cap` [unknown-argument]
   27 |       - v: softcap(matmul(x, wv), cap=30)
      |                                   ^~~
note: `softcap` takes (x, cap)
)"},
    {"NormOnceNumber",
     false,
     {{"rms_norm(x, norm, eps)", "rms_norm(x, norm, eps, once=1)"}},
     R"(
tiny.yaml:29:48: error: once of `rms_norm` needs true or false, found an integer (1) [constant-type]
   29 |   - logits: matmul(rms_norm(x, norm, eps, once=1), head)
      |                                                ^
)"},
    {"NormOnceNoConstant",
     false,
     {{"rms_norm(x, norm, eps)", "rms_norm(x, norm, eps, once=x)"}},
     R"(
tiny.yaml:29:48: error: once of `rms_norm` needs true or false, found `x` [constant-type]
   29 |   - logits: matmul(rms_norm(x, norm, eps, once=x), head)
      |                                                ^
)"},
    {"GraphArgumentsScale",
     false,
     {{"attention(q, k, v)", "attention(q, k, v, scale=1, scael=2)"}},
     R"(
tiny.yaml:28:51: error: `attention` has no argument `scael` [unknown-argument]
   28 |       - x: x + matmul(attention(q, k, v, scale=1, scael=2), wo)
      |                                                   ^~~~~
note: `attention` takes (q, k, v, scale=s, window=w, softcap=c)
)"},
    {"AttentionWindow",
     false,
     {{"attention(q, k, v)", "attention(q, k, v, window=0)"}},
     R"(
tiny.yaml:28:49: error: window of `attention` needs an integer from 1 to 2147483647, or `none`, found an integer (0) [constant-type]
   28 |       - x: x + matmul(attention(q, k, v, window=0), wo)
      |                                                 ^
)"},
    {"AttentionWindowOfRows",
     false,
     {{"attention(q, k, v)", "attention(q, k, v, window=x)"}},
     R"(
tiny.yaml:28:49: error: unknown name `x` in a constant expression [unknown-config-name]
   28 |       - x: x + matmul(attention(q, k, v, window=x), wo)
      |                                                 ^
)"},
    {"AttentionSoftCap",
     false,
     {{"attention(q, k, v)", "attention(q, k, v, softcap=0 - 1)"}},
     R"(
tiny.yaml:28:52: error: softcap of `attention` needs a number above 0 in f32, or `none`, found an integer (-1) [constant-type]
   28 |       - x: x + matmul(attention(q, k, v, softcap=0 - 1), wo)
      |                                                    ^
)"},
    {"AttentionSoftCapOfRows",
     false,
     {{"attention(q, k, v)", "attention(q, k, v, softcap=x)"}},
     R"(
tiny.yaml:28:50: error: softcap of `attention` needs a number above 0 in f32, or `none`, found `x` [constant-type]
   28 |       - x: x + matmul(attention(q, k, v, softcap=x), wo)
      |                                                  ^
)"},
    {"GraphArgumentsPosition",
     false,
     {{"matmul(x, wk), position)", "matmul(x, wk), eps)"}},
     R"(
tiny.yaml:26:32: error: `rope` takes (x, position), found `eps` [graph-arguments]
   26 |       - k: rope(matmul(x, wk), eps)
      |                                ^~~
note: the second argument is the word `position`
)"},
    {"GraphExpression",
     false,
     {{"v: matmul(x, wv)", "v: '[x]'"}},
     R"(
tiny.yaml:27:13: error: a graph is made of calls, `+ - * /`, names, numbers, `weight[tokens]`, `weight[position]` and parts of weights [graph-expression]
   27 |       - v: '[x]'
      |             ^
)"},
    {"GraphExpressionIndex",
     false,
     {{"- x: embed[tokens]", "- x: embed[tokens]\n  - y: x[tokens]"}},
     R"(
tiny.yaml:23:8: error: `[tokens]` needs the name of a weight here [not-a-weight]
   23 |   - y: x[tokens]
      |        ^
)"},
    {"BoolInGraph",
     false,
     {{"v: matmul(x, wv)", "v: matmul(x, wv) * tied"}},
     R"(
tiny.yaml:27:28: error: a graph needs a number, found a bool (false) [constant-type]
   27 |       - v: matmul(x, wv) * tied
      |                            ^~~~
)"},
    {"LocalFallback",
     false,
     {{"head_dim: {key: head_dim, default: hidden / heads}", "head_dim: {key: head_dim, default: hiden / heads}"}},
     R"(
tiny.yaml:7:38: error: unknown name `hiden` in a constant expression [unknown-config-name]
    7 |   head_dim: {key: head_dim, default: hiden / heads}
      |                                      ^~~~~
note: did you mean `hidden`?
)"},
    {"RepeatInRepeat",
     false,
     {{"      - v: matmul", "      - repeat: layer\n" "        do:\n" "          - y: x + x\n" "      - v: matmul"}},
     R"(
tiny.yaml:27:17: error: a graph has one `repeat` [repeat-twice]
   27 |       - repeat: layer
      |                 ^~~~~
)"},
    {"UnknownNameOnce",
     false,
     {{"x: x + matmul(attention(q, k, v), wo)", "x: x + y * matmul(attention(q, k, y), wo)"}},
     R"(
tiny.yaml:28:16: error: unknown name `y` in the graph [unknown-graph-name]
   28 |       - x: x + y * matmul(attention(q, k, y), wo)
      |                ^
note: did you mean `x`?
)"},
    {"MisplacedName",
     false,
     {{"v: matmul(x, wv)", "v: matmul(x + position, wv)"}},
     R"(
tiny.yaml:27:23: error: `position` stands only in `rope(x, position)` and `weight[position]` [misplaced-name]
   27 |       - v: matmul(x + position, wv)
      |                       ^~~~~~~~
)"},
    {"NeedsRows",
     false,
     {{"v: matmul(x, wv)", "v: matmul(eps, wv)"}},
     R"(
tiny.yaml:27:19: error: `matmul` needs a value with one line per row, found a number [needs-rows]
   27 |       - v: matmul(eps, wv)
      |                   ^~~
)"},
    {"NeedsRowsVector",
     false,
     {{"rms_norm(x, norm, eps)", "norm + 1"}},
     R"(
tiny.yaml:29:25: error: `matmul` needs a value with one line per row, found [64] [needs-rows]
   29 |   - logits: matmul(norm + 1, head)
      |                         ^
)"},
    {"NeedsRowsNumber",
     false,
     {{"v: matmul(x, wv)", "v: matmul(x, wv) * exp(2)"}},
     R"(
tiny.yaml:27:28: error: `exp` needs a value with one line per row, found a number [needs-rows]
   27 |       - v: matmul(x, wv) * exp(2)
      |                            ^~~
)"},
    {"VectorOfRows",
     false,
     {{"rms_norm(x, norm, eps)", "rms_norm(x, 1 + x, eps)"}},
     R"(
tiny.yaml:29:34: error: `rms_norm` needs a vector here: the name of a weight, or weights and numbers [not-a-weight]
   29 |   - logits: matmul(rms_norm(x, 1 + x, eps), head)
      |                                  ^
)"},
    {"VectorOfMatrix",
     false,
     {{"rms_norm(x, norm, eps)", "rms_norm(x, embed, eps)"}},
     R"(
tiny.yaml:29:32: error: weight `embed` is [100, 64], expected a vector [weight-use]
   29 |   - logits: matmul(rms_norm(x, embed, eps), head)
      |                                ^~~~~
tiny.yaml:13:3: note: the weight is declared here
   13 |   embed: {shape: '[vocab, hidden]', from: embed.weight}
      |   ^~~~~
)"},
    {"NormShapeOfExpression",
     false,
     {{"v: matmul(x, wv)", "v: rms_norm(matmul(x, wv), 1 + norm, eps)"}},
     R"(
tiny.yaml:27:12: error: the 32 columns of the operand of `rms_norm` are not a multiple of the length 64 of weight `1 + norm` [norm-shape]
   27 |       - v: rms_norm(matmul(x, wv), 1 + norm, eps)
      |            ^~~~~~~~
)"},
    {"NotAWeight",
     false,
     {{"v: matmul(x, wv)", "v: matmul(x, q)"}},
     R"(
tiny.yaml:27:22: error: `matmul` needs the name of a weight here [not-a-weight]
   27 |       - v: matmul(x, q)
      |                      ^
)"},
    {"WeightUse",
     false,
     {{"v: matmul(x, wv)", "v: matmul(x, norm)"}},
     R"(
tiny.yaml:27:22: error: weight `norm` is [64], expected a matrix [weight-use]
   27 |       - v: matmul(x, norm)
      |                      ^~~~
tiny.yaml:14:3: note: the weight is declared here
   14 |   norm: {shape: '[hidden]', from: norm.weight}
      |   ^~~~
)"},
    {"WeightUseVector",
     false,
     {{"v: matmul(x, wv)", "v: matmul(x, wv) + wk"}},
     R"(
tiny.yaml:27:28: error: weight `wk` is [32, 64], expected a vector [weight-use]
   27 |       - v: matmul(x, wv) + wk
      |                            ^~
tiny.yaml:18:5: note: the weight is declared here
   18 |     wk: {shape: '[kv_heads * head_dim, hidden]', from: 'layers.{i}.k'}
      |     ^~
)"},
    {"MatmulShape",
     false,
     {{"v: matmul(x, wv)", "v: matmul(q, wv) + matmul(k, wv)"}},
     R"(
tiny.yaml:27:28: error: cannot multiply `k` [R, 32] by weight `wv` [32, 64]: the weight takes 64 columns [matmul-shape]
   27 |       - v: matmul(q, wv) + matmul(k, wv)
      |                            ^~~~~~
tiny.yaml:19:5: note: the weight is declared here
   19 |     wv: {shape: '[kv_heads * head_dim, hidden]', from: 'layers.{i}.v'}
      |     ^~
)"},
    {"ElementwiseShape",
     false,
     {{"x: x + matmul(", "x: k + matmul("}},
     R"(
tiny.yaml:28:14: error: the operands of `+` do not match: [R, 32] and [R, 64] [elementwise-shape]
   28 |       - x: k + matmul(attention(q, k, v), wo)
      |              ^
)"},
    {"ElementwiseShapeBias",
     false,
     {{"v: matmul(x, wv)", "v: matmul(x, wv) + norm"}},
     R"(
tiny.yaml:27:28: error: the operands of `+` do not match: [R, 32] and [64] [elementwise-shape]
   27 |       - v: matmul(x, wv) + norm
      |                            ^~~~
)"},
    {"PositiveCap",
     false,
     {{"v: matmul(x, wv)", "v: softcap(matmul(x, wv), 0)"}},
     R"(
tiny.yaml:27:35: error: cap of `softcap` needs a number above 0 in f32, found 0 [constant-type]
   27 |       - v: softcap(matmul(x, wv), 0)
      |                                   ^
)"},
    {"PositiveEps",
     false,
     {{"rms_norm(x, norm, eps)", "rms_norm(x, norm, -eps)"}},
     R"(
tiny.yaml:29:38: error: eps of `rms_norm` needs a number above 0 in f32, found -1e-05 [constant-type]
   29 |   - logits: matmul(rms_norm(x, norm, -eps), head)
      |                                      ^
)"},
    {"CapOfColumns",
     false,
     {{"v: matmul(x, wv)", "v: softcap(matmul(x, wv), norm)"}},
     R"(
tiny.yaml:27:35: error: cap of `softcap` needs a number, found [64] [constant-type]
   27 |       - v: softcap(matmul(x, wv), norm)
      |                                   ^~~~
)"},
    {"CappedNumber",
     false,
     {{"v: matmul(x, wv)", "v: matmul(x, wv) * softcap(eps, 30)"}},
     R"(
tiny.yaml:27:36: error: `softcap` needs a value with one line per row, found a number [needs-rows]
   27 |       - v: matmul(x, wv) * softcap(eps, 30)
      |                                    ^~~
)"},
    {"NormShape",
     false,
     {{"v: matmul(x, wv)", "v: rms_norm(matmul(x, wv), norm, eps)"}},
     R"(
tiny.yaml:27:12: error: the 32 columns of the operand of `rms_norm` are not a multiple of the length 64 of weight `norm` [norm-shape]
   27 |       - v: rms_norm(matmul(x, wv), norm, eps)
      |            ^~~~~~~~
)"},
    {"NormEps",
     false,
     {{"rms_norm(x, norm, eps)", "rms_norm(x, norm, x)"}},
     R"(
tiny.yaml:29:38: error: eps of `rms_norm` needs a number, found [R, 64] [constant-type]
   29 |   - logits: matmul(rms_norm(x, norm, x), head)
      |                                      ^
)"},
    {"RopeMissing",
     false,
     {{"  rope: {theta: rope_theta, scaling: rope_scaling}\n", ""}},
     R"(
tiny.yaml:24:12: error: `rope` needs `rope: {theta: rope_theta, scaling: rope_scaling}` in `config` [rope-missing]
   24 |       - q: rope(matmul(x, wq), position)
      |            ^~~~
)"},
    {"RopeConfig",
     true,
     {{"\"rope_theta\": 10000.0", "\"rope_theta\": 10000.0, \"rope_scaling\": {\"rope_type\": \"dynamic\", \"factor\": 2.0}"}},
     R"(
tiny.yaml:25:12: error: cannot use the rotary embedding of `model/config.json`: rotary embedding of type `dynamic` is not supported, only `default`, `linear`, `llama3`, `yarn` and `longrope` are [rope-config]
   25 |       - q: rope(matmul(x, wq), position)
      |            ^~~~
)"},
    {"HeadDimMissing",
     false,
     {{"  head_dim: {key: head_dim, default: hidden / heads}\n", "  head_size: {key: head_dim, default: hidden / heads}\n"},
      {"head_dim, hidden]", "head_size, hidden]"},
      {"heads * head_dim]", "heads * head_size]"}},
     R"(
tiny.yaml:25:12: error: `rope` needs the config name `head_dim`, an integer [head-dim-missing]
   25 |       - q: rope(matmul(x, wq), position)
      |            ^~~~
)"},
    {"HeadDimSize",
     true,
     {{"\"num_attention_heads\": 4", "\"num_attention_heads\": 8"}},
     R"(
tiny.yaml:25:12: error: `head_dim` is 8, expected a multiple of 16 up to 256 [head-dim-size]
   25 |       - q: rope(matmul(x, wq), position)
      |            ^~~~
)"},
    {"HeadColumns",
     false,
     {{"wk: {shape: '[kv_heads * head_dim, hidden]'", "wk: {shape: '[24, hidden]'"}},
     R"(
tiny.yaml:26:12: error: the operand of `rope` has 24 columns, which is not a multiple of `head_dim` 16 [head-columns]
   26 |       - k: rope(matmul(x, wk), position)
      |            ^~~~
)"},
    {"AttentionColumns",
     false,
     {{"q: rope(matmul(x, wq), position)", "q: matmul(x, wq)"},
      {"wq: {shape: '[heads * head_dim, hidden]'", "wq: {shape: '[40, hidden]'"}},
     R"(
tiny.yaml:28:23: error: q of `attention` has 40 columns, which is not a multiple of `head_dim` 16 [head-columns]
   28 |       - x: x + matmul(attention(q, k, v), wo)
      |                       ^~~~~~~~~
)"},
    {"AttentionHeads",
     true,
     {{"\"num_key_value_heads\": 2", "\"num_key_value_heads\": 3"}},
     R"(
tiny.yaml:28:23: error: 4 query heads cannot be shared out to 3 key heads [attention-heads]
   28 |       - x: x + matmul(attention(q, k, v), wo)
      |                       ^~~~~~~~~
)"},
    {"AttentionKv",
     false,
     {{"attention(q, k, v)", "attention(q, k, q)"}},
     R"(
tiny.yaml:28:23: error: k [R, 32] and v [R, 64] of `attention` differ [attention-kv]
   28 |       - x: x + matmul(attention(q, k, q), wo)
      |                       ^~~~~~~~~
)"},
    {"AttentionCount",
     false,
     {{"x: x + matmul(attention", "x: x + matmul(attention(q, k, v), wo) + matmul(attention"}},
     R"(
tiny.yaml:28:56: error: a second `attention`: a layer appends K and V once [attention-count]
   28 |       - x: x + matmul(attention(q, k, v), wo) + matmul(attention(q, k, v), wo)
      |                                                        ^~~~~~~~~
tiny.yaml:28:23: note: the other one
   28 |       - x: x + matmul(attention(q, k, v), wo) + matmul(attention(q, k, v), wo)
      |                       ^~~~~~~~~
)"},
    {"MissingLogits",
     false,
     {{"- logits:", "- logit:"}},
     R"(
tiny.yaml:1:8: error: the graph of `tiny` does not assign `logits` [missing-logits]
    1 | model: tiny
      |        ^~~~
)"},
    {"LogitsShape",
     false,
     {{"rms_norm(x, norm, eps), head)", "x, norm2)"},
      {"  layer:\n", "  norm2: {shape: '[hidden, hidden]', from: n}\n" "  layer:\n"}},
     R"(
tiny.yaml:30:5: error: `logits` is [R, 64], expected [R, 100]: one column per line of `embed` [logits-shape]
   30 |   - logits: matmul(x, norm2)
      |     ^~~~~~
)"},
    {"ResultShape",
     false,
     {{"- logits: matmul(rms_norm(x, norm, eps), head)", "- y: rms_norm(x, norm, eps)\n"
                                                         "  - logits: matmul(y, head)\n"
                                                         "results: {logits: logits, y: y, z: zz}"}},
     R"(
tiny.yaml:31:30: error: result `y` is [R, 64], expected [R, 100]: the shape of the logits [result-shape]
   31 | results: {logits: logits, y: y, z: zz}
      |                              ^
tiny.yaml:31:36: error: unknown name `zz` in the graph [unknown-graph-name]
   31 | results: {logits: logits, y: y, z: zz}
      |                                    ^~
)"},
    {"ResultTwice",
     false,
     {{"- logits: matmul(rms_norm(x, norm, eps), head)", "- y: matmul(rms_norm(x, norm, eps), head)\n"
                                                         "  - z: -y\n"
                                                         "results: {logits: y, a: z, b: z, c: y}"}},
     R"(
tiny.yaml:31:31: error: `z` is the value of two results, `a` and `b` [result-twice]
   31 | results: {logits: y, a: z, b: z, c: y}
      |                               ^
tiny.yaml:31:37: error: `y` is the value of two results, `logits` and `c` [result-twice]
   31 | results: {logits: y, a: z, b: z, c: y}
      |                                     ^
)"},
    {"LogitsNumber",
     false,
     {{"- logits: matmul(rms_norm(x, norm, eps), head)", "- logits: eps"}},
     R"(
tiny.yaml:29:5: error: `logits` is a number, expected [R, 100]: one column per line of `embed` [logits-shape]
   29 |   - logits: eps
      |     ^~~~~~
)"},
    {"UnusedWeight",
     false,
     {{"rms_norm(x, norm, eps), head)\n", "x, head)\n" "harmless: {keys: [rms_norm_eps]}\n"}},
     R"(
tiny.yaml:14:3: warning: weight `norm` is not used by the graph [unused-weight]
   14 |   norm: {shape: '[hidden]', from: norm.weight}
      |   ^~~~
)"},
    {"UnusedGraphValue",
     false,
     {{"      - v: matmul", "      - y: matmul(x, wo)\n" "      - v: matmul"}},
     R"(
tiny.yaml:27:9: error: the value of `y` is never used [unused-graph-value]
   27 |       - y: matmul(x, wo)
      |         ^
)"},
    {"UnusedGraphValueOverwritten",
     false,
     {{"      - v: matmul", "      - k: matmul(x, wk)\n" "      - v: matmul"}},
     R"(
tiny.yaml:26:9: error: the value of `k` is never used [unused-graph-value]
   26 |       - k: rope(matmul(x, wk), position)
      |         ^
)"},
    {"LayerWeightOutside",
     false,
     {{"matmul(rms_norm(x, norm, eps), head)", "matmul(matmul(x, wo), head)"}},
     R"(
tiny.yaml:29:30: error: weight `wo` belongs to a layer, but this stands outside `repeat: layer` [layer-weight-outside]
   29 |   - logits: matmul(matmul(x, wo), head)
      |                              ^~
)"},
    {"LayersMissing",
     false,
     {{"layers: num_hidden_layers", "depth: num_hidden_layers"}},
     R"(
tiny.yaml:23:13: error: `repeat: layer` needs the config name `layers`, an integer from 1 to 4096 [layers-missing]
   23 |   - repeat: layer
      |             ^~~~~
)"},
    {"LayersTooMany",
     true,
     {{"\"num_hidden_layers\": 2", "\"num_hidden_layers\": 4097"}},
     R"(
tiny.yaml:23:13: error: `repeat: layer` needs the config name `layers`, an integer from 1 to 4096 [layers-missing]
   23 |   - repeat: layer
      |             ^~~~~
)"},
    {"HeadsTooMany",
     true,
     {{"\"num_attention_heads\": 4, \"num_key_value_heads\": 2",
       "\"num_attention_heads\": 1048578, \"head_dim\": 16, \"num_key_value_heads\": 2"}},
     R"(
tiny.yaml:28:23: error: `attention` has 1048578 heads, at most 1048576 are possible [head-count]
   28 |       - x: x + matmul(attention(q, k, v), wo)
      |                       ^~~~~~~~~
)"},
    {"WeightBytes",
     true,
     {{"\"vocab_size\": 100", "\"vocab_size\": 2147483647"},
      {"from: norm.weight}", "from: norm.weight}\n  big: {shape: '[vocab, vocab]', from: big}"}},
     R"(
tiny.yaml:15:3: warning: weight `big` is not used by the graph [unused-weight]
   15 |   big: {shape: '[vocab, vocab]', from: big}
      |   ^~~
tiny.yaml:15:3: error: with `big` the weights of all layers have more than 16 TiB, the most that is possible [weight-bytes]
   15 |   big: {shape: '[vocab, vocab]', from: big}
      |   ^~~
)"},
    {"ConfigEntryWithoutKeys",
     false,
     {{"kv_heads: num_key_value_heads", "kv_heads: {}"}},
     R"(
tiny.yaml:6:13: error: config entry `kv_heads` must be a key of config.json or a mapping with `key`, found an empty one [wrong-node-kind]
    6 |   kv_heads: {}
      |             ^
)"},
    {"RepeatCollection",
     false,
     {{"repeat: layer", "repeat: layers"}},
     R"(
tiny.yaml:23:13: error: cannot repeat `layers`, only `layer` [repeat-collection]
   23 |   - repeat: layers
      |             ^~~~~~
)"},
    {"RepeatTwice",
     false,
     {{"  - logits:", "  - repeat: layer\n" "    do:\n" "      - x: x + matmul(x, wo)\n" "  - logits:"}},
     R"(
tiny.yaml:29:13: error: a graph has one `repeat` [repeat-twice]
   29 |   - repeat: layer
      |             ^~~~~
tiny.yaml:23:13: note: the other one
   23 |   - repeat: layer
      |             ^~~~~
)"},
    {"LoopShape",
     false,
     {{"x: x + matmul(attention(q, k, v), wo)", "x: k"}},
     R"(
tiny.yaml:28:9: error: `x` is [R, 64] before `repeat` and [R, 32] at the end of its body [loop-shape]
   28 |       - x: k
      |         ^
)"},
    {"LoopLocal",
     false,
     {{"rms_norm(x, norm, eps)", "rms_norm(q, norm, eps)"}},
     R"(
tiny.yaml:29:29: error: `q` gets a value only inside `repeat`: assign it before `repeat`, too [loop-local]
   29 |   - logits: matmul(rms_norm(q, norm, eps), head)
      |                             ^
)"},
    // clang-format on
};

class ModelGraphErrors : public testing::TestWithParam<Case> {};

TEST_P(ModelGraphErrors, HasText) { EXPECT_EQ(saidOf(GetParam()), GetParam().expected); }

INSTANTIATE_TEST_SUITE_P(All, ModelGraphErrors, testing::ValuesIn(graphCases),
                         [](const auto &info) { return std::string(info.param.name); });

} // namespace
