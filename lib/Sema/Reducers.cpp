//===- Reducers.cpp - rows of logits, and what reads them -----------------===//
//
// A call of a model is a lazy value of rows. `l[a:b]` are some of them. A reducer reads rows, and becomes one of the
// call's results: the call computes what is read of it, and nothing else. So what a reducer is given must be known
// before the pass, though the reducer may stand far below its call.
//===----------------------------------------------------------------------===//
#include "Expressions.h"
#include "Notes.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>

namespace megalith::sema {

static bool sameReduction(const Reduction &a, const Reduction &b) {
  return a.name == b.name && a.of == b.of && a.n == b.n && a.part == b.part && a.kept == b.kept && a.minus == b.minus &&
         a.keep == b.keep && a.edited == b.edited && a.with.size() == b.with.size() &&
         std::equal(a.with.begin(), a.with.end(), b.with.begin(), [](const Operand &x, const Operand &y) {
           return x.name == y.name && sameExpr(*x.value, *y.value);
         });
}

bool knownAtCall(Context &ctx, const Expr &e, const Reductions &call, const std::string &what,
                 const std::string &function, const Scope &scope) {
  const auto &changes = scope.locally->changes;
  const auto late = [&](const std::string &why) {
    ctx.diags.report(Diag::ReducerLate, e.loc, what, function, why);
    ctx.diags.note("compute it above the call; what depends on the pass is picked after it, from what every row gives");
    return false;
  };
  const auto unchanged = [&](const std::string &resource, const std::string &text) {
    return std::find(changes.begin() + call.since, changes.end(), resource) == changes.end() ||
           late(text + " may change between the call and here");
  };
  switch (e.kind) {
  case Expr::LocalRead:
    if (const Place &local = e.as<Place>(); static_cast<size_t>(local.index) >= call.locals)
      return late(fmt::format("`{}` is assigned after the call", local.name));
    break;
  case Expr::BinderRead:
    // One that is bound further inside is the argument's own.
    if (const auto depth = static_cast<size_t>(e.as<Place>().index);
        depth >= call.binders && depth < scope.binders.size())
      return late(fmt::format("`{}` differs from round to round", e.as<Place>().name));
    break;
  case Expr::FieldRead:
    if (!unchanged("." + e.name(), fmt::format("`{}`", e.name())))
      return false;
    break;
  case Expr::Request:
    if ((e.is(Predefined::Tokens) || e.is(Predefined::Last) || e.is(Predefined::Budget) ||
         e.is(Predefined::Finished)) &&
        !unchanged("tokens", "what is appended"))
      return false;
    break;
  case Expr::NgramLookup:
  case Expr::Forced:
    if (!unchanged("tokens", "what is appended"))
      return false;
    break;
  case Expr::Pool:
    if (const auto &[pool, what] = e.as<PoolRead>();
        (ofSlot(what) && !unchanged("kv " + pool, fmt::format("the pool of `{}`", pool))) ||
        (what == PoolName::Lag && !unchanged("tokens", "what is appended")))
      return false;
    break;
  case Expr::PolicyState:
  case Expr::PolicyOutput:
    if (!unchanged("policy " + e.name(), fmt::format("`{}.{}`", e.name(), e.as<Name>().member)))
      return false;
    if (const CheckedPolicy *p = e.kind == Expr::PolicyOutput ? ctx.policy(e.name()) : nullptr)
      for (const CheckedOutput &o : p->outputs)
        if (o.name == e.as<Name>().member && o.value && !knownAtCall(ctx, *o.value, call, what, function, scope))
          return false;
    break;
  case Expr::Append:
  case Expr::ModelCall:
    return late("it has an effect");
  case Expr::Reduced:
  case Expr::TopParts:
    if (callOf(e).reductions->since >= call.since)
      return late("it is a result of that pass, or of a later one");
    return true;
  default:
    break;
  }
  return llvm::all_of(e.args,
                      [&](const ExprRef &arg) { return !arg || knownAtCall(ctx, *arg, call, what, function, scope); });
}

/// A setting is one that a request may have, as far as it is known here.
static bool checkSetting(Diagnostics &diags, const Expr &v, const std::string &name, const std::string &reducer) {
  if (v.kind == Expr::SeqMake || v.kind == Expr::SeqConst) // one for each row
    return llvm::all_of(v.args, [&](const ExprRef &item) { return checkSetting(diags, *item, name, reducer); });
  const auto c = v.type.isScalar() ? evaluate(v) : std::nullopt;
  if (!c && v.kind == Expr::Select)
    return checkSetting(diags, *v.args[1], name, reducer) && checkSetting(diags, *v.args[2], name, reducer);
  const auto within = [&](bool good, const char *wanted, const std::string &found) {
    if (!good)
      diags.report(Diag::BadArgument, v.loc, name, reducer, fmt::format("{}, is {}", wanted, found));
    return good;
  };
  if (name == "top_k")
    return within(v.range.hi >= 0 && (!c || c->intValue >= 0), "0 (all) or above",
                  c ? std::to_string(c->intValue) : fmt::format("at most {}", v.range.hi));
  if (!c || v.type.elem != Elem::F32)
    return true;
  const double x = c->floatValue;
  const std::string found = fmt::format("{}", static_cast<float>(x));
  return name == "temperature" ? within(x >= 0, "0 or above", found)
         : name == "top_p"     ? within(x > 0 && x <= 1, "above 0 and at most 1", found)
         : name == "min_p"     ? within(x >= 0 && x <= 1, "from 0 to 1", found)
                               : true;
}

/// A bound of rows as a reducer gets it: a negative one counts from the end of those that are served.
static ExprRef rowBound(const ExprRef &bound, bool fromEnd) {
  if (!fromEnd)
    return bound;
  const ExprRef most = intConst(INT32_MAX, bound->loc);
  if (bound->kind == Expr::Const)
    return bound->as<Number>().intValue < 0 ? bound : most; // 0 from the end is after all rows
  const ExprRef negative =
      make(Expr::Binary, Type::scalar(Elem::Bool), bound->loc, {bound, intConst(0, bound->loc)}, BinaryOp::Lt);
  return make(Expr::Select, bound->type, bound->loc, {negative, bound, most}, {}, {bound->range.lo, INT32_MAX});
}

void takeRowBounds(const Expr &rows, Reduction &into) {
  for (int side : {0, 1})
    if (const ExprRef &bound = rows.args[side + 1]) {
      const bool fromEnd = side ? rows.as<Bounds>().hiFromEnd : rows.as<Bounds>().loFromEnd;
      into.with.push_back({side ? "last" : "first", rowBound(bound, fromEnd), fromEnd});
    }
}

/// `sampling`, or the settings by name.
static bool takeSettings(Diagnostics &diags, const Arguments &args, Reduction &into) {
  const ast::Expr *all = args.writtenFor("sampling");
  if (all && (all->kind != ast::Expr::Path || all->text != "sampling")) {
    diags.report(Diag::BadArgument, all->loc, "sampling", into.name,
                 "`sampling`, the request's settings; write others by name: `temperature=0.7`");
    if (all->kind == ast::Expr::Path)
      diags.suggest(all->text, {"sampling"});
    return false;
  }
  bool good = true;
  into.edited = all != nullptr;
  for (const char *name : settingNames) {
    const Elem elem = name == std::string("top_k") ? Elem::I32 : Elem::F32;
    if (const ExprRef own = args.valueOf(name)) {
      good &= checkSetting(diags, *own, name, into.name);
      into.with.push_back({name, own});
    } else if (all) {
      into.with.push_back({name, make(Expr::Sampling, Type::scalar(elem), all->loc, {}, Name{name})});
    }
  }
  return good;
}

ExprRef Expressions::checkKept(const ast::Expr &e, const std::string &what) {
  ExprRef v = check(e);
  if (!v || (v->kind == Expr::FieldRead && v->type.elem == Elem::Kept))
    return v;
  diags.report(Diag::TypeMismatch, e.loc, what, "the name of a field that keeps rows of logits", v->type.str());
  return nullptr;
}

ExprRef passForKept(Diagnostics &diags, const std::string &reducer, SourceLoc loc, const Scope &scope) {
  if (!scope.call || callOf(*scope.call).keepNone) {
    diags.report(Diag::KeptNoPass, loc, reducer);
    diags.note("let it come after a call without `keep=none`, of any model");
    return nullptr;
  }
  return scope.call;
}

/// `only`, `without`, `bias` and `by`.
bool Expressions::takeByHand(const Arguments &args, Reduction &into) {
  bool good = true;
  for (const char *name : {"only", "without"}) {
    const ast::Expr *written = args.writtenFor(name);
    if (!written)
      continue;
    const std::string what = fmt::format("argument `{}` of `{}`", name, into.name);
    ExprRef v = convert(value(*written), Elem::Token);
    if (v && !v->type.isSequence(Elem::Token) && !(v->type.table && v->type.elem == Elem::Token)) {
      diags.report(Diag::TypeMismatch, written->loc, what, "a sequence of tokens, or a table with one for each row",
                   v->type.str());
      v = nullptr;
    }
    if (v && !hasRoom(ctx, v->type, what, written->loc, v.get()))
      v = nullptr;
    good &= bool(v);
    if (v)
      into.with.push_back({name, v});
  }
  const ExprRef bias = args.valueOf("bias"), by = args.valueOf("by");
  if (bool(bias) != bool(by)) {
    diags.report(Diag::BadArgument, (bias ? bias : by)->loc, bias ? "bias" : "by", into.name,
                 fmt::format("given together with `{}`: `bias=tokens, by=numbers`", bias ? "by" : "bias"));
    return false;
  }
  for (const auto &[name, v] : {std::pair<const char *, const ExprRef &>("bias", bias), {"by", by}})
    if (v) {
      good &= hasRoom(ctx, v->type, fmt::format("argument `{}` of `{}`", name, into.name), v->loc, v.get());
      into.with.push_back({name, v});
    }
  return good;
}

ExprRef Expressions::checkReducer(Arguments &args) {
  const Function f = args.of.id;
  const ast::Expr &e = args.call, &read = *args.written[0];
  ExprRef logits = check(read);
  if (!logits)
    return nullptr;
  const bool kept = logits->type.elem == Elem::Kept;
  if (logits->type.elem != Elem::Logits && !kept) {
    diags.report(Diag::TypeMismatch, read.loc, fmt::format("the argument of {}", args.of.quoted),
                 "the logits of a model call", logits->type.str());
    if (f == Function::ArgMax && logits->type.seq)
      noteRange(diags, e.text, read);
    return nullptr;
  }
  if (kept && f == Function::ArgMax) { // the field has them
    auto tokens = std::make_shared<Expr>(*logits);
    tokens->type.elem = Elem::Token;
    return tokens;
  }
  const ExprRef call = kept ? passForKept(diags, e.text, read.loc, scope) : callIn(logits);
  if (!call)
    return nullptr;
  if (callOf(*call).keepNone) {
    diags.report(Diag::KeepNoneReduced, read.loc);
    return nullptr;
  }
  // No effects: they would happen before the pass.
  Scope inner = scope;
  inner.noCalls = inner.noEffects = "what a reducer is given";
  bool good = with(inner).take(args);
  Reduction r;
  r.name = e.text;
  r.loc = e.loc;
  r.n = args.count;
  int64_t rows = logits->type.capacity;
  // What it reads, then what it is given, in the order of the IR's operands.
  if (kept) {
    rows = std::min(rows, call->type.capacity);
    const ExprRef field = logits->kind == Expr::SeqSlice ? logits->args[0] : logits;
    r.kept = field->name();
    if (logits->kind == Expr::SeqSlice)
      takeRowBounds(*logits, r);
    r.with.push_back({"kept", field});
  }
  if (logits->kind == Expr::LogitRows) {
    r.of = logits->as<Bounds>().result;
    takeRowBounds(*logits, r);
  }
  const auto give = [&](const char *name) {
    if (const ExprRef v = args.valueOf(name))
      r.with.push_back({name, v});
  };
  give("tokens");
  if (const ExprRef tokens = args.valueOf("tokens"))
    rows = std::min(rows, tokens->type.capacity);
  good &= takeSettings(diags, args, r);
  give("noise");
  give("ahead");
  if (const ast::Expr *minus = args.writtenFor("minus")) {
    const ExprRef field = with(inner).checkKept(*minus, "argument `minus` of `sample`");
    good &= field && passForKept(diags, e.text, minus->loc, scope);
    if (field) {
      r.minus = field->name();
      r.with.push_back({"minus", field});
    }
  }
  good &= takeByHand(args, r);
  if (!good)
    return nullptr;
  if (const ExprRef &guard = callOf(*call).reductions->guard) {
    if (!r.kept.empty() || !r.minus.empty()) {
      diags.report(Diag::Unsupported, e.loc, "kept rows of a call in an `if`",
                   "the call outside, fed nothing where it is not wanted: `l: target([x] if c else [])`");
      return nullptr;
    }
    for (Operand &given : r.with)
      if (!given.value->type.isScalar() || mayFault(*given.value))
        given.value = guarded(guard, given.value);
  }
  for (const Operand &given : r.with)
    if (!knownAtCall(ctx, *given.value, *callOf(*call).reductions, fmt::format("`{}`", given.name), e.text, scope))
      return nullptr;
  const Elem elem = f == Function::TopK ? Elem::Token : typeNamed(args.of.result).elem;
  r.type = r.n > 0 ? Type::tableOf(rows, r.n, elem) : Type::sequence(rows, elem);
  if (r.type.table && !hasRoom(ctx, r.type, fmt::format("what `{}` gives", e.text), e.loc))
    return nullptr;
  if (f != Function::TopK)
    return reducedBy(ctx, std::move(r), call, e.loc);
  // One of its two parts is computed where somebody reads it.
  return make(Expr::TopParts, r.type, e.loc, {call}, std::make_shared<const Reduction>(r));
}

ExprRef reducedBy(Context &ctx, Reduction r, const ExprRef &call, SourceLoc loc) {
  std::vector<Reduction> &list = callOf(*call).reductions->list;
  const auto first = llvm::find_if(list, [&](const Reduction &other) { return sameReduction(other, r); });
  const auto v = make(Expr::Reduced, r.type, loc, {call}, Result{static_cast<int>(first - list.begin())});
  if (first == list.end() && !ctx.looksAhead)
    list.push_back(std::move(r));
  return v;
}

/// `t.token` or `t.prob`, where `t: top_k(...)`.
ExprRef partOfTop(Context &ctx, const Expr &top, llvm::StringRef name, SourceLoc loc) {
  Reduction r = *top.as<Parts>();
  if (name == "prob") {
    r.part = "prob";
    r.type.elem = Elem::F32;
  }
  return reducedBy(ctx, std::move(r), top.args[0], loc);
}

/// `r.h1` of a call `r`: all rows of another result of its model.
ExprRef namedResult(Context &ctx, const ExprRef &rows, llvm::StringRef name, const ast::Expr &e) {
  const ExprRef &call = callIn(rows);
  if (name == "logits" && rows->kind != Expr::LogitRows)
    return rows;
  const ModelFacts *of = ctx.model(callOf(*call).model);
  if (of && !llvm::is_contained(of->results, name)) { // without the model anything may be one
    ctx.diags.report(Diag::UnknownResult, e.loc, of->name, name.str());
    if (of->results.empty())
      ctx.diags.note("its model file names none: it has no `results`");
    else
      ctx.diags.suggest(name, of->results);
    return nullptr;
  }
  if (rows->kind == Expr::LogitRows) {
    ctx.diags.report(Diag::Unsupported, e.loc, "another result of some rows of a call",
                     fmt::format("some rows of another result: `r.{}[a:b]`", name.str()));
    return nullptr;
  }
  return make(Expr::LogitRows, rows->type, e.loc, {call, nullptr, nullptr}, Bounds{.result = name.str()});
}

} // namespace megalith::sema
