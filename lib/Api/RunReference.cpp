//===- RunReference.cpp - runs on the reference executor ------------------===//
#include "ReferenceWeights.h"
#include "Replay.h"
#include "State.h"
#include <chrono>
#include <map>

namespace megalith::api {

namespace {

/// The checkpoints of all models.
class CheckpointWeights : public reference::WeightSource {
public:
  explicit CheckpointWeights(const driver::Compilation &compiled) {
    for (const driver::LoadedModel &model : compiled.models)
      models[model.name] = &model;
  }

  const uint16_t *find(const std::string &model, const std::string &name, std::vector<int64_t> &shape) override {
    const TensorView *tensor = models.at(model)->weights->find(name);
    if (!tensor || !isWeightType(tensor->dtype))
      return nullptr;
    shape = tensor->shape;
    // The format does not promise alignment.
    if (!isConverted(tensor->dtype) && reinterpret_cast<uintptr_t>(tensor->data) % alignof(uint16_t) == 0)
      return reinterpret_cast<const uint16_t *>(tensor->data);
    std::vector<uint16_t> &copy = copies[tensor];
    if (copy.empty()) { // several weights may be views of it
      copy.resize(tensor->elements());
      toBf16(tensor->dtype, tensor->data, tensor->elements(), copy.data());
    }
    return copy.data();
  }

  const reference::CodedMatrix *findCodes(const std::string &model, const std::string &name) override {
    const driver::LoadedModel &of = *models.at(model);
    const auto [place, isNew] = codes.try_emplace({model, name});
    if (!isNew)
      return &place->second;
    for (const CheckedWeight &weight : of.checked.weights)
      for (int64_t layer = 0;
           !weight.part && weight.scheme.quantised() && layer < (weight.perLayer ? of.checked.layers : 1); ++layer)
        if (weight.tensorName(layer) == name) {
          std::string error; // there is none: checkWeights has found it
          const auto found = of.checked.quantisation->find(*of.weights, weight.moduleName(layer), weight.stored[0],
                                                           weight.stored[1], error);
          place->second = codedMatrix(found.value());
          return &place->second;
        }
    codes.erase(place);
    return nullptr;
  }

private:
  static reference::CodedMatrix codedMatrix(const QuantisedTensor &of) {
    reference::CodedMatrix out{of.scheme,           of.rows,       of.columns, {}, of.readScales(),
                               of.readZeroPoints(), of.readOrder()};
    out.codes.resize(of.rows * of.columns);
    for (int64_t row = 0; row < of.rows; ++row)
      of.readCodes(row, out.codes.data() + row * of.columns);
    return out;
  }

  std::map<std::string, const driver::LoadedModel *> models;
  std::map<const TensorView *, std::vector<uint16_t>> copies;
  std::map<std::pair<std::string, std::string>, reference::CodedMatrix> codes;
};

} // namespace

std::unique_ptr<reference::WeightSource> checkpointWeights(const driver::Compilation &compiled) {
  return std::make_unique<CheckpointWeights>(compiled);
}

static reference::Options optionsFor(const RunOptions &options) {
  reference::Options out;
  if (options.maxTicks > 0)
    out.maxTicks = options.maxTicks;
  out.seed = options.seed;
  out.shufflePages = options.shufflePages;
  out.replayEpsilon = options.replayEpsilon;
  out.replayError = options.replayError;
  out.keepLogits = options.logits || options.repeat > 1;
  out.hashKv = options.kvHash || options.repeat > 1;
  out.oracleDrafts = options.drafts;
  out.corruptions = options.corruptions;
  out.interrupted = options.interrupted;
  out.progress = [&options](const reference::Progress &p) {
    tell(options.progress, fmt::format("reference executor: tick {}, {} rows, {} of {} requests done", p.ticks, p.rows,
                                       p.finished, p.requests));
  };
  return out;
}

static runtime::RunOutcome outcomeOf(reference::RunResult &&result) {
  runtime::RunOutcome out;
  for (reference::RequestResult &r : result.requests) {
    runtime::RunOutcome::Times &times = out.times.emplace_back();
    if (r.arrivedTick >= 0)
      times.arrived = {r.arrivedTick, 0};
    if (r.firstTick >= 0)
      times.admitted = {r.firstTick, 1};
    for (const reference::RequestResult::Append &append : r.appends)
      times.append({append.tick, append.tokens});
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
  out.interrupted = result.interrupted;
  return out;
}

bool weightsStayed(const driver::Compilation &compiled, Diagnostics &diags) {
  for (const driver::LoadedModel &model : compiled.models)
    if (auto changed = model.weights->changed()) {
      driver::reportCheckpoint(diags, *changed);
      return false;
    }
  return true;
}

std::optional<runtime::RunOutcome> executeOnReference(const Program::State &program, const RunOptions &how,
                                                      const std::vector<Request> &requests, const Trace *replay,
                                                      Diagnostics &diags) {
  reference::Options options = optionsFor(how);
  options.replay = replay;
  CheckpointWeights weights(program.compiled);
  std::optional<runtime::RunOutcome> first;
  for (unsigned i = 1; i <= how.repeat; ++i) {
    auto start = std::chrono::steady_clock::now();
    reference::RunResult result = reference::run(program.compiled.module, weights, requests, options);
    tell(how.progress, "");
    // Results of weights that were other ones in between are none.
    if (!weightsStayed(program.compiled, diags))
      return std::nullopt;
    if (!result.error.empty()) {
      diags.report(Diag::ExecutorError, {}, result.error);
      return std::nullopt;
    }
    if (i == 1 && !result.interrupted)
      reportReplay(result.mismatches, result.replayDifference, "the reference", diags);
    runtime::RunOutcome outcome = outcomeOf(std::move(result));
    outcome.kernelMs = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    const bool isLast = outcome.interrupted;
    if (!first)
      first = std::move(outcome);
    else if (!isLast && !checkRepeat(*first, outcome, i, diags))
      break;
    if (isLast)
      break;
  }
  return first;
}

} // namespace megalith::api
