//===- Expression.h - regular expressions over Unicode ----------*- C++ -*-===//
//
// An expression is a language of whole texts: it has no groups to capture and nothing greedy. What
// Python's `re.fullmatch` would take is taken, with the ASCII meaning of \d, \w and \s. What changes
// the language in a way that an automaton cannot follow, or that other dialects read differently, is
// refused by its name.
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_AUTOMATA_EXPRESSION_H
#define MEGALITH_AUTOMATA_EXPRESSION_H

#include "megalith/Automata/Limits.h"
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace megalith::automata {

/// Code points from `first` to `last`.
struct CodeRange {
  uint32_t first, last;
  auto operator<=>(const CodeRange &) const = default;
};

constexpr uint32_t LastCodePoint = 0x10ffff;

/// Sorted and disjoint, without surrogates, which no UTF-8 has.
std::vector<CodeRange> normalised(std::vector<CodeRange> ranges);
/// All scalar values that are not in `ranges`, which are normalised.
std::vector<CodeRange> complement(const std::vector<CodeRange> &ranges);
std::vector<CodeRange> intersection(const std::vector<CodeRange> &a, const std::vector<CodeRange> &b);

/// Parts, each made of earlier ones, so that nothing that reads them calls itself. A part may be used several times.
class Expression {
public:
  using Id = uint32_t;
  /// `most` of a repeat without an end.
  static constexpr uint32_t NoEnd = UINT32_MAX;

  enum class Kind : uint8_t { Empty, Set, Sequence, Choice, Repeat, List };
  struct Node {
    Kind kind;
    /// Empty: none. Set: its number. Repeat: the part. Sequence, Choice: `count` entries of `children` from here. List:
    /// two of them, the part and the separator.
    uint32_t first = 0, count = 0;
    uint32_t least = 0, most = 0; ///< of a repeat
  };

  /// The empty text.
  Id empty();
  /// One character. No ranges: no text at all.
  Id set(std::vector<CodeRange> ranges);
  /// A text of UTF-8, as it stands.
  Id text(std::string_view utf8);
  Id sequence(std::span<const Id> parts);
  Id choice(std::span<const Id> parts);
  Id repeat(Id part, uint32_t least, uint32_t most);
  /// One or more parts with separators between them. The automaton has the part once, where `part(?:separator part)*`
  /// has it twice.
  Id list(Id part, Id separator);
  Id optional(Id part) { return repeat(part, 0, 1); }

  const std::vector<Node> &nodes() const { return all; }
  std::span<const Id> childrenOf(const Node &node) const { return std::span(children).subspan(node.first, node.count); }
  const std::vector<CodeRange> &setWith(uint32_t number) const { return *sets[number]; }
  size_t setCount() const { return sets.size(); }
  /// What Limits::nodes bounds while an expression is made.
  uint64_t size() const { return all.size() + children.size() + rangeCount; }

  Id root = 0;

private:
  Id add(Node node);

  std::vector<Node> all;
  std::vector<Id> children;
  std::map<std::vector<CodeRange>, Id> setIds; ///< to the part; equal sets are one
  std::vector<const std::vector<CodeRange> *> sets;
  uint64_t rangeCount = 0;
};

/// What a pattern means.
enum class Dialect {
  /// The whole text matches, as in Python's `re.fullmatch`, with ASCII `\d \w \s`.
  Text,
  /// `pattern` of a JSON schema: a text matches in which ECMAScript finds the pattern, and never another one. So there
  /// may be anything where an alternative has no `^` or `$` at its end, `.` is no end of a line, `\S` no blank of
  /// Unicode. What the two dialects read differently is refused.
  Schema
};

/// Reads `pattern`, which is UTF-8, as a part of `into`. Throws Refused, with its byte.
///
/// Characters; `\n \t \r \f \v \0 \xHH \uHHHH \u{H...} \UHHHHHHHH` (code points) and escaped punctuation; `.` (not \n);
/// classes with ranges, `^`, and `\d \w \s \D \W \S`; groups, whatever they capture; `|`; `* + ? {m} {m,} {m,n} {,n}`,
/// also lazy. As in Python a `{` that begins no repeat, a `]` and a `}` are characters, and so is a `]` right behind
/// `[` or `[^`. `^ \A` at the beginning and `$ \Z \z` at the end of an alternative outside of groups mean nothing.
Expression::Id readPattern(Expression &into, std::string_view pattern, const Limits &limits = {},
                           Dialect dialect = Dialect::Text);

/// An expression of one pattern.
Expression readExpression(std::string_view pattern, const Limits &limits = {});

/// A pattern that matches `text`, which is UTF-8, and nothing else. A list of choices is these with `|` between them.
std::string escaped(std::string_view text);

} // namespace megalith::automata

#endif
