//===- Params.cpp - compile-time constants --------------------------------===//
#include "Builtins.h"
#include "Declarations.h"
#include "llvm/ADT/StringExtras.h"
#include <cmath>

namespace megalith::sema {

static bool fitsInt32(int64_t v) { return v >= INT32_MIN && v <= INT32_MAX; }

/// The operation that an expression is on numbers; nullopt: none.
static std::optional<ir::Op> operationOf(const Expr &e) {
  switch (e.kind) {
  case Expr::Neg:
    return ir::Op::Neg;
  case Expr::Not:
    return ir::Op::Not;
  case Expr::Binary:
    return e.as<BinaryOp>();
  case Expr::Select:
    return ir::Op::Select;
  case Expr::Cast:
    return ir::Op::Cast;
  case Expr::Math:
    return builtins()[static_cast<size_t>(e.as<Function>())].op;
  default:
    return std::nullopt;
  }
}

/// One step of a constant, without a look at what its type holds.
static std::optional<Constant> step(const Expr &e, const std::vector<Constant> &args) {
  if (e.kind == Expr::Const)
    return Constant{e.type.elem, e.as<Number>().intValue, e.as<Number>().floatValue};
  const std::optional<ir::Op> op = operationOf(e);
  std::vector<ir::ScalarValue> values;
  for (const Constant &c : args)
    values.push_back({c.elem == Elem::F32, c.intValue, static_cast<float>(c.floatValue)});
  // `min` and `max` have any number of arguments.
  while (values.size() > 2 && (op == ir::Op::Min || op == ir::Op::Max)) {
    values[1] = *ir::valueOf(*op, {values[0], values[1]});
    values.erase(values.begin());
  }
  const auto value = op ? ir::valueOf(*op, values, e.type.is(Elem::F32)) : std::nullopt;
  return value ? std::optional(Constant{e.type.elem, value->i, value->f}) : std::nullopt;
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
  ctx.diags.report(AnyDiag{overflow.elem == Elem::F32 ? Diag::FloatRange : Diag::IntRange}, overflow.loc,
                   overflow.value);
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

/// Sets a scalar of a param. Empty, or what the text has to be.
static const char *setScalar(Constant &value, llvm::StringRef text) {
  switch (value.elem) {
  case Elem::I32: {
    int64_t v;
    if (text.getAsInteger(10, v) || !fitsInt32(v))
      return "an integer (i32)";
    value.intValue = v;
    return "";
  }
  case Elem::F32: {
    double v;
    if (!llvm::to_float(text, v) || !std::isfinite(static_cast<float>(v)))
      return "a number (f32)";
    value.floatValue = static_cast<float>(v);
    return "";
  }
  case Elem::Bool:
    if (text != "true" && text != "false")
      return "`true` or `false`";
    value.intValue = text == "true";
    return "";
  default:
    return "";
  }
}

void Declarations::applySet(const ast::Param &param, Constant &value, const std::string &text) {
  const auto wrong = [&](const std::string &wanted, const char *note) {
    diags.report(Diag::BadSetValue, SourceLoc(), param.name.text, text, wanted);
    diags.note(param.name.loc, note);
  };
  if (!value.seq) {
    if (const llvm::StringRef wanted = setScalar(value, text); !wanted.empty())
      wrong(wanted.str(), "the param's default has that type");
    return;
  }
  llvm::StringRef list = llvm::StringRef(text).trim();
  llvm::SmallVector<llvm::StringRef, 8> items;
  if (list.consume_front("[") && list.consume_back("]") && !list.trim().empty())
    list.split(items, ',');
  std::vector<Constant> made(items.size(), {.elem = value.elem});
  const auto good = [&] {
    return llvm::all_of(llvm::zip(made, items), [](auto pair) {
      return llvm::StringRef(setScalar(std::get<0>(pair), std::get<1>(pair).trim())).empty();
    });
  };
  if (made.empty() || static_cast<int64_t>(made.size()) > mostCapacity || !good())
    return wrong(fmt::format("a list of 1 to {} {}, as `[{}]`", mostCapacity,
                             value.elem == Elem::F32    ? "numbers (f32)"
                             : value.elem == Elem::Bool ? "`true` or `false`"
                                                        : "integers (i32)",
                             value.elem == Elem::F32    ? "0.5, 2.0"
                             : value.elem == Elem::Bool ? "true, false"
                                                        : "1, 2"),
                 "the param's elements");
  value.items = std::move(made);
}

/// `rows_per_pass`; where that is wrong, which is told, the most that it can be.
static int64_t soundRowsPerPass(const Context &ctx) {
  const CheckedParam *p = ctx.param("rows_per_pass");
  const bool sound = p && !p->value.seq && p->value.elem == Elem::I32 && p->value.intValue >= 1;
  return sound ? std::min<int64_t>(p->value.intValue, limits::rowsPerPass) : limits::rowsPerPass;
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
  const auto reserve = [&](const char *reserved, int64_t otherwise) {
    if (llvm::is_contained(known, reserved) || ctx.in.ofBuffers)
      return;
    known.push_back(reserved);
    ast::Param implicit;
    implicit.name = {reserved, ctx.in.name.loc};
    Constant value{Elem::I32, otherwise, 0};
    for (const auto &[name, text] : ctx.sets)
      if (name == reserved)
        applySet(implicit, value, text);
    ctx.declared[reserved] = "a param";
    ctx.out.params.push_back({reserved, value, ctx.in.name.loc});
  };
#define RESERVED_PARAM(Id, Name, Default, Least, Most, Text)                                                           \
  {                                                                                                                    \
    [[maybe_unused]] const int64_t rowsPerPass = soundRowsPerPass(ctx);                                                \
    reserve(Name, Default);                                                                                            \
  }
#include "megalith/Sema/Builtins.def"
  for (const auto &[name, text] : ctx.sets)
    if (!llvm::is_contained(known, name)) {
      diags.report(Diag::UnknownParam, SourceLoc(), name);
      if (nearestName(name, known).empty())
        diags.note(known.empty() ? "it has none" : "its params are " + llvm::join(known, ", "));
      else
        diags.suggest(name, known);
    }
  if (!ctx.in.ofBuffers)
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
      diags.report(Diag::ParamRange, p->loc, name, p->value.intValue,
                   fmt::format("from {} to {}{}", least, most,
                               llvm::StringRef(name) == "rows_beside" ? ", which is `rows_per_pass`" : ""));
  };
  const int64_t rowsPerPass = soundRowsPerPass(ctx);
#define RESERVED_PARAM(Id, Name, Default, Least, Most, Text) within(Name, Least, Most);
#include "megalith/Sema/Builtins.def"
}

} // namespace megalith::sema
