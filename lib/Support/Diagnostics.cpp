#include "megalith/Support/Diagnostics.h"
#include "megalith/Text/Text.h"
#include <algorithm>
#include <cassert>
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

uint32_t SourceFiles::add(std::string name, std::string text) {
  auto file = std::make_unique<File>();
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
  std::optional<std::string> text = os::readFile(path, most, reason);
  if (!text)
    return std::nullopt;
  return add(path, std::move(*text));
}

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

void Diagnostics::add(Diag id, SourceLoc loc, std::string text) {
  if (diagInfo(id).severity == Severity::Error)
    ++errorCount;
  entries.push_back({id, false, loc, std::move(text)});
}

void Diagnostics::note(SourceLoc loc, std::string text) {
  assert(!entries.empty() && "a note belongs to a diagnostic");
  entries.push_back({entries.back().id, true, loc, std::move(text)});
}

void Diagnostics::suggest(llvm::StringRef word, llvm::ArrayRef<std::string> candidates) {
  std::string near = nearestName(word, candidates);
  if (!near.empty())
    note("did you mean `" + near + "`?");
}

/// Keeps of a long line (one of a trace, say) what stands around the caret.
static void clipLine(std::string &line, size_t &column) {
  constexpr size_t most = 160, before = 60;
  if (line.size() <= most)
    return;
  size_t begin = column > before ? column - before : 0;
  bool more = line.size() - begin > most;
  line = (begin ? "..." : "") + line.substr(begin, most) + (more ? "..." : "");
  column = column - begin + (begin ? 3 : 0);
}

std::string Diagnostics::render() const {
  std::string out;
  for (const Entry &e : entries) {
    const DiagInfo &info = diagInfo(e.id);
    if (e.loc)
      out += fmt::format("{}:{}:{}: ", files.name(e.loc.file).str(), e.loc.line, e.loc.column);
    if (e.isNote)
      out += fmt::format("note: {}\n", e.text);
    else
      out += fmt::format("{}: {} [{}]\n", info.severity == Severity::Error ? "error" : "warning",
                         e.text, info.kebab);
    if (!e.loc)
      continue;
    std::string line = files.line(e.loc.file, e.loc.line).str();
    // Tabs would shift the caret; control bytes would garble a terminal.
    for (char &c : line)
      if (static_cast<unsigned char>(c) < 32)
        c = ' ';
    size_t length = std::max<size_t>(1, e.loc.length);
    size_t column = e.loc.column ? e.loc.column - 1 : 0;
    clipLine(line, column);
    if (column < line.size())
      length = std::min(length, line.size() - column);
    else
      length = 1;
    out += fmt::format("{:>5} | {}\n      | {}^{}\n", e.loc.line, line, std::string(column, ' '),
                       std::string(length - 1, '~'));
  }
  return out;
}

std::string nearestName(llvm::StringRef word, llvm::ArrayRef<std::string> candidates) {
  unsigned limit = std::max<unsigned>(1, (word.size() + 2) / 3);
  std::string best;
  for (const std::string &candidate : candidates) {
    unsigned distance = word.equals_insensitive(candidate)
                            ? unsigned(word != candidate)
                            : word.edit_distance(candidate, /*AllowReplacements=*/true, limit + 1);
    if (distance <= limit) {
      limit = distance - (distance > 0);
      best = candidate;
      if (distance == 0)
        break;
    }
  }
  return best;
}

} // namespace megalith
