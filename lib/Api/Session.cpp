//===- Session.cpp - requests on their way through a kernel ---------------===//
#include "RequestTable.h"
#include "Schedule.h"
#include "State.h"
#include "megalith/IR/Inputs.h"
#include "megalith/Reference/Executor.h"
#include "megalith/Requests/HostEvents.h"
#include "megalith/Requests/Requests.h"
#include "megalith/Text/Text.h"
#include "megalith/Tools.h"
#include "runtime/HostRange.h"
#include <algorithm>
#include <condition_variable>
#include <thread>

namespace megalith {

using namespace api;

bool tools::isSchedule(std::string_view text) {
  return parseSchedule(llvm::StringRef(text.data(), text.size())).has_value();
}

struct Session::State {
  State(std::shared_ptr<Kernel::State> kernel, const SessionOptions &options)
      : kernel(std::move(kernel)), options(options), table(options.capacity) {}

  std::shared_ptr<Kernel::State> kernel;
  SessionOptions options;
  std::optional<Trace> replay;
  bool cutOff = false; ///< with the replay's trace, which ends in the middle
  RequestTable table;
  /// Open: takes requests. Running: the kernel has them. Ended: `outcome`, or `messages` why there
  /// is none. Taken: results() has given them out.
  enum Stage { Open, Running, Ended, Taken } stage = Open;
  bool polled = false; ///< poll() has given out all

  std::thread worker;
  std::mutex mutex;
  std::condition_variable ended;
  bool workerDone = false;
  std::optional<runtime::RunOutcome> outcome;
  Messages messages;

  /// Runs the kernel, on whatever thread. `sources` is not changed meanwhile.
  void work(SourceFiles sources) {
    Diagnostics diags(sources);
    auto step = [&]() -> Status {
      outcome = execute(*kernel, options, table.requests(), replay ? &*replay : nullptr, diags);
      return Done();
    };
    if (Status status = guarded<Done>(step); !status) {
      outcome.reset();
      diags.adopt(status.errors());
    }
    messages = diags.messages();
    kernel->busy = false;
  }

  /// A replay may have as many ticks as its trace, and no more where requests were still open at the trace's end.
  void setEndOfReplay() {
    const int64_t ticks = replay->ticks.empty() ? 0 : replay->ticks.back().tick + 1;
    cutOff = ticks > 0 && std::any_of(replay->requests.begin(), replay->requests.end(),
                                      [](const TraceRequest &r) { return r.finish == "limit"; });
    if (cutOff || ticks > reference::Options().maxTicks)
      options.maxTicks = std::min<int64_t>(cutOff ? ticks : ticks + 1, INT32_MAX);
  }

  /// The worker, if there is one, is waited for.
  void finish() {
    if (worker.joinable())
      worker.join();
    if (stage == Running)
      stage = Ended;
  }

  /// Before a start. Empty: it may begin.
  Messages begin() {
    if (stage != Open)
      return failure(Diag::SessionState, "the session has run already; open another one on the kernel");
    if (kernel->busy.exchange(true))
      return failure(Diag::KernelBusy);
    stage = Running;
    return {};
  }
};

Session::Session(std::unique_ptr<State> state) : state(std::move(state)) {}
Session::Session(Session &&) noexcept = default;

Session &Session::operator=(Session &&other) noexcept {
  if (state)
    state->finish();
  state = std::move(other.state);
  return *this;
}

Session::~Session() {
  if (state)
    state->finish();
}

/// Why there is no such session; empty: there is.
static std::string whyNot(const Kernel::State &kernel, const SessionOptions &options) {
  if (options.capacity < 1 || options.capacity > MaxRequests)
    return fmt::format("`capacity` must be from 1 to {}, found {}", MaxRequests, options.capacity);
  if (options.repeat < 1)
    return "`repeat` must be at least 1";
  if (!options.replay.empty() && options.repeat > 1)
    return "a replay runs once";
  if (kernel.device != Device::Reference && !options.replay.empty() && options.logits)
    return "of the replays, only that of the reference executor gives logits";
  if (options.maxTicks < 0 || options.maxTicks > INT32_MAX)
    return fmt::format("`maxTicks` must be from 0 to {}, found {}", INT32_MAX, options.maxTicks);
  if (options.ticksPerLaunch < 0 || options.ticksPerLaunch > INT32_MAX)
    return fmt::format("`ticksPerLaunch` must be from 0 to {}, found {}", INT32_MAX, options.ticksPerLaunch);
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

Expected<Session> Session::open(const Kernel &kernel, const SessionOptions &options) {
  return guarded<Session>([&]() -> Expected<Session> {
    auto state = std::make_unique<State>(kernel.internals(), options);
    if (const std::string why = whyNot(*state->kernel, options); !why.empty())
      return failure(Diag::SessionOptions, why);
    if (!options.replay.empty()) {
      Diagnostics diags(state->kernel->program->sources);
      auto read = parseTrace(options.replay, options.replayName.empty() ? "<trace>" : options.replayName);
      if (!read) {
        driver::reportCheckpoint(diags, read.error);
        return diags.messages();
      }
      state->replay = std::move(*read.value);
      state->options.replay.clear();
      if (state->options.maxTicks == 0)
        state->setEndOfReplay();
    }
    return Session(std::move(state));
  });
}

Expected<size_t> Session::submit(Request request) {
  return guarded<size_t>([&]() -> Expected<size_t> {
    State &s = *state;
    if (s.stage != State::Open)
      return failure(Diag::SessionStarted);
    if (s.table.full())
      return failure(Diag::SessionFull, s.table.capacity());
    Program::State &program = *s.kernel->program;
    if (!request.eos)
      request.eos = program.model()->checked.eos; // the kernel has one
    Diagnostics diags(program.sources);
    checkRequest(program, request, diags);
    if (const std::vector<Request> &others = s.table.requests(); !others.empty() && !diags.hasErrors())
      if (const std::string problem = whyNotThen({others.back(), request}, 1); !problem.empty())
        diags.report(Diag::RequestTime, placeOf(request, program.sources),
                     fmt::format("request `{}`: {}", text::printable(request.id.text, 120), problem));
    if (s.table.has(request.id))
      diags.report(Diag::RequestDuplicateId, placeOf(request, program.sources),
                   fmt::format("id `{}` is already that of another request", text::printable(request.id.text, 120)));
    if (diags.hasErrors())
      return diags.messages();
    return s.table.add(std::move(request));
  });
}

const std::vector<Request> &Session::requests() const { return state->table.requests(); }
std::vector<Input> Session::inputs() const { return ir::inputsOf(state->kernel->program->compiled.module); }

Status Session::start() {
  return guarded<Done>([&]() -> Status {
    State &s = *state;
    if (Messages wrong = s.begin(); wrong.hasErrors())
      return wrong;
    try {
      s.worker = std::thread([&s, sources = s.kernel->program->sources]() mutable {
        s.work(std::move(sources));
        const std::lock_guard<std::mutex> lock(s.mutex);
        s.workerDone = true;
        s.ended.notify_all();
      });
    } catch (...) { // there is no thread: nothing has begun
      s.kernel->busy = false;
      s.stage = State::Open;
      throw;
    }
    return Done();
  });
}

Expected<std::vector<Update>> Session::poll(std::chrono::milliseconds patience) {
  using Updates = std::vector<Update>;
  return guarded<Updates>([&]() -> Expected<Updates> {
    State &s = *state;
    if (s.stage == State::Open)
      return failure(Diag::SessionState, "the session has not started; call `start`");
    if (s.stage == State::Running) {
      {
        std::unique_lock<std::mutex> lock(s.mutex);
        if (!s.ended.wait_for(lock, patience, [&] { return s.workerDone; }))
          return Updates();
      }
      s.finish();
    }
    if (s.stage == State::Ended && !s.outcome)
      return s.messages;
    Updates updates;
    if (!s.polled && s.outcome)
      for (size_t i = 0; i < s.outcome->requests.size(); ++i)
        updates.push_back({i, s.outcome->requests[i].tokens, true});
    s.polled = true;
    return updates;
  });
}

bool Session::done() const { return state->stage >= State::Ended && (state->polled || !state->outcome); }

Status Session::stop() {
  return guarded<Done>([&]() -> Status {
    State &s = *state;
    if (s.stage == State::Open)
      return failure(Diag::SessionState, "the session has not started; call `start`");
    s.finish();
    if (s.stage == State::Ended && !s.outcome)
      return s.messages;
    return Done();
  });
}

Expected<Results> Session::run() {
  return guarded<Results>([&]() -> Expected<Results> {
    State &s = *state;
    if (Messages wrong = s.begin(); wrong.hasErrors())
      return wrong;
    s.work(s.kernel->program->sources);
    s.finish();
    return results();
  });
}

/// The values of each request's gauges in the order of the ticks.
static void addGauges(const Trace &trace, std::vector<RequestResult> &requests) {
  for (const TraceTick &tick : trace.ticks)
    for (const TraceSlot &slot : tick.slots)
      if (static_cast<size_t>(slot.request) < requests.size()) // a kernel is never believed
        for (const auto &[name, value] : slot.gauges)
          requests[slot.request].gauges[name].push_back(value);
}

static RequestResult resultOf(TraceRequest &&r) {
  RequestResult out;
  out.id = std::move(r.id);
  out.tokens = std::move(r.tokens);
  out.finish = std::move(r.finish);
  out.state = std::move(r.state);
  out.fault = std::move(r.fault);
  out.faultState = std::move(r.faultState);
  out.place = std::move(r.place);
  out.faultDetail = std::move(r.faultDetail);
  return out;
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

Expected<Results> Session::results() {
  return guarded<Results>([&]() -> Expected<Results> {
    State &s = *state;
    if (s.stage == State::Taken)
      return failure(Diag::SessionState, "the results have been taken already");
    if (s.stage == State::Running) {
      const std::lock_guard<std::mutex> lock(s.mutex);
      if (!s.workerDone)
        return failure(Diag::SessionState, "the kernel still runs; call `stop`, or `poll` until `done`");
    }
    s.finish();
    if (s.stage == State::Open)
      return failure(Diag::SessionState, "the session has not started; call `start` or `run`");
    if (!s.outcome)
      return s.messages;
    const runtime::HostRange range(runtime::HostStep::Results);
    runtime::RunOutcome &outcome = *s.outcome;
    Results out;
    if (s.options.trace && !outcome.interrupted) {
      outcome.trace.synthetic = s.options.synthetic;
      outcome.trace.accepted = s.kernel->program->compiled.accepted();
      if (!s.options.kvHash) // `repeat` and schedules take the hashes only to compare them
        for (TraceTick &tick : outcome.trace.ticks)
          for (TracePass &pass : tick.passes)
            pass.kvHash.clear();
      out.trace = formatTrace(outcome.trace);
    }
    for (size_t i = 0; i < outcome.requests.size(); ++i) {
      RequestResult &r = out.requests.emplace_back(resultOf(std::move(outcome.requests[i])));
      r.passes = outcome.counts[i].passes;
      r.rows = outcome.counts[i].rows;
      if (i < outcome.times.size())
        r.times = timesOf(outcome.times[i], s.kernel->device == Device::Cuda);
      if (s.options.logits && i < outcome.logits.size())
        r.logits = std::move(outcome.logits[i]);
    }
    if (s.options.gauges)
      addGauges(outcome.trace, out.requests);
    out.metrics = std::move(outcome.metrics);
    out.ticks = outcome.ticks;
    out.passes = outcome.passes;
    out.rows = outcome.rows;
    out.launches = s.kernel->device == Device::Reference ? 0 : outcome.launches;
    out.calls = outcome.calls;
    out.milliseconds = outcome.kernelMs;
    out.interrupted = outcome.interrupted;
    for (const runtime::RunOutcome::TickRecord &tick : outcome.tickRecords)
      out.tickTimes.push_back(double(tick.begin - std::min(tick.begin, outcome.begin)) * 1e-6);
    out.messages = s.messages;
    s.outcome.reset();
    s.stage = State::Taken;
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

std::optional<Error> Session::explain(const Results &results, size_t request) const {
  if (request >= results.requests.size() || request >= requests().size())
    return std::nullopt;
  const RequestResult &r = results.requests[request];
  SourceFiles &sources = state->kernel->program->sources;
  const SourceLoc loc = placeOf(requests()[request], sources);
  Diagnostics diags(sources);
  if (r.finish == "fault") {
    reportFaulted(r.id.text, r.fault, loc, diags);
    if (!r.place.empty()) {
      diags.note(placeOf(r.place, sources), fmt::format("in state `{}`, here{}{}", r.faultState,
                                                        r.faultDetail.empty() ? "" : ": ", r.faultDetail));
    }
  } else if (r.finish == "limit" && !state->cutOff) {
    diags.report(Diag::RequestLimit, loc, r.id.text, r.tokens.size(), results.ticks);
  } else {
    return std::nullopt;
  }
  return diags.messages().list.front();
}

} // namespace megalith
