//===- C.cpp - megalith/megalith.h over megalith/Api.h --------------------===//
#include "State.h"
#include "megalith/IR/Inputs.h"
#include "megalith/LiveSession.h"
#include "megalith/megalith.h"
#include <algorithm>
#include <cstring>
#include <new>

using namespace megalith;

struct megalith_errors {
  Messages messages;
  std::string text;
};

struct megalith_program {
  Program program;
  std::string name;
  Source source;
};

struct megalith_kernel {
  Kernel kernel;
};

struct megalith_live {
  LiveSession session;
  std::vector<Input> inputs;
};

namespace {

struct HeldEvent : megalith_live_event {
  LiveEvent event;
  megalith_live_end ended;

  explicit HeldEvent(LiveEvent given) : event(std::move(given)) {
    static_cast<megalith_live_event &>(*this) = {
        event.request, event.user, event.tokens.data(), event.tokens.size(), event.state.c_str(), nullptr, event.at};
    if (!event.end)
      return;
    const LiveEnd &e = *event.end;
    ended = {e.finish.c_str(), e.state.c_str(),      e.fault.c_str(), e.faultState.c_str(),
             e.place.c_str(),  e.promptTokens,       e.generated,     e.passes,
             e.rows,           e.submitted,          e.admitted,      e.firstToken,
             e.ended,          e.faultDetail.c_str()};
    end = &ended;
  }
};

struct HeldResults : megalith_results {
  const Results results;
  std::vector<megalith_errors> heldErrors;
  std::vector<megalith_result> heldRequests;

  explicit HeldResults(Results given) : results(std::move(given)) {
    heldErrors.reserve(results.requests.size()); // they stay where they are
    for (const RequestResult &r : results.requests) {
      if (r.error)
        heldErrors.push_back({{{*r.error}}, r.error->text});
      heldRequests.push_back({r.id.text.c_str(), r.tokens.data(), r.tokens.size(), r.finish.c_str(), r.state.c_str(),
                              r.fault.c_str(), r.place.c_str(), r.passes, r.rows, r.faultDetail.c_str(),
                              r.error ? &heldErrors.back() : nullptr});
    }
    static_cast<megalith_results &>(*this) = {heldRequests.data(),  heldRequests.size(), results.ticks,
                                              results.passes,       results.rows,        results.milliseconds,
                                              results.trace.c_str()};
  }
};

struct HeldTrace : megalith_live_trace {
  const SessionTrace texts;

  explicit HeldTrace(SessionTrace given) : texts(std::move(given)) {
    trace = texts.trace.c_str();
    requests = texts.requests.c_str();
  }
};

struct HeldStats : megalith_stats {
  LiveStats stats;
  std::vector<megalith_live_slot> heldSlots;
  std::vector<megalith_live_pool> heldPools;
  std::vector<megalith_live_count> heldEnded, heldMetrics;

  explicit HeldStats(LiveStats given) : stats(std::move(given)) {
    for (const LiveStats::Slot &s : stats.slots)
      heldSlots.push_back(
          {s.request.has_value(), s.request.value_or(0), s.state.c_str(), s.promptTokens, s.generated, s.kvTokens});
    for (const LiveStats::Pool &p : stats.pools)
      heldPools.push_back({p.model.c_str(), p.pages, p.used});
    for (const auto &[name, count] : stats.ended)
      heldEnded.push_back({name.c_str(), static_cast<int64_t>(count)});
    for (const auto &[name, count] : stats.metrics)
      heldMetrics.push_back({name.c_str(), count});
    static_cast<megalith_stats &>(*this) = {
        stats.waiting,         stats.running,    heldSlots.data(),  heldSlots.size(),   heldPools.data(),
        heldPools.size(),      stats.ticks,      stats.passes,      stats.rows,         stats.promptTokens,
        stats.generatedTokens, heldEnded.data(), heldEnded.size(),  heldMetrics.data(), heldMetrics.size(),
        stats.launches,        stats.launched,   stats.deviceBytes, stats.hostBytes};
  }
};

megalith_code codeOf(const Messages &messages) {
  const std::string kind = messages.first().kind;
  return kind == "out-of-memory" ? MEGALITH_NO_MEMORY : kind == "internal-error" ? MEGALITH_INTERNAL : MEGALITH_FAILED;
}

/// Gives `messages` out, if there are any and somebody wants them.
void give(const Messages &messages, megalith_errors **errors) {
  if (errors && !messages.list.empty())
    *errors = new megalith_errors{messages, messages.text()};
}

/// The frame of every call that can fail, `name`. Nothing leaves it: Api.h throws nothing, and what copying
/// throws is a lack of memory.
template <class Step> megalith_code call(const char *name, megalith_errors **errors, Step &&step) {
  if (errors)
    *errors = nullptr;
  try {
    const megalith_code code = step();
    if (code == MEGALITH_BAD_ARGUMENT)
      give(api::failure(Diag::ApiArgument, name), errors);
    return code;
  } catch (const std::bad_alloc &) {
    return MEGALITH_NO_MEMORY;
  } catch (...) {
    return MEGALITH_INTERNAL;
  }
}

megalith_code failed(const Messages &messages, megalith_errors **errors) {
  give(messages, errors);
  return codeOf(messages);
}

/// An options struct of this version, out of one of this or an earlier one. False: it is of a later
/// one, or its size was never set.
template <class T> bool read(const T *given, T &out) {
  out = {};
  if (!given)
    return true;
  if (given->size < sizeof(size_t) || given->size > sizeof(T))
    return false;
  std::memcpy(&out, given, given->size);
  return true;
}

std::string textOf(const char *text) { return text ? text : ""; }

/// Pairs of names and values; false when one has no value.
bool pairsOf(const megalith_pair *pairs, size_t count, std::vector<std::pair<std::string, std::string>> &out) {
  if (count && !pairs)
    return false;
  for (size_t i = 0; i < count; ++i) {
    if (!pairs[i].value)
      return false;
    out.push_back({textOf(pairs[i].name), pairs[i].value});
  }
  return true;
}

bool textsOf(const char *const *texts, size_t count, std::vector<std::string> &out) {
  if (count && !texts)
    return false;
  for (size_t i = 0; i < count; ++i) {
    if (!texts[i])
      return false;
    out.push_back(texts[i]);
  }
  return true;
}

bool programOptions(const megalith_program_options &in, ProgramOptions &out) {
  if (!in.file)
    return false;
  out.file = in.file;
  std::vector<std::pair<std::string, std::string>> texts;
  if (!pairsOf(in.models, in.num_models, out.models) || !pairsOf(in.params, in.num_params, out.params) ||
      !textsOf(in.plan, in.num_plan, out.plan) || !textsOf(in.accept, in.num_accept, out.accept) ||
      !pairsOf(in.texts, in.num_texts, texts))
    return false;
  out.texts.insert(texts.begin(), texts.end());
  if (in.text)
    out.texts[out.file] = in.text;
  out.profile = textOf(in.profile);
  out.weights = !in.without_weights;
  return true;
}

/// `declared`: what the pipeline says of it; null when it has no such input.
InputValue valueOf(const megalith_input &in, const Input *declared) {
  if (!declared || declared->capacity || in.count != 1) {
    if (in.floats)
      return std::vector<float>(in.floats, in.floats + in.count);
    return std::vector<int32_t>(in.integers, in.integers + in.count);
  }
  if (in.floats)
    return double(*in.floats);
  if (declared->type == "bool" && (*in.integers == 0 || *in.integers == 1))
    return *in.integers != 0;
  return int64_t(*in.integers);
}

/// The request's inputs; false when one has no name, values in both lists, or none where it counts some.
bool inputsOf(const megalith_request &in, const std::vector<Input> &declared, Request &out) {
  if (in.num_inputs && !in.inputs)
    return false;
  for (size_t i = 0; i < in.num_inputs; ++i) {
    const megalith_input &input = in.inputs[i];
    if (!input.name || (input.integers && input.floats) || (input.count && !input.integers && !input.floats))
      return false;
    const auto found = llvm::find_if(declared, [&](const Input &d) { return d.name == input.name; });
    out.inputs[input.name] = valueOf(input, found == declared.end() ? nullptr : &*found);
  }
  return true;
}

/// The request's stop sequences; false when there is no list of them, or none of their tokens.
bool stopsOf(const megalith_request &in, Request &out) {
  if (in.num_stop && !in.stop_lengths)
    return false;
  const int32_t *tokens = in.stop;
  for (size_t i = 0; i < in.num_stop; tokens += in.stop_lengths[i++])
    if (in.stop_lengths[i] && !tokens)
      return false;
    else
      out.stop.emplace_back(tokens, tokens + in.stop_lengths[i]);
  return true;
}

/// Whether there is an id is not asked.
bool requestOf(const megalith_request &in, Request &out) {
  if ((in.num_tokens && !in.tokens) || (in.num_eos && !in.eos) || !stopsOf(in, out))
    return false;
  out.id = RequestId(textOf(in.id));
  out.tokens.assign(in.tokens, in.tokens + in.num_tokens);
  out.maxNewTokens = in.max_new_tokens;
  if (in.eos || in.no_eos)
    out.eos.emplace(in.eos, in.eos + (in.eos ? in.num_eos : 0));
  out.priority = in.priority;
  out.sampling.temperature = in.sampling.temperature;
  out.sampling.topK = in.sampling.top_k;
  out.sampling.topP = in.sampling.top_p == 0 ? 1 : in.sampling.top_p;
  out.sampling.minP = in.sampling.min_p;
  if (in.sampling.has_seed)
    out.sampling.seed = in.sampling.seed;
  out.arrives = {in.arrives.tick, in.arrives.ms};
  if (in.is_cancelled)
    out.cancelled = When{in.cancelled.tick, in.cancelled.ms};
  out.deadlineMs = in.deadline_ms;
  return true;
}

/// Requests of a run: one behind the other, each as large as the first one says.
bool requestsOf(const megalith_request *given, size_t count, const std::vector<Input> &declared,
                std::vector<Request> &out) {
  if (count && !given)
    return false;
  for (size_t i = 0; i < count; ++i) {
    const auto *each =
        reinterpret_cast<const megalith_request *>(reinterpret_cast<const char *>(given) + i * given->size);
    megalith_request request;
    if (!read(each, request) || each->size != given->size || !request.id || !requestOf(request, out.emplace_back()) ||
        !inputsOf(request, declared, out.back()))
      return false;
  }
  return true;
}

std::vector<Input> inputsOf(const Kernel &kernel) { return ir::inputsOf(kernel.internals()->program->compiled.module); }

} // namespace

extern "C" {

const char *megalith_version(void) { return MEGALITH_VERSION; }

size_t megalith_errors_count(const megalith_errors *errors) { return errors ? errors->messages.list.size() : 0; }

megalith_code megalith_errors_get(const megalith_errors *errors, size_t index, megalith_error *out) {
  if (!out || index >= megalith_errors_count(errors))
    return MEGALITH_BAD_ARGUMENT;
  const Error &e = errors->messages.list[index];
  *out = {e.warning, e.kind.c_str(), e.message.c_str(), e.file.c_str(), e.line,
          e.column,  e.length,       e.notes.size(),    e.text.c_str()};
  return MEGALITH_OK;
}

megalith_code megalith_errors_note(const megalith_errors *errors, size_t index, size_t note, megalith_note *out) {
  if (!out || index >= megalith_errors_count(errors) || note >= errors->messages.list[index].notes.size())
    return MEGALITH_BAD_ARGUMENT;
  const Note &n = errors->messages.list[index].notes[note];
  *out = {n.message.c_str(), n.file.c_str(), n.line, n.column};
  return MEGALITH_OK;
}

const char *megalith_errors_text(const megalith_errors *errors) { return errors ? errors->text.c_str() : ""; }
void megalith_errors_free(megalith_errors *errors) { delete errors; }

megalith_code megalith_program_compile(const megalith_program_options *options, megalith_program **out,
                                       megalith_errors **errors) {
  return call(__func__, errors, [&] {
    megalith_program_options given;
    ProgramOptions how;
    if (!out)
      return MEGALITH_BAD_ARGUMENT;
    *out = nullptr;
    if (!read(options, given) || !programOptions(given, how))
      return MEGALITH_BAD_ARGUMENT;
    auto program = Program::compile(how);
    if (!program)
      return failed(program.errors(), errors);
    std::string name = program->name();
    give(program->messages(), errors);
    *out = new megalith_program{std::move(*program), std::move(name), {}};
    return MEGALITH_OK;
  });
}

void megalith_program_free(megalith_program *program) { delete program; }
const char *megalith_program_name(megalith_program *program) { return program ? program->name.c_str() : ""; }
int64_t megalith_program_vocabulary(const megalith_program *program) {
  return program ? program->program.vocabulary() : 0;
}

megalith_code megalith_program_source(megalith_program *program, megalith_source *out, megalith_errors **errors) {
  return call(__func__, errors, [&] {
    if (!program || !out)
      return MEGALITH_BAD_ARGUMENT;
    if (program->source.cuda.empty()) {
      auto source = program->program.source();
      if (!source)
        return failed(source.errors(), errors);
      program->source = std::move(*source);
    }
    *out = {program->source.cuda.c_str(), program->source.manifest.c_str(), program->source.plan.c_str()};
    return MEGALITH_OK;
  });
}

megalith_code megalith_kernel_load(const megalith_program *program, const megalith_kernel_options *options,
                                   megalith_kernel **out, megalith_errors **errors) {
  return call(__func__, errors, [&] {
    megalith_kernel_options given;
    if (!out)
      return MEGALITH_BAD_ARGUMENT;
    *out = nullptr;
    if (!program || !read(options, given) || given.device < MEGALITH_AUTO || given.device > MEGALITH_REFERENCE)
      return MEGALITH_BAD_ARGUMENT;
    KernelOptions how;
    constexpr Device devices[] = {Device::Auto, Device::Cuda, Device::Cpu, Device::Reference};
    how.device = devices[given.device];
    how.ordinal = given.ordinal;
    auto kernel = Kernel::load(program->program, how);
    if (!kernel)
      return failed(kernel.errors(), errors);
    give(kernel->messages(), errors);
    *out = new megalith_kernel{std::move(*kernel)};
    return MEGALITH_OK;
  });
}

void megalith_kernel_free(megalith_kernel *kernel) { delete kernel; }

megalith_device megalith_kernel_device(const megalith_kernel *kernel) {
  if (!kernel)
    return MEGALITH_AUTO;
  const Device device = kernel->kernel.device();
  return device == Device::Cuda ? MEGALITH_CUDA : device == Device::Cpu ? MEGALITH_CPU : MEGALITH_REFERENCE;
}

int megalith_kernel_cache_hit(const megalith_kernel *kernel) {
  return kernel && kernel->kernel.cacheHit().value_or(false);
}

megalith_code megalith_run(const megalith_kernel *kernel, const megalith_request *requests, size_t num_requests,
                           const megalith_run_options *options, const megalith_results **out,
                           megalith_errors **errors) {
  return call(__func__, errors, [&] {
    megalith_run_options given;
    if (!out)
      return MEGALITH_BAD_ARGUMENT;
    *out = nullptr;
    std::vector<Request> asked;
    if (!kernel || !read(options, given) || given.control < MEGALITH_RESIDENT || given.control > MEGALITH_GRAPH ||
        !requestsOf(requests, num_requests, inputsOf(kernel->kernel), asked))
      return MEGALITH_BAD_ARGUMENT;
    RunOptions how;
    how.maxTicks = given.max_ticks;
    if (given.watchdog_seconds != 0)
      how.watchdogSeconds = std::max(0.0, given.watchdog_seconds);
    how.trace = given.trace != 0;
    constexpr Control controls[] = {Control::Resident, Control::Host, Control::Graph};
    how.control = controls[given.control];
    how.ticksPerLaunch = given.ticks_per_launch;
    how.seed = given.seed;
    auto results = kernel->kernel.run(std::move(asked), how);
    if (!results)
      return failed(results.errors(), errors);
    give(results->messages, errors);
    *out = new HeldResults(std::move(*results));
    return MEGALITH_OK;
  });
}

void megalith_results_free(const megalith_results *results) { delete static_cast<const HeldResults *>(results); }

static megalith_code statusOf(const Status &status, megalith_errors **errors) {
  return status ? MEGALITH_OK : failed(status.errors(), errors);
}

megalith_code megalith_live_open(const megalith_kernel *kernel, const megalith_live_options *options,
                                 megalith_live **out, megalith_errors **errors) {
  return call(__func__, errors, [&] {
    megalith_live_options given;
    if (!out)
      return MEGALITH_BAD_ARGUMENT;
    *out = nullptr;
    if (!kernel || !read(options, given))
      return MEGALITH_BAD_ARGUMENT;
    LiveOptions how;
    if (given.places)
      how.places = given.places;
    if (given.queue)
      how.queue = given.queue;
    how.maxTokens = given.max_tokens;
    if (given.max_ends)
      how.maxEnds = given.max_ends;
    if (given.ring)
      how.ring = given.ring;
    how.seed = given.seed;
    if (given.watchdog_seconds != 0)
      how.watchdogSeconds = std::max(0.0, given.watchdog_seconds);
    if (given.idle_ms)
      how.idleMs = given.idle_ms;
    how.trace = given.trace;
    auto session = LiveSession::open(kernel->kernel, how);
    if (!session)
      return failed(session.errors(), errors);
    *out = new megalith_live{std::move(*session), inputsOf(kernel->kernel)};
    return MEGALITH_OK;
  });
}

void megalith_live_free(megalith_live *session) { delete session; }

megalith_code megalith_live_submit(megalith_live *session, const megalith_request *request, uint64_t user,
                                   int64_t milliseconds, uint64_t *number, megalith_errors **errors) {
  return call(__func__, errors, [&] {
    megalith_request given;
    Request asked;
    if (!session || !request || milliseconds < 0 || !read(request, given) || !requestOf(given, asked) ||
        !inputsOf(given, session->inputs, asked))
      return MEGALITH_BAD_ARGUMENT;
    auto submitted = session->session.submit(std::move(asked), user, std::chrono::milliseconds(milliseconds));
    if (!submitted)
      return failed(submitted.errors(), errors);
    if (number)
      *number = *submitted;
    return MEGALITH_OK;
  });
}

megalith_code megalith_live_next(megalith_live *session, int64_t milliseconds, const megalith_live_event **out,
                                 megalith_errors **errors) {
  return call(__func__, errors, [&] {
    if (!out)
      return MEGALITH_BAD_ARGUMENT;
    *out = nullptr;
    if (!session || milliseconds < 0)
      return MEGALITH_BAD_ARGUMENT;
    auto event = session->session.next(std::chrono::milliseconds(milliseconds));
    if (!event)
      return failed(event.errors(), errors);
    if (*event)
      *out = new HeldEvent(std::move(**event));
    return MEGALITH_OK;
  });
}

void megalith_live_event_free(const megalith_live_event *event) { delete static_cast<const HeldEvent *>(event); }

megalith_code megalith_live_cancel(megalith_live *session, uint64_t request, megalith_errors **errors) {
  return call(__func__, errors,
              [&] { return session ? statusOf(session->session.cancel(request), errors) : MEGALITH_BAD_ARGUMENT; });
}

megalith_code megalith_live_stop(megalith_live *session, int now, megalith_errors **errors) {
  return call(__func__, errors, [&] {
    const auto how = now ? LiveSession::Stop::Now : LiveSession::Stop::Drain;
    return session ? statusOf(session->session.stop(how), errors) : MEGALITH_BAD_ARGUMENT;
  });
}

int megalith_live_done(const megalith_live *session) { return !session || session->session.done(); }

megalith_code megalith_live_stats(const megalith_live *session, const megalith_stats **out, megalith_errors **errors) {
  return call(__func__, errors, [&] {
    if (!out)
      return MEGALITH_BAD_ARGUMENT;
    *out = nullptr;
    if (!session)
      return MEGALITH_BAD_ARGUMENT;
    *out = new HeldStats(session->session.stats());
    return MEGALITH_OK;
  });
}

void megalith_stats_free(const megalith_stats *stats) { delete static_cast<const HeldStats *>(stats); }

megalith_code megalith_live_take_trace(const megalith_live *session, const megalith_live_trace **out,
                                       megalith_errors **errors) {
  return call(__func__, errors, [&] {
    if (!out)
      return MEGALITH_BAD_ARGUMENT;
    *out = nullptr;
    if (!session)
      return MEGALITH_BAD_ARGUMENT;
    auto trace = session->session.trace();
    if (!trace)
      return failed(trace.errors(), errors);
    *out = new HeldTrace(std::move(*trace));
    return MEGALITH_OK;
  });
}

void megalith_live_trace_free(const megalith_live_trace *trace) { delete static_cast<const HeldTrace *>(trace); }

} // extern "C"
