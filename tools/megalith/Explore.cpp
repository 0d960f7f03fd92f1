//===- Explore.cpp - megalith explore -------------------------------------===//
#include "ProgramCommand.h"
#include "Report.h"
#include "megalith/Tools.h"
#include "llvm/Support/raw_ostream.h"

namespace megalith::tool {

namespace {

class ExploreCommand : public ProgramCommand {
public:
  ExploreCommand();

private:
  tools::ExploreOptions exploring;
  std::string requestsFile, arrivalsFile, draftsFile, inputsFile;

  bool runProgram(Diagnostics &diags) override;
  bool exploreCalls(const Program &program, Diagnostics &diags);
};

ExploreCommand::ExploreCommand()
    : ProgramCommand({.name = "explore",
                      .description = "Run the emitted kernel on the CPU under many schedules, checking every access",
                      .examples = R"(megalith explore FILE --model DIR --seeds 200
  looks for races, deadlocks and the like in the emitted kernel, without a GPU)"}) {
  addModels();
  addTokenBytes();
  addKernel(exploring.wholeKernel);
  addEdits(exploring.sourceFiles);
  addRun(exploring, arrivalsFile, draftsFile);
  add("requests", inputFile(text(requestsFile, "file.jsonl")), "As for run (default: three small requests)");
  add("inputs", inputFile(text(inputsFile, "file.safetensors")),
      "Of a pipeline of buffers: the buffers that each call brings");
  add("seeds", number(exploring.schedules, "n", 0, 1000000000),
      "Schedules to run beside the first, which is round robin (default: 100)");
  add("first-seed", number(exploring.firstSeed, "n", 0, INT64_MAX), "Seed of the first of them");
  add("live", flag(exploring.live),
      "The requests come while the kernel runs, from a host that is one more thread under the schedule; it takes some "
      "back, and lets the kernel rest and go on");
}

bool ExploreCommand::exploreCalls(const Program &program, Diagnostics &diags) {
  if (inputsFile.empty())
    return badOption(diags, "--inputs", "a pipeline of buffers needs it: the buffers of a call");
  auto found = tools::exploreCalls(program, inputsFile, exploring);
  if (!got(found, diags))
    return false;
  diags.adopt(found->messages);
  llvm::outs() << fmt::format(
      "{} schedules (round robin, then seeds {} to {}), {:.1f} million steps in {:.1f} s: "
      "nothing found\nwhat the stages write is that of the reference executor, byte for byte, in "
      "one launch and in one for each stage\n",
      found->runs, exploring.firstSeed, exploring.firstSeed + exploring.schedules - 1, double(found->steps) / 1e6,
      found->seconds);
  return true;
}

bool ExploreCommand::runProgram(Diagnostics &diags) {
  auto program = compileProgram(compile, diags);
  if (!program)
    return false;
  reportAccepted(*program, diags);
  exploring.cpuArch = cpuArch;
  exploring.progress = showProgress;
  if (tools::isOfBuffers(*program))
    return exploreCalls(*program, diags);
  if (!inputsFile.empty())
    return badOption(diags, "--inputs", "only a pipeline of buffers has buffers; give `--requests=FILE`");
  auto requests = requestsFile.empty() ? tools::exampleRequests(*program) : readRequests(*program, requestsFile, diags);
  if (requests && !arrivalsFile.empty())
    requests = tools::readArrivals(*program, arrivalsFile, std::move(*requests));
  if (!got(requests, diags))
    return false;
  if (!draftsFile.empty()) {
    auto drafts = tools::readDrafts(*program, draftsFile, *requests);
    if (!got(drafts, diags))
      return false;
    exploring.drafts = std::move(*drafts);
  }
  auto found = tools::explore(*program, *requests, exploring);
  if (!got(found, diags))
    return false;
  diags.adopt(found->messages);
  llvm::outs() << acceptedLine(program->accepted())
               << fmt::format("{} schedules (round robin, then seeds {} to {}){}, {:.1f} million steps in {:.1f} s: "
                              "nothing found\n",
                              found->runs, exploring.firstSeed, exploring.firstSeed + exploring.schedules - 1,
                              exploring.live ? " of a live session" : "", double(found->steps) / 1e6, found->seconds);
  if (exploring.live)
    llvm::outs() << found->launches
                 << " launches; in each session every request ended once, with the tokens of a run\n";
  else
    llvm::outs() << fmt::format("{} ticks, {} rows, {} tokens: tokens, logits, K and V and traces equal bit for bit in "
                                "all; the reference executor agrees\n",
                                found->ticks, found->rows, found->tokens);
  return true;
}

} // namespace

Command &exploreCommand() {
  static ExploreCommand command;
  return command;
}

} // namespace megalith::tool
