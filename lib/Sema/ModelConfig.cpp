#include "ModelConfig.h"
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
  return fmt::format("a string (\"{}\")", std::get<std::string>(value));
}

namespace {

std::vector<std::string> keysOf(const ConfigNames &names) {
  std::vector<std::string> result;
  for (const auto &[name, value] : names)
    result.push_back(name);
  return result;
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
      auto found = names.find(e.text);
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
    if (auto *i = std::get_if<int64_t>(&*a))
      return ConfigValue(-*i);
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
    if ((op == "==" || op == "!=") && a->index() == b->index())
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
      out = a % b;
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
    bool pair = e.text == "min" || e.text == "max";
    if ((!pair && e.text != "sqrt") || e.args.size() != (pair ? 2 : 1) || !e.named.empty()) {
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
    if (!pair)
      return ConfigValue(std::sqrt(*asNumber(values[0])));
    bool firstIsLess = *asNumber(values[0]) < *asNumber(values[1]);
    return values[firstIsLess == (e.text == "min") ? 0 : 1];
  }

  const ConfigNames &names;
  Diagnostics &diags;
};

/// Reads one key; nullopt when it is absent or was reported.
std::optional<ConfigValue> readKey(const ast::ConfigEntry &entry, const nlohmann::json &value,
                                   const ConfigFile &file, Diagnostics &diags) {
  if (value.is_boolean())
    return ConfigValue(value.get<bool>());
  if (value.is_number_integer())
    return ConfigValue(value.get<int64_t>());
  if (value.is_number())
    return ConfigValue(value.get<double>());
  if (value.is_string())
    return ConfigValue(value.get<std::string>());
  diags.report(Diag::ConfigValueKind, entry.key.loc, entry.key.text, file.path(),
               value.is_null() ? "null" : value.is_array() ? "a list" : "an object");
  return std::nullopt;
}

} // namespace

std::optional<ConfigValue> evaluateConstant(const ast::Expr &expr, const ConfigNames &names,
                                            Diagnostics &diags) {
  return Evaluator(names, diags).eval(expr);
}

bool isConstant(const ast::Expr &expr, const ConfigNames &names) {
  switch (expr.kind) {
  case ast::Expr::IntLiteral:
  case ast::Expr::FloatLiteral:
  case ast::Expr::BoolLiteral:
  case ast::Expr::StringLiteral:
    return true;
  case ast::Expr::Path:
    return names.count(expr.text) != 0;
  case ast::Expr::Call:
    if (expr.text != "min" && expr.text != "max" && expr.text != "sqrt")
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

ConfigNames readConfig(const std::vector<ast::ConfigEntry> &entries, const ConfigFile &file,
                       Diagnostics &diags) {
  ConfigNames names;
  unsigned errorsBefore = diags.errors();
  // A default may use a name whose key is missing; that was said already.
  auto fallback = [&](const ast::ConfigEntry &entry, const std::string &name) {
    if (diags.errors() != errorsBefore)
      return;
    if (auto v = evaluateConstant(*entry.fallback, names, diags))
      names[name] = *v;
  };
  auto missing = [&](const ast::ConfigEntry &entry, const std::string &name) {
    diags.report(Diag::MissingConfigKey, entry.key.loc, file.path(), entry.key.text, name);
    diags.suggest(entry.key.text, file.keys());
  };
  for (const ast::ConfigEntry &entry : entries) {
    // The rotary embedding is read by ConfigFile::rope, whichever spelling the
    // checkpoint uses; here only the presence of its keys is checked.
    if (!entry.parts.empty()) {
      for (const ast::ConfigEntry &part : entry.parts) {
        std::string name = entry.name.text + "." + part.name.text;
        if (entry.name.text != "rope" ||
            (part.name.text != "theta" && part.name.text != "scaling")) {
          diags.report(Diag::UnknownKey, part.name.loc, part.name.text,
                       "`config." + entry.name.text + "`");
          if (entry.name.text == "rope")
            diags.suggest(part.name.text, {"theta", "scaling"});
          continue;
        }
        std::optional<nlohmann::json> value = file.find(part.key.text);
        bool absent = !value || value->is_null();
        if (part.name.text == "scaling")
          continue;
        if (!absent) {
          if (auto v = readKey(part, *value, file, diags))
            names[name] = *v;
        } else if (part.fallback) {
          fallback(part, name);
        } else {
          missing(part, name);
        }
      }
      continue;
    }
    std::optional<nlohmann::json> value = file.find(entry.key.text);
    // Checkpoints write null for "use the default".
    if (!value || (value->is_null() && entry.fallback)) {
      if (!entry.fallback)
        missing(entry, entry.name.text);
      else
        fallback(entry, entry.name.text);
      continue;
    }
    if (auto v = readKey(entry, *value, file, diags))
      names[entry.name.text] = *v;
  }
  return names;
}

} // namespace megalith
