//===- Guards.cpp - calls under a condition -------------------------------===//
//
// A call stands in an `if`, and in a loop that ends early, as if it were written outside, and fed nothing where the
// condition fails:
//
//   - if: c                         - holds: c
//     do:                           - l: target([last] if holds else [])
//       - l: target([last])   ->    - if: holds
//       - next: argmax(l)[0]          do: [next: argmax(l)[0]]
//
// A stage stops at its calls, and an `if` of the IR has none. So the statements of such a block stand one after the
// other: calls and locals outside, what changes something in an `if` of its own.
//===----------------------------------------------------------------------===//
#include "Statements.h"
#include "llvm/ADT/STLExtras.h"

namespace megalith::sema {

static bool calls(const Context &ctx, const ast::Expr &e) {
  return (e.kind == ast::Expr::Call && ctx.isModel(e.text)) ||
         llvm::any_of(e.args, [&](const ast::ExprPtr &arg) { return arg && calls(ctx, *arg); }) ||
         llvm::any_of(e.named, [&](const auto &named) { return calls(ctx, *named.second); });
}

bool Statements::callsInside(const ast::Stmt &stmt) const {
  const auto of = [&](const std::vector<ast::Stmt> &body) {
    return llvm::any_of(body, [&](const ast::Stmt &s) {
      return llvm::any_of(s.values, [&](const ast::ExprPtr &v) { return v && calls(ctx, *v); }) || callsInside(s);
    });
  };
  return of(stmt.body) || of(stmt.otherwise);
}

/// `v` or, where the guard does not hold, 0 or nothing: of a type that holds both.
static ExprRef whereHolds(const ExprRef &guard, const ExprRef &v) {
  const bool list = !v->type.isScalar();
  const ExprRef nothing = list ? make(Expr::SeqMake, v->type.withLength(0), v->loc)
                               : make(Expr::Const, v->type, v->loc, {}, Number(), Range::of(0));
  const Range range = list ? v->range : hull(v->range, Range::of(0));
  return make(Expr::Select, v->type, v->loc, {guard, v, nothing}, {}, range);
}

ExprRef guarded(const ExprRef &guard, const ExprRef &v) {
  return !guard || !v || v->kind == Expr::Const || v->kind == Expr::Sampling ? v : whereHolds(guard, v);
}

/// The calls that an expression reads.
static void callsOf(const Expr &e, std::vector<ExprRef> &found) {
  for (const ExprRef &arg : e.args)
    if (arg && arg->kind == Expr::ModelCall)
      found.push_back(arg);
    else if (arg)
      callsOf(*arg, found);
}

static bool hasAppend(const Expr &e) {
  return e.kind == Expr::Append || llvm::any_of(e.args, [](const ExprRef &arg) { return arg && hasAppend(*arg); });
}

void Statements::checkGuarded(const std::vector<ast::Stmt> &body, const ExprRef &guard, std::vector<Stmt> &into,
                              Scope &scope) {
  scope.guard = guard;
  std::vector<Stmt> waiting; // for an `if` of their own
  const auto close = [&] {
    if (waiting.empty())
      return;
    const SourceLoc loc = waiting.front().loc;
    into.push_back({.kind = Stmt::If, .values = {guard}, .body = std::move(waiting), .loc = loc});
    waiting.clear();
  };
  // Calls run outside, in front of what reads them.
  const auto runCalls = [&](const Stmt &s) {
    std::vector<ExprRef> read;
    for (const ExprRef &v : s.values)
      if (v)
        callsOf(*v, read);
    if (!read.empty())
      close();
    for (const ExprRef &call : read)
      into.push_back({.kind = Stmt::Effect, .values = {call}, .loc = s.loc});
  };
  for (const ast::Stmt &stmt : body) {
    const bool hasCalls = callsInside(stmt);
    std::vector<Stmt> made;
    checkStatement(stmt, made, scope);
    for (Stmt &s : made) {
      const bool isCall = s.kind == Stmt::Effect && s.values[0]->kind == Expr::ModelCall;
      if (hasCalls && stmt.kind == ast::Stmt::If) { // it has been guarded by this and by its own
        close();
      } else if (hasCalls && s.kind == Stmt::For) {
        close();
        for (ExprRef &bound : s.values) // there is no round where it does not hold
          bound = whereHolds(guard, bound);
      } else if (s.kind == Stmt::SetLocal) {
        close();
        runCalls(s);
        guardLocal(s, guard);
      } else if (!isCall) {
        runCalls(s);
        waiting.push_back(std::move(s));
        continue;
      } else {
        close();
      }
      into.push_back(std::move(s));
    }
  }
  close();
}

static bool isListOfConstants(const Expr &e) {
  return (e.kind == Expr::SeqMake || e.kind == Expr::SeqConst) &&
         llvm::all_of(e.args, [](const ExprRef &item) { return item->kind == Expr::Const; });
}

/// What follows in the block reads it, so it is set outside of an `if`.
void Statements::guardLocal(Stmt &s, const ExprRef &guard) {
  const ExprRef value = s.values[0];
  if (value->kind == Expr::Append) {
    auto some = std::make_shared<Expr>(*value);
    some->args[0] = guarded(guard, some->args[0]);
    s.values[0] = some;
  } else if (hasAppend(*value)) {
    diags.report(Diag::Unsupported, s.loc, "an `append` inside of a value, in a block with a call or `until:`",
                 "`- n: append(...)` alone");
  } else if (value->kind == Expr::TreeRows || value->kind == Expr::TreeParents) { // two parts of one
    auto some = std::make_shared<Expr>(*value);
    for (ExprRef &arg : some->args)
      arg = guarded(guard, arg);
    s.values[0] = some;
  } else if (mayFault(*value) || (!value->type.isScalar() && !isListOfConstants(*value))) {
    // A sequence is only as short as it is known to be where the guard holds.
    s.values[0] = guarded(guard, value);
  }
}

void Statements::checkIfWithCalls(const ast::Stmt &stmt, std::vector<Stmt> &into, Scope &scope) {
  const ExprRef c = with(scope).expect(*stmt.values[0], Elem::Bool, "the condition of `if`");
  const Type boolean = Type::scalar(Elem::Bool);
  const auto both = [&](const ExprRef &first, const ExprRef &second) -> ExprRef {
    return first ? make(Expr::Binary, boolean, stmt.loc, {first, second}, BinaryOp::And) : second;
  };
  ExprRef holds;
  if (c) {
    std::vector<ExprRef> read;
    callsOf(*c, read);
    for (const ExprRef &call : read)
      into.push_back({.kind = Stmt::Effect, .values = {call}, .loc = stmt.loc});
    const int index = static_cast<int>(scope.locally->all.size());
    scope.locally->all.push_back({{"holds", stmt.loc}, false, false, /*used=*/true});
    into.push_back(
        {.kind = Stmt::SetLocal, .name = "holds", .index = index, .values = {both(scope.guard, c)}, .loc = stmt.loc});
    holds = make(Expr::LocalRead, boolean, stmt.loc, {}, Place{index, "holds"});
  }
  std::map<std::string, Scope::Flow> ends[2];
  for (bool otherwise : {false, true}) {
    Scope inner = scope;
    ++inner.depth;
    if (c)
      refine(*c, !otherwise, inner);
    const std::vector<ast::Stmt> &body = otherwise ? stmt.otherwise : stmt.body;
    const ExprRef guard = !holds      ? make(Expr::Const, boolean, stmt.loc, {}, Number())
                          : otherwise ? both(scope.guard, make(Expr::Not, boolean, stmt.loc, {holds}))
                                      : holds;
    checkGuarded(body, guard, into, inner);
    ends[otherwise] = std::move(inner.flows);
  }
  scope.flows = joined(ends[0], ends[1]);
}

} // namespace megalith::sema
