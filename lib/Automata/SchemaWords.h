//===- SchemaWords.h - the words of JSON Schema -----------------*- C++ -*-===//
#ifndef MEGALITH_LIB_AUTOMATA_SCHEMAWORDS_H
#define MEGALITH_LIB_AUTOMATA_SCHEMAWORDS_H

#include <span>
#include <string>
#include <string_view>

namespace megalith::automata {

enum Types : unsigned { Null = 1, Boolean = 2, Object = 4, Array = 8, Number = 16, String = 32, All = 63 };

/// A keyword that says something of values of these types alone.
struct TypedKeyword {
  const char *name;
  unsigned types;
};
std::span<const TypedKeyword> typedKeywords();

/// What a key of a schema is: a keyword that texts keep; one that they would not; one that says nothing of texts; none
/// of any draft, which says nothing, too.
enum class Word { Kept, Refused, Annotation, Unknown };
Word wordOf(std::string_view key);
/// The keyword that an unknown word is but a slip of; empty: it is none, or of somebody's own, such as `x-...`.
std::string meantKeyword(std::string_view key);

/// Whether some draft has this format of strings.
bool isFormat(std::string_view name);

} // namespace megalith::automata

#endif
