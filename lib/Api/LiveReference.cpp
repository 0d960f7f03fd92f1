//===- LiveReference.cpp - live sessions on the reference executor --------===//
#include "Live.h"
#include "LiveTrace.h"
#include "ReferenceWeights.h"
#include "State.h"
#include "megalith/Reference/Executor.h"
#include "megalith/Requests/HostEvents.h"
#include <utility>

namespace megalith::api {

namespace {

/// Ends a run whose weights are others than they were.
struct WeightsChanged {};

/// Between the queue and the run.
class ReferenceHost : public reference::LiveHost {
public:
  ReferenceHost(LiveQueue &queue, const Kernel::State &kernel, const LiveOptions &options, Diagnostics &diags,
                LiveTrace &record, std::function<void(Standing)> show)
      : queue(queue), kernel(kernel), options(options), diags(diags), record(record), show(std::move(show)) {}

  double now() override { return queue.now(); }

  News news(int64_t, int most) override {
    News out;
    bool comes = false;
    const auto add = [&](LiveNews &&news) {
      out.stop |= news.stopNow;
      comes |= !news.arrivals.empty();
      for (uint64_t number : news.cancels)
        out.orders.push_back({static_cast<int64_t>(number), nullptr});
      for (LiveArrival &arrival : news.arrivals) {
        out.orders.push_back({static_cast<int64_t>(arrival.number), asItArrives(arrival), arrival.logprobs >= 0,
                              arrival.promptLogprobs >= 0});
        if (arrival.logprobs >= 0)
          logprobs[arrival.number] = arrival.logprobs;
        if (arrival.promptLogprobs >= 0)
          prompts[arrival.number] =
              Prompt{arrival.request, arrival.promptLogprobs, std::vector<LiveLogprob>(arrival.request->tokens.size())};
        record.comes(arrival.number, out.orders.back().request);
      }
      running += news.arrivals.size();
    };
    const auto left = [&] { return static_cast<size_t>(most) - out.orders.size(); };
    add(std::exchange(held, {}));
    // One limit for both; first what makes room. Nobody is taken back in the tick in which he comes.
    add(queue.take(0, comes ? 0 : left(), {}));
    add(queue.take(room(left()), 0, {}));
    out.ms = static_cast<int64_t>(queue.now());
    return out;
  }

  std::optional<int64_t> wait(int64_t tick) override {
    tellProgress("");
    while (held.arrivals.empty()) {
      if (held.drained || held.stopNow)
        return std::nullopt;
      held = queue.take(room(MostHostEvents), MostHostEvents, std::chrono::hours(1)); // there is nothing to cancel
    }
    return tick;
  }

  void pause() override { held = queue.take(0, MostHostEvents, std::chrono::milliseconds(1)); }

  void tickEnds() override {
    if (!weightsStayed(kernel.program->compiled, diags))
      throw WeightsChanged();
  }

  bool traces() const override { return record.wanted(); }
  void traced(TraceTick tick) override { record.ticks(std::move(tick)); }

  void promptRow(int64_t number, int64_t token, std::span<const float> logits) override {
    const auto found = prompts.find(static_cast<uint64_t>(number));
    if (found == prompts.end()) // it is fed again
      return;
    Prompt &of = found->second;
    LiveLogprob &told = of.told[static_cast<size_t>(token)];
    of.rows += told.rank == 0;
    told = logprobOf(logits, of.request->tokens[static_cast<size_t>(token)], of.most);
  }

  void tell(int64_t number, std::span<const int32_t> tokens, std::span<const std::vector<float>> logits,
            const std::string &state, int64_t found, double at) override {
    record.tells(static_cast<uint64_t>(number), tokens, state);
    tellPrompt(static_cast<uint64_t>(number), at);
    std::vector<LiveLogprob> told;
    for (size_t i = 0; i < std::min(tokens.size(), logits.size()); ++i)
      told.push_back(logprobOf(logits[i], tokens[i], logprobs.at(static_cast<uint64_t>(number))));
    queue.tell(static_cast<uint64_t>(number), tokens, state, at, 0, std::move(told), found);
  }

  void end(int64_t number, RequestEnd end, double admitted, double at) override {
    --running;
    tellPrompt(static_cast<uint64_t>(number), at, true);
    logprobs.erase(static_cast<uint64_t>(number));
    LiveEnd out{std::move(end)};
    out.admitted = admitted;
    out.ended = at;
    record.ends(static_cast<uint64_t>(number), out);
    queue.end(static_cast<uint64_t>(number), std::move(out));
  }

  void stands(Standing standing) override {
    tellProgress(fmt::format("reference executor: tick {}, {} rows", standing.ticks, standing.rows));
    show(std::move(standing));
  }

private:
  LiveQueue &queue;
  const Kernel::State &kernel;
  const LiveOptions &options;
  Diagnostics &diags;
  LiveTrace &record;
  const std::function<void(Standing)> show;
  LiveNews held;                              ///< was taken, and the run does not know of it
  size_t running = 0;                         ///< requests that the run has
  std::unordered_map<uint64_t, int> logprobs; ///< of those that asked for them: likeliest tokens
  struct Prompt {
    std::shared_ptr<const Request> request;
    int most; ///< likeliest tokens
    std::vector<LiveLogprob> told;
    size_t rows = 0; ///< that are in `told`
  };
  std::unordered_map<uint64_t, Prompt> prompts; ///< of those that asked for logprobs of it, until they are told

  void tellPrompt(uint64_t number, double at, bool isEnd = false) {
    const auto found = prompts.find(number);
    if (found == prompts.end() || !(isEnd || found->second.rows + 1 >= found->second.told.size()))
      return;
    queue.tellPrompt(number, std::move(found->second.told), at);
    prompts.erase(found);
  }

  /// Of its deadline, which counts from its submission, that is left which is not over.
  std::shared_ptr<const Request> asItArrives(const LiveArrival &arrival) const {
    if (arrival.request->deadlineMs == 0)
      return arrival.request;
    auto late = std::make_shared<Request>(*arrival.request);
    late->deadlineMs = std::max(1, late->deadlineMs - static_cast<int32_t>(queue.now() - arrival.submitted));
    return late;
  }
  size_t room(size_t most) const { return std::min(most, options.places - running); }
  void tellProgress(const std::string &text) { api::tell(options.progress, text); }
};

class LiveReference : public LiveExecutor {
public:
  LiveReference(std::shared_ptr<Kernel::State> kernel, const LiveOptions &options)
      : kernel(std::move(kernel)), options(options), sources(this->kernel->program->sources), record(options.trace) {}

  void run(LiveQueue &queue) override {
    const driver::Compilation &compiled = kernel->program->compiled;
    Diagnostics diags(sources);
    ReferenceHost host(queue, *kernel, options, diags, record, [this](reference::LiveHost::Standing now) {
      const std::lock_guard<std::mutex> lock(mutex);
      standing = std::move(now);
    });
    const auto weights = checkpointWeights(compiled);
    reference::Options how;
    how.seed = options.seed;
    how.live = &host;
    how.maxTicks = INT64_MAX;
    try {
      const reference::RunResult result = reference::run(compiled.module, *weights, {}, how);
      if (!result.error.empty())
        diags.report(Diag::ExecutorError, {}, result.error);
    } catch (const WeightsChanged &) { // it was reported
    }
    tell(options.progress, "");
    if (diags.hasErrors())
      queue.fail(diags.messages());
  }

  void stats(LiveStats &stats) const override {
    const std::lock_guard<std::mutex> lock(mutex);
    for (const reference::LiveHost::Standing::Slot &slot : standing.slots) {
      LiveStats::Slot &out = stats.slots.emplace_back();
      if (slot.request)
        out = {static_cast<uint64_t>(*slot.request), slot.state, slot.promptTokens, slot.generated, slot.kvTokens};
    }
    for (const reference::LiveHost::Standing::Pool &pool : standing.pools)
      stats.pools.push_back({pool.model, pool.pages, pool.used, pool.cached});
    stats.ticks = standing.ticks;
    stats.passes = standing.passes;
    stats.rows = standing.rows;
    stats.metrics = standing.metrics;
    stats.increments = standing.increments;
  }

  Expected<SessionTrace> trace() const override {
    Trace trace = traceHead(*kernel, options);
    trace.metrics = standing.metrics;
    return record.texts(std::move(trace), kernel->program->compiled.module);
  }

private:
  const std::shared_ptr<Kernel::State> kernel;
  const LiveOptions options;
  SourceFiles sources;
  LiveTrace record;
  mutable std::mutex mutex;
  reference::LiveHost::Standing standing; ///< at the end of the last tick
};

} // namespace

std::unique_ptr<LiveExecutor> makeLiveReference(std::shared_ptr<Kernel::State> kernel, const LiveOptions &options) {
  return std::make_unique<LiveReference>(std::move(kernel), options);
}

} // namespace megalith::api
