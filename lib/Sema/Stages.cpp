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

static bool readsField(const Expr &e, const std::string &name) {
  return (e.kind == Expr::FieldRead && e.name() == name) ||
         llvm::any_of(e.args, [&](const ExprRef &arg) { return arg && readsField(*arg, name); });
}

void Checker::assignField(CheckedField &f, const ast::Stmt &stmt, ExprRef v, std::vector<Stmt> &into, Scope &scope) {
  SourceLoc loc = stmt.values[0]->loc;
  v = convert(adopt(v, f.type), f.type.elem);
  if (!v->type.sameShape(f.type) || v->type.elem != f.type.elem) {
    diags.report(Diag::TypeMismatch, loc, fmt::format("the value of `{}`", f.name), f.type.str(), v->type.str());
    noteNoTokens(*v, f.type.elem);
    if (v->type.seq == f.type.seq && v->type.table == f.type.table)
      noteCast(v->type, f.type.elem, *stmt.values[0]);
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
      diags.note(fmt::format("`{0}` may be full here: behind `- {0}: '[]'` in front of the loop, in the same stage and "
                             "behind the last call, its length is followed",
                             f.name));
    else
      noteBound(*v);
    diags.note(f.loc, f.inferred ? "its size was taken from an assignment in another stage; "
                                   "declare it below `request:`"
                                 : "declared here");
    if (looksAhead)
      flowsTo(f.name, *v, scope);
    else
      scope.flows.erase(f.name);
    return;
  }
  flowsTo(f.name, *v, scope);
  into.push_back({.kind = Stmt::SetField, .name = f.name, .values = {v}, .loc = stmt.target.loc});
}

void Checker::assignInferred(Inferred &name, const ast::Stmt &stmt, ExprRef v, std::vector<Stmt> &into, Scope &scope) {
  const std::string &text = stmt.target.text;
  CheckedField *f = field(text);
  if (v && v->type.elem == Elem::None && !f) { // its type is that of another value
    scope.flows[text] = {v->type, {}};
    into.push_back({.kind = Stmt::SetField, .name = text, .values = {v}, .loc = stmt.target.loc});
    return;
  }
  name.typed = true;
  if (v && !hasRoom(v->type, fmt::format("`{}`, which another stage reads,", text), stmt.target.loc, v.get()))
    v = nullptr;
  if (!v) {
    if (!f)
      bad.insert(text);
    return;
  }
  if (!f) {
    CheckedField fresh;
    fresh.name = text;
    fresh.type = v->type;
    fresh.init.elem = v->type.elem;
    fresh.inferred = true;
    fresh.loc = stmt.target.loc;
    out.fields.push_back(fresh);
    f = &out.fields.back();
  }
  assignField(*f, stmt, v, into, scope);
}

/// Whether nothing but constants is in it.
static bool isConstantList(const Expr &e) {
  if (e.kind != Expr::SeqMake && e.kind != Expr::SeqConst && e.kind != Expr::SeqConcat)
    return false;
  return llvm::all_of(e.args, [](const ExprRef &item) { return item->kind == Expr::Const || isConstantList(*item); });
}

/// What a bare name stands for, where it stands for logits.
static ExprRef lazyValueOf(const ast::Expr &e, const Scope &scope) {
  const auto it = e.kind == ast::Expr::Path ? scope.locals.find(e.text) : scope.locals.end();
  return it == scope.locals.end() ? nullptr : it->second.lazy;
}

bool Checker::namesState(const ast::Expr &e) const {
  if (e.kind == ast::Expr::Conditional)
    return namesState(*e.args[0]) || (e.args.size() > 2 && e.args[2] && namesState(*e.args[2]));
  return e.kind == ast::Expr::Path && llvm::any_of(out.states, [&](const CheckedState &s) { return s.name == e.text; });
}

void Checker::checkAssign(const ast::Stmt &stmt, std::vector<Stmt> &into, Scope &scope) {
  const std::string &name = stmt.target.text;
  SourceLoc loc = stmt.target.loc;
  if (!oneValue(stmt))
    return;
  if (scope.kind == Scope::Policy) {
    for (const CheckedField &f : scope.policy->state) {
      if (f.name != name)
        continue;
      ExprRef v = expect(*stmt.values[0], f.type.elem, fmt::format("the value of `{}`", name), scope);
      if (!v)
        return;
      into.push_back({.kind = Stmt::SetPolicyState, .name = name, .values = {v}, .loc = loc});
      return;
    }
    if (llvm::is_contained(scope.policy->observeArgs, name)) {
      diags.report(Diag::CannotAssign, loc, name, "an argument of `observe`");
      return;
    }
  }
  if (llvm::any_of(scope.binders, [&](const auto &binder) { return binder.first == name; })) {
    diags.report(Diag::CannotAssign, loc, name, "the variable of a `for` around it");
    return;
  }
  auto it = declared.find(name);
  bool isField = it != declared.end() && it->second == "a field";
  if (name == "goto" && it == declared.end() && namesState(*stmt.values[0])) {
    diags.report(Diag::EffectNotAllowed, loc, "`goto`", "a list of statements");
    diags.note("a stage has one `goto:`, below its `do:`, with conditions: `goto: A if c else B`");
    return;
  }
  if (bad.count(name) && !isField && !inferred.count(name)) { // its declaration had an error
    check(*stmt.values[0], scope);
    return;
  }
  if (it != declared.end() && (!isField || scope.kind == Scope::Policy)) {
    diags.report(Diag::CannotAssign, loc, name, it->second);
    return;
  }
  bool reserved = false, predefined = false;
#define WORD(Word) reserved |= name == Word;
#define FUNCTION(Id, Name, Params, Operation, Result, Text) reserved |= name == Name;
#define PREDEFINED(Id, Name, Type, Values, Operation, Text) predefined |= name == Name;
#include "megalith/Sema/Builtins.def"
  if (reserved || predefined) {
    if (predefined)
      diags.report(Diag::CannotAssign, loc, name, "a predefined name");
    else
      diags.report(Diag::ReservedName, loc, name, "a local");
    unknown.insert(name); // its uses stay silent
    check(*stmt.values[0], scope);
    return;
  }

  if (CheckedField *f = isField ? field(name) : nullptr; f && f->type.elem == Elem::Kept)
    return assignKept(*f, stmt, into, scope);
  ExprRef v = check(*stmt.values[0], scope);
  if (v && v->type.elem == Elem::Kept)
    v = value(*stmt.values[0], scope); // an error
  auto inferredField = scope.kind == Scope::Stage ? inferred.find(name) : inferred.end();
  bool logits = v && v->type.elem == Elem::Logits;
  if (logits) {
    const bool none = v->kind == Expr::ModelCall && v->as<Call>().keepNone,
               stored = isField || inferredField != inferred.end();
    if (none)
      diags.report(Diag::KeepNoneReduced, v->loc);
    else if (stored)
      diags.report(Diag::LogitsUse, v->loc);
    else if (changing.count(&stmt))
      diags.report(Diag::LogitsUse, v->loc);
    if (none || stored || changing.count(&stmt))
      v = nullptr;
  }
  if (v && v->kind == Expr::TopParts && (isField || inferredField != inferred.end() || changing.count(&stmt)))
    v = value(*stmt.values[0], scope); // an error: it can only be named
  if (isField || inferredField != inferred.end())
    scope.locally->changes.push_back("." + name);
  if (isField) {
    CheckedField *f = field(name);
    if (v && f)
      assignField(*f, stmt, v, into, scope);
    return;
  }
  if (inferredField != inferred.end())
    return assignInferred(inferredField->second, stmt, v, into, scope);

  if (auto outer = scope.locals.find(name); outer != scope.locals.end() && outer->second.depth < scope.depth) {
    if (scope.kind == Scope::Policy)
      diags.report(Diag::LocalInIf, loc, name);
    else if (!outer->second.bad)
      changeLocal(outer->second.variable, stmt, v, into, scope);
    return;
  }
  Scope::Local local;
  local.index = scope.locally->all.size();
  local.depth = scope.depth;
  local.bad = !v;
  scope.locally->all.push_back({stmt.target, !v, v && v->kind == Expr::Append, false, v});
  const auto set = [&](const std::string &text, int index, const ExprRef &value) {
    into.push_back({.kind = Stmt::SetLocal, .name = text, .index = index, .values = {value}, .loc = loc});
  };
  if (v && v->type.elem == Elem::Logits) {
    // A name for rows, which reducers read. A call runs here, even where they stand below.
    local.type = v->type;
    local.lazy = v;
    if (v->kind == Expr::ModelCall && v != lazyValueOf(*stmt.values[0], scope))
      into.push_back({.kind = Stmt::Effect, .values = {v}, .loc = loc});
  } else if (v && changing.count(&stmt)) {
    local.variable = newVariable(name, scope);
    variables[local.variable] = {Type::sequence(0, Elem::None), loc, name};
    changeLocal(local.variable, stmt, v, into, scope);
    local.bad = !scope.flows.count(local.variable);
  } else if (v && v->kind == Expr::TopParts) {
    local.type = v->type;
    local.top = v;
    const ExprRef &of = v->args[0];
    const bool named = llvm::any_of(scope.locals, [&](const auto &other) {
      const ExprRef &rows = other.second.lazy;
      return rows && (rows == of || (rows->kind == Expr::LogitRows && rows->args[0] == of));
    });
    if (!named) // the call runs here
      into.push_back({.kind = Stmt::Effect, .values = {of}, .loc = loc});
  } else if (v && v->kind == Expr::TreeRows) {
    const ExprRef parents = make(Expr::TreeParents, Type::sequence(v->type.capacity, Elem::I32), v->loc, v->args, {},
                                 {-1, v->type.capacity - 1});
    local.parts = {v, parents};
    scope.locally->all.push_back({stmt.target, false, false, /*used=*/true});
    set(name + ".rows", local.index, v);
    set(name + ".parents", local.index + 1, parents);
  } else if (v) {
    local.type = v->type;
    local.range = v->range;
    local.pieces = v->pieces;
    if (isConstantList(*v))
      local.list = v;
    else if (const auto c = v->type.is(Elem::I32) ? evaluate(*v) : std::nullopt)
      local.constant = fromConstant(*c, v->loc, /*literal=*/false);
    set(name, local.index, v);
    // Constants that a condition or an index picks may be tokens, too: a second value, which lasts where it is read.
    const ExprRef tokens = !local.list && !local.constant && v->type.elem == Elem::I32 ? convert(v, Elem::Token) : v;
    if (scope.kind == Scope::Stage && tokens->type.elem == Elem::Token && v->type.elem == Elem::I32) {
      const int index = static_cast<int>(scope.locally->all.size());
      auto twin = make(Expr::LocalRead, tokens->type, loc, {}, Place{index, name});
      twin->pieces = tokens->pieces;
      scope.locally->all.push_back({stmt.target, false, false, /*used=*/true, tokens});
      set(name, index, tokens);
      local.constant = twin;
    }
  }
  scope.locals[name] = local;
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
