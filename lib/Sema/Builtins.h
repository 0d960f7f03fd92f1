//===- Builtins.h - the functions of the language, by their signatures ----===//
#ifndef MEGALITH_LIB_SEMA_BUILTINS_H
#define MEGALITH_LIB_SEMA_BUILTINS_H

#include "megalith/Sema/Typed.h"
#include "megalith/Syntax/Ast.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"

namespace megalith::sema {

struct Parameter {
  std::string name;
  llvm::StringRef type; ///< empty: the function looks at what it is given
  bool optional = false;
};

/// A line of Builtins.def.
struct Builtin {
  enum Where { Constant, Request, Rows, Effect };
  Function id;
  llvm::StringRef name;
  const char *quoted;
  Where where;
  ir::Op op;
  llvm::StringRef text, result;
  std::vector<Parameter> params = {};
  bool variadic = false;

  /// Whether it goes through a range only; `min`, `max` and `argmax` may.
  bool binds() const { return text.starts_with("i in a..b"); }
  size_t required() const;
  /// How many arguments it takes, for a message.
  std::string count() const;
};

llvm::ArrayRef<Builtin> builtins();
const Builtin *findBuiltin(llvm::StringRef name);

/// What a call of a builtin has for each parameter.
struct Arguments {
  const Builtin &of;
  const ast::Expr &call;
  std::vector<const ast::Expr *> written = {}; ///< null: nothing
  std::vector<ExprRef> values = {};            ///< of those with a type, when they were taken
  int64_t count = 0;                           ///< that which is a constant within bounds

  /// Null: the function has no such parameter, or nothing was given for it.
  const ast::Expr *writtenFor(llvm::StringRef name) const;
  ExprRef valueOf(llvm::StringRef name) const;
};

} // namespace megalith::sema
#endif
