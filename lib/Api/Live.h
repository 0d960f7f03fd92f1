//===- Live.h - the host's half of live sessions ----------------*- C++ -*-===//
//
// What stands between the threads that submit requests and read events, and the one thread that executes. The half is
// the same for all executors: it numbers requests, lets them wait for a place, ends those that never got one, and
// keeps events until they are read. An executor takes news from it and tells it what became of them.
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_LIB_API_LIVE_H
#define MEGALITH_LIB_API_LIVE_H

#include "megalith/LiveSession.h"
#include "megalith/Support/Diagnostics.h"
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <unordered_map>

namespace megalith::api {

/// A request that an executor is given.
struct LiveArrival {
  uint64_t number = 0;
  std::shared_ptr<const Request> request; ///< checked; has `eos` and an id
  double submitted = 0;                   ///< milliseconds of the session's clock. Its deadline counts from here
  int logprobs = -1;                      ///< likeliest tokens that it is told of, beside each one's logprob; -1: none
  int promptLogprobs = -1;                ///< the same of the tokens of its prompt
  int64_t firstLine = -1; ///< then: of the session's lines of logits, one for each new token. Those of the prompt, if
                          ///< it wants them, stand in front of it
};

/// What a request wants to know of logits.
struct LiveWanted {
  int logprobs = -1, promptLogprobs = -1; ///< as LiveArrival has them
  int64_t promptLines = 0, lines = 0;     ///< that it needs for its prompt, and in all
  bool noTokens = false;                  ///< it is told nothing but the prompt's
};

/// Which lines of logits are whose. A request has adjacent ones.
class LineRanges {
public:
  explicit LineRanges(int64_t lines) : lines(lines) {}
  /// The first of so many that are free now; nullopt: there are none.
  std::optional<int64_t> take(int64_t count);
  void giveBack(int64_t first) { taken.erase(first); }

private:
  const int64_t lines;
  std::map<int64_t, int64_t> taken; ///< by the first one: the one after the last
};

/// What a request is told of a token, by the row of logits that predicted it, and `most` likeliest ones. Empty: there
/// is no such row.
LiveLogprob logprobOf(std::span<const float> logits, int32_t token, int most);
constexpr int MostLogprobs = 20;

/// What an executor has to know of.
struct LiveNews {
  std::vector<uint64_t> cancels; ///< of requests that it was given before and that had not ended; each once
  std::vector<LiveArrival> arrivals;
  /// No others come any more: the session drains, and nothing waits. An executor that has nothing left ends.
  bool drained = false;
  bool stopNow = false; ///< it ends all of its requests as `limit`, and ends
  bool empty() const { return cancels.empty() && arrivals.empty() && !drained && !stopNow; }
};

/// The states of requests that no executor has seen.
struct LiveStates {
  std::string initial, cancelled, deadline;
};

class LiveQueue {
public:
  using Milliseconds = std::chrono::milliseconds;
  /// `capacity`: requests that wait. As many ends, and as many as there are places, may be unread. `lines` of logits.
  LiveQueue(size_t capacity, size_t places, int64_t lines, LiveStates states)
      : capacity(capacity), most(2 * capacity + 2 * places), states(std::move(states)), ranges(lines) {}

  /// Milliseconds since the session opened.
  double now() const;

  // --- for the threads of the host
  /// The number of the next request that comes.
  uint64_t upcoming() const;
  /// One without an id gets its number for it. It needs the lines that it wants all at a time.
  Expected<uint64_t> add(Request request, uint64_t user, Milliseconds patience, const LiveWanted &wanted = {});
  Status cancel(uint64_t number);
  Expected<std::optional<LiveEvent>> next(Milliseconds patience);
  void stop(LiveSession::Stop how);
  /// Waits until the executor has ended.
  Status wait();
  bool done() const;
  bool isOver() const; ///< wait() does not wait
  /// Fills in what the host's half knows.
  void count(LiveStats &stats) const;

  // --- for the executor's thread
  /// What is new, waiting `patience` at most for it: at most so many arrivals and cancellations. What does not fit
  /// comes with the next call. That a session drains or stops is told by each call. It cuts the wait of one call short,
  /// and of all when the executor has nothing left.
  LiveNews take(size_t mostArrivals, size_t mostCancels, Milliseconds patience);
  /// Requests that take() gave last, for which the executor has no room now: they wait again, and come before others.
  void giveBack(std::span<const LiveArrival> arrivals);
  /// New tokens of a request, the state that it is in. `at` is of the session's clock, `deviceNs` of the device's, if
  /// it has one. `logprobs`: of each token, if it asked for them. `found`: as LiveEvent has it.
  void tell(uint64_t number, std::span<const int32_t> tokens, const std::string &state, double at,
            uint64_t deviceNs = 0, std::vector<LiveLogprob> logprobs = {}, int64_t found = 0);
  /// Once, before its end, where they were asked for. Tokens wait for it.
  void tellPrompt(uint64_t number, std::vector<LiveLogprob> logprobs, double at);
  /// Its last news. Fills in `promptTokens`, `generated` and `submitted`, and `firstToken` and `ended` where they are
  /// not known. After it the executor's `request` is the queue's no more.
  void end(uint64_t number, LiveEnd end);
  /// The executor cannot go on. Nothing comes any more.
  void fail(Messages why);
  /// The executor has ended. What it left open ends as `limit`.
  void close();

private:
  struct Entry {
    std::shared_ptr<const Request> request; ///< null after its end
    uint64_t user = 0;
    bool taken = false, cancelled = false;
    LiveWanted wanted;
    int64_t firstLine = -1; ///< where its lines are once it has them
    int64_t promptTokens = 0, generated = 0, found = 0;
    double submitted = 0, firstToken = -1;
    std::optional<double> alarm; ///< its deadline
    std::string state;
    std::optional<LiveEvent> event; ///< not read yet; later news are added to it
    bool promptToCome = false;      ///< what is told of the prompt goes before these:
    std::vector<int32_t> tokens;
    std::vector<LiveLogprob> logprobsOfTokens;
  };
  /// All of these with the mutex held.
  LiveEvent &eventOf(uint64_t number, Entry &entry, double at);
  static void releaseTokens(Entry &entry, LiveEvent &event);
  void finish(uint64_t number, Entry &entry, LiveEnd end);
  void endWaiting(uint64_t number, const char *how, const std::string &state);
  void leaveQueue(uint64_t number, const Entry &entry);
  void endLateOnes();
  bool somethingNew(size_t mostArrivals);
  size_t waits() const { return waiting.size() + waitingForLines.size(); }
  std::set<uint64_t> &queueOf(const Entry &entry) { return entry.wanted.lines == 0 ? waiting : waitingForLines; }
  std::optional<uint64_t> nextToRun();

  const size_t capacity; ///< of requests that wait
  const size_t most;     ///< requests of which the end was not read
  const LiveStates states;
  const std::chrono::steady_clock::time_point opened = std::chrono::steady_clock::now();

  mutable std::mutex mutex;
  std::condition_variable room, work, news, closed;
  uint64_t submitted = 0;                      ///< requests so far
  std::unordered_map<uint64_t, Entry> entries; ///< of requests whose end was not read
  std::set<uint64_t> waiting;                  ///< without a place
  std::set<uint64_t> waitingForLines;          ///< the same, of those that need lines. These go in their order
  LineRanges ranges;
  std::set<std::pair<double, uint64_t>> alarms; ///< of those that have a deadline: when
  std::deque<uint64_t> cancels;                 ///< of requests that an executor has
  std::deque<uint64_t> fresh;                   ///< requests that have an event, in the order of their first news
  bool draining = false, stopped = false;       ///< it was asked for; `stopped`: at once
  bool told = false;                            ///< the executor knows of the last of the two
  bool over = false;                            ///< the executor has ended
  Messages failed;                              ///< why it could not go on
  size_t running = 0;                           ///< requests that were taken and have not ended
  int64_t promptTokens = 0, generatedTokens = 0;
  std::map<std::string, uint64_t> ended;
};

/// What runs the requests of a live session. One thread calls run(), once; any thread stats(), at the same time.
struct LiveExecutor {
  virtual ~LiveExecutor() = default;
  /// Runs until the session is drained or stopped at once. What it cannot do it tells by LiveQueue::fail.
  virtual void run(LiveQueue &queue) = 0;
  /// Fills in what the executor knows: slots, pools, ticks, passes, rows, metrics, launches, bytes.
  virtual void stats(LiveStats &stats) const = 0;
  /// Lines of logits that a request with logprobs needs beside those of its new tokens.
  virtual int64_t moreLines() const { return 0; }
  /// After run(), of a session that keeps one.
  virtual Expected<SessionTrace> trace() const = 0;
};

/// The executor of a kernel's device. Null when it has none, or cannot do what the options say: reports it.
std::unique_ptr<LiveExecutor> makeLiveExecutor(std::shared_ptr<Kernel::State> kernel, const LiveOptions &options,
                                               Diagnostics &diags);
std::unique_ptr<LiveExecutor> makeLiveKernel(std::shared_ptr<Kernel::State> kernel, const LiveOptions &options,
                                             Diagnostics &diags);
std::unique_ptr<LiveExecutor> makeLiveReference(std::shared_ptr<Kernel::State> kernel, const LiveOptions &options);

} // namespace megalith::api
#endif
