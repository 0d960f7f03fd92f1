//===- Blocks.cpp - `if`, `for`, `while`, and locals that change in them --===//
//
// A local that a block further inside changes is kept in a field of the request. What it, or a declared field, can be
// is followed through the stage (`Scope::flows`): `[]` is short, and `s: s + [x]` in a loop of at most n rounds makes
// it longer by n at most. A loop is looked at ahead for that, without its messages.
//===----------------------------------------------------------------------===//
#include "Statements.h"
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

Flows joined(const Flows &a, const Flows &b) {
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

std::string Statements::newVariable(const std::string &name, const Scope &scope) {
  const std::string base = scope.stage->name + "." + name;
  std::string fresh = base;
  const auto taken = [&] {
    return ctx.variables.count(fresh) || llvm::any_of(ctx.out.policies, [&](const CheckedPolicy &p) {
             return llvm::any_of(p.state, [&](const CheckedField &f) { return p.name + "." + f.name == fresh; });
           });
  };
  for (unsigned i = 1; taken(); ++i)
    fresh = fmt::format("{}_{}", base, i);
  return fresh;
}

/// Notes what a name can be from here on.
void Statements::flowsTo(const std::string &name, const Expr &value, Scope &scope) {
  const Flow flow{value.type, value.range};
  scope.flows[name] = flow;
  if (scope.assigned)
    (*scope.assigned)[name].push_back(flow);
}

/// A new value of a local that is kept in the field `name`.
void Statements::changeLocal(const std::string &name, const ast::Stmt &stmt, ExprRef v, std::vector<Stmt> &into,
                             Scope &scope) {
  Variable &variable = ctx.variables.at(name);
  if (v && variable.type.elem != Elem::None)
    v = as(ctx, v, variable.type, fmt::format("the value of `{}`", variable.name),
           elemName(variable.type.elem) + (variable.type.table ? "[, ]"
                                           : variable.type.seq ? "[]"
                                                               : ""));
  if (!v || !hasRoom(ctx, v->type, fmt::format("`{}`", variable.name), stmt.target.loc, v.get()))
    return;
  if (v->type.elem == Elem::None)
    v = adopt(v, variable.type);
  variable.type = variable.type.elem == Elem::None ? v->type : wider(variable.type, v->type);
  scope.locally->changes.push_back("." + name);
  flowsTo(name, *v, scope);
  into.push_back({.kind = Stmt::SetField, .name = name, .values = {v}, .loc = stmt.target.loc});
}

void Statements::declareVariables(CheckedStage &stage) {
  for (auto &[name, variable] : ctx.variables) {
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
    ctx.out.fields.push_back(std::move(f));
  }
}

void Statements::checkIf(const ast::Stmt &stmt, std::vector<Stmt> &into, Scope &scope) {
  if (scope.kind == Scope::Stage && !scope.noCalls && callsInside(stmt))
    return checkIfWithCalls(stmt, into, scope);
  ExprRef c = with(scope).expect(*stmt.values[0], Elem::Bool, "the condition of `if`");
  Stmt s;
  s.kind = Stmt::If;
  s.loc = stmt.loc;
  Flows ends[2];
  for (bool otherwise : {false, true}) {
    Scope inner = scope;
    ++inner.depth;
    if (c)
      refine(*c, !otherwise, inner);
    checkBlock(otherwise ? stmt.otherwise : stmt.body, otherwise ? s.otherwise : s.body, inner);
    ends[otherwise] = std::move(inner.flows);
  }
  scope.flows = joined(ends[0], ends[1]);
  if (!c)
    return;
  s.values.push_back(c);
  into.push_back(std::move(s));
}

Flows Statements::flowsAfter(const ast::Stmt &stmt, Scope inner) const {
  Diagnostics unheard(diags.sources());
  Context known(ctx, unheard);
  Statements ahead(known);
  Locals locals = *inner.locally;
  inner.locally = &locals;
  std::vector<Stmt> unused;
  if (stmt.kind == ast::Stmt::While)
    if (Scope test = inner; ExprRef c = Expressions(known, test).check(*stmt.values[0]))
      refine(*c, true, inner);
  ahead.checkBlock(stmt.body, unused, inner);
  return inner.flows;
}

/// Notes why a name that a loop changes can be more than it was in front of it.
void Statements::noteGrowth(const std::string &name, const Flow &first, const Flow &head, int64_t rounds,
                            const ast::Stmt &stmt) {
  // The last place that assigns it in the loop.
  const auto variable = ctx.variables.find(name);
  const std::string shown = variable == ctx.variables.end() ? name : variable->second.name;
  SourceLoc loc = stmt.loc;
  const auto find = [&](const auto &self, const std::vector<ast::Stmt> &body) -> void {
    for (const ast::Stmt &s : body) {
      if (s.kind == ast::Stmt::Assign && s.target.text == shown)
        loc = s.target.loc;
      self(self, s.body);
      self(self, s.otherwise);
    }
  };
  find(find, stmt.body);
  const std::string often = fmt::format("the loop around this has up to {}", plural(rounds, "round"));
  std::string text;
  if (head.type.isScalar())
    text = head.range == Range() ? fmt::format("nothing bounds `{}` here: {}; write `min(..., N)`", shown, often)
                                 : fmt::format("`{}` can be {} to {}: {}; `min(..., N)` bounds it", shown,
                                               head.range.lo, head.range.hi, often);
  else if (head.type.length() >= Unbounded)
    text = fmt::format("nothing bounds the length of `{0}` here: {1}; cut what is assigned, as in `(...)[:N]`", shown,
                       often);
  else if (const int64_t more = head.type.length() - first.type.length(); rounds > 1 && more % (rounds - 1) == 0)
    text = fmt::format("a round makes `{}` longer by up to {}, and {}; cut what is assigned, as in `(...)[:N]`", shown,
                       more / (rounds - 1), often);
  else
    text = fmt::format("`{}` becomes longer here, and {}; cut what is assigned, as in `(...)[:N]`", shown, often);
  ctx.growths[name] = {loc, text};
}

/// The least of what a round assigns to a name that is at least `flow`; where there is none, `otherwise`.
static Flow threshold(const Flow &flow, const std::vector<Flow> &assigned, const Flow &otherwise) {
  Flow out = otherwise;
  for (const Flow &f : assigned) {
    if (f.type.capacity >= flow.type.capacity)
      out.type.capacity = std::min(out.type.capacity, f.type.capacity);
    if (f.type.rows >= flow.type.rows)
      out.type.rows = std::min(out.type.rows, f.type.rows);
    if (f.range.hi >= flow.range.hi)
      out.range.hi = std::min(out.range.hi, f.range.hi);
    if (f.range.lo <= flow.range.lo)
      out.range.lo = std::max(out.range.lo, f.range.lo);
  }
  return out;
}

/// Sets what is known at the beginning of each round.
void Statements::enterLoop(const ast::Stmt &stmt, int64_t rounds, Scope &scope, Scope &inner) {
  std::set<std::string> names, changed;
  assignedIn(stmt.body, names);
  for (const std::string &name : names) {
    auto local = scope.locals.find(name);
    const auto *kept = local == scope.locals.end() ? nullptr : std::get_if<InField>(&local->second.binding);
    if (const std::string &key = kept ? kept->field : name; scope.flows.count(key))
      changed.insert(key);
  }
  Flows first = scope.flows;
  const auto noBound = [&](Flow &f) {
    f.range = {};
    if (!f.type.isScalar())
      f.type = f.type.withLength(Unbounded);
  };
  std::map<std::string, std::vector<Flow>> assigned;
  bool tooMany = false;
  const auto round = [&](const Flows &head) {
    if (--*ctx.roundsAhead < 0) // loops in loops of which each is looked at many times
      tooMany = true;
    if (tooMany)
      return head;
    inner.flows = head;
    inner.assigned = &assigned;
    assigned.clear();
    return flowsAfter(stmt, inner);
  };
  const auto get = [](const Flows &flows, const std::string &name, const Flow &otherwise) {
    auto it = flows.find(name);
    return it == flows.end() ? otherwise : it->second;
  };
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
  const Flows once = head;
  Flows limit = head; // after a round
  // Where a round does not keep to it, a name grows in each round as much as in the first one, or it is what the round
  // makes of it, or it grows as much as in that round.
  constexpr unsigned mostTries = 5;
  std::map<std::string, unsigned> tries;
  for (bool kept = rounds <= 1; !kept && !tooMany;) {
    const Flows again = round(head);
    kept = true;
    for (const std::string &name : changed) {
      Flow &h = head[name], &most = limit[name];
      const Flow after = get(again, name, h);
      if (within(after, most))
        continue;
      kept = false;
      const Flow &start = first[name];
      Flow step = get(end, name, start);
      const unsigned tried = tries[name]++;
      if (tried >= mostTries) {
        noBound(h);
        most = h;
      } else if (tried == 0 ? !within(after, moved(start, step, rounds)) : tried % 2 != 0) {
        most = h = either(h, after);
      } else {
        if (tried > 0) {
          step.type.capacity = start.type.capacity + std::max<int64_t>(0, after.type.capacity - h.type.capacity);
          step.type.rows = start.type.rows + std::max<int64_t>(0, after.type.rows - h.type.rows);
          step.range.hi = start.range.hi + std::max<int64_t>(0, after.range.hi - h.range.hi);
          step.range.lo = start.range.lo + std::min<int64_t>(0, after.range.lo - h.range.lo);
        }
        h = either(h, moved(start, step, rounds - 1));
        most = either(h, moved(start, step, rounds));
      }
    }
  }
  // A smaller bound is one that a round assigns, if it keeps to it: what is cut in an `if` stays short.
  if (!tries.empty() && !tooMany) {
    round(head);
    const std::map<std::string, std::vector<Flow>> bounds = assigned;
    Flows tight = once;
    for (size_t i = 0; i < tries.size() + 4 && !tooMany; ++i) {
      const Flows again = round(tight);
      bool kept = true;
      for (const std::string &name : changed) {
        const Flow after = get(again, name, tight[name]);
        if (within(after, tight[name]))
          continue;
        kept = false;
        const auto of = bounds.find(name);
        tight[name] =
            either(tight[name], threshold(after, of == bounds.end() ? std::vector<Flow>() : of->second, head[name]));
      }
      if (!kept)
        continue;
      for (const std::string &name : changed)
        if (within(tight[name], head[name]))
          head[name] = tight[name];
      break;
    }
  }
  if (tooMany)
    for (const std::string &name : changed)
      noBound(head[name]);
  for (const auto &[name, tried] : tries)
    if (!within(head[name], first[name]))
      noteGrowth(name, first[name], head[name], rounds, stmt);
  inner.flows = head;
  inner.assigned = scope.assigned;
}

/// A loop that ends in front of the round in which `until` holds: it goes on, and does nothing.
void Statements::checkUntil(const ast::Stmt &stmt, Stmt &loop, std::vector<Stmt> &into, Scope &inner) {
  const ast::Expr &e = *stmt.values[1];
  const Type boolean = Type::scalar(Elem::Bool);
  Scope test = inner;
  test.noCalls = test.noEffects = "`until`";
  const ExprRef c = with(test).expect(e, Elem::Bool, "`until`");
  if (!c)
    return;
  const std::string over = newVariable("over", inner);
  ctx.variables[over] = {boolean, stmt.loc, "until"};
  inner.locally->changes.push_back("." + over);
  const ExprRef is = make(Expr::FieldRead, boolean, e.loc, {}, Name{over});
  const auto set = [&](std::vector<Stmt> &where, const ExprRef &value) {
    where.push_back({.kind = Stmt::SetField, .name = over, .values = {value}, .loc = e.loc});
  };
  set(into, make(Expr::Const, boolean, e.loc, {}, Number()));
  set(loop.body, make(Expr::Binary, boolean, e.loc, {is, c}, BinaryOp::Or));
  refine(*c, false, inner);
  checkGuarded(stmt.body, make(Expr::Not, boolean, e.loc, {is}), loop.body, inner);
}

void Statements::checkLoop(const ast::Stmt &stmt, std::vector<Stmt> &into, Scope &scope) {
  constexpr unsigned mostLoops = limits::loops; // in each other
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
    inner.noCalls = isFor ? nullptr : "a `while`";
  int64_t most = 1;
  bool failed = false;
  if (isFor) {
    ExprRef low, high;
    failed = !with(scope).checkRange(*stmt.values[0], word, inner, low, high, most);
    const std::string &name = stmt.target.text;
    if (reservedWord(name)) {
      diags.report(Diag::ReservedName, stmt.target.loc, name, "a loop variable");
      return;
    }
    if (scope.locals.count(name) || ctx.declared.count(name)) {
      diags.report(Diag::DuplicateName, stmt.target.loc, name,
                   ctx.declared.count(name) ? ctx.declared[name] : "a local");
      return;
    }
    s.name = name;
    s.index = inner.binders.size();
    s.values = {low, high};
    const bool known = low && high;
    inner.binders.emplace_back(name,
                               known ? Range{low->range.lo, std::max(low->range.lo, high->range.hi - 1)} : Range());
  } else {
    ExprRef n = with(scope).expect(*stmt.values[1], Elem::I32, "`bound` of `while`");
    const auto bound = n ? constant(ctx, *n, "`bound` of `while`") : std::nullopt;
    failed = !bound;
    if (bound && bound->intValue < 1) {
      diags.report(Diag::BadArgument, n->loc, "bound", "while", fmt::format("at least 1, is {}", bound->intValue));
      failed = true;
    }
    s.bound = most = bound ? std::max<int64_t>(1, bound->intValue) : 1;
    failed |= !with(scope).checkRounds(inner, most, word, stmt.values[1]->loc);
  }
  if (!ctx.looksAhead && scope.loops == 0)
    *ctx.roundsAhead = 4000; // of loops in each other, together
  enterLoop(stmt, std::max<int64_t>(1, most), scope, inner);
  if (!isFor) {
    Scope test = inner;
    test.noEffects = "the condition of `while`";
    s.values = {with(test).expect(*stmt.values[0], Elem::Bool, "the condition of `while`")};
    failed |= !s.values[0];
    if (s.values[0])
      refine(*s.values[0], true, inner);
  }
  if (isFor && stmt.values.size() > 1)
    checkUntil(stmt, s, into, inner);
  else
    checkBlock(stmt.body, s.body, inner);
  if (isFor)
    s.bound = std::max<int64_t>(1, most);
  // Perhaps there was no round. What was not known before may be anything.
  scope.flows = joined(scope.flows, inner.flows);
  if (!failed)
    into.push_back(std::move(s));
}

} // namespace megalith::sema
