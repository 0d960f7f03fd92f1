//===- Explorer.h - one kernel under many schedules -----------------------===//
#ifndef MEGALITH_RUNTIME_CPU_EXPLORER_H
#define MEGALITH_RUNTIME_CPU_EXPLORER_H

#include "runtime/cpu/LiveScript.h"

namespace megalith::cpu {

struct ExploreOptions {
  uint64_t schedules = 100; ///< beside the first one, which is round robin
  uint64_t firstSeed = 1;   ///< schedule number i has seed firstSeed + i - 1
  /// Most runs to look for a shorter prefix of a schedule that failed.
  unsigned shrinkRuns = 16;
  /// Test hook: in each schedule one CTA stands still from some step on, and the run must
  /// end by the kernel's own watchdog.
  bool stall = false;
  /// The requests come while the kernel runs, from a host that plays this.
  std::optional<LiveScript> live = {};
  /// What the first schedule has to give; null: anything. Of a live session what a plain run gives.
  const runtime::RunOutcome *expected = nullptr;
  /// After each run: how many schedules are done, and calls into the host so far.
  std::function<void(uint64_t done, uint64_t steps)> progress;
};

/// A schedule that failed.
struct ExploreFailure {
  Schedule schedule;      ///< with the shortest failing prefix that was found
  uint64_t decisions = 0; ///< that the whole schedule makes
  unsigned shrinkRuns = 0;
  /// A name of Findings.def; `differs`: the results differ from those of the first
  std::string kind;
  std::optional<Finding> finding; ///< when `kind` is one of Findings.def
  std::string difference;         ///< of `differs`
  std::optional<runtime::RunOutcome::Stop> stop;
};

struct ExploreResult {
  runtime::RunOutcome first; ///< of the round-robin schedule, when that one did not fail
  std::optional<ExploreFailure> failure;
  uint64_t runs = 0, steps = 0; ///< of schedules; calls of threads into the host
  uint64_t seed = 0;            ///< of the schedule that failed
  uint64_t launches = 0;        ///< of live sessions
};

/// The schedule of seed `seed`: 0 is round robin, odd ones have priorities with change
/// points, even ones are uniformly random.
Schedule scheduleOf(uint64_t seed);
/// The form that --schedule reads: `round-robin`, `random:7`, `pct:7:3@1200`.
std::string nameOf(const Schedule &schedule);

/// Runs the requests under one schedule after the other, checked, until one fails.
runtime::Outcome<ExploreResult> explore(CpuEngine &engine, const std::vector<Request> &requests,
                                        runtime::RunOptions runOptions, const ExploreOptions &options);

} // namespace megalith::cpu
#endif
