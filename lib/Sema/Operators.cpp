#include "Expressions.h"
#include "Notes.h"
#include "megalith/Syntax/Parse.h"
#include "llvm/ADT/StringRef.h"
#include <algorithm>
#include <cmath>

namespace megalith::sema {

ExprRef Expressions::checkUnary(const ast::Expr &e) {
  // The least i32 has no positive counterpart.
  if (e.text == "-" && e.args[0]->kind == ast::Expr::IntLiteral && -e.args[0]->intValue == INT32_MIN)
    return intConst(INT32_MIN, e.loc, /*literal=*/true);
  if (e.text == "not") {
    ExprRef a = expect(*e.args[0], Elem::Bool, "the operand of `not`");
    return a ? make(Expr::Not, Type::scalar(Elem::Bool), e.loc, {a}) : nullptr;
  }
  ExprRef a = value(*e.args[0]);
  if (!a)
    return nullptr;
  if (!a->type.is(Elem::I32) && !a->type.is(Elem::F32)) {
    diags.report(Diag::TypeMismatch, e.args[0]->loc, "the operand of `-`", "i32 or f32", a->type.str());
    return nullptr;
  }
  const auto v =
      make(Expr::Neg, a->type, e.loc, {a}, {}, a->type.is(Elem::I32) ? ir::intervalOf(ir::Op::Neg, a->range) : Range());
  return isLiteral(*a) ? folded(ctx, v) : v;
}

ExprRef Expressions::checkBinary(const ast::Expr &e) {
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
    ExprRef a = with(inner).expect(*e.args[0], Elem::Bool, what);
    ExprRef b = with(inner).expect(*e.args[1], Elem::Bool, what);
    if (!a || !b)
      return nullptr;
    return make(Expr::Binary, Type::scalar(Elem::Bool), e.loc, {a, b}, op);
  }
  ExprRef a = value(*e.args[0]);
  if (!a && e.args[1]->kind == ast::Expr::Path && ctx.state(e.args[1]->text)) // `state == DECODE`
    return nullptr;
  ExprRef b = value(*e.args[1]);
  if (!a || !b)
    return nullptr;
  if (op == BinaryOp::Add && (!a->type.isScalar() || !b->type.isScalar()))
    return concat(ctx, a, b, e.loc);

  bool sameType = unify(a, b);
  Elem elem = a->type.elem;
  bool number = elem == Elem::I32 || elem == Elem::F32;
  bool equality = op == BinaryOp::Eq || op == BinaryOp::Ne;
  bool arithmeticOp = !ir::hasTrait(op, ir::Trait::Truth);
  const char *need = equality              ? "two values of the same type, no tables"
                     : op == BinaryOp::Mod ? "two i32"
                                           : "two i32 or two f32";
  bool good = sameType && !a->type.table && (equality || number) && !(op == BinaryOp::Mod && elem != Elem::I32) &&
              (equality || a->type.isScalar()) && elem != Elem::None;
  if (!good) {
    diags.report(Diag::OperandTypes, e.loc, e.text, need, a->type.str(), b->type.str());
    noteCasts(diags, a, b, e);
    return nullptr;
  }
  if (a->type.seq && a->type.capacity >= Unbounded && b->type.capacity >= Unbounded) {
    diags.report(Diag::UnboundedSequence, e.loc, fmt::format("both operands of `{}`", e.text));
    return nullptr;
  }
  const auto v = make(Expr::Binary, Type::scalar(arithmeticOp ? elem : Elem::Bool), e.loc, {a, b}, op,
                      arithmeticOp && elem == Elem::I32 ? ir::intervalOf(op, a->range, b->range) : Range());
  return arithmeticOp && isLiteral(*a) && isLiteral(*b) ? folded(ctx, v) : v;
}

ExprRef Expressions::checkConditional(const ast::Expr &e) {
  if (e.args.size() < 3 || !e.args[2]) {
    diags.report(Diag::TypeMismatch, e.loc, "`if` inside an expression", "`a if c else b`", "no `else`");
    return nullptr;
  }
  Scope inner = scope;
  inner.noCalls = inner.noEffects = "a conditional expression";
  ExprRef c = with(inner).expect(*e.args[1], Elem::Bool, "the condition");
  Scope holds = inner, fails = inner;
  if (c) {
    refine(*c, true, holds);
    refine(*c, false, fails);
  }
  ExprRef a = with(holds).value(*e.args[0]);
  ExprRef b = with(fails).value(*e.args[2]);
  if (!a || !b || !c)
    return nullptr;
  if (!unify(a, b)) {
    diags.report(Diag::OperandTypes, e.loc, "if else", "two values of the same type", a->type.str(), b->type.str());
    if (a->type.isScalar() && b->type.isScalar())
      for (auto [from, to] : {std::pair(0, 2), std::pair(2, 0)})
        if ((from ? b : a)->type.elem == Elem::I32 && (from ? a : b)->type.elem == Elem::F32)
          noteCast(diags, (from ? b : a)->type, Elem::F32, *e.args[from]);
    return nullptr;
  }
  auto v = make(Expr::Select, wider(a->type, b->type), e.loc, {c, a, b}, {}, hull(a->range, b->range));
  return v->type.isScalar() ? v : together(ctx, v, a->pieces + b->pieces);
}

ExprRef Expressions::checkIndex(const ast::Expr &e) {
  if (std::vector<const ast::Expr *> indices; const CheckedBuffer *buffer = bufferOf(e, indices))
    return checkElement(e, *buffer, indices);
  ExprRef base = check(*e.args[0]);
  const bool rows = base && base->type.elem == Elem::Logits;
  base = plain(ctx, base, *e.args[0]);
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
  ExprRef index = expect(*e.args[1], Elem::I32, "an index");
  if (!base || !index)
    return nullptr;
  if (base->type.isScalar() || base->type.elem == Elem::None) {
    diags.report(Diag::TypeMismatch, e.args[0]->loc, "what is indexed", "a sequence", base->type.str());
    return nullptr;
  }
  const bool counts = fromEnd(ctx, index, *e.args[1], /*isIndex=*/true);
  if (const int64_t most = base->type.length(); most < Unbounded)
    if (const auto c = evaluate(*index); c && (counts ? -c->intValue > most : c->intValue >= most))
      diags.report(Diag::IndexOutside, e.args[1]->loc, c->intValue, ast::written(*e.args[0]),
                   base->kind == Expr::SeqConst || base->kind == Expr::SeqMake ? "" : "at most ", most);
  return make(Expr::SeqAt, base->type.item(), e.loc, {base, index}, Bounds{counts}, base->range);
}

/// Of a sequence, or of the rows of a call.
ExprRef Expressions::checkSlice(const ast::Expr &e) {
  if (std::vector<const ast::Expr *> indices; const CheckedBuffer *buffer = bufferOf(*e.args[0], indices)) {
    diags.report(Diag::WholeBuffer, e.loc, buffer->name);
    diags.note("a slice is copied, by a statement of its own: `- to[a:b]: from[c:d]`");
    return nullptr;
  }
  ExprRef base = check(*e.args[0]), lo, hi;
  if (base && base->kind == Expr::TopParts)
    base = value(*e.args[0]); // an error
  const bool some = base && base->kind == Expr::LogitRows;
  const std::string result = some ? base->as<Bounds>().result : "";
  if (some && (result.empty() || base->args[1] || base->args[2])) {
    diags.report(Diag::Unsupported, e.loc, "a slice of some rows of a call", "one slice of the call's rows");
    return nullptr;
  }
  bool failed = !base;
  for (int side = 0; side < 2; ++side) {
    if (!e.args[side + 1])
      continue;
    ExprRef &bound = side ? hi : lo;
    bound = expect(*e.args[side + 1], Elem::I32, "a bound of a slice");
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
  const bool loEnd = lo && fromEnd(ctx, lo, *e.args[1]), hiEnd = hi && fromEnd(ctx, hi, *e.args[2]);
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
  const bool rows = base->type.elem == Elem::Logits;
  auto v = make(rows ? Expr::LogitRows : Expr::SeqSlice, base->type.withLength(std::max<int64_t>(0, capacity)), e.loc,
                {rows ? callIn(base) : base, lo, hi}, Bounds{loEnd, hiEnd, result}, base->range);
  v->pieces = base->pieces;
  return v;
}

ExprRef Expressions::checkList(const ast::Expr &e) {
  std::vector<ExprRef> items;
  bool failed = false;
  for (const ast::ExprPtr &item : e.args) {
    items.push_back(value(*item));
    failed |= !items.back();
  }
  if (failed)
    return nullptr;
  if (items.empty())
    return make(Expr::SeqMake, Type::sequence(0, Elem::None), e.loc);
  if (!alike(ctx, items, "an element of a list"))
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
  if (!hasRoom(ctx, type, "this list", e.loc, v.get()))
    return nullptr;
  constexpr size_t ofPiece = 8; // elements of a list take less room than other pieces; a table is stored
  return together(ctx, v, type.table ? 1 : (items.size() + ofPiece - 1) / ofPiece);
}

} // namespace megalith::sema
