//===- ExprLexer.h - tokens of an expression ------------------------------===//
#ifndef MEGALITH_LIB_SYNTAX_EXPRLEXER_H
#define MEGALITH_LIB_SYNTAX_EXPRLEXER_H

#include "llvm/ADT/StringRef.h"
#include <vector>

namespace megalith::ast {

/// A token is characters [begin, end) of the scalar it was read from.
struct Token {
  enum Kind {
    End,
    Int,
    Float,
    String, ///< text without its quotes
    Path,   ///< dotted name, also `true` and `false`
    Punct,  ///< operators, brackets and the keywords if else or and not in
    Bad     ///< cannot be read; `hint` says what to do
  } kind = End;
  llvm::StringRef text;
  size_t begin = 0, end = 0;
  const char *hint = nullptr;

  bool is(llvm::StringRef punct) const { return kind == Punct && text == punct; }
};

/// Splits `text`, which must outlive the tokens. The last token is an End.
std::vector<Token> lexExpr(llvm::StringRef text);

/// Characters of a name, at most: names of the generated code are made of several.
constexpr size_t maxNameLength = 200;
/// Whether `word` is a keyword or a literal, which cannot name anything.
bool isReservedWord(llvm::StringRef word);
/// Whether `text` is one letter or `_`, then letters, digits and `_`.
bool isIdentifier(llvm::StringRef text);

} // namespace megalith::ast
#endif
