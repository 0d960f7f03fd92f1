//===- Values.cpp - typed expressions, and the spelling of types ----------===//
#include "Values.h"
#include <algorithm>

namespace megalith::sema {

std::shared_ptr<Expr> make(Expr::Kind kind, Type type, SourceLoc loc, std::vector<ExprRef> args, Expr::Data data,
                           Range range) {
  return std::make_shared<Expr>(Expr{kind, type, range, 1, loc, std::move(args), std::move(data)});
}

ExprRef intConst(int64_t v, SourceLoc loc, bool literal) {
  return make(Expr::Const, Type::scalar(Elem::I32), loc, {}, Number{v, 0, literal}, Range::of(v));
}

bool isLiteral(const Expr &e) { return e.kind == Expr::Const && e.as<Number>().literal; }

/// Who has it.
enum class Owner { Slot, Stage, Pool };
static Owner ownerOf(PoolName what) {
  using enum Owner;
  static const Owner table[] = {
#define POOL_NAME(Id, Name, Type, Of, Operation, Text) Of,
#include "megalith/Sema/Builtins.def"
  };
  return table[static_cast<size_t>(what)];
}

bool ofSlot(PoolName what) { return ownerOf(what) == Owner::Slot; }
bool ofRequest(PoolName what) { return ownerOf(what) != Owner::Pool; }

const Call &callOf(const Expr &e) { return (e.kind == Expr::ModelCall ? e : *e.args[0]).as<Call>(); }
const ExprRef &callIn(const ExprRef &e) { return e->kind == Expr::LogitRows ? e->args[0] : e; }

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

ExprRef adopt(const ExprRef &e, const Type &like) {
  if (!e || e->type.elem != Elem::None || like.elem == Elem::None || like.isScalar())
    return e;
  auto typed = std::make_shared<Expr>(*e);
  for (ExprRef &arg : typed->args)
    arg = adopt(arg, like);
  typed->type = like.withLength(e->type.length());
  return typed;
}

bool mayFault(const Expr &e) {
  // What makes a sequence for a range has room for as many as the range is known to have there.
  return (e.kind == Expr::Over && !e.type.isScalar()) || e.kind == Expr::SeqAt || e.kind == Expr::BufferAt ||
         e.is(Predefined::Last) ||
         (e.kind != Expr::ModelCall &&
          std::any_of(e.args.begin(), e.args.end(), [](const ExprRef &arg) { return arg && mayFault(*arg); }));
}

bool isMap(const Expr &e) { return e.kind == Expr::Over && e.as<Through>().function == Function::Map; }

ExprRef convert(ExprRef e, Elem elem) {
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

bool unify(ExprRef &a, ExprRef &b) {
  a = adopt(a, b->type);
  b = adopt(b, a->type);
  a = convert(a, b->type.elem);
  b = convert(b, a->type.elem);
  return a->type.sameShape(b->type) && a->type.elem == b->type.elem;
}

Type wider(Type a, const Type &b) {
  a.capacity = std::max(a.capacity, b.capacity);
  a.rows = std::max(a.rows, b.rows);
  return a;
}

ExprRef negated(const ExprRef &e) {
  if (e->kind == Expr::Neg)
    return e->args[0];
  return make(Expr::Neg, e->type, e->loc, {e}, {}, ir::intervalOf(ir::Op::Neg, e->range));
}

bool sameExpr(const Expr &a, const Expr &b) {
  if (&a == &b)
    return true;
  // An append is another one each time.
  if (a.kind != b.kind || a.type != b.type || a.data != b.data || a.args.size() != b.args.size() ||
      a.kind == Expr::Append)
    return false;
  for (size_t i = 0; i < a.args.size(); ++i)
    if (!a.args[i] != !b.args[i] || (a.args[i] && !sameExpr(*a.args[i], *b.args[i])))
      return false;
  return true;
}

std::string elemName(Elem e) {
  switch (e) {
  case Elem::I32:
    return "i32";
  case Elem::F32:
    return "f32";
  case Elem::Bool:
    return "bool";
  case Elem::Token:
    return "token";
  case Elem::Logits:
  case Elem::Kept:
    return "logits";
  case Elem::None: // the parameter of a message; no type has it
    return "empty";
  }
  return "";
}

std::optional<Elem> elemNamed(llvm::StringRef name) {
  for (Elem e : {Elem::I32, Elem::F32, Elem::Bool, Elem::Token})
    if (name == elemName(e))
      return e;
  return std::nullopt;
}

Type typeNamed(llvm::StringRef text) {
  const bool seq = text.consume_back("[]");
  const Elem elem = elemNamed(text).value_or(Elem::None);
  return seq ? Type::sequence(Unbounded, elem) : Type::scalar(elem);
}

std::string Type::str() const {
  if (elem == Elem::None)
    return "[]";
  if (table)
    return fmt::format("{}[{}, {}]", elemName(elem), rows, capacity);
  if (!seq)
    return elemName(elem);
  if (elem == Elem::Logits)
    return "logits";
  return capacity >= Unbounded ? fmt::format("{}[]", elemName(elem)) : fmt::format("{}[{}]", elemName(elem), capacity);
}

std::string plural(size_t n, const char *noun) { return fmt::format("{} {}{}", n, noun, n == 1 ? "" : "s"); }

} // namespace megalith::sema
