//===- Expr.cpp - names, operators, sequences -----------------------------===//
#include "Checker.h"
#include "llvm/ADT/StringRef.h"
#include <algorithm>
#include <cmath>

namespace megalith::sema {

std::shared_ptr<Expr> make(Expr::Kind kind, Type type, SourceLoc loc, std::vector<ExprRef> args) {
  auto e = std::make_shared<Expr>();
  e->kind = kind;
  e->type = type;
  e->loc = loc;
  e->args = std::move(args);
  return e;
}

ExprRef intConst(int64_t v, SourceLoc loc, bool literal) {
  auto e = make(Expr::Const, Type::scalar(Elem::I32), loc);
  e->intValue = v;
  e->range = Range::of(v);
  e->literal = literal;
  return e;
}

ExprRef fromConstant(const Constant &c, SourceLoc loc, bool literal) {
  auto e = make(Expr::Const, Type::scalar(c.elem), loc);
  e->intValue = c.intValue;
  e->floatValue = c.floatValue;
  e->literal = literal;
  if (c.elem == Elem::I32)
    e->range = Range::of(c.intValue);
  return e;
}

ExprRef Checker::value(const ast::Expr &e, Scope &scope) {
  ExprRef v = check(e, scope);
  if (v && v->type.elem == Elem::Logits) {
    if (v->kind == Expr::ModelCall && v->keepNone)
      diags.report(Diag::KeepNoneReduced, e.loc);
    else
      diags.report(Diag::LogitsUse, e.loc);
    return nullptr;
  }
  return v;
}

/// A written integer takes the other side's type; a constant is a token where one is needed.
ExprRef Checker::convert(ExprRef e, Elem elem) {
  if (!e || e->type.seq || e->type.elem == elem || e->type.elem != Elem::I32)
    return e;
  if (elem == Elem::Token)
    if (auto c = evaluate(*e); c && c->intValue >= 0)
      return fromConstant({Elem::Token, c->intValue, 0}, e->loc, e->literal);
  if (e->kind != Expr::Const)
    return e;
  if (elem == Elem::F32 && e->literal) {
    auto number = std::make_shared<Expr>(*e);
    number->type = Type::scalar(Elem::F32);
    number->floatValue = static_cast<float>(e->intValue);
    return number;
  }
  return e;
}

bool Checker::unify(ExprRef &a, ExprRef &b) {
  a = convert(a, b->type.elem);
  b = convert(b, a->type.elem);
  return a->type.seq == b->type.seq && a->type.elem == b->type.elem;
}

ExprRef Checker::expect(const ast::Expr &e, Elem elem, const std::string &what, Scope &scope) {
  ExprRef v = convert(value(e, scope), elem);
  if (v && !v->type.is(elem)) {
    diags.report(Diag::TypeMismatch, e.loc, what, elemName(elem), v->type.str());
    return nullptr;
  }
  return v;
}

ExprRef Checker::check(const ast::Expr &e, Scope &scope) {
  ExprRef v = checkKnown(e, scope);
  if (!v)
    markRead(e, scope);
  return v;
}

ExprRef Checker::checkKnown(const ast::Expr &e, Scope &scope) {
  switch (e.kind) {
  case ast::Expr::IntLiteral:
    if (e.intValue > INT32_MAX || e.intValue < INT32_MIN) {
      diags.report(Diag::IntRange, e.loc, e.intValue);
      return nullptr;
    }
    return intConst(e.intValue, e.loc, /*literal=*/true);
  case ast::Expr::FloatLiteral:
    if (!std::isfinite(static_cast<float>(e.floatValue))) {
      diags.report(Diag::FloatRange, e.loc, e.floatValue);
      return nullptr;
    }
    return fromConstant({Elem::F32, 0, static_cast<float>(e.floatValue)}, e.loc, true);
  case ast::Expr::BoolLiteral:
    return fromConstant({Elem::Bool, e.intValue, 0}, e.loc, false);
  case ast::Expr::StringLiteral:
    diags.report(Diag::Unsupported, e.loc, "a string in an expression", "a name or a number");
    return nullptr;
  case ast::Expr::Path:
    return checkPath(e, scope);
  case ast::Expr::Unary:
    return checkUnary(e, scope);
  case ast::Expr::Binary:
    return checkBinary(e, scope);
  case ast::Expr::Conditional:
    return checkConditional(e, scope);
  case ast::Expr::Index:
    return checkIndex(e, scope);
  case ast::Expr::Slice:
    return checkSlice(e, scope);
  case ast::Expr::Bounds: // of a second dimension, which has been refused
    return nullptr;
  case ast::Expr::List:
    return checkList(e, scope);
  case ast::Expr::Call:
    return checkCall(e, scope);
  case ast::Expr::Range:
    diags.report(Diag::Unsupported, e.loc, "a range outside `prefix_while` and `count`",
                 "`i in 0..n` as their first argument");
    return nullptr;
  }
  return nullptr;
}

std::vector<std::string> Checker::visibleNames(const Scope &scope) const {
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
  for (const CheckedField &f : out.fields)
    names.push_back(f.name);
  for (const CheckedInput &i : out.inputs)
    names.push_back(i.name);
#define PREDEFINED(Id, Name, Type, Text) names.push_back(Name);
#include "megalith/Sema/Builtins.def"
  return names;
}

bool Checker::needsSlot(const std::string &what, SourceLoc loc, const Scope &scope) {
  if (scope.kind == Scope::Policy) {
    diags.report(Diag::EffectNotAllowed, loc, what, "a policy");
    return false;
  }
  if (!scope.stage)
    return true;
  for (const std::string &on : scope.stage->on)
    if (const CheckedState *s = state(on); s && !s->slot) {
      if (slotless.insert(on).second)
        diags.report(Diag::NeedsSlot, loc, what, on);
      return false;
    }
  return true;
}

ExprRef Checker::checkPath(const ast::Expr &e, Scope &scope) {
  return e.text.find('.') == std::string::npos ? checkSimpleName(e, scope) : checkDotted(e, scope);
}

ExprRef Checker::checkSimpleName(const ast::Expr &e, Scope &scope) {
  const std::string &name = e.text;
  for (size_t i = scope.binders.size(); i-- > 0;)
    if (scope.binders[i].first == name) {
      auto v = make(Expr::BinderRead, Type::scalar(Elem::I32), e.loc);
      v->index = i;
      v->name = name;
      v->range = scope.binders[i].second;
      return v;
    }
  if (auto it = scope.locals.find(name); it != scope.locals.end()) {
    const Scope::Local &local = it->second;
    scope.locally->all[local.index].used = true;
    if (local.bad)
      return nullptr;
    if (local.lazy)
      return local.lazy;
    auto v = make(Expr::LocalRead, local.type, e.loc);
    v->index = local.index;
    v->name = name;
    v->range = local.range;
    v->pieces = local.pieces;
    return v;
  }
  if (bad.count(name))
    return nullptr;
  if (scope.policy) {
    if (scope.observing)
      for (size_t i = 0; i < scope.policy->observeArgs.size(); ++i)
        if (scope.policy->observeArgs[i] == name) {
          auto v = make(Expr::ObserveArg, Type::scalar(Elem::I32), e.loc);
          v->index = i;
          v->name = name;
          return v;
        }
    for (const CheckedField &f : scope.policy->state)
      if (f.name == name) {
        auto v = make(Expr::PolicyState, f.type, e.loc);
        v->name = scope.policy->name;
        v->member = name;
        return v;
      }
    for (const CheckedOutput &o : scope.policy->outputs)
      if (o.name == name) {
        auto v = make(Expr::PolicyOutput, o.value->type, e.loc);
        v->name = scope.policy->name;
        v->member = name;
        v->range = o.value->range;
        return v;
      }
  }
  if (const CheckedParam *p = param(name))
    return fromConstant(p->value, e.loc, false);
  if (scope.kind != Scope::Params) {
    if (const CheckedField *f = field(name)) {
      auto v = make(Expr::FieldRead, f->type, e.loc);
      v->name = name;
      return v;
    }
    if (const CheckedInput *i = input(name)) {
      auto v = make(Expr::InputRead, i->type, e.loc);
      v->name = name;
      v->range = i->range;
      return v;
    }
    struct Entry {
      const char *name;
      Predefined id;
    };
    static const Entry table[] = {
#define PREDEFINED(Id, Name, Type, Text) {Name, Predefined::Id},
#include "megalith/Sema/Builtins.def"
    };
    for (const Entry &entry : table) {
      if (name != entry.name)
        continue;
      if (entry.id == Predefined::Sampling) {
        diags.report(Diag::TypeMismatch, e.loc, "`sampling` outside a reducer", "one of its settings, `sampling.top_p`",
                     "all of them");
        return nullptr;
      }
      Type type = Type::scalar(Elem::I32);
      if (entry.id == Predefined::Tokens)
        type = Type::sequence(Unbounded);
      else if (entry.id == Predefined::Last)
        type = Type::scalar(Elem::Token);
      else if (entry.id == Predefined::Finished)
        type = Type::scalar(Elem::Bool);
      auto v = make(Expr::Request, type, e.loc);
      v->predefined = entry.id;
      if (entry.id == Predefined::Budget || entry.id == Predefined::PromptLen)
        v->range = {0, mostPositions()};
      else if (entry.id == Predefined::Seated)
        v->range = {0, slots()};
      return v;
    }
  }
  reportUnknownName(e, scope);
  return nullptr;
}

ExprRef Checker::checkDotted(const ast::Expr &e, Scope &scope) {
  llvm::StringRef text = e.text;
  auto [head, rest] = text.split('.');
  if (head == "kv") {
    auto [pool, member] = rest.split('.');
    if (scope.kind == Scope::Params) {
      diags.report(Diag::NotConstant, e.loc, fmt::format("`{}`", e.text));
      return nullptr;
    }
    if (!isPool(pool.str())) {
      // A missing pool is reported once, at the model.
      if (!isModel(pool.str()) && firstUse(pool.str()))
        reportUnknownPool(e.loc, pool.str());
      return nullptr;
    }
    struct Entry {
      const char *name;
      PoolName id;
    };
    static const Entry table[] = {
#define POOL_NAME(Id, Name, Type, Text) {Name, PoolName::Id},
#include "megalith/Sema/Builtins.def"
    };
    std::vector<std::string> names;
    for (const Entry &entry : table) {
      const bool ofSlot = entry.id == PoolName::Len || entry.id == PoolName::Lag;
      if (!ofSlot || scope.kind == Scope::Stage)
        names.push_back(fmt::format("kv.{}.{}", pool.str(), entry.name));
      if (member != entry.name)
        continue;
      if (ofSlot && !needsSlot(fmt::format("`{}`", e.text), e.loc, scope))
        return nullptr;
      auto v = make(Expr::Pool, Type::scalar(entry.id == PoolName::Pressure ? Elem::Bool : Elem::I32), e.loc);
      v->name = pool.str();
      v->poolName = entry.id;
      // Behind a call that commits, KV can be valid beyond the tokens.
      v->range = {entry.id == PoolName::Lag ? -mostPositions() : 0, mostPositions()};
      for (const CheckedPool &p : out.pools)
        if (p.name == v->name && (entry.id == PoolName::Live || entry.id == PoolName::Pages))
          v->range.hi = p.pages;
      return v;
    }
    if (firstUse(e.text))
      reportUnknown(Diag::UnknownName, e.loc, e.text, names);
    return nullptr;
  }
  if (head == "sampling" && scope.kind != Scope::Params) {
    std::vector<std::string> names;
    for (const char *name : settingNames) {
      names.push_back("sampling." + std::string(name));
      if (rest != name)
        continue;
      auto v = make(Expr::Sampling, Type::scalar(rest == "top_k" ? Elem::I32 : Elem::F32), e.loc);
      v->member = name;
      if (rest == "top_k")
        v->range = {0, INT32_MAX};
      return v;
    }
    reportUnknown(Diag::UnknownName, e.loc, e.text, names);
    return nullptr;
  }
  if (isModel(head.str())) {
    auto [word, key] = rest.split('.');
    if (word == "config" && !key.empty()) {
      std::optional<double> number;
      for (const ModelFacts &f : facts)
        if (f.name == head && f.config)
          number = f.config(key.str());
      if (!number) {
        diags.report(Diag::UnknownConfigKey, e.loc, head.str(), key.str());
        return nullptr;
      }
      bool whole =
          *number == static_cast<double>(static_cast<int64_t>(*number)) && *number >= INT32_MIN && *number <= INT32_MAX;
      return whole ? intConst(static_cast<int64_t>(*number), e.loc)
                   : fromConstant({Elem::F32, 0, static_cast<float>(*number)}, e.loc, false);
    }
  } else if (const CheckedPolicy *p = policy(head.str())) {
    std::vector<std::string> names;
    for (const CheckedOutput &o : p->outputs) {
      names.push_back(p->name + "." + o.name);
      if (rest != o.name)
        continue;
      auto v = make(Expr::PolicyOutput, o.value->type, e.loc);
      v->name = p->name;
      v->member = o.name;
      v->range = o.value->range;
      return v;
    }
    for (const CheckedField &f : p->state) {
      names.push_back(p->name + "." + f.name);
      if (rest != f.name)
        continue;
      auto v = make(Expr::PolicyState, f.type, e.loc);
      v->name = p->name;
      v->member = f.name;
      return v;
    }
    if (!bad.count(rest.str()) && firstUse(e.text))
      reportUnknown(Diag::UnknownName, e.loc, e.text, names);
    return nullptr;
  }
  if (!firstUse(head.str()))
    return nullptr;
  diags.report(Diag::UnknownName, e.loc, e.text);
  std::vector<std::string> heads = out.models;
  heads.push_back("kv");
  for (const CheckedPolicy &p : out.policies)
    heads.push_back(p.name);
  diags.suggest(head, heads);
  return nullptr;
}

ExprRef Checker::checkUnary(const ast::Expr &e, Scope &scope) {
  // The least i32 has no positive counterpart.
  if (e.text == "-" && e.args[0]->kind == ast::Expr::IntLiteral && -e.args[0]->intValue == INT32_MIN)
    return intConst(INT32_MIN, e.loc, /*literal=*/true);
  if (e.text == "not") {
    ExprRef a = expect(*e.args[0], Elem::Bool, "the operand of `not`", scope);
    return a ? make(Expr::Not, Type::scalar(Elem::Bool), e.loc, {a}) : nullptr;
  }
  ExprRef a = value(*e.args[0], scope);
  if (!a)
    return nullptr;
  if (!a->type.is(Elem::I32) && !a->type.is(Elem::F32)) {
    diags.report(Diag::TypeMismatch, e.args[0]->loc, "the operand of `-`", "i32 or f32", a->type.str());
    return nullptr;
  }
  auto v = make(Expr::Neg, a->type, e.loc, {a});
  if (a->type.is(Elem::I32))
    v->range = arithmetic(BinaryOp::Sub, Range::of(0), a->range);
  return a->literal ? written(v) : v;
}

/// The number that an operation on written numbers is.
ExprRef Checker::written(const ExprRef &e) {
  Overflow overflow;
  if (auto c = evaluate(*e, &overflow))
    return fromConstant(*c, e->loc, true);
  report(overflow);
  return nullptr;
}

ExprRef Checker::concat(ExprRef a, ExprRef b, SourceLoc loc) {
  for (const ExprRef &side : {a, b}) {
    if (!side->type.seq) {
      diags.report(Diag::TypeMismatch, side->loc, "an operand of `+` beside a sequence", "a sequence such as `[x]`",
                   side->type.str());
      return nullptr;
    }
    if (side->type.capacity >= Unbounded) {
      diags.report(Diag::UnboundedSequence, side->loc, "this operand of `+`");
      return nullptr;
    }
  }
  if (a->type.elem != b->type.elem) {
    diags.report(Diag::OperandTypes, loc, "+", "two sequences of the same type", a->type.str(), b->type.str());
    return nullptr;
  }
  const int64_t capacity = a->type.capacity + b->type.capacity;
  if (capacity > mostCapacity) {
    diags.report(Diag::TypeMismatch, loc, "the length of what `+` joins", fmt::format("at most {}", mostCapacity),
                 capacity);
    return nullptr;
  }
  return together(make(Expr::SeqConcat, Type::sequence(capacity, a->type.elem), loc, {a, b}), a->pieces + b->pieces);
}

ExprRef Checker::together(std::shared_ptr<Expr> sequence, int pieces) {
  constexpr int most = 32;
  sequence->pieces = pieces;
  if (pieces <= most)
    return sequence;
  diags.report(Diag::SequencePieces, sequence->loc, pieces, most);
  return nullptr;
}

ExprRef Checker::checkBinary(const ast::Expr &e, Scope &scope) {
  static const std::pair<const char *, BinaryOp> table[] = {
      {"+", BinaryOp::Add}, {"-", BinaryOp::Sub},   {"*", BinaryOp::Mul}, {"/", BinaryOp::Div}, {"%", BinaryOp::Mod},
      {"==", BinaryOp::Eq}, {"!=", BinaryOp::Ne},   {"<", BinaryOp::Lt},  {"<=", BinaryOp::Le}, {">", BinaryOp::Gt},
      {">=", BinaryOp::Ge}, {"and", BinaryOp::And}, {"or", BinaryOp::Or}};
  auto entry = std::find_if(std::begin(table), std::end(table), [&](const auto &t) { return e.text == t.first; });
  if (entry == std::end(table)) {
    diags.report(Diag::Unsupported, e.loc, fmt::format("the operator `{}`", e.text),
                 "`i in 0..n` inside `prefix_while` or `count`");
    return nullptr;
  }
  BinaryOp op = entry->second;
  if (op == BinaryOp::And || op == BinaryOp::Or) {
    // Both sides are evaluated, so an effect on one side would surprise.
    Scope inner = scope;
    inner.noCalls = inner.noEffects = "an operand of `and` or `or`";
    std::string what = fmt::format("an operand of `{}`", e.text);
    ExprRef a = expect(*e.args[0], Elem::Bool, what, inner);
    ExprRef b = expect(*e.args[1], Elem::Bool, what, inner);
    if (!a || !b)
      return nullptr;
    auto v = make(Expr::Binary, Type::scalar(Elem::Bool), e.loc, {a, b});
    v->binary = op;
    return v;
  }
  ExprRef a = value(*e.args[0], scope), b = value(*e.args[1], scope);
  if (!a || !b)
    return nullptr;
  if (op == BinaryOp::Add && (a->type.seq || b->type.seq))
    return concat(a, b, e.loc);

  bool sameType = unify(a, b);
  Elem elem = a->type.elem;
  bool number = elem == Elem::I32 || elem == Elem::F32;
  bool equality = op == BinaryOp::Eq || op == BinaryOp::Ne;
  bool arithmeticOp = op <= BinaryOp::Mod;
  const char *need = equality              ? "two values of the same type, no sequences"
                     : op == BinaryOp::Mod ? "two i32"
                                           : "two i32 or two f32";
  bool good = sameType && !a->type.seq && (equality || number) && !(op == BinaryOp::Mod && elem != Elem::I32);
  if (!good) {
    diags.report(Diag::OperandTypes, e.loc, e.text, need, a->type.str(), b->type.str());
    return nullptr;
  }
  auto v = make(Expr::Binary, Type::scalar(arithmeticOp ? elem : Elem::Bool), e.loc, {a, b});
  v->binary = op;
  if (arithmeticOp && elem == Elem::I32)
    v->range = arithmetic(op, a->range, b->range);
  return arithmeticOp && a->literal && b->literal ? written(v) : v;
}

ExprRef Checker::checkConditional(const ast::Expr &e, Scope &scope) {
  if (e.args.size() < 3 || !e.args[2]) {
    diags.report(Diag::TypeMismatch, e.loc, "`if` inside an expression", "`a if c else b`", "no `else`");
    return nullptr;
  }
  Scope inner = scope;
  inner.noCalls = inner.noEffects = "a conditional expression";
  ExprRef a = value(*e.args[0], inner);
  ExprRef c = expect(*e.args[1], Elem::Bool, "the condition", inner);
  ExprRef b = value(*e.args[2], inner);
  if (!a || !b || !c)
    return nullptr;
  if (!unify(a, b)) {
    diags.report(Diag::OperandTypes, e.loc, "if else", "two values of the same type", a->type.str(), b->type.str());
    return nullptr;
  }
  Type type = a->type;
  if (type.seq)
    type.capacity = std::max(a->type.capacity, b->type.capacity);
  auto v = make(Expr::Select, type, e.loc, {c, a, b});
  if (type.is(Elem::I32))
    v->range = hull(a->range, b->range);
  return type.seq ? together(v, a->pieces + b->pieces) : v;
}

bool fromEnd(ExprRef &e) {
  const auto c = e && e->type.is(Elem::I32) ? evaluate(*e) : std::nullopt;
  if (!c || c->intValue >= 0)
    return false;
  e = fromConstant(*c, e->loc, e->literal);
  return true;
}

ExprRef Checker::checkIndex(const ast::Expr &e, Scope &scope) {
  ExprRef base = value(*e.args[0], scope);
  if (e.args.size() > 2) {
    diags.report(Diag::Unsupported, e.loc, "a second index", "a sequence with one index");
    return nullptr;
  }
  ExprRef index = expect(*e.args[1], Elem::I32, "an index", scope);
  if (!base || !index)
    return nullptr;
  if (!base->type.seq) {
    diags.report(Diag::TypeMismatch, e.args[0]->loc, "what is indexed", "a sequence", base->type.str());
    return nullptr;
  }
  const bool counts = fromEnd(index);
  auto v = make(Expr::SeqAt, Type::scalar(base->type.elem), e.loc, {base, index});
  v->loFromEnd = counts;
  return v;
}

ExprRef Checker::checkSlice(const ast::Expr &e, Scope &scope) {
  ExprRef base = check(*e.args[0], scope), lo, hi;
  if (base && base->type.elem == Elem::Logits)
    return checkLogitRows(base, e, scope);
  bool failed = !base;
  for (int side = 0; side < 2; ++side) {
    if (!e.args[side + 1])
      continue;
    ExprRef &bound = side ? hi : lo;
    bound = expect(*e.args[side + 1], Elem::I32, "a bound of a slice", scope);
    failed |= !bound;
  }
  if (failed)
    return nullptr;
  if (!base->type.seq) {
    diags.report(Diag::TypeMismatch, e.args[0]->loc, "what is sliced", "a sequence", base->type.str());
    return nullptr;
  }
  // Upper bound of the length: hi - lo, each side from its own reference point.
  int64_t capacity = base->type.capacity;
  bool loEnd = fromEnd(lo), hiEnd = fromEnd(hi);
  if (loEnd) {
    int64_t distance = -lo->intValue - (hiEnd ? -hi->intValue : 0);
    capacity = std::min(capacity, distance);
  } else {
    int64_t stop = capacity;
    if (hiEnd && capacity < Unbounded)
      stop = capacity + hi->intValue;
    else if (hi && !hiEnd)
      stop = std::min(stop, hi->range.hi);
    int64_t start = lo ? std::max<int64_t>(0, lo->range.lo) : 0;
    if (stop < Unbounded)
      capacity = std::min(capacity, asLength(stop - start));
  }
  auto v = make(Expr::SeqSlice, Type::sequence(std::max<int64_t>(0, capacity), base->type.elem), e.loc, {base, lo, hi});
  v->loFromEnd = loEnd;
  v->hiFromEnd = hiEnd;
  v->pieces = base->pieces;
  return v;
}

ExprRef Checker::checkList(const ast::Expr &e, Scope &scope) {
  std::vector<ExprRef> items;
  bool failed = false;
  for (const ast::ExprPtr &item : e.args) {
    items.push_back(expect(*item, Elem::Token, "an element of a list", scope));
    failed |= !items.back();
  }
  if (failed)
    return nullptr;
  constexpr size_t ofPiece = 8; // tokens of a list take less room than other pieces
  const int pieces = (items.size() + ofPiece - 1) / ofPiece;
  return together(make(Expr::SeqMake, Type::sequence(items.size()), e.loc, items), pieces);
}

} // namespace megalith::sema
