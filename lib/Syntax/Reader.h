//===- Reader.h - from YAML nodes to the parts both file kinds share ------===//
#ifndef MEGALITH_LIB_SYNTAX_READER_H
#define MEGALITH_LIB_SYNTAX_READER_H

#include "YamlTree.h"
#include "megalith/Syntax/Ast.h"
#include "llvm/ADT/ArrayRef.h"

namespace megalith::ast {

/// One key of a mapping and its value.
struct KeyValue {
  Name key;
  const YamlNode *keyNode;
  const YamlNode *value;
};

/// Reads YAML nodes as what the language expects there, and reports what they
/// are instead. `what` names a node in messages: "`goto` of stage `verify`".
class Reader {
public:
  static constexpr const char *QuoteHint = "put an expression that begins with a bracket in single quotes";

  explicit Reader(Diagnostics &diags) : diags(diags) {}
  Diagnostics &diags;
  bool ofBuffers = false; ///< statements may assign parts of buffers

  /// The entries of a mapping, the first of each key. Reports duplicates and
  /// keys that are not words; empty when `node` is no mapping.
  std::vector<KeyValue> entries(const YamlNode &node, const std::string &what);
  /// Reports every key that is not in `allowed`.
  void checkKeys(llvm::ArrayRef<KeyValue> entries, const std::string &what, llvm::ArrayRef<std::string> allowed);
  /// What the language will have, and what to write meanwhile.
  struct NotYet {
    const char *key, *instead;
  };
  /// Reports the keys that are `planned`, and takes them out of `entries`.
  void refusePlanned(std::vector<KeyValue> &entries, const std::string &what, llvm::ArrayRef<NotYet> planned);
  /// Reports each of `required` that is missing, unless checkKeys suggested it for
  /// another key just before; `loc` is the place of the name of what lacks it.
  void requireKeys(llvm::ArrayRef<KeyValue> entries, const std::string &what, SourceLoc loc,
                   llvm::ArrayRef<std::string> required);
  /// The value of `key`, or null.
  static const YamlNode *find(llvm::ArrayRef<KeyValue> entries, llvm::StringRef key);

  bool expectKind(const YamlNode &node, YamlNode::Kind kind, const std::string &what, const char *expected);
  /// An identifier that the file uses as a name; `thing` is "a state".
  bool checkName(const Name &name, const char *thing);
  bool checkLength(const Name &name, const std::string &thing, llvm::StringRef part);
  /// A word: any text for paths and keys of other files.
  Name readWord(const YamlNode &node, const std::string &what, const char *expected);
  /// A word that must be an identifier or, with `dotted`, a path of them.
  Name readName(const YamlNode &node, const std::string &what, const char *expected, bool dotted = false);
  /// One name or a list of them.
  /// `i in a..b`, whose range becomes `range`; nullopt after a report.
  std::optional<Name> readBinder(const YamlNode &node, const std::string &what, const char *thing, ExprPtr &range);
  std::vector<Name> readNames(const YamlNode &node, const std::string &what, const char *expected);
  bool readBool(const YamlNode &node, const std::string &what);
  /// `hint`: what to say to somebody who wrote a list.
  ExprPtr readExpr(const YamlNode &node, const std::string &what, const char *hint = QuoteHint,
                   bool elseOptional = false);
  FieldDecl readField(const KeyValue &entry, const std::string &what);

  /// The statements of a `do:` list. `inGraph`: of a model's graph.
  std::vector<Stmt> readBody(const YamlNode &node, const std::string &what, bool inGraph);

private:
  std::vector<std::string> suggested; ///< of the last checkKeys
  bool isExprNode(const YamlNode &node, const std::string &what, const char *hint = QuoteHint);
  std::optional<Stmt> readStmt(const YamlNode &node, bool inGraph);
  void readPlace(const YamlNode &key, Stmt &stmt);
  bool reportPython(const YamlNode &statement);
  std::optional<Stmt> readBlock(const KeyValue &head, llvm::ArrayRef<KeyValue> entries, bool inGraph);
  bool expectScalar(const YamlNode &node, const std::string &what, const char *expected);
};

/// What a node is, in words: "a list", "`text`".
std::string describe(const YamlNode &node);

/// "`name`", for messages.
inline std::string ticks(const std::string &name) { return "`" + name + "`"; }

} // namespace megalith::ast
#endif
