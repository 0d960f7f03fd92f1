// `megalith run --timeline`: the trace of a run with its times, for a viewer.
#include "ChromeTrace.h"
#include "Report.h"
#include "megalith/Text/Text.h"
#include "megalith/Tools.h"
#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <string_view>

namespace megalith::tool {

namespace {

using Json = ChromeTrace::Json;

constexpr int64_t host = 0, kernel = 1; ///< processes
constexpr int64_t passLane = 0;         ///< slot s has lane s + 1

class RunTimeline {
public:
  RunTimeline(const RunReport &report, size_t rangesBefore)
      : report(report), results(report.results), gpu(report.kernel.device() == Device::Cuda),
        pools(tools::poolsOf(report.program)), ranges(tools::hostRanges()) {
    // The clocks of host and GPU have nothing in common but that the kernel cannot begin before its launch. It begins
    // some microseconds later.
    for (size_t i = rangesBefore; gpu && i < ranges.size(); ++i)
      if (ranges[i].name == "launch") {
        zero = ranges[i].end;
        break;
      }
  }

  std::string text() {
    out.process(host, "host");
    out.lane(host, 0, "host");
    for (const tools::HostRange &range : ranges)
      out.range(host, 0, range.name, 1000 * range.begin, 1000 * (range.end - range.begin));
    const std::string device =
        report.kernel.deviceName().empty() ? deviceName(report.kernel.device()) : report.kernel.deviceName();
    out.process(kernel, fmt::format("{} on {}", report.program.name(), text::printable(device, 200)));
    out.lane(kernel, passLane, "passes");
    for (int64_t s = 0; s < report.program.param("slots").value_or(0); ++s)
      out.lane(kernel, s + 1, fmt::format("slot {}", s));
    std::string_view lines = results.trace;
    for (size_t end; (end = lines.find('\n')) != lines.npos; lines.remove_prefix(end + 1))
      if (const Json line = Json::parse(lines.substr(0, end)); line.contains("tick"))
        addTick(line);
    return out.text("ms", about());
  }

private:
  const RunReport &report;
  const Results &results;
  const bool gpu;
  const std::vector<tools::PoolSize> pools;
  const std::vector<tools::HostRange> ranges;
  double zero = 0; ///< begin of the run in milliseconds of the host's ranges
  ChromeTrace out;

  Json about() const {
    Json about = {
        {"pipeline", report.program.name()},
        {"device", deviceName(report.kernel.device())},
        {"times", gpu ? "the GPU's, from the end of the first launch"
                      : "not measured: each tick is drawn 1 ms wide, from 0; the host's ranges are measured"}};
    if (const auto accepted = report.program.accepted(); !accepted.empty())
      about["accepted"] = accepted;
    if (!report.synthetic.empty())
      about["synthetic_acceptance"] = report.synthetic;
    return about;
  }

  /// Begin of a tick in microseconds; after the records the end of the last one.
  double beginOf(size_t tick) const {
    if (!gpu)
      return 1000 * double(tick);
    const std::vector<double> &times = results.tickTimes;
    return 1000 * (zero + (times.empty() ? 0 : times[std::min(tick, times.size() - 1)]));
  }

  void addTick(const Json &line) {
    const size_t tick = line["tick"];
    const double begin = beginOf(tick), length = beginOf(tick + 1) - begin;
    std::map<int64_t, int64_t> rowsOf; ///< by slot
    for (const Json &pass : line["passes"]) {
      int64_t drafts = 0, rows = 0;
      for (const Json &row : pass["rows"]) {
        ++rows;
        ++rowsOf[row[0]];
        drafts += (row[6].get<int64_t>() >> 1 & 1) && row[5] >= 0; // the first row of such a call is no guess
      }
      out.range(kernel, passLane, fmt::format("{}: {}", pass["model"].get<std::string>(), counted(rows, "row", "rows")),
                begin, length, {{"tick", tick}, {"rows", rows}, {"drafts", drafts}});
    }
    std::map<std::string, int64_t> drafts; ///< pages, by pool
    for (const Json &slot : line["slots"]) {
      const int64_t number = slot["slot"];
      if (number >= 0)
        addSlot(slot, number, rowsOf[number], tick, begin, length);
      for (const Json &kv : slot["kv"])
        for (const tools::PoolSize &pool : pools)
          if (pool.name == kv["pool"].get<std::string>()) {
            const int64_t valid = (kv["len"].get<int64_t>() + pool.pageTokens - 1) / pool.pageTokens -
                                  kv.value("first", int64_t(0)); // given back
            drafts[pool.name] += static_cast<int64_t>(kv["pages"].size()) - valid;
          }
    }
    for (const tools::PoolSize &pool : pools) {
      const int64_t live = line["live"].value(pool.name, int64_t(0));
      out.counter(kernel, pool.name + ": pages live", begin, live);
      out.counter(kernel, pool.name + ": pages draft", begin, drafts[pool.name]);
      out.counter(kernel, pool.name + ": pages free", begin, pool.pages - live);
    }
  }

  void addSlot(const Json &slot, int64_t number, int64_t rows, size_t tick, double begin, double length) {
    const size_t request = slot["request"];
    Json args = {{"tick", tick}};
    if (request < results.requests.size()) // a kernel is never believed
      args["request"] = Json::parse(results.requests[request].id.json());
    args["before"] = slot["before"];
    args["after"] = slot["after"];
    args["rows"] = rows;
    for (const Json &kv : slot["kv"])
      args["kv"][kv["pool"].get<std::string>()] = {{"len", kv["len"]}, {"pages", kv["pages"].size()}};
    if (slot.contains("trace"))
      args["trace"] = slot["trace"];
    out.range(kernel, number + 1, slot["after"], begin, length, std::move(args));
  }
};

} // namespace

std::string formatRunTimeline(const RunReport &report, size_t rangesBefore) {
  return RunTimeline(report, rangesBefore).text();
}

} // namespace megalith::tool
