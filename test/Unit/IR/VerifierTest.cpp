#include "megalith/IR/Text.h"
#include <gtest/gtest.h>

using namespace megalith;
using namespace megalith::ir;

namespace {

/// Verifies a parsed module; "" when it is valid, else the message.
std::string problem(const std::string &text) {
  SourceFiles files;
  Diagnostics diags(files);
  uint32_t file = files.add("test.ir", text);
  std::optional<Module> module = parse(diags, file);
  EXPECT_TRUE(module) << diags.render() << text;
  if (!module || verify(*module, diags))
    return "";
  // `test.ir:3:5: error: the IR is not valid: MESSAGE [ir-invalid]`, and the line.
  std::string message = diags.render();
  llvm::StringRef s = message;
  EXPECT_TRUE(s.consume_front("test.ir:")) << message;
  s = s.split(" error: the IR is not valid: ").second;
  EXPECT_TRUE(s.contains(" [ir-invalid]\n")) << message;
  return s.split(" [ir-invalid]").first.str();
}

/// The attributes that a model must have.
#define MODEL                                                                                                          \
  R"({graph = "g", head_dim = 16, hidden = 8, kv_heads = 1, kv_layers = 1, layers = 1, )"                              \
  R"(numerics = "transformers", vocab = 32})"

/// Statements of a stage, with a few values to work on.
std::string inStage(const std::string &code) {
  return problem(R"(module @m {after = "lower"} {
  field @f {type = "f32"}
  field @s {type = "token", capacity = 4}
  input @few {type = "token", capacity = 1024}
  input @many {type = "token", capacity = 65536, optional, items = [3]}
  input @tenant {type = "i32", least = -1, most = 3, optional, init = 2}
  state @A {slot, next = ["B"]}
  state @B {terminal}
  pool @t {pages = 4, page_tokens = 16, rows_beyond = 0}
  metric @n
  gauge @g {type = "i32"}
  policy @p {
    policy.state @e {type = "f32"}
    policy.observe {
      ^(%x : i32):
      %r = ratio(%x, %x) : f32
      policy.set @p(%r) {state = "e"}
    }
    policy.output @o {
      %e = policy.get @p {state = "e"} : f32
      yield(%e)
    }
  }
  stage @st {on = "A"} {
    %i = budget : i32
    %b = finished : bool
    %f = field.get @f : f32
    %s = field.get @s : token<4>
    %t = tokens : token<>
    )" + code + R"(
    goto {to = ["B"]}
  }
})");
}

/// Operations of a segment, with a few values to work on.
std::string inSegment(const std::string &code) {
  return problem(R"(module @m {after = "form-ticks"} {
  model @t )" MODEL R"( {
    weight @e {shape = [32, 8], from = "e"}
    weight @w {shape = [12, 8], from = "w"}
    weight @l {shape = [8, 8], from = "l.{i}", layers = 3}
    weight @v {shape = [4], from = "v"}
    weight @c {shape = [8, 12], from = "w", stored = [12, 8], view = [0, 8, 0, 1, 8]}
    segment @s {
      %x = embed @e : [R, 8] bf16
      %y = embed @e : [R, 8] bf16
      %v = weight.get @v : [4] bf16
      %k = const {value = 0.5} : f32
      )" + code + R"(
      yield(%x)
    }
  }
})");
}

struct Case {
  const char *code, *message;
};

} // namespace

TEST(Verifier, AcceptsControlCode) {
  EXPECT_EQ(inStage(R"(
    %k = const {value = 2} : i32
    %a = add(%i, %k) : i32
    %c = cast(%a) : f32
    %d = mul(%c, %f) : f32
    field.set @f(%d)
    %q = select(%b, %i, %a) : i32
    %h = seq.slice(%t, %i, %a) : token<2>
    field.set @s(%h)
    %two = seq.concat(%s, %h) : token<6>
    %ng = ngram_lookup(%t, %a) {ngram = 3} : token<4>
    %few = input.get @few : token<1024>
    %many = input.get @many : token<>
    %tenant = input.get @tenant : i32
    %n = append(%two) : i32
    kv.keep @t(%n)
    count.add @n(%n)
    trace @g(%n)
    observe @p(%n)
    %o = policy.read @p {output = "o"} : f32
    %best = call @t(%two) {site = 0, kv = "draft"} : token<6> {
      reduce @argmax
    }
    %parents = seq.make(%i, %k) : i32<2>
    %tree = call @t(%h, %parents) {site = 1, kv = "draft", with = ["parents"]} : token<2> {
      reduce @argmax
    }
    kv.keep @t(%n, %parents)
    %canvas = call @t(%h, %i) {site = 2, kv = "draft", with = ["visible"]} : token<2> {
      reduce @argmax
    })"),
            "");
}

TEST(Verifier, RejectsControlCode) {
  const Case cases[] = {
      {"%a = add(%i, %f) : i32", "operand 1 must be `i32`, found `f32`"},
      {"%a = add(%i, %i) : f32", "operand 0 must be `f32`, found `i32`"},
      {"%a = add(%i) : i32", "expected 2 operands, found 1"},
      {"add(%i, %i)", "expected 1 result, found 0"},
      {"%a = add(%b, %b) : bool", "arithmetic is on numbers, found `bool`"},
      {"%a = mod(%f, %f) : f32", "operand 0 must be `i32`, found `f32`"},
      {"%a = lt(%s, %s) : bool", "only scalars and sequences can be compared"},
      {"%a = lt(%i, %i) : i32", "the result must be `bool`, found `i32`"},
      {"%a = and(%b, %i) : bool", "operand 1 must be `bool`, found `i32`"},
      {"%a = select(%b, %i, %f) : i32", "operand 2 must be `i32`, found `f32`"},
      {"%a = cast(%f) : token", "no cast from `f32` to `token`"},
      {"%a = ratio(%b, %i) : f32", "operand 0 must be `i32`, found `bool`"},
      {"%a = const {value = 1} : f32", "a constant `f32` needs a number with a point as `value`"},
      {"%a = const {value = 2} : bool", "a constant `bool` is 0 or 1"},
      {"%a = field.get @f : i32", "the result must be `f32`, found `i32`"},
      {"%a = field.get @x : i32", "`@x` is no declared field"},
      {"%a = input.get @few : token<>", "the result must be `token<1024>`, found `token<>`"},
      {"%a = input.get @many : token<65536>", "the result must be `token<>`, found `token<65536>`"},
      {"%a = input.get @s : token<4>", "`@s` is no declared input"},
      {"%a = field.get @tenant : i32", "`@tenant` is no declared field"},
      {"field.set @tenant(%i)", "`@tenant` is no declared field"},
      {"field.set @s(%t)", "operand 0 must be `token<4>`, found `token<>`"},
      {"%a = seq.len(%i) : i32", "operand 0 must be a sequence, found `i32`"},
      {"%a = seq.at(%s, %i) : i32", "the result must be `token`, found `i32`"},
      {"%a = seq.concat(%s, %s) : token<7>", "the result `token<7>` cannot hold `token<8>`"},
      {"%a = seq.make(%i, %i) : token<2>", "operand 0 must be `token`, found `i32`"},
      {"%a = ngram_lookup(%s, %i) : token<4>", "the attribute `ngram` of `ngram_lookup` is missing"},
      {"%a = prefix_while(%i) : i32 { yield(%b) }", "the region must have one argument of type `i32`"},
      {"%a = prefix_while(%i) : i32 { ^(%j : i32): yield(%j) }", "operand 0 must be `bool`, found `i32`"},
      {"%a = prefix_while(%i) : i32 { ^(%j : i32): }", "`prefix_while` must end in `yield`"},
      {"%a = kv.len @u : i32", "`@u` is no declared pool"},
      {"kv.keep @t(%f)", "operand 0 must be `i32`, found `f32`"},
      {"kv.keep @t(%i, %i)", "operand 1 must be a sequence of numbers, found `i32`"},
      {"kv.keep @t(%i, %s, %s)", "expected 1 or 2 operands, found 3"},
      {"call @t(%s, %s) {site = 0, kv = \"draft\"}", "expected 1 operands: tokens and what `with` names, found 2"},
      {"call @t(%s) {site = 0, kv = \"draft\", with = [\"parents\"]}",
       "expected 2 operands: tokens and what `with` names, found 1"},
      {"call @t(%s, %i) {site = 0, kv = \"draft\", with = [\"parents\"]}",
       "operand 1 must be a sequence of numbers, found `i32`"},
      {"call @t(%s, %s, %i) {site = 0, kv = \"draft\", with = [\"parents\", \"visible\"]}",
       "`with` has one of `parents` and `visible`"},
      {"call @t(%s, %i) {site = 0, chunk = 2, kv = \"draft\", with = [\"visible\"]}",
       "a call with `visible` is indivisible, and has no `chunk`"},
      {"count.add @x(%i)", "`@x` is no declared metric"},
      {"trace @g(%f)", "operand 0 must be a scalar of the gauge's type `i32`, found `f32`"},
      {"observe @p(%f)", "operand 0 must be `i32`, found `f32`"},
      {"observe @p", "expected 1 operands, found 0"},
      {"%a = policy.read @p {output = \"x\"} : f32", "`@p` has no policy.output `x`"},
      {"%a = policy.read @p {output = \"o\"} : i32", "the result must be `f32`, found `i32`"},
      {"policy.set @p(%i) {state = \"e\"}", "operand 0 must be `f32`, found `i32`"},
      {"call @t(%s) {site = 0, kv = \"keep\"}", "`kv` must be one of commit, draft"},
      {"call @t(%s) {site = 0, kv = \"draft\"} { reduce @argmax }", "expected one result per reducer (1), found 0"},
      {"call @t(%s) {site = 0, kv = \"draft\"} { reduce @argmax }, { }", "expected one region of reducers, found 2"},
      {"call @t(%s) {site = 0, kv = \"draft\"} { kv.keep @t(%i) }", "only `reduce` stands in a `call`"},
      {"reduce @argmax", "`reduce` stands in a call"},
      {"if(%b) { call @t(%s) {site = 0, kv = \"draft\"} }",
       "a call must stand directly in a stage, or in a `for` with `rounds`"},
      {"%x = call @t(%s) {site = 0, kv = \"draft\"} : token<4> { reduce @best }", "`@best` is no reducer of logits"},
      {"%x = call @t(%s) {site = 0, kv = \"draft\"} : token<3> { reduce @argmax }",
       "every result must hold the 4 rows of the call"},
      {"%x = call @t(%s) {site = 0, kv = \"draft\"} : token<4> { reduce @entropy }",
       "result 0 must be a sequence of f32, found `token<4>`"},
      {"%x = call @t(%s) {site = 0, kv = \"draft\"} : token<4> { reduce @argmax(%i) }",
       "`with` names 0 operands, found 1"},
      {"%x = call @t(%s) {site = 0, kv = \"draft\"} : token<4> { reduce @sample(%i, %i) {with = [\"noise\", "
       "\"noise\"]} }",
       "`with` names `noise` twice"},
      {"%x = call @t(%s) {site = 0, kv = \"draft\"} : token<4> { reduce @argmax(%i) {with = [\"top_k\"]} }",
       "`argmax` takes no `top_k`"},
      {"%x = call @t(%s) {site = 0, kv = \"draft\"} : token<4> { reduce @sample(%i) {with = [\"temperature\"]} }",
       "operand 0 must be `f32`, found `i32`"},
      {"%x = call @t(%s) {site = 0, kv = \"draft\"} : token<4> { reduce @sample {n = 2} }",
       "result 0 must be a table with rows of 2 tokens, found `token<4>`"},
      {"%x = call @t(%s) {site = 0, kv = \"draft\"} : token<4, 2> { reduce @top_k {n = 2, part = \"prob\"} }",
       "result 0 must be a table with rows of 2 f32, found `token<4, 2>`"},
      {"%x = call @t(%s) {site = 0, kv = \"draft\"} : f32<4> { reduce @prob }", "`prob` needs `tokens`"},
      {"%x = call @t(%s) {site = 0, kv = \"draft\"} : f32<4> { reduce @prob(%i) {with = [\"tokens\"]} }",
       "operand 0 must be a sequence of tokens"},
      {"%x = call @t(%s) {site = 0, kv = \"draft\"} : token<4> { reduce @argmax {n = 2} }",
       "`argmax` has one result for a row, and no `n`"},
      {"%x = call @t(%s) {site = 0, kv = \"draft\"} : token<4> { reduce @sample {part = \"token\"} }",
       "`sample` has one part"},
      {"%x = call @t(%s) {site = 0, kv = \"draft\"} : token<4> { reduce @sample {kept = \"s\"} }",
       "the attribute and the operand `kept` stand beside each other"},
      {"%x = call @t(%s) {site = 0, kv = \"draft\"} : token<4> { reduce @sample(%s) {with = [\"minus\"]} }",
       "the attribute and the operand `minus` stand beside each other"},
      {"%x = call @t(%s) {site = 0, kv = \"draft\"} : token<4> { reduce @sample(%i) {with = [\"kept\"], kept = \"s\"} "
       "}",
       "operand 0 must be a sequence of tokens"},
      {"%x = call @t(%s) {site = 0, kv = \"draft\"} : token<4> { reduce @entropy(%s) {with = [\"minus\"], minus = "
       "\"s\"} }",
       "result 0 must be a sequence of f32, found `token<4>`"},
      {"%x = call @t(%s) {site = 0, kv = \"draft\"} : token<4> { reduce @argmax(%i) {with = [\"at\"]} }",
       "`argmax` takes no `at`"},
      {"%x = call @t(%s) {site = 0, kv = \"draft\"} : token<4> { reduce @argmax {keep = \"none\"} }",
       "`@none` is no declared field"},
      {"%x = call @t(%s) {site = 0, kv = \"draft\"} : token<4> { reduce @argmax {keep = \"s\"} }",
       "`@s` keeps no logits"},
      {"if(%i) {}", "operand 0 must be `bool`, found `i32`"},
      {"if(%b) { goto {to = [\"B\"]} }", "`goto` cannot end `if`"},
      {"goto {to = [\"B\"]}", "`goto` must be the last operation of its region"},
      {"%a = round(%f) : bf16", "`round` is not legal before `form-ticks`"},
      {"issue @t(%s) {site = 0, kv = \"draft\"}", "`issue` must be the last operation of its region"},
      {"state @C", "`state` must stand in `module`"},
  };
  for (const Case &c : cases) {
    std::string found = inStage(c.code);
    EXPECT_EQ(found.substr(0, found.find(", in `")), c.message) << c.code;
  }
}

TEST(Verifier, RejectsValues) {
  // A region of one number, that yields `%what` of these.
  const auto over = [](const std::string &op, const std::string &what, const std::string &type) {
    return "%two = const {value = 2} : i32 %m = seq.make(%s, %s) : token<2, 4> %a = " + op + " : " + type +
           " { ^(%j : i32): yield(" + what + ") }";
  };
  const std::pair<std::string, const char *> cases[] = {
      {over("seq.map(%i)", "%f", "f32<4>"), ""},
      {over("seq.map(%i)", "%s", "token<4, 4>"), ""},
      {over("seq.map(%i)", "%s", "token<4, 3>"), "the result `token<4, 3>` cannot hold `token<4>`"},
      {over("seq.map(%i)", "%f", "i32<4>"), "the result `i32<4>` cannot hold `f32`"},
      {over("seq.map(%i)", "%t", "token<4, 4>"), "the result must have a capacity"},
      {over("seq.map(%i)", "%m", "token<4, 4>"), "the result `token<4, 4>` cannot hold `token<2, 4>`"},
      {over("seq.map(%i)", "%i, %i", "i32<4>"), "`seq.map` must yield one value"},
      {over("seq.map", "%i", "i32<4>"), "expected 1 or 2 operands, found 0"},
      {over("seq.map(%f)", "%i", "i32<4>"), "operand 0 must be `i32`, found `f32`"},
      {over("seq.scan(%i)", "%f", "f32<4>"), ""},
      {over("seq.scan(%i)", "%b", "bool<4>"), "`seq.scan` goes by an i32 or f32, found `bool`"},
      {over("seq.scan(%i)", "%f", "i32<4>"), "the result must be `f32<4>`, found `i32<4>`"},
      {over("seq.top(%i, %two) {range = 8}", "%f", "i32<2>"), ""},
      {over("seq.top(%i) {range = 8}", "%f", "i32<2>"), "expected 2 or 3 operands, found 1"},
      {over("seq.top(%i, %two)", "%f", "i32<2>"), "the attribute `range` of `seq.top` is missing"},
      {over("seq.top(%i, %two) {range = 8}", "%f", "f32<2>"), "the result must be `i32<2>`, found `f32<2>`"},
      {over("seq.sort(%i)", "%f, %j", "i32<8>"), ""},
      {over("seq.sort(%i)", "%b", "i32<8>"), "a key is an i32 or f32, found `bool`"},
      {over("seq.sort(%i)", "%j, %j, %j, %j, %j, %j, %j, %j, %j", "i32<8>"), "`seq.sort` must yield 1 to 8 keys"},
      {over("fold(%i) {by = \"all\"}", "%b", "bool"), ""},
      {over("fold(%i) {by = \"find\"}", "%b", "bool"), "the result must be `i32`, found `bool`"},
      {over("fold(%i) {by = \"argmin\"}", "%f", "f32"), "the result must be `i32`, found `f32`"},
      {over("fold(%i) {by = \"sum\"}", "%b", "i32"), "`fold` goes by an i32 or f32, found `bool`"},
      {over("fold(%i) {by = \"product\"}", "%i", "i32"),
       "`by` must be one of sum, min, max, argmin, argmax, all, any, find"},
      {"%a = choose(%b) : i32 { yield(%i) }, { yield(%i) }", ""},
      {"%a = choose(%b) : token<8> { yield(%s) }, { %e = seq.make : token<8> yield(%e) }", ""},
      {"%a = choose(%i) : i32 { yield(%i) }, { yield(%i) }", "operand 0 must be `bool`, found `i32`"},
      {"%a = choose(%b) : i32 { yield(%i) }", "expected 2 regions, found 1"},
      {"%a = choose(%b) : i32 { yield(%i) }, { yield(%f) }", "the result `i32` cannot hold `f32`"},
      {"%a = choose(%b) : token<3> { yield(%s) }, { yield(%s) }", "the result `token<3>` cannot hold `token<4>`"},
      {"%a = choose(%b) : i32 { ^(%j : i32): yield(%j) }, { yield(%i) }", "a region of `choose` has no arguments"},
      {"%a = choose(%b) : i32 { field.set @f(%f) yield(%i) }, { yield(%i) }", "`field.set` cannot stand in `choose`"},
      {"for(%i, %i) { ^(%j : i32): count.add @n(%j) }", ""},
      {"for(%i, %i) { count.add @n(%i) }", "the region must have one argument of type `i32`"},
      {"for(%i, %f) { ^(%j : i32): }", "operand 1 must be `i32`, found `f32`"},
      {"for(%i, %i) {rounds = 3} { ^(%j : i32): %x = call @t(%s) {site = 0, kv = \"draft\"} : token<4> { reduce "
       "@argmax } }",
       ""},
      {"for(%i, %i) {rounds = 3} { ^(%j : i32): count.add @n(%j) }", "`rounds` are those of a loop with calls"},
      {"if(%b) { for(%i, %i) {rounds = 3} { ^(%j : i32): call @t(%s) {site = 0, kv = \"draft\"} } }",
       "a loop with calls stands directly in a stage"},
      {"for(%i, %i) { ^(%j : i32): %x = call @t(%s) {site = 0, kv = \"draft\"} : token<4> { reduce @argmax } }",
       "a call must stand directly in a stage, or in a `for` with `rounds`"},
      {"for(%i, %i) { ^(%j : i32): goto {to = [\"B\"]} }", "`goto` cannot end `for`"},
      {"while {bound = 3} { yield(%b) }, { count.add @n(%i) }", ""},
      {"while {bound = 0} { yield(%b) }, { }", "`bound` must be a whole number from 1 to 2147483647"},
      {"while { yield(%b) }, { }", "the attribute `bound` of `while` is missing"},
      {"while {bound = 3} { yield(%i) }, { }", "operand 0 must be `bool`, found `i32`"},
      {"while {bound = 3} { count.add @n(%i) yield(%b) }, { }", "`count.add` cannot stand in `while`"},
      {"%a = seq.const {items = [1, 2]} : i32<3>", "the result must be a sequence of as many elements"},
      {"%a = seq.const {items = [1, -2]} : token<2>", "-2 is no `token`"},
      {"%a = seq.make(%s, %t) : token<2, 4>", "operand 1 must be `token<4>`, found `token<>`"},
      {"%m = seq.make(%s, %s) : token<2, 4> %a = seq.at(%m, %i) : token",
       "the result must be `token<4>`, found `token`"},
      {"%m = seq.make(%s, %s) : token<2, 4> %a = eq(%m, %m) : bool", "only scalars and sequences can be compared"},
      {"%m = seq.make(%s, %s) : token<2, 4> %a = seq.concat(%m, %s) : token<3, 4>",
       "operand 1 must be `token<2, 4>`, found `token<4>`"},
      {"%a = exp(%i) : f32", "operand 0 must be `f32`, found `i32`"},
      {"%a = abs(%b) : bool", "arithmetic is on numbers, found `bool`"},
      {"%a = follow(%s, %s, %s, %i) : i32<4>", "operand 1 must be `i32<4>`, found `token<4>`"},
      {"%l = seq.at(%s, %i) : token %a, %p = tree(%l, %s) : token<5>, i32<5>",
       "operand 1 must be a table of tokens, found `token<4>`"},
      {"%m = seq.make(%s, %s) : token<2, 4> %l = seq.at(%s, %i) : token %a, %p = tree(%l, %m) : token<8>, i32<8>",
       "the results must be `token<9>` and `i32<9>`"},
      {"%a = ngram_lookup(%t, %i) {ngram = 3, with = [\"from\"]} : token<4>", "expected 3 operands, found 2"},
      {"%a = ngram_lookup(%t, %i, %i) {ngram = 3, with = [\"from\"]} : token<4>",
       "operand 2 must be a sequence of tokens, found `i32`"},
      {"%a = ngram_lookup(%t, %i, %s, %s) {ngram = 3, with = [\"from\", \"from\"]} : token<4>",
       "`with` names `from` twice"},
      {"%a = append(%s, %i) : i32", "operand 1 must be a sequence of tokens, found `i32`"},
  };
  for (const auto &[code, message] : cases) {
    const std::string found = inStage(code);
    EXPECT_EQ(found.substr(0, found.find(", in `")), message) << code;
  }
}

TEST(Verifier, AcceptsTensorCode) {
  EXPECT_EQ(inSegment(R"(
    %a = mul(%x, %v) : [R, 8] f32
    %s = reduce_sum(%a) {groups = 2, tree = "lanes32"} : [R, 2] f32
    %b = mul(%a, %s) : [R, 8] f32
    %c = mul(%s, %k) : [R, 2] f32
    %d = add(%v, %k) : [4] f32
    %h = round(%b) : [R, 8] bf16
    %p = matmul @w(%h) {tree = "split8"} : [R, 12] f32
    %cos = rope_cos {dim = 4} : [R, 8] bf16
    %rot = rotate_half(%h) {dim = 4} : [R, 8] bf16
    %kv = kv.append(%h, %h) {kv_heads = 2, dim = 4} : kv
    %o = attention(%h, %kv) {heads = 2, kv_heads = 2, dim = 4, scale = 0.5, tree = "rounds8"} : [R, 8] f32
    %z = repeat(%h) {count = 3} : [R, 8] bf16 {
      ^(%i : [R, 8] bf16):
      %m = matmul @l(%i) {tree = "split8"} : [R, 8] f32
      %r = round(%m) : [R, 8] bf16
      yield(%r)
    }
    %best = argmax(%p) : [R, 1] token
    %st = stream : [R, 12] f32 {
      %q = matmul @w(%z) {tree = "split8"} : [R, 12] f32
      yield(%q)
    })"),
            "");
}

TEST(Verifier, RejectsTensorCode) {
  const Case cases[] = {
      {"%a = add(%x, %y) : [R, 8] bf16", "the result must be `[R, 8] f32`, found `[R, 8] bf16`"},
      {"%a = matmul @w(%x) {tree = \"split8\"} : [R, 12] f32 %b = add(%a, %x) : [R, 12] f32",
       "operand 1 `[R, 8] bf16` does not divide 12 columns"},
      {"%a = matmul @q(%x) {tree = \"split8\"} : [R, 12] f32", "`@q` is no weight of the model"},
      {"%a = embed @c : [R, 12] bf16", "the weight must be a tensor as it is"},
      {"%a = embed @e {by = \"row\"} : [R, 8] bf16", "`by` must be one of token, position"},
      {"%a = matmul @w(%x) : [R, 12] f32", "the attribute `tree` of `matmul` is missing"},
      {"%a = matmul @w(%x) {tree = \"split8\"} : [R, 8] f32", "the result must be `[R, 12] f32`, found `[R, 8] f32`"},
      {"%a = matmul @v(%x) {tree = \"split8\"} : [R, 4] f32", "the weight `[4]` does not take rows of 8"},
      {"%a = matmul @l(%x) {tree = \"split8\"} : [R, 8] f32",
       "`@l` has one tensor per layer (3) and must be used in a `repeat` of that count"},
      {"%a = reduce_sum(%x) {groups = 3, tree = \"lanes32\"} : [R, 3] f32", "`groups` = 3 must divide 8"},
      {"%a = rotate_half(%x) {dim = 16} : [R, 8] bf16", "`dim` = 16 must divide 8"},
      {"%a = round(%k) : bf16", "operand 0 must be rows such as `[R, 64] f32`, found `f32`"},
      {"%a = kv.append(%x, %y) {kv_heads = 2, dim = 8} : kv", "operand 0 must be `[R, 16] bf16`, found `[R, 8] bf16`"},
      {"%a = repeat(%x) {count = 3} : [R, 8] bf16 { ^(%i : [R, 8] f32): yield(%i) }",
       "region argument 0 must be `[R, 8] bf16`"},
      {"%a = stream : [R, 8] bf16 { yield(%k) }", "operand 0 must be `[R, 8] bf16`, found `f32`"},
      {"%a = map : [R, 8] bf16 { yield }", "expected 1 yielded values, found 0"},
      {"%a = budget : i32", "`budget` is not legal in a segment"},
      {"%a = not(%k) : f32", "`not` is not legal in a segment"},
  };
  for (const Case &c : cases) {
    std::string found = inSegment(c.code);
    EXPECT_EQ(found.substr(0, found.find(", in `")), c.message) << c.code;
  }
}

TEST(Verifier, RejectsDeclarations) {
  const Case cases[] = {
      {"state @A state @A", "`@A` is declared twice"},
      {"state @A {next = [\"B\"]}", "`@B` is no declared state"},
      {"field @f {type = \"int\"}", "`type` must be one of i32, f32, bool, token"},
      {"input @i {type = \"token\", capacity = 65537}", "`capacity` must be a whole number from 1 to 65536"},
      {"input @i {type = \"f32\", least = 0}", "only an `i32` has `least` and `most`"},
      {"input @i {type = \"i32\", least = 2, most = 1}", "`least` is above `most`"},
      {"input @i {type = \"i32\", init = 1}", "only what is `optional` has a default"},
      {"input @i {type = \"token\", capacity = 4, items = []}", "only what is `optional` has a default"},
      {"input @i {type = \"i32\", most = 3, optional, init = 4}", "the default lies outside `least` and `most`"},
      {"input @i {type = \"i32\", least = 3, optional}", "the default lies outside `least` and `most`"},
      {"input @i {type = \"f32\", optional, init = 1}", "`init` must be a value of type `f32`"},
      {"input @i {type = \"f32\", optional, init = inf}", "`init` must be finite"},
      {"input @i {type = \"i32\", optional, items = [1]}", "the default of a scalar is `init`"},
      {"input @i {type = \"token\", capacity = 1, optional, items = [1, 2]}",
       "the default of a sequence is `items`, no more than its `capacity`"},
      {"input @i {type = \"token\", capacity = 1, optional, init = 1}",
       "the default of a sequence is `items`, no more than its `capacity`"},
      {"input @i {type = \"token\", capacity = 1, optional, items = [-1]}",
       "the default must have values of type `token`"},
      {"input @i {type = \"f32\", capacity = 1, optional, items = [1]}",
       "the default of a sequence is `numbers`, no more than its `capacity`"},
      {"input @i {type = \"token\", capacity = 1, optional, numbers = [1.0]}",
       "the default of a sequence is `items`, no more than its `capacity`"},
      {"input @i {type = \"f32\", capacity = 1, optional, numbers = [1.0e39]}",
       "the default must have values of type `f32`"},
      {"state @A stage @s {on = \"A\"} { input @i {type = \"i32\"} goto {to = [\"A\"]} }",
       "`input` must stand in `module`"},
      {"pool @p {page_tokens = 16}", "the attribute `pages` of `pool` is missing"},
      {"pool @p {pages = 1, page_tokens = 16}", "the attribute `rows_beyond` of `pool` is missing"},
      {"pool @p {pages = 1, page_tokens = 16, rows_beyond = -1}",
       "`rows_beyond` must be a whole number from 0 to 16777216"},
      {"pool @p {pages = 1, page_tokens = 16, rows_beyond = 0, reserve = 4}",
       "`reserve` is a number of tokens, of a pool with `on_full = \"wait\"`"},
      {"pool @p {pages = 1, page_tokens = 16, on_full = \"spill\"}", "`on_full` must be one of fail, wait"},
      {"model @m " MODEL " { weight @w {shape = []} }", "`shape` must be one or two positive sizes"},
      {"model @m " MODEL " { weight @w {shape = [2]} }", "the attribute `from` of `weight` is missing"},
      {"model @m " MODEL " { weight @w {shape = [2], from = \"w\", stored = []} }",
       "`stored` must be one to four positive sizes, of at most 2^44 elements"},
      {"model @m " MODEL " { weight @w {shape = [2], from = \"w\", stored = [2, 0]} }",
       "`stored` must be one to four positive sizes, of at most 2^44 elements"},
      {"model @m " MODEL " { weight @w {shape = [2], from = \"w\", stored = [1]} }",
       "the weight reaches beyond its tensor"},
      {"model @m " MODEL " { weight @w {shape = [2], from = \"w\", view = [0, 1, 0, 0]} }",
       "`view` must be offset, rows of a block, and distances of blocks, rows and columns"},
      {"model @m " MODEL " { weight @w {shape = [2], from = \"w\", view = [0, 0, 1, 1, 1]} }",
       "`view` must be offset, rows of a block, and distances of blocks, rows and columns"},
      {"model @m " MODEL " { weight @w {shape = [2, 3], from = \"w\", view = [-1, 2, 0, 3, 1]} }",
       "`view` must be offset, rows of a block, and distances of blocks, rows and columns"},
      {"model @m " MODEL " { weight @w {shape = [2, 3], from = \"w\", view = [1, 2, 0, 3, 1]} }",
       "the weight reaches beyond its tensor"},
      {"model @m " MODEL " { weight @w {shape = [5], from = \"w\", stored = [9], view = [0, 4, 5, 3, 1]} }",
       "the weight reaches beyond its tensor"}, // the last row of the first block: the last row of all is at 5
      {"model @m " MODEL " { weight @w {shape = [2], from = \"w\"} weight @v {shape = [1], from = \"w\"} }",
       "weight `w` is of the same tensor, and of another shape or number of layers"},
      {"model @m " MODEL " { weight @w {shape = [2], from = \"w\"} weight @v {shape = [2], alias = \"w\", stored = "
       "[2]} }",
       "`stored` and `view` stand at the weight that has the storage"},
      {"model @m " MODEL " { weight @w {shape = [2], from = \"w\"} weight @v {shape = [3], alias = \"w\"} }",
       "`alias` must name a weight of the same shape"},
      {"state @A stage @s {on = \"A\"} { }", "`stage` must end in `goto`"},
      {"state @A stage @s {on = \"A\"} { goto {to = []} }", "expected one more state than conditions, found 0 and 0"},
      {"state @A stage @s {on = \"B\"} { goto {to = [\"A\"]} }", "`@B` is no declared state"},
      {"policy @p policy @q { policy.observe { observe @p } }", "expected 1 region, found 0"},
      {"policy @p { policy.output @a { %x = policy.read @p {output = \"b\"} : i32 yield(%x) } "
       "policy.output @b { %x = policy.read @p {output = \"a\"} : i32 yield(%x) } }",
       "the output `a` uses itself"},
      {"policy @p { policy.observe { observe @p } }", "observing uses itself"},
      {"tick { }", "`tick` is not legal before `form-ticks`"},
      {"model @m " MODEL " { segment @a { %k = const {value = 1.0} : f32 yield(%k) } segment @b { yield } }",
       "the arguments must be what the segment before it yields"},
  };
  for (const Case &c : cases) {
    std::string found = problem("module @m {after = \"lower\"} {\n" + std::string(c.code) + "\n}");
    EXPECT_EQ(found.substr(0, found.find(", in `")), c.message) << c.code;
  }
  EXPECT_EQ(problem("module @m {fault = \"F\"} {\n}"), "`@F` is no declared state, in `module @m {fault = \"F\"}`");
}

TEST(Verifier, TickLevel) {
  auto tick = [](const std::string &body) {
    std::string found = problem("module @m {after = \"form-ticks\"} {\nstate @A {slot}\n"
                                "model @t " MODEL " {}\ntick {" +
                                body + "}\n}");
    return found.substr(0, found.find(", in `"));
  };
  std::string part = "part @p {stage = \"s\", state = \"A\", kind = \"slot\"";
  std::string issue = "%t = tokens : token<> issue @t(%t) {site = 3, kv = \"commit\"}";
  EXPECT_EQ(tick(part + ", before_site = 3} {" + issue + "} pass @t"), "");
  EXPECT_EQ(tick(part + ", before_site = 3} {" + issue + "}"), "the tick has no `pass @t`");
  EXPECT_EQ(tick(part + "} {" + issue + "} pass @t"), "a part has the `before_site` of the `issue` that ends it");
  EXPECT_EQ(tick("pass @u"), "`@u` is no declared model");
  EXPECT_EQ(tick(part + "} { %x = policy.read @p {output = \"o\"} : i32 goto {to = [\"A\"]} }"),
            "`policy.read` is not legal after `form-ticks`");
  EXPECT_EQ(tick(part + "} { }"), "`part` must end in `goto`");
}

TEST(Verifier, AttributesHaveValuesOfTheirKinds) {
  const Case cases[] = {
      {"state @A {slot = 1}", "`slot` must be a flag"},
      {"state @A {next = 5}", "`next` must be a list of strings"},
      {"state @A {colour = 5}", "`colour` is no attribute of `state`"},
      {"pool @p {pages = \"4\", page_tokens = 16}", "`pages` must be a whole number from 1 to 1073741824"},
      {"pool @p {pages = 3000000000, page_tokens = 16}", "`pages` must be a whole number from 1 to 1073741824"},
      {"pool @p {pages = 2000000, page_tokens = 2000, rows_beyond = 0}", "a pool has 2^30 positions at most"},
      {"pool @p {pages = 4, page_tokens = 4, watermark = 0, rows_beyond = 0}",
       "`watermark` must be a whole number from 1 to 100"},
      {"param @x {type = \"i32\", value = 0.5}", "`value` must be a value of type `i32`"},
      {"param @x {type = \"i32\", value = 2147483648}", "`value` must be a value of type `i32`"},
      {"field @f {type = \"f32\", init = inf}", "`init` must be finite"},
      {"field @f {type = \"token\", capacity = 1025}", "`capacity` must be a whole number from 1 to 1024"},
      {"field @f {type = \"f32\", rows = 4}", "`rows` stand beside a `capacity`"},
      {"gauge @g {type = \"i64\"}", "`type` must be one of i32, f32, bool, token"},
      {"model @m " MODEL " { weight @w {shape = [3000000000], from = \"w\"} }",
       "a size of `shape` is 2147483647 at most"},
      {"model @m " MODEL " { weight @w {shape = [2], alias = \"w\"} }", "`alias` must name a weight of the same shape"},
  };
  for (const Case &c : cases) {
    std::string found = problem("module @m {after = \"lower\"} {\n" + std::string(c.code) + "\n}");
    EXPECT_EQ(found.substr(0, found.find(", in `")), c.message) << c.code;
  }
}

TEST(Verifier, EffectsStandWhereTheyTakeEffect) {
  const Case cases[] = {
      {"%a = prefix_while(%i) : i32 { ^(%j : i32): field.set @f(%f) yield(%b) }",
       "`field.set` cannot stand in `prefix_while`"},
      {"%a = count_if(%i) : i32 { ^(%j : i32): %n = append(%s) : i32 yield(%b) }",
       "`append` cannot stand in `count_if`"},
      {"%a = count_if(%i) : i32 { ^(%j : i32): if(%b) {} yield(%b) }", "`if` cannot stand in `count_if`"},
      {"%a = ngram_lookup(%t, %i) {ngram = 17} : token<4>", "`ngram` must be a whole number from 1 to 16"},
      {"%a = const {value = 2147483648} : i32", "2147483648 is no `i32`"},
      {"%a = const {value = -1} : token", "-1 is no `token`"},
      {"%a = const {value = 1} : i64", "a constant is an i32, f32, bool or token, found `i64`"},
      {"%a = add(%i, %i) : u32", "arithmetic is on numbers, found `u32`"},
      {"order { yield(%i) }", "`order` is of a state without slot"},
  };
  for (const Case &c : cases) {
    std::string found = inStage(c.code);
    EXPECT_EQ(found.substr(0, found.find(", in `")), c.message) << c.code;
  }
  const auto unseated = [](const std::string &code) {
    std::string found =
        problem("module @m {after = \"lower\"} {\nstate @A\npool @t {pages = 4, page_tokens = 4, rows_beyond = 0}\n"
                "gauge @g\nstage @s {on = \"A\"} { " +
                code + " goto {to = [\"A\"]} }\n}");
    return found.substr(0, found.find(", in `"));
  };
  EXPECT_EQ(unseated("%a = kv.len @t : i32"), "`kv.len` needs a state with `slot`");
  EXPECT_EQ(unseated("%a = budget : i32 kv.keep @t(%a)"), "`kv.keep` needs a state with `slot`");
  EXPECT_EQ(unseated("%a = budget : i32 trace @g(%a)"), "`trace` needs a state with `slot`");
  EXPECT_EQ(unseated("%a = kv.live @t : i32"), "");
  EXPECT_EQ(unseated("%a = seated : i32"), "");
  EXPECT_EQ(unseated("%a = seated : f32"), "the result must be `i32`, found `f32`");
  EXPECT_EQ(unseated("%a = host {of = \"now_ms\"} : i32"), "");
  EXPECT_EQ(unseated("%a = host {of = \"now\"} : i32"),
            "`of` must be one of tick, now_ms, arrived, arrived_ms, deadline_ms");
  EXPECT_EQ(unseated("order { %a = priority : i32 %b = neg(%a) : i32 yield(%b, %a) }"), "");
  EXPECT_EQ(unseated("%a = priority : i32 order { yield(%a) }"), "`order` stands in front of all else");
  EXPECT_EQ(unseated("%b = finished : bool if(%b) { order { %a = priority : i32 yield(%a) } }"),
            "`order` stands in front of all else");
  EXPECT_EQ(unseated("order { %a = seated : i32 yield(%a) }"),
            "a key of `order` is made of numbers that stay while the request waits");
  EXPECT_EQ(unseated("order { %a = host {of = \"tick\"} : i32 yield(%a) }"),
            "a key of `order` stays while the request waits");
  EXPECT_EQ(unseated("order { %a = finished : bool yield(%a) }"), "a key is an `i32` or an `f32`");
  EXPECT_EQ(unseated("order { %a = priority : i32 yield(%a, %a, %a, %a, %a) }"), "`order` yields 1 to 4 keys");
  EXPECT_EQ(unseated("order { yield }"), "`order` yields 1 to 4 keys");
}

TEST(Verifier, GroupsHoldWhatTheyCanCompute) {
  const Case cases[] = {
      {"%a = stream : [R, 8] bf16 { %r = round(%x) : [R, 8] bf16 yield(%r) }", "a `stream` has a product"},
      {"%a = map : [R, 12] f32 { %p = matmul @w(%x) {tree = \"split8\"} : [R, 12] f32 yield(%p) }",
       "`matmul` cannot stand in `map`"},
      {"%a, %b = stream : [R, 12] f32, [R, 12] f32 { %p = matmul @w(%x) {tree = \"split8\"} : [R, 12] f32 "
       "%q = matmul @w(%y) {tree = \"split8\"} : [R, 12] f32 yield(%p, %q) }",
       "the products of a `stream` have one operand"},
      {"%a = stream : [R, 12] f32 { %p = matmul @w(%x) {pair = \"dual\", partner = 3, tree = \"split8\"} : [R, 12] f32 "
       "yield(%p) }",
       "`partner` must be the number of another product of as many columns, whose partner this one is"},
      {"%a = stream : [R, 12] f32 { %p = matmul @w(%x) {dim = 5, pair = \"half\", tree = \"split8\"} : [R, 12] f32 "
       "yield(%p) }",
       "`dim` must be even and divide the columns"},
      {"%a = matmul @w(%x) {tree = \"pairs\"} : [R, 12] f32", "`tree` must be one of split8"},
      {"%k2 = kv.append(%x, %x) {kv_heads = 2, dim = 4} : kv %a = repeat(%k2) {count = 3} : kv { ^(%c : kv): yield(%c) "
       "}",
       "result 0 must be rows of numbers, found `kv`"},
  };
  for (const Case &c : cases) {
    std::string found = inSegment(c.code);
    EXPECT_EQ(found.substr(0, found.find(", in `")), c.message) << c.code;
  }
}

constexpr const char *plainTick = R"(
  tick {
    part @q {kind = "admit", stage = "q", state = "Q"} {
      goto {to = ["A"]}
    }
    part @"a.0" {before_site = 0, kind = "slot", stage = "a", state = "A"} @0:3:1 {
      %t = tokens : token<>
      issue @t(%t) {chunk = 4, kv = "commit", site = 0} {
        reduce @argmax
      }
    }
    pass @t
    part @"a.1" {after_site = 0, kind = "slot", stage = "a", state = "A"} {
      %r = results @t {index = 0, site = 0} : token<4>
      %n = append(%r) : i32
      goto {to = ["A"]}
    }
  })";

/// A module that can be run, after an edit; what verifyWhole says.
static std::string wholeProblem(const std::string &from, const std::string &to, const std::string &tick = plainTick) {
  std::string text = R"(module @m {after = "form-ticks", fault = "F"} @0:1:1 {
  file {index = 0, path = "p.yaml"}
  param @rows_per_pass {type = "i32", value = 16}
  param @slots {type = "i32", value = 8}
  state @Q {initial, next = ["A"]}
  state @A {next = ["A"], slot}
  state @F {terminal}
  pool @t {page_tokens = 16, pages = 4, rows_beyond = 0}
)" + tick + R"(
  model @t {graph = "g", head_dim = 0, hidden = 8, kv_heads = 0, kv_layers = 0, layers = 0, numerics = "fused", vocab = 12} {
    weight @e {from = "e", shape = [12, 8]}
    segment @forward {
      %x = embed @e : [R, 8] bf16
      %l = matmul @e(%x) {tree = "split8"} : [R, 12] f32
      yield(%l)
    }
  }
}
)";
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  text.replace(at, from.size(), to);
  SourceFiles files;
  Diagnostics diags(files);
  auto module = parse(diags, files.add("test.ir", text));
  if (module && verifyWhole(*module, diags))
    return "";
  std::string found = diags.render();
  found = found.substr(found.find("not valid: ") + 11);
  return found.substr(0, std::min(found.find(", in `"), found.find(" [ir-")));
}

TEST(Verifier, AWholeModuleLacksNothing) {
  const struct {
    const char *from, *to, *message;
  } cases[] = {
      {"index", "index", ""},
      {"after = \"form-ticks\", ", "", "`tick` is not legal before `form-ticks`"},
      {"@slots", "@seats", "there is no `param @slots`"},
      {"value = 8", "value = 0", "`@slots` must be an i32 from 1 to 1024"},
      {"value = 16", "value = 129", "`@rows_per_pass` must be an i32 from 1 to 128"},
      {"{initial, next", "{next", "one state is `initial`, found 0"},
      {"state @A {", "state @A {initial, ", "one state is `initial`, found 2"},
      {", fault = \"F\"", "", "`fault` must name a terminal state"},
      {", fault = \"F\"", ", cancel = \"A\", fault = \"F\"", "`cancel` must name a terminal state"},
      {", fault = \"F\"", ", deadline = \"A\", fault = \"F\"", "`deadline` must name a terminal state"},
      {"{after_site = 0", "{limit = 3, after_site = 0", "`limit` is of a state without slot"},
      {"state @F {terminal}", "state @F", "`fault` must name a terminal state"},
      {"pool @t", "pool @u", "a pool is of the model of that name"},
      {"@0:3:1", "@3:37:17", "the place `@3:37:17` lies in no `file` of the module"},
      {"@0:3:1", "@0:3:4000000000", "the place `@0:3:4000000000` lies in no `file` of the module"},
      {"index = 0", "index = 1", "the place `@0:1:1` lies in no `file` of the module"},
      {"site = 0} {\n        reduce", "site = 7} {\n        reduce",
       "a part has the `before_site` of the `issue` that ends it"},
      {"part @\"a.1\" {after_site = 0", "part @\"a.1\" {after_site = 1",
       "`results` stand in the part behind their call"},
      {"{index = 0, site", "{index = 1, site", "the call has 1 reducers, and none of index 1"},
      {": token<4>", ": f32<4>", "the result must be a sequence of tokens, found `f32<4>`"},
      {"    pass @t\n", "    pass @t\n    pass @t\n", "a model has one pass in a tick"},
      {"stage = \"a\", state = \"A\"} {", "stage = \"b\", state = \"A\"} {",
       "the parts before and behind a call are of one stage and state"},
      {"kind = \"admit\"", "kind = \"slot\"", "a part is of the kind `slot` when its state has a slot, else `admit`"},
      {"vocab = 12", "vocab = 0", "`vocab` must be a whole number from 1 to 2147483647"},
      {"weight @e", "weight @b {from = \"b\", layers = 4096, shape = [2147483647, 2147483647]}\n    weight @e",
       "with this one the weights have more than 16 TiB"},
      {"vocab = 12", "vocab = 11", "the weight has no line for each of the 11 tokens"},
      {"yield(%l)", "yield(%x)", "the last segment yields logits, or their argmax"},
      {"yield(%l)", "yield", "the last segment yields logits, or their argmax"},
  };
  for (const auto &c : cases)
    EXPECT_EQ(wholeProblem(c.from, c.to), c.message) << c.to;
}

TEST(Verifier, LoopsOfTheTick) {
  const std::string tick = R"(
  field @i {type = "i32"}
  tick {
    part @q {kind = "admit", stage = "q", state = "Q"} {
      goto {to = ["A"]}
    }
    part @"a.0" {kind = "slot", stage = "a", state = "A"} @0:3:1 {
      %b = finished : bool
      enter(%b) {behind = 2, inside = 1, rounds = 4}
    }
    part @"a.1" {after_site = 1, before_site = 0, kind = "slot", loop = 0, stage = "a", state = "A"} {
      %t = tokens : token<>
      issue @t(%t) {chunk = 4, kv = "commit", site = 0}
    }
    pass @t {loop = 0}
    part @"a.2" {after_site = 0, kind = "slot", loop = 0, stage = "a", state = "A"} {
      %b = finished : bool
      enter(%b) {behind = 2, inside = 1, rounds = 4 }
    }
    part @"a.3" {after_site = 2, kind = "slot", stage = "a", state = "A"} {
      goto {to = ["A"]}
    }
  })";
  const struct {
    const char *from, *to, *message;
  } cases[] = {
      {"index", "index", ""},
      {"inside = 1, rounds = 4}", "inside = 4, rounds = 4}",
       "`inside` and `behind` of 1 loops are the numbers behind the 1 calls, each one"},
      {"behind = 2, inside = 1, rounds = 4}", "behind = 1, inside = 1, rounds = 4}",
       "`inside` and `behind` of 1 loops are the numbers behind the 1 calls, each one"},
      {"rounds = 4 }", "rounds = 5}", "the `enter` of the next round is that in front of the loop"},
      {"behind = 2, inside = 1, rounds = 4 }", "behind = 1, inside = 2, rounds = 4}",
       "the `enter` of the next round is that in front of the loop"},
      {"    pass @t {loop = 0}\n", "    pass @t\n",
       "a part of a loop ends in a call, with the pass and the part that goes on behind it, or in `enter`"},
      {"    pass @t {loop = 0}\n", "    pass @t {loop = 1}\n",
       "a part of a loop ends in a call, with the pass and the part that goes on behind it, or in `enter`"},
      {"slot\", loop = 0, stage", "slot\", stage",
       "a loop begins with the part that an `enter` in front of it names, and stands in one place"},
      {"after_site = 2, kind", "after_site = 2, loop = 0, kind",
       "behind a loop stands the part that goes on with `behind`"},
      {"enter(%b)", "goto {to = [\"A\"]} //",
       "a loop begins with the part that an `enter` in front of it names, and stands in one place"},
      {"before_site = 0, kind = \"slot\", loop = 0, stage = \"a\", state = \"A\"} {\n      %t = tokens : token<>\n     "
       " "
       "issue @t(%t) {chunk = 4, kv = \"commit\", site = 0}",
       "kind = \"slot\", loop = 0, stage = \"a\", state = \"A\"} {\n      goto {to = [\"A\"]}",
       "`inside` and `behind` of 1 loops are the numbers behind the 0 calls, each one"},
  };
  for (const auto &c : cases)
    EXPECT_EQ(wholeProblem(c.from, c.to, tick), c.message) << c.to;
  // Calls of the model behind the loop have a pass, too.
  const std::string both = R"(
  tick {
    part @q {kind = "admit", stage = "q", state = "Q"} {
      goto {to = ["A"]}
    }
    part @"a.0" {kind = "slot", stage = "a", state = "A"} @0:3:1 {
      %b = finished : bool
      enter(%b) {behind = 3, inside = 2, rounds = 4}
    }
    part @"a.1" {after_site = 2, before_site = 0, kind = "slot", loop = 0, stage = "a", state = "A"} {
      %t = tokens : token<>
      issue @t(%t) {chunk = 4, kv = "commit", site = 0}
    }
    pass @t {loop = 0}
    part @"a.2" {after_site = 0, kind = "slot", loop = 0, stage = "a", state = "A"} {
      %b = finished : bool
      enter(%b) {behind = 3, inside = 2, rounds = 4}
    }
    part @"a.3" {after_site = 3, before_site = 1, kind = "slot", stage = "a", state = "A"} {
      %t = tokens : token<>
      issue @t(%t) {chunk = 4, kv = "commit", site = 1}
    }
    pass @t
    part @"a.4" {after_site = 1, kind = "slot", stage = "a", state = "A"} {
      goto {to = ["A"]}
    }
  })";
  EXPECT_EQ(wholeProblem("index", "index", both), "");
  EXPECT_EQ(wholeProblem("    pass @t\n", "    pass @t\n    pass @t\n", both), "a model has one pass in a tick");
  EXPECT_EQ(wholeProblem("    pass @t\n", "", both), "a part behind a call stands behind the model's pass");
}

// Text cannot express these; a faulty pass can.
TEST(Verifier, ValuesAndScopes) {
  auto check = [](llvm::function_ref<void(Module &, Region &)> build) {
    SourceFiles files;
    Diagnostics diags(files);
    Module m;
    m.root.regions.resize(1);
    Builder top(m, m.root.region());
    Operation &state = top.create(Op::State);
    state.name = std::string("A");
    Operation &stage = top.create(Op::Stage);
    stage.set<attr::on>("A");
    build(m, stage.region());
    Builder end(m, stage.region());
    end.create(Op::Goto).set<attr::to>(std::vector<std::string>{"A"});
    return verify(m, diags) ? std::string() : diags.render();
  };
  const Type i32 = Type::scalar(Scalar::I32);
  EXPECT_EQ(check([&](Module &m, Region &r) {
              Builder b(m, r);
              Value one = b.constant(int64_t(1));
              b.value(Op::Add, {one, one}, i32);
            }),
            "");
  std::string early = check([&](Module &m, Region &r) {
    Builder b(m, r);
    Value later = m.newValue(i32, "later");
    b.value(Op::Neg, {later}, i32);
    Operation &def = b.create(Op::Budget);
    def.results = {later};
  });
  EXPECT_NE(early.find("operand 0 is not defined before its use"), std::string::npos) << early;
  std::string twice = check([&](Module &m, Region &r) {
    Builder b(m, r);
    Value v = b.value(Op::Budget, {}, i32);
    b.create(Op::Priority).results = {v};
  });
  EXPECT_NE(twice.find("a value is defined twice"), std::string::npos) << twice;
  std::string escaped = check([&](Module &m, Region &r) {
    Builder b(m, r);
    Value c = b.value(Op::Finished, {}, Type::scalar(Scalar::Bool));
    Operation &branch = b.create(Op::If, {c});
    Value inner = Builder(m, branch.region()).constant(int64_t(1));
    b.value(Op::Neg, {inner}, i32);
  });
  EXPECT_NE(escaped.find("operand 0 is not defined before its use"), std::string::npos) << escaped;
}
