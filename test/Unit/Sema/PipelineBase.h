//===- PipelineBase.h - a small pipeline that tests edit ------------------===//
#ifndef MEGALITH_TEST_SEMA_PIPELINEBASE_H
#define MEGALITH_TEST_SEMA_PIPELINEBASE_H

#include "megalith/Sema/Pipeline.h"
#include "megalith/Syntax/Parse.h"
#include <gtest/gtest.h>

namespace megalith::test {

inline const char *const basePipeline = R"(pipeline: base
models:
  target: {graph: m.yaml}
params:
  rows_per_pass: 16
  block: 4
  rate: 0.5
request:
  draft: token[block]
  accepted: i32 = 0
states:
  fault: FAILED
  QUEUED: {initial: true, next: [PREFILL, DONE]}
  PREFILL: {slot: true, next: [PREFILL, VERIFY]}
  VERIFY: {slot: true, next: [COMMIT]}
  COMMIT: {slot: true, next: [VERIFY, DONE]}
  DONE: {terminal: true}
  FAILED: {terminal: true}
kv:
  target: {pages: 64, page_tokens: 16, watermark: 0.85, on_full: fail}
policies:
  size:
    state: {ema: f32 = 0.8}
    observe(good, ran):
      - ema: rate * ratio(good, ran) + (1 - rate) * ema
    outputs:
      width: tiers(ema, [[0.5, block], [0.0, 1]])
stages:
  admit:
    on: QUEUED
    do: []
    goto: DONE if finished else PREFILL
  prefill:
    on: PREFILL
    do:
      - target(tokens[kv.target.len:-1], chunk=8, keep=none)
    goto: VERIFY if kv.target.lag == 1 else PREFILL
  verify:
    on: VERIFY
    do:
      - draft: ngram_lookup(tokens, width=min(size.width, budget - 1))
      - best: argmax(target([last] + draft, kv=draft))
      - accepted: prefix_while(i in 0..len(draft), draft[i] == best[i])
      - size.observe: accepted, len(draft)
    goto: COMMIT
  commit:
    on: COMMIT
    do:
      - append(draft[:accepted] + [best[accepted]])
      - kv.target.keep: len(tokens) - 1
    goto: DONE if finished else VERIFY
)";

/// A replacement of the first occurrence of `from`, which must be there.
struct Edit {
  std::string from, to;
};
using Sets = std::vector<std::pair<std::string, std::string>>;

/// A model whose config.json holds `eos_token_id` 2 and `rope.factor` 0.5.
inline ModelFacts modelFacts(std::string name, int64_t vocab) {
  ModelFacts facts;
  facts.name = std::move(name);
  facts.vocab = vocab;
  facts.config = [](const std::string &key) -> std::optional<double> {
    if (key == "eos_token_id")
      return 2;
    if (key == "rope.factor")
      return 0.5;
    return std::nullopt;
  };
  return facts;
}

/// The base pipeline after some edits, parsed and checked.
struct Check {
  std::optional<CheckedPipeline> pipeline;
  std::string messages;
  unsigned errors = 0;
};

/// Edits leave names that nothing reads; test/Errors/language.test has the warnings of them.
inline std::string withoutUnused(std::string messages) {
  for (size_t at; (at = messages.find(" [unused]\n")) != std::string::npos;) {
    const size_t line = messages.rfind('\n', at), begin = line == std::string::npos ? 0 : line + 1;
    size_t end = at;
    for (int lines = 0; lines < 3 && end != std::string::npos; ++lines)
      end = messages.find('\n', end + (lines > 0));
    messages.erase(begin, end == std::string::npos ? end : end + 1 - begin);
  }
  return messages;
}

inline Check checkText(const std::string &text, const Sets &sets = {}, const std::vector<ModelFacts> &facts = {}) {
  SourceFiles files;
  Diagnostics diags(files);
  Check result;
  uint32_t file = files.add("p.yaml", text);
  if (auto parsed = ast::parsePipeline(diags, file))
    result.pipeline = checkPipeline(*parsed, facts, sets, diags);
  result.messages = withoutUnused(diags.render());
  result.errors = diags.errors();
  return result;
}

inline std::string edited(const std::vector<Edit> &edits) {
  std::string text = basePipeline;
  for (const Edit &e : edits) {
    size_t at = text.find(e.from);
    if (at == std::string::npos)
      ADD_FAILURE() << "the base pipeline does not contain " << e.from;
    else
      text.replace(at, e.from.size(), e.to);
  }
  return text;
}

inline Check check(const std::vector<Edit> &edits, const Sets &sets = {}, const std::vector<ModelFacts> &facts = {}) {
  return checkText(edited(edits), sets, facts);
}

} // namespace megalith::test
#endif
