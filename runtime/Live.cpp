#include "runtime/Live.h"
#include "megalith/Requests/Inputs.h"
#include "runtime/Edits.h"
#include "runtime/TraceDecoder.h"
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>

namespace megalith::runtime {

static size_t upTo(size_t value, size_t multiple) { return (value + multiple - 1) / multiple * multiple; }

RingLayout RingLayout::of(const Manifest &m, const LiveTable &table) {
  RingLayout out = {};
  out.table = table;
  out.endWords = static_cast<int>(upTo(std::max<size_t>(1, table.endWords), 4));
  int64_t inputs = 0;
  for (const Manifest::InputField &input : m.inputs)
    inputs += mostWords(input);
  out.inputWords = static_cast<int>(upTo(static_cast<size_t>(inputs), 4));
  out.tokenWords = static_cast<int>(upTo(table.tokens, 4));
  out.descriptorBytes = upTo(m.requestBytes, 16);
  size_t at = sizeof(abi::HostRings);
  const auto take = [&at](size_t bytes) {
    const auto begin = static_cast<int>(at);
    at = upTo(at + bytes, 128);
    return begin;
  };
  // Of an entry at most three orders were not taken: to arrive, to be taken back, and that of the request before, which
  // ended by itself meanwhile.
  const size_t orderSlots = std::bit_ceil(3u * static_cast<unsigned>(table.entries));
  out.ordersMask = static_cast<int>(orderSlots) - 1;
  out.newsMask = table.newsSlots - 1;
  out.orders = take(orderSlots * sizeof(abi::Order));
  out.news = take(static_cast<size_t>(table.newsSlots) * sizeof(abi::News));
  out.state = take(4 * (sizeof(abi::LiveState) / 4 + 2 * m.models.size() + m.slots * abi::kLiveSlotWords +
                        2 * m.metrics.size() * (1 + abi::kIncrements)));
  out.lineMarks = take(4 * static_cast<size_t>(table.logitLines));
  out.mailboxBytes = upTo(
      out.descriptorBytes + sizeof(abi::Settings) + 4 * (size_t(out.endWords) + out.inputWords + out.tokenWords), 128);
  out.mailboxes = take(static_cast<size_t>(table.entries) * out.mailboxBytes);
  out.lineBytes = sizeof(float) * static_cast<size_t>(m.mostVocab());
  out.lines = at;
  out.bytes = upTo(at + static_cast<size_t>(table.logitLines) * out.lineBytes, 128);
  return out;
}

/// Writes a request's scalar fields. Sequences start empty: their length is 0 already.
static void initializeFields(const std::vector<Manifest::Field> &fields, char *base) {
  auto put = [&](const Manifest::Field &field, auto value) { std::memcpy(base + field.offset, &value, sizeof(value)); };
  for (const Manifest::Field &field : fields)
    if (field.capacity)
      continue;
    else if (field.type == "f32")
      put(field, static_cast<float>(field.init));
    else if (field.type == "i64")
      put(field, static_cast<int64_t>(field.init));
    else
      put(field, static_cast<int>(field.init));
}

/// Writes what a request brings: scalars and the ranges of sequences, whose words go after those in `arena`.
static void writeInputs(const std::vector<Manifest::InputField> &fields, const Request &request, char *base,
                        std::vector<int> &arena, size_t first) {
  for (const Manifest::InputField &field : fields) {
    const std::vector<int32_t> words = inputWords(field, request);
    if (field.capacity) {
      const abi::InputRange range = {static_cast<long long>(first + arena.size()), static_cast<int>(words.size()), 0};
      std::memcpy(base + field.offset, &range, sizeof(range));
      arena.insert(arena.end(), words.begin(), words.end());
    } else if (!words.empty()) {
      std::memcpy(base + field.offset, words.data(), sizeof(int32_t));
    }
  }
}

void writeRequest(const Manifest &manifest, const Request &request, int number, char *descriptor, size_t tokenBegin,
                  std::vector<int> &ends, size_t firstEnd, std::vector<int> &inputs, size_t firstInput) {
  auto &header = *reinterpret_cast<abi::RequestHeader *>(descriptor);
  header.state = static_cast<int>(manifest.initialState);
  header.slot = -1;
  header.number = number;
  header.priority = request.priority;
  header.promptLen = header.numTokens = static_cast<int>(request.tokens.size());
  header.maxNewTokens = static_cast<int>(request.maxNewTokens);
  header.eosBegin = static_cast<int>(firstEnd + ends.size());
  if (request.eos) {
    header.eosCount = static_cast<int>(request.eos->size());
    ends.insert(ends.end(), request.eos->begin(), request.eos->end());
  }
  header.stopCount = static_cast<signed char>(request.stop.size());
  for (const std::vector<int32_t> &sequence : request.stop) {
    ends.push_back(static_cast<int>(sequence.size()));
    ends.insert(ends.end(), sequence.begin(), sequence.end());
  }
  header.waitingSite = -1;
  header.tokenBegin = static_cast<long long>(tokenBegin);
  if (manifest.indexBegin)
    reinterpret_cast<abi::IndexedRequest<1> *>(descriptor + manifest.indexBegin)->cache = request.cache;
  initializeFields(manifest.fields, descriptor);
  writeInputs(manifest.inputs, request, descriptor, inputs, firstInput);
}

size_t endWordsOf(const Request &request) {
  size_t words = request.eos ? request.eos->size() : 0;
  for (const std::vector<int32_t> &sequence : request.stop)
    words += 1 + sequence.size();
  return words;
}

int64_t promptLinesOf(const Request &request) { return std::max<int64_t>(0, std::ssize(request.tokens) - 1); }

abi::Settings settingsOf(const Request &request, uint32_t runSeed, int edits) {
  const Sampling &s = request.sampling;
  const int byText = (editsByText(s) ? abi::kByText : 0) | (s.format.empty() ? 0 : abi::kHasFormat);
  return {s.temperature, s.topP, s.minP, s.topK, {runSeed, request.seed()}, edits, byText, s.minNewTokens, {}};
}

// --- memory that two sides see

uint32_t HostMemory::loadAcquire(const uint32_t *at) { return __atomic_load_n(at, __ATOMIC_ACQUIRE); }
void HostMemory::storeRelease(uint32_t *at, uint32_t value) { __atomic_store_n(at, value, __ATOMIC_RELEASE); }
uint32_t HostMemory::loadRelaxed(const uint32_t *at) { return __atomic_load_n(at, __ATOMIC_RELAXED); }
// No bytes may have no address, which memcpy must not see.
void HostMemory::read(void *to, const void *at, size_t bytes) {
  std::copy_n(static_cast<const char *>(at), bytes, static_cast<char *>(to));
}
void HostMemory::write(void *at, const void *from, size_t bytes) {
  std::copy_n(static_cast<const char *>(from), bytes, static_cast<char *>(at));
}

// --- the trace

#define AT(name) offsetof(abi::HostParams, name)

std::optional<RunOutcome::Stop> LiveRun::stopped() {
  abi::StopRecord stop = {};
  if (read(AT(stop), &stop, sizeof(stop)))
    return std::nullopt;
  return stopOf(manifest(), stop);
}

/// As the last tick that counts left it. What the host did after that is in no trace.
static Outcome<TraceRequest> openOne(LiveRun &run, int entry, int number) {
  const Manifest &m = run.manifest();
  std::vector<char> descriptor(m.requestBytes);
  if (Failure failed = run.read(AT(requests), descriptor.data(), descriptor.size(), entry * descriptor.size()))
    return *failed;
  auto &header = *reinterpret_cast<abi::RequestHeader *>(descriptor.data());
  if (header.number != number || header.stateBefore < 0)
    return TraceRequest();
  if (header.state != header.stateBefore) {
    header.state = header.stateBefore;
    header.fault = 0;
  }
  TraceRequest out{endOf(m, header)};
  const int words = run.layout().tokenWords, prompt = std::clamp(header.promptLen, 0, words);
  out.tokens.resize(std::clamp(header.generated, 0, words - prompt));
  const size_t first = static_cast<size_t>(entry) * words + prompt;
  if (Failure failed = run.read(AT(tokens), out.tokens.data(), 4 * out.tokens.size(), 4 * first))
    return *failed;
  return out;
}

Outcome<LiveRecord> recordOf(LiveRun &run, const std::vector<std::pair<int, int>> &open) {
  const Manifest &m = run.manifest();
  abi::Stats stats = {};
  if (Failure failed = run.read(AT(stats), &stats, sizeof(stats)))
    return *failed;
  LiveRecord out;
  out.dropped = stats.traceDropped;
  if (out.dropped > 0)
    return out;
  std::vector<unsigned> words(static_cast<size_t>(std::max(0ll, stats.traceWords)));
  if (Failure failed = run.read(AT(trace), words.data(), 4 * words.size()))
    return *failed;
  auto trace = decodeTrace(m, words.data(), words.size());
  if (!trace)
    return trace.error;
  out.trace = std::move(*trace.value);
  std::vector<long long> metrics(m.metrics.size());
  if (Failure failed = run.read(AT(metrics), metrics.data(), sizeof(long long) * metrics.size()))
    return *failed;
  for (size_t i = 0; i < metrics.size(); ++i)
    out.trace.metrics[m.metrics[i]] = metrics[i];
  for (const auto &[entry, number] : open) {
    auto one = openOne(run, entry, number);
    if (!one)
      return one.error;
    out.open.push_back(std::move(*one.value));
  }
  return out;
}

// --- the host's side of the rings

void HostRings::put(const abi::Order &order) {
  const uint32_t at = ordersPut & static_cast<uint32_t>(layout.ordersMask);
  access.write(memory + layout.orders + at * sizeof(order), &order, sizeof(order));
  access.storeRelease(&rings().ordersPut, ++ordersPut);
}

void HostRings::arrive(int entry, int number, const Request &request, int edits, int64_t firstLine, bool promptLines) {
  std::vector<char> mailbox(layout.descriptorBytes, 0);
  std::vector<int> ends, inputs;
  writeRequest(manifest, request, number, mailbox.data(), static_cast<size_t>(entry) * layout.tokenWords, ends,
               static_cast<size_t>(entry) * layout.endWords, inputs, static_cast<size_t>(entry) * layout.inputWords);
  if (firstLine >= 0) {
    auto &header = *reinterpret_cast<abi::RequestHeader *>(mailbox.data());
    header.firstLine = static_cast<unsigned>(1 + firstLine);
    header.promptLines = promptLines;
    const int64_t before = promptLines ? promptLinesOf(request) : 0;
    const std::vector<uint32_t> none(static_cast<size_t>(before + request.maxNewTokens), 0);
    access.write(memory + layout.lineMarks + (firstLine - before) * 4, none.data(), none.size() * 4);
  }
  ends.resize(layout.endWords);
  inputs.resize(layout.inputWords);
  const auto add = [&mailbox](const void *from, size_t bytes) {
    mailbox.insert(mailbox.end(), static_cast<const char *>(from), static_cast<const char *>(from) + bytes);
  };
  const abi::Settings settings = settingsOf(request, seed, edits);
  add(&settings, sizeof(settings));
  add(ends.data(), ends.size() * sizeof(int));
  add(inputs.data(), inputs.size() * sizeof(int));
  add(request.tokens.data(), request.tokens.size() * sizeof(int32_t));
  mailbox.resize(upTo(mailbox.size(), 16)); // control reads 16 bytes at a time
  access.write(memory + layout.mailbox(entry), mailbox.data(), mailbox.size());
  promptLen[entry] = static_cast<int>(request.tokens.size());
  put({0, 0, entry, number, 0, request.deadlineMs, {}});
}

void HostRings::cancel(int entry, int number) { put({0, 0, entry, number, 1, 0, {}}); }

void HostRings::stop(uint32_t how) { access.storeRelease(&rings().stops, how); }

bool HostRings::there() {
  if (newsPut == newsRead)
    newsPut = access.loadAcquire(&rings().newsPut);
  return newsPut != newsRead;
}

abi::News HostRings::peek() {
  abi::News news;
  const uint32_t at = newsRead & static_cast<uint32_t>(layout.newsMask);
  access.read(&news, memory + layout.news + at * sizeof(news), sizeof(news));
  return news;
}

void HostRings::take(Update &update, int known) {
  const abi::News &news = update.news;
  const char *mailbox = memory + layout.mailbox(news.entry);
  if (news.generated > known) {
    update.tokens.resize(news.generated - known);
    const char *tokens = mailbox + layout.descriptorBytes + sizeof(abi::Settings) +
                         4 * (size_t(layout.endWords) + layout.inputWords + promptLen[news.entry] + known);
    access.read(update.tokens.data(), tokens, update.tokens.size() * sizeof(int32_t));
  }
  if (news.ended) {
    update.descriptor.resize(manifest.requestBytes);
    access.read(update.descriptor.data(), mailbox, update.descriptor.size());
  }
  ++newsRead;
}

std::vector<float> HostRings::logits(int64_t line) {
  uint32_t mark = 0;
  access.read(&mark, memory + layout.lineMarks + line * 4, sizeof(mark));
  if (!mark)
    return {};
  std::vector<float> out(static_cast<size_t>(manifest.models.front().vocab));
  access.read(out.data(), memory + layout.lines + static_cast<size_t>(line) * layout.lineBytes,
              out.size() * sizeof(float));
  return out;
}

void HostRings::release() { access.storeRelease(&rings().newsRead, newsRead); }

LiveView HostRings::view() const {
  const auto *word = reinterpret_cast<const uint32_t *>(memory + layout.state);
  const auto next = [&] { return access.loadRelaxed(word++); };
  const auto nextLong = [&] {
    const uint64_t low = next();
    return static_cast<int64_t>(uint64_t(next()) << 32 | low);
  };
  LiveView out;
  out.ticks = next();
  out.written = next() != 0;
  out.passes = nextLong();
  out.rows = nextLong();
  for (size_t i = 0; i < manifest.models.size(); ++i) {
    out.unheldPages.push_back(next());
    out.cachedPages.push_back(next());
  }
  for (int64_t i = 0; i < manifest.slots; ++i) {
    LiveView::Slot &slot = out.slots.emplace_back();
    slot.entry = static_cast<int>(next()) - 1;
    slot.state = next();
    slot.promptTokens = next();
    slot.generated = next();
    slot.kvTokens = next();
  }
  for (size_t i = 0; i < manifest.metrics.size(); ++i)
    out.metrics.push_back(nextLong());
  for (size_t i = 0; i < manifest.metrics.size(); ++i)
    for (int64_t &times : out.increments.emplace_back(abi::kIncrements))
      times = nextLong();
  return out;
}

} // namespace megalith::runtime
