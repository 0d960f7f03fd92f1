// Constants of a model file that differ by layer.
#include "ModelErrors.h"
#include <fmt/format.h>

using namespace megalith;
using namespace megalith::modelErrors;

namespace {

const char *const windows = R"(  sliding: {key: sliding_window, default: 4096, if_null: none}
  interval: {key: interval, default: 4}
  layer:
    window: {key: layer_types, values: {sliding_attention: sliding, full_attention: none}, default: sliding if layer % 2 == 0 else none}
    turns: {key: no_rope_layers, values: {1: true, 0: false}, default: (layer + 1) % interval != 0}
    base: {default: 1e6 if window == none else 10000}
)";

class LayerConstants : public testing::Test {
protected:
  SourceFiles files;
  Diagnostics diags{files};

  /// The good model, of four layers, with these entries in `config`, and with `members` in config.json.
  std::optional<CheckedModel> check(const std::string &entries, const std::string &members) {
    std::string model = goodModel, config = goodConfig;
    replaceAll(model, "  vocab: vocab_size\n", "  vocab: vocab_size\n" + entries);
    replaceAll(config, "\"num_hidden_layers\": 2",
               "\"num_hidden_layers\": 4" + (members.empty() ? "" : ", " + members));
    std::optional<ast::ModelFile> parsed = ast::parseModel(diags, files.add("tiny.yaml", std::move(model)));
    Result<ConfigFile> read = ConfigFile::parse(config, "", "model/config.json");
    // Nothing in the graph uses the names.
    Acceptance acceptance({"layer_types", "sliding_window", "no_rope_layers", "interval"});
    return parsed && read ? checkModel(*parsed, *read, acceptance, diags) : std::nullopt;
  }

  static std::string valuesOf(const CheckedModel &model, const std::string &name) {
    std::string text;
    for (const ConfigValue &value : model.layerConfig.at(name)) {
      if (auto *b = std::get_if<bool>(&value))
        text += *b ? " true" : " false";
      else if (auto *i = std::get_if<int64_t>(&value))
        text += fmt::format(" {}", *i);
      else if (auto *f = std::get_if<double>(&value))
        text += fmt::format(" {}", *f);
      else
        text += std::holds_alternative<NoValue>(value) ? " none" : " ?";
    }
    return text;
  }

  std::string valuesFor(const std::string &members, const std::string &name = "window") {
    std::optional<CheckedModel> model = check(windows, members);
    return model ? valuesOf(*model, name) : diags.render();
  }
};

TEST_F(LayerConstants, AListOrADefaultMakesThem) {
  EXPECT_EQ(valuesFor(""), " 4096 none 4096 none");
  EXPECT_EQ(valuesFor("", "turns"), " true true true false");
  EXPECT_EQ(valuesFor("\"interval\": 2", "turns"), " true false true false");
  EXPECT_EQ(valuesFor("\"no_rope_layers\": [0, 0, 1, 0]", "turns"), " false false true false");
  EXPECT_EQ(valuesFor("\"no_rope_layers\": null", "turns"), " true true true false");
  const std::string types =
      R"("layer_types": ["full_attention", "sliding_attention", "sliding_attention", "full_attention"])";
  EXPECT_EQ(valuesFor(types + ", \"sliding_window\": 128"), " none 128 128 none");
}

TEST_F(LayerConstants, OneMayUseThoseAboveIt) { EXPECT_EQ(valuesFor("", "base"), " 10000 1000000 10000 1000000"); }

TEST_F(LayerConstants, NullIsNoneWhereItMayBe) {
  EXPECT_EQ(valuesFor("\"sliding_window\": null"), " none none none none");
}

TEST_F(LayerConstants, NullMayStandForAnotherName) {
  const std::string entry = "  interval: {key: interval, default: 4, if_null: kv_heads + 1}\n";
  const auto interval = [&](const std::string &members) {
    std::optional<CheckedModel> model = check(entry, members);
    return model ? std::get<int64_t>(model->config.at("interval")) : -1;
  };
  EXPECT_EQ(interval(""), 4);
  EXPECT_EQ(interval("\"interval\": null"), interval("\"interval\": 3")) << "two KV heads, and one";
}

TEST_F(LayerConstants, EntriesAreTakenAsTheyAre) {
  std::optional<CheckedModel> model =
      check("  layer: {turns: no_rope_layers}\n", "\"no_rope_layers\": [1, 0, true, 0.5]");
  ASSERT_TRUE(model) << diags.render();
  EXPECT_EQ(valuesOf(*model, "turns"), " 1 0 true 0.5");
}

const Case layerCases[] = {
    // clang-format off
    {"TooShort", true,
     {{"\"num_hidden_layers\": 2", "\"num_hidden_layers\": 2, \"types\": [\"full\"]"},
      {"  vocab: vocab_size\n", "  vocab: vocab_size\n  layer: {window: {key: types, values: {full: none}}}\n"}},
     R"(
model/config.json:1:45: error: `types` must be a list with one entry for each of the 2 layers, found `["full"]` [config-key]
    1 | {"hidden_size": 64, "num_hidden_layers": 2, "types": ["full"], "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100, "rms_norm_eps": 1e-05, "ro...
      |                                             ^~~~~~~
tiny.yaml:9:25: note: read here
    9 |   layer: {window: {key: types, values: {full: none}}}
      |                         ^~~~~
model/config.json:1:45: error: nothing in `tiny.yaml` understands `types`, so the graph may be wrong for this checkpoint [config-unknown]
    1 | {"hidden_size": 64, "num_hidden_layers": 2, "types": ["full"], "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100, "rms_norm_eps": 1e-05, "ro...
      |                                             ^~~~~~~
tiny.yaml:9:25: note: it is named here, but nothing uses `window`
    9 |   layer: {window: {key: types, values: {full: none}}}
      |                         ^~~~~
tiny.yaml:2:1: note: this is what the graph reads; put a key that cannot change logits into `harmless:`, one for some of whose values the graph is right into `requires:`, or take it on your word with `--accept KEY`
    2 | config:
      | ^~~~~~
)"},
    {"NoList", true,
     {{"\"num_hidden_layers\": 2", "\"num_hidden_layers\": 2, \"types\": 3"},
      {"  vocab: vocab_size\n", "  vocab: vocab_size\n  layer: {window: types}\n"}},
     R"(
model/config.json:1:45: error: `types` must be a list with one entry for each of the 2 layers, found `3` [config-key]
    1 | {"hidden_size": 64, "num_hidden_layers": 2, "types": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100, "rms_norm_eps": 1e-05, "rope_thet...
      |                                             ^~~~~~~
tiny.yaml:9:19: note: read here
    9 |   layer: {window: types}
      |                   ^~~~~
model/config.json:1:45: error: nothing in `tiny.yaml` understands `types`, so the graph may be wrong for this checkpoint [config-unknown]
    1 | {"hidden_size": 64, "num_hidden_layers": 2, "types": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100, "rms_norm_eps": 1e-05, "rope_thet...
      |                                             ^~~~~~~
tiny.yaml:9:19: note: it is named here, but nothing uses `window`
    9 |   layer: {window: types}
      |                   ^~~~~
tiny.yaml:2:1: note: this is what the graph reads; put a key that cannot change logits into `harmless:`, one for some of whose values the graph is right into `requires:`, or take it on your word with `--accept KEY`
    2 | config:
      | ^~~~~~
)"},
    {"UnknownEntry", true,
     {{"\"num_hidden_layers\": 2", "\"num_hidden_layers\": 2, \"types\": [\"full\", \"chunked\"]"},
      {"  vocab: vocab_size\n", "  vocab: vocab_size\n  layer: {window: {key: types, values: {full: none, sliding: 3}}}\n"}},
     R"(
model/config.json:1:45: error: entry 1 of `types` must be `full` or `sliding`, found `"chunked"` [config-key]
    1 | {"hidden_size": 64, "num_hidden_layers": 2, "types": ["full", "chunked"], "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100, "rms_norm_eps":...
      |                                             ^~~~~~~
tiny.yaml:9:25: note: read here
    9 |   layer: {window: {key: types, values: {full: none, sliding: 3}}}
      |                         ^~~~~
model/config.json:1:45: error: nothing in `tiny.yaml` understands `types`, so the graph may be wrong for this checkpoint [config-unknown]
    1 | {"hidden_size": 64, "num_hidden_layers": 2, "types": ["full", "chunked"], "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100, "rms_norm_eps":...
      |                                             ^~~~~~~
tiny.yaml:9:25: note: it is named here, but nothing uses `window`
    9 |   layer: {window: {key: types, values: {full: none, sliding: 3}}}
      |                         ^~~~~
tiny.yaml:2:1: note: this is what the graph reads; put a key that cannot change logits into `harmless:`, one for some of whose values the graph is right into `requires:`, or take it on your word with `--accept KEY`
    2 | config:
      | ^~~~~~
)"},
    {"NeitherNumberNorBool", true,
     {{"\"num_hidden_layers\": 2", "\"num_hidden_layers\": 2, \"types\": [1, null]"},
      {"  vocab: vocab_size\n", "  vocab: vocab_size\n  layer: {window: types}\n"}},
     R"(
model/config.json:1:45: error: entry 1 of `types` must be a number, true or false, found `null` [config-key]
    1 | {"hidden_size": 64, "num_hidden_layers": 2, "types": [1, null], "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100, "rms_norm_eps": 1e-05, "r...
      |                                             ^~~~~~~
tiny.yaml:9:19: note: read here
    9 |   layer: {window: types}
      |                   ^~~~~
model/config.json:1:45: error: nothing in `tiny.yaml` understands `types`, so the graph may be wrong for this checkpoint [config-unknown]
    1 | {"hidden_size": 64, "num_hidden_layers": 2, "types": [1, null], "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100, "rms_norm_eps": 1e-05, "r...
      |                                             ^~~~~~~
tiny.yaml:9:19: note: it is named here, but nothing uses `window`
    9 |   layer: {window: types}
      |                   ^~~~~
tiny.yaml:2:1: note: this is what the graph reads; put a key that cannot change logits into `harmless:`, one for some of whose values the graph is right into `requires:`, or take it on your word with `--accept KEY`
    2 | config:
      | ^~~~~~
)"},
    {"MissingKey", false,
     {{"  vocab: vocab_size\n", "  vocab: vocab_size\n  layer: {window: {key: types, values: {full: none}}}\n"}},
     R"(
tiny.yaml:9:25: error: `model/config.json` has no key `types`, which `window` needs [missing-config-key]
    9 |   layer: {window: {key: types, values: {full: none}}}
      |                         ^~~~~
)"},
    {"LayersBelow", false,
     {{"  hidden: hidden_size\n  layers: num_hidden_layers\n", "  hidden: hidden_size\n  layer: {window: {default: none}}\n  layers: num_hidden_layers\n"}},
     R"(
tiny.yaml:4:11: error: `window`, which differs by layer, needs the config name `layers`, an integer from 1 to 4096 [layers-missing]
    4 |   layer: {window: {default: none}}
      |           ^~~~~~
)"},
    {"NameTwice", false,
     {{"  vocab: vocab_size\n", "  vocab: vocab_size\n  layer: {vocab: {default: none}}\n"}},
     R"(
tiny.yaml:9:11: error: `vocab` is already a config name [name-taken]
    9 |   layer: {vocab: {default: none}}
      |           ^~~~~
)"},
    {"NameOfTheLanguage", false,
     {{"  vocab: vocab_size\n", "  vocab: vocab_size\n  none: vocab_size\n"}},
     R"(
tiny.yaml:9:3: error: `none` is already a word of the language [name-taken]
    9 |   none: vocab_size
      |   ^~~~
)"},
    {"InAShape", false,
     {{"  vocab: vocab_size\n", "  vocab: vocab_size\n  layer: {width: {default: hidden}}\n"},
      {"[hidden, heads * head_dim]", "[width, heads * head_dim]"}},
     R"(
tiny.yaml:21:19: error: `width` differs by layer, but here one constant stands for all layers [layer-constant]
   21 |     wo: {shape: '[width, heads * head_dim]', from: 'layers.{i}.o'}
      |                   ^~~~~
)"},
    {"InADefault", false,
     {{"  vocab: vocab_size\n", "  vocab: vocab_size\n  layer: {width: {default: hidden}}\n  wide: {key: wide, default: width}\n"}},
     R"(
tiny.yaml:10:30: error: `width` differs by layer, but here one constant stands for all layers [layer-constant]
   10 |   wide: {key: wide, default: width}
      |                              ^~~~~
)"},
    {"AsANumberOfTheGraph", false,
     {{"  vocab: vocab_size\n", "  vocab: vocab_size\n  layer: {factor: {default: layer}}\n"},
      {"v: matmul(x, wv)", "v: matmul(x, wv) * factor"}},
     R"(
tiny.yaml:28:28: error: `factor` differs by layer, but here one constant stands for all layers [layer-constant]
   28 |       - v: matmul(x, wv) * factor
      |                            ^~~~~~
)"},
    {"NoneAsANumberOfTheGraph", false,
     {{"v: matmul(x, wv)", "v: matmul(x, wv) * none"}},
     R"(
tiny.yaml:27:28: error: a graph needs a number, found `none` [constant-type]
   27 |       - v: matmul(x, wv) * none
      |                            ^~~~
)"},
    {"SumWithNone", false,
     {{"v: matmul(x, wv)", "v: matmul(x, wv) * (2 + none)"}},
     R"(
tiny.yaml:27:31: error: `+` needs numbers, found `none` [constant-type]
   27 |       - v: matmul(x, wv) * (2 + none)
      |                               ^
)"},
    {"NumberOfTheLayerOutside", false,
     {{"  eps: rms_norm_eps\n", "  eps: rms_norm_eps\n  odd: {key: odd, default: layer % 2}\n"}},
     R"(
tiny.yaml:10:28: error: unknown name `layer` in a constant expression [unknown-config-name]
   10 |   odd: {key: odd, default: layer % 2}
      |                            ^~~~~
note: did you mean `layers`?
)"},
    // clang-format on
};

class LayerConstantErrors : public testing::TestWithParam<Case> {};

TEST_P(LayerConstantErrors, SaysWhatIsWrong) { EXPECT_EQ(saidOf(GetParam()), GetParam().expected); }

INSTANTIATE_TEST_SUITE_P(All, LayerConstantErrors, testing::ValuesIn(layerCases),
                         [](const auto &info) { return info.param.name; });

} // namespace
