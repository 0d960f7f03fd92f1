#include "Verifying.h"

using namespace megalith;
using namespace megalith::ir;

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
      {"%x = call @t(%s) {site = 0, kv = \"draft\"} : token<4> { reduce @sample(%i) {with = [\"only\"]} }",
       "operand 0 must be a sequence of tokens"},
      {"%x = call @t(%s) {site = 0, kv = \"draft\"} : token<4> { reduce @sample(%s, %s) {with = [\"bias\", \"by\"]} }",
       "operand 1 must be a sequence of f32"},
      {"%x = call @t(%s) {site = 0, kv = \"draft\"} : token<4> { reduce @sample(%s) {with = [\"bias\"]} }",
       "`bias` and `by` stand beside each other"},
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
    EXPECT_EQ(complaint(inStage(c.code)), c.message) << c.code;
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
       "a loop with calls stands directly in a stage, or in another such loop"},
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
      {"%a = forced(%i) : token<>", "the result must have a capacity"},
      {"%a = forced(%s) : token<4>", "operand 0 must be `i32`, found `token<4>`"},
      {"%a = ngram_lookup(%t, %i) {ngram = 3, with = [\"from\"]} : token<4>", "expected 3 operands, found 2"},
      {"%a = ngram_lookup(%t, %i, %i) {ngram = 3, with = [\"from\"]} : token<4>",
       "operand 2 must be a sequence of tokens, found `i32`"},
      {"%a = ngram_lookup(%t, %i, %s, %s) {ngram = 3, with = [\"from\", \"from\"]} : token<4>",
       "`with` names `from` twice"},
      {"%a = append(%s, %i) : i32", "operand 1 must be a sequence of tokens, found `i32`"},
  };
  for (const auto &[code, message] : cases) {
    EXPECT_EQ(complaint(inStage(code)), message) << code;
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
    EXPECT_EQ(complaint(inStage(c.code)), c.message) << c.code;
  }
  const auto unseated = [](const std::string &code) {
    return complaint(
        problem("module @m {after = \"lower\"} {\nstate @A\npool @t {pages = 4, page_tokens = 4, rows_beyond = 0}\n"
                "gauge @g\nstage @s {on = \"A\"} { " +
                code + " goto {to = [\"A\"]} }\n}"));
  };
  EXPECT_EQ(unseated("%a = kv.len @t : i32"), "`kv.len` needs a state with `slot`");
  EXPECT_EQ(unseated("%a = budget : i32 kv.keep @t(%a)"), "`kv.keep` needs a state with `slot`");
  EXPECT_EQ(unseated("%a = budget : i32 trace @g(%a)"), "`trace` needs a state with `slot`");
  EXPECT_EQ(unseated("%a = kv.live @t : i32"), "");
  EXPECT_EQ(unseated("%a = seated : i32"), "");
  EXPECT_EQ(unseated("%a = seated : f32"), "the result must be `i32`, found `f32`");
  EXPECT_EQ(unseated("%a = host {number = \"now_ms\"} : i32"), "");
  EXPECT_EQ(unseated("%a = host {number = \"now\"} : i32"),
            "`number` must be one of tick, now_ms, arrived, arrived_ms, deadline_ms");
  EXPECT_EQ(unseated("order { %a = priority : i32 %b = neg(%a) : i32 yield(%b, %a) }"), "");
  EXPECT_EQ(unseated("%a = priority : i32 order { yield(%a) }"), "`order` stands in front of all else");
  EXPECT_EQ(unseated("%b = finished : bool if(%b) { order { %a = priority : i32 yield(%a) } }"),
            "`order` stands in front of all else");
  EXPECT_EQ(unseated("order { %a = seated : i32 yield(%a) }"),
            "a key of `order` is made of numbers that stay while the request waits");
  EXPECT_EQ(unseated("order { %a = host {number = \"tick\"} : i32 yield(%a) }"),
            "a key of `order` stays while the request waits");
  EXPECT_EQ(unseated("order { %a = finished : bool yield(%a) }"), "a key is an `i32` or an `f32`");
  EXPECT_EQ(unseated("order { %a = priority : i32 yield(%a, %a, %a, %a, %a) }"), "`order` yields 1 to 4 keys");
  EXPECT_EQ(unseated("order { yield }"), "`order` yields 1 to 4 keys");
}

// One test for all of them: a new one is covered by its line in Ops.def.
TEST(Verifier, AnOrderTakesAllArithmetic) {
  const auto inOrder = [](const std::string &code) {
    return complaint(problem("module @m {after = \"lower\"} {\nstate @A\nstage @s {on = \"A\"} { order { "
                             "%i = priority : i32 %f = cast(%i) : f32 %b = eq(%i, %i) : bool " +
                             code + " yield(%i) } goto {to = [\"A\"]} }\n}"));
  };
  for (unsigned i = 0; i < numOps; ++i) {
    const auto op = static_cast<Op>(i);
    const OpInfo &info = opInfo(op);
    if (!hasTrait(op, Trait::Arithmetic | Trait::Steady))
      continue;
    std::vector<std::string> answers;
    for (const char *operand : {"%i", "%f", "%b"})
      for (const char *type : {"i32", "f32", "bool"}) {
        std::string operands = op == Op::Select ? "%b" : info.operands ? operand : "";
        for (int k = 1; k < info.operands; ++k)
          operands += std::string(", ") + operand;
        answers.push_back(inOrder("%r = " + std::string(info.mnemonic) +
                                  (operands.empty() ? "" : "(" + operands + ")") +
                                  (op == Op::Const ? " {value = 1} : " : " : ") + type));
      }
    EXPECT_TRUE(llvm::is_contained(answers, "")) << info.mnemonic << ": " << answers[0];
  }
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
