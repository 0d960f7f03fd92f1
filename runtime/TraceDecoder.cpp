#include "runtime/TraceDecoder.h"
#include "device/Abi.h"
#include "runtime/Faults.h"
#include <algorithm>
#include <cstring>
#include <utility>

namespace megalith::runtime {

namespace {

/// The words of one record, front to back. Every word of the device is doubted.
class Record {
public:
  Record(const Manifest &manifest, const unsigned *begin, const unsigned *end)
      : manifest(manifest), next(begin), end(end) {}

  /// False when the words do not form a record.
  bool read(TraceTick &tick) {
    next += 2; // the mark and the length
    if (tick.tick != *next++ && !tick.passes.empty())
      return false; // its passes were another tick's
    tick.tick = next[-1];
    for (const Manifest::Model &model : manifest.models)
      tick.live[model.name] = *next++;
    for (const Manifest::Model &model : manifest.models) {
      if (model.pool.index)
        tick.cached[model.name] = *next;
      ++next;
    }
    const unsigned rows = *next++, shape = *next++, head = *next++, touched = head & ~abi::kTraceHost;
    if (rows && !readRows(tick, rows, shape))
      return false;
    for (unsigned i = 0; i < touched; ++i)
      if (!readRequest(tick))
        return false;
    if ((head & abi::kTraceHost) && !readHost(tick))
      return false;
    std::sort(tick.faults.begin(), tick.faults.end(),
              [](const TraceFault &a, const TraceFault &b) { return a.request < b.request; });
    return next == end;
  }

  /// The same for a record of a pass, which stands in front of its tick's.
  bool readPass(TraceTick &tick) {
    next += 2;
    const int64_t number = *next++;
    if (!tick.passes.empty() && tick.tick != number)
      return false;
    tick.tick = number;
    const unsigned rows = *next++, shape = *next++;
    return rows > 0 && readRows(tick, rows, shape) && next == end;
  }

private:
  size_t left() const { return end - next; }

  /// `shape`: words per row, and the model.
  bool readRows(TraceTick &tick, size_t rows, unsigned shape) {
    constexpr size_t words = sizeof(Row) / sizeof(unsigned);
    static_assert(words == 8);
    const size_t rowWords = shape & ((1u << abi::kTraceModelShift) - 1), model = shape >> abi::kTraceModelShift;
    const size_t reduced = manifest.reducing.queryBytes ? 1 + static_cast<size_t>(manifest.reducing.words) : 0;
    const bool hashed = rowWords == words + reduced + 1;
    if ((rowWords != words + reduced && !hashed) || rows * rowWords > left() || model >= manifest.models.size())
      return false;
    TracePass pass;
    pass.model = manifest.models[model].name;
    for (size_t i = 0; i < rows; ++i, next += rowWords) {
      Row row;
      std::memcpy(&row, next, sizeof(row));
      pass.rows.push_back(row);
      if (reduced) {
        const unsigned *first = next + words + 1, count = next[words];
        if (count >= reduced)
          return false;
        pass.reduced.emplace_back(first, first + count);
      }
      if (hashed)
        pass.kvHash.push_back(next[words + reduced]);
    }
    if (std::all_of(pass.reduced.begin(), pass.reduced.end(), [](const auto &row) { return row.empty(); }))
      pass.reduced.clear();
    tick.passes.push_back(std::move(pass));
    return true;
  }

  bool readRequest(TraceTick &tick) {
    const size_t words = abi::traceRequestWords(static_cast<int>(manifest.models.size()));
    if (left() < words)
      return false;
    const unsigned *head = next;
    next += words;
    TraceSlot slot;
    slot.slot = static_cast<int32_t>(head[0]);
    slot.request = static_cast<int32_t>(head[1]);
    slot.before = manifest.stateName(head[2]);
    slot.after = manifest.stateName(head[3]);
    const unsigned fault = head[4];
    if (fault && head[2] != head[3])
      tick.faults.push_back({slot.request, faultName(fault)});
    const unsigned *ofModel = head + 5;
    for (const Manifest::Model &model : manifest.models) { // without a slot, an empty table
      const unsigned length = *ofModel++, pages = *ofModel++;
      if (pages > left())
        return false;
      // A negative number in front says how many pages were given back.
      const int first = pages > 0 ? std::min(0, static_cast<int>(*next)) : 0;
      slot.kv.push_back({model.name, length, -int64_t(first), {next + (first < 0), next + pages}});
      next += pages;
    }
    const unsigned gauges = *ofModel;
    if (gauges > left() / 2)
      return false;
    for (unsigned g = 0; g < gauges; ++g, next += 2) {
      if (next[0] >= manifest.gauges.size())
        return false;
      const Manifest::Gauge &gauge = manifest.gauges[next[0]];
      float f;
      std::memcpy(&f, &next[1], 4);
      slot.gauges[gauge.name] = gauge.type == "f32" ? double(f) : double(static_cast<int32_t>(next[1]));
    }
    tick.slots.push_back(std::move(slot));
    return true;
  }

  bool readHost(TraceTick &tick) {
    if (left() < 2)
      return false;
    tick.nowMs = static_cast<int32_t>(*next++);
    const unsigned events = *next++;
    if (events > left())
      return false;
    for (unsigned i = 0; i < events; ++i, ++next)
      tick.events.push_back({(*next & abi::kTraceCancels) != 0, static_cast<int32_t>(*next & ~abi::kTraceCancels)});
    return true;
  }

  const Manifest &manifest;
  const unsigned *next, *end;
};

} // namespace

Outcome<Trace> decodeTrace(const Manifest &manifest, const unsigned *words, size_t count) {
  const size_t tickWords = abi::traceTickWords(static_cast<int>(manifest.models.size()));
  Trace trace;
  TraceTick tick;
  for (size_t at = 0; at < count;) {
    const unsigned *record = words + at;
    const bool isPass = record[0] == abi::kTracePass;
    const size_t least = isPass ? abi::kTracePassWords : tickWords;
    bool whole = (isPass || record[0] == abi::kTraceTick) && count - at >= least && record[1] >= least &&
                 record[1] <= count - at;
    if (whole) {
      Record reader(manifest, record, record + record[1]);
      whole = isPass ? reader.readPass(tick) : reader.read(tick);
    }
    if (!whole)
      return RuntimeError{"trace-device", "the kernel's trace is torn at word " + std::to_string(at)};
    at += record[1];
    if (!isPass)
      trace.ticks.push_back(std::exchange(tick, {}));
  }
  return trace;
}

} // namespace megalith::runtime
