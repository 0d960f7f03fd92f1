#include "SyntaxTesting.h"
#include <gtest/gtest.h>

namespace megalith {
namespace {

/// `text` as a single-quoted scalar, so that every expression is possible.
std::string quoted(const std::string &text) {
  std::string escaped;
  for (char c : text)
    escaped += c == '\'' ? std::string("''") : std::string(1, c);
  return withParams("  x: '" + escaped + "'\n");
}

/// The tree of `text`, or the rendered diagnostics. What is written from the
/// tree must read back as the same one.
std::string tree(const std::string &text) {
  ParsedPipeline parsed(quoted(text));
  if (!parsed.ast)
    return parsed.diags.render();
  const ast::Expr &expr = *parsed.ast->params.at(0).value;
  ParsedPipeline again(quoted(ast::written(expr)));
  EXPECT_TRUE(again.ast) << text << " -> " << ast::written(expr) << "\n" << again.diags.render();
  if (again.ast) {
    EXPECT_EQ(print(*again.ast->params.at(0).value), print(expr)) << text << " -> " << ast::written(expr);
  }
  return print(expr);
}

TEST(Expr, WrittenAsUsersWriteIt) {
  auto writtenOf = [](const std::string &text) {
    ParsedPipeline parsed(quoted(text));
    return parsed.ast ? ast::written(*parsed.ast->params.at(0).value) : parsed.diags.render();
  };
  for (const char *text :
       {"budget - 3", "a - (b - c)", "(a + b) * -c", "not (a and b) or c", "a if b else c if d else e",
        "(a if b else c) + 1", "(a < b) == c", "tokens[kv.target.len:-1]", "[last] + draft[:n]", "t[i][j]",
        "prefix_while(i in 0..len(draft), draft[i] == best[i])", "target([last], kv=draft)", "0.5", "true"})
    EXPECT_EQ(writtenOf(text), text);
  EXPECT_EQ(writtenOf("(a)+((b*c))"), "a + b * c");
}

/// What is wrong with `text`, written as a plain scalar from column 6 of
/// line 5.
std::string error(const std::string &text) {
  ParsedPipeline parsed(withParams("  x: " + text + "\n"));
  EXPECT_FALSE(parsed.ast);
  return parsed.diags.render();
}

TEST(Expr, Literals) {
  EXPECT_EQ(tree("12"), "12");
  EXPECT_EQ(tree("9223372036854775807"), "9223372036854775807");
  EXPECT_EQ(tree("0.80"), "0.8");
  EXPECT_EQ(tree("2.0"), "2.0");
  EXPECT_EQ(tree("1e-6"), "1e-06");
  EXPECT_EQ(tree("true"), "true");
  EXPECT_EQ(tree("[false]"), "[false]");
  EXPECT_EQ(tree("'a b'"), "'a b'");
  EXPECT_EQ(tree("[]"), "[]");
}

TEST(Expr, Precedence) {
  EXPECT_EQ(tree("a + b * c - d"), "(- (+ a (* b c)) d)");
  EXPECT_EQ(tree("(a + b) * -c % d"), "(% (* (+ a b) (- c)) d)");
  EXPECT_EQ(tree("- -a[0]"), "(- (- (index a 0)))");
  EXPECT_EQ(tree("not a == b and c or d"), "(or (and (not (== a b)) c) d)");
  EXPECT_EQ(tree("not not a"), "(not (not a))");
  EXPECT_EQ(tree("a or b and c"), "(or a (and b c))");
  EXPECT_EQ(tree("a - 1 <= b + 2"), "(<= (- a 1) (+ b 2))");
  EXPECT_EQ(tree("x in eos"), "(in x eos)");
}

TEST(Expr, ConditionalsNestToTheRight) {
  EXPECT_EQ(tree("a if c else b"), "(if c a b)");
  EXPECT_EQ(tree("a if c or d else b if e else f + 1"), "(if (or c d) a (if e b (+ f 1)))");
  EXPECT_EQ(tree("f(a if c else b, d)"), "(call f (if c a b) d)");
}

TEST(Expr, IndexingAndSlices) {
  EXPECT_EQ(tree("draft[i]"), "(index draft i)");
  EXPECT_EQ(tree("tree[i + 1, j]"), "(index tree (+ i 1) j)");
  EXPECT_EQ(tree("a[i][j]"), "(index (index a i) j)");
  EXPECT_EQ(tree("tokens[kv.target.len:-1]"), "(slice tokens kv.target.len (- 1))");
  EXPECT_EQ(tree("draft[:n]"), "(slice draft _ n)");
  EXPECT_EQ(tree("draft[n:]"), "(slice draft n _)");
  EXPECT_EQ(tree("draft[:]"), "(slice draft _ _)");
  EXPECT_EQ(tree("w[:, 0]"), "(index w (bounds _ _) 0)");
  EXPECT_EQ(tree("w[q:q + kv, 1:, :2, i]"), "(index w (bounds q (+ q kv)) (bounds 1 _) (bounds _ 2) i)");
  EXPECT_EQ(tree("draft[:accepted] + [best[accepted]]"), "(+ (slice draft _ accepted) [(index best accepted)])");
}

TEST(Expr, Calls) {
  EXPECT_EQ(tree("f()"), "(call f)");
  EXPECT_EQ(tree("a.b.f(x, g(y), width=8, keep=none)"), "(call a.b.f x (call g y) width=8 keep=none)");
  EXPECT_EQ(tree("f(x=a == b)"), "(call f x=(== a b))");
  EXPECT_EQ(tree("f(x)[0]"), "(index (call f x) 0)");
}

TEST(Expr, RangesAndBinders) {
  EXPECT_EQ(tree("0..n - 1"), "(range 0 (- n 1))");
  EXPECT_EQ(tree("prefix_while(i in 0..len(d), d[i] == b[i])"),
            "(call prefix_while i in (range 0 (call len d)) (== (index d i) "
            "(index b i)))");
  EXPECT_EQ(tree("map(b in 0..4, b * 2, width=1)"), "(call map b in (range 0 4) (* b 2) width=1)");
  // Membership is not a binder.
  EXPECT_EQ(tree("f(x in eos, y)"), "(call f (in x eos) y)");
  EXPECT_EQ(tree("f(a.b in 0..4)"), "(call f (in a.b (range 0 4)))");
  EXPECT_EQ(tree("f(y, x in 0..4)"), "(call f y (in x (range 0 4)))");
}

/// Every node of `expr` as "text@line:column+length", in prefix order.
void listPlaces(const ast::Expr &expr, std::string &out) {
  out += fmt::format("{}@{}:{}+{} ", expr.text, expr.loc.line, expr.loc.column, expr.loc.length);
  for (const ast::ExprPtr &arg : expr.args)
    if (arg)
      listPlaces(*arg, out);
  for (const auto &[name, value] : expr.named) {
    out += fmt::format("{}=@{}:{}+{} ", name.text, name.loc.line, name.loc.column, name.loc.length);
    listPlaces(*value, out);
  }
}

std::string places(const std::string &lines) {
  ParsedPipeline parsed(withParams(lines));
  if (!parsed.ast)
    return parsed.diags.render();
  std::string out;
  listPlaces(*parsed.ast->params.at(0).value, out);
  return out;
}

TEST(Expr, PlacesInPlainScalars) {
  EXPECT_EQ(places("  x: f(ab, w=12)[1:] + -c\n"), "+@5:22+1 @5:17+1 f@5:6+1 ab@5:8+2 w=@5:12+1 @5:14+2 @5:18+1 "
                                                   "-@5:24+1 c@5:25+1 ");
  EXPECT_EQ(places("  x: a if c else b\n"), "@5:8+2 a@5:6+1 c@5:11+1 b@5:18+1 ");
}

TEST(Expr, PlacesInQuotedScalars) {
  // `''` is two characters of the file.
  EXPECT_EQ(places("  x: '[''s''] + d'\n"), "+@5:15+1 @5:7+1 s@5:8+5 d@5:17+1 ");
  EXPECT_EQ(places("  x: \"[a] + d\"\n"), "+@5:11+1 @5:7+1 a@5:8+1 d@5:13+1 ");
  // An escape sequence: everything is at the start of the scalar.
  EXPECT_EQ(places("  x: \"a\\x20+ d\"\n"), "+@5:6+1 a@5:6+1 d@5:6+1 ");
}

TEST(Expr, PlacesInScalarsOfSeveralLines) {
  EXPECT_EQ(places("  x: a +\n     bc\n"), "+@5:8+1 a@5:6+1 bc@6:6+2 ");
  EXPECT_EQ(places("  x: 'a\n\n    + bc'\n"), "+@7:5+1 a@5:7+1 bc@7:7+2 ");
  EXPECT_EQ(places("  x: |\n    a\n    + bc\n"), "+@7:5+1 a@6:5+1 bc@7:7+2 ");
  EXPECT_EQ(places("  x: >-\n    a\n    + bc\n"), "+@7:5+1 a@6:5+1 bc@7:7+2 ");
}

TEST(Expr, PlacesAfterByteOrderMarkAndCarriageReturns) {
  ParsedPipeline parsed("\xEF\xBB\xBFpipeline: p\r\nstates: {}\r\nstages: "
                        "{}\r\nparams: {x: a + b}\r\n");
  ASSERT_TRUE(parsed.ast) << parsed.diags.render();
  EXPECT_EQ(parsed.ast->name.loc, (SourceLoc{0, 1, 14, 1}));
  EXPECT_EQ(parsed.ast->params[0].value->loc, (SourceLoc{0, 4, 15, 1}));
}

TEST(ExprErrors, FoundAndExpected) {
  EXPECT_EQ(error("1 +"), "t.yaml:5:9: error: expected an expression, found "
                          "the end of the expression "
                          "[expr-syntax]\n"
                          "    5 |   x: 1 +\n"
                          "      |         ^\n");
  EXPECT_EQ(error("f(a, b"), "t.yaml:5:12: error: expected an operator, `,` or "
                             "`)`, found the end of the expression "
                             "[expr-syntax]\n"
                             "    5 |   x: f(a, b\n"
                             "      |            ^\n");
  EXPECT_EQ(error("a[1, ]"), "t.yaml:5:11: error: expected an expression, found `]` [expr-syntax]\n"
                             "    5 |   x: a[1, ]\n"
                             "      |           ^\n");
  EXPECT_EQ(error("a b_c"), "t.yaml:5:8: error: expected an operator or the "
                            "end of the expression, found `b_c` "
                            "[expr-syntax]\n"
                            "    5 |   x: a b_c\n"
                            "      |        ^~~\n");
  EXPECT_EQ(error("a if b"), "t.yaml:5:12: error: expected `else` and the other value, found the "
                             "end of the expression [expr-syntax]\n"
                             "    5 |   x: a if b\n"
                             "      |            ^\n");
  EXPECT_EQ(error("''"), "t.yaml:5:7: error: expected an expression, found nothing [expr-syntax]\n"
                         "    5 |   x: ''\n"
                         "      |       ^\n");
}

TEST(ExprErrors, NotesForHabitsOfOtherLanguages) {
  auto note = [](const std::string &text) {
    std::string rendered = error(text);
    size_t at = rendered.rfind("note: ");
    return at == std::string::npos ? rendered : rendered.substr(at);
  };
  EXPECT_EQ(note("a && b"), "note: write `and`\n");
  EXPECT_EQ(note("a || b"), "note: write `or`\n");
  EXPECT_EQ(note("f(!a)"), "note: write `not`\n");
  EXPECT_EQ(note("a = b"), "note: write `==` to compare; `name=value` is for "
                           "the arguments of a call\n");
  EXPECT_EQ(note("a < b < c"), "note: comparisons do not chain: write `a < b and b < c`\n");
  EXPECT_EQ(note("0..2..3"), "note: a range has two bounds: `0..n`\n");
  EXPECT_EQ(note("f(width:8)"), "note: named arguments are written "
                                "`name=value`; a slice is `a[low:high]`\n");
  EXPECT_EQ(note("f(a=1, b)"), "note: positional arguments come first\n");
  EXPECT_EQ(note("f(a)(b)"), "note: only a name can be called\n");
  EXPECT_EQ(note("f(\"s\")"), "note: there are no strings: a token is its number, as in `last == 5`\n");
  EXPECT_EQ(note("a ** 2"), "note: write `pow(x, y)`, of two f32, or multiply\n");
  EXPECT_EQ(note("a // 2"), "note: write `/`: of two i32 it drops the fraction\n");
  EXPECT_EQ(note("a[::2]"), "note: a slice has two bounds, `a[low:high]`, and no step\n");
  EXPECT_EQ(note("f(x for x in a)"), "note: write `map(i in 0..n, e)`, which makes a sequence of e for each i\n");
  EXPECT_EQ(note("f('s)"), "note: the closing quote is missing\n");
  EXPECT_EQ(note("a.b."), "note: a name must follow the `.`\n");
  EXPECT_EQ(note("12ab"), "note: a number is `12`, `0.5` or `1e-6`\n");
  EXPECT_EQ(note("1.2.3"), "note: a number is `12`, `0.5` or `1e-6`\n");
  EXPECT_EQ(note("a \xC3\xA9"), "note: expressions have no such character\n");
}

TEST(ExprErrors, NumbersOutOfRange) {
  EXPECT_EQ(error("9223372036854775808"), "t.yaml:5:6: error: expected an integer below 2^63, found "
                                          "`9223372036854775808` "
                                          "[expr-syntax]\n"
                                          "    5 |   x: 9223372036854775808\n"
                                          "      |      ^~~~~~~~~~~~~~~~~~~\n");
  EXPECT_NE(error("1e999").find("expected a number within the range of a 64-bit float"), std::string::npos);
}

TEST(ExprErrors, NamedArgumentTwice) {
  EXPECT_EQ(error("f(a=1, b=2, a=3)"), "t.yaml:5:18: error: key `a` appears twice in the arguments of `f` "
                                       "[duplicate-key]\n"
                                       "    5 |   x: f(a=1, b=2, a=3)\n"
                                       "      |                  ^\n"
                                       "t.yaml:5:8: note: first given here\n"
                                       "    5 |   x: f(a=1, b=2, a=3)\n"
                                       "      |        ^\n");
}

TEST(ExprErrors, BinderWithoutBody) {
  EXPECT_EQ(error("map(i in 0..n)"), "t.yaml:5:19: error: expected `,` and the expression over `i`, found `)` "
                                     "[expr-syntax]\n"
                                     "    5 |   x: map(i in 0..n)\n"
                                     "      |                   ^\n");
}

TEST(ExprErrors, DeepNesting) {
  std::string deep(10000, '(');
  std::string rendered = error(deep);
  EXPECT_EQ(rendered.substr(0, rendered.find('\n')),
            "t.yaml:5:106: error: an expression nests more than 100 levels deep "
            "[nesting-too-deep]");
  for (const char *part : {"-", "not ", "f(", "a[", "a if b else ", "f(x="}) {
    std::string text;
    for (int i = 0; i < 10000; ++i)
      text += part;
    EXPECT_NE(tree(text).find("[nesting-too-deep]"), std::string::npos) << part;
  }
  // A long chain is as deep a tree as nested brackets.
  for (const char *part : {" + a", "[0]", " or a"}) {
    std::string text = "a";
    for (int i = 0; i < 10000; ++i)
      text += part;
    EXPECT_NE(tree(text).find("[nesting-too-deep]"), std::string::npos) << part;
  }
  // A long list is not deep.
  std::string list = "[0";
  for (int i = 0; i < 10000; ++i)
    list += ", 1";
  EXPECT_EQ(tree(list + "]").size(), list.size() + 1);
}

} // namespace
} // namespace megalith
