//===- Checks.cpp - what values may be, and what they are together --------===//
#include "Notes.h"
#include "megalith/Syntax/Parse.h"
#include <algorithm>

namespace megalith::sema {

ExprRef plain(Context &ctx, const ExprRef &v, const ast::Expr &e) {
  if (v && v->type.elem == Elem::Logits) {
    if (v->kind == Expr::ModelCall && v->as<Call>().keepNone)
      ctx.diags.report(Diag::KeepNoneReduced, e.loc);
    else
      ctx.diags.report(Diag::LogitsUse, e.loc);
    return nullptr;
  }
  if (v && v->kind == Expr::TopParts) {
    ctx.diags.report(Diag::TypeMismatch, e.loc, "what is read of `top_k`", "`.token` or `.prob` of a name for it",
                     "both");
    if (e.kind == ast::Expr::Path)
      ctx.diags.note(
          fmt::format("`{0}.token[i]` are the tokens of row i, and `{0}.prob[i]` their probabilities", e.text));
    else
      ctx.diags.note("give it a name, `- t: top_k(...)`: `t.token[i]` are the tokens of row i, `t.prob[i]` their "
                     "probabilities");
    return nullptr;
  }
  if (v && v->type.elem == Elem::Kept) {
    ctx.diags.report(Diag::KeptUse, e.loc);
    return nullptr;
  }
  return v;
}

ExprRef as(Context &ctx, ExprRef e, const Type &type, const std::string &what, const std::string &wanted) {
  if (!e)
    return nullptr;
  const ExprRef v = convert(adopt(e, type), type.elem);
  if (v->type.sameShape(type) && v->type.elem == type.elem)
    return v;
  ctx.diags.report(Diag::TypeMismatch, e->loc, what, wanted, e->type.str());
  noteNoTokens(ctx.diags, *e, type.elem);
  return nullptr;
}

bool hasRoom(Context &ctx, const Type &type, const std::string &what, SourceLoc loc, const Expr *of) {
  if (type.isScalar() || (type.length() <= mostCapacity && (!type.table || type.rows * type.capacity <= mostCells)))
    return true;
  if (type.length() >= Unbounded)
    ctx.diags.report(Diag::UnboundedSequence, loc, what);
  else if (type.length() > mostCapacity)
    ctx.diags.report(Diag::TypeMismatch, loc, "the length of " + what, fmt::format("at most {}", mostCapacity),
                     type.length());
  else
    ctx.diags.report(Diag::TypeMismatch, loc, "the number of elements of " + what, fmt::format("at most {}", mostCells),
                     type.rows * type.capacity);
  if (of)
    noteBound(ctx, *of);
  return false;
}

ExprRef concat(Context &ctx, ExprRef a, ExprRef b, SourceLoc loc) {
  const bool same = unify(a, b);
  for (const ExprRef &side : {a, b}) {
    if (side->type.isScalar()) {
      ctx.diags.report(Diag::TypeMismatch, side->loc, "an operand of `+` beside a sequence", "a sequence such as `[x]`",
                       side->type.str());
      return nullptr;
    }
    if (side->type.length() >= Unbounded) {
      ctx.diags.report(Diag::UnboundedSequence, side->loc, "this operand of `+`");
      noteBound(ctx, *side);
      return nullptr;
    }
  }
  if (!same) {
    ctx.diags.report(Diag::OperandTypes, loc, "+", "two sequences of the same type", a->type.str(), b->type.str());
    noteNoTokens(ctx.diags, *a, b->type.elem);
    noteNoTokens(ctx.diags, *b, a->type.elem);
    return nullptr;
  }
  Type type = a->type.withLength(mostTogether(a, b));
  type.capacity = type.table ? std::max(a->type.capacity, b->type.capacity) : type.capacity;
  auto v = make(Expr::SeqConcat, type, loc, {a, b});
  if (!hasRoom(ctx, type, "what `+` joins", loc, v.get()))
    return nullptr;
  v->range = a->type.length() == 0 ? b->range : b->type.length() == 0 ? a->range : hull(a->range, b->range);
  return together(ctx, v, a->pieces + b->pieces);
}

ExprRef together(Context &ctx, std::shared_ptr<Expr> sequence, int pieces) {
  constexpr int most = limits::pieces;
  sequence->pieces = pieces;
  if (pieces <= most)
    return sequence;
  ctx.diags.report(Diag::SequencePieces, sequence->loc, pieces, most);
  return nullptr;
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

bool fromEnd(Context &ctx, ExprRef &bound, const ast::Expr &e, bool isIndex) {
  if (!bound || !bound->type.is(Elem::I32))
    return false;
  const auto c = evaluate(*bound);
  if (!c)
    return hasMinus(e);
  if (c->intValue >= 0 && !hasMinus(e))
    return false;
  if (c->intValue > 0 || (isIndex && c->intValue == 0))
    ctx.diags.report(Diag::FromEnd, e.loc, ast::written(e), c->intValue, isIndex ? "an index" : "a bound",
                     isIndex ? "below 0" : "at most 0");
  bound = fromConstant(*c, bound->loc, isLiteral(*bound));
  return true;
}

bool alike(Context &ctx, std::vector<ExprRef> &items, const std::string &what) {
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
      ctx.diags.report(Diag::TypeMismatch, v->loc, what, items[0]->type.str() + " as the first one", v->type.str());
      return false;
    }
  return true;
}

} // namespace megalith::sema
