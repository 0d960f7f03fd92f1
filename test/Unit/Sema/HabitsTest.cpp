//===- HabitsTest.cpp - what people write who know Python and YAML --------===//
//
// Each slip is one error, at the place of the slip, which says what to write instead.
//===----------------------------------------------------------------------===//
#include "PipelineBase.h"

using namespace megalith;
using namespace megalith::test;

namespace {

/// These lines in the stage `commit`, from line 52 and column 7 on. The error without the lines that show the place.
std::string saidOf(const std::string &lines) {
  std::string indented;
  size_t begin = 0;
  for (size_t end; begin < lines.size(); begin = end + 1) {
    end = std::min(lines.find('\n', begin), lines.size());
    indented += "      " + lines.substr(begin, end - begin) + "\n";
  }
  const Check c = check({{"accepted: i32 = 0", "accepted: i32 = 0\n  score: f32 = 0.0\n  plays: f32[4]\n  n: i32 = 0"},
                         {"      - append(draft", indented + "      - append(draft"}});
  EXPECT_EQ(c.errors, 1u) << lines << "\n" << c.messages;
  std::string out;
  size_t at = 0;
  for (size_t end; at < c.messages.size(); at = end + 1) {
    end = std::min(c.messages.find('\n', at), c.messages.size());
    const std::string line = c.messages.substr(at, end - at);
    if (line.find(" | ") == std::string::npos)
      out += line + "\n";
  }
  return out;
}

struct Slip {
  const char *lines, *error, *note;
};

void expectTold(std::initializer_list<Slip> slips) {
  for (const Slip &slip : slips)
    EXPECT_EQ(saidOf(slip.lines),
              std::string("p.yaml:") + slip.error + "\n" + (*slip.note ? std::string("note: ") + slip.note + "\n" : ""))
        << slip.lines;
}

TEST(Habits, Blocks) {
  const char *another = "write `else:`, and below it a list with another `- if:`, which has a `do:` of its own";
  expectTold({
      {"- if: finished\n  do:\n    - n: 1\n  elif: n == 2\n  do:\n    - n: 3",
       "55:9: error: unknown key `elif` in a statement with `if` [unknown-key]", another},
      {"- if: finished\n  do: []\n  else if: n == 2\n  do: []",
       "54:9: error: unknown key `else if` in a statement with `if` [unknown-key]", another},
      {"- if: finished\n  then:\n    - n: 1", "53:9: error: unknown key `then` in a statement with `if` [unknown-key]",
       "did you mean `do`?"},
      {"- if finished:\n    - n: 1",
       "52:9: error: unknown key `if finished` in a statement of a stage or policy [unknown-key]",
       "write `- if: finished`, and below it, as far in as `if`, `do:` with a list of statements"},
      {"- for i in 0..3:\n    - n: i",
       "52:9: error: unknown key `for i in 0..3` in a statement of a stage or policy [unknown-key]",
       "write `- for: i in 0..3`, and below it, as far in as `for`, `do:` with a list of statements"},
      {"- if: finished\n  do: []\n- else:\n    - n: 1",
       "54:9: error: the left side of a statement must be a name such as `draft` or `kv.target.keep`, found `else` "
       "[wrong-node-kind]",
       "`else:` stands below its `if:`, without a `- ` of its own"},
      {"- if: finished\n  do:\n    - goto: DONE",
       "54:13: error: `goto` cannot stand in a list of statements [effect-not-allowed]",
       "a stage has one `goto:`, below its `do:`, with conditions: `goto: A if c else B`"},
      {"- goto: DONE if finished", "52:9: error: `goto` cannot stand in a list of statements [effect-not-allowed]",
       "a stage has one `goto:`, below its `do:`, with conditions: `goto: A if c else B`"},
      {"- return", "52:9: error: unknown name `return` [unknown-name]",
       "a stage ends after its last statement; what the rest is to do stands in an `if:`"},
  });
  // A name like others where it is declared.
  EXPECT_TRUE(check({{"accepted: i32 = 0", "accepted: i32 = 0\n  goto: i32 = 0"},
                     {"- append(draft", "- goto: goto + 1\n      - append(draft"}})
                  .pipeline);
}

TEST(Habits, Assignments) {
  const auto whole = [](const std::string &value) {
    return "a sequence is assigned as a whole: `- plays: map(k in 0..len(plays), " + value +
           " if k == 1 else plays[k])`";
  };
  const std::string one = whole("1.0"), more = whole("plays[1] + 1.0");
  expectTold({
      {"- score += 1", "52:15: error: expected an operator or the end of the expression, found `+=` [expr-syntax]",
       "write `- score: score + 1`; only `count:` has `+=`"},
      {"- score -= 0.5 + rate",
       "52:15: error: expected an operator or the end of the expression, found `-=` [expr-syntax]",
       "write `- score: score - (0.5 + rate)`"},
      {"- n = 3", "52:11: error: expected an operator or the end of the expression, found `=` [expr-syntax]",
       "write `- n: 3`"},
      {"- kv.target.keep = n",
       "52:24: error: expected an operator or the end of the expression, found `=` [expr-syntax]",
       "write `- kv.target.keep: n`"},
      {"- plays[1]: 1.0",
       "52:9: error: the left side of a statement must be a name such as `draft` or `kv.target.keep`, found `plays[1]` "
       "[wrong-node-kind]",
       one.c_str()},
      {"- plays[k]: 2.0",
       "52:9: error: the left side of a statement must be a name such as `draft` or `kv.target.keep`, found `plays[k]` "
       "[wrong-node-kind]",
       "a sequence is assigned as a whole: `- plays: map(j in 0..len(plays), 2.0 if j == k else plays[j])`"},
      {"- plays[1] = 1.0", "52:18: error: expected an operator or the end of the expression, found `=` [expr-syntax]",
       one.c_str()},
      {"- plays[1] += 1.0", "52:18: error: expected an operator or the end of the expression, found `+=` [expr-syntax]",
       more.c_str()},
      {"- n: n += 1", "52:14: error: expected an operator or the end of the expression, found `+=` [expr-syntax]",
       "only `count:` has `+=`"},
  });
  // What is suggested is right there.
  for (const std::string text : {"- score: score + 1", "- plays: map(i in 0..len(plays), 1.0 if i == 1 else plays[i])"})
    EXPECT_TRUE(check({{"accepted: i32 = 0", "accepted: i32 = 0\n  score: f32\n  plays: f32[4]"},
                       {"- append(draft", text + "\n      - append(draft"}})
                    .pipeline)
        << text;
}

TEST(Habits, Types) {
  const auto silently = [](const std::string &what) { return "nothing is converted silently: write `" + what + "`"; };
  const std::string length = silently("f32(len(tokens))"), number = silently("i32(last)"),
                    truth = silently("f32(i32(finished))"),
                    down = silently("i32(score)") + ", which rounds towards zero",
                    all = silently("map(i in 0..len(x), f32(x[i]))");
  expectTold({
      {"- score: len(tokens) * 0.5", "52:28: error: `*` needs two i32 or two f32, found i32 and f32 [operand-types]",
       length.c_str()},
      {"- score: 0.5 - len(tokens)", "52:20: error: `-` needs two i32 or two f32, found f32 and i32 [operand-types]",
       length.c_str()},
      {"- score: max(0.5, len(tokens))",
       "52:16: error: `max` needs only i32 or only f32, found f32 and i32 "
       "[operand-types]",
       length.c_str()},
      {"- score: log(len(tokens))", "52:20: error: the argument of `log` must be f32, found i32 [type-mismatch]",
       length.c_str()},
      {"- score: len(tokens)", "52:16: error: the value of `score` must be f32, found i32 [type-mismatch]",
       length.c_str()},
      {"- score: 0.5 if finished else len(tokens)",
       "52:20: error: `if else` needs two values of the same type, found f32 and i32 [operand-types]", length.c_str()},
      {"- n: score", "52:12: error: the value of `n` must be i32, found f32 [type-mismatch]", down.c_str()},
      {"- n: n + last", "52:14: error: `+` needs two i32 or two f32, found i32 and token [operand-types]",
       number.c_str()},
      {"- n: last + 1", "52:17: error: `+` needs two i32 or two f32, found token and token [operand-types]",
       "the number of a token is `i32(last)`"},
      {"- score: f32(finished)", "52:20: error: the argument of `f32` must be i32, found bool [type-mismatch]",
       truth.c_str()},
      {"- x: map(i in 0..3, i)\n- plays: x",
       "53:16: error: the value of `plays` must be f32[4], found i32[3] "
       "[type-mismatch]",
       all.c_str()},
      {"- plays: plays * 2", "52:22: error: `*` needs two i32 or two f32, found f32[4] and f32 [operand-types]",
       "element by element it is `map(i in 0..len(plays), plays[i] * 2)`"},
      {"- if: plays < 0.5\n  do: []",
       "52:19: error: `<` needs two i32 or two f32, found f32[4] and f32 "
       "[operand-types]",
       "an element of it is `plays[0]`"},
      {"- trace: plays", "52:16: error: what is traced must be a number, bool or token, found f32[4] [type-mismatch]",
       "an element of it is `plays[0]`"},
      {"- if: n\n  do: []", "52:13: error: the condition of `if` must be bool, found i32 [type-mismatch]",
       "compare it: `n != 0`"},
      {"- if: plays\n  do: []", "52:13: error: the condition of `if` must be bool, found f32[4] [type-mismatch]",
       "compare its length: `len(plays) > 0`"},
      {"- trace: last == \"x\"", "52:24: error: expected an expression, found `\"` [expr-syntax]",
       "there are no strings: a token is its number, as in `last == 5`"},
      {"- trace: last == 'x'",
       "52:24: error: a string in an expression is not supported yet; use a number or a name: a token is its number, "
       "as in `last == 5` [unsupported]",
       ""},
      {"- if: !finished\n  do: []",
       "52:13: error: the tag `!finished` cannot be used here; write the value without it; a condition is negated by "
       "`not` [yaml-unsupported]",
       ""},
      {"- draft: [last] * 4", "52:24: error: not valid YAML: `*` after a list [yaml-syntax]",
       "put the whole expression in single quotes: `'[last] + draft'`"},
  });
}

TEST(Habits, Functions) {
  expectTold({
      {"- score: mean(i in 0..4, plays[i])", "52:16: error: unknown function `mean` [unknown-function]",
       "a mean is `sum(i in 0..n, e) / f32(n)`, of f32"},
      {"- score: sum(plays)", "52:16: error: `sum` takes `i in a..b, value`, found 1 argument [argument-count]",
       "of a sequence it is `sum(i in 0..len(plays), plays[i])`"},
      {"- score: max(plays)", "52:16: error: `max` takes 2 or more arguments, found 1 [argument-count]",
       "of a sequence it is `max(i in 0..len(plays), plays[i])`"},
      {"- n: argmax(plays)",
       "52:19: error: the argument of `argmax` must be the logits of a model call, found f32[4] [type-mismatch]",
       "of a sequence it is `argmax(i in 0..len(plays), plays[i])`"},
      {"- trace: any(plays)", "52:16: error: `any` takes `i in a..b, condition`, found 1 argument [argument-count]",
       "of a sequence it is `any(i in 0..len(plays), plays[i] == x)`"},
      {"- draft.append(last)", "52:9: error: unknown function `draft.append` [unknown-function]",
       "write `- draft: draft + [x]`; `append(s)` appends tokens to the request"},
      {"- kv.target.keep(n)", "52:9: error: unknown function `kv.target.keep` [unknown-function]",
       "it is a statement: `- kv.target.keep: n`"},
      {"- n: tokens.length()", "52:12: error: unknown function `tokens.length` [unknown-function]",
       "values have no functions of their own: `f(tokens)`"},
      // A name that is nearly one of these is one of these.
      {"- n: lenn(tokens)", "52:12: error: unknown function `lenn` [unknown-function]", "did you mean `len`?"},
      {"- trace: stat", "52:16: error: unknown name `stat` [unknown-name]", ""},
      {"- n: o", "52:12: error: unknown name `o` [unknown-name]", "did you mean `n`?"},
      {"- trace: state == VERIFY", "52:16: error: unknown name `state` [unknown-name]",
       "a stage belongs to its states, `on:`; what other stages are to know is a field"},
      {"- trace: VERIFY", "52:16: error: unknown name `VERIFY` [unknown-name]",
       "`VERIFY` is a state: it stands in `goto:`, `next:` and `on:` only"},
  });
}

TEST(Habits, TopK) {
  const std::string call = "- l: target([last])\n",
                    parts = "`t.token[i]` are the tokens of row i, and `t.prob[i]` their probabilities";
  const std::string error = "error: what is read of `top_k` must be `.token` or `.prob` of a name for it, found both "
                            "[type-mismatch]";
  expectTold({
      {(call + "- t: top_k(l, 4)\n- trace: t[0]").c_str(), ("54:16: " + error).c_str(), parts.c_str()},
      {(call + "- t: top_k(l, 4)\n- n: len(t)").c_str(), ("54:16: " + error).c_str(), parts.c_str()},
      {(call + "- trace: top_k(l, 4)[0]").c_str(), ("53:16: " + error).c_str(),
       "give it a name, `- t: top_k(...)`: `t.token[i]` are the tokens of row i, `t.prob[i]` their probabilities"},
      // What is read of a wrong one stays silent.
      {(call + "- t: top_k(l, n)\n- trace: t.prob[0][0]").c_str(),
       "53:21: error: argument `n` of `top_k` must be known at compile time [not-constant]", ""},
  });
}

/// Each name of the list is unknown here, and its note is told.
TEST(Habits, GuessesAreTold) {
  unsigned names = 0;
  const auto told = [&](const std::string &statement, const std::string &note) {
    ++names;
    const std::string heard = saidOf(statement);
    EXPECT_NE(heard.find("error: "), std::string::npos) << heard;
    EXPECT_NE(heard.find("note: " + note + "\n"), std::string::npos) << heard;
  };
#define GUESSED_FUNCTION(Name, Text) told("- trace: " Name "(last)", Text);
#define GUESSED_NAME(Name, Text) told("- trace: " Name, Text);
#define GUESSED_METHOD(Name, Text) told("- trace: draft." Name "(last)", fmt::format(Text, "draft"));
#define GUESSED_STATEMENT(Name, Text)                                                                                  \
  told("- " Name, Text);                                                                                               \
  told("- " Name ": n > 2", Text);
#include "megalith/Sema/Guesses.def"
  EXPECT_GT(names, 80u);
}

} // namespace
