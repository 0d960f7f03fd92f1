//===- StatementWriter.h - statements as text, below their YAML lines ------===//
#ifndef MEGALITH_LIB_EMIT_STATEMENTWRITER_H
#define MEGALITH_LIB_EMIT_STATEMENTWRITER_H

#include "Code.h"
#include "megalith/Support/CodeWriter.h"
#include "megalith/Support/Diagnostics.h"
#include <map>

namespace megalith::emit {

/// Writes the functions of a user's stages.
class StatementWriter {
public:
  StatementWriter(CodeWriter &w, const ir::Module &module, const SourceFiles *files, bool lineDirectives);

  /// The statements of one function. Then lines count in the emitted text again, for its end is not the user's.
  void function(const std::vector<Statement> &body);
  /// FILE:LINE without folders, in parentheses after a blank; "" where that is not known.
  std::string place(SourceLoc loc) const;

private:
  std::string pathOf(SourceLoc loc) const;
  void statements(const std::vector<Statement> &body);
  /// Shows the YAML line as a comment, once, and says that the next line is its.
  void locate(SourceLoc loc);

  CodeWriter &w;
  const SourceFiles *files;
  const bool lineDirectives;
  std::map<int64_t, std::string> paths;
  unsigned shownLine = 0;
};

} // namespace megalith::emit
#endif
