#include "megalith/IR/Calls.h"
#include "megalith/IR/Text.h"
#include <gtest/gtest.h>

using namespace megalith;

namespace {

/// Rows of the first call of a stage that feeds the request's tokens from the first on, or `[:20]` of them.
int64_t rowsOf(const std::string &fed, const std::string &chunk, int64_t rowsPerPass) {
  SourceFiles files;
  Diagnostics diags(files);
  const uint32_t file = files.add("test.ir", fmt::format(R"(
module @m {{after = "lower", fault = "F"}} {{
  param @rows_per_pass {{value = {}}}
  stage @s {{on = "A"}} {{
    %tokens = tokens : token<>
    %some = tokens : token<20>
    call @target(%{}) {{{}kv = "commit", site = 0}}
  }}
}}
)",
                                                         rowsPerPass, fed, chunk));
  const std::optional<ir::Module> module = ir::parse(diags, file);
  EXPECT_TRUE(module) << diags.render();
  if (!module)
    return -1;
  int64_t rows = -1;
  ir::walk(module->root.region(), [&](const ir::Operation &op) {
    if (op.op == ir::Op::Call)
      rows = ir::mostRows(*module, op);
  });
  return rows;
}

TEST(Calls, FeedAtMostTheirTokensTheirChunkAndAPass) {
  EXPECT_EQ(rowsOf("some", "", 64), 20);
  EXPECT_EQ(rowsOf("some", "", 16), 16);
  EXPECT_EQ(rowsOf("some", "chunk = 8, ", 64), 8);
  EXPECT_EQ(rowsOf("some", "chunk = 32, ", 64), 20);
  EXPECT_EQ(rowsOf("tokens", "", 64), 64); // all of the request
  EXPECT_EQ(rowsOf("tokens", "chunk = 8, ", 64), 8);
  EXPECT_EQ(rowsOf("tokens", "chunk = 100, ", 64), 64);
}

/// Of a pipeline that makes these calls.
std::string whyNoPromptRows(const std::string &calls) {
  SourceFiles files;
  Diagnostics diags(files);
  const uint32_t file = files.add("test.ir", fmt::format(R"(
module @m {{after = "lower", fault = "F"}} {{
  file {{index = 0, path = "p.yaml"}}
  param @rows_per_pass {{value = 256}}
  field @draft {{capacity = 4, type = "token"}}
  stage @s {{on = "A"}} {{
    %tokens = tokens : token<>
    %size = seq.len(%tokens) : i32
    %one = const {{value = 1}} : i32
    %end = sub(%size, %one) : i32
    %two = const {{value = 2}} : i32
    %before = sub(%size, %two) : i32
    %last = seq.at(%tokens, %end) : token
    %other = seq.at(%tokens, %before) : token
    %draft = field.get @draft : token<4>
    %begun = seq.make(%last) : token<1>
    %earlier = seq.make(%other) : token<1>
    %both = seq.concat(%begun, %draft) : token<5>
    %slice = seq.slice(%tokens, %one, %end) : token<>
    {}
  }}
}}
)",
                                                         calls));
  const std::optional<ir::Module> module = ir::parse(diags, file);
  EXPECT_TRUE(module) << diags.render();
  return module ? ir::whyNoPromptRows(*module, "target") : "";
}

TEST(Calls, ThatFeedAPromptStayAndBeginBeforeItsLastToken) {
  const auto call = [](const std::string &model, const std::string &fed, const std::string &kv, int site) {
    return fmt::format("call @{}(%{}) {{chunk = 8, kv = \"{}\", site = {}}} @0:{}:3\n", model, fed, kv, site, 7 + site);
  };
  for (const char *fed : {"slice", "earlier", "draft"}) // a draft may be what stands before the last token
    EXPECT_EQ(whyNoPromptRows(call("target", "slice", "draft", 0) + call("target", fed, "commit", 1)), "") << fed;
  for (const char *fed : {"begun", "both"}) {
    const std::string commits = call("target", fed, "commit", 0);
    EXPECT_EQ(whyNoPromptRows(commits + call("target", "slice", "draft", 1)),
              "it feeds prompts to `target` by calls with `kv=draft` (p.yaml:8)");
    EXPECT_EQ(whyNoPromptRows(commits + call("small", "slice", "commit", 1)), "it feeds `target` no prompt");
  }
}

TEST(Calls, OfMoreRowsThanAreReadTellNothingOfAPrompt) {
  EXPECT_EQ(whyNoPromptRows("call @target(%slice) {kv = \"commit\", site = 0} @0:7:3\n"),
            "it feeds `target` more than 128 rows at once (p.yaml:7); `chunk=` cuts them");
  EXPECT_EQ(whyNoPromptRows("call @target(%slice) {kv = \"commit\", most = 128, site = 0} @0:7:3\n"), "");
}

TEST(Calls, InLoopsAreMadeAsOftenAsAllAroundThemHaveRounds) {
  SourceFiles files;
  Diagnostics diags(files);
  const uint32_t file = files.add("test.ir", R"(
module @m {after = "form-ticks", fault = "F"} {
  tick {
    part @"a.0" {kind = "slot", stage = "a", state = "A"} {
      %b = finished : bool
      enter(%b) {inside = 3, outside = 4, rounds = 5}
    }
    part @"b.0" {kind = "slot", stage = "b", state = "B", before_site = 2} {
      %t = tokens : token<>
      issue @t(%t) {chunk = 4, kv = "commit", site = 2}
    }
    part @"a.1" {after_site = 3, kind = "slot", loop = 0, stage = "a", state = "A"} {
      %b = finished : bool
      enter(%b) {inside = 5, outside = 6, rounds = 2}
    }
    part @"a.2" {after_site = 5, before_site = 0, kind = "slot", loop = 0, stage = "a", state = "A"} {
      %t = tokens : token<>
      issue @t(%t) {chunk = 4, kv = "commit", site = 0}
    }
    pass @t {loop = 0}
    part @"a.3" {after_site = 0, kind = "slot", loop = 0, stage = "a", state = "A"} {
      %b = finished : bool
      enter(%b) {inside = 5, outside = 6, rounds = 2}
    }
    part @"a.4" {after_site = 6, kind = "slot", loop = 0, stage = "a", state = "A"} {
      %b = finished : bool
      enter(%b) {inside = 3, outside = 4, rounds = 5}
    }
    part @"a.5" {after_site = 4, kind = "slot", stage = "a", state = "A"} {
      goto {to = ["A"]}
    }
  }
}
)");
  const std::optional<ir::Module> module = ir::parse(diags, file);
  ASSERT_TRUE(module) << diags.render();
  EXPECT_EQ(ir::roundsOfEntries(*module->all(ir::Op::Tick).front()), (std::vector<int64_t>{1, 1, 5, 10, 10, 10, 5, 1}));
  EXPECT_TRUE(ir::hasLoops(*module) && ir::loopsNest(*module));
}

} // namespace
