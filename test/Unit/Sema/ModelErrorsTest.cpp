// Every message about a model file, with its exact text and place.
#include "megalith/Sema/Model.h"
#include "megalith/Syntax/Parse.h"
#include <gtest/gtest.h>
#include <utility>

using namespace megalith;

namespace {

const char *const goodModel = R"(model: tiny
config:
  hidden: hidden_size
  layers: num_hidden_layers
  heads: num_attention_heads
  kv_heads: num_key_value_heads
  head_dim: {key: head_dim, default: hidden / heads}
  vocab: vocab_size
  eps: rms_norm_eps
  rope: {theta: rope_theta, scaling: rope_scaling}
  tied: {key: tie_word_embeddings, default: false}
weights:
  embed: {shape: '[vocab, hidden]', from: embed.weight}
  norm: {shape: '[hidden]', from: norm.weight}
  head: {shape: '[vocab, hidden]', from: head.weight, or: embed if tied}
  layer:
    wq: {shape: '[heads * head_dim, hidden]', from: 'layers.{i}.q'}
    wk: {shape: '[kv_heads * head_dim, hidden]', from: 'layers.{i}.k'}
    wv: {shape: '[kv_heads * head_dim, hidden]', from: 'layers.{i}.v'}
    wo: {shape: '[hidden, heads * head_dim]', from: 'layers.{i}.o'}
graph:
  - x: embed[tokens]
  - repeat: layer
    do:
      - q: rope(matmul(x, wq), position)
      - k: rope(matmul(x, wk), position)
      - v: matmul(x, wv)
      - x: x + matmul(attention(q, k, v), wo)
  - logits: matmul(rms_norm(x, norm, eps), head)
)";

const char *const goodConfig =
    R"({"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100, "rms_norm_eps": 1e-05, "rope_theta": 10000.0})";

struct Case {
  const char *name;
  bool inConfig; ///< the first edit is one of config.json
  std::vector<std::pair<std::string, std::string>> edits;
  const char *expected; ///< behind a newline
};

std::string diagnose(std::string model, const std::string &config) {
  SourceFiles files;
  Diagnostics diags(files);
  uint32_t file = files.add("tiny.yaml", std::move(model));
  std::optional<ast::ModelFile> parsed = ast::parseModel(diags, file);
  Result<ConfigFile> read = ConfigFile::parse(config, "", "model/config.json");
  if (parsed && read) {
    Acceptance acceptance;
    std::optional<CheckedModel> checked = checkModel(*parsed, *read, acceptance, diags);
    EXPECT_EQ(checked.has_value(), !diags.hasErrors());
  }
  return diags.render();
}

void replaceAll(std::string &text, const std::string &from, const std::string &to) {
  size_t at = text.find(from);
  ASSERT_NE(at, std::string::npos) << from;
  for (; at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

const Case cases[] = {
    // clang-format off
    {"UnknownNumerics",
     false,
     {{"model: tiny\n", "model: tiny\n" "numerics: transformer\n"}},
     R"(
tiny.yaml:2:11: error: unknown numerics `transformer`, expected `transformers` or `fused` [unknown-numerics]
    2 | numerics: transformer
      |           ^~~~~~~~~~~
note: did you mean `transformers`?
)"},
    {"MissingConfigKey",
     false,
     {{"hidden: hidden_size", "hidden: hiden_size"}},
     R"(
tiny.yaml:3:11: error: `model/config.json` has no key `hiden_size`, which `hidden` needs [missing-config-key]
    3 |   hidden: hiden_size
      |           ^~~~~~~~~~
note: did you mean `hidden_size`?
model/config.json:1:2: error: nothing in `tiny.yaml` understands `hidden_size`, so the graph may be wrong for this checkpoint [config-unknown]
    1 | {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100, "rms_norm_eps": 1e-05, "rope_theta": 10000.0}
      |  ^~~~~~~~~~~~~
note: did you mean `hiden_size`?
tiny.yaml:2:1: note: this is what the graph reads; put a key that cannot change logits into `harmless:`, one for some of whose values the graph is right into `requires:`, or take it on your word with `--accept KEY`
    2 | config:
      | ^~~~~~
)"},
    {"MissingConfigKeyOfRope",
     true,
     {{"\"rope_theta\": 10000.0", "\"rope_thet\": 10000.0"}},
     R"(
tiny.yaml:10:17: error: `model/config.json` has no key `rope_theta`, which `rope.theta` needs [missing-config-key]
   10 |   rope: {theta: rope_theta, scaling: rope_scaling}
      |                 ^~~~~~~~~~
note: did you mean `rope_thet`?
model/config.json:1:139: error: nothing in `tiny.yaml` understands `rope_thet`, so the graph may be wrong for this checkpoint [config-unknown]
    1 | {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100, "rms_norm_eps": 1e-05, "rope_thet": 10000.0}
      |                                                                                                                                           ^~~~~~~~~~~
note: did you mean `rope_theta`?
tiny.yaml:2:1: note: this is what the graph reads; put a key that cannot change logits into `harmless:`, one for some of whose values the graph is right into `requires:`, or take it on your word with `--accept KEY`
    2 | config:
      | ^~~~~~
)"},
    {"UnknownRopePart",
     false,
     {{"scaling: rope_scaling", "scale: rope_scaling"}},
     R"(
tiny.yaml:10:29: error: unknown key `scale` in `config.rope` [unknown-key]
   10 |   rope: {theta: rope_theta, scale: rope_scaling}
      |                             ^~~~~
)"},
    {"PartOfARopePart",
     false,
     {{"theta: rope_theta,", "theta: {iey: rope_theta, is: 1},"}},
     R"(
tiny.yaml:10:18: error: unknown key `iey` in config entry `theta` [unknown-key]
   10 |   rope: {theta: {iey: rope_theta, is: 1}, scaling: rope_scaling}
      |                  ^~~
note: did you mean `key`?
tiny.yaml:10:35: error: unknown key `is` in config entry `theta` [unknown-key]
   10 |   rope: {theta: {iey: rope_theta, is: 1}, scaling: rope_scaling}
      |                                   ^~
)"},
    {"ConfigValueKind",
     true,
     {{"\"rms_norm_eps\": 1e-05", "\"rms_norm_eps\": 1e-05, \"kind\": [1]"},
      {"  eps: rms_norm_eps\n", "  eps: rms_norm_eps\n" "  kind: kind\n"},
      {"or: embed if tied", "or: embed if kind == 3"}},
     R"(
tiny.yaml:10:9: error: key `kind` of `model/config.json` is a list, expected a number, a bool or a string [config-value-kind]
   10 |   kind: kind
      |         ^~~~
)"},
    {"ConfigSize",
     true,
     {{"\"vocab_size\": 100", "\"vocab_size\": [100]"}},
     R"(
model/config.json:1:97: error: `vocab_size` must be an integer from 1 to 2147483647, found `[100]` [config-key]
    1 | ...rs": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": [100], "rms_norm_eps": 1e-05, "rope_theta": 10000.0}
      |                                                                ^~~~~~~~~~~~
tiny.yaml:8:10: note: read here
    8 |   vocab: vocab_size
      |          ^~~~~~~~~~
)"},
    {"ConfigNameThatNothingUses",
     true,
     {{"\"rms_norm_eps\": 1e-05", "\"rms_norm_eps\": 1e-05, \"window\": 8"},
      {"  eps: rms_norm_eps\n", "  eps: rms_norm_eps\n" "  span: window\n"}},
     R"(
model/config.json:1:139: error: nothing in `tiny.yaml` understands `window`, so the graph may be wrong for this checkpoint [config-unknown]
    1 | ..._value_heads": 2, "vocab_size": 100, "rms_norm_eps": 1e-05, "window": 8, "rope_theta": 10000.0}
      |                                                                ^~~~~~~~
tiny.yaml:10:9: note: it is named here, but nothing uses `span`
   10 |   span: window
      |         ^~~~~~
tiny.yaml:2:1: note: this is what the graph reads; put a key that cannot change logits into `harmless:`, one for some of whose values the graph is right into `requires:`, or take it on your word with `--accept KEY`
    2 | config:
      | ^~~~~~
)"},
    {"ConfigRequires",
     true,
     {{"\"rope_theta\": 10000.0", "\"rope_theta\": 10000.0, \"act\": \"gelu\""},
      {"graph:\n", "requires:\n" "  act: [silu, swish]\n" "graph:\n"}},
     R"(
model/config.json:1:162: error: `act` is `"gelu"`, but the graph of `tiny` is right for `silu` or `swish` only [config-requires]
    1 | ...b_size": 100, "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "act": "gelu"}
      |                                                                ^~~~~
tiny.yaml:22:3: note: required here; take a model file whose graph does what the checkpoint wants, or give `--accept act` if you know that it changes nothing
   22 |   act: [silu, swish]
      |   ^~~
)"},
    {"UnknownConfigName",
     false,
     {{"'[hidden]'", "'[hiden]'"}},
     R"(
tiny.yaml:14:19: error: unknown name `hiden` in a constant expression [unknown-config-name]
   14 |   norm: {shape: '[hiden]', from: norm.weight}
      |                   ^~~~~
note: did you mean `hidden`?
)"},
    {"ModelConstant",
     false,
     {{"'[hidden]'", "'[matmul(hidden)]'"}},
     R"(
tiny.yaml:14:19: error: this must be a constant: config names, literals, operators, `min`, `max` and `sqrt` [model-constant]
   14 |   norm: {shape: '[matmul(hidden)]', from: norm.weight}
      |                   ^~~~~~
)"},
    {"ConstantType",
     false,
     {{"'[hidden]'", "'[hidden + tied]'"}},
     R"(
tiny.yaml:14:26: error: `+` needs numbers, found a bool (false) [constant-type]
   14 |   norm: {shape: '[hidden + tied]', from: norm.weight}
      |                          ^
)"},
    {"ConstantTypeOfCondition",
     false,
     {{"embed if tied", "embed if heads"}},
     R"(
tiny.yaml:15:68: error: the condition of `or` needs a bool, found an integer (4) [constant-type]
   15 |   head: {shape: '[vocab, hidden]', from: head.weight, or: embed if heads}
      |                                                                    ^~~~~
)"},
    {"UnevenDivision",
     true,
     {{"\"num_attention_heads\": 4", "\"num_attention_heads\": 7"}},
     R"(
tiny.yaml:7:45: error: 64 cannot be divided by 7 without a remainder [uneven-division]
    7 |   head_dim: {key: head_dim, default: hidden / heads}
      |                                             ^
)"},
    {"DivisionByZero",
     false,
     {{"'[hidden]'", "'[hidden / 0]'"}},
     R"(
tiny.yaml:14:26: error: 64 cannot be divided by 0 without a remainder [uneven-division]
   14 |   norm: {shape: '[hidden / 0]', from: norm.weight}
      |                          ^
)"},
    {"ConstantRange",
     false,
     {{"'[hidden]'", "'[hidden * 4611686018427387904]'"}},
     R"(
tiny.yaml:14:26: error: `64 * 4611686018427387904` does not fit into 64 bits [constant-range]
   14 |   norm: {shape: '[hidden * 4611686018427387904]', from: norm.weight}
      |                          ^
)"},
    {"NameTakenByConfig",
     false,
     {{"  norm: {shape", "  heads: {shape"}},
     R"(
tiny.yaml:14:3: error: `heads` is already a config name [name-taken]
   14 |   heads: {shape: '[hidden]', from: norm.weight}
      |   ^~~~~
)"},
    {"NameTakenByWeight",
     false,
     {{"    wv: {shape", "    norm: {shape"}},
     R"(
tiny.yaml:19:5: error: `norm` is already a weight [name-taken]
   19 |     norm: {shape: '[kv_heads * head_dim, hidden]', from: 'layers.{i}.v'}
      |     ^~~~
tiny.yaml:14:3: note: the other `norm`
   14 |   norm: {shape: '[hidden]', from: norm.weight}
      |   ^~~~
)"},
    {"NameTakenByLocal",
     false,
     {{"- q: rope(", "- wk: rope("}},
     R"(
tiny.yaml:25:9: error: `wk` is already a weight [name-taken]
   25 |       - wk: rope(matmul(x, wq), position)
      |         ^~
tiny.yaml:28:33: error: unknown name `q` in the graph [unknown-graph-name]
   28 |       - x: x + matmul(attention(q, k, v), wo)
      |                                 ^
note: did you mean `x`?
)"},
    {"NameTakenByLanguage",
     false,
     {{"- x: embed[tokens]", "- tokens: embed[tokens]"}},
     R"(
tiny.yaml:22:5: error: `tokens` is already a name of the language [name-taken]
   22 |   - tokens: embed[tokens]
      |     ^~~~~~
tiny.yaml:25:24: error: `x` gets a value only inside `repeat`: assign it before `repeat`, too [loop-local]
   25 |       - q: rope(matmul(x, wq), position)
      |                        ^
)"},
    {"LayerPatternMissing",
     false,
     {{"'layers.{i}.v'", "'layers.v'"}},
     R"(
tiny.yaml:19:57: error: weight `wv` stands below `layer`, so its `from` needs `{i}` for the layer [layer-pattern]
   19 |     wv: {shape: '[kv_heads * head_dim, hidden]', from: 'layers.v'}
      |                                                         ^~~~~~~~
)"},
    {"LayerPatternOutside",
     false,
     {{"from: norm.weight", "from: 'norm.{i}'"}},
     R"(
tiny.yaml:14:36: error: weight `norm` has `{i}` in `from`, but does not stand below `layer` [layer-pattern]
   14 |   norm: {shape: '[hidden]', from: 'norm.{i}'}
      |                                    ^~~~~~~~
)"},
    {"WeightSize",
     false,
     {{"'[hidden]'", "'[hidden - 64]'"}},
     R"(
tiny.yaml:14:26: error: each dimension of weight `norm` must be an integer from 1 to 2147483647, found 0 [weight-size]
   14 |   norm: {shape: '[hidden - 64]', from: norm.weight}
      |                          ^
)"},
    {"WeightSizeFraction",
     false,
     {{"'[hidden]'", "'[hidden * 0.5]'"}},
     R"(
tiny.yaml:14:26: error: each dimension of weight `norm` must be an integer from 1 to 2147483647, found no integer [weight-size]
   14 |   norm: {shape: '[hidden * 0.5]', from: norm.weight}
      |                          ^
)"},
    {"WeightRank",
     false,
     {{"'[hidden]'", "'[hidden, 2, 2]'"}},
     R"(
tiny.yaml:14:3: error: weight `norm` has 3 dimensions, expected 1 (a vector) or 2 (a matrix) [weight-rank]
   14 |   norm: {shape: '[hidden, 2, 2]', from: norm.weight}
      |   ^~~~
)"},
    {"AliasShape",
     false,
     {{"or: embed if tied", "or: norm if not tied"}},
     R"(
tiny.yaml:15:59: error: weight `head` [100, 64] cannot use the storage of `norm` [64]: shape and number of layers must be equal [alias-shape]
   15 |   head: {shape: '[vocab, hidden]', from: head.weight, or: norm if not tied}
      |                                                           ^~~~
)"},
    {"UnknownAlias",
     false,
     {{"or: embed if tied", "or: embde if not tied"}},
     R"(
tiny.yaml:15:59: error: no weight `embde` stands before `head` [unknown-alias]
   15 |   head: {shape: '[vocab, hidden]', from: head.weight, or: embde if not tied}
      |                                                           ^~~~~
note: did you mean `embed`?
)"},
    {"UnknownGraphName",
     false,
     {{"v: matmul(x, wv)", "v: matmul(x, wvv)"}},
     R"(
tiny.yaml:27:22: error: unknown name `wvv` in the graph [unknown-graph-name]
   27 |       - v: matmul(x, wvv)
      |                      ^~~
note: did you mean `wv`?
)"},
    {"UnknownGraphNameLocal",
     false,
     {{"v: matmul(x, wv)", "v: matmul(xx, wv)"}},
     R"(
tiny.yaml:27:19: error: unknown name `xx` in the graph [unknown-graph-name]
   27 |       - v: matmul(xx, wv)
      |                   ^~
note: did you mean `x`?
)"},
    {"UnknownGraphFunction",
     false,
     {{"rms_norm(x, norm, eps)", "rmsnorm(x, norm, eps)"}},
     R"(
tiny.yaml:29:20: error: unknown function `rmsnorm` in the graph [unknown-graph-function]
   29 |   - logits: matmul(rmsnorm(x, norm, eps), head)
      |                    ^~~~~~~
note: did you mean `rms_norm`?
)"},
    {"GraphArguments",
     false,
     {{"rms_norm(x, norm, eps)", "rms_norm(x, norm)"}},
     R"(
tiny.yaml:29:20: error: `rms_norm` takes (x, weight, eps), found 2 arguments [graph-arguments]
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
    {"GraphArgumentsPosition",
     false,
     {{"matmul(x, wk), position)", "matmul(x, wk), eps)"}},
     R"(
tiny.yaml:26:32: error: `rope` takes (x, position), found 2 arguments [graph-arguments]
   26 |       - k: rope(matmul(x, wk), eps)
      |                                ^~~
note: the second argument is the word `position`
)"},
    {"GraphExpression",
     false,
     {{"v: matmul(x, wv)", "v: '[x]'"}},
     R"(
tiny.yaml:27:13: error: a graph is made of calls, `+ - * /`, names, numbers and `weight[tokens]` [graph-expression]
   27 |       - v: '[x]'
      |             ^
)"},
    {"GraphExpressionIndex",
     false,
     {{"- x: embed[tokens]", "- x: embed[position]"}},
     R"(
tiny.yaml:22:13: error: a graph is made of calls, `+ - * /`, names, numbers and `weight[tokens]` [graph-expression]
   22 |   - x: embed[position]
      |             ^
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
tiny.yaml:27:23: error: `position` stands only in `rope(x, position)` [misplaced-name]
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
     {{"rms_norm(x, norm, eps)", "rms_norm(x * (norm + 1), norm, eps)"}},
     R"(
tiny.yaml:29:39: error: `+` needs a value with one line per row, found [64] [needs-rows]
   29 |   - logits: matmul(rms_norm(x * (norm + 1), norm, eps), head)
      |                                       ^
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
     {{"\"rope_theta\": 10000.0", "\"rope_theta\": 10000.0, \"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 2.0}"}},
     R"(
tiny.yaml:25:12: error: cannot use the rotary embedding of `model/config.json`: rotary embedding of type `yarn` is not supported, only `default`, `linear` and `llama3` are [rope-config]
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

class ModelErrors : public testing::TestWithParam<Case> {};

TEST_P(ModelErrors, HasText) {
  std::string model = goodModel, config = goodConfig;
  for (const auto &[from, to] : GetParam().edits) {
    bool first = &from == &GetParam().edits[0].first;
    replaceAll(first && GetParam().inConfig ? config : model, from, to);
  }
  EXPECT_EQ("\n" + diagnose(model, config), GetParam().expected);
}

INSTANTIATE_TEST_SUITE_P(All, ModelErrors, testing::ValuesIn(cases),
                         [](const auto &info) { return std::string(info.param.name); });

TEST(ModelErrors, GoodModelHasNone) { EXPECT_EQ(diagnose(goodModel, goodConfig), ""); }

} // namespace

TEST(ModelErrors, ANumberOfTheGraphIsAFiniteF32) {
  const auto said = [](const std::string &eps) {
    std::string model = goodModel;
    replaceAll(model, "rms_norm(x, norm, eps)", "rms_norm(x, norm, eps) * " + eps);
    const std::string text = diagnose(model, goodConfig);
    return text.substr(0, text.find('\n'));
  };
  EXPECT_EQ(said("0.5"), "");
  EXPECT_EQ(said("1e39"),
            "tiny.yaml:29:45: error: this is 1e+39, which is no finite f32 (3.4028235e+38 at most) [float-range]");
  EXPECT_EQ(said("sqrt(0 - 1.0)").find("tiny.yaml:29:45: error: this is nan, which is no finite f32"), 0u)
      << said("sqrt(0 - 1.0)");
  EXPECT_EQ(said("(3e38 * 10)").find("tiny.yaml:29:51: error: this is 3e+39, which is no finite f32"), 0u)
      << said("(3e38 * 10)");
}
