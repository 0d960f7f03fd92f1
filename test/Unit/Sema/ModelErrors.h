//===- ModelErrors.h - one edit of a good model, and what is said of it ---===//
#ifndef MEGALITH_TEST_UNIT_SEMA_MODELERRORS_H
#define MEGALITH_TEST_UNIT_SEMA_MODELERRORS_H

#include "megalith/Sema/Model.h"
#include "megalith/Syntax/Parse.h"
#include <gtest/gtest.h>
#include <utility>

namespace megalith::modelErrors {

inline const char *const goodModel = R"(model: tiny
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

inline const char *const goodConfig =
    R"({"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100, "rms_norm_eps": 1e-05, "rope_theta": 10000.0})";

struct Case {
  const char *name;
  bool inConfig; ///< the first edit is one of config.json
  std::vector<std::pair<std::string, std::string>> edits;
  const char *expected; ///< after a newline
};

inline std::string diagnose(std::string model, const std::string &config) {
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

inline void replaceAll(std::string &text, const std::string &from, const std::string &to) {
  size_t at = text.find(from);
  ASSERT_NE(at, std::string::npos) << from;
  for (; at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

/// What is said of the good model and config with the case's edits.
inline std::string saidOf(const Case &c) {
  std::string model = goodModel, config = goodConfig;
  for (const auto &[from, to] : c.edits) {
    bool first = &from == &c.edits[0].first;
    replaceAll(first && c.inConfig ? config : model, from, to);
  }
  return "\n" + diagnose(model, config);
}

} // namespace megalith::modelErrors
#endif
