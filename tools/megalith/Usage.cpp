#include "Usage.h"
#include "megalith/Tools.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"

namespace megalith::tool {

using llvm::StringRef;

namespace {

/// `a, b or c`.
std::string oneOf(llvm::ArrayRef<std::string> values) {
  return values.size() < 2 ? llvm::join(values, "") : llvm::join(values.drop_back(), ", ") + " or " + values.back();
}

/// `--requests=file.jsonl`, `-o file`.
std::string form(const Option &option) { return option.dashed() + (option.isLetter() ? " " : "=") + option.value.form; }

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
      afterCommand();
    return line;
  }

private:
  llvm::ArrayRef<StringRef> arguments;
  Diagnostics &diags;
  CommandLine line;
  size_t next = 0;
  bool onlyFiles = false;
  std::vector<std::pair<Option *, std::string>> given; ///< options and their values

  void error(const std::string &what, const std::string &why) { badOption(diags, what, why); }

  std::string program() const { return "megalith " + line.command->name().str(); }

  static Command *find(StringRef name) {
    const auto *found = llvm::find_if(commands(), [&](const Command *command) { return command->name() == name; });
    return found == commands().end() ? nullptr : *found;
  }

  static std::vector<std::string> allNames() {
    std::vector<std::string> names;
    for (const Command *command : commands())
      names.push_back(command->name().str());
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
        error("--color " + word, "its value stands after `=`: `--color=" + word + "`");
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
    const Option *owned = nullptr;
    for (const Command *command : commands())
      if (const Option *option = command->find(name)) {
        owners += (owners.empty() ? "`" : ", `") + command->name().str() + "`";
        owned = option;
      }
    if (owned)
      diags.note("it stands after a command that has it: " + owners);
    else
      diags.note("before a command `--color`, `--help` and `--version` may stand");
    // Its value is no command.
    if (owned && !argument.contains('=') && !owned->isFlag() && next < arguments.size() && !find(arguments[next]))
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

  void afterCommand() {
    while (next < arguments.size()) {
      const StringRef argument = arguments[next++];
      if (!onlyFiles && global(argument))
        continue;
      if (onlyFiles || argument == "-" || !argument.starts_with("-"))
        line.command->operands.push_back(argument.str());
      else if (argument == "--")
        onlyFiles = true;
      else
        check(argument);
    }
    if (line.asks != CommandLine::Runs)
      return;
    demand();
    if (!diags.hasErrors())
      fill();
  }

  void check(StringRef argument) {
    const auto [front, value] = argument.split('=');
    const bool hasValue = front.size() != argument.size();
    const StringRef name = front.drop_front(front.starts_with("--") ? 2 : 1);
    Option *option = line.command->find(name);
    if (!option) {
      unknown(argument, name);
      return;
    }
    if (!option->value.isList && llvm::any_of(given, [&](const auto &other) { return other.first == option; }))
      error(argument.str(), "`" + option->dashed() + "` stands twice");
    if (option->isFlag()) {
      if (hasValue && !llvm::is_contained({"true", "false", "1", "0"}, value))
        error(argument.str(), "takes no value");
      given.push_back({option, value.str()});
    } else if (hasValue) {
      judge(*option, value);
    } else if (next == arguments.size() || isOption(arguments[next])) {
      error(argument.str(), "needs a value, `" + form(*option) + "`");
      given.push_back({option, ""});
    } else {
      judge(*option, arguments[next++]);
    }
  }

  bool isOption(StringRef argument) const {
    if (argument == "-h")
      return true;
    return argument.consume_front("--") &&
           (argument == "help" || argument == "version" || line.command->find(argument.split('=').first));
  }

  void judge(Option &option, StringRef value) {
    given.push_back({&option, value.str()});
    const std::vector<std::string> known = option.value.names();
    if (known.empty() || llvm::is_contained(known, value))
      return;
    error((option.dashed() + "=" + value).str(), "expected " + oneOf(known));
    const char *advice = option.name == "device" ? adviceFor(deviceAdvice, value.split(':').first) : nullptr;
    const auto begins = llvm::find_if(known, [&](const std::string &candidate) {
      return !value.empty() && (value.starts_with_insensitive(candidate) || StringRef(candidate).starts_with(value));
    });
    if (advice && llvm::is_contained(known, advice))
      diags.note(std::string("did you mean `") + advice + "`?");
    else if (value == "auto" && option.name == "device")
      diags.note("what it measures differs from device to device, so none is chosen unasked");
    else if (begins != known.end())
      diags.note("did you mean `" + *begins + "`?");
    else
      diags.suggest(value, known);
  }

  /// The option that begins so: of several one that is required or usual, then the shortest.
  std::string beginningWith(StringRef name) const {
    const Option *best = nullptr;
    const auto rank = [](const Option &option) {
      return std::pair(!option.isRequired && !option.isUsual, option.name.size());
    };
    for (const Option *option : line.command->sorted())
      if (StringRef(option->name).starts_with(name) && (!best || rank(*option) < rank(*best)))
        best = option;
    return best && !name.empty() ? best->name : "";
  }

  void unknown(StringRef argument, StringRef name) {
    error(argument.str(), "`" + program() + "` has no such option");
    if (llvm::sys::fs::exists(argument)) {
      line.command->operands.push_back(argument.str());
      diags.note("the file of this name is `./" + argument.str() + "`");
      return;
    }
    std::vector<std::string> names;
    for (const Option &option : line.command->options)
      names.push_back(option.name);
    std::string owner; // the first in the alphabet, of several
    for (const Command *other : commands())
      if (other->find(name) && (owner.empty() || other->name() < owner))
        owner = other->name().str();
    std::string near = beginningWith(name);
    if (near.empty())
      near = nearestName(name, names);
    const bool has = !llvm::is_contained(names, "o") && line.command->name() != "cache";
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
    const Command &command = *line.command;
    const std::vector<std::string> &found = command.operands;
    const bool files = command.takesFiles();
    if (found.size() < command.about.least)
      error(program(), files ? "needs a pipeline file, such as pipelines/autoregressive.yaml"
                             : "needs one of " + oneOf(command.words()));
    else if (found.size() > command.about.most && command.about.most == 0)
      error(found[0], "`" + program() + "` takes no file");
    else if (found.size() > command.about.most)
      error(found[1],
            "`" + program() + "` takes one " + (files ? "pipeline file" : "word") + ", and has `" + found[0] + "`");
    for (const Option &option : command.options)
      if (option.isRequired && llvm::none_of(given, [&](const auto &other) { return other.first == &option; }))
        error(program(), "needs `" + form(option) + "`");
  }

  /// Gives each option its values. The standard input is one file: `-`.
  void fill() {
    std::vector<std::string> &files = line.command->operands;
    std::string reader; // of the standard input
    const auto reads = [&](const std::string &what) {
      if (!reader.empty())
        error(what + " -", "the standard input can be read once, and `" + reader + "` is `-`, too");
      reader = what;
    };
    for (const std::string &file : files)
      if (file == "-")
        reads("FILE");
    for (auto &[option, all] : given) {
      llvm::SmallVector<StringRef> values = {all};
      if (option->value.isComma) {
        values.clear();
        StringRef(all).split(values, ',');
      }
      for (StringRef value : values) {
        if (option->value.file == Value::Input && value == "-") {
          reads(option->dashed());
          if (option->name != "requests") // they are told from a file (readRequests)
            value = "/dev/stdin";
        }
        option->given.push_back(value.str());
        fill(*option, value, /*inList=*/values.size() > 1);
      }
    }
    if (line.command->takesFiles() && llvm::is_contained(files, ""))
      error("FILE", "the path of the pipeline is empty");
  }

  void fill(const Option &option, StringRef text, bool inList) {
    // A path of no letters would be taken for an option that is not there.
    const bool empty = text.empty() && !option.isFlag() && !option.value.isNumber;
    const std::string why = inList && text.empty() ? "a value of the list is empty; take a comma out"
                            : empty                ? "it is empty; leave the option out, or name something"
                                                   : option.value.take(text);
    if (why.empty())
      return;
    error(option.dashed() + " " + (text.empty() ? "''" : text.str()), why);
    if (!empty && !option.value.words.empty())
      diags.suggest(text, option.value.words);
  }
};

} // namespace

CommandLine readCommandLine(llvm::ArrayRef<StringRef> arguments, Diagnostics &diags) {
  return Reader(arguments, diags).run();
}

} // namespace megalith::tool
