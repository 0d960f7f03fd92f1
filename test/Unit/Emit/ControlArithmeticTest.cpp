// Numbers of control code in the emitted source.
#include "ControlTesting.h"

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
  const std::string before = "  t.set(r.accepted, ", after = ");\n  t.goTo(State::DONE);\n";
  const size_t begin = body.find(before), end = body.rfind(after);
  return begin == std::string::npos || end == std::string::npos
             ? body
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
  EXPECT_EQ(resultOf("      %n = seated : i32 @0:27:9\n"
                     "      %u = mul(%n, %n) : i32 @0:27:9\n"),
            "t.seated() * t.seated()");
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
