#include "device/Abi.h"
#include "runtime/Engine.h"
#include <gtest/gtest.h>

using megalith::TraceSlot;
using namespace megalith::runtime;

/// A request that ends without ever holding a slot has an empty page table in the
/// trace, as the reference executor writes it.
TEST(TraceDecoder, RequestWithoutSlot) {
  Manifest manifest;
  manifest.model = "target";
  manifest.states = {{"QUEUED", false, false}, {"COMPLETE", true, false}};
  const unsigned words[] = {megalith::abi::kTraceTick,
                            megalith::abi::kTraceTickWords + megalith::abi::kTraceRequestWords,
                            0, 0, 0, 8, 1,             // tick, live, rows, words per row, requests
                            ~0u, 0, 0, 1, 0, 0, 0, 0}; // slot, request, states, fault, length, pages, gauges
  auto trace = decodeTrace(manifest, {RunRequest{"a", {1}, 0, {}, 0}}, words, std::size(words));
  ASSERT_TRUE(trace);
  ASSERT_EQ(trace->ticks.size(), 1u);
  ASSERT_EQ(trace->ticks[0].slots.size(), 1u);
  const TraceSlot &slot = trace->ticks[0].slots[0];
  EXPECT_EQ(slot.slot, -1);
  EXPECT_EQ(slot.after, "COMPLETE");
  ASSERT_EQ(slot.kv.size(), 1u);
  EXPECT_EQ(slot.kv[0].len, 0);
  EXPECT_TRUE(slot.kv[0].pages.empty());
}
