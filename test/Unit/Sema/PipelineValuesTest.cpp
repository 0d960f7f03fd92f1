// Sequences and tables, what goes through ranges, loops, and locals that change in them.
#include "PipelineBase.h"

using namespace megalith;
using namespace megalith::test;

namespace {

const Edit valueFields = {"  accepted: i32",
                          "  scores: f32[4]\n  flags: bool[4]\n  numbers: i32[4]\n  table: token[2, 3]\n"
                          "  long: token[1024]\n  accepted: i32"};

/// What is said about these lines in front of the append of the base pipeline; without the file's lines and the place.
std::string heard(const std::string &lines, const std::vector<Edit> &more = {}) {
  std::string indented;
  for (size_t from = 0; from < lines.size();) {
    const size_t to = std::min(lines.find('\n', from), lines.size());
    indented += "      " + lines.substr(from, to - from) + "\n";
    from = to + 1;
  }
  std::vector<Edit> edits = {valueFields, {"      - append(draft", indented + "      - append(draft"}};
  edits.insert(edits.end(), more.begin(), more.end());
  std::string messages = check(edits).messages;
  messages = messages.substr(0, messages.find('\n'));
  const size_t at = messages.find(": error: ");
  return at == std::string::npos ? messages : messages.substr(at + 9);
}

struct Heard {
  const char *lines, *message;
};
void expectHeard(std::initializer_list<Heard> cases) {
  for (const Heard &c : cases)
    EXPECT_EQ(heard(c.lines), c.message) << c.lines;
}

} // namespace

TEST(PipelineValues, Lists) {
  expectHeard({
      {"- numbers: '[1, 2, budget]'", ""},
      {"- scores: '[1, 2.5, rate]'", ""},
      {"- flags: '[finished, true]'", ""},
      {"- table: '[[last], draft[:3]]'", ""},
      {"- table: '[]'", ""},
      {"- long: draft + [1, last]", ""},
      {"- numbers: '[1, 0.5]'", "the value of `numbers` must be i32[4], found f32[2] [type-mismatch]"},
      {"- x: '[budget, 0.5]'", "an element of a list must be i32 as the first one, found f32 [type-mismatch]"},
      {"- x: '[last, true]'", "an element of a list must be token as the first one, found bool [type-mismatch]"},
      {"- x: '[tokens]'",
       "an element of a list must be a number, bool, token or short sequence, found token[] [type-mismatch]"},
      {"- x: '[table]'",
       "an element of a list must be a number, bool, token or short sequence, found token[2, 3] [type-mismatch]"},
      {"- scores: numbers", "the value of `scores` must be f32[4], found i32[4] [type-mismatch]"},
      {"- table: draft", "the value of `table` must be token[2, 3], found token[4] [type-mismatch]"},
      {"- numbers: numbers + [1]", "`numbers` holds 4 elements, but this value can have 5 [draft-window]"},
      {"- table: '[draft]'", "`table` holds 3 tokens a row, but this value can have 4 [draft-window]"},
      {"- table: '[[last], [last], [last]]'", "`table` holds 2 rows, but this value can have 3 [draft-window]"},
      {"- numbers: numbers + 1", "an operand of `+` beside a sequence must be a sequence such as `[x]`, found i32 "
                                 "[type-mismatch]"},
      {"- numbers: numbers + flags", "`+` needs two sequences of the same type, found i32[4] and bool[4] "
                                     "[operand-types]"},
      {"- numbers: numbers * 2", "`*` needs two i32 or two f32, found i32[4] and i32 [operand-types]"},
      {"- trace: table == table", "`==` needs two values of the same type, no tables, found token[2, 3] and "
                                  "token[2, 3] [operand-types]"},
      {"- trace: tokens == tokens", "the length of both operands of `==` has no upper bound; cut it with a slice such "
                                    "as `[:8]` [unbounded-sequence]"},
      {"- trace: draft == tokens[-4:]", ""},
      {"- trace: '[] == []'", "`==` needs two values of the same type, no tables, found [] and [] [operand-types]"},
      {"- trace: scores", "what is traced must be a number, bool or token, found f32[4] [type-mismatch]"},
  });
}

TEST(PipelineValues, ConstantsAreTokensWhereTheseAreNeeded) {
  expectHeard({
      // So are names for them, and what is put together of them.
      {"- x: '[3, 4]'\n- draft: x", ""},
      {"- x: 3\n- draft: '[last, x]'", ""},
      {"- x: block\n- draft: draft[:1] + [x]", ""},
      {"- x: '[3, 4]'\n- y: x + [block]\n- draft: draft[:1] + y", ""},
      {"- x: '[3, 4]'\n- draft: draft[:2] + x[:budget]", ""},
      {"- x: '[3, 4]'\n- draft: '[last, x[budget]]'", ""},
      {"- x: '[[3, 4], [5]]'\n- draft: x[budget]", ""},
      {"- x: '[[3, 4], [5]]'\n- table: x", ""},
      {"- x: '[3, 4]'\n- numbers: x\n- draft: x", ""},
      {"- draft: '[3 if finished else 4]'", ""},
      // Not what is computed, and no f32.
      {"- x: '[3, 4]'\n- scores: '[x[0] * 0.5]'", "`*` needs two i32 or two f32, found i32 and f32 [operand-types]"},
      {"- x: 3\n- scores: '[x * 0.5]'", "`*` needs two i32 or two f32, found i32 and f32 [operand-types]"},
      {"- x: 0 - 3\n- draft: '[x]'", "the value of `draft` must be token[4], found i32[1] [type-mismatch]"},
      {"- x: budget\n- draft: '[x]'", "the value of `draft` must be token[4], found i32[1] [type-mismatch]"},
      // A local that is constant is no constant: it is clamped, and does not count from the end.
      {"- x: 0 - 2\n- draft: tokens[x:]", "`draft` holds 4 tokens, but this value can have any number of them "
                                          "[draft-window]"},
  });
  const auto noted = [](const std::string &lines) {
    const std::string messages = check({{"      - append(draft", lines + "      - append(draft"}}).messages;
    const size_t at = messages.find("note: ");
    return at == std::string::npos ? messages : messages.substr(at + 6, messages.find('\n', at) - at - 6);
  };
  const char *how = "`x` has numbers (i32); to have tokens it is declared below `request:`, as `token` or `token[n]`";
  EXPECT_EQ(noted("      - x: map(i in 0..3, i)\n      - append(x)\n"), how);
  EXPECT_EQ(noted("      - x: budget\n      - append([last] + [x])\n"), how);
  EXPECT_EQ(noted("      - x: '[3]'\n      - if: finished\n        do:\n          - x: '[4]'\n      - draft: x\n"),
            how);
}

TEST(PipelineValues, IndicesAndSlices) {
  expectHeard({
      {"- trace: table[0][1]", ""},
      {"- draft: table[-1]", ""},
      {"- table: table[1:]", ""},
      {"- trace: len(table) + len(table[0])", ""},
      {"- trace: table[0]", "what is traced must be a number, bool or token, found token[3] [type-mismatch]"},
      {"- trace: table[0, 1]", "a second index is not supported yet; use `t[i][j]` [unsupported]"},
      {"- trace: table[rate]", "an index must be i32, found f32 [type-mismatch]"},
      {"- trace: accepted[0]", "what is indexed must be a sequence, found i32 [type-mismatch]"},
      {"- trace: accepted[:1]", "what is sliced must be a sequence, found i32 [type-mismatch]"},
      {"- trace: len(accepted)", "the argument of `len` must be a sequence, found i32 [type-mismatch]"},
      {"- numbers: (numbers + [1])[-4:]", ""},
      {"- table: (table + [[last]])[:2]", ""},
      // `i:i + 3` has 3, whatever i is.
      {"- table: map(i in 0..2, tokens[i:i + 3])", ""},
      {"- x: accepted\n- draft: tokens[x:4 + x]", ""},
      {"- table: map(i in 0..2, tokens[i:i + 4])",
       "`table` holds 3 tokens a row, but this value can have 4 [draft-window]"},
      // The same of a field, of what is computed, and where more than that is added on either side.
      {"- draft: tokens[accepted:accepted + 4]", ""},
      {"- draft: tokens[accepted + 2:3 + 3 + accepted]", ""},
      {"- draft: tokens[len(tokens) - 4:len(tokens)]", ""},
      {"- draft: tokens[2 * accepted - 1:3 + accepted * 0 + 2 * accepted - accepted * 0]", ""},
      {"- draft: tokens[kv.target.len - accepted:kv.target.len + 4 - accepted]", ""},
      {"- x: '[accepted]'\n- draft: tokens[x[0]:x[0] + 4]", ""},
      {"- draft: tokens[accepted:accepted + 5]", "`draft` holds 4 tokens, but this value can have 5 [draft-window]"},
      {"- draft: tokens[accepted:budget + 4]", "`draft` holds 4 tokens, but this value can have any number of them "
                                               "[draft-window]"},
      {"- x: '[accepted, accepted]'\n- draft: tokens[x[0]:x[1] + 4]",
       "`draft` holds 4 tokens, but this value can have any number of them [draft-window]"},
      // Where it wraps, the greater side is below: `[INT_MIN + 2:INT_MAX]` are all tokens.
      {"- draft: tokens[accepted + 3:accepted]", "`draft` holds 4 tokens, but this value can have any number of them "
                                                 "[draft-window]"},
      {"- draft: tokens[accepted:accepted + min(4, accepted)]",
       "`draft` holds 4 tokens, but this value can have any number of them [draft-window]"},
      {"- draft: tokens[len(tokens) - min(4, accepted):len(tokens)]",
       "`draft` holds 4 tokens, but this value can have any number of them [draft-window]"},
      {"- draft: tokens[budget:budget + min(4, accepted)]", ""},
      // Not what an effect between them changes.
      {"- draft: tokens[len(tokens):len(tokens) + 0 * append(last)]",
       "`draft` holds 4 tokens, but this value can have any number of them [draft-window]"},
  });
}

TEST(PipelineValues, Fields) {
  const auto field = [](const std::string &type) {
    return check({{"accepted: i32 = 0", "accepted: i32 = 0\n  x: " + type}}).messages;
  };
  EXPECT_EQ(field("f32[8]"), "");
  EXPECT_EQ(field("token[block, 3]"), "");
  EXPECT_EQ(field("bool[4, 1024]"), "");
  const auto has = [&](const std::string &type, const std::string &message) {
    EXPECT_NE(field(type).find(message), std::string::npos) << type << field(type);
  };
  has("i32[2, 3, 4]", "p.yaml:11:6: error: a table with more than two dimensions is not supported yet; use "
                      "`i32[rows, n]` [unsupported]");
  has("i32[0, 3]", "p.yaml:11:10: error: the capacity of `x` must be from 1 to 1024, found 0 [type-mismatch]");
  has("i32[3, 1025]", "p.yaml:11:13: error: the capacity of `x` must be from 1 to 1024, found 1025 [type-mismatch]");
  has("i32[5, 1024]", "p.yaml:11:6: error: the number of elements of `x` must be at most 4096, found 5120 "
                      "[type-mismatch]");
  has("f32[2] = 0", "p.yaml:11:15: error: an initial value of a sequence is not supported yet; use none: sequences "
                    "start empty [unsupported]");
  EXPECT_EQ(field("i32[4] = input"), "");
  EXPECT_NE(check({{"{ema: f32 = 0.8}", "{ema: f32 = 0.8, x: 'f32[4]'}"}}).messages.find("[unsupported]"),
            std::string::npos);
}

TEST(PipelineValues, Params) {
  const auto params = [](const std::string &value, const Sets &sets = {}, const std::string &use = "x[0]") {
    return check({{"  rate: 0.5\n", "  rate: 0.5\n  x: " + value + "\n"},
                  {"      - append(draft", "      - trace: " + use + "\n      - append(draft"}},
                 sets)
        .messages;
  };
  EXPECT_EQ(params("[1, 2, block]"), "");
  EXPECT_EQ(params("[1, 0.5]", {}, "x[0] * rate"), "");
  EXPECT_EQ(params("[true, false]", {}, "not x[1]"), "");
  EXPECT_EQ(params("[1, 2, 3]", {}, "len(x) + count(i in 0..len(x), x[i] > 1)"), "");
  EXPECT_NE(params("[]").find("a param must be one number, or a list of some, found"), std::string::npos)
      << params("[]");
  EXPECT_NE(params("[1, true]")
                .find("p.yaml:8:10: error: an element of a list must be i32 as the first one, found "
                      "bool [type-mismatch]"),
            std::string::npos)
      << params("[1, true]");
  EXPECT_NE(params("[[1], [2]]").find("error: "), std::string::npos);
  EXPECT_EQ(params("[1, 2]", {{"x", "3"}})
                .find("error: `--set x=3`: the value must be a list of 1 to 1024 integers (i32), as `[1, 2]` "
                      "[bad-set-value]\np.yaml:8:3: note: the param's elements"),
            0u)
      << params("[1, 2]", {{"x", "3"}});
  for (const char *wrong : {"[]", "[1, ]", "[1, x]", "[1.5]", "1, 2", "[1", "[[1]]", ""})
    EXPECT_NE(params("[1, 2]", {{"x", wrong}}).find("the value must be a list of 1 to 1024 integers"),
              std::string::npos)
        << wrong;
  EXPECT_NE(params("[0.5]", {{"x", "[true]"}}).find("1024 numbers (f32), as `[0.5, 2.0]`"), std::string::npos);
  EXPECT_EQ(params("[1, 2]", {{"x", " [ 4, 5 ,-6 ] "}}, "x[2] + len(x)"), "");
  EXPECT_EQ(params("[true]", {{"x", "[false, true]"}}, "x[1]"), "");
  EXPECT_EQ(params("[0.5]", {{"x", "[1, 2e3]"}}, "x[1]"), "");
  // Params with a meaning are single numbers.
  for (const char *name : {"slots", "rows_per_pass"}) {
    const std::string text = std::string("  ") + name + ": [16, 4]\n  block: 4\n";
    std::vector<Edit> edits = {{"  block: 4\n", text}};
    if (name == std::string("rows_per_pass"))
      edits.insert(edits.begin(), {"  rows_per_pass: 16\n", ""});
    EXPECT_NE(check(edits).messages.find(std::string("error: param `") + name + "` must be i32, found a list"),
              std::string::npos)
        << check(edits).messages;
  }
  // No list where a number belongs.
  EXPECT_NE(check({{"  block: 4\n", "  block: [4, 5]\n"}}).messages.find("[type-mismatch]"), std::string::npos);
}

TEST(PipelineValues, Binders) {
  expectHeard({
      {"- scores: map(i in 0..4, ratio(i, 4))", ""},
      {"- table: map(i in 0..2, draft[:i])", ""},
      {"- flags: map(i in 0..len(draft), draft[i] == last)", ""},
      {"- trace: sum(i in 0..4, i) + max(i in 0..4, i) + argmin(i in 0..4, rate * f32(i))", ""},
      {"- trace: all(i in 0..4, i > 1) or any(i in 0..4, i > 1)", ""},
      {"- numbers: top(i in 0..len(tokens[:100]), i, 4)", ""},
      {"- numbers: sort(i in 0..len(draft), [draft[i] == last and 0 == 1, i])",
       "the value of `sort` must be i32 or f32, found bool [type-mismatch]"},
      {"- numbers: sort(i in 0..len(draft), [i32(draft[i]), ratio(i, 3), -i])", ""},
      {"- scores: scan(i in 0..4, rate)", ""},
      {"- trace: find(i in 0..len(tokens), tokens[i] == last)", ""},
      {"- trace: sum(i in 0..4)", "expected `,` and the expression over `i`, found `)` [expr-syntax]"},
      {"- trace: sum(1, 2)", "`sum` takes `i in a..b, value`, found 2 arguments [argument-count]"},
      {"- trace: any(i in 0..4, true, 3)", "`any` takes `i in a..b, condition`, found 3 arguments [argument-count]"},
      {"- numbers: sort(i in 0..4, i, 1)", "`sort` takes `i in a..b, [key, ...]`, found 3 arguments [argument-count]"},
      {"- numbers: top(i in 0..4, i)", "`top` takes `i in a..b, value, k`, found 2 arguments [argument-count]"},
      {"- numbers: sort(i in 0..4)", "expected `,` and the expression over `i`, found `)` [expr-syntax]"},
      {"- numbers: sort(i in 0..4, [])", "argument `keys` of `sort` must be from 1 to 8 numbers [bad-argument]"},
      {"- numbers: sort(i in 0..4, [i, i, i, i, i, i, i, i, i])",
       "argument `keys` of `sort` must be from 1 to 8 numbers [bad-argument]"},
      {"- trace: sum(i in 0..4, finished)", "the value of `sum` must be i32 or f32, found bool [type-mismatch]"},
      {"- trace: all(i in 0..4, i)", "the condition of `all` must be bool, found i32 [type-mismatch]"},
      {"- trace: sum(i in 0..rate, i)", "the range of `sum` must be i32, found f32 [type-mismatch]"},
      {"- x: map(i in 0..4, tokens)",
       "the value of `map` must be a number, bool, token or short sequence, found token[] [type-mismatch]"},
      {"- x: map(i in 0..4, table)",
       "the value of `map` must be a number, bool, token or short sequence, found token[2, 3] [type-mismatch]"},
      {"- x: map(i in 0..2000, i)", "the length of what `map` makes must be at most 1024, found 2000 [type-mismatch]"},
      {"- x: map(i in 0..100, long)",
       "the number of elements of what `map` makes must be at most 4096, found 102400 [type-mismatch]"},
      {"- x: top(i in 0..2000, i, 4)",
       "the length of the range of `top` must be at most 1024, found 2000 [type-mismatch]"},
      {"- numbers: map(i in 0..len(tokens), 1)",
       "the length of what `map` makes must be at most 1024, found 65536 [type-mismatch]"},
      {"- numbers: map(i in 0..accepted, 1)", "`map` can take any number of rounds, more than 66560; bound its range "
                                              "with `min(..., N)` [range-bound]"},
      {"- numbers: map(i in 0..min(accepted, 4), 1)", ""},
      {"- numbers: map(i in 0..min(accepted, 5), 1)",
       "`numbers` holds 4 elements, but this value can have 5 [draft-window]"},
      // `i..i + 4` has 4, whatever i is.
      {"- trace: count(i in 0..4, all(j in i..i + 4, j > accepted))", ""},
      {"- trace: sum(accepted in 0..4, 1)", "`accepted` is already a field [duplicate-name]"},
      {"- x: 1\n- trace: sum(x in 0..4, x)", "`x` is already a local [duplicate-name]"},
      {"- trace: i in 0..4",
       "the operator `in` is not supported yet; use `i in a..b` inside a function such as `map` or `count` "
       "[unsupported]"},
      {"- trace: sum(i in 0..4, append([last]))", "`append` cannot stand in `sum` [effect-not-allowed]"},
      {"- trace: sum(i in 0..append([last]), 1)", "`append` cannot stand in a range [effect-not-allowed]"},
  });
}

TEST(PipelineValues, Numbers) {
  expectHeard({
      {"- trace: exp(1) + log(rate) + sqrt(2) + pow(rate, 2) + abs(-0.5)", ""},
      {"- trace: abs(accepted) + clamp(accepted, 0, 4)", ""},
      {"- trace: clamp(rate, 0, 1)", ""},
      {"- trace: i32(finished) + i32(last) + i32(rate)", ""},
      {"- trace: exp(accepted)", "the argument of `exp` must be f32, found i32 [type-mismatch]"},
      {"- trace: abs(last)", "the argument of `abs` must be i32 or f32, found token [type-mismatch]"},
      {"- trace: clamp(finished, false, true)",
       "the argument of `clamp` must be i32 or f32, found bool [type-mismatch]"},
      {"- trace: clamp(accepted, 0.5, 2)", "an argument of `clamp` must be i32 as the first one, found f32 "
                                           "[type-mismatch]"},
      {"- trace: f32(finished)", "the argument of `f32` must be i32, found bool [type-mismatch]"},
      {"- trace: i32(draft)", "the argument of `i32` must be f32, token or bool, found token[4] [type-mismatch]"},
      {"- trace: pow(rate)", "`pow` takes 2 arguments, found 1 [argument-count]"},
      // What is known of a value bounds a sequence.
      {"- numbers: map(i in 0..clamp(accepted, 0, 4), i)", ""},
      {"- numbers: map(i in 0..i32(finished) + 3, i)", ""},
      {"- numbers: map(i in 0..abs(accepted % 5), i)", ""},
      {"- numbers: map(i in 0..abs(accepted % 6), i)",
       "`numbers` holds 4 elements, but this value can have 5 [draft-window]"},
  });
}

TEST(PipelineValues, TreesAndLookups) {
  expectHeard({
      {"- t: tree(last, table)\n- trace: len(t.rows) + t.parents[0]", ""},
      {"- t: tree(last, table)\n- trace: t", "`t` must be `.rows` or `.parents` of it, found a tree [type-mismatch]"},
      {"- t: tree(last, table)\n- trace: len(t.row)", "unknown name `t.row` [unknown-name]"},
      {"- t: tree(last, draft)\n- trace: len(t.rows)",
       "argument `table` of `tree` must be a table of tokens, found token[4] [type-mismatch]"},
      {"- t: tree(budget, table)\n- trace: len(t.rows)",
       "argument `last` of `tree` must be token, found i32 [type-mismatch]"},
      {"- t: tree(last, map(i in 0..2, long))\n- trace: len(t.rows)",
       "the length of the rows of `tree` must be at most 1024, found 2049 [type-mismatch]"},
      {"- numbers: follow(draft, numbers, draft)", ""},
      {"- numbers: follow(draft, numbers, draft, root=2)", ""},
      {"- numbers: follow(draft, draft, draft)",
       "argument `parents` of `follow` must be a sequence of i32, found token[4] [type-mismatch]"},
      {"- numbers: follow(last, numbers, draft)",
       "argument `rows` of `follow` must be a sequence of tokens, found token [type-mismatch]"},
      {"- numbers: follow(draft, numbers, draft, root=rate)",
       "argument `root` of `follow` must be i32, found f32 [type-mismatch]"},
      {"- draft: filter(i in 0..len(draft), draft[i], not is_eos(draft[i]))", ""},
      {"- numbers: filter(i in 0..4, i, i % 2 == 0)", ""},
      {"- numbers: filter(i in 0..4, i)",
       "`filter` takes `i in a..b, value, condition`, found 2 arguments [argument-count]"},
      {"- table: filter(i in 0..2, draft, true)",
       "the value of `filter` must be a number, bool or token, found token[4] [type-mismatch]"},
      {"- numbers: filter(i in 0..4, i, i)", "the condition of `filter` must be bool, found i32 [type-mismatch]"},
      {"- draft: eos[:2]", ""},
      {"- draft: eos", "`draft` holds 4 tokens, but this value can have any number of them [draft-window]"},
      {"- trace: is_eos(accepted)", "argument `t` of `is_eos` must be token, found i32 [type-mismatch]"},
      {"- trace: token(accepted)", ""},
      {"- trace: token(last)", "the argument of `token` must be i32, found token [type-mismatch]"},
      {"- trace: token(2 - 5)", "argument `x` of `token` must be 0 or above, is -3 [bad-argument]"},
      {"- kv.target.keep: matching(draft)", ""},
      {"- kv.target.keep: matching(tokens)", "the length of the argument of `matching` has no upper bound; cut it with "
                                             "a slice such as `[:8]` [unbounded-sequence]"},
      {"- kv.target.keep: matching(numbers)",
       "the argument of `matching` must be a sequence of tokens, found i32[4] [type-mismatch]"},
      {"- kv.target.keep: matching()", "`matching` takes 1 argument, found 0 [argument-count]"},
      {"- draft: forced(4)", ""},
      {"- draft: forced(min(accepted, 3)) + [5]", ""},
      {"- draft: forced(accepted)",
       "argument `width` of `forced` must be at most 1024; write `min(..., 1024)` [bad-argument]"},
      {"- draft: forced()", "`forced` takes 1 argument, found 0 [argument-count]"},
      {"- table: ngram_lookup(tokens, width=3, matches=2)", ""},
      {"- draft: ngram_lookup(tokens[-8:], width=4, ngram=min(accepted, 4), from=tokens)", ""},
      {"- draft: ngram_lookup(tokens, width=4, ngram=accepted)",
       "argument `ngram` of `ngram_lookup` must be at most 16; write `min(..., 16)` [bad-argument]"},
      {"- draft: ngram_lookup(tokens, width=4, ngram=17)",
       "argument `ngram` of `ngram_lookup` must be from 1 to 16, is 17 [bad-argument]"},
      {"- table: ngram_lookup(tokens, width=3, matches=0)",
       "argument `matches` of `ngram_lookup` must be from 1 to 64, is 0 [bad-argument]"},
      {"- table: ngram_lookup(tokens, width=3, matches=accepted)",
       "argument `matches` of `ngram_lookup` must be known at compile time [not-constant]"},
      {"- table: ngram_lookup(tokens, width=accepted, matches=2)",
       "the length of what `ngram_lookup` finds has no upper bound; cut it with a slice such as `[:8]` "
       "[unbounded-sequence]"},
      {"- draft: ngram_lookup(numbers, width=4)",
       "the first argument of `ngram_lookup` must be a sequence of tokens, found i32[4] [type-mismatch]"},
      {"- draft: ngram_lookup(tokens, width=4, from=table)",
       "argument `from` of `ngram_lookup` must be a sequence of tokens, found token[2, 3] [type-mismatch]"},
      {"- append(draft, stop=[1, 2])", ""},
      {"- append(draft, stop=last)",
       "argument `stop` of `append` must be a sequence of tokens, found token [type-mismatch]"},
      {"- append(draft, stop=tokens)",
       "the length of argument `stop` of `append` has no upper bound; cut it with a slice such as `[:8]` "
       "[unbounded-sequence]"},
      {"- append(numbers)",
       "the argument of `append` must be a token or a sequence of tokens, found i32[4] [type-mismatch]"},
  });
}

TEST(PipelineValues, Loops) {
  expectHeard({
      {"- for: i in 0..4\n  do:\n    - accepted: accepted + i", ""},
      {"- for: i in 0..len(tokens)\n  do:\n    - count: m += 1", ""},
      {"- while: accepted < 4\n  bound: 2 * block\n  do:\n    - accepted: accepted + 1", ""},
      {"- for: i in 0..accepted\n  do: []", "`for` can take any number of rounds, more than 66560; bound its range "
                                            "with `min(..., N)` [range-bound]"},
      {"- for: i in 0..min(accepted, 9)\n  do: []", ""},
      {"- for: i in 0..4\n  do:\n    - for: i in 0..4\n      do: []", ""}, // the inner one hides it
      {"- for: accepted in 0..4\n  do: []", "`accepted` is already a field [duplicate-name]"},
      {"- x: 1\n- for: x in 0..4\n  do: []", "`x` is already a local [duplicate-name]"},
      {"- for: i in 0..last\n  do: []", "the range of `for` must be i32, found token [type-mismatch]"},
      {"- for: i in 0..4\n  do:\n    - i: 3",
       "`i` is the variable of a `for` around it and cannot be assigned [cannot-assign]"},
      {"- for: i in 0..4\n  do:\n    - count: m += i\n- i: 3\n- trace: i", ""},
      {"- while: accepted\n  bound: 4\n  do: []", "the condition of `while` must be bool, found i32 [type-mismatch]"},
      {"- while: finished\n  bound: 0\n  do: []",
       "argument `bound` of `while` must be at least 1, is 0 [bad-argument]"},
      {"- while: finished\n  bound: accepted\n  do: []",
       "`bound` of `while` must be known at compile time [not-constant]"},
      {"- while: finished\n  bound: 0.5\n  do: []", "`bound` of `while` must be i32, found f32 [type-mismatch]"},
      {"- while: finished\n  bound: 100000\n  do: []", "`while` can take 100000 rounds, more than 66560; bound its "
                                                       "range with `min(..., N)` [range-bound]"},
      {"- while: append([last]) > 0\n  bound: 4\n  do: []",
       "`append` cannot stand in the condition of `while` [effect-not-allowed]"},
      {"- for: i in 0..4\n  do:\n    - target([last], keep=none)", ""},
      {"- for: i in 0..4\n  do:\n    - for: j in 0..4\n      do:\n        - target([last], keep=none)", ""},
      {"- while: finished\n  bound: 4\n  do:\n    - for: j in 0..4\n      do:\n        - target([last], keep=none)",
       "a call of `target` cannot stand in a `while` [effect-not-allowed]"},
      {"- for: i in 0..4\n  do:\n    - if: finished\n      do:\n        - target([last], keep=none)", ""},
      {"- if: finished\n  do:\n    - for: i in 0..4\n      do:\n        - target([last], keep=none)", ""},
      {"- if: finished\n  do: []\n  else:\n    - numbers: map(i in 0..2, len(argmax(target([last], kv=draft))))",
       "a call of `target` cannot stand in `map` [effect-not-allowed]"},
      {"- if: finished\n  do:\n    - l: target([last], kv=draft)\n    - p: max_prob(l)[0]\n    - trace: p\n    - l2: "
       "l\n    - draft: argmax(l2)",
       ""},
      {"- if: accepted\n  do:\n    - target([last], keep=none)",
       "the condition of `if` must be bool, found i32 [type-mismatch]"},
      {"- if: finished\n  do:\n    - l: target([last], kv=draft)\n    - n: 1 + append(argmax(l))\n    - trace: n",
       "an `append` inside of a value, in a block with a call or `until:` is not supported yet; use `- n: append(...)` "
       "alone "
       "[unsupported]"},
      {"- if: finished\n  do:\n    - l: target([last], kv=draft)\n- draft: argmax(l)",
       "unknown name `l` [unknown-name]"},
      {"- for: i in 0..4\n  until: finished\n  do:\n    - accepted: i", ""},
      {"- for: i in 0..4\n  until: i > accepted\n  do:\n    - draft: argmax(target([last], kv=draft))", ""},
      {"- for: i in 0..4\n  until: accepted\n  do: []", "`until` must be bool, found i32 [type-mismatch]"},
      {"- for: i in 0..4\n  until: append([last]) > 0\n  do: []",
       "`append` cannot stand in `until` [effect-not-allowed]"},
      {"- while: finished\n  bound: 4\n  until: finished\n  do: []",
       "unknown key `until` in a statement with `while` [unknown-key]"},
      {"- while: finished\n  bound: 4\n  do:\n    - target([last], keep=none)",
       "a call of `target` cannot stand in a `while` [effect-not-allowed]"},
      {"- for: a in 0..2\n  do:\n    - for: b in 0..2\n      do:\n        - for: c in 0..2\n          do:\n"
       "            - for: d in 0..2\n              do: []",
       ""},
      {"- for: a in 0..2\n  do:\n    - for: b in 0..2\n      do:\n        - for: c in 0..2\n          do:\n"
       "            - for: d in 0..2\n              do:\n                - while: finished\n                  "
       "bound: 2\n                  do: []",
       "a loop nests more than 4 levels deep [nesting-too-deep]"},
      {"- for: i in 0..5000\n  do:\n    - for: j in 0..5000\n      do: []",
       "`for` and the ranges around it can take 25000000 rounds, more than 16777216; bound its range with "
       "`min(..., N)` [range-bound]"},
      {"- repeat: 3\n  do: []", "unknown key `repeat` in a statement of a stage or policy [unknown-key]"},
  });
  for (const char *loop : {"- for: i in 0..2\n        do: []", "- while: good < 2\n        bound: 3\n        do: []"}) {
    const std::string messages =
        check({{"      - ema: rate", std::string("      ") + loop + "\n      - ema: rate"}}).messages;
    EXPECT_NE(messages.find("cannot stand in a policy [effect-not-allowed]"), std::string::npos) << messages;
  }
}

TEST(PipelineValues, LocalsThatChangeInBlocks) {
  expectHeard({
      // What a loop makes longer has as many more as there are rounds.
      {"- x: '[]'\n- for: i in 0..4\n  do:\n    - x: x + [i]\n- numbers: x", ""},
      {"- x: '[]'\n- for: i in 0..5\n  do:\n    - x: x + [i]\n- numbers: x",
       "`numbers` holds 4 elements, but this value can have 5 [draft-window]"},
      {"- x: '[1]'\n- for: i in 0..2\n  do:\n    - if: i == 1\n      do:\n        - x: x + [i, i]\n- numbers: x",
       "`numbers` holds 4 elements, but this value can have 5 [draft-window]"},
      {"- x: '[]'\n- for: i in 0..2\n  do:\n    - for: j in 0..2\n      do:\n        - x: x + [i]\n- numbers: x", ""},
      {"- x: '[]'\n- for: i in 0..3\n  do:\n    - for: j in 0..2\n      do:\n        - x: x + [i]\n- numbers: x",
       "`numbers` holds 4 elements, but this value can have 6 [draft-window]"},
      {"- x: '[]'\n- while: len(x) < 4\n  bound: 4\n  do:\n    - x: x + [1]\n- numbers: x", ""},
      {"- x: '[]'\n- for: i in 0..2\n  do:\n    - x: x + [draft[:3]]\n- table: x", ""},
      {"- x: '[]'\n- for: i in 0..3\n  do:\n    - x: x + [draft[:3]]\n- table: x",
       "`table` holds 2 rows, but this value can have 3 [draft-window]"},
      // Twice as long in each round: no bound.
      {"- x: '[1]'\n- for: i in 0..3\n  do:\n    - x: x + x\n- numbers: x",
       "the length of this operand of `+` has no upper bound; cut it with a slice such as `[:8]` "
       "[unbounded-sequence]"},
      {"- x: '[1]'\n- for: i in 0..9\n  do:\n    - x: (x + x)[:4]\n- numbers: x", ""},
      // What an `if` changes is one or the other after it.
      {"- x: '[1]'\n- if: finished\n  do:\n    - x: '[1, 2, 3, 4]'\n- numbers: x", ""},
      {"- x: '[1]'\n- if: finished\n  do:\n    - x: '[1, 2, 3, 4, 5]'\n- numbers: x",
       "`numbers` holds 4 elements, but this value can have 5 [draft-window]"},
      {"- x: 3\n- if: finished\n  do:\n    - x: 5\n- numbers: map(i in 0..x, i)",
       "`numbers` holds 4 elements, but this value can have 5 [draft-window]"},
      {"- x: 0\n- for: i in 0..4\n  do:\n    - x: x + 1\n- numbers: map(i in 0..x, i)", ""},
      {"- x: 0\n- for: i in 0..4\n  do:\n    - x: x + 2\n- numbers: map(i in 0..x, i)",
       "`numbers` holds 4 elements, but this value can have 8 [draft-window]"},
      // A name has one type.
      {"- x: 1\n- if: finished\n  do:\n    - x: 0.5\n- trace: x",
       "the value of `x` must be i32, found f32 [type-mismatch]"},
      {"- x: '[]'\n- if: finished\n  do:\n    - x: '[1]'\n  else:\n    - x: '[0.5]'\n- trace: len(x)",
       "the value of `x` must be i32[], found f32[1] [type-mismatch]"},
      // A field's assignment is followed in its stage, too.
      {"- numbers: '[]'\n- for: i in 0..4\n  do:\n    - numbers: numbers + [i]", ""},
      {"- numbers: '[]'\n- for: i in 0..5\n  do:\n    - numbers: numbers + [i]",
       "`numbers` holds 4 elements, but this value can have 5 [draft-window]"},
      {"- for: i in 0..2\n  do:\n    - numbers: numbers + [i]",
       "`numbers` holds 4 elements, but this value can have 5 [draft-window]"},
      // Its rounds have locals of their own.
      {"- for: i in 0..4\n  do:\n    - y: i\n- trace: y", "unknown name `y` [unknown-name]"},
      {"- for: i in 0..4\n  do:\n    - y: i",
       "`y` is assigned but never read, and no field has that name [unused-local]"},
      {"- for: i in 0..4\n  do: []\n- trace: i", "unknown name `i` [unknown-name]"},
  });
}
