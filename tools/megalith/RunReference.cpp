#include "EngineRun.h"
#include "Executors.h"
#include "Replay.h"
#include "megalith/Reference/Executor.h"
#include <chrono>
#include <cstring>
#include <map>

namespace megalith::tool {

namespace {

/// The checkpoints of all models.
class CheckpointWeights : public reference::WeightSource {
public:
  explicit CheckpointWeights(const driver::Compilation &compiled) {
    for (const driver::LoadedModel &model : compiled.models)
      files[model.name] = &*model.weights;
  }

  const uint16_t *find(const std::string &model, const std::string &name, std::vector<int64_t> &shape) override {
    const TensorView *tensor = files.at(model)->find(name);
    if (!tensor || tensor->dtype != DType::BF16)
      return nullptr;
    shape = tensor->shape;
    if (reinterpret_cast<uintptr_t>(tensor->data) % alignof(uint16_t) == 0)
      return reinterpret_cast<const uint16_t *>(tensor->data);
    // The format does not promise alignment.
    std::vector<uint16_t> &copy = copies.emplace_back(tensor->size / 2);
    std::memcpy(copy.data(), tensor->data, tensor->size);
    return copy.data();
  }

private:
  std::map<std::string, const SafetensorsFile *> files;
  std::vector<std::vector<uint16_t>> copies;
};

} // namespace

static reference::Options optionsFor(const RunCommand &command, const RunInputs &inputs) {
  reference::Options options;
  if (command.maxTicks > 0)
    options.maxTicks = command.maxTicks;
  options.shufflePages = command.shufflePages;
  options.replayEpsilon = command.replayEpsilon;
  options.keepLogits = !command.logitsFile.empty() || command.repeat > 1;
  options.hashKv = command.kvHash || command.repeat > 1;
  options.oracleDrafts = inputs.drafts;
  for (const RunInputs::Corruption &c : inputs.corruptions)
    options.corruptions.push_back({c.tick, c.request, c.field, c.value});
  options.progress = [](const reference::Progress &p) {
    showProgress(fmt::format("reference executor: tick {}, {} rows, {} of {} requests done", p.ticks, p.rows,
                             p.finished, p.requests));
  };
  return options;
}

static runtime::RunOutcome outcomeOf(reference::RunResult &&result) {
  runtime::RunOutcome out;
  for (reference::RequestResult &r : result.requests) {
    out.counts.push_back({r.passes, r.rows});
    std::vector<float> &logits = out.logits.emplace_back();
    for (const std::vector<float> &row : r.logits)
      logits.insert(logits.end(), row.begin(), row.end());
  }
  out.requests = result.trace.requests;
  out.trace = std::move(result.trace);
  out.metrics = std::move(result.metrics);
  out.ticks = result.ticks;
  out.passes = result.passes;
  out.rows = result.rows;
  return out;
}

/// Whether the files of weights are as they were when they were opened.
static bool weightsStayed(const driver::Compilation &compiled, Diagnostics &diags) {
  for (const driver::LoadedModel &model : compiled.models)
    if (auto changed = model.weights->changed()) {
      driver::reportCheckpoint(diags, *changed);
      return false;
    }
  return true;
}

std::optional<RunReport> runOnReference(const RunCommand &command, const driver::Compilation &compiled,
                                        const RunInputs &inputs, Diagnostics &diags, const Trace *replay) {
  std::vector<reference::RequestInput> requests;
  for (const Request &r : inputs.requests)
    requests.push_back({r.id, r.tokens, r.maxNewTokens, *r.eos, r.priority});
  reference::Options options = optionsFor(command, inputs);
  options.replay = replay;
  CheckpointWeights weights(compiled);
  std::optional<runtime::RunOutcome> first;
  for (unsigned i = 1; i <= command.repeat; ++i) {
    auto start = std::chrono::steady_clock::now();
    reference::RunResult result = reference::run(compiled.module, weights, requests, options);
    clearProgress();
    // Results of weights that were other ones in between are none.
    if (!weightsStayed(compiled, diags))
      return std::nullopt;
    if (!result.error.empty()) {
      diags.report(Diag::ExecutorError, {}, result.error);
      return std::nullopt;
    }
    if (i == 1)
      reportReplay(result.mismatches, result.replayDifference, "the reference", diags);
    runtime::RunOutcome outcome = outcomeOf(std::move(result));
    outcome.kernelMs = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    if (!first)
      first = std::move(outcome);
    else if (!checkRepeat(*first, outcome, i, diags))
      break;
  }
  return reportOf(std::move(*first), "reference");
}

} // namespace megalith::tool
