#include "Executors.h"
#include "megalith/Reference/Executor.h"
#include <chrono>
#include <cstring>

namespace megalith::tool {

namespace {

/// The checkpoints of all models.
class CheckpointWeights : public reference::WeightSource {
public:
  explicit CheckpointWeights(const driver::Compilation &compiled) {
    for (const driver::LoadedModel &model : compiled.models)
      files.push_back(&*model.weights);
  }

  const uint16_t *find(const std::string &name, std::vector<int64_t> &shape) override {
    for (const SafetensorsFile *file : files)
      if (const TensorView *tensor = file->find(name); tensor && tensor->dtype == DType::BF16) {
        shape = tensor->shape;
        if (reinterpret_cast<uintptr_t>(tensor->data) % alignof(uint16_t) == 0)
          return reinterpret_cast<const uint16_t *>(tensor->data);
        // The format does not promise alignment.
        std::vector<uint16_t> &copy = copies.emplace_back(tensor->size / 2);
        std::memcpy(copy.data(), tensor->data, tensor->size);
        return copy.data();
      }
    return nullptr;
  }

private:
  std::vector<const SafetensorsFile *> files;
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

static RunReport reportOf(reference::RunResult &&result) {
  RunReport report;
  report.device = "reference";
  for (reference::RequestResult &r : result.requests) {
    RequestReport out;
    out.tokens = std::move(r.tokens);
    out.finish = std::move(r.finish);
    out.fault = std::move(r.fault);
    out.passes = r.passes;
    out.rows = r.rows;
    for (const std::vector<float> &row : r.logits)
      out.logits.insert(out.logits.end(), row.begin(), row.end());
    report.requests.push_back(std::move(out));
  }
  report.trace = std::move(result.trace);
  report.metrics = std::move(result.metrics);
  report.ticks = result.ticks;
  report.passes = result.passes;
  report.rows = result.rows;
  return report;
}

/// The first mismatch of a replay, or the first difference of the traces.
static void reportReplay(const reference::RunResult &result, Diagnostics &diags) {
  if (!result.mismatches.empty()) {
    const reference::ReplayMismatch &m = result.mismatches.front();
    diags.report(Diag::ReplayDiffers, {},
                 m.row < 0 ? fmt::format("in tick {} the row tables differ", m.tick)
                           : fmt::format("in tick {} row {} has token {}, the reference {} (gap {:.3g} of the norm)",
                                         m.tick, m.row, m.expected, m.got, m.gap));
    if (!result.replayDifference.empty())
      diags.note(result.replayDifference);
    if (result.mismatches.size() > 1)
      diags.note(fmt::format("{} more rows differ", result.mismatches.size() - 1));
  } else if (!result.replayDifference.empty()) {
    diags.report(Diag::ReplayDiffers, {}, result.replayDifference);
  }
}

std::optional<RunReport> runOnReference(const RunCommand &command, const driver::Compilation &compiled,
                                        const RunInputs &inputs, Diagnostics &diags) {
  std::vector<reference::RequestInput> requests;
  for (const Request &r : inputs.requests)
    requests.push_back({r.id, r.tokens, r.maxNewTokens, *r.eos, r.priority});
  reference::Options options = optionsFor(command, inputs);
  Trace replay;
  if (!command.replayFile.empty()) {
    auto read = readTrace(command.replayFile);
    if (!read) {
      driver::reportCheckpoint(diags, read.error);
      return std::nullopt;
    }
    replay = std::move(*read.value);
    options.replay = &replay;
  }
  CheckpointWeights weights(compiled);
  std::optional<RunReport> first;
  for (unsigned i = 1; i <= command.repeat; ++i) {
    auto start = std::chrono::steady_clock::now();
    reference::RunResult result = reference::run(compiled.module, weights, requests, options);
    clearProgress();
    if (!result.error.empty()) {
      diags.report(Diag::ExecutorError, {}, result.error);
      return std::nullopt;
    }
    if (i == 1)
      reportReplay(result, diags);
    RunReport report = reportOf(std::move(result));
    report.runMs = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    if (!first)
      first = std::move(report);
    else if (!checkRepeat(*first, report, i, diags))
      return first;
  }
  return first;
}

} // namespace megalith::tool
