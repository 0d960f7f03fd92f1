#include "Checker.h"
#include "megalith/Syntax/Parse.h"
#include "llvm/ADT/StringRef.h"
#include <algorithm>
#include <cmath>

namespace megalith::sema {

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
  const auto v = make(Expr::Neg, a->type, e.loc, {a}, {},
                      a->type.is(Elem::I32) ? arithmetic(BinaryOp::Sub, Range::of(0), a->range) : Range());
  return isLiteral(*a) ? written(v) : v;
}

/// The number that an operation on written numbers is.
ExprRef Checker::written(const ExprRef &e) {
  Overflow overflow;
  if (auto c = evaluate(*e, &overflow))
    return fromConstant(*c, e->loc, true);
  report(overflow);
  return nullptr;
}

/// Sequences have room for `mostCapacity` elements; tables for so many rows, and `mostCells` elements.
bool Checker::hasRoom(const Type &type, const std::string &what, SourceLoc loc, const Expr *of) {
  if (type.isScalar() || (type.length() <= mostCapacity && (!type.table || type.rows * type.capacity <= mostCells)))
    return true;
  if (type.length() >= Unbounded)
    diags.report(Diag::UnboundedSequence, loc, what);
  else if (type.length() > mostCapacity)
    diags.report(Diag::TypeMismatch, loc, "the length of " + what, fmt::format("at most {}", mostCapacity),
                 type.length());
  else
    diags.report(Diag::TypeMismatch, loc, "the number of elements of " + what, fmt::format("at most {}", mostCells),
                 type.rows * type.capacity);
  if (of)
    noteBound(*of);
  return false;
}

ExprRef Checker::concat(ExprRef a, ExprRef b, SourceLoc loc) {
  const bool same = unify(a, b);
  for (const ExprRef &side : {a, b}) {
    if (side->type.isScalar()) {
      diags.report(Diag::TypeMismatch, side->loc, "an operand of `+` beside a sequence", "a sequence such as `[x]`",
                   side->type.str());
      return nullptr;
    }
    if (side->type.length() >= Unbounded) {
      diags.report(Diag::UnboundedSequence, side->loc, "this operand of `+`");
      noteBound(*side);
      return nullptr;
    }
  }
  if (!same) {
    diags.report(Diag::OperandTypes, loc, "+", "two sequences of the same type", a->type.str(), b->type.str());
    noteNoTokens(*a, b->type.elem);
    noteNoTokens(*b, a->type.elem);
    return nullptr;
  }
  Type type = a->type.withLength(mostTogether(a, b));
  type.capacity = type.table ? std::max(a->type.capacity, b->type.capacity) : type.capacity;
  auto v = make(Expr::SeqConcat, type, loc, {a, b});
  if (!hasRoom(type, "what `+` joins", loc, v.get()))
    return nullptr;
  v->range = a->type.length() == 0 ? b->range : b->type.length() == 0 ? a->range : hull(a->range, b->range);
  return together(v, a->pieces + b->pieces);
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
                 "`i in a..b` inside a function such as `map` or `count`");
    return nullptr;
  }
  BinaryOp op = entry->second;
  if (op == BinaryOp::And || op == BinaryOp::Or) {
    // The right side is evaluated only sometimes, so an effect there would surprise.
    Scope inner = scope;
    inner.noCalls = inner.noEffects = "an operand of `and` or `or`";
    std::string what = fmt::format("an operand of `{}`", e.text);
    ExprRef a = expect(*e.args[0], Elem::Bool, what, inner);
    ExprRef b = expect(*e.args[1], Elem::Bool, what, inner);
    if (!a || !b)
      return nullptr;
    return make(Expr::Binary, Type::scalar(Elem::Bool), e.loc, {a, b}, op);
  }
  ExprRef a = value(*e.args[0], scope);
  if (!a && e.args[1]->kind == ast::Expr::Path && state(e.args[1]->text)) // `state == DECODE`
    return nullptr;
  ExprRef b = value(*e.args[1], scope);
  if (!a || !b)
    return nullptr;
  if (op == BinaryOp::Add && (!a->type.isScalar() || !b->type.isScalar()))
    return concat(a, b, e.loc);

  bool sameType = unify(a, b);
  Elem elem = a->type.elem;
  bool number = elem == Elem::I32 || elem == Elem::F32;
  bool equality = op == BinaryOp::Eq || op == BinaryOp::Ne;
  bool arithmeticOp = op <= BinaryOp::Mod;
  const char *need = equality              ? "two values of the same type, no tables"
                     : op == BinaryOp::Mod ? "two i32"
                                           : "two i32 or two f32";
  bool good = sameType && !a->type.table && (equality || number) && !(op == BinaryOp::Mod && elem != Elem::I32) &&
              (equality || a->type.isScalar()) && elem != Elem::None;
  if (!good) {
    diags.report(Diag::OperandTypes, e.loc, e.text, need, a->type.str(), b->type.str());
    noteCasts(a, b, e);
    return nullptr;
  }
  if (a->type.seq && a->type.capacity >= Unbounded && b->type.capacity >= Unbounded) {
    diags.report(Diag::UnboundedSequence, e.loc, fmt::format("both operands of `{}`", e.text));
    return nullptr;
  }
  const auto v = make(Expr::Binary, Type::scalar(arithmeticOp ? elem : Elem::Bool), e.loc, {a, b}, op,
                      arithmeticOp && elem == Elem::I32 ? arithmetic(op, a->range, b->range) : Range());
  return arithmeticOp && isLiteral(*a) && isLiteral(*b) ? written(v) : v;
}

ExprRef Checker::checkConditional(const ast::Expr &e, Scope &scope) {
  if (e.args.size() < 3 || !e.args[2]) {
    diags.report(Diag::TypeMismatch, e.loc, "`if` inside an expression", "`a if c else b`", "no `else`");
    return nullptr;
  }
  Scope inner = scope;
  inner.noCalls = inner.noEffects = "a conditional expression";
  ExprRef c = expect(*e.args[1], Elem::Bool, "the condition", inner);
  Scope holds = inner, fails = inner;
  if (c) {
    refine(*c, true, holds);
    refine(*c, false, fails);
  }
  ExprRef a = value(*e.args[0], holds);
  ExprRef b = value(*e.args[2], fails);
  if (!a || !b || !c)
    return nullptr;
  if (!unify(a, b)) {
    diags.report(Diag::OperandTypes, e.loc, "if else", "two values of the same type", a->type.str(), b->type.str());
    if (a->type.isScalar() && b->type.isScalar())
      for (auto [from, to] : {std::pair(0, 2), std::pair(2, 0)})
        if ((from ? b : a)->type.elem == Elem::I32 && (from ? a : b)->type.elem == Elem::F32)
          noteCast((from ? b : a)->type, Elem::F32, *e.args[from]);
    return nullptr;
  }
  auto v = make(Expr::Select, wider(a->type, b->type), e.loc, {c, a, b}, {}, hull(a->range, b->range));
  return v->type.isScalar() ? v : together(v, a->pieces + b->pieces);
}

Type wider(Type a, const Type &b) {
  a.capacity = std::max(a.capacity, b.capacity);
  a.rows = std::max(a.rows, b.rows);
  return a;
}

/// What is written with a minus in front: `-w`, `-2 * w`, `0 - w`; `-a + b` may be anything.
static bool hasMinus(const ast::Expr &e) {
  if (e.kind == ast::Expr::Unary)
    return e.text == "-";
  if (e.kind == ast::Expr::Conditional)
    return hasMinus(*e.args[0]) && e.args[2] && hasMinus(*e.args[2]);
  if (e.kind != ast::Expr::Binary)
    return false;
  const bool zero = e.args[0]->kind == ast::Expr::IntLiteral && e.args[0]->intValue == 0;
  return (e.text == "-" && zero) || ((e.text == "-" || e.text == "*" || e.text == "/") && hasMinus(*e.args[0]));
}

ExprRef negated(const ExprRef &e) {
  if (e->kind == Expr::Neg)
    return e->args[0];
  return make(Expr::Neg, e->type, e->loc, {e}, {}, arithmetic(BinaryOp::Sub, Range::of(0), e->range));
}

bool Checker::fromEnd(ExprRef &bound, const ast::Expr &e, bool isIndex) {
  if (!bound || !bound->type.is(Elem::I32))
    return false;
  const auto c = evaluate(*bound);
  if (!c)
    return hasMinus(e);
  if (c->intValue >= 0 && !hasMinus(e))
    return false;
  if (c->intValue > 0 || (isIndex && c->intValue == 0))
    diags.report(Diag::FromEnd, e.loc, ast::written(e), c->intValue, isIndex ? "an index" : "a bound",
                 isIndex ? "below 0" : "at most 0");
  bound = fromConstant(*c, bound->loc, isLiteral(*bound));
  return true;
}

ExprRef Checker::checkIndex(const ast::Expr &e, Scope &scope) {
  ExprRef base = check(*e.args[0], scope);
  const bool rows = base && base->type.elem == Elem::Logits;
  base = plain(base, *e.args[0]);
  if (rows && e.args[0]->kind == ast::Expr::Path) {
    const std::string &l = e.args[0]->text;
    diags.note(fmt::format("of row i the likeliest tokens are `top_k({0}[i:i + 1], n)`, the probability of token x is "
                           "`prob({0}[i:i + 1], [x])`, and its logit `log(p[0]) + logsumexp({0}[i:i + 1])[0]`",
                           l));
  }
  if (e.args.size() > 2) {
    diags.report(Diag::Unsupported, e.loc, "a second index", "`t[i][j]`");
    return nullptr;
  }
  ExprRef index = expect(*e.args[1], Elem::I32, "an index", scope);
  if (!base || !index)
    return nullptr;
  if (base->type.isScalar() || base->type.elem == Elem::None) {
    diags.report(Diag::TypeMismatch, e.args[0]->loc, "what is indexed", "a sequence", base->type.str());
    return nullptr;
  }
  const bool counts = fromEnd(index, *e.args[1], /*isIndex=*/true);
  if (const int64_t most = base->type.length(); most < Unbounded)
    if (const auto c = evaluate(*index); c && (counts ? -c->intValue > most : c->intValue >= most))
      diags.report(Diag::IndexOutside, e.args[1]->loc, c->intValue, ast::written(*e.args[0]),
                   base->kind == Expr::SeqConst || base->kind == Expr::SeqMake ? "" : "at most ", most);
  return make(Expr::SeqAt, base->type.item(), e.loc, {base, index}, Bounds{counts}, base->range);
}

ExprRef Checker::checkSlice(const ast::Expr &e, Scope &scope) {
  ExprRef base = check(*e.args[0], scope), lo, hi;
  if (base && base->kind == Expr::TopParts)
    base = value(*e.args[0], scope); // an error
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
  if (base->type.isScalar()) {
    diags.report(Diag::TypeMismatch, e.args[0]->loc, "what is sliced", "a sequence", base->type.str());
    return nullptr;
  }
  // Upper bound of the length: hi - lo, each side from its own reference point.
  int64_t capacity = base->type.length();
  const bool loEnd = lo && fromEnd(lo, *e.args[1]), hiEnd = hi && fromEnd(hi, *e.args[2]);
  if (loEnd) {
    // A length from the end, less what the other bound leaves out.
    const int64_t least = hiEnd ? std::max<int64_t>(0, -hi->range.hi) : 0;
    capacity = std::min(capacity, asLength(-lo->range.lo - least));
  } else {
    int64_t stop = capacity;
    if (hiEnd && capacity < Unbounded)
      stop = capacity - std::max<int64_t>(0, -hi->range.hi);
    else if (hi && !hiEnd)
      stop = std::min(stop, hi->range.hi);
    int64_t start = lo ? std::max<int64_t>(0, lo->range.lo) : 0;
    if (stop < Unbounded)
      capacity = std::min(capacity, asLength(stop - start));
    if (lo && hi && !hiEnd)
      capacity = std::min(capacity, asLength(mostBetween(*lo, *hi)));
  }
  auto v = make(Expr::SeqSlice, base->type.withLength(std::max<int64_t>(0, capacity)), e.loc, {base, lo, hi},
                Bounds{loEnd, hiEnd}, base->range);
  v->pieces = base->pieces;
  return v;
}

/// The one type of all these: written numbers take that of the others, wherever they stand. False after a report.
bool Checker::alike(std::vector<ExprRef> &items, const std::string &what) {
  const auto elem = [&](Elem e) {
    return std::any_of(items.begin(), items.end(), [&](const ExprRef &v) { return v->type.elem == e; });
  };
  const auto typed = std::find_if(items.begin(), items.end(),
                                  [](const ExprRef &v) { return v->type.elem != Elem::None && !v->type.isScalar(); });
  if (typed != items.end()) {
    const Type like = (*typed)->type;
    for (ExprRef &v : items)
      v = adopt(v, like);
  }
  if (elem(Elem::I32) && (elem(Elem::Token) || elem(Elem::F32)))
    for (ExprRef &v : items)
      v = convert(v, elem(Elem::Token) ? Elem::Token : Elem::F32);
  for (const ExprRef &v : items)
    if (!v->type.sameShape(items[0]->type) || v->type.elem != items[0]->type.elem) {
      diags.report(Diag::TypeMismatch, v->loc, what, items[0]->type.str() + " as the first one", v->type.str());
      return false;
    }
  return true;
}

ExprRef Checker::checkList(const ast::Expr &e, Scope &scope) {
  std::vector<ExprRef> items;
  bool failed = false;
  for (const ast::ExprPtr &item : e.args) {
    items.push_back(value(*item, scope));
    failed |= !items.back();
  }
  if (failed)
    return nullptr;
  if (items.empty())
    return make(Expr::SeqMake, Type::sequence(0, Elem::None), e.loc);
  if (!alike(items, "an element of a list"))
    return nullptr;
  const auto count = static_cast<int64_t>(items.size());
  Type type = Type::sequence(count, items[0]->type.elem);
  Range range = items[0]->range;
  for (const ExprRef &item : items) {
    range = hull(range, item->range);
    if (item->type.table || item->type.capacity >= Unbounded) {
      diags.report(Diag::TypeMismatch, item->loc, "an element of a list", "a number, bool, token or short sequence",
                   item->type.str());
      return nullptr;
    }
    if (item->type.seq)
      type = Type::tableOf(count, std::max(type.table ? type.capacity : 0, item->type.capacity), type.elem);
  }
  auto v = make(Expr::SeqMake, type, e.loc, items, {}, range);
  if (!hasRoom(type, "this list", e.loc, v.get()))
    return nullptr;
  constexpr size_t ofPiece = 8; // elements of a list take less room than other pieces; a table is stored
  return together(v, type.table ? 1 : (items.size() + ofPiece - 1) / ofPiece);
}

} // namespace megalith::sema
