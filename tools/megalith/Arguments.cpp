#include "Arguments.h"
#include <fmt/format.h>
#include <set>

namespace megalith::tool {

namespace cl = llvm::cl;
using llvm::StringRef;

cl::OptionCategory &optionCategory() {
  static cl::OptionCategory category("Options");
  return category;
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
