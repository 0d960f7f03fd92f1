#include "runtime/cpu/Explorer.h"
#include <map>

namespace megalith::cpu {

using runtime::Outcome;
using runtime::RunOutcome;

Schedule scheduleOf(uint64_t seed) {
  Schedule schedule;
  schedule.seed = seed;
  if (seed == 0)
    return schedule;
  schedule.kind = seed % 2 ? Schedule::Pct : Schedule::Random;
  schedule.changePoints = 1 + seed / 2 % 5;
  return schedule;
}

std::string nameOf(const Schedule &schedule) {
  std::string text = "round-robin";
  if (schedule.kind == Schedule::Random)
    text = "random:" + std::to_string(schedule.seed);
  if (schedule.kind == Schedule::Pct)
    text = "pct:" + std::to_string(schedule.seed) + ":" + std::to_string(schedule.changePoints);
  return schedule.prefix == UINT64_MAX ? text : text + "@" + std::to_string(schedule.prefix);
}

namespace {

class Explorer {
public:
  Explorer(CpuEngine &engine, const std::vector<Request> &requests, const runtime::RunOptions &runOptions,
           const ExploreOptions &options)
      : engine(engine), requests(requests), runOptions(runOptions), options(options) {}

  Outcome<ExploreResult> run() {
    for (uint64_t i = 0; i <= options.schedules; ++i) {
      const uint64_t seed = i == 0 ? 0 : options.firstSeed + i - 1;
      if (!attempt(scheduleOf(seed)))
        return *error;
      ++result.runs;
      if (options.progress)
        options.progress(result.runs, result.steps);
      if (failure) {
        result.seed = seed;
        result.failure = std::move(failure);
        if (!shrink())
          return *error;
        return std::move(result);
      }
    }
    return std::move(result);
  }

private:
  CpuEngine &engine;
  const std::vector<Request> &requests;
  const runtime::RunOptions &runOptions;
  const ExploreOptions &options;
  ExploreResult result;
  bool haveFirst = false;
  std::map<size_t, std::vector<std::vector<float>>> promptLogits; ///< of a live session, by request
  std::optional<ExploreFailure> failure;                          ///< of the last attempt
  std::optional<runtime::RuntimeError> error;

  /// One run; false when it could not be made at all.
  bool attempt(const Schedule &schedule) {
    failure.reset();
    LaunchOptions launch;
    launch.schedule = schedule;
    launch.check = true;
    if (options.stall) {
      launch.stalledCta = unsigned(schedule.seed % engine.manifest().ctas);
      launch.stallAt = 200 + schedule.seed * 977 % 20000;
    }
    if (options.live)
      return attemptLive(schedule, launch);
    auto outcome = engine.run(requests, runOptions, launch);
    if (!outcome) {
      error = outcome.error;
      return false;
    }
    result.steps += outcome->launch.steps;
    judge(schedule, *outcome);
    return true;
  }

  /// The same of a live session.
  bool attemptLive(const Schedule &schedule, const LaunchOptions &launch) {
    if (!haveFirst) { // what all have to give
      auto plain = engine.run(requests, runOptions, {});
      if (!plain) {
        error = plain.error;
        return false;
      }
      result.first = std::move(plain->run);
      haveFirst = true;
    }
    const auto play = playLive(engine, requests, runOptions, *options.live, launch);
    if (!play) {
      error = play.error;
      return false;
    }
    result.steps += play->launch.steps;
    result.launches += static_cast<uint64_t>(play->launches);
    ExploreFailure f;
    f.schedule = schedule;
    f.decisions = play->launch.decisions;
    if (play->launch.finding) {
      f.finding = play->launch.finding;
      f.kind = findingName(f.finding->kind);
    } else if (f.difference = whyNotLike(*play, options.expected ? *options.expected : result.first, requests);
               !f.difference.empty()) {
      f.kind = "differs";
    } else {
      for (size_t i = 0; i < play->requests.size(); ++i) // of one that was taken back, some may be lacking
        if (const LiveOutcome &is = play->requests[i]; is.finish != "cancelled")
          if (const auto &first = promptLogits.try_emplace(i, is.promptLogits).first->second;
              first != is.promptLogits) {
            f.kind = "differs";
            f.difference = "the logits of the prompt of request `" + requests[i].id.text + "` are others than before";
          }
    }
    if (!f.kind.empty())
      failure = std::move(f);
    return true;
  }

  void judge(const Schedule &schedule, CpuOutcome &outcome) {
    ExploreFailure f;
    f.schedule = schedule;
    f.decisions = outcome.launch.decisions;
    f.stop = outcome.run.stop;
    if (outcome.launch.finding) {
      f.finding = std::move(outcome.launch.finding);
      f.kind = findingName(f.finding->kind);
    } else if (options.stall) {
      // It may have ended before the CTA was to stop: then it has to be like the others.
      if (outcome.run.stop)
        return;
      compare(f, std::move(outcome.run));
    } else if (outcome.run.stop) {
      f.kind = "stopped";
    } else {
      compare(f, std::move(outcome.run));
    }
    if (!f.kind.empty())
      failure = std::move(f);
  }

  /// With the first schedule's outcome, which is kept.
  void compare(ExploreFailure &f, RunOutcome &&outcome) {
    const RunOutcome *with = haveFirst ? &result.first : options.expected;
    f.difference = with ? runtime::differenceOf(*with, outcome) : "";
    if (!f.difference.empty())
      f.kind = "differs";
    if (haveFirst)
      return;
    result.first = std::move(outcome);
    haveFirst = true;
  }

  /// Looks for the shortest prefix of the failing schedule that still fails in the same
  /// way. Failing is not monotone in the length, so a bisection finds a short one, not
  /// always the shortest.
  bool shrink() {
    const ExploreFailure original = *result.failure;
    if (original.schedule.kind == Schedule::RoundRobin)
      return true;
    uint64_t low = 0, high = original.decisions;
    unsigned runs = 0;
    while (low < high && runs < options.shrinkRuns) {
      Schedule shorter = original.schedule;
      shorter.prefix = low + (high - low) / 2;
      if (!attempt(shorter))
        return false;
      ++runs;
      if (failure && failure->kind == original.kind) {
        high = shorter.prefix;
        result.failure = std::move(failure);
        result.failure->decisions = original.decisions;
      } else {
        low = shorter.prefix + 1;
      }
    }
    result.failure->shrinkRuns = runs;
    return true;
  }
};

} // namespace

Outcome<ExploreResult> explore(CpuEngine &engine, const std::vector<Request> &requests, runtime::RunOptions runOptions,
                               const ExploreOptions &options) {
  runOptions.trace = runOptions.kvHash = runOptions.logits = true;
  return Explorer(engine, requests, runOptions, options).run();
}

} // namespace megalith::cpu
