//===- Functions.cpp - the builtin functions ------------------------------===//
#include "Expressions.h"
#include "Notes.h"
#include "megalith/Syntax/Parse.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>

namespace megalith::sema {

ExprRef Expressions::checkCall(const ast::Expr &e) {
  if (ctx.isModel(e.text))
    return checkModelCall(e);
  if (const Builtin *f = findBuiltin(e.text))
    return mayCall(*f, e) ? checkFunction(*f, e) : nullptr;
  if (!ctx.firstUse(e.text))
    return nullptr;
  diags.report(Diag::UnknownFunction, e.loc, e.text);
  if (scope.kind == Scope::Params || !noteGuess(diags, e.text, Guess::Function))
    diags.suggest(e.text, ctx.functionNames(scope));
  return nullptr;
}

ExprRef Expressions::checkFunction(const Builtin &f, const ast::Expr &e) {
  // Of values, of logits, or of a range.
  const bool either = f.id == Function::Min || f.id == Function::Max || f.id == Function::ArgMax;
  if (f.binds() || (either && e.binder))
    return checkBinder(f, e);
  Arguments args{f, e};
  if (!match(args))
    return nullptr;
  if (f.where == Builtin::Rows)
    return checkReducer(args);
  if (f.where == Builtin::Effect)
    return checkAppend(args);
  if (!take(args))
    return nullptr;
  switch (f.id) {
  case Function::Len:
    return checkLen(args);
  case Function::Min:
  case Function::Max:
    return checkMinMax(args);
  case Function::Tiers:
    return checkTiers(args);
  case Function::NgramLookup:
    return checkNgram(args);
  case Function::Forced: {
    const int64_t most = asLength(args.values[0]->range.hi);
    if (most > mostCapacity)
      diags.report(Diag::BadArgument, e.loc, "width", "forced",
                   fmt::format("at most {}; write `min(..., {})`", mostCapacity, mostCapacity));
    return most > mostCapacity ? nullptr : make(Expr::Forced, Type::sequence(most), e.loc, args.values);
  }
  case Function::Follow:
    return checkFollow(args);
  case Function::Tree:
    return checkTree(args);
  case Function::Clamp:
    return checkClamp(args);
  case Function::ToF32:
  case Function::ToI32:
    return checkCast(args);
  case Function::ToToken:
    if (const auto c = evaluate(*args.values[0]); c && c->intValue < 0) {
      diags.report(Diag::BadArgument, args.values[0]->loc, "x", "token", fmt::format("0 or above, is {}", c->intValue));
      return nullptr;
    }
    return make(Expr::Cast, Type::scalar(Elem::Token), e.loc, args.values);
  case Function::IsEos:
    return make(Expr::Math, Type::scalar(Elem::Bool), e.loc, args.values, f.id);
  case Function::Abs: {
    const ExprRef &x = args.values[0];
    return make(Expr::Math, x->type, e.loc, {x}, f.id,
                x->type.is(Elem::I32) ? ir::intervalOf(f.op, x->range) : Range());
  }
  default: // f32 of what was checked; what is absent is 0
    for (ExprRef &v : args.values)
      if (!v)
        v = intConst(0, e.loc);
    return make(Expr::Math, Type::scalar(Elem::F32), e.loc, args.values, f.id);
  }
}

ExprRef Expressions::checkLen(const Arguments &args) {
  const ast::Expr &e = *args.written[0];
  ExprRef s = check(e);
  if (s && s->type.elem != Elem::Kept) // of kept rows the number is known, too
    s = plain(ctx, s, e);
  if (!s)
    return nullptr;
  if (s->type.isScalar()) {
    diags.report(Diag::TypeMismatch, e.loc, "the argument of `len`", "a sequence", s->type.str());
    return nullptr;
  }
  if (s->kind == Expr::SeqConst || s->type.elem == Elem::None)
    return intConst(s->type.length(), args.call.loc);
  return make(Expr::SeqLen, Type::scalar(Elem::I32), args.call.loc, {s}, {},
              {0, std::min(s->type.length(), ctx.mostPositions())});
}

/// min(max(x, low), high)
ExprRef Expressions::checkClamp(const Arguments &args) {
  std::vector<ExprRef> values;
  for (const ast::Expr *arg : args.written)
    values.push_back(value(*arg));
  if (llvm::is_contained(values, nullptr) || !alike(ctx, values, "an argument of `clamp`"))
    return nullptr;
  if (const Type &type = values[0]->type; !type.is(Elem::I32) && !type.is(Elem::F32)) {
    diags.report(Diag::TypeMismatch, args.written[0]->loc, "the argument of `clamp`", "i32 or f32", type.str());
    return nullptr;
  }
  const auto pick = [&](Function f, const ExprRef &a, const ExprRef &b) {
    return make(Expr::Math, a->type, args.call.loc, {a, b}, f,
                ir::intervalOf(builtins()[static_cast<size_t>(f)].op, a->range, b->range));
  };
  return pick(Function::Min, pick(Function::Max, values[0], values[1]), values[2]);
}

/// `f32(x)` and `i32(x)`.
ExprRef Expressions::checkCast(const Arguments &args) {
  const bool toF32 = args.of.id == Function::ToF32;
  const ExprRef x = value(*args.written[0]);
  if (!x || x->type.is(toF32 ? Elem::F32 : Elem::I32))
    return x;
  if (toF32 ? !x->type.is(Elem::I32) : !x->type.isScalar()) {
    diags.report(Diag::TypeMismatch, args.written[0]->loc, fmt::format("the argument of {}", args.of.quoted),
                 toF32 ? "i32" : "f32, token or bool", x->type.str());
    if (toF32)
      noteCast(diags, x->type, Elem::F32, *args.written[0]);
    return nullptr;
  }
  return make(Expr::Cast, Type::scalar(toF32 ? Elem::F32 : Elem::I32), args.call.loc, {x}, {},
              x->type.is(Elem::Bool) ? Range{0, 1} : Range());
}

ExprRef Expressions::checkFollow(const Arguments &args) {
  std::vector<ExprRef> values = args.values;
  int64_t most = Unbounded;
  for (const ExprRef &v : values)
    if (v && v->type.seq)
      most = std::min(most, v->type.capacity);
  if (!values.back()) // the root
    values.back() = intConst(0, args.call.loc);
  if (most >= Unbounded) {
    diags.report(Diag::UnboundedSequence, args.call.loc, "the arguments of `follow`");
    return nullptr;
  }
  if (Scope inner = scope; !checkRounds(inner, most, args.of.quoted, args.call.loc))
    return nullptr;
  return make(Expr::Math, Type::sequence(most, Elem::I32), args.call.loc, values, Function::Follow,
              {0, std::max<int64_t>(0, most - 1)});
}

/// `t: tree(...)` makes two values, which are `t.rows` and `t.parents`.
ExprRef Expressions::checkTree(const Arguments &args) {
  const Type &table = args.valueOf("table")->type;
  const int64_t most = 1 + table.rows * table.capacity;
  const Type type = Type::sequence(most);
  if (!hasRoom(ctx, type, "the rows of `tree`", args.call.loc))
    return nullptr;
  if (Scope inner = scope; !checkRounds(inner, most, args.of.quoted, args.call.loc))
    return nullptr;
  return make(Expr::TreeRows, type, args.call.loc, args.values);
}

ExprRef Expressions::checkMinMax(const Arguments &args) {
  const Function f = args.of.id;
  const ast::Expr &e = args.call;
  std::vector<ExprRef> values;
  for (const ast::Expr *arg : args.written)
    values.push_back(value(*arg));
  if (std::find(values.begin(), values.end(), nullptr) != values.end())
    return nullptr;
  // Written numbers take the type of the others, wherever they stand.
  for (const ExprRef &other : values)
    if (!isLiteral(*other))
      for (ExprRef &v : values)
        v = convert(v, other->type.elem);
  for (ExprRef &v : values) {
    bool good = unify(values[0], v) && (v->type.is(Elem::I32) || v->type.is(Elem::F32));
    if (!good) {
      diags.report(Diag::OperandTypes, e.loc, e.text, "only i32 or only f32", values[0]->type.str(), v->type.str());
      const size_t at = &v - values.data();
      if (const bool first = values[0]->type.is(Elem::I32); v->type.is(first ? Elem::F32 : Elem::I32))
        noteCast(diags, Type::scalar(Elem::I32), Elem::F32, *args.written[first ? 0 : at]);
      return nullptr;
    }
  }
  Range range = values[0]->range;
  for (const ExprRef &v : values)
    range = ir::intervalOf(builtins()[static_cast<size_t>(f)].op, range, v->range);
  return make(Expr::Math, values[0]->type, e.loc, values, f, range);
}

ExprRef Expressions::checkTiers(const Arguments &args) {
  const ExprRef x = args.valueOf("x");
  const ast::Expr &table = *args.writtenFor("table");
  bool shaped = table.kind == ast::Expr::List && !table.args.empty();
  for (const ast::ExprPtr &row : table.args)
    shaped &= row->kind == ast::Expr::List && row->args.size() == 2;
  if (!shaped) {
    diags.report(Diag::BadArgument, table.loc, "table", "tiers", "a list of pairs `[[threshold, value], ...]`");
    return nullptr;
  }
  std::vector<ExprRef> items = {x};
  // The first one that x reaches is taken. So none is reached after one that is as low, or that x always reaches; the
  // last one stands for all others as well.
  const auto known = [&](const ExprRef &v) { return evaluate(*v); };
  const auto numberOf = [](const Constant &c) {
    return c.elem == Elem::F32 ? c.floatValue : static_cast<double>(c.intValue);
  };
  const bool open = x->type.is(Elem::I32) && !known(x);
  const ExprRef *always = nullptr;
  for (const ast::ExprPtr &row : table.args) {
    ExprRef threshold = expect(*row->args[0], x->type.elem, "a threshold of `tiers`");
    ExprRef v = value(*row->args[1]);
    if (!threshold || !v)
      return nullptr;
    const bool last = row == table.args.back();
    const auto at = known(threshold);
    const auto written = [](const ast::Expr &e) { return ast::written(e); };
    if (always) {
      diags.report(Diag::TierUnreached, row->args[0]->loc, written(*row->args[0]),
                   fmt::format("`{}` is at least {}", written(*args.writtenFor("x")), x->range.lo));
      return nullptr;
    }
    for (size_t i = 1; i < items.size(); i += 2) {
      const auto before = known(items[i]);
      const double own = at ? numberOf(*at) : 0, other = before ? numberOf(*before) : 0;
      const bool hidden =
          at && before ? (last ? own > other : own >= other) : !at && !last && sameExpr(*threshold, *items[i]);
      if (hidden) {
        const std::string earlier = written(*table.args[i / 2]->args[0]);
        diags.report(Diag::TierUnreached, row->args[0]->loc, written(*row->args[0]),
                     fmt::format("what reaches it takes the tier of `{}` before it", earlier));
        diags.note("the first tier whose threshold is reached is taken: the greatest threshold stands first");
        return nullptr;
      }
    }
    items.push_back(threshold);
    if (open && at && isLiteral(*threshold) && x->range.lo >= at->intValue)
      always = &items.back();
    items.push_back(v);
  }
  Range range = items[2]->range;
  for (size_t i = 2; i < items.size(); i += 2) {
    bool same = unify(items[2], items[i]) && items[i]->type.isScalar();
    if (!same) {
      diags.report(Diag::OperandTypes, items[i]->loc, "tiers", "values of one type", items[2]->type.str(),
                   items[i]->type.str());
      return nullptr;
    }
    range = hull(range, items[i]->range);
  }
  return make(Expr::Tiers, items[2]->type, args.call.loc, items, {}, range);
}

ExprRef Expressions::checkNgram(const Arguments &args) {
  constexpr int64_t mostNgram = limits::ngram;
  const ExprRef s = args.valueOf("s"), width = args.valueOf("width"), from = args.valueOf("from");
  Lookup lookup{.matches = args.count};
  ExprRef n = args.valueOf("ngram");
  if (n) {
    const auto c = evaluate(*n);
    const int64_t most = c ? c->intValue : n->range.hi;
    if (c && (c->intValue < 1 || c->intValue > mostNgram))
      diags.report(Diag::BadArgument, n->loc, "ngram", "ngram_lookup",
                   fmt::format("from 1 to {}, is {}", mostNgram, c->intValue));
    else if (most > mostNgram) {
      diags.report(Diag::BadArgument, n->loc, "ngram", "ngram_lookup",
                   fmt::format("at most {}; write `min(..., {})`", mostNgram, mostNgram));
      return nullptr;
    } else
      lookup.ngram = std::max<int64_t>(1, most);
    if (c)
      n = nullptr;
  }
  // It goes through the whole sequence.
  const ExprRef &searched = from ? from : s;
  if (Scope inner = scope;
      (scope.rounds > 1 || lookup.matches) &&
      !checkRounds(inner, std::min(searched->type.capacity, ctx.mostPositions()), args.of.quoted, args.call.loc))
    return nullptr;
  const int64_t capacity = std::min(asLength(width->range.hi), searched->type.capacity);
  const Type type = lookup.matches ? Type::tableOf(lookup.matches, capacity, Elem::Token) : Type::sequence(capacity);
  if (lookup.matches && !hasRoom(ctx, capacity >= Unbounded ? Type::sequence(capacity) : type,
                                 "what `ngram_lookup` finds", args.call.loc))
    return nullptr;
  auto v = make(Expr::NgramLookup, type, args.call.loc, {s, width, from, n}, lookup);
  v->pieces = lookup.matches ? 1 : searched->pieces;
  return v;
}

} // namespace megalith::sema
