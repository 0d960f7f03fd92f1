#include "StatementWriter.h"
#include "megalith/IR/IR.h"

namespace megalith::emit {

StatementWriter::StatementWriter(CodeWriter &w, const ir::Module &module, const SourceFiles *files, bool lineDirectives)
    : w(w), files(files), lineDirectives(lineDirectives) {
  for (const ir::Operation *op : module.all(ir::Op::File))
    paths[op->get<ir::attr::index>()] = op->get<ir::attr::path>();
}

std::string StatementWriter::pathOf(SourceLoc loc) const {
  auto it = paths.find(loc.file);
  return loc && it != paths.end() ? it->second : "";
}

std::string StatementWriter::place(SourceLoc loc) const {
  const std::string path = pathOf(loc);
  if (path.empty())
    return "";
  const llvm::StringRef name = llvm::StringRef(path).rsplit('/').second;
  return fmt::format(" ({}:{})", name.empty() ? path : name.str(), loc.line);
}

void StatementWriter::function(const std::vector<Statement> &body) {
  shownLine = 0;
  statements(body);
  w.resumeLines();
}

void StatementWriter::statements(const std::vector<Statement> &body) {
  for (const Statement &s : body) {
    locate(s.loc);
    const std::string text = s.code.inLine(s.loc.line);
    if (!s.isBlock) {
      w.line(text + ";");
      continue;
    }
    {
      const auto scope = w.scope(text);
      statements(s.body);
    }
    if (!s.otherwise.empty()) {
      const auto scope = w.scope("else");
      statements(s.otherwise);
    }
  }
}

void StatementWriter::locate(SourceLoc loc) {
  const std::string path = pathOf(loc);
  if (path.empty())
    return;
  if (files && loc.file < files->size() && loc.line != shownLine)
    if (const llvm::StringRef line = files->line(loc.file, loc.line).trim(); !line.empty())
      w.quote(line);
  shownLine = loc.line;
  if (lineDirectives)
    w.sourceLine(loc.line, path);
}

} // namespace megalith::emit
