// Every message about config and weights of a model file, with its exact text and place.
#include "ModelErrors.h"

using namespace megalith;
using namespace megalith::modelErrors;

namespace {

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
    {"ConfigPositive",
     true,
     {{"\"rms_norm_eps\": 1e-05", "\"rms_norm_eps\": 1e-05, \"cap\": 0"},
      {"  eps: rms_norm_eps\n", "  eps: rms_norm_eps\n" "  most: cap\n"},
      {"v: matmul(x, wv)", "v: softcap(matmul(x, wv), most)"}},
     R"(
model/config.json:1:139: error: `cap` must be a number above 0 in f32, found `0` [config-key]
    1 | ..._value_heads": 2, "vocab_size": 100, "rms_norm_eps": 1e-05, "cap": 0, "rope_theta": 10000.0}
      |                                                                ^~~~~
tiny.yaml:10:9: note: read here
   10 |   most: cap
      |         ^~~
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
tiny.yaml:14:19: error: this must be a constant: config names, literals, operators, `min`, `max`, `sqrt` and `bf16` [model-constant]
   14 |   norm: {shape: '[matmul(hidden)]', from: norm.weight}
      |                   ^~~~~~
)"},
    {"WeightCondition",
     false,
     {{"from: norm.weight}", "from: norm.weight, if: hidden}"}},
     R"(
tiny.yaml:14:52: error: `if` needs a bool, found an integer (64) [constant-type]
   14 |   norm: {shape: '[hidden]', from: norm.weight, if: hidden}
      |                                                    ^~~~~~
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
     {{"'[hidden]'", "'[hidden, 2, 2, 1, 1]'"}},
     R"(
tiny.yaml:14:3: error: weight `norm` has 5 dimensions, expected 1 (a vector) to 4 [weight-rank]
   14 |   norm: {shape: '[hidden, 2, 2, 1, 1]', from: norm.weight}
      |   ^~~~
)"},
    {"AliasShape",
     false,
     {{"or: embed if tied", "or: norm if not tied"}},
     R"(
tiny.yaml:15:59: error: weight `head` [100, 64] cannot use the storage of `norm` [64]: shape, `stored`, `transposed` and number of layers must be equal [alias-shape]
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
    {"GraphFunctionOfOthers",
     false,
     {{"rms_norm(x, norm, eps)", "swish(rms_norm(x, norm, eps))"}},
     R"(
tiny.yaml:29:20: error: unknown function `swish` in the graph [unknown-graph-function]
   29 |   - logits: matmul(swish(rms_norm(x, norm, eps)), head)
      |                    ^~~~~
note: write `silu(x)`, another name of the same function
)"},
    {"NormWithoutBias",
     false,
     {{"rms_norm(x, norm, eps)", "layer_norm(x, norm, eps)"}},
     R"(
tiny.yaml:29:20: error: `layer_norm` takes (x, weight, bias, eps), found 3 arguments [graph-arguments]
   29 |   - logits: matmul(layer_norm(x, norm, eps), head)
      |                    ^~~~~~~~~~
note: a norm without a bias has `0 * weight` in its place, one without a weight `0 * w + 1` with any vector w of that length
)"},
    {"WeightCalled",
     false,
     {{"embed[tokens]", "embed(tokens)"}},
     R"(
tiny.yaml:22:8: error: unknown function `embed` in the graph [unknown-graph-function]
   22 |   - x: embed(tokens)
      |        ^~~~~
note: `embed` is a weight; its rows are read as `embed[tokens]` and `embed[position]`
)"},
    {"TokensMisspelt",
     false,
     {{"embed[tokens]", "embed[token]"}},
     R"(
tiny.yaml:22:14: error: unknown name `token` in a constant expression [unknown-config-name]
   22 |   - x: embed[token]
      |              ^~~~~
note: did you mean `tokens`?
)"},
    {"LayerMisspelt",
     false,
     {{"  layer:\n", "  layers:\n"}},
     R"(
tiny.yaml:16:3: error: unknown key `layers` in `weights` [unknown-key]
   16 |   layers:
      |   ^~~~~~
note: did you mean `layer`?
)"},
    {"PipelineKeys",
     false,
     {{"model: tiny\n", "model: tiny\nmodels: {target: {}}\n"}},
     R"(
tiny.yaml:2:1: error: unknown key `models` in the model file [unknown-key]
    2 | models: {target: {}}
      | ^~~~~~
note: did you mean `model`?
note: `models` and `stages` are sections of a pipeline; a model file has `model`, `config`, `weights`, `graph`
)"},
    {"TransposedVector",
     false,
     {{"'[hidden]', from", "'[hidden]', transposed: true, from"}},
     R"(
tiny.yaml:14:41: error: weight `norm` is a vector, and only a matrix has `transposed: true` [transposed-vector]
   14 |   norm: {shape: '[hidden]', transposed: true, from: norm.weight}
      |                                         ^~~~
)"},
    {"TransposedWord",
     false,
     {{"'[vocab, hidden]', from: embed.weight", "'[vocab, hidden]', transposed: 1, from: embed.weight"}},
     R"(
tiny.yaml:13:49: error: `transposed` of weight `embed` must be `true` or `false`, found `1` [wrong-node-kind]
   13 |   embed: {shape: '[vocab, hidden]', transposed: 1, from: embed.weight}
      |                                                 ^
)"},
    {"StoredShape",
     false,
     {{"'[hidden]', from", "'[hidden]', stored: '[2, hidden]', from"}},
     R"(
tiny.yaml:14:39: error: weight `norm` is stored as [2, 64], which has not as many elements as its shape [64] [stored-shape]
   14 |   norm: {shape: '[hidden]', stored: '[2, hidden]', from: norm.weight}
      |                                       ^
)"},
    {"StoredSize",
     false,
     {{"'[hidden]', from", "'[hidden]', stored: '[hidden, 0]', from"}},
     R"(
tiny.yaml:14:47: error: each dimension of weight `norm` must be an integer from 1 to 2147483647, found 0 [weight-size]
   14 |   norm: {shape: '[hidden]', stored: '[hidden, 0]', from: norm.weight}
      |                                               ^
)"},
    {"FromEmpty",
     false,
     {{"from: norm.weight", "from: []"}},
     R"(
tiny.yaml:14:35: error: `from` of weight `norm` must be the name of a tensor or a list of spellings, found an empty list [wrong-node-kind]
   14 |   norm: {shape: '[hidden]', from: []}
      |                                   ^
)"},
    {"FromPattern",
     false,
     {{"'layers.{i}.q'", "['layers.{i}.q', layers.q]"}},
     R"(
tiny.yaml:17:70: error: weight `wq` stands below `layer`, so its `from` needs `{i}` for the layer [layer-pattern]
   17 |     wq: {shape: '[heads * head_dim, hidden]', from: ['layers.{i}.q', layers.q]}
      |                                                                      ^~~~~~~~
)"},
    {"WeightBytesOfMany",
     false,
     {{"'[hidden]', from", "'[1000000, 1000000, 1000000]', from"}},
     R"(
tiny.yaml:14:3: error: with `norm` the weights of all layers have more than 16 TiB, the most that is possible [weight-bytes]
   14 |   norm: {shape: '[1000000, 1000000, 1000000]', from: norm.weight}
      |   ^~~~
)"},
    {"AliasTransposed",
     false,
     {{"from: head.weight, or: embed if tied", "transposed: true, from: head.weight, or: embed if not tied"}},
     R"(
tiny.yaml:15:77: error: weight `head` [100, 64] cannot use the storage of `embed` [100, 64]: shape, `stored`, `transposed` and number of layers must be equal [alias-shape]
   15 |   head: {shape: '[vocab, hidden]', transposed: true, from: head.weight, or: embed if not tied}
      |                                                                             ^~~~~
)"},
    {"TensorTwice",
     false,
     {{"from: norm.weight", "from: embed.weight"}},
     R"(
tiny.yaml:14:3: error: weights `embed` and `norm` are of tensor `embed.weight`, which cannot be [100, 64] and [64]; give both the same `stored` [tensor-twice]
   14 |   norm: {shape: '[hidden]', from: embed.weight}
      |   ^~~~
tiny.yaml:13:3: note: the other `from`
   13 |   embed: {shape: '[vocab, hidden]', from: embed.weight}
      |   ^~~~~
)"},
    // clang-format on
};

class ModelErrors : public testing::TestWithParam<Case> {};

/// Each function of others is unknown here, and its note is told.
TEST(ModelGuesses, AreTold) {
  const auto told = [](const std::string &name, const std::string &note) {
    const std::string heard = saidOf(Case{"", false, {{"rms_norm(x, norm, eps)", name + "(x)"}}, ""});
    EXPECT_NE(heard.find("unknown function `" + name + "` in the graph"), std::string::npos) << heard;
    EXPECT_NE(heard.find("note: " + note + "\n"), std::string::npos) << heard;
  };
#define GUESSED_GRAPH(Name, Text) told(Name, Text);
#include "megalith/Sema/Guesses.def"
}

TEST_P(ModelErrors, HasText) { EXPECT_EQ(saidOf(GetParam()), GetParam().expected); }

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
