#include "megalith/Transforms/Passes.h"
#include "megalith/IR/Text.h"
#include <chrono>
#include <fmt/format.h>

namespace megalith::transforms {

const std::vector<PassInfo> &passes() {
  static const std::vector<PassInfo> all = {
#define PASS(Function, Name, Text) {Name, Text, Function},
#include "megalith/Transforms/Passes.def"
  };
  return all;
}

/// Position of a pass in the list; -1 for "lower" and "" (before the first), nullopt
/// for a name that is no pass.
static std::optional<int> positionOf(const std::string &name) {
  if (name.empty() || name == "lower")
    return -1;
  for (size_t i = 0; i < passes().size(); ++i)
    if (name == passes()[i].name)
      return static_cast<int>(i);
  return std::nullopt;
}

static void reportUnknown(const std::string &name, SourceLoc loc, Diagnostics &diags) {
  diags.report(Diag::UnknownPass, loc, name);
  std::vector<std::string> names;
  for (const PassInfo &pass : passes())
    names.push_back(pass.name);
  diags.note(fmt::format("passes are, in order: {}", fmt::join(names, ", ")));
  diags.suggest(name, names);
}

/// The text that tells whether a pass changed anything.
static std::string withoutMark(ir::Module module) {
  module.root.erase<ir::attr::after>();
  return ir::print(module);
}

std::optional<ir::Module> runPasses(ir::Module module, const PassOptions &options, Diagnostics &diags) {
  std::optional<int> after = positionOf(module.after());
  std::optional<int> last = static_cast<int>(passes().size()) - 1;
  if (!options.stopAfter.empty())
    last = positionOf(options.stopAfter);
  if (!after)
    reportUnknown(module.after(), module.root.written, diags);
  else if (!last)
    reportUnknown(options.stopAfter, SourceLoc(), diags);
  if (!after || !last)
    return std::nullopt;
  if (*last < *after) {
    diags.report(Diag::PassIsOver, SourceLoc(), module.after(), options.stopAfter);
    return std::nullopt;
  }
  if (!ir::verify(module, diags))
    return std::nullopt;
  auto emit = [&](const std::string &text) {
    if (options.sink)
      options.sink(text);
  };
  for (int i = *after + 1; i <= *last; ++i) {
    const PassInfo &pass = passes()[i];
    std::string before = options.printAfterAll ? withoutMark(module) : "";
    auto start = std::chrono::steady_clock::now();
    module = pass.run(std::move(module));
    std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
    module.root.set<ir::attr::after>(std::string(pass.name));
    if (options.time)
      emit(fmt::format("{:>10.3f} ms  {}\n", took.count(), pass.name));
    if (options.printAfterAll) {
      if (withoutMark(module) == before)
        emit(fmt::format("// ----- after {} (unchanged)\n", pass.name));
      else
        emit(fmt::format("// ----- after {}\n{}\n", pass.name, ir::print(module)));
    }
    if (!ir::verify(module, diags)) {
      diags.note(fmt::format("after the pass `{}`", pass.name));
      return std::nullopt;
    }
  }
  return module;
}

std::optional<ir::Module> runNamed(ir::Module module, const std::vector<std::string> &names, Diagnostics &diags) {
  for (const std::string &name : names)
    if (positionOf(name).value_or(-1) < 0) {
      reportUnknown(name, SourceLoc(), diags);
      return std::nullopt;
    }
  if (!ir::verify(module, diags))
    return std::nullopt;
  for (const std::string &name : names) {
    int position = *positionOf(name);
    module = passes()[position].run(std::move(module));
    // The mark says how far the whole list has run, so that runPasses can go on from it.
    if (positionOf(module.after()) == position - 1)
      module.root.set<ir::attr::after>(name);
    if (!ir::verify(module, diags)) {
      diags.note(fmt::format("after the pass `{}`", name));
      return std::nullopt;
    }
  }
  return module;
}

} // namespace megalith::transforms
