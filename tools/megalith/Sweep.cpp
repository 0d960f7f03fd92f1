#include "Sweep.h"
#include "Measured.h"
#include "Report.h"
#include "megalith/Text/Text.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/raw_ostream.h"
#include <algorithm>
#include <chrono>
#include <fmt/ranges.h>

namespace megalith::tool {

namespace {

using Clock = std::chrono::steady_clock;

double secondsSince(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

/// `1:05`, or `2:03:04`.
std::string timeText(double seconds) {
  const int64_t s = static_cast<int64_t>(seconds + 0.5);
  return s < 3600 ? fmt::format("{}:{:02}", s / 60, s % 60)
                  : fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
}

class Sweep {
public:
  Sweep(const SweepCommand &command, const SweepPlan &plan, SweepTable &table, Diagnostics &diags)
      : command(command), plan(plan), table(table), diags(diags) {}

  bool run() {
    all = plan.points.size() * static_cast<size_t>(command.repeats);
    earlier = table.rows();
    if (!compileKernels())
      return false;
    begin = Clock::now();
    for (size_t kernel = 0; kernel < plan.kernels.size(); ++kernel)
      if (needed(kernel) && !runKernel(kernel))
        return failed();
    clearProgress();
    if (incomplete > 0)
      diags.report(Diag::SweepIncomplete, {}, incomplete, firstIncomplete);
    if (toFile())
      llvm::outs() << fmt::format("{}: {} rows{}\n", text::printable(command.csvFile), table.rows(),
                                  earlier ? fmt::format(", {} of them were there", earlier) : "");
    return true;
  }

private:
  const SweepCommand &command;
  const SweepPlan &plan;
  SweepTable &table;
  Diagnostics &diags;
  size_t all = 0, earlier = 0; ///< rows: in the end, and at the begin
  Clock::time_point begin;
  std::string now; ///< the point that is measured
  int64_t incomplete = 0;
  std::string firstIncomplete;
  /// What the kernel's requests generate without drafts, for the drafts of all profiles.
  std::optional<tools::TokenLists> plain;
  SweepPoint plainOf = {};

  bool toFile() const { return !command.csvFile.empty() && command.csvFile != "-"; }

  bool failed() {
    clearProgress();
    if (toFile() && table.rows() > 0)
      diags.note(
          fmt::format("`{}` has {} of {} rows; the same command goes on there", command.csvFile, table.rows(), all));
    return false;
  }

  tools::Weights weights() const {
    return command.configs.empty() ? tools::Weights::Checkpoint : tools::Weights::Random;
  }

  bool needed(const SweepPoint &point) const {
    for (int64_t repeat = 1; repeat <= command.repeats; ++repeat)
      if (!table.has(table.keyOf(point, repeat)))
        return true;
    return false;
  }
  bool needed(size_t kernel) const {
    return llvm::any_of(plan.points, [&](const SweepPoint &p) { return p.kernel == kernel && needed(p); });
  }

  KernelOptions kernelOptions() const {
    KernelOptions options;
    options.device = command.device;
    options.cpuArch = command.cpuArch;
    options.wholeKernel = command.wholeKernel;
    return options;
  }

  bool compileKernels() {
    std::vector<Program> programs;
    for (size_t kernel = 0; kernel < plan.kernels.size(); ++kernel)
      if (needed(kernel))
        programs.push_back(plan.kernels[kernel].program);
    KernelOptions options = kernelOptions();
    options.progress = showProgress;
    return got(tools::compileAhead(programs, options, weights()), diags);
  }

  /// The bar, with what happens to the point that is measured.
  void show(const std::string &step) const {
    constexpr size_t width = 24;
    const size_t done = table.rows(), full = all ? width * done / all : width;
    std::string left;
    if (done > earlier)
      left = ", " + timeText(secondsSince(begin) / double(done - earlier) * double(all - done)) + " left";
    showProgress(fmt::format("[{}{}] {} of {}{}: {}{}", std::string(full, '#'), std::string(width - full, '-'), done,
                             all, left, now, step.empty() ? "" : ": " + step));
  }

  std::string nameOf(const SweepPoint &point) const {
    const SweepKernel &kernel = plan.kernels[point.kernel];
    std::string out = kernel.program.name();
    for (const auto &[param, value] : kernel.params)
      out += fmt::format(" {}={}", param, value);
    out += fmt::format(", {} requests of {} and {} tokens", point.requests, point.context, point.tokens);
    if (point.acceptance != "none")
      out += ", acceptance " + point.acceptance;
    return text::printable(out + ", " + controlName(point.control));
  }

  bool runKernel(size_t number) {
    now = plan.kernels[number].program.name();
    KernelOptions options = kernelOptions();
    options.progress = [this](const std::string &step) { show(step); };
    auto kernel = tools::loadToMeasure(plan.kernels[number].program, options, weights());
    if (!got(kernel, diags))
      return false;
    diags.adopt(kernel->messages());
    plain.reset();
    for (const SweepPoint &point : plan.points)
      if (point.kernel == number && needed(point) && !runPoint(*kernel, point))
        return false;
    return true;
  }

  RunOptions runOptions(const SweepPoint &point) const {
    RunOptions options;
    options.control = point.control;
    options.ticksPerLaunch = command.ticksPerLaunch;
    options.watchdogSeconds = command.watchdogSeconds;
    options.progress = [this](const std::string &step) { show(step); };
    return options;
  }

  /// Fills in the synthetic drafts of the point. False after an error.
  bool propose(const Kernel &kernel, const SweepPoint &point, const std::vector<Request> &requests,
               RunOptions &options) {
    if (point.acceptance == "none")
      return true;
    if (!plain || plainOf.context != point.context || plainOf.tokens != point.tokens ||
        plainOf.requests != point.requests) {
      plain.reset();
      auto tokens = tools::decodePlainly(kernel, options, requests);
      if (!got(tokens, diags))
        return false;
      plain = std::move(*tokens);
      plainOf = point;
    }
    auto acceptance = tools::Acceptance::parse(point.acceptance);
    if (!got(acceptance, diags))
      return false;
    options.drafts =
        tools::draftsOf(*plain, plan.kernels[point.kernel].program.vocabulary(), *acceptance, command.acceptanceSeed);
    return true;
  }

  struct Outcome {
    Results results;
    double milliseconds; ///< of the host, from the requests to their results
  };
  std::optional<Outcome> runOnce(const Kernel &kernel, const RunOptions &options,
                                 const std::vector<Request> &requests) {
    const auto start = Clock::now();
    auto results = kernel.run(requests, options);
    if (!got(results, diags))
      return std::nullopt;
    diags.adopt(results->messages);
    return Outcome{std::move(*results), secondsSince(start) * 1e3};
  }

  bool runPoint(const Kernel &kernel, const SweepPoint &point) {
    now = nameOf(point);
    show("");
    const auto requests = makeRequests(plan.kernels[point.kernel].program, point.context, point.requests, point.tokens);
    RunOptions options = runOptions(point);
    if (!propose(kernel, point, requests, options))
      return false;
    // A trace costs time, so that what is timed has none. It also lets caches and clocks get ready.
    options.trace = true;
    auto traced = runOnce(kernel, options, requests);
    if (!traced)
      return false;
    std::optional<tools::TraceFigures> figures;
    if (llvm::none_of(traced->results.messages.list, [](const Error &e) { return e.kind == "trace-dropped"; })) {
      auto found = tools::figuresOf(kernel, traced->results);
      if (!got(found, diags))
        return false;
      figures = *found;
    }
    traced->results.trace.clear();
    options.trace = false;
    for (int64_t repeat = 1; repeat <= command.repeats; ++repeat) {
      const SweepRow key = table.keyOf(point, repeat);
      if (table.has(key))
        continue;
      SweepRow row = key;
      const auto bandwidth = tools::readBandwidth(kernel);
      if (!got(bandwidth, diags))
        return false;
      auto timed = kernel.device() == Device::Cuda ? runOnce(kernel, options, requests) : traced;
      if (!timed)
        return false;
      if (figures)
        addFigures(*figures, row);
      addRun(kernel, point, timed->results, row);
      if (kernel.device() == Device::Cuda)
        addTimes(*timed, figures ? figures->bytes : std::nullopt, *bandwidth, row);
      addLatencies(timed->results, row);
      if (!table.add(point, std::move(row), diags))
        return false;
      show("");
    }
    return true;
  }

  static std::string number(double value) { return fmt::format("{:.6g}", value); }

  void addRun(const Kernel &kernel, const SweepPoint &point, const Results &results, SweepRow &row) {
    const Device device = kernel.device();
    int64_t tokens = 0, completed = 0;
    for (const RequestResult &r : results.requests) {
      tokens += r.tokens.size();
      const bool ended = r.finish != "fault" && r.finish != "limit";
      completed += ended;
      if (!ended && firstIncomplete.empty())
        firstIncomplete = nameOf(point) + ", request " + r.id.text + ": " + (r.fault.empty() ? r.finish : r.fault);
    }
    incomplete += completed < point.requests;
    row["mode"] = point.control == Control::Host ? "baseline" : point.control == Control::Resident ? "mega" : "graph";
    row["completed_requests"] = std::to_string(completed);
    row["target_requests"] = row["requests"];
    row["tokens_generated"] = std::to_string(tokens);
    row["ticks_per_launch"] = std::to_string(command.ticksPerLaunch);
    row["seed"] = std::to_string(command.acceptanceSeed);
    row["device"] = deviceName(device);
    row["device_name"] = text::printable(kernel.deviceName());
    const Program &program = plan.kernels[point.kernel].program;
    row["shape"] = shapeName(program.configFile());
    row["accepted"] = text::printable(fmt::format("{}", fmt::join(program.accepted(), " ")));
    row["ticks"] = std::to_string(results.ticks);
    row["passes"] = std::to_string(results.passes);
    row["rows"] = std::to_string(results.rows);
    const auto proposed = results.metrics.find("tokens_proposed"), accepted = results.metrics.find("tokens_accepted");
    if (proposed != results.metrics.end()) {
      row["tokens_proposed"] = std::to_string(proposed->second);
      if (accepted != results.metrics.end() && proposed->second > 0)
        row["acceptance"] = number(double(accepted->second) / double(proposed->second));
    }
    if (device == Device::Reference)
      return;
    row["host_kernel_launches"] = std::to_string(results.launches);
    if (device == Device::Cuda && results.calls.launches + results.calls.graphLaunches > 0) {
      row["host_kernel_launches"] = std::to_string(results.calls.launches + results.calls.graphLaunches);
      row["host_graph_launches"] = std::to_string(results.calls.graphLaunches);
      row["host_synchronizations"] = std::to_string(results.calls.synchronizations);
      row["host_copies"] = std::to_string(results.calls.copies);
      row["host_bytes"] = std::to_string(results.calls.bytes);
    }
  }

  static void addFigures(const tools::TraceFigures &figures, SweepRow &row) {
    row["draft_len"] = std::to_string(figures.mostBlock);
    row["block_mean"] = number(figures.meanBlock);
    row["block_min"] = std::to_string(figures.leastBlock);
    row["block_max"] = std::to_string(figures.mostBlock);
    row["pages_live_most"] = std::to_string(figures.pagesMost);
    row["fragmentation"] = number(figures.fragmentation);
  }

  static void addTimes(const Outcome &timed, std::optional<double> bytes, std::optional<double> bandwidth,
                       SweepRow &row) {
    const double seconds = timed.results.milliseconds * 1e-3;
    row["elapsed_ms"] = fmt::format("{:.3f}", timed.results.milliseconds);
    row["run_ms"] = fmt::format("{:.3f}", timed.milliseconds);
    if (seconds > 0)
      row["tokens_per_second"] = number(std::stod(row["tokens_generated"]) / seconds);
    if (!bandwidth)
      return;
    row["bandwidth_gb_s"] = number(*bandwidth / 1e9);
    if (bytes && seconds > 0)
      row["percent_of_floor"] = number(100 * *bytes / *bandwidth / seconds);
  }

  void addLatencies(const Results &results, SweepRow &row) const {
    const auto [queued, first, perToken, gaps] = tools::latenciesOf(results);
    const auto put = [&](const char *name, double value) {
      row[fmt::format("{}_{}", name, table.unit())] = number(value);
    };
    const auto mean = [](const std::vector<double> &values) {
      double sum = 0;
      for (double value : values)
        sum += value;
      return sum / double(values.size());
    };
    if (!queued.empty()) {
      put("queued_mean", mean(queued));
      put("queued_max", *std::max_element(queued.begin(), queued.end()));
    }
    if (const auto p = tools::percentilesOf(first)) {
      put("ttft_mean", mean(first));
      put("ttft_p50", p->p50);
      put("ttft_p95", p->p95);
      put("ttft_p99", p->p99);
      put("ttft_max", p->max);
    }
    if (const auto p = tools::percentilesOf(gaps)) {
      put("itl_p50", p->p50);
      put("itl_p95", p->p95);
      put("itl_p99", p->p99);
      put("itl_max", p->max);
    }
    if (!perToken.empty())
      put("tpot", mean(perToken));
  }
};

} // namespace

bool sweep(const SweepCommand &command, Diagnostics &diags) {
  const auto plan = planSweep(command, diags);
  if (!plan)
    return false;
  SweepTable table(command, *plan);
  return table.open(diags) && Sweep(command, *plan, table, diags).run();
}

} // namespace megalith::tool
