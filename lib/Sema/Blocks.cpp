//===- Blocks.cpp - `if`, `for`, `while`, and locals that change in them --===//
//
// A local that a block further inside changes is kept in a field of the request. What it, or a declared field, can be
// is followed through the stage (`Scope::flows`): `[]` is short, and `s: s + [x]` in a loop of at most n rounds makes
// it longer by n at most. A loop is looked at ahead for that, without its messages.
//===----------------------------------------------------------------------===//
#include "Checker.h"
#include "llvm/ADT/STLExtras.h"

namespace megalith::sema {

using Flow = Scope::Flow;
using Flows = std::map<std::string, Flow>;

/// One of the two.
static Flow either(const Flow &a, const Flow &b) {
  if (a.type.elem == Elem::None || b.type.elem == Elem::None) {
    const Flow &typed = a.type.elem == Elem::None ? b : a, &other = a.type.elem == Elem::None ? a : b;
    return {typed.type.withLength(std::max(typed.type.length(), other.type.length())), typed.range};
  }
  const bool first = !a.type.isScalar() && a.type.length() == 0, second = !b.type.isScalar() && b.type.length() == 0;
  return {wider(a.type, b.type), first ? b.range : second ? a.range : hull(a.range, b.range)};
}

/// Behind one of two ways: what is known on both.
static Flows joined(const Flows &a, const Flows &b) {
  Flows out;
  for (const auto &[name, flow] : a)
    if (auto other = b.find(name); other != b.end())
      out[name] = either(flow, other->second);
  return out;
}

static bool within(const Flow &a, const Flow &b) {
  return a.type.capacity <= b.type.capacity && a.type.rows <= b.type.rows && a.range.lo >= b.range.lo &&
         a.range.hi <= b.range.hi;
}

/// `from`, moved as often as it moves to `to` in one round.
static Flow moved(const Flow &from, const Flow &to, int64_t rounds) {
  Flow out = from;
  const auto longer = [&](int64_t a, int64_t b) {
    return a >= Unbounded || b >= Unbounded ? Unbounded : std::min(Unbounded, a + std::max<int64_t>(0, b - a) * rounds);
  };
  out.type.capacity = longer(from.type.capacity, to.type.capacity);
  out.type.rows = longer(from.type.rows, to.type.rows);
  out.range.lo += std::min<int64_t>(0, to.range.lo - from.range.lo) * rounds;
  out.range.hi += std::max<int64_t>(0, to.range.hi - from.range.hi) * rounds;
  if (out.range.lo < INT32_MIN || out.range.hi > INT32_MAX)
    out.range = {};
  return out;
}

static void assignedIn(const std::vector<ast::Stmt> &body, std::set<std::string> &names) {
  for (const ast::Stmt &s : body) {
    if (s.kind == ast::Stmt::Assign)
      names.insert(s.target.text);
    assignedIn(s.body, names);
    assignedIn(s.otherwise, names);
  }
}

std::string Checker::newVariable(const std::string &name, const Scope &scope) {
  const std::string base = scope.stage->name + "." + name;
  std::string fresh = base;
  const auto taken = [&] {
    return variables.count(fresh) || llvm::any_of(out.policies, [&](const CheckedPolicy &p) {
             return llvm::any_of(p.state, [&](const CheckedField &f) { return p.name + "." + f.name == fresh; });
           });
  };
  for (unsigned i = 1; taken(); ++i)
    fresh = fmt::format("{}_{}", base, i);
  return fresh;
}

/// A new value of a local that is kept in the field `name`.
void Checker::changeLocal(const std::string &name, const ast::Stmt &stmt, ExprRef v, std::vector<Stmt> &into,
                          Scope &scope) {
  Variable &variable = variables.at(name);
  if (v && variable.type.elem != Elem::None)
    v = as(v, variable.type, fmt::format("the value of `{}`", variable.name),
           elemName(variable.type.elem) + (variable.type.table ? "[, ]"
                                           : variable.type.seq ? "[]"
                                                               : ""));
  if (!v || !hasRoom(v->type, fmt::format("`{}`", variable.name), stmt.target.loc))
    return;
  if (v->type.elem == Elem::None)
    v = adopt(v, variable.type);
  variable.type = variable.type.elem == Elem::None ? v->type : wider(variable.type, v->type);
  scope.locally->changes.push_back("." + name);
  scope.flows[name] = {v->type, v->range};
  Stmt s;
  s.kind = Stmt::SetField;
  s.name = name;
  s.values.push_back(v);
  s.loc = stmt.target.loc;
  into.push_back(std::move(s));
}

void Checker::declareVariables(CheckedStage &stage) {
  for (auto &[name, variable] : variables) {
    if (name.rfind(stage.name + ".", 0) != 0)
      continue;
    CheckedField f;
    f.name = name;
    f.type = variable.type;
    if (f.type.elem == Elem::None)
      f.type.elem = Elem::Token; // it is `[]` for ever
    f.init.elem = f.type.elem;
    f.inferred = f.local = true;
    f.loc = variable.loc;
    out.fields.push_back(std::move(f));
  }
}

void Checker::checkIf(const ast::Stmt &stmt, std::vector<Stmt> &into, Scope &scope) {
  ExprRef c = expect(*stmt.values[0], Elem::Bool, "the condition of `if`", scope);
  Stmt s;
  s.kind = Stmt::If;
  s.loc = stmt.loc;
  Flows ends[2];
  for (bool otherwise : {false, true}) {
    Scope inner = scope;
    ++inner.depth;
    if (!inner.noCalls)
      inner.noCalls = "an `if`";
    checkBlock(otherwise ? stmt.otherwise : stmt.body, otherwise ? s.otherwise : s.body, inner);
    ends[otherwise] = std::move(inner.flows);
  }
  scope.flows = joined(ends[0], ends[1]);
  if (!c)
    return;
  s.values.push_back(c);
  into.push_back(std::move(s));
}

Flows Checker::flowsBehind(const ast::Stmt &stmt, Scope inner) const {
  Diagnostics unheard(diags.sources());
  Checker ahead(*this, unheard);
  Locals locals = *inner.locally;
  inner.locally = &locals;
  std::vector<Stmt> unused;
  ahead.checkBlock(stmt.body, unused, inner);
  return inner.flows;
}

/// Sets what is known at the beginning of each round.
void Checker::enterLoop(const ast::Stmt &stmt, int64_t rounds, Scope &scope, Scope &inner) {
  std::set<std::string> names, changed;
  assignedIn(stmt.body, names);
  for (const std::string &name : names) {
    auto local = scope.locals.find(name);
    const std::string &key =
        local != scope.locals.end() && !local->second.variable.empty() ? local->second.variable : name;
    if (scope.flows.count(key))
      changed.insert(key);
  }
  const auto round = [&](const Flows &head) {
    inner.flows = head;
    return flowsBehind(stmt, inner);
  };
  const auto get = [](const Flows &flows, const std::string &name, const Flow &otherwise) {
    auto it = flows.find(name);
    return it == flows.end() ? otherwise : it->second;
  };
  Flows first = scope.flows;
  Flows end = round(first);
  // What was `[]` has the type of what a round makes of it.
  for (const std::string &name : changed)
    if (Flow &f = first[name]; f.type.elem == Elem::None)
      f = {get(end, name, f).type.withLength(0), get(end, name, f).range};
  end = round(first);
  // Does it stay like that, or does it grow?
  Flows head = first;
  for (const std::string &name : changed)
    head[name] = rounds > 1 ? either(first[name], get(end, name, first[name])) : first[name];
  Flows again = round(head);
  std::set<std::string> growing;
  Flows limit = head;
  for (const std::string &name : changed) {
    const Flow behind = get(again, name, head[name]);
    if (within(behind, head[name]) || rounds <= 1)
      continue;
    growing.insert(name);
    const Flow &start = first[name];
    head[name] = moved(start, get(end, name, start), rounds - 1);
    limit[name] = moved(start, get(end, name, start), rounds);
  }
  // What a round at the end does not keep to has no bound.
  for (size_t tries = 0; !growing.empty() && tries < changed.size() + 1; ++tries) {
    again = round(head);
    bool kept = true;
    for (const std::string &name : changed) {
      Flow &h = head[name];
      if (within(get(again, name, h), limit[name]))
        continue;
      kept = false;
      h.range = {};
      if (get(again, name, h).type.length() > limit[name].type.length() || tries > 0)
        h.type = h.type.isScalar() ? h.type : h.type.withLength(Unbounded);
      limit[name] = h;
    }
    if (kept)
      break;
  }
  inner.flows = head;
}

void Checker::checkLoop(const ast::Stmt &stmt, std::vector<Stmt> &into, Scope &scope) {
  constexpr unsigned mostLoops = 4; // in each other
  const bool isFor = stmt.kind == ast::Stmt::For;
  const char *word = isFor ? "`for`" : "`while`";
  if (scope.kind == Scope::Policy) {
    diags.report(Diag::EffectNotAllowed, stmt.loc, word, "a policy");
    return;
  }
  if (scope.loops >= mostLoops) {
    diags.report(Diag::NestingTooDeep, stmt.loc, "a loop", mostLoops);
    return;
  }
  Stmt s;
  s.kind = isFor ? Stmt::For : Stmt::While;
  s.loc = stmt.loc;
  Scope inner = scope;
  ++inner.depth;
  ++inner.loops;
  if (!inner.noCalls)
    inner.noCalls = !isFor ? "a `while`" : scope.loops > 0 ? "a `for` in another loop" : nullptr;
  int64_t most = 1;
  bool failed = false;
  if (isFor) {
    ExprRef low, high;
    failed = !checkRange(*stmt.values[0], word, scope, inner, low, high, most);
    const std::string &name = stmt.target.text;
    if (scope.locals.count(name) || declared.count(name)) {
      diags.report(Diag::DuplicateName, stmt.target.loc, name, declared.count(name) ? declared[name] : "a local");
      return;
    }
    s.name = name;
    s.index = inner.binders.size();
    s.values = {low, high};
    const bool known = low && high;
    inner.binders.emplace_back(name,
                               known ? Range{low->range.lo, std::max(low->range.lo, high->range.hi - 1)} : Range());
  } else {
    ExprRef n = expect(*stmt.values[1], Elem::I32, "`bound` of `while`", scope);
    const auto bound = n ? constant(*n, "`bound` of `while`") : std::nullopt;
    failed = !bound;
    if (bound && bound->intValue < 1) {
      diags.report(Diag::BadArgument, n->loc, "bound", "while", fmt::format("at least 1, is {}", bound->intValue));
      failed = true;
    }
    s.bound = most = bound ? std::max<int64_t>(1, bound->intValue) : 1;
    failed |= !checkRounds(inner, most, word, stmt.values[1]->loc);
  }
  enterLoop(stmt, std::max<int64_t>(1, most), scope, inner);
  if (!isFor) {
    Scope test = inner;
    test.noEffects = "the condition of `while`";
    s.values = {expect(*stmt.values[0], Elem::Bool, "the condition of `while`", test)};
    failed |= !s.values[0];
  }
  checkBlock(stmt.body, s.body, inner);
  if (isFor)
    s.bound = std::max<int64_t>(1, most);
  // Perhaps there was no round. What was not known before may be anything.
  scope.flows = joined(scope.flows, inner.flows);
  if (!failed)
    into.push_back(std::move(s));
}

} // namespace megalith::sema
