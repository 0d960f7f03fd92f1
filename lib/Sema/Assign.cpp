//===- Assign.cpp - assignments of fields and locals ----------------------===//
#include "Notes.h"
#include "Statements.h"
#include "llvm/ADT/STLExtras.h"

namespace megalith::sema {

static bool readsField(const Expr &e, const std::string &name) {
  return (e.kind == Expr::FieldRead && e.name() == name) ||
         llvm::any_of(e.args, [&](const ExprRef &arg) { return arg && readsField(*arg, name); });
}

void Statements::assignField(CheckedField &f, const ast::Stmt &stmt, ExprRef v, std::vector<Stmt> &into, Scope &scope) {
  SourceLoc loc = stmt.values[0]->loc;
  v = convert(adopt(v, f.type), f.type.elem);
  if (!v->type.sameShape(f.type) || v->type.elem != f.type.elem) {
    diags.report(Diag::TypeMismatch, loc, fmt::format("the value of `{}`", f.name), f.type.str(), v->type.str());
    noteNoTokens(diags, *v, f.type.elem);
    if (v->type.seq == f.type.seq && v->type.table == f.type.table)
      noteCast(diags, v->type, f.type.elem, *stmt.values[0]);
    return;
  }
  const char *unit = f.type.elem == Elem::Token ? "token" : f.type.elem == Elem::Kept ? "row" : "element";
  const bool rows = f.type.table && v->type.rows > f.type.rows;
  if (rows || v->type.capacity > f.type.capacity) {
    const int64_t holds = rows ? f.type.rows : f.type.capacity, has = rows ? v->type.rows : v->type.capacity;
    diags.report(Diag::DraftWindow, loc, f.name,
                 plural(holds, rows ? "row" : unit) + (f.type.table && !rows ? " a row" : ""),
                 has >= Unbounded ? "any number of them" : std::to_string(has));
    if (const bool follows = scope.flows.count(f.name); scope.loops > 0 && !follows && readsField(*v, f.name))
      diags.note(fmt::format("`{0}` may be full here: after `- {0}: '[]'` in front of the loop, in the same stage and "
                             "after the last call, its length is followed",
                             f.name));
    else
      noteBound(ctx, *v);
    diags.note(f.loc, f.inferred ? "its size was taken from an assignment in another stage; "
                                   "declare it below `request:`"
                                 : "declared here");
    if (ctx.looksAhead)
      flowsTo(f.name, *v, scope);
    else
      scope.flows.erase(f.name);
    return;
  }
  flowsTo(f.name, *v, scope);
  into.push_back({.kind = Stmt::SetField, .name = f.name, .values = {v}, .loc = stmt.target.loc});
}

void Statements::assignInferred(Inferred &name, const ast::Stmt &stmt, ExprRef v, std::vector<Stmt> &into,
                                Scope &scope) {
  const std::string &text = stmt.target.text;
  CheckedField *f = ctx.field(text);
  if (v && v->type.elem == Elem::None && !f) { // its type is that of another value
    scope.flows[text] = {v->type, {}};
    into.push_back({.kind = Stmt::SetField, .name = text, .values = {v}, .loc = stmt.target.loc});
    return;
  }
  name.typed = true;
  if (v && !hasRoom(ctx, v->type, fmt::format("`{}`, which another stage reads,", text), stmt.target.loc, v.get()))
    v = nullptr;
  if (!v) {
    if (!f)
      ctx.bad.insert(text);
    return;
  }
  if (!f) {
    CheckedField fresh;
    fresh.name = text;
    fresh.type = v->type;
    fresh.init.elem = v->type.elem;
    fresh.inferred = true;
    fresh.loc = stmt.target.loc;
    ctx.out.fields.push_back(fresh);
    f = &ctx.out.fields.back();
  }
  assignField(*f, stmt, v, into, scope);
}

/// Whether nothing but constants is in it.
static bool isConstantList(const Expr &e) {
  if (e.kind != Expr::SeqMake && e.kind != Expr::SeqConst && e.kind != Expr::SeqConcat)
    return false;
  return llvm::all_of(e.args, [](const ExprRef &item) { return item->kind == Expr::Const || isConstantList(*item); });
}

/// Whether a name may be assigned here. False after a report, and where its declaration had an error.
bool Statements::mayAssign(const ast::Stmt &stmt, Scope &scope) {
  const auto &[name, loc] = stmt.target;
  const auto cannot = [&](const std::string &what) {
    diags.report(Diag::CannotAssign, loc, name, what);
    return false;
  };
  if (scope.kind == Scope::Policy && llvm::is_contained(scope.policy->observeArgs, name))
    return cannot("an argument of `observe`");
  if (llvm::any_of(scope.binders, [&](const auto &binder) { return binder.first == name; }))
    return cannot("the variable of a `for` around it");
  const auto it = ctx.declared.find(name);
  const bool isField = it != ctx.declared.end() && it->second == "a field";
  if (name == "goto" && it == ctx.declared.end() && ctx.namesState(*stmt.values[0])) {
    diags.report(Diag::EffectNotAllowed, loc, "`goto`", "a list of statements");
    diags.note("a stage has one `goto:`, below its `do:`, with conditions: `goto: A if c else B`");
    return false;
  }
  if (ctx.bad.count(name) && !isField && !ctx.inferred.count(name)) { // its declaration had an error
    with(scope).check(*stmt.values[0]);
    return false;
  }
  if (it != ctx.declared.end() && (!isField || scope.kind == Scope::Policy))
    return cannot(it->second);
  if (!reservedWord(name))
    return true;
  if (isPredefined(name))
    cannot("a predefined name");
  else
    diags.report(Diag::ReservedName, loc, name, "a local");
  ctx.unknown.insert(name); // its uses stay silent
  with(scope).check(*stmt.values[0]);
  return false;
}

void Statements::checkAssign(const ast::Stmt &stmt, std::vector<Stmt> &into, Scope &scope) {
  const std::string &name = stmt.target.text;
  const ast::Expr &e = *stmt.values[0];
  if (!oneValue(stmt))
    return;
  for (const CheckedField &f : scope.kind == Scope::Policy ? scope.policy->state : std::vector<CheckedField>())
    if (f.name == name) {
      if (ExprRef v = with(scope).expect(e, f.type.elem, fmt::format("the value of `{}`", name)))
        into.push_back({.kind = Stmt::SetPolicyState, .name = name, .values = {v}, .loc = stmt.target.loc});
      return;
    }
  if (!mayAssign(stmt, scope))
    return;

  const bool isField = ctx.declared.count(name); // all else is no target
  if (CheckedField *f = isField ? ctx.field(name) : nullptr; f && f->type.elem == Elem::Kept)
    return assignKept(*f, stmt, into, scope);
  ExprRef v = with(scope).check(e);
  if (v && v->type.elem == Elem::Kept)
    v = with(scope).value(e); // an error
  const auto inferredField = scope.kind == Scope::Stage ? ctx.inferred.find(name) : ctx.inferred.end();
  const bool stored = isField || inferredField != ctx.inferred.end();
  if (v && v->type.elem == Elem::Logits) {
    const bool none = v->kind == Expr::ModelCall && v->as<Call>().keepNone;
    if (none || stored || ctx.changing.count(&stmt)) {
      diags.report(AnyDiag{none ? Diag::KeepNoneReduced : Diag::LogitsUse}, v->loc);
      v = nullptr;
    }
  }
  if (v && v->kind == Expr::TopParts && (stored || ctx.changing.count(&stmt)))
    v = with(scope).value(e); // an error: it can only be named
  if (stored)
    scope.locally->changes.push_back("." + name);
  if (isField) {
    CheckedField *f = ctx.field(name);
    if (v && f)
      assignField(*f, stmt, v, into, scope);
    return;
  }
  if (stored)
    return assignInferred(inferredField->second, stmt, v, into, scope);

  if (auto outer = scope.locals.find(name); outer != scope.locals.end() && outer->second.depth < scope.depth) {
    if (scope.kind == Scope::Policy)
      diags.report(Diag::LocalInIf, stmt.target.loc, name);
    else if (const auto *kept = std::get_if<InField>(&outer->second.binding))
      changeLocal(kept->field, stmt, v, into, scope);
    return;
  }
  const int index = static_cast<int>(scope.locally->all.size());
  scope.locally->all.push_back({stmt.target, !v, v && v->kind == Expr::Append, false, v});
  scope.locals[name] = {index, scope.depth, v ? bind(stmt, v, index, into, scope) : Broken()};
}

/// What a local stands for that is assigned here. It is number `index`.
Binding Statements::bind(const ast::Stmt &stmt, const ExprRef &v, int index, std::vector<Stmt> &into, Scope &scope) {
  const auto &[name, loc] = stmt.target;
  const auto set = [&, loc = loc](const std::string &text, int at, const ExprRef &to) {
    into.push_back({.kind = Stmt::SetLocal, .name = text, .index = at, .values = {to}, .loc = loc});
  };
  // A call runs here, even where what reads its rows stands below.
  const auto run = [&, loc = loc](const ExprRef &call) {
    into.push_back({.kind = Stmt::Effect, .values = {call}, .loc = loc});
  };
  if (v->type.elem == Elem::Logits) {
    const auto it = scope.locals.find(stmt.values[0]->kind == ast::Expr::Path ? stmt.values[0]->text : "");
    const ExprRef *other = it == scope.locals.end() ? nullptr : it->second.alias();
    if (v->kind == Expr::ModelCall && !(other && *other == v))
      run(v);
    return Alias{v};
  }
  if (ctx.changing.count(&stmt)) {
    const std::string fresh = newVariable(name, scope);
    ctx.variables[fresh] = {Type::sequence(0, Elem::None), loc, name};
    changeLocal(fresh, stmt, v, into, scope);
    return scope.flows.count(fresh) ? Binding(InField{fresh}) : Broken();
  }
  if (v->kind == Expr::TopParts) {
    const ExprRef &call = v->args[0];
    if (llvm::none_of(scope.locals, [&](const auto &other) {
          const ExprRef *rows = other.second.alias();
          return rows && (*rows == call || ((*rows)->kind == Expr::LogitRows && (*rows)->args[0] == call));
        }))
      run(call);
    return Alias{v};
  }
  if (v->kind == Expr::TreeRows) {
    const ExprRef parents = make(Expr::TreeParents, Type::sequence(v->type.capacity, Elem::I32), v->loc, v->args, {},
                                 {-1, v->type.capacity - 1});
    scope.locally->all.push_back({stmt.target, false, false, /*used=*/true});
    set(name + ".rows", index, v);
    set(name + ".parents", index + 1, parents);
    return Tree{v, parents};
  }
  // A part of an input table is a copy, which has the limits of a field.
  if (v->type.table && v->kind != Expr::InputRead && !hasRoom(ctx, v->type, fmt::format("`{}`", name), loc, v.get()))
    return Broken();
  set(name, index, v);
  if (isConstantList(*v))
    return Alias{v};
  Value value{v->type, v->range, v->pieces};
  if (const auto c = v->type.is(Elem::I32) ? evaluate(*v) : std::nullopt) {
    value.constant = fromConstant(*c, v->loc, /*literal=*/false);
  } else if (scope.kind == Scope::Stage && v->type.elem == Elem::I32) {
    // Constants that a condition or an index picks may be tokens, too: a second value, which lasts where it is read.
    if (const ExprRef tokens = convert(v, Elem::Token); tokens->type.elem == Elem::Token) {
      const int at = static_cast<int>(scope.locally->all.size());
      auto twin = make(Expr::LocalRead, tokens->type, loc, {}, Place{at, name});
      twin->pieces = tokens->pieces;
      scope.locally->all.push_back({stmt.target, false, false, /*used=*/true, tokens});
      set(name, at, tokens);
      value.constant = twin;
    }
  }
  return value;
}

} // namespace megalith::sema
