#include "Bench.h"
#include "Measured.h"
#include "Report.h"
#include "megalith/Contract/Limits.h"
#include "megalith/Text/Text.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/raw_ostream.h"
#include <algorithm>

namespace megalith::tool {

namespace {

/// Ticks whose stamps a run keeps; of one more only a part is there.
constexpr int64_t kStampTicks = 17;
/// Of a run that feeds prompts: with these, whose decode ticks may be all of it.
int64_t stampTicks(const BenchCommand &command) { return kStampTicks + (command.prefill ? command.tokens : 0); }

int64_t most(const std::vector<int64_t> &numbers) { return *std::max_element(numbers.begin(), numbers.end()); }

/// The program, with room for the largest combination. nullopt after an error.
std::optional<Program> compileFor(const BenchCommand &command, Diagnostics &diags) {
  ProgramOptions options = command.compile;
  options.models = command.configs;
  options.weights = false;
  auto program = Program::compile(options);
  if (!got(program, diags))
    return std::nullopt;
  const int64_t batch = most(command.batches),
                rows = std::min<int64_t>(program->param("rows_per_pass").value_or(0), limits::readRows);
  if (batch > rows) {
    badOption(diags, fmt::format("--batch {}", batch),
              fmt::format("a pass has {} rows that are read (`rows_per_pass`, at most {})", rows, limits::readRows));
    return std::nullopt;
  }
  if (program->param("slots") < batch) {
    program = tools::recompile(*program, {{"slots", std::to_string(batch)}});
    if (!got(program, diags))
      return std::nullopt;
  }
  diags.adopt(program->messages());
  const int64_t positions = most(command.contexts) + command.tokens;
  if (auto limit = program->positions(); limit && double(positions) > *limit) {
    badOption(diags, fmt::format("--context {}", most(command.contexts)),
              fmt::format("with {} new tokens these are more than the {:.0f} positions of {}", command.tokens, *limit,
                          program->positionsPlace()));
    return std::nullopt;
  }
  // Of a session all slots can be taken.
  tools::makeRoom(*program, !command.live.parts.empty() ? program->param("slots").value_or(batch) : batch, positions);
  return std::move(*program);
}

class Bench {
public:
  Bench(const BenchCommand &command, Diagnostics &diags) : command(command), diags(diags) {}

  bool run() {
    auto program = compileFor(command, diags);
    if (!program || !checkOutputs(command.files(Value::Output), filesRead(*program), diags) || !findDevice())
      return false;
    reportAccepted(*program, diags);
    if (!command.live.parts.empty())
      return benchLive(command, *program, diags);
    if (!got(requests(*program, command.contexts.front(), 1), diags)) // before a kernel is made for them
      return false;
    subject.shape = shapeName(program->configFile());
    subject.accepted = program->accepted();
    subject.control = controlName(command.control, command.ticksPerLaunch);
    subject.sampling = command.sampling;
    {
      auto engine = load(*program, false);
      if (!engine)
        return false;
      if (engine->shape().weightBytes == 0 && !command.plotFile.empty())
        return badOption(diags, "--plot",
                         "it shows the percentage of a floor, which is not known of a pipeline with "
                         "several models or calls in loops");
      if (!command.json)
        llvm::outs() << acceptedLine(subject.accepted)
                     << fmt::format("{}: {}, {} new tokens{}{}{}\n{}", engine->shape().device, subject.shape,
                                    command.tokens, command.sampling.empty() ? "" : ", sampling " + command.sampling,
                                    subject.control == "resident" ? "" : ", control " + subject.control,
                                    engine->shape().pages && !command.prefill ? ", K and V of the context in place"
                                                                              : "",
                                    formatTableHead(!command.cpu, command.prefill));
      for (const auto &[context, batch] : combinations())
        if (!measure(*program, *engine, context, batch))
          return false;
    }
    phases.resize(points.size());
    if (takesStamps() && !takeStamps(*program))
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
  BenchSubject subject;
  std::vector<BenchPoint> points;
  std::vector<std::vector<PhaseTime>> phases;
  std::vector<int64_t> firstTicks; ///< of the decode window

  bool takesStamps() const { return command.phases || !command.timelineFile.empty(); }

  std::string plotTitle() const {
    std::string title = subject.shape + ", " + subject.device;
    for (const std::string &name : subject.accepted)
      title += ", accepted " + name;
    return title + (subject.sampling.empty() ? "" : ", sampling " + subject.sampling);
  }

  std::vector<std::pair<int64_t, int64_t>> combinations() const {
    std::vector<std::pair<int64_t, int64_t>> all;
    for (int64_t batch : command.batches)
      for (int64_t context : command.contexts)
        all.push_back({context, batch});
    return all;
  }

  bool findDevice() {
    return command.cpu ||
           findGpu("`megalith bench --device=cpu` runs the same kernel, without times", diags).has_value();
  }

  /// `stamps`: a kernel that takes the time of its phases. nullopt after an error.
  std::optional<BenchKernel> load(const Program &program, bool stamps) {
    BenchKernel::Options options;
    options.device = command.cpu ? Device::Cpu : Device::Cuda;
    options.stamps = stamps;
    options.stampsFollow = !stamps && takesStamps();
    options.cpuArch = command.cpuArch;
    options.wholeKernel = command.wholeKernel;
    options.progress = showProgress;
    auto kernel = BenchKernel::load(program, options);
    if (!got(kernel, diags))
      return std::nullopt;
    diags.adopt(kernel->messages());
    return std::move(*kernel);
  }

  Expected<std::vector<Request>> requests(Program &program, int64_t context, int64_t batch) const {
    auto made = makeRequests(program, context, batch, command.tokens);
    if (command.sampling.empty())
      return made;
    return tools::withSampling(program, std::move(made), command.sampling);
  }

  BenchKernel::RunOptions options(int64_t context, int64_t batch) const {
    BenchKernel::RunOptions how;
    how.kvInPlace = command.prefill ? 0 : context;
    const int64_t ticks = 4 * command.tokens + (command.prefill ? context * batch : 0) + 1024;
    how.control = command.control;
    how.ticksPerLaunch = command.ticksPerLaunch;
    how.tickRecords = std::min<int64_t>(ticks, 1 << 20);
    return how;
  }

  bool measure(Program &program, BenchKernel &engine, int64_t context, int64_t batch) {
    const auto made = requests(program, context, batch);
    if (!got(made, diags))
      return false;
    const BenchKernel::RunOptions how = options(context, batch);
    BenchPoint point;
    point.context = context;
    point.batch = batch;
    subject.device = engine.shape().device;
    // The first run of a combination is not counted: caches and clocks get ready.
    const int64_t runs = command.cpu ? 1 : command.repeats + 1;
    std::vector<double> ms, rates, floors, percents, bandwidths, kernels, prompts;
    for (int64_t i = 0; i < runs; ++i) {
      showProgress(fmt::format("context {}, batch {}: run {} of {}", context, batch, i + 1, runs));
      const auto bandwidth = engine.bandwidth();
      if (!got(bandwidth, diags))
        return false;
      auto outcome = engine.run(*made, how);
      clearProgress();
      if (!got(outcome, diags))
        return false;
      auto window = decodeWindow(*outcome, engine.shape());
      if (!window) {
        diags.report(Diag::BenchWindow, {}, context, batch);
        return false;
      }
      if (i == 0) {
        point.ticks = outcome->ticks;
        point.passes = outcome->passes;
        point.tokens = outcome->tokens.front();
        firstTicks.push_back(window->first);
      }
      if (command.cpu || i == 0)
        continue;
      const double perToken = double(batch) / double(window->tokens) * 1e3; // seconds of all to ms of one
      ms.push_back(window->seconds * perToken);
      rates.push_back(double(window->tokens) / window->seconds);
      floors.push_back(window->bytes / **bandwidth * perToken);
      percents.push_back(100 * floors.back() / ms.back());
      bandwidths.push_back(**bandwidth);
      kernels.push_back(outcome->milliseconds);
      prompts.push_back(window->before * 1e3);
    }
    if (!command.cpu)
      point.times = {median(ms),         median(rates),   median(floors), median(percents),
                     median(bandwidths), median(kernels), median(prompts)};
    points.push_back(point);
    if (!command.json) {
      llvm::outs() << formatTableLine(point, command.prefill);
      llvm::outs().flush();
    }
    return true;
  }

  /// Runs each combination once more in a kernel that takes the time of its phases.
  bool takeStamps(Program &program) {
    auto engine = load(program, true);
    if (!engine)
      return false;
    for (size_t i = 0; i < points.size(); ++i) {
      const BenchPoint &point = points[i];
      const auto made = requests(program, point.context, point.batch);
      if (!got(made, diags))
        return false;
      BenchKernel::RunOptions how = options(point.context, point.batch);
      how.stampTicks = stampTicks(command);
      auto outcome = engine->run(*made, how);
      if (!got(outcome, diags))
        return false;
      const TickRange ticks = command.prefill ? TickRange{0, firstTicks[i]} : TickRange{firstTicks[i], outcome->ticks};
      phases[i] = phaseTimes(*outcome, engine->shape(), how.stampTicks, ticks);
      if (command.phases && !command.json)
        llvm::outs() << fmt::format("\ncontext {}, batch {}\n", point.context, point.batch)
                     << formatPhases(phases[i], !command.cpu);
      if (!command.timelineFile.empty() &&
          !writeOutput(command.timelineFile,
                       formatTimeline(*outcome, engine->shape(), how.stampTicks, ticks, subject.accepted), diags))
        return false;
    }
    if (!command.phases)
      phases.assign(points.size(), {});
    return true;
  }
};

} // namespace

bool bench(const BenchCommand &command, Diagnostics &diags) { return Bench(command, diags).run(); }

} // namespace megalith::tool
