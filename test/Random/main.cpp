//===- main.cpp - megalith-random: random model files through every stage -===//
#include "CheckModel.h"
#include "RandomModel.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/raw_ostream.h"
#include <chrono>
#include <fmt/format.h>
#include <map>

using namespace megalith::random_models;
using llvm::errs;
using llvm::outs;
namespace cl = llvm::cl;

namespace {
cl::OptionCategory category("Options");
cl::opt<uint64_t> first("first", cl::desc("First seed"), cl::init(0), cl::cat(category));
cl::opt<uint64_t> count("count", cl::desc("Number of models"), cl::init(1000), cl::cat(category));
cl::opt<std::string> pipelines("pipelines", cl::desc("Folder with the pipeline files"),
                               cl::init(MEGALITH_SOURCE_DIR "/pipelines"), cl::cat(category));
cl::opt<std::string> arch("arch", cl::desc("Compile each emitted kernel for this architecture"), cl::cat(category));
cl::opt<bool> print("print", cl::desc("Print the model files only"), cl::cat(category));
cl::opt<bool> keepGoing("keep-going", cl::desc("Go on after a failure"), cl::cat(category));
cl::opt<std::string> writeTo("write", cl::desc("Write each model with a checkpoint into a folder below this one"),
                             cl::cat(category));
} // namespace

int main(int argc, char **argv) {
  cl::HideUnrelatedOptions(category);
  cl::ParseCommandLineOptions(argc, argv,
                              "Random model files: every pass must leave every token, logit and KV entry as it is\n");
  auto start = std::chrono::steady_clock::now();
  uint64_t tokens = 0, passes = 0, faults = 0, fused = 0, planned = 0, failures = 0;
  std::map<std::string, uint64_t> unsupported;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    if (print) {
      RandomModel model = makeModel(seed);
      outs() << "# seed " << seed << "\n" << model.yaml << "# config.json: " << model.config << "\n";
      continue;
    }
    CheckOptions options;
    options.pipelines = pipelines;
    options.arch = arch;
    if (!writeTo.empty())
      options.writeTo = fmt::format("{}/{}", writeTo.getValue(), seed);
    Outcome o = checkModel(seed, options);
    tokens += o.tokens;
    passes += o.passes;
    faults += o.faults;
    fused += o.fused;
    planned += o.planned;
    if (!o.unsupported.empty())
      ++unsupported[o.unsupported.substr(o.unsupported.find("error: "))];
    if (o.failure.empty())
      continue;
    ++failures;
    outs() << fmt::format("seed {}: {}\n", seed, o.failure);
    if (keepGoing)
      continue;
    outs() << "the model file:\n" << o.yaml;
    return 1;
  }
  if (print)
    return 0;
  std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  outs() << fmt::format("{} models, {} of them with fused numerics: {} failed\n", count.getValue(), fused, failures);
  outs() << fmt::format("{} tokens in {} passes of the reference executor, {} faults\n", tokens, passes, faults);
  outs() << fmt::format("{} planned and emitted\n", planned);
  for (const auto &[what, n] : unsupported)
    outs() << fmt::format("{} not planned: {}\n", n, what);
  errs() << fmt::format("{:.1f} s\n", took.count());
  // Requests that end in a fault test little.
  return failures || faults * 50 > count * 3;
}
