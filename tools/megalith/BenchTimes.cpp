#include "Bench.h"
#include "ChromeTrace.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>

namespace megalith::tool {

std::optional<DecodeWindow> decodeWindow(const BenchKernel::Run &run, const BenchKernel::Shape &m) {
  const auto &records = run.records;
  const int64_t requests = run.tokens.size();
  if (static_cast<int64_t>(records.size()) != run.ticks + 1)
    return std::nullopt;
  DecodeWindow window;
  while (window.first < records.size() - 1) {
    const auto &r = records[window.first];
    if (r.prompts == 0 && r.open == requests && r.rows > 0)
      break;
    ++window.first;
  }
  if (window.first == records.size() - 1)
    return std::nullopt;
  for (const std::vector<int32_t> &tokens : run.tokens)
    window.tokens += tokens.size();
  window.tokens -= records[window.first].generated;
  window.before = double(records[window.first].begin - records.front().begin) * 1e-9;
  window.seconds = double(records.back().begin - records[window.first].begin) * 1e-9;
  for (size_t t = window.first; t + 1 < records.size(); ++t)
    if (records[t].rows > 0 && m.weightBytes > 0) { // a new position is read in the pass that writes it
      const double open = double(records[t].open), each = double(records[t].kvTokens + records[t].rows) / open;
      window.bytes += double(m.weightBytes) + open * tools::kvBytesRead(m.kv, each);
    }
  return window.tokens > 0 ? std::optional(window) : std::nullopt;
}

namespace {

/// The stamps of a run, by tick.
class Stamps {
public:
  Stamps(const BenchKernel::Run &run, const BenchKernel::Shape &m, int64_t kept, TickRange ticks)
      : words(run.stamps), shape(m), ring(kept), events(m.stamps.size()) {
    // The end of the run began one tick more, which took the place of the oldest.
    last = ticks.end - 1;
    first = std::max(ticks.first, run.ticks - kept + 1);
  }
  int64_t first, last; ///< ticks whose stamps are all there

  uint64_t begin(int64_t tick, int64_t cta, size_t event) const { return word(tick, cta, 2 * event); }

  struct Event {
    size_t number;
    uint64_t begin, end, next; ///< next: begin of what follows in this CTA
  };
  /// What a CTA did in a tick, in order.
  std::vector<Event> of(int64_t tick, int64_t cta) const {
    std::vector<Event> out;
    for (size_t e = 0; e < events; ++e) {
      const uint64_t b = begin(tick, cta, e), end = word(tick, cta, 2 * e + 1);
      if (b < begin(tick, cta, 0) || end < b)
        continue; // of an earlier tick: this one left it out
      if (!out.empty())
        out.back().next = b;
      out.push_back({e, b, end, end});
    }
    if (!out.empty())
      out.back().next = std::max(out.back().end, begin(tick + 1, cta, 0));
    return out;
  }

private:
  uint64_t word(int64_t tick, int64_t cta, size_t number) const {
    return words[((tick % ring) * shape.ctas + cta) * 2 * events + number];
  }
  const std::vector<uint64_t> &words;
  const BenchKernel::Shape &shape;
  int64_t ring;
  size_t events;
};

} // namespace

std::vector<PhaseTime> phaseTimes(const BenchKernel::Run &run, const BenchKernel::Shape &m, int64_t stampTicks,
                                  TickRange ticks) {
  const Stamps stamps(run, m, stampTicks, ticks);
  struct Sums {
    std::vector<double> work; ///< per CTA
    double wait = 0;
    int64_t calls = 0; ///< of CTA 0
  };
  std::vector<std::string> order;
  std::map<std::string, Sums> sums;
  for (const BenchKernel::Stamp &event : m.stamps)
    if (sums.try_emplace(event.name, Sums{std::vector<double>(m.ctas)}).second)
      order.push_back(event.name);
  double all = 0;
  for (int64_t tick = stamps.first; tick <= stamps.last; ++tick)
    for (int64_t cta = 0; cta < m.ctas; ++cta)
      for (const auto &event : stamps.of(tick, cta)) {
        Sums &s = sums.at(m.stamps[event.number].name);
        s.work[cta] += double(event.end - event.begin);
        s.wait += double(event.next - event.end);
        s.calls += cta == 0;
        all += double(event.next - event.begin);
      }
  std::vector<PhaseTime> out;
  for (const std::string &name : order) {
    const Sums &s = sums.at(name);
    if (s.calls == 0)
      continue;
    const double calls = double(s.calls), ctas = double(m.ctas);
    const auto [least, most] = std::minmax_element(s.work.begin(), s.work.end());
    double work = 0;
    for (double w : s.work)
      work += w;
    out.push_back({name, s.calls / std::max<int64_t>(1, stamps.last - stamps.first + 1), *least / calls,
                   work / ctas / calls, *most / calls, s.wait / ctas / calls, all > 0 ? (work + s.wait) / all : 0});
  }
  return out;
}

std::string formatTimeline(const BenchKernel::Run &run, const BenchKernel::Shape &m, int64_t stampTicks,
                           TickRange ticks, const std::vector<std::string> &accepted) {
  const Stamps stamps(run, m, stampTicks, ticks);
  const int64_t tick = (stamps.first + stamps.last) / 2;
  uint64_t zero = UINT64_MAX;
  for (int64_t cta = 0; cta < m.ctas; ++cta)
    zero = std::min(zero, stamps.begin(tick, cta, 0));
  ChromeTrace trace;
  trace.process(0, m.pipeline + ", tick " + std::to_string(tick));
  for (int64_t cta = 0; cta < m.ctas; ++cta) {
    trace.lane(0, cta, "CTA " + std::to_string(cta));
    for (const auto &event : stamps.of(tick, cta)) {
      const BenchKernel::Stamp &what = m.stamps[event.number];
      trace.range(0, cta, what.name, double(event.begin - zero) / 1000, double(event.end - event.begin) / 1000,
                  what.layer >= 0 ? ChromeTrace::Json{{"layer", what.layer}} : ChromeTrace::Json());
    }
  }
  return trace.text("ns", accepted.empty() ? ChromeTrace::Json() : ChromeTrace::Json{{"accepted", accepted}});
}

} // namespace megalith::tool
