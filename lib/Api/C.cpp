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

// What is given out: the C++ value, and structs of C that point into it.

const char *shown(const std::string &text) { return text.c_str(); }
template <class T> T shown(T number) { return number; }

template <class T> void show(const RequestEnd &in, T &out) {
#define END(Type, Name, Snake, Text) out.Snake = shown(in.Name);
#include "megalith/RequestEnd.def"
}

/// As lists of C have it. The names and lists in it stay where they are.
std::vector<megalith_count> countsOf(const auto &counts) {
  std::vector<megalith_count> out;
  for (const auto &[name, count] : counts)
    out.push_back({name.c_str(), static_cast<int64_t>(count)});
  return out;
}

struct HeldLogprobs {
  std::vector<megalith_logprob> list;
  std::vector<std::vector<megalith_choice>> likeliest;

  explicit HeldLogprobs(const std::vector<LiveLogprob> &in) {
    for (const LiveLogprob &each : in) {
      std::vector<megalith_choice> &choices = likeliest.emplace_back();
      for (const LiveLogprob::Choice &choice : each.likeliest)
        choices.push_back({choice.token, choice.logprob});
      list.push_back({each.logprob.value_or(0), each.rank, choices.data(), choices.size()});
    }
  }
};

struct HeldEvent : megalith_live_event {
  const LiveEvent event;
  const HeldLogprobs ofTokens, ofPrompt;
  megalith_live_end ended = {};

  explicit HeldEvent(LiveEvent given)
      : event(std::move(given)), ofTokens(event.logprobs), ofPrompt(event.promptLogprobs) {
    static_cast<megalith_live_event &>(*this) = {event.request,
                                                 event.user,
                                                 event.tokens.data(),
                                                 event.tokens.size(),
                                                 ofTokens.list.data(),
                                                 ofTokens.list.size(),
                                                 ofPrompt.list.data(),
                                                 ofPrompt.list.size(),
                                                 event.state.c_str(),
                                                 event.end ? &ended : nullptr,
                                                 event.at,
                                                 event.deviceNs,
                                                 event.found};
    if (!event.end)
      return;
    show(*event.end, ended);
#define LIVE_END(Type, Name, Snake, Text) ended.Snake = event.end->Name;
#include "megalith/RequestEnd.def"
  }
};

struct HeldResult {
  std::vector<megalith_append> appends;
  std::vector<megalith_gauge> gauges;
  std::optional<megalith_errors> error;

  /// The list of C may be moved after this; what it points to stays.
  megalith_result of(const RequestResult &r) {
    for (const RequestTimes::Append &append : r.times.appends)
      appends.push_back({append.at, append.tokens});
    for (const auto &[name, values] : r.gauges)
      gauges.push_back({name.c_str(), values.data(), values.size()});
    if (r.error)
      error = {{{*r.error}}, r.error->text};
    megalith_result out = {};
    show(r, out);
    out.id = r.id.text.c_str();
    out.tokens = r.tokens.data();
    out.num_tokens = r.tokens.size();
    out.error = error ? &*error : nullptr;
    out.arrived = r.times.arrived;
    out.admitted = r.times.admitted;
    out.appends = appends.data();
    out.num_appends = appends.size();
    out.logits = r.logits.data();
    out.num_logits = r.logits.size();
    out.gauges = gauges.data();
    out.num_gauges = gauges.size();
    return out;
  }
};

struct HeldResults : megalith_results {
  const Results results;
  std::vector<HeldResult> held;
  std::vector<megalith_result> heldRequests;
  const std::vector<megalith_count> heldMetrics;

  explicit HeldResults(Results given)
      : results(std::move(given)), held(results.requests.size()), heldMetrics(countsOf(results.metrics)) {
    for (size_t i = 0; i < held.size(); ++i)
      heldRequests.push_back(held[i].of(results.requests[i]));
    const HostCalls &calls = results.calls;
    static_cast<megalith_results &>(*this) = {
        heldRequests.data(),
        heldRequests.size(),
        heldMetrics.data(),
        heldMetrics.size(),
        results.ticks,
        results.passes,
        results.rows,
        results.launches,
        {calls.launches, calls.graphLaunches, calls.synchronizations, calls.copies, calls.bytes},
        results.milliseconds,
        results.interrupted,
        results.tickTimes.data(),
        results.tickTimes.size(),
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
  const LiveStats stats;
  std::vector<megalith_live_slot> heldSlots;
  std::vector<megalith_live_pool> heldPools;
  const std::vector<megalith_count> heldEnded, heldMetrics;
  std::vector<megalith_increments> heldIncrements;

  explicit HeldStats(LiveStats given)
      : stats(std::move(given)), heldEnded(countsOf(stats.ended)), heldMetrics(countsOf(stats.metrics)) {
    for (const LiveStats::Slot &s : stats.slots)
      heldSlots.push_back(
          {s.request.has_value(), s.request.value_or(0), s.state.c_str(), s.promptTokens, s.generated, s.kvTokens});
    for (const LiveStats::Pool &p : stats.pools)
      heldPools.push_back({p.model.c_str(), p.pages, p.used, p.cached});
    for (const auto &[name, times] : stats.increments)
      heldIncrements.push_back({name.c_str(), times.data(), times.size()});
    static_cast<megalith_stats &>(*this) = {};
#define STAT(Type, Name, Snake, Text) Snake = stats.Name;
#include "megalith/LiveStats.def"
    slots = heldSlots.data();
    num_slots = heldSlots.size();
    pools = heldPools.data();
    num_pools = heldPools.size();
    ended = heldEnded.data();
    num_ended = heldEnded.size();
    metrics = heldMetrics.data();
    num_metrics = heldMetrics.size();
    increments = heldIncrements.data();
    num_increments = heldIncrements.size();
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

/// The messages with the names that options have in C and in Python.
Messages withOurNames(Messages messages) {
  static const std::pair<const char *, const char *> names[] = {
#define NUMBER(Type, Name, Snake, Default, Least, Most, Text) {"`" #Name "`", "`" #Snake "`"},
#include "megalith/LiveOptions.def"
#define NUMBER(Type, Name, Snake, Default, Least, Most, Text) {"`" #Name "`", "`" #Snake "`"},
#include "megalith/RunOptions.def"
  };
  for (Error &error : messages.list)
    if (error.kind == "run-options" || error.kind == "live-options" || error.kind == "live-lines")
      for (std::string *text : {&error.message, &error.text})
        for (const auto &[name, ours] : names)
          if (const size_t at = text->find(name); at != std::string::npos)
            text->replace(at, std::strlen(name), ours);
  return messages;
}

megalith_code failed(const Messages &messages, megalith_errors **errors) {
  give(withOurNames(messages), errors);
  return codeOf(messages);
}

/// An options struct of this version, out of one of this or an earlier one, over the defaults that `out` has. False: it
/// is of a later one, or its size was never set.
template <class T> bool read(const T *given, T &out) {
  if (!given)
    return true;
  if (given->size < sizeof(size_t) || given->size > sizeof(T))
    return false;
  std::memcpy(&out, given, given->size);
  return true;
}

std::string textOf(const char *text) { return text ? text : ""; }

void put(std::string &out, const char *in) { out = textOf(in); }
template <class T, class U> void put(T &out, U in) { out = static_cast<T>(in); }

std::function<void(const std::string &)> progressOf(void (*progress)(void *, const char *), void *user) {
  if (!progress)
    return nullptr;
  return [progress, user](const std::string &what) { progress(user, what.c_str()); };
}

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

/// The rows of a table, of which each begins with its length; nullopt: a length is none, or goes beyond the end.
template <class Number> std::optional<InputValue> rowsOf(const Number *values, size_t count) {
  std::vector<std::vector<Number>> rows;
  for (size_t at = 0; at < count;) {
    const size_t left = count - at - 1;
    if (!(values[at] >= 0 && values[at] <= static_cast<Number>(left)) ||
        static_cast<Number>(static_cast<size_t>(values[at])) != values[at])
      return std::nullopt;
    const size_t end = at + 1 + static_cast<size_t>(values[at]);
    rows.emplace_back(values + at + 1, values + end);
    at = end;
  }
  return rows;
}

/// `declared`: what the pipeline says of it; null when it has no such input. nullopt: it is no table.
std::optional<InputValue> valueOf(const megalith_input &in, const Input *declared) {
  if (declared && declared->rows) {
    if (in.floats)
      return rowsOf(in.floats, in.count);
    return rowsOf(in.integers, in.count);
  }
  if (!declared || declared->capacity || in.count != 1) {
    if (in.floats)
      return InputValue(std::vector<float>(in.floats, in.floats + in.count));
    return InputValue(std::vector<int32_t>(in.integers, in.integers + in.count));
  }
  if (in.floats)
    return double(*in.floats);
  if (declared->type == "bool" && (*in.integers == 0 || *in.integers == 1))
    return *in.integers != 0;
  return int64_t(*in.integers);
}

/// The request's inputs; false when one has no name, values in both lists, none where it counts some, or lengths of
/// rows that go beyond its values.
bool inputsOf(const megalith_request &in, const std::vector<Input> &declared, Request &out) {
  if (in.num_inputs && !in.inputs)
    return false;
  for (size_t i = 0; i < in.num_inputs; ++i) {
    const megalith_input &input = in.inputs[i];
    if (!input.name || (input.integers && input.floats) || (input.count && !input.integers && !input.floats))
      return false;
    const auto found = llvm::find_if(declared, [&](const Input &d) { return d.name == input.name; });
    auto value = valueOf(input, found == declared.end() ? nullptr : &*found);
    if (!value)
      return false;
    out.inputs[input.name] = std::move(*value);
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

/// False: a list is not there, or a token has two biases.
bool editsOf(const megalith_edits &in, Sampling &out) {
  if ((in.num_bias && (!in.bias_tokens || !in.bias_values)) || (in.num_banned && !in.banned) ||
      (in.num_allowed && !in.allowed))
    return false;
  for (size_t i = 0; i < in.num_bias; ++i)
    if (!out.bias.emplace(in.bias_tokens[i], in.bias_values[i]).second)
      return false;
  out.banned.assign(in.banned, in.banned + in.num_banned);
  if (in.allowed)
    out.allowed.emplace(in.allowed, in.allowed + in.num_allowed);
  out.format = textOf(in.format);
  return true;
}

/// Whether there is an id is not asked.
bool requestOf(const megalith_request &in, Request &out) {
  if ((in.num_tokens && !in.tokens) || (in.num_eos && !in.eos) || !stopsOf(in, out) || !editsOf(in.edits, out.sampling))
    return false;
  out.id = RequestId(textOf(in.id));
  out.tokens.assign(in.tokens, in.tokens + in.num_tokens);
#define REQUEST(Type, Name, Snake, Default, Text) out.Name = in.Snake;
#define SAMPLING(Type, Name, Snake, Default, Text) out.sampling.Name = in.sampling.Snake;
#define EDIT(Type, Name, Snake, Default, Text) out.sampling.Name = in.edits.Snake;
#include "megalith/Request.def"
  if (in.eos || in.no_eos)
    out.eos.emplace(in.eos, in.eos + (in.eos ? in.num_eos : 0));
  if (in.sampling.has_seed)
    out.sampling.seed = in.sampling.seed;
  out.arrives = {in.arrives.tick, in.arrives.ms};
  if (in.is_cancelled)
    out.cancelled = When{in.cancelled.tick, in.cancelled.ms};
  return true;
}

/// Requests of a run: one after the other, each as large as the first one says.
bool requestsOf(const megalith_request *given, size_t count, const std::vector<Input> &declared,
                std::vector<Request> &out) {
  if (count && !given)
    return false;
  for (size_t i = 0; i < count; ++i) {
    const auto *each =
        reinterpret_cast<const megalith_request *>(reinterpret_cast<const char *>(given) + i * given->size);
    megalith_request request = MEGALITH_REQUEST_INIT;
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
    megalith_program_options given = MEGALITH_PROGRAM_OPTIONS_INIT;
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

megalith_code megalith_program_set_token_bytes(megalith_program *program, const char *bytes, const size_t *lengths,
                                               size_t num_tokens, megalith_errors **errors) {
  return call(__func__, errors, [&] {
    if (!program || (num_tokens && !lengths))
      return MEGALITH_BAD_ARGUMENT;
    std::vector<std::string> all;
    for (size_t token = 0; token < num_tokens; ++token) {
      if (lengths[token] && !bytes)
        return MEGALITH_BAD_ARGUMENT;
      all.emplace_back(lengths[token] ? bytes : "", lengths[token]);
      if (bytes)
        bytes += lengths[token];
    }
    const Status set = program->program.setTokenBytes(std::move(all));
    return set ? MEGALITH_OK : failed(set.errors(), errors);
  });
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
    megalith_kernel_options given = MEGALITH_KERNEL_OPTIONS_INIT;
    if (!out)
      return MEGALITH_BAD_ARGUMENT;
    *out = nullptr;
    if (!program || !read(options, given) || given.device < MEGALITH_AUTO || given.device > MEGALITH_REFERENCE)
      return MEGALITH_BAD_ARGUMENT;
    KernelOptions how;
    constexpr Device devices[] = {Device::Auto, Device::Cuda, Device::Cpu, Device::Reference};
    how.device = devices[given.device];
    how.ordinal = given.ordinal;
    how.wholeKernel = given.whole_kernel != 0;
    how.check = given.check != 0;
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
    megalith_run_options given = MEGALITH_RUN_OPTIONS_INIT;
    if (!out)
      return MEGALITH_BAD_ARGUMENT;
    *out = nullptr;
    std::vector<Request> asked;
    if (!kernel || !read(options, given) || given.control < MEGALITH_RESIDENT || given.control > MEGALITH_GRAPH ||
        !requestsOf(requests, num_requests, inputsOf(kernel->kernel), asked))
      return MEGALITH_BAD_ARGUMENT;
    RunOptions how;
#define NUMBER(Type, Name, Snake, Default, Least, Most, Text) put(how.Name, given.Snake);
#define FLAG(Name, Snake, Text) put(how.Name, given.Snake);
#define TEXT(Name, Snake, Text) put(how.Name, given.Snake);
#include "megalith/RunOptions.def"
    constexpr Control controls[] = {Control::Resident, Control::Host, Control::Graph};
    how.control = controls[given.control];
    if (given.has_shuffle_pages)
      how.shufflePages = given.shuffle_pages;
    how.progress = progressOf(given.progress, given.user);
    if (given.interrupted)
      how.interrupted = [&given] { return given.interrupted(given.user) != 0; };
    auto results = kernel->kernel.run(std::move(asked), how);
    if (!results)
      return failed(results.errors(), errors);
    give(results->messages, errors);
    *out = new HeldResults(std::move(*results));
    return MEGALITH_OK;
  });
}

megalith_code megalith_call(const megalith_kernel *kernel, const megalith_buffer *buffers, size_t num_buffers,
                            void *stream, int per_stage, megalith_errors **errors) {
  return call(__func__, errors, [&] {
    constexpr ElementType types[] = {ElementType::I32,  ElementType::I64, ElementType::F32,
                                     ElementType::Bool, ElementType::F16, ElementType::BF16};
    if (!kernel || (num_buffers > 0 && !buffers))
      return MEGALITH_BAD_ARGUMENT;
    std::vector<CallBuffer> given;
    for (size_t i = 0; i < num_buffers; ++i) {
      const megalith_buffer &buffer = buffers[i];
      if (!buffer.name || !buffer.shape || buffer.element < MEGALITH_I32 || buffer.element > MEGALITH_BF16)
        return MEGALITH_BAD_ARGUMENT;
      given.push_back({buffer.name, buffer.data, types[buffer.element], buffer.shape, buffer.dimensions});
    }
    auto called = kernel->kernel.call(given.data(), given.size(), {.stream = stream, .perStage = per_stage != 0});
    return called ? MEGALITH_OK : failed(called.errors(), errors);
  });
}

megalith_code megalith_check(const megalith_kernel *kernel, void *stream, megalith_errors **errors) {
  return call(__func__, errors, [&] {
    if (!kernel)
      return MEGALITH_BAD_ARGUMENT;
    auto checked = kernel->kernel.check(stream);
    return checked ? MEGALITH_OK : failed(checked.errors(), errors);
  });
}

void megalith_results_free(const megalith_results *results) { delete static_cast<const HeldResults *>(results); }

static megalith_code statusOf(const Status &status, megalith_errors **errors) {
  return status ? MEGALITH_OK : failed(status.errors(), errors);
}

megalith_code megalith_live_open(const megalith_kernel *kernel, const megalith_live_options *options,
                                 megalith_live **out, megalith_errors **errors) {
  return call(__func__, errors, [&] {
    megalith_live_options given = MEGALITH_LIVE_OPTIONS_INIT;
    if (!out)
      return MEGALITH_BAD_ARGUMENT;
    *out = nullptr;
    if (!kernel || !read(options, given))
      return MEGALITH_BAD_ARGUMENT;
    LiveOptions how;
#define NUMBER(Type, Name, Snake, Default, Least, Most, Text) put(how.Name, given.Snake);
#include "megalith/LiveOptions.def"
    how.progress = progressOf(given.progress, given.user);
    auto session = LiveSession::open(kernel->kernel, how);
    if (!session)
      return failed(session.errors(), errors);
    *out = new megalith_live{std::move(*session), inputsOf(kernel->kernel)};
    return MEGALITH_OK;
  });
}

void megalith_live_free(megalith_live *session) { delete session; }

megalith_code megalith_live_submit(megalith_live *session, const megalith_request *request, uint64_t user,
                                   int64_t milliseconds, int logprobs, int prompt_logprobs, uint64_t *number,
                                   megalith_errors **errors) {
  return call(__func__, errors, [&] {
    megalith_request given = MEGALITH_REQUEST_INIT;
    Request asked;
    if (!session || !request || milliseconds < 0 || !read(request, given) || !requestOf(given, asked) ||
        !inputsOf(given, session->inputs, asked))
      return MEGALITH_BAD_ARGUMENT;
    auto submitted = session->session.submit(std::move(asked), user, std::chrono::milliseconds(milliseconds), logprobs,
                                             prompt_logprobs);
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
