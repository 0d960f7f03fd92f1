//===- Ranges.cpp - intervals ---------------------------------------------===//
#include "Scope.h"
#include <algorithm>

namespace megalith::sema {

static bool hasEffect(const Expr &e) {
  return e.kind == Expr::Append || e.kind == Expr::ModelCall ||
         std::any_of(e.args.begin(), e.args.end(), [](const ExprRef &arg) { return arg && hasEffect(*arg); });
}

namespace {
/// An i32 as a sum: what it is but for multiples of 2^32.
struct Sum {
  std::vector<std::pair<const Expr *, int64_t>> terms; ///< and how often
  int64_t constant = 0;

  void add(const Expr &e, int64_t times) {
    const bool sum = e.is(BinaryOp::Add) || e.is(BinaryOp::Sub);
    if (e.kind == Expr::Const) {
      constant += times * e.as<Number>().intValue;
    } else if (e.kind == Expr::Neg) {
      add(*e.args[0], -times);
    } else if (sum) {
      add(*e.args[0], times);
      add(*e.args[1], e.is(BinaryOp::Sub) ? -times : times);
    } else if (isShort()) {
      for (auto &[term, count] : terms)
        if (sameExpr(*term, e)) {
          count += times;
          return;
        }
      terms.emplace_back(&e, times);
    }
  }
  bool isShort() const { return terms.size() <= 16; } // others are not worth the time
  /// Where nothing wraps.
  Range range() const {
    Range r = Range::of(constant);
    for (const auto &[term, count] : terms) {
      r.lo += count * (count < 0 ? term->range.hi : term->range.lo);
      r.hi += count * (count < 0 ? term->range.lo : term->range.hi);
    }
    return r;
  }
};
} // namespace

int64_t mostBetween(const Expr &low, const Expr &high) {
  int64_t most = high.range.hi - low.range.lo;
  if (hasEffect(low) || hasEffect(high))
    return std::max<int64_t>(0, most);
  // `x..x + 4` has 4, whatever x is: x + 4 may wrap, and then there are none.
  Sum a, b, between;
  a.add(low, 1);
  b.add(high, 1);
  between.add(high, 1);
  between.add(low, -1);
  const auto fits = [](Range r) { return r.lo >= INT32_MIN && r.hi <= INT32_MAX; };
  const Range difference = between.range();
  if (!between.isShort() || !a.isShort() || !b.isShort())
    return std::max<int64_t>(0, most);
  if ((difference.lo >= 0 && difference.hi <= INT32_MAX) || (fits(a.range()) && fits(b.range())))
    most = std::min(most, difference.hi);
  return std::max<int64_t>(0, most);
}

/// How long `e` is, exactly; `made` keeps what the sum is of.
static void addLength(Sum &sum, const ExprRef &e, std::vector<ExprRef> &made) {
  if (e->kind == Expr::SeqConcat) {
    addLength(sum, e->args[0], made);
    addLength(sum, e->args[1], made);
  } else if (e->kind == Expr::SeqMake || e->kind == Expr::SeqConst) {
    sum.constant += e->type.length();
  } else {
    const ExprRef length = make(Expr::SeqLen, Type::scalar(Elem::I32), e->loc, {e}, {}, {0, e->type.length()});
    made.push_back(length);
    sum.add(*length, 1);
  }
}

/// As many elements as `high` - `low` at most: of a slice, of what is looked up, of a range. `low` may be null.
static std::pair<ExprRef, ExprRef> boundsOf(const Expr &e) {
  if (e.kind == Expr::SeqSlice && e.is(Bounds()) && e.args[2])
    return {e.args[1], e.args[2]};
  if (e.kind == Expr::NgramLookup && !e.as<Lookup>().matches)
    return {nullptr, e.args[1]};
  if (e.kind == Expr::Forced)
    return {nullptr, e.args[0]};
  if (isMap(e))
    return {e.args[0], e.args[1]};
  return {};
}

/// Of `a + b`, where b is cut to what a leaves room for: `a + s[:8 - len(a)]`.
static int64_t mostAfter(const ExprRef &a, const ExprRef &b) {
  const int64_t apart = a->type.length() + b->type.length();
  if (b->kind == Expr::Select)
    return std::max(mostAfter(a, b->args[1]), mostAfter(a, b->args[2]));
  const auto [low, high] = boundsOf(*b);
  if (!high || hasEffect(*a) || hasEffect(*b))
    return apart;
  std::vector<ExprRef> made;
  Sum own, all;
  own.add(*high, 1);
  addLength(all, a, made);
  all.add(*high, 1);
  if (low)
    all.add(*low, -1);
  const Range r = own.range(), sum = all.range();
  if (!own.isShort() || !all.isShort() || r.lo < INT32_MIN || r.hi > INT32_MAX || sum.hi > INT32_MAX)
    return apart;
  return std::min(apart, std::max(a->type.length(), sum.hi)); // b may be empty
}

int64_t mostTogether(const ExprRef &a, const ExprRef &b) {
  if (a->type.length() >= Unbounded)
    return Unbounded;
  return std::min(mostAfter(a, b), b->type.length() >= Unbounded ? Unbounded : mostAfter(b, a));
}

/// Lets `e`, a name or the length of one, be within `range`.
static void narrow(const Expr &e, Range range, Scope &scope) {
  const Expr &of = e.kind == Expr::SeqLen ? *e.args[0] : e;
  const Range now = e.range, both{std::max(now.lo, range.lo), std::min(now.hi, range.hi)};
  if (both.lo > both.hi) // it does not happen
    return;
  Type *type = nullptr;
  Range *known = nullptr;
  if (of.kind == Expr::FieldRead) {
    Scope::Flow &flow = scope.flows.emplace(of.name(), Scope::Flow{of.type, of.range}).first->second;
    type = &flow.type;
    known = &flow.range;
  } else if (of.kind == Expr::LocalRead) {
    const Place &place = of.as<Place>();
    for (auto &[name, local] : scope.locals)
      if (auto *value = std::get_if<Value>(&local.binding); value && local.index == place.index && name == place.name) {
        type = &value->type;
        known = &value->range;
      }
  } else if (of.kind == Expr::BinderRead) {
    known = &scope.binders[of.as<Place>().index].second;
  }
  if (&of == &e && known)
    *known = both;
  else if (&of != &e && type && both.hi < type->length())
    *type = type->withLength(both.hi);
}

void refine(const Expr &condition, bool holds, Scope &scope) {
  if (condition.kind == Expr::Not)
    return refine(*condition.args[0], !holds, scope);
  if (condition.kind != Expr::Binary || hasEffect(condition))
    return;
  BinaryOp op = condition.as<BinaryOp>();
  const Expr &a = *condition.args[0], &b = *condition.args[1];
  if (op == (holds ? BinaryOp::And : BinaryOp::Or)) {
    refine(a, holds, scope);
    refine(b, holds, scope);
    return;
  }
  if (!a.type.is(Elem::I32))
    return;
  if (!holds)
    op = op == BinaryOp::Lt   ? BinaryOp::Ge
         : op == BinaryOp::Le ? BinaryOp::Gt
         : op == BinaryOp::Gt ? BinaryOp::Le
         : op == BinaryOp::Ge ? BinaryOp::Lt
         : op == BinaryOp::Eq ? BinaryOp::Ne
         : op == BinaryOp::Ne ? BinaryOp::Eq
                              : op;
  const Range x = a.range, y = b.range;
  constexpr int64_t lo = INT32_MIN, hi = INT32_MAX;
  switch (op) {
  case BinaryOp::Lt:
  case BinaryOp::Le: {
    const int strict = op == BinaryOp::Lt;
    narrow(a, {lo, y.hi - strict}, scope);
    narrow(b, {x.lo + strict, hi}, scope);
    return;
  }
  case BinaryOp::Gt:
  case BinaryOp::Ge: {
    const int strict = op == BinaryOp::Gt;
    narrow(a, {y.lo + strict, hi}, scope);
    narrow(b, {lo, x.hi - strict}, scope);
    return;
  }
  case BinaryOp::Eq:
    narrow(a, y, scope);
    narrow(b, x, scope);
    return;
  default:
    return;
  }
}

int64_t asLength(int64_t most) { return most > mostCapacity ? Unbounded : std::max<int64_t>(0, most); }

} // namespace megalith::sema
