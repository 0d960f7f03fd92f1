//===- Diagnostics.h - every message a user can see -----------------------===//
//
// A diagnostic is one registered kind (Diagnostics.def), a place, and typed
// arguments. It is printed as
//
//   file.yaml:12:5: error: unknown key `page` in `kv.target` [unknown-key]
//      12 |   target: {page: 16}
//         |            ^~~~
//   note: did you mean `pages`?
//
// Messages are lower case, have no full stop, quote code in backticks, and say
// what to do. User errors go through here; our own bugs are assertions.
//
// Names, paths, values and lines of files are a user's: they are printed as
// text::printable has them, and long ones are cut. After the 20th error (and the
// 20th warning) only the number of the others is told.
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_SUPPORT_DIAGNOSTICS_H
#define MEGALITH_SUPPORT_DIAGNOSTICS_H

#include "megalith/Error.h"
#include "megalith/Os/ReadFile.h"
#include "megalith/Support/SourceLoc.h"
#include "megalith/Text/Text.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include <algorithm>
#include <fmt/format.h>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace megalith {

/// Every kind of message; see Diagnostics.def.
enum class Diag {
#define DIAG(Id, Kebab, Severity, Text) Id,
#include "megalith/Support/Diagnostics.def"
};

enum class Severity { Error, Warning };

struct DiagInfo {
  const char *kebab;
  Severity severity;
  const char *text;
};
const DiagInfo &diagInfo(Diag id);

/// How many arguments a text takes.
constexpr size_t argumentsOf(std::string_view text) {
  size_t count = 0;
  for (size_t i = 0; i + 1 < text.size(); ++i)
    if (text[i] == '{' && text[i + 1] == '{')
      ++i;
    else if (text[i] == '{') // `{}`, or `{0}`
      count = text[i + 1] == '}' ? count + 1 : std::max<size_t>(count, text[i + 1] - '0' + 1);
  return count;
}
/// The same of each kind.
inline constexpr size_t diagArguments[] = {
#define DIAG(Id, Kebab, Severity, Text) argumentsOf(Text),
#include "megalith/Support/Diagnostics.def"
};

/// A kind that is known at run time alone.
struct AnyDiag {
  Diag id;
};
/// A kind whose text takes so many arguments: another one does not compile.
template <size_t Arguments> struct DiagWith {
  consteval DiagWith(Diag id) : id(id) {
    if (diagArguments[static_cast<size_t>(id)] != Arguments)
      throw "the text of this diagnostic takes another number of arguments";
  }
  DiagWith(AnyDiag any) : id(any.id) {}
  Diag id;
};
template <typename... Args> using DiagFor = std::type_identity_t<DiagWith<sizeof...(Args)>>;
/// The kind whose id is `kebab`; asserts that there is one. For errors that come
/// from libraries that do not know this list.
Diag diagByKebab(llvm::StringRef kebab);

/// The files a compilation reads. A SourceLoc names one by index. A copy shares the texts.
class SourceFiles {
public:
  /// Registers a file's text and returns its index.
  uint32_t add(std::string name, std::string text);
  /// Reads a file from disk (os::readFile); nothing, and why, when it cannot be read. A file
  /// that was read under this name before is that one: a pipe gives its text a single time.
  std::optional<uint32_t> open(const std::string &path, std::string &reason, uint64_t most = os::sourceBytes);
  /// Gives `path` this text: open() takes it in place of the disk's.
  void give(const std::string &path, std::string text);
  /// The file of this name that was registered last.
  std::optional<uint32_t> find(llvm::StringRef name) const;
  llvm::StringRef name(uint32_t file) const;
  llvm::StringRef text(uint32_t file) const;
  /// Line `line` (1-based) of `file`, without its newline; empty if absent.
  llvm::StringRef line(uint32_t file, uint32_t line) const;
  /// Whether `loc` is a place in one of them: the end of a line is one, and column 0 means the line.
  bool has(SourceLoc loc) const;
  size_t size() const { return files.size(); }
  /// The file that generated code, and so a compiler's messages and debug information, call this (CodeWriter::spelled).
  std::optional<uint32_t> named(llvm::StringRef spelled) const;

private:
  uint32_t add(std::string name, std::string text, bool opened);
  struct File {
    std::string name, text;
    bool opened = false; ///< read from disk
    std::vector<size_t> lineStarts;
  };
  std::vector<std::shared_ptr<const File>> files;
};

/// Collects and renders diagnostics. One per compilation.
class Diagnostics {
public:
  explicit Diagnostics(SourceFiles &files) : files(files) {}

  /// So many errors, and so many warnings, are kept and shown.
  static constexpr unsigned mostShown = 20;

  /// Reports `id` at `loc` (SourceLoc() = no place). Arguments fill `{}` of the
  /// registered text.
  template <typename... Args> void report(DiagFor<Args...> kind, SourceLoc loc, const Args &...args) {
    if (count(kind.id))
      add(kind.id, loc, fmt::format(fmt::runtime(diagInfo(kind.id).text), shortened(args)...));
  }
  /// The same, unless this text was reported at another place. Returns whether it was
  /// reported now: notes belong to it then.
  template <typename... Args> bool reportOnce(DiagFor<Args...> kind, SourceLoc loc, const Args &...args) {
    const Diag id = kind.id;
    std::string text = fmt::format(fmt::runtime(diagInfo(id).text), shortened(args)...);
    if (errorCount < mostShown && !once.emplace(id, text).second)
      return false;
    if (count(id))
      add(id, loc, std::move(text));
    return true;
  }
  /// Adds a note to the last diagnostic: a second place or a suggestion.
  void note(SourceLoc loc, std::string text);
  void note(std::string text) { note(SourceLoc(), std::move(text)); }
  /// Adds "did you mean `x`?" when a candidate is near enough to `word`.
  void suggest(llvm::StringRef word, llvm::ArrayRef<std::string> candidates);

  bool hasErrors() const { return errorCount != 0; }
  /// Those that are not shown are counted, too.
  unsigned errors() const { return errorCount; }
  SourceFiles &sources() { return files; }
  /// All messages so far, in order, with source lines and carets. No byte of it but the
  /// newlines controls a terminal.
  std::string render() const;
  /// The same as data.
  Messages messages() const;
  /// Adds messages that others have made, as if they had been reported here.
  void adopt(const Messages &messages);
  void adopt(const Error &error);

private:
  /// An argument of a message; a text is cut before it hides the rest of the message.
  template <typename T> static decltype(auto) shortened(const T &value) {
    if constexpr (std::is_convertible_v<const T &, llvm::StringRef>)
      return cut(value);
    else
      return (value);
  }
  static std::string cut(llvm::StringRef text);
  /// Whether one more of `id` is shown.
  bool count(Diag id) { return count(diagInfo(id).severity); }
  bool count(Severity severity);
  void add(Diag id, SourceLoc loc, std::string text);
  struct Entry {
    Diag id;
    bool isNote;
    SourceLoc loc;
    std::string text;
    std::optional<Error> adopted = {};
  };
  std::string render(const Entry &entry) const;
  SourceFiles &files;
  std::vector<Entry> entries;
  std::set<std::pair<Diag, std::string>> once; ///< of reportOnce, as long as errors are shown
  unsigned errorCount = 0, warningCount = 0;
  bool lastIsShown = false; ///< notes follow the diagnostic that they belong to
};

/// The candidate nearest to `word` by edit distance, or "" when none is close
/// (more than a third of the word's length, at least 1, away).
std::string nearestName(llvm::StringRef word, llvm::ArrayRef<std::string> candidates);

} // namespace megalith
#endif
