#include "YamlTree.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/ConvertUTF.h"
#include <sstream>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

namespace megalith::ast {

/// Shipped files nest 6 deep. yaml-cpp recurses per level, so this also bounds
/// its stack.
static constexpr unsigned maxYamlDepth = 64;

/// Shipped files have less than a thousand. The tree takes a few hundred bytes for each.
static constexpr unsigned maxYamlValues = 20'000;

SourceLoc YamlNode::range(size_t begin, size_t end) const {
  if (places.empty())
    return loc;
  Place first = places[std::min(begin, places.size() - 1)];
  Place last = places[std::min(end, places.size() - 1)];
  uint32_t length = 1;
  if (last.line == first.line && last.column > first.column)
    length = last.column - first.column;
  return {loc.file, first.line, first.column, length};
}

static bool isYamlSpace(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

/// Whether the quoted scalar that begins at `pos` ends. yaml-cpp accepts one
/// that runs into the last newline of the file.
static bool isClosed(llvm::StringRef source, size_t pos) {
  char quote = source[pos];
  for (size_t i = pos + 1; i < source.size(); ++i) {
    if (quote == '"' && source[i] == '\\')
      ++i;
    else if (source[i] == quote && quote == '\'' && source.substr(i + 1).starts_with("'"))
      ++i;
    else if (source[i] == quote)
      return true;
  }
  return false;
}

/// Pairs each character of a scalar's value with its place in the file, by
/// walking both: line folding turns runs of space into other runs of space,
/// and `''` stands for `'`. Gives up on escape sequences.
static void findPlaces(YamlNode &node, llvm::StringRef source, size_t pos) {
  char style = pos < source.size() ? source[pos] : 0;
  YamlNode::Place at{node.loc.line, node.loc.column};
  auto advance = [&] {
    if (source[pos] == '\n')
      at = {at.line + 1, 1};
    else
      ++at.column;
    ++pos;
  };
  if (style == '\'' || style == '"')
    advance();
  else if (style == '|' || style == '>')
    while (pos < source.size() && source[pos] != '\n')
      advance();
  std::vector<YamlNode::Place> places;
  places.reserve(node.text.size() + 1);
  for (char c : node.text) {
    if (isYamlSpace(c)) {
      places.push_back(at);
      if (pos < source.size() && isYamlSpace(source[pos]))
        advance();
      continue;
    }
    while (pos < source.size() && isYamlSpace(source[pos]))
      advance();
    if (pos >= source.size() || source[pos] != c)
      return;
    places.push_back(at);
    advance();
    if (style == '\'' && c == '\'') {
      if (pos >= source.size() || source[pos] != '\'')
        return;
      advance();
    }
  }
  places.push_back(at);
  node.places = std::move(places);
}

namespace {
/// Builds the tree from yaml-cpp's events.
class TreeBuilder : public YAML::EventHandler {
public:
  TreeBuilder(Diagnostics &diags, uint32_t file) : diags(diags), file(file), source(diags.sources().text(file)) {
    // yaml-cpp does not count a byte order mark.
    if (source.starts_with("\xEF\xBB\xBF"))
      bomSize = 3;
  }

  SourceLoc place(const YAML::Mark &mark, uint32_t length = 1) const {
    if (mark.is_null())
      return {file, 1, 1, 1};
    uint32_t column = mark.column + 1 + (mark.line == 0 ? bomSize : 0);
    return {file, uint32_t(mark.line) + 1, column, length};
  }

  void OnDocumentStart(const YAML::Mark &mark) override {
    if (++documents == 2)
      unsupported(place(mark, 3), "a second document", "one file holds one pipeline or one model");
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark &mark, YAML::anchor_t) override {
    if (ignoring())
      return;
    auto node = make(YamlNode::Null, mark);
    node->text = nullWord(mark);
    if (!node->text.empty()) {
      node->loc.length = node->text.size();
    } else if (pendingKey()) {
      node->loc = open.back()->entries.back().key->loc;
    } else if (!open.empty()) {
      // An empty `-` is reported at whatever follows it.
      size_t pos = source.substr(0, offset(mark)).rtrim(" \n\r\t").size();
      node->loc = open.back()->loc;
      if (pos > 0 && source[pos - 1] == '-') {
        size_t lineStart = source.substr(0, pos).rfind('\n') + 1;
        uint32_t line = mark.line + 1 - source.slice(pos, offset(mark)).count('\n');
        node->loc = {file, line, uint32_t(pos - lineStart), 1};
      }
    }
    attach(std::move(node));
  }

  void OnAlias(const YAML::Mark &mark, YAML::anchor_t) override {
    if (ignoring())
      return;
    reportAlias(mark);
    attach(make(YamlNode::Null, mark));
  }

  void OnScalar(const YAML::Mark &mark, const std::string &tag, YAML::anchor_t, const std::string &value) override {
    if (ignoring())
      return;
    size_t pos = offset(mark);
    // Quoted scalars carry the tag "!" without one in the file.
    checkTag(mark, tag == "!" && !source.substr(pos).starts_with("!") ? "" : tag);
    auto node = make(YamlNode::Scalar, mark);
    node->text = value;
    findPlaces(*node, source, pos);
    bool quotes = source.substr(pos).starts_with("'") || source.substr(pos).starts_with("\"");
    node->quoted = quotes;
    if (quotes && !isClosed(source, pos)) {
      unusable = true;
      diags.report(Diag::YamlSyntax, node->loc, "a quote that is not closed");
    }
    if (node->places.empty())
      node->loc.length = 1;
    else if (node->places.back().line == node->loc.line)
      node->loc.length = node->places.back().column + quotes - node->loc.column;
    else
      node->loc.length = source.substr(pos).take_until([](char c) { return c == '\n'; }).size();
    node->loc.length = std::max(node->loc.length, 1u);
    attach(std::move(node));
  }

  void OnSequenceStart(const YAML::Mark &mark, const std::string &tag, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {
    push(YamlNode::Sequence, mark, tag);
  }
  void OnSequenceEnd() override { pop(); }
  void OnMapStart(const YAML::Mark &mark, const std::string &tag, YAML::anchor_t, YAML::EmitterStyle::value) override {
    push(YamlNode::Map, mark, tag);
  }
  void OnMapEnd() override { pop(); }

  void OnAnchor(const YAML::Mark &mark, const std::string &name) override {
    if (!ignoring())
      unsupported(place(mark, name.size() + 1), "the anchor `&" + name + "`", "write the value at each place");
  }

  void reportAlias(const YAML::Mark &mark) {
    llvm::StringRef word = source.substr(offset(mark)).take_until(isYamlSpace);
    unusable = true;
    unsupported(place(mark, word.size()), "the alias `" + word.str() + "`",
                "write the value out, or put the expression in single quotes");
  }

  std::unique_ptr<YamlNode> root;
  unsigned documents = 0;
  bool tooDeep = false, tooMany = false;
  /// The tree lacks what an alias stands for, or has text of a quote that is
  /// not closed: later errors would be about that.
  bool unusable = false;

private:
  Diagnostics &diags;
  uint32_t file;
  llvm::StringRef source;
  unsigned bomSize = 0;
  /// The sequences and maps being read, outermost first.
  std::vector<YamlNode *> open;
  unsigned depth = 0, values = 0;

  size_t offset(const YAML::Mark &mark) const { return std::min<size_t>(source.size(), mark.pos + bomSize); }
  bool ignoring() const { return documents > 1 || depth > maxYamlDepth; }

  void unsupported(SourceLoc loc, const std::string &what, const char *instead) {
    diags.report(Diag::YamlUnsupported, loc, what, instead);
  }

  void checkTag(const YAML::Mark &mark, llvm::StringRef tag) {
    if (tag.empty() || tag == "?")
      return;
    llvm::StringRef word = source.substr(offset(mark)).take_until(isYamlSpace);
    const bool negates = !word.starts_with("!!");
    unusable |= negates; // the value lacks the word
    unsupported(place(mark, word.size()), "the tag `" + word.str() + "`",
                negates ? "write the value without it; a condition is negated by `not`" : "write the value without it");
  }

  std::unique_ptr<YamlNode> make(YamlNode::Kind kind, const YAML::Mark &mark) const {
    auto node = std::make_unique<YamlNode>();
    node->kind = kind;
    node->loc = place(mark);
    return node;
  }

  /// Whether the innermost map has a key that waits for its value.
  bool pendingKey() const {
    return !open.empty() && open.back()->kind == YamlNode::Map && !open.back()->entries.empty() &&
           !open.back()->entries.back().value;
  }

  /// The word that says null at `mark`; empty where nothing stands, and what follows is another node.
  std::string nullWord(const YAML::Mark &mark) const {
    const SourceLoc here = place(mark);
    if (pendingKey())
      if (const SourceLoc key = open.back()->entries.back().key->loc;
          here.line != key.line && here.column <= key.column)
        return "";
    const llvm::StringRef written = source.substr(offset(mark));
    for (llvm::StringRef word : {"null", "Null", "NULL", "~"})
      if (written.starts_with(word))
        return word.str();
    return "";
  }

  YamlNode *attach(std::unique_ptr<YamlNode> node) {
    if (++values > maxYamlValues) {
      tooMany = true;
      diags.report(Diag::TooManyValues, node->loc, "YAML", maxYamlValues);
      throw YAML::Exception(YAML::Mark::null_mark(), ""); // the only way to end the parser
    }
    YamlNode *result = node.get();
    if (open.empty())
      root = std::move(node);
    else if (open.back()->kind == YamlNode::Sequence)
      open.back()->items.push_back(std::move(node));
    else if (pendingKey())
      open.back()->entries.back().value = std::move(node);
    else
      open.back()->entries.push_back({std::move(node), nullptr});
    return result;
  }

  void push(YamlNode::Kind kind, const YAML::Mark &mark, const std::string &tag) {
    if (documents <= 1 && depth++ == maxYamlDepth && !tooDeep) {
      tooDeep = true;
      diags.report(Diag::NestingTooDeep, place(mark), "YAML", maxYamlDepth);
    }
    if (ignoring())
      return;
    checkTag(mark, tag);
    open.push_back(attach(make(kind, mark)));
  }

  void pop() {
    if (!ignoring())
      open.pop_back();
    if (documents <= 1)
      --depth;
  }
};
} // namespace

/// Reports bytes that are not text and returns whether there were any. yaml-cpp
/// would take some for the end of the file, or guess another encoding.
static bool reportBadBytes(Diagnostics &diags, uint32_t file) {
  llvm::StringRef source = diags.sources().text(file);
  constexpr const char *text = "; a file is UTF-8 text";
  uint32_t line = 1;
  size_t lineStart = 0;
  auto report = [&](size_t i, const char *what, const char *instead) {
    diags.report(Diag::YamlSyntax, SourceLoc{file, line, uint32_t(i - lineStart) + 1, 1},
                 fmt::format("{} 0x{:02x}{}", what, uint8_t(source[i]), instead));
    return true;
  };
  for (size_t i = 0; i < source.size(); ++i) {
    uint8_t c = source[i];
    if (c == '\n') {
      ++line;
      lineStart = i + 1;
    } else if (c == '\r' && source[std::min(i + 1, source.size() - 1)] != '\n') {
      // YAML begins a line here; editors and compilers differ.
      return report(i, "a carriage return,", ", without a newline after it; lines end in 0x0a, or in 0x0d 0x0a");
    } else if ((c < 32 && c != '\t' && c != '\r') || c == 127) {
      return report(i, "control character", text);
    } else if (c >= 128) {
      const auto *bytes = reinterpret_cast<const llvm::UTF8 *>(source.data());
      unsigned size = llvm::getNumBytesForUTF8(c);
      if (i + size > source.size() || !llvm::isLegalUTF8Sequence(bytes + i, bytes + i + size))
        return report(i, "invalid byte", text);
      i += size - 1;
    }
  }
  return false;
}

/// What YAML allows of a key on the line of its value.
static constexpr size_t maxKeyLength = 1024;

/// yaml-cpp's message in the words of someone who writes a pipeline, and what
/// to do about it.
static void reportSyntaxError(Diagnostics &diags, SourceLoc loc, const std::string &message) {
  llvm::StringRef line = diags.sources().line(loc.file, loc.line);
  llvm::StringRef indentation = line.take_while([](char c) { return c == ' ' || c == '\t'; });
  if (indentation.contains('\t')) {
    loc.column = indentation.find('\t') + 1;
    diags.report(Diag::YamlSyntax, loc, "a tab in the indentation; use spaces");
    return;
  }
  std::string text = message, note;
  const char *quote = "put the whole expression in single quotes: `'[last] + draft'`";
  if (message == YAML::ErrorMsg::END_OF_MAP || message == YAML::ErrorMsg::END_OF_SEQ) {
    text = "expected the next entry, at the indentation of those before it";
    // At the first word of a line the indentation alone is wrong.
    if (loc.column > indentation.size() + 1)
      note = std::string("if a value begins with a bracket or a quote, ") + quote;
  } else if (message == YAML::ErrorMsg::MAP_VALUE && loc.column > indentation.size() + maxKeyLength) {
    text = fmt::format("a key of more than {} characters", maxKeyLength);
  } else if (message == YAML::ErrorMsg::MAP_VALUE) {
    text = "`: ` inside a value";
    note = "named arguments are written `name=value`; a slice has no space "
           "after `:`; a new key "
           "goes on its own line, indented like its neighbours";
  } else if (message == YAML::ErrorMsg::END_OF_MAP_FLOW || message == YAML::ErrorMsg::END_OF_SEQ_FLOW ||
             message == YAML::ErrorMsg::FLOW_END) {
    text = message == YAML::ErrorMsg::FLOW_END ? "a closing bracket without its opening one"
                                               : "a bracket that is not closed, or text between entries";
    note = std::string("inside `{}` and `[]`, if an expression has brackets or commas, ") + quote;
  } else if (message == YAML::ErrorMsg::UNKNOWN_TOKEN) {
    text = "a value cannot begin with this character";
    note = quote;
  } else if (message == YAML::ErrorMsg::BLOCK_ENTRY) {
    text = "`- ` cannot begin an entry here";
    note = "start a list on the line after its key; write a negative number "
           "without a space";
  } else if (message == YAML::ErrorMsg::ALIAS_NOT_FOUND && line.take_front(loc.column - 1).contains('[')) {
    text = "`*` after a list";
    note = quote;
  } else if (message == YAML::ErrorMsg::EOF_IN_SCALAR) {
    text = "a quote that is not closed";
  }
  diags.report(Diag::YamlSyntax, loc, text);
  if (!note.empty())
    diags.note(note);
}

std::unique_ptr<YamlNode> readYaml(Diagnostics &diags, uint32_t file, const char *what) {
  if (reportBadBytes(diags, file))
    return nullptr;
  TreeBuilder builder(diags, file);
  try {
    std::istringstream in(diags.sources().text(file).str());
    YAML::Parser parser(in);
    while (builder.documents < 2 && parser.HandleNextDocument(builder))
      ;
  } catch (const YAML::Exception &error) {
    if (builder.tooMany)
      return nullptr;
    if (error.msg == YAML::ErrorMsg::UNKNOWN_ANCHOR)
      builder.reportAlias(error.mark);
    else if (!builder.tooDeep)
      reportSyntaxError(diags, builder.place(error.mark), error.msg);
    return nullptr;
  }
  if (!builder.root) {
    diags.report(Diag::WrongNodeKind, SourceLoc{file, 1, 1, 1}, what, "a mapping", "an empty file");
    return nullptr;
  }
  return builder.unusable ? nullptr : std::move(builder.root);
}

} // namespace megalith::ast
