#include "megalith/Transforms/Passes.h"
#include "megalith/IR/Text.h"
#include <gtest/gtest.h>

using namespace megalith;
using namespace megalith::transforms;

namespace {

const char *const text = R"(module @m {after = "lower"} {
  state @A {slot}
  gauge @g {type = "i32"}
  stage @s {on = "A"} {
    %one = const {value = 1} : i32
    %two = add(%one, %one) : i32
    trace @g(%two)
    goto {to = ["A"]}
  }
})";

struct Runner : testing::Test {
  SourceFiles files;
  Diagnostics diags{files};

  ir::Module module(const std::string &source = text) {
    std::optional<ir::Module> m = ir::parse(diags, files.add("m.ir", source));
    EXPECT_TRUE(m) << diags.render();
    return *m;
  }
};

} // namespace

TEST_F(Runner, ListIsInOrder) {
  std::vector<std::string> names;
  for (const PassInfo &p : passes())
    names.push_back(p.name);
  EXPECT_EQ(names.size(), 10u);
  EXPECT_EQ(names[0], "inline-policies");
  EXPECT_EQ(names[2], "form-ticks");
  EXPECT_EQ(names.back(), "form-maps");
}

TEST_F(Runner, StopsAfterAndContinues) {
  PassOptions options;
  options.stopAfter = "fold-constants";
  std::optional<ir::Module> half = runPasses(module(), options, diags);
  ASSERT_TRUE(half) << diags.render();
  EXPECT_EQ(half->after(), "fold-constants");
  EXPECT_EQ(half->all(ir::Op::Stage).size(), 1u);
  // Going on from there gives what one run gives.
  std::optional<ir::Module> rest = runPasses(*half, {}, diags);
  std::optional<ir::Module> all = runPasses(module(), {}, diags);
  ASSERT_TRUE(rest && all) << diags.render();
  EXPECT_EQ(rest->after(), "form-maps");
  EXPECT_EQ(ir::print(*rest), ir::print(*all));
  // Nothing is left to do.
  EXPECT_EQ(ir::print(*runPasses(*all, {}, diags)), ir::print(*all));
  options.stopAfter = "lower";
  EXPECT_EQ(runPasses(module(), options, diags)->after(), "lower");
}

TEST_F(Runner, PrintsAndTimes) {
  PassOptions options;
  std::string out;
  options.sink = [&](const std::string &s) { out += s; };
  options.printAfterAll = true;
  options.stopAfter = "fold-constants";
  ASSERT_TRUE(runPasses(module(), options, diags));
  EXPECT_NE(out.find("// ----- after inline-policies (unchanged)\n"), std::string::npos) << out;
  EXPECT_NE(out.find("// ----- after fold-constants\nmodule @m"), std::string::npos) << out;
  out.clear();
  options.printAfterAll = false;
  options.time = true;
  ASSERT_TRUE(runPasses(module(), options, diags));
  EXPECT_NE(out.find(" ms  inline-policies\n"), std::string::npos) << out;
  EXPECT_EQ(out.find("module"), std::string::npos);
}

TEST_F(Runner, NamedPassesMoveTheMarkOnlyInOrder) {
  std::optional<ir::Module> m = runNamed(module(), {"fold-constants"}, diags);
  ASSERT_TRUE(m) << diags.render();
  EXPECT_EQ(m->after(), "lower") << "inline-policies has not run";
  m = runNamed(module(), {"inline-policies", "fold-constants"}, diags);
  EXPECT_EQ(m->after(), "fold-constants");
  m = runNamed(*m, {"form-ticks", "fold-constants"}, diags);
  ASSERT_TRUE(m) << diags.render();
  EXPECT_EQ(m->after(), "form-ticks");
}

TEST_F(Runner, UnknownNames) {
  PassOptions options;
  options.stopAfter = "form-tick";
  EXPECT_FALSE(runPasses(module(), options, diags));
  EXPECT_FALSE(runNamed(module(), {"lower"}, diags));
  std::string message = diags.render();
  EXPECT_EQ(message.substr(0, message.find('\n')), "error: there is no pass `form-tick` [unknown-pass]");
  EXPECT_NE(message.find("note: passes are, in order: inline-policies, fold-constants, "
                         "form-ticks, merge-values, split-segments, "),
            std::string::npos);
  EXPECT_NE(message.find("note: did you mean `form-ticks`?"), std::string::npos);
  EXPECT_NE(message.find("error: there is no pass `lower` [unknown-pass]"), std::string::npos);
}

TEST_F(Runner, InvalidInputIsReported) {
  EXPECT_FALSE(runPasses(module("module @m {after = \"lower\"} {\ntick {\n}\n}"), {}, diags));
  EXPECT_NE(diags.render().find("[ir-invalid]"), std::string::npos);
}
