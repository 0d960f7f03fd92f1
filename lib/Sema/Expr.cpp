//===- Expr.cpp - names, operators, sequences -----------------------------===//
#include "Checker.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringRef.h"
#include <algorithm>
#include <cmath>

namespace megalith::sema {

std::shared_ptr<Expr> make(Expr::Kind kind, Type type, SourceLoc loc, std::vector<ExprRef> args, Expr::Data data,
                           Range range) {
  return std::make_shared<Expr>(Expr{kind, type, range, 1, loc, std::move(args), std::move(data)});
}

ExprRef intConst(int64_t v, SourceLoc loc, bool literal) {
  return make(Expr::Const, Type::scalar(Elem::I32), loc, {}, Number{v, 0, literal}, Range::of(v));
}

bool isLiteral(const Expr &e) { return e.kind == Expr::Const && e.as<Number>().literal; }

bool ofSlot(PoolName what) { return what == PoolName::Len || what == PoolName::Lag || what == PoolName::Drafts; }

const Call &callOf(const Expr &e) { return (e.kind == Expr::ModelCall ? e : *e.args[0]).as<Call>(); }

ExprRef fromConstant(const Constant &c, SourceLoc loc, bool literal) {
  if (c.seq) {
    auto e = make(Expr::SeqConst, Type::sequence(static_cast<int64_t>(c.items.size()), c.elem), loc, {}, Name());
    for (const Constant &item : c.items) {
      e->args.push_back(fromConstant(item, loc, literal));
      e->range = e->args.size() == 1 ? e->args[0]->range : hull(e->range, e->args.back()->range);
    }
    return e;
  }
  return make(Expr::Const, Type::scalar(c.elem), loc, {}, Number{c.intValue, c.floatValue, literal},
              c.elem == Elem::I32 ? Range::of(c.intValue) : Range());
}

ExprRef Checker::value(const ast::Expr &e, Scope &scope) { return plain(check(e, scope), e); }

ExprRef Checker::plain(const ExprRef &v, const ast::Expr &e) {
  if (v && v->type.elem == Elem::Logits) {
    if (v->kind == Expr::ModelCall && v->as<Call>().keepNone)
      diags.report(Diag::KeepNoneReduced, e.loc);
    else
      diags.report(Diag::LogitsUse, e.loc);
    return nullptr;
  }
  if (v && v->kind == Expr::TopParts) {
    diags.report(Diag::TypeMismatch, e.loc, "what is read of `top_k`", "`.token` or `.prob` of a name for it", "both");
    if (e.kind == ast::Expr::Path)
      diags.note(fmt::format("`{0}.token[i]` are the tokens of row i, and `{0}.prob[i]` their probabilities", e.text));
    else
      diags.note("give it a name, `- t: top_k(...)`: `t.token[i]` are the tokens of row i, `t.prob[i]` their "
                 "probabilities");
    return nullptr;
  }
  if (v && v->type.elem == Elem::Kept) {
    diags.report(Diag::KeptUse, e.loc);
    return nullptr;
  }
  return v;
}

/// `e`, whose type has no elements yet, as one of that shape.
ExprRef adopt(const ExprRef &e, const Type &like) {
  if (!e || e->type.elem != Elem::None || like.elem == Elem::None || like.isScalar())
    return e;
  auto typed = std::make_shared<Expr>(*e);
  for (ExprRef &arg : typed->args)
    arg = adopt(arg, like);
  typed->type = like.withLength(e->type.length());
  return typed;
}

bool isMap(const Expr &e) { return e.kind == Expr::Over && e.as<Through>().function == Function::Map; }

/// A written integer takes the other side's type; a constant is a token where one is needed.
ExprRef Checker::convert(ExprRef e, Elem elem) {
  if (!e || e->type.elem == elem)
    return e;
  if (e->type.elem == Elem::None)
    return adopt(e, Type::sequence(0, elem));
  if (e->type.elem != Elem::I32)
    return e;
  if (e->kind == Expr::SeqMake && e->args.empty()) { // it became a sequence of numbers beside one
    auto empty = std::make_shared<Expr>(*e);
    empty->type.elem = elem;
    return empty;
  }
  // What is put together of such constants.
  const auto [first, last] = e->kind == Expr::SeqMake || e->kind == Expr::SeqConst
                                 ? std::pair<size_t, size_t>(0, e->args.size())
                             : e->kind == Expr::SeqConcat                          ? std::pair<size_t, size_t>(0, 2)
                             : e->kind == Expr::Select                             ? std::pair<size_t, size_t>(1, 3)
                             : e->kind == Expr::SeqSlice || e->kind == Expr::SeqAt ? std::pair<size_t, size_t>(0, 1)
                             : isMap(*e)                                           ? std::pair<size_t, size_t>(2, 3)
                                                                                   : std::pair<size_t, size_t>(0, 0);
  if (first < last && (!e->type.isScalar() || elem == Elem::Token)) {
    auto whole = std::make_shared<Expr>(*e);
    whole->type.elem = elem;
    whole->range = {};
    for (size_t i = first; i < last; ++i)
      if (whole->args[i] = convert(whole->args[i], elem); whole->args[i]->type.elem != elem)
        return e;
    return whole;
  }
  if (e->kind == Expr::LocalRead && !e->args.empty()) {
    const ExprRef constant = convert(e->args[0], elem);
    return constant->type.elem == elem ? constant : e;
  }
  if (!e->type.isScalar())
    return e;
  if (elem == Elem::Token)
    if (auto c = evaluate(*e); c && c->intValue >= 0)
      return fromConstant({Elem::Token, c->intValue, 0}, e->loc, isLiteral(*e));
  if (elem == Elem::F32 && isLiteral(*e))
    return fromConstant({Elem::F32, 0, static_cast<float>(e->as<Number>().intValue)}, e->loc, true);
  return e;
}

bool Checker::unify(ExprRef &a, ExprRef &b) {
  a = adopt(a, b->type);
  b = adopt(b, a->type);
  a = convert(a, b->type.elem);
  b = convert(b, a->type.elem);
  return a->type.sameShape(b->type) && a->type.elem == b->type.elem;
}

/// As a value of this type, whatever its length; null after a report that begins with `what`.
ExprRef Checker::as(ExprRef e, const Type &type, const std::string &what, const std::string &wanted) {
  if (!e)
    return nullptr;
  const ExprRef v = convert(adopt(e, type), type.elem);
  if (v->type.sameShape(type) && v->type.elem == type.elem)
    return v;
  diags.report(Diag::TypeMismatch, e->loc, what, wanted, e->type.str());
  noteNoTokens(*e, type.elem);
  return nullptr;
}

ExprRef Checker::expect(const ast::Expr &e, Elem elem, const std::string &what, Scope &scope) {
  ExprRef v = convert(value(e, scope), elem);
  if (v && !v->type.is(elem)) {
    diags.report(Diag::TypeMismatch, e.loc, what, elemName(elem), v->type.str());
    noteCast(v->type, elem, e);
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
    diags.report(Diag::Unsupported, e.loc, "a string in an expression",
                 "a number or a name: a token is its number, as in `last == 5`");
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
    diags.report(Diag::Unsupported, e.loc, "a range that nothing goes through",
                 "`i in a..b` as the first argument of a function such as `map`, or `for: i in a..b`");
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
    if (!f.local)
      names.push_back(f.name);
  for (const CheckedInput &i : out.inputs)
    names.push_back(i.name);
#define PREDEFINED(Id, Name, Type, Values, Operation, Text) names.push_back(Name);
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
    if (scope.binders[i].first == name)
      return make(Expr::BinderRead, Type::scalar(Elem::I32), e.loc, {}, Place{static_cast<int>(i), name},
                  scope.binders[i].second);
  if (auto it = scope.locals.find(name); it != scope.locals.end())
    return readLocal(it->second, e, scope);
  if (bad.count(name))
    return nullptr;
  if (scope.policy) {
    const std::vector<std::string> &args = scope.policy->observeArgs;
    if (const auto arg = llvm::find(args, name); scope.observing && arg != args.end())
      return make(Expr::ObserveArg, Type::scalar(Elem::I32), e.loc, {},
                  Place{static_cast<int>(arg - args.begin()), name});
    if (ExprRef part = partOfPolicy(*scope.policy, e, name))
      return part;
  }
  if (const CheckedParam *p = param(name)) {
    used.insert(name);
    ExprRef v = fromConstant(p->value, e.loc, false);
    if (v->type.isScalar())
      return v;
    auto list = std::make_shared<Expr>(*v);
    list->data = Name{name};
    return list;
  }
  if (scope.kind != Scope::Params) {
    const auto flow = scope.flows.find(name);
    if (const CheckedField *f = field(name)) {
      used.insert(name);
      return readField(name, flow == scope.flows.end() ? Scope::Flow{f->type, {}} : flow->second, e.loc);
    }
    if (const CheckedInput *i = input(name)) {
      used.insert(name);
      return make(Expr::InputRead, i->type, e.loc, {}, Name{name}, i->range);
    }
    if (flow != scope.flows.end()) // an inferred field that is `[]` so far
      return readField(name, flow->second, e.loc);
    if (name == "sampling") {
      diags.report(Diag::TypeMismatch, e.loc, "`sampling` outside a reducer", "one of its settings, `sampling.top_p`",
                   "all of them");
      return nullptr;
    }
    if (ExprRef v = checkPredefined(e))
      return v;
  }
  reportUnknownName(e, scope);
  return nullptr;
}

/// Null: it is none, and nothing was said of it.
ExprRef Checker::checkPredefined(const ast::Expr &e) {
  enum Most { Any, NotNegative, Positions, Slots };
  static const struct {
    llvm::StringRef name, type;
    Most values;
    Predefined id;
  } table[] = {
#define PREDEFINED(Id, Name, Type, Values, Operation, Text) {Name, Type, Values, Predefined::Id},
#include "megalith/Sema/Builtins.def"
  };
  for (const auto &[name, type, values, id] : table)
    if (name == e.text)
      return make(Expr::Request, typeNamed(type), e.loc, {}, id,
                  values == Any           ? Range()
                  : values == NotNegative ? Range{0, INT32_MAX}
                                          : Range{0, values == Slots ? slots() : mostPositions()});
  return nullptr;
}

ExprRef Checker::readLocal(const Scope::Local &local, const ast::Expr &e, Scope &scope) {
  scope.locally->all[local.index].used = true;
  if (std::holds_alternative<Broken>(local.binding))
    return nullptr;
  if (const ExprRef *of = local.alias())
    return *of;
  if (const auto *kept = std::get_if<InField>(&local.binding))
    return readField(kept->field, scope.flows.at(kept->field), e.loc);
  if (std::holds_alternative<Tree>(local.binding)) {
    diags.report(Diag::TypeMismatch, e.loc, fmt::format("`{}`", e.text), "`.rows` or `.parents` of it", "a tree");
    return nullptr;
  }
  const auto &value = std::get<Value>(local.binding);
  auto v = make(Expr::LocalRead, value.type, e.loc, {}, Place{local.index, e.text}, value.range);
  v->pieces = value.pieces;
  if (value.constant)
    v->args.push_back(value.constant);
  return v;
}

ExprRef Checker::readField(const std::string &name, const Scope::Flow &flow, SourceLoc loc) {
  return make(Expr::FieldRead, flow.type, loc, {}, Name{name}, flow.range);
}

/// `t.rows`, of a local that has parts.
ExprRef Checker::partOfLocal(const Scope::Local &local, const ast::Expr &e, Scope &scope) {
  scope.locally->all[local.index].used = true;
  const auto [head, rest] = llvm::StringRef(e.text).split('.');
  const auto unknown = [&, head = head](const char *first, const char *second) -> ExprRef {
    reportUnknown(Diag::UnknownName, e.loc, e.text, {head.str() + first, head.str() + second});
    return nullptr;
  };
  if (const auto *tree = std::get_if<Tree>(&local.binding)) {
    if (rest != "rows" && rest != "parents")
      return unknown(".rows", ".parents");
    const bool rows = rest == "rows";
    const ExprRef &part = rows ? tree->rows : tree->parents;
    return make(Expr::LocalRead, part->type, e.loc, {}, Place{local.index + (rows ? 0 : 1), e.text}, part->range);
  }
  if (std::holds_alternative<Broken>(local.binding))
    return nullptr;
  const ExprRef &of = *local.alias();
  if (of->type.elem == Elem::Logits)
    return namedResult(of, rest, e);
  return rest == "token" || rest == "prob" ? partOfTop(*of, rest, e.loc) : unknown(".token", ".prob");
}

/// A state or an output; null: it has none of that name, and nothing was said of it.
ExprRef Checker::partOfPolicy(const CheckedPolicy &policy, const ast::Expr &e, const std::string &part) {
  const auto is = [&](const auto &each) { return each.name == part; };
  const auto state = llvm::find_if(policy.state, is);
  const auto output = llvm::find_if(policy.outputs, is);
  if (state == policy.state.end() && output == policy.outputs.end())
    return nullptr;
  used.insert(policy.name + "." + part);
  return state != policy.state.end()
             ? make(Expr::PolicyState, state->type, e.loc, {}, Name{policy.name, part})
             : make(Expr::PolicyOutput, output->value->type, e.loc, {}, Name{policy.name, part}, output->value->range);
}

ExprRef Checker::checkPoolName(const ast::Expr &e, Scope &scope) {
  if (scope.kind == Scope::Params) {
    diags.report(Diag::NotConstant, e.loc, fmt::format("`{}`", e.text));
    return nullptr;
  }
  const auto [pool, member] = llvm::StringRef(e.text).split('.').second.split('.');
  if (!isPool(pool.str())) {
    // A missing pool is reported once, at the model.
    if (!isModel(pool.str()) && firstUse(pool.str()))
      reportUnknownPool(e.loc, pool.str());
    return nullptr;
  }
  static const struct {
    llvm::StringRef name, type;
    PoolName id;
  } table[] = {
#define POOL_NAME(Id, Name, Type, Of, Operation, Text) {Name, Type, PoolName::Id},
#include "megalith/Sema/Builtins.def"
  };
  std::vector<std::string> names;
  for (const auto &[name, type, id] : table) {
    if (!ofSlot(id) || scope.kind == Scope::Stage)
      names.push_back(fmt::format("kv.{}.{}", pool.str(), name.str()));
    if (member != name)
      continue;
    if (ofSlot(id) && !needsSlot(fmt::format("`{}`", e.text), e.loc, scope))
      return nullptr;
    // Behind a call that commits, KV can be valid beyond the tokens.
    Range range{id == PoolName::Lag ? -mostPositions() : 0, mostPositions()};
    for (const CheckedPool &p : out.pools)
      if (pool == p.name && (id == PoolName::Live || id == PoolName::Pages))
        range.hi = p.pages;
    return make(Expr::Pool, typeNamed(type), e.loc, {}, PoolRead{pool.str(), id}, range);
  }
  if (firstUse(e.text))
    reportUnknown(Diag::UnknownName, e.loc, e.text, names);
  return nullptr;
}

ExprRef Checker::checkDotted(const ast::Expr &e, Scope &scope) {
  const auto [head, rest] = llvm::StringRef(e.text).split('.');
  if (auto it = scope.locals.find(head.str()); it != scope.locals.end()) {
    const ExprRef *of = it->second.alias();
    const bool parts = of && ((*of)->type.elem == Elem::Logits || (*of)->kind == Expr::TopParts);
    if (const Binding &b = it->second.binding;
        parts || std::holds_alternative<Tree>(b) || std::holds_alternative<Broken>(b))
      return partOfLocal(it->second, e, scope);
  }
  if (head == "kv")
    return checkPoolName(e, scope);
  if (head == "sampling" && scope.kind != Scope::Params) {
    std::vector<std::string> names;
    for (const char *name : settingNames) {
      names.push_back("sampling." + std::string(name));
      if (rest == name)
        return rest == "top_k" ? make(Expr::Sampling, Type::scalar(Elem::I32), e.loc, {}, Name{name}, {0, INT32_MAX})
                               : make(Expr::Sampling, Type::scalar(Elem::F32), e.loc, {}, Name{name});
    }
    reportUnknown(Diag::UnknownName, e.loc, e.text, names);
    return nullptr;
  }
  if (isModel(head.str())) {
    if (const auto [word, key] = rest.split('.'); word == "config" && !key.empty()) {
      std::optional<double> number;
      for (const ModelFacts &f : facts)
        if (f.name == head && f.config)
          number = f.config(key.str());
      if (!number) {
        diags.report(Diag::UnknownConfigKey, e.loc, head.str(), key.str());
        return nullptr;
      }
      const bool whole =
          *number == static_cast<double>(static_cast<int64_t>(*number)) && *number >= INT32_MIN && *number <= INT32_MAX;
      return whole ? intConst(static_cast<int64_t>(*number), e.loc)
                   : fromConstant({Elem::F32, 0, static_cast<float>(*number)}, e.loc, false);
    }
  } else if (const CheckedPolicy *p = policy(head.str())) {
    used.insert(p->name);
    if (ExprRef part = partOfPolicy(*p, e, rest.str()))
      return part;
    std::vector<std::string> names;
    for (const CheckedOutput &o : p->outputs)
      names.push_back(p->name + "." + o.name);
    for (const CheckedField &f : p->state)
      names.push_back(p->name + "." + f.name);
    if (!bad.count(rest.str()) && firstUse(e.text))
      reportUnknown(Diag::UnknownName, e.loc, e.text, names);
    return nullptr;
  }
  if (!firstUse(head.str()))
    return nullptr;
  diags.report(Diag::UnknownName, e.loc, e.text);
  std::vector<std::string> heads = out.models;
  heads.push_back("kv");
  if (scope.kind != Scope::Params)
    heads.push_back("sampling");
  for (const CheckedPolicy &p : out.policies)
    heads.push_back(p.name);
  diags.suggest(head, heads);
  return nullptr;
}

} // namespace megalith::sema
