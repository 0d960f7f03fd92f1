//===- Schema.h - JSON schemas as expressions -------------------*- C++ -*-===//
//
// Each text of the expression satisfies the schema. The other way round there is less: what a schema allows and the
// expression does not have is told as a note, but for what is so everywhere:
//
//   * keys stand in the order of `properties`;
//   * there is one blank or none behind `,` and `:`, and no other white space;
//   * strings have no `\u` escapes, so no control characters but \b \f \n \r \t; keys, constants and entries of `enum`
//     are spelled in one way.
//
// Keywords that are not on the list of readSchema are refused by their name and place, so nothing is left out silently.
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_AUTOMATA_SCHEMA_H
#define MEGALITH_AUTOMATA_SCHEMA_H

#include "megalith/Automata/Expression.h"

namespace megalith::automata {

struct SchemaOptions {
  /// How often a `$ref` may stand in itself, and how deep lists and objects may be nested in a value about which the
  /// schema says nothing. nullopt: both are refused. A level doubles the states, so that about 9 is the end.
  std::optional<uint32_t> depth;
  Limits limits;
};

struct SchemaExpression {
  Expression expression;
  /// What the schema allows and the expression does not have: "at `#/properties/a`: ...". Safe on a terminal.
  std::vector<std::string> notes;
};

/// `schema` is JSON text. Throws Refused: at which pointer, what, and what to do.
///
/// Taken are `type` (one, or a list), `enum`, `const`, `properties`, `required`, `additionalProperties` (a schema only
/// without properties), `items`, `prefixItems`, `minItems`, `maxItems`, `minLength`, `maxLength`, `pattern`, `format`
/// (date, time, date-time, uuid, ipv4), `anyOf`, `oneOf` of alternatives with different types or constants, `allOf` of
/// one entry, `$ref` to `#`, `#/$defs/NAME` or `#/definitions/NAME`, `true` and `false`. Annotations (`title`, ...)
/// are ignored.
SchemaExpression readSchema(std::string_view schema, const SchemaOptions &options = {});

/// Any JSON value with lists and objects nested at most `depth` deep; 0: neither.
Expression jsonOfDepth(uint32_t depth, const Limits &limits = {});

} // namespace megalith::automata

#endif
