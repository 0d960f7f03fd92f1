#include "device/Abi.h"
#include "runtime/Engine.h"
#include <algorithm>
#include <cstring>

namespace megalith::runtime {

Outcome<Trace> decodeTrace(const Manifest &manifest, const std::vector<RunRequest> &requests, const unsigned *words,
                           size_t count) {
  auto stateName = [&](unsigned state) {
    return state < manifest.states.size() ? manifest.states[state].name : "#" + std::to_string(state);
  };
  Trace trace;
  size_t at = 0;
  while (at < count) {
    const unsigned *record = words + at;
    if (count - at < abi::kTraceTickWords || record[0] != abi::kTraceTick || record[1] < abi::kTraceTickWords ||
        record[1] > count - at)
      return RuntimeError{"trace-device", "the kernel's trace is torn at word " + std::to_string(at)};
    at += record[1];
    TraceTick tick;
    tick.tick = record[2];
    tick.live[manifest.model] = record[3];
    const unsigned rows = record[4], rowWords = record[5], touched = record[6];
    const unsigned *next = record + abi::kTraceTickWords;
    if (rows) {
      TracePass pass;
      pass.model = manifest.model;
      for (unsigned i = 0; i < rows; ++i, next += rowWords) {
        Row row;
        static_assert(sizeof(Row) == 32);
        std::memcpy(&row, next, sizeof(row));
        pass.rows.push_back(row);
        if (rowWords > 8)
          pass.kvHash.push_back(next[8]);
      }
      tick.passes.push_back(std::move(pass));
    }
    for (unsigned i = 0; i < touched; ++i) {
      TraceSlot slot;
      slot.slot = static_cast<int32_t>(next[0]);
      slot.request = static_cast<int32_t>(next[1]);
      slot.before = stateName(next[2]);
      slot.after = stateName(next[3]);
      const unsigned fault = next[4], pages = next[6], gauges = next[7];
      if (fault && next[2] != next[3]) {
        const char *name = "UNKNOWN";
        switch (fault) {
#define FAULT(Enum, Code, Name, Text)                                                              \
  case Code:                                                                                       \
    name = Name;                                                                                   \
    break;
#include "megalith/IR/Faults.def"
        }
        tick.faults.push_back({slot.request, name});
      }
      TraceKv kv;
      kv.pool = manifest.model;
      kv.len = next[5];
      next += abi::kTraceRequestWords;
      kv.pages.assign(next, next + pages);
      next += pages;
      slot.kv.push_back(std::move(kv)); // without a slot, an empty table
      for (unsigned g = 0; g < gauges; ++g, next += 2) {
        const Manifest::Gauge &gauge = manifest.gauges.at(next[0]);
        float f;
        std::memcpy(&f, &next[1], 4);
        slot.gauges[gauge.name] = gauge.type == "f32" ? double(f) : double(static_cast<int32_t>(next[1]));
      }
      tick.slots.push_back(std::move(slot));
    }
    std::sort(tick.faults.begin(), tick.faults.end(),
              [](const TraceFault &a, const TraceFault &b) { return a.request < b.request; });
    trace.ticks.push_back(std::move(tick));
  }
  return trace;
}

} // namespace megalith::runtime
