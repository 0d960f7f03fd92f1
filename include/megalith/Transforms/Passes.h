//===- Passes.h - the list of passes and its runner -----------------------===//
#ifndef MEGALITH_TRANSFORMS_PASSES_H
#define MEGALITH_TRANSFORMS_PASSES_H

#include "megalith/IR/IR.h"
#include "megalith/Support/Diagnostics.h"
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace megalith::transforms {

#define PASS(Function, Name, Text) ir::Module Function(ir::Module module);
#include "megalith/Transforms/Passes.def"

struct PassInfo {
  const char *name, *text;
  ir::Module (*run)(ir::Module);
};
/// All passes, in order.
const std::vector<PassInfo> &passes();

struct PassOptions {
  std::string stopAfter;                         ///< name of the last pass to run; empty = all
  bool printAfterAll = false;                    ///< print the module after each pass, or "(unchanged)"
  bool time = false;                             ///< report milliseconds per pass
  std::function<void(const std::string &)> sink; ///< receives what the two above print
};

/// Runs the passes that come after `module.after()`, verifying the module before
/// the first and after each. A wrong name in `stopAfter` is Diag::UnknownPass
/// with the list of names; nullopt on error.
std::optional<ir::Module> runPasses(ir::Module module, const PassOptions &options, Diagnostics &diags);

/// Runs exactly the named passes, in the given order (megalith-opt). `after` moves on
/// only with a pass that is the next of the list, so that runPasses can continue.
std::optional<ir::Module> runNamed(ir::Module module, const std::vector<std::string> &names, Diagnostics &diags);

} // namespace megalith::transforms
#endif
