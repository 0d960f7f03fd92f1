#include "Arguments.h"
#include "Numbers.h"
#include "Report.h"
#include "llvm/ADT/STLExtras.h"

namespace megalith::tool {

namespace cl = llvm::cl;

cl::SubCommand &sweepSub() {
  static cl::SubCommand sub("sweep", "Measure pipelines over every combination of requests, tokens, params, control "
                                     "modes and acceptance; a CSV line each, and it goes on where it was interrupted");
  return sub;
}

namespace {

#define SWEEP cl::sub(sweepSub()), cl::cat(optionCategory())

cl::list<std::string> sweepFiles(cl::Positional, cl::OneOrMore, cl::value_desc("FILE"), cl::desc("<pipeline.yaml> ..."),
                                 SWEEP);
OptionList sweepConfigs("config", cl::value_desc("[NAME=]path"),
                        cl::desc("Random weights of this config.json's shape (or its directory), in place of --model; "
                                 "with NAME for that model of the pipelines"),
                        SWEEP);
OptionList sweepRequests("requests", cl::value_desc("n,..."), cl::CommaSeparated,
                         cl::desc("How many requests there are (default: 8)"), SWEEP);
OptionList sweepTokens("tokens", cl::value_desc("n,..."), cl::CommaSeparated,
                       cl::desc("Tokens to generate per request (default: 64)"), SWEEP);
OptionList sweepContexts("context", cl::value_desc("n,..."), cl::CommaSeparated,
                         cl::desc("Tokens of each prompt, which is fed (default: 16)"), SWEEP);
OptionList
    sweepVary("vary", cl::value_desc("[PIPELINE:]PARAM=a,..."),
              cl::desc("Values of a param, of all pipelines or of that one; a kernel each. May stand several times"),
              SWEEP);
OptionList sweepControls("control", cl::value_desc("mode,..."), cl::CommaSeparated,
                         cl::desc("Who keeps the loop: resident (default), host, graph"), SWEEP);
WholeNumber<int64_t, 1, INT32_MAX> sweepTicksPerLaunch(0, "ticks-per-launch", cl::value_desc("n"),
                                                       cl::desc("End a launch after n ticks and launch again"), SWEEP);
OptionList
    sweepAcceptance("acceptance", cl::value_desc("P,...|none"),
                    cl::desc("A profile of synthetic drafts, as run has it, or `none`: the pipeline's own (default). "
                             "May stand several times, a profile each"),
                    SWEEP);
WholeNumber<uint64_t> sweepAcceptanceSeed(0, "acceptance-seed", cl::value_desc("n"),
                                          cl::desc("Which of the synthetic drafts are right"), SWEEP);
WholeNumber<int64_t, 1, 1000> sweepRepeats(1, "repeats", cl::value_desc("n"),
                                           cl::desc("Runs of each combination, a line each (default: 1)"), SWEEP);
Option<Device>
    sweepDevice("device", cl::desc("Where to run (default: cuda, not auto: a CSV has ms or ticks, and not both)"),
                cl::init(Device::Cuda),
                cl::values(clEnumValN(Device::Cuda, "cuda", "the GPU: times in ms"),
                           clEnumValN(Device::Cpu, "cpu", "the same kernel on the CPU: times in ticks"),
                           clEnumValN(Device::Reference, "reference", "the reference executor: times in ticks")),
                SWEEP);
RealNumber sweepWatchdog(10, "watchdog", cl::value_desc("seconds"),
                         cl::desc("Stop a kernel in which nothing moves for so long; 0: never (default: 10)"), SWEEP);
Option<std::string> sweepCsv("csv", cl::value_desc("file.csv"),
                             cl::desc("Write there, line by line; what the file has already is not run again (default: "
                                      "stdout)"),
                             SWEEP);

} // namespace

bool sweepMain(SweepCommand command, Diagnostics &diags) {
  if (!checkTexts({&sweepCsv},
                  {sweepConfigs, sweepRequests, sweepTokens, sweepContexts, sweepVary, sweepControls, sweepAcceptance},
                  diags) ||
      !numbersOf(sweepRequests, "requests", 8, command.requests, diags) ||
      !numbersOf(sweepTokens, "tokens", 64, command.tokens, diags) ||
      !numbersOf(sweepContexts, "context", 16, command.contexts, diags) ||
      !readModels("config", "path", sweepConfigs, command.configs, diags))
    return false;
  if (llvm::is_contained(sweepFiles, "")) {
    diags.report(Diag::BadOption, {}, "FILE", "the path of the pipeline is empty");
    return false;
  }
  for (const std::string &text : sweepControls) {
    const Control modes[] = {Control::Resident, Control::Host, Control::Graph};
    const auto *mode = llvm::find_if(modes, [&](Control m) { return controlName(m) == text; });
    if (mode == std::end(modes)) {
      diags.report(Diag::BadOption, {}, "--control " + text,
                   "expected resident, host or graph, or several with commas");
      diags.suggest(text, {"resident", "host", "graph"});
      return false;
    }
    command.controls.push_back(*mode);
  }
  if (command.controls.empty())
    command.controls = {Control::Resident};
  command.files.assign(sweepFiles.begin(), sweepFiles.end());
  std::vector<std::string *> files;
  for (std::string &file : command.files)
    files.push_back(&file);
  if (!checkStandardInput({{"FILE", files}}, diags))
    return false;
  for (std::string *file : files)
    if (!findPipeline(*file, command.compile.texts, diags))
      return false;
  command.vary.assign(sweepVary.begin(), sweepVary.end());
  command.acceptance.assign(sweepAcceptance.begin(), sweepAcceptance.end());
  if (command.acceptance.empty())
    command.acceptance = {"none"};
  if (sweepAcceptanceSeed.given() && sweepAcceptance.empty()) {
    diags.report(Diag::BadOption, {}, "--acceptance-seed",
                 "it says which drafts of `--acceptance` are right; give that, too");
    return false;
  }
  command.acceptanceSeed = sweepAcceptanceSeed;
  command.ticksPerLaunch = sweepTicksPerLaunch;
  command.repeats = sweepRepeats;
  command.device = sweepDevice;
  command.watchdogSeconds = sweepWatchdog;
  command.csvFile = sweepCsv;
  return sweepCommand(command, diags);
}

} // namespace megalith::tool
