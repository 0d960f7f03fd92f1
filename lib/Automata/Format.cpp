#include "megalith/Automata/Format.h"
#include "JsonParts.h"
#include "megalith/Automata/Schema.h"
#include "megalith/Json/JsonText.h"
#include "megalith/Text/Text.h"
#include <fmt/format.h>

using namespace megalith;
using namespace megalith::automata;

namespace {

constexpr uint32_t MostDepth = 1000; ///< that is asked for; the automaton ends long before

[[noreturn]] void refuse(std::string what) { throw Refused{std::move(what), {}}; }

uint32_t depthOf(const Json &value, const char *name) {
  if (!value.is_number_unsigned() || value.get<uint64_t>() > MostDepth)
    refuse(
        fmt::format("`{}` of the format must be a whole number, how deep lists and objects may be nested, found `{}`",
                    name, jsonShort(value)));
  return value.get<uint32_t>();
}

Automaton choiceOf(const Json &texts, const Limits &limits) {
  if (!texts.is_array() || texts.empty())
    refuse(fmt::format("`choice` of the format must be a list of texts, found `{}`", jsonShort(texts)));
  Expression expression;
  std::vector<Expression::Id> parts;
  for (const Json &text : texts) {
    if (!text.is_string() || text.get_ref<const std::string &>().empty())
      refuse(fmt::format("`choice` of the format must hold texts that are not empty, found `{}`", jsonShort(text)));
    parts.push_back(expression.text(text.get_ref<const std::string &>()));
    if (expression.size() > limits.nodes)
      refuse(fmt::format("`choice` of the format has more than {} characters (limit `nodes`)", limits.nodes));
  }
  expression.root = expression.choice(parts);
  return compile(expression, limits);
}

} // namespace

Format automata::readFormat(std::string_view format, const Limits &limits) {
  if (format.size() > limits.nodes)
    refuse(fmt::format("the format has {} bytes, {} are allowed (limit `nodes`)", format.size(), limits.nodes));
  nlohmann::json checked; // refuses keys that occur twice and depth without an end
  if (const auto problem = parseJson(format, checked))
    throw Refused{
        fmt::format("the format is no JSON: line {}, column {}: {}", problem->line, problem->column, problem->message),
        problem->byte};
  const Json whole = Json::parse(format); // keeps the order of keys
  constexpr const char *kinds = "`regex`, `choice`, `json_schema` or `json`";
  if (!whole.is_object())
    refuse(fmt::format("the format must be an object with one of {}, found `{}`", kinds, jsonShort(whole)));
  std::string kind;
  for (const auto &[key, value] : whole.items()) {
    if (key == "depth")
      continue;
    if (key != "regex" && key != "choice" && key != "json_schema" && key != "json")
      refuse(fmt::format("the format has a member `{}`; it has one of {}", text::printable(key, 120), kinds));
    if (!kind.empty())
      refuse(fmt::format("the format has both `{}` and `{}`; it has one of {}", kind, key, kinds));
    kind = key;
  }
  if (kind.empty())
    refuse(fmt::format("the format has none of {}", kinds));
  if (whole.contains("depth") && kind != "json_schema")
    refuse(fmt::format("`depth` of the format is of `json_schema`, not of `{}`", kind));
  const Json &value = whole.at(kind);
  if (kind == "regex") {
    if (!value.is_string())
      refuse(fmt::format("`regex` of the format must be a text, found `{}`", jsonShort(value)));
    return {compile(value.get_ref<const std::string &>(), limits), {}};
  }
  if (kind == "choice")
    return {choiceOf(value, limits), {}};
  if (kind == "json")
    return {compile(jsonOfDepth(depthOf(value, "json"), limits), limits), {}};
  SchemaOptions options{{}, limits};
  if (whole.contains("depth"))
    options.depth = depthOf(whole.at("depth"), "depth");
  SchemaExpression schema = readSchema(value.dump(), options);
  return {compile(schema.expression, limits), std::move(schema.notes)};
}
