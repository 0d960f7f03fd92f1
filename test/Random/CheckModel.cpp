#include "CheckModel.h"
#include "RandomModel.h"
#include "WriteModel.h"
#include "megalith/Checkpoint/BFloat16.h"
#include "megalith/Driver/Compilation.h"
#include "megalith/IR/Text.h"
#include "megalith/Lower/Model.h"
#include "megalith/Lower/Pipeline.h"
#include "megalith/Reference/Executor.h"
#include "megalith/Requests/Trace.h"
#include "megalith/Sema/Pipeline.h"
#include "megalith/Syntax/Parse.h"
#include "megalith/Transforms/Passes.h"
#include <cmath>
#include <cstring>
#include <random>

namespace megalith::random_models {
namespace {

/// Random bf16 tensors, as the checked model asks for them.
class RandomWeights : public reference::WeightSource {
public:
  RandomWeights(const CheckedModel &model, const RandomModel &source, uint64_t seed) : random(seed) {
    for (const CheckedWeight &w : model.weights) {
      if (!w.alias.empty() || w.part)
        continue;
      for (int64_t layer = 0; layer < (w.perLayer ? model.layers : 1); ++layer)
        fill(tensors[w.tensorName(layer)], w.stored, source.means.at(w.name));
    }
  }

  const uint16_t *find(const std::string &, const std::string &name, std::vector<int64_t> &shape) override {
    auto it = tensors.find(name);
    if (it == tensors.end())
      return nullptr;
    shape = it->second.shape;
    return it->second.data.data();
  }

  std::map<std::string, Tensor> tensors;

private:
  void fill(Tensor &t, const std::vector<int64_t> &shape, double mean) {
    t.shape = shape;
    int64_t count = 1;
    for (int64_t n : shape)
      count *= n;
    // Products keep the size of their operand; vectors stay near their mean.
    double spread = shape.size() == 2 ? 1.7 / std::sqrt(static_cast<double>(shape[1])) : 0.15;
    for (int64_t i = 0; i < count; ++i) {
      double sum = 0; // nearly normal, and the same everywhere
      for (int j = 0; j < 4; ++j)
        sum += static_cast<double>(random() >> 40) / (1 << 24) - 0.5;
      t.data.push_back(floatToBf16(static_cast<float>(mean + spread * 1.7 * sum)));
    }
  }
  std::mt19937_64 random;
};

using Settings = std::vector<std::pair<std::string, std::string>>;

class ModelCheck {
public:
  ModelCheck(uint64_t seed, const CheckOptions &options)
      : seed(seed), options(options), random(seed ^ 0x5bd1e995), source(makeModel(seed)), diags(files) {
    outcome.yaml = source.yaml;
    outcome.fused = source.fused;
  }

  Outcome run() {
    if (lower() && comparePasses())
      emit();
    return std::move(outcome);
  }

private:
  bool fail(std::string what) {
    outcome.failure = std::move(what);
    return false;
  }
  bool failWithDiagnostics(const std::string &what) { return fail(what + ":\n" + diags.render()); }

  bool lower() {
    auto parsed = ast::parseModel(diags, files.add(fmt::format("random{}.yaml", seed), source.yaml));
    if (!parsed)
      return failWithDiagnostics("the model file is not read");
    auto config = ConfigFile::parse(source.config);
    if (!config)
      return fail("config.json: " + config.error.message);
    Acceptance acceptance;
    auto checked = megalith::checkModel(*parsed, *config, acceptance, diags);
    if (!checked)
      return failWithDiagnostics("the model is not accepted");
    model = std::move(*checked);
    weights = std::make_unique<RandomWeights>(model, source, seed);

    static const char *names[] = {"autoregressive",       "autoregressive", "speculative_lookup",
                                  "adaptive_speculative", "adaptive_aimd",  "adaptive_expected_gain"};
    pipeline = names[random() % std::size(names)];
    const std::string path = options.pipelines + "/" + pipeline + ".yaml";
    auto file = driver::openSource(diags, path);
    auto ast = file ? ast::parsePipeline(diags, *file) : std::nullopt;
    if (!ast)
      return failWithDiagnostics("the pipeline is not read");
    uint64_t rows = 4 + random() % 14;
    settings = {{"slots", std::to_string(1 + random() % 3)},
                {"rows_per_pass", std::to_string(rows)},
                {"prefill_chunk", std::to_string(1 + random() % rows)},
                {"kv_pages", "24"},
                {"page_tokens", std::to_string(1 + random() % 5)}};
    if (pipeline == "speculative_lookup")
      settings.push_back({"block", "3"});
    if (pipeline.starts_with("adaptive_"))
      settings.insert(settings.end(), {{"max_block", "3"}, {"ngram", "2"}});
    if (pipeline == "adaptive_speculative")
      settings.push_back({"mid_block", "2"});
    std::vector<ModelFacts> facts = {
        {"target", model.vocab, [this](std::string path) { return model.configNumber(path); }, model.eos}};
    auto checkedPipeline = checkPipeline(*ast, facts, settings, diags);
    if (!checkedPipeline)
      return failWithDiagnostics("the pipeline is not accepted");
    module = lowerPipeline(*checkedPipeline, files);
    lowerModel(model, "target", module);
    makeRequests();
    if (!options.writeTo.empty())
      writeModel(options.writeTo, source, weights->tensors, path, settings, requests);
    return true;
  }

  void makeRequests() {
    for (int i = 0; i < 3; ++i) {
      Request r;
      r.id = fmt::format("r{}", i);
      // Few different tokens, so that lookups find something.
      for (uint64_t j = 1 + random() % 9; j > 0; --j)
        r.tokens.push_back(static_cast<int32_t>(random() % (i == 0 ? 3 : model.vocab)));
      r.maxNewTokens = 2 + static_cast<int64_t>(random() % 4);
      r.eos.emplace(1, static_cast<int32_t>(random() % model.vocab));
      r.priority = static_cast<int32_t>(random() % 2);
      requests.push_back(r);
    }
  }

  bool comparePasses() {
    if (!ir::verify(module, diags))
      return failWithDiagnostics("the lowered module is not valid");
    auto before = execute("lower");
    if (!before)
      return false;
    for (const transforms::PassInfo &pass : transforms::passes()) {
      transforms::PassOptions passOptions;
      passOptions.stopAfter = pass.name;
      auto next = transforms::runPasses(std::move(module), passOptions, diags);
      if (!next)
        return failWithDiagnostics(fmt::format("pass `{}` failed", pass.name));
      module = std::move(*next);
      // What is printed is what is meant.
      std::string now = ir::print(module);
      auto again = ir::parse(diags, files.add("printed.mir", now));
      if (!again || ir::print(*again) != now)
        return failWithDiagnostics(fmt::format("the text after `{}` does not read back", pass.name));
      auto after = execute(pass.name);
      if (!after)
        return false;
      bool roundsDiffer = source.fused && std::strcmp(pass.name, "fuse-epilogues") == 0;
      if (!roundsDiffer && !compare(*before, *after, pass.name))
        return false;
      before = std::move(after);
    }
    return true;
  }

  std::optional<reference::RunResult> execute(const std::string &pass) {
    reference::Options run;
    run.keepLogits = run.hashKv = true;
    run.maxTicks = 400;
    run.shufflePages = seed;
    auto result = reference::run(module, *weights, requests, run);
    if (!result.error.empty()) {
      fail(fmt::format("after `{}`: {}", pass, result.error));
      return std::nullopt;
    }
    if (pass == "lower")
      for (const reference::RequestResult &r : result.requests) {
        outcome.tokens += static_cast<int64_t>(r.tokens.size());
        outcome.faults += r.finish == "fault";
        if (r.finish == "limit") {
          fail("a request does not end");
          return std::nullopt;
        }
      }
    outcome.passes += result.passes;
    return result;
  }

  bool compare(const reference::RunResult &a, const reference::RunResult &b, const std::string &pass) {
    for (size_t i = 0; i < a.requests.size(); ++i) {
      const reference::RequestResult &x = a.requests[i], &y = b.requests[i];
      if (x.tokens != y.tokens || x.finish != y.finish || x.fault != y.fault)
        return fail(fmt::format("pass `{}` changed the tokens of request {}", pass, i));
      bool sameLogits = x.logits.size() == y.logits.size();
      for (size_t j = 0; sameLogits && j < x.logits.size(); ++j)
        sameLogits = x.logits[j].size() == y.logits[j].size() &&
                     std::memcmp(x.logits[j].data(), y.logits[j].data(), x.logits[j].size() * sizeof(float)) == 0;
      if (!sameLogits)
        return fail(fmt::format("pass `{}` changed the logits of request {}", pass, i));
    }
    if (a.metrics != b.metrics)
      return fail(fmt::format("pass `{}` changed the metrics", pass));
    std::string difference = compareTraces(a.trace, b.trace);
    // The text has the KV hashes, too.
    if (difference.empty() && formatTrace(a.trace) != formatTrace(b.trace))
      difference = "K and V differ";
    return difference.empty() || fail(fmt::format("pass `{}` changed the trace: {}", pass, difference));
  }

  void emit() {
    driver::CompileOptions compile;
    compile.planSettings = {fmt::format("chunk={}", 4096 << random() % 3)};
    SourceFiles &sources = diags.sources();
    Diagnostics planning(sources);
    auto plan = driver::makePlan(module, compile, planning);
    if (!plan) {
      std::string text = planning.render();
      if (text.find("[plan-unsupported]") == text.npos)
        fail("no plan:\n" + text);
      outcome.unsupported = text.substr(0, text.find('\n'));
      return;
    }
    outcome.planned = true;
    driver::Source emitted = driver::emitSource(module, *plan, diags);
    if (emitted.units.tensors.text.find("megalith_run(") == std::string::npos || emitted.manifest.empty()) {
      fail("nothing was emitted");
      return;
    }
    if (options.arch.empty())
      return;
    auto compiled = driver::assemble(emitted.units, {.arch = options.arch}, diags);
    if (!compiled) {
      failWithDiagnostics("NVRTC rejects the source");
      return;
    }
    for (const jit::KernelResources &k : compiled->kernels)
      if (k.spills())
        fail(fmt::format("kernel `{}` spills {} + {} bytes", k.kernel, k.spillStores, k.spillLoads));
  }

  uint64_t seed;
  const CheckOptions &options;
  std::mt19937_64 random;
  RandomModel source;
  SourceFiles files;
  Diagnostics diags;
  CheckedModel model;
  std::unique_ptr<RandomWeights> weights;
  std::string pipeline;
  Settings settings;
  ir::Module module;
  std::vector<Request> requests;
  Outcome outcome;
};

} // namespace

Outcome checkModel(uint64_t seed, const CheckOptions &options) { return ModelCheck(seed, options).run(); }

} // namespace megalith::random_models
