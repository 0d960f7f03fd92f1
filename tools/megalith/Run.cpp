#include "Options.h"
#include "Report.h"
#include "megalith/Os/Ending.h"
#include "megalith/Os/WriteFile.h"
#include "megalith/Text/Text.h"
#include "megalith/Tools.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Process.h"
#include "llvm/Support/raw_ostream.h"

namespace megalith::tool {

void showProgress(const std::string &text) {
  static const char *const kind = std::getenv("TERM");
  static const bool terminal = llvm::sys::Process::StandardErrIsDisplayed() && kind && llvm::StringRef(kind) != "dumb";
  if (!terminal)
    return;
  // Of a line that goes on below only the last one would be taken away.
  const unsigned columns = llvm::sys::Process::StandardErrColumns();
  llvm::errs() << "\r\x1b[2K" << (columns > 8 && text.size() >= columns ? text::printable(text, columns - 4) : text);
}

void clearProgress() { showProgress(""); }

static std::vector<NamedFile> outputsOf(const RunCommand &command) {
  return {{"--trace", command.traceFile}, {"--logits", command.logitsFile}, {"--timeline", command.timelineFile}};
}

/// Options that cannot go together.
static bool checkOptions(const RunCommand &command, Diagnostics &diags) {
  const Device device = command.kernel.device;
  const bool cpu = device == Device::Cpu, reference = device == Device::Reference;
  const bool kernel = cpu || device == Device::Cuda;
  struct {
    bool wrong;
    const char *option, *why;
  } rules[] = {
      {kernel && !command.replayFile.empty() && !command.logitsFile.empty(), "--logits",
       "of the replays, only that on `--device=reference` can write them"},
      {kernel && command.referenceAtGiven, "--reference-at", "only `--device=reference` can run the IR after any pass"},
      {reference && !command.kernel.sourceFiles.empty(), "--cu",
       "only `--device=cuda` and `--device=cpu` run a CUDA source"},
      {reference && command.session.ticksPerLaunch > 0, "--ticks-per-launch",
       "only `--device=cuda` and `--device=cpu` launch a kernel"},
      {reference && command.session.control != Control::Resident, "--control",
       "only `--device=cuda` and `--device=cpu` launch a kernel"},
      {cpu && command.session.control == Control::Graph, "--control=graph", "only `--device=cuda` has CUDA graphs"},
      {reference && command.kernel.wholeKernel, "--whole-kernel",
       "only `--device=cuda` and `--device=cpu` run a kernel"},
      {!cpu && !command.session.schedule.empty(), "--schedule", "only `--device=cpu` has schedules"},
      {!cpu && command.kernel.check, "--check", "only `--device=cpu` checks memory"},
      {!command.replayFile.empty() && command.session.repeat > 1, "--repeat", "a replay runs once"},
      {command.acceptance.empty() && command.acceptanceSeed, "--acceptance-seed",
       "it says which drafts of `--acceptance` are right; give that, too"},
      {!command.acceptance.empty() && !command.draftsFile.empty(), "--acceptance",
       "`--inject-drafts` says what is proposed"},
      {!command.acceptance.empty() && !command.replayFile.empty(), "--acceptance",
       "a replay takes its results from the trace; give it the drafts with `--inject-drafts`"},
  };
  for (const auto &rule : rules)
    if (rule.wrong)
      diags.report(Diag::BadOption, {}, rule.option, rule.why);
  return !diags.hasErrors() && checkOutputs(outputsOf(command),
                                            readFiles({{"FILE", command.compile.file},
                                                       {"--requests", command.requests},
                                                       {"--replay", command.replayFile},
                                                       {"--arrivals", command.arrivalsFile},
                                                       {"--inject-drafts", command.draftsFile},
                                                       {"--ir", command.compile.irFile}},
                                                      command.kernel.sourceFiles),
                                            diags);
}

/// The hooks of tests, and the trace to replay. False after an error.
static bool readHooks(const RunCommand &command, const Program &program, const std::vector<Request> &requests,
                      RunOptions &options, Diagnostics &diags) {
  if (!command.draftsFile.empty()) {
    auto drafts = tools::readDrafts(program, command.draftsFile, requests);
    if (!got(drafts, diags))
      return false;
    options.drafts = std::move(*drafts);
  }
  for (const std::string &text : command.corruptions) {
    auto corruption = tools::parseCorruption(program, text, requests);
    if (!got(corruption, diags))
      return false;
    options.corruptions.push_back(*corruption);
  }
  if (command.replayFile.empty())
    return true;
  auto replay = tools::readTrace(command.replayFile);
  if (!got(replay, diags))
    return false;
  options.replay = std::move(*replay);
  options.replayName = command.replayFile;
  return true;
}

static void writeTrace(const std::string &path, const std::string &trace, Diagnostics &diags) {
  if (path == "-")
    llvm::outs() << trace;
  else if (const std::string why = os::writeFile(path, trace); !why.empty())
    diags.report(Diag::TraceWrite, {}, fmt::format("{}: cannot write the trace: {}", path, why));
}

/// Gives out the results of requests that had ended.
static void reportInterrupted(const RunCommand &command, const Program &program, const Kernel &kernel,
                              const std::vector<Request> &all, Results results, bool text, Diagnostics &diags) {
  std::vector<Request> requests;
  std::vector<RequestResult> ended;
  for (size_t i = 0; i < results.requests.size(); ++i)
    if (results.requests[i].finish != "limit") {
      requests.push_back(all[i]);
      ended.push_back(std::move(results.requests[i]));
    }
  results.requests = std::move(ended);
  const RunReport report{program, kernel, requests, results, command.acceptance, command.session.control};
  llvm::outs() << (text ? formatText(report) : formatJson(report));
  std::vector<std::string> missing;
  for (const NamedFile &output : outputsOf(command))
    if (!output.path.empty())
      missing.push_back(output.option);
  diags.report(Diag::Interrupted, {}, results.requests.size(), all.size(),
               missing.empty() ? "" : "; nothing is written for " + llvm::join(missing, ", "));
}

bool runCommand(const RunCommand &command, Diagnostics &diags) {
  if (!checkOptions(command, diags))
    return false;
  auto program = compileProgram(command.compile, diags);
  if (!program || !checkOutputs(outputsOf(command), filesRead(*program), diags))
    return false;
  reportAccepted(*program, diags);
  auto requests = readRequests(*program, command.requests, diags);
  if (requests && !command.arrivalsFile.empty())
    requests = tools::readArrivals(*program, command.arrivalsFile, std::move(*requests));
  RunOptions options = command.session;
  if (!got(requests, diags) || !readHooks(command, *program, *requests, options, diags))
    return false;
  std::optional<tools::Acceptance> acceptance;
  if (!command.acceptance.empty()) {
    auto parsed = tools::Acceptance::parse(command.acceptance);
    if (!got(parsed, diags))
      return false;
    acceptance = std::move(*parsed);
  }

  if (!command.timelineFile.empty())
    tools::keepHostRanges();
  const bool text = command.format == Format::Text || (command.format == Format::Auto && llvm::outs().is_displayed());
  KernelOptions where = command.kernel;
  // What only the reference executor can do chooses it.
  if (where.device == Device::Auto && (!command.replayFile.empty() || command.referenceAtGiven))
    where.device = Device::Reference;
  where.check = where.check || !command.session.schedule.empty();
  where.progress = showProgress;
  auto kernel = Kernel::load(*program, where);
  if (!got(kernel, diags))
    return false;
  diags.adopt(kernel->messages());

  options.trace = !command.traceFile.empty() || !command.timelineFile.empty();
  options.tickTimes = !command.timelineFile.empty();
  options.gauges = text;
  options.logits = !command.logitsFile.empty();
  options.progress = showProgress;
  options.interrupted = [] { return os::interrupted() != 0; };
  if (acceptance) {
    auto drafts = tools::syntheticDrafts(*kernel, options, *requests, *acceptance, command.acceptanceSeed.value_or(0));
    if (!got(drafts, diags))
      return false;
    options.drafts = std::move(*drafts);
    options.synthetic = acceptance->text();
  }
  const size_t rangesBefore = tools::hostRanges().size();
  os::deferInterrupt();
  auto results = kernel->run(*requests, options);
  if (!got(results, diags))
    return false;
  diags.adopt(results->messages);

  if (results->interrupted) {
    reportInterrupted(command, *program, *kernel, *requests, std::move(*results), text, diags);
    return false;
  }
  if (!command.traceFile.empty())
    writeTrace(command.traceFile, results->trace, diags);
  const RunReport report{*program, *kernel, *requests, *results, command.acceptance, command.session.control};
  if (!command.timelineFile.empty())
    writeOutput(command.timelineFile, formatRunTimeline(report, rangesBefore), diags);
  if (!command.logitsFile.empty())
    writeOutput(command.logitsFile, formatLogits(report), diags);
  llvm::outs() << (text ? formatText(report) : formatJson(report));
  for (const RequestResult &result : results->requests)
    if (result.error)
      diags.adopt(*result.error);
  return !diags.hasErrors();
}

} // namespace megalith::tool
