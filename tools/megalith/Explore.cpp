#include "Options.h"
#include "Report.h"
#include "megalith/Tools.h"
#include "llvm/Support/raw_ostream.h"

namespace megalith::tool {

bool exploreCommand(const ExploreCommand &command, Diagnostics &diags) {
  auto program = compileProgram(command.compile, diags);
  if (!program)
    return false;
  reportAccepted(*program, diags);
  auto requests =
      command.requests.empty() ? tools::exampleRequests(*program) : readRequests(*program, command.requests, diags);
  if (requests && !command.arrivalsFile.empty())
    requests = tools::readArrivals(*program, command.arrivalsFile, std::move(*requests));
  if (!got(requests, diags))
    return false;
  tools::ExploreOptions options;
  if (!command.draftsFile.empty()) {
    auto drafts = tools::readDrafts(*program, command.draftsFile, *requests);
    if (!got(drafts, diags))
      return false;
    options.drafts = std::move(*drafts);
  }
  options.live = command.live;
  options.schedules = command.seeds;
  options.firstSeed = command.firstSeed;
  options.sourceFiles = command.cuFiles;
  options.wholeKernel = command.wholeKernel;
  options.cpuArch = command.cpuArch;
  options.shufflePages = command.shufflePages;
  options.seed = command.seed;
  options.replayEpsilon = command.replayEpsilon;
  options.replayError = command.replayError;
  options.progress = showProgress;
  auto found = tools::explore(*program, *requests, options);
  if (!got(found, diags))
    return false;
  diags.adopt(found->messages);
  if (command.live) {
    llvm::outs() << acceptedLine(program->accepted())
                 << fmt::format("{} schedules (round robin, then seeds {} to {}) of a live session, {:.1f} million "
                                "steps in {:.1f} s: nothing found\n"
                                "{} launches; in each session every request ended once, with the tokens of a run\n",
                                found->runs, command.firstSeed, command.firstSeed + command.seeds - 1,
                                double(found->steps) / 1e6, found->seconds, found->launches);
    return true;
  }
  llvm::outs()
      << acceptedLine(program->accepted())
      << fmt::format(
             "{} schedules (round robin, then seeds {} to {}), {:.1f} million steps in {:.1f} s: nothing found\n"
             "{} ticks, {} rows, {} tokens: tokens, logits, K and V and traces equal bit for bit in all; the reference "
             "executor agrees\n",
             found->runs, command.firstSeed, command.firstSeed + command.seeds - 1, double(found->steps) / 1e6,
             found->seconds, found->ticks, found->rows, found->tokens);
  return true;
}

} // namespace megalith::tool
