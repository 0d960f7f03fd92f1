//===- Context.cpp - names of the file, and what is said of unknown ones --===//
//
// A mistake is told once, where it was made or first met. What follows from it stays silent: further uses of a name
// that is not there, a local that only a wrong expression reads. What is suggested must be legal there.
//===----------------------------------------------------------------------===//
#include "Context.h"
#include "Builtins.h"
#include "Notes.h"
#include "llvm/ADT/STLExtras.h"

namespace megalith::sema {

bool reservedWord(llvm::StringRef name) {
#define WORD(Word)                                                                                                     \
  if (name == Word)                                                                                                    \
    return true;
#define PREDEFINED(Id, Name, Type, Values, Operation, Text) WORD(Name)
#define FUNCTION(Id, Name, Where, Operation, Params, Result, Text) WORD(Name)
#include "megalith/Sema/Builtins.def"
  return false;
}

bool isPredefined(llvm::StringRef name) {
  bool is = false;
#define PREDEFINED(Id, Name, Type, Values, Operation, Text) is |= name == Name;
#include "megalith/Sema/Builtins.def"
  return is;
}

std::vector<std::string> Context::visibleNames(const Scope &scope) const {
  std::vector<std::string> names;
  for (const auto &[name, range] : scope.binders)
    names.push_back(name);
  for (const auto &[name, local] : scope.locals)
    names.push_back(name);
  if (scope.policy) {
    for (const CheckedField &f : scope.policy->state)
      names.push_back(f.name);
    for (const CheckedOutput &o : scope.policy->outputs)
      names.push_back(o.name);
    if (scope.observing)
      for (const std::string &a : scope.policy->observeArgs)
        names.push_back(a);
  }
  for (const CheckedParam &p : out.params)
    names.push_back(p.name);
  if (scope.kind == Scope::Params)
    return names;
  for (const CheckedDim &d : buffers.dims)
    names.push_back(d.name);
  for (const CheckedBuffer &b : buffers.buffers)
    names.push_back(b.name);
  if (scope.kind == Scope::Items)
    return names;
  for (const CheckedField &f : out.fields)
    if (!f.local)
      names.push_back(f.name);
  for (const CheckedInput &i : out.inputs)
    names.push_back(i.name);
#define PREDEFINED(Id, Name, Type, Values, Operation, Text) names.push_back(Name);
#include "megalith/Sema/Builtins.def"
  return names;
}

bool Context::needsSlot(const std::string &what, SourceLoc loc, const Scope &scope) {
  if (scope.kind == Scope::Policy) {
    diags.report(Diag::EffectNotAllowed, loc, what, "a policy");
    return false;
  }
  if (!scope.stage)
    return true;
  for (const std::string &on : scope.stage->on)
    if (const CheckedState *s = state(on); s && !s->slot) {
      if (slotless.insert(on).second)
        diags.report(Diag::NeedsSlot, loc, what, on,
                     s->initial || s->parked ? "do it in a state with `slot: true`" : "give the state `slot: true`");
      return false;
    }
  return true;
}

bool Context::namesState(const ast::Expr &e) const {
  if (e.kind == ast::Expr::Conditional)
    return namesState(*e.args[0]) || (e.args.size() > 2 && e.args[2] && namesState(*e.args[2]));
  return e.kind == ast::Expr::Path && state(e.text);
}

int64_t Context::mostPositions() const {
  constexpr int64_t least = limits::leastRounds, most = limits::positions; // of checkPools
  int64_t positions = most;
  for (const CheckedPool &p : out.pools)
    if (p.pages > 0 && p.pageTokens > 0)
      positions = std::min(positions, p.pages > most / p.pageTokens ? most : p.pages * p.pageTokens);
  return std::max(positions, least);
}

/// The one of this name; null: there is none.
template <class List> static auto *named(List &list, const std::string &name) {
  const auto found = llvm::find_if(list, [&](const auto &each) { return each.name == name; });
  return found == list.end() ? nullptr : &*found;
}

CheckedField *Context::field(const std::string &name) { return named(out.fields, name); }
const CheckedInput *Context::input(const std::string &name) const { return named(out.inputs, name); }
const CheckedParam *Context::param(const std::string &name) const { return named(out.params, name); }
const CheckedPolicy *Context::policy(const std::string &name) const { return named(out.policies, name); }
const CheckedState *Context::state(const std::string &name) const { return named(out.states, name); }
const CheckedDim *Context::dim(const std::string &name) const { return named(buffers.dims, name); }
const CheckedBuffer *Context::buffer(const std::string &name) const { return named(buffers.buffers, name); }
const CheckedPool *Context::pool(const std::string &name) const { return named(out.pools, name); }
const ModelFacts *Context::model(const std::string &name) const { return named(facts, name); }

bool Context::isModel(const std::string &name) const { return llvm::is_contained(out.models, name); }

int64_t Context::slots() const {
  const CheckedParam *p = param("slots");
  return p && !p->value.seq && p->value.elem == Elem::I32 ? std::max<int64_t>(0, p->value.intValue) : 8;
}

int64_t Context::rowsPerPass() const {
  const CheckedParam *p = param("rows_per_pass");
  return p && !p->value.seq && p->value.elem == Elem::I32 ? p->value.intValue : 64;
}

bool Context::isReserved(const std::string &name) const {
  static const char *const words[] = {"if", "else", "and", "or", "not", "in", "true", "false", "none"};
  if (!in.ofBuffers)
    return reservedWord(name);
  return findBuiltin(name) || llvm::any_of(words, [&](const char *word) { return name == word; });
}

void Context::reportUnknown(Diag id, SourceLoc loc, const std::string &name,
                            const std::vector<std::string> &candidates) {
  diags.report(AnyDiag{id}, loc, name);
  diags.suggest(name, candidates);
}

/// Of `kv.NAME.` that begins at `path`.
void Context::reportUnknownPool(SourceLoc path, const std::string &name) {
  path.column += 3;
  path.length = static_cast<uint32_t>(name.size());
  reportUnknown(Diag::UnknownModel, path, name, out.models);
}

void Context::reportUnknownState(const ast::Name &name, bool (*fits)(const CheckedState &)) {
  if (!unknownStates.insert(name.text).second)
    return;
  std::vector<std::string> names;
  for (const CheckedState &s : out.states)
    if (fits(s) && s.name != out.fault)
      names.push_back(s.name);
  diags.report(Diag::UnknownState, name.loc, name.text);
  diags.suggest(name.text, names);
}

void Context::reportUnknownName(const ast::Expr &e, Scope &scope) {
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
  if (state(e.text)) {
    diags.report(Diag::UnknownName, e.loc, e.text);
    diags.note(fmt::format("`{}` is a state: it stands in `goto:`, `next:` and `on:` only", e.text));
    return;
  }
  // A name that is nearly that of something of this file was probably meant to be that.
  const std::string near = nearestName(e.text, names);
  const bool typo = !near.empty() && !isPredefined(near) && llvm::StringRef(e.text).edit_distance(near) == 1;
  if (scope.kind != Scope::Params && !typo && !ended) {
    diags.report(Diag::UnknownName, e.loc, e.text);
    if (noteGuess(diags, e.text, Guess::Name))
      return;
    diags.suggest(e.text, names);
  } else {
    reportUnknown(Diag::UnknownName, e.loc, e.text, names);
  }
  // What was meant is not unread.
  if (auto meant = scope.locals.find(nearestName(e.text, names)); meant != scope.locals.end())
    scope.locally->all[meant->second.index].used = true;
  if (ended)
    diags.note(ended->name.loc, "this local ends with its block; assign it before, or declare it below `request:`");
}

std::vector<std::string> Context::functionNames(const Scope &scope) const {
  std::vector<std::string> names;
  if (scope.kind == Scope::Stage && !scope.noCalls)
    names = out.models;
  for (const Builtin &f : builtins())
    if ((f.where == Builtin::Constant || scope.kind != Scope::Params) &&
        !(f.where == Builtin::Effect && scope.noEffects) && !(f.where == Builtin::Rows && scope.noCalls))
      names.push_back(f.name.str());
  return names;
}

} // namespace megalith::sema
