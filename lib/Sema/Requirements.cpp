// What a config.json has for the entries of `for:` and `requires:`.
#include "ModelConfig.h"
#include "llvm/ADT/STLExtras.h"
#include <fmt/format.h>

namespace megalith {

using nlohmann::json;

bool equals(const ast::Literal &literal, const json &value) {
  switch (literal.kind) {
  case ast::Literal::Null:
    return value.is_null();
  case ast::Literal::Bool:
    return value.is_boolean() && value.get<bool>() == literal.flag;
  case ast::Literal::Number:
    return value.is_number() && value.get<double>() == literal.number;
  case ast::Literal::String:
    return value.is_string() && value.get_ref<const std::string &>() == literal.text;
  case ast::Literal::Empty:
    return value.is_structured() && value.empty();
  }
  return false;
}

static bool isOneOf(const std::vector<ast::Literal> &values, const json &value) {
  return llvm::any_of(values, [&](const ast::Literal &literal) { return equals(literal, value); });
}

static bool isOneOf(const std::vector<ast::Literal> &values, const ast::Literal &fallback) {
  return llvm::any_of(values, [&](const ast::Literal &literal) {
    return literal.kind == fallback.kind && literal.flag == fallback.flag && literal.number == fallback.number &&
           (literal.kind != ast::Literal::String || literal.text == fallback.text);
  });
}

const json *lookUp(const json &object, const std::string &path) {
  if (!object.is_object())
    return nullptr;
  if (auto found = object.find(path); found != object.end())
    return &*found;
  for (size_t dot = path.find('.'); dot != path.npos; dot = path.find('.', dot + 1))
    if (auto found = object.find(path.substr(0, dot)); found != object.end())
      if (const json *inner = lookUp(*found, path.substr(dot + 1)))
        return inner;
  return nullptr;
}

/// Whether one of the keys has this value, and none another one.
static bool agrees(const std::vector<ast::Name> &keys, const json &value, const json &config) {
  bool told = false;
  for (const ast::Name &key : keys)
    if (const json *other = lookUp(config, key.text); other && !other->is_null()) {
      told = true;
      if (*other != value && (!jsonNumber(*other) || jsonNumber(*other) != jsonNumber(value)))
        return false;
    }
  return told;
}

Judgement judge(const ast::Requirement &r, const ConfigFile &config) {
  const json *value = lookUp(config.raw(), r.key.text);
  Judgement result;
  result.given = value;
  result.isNull = value && value->is_null();
  if (!r.same.empty()) { // null is "not given" here, too
    result.found = value ? jsonShort(*value) : "";
    result.right = !value || value->is_null() || agrees(r.same, *value, config.raw());
  } else if (value && r.each && !value->is_null()) {
    result.right = value->is_array() && llvm::all_of(*value, [&](const json &item) { return isOneOf(r.values, item); });
    result.found = jsonShort(*value);
  } else if (value && (!value->is_null() || isOneOf(r.values, *value))) {
    result.right = isOneOf(r.values, *value);
    result.found = jsonShort(*value);
  } else { // null is "not given"
    result.right = !r.fallback || isOneOf(r.values, *r.fallback);
    result.found = r.fallback ? r.fallback->text : "";
  }
  return result;
}

std::string wantedBy(const ast::Requirement &requirement) {
  std::string text;
  for (const ast::Literal &value : requirement.values)
    text += (text.empty() ? "`" : " or `") + value.text + "`";
  for (const ast::Name &key : requirement.same)
    text += (text.empty() ? "the value of `" : "` or `") + key.text;
  if (!requirement.same.empty())
    return text + "`";
  return (requirement.each ? "lists of " : "") + text;
}

static Misfit misfitAt(const ast::Requirement &r, const Judgement &judgement) {
  const std::string has = judgement.given && !judgement.isNull ? "`" + judgement.found + "`"
                          : judgement.found.empty() || judgement.isNull
                              ? "none"
                              : "none, which stands for `" + judgement.found + "`";
  return {r.key.loc, fmt::format("it is for `{}` {}, and the checkpoint has {}", r.key.text, wantedBy(r), has)};
}

std::optional<Misfit> misfitOf(const ast::ModelFile &model, const ConfigFile &config, const Acceptance &acceptance) {
  if (model.audience.empty())
    return Misfit{model.name.loc, "it has no `for:`, and is taken where `graph:` names it"};
  bool named = false; // a config that does not say what it is fits nothing
  for (const ast::Requirement &r : model.audience) {
    const Judgement judgement = judge(r, config);
    if (!judgement.right && !acceptance.has(r.key.text))
      return misfitAt(r, judgement);
    named = named || (judgement.right && judgement.given && !judgement.isNull && ast::namesFamily(r));
  }
  if (named)
    return std::nullopt;
  const auto family = llvm::find_if(model.audience, ast::namesFamily);
  return misfitAt(*family, judge(*family, config));
}

} // namespace megalith
