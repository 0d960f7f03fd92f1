//===- LiveSession.h - requests while a kernel runs -------------*- C++ -*-===//
//
//   auto session = LiveSession::open(*kernel);
//   uint64_t number = *session->submit(request);
//   while (auto event = *session->next(std::chrono::seconds(1)))
//     use(event->tokens);
//   session->stop();
//
// A session owns its kernel while it is open. The kernel is launched by the first request, ends when nothing was to do
// for `idleMs`, and is launched again, with all its state, by the next request. Requests, cancellations and stops go
// to the kernel through a ring, tokens and ends come back through another one.
//
// Memory is fixed when the session opens: `places` requests are in the kernel's table at most, with `maxTokens` tokens
// each; `queue` more wait on the host. After that submit() says `live-full`. Who does not read events is told
// `live-unread` before they fill the memory. Requests that ask for logprobs share `logitLines` rows of logits.
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_LIVESESSION_H
#define MEGALITH_LIVESESSION_H

#include "megalith/Api.h"
#include <chrono>
#include <functional>

namespace megalith {

struct LiveOptions {
  // from LiveOptions.def: NUMBER
  size_t places = 256; ///< requests in the kernel's table
  size_t queue = 4096; ///< requests that wait on the host for a place in it
  /// Of a request, its prompt and its budget together; 0: as many as the pipeline's pools and the models' positions
  /// allow, at most 8192
  int64_t maxTokens = 0;
  int64_t maxEnds = 64; ///< words that the tokens and sequences which end a request take together
  size_t ring = 1024;   ///< news that the kernel can be ahead of the host, a power of two
  uint32_t seed = 0;    ///< of random numbers, beside each request's own
  /// Seconds after which a GPU's kernel ends in which nothing moves; 0: never. Waiting for the host is no standstill
  double watchdogSeconds = 10;
  int64_t idleMs = 10000; ///< the kernel ends when nothing was to do for so long; below 0: never
  /// Rows of logits in memory of the host, each a vocabulary of floats: one for each token that requests with logprobs
  /// may still generate, and where they ask for those of their prompts one for each token of these but the first. Such
  /// a request waits until there are as many. 0: no request may ask for them
  int64_t logitLines = 0;
  /// Of a kernel whose pipeline has settings that change rows of logits: memory of the device for them. Requests with
  /// equal formats share theirs. One for which there is no room now waits
  size_t editBytes = 67108864;
  /// Keeps a trace: so many bytes of memory for ticks, of the device where a kernel runs there, and of the host for
  /// requests, at least 4096. The session goes on when it is full, without a trace. 0: none
  size_t trace = 0;
  // ---
  std::function<void(const std::string &)> progress = nullptr; ///< as KernelOptions has it
};

/// How a request of a session ended.
struct LiveEnd : RequestEnd {
  // from RequestEnd.def: LIVE_END
  int64_t promptTokens = 0; ///< of its prompt
  int64_t generated = 0;    ///< new tokens
  double submitted = -1;    ///< in milliseconds since the session opened, as the next ones; negative: it never came
  double admitted = -1;     ///< it took a slot for the first time
  double firstToken = -1;   ///< it had its first token
  double ended = -1;        ///< it ended
  // ---
};

/// How likely a token was: natural logarithms of what the softmax of its row of logits gives. These are those of the
/// first model as it made them, before temperature and all else by which a request's tokens are drawn.
struct LiveLogprob {
  struct Choice {
    int32_t token;
    double logprob;
  };
  std::optional<double> logprob; ///< nullopt: the model was not asked for this token, the pipeline had it otherwise
  int64_t rank = 0;              ///< then 0; else 1 for the likeliest token, and so on
  std::vector<Choice> likeliest; ///< the first first, of equal ones the lower token; as many as were asked for
};

/// What is new of one request. Of a request the events come in order; the last one has an `end`. What is new before an
/// event is read becomes part of it, so that no more of them wait than there are requests.
struct LiveEvent {
  uint64_t request = 0;                   ///< its number, from submit()
  uint64_t user = 0;                      ///< what submit() was given for it
  std::vector<int32_t> tokens = {};       ///< new ones; may be empty
  std::vector<LiveLogprob> logprobs = {}; ///< of each of `tokens`, if the request asked for them
  /// Of each token of the prompt, if the request asked for them; once, before the first of `tokens` or with them,
  /// unless it ended while it waited. The first one has none, nor has any that no row predicted.
  std::vector<LiveLogprob> promptLogprobs = {};
  std::string state = {}; ///< that it is in now
  std::optional<LiveEnd> end = {};
  double at = 0; ///< when the host heard of the newest of it, milliseconds since the session opened
  /// Positions of its prompt that the first model's pool had in its index; known when it has a slot
  int64_t found = 0;
  uint64_t deviceNs = 0; ///< when the kernel told that: nanoseconds of a GPU's clock; 0: there is none
};

/// A session as it stands. Counts are since it opened. Slots, pools, ticks and metrics are those of a moment ago: on a
/// kernel up to 5 ms and a tick.
struct LiveStats {
  // from LiveStats.def: STAT
  size_t waiting = 0;          ///< requests on the host, without a place
  size_t running = 0;          ///< requests in the kernel's table that have not ended
  int64_t ticks = 0;           ///< of the kernel
  int64_t passes = 0;          ///< of models
  int64_t rows = 0;            ///< that were fed
  int64_t promptTokens = 0;    ///< of requests that got a place
  int64_t generatedTokens = 0; ///< that requests were told
  int64_t launches = 0;        ///< of the kernel
  bool launched = false;       ///< a kernel is on the device now
  size_t deviceBytes = 0;      ///< of the table and the rings; on the device of the trace, too
  size_t hostBytes = 0;        ///< the same on the host
  // ---
  struct Slot {
    std::optional<uint64_t> request; ///< nullopt: it is free
    std::string state;
    int64_t promptTokens = 0, generated = 0;
    int64_t kvTokens = 0; ///< of which the first model has K and V
  };
  std::vector<Slot> slots;
  struct Pool {
    std::string model;
    int64_t pages = 0, used = 0;
    int64_t cached = -1; ///< of these that are not used, those of the index; -1: the pool has none
  };
  std::vector<Pool> pools;
  std::map<std::string, uint64_t> ended;  ///< requests, by finish
  std::map<std::string, int64_t> metrics; ///< of the pipeline
  /// Of each metric: how often a `count` of a stage added 0, 1, ... 30 to it (or less than 0: as 0), and 31 or more.
  std::map<std::string, std::vector<int64_t>> increments;
};

/// What a session did, as the files of a run: `megalith run PIPELINE --requests R.jsonl --replay T.jsonl`, with the
/// session's `seed`, goes through all of it again and checks it.
struct SessionTrace {
  std::string trace;    ///< of docs/trace.md
  std::string requests; ///< that arrived, in their order, as the kernel saw them
};

/// All functions may be called on any thread, and at the same time.
class MEGALITH_API LiveSession {
public:
  static Expected<LiveSession> open(const Kernel &kernel, const LiveOptions &options = {});
  LiveSession(LiveSession &&) noexcept;
  LiveSession &operator=(LiveSession &&) noexcept;
  /// Stops at once.
  ~LiveSession();

  /// Hands a request over and returns its number: 0, 1, ... `user` comes back with its events. Its `arrives` and
  /// `cancelled` must not be set: it arrives now, and its deadline counts from now. Ids need not differ; without one
  /// the number is it. A request that can never run is an error; so is `live-full`, when there is no room within
  /// `patience`, and `live-stopped`. `logprobs`: its events tell of each token its logprob, and so many of the
  /// likeliest ones, up to 20; -1: they do not. `promptLogprobs`: the same of the tokens of its prompt. With them a
  /// budget of 0 asks for nothing else: the request runs with a budget of 1, and its token is not told.
  Expected<uint64_t> submit(Request request, uint64_t user = 0,
                            std::chrono::milliseconds patience = std::chrono::milliseconds(0), int logprobs = -1,
                            int promptLogprobs = -1);
  /// The next event, waiting for it `patience` at most; nullopt: there is none. After the last one of a session that
  /// was stopped, done() is true. An error when the kernel has failed: nothing comes any more.
  Expected<std::optional<LiveEvent>> next(std::chrono::milliseconds patience = std::chrono::milliseconds(0));
  /// Takes a request back. It ends as `cancelled`, unless it has ended by then. No such request: `live-request`.
  Status cancel(uint64_t request);
  enum class Stop {
    Drain, ///< takes no more requests; those that are there go on to their ends
    Now,   ///< ends all of them: `limit`
  };
  /// Stops, and waits until the kernel has ended. Events stay to be read.
  Status stop(Stop how = Stop::Drain);
  /// Whether the session was stopped (or failed), and next() has given out all.
  bool done() const;
  LiveStats stats() const;
  /// Of a session with LiveOptions::trace that was stopped. Else, and where it did not fit: `live-trace`.
  Expected<SessionTrace> trace() const;
  const LiveOptions &options() const; ///< with the `maxTokens` that was chosen

  struct State;
  explicit LiveSession(std::unique_ptr<State> state);

private:
  std::unique_ptr<State> state;
};

} // namespace megalith
#endif
