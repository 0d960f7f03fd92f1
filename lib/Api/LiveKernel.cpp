//===- LiveKernel.cpp - a live session on a kernel ------------------------===//
//
// The worker of a session owns the host's side of the rings: it fills free entries of the kernel's table with requests
// that wait, reads the news, and launches the kernel again when there is work after its rest.
//===----------------------------------------------------------------------===//
#include "Live.h"
#include "LiveTrace.h"
#include "State.h"
#include "megalith/Reference/Executor.h"
#include "runtime/Edits.h"
#include "runtime/Live.h"
#include <atomic>
#include <cstddef>
#include <deque>
#include <span>
#include <sys/prctl.h>
#include <utility>

namespace megalith::api {

static_assert(abi::kIncrements == reference::LiveIncrements);

namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

/// News that were heard at a time of the session's clock.
struct HeldNews {
  runtime::HostRings::Update update;
  double at;
};

/// A row of logits takes the host up to a millisecond. After so many of them it looks at what else is to do.
constexpr size_t rowsAtOnce = 32;

class LiveKernel : public LiveExecutor {
public:
  LiveKernel(std::shared_ptr<Kernel::State> kernel, const LiveOptions &options)
      : kernel(std::move(kernel)), options(options), sources(this->kernel->program->sources), entries(options.places),
        record(options.trace) {
    for (int i = static_cast<int>(options.places); i > 0; --i)
      freeEntries.push_back(i - 1);
  }

  /// Memory for the table and the rings. Empty: it is there.
  runtime::Failure open() {
    if (kernel->gpu) // the thread may be another one than that which loaded the kernel
      if (runtime::Failure failed = kernel->gpu->makeCurrent())
        return failed;
    runtime::LiveTable table = {static_cast<int>(options.places), options.maxTokens, options.maxEnds,
                                static_cast<int>(options.ring),   options.idleMs,    options.logitLines};
    if (manifest().reducing.textBytes > 0)
      table.editBytes = static_cast<int64_t>(options.editBytes);
    edits.emplace(static_cast<size_t>(table.editBytes), manifest().models.front().vocab);
    runtime::RunOptions how;
    how.seed = options.seed;
    how.watchdogSeconds = options.watchdogSeconds;
    how.trace = options.trace > 0;
    how.traceBytes = options.trace;
    std::unique_lock<std::mutex> lock(cpuMutex(), std::defer_lock);
    if (kernel->cpu)
      lock.lock();
    auto opened = kernel->cuda ? kernel->cuda->openLive(table, how) : kernel->cpu->openLive(table, how);
    if (!opened)
      return opened.error;
    live = std::move(*opened.value);
    layout = live->layout();
    rings.emplace(live->manifest(), layout, live->rings(), memory, options.seed);
    deviceBytes = live->deviceBytes();
    hostBytes = layout.bytes;
    last = rings->view();
    return std::nullopt;
  }

  void run(LiveQueue &queue) override;
  void stats(LiveStats &stats) const override;
  int64_t moreLines() const override { return manifest().draftLines / std::max<int64_t>(1, manifest().slots); }
  Expected<SessionTrace> trace() const override;

private:
  struct Entry {
    uint64_t number = 0;
    bool used = false;
    int known = 0;        ///< tokens that the host has
    double admitted = -1; ///< when it was first seen with a slot
    int logprobs = -1;    ///< as LiveArrival has them
    int64_t firstLine = -1;
    int passedOn = 0;                                   ///< tokens that the queue was told of
    int edits = abi::kNone;                             ///< place of what changes its rows of logits
    std::shared_ptr<const Request> formatted = nullptr; ///< of one with a format
    uint16_t formatState = 0;                           ///< behind the tokens that the queue was told of
    // Of one that asked for the logprobs of its prompt, until they were told.
    int promptLogprobs = -1;
    std::shared_ptr<const Request> request = nullptr;
    bool promptFed = false;               ///< its lines are there
    std::vector<LiveLogprob> prompt = {}; ///< so far
    std::optional<HeldNews> last = {};    ///< of its end, which waits for these
  };

  const runtime::Manifest &manifest() const {
    return kernel->cuda ? kernel->cuda->manifest() : kernel->cpu->manifest();
  }
  void close() noexcept;
  std::optional<Messages> step(LiveQueue &queue);
  bool takeOrders(LiveQueue &queue, bool waits);
  bool arrive(LiveQueue &queue, const LiveArrival &arrival);
  bool readNews(LiveQueue &queue);
  size_t passOn(LiveQueue &queue, const HeldNews &news);
  bool scorePrompts(LiveQueue &queue);
  std::optional<Messages> launch();
  std::optional<Messages> look();
  std::optional<Messages> readTrace();
  std::optional<Messages> readTraceIfThereIsRoom();
  Messages failure(const runtime::RuntimeError &error) const {
    SourceFiles none;
    Diagnostics diags(none);
    reportRuntime(diags, error);
    return diags.messages();
  }

  const std::shared_ptr<Kernel::State> kernel;
  const LiveOptions options;
  SourceFiles sources; ///< the program's may grow while the session is open
  std::unique_ptr<runtime::LiveRun> live;
  runtime::HostMemory memory;
  runtime::RingLayout layout;
  std::optional<runtime::HostRings> rings;
  std::unique_lock<std::mutex> running{cpuMutex(), std::defer_lock}; ///< on the CPU executor, while it is launched

  std::vector<Entry> entries;
  std::vector<int> freeEntries;
  std::optional<runtime::EditImages> edits;
  std::optional<runtime::RuntimeError> notWritten; ///< why an image of these could not be written
  std::deque<LiveArrival> held;                    ///< for the first of which there was no room among them
  std::set<uint64_t> heldCancels;
  std::unordered_map<uint64_t, int> entryOf;
  std::deque<int> scoring;  ///< entries of which the prompt's rows are there, and were not all read
  mutable std::mutex mutex; ///< of what those who look on read: numbers in `entries`, `live`, `last`
  runtime::LiveView last;   ///< of a session whose kernel has ended
  size_t deviceBytes = 0, hostBytes = 0;
  std::atomic<int64_t> launches = 0;
  std::atomic<bool> launched = false;
  LiveTrace record;
  std::optional<Messages> noTrace; ///< why
  runtime::LiveRecord told;        ///< by a kernel with a trace, at its end
  bool drained = false, stopNow = false, stopTold = false, over = false;
};

/// Puts a request into the kernel's table, which has a free entry. False: there is no room for what changes its rows of
/// logits.
bool LiveKernel::arrive(LiveQueue &queue, const LiveArrival &arrival) {
  std::optional<int> place;
  if (arrival.request->sampling.edits()) {
    place = edits->add(*arrival.request, [&](int at, const std::vector<char> &image) {
      notWritten = live->write(offsetof(abi::HostParams, edits), image.data(), image.size(), at * size_t{16});
      return !notWritten;
    });
    if (!place)
      return false;
  }
  const int entry = freeEntries.back();
  freeEntries.pop_back();
  const automata::TokenFormat *format = arrival.request->format.tokens.get();
  {
    const std::lock_guard<std::mutex> lock(mutex);
    entries[entry] = {.number = arrival.number,
                      .used = true,
                      .logprobs = arrival.logprobs,
                      .firstLine = arrival.firstLine,
                      .edits = place.value_or(abi::kNone),
                      .formatted = format ? arrival.request : nullptr,
                      .formatState = format ? format->format.automaton.start : uint16_t{0},
                      .promptLogprobs = arrival.promptLogprobs,
                      .request = arrival.promptLogprobs < 0 ? nullptr : arrival.request};
  }
  entryOf[arrival.number] = entry;
  std::shared_ptr<const Request> request = arrival.request;
  if (request->deadlineMs > 0) { // it counts from its submission
    auto late = std::make_shared<Request>(*request);
    late->deadlineMs = std::max(1, late->deadlineMs - static_cast<int32_t>(queue.now() - arrival.submitted));
    request = std::move(late);
  }
  rings->arrive(entry, static_cast<int>(arrival.number & INT32_MAX), *request, place.value_or(abi::kNone),
                arrival.firstLine, arrival.promptLogprobs >= 0);
  record.comes(arrival.number, std::move(request));
  return true;
}

/// Takes what the host wants. `waits`: for a while, when there is nothing. Whether there was something.
bool LiveKernel::takeOrders(LiveQueue &queue, bool waits) {
  // There is room for all orders that entries can have.
  const LiveNews news =
      queue.take(freeEntries.size(), 64, waits ? milliseconds(launched ? 20 : 1000) : milliseconds(0));
  for (const uint64_t number : news.cancels)
    if (const auto at = entryOf.find(number); at != entryOf.end())
      rings->cancel(at->second, static_cast<int>(number & INT32_MAX));
  size_t placed = 0;
  while (placed < news.arrivals.size() && arrive(queue, news.arrivals[placed]))
    ++placed;
  const auto left = std::span(news.arrivals).subspan(placed);
  queue.giveBack(left);
  drained = drained || (news.drained && left.empty());
  stopNow = stopNow || news.stopNow;
  return !news.cancels.empty() || placed > 0;
}

/// Tells the queue what is new of a request. How many rows of logits that took.
size_t LiveKernel::passOn(LiveQueue &queue, const HeldNews &heard) {
  const runtime::Manifest &m = manifest();
  const abi::News &news = heard.update.news;
  const std::vector<int32_t> &tokens = heard.update.tokens;
  Entry &entry = entries.at(news.entry);
  std::vector<LiveLogprob> logprobs;
  for (size_t i = 0; entry.logprobs >= 0 && i < tokens.size(); ++i)
    logprobs.push_back(logprobOf(rings->logits(entry.firstLine + entry.passedOn + i), tokens[i], entry.logprobs));
  const size_t rows = logprobs.size();
  entry.passedOn += static_cast<int>(tokens.size());
  if (entry.formatted)
    entry.formatState = runtime::walkFormat(*entry.formatted, entry.formatState, tokens);
  if (entry.admitted < 0 && static_cast<size_t>(news.state) < m.states.size() && m.states[news.state].slot)
    entry.admitted = heard.at;
  record.tells(entry.number, tokens, m.stateName(static_cast<unsigned>(news.state)));
  queue.tell(entry.number, tokens, m.stateName(static_cast<unsigned>(news.state)), heard.at,
             kernel->cuda ? uint64_t(news.high) << 32 | news.low : 0, std::move(logprobs), news.found);
  if (!news.ended)
    return rows;
  const auto &header = *reinterpret_cast<const abi::RequestHeader *>(heard.update.descriptor.data());
  LiveEnd end{runtime::endOf(m, header)};
  if (entry.formatted)
    end.format = entry.formatted->format.tokens->endOf(entry.formatState);
  // One that ends in the tick that admits it was never seen with its slot.
  end.admitted = entry.admitted < 0 && header.rows > 0 ? heard.at : entry.admitted;
  const uint64_t number = entry.number;
  if (entry.edits != abi::kNone)
    edits->drop(entry.edits);
  entryOf.erase(number);
  {
    const std::lock_guard<std::mutex> lock(mutex);
    entry = {};
  }
  freeEntries.push_back(news.entry);
  record.ends(number, end);
  queue.end(number, std::move(end));
  return rows;
}

/// Reads what the kernel tells. Whether there was something.
bool LiveKernel::readNews(LiveQueue &queue) {
  bool some = false;
  size_t rows = 0;
  while (rows < rowsAtOnce) {
    auto update = rings->next([this](int entry) { return entries.at(entry).known; });
    if (!update)
      break;
    some = true;
    const int number = update->news.entry;
    const bool ended = update->news.ended;
    Entry &entry = entries.at(number);
    entry.known += static_cast<int>(update->tokens.size());
    HeldNews heard = {std::move(*update), queue.now()};
    const bool ofPrompt = entry.promptLogprobs >= 0;
    if (ofPrompt && !entry.promptFed && (ended || heard.update.news.fed >= runtime::promptLinesOf(*entry.request))) {
      entry.promptFed = true;
      scoring.push_back(number);
    }
    if (ofPrompt && ended) // its lines and its entry are its own until then
      entry.last = std::move(heard);
    else
      rows += passOn(queue, heard);
    if (ended)
      rings->release(); // control may wait for room
  }
  if (some)
    rings->release();
  return some;
}

/// Reads some of the rows of a prompt, those of several prompts in turns. Whether there were some.
bool LiveKernel::scorePrompts(LiveQueue &queue) {
  if (scoring.empty())
    return false;
  const int number = scoring.front();
  scoring.pop_front();
  Entry &entry = entries.at(number);
  const std::vector<int32_t> &tokens = entry.request->tokens;
  if (entry.prompt.empty())
    entry.prompt.emplace_back();                               // nothing predicts the first one
  const int64_t before = entry.firstLine - std::ssize(tokens); // the line of token i is before + i
  for (size_t rows = 0; rows < rowsAtOnce && entry.prompt.size() < tokens.size(); ++rows) {
    const size_t token = entry.prompt.size();
    entry.prompt.push_back(
        logprobOf(rings->logits(before + static_cast<int64_t>(token)), tokens[token], entry.promptLogprobs));
  }
  if (entry.prompt.size() < tokens.size()) {
    scoring.push_back(number);
    return true;
  }
  entry.prompt.resize(tokens.size()); // of an empty prompt
  queue.tellPrompt(entry.number, std::move(entry.prompt), queue.now());
  entry.promptLogprobs = -1;
  entry.request.reset();
  if (const auto last = std::exchange(entry.last, std::nullopt))
    passOn(queue, *last);
  return true;
}

std::optional<Messages> LiveKernel::launch() {
  if (kernel->cpu && !running.try_lock()) // another kernel of the CPU executor runs: later
    return std::nullopt;
  if (runtime::Failure failed = live->launch()) {
    if (kernel->cpu)
      running.unlock();
    return failure(*failed);
  }
  ++launches;
  launched = true;
  return std::nullopt;
}

/// What became of the launch.
std::optional<Messages> LiveKernel::look() {
  auto state = live->poll();
  if (state && *state == runtime::LiveRun::Launch::Runs)
    return std::nullopt;
  launched = false;
  if (kernel->cpu)
    running.unlock();
  if (!state)
    return failure(state.error);
  if (*state == runtime::LiveRun::Launch::Rests)
    return std::nullopt;
  over = true;
  Diagnostics diags(sources);
  if (const auto stop = live->stopped())
    reportStop(*stop, options.watchdogSeconds, diags);
  else if (!stopTold)
    diags.report(Diag::ExecutorError, {}, "the kernel ended while its session was open");
  return diags.hasErrors() ? std::optional(diags.messages()) : std::nullopt;
}

/// One round of the worker.
std::optional<Messages> LiveKernel::step(LiveQueue &queue) {
  const bool idle = entryOf.empty();
  bool some = !stopTold && takeOrders(queue, idle);
  if (notWritten)
    return failure(*notWritten);
  some = readNews(queue) || some;
  some = scorePrompts(queue) || some;
  if (!stopTold && (stopNow || (drained && entryOf.empty()))) {
    rings->stop(stopNow ? abi::kStopsNow : abi::kStopsDrained);
    stopTold = true;
  }
  if (launched) {
    if (auto failed = look())
      return failed;
  } else if (stopTold) { // there is nothing that had to be told
    over = true;
  } else if (!entryOf.empty()) {
    if (auto failed = launch())
      return failed;
  }
  if (!some && (!idle || stopTold))
    std::this_thread::sleep_for(kernel->cuda ? microseconds(10) : microseconds(200));
  return std::nullopt;
}

/// After all news.
std::optional<Messages> LiveKernel::readTrace() {
  std::vector<std::pair<int, int>> open;
  std::vector<uint64_t> numbers;
  for (const auto &[number, entry] : entryOf) {
    open.push_back({entry, static_cast<int>(number & INT32_MAX)});
    numbers.push_back(number);
  }
  auto read = runtime::recordOf(*live, open);
  if (!read)
    return failure(read.error);
  told = std::move(*read.value);
  for (size_t i = 0; i < told.open.size(); ++i)
    record.stands(numbers[i], std::move(told.open[i]));
  return std::nullopt;
}

/// The session itself has ended well: what goes wrong here is told to who asks for the trace.
std::optional<Messages> LiveKernel::readTraceIfThereIsRoom() {
  try {
    return readTrace();
  } catch (const std::bad_alloc &) {
    SourceFiles none;
    Diagnostics diags(none);
    diags.report(Diag::LiveTrace, {}, "the host had no memory for it; give it less with `trace`");
    return diags.messages();
  }
}

Expected<SessionTrace> LiveKernel::trace() const {
  if (noTrace)
    return *noTrace;
  if (told.dropped > 0)
    return record.tooLong();
  Trace trace = traceHead(*kernel, options);
  trace.ticks = told.trace.ticks;
  trace.metrics = told.trace.metrics;
  return record.texts(std::move(trace), kernel->program->compiled.module);
}

/// Whatever happened: the kernel is told to end, on the thread that launched it, and is waited for.
void LiveKernel::close() noexcept {
  rings->stop(abi::kStopsNow); // harmless when nothing runs
  {
    const std::lock_guard<std::mutex> lock(mutex);
    try {
      last = rings->view();
    } catch (const std::bad_alloc &) { // what was there before stays
    }
    live.reset();
  }
  launched = false;
  if (running.owns_lock())
    running.unlock();
}

void LiveKernel::run(LiveQueue &queue) {
  struct Closing {
    LiveKernel &of;
    ~Closing() { of.close(); }
  };
  std::optional<Messages> failed;
  {
    const Closing closing{*this};
    // The thread may be another one than that which loaded the kernel.
    if (kernel->gpu)
      if (runtime::Failure none = kernel->gpu->makeCurrent())
        failed = failure(*none);
    (void)prctl(PR_SET_TIMERSLACK, 1000UL); // it sleeps for microseconds
    while (!over && !failed)
      failed = step(queue);
    while (readNews(queue) || scorePrompts(queue)) {
    }
    if (!failed && record.wanted())
      noTrace = readTraceIfThereIsRoom();
  }
  if (failed)
    queue.fail(std::move(*failed));
}

void LiveKernel::stats(LiveStats &stats) const {
  const runtime::Manifest &m = manifest();
  stats.launches = launches;
  stats.launched = launched;
  stats.deviceBytes = deviceBytes;
  stats.hostBytes = hostBytes;
  const std::lock_guard<std::mutex> lock(mutex);
  const runtime::LiveView view = live ? rings->view() : last;
  stats.ticks = view.ticks;
  stats.passes = view.passes;
  stats.rows = view.rows;
  for (size_t i = 0; i < m.models.size(); ++i)
    if (const runtime::Manifest::Model &model = m.models[i]; model.pool.pages > 0)
      stats.pools.push_back({model.name, model.pool.pages, view.written ? model.pool.pages - view.unheldPages[i] : 0,
                             !model.pool.index ? -1
                             : view.written    ? view.cachedPages[i]
                                               : 0});
  for (const runtime::LiveView::Slot &of : view.slots) {
    LiveStats::Slot &slot = stats.slots.emplace_back();
    // The state was written a while ago: the entry may be free by now.
    if (of.entry < 0 || of.entry >= static_cast<int>(entries.size()) || !entries[of.entry].used)
      continue;
    slot = {entries[of.entry].number, m.stateName(of.state), of.promptTokens, of.generated, of.kvTokens};
  }
  for (size_t i = 0; i < m.metrics.size(); ++i) {
    stats.metrics[m.metrics[i]] = view.metrics[i];
    stats.increments[m.metrics[i]] = view.increments[i];
  }
}

} // namespace

std::unique_ptr<LiveExecutor> makeLiveKernel(std::shared_ptr<Kernel::State> kernel, const LiveOptions &options,
                                             Diagnostics &diags) {
  auto executor = std::make_unique<LiveKernel>(std::move(kernel), options);
  if (const runtime::Failure failed = executor->open()) {
    reportRuntime(diags, *failed);
    return nullptr;
  }
  return executor;
}

} // namespace megalith::api
