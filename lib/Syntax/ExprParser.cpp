#include "ExprParser.h"
#include "megalith/Contract/Limits.h"
#include "llvm/ADT/STLExtras.h"
#include <charconv>
#include <cmath>

namespace megalith::ast {

static constexpr unsigned maxExprDepth = limits::expressionLevels;

ExprParser::ExprParser(Diagnostics &diags, const YamlNode &scalar)
    : diags(diags), scalar(scalar), tokens(lexExpr(scalar.text)) {}

bool ExprParser::accept(llvm::StringRef punct) {
  if (!at(punct))
    return false;
  ++next;
  return true;
}

bool ExprParser::expect(llvm::StringRef punct, const char *expected) {
  if (failed || accept(punct))
    return !failed;
  fail(expected);
  return false;
}

bool ExprParser::expectEnd(const char *expected) {
  if (!failed && peek().kind != Token::End)
    fail(expected);
  return !failed;
}

/// A word of the file in backticks, cut when it is long.
static std::string quoted(llvm::StringRef text) {
  constexpr size_t most = 40;
  return "`" + (text.size() > most ? text.take_front(most).str() + "..." : text.str()) + "`";
}

void ExprParser::fail(const std::string &expected) {
  if (failed)
    return;
  failed = true;
  const Token &token = peek();
  llvm::StringRef text = llvm::StringRef(scalar.text).slice(token.begin, token.end);
  std::string found = quoted(text);
  if (token.kind == Token::End)
    found = scalar.text.empty() ? "nothing" : "the end of the expression";
  diags.report(Diag::ExprSyntax, loc(token), expected, found);
  if (token.hint)
    diags.note(token.hint);
  else if (token.is(":") && next > 0 && tokens[next - 1].is(":"))
    diags.note("a slice has two bounds, `a[low:high]`, and no step");
  else if (!llvm::StringRef(expected).starts_with("an operator"))
    return;
  else if (token.text == "for")
    diags.note("write `map(i in 0..n, e)`, which makes a sequence of e for each i");
  else if (token.is("+="))
    diags.note("only `count:` has `+=`");
  else if (token.is("="))
    diags.note("write `==` to compare; `name=value` is for the arguments of a call");
  else if (token.is(":"))
    diags.note("named arguments are written `name=value`; a slice is `a[low:high]`");
}

void ExprParser::failTooDeep() {
  if (failed)
    return;
  failed = true;
  diags.report(Diag::NestingTooDeep, loc(peek()), "an expression", maxExprDepth);
  diags.note("name its parts in statements of their own");
}

ExprParser::Tree ExprParser::make(Expr::Kind kind, const Token &token, std::string text) {
  auto expr = std::make_unique<Expr>();
  expr->kind = kind;
  expr->text = std::move(text);
  expr->loc = loc(token);
  return {std::move(expr), 1};
}

void ExprParser::add(Tree &parent, Tree child) {
  parent.height = std::max(parent.height, child.height + 1);
  parent.expr->args.push_back(std::move(child.expr));
  if (parent.height > maxExprDepth)
    failTooDeep();
}

//===----------------------------------------------------------------------===//
// Entry points
//===----------------------------------------------------------------------===//

ExprPtr ExprParser::parseWhole(bool elseMayLack) {
  elseOptional = elseMayLack;
  Tree tree = parseConditional();
  if (!expectEnd("an operator or the end of the expression"))
    return nullptr;
  return std::move(tree.expr);
}

void ExprParser::parseValues(Stmt &command) {
  do {
    if (peek().kind == Token::Path && tokens[next + 1].is("=")) {
      Name name;
      if (!parseName(name, "the name of a value"))
        break;
      ++next;
      command.named.emplace_back(std::move(name), parseConditional().expr);
    } else if (!command.named.empty()) {
      fail("a named value `name=value`");
    } else {
      command.values.push_back(parseConditional().expr);
    }
  } while (!failed && accept(","));
  if (expectEnd("an operator, `,` or the end of the expression"))
    return;
  command.values.clear();
  command.named.clear();
}

bool ExprParser::parseName(Name &name, const char *expected) {
  const Token &token = peek();
  if (failed || token.kind != Token::Path || token.text.contains('.') || isReservedWord(token.text)) {
    fail(expected);
    return false;
  }
  name = {token.text.str(), loc(token)};
  ++next;
  return true;
}

bool ExprParser::parseFieldType(FieldDecl &field) {
  if (!parseName(field.type, "a type such as `i32` or `token[max_block]`"))
    return false;
  if (accept("[")) {
    do
      field.dims.push_back(parseConditional().expr);
    while (!failed && accept(","));
    if (!expect("]", "`,` or `]`"))
      return false;
  }
  if (accept("in")) {
    field.range = parseConditional().expr;
    if (!failed)
      endWithChoice(field.range);
    if (!failed && field.range->kind != Expr::Range) {
      fail("`..` and the end of the range");
      diags.note("`in 0..16` allows the values from 0 to 15");
      return false;
    }
  }
  if (accept("="))
    return parseInitial(field);
  return expectEnd(field.range          ? "`=` or the end of the declaration"
                   : field.dims.empty() ? "`[`, `in`, `=` or the end of the declaration"
                                        : "`in`, `=` or the end of the declaration");
}

/// What comes after `=`: an expression, `input`, or `input(default)`.
bool ExprParser::parseInitial(FieldDecl &field) {
  if (peek().kind != Token::Path || peek().text != "input") {
    field.init = parseConditional().expr;
    return expectEnd("an operator or the end of the initial value");
  }
  field.input = {peek().text.str(), loc(peek())};
  ++next;
  if (accept("(")) {
    field.init = parseConditional().expr;
    if (!expect(")", "`)`"))
      return false;
  }
  return expectEnd(field.init ? "the end of the declaration" : "`(` and a default, or the end of the declaration");
}

bool ExprParser::parseCount(Name &metric, ExprPtr &value) {
  if (!parseName(metric, "the name of a metric") || !expect("+=", "`+=` and the amount to count"))
    return false;
  value = parseConditional().expr;
  return expectEnd("an operator or the end of the expression");
}

bool ExprParser::parseSignature(Name &callee, std::vector<Name> &args) {
  if (!parseName(callee, "a name") || !expect("(", "`(` and the names of the observed values"))
    return false;
  do
    if (!parseName(args.emplace_back(), "the name of an observed value"))
      return false;
  while (accept(","));
  return expect(")", "`,` or `)`") && expectEnd("the end of the key");
}

//===----------------------------------------------------------------------===//
// Precedence levels
//===----------------------------------------------------------------------===//

ExprParser::Tree ExprParser::parseConditional() {
  if (++depth > maxExprDepth)
    failTooDeep();
  Tree result;
  if (!failed)
    result = parseBinary(0);
  if (!failed && at("if")) {
    Tree tree = make(Expr::Conditional, peek());
    ++next;
    add(tree, std::move(result));
    Tree condition = parseBinary(0);
    if (!failed)
      add(tree, std::move(condition));
    if (!failed && elseOptional && depth == 1 && peek().kind == Token::End) {
      tree.expr->args.push_back(nullptr);
    } else if (expect("else", "`else` and the other value")) {
      Tree otherwise = parseConditional();
      if (!failed)
        add(tree, std::move(otherwise));
    }
    result = std::move(tree);
  }
  --depth;
  return failed ? Tree() : std::move(result);
}

/// Level 0: or, 1: and, 2: not, 3: comparison, 4: range, 5: sum, 6: product.
ExprParser::Tree ExprParser::parseBinary(unsigned level) {
  static const std::vector<llvm::StringRef> operators[] = {
      {"or"}, {"and"}, {}, {"==", "!=", "<", "<=", ">", ">=", "in"}, {".."}, {"+", "-"}, {"*", "/", "%"}};
  constexpr unsigned notLevel = 2, comparison = comparisonLevel, range = comparison + 1, levels = 7;
  if (failed)
    return {};
  if (level == levels)
    return parseUnary();
  if (level == notLevel) {
    if (!at("not"))
      return parseBinary(level + 1);
    Tree tree = make(Expr::Unary, peek(), "not");
    ++next;
    if (++depth > maxExprDepth)
      failTooDeep();
    Tree operand = parseBinary(notLevel);
    --depth;
    if (failed)
      return {};
    add(tree, std::move(operand));
    return tree;
  }
  Tree left = parseBinary(level + 1);
  auto atOperator = [&] { return peek().kind == Token::Punct && llvm::is_contained(operators[level], peek().text); };
  while (!failed && atOperator()) {
    const Token &token = peek();
    ++next;
    Tree right = parseBinary(level + 1);
    if (failed)
      return {};
    Tree tree = level == range ? make(Expr::Range, token) : make(Expr::Binary, token, token.text.str());
    add(tree, std::move(left));
    add(tree, std::move(right));
    left = std::move(tree);
    if (failed || !atOperator())
      continue;
    if (level == comparison) {
      fail("`and`, `or` or the end of the expression");
      diags.note("comparisons do not chain: write `a < b and b < c`");
    } else if (level == range) {
      fail("the end of the range");
      diags.note("a range has two bounds: `0..n`");
    }
  }
  return failed ? Tree() : std::move(left);
}

ExprParser::Tree ExprParser::parseUnary() {
  if (!at("-"))
    return parsePostfix();
  Tree tree = make(Expr::Unary, peek(), "-");
  ++next;
  if (++depth > maxExprDepth)
    failTooDeep();
  Tree operand = failed ? Tree() : parseUnary();
  --depth;
  if (failed)
    return {};
  add(tree, std::move(operand));
  return tree;
}

ExprParser::Tree ExprParser::parsePostfix() {
  Tree tree = parsePrimary();
  while (!failed) {
    const Token &token = peek();
    if (accept("[")) {
      tree = parseSubscript(std::move(tree), token);
    } else if (at("(")) {
      if (tree.expr->kind != Expr::Path) {
        fail("an operator or the end of the expression");
        diags.note("only a name can be called");
        break;
      }
      ++next;
      tree = parseArguments(std::move(tree));
    } else {
      return tree;
    }
  }
  return {};
}

ExprParser::Tree ExprParser::parsePrimary() {
  const Token &token = peek();
  switch (token.kind) {
  case Token::Int:
  case Token::Float:
    return parseNumber();
  case Token::String:
    ++next;
    return make(Expr::StringLiteral, token, token.text.str());
  case Token::Path: {
    ++next;
    bool isTrue = token.text == "true";
    if (!isTrue && token.text != "false")
      return make(Expr::Path, token, token.text.str());
    Tree tree = make(Expr::BoolLiteral, token);
    tree.expr->intValue = isTrue;
    return tree;
  }
  default:
    break;
  }
  if (accept("(")) {
    Tree tree = parseConditional();
    expect(")", "an operator or `)`");
    return tree;
  }
  if (accept("[")) {
    Tree tree = make(Expr::List, token);
    if (accept("]"))
      return tree;
    do {
      Tree item = parseConditional();
      if (!failed)
        add(tree, std::move(item));
    } while (!failed && accept(","));
    expect("]", "an operator, `,` or `]`");
    return tree;
  }
  fail("an expression");
  return {};
}

ExprParser::Tree ExprParser::parseNumber() {
  const Token &token = peek();
  const char *begin = token.text.begin(), *end = token.text.end();
  std::errc error;
  Tree tree = make(token.kind == Token::Int ? Expr::IntLiteral : Expr::FloatLiteral, token);
  if (token.kind == Token::Int)
    error = std::from_chars(begin, end, tree.expr->intValue).ec;
  else
    error = std::from_chars(begin, end, tree.expr->floatValue).ec;
  if (error != std::errc()) {
    fail(token.kind == Token::Int ? "an integer below 2^63" : "a number within the range of a 64-bit float");
    return {};
  }
  ++next;
  return tree;
}

/// An index, or the bounds of a slice.
ExprParser::Tree ExprParser::parseDimension() {
  Tree low;
  if (!at(":"))
    low = parseConditional();
  if (failed || !at(":"))
    return low;
  Tree result = make(Expr::Bounds, peek());
  ++next;
  Tree high;
  if (!at(",") && !at("]"))
    high = parseConditional();
  for (Tree *bound : {&low, &high})
    if (failed)
      return {};
    else if (bound->expr)
      add(result, std::move(*bound));
    else
      result.expr->args.push_back(nullptr);
  return result;
}

ExprParser::Tree ExprParser::parseSubscript(Tree base, const Token &bracket) {
  Tree result = make(Expr::Index, bracket);
  add(result, std::move(base));
  if (at("]")) {
    fail("an index or a slice");
    return {};
  }
  do {
    Tree item = parseDimension();
    if (!failed)
      add(result, std::move(item));
  } while (!failed && accept(","));
  if (failed)
    return {};
  std::vector<ExprPtr> &args = result.expr->args;
  const bool bounds = args.back()->kind == Expr::Bounds;
  expect("]", bounds || args.size() > 2 ? "an operator, `,` or `]`" : "an operator, `,`, `:` or `]`");
  if (args.size() > 2 || !bounds)
    return result;
  const ExprPtr only = std::move(args.back());
  args.pop_back();
  result.expr->kind = Expr::Slice;
  for (ExprPtr &bound : only->args)
    args.push_back(std::move(bound));
  return result;
}

ExprParser::Tree ExprParser::parseArguments(Tree callee) {
  Tree call = std::move(callee);
  call.expr->kind = Expr::Call;
  if (accept(")"))
    return call;
  do {
    if (peek().kind == Token::Path && tokens[next + 1].is("=")) {
      Name name;
      if (!parseName(name, "the name of an argument"))
        return {};
      ++next;
      Tree value = parseConditional();
      if (failed)
        return {};
      for (const auto &[other, ignored] : call.expr->named)
        if (other.text == name.text) {
          diags.report(Diag::DuplicateKey, name.loc, name.text, "the arguments of `" + call.expr->text + "`");
          diags.note(other.loc, "first given here");
          failed = true;
          return {};
        }
      call.height = std::max(call.height, value.height + 1);
      call.expr->named.emplace_back(std::move(name), std::move(value.expr));
      if (call.height > maxExprDepth)
        failTooDeep();
      continue;
    }
    if (!call.expr->named.empty()) {
      fail("a named argument `name=value`");
      diags.note("positional arguments come first");
      return {};
    }
    Tree argument = parseConditional();
    if (failed)
      return {};
    endWithChoice(argument.expr);
    add(call, std::move(argument));
    if (call.expr->args.size() == 1 && isBinder(*call.expr->args.back()))
      parseBinderBody(call);
  } while (!failed && accept(","));
  expect(")", "an operator, `,` or `)`");
  return failed ? Tree() : std::move(call);
}

bool isBinder(const Expr &e) {
  return e.kind == Expr::Binary && e.text == "in" && e.args[0]->kind == Expr::Path &&
         !llvm::StringRef(e.args[0]->text).contains('.') && e.args[1]->kind == Expr::Range;
}

void endWithChoice(ExprPtr &e) {
  if (e->kind != Expr::Conditional || !e->args[2])
    return;
  Expr &value = *e->args[0];
  ExprPtr &range = isBinder(value) ? value.args[1] : e->args[0];
  if (range->kind != Expr::Range)
    return;
  ExprPtr whole = std::move(e->args[0]);
  ExprPtr &end = (whole->kind == Expr::Range ? whole : whole->args[1])->args[1];
  e->args[0] = std::move(end);
  end = std::move(e);
  e = std::move(whole);
}

/// The call's first argument is `i in lo..hi`: it binds `i` in the second.
void ExprParser::parseBinderBody(Tree &call) {
  ExprPtr in = std::move(call.expr->args[0]);
  call.expr->args[0] = std::move(in->args[1]);
  call.expr->binder = Name{in->args[0]->text, in->args[0]->loc};
  if (!expect(",", ("`,` and the expression over `" + call.expr->binder->text + "`").c_str()))
    return;
  Tree body = parseConditional();
  if (!failed)
    add(call, std::move(body));
}

} // namespace megalith::ast
