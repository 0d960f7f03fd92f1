//===- Times.cpp - what waits how long ------------------------------------===//
#include "State.h"
#include "megalith/Tools.h"
#include "runtime/HostRange.h"
#include <algorithm>
#include <cmath>

namespace megalith {

/// Of sorted values.
static double at(const std::vector<double> &values, double percent) {
  const double place = std::clamp(percent, 0.0, 100.0) / 100 * double(values.size() - 1);
  const size_t below = static_cast<size_t>(place), above = std::min(below + 1, values.size() - 1);
  return values[below] + (values[above] - values[below]) * (place - double(below));
}

double tools::percentile(std::vector<double> values, double percent) {
  std::sort(values.begin(), values.end());
  return at(values, percent);
}

std::optional<tools::Percentiles> tools::percentilesOf(std::vector<double> values) {
  if (values.empty())
    return std::nullopt;
  std::sort(values.begin(), values.end());
  return Percentiles{at(values, 50), at(values, 95), at(values, 99), values.back()};
}

tools::Latency tools::latencyOf(const RequestTimes &times) {
  Latency out;
  const double from = std::max(0.0, times.arrived);
  if (times.admitted >= 0)
    out.queued = times.admitted - from;
  if (times.appends.empty())
    return out;
  out.firstToken = times.appends.front().at - from;
  int64_t tokens = 0;
  for (size_t i = 1; i < times.appends.size(); ++i) {
    out.gaps.push_back(times.appends[i].at - times.appends[i - 1].at);
    tokens += times.appends[i].tokens;
  }
  if (tokens > 0)
    out.perToken = (times.appends.back().at - times.appends.front().at) / double(tokens);
  return out;
}

tools::Latencies tools::latenciesOf(const Results &results) {
  Latencies out;
  for (const RequestResult &request : results.requests) {
    const Latency one = latencyOf(request.times);
    for (const auto &[all, value] : {std::pair(&out.queued, one.queued), std::pair(&out.firstToken, one.firstToken),
                                     std::pair(&out.perToken, one.perToken)})
      if (value)
        all->push_back(*value);
    out.gaps.insert(out.gaps.end(), one.gaps.begin(), one.gaps.end());
  }
  return out;
}

void tools::keepHostRanges() { runtime::keepHostSpans(); }

std::vector<tools::HostRange> tools::hostRanges() {
  std::vector<HostRange> out;
  for (const runtime::HostSpan &span : runtime::hostSpans())
    out.push_back({nameOf(span.step), span.begin, span.end});
  return out;
}

std::vector<tools::PoolSize> tools::poolsOf(const Program &program) {
  std::vector<PoolSize> out;
  for (const ir::Operation &op : program.internals()->compiled.module.root.region().ops)
    if (op.op == ir::Op::Pool)
      out.push_back(
          {op.name, op.get<ir::attr::pages>(), op.get<ir::attr::page_tokens>(), op.get<ir::attr::index_pages>()});
  return out;
}

} // namespace megalith
