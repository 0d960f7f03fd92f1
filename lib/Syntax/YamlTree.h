//===- YamlTree.h - YAML text as a tree with places -----------------------===//
//
// yaml-cpp gives only the start of each node and accepts a key twice, so this
// tree keeps every key and, for scalars, the place of every character.
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_LIB_SYNTAX_YAMLTREE_H
#define MEGALITH_LIB_SYNTAX_YAMLTREE_H

#include "megalith/Support/Diagnostics.h"
#include <memory>
#include <string>
#include <vector>

namespace megalith::ast {

/// One YAML node. Keys are nodes of their own, in file order, duplicates kept.
struct YamlNode {
  enum Kind { Null, Scalar, Sequence, Map } kind = Null;
  /// Scalar: the value, unquoted and unfolded. Null: the word for it, if one stands there.
  std::string text;
  SourceLoc loc;       ///< an empty value has the place of its key
  bool quoted = false; ///< Scalar: in quotes, so `'true'` is a text

  struct Place {
    uint32_t line, column;
  };
  /// Scalar: the place of each character of `text` and of its end. Empty when
  /// an escape sequence hides the places; `loc` then stands for all of them.
  std::vector<Place> places;

  struct Entry {
    std::unique_ptr<YamlNode> key, value;
  };
  std::vector<std::unique_ptr<YamlNode>> items; ///< Sequence
  std::vector<Entry> entries;                   ///< Map

  /// The place of characters [begin, end) of a scalar's text. An `end` on a
  /// later line is cut to one character.
  SourceLoc range(size_t begin, size_t end) const;
};

/// Reads the one document of `file`. Null when there is no tree to look at.
/// Every construct outside the language (anchors, aliases, tags, a second
/// document, deep nesting) is reported; a tree may come back all the same, so
/// that later errors in the file are found too.
/// `what` names the file in messages: "a pipeline file".
std::unique_ptr<YamlNode> readYaml(Diagnostics &diags, uint32_t file, const char *what);

} // namespace megalith::ast
#endif
