#include "Usage.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

namespace megalith::tool {

namespace cl = llvm::cl;
using llvm::StringRef;

std::vector<KnownOption> &knownOptions() {
  static std::vector<KnownOption> all;
  return all;
}

namespace {

/// `a, b or c`.
std::string oneOf(llvm::ArrayRef<std::string> values) {
  return values.size() < 2 ? llvm::join(values, "") : llvm::join(values.drop_back(), ", ") + " or " + values.back();
}

/// `--requests=file.jsonl`.
std::string form(const cl::Option &option) { return ("--" + option.ArgStr + "=" + option.ValueStr).str(); }

class ArgumentCheck {
public:
  ArgumentCheck(cl::SubCommand &command, llvm::ArrayRef<StringRef> arguments, Diagnostics &diags)
      : command(command), arguments(arguments), diags(diags),
        program(command.getName().empty() ? "megalith" : "megalith " + command.getName().str()) {}

  bool run() {
    while (next < arguments.size()) {
      const StringRef argument = arguments[next++];
      if (onlyFiles || argument == "-" || !argument.starts_with("-"))
        files.push_back(argument);
      else if (argument == "--")
        onlyFiles = true;
      else if (!check(argument))
        return true; // help, or the version: nothing else counts
    }
    if (!command.getName().empty())
      demand();
    return !diags.hasErrors();
  }

private:
  cl::SubCommand &command;
  llvm::ArrayRef<StringRef> arguments;
  Diagnostics &diags;
  const std::string program;
  size_t next = 0;
  bool onlyFiles = false;
  std::vector<StringRef> files;
  std::vector<const cl::Option *> seen;

  void error(const std::string &what, const std::string &why) { diags.report(Diag::BadOption, {}, what, why); }

  const KnownOption *find(StringRef name) const {
    for (const KnownOption &known : knownOptions())
      if (known.option->ArgStr == name && known.option->Subs.contains(&command))
        return &known;
    return nullptr;
  }

  /// False for an option of the parser's own.
  bool check(StringRef argument) {
    const auto [dashed, value] = argument.split('=');
    const bool hasValue = dashed.size() != argument.size();
    const StringRef name = dashed.drop_front(dashed.starts_with("--") ? 2 : 1);
    const KnownOption *known = find(name);
    if (!known) {
      if (cl::getRegisteredOptions(command).count(name))
        return false;
      unknown(argument, name);
      return true;
    }
    seen.push_back(known->option);
    if (known->isFlag) {
      if (hasValue && !llvm::is_contained({"true", "false", "1", "0"}, value))
        error(argument.str(), "takes no value");
      return true;
    }
    if (hasValue) {
      judge(*known, value);
    } else if (next == arguments.size() || isOption(arguments[next])) {
      error(argument.str(), "needs a value, `" + form(*known->option) + "`");
    } else {
      judge(*known, arguments[next++]);
    }
    return true;
  }

  bool isOption(StringRef argument) const { return argument.consume_front("--") && find(argument.split('=').first); }

  void judge(const KnownOption &known, StringRef value) {
    const std::string given = ("--" + known.option->ArgStr + "=" + value).str();
    if (!known.values.empty() && !llvm::is_contained(known.values, value)) {
      error(given, "expected " + oneOf(known.values));
      diags.suggest(value, known.values);
    }
  }

  void unknown(StringRef argument, StringRef name) {
    error(argument.str(), "`" + program + "` has no such option");
    std::vector<std::string> names;
    std::vector<const cl::Option *> foreign; // commands have options of the same name
    for (const KnownOption &known : knownOptions())
      if (known.option->Subs.contains(&command))
        names.push_back(known.option->ArgStr.str());
      else if (known.option->ArgStr == name)
        foreign.push_back(known.option);
    const std::string near = nearestName(name, names);
    std::string owner; // the first in the alphabet, of several
    for (const cl::Option *option : foreign)
      for (const cl::SubCommand *other : option->Subs)
        if (owner.empty() || other->getName() < owner)
          owner = other->getName().str();
    if (!owner.empty())
      diags.note("`megalith " + owner + "` has one");
    else if (!near.empty())
      diags.note("did you mean `--" + near + "`?");
    else
      diags.note("`" + program + " --help` lists all");
  }

  /// One file, where the command takes one, and what is required.
  void demand() {
    if (command.PositionalOpts.empty()) {
      if (!files.empty())
        error(files[0].str(), "`" + program + "` takes no file");
    } else if (files.empty() && command.PositionalOpts[0]->getNumOccurrencesFlag() == cl::Optional) {
      // It does without.
    } else if (files.empty())
      error(program, "needs a pipeline file, such as pipelines/autoregressive.yaml");
    else if (files.size() > 1 && command.PositionalOpts[0]->getNumOccurrencesFlag() != cl::OneOrMore)
      error(files[1].str(), "`" + program + "` takes one pipeline file, and has `" + files[0].str() + "`");
    for (const KnownOption &known : knownOptions())
      if (known.option->Subs.contains(&command) && known.option->getNumOccurrencesFlag() == cl::Required &&
          !llvm::is_contained(seen, known.option))
        error(program, "needs `" + form(*known.option) + "`");
  }
};

} // namespace

bool checkArguments(cl::SubCommand &command, llvm::ArrayRef<StringRef> arguments, Diagnostics &diags) {
  return ArgumentCheck(command, arguments, diags).run();
}

} // namespace megalith::tool
