#include "JsonParts.h"
#include "megalith/Automata/Schema.h"
#include <algorithm>
#include <fmt/format.h>
#include <map>

using namespace megalith;
using namespace megalith::automata;

using Id = Expression::Id;

constexpr std::pair<char, char> Escapes[] = {{'"', '"'},  {'\\', '\\'}, {'/', '/'},  {'b', '\b'},
                                             {'f', '\f'}, {'n', '\n'},  {'r', '\r'}, {'t', '\t'}};

Id JsonParts::character(const std::vector<CodeRange> &set) {
  static const std::vector<CodeRange> plain = complement({{0, 0x1f}, {'"', '"'}, {'\\', '\\'}});
  std::vector<CodeRange> letters;
  for (const auto &[letter, meaning] : Escapes) {
    const uint32_t code = static_cast<uint8_t>(meaning);
    if (!intersection(set, {{code, code}}).empty())
      letters.push_back({static_cast<uint8_t>(letter), static_cast<uint8_t>(letter)});
  }
  const Id asItIs = out.set(intersection(normalised(set), plain));
  return letters.empty() ? asItIs : choice({asItIs, sequence({out.text("\\"), out.set(std::move(letters))})});
}

Id JsonParts::inString(Id part, Id begin) {
  // Only sets are older than `begin`: equal ones are one part.
  std::map<Id, Id> made;
  const auto partOf = [&](Id old) {
    auto [found, isNew] = made.try_emplace(old, 0);
    if (isNew) {
      const std::vector<CodeRange> set = out.setWith(out.nodes()[old].first);
      found->second = character(set);
    }
    return found->second;
  };
  const Id end = static_cast<Id>(out.nodes().size());
  for (Id old = begin; old < end; ++old) {
    const Expression::Node node = out.nodes()[old];
    if (node.kind == Expression::Kind::Set)
      continue;
    if (node.kind == Expression::Kind::Empty) {
      made[old] = old;
    } else if (node.kind == Expression::Kind::Repeat) {
      made[old] = out.repeat(partOf(node.first), node.least, node.most);
    } else {
      std::vector<Id> children;
      for (uint32_t i = 0; i < node.count; ++i)
        children.push_back(partOf(out.childrenOf(node)[i]));
      made[old] = node.kind == Expression::Kind::Choice ? out.choice(children) : out.sequence(children);
    }
  }
  return partOf(part);
}

Id JsonParts::constant(const Json &value) {
  std::vector<Id> parts;
  if (value.is_array()) {
    for (const Json &entry : value) {
      parts.push_back(parts.empty() ? out.text("[") : comma);
      parts.push_back(constant(entry));
    }
    parts.push_back(out.text(value.empty() ? "[]" : "]"));
  } else if (value.is_object()) {
    for (const auto &[key, member] : value.items()) {
      parts.push_back(parts.empty() ? out.text("{") : comma);
      parts.push_back(out.text(Json(key).dump()));
      parts.push_back(colon);
      parts.push_back(constant(member));
    }
    parts.push_back(out.text(value.empty() ? "{}" : "}"));
  } else {
    return out.text(value.dump());
  }
  return out.sequence(parts);
}

Id JsonParts::value(uint32_t depth, const Limits &limits) {
  const Id scalar = choice({null, boolean, number, anyString});
  Id made = scalar;
  // Each level has the one below twice.
  if (depth >= 40 || uint64_t{1} << depth > limits.nodes)
    throw Refused{
        fmt::format("any JSON, nested {} deep: each level doubles the states, and {} parts are allowed (limit "
                    "`nodes`); about 9 is the end",
                    depth, limits.nodes),
        {}};
  for (uint32_t level = 0; level < depth; ++level)
    made = choice({scalar, list(made), object(made)});
  return made;
}

Expression automata::jsonOfDepth(uint32_t depth, const Limits &limits) {
  Expression out;
  out.root = JsonParts(out).value(depth, limits);
  return out;
}
