//===- Statements.h - the code of stages and policies ---------------------===//
//
// Stages in Stages.cpp, what they read and set in Uses.cpp, who is admitted first in Admission.cpp, assignments in
// Assign.cpp and KeptRows.cpp, `if` and loops in Blocks.cpp.
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_LIB_SEMA_STATEMENTS_H
#define MEGALITH_LIB_SEMA_STATEMENTS_H

#include "Expressions.h"

namespace megalith::sema {

/// After one of two ways: what is known on both.
std::map<std::string, Scope::Flow> joined(const std::map<std::string, Scope::Flow> &a,
                                          const std::map<std::string, Scope::Flow> &b);

class Statements {
public:
  explicit Statements(Context &ctx) : ctx(ctx), diags(ctx.diags) {}

  void inferFields();
  void checkStages();
  void checkBlock(const std::vector<ast::Stmt> &body, std::vector<Stmt> &out, Scope &scope);
  void reportUnused(const Locals &locals, const CheckedPolicy *policy);

private:
  Expressions with(Scope &scope) const { return {ctx, scope}; }
  void checkStage(const ast::StageDecl &decl, CheckedStage &stage);
  void checkStatement(const ast::Stmt &stmt, std::vector<Stmt> &out, Scope &scope);
  bool mayAssign(const ast::Stmt &stmt, Scope &scope);
  Binding bind(const ast::Stmt &stmt, const ExprRef &value, int index, std::vector<Stmt> &out, Scope &scope);
  void checkAssign(const ast::Stmt &stmt, std::vector<Stmt> &out, Scope &scope);
  ExprRef checkMatching(const std::string &pool, const ast::Expr &e, Scope &scope);
  void checkCommand(const ast::Stmt &stmt, std::vector<Stmt> &out, Scope &scope);
  void assignField(CheckedField &field, const ast::Stmt &stmt, ExprRef value, std::vector<Stmt> &out, Scope &scope);
  void assignInferred(Inferred &inferred, const ast::Stmt &stmt, ExprRef value, std::vector<Stmt> &out, Scope &scope);
  void checkGoto(const ast::Expr &e, ExprRef guard, CheckedStage &stage, Scope &scope);
  /// Whether a model is called in its blocks.
  bool callsInside(const ast::Stmt &stmt) const;
  void checkGuarded(const std::vector<ast::Stmt> &body, const ExprRef &guard, std::vector<Stmt> &out, Scope &scope);
  void guardLocal(Stmt &local, const ExprRef &guard);
  void checkIfWithCalls(const ast::Stmt &stmt, std::vector<Stmt> &out, Scope &scope);
  void checkIf(const ast::Stmt &stmt, std::vector<Stmt> &out, Scope &scope);
  void checkUntil(const ast::Stmt &stmt, Stmt &loop, std::vector<Stmt> &out, Scope &inner);
  void checkLoop(const ast::Stmt &stmt, std::vector<Stmt> &out, Scope &scope);
  void enterLoop(const ast::Stmt &stmt, int64_t rounds, Scope &scope, Scope &inner);
  std::map<std::string, Scope::Flow> flowsAfter(const ast::Stmt &stmt, Scope inner) const;
  void flowsTo(const std::string &name, const Expr &value, Scope &scope);
  void noteGrowth(const std::string &name, const Scope::Flow &first, const Scope::Flow &head, int64_t rounds,
                  const ast::Stmt &stmt);
  void findChanging(const std::vector<ast::Stmt> &body,
                    std::map<std::string, std::pair<const ast::Stmt *, unsigned>> seen, unsigned depth);
  void giveTypes(std::vector<Stmt> &body);
  void changeLocal(const std::string &variable, const ast::Stmt &stmt, ExprRef value, std::vector<Stmt> &out,
                   Scope &scope);
  std::string newVariable(const std::string &name, const Scope &scope);
  void declareVariables(CheckedStage &stage);
  bool oneValue(const ast::Stmt &stmt);
  void checkAdmission(const ast::StageDecl &decl, CheckedStage &stage, Scope &scope);
  bool checkOrderKey(const Expr &key, const ast::StageDecl &decl);
  void assignKept(CheckedField &field, const ast::Stmt &stmt, std::vector<Stmt> &out, Scope &scope);
  bool checkKeptVocab(const CheckedField &field, const Expr &call);

  Context &ctx;
  Diagnostics &diags;
};

} // namespace megalith::sema
#endif
