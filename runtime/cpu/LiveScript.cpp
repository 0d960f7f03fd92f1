#include "runtime/cpu/LiveScript.h"
#include "runtime/Edits.h"
#include <algorithm>
#include <cstring>

namespace megalith::cpu {

using runtime::Outcome;

namespace {

/// Every second request is told the logits of its prompt, too.
bool wantsPrompt(size_t number) { return number % 2 == 1; }
int64_t promptLinesOf(const std::vector<Request> &requests, size_t number) {
  return wantsPrompt(number) ? runtime::promptLinesOf(requests[number]) : 0;
}

/// Where each request's lines of logits begin, those of its prompt in front of that. None are used again. The last
/// number is that of all lines.
std::vector<int64_t> firstLinesOf(const runtime::Manifest &manifest, const std::vector<Request> &requests) {
  std::vector<int64_t> out;
  int64_t lines = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    out.push_back(lines + promptLinesOf(requests, i));
    lines = out.back() + requests[i].maxNewTokens + manifest.draftLines / std::max<int64_t>(1, manifest.slots);
  }
  out.push_back(lines);
  return out;
}

/// The host's thread. Its state outlives a launch.
class ScriptedHost {
public:
  ScriptedHost(const runtime::LiveRun &live, char *memory, const std::vector<Request> &requests,
               const LiveScript &script, uint32_t seed, const std::vector<int> &edits,
               std::vector<LiveOutcome> &outcomes)
      : live(live), memory(memory), requests(requests), script(script), edits(edits), outcomes(outcomes),
        rings(live.manifest(), live.layout(), memory, Executor::outside(), seed), entries(script.entries),
        firstLines(firstLinesOf(live.manifest(), requests)) {
    for (int i = script.entries; i > 0; --i)
      freeEntries.push_back(i - 1);
  }

  /// Until the launch ends, or all is done.
  void run() {
    // A thread that only looks at places that do not change lets others go on.
    while (launchesEnded() == ended)
      step();
    ++ended;
    waits = false;
  }

private:
  struct Entry {
    int number = -1, known = 0;
    bool cancelled = false, promptRead = false;
  };
  const runtime::LiveRun &live;
  char *memory;
  const std::vector<Request> &requests;
  const LiveScript &script;
  const std::vector<int> &edits; ///< place of what changes each request's rows of logits
  std::vector<LiveOutcome> &outcomes;
  runtime::HostRings rings;
  std::vector<Entry> entries;
  std::vector<int> freeEntries;
  const std::vector<int64_t> firstLines; ///< of logits, by request
  size_t next = 0, done = 0;
  uint32_t ended = 0;
  bool waits = false; ///< for the launch to end
  bool stopped = false;

  uint32_t launchesEnded() {
    return Executor::outside().loadAcquire(&reinterpret_cast<abi::HostRings *>(memory)->launchesEnded);
  }

  void step() {
    while (!waits && next < requests.size() && !freeEntries.empty()) {
      const int entry = freeEntries.back();
      freeEntries.pop_back();
      entries[entry] = {static_cast<int>(next), 0, false};
      rings.arrive(entry, static_cast<int>(next), requests[next], edits[next], firstLines[next], wantsPrompt(next));
      ++next;
    }
    bool some = false;
    while (auto update = rings.next([this](int entry) { return entries[entry].known; })) {
      some = true;
      take(*update);
    }
    if (some)
      rings.release();
    if (done == requests.size() && !stopped) {
      rings.stop(abi::kStopsDrained);
      stopped = true;
    }
  }

  void take(const runtime::HostRings::Update &update) {
    Entry &entry = entries[update.news.entry];
    LiveOutcome &outcome = outcomes[entry.number];
    if (const int64_t lines = promptLinesOf(requests, entry.number);
        !entry.promptRead && (update.news.ended || update.news.fed >= lines)) {
      entry.promptRead = true;
      for (int64_t line = -lines; line < 0; ++line)
        outcome.promptLogits.push_back(rings.logits(firstLines[entry.number] + line));
    }
    for (int32_t token : update.tokens) {
      outcome.logits.push_back(rings.logits(firstLines[entry.number] + std::ssize(outcome.tokens)));
      outcome.tokens.push_back(token);
    }
    entry.known = static_cast<int>(outcome.tokens.size());
    if (update.news.ended) {
      const auto &header = *reinterpret_cast<const abi::RequestHeader *>(update.descriptor.data());
      outcome.finish = runtime::endOf(live.manifest(), header).finish;
      ++outcome.ends;
      entry = {};
      freeEntries.push_back(update.news.entry);
      ++done;
      // It rests when nothing is left: those that are there end before.
      waits = script.restEach && done % script.restEach == 0 && done < requests.size();
      return;
    }
    if (script.cancelEach && entry.number % script.cancelEach == script.cancelEach - 1 && !entry.cancelled &&
        entry.known >= script.cancelAfter) {
      entry.cancelled = true;
      rings.cancel(update.news.entry, entry.number);
    }
  }
};

} // namespace

Outcome<LivePlay> playLive(CpuEngine &engine, const std::vector<Request> &requests, const runtime::RunOptions &options,
                           const LiveScript &script, LaunchOptions how) {
  runtime::LiveTable table;
  table.entries = script.entries;
  table.newsSlots = script.newsSlots;
  table.idleMs = script.restEach ? 0 : -1;
  for (const Request &request : requests) {
    table.tokens = std::max<int64_t>(table.tokens, std::ssize(request.tokens) + request.maxNewTokens);
    table.endWords = std::max<int64_t>(table.endWords, static_cast<int64_t>(runtime::endWordsOf(request)));
  }
  table.logitLines = firstLinesOf(engine.manifest(), requests).back();
  const int64_t vocabulary = engine.manifest().models.front().vocab;
  for (const Request &request : requests)
    if (request.sampling.edits())
      table.editBytes += static_cast<int64_t>(runtime::EditImages::bytesOf(request, vocabulary));
  LivePlay play;
  play.requests.resize(requests.size());
  std::optional<ScriptedHost> host;
  how.outside = [&host] { host->run(); };
  runtime::RunOptions run = options;
  run.renewPasses = script.renewPasses;
  auto live = engine.openLive(table, run, std::move(how));
  if (!live)
    return live.error;
  std::vector<int> edits;
  runtime::EditImages images(static_cast<size_t>(table.editBytes), vocabulary);
  const auto put = [&](int place, const std::vector<char> &image) {
    return !(*live)->write(offsetof(abi::HostParams, edits), image.data(), image.size(), place * size_t{16});
  };
  for (const Request &request : requests) // there is room for all
    edits.push_back(request.sampling.edits() ? images.add(request, put).value() : abi::kNone);
  host.emplace(**live, (*live)->rings(), requests, script, options.seed, edits, play.requests);
  for (;;) {
    if (runtime::Failure failed = (*live)->launch())
      return *failed;
    auto launch = engine.resultOf(**live);
    ++play.launches;
    launch.steps += play.launch.steps;
    play.launch = std::move(launch);
    if (play.launch.finding)
      return play;
    auto state = (*live)->poll();
    if (!state)
      return state.error;
    // A host that waits for something would launch the kernel again for ever.
    if (*state == runtime::LiveRun::Launch::Ended || play.launches > 64 + 8 * std::ssize(requests))
      return play;
  }
}

std::string whyNotLike(const LivePlay &play, const runtime::RunOutcome &plain, const std::vector<Request> &requests) {
  for (size_t i = 0; i < requests.size(); ++i) {
    const LiveOutcome &is = play.requests[i];
    const TraceRequest &should = plain.requests[i];
    const std::string name = "request `" + requests[i].id.text + "`";
    if (is.ends != 1)
      return name + " ended " + std::to_string(is.ends) + " times";
    const bool cancelled = is.finish == "cancelled";
    if (!cancelled && is.finish != should.finish)
      return name + " ended by " + is.finish + ", in a run by " + should.finish;
    if (is.tokens.size() > should.tokens.size() || (!cancelled && is.tokens.size() != should.tokens.size()) ||
        !std::equal(is.tokens.begin(), is.tokens.end(), should.tokens.begin()))
      return "the tokens of " + name + " are not those of a run";
    if (plain.logits.empty())
      continue;
    const std::vector<float> &logits = plain.logits[i];
    for (size_t k = 0, at = 0; k < is.tokens.size(); ++k) {
      const std::vector<float> &line = is.logits[k];
      if (line.empty() || at + line.size() > logits.size() ||
          std::memcmp(line.data(), logits.data() + at, line.size() * sizeof(float)) != 0)
        return "the logits of " + name + " are not those of a run";
      at += line.size();
    }
  }
  return "";
}

} // namespace megalith::cpu
