//===- Usage.h - reads command lines --------------------------------------===//
#ifndef MEGALITH_TOOLS_USAGE_H
#define MEGALITH_TOOLS_USAGE_H

#include "Command.h"

namespace megalith::tool {

enum class Color { Auto, Always, Never };

/// What a command line is about.
struct CommandLine {
  Command *command = nullptr; ///< null: none, or none that there is
  enum { Runs, Help, Version } asks = Runs;
  Color color = Color::Auto;
};

/// Reads it, and fills the command that runs. Reports `bad-option` for what it cannot understand: with what was
/// expected and the nearest name.
CommandLine readCommandLine(llvm::ArrayRef<llvm::StringRef> arguments, Diagnostics &diags);

} // namespace megalith::tool
#endif
