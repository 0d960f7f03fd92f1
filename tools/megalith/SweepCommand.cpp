//===- SweepCommand.cpp - megalith sweep ----------------------------------===//
#include "Report.h"
#include "Sweep.h"
#include "llvm/ADT/STLExtras.h"

namespace megalith::tool {

/// Of `--control`.
static Value modes(std::vector<Control> &to) {
  const auto take = [&to](llvm::StringRef text) {
    for (Control mode : {Control::Resident, Control::Host, Control::Graph})
      if (controlName(mode) == text) {
        to.push_back(mode);
        return "";
      }
    return "expected resident, host or graph, or several with commas";
  };
  return {.form = "mode,...", .take = take, .words = {"resident", "host", "graph"}, .isList = true, .isComma = true};
}

SweepCommand::SweepCommand()
    : ProgramCommand(
          {.name = "sweep",
           .description = "Measure pipelines over every combination of requests, tokens, params, control modes and "
                          "acceptance; a CSV line each, and it goes on where it was interrupted",
           .operand = "FILE ...",
           .most = SIZE_MAX,
           .examples =
               R"(megalith sweep FILE FILE --model DIR --requests=2,4,8,16 --tokens=32,64 --vary PIPELINE:block=1,2,4 --csv=F.csv
  measures every combination; the same command goes on where it was interrupted)"}) {
  addModels();
  addKernel(wholeKernel);
  add("config", models(configs, "path"),
      "Random weights of this config.json's shape (or its directory), in place of --model; with NAME for that model of "
      "the pipelines");
  add("requests", numbers(requests, "n,...", 1 << 16), "How many requests there are (default: 8)");
  add("tokens", numbers(tokens, "n,...", 1 << 24), "Tokens to generate per request (default: 64)");
  add("context", numbers(contexts, "n,...", 1 << 28), "Tokens of each prompt, which is fed (default: 16)");
  add("vary", texts(vary, "[PIPELINE:]PARAM=a,..."),
      "Values of a param, of all pipelines or of that one; a kernel each. May stand several times");
  add("control", modes(controls), "Who keeps the loop: resident (default), host, graph");
  add("ticks-per-launch", number(ticksPerLaunch, "n", 1, INT32_MAX), "End a launch after n ticks and launch again");
  add("acceptance", texts(acceptance, "P,...|none"),
      "A profile of synthetic drafts, as run has it, or `none`: the pipeline's own (default). May stand several times, "
      "a "
      "profile each");
  add("acceptance-seed", number(acceptanceSeed, "n"), "Which of the synthetic drafts are right");
  add("repeats", number(repeats, "n", 1, 1000), "Runs of each combination, a line each (default: 1)");
  add("device",
      choice(device, {{Device::Cuda, "cuda", "the GPU: times in ms"},
                      {Device::Cpu, "cpu", "the same kernel on the CPU: times in ticks"},
                      {Device::Reference, "reference", "the reference executor: times in ticks"}}),
      "Where to run (default: cuda, not auto: a CSV has ms or ticks, and not both)");
  add("watchdog", number(watchdogSeconds, "seconds"),
      "Stop a kernel in which nothing moves for so long; 0: never (default: 10)");
  add("csv", outputFile(text(csvFile, "file.csv")),
      "Write there, line by line; what the file has already is not run again (default: stdout)");
}

bool SweepCommand::runProgram(Diagnostics &diags) {
  if (given("acceptance-seed") && acceptance.empty())
    return badOption(diags, "--acceptance-seed", "it says which drafts of `--acceptance` are right; give that, too");
  const auto otherwise = [](auto &list, auto value) {
    if (list.empty())
      list = {value};
  };
  otherwise(requests, 8);
  otherwise(tokens, 64);
  otherwise(contexts, 16);
  otherwise(controls, Control::Resident);
  otherwise(acceptance, "none");
  return sweep(*this, diags);
}

Command &sweepCommand() {
  static SweepCommand command;
  return command;
}

} // namespace megalith::tool
