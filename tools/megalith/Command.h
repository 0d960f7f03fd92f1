//===- Command.h - the commands of megalith, and their options ------------===//
//
// A command is a class. Its members are what a command line may set, and its constructor lists the options that set
// them. The reader of command lines (Usage.h), help, completion and the man page (Help.h) are made of these lists.
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_TOOLS_COMMAND_H
#define MEGALITH_TOOLS_COMMAND_H

#include "megalith/Support/Diagnostics.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

namespace megalith::tool {

/// What an option takes, and where that goes.
struct Value {
  struct Choice {
    std::string name, help;
  };
  std::string form; ///< as help shows it; "" of a flag
  /// Stores it. Why it cannot be one, or "".
  std::function<std::string(llvm::StringRef)> take;
  std::vector<Choice> choices = {};     ///< all that it may be, if few
  std::vector<std::string> words = {};  ///< what was meant by a wrong one may be among these
  bool isList = false, isComma = false; ///< the option may stand several times; commas separate its values
  bool isNumber = false;
  enum { NoFile, Input, Output } file = NoFile;

  std::vector<std::string> names() const; ///< of the choices
};

Value flag(bool &to);
Value text(std::string &to, std::string form);
Value texts(std::vector<std::string> &to, std::string form);
/// From 1 to `most`.
Value numbers(std::vector<int64_t> &to, std::string form, int64_t most);
/// Above 0.
Value realNumbers(std::vector<double> &to, std::string form);
/// `name=value`.
Value pairs(std::vector<std::pair<std::string, std::string>> &to, std::string form);
/// `[NAME=]DIR`, each name once. `what` stands for DIR in messages.
Value models(std::vector<std::pair<std::string, std::string>> &to, std::string what);
/// A path that is read, or several.
Value inputFile(Value value);
Value outputFile(Value value);

/// A decimal number within the bounds, or from 0 to 1e9 if it is no whole one. Why `text` is none, or "".
template <class T> std::string readNumber(llvm::StringRef text, T least, T most, T &to);

template <class To> struct Bounds {
  using Number = To;
  static constexpr To least = std::numeric_limits<To>::min(), most = std::numeric_limits<To>::max();
};
template <class T> struct Bounds<std::optional<T>> : Bounds<T> {};

template <class To, class T = typename Bounds<To>::Number>
Value number(To &to, std::string form, std::type_identity_t<T> least = Bounds<To>::least,
             std::type_identity_t<T> most = Bounds<To>::most) {
  const auto take = [&to, least, most](llvm::StringRef text) {
    T read{};
    const std::string why = readNumber<T>(text, least, most, read);
    if (why.empty())
      to = read;
    return why;
  };
  return {.form = std::move(form), .take = take, .isNumber = true};
}

template <class T> struct Named {
  T value;
  const char *name, *help;
};
template <class T> Value choice(T &to, const std::vector<Named<std::type_identity_t<T>>> &all) {
  Value value{.form = "value", .take = [&to, all](llvm::StringRef text) {
                for (const auto &each : all)
                  if (text == each.name)
                    to = each.value;
                return std::string(); // the reader has compared it with the choices
              }};
  for (const auto &each : all)
    value.choices.push_back({each.name, each.help});
  return value;
}

struct Option {
  std::string name;
  Value value;
  std::string help;
  bool isRequired = false;
  bool isUsual = false;                ///< most calls have it: it is suggested first
  std::vector<std::string> given = {}; ///< what stands on the command line

  bool isLetter() const { return name.size() == 1; }
  bool isFlag() const { return value.form.empty(); }
  std::string dashed() const { return (isLetter() ? "-" : "--") + name; }
};

/// A file of the command line.
struct NamedFile {
  std::string option; ///< that names it
  std::string path;   ///< "" or "-": none
};

class Command {
public:
  struct About {
    const char *name, *description;
    const char *operand = "FILE"; ///< what stands after the options, as help shows it; "" for nothing
    size_t least = 1, most = 1;   ///< so many of them
    const char *examples;         ///< lines `megalith ...`, below each what it does, with two spaces before it
  };
  const About about;
  std::vector<Option> options;
  std::vector<std::string> operands;

  virtual ~Command() = default;
  /// Whether all went well; what went wrong is in `diags`.
  virtual bool run(Diagnostics &diags) = 0;

  llvm::StringRef name() const { return about.name; }
  bool takesFiles() const { return llvm::StringRef(about.operand).contains("FILE"); }
  /// All that its operand may be, of one that takes no files.
  std::vector<std::string> words() const;
  const Option *find(llvm::StringRef name) const;
  Option *find(llvm::StringRef name) { return const_cast<Option *>(std::as_const(*this).find(name)); }
  /// Whether the option stands on the command line.
  bool given(llvm::StringRef name) const { return !find(name)->given.empty(); }
  /// As it stands there: `--name value`.
  std::string shown(llvm::StringRef name) const;
  /// By name.
  std::vector<const Option *> sorted() const;
  /// The files that options name.
  std::vector<NamedFile> files(decltype(Value::file) kind) const;

protected:
  explicit Command(const About &about) : about(about) {}
  Command(const Command &) = delete; // options point to its members
  Option &add(std::string name, Value value, std::string help);
};

/// All of the program, one of each.
llvm::ArrayRef<Command *> commands();
Command &compileCommand();
Command &runCommand();
Command &exploreCommand();
Command &benchCommand();
Command &sweepCommand();
Command &inspectCommand();
Command &cacheCommand();
Command &completionCommand();

/// `bad-option`. False, for those who return it.
bool badOption(Diagnostics &diags, const std::string &what, const std::string &why);

} // namespace megalith::tool
#endif
