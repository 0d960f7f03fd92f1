#include "megalith/Json/JsonView.h"
#include "megalith/Json/JsonText.h"
#include "megalith/Text/Text.h"
#include <algorithm>
#include <fmt/format.h>

using namespace megalith;

static std::string ticked(std::string_view key) { return "`" + text::printable(key, 120) + "`"; }

std::string JsonView::nameText() const {
  if (top.empty() && outer < 0)
    return std::string(name);
  std::string text(name);
  for (int64_t index : {outer, inner})
    if (index >= 0)
      text += fmt::format("[{}]", index);
  return ticked(text);
}

void JsonView::wrong(const std::string &but) const {
  throw JsonWrong{fmt::format("{} {}, found `{}`", nameText(), but, jsonShort(*value)), std::string(top)};
}

void JsonView::needObject() const {
  if (!value->is_object())
    wrong("must be an object");
}

JsonView JsonView::member(std::string_view key, const nlohmann::json &of) const {
  JsonView view(of, key);
  view.top = top.empty() ? key : top;
  return view;
}

JsonView JsonView::entry(size_t index) const {
  JsonView view = *this;
  view.value = &(*value)[index];
  (outer < 0 ? view.outer : view.inner) = static_cast<int64_t>(index);
  return view;
}

std::optional<JsonView> JsonView::find(std::string_view key) const {
  needObject();
  auto found = value->find(key);
  if (found == value->end())
    return std::nullopt;
  return member(found.key(), *found);
}

JsonView JsonView::at(std::string_view key) const {
  if (auto found = find(key))
    return *found;
  throw JsonWrong{fmt::format("{} has no {}", nameText(), ticked(key)), std::string(top)};
}

void JsonView::only(std::initializer_list<std::string_view> keys) const {
  members([&](const std::string &key, const JsonView &view) {
    if (std::find(keys.begin(), keys.end(), key) == keys.end())
      throw JsonWrong{
          fmt::format("unknown member {} of {}; it has `{}`", ticked(key), nameText(), fmt::join(keys, "`, `")),
          std::string(view.top)};
  });
}

int64_t JsonView::integer(int64_t least, int64_t most) const {
  const std::optional<int64_t> number = jsonInteger(*value);
  if (!number || *number < least || *number > most)
    wrong(least == INT64_MIN && most == INT64_MAX ? "must be an integer"
                                                  : fmt::format("must be an integer from {} to {}", least, most));
  return *number;
}

double JsonView::number() const {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  if (value->is_number())
    return value->get<double>();
  if (*value == "NaN")
    return std::numeric_limits<double>::quiet_NaN();
  if (*value == "Infinity" || *value == "-Infinity")
    return *value == "Infinity" ? infinity : -infinity;
  wrong("must be a number");
}

bool JsonView::boolean() const {
  if (!value->is_boolean())
    wrong("must be `true` or `false`");
  return value->get<bool>();
}

const std::string &JsonView::string() const {
  if (!value->is_string())
    wrong("must be a string");
  return value->get_ref<const std::string &>();
}

std::vector<int32_t> JsonView::integers32(int32_t least, int32_t most) const {
  std::vector<int32_t> out;
  list([&](const JsonView &view) { out.push_back(view.integer32(least, most)); });
  return out;
}

void megalith::parseJsonText(std::string_view text, nlohmann::json &out) {
  if (auto problem = parseJson(text, out))
    throw JsonWrong{problem->message, "", problem->line, problem->column};
}

unsigned megalith::columnOfMember(std::string_view text, const std::string &key) {
  std::map<std::string, JsonPlace> places;
  JsonOptions options;
  options.places = &places;
  nlohmann::json ignored;
  parseJson(text, ignored, options);
  auto found = places.find(key);
  return found == places.end() || found->second.line != 1 ? 1 : found->second.column;
}
