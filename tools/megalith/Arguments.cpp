#include "Arguments.h"
#include "megalith/Os/ReadFile.h"
#include "megalith/Tools.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include <fmt/format.h>
#include <set>
#include <unistd.h>

namespace megalith::tool {

namespace cl = llvm::cl;
using llvm::StringRef;

cl::OptionCategory &optionCategory() {
  static cl::OptionCategory category("Options");
  return category;
}

static const char *const standardInput = "<stdin>";

/// All of the standard input. nullopt after an error.
static std::optional<std::string> readStandardInput(uint64_t most, Diagnostics &diags) {
  std::string reason;
  auto text = os::readDescriptor(STDIN_FILENO, most, reason);
  if (!text)
    diags.report(Diag::CannotReadFile, {}, standardInput, reason);
  return text;
}

bool findPipeline(std::string &file, std::map<std::string, std::string> &texts, Diagnostics &diags) {
  if (file == "-") {
    auto text = readStandardInput(os::sourceBytes, diags);
    if (!text)
      return false;
    file = standardInput;
    texts[file] = std::move(*text);
    return true;
  }
  const bool exists = llvm::sys::fs::exists(file) && !llvm::sys::fs::is_directory(file);
  if (file.empty() || StringRef(file).contains('/'))
    return true; // an error of reading it tells the rest
  const auto shipped = tools::shippedPipelines();
  const auto found = shipped.find(file);
  if (found != shipped.end()) {
    if (exists)
      diags.report(Diag::PipelineShadowed, {}, file);
    else
      file = found->second;
    return true;
  }
  if (llvm::sys::fs::exists(file) ||
      (StringRef(file).contains('.') && !shipped.count(StringRef(file).split(".yaml").first.str())))
    return true;
  const StringRef stem = StringRef(file).ends_with(".yaml") ? StringRef(file).drop_back(5) : StringRef(file);
  std::vector<std::string> names;
  for (const auto &[name, path] : shipped)
    names.push_back(name);
  const std::string near = shipped.count(stem.str()) ? stem.str() : nearestName(stem, names);
  diags.report(Diag::BadOption, {}, file, "there is no such file, and no pipeline of this name comes with megalith");
  if (!near.empty())
    diags.note("did you mean `" + near + "`?");
  else if (!names.empty())
    diags.note("it has " + llvm::join(names, ", "));
  return false;
}

bool checkStandardInput(const std::vector<std::pair<const char *, std::vector<std::string *>>> &inputs,
                        Diagnostics &diags) {
  const char *first = nullptr;
  for (const auto &[option, paths] : inputs)
    for (std::string *path : paths) {
      if (*path != "-")
        continue;
      if (first) {
        diags.report(Diag::BadOption, {}, std::string(option) + " -",
                     fmt::format("the standard input can be read once, and `{}` is `-`, too", first));
        return false;
      }
      first = option;
      if (option != StringRef("FILE") && option != StringRef("--requests"))
        *path = "/dev/stdin";
    }
  return true;
}

Expected<std::vector<Request>> readRequests(const Program &program, const std::string &path, Diagnostics &diags) {
  if (path != "-")
    return program.readRequests(path);
  auto text = readStandardInput(os::dataBytes, diags);
  if (!text)
    return Messages();
  return program.parseRequests(*text, standardInput);
}

bool numbersOf(const cl::list<std::string> &list, StringRef option, int64_t otherwise, std::vector<int64_t> &out,
               Diagnostics &diags) {
  for (const std::string &text : list) {
    int64_t number = 0;
    if (StringRef(text).getAsInteger(10, number)) {
      diags.report(Diag::BadOption, {}, "--" + option.str() + " " + text, "expected a number, or several with commas");
      return false;
    }
    out.push_back(number);
  }
  if (out.empty())
    out.push_back(otherwise);
  return true;
}

bool readModels(StringRef option, StringRef what, const cl::list<std::string> &list,
                std::vector<std::pair<std::string, std::string>> &models, Diagnostics &diags) {
  std::set<std::string> names;
  for (const std::string &text : list) {
    // A name has no path separator, so `./a=b` is a directory.
    auto [front, back] = StringRef(text).split('=');
    const bool named = front.size() != text.size() && !front.contains('/');
    const std::string name = named ? front.str() : "", directory = named ? back.str() : text;
    const auto bad = [&](const std::string &why) {
      diags.report(Diag::BadOption, {}, fmt::format("--{} {}", option.str(), text), why);
      return false;
    };
    if (directory.empty() || (named && name.empty()))
      return bad(fmt::format("expected `[NAME=]{}`", what.str()));
    if (!names.insert(name).second)
      return bad(fmt::format("{} a {} {}already", named ? "this model has" : "there is",
                             what == "DIR" ? "directory" : what.str(), named ? "" : "for all models "));
    models.push_back({name, directory});
  }
  return true;
}

bool checkTexts(const std::vector<const cl::opt<std::string> *> &options,
                const std::vector<std::reference_wrapper<const cl::list<std::string>>> &lists, Diagnostics &diags) {
  bool good = true;
  // A path of no letters would be taken for an option that is not there.
  const auto empty = [&](StringRef option) {
    good = false;
    diags.report(Diag::BadOption, {}, (option.size() == 1 ? "-" : "--") + option.str() + " ''",
                 "it is empty; leave the option out, or name something");
  };
  for (const cl::opt<std::string> *option : options)
    if (option->getNumOccurrences() && option->empty())
      empty(option->ArgStr);
  for (const cl::list<std::string> &option : lists) // not by `&`, which LLVM overloads
    for (const std::string &text : option)
      if (text.empty())
        empty(option.ArgStr);
  return good;
}

} // namespace megalith::tool
