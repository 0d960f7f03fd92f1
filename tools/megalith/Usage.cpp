#include "Usage.h"
#include "megalith/Tools.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"

namespace megalith::tool {

namespace cl = llvm::cl;
using llvm::StringRef;

std::vector<KnownOption> &knownOptions() {
  static std::vector<KnownOption> all;
  return all;
}

std::vector<const KnownOption *> optionsOf(cl::SubCommand &command) {
  std::vector<const KnownOption *> options;
  for (const KnownOption &known : knownOptions())
    if (known.option->Subs.contains(&command))
      options.push_back(&known);
  llvm::sort(options, [](auto *a, auto *b) { return a->option->ArgStr < b->option->ArgStr; });
  return options;
}

namespace {

/// `a, b or c`.
std::string oneOf(llvm::ArrayRef<std::string> values) {
  return values.size() < 2 ? llvm::join(values, "") : llvm::join(values.drop_back(), ", ") + " or " + values.back();
}

std::string dashed(const cl::Option &option) {
  return ((option.ArgStr.size() == 1 ? "-" : "--") + option.ArgStr).str();
}

/// `--requests=file.jsonl`, `-o file`.
std::string form(const cl::Option &option) {
  return (dashed(option) + (option.ArgStr.size() == 1 ? " " : "=") + option.ValueStr).str();
}

/// What others call things that we have.
struct Advice {
  const char *name, *text;
};
constexpr Advice optionAdvice[] = {
    {"checkpoint", "did you mean `--model`?"},
    {"weights", "did you mean `--model`?"},
    {"model-path", "did you mean `--model`?"},
    {"input", "did you mean `--requests`?"},
    {"prompts", "did you mean `--requests`?"},
    {"prompt",
     "prompts stand in the file of `--requests`; `python -m megalith run FILE --model DIR --prompt TEXT` takes one"},
    {"text",
     "prompts stand in the file of `--requests`; `python -m megalith run FILE --model DIR --prompt TEXT` takes one"},
    {"max-tokens", "it stands in the requests: `\"max_new_tokens\"`"},
    {"max-new-tokens", "it stands in the requests: `\"max_new_tokens\"`"},
    {"temperature", "it stands in the requests: `\"sampling\": {\"temperature\": ...}`"},
    {"top-k", "it stands in the requests: `\"sampling\": {\"top_k\": ...}`"},
    {"top-p", "it stands in the requests: `\"sampling\": {\"top_p\": ...}`"},
    {"gpu", "did you mean `--device=cuda`?"},
    {"cuda", "did you mean `--device=cuda`?"},
    {"cpu", "did you mean `--device=cpu`?"},
    {"backend", "did you mean `--device`?"},
    {"param", "did you mean `--set`?"},
};
/// Of commands that have no `-o`.
constexpr Advice outputAdvice[] = {
    {"o", "the results go to the standard output: `> FILE`"},
    {"out", "the results go to the standard output: `> FILE`"},
    {"output", "the results go to the standard output: `> FILE`"},
};
constexpr Advice commandAdvice[] = {
    {"serve", "a program of its own serves: `megalith-serve PIPELINE --model DIR`, of the Python package"},
    {"server", "a program of its own serves: `megalith-serve PIPELINE --model DIR`, of the Python package"},
    {"chat", "the Python package chats: `python -m megalith chat --model DIR`"},
    {"generate", "did you mean `run`?"},
    {"exec", "did you mean `run`?"},
    {"build", "did you mean `compile`?"},
    {"benchmark", "did you mean `bench`?"},
    {"show", "did you mean `inspect`?"},
    {"clean", "did you mean `cache --clean`?"},
    {"version", "did you mean `--version`?"},
};
constexpr Advice deviceAdvice[] = {{"gpu", "cuda"}, {"nvidia", "cuda"}, {"host", "cpu"}, {"simulator", "cpu"}};

const char *adviceFor(llvm::ArrayRef<Advice> advice, StringRef name) {
  const auto *found = llvm::find_if(advice, [&](const Advice &a) { return name.equals_insensitive(a.name); });
  return found == advice.end() ? nullptr : found->text;
}

class Reader {
public:
  Reader(llvm::ArrayRef<StringRef> arguments, Diagnostics &diags) : arguments(arguments), diags(diags) {}

  CommandLine run() {
    while (next < arguments.size() && arguments[next].starts_with("-") && arguments[next].size() > 1)
      beforeCommand(arguments[next++]);
    if (next == arguments.size()) {
      if (line.asks == CommandLine::Runs && !diags.hasErrors() && !arguments.empty())
        error("megalith", "needs a command: " + commandNames());
      return line;
    }
    StringRef name = arguments[next++];
    if (name == "help") {
      line.asks = CommandLine::Help;
      if (next == arguments.size())
        return line;
      name = arguments[next++];
      if (name.starts_with("-"))
        return line;
      if (next < arguments.size() && !arguments[next].starts_with("-")) {
        error(arguments[next].str(), "`megalith help` takes one command, and has `" + name.str() + "`");
        return line;
      }
    }
    line.command = find(name);
    if (!line.command)
      unknownCommand(name);
    else if (line.asks == CommandLine::Runs)
      behindCommand();
    return line;
  }

private:
  llvm::ArrayRef<StringRef> arguments;
  Diagnostics &diags;
  CommandLine line;
  size_t next = 0;
  bool onlyFiles = false;
  std::vector<StringRef> files;
  std::vector<const cl::Option *> seen;

  void error(const std::string &what, const std::string &why) { diags.report(Diag::BadOption, {}, what, why); }

  cl::SubCommand &sub() const { return *line.command->sub; }
  std::string program() const { return "megalith " + sub().getName().str(); }

  static const Command *find(StringRef name) {
    const auto all = commands();
    const auto *found = llvm::find_if(all, [&](const Command &command) { return command.sub->getName() == name; });
    return found == all.end() ? nullptr : found;
  }

  static std::vector<std::string> allNames() {
    std::vector<std::string> names;
    for (const Command &command : commands())
      names.push_back(command.sub->getName().str());
    return names;
  }

  static std::string commandNames() {
    const std::vector<std::string> names = allNames();
    return llvm::join(llvm::ArrayRef(names).drop_back(), ", ") + " and " + names.back();
  }

  /// What every command has, and what may stand before it.
  bool global(StringRef argument) {
    if (argument == "-h" || argument == "-help" || argument == "--help") {
      line.asks = CommandLine::Help;
      return true;
    }
    if (argument == "-V" || argument == "-version" || argument == "--version") {
      if (line.asks == CommandLine::Runs)
        line.asks = CommandLine::Version;
      return true;
    }
    if (argument == "--color" || argument.starts_with("--color=")) {
      const StringRef value = argument.split('=').second;
      if (argument == "--color" && next < arguments.size() &&
          llvm::is_contained({"always", "never", "auto"}, arguments[next])) {
        const std::string word = arguments[next++].str();
        error("--color " + word, "its value stands behind `=`: `--color=" + word + "`");
      } else if (argument == "--color" || value == "always" || value == "true")
        line.color = Color::Always;
      else if (value == "never" || value == "false")
        line.color = Color::Never;
      else if (value == "auto")
        line.color = Color::Auto;
      else
        error(argument.str(), "expected auto, always or never");
      return true;
    }
    return false;
  }

  void beforeCommand(StringRef argument) {
    if (global(argument))
      return;
    const StringRef name = argument.ltrim('-').split('=').first;
    error(argument.str(), "`megalith` has no such option");
    std::string owners;
    const cl::Option *owned = nullptr;
    for (const Command &command : commands())
      for (const KnownOption *known : optionsOf(*command.sub))
        if (known->option->ArgStr == name) {
          owners += (owners.empty() ? "`" : ", `") + command.sub->getName().str() + "`";
          owned = known->option;
        }
    if (owned)
      diags.note("it stands behind a command that has it: " + owners);
    else
      diags.note("before a command `--color`, `--help` and `--version` may stand");
    // Its value is no command.
    if (owned && !argument.contains('=') && owned->getValueExpectedFlag() != cl::ValueOptional &&
        next < arguments.size() && !find(arguments[next]))
      ++next;
  }

  void unknownCommand(StringRef name) {
    error(name.str(), "the commands are " + commandNames());
    if (const char *advice = adviceFor(commandAdvice, name))
      diags.note(advice);
    else
      diags.suggest(name, allNames());
    if (name.ends_with(".yaml") || name.ends_with(".yml") || tools::shippedPipelines().count(name.str()))
      diags.note("a command stands before the file: `megalith run " + name.str() + "`");
  }

  void behindCommand() {
    while (next < arguments.size()) {
      const StringRef argument = arguments[next++];
      if (!onlyFiles && global(argument))
        continue;
      line.arguments.push_back(argument.str());
      if (onlyFiles || argument == "-" || !argument.starts_with("-"))
        files.push_back(argument);
      else if (argument == "--")
        onlyFiles = true;
      else
        check(argument);
    }
    if (line.asks == CommandLine::Runs)
      demand();
  }

  const KnownOption *find(cl::SubCommand &command, StringRef name) const {
    for (const KnownOption &known : knownOptions())
      if (known.option->ArgStr == name && known.option->Subs.contains(&command))
        return &known;
    return nullptr;
  }

  void check(StringRef argument) {
    const auto [front, value] = argument.split('=');
    const bool hasValue = front.size() != argument.size();
    const StringRef name = front.drop_front(front.starts_with("--") ? 2 : 1);
    const KnownOption *known = find(sub(), name);
    if (!known) {
      unknown(argument, name);
      return;
    }
    if (!known->isList && llvm::is_contained(seen, known->option))
      error(argument.str(), "`" + dashed(*known->option) + "` stands twice");
    seen.push_back(known->option);
    if (known->isFlag) {
      if (hasValue && !llvm::is_contained({"true", "false", "1", "0"}, value))
        error(argument.str(), "takes no value");
      return;
    }
    if (hasValue) {
      judge(*known, value);
    } else if (next == arguments.size() || isOption(arguments[next])) {
      error(argument.str(), "needs a value, `" + form(*known->option) + "`");
    } else {
      line.arguments.push_back(arguments[next].str());
      judge(*known, arguments[next++]);
    }
  }

  bool isOption(StringRef argument) const {
    if (argument == "-h")
      return true;
    return argument.consume_front("--") &&
           (argument == "help" || argument == "version" || find(sub(), argument.split('=').first));
  }

  void judge(const KnownOption &known, StringRef value) {
    if (known.values.empty() || llvm::is_contained(known.values, value))
      return;
    error((dashed(*known.option) + "=" + value).str(), "expected " + oneOf(known.values));
    const char *advice = known.option->ArgStr == "device" ? adviceFor(deviceAdvice, value.split(':').first) : nullptr;
    const auto begins = llvm::find_if(known.values, [&](const std::string &candidate) {
      return !value.empty() && (value.starts_with_insensitive(candidate) || StringRef(candidate).starts_with(value));
    });
    if (advice && llvm::is_contained(known.values, advice))
      diags.note(std::string("did you mean `") + advice + "`?");
    else if (value == "auto" && known.option->ArgStr == "device")
      diags.note("what it measures differs from device to device, so none is chosen unasked");
    else if (begins != known.values.end())
      diags.note("did you mean `" + *begins + "`?");
    else
      diags.suggest(value, known.values);
  }

  /// The option that begins so: of several the one that is required, then the shortest.
  std::string beginningWith(StringRef name) const {
    const KnownOption *best = nullptr;
    const auto rank = [](const KnownOption &known) {
      return std::pair(known.option->getNumOccurrencesFlag() != cl::Required, known.option->ArgStr.size());
    };
    for (const KnownOption *known : optionsOf(sub()))
      if (known->option->ArgStr.starts_with(name) && (!best || rank(*known) < rank(*best)))
        best = known;
    return best && !name.empty() ? best->option->ArgStr.str() : "";
  }

  void unknown(StringRef argument, StringRef name) {
    error(argument.str(), "`" + program() + "` has no such option");
    if (llvm::sys::fs::exists(argument)) {
      files.push_back(argument);
      diags.note("the file of this name is `./" + argument.str() + "`");
      return;
    }
    std::vector<std::string> names;
    std::vector<const cl::Option *> foreign; // commands have options of the same name
    for (const KnownOption &known : knownOptions())
      if (known.option->Subs.contains(&sub()))
        names.push_back(known.option->ArgStr.str());
      else if (known.option->ArgStr == name)
        foreign.push_back(known.option);
    std::string owner; // the first in the alphabet, of several
    for (const cl::Option *option : foreign)
      for (const cl::SubCommand *other : option->Subs)
        if (owner.empty() || other->getName() < owner)
          owner = other->getName().str();
    std::string near = beginningWith(name);
    if (near.empty())
      near = nearestName(name, names);
    const bool has = !llvm::is_contained(names, "o") && sub().getName() != "cache";
    if (const char *advice = has ? adviceFor(outputAdvice, name) : nullptr)
      diags.note(advice);
    else if (const char *other = adviceFor(optionAdvice, name))
      diags.note(other);
    else if (!owner.empty())
      diags.note("`megalith " + owner + "` has one");
    else if (!near.empty())
      diags.note("did you mean `" + std::string(near.size() == 1 ? "-" : "--") + near + "`?");
    else
      diags.note("`" + program() + " --help` lists all");
  }

  /// One file, where the command takes one, and what is required.
  void demand() {
    if (sub().PositionalOpts.empty()) {
      if (!files.empty())
        error(files[0].str(), "`" + program() + "` takes no file");
    } else if (files.empty()) {
      if (sub().PositionalOpts[0]->getNumOccurrencesFlag() != cl::Optional)
        error(program(), sub().PositionalOpts[0]->ValueStr == "FILE"
                             ? std::string("needs a pipeline file, such as pipelines/autoregressive.yaml")
                             : "needs one of " + sub().PositionalOpts[0]->ValueStr.str());
    } else if (files.size() > 1 && sub().PositionalOpts[0]->getNumOccurrencesFlag() != cl::OneOrMore)
      error(files[1].str(), "`" + program() + "` takes one " +
                                (sub().PositionalOpts[0]->ValueStr == "FILE" ? "pipeline file" : "word") +
                                ", and has `" + files[0].str() + "`");
    for (const KnownOption &known : knownOptions())
      if (known.option->Subs.contains(&sub()) && known.option->getNumOccurrencesFlag() == cl::Required &&
          !llvm::is_contained(seen, known.option))
        error(program(), "needs `" + form(*known.option) + "`");
  }
};

} // namespace

CommandLine readCommandLine(llvm::ArrayRef<StringRef> arguments, Diagnostics &diags) {
  return Reader(arguments, diags).run();
}

} // namespace megalith::tool
