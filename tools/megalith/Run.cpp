#include "Executors.h"
#include "llvm/Support/Process.h"
#include "llvm/Support/raw_ostream.h"

namespace megalith::tool {

void showProgress(const std::string &text) {
  static const bool terminal = llvm::sys::Process::StandardErrIsDisplayed();
  if (terminal)
    llvm::errs() << "\r\x1b[2K" << text;
}

void clearProgress() { showProgress(""); }

static std::vector<NamedFile> outputsOf(const RunCommand &command) {
  return {{"--trace", command.traceFile}, {"--logits", command.logitsFile}};
}

/// Options that cannot go together.
static bool checkOptions(const RunCommand &command, Diagnostics &diags) {
  const bool cpu = command.device == DeviceChoice::Cpu, reference = command.device == DeviceChoice::Reference;
  const bool kernel = cpu || command.device == DeviceChoice::Cuda;
  struct {
    bool wrong;
    const char *option, *why;
  } rules[] = {
      {kernel && !command.replayFile.empty() && !command.logitsFile.empty(), "--logits",
       "of the replays, only that on `--device=reference` can write them"},
      {kernel && command.referenceAtGiven, "--reference-at",
       "only `--device=reference` can run the IR after any pass"},
      {reference && !command.cuFile.empty(), "--cu", "only `--device=cuda` and `--device=cpu` run a CUDA source"},
      {!cpu && command.schedule, "--schedule", "only `--device=cpu` has schedules"},
      {!cpu && command.check, "--check", "only `--device=cpu` checks memory"},
      {!command.replayFile.empty() && command.repeat > 1, "--repeat", "a replay runs once"},
  };
  for (const auto &rule : rules)
    if (rule.wrong)
      diags.report(Diag::BadOption, {}, rule.option, rule.why);
  return !diags.hasErrors() && checkOutputs(outputsOf(command),
                                            {{"FILE", command.compile.file},
                                             {"--requests", command.requests},
                                             {"--replay", command.replayFile},
                                             {"--inject-drafts", command.draftsFile},
                                             {"--ir", command.compile.irFile},
                                             {"--cu", command.cuFile}},
                                            diags);
}

/// The GPU to run on: null means an executor on the CPU. False after an error.
static bool openDevice(const RunCommand &command, std::optional<runtime::Device> &device, Diagnostics &diags) {
  // What only the reference executor can do chooses it.
  if (command.device == DeviceChoice::Reference || command.device == DeviceChoice::Cpu ||
      (command.device == DeviceChoice::Auto && (!command.replayFile.empty() || command.referenceAtGiven)))
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
  // Without an explicit wish for the GPU, the executor that works everywhere.
  if (command.device == DeviceChoice::Auto && command.cuFile.empty())
    return true;
  diags.report(diagByKebab(error.kind), {}, error.message);
  return false;
}

bool checkRepeat(const runtime::RunOutcome &first, const runtime::RunOutcome &again, unsigned number,
                 Diagnostics &diags) {
  const std::string difference = differenceOf(first, again);
  if (!difference.empty())
    diags.report(Diag::RepeatDiffers, {}, number, difference);
  return difference.empty();
}

/// Each request that faulted or was cut off, at its line.
static void reportUnfinished(const RunReport &report, const RunInputs &inputs, Diagnostics &diags) {
  for (size_t i = 0; i < report.requests.size(); ++i) {
    const RequestReport &r = report.requests[i];
    SourceLoc loc = inputs.place(diags.sources(), i);
    const std::string &id = inputs.requests[i].id.text;
    if (r.finish == "fault") {
      diags.report(Diag::RequestFaulted, loc, id, r.fault, faultText(r.fault));
      if (!r.place.empty())
        diags.note(placeOf(r.place, diags), fmt::format("in state `{}`, here", r.faultState));
    } else if (r.finish == "limit") {
      diags.report(Diag::RequestLimit, loc, id, r.tokens.size(), report.ticks);
    }
  }
}

bool runCommand(const RunCommand &command, Diagnostics &diags) {
  if (!checkOptions(command, diags))
    return false;
  driver::CompileOptions options = command.compile;
  options.needWeights = true;
  auto compiled = driver::compile(options, diags);
  if (!compiled || !checkOutputs(outputsOf(command), filesRead(*compiled, diags.sources()), diags))
    return false;
  reportAccepted(*compiled, diags);
  auto inputs = readInputs(command, *compiled, diags);
  if (!inputs)
    return false;

  const bool text =
      command.format == Format::Text || (command.format == Format::Auto && llvm::outs().is_displayed());
  const bool charts = text && !compiled->module.all(ir::Op::Gauge).empty();
  std::optional<Trace> replay;
  if (!command.replayFile.empty()) {
    auto file = openInput(command.replayFile, "the trace", Diag::TraceMissing, diags);
    if (!file)
      return false;
    auto read = parseTrace(diags.sources().text(*file), command.replayFile);
    if (!read) {
      driver::reportCheckpoint(diags, read.error);
      return false;
    }
    replay = std::move(*read.value);
  }
  const Trace *given = replay ? &*replay : nullptr;
  std::optional<runtime::Device> device;
  if (!openDevice(command, device, diags))
    return false;
  const bool trace = charts || !command.traceFile.empty();
  auto report = device ? runOnCuda(command, *compiled, *inputs, *device, trace, given, diags)
                : command.device == DeviceChoice::Cpu
                    ? runOnCpu(command, *compiled, *inputs, trace, given, diags)
                    : runOnReference(command, *compiled, *inputs, diags, given);
  if (!report)
    return false;

  report->accepted = report->trace.accepted = compiled->accepted();
  if (!command.kvHash) // `--repeat` and schedules take the hashes only to compare them
    for (TraceTick &tick : report->trace.ticks)
      for (TracePass &pass : tick.passes)
        pass.kvHash.clear();
  if (command.traceFile == "-")
    llvm::outs() << formatTrace(report->trace);
  else if (!command.traceFile.empty())
    if (auto written = writeTrace(command.traceFile, report->trace); !written)
      driver::reportCheckpoint(diags, written.error);
  if (!command.logitsFile.empty())
    writeOutput(command.logitsFile, formatLogits(*report, inputs->requests, inputs->vocab), diags);
  llvm::outs() << (text ? formatText(*report, inputs->requests, inputs->byteVocabulary)
                        : formatJson(*report, inputs->requests, inputs->byteVocabulary));
  reportUnfinished(*report, *inputs, diags);
  return !diags.hasErrors();
}

} // namespace megalith::tool
