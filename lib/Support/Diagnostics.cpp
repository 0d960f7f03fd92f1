#include "megalith/Support/Diagnostics.h"
#include "megalith/Text/Text.h"
#include "llvm/Support/Unicode.h"
#include <algorithm>
#include <cassert>
#include <cstdio>
#include <cstdlib>
#include <iterator>

namespace megalith {

static const DiagInfo diagTable[] = {
#define DIAG(Id, Kebab, Sev, Text) {Kebab, Severity::Sev, Text},
#include "megalith/Support/Diagnostics.def"
};

const DiagInfo &diagInfo(Diag id) { return diagTable[static_cast<int>(id)]; }

Diag diagByKebab(llvm::StringRef kebab) {
  for (size_t i = 0; i < std::size(diagTable); ++i)
    if (kebab == diagTable[i].kebab)
      return static_cast<Diag>(i);
  assert(false && "an error kind that Diagnostics.def does not list");
  return Diag::CannotReadFile;
}

uint32_t SourceFiles::add(std::string name, std::string text) { return add(std::move(name), std::move(text), false); }

uint32_t SourceFiles::add(std::string name, std::string text, bool opened) {
  auto file = std::make_shared<File>();
  file->opened = opened;
  file->name = std::move(name);
  file->text = std::move(text);
  file->lineStarts.push_back(0);
  for (size_t i = 0; i < file->text.size(); ++i)
    if (file->text[i] == '\n')
      file->lineStarts.push_back(i + 1);
  files.push_back(std::move(file));
  return files.size() - 1;
}

std::optional<uint32_t> SourceFiles::open(const std::string &path, std::string &reason, uint64_t most) {
  for (uint32_t i = 0; i < files.size(); ++i)
    if (files[i]->opened && files[i]->name == path)
      return i;
  std::optional<std::string> text = os::readFile(path, most, reason);
  if (!text)
    return std::nullopt;
  return add(path, std::move(*text), true);
}

std::optional<uint32_t> SourceFiles::find(llvm::StringRef name) const {
  for (uint32_t i = files.size(); i-- > 0;)
    if (files[i]->name == name)
      return i;
  return std::nullopt;
}

void SourceFiles::give(const std::string &path, std::string text) { add(path, std::move(text), true); }

llvm::StringRef SourceFiles::name(uint32_t file) const { return files[file]->name; }
llvm::StringRef SourceFiles::text(uint32_t file) const { return files[file]->text; }

std::optional<uint32_t> SourceFiles::named(llvm::StringRef spelled) const {
  for (uint32_t i = 0; i < files.size(); ++i)
    if (text::printable(files[i]->name) == spelled)
      return i;
  return std::nullopt;
}

llvm::StringRef SourceFiles::line(uint32_t file, uint32_t line) const {
  const File &f = *files[file];
  if (line == 0 || line > f.lineStarts.size())
    return "";
  size_t begin = f.lineStarts[line - 1];
  size_t end = f.text.find('\n', begin);
  if (end == std::string::npos)
    end = f.text.size();
  return llvm::StringRef(f.text).slice(begin, end);
}

bool SourceFiles::has(SourceLoc loc) const {
  return loc.file < files.size() && loc.line > 0 && loc.line <= files[loc.file]->lineStarts.size() &&
         loc.column <= line(loc.file, loc.line).size() + 1;
}

bool Diagnostics::count(Severity severity) {
  unsigned &number = severity == Severity::Error ? errorCount : warningCount;
  lastIsShown = ++number <= mostShown;
  return lastIsShown;
}

std::string Diagnostics::cut(llvm::StringRef text) {
  constexpr size_t most = 1000;
  if (text.size() <= most)
    return text.str();
  size_t end = most;
  while (end > most - 3 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80)
    --end; // not inside a character
  return text.take_front(end).str() + "...";
}

/// Edited IR may name a place that its file does not have: that is none.
static SourceLoc placeOf(const SourceFiles &files, SourceLoc loc) { return loc && files.has(loc) ? loc : SourceLoc(); }

void Diagnostics::add(Diag id, SourceLoc loc, std::string text) {
  entries.push_back({id, false, placeOf(files, loc), std::move(text)});
}

void Diagnostics::note(SourceLoc loc, std::string text) {
  assert((!entries.empty() || errorCount + warningCount) && "a note belongs to a diagnostic");
  if (lastIsShown)
    entries.push_back({entries.back().id, true, placeOf(files, loc), std::move(text)});
}

void Diagnostics::suggest(llvm::StringRef word, llvm::ArrayRef<std::string> candidates) {
  if (!lastIsShown)
    return;
  std::string near = nearestName(word, candidates);
  if (!near.empty())
    note("did you mean `" + near + "`?");
}

/// Columns of a terminal that a printable character or an escape takes.
static size_t widthOf(llvm::StringRef shown) {
  if (static_cast<unsigned char>(shown.front()) < 0x80)
    return shown.size();
  const int width = llvm::sys::unicode::columnWidthUTF8(shown);
  return width < 0 ? 1 : size_t(width);
}

/// A source line with the caret's line below it. `column` and `length` are bytes, `column`
/// from 0. Of a long line (one of a trace, say) what stands around the caret.
static std::string showLine(unsigned number, llvm::StringRef line, size_t column, size_t length) {
  constexpr size_t most = 160, before = 60;
  line.consume_back("\r");
  size_t begin = 0, end = line.size();
  const auto insideCharacter = [&](size_t at) { return (static_cast<unsigned char>(line[at]) & 0xc0) == 0x80; };
  if (line.size() > most) {
    begin = std::min(column > before ? column - before : 0, line.size() - 1);
    for (int i = 0; i < 3 && begin + 1 < line.size() && insideCharacter(begin); ++i)
      ++begin;
    end = std::min(line.size(), begin + most);
    for (int i = 0; i < 3 && end < line.size() && insideCharacter(end); ++i)
      --end;
  }
  std::string shown = begin ? "..." : "";
  size_t left = shown.size(), width = 0;
  for (size_t at = begin; at < end;) {
    const size_t size = std::max<size_t>(1, text::characterBytes(line.slice(at, end)));
    const llvm::StringRef character = line.substr(at, size);
    // A tab would shift the caret.
    const std::string piece = character == "\t" ? " " : text::printable(character);
    if (at + size <= column)
      left += widthOf(piece);
    else if (at < column + length)
      width += widthOf(piece);
    shown += piece;
    at += size;
  }
  if (end < line.size())
    shown += "...";
  if (column > end) // one past the end is the next column; further ones are nowhere
    ++left;
  const std::string gutter = fmt::format("{:>5} | ", number);
  return fmt::format("{}{}\n{:>{}}{}^{}\n", gutter, shown, "| ", gutter.size(), std::string(left, ' '),
                     std::string(std::max<size_t>(1, width) - 1, '~'));
}

std::string Diagnostics::render(const Entry &e) const {
  constexpr size_t mostOfMessage = 4000;
  if (e.adopted)
    return e.adopted->text;
  std::string out;
  const DiagInfo &info = diagInfo(e.id);
  if (e.loc)
    out += fmt::format("{}:{}:{}: ", text::printable(files.name(e.loc.file)), e.loc.line, e.loc.column);
  const std::string message = text::printable(e.text, mostOfMessage);
  if (e.isNote)
    out += fmt::format("note: {}\n", message);
  else
    out += fmt::format("{}: {} [{}]\n", info.severity == Severity::Error ? "error" : "warning", message, info.kebab);
  if (e.loc)
    out += showLine(e.loc.line, files.line(e.loc.file, e.loc.line), e.loc.column ? e.loc.column - 1 : 0,
                    std::max<size_t>(1, e.loc.length));
  return out;
}

std::string Diagnostics::render() const { return messages().text(); }

Messages Diagnostics::messages() const {
  Messages out;
  for (const Entry &e : entries) {
    const std::string file = e.loc ? files.name(e.loc.file).str() : "";
    if (e.adopted) {
      out.list.push_back(*e.adopted);
    } else if (!e.isNote) {
      const DiagInfo &info = diagInfo(e.id);
      out.list.push_back({info.severity == Severity::Warning,
                          info.kebab,
                          e.text,
                          file,
                          e.loc.line,
                          e.loc.column,
                          e.loc ? e.loc.length : 0,
                          {},
                          render(e)});
    } else {
      Error &owner = out.list.back();
      owner.notes.push_back({e.text, file, e.loc.line, e.loc.column});
      owner.text += render(e);
    }
  }
  out.moreErrors = errorCount - std::min(errorCount, mostShown);
  out.moreWarnings = warningCount - std::min(warningCount, mostShown);
  return out;
}

void Diagnostics::adopt(const Error &error) {
  if (count(error.warning ? Severity::Warning : Severity::Error))
    entries.push_back({diagByKebab(error.kind), false, {}, error.message, error});
}

void Diagnostics::adopt(const Messages &messages) {
  for (const Error &error : messages.list)
    adopt(error);
  errorCount += messages.moreErrors;
  warningCount += messages.moreWarnings;
}

bool Messages::hasErrors() const {
  return std::any_of(list.begin(), list.end(), [](const Error &error) { return !error.warning; });
}

Error Messages::first() const {
  const auto found = std::find_if(list.begin(), list.end(), [](const Error &error) { return !error.warning; });
  return found == list.end() ? Error() : *found;
}

void endWithoutValue(const Messages &why) {
  std::fputs(why.text().c_str(), stderr);
  std::fputs("fatal: the value of a `megalith::Expected` was used that has none; ask first: `if (!value)`\n", stderr);
  std::abort();
}

std::string Messages::text() const {
  std::string out;
  for (const Error &error : list)
    out += error.text;
  for (const auto &[number, what] : {std::pair(moreErrors, "error"), std::pair(moreWarnings, "warning")})
    if (number)
      out += fmt::format("... and {} more {}{}\n", number, what, number == 1 ? "" : "s");
  return out;
}

/// Whether two neighbours have changed places.
static bool isSwapped(llvm::StringRef a, llvm::StringRef b) {
  if (a.size() != b.size())
    return false;
  const auto [x, y] = std::mismatch(a.begin(), a.end(), b.begin());
  const size_t at = x - a.begin();
  return at + 1 < a.size() && a[at] == b[at + 1] && a[at + 1] == b[at] && a.substr(at + 2) == b.substr(at + 2);
}

std::string nearestName(llvm::StringRef word, llvm::ArrayRef<std::string> candidates) {
  if (word.size() > 100) // no name is that long, and the distance would take its time
    return "";
  unsigned limit = std::max<unsigned>(1, word.size() / 3);
  std::string best;
  for (const std::string &candidate : candidates) {
    unsigned distance = word.equals_insensitive(candidate) ? unsigned(word != candidate)
                        : isSwapped(word, candidate)
                            ? 1
                            : word.edit_distance(candidate, /*AllowReplacements=*/true, limit + 1);
    if (distance <= limit) {
      limit = distance - (distance > 0);
      best = candidate;
      if (distance == 0)
        break;
    }
  }
  if (!best.empty() || word.size() < 3)
    return best;
  // The beginning of a name, if it is that of one only.
  for (const std::string &candidate : candidates)
    if (llvm::StringRef(candidate).starts_with_insensitive(word)) {
      if (!best.empty() && best != candidate)
        return "";
      best = candidate;
    }
  return best;
}

} // namespace megalith
