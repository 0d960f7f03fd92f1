//===- megalith-opt.cpp - run passes on IR text ---------------------------===//
//
//   megalith-opt [--pass=a,b,c] [--verify-only] [--no-locations] [--list] [FILE | -]
//
// Reads one module, verifies it, runs the named passes in the given order and
// prints the module. Messages go to the standard error output; the exit code is 1
// after an error and 2 for a wrong command line.
//===----------------------------------------------------------------------===//
#include "megalith/IR/Text.h"
#include "megalith/Os/ReadFile.h"
#include "megalith/Support/Tool.h"
#include "megalith/Text/Text.h"
#include "megalith/Transforms/Passes.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/raw_ostream.h"
#include <unistd.h>

using namespace megalith;

namespace {

struct Options {
  std::vector<std::string> passNames;
  std::string file = "-";
  bool verifyOnly = false, locations = true;
};

constexpr const char *usage =
    "usage: megalith-opt [--pass=A,B,...] [--verify-only] [--no-locations] [--list] [FILE | -]\n";

/// The exit code when the program is to stop here.
std::optional<int> parseArguments(int argc, char **argv, Options &options) {
  for (int i = 1; i < argc; ++i) {
    llvm::StringRef arg = argv[i];
    if (arg.consume_front("--pass=")) {
      llvm::SmallVector<llvm::StringRef> names;
      arg.split(names, ',', -1, /*KeepEmpty=*/false);
      for (llvm::StringRef name : names)
        options.passNames.push_back(name.trim().str());
    } else if (arg == "--verify-only") {
      options.verifyOnly = true;
    } else if (arg == "--no-locations") {
      options.locations = false;
    } else if (arg == "--list") {
      for (const transforms::PassInfo &pass : transforms::passes())
        llvm::outs() << fmt::format("{:<18} {}\n", pass.name, pass.text);
      return 0;
    } else if (arg == "--help" || arg == "-h") {
      llvm::outs() << usage;
      return 0;
    } else if (arg.starts_with("-") && arg != "-") {
      llvm::errs() << fmt::format("unknown option `{}`\n{}", text::printable(arg), usage);
      return 2;
    } else {
      options.file = arg.str();
    }
  }
  return std::nullopt;
}

std::optional<uint32_t> load(const std::string &path, Diagnostics &diags) {
  std::string reason;
  const bool standard = path == "-";
  const std::string name = standard ? "<stdin>" : path;
  auto text = standard ? os::readDescriptor(STDIN_FILENO, os::sourceBytes, reason)
                       : os::readFile(path, os::sourceBytes, reason);
  if (text)
    return diags.sources().add(name, std::move(*text));
  diags.report(Diag::CannotReadFile, SourceLoc(), name, reason);
  return std::nullopt;
}

bool runPasses(const Options &options, Diagnostics &diags) {
  std::optional<uint32_t> file = load(options.file, diags);
  if (!file)
    return false;
  std::optional<ir::Module> module = ir::parse(diags, *file);
  if (!module)
    return false;
  module = transforms::runNamed(std::move(*module), options.passNames, diags);
  if (!module)
    return false;
  if (!options.verifyOnly) {
    ir::PrintOptions print;
    print.locations = options.locations;
    const std::string printed = ir::print(*module, print);
    llvm::outs() << (llvm::outs().is_displayed() ? text::printableLines(printed) : printed);
  }
  return true;
}

int optMain(int argc, char **argv) {
  Options options;
  if (std::optional<int> code = parseArguments(argc, argv, options))
    return *code;
  SourceFiles sources;
  Diagnostics diags(sources);
  bool ok = runPasses(options, diags);
  llvm::outs().flush();
  llvm::errs() << diags.render();
  return ok ? 0 : 1;
}

} // namespace

int main(int argc, char **argv) {
  return runTool([&] { return optMain(argc, argv); });
}
