//===- Compile.cpp - targets that end in CUDA text ------------------------===//
#include "Fuzz.h"
#include "megalith/IR/Text.h"
#include "megalith/Lower/Model.h"
#include "megalith/Lower/Pipeline.h"
#include "megalith/Sema/Pipeline.h"
#include "megalith/Syntax/Parse.h"
#include <cmath>
#include <fmt/format.h>
#include <set>

namespace megalith::embedded {
extern const char llama_yaml[], harmless_yaml[], autoregressive_yaml[], config_json[];
}

namespace megalith::fuzz {

namespace {

/// The files that an input is compiled with.
struct Folder {
  std::string llama, pipeline, checkpoint;
  Folder() {
    llama = writeScratch("models/llama.yaml", embedded::llama_yaml);
    std::string text = embedded::autoregressive_yaml;
    const std::string unnamed = "target: {}";
    if (size_t at = text.find(unnamed); at != text.npos) // an input's own `for:` may be another checkpoint's
      text.replace(at, unnamed.size(), "target: {graph: models/llama.yaml}");
    pipeline = writeScratch("autoregressive.yaml", text);
    writeScratch("models/harmless.yaml", embedded::harmless_yaml);
    writeScratch("checkpoint/config.json", embedded::config_json);
    checkpoint = scratch() + "/checkpoint";
  }
};
const Folder &folder() {
  static const Folder files;
  return files;
}

/// llama.yaml as it was parsed; its places are in file 0.
const ast::ModelFile &llamaFile() {
  static const std::optional<ast::ModelFile> parsed = [] {
    SourceFiles files;
    Diagnostics diags(files);
    auto parsed = ast::parseModel(diags, files.add(folder().llama, embedded::llama_yaml));
    if (!parsed)
      finding("the files of the targets are wrong:\n" + diags.render());
    return parsed;
  }();
  return *parsed;
}

/// The tiny checkpoint's model.
CheckedModel tinyModel() {
  SourceFiles files;
  Diagnostics diags(files);
  files.add(folder().llama, embedded::llama_yaml);
  auto config = ConfigFile::parse(embedded::config_json);
  Acceptance acceptance;
  auto checked = config ? checkModel(llamaFile(), *config, acceptance, diags) : std::nullopt;
  if (!checked)
    finding("the files of the targets are wrong:\n" + diags.render());
  return std::move(*checked);
}

/// The chain of the driver, with a look at every stage's result.
void compileAll(driver::CompileOptions options) {
  SourceFiles files;
  Diagnostics diags(files);
  options.stopAfter = "lower";
  std::optional<driver::Compilation> lowered = driver::compile(options, diags);
  checkMessages(diags, !lowered);
  if (lowered)
    checkModule(std::move(lowered->module), options, diags);
  else if (hasError(diags, "ir-invalid"))
    finding("what the checks let through is lowered to IR that is not valid:\n" + diags.render());
}

} // namespace

void fuzzPipeline(std::string_view input) {
  driver::CompileOptions options;
  readOptions(input, "#! ", options);
  options.models = {{"", folder().checkpoint}};
  options.file = writeScratch("pipeline.yaml", input);
  compileAll(options);
}

void fuzzModel(std::string_view input) {
  driver::CompileOptions options;
  readOptions(input, "#! ", options);
  options.models = {{"", folder().checkpoint}};
  options.file = folder().pipeline;
  writeScratch("models/llama.yaml", input);
  compileAll(options);
}

void fuzzConfig(std::string_view input) {
  folder();
  const size_t cut = input.find("\n---\n");
  std::string_view generation;
  if (cut != input.npos) {
    generation = input.substr(cut + 5);
    input = input.substr(0, cut);
  }
  const std::string path = scratch() + "/config/config.json";
  Result<ConfigFile> config = ConfigFile::parse(input, generation, path);
  if (!config)
    return checkError(config.error, config.error.file == path ? input : generation);
  for (int headDim : {2, 64})
    if (Result<RopeParams> rope = config->rope(headDim)) // checkModel() tells why not
      for (float frequency : inverseFrequencies(*rope))
        if (std::isnan(frequency))
          finding("a rotary frequency that is no number");
  for (const std::string &key : config->keys())
    if (key.find('.') == key.npos && !config->find(key))
      finding("a key without a value: " + key);

  SourceFiles files;
  Diagnostics diags(files);
  files.add(folder().llama, embedded::llama_yaml);
  Acceptance acceptance;
  std::optional<CheckedModel> model = checkModel(llamaFile(), *config, acceptance, diags);
  checkMessages(diags, !model);
  if (!model)
    return;
  for (int32_t token : model->eos)
    if (token < 0 || token >= model->vocab)
      finding(fmt::format("the token {} ends a sequence", token));
  writeScratch("config/config.json", input);
  writeScratch("config/generation_config.json", generation.empty() ? "{}" : generation);
  driver::CompileOptions options;
  options.models = {{"", scratch() + "/config"}};
  options.file = folder().pipeline;
  compileAll(options);
}

/// As with `--ir`: the pipeline and its model file are read before it.
static uint32_t addIr(SourceFiles &files, std::string_view text) {
  files.add("pipelines/autoregressive.yaml", embedded::autoregressive_yaml);
  files.add("pipelines/models/llama.yaml", embedded::llama_yaml);
  return files.add("input.ir", std::string(text));
}

/// Whether each call has a site of its own. Passes rely on it; only a whole module is checked for it.
static bool sitesAreUnique(const ir::Module &module) {
  std::set<int64_t> sites;
  bool unique = true;
  ir::walk(module.root.region(), [&](const ir::Operation &op) {
    unique &= !ir::isCall(op.op) || sites.insert(op.get<ir::attr::site>()).second;
  });
  return unique;
}

void fuzzIr(std::string_view input) {
  driver::CompileOptions options;
  readOptions(input, "//! ", options);
  { // what megalith-opt does, also with parts of a module
    SourceFiles files;
    Diagnostics diags(files);
    std::optional<ir::Module> module = ir::parse(diags, addIr(files, input));
    const bool valid = module && ir::verify(*module, diags);
    checkMessages(diags, !valid);
    if (!valid)
      return;
    if (sitesAreUnique(*module))
      checkPasses(*module, diags);
  }
  SourceFiles files;
  Diagnostics diags(files);
  std::optional<ir::Module> module = driver::readIr(addIr(files, input), diags);
  checkMessages(diags, !module);
  if (module)
    checkModule(std::move(*module), options, diags);
}

// --- expressions

namespace {

/// A pipeline with room for an expression at the place `{}`.
constexpr const char *pipelines[] = {
    // The value of a statement.
    R"(pipeline: p
models:
  target: {{graph: m.yaml}}
params: {{rows_per_pass: 16, block: 4, rate: 0.5, on: true}}
request: {{draft: 'token[block]', best: 'token[block + 1]', count: i32 = 1, share: f32 = 0.5, seen: bool = false, one: token}}
states:
  fault: FAILED
  QUEUED: {{initial: true, next: [RUN, DONE]}}
  RUN: {{slot: true, next: [RUN, DONE]}}
  DONE: {{terminal: true}}
  FAILED: {{terminal: true}}
kv:
  target: {{pages: 64, page_tokens: 16, watermark: 0.85, on_full: fail}}
policies:
  size:
    state: {{ema: f32 = 0.8}}
    observe(good, all):
      - ema: rate * ratio(good, all) + (1 - rate) * ema
    outputs:
      width: tiers(ema, [[0.5, block], [0.0, 1]])
stages:
  admit: {{on: QUEUED, do: [], goto: DONE if finished else RUN}}
  run:
    on: RUN
    do:
      - draft: ngram_lookup(tokens, width=min(size.width, budget - 1))
      - best: argmax(target([last] + draft, kv=draft))
      - value: {}
      - trace: value
      - size.observe: 1, len(draft)
      - append(best[:1])
      - kv.target.keep: len(tokens) - 1
    goto: DONE if finished else RUN
)",
    // A statement by itself, a state to go to, a policy, a param.
    R"(pipeline: p
models:
  target: {{graph: m.yaml}}
params: {{block: 4}}
request: {{draft: 'token[block]', count: i32 = 1, share: f32 = 0.5}}
states: {{fault: FAILED, QUEUED: {{initial: true, next: [RUN, DONE]}}, RUN: {{slot: true, next: [RUN, DONE]}}, DONE: {{terminal: true}}, FAILED: {{terminal: true}}}}
kv: {{target: {{pages: 64, page_tokens: 16}}}}
stages:
  admit: {{on: QUEUED, do: [], goto: DONE if finished else RUN}}
  run:
    on: RUN
    do:
      - {}
      - append([last])
    goto: DONE if finished else RUN
)",
    R"(pipeline: p
models:
  target: {{graph: m.yaml}}
request: {{draft: 'token[4]', count: i32 = 1, share: f32 = 0.5, seen: bool = false}}
states: {{fault: FAILED, QUEUED: {{initial: true, next: [RUN, DONE]}}, RUN: {{slot: true, next: [RUN, DONE]}}, DONE: {{terminal: true}}, FAILED: {{terminal: true}}}}
kv: {{target: {{pages: 64, page_tokens: 16}}}}
stages:
  admit: {{on: QUEUED, do: [], goto: DONE if finished else RUN}}
  run:
    on: RUN
    do:
      - seen: share > 0.25
      - best: argmax(target([last]))
      - append(best)
    goto: {}
)",
    R"(pipeline: p
models:
  target: {{graph: m.yaml}}
request: {{seen: i32 = 0}}
params: {{block: 4, value: {}, half: value / 2}}
states: {{fault: FAILED, QUEUED: {{initial: true, next: [RUN, DONE]}}, RUN: {{slot: true, next: [RUN, DONE]}}, DONE: {{terminal: true}}, FAILED: {{terminal: true}}}}
kv: {{target: {{pages: 64, page_tokens: 16}}}}
policies:
  size:
    state: {{ema: f32 = 0.8, n: i32 = 1}}
    observe(good, all):
      - n: good + all
    outputs: {{width: n + block}}
stages:
  admit: {{on: QUEUED, do: [], goto: DONE if finished else RUN}}
  run:
    on: RUN
    do:
      - best: argmax(target([last]))
      - append(best)
      - if: value == 3
        do: [seen: size.width]
    goto: DONE if finished else RUN
)",
    R"(pipeline: p
models:
  target: {{graph: m.yaml}}
request: {{seen: i32 = 0}}
params: {{block: 4}}
states: {{fault: FAILED, QUEUED: {{initial: true, next: [RUN, DONE]}}, RUN: {{slot: true, next: [RUN, DONE]}}, DONE: {{terminal: true}}, FAILED: {{terminal: true}}}}
kv: {{target: {{pages: 64, page_tokens: 16}}}}
policies:
  size:
    state: {{ema: f32 = 0.8, n: i32 = 1}}
    observe(good, all):
      - n: min(good, 100)
      - ema: {}
    outputs: {{width: 'tiers(ema, [[0.5, block], [0.0, 1]])'}}
stages:
  admit: {{on: QUEUED, do: [], goto: DONE if finished else RUN}}
  run:
    on: RUN
    do:
      - best: argmax(target([last]))
      - append(best)
      - size.observe: size.width, 3
    goto: DONE if finished else RUN
)"};

/// Graphs and shapes of a model file, in place of one of llama.yaml's lines.
constexpr std::pair<const char *, const char *> modelLines[] = {
    {"      - h: rms_norm(x, mlp_norm, eps)\n", "      - h: {}\n"},
    {"  head_dim: {key: head_dim, default: hidden / heads}\n", "  head_dim: {{key: no_such_key, default: {}}}\n"},
    {"    gate: {shape: '[ffn, hidden]'", "    gate: {{shape: {}"},
    {", or: embed if tied}", ", or: {}}}"},
};

/// `text` as a scalar of YAML, whatever is in it.
std::string yamlScalar(std::string_view text) {
  std::string out = "'";
  for (char c : text)
    out += c == '\'' ? "''" : std::string(1, c);
  return out + "'";
}

/// The value of the statement `value: ...` of a parsed pipeline.
const ast::Expr *valueOf(const ast::PipelineFile &pipeline) {
  for (const ast::StageDecl &stage : pipeline.stages)
    for (const ast::Stmt &stmt : stage.body)
      if (stmt.kind == ast::Stmt::Assign && stmt.target.text == "value" && stmt.values.size() == 1)
        return stmt.values[0].get();
  return nullptr;
}

/// An expression as it is written for the user reads as the same.
void checkWritten(const ast::PipelineFile &pipeline) {
  const ast::Expr *expr = valueOf(pipeline);
  if (!expr)
    return;
  const std::string text = ast::written(*expr);
  SourceFiles files;
  Diagnostics diags(files);
  auto back = ast::parsePipeline(diags, files.add("p.yaml", fmt::format(fmt::runtime(pipelines[0]), yamlScalar(text))));
  const ast::Expr *again = back ? valueOf(*back) : nullptr;
  if (!again || ast::print(*again) != ast::print(*expr) || ast::written(*again) != text)
    finding(fmt::format("`{}` is written down as `{}`, which is another expression:\n{}", ast::print(*expr), text,
                        again ? ast::print(*again) : diags.render()));
}

/// False when the text is no expression at all.
bool checkPipelineWith(const char *form, const std::string &expression) {
  SourceFiles files;
  Diagnostics diags(files);
  const std::string text = fmt::format(fmt::runtime(form), expression);
  std::optional<ast::PipelineFile> parsed = ast::parsePipeline(diags, files.add("p.yaml", text));
  checkMessages(diags, !parsed);
  if (!parsed)
    return false;
  ast::print(*parsed);
  if (form == pipelines[0])
    checkWritten(*parsed);
  static const CheckedModel model = tinyModel();
  const ModelFacts facts{"target", model.vocab, [&](std::string path) { return model.configNumber(path); }, model.eos};
  std::optional<CheckedPipeline> checked = checkPipeline(*parsed, {facts}, {}, diags);
  checkMessages(diags, !checked);
  if (!checked)
    return true;
  ir::Module module = lowerPipeline(*checked, files);
  lowerModel(model, "target", module);
  if (!ir::verify(module, diags))
    finding("what the checks let through is lowered to IR that is not valid:\n" + diags.render());
  files.add(folder().llama, embedded::llama_yaml); // the model's places
  checkModule(std::move(module), {}, diags);
  return true;
}

void checkModelWith(const char *line, const char *form, const std::string &expression) {
  SourceFiles files;
  Diagnostics diags(files);
  std::string text = embedded::llama_yaml;
  text.replace(text.find(line), std::string_view(line).size(), fmt::format(fmt::runtime(form), expression));
  std::optional<ast::ModelFile> parsed = ast::parseModel(diags, files.add(folder().llama, text));
  checkMessages(diags, !parsed);
  if (!parsed)
    return;
  ast::print(*parsed);
  Result<ConfigFile> config = ConfigFile::parse(embedded::config_json);
  Acceptance acceptance;
  checkMessages(diags, !checkModel(*parsed, *config, acceptance, diags));
}

} // namespace

void fuzzExpression(std::string_view input) {
  const std::string expression = yamlScalar(input);
  bool any = false;
  for (const char *form : pipelines)
    any |= checkPipelineWith(form, expression);
  if (!any)
    return;
  for (const auto &[line, form] : modelLines)
    checkModelWith(line, form, expression);
}

} // namespace megalith::fuzz
