//===- Scope.h - what a body of code may see and do -----------------------===//
#ifndef MEGALITH_LIB_SEMA_SCOPE_H
#define MEGALITH_LIB_SEMA_SCOPE_H

#include "Values.h"
#include <map>

namespace megalith::sema {

/// Every assignment to a local of one stage or policy, numbered in order.
struct Locals {
  struct Entry {
    ast::Name name;
    bool wrong;   ///< its value had an error: no more is said of it
    bool appends; ///< its value is that of an `append`
    bool used = false;
    ExprRef value = nullptr; ///< what was assigned
  };
  std::vector<Entry> all;
  int64_t rounds = 0; ///< of all ranges and loops so far; negative: too many
  /// What stages change, in order: a field by its name after a dot, `tokens`, `kv M`, `policy P`.
  std::vector<std::string> changes;
  std::vector<ExprRef> largeReads; ///< calls of more rows than may be read, see checkLargeReads
};

/// What a local stands for: nothing, for its value had an error and its uses stay silent,
struct Broken {};
/// a value of its own,
struct Value {
  Type type;
  Range range;
  int pieces = 1;
  ExprRef constant = {}; ///< an i32 that is one: may be a token, too
};
/// what is read as if it stood there: rows of a call, what top_k gives, a list of constants (which may be tokens, too),
struct Alias {
  ExprRef of;
};
/// a field, which keeps it for a block further inside that changes it,
struct InField {
  std::string field;
};
/// or a tree, whose parts are two locals.
struct Tree {
  ExprRef rows, parents;
};
using Binding = std::variant<Broken, Value, Alias, InField, Tree>;

/// What the body of a stage, a policy or a param may see and do.
struct Scope {
  struct Local {
    int index = 0;
    unsigned depth = 0; ///< nesting of blocks where it was assigned
    Binding binding = {};
    const ExprRef *alias() const {
      const auto *of = std::get_if<Alias>(&binding);
      return of ? &of->of : nullptr;
    }
  };
  /// What is known of a field, or of a local that changes in a block, at this place.
  struct Flow {
    Type type;
    Range range;
  };
  enum Kind { Params, Policy, Stage, Items } kind = Params;
  const CheckedPolicy *policy = nullptr; ///< of Kind Policy; outputs so far
  bool observing = false;                ///< in `observe`: its arguments are visible
  const CheckedStage *stage = nullptr;
  std::map<std::string, Local> locals;
  std::map<std::string, Flow> flows;
  /// Where a loop is looked at: what a round assigns to each name.
  std::map<std::string, std::vector<Flow>> *assigned = nullptr;
  Locals *locally = nullptr;
  std::vector<std::pair<std::string, Range>> binders;
  int64_t rounds = 1; ///< of the binders and loops around, all together, at most
  unsigned depth = 0, loops = 0;
  /// Where model calls and appends are forbidden: "an `if`"; null = allowed.
  const char *noCalls = nullptr;
  const char *noEffects = nullptr;
  ExprRef guard; ///< of a block with calls: they are fed nothing where it does not hold; null: there is none
  ExprRef call;  ///< the last one of this block or of one around it
};

/// What is known where the condition holds, or where it does not.
void refine(const Expr &condition, bool holds, Scope &scope);

} // namespace megalith::sema
#endif
