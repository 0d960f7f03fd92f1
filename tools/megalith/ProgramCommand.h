//===- ProgramCommand.h - commands that compile a program -----------------===//
#ifndef MEGALITH_TOOLS_PROGRAMCOMMAND_H
#define MEGALITH_TOOLS_PROGRAMCOMMAND_H

#include "Common.h"

namespace megalith::tool {

class ProgramCommand : public Command {
public:
  ProgramOptions compile;      ///< its `file` is the first of the command line
  std::string arch = "sm_90a"; ///< and its __CUDA_ARCH__
  int cpuArch = 900;

  bool run(Diagnostics &diags) final;
  /// The files of the command line that are read.
  std::vector<NamedFile> inputs() const;

protected:
  /// With the options of all of them: `--set`, `--device-profile`, `--accept`.
  explicit ProgramCommand(const About &about);
  /// `--model`.
  void addModels();
  /// `--token-bytes`.
  void addTokenBytes();
  /// Those of commands that make a kernel: `--plan`, `--whole-kernel`, `--arch`.
  void addKernel(bool &wholeKernel);
  /// Those that start in mid-way or look at it: `--ir`, `--cu`, ...
  void addEdits(std::vector<std::string> &cuFiles);
  /// Of what the kernel is given (RunOptions, tools::ExploreOptions), `--seed` and others.
  template <class Options> void addRun(Options &options, std::string &arrivalsFile, std::string &draftsFile);
  /// `--control` and `--ticks-per-launch`.
  void addLoop(Control &control, int64_t &ticksPerLaunch);

  /// Makes `file` the path of what the command line names: a file, the name of a pipeline that comes with megalith, or
  /// `-`, whose text goes into `compile.texts`. Reports `bad-option`.
  bool findPipeline(std::string &file, Diagnostics &diags);

  /// Does the work. `compile` is filled.
  virtual bool runProgram(Diagnostics &diags) = 0;
  /// Whether `--arch` is absent, or the CPU executor runs; reports `bad-option`.
  bool checkArch(bool cpu, Diagnostics &diags) const;
};

template <class Options>
void ProgramCommand::addRun(Options &options, std::string &arrivalsFile, std::string &draftsFile) {
  add("replay-epsilon", number(options.replayEpsilon, "x"),
      "A replayed token may be this far below the own maximum, relative to the norm of the row's logits (default: "
      "0.05)");
  add("replay-error", number(options.replayError, "x"),
      "Draws and other values of a replay may be those of logits that are off by this part of the row's root mean "
      "square, and a step of bf16 (default: 0.05)");
  add("seed", number(options.seed, "n"), "Seed of random numbers, beside each request's own (default: 0)");
  add("shuffle-pages", number(options.shufflePages, "seed"), "Deal KV pages in a random order");
  add("arrivals", inputFile(text(arrivalsFile, "file.jsonl")),
      "When requests arrive: {\"id\", \"tick\" or \"ms\"} per line; the others are there at the start");
  add("inject-drafts", inputFile(text(draftsFile, "file.jsonl")),
      "For tests: {\"id\", \"tokens\"} per line, proposed in place of looking up");
}

} // namespace megalith::tool
#endif
