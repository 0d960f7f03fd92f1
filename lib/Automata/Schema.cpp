#include "megalith/Automata/Schema.h"
#include "JsonParts.h"
#include "NumberRanges.h"
#include "SchemaWords.h"
#include "megalith/Json/JsonText.h"
#include "megalith/Text/Text.h"
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <set>

using namespace megalith;
using namespace megalith::automata;

using Id = Expression::Id;
namespace {

// --- schemas

/// Integers are numbers where types are told apart.
constexpr struct {
  const char *name;
  unsigned types;
} TypeNames[] = {{"null", Null},     {"boolean", Boolean}, {"object", Object}, {"array", Array},
                 {"number", Number}, {"integer", Number},  {"string", String}};

constexpr const char *Date =
    R"((?:(?:[1-9]\d{3}|0[1-9]\d\d|00[1-9]\d|000[1-9])-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])|)"
    R"((?:0[469]|11)-(?:0[1-9]|[12]\d|30)|02-(?:0[1-9]|1\d|2[0-8]))|)"
    R"((?:\d\d(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)-02-29))";
constexpr const char *Time = R"((?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,6})?(?:Z|[+-](?:[01]\d|2[0-3]):[0-5]\d))";
constexpr const char *Uuid = "[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}";
constexpr const char *Ipv4 = R"((?:(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)\.){3}(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d))";

/// Whether some `$ref` stands in it.
bool refers(const Json &value) {
  return value.is_structured() && (value.contains("$ref") || std::any_of(value.begin(), value.end(), refers));
}

/// The pointer of a schema. It calls itself as schemas stand in each other.
struct Place {
  const Place *outer = nullptr;
  std::string key;

  std::string text() const {
    std::vector<const Place *> path;
    for (const Place *at = this; at->outer; at = at->outer)
      path.push_back(at);
    std::string out = "#";
    for (size_t i = path.size(); i-- > 0;) {
      out += '/';
      for (const char c : path[i]->key)
        out += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
    }
    return text::printable(out, 200);
  }
};

std::string ticked(std::string_view text) { return "`" + text::printable(text, 80) + "`"; }

unsigned typesOfValue(const Json &value) {
  return value.is_null()      ? Null
         : value.is_boolean() ? Boolean
         : value.is_object()  ? Object
         : value.is_array()   ? Array
         : value.is_string()  ? String
                              : Number;
}

class SchemaReader {
public:
  SchemaReader(const Json &whole, const SchemaOptions &options, SchemaExpression &result)
      : whole(whole), options(options), result(result), out(result.expression), json(out) {}
  Id schema(const Json &value, const Place &place);

private:
  [[noreturn]] void refuse(const Place &place, const std::string &message) const {
    throw Refused{fmt::format("the schema at `{}`: {}", place.text(), message), {}};
  }
  void note(const Place &place, const std::string &message) {
    if (std::string text = fmt::format("at `{}`: {}", place.text(), message); told.insert(text).second)
      result.notes.push_back(std::move(text));
  }
  /// What says nothing of texts: also what no draft knows.
  static bool isAnnotation(const std::string &key) { return wordOf(key) != Word::Kept && wordOf(key) != Word::Refused; }
  /// The keyword alone may stand here, beside annotations and `also`.
  void alone(const Json &value, const Place &place, std::string_view keyword, std::string_view also = {}) const;
  void checkKeywords(const Json &value, const Place &place);
  std::optional<uint32_t> count(const Json &value, const Place &place, const char *keyword) const;
  Id sub(const Json &value, const Place &place, const char *keyword) {
    return schema(value.at(keyword), {&place, keyword});
  }

  Id anything(const Place &place, unsigned types);
  Id values(const Json &value, const Place &place);
  void checkConstant(const Json &value, const Place &place) const;
  Id reference(const Json &value, const Place &place);
  const Json &target(const Json &value, const Place &place) const;
  Id alternatives(const Json &value, const Place &place, const char *keyword);
  Id typed(const Json &value, const Place &place);
  std::optional<std::pair<int64_t, bool>> bound(const Json &value, const Place &place, bool isLeast,
                                                bool isInteger) const;
  Id number(const Json &value, const Place &place, bool isInteger);
  Id object(const Json &value, const Place &place);
  Id members(const std::vector<Id> &parts, size_t first, size_t end);
  Id behind(const std::vector<Id> &parts, const std::vector<bool> &needed, size_t first, size_t end);
  Id array(const Json &value, const Place &place);
  Id stringOf(const Json &value, const Place &place);

  void checkApart(const Json &list, const Place &place);
  bool apart(const Json &a, const Json &b, const Place &place, int depth);
  unsigned declaredTypes(const Json &value) const;
  void declaredTypesChecked(const Json &value, const Place &place) const;
  std::optional<std::vector<const Json *>> declaredValues(const Json &value) const;
  const Json &resolved(const Json &value, const Place &place) const;

  const Json &whole;
  const SchemaOptions &options;
  SchemaExpression &result;
  Expression &out;
  JsonParts json;
  std::set<std::string> told, unknown; ///< notes; keys that are no keywords
  static constexpr size_t MostUnknown = 1000;
  std::map<std::string, uint32_t> entered; ///< how often each `$ref` is being read
  uint32_t nesting = 0;
  uint64_t compared = 0; ///< constants and keys, of `oneOf`
  static constexpr uint64_t MostCompared = 5'000'000;
  /// Of schemas in each other: they are read by functions that call themselves.
  static constexpr uint32_t MostNesting = 100;
};

void SchemaReader::alone(const Json &value, const Place &place, std::string_view keyword, std::string_view also) const {
  for (const auto &[key, ignored] : value.items())
    if (!isAnnotation(key) && key != keyword && key != also)
      refuse(place, fmt::format("{} beside {} is not supported; put all that is meant into one of them", ticked(key),
                                ticked(keyword)));
}

void SchemaReader::checkKeywords(const Json &value, const Place &place) {
  for (const auto &[key, member] : value.items()) {
    const bool isId = key == "$id" || (key == "id" && member.is_string()); // of draft 4
    if (isId && place.outer && refers(value))
      refuse(place, fmt::format("`{}` inside of a schema changes what `$ref` means; leave it out", key));
    const Word word = wordOf(key);
    if (word == Word::Refused && !(key == "uniqueItems" && member == false))
      refuse(place,
             fmt::format("the keyword {} is not supported, and texts that it forbids would be made; leave it out "
                         "and check the text, or say it with `enum`, `pattern`, or counts of items",
                         ticked(key)));
    if (isId || word != Word::Unknown || !unknown.insert(key).second)
      continue;
    if (unknown.size() > MostUnknown)
      refuse(place, fmt::format("more than {} keys are no keywords of JSON Schema; leave them out", MostUnknown));
    if (const std::string meant = meantKeyword(key); !meant.empty())
      refuse(place, fmt::format("{} is no keyword of JSON Schema; write `{}`, or leave it out", ticked(key), meant));
    note(place, fmt::format("{} is no keyword of JSON Schema; it says nothing of texts", ticked(key)));
  }
}

std::optional<uint32_t> SchemaReader::count(const Json &value, const Place &place, const char *keyword) const {
  const auto found = value.find(keyword);
  if (found == value.end())
    return std::nullopt;
  if (!found->is_number_unsigned() || found->get<uint64_t>() > options.limits.nodes)
    refuse(place,
           fmt::format("`{}` must be an integer from 0 to {} (limit `nodes`), found {}", keyword, options.limits.nodes,
                       ticked(found->dump(-1, ' ', false, Json::error_handler_t::replace))));
  return static_cast<uint32_t>(found->get<uint64_t>());
}

/// A value of which only the types are known.
Id SchemaReader::anything(const Place &place, unsigned types) {
  std::vector<Id> parts;
  if (types & (Object | Array)) {
    if (!options.depth)
      refuse(place, "nothing is said about lists or objects here, and any text needs a bound; say what they have, or "
                    "give a depth");
    note(place, fmt::format("values of any kind are nested at most {} deep", *options.depth));
    if (types == All)
      return json.value(*options.depth, options.limits);
  }
  if (types & Null)
    parts.push_back(json.null);
  if (types & Boolean)
    parts.push_back(json.boolean);
  if (types & Number)
    parts.push_back(json.number);
  if (types & String)
    parts.push_back(json.anyString);
  if (types & (Object | Array)) {
    const bool none = *options.depth == 0;
    const Id inner = none ? json.nothing() : json.value(*options.depth - 1, options.limits);
    if (types & Object)
      parts.push_back(json.object(inner));
    if (types & Array)
      parts.push_back(json.list(inner));
  }
  return out.choice(parts);
}

Id SchemaReader::schema(const Json &value, const Place &place) {
  if (++nesting > MostNesting)
    refuse(place, fmt::format("schemas stand in each other more than {} deep; make it flatter, or give a smaller depth",
                              MostNesting));
  if (out.size() > options.limits.nodes)
    refuse(place, fmt::format("the schema has more than {} parts (limit `nodes`) here; make it smaller, or give a "
                              "smaller depth",
                              options.limits.nodes));
  Id made = 0;
  if (value.is_boolean()) {
    made = value == true ? anything(place, All) : json.nothing();
  } else if (!value.is_object()) {
    refuse(place, "a schema must be an object, `true` or `false`");
  } else {
    checkKeywords(value, place);
    if (value.contains("$ref"))
      made = reference(value, place);
    else if (value.contains("enum") || value.contains("const"))
      made = values(value, place);
    else if (value.contains("anyOf"))
      made = alternatives(value, place, "anyOf");
    else if (value.contains("oneOf"))
      made = alternatives(value, place, "oneOf");
    else if (value.contains("allOf"))
      made = alternatives(value, place, "allOf");
    else
      made = typed(value, place);
  }
  --nesting;
  return made;
}

// --- constants

void SchemaReader::checkConstant(const Json &value, const Place &place) const {
  if (value.is_number_float() && std::abs(value.get<double>()) >= 9007199254740992.0) // 2^53
    refuse(place, fmt::format("the number {} may not be kept exactly; write an integer of 64 bits, or a string",
                              value.dump()));
  if (value.is_structured())
    for (const auto &[ignored, member] : value.items())
      checkConstant(member, place);
}

Id SchemaReader::values(const Json &value, const Place &place) {
  const char *keyword = value.contains("enum") ? "enum" : "const";
  alone(value, place, keyword, "type");
  std::vector<Json> list{value.at(keyword)};
  if (value.contains("enum")) {
    if (!list[0].is_array() || list[0].empty())
      refuse(place, "`enum` must be a list with at least one value");
    list = std::vector<Json>(value.at("enum").begin(), value.at("enum").end());
  }
  std::vector<std::string> types; // none: any
  if (value.contains("type")) {
    declaredTypesChecked(value, place);
    const Json &type = value.at("type");
    if (type.is_string())
      types = {type.get<std::string>()};
    else
      types = type.get<std::vector<std::string>>();
  }
  const auto fits = [&](const Json &one) {
    return types.empty() || std::any_of(types.begin(), types.end(), [&](const std::string &type) {
             for (const auto &known : TypeNames)
               if (type == known.name && known.types == typesOfValue(one))
                 return type != "integer" || one.is_number_integer();
             return false;
           });
  };
  std::vector<Id> parts;
  for (const Json &one : list) {
    if (!fits(one)) {
      note(place, fmt::format("{} is left out, it has not the `type`", ticked(one.dump())));
      continue;
    }
    checkConstant(one, place);
    parts.push_back(json.constant(one));
  }
  if (parts.empty())
    refuse(place, fmt::format("no value of `{}` has the `type`; correct one of them", keyword));
  return out.choice(parts);
}

// --- references

const Json &SchemaReader::target(const Json &value, const Place &place) const {
  const Json &ref = value.at("$ref");
  if (!ref.is_string())
    refuse(place, "`$ref` must be a string");
  const std::string &name = ref.get_ref<const std::string &>();
  if (name == "#")
    return whole;
  for (const char *table : {"$defs", "definitions"}) {
    const std::string front = fmt::format("#/{}/", table);
    if (!name.starts_with(front))
      continue;
    std::string key;
    for (size_t i = front.size(); i < name.size(); ++i) {
      const bool isEscape = name[i] == '~' && i + 1 < name.size() && (name[i + 1] == '0' || name[i + 1] == '1');
      if (name[i] == '/' || name[i] == '%' || (name[i] == '~' && !isEscape))
        refuse(place, fmt::format("the `$ref` {} is not supported; refer to an entry of `$defs` itself", ticked(name)));
      key += isEscape ? (name[++i] == '0' ? '~' : '/') : name[i];
    }
    if (whole.is_object() && whole.contains(table) && whole.at(table).is_object())
      if (auto found = whole.at(table).find(key); found != whole.at(table).end())
        return *found;
    refuse(place, fmt::format("the `$ref` {} leads nowhere; the schema has no such entry", ticked(name)));
  }
  refuse(place, fmt::format("the `$ref` {} is not supported; refer to `#`, `#/$defs/NAME` or `#/definitions/NAME`",
                            ticked(name)));
}

Id SchemaReader::reference(const Json &value, const Place &place) {
  alone(value, place, "$ref");
  const Json &to = target(value, place);
  const std::string name = value.at("$ref").get<std::string>();
  uint32_t &inside = entered[name];
  const uint32_t within = inside + (&to == &whole); // the whole schema is being read anyway
  if (within > 0) {
    if (!options.depth)
      refuse(place,
             fmt::format("the `$ref` {} stands in itself; give a depth to which it is written out", ticked(name)));
    note(place, fmt::format("{} stands in itself at most {} deep", ticked(name), *options.depth));
    if (within > *options.depth)
      return json.nothing();
  }
  ++inside;
  // Errors inside are told by the place of the definition.
  const Place root;
  std::string_view rest = std::string_view(name).substr(1);
  Id made = 0;
  if (rest.empty()) {
    made = schema(to, root);
  } else {
    const Place table{&root, std::string(rest.substr(1, rest.find('/', 1) - 1))};
    made = schema(to, {&table, std::string(rest.substr(rest.find('/', 1) + 1))});
  }
  --inside;
  return made;
}

// --- alternatives

Id SchemaReader::alternatives(const Json &value, const Place &place, const char *keyword) {
  alone(value, place, keyword);
  const Json &list = value.at(keyword);
  if (!list.is_array() || list.empty())
    refuse(place, fmt::format("`{}` must be a list with at least one schema", keyword));
  if (std::string_view(keyword) == "allOf" && list.size() > 1)
    refuse(place, fmt::format("`allOf` with {} entries is not supported; write them as one schema", list.size()));
  const Place here{&place, keyword};
  if (std::string_view(keyword) == "oneOf")
    checkApart(list, here);
  std::vector<Id> parts;
  for (size_t i = 0; i < list.size(); ++i)
    parts.push_back(schema(list[i], {&here, std::to_string(i)}));
  return out.choice(parts);
}

void SchemaReader::checkApart(const Json &list, const Place &place) {
  if (list.size() > 1000)
    refuse(place, fmt::format("{} alternatives, 1000 are allowed; write `anyOf`", list.size()));
  for (size_t a = 0; a < list.size(); ++a)
    for (size_t b = 0; b < a; ++b)
      if (!apart(list[a], list[b], place, 0))
        refuse(place, fmt::format("alternatives {} and {} may both be satisfied, and `oneOf` forbids that; give them "
                                  "different `type`s, a required property with different `const`s, or write `anyOf`",
                                  b, a));
}

/// What `$ref`s lead to.
const Json &SchemaReader::resolved(const Json &value, const Place &place) const {
  const Json *at = &value;
  for (int i = 0; i < 20 && at->is_object() && at->contains("$ref"); ++i)
    at = &target(*at, place);
  return *at;
}

/// The types that values may have which satisfy it, by what it says itself.
unsigned SchemaReader::declaredTypes(const Json &value) const {
  if (!value.is_object())
    return value == false ? 0 : unsigned{All};
  if (const auto values = declaredValues(value)) {
    unsigned types = 0;
    for (const Json *one : *values)
      types |= typesOfValue(*one);
    return types;
  }
  unsigned types = 0;
  if (!value.contains("type"))
    return All;
  const auto add = [&](const Json &type) {
    const auto isNamed = [&](const auto &known) { return type == known.name; };
    const auto found = std::find_if(std::begin(TypeNames), std::end(TypeNames), isNamed);
    types |= found == std::end(TypeNames) ? unsigned{All} : found->types;
  };
  if (value.at("type").is_array())
    for (const Json &type : value.at("type"))
      add(type);
  else
    add(value.at("type"));
  return types;
}

std::optional<std::vector<const Json *>> SchemaReader::declaredValues(const Json &value) const {
  std::vector<const Json *> out;
  if (value.is_object() && value.contains("const"))
    out.push_back(&value.at("const"));
  else if (value.is_object() && value.contains("enum") && value.at("enum").is_array())
    for (const Json &one : value.at("enum"))
      out.push_back(&one);
  else
    return std::nullopt;
  return out;
}

/// Keys in any order are the same object.
static bool sameValue(const Json &a, const Json &b) {
  if (!a.is_structured() || a.type() != b.type())
    return a == b;
  return a.size() == b.size() && nlohmann::json(a) == nlohmann::json(b);
}

/// Whether no value satisfies both.
bool SchemaReader::apart(const Json &first, const Json &second, const Place &place, int depth) {
  const Json &a = resolved(first, place), &b = resolved(second, place);
  const unsigned both = declaredTypes(a) & declaredTypes(b);
  const auto valuesA = declaredValues(a), valuesB = declaredValues(b);
  const auto sizeOf = [](const Json &schema, const char *keyword) -> uint64_t {
    return schema.is_object() && schema.contains(keyword) ? schema.at(keyword).size() : 0;
  };
  compared += 1 + (valuesA ? valuesA->size() : 1) * (valuesB ? valuesB->size() : 1) +
              sizeOf(a, "properties") * (1 + sizeOf(b, "properties") + sizeOf(a, "required") + sizeOf(b, "required"));
  if (compared > MostCompared)
    refuse(place, "the alternatives have too many constants or properties to tell them apart; write `anyOf`");
  if (both == 0)
    return true;
  if (valuesA && valuesB)
    return std::none_of(valuesA->begin(), valuesA->end(), [&](const Json *x) {
      return std::any_of(valuesB->begin(), valuesB->end(), [&](const Json *y) { return sameValue(*x, *y); });
    });
  if (both != Object || depth > 3 || valuesA || valuesB)
    return false;
  const auto needs = [](const Json &schema, const std::string &key) {
    return schema.contains("required") && schema.at("required").is_array() &&
           std::find(schema.at("required").begin(), schema.at("required").end(), key) != schema.at("required").end();
  };
  const auto isObject = [](const Json &schema) {
    return schema.contains("properties") && schema.at("properties").is_object();
  };
  if (!isObject(a) || !isObject(b))
    return false;
  for (const auto &[key, property] : a.at("properties").items())
    if (const auto other = b.at("properties").find(key); other != b.at("properties").end())
      if (needs(a, key) && needs(b, key) && apart(property, *other, place, depth + 1))
        return true;
  return false;
}

// --- values by their types

void SchemaReader::declaredTypesChecked(const Json &value, const Place &place) const {
  const Json &type = value.at("type");
  const auto check = [&](const Json &one) {
    const auto isNamed = [&](const auto &known) { return one == known.name; };
    if (std::none_of(std::begin(TypeNames), std::end(TypeNames), isNamed))
      refuse(place, fmt::format("the type {} is unknown; there are null, boolean, object, array, number, integer and "
                                "string",
                                ticked(one.dump(-1, ' ', false, Json::error_handler_t::replace))));
  };
  if (type.is_array() && !type.empty())
    for (const Json &one : type)
      check(one);
  else
    check(type);
}

Id SchemaReader::typed(const Json &value, const Place &place) {
  std::vector<std::string> types;
  if (value.contains("type")) {
    declaredTypesChecked(value, place);
    if (value.at("type").is_array())
      types = value.at("type").get<std::vector<std::string>>();
    else
      types = {value.at("type").get<std::string>()};
  } else {
    unsigned said = 0;
    for (const TypedKeyword &keyword : typedKeywords())
      if (value.contains(keyword.name))
        said |= keyword.types;
    if (said == 0)
      return anything(place, All);
    for (const auto &known : TypeNames)
      if (said & known.types)
        types.push_back(known.name);
    note(place, fmt::format("there is no `type`; values have the types that its keywords are about: {}",
                            fmt::join(types, ", ")));
  }
  if (value.contains("format") && std::find(types.begin(), types.end(), "string") == types.end())
    note(place, "`format` is about strings; of others it says nothing");
  std::vector<Id> parts;
  for (const std::string &type : types)
    parts.push_back(type == "null"      ? json.null
                    : type == "boolean" ? json.boolean
                    : type == "integer" ? number(value, place, true)
                    : type == "number"  ? number(value, place, false)
                    : type == "string"  ? stringOf(value, place)
                    : type == "array"   ? array(value, place)
                                        : object(value, place));
  return out.choice(parts);
}

/// A bound of numbers as an integer, and whether it is not allowed itself. nullopt: there is none.
std::optional<std::pair<int64_t, bool>> SchemaReader::bound(const Json &value, const Place &place, bool isLeast,
                                                            bool isInteger) const {
  const char *names[] = {isLeast ? "minimum" : "maximum", isLeast ? "exclusiveMinimum" : "exclusiveMaximum"};
  std::optional<std::pair<int64_t, bool>> tightest;
  bool exclusive = false; // in draft 4 it says so of the other one
  if (const auto flag = value.find(names[1]); flag != value.end() && flag->is_boolean())
    exclusive = flag->get<bool>();
  for (const char *name : names) {
    const auto found = value.find(name);
    if (found == value.end() || (name == names[1] && found->is_boolean()))
      continue;
    const std::string text = ticked(found->dump(-1, ' ', false, Json::error_handler_t::replace));
    if (!found->is_number())
      refuse(place, fmt::format("`{}` must be a number, found {}", name, text));
    const double number = found->get<double>();
    if (std::abs(number) > static_cast<double>(MostBound))
      refuse(place,
             fmt::format("`{}` must be from -10^15 to 10^15, found {}; leave it out and check the value", name, text));
    bool isOut = name == names[1] || exclusive;
    auto whole = static_cast<int64_t>(isLeast ? std::floor(number) : std::ceil(number));
    if (static_cast<double>(whole) != number) {
      if (!isInteger)
        refuse(place, fmt::format("`{}` of numbers must be an integer here, found {}; write one that lies inside, or "
                                  "check the value",
                                  name, text));
      isOut = true; // the integer behind it is the first
    }
    const bool tighter = !tightest || (isLeast ? whole > tightest->first : whole < tightest->first) ||
                         (whole == tightest->first && isOut);
    if (tighter)
      tightest = {whole, isOut};
  }
  return tightest;
}

Id SchemaReader::number(const Json &value, const Place &place, bool isInteger) {
  const auto least = bound(value, place, true, isInteger), most = bound(value, place, false, isInteger);
  if (!least && !most)
    return isInteger ? json.integer : json.number;
  NumberBounds bounds;
  if (least)
    bounds = {{least->first, {}}, least->second, false};
  if (most)
    bounds.bounds.most = most->first, bounds.belowMost = most->second;
  std::string expression;
  if (isInteger) {
    if (bounds.aboveLeast)
      ++*bounds.bounds.least;
    if (bounds.belowMost)
      --*bounds.bounds.most;
    expression = integersBetween(bounds.bounds);
  } else {
    expression = numbersBetween(bounds);
    note(place, fmt::format("numbers between bounds have no exponent, and at most {} digits behind the point",
                            digitsAfterPoint(bounds)));
  }
  if (expression.empty())
    refuse(place, "no number lies between its bounds");
  return readPattern(out, expression, options.limits);
}

/// One or more of the parts from `first` to `end`, in their order. Halves, so that n parts are written n log n times.
Id SchemaReader::members(const std::vector<Id> &parts, size_t first, size_t end) {
  if (end - first == 1)
    return parts[first];
  const size_t middle = first + (end - first) / 2;
  return json.choice(
      {json.sequence({members(parts, first, middle), behind(parts, {}, middle, end)}), members(parts, middle, end)});
}

/// Any of the parts behind another one; those that are `needed` always.
Id SchemaReader::behind(const std::vector<Id> &parts, const std::vector<bool> &needed, size_t first, size_t end) {
  std::vector<Id> all;
  for (size_t i = first; i < end; ++i) {
    const Id member = json.sequence({json.comma, parts[i]});
    all.push_back(!needed.empty() && needed[i] ? member : out.optional(member));
  }
  return out.sequence(all);
}

Id SchemaReader::object(const Json &value, const Place &place) {
  static const Json empty = Json::object();
  const auto found = value.find("properties");
  const Json &properties = found == value.end() ? empty : *found;
  if (!properties.is_object())
    refuse(place, "`properties` must be an object");
  std::set<std::string> required;
  if (const auto list = value.find("required"); list != value.end()) {
    if (!list->is_array())
      refuse(place, "`required` must be a list of strings");
    for (const Json &name : *list) {
      if (!name.is_string())
        refuse(place, "`required` must be a list of strings");
      if (!properties.contains(name.get<std::string>()))
        refuse(place, fmt::format("`required` has {}, which is not in `properties`; add it there",
                                  ticked(name.get<std::string>())));
      required.insert(name.get<std::string>());
    }
  }
  const auto more = value.find("additionalProperties");
  const bool noMore = more != value.end() && *more == false;
  if (more != value.end() && !more->is_boolean() && !more->is_object())
    refuse(place, "`additionalProperties` must be a schema");
  if (properties.empty()) {
    if (noMore)
      return out.text("{}");
    if (more == value.end() || *more == true)
      return anything(place, Object);
    return json.object(sub(value, place, "additionalProperties"));
  }
  if (!noMore)
    note(place, "there are no keys but those of `properties`");
  const Place here{&place, "properties"};
  std::vector<Id> parts;
  std::vector<bool> needed;
  for (const auto &[key, property] : properties.items()) {
    parts.push_back(json.sequence({out.text(Json(key).dump()), json.colon, schema(property, {&here, key})}));
    needed.push_back(required.count(key) != 0);
  }
  const size_t first = std::find(needed.begin(), needed.end(), true) - needed.begin();
  if (first == parts.size())
    return json.sequence({out.text("{"), out.optional(members(parts, 0, parts.size())), out.text("}")});
  std::vector<Id> all{out.text("{")};
  for (size_t i = 0; i < first; ++i)
    all.push_back(out.optional(json.sequence({parts[i], json.comma})));
  all.insert(all.end(), {parts[first], behind(parts, needed, first + 1, parts.size()), out.text("}")});
  return out.sequence(all);
}

Id SchemaReader::array(const Json &value, const Place &place) {
  const uint32_t least = count(value, place, "minItems").value_or(0);
  const std::optional<uint32_t> most = count(value, place, "maxItems");
  if (most && least > *most)
    refuse(place, fmt::format("`minItems` {} is more than `maxItems` {}; exchange them", least, *most));
  const auto items = value.find("items");
  if (items != value.end() && items->is_array())
    refuse(place, "`items` as a list is not supported; write `prefixItems`, and `items` for what comes behind");
  std::vector<Id> front; ///< of the places that have their own schema
  if (const auto prefix = value.find("prefixItems"); prefix != value.end()) {
    const std::string draft = whole.value("$schema", Json()).dump();
    if (draft.find("draft-0") != draft.npos || draft.find("2019-09") != draft.npos)
      refuse(place, "`prefixItems` is no keyword of the `$schema` that is named, so `items` would hold for these, too; "
                    "name `https://json-schema.org/draft/2020-12/schema`");
    if (!prefix->is_array() || prefix->empty())
      refuse(place, "`prefixItems` must be a list with at least one schema");
    const Place here{&place, "prefixItems"};
    for (size_t i = 0; i < prefix->size(); ++i)
      front.push_back(schema((*prefix)[i], {&here, std::to_string(i)}));
  }
  const uint32_t own = static_cast<uint32_t>(front.size());
  uint32_t end = most.value_or(Expression::NoEnd);
  Id item = json.nothing();
  if (items != value.end()) {
    item = sub(value, place, "items");
  } else if (own == 0 && end > 0) {
    if (!options.depth)
      refuse(place, "nothing is said about the items of the list; write `items`, or give a depth");
    note(place, fmt::format("values of any kind are nested at most {} deep", *options.depth));
    item = *options.depth == 0 ? item : json.value(*options.depth - 1, options.limits);
  } else if (own > 0 && end > own) {
    note(place, "there are no items but those of `prefixItems`");
    end = own;
  }
  if (least > end)
    refuse(place, fmt::format("`minItems` {} is more than the items of `prefixItems`; write `items`", least));
  // From the last item to the first: each one that may be missing leaves those behind it out, too.
  const auto optionalFrom = [&](uint32_t index, Id rest) { return index >= least ? out.optional(rest) : rest; };
  Id rest = out.empty();
  if (own == 0 && end > 0) {
    const uint32_t mostBehind = end == Expression::NoEnd ? end : end - 1;
    if (least <= 1 && end == Expression::NoEnd)
      rest = out.list(item, json.comma);
    else
      rest =
          json.sequence({item, out.repeat(json.sequence({json.comma, item}), least == 0 ? 0 : least - 1, mostBehind)});
    rest = optionalFrom(0, rest);
  } else if (end > own) {
    rest = out.repeat(json.sequence({json.comma, item}), least > own ? least - own : 0,
                      end == Expression::NoEnd ? end : end - own);
  }
  for (uint32_t i = std::min(own, end); i-- > 0;) {
    rest = i == 0 ? json.sequence({front[i], rest}) : json.sequence({json.comma, front[i], rest});
    rest = optionalFrom(i, rest);
  }
  return json.sequence({out.text("["), rest, out.text("]")});
}

Id SchemaReader::stringOf(const Json &value, const Place &place) {
  const std::optional<uint32_t> least = count(value, place, "minLength"), most = count(value, place, "maxLength");
  if (least && most && *least > *most)
    refuse(place, fmt::format("`minLength` {} is more than `maxLength` {}; exchange them", *least, *most));
  const auto pattern = value.find("pattern");
  auto format = value.find("format");
  if (format != value.end() && format->is_string() && !isFormat(format->get_ref<const std::string &>())) {
    note(place, fmt::format("{} is no format of JSON Schema; it says nothing of texts",
                            ticked(format->get_ref<const std::string &>())));
    format = value.end();
  }
  const int said = (pattern != value.end()) + (format != value.end()) + (least || most);
  if (said > 1)
    refuse(place, "of `pattern`, `format` and a length only one is supported; say all of it in the `pattern`");
  if (pattern != value.end()) {
    if (!pattern->is_string())
      refuse(place, "`pattern` must be a string");
    const Id begin = static_cast<Id>(out.nodes().size());
    try {
      const Id part = readPattern(out, pattern->get_ref<const std::string &>(), options.limits, Dialect::Schema);
      return json.string(json.inString(part, begin));
    } catch (const Refused &refused) {
      refuse(place, fmt::format("`pattern`: {}", refused.message));
    }
  }
  if (format != value.end()) {
    const std::string dateTime = fmt::format("{}T{}", Date, Time);
    for (const auto &[name, expression] : {std::pair<const char *, const char *>{"date", Date},
                                           {"time", Time},
                                           {"date-time", dateTime.c_str()},
                                           {"uuid", Uuid},
                                           {"ipv4", Ipv4}})
      if (*format == name)
        return json.string(readPattern(out, expression, options.limits));
    refuse(place, fmt::format("the format {} is not supported; there are date, time, date-time, uuid and ipv4; write a "
                              "`pattern`",
                              ticked(format->dump(-1, ' ', false, Json::error_handler_t::replace))));
  }
  if (!said)
    return json.anyString;
  return json.string(
      out.repeat(json.character({{0, LastCodePoint}}), least.value_or(0), most.value_or(Expression::NoEnd)));
}

} // namespace

SchemaExpression automata::readSchema(std::string_view schema, const SchemaOptions &options) {
  if (schema.size() > options.limits.nodes)
    throw Refused{fmt::format("the schema has {} bytes, {} are allowed (limit `nodes`); write a shorter one",
                              schema.size(), options.limits.nodes),
                  {}};
  // Twice: the first reader refuses keys that occur twice and depth without an end, the second keeps the order of keys.
  nlohmann::json checked;
  if (const auto problem = parseJson(schema, checked))
    throw Refused{
        fmt::format("the schema is no JSON: line {}, column {}: {}", problem->line, problem->column, problem->message),
        problem->byte};
  const Json whole = Json::parse(schema);
  SchemaExpression result;
  SchemaReader reader(whole, options, result);
  result.expression.root = reader.schema(whole, {});
  return result;
}
