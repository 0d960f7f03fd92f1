//===- ExprParser.h - the expression language inside YAML scalars ---------===//
#ifndef MEGALITH_LIB_SYNTAX_EXPRPARSER_H
#define MEGALITH_LIB_SYNTAX_EXPRPARSER_H

#include "ExprLexer.h"
#include "YamlTree.h"
#include "megalith/Syntax/Ast.h"

namespace megalith::ast {

/// `i in a..b`: args[0] is the name, args[1] the range.
bool isBinder(const Expr &e);
/// `a..b if c else d`, perhaps after `i in`: the range's end is the choice, so that `a..(b if c else d)` comes out.
void endWithChoice(ExprPtr &e);

/// Reads one scalar. Each entry point consumes the whole text; after the first
/// error, which is reported, the results are null or empty.
///
///   conditional = or ["if" or "else" conditional]
///   or          = and {"or" and}            and = not {"and" not}
///   not         = "not" not | comparison
///   comparison  = range [("=="|"!="|"<"|"<="|">"|">="|"in") range]
///   range       = sum [".." sum]
///   sum         = product {("+"|"-") product}
///   product     = unary {("*"|"/"|"%") unary}
///   unary       = "-" unary | postfix
///   postfix     = primary {"[" subscript "]" | "(" arguments ")"}
///   primary     = literal | path | "(" conditional ")" | "[" conditional, ...
///   "]" subscript   = conditional {"," conditional} | [conditional] ":"
///   [conditional] arguments   = [name "in" range ","] conditional, ... name
///   "=" conditional, ...
class ExprParser {
public:
  ExprParser(Diagnostics &diags, const YamlNode &scalar);

  /// One expression. `elseOptional`: a conditional may lack its `else`.
  ExprPtr parseWhole(bool elseOptional = false);
  /// One or more expressions between commas.
  /// `a, b, name=c`, of a command.
  void parseValues(Stmt &command);
  /// `token[max_block]`, `i32 = 0`, `i32 in 0..16 = input(0)`: the part of a field after its name.
  bool parseFieldType(FieldDecl &field);
  /// `metric += value`.
  bool parseCount(Name &metric, ExprPtr &value);
  /// `observe(accepted, proposed)`.
  bool parseSignature(Name &callee, std::vector<Name> &args);

private:
  static constexpr unsigned comparisonLevel = 3; ///< of parseBinary

  /// An expression and the height of its tree, which bounds the recursion of
  /// everything that walks it.
  struct Tree {
    ExprPtr expr;
    unsigned height = 0;
    explicit operator bool() const { return expr != nullptr; }
  };

  Diagnostics &diags;
  const YamlNode &scalar;
  std::vector<Token> tokens;
  size_t next = 0;
  bool failed = false;
  bool elseOptional = false;
  unsigned depth = 0;

  const Token &peek() const { return tokens[next]; }
  bool at(llvm::StringRef punct) const { return peek().is(punct); }
  bool accept(llvm::StringRef punct);
  bool expect(llvm::StringRef punct, const char *expected);
  bool expectEnd(const char *expected);
  SourceLoc loc(const Token &token) const { return scalar.range(token.begin, token.end); }
  /// Reports what stands at the next token in place of `expected`.
  void fail(const std::string &expected);
  void failTooDeep();

  Tree make(Expr::Kind kind, const Token &token, std::string text = "");
  void add(Tree &parent, Tree child);

  bool parseInitial(FieldDecl &field);
  Tree parseConditional();
  Tree parseBinary(unsigned level);
  Tree parseUnary();
  Tree parsePostfix();
  Tree parsePrimary();
  Tree parseNumber();
  Tree parseDimension();
  Tree parseSubscript(Tree base, const Token &bracket);
  Tree parseArguments(Tree callee);
  void parseBinderBody(Tree &call);
  bool parseName(Name &name, const char *expected);
};

} // namespace megalith::ast
#endif
