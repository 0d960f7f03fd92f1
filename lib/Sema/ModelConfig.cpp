#include "ModelConfig.h"
#include "megalith/Checkpoint/BFloat16.h"
#include <cmath>
#include <fmt/format.h>

namespace megalith {

std::optional<double> asNumber(const ConfigValue &value) {
  if (auto *i = std::get_if<int64_t>(&value))
    return static_cast<double>(*i);
  if (auto *f = std::get_if<double>(&value))
    return *f;
  return std::nullopt;
}

std::string describe(const ConfigValue &value) {
  if (auto *b = std::get_if<bool>(&value))
    return *b ? "a bool (true)" : "a bool (false)";
  if (auto *i = std::get_if<int64_t>(&value))
    return fmt::format("an integer ({})", *i);
  if (auto *f = std::get_if<double>(&value))
    return fmt::format("a number ({})", *f);
  if (auto *s = std::get_if<std::string>(&value))
    return fmt::format("a string (\"{}\")", *s);
  return std::holds_alternative<NoValue>(value) ? "`none`" : "one for each layer";
}

namespace {

std::vector<std::string> keysOf(const ConfigNames &names) {
  std::vector<std::string> result;
  for (const auto &[name, value] : names)
    result.push_back(name);
  return result;
}

bool isConstantFunction(llvm::StringRef name) {
  return name == "min" || name == "max" || name == "sqrt" || name == "bf16";
}

class Evaluator {
public:
  Evaluator(const ConfigNames &names, Diagnostics &diags) : names(names), diags(diags) {}

  std::optional<ConfigValue> eval(const ast::Expr &e) {
    switch (e.kind) {
    case ast::Expr::IntLiteral:
      return ConfigValue(e.intValue);
    case ast::Expr::FloatLiteral:
      return ConfigValue(e.floatValue);
    case ast::Expr::BoolLiteral:
      return ConfigValue(e.intValue != 0);
    case ast::Expr::StringLiteral:
      return ConfigValue(e.text);
    case ast::Expr::Path: {
      if (e.text == noneWord)
        return ConfigValue(NoValue());
      auto found = names.find(e.text);
      if (found != names.end() && std::holds_alternative<DiffersByLayer>(found->second)) {
        diags.report(Diag::LayerConstant, e.loc, e.text);
        return std::nullopt;
      }
      if (found != names.end())
        return found->second;
      if (diags.reportOnce(Diag::UnknownConfigName, e.loc, e.text))
        diags.suggest(e.text, keysOf(names));
      return std::nullopt;
    }
    case ast::Expr::Unary:
      return unary(e);
    case ast::Expr::Binary:
      return binary(e);
    case ast::Expr::Conditional: {
      auto condition = eval(*e.args[1]);
      if (!condition)
        return std::nullopt;
      auto *b = std::get_if<bool>(&*condition);
      if (!b)
        return mismatch(e.args[1]->loc, "a condition", "a bool", *condition);
      if (!*b && !e.args[2])
        break;
      return eval(*b ? *e.args[0] : *e.args[2]);
    }
    case ast::Expr::Call:
      return call(e);
    default:
      break;
    }
    diags.report(Diag::ModelConstant, e.loc);
    return std::nullopt;
  }

private:
  std::optional<ConfigValue> mismatch(SourceLoc loc, llvm::StringRef what, llvm::StringRef expected,
                                      const ConfigValue &found) {
    diags.report(Diag::ConstantType, loc, what.str(), expected.str(), describe(found));
    return std::nullopt;
  }

  std::optional<ConfigValue> unary(const ast::Expr &e) {
    auto a = eval(*e.args[0]);
    if (!a)
      return a;
    if (e.text == "not") {
      if (auto *b = std::get_if<bool>(&*a))
        return ConfigValue(!*b);
      return mismatch(e.loc, "`not`", "a bool", *a);
    }
    if (auto *i = std::get_if<int64_t>(&*a)) {
      if (int64_t out; !__builtin_sub_overflow(int64_t(0), *i, &out))
        return ConfigValue(out);
      diags.report(Diag::ConstantRange, e.loc, fmt::format("-({})", *i));
      return std::nullopt;
    }
    if (auto *f = std::get_if<double>(&*a))
      return ConfigValue(-*f);
    return mismatch(e.loc, "`-`", "a number", *a);
  }

  std::optional<ConfigValue> binary(const ast::Expr &e) {
    auto a = eval(*e.args[0]);
    if (!a)
      return a;
    const std::string &op = e.text;
    if (op == "and" || op == "or") {
      auto *left = std::get_if<bool>(&*a);
      if (!left)
        return mismatch(e.loc, "`" + op + "`", "bools", *a);
      auto b = eval(*e.args[1]);
      if (!b)
        return b;
      auto *right = std::get_if<bool>(&*b);
      if (!right)
        return mismatch(e.loc, "`" + op + "`", "bools", *b);
      return ConfigValue(op == "and" ? *left && *right : *left || *right);
    }
    auto b = eval(*e.args[1]);
    if (!b)
      return b;
    const bool none = std::holds_alternative<NoValue>(*a) || std::holds_alternative<NoValue>(*b);
    if ((op == "==" || op == "!=") && (none || a->index() == b->index()))
      return ConfigValue((*a == *b) == (op == "=="));
    auto left = asNumber(*a), right = asNumber(*b);
    if (!left || !right)
      return mismatch(e.loc, "`" + op + "`", "numbers", left ? *b : *a);
    if (op == "==" || op == "!=")
      return ConfigValue((*left == *right) == (op == "=="));
    if (op == "<")
      return ConfigValue(*left < *right);
    if (op == "<=")
      return ConfigValue(*left <= *right);
    if (op == ">")
      return ConfigValue(*left > *right);
    if (op == ">=")
      return ConfigValue(*left >= *right);
    auto *i = std::get_if<int64_t>(&*a), *j = std::get_if<int64_t>(&*b);
    if (i && j)
      return integers(e, *i, *j);
    if (op == "+")
      return ConfigValue(*left + *right);
    if (op == "-")
      return ConfigValue(*left - *right);
    if (op == "*")
      return ConfigValue(*left * *right);
    if (op == "/" && *right != 0)
      return ConfigValue(*left / *right);
    if (op == "/") {
      diags.report(Diag::UnevenDivision, e.loc, *left, *right);
      return std::nullopt;
    }
    diags.report(Diag::ModelConstant, e.loc);
    return std::nullopt;
  }

  std::optional<ConfigValue> integers(const ast::Expr &e, int64_t a, int64_t b) {
    int64_t out = 0;
    bool overflow = false;
    if (e.text == "+")
      overflow = __builtin_add_overflow(a, b, &out);
    else if (e.text == "-")
      overflow = __builtin_sub_overflow(a, b, &out);
    else if (e.text == "*")
      overflow = __builtin_mul_overflow(a, b, &out);
    else if (e.text == "%" && b > 0)
      out = a % b + (a % b < 0 ? b : 0); // as in Python, from whose classes such expressions come
    else if (e.text == "/" && b > 0 && a % b == 0)
      out = a / b;
    else if (e.text == "/" || e.text == "%") {
      diags.report(Diag::UnevenDivision, e.loc, a, b);
      return std::nullopt;
    } else {
      diags.report(Diag::ModelConstant, e.loc);
      return std::nullopt;
    }
    if (overflow) {
      diags.report(Diag::ConstantRange, e.loc, fmt::format("{} {} {}", a, e.text, b));
      return std::nullopt;
    }
    return ConfigValue(out);
  }

  std::optional<ConfigValue> call(const ast::Expr &e) {
    const bool pair = e.text == "min" || e.text == "max";
    if (!isConstantFunction(e.text) || e.args.size() != (pair ? 2 : 1) || !e.named.empty()) {
      diags.report(Diag::ModelConstant, e.loc);
      return std::nullopt;
    }
    std::vector<ConfigValue> values;
    for (const ast::ExprPtr &arg : e.args) {
      auto v = eval(*arg);
      if (!v)
        return v;
      if (!asNumber(*v))
        return mismatch(arg->loc, "`" + e.text + "`", "numbers", *v);
      values.push_back(*v);
    }
    if (e.text == "bf16")
      return ConfigValue(static_cast<double>(roundToBf16(static_cast<float>(*asNumber(values[0])))));
    if (!pair)
      return ConfigValue(std::sqrt(*asNumber(values[0])));
    bool firstIsLess = *asNumber(values[0]) < *asNumber(values[1]);
    return values[firstIsLess == (e.text == "min") ? 0 : 1];
  }

  const ConfigNames &names;
  Diagnostics &diags;
};

} // namespace

std::optional<ConfigValue> evaluateConstant(const ast::Expr &expr, const ConfigNames &names, Diagnostics &diags) {
  return Evaluator(names, diags).eval(expr);
}

std::optional<ConfigValue> evaluateInLayer(const ast::Expr &expr, ConfigNames names, const LayerNames &layerNames,
                                           int64_t layer, Diagnostics &diags) {
  for (const auto &[name, values] : layerNames)
    names[name] = values[layer];
  return evaluateConstant(expr, names, diags);
}

bool isConstant(const ast::Expr &expr, const ConfigNames &names) {
  switch (expr.kind) {
  case ast::Expr::IntLiteral:
  case ast::Expr::FloatLiteral:
  case ast::Expr::BoolLiteral:
  case ast::Expr::StringLiteral:
    return true;
  case ast::Expr::Path:
    return expr.text == noneWord || names.count(expr.text) != 0;
  case ast::Expr::Call:
    if (!isConstantFunction(expr.text))
      return false;
    [[fallthrough]];
  case ast::Expr::Unary:
  case ast::Expr::Binary:
  case ast::Expr::Conditional:
    for (const ast::ExprPtr &arg : expr.args)
      if (arg && !isConstant(*arg, names))
        return false;
    return expr.named.empty();
  default:
    return false;
  }
}

} // namespace megalith
