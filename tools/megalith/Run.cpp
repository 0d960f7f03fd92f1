#include "Executors.h"
#include "llvm/Support/Process.h"
#include "llvm/Support/raw_ostream.h"
#include <cstring>

namespace megalith::tool {

void showProgress(const std::string &text) {
  static const bool terminal = llvm::sys::Process::StandardErrIsDisplayed();
  if (terminal)
    llvm::errs() << "\r\x1b[2K" << text;
}

void clearProgress() { showProgress(""); }

/// Options that cannot go together.
static bool checkOptions(const RunCommand &command, Diagnostics &diags) {
  const bool cuda = command.device == DeviceChoice::Cuda, reference = command.device == DeviceChoice::Reference;
  struct {
    bool wrong;
    const char *option, *why;
  } rules[] = {
      {cuda && !command.replayFile.empty(), "--replay", "only `--device=reference` can replay a trace"},
      {cuda && command.referenceAtGiven, "--reference-at",
       "only `--device=reference` can run the IR after any pass"},
      {reference && !command.cuFile.empty(), "--cu", "only `--device=cuda` runs a CUDA source"},
      {!command.replayFile.empty() && command.repeat > 1, "--repeat", "a replay runs once"},
  };
  for (const auto &rule : rules)
    if (rule.wrong)
      diags.report(Diag::BadOption, {}, rule.option, rule.why);
  return !diags.hasErrors();
}

/// The device to run on: null means the reference executor. False after an error.
static bool openDevice(const RunCommand &command, std::optional<runtime::Device> &device, Diagnostics &diags) {
  // What only the reference executor can do chooses it.
  if (command.device == DeviceChoice::Reference ||
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

bool checkRepeat(const RunReport &first, const RunReport &again, unsigned number, Diagnostics &diags) {
  auto differs = [&](const std::string &what) {
    diags.report(Diag::RepeatDiffers, {}, number, what);
    return false;
  };
  for (size_t i = 0; i < first.requests.size(); ++i) {
    const RequestReport &a = first.requests[i], &b = again.requests[i];
    if (a.tokens != b.tokens || a.finish != b.finish || a.fault != b.fault)
      return differs(fmt::format("the tokens or the end of request number {}", i));
    // Bits, not values: a NaN differs from itself, and -0 equals 0.
    if (a.logits.size() != b.logits.size() ||
        std::memcmp(a.logits.data(), b.logits.data(), a.logits.size() * sizeof(float)) != 0)
      return differs(fmt::format("the logits of request number {}", i));
  }
  if (std::string difference = compareTraces(first.trace, again.trace); !difference.empty())
    return differs("the trace, " + difference);
  for (size_t t = 0; t < first.trace.ticks.size(); ++t)
    for (size_t p = 0; p < first.trace.ticks[t].passes.size(); ++p)
      if (first.trace.ticks[t].passes[p].kvHash != again.trace.ticks[t].passes[p].kvHash)
        return differs(fmt::format("K and V written in tick {}", first.trace.ticks[t].tick));
  return true;
}

/// Each request that faulted or was cut off, at its line.
static void reportUnfinished(const RunReport &report, const RunInputs &inputs, Diagnostics &diags) {
  for (size_t i = 0; i < report.requests.size(); ++i) {
    const RequestReport &r = report.requests[i];
    SourceLoc loc = inputs.place(diags.sources(), i);
    if (r.finish == "fault")
      diags.report(Diag::RequestFaulted, loc, inputs.requests[i].id, r.fault, faultText(r.fault));
    else if (r.finish == "limit")
      diags.report(Diag::RequestLimit, loc, inputs.requests[i].id, r.tokens.size(), report.ticks);
  }
}

bool runCommand(const RunCommand &command, Diagnostics &diags) {
  if (!checkOptions(command, diags))
    return false;
  driver::CompileOptions options = command.compile;
  options.needWeights = true;
  auto compiled = driver::compile(options, diags);
  if (!compiled)
    return false;
  auto inputs = readInputs(command, *compiled, diags);
  if (!inputs)
    return false;

  const bool text =
      command.format == Format::Text || (command.format == Format::Auto && llvm::outs().is_displayed());
  const bool charts = text && !compiled->module.all(ir::Op::Gauge).empty();
  std::optional<runtime::Device> device;
  if (!openDevice(command, device, diags))
    return false;
  auto report = device ? runOnCuda(command, *compiled, *inputs, *device, charts || !command.traceFile.empty(), diags)
                       : runOnReference(command, *compiled, *inputs, diags);
  if (!report)
    return false;

  if (!command.traceFile.empty())
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
