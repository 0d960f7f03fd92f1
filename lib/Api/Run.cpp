//===- Run.cpp - requests run to their ends -------------------------------===//
#include "Schedule.h"
#include "State.h"
#include "megalith/Reference/Executor.h"
#include "megalith/Requests/HostEvents.h"
#include "megalith/Requests/Requests.h"
#include "megalith/Text/Text.h"
#include "megalith/Tools.h"
#include "runtime/HostRange.h"
#include <algorithm>
#include <unordered_set>

namespace megalith {

using namespace api;

bool tools::isSchedule(std::string_view text) {
  return parseSchedule(llvm::StringRef(text.data(), text.size())).has_value();
}

/// Why there is no such run; empty: there is.
static std::string whyNot(const Kernel::State &kernel, size_t requests, const RunOptions &options) {
  if (requests > MaxRequests)
    return fmt::format("it takes at most {} requests, found {}", MaxRequests, requests);
  std::string why;
#define NUMBER(Type, Name, Snake, Default, Least, Most, Text)                                                          \
  if (why.empty())                                                                                                     \
    why = outside<Type>(#Name, options.Name, Least, Most);
#include "megalith/RunOptions.def"
  if (!why.empty())
    return why;
  if (!options.replay.empty() && options.repeat > 1)
    return "a replay runs once";
  if (kernel.device != Device::Reference && !options.replay.empty() && options.logits)
    return "of the replays, only that of the reference executor gives logits";
  if (kernel.device == Device::Reference && (options.control != Control::Resident || options.ticksPerLaunch))
    return "the reference executor launches no kernel: it has no `control` but resident, and no `ticksPerLaunch`";
  if (kernel.device != Device::Cuda && options.control == Control::Graph)
    return "`control` is graph, and only a GPU has CUDA graphs";
  if (options.schedule.empty())
    return "";
  if (!kernel.cpu || !kernel.checked)
    return "`schedule` needs a kernel on the CPU executor with `check`";
  return parseSchedule(options.schedule)
             ? ""
             : fmt::format("`schedule` is `{}`, expected {}", options.schedule, tools::scheduleForm);
}

/// The requests as executors take them: one without `eos` has the checkpoint's. Reports those that can never run.
std::vector<Request> api::checkedRequests(const Program::State &program, std::vector<Request> requests,
                                          Diagnostics &diags) {
  std::unordered_set<std::string> ids;
  for (size_t i = 0; i < requests.size(); ++i) {
    Request &request = requests[i];
    if (!request.eos)
      request.eos = program.model()->checked.eos; // the kernel has one
    const SourceLoc loc = placeOf(request, program.sources);
    const std::string id = text::printable(request.id.text, 120);
    checkRequest(program, request, diags);
    if (!diags.hasErrors())
      if (const std::string problem = whyNotThen(requests, i); !problem.empty())
        diags.report(Diag::RequestTime, loc, fmt::format("request `{}`: {}", id, problem));
    if (!ids.insert(request.id.text).second)
      diags.report(Diag::RequestDuplicateId, loc, fmt::format("id `{}` is already that of another request", id));
  }
  return requests;
}

namespace {

/// The trace that a run goes through again.
struct Replay {
  Trace trace;
  bool cutOff = false; ///< it ends in the middle, and so does the run

  /// A replay may have as many ticks as its trace, and no more where requests were still open at the trace's end.
  int64_t mostTicks() const {
    const int64_t ticks = trace.ticks.empty() ? 0 : trace.ticks.back().tick + 1;
    return cutOff || ticks > reference::Options().maxTicks ? std::min<int64_t>(cutOff ? ticks : ticks + 1, INT32_MAX)
                                                           : 0;
  }
};

/// The kernel is a run's.
class Busy {
public:
  explicit Busy(Kernel::State &kernel) : kernel(kernel), was(kernel.busy.exchange(true)) {}
  ~Busy() { kernel.busy = was; }
  explicit operator bool() const { return !was; }

private:
  Kernel::State &kernel;
  const bool was;
};

} // namespace

/// The options' trace, if there is one, and what it says of the run's end. nullopt after an error, too.
static std::optional<Replay> readReplay(RunOptions &options, Diagnostics &diags) {
  if (options.replay.empty())
    return std::nullopt;
  auto read = parseTrace(options.replay, options.replayName.empty() ? "<trace>" : options.replayName);
  options.replay.clear();
  if (!read) {
    driver::reportCheckpoint(diags, read.error);
    return std::nullopt;
  }
  Replay replay{std::move(*read.value)};
  if (options.maxTicks == 0) {
    replay.cutOff =
        !replay.trace.ticks.empty() && std::any_of(replay.trace.requests.begin(), replay.trace.requests.end(),
                                                   [](const TraceRequest &r) { return r.finish == "limit"; });
    options.maxTicks = replay.mostTicks();
  }
  return replay;
}

/// The values of each request's gauges in the order of the ticks.
static void addGauges(const Trace &trace, std::vector<RequestResult> &requests) {
  for (const TraceTick &tick : trace.ticks)
    for (const TraceSlot &slot : tick.slots)
      if (static_cast<size_t>(slot.request) < requests.size()) // a kernel is never believed
        for (const auto &[name, value] : slot.gauges)
          requests[slot.request].gauges[name].push_back(value);
}

/// On a GPU milliseconds, elsewhere ticks.
static RequestTimes timesOf(const runtime::RunOutcome::Times &times, bool gpu) {
  const auto at = [&](const runtime::RunOutcome::Moment &moment) {
    return gpu ? double(moment.nanoseconds) * 1e-6 : double(moment.tick);
  };
  RequestTimes out;
  if (times.arrived)
    out.arrived = at(*times.arrived);
  if (times.admitted)
    out.admitted = at(*times.admitted);
  for (const runtime::RunOutcome::Moment &append : times.appends)
    out.appends.push_back({at(append), static_cast<int32_t>(append.tokens)});
  return out;
}

/// Why a request ended with a fault or was cut off, at its line of the file of requests and at the pipeline's. nullopt
/// for one that ended well.
static std::optional<Error> explain(const RequestResult &r, const Request &request, int64_t ticks, bool cutOff,
                                    SourceFiles &sources) {
  const SourceLoc loc = placeOf(request, sources);
  Diagnostics diags(sources);
  if (r.finish == "fault") {
    reportFaulted(r.id.text, r.fault, loc, diags);
    if (!r.place.empty())
      diags.note(placeOf(r.place, sources), fmt::format("in state `{}`, here{}{}", r.faultState,
                                                        r.faultDetail.empty() ? "" : ": ", r.faultDetail));
  } else if (r.finish == "limit" && !cutOff) {
    diags.report(Diag::RequestLimit, loc, r.id.text, r.tokens.size(), ticks);
  } else {
    return std::nullopt;
  }
  return diags.messages().list.front();
}

/// What the host program gets of `outcome`, but for the messages.
static Results resultsOf(const Kernel::State &kernel, const RunOptions &options, runtime::RunOutcome &outcome) {
  const runtime::HostRange range(runtime::HostStep::Results);
  Results out;
  if (options.trace && !outcome.interrupted) {
    outcome.trace.synthetic = options.synthetic;
    outcome.trace.accepted = kernel.program->compiled.accepted();
    if (!options.kvHash) // `repeat` and schedules take the hashes only to compare them
      for (TraceTick &tick : outcome.trace.ticks)
        for (TracePass &pass : tick.passes)
          pass.kvHash.clear();
    out.trace = formatTrace(outcome.trace);
  }
  for (size_t i = 0; i < outcome.requests.size(); ++i) {
    TraceRequest &ended = outcome.requests[i];
    RequestResult &r =
        out.requests.emplace_back(RequestResult{std::move(ended), std::move(ended.id), std::move(ended.tokens)});
    if (i < outcome.times.size())
      r.times = timesOf(outcome.times[i], kernel.device == Device::Cuda);
    if (options.logits && i < outcome.logits.size())
      r.logits = std::move(outcome.logits[i]);
  }
  if (options.gauges)
    addGauges(outcome.trace, out.requests);
  out.metrics = std::move(outcome.metrics);
  out.ticks = outcome.ticks;
  out.passes = outcome.passes;
  out.rows = outcome.rows;
  out.launches = kernel.device == Device::Reference ? 0 : outcome.launches;
  out.calls = outcome.calls;
  out.milliseconds = outcome.kernelMs;
  out.interrupted = outcome.interrupted;
  for (const runtime::RunOutcome::TickRecord &tick : outcome.tickRecords)
    out.tickTimes.push_back(double(tick.begin - std::min(tick.begin, outcome.begin)) * 1e-6);
  return out;
}

Expected<Results> Kernel::run(std::vector<Request> given, const RunOptions &how) const {
  return guarded<Results>([&]() -> Expected<Results> {
    if (Diagnostics refused(state->program->sources); !hasRequests(*state->program, refused))
      return refused.messages();
    if (const std::string why = whyNot(*state, given.size(), how); !why.empty())
      return failure(Diag::RunOptions, why);
    SourceFiles &sources = state->program->sources;
    Diagnostics diags(sources);
    RunOptions options = how;
    const std::optional<Replay> replay = readReplay(options, diags);
    const std::vector<Request> requests = checkedRequests(*state->program, std::move(given), diags);
    if (diags.hasErrors())
      return diags.messages();
    const Busy busy(*state);
    if (!busy)
      return failure(Diag::KernelBusy);
    std::optional<runtime::RunOutcome> outcome =
        execute(*state, options, requests, replay ? &replay->trace : nullptr, diags);
    if (!outcome)
      return diags.messages();
    Results out = resultsOf(*state, options, *outcome);
    out.messages = diags.messages();
    for (size_t i = 0; i < out.requests.size(); ++i)
      out.requests[i].error = explain(out.requests[i], requests[i], out.ticks, replay && replay->cutOff, sources);
    return out;
  });
}

std::string faultText(std::string_view code) {
#define FAULT(Enum, Code, Name, Text, Numbers)                                                                         \
  if (code == Name)                                                                                                    \
    return Text;
#include "megalith/Contract/Faults.def"
  return "a code that this version does not know";
}

void api::reportFaulted(const std::string &id, const std::string &fault, SourceLoc loc, Diagnostics &diags) {
  diags.report(Diag::RequestFaulted, loc, id, fault, faultText(fault));
}

} // namespace megalith
