// `rope` of a model's graph, and its arguments.
#include "ModelErrors.h"
#include <fmt/format.h>
#include <fmt/ranges.h>

using namespace megalith;
using namespace megalith::modelErrors;

namespace {

class GraphRope : public testing::Test {
protected:
  SourceFiles files;
  Diagnostics diags{files};

  /// The good model with these arguments of both its `rope`s, heads of 16 values and four layers.
  std::optional<CheckedModel> check(const std::string &arguments, const std::string &members = "") {
    std::string model = goodModel, config = goodConfig;
    replaceAll(
        model, "  vocab: vocab_size\n",
        "  vocab: vocab_size\n  share: {key: partial_rotary_factor, default: 1.0}\n  local: {key: local, default: "
        "500}\n  layer:\n    turns: {key: turns, default: (layer + 1) % 3 != 0}\n    base: {default: local if "
        "layer % 2 == 0 else none}\n");
    replaceAll(model, ", position)", ", position" + arguments + ")");
    replaceAll(config, "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 4" + members);
    std::optional<ast::ModelFile> parsed = ast::parseModel(diags, files.add("tiny.yaml", std::move(model)));
    Result<ConfigFile> read = ConfigFile::parse(config, "", "model/config.json");
    Acceptance acceptance;
    return parsed && read ? checkModel(*parsed, *read, acceptance, diags) : std::nullopt;
  }

  std::string tablesOf(const std::string &arguments, const std::string &members = "") {
    std::optional<CheckedModel> model = check(arguments, members);
    return model ? fmt::format("{} of bases {}", fmt::join(model->ropeTables, " "), fmt::join(model->ropeBases, " "))
                 : diags.render();
  }
};

TEST_F(GraphRope, WholeHeadsOfOneTable) {
  std::optional<CheckedModel> model = check("");
  ASSERT_TRUE(model) << diags.render();
  EXPECT_EQ(model->rope->headDim, 16);
  EXPECT_FALSE(model->adjacentRope);
  EXPECT_EQ(tablesOf(""), " of bases ");
}

TEST_F(GraphRope, TablesOfTheLayers) {
  EXPECT_EQ(tablesOf(", where=turns"), "0 0 1 0 of bases 0");
  EXPECT_EQ(tablesOf(", base=base"), "1 0 1 0 of bases 500");
  EXPECT_EQ(tablesOf(", base=base, where=turns"), "1 0 2 0 of bases 500 0");
  EXPECT_EQ(tablesOf(", where=turns", ", \"turns\": [true, true, true, true]"), " of bases ");
  EXPECT_EQ(tablesOf(", where=turns", ", \"turns\": [false, false, false, false]"), "1 of bases 0");
  EXPECT_EQ(tablesOf(", base=local"), "1 of bases 500");
  EXPECT_EQ(tablesOf(", base=none"), " of bases ");
}

TEST_F(GraphRope, APartOfAHead) {
  std::optional<CheckedModel> model =
      check(", dims=head_dim * share, interleaved=true", ", \"partial_rotary_factor\": 0.25");
  ASSERT_TRUE(model) << diags.render();
  EXPECT_EQ(model->rope->headDim, 4);
  EXPECT_TRUE(model->adjacentRope);
  EXPECT_EQ(check(", dims=head_dim * share")->rope->headDim, 16);
}

TEST_F(GraphRope, LongRopeBoundsTheTokens) {
  const char *const scaling = R"(, "max_position_embeddings": 256, "original_max_position_embeddings": 64,
      "rope_scaling": {"type": "longrope", "short_factor": [1, 1, 1, 1, 1, 1, 1, 1], "long_factor": [2, 2, 2, 2, 2, 2, 2, 2]})";
  std::optional<CheckedModel> model = check(", dims=head_dim * share", scaling);
  ASSERT_TRUE(model) << diags.render();
  EXPECT_EQ(model->positions(), 64);
  EXPECT_EQ(model->positionsKey(), "`original_max_position_embeddings`: type `longrope` has other angles for more");
  EXPECT_EQ(check("", ", \"max_position_embeddings\": 256")->positions(), 256);
}

const Case ropeCases[] = {
    // clang-format off
    {"DimsSize", false, {{"rope(matmul(x, wq), position)", "rope(matmul(x, wq), position, dims=6)"}}, R"(
tiny.yaml:25:47: error: `rope` rotates a multiple of 4 of a head's values, found dims 6 of 16 [rope-dims]
   25 |       - q: rope(matmul(x, wq), position, dims=6)
      |                                               ^
)"},
    {"DimsBeyondTheHead", false, {{"rope(matmul(x, wq), position)", "rope(matmul(x, wq), position, dims=2 * head_dim)"}}, R"(
tiny.yaml:25:49: error: `rope` rotates a multiple of 4 of a head's values, found dims 32 of 16 [rope-dims]
   25 |       - q: rope(matmul(x, wq), position, dims=2 * head_dim)
      |                                                 ^
)"},
    {"DimsNoNumber", false, {{"rope(matmul(x, wq), position)", "rope(matmul(x, wq), position, dims=none)"}}, R"(
tiny.yaml:25:47: error: `rope` rotates a multiple of 4 of a head's values, found dims `none` of 16 [rope-dims]
   25 |       - q: rope(matmul(x, wq), position, dims=none)
      |                                               ^~~~
)"},
    {"DimsNoConstant", false, {{"rope(matmul(x, wq), position)", "rope(matmul(x, wq), position, dims=x)"}}, R"(
tiny.yaml:25:47: error: unknown name `x` in a constant expression [unknown-config-name]
   25 |       - q: rope(matmul(x, wq), position, dims=x)
      |                                               ^
)"},
    {"DimsAgainstTheShare", true,
     {{"\"rope_theta\": 10000.0", "\"rope_theta\": 10000.0, \"partial_rotary_factor\": 0.5"},
      {", position)", ", position, dims=4)"}}, R"(
tiny.yaml:25:12: error: cannot use the rotary embedding of `model/config.json`: `partial_rotary_factor` is 0.5, but the model file rotates 4 of the 16 values of a head [rope-config]
   25 |       - q: rope(matmul(x, wq), position, dims=4)
      |            ^~~~
)"},
    {"ShareWithoutDims", true, {{"\"rope_theta\": 10000.0", "\"rope_theta\": 10000.0, \"partial_rotary_factor\": 0.5"}}, R"(
tiny.yaml:25:12: error: cannot use the rotary embedding of `model/config.json`: `partial_rotary_factor` is 0.5, but the model file rotates whole heads; give `rope` the argument `dims` [rope-config]
   25 |       - q: rope(matmul(x, wq), position)
      |            ^~~~
)"},
    {"Differs", false, {{"rope(matmul(x, wq), position)", "rope(matmul(x, wq), position, dims=8)"}}, R"(
tiny.yaml:26:12: error: `rope` with other arguments than elsewhere; all of a graph rotate alike [rope-differs]
   26 |       - k: rope(matmul(x, wk), position)
      |            ^~~~
tiny.yaml:25:12: note: the other one
   25 |       - q: rope(matmul(x, wq), position, dims=8)
      |            ^~~~
)"},
    {"InterleavedNoBool", false, {{", position)", ", position, interleaved=1)"}}, R"(
tiny.yaml:25:54: error: interleaved of `rope` needs true or false, found an integer (1) [constant-type]
   25 |       - q: rope(matmul(x, wq), position, interleaved=1)
      |                                                      ^
)"},
    {"BaseNoNumber", false, {{", position)", ", position, base=true)"}}, R"(
tiny.yaml:25:47: error: base of `rope` needs a number above 0 or `none`, found a bool (true) [constant-type]
   25 |       - q: rope(matmul(x, wq), position, base=true)
      |                                               ^~~~
)"},
    {"BaseBelowZero", false, {{", position)", ", position, base=-1)"}}, R"(
tiny.yaml:25:47: error: base of `rope` needs a number above 0 or `none`, found an integer (-1) [constant-type]
   25 |       - q: rope(matmul(x, wq), position, base=-1)
      |                                               ^
)"},
    {"WhereNoBool", false, {{", position)", ", position, where=layers)"}}, R"(
tiny.yaml:25:48: error: where of `rope` needs true or false, found an integer (2) [constant-type]
   25 |       - q: rope(matmul(x, wq), position, where=layers)
      |                                                ^~~~~~
)"},
    {"ByLayerOutsideTheLayers", false,
     {{"  vocab: vocab_size\n", "  vocab: vocab_size\n  layer: {turns: {default: layer == 0}}\n"},
      {"  - x: embed[tokens]\n", "  - x: rope(embed[tokens], position, where=turns)\n"}}, R"(
tiny.yaml:23:44: error: `turns` differs by layer, but here one constant stands for all layers [layer-constant]
   23 |   - x: rope(embed[tokens], position, where=turns)
      |                                            ^~~~~
)"},
    {"UnknownArgument", false, {{", position)", ", position, dim=4)"}}, R"(
tiny.yaml:25:42: error: `rope` has no argument `dim` [unknown-argument]
   25 |       - q: rope(matmul(x, wq), position, dim=4)
      |                                          ^~~
note: `rope` takes (x, position, dims=n, base=b, where=c, interleaved=i)
tiny.yaml:26:42: error: `rope` has no argument `dim` [unknown-argument]
   26 |       - k: rope(matmul(x, wk), position, dim=4)
      |                                          ^~~
note: `rope` takes (x, position, dims=n, base=b, where=c, interleaved=i)
)"},
    // clang-format on
};

class GraphRopeErrors : public testing::TestWithParam<Case> {};

TEST_P(GraphRopeErrors, SaysWhatIsWrong) { EXPECT_EQ(saidOf(GetParam()), GetParam().expected); }

INSTANTIATE_TEST_SUITE_P(All, GraphRopeErrors, testing::ValuesIn(ropeCases),
                         [](const auto &info) { return info.param.name; });

} // namespace
