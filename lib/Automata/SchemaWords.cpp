#include "SchemaWords.h"
#include <algorithm>
#include <vector>

using namespace megalith::automata;

static constexpr TypedKeyword Typed[] = {
    {"properties", Object}, {"required", Object},         {"additionalProperties", Object},
    {"items", Array},       {"prefixItems", Array},       {"minItems", Array},
    {"maxItems", Array},    {"minLength", String},        {"maxLength", String},
    {"pattern", String},    {"format", String},           {"minimum", Number},
    {"maximum", Number},    {"exclusiveMinimum", Number}, {"exclusiveMaximum", Number}};
static constexpr const char *Kept[] = {"type", "enum", "const", "anyOf", "oneOf", "allOf", "$ref"};
static constexpr const char *Annotations[] = {"title", "description", "default",      "examples", "$schema",
                                              "$id",   "$comment",    "deprecated",   "readOnly", "writeOnly",
                                              "$defs", "definitions", "discriminator"};
/// Of some draft, and not here: texts that they forbid would be made.
static constexpr const char *Unkept[] = {"not",
                                         "if",
                                         "then",
                                         "else",
                                         "contains",
                                         "minContains",
                                         "maxContains",
                                         "patternProperties",
                                         "propertyNames",
                                         "minProperties",
                                         "maxProperties",
                                         "uniqueItems",
                                         "multipleOf",
                                         "divisibleBy",
                                         "dependencies",
                                         "dependentSchemas",
                                         "dependentRequired",
                                         "additionalItems",
                                         "unevaluatedItems",
                                         "unevaluatedProperties",
                                         "$anchor",
                                         "$dynamicRef",
                                         "$dynamicAnchor",
                                         "$recursiveRef",
                                         "$recursiveAnchor",
                                         "$vocabulary",
                                         "contentEncoding",
                                         "contentMediaType",
                                         "contentSchema",
                                         "extends",
                                         "disallow"};
/// Of some draft, and of strings.
static constexpr const char *Formats[] = {
    "date",          "time",      "date-time",     "uuid",         "ipv4",         "duration",
    "email",         "idn-email", "hostname",      "idn-hostname", "ipv6",         "uri",
    "uri-reference", "iri",       "iri-reference", "uri-template", "json-pointer", "relative-json-pointer",
    "regex",         "color",     "phone",         "host-name",    "ip-address"};

template <size_t N> static bool isOneOf(std::string_view text, const char *const (&list)[N]) {
  return std::find(std::begin(list), std::end(list), text) != std::end(list);
}

std::span<const TypedKeyword> megalith::automata::typedKeywords() { return Typed; }

Word megalith::automata::wordOf(std::string_view key) {
  const auto isTyped = [&](const TypedKeyword &known) { return key == known.name; };
  if (isOneOf(key, Kept) || std::any_of(std::begin(Typed), std::end(Typed), isTyped))
    return Word::Kept;
  return isOneOf(key, Unkept) ? Word::Refused : isOneOf(key, Annotations) ? Word::Annotation : Word::Unknown;
}

bool megalith::automata::isFormat(std::string_view name) { return isOneOf(name, Formats); }

/// Letters that make one of the other; those of both sizes are one.
static size_t distance(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j)
    row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t corner = row[0]++;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t changed = corner + (lower(a[i - 1]) != lower(b[j - 1]));
      corner = row[j];
      row[j] = std::min({changed, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

std::string megalith::automata::meantKeyword(std::string_view key) {
  if (key.starts_with("_") || key.starts_with("x-") || key.size() < 3 || key.size() > 32)
    return "";
  std::string_view nearest;
  size_t least = SIZE_MAX;
  const auto look = [&](std::string_view name) {
    const size_t letters = distance(key, name);
    if (letters <= (std::min(key.size(), name.size()) < 6 ? 1 : 2) && letters < least)
      nearest = name, least = letters;
  };
  std::for_each(std::begin(Annotations), std::end(Annotations), look);
  for (const TypedKeyword &typed : Typed)
    look(typed.name);
  std::for_each(std::begin(Kept), std::end(Kept), look);
  std::for_each(std::begin(Unkept), std::end(Unkept), look);
  // A slip of what says nothing, such as `example`, says nothing either.
  return wordOf(nearest) == Word::Annotation ? "" : std::string(nearest);
}
