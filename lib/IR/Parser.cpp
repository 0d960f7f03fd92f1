#include "megalith/IR/Text.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"
#include <cstdlib>
#include <fmt/format.h>

namespace megalith::ir {

namespace {

/// Regions nest a few levels deep; the limit keeps hostile input off the stack.
constexpr unsigned maxDepth = 64;

struct Token {
  enum Kind { End, Ident, Value, At, Place, Int, Float, String, Punct, Bad } kind = End;
  std::string text; ///< identifier, value name, string contents, punctuation, or an error
  int64_t intValue = 0;
  double floatValue = 0;
  SourceLoc loc;   ///< of the token in the IR text
  SourceLoc place; ///< Place: the `@file:line:col` it spells
};

class Lexer {
public:
  Lexer(llvm::StringRef text, uint32_t file) : text(text), file(file) {}

  Token next() {
    skip();
    Token t;
    t.loc = {file, line, static_cast<uint32_t>(pos - lineStart + 1), 1};
    size_t begin = pos;
    lex(t);
    t.loc.length = std::max<size_t>(1, pos - begin);
    return t;
  }

private:
  char peek(size_t ahead = 0) const { return pos + ahead < text.size() ? text[pos + ahead] : '\0'; }
  static bool isWord(char c) { return llvm::isAlnum(c) || c == '_' || c == '.'; }
  static bool isStart(char c) { return llvm::isAlpha(c) || c == '_'; }

  void skip() {
    while (pos < text.size()) {
      if (text[pos] == '\n') {
        ++line;
        lineStart = ++pos;
      } else if (text[pos] == ' ' || text[pos] == '\t' || text[pos] == '\r') {
        ++pos;
      } else if (text[pos] == '/' && peek(1) == '/') {
        pos = std::min(text.find('\n', pos), text.size());
      } else {
        return;
      }
    }
  }

  std::string word() {
    size_t begin = pos;
    while (isWord(peek()))
      ++pos;
    return text.slice(begin, pos).str();
  }

  void bad(Token &t, std::string message) {
    t.kind = Token::Bad;
    t.text = std::move(message);
  }

  void lex(Token &t) {
    if (pos >= text.size())
      return;
    char c = peek();
    if (isStart(c)) {
      t.kind = Token::Ident;
      t.text = word();
    } else if (c == '%') {
      ++pos;
      t.kind = Token::Value;
      t.text = word();
      if (t.text.empty())
        bad(t, "`%` is not followed by a name");
    } else if (c == '"') {
      string(t);
    } else if (c == '@') {
      at(t);
    } else if (llvm::isDigit(c) || (c == '-' && (llvm::isDigit(peek(1)) || isStart(peek(1))))) {
      number(t);
    } else if (llvm::StringRef("=(){}[]<>,:^").contains(c)) {
      ++pos;
      t.kind = Token::Punct;
      t.text = std::string(1, c);
    } else {
      ++pos;
      bad(t, fmt::format("unexpected character `{}`",
                         llvm::isPrint(c) ? std::string(1, c) : fmt::format("\\x{:02x}", static_cast<uint8_t>(c))));
    }
  }

  void at(Token &t) {
    ++pos;
    if (peek() == '"') {
      string(t);
      if (t.kind == Token::String)
        t.kind = Token::At;
      return;
    }
    if (isStart(peek())) {
      t.kind = Token::At;
      t.text = word();
      return;
    }
    uint32_t parts[3];
    for (int i = 0; i < 3; ++i) {
      size_t begin = pos;
      while (llvm::isDigit(peek()))
        ++pos;
      if (text.slice(begin, pos).getAsInteger(10, parts[i]))
        return bad(t, "expected a name, or a place such as `@0:12:5`, after `@`");
      if (i < 2 && peek() == ':')
        ++pos;
    }
    t.kind = Token::Place;
    t.place = {parts[0], parts[1], parts[2], 1};
  }

  void string(Token &t) {
    ++pos;
    t.kind = Token::String;
    while (true) {
      char c = peek();
      if (pos >= text.size() || c == '\n')
        return bad(t, "the string does not end");
      ++pos;
      if (c == '"')
        return;
      if (c == '\\') {
        char e = peek();
        ++pos;
        if (e == 'n') {
          c = '\n';
        } else if (e == 'x' && llvm::isHexDigit(peek()) && llvm::isHexDigit(peek(1))) {
          c = static_cast<char>(llvm::hexFromNibbles(peek(), peek(1)));
          pos += 2;
        } else if (e == '"' || e == '\\') {
          c = e;
        } else {
          return bad(t, "unknown escape in a string");
        }
      }
      t.text += c;
    }
  }

  void number(Token &t) {
    size_t begin = pos++;
    while (isWord(peek()) || ((peek() == '-' || peek() == '+') && (text[pos - 1] == 'e')))
      ++pos;
    llvm::StringRef s = text.slice(begin, pos);
    if (!s.getAsInteger(10, t.intValue)) {
      t.kind = Token::Int;
      return;
    }
    std::string z = s.str();
    char *end = nullptr;
    t.floatValue = std::strtod(z.c_str(), &end);
    t.kind = Token::Float;
    bool isReal = s.find_first_of(".en") != llvm::StringRef::npos && !s.contains('x');
    if (*end || !isReal)
      bad(t, fmt::format("`{}` is not a number", z));
  }

  llvm::StringRef text;
  uint32_t file, line = 1;
  size_t pos = 0, lineStart = 0;
};

class Parser {
public:
  Parser(Diagnostics &diags, uint32_t file) : diags(diags), lexer(diags.sources().text(file), file) {
    advance();
    for (unsigned i = 0; i < numOps; ++i)
      mnemonics.try_emplace(mnemonic(static_cast<Op>(i)), static_cast<Op>(i));
  }

  std::optional<Module> run() {
    scopes.emplace_back();
    if (!parseOp(module.root, 0))
      return std::nullopt;
    if (tok.kind != Token::End) {
      error("expected the end of the text after the module");
      return std::nullopt;
    }
    if (module.root.op != Op::Module || module.root.regions.size() != 1) {
      diags.report(Diag::IrSyntax, first, "the text must be one `module` with one region");
      return std::nullopt;
    }
    return std::move(module);
  }

private:
  void advance() {
    tok = lexer.next();
    if (!first)
      first = tok.loc;
  }
  bool isPunct(char c) const { return tok.kind == Token::Punct && tok.text[0] == c; }
  bool accept(char c) {
    if (!isPunct(c))
      return false;
    advance();
    return true;
  }
  bool error(llvm::StringRef message) { return errorAt(tok.loc, message); }
  bool errorAt(SourceLoc loc, llvm::StringRef message) {
    if (tok.kind == Token::Bad)
      diags.report(Diag::IrSyntax, tok.loc, tok.text);
    else
      diags.report(Diag::IrSyntax, loc, message.str());
    return false;
  }
  bool expect(char c, llvm::StringRef where) {
    return accept(c) || error(fmt::format("expected `{}` {}", c, where.str()));
  }

  bool parseOp(Operation &op, unsigned depth) {
    std::vector<Token> results;
    if (tok.kind == Token::Value) {
      do {
        if (tok.kind != Token::Value)
          return error("expected a value name such as `%x`");
        results.push_back(tok);
        advance();
      } while (accept(','));
      if (!expect('=', "after the results of an operation"))
        return false;
    }
    if (tok.kind != Token::Ident)
      return error("expected an operation");
    auto it = mnemonics.find(tok.text);
    if (it == mnemonics.end()) {
      errorAt(tok.loc, fmt::format("unknown operation `{}`", tok.text));
      std::vector<std::string> names;
      for (const auto &entry : mnemonics)
        names.push_back(entry.first().str());
      std::sort(names.begin(), names.end());
      diags.suggest(tok.text, names);
      return false;
    }
    op.op = it->second;
    op.written = tok.loc;
    advance();
    if (tok.kind == Token::At) {
      op.name = tok.text;
      advance();
    }
    if (accept('(') && !parseOperands(op))
      return false;
    // `{` opens attributes or a region; only attributes begin with `key =`, `key,` or
    // `key}` where key is no operation.
    bool regionOpen = false;
    if (isPunct('{')) {
      advance();
      bool attrs = false;
      if (tok.kind == Token::String) {
        attrs = true;
      } else if (tok.kind == Token::Ident) {
        Lexer savedLexer = lexer;
        Token saved = tok;
        advance();
        attrs = isPunct('=') || isPunct(',') || (isPunct('}') && !mnemonics.count(saved.text));
        lexer = savedLexer;
        tok = saved;
      }
      if (attrs && !parseAttrs(op))
        return false;
      regionOpen = !attrs;
    }
    SourceLoc typesAt = tok.loc;
    std::vector<Type> types;
    if (!regionOpen && accept(':')) {
      do {
        if (!parseType(types.emplace_back()))
          return false;
      } while (accept(','));
    }
    if (types.size() != results.size())
      return errorAt(typesAt, fmt::format("{} results but {} types", results.size(), types.size()));
    if (!regionOpen && tok.kind == Token::Place) {
      op.loc = tok.place;
      advance();
    }
    if (regionOpen || accept('{')) {
      do {
        if (!regionOpen && !op.regions.empty() && !expect('{', "before the next region"))
          return false;
        regionOpen = false;
        if (!parseRegion(op.regions.emplace_back(), depth + 1))
          return false;
      } while (accept(','));
    }
    for (size_t i = 0; i < results.size(); ++i)
      if (!define(results[i], types[i], op.results.emplace_back()))
        return false;
    return true;
  }

  bool parseOperands(Operation &op) {
    do {
      if (tok.kind != Token::Value)
        return error("expected a value name such as `%x`");
      std::optional<Value> v = lookup(tok.text);
      if (!v)
        return error(fmt::format("`%{}` is not defined here", tok.text));
      op.operands.push_back(*v);
      advance();
    } while (accept(','));
    return expect(')', "after the operands");
  }

  bool parseAttrs(Operation &op) {
    do {
      if (tok.kind != Token::Ident && tok.kind != Token::String)
        return error("expected the key of an attribute");
      Token key = tok;
      advance();
      Attr value = true;
      if (accept('=') && !parseAttr(value))
        return false;
      if (!op.attrs.addUnchecked(key.text, std::move(value)))
        return errorAt(key.loc, fmt::format("the attribute `{}` appears twice", key.text));
    } while (accept(','));
    return expect('}', "after the attributes");
  }

  bool parseAttr(Attr &value) {
    if (accept('['))
      return parseListAttr(value);
    if (tok.kind == Token::Int)
      value = tok.intValue;
    else if (tok.kind == Token::Float)
      value = tok.floatValue;
    else if (tok.kind == Token::Ident && (tok.text == "inf" || tok.text == "nan"))
      value = std::strtod(tok.text.c_str(), nullptr);
    else if (tok.kind == Token::String)
      value = tok.text;
    else
      return error("expected a number, a string or a list as the value of the attribute");
    advance();
    return true;
  }

  bool parseListAttr(Attr &value) {
    std::vector<int64_t> ints;
    std::vector<double> reals;
    std::vector<std::string> strings;
    if (!isPunct(']')) {
      do {
        if (tok.kind == Token::Float && strings.empty() && ints.empty())
          reals.push_back(tok.floatValue);
        else if (tok.kind == Token::Int && strings.empty() && reals.empty())
          ints.push_back(tok.intValue);
        else if (tok.kind == Token::String && ints.empty() && reals.empty())
          strings.push_back(tok.text);
        else
          return error("a list holds integers only, numbers with points only, or strings only");
        advance();
      } while (accept(','));
    }
    // An empty list has no type of its own; both accessors read it as empty.
    if (!reals.empty())
      value = std::move(reals);
    else if (ints.empty())
      value = std::move(strings);
    else
      value = std::move(ints);
    return expect(']', "after the list");
  }

  bool parseSize(int64_t &size) {
    if (tok.kind != Token::Int || tok.intValue <= 0 || tok.intValue > INT32_MAX)
      return error("expected a size from 1 to 2147483647");
    size = tok.intValue;
    advance();
    return true;
  }

  bool parseScalar(Scalar &s) {
    if (const auto named = tok.kind == Token::Ident ? wordNamed<Scalar>(tok.text) : std::nullopt) {
      s = *named;
      advance();
      return true;
    }
    return error("expected a type: i32, i64, u32, f32, bf16, f16, bool, token, `token<8>`, `token<4, 3>`, "
                 "`[R, 64] f32`, `[64] bf16` or kv");
  }

  bool parseType(Type &type) {
    if (tok.kind == Token::Ident && tok.text == "kv") {
      type = Type::kv();
      advance();
      return true;
    }
    if (accept('[')) {
      type.kind = Type::Vector;
      if (tok.kind == Token::Ident && tok.text == "R") {
        type.kind = Type::Rows;
        advance();
        if (!expect(',', "after `R`"))
          return false;
      }
      return parseSize(type.size) && expect(']', "after the size") && parseScalar(type.elem);
    }
    if (!parseScalar(type.elem))
      return false;
    if (!accept('<'))
      return true;
    type.kind = Type::Seq;
    if (isPunct('>'))
      return expect('>', "after the capacity");
    if (!parseSize(type.size))
      return false;
    if (accept(',')) {
      type.kind = Type::Table;
      if (!parseSize(type.inner))
        return false;
    }
    return expect('>', "after the capacity");
  }

  /// After the region's `{`.
  bool parseRegion(Region &region, unsigned depth) {
    if (depth > maxDepth)
      return error(fmt::format("regions nest deeper than {}", maxDepth));
    scopes.emplace_back();
    if (accept('^')) {
      if (!expect('(', "after `^`"))
        return false;
      do {
        Token arg = tok;
        Type type;
        if (arg.kind != Token::Value)
          return error("expected a value name such as `%x`");
        advance();
        if (!expect(':', "before the type of a region argument") || !parseType(type) ||
            !define(arg, type, region.args.emplace_back()))
          return false;
      } while (accept(','));
      if (!expect(')', "after the region's arguments") || !expect(':', "after `^(...)`"))
        return false;
    }
    while (!isPunct('}')) {
      if (tok.kind == Token::End)
        return error("expected `}`, found the end of the text");
      if (!parseOp(region.ops.emplace_back(), depth))
        return false;
    }
    advance();
    scopes.pop_back();
    return true;
  }

  std::optional<Value> lookup(llvm::StringRef name) const {
    for (auto scope = scopes.rbegin(); scope != scopes.rend(); ++scope)
      if (auto it = scope->find(name); it != scope->end())
        return it->second;
    return std::nullopt;
  }

  bool define(const Token &name, Type type, Value &value) {
    if (lookup(name.text))
      return errorAt(name.loc, fmt::format("`%{}` is already defined", name.text));
    bool numbered = llvm::isDigit(name.text[0]);
    value = module.newValue(type, numbered ? llvm::StringRef() : llvm::StringRef(name.text));
    scopes.back()[name.text] = value;
    return true;
  }

  Diagnostics &diags;
  Lexer lexer;
  Token tok;
  SourceLoc first;
  Module module;
  std::vector<llvm::StringMap<Value>> scopes;
  llvm::StringMap<Op> mnemonics;
};

} // namespace

std::optional<Module> parse(Diagnostics &diags, uint32_t file) { return Parser(diags, file).run(); }

} // namespace megalith::ir
