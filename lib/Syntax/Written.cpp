#include "megalith/Syntax/Parse.h"
#include <fmt/format.h>

namespace megalith::ast {

namespace {

/// Greatest binds tightest, as in docs/language.md.
enum Precedence { Choice = 1, OrLevel, AndLevel, NotLevel, Comparison, Sum, Product, Minus, Primary };

Precedence precedenceOf(const Expr &e) {
  if (e.kind == Expr::Conditional || e.kind == Expr::Range)
    return Choice;
  if (e.kind == Expr::Unary)
    return e.text == "not" ? NotLevel : Minus;
  if (e.kind != Expr::Binary)
    return Primary;
  return e.text == "or"                                    ? OrLevel
         : e.text == "and"                                 ? AndLevel
         : e.text == "+" || e.text == "-"                  ? Sum
         : e.text == "*" || e.text == "/" || e.text == "%" ? Product
                                                           : Comparison;
}

std::string atLeast(const Expr &e, int precedence) {
  return precedenceOf(e) < precedence ? "(" + written(e) + ")" : written(e);
}

std::string optional(const ExprPtr &e) { return e ? written(*e) : ""; }

std::string list(const std::vector<ExprPtr> &items, size_t first) {
  std::string out;
  for (size_t i = first; i < items.size(); ++i)
    out += (i > first ? ", " : "") + written(*items[i]);
  return out;
}

std::string call(const Expr &e) {
  std::string arguments = e.binder ? e.binder->text + " in " : "";
  arguments += list(e.args, 0);
  for (const auto &[name, value] : e.named)
    arguments += (arguments.empty() ? "" : ", ") + name.text + "=" + written(*value);
  return e.text + "(" + arguments + ")";
}

} // namespace

std::string written(const Expr &e) {
  const int own = precedenceOf(e);
  switch (e.kind) {
  case Expr::Unary:
    return (e.text == "not" ? "not " : e.text) + atLeast(*e.args[0], own);
  case Expr::Binary:
    return fmt::format("{} {} {}", atLeast(*e.args[0], own == Comparison ? own + 1 : own), e.text,
                       atLeast(*e.args[1], own + 1));
  case Expr::Conditional:
    return fmt::format("{} if {}{}", atLeast(*e.args[0], own + 1), atLeast(*e.args[1], own + 1),
                       e.args.size() > 2 && e.args[2] ? " else " + atLeast(*e.args[2], own) : "");
  case Expr::Index:
    return atLeast(*e.args[0], Primary) + "[" + list(e.args, 1) + "]";
  case Expr::Slice:
    return fmt::format("{}[{}:{}]", atLeast(*e.args[0], Primary), optional(e.args[1]), optional(e.args[2]));
  case Expr::Bounds:
    return optional(e.args[0]) + ":" + optional(e.args[1]);
  case Expr::List:
    return "[" + list(e.args, 0) + "]";
  case Expr::Range:
    return fmt::format("{}..{}", atLeast(*e.args[0], Sum), atLeast(*e.args[1], Sum));
  case Expr::Call:
    return call(e);
  default:
    return print(e);
  }
}

} // namespace megalith::ast
