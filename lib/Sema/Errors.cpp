//===- Errors.cpp - one mistake, one error --------------------------------===//
//
// A mistake is told once, where it was made or first met. What follows from it stays
// silent: further uses of a name that is not there, a local that only a wrong
// expression reads. What is suggested must be legal there.
//===----------------------------------------------------------------------===//
#include "Checker.h"
#include "llvm/ADT/STLExtras.h"

namespace megalith::sema {

void Checker::reportUnknown(Diag id, SourceLoc loc, const std::string &name,
                            const std::vector<std::string> &candidates) {
  diags.report(id, loc, name);
  diags.suggest(name, candidates);
}

/// Of `kv.NAME.` that begins at `path`.
void Checker::reportUnknownPool(SourceLoc path, const std::string &name) {
  path.column += 3;
  path.length = static_cast<uint32_t>(name.size());
  reportUnknown(Diag::UnknownModel, path, name, out.models);
}

void Checker::reportUnknownState(const ast::Name &name, bool (*fits)(const CheckedState &)) {
  if (!unknownStates.insert(name.text).second)
    return;
  std::vector<std::string> names;
  for (const CheckedState &s : out.states)
    if (fits(s) && s.name != out.fault)
      names.push_back(s.name);
  diags.report(Diag::UnknownState, name.loc, name.text);
  diags.suggest(name.text, names);
}

void Checker::markRead(const ast::Expr &e, Scope &scope) {
  if (e.kind == ast::Expr::Path)
    if (auto it = scope.locals.find(e.text); it != scope.locals.end())
      scope.locally->all[it->second.index].used = true;
  for (const ast::ExprPtr &arg : e.args)
    if (arg)
      markRead(*arg, scope);
  for (const auto &[name, arg] : e.named)
    markRead(*arg, scope);
}

void Checker::reportUnknownName(const ast::Expr &e, Scope &scope) {
  // A local that is not visible any more was assigned in an `if`.
  Locals::Entry *ended = nullptr;
  if (scope.locally)
    for (Locals::Entry &local : scope.locally->all)
      if (local.name.text == e.text)
        ended = &local;
  if (ended)
    ended->used = true;
  if (!firstUse(e.text) || (ended && ended->wrong))
    return;
  const std::vector<std::string> names = visibleNames(scope);
  reportUnknown(Diag::UnknownName, e.loc, e.text, names);
  // What was meant is not unread.
  if (auto meant = scope.locals.find(nearestName(e.text, names)); meant != scope.locals.end())
    scope.locally->all[meant->second.index].used = true;
  if (ended)
    diags.note(ended->name.loc, "this local ends with its block; assign it before, or declare it below `request:`");
}

/// A local that `e` is put together of.
static const Expr *localIn(const Expr &e) {
  switch (e.kind) {
  case Expr::LocalRead:
    return &e;
  case Expr::FieldRead:
    return e.name.find('.') == std::string::npos ? nullptr : &e;
  case Expr::SeqMake:
  case Expr::SeqConcat:
  case Expr::SeqSlice:
  case Expr::SeqAt:
  case Expr::Select:
    for (const ExprRef &arg : e.args)
      if (const Expr *local = arg && arg->type.elem == Elem::I32 ? localIn(*arg) : nullptr)
        return local;
    return nullptr;
  default:
    return nullptr;
  }
}

void Checker::noteNoTokens(const Expr &e, Elem wanted) {
  const Expr *local = wanted == Elem::Token && e.type.elem == Elem::I32 ? localIn(e) : nullptr;
  if (local)
    diags.note(
        fmt::format("`{}` has numbers (i32); to have tokens it is declared below `request:`, as `token` or `token[n]`",
                    local->name.substr(local->name.find('.') + 1)));
}

/// Whether the function reads the logits of a call.
static bool isReducer(Function f) {
  switch (f) {
  case Function::ArgMax:
  case Function::Sample:
  case Function::MaxProb:
  case Function::LogSumExp:
  case Function::Entropy:
  case Function::Prob:
  case Function::TopK:
    return true;
  default:
    return false;
  }
}

std::vector<std::string> Checker::functionNames(const Scope &scope) const {
  std::vector<std::string> names;
  if (scope.kind == Scope::Stage && !scope.noCalls)
    names = out.models;
  const auto add = [&](const char *name, Function id) {
    const bool constant = id == Function::Min || id == Function::Max || id == Function::Ratio ||
                          (id >= Function::Exp && id <= Function::ToI32);
    const bool effect = id == Function::Append, call = isReducer(id);
    if ((constant || scope.kind != Scope::Params) && !(effect && scope.noEffects) && !(call && scope.noCalls))
      names.push_back(name);
  };
#define FUNCTION(Id, Name, Params, Result, Text) add(Name, Function::Id);
#include "megalith/Sema/Builtins.def"
  return names;
}

} // namespace megalith::sema
