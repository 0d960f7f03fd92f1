#include "megalith/Emit/Control.h"
#include "../../../device/Abi.h"
#include "megalith/IR/Text.h"
#include <fstream>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sstream>

using namespace megalith;

namespace {

/// A tick-level module around the bodies of one stage's parts.
struct Pipeline {
  std::string declarations = "  field @draft {capacity = 8, type = \"token\"} @0:9:3\n"
                             "  field @accepted {init = 3, type = \"i32\"} @0:10:3\n"
                             "  field @\"size.ema\" {init = 0.5, type = \"f32\"} @0:11:3\n";
  std::string commit = "      goto {to = [\"DONE\"]} @0:29:9\n";
  std::string results;

  std::string text() const {
    return R"(module @p {after = "form-ticks", fault = "FAILED"} @0:1:1 {
  file {index = 0, path = "p.yaml"}
  param @slots {type = "i32", value = 4} @0:2:3
  param @rows_per_pass {type = "i32", value = 16} @0:3:3
)" + declarations + R"(  state @QUEUED {initial, next = ["VERIFY"]} @0:12:3
  state @VERIFY {next = ["COMMIT"], slot} @0:13:3
  state @COMMIT {next = ["VERIFY", "DONE"], slot} @0:14:3
  state @DONE {terminal} @0:15:3
  state @FAILED {terminal} @0:16:3
  pool @target {on_full = "wait", page_tokens = 16, pages = 32, rows_beyond = 9, watermark = 85} @0:17:3
  metric @committed @0:18:3
  gauge @"size.block" {type = "i32"} @0:19:3
  tick {
    part @admit {kind = "admit", stage = "admit", state = "QUEUED"} @0:20:3 {
      goto {to = ["VERIFY"]} @0:21:9
    }
    part @"verify.0" {before_site = 0, kind = "slot", stage = "verify", state = "VERIFY"} @0:22:3 {
      %tokens = tokens : token<> @0:23:9
      %n = seq.len(%tokens) : i32 @0:23:9
      %c1 = const {value = 1} : i32 @0:23:9
      %i = sub(%n, %c1) : i32 @0:23:9
      %last = seq.at(%tokens, %i) : token @0:23:9
      %s = seq.make(%last) : token<1> @0:23:9
      %d = field.get @draft : token<8> @0:23:9
      %fed = seq.concat(%s, %d) : token<9> @0:23:9
      issue @target(%fed) {kv = "draft", reduce = ["argmax"], site = 0} @0:23:9
    }
    pass @target @0:23:9
    part @"verify.1" {after_site = 0, kind = "slot", stage = "verify", state = "VERIFY"} @0:22:3 {
)" + results + R"(      goto {to = ["COMMIT"]} @0:25:9
    }
    part @commit {kind = "slot", stage = "commit", state = "COMMIT"} @0:26:3 {
)" + commit + R"(    }
  }
  model @target {graph = "g", head_dim = 16, hidden = 16, kv_heads = 1, kv_layers = 1, layers = 1, numerics = "transformers", rope_theta = 10000.0, rope_type = "default", vocab = 100} @0:4:3 {
  }
}
)";
  }
};

std::optional<ir::Module> parsed(const std::string &text) {
  SourceFiles files;
  Diagnostics diags(files);
  auto module = ir::parse(diags, files.add("test.ir", text));
  EXPECT_TRUE(module && ir::verify(*module, diags)) << diags.render() << text;
  return module;
}

std::string emitted(const Pipeline &p, bool lines = false) {
  const auto module = parsed(p.text());
  if (!module)
    return "";
  CodeWriter w;
  emit::ControlOptions options;
  options.lineDirectives = lines;
  emit::emitControl(w, *module, nullptr, options);
  return w.text();
}

/// The lines between `head {` and its `} // name`.
std::string bodyOf(const std::string &text, const std::string &function) {
  const size_t begin = text.find(" void " + function + "(");
  const size_t end = text.find("} // " + function + "\n", begin);
  if (begin == std::string::npos || end == std::string::npos)
    return "no function " + function;
  const size_t line = text.find('\n', begin) + 1;
  return text.substr(line, end - line);
}

std::string commitOf(const std::string &operations) {
  Pipeline p;
  p.commit = operations;
  return bodyOf(emitted(p), "commit");
}

} // namespace

TEST(EmitControl, ConstantsComeFromParamsPoolAndModel) {
  const std::string text = emitted({});
  for (const char *line :
       {"static constexpr int slots = 4;", "static constexpr int rowsPerPass = 16;",
        "static constexpr int vocab = 100;", "static constexpr int pages = 32;",
        "static constexpr bool failWhenFull = false;", "static constexpr int reserve = -1; //", "static constexpr int rowsBeyond = 9; //",
        "static constexpr int callTokens = 16; //",
        "static constexpr unsigned long long slotStates = 0x6; // VERIFY COMMIT",
        "static constexpr unsigned long long terminalStates = 0x18; // DONE FAILED",
        "static constexpr int faultState = 4; // FAILED"})
    EXPECT_NE(text.find(line), std::string::npos) << line << "\n" << text;
}

TEST(EmitControl, StatesHaveATable) {
  EXPECT_NE(emitted({}).find("//   state   flags     next\n"
                             "//   QUEUED  initial   VERIFY\n"
                             "//   VERIFY  slot      COMMIT\n"
                             "//   COMMIT  slot      VERIFY DONE\n"
                             "//   DONE    terminal\n"
                             "//   FAILED  terminal\n"
                             "enum class State : int {\n"
                             "  QUEUED = 0,\n"),
            std::string::npos);
}

TEST(EmitControl, FieldsAreDeclaredUnderIdentifiers) {
  EXPECT_NE(emitted({}).find("struct Fields {\n"
                             "  ::megalith::device::Sequence<8> draft;\n"
                             "  int accepted;\n"
                             "  float size_ema; // size.ema\n"
                             "};\n"
                             "struct Request : megalith::abi::RequestHeader {\n"
                             "  Fields fields;\n"
                             "  __device__ bool fieldsInRange() const { return fields.draft.inRange(); }\n"
                             "};\n"),
            std::string::npos);
}

TEST(EmitControl, ValuesUsedOnceAreWrittenWhereTheyAreUsed) {
  EXPECT_EQ(bodyOf(emitted({}), "verifyIssue"),
            "  Fields &r = t.r.fields;\n"
            "  const auto tokens = t.tokens();\n"
            "  t.issue<calls::Verify>(t.concat(t.list(t.at(tokens, tokens.size() - 1)), r.draft));\n");
}

TEST(EmitControl, LoopsBecomeOneCallWithATest) {
  Pipeline p;
  p.results = R"(      %best = results @target {reducer = "argmax", site = 0} : token<9> @0:23:9
      %d = field.get @draft : token<8> @0:24:9
      %n = seq.len(%d) : i32 @0:24:9
      %acc = prefix_while(%n) : i32 @0:24:9 {
        ^(%i : i32):
        %x = seq.at(%d, %i) : token @0:24:9
        %y = seq.at(%best, %i) : token @0:24:9
        %q = eq(%x, %y) : bool @0:24:9
        yield(%q) @0:24:9
      }
      field.set @accepted(%acc) @0:24:9
)";
  EXPECT_EQ(bodyOf(emitted(p), "verifyResume"),
            "  Fields &r = t.r.fields;\n"
            "  const auto best = t.results();\n"
            "  const int acc = t.prefixWhile(r.draft.size(), "
            "[&](int i) { return t.at(r.draft, i) == t.at(best, i); });\n"
            "  t.set(r.accepted, acc);\n"
            "  t.goTo(State::COMMIT);\n");
}

TEST(EmitControl, AValueReadBeforeAWriteKeepsItsVariable) {
  EXPECT_EQ(commitOf(R"(      %old = field.get @accepted : i32 @0:27:9
      %c2 = const {value = 2} : i32 @0:27:9
      %sum = add(%old, %c2) : i32 @0:27:9
      field.set @accepted(%c2) @0:27:9
      count.add @committed(%sum) @0:28:9
      goto {to = ["DONE"]} @0:29:9
)"),
            "  Fields &r = t.r.fields;\n"
            "  const int sum = t.wrapAdd(r.accepted, 2);\n"
            "  t.set(r.accepted, 2);\n"
            "  t.count(Metric::committed, sum);\n"
            "  t.goTo(State::DONE);\n");
}

TEST(EmitControl, AViewThatOutlivesItsFieldIsCopied) {
  EXPECT_EQ(commitOf(R"(      %old = field.get @draft : token<8> @0:27:9
      %c0 = const {value = 0} : i32 @0:27:9
      %c2 = const {value = 2} : i32 @0:27:9
      %head = seq.slice(%old, %c0, %c2) : token<8> @0:27:9
      %tail = seq.slice(%old, %c2, %c2) : token<8> @0:27:9
      field.set @draft(%head) @0:27:9
      %n = append(%tail) : i32 @0:28:9
      goto {to = ["DONE"]} @0:29:9
)"),
            "  Fields &r = t.r.fields;\n"
            "  const auto old = t.hold(r.draft);\n"
            "  const auto tail = t.slice(old, 2, 2);\n"
            "  t.set(r.draft, t.slice(old, 0, 2));\n"
            "  t.append(tail);\n"
            "  t.goTo(State::DONE);\n");
}

TEST(EmitControl, BudgetIsReadOnItsSideOfAnAppend) {
  EXPECT_EQ(commitOf(R"(      %b = budget : i32 @0:27:9
      %d = field.get @draft : token<8> @0:27:9
      %n = append(%d) : i32 @0:27:9
      %c = budget : i32 @0:28:9
      %used = sub(%b, %c) : i32 @0:28:9
      count.add @committed(%used) @0:28:9
      count.add @committed(%n) @0:28:9
      goto {to = ["DONE"]} @0:29:9
)"),
            "  Fields &r = t.r.fields;\n"
            "  const int b = t.budget();\n"
            "  const int n = t.append(r.draft);\n"
            "  t.count(Metric::committed, b - t.budget());\n"
            "  t.count(Metric::committed, n);\n"
            "  t.goTo(State::DONE);\n");
}

TEST(EmitControl, AnIndexIsCheckedEvenWhereCppWouldNotEvaluateIt) {
  EXPECT_EQ(commitOf(R"(      %d = field.get @draft : token<8> @0:27:9
      %a = field.get @accepted : i32 @0:27:9
      %c5 = const {value = 5} : i32 @0:27:9
      %in = lt(%a, %c5) : bool @0:27:9
      %x = seq.at(%d, %a) : token @0:27:9
      %c7 = const {value = 7} : token @0:27:9
      %same = eq(%x, %c7) : bool @0:27:9
      %both = and(%in, %same) : bool @0:27:9
      goto(%both) {to = ["VERIFY", "DONE"]} @0:29:9
)"),
            "  Fields &r = t.r.fields;\n"
            "  const bool same = t.at(r.draft, r.accepted) == 7;\n"
            "  t.goTo(r.accepted < 5 && same ? State::VERIFY : State::DONE);\n");
}

/// `#line` gives a fault the line of its statement; what stands on another one says so.
TEST(EmitControl, AnIndexOfAnotherLineNamesIt) {
  const std::string text = R"(      %d = field.get @draft : token<8> @0:27:9
      %a = field.get @accepted : i32 @0:27:9
      %x = seq.at(%d, %a) : token @0:27:9
      %c1 = const {value = 1} : i32 @0:28:9
      %y = seq.at(%d, %c1) : token @0:28:9
      %both = seq.make(%x, %y) : token<2> @0:28:9
      field.set @draft(%both) @0:28:9
      goto {to = ["DONE"]} @0:29:9
)";
  EXPECT_EQ(commitOf(text), "  Fields &r = t.r.fields;\n"
                            "  t.set(r.draft, t.list(t.at(r.draft, r.accepted, 27), t.at(r.draft, 1)));\n"
                            "  t.goTo(State::DONE);\n");
}

TEST(EmitControl, RealArithmeticIsRoundedOncePerOperation) {
  EXPECT_EQ(commitOf(R"(      %a = field.get @accepted : i32 @0:27:9
      %c8 = const {value = 8} : i32 @0:27:9
      %r = ratio(%a, %c8) : f32 @0:27:9
      %k = const {value = 0.2} : f32 @0:27:9
      %x = mul(%k, %r) : f32 @0:27:9
      %e = field.get @"size.ema" : f32 @0:27:9
      %s = add(%x, %e) : f32 @0:27:9
      field.set @"size.ema"(%s) @0:27:9
      goto {to = ["DONE"]} @0:29:9
)"),
            "  Fields &r = t.r.fields;\n"
            "  t.set(r.size_ema, __fadd_rn(__fmul_rn(0.2f, t.ratio(r.accepted, 8)), r.size_ema));\n"
            "  t.goTo(State::DONE);\n");
}

/// `operations` on the field %a, whose result is %u.
static std::string resultOf(const std::string &operations) {
  const std::string body = commitOf("      %a = field.get @accepted : i32 @0:27:9\n" + operations +
                                    "      field.set @accepted(%u) @0:27:9\n"
                                    "      goto {to = [\"DONE\"]} @0:29:9\n");
  const std::string before = "  t.set(r.accepted, ", behind = ");\n  t.goTo(State::DONE);\n";
  const size_t begin = body.find(before), end = body.rfind(behind);
  return begin == std::string::npos || end == std::string::npos ? body
                                                                : body.substr(begin + before.size(), end - begin - before.size());
}

TEST(EmitControl, WhatCanLeaveTheIntegersWraps) {
  EXPECT_EQ(resultOf("      %u = mul(%a, %a) : i32 @0:27:9\n"), "t.wrapMul(r.accepted, r.accepted)");
  EXPECT_EQ(resultOf("      %u = neg(%a) : i32 @0:27:9\n"), "t.wrapNeg(r.accepted)");
  EXPECT_EQ(resultOf("      %c1 = const {value = 1} : i32 @0:27:9\n"
                     "      %u = sub(%a, %c1) : i32 @0:27:9\n"),
            "t.wrapSub(r.accepted, 1)");
  // What is cut to a range before cannot.
  EXPECT_EQ(resultOf("      %c8 = const {value = 8} : i32 @0:27:9\n"
                     "      %m = min(%a, %c8) : i32 @0:27:9\n"
                     "      %u = add(%m, %c8) : i32 @0:27:9\n"),
            "t.min(r.accepted, 8) + 8");
  EXPECT_EQ(resultOf("      %d = field.get @draft : token<8> @0:27:9\n"
                     "      %n = seq.len(%d) : i32 @0:27:9\n"
                     "      %u = mul(%n, %n) : i32 @0:27:9\n"),
            "n * n");
}

TEST(EmitControl, OnlyAConstantDivisorAboveZeroNeedsNoCheck) {
  EXPECT_EQ(resultOf("      %c2 = const {value = 2} : i32 @0:27:9\n"
                     "      %t = mod(%a, %c2) : i32 @0:27:9\n"
                     "      %z = mul(%c2, %t) : i32 @0:27:9\n"
                     "      %u = div(%a, %z) : i32 @0:27:9\n"),
            "t.divide(r.accepted, 2 * (r.accepted % 2))");
  EXPECT_EQ(resultOf("      %c = const {value = -1} : i32 @0:27:9\n"
                     "      %u = div(%a, %c) : i32 @0:27:9\n"),
            "t.divide(r.accepted, -1)");
}

TEST(EmitControl, TheLeastIntegerIsAnInt) {
  EXPECT_EQ(resultOf("      %c = const {value = -2147483648} : i32 @0:27:9\n"
                     "      %u = min(%a, %c) : i32 @0:27:9\n"),
            "t.min(r.accepted, (-2147483647 - 1))");
}

TEST(EmitControl, EveryRealHasALiteral) {
  const auto literal = [](const std::string &value) {
    const std::string body = commitOf("      %k = const {value = " + value + R"(} : f32 @0:27:9
      field.set @"size.ema"(%k) @0:27:9
      goto {to = ["DONE"]} @0:29:9
)");
    const size_t begin = body.find("r.size_ema, ") + 12;
    return body.substr(begin, body.find(");", begin) - begin);
  };
  EXPECT_EQ(literal("0.2"), "0.2f");
  EXPECT_EQ(literal("3.0"), "3.0f");
  EXPECT_EQ(literal("-0.0"), "-0.0f");
  EXPECT_EQ(literal("1e+30"), "1e+30f");
  EXPECT_EQ(literal("3.4028234663852886e+38"), "3.4028235e+38f");
  EXPECT_EQ(literal("1.401298464324817e-45"), "1e-45f");
  EXPECT_EQ(literal("inf"), "__int_as_float(0x7f800000)");
  EXPECT_EQ(literal("-inf"), "__int_as_float(0xff800000)");
  EXPECT_EQ(literal("nan"), "__int_as_float(0x7fffffff)");
}

TEST(EmitControl, RealsAreOrderedAsTheReferenceOrdersThem) {
  EXPECT_NE(commitOf(R"(      %e = field.get @"size.ema" : f32 @0:27:9
      %k = const {value = 0.5} : f32 @0:27:9
      %x = min(%e, %k) : f32 @0:27:9
      %y = max(%x, %e) : f32 @0:27:9
      field.set @"size.ema"(%y) @0:27:9
      goto {to = ["DONE"]} @0:29:9
)")
                .find("t.max(t.min(r.size_ema, 0.5f), r.size_ema)"),
            std::string::npos);
}

TEST(EmitControl, SequencesOfTwoKindsCanBeChosenFrom) {
  EXPECT_NE(commitOf(R"(      %d = field.get @draft : token<8> @0:27:9
      %c0 = const {value = 0} : i32 @0:27:9
      %c1 = const {value = 1} : i32 @0:27:9
      %head = seq.slice(%d, %c0, %c1) : token<1> @0:27:9
      %done = finished : bool @0:27:9
      %s = select(%done, %head, %d) : token<8> @0:27:9
      %n = append(%s) : i32 @0:28:9
      goto {to = ["DONE"]} @0:29:9
)")
                .find("t.append(t.either(t.finished(), t.slice(r.draft, 0, 1), r.draft));"),
            std::string::npos);
}

TEST(EmitControl, ParenthesesOnlyWhereTheyAreNeeded) {
  EXPECT_EQ(commitOf(R"(      %a = prompt_len : i32 @0:27:9
      %c2 = const {value = 2} : i32 @0:27:9
      %c3 = const {value = 3} : i32 @0:27:9
      %x = sub(%a, %c2) : i32 @0:27:9
      %y = sub(%c3, %x) : i32 @0:27:9
      %z = mul(%y, %c2) : i32 @0:27:9
      %w = div(%z, %c3) : i32 @0:27:9
      %v = mod(%c3, %a) : i32 @0:27:9
      %u = add(%w, %v) : i32 @0:27:9
      field.set @accepted(%u) @0:27:9
      goto {to = ["DONE"]} @0:29:9
)"),
            "  Fields &r = t.r.fields;\n"
            "  t.set(r.accepted, (3 - (t.promptLen() - 2)) * 2 / 3 + t.modulo(3, t.promptLen()));\n"
            "  t.goTo(State::DONE);\n");
}

// Which values are one is decided by `merge-values`; the source has what the module has.
TEST(EmitControl, AValueThatIsUsedTwiceHasAVariable) {
  const std::string tier = R"( = field.get @accepted : i32 @0:27:9
)";
  EXPECT_EQ(commitOf("      %a" + tier + R"(      %c4 = const {value = 4} : i32 @0:27:9
      %x = min(%a, %c4) : i32 @0:27:9
      count.add @committed(%x) @0:27:9
      field.set @accepted(%x) @0:28:9
      %c = field.get @accepted : i32 @0:28:9
      %e4 = const {value = 4} : i32 @0:28:9
      %z = min(%c, %e4) : i32 @0:28:9
      trace @"size.block"(%z) @0:28:9
      goto {to = ["DONE"]} @0:29:9
)"),
            "  Fields &r = t.r.fields;\n"
            "  const int x = t.min(r.accepted, 4);\n"
            "  t.count(Metric::committed, x);\n"
            "  t.set(r.accepted, x);\n"
            "  t.trace(Gauge::size_block, t.min(r.accepted, 4));\n"
            "  t.goTo(State::DONE);\n");
}

TEST(EmitControl, BranchesKeepTheirStatements) {
  EXPECT_EQ(commitOf(R"(      %a = field.get @accepted : i32 @0:27:9
      %c0 = const {value = 0} : i32 @0:27:9
      %some = gt(%a, %c0) : bool @0:27:9
      if(%some) @0:27:9 {
        field.set @accepted(%c0) @0:28:9
      }, {
        count.add @committed(%a) @0:28:9
      }
      goto {to = ["DONE"]} @0:29:9
)"),
            "  Fields &r = t.r.fields;\n"
            "  const int a = r.accepted;\n"
            "  if (r.accepted > 0) {\n"
            "    t.set(r.accepted, 0);\n"
            "  }\n"
            "  else {\n"
            "    t.count(Metric::committed, a);\n"
            "  }\n"
            "  t.goTo(State::DONE);\n");
}

TEST(EmitControl, PartsRunInTheOrderOfTheTick) {
  const std::string text = emitted({});
  EXPECT_EQ(bodyOf(text, "controlTicks"),
            "  Control &c = controlOfCta<Control>();\n"
            "  for (;; behindPass = true) {\n"
            "    if (behindPass) {\n"
            "      everySlot(c, [&](Turn &t) {\n"
            "        completeCall(t);\n"
            "        if (t.resumes<calls::Verify>())\n"
            "          stages::verifyResume(t);\n"
            "        if (t.in(State::COMMIT))\n"
            "          stages::commit(t);\n"
            "      });\n"
            "      endTick(c);\n"
            "    }\n"
            "    beginTick(c);\n"
            "    if (c.done)\n"
            "      return;\n"
            "    admission(c, State::QUEUED, [&](Turn &t) { stages::admit(t); });\n"
            "    everySlot(c, [&](Turn &t) {\n"
            "      if (t.in(State::VERIFY))\n"
            "        stages::verifyIssue(t);\n"
            "    });\n"
            "    formPass(c);\n"
            "    if (c.numRows > 0)\n"
            "      return;\n"
            "    // A tick without rows: no other CTA hears of it.\n"
            "  } // tick\n");
}

TEST(EmitControl, LineDirectivesNameTheYamlAndTheTrueLine) {
  const std::string text = emitted({}, true);
  EXPECT_NE(text.find("#line 29 \"p.yaml\"\n  t.goTo(State::DONE);\n"), std::string::npos) << text;
  std::istringstream in(text);
  std::string line;
  unsigned own = 0;
  for (int number = 1; std::getline(in, line); ++number) {
    if (line.rfind("#line ", 0) != 0 || line.find("\"pipeline.cu\"") == std::string::npos)
      continue;
    EXPECT_EQ(std::stoi(line.substr(6)), number + 1);
    ++own;
  }
  EXPECT_EQ(own, 4u) << "one behind each part";
}

TEST(EmitControl, NamesOfThePipelineStandInPlacesOfTheirOwn) {
  Pipeline p;
  p.declarations += "  field @float {init = 0, type = \"i32\"} @0:11:3\n"
                    "  field @slot {init = 0, type = \"i32\"} @0:11:3\n"; // as a member of the header
  p.commit = R"(      %t = field.get @slot : i32 @0:27:9
      %c2 = const {value = 2} : i32 @0:27:9
      field.set @slot(%c2) @0:27:9
      field.set @float(%t) @0:28:9
      count.add @committed(%t) @0:28:9
      goto {to = ["DONE"]} @0:29:9
)";
  const std::string text = emitted(p);
  EXPECT_NE(text.find("  int float_; // float\n  int slot;\n};\n"), std::string::npos) << text;
  EXPECT_EQ(bodyOf(text, "commit"), "  Fields &r = t.r.fields;\n"
                                    "  const int t2 = r.slot;\n"
                                    "  t.set(r.slot, 2);\n"
                                    "  t.set(r.float_, t2);\n"
                                    "  t.count(Metric::committed, t2);\n"
                                    "  t.goTo(State::DONE);\n");
}

/// Code alone, without comments, empty lines and numbers of `#line`; a string is `~`, and so is what follows a `_` in a
/// word. A reader with no trust: a carriage return, a form feed and what Unicode knows as a separator end a line, and any
/// `\` or trigraph of it at a line's end joins the next one to it.
std::string codeOf(std::string text) {
  const auto replaceAll = [&](std::string_view old, std::string_view with) {
    for (size_t at = 0; (at = text.find(old, at)) != std::string::npos; at += with.size())
      text.replace(at, old.size(), with);
  };
  for (const char *end : {"\r", "\v", "\f", "\xc2\x85", "\xe2\x80\xa8", "\xe2\x80\xa9"})
    replaceAll(end, "\n");
  replaceAll("\?\?/", "\\");
  std::string code;
  const auto skipTo = [&](size_t at, char end) {
    while (at < text.size() && text[at] != end && text[at] != '\n') {
      at += text[at] == '\\';
      for (size_t blank = at; end == '\n' && blank < text.size(); ++blank)
        if (text[blank] == '\n' && text[blank - 1] != '\n')
          at = blank;
        else if (text[blank] != ' ' || text[at - 1] != '\\')
          break;
      ++at;
    }
    return at;
  };
  bool inWord = false;
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '"') {
      at = skipTo(at + 1, '"');
      code += '~';
    } else if (text.compare(at, 2, "//") == 0) {
      at = skipTo(at, '\n') - 1;
    } else if (c == '\n') {
      while (!code.empty() && (code.back() == ' ' || code.back() == '\n'))
        code.pop_back();
      code += c;
    } else if (inWord && (std::isalnum(static_cast<unsigned char>(c)) || c == '_')) {
      continue;
    } else if (std::isdigit(static_cast<unsigned char>(c)) && code.ends_with("#line ")) {
      continue;
    } else {
      code += c;
    }
    inWord = c == '_';
  }
  return code;
}

TEST(EmitControl, NoTextOfAFileBecomesCode) {
  // Names of IR text, the path that it gives, and the YAML's line, which stands behind `// `.
  const auto emitWith = [](const std::string &what) {
    std::string quoted;
    for (char c : what)
      quoted += c == '\n' ? "\\n" : c == '"' || c == '\\' ? std::string("\\") + c : std::string(1, c);
    Pipeline p;
    std::string text = p.text();
    const auto put = [&](const std::string &old, const std::string &with) {
      for (size_t at = 0; (at = text.find(old, at)) != std::string::npos; at += with.size())
        text.replace(at, old.size(), with);
    };
    put("path = \"p.yaml\"", "path = \"p" + quoted + "\"");
    put("@committed", "@\"com" + quoted + "\"");
    put("@draft", "@\"dr" + quoted + "\"");
    put("@VERIFY", "@\"VER" + quoted + "\"");
    put("\"VERIFY\"", "\"VER" + quoted + "\"");
    put("stage = \"commit\"", "stage = \"c" + quoted + "\"");
    SourceFiles files;
    Diagnostics diags(files);
    std::string yaml(28, '\n');
    files.add("p.yaml", yaml + "goto: DONE # " + what + "\n");
    const auto module = ir::parse(diags, files.add("test.ir", text));
    if (!module || !ir::verify(*module, diags))
      return "cannot read: " + diags.render();
    CodeWriter w;
    emit::emitControl(w, *module, &files, {});
    return w.text();
  };
  const std::string plain = emitWith("_");
  EXPECT_NE(plain.find("  // goto: DONE # _\n#line 29 \"p_\"\n"), std::string::npos) << plain;
  for (int byte = 1; byte < 256; ++byte) {
    const std::string c(1, char(byte));
    if (std::isalnum(byte))
      continue;
    for (const std::string &what : {c, c + "\n#;{", "\\" + c, "\?\?/" + c}) {
      const std::string text = emitWith(what);
      EXPECT_EQ(codeOf(text), codeOf(plain)) << byte << "\n" << text;
    }
  }
}

TEST(EmitControl, LongLinesAreCut) {
  SourceFiles files;
  Diagnostics diags(files);
  files.add("p.yaml", std::string(28, '\n') + "goto: DONE # " + std::string(100000, 'x') + "\n");
  const auto module = ir::parse(diags, files.add("test.ir", Pipeline().text()));
  ASSERT_TRUE(module);
  CodeWriter w;
  emit::emitControl(w, *module, &files, {});
  EXPECT_LT(w.text().size(), 10000u);
  EXPECT_NE(w.text().find("xxx...\n"), std::string::npos);
}

TEST(RequestLayout, OffsetsFollowTheHeader) {
  const auto module = parsed(Pipeline().text());
  ASSERT_TRUE(module);
  const auto json = nlohmann::json::parse(emit::requestLayoutJson(*module));
  const int header = sizeof(megalith::abi::RequestHeader);
  EXPECT_EQ(json["fields"][0]["name"], "draft");
  EXPECT_EQ(json["fields"][0]["capacity"], 8);
  EXPECT_EQ(json["fields"][0]["offset"], header);
  EXPECT_EQ(json["fields"][1]["offset"], header + 36);
  EXPECT_EQ(json["fields"][1]["init"], 3);
  EXPECT_EQ(json["fields"][2]["type"], "f32");
  EXPECT_EQ(json["fields"][2]["offset"], header + 40);
  EXPECT_EQ(json["fields"][2]["init"], 0.5);
  EXPECT_EQ(json["request_bytes"], (header + 44 + 7) / 8 * 8);
  EXPECT_EQ(json["initial_state"], 0);
  EXPECT_EQ(json["fault_state"], 4);
  EXPECT_EQ(json["states"][1]["name"], "VERIFY");
  EXPECT_EQ(json["states"][1]["slot"], true);
  EXPECT_EQ(json["states"][1]["place"], "p.yaml:13");
  EXPECT_EQ(json["file"], "p.yaml");
  EXPECT_EQ(json["calls"][0], "p.yaml:23");
  EXPECT_EQ(json["metrics"][0], "committed");
  EXPECT_EQ(json["gauges"][0]["name"], "size.block");
}

TEST(DeviceCode, FaultCodesAreThoseOfTheList) {
  std::ifstream in(MEGALITH_SOURCE_DIR "/device/Control.cuh");
  const std::string text((std::istreambuf_iterator<char>(in)), {});
  const auto expect = [&](const char *name, int code) {
    if (code != 0) {
      EXPECT_NE(text.find("k" + std::string(name) + " = " + std::to_string(code) + ","), std::string::npos) << name;
    }
  };
#define FAULT(Enum, Code, Name, Explanation) expect(#Enum, Code);
#include "megalith/IR/Faults.def"
}
