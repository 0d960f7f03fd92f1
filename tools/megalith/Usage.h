//===- Usage.h - options, and command lines that cannot be understood -----===//
//
// LLVM's option parser reads the command line. What it would refuse is found before, so
// that it is told like every other error: with what was expected and the nearest name.
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
  bool isFlag;
  std::vector<std::string> values; ///< all that it may be, if few
};

/// All of the program, in the order in which they were made.
std::vector<KnownOption> &knownOptions();

/// Whether the parser can read `arguments`, which stand behind the command; reports `bad-option`.
bool checkArguments(llvm::cl::SubCommand &command, llvm::ArrayRef<llvm::StringRef> arguments, Diagnostics &diags);

template <class T> KnownOption judged(llvm::cl::opt<T> &option) {
  KnownOption known{&option, std::is_same_v<T, bool>, {}};
  if constexpr (std::is_enum_v<T>) {
    for (unsigned i = 0; i < option.getParser().getNumOptions(); ++i)
      known.values.push_back(option.getParser().getOption(i).str());
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
    knownOptions().push_back({this, false, {}});
  }
};

} // namespace megalith::tool
#endif
