//===- Params.cpp - compile-time constants --------------------------------===//
#include "Declarations.h"
#include "device/Exact.h"
#include "llvm/ADT/StringExtras.h"
#include <cmath>

namespace megalith::sema {

static bool fitsInt32(int64_t v) { return v >= INT32_MIN && v <= INT32_MAX; }

/// One arithmetic step on constants of the same type; division by zero gives 0
/// for integers, as at run time.
static std::optional<Constant> fold(BinaryOp op, const Constant &a, const Constant &b) {
  Constant r{a.elem};
  const auto boolean = [](bool v) { return Constant{Elem::Bool, v, 0}; };
  const auto compared = [&](auto x, auto y) -> std::optional<Constant> {
    switch (op) {
    case BinaryOp::Eq:
      return boolean(x == y);
    case BinaryOp::Ne:
      return boolean(x != y);
    case BinaryOp::Lt:
      return boolean(x < y);
    case BinaryOp::Le:
      return boolean(x <= y);
    case BinaryOp::Gt:
      return boolean(x > y);
    case BinaryOp::Ge:
      return boolean(x >= y);
    default:
      return std::nullopt;
    }
  };
  if (a.elem == Elem::F32) {
    float x = a.floatValue, y = b.floatValue;
    switch (op) {
    case BinaryOp::Add:
      r.floatValue = x + y;
      return r;
    case BinaryOp::Sub:
      r.floatValue = x - y;
      return r;
    case BinaryOp::Mul:
      r.floatValue = x * y;
      return r;
    case BinaryOp::Div:
      r.floatValue = x / y;
      return r;
    default:
      return compared(x, y);
    }
  }
  int64_t x = a.intValue, y = b.intValue;
  switch (op) {
  case BinaryOp::Add:
    r.intValue = x + y;
    return r;
  case BinaryOp::Sub:
    r.intValue = x - y;
    return r;
  case BinaryOp::Mul:
    r.intValue = x * y;
    return r;
  case BinaryOp::Div:
    r.intValue = y ? x / y : 0;
    return r;
  case BinaryOp::Mod:
    r.intValue = y ? x % y : 0;
    return r;
  case BinaryOp::And:
    return boolean(x && y);
  case BinaryOp::Or:
    return boolean(x || y);
  default:
    return compared(x, y);
  }
}

static std::optional<Constant> applied(Function f, const std::vector<Constant> &args) {
  const auto real = [](float v) { return Constant{Elem::F32, 0, v}; };
  const auto x = static_cast<float>(args[0].floatValue);
  switch (f) {
  case Function::Min:
  case Function::Max: {
    Constant best = args[0];
    for (const Constant &c : args) {
      bool less = c.elem == Elem::F32 ? c.floatValue < best.floatValue : c.intValue < best.intValue;
      bool greater = c.elem == Elem::F32 ? c.floatValue > best.floatValue : c.intValue > best.intValue;
      if (f == Function::Min ? less : greater)
        best = c;
    }
    return best;
  }
  case Function::Ratio:
    return real(args[1].intValue ? static_cast<float>(args[0].intValue) / static_cast<float>(args[1].intValue) : 0.0f);
  case Function::Abs:
    if (args[0].elem == Elem::I32)
      return Constant{Elem::I32, args[0].intValue < 0 ? -args[0].intValue : args[0].intValue};
    return real(exactAbs(x));
  case Function::Exp:
    return real(exactExp(x));
  case Function::Log:
    return real(exactLog(x));
  case Function::Sqrt:
    return real(exactSqrt(x));
  case Function::Pow:
    return real(exactPow(x, static_cast<float>(args[1].floatValue)));
  default:
    return std::nullopt;
  }
}

/// One step of a constant, without a look at what its type holds.
static std::optional<Constant> step(const Expr &e, const std::vector<Constant> &args) {
  switch (e.kind) {
  case Expr::Const:
    return Constant{e.type.elem, e.as<Number>().intValue, e.as<Number>().floatValue};
  case Expr::Neg:
    return Constant{e.type.elem, -args[0].intValue, -args[0].floatValue};
  case Expr::Not:
    return Constant{Elem::Bool, !args[0].intValue, 0};
  case Expr::Binary:
    return fold(e.as<BinaryOp>(), args[0], args[1]);
  case Expr::Select:
    return args[0].intValue ? args[1] : args[2];
  case Expr::Math:
    return applied(e.as<Function>(), args);
  case Expr::Cast:
    if (e.type.is(Elem::F32))
      return Constant{Elem::F32, 0, static_cast<float>(static_cast<int32_t>(args[0].intValue))};
    return Constant{Elem::I32,
                    args[0].elem == Elem::F32 ? exactInt(static_cast<float>(args[0].floatValue)) : args[0].intValue};
  default:
    return std::nullopt;
  }
}

/// An element of a param that is a sequence.
static std::optional<Constant> element(const Expr &e) {
  if (e.kind != Expr::SeqAt || e.args[0]->kind != Expr::SeqConst)
    return std::nullopt;
  const auto index = evaluate(*e.args[1]);
  const std::vector<ExprRef> &items = e.args[0]->args;
  if (!index)
    return std::nullopt;
  const int64_t i = index->intValue + (e.as<Bounds>().loFromEnd ? static_cast<int64_t>(items.size()) : 0);
  return i >= 0 && i < static_cast<int64_t>(items.size()) ? evaluate(*items[i]) : std::nullopt;
}

std::optional<Constant> evaluate(const Expr &e, Overflow *overflow) {
  std::vector<Constant> args;
  if (!e.type.isScalar())
    return std::nullopt;
  if (e.kind == Expr::SeqAt)
    return element(e);
  if (e.kind == Expr::Over) // its body is not constant
    return std::nullopt;
  if (e.kind != Expr::Const)
    for (const ExprRef &arg : e.args) {
      auto v = arg ? evaluate(*arg, overflow) : std::nullopt;
      if (!v)
        return std::nullopt;
      args.push_back(*v);
    }
  auto result = step(e, args);
  const bool fits =
      !result || (result->elem == Elem::F32 ? std::isfinite(result->floatValue) : fitsInt32(result->intValue));
  if (fits)
    return result;
  if (overflow)
    *overflow = {e.loc, result->elem,
                 std::isnan(result->floatValue) ? "nan"
                 : result->elem == Elem::F32    ? fmt::format("{}", static_cast<float>(result->floatValue))
                                                : std::to_string(result->intValue)};
  return std::nullopt;
}

static void report(Context &ctx, const Overflow &overflow) {
  ctx.diags.report(overflow.elem == Elem::F32 ? Diag::FloatRange : Diag::IntRange, overflow.loc, overflow.value);
}

ExprRef folded(Context &ctx, const ExprRef &e) {
  Overflow overflow;
  if (auto c = evaluate(*e, &overflow))
    return fromConstant(*c, e->loc, true);
  report(ctx, overflow);
  return nullptr;
}

std::optional<Constant> constant(Context &ctx, const ast::Expr &e) {
  Scope scope;
  ExprRef typed = Expressions(ctx, scope).value(e);
  if (!typed)
    return std::nullopt;
  if (!typed->type.isScalar()) {
    ctx.diags.report(Diag::TypeMismatch, typed->loc, "a constant", "one number, `true` or `false`", typed->type.str());
    return std::nullopt;
  }
  return constant(ctx, *typed, "this value");
}

std::optional<Constant> constant(Context &ctx, const Expr &e, const std::string &what) {
  Overflow overflow;
  auto result = evaluate(e, &overflow);
  if (!result && overflow.loc)
    report(ctx, overflow);
  else if (!result)
    ctx.diags.report(Diag::NotConstant, e.loc, what);
  return result;
}

std::optional<int64_t> constantInt(Context &ctx, const ast::Expr &e, const std::string &what) {
  auto c = constant(ctx, e);
  if (!c)
    return std::nullopt;
  if (c->elem != Elem::I32) {
    ctx.diags.report(Diag::TypeMismatch, e.loc, what, "i32", elemName(c->elem));
    return std::nullopt;
  }
  return c->intValue;
}

/// The elements of a param that is a sequence.
static std::optional<Constant> constantList(Context &ctx, const ast::Expr &e) {
  Scope scope;
  ExprRef list = Expressions(ctx, scope).checkList(e);
  if (!list)
    return std::nullopt;
  if (!list->type.seq || list->args.empty()) {
    ctx.diags.report(Diag::TypeMismatch, e.loc, "a param", "one number, or a list of some", list->type.str());
    return std::nullopt;
  }
  Constant c;
  c.elem = list->type.elem;
  c.seq = true;
  for (const ExprRef &item : list->args) {
    auto v = constant(ctx, *item, "an element of a param");
    if (!v)
      return std::nullopt;
    c.items.push_back(*v);
  }
  return c;
}

void Declarations::applySet(const ast::Param &param, Constant &value, const std::string &text) {
  const std::string &name = param.name.text;
  auto wrong = [&](const char *kind) {
    diags.report(Diag::BadSetValue, SourceLoc(), name, text, kind);
    diags.note(param.name.loc, "the param's default has that type");
  };
  if (value.seq) {
    diags.report(Diag::BadSetValue, SourceLoc(), name, text, "written in the file, for it is a list");
    diags.note(param.name.loc, "the param's elements");
    return;
  }
  switch (value.elem) {
  case Elem::I32: {
    int64_t v;
    if (llvm::StringRef(text).getAsInteger(10, v) || !fitsInt32(v))
      return wrong("an integer (i32)");
    value.intValue = v;
    return;
  }
  case Elem::F32: {
    double v;
    if (!llvm::to_float(text, v) || !std::isfinite(static_cast<float>(v)))
      return wrong("a number (f32)");
    value.floatValue = static_cast<float>(v);
    return;
  }
  case Elem::Bool:
    if (text != "true" && text != "false")
      return wrong("`true` or `false`");
    value.intValue = text == "true";
    return;
  default:
    return;
  }
}

void Declarations::checkParams() {
  std::vector<std::string> known;
  for (const ast::Param &p : ctx.in.params) {
    known.push_back(p.name.text);
    if (!declare(p.name, "a param"))
      continue;
    auto v = p.value->kind == ast::Expr::List ? constantList(ctx, *p.value) : constant(ctx, *p.value);
    if (!v) {
      ctx.bad.insert(p.name.text);
      continue;
    }
    for (const auto &[name, text] : ctx.sets)
      if (name == p.name.text)
        applySet(p, *v, text);
    ctx.out.params.push_back({p.name.text, *v, p.name.loc});
  }

  // Reserved params that the file leaves out have their default, and `--set` works on them.
  struct Reserved {
    const char *name;
    int64_t value;
  };
  static const Reserved reserved[] = {
#define RESERVED_PARAM(Id, Name, Default, Least, Most, Text) {Name, Default},
#include "megalith/Sema/Builtins.def"
  };
  for (const Reserved &r : reserved) {
    if (llvm::is_contained(known, r.name))
      continue;
    known.push_back(r.name);
    ast::Param implicit;
    implicit.name = {r.name, ctx.in.name.loc};
    Constant value{Elem::I32, r.value, 0};
    for (const auto &[name, text] : ctx.sets)
      if (name == r.name)
        applySet(implicit, value, text);
    ctx.declared[r.name] = "a param";
    ctx.out.params.push_back({r.name, value, ctx.in.name.loc});
  }
  for (const auto &[name, text] : ctx.sets)
    if (!llvm::is_contained(known, name)) {
      diags.report(Diag::UnknownParam, SourceLoc(), name);
      if (nearestName(name, known).empty())
        diags.note("its params are " + llvm::join(known, ", "));
      else
        diags.suggest(name, known);
    }
  checkReserved();
}

void Declarations::checkReserved() {
  auto within = [&](const char *name, int64_t least, int64_t most) {
    const CheckedParam *p = ctx.param(name);
    if (!p)
      return;
    if (p->value.seq || p->value.elem != Elem::I32)
      diags.report(Diag::TypeMismatch, p->loc, fmt::format("param `{}`", name), "i32",
                   p->value.seq ? "a list" : elemName(p->value.elem));
    else if (p->value.intValue < least || p->value.intValue > most)
      diags.report(Diag::ParamRange, p->loc, name, p->value.intValue, fmt::format("from {} to {}", least, most));
  };
#define RESERVED_PARAM(Id, Name, Default, Least, Most, Text) within(Name, Least, Most);
#include "megalith/Sema/Builtins.def"
}

} // namespace megalith::sema
