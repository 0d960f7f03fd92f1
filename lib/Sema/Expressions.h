//===- Expressions.h - names, operators and functions ---------------------===//
//
// Checks what is written in a scope: a typed expression, or null after a report. Names stand in Names.cpp, operators in
// Operators.cpp, the matching of arguments in Builtins.cpp, functions in Functions.cpp, those that go through a range
// in Binders.cpp, calls of models in Calls.cpp, and what reads their rows in Reducers.cpp.
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_LIB_SEMA_EXPRESSIONS_H
#define MEGALITH_LIB_SEMA_EXPRESSIONS_H

#include "Builtins.h"
#include "Context.h"

namespace megalith::sema {

class Expressions {
public:
  Expressions(Context &ctx, Scope &scope) : ctx(ctx), scope(scope), diags(ctx.diags) {}

  ExprRef check(const ast::Expr &e);
  /// As check, but logits are an error.
  ExprRef value(const ast::Expr &e);
  /// A value of scalar type `elem`; literals are converted.
  ExprRef expect(const ast::Expr &e, Elem elem, const std::string &what);
  ExprRef checkList(const ast::Expr &e);
  /// The bounds of `a..b`, and how many numbers it has at most. False after a report.
  bool checkRange(const ast::Expr &range, const std::string &what, Scope &inner, ExprRef &low, ExprRef &high,
                  int64_t &most);
  bool checkRounds(Scope &inner, int64_t most, const std::string &what, SourceLoc loc, const Expr *of = nullptr);
  /// The base of an index or a slice, if that is a buffer: null otherwise. `indices`: those in front.
  const CheckedBuffer *bufferOf(const ast::Expr &e, std::vector<const ast::Expr *> &indices) const;
  /// Indices of the first dimensions of a buffer. False after a report.
  bool checkIndices(const std::vector<const ast::Expr *> &written, std::vector<ExprRef> &indices);
  /// A name of a field that keeps rows.
  ExprRef checkKept(const ast::Expr &e, const std::string &what);

private:
  /// What `e` reads counts as read, though it was not checked.
  void markRead(const ast::Expr &e);
  Expressions with(Scope &inner) const { return {ctx, inner}; }
  ExprRef checkPath(const ast::Expr &e);
  ExprRef checkDotted(const ast::Expr &e);
  ExprRef readLocal(const Scope::Local &local, const ast::Expr &e);
  ExprRef partOfLocal(const Scope::Local &local, const ast::Expr &e);
  ExprRef partOfPolicy(const CheckedPolicy &policy, const ast::Expr &e, const std::string &part);
  ExprRef checkPoolName(const ast::Expr &e);
  ExprRef checkPredefined(const ast::Expr &e);
  ExprRef checkSimpleName(const ast::Expr &e);
  ExprRef checkUnary(const ast::Expr &e);
  ExprRef checkBinary(const ast::Expr &e);
  ExprRef checkConditional(const ast::Expr &e);
  ExprRef checkIndex(const ast::Expr &e);
  ExprRef checkElement(const ast::Expr &e, const CheckedBuffer &buffer, const std::vector<const ast::Expr *> &written);
  ExprRef checkSlice(const ast::Expr &e);
  ExprRef checkKnown(const ast::Expr &e);
  ExprRef checkCall(const ast::Expr &e);
  bool checkFreeRows(Call &call, const std::vector<const ast::Name *> &names, std::vector<ExprRef> &given);
  ExprRef checkModelCall(const ast::Expr &e);
  bool mayCall(const Builtin &f, const ast::Expr &e);
  bool match(Arguments &args);
  bool take(Arguments &args);
  ExprRef taken(const ast::Expr &e, const Parameter &p, Arguments &args, const std::string &what);
  ExprRef checkFunction(const Builtin &f, const ast::Expr &e);
  ExprRef checkLen(const Arguments &args);
  ExprRef checkMinMax(const Arguments &args);
  ExprRef checkClamp(const Arguments &args);
  ExprRef checkCast(const Arguments &args);
  ExprRef checkTiers(const Arguments &args);
  ExprRef checkNgram(const Arguments &args);
  ExprRef checkFollow(const Arguments &args);
  ExprRef checkTree(const Arguments &args);
  ExprRef checkBinder(const Builtin &f, const ast::Expr &e);
  ExprRef checkOver(std::shared_ptr<Expr> v, const ast::Expr &e, Scope &inner, int64_t most);
  ExprRef checkAppend(Arguments &args);
  bool takeByHand(const Arguments &args, Reduction &into);
  ExprRef checkReducer(Arguments &args);

  Context &ctx;
  Scope &scope;
  Diagnostics &diags;
};

/// The settings of `sampling`.
inline constexpr const char *settingNames[] = {"temperature", "top_k", "top_p", "min_p"};

//===--- rows of a call (Reducers.cpp) --------------------------------------===//

/// The bounds of a slice of rows, for a reducer.
void takeRowBounds(const Expr &rows, Reduction &into);
/// A reducer that stands among its call's, once.
ExprRef reducedBy(Context &ctx, Reduction r, const ExprRef &call, SourceLoc loc);
/// `r.h1` of a call `r`: all rows of another result of its model.
ExprRef namedResult(Context &ctx, const ExprRef &rows, llvm::StringRef name, const ast::Expr &e);
/// `t.token` or `t.prob`, where `t: top_k(...)`.
ExprRef partOfTop(Context &ctx, const Expr &top, llvm::StringRef name, SourceLoc loc);
/// Whether it has the same value at the call, which stands before.
bool knownAtCall(Context &ctx, const Expr &e, const Reductions &call, const std::string &what,
                 const std::string &function, const Scope &scope);
/// The call in whose pass a reducer reads kept rows.
ExprRef passForKept(Diagnostics &diags, const std::string &reducer, SourceLoc loc, const Scope &scope);

} // namespace megalith::sema
#endif
