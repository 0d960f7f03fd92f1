//===- Usage.h - options, and command lines that cannot be understood -----===//
//
// LLVM's option parser reads the command line. What it would refuse is found before, so
// that it is told like every other error: with what was expected and the nearest name.
// The options that are made here are the one list of them: help, completion and the man
// page (Help.h) are made of it.
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_TOOLS_USAGE_H
#define MEGALITH_TOOLS_USAGE_H

#include "megalith/Support/Diagnostics.h"
#include "llvm/Support/CommandLine.h"
#include <string>
#include <vector>

namespace megalith::tool {

/// One option, as far as its value can be judged without its meaning.
struct KnownOption {
  llvm::cl::Option *option;
  bool isFlag, isList;
  /// All that it may be, if few, and what each means.
  std::vector<std::string> values, valueHelp;
};

/// All of the program, in the order in which they were made.
std::vector<KnownOption> &knownOptions();
/// Those of a command, by name.
std::vector<const KnownOption *> optionsOf(llvm::cl::SubCommand &command);

/// One command of the program.
struct Command {
  llvm::cl::SubCommand *sub;
  bool (*main)(Diagnostics &);
  const char *operand;  ///< behind the options, as help shows it; "" for none
  const char *examples; ///< lines `megalith ...`, below each what it does, with two spaces before it
};
/// All of the program.
llvm::ArrayRef<Command> commands();

enum class Color { Auto, Always, Never };

/// What a command line is about, as far as it goes for all commands alike.
struct CommandLine {
  const Command *command = nullptr; ///< null: none, or none that there is
  enum { Runs, Help, Version } asks = Runs;
  Color color = Color::Auto;
  std::vector<std::string> arguments; ///< those behind the command, for LLVM's parser
};

/// Reads it as far as that; reports `bad-option` for all that the parser could not read.
CommandLine readCommandLine(llvm::ArrayRef<llvm::StringRef> arguments, Diagnostics &diags);

template <class T> KnownOption judged(llvm::cl::opt<T> &option) {
  KnownOption known{&option, std::is_same_v<T, bool>, false, {}, {}};
  if constexpr (std::is_enum_v<T>) {
    for (unsigned i = 0; i < option.getParser().getNumOptions(); ++i) {
      known.values.push_back(option.getParser().getOption(i).str());
      known.valueHelp.push_back(option.getParser().getDescription(i).str());
    }
  }
  return known;
}

/// An option that knownOptions() has.
template <class T> struct Option : llvm::cl::opt<T> {
  using llvm::cl::opt<T>::operator=;
  template <class... Given> explicit Option(const Given &...given) : llvm::cl::opt<T>(given...) {
    if (!this->ArgStr.empty())
      knownOptions().push_back(judged(*this));
  }
};
/// One that may stand several times.
struct OptionList : llvm::cl::list<std::string> {
  template <class... Given> explicit OptionList(const Given &...given) : llvm::cl::list<std::string>(given...) {
    knownOptions().push_back({this, false, true, {}, {}});
  }
};

} // namespace megalith::tool
#endif
