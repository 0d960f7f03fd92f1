#include "Expressions.h"
#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <fmt/format.h>
#include <map>

namespace megalith::random_pipelines {

std::string Expressions::fresh() {
  static const char *syllables[] = {"ka", "to", "mi", "re", "zu", "lo", "ne", "vi", "sa", "du"};
  static const char *words[] = {"int",
                                "float",
                                "class",
                                "this",
                                "return",
                                "auto",
                                "concept",
                                "requires",
                                "char16_t",
                                "co_await",
                                "and_eq",
                                "xor",
                                "static_assert",
                                "alignas",
                                "register",
                                "std",
                                "megalith",
                                "device",
                                "abi",
                                "Config",
                                "Request",
                                "Fields",
                                "Control",
                                "Activation",
                                "State",
                                "Metric",
                                "Gauge",
                                "Shared",
                                "Stream",
                                "Results",
                                "Sequence",
                                "Slice",
                                "Layer",
                                "Ring",
                                "stages",
                                "calls",
                                "t",
                                "r",
                                "c",
                                "p",
                                "T",
                                "x",
                                "hold",
                                "load",
                                "list",
                                "slice",
                                "concat",
                                "either",
                                "ratio_",
                                "divide",
                                "wrapAdd",
                                "set",
                                "at",
                                "issue",
                                "goTo",
                                "trace_",
                                "fault",
                                "slot",
                                "state",
                                "number",
                                "rows",
                                "pass",
                                "main",
                                "assert",
                                "NULL",
                                "EOF",
                                "errno",
                                "linux",
                                "unix",
                                "blockIdx",
                                "threadIdx",
                                "warpSize",
                                "u32",
                                "printf",
                                "_x",
                                "__x",
                                "x__",
                                "a__b",
                                "kMaxRows"};
  for (;;) {
    std::string name;
    if (wordy && chance(50)) {
      name = words[below(std::size(words))];
      if (taken.insert(name).second)
        return name;
      name.clear();
    }
    for (uint64_t i = 2 + below(2); i > 0; --i)
      name += syllables[below(std::size(syllables))];
    if (chance(20))
      name += fmt::format("_{}", below(10));
    if (taken.insert(name).second)
      return name;
  }
}

const char *Expressions::nameOf(Kind kind) {
  switch (kind) {
  case Kind::I32:
    return "i32";
  case Kind::F32:
    return "f32";
  case Kind::Bool:
    return "bool";
  default:
    return "token";
  }
}

std::string Expressions::quoted(const std::string &expression) {
  const bool plain =
      std::isalnum(static_cast<unsigned char>(expression[0])) && expression.find(": ") == std::string::npos;
  return plain ? expression : "'" + expression + "'";
}

std::string Expressions::literal(Kind kind) {
  switch (kind) {
  case Kind::I32:
    if (chance(70))
      return std::to_string(range(0, 12));
    return oneOf<std::string>({"-1", "-5", "100", "1000", "65535", "65536", "2147483647", "-2147483648", "-2147483647",
                               "1073741824", "16777217"});
  case Kind::F32:
    return oneOf<std::string>({"0.0", "1.0", "0.5", "-0.5", "0.1", "0.2", "3.25", "100.0", "16777217.0", "1e-45",
                               "1e-38", "3.4028235e38", "1e30", "-1e30", "0.33333334", "1e-8", "123456.789", "2.0"});
  case Kind::Bool:
    return chance(50) ? "true" : "false";
  default:
    return std::to_string(3 + 7 * below(6));
  }
}

std::string Expressions::sizeText(int64_t size) {
  for (const Variable &p : constants)
    if (p.isSize && p.size <= size && chance(50))
      return p.size == size ? p.name : fmt::format("{} + {}", p.name, size - p.size);
  return std::to_string(size);
}

std::string Expressions::value(Kind kind, const Scope &scope, int depth) {
  switch (kind) {
  case Kind::I32:
    return i32(scope, depth);
  case Kind::F32:
    return f32(scope, depth);
  case Kind::Bool:
    return boolean(scope, depth);
  default:
    return token(scope, depth);
  }
}

std::string Expressions::named(Kind kind, const Scope &scope) {
  std::vector<std::string> names;
  for (const Variable &v : scope.variables)
    if (v.kind == kind)
      names.push_back(v.name);
  for (const Variable &p : constants)
    if (p.kind == kind)
      names.push_back(p.name);
  if (!scope.policy)
    for (const Policy &p : policies)
      for (const Variable &member : p.members)
        if (member.kind == kind)
          names.push_back(member.name);
  return names.empty() ? "" : names[below(names.size())];
}

std::string Expressions::poolValue(const Scope &scope) {
  if (scope.slot && chance(60))
    return oneOf<std::string>({"kv.target.len", "kv.target.lag"});
  return oneOf<std::string>({"kv.target.live", "kv.target.pages", "seated"});
}

std::string Expressions::i32(const Scope &scope, int depth) {
  if (depth <= 0 || chance(25)) {
    if (!scope.indices.empty() && chance(40))
      return scope.indices[below(scope.indices.size())].name.substr(0, 1);
    if (std::string name = named(Kind::I32, scope); !name.empty() && chance(50))
      return name;
    switch (below(scope.policy ? 3 : 6)) {
    case 0:
      return literal(Kind::I32);
    case 1:
      return poolValue(scope);
    case 2:
      return std::to_string(range(0, 9));
    case 3:
      return oneOf<std::string>({"budget", "prompt_len", "priority", "len(tokens)"});
    case 4:
      return fmt::format("len({})", sequence(scope, 8, 0));
    default:
      return "budget";
    }
  }
  const auto inner = [&] { return i32(scope, depth - 1); };
  switch (below(16)) {
  case 0:
  case 1:
  case 2:
    return fmt::format("({} {} {})", inner(), oneOf<std::string>({"+", "-", "*"}), inner());
  case 3:
    return fmt::format("({} {} {})", inner(), oneOf<std::string>({"/", "%"}), inner());
  case 4:
    return fmt::format("-({})", inner());
  case 5:
    return fmt::format("{}({}, {})", oneOf<std::string>({"min", "max"}), inner(), inner());
  case 6:
    return fmt::format("({} if {} else {})", inner(), boolean(scope, depth - 1), inner());
  case 7:
    return loop(scope, depth);
  case 8:
    return tiers(Kind::I32, scope, depth);
  case 9:
  case 10:
    return fold(Kind::I32, scope, depth);
  case 11:
    return fmt::format("abs({})", inner());
  case 12:
    return fmt::format("clamp({}, {}, {})", inner(), range(-3, 0), range(1, 9));
  case 13: {
    const Kind from = oneOf({Kind::F32, Kind::Bool, Kind::Token});
    return fmt::format("i32({})", value(from, scope, depth - 1));
  }
  default:
    return inner();
  }
}

std::string Expressions::tiers(Kind kind, const Scope &scope, int depth) {
  const Kind by = chance(50) ? Kind::I32 : Kind::F32;
  std::vector<std::pair<std::string, std::string>> tiers; // a threshold that is written stands in `written`
  std::map<double, std::string> written;                  // these must descend
  std::string table;
  for (uint64_t i = 1 + below(3); i > 0; --i) {
    const std::string then = value(kind, scope, 0), threshold = chance(70) ? literal(by) : value(by, scope, 0);
    char *end = nullptr;
    const double number = std::strtod(threshold.c_str(), &end);
    if (*end != 0)
      tiers.push_back({threshold, then});
    else if (written.emplace(number, threshold).second)
      tiers.push_back({"", then});
  }
  auto next = written.rbegin();
  for (const auto &[threshold, then] : tiers)
    table +=
        fmt::format("{}[{}, {}]", table.empty() ? "" : ", ", threshold.empty() ? (next++)->second : threshold, then);
  return fmt::format("tiers({}, [{}])", value(by, scope, depth - 1), table);
}

std::string Expressions::loop(const Scope &scope, int depth) {
  if (scope.binders >= 2)
    return literal(Kind::I32);
  Scope inner = scope;
  const std::string index = std::string(1, "ijk"[scope.binders]);
  ++inner.binders;
  std::string bound;
  std::vector<const Variable *> sequences;
  for (const Variable &v : scope.variables)
    if (v.kind == Kind::Seq)
      sequences.push_back(&v);
  if (!sequences.empty() && chance(60)) {
    const Variable &s = *sequences[below(sequences.size())];
    bound = fmt::format("len({})", s.name);
    inner.indices.push_back({index + s.name, Kind::I32});
  } else if (!scope.policy && scope.binders == 0 && chance(30)) {
    bound = "len(tokens)";
    inner.indices.push_back({index + "tokens", Kind::I32});
  } else {
    bound = chance(60) ? std::to_string(range(0, 40)) : fmt::format("min({}, {})", i32(scope, depth - 1), range(1, 40));
    inner.indices.push_back({index, Kind::I32});
  }
  return fmt::format("{}({} in 0..{}, {})", oneOf<std::string>({"count", "prefix_while"}), index, bound,
                     boolean(inner, depth - 1));
}

std::string Expressions::over(const Scope &scope, Scope &inner, int64_t most, int depth) {
  const std::string index = std::string(1, "ijk"[scope.binders]);
  ++inner.binders;
  std::vector<std::string> sequences;
  for (const Variable &v : scope.variables)
    if (v.kind == Kind::Seq)
      sequences.push_back(v.name);
  if (!scope.policy)
    sequences.push_back("tokens");
  if (!sequences.empty() && chance(50)) {
    const std::string &s = sequences[below(sequences.size())];
    inner.indices.push_back({index + s, Kind::I32});
    return fmt::format("{} in 0..min(len({}), {})", index, s, most);
  }
  inner.indices.push_back({index, Kind::I32});
  return chance(60) ? fmt::format("{} in 0..{}", index, range(0, most))
                    : fmt::format("{} in 0..min({}, {})", index, i32(scope, depth - 1), most);
}

std::string Expressions::fold(Kind kind, const Scope &scope, int depth) {
  if (scope.binders >= 2)
    return literal(kind);
  Scope inner = scope;
  const std::string in = over(scope, inner, range(1, 30), depth - 1);
  if (kind == Kind::Bool)
    return fmt::format("{}({}, {})", oneOf<std::string>({"all", "any"}), in, boolean(inner, depth - 1));
  if (kind == Kind::I32 && chance(20))
    return fmt::format("find({}, {})", in, boolean(inner, depth - 1));
  if (kind == Kind::I32 && chance(20))
    return fmt::format("{}({}, {})", oneOf<std::string>({"argmin", "argmax"}), in,
                       value(oneOf({Kind::I32, Kind::F32}), inner, depth - 1));
  return fmt::format("{}({}, {})", oneOf<std::string>({"sum", "min", "max"}), in, value(kind, inner, depth - 1));
}

std::string Expressions::list(const Variable &shape, const Scope &scope, int depth) {
  if (shape.kind == Kind::Seq)
    return sequence(scope, shape.size, depth);
  const bool table = shape.kind == Kind::Table;
  const int64_t most = std::min<int64_t>(table ? shape.rows : shape.size, 12);
  const Kind item = shape.kind == Kind::Numbers  ? Kind::I32
                    : shape.kind == Kind::Floats ? Kind::F32
                    : shape.kind == Kind::Flags  ? Kind::Bool
                                                 : Kind::Seq;
  const auto element = [&](const Scope &at) {
    return table ? sequence(at, shape.size, depth - 1) : value(item, at, depth - 1);
  };
  std::vector<std::string> known;
  for (const Variable &v : scope.variables)
    if (v.kind == shape.kind && v.size <= (table ? shape.size : INT64_MAX))
      known.push_back(fmt::format("{}[{}:{}]", v.name, range(0, 2), most));
  if (!known.empty() && chance(30))
    return known[below(known.size())];
  if (depth <= 0 || scope.binders >= 2 || chance(25)) {
    // Two written numbers of an f32 are one type, an i32 among them another.
    std::string items;
    for (int64_t i = range(1, std::min<int64_t>(most, 3)); i > 0; --i)
      items += (items.empty() ? "" : ", ") + element(scope);
    return "[" + items + "]";
  }
  if (most >= 2 && chance(15)) {
    Variable first = shape, second = shape;
    const int64_t cut = range(1, most - 1);
    (table ? first.rows : first.size) = cut;
    (table ? second.rows : second.size) = most - cut;
    return fmt::format("({} + {})", list(first, scope, depth - 1), list(second, scope, depth - 1));
  }
  if (chance(10))
    return fmt::format("({} if {} else {})", list(shape, scope, depth - 1), boolean(scope, 1),
                       list(shape, scope, depth - 1));
  if (table && chance(30))
    return fmt::format("ngram_lookup({}, {}, ngram={}, matches={})", chance(60) ? "tokens" : sequence(scope, 20, 1),
                       shape.size, range(1, 4), most);
  Scope inner = scope;
  const std::string in = over(scope, inner, most, depth - 1);
  if (shape.kind == Kind::Numbers && chance(25))
    return fmt::format("sort({}, [{}, {}])", in, i32(inner, depth - 1), f32(inner, 0));
  if (shape.kind == Kind::Numbers && chance(25))
    return fmt::format("top({}, {}, {})", in, value(oneOf({Kind::I32, Kind::F32}), inner, depth - 1), range(0, most));
  if ((shape.kind == Kind::Numbers || shape.kind == Kind::Floats) && chance(25))
    return fmt::format("scan({}, {})", in, value(item, inner, depth - 1));
  return fmt::format("map({}, {})", in, element(inner));
}

std::string Expressions::f32(const Scope &scope, int depth) {
  if (depth <= 0 || chance(25)) {
    const std::string name = named(Kind::F32, scope);
    return !name.empty() && chance(60) ? name : literal(Kind::F32);
  }
  const auto inner = [&] { return f32(scope, depth - 1); };
  switch (below(13)) {
  case 0:
  case 1:
  case 2: {
    // Two written numbers are one, which may be none.
    const std::string name = named(Kind::F32, scope);
    return fmt::format("({} {} {})", name.empty() ? fmt::format("ratio({}, 3)", i32(scope, 0)) : name,
                       oneOf<std::string>({"+", "-", "*", "/"}), inner());
  }
  case 3:
    return fmt::format("-({})", inner());
  case 4:
    return fmt::format("{}({}, {})", oneOf<std::string>({"min", "max"}), inner(), inner());
  case 5:
    return fmt::format("({} if {} else {})", inner(), boolean(scope, depth - 1), inner());
  case 6:
    return tiers(Kind::F32, scope, depth);
  case 7:
    return fold(Kind::F32, scope, depth);
  case 8:
    return fmt::format("{}({})", oneOf<std::string>({"exp", "log", "sqrt", "abs"}), inner());
  case 9:
    return chance(50) ? fmt::format("pow({}, {})", inner(), inner()) : fmt::format("clamp({}, -2, 2.5)", inner());
  case 10:
    return fmt::format("f32({})", i32(scope, depth - 1));
  default:
    return fmt::format("ratio({}, {})", i32(scope, depth - 1), i32(scope, depth - 1));
  }
}

std::string Expressions::boolean(const Scope &scope, int depth) {
  const std::string compare = oneOf<std::string>({"==", "!=", "<", "<=", ">", ">="});
  for (const Variable &index : scope.indices)
    if (index.name.size() > 1 && chance(40)) // an element
      return fmt::format("{}[{}] {} {}", index.name.substr(1), index.name.substr(0, 1),
                         oneOf<std::string>({"==", "!="}), token(scope, 0));
  if (depth <= 0 || chance(20)) {
    const std::string name = named(Kind::Bool, scope);
    if (!name.empty() && chance(50))
      return name;
    if (words && chance(15))
      return "is_eos(last)";
    return oneOf<std::string>({"finished", "kv.target.pressure", "budget > 2", "true"});
  }
  switch (below(8)) {
  case 6:
    return fold(Kind::Bool, scope, depth);
  case 7:
    if (!scope.policy)
      return fmt::format("{} == {}", sequence(scope, 6, 0), sequence(scope, 6, 0));
    [[fallthrough]];
  case 0:
  case 1:
    return fmt::format("{} {} {}", i32(scope, depth - 1), compare, i32(scope, depth - 1));
  case 2:
    return fmt::format("{} {} {}", f32(scope, depth - 1), compare, f32(scope, depth - 1));
  case 3:
    return fmt::format("({} {} {})", boolean(scope, depth - 1), oneOf<std::string>({"and", "or"}),
                       boolean(scope, depth - 1));
  case 4:
    return fmt::format("not ({})", boolean(scope, depth - 1));
  default:
    return fmt::format("{} {} {}", token(scope, depth - 1), oneOf<std::string>({"==", "!="}), token(scope, depth - 1));
  }
}

std::string Expressions::token(const Scope &scope, int depth) {
  const std::string name = scope.policy ? "" : named(Kind::Token, scope);
  if (!name.empty() && chance(40))
    return name;
  if (scope.policy)
    return "last";
  if (depth > 0 && chance(30))
    return fmt::format("({} if {} else {})", token(scope, depth - 1), boolean(scope, depth - 1),
                       token(scope, depth - 1));
  if (chance(4)) // which may be outside
    return fmt::format("tokens[{}]", i32(scope, 0));
  if (words && depth > 0 && chance(10))
    return fmt::format("token(min({}, 90))", i32(scope, depth - 1));
  return oneOf<std::string>({"last", "tokens[0]", "tokens[-1]", "tokens[len(tokens) / 2]", "last"});
}

std::string Expressions::sequence(const Scope &scope, int64_t most, int depth) {
  if (most <= 0)
    return "tokens[0:0]";
  std::vector<const Variable *> fit, longer;
  for (const Variable &v : scope.variables)
    if (v.kind == Kind::Seq)
      (v.size <= most ? fit : longer).push_back(&v);
  const int64_t size = range(1, std::min<int64_t>(most, 12));
  if (depth > 0 && scope.binders < 2 && chance(12)) {
    Scope inner = scope;
    const std::string in = over(scope, inner, size, depth - 1);
    return !words || chance(70)
               ? fmt::format("map({}, {})", in, token(inner, depth - 1))
               : fmt::format("filter({}, {}, {})", in, token(inner, depth - 1), boolean(inner, depth - 1));
  }
  switch (below(depth > 0 ? 10 : 5)) {
  case 0:
    if (!fit.empty())
      return fit[below(fit.size())]->name;
    [[fallthrough]];
  case 1:
    if (!longer.empty())
      return fmt::format("{}[:{}]", longer[below(longer.size())]->name, sizeText(size));
    [[fallthrough]];
  case 2:
    return chance(50) ? fmt::format("tokens[-({}):]", sizeText(size))
                      : fmt::format("tokens[-{}:-{}]", size + 1, range(1, size));
  case 3:
    return fmt::format("tokens[{}:{}]", range(0, 3), range(0, size));
  case 4: {
    std::string list;
    for (int64_t i = range(1, std::min<int64_t>(size, 4)); i > 0; --i)
      list += (list.empty() ? "" : ", ") + (chance(50) ? literal(Kind::Token) : token(scope, 0));
    return "[" + list + "]";
  }
  case 5:
  case 6:
    if (words && chance(25))
      return fmt::format("forced(min({}, {}))", i32(scope, 1), size);
    return fmt::format("ngram_lookup({}, min({}, {}){})", chance(70) ? "tokens" : sequence(scope, 20, depth - 1),
                       i32(scope, 1), size, chance(50) ? fmt::format(", ngram={}", range(1, 5)) : "");
  case 7:
    return fmt::format("({} if {} else {})", sequence(scope, most, depth - 1), boolean(scope, 1),
                       sequence(scope, most, depth - 1));
  case 8:
    if (most >= 2) {
      const int64_t first = range(1, most - 1);
      return fmt::format("({} + {})", sequence(scope, first, depth - 1), sequence(scope, most - first, depth - 1));
    }
    [[fallthrough]];
  default:
    return fmt::format("{}[{}:min({}, {})]", sequence(scope, most, depth - 1), range(0, 2), i32(scope, 1), size);
  }
}

} // namespace megalith::random_pipelines
