#include "megalith/Checkpoint/ConfigFile.h"
#include "TempDir.h"
#include <fmt/format.h>
#include <gtest/gtest.h>

using namespace megalith;

static const char *OldSpelling = R"({
  "rope_theta": 500000.0,
  "rope_scaling": {"type": "llama3", "factor": 32.0, "low_freq_factor": 1.0,
                   "high_freq_factor": 4.0,
                   "original_max_position_embeddings": 8192}})";
static const char *NewSpelling = R"({
  "rope_parameters": {"rope_theta": 500000.0, "rope_type": "llama3",
                      "factor": 32.0, "low_freq_factor": 1.0,
                      "high_freq_factor": 4.0,
                      "original_max_position_embeddings": 8192}})";

TEST(ConfigFile, FindsDottedPaths) {
  auto config = ConfigFile::parse(R"({"a": {"b": {"c": 3}}, "n": null})");
  ASSERT_TRUE(config);
  EXPECT_EQ(config->find("a.b.c"), 3);
  EXPECT_TRUE(config->find("n")->is_null());
  EXPECT_FALSE(config->find("a.b.d"));
  EXPECT_FALSE(config->find("a.b.c.d"));
  EXPECT_FALSE(config->find(""));
}

TEST(ConfigFile, BothRopeSpellingsAnswerAlike) {
  for (const char *text : {OldSpelling, NewSpelling}) {
    auto config = ConfigFile::parse(text);
    ASSERT_TRUE(config);
    EXPECT_EQ(config->find("rope_theta"), 500000.0);
    EXPECT_EQ(config->find("rope_scaling.rope_type"), "llama3");
    EXPECT_EQ(config->find("rope_scaling.factor"), 32.0);
    EXPECT_EQ(config->find("rope_parameters.rope_theta"), 500000.0);
    EXPECT_EQ(config->find("rope_parameters.rope_type"), "llama3");
    auto rope = config->rope(64);
    ASSERT_TRUE(rope) << rope.error.message;
    EXPECT_EQ(rope->theta, 500000.0);
    EXPECT_EQ(rope->type, "llama3");
    EXPECT_EQ(rope->factor, 32.0);
    EXPECT_EQ(rope->lowFreqFactor, 1.0);
    EXPECT_EQ(rope->highFreqFactor, 4.0);
    EXPECT_EQ(rope->originalMaxPositions, 8192);
    EXPECT_EQ(rope->headDim, 64);
  }
}

TEST(ConfigFile, DefaultRopeHasNullScaling) {
  for (const char *text : {R"({"rope_theta": 1e4})", R"({"rope_theta": 1e4, "rope_scaling": null})",
                           R"({"rope_parameters": {"rope_theta": 1e4, "rope_type": "default"}})"}) {
    auto config = ConfigFile::parse(text);
    ASSERT_TRUE(config);
    EXPECT_EQ(config->find("rope_theta"), 1e4);
    ASSERT_TRUE(config->find("rope_scaling"));
    EXPECT_TRUE(config->find("rope_scaling")->is_null());
    EXPECT_EQ(config->rope(32)->type, "default");
  }
}

static std::string ropeError(const char *text, int headDim = 32) {
  auto config = ConfigFile::parse(text);
  auto rope = config->rope(headDim);
  if (rope)
    return "no error";
  EXPECT_EQ(rope.error.kind, "rope-config");
  return rope.error.message;
}

TEST(ConfigFile, RopeErrors) {
  EXPECT_EQ(ropeError("{}"), "`rope_theta` of the rotary embedding is missing");
  EXPECT_EQ(ropeError(R"({"rope_theta": -1})"), "`rope_theta` of the rotary embedding must be a positive number, "
                                                "found `-1`");
  EXPECT_EQ(ropeError(R"({"rope_theta": 1e4, "rope_scaling":
                          {"rope_type": "yarn", "factor": 4}})"),
            "`original_max_position_embeddings` of the rotary embedding is missing");
  EXPECT_EQ(ropeError(R"({"rope_theta": 1e4, "rope_scaling":
                          {"rope_type": "dynamic", "factor": 4}})"),
            "rotary embedding of type `dynamic` is not supported, only `default`, "
            "`linear`, `llama3`, `yarn` and `longrope` are");
  EXPECT_EQ(ropeError(R"({"rope_theta": 1e4, "rope_scaling":
                          {"rope_type": "llama3", "factor": 8}})"),
            "`low_freq_factor` of the rotary embedding is missing");
  EXPECT_EQ(ropeError(R"({"rope_theta": 1e4, "rope_scaling":
                          {"rope_type": "llama3", "factor": 8, "high_freq_factor": 4,
                           "original_max_position_embeddings": 9223372036854775808}})"),
            "`low_freq_factor` of the rotary embedding is missing");
  EXPECT_EQ(ropeError(R"({"rope_theta": 1e4, "partial_rotary_factor": 0.5})"),
            "`partial_rotary_factor` is 0.5, but the model file rotates whole heads; give `rope` the argument `dims`");
  EXPECT_EQ(ropeError(R"({"rope_theta": 1e4})", 7), "rotary embedding needs an even head size, found 7");
}

TEST(ConfigFile, RopeOnAPartOfAHead) {
  const auto said = [](const char *text, int turned) {
    auto rope = ConfigFile::parse(text)->rope(32, {}, turned);
    return rope ? std::to_string(rope->headDim) : rope.error.message;
  };
  EXPECT_EQ(said(R"({"rope_theta": 1e4})", 8), "8");
  EXPECT_EQ(said(R"({"rope_theta": 1e4, "partial_rotary_factor": 0.25})", 8), "8");
  EXPECT_EQ(said(R"({"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.25}})", 8), "8");
  EXPECT_EQ(said(R"({"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.5}})", 8),
            "`partial_rotary_factor` is 0.5, but the model file rotates 8 of the 32 values of a head");
  EXPECT_EQ(said(R"({"rope_theta": 1e4, "partial_rotary_factor": "half"})", 16),
            "`partial_rotary_factor` is \"half\", but the model file rotates 16 of the 32 values of a head");
  EXPECT_EQ(said(R"({"rope_theta": 1e4, "partial_rotary_factor": 0.5,
                     "rope_parameters": {"partial_rotary_factor": 0.25}})",
                 8),
            "`partial_rotary_factor` is given twice, as `0.25` and as `0.5` in `config.json`; leave one of them out");
  // transformers 5.0 writes the default of its class beside it.
  EXPECT_EQ(said(R"({"rope_theta": 1e4, "partial_rotary_factor": 1.0,
                     "rope_parameters": {"partial_rotary_factor": 0.25}})",
                 8),
            "8");
  // A model file reads it from where it stands.
  EXPECT_EQ(ConfigFile::parse(R"({"rope_parameters": {"partial_rotary_factor": 0.25}})")->find("partial_rotary_factor"),
            0.25);
}

TEST(ConfigFile, YarnErrors) {
  const auto said = [](const std::string &members) {
    const std::string text = R"({"rope_theta": 1e4, "rope_scaling": {"rope_type": "yarn", "factor": 4.0,
                                 "original_max_position_embeddings": 2048)" +
                             members + "}}";
    return ropeError(text.c_str());
  };
  EXPECT_EQ(said(""), "no error");
  EXPECT_EQ(said(", \"truncate\": 1"), "`truncate` of the rotary embedding must be true or false, found `1`");
  EXPECT_EQ(said(", \"beta_fast\": 0"), "`beta_fast` of the rotary embedding must be a positive number, found `0`");
}

TEST(ConfigFile, LongRopeErrors) {
  const auto said = [](const std::string &members, const std::string &outside = "") {
    const std::string text =
        R"({"rope_theta": 1e4)" + outside + R"(, "rope_scaling": {"type": "longrope")" + members + "}}";
    return ropeError(text.c_str(), 4);
  };
  const std::string factors = R"(, "short_factor": [1, 2], "long_factor": [3, 4])",
                    original = R"(, "original_max_position_embeddings": 64)";
  EXPECT_EQ(said(factors), "`original_max_position_embeddings` of the rotary embedding is missing");
  EXPECT_EQ(said(factors + original),
            "`factor` of the rotary embedding is missing, and so is `max_position_embeddings`");
  EXPECT_EQ(said(factors + original, ", \"max_position_embeddings\": 128"), "no error");
  EXPECT_EQ(said(factors, original + ", \"max_position_embeddings\": 128"), "no error");
  EXPECT_EQ(said(R"(, "short_factor": [1], "long_factor": [3, 4], "factor": 2)" + original),
            "`short_factor` of the rotary embedding must be a list of 2 positive numbers, found `[1]`");
  EXPECT_EQ(said(R"(, "short_factor": [1, 2], "factor": 2)" + original),
            "`long_factor` of the rotary embedding is missing");
}

/// A file may have both spellings when they agree; readers differ in which they take.
TEST(ConfigFile, BothSpellingsInOneFile) {
  EXPECT_EQ(ropeError(R"({"rope_theta": 5e5, "rope_parameters": {"rope_theta": 500000, "rope_type": "default"}})"),
            "no error");
  EXPECT_EQ(ropeError(R"({"rope_theta": 1e4, "rope_scaling": {"type": "linear", "factor": 2},
                          "rope_parameters": {"rope_theta": 1e4, "rope_type": "linear", "factor": 2.0}})"),
            "no error");
  EXPECT_EQ(ropeError(R"({"rope_theta": 1e4, "rope_parameters": {"rope_theta": 5e5, "rope_type": "default"}})"),
            "`rope_theta` is given twice, as `500000.0` and as `10000.0` in `config.json`; leave one of them out");
  EXPECT_EQ(
      ropeError(R"({"rope_theta": 1e4, "rope_scaling": {"type": "linear", "factor": 2},
                          "rope_parameters": {"rope_theta": 1e4}})"),
      "`rope_type` is given twice, as `\"default\"` and as `\"linear\"` in `rope_scaling`; leave one of them out");
  EXPECT_EQ(ropeError(R"({"rope_theta": 1e4, "rope_scaling": {"type": "mrope", "rope_type": "default"}})"),
            "`rope_type` is given twice, as `\"default\"` and as `\"mrope\"` in `rope_scaling`; leave one of them out");
}

TEST(ConfigFile, RopeOfLayersWithoutAWindow) {
  const auto config = ConfigFile::parse(R"({"rope_parameters": {
    "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6}}})");
  const auto rope = config->rope(16);
  ASSERT_TRUE(rope) << rope.error.message;
  EXPECT_EQ(rope->theta, 1e6);
  EXPECT_EQ(rope->type, "linear");
  EXPECT_EQ(rope->factor, 8.0);
  EXPECT_EQ(config->find("rope_theta"), 1e6);
  EXPECT_EQ(config->find("rope_parameters.sliding_attention.rope_theta"), 1e4);
  EXPECT_EQ(ropeError(R"({"rope_theta": 1e4, "rope_parameters": {"full_attention": {"rope_theta": 1e6}}})"),
            "`rope_theta` is given twice, as `1000000.0` and as `10000.0` in `config.json`; leave one of them out");
}

TEST(ConfigFile, RopeOfOtherTools) {
  // Null members are absent, a quoted number is the number, an empty object is none.
  for (const char *text : {R"({"rope_theta": 1e4, "rope_parameters": {"rope_theta": null, "rope_type": "default"}})",
                           R"({"rope_theta": "10000"})", R"({"rope_theta": "1e4", "rope_scaling": {}})",
                           R"({"rope_theta": 1e4, "partial_rotary_factor": 1.0, "rope_scaling": null})"}) {
    auto rope = ConfigFile::parse(text)->rope(16);
    ASSERT_TRUE(rope) << text << rope.error.message;
    EXPECT_EQ(rope->theta, 1e4);
    EXPECT_EQ(rope->type, "default");
  }
  EXPECT_EQ(ConfigFile::parse("{}")->rope(16, 5.0)->theta, 5.0);
  EXPECT_EQ(ropeError(R"({"rope_theta": "ten"})"),
            "`rope_theta` of the rotary embedding must be a positive number, found `\"ten\"`");
  EXPECT_EQ(ropeError(R"({"rope_theta": Infinity})"),
            "`rope_theta` of the rotary embedding must be a positive number, found `Infinity`");
  EXPECT_EQ(ropeError(R"({"rope_theta": 1e4, "rope_scaling": "linear"})"),
            "`rope_scaling` must be an object or null, found `\"linear\"`");
  EXPECT_EQ(ropeError(R"({"rope_theta": 1e4, "rope_scaling": {"type": 3}})"),
            "`rope_type` must be a string, found `3`");
}

TEST(ConfigFile, KeysThatAreReadWhateverTheModel) {
  auto errorOf = [](const char *text) {
    auto config = ConfigFile::parse(text);
    return config ? "no error"
                  : fmt::format("{}:{}: {} [{}]", config.error.line, config.error.column, config.error.message,
                                config.error.kind);
  };
  EXPECT_EQ(ConfigFile::parse(R"({"max_position_embeddings": "4096"})")->positions(), 4096.0);
  EXPECT_EQ(ConfigFile::parse(R"({"max_position_embeddings": 131072.0})")->positions(), 131072.0);
  EXPECT_EQ(ConfigFile::parse(R"({"max_position_embeddings": null})")->positions(), std::nullopt);
  EXPECT_EQ(ConfigFile::parse(R"({"max_position_embeddings": 9223372036854775808})")->positions(),
            9223372036854775808.0);
  for (const char *value : {"\"many\"", "Infinity", "NaN", "0", "-1", "true", "[4096]"})
    EXPECT_EQ(
        errorOf(fmt::format("{{\n \"max_position_embeddings\": {}}}", value).c_str()),
        fmt::format("2:2: `max_position_embeddings` must be a number of positions, from 1, found `{}` [config-key]",
                    value));
  EXPECT_FALSE(ConfigFile::parse(R"({"byte_vocabulary": null})")->byteVocabulary());
  for (const char *value : {"\"yes\"", "1", "{}"})
    EXPECT_EQ(errorOf(fmt::format("{{\"byte_vocabulary\": {}}}", value).c_str()),
              fmt::format("1:2: `byte_vocabulary` must be true or false, found `{}` [config-key]", value));
  for (const char *value : {"\"end\"", "1.0", "true", "[1,[2]]", "9223372036854775808", "18446744073709551615"})
    EXPECT_EQ(
        errorOf(fmt::format("{{\"a\": 0,\n\n\"eos_token_id\": {}}}", value).c_str()),
        fmt::format("3:1: `eos_token_id` must be a token id or a list of token ids, found `{}` [config-key]", value));
}

TEST(ConfigFile, NumbersThatAreNone) {
  auto config = ConfigFile::parse(R"({"a": Infinity, "b": [NaN], "c": -Infinity})");
  ASSERT_TRUE(config) << config.error.message;
  auto large = ConfigFile::parse("{\n\"a\": 1e309}");
  ASSERT_FALSE(large);
  EXPECT_EQ(fmt::format("{}:{}: {}", large.error.line, large.error.column, large.error.message),
            "2:6: not valid JSON at byte 7: the number `1e309` is too large for 64 bits of floating point");
  EXPECT_EQ(
      ConfigFile::parse("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\n").error.message.substr(0, 31),
      "this is a pointer of Git LFS, n");
  auto deep = ConfigFile::parse("{\"a\": " + std::string(1'000'000, '['));
  ASSERT_FALSE(deep);
  EXPECT_EQ(deep.error.message, "not valid JSON at byte 105: lists and objects are nested more than 100 deep");
}

TEST(ConfigFile, KnowsOldNamesOfTypes) {
  const auto typeOf = [](const std::string &members) {
    return ConfigFile::parse(R"({"rope_theta": 1e4, "rope_scaling": {)" + members + "}}")
        ->find("rope_parameters.rope_type");
  };
  EXPECT_EQ(typeOf(R"("type": "su", "short_factor": [1], "long_factor": [1])"), "longrope");
  EXPECT_EQ(typeOf(R"("type": "yarn", "short_factor": [1], "long_factor": [1])"), "longrope");
  EXPECT_EQ(typeOf(R"("type": "yarn", "rope_type": "longrope", "short_factor": [1], "long_factor": [1])"), "longrope");
  EXPECT_EQ(typeOf(R"("type": "yarn", "factor": 4)"), "yarn");
}

TEST(ConfigFile, EosComesFromGenerationConfigFirst) {
  EXPECT_EQ(ConfigFile::parse(R"({"eos_token_id": 2})")->eosTokens(), std::vector<int64_t>{2});
  EXPECT_EQ(ConfigFile::parse(R"({"eos_token_id": 2})", R"({"eos_token_id": [7, 8]})")->eosTokens(),
            (std::vector<int64_t>{7, 8}));
  EXPECT_EQ(ConfigFile::parse(R"({"eos_token_id": [2, 3]})", "{}")->eosTokens(), (std::vector<int64_t>{2, 3}));
  EXPECT_TRUE(ConfigFile::parse(R"({"eos_token_id": null})")->eosTokens().empty());
  auto wrong = ConfigFile::parse("{}", R"({"eos_token_id": [1, "x"]})", "dir/config.json");
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error.kind, "config-key");
  EXPECT_EQ(wrong.error.file, "dir/generation_config.json");
  EXPECT_EQ(wrong.error.line, 1u);
  EXPECT_EQ(wrong.error.column, 2u);
}

TEST(ConfigFile, SyntaxErrorHasPosition) {
  auto config = ConfigFile::parse("{\n  \"a\": 1,\n  \"b\": }\n");
  ASSERT_FALSE(config);
  EXPECT_EQ(config.error.kind, "config-syntax");
  EXPECT_EQ(config.error.line, 3u);
  EXPECT_EQ(config.error.column, 8u);
  EXPECT_EQ(config.error.message, "not valid JSON at byte 19: syntax error while parsing value - "
                                  "unexpected '}'; expected '[', '{', or a literal");
  auto repeated = ConfigFile::parse("{\"a\": 1,\n \"a\": 2}");
  ASSERT_FALSE(repeated);
  EXPECT_EQ(repeated.error.line, 2u);
  EXPECT_EQ(repeated.error.column, 2u);
  EXPECT_EQ(ConfigFile::parse("[1]").error.message, "expected a JSON object, found array");
}

TEST(ConfigFile, LoadsADirectory) {
  TempDir dir;
  auto missing = ConfigFile::load(dir.path());
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error.kind, "config-missing");
  EXPECT_EQ(missing.error.file, dir.path() + "/config.json");
  dir.write("config.json", R"({"vocab_size": 260, "byte_vocabulary": true, "eos_token_id": 1})");
  auto config = ConfigFile::load(dir.path());
  ASSERT_TRUE(config);
  EXPECT_TRUE(config->byteVocabulary());
  EXPECT_EQ(config->keys(), (std::vector<std::string>{"byte_vocabulary", "eos_token_id", "vocab_size"}));
  dir.write("generation_config.json", "");
  auto broken = ConfigFile::load(dir.path());
  ASSERT_FALSE(broken);
  EXPECT_EQ(broken.error.kind, "config-syntax");
  EXPECT_EQ(broken.error.file, dir.path() + "/generation_config.json");
}
