//===- Binders.cpp - what goes through a range ----------------------------===//
#include "Expressions.h"
#include "Notes.h"
#include <algorithm>

namespace megalith::sema {

bool Expressions::checkRange(const ast::Expr &range, const std::string &what, Scope &inner, ExprRef &low, ExprRef &high,
                             int64_t &most) {
  Scope bounds = scope;
  bounds.noCalls = bounds.noEffects = "a range";
  low = with(bounds).expect(*range.args[0], Elem::I32, "the range of " + what);
  high = with(bounds).expect(*range.args[1], Elem::I32, "the range of " + what);
  if (!low || !high)
    return false;
  most = mostBetween(*low, *high);
  if (checkRounds(inner, most, what, range.args[1]->loc, high.get()))
    return true;
  most = 1;
  return false;
}

ExprRef Expressions::checkBinder(const Builtin &f, const ast::Expr &e) {
  const llvm::StringRef takes = f.binds() ? f.text : "i in a..b, value";
  if (!e.binder || e.args.size() != takes.count(", ") + (f.id == Function::Sort ? 0 : 1) || !e.named.empty()) {
    diags.report(Diag::ArgumentCount, e.loc, e.text, fmt::format("`{}`", takes.str()),
                 plural(e.args.size() + e.named.size(), "argument"));
    const bool chosen = !e.args.empty() && e.args[0]->kind == ast::Expr::Conditional;
    if (!e.binder && chosen)
      diags.note("a choice in front of `..` stands in parentheses: `i in (a if c else b)..n`");
    else if (!e.binder && !e.args.empty() && f.id != Function::Map)
      noteRange(diags, e.text, *e.args[0]);
    return nullptr;
  }
  const auto &[name, loc] = *e.binder;
  if (ctx.isReserved(name)) {
    diags.report(Diag::ReservedName, loc, name, "the number of a range");
    return nullptr;
  }
  Scope inner = scope;
  inner.noCalls = inner.noEffects = f.quoted;
  ExprRef low, high;
  int64_t most = 0;
  const bool bounded = checkRange(*e.args[0], f.quoted, inner, low, high, most);
  Range index{0, INT32_MAX};
  if (low && high)
    index = {low->range.lo, std::max(low->range.lo, high->range.hi - 1)};
  if (scope.locals.count(name) || ctx.declared.count(name)) {
    diags.report(Diag::DuplicateName, loc, name, ctx.declared.count(name) ? ctx.declared[name] : "a local");
    return nullptr;
  }
  auto v = make(Expr::Over, Type::scalar(Elem::I32), e.loc, {low, high},
                Through{f.id, {static_cast<int>(inner.binders.size()), name}, most}, index);
  inner.binders.emplace_back(name, index);
  ExprRef done = checkOver(v, e, inner, most);
  return bounded ? done : nullptr;
}

/// `v` has its range, in args and `range`; it gets what is computed for each of it.
ExprRef Expressions::checkOver(std::shared_ptr<Expr> v, const ast::Expr &e, Scope &inner, int64_t most) {
  const Function f = v->as<Through>().function;
  const Range index = v->range;
  const auto number = [&](const ast::Expr &of) -> ExprRef {
    ExprRef n = with(inner).value(of);
    if (!n || n->type.is(Elem::I32) || n->type.is(Elem::F32))
      return n;
    diags.report(Diag::TypeMismatch, n->loc, fmt::format("the value of `{}`", e.text), "i32 or f32", n->type.str());
    return nullptr;
  };
  const auto made = [&](Type type) -> ExprRef {
    v->type = type;
    return hasRoom(ctx, type, fmt::format("what `{}` makes", e.text), e.loc, v->args[1].get()) ? v : nullptr;
  };
  // Of an empty range there is none.
  const Range places{std::min<int64_t>(-1, index.lo), index.hi};
  switch (f) {
  case Function::PrefixWhile:
  case Function::Count:
  case Function::All:
  case Function::Any:
  case Function::Find: {
    ExprRef condition = with(inner).expect(*e.args[1], Elem::Bool, fmt::format("the condition of `{}`", e.text));
    if (!condition)
      return nullptr;
    v->args.push_back(condition);
    v->range = f == Function::Find ? places : Range{0, most};
    if (f == Function::All || f == Function::Any) {
      v->type = Type::scalar(Elem::Bool);
      v->range = {};
    }
    return v;
  }
  case Function::Map: {
    ExprRef item = with(inner).value(*e.args[1]);
    if (!item)
      return nullptr;
    if (item->type.table || item->type.capacity >= Unbounded) {
      diags.report(Diag::TypeMismatch, item->loc, "the value of `map`", "a number, bool, token or short sequence",
                   item->type.str());
      return nullptr;
    }
    v->args.push_back(item);
    v->range = item->range;
    return made(item->type.seq ? Type::tableOf(most, item->type.capacity, item->type.elem)
                               : Type::sequence(most, item->type.elem));
  }
  case Function::Filter: {
    const ExprRef item = with(inner).value(*e.args[1]);
    const ExprRef condition = with(inner).expect(*e.args[2], Elem::Bool, "the condition of `filter`");
    if (!item || !condition)
      return nullptr;
    if (!item->type.isScalar()) {
      diags.report(Diag::TypeMismatch, item->loc, "the value of `filter`", "a number, bool or token", item->type.str());
      return nullptr;
    }
    v->args.push_back(item);
    v->args.push_back(condition);
    v->range = item->range;
    return made(Type::sequence(most, item->type.elem));
  }
  case Function::Top: {
    ExprRef by = number(*e.args[1]);
    ExprRef k = expect(*e.args[2], Elem::I32, "argument `k` of `top`");
    if (!by || !k)
      return nullptr;
    v->args.push_back(by);
    v->args.push_back(k);
    return hasRoom(ctx, Type::sequence(most), "the range of `top`", e.loc)
               ? made(Type::sequence(std::max<int64_t>(0, std::min(most, k->range.hi)), Elem::I32))
               : nullptr;
  }
  case Function::Sort: {
    constexpr size_t mostKeys = limits::sortKeys;
    const bool list = e.args[1]->kind == ast::Expr::List;
    std::vector<const ast::Expr *> keys;
    if (list)
      for (const ast::ExprPtr &key : e.args[1]->args)
        keys.push_back(key.get());
    else
      keys.push_back(e.args[1].get());
    if (keys.empty() || keys.size() > mostKeys) {
      diags.report(Diag::BadArgument, e.args[1]->loc, "keys", "sort", fmt::format("from 1 to {} numbers", mostKeys));
      return nullptr;
    }
    for (const ast::Expr *key : keys) {
      v->args.push_back(number(*key));
      if (!v->args.back())
        return nullptr;
    }
    return made(Type::sequence(most, Elem::I32));
  }
  default: { // Sum, Min, Max, ArgMin, ArgMax, Scan
    ExprRef item = number(*e.args[1]);
    if (!item)
      return nullptr;
    v->args.push_back(item);
    const Range r = item->range;
    const bool integer = item->type.is(Elem::I32);
    // Sums of 0 to `most` of them.
    const int64_t least = std::min<int64_t>(0, r.lo) * most, greatest = std::max<int64_t>(0, r.hi) * most;
    const Range sums = integer && least >= INT32_MIN && greatest <= INT32_MAX ? Range{least, greatest} : Range();
    if (f == Function::ArgMin || f == Function::ArgMax) {
      v->range = places;
      return v;
    }
    v->range = f == Function::Sum || f == Function::Scan ? sums : integer ? hull(r, Range::of(0)) : Range();
    v->type = item->type;
    return f == Function::Scan ? made(Type::sequence(most, item->type.elem)) : v;
  }
  }
}

/// A stage runs while all others wait, so its loops have bounds: each as many rounds as a request has positions, a few
/// more for what goes beyond them, and all of a stage together not very many.
bool Expressions::checkRounds(Scope &inner, int64_t most, const std::string &what, SourceLoc loc, const Expr *of) {
  if (inner.kind == Scope::Items) // nobody waits for it but its caller
    return true;
  constexpr int64_t beyond = limits::roundsBeyond, together = limits::roundsTogether;
  const int64_t limit = ctx.mostPositions() + beyond;
  const bool nested = inner.rounds > 1;
  const auto tooMany = [&](const std::string &which, const std::string &rounds, int64_t allowed) {
    diags.report(Diag::RangeBound, loc, which, rounds, allowed);
    return false;
  };
  if (most > limit) {
    tooMany(what, most < INT32_MAX ? std::to_string(most) : "any number of", limit);
    if (of)
      noteBound(ctx, *of);
    return false;
  }
  const int64_t rounds = inner.rounds * std::max<int64_t>(1, most);
  if (nested && rounds > together)
    return tooMany(what + " and the ranges around it", std::to_string(rounds), together);
  // A range in another one takes the place of that one's rounds.
  if (inner.locally) {
    const int64_t all = inner.locally->rounds + rounds - (nested ? inner.rounds : 0);
    if (inner.locally->rounds < 0) // it was said
      return false;
    if (const int64_t allowed = std::max(together, 4 * limit); all > allowed) {
      inner.locally->rounds = -1;
      tooMany(fmt::format("{} and all ranges and loops before it in the {}", what,
                          inner.kind == Scope::Policy ? "policy" : "stage"),
              std::to_string(all), allowed);
      diags.note("nothing else happens while a stage runs: all other requests wait, and none can be taken back");
      return false;
    }
    inner.locally->rounds = all;
  }
  inner.rounds = rounds;
  return true;
}

} // namespace megalith::sema
