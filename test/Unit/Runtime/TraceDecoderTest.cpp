#include "runtime/TraceDecoder.h"
#include "device/Abi.h"
#include <gtest/gtest.h>
#include <random>

using megalith::Trace;
using megalith::TraceSlot;
using namespace megalith::runtime;

namespace {

namespace abi = megalith::abi;

Manifest manifestOf() {
  Manifest manifest;
  manifest.models.resize(1);
  manifest.models[0].name = "target";
  manifest.states = {{"QUEUED", false, false, ""}, {"COMPLETE", true, false, ""}};
  manifest.gauges = {{"window", "i32"}, {"rate", "f32"}};
  return manifest;
}

/// Two ticks: a pass of two rows with hashes and two requests, one of which faults; then
/// nothing but a tick.
std::vector<unsigned> wordsOf() {
  // clang-format off
  return {abi::kTraceTick, 8 + 18 + 8 + 2 + 4 + 8, 4, 3, 7, 2, 9, 2, // tick, live, cached, rows, words per row, requests
          0, 10, 5, 0, 6, ~0u, 1, 42, 901,                       // a row, its hash
          1, 11, 6, 1, 7, 0, 2, ~0u, 902,
          0, 0, 0, 0, 0, 6, 2, 2,                                // slot, request, states, fault, length, ...
          8, 9, 0, ~0u, 1, 0x3f000000,                           // pages, gauges
          ~0u, 1, 0, 1, 3 | 12 << abi::kFaultPlaceShift, 0, 0, 0,
          abi::kTraceTick, 8, 5, 0, 0, 0, 8, 0};
  // clang-format on
}

std::string messageOf(const std::vector<unsigned> &words) {
  auto trace = decodeTrace(manifestOf(), words.data(), words.size());
  return trace ? "" : trace.error.message + " [" + trace.error.kind + "]";
}

TEST(TraceDecoder, ReadsRowsRequestsAndGauges) {
  auto words = wordsOf();
  auto trace = decodeTrace(manifestOf(), words.data(), words.size());
  ASSERT_TRUE(trace);
  ASSERT_EQ(trace->ticks.size(), 2u);
  const auto &tick = trace->ticks[0];
  EXPECT_EQ(tick.tick, 4);
  EXPECT_EQ(tick.live.at("target"), 3);
  EXPECT_TRUE(tick.cached.empty()) << "the pool has no index";
  ASSERT_EQ(tick.passes.size(), 1u);
  ASSERT_EQ(tick.passes[0].rows.size(), 2u);
  EXPECT_EQ(tick.passes[0].rows[0].result, 42);
  EXPECT_EQ(tick.passes[0].rows[1].token, 11);
  EXPECT_EQ(tick.passes[0].model, "target");
  EXPECT_EQ(tick.passes[0].kvHash, (std::vector<uint64_t>{901, 902}));
  ASSERT_EQ(tick.slots.size(), 2u);
  EXPECT_EQ(tick.slots[0].kv[0].pool, "target");
  EXPECT_EQ(tick.slots[0].kv[0].len, 6);
  EXPECT_EQ(tick.slots[0].kv[0].pages, (std::vector<int32_t>{8, 9}));
  EXPECT_EQ(tick.slots[0].gauges, (std::map<std::string, double>{{"window", -1}, {"rate", 0.5}}));
  EXPECT_EQ(tick.slots[1].after, "COMPLETE");
  ASSERT_EQ(tick.faults.size(), 1u);
  EXPECT_EQ(tick.faults[0].request, 1);
  EXPECT_EQ(tick.faults[0].code, "NUMERIC");
  EXPECT_TRUE(trace->ticks[1].passes.empty());
}

/// Of several models each pass has a record of its own in front of the tick's.
TEST(TraceDecoder, PassesOfSeveralModels) {
  Manifest manifest = manifestOf();
  manifest.models.resize(2);
  manifest.models[1].name = "small";
  manifest.models[1].pool.index = true;
  // clang-format off
  const std::vector<unsigned> words = {
      abi::kTracePass, 5 + 8, 4, 1, 8 | 1 << abi::kTraceModelShift, 0, 10, 5, 5, 6, 4, 0, ~0u,
      abi::kTracePass, 5 + 9, 4, 1, 9, 0, 11, 7, 7, 8, 6, 1, 42, 901,
      abi::kTraceTick, 10 + 10 + 3, 4, 3, 2, 7, 1, 0, 8, 1,       // live and cached pages of both
      0, 0, 0, 0, 0, 8, 2, 6, 1, 0,                               // length and pages of both, no gauges
      20, 21, 30,
      abi::kTraceTick, 10, 5, 0, 0, 0, 0, 0, 8, 0};
  // clang-format on
  auto trace = decodeTrace(manifest, words.data(), words.size());
  ASSERT_TRUE(trace) << trace.error.message;
  ASSERT_EQ(trace->ticks.size(), 2u);
  const auto &tick = trace->ticks[0];
  EXPECT_EQ(tick.live, (std::map<std::string, int64_t>{{"target", 3}, {"small", 2}}));
  EXPECT_EQ(tick.cached, (std::map<std::string, int64_t>{{"small", 1}}));
  ASSERT_EQ(tick.passes.size(), 2u);
  EXPECT_EQ(tick.passes[0].model, "small");
  EXPECT_EQ(tick.passes[1].model, "target");
  EXPECT_EQ(tick.passes[1].rows[0].result, 42);
  ASSERT_EQ(tick.slots.size(), 1u);
  ASSERT_EQ(tick.slots[0].kv.size(), 2u);
  EXPECT_EQ(tick.slots[0].kv[1].len, 6);
  EXPECT_EQ(tick.slots[0].kv[1].pages, (std::vector<int32_t>{30}));
  EXPECT_TRUE(trace->ticks[1].passes.empty());
  // A pass of another tick, of no model, or without its tick's record.
  for (auto [at, word] : {std::pair<size_t, unsigned>{2, 3}, {4, 8 | 2 << abi::kTraceModelShift}, {3, 0}}) {
    auto broken = words;
    broken[at] = word;
    EXPECT_FALSE(decodeTrace(manifest, broken.data(), broken.size())) << at;
  }
  EXPECT_TRUE(decodeTrace(manifest, words.data(), 13)->ticks.empty());
}

TEST(TraceDecoder, ANegativeWordSaysHowManyPagesWereGivenBack) {
  auto words = wordsOf();
  const size_t pages = 8 + 18 + 8;
  ASSERT_EQ(words[pages], 8u);
  words[pages] = unsigned(-5);
  auto trace = decodeTrace(manifestOf(), words.data(), words.size());
  ASSERT_TRUE(trace);
  const auto &kv = trace->ticks[0].slots[0].kv[0];
  EXPECT_EQ(kv.first, 5);
  EXPECT_EQ(kv.pages, (std::vector<int32_t>{9}));
  EXPECT_EQ(decodeTrace(manifestOf(), wordsOf().data(), words.size())->ticks[0].slots[0].kv[0].first, 0);
}

/// A request that ends without ever holding a slot has an empty page table in the
/// trace, as the reference executor writes it.
TEST(TraceDecoder, RequestWithoutSlot) {
  auto words = wordsOf();
  auto trace = decodeTrace(manifestOf(), words.data(), words.size());
  ASSERT_TRUE(trace);
  const TraceSlot &slot = trace->ticks[0].slots[1];
  EXPECT_EQ(slot.slot, -1);
  ASSERT_EQ(slot.kv.size(), 1u);
  EXPECT_EQ(slot.kv[0].len, 0);
  EXPECT_TRUE(slot.kv[0].pages.empty());
}

TEST(TraceDecoder, NothingIsATraceOfNoTicks) {
  auto trace = decodeTrace(manifestOf(), nullptr, 0);
  ASSERT_TRUE(trace);
  EXPECT_TRUE(trace->ticks.empty());
}

TEST(TraceDecoder, EveryCutBetweenRecordsIsTorn) {
  const auto words = wordsOf();
  const size_t first = words[1];
  for (size_t size = 1; size < words.size(); ++size)
    if (size != first) {
      EXPECT_EQ(messageOf({words.begin(), words.begin() + size}),
                "the kernel's trace is torn at word " + std::to_string(size < first ? 0 : first) + " [trace-device]");
    }
}

TEST(TraceDecoder, CountsThatLeaveTheRecordAreTorn) {
  const std::string torn = "the kernel's trace is torn at word 0 [trace-device]";
  struct {
    const char *what;
    size_t word;
    unsigned value;
  } cases[] = {{"mark", 0, 1},
               {"length", 1, 7},
               {"length short by a word", 1, 47},
               {"length of both", 1, 56},
               {"rows", 5, 3},
               {"rows", 5, ~0u},
               {"words per row", 6, 7},
               {"words per row", 6, 10},
               {"words per row", 6, ~0u},
               {"model", 6, 9 | 1u << abi::kTraceModelShift},
               {"requests", 7, 1},
               {"requests", 7, 3},
               {"requests", 7, ~0u},
               {"pages", 32, 3},
               {"pages", 32, ~0u},
               {"gauges", 33, 1},
               {"gauges", 33, ~0u},
               {"gauge", 36, 2},
               {"gauge", 36, ~0u}};
  for (const auto &c : cases) {
    auto words = wordsOf();
    ASSERT_NE(words[c.word], c.value);
    words[c.word] = c.value;
    EXPECT_EQ(messageOf(words), torn) << c.what << " " << c.value;
  }
}

/// Whatever a kernel writes is a trace or an error; the sanitizers see the rest.
TEST(TraceDecoder, NoiseNeverLeavesTheBuffer) {
  std::mt19937 random(1);
  const auto good = wordsOf();
  unsigned decoded = 0, torn = 0;
  for (int round = 0; round < 20000; ++round) {
    auto words = good;
    for (int changes = 1 + random() % 3; changes; --changes) {
      unsigned value = random();
      words[random() % words.size()] = value % 4 == 0 ? value : value % 64;
    }
    words.resize(random() % 4 ? words.size() : random() % (words.size() + 1));
    // A block of its own size: an access after it is one after the heap block.
    std::unique_ptr<unsigned[]> block(new unsigned[words.size()]);
    std::copy(words.begin(), words.end(), block.get());
    auto trace = decodeTrace(manifestOf(), block.get(), words.size());
    (trace ? decoded : torn) += 1;
    if (!trace) {
      ASSERT_EQ(trace.error.kind, "trace-device");
    }
  }
  EXPECT_GT(decoded, 1000u);
  EXPECT_GT(torn, 1000u);
}

} // namespace
