//===- LiveSession.cpp - requests while a kernel runs ---------------------===//
#include "megalith/LiveSession.h"
#include "Live.h"
#include "State.h"
#include "megalith/Requests/Requests.h"
#include "runtime/Edits.h"
#include "runtime/Live.h"
#include <bit>
#include <thread>

namespace megalith {

using namespace api;

struct LiveSession::State {
  State(std::shared_ptr<Kernel::State> kernel, const LiveOptions &options, LiveStates states)
      : kernel(std::move(kernel)), options(options), sources(this->kernel->program->sources),
        whyNoPromptLogprobs(this->kernel->program->whyNoPromptLogprobs()),
        queue(options.queue, options.places, options.logitLines, std::move(states)) {}
  ~State() {
    queue.stop(Stop::Now);
    if (worker.joinable())
      worker.join();
  }

  const std::shared_ptr<Kernel::State> kernel;
  const LiveOptions options;
  const SourceFiles sources; ///< the program's may grow while the session is open
  const std::string whyNoPromptLogprobs;
  LiveQueue queue;
  std::unique_ptr<LiveExecutor> executor;
  std::thread worker;

  void work() {
    auto step = [&]() -> Status {
      executor->run(queue);
      return Done();
    };
    if (Status status = guarded<Done>(step); !status)
      queue.fail(status.errors());
    kernel->busy = false;
    queue.close();
  }

  LiveWanted wantedOf(const Request &request, int logprobs, int promptLogprobs) const {
    LiveWanted out = {logprobs, promptLogprobs};
    if (promptLogprobs >= 0)
      out.promptLines = runtime::promptLinesOf(request);
    if (logprobs >= 0 || promptLogprobs >= 0) // a range of its own
      out.lines = std::max<int64_t>(1, out.promptLines + request.maxNewTokens + executor->moreLines());
    return out;
  }

  /// Whether the request can be one of this session; reports why not.
  void check(Request &request, const LiveWanted &wanted, Diagnostics &diags) const {
    const SourceLoc loc = placeOf(request, diags.sources());
    const std::string id = text::printable(request.id.text, 120);
    if (request.arrives != When() || request.cancelled)
      diags.report(
          Diag::RequestTime, loc,
          fmt::format("request `{}` says when it {}; in a live session it arrives when it is submitted, and `cancel` "
                      "takes it back",
                      id, request.cancelled ? "is cancelled" : "arrives"));
    checkRequest(*kernel->program, request, diags);
    if (diags.hasErrors())
      return;
    if (const int64_t tokens = std::ssize(request.tokens) + request.maxNewTokens; tokens > options.maxTokens)
      diags.report(Diag::LiveTooLong, loc, id, tokens, options.maxTokens);
    if (const auto words = static_cast<int64_t>(runtime::endWordsOf(request)); words > options.maxEnds)
      diags.report(Diag::LiveEnds, loc, id, words, options.maxEnds);
    if (request.sampling.edits() && kernel->device != Device::Reference)
      if (const size_t bytes = runtime::EditImages::bytesOf(request, kernel->program->vocabulary());
          bytes > options.editBytes)
        diags.report(Diag::LiveEdits, loc, id, bytes, options.editBytes);
    for (const auto &[most, what] :
         {std::pair(wanted.logprobs, ""), std::pair(wanted.promptLogprobs, " of its prompt")})
      if (most < -1 || most > MostLogprobs)
        diags.report(Diag::LiveLogprobs, loc, id, most, what, MostLogprobs);
    if (wanted.promptLogprobs >= 0 && !whyNoPromptLogprobs.empty())
      diags.report(Diag::LivePrompt, loc, id, whyNoPromptLogprobs);
    else if (wanted.lines > options.logitLines)
      diags.report(Diag::LiveLines, loc, id, wanted.lines, options.logitLines,
                   wanted.promptLines > 0 ? "ask for those of a shorter prompt" : "ask for fewer new tokens");
  }
};

LiveSession::LiveSession(std::unique_ptr<State> state) : state(std::move(state)) {}
LiveSession::LiveSession(LiveSession &&) noexcept = default;
LiveSession &LiveSession::operator=(LiveSession &&) noexcept = default;
LiveSession::~LiveSession() = default;

/// Why there is no such session; empty: there is.
static std::string whyNoSession(const LiveOptions &options) {
  std::string why;
#define NUMBER(Type, Name, Snake, Default, Least, Most, Text)                                                          \
  if (why.empty())                                                                                                     \
    why = outside<Type>(#Name, options.Name, Least, Most);
#include "megalith/LiveOptions.def"
  if (!why.empty())
    return why;
  if (!std::has_single_bit(options.ring))
    return fmt::format("`ring` must be a power of two, found {}", options.ring);
  if (options.trace != 0 && options.trace < 4096)
    return fmt::format("`trace` must be 0 (none) or at least 4096 bytes, found {}", options.trace);
  if (options.trace != 0 && options.logitLines != 0)
    return "`trace` and `logitLines` do not go together: a request that waits for lines is overtaken, and a replay "
           "would not know of it";
  return "";
}

/// The most tokens that pools and positions have room for, within 8192.
static int64_t mostTokens(const Program::State &program) {
  int64_t most = 8192;
  for (const ir::Operation *pool : program.compiled.module.all(ir::Op::Pool))
    most = std::min(most, pool->get<ir::attr::pages>() * pool->get<ir::attr::page_tokens>() -
                              pool->get<ir::attr::rows_beyond>());
  for (const driver::LoadedModel &model : program.compiled.models)
    if (const auto positions = model.positions(); positions && *positions < double(most))
      most = static_cast<int64_t>(*positions);
  return std::max<int64_t>(most, 1);
}

/// As the language has them: without a state of its own, what the host ends is in that of faults.
static LiveStates statesOf(const ir::Module &module) {
  LiveStates states;
  for (const ir::Operation *state : module.all(ir::Op::State))
    if (state->get<ir::attr::initial>())
      states.initial = state->name;
  const std::string fault = module.root.get<ir::attr::fault>();
  const auto ending = [&](const std::string &name) { return name.empty() ? fault : name; };
  states.cancelled = ending(module.root.get<ir::attr::cancel>());
  states.deadline = ending(module.root.get<ir::attr::deadline>());
  return states;
}

std::unique_ptr<LiveExecutor> api::makeLiveExecutor(std::shared_ptr<Kernel::State> kernel, const LiveOptions &options,
                                                    Diagnostics &diags) {
  if (kernel->device == Device::Reference)
    return makeLiveReference(std::move(kernel), options);
  return makeLiveKernel(std::move(kernel), options, diags);
}

Expected<LiveSession> LiveSession::open(const Kernel &kernel, const LiveOptions &given) {
  return guarded<LiveSession>([&]() -> Expected<LiveSession> {
    const std::shared_ptr<Kernel::State> &on = kernel.internals();
    if (Diagnostics refused(on->program->sources); !hasRequests(*on->program, refused))
      return refused.messages();
    if (const std::string why = whyNoSession(given); !why.empty())
      return failure(Diag::LiveOptions, why);
    LiveOptions options = given;
    if (options.maxTokens == 0)
      options.maxTokens = mostTokens(*on->program);
    auto state = std::make_unique<State>(on, options, statesOf(on->program->compiled.module));
    if (on->busy.exchange(true))
      return failure(Diag::KernelBusy);
    // From here on the kernel is the session's, until its worker has ended.
    try {
      SourceFiles sources = state->sources;
      Diagnostics diags(sources);
      state->executor = makeLiveExecutor(on, options, diags);
      if (!state->executor) {
        on->busy = false;
        return diags.messages();
      }
      state->worker = std::thread([s = state.get()] { s->work(); });
    } catch (...) {
      on->busy = false;
      throw;
    }
    return LiveSession(std::move(state));
  });
}

Expected<uint64_t> LiveSession::submit(Request request, uint64_t user, std::chrono::milliseconds patience, int logprobs,
                                       int promptLogprobs) {
  return guarded<uint64_t>([&]() -> Expected<uint64_t> {
    const Program::State &program = *state->kernel->program;
    if (!request.eos)
      request.eos = program.model()->checked.eos;
    const bool unnamed = request.id.text.empty();
    if (unnamed) // for messages, and because a request must have one; another thread may be faster
      request.id = RequestId::ofInteger(std::to_string(state->queue.upcoming()));
    SourceFiles sources = state->sources;
    Diagnostics diags(sources);
    const bool noTokens = promptLogprobs >= 0 && request.maxNewTokens == 0;
    if (noTokens) { // a pipeline may end one that has no budget before its prompt was fed
      request.maxNewTokens = 1;
      request.eos.emplace();
      request.stop.clear();
    }
    LiveWanted wanted = state->wantedOf(request, logprobs, promptLogprobs);
    wanted.noTokens = noTokens;
    state->check(request, wanted, diags);
    if (diags.hasErrors())
      return diags.messages();
    if (unnamed)
      request.id = {};
    return state->queue.add(std::move(request), user, patience, wanted);
  });
}

Expected<std::optional<LiveEvent>> LiveSession::next(std::chrono::milliseconds patience) {
  using Event = std::optional<LiveEvent>;
  return guarded<Event>([&] { return state->queue.next(patience); });
}

Status LiveSession::cancel(uint64_t request) {
  return guarded<Done>([&] { return state->queue.cancel(request); });
}

Status LiveSession::stop(Stop how) {
  return guarded<Done>([&] {
    state->queue.stop(how);
    return state->queue.wait();
  });
}

bool LiveSession::done() const { return state->queue.done(); }

LiveStats LiveSession::stats() const {
  LiveStats stats;
  state->queue.count(stats);
  state->executor->stats(stats);
  return stats;
}

Expected<SessionTrace> LiveSession::trace() const {
  return guarded<SessionTrace>([&]() -> Expected<SessionTrace> {
    if (state->options.trace == 0)
      return failure(Diag::LiveTrace, "open it with `trace`");
    if (!state->queue.isOver())
      return failure(Diag::LiveTrace, "it goes on; call `stop`");
    if (Status status = state->queue.wait(); !status)
      return status.errors();
    return state->executor->trace();
  });
}

const LiveOptions &LiveSession::options() const { return state->options; }

} // namespace megalith
