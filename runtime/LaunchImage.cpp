#include "runtime/LaunchImage.h"
#include "megalith/Requests/Inputs.h"
#include "megalith/Requests/PageOrder.h"
#include "runtime/Edits.h"
#include "runtime/Faults.h"
#include "runtime/TraceDecoder.h"
#include <algorithm>
#include <cstddef>
#include <cstring>

namespace megalith::runtime {

/// Name and offset of a member of LaunchParams.
#define MEMBER(name) #name, offsetof(abi::HostParams, name)
/// The same of a model's parameters.
#define MODEL_MEMBER(model, name)                                                                                      \
  #name, offsetof(abi::HostParams, models) + (model) * sizeof(abi::ModelParams) + offsetof(abi::ModelParams, name)

void LaunchBuffer::bind(abi::HostParams &params, const void *address) const {
  const char *const to = static_cast<const char *>(address) + before;
  std::memcpy(reinterpret_cast<char *>(&params) + member, &to, sizeof(to));
}

/// Of the keys, or of the values.
static size_t bytesOf(const Manifest::Pool &pool) {
  // A product that no number holds is more than any memory has.
  size_t bytes = 1;
  for (int64_t factor : {pool.layers + pool.bf16Layers, pool.pages + pool.sparePages, pool.kvHeads})
    if (__builtin_mul_overflow(bytes, static_cast<size_t>(factor), &bytes))
      bytes = SIZE_MAX / 4;
  constexpr int64_t most = 1ll << 40; // tokens of a page, for which the size of a head is a number
  const auto ofHead = static_cast<size_t>(
      abi::kvHeadBytes(std::min(pool.pageTokens, most), std::min(pool.headDim, most >> 20), pool.e4m3));
  if (pool.pageTokens > most || __builtin_mul_overflow(bytes, ofHead, &bytes))
    bytes = SIZE_MAX / 4;
  return bytes;
}

std::vector<LaunchBuffer> lastingBuffers(const Manifest &m) {
  std::vector<LaunchBuffer> buffers;
  for (size_t i = 0; i < m.models.size(); ++i) {
    const Manifest::Model &model = m.models[i];
    buffers.push_back({MODEL_MEMBER(i, workspace), static_cast<size_t>(model.workspaceBytes),
                       m.workspaceOnes ? LaunchBuffer::Ones : LaunchBuffer::Unwritten});
    buffers.push_back({MODEL_MEMBER(i, kCache), bytesOf(model.pool), LaunchBuffer::Unwritten});
    buffers.push_back({MODEL_MEMBER(i, vCache), bytesOf(model.pool), LaunchBuffer::Unwritten});
  }
  buffers.push_back({MEMBER(flagged), static_cast<size_t>(m.flaggedBytes), LaunchBuffer::Zero});
  return buffers;
}

LaunchBuffer &LaunchImage::add(const char *name, size_t member, size_t bytes, LaunchBuffer::Kind kind) {
  return buffers.emplace_back(LaunchBuffer{name, member, bytes, kind});
}

template <class T>
LaunchBuffer &LaunchImage::addImage(const char *name, size_t member, const std::vector<T> &data,
                                    LaunchBuffer::Kind kind) {
  const char *bytes = reinterpret_cast<const char *>(data.data());
  LaunchBuffer &buffer = add(name, member, data.size() * sizeof(T), kind);
  buffer.image.assign(bytes, bytes + buffer.bytes);
  return buffer;
}

Outcome<LaunchImage> LaunchImage::build(const Manifest &manifest, const std::vector<Request> &requests,
                                        const RunOptions &options, const LiveTable *live) {
  LaunchImage image(manifest, requests, options);
  if (live) {
    image.rings = RingLayout::of(manifest, *live);
    image.longest = live->tokens;
    image.how.logits = false; // their lines are the rings'
  }
  for (const Request &request : requests) {
    image.longest = std::max(image.longest, static_cast<int64_t>(request.tokens.size()) + request.maxNewTokens);
    image.mostNew = std::max(image.mostNew, request.maxNewTokens);
  }
  for (size_t i = 0; i < manifest.models.size(); ++i)
    image.addRope(i);
  image.addHost();
  image.addRequests();
  for (size_t i = 0; i < manifest.models.size(); ++i)
    image.addPool(i);
  if (manifest.reducing.any)
    image.addReducing();
  image.addResults();
  if (Failure failure = image.addHooks())
    return *failure;
  abi::HostParams &p = image.params;
  p.maxTicks = static_cast<int>(std::clamp<int64_t>(options.maxTicks, 0, INT32_MAX));
  p.delaySeed = options.delaySeed;
  if (std::any_of(manifest.models.begin(), manifest.models.end(), [](const auto &m) { return m.pool.pages > 0; }))
    p.kvInPlace = static_cast<int>(std::clamp<int64_t>(options.kvInPlace, 0, INT32_MAX));
  if (options.watchdogSeconds > 0) // off for what is no number, too
    p.watchdogNs = static_cast<long long>(std::min(options.watchdogSeconds, 1e9) * 1e9);
  return image;
}

void LaunchImage::bindRings(const void *address) {
  auto *memory = static_cast<char *>(const_cast<void *>(address));
  reinterpret_cast<abi::HostSide *>(buffers[indexOf(offsetof(abi::HostParams, host))].image.data())->rings = memory;
  if (rings->table.logitLines > 0)
    params.logits = reinterpret_cast<float *>(memory + rings->lines);
}

/// The rotary tables, each [positions][headDim / 2] of cosine and sine.
void LaunchImage::addRope(size_t model) {
  const Manifest::Model &described = manifest->models[model];
  const int64_t positions = positionsOf(described);
  params.models[model].maxPositions = static_cast<int>(positions);
  if (described.rope.headDim <= 0)
    return;
  const int64_t half = described.pool.headDim / 2;
  std::vector<float> table;
  table.reserve((1 + described.ropeBases.size()) * positions * half * 2);
  for (const RopeParams &rope : ropeTables(described.rope, described.ropeBases)) {
    const auto frequencies = inverseFrequencies(rope);
    std::vector<float> c(half, 1.0f), s(half, 0.0f); // what is not turned
    for (int64_t p = 0; p < positions; ++p) {
      ropeCosSin(frequencies, rope.attention, p, c.data(), s.data());
      for (int64_t i = 0; i < half; ++i)
        table.insert(table.end(), {c[i], s[i]});
    }
  }
  addImage(MODEL_MEMBER(model, ropeCosSin), table, LaunchBuffer::Const);
}

static_assert(abi::kMostHostEvents == MostHostEvents);

/// What the host wants. That of a batch says all of it here.
void LaunchImage::addHost() {
  // A trace of a live session has a clock, whatever its requests are.
  if (!rings && !manifest->host && !hasHostSide(asked) && !(how.host && !how.host->clock.empty()))
    return;
  const HostScript script = how.host ? *how.host : hostScript(asked);
  std::vector<char> bytes(sizeof(abi::HostSide));
  const auto put = [&](const auto &value) {
    const char *first = reinterpret_cast<const char *>(&value);
    bytes.insert(bytes.end(), first, first + sizeof(value));
  };
  for (size_t i = 0; i < entries(); ++i)
    put(abi::Arrival{-1, 0, 0, -1, 0, 0, 0});
  for (const int32_t milliseconds : script.clock)
    put(milliseconds);
  bytes.resize((bytes.size() + alignof(abi::Order) - 1) / alignof(abi::Order) * alignof(abi::Order));
  abi::HostSide side = {};
  side.coming = rings ? 1 : static_cast<int>(asked.size());
  side.initialState = static_cast<int>(manifest->initialState);
  side.realClock = rings || (how.realClock && script.clock.empty());
  side.clockTicks = static_cast<int>(script.clock.size());
  side.nextDeadline = abi::kNoDeadline;
  if (rings) {
    static_cast<abi::RingPlaces &>(side) = *rings;
    const int64_t idleMs = rings->table.idleMs;
    side.idleNs = idleMs < 0 ? -1 : std::min<int64_t>(idleMs, INT64_MAX / 1000000) * 1000000;
  } else {
    side.orders = static_cast<int>(bytes.size());
    side.ordersMask = -1;
    side.ordersHeard = static_cast<unsigned>(script.events.size());
  }
  for (const HostEvent &event : script.events)
    put(abi::Order{static_cast<int>(event.when.tick),
                   static_cast<int>(event.when.ms),
                   event.request,
                   event.request,
                   event.cancels,
                   asked[event.request].deadlineMs,
                   {}});
  std::memcpy(bytes.data(), &side, sizeof(side));
  addImage(MEMBER(host), bytes, LaunchBuffer::Image).fetch = true;
}

/// The table, the slots, and what stages keep.
void LaunchImage::addRequests() {
  params.numRequests = static_cast<int>(entries());
  std::vector<char> descriptors(std::max<size_t>(1, entries()) * manifest->requestBytes, 0);
  for (size_t i = 0; i < entries(); ++i) {
    auto &header = *reinterpret_cast<abi::RequestHeader *>(descriptors.data() + i * manifest->requestBytes);
    header.state = header.slot = header.waitingSite = header.number = -1;
  }
  std::vector<int> tokens, inputs, eos(1, -1);
  size_t timeRecords = 0;
  for (size_t i = 0; i < asked.size(); ++i) {
    const Request &request = asked[i];
    char *base = descriptors.data() + i * manifest->requestBytes;
    writeRequest(*manifest, request, static_cast<int>(i), base, tokens.size(), eos, 0, inputs, 0);
    auto &header = *reinterpret_cast<abi::RequestHeader *>(base);
    if (indexOf(offsetof(abi::HostParams, host)) < buffers.size())
      header.state = -1; // it has to arrive
    tokenBegin.push_back(tokens.size());
    header.timeBegin = static_cast<long long>(timeRecords);
    timeBegin.push_back(timeRecords);
    timeRecords += 1 + request.maxNewTokens;
    tokens.insert(tokens.end(), request.tokens.begin(), request.tokens.end());
    tokens.resize(tokens.size() + request.maxNewTokens, -1);
  }
  if (tokens.empty())
    tokens.push_back(0);
  addImage(MEMBER(requests), descriptors, LaunchBuffer::Image).fetch = true;
  if (rings) {
    const auto addWords = [this](const char *name, size_t member, int words) {
      add(name, member, entries() * words * sizeof(int), LaunchBuffer::Unwritten);
    };
    addWords(MEMBER(tokens), rings->tokenWords);
    addWords(MEMBER(inputs), rings->inputWords);
    addWords(MEMBER(eos), rings->endWords);
    params.increments = static_cast<int>(manifest->metrics.size());
  } else {
    addImage(MEMBER(tokens), tokens, LaunchBuffer::Image).fetch = true;
    add(MEMBER(times), timeRecords * sizeof(abi::TimeRecord), LaunchBuffer::Zero).fetch = true;
    if (!inputs.empty())
      addImage(MEMBER(inputs), inputs, LaunchBuffer::Const);
    addImage(MEMBER(eos), eos, LaunchBuffer::Const);
  }
  addImage(MEMBER(slots), std::vector<abi::Slot>(manifest->slots, abi::Slot{-1, 0}), LaunchBuffer::Image);
  add(MEMBER(callTokens), manifest->slots * manifest->callTokens * sizeof(int), LaunchBuffer::Unwritten);
  if (manifest->scratchBytes > 0)
    add(MEMBER(scratch), manifest->scratchBytes, LaunchBuffer::Unwritten);
}

void LaunchImage::addPool(size_t model) {
  const Manifest::Pool &pool = manifest->models[model].pool;
  abi::ModelParams &p = params.models[model];
  const auto seed = how.shufflePages ? std::optional(*how.shufflePages + model) : std::nullopt;
  std::vector<int32_t> pages = pageOrder(pool.pages, seed);
  std::reverse(pages.begin(), pages.end()); // a stack: the first page on top
  const int64_t mostPages = positionsOf(manifest->models[model]) / pool.pageTokens + 2;
  p.pageTableStride = static_cast<int>(std::min(pool.pages, mostPages));
  add(MODEL_MEMBER(model, pageTable), manifest->slots * p.pageTableStride * sizeof(int), LaunchBuffer::Unwritten);
  addImage(MODEL_MEMBER(model, freeList), pages, LaunchBuffer::Image);
  if (pool.index)
    add(MODEL_MEMBER(model, index), abi::indexBytes(pool.pages, pool.pageTokens), LaunchBuffer::Zero);
}

void LaunchImage::addReducing() {
  // What changes rows of logits: of a batch all of it, of a live session room for what comes.
  const bool edits = manifest->reducing.textBytes > 0;
  std::vector<char> images;
  EditImages all(edits && !rings ? static_cast<size_t>(INT32_MAX) * 16 : 0, manifest->models.front().vocab);
  const auto put = [&](int place, const std::vector<char> &image) {
    images.resize(std::max(images.size(), place * size_t{16} + image.size()));
    std::copy(image.begin(), image.end(), images.begin() + place * std::ptrdiff_t{16});
    return true;
  };
  bool texts = edits && rings;
  std::vector<abi::Settings> settings;
  for (const Request &request : asked) {
    std::optional<int> place;
    if (edits && request.sampling.edits())
      place = all.add(request, put);
    settings.push_back(settingsOf(request, how.seed, place.value_or(abi::kNone)));
    texts |= place && settings.back().byText;
  }
  if (edits && rings)
    add(MEMBER(edits), rings->table.editBytes, LaunchBuffer::Zero);
  else if (!images.empty())
    addImage(MEMBER(edits), images, LaunchBuffer::Const);
  if (texts)
    add(MEMBER(texts), manifest->reducing.textBytes, LaunchBuffer::Unwritten);
  if (rings)
    add(MEMBER(settings), entries() * sizeof(abi::Settings), LaunchBuffer::Unwritten);
  else
    addImage(MEMBER(settings), settings, LaunchBuffer::Const);
  if (!manifest->reducing.queryBytes)
    return;
  add(MEMBER(queries), manifest->reducing.queryBytes, LaunchBuffer::Unwritten);
  add(MEMBER(reduced), manifest->rowsPerPass * (1 + manifest->reducing.words) * sizeof(unsigned), LaunchBuffer::Zero);
  add(MEMBER(selection), manifest->reducing.selectionBytes, LaunchBuffer::Unwritten).before =
      manifest->reducing.keptBytes;
}

void LaunchImage::addResults() {
  add(MEMBER(sync), abi::kSyncWords * sizeof(unsigned), LaunchBuffer::Zero);
  add(MEMBER(stop), sizeof(abi::StopRecord), LaunchBuffer::Zero).fetch = true;
  const size_t metrics = manifest->metrics.size() * (params.increments ? 1 + abi::kIncrements : 1);
  add(MEMBER(metrics), std::max<size_t>(1, metrics) * sizeof(long long), LaunchBuffer::Zero).fetch = true;
  add(MEMBER(stats), sizeof(abi::Stats), LaunchBuffer::Zero).fetch = true;
  params.ticksPerLaunch = how.ticksPerLaunch || how.control == Control::Resident ? int(how.ticksPerLaunch) : 1;
  if (params.ticksPerLaunch > 0 || rings)
    addKept();
  if (how.trace) {
    add(MEMBER(trace), how.traceBytes / 4 * 4, LaunchBuffer::Unwritten).fetch = true;
    params.traceCapacity = static_cast<long long>(how.traceBytes / 4);
    params.kvHash = how.kvHash;
  }
  if (how.tickRecords > 0) {
    params.tickCapacity = static_cast<int>(std::min<int64_t>(how.tickRecords, 1 << 24));
    add(MEMBER(ticks), params.tickCapacity * sizeof(abi::TickRecord), LaunchBuffer::Zero).fetch = true;
  }
  if (how.stampTicks > 0 && !manifest->stamps.empty()) {
    params.stampTicks = static_cast<int>(how.stampTicks);
    params.stampWords = static_cast<int>(2 * manifest->stamps.size());
    add(MEMBER(stamps), how.stampTicks * manifest->ctas * params.stampWords * sizeof(long long), LaunchBuffer::Zero)
        .fetch = true;
  }
  int64_t lines = 0;
  if (how.replay) {
    addImage(MEMBER(replay), *how.replay, LaunchBuffer::Const);
    params.replayRows = params.logitsRows = lines = static_cast<int64_t>(how.replay->size());
  } else if (how.logits) {
    params.logitsRows = mostNew;
    lines = static_cast<int64_t>(asked.size()) * mostNew + manifest->draftLines;
  }
  if (how.replay || how.logits)
    add(MEMBER(logits), lines * manifest->mostVocab() * sizeof(float),
        manifest->draftLines ? LaunchBuffer::Zero : LaunchBuffer::Unwritten)
        .fetch = true;
}

/// What goes from launch to launch.
void LaunchImage::addKept() {
  abi::Kept kept = {};
  kept.renewPasses = how.renewPasses;
  std::vector<char> bytes(sizeof(kept) + manifest->controlBytes, 0);
  std::memcpy(bytes.data(), &kept, sizeof(kept));
  addImage(MEMBER(kept), bytes, LaunchBuffer::Image);
}

Failure LaunchImage::addHooks() {
  size_t stride = 0;
  for (const auto &draft : how.oracleDrafts)
    stride = std::max(stride, draft.size());
  std::vector<int> oracle(stride * asked.size(), -1);
  for (size_t i = 0; i < how.oracleDrafts.size() && i < asked.size(); ++i)
    std::copy(how.oracleDrafts[i].begin(), how.oracleDrafts[i].end(), oracle.begin() + i * stride);
  if (!oracle.empty()) {
    addImage(MEMBER(oracle), oracle, LaunchBuffer::Const);
    params.oracleStride = static_cast<int>(stride);
  }
  std::vector<abi::Corruption> corruptions;
  for (const Corruption &c : how.corruptions) {
    int offset = -1;
    if (c.field == "state")
      offset = offsetof(abi::RequestHeader, state);
    for (const Manifest::Field &field : manifest->fields)
      if (field.name == c.field)
        offset = static_cast<int>(field.offset);
    if (offset < 0)
      return RuntimeError{"corrupt-field", "no field `" + c.field + "` to corrupt"};
    corruptions.push_back(
        {static_cast<int>(std::min<int64_t>(c.tick, INT32_MAX)), c.request, offset, static_cast<int>(c.value)});
  }
  if (!corruptions.empty()) {
    addImage(MEMBER(corruptions), corruptions, LaunchBuffer::Const);
    params.numCorruptions = static_cast<int>(corruptions.size());
  }
  return std::nullopt;
}

size_t LaunchImage::indexOf(size_t member) const {
  const auto found =
      std::find_if(buffers.begin(), buffers.end(), [&](const LaunchBuffer &b) { return b.member == member; });
  return static_cast<size_t>(found - buffers.begin());
}

template <class T> const T *LaunchImage::result(size_t member) const {
  const size_t i = indexOf(member);
  return i < buffers.size() ? reinterpret_cast<const T *>(buffers[i].result) : nullptr;
}
#define RESULT(T, name) result<T>(offsetof(abi::HostParams, name))

bool LaunchImage::unfinished() const { return RESULT(abi::Stats, stats)->unfinished != 0; }
bool LaunchImage::renews() const { return RESULT(abi::Stats, stats)->unfinished == abi::kRenews; }

RunOutcome LaunchImage::counts() const {
  const abi::Stats &stats = *RESULT(abi::Stats, stats);
  RunOutcome out;
  out.ticks = stats.ticks;
  out.passes = stats.passes;
  out.rows = stats.rows;
  out.traceDropped = stats.traceDropped;
  out.begin = stats.begin;
  return out;
}

void LaunchImage::readRowLogits(RunOutcome &out) const {
  const int64_t stride = manifest->mostVocab();
  const float *line = RESULT(float, logits);
  for (const TraceTick &tick : out.trace.ticks)
    for (const TracePass &pass : tick.passes) {
      const int64_t vocab = manifest->model(pass.model).vocab;
      for (const Row &row : pass.rows) {
        if (static_cast<long long>(out.rowLogits.size()) == params.logitsRows)
          return;
        out.rowLogits.emplace_back();
        if (row.flags & RowWantsLogits)
          out.rowLogits.back().assign(line, line + vocab);
        line += stride;
      }
    }
}

RunOutcome::Times LaunchImage::timesOf(size_t request, int64_t generated) const {
  const uint64_t zero = RESULT(abi::Stats, stats)->begin;
  const abi::TimeRecord *records = RESULT(abi::TimeRecord, times) + timeBegin[request];
  const auto moment = [&](const abi::TimeRecord &r) {
    const uint64_t at = uint64_t(r.high) << 32 | r.low;
    return RunOutcome::Moment{r.tick, r.tokens, at > zero ? at - zero : 0};
  };
  RunOutcome::Times out;
  if (const auto *side = RESULT(abi::HostSide, host)) {
    const auto &arrival = reinterpret_cast<const abi::Arrival *>(side + 1)[request];
    const uint64_t due = zero + static_cast<uint64_t>(asked[request].arrives.ms) * 1000000;
    // Who comes at a time waits from then on, even if a tick goes on.
    const uint64_t at = how.realClock && asked[request].arrives.ms > 0 ? due : uint64_t(arrival.at);
    if (arrival.tick >= 0)
      out.arrived = {arrival.tick, 0, at > zero ? at - zero : 0};
  } else {
    out.arrived = RunOutcome::Moment{0, 0, 0};
  }
  if (records[0].tokens)
    out.admitted = moment(records[0]);
  for (int64_t i = 0; i < generated && records[1 + i].tokens > 0; i += records[1 + i].tokens)
    out.append(moment(records[1 + i]));
  return out;
}

void LaunchImage::readTimes(RunOutcome &out) const {
  const auto *ticks = RESULT(abi::TickRecord, ticks);
  for (int64_t t = 0; t < std::min<int64_t>(out.ticks + 1, params.tickCapacity); ++t)
    out.tickRecords.push_back(
        {ticks[t].begin, ticks[t].open, ticks[t].prompts, ticks[t].generated, ticks[t].kvTokens, ticks[t].rows});
  if (const auto *stamps = RESULT(unsigned long long, stamps))
    out.stamps.assign(stamps, stamps + params.stampTicks * manifest->ctas * params.stampWords);
}

std::optional<RunOutcome::Stop> stopOf(const Manifest &m, const abi::StopRecord &stop) {
  if (!stop.code)
    return std::nullopt;
  const Manifest::Edge *edge =
      stop.edge >= 0 && stop.edge < static_cast<int>(m.edges.size()) ? &m.edges[stop.edge] : nullptr;
  return RunOutcome::Stop{stop.cta, stop.edge, stop.tick, edge ? edge->name : "", edge ? edge->place : ""};
}

static bool hasEnded(const abi::RequestHeader &header, const Manifest &m) {
  return header.state >= 0 && header.state < static_cast<int>(m.states.size()) && m.states[header.state].terminal;
}

/// How it ended. `hasHost`: requests may not have arrived.
static RequestEnd endOf(const abi::RequestHeader &header, const Manifest &m, bool hasHost) {
  RequestEnd r;
  const bool terminal = hasEnded(header, m);
  const bool arrived = header.state >= 0 || !hasHost;
  r.state = m.stateName(arrived ? header.state : static_cast<unsigned>(m.initialState));
  r.finish = finishOf(faultName(static_cast<unsigned>(header.fault)), terminal, header.eosSeen,
                      header.generated >= header.maxNewTokens);
  if (r.finish == "fault")
    setFault(r, header, m);
  r.passes = header.passes;
  r.rows = header.rows;
  if (m.indexBegin)
    r.found = reinterpret_cast<const abi::IndexedRequest<1> *>(reinterpret_cast<const char *>(&header) + m.indexBegin)
                  ->foundFirst;
  return r;
}

RequestEnd endOf(const Manifest &manifest, const abi::RequestHeader &header) { return endOf(header, manifest, true); }

Outcome<RunOutcome> LaunchImage::outcome(const std::vector<char> *before) const {
  const Manifest &m = *manifest;
  RunOutcome out = counts();
  out.interrupted = before;
  for (size_t i = 0; i < m.metrics.size(); ++i)
    out.metrics[m.metrics[i]] = RESULT(long long, metrics)[i];
  out.stop = stopOf(m, *RESULT(abi::StopRecord, stop));
  const char *descriptors = RESULT(char, requests);
  const int *tokens = RESULT(int, tokens);
  const float *logits = RESULT(float, logits);
  for (size_t i = 0; i < asked.size(); ++i) {
    const auto &header = *reinterpret_cast<const abi::RequestHeader *>(descriptors + i * m.requestBytes);
    TraceRequest r{endOf(header, m, RESULT(abi::HostSide, host) != nullptr)};
    r.id = asked[i].id;
    r.sampling = asked[i].sampling;
    for (const Manifest::InputField &input : m.inputs)
      r.inputs[input.name] = inputValue(input, asked[i]);
    const int generated = std::max(0, std::min<int>(header.generated, asked[i].maxNewTokens));
    const int *first = tokens + tokenBegin[i] + asked[i].tokens.size();
    r.tokens.assign(first, first + generated);
    if (before && !hasEnded(*reinterpret_cast<const abi::RequestHeader *>(before->data() + i * m.requestBytes), m))
      r.finish = "limit";
    r.format = formatOf(asked[i], r.tokens);
    out.requests.push_back(std::move(r));
    out.times.push_back(timesOf(i, generated));
    if (how.logits && !how.replay) {
      // Of several models those of the first.
      const int64_t vocab = m.models.front().vocab, stride = m.mostVocab();
      const float *row = logits + i * mostNew * stride;
      out.logits.emplace_back();
      for (int64_t t = 0; t < generated; ++t, row += stride)
        out.logits.back().insert(out.logits.back().end(), row, row + vocab);
    }
  }
  if (how.trace && !before) {
    const long long words = std::clamp<long long>(RESULT(abi::Stats, stats)->traceWords, 0, params.traceCapacity);
    auto trace = decodeTrace(m, RESULT(unsigned, trace), static_cast<size_t>(words));
    if (!trace)
      return trace.error;
    out.trace = std::move(*trace.value);
    out.trace.pipeline = m.pipeline;
    out.trace.seed = how.seed;
    out.trace.requests = out.requests;
    out.trace.metrics = out.metrics;
  }
  if (how.replay && !before)
    readRowLogits(out);
  readTimes(out);
  return out;
}

} // namespace megalith::runtime
