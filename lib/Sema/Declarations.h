//===- Declarations.h - params, fields, pools and policies ----------------===//
#ifndef MEGALITH_LIB_SEMA_DECLARATIONS_H
#define MEGALITH_LIB_SEMA_DECLARATIONS_H

#include "Expressions.h"

namespace megalith::sema {

class Declarations {
public:
  explicit Declarations(Context &ctx) : ctx(ctx), diags(ctx.diags) {}

  void checkNames();
  void checkParams();
  void checkDims();
  void checkBuffers();
  void checkFields();
  void checkPools();
  void checkPolicies();

private:
  void applySet(const ast::Param &param, Constant &value, const std::string &text);
  void checkReserved();
  bool declare(const ast::Name &name, const std::string &what);
  std::optional<CheckedField> checkField(const ast::FieldDecl &decl, bool isInput = false);
  std::optional<CheckedInput> checkInput(const ast::FieldDecl &decl);
  bool checkDefault(const ast::Expr &e, CheckedInput &input);
  void checkPolicy(const ast::PolicyDecl &decl);

  Expressions with(Scope &scope) const { return {ctx, scope}; }

  Context &ctx;
  Diagnostics &diags;
};

} // namespace megalith::sema
#endif
