#include "runtime/LaunchImage.h"
#include "TinyManifest.h"
#include "device/Shape.h"
#include <cstring>
#include <gtest/gtest.h>

using namespace megalith::runtime;

namespace {

namespace abi = megalith::abi;

// 16 requests without fields stand in shared memory: else each tick of theirs takes 10 us longer on an H100.
static_assert(16 * sizeof(abi::RequestOf<1>) <= megalith::shape::seatBytes(1, false));
static_assert(16 * (sizeof(abi::RequestOf<1>) + sizeof(abi::IndexedRequest<1>)) <= megalith::shape::seatBytes(1, true));

using megalith::Request;

const std::vector<Request> twoRequests = {{"a", {1, 2, 3}, 4, std::vector<int32_t>{4}, 7}, {"b", {0}, 2, {}, 0}};

class LaunchImageTest : public ::testing::Test {
protected:
  LaunchImageTest() : manifest(*Manifest::parse(tinyManifest())) {}

  LaunchImage build(const std::vector<Request> &requests, const RunOptions &options = {}) {
    auto image = LaunchImage::build(manifest, requests, options);
    EXPECT_TRUE(image) << image.error.message;
    return std::move(*image.value);
  }

  static LaunchBuffer *find(std::vector<LaunchBuffer> &buffers, const std::string &name) {
    for (LaunchBuffer &buffer : buffers)
      if (buffer.name == name)
        return &buffer;
    return nullptr;
  }

  template <class T> static std::vector<T> words(LaunchImage &image, const std::string &name) {
    const LaunchBuffer *buffer = find(image.buffers, name);
    EXPECT_TRUE(buffer) << name;
    std::vector<T> out(buffer->image.size() / sizeof(T));
    std::memcpy(out.data(), buffer->image.data(), buffer->image.size());
    return out;
  }

  /// Memory for every buffer, as an engine makes it.
  void place(LaunchImage &image) {
    memories.clear();
    for (LaunchBuffer &buffer : image.buffers) {
      auto &memory = memories.emplace_back(buffer.bytes);
      if (!buffer.image.empty())
        memory = buffer.image;
      buffer.bind(image.params, memory.data());
      buffer.result = memory.data();
    }
  }

  abi::RequestHeader &header(LaunchImage &image, int request) {
    return *reinterpret_cast<abi::RequestHeader *>(image.params.requests + request * manifest.requestBytes);
  }

  Manifest manifest;
  std::vector<std::vector<char>> memories;
};

TEST_F(LaunchImageTest, StopSequencesStandAfterTheEosTokens) {
  std::vector<Request> requests = twoRequests;
  requests[0].stop = {{5, 6}, {7}};
  requests[1].stop = {{8}};
  LaunchImage image = build(requests);
  EXPECT_EQ(words<int>(image, "eos"), (std::vector<int>{-1, 4, 2, 5, 6, 1, 7, 1, 8}));
  place(image);
  EXPECT_EQ(header(image, 0).stopCount, 2);
  EXPECT_EQ(header(image, 0).eosCount, 1);
  EXPECT_EQ(header(image, 1).stopCount, 1);
  EXPECT_EQ(header(image, 1).eosCount, 0);
  EXPECT_EQ(header(image, 1).eosBegin, 7);
}

TEST_F(LaunchImageTest, DescribesTheRequests) {
  LaunchImage image = build(twoRequests);
  EXPECT_EQ(words<int>(image, "tokens"), (std::vector<int>{1, 2, 3, -1, -1, -1, -1, 0, -1, -1}));
  EXPECT_EQ(words<int>(image, "eos"), (std::vector<int>{-1, 4}));
  auto bytes = words<char>(image, "requests");
  ASSERT_EQ(bytes.size(), 224u);
  abi::RequestHeader a, b;
  std::memcpy(&a, bytes.data(), sizeof a);
  std::memcpy(&b, bytes.data() + 112, sizeof b);
  EXPECT_EQ(a.state, 1);
  EXPECT_EQ(a.slot, -1);
  EXPECT_EQ(a.priority, 7);
  EXPECT_EQ(a.promptLen, 3);
  EXPECT_EQ(a.numTokens, 3);
  EXPECT_EQ(a.maxNewTokens, 4);
  EXPECT_EQ(a.eosBegin, 1);
  EXPECT_EQ(a.eosCount, 1);
  EXPECT_EQ(a.waitingSite, -1);
  EXPECT_EQ(a.tokenBegin, 0);
  EXPECT_EQ(b.tokenBegin, 7);
  EXPECT_EQ(a.timeBegin, 0);
  EXPECT_EQ(b.timeBegin, 1 + 4);
  EXPECT_EQ(b.eosCount, 0);
  EXPECT_EQ(a.stopCount, 0);
  for (int base : {0, 112}) {
    int window, draft;
    float rate;
    std::memcpy(&window, &bytes[base + 96], 4);
    std::memcpy(&rate, &bytes[base + 100], 4);
    std::memcpy(&draft, &bytes[base + 104], 4);
    EXPECT_EQ(window, 3);
    EXPECT_EQ(rate, 0.5f);
    EXPECT_EQ(draft, 0) << "a sequence starts empty";
  }
  EXPECT_EQ(image.params.numRequests, 2);
  EXPECT_EQ(image.params.models[0].maxPositions, 3 + 4 + 3 + 1);
  EXPECT_EQ(words<float>(image, "ropeCosSin").size(), 11u * 2 * 2);
  EXPECT_EQ(words<float>(image, "ropeCosSin")[0], 1.0f);
  EXPECT_EQ(words<int>(image, "freeList"), (std::vector<int>{3, 2, 1, 0})) << "page 0 on top";
  EXPECT_FALSE(find(image.buffers, "index"));
  EXPECT_EQ(image.params.models[0].pageTableStride, 4);
}

TEST_F(LaunchImageTest, WritesWhatRequestsBring) {
  manifest.requestBytes = 144;
  manifest.inputs.resize(3);
  const auto declare = [&](size_t i, const char *name, const char *type, std::optional<int64_t> capacity,
                           std::optional<megalith::InputValue> otherwise, int64_t offset) {
    Manifest::InputField &input = manifest.inputs[i];
    input.name = name;
    input.type = type;
    input.capacity = capacity;
    input.otherwise = otherwise;
    input.offset = offset;
  };
  declare(0, "text", "token", 4, {}, 112);
  declare(1, "tenant", "i32", {}, 3.0, 128);
  declare(2, "share", "f32", {}, 0.5, 132);
  std::vector<Request> requests = twoRequests;
  requests[0].inputs = {{"text", std::vector<int32_t>{8, 9}}, {"tenant", int64_t(15)}, {"share", int64_t(2)}};
  requests[1].inputs = {{"text", std::vector<int32_t>{5}}};
  LaunchImage image = build(requests);
  auto bytes = words<char>(image, "requests");
  struct Brought {
    abi::InputRange text;
    int tenant;
    float share;
  } a, b;
  std::memcpy(&a, &bytes[112], sizeof a);
  std::memcpy(&b, &bytes[144 + 112], sizeof b);
  EXPECT_EQ(words<int>(image, "inputs"), (std::vector<int>{8, 9, 5}));
  EXPECT_EQ(find(image.buffers, "inputs")->kind, LaunchBuffer::Const);
  EXPECT_EQ(find(image.buffers, "inputs")->member, offsetof(abi::LaunchParams, inputs));
  EXPECT_EQ(a.text.begin, 0);
  EXPECT_EQ(a.text.length, 2);
  EXPECT_EQ(b.text.begin, 2);
  EXPECT_EQ(b.text.length, 1);
  EXPECT_EQ(a.tenant, 15);
  EXPECT_EQ(b.tenant, 3) << "the default";
  EXPECT_EQ(a.share, 2.0f);
  EXPECT_EQ(b.share, 0.5f);
  declare(2, "text", "token", 4, std::vector<int32_t>(), 112);
  manifest.inputs.erase(manifest.inputs.begin(), manifest.inputs.begin() + 2);
  LaunchImage none = build(twoRequests);
  EXPECT_FALSE(find(none.buffers, "inputs")) << "no request brings a token";
}

/// Codes of K and V, and their scales: those of a head in a page up to a multiple of 16 bytes.
TEST_F(LaunchImageTest, APoolOfCodes) {
  Manifest::Pool &pool = manifest.models[0].pool;
  pool = {.pages = 3, .pageTokens = 9, .layers = 2, .kvHeads = 5, .headDim = 16, .rowsBeyond = 0, .place = ""};
  EXPECT_EQ(lastingBuffers(manifest)[1].bytes, 2 * 3 * 5 * 9 * 16 * 2u);
  pool.e4m3 = true;
  EXPECT_EQ(lastingBuffers(manifest)[1].bytes, 2 * 3 * 5 * (9 * 16 + 32u));
  EXPECT_EQ(lastingBuffers(manifest)[2].bytes, 2 * 3 * 5 * (9 * 16 + 32u));
  pool.bf16Layers = 1;
  EXPECT_EQ(lastingBuffers(manifest)[1].bytes, 3 * 3 * 5 * (9 * 16 + 32u)) << "in the place of two";
}

/// A pool with an index has memory for it, and for rows at places that others may read; requests have what they ask of
/// it, and what they found.
TEST_F(LaunchImageTest, AnIndex) {
  manifest.models[0].pool.index = true;
  manifest.models[0].pool.sparePages = 3;
  manifest.indexBegin = 112;
  manifest.requestBytes = 112 + sizeof(abi::IndexedRequest<1>);
  std::vector<Request> requests = twoRequests;
  requests[1].cache = int64_t(1) << 40;
  LaunchImage image = build(requests);
  const LaunchBuffer &index = *find(image.buffers, "index");
  EXPECT_EQ(index.kind, LaunchBuffer::Zero) << "no page is in it";
  EXPECT_EQ(index.bytes, 4 * sizeof(abi::IndexedPage) + 4 * (4 + 4 * 2));
  EXPECT_EQ(index.member, offsetof(abi::LaunchParams, models) + offsetof(abi::ModelParams, index));
  EXPECT_EQ(lastingBuffers(manifest)[1].name, std::string("kCache"));
  EXPECT_EQ(lastingBuffers(manifest)[1].bytes, 2 * 2 * (4 + 3) * 2 * 4u);
  auto bytes = words<char>(image, "requests");
  const auto of = [&](size_t i) {
    return reinterpret_cast<abi::IndexedRequest<1> *>(&bytes[i * manifest.requestBytes + 112]);
  };
  EXPECT_EQ(of(0)->cache, 0);
  EXPECT_EQ(of(1)->cache, int64_t(1) << 40);
  place(image);
  reinterpret_cast<abi::IndexedRequest<1> *>(reinterpret_cast<char *>(&header(image, 0)) + 112)->foundFirst = 2;
  auto out = image.outcome();
  ASSERT_TRUE(out) << out.error.message;
  EXPECT_EQ(out->requests[0].found, 2);
}

/// What a checked launch may not read before it is written is exactly what the kernel makes.
TEST_F(LaunchImageTest, SaysWhoWritesWhat) {
  RunOptions options;
  options.trace = options.logits = true;
  options.traceBytes = 1000;
  options.oracleDrafts = {{1, 2}};
  options.corruptions = {{1, 0, "window", 5}};
  LaunchImage image = build(twoRequests, options);
  std::map<LaunchBuffer::Kind, std::vector<std::string>> kinds;
  std::map<std::string, size_t> bytes;
  for (const LaunchBuffer &buffer : image.buffers) {
    kinds[buffer.kind].push_back(buffer.name);
    bytes[buffer.name] = buffer.bytes;
  }
  using Names = std::vector<std::string>;
  EXPECT_EQ(kinds[LaunchBuffer::Const], (Names{"ropeCosSin", "eos", "oracle", "corruptions"}));
  EXPECT_EQ(kinds[LaunchBuffer::Image], (Names{"requests", "tokens", "slots", "freeList"}));
  EXPECT_EQ(kinds[LaunchBuffer::Zero], (Names{"times", "sync", "stop", "metrics", "stats"}));
  EXPECT_EQ(kinds[LaunchBuffer::Unwritten], (Names{"callTokens", "pageTable", "trace", "logits"}));
  EXPECT_EQ(bytes["times"], (1 + 4 + 1 + 2) * 16u);
  EXPECT_EQ(bytes["callTokens"], 2u * 8 * 4);
  EXPECT_EQ(bytes["pageTable"], 2u * 4 * 4);
  EXPECT_EQ(bytes["metrics"], 16u);
  EXPECT_EQ(bytes["trace"], 1000u);
  EXPECT_EQ(bytes["logits"], 2u * 4 * 5 * 4);
  EXPECT_EQ(image.params.traceCapacity, 250);
  EXPECT_EQ(image.params.logitsRows, 4);

  Names lasting;
  std::vector<size_t> sizes;
  for (const LaunchBuffer &buffer : lastingBuffers(manifest)) {
    // Flagged words are polled before anybody wrote them.
    EXPECT_EQ(buffer.kind, buffer.name == std::string("flagged") ? LaunchBuffer::Zero : LaunchBuffer::Unwritten);
    lasting.push_back(buffer.name);
    sizes.push_back(buffer.bytes);
  }
  EXPECT_EQ(lasting, (Names{"workspace", "kCache", "vCache", "flagged"}));
  EXPECT_EQ(sizes, (std::vector<size_t>{512, 2 * 2 * 4 * 2 * 4, 2 * 2 * 4 * 2 * 4, 256}));
}

/// The names are the members': an address lands where the kernel looks for it.
TEST_F(LaunchImageTest, EveryPointerIsBound) {
  RunOptions options;
  options.trace = options.logits = true;
  options.oracleDrafts = {{1}};
  options.corruptions = {{1, 0, "state", 5}};
  options.replay = {{1}};
  options.tickRecords = 4;
  options.stampTicks = 2;
  manifest.stamps = {{"control", -1}};
  LaunchImage image = build(twoRequests, options);
  auto lasting = lastingBuffers(manifest);
  std::vector<LaunchBuffer *> all;
  for (auto *buffers : {&image.buffers, &lasting})
    for (LaunchBuffer &buffer : *buffers)
      all.push_back(&buffer);
  std::vector<char> memory(all.size());
  for (size_t i = 0; i < all.size(); ++i)
    all[i]->bind(image.params, &memory[i]);
  std::map<std::string, const void *> members;
#define ADD(name) members[#name] = image.params.name;
#define ADD_OF_MODEL(name) members[#name] = image.params.models[0].name;
  // clang-format off
  ADD_OF_MODEL(ropeCosSin) ADD(requests) ADD(tokens) ADD(times) ADD(eos) ADD(slots) ADD(callTokens) ADD_OF_MODEL(pageTable) ADD_OF_MODEL(freeList)
  ADD_OF_MODEL(kCache) ADD_OF_MODEL(vCache) ADD_OF_MODEL(workspace) ADD(flagged) ADD(sync) ADD(stop) ADD(metrics)
  ADD(stats) ADD(trace) ADD(logits) ADD(replay) ADD(oracle)
  ADD(corruptions) ADD(ticks) ADD(stamps);
  // clang-format on
#undef ADD
#undef ADD_OF_MODEL
  EXPECT_EQ(members.size(), all.size()) << "the others are the weights and their packed stream";
  for (size_t i = 0; i < all.size(); ++i)
    EXPECT_EQ(members[all[i]->name], &memory[i]) << all[i]->name;
}

TEST_F(LaunchImageTest, OptionsBecomeNumbers) {
  RunOptions options;
  options.maxTicks = int64_t(1) << 40;
  options.delaySeed = 9;
  options.watchdogSeconds = 1.5;
  options.oracleDrafts = {{7}, {8, 9}};
  options.corruptions = {{int64_t(1) << 40, 1, "rate", -2}, {3, 0, "state", 1}};
  options.shufflePages = 3;
  LaunchImage image = build(twoRequests, options);
  EXPECT_EQ(image.params.maxTicks, INT32_MAX);
  EXPECT_EQ(image.params.delaySeed, 9u);
  EXPECT_EQ(image.params.watchdogNs, 1500000000);
  EXPECT_EQ(image.params.oracleStride, 2);
  EXPECT_EQ(words<int>(image, "oracle"), (std::vector<int>{7, -1, 8, 9}));
  EXPECT_EQ(image.params.numCorruptions, 2);
  EXPECT_EQ(words<int>(image, "corruptions"), (std::vector<int>{INT32_MAX, 1, 100, -2, 3, 0, 0, 1}));
  EXPECT_NE(words<int>(image, "freeList"), (std::vector<int>{3, 2, 1, 0}));
  options.watchdogSeconds = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(build(twoRequests, options).params.watchdogNs, 0);

  options.corruptions = {{1, 0, "windows", 1}};
  auto wrong = LaunchImage::build(manifest, twoRequests, options);
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error.message + " [" + wrong.error.kind + "]", "no field `windows` to corrupt [corrupt-field]");
}

/// Times come back: of each tick and of the end, and what the ring of stamps holds.
TEST_F(LaunchImageTest, BringsTimesBack) {
  RunOptions options;
  options.kvInPlace = 2;
  options.tickRecords = 3;
  options.stampTicks = 2;
  LaunchImage plain = build(twoRequests, options);
  EXPECT_FALSE(find(plain.buffers, "stamps")) << "this kernel has none";
  manifest.stamps = {{"control", -1}, {"w", 0}};
  LaunchImage image = build(twoRequests, options);
  EXPECT_EQ(image.params.kvInPlace, 2);
  EXPECT_EQ(image.params.tickCapacity, 3);
  EXPECT_EQ(image.params.stampWords, 4);
  EXPECT_EQ(find(image.buffers, "stamps")->bytes, 2u * 3 * 4 * 8) << "ticks, CTAs, begin and end of each event";
  place(image);
  image.params.stats->ticks = 1;
  image.params.ticks[0] = {1000, 2, 1, 3, 4, 5};
  image.params.ticks[1] = {2500, 0, 0, 6, 0, 0};
  image.params.stamps[23] = 77;
  auto out = image.outcome();
  ASSERT_TRUE(out) << out.error.message;
  ASSERT_EQ(out->tickRecords.size(), 2u);
  EXPECT_EQ(out->tickRecords[0].begin, 1000u);
  EXPECT_EQ(out->tickRecords[0].open, 2);
  EXPECT_EQ(out->tickRecords[0].prompts, 1);
  EXPECT_EQ(out->tickRecords[0].generated, 3);
  EXPECT_EQ(out->tickRecords[0].kvTokens, 4);
  EXPECT_EQ(out->tickRecords[0].rows, 5);
  EXPECT_EQ(out->tickRecords[1].begin, 2500u);
  ASSERT_EQ(out->stamps.size(), 24u);
  EXPECT_EQ(out->stamps[23], 77u);

  image.params.stats->ticks = 9;
  EXPECT_EQ(image.outcome()->tickRecords.size(), 3u) << "no more than there was room for";
  manifest.models[0].pool.pages = 0;
  EXPECT_EQ(build(twoRequests, options).params.kvInPlace, 0) << "a model without K and V";
}

/// Admission and appends of each request, from the begin of the run.
TEST_F(LaunchImageTest, BringsTimesOfRequestsBack) {
  LaunchImage image = build(twoRequests);
  place(image);
  image.params.stats->begin = 1000;
  abi::TimeRecord *a = image.params.times, *b = a + 1 + 4;
  a[0] = {1100, 0, 0, 1};
  a[1] = {1200, 0, 1, 3}; // tokens 0 to 2
  a[4] = {1300, 1, 4, 1};
  header(image, 0).generated = 4;
  b[0] = {900, 0, 2, 1}; // before the run began: no kernel does so
  b[1] = {1400, 0, 5, 0};
  header(image, 1).generated = 1;
  auto out = image.outcome();
  ASSERT_TRUE(out) << out.error.message;
  ASSERT_EQ(out->times.size(), 2u);
  const RunOutcome::Times &first = out->times[0], &second = out->times[1];
  ASSERT_TRUE(first.admitted);
  EXPECT_EQ(first.admitted->tick, 0);
  EXPECT_EQ(first.admitted->nanoseconds, 100u);
  ASSERT_EQ(first.appends.size(), 2u);
  EXPECT_EQ(first.appends[0].nanoseconds, 200u);
  EXPECT_EQ(first.appends[0].tokens, 3);
  EXPECT_EQ(first.appends[1].tick, 4);
  EXPECT_EQ(first.appends[1].nanoseconds, (uint64_t(1) << 32) + 300);
  ASSERT_TRUE(second.admitted);
  EXPECT_EQ(second.admitted->nanoseconds, 0u);
  EXPECT_TRUE(second.appends.empty()) << "a record without tokens is none";

  a[1].tokens = -1; // a kernel is never believed
  EXPECT_TRUE(image.outcome()->times[0].appends.empty());
  a[1].tokens = INT32_MAX;
  EXPECT_EQ(image.outcome()->times[0].appends.size(), 1u);
}

TEST_F(LaunchImageTest, NoRequestsIsARun) {
  LaunchImage image = build({});
  EXPECT_EQ(find(image.buffers, "tokens")->bytes, 4u);
  EXPECT_EQ(find(image.buffers, "requests")->bytes, 112u);
  place(image);
  auto out = image.outcome();
  ASSERT_TRUE(out);
  EXPECT_TRUE(out->requests.empty());
}

/// The results go in, one line of logits per row comes back.
TEST_F(LaunchImageTest, ReplaysResults) {
  RunOptions options;
  options.trace = options.logits = true;
  options.replay = {{-1, 3, 2}};
  LaunchImage image = build(twoRequests, options);
  EXPECT_EQ(words<int>(image, "replay"), (std::vector<int>{-1, 3, 2}));
  EXPECT_EQ(find(image.buffers, "replay")->kind, LaunchBuffer::Const);
  EXPECT_EQ(find(image.buffers, "logits")->kind, LaunchBuffer::Unwritten);
  EXPECT_EQ(find(image.buffers, "logits")->bytes, 3u * 5 * 4) << "per row, not per token";
  EXPECT_EQ(image.params.replayRows, 3);
  EXPECT_EQ(image.params.logitsRows, 3);
  place(image);
  const char *given = find(image.buffers, "replay")->result;
  EXPECT_EQ(image.params.replay, reinterpret_cast<const int *>(given));
  for (int i = 0; i < 15; ++i)
    image.params.logits[i] = float(i);
  header(image, 0).generated = 1;

  // Two ticks of two rows each: the last has no given result any more.
  // clang-format off
  const unsigned trace[] = {abi::kTraceTick, 24, 0, 0, 0, 2, 8, 0, 0, 1, 0, 0, 1, unsigned(-1), 0, unsigned(-1),
                            0, 2, 1, 1, 2, 0, 1, 3,
                            abi::kTraceTick, 24, 1, 0, 0, 2, 8, 0, 0, 3, 2, 2, 3, unsigned(-1), 1, 2,
                            1, 4, 0, 0, 1, unsigned(-1), 1, 4};
  // clang-format on
  std::memcpy(image.params.trace, trace, sizeof trace);
  image.params.stats->traceWords = std::size(trace);
  auto out = image.outcome();
  ASSERT_TRUE(out) << out.error.message;
  EXPECT_EQ(out->trace.ticks.size(), 2u);
  EXPECT_EQ(out->rowLogits, (std::vector<std::vector<float>>{{}, {5, 6, 7, 8, 9}, {10, 11, 12, 13, 14}}));
  EXPECT_TRUE(out->logits.empty());

  // Of an empty trace, too, the kernel is told that it replays.
  options.replay = std::vector<int32_t>();
  LaunchImage empty = build(twoRequests, options);
  EXPECT_EQ(find(empty.buffers, "replay")->bytes, 0u);
  EXPECT_EQ(find(empty.buffers, "logits")->bytes, 0u);
  LaunchImage without = build(twoRequests);
  EXPECT_FALSE(find(without.buffers, "replay"));
}

TEST_F(LaunchImageTest, ReadsWhatCameBack) {
  RunOptions options;
  options.trace = options.logits = true;
  LaunchImage image = build(twoRequests, options);
  place(image);
  abi::HostParams &p = image.params;
  // "a" ended by itself after 2 tokens; "b" says it made more than it may, and goes on.
  auto &a = header(image, 0), &b = header(image, 1);
  a.state = 0;
  a.generated = 2;
  a.eosSeen = 1;
  a.passes = 3;
  a.rows = 5;
  b.generated = 99;
  p.tokens[3] = 21;
  p.tokens[4] = 22;
  p.tokens[8] = 31;
  p.tokens[9] = 32;
  for (int i = 0; i < 40; ++i)
    p.logits[i] = float(i);
  p.metrics[1] = 6;
  *p.stats = {5, 4, 3, 8, 2, 0, 0};
  const unsigned words[] = {abi::kTraceTick, 8, 1, 0, 0, 0, 8, 0};
  std::memcpy(p.trace, words, sizeof words);
  *p.stop = {1, 2, 1, 9};

  auto out = image.outcome();
  ASSERT_TRUE(out) << out.error.message;
  ASSERT_EQ(out->requests.size(), 2u);
  EXPECT_EQ(out->requests[0].id, "a");
  EXPECT_EQ(out->requests[0].tokens, (std::vector<int32_t>{21, 22}));
  EXPECT_EQ(out->requests[0].finish, "stop");
  EXPECT_EQ(out->requests[0].state, "DONE");
  EXPECT_EQ(out->requests[1].tokens, (std::vector<int32_t>{31, 32}));
  EXPECT_EQ(out->requests[1].finish, "limit");
  EXPECT_EQ(out->requests[1].state, "RUN");
  EXPECT_EQ(out->requests[0].passes, 3);
  EXPECT_EQ(out->requests[0].rows, 5);
  ASSERT_EQ(out->logits[0].size(), 10u);
  ASSERT_EQ(out->logits[1].size(), 10u);
  EXPECT_EQ(out->logits[1][0], 20.0f);
  EXPECT_EQ(out->metrics, (std::map<std::string, int64_t>{{"hits", 0}, {"misses", 6}}));
  EXPECT_EQ(out->ticks, 5);
  EXPECT_EQ(out->passes, 4);
  EXPECT_EQ(out->rows, 3);
  EXPECT_EQ(out->traceDropped, 2);
  ASSERT_EQ(out->trace.ticks.size(), 1u);
  EXPECT_EQ(out->trace.requests.size(), 2u);
  ASSERT_TRUE(out->stop);
  EXPECT_EQ(out->stop->name, "w");
  EXPECT_EQ(out->stop->place, "m.yaml:3");

  a.eosSeen = 0; // 2 of 4 tokens
  EXPECT_EQ(image.outcome()->requests[0].finish, "state");
  a.generated = 4;
  EXPECT_EQ(image.outcome()->requests[0].finish, "length");
  a.fault = 1;
  EXPECT_EQ(image.outcome()->requests[0].finish, "fault");
  EXPECT_EQ(image.counts().ticks, 5);
}

/// A fault names the line that ran, or the call at which the request waited, or its state.
TEST_F(LaunchImageTest, ReadsWhereAFaultHappened) {
  LaunchImage image = build(twoRequests);
  place(image);
  auto at = [&](unsigned word) {
    header(image, 0).fault = int(word);
    const auto r = image.outcome()->requests[0];
    return r.fault + " in `" + r.faultState + "` at " + r.place;
  };
  header(image, 0).waitingSince = 5;
  header(image, 0).callCount = 70;
  header(image, 0).priority = -3;
  const unsigned run = 1 << abi::kFaultStateShift, none = abi::kFaultNoState << abi::kFaultStateShift;
  EXPECT_EQ(at(7 | run | 31u << abi::kFaultPlaceShift), "INDEX_RANGE in `RUN` at p.yaml:31");
  EXPECT_EQ(at(7 | run | unsigned(abi::kFaultMaxLine) << abi::kFaultPlaceShift),
            "INDEX_RANGE in `RUN` at p.yaml:262143");
  EXPECT_EQ(at(4 | run | abi::kFaultAtCall | 1u << abi::kFaultPlaceShift), "FEED_MISMATCH in `RUN` at p.yaml:20");
  EXPECT_EQ(image.outcome()->requests[0].faultDetail, "position 5 holds token -3, and was fed 70");
  EXPECT_EQ(at(1 | run | abi::kFaultAtCall), "POOL_EXHAUSTED in `RUN` at p.yaml:12");
  EXPECT_EQ(at(2 | run), "KV_TOO_LARGE in `RUN` at p.yaml:9");
  EXPECT_EQ(at(6 | run), "CORRUPT_FIELD in `RUN` at p.yaml:5");
  // Of several pools the number of the one that is too small.
  manifest.models.push_back(manifest.models[0]);
  manifest.models[1].pool.place = "p.yaml:10";
  EXPECT_EQ(at(2 | run | abi::kFaultAtCall | 1u << abi::kFaultPlaceShift), "KV_TOO_LARGE in `RUN` at p.yaml:10");
  EXPECT_EQ(at(2 | run | abi::kFaultAtCall | 2u << abi::kFaultPlaceShift), "KV_TOO_LARGE in `RUN` at p.yaml:5");
  manifest.models.pop_back();
  EXPECT_EQ(at(6 | none), "CORRUPT_FIELD in `` at ");
  // Sites and states that are none.
  EXPECT_EQ(at(4 | run | abi::kFaultAtCall | 77u << abi::kFaultPlaceShift), "FEED_MISMATCH in `RUN` at p.yaml:5");
  EXPECT_EQ(at(4 | 9 << abi::kFaultStateShift), "FEED_MISMATCH in `` at ");
}

/// What a broken kernel writes does not lead the host out of the buffers.
TEST_F(LaunchImageTest, DoubtsWhatCameBack) {
  RunOptions options;
  options.trace = true;
  options.traceBytes = 40;
  LaunchImage image = build(twoRequests, options);
  place(image);
  auto &a = header(image, 0);
  a.state = 1 << 20;
  a.generated = -5;
  a.tokenBegin = 1 << 30;
  a.fault = 12345 | 63;
  image.params.stop->code = 1;
  image.params.stop->edge = -7;
  auto out = image.outcome();
  ASSERT_TRUE(out);
  EXPECT_TRUE(out->requests[0].tokens.empty());
  EXPECT_EQ(out->requests[0].fault, "UNKNOWN");
  EXPECT_EQ(out->stop->name, "");
  for (long long words : {-1ll, 1ll << 60}) {
    image.params.stats->traceWords = words;
    auto torn = image.outcome();
    if (words < 0) {
      EXPECT_TRUE(torn);
      continue;
    }
    ASSERT_FALSE(torn);
    EXPECT_EQ(torn.error.message + " [" + torn.error.kind + "]", "the kernel's trace is torn at word 0 [trace-device]");
  }
}

} // namespace
