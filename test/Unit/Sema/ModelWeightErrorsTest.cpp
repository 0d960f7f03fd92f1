// Every message about parts of weights, and about weights under a condition, with its exact text and place.
#include "ModelErrors.h"

using namespace megalith;
using namespace megalith::modelErrors;

namespace {

const Case weightCases[] = {
    // clang-format off
    {"ConditionalFactor",
     false,
     {{"  layer:\n", "  layer:\n    bv: {shape: '[kv_heads * head_dim]', from: 'layers.{i}.b', if: not tied}\n"}, {"v: matmul(x, wv)", "v: matmul(x, wv) * bv"}},
     R"(
tiny.yaml:28:28: error: weight `bv` is there `if not tied` only, so it can do nothing but be added to rows, as in `matmul(x, w) + b` [conditional-weight]
   28 |       - v: matmul(x, wv) * bv
      |                            ^~
tiny.yaml:17:5: note: the weight is declared here
   17 |     bv: {shape: '[kv_heads * head_dim]', from: 'layers.{i}.b', if: not tied}
      |     ^~
)"},
    {"ConditionalFactorAbsent",
     false,
     {{"  layer:\n", "  layer:\n    bv: {shape: '[kv_heads * head_dim]', from: 'layers.{i}.b', if: tied}\n"}, {"v: matmul(x, wv)", "v: matmul(x, wv) * bv"}},
     R"(
tiny.yaml:28:28: error: weight `bv` is there `if tied` only, so it can do nothing but be added to rows, as in `matmul(x, w) + b` [conditional-weight]
   28 |       - v: matmul(x, wv) * bv
      |                            ^~
tiny.yaml:17:5: note: the weight is declared here
   17 |     bv: {shape: '[kv_heads * head_dim]', from: 'layers.{i}.b', if: tied}
      |     ^~
)"},
    {"ConditionalInVector",
     false,
     {{"  layer:\n", "  layer:\n    bv: {shape: '[kv_heads * head_dim]', from: 'layers.{i}.b', if: not tied}\n"}, {"v: matmul(x, wv)", "v: matmul(x, wv) * (1 + bv)"}},
     R"(
tiny.yaml:28:33: error: weight `bv` is there `if not tied` only, so it can do nothing but be added to rows, as in `matmul(x, w) + b` [conditional-weight]
   28 |       - v: matmul(x, wv) * (1 + bv)
      |                                 ^~
tiny.yaml:17:5: note: the weight is declared here
   17 |     bv: {shape: '[kv_heads * head_dim]', from: 'layers.{i}.b', if: not tied}
      |     ^~
)"},
    {"ConditionalInVectorAbsent",
     false,
     {{"  layer:\n", "  layer:\n    bv: {shape: '[kv_heads * head_dim]', from: 'layers.{i}.b', if: tied}\n"}, {"v: matmul(x, wv)", "v: matmul(x, wv) * (1 + bv)"}},
     R"(
tiny.yaml:28:33: error: weight `bv` is there `if tied` only, so it can do nothing but be added to rows, as in `matmul(x, w) + b` [conditional-weight]
   28 |       - v: matmul(x, wv) * (1 + bv)
      |                                 ^~
tiny.yaml:17:5: note: the weight is declared here
   17 |     bv: {shape: '[kv_heads * head_dim]', from: 'layers.{i}.b', if: tied}
      |     ^~
)"},
    {"ConditionalView",
     false,
     {{"  layer:\n", "  layer:\n    bv: {shape: '[kv_heads * head_dim]', from: 'layers.{i}.b', if: not tied}\n"}, {"v: matmul(x, wv)", "v: matmul(x, wv) * bv[0:32]"}},
     R"(
tiny.yaml:28:30: error: weight `bv` is there `if not tied` only, so it can do nothing but be added to rows, as in `matmul(x, w) + b` [conditional-weight]
   28 |       - v: matmul(x, wv) * bv[0:32]
      |                              ^
tiny.yaml:17:5: note: the weight is declared here
   17 |     bv: {shape: '[kv_heads * head_dim]', from: 'layers.{i}.b', if: not tied}
      |     ^~
)"},
    {"ConditionalViewAbsent",
     false,
     {{"  layer:\n", "  layer:\n    bv: {shape: '[kv_heads * head_dim]', from: 'layers.{i}.b', if: tied}\n"}, {"v: matmul(x, wv)", "v: matmul(x, wv) * bv[0:32]"}},
     R"(
tiny.yaml:28:30: error: weight `bv` is there `if tied` only, so it can do nothing but be added to rows, as in `matmul(x, w) + b` [conditional-weight]
   28 |       - v: matmul(x, wv) * bv[0:32]
      |                              ^
tiny.yaml:17:5: note: the weight is declared here
   17 |     bv: {shape: '[kv_heads * head_dim]', from: 'layers.{i}.b', if: tied}
      |     ^~
)"},
    {"ConditionalMatrix",
     false,
     {{"  layer:\n", "  layer:\n    bv: {shape: '[kv_heads * head_dim]', from: 'layers.{i}.b', if: tied}\n"}, {"v: matmul(x, wv)", "v: matmul(x, bv)"}},
     R"(
tiny.yaml:28:22: error: weight `bv` is there `if tied` only, so it can do nothing but be added to rows, as in `matmul(x, w) + b` [conditional-weight]
   28 |       - v: matmul(x, bv)
      |                      ^~
tiny.yaml:17:5: note: the weight is declared here
   17 |     bv: {shape: '[kv_heads * head_dim]', from: 'layers.{i}.b', if: tied}
      |     ^~
)"},
    {"ViewIndices",
     false,
     {{"matmul(x, wv)", "matmul(x, wv[0, 1, 2])"}},
     R"(
tiny.yaml:27:24: error: `wv[0, 1, 2]` has 3 indices, but weight `wv` is [32, 64] [view-indices]
   27 |       - v: matmul(x, wv[0, 1, 2])
      |                        ^
tiny.yaml:19:5: note: the weight is declared here
   19 |     wv: {shape: '[kv_heads * head_dim, hidden]', from: 'layers.{i}.v'}
      |     ^~
)"},
    {"ViewIndexOutside",
     false,
     {{"matmul(x, wv)", "matmul(x, wv[kv_heads * head_dim:])"}},
     R"(
tiny.yaml:27:24: error: `wv[kv_heads * head_dim:]` takes 32 to 32 of dimension 0, and weight `wv` has 32 entries there, from 0 on [view-range]
   27 |       - v: matmul(x, wv[kv_heads * head_dim:])
      |                        ^
tiny.yaml:19:5: note: the weight is declared here, as [32, 64]
   19 |     wv: {shape: '[kv_heads * head_dim, hidden]', from: 'layers.{i}.v'}
      |     ^~
)"},
    {"ViewRangeBeyond",
     false,
     {{"matmul(x, wv)", "matmul(x, wv[0:hidden])"}},
     R"(
tiny.yaml:27:24: error: `wv[0:hidden]` takes 0 to 64 of dimension 0, and weight `wv` has 32 entries there, from 0 on [view-range]
   27 |       - v: matmul(x, wv[0:hidden])
      |                        ^
tiny.yaml:19:5: note: the weight is declared here, as [32, 64]
   19 |     wv: {shape: '[kv_heads * head_dim, hidden]', from: 'layers.{i}.v'}
      |     ^~
)"},
    {"ViewRangeNegative",
     false,
     {{"matmul(x, wv)", "matmul(x, wv[:-1])"}},
     R"(
tiny.yaml:27:24: error: `wv[:-1]` takes 0 to -1 of dimension 0, and weight `wv` has 32 entries there, from 0 on [view-range]
   27 |       - v: matmul(x, wv[:-1])
      |                        ^
tiny.yaml:19:5: note: the weight is declared here, as [32, 64]
   19 |     wv: {shape: '[kv_heads * head_dim, hidden]', from: 'layers.{i}.v'}
      |     ^~
)"},
    {"ViewIndexBeyond",
     false,
     {{"'[kv_heads * head_dim, hidden]', from: 'layers.{i}.v'", "'[3, kv_heads * head_dim, hidden]', from: 'layers.{i}.v'"}, {"matmul(x, wv)", "matmul(x, wv[3])"}},
     R"(
tiny.yaml:27:25: error: `wv[3]` takes 3 of dimension 0, and weight `wv` has 3 entries there, from 0 on [view-range]
   27 |       - v: matmul(x, wv[3])
      |                         ^
tiny.yaml:19:5: note: the weight is declared here, as [3, 32, 64]
   19 |     wv: {shape: '[3, kv_heads * head_dim, hidden]', from: 'layers.{i}.v'}
      |     ^~
)"},
    {"ViewRangeEmpty",
     false,
     {{"matmul(x, wv)", "matmul(x, wv[:, 5:5])"}},
     R"(
tiny.yaml:27:29: error: `wv[:, 5:5]` takes 5 to 5 of dimension 1, and weight `wv` has 64 entries there, from 0 on [view-range]
   27 |       - v: matmul(x, wv[:, 5:5])
      |                             ^
tiny.yaml:19:5: note: the weight is declared here, as [32, 64]
   19 |     wv: {shape: '[kv_heads * head_dim, hidden]', from: 'layers.{i}.v'}
      |     ^~
)"},
    {"ViewNoInteger",
     false,
     {{"matmul(x, wv)", "matmul(x, wv[:hidden / 2.0])"}},
     R"(
tiny.yaml:27:33: error: a part of weight `wv` needs an integer, found a number (32) [constant-type]
   27 |       - v: matmul(x, wv[:hidden / 2.0])
      |                                 ^
)"},
    {"ViewNoConstant",
     false,
     {{"matmul(x, wv)", "matmul(x, wv[x])"}},
     R"(
tiny.yaml:27:25: error: unknown name `x` in a constant expression [unknown-config-name]
   27 |       - v: matmul(x, wv[x])
      |                         ^
)"},
    {"ViewNoMatrix",
     false,
     {{"matmul(x, wv)", "matmul(x, wv[0])"}},
     R"(
tiny.yaml:27:24: error: weight `wv[0]` is [64], expected a matrix [weight-use]
   27 |       - v: matmul(x, wv[0])
      |                        ^
tiny.yaml:19:5: note: the weight is declared here
   19 |     wv: {shape: '[kv_heads * head_dim, hidden]', from: 'layers.{i}.v'}
      |     ^~
)"},
    {"ViewNoVector",
     false,
     {{"rms_norm(x, norm, eps)", "rms_norm(x, norm[0], eps)"}},
     R"(
tiny.yaml:29:36: error: weight `norm[0]` is one number, expected a vector [weight-use]
   29 |   - logits: matmul(rms_norm(x, norm[0], eps), head)
      |                                    ^
tiny.yaml:14:3: note: the weight is declared here
   14 |   norm: {shape: '[hidden]', from: norm.weight}
      |   ^~~~
)"},
    {"ViewRows",
     false,
     {{"'[kv_heads * head_dim, hidden]', from: 'layers.{i}.v'", "'[5, 5, 6, hidden]', from: 'layers.{i}.v'"}, {"matmul(x, wv)", "matmul(x, wv[:4, :4, :2])"}},
     R"(
tiny.yaml:27:24: error: the rows of `wv[0:4, 0:4, 0:2]` stand at three or more distances in the tensor of weight `wv`, and only two are possible; take it apart with more indices [view-rows]
   27 |       - v: matmul(x, wv[:4, :4, :2])
      |                        ^
)"},
    {"ViewColumns",
     false,
     {{"matmul(x, wv)", "matmul(x, wv[:, :32])"}},
     R"(
tiny.yaml:27:12: error: cannot multiply `x` [R, 64] by weight `wv[:, 0:32]` [32, 32]: the weight takes 32 columns [matmul-shape]
   27 |       - v: matmul(x, wv[:, :32])
      |            ^~~~~~
tiny.yaml:19:5: note: the weight is declared here
   19 |     wv: {shape: '[kv_heads * head_dim, hidden]', from: 'layers.{i}.v'}
      |     ^~
)"},
    {"ViewOutsideLayer",
     false,
     {{"rms_norm(x, norm, eps)", "rms_norm(x, wo[0], eps)"}},
     R"(
tiny.yaml:29:34: error: weight `wo` belongs to a layer, but this stands outside `repeat: layer` [layer-weight-outside]
   29 |   - logits: matmul(rms_norm(x, wo[0], eps), head)
      |                                  ^
)"},
    {"UnreadPart",
     false,
     {{"'[kv_heads * head_dim, hidden]', from: 'layers.{i}.v'", "'[2, 3, 32, hidden]', from: 'layers.{i}.v'"}, {"matmul(x, wv)", "matmul(x, wv[0, 0]) + matmul(x, wv[1, 1])"}},
     R"(
tiny.yaml:19:5: error: nothing in the graph reads `wv[1, 0]`, so the graph may be wrong for this checkpoint [unread-part]
   19 |     wv: {shape: '[2, 3, 32, hidden]', from: 'layers.{i}.v'}
      |     ^~
)"},
    {"TableView",
     false,
     {{"embed[tokens]", "embed[position]"}, {"'[vocab, hidden]', from: embed.weight", "'[vocab, hidden]', transposed: true, from: embed.weight"}},
     R"(
tiny.yaml:22:8: error: single rows are read of a tensor as it is only, and `embed` is transposed [table-view]
   22 |   - x: embed[position]
      |        ^~~~~
)"},
    {"SliceOfValue",
     false,
     {{"matmul(x, wv)", "x[0:3]"}},
     R"(
tiny.yaml:27:13: error: a graph is made of calls, `+ - * /`, names, numbers, `weight[tokens]`, `weight[position]` and parts of weights [graph-expression]
   27 |       - v: x[0:3]
      |             ^
)"},
    // clang-format on
};

class ModelWeightErrors : public testing::TestWithParam<Case> {};

TEST_P(ModelWeightErrors, HasText) { EXPECT_EQ(saidOf(GetParam()), GetParam().expected); }

INSTANTIATE_TEST_SUITE_P(All, ModelWeightErrors, testing::ValuesIn(weightCases),
                         [](const auto &info) { return std::string(info.param.name); });

} // namespace
