#include "Report.h"
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

namespace megalith::tool {

using nlohmann::ordered_json;

int64_t RunReport::tokens() const {
  int64_t sum = 0;
  for (const RequestReport &r : requests)
    sum += r.tokens.size();
  return sum;
}

double RunReport::tokensPerPass() const { return passes ? double(tokens()) / passes : 0; }

std::string faultText(const std::string &name) {
#define FAULT(Enum, Code, Name, Text)                                                              \
  if (name == Name)                                                                                \
    return Text;
#include "megalith/IR/Faults.def"
  return "a code that this version does not know";
}

/// The bytes among `tokens`; specials (256 and above) have no text.
static std::string bytesOf(const std::vector<int32_t> &tokens) {
  std::string text;
  for (int32_t token : tokens)
    if (token >= 0 && token < 256)
      text += static_cast<char>(token);
  return text;
}

static double rounded(double value) { return std::round(value * 1000) / 1000; }

std::string formatJson(const RunReport &report, const std::vector<Request> &requests, bool bytes) {
  std::string out;
  auto line = [&](const ordered_json &object) {
    // Bytes that are not UTF-8 become U+FFFD; `tokens` has them exactly.
    out += object.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
  };
  for (size_t i = 0; i < requests.size(); ++i) {
    const RequestReport &r = report.requests[i];
    ordered_json object;
    object["id"] = requests[i].id;
    object["tokens"] = r.tokens;
    if (bytes)
      object["text"] = bytesOf(r.tokens);
    object["finish"] = r.finish;
    if (r.finish == "fault")
      object["fault"] = r.fault;
    object["passes"] = r.passes;
    object["rows"] = r.rows;
    line(object);
  }
  ordered_json summary;
  summary["device"] = report.device;
  if (!report.deviceName.empty())
    summary["device_name"] = report.deviceName;
  if (report.launches)
    summary["launches"] = report.launches;
  summary["ticks"] = report.ticks;
  summary["passes"] = report.passes;
  summary["rows"] = report.rows;
  summary["tokens"] = report.tokens();
  summary["tokens_per_pass"] = rounded(report.tokensPerPass());
  summary[report.device == "cuda" ? "kernel_ms" : "run_ms"] = rounded(report.runMs);
  if (report.cacheHit) {
    summary["load_ms"] = rounded(report.loadMs);
    summary["compile_ms"] = rounded(report.compileMs);
    summary["cache_hit"] = *report.cacheHit;
  }
  summary["metrics"] = report.metrics;
  line({{"summary", summary}});
  return out;
}

/// Bytes for a terminal: control bytes would garble it.
static std::string visible(const std::string &text) {
  std::string out;
  for (unsigned char c : text)
    if (c == '\n')
      out += "\n    ";
    else if (c < 32 || c == 127)
      out += fmt::format("\\x{:02x}", c);
    else
      out += static_cast<char>(c);
  return out;
}

/// The values of one gauge of one request, in the order of its ticks.
static std::map<std::string, std::vector<double>> gaugesOf(const Trace &trace, int32_t request) {
  std::map<std::string, std::vector<double>> gauges;
  for (const TraceTick &tick : trace.ticks)
    for (const TraceSlot &slot : tick.slots)
      if (slot.request == request)
        for (const auto &[name, value] : slot.gauges)
          gauges[name].push_back(value);
  return gauges;
}

/// A bar per value over the value itself (its last digit, for integers).
static std::string chart(const std::string &name, const std::vector<double> &values) {
  static const char *bars[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  constexpr size_t width = 64;
  const double top = std::max(1e-30, *std::max_element(values.begin(), values.end()));
  const bool integers = std::all_of(values.begin(), values.end(), [](double v) { return v == std::floor(v); });
  std::string out = fmt::format("    {}, one column per commit, full bar = {:g}\n", name, top);
  for (size_t from = 0; from < values.size(); from += width) {
    std::string bar, digits;
    for (size_t i = from; i < std::min(values.size(), from + width); ++i) {
      int level = values[i] <= 0 ? 0 : std::clamp(static_cast<int>(std::ceil(8 * values[i] / top)), 1, 8);
      bar += bars[level];
      digits += static_cast<char>('0' + static_cast<long long>(std::fabs(values[i])) % 10);
    }
    out += "    " + bar + "\n";
    if (integers)
      out += "    " + digits + "\n";
  }
  return out;
}

std::string formatText(const RunReport &report, const std::vector<Request> &requests, bool bytes) {
  std::string out;
  for (size_t i = 0; i < requests.size(); ++i) {
    const RequestReport &r = report.requests[i];
    out += fmt::format("[{}]\n", requests[i].id);
    if (bytes) {
      out += fmt::format("  > {}\n", visible(bytesOf(requests[i].tokens)));
      out += fmt::format("    {}\n", visible(bytesOf(r.tokens)));
    } else {
      out += fmt::format("  > {}\n    {}\n", fmt::join(requests[i].tokens, " "), fmt::join(r.tokens, " "));
    }
    std::string why = r.finish == "stop"     ? "ended by itself"
                      : r.finish == "length" ? "reached its budget"
                      : r.finish == "limit"  ? "cut off by the tick limit"
                                             : "FAULT " + r.fault + ": " + faultText(r.fault);
    out += fmt::format("    {} tokens, {}; {} passes, {:.2f} tokens per pass\n", r.tokens.size(), why, r.passes,
                       r.passes ? double(r.tokens.size()) / r.passes : 0.0);
    for (const auto &[name, values] : gaugesOf(report.trace, static_cast<int32_t>(i)))
      out += chart(name, values);
    out += "\n";
  }
  out += fmt::format("{}: {} tokens in {} passes ({:.2f} tokens per pass), {} rows, {} ticks, {:.1f} ms\n",
                     report.deviceName.empty() ? report.device : report.deviceName, report.tokens(), report.passes,
                     report.tokensPerPass(), report.rows, report.ticks, report.runMs);
  if (report.cacheHit)
    out += fmt::format("kernel {} in {:.0f} ms, weights loaded in {:.0f} ms, {} {}\n",
                       *report.cacheHit ? "from the cache" : "compiled", report.compileMs, report.loadMs,
                       report.launches, report.launches == 1 ? "launch" : "launches");
  for (const auto &[name, value] : report.metrics)
    out += fmt::format("{} = {}\n", name, value);
  return out;
}

std::string formatLogits(const RunReport &report, const std::vector<Request> &requests, int64_t vocab) {
  ordered_json header;
  header["ids"] = ordered_json::array();
  header["shapes"] = ordered_json::array();
  header["dtype"] = "f32";
  std::string data;
  for (size_t i = 0; i < requests.size(); ++i) {
    const std::vector<float> &logits = report.requests[i].logits;
    header["ids"].push_back(requests[i].id);
    header["shapes"].push_back({static_cast<int64_t>(logits.size()) / vocab, vocab});
    data.append(reinterpret_cast<const char *>(logits.data()), logits.size() * sizeof(float));
  }
  return header.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n" + data;
}

} // namespace megalith::tool
