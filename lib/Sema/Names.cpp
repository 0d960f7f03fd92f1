//===- Names.cpp - literals and names -------------------------------------===//
#include "Expressions.h"
#include "Notes.h"
#include "llvm/ADT/STLExtras.h"
#include <cmath>

namespace megalith::sema {

ExprRef Expressions::value(const ast::Expr &e) { return plain(ctx, check(e), e); }

ExprRef Expressions::expect(const ast::Expr &e, Elem elem, const std::string &what) {
  ExprRef v = convert(value(e), elem);
  if (v && !v->type.is(elem)) {
    diags.report(Diag::TypeMismatch, e.loc, what, elemName(elem), v->type.str());
    noteCast(diags, v->type, elem, e);
    return nullptr;
  }
  return v;
}

void Expressions::markRead(const ast::Expr &e) {
  if (e.kind == ast::Expr::Path)
    if (auto it = scope.locals.find(e.text); it != scope.locals.end())
      scope.locally->all[it->second.index].used = true;
  for (const ast::ExprPtr &arg : e.args)
    if (arg)
      markRead(*arg);
  for (const auto &[name, arg] : e.named)
    markRead(*arg);
}

ExprRef Expressions::check(const ast::Expr &e) {
  ExprRef v = checkKnown(e);
  if (!v)
    markRead(e);
  return v;
}

ExprRef Expressions::checkKnown(const ast::Expr &e) {
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
    return checkPath(e);
  case ast::Expr::Unary:
    return checkUnary(e);
  case ast::Expr::Binary:
    return checkBinary(e);
  case ast::Expr::Conditional:
    return checkConditional(e);
  case ast::Expr::Index:
    return checkIndex(e);
  case ast::Expr::Slice:
    return checkSlice(e);
  case ast::Expr::Bounds: // of a second dimension, which has been refused
    return nullptr;
  case ast::Expr::List:
    return checkList(e);
  case ast::Expr::Call:
    return checkCall(e);
  case ast::Expr::Range:
    diags.report(Diag::Unsupported, e.loc, "a range that nothing goes through",
                 "`i in a..b` as the first argument of a function such as `map`, or `for: i in a..b`");
    return nullptr;
  }
  return nullptr;
}

static ExprRef readField(const std::string &name, const Scope::Flow &flow, SourceLoc loc) {
  return make(Expr::FieldRead, flow.type, loc, {}, Name{name}, flow.range);
}

ExprRef Expressions::checkPath(const ast::Expr &e) {
  return e.text.find('.') == std::string::npos ? checkSimpleName(e) : checkDotted(e);
}

ExprRef Expressions::checkSimpleName(const ast::Expr &e) {
  const std::string &name = e.text;
  for (size_t i = scope.binders.size(); i-- > 0;)
    if (scope.binders[i].first == name)
      return make(Expr::BinderRead, Type::scalar(Elem::I32), e.loc, {}, Place{static_cast<int>(i), name},
                  scope.binders[i].second);
  if (auto it = scope.locals.find(name); it != scope.locals.end())
    return readLocal(it->second, e);
  if (ctx.bad.count(name))
    return nullptr;
  if (scope.policy) {
    const std::vector<std::string> &args = scope.policy->observeArgs;
    if (const auto arg = llvm::find(args, name); scope.observing && arg != args.end())
      return make(Expr::ObserveArg, Type::scalar(Elem::I32), e.loc, {},
                  Place{static_cast<int>(arg - args.begin()), name});
    if (ExprRef part = partOfPolicy(*scope.policy, e, name))
      return part;
  }
  if (const CheckedParam *p = ctx.param(name)) {
    ctx.used.insert(name);
    ExprRef v = fromConstant(p->value, e.loc, false);
    if (v->type.isScalar())
      return v;
    auto list = std::make_shared<Expr>(*v);
    list->data = Name{name};
    return list;
  }
  if (const CheckedDim *d = ctx.dim(name)) {
    ctx.used.insert(name);
    return make(Expr::DimRead, Type::scalar(Elem::I32), e.loc, {}, Name{name}, {d->least, d->most});
  }
  if (ctx.buffer(name)) {
    ctx.used.insert(name);
    diags.report(Diag::WholeBuffer, e.loc, name);
    diags.note(
        fmt::format("an element is `{0}[i]`, with an index for each dimension; `- to[a:b]: {0}[c:d]` copies", name));
    return nullptr;
  }
  if (scope.kind != Scope::Params && scope.kind != Scope::Items) {
    const auto flow = scope.flows.find(name);
    if (const CheckedField *f = ctx.field(name)) {
      ctx.used.insert(name);
      return readField(name, flow == scope.flows.end() ? Scope::Flow{f->type, {}} : flow->second, e.loc);
    }
    if (const CheckedInput *i = ctx.input(name)) {
      ctx.used.insert(name);
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
  ctx.reportUnknownName(e, scope);
  return nullptr;
}

/// Null: it is none, and nothing was said of it.
ExprRef Expressions::checkPredefined(const ast::Expr &e) {
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
                                          : Range{0, values == Slots ? ctx.slots() : ctx.mostPositions()});
  return nullptr;
}

ExprRef Expressions::readLocal(const Scope::Local &local, const ast::Expr &e) {
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

/// `t.rows`, of a local that has parts.
ExprRef Expressions::partOfLocal(const Scope::Local &local, const ast::Expr &e) {
  scope.locally->all[local.index].used = true;
  const auto [head, rest] = llvm::StringRef(e.text).split('.');
  const auto unknown = [&, head = head](const char *first, const char *second) -> ExprRef {
    ctx.reportUnknown(Diag::UnknownName, e.loc, e.text, {head.str() + first, head.str() + second});
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
    return namedResult(ctx, of, rest, e);
  return rest == "token" || rest == "prob" ? partOfTop(ctx, *of, rest, e.loc) : unknown(".token", ".prob");
}

/// A state or an output; null: it has none of that name, and nothing was said of it.
ExprRef Expressions::partOfPolicy(const CheckedPolicy &policy, const ast::Expr &e, const std::string &part) {
  const auto is = [&](const auto &each) { return each.name == part; };
  const auto state = llvm::find_if(policy.state, is);
  const auto output = llvm::find_if(policy.outputs, is);
  if (state == policy.state.end() && output == policy.outputs.end())
    return nullptr;
  ctx.used.insert(policy.name + "." + part);
  return state != policy.state.end()
             ? make(Expr::PolicyState, state->type, e.loc, {}, Name{policy.name, part})
             : make(Expr::PolicyOutput, output->value->type, e.loc, {}, Name{policy.name, part}, output->value->range);
}

ExprRef Expressions::checkPoolName(const ast::Expr &e) {
  if (scope.kind == Scope::Params) {
    diags.report(Diag::NotConstant, e.loc, fmt::format("`{}`", e.text));
    return nullptr;
  }
  const auto [pool, member] = llvm::StringRef(e.text).split('.').second.split('.');
  const CheckedPool *declared = ctx.pool(pool.str());
  if (!declared) {
    // A missing pool is reported once, at the model.
    if (!ctx.isModel(pool.str()) && ctx.firstUse(pool.str()))
      ctx.reportUnknownPool(e.loc, pool.str());
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
    if (!ofRequest(id) || scope.kind == Scope::Stage)
      names.push_back(fmt::format("kv.{}.{}", pool.str(), name.str()));
    if (member != name)
      continue;
    if (ofSlot(id) && !ctx.needsSlot(fmt::format("`{}`", e.text), e.loc, scope))
      return nullptr;
    if (ofRequest(id) && scope.kind == Scope::Policy) {
      ctx.diags.report(Diag::EffectNotAllowed, e.loc, fmt::format("`{}`", e.text), "a policy");
      return nullptr;
    }
    // After a call that commits, KV can be valid beyond the tokens.
    const bool pages = id == PoolName::Live || id == PoolName::Pages;
    return make(Expr::Pool, typeNamed(type), e.loc, {}, PoolRead{pool.str(), id},
                {id == PoolName::Lag ? -ctx.mostPositions() : 0, pages ? declared->pages : ctx.mostPositions()});
  }
  if (ctx.firstUse(e.text))
    ctx.reportUnknown(Diag::UnknownName, e.loc, e.text, names);
  return nullptr;
}

ExprRef Expressions::checkDotted(const ast::Expr &e) {
  const auto [head, rest] = llvm::StringRef(e.text).split('.');
  if (auto it = scope.locals.find(head.str()); it != scope.locals.end()) {
    const ExprRef *of = it->second.alias();
    const bool parts = of && ((*of)->type.elem == Elem::Logits || (*of)->kind == Expr::TopParts);
    if (const Binding &b = it->second.binding;
        parts || std::holds_alternative<Tree>(b) || std::holds_alternative<Broken>(b))
      return partOfLocal(it->second, e);
  }
  if (head == "kv")
    return checkPoolName(e);
  if (head == "sampling" && scope.kind != Scope::Params) {
    std::vector<std::string> names;
    for (const char *name : settingNames) {
      names.push_back("sampling." + std::string(name));
      if (rest == name)
        return rest == "top_k" ? make(Expr::Sampling, Type::scalar(Elem::I32), e.loc, {}, Name{name}, {0, INT32_MAX})
                               : make(Expr::Sampling, Type::scalar(Elem::F32), e.loc, {}, Name{name});
    }
    ctx.reportUnknown(Diag::UnknownName, e.loc, e.text, names);
    return nullptr;
  }
  if (ctx.isModel(head.str())) {
    if (const auto [word, key] = rest.split('.'); word == "config" && !key.empty()) {
      const ModelFacts *model = ctx.model(head.str());
      const auto number = model && model->config ? model->config(key.str()) : std::nullopt;
      if (!number) {
        diags.report(Diag::UnknownConfigKey, e.loc, head.str(), key.str());
        return nullptr;
      }
      const bool whole =
          *number == static_cast<double>(static_cast<int64_t>(*number)) && *number >= INT32_MIN && *number <= INT32_MAX;
      return whole ? intConst(static_cast<int64_t>(*number), e.loc)
                   : fromConstant({Elem::F32, 0, static_cast<float>(*number)}, e.loc, false);
    }
  } else if (const CheckedPolicy *p = ctx.policy(head.str())) {
    ctx.used.insert(p->name);
    if (ExprRef part = partOfPolicy(*p, e, rest.str()))
      return part;
    std::vector<std::string> names;
    for (const CheckedOutput &o : p->outputs)
      names.push_back(p->name + "." + o.name);
    for (const CheckedField &f : p->state)
      names.push_back(p->name + "." + f.name);
    if (!ctx.bad.count(rest.str()) && ctx.firstUse(e.text))
      ctx.reportUnknown(Diag::UnknownName, e.loc, e.text, names);
    return nullptr;
  }
  if (!ctx.firstUse(head.str()))
    return nullptr;
  diags.report(Diag::UnknownName, e.loc, e.text);
  std::vector<std::string> heads = ctx.out.models;
  heads.push_back("kv");
  if (scope.kind != Scope::Params)
    heads.push_back("sampling");
  for (const CheckedPolicy &p : ctx.out.policies)
    heads.push_back(p.name);
  diags.suggest(head, heads);
  return nullptr;
}

} // namespace megalith::sema
