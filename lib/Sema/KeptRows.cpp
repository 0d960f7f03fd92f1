//===- KeptRows.cpp - rows of logits that a field keeps -------------------===//
//
// `q: logits[n]` keeps rows as the head of a model rounds them, with the request's slot. Its value is the best token of
// each row, so its length is a sequence's; the rows themselves are written in the pass that computes them. So what is
// assigned must be known before that pass, and must happen whenever the call does. A reducer reads kept rows in the
// pass of a call, too: of the last one before it. There they go with the call's rows, row i with row i.
//===----------------------------------------------------------------------===//
#include "Statements.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>

namespace megalith::sema {

/// Rows of two models stand in one field if they are of one length.
bool Statements::checkKeptVocab(const CheckedField &field, const Expr &call) {
  const std::string &own = callOf(call).model;
  const auto [it, first] = ctx.keptOf.emplace(field.name, std::pair(own, call.loc));
  const auto &[model, loc] = it->second;
  const auto vocab = [&](const std::string &name) {
    const ModelFacts *known = ctx.model(name);
    return known ? known->vocab : 0;
  };
  if (vocab(model) == vocab(own))
    return true;
  diags.report(Diag::KeptVocab, call.loc, field.name, model, vocab(model), own, vocab(own));
  diags.note(loc, "it keeps rows of this call");
  return false;
}

void Statements::assignKept(CheckedField &f, const ast::Stmt &stmt, std::vector<Stmt> &into, Scope &scope) {
  const ast::Expr &e = *stmt.values[0];
  if (!ctx.needsSlot(fmt::format("`{}`", f.name), stmt.target.loc, scope))
    return;
  const auto assign = [&](const ExprRef &v) {
    scope.locally->changes.push_back("." + f.name);
    assignField(f, stmt, v, into, scope);
  };
  const bool more =
      e.kind == ast::Expr::Binary && e.text == "+" && e.args[0]->kind == ast::Expr::Path && e.args[0]->text == f.name;
  const ast::Expr &given = more ? *e.args[1] : e;
  ExprRef rows = with(scope).check(given);
  if (!rows)
    return;
  if (!more && rows->kind == Expr::SeqMake && rows->args.empty())
    return assign(rows);
  if (rows->type.elem != Elem::Logits) {
    diags.report(Diag::KeptValue, given.loc, f.name, f.name);
    return;
  }
  const ExprRef call = rows->kind == Expr::LogitRows ? rows->args[0] : rows;
  const auto refuse = [&](const std::string &why) { diags.report(Diag::KeptRows, given.loc, f.name, why); };
  const std::shared_ptr<Reductions> &reductions = callOf(*call).reductions;
  if (callOf(*call).keepNone) {
    diags.report(Diag::KeepNoneReduced, given.loc);
    return;
  }
  if (rows->kind == Expr::LogitRows && !rows->as<Bounds>().result.empty())
    return refuse(fmt::format("they are `{}`, and not the logits of the model", rows->as<Bounds>().result));
  if (reductions->guard)
    return refuse("rows of a call in an `if` cannot be kept; let it stand outside, and feed it nothing where it is not "
                  "wanted");
  if (reductions->depth != scope.depth)
    return refuse("they are kept in the pass of their call, so the assignment stands in the same block as the call");
  const auto reads = [&](const Reduction &r) { return r.kept == f.name || r.minus == f.name; };
  if (!more && llvm::any_of(reductions->list, reads))
    return refuse(fmt::format("a reducer of the same call reads `{}`", f.name));
  if (llvm::any_of(reductions->list, [](const Reduction &other) { return !other.keep.empty(); }))
    return refuse("some rows of this call are kept already");
  if (!checkKeptVocab(f, *call))
    return;
  Reduction r;
  r.name = "argmax";
  r.keep = f.name;
  r.loc = given.loc;
  r.type = Type::sequence(rows->type.capacity, Elem::Kept);
  if (rows->kind == Expr::LogitRows)
    takeRowBounds(*rows, r);
  ExprRef before;
  if (more) {
    before = with(scope).check(*e.args[0]);
    if (!before)
      return;
    r.with.push_back(
        {"at", make(Expr::SeqLen, Type::scalar(Elem::I32), given.loc, {before}, {}, {0, before->type.capacity})});
  } else {
    // Whatever was kept is overwritten in the pass.
    const auto &changes = scope.locally->changes;
    if (std::find(changes.begin() + reductions->since, changes.end(), "." + f.name) != changes.end())
      return refuse(fmt::format("`{}` was assigned between the call and here", f.name));
  }
  for (const auto &[name, v, fromEnd] : r.with)
    if (!knownAtCall(ctx, *v, *reductions,
                     name == "at" ? fmt::format("the length of `{}`", f.name) : fmt::format("`{}`", name), f.name,
                     scope))
      return;
  ExprRef kept = reducedBy(ctx, std::move(r), call, given.loc);
  assign(more ? concat(ctx, before, kept, e.loc) : kept);
}

} // namespace megalith::sema
