#include "ExprLexer.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/ConvertUTF.h"

namespace megalith::ast {

static bool isNameStart(char c) { return llvm::isAlpha(c) || c == '_'; }
static bool isNameChar(char c) { return llvm::isAlnum(c) || c == '_'; }

static bool isKeyword(llvm::StringRef word) {
  return llvm::is_contained({"if", "else", "or", "and", "not", "in"}, word);
}

bool isReservedWord(llvm::StringRef word) { return isKeyword(word) || word == "true" || word == "false"; }

bool isIdentifier(llvm::StringRef text) {
  return !text.empty() && isNameStart(text[0]) && llvm::all_of(text, isNameChar);
}

namespace {
class Lexer {
public:
  explicit Lexer(llvm::StringRef text) : text(text) {}

  std::vector<Token> run() {
    std::vector<Token> tokens;
    for (;;) {
      while (pos < text.size() && llvm::isSpace(text[pos]))
        ++pos;
      tokens.push_back(lexOne());
      if (tokens.back().kind == Token::End)
        return tokens;
    }
  }

private:
  llvm::StringRef text;
  size_t pos = 0;

  char at(size_t i) const { return i < text.size() ? text[i] : 0; }

  Token take(Token::Kind kind, size_t size, const char *hint = nullptr) {
    Token token{kind, text.substr(pos, size), pos, pos + size, hint};
    pos += size;
    return token;
  }

  Token lexOne() {
    if (pos >= text.size())
      return take(Token::End, 0);
    char c = text[pos];
    if (llvm::isDigit(c))
      return lexNumber();
    if (isNameStart(c))
      return lexName();
    if (c == '\'')
      return lexString();
    return lexPunct();
  }

  Token lexNumber() {
    size_t end = pos;
    auto digits = [&] {
      while (llvm::isDigit(at(end)))
        ++end;
    };
    bool isFloat = false;
    digits();
    // `0..n` is a range, not a float.
    if (at(end) == '.' && llvm::isDigit(at(end + 1))) {
      isFloat = true;
      ++end;
      digits();
    }
    if (at(end) == 'e' || at(end) == 'E') {
      size_t sign = at(end + 1) == '-' || at(end + 1) == '+';
      if (llvm::isDigit(at(end + 1 + sign))) {
        isFloat = true;
        end += 1 + sign;
        digits();
      }
    }
    if (isNameChar(at(end)) || (at(end) == '.' && at(end + 1) != '.')) {
      while (isNameChar(at(end)) || (at(end) == '.' && at(end + 1) != '.'))
        ++end;
      return take(Token::Bad, end - pos, "a number is `12`, `0.5` or `1e-6`");
    }
    return take(isFloat ? Token::Float : Token::Int, end - pos);
  }

  Token lexName() {
    size_t end = pos;
    while (isNameChar(at(end)))
      ++end;
    if (isKeyword(text.slice(pos, end)))
      return take(Token::Punct, end - pos);
    bool tooLong = end - pos > maxNameLength;
    while (at(end) == '.' && at(end + 1) != '.') {
      if (!isNameStart(at(end + 1)))
        return take(Token::Bad, end + 1 - pos, "a name must follow the `.`");
      const size_t begin = ++end;
      while (isNameChar(at(end)))
        ++end;
      tooLong |= end - begin > maxNameLength;
    }
    if (tooLong)
      return take(Token::Bad, end - pos, "a name has at most 200 characters");
    return take(Token::Path, end - pos);
  }

  Token lexString() {
    size_t close = text.find('\'', pos + 1);
    if (close == llvm::StringRef::npos)
      return take(Token::Bad, text.size() - pos, "the closing quote is missing");
    Token token = take(Token::String, close + 1 - pos);
    token.text = token.text.drop_front().drop_back();
    return token;
  }

  Token lexPunct() {
    llvm::StringRef rest = text.substr(pos);
    for (const char *op : {"==", "!=", "<=", ">=", "+=", ".."})
      if (rest.starts_with(op))
        return take(Token::Punct, 2);
    if (rest.starts_with("&&"))
      return take(Token::Bad, 2, "write `and`");
    if (rest.starts_with("||"))
      return take(Token::Bad, 2, "write `or`");
    if (rest.starts_with("!"))
      return take(Token::Bad, 1, "write `not`");
    if (rest.starts_with("**"))
      return take(Token::Bad, 2, "write `pow(x, y)`, of two f32, or multiply");
    if (rest.starts_with("//"))
      return take(Token::Bad, 2, "write `/`: of two i32 it drops the fraction");
    if (rest.starts_with("\""))
      return take(Token::Bad, 1, "there are no strings: a token is its number, as in `last == 5`");
    if (llvm::StringRef("()[],:+-*/%<>=").contains(rest[0]))
      return take(Token::Punct, 1);
    size_t size = llvm::getNumBytesForUTF8(uint8_t(rest[0]));
    return take(Token::Bad, std::min(size, rest.size()), "expressions have no such character");
  }
};
} // namespace

std::vector<Token> lexExpr(llvm::StringRef text) { return Lexer(text).run(); }

} // namespace megalith::ast
