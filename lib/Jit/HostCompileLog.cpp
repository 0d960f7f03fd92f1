// Reads what g++, clang++, the assembler and the linker print. Their forms:
//
//   kernel.cu:12:8: error: 'x' was not declared in this scope
//      12 |   *p = x;
//         |        ^
//   kernel.cu:12:8: error: use of undeclared identifier 'x'
//     *p = x;
//          ^
//   kernel.cu:1:10: fatal error: a.h: No such file or directory
//   kernel.cu:12: Error: no such instruction: `bar.sync 0'
//   g++: error: unrecognized command-line option '-y'
//   /usr/bin/ld: /tmp/kernel.cu:12: undefined reference to `f()'
//   ld.lld: error: undefined symbol: f()
#include "CompileLog.h"
#include "megalith/Jit/HostCompiler.h"
#include "llvm/ADT/SmallVector.h"
#include <algorithm>
#include <optional>
#include <set>

namespace megalith::jit {

using llvm::StringRef;

/// `kernel.cu:12:8`, `kernel.cu:12`, or the name of a tool.
static void parseHostPlace(StringRef place, LogError &error) {
  auto [file, last] = place.rsplit(':');
  auto [shorter, line] = file.rsplit(':');
  unsigned number;
  if (!line.empty() && !line.getAsInteger(10, number))
    std::tie(file, last) = std::tie(shorter, line);
  if (last.empty() || last.getAsInteger(10, error.line))
    return;
  while (file.consume_front("./"))
    ;
  error.file = file.str();
}

/// The name in `'NAME'REST` when REST begins with one of `rests`.
static std::string nameBefore(StringRef message, std::initializer_list<StringRef> rests) {
  if (!message.consume_front("'"))
    return "";
  auto [name, rest] = message.split('\'');
  return std::any_of(rests.begin(), rests.end(), [&, rest = rest](StringRef r) { return rest.starts_with(r); })
             ? name.str()
             : "";
}

/// What comes in quotes after `start`.
static std::string nameAfter(StringRef message, StringRef start) {
  if (!message.consume_front(start))
    return "";
  return message.take_until([](char c) { return c == '\''; }).str();
}

/// The name, or the header, that an error says is not known, in backticks; else "".
static std::string unknownName(StringRef message) {
  std::string name =
      nameBefore(message, {" was not declared", " has not been declared", " does not name a ", " is not a template"});
  if (name.empty() && message.contains("' is not a member of '")) {
    auto [member, owner] = message.trim('\'').split("' is not a member of '");
    name = owner.take_until([](char c) { return c == '\''; }).str() + "::" + member.str();
  }
  for (StringRef start :
       {"use of undeclared identifier '", "unknown type name '", "no template named '", "there are no arguments to '"})
    if (name.empty())
      name = nameAfter(message, start);
  for (StringRef start : {"no member named '", "no type named '", "no template named '"})
    if (StringRef rest = message; rest.consume_front(start) && rest.contains("' in namespace '")) {
      auto [member, owner] = rest.split("' in namespace '");
      name = owner.take_until([](char c) { return c == '\''; }).str() + "::" + member.str();
    }
  if (!name.empty())
    return "`" + name + "`";
  if (StringRef file = message; file.consume_back(": No such file or directory"))
    return "the header `" + file.str() + "`";
  if (std::string file = nameBefore(message, {" file not found"}); !file.empty())
    return "the header `" + file + "`";
  return "";
}

static std::optional<LogError> parseLine(StringRef line) {
  LogError error;
  // The linker: the name that no source defines.
  for (StringRef mark : {"undefined reference to `", "undefined symbol: "})
    if (size_t at = line.find(mark); at != StringRef::npos) {
      StringRef place = line.take_front(at).rtrim(": ");
      if (size_t tool = place.find("ld: "); tool != StringRef::npos)
        place = place.drop_front(tool + 4);
      parseHostPlace(place, error);
      StringRef name = line.drop_front(at + mark.size());
      name.consume_back("'");
      error.message = "the CPU executor does not know `" + name.str() + "`: it is declared, but nothing defines it";
      return error;
    }
  // What the driver says after the tool's own words.
  if (line.contains("ld returned ") || line.contains("linker command failed") ||
      line.contains("too many errors emitted"))
    return std::nullopt;
  for (StringRef mark : {": internal compiler error: ", ": fatal error: ", ": error: ", ": Error: "}) {
    size_t at = line.find(mark);
    if (at == StringRef::npos)
      continue;
    // A file's name may hold such words, too: what comes after a place counts, if there is one.
    for (size_t next = at; next != StringRef::npos && error.file.empty(); next = line.find(mark, next + 1))
      if (parseHostPlace(line.take_front(next), error); !error.file.empty())
        at = next;
    error.message = line.drop_front(at + mark.size()).trim().str();
    if (mark == ": Error: ")
      error.message = "the assembler says: " + error.message;
    if (error.file.empty() || mark == ": internal compiler error: ")
      error.message = line.trim().str();
    // Lines of the assembler's own text say nothing.
    if (StringRef(error.file).ends_with(".s") || error.file == "{standard input}" || error.file == "<inline asm>")
      error.file.clear();
    return error;
  }
  return std::nullopt;
}

/// The code that g++ and clang++ show below an error, with a caret under it.
static std::string shownCode(llvm::ArrayRef<StringRef> below) {
  if (below.size() < 2 || !below[1].contains('^') || below[1].find_first_not_of(" \t|^~") != StringRef::npos)
    return "";
  StringRef code = below[0];
  // ` 12 | code`
  StringRef rest = code.ltrim();
  StringRef number = rest.take_while([](char c) { return c >= '0' && c <= '9'; });
  if (!number.empty() && rest.drop_front(number.size()).starts_with(" |"))
    code = rest.drop_front(number.size() + 2);
  return code.trim().str();
}

unsigned reportHostErrors(StringRef log, Diagnostics &diags) {
  constexpr unsigned limit = 20;
  llvm::SmallVector<StringRef> lines;
  log.split(lines, '\n');
  unsigned count = 0;
  std::set<std::string> seen;
  for (size_t i = 0; i < lines.size(); ++i) {
    std::optional<LogError> error = parseLine(lines[i]);
    if (!error)
      continue;
    std::string said, unknown = unknownName(error->message);
    if (error->message == "attempt to use poisoned \"asm\"" || error->message == "attempt to use a poisoned identifier")
      unknown = "PTX; use an entry of device/Primitives.def in place of `asm`";
    if (!unknown.empty()) {
      said = "the compiler says: " + error->message;
      error->message = "the CPU executor does not know " + unknown;
    }
    // A compiler may say in two ways that it does not know a name.
    if (!seen.insert(fmt::format("{}:{}:{}", error->file, error->line, error->message)).second || ++count > limit)
      continue;
    error->code = shownCode(llvm::ArrayRef(lines).drop_front(i + 1));
    report(*error, Diag::CpuCompile, diags);
    if (!said.empty())
      diags.note(said);
  }
  if (count > limit)
    diags.note(fmt::format("{} more errors like this follow", count - limit));
  return std::min(count, limit);
}

} // namespace megalith::jit
