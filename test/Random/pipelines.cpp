//===- pipelines.cpp - megalith-random-pipelines --------------------------===//
//
// Random pipeline files through every stage, the compilers and the executors.
//===----------------------------------------------------------------------===//
#include "CheckPipeline.h"
#include "megalith/Driver/Compilation.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/raw_ostream.h"
#include <chrono>
#include <fmt/format.h>
#include <map>

using namespace megalith::random_pipelines;
using llvm::errs;
using llvm::outs;
namespace cl = llvm::cl;

namespace {
cl::OptionCategory category("Options");
cl::opt<uint64_t> first("first", cl::desc("First seed"), cl::init(0), cl::cat(category));
cl::opt<uint64_t> count("count", cl::desc("Number of pipelines"), cl::init(200), cl::cat(category));
cl::opt<bool> print("print", cl::desc("Print the pipeline files only"), cl::cat(category));
cl::opt<bool> wordy("wordy", cl::desc("Half of the names are words of C++, CUDA and the device code"),
                    cl::cat(category));
cl::opt<bool> keepGoing("keep-going", cl::desc("Go on after a failure"), cl::cat(category));
cl::opt<bool> host("host", cl::desc("Give what is accepted to the host's compiler"), cl::cat(category));
cl::opt<std::string> arch("arch", cl::desc("Give it to NVRTC, for this architecture"), cl::cat(category));
cl::opt<unsigned> together("together", cl::desc("Control halves that the host's compiler gets at a time"), cl::init(40),
                           cl::cat(category));
cl::opt<unsigned> whole("whole", cl::desc("Of these many accepted ones NVRTC compiles one as a whole; 0: none"),
                        cl::init(0), cl::cat(category));
cl::opt<unsigned> run("run", cl::desc("Run so many of them on the CPU executor"), cl::init(0), cl::cat(category));

/// What is to be said at the end.
struct Tally {
  uint64_t accepted = 0, refused = 0, failed = 0, ran = 0, attends = 0, compiled = 0, nvrtc = 0, wholes = 0;
  uint64_t tokens = 0, passes = 0, faults = 0, limits = 0;
  std::map<std::string, uint64_t> refusals;
};
Tally tally;
std::vector<std::pair<uint64_t, std::string>> waiting;

/// Prints a failure; whether to go on.
bool failed(const std::string &what, const std::string &yaml = "") {
  ++tally.failed;
  outs() << what << "\n";
  if (!keepGoing && !yaml.empty())
    outs() << "the pipeline file:\n" << yaml;
  outs().flush();
  return keepGoing;
}

/// Gives what waits to the host's compiler; each alone where all together fail.
bool compileWaiting() {
  std::vector<std::vector<std::pair<uint64_t, std::string>>> units = {std::move(waiting)};
  waiting.clear();
  bool goOn = true;
  for (size_t i = 0; i < units.size() && goOn; ++i) {
    const auto &unit = units[i];
    if (unit.empty())
      continue;
    const std::string text = unitOf(unit);
    const std::string said = hostErrors(text);
    if (said.empty()) {
      tally.compiled += unit.size();
    } else if (unit.size() == 1) {
      goOn = failed(
          fmt::format("seed {}: the host's compiler rejects the source:\n{}", unit[0].first, said.substr(0, 3000)));
    } else { // whose is it?
      const auto middle = unit.begin() + unit.size() / 2;
      std::vector<std::pair<uint64_t, std::string>> left(unit.begin(), middle), right(middle, unit.end());
      units.push_back(std::move(left));
      units.push_back(std::move(right));
    }
  }
  return goOn;
}

/// Of many halves together NVRTC would take longer than of each alone.
bool giveToNvrtc(uint64_t seed, const Outcome &o) {
  ++tally.nvrtc;
  std::string said = cudaErrors(unitOf({{seed, o.control}}), arch);
  if (said.empty() && whole && tally.nvrtc % whole == 0) {
    ++tally.wholes;
    said = cudaErrors(megalith::driver::wholeText(o.units), arch);
  }
  return said.empty() || failed(fmt::format("seed {}: NVRTC rejects the source:\n{}", seed, said), o.yaml);
}

bool check(uint64_t seed, const Models &models) {
  CheckOptions options;
  options.run = tally.ran < run;
  options.attends = seed % 3 == 0;
  options.wordy = wordy;
  Outcome o = checkPipeline(seed, models, options);
  tally.accepted += o.accepted;
  tally.refused += !o.accepted;
  tally.ran += o.ran;
  tally.attends += o.ran && options.attends;
  tally.tokens += o.tokens;
  tally.passes += o.passes;
  tally.faults += o.faults;
  tally.limits += o.limits;
  if (!o.refusal.empty())
    ++tally.refusals[o.refusal];
  if (!o.failure.empty() && !failed(fmt::format("seed {}: {}", seed, o.failure), o.yaml))
    return false;
  if (o.control.empty())
    return true;
  if (!arch.empty() && !giveToNvrtc(seed, o))
    return false;
  if (host)
    waiting.emplace_back(seed, std::move(o.control));
  return waiting.size() < together || compileWaiting();
}
} // namespace

int main(int argc, char **argv) {
  cl::HideUnrelatedOptions(category);
  cl::ParseCommandLineOptions(argc, argv,
                              "Random pipeline files: refused at a line, or accepted by all that comes after\n");
  const auto start = std::chrono::steady_clock::now();
  const Models models;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    if (print)
      outs() << "# seed " << seed << "\n" << makePipeline(seed, wordy).yaml;
    else if (!check(seed, models))
      return 1;
  }
  if (print)
    return 0;
  if (!compileWaiting())
    return 1;
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  outs() << fmt::format("{} pipelines: {} accepted, {} refused at a line, {} failed\n", count.getValue(),
                        tally.accepted, tally.refused, tally.failed);
  outs() << fmt::format("{} tokens in {} passes of the reference executor; {} requests faulted, {} did not end\n",
                        tally.tokens, tally.passes, tally.faults, tally.limits);
  outs() << fmt::format(
      "{} compiled for the host; {} by NVRTC, {} of them as whole kernels; {} ran on the CPU executor\n",
      tally.compiled, tally.nvrtc, tally.wholes, tally.ran);
  for (const auto &[what, n] : tally.refusals)
    outs() << fmt::format("{} refused: {}\n", n, what);
  errs() << fmt::format("{:.1f} s\n", took.count());
  return tally.failed != 0;
}
