#include "Bench.h"
#include "EngineRun.h"
#include "Report.h"
#include "megalith/Text/Text.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"
#include <algorithm>

namespace megalith::tool {

namespace {

/// Ticks whose stamps a run keeps; of one more only a part is there.
constexpr int64_t kStampTicks = 17;
/// Of a run that feeds prompts: with these, whose decode ticks may be all of it.
int64_t stampTicks(const BenchCommand &command) { return kStampTicks + (command.prefill ? command.tokens : 0); }

bool badOption(Diagnostics &diags, const std::string &option, const std::string &why) {
  diags.report(Diag::BadOption, {}, option, why);
  return false;
}

int64_t most(const std::vector<int64_t> &numbers) { return *std::max_element(numbers.begin(), numbers.end()); }

std::vector<NamedFile> outputsOf(const BenchCommand &command) {
  return {{"--csv", command.csvFile}, {"--plot", command.plotFile}, {"--timeline", command.timelineFile}};
}

bool checkOptions(const BenchCommand &command, Diagnostics &diags) {
  const struct {
    const char *option;
    std::vector<int64_t> values;
    int64_t limit;
  } numbers[] = {{"--context", command.contexts, 1 << 28},
                 {"--batch", command.batches, 1 << 16},
                 {"--tokens", {command.tokens}, 1 << 24},
                 {"--repeats", {command.repeats}, 1000}};
  for (const auto &entry : numbers)
    for (int64_t value : entry.values)
      if (value < 1 || value > entry.limit)
        return badOption(diags, fmt::format("{} {}", entry.option, value),
                         fmt::format("expected a number from 1 to {}", entry.limit));
  if (command.cpu && !command.plotFile.empty())
    return badOption(diags, "--plot", "the CPU executor has no times; a plot needs a GPU");
  if (!command.timelineFile.empty() && command.contexts.size() * command.batches.size() > 1)
    return badOption(diags, "--timeline", "it shows one tick; give one context and one batch");
  if (command.prefill && (command.phases || !command.timelineFile.empty()) && llvm::is_contained(command.contexts, 1))
    return badOption(diags, "--context 1", "`--prefill` shows the ticks that feed all but the last token of the prompts, and there are none");
  for (const std::string &setting : command.compile.planSettings)
    if (llvm::StringRef(setting).starts_with("stamps="))
      return badOption(diags, "--plan " + setting, "`--phases` and `--timeline` choose that");
  return checkOutputs(outputsOf(command), {{"FILE", command.compile.file}, {"--config", command.config}}, diags);
}

/// The front half, with room for the largest combination. nullopt after an error.
std::optional<driver::Compilation> compileFor(const BenchCommand &command, Diagnostics &diags) {
  driver::CompileOptions options = command.compile;
  options.models = {{"", command.config}};
  auto compiled = driver::compile(options, diags);
  if (!compiled)
    return std::nullopt;
  const int64_t batch = most(command.batches), rows = compiled->module.param("rows_per_pass");
  if (batch > rows) {
    badOption(diags, fmt::format("--batch {}", batch), fmt::format("a pass has {} rows (`rows_per_pass`)", rows));
    return std::nullopt;
  }
  if (compiled->module.param("slots") < batch) {
    options.sets.push_back({"slots", std::to_string(batch)});
    compiled = driver::compile(options, diags);
    if (!compiled)
      return std::nullopt;
  }
  const int64_t positions = most(command.contexts) + command.tokens;
  for (const driver::LoadedModel &model : compiled->models)
    if (auto limit = model.positions(); limit && double(positions) > *limit) {
      badOption(diags, fmt::format("--context {}", most(command.contexts)),
                fmt::format("with {} new tokens these are more than the {:.0f} positions of `{}` "
                            "(`max_position_embeddings`)",
                            command.tokens, *limit, model.checked.file.path()));
      return std::nullopt;
    }
  // Behind the last token a pass may write as many positions as it has rows. The pool is
  // never under pressure.
  for (ir::Operation &op : compiled->module.root.region().ops)
    if (op.op == ir::Op::Pool) {
      const int64_t needed = batch * ((positions + 2 * rows) / op.getInt("page_tokens", 1) + 1);
      const int64_t watermark = std::clamp<int64_t>(op.getInt("watermark", 100), 1, 100);
      op.set("pages", std::max(op.getInt("pages"), (needed * 100 + watermark - 1) / watermark));
    }
  return compiled;
}

/// What a reader calls the shape: the directory of a config.json, else the file's name. It goes
/// onto terminals and into files of several formats.
std::string shapeName(const std::string &configFile) {
  llvm::SmallString<256> path(configFile);
  llvm::sys::fs::make_absolute(path);
  llvm::sys::path::remove_dots(path, /*remove_dot_dot=*/true);
  const llvm::StringRef directory = llvm::sys::path::filename(llvm::sys::path::parent_path(path));
  return text::printable(llvm::sys::path::filename(path) == "config.json" ? directory : llvm::sys::path::stem(path));
}

uint32_t hash32(uint32_t x) { // as device/Sync.cuh
  x ^= x >> 16;
  x *= 0x7feb352du;
  x ^= x >> 15;
  x *= 0x846ca68bu;
  return x ^ (x >> 16);
}

/// Token `j` of request `b` is hash32(j ^ hash32(b + 1)) modulo the vocabulary.
std::vector<runtime::RunRequest> makeRequests(int64_t context, int64_t batch, int64_t tokens, int64_t vocab) {
  std::vector<runtime::RunRequest> requests(batch);
  for (int64_t b = 0; b < batch; ++b) {
    requests[b].id = std::to_string(b);
    requests[b].maxNewTokens = tokens;
    for (int64_t j = 0; j < context; ++j)
      requests[b].tokens.push_back(
          static_cast<int32_t>(hash32(uint32_t(j) ^ hash32(uint32_t(b + 1))) % static_cast<uint32_t>(vocab)));
  }
  return requests;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 ? values[half] : (values[half - 1] + values[half]) / 2;
}

class Bench {
public:
  Bench(const BenchCommand &command, Diagnostics &diags) : command(command), diags(diags) {}

  bool run() {
    if (!checkOptions(command, diags))
      return false;
    auto compiled = compileFor(command, diags);
    if (!compiled || !checkOutputs(outputsOf(command), filesRead(*compiled, diags.sources()), diags) || !openDevice())
      return false;
    reportAccepted(*compiled, diags);
    subject.shape = shapeName(compiled->models.front().checked.file.path());
    subject.accepted = compiled->accepted();
    {
      auto engine = makeBenchEngine(command, *compiled, target(), false, diags);
      if (!engine)
        return false;
      if (!command.json)
        llvm::outs() << acceptedLine(subject.accepted)
                     << fmt::format("{}: {}, {} new tokens{}\n{}", engine->device, subject.shape, command.tokens,
                                    engine->manifest().pages && !command.prefill ? ", K and V of the context in place"
                                                                                  : "",
                                    formatTableHead(!command.cpu, command.prefill));
      for (const auto &[context, batch] : combinations())
        if (!measure(*engine, context, batch))
          return false;
    }
    phases.resize(points.size());
    if ((command.phases || !command.timelineFile.empty()) && !takeStamps(*compiled))
      return false;
    if (command.json)
      for (size_t i = 0; i < points.size(); ++i)
        llvm::outs() << formatJsonLine(points[i], phases[i], subject);
    return (command.csvFile.empty() || writeOutput(command.csvFile, formatCsv(points, subject), diags)) &&
           (command.plotFile.empty() || writeOutput(command.plotFile, formatPlot(points, plotTitle()), diags));
  }

private:
  const BenchCommand &command;
  Diagnostics &diags;
  std::optional<runtime::Device> device;
  BenchSubject subject;
  std::vector<BenchPoint> points;
  std::vector<std::vector<PhaseTime>> phases;
  std::vector<int64_t> firstTicks; ///< of the decode window

  runtime::Device *target() { return device ? &*device : nullptr; }

  std::string plotTitle() const {
    std::string title = subject.shape + ", " + subject.device;
    for (const std::string &name : subject.accepted)
      title += ", accepted " + name;
    return title;
  }

  std::vector<std::pair<int64_t, int64_t>> combinations() const {
    std::vector<std::pair<int64_t, int64_t>> all;
    for (int64_t batch : command.batches)
      for (int64_t context : command.contexts)
        all.push_back({context, batch});
    return all;
  }

  bool openDevice() {
    if (command.cpu)
      return true;
    auto driver = runtime::Driver::open();
    runtime::RuntimeError error = driver.error;
    if (driver) {
      auto opened = runtime::Device::open(**driver);
      if (opened) {
        device.emplace(std::move(*opened.value));
        return true;
      }
      error = opened.error;
    }
    // The advice behind the reason is that of `run`.
    const llvm::StringRef reason = llvm::StringRef(error.message).split("; `--device=").first;
    diags.report(diagByKebab(error.kind), {},
                 reason.str() + "; `megalith bench --device=cpu` runs the same kernel, without times");
    return false;
  }

  runtime::RunOptions options(int64_t context, int64_t batch) const {
    runtime::RunOptions how;
    how.kvInPlace = command.prefill ? 0 : context;
    const int64_t ticks = 4 * command.tokens + (command.prefill ? context * batch : 0) + 1024;
    how.tickRecords = std::min<int64_t>(ticks, 1 << 20);
    return how;
  }

  /// One run in which nothing went wrong.
  std::optional<runtime::RunOutcome> runOnce(BenchEngine &engine, const std::vector<runtime::RunRequest> &requests,
                                             const runtime::RunOptions &how) {
    auto outcome = engine.run(requests, how, diags);
    if (!outcome)
      return std::nullopt;
    if (outcome->stop) {
      reportStop(*outcome->stop, how.watchdogSeconds, diags);
      return std::nullopt;
    }
    for (const TraceRequest &r : outcome->requests)
      if (r.finish == "fault") {
        diags.report(Diag::RequestFaulted, {}, r.id.text, r.fault, faultText(r.fault));
        return std::nullopt;
      }
    return outcome;
  }

  bool measure(BenchEngine &engine, int64_t context, int64_t batch) {
    const auto requests = makeRequests(context, batch, command.tokens, engine.manifest().vocab);
    const runtime::RunOptions how = options(context, batch);
    BenchPoint point;
    point.context = context;
    point.batch = batch;
    subject.device = engine.device;
    // The first run of a combination is not counted: caches and clocks get ready.
    const int64_t runs = command.cpu ? 1 : command.repeats + 1;
    std::vector<double> ms, rates, floors, percents, bandwidths, kernels, prompts;
    for (int64_t i = 0; i < runs; ++i) {
      showProgress(fmt::format("context {}, batch {}: run {} of {}", context, batch, i + 1, runs));
      std::optional<double> bandwidth;
      if (!command.cpu && !(bandwidth = engine.bandwidth(diags)))
        return false;
      auto outcome = runOnce(engine, requests, how);
      clearProgress();
      if (!outcome)
        return false;
      auto window = decodeWindow(*outcome, engine.manifest(), engine.weightBytes);
      if (!window) {
        diags.report(Diag::BenchWindow, {}, context, batch);
        return false;
      }
      if (i == 0) {
        point.ticks = outcome->ticks;
        point.passes = outcome->passes;
        point.tokens = outcome->requests.front().tokens;
        firstTicks.push_back(window->first);
      }
      if (command.cpu || i == 0)
        continue;
      const double perToken = double(batch) / double(window->tokens) * 1e3; // seconds of all to ms of one
      ms.push_back(window->seconds * perToken);
      rates.push_back(double(window->tokens) / window->seconds);
      floors.push_back(window->bytes / *bandwidth * perToken);
      percents.push_back(100 * floors.back() / ms.back());
      bandwidths.push_back(*bandwidth);
      kernels.push_back(outcome->kernelMs);
      prompts.push_back(window->before * 1e3);
    }
    if (!command.cpu)
      point.times = {median(ms),       median(rates),      median(floors),
                     median(percents), median(bandwidths), median(kernels), median(prompts)};
    points.push_back(point);
    if (!command.json) {
      llvm::outs() << formatTableLine(point, command.prefill);
      llvm::outs().flush();
    }
    return true;
  }

  /// Runs each combination once more in a kernel that takes the time of its phases.
  bool takeStamps(const driver::Compilation &compiled) {
    auto engine = makeBenchEngine(command, compiled, target(), true, diags);
    if (!engine)
      return false;
    for (size_t i = 0; i < points.size(); ++i) {
      const BenchPoint &point = points[i];
      const auto requests = makeRequests(point.context, point.batch, command.tokens, engine->manifest().vocab);
      runtime::RunOptions how = options(point.context, point.batch);
      how.stampTicks = stampTicks(command);
      auto outcome = runOnce(*engine, requests, how);
      if (!outcome)
        return false;
      const TickRange ticks = command.prefill ? TickRange{0, firstTicks[i]} : TickRange{firstTicks[i], outcome->ticks};
      phases[i] = phaseTimes(*outcome, engine->manifest(), how.stampTicks, ticks);
      if (command.phases && !command.json)
        llvm::outs() << fmt::format("\ncontext {}, batch {}\n", point.context, point.batch)
                     << formatPhases(phases[i], !command.cpu);
      if (!command.timelineFile.empty() &&
          !writeOutput(command.timelineFile,
                       formatTimeline(*outcome, engine->manifest(), how.stampTicks, ticks, subject.accepted), diags))
        return false;
    }
    if (!command.phases)
      phases.assign(points.size(), {});
    return true;
  }
};

} // namespace

bool benchCommand(const BenchCommand &command, Diagnostics &diags) { return Bench(command, diags).run(); }

} // namespace megalith::tool
