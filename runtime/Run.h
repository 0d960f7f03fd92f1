//===- Run.h - what a run of a kernel takes and gives ---------------------===//
#ifndef MEGALITH_RUNTIME_RUN_H
#define MEGALITH_RUNTIME_RUN_H

#include "megalith/HostLoop.h"
#include "megalith/Requests/HostEvents.h"
#include "megalith/Requests/Trace.h"
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace megalith::runtime {

/// Asked often, on any thread: whether the run shall end now. It makes no difference to what is run.
struct Interrupt {
  std::function<bool()> asked = nullptr;
  bool operator==(const Interrupt &) const { return true; }
};

struct RunOptions {
  int64_t maxTicks = 0;                 ///< 0 = no limit
  Control control = Control::Resident;  ///< of a CpuEngine: Resident or Host
  int64_t ticksPerLaunch = 0;           ///< a launch ends after so many, and the next one goes on; 0 = no limit
  uint32_t renewPasses = 1 << 24;       ///< of runs with several launches: after so many passes counts begin anew
  std::optional<uint64_t> shufflePages; ///< order of the free list (PageOrder.h)
  uint32_t seed = 0;                    ///< with each request's own it keys all random numbers
  bool trace = false;
  size_t traceBytes = 64 << 20;
  bool kvHash = false; ///< with trace: hash every row's K and V
  bool logits = false; ///< keep the row of logits after each generated token
  /// The result of each row in the order in which rows are fed, taken in place of the own one;
  /// where they end, the own ones count again. Keeps `rowLogits` and never `logits`; needs
  /// `trace`, which tells which rows have any.
  std::optional<std::vector<int32_t>> replay;
  double watchdogSeconds = 10;                    ///< 0 = off
  uint32_t delaySeed = 0;                         ///< random delays before waits
  std::vector<std::vector<int32_t>> oracleDrafts; ///< per request, instead of looking up; -1: nothing
  std::vector<Corruption> corruptions;
  std::optional<HostScript> host; ///< of a replay; else what the requests say
  bool realClock = false;         ///< milliseconds pass; else a tick is one
  /// K and V of the first so many positions of each prompt (but never of its last token) are in
  /// the pool already, whatever is there.
  int64_t kvInPlace = 0;
  int64_t tickRecords = 0; ///< room for so many; 0: none are kept
  int64_t stampTicks = 0;  ///< of a kernel with stamps: keep those of the last so many ticks
  Interrupt interrupt;
  bool operator==(const RunOptions &) const = default;
};

/// The table of a kernel that takes requests while it runs.
struct LiveTable {
  int entries = 0;        ///< requests that it has room for
  int64_t tokens = 0;     ///< of each: its prompt and its budget
  int64_t endWords = 0;   ///< of each: its EOS tokens and what else ends it
  int newsSlots = 0;      ///< room in the ring to the host, a power of two
  int64_t idleMs = -1;    ///< a launch ends when nothing was to do for so long; below 0: never
  int64_t logitLines = 0; ///< rows of logits that requests share
  int64_t editBytes = 0;  ///< room for what changes their rows of logits (Edits.h)
  bool operator==(const LiveTable &) const = default;
};

struct RunOutcome {
  std::vector<TraceRequest> requests; ///< what they generated, and how they ended
  /// When something happened to a request.
  struct Moment {
    int64_t tick;
    int64_t tokens;           ///< of an append
    uint64_t nanoseconds = 0; ///< since the run began; without meaning where no GPU ran it
  };
  struct Times {
    std::optional<Moment> admitted;     ///< the first time that it took a slot
    std::vector<Moment> appends;        ///< in order; those of one tick are one
    std::optional<Moment> arrived = {}; ///< where all requests are there at the start, that of the run
    /// Adds one.
    void append(const Moment &moment);
  };
  std::vector<Times> times;               ///< per request
  std::vector<std::vector<float>> logits; ///< per request [generated][vocab] when wanted
  /// With replay: of each row of `trace` in order, as many as had a given result; empty for
  /// rows that want none.
  std::vector<std::vector<float>> rowLogits;
  Trace trace;              ///< when wanted
  int64_t traceDropped = 0; ///< records that did not fit
  std::map<std::string, int64_t> metrics;
  int64_t ticks = 0, passes = 0, rows = 0;
  int64_t launches = 1; ///< of the kernel
  HostCalls calls;      ///< on a GPU
  uint64_t begin = 0;   ///< of the run, nanoseconds of the device's clock
  double kernelMs = 0;
  bool interrupted = false; ///< requests that had not ended are `limit`, and there is no trace
  /// Of each tick, and one more of the end; as many as there was room for.
  struct TickRecord {
    uint64_t begin;                                   ///< nanoseconds of the device's clock
    int64_t open, prompts, generated, kvTokens, rows; ///< as abi::TickRecord
  };
  std::vector<TickRecord> tickRecords;
  /// [stampTicks][CTAs][events of the manifest][begin, end], nanoseconds; tick t stands at
  /// t modulo stampTicks.
  std::vector<uint64_t> stamps;
  /// Set when the watchdog stopped the kernel: CTA, edge, tick, and what the edge is.
  struct Stop {
    int cta, edge, tick;
    std::string name, place;
  };
  std::optional<Stop> stop;
};

/// The first difference in ticks of admission and appends; empty when there is none.
std::string differenceOfTimes(const RunOutcome &a, const RunOutcome &b);

/// The first difference in tokens, ends, metrics, ticks of admission and appends, logits (bits), control trace or
/// hashes of K and V; empty when there is none.
std::string differenceOf(const RunOutcome &a, const RunOutcome &b);

} // namespace megalith::runtime
#endif
