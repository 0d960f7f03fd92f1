//===- LiveQueue.cpp - requests and events between two threads ------------===//
#include "Live.h"
#include "State.h"
#include <algorithm>
#include <utility>

namespace megalith::api {

using Lock = std::unique_lock<std::mutex>;

/// Within what a clock can add to now.
static std::chrono::milliseconds bounded(std::chrono::milliseconds patience) {
  return std::clamp(patience, std::chrono::milliseconds(0), std::chrono::milliseconds(int64_t(1) << 40));
}

double LiveQueue::now() const {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - opened).count();
}

//===----------------------------------------------------------------------===//
// The host's threads
//===----------------------------------------------------------------------===//

uint64_t LiveQueue::upcoming() const {
  const Lock lock(mutex);
  return submitted;
}

Expected<uint64_t> LiveQueue::add(Request request, uint64_t user, Milliseconds patience, const LiveWanted &wanted) {
  auto owned = std::make_shared<Request>(std::move(request));
  Lock lock(mutex);
  const auto refuses = [&] { return over || draining || stopped; };
  // Requests that wait for lines go one after the other: they must not take all the room of those that need none.
  const auto isFull = [&] {
    return waits() >= capacity || (wanted.lines > 0 && waitingForLines.size() >= (capacity + 1) / 2);
  };
  const auto hasRoom = [&] { return !isFull() && entries.size() < most; };
  if (!room.wait_for(lock, bounded(patience), [&] { return refuses() || hasRoom(); })) {
    if (isFull())
      return failure(Diag::LiveFull, waits());
    return failure(Diag::LiveUnread, entries.size() - waits() - running);
  }
  if (failed.hasErrors())
    return failed;
  if (refuses())
    return failure(Diag::LiveStopped);
  const uint64_t number = submitted;
  if (owned->id.text.empty())
    owned->id = RequestId::ofInteger(std::to_string(number));
  Entry entry;
  entry.user = user;
  entry.promptTokens = std::ssize(owned->tokens);
  entry.submitted = now();
  entry.state = states.initial;
  if (owned->deadlineMs > 0) {
    entry.alarm = entry.submitted + owned->deadlineMs;
    alarms.insert({*entry.alarm, number});
  }
  entry.request = std::move(owned);
  entry.wanted = wanted;
  entry.promptToCome = wanted.promptLogprobs >= 0;
  queueOf(entry).insert(number);
  entries.emplace(number, std::move(entry));
  ++submitted;
  work.notify_all();
  return number;
}

Status LiveQueue::cancel(uint64_t number) {
  const Lock lock(mutex);
  if (number >= submitted)
    return failure(Diag::LiveRequest, number, submitted);
  const auto found = entries.find(number);
  if (found == entries.end() || !found->second.request || found->second.cancelled)
    return Done();
  Entry &entry = found->second;
  entry.cancelled = true;
  if (!entry.taken) {
    endWaiting(number, "cancelled", states.cancelled);
  } else {
    cancels.push_back(number);
    work.notify_all();
  }
  return Done();
}

Expected<std::optional<LiveEvent>> LiveQueue::next(Milliseconds patience) {
  Lock lock(mutex);
  news.wait_for(lock, bounded(patience), [&] { return over || !fresh.empty(); });
  if (fresh.empty()) {
    if (failed.hasErrors())
      return failed;
    return std::optional<LiveEvent>();
  }
  const auto found = entries.find(fresh.front());
  fresh.pop_front();
  std::optional<LiveEvent> event = std::move(found->second.event);
  found->second.event.reset();
  if (!found->second.request) { // it has ended, or nothing comes of it
    entries.erase(found);
    room.notify_all();
  }
  if (over && fresh.empty())
    news.notify_all(); // others wait for what does not come
  return event;
}

void LiveQueue::stop(LiveSession::Stop how) {
  const Lock lock(mutex);
  const bool now = how == LiveSession::Stop::Now;
  if (over || stopped || (draining && !now))
    return;
  (now ? stopped : draining) = true;
  told = false;
  if (now)
    for (std::set<uint64_t> *queue : {&waiting, &waitingForLines})
      while (!queue->empty())
        endWaiting(*queue->begin(), "limit", states.initial);
  work.notify_all();
  room.notify_all();
}

Status LiveQueue::wait() {
  Lock lock(mutex);
  closed.wait(lock, [&] { return over; });
  if (failed.hasErrors())
    return failed;
  return Done();
}

bool LiveQueue::done() const {
  const Lock lock(mutex);
  return over && fresh.empty();
}

bool LiveQueue::isOver() const {
  const Lock lock(mutex);
  return over;
}

void LiveQueue::count(LiveStats &stats) const {
  const Lock lock(mutex);
  stats.waiting = waits();
  stats.running = running;
  stats.promptTokens = promptTokens;
  stats.generatedTokens = generatedTokens;
  stats.ended = ended;
}

//===----------------------------------------------------------------------===//
// The executor's thread
//===----------------------------------------------------------------------===//

/// The next one that waits for nothing but a place, which has its lines from then on. Whoever needs none does not wait
/// after those that need some. These go one after the other, so that the one that needs most comes, too.
std::optional<uint64_t> LiveQueue::nextToRun() {
  std::optional<uint64_t> next;
  if (!waitingForLines.empty()) {
    Entry &entry = entries.at(*waitingForLines.begin());
    if (entry.firstLine < 0)
      entry.firstLine = ranges.take(entry.wanted.lines).value_or(-1);
    if (entry.firstLine >= 0)
      next = *waitingForLines.begin();
  }
  if (!waiting.empty())
    next = std::min(next.value_or(UINT64_MAX), *waiting.begin());
  return next;
}

bool LiveQueue::somethingNew(size_t mostArrivals) {
  return !cancels.empty() || (mostArrivals > 0 && nextToRun()) ||
         ((draining || stopped) && (!told || (running == 0 && waits() == 0)));
}

LiveNews LiveQueue::take(size_t mostArrivals, size_t mostCancels, Milliseconds patience) {
  Lock lock(mutex);
  if (patience.count() > 0)
    work.wait_for(lock, bounded(patience), [&] { return somethingNew(mostArrivals); });
  endLateOnes();
  LiveNews out;
  for (; !cancels.empty() && out.cancels.size() < mostCancels; cancels.pop_front())
    if (const auto found = entries.find(cancels.front()); found != entries.end() && found->second.request)
      out.cancels.push_back(cancels.front());
  while (out.arrivals.size() < mostArrivals) {
    const std::optional<uint64_t> next = nextToRun();
    if (!next)
      break;
    const uint64_t number = *next;
    Entry &entry = entries.at(number);
    const LiveWanted &wanted = entry.wanted;
    out.arrivals.push_back({number, entry.request, entry.submitted, wanted.logprobs, wanted.promptLogprobs,
                            wanted.lines > 0 ? entry.firstLine + wanted.promptLines : -1});
    leaveQueue(number, entry);
    entry.taken = true;
    ++running;
    promptTokens += entry.promptTokens;
  }
  if (!out.arrivals.empty())
    room.notify_all();
  out.stopNow = stopped;
  out.drained = draining && waits() == 0;
  told = true;
  return out;
}

void LiveQueue::giveBack(std::span<const LiveArrival> arrivals) {
  const Lock lock(mutex);
  for (const LiveArrival &arrival : arrivals) {
    Entry &entry = entries.at(arrival.number);
    entry.taken = false;
    --running;
    promptTokens -= entry.promptTokens;
    queueOf(entry).insert(arrival.number);
    if (entry.alarm)
      alarms.insert({*entry.alarm, arrival.number});
    // What came meanwhile was for one that runs.
    if (entry.cancelled)
      endWaiting(arrival.number, "cancelled", states.cancelled);
    else if (stopped)
      endWaiting(arrival.number, "limit", states.initial);
  }
}

void LiveQueue::leaveQueue(uint64_t number, const Entry &entry) {
  queueOf(entry).erase(number);
  if (entry.alarm)
    alarms.erase({*entry.alarm, number});
}

/// The event that is read next of a request, with news of `at` in it.
LiveEvent &LiveQueue::eventOf(uint64_t number, Entry &entry, double at) {
  if (!entry.event) {
    fresh.push_back(number);
    entry.event.emplace();
    entry.event->request = number;
    entry.event->user = entry.user;
    news.notify_one();
  }
  entry.event->state = entry.state;
  entry.event->at = at;
  entry.event->found = entry.found;
  return *entry.event;
}

/// Tokens that waited for what is told of the prompt.
void LiveQueue::releaseTokens(Entry &entry, LiveEvent &event) {
  if (!std::exchange(entry.promptToCome, false))
    return;
  event.tokens = std::move(entry.tokens);
  event.logprobs = std::move(entry.logprobsOfTokens);
}

void LiveQueue::tell(uint64_t number, std::span<const int32_t> tokens, const std::string &state, double at,
                     uint64_t deviceNs, std::vector<LiveLogprob> logprobs, int64_t foundPositions) {
  const Lock lock(mutex);
  const auto found = entries.find(number);
  if (found == entries.end() || !found->second.request)
    return; // an executor is not believed to be without faults
  Entry &entry = found->second;
  entry.state = state;
  entry.found = foundPositions;
  if (entry.wanted.noTokens) {
    tokens = {};
    logprobs.clear();
  }
  if (!tokens.empty() && entry.firstToken < 0)
    entry.firstToken = at;
  entry.generated += std::ssize(tokens);
  generatedTokens += std::ssize(tokens);
  LiveEvent &event = eventOf(number, entry, at);
  event.deviceNs = deviceNs;
  std::vector<int32_t> &into = entry.promptToCome ? entry.tokens : event.tokens;
  into.insert(into.end(), tokens.begin(), tokens.end());
  std::move(logprobs.begin(), logprobs.end(),
            std::back_inserter(entry.promptToCome ? entry.logprobsOfTokens : event.logprobs));
}

void LiveQueue::tellPrompt(uint64_t number, std::vector<LiveLogprob> logprobs, double at) {
  const Lock lock(mutex);
  const auto found = entries.find(number);
  if (found == entries.end() || !found->second.request || !found->second.promptToCome)
    return;
  Entry &entry = found->second;
  LiveEvent &event = eventOf(number, entry, at);
  event.promptLogprobs = std::move(logprobs);
  releaseTokens(entry, event);
}

void LiveQueue::end(uint64_t number, LiveEnd end) {
  const Lock lock(mutex);
  if (const auto found = entries.find(number); found != entries.end() && found->second.request)
    finish(number, found->second, std::move(end));
}

void LiveQueue::finish(uint64_t number, Entry &entry, LiveEnd end) {
  end.promptTokens = entry.promptTokens;
  end.generated = entry.generated;
  end.submitted = entry.submitted;
  if (end.firstToken < 0)
    end.firstToken = entry.firstToken;
  if (end.ended < 0)
    end.ended = now();
  ++ended[end.finish];
  if (entry.taken)
    --running;
  if (entry.firstLine >= 0) {
    ranges.giveBack(entry.firstLine);
    entry.firstLine = -1;
    work.notify_all();
  }
  entry.request.reset();
  entry.state = end.state;
  LiveEvent &event = eventOf(number, entry, end.ended);
  releaseTokens(entry, event);
  event.end = std::move(end);
}

/// Ends a request that waits, as `how`.
void LiveQueue::endWaiting(uint64_t number, const char *how, const std::string &state) {
  Entry &entry = entries.at(number);
  leaveQueue(number, entry);
  LiveEnd end;
  end.finish = how;
  end.state = state;
  finish(number, entry, std::move(end));
  room.notify_all();
}

/// Ends those that wait and whose time is over.
void LiveQueue::endLateOnes() {
  for (const double at = now(); !alarms.empty() && alarms.begin()->first <= at;)
    endWaiting(alarms.begin()->second, "deadline", states.deadline);
}

void LiveQueue::fail(Messages why) {
  const Lock lock(mutex);
  if (!failed.hasErrors())
    failed = std::move(why);
}

void LiveQueue::close() {
  const Lock lock(mutex);
  if (failed.hasErrors()) {
    // What was told before can be read. Without an end nothing more comes of the others.
    waiting.clear();
    waitingForLines.clear();
    alarms.clear();
    running = 0;
    std::erase_if(entries, [](const auto &entry) { return !entry.second.event; });
    for (auto &[number, entry] : entries)
      entry.request.reset();
  }
  for (std::set<uint64_t> *queue : {&waiting, &waitingForLines})
    while (!queue->empty())
      endWaiting(*queue->begin(), "limit", states.initial);
  std::set<uint64_t> left;
  for (const auto &[number, entry] : entries)
    if (entry.request)
      left.insert(number);
  for (uint64_t number : left) {
    LiveEnd end;
    end.finish = "limit";
    end.state = entries.at(number).state;
    finish(number, entries.at(number), std::move(end));
  }
  over = true;
  work.notify_all();
  room.notify_all();
  news.notify_all();
  closed.notify_all();
}

} // namespace megalith::api
