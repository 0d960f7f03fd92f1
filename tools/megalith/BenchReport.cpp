#include "Bench.h"
#include "Measured.h"
#include "megalith/Text/Json.h"
#include "megalith/Text/Text.h"
#include <algorithm>
#include <cmath>
#include <fmt/ranges.h>
#include <set>

namespace megalith::tool {

std::string formatTableHead(bool timed, bool prompts) {
  return timed ? fmt::format("{:>8} {:>6} {:>10} {:>10} {:>10} {:>10} {:>8} {:>10}{}\n", "context", "batch", "ms/token",
                             "tokens/s", "floor ms", "% of floor", "GB/s", "kernel ms", prompts ? "  prompt ms" : "")
               : fmt::format("{:>8} {:>6} {:>8} {:>8}\n", "context", "batch", "ticks", "passes");
}

std::string formatTableLine(const BenchPoint &p, bool prompts) {
  if (!p.times)
    return fmt::format("{:>8} {:>6} {:>8} {:>8}\n", p.context, p.batch, p.ticks, p.passes);
  const BenchPoint::Times &t = *p.times;
  const bool known = t.floorMs > 0;
  return fmt::format("{:>8} {:>6} {:>10.4f} {:>10.1f} {:>10} {:>10} {:>8.0f} {:>10.2f}{}\n", p.context, p.batch,
                     t.msPerToken, t.tokensPerSecond, known ? fmt::format("{:.4f}", t.floorMs) : "-",
                     known ? fmt::format("{:.1f}", t.percent) : "-", t.bandwidth / 1e9, t.kernelMs,
                     prompts ? fmt::format(" {:>10.2f}", t.promptMs) : "");
}

std::string formatPhases(const std::vector<PhaseTime> &phases, bool timed) {
  size_t width = 5;
  for (const PhaseTime &p : phases)
    width = std::max(width, p.name.size());
  std::string out =
      fmt::format("  {:<{}} {:>5} {:>10} {:>10} {:>10} {:>10} {:>7}   ({} per call, over the CTAs)\n", "phase", width,
                  "calls", "min", "mean", "max", "wait", "share", timed ? "microseconds" : "steps of the CPU executor");
  const double unit = timed ? 1000 : 1;
  for (const PhaseTime &p : phases)
    out += fmt::format("  {:<{}} {:>5} {:>10.2f} {:>10.2f} {:>10.2f} {:>10.2f} {:>6.1f}%\n", p.name, width, p.calls,
                       p.least / unit, p.mean / unit, p.most / unit, p.wait / unit, 100 * p.share);
  return out;
}

std::string formatJsonLine(const BenchPoint &p, const std::vector<PhaseTime> &phases, const BenchSubject &subject) {
  nlohmann::ordered_json j;
  j["device"] = subject.device;
  j["shape"] = subject.shape;
  if (!subject.accepted.empty())
    j["accepted"] = subject.accepted;
  if (subject.control != "resident")
    j["control"] = subject.control;
  if (!subject.sampling.empty())
    j["sampling"] = nlohmann::ordered_json::parse(subject.sampling);
  j["context"] = p.context;
  j["batch"] = p.batch;
  if (p.times) {
    j["ms_per_token"] = significant(p.times->msPerToken);
    j["tokens_per_s"] = significant(p.times->tokensPerSecond);
    if (p.times->floorMs > 0) {
      j["floor_ms"] = significant(p.times->floorMs);
      j["percent_of_floor"] = significant(p.times->percent);
    }
    j["bandwidth_gb_s"] = significant(p.times->bandwidth / 1e9);
    j["kernel_ms"] = significant(p.times->kernelMs);
    j["prompt_ms"] = significant(p.times->promptMs);
  }
  j["ticks"] = p.ticks;
  j["passes"] = p.passes;
  j["tokens"] = p.tokens;
  const char *suffix = p.times ? "_ns" : "_steps";
  for (const PhaseTime &phase : phases) {
    nlohmann::ordered_json line = {{"name", phase.name}, {"calls", phase.calls}};
    const std::pair<const char *, double> numbers[] = {
        {"min", phase.least}, {"mean", phase.mean}, {"max", phase.most}, {"wait", phase.wait}};
    for (const auto &[name, value] : numbers)
      line[std::string(name) + suffix] = significant(value);
    line["share"] = significant(phase.share);
    j["phases"].push_back(std::move(line));
  }
  return text::dump(j) + "\n";
}

std::string formatCsv(const std::vector<BenchPoint> &points, const BenchSubject &subject) {
  const bool accepted = !subject.accepted.empty();
  std::string out = "shape,context,batch,ms_per_token,tokens_per_s,floor_ms,percent_of_floor,bandwidth_gb_s,prompt_ms";
  const bool control = subject.control != "resident";
  const bool sampling = !subject.sampling.empty();
  out += std::string(accepted ? ",accepted" : "") + (control ? ",control" : "") + (sampling ? ",sampling" : "") + "\n";
  for (const BenchPoint &p : points) {
    out += fmt::format("{},{},{}", csvField(subject.shape), p.context, p.batch);
    if (p.times)
      out += fmt::format(",{:.6g},{:.6g},{},{:.6g},{:.6g}", p.times->msPerToken, p.times->tokensPerSecond,
                         p.times->floorMs > 0 ? fmt::format("{:.6g},{:.6g}", p.times->floorMs, p.times->percent) : ",",
                         p.times->bandwidth / 1e9, p.times->promptMs);
    else
      out += ",,,,,,";
    if (accepted)
      out += "," + csvField(fmt::format("{}", fmt::join(subject.accepted, " ")));
    if (control)
      out += "," + csvField(subject.control);
    if (sampling)
      out += "," + csvField(subject.sampling);
    out += "\n";
  }
  return out;
}

std::string formatPlot(const std::vector<BenchPoint> &points, const std::string &title) {
  std::set<int64_t> contexts, batches;
  double most = 100;
  for (const BenchPoint &p : points) {
    contexts.insert(p.context);
    batches.insert(p.batch);
    most = std::max(most, std::ceil(p.times->percent / 10) * 10);
  }
  const bool overBatch = contexts.size() == 1 && batches.size() > 1;
  const std::set<int64_t> &xs = overBatch ? batches : contexts, &lines = overBatch ? contexts : batches;
  const double left = 60, top = 40, width = 520, height = 280;
  // Equal factors are equally far apart.
  const double low = std::log2(double(*xs.begin())), high = std::log2(double(*xs.rbegin()));
  const auto x = [&](int64_t v) {
    return left + (high > low ? (std::log2(double(v)) - low) / (high - low) * width : width / 2);
  };
  const auto y = [&](double percent) { return top + height * (1 - percent / most); };
  static const char *const colours[] = {"#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf", "#8c564b"};
  std::string out = fmt::format("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"720\" height=\"400\" "
                                "font-family=\"sans-serif\" font-size=\"12\">\n"
                                "<rect width=\"720\" height=\"400\" fill=\"white\"/>\n"
                                "<text x=\"{}\" y=\"24\" font-size=\"14\">{}</text>\n",
                                left, text::xml(title));
  for (double p = 0; p <= most; p += 20)
    out += fmt::format("<path d=\"M{:.1f} {:.1f}h{:.1f}\" stroke=\"#ddd\"/>"
                       "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{:g}</text>\n",
                       left, y(p), width, left - 6, y(p) + 4, p);
  for (int64_t v : xs)
    out +=
        fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n", x(v), top + height + 18, v);
  out += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n", left + width / 2,
                     top + height + 40, overBatch ? "batch" : "context");
  out +=
      fmt::format("<text transform=\"translate(18 {:.1f}) rotate(-90)\" text-anchor=\"middle\">% of the floor</text>\n",
                  top + height / 2);
  size_t number = 0;
  for (int64_t line : lines) {
    const char *colour = colours[number % std::size(colours)];
    std::vector<const BenchPoint *> on;
    for (const BenchPoint &p : points)
      if ((overBatch ? p.context : p.batch) == line)
        on.push_back(&p);
    const auto at = [&](const BenchPoint *p) { return overBatch ? p->batch : p->context; };
    std::sort(on.begin(), on.end(), [&](auto *a, auto *b) { return at(a) < at(b); });
    std::string path;
    for (const BenchPoint *p : on) {
      path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", x(at(p)), y(p->times->percent));
      out += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"{}\"/>\n", x(at(p)), y(p->times->percent),
                         colour);
    }
    out += fmt::format("<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"/>\n", path, colour);
    out += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" fill=\"{}\">{} {}</text>\n", left + width + 12,
                       top + 12 + 18.0 * double(number), colour, overBatch ? "context" : "batch", line);
    ++number;
  }
  return out + "</svg>\n";
}

} // namespace megalith::tool
