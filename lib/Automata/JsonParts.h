//===- JsonParts.h - JSON as an expression ----------------------*- C++ -*-===//
#ifndef MEGALITH_LIB_AUTOMATA_JSONPARTS_H
#define MEGALITH_LIB_AUTOMATA_JSONPARTS_H

#include "megalith/Automata/Expression.h"
#include <initializer_list>
#include <nlohmann/json.hpp>

namespace megalith::automata {

/// Of nlohmann's, that which keeps the order of keys.
using Json = nlohmann::ordered_json;

/// Parts of JSON, made once and used wherever they are needed.
class JsonParts {
public:
  explicit JsonParts(Expression &out) : out(out) {
    const Expression::Id blank = out.optional(out.text(" "));
    comma = sequence({out.text(","), blank});
    colon = sequence({out.text(":"), blank});
    anyString = string(out.repeat(character({{0, LastCodePoint}}), 0, Expression::NoEnd));
    integer = readPattern(out, R"(-?(?:0|[1-9]\d*))");
    number = readPattern(out, R"(-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?)");
    null = out.text("null");
    boolean = choice({out.text("true"), out.text("false")});
  }
  Expression::Id sequence(std::initializer_list<Expression::Id> parts) { return out.sequence(parts); }
  Expression::Id choice(std::initializer_list<Expression::Id> parts) { return out.choice(parts); }
  Expression::Id nothing() { return out.set({}); }

  /// One character of `set`, as it stands in a string.
  Expression::Id character(const std::vector<CodeRange> &set);
  /// `content` between quotes.
  Expression::Id string(Expression::Id content) { return sequence({out.text("\""), content, out.text("\"")}); }
  /// Parts with numbers from `begin` on, which are an expression of characters, as that of strings.
  Expression::Id inString(Expression::Id part, Expression::Id begin);
  Expression::Id list(Expression::Id entry) {
    return sequence({out.text("["), out.optional(out.list(entry, comma)), out.text("]")});
  }
  Expression::Id object(Expression::Id value) {
    const Expression::Id member = sequence({anyString, colon, value});
    return sequence({out.text("{"), out.optional(out.list(member, comma)), out.text("}")});
  }
  /// A value, spelled in one way.
  Expression::Id constant(const Json &value);
  Expression::Id value(uint32_t depth, const Limits &limits);

  Expression &out;
  Expression::Id comma, colon, anyString, integer, number, null, boolean;
};

} // namespace megalith::automata

#endif
