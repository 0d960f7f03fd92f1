#include "Verifying.h"

using namespace megalith;
using namespace megalith::ir;

TEST(Verifier, RejectsDeclarations) {
  const Case cases[] = {
      {"state @A state @A", "`@A` is declared twice"},
      {"state @A {next = [\"B\"]}", "`@B` is no declared state"},
      {"field @f {type = \"int\"}", "`type` must be one of i32, f32, bool, token"},
      {"input @i {type = \"token\", capacity = 65537}", "`capacity` must be a whole number from 1 to 65536"},
      {"input @i {type = \"f32\", least = 0}", "only an `i32` has `least` and `most`"},
      {"input @i {type = \"i32\", least = 2, most = 1}", "`least` is above `most`"},
      {"input @i {type = \"i32\", rows = 2}", "the rows of a table have a `capacity` of at most 1024"},
      {"input @i {type = \"i32\", rows = 2, capacity = 2000}", "the rows of a table have a `capacity` of at most 1024"},
      {"input @i {type = \"i32\", rows = 1024, capacity = 1024}", "a table has more than 65536 elements"},
      {"input @i {type = \"i32\", rows = 2, capacity = 2, optional, items = [1]}",
       "the default of a table has no rows"},
      {"input @i {type = \"i32\", rows = 2, capacity = 2, optional}", ""},
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
    EXPECT_EQ(complaint(problem("module @m {after = \"lower\"} {\n" + std::string(c.code) + "\n}")), c.message)
        << c.code;
  }
  EXPECT_EQ(problem("module @m {fault = \"F\"} {\n}"), "`@F` is no declared state, in `module @m {fault = \"F\"}`");
}

TEST(Verifier, TickLevel) {
  auto tick = [](const std::string &body) {
    return complaint(problem("module @m {after = \"form-ticks\"} {\nstate @A {slot}\nmodel @t " MODEL " {}\ntick {" +
                             body + "}\n}"));
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

TEST(Verifier, GotoHasAsManyStatesAsAnExpressionHasLevels) {
  std::string states = "\"A\"";
  for (int i = 0; i < limits::expressionLevels; ++i)
    states += ", \"A\"";
  const auto said = [](const std::string &to) {
    return complaint(
        problem("module @m {after = \"lower\"} {\nstate @A stage @s {on = \"A\"} { goto {to = [" + to + "]} }\n}"));
  };
  EXPECT_EQ(said(states), "expected one more state than conditions, found 101 and 0");
  EXPECT_EQ(said(states + ", \"A\""), "a `goto` chooses among 101 states at most");
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
    EXPECT_EQ(complaint(problem("module @m {after = \"lower\"} {\n" + std::string(c.code) + "\n}")), c.message)
        << c.code;
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
      {"param @slots", "param @rows_beside {type = \"i32\", value = 16}\n  param @slots", ""},
      {"param @slots", "param @rows_beside {type = \"i32\", value = 17}\n  param @slots",
       "`@rows_beside` must be an i32 from 1 to 16, which is `@rows_per_pass`"},
      {"value = 16", "value = 2049", "`@rows_per_pass` must be an i32 from 1 to 2048"},
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
       "`results` stand in the part after their call"},
      {"{index = 0, site", "{index = 1, site", "the call has 1 reducers, and none of index 1"},
      {": token<4>", ": f32<4>", "the result must be a sequence of tokens, found `f32<4>`"},
      {"    pass @t\n", "    pass @t\n    pass @t\n", "a model has one pass in a tick"},
      {"stage = \"a\", state = \"A\"} {", "stage = \"b\", state = \"A\"} {",
       "the parts before and after a call are of one stage and state"},
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
      enter(%b) {inside = 1, outside = 2, rounds = 4}
    }
    part @"a.1" {after_site = 1, before_site = 0, kind = "slot", loop = 0, stage = "a", state = "A"} {
      %t = tokens : token<>
      issue @t(%t) {chunk = 4, kv = "commit", site = 0}
    }
    pass @t {loop = 0}
    part @"a.2" {after_site = 0, kind = "slot", loop = 0, stage = "a", state = "A"} {
      %b = finished : bool
      enter(%b) {inside = 1, outside = 2, rounds = 4 }
    }
    part @"a.3" {after_site = 2, kind = "slot", stage = "a", state = "A"} {
      goto {to = ["A"]}
    }
  })";
  const struct {
    const char *from, *to, *message;
  } cases[] = {
      {"index", "index", ""},
      {"inside = 1, outside = 2, rounds = 4}", "inside = 4, outside = 2, rounds = 4}",
       "`inside` and `outside` of 2 loops are the numbers after the 1 calls, each one"},
      {"inside = 1, outside = 2, rounds = 4}", "inside = 1, outside = 1, rounds = 4}",
       "`inside` and `outside` of 1 loops are the numbers after the 1 calls, each one"},
      {"rounds = 4 }", "rounds = 5}", "the `enter` of the next round is that in front of the loop"},
      {"inside = 1, outside = 2, rounds = 4 }", "inside = 2, outside = 1, rounds = 4}",
       "there is no loop that this leads to"},
      {"    pass @t {loop = 0}\n", "    pass @t\n",
       "a part of a loop ends in a call, with the pass and the part that continues after it, or in `enter`"},
      {"    pass @t {loop = 0}\n", "    pass @t {loop = 1}\n",
       "a part of a loop ends in a call, with the pass and the part that continues after it, or in `enter`"},
      {"slot\", loop = 0, stage", "slot\", stage",
       "a loop begins with the part that an `enter` in front of it names, and stands in one place"},
      {"after_site = 2, kind", "after_site = 2, loop = 0, kind",
       "after a loop stands the part that goes on with `outside`"},
      {"enter(%b)", "goto {to = [\"A\"]} //",
       "a loop begins with the part that an `enter` in front of it names, and stands in one place"},
      {"before_site = 0, kind = \"slot\", loop = 0, stage = \"a\", state = \"A\"} {\n      %t = tokens : token<>\n     "
       " "
       "issue @t(%t) {chunk = 4, kv = \"commit\", site = 0}",
       "kind = \"slot\", loop = 0, stage = \"a\", state = \"A\"} {\n      goto {to = [\"A\"]}",
       "`inside` and `outside` of 1 loops are the numbers after the 0 calls, each one"},
  };
  for (const auto &c : cases)
    EXPECT_EQ(wholeProblem(c.from, c.to, tick), c.message) << c.to;
  // A loop in another one has that one's number, and stands among its parts.
  const std::string nested = R"(
  tick {
    part @q {kind = "admit", stage = "q", state = "Q"} {
      goto {to = ["A"]}
    }
    part @"a.0" {kind = "slot", stage = "a", state = "A"} @0:3:1 {
      %b = finished : bool
      enter(%b) {inside = 1, outside = 2, rounds = 4}
    }
    part @"a.1" {after_site = 1, kind = "slot", loop = 0, stage = "a", state = "A"} {
      %b = finished : bool
      enter(%b) {inside = 3, outside = 4, rounds = 2}
    }
    part @"a.2" {after_site = 3, before_site = 0, kind = "slot", loop = 0, stage = "a", state = "A"} {
      %t = tokens : token<>
      issue @t(%t) {chunk = 4, kv = "commit", site = 0}
    }
    pass @t {loop = 0}
    part @"a.3" {after_site = 0, kind = "slot", loop = 0, stage = "a", state = "A"} {
      %b = finished : bool
      enter(%b) {inside = 3, outside = 4, rounds = 2 }
    }
    part @"a.4" {after_site = 4, kind = "slot", loop = 0, stage = "a", state = "A"} {
      %b = finished : bool
      enter(%b) {inside = 1, outside = 2, rounds = 4 }
    }
    part @"a.5" {after_site = 2, kind = "slot", stage = "a", state = "A"} {
      goto {to = ["A"]}
    }
  })";
  const struct {
    const char *from, *to, *message;
  } inner[] = {
      {"index", "index", ""},
      {"rounds = 2 }", "rounds = 3}", "the `enter` of the next round is that in front of the loop"},
      {"after_site = 3, before_site = 0, kind = \"slot\", loop = 0",
       "after_site = 3, before_site = 0, kind = \"slot\", loop = 1", "there is no loop that this leads to"},
      {"after_site = 4, kind = \"slot\", loop = 0", "after_site = 4, kind = \"slot\"",
       "after a loop stands the part that goes on with `outside`"},
      {"after_site = 4, kind = \"slot\", loop = 0", "after_site = 4, kind = \"slot\", loop = 1",
       "after a loop stands the part that goes on with `outside`"},
      {"inside = 3, outside = 4, rounds = 2 }", "inside = 1, outside = 2, rounds = 4 }",
       "there is no loop that this leads to"},
      {"enter(%b) {inside = 3, outside = 4, rounds = 2}", "goto {to = [\"A\"]}",
       "a part of a loop ends in a call, with the pass and the part that continues after it, or in `enter`"},
  };
  for (const auto &c : inner)
    EXPECT_EQ(wholeProblem(c.from, c.to, nested), c.message) << c.to;
  // Calls of the model after the loop have a pass, too.
  const std::string both = R"(
  tick {
    part @q {kind = "admit", stage = "q", state = "Q"} {
      goto {to = ["A"]}
    }
    part @"a.0" {kind = "slot", stage = "a", state = "A"} @0:3:1 {
      %b = finished : bool
      enter(%b) {inside = 2, outside = 3, rounds = 4}
    }
    part @"a.1" {after_site = 2, before_site = 0, kind = "slot", loop = 0, stage = "a", state = "A"} {
      %t = tokens : token<>
      issue @t(%t) {chunk = 4, kv = "commit", site = 0}
    }
    pass @t {loop = 0}
    part @"a.2" {after_site = 0, kind = "slot", loop = 0, stage = "a", state = "A"} {
      %b = finished : bool
      enter(%b) {inside = 2, outside = 3, rounds = 4}
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
  EXPECT_EQ(wholeProblem("    pass @t\n", "", both), "a part after a call comes after the model's pass");
}
