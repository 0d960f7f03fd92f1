//===- Stages.cpp - statements, inferred fields, goto ---------------------===//
#include "Checker.h"
#include "megalith/Syntax/Parse.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringRef.h"

namespace megalith::sema {

namespace {
/// Collects what a stage reads before it assigns it, what it assigns, and whether
/// it makes progress. Works on names alone: types come later.
struct UseWalk {
  std::map<std::string, SourceLoc> &reads;
  std::set<std::string> &assigned;
  bool &appends, &commits;
  std::map<std::string, SourceLoc> &drafts;
  std::set<std::string> &keeps;
  const std::function<bool(const std::string &)> &isModel;

  /// Whether what is fed begins where the KV of the model ends, wherever that is.
  static bool readsPool(const ast::Expr &e, const std::string &model) {
    return (e.kind == ast::Expr::Path && (e.text == "kv." + model + ".len" || e.text == "kv." + model + ".lag")) ||
           llvm::any_of(e.args, [&](const ast::ExprPtr &arg) { return arg && readsPool(*arg, model); });
  }

  void expr(const ast::Expr &e, std::set<std::string> known) {
    if (e.kind == ast::Expr::Path && e.text.find('.') == std::string::npos && !known.count(e.text))
      reads.emplace(e.text, e.loc);
    bool model = e.kind == ast::Expr::Call && isModel(e.text);
    if (model) {
      bool draft = false;
      for (const auto &[name, arg] : e.named)
        draft |= name.text == "kv" && arg->text == "draft";
      commits |= !draft;
      if (!draft)
        keeps.insert(e.text);
      else if (e.args.empty() || !readsPool(*e.args[0], e.text))
        drafts.emplace(e.text, e.loc);
    }
    appends |= e.kind == ast::Expr::Call && e.text == "append";
    if (e.binder)
      known.insert(e.binder->text);
    for (const ast::ExprPtr &arg : e.args)
      if (arg)
        expr(*arg, known);
    for (const auto &[name, arg] : e.named)
      // `keep=none` and `kv=draft` are words, not names.
      if (!model || (name.text != "keep" && name.text != "kv"))
        expr(*arg, known);
  }

  void block(const std::vector<ast::Stmt> &body, std::set<std::string> known) {
    for (const ast::Stmt &s : body) {
      for (const ast::ExprPtr &v : s.values)
        expr(*v, known);
      for (const auto &[name, v] : s.named)
        expr(*v, known);
      if (s.kind == ast::Stmt::Assign && s.target.text.find('.') == std::string::npos) {
        assigned.insert(s.target.text);
        known.insert(s.target.text);
      }
      if (llvm::StringRef pool = s.target.text; pool.consume_front("kv.") && pool.consume_back(".keep"))
        keeps.insert(pool.str());
      std::set<std::string> inside = known;
      if (s.kind == ast::Stmt::For)
        inside.insert(s.target.text);
      block(s.body, std::move(inside));
      block(s.otherwise, known);
    }
    last = known;
  }

  /// State names stand where values of a conditional would.
  void go(const ast::Expr &e, const std::set<std::string> &known) {
    if (e.kind != ast::Expr::Conditional)
      return;
    go(*e.args[0], known);
    expr(*e.args[1], known);
    if (e.args.size() > 2 && e.args[2])
      go(*e.args[2], known);
  }

  std::set<std::string> last; ///< names assigned at the end of the last block
};
} // namespace

void Checker::inferFields() {
  std::function<bool(const std::string &)> model = [&](const std::string &n) { return isModel(n); };
  for (const ast::StageDecl &stage : in.stages) {
    Uses &u = uses[&stage];
    UseWalk walk{u.freeReads, u.assigned, u.appends, u.commits, u.drafts, u.keeps, model, {}};
    for (const ast::ExprPtr &key : stage.order)
      walk.expr(*key, {});
    walk.block(stage.body, {});
    if (stage.go)
      walk.go(*stage.go, std::set<std::string>(walk.last));
  }
  for (const ast::StageDecl &reader : in.stages)
    for (const auto &[name, loc] : uses[&reader].freeReads) {
      if (declared.count(name) || inferred.count(name) || bad.count(name) || reservedWord(name))
        continue;
      Inferred candidate;
      bool elsewhere = false;
      for (const ast::StageDecl &writer : in.stages)
        if (uses[&writer].assigned.count(name)) {
          candidate.setBy.push_back(&writer);
          elsewhere |= &writer != &reader;
        }
      if (elsewhere)
        inferred.emplace(name, std::move(candidate));
    }
}

void Checker::checkStages() {
  out.stages.resize(in.stages.size());
  // A stage is checked when the types of the inferred fields it reads are known.
  std::vector<size_t> pending;
  for (size_t i = 0; i < in.stages.size(); ++i)
    pending.push_back(i);
  while (!pending.empty()) {
    auto waitsFor = [&](size_t i) -> std::string {
      for (const auto &[name, loc] : uses[&in.stages[i]].freeReads)
        if (auto it = inferred.find(name); it != inferred.end() && !it->second.typed)
          return name;
      return "";
    };
    auto ready = llvm::find_if(pending, [&](size_t i) { return waitsFor(i).empty(); });
    if (ready == pending.end()) {
      // Each waits for another: name the first one and go on without it.
      std::string name = waitsFor(pending.front());
      diags.report(Diag::CannotInfer, uses[&in.stages[pending.front()]].freeReads[name], name);
      inferred[name].typed = true;
      bad.insert(name);
      continue;
    }
    size_t i = *ready;
    pending.erase(ready);
    checkStage(in.stages[i], out.stages[i]);
  }
  for (CheckedStage &stage : out.stages)
    giveTypes(stage.body);
}

/// Where `[]` was assigned to a field before its type was known.
void Checker::giveTypes(std::vector<Stmt> &body) {
  for (Stmt &s : body) {
    if (const CheckedField *f = s.kind == Stmt::SetField ? field(s.name) : nullptr)
      s.values[0] = adopt(s.values[0], f->type);
    giveTypes(s.body);
    giveTypes(s.otherwise);
  }
}

/// Finds the assignments of locals that a block further inside changes: they are kept in a field. `seen`: where each
/// name was assigned last, and how deep.
void Checker::findChanging(const std::vector<ast::Stmt> &body,
                           std::map<std::string, std::pair<const ast::Stmt *, unsigned>> seen, unsigned depth) {
  for (const ast::Stmt &s : body) {
    if (s.kind == ast::Stmt::Assign && !declared.count(s.target.text) && !inferred.count(s.target.text)) {
      auto it = seen.find(s.target.text);
      if (it != seen.end() && it->second.second < depth)
        changing.insert(it->second.first);
      else
        seen[s.target.text] = {&s, depth};
    }
    findChanging(s.body, seen, depth + 1);
    findChanging(s.otherwise, seen, depth + 1);
  }
}

void Checker::checkStage(const ast::StageDecl &decl, CheckedStage &stage) {
  stage.name = decl.name.text;
  stage.loc = decl.name.loc;
  for (const ast::Name &on : decl.on)
    stage.on.push_back(on.text);
  Locals locals;
  Scope scope;
  scope.kind = Scope::Stage;
  scope.stage = &stage;
  scope.locally = &locals;
  here = &locals;
  checkAdmission(decl, stage, scope);
  findChanging(decl.body, {}, 0);
  checkBlock(decl.body, stage.body, scope);
  stage.goLoc = decl.go->loc;
  scope.noCalls = scope.noEffects = "`goto`";
  checkGoto(*decl.go, nullptr, stage, scope);
  reportUnused(locals, nullptr);
  declareVariables(stage);
  here = nullptr;
}

/// Of a stage, or of `policy`: a name that nothing reads was meant to be one that keeps its value.
void Checker::reportUnused(const Locals &locals, const CheckedPolicy *policy) {
  std::vector<std::string> names;
  for (const CheckedField &f : policy ? policy->state : out.fields)
    if (!f.local)
      names.push_back(f.name);
  for (const Locals::Entry &local : locals.all)
    if (!local.used && !local.wrong) {
      diags.report(Diag::UnusedLocal, local.name.loc, local.name.text, policy ? "state of the policy" : "field");
      if (!noteGuess(local.name.text, Guess::Statement))
        diags.suggest(local.name.text, names);
      if (local.appends)
        diags.note("if the number of appended tokens is not needed, write `- append(...)`");
    }
}

void Checker::checkBlock(const std::vector<ast::Stmt> &body, std::vector<Stmt> &into, Scope &scope) {
  for (const ast::Stmt &s : body)
    checkStatement(s, into, scope);
}

bool Checker::oneValue(const ast::Stmt &stmt) {
  if (stmt.values.size() == 1)
    return true;
  diags.report(Diag::ArgumentCount, stmt.loc, stmt.target.text, "1 value", stmt.values.size());
  return false;
}

void Checker::checkStatement(const ast::Stmt &stmt, std::vector<Stmt> &into, Scope &scope) {
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
    ExprRef v = check(*stmt.values[0], scope);
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
    ExprRef v = expect(*stmt.values[0], Elem::I32, fmt::format("what `{}` counts", stmt.target.text), scope);
    if (!v)
      return;
    auto same = [&](const auto &m) { return m.first == stmt.target.text; };
    if (llvm::none_of(out.metrics, same))
      out.metrics.emplace_back(stmt.target.text, stmt.target.loc);
    add(Stmt::Count, stmt.target.text, v);
    return;
  }
  case ast::Stmt::Trace: {
    // The kernel keeps a tick's values with the slot.
    if (!inStage("`trace`") || !needsSlot("`trace`", stmt.loc, scope) || !oneValue(stmt))
      return;
    ExprRef v = value(*stmt.values[0], scope);
    if (!v)
      return;
    if (!v->type.isScalar()) {
      diags.report(Diag::TypeMismatch, v->loc, "what is traced", "a number, bool or token", v->type.str());
      noteCast(v->type, v->type.elem, *stmt.values[0]);
      return;
    }
    const ast::Expr &e = *stmt.values[0];
    std::string name = ast::written(e);
    auto known = llvm::find_if(out.gauges, [&](const CheckedGauge &g) { return g.name == name; });
    if (known == out.gauges.end()) {
      out.gauges.push_back({name, v->type.elem, stmt.loc});
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

void Checker::checkCommand(const ast::Stmt &stmt, std::vector<Stmt> &into, Scope &scope) {
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
    if (!isPool(parts[1].str())) {
      // A missing pool is reported once, at the model.
      if (!isModel(parts[1].str()) && firstUse(parts[1].str()))
        reportUnknownPool(stmt.target.loc, parts[1].str());
      return;
    }
    if (!needsSlot(fmt::format("`{}`", text), stmt.target.loc, scope) || !oneValue(stmt))
      return;
    s.kind = Stmt::Keep;
    s.name = parts[1].str();
    s.values.push_back(expect(*stmt.values[0], Elem::I32, fmt::format("`{}`", text), scope));
    for (const auto &[name, arg] : stmt.named) {
      if (name.text != "path" || s.values.size() > 1) {
        diags.report(Diag::UnknownArgument, name.loc, text, name.text);
        diags.suggest(name.text, {"path"});
        return;
      }
      const std::string what = fmt::format("`path` of `{}`", text);
      s.values.push_back(as(value(*arg, scope), Type::sequence(0, Elem::I32), what, "a sequence of i32"));
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
  if (const CheckedPolicy *p = policy(parts[0].str()); p && parts.size() == 2 && parts[1] == "observe") {
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
          expect(*stmt.values[i], Elem::I32, fmt::format("`{}` of `{}`", p->observeArgs[i], text), scope));
      failed |= !s.values.back();
    }
    if (!failed)
      into.push_back(std::move(s));
    scope.locally->changes.push_back("policy " + p->name);
    return;
  }
  const std::string head = parts[0].str();
  if (!firstUse(head == "kv" || policy(head) ? text : head))
    return;
  std::vector<std::string> commands;
  for (const CheckedPool &p : out.pools)
    commands.push_back("kv." + p.name + ".keep");
  for (const CheckedPolicy &p : out.policies)
    commands.push_back(p.name + ".observe");
  reportUnknown(Diag::UnknownName, stmt.target.loc, text, commands);
}

void Checker::checkGoto(const ast::Expr &e, ExprRef guard, CheckedStage &stage, Scope &scope) {
  if (e.kind == ast::Expr::Path) {
    if (!state(e.text))
      reportUnknownState({e.text, e.loc}, [](const CheckedState &) { return true; });
    stage.go.push_back({guard, e.text, e.loc});
    return;
  }
  // The parser lets only names and conditionals through.
  ExprRef condition = expect(*e.args[1], Elem::Bool, "the condition of `goto`", scope);
  if (condition && guard)
    condition = make(Expr::Binary, Type::scalar(Elem::Bool), e.loc, {guard, condition}, BinaryOp::And);
  checkGoto(*e.args[0], condition, stage, scope);
  checkGoto(*e.args[2], guard, stage, scope);
}

} // namespace megalith::sema
