//===- Run.cpp - megalith run ---------------------------------------------===//
#include "ProgramCommand.h"
#include "Report.h"
#include "SameAs.h"
#include "megalith/Os/Ending.h"
#include "megalith/Os/WriteFile.h"
#include "megalith/Tools.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/raw_ostream.h"

namespace megalith::tool {

namespace {

class RunCommand : public ProgramCommand {
public:
  RunCommand();

private:
  KernelOptions kernelOptions;
  RunOptions running;
  std::string requestsFile, arrivalsFile, inputsFile, outputsFile;
  Format format = Format::Auto;
  bool isText = false; ///< the results are for reading
  std::string traceFile, replayFile, logitsFile, draftsFile, timelineFile;
  std::string sameAs;                   ///< another pipeline
  std::vector<std::string> corruptions; ///< TICK:ID:FIELD:VALUE
  std::string acceptanceText;           ///< of synthetic drafts
  uint64_t acceptanceSeed = 0;

  bool runProgram(Diagnostics &diags) override;
  bool checkOptions(Diagnostics &diags) const;
  bool callBuffers(const Program &program, Diagnostics &diags);
  bool readHooks(const Program &program, const std::vector<Request> &requests, Diagnostics &diags);
  std::optional<Kernel> load(const Program &program, Diagnostics &diags);
  void print(const RunReport &report) const { llvm::outs() << (isText ? formatText(report) : formatJson(report)); }
  void reportInterrupted(const Program &program, const Kernel &kernel, const std::vector<Request> &all, Results results,
                         Diagnostics &diags) const;
  void reportAll(const RunReport &report, size_t rangesBefore, Diagnostics &diags) const;
};

Value scheduleOf(std::string &to) {
  return {.form = "schedule", .take = [&to](llvm::StringRef text) {
            to = text.str();
            return tools::isSchedule(to) ? "" : std::string("expected ") + tools::scheduleForm;
          }};
}

RunCommand::RunCommand()
    : ProgramCommand({.name = "run",
                      .description = "Run requests through a pipeline, on a GPU or on the CPU",
                      .examples = R"(megalith run adaptive_speculative --model models/demo --requests R.jsonl
  runs the requests in one launch of one kernel, or without a GPU
make_requests | megalith run FILE --model DIR --requests -
  the same of requests from a pipe
megalith run FILE --model DIR --requests R.jsonl --device=cuda --trace T.jsonl
megalith run FILE --model DIR --requests R.jsonl --device=reference --replay T.jsonl
  checks a run on the GPU against the reference executor
megalith run mine.yaml --model DIR --requests R.jsonl --same-as sampled
  runs another pipeline, too, and tells the first token that differs: is my drafting lossless?)"}) {
  addModels();
  addTokenBytes();
  addKernel(kernelOptions.wholeKernel);
  addEdits(kernelOptions.sourceFiles);
  addRun(running, arrivalsFile, draftsFile);
  addLoop(running.control, running.ticksPerLaunch);
  add("requests", inputFile(text(requestsFile, "file.jsonl")),
      "One request per line: {\"id\", \"tokens\" or \"text\", \"max_new_tokens\", \"eos\", \"stop\", \"priority\", "
      "\"sampling\"}")
      .isUsual = true;
  add("inputs", inputFile(text(inputsFile, "file.safetensors")),
      "Of a pipeline of buffers: the buffers that the call brings, by their names");
  add("outputs", outputFile(text(outputsFile, "file.safetensors")),
      "Of a pipeline of buffers: those that its stages write");
  add("device",
      choice(kernelOptions.device,
             {{Device::Auto, "auto", "a GPU if there is one, else the reference executor"},
              {Device::Cuda, "cuda", "the GPU: one persistent kernel"},
              {Device::Cpu, "cpu", "the emitted kernel on the CPU"},
              {Device::Reference, "reference", "the reference executor: the IR, without a kernel"}}),
      "Where to run (default: auto)");
  add("schedule", scheduleOf(running.schedule),
      "On cpu: the order of the threads, checked as with --check: round-robin, random:SEED or pct:SEED[:CHANGES]; @N "
      "after it: only its first N decisions");
  add("check", flag(kernelOptions.check), "On cpu: check the memory model, and that no access races");
  add("format",
      choice(format, {{Format::Auto, "auto", "text on a terminal, else json"},
                      {Format::Json, "json", "one JSON object per request, then a summary"},
                      {Format::Text, "text", "for reading, with charts of traced gauges"}}),
      "Form of the results (default: auto)");
  add("trace", outputFile(text(traceFile, "file.jsonl")), "Write what every tick did");
  add("logits", outputFile(text(logitsFile, "file")),
      "Write the row of logits that gave each generated token: a JSON line, then f32");
  add("timeline", outputFile(text(timelineFile, "file.json")),
      "Write what slots, passes, pools and the host did, for chrome://tracing or Perfetto");
  add("replay", inputFile(text(replayFile, "file.jsonl")),
      "Use this trace's tokens, check each against the own logits, and compare the control traces (auto: on the "
      "reference executor)");
  add("same-as", inputFile(text(sameAs, "FILE")),
      "Run the same requests through this pipeline, too, with the same checkpoints, params and seed; another token of "
      "a request is an error");
  add("reference-at", text(compile.stopAfter, "pass"), "Reference executor: run the IR as it is after this pass");
  add("max-ticks", number(running.maxTicks, "n", 1, INT32_MAX), "Stop after n ticks");
  add("kv-hash", flag(running.kvHash), "Put a hash of each row's K and V into the trace");
  add("acceptance", text(acceptanceText, "P,..."),
      "Synthetic drafts, right with probability P: of all requests, P,Q of the requests in turn, or P:N,Q:M of a "
      "request's first N new tokens, the next M, ...; decodes without drafts first");
  add("acceptance-seed", number(acceptanceSeed, "n"), "Which of the synthetic drafts are right");
  add("inject-corrupt", texts(corruptions, "TICK:ID:FIELD:VALUE"),
      "For tests: overwrite a request's field before a tick");
  add("delay-seed", number(running.delaySeed, "n"), "For tests: random delays before waits");
  add("watchdog", number(running.watchdogSeconds, "seconds"),
      "Stop a kernel in which nothing moves for so long; 0: never (default: 10)");
  add("repeat", number(running.repeat, "n", 1), "Run n times; tokens, logits, traces and KV must be equal bit for bit");
}

/// Options that cannot go together.
bool RunCommand::checkOptions(Diagnostics &diags) const {
  const Device device = kernelOptions.device;
  const bool cpu = device == Device::Cpu, reference = device == Device::Reference;
  const bool kernel = cpu || device == Device::Cuda;
  struct {
    bool wrong;
    const char *option, *why;
  } rules[] = {
      {kernel && !replayFile.empty() && !logitsFile.empty(), "--logits",
       "of the replays, only that on `--device=reference` can write them"},
      {kernel && !compile.stopAfter.empty(), "--reference-at",
       "only `--device=reference` can run the IR after any pass"},
      {reference && !kernelOptions.sourceFiles.empty(), "--cu",
       "only `--device=cuda` and `--device=cpu` run a CUDA source"},
      {reference && running.ticksPerLaunch > 0, "--ticks-per-launch",
       "only `--device=cuda` and `--device=cpu` launch a kernel"},
      {reference && running.control != Control::Resident, "--control",
       "only `--device=cuda` and `--device=cpu` launch a kernel"},
      {cpu && running.control == Control::Graph, "--control=graph", "only `--device=cuda` has CUDA graphs"},
      {reference && kernelOptions.wholeKernel, "--whole-kernel",
       "only `--device=cuda` and `--device=cpu` run a kernel"},
      {!cpu && !running.schedule.empty(), "--schedule", "only `--device=cpu` has schedules"},
      {!cpu && kernelOptions.check, "--check", "only `--device=cpu` checks memory"},
      {!replayFile.empty() && running.repeat > 1, "--repeat", "a replay runs once"},
      {!replayFile.empty() && !sameAs.empty(), "--same-as", "a replay has the tokens of its trace"},
      {sameAs == "/dev/stdin", "--same-as",
       "the standard input cannot be read twice, as this pipeline is; give its path"},
      {acceptanceText.empty() && given("acceptance-seed"), "--acceptance-seed",
       "it says which drafts of `--acceptance` are right; give that, too"},
      {!acceptanceText.empty() && !draftsFile.empty(), "--acceptance", "`--inject-drafts` says what is proposed"},
      {!acceptanceText.empty() && !replayFile.empty(), "--acceptance",
       "a replay takes its results from the trace; give it the drafts with `--inject-drafts`"},
  };
  for (const auto &rule : rules)
    if (rule.wrong)
      badOption(diags, rule.option, rule.why);
  return !diags.hasErrors() && checkOutputs(files(Value::Output), inputs(), diags);
}

/// The hooks of tests, and the trace to replay. False after an error.
bool RunCommand::readHooks(const Program &program, const std::vector<Request> &requests, Diagnostics &diags) {
  if (!draftsFile.empty()) {
    auto drafts = tools::readDrafts(program, draftsFile, requests);
    if (!got(drafts, diags))
      return false;
    running.drafts = std::move(*drafts);
  }
  for (const std::string &text : corruptions) {
    auto corruption = tools::parseCorruption(program, text, requests);
    if (!got(corruption, diags))
      return false;
    running.corruptions.push_back(*corruption);
  }
  if (replayFile.empty())
    return true;
  auto replay = tools::readTrace(replayFile);
  if (!got(replay, diags))
    return false;
  running.replay = std::move(*replay);
  running.replayName = replayFile;
  return true;
}

void writeTrace(const std::string &path, const std::string &trace, Diagnostics &diags) {
  if (path == "-")
    llvm::outs() << trace;
  else if (const std::string why = os::writeFile(path, trace); !why.empty())
    diags.report(Diag::TraceWrite, {}, fmt::format("{}: cannot write the trace: {}", path, why));
}

/// Gives out the results of requests that had ended.
void RunCommand::reportInterrupted(const Program &program, const Kernel &kernel, const std::vector<Request> &all,
                                   Results results, Diagnostics &diags) const {
  std::vector<Request> requests;
  std::vector<RequestResult> ended;
  for (size_t i = 0; i < results.requests.size(); ++i)
    if (results.requests[i].finish != "limit") {
      requests.push_back(all[i]);
      ended.push_back(std::move(results.requests[i]));
    }
  results.requests = std::move(ended);
  print({program, kernel, requests, results, acceptanceText, running.control});
  std::vector<std::string> missing;
  for (const NamedFile &output : files(Value::Output))
    missing.push_back(output.option);
  diags.report(Diag::Interrupted, {}, results.requests.size(), all.size(),
               missing.empty() ? "" : "; nothing is written for " + llvm::join(missing, ", "));
}

/// `rangesBefore`: of the host, when the run began.
void RunCommand::reportAll(const RunReport &report, size_t rangesBefore, Diagnostics &diags) const {
  if (!traceFile.empty())
    writeTrace(traceFile, report.results.trace, diags);
  if (!timelineFile.empty())
    writeOutput(timelineFile, formatRunTimeline(report, rangesBefore), diags);
  if (!logitsFile.empty())
    writeOutput(logitsFile, formatLogits(report), diags);
  print(report);
}

/// The kernel, on the device that the options choose. nullopt after an error.
std::optional<Kernel> RunCommand::load(const Program &program, Diagnostics &diags) {
  // What only the reference executor can do chooses it.
  if (kernelOptions.device == Device::Auto && (!replayFile.empty() || !compile.stopAfter.empty()))
    kernelOptions.device = Device::Reference;
  kernelOptions.cpuArch = cpuArch;
  kernelOptions.check = kernelOptions.check || !running.schedule.empty();
  kernelOptions.progress = showProgress;
  auto kernel = Kernel::load(program, kernelOptions);
  if (!got(kernel, diags))
    return std::nullopt;
  diags.adopt(kernel->messages());
  return std::move(*kernel);
}

/// One call of a pipeline of buffers.
bool RunCommand::callBuffers(const Program &program, Diagnostics &diags) {
  for (const char *option : {"inputs", "outputs"})
    if (!given(option)) {
      badOption(diags, fmt::format("--{}", option), "a pipeline of buffers needs it: `--inputs=FILE --outputs=FILE`");
      return false;
    }
  for (const Option &option : options)
    if (!option.given.empty() &&
        !llvm::is_contained({"inputs", "outputs", "device", "set", "ir", "reference-at", "check", "schedule", "control",
                             "repeat", "cu", "arch", "whole-kernel"},
                            llvm::StringRef(option.name))) {
      badOption(diags, option.dashed(), "a call of a pipeline of buffers has no use for it; leave it out");
      return false;
    }
  if (running.control == Control::Graph)
    return badOption(diags, "--control=graph", "a call is one launch; `host` is one for each stage");
  const auto kernel = load(program, diags);
  if (!kernel)
    return false;
  diags.adopt(tools::callWithFiles(
      *kernel, inputsFile, outputsFile,
      {.perStage = running.control == Control::Host, .schedule = running.schedule, .repeat = running.repeat}));
  return !diags.hasErrors();
}

bool RunCommand::runProgram(Diagnostics &diags) {
  if (requestsFile.empty() && !given("inputs") && !given("outputs")) {
    badOption(diags, "megalith run",
              "needs `--requests=file.jsonl`; a pipeline of buffers `--inputs=file.safetensors`");
    return false;
  }
  if (!checkOptions(diags) || !checkArch(kernelOptions.device == Device::Cpu, diags))
    return false;
  auto program = compileProgram(compile, diags);
  if (!program || !checkOutputs(files(Value::Output), filesRead(*program), diags))
    return false;
  reportAccepted(*program, diags);
  if (tools::isOfBuffers(*program))
    return callBuffers(*program, diags);
  for (const char *option : {"inputs", "outputs"})
    if (given(option)) {
      badOption(diags, fmt::format("--{}", option), "only a pipeline of buffers has buffers; give `--requests=FILE`");
      return false;
    }
  auto requests = readRequests(*program, requestsFile, diags);
  if (requests && !arrivalsFile.empty())
    requests = tools::readArrivals(*program, arrivalsFile, std::move(*requests));
  if (!got(requests, diags) || !readHooks(*program, *requests, diags))
    return false;
  std::optional<tools::Acceptance> acceptance;
  if (!acceptanceText.empty()) {
    auto parsed = tools::Acceptance::parse(acceptanceText);
    if (!got(parsed, diags))
      return false;
    acceptance = std::move(*parsed);
  }

  if (!timelineFile.empty())
    tools::keepHostRanges();
  isText = format == Format::Text || (format == Format::Auto && llvm::outs().is_displayed());
  std::optional<OtherRun> other; // first: it gives its memory back
  if (!sameAs.empty()) {
    std::string path = sameAs;
    if (!findPipeline(path, diags))
      return false;
    kernelOptions.cpuArch = cpuArch;
    kernelOptions.progress = showProgress;
    other = runOther(sameAs, path, compile, kernelOptions, running, *requests, diags);
    if (!other)
      return false;
  }
  const auto kernel = load(*program, diags);
  if (!kernel)
    return false;
  running.trace = !traceFile.empty() || !timelineFile.empty();
  running.tickTimes = !timelineFile.empty();
  running.gauges = isText;
  running.logits = !logitsFile.empty();
  running.progress = showProgress;
  running.interrupted = [] { return os::interrupted() != 0; };
  if (acceptance) {
    auto drafts = tools::syntheticDrafts(*kernel, running, *requests, *acceptance, acceptanceSeed);
    if (!got(drafts, diags))
      return false;
    running.drafts = std::move(*drafts);
    running.synthetic = acceptance->text();
  }
  const size_t rangesBefore = tools::hostRanges().size();
  os::deferInterrupt();
  auto results = kernel->run(*requests, running);
  if (!got(results, diags))
    return false;
  diags.adopt(results->messages);
  if (results->interrupted) {
    reportInterrupted(*program, *kernel, *requests, std::move(*results), diags);
    return false;
  }
  const bool same = other && checkSame(results->requests, *other, diags);
  reportAll({*program, *kernel, *requests, *results, acceptanceText, running.control, same ? sameAs : ""}, rangesBefore,
            diags);
  for (const RequestResult &result : results->requests)
    if (result.error)
      diags.adopt(*result.error);
  return !diags.hasErrors();
}

} // namespace

Command &runCommand() {
  static RunCommand command;
  return command;
}

} // namespace megalith::tool
