#include "Reader.h"
#include "ExprParser.h"
#include "megalith/Text/Text.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringMap.h"

namespace megalith::ast {

/// Of a text in a message, at most.
static constexpr size_t mostShown = 40;

std::string describe(const YamlNode &node) {
  switch (node.kind) {
  case YamlNode::Null:
    return node.text.empty() ? "nothing" : ticks(node.text) + ", which YAML takes for nothing";
  case YamlNode::Scalar:
    return ticks(text::printable(node.text, mostShown));
  case YamlNode::Sequence:
    return "a list";
  case YamlNode::Map:
    return "a mapping";
  }
  return "";
}

static Name wordOf(const YamlNode &node) {
  SourceLoc loc = node.range(0, node.text.size());
  return {node.text, loc};
}

//===----------------------------------------------------------------------===//
// Mappings
//===----------------------------------------------------------------------===//

std::vector<KeyValue> Reader::entries(const YamlNode &node, const std::string &what) {
  std::vector<KeyValue> result;
  if (!expectKind(node, YamlNode::Map, what, "a mapping"))
    return result;
  llvm::StringMap<SourceLoc> places;
  for (const YamlNode::Entry &entry : node.entries) {
    if (!expectScalar(*entry.key, "a key of " + what, "a word"))
      continue;
    Name key = wordOf(*entry.key);
    auto [first, isNew] = places.try_emplace(key.text, key.loc);
    if (isNew) {
      result.push_back({std::move(key), entry.key.get(), entry.value.get()});
      continue;
    }
    diags.report(Diag::DuplicateKey, key.loc, key.text, what);
    diags.note(first->second, "first given here");
  }
  return result;
}

void Reader::checkKeys(llvm::ArrayRef<KeyValue> entries, const std::string &what, llvm::ArrayRef<std::string> allowed) {
  suggested.clear();
  for (const KeyValue &entry : entries)
    if (!llvm::is_contained(allowed, entry.key.text)) {
      diags.report(Diag::UnknownKey, entry.key.loc, entry.key.text, what);
      diags.suggest(entry.key.text, allowed);
      suggested.push_back(nearestName(entry.key.text, allowed));
    }
}

void Reader::refusePlanned(std::vector<KeyValue> &entries, const std::string &what, llvm::ArrayRef<NotYet> planned) {
  llvm::erase_if(entries, [&](const KeyValue &entry) {
    const auto *is = llvm::find_if(planned, [&](const NotYet &p) { return entry.key.text == p.key; });
    if (is != planned.end())
      diags.report(Diag::Unsupported, entry.key.loc, fmt::format("`{}` in {}", is->key, what), is->instead);
    return is != planned.end();
  });
}

void Reader::requireKeys(llvm::ArrayRef<KeyValue> entries, const std::string &what, SourceLoc loc,
                         llvm::ArrayRef<std::string> required) {
  for (const std::string &key : required)
    if (!find(entries, key) && !llvm::is_contained(suggested, key))
      diags.report(Diag::MissingKey, loc, what, key);
}

const YamlNode *Reader::find(llvm::ArrayRef<KeyValue> entries, llvm::StringRef key) {
  for (const KeyValue &entry : entries)
    if (entry.key.text == key)
      return entry.value;
  return nullptr;
}

//===----------------------------------------------------------------------===//
// Scalars
//===----------------------------------------------------------------------===//

bool Reader::expectKind(const YamlNode &node, YamlNode::Kind kind, const std::string &what, const char *expected) {
  if (node.kind == kind)
    return true;
  diags.report(Diag::WrongNodeKind, node.loc, what, expected, describe(node));
  if (node.kind == YamlNode::Null && kind == YamlNode::Sequence)
    diags.note("an empty list is written `[]`");
  else if (node.kind == YamlNode::Null && kind == YamlNode::Map)
    diags.note("an empty mapping is written `{}`");
  return false;
}

bool Reader::expectScalar(const YamlNode &node, const std::string &what, const char *expected) {
  if (node.kind == YamlNode::Scalar && !node.text.empty())
    return true;
  diags.report(Diag::WrongNodeKind, node.loc, what, expected,
               node.kind == YamlNode::Scalar ? "an empty text" : describe(node));
  if (node.kind == YamlNode::Null && !node.text.empty())
    diags.note("put it in single quotes to mean the word");
  return false;
}

bool Reader::checkName(const Name &name, const char *thing) {
  const char *rule = nullptr;
  if (!isIdentifier(name.text))
    rule = "use letters, digits and `_`, not first a digit";
  else if (isReservedWord(name.text))
    rule = "the word has a meaning in expressions";
  if (rule)
    diags.report(Diag::BadName, name.loc, thing, text::printable(name.text, mostShown), rule);
  return !rule && checkLength(name, thing, name.text);
}

bool Reader::checkLength(const Name &name, const std::string &thing, llvm::StringRef part) {
  if (part.size() <= maxNameLength)
    return true;
  diags.report(Diag::BadName, name.loc, thing, text::printable(part, mostShown),
               fmt::format("use at most {} characters", maxNameLength));
  return false;
}

Name Reader::readWord(const YamlNode &node, const std::string &what, const char *expected) {
  return expectScalar(node, what, expected) ? wordOf(node) : Name();
}

Name Reader::readName(const YamlNode &node, const std::string &what, const char *expected, bool dotted) {
  Name name = readWord(node, what, expected);
  if (!name.loc)
    return name;
  llvm::SmallVector<llvm::StringRef> parts = {name.text};
  if (dotted) {
    parts.clear();
    llvm::StringRef(name.text).split(parts, '.');
  }
  for (llvm::StringRef part : parts)
    if (!isIdentifier(part) || isReservedWord(part)) {
      diags.report(Diag::WrongNodeKind, name.loc, what, expected, describe(node));
      return Name();
    } else if (!checkLength(name, what, part)) {
      return Name();
    }
  return name;
}

std::vector<Name> Reader::readNames(const YamlNode &node, const std::string &what, const char *expected) {
  std::vector<Name> names;
  auto one = [&](const YamlNode &item, const std::string &which) {
    Name name = readName(item, which, expected);
    if (name.loc)
      names.push_back(std::move(name));
  };
  if (node.kind != YamlNode::Sequence)
    one(node, what);
  for (const auto &item : node.items)
    one(*item, "an entry of " + what);
  return names;
}

bool Reader::readBool(const YamlNode &node, const std::string &what) {
  if (node.kind == YamlNode::Scalar && (node.text == "true" || node.text == "false"))
    return node.text == "true";
  diags.report(Diag::WrongNodeKind, node.loc, what, "`true` or `false`", describe(node));
  return false;
}

/// Reports a value that is no text where an expression is expected.
bool Reader::isExprNode(const YamlNode &node, const std::string &what, const char *hint) {
  if (node.kind == YamlNode::Scalar)
    return true;
  diags.report(Diag::WrongNodeKind, node.loc, what, "an expression", describe(node));
  if (node.kind == YamlNode::Sequence)
    diags.note(hint);
  return false;
}

ExprPtr Reader::readExpr(const YamlNode &node, const std::string &what, const char *hint, bool elseOptional) {
  if (!isExprNode(node, what, hint))
    return nullptr;
  return ExprParser(diags, node).parseWhole(elseOptional);
}

FieldDecl Reader::readField(const KeyValue &entry, const std::string &what) {
  FieldDecl field;
  field.name = entry.key;
  checkName(entry.key, "a field");
  if (expectScalar(*entry.value, what, "a type such as `i32` or `token[max_block]`"))
    ExprParser(diags, *entry.value).parseFieldType(field);
  return field;
}

//===----------------------------------------------------------------------===//
// Statements
//===----------------------------------------------------------------------===//

std::vector<Stmt> Reader::readBody(const YamlNode &node, const std::string &what, bool inGraph) {
  std::vector<Stmt> body;
  if (!expectKind(node, YamlNode::Sequence, what, "a list of statements"))
    return body;
  for (const auto &item : node.items)
    if (std::optional<Stmt> stmt = readStmt(*item, inGraph))
      body.push_back(std::move(*stmt));
  return body;
}

/// The place of the `=` of `x = e` or `x += e`, outside brackets.
static size_t assignmentIn(llvm::StringRef text) {
  int depth = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    depth += llvm::StringRef("([").contains(text[i]) - llvm::StringRef(")]").contains(text[i]);
    if (text[i] != '=' || depth)
      continue;
    const bool compares = text.substr(i + 1).starts_with("=") || (i && llvm::StringRef("=!<>").contains(text[i - 1]));
    return compares ? llvm::StringRef::npos : i;
  }
  return llvm::StringRef::npos;
}

/// How an element `s[i]` of a sequence gets a value, for who wrote it on the left side.
static std::string elementNote(llvm::StringRef element, llvm::StringRef value) {
  auto [name, index] = element.split('[');
  index = index.take_until([](char c) { return c == ']'; });
  return fmt::format(
      "a sequence is assigned as a whole: `- {0}: map({3} in 0..len({0}), {2} if {3} == {1} else {0}[{3}])`",
      name.rtrim().str(), index.str(), value.trim().str(), index == "k" ? "j" : "k");
}

/// Reports a statement in Python's words, and says what it is here.
bool Reader::reportPython(const YamlNode &statement) {
  if (statement.kind == YamlNode::Scalar) {
    const llvm::StringRef text = statement.text;
    size_t end = assignmentIn(text);
    if (end == llvm::StringRef::npos)
      return false;
    size_t begin = end++;
    while (begin && llvm::StringRef("+-*/%").contains(text[begin - 1]))
      --begin;
    const llvm::StringRef target = text.take_front(begin).trim(), value = text.drop_front(end).trim(),
                          op = text.slice(begin, end).drop_back();
    const llvm::StringRef name = target.take_until([](char c) { return c == '['; }).rtrim();
    llvm::SmallVector<llvm::StringRef, 4> parts;
    name.split(parts, '.');
    if (value.empty() || op.size() > 1 || text.size() > 100 || !llvm::all_of(parts, isIdentifier))
      return false;
    diags.report(Diag::ExprSyntax, statement.range(begin, end), "an operator or the end of the expression",
                 ticks(text.slice(begin, end).str()));
    const bool sum = op.empty() || op == "+" || value.find(' ') == llvm::StringRef::npos;
    const std::string after =
        op.empty() ? value.str()
                   : fmt::format(fmt::runtime(sum ? "{} {} {}" : "{} {} ({})"), target.str(), op.str(), value.str());
    if (target != name && !ofBuffers)
      diags.note(elementNote(target, after));
    else
      diags.note(fmt::format("write `- {}: {}`{}", target.str(), after, op == "+" ? "; only `count:` has `+=`" : ""));
    return true;
  }
  if (statement.kind != YamlNode::Map)
    return false;
  bool hasIf = false, hasDo = false;
  for (const YamlNode::Entry &entry : statement.entries) {
    hasIf |= entry.key->text == "if";
    hasDo |= entry.key->text == "do";
  }
  for (const YamlNode::Entry &entry : statement.entries) {
    const llvm::StringRef key = entry.key->text;
    const SourceLoc loc = entry.key->range(0, key.size());
    if (key == "elif" || key == "elseif" || key == "else if") {
      diags.report(Diag::UnknownKey, loc, key.str(), "a statement with `if`");
      diags.note("write `else:`, and below it a list with another `- if:`, which has a `do:` of its own");
      return true;
    }
    if (key == "then" && hasIf && !hasDo) {
      diags.report(Diag::UnknownKey, loc, key.str(), "a statement with `if`");
      diags.note("did you mean `do`?");
      return true;
    }
    const llvm::StringRef word = key.take_until([](char c) { return c == ' '; });
    if (word != key && (word == "if" || word == "for" || word == "while")) {
      diags.report(Diag::UnknownKey, loc, text::printable(key.str(), mostShown), "a statement of a stage or policy");
      diags.note(fmt::format("write `- {0}: {1}`, and below it, as far in as `{0}`, `do:` with a list of statements",
                             word.str(), text::printable(key.drop_front(word.size()).trim().str(), mostShown)));
      return true;
    }
  }
  return false;
}

std::optional<Stmt> Reader::readStmt(const YamlNode &node, bool inGraph) {
  Stmt stmt;
  if (!inGraph && reportPython(node))
    return std::nullopt;
  if (node.kind == YamlNode::Scalar && inGraph) {
    diags.report(Diag::WrongNodeKind, node.loc, "a statement of a graph", "`name: expression`", describe(node));
    return std::nullopt;
  }
  if (node.kind == YamlNode::Scalar) {
    stmt.loc = node.range(0, node.text.size());
    stmt.values.push_back(readExpr(node, "a statement"));
    return stmt;
  }
  if (node.kind != YamlNode::Map || node.entries.empty()) {
    diags.report(Diag::WrongNodeKind, node.loc, "a statement", "`name: expression` or an expression",
                 node.kind == YamlNode::Map ? "an empty mapping" : describe(node));
    return std::nullopt;
  }

  std::vector<KeyValue> all = entries(node, "a statement");
  if (all.empty())
    return std::nullopt;
  // Each kind of block stands in one kind of file.
  for (const KeyValue &entry : all) {
    const bool ofGraph = entry.key.text == "repeat";
    if (!ofGraph && entry.key.text != "if" && entry.key.text != "for" && entry.key.text != "while")
      continue;
    if (ofGraph == inGraph)
      return readBlock(entry, all, inGraph);
    diags.report(Diag::UnknownKey, entry.key.loc, entry.key.text,
                 inGraph ? "a statement of a graph" : "a statement of a stage or policy");
    return std::nullopt;
  }

  const KeyValue &head = all.front();
  const std::string what = ticks(head.key.text);
  for (const KeyValue &extra : llvm::ArrayRef(all).drop_front()) {
    bool isPart = extra.key.text == "do" || extra.key.text == "else";
    if (isPart) {
      diags.report(Diag::UnknownKey, head.key.loc, head.key.text, "a statement with " + ticks(extra.key.text));
      diags.note(inGraph ? "a block begins with `repeat:`" : "a block begins with `if:`, `for:` or `while:`");
      return std::nullopt;
    }
    diags.report(Diag::UnknownKey, extra.key.loc, extra.key.text, "the statement " + what);
    diags.note("each statement begins with `- `");
  }

  stmt.loc = head.key.loc;
  if (head.key.text == "count" && !inGraph) {
    stmt.kind = Stmt::Count;
    if (isExprNode(*head.value, what)) {
      ExprPtr value;
      ExprParser(diags, *head.value).parseCount(stmt.target, value);
      stmt.values.push_back(std::move(value));
    }
    return stmt;
  }
  if (head.key.text == "trace" && !inGraph) {
    stmt.kind = Stmt::Trace;
    stmt.values.push_back(readExpr(*head.value, what));
    return stmt;
  }
  stmt.kind = Stmt::Assign;
  if (ofBuffers && llvm::StringRef(head.key.text).contains('[')) {
    readPlace(*head.keyNode, stmt);
    if (isExprNode(*head.value, what))
      stmt.values.push_back(ExprParser(diags, *head.value).parseWhole());
    return stmt;
  }
  stmt.target =
      inGraph ? readName(*head.keyNode, "the left side of a statement", "a name of letters, digits and `_`")
              : readName(*head.keyNode, "the left side of a statement", "a name such as `draft` or `kv.target.keep`",
                         /*dotted=*/true);
  if (!stmt.target.loc) {
    if (head.key.text == "else")
      diags.note("`else:` stands below its `if:`, without a `- ` of its own");
    else if (llvm::StringRef(head.key.text).contains('['))
      diags.note(elementNote(head.key.text, head.value->kind == YamlNode::Scalar ? head.value->text : "x"));
    else if (llvm::StringRef(head.key.text).contains('('))
      diags.note("`: ` ends a key; named arguments are written `name=value`, "
                 "and a slice has no "
                 "space after `:`");
    return stmt;
  }
  if (!isExprNode(*head.value, what))
    return stmt;
  // Only commands such as `policy.observe` take several values.
  if (llvm::StringRef(stmt.target.text).contains('.'))
    ExprParser(diags, *head.value).parseValues(stmt);
  else
    stmt.values.push_back(ExprParser(diags, *head.value).parseWhole(/*elseMayLack=*/head.key.text == "goto"));
  return stmt;
}

/// `name[i]` or `name[a:b]`, on the left side.
void Reader::readPlace(const YamlNode &key, Stmt &stmt) {
  stmt.place = readExpr(key, "the left side of a statement");
  const Expr *base = stmt.place.get();
  while (base && (base->kind == Expr::Index || base->kind == Expr::Slice))
    base = base->args[0].get();
  if (!base)
    return;
  if (base == stmt.place.get() || base->kind != Expr::Path)
    diags.report(Diag::WrongNodeKind, stmt.place->loc, "the left side of a statement",
                 "a name, or a part of a buffer such as `next[i]`", ticks(key.text));
  else
    stmt.target = {base->text, base->loc};
}

std::optional<Name> Reader::readBinder(const YamlNode &node, const std::string &what, const char *thing,
                                       ExprPtr &range) {
  ExprPtr in = readExpr(node, what);
  if (in)
    endWithChoice(in);
  if (!in)
    return std::nullopt;
  if (!isBinder(*in)) {
    diags.report(Diag::ExprSyntax, in->loc, "`i in a..b`", "another expression");
    if (in->kind == Expr::Conditional)
      diags.note("a choice in front of `..` stands in parentheses: `i in (a if c else b)..n`");
    return std::nullopt;
  }
  Name name = {in->args[0]->text, in->args[0]->loc};
  checkName(name, thing);
  range = std::move(in->args[1]);
  return name;
}

/// `if:`, `for:`, `while:` or `repeat:` with its `do:`, in any order of keys.
std::optional<Stmt> Reader::readBlock(const KeyValue &head, llvm::ArrayRef<KeyValue> entries, bool inGraph) {
  Stmt stmt;
  stmt.loc = head.key.loc;
  const std::string what = "a statement with " + ticks(head.key.text);
  if (inGraph) {
    stmt.kind = Stmt::Repeat;
    checkKeys(entries, what, {"repeat", "do"});
    stmt.target = readName(*head.value, "`repeat`", "the name of a group of weights");
  } else if (head.key.text == "if") {
    stmt.kind = Stmt::If;
    checkKeys(entries, what, {"if", "do", "else"});
    stmt.values.push_back(readExpr(*head.value, "`if`"));
  } else if (head.key.text == "for") {
    stmt.kind = Stmt::For;
    checkKeys(entries, what, {"for", "until", "do"});
    ExprPtr range;
    if (const auto name = readBinder(*head.value, "`for`", "a loop variable", range)) {
      stmt.target = *name;
      stmt.values.push_back(std::move(range));
      if (const YamlNode *until = find(entries, "until"))
        stmt.values.push_back(readExpr(*until, "`until`"));
    }
  } else {
    stmt.kind = Stmt::While;
    checkKeys(entries, what, {"while", "bound", "do"});
    requireKeys(entries, what, head.key.loc, {"bound"});
    stmt.values.push_back(readExpr(*head.value, "`while`"));
    if (const YamlNode *bound = find(entries, "bound"))
      stmt.values.push_back(readExpr(*bound, "`bound`"));
  }
  requireKeys(entries, what, head.key.loc, {"do"});
  if (const YamlNode *body = find(entries, "do"))
    stmt.body = readBody(*body, "`do`", inGraph);
  if (const YamlNode *otherwise = stmt.kind == Stmt::If ? find(entries, "else") : nullptr)
    stmt.otherwise = readBody(*otherwise, "`else`", inGraph);
  return stmt;
}

} // namespace megalith::ast
