#include "SyntaxTesting.h"
#include <gtest/gtest.h>

namespace megalith {
namespace {

std::string pipelineErrors(const std::string &text) {
  ParsedPipeline parsed(text);
  EXPECT_FALSE(parsed.ast);
  return parsed.diags.render();
}

std::string modelErrors(const std::string &text) {
  ParsedModel parsed(text);
  EXPECT_FALSE(parsed.ast);
  return parsed.diags.render();
}

/// A model file that lacks nothing but what `lines` say.
std::string withModelParts(const std::string &lines) { return "model: m\n" + lines; }

//===----------------------------------------------------------------------===//
// YAML
//===----------------------------------------------------------------------===//

TEST(YamlErrors, EmptyFileAndOtherTopLevels) {
  EXPECT_EQ(pipelineErrors(""), "t.yaml:1:1: error: a pipeline file must be a mapping, found an "
                                "empty file [wrong-node-kind]\n"
                                "    1 | \n"
                                "      | ^\n");
  EXPECT_EQ(modelErrors("# a comment\n"), "t.yaml:1:1: error: a model file must be a mapping, found an empty file "
                                          "[wrong-node-kind]\n"
                                          "    1 | # a comment\n"
                                          "      | ^\n");
  EXPECT_EQ(pipelineErrors("- a\n"), "t.yaml:1:1: error: the pipeline file must be a mapping, "
                                     "found a list [wrong-node-kind]\n"
                                     "    1 | - a\n"
                                     "      | ^\n");
  EXPECT_EQ(modelErrors("abc\n"), "t.yaml:1:1: error: the model file must be a mapping, found "
                                  "`abc` [wrong-node-kind]\n"
                                  "    1 | abc\n"
                                  "      | ^~~\n");
}

TEST(YamlErrors, Syntax) {
  EXPECT_EQ(pipelineErrors(withParams("  a: f(x, width: 8)\n")),
            "t.yaml:5:16: error: not valid YAML: `: ` inside a value [yaml-syntax]\n"
            "    5 |   a: f(x, width: 8)\n"
            "      |                ^\n"
            "note: named arguments are written `name=value`; a slice has no space "
            "after `:`; a new "
            "key goes on its own line, indented like its neighbours\n");
  EXPECT_EQ(pipelineErrors("request: {draft: token[8]}\n"),
            "t.yaml:1:23: error: not valid YAML: a bracket that is not closed, "
            "or text between "
            "entries [yaml-syntax]\n"
            "    1 | request: {draft: token[8]}\n"
            "      |                       ^\n"
            "note: inside `{}` and `[]`, if an expression has brackets or "
            "commas, put the whole "
            "expression in single quotes: `'[last] + draft'`\n");
  EXPECT_EQ(pipelineErrors("params:\n\ta: 1\n"),
            "t.yaml:2:1: error: not valid YAML: a tab in the indentation; use spaces "
            "[yaml-syntax]\n"
            "    2 |  a: 1\n"
            "      | ^\n");
  EXPECT_EQ(pipelineErrors("pipeline: 'p"), "t.yaml:1:13: error: not valid YAML: a quote that is "
                                            "not closed [yaml-syntax]\n"
                                            "    1 | pipeline: 'p\n"
                                            "      |             ^\n");
  const char *atItsStart = "t.yaml:5:6: error: not valid YAML: a quote that is not closed "
                           "[yaml-syntax]\n"
                           "    5 |   a: 'b''\n"
                           "      |      ^\n";
  EXPECT_EQ(pipelineErrors(withParams("  a: 'b''\n")), atItsStart);
  EXPECT_EQ(pipelineErrors("pipeline: @p\n"), "t.yaml:1:11: error: not valid YAML: a value cannot "
                                              "begin with this character [yaml-syntax]\n"
                                              "    1 | pipeline: @p\n"
                                              "      |           ^\n"
                                              "note: put the whole expression in single quotes: "
                                              "`'[last] + draft'`\n");
  EXPECT_EQ(pipelineErrors("params:\n  a: - 1\n"), "t.yaml:2:6: error: not valid YAML: `- ` cannot begin an entry "
                                                   "here [yaml-syntax]\n"
                                                   "    2 |   a: - 1\n"
                                                   "      |      ^\n"
                                                   "note: start a list on the line after its key; write a negative "
                                                   "number without a "
                                                   "space\n");
}

TEST(YamlErrors, BytesThatAreNotText) {
  EXPECT_EQ(pipelineErrors(std::string("pipeline: a\0b\n", 14)),
            "t.yaml:1:12: error: not valid YAML: control character 0x00; a "
            "file is UTF-8 text "
            "[yaml-syntax]\n"
            "    1 | pipeline: a\\x00b\n"
            "      |            ^~~~\n");
  // yaml-cpp takes 0x04 for the end of the file.
  EXPECT_NE(pipelineErrors("a: 1\nb: \x04")
                .find("t.yaml:2:4: error: not valid YAML: control "
                      "character 0x04"),
            std::string::npos);
  EXPECT_NE(pipelineErrors("a: \xC3(").find("t.yaml:1:4: error: not valid YAML: invalid byte 0xc3"), std::string::npos);
}

TEST(YamlErrors, Unsupported) {
  EXPECT_EQ(pipelineErrors(withParams("  a: &x 1\n")),
            "t.yaml:5:6: error: the anchor `&x` cannot be used here; write the "
            "value at each place "
            "[yaml-unsupported]\n"
            "    5 |   a: &x 1\n"
            "      |      ^~\n");
  // An alias, defined or not, is most often a product written first.
  EXPECT_EQ(pipelineErrors(withParams("  a: *x\n")), "t.yaml:5:6: error: the alias `*x` cannot be used here; write the "
                                                     "value out, or put "
                                                     "the expression in single quotes [yaml-unsupported]\n"
                                                     "    5 |   a: *x\n"
                                                     "      |      ^~\n");
  ParsedPipeline both(withParams("  a: &x 1\n  b: *x\n"));
  EXPECT_EQ(both.diags.errors(), 2u) << both.diags.render();
  EXPECT_EQ(pipelineErrors(withParams("  a: !!int 1\n")),
            "t.yaml:5:6: error: the tag `!!int` cannot be used here; write the "
            "value without it "
            "[yaml-unsupported]\n"
            "    5 |   a: !!int 1\n"
            "      |      ^~~~~\n");
  EXPECT_EQ(pipelineErrors(withParams("  a: 1\n---\nb: 2\n")),
            "t.yaml:6:1: error: a second document cannot be used here; one "
            "file holds one pipeline "
            "or one model [yaml-unsupported]\n"
            "    6 | ---\n"
            "      | ^~~\n");
}

TEST(YamlErrors, DeepNesting) {
  for (unsigned depth : {100u, 1000u, 10000u}) {
    std::string rendered = pipelineErrors(withParams("  a: " + std::string(depth, '[') + std::string(depth, ']')));
    EXPECT_EQ(rendered.substr(0, rendered.find('\n')), "t.yaml:5:68: error: YAML nests more than 64 levels deep "
                                                       "[nesting-too-deep]");
    std::string indented;
    for (unsigned i = 0; i < depth && i < 1000; ++i)
      indented += std::string(i, ' ') + "a:\n";
    EXPECT_NE(pipelineErrors(indented).find("[nesting-too-deep]"), std::string::npos);
  }
}

//===----------------------------------------------------------------------===//
// Keys
//===----------------------------------------------------------------------===//

TEST(KeyErrors, Duplicate) {
  EXPECT_EQ(pipelineErrors(withParams("  a: 1\n  b: 2\n  a: 3\n")),
            "t.yaml:7:3: error: key `a` appears twice in `params` [duplicate-key]\n"
            "    7 |   a: 3\n"
            "      |   ^\n"
            "t.yaml:5:3: note: first given here\n"
            "    5 |   a: 1\n"
            "      |   ^\n");
  EXPECT_NE(pipelineErrors("pipeline: p\nstates: {}\nstages: {}\npolicies:\n  q:\n"
                           "    outputs: {}\n    observe(a): []\n    observe(b): []\n")
                .find("t.yaml:8:5: error: key `observe` appears twice in policy `q`"),
            std::string::npos);
}

TEST(KeyErrors, UnknownWithSuggestion) {
  EXPECT_EQ(pipelineErrors("pipeline: p\nstates: {}\nstages: {}\nkv:\n"
                           "  target: {pages: 4, page_tokens: 16, on_ful: fail}\n"),
            "t.yaml:5:39: error: unknown key `on_ful` in pool `kv.target` "
            "[unknown-key]\n"
            "    5 |   target: {pages: 4, page_tokens: 16, on_ful: fail}\n"
            "      |                                       ^~~~~~\n"
            "note: did you mean `on_full`?\n");
  EXPECT_EQ(pipelineErrors("pipeline: p\nstates: {}\nstages: {}\nqueues: {}\n"),
            "t.yaml:4:1: error: `queues` in the pipeline file is not supported yet; use states that requests wait in "
            "[unsupported]\n"
            "    4 | queues: {}\n"
            "      | ^~~~~~\n");
}

TEST(KeyErrors, NotYet) {
  const auto has = [](const std::string &sections, const std::string &message) {
    const std::string errors = pipelineErrors("pipeline: p\nstates: {}\n" + sections);
    EXPECT_NE(errors.find(message), std::string::npos) << errors;
    EXPECT_EQ(errors.find("unknown-key"), std::string::npos) << errors;
  };
  has("stages: {}\nqueues: {}\n", "error: `queues` in the pipeline file is not supported yet; use states that");
  has("stages: {}\nextern: {}\n", "error: `extern` in the pipeline file is not supported yet; use inputs of the");
  has("stages: {}\nkv:\n  target: {pages: 4, page_tokens: 16, holes: true}\n",
      "t.yaml:5:39: error: `holes` in pool `kv.target` is not supported yet; use `kv.M.keep: n`, which keeps leading "
      "tokens [unsupported]");
  has("stages: {}\nkv:\n  target: {pages: 4, page_tokens: 16, exact: false}\n",
      "t.yaml:5:39: error: `exact` in pool `kv.target` is not supported yet; use KV of the request's own tokens: ");
  has("stages:\n  s:\n    over: requests r\n    on: A\n    goto: A\n    do: []\n",
      "t.yaml:5:5: error: `over` in stage `s` is not supported yet; use a stage without it, which sees one request ");
}

TEST(KeyErrors, Missing) {
  EXPECT_EQ(pipelineErrors("pipeline: p\nstages:\n  s:\n    on: A\n    do: []\n"),
            "t.yaml:1:1: error: the pipeline file needs the key `states` "
            "[missing-key]\n"
            "    1 | pipeline: p\n"
            "      | ^\n"
            "t.yaml:3:3: error: stage `s` needs the key `goto` [missing-key]\n"
            "    3 |   s:\n"
            "      |   ^\n");
}

TEST(KeyErrors, Names) {
  EXPECT_EQ(pipelineErrors(withParams("  a-b: 1\n  in: 2\n")),
            "t.yaml:5:3: error: a param cannot be named `a-b`; use letters, "
            "digits and `_`, not "
            "first a digit [bad-name]\n"
            "    5 |   a-b: 1\n"
            "      |   ^~~\n"
            "t.yaml:6:3: error: a param cannot be named `in`; the word has a "
            "meaning in "
            "expressions [bad-name]\n"
            "    6 |   in: 2\n"
            "      |   ^~\n");
  EXPECT_EQ(pipelineErrors(withParams("  [a]: 1\n")),
            "t.yaml:5:3: error: a key of `params` must be a word, found a list "
            "[wrong-node-kind]\n"
            "    5 |   [a]: 1\n"
            "      |   ^\n");
}

//===----------------------------------------------------------------------===//
// Values
//===----------------------------------------------------------------------===//

TEST(ValueErrors, WrongKinds) {
  EXPECT_EQ(pipelineErrors(withParams("  a: {x: 2}\n  b:\n")),
            "t.yaml:5:6: error: param `a` must be an expression, found a mapping "
            "[wrong-node-kind]\n"
            "    5 |   a: {x: 2}\n"
            "      |      ^\n"
            "t.yaml:6:3: error: param `b` must be an expression, found nothing "
            "[wrong-node-kind]\n"
            "    6 |   b:\n"
            "      |   ^\n");
  EXPECT_EQ(pipelineErrors("pipeline: p\nstates:\n  A: {slot: yes, next: [a "
                           "b]}\n  B:\nstages: {}\n"),
            "t.yaml:3:13: error: `slot` of state `A` must be `true` or "
            "`false`, found `yes` "
            "[wrong-node-kind]\n"
            "    3 |   A: {slot: yes, next: [a b]}\n"
            "      |             ^~~\n"
            "t.yaml:3:25: error: an entry of `next` of state `A` must be the "
            "name of a state, "
            "found `a b` [wrong-node-kind]\n"
            "    3 |   A: {slot: yes, next: [a b]}\n"
            "      |                         ^~~\n"
            "t.yaml:4:3: error: state `B` must be a mapping, found nothing "
            "[wrong-node-kind]\n"
            "    4 |   B:\n"
            "      |   ^\n"
            "note: an empty mapping is written `{}`\n");
}

TEST(ValueErrors, Fields) {
  EXPECT_EQ(pipelineErrors("pipeline: p\nstates: {}\nstages: {}\nrequest:\n"
                           "  a: token[max_block\n  b: i32 5\n  c: 3\n"),
            "t.yaml:5:21: error: expected `,` or `]`, found the end of the "
            "expression "
            "[expr-syntax]\n"
            "    5 |   a: token[max_block\n"
            "      |                     ^\n"
            "t.yaml:6:10: error: expected `[`, `in`, `=` or the end of the "
            "declaration, found `5` "
            "[expr-syntax]\n"
            "    6 |   b: i32 5\n"
            "      |          ^\n"
            "t.yaml:7:6: error: expected a type such as `i32` or "
            "`token[max_block]`, found `3` "
            "[expr-syntax]\n"
            "    7 |   c: 3\n"
            "      |      ^\n");
}

TEST(ValueErrors, Signature) {
  EXPECT_EQ(pipelineErrors("pipeline: p\nstates: {}\nstages: {}\npolicies:\n  q:\n"
                           "    outputs: {}\n    observe(a b): []\n"),
            "t.yaml:7:15: error: expected `,` or `)`, found `b` [expr-syntax]\n"
            "    7 |     observe(a b): []\n"
            "      |               ^\n");
}

TEST(ValueErrors, Goto) {
  EXPECT_EQ(pipelineErrors("pipeline: p\nstates: {}\nstages:\n"
                           "  s: {on: A, do: [], goto: A if x else b.c}\n"),
            "t.yaml:4:40: error: expected the name of a state, found `b.c` "
            "[expr-syntax]\n"
            "    4 |   s: {on: A, do: [], goto: A if x else b.c}\n"
            "      |                                        ^~~\n"
            "note: `goto` is a state or `STATE if condition else OTHER`\n");
}

TEST(ValueErrors, Weights) {
  EXPECT_EQ(modelErrors(withModelParts("config: {}\ngraph: []\nweights:\n"
                                       "  w: {shape: [a], from: x}\n"
                                       "  v: {shape: a, from: x, or: b if c else}\n")),
            "t.yaml:5:14: error: `shape` of weight `w` must be a list of sizes "
            "in single quotes "
            "such as `'[vocab, hidden]'`, found a list [wrong-node-kind]\n"
            "    5 |   w: {shape: [a], from: x}\n"
            "      |              ^\n"
            "t.yaml:6:14: error: `shape` of weight `v` must be a list of sizes "
            "in single quotes "
            "such as `'[vocab, hidden]'`, found `a` [wrong-node-kind]\n"
            "    6 |   v: {shape: a, from: x, or: b if c else}\n"
            "      |              ^\n"
            "t.yaml:6:41: error: expected an expression, found the end of the "
            "expression "
            "[expr-syntax]\n"
            "    6 |   v: {shape: a, from: x, or: b if c else}\n"
            "      |                                         ^\n");
}

TEST(ValueErrors, ConfigEntriesOfLayers) {
  EXPECT_EQ(modelErrors(withModelParts("weights: {}\ngraph: []\nconfig:\n"
                                       "  layer:\n    a: {values: {x: 1}, default: 3}\n    b: {key: c, values: {}}\n"
                                       "    d: {key: e, valu: 3}\n    f: [c]\n")),
            "t.yaml:6:5: error: config entry `a` needs the key `key` [missing-key]\n"
            "    6 |     a: {values: {x: 1}, default: 3}\n"
            "      |     ^\n"
            "t.yaml:7:25: error: `values` of config entry `b` must be a mapping from entries of the list to constants, "
            "found an empty one [wrong-node-kind]\n"
            "    7 |     b: {key: c, values: {}}\n"
            "      |                         ^\n"
            "t.yaml:8:17: error: unknown key `valu` in config entry `d` [unknown-key]\n"
            "    8 |     d: {key: e, valu: 3}\n"
            "      |                 ^~~~\n"
            "note: did you mean `values`?\n"
            "t.yaml:9:8: error: config entry `f` must be a key of config.json or a mapping, found a list "
            "[wrong-node-kind]\n"
            "    9 |     f: [c]\n"
            "      |        ^\n");
}

TEST(ValueErrors, ConfigEntries) {
  EXPECT_EQ(modelErrors(withModelParts("weights: {}\ngraph: []\nconfig:\n"
                                       "  a: {default: 3}\n  b: [c]\n")),
            "t.yaml:5:3: error: config entry `a` needs the key `key` [missing-key]\n"
            "    5 |   a: {default: 3}\n"
            "      |   ^\n"
            "note: a constant of your own has a key that no config.json has: `a: {key: my_a, default: ...}`\n"
            "t.yaml:6:6: error: config entry `b` must be a key of config.json or a "
            "mapping, found "
            "a list [wrong-node-kind]\n"
            "    6 |   b: [c]\n"
            "      |      ^\n");
}

//===----------------------------------------------------------------------===//
// Statements
//===----------------------------------------------------------------------===//

TEST(StatementErrors, Blocks) {
  EXPECT_EQ(pipelineErrors(withBody("      - iff: x\n        do: []\n"
                                    "      - if: x\n        dq: []\n"
                                    "      - repeat: layer\n        do: []\n")),
            "t.yaml:8:9: error: unknown key `iff` in a statement with `do` "
            "[unknown-key]\n"
            "    8 |       - iff: x\n"
            "      |         ^~~\n"
            "note: a block begins with `if:`, `for:` or `while:`\n"
            "t.yaml:11:9: error: unknown key `dq` in a statement with `if` "
            "[unknown-key]\n"
            "   11 |         dq: []\n"
            "      |         ^~\n"
            "note: did you mean `do`?\n"
            "t.yaml:12:9: error: unknown key `repeat` in a statement of a "
            "stage or policy "
            "[unknown-key]\n"
            "   12 |       - repeat: layer\n"
            "      |         ^~~~~~\n");
  EXPECT_EQ(modelErrors(withModelParts("config: {}\nweights: {}\ngraph:\n"
                                       "  - if: x\n    do: []\n")),
            "t.yaml:5:5: error: unknown key `if` in a statement of a graph "
            "[unknown-key]\n"
            "    5 |   - if: x\n"
            "      |     ^~\n");
}

TEST(StatementErrors, ColonInACall) {
  EXPECT_EQ(pipelineErrors(withBody("      - f(x, width: 8)\n")),
            "t.yaml:8:9: error: the left side of a statement must be a name "
            "such as `draft` or "
            "`kv.target.keep`, found `f(x, width` [wrong-node-kind]\n"
            "    8 |       - f(x, width: 8)\n"
            "      |         ^~~~~~~~~~\n"
            "note: `: ` ends a key; named arguments are written `name=value`, "
            "and a slice has no "
            "space after `:`\n");
}

TEST(StatementErrors, Parts) {
  EXPECT_EQ(pipelineErrors(withBody("      - a: 1\n        b: 2\n"
                                    "      - x[i]: 3\n"
                                    "      - count: n = 3\n"
                                    "      - a: x, y\n"
                                    "      -\n"
                                    "      - [a]\n"
                                    "      - trace:\n")),
            "t.yaml:9:9: error: unknown key `b` in the statement `a` [unknown-key]\n"
            "    9 |         b: 2\n"
            "      |         ^\n"
            "note: each statement begins with `- `\n"
            "t.yaml:10:9: error: the left side of a statement must be a name such as "
            "`draft` or "
            "`kv.target.keep`, found `x[i]` [wrong-node-kind]\n"
            "   10 |       - x[i]: 3\n"
            "      |         ^~~~\n"
            "note: a sequence is assigned as a whole: `- x: map(k in 0..len(x), 3 if k == i else x[k])`\n"
            "t.yaml:11:18: error: expected `+=` and the amount to count, found `=` "
            "[expr-syntax]\n"
            "   11 |       - count: n = 3\n"
            "      |                  ^\n"
            "t.yaml:12:13: error: expected an operator or the end of the expression, "
            "found `,` "
            "[expr-syntax]\n"
            "   12 |       - a: x, y\n"
            "      |             ^\n"
            "t.yaml:13:7: error: a statement must be `name: expression` or an "
            "expression, found "
            "nothing [wrong-node-kind]\n"
            "   13 |       -\n"
            "      |       ^\n"
            "t.yaml:14:9: error: a statement must be `name: expression` or an "
            "expression, found a "
            "list [wrong-node-kind]\n"
            "   14 |       - [a]\n"
            "      |         ^\n"
            "t.yaml:15:9: error: `trace` must be an expression, found nothing "
            "[wrong-node-kind]\n"
            "   15 |       - trace:\n"
            "      |         ^~~~~\n");
}

TEST(Errors, StatementsOfAGraphAssign) {
  const auto said = [](const std::string &statement) {
    SourceFiles files;
    Diagnostics diags(files);
    const uint32_t file = files.add(
        "m.yaml", "model: m\nconfig: {a: a}\nweights: {w: {shape: '[a]', from: w}}\ngraph:\n  - " + statement + "\n");
    EXPECT_FALSE(ast::parseModel(diags, file)) << statement;
    const std::string messages = diags.render();
    return messages.substr(0, messages.find('\n'));
  };
  EXPECT_EQ(said("h/ rms_norm(x, w, eps)"),
            "m.yaml:5:5: error: a statement of a graph must be `name: expression`, found "
            "`h/ rms_norm(x, w, eps)` [wrong-node-kind]");
  EXPECT_EQ(said("matmul(x, w)"),
            "m.yaml:5:5: error: a statement of a graph must be `name: expression`, found `matmul(x, w)` "
            "[wrong-node-kind]");
  for (const char *name : {"a.b", "a b", "3x", "if", "kv.m.keep"})
    EXPECT_NE(said(std::string(name) + ": x, 1 + 2").find("m.yaml:5:5: error: "), std::string::npos) << name;
  // Nothing may come after an expression.
  EXPECT_EQ(said("h: rms_norm(x, w, eps), x, 1 + 2"),
            "m.yaml:5:27: error: expected an operator or the end of the expression, found `,` [expr-syntax]");
  EXPECT_EQ(said("h: x y"),
            "m.yaml:5:10: error: expected an operator or the end of the expression, found `y` [expr-syntax]");
}

/// The first line for a field of a request whose type and value are `text`, from column 6 of line 5 on.
static std::string fieldError(const std::string &text) {
  const std::string all = pipelineErrors("pipeline: p\nstates: {}\nstages: {}\nrequest:\n  a: " + text + "\n");
  return all.substr(0, all.find('\n'));
}

TEST(FieldErrors, Inputs) {
  EXPECT_EQ(fieldError("i32 = input(1) + 1"),
            "t.yaml:5:21: error: expected the end of the declaration, found `+` [expr-syntax]");
  EXPECT_EQ(fieldError("i32 = input + 1"), "t.yaml:5:18: error: expected `(` and a default, or the end of the "
                                           "declaration, found `+` [expr-syntax]");
  EXPECT_EQ(fieldError("i32 = input(1, 2)"), "t.yaml:5:19: error: expected `)`, found `,` [expr-syntax]");
  EXPECT_EQ(fieldError("i32 = input()"), "t.yaml:5:18: error: expected an expression, found `)` [expr-syntax]");
  EXPECT_EQ(fieldError("i32 in 16 = input"),
            "t.yaml:5:16: error: expected `..` and the end of the range, found `=` [expr-syntax]");
  EXPECT_EQ(fieldError("i32 in 0..16 1"),
            "t.yaml:5:19: error: expected `=` or the end of the declaration, found `1` [expr-syntax]");
  EXPECT_EQ(fieldError("i32 16"), "t.yaml:5:10: error: expected `[`, `in`, `=` or the end of the declaration, found "
                                  "`16` [expr-syntax]");
}

} // namespace
} // namespace megalith
