//===- Stages.cpp - stages and their statements ---------------------------===//
#include "Notes.h"
#include "Statements.h"
#include "megalith/Syntax/Parse.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringRef.h"

namespace megalith::sema {

void Statements::checkStages() {
  ctx.out.stages.resize(ctx.in.stages.size());
  // A stage is checked when the types of the inferred fields it reads are known.
  std::vector<size_t> pending;
  for (size_t i = 0; i < ctx.in.stages.size(); ++i)
    pending.push_back(i);
  while (!pending.empty()) {
    auto waitsFor = [&](size_t i) -> std::string {
      for (const auto &[name, loc] : ctx.uses[&ctx.in.stages[i]].freeReads)
        if (auto it = ctx.inferred.find(name); it != ctx.inferred.end() && !it->second.typed)
          return name;
      return "";
    };
    auto ready = llvm::find_if(pending, [&](size_t i) { return waitsFor(i).empty(); });
    if (ready == pending.end()) {
      // Each waits for another: name the first one and go on without it.
      std::string name = waitsFor(pending.front());
      diags.report(Diag::CannotInfer, ctx.uses[&ctx.in.stages[pending.front()]].freeReads[name], name);
      ctx.inferred[name].typed = true;
      ctx.bad.insert(name);
      continue;
    }
    size_t i = *ready;
    pending.erase(ready);
    checkStage(ctx.in.stages[i], ctx.out.stages[i]);
  }
  for (CheckedStage &stage : ctx.out.stages)
    giveTypes(stage.body);
}

/// Where `[]` was assigned to a field before its type was known.
void Statements::giveTypes(std::vector<Stmt> &body) {
  for (Stmt &s : body) {
    if (const CheckedField *f = s.kind == Stmt::SetField ? ctx.field(s.name) : nullptr)
      s.values[0] = adopt(s.values[0], f->type);
    giveTypes(s.body);
    giveTypes(s.otherwise);
  }
}

/// Finds the assignments of locals that a block further inside changes: they are kept in a field. `seen`: where each
/// name was assigned last, and how deep.
void Statements::findChanging(const std::vector<ast::Stmt> &body,
                              std::map<std::string, std::pair<const ast::Stmt *, unsigned>> seen, unsigned depth) {
  for (const ast::Stmt &s : body) {
    if (s.kind == ast::Stmt::Assign && !ctx.declared.count(s.target.text) && !ctx.inferred.count(s.target.text)) {
      auto it = seen.find(s.target.text);
      if (it != seen.end() && it->second.second < depth)
        ctx.changing.insert(it->second.first);
      else
        seen[s.target.text] = {&s, depth};
    }
    findChanging(s.body, seen, depth + 1);
    findChanging(s.otherwise, seen, depth + 1);
  }
}

void Statements::checkStage(const ast::StageDecl &decl, CheckedStage &stage) {
  stage.name = decl.name.text;
  stage.loc = decl.name.loc;
  for (const ast::Name &on : decl.on)
    stage.on.push_back(on.text);
  Locals locals;
  Scope scope;
  scope.kind = Scope::Stage;
  scope.stage = &stage;
  scope.locally = &locals;
  ctx.here = &locals;
  checkAdmission(decl, stage, scope);
  findChanging(decl.body, {}, 0);
  checkBlock(decl.body, stage.body, scope);
  stage.goLoc = decl.go->loc;
  scope.noCalls = scope.noEffects = "`goto`";
  checkGoto(*decl.go, nullptr, stage, scope);
  checkLargeReads(ctx, locals);
  reportUnused(locals, nullptr);
  declareVariables(stage);
  ctx.here = nullptr;
}

/// Of a stage, or of `policy`: a name that nothing reads was meant to be one that keeps its value.
void Statements::reportUnused(const Locals &locals, const CheckedPolicy *policy) {
  std::vector<std::string> names;
  for (const CheckedField &f : policy ? policy->state : ctx.out.fields)
    if (!f.local)
      names.push_back(f.name);
  for (const Locals::Entry &local : locals.all)
    if (!local.used && !local.wrong) {
      diags.report(Diag::UnusedLocal, local.name.loc, local.name.text, policy ? "state of the policy" : "field");
      if (!noteGuess(diags, local.name.text, Guess::Statement))
        diags.suggest(local.name.text, names);
      if (local.appends)
        diags.note("if the number of appended tokens is not needed, write `- append(...)`");
    }
}

void Statements::checkBlock(const std::vector<ast::Stmt> &body, std::vector<Stmt> &into, Scope &scope) {
  for (const ast::Stmt &s : body)
    checkStatement(s, into, scope);
}

bool Statements::oneValue(const ast::Stmt &stmt) {
  if (stmt.values.size() == 1)
    return true;
  diags.report(Diag::ArgumentCount, stmt.loc, stmt.target.text, "1 value", stmt.values.size());
  return false;
}

void Statements::checkStatement(const ast::Stmt &stmt, std::vector<Stmt> &into, Scope &scope) {
  auto inStage = [&](const char *what) {
    if (scope.kind == Scope::Stage)
      return true;
    diags.report(Diag::EffectNotAllowed, stmt.loc, what, "a policy");
    return false;
  };
  auto add = [&](Stmt::Kind kind, std::string name, ExprRef v) {
    into.push_back({.kind = kind, .name = std::move(name), .values = {std::move(v)}, .loc = stmt.loc});
  };
  switch (stmt.kind) {
  case ast::Stmt::Assign:
    if (stmt.target.text.find('.') != std::string::npos)
      checkCommand(stmt, into, scope);
    else
      checkAssign(stmt, into, scope);
    return;
  case ast::Stmt::Effect: {
    ExprRef v = with(scope).check(*stmt.values[0]);
    if (!v)
      return;
    const bool call = v->kind == Expr::ModelCall;
    if (v->kind == Expr::LogitRows)
      diags.report(Diag::LogitsUnused, v->loc);
    else if (call && !v->as<Call>().keepNone)
      diags.report(Diag::LogitsUnused, v->loc);
    else if (!call && v->kind != Expr::Append)
      diags.report(Diag::NoEffect, v->loc);
    else
      add(Stmt::Effect, "", v);
    return;
  }
  case ast::Stmt::Count: {
    if (!inStage("`count`") || !oneValue(stmt))
      return;
    ExprRef v = with(scope).expect(*stmt.values[0], Elem::I32, fmt::format("what `{}` counts", stmt.target.text));
    if (!v)
      return;
    auto same = [&](const auto &m) { return m.first == stmt.target.text; };
    if (llvm::none_of(ctx.out.metrics, same))
      ctx.out.metrics.emplace_back(stmt.target.text, stmt.target.loc);
    add(Stmt::Count, stmt.target.text, v);
    return;
  }
  case ast::Stmt::Trace: {
    // The kernel keeps a tick's values with the slot.
    if (!inStage("`trace`") || !ctx.needsSlot("`trace`", stmt.loc, scope) || !oneValue(stmt))
      return;
    ExprRef v = with(scope).value(*stmt.values[0]);
    if (!v)
      return;
    if (!v->type.isScalar()) {
      diags.report(Diag::TypeMismatch, v->loc, "what is traced", "a number, bool or token", v->type.str());
      noteCast(diags, v->type, v->type.elem, *stmt.values[0]);
      return;
    }
    const ast::Expr &e = *stmt.values[0];
    std::string name = ast::written(e);
    auto known = llvm::find_if(ctx.out.gauges, [&](const CheckedGauge &g) { return g.name == name; });
    if (known == ctx.out.gauges.end()) {
      ctx.out.gauges.push_back({name, v->type.elem, stmt.loc});
    } else if ((known->elem == Elem::F32) != (v->type.elem == Elem::F32)) {
      diags.report(Diag::TypeMismatch, v->loc, fmt::format("what is traced as `{}`", name), elemName(known->elem),
                   v->type.str());
      diags.note(known->loc, "it is traced here, too");
      return;
    }
    add(Stmt::Trace, name, v);
    return;
  }
  case ast::Stmt::If:
    checkIf(stmt, into, scope);
    return;
  case ast::Stmt::For:
  case ast::Stmt::While:
    checkLoop(stmt, into, scope);
    return;
  case ast::Stmt::Repeat:
    diags.report(Diag::Unsupported, stmt.loc, "`repeat` in a stage",
                 "`for`, `while`, or a state that the request visits again");
    return;
  }
}

/// `matching(s)` of `kv.M.keep`: kv.M.len + prefix_while(i in 0..min(len(s), len(tokens) - 1 - kv.M.len),
/// s[i] == tokens[kv.M.len + i]). Of the last token there is no K and V to keep.
ExprRef Statements::checkMatching(const std::string &pool, const ast::Expr &e, Scope &scope) {
  if (e.args.size() != 1 || !e.named.empty()) {
    diags.report(Diag::ArgumentCount, e.loc, e.text, "1 argument", e.args.size() + e.named.size());
    return nullptr;
  }
  const ExprRef fed =
      as(ctx, with(scope).value(*e.args[0]), Type::sequence(0), "the argument of `matching`", "a sequence of tokens");
  if (!fed)
    return nullptr;
  if (fed->type.capacity >= Unbounded) {
    diags.report(Diag::UnboundedSequence, fed->loc, "the argument of `matching`");
    return nullptr;
  }
  const Type i32 = Type::scalar(Elem::I32);
  const Range places{0, ctx.mostPositions()};
  const auto number = [&](Expr::Kind kind, std::vector<ExprRef> args, Expr::Data data, Range range = {}) -> ExprRef {
    return make(kind, i32, e.loc, std::move(args), std::move(data), range);
  };
  const ExprRef length = number(Expr::Pool, {}, PoolRead{pool, PoolName::Len}, places),
                tokens = make(Expr::Request, Type::sequence(Unbounded), e.loc, {}, Predefined::Tokens),
                there = number(Expr::SeqLen, {tokens}, {}, places),
                left = number(Expr::Binary, {number(Expr::Binary, {there, intConst(1, e.loc)}, BinaryOp::Sub), length},
                              BinaryOp::Sub),
                count = number(Expr::SeqLen, {fed}, {}, {0, fed->type.capacity}),
                high = number(Expr::Math, {count, left}, Function::Min, {INT32_MIN, fed->type.capacity});
  Scope inner = scope;
  if (!with(scope).checkRounds(inner, fed->type.capacity, "`matching`", e.loc))
    return nullptr;
  const Place place{static_cast<int>(scope.binders.size()), "i"};
  const ExprRef i = number(Expr::BinderRead, {}, place, {0, fed->type.capacity}),
                at = number(Expr::Binary, {length, i}, BinaryOp::Add);
  const auto item = [&](const ExprRef &of, const ExprRef &index) {
    return make(Expr::SeqAt, Type::scalar(Elem::Token), e.loc, {of, index}, Bounds());
  };
  const ExprRef same =
                    make(Expr::Binary, Type::scalar(Elem::Bool), e.loc, {item(fed, i), item(tokens, at)}, BinaryOp::Eq),
                run = number(Expr::Over, {intConst(0, e.loc), high, same},
                             Through{Function::PrefixWhile, place, fed->type.capacity}, {0, fed->type.capacity});
  return number(Expr::Binary, {length, run}, BinaryOp::Add);
}

void Statements::checkCommand(const ast::Stmt &stmt, std::vector<Stmt> &into, Scope &scope) {
  const std::string &text = stmt.target.text;
  llvm::SmallVector<llvm::StringRef, 4> parts;
  llvm::StringRef(text).split(parts, '.');
  if (scope.kind == Scope::Policy) {
    diags.report(Diag::EffectNotAllowed, stmt.target.loc, fmt::format("`{}`", text), "a policy");
    return;
  }
  Stmt s;
  s.loc = stmt.target.loc;
  if (parts.size() == 3 && parts[0] == "kv" && parts[2] == "keep") {
    if (!ctx.pool(parts[1].str())) {
      // A missing pool is reported once, at the model.
      if (!ctx.isModel(parts[1].str()) && ctx.firstUse(parts[1].str()))
        ctx.reportUnknownPool(stmt.target.loc, parts[1].str());
      return;
    }
    if (!ctx.needsSlot(fmt::format("`{}`", text), stmt.target.loc, scope) || !oneValue(stmt))
      return;
    s.kind = Stmt::Keep;
    s.name = parts[1].str();
    const ast::Expr &kept = *stmt.values[0];
    s.values.push_back(kept.kind == ast::Expr::Call && kept.text == "matching"
                           ? checkMatching(s.name, kept, scope)
                           : with(scope).expect(kept, Elem::I32, fmt::format("`{}`", text)));
    for (const auto &[name, arg] : stmt.named) {
      if (name.text != "path" || s.values.size() > 1) {
        diags.report(Diag::UnknownArgument, name.loc, text, name.text);
        diags.suggest(name.text, {"path"});
        return;
      }
      const std::string what = fmt::format("`path` of `{}`", text);
      s.values.push_back(as(ctx, with(scope).value(*arg), Type::sequence(0, Elem::I32), what, "a sequence of i32"));
      if (const ExprRef &path = s.values.back(); path && path->type.capacity >= Unbounded) {
        diags.report(Diag::UnboundedSequence, path->loc, what);
        return;
      }
    }
    scope.locally->changes.push_back("kv " + s.name);
    if (llvm::all_of(s.values, [](const ExprRef &v) { return v != nullptr; }))
      into.push_back(std::move(s));
    return;
  }
  if (!stmt.named.empty()) {
    const ast::Name &name = stmt.named[0].first;
    diags.report(Diag::UnknownArgument, name.loc, text, name.text);
    return;
  }
  if (const CheckedPolicy *p = ctx.policy(parts[0].str()); p && parts.size() == 2 && parts[1] == "observe") {
    if (stmt.values.size() != p->observeArgs.size()) {
      diags.report(Diag::ArgumentCount, stmt.target.loc, text, plural(p->observeArgs.size(), "value"),
                   stmt.values.size());
      return;
    }
    s.kind = Stmt::Observe;
    s.name = p->name;
    bool failed = false;
    for (size_t i = 0; i < stmt.values.size(); ++i) {
      s.values.push_back(
          with(scope).expect(*stmt.values[i], Elem::I32, fmt::format("`{}` of `{}`", p->observeArgs[i], text)));
      failed |= !s.values.back();
    }
    if (!failed)
      into.push_back(std::move(s));
    scope.locally->changes.push_back("policy " + p->name);
    return;
  }
  const std::string head = parts[0].str();
  if (!ctx.firstUse(head == "kv" || ctx.policy(head) ? text : head))
    return;
  std::vector<std::string> commands;
  for (const CheckedPool &p : ctx.out.pools)
    commands.push_back("kv." + p.name + ".keep");
  for (const CheckedPolicy &p : ctx.out.policies)
    commands.push_back(p.name + ".observe");
  ctx.reportUnknown(Diag::UnknownName, stmt.target.loc, text, commands);
}

void Statements::checkGoto(const ast::Expr &e, ExprRef guard, CheckedStage &stage, Scope &scope) {
  if (e.kind == ast::Expr::Path) {
    if (!ctx.state(e.text))
      ctx.reportUnknownState({e.text, e.loc}, [](const CheckedState &) { return true; });
    stage.go.push_back({guard, e.text, e.loc});
    return;
  }
  // The parser lets only names and conditionals through.
  ExprRef condition = with(scope).expect(*e.args[1], Elem::Bool, "the condition of `goto`");
  if (condition && guard)
    condition = make(Expr::Binary, Type::scalar(Elem::Bool), e.loc, {guard, condition}, BinaryOp::And);
  checkGoto(*e.args[0], condition, stage, scope);
  checkGoto(*e.args[2], guard, stage, scope);
}

} // namespace megalith::sema
