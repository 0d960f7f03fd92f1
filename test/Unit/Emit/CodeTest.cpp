// What is known of an emitted text goes with it when texts are put together.
#include "../../../lib/Emit/Code.h"
#include <cmath>
#include <gtest/gtest.h>

using namespace megalith;
using namespace megalith::emit;

TEST(Code, IsWrappedWhereItBindsLess) {
  const Code sum = Code("", Sum).add(Code("a")).add(" + ").add(Code("b"));
  EXPECT_EQ(Code("", Product).add(sum, Product).add(" * ").add(Code("c"), Unary).inLine(1), "(a + b) * c");
  EXPECT_EQ(Code("", Sum).add(sum, Sum).add(" - ").add(sum, Product).inLine(1), "a + b - (a + b)");
  EXPECT_EQ(Code("f(").add(sum).add(")").inLine(1), "f(a + b)");
}

TEST(Code, ConstantsKnowTheirSign) {
  const auto wrapped = [](const Code &code) { return Code("-", Unary).add(code, Primary).inLine(1); };
  EXPECT_EQ(wrapped(Code::constant(2)), "-2");
  EXPECT_EQ(wrapped(Code::constant(-2)), "-(-2)");
  EXPECT_EQ(wrapped(Code::constant(INT32_MIN)), "-(-2147483647 - 1)") << "is in parentheses already";
  EXPECT_EQ(wrapped(Code::constant(0.5)), "-0.5f");
  EXPECT_EQ(wrapped(Code::constant(-0.0)), "-(-0.0f)");
  EXPECT_EQ(wrapped(Code::constant(-INFINITY)), "-__int_as_float(0xff800000)") << "is a call";
}

TEST(Code, CarriesWhatItReadsAndCanDo) {
  Code at("t.at(");
  at.add(Code::field("draft", {".draft"})).add(", 1").addLine(7).add(")");
  at.mayFault = true;
  EXPECT_TRUE(at.usesFields);
  const Code plain("t.budget()", Primary, {"tokens"});
  EXPECT_FALSE(plain.usesFields);
  const Code both = Code("", Sum).add(plain, Sum).add(" + ").add(at, Product);
  EXPECT_EQ(both.reads, (ir::Resources{".draft", "tokens"}));
  EXPECT_TRUE(both.mayFault);
  EXPECT_TRUE(both.usesFields);
  // A text that only looks like one.
  EXPECT_FALSE(Code("t.kvLen()").add(" + other.x").usesFields);
}

TEST(Code, TellsTheLineOfWhatMayFaultInAnother) {
  const auto at = [](const char *index, uint32_t line) { return Code("at(s, ").add(index).addLine(line).add(")"); };
  const Code code =
      Code("f(").add(at("1", 7)).add(", ").add(Code("", Sum).add(at("2", 8)).add(" + 1"), Product).add(")");
  EXPECT_EQ(code.inLine(7), "f(at(s, 1), (at(s, 2, 8) + 1))");
  EXPECT_EQ(code.inLine(8), "f(at(s, 1, 7), (at(s, 2) + 1))");
  EXPECT_EQ(code.inLine(9), "f(at(s, 1, 7), (at(s, 2, 8) + 1))");
  EXPECT_EQ(code.size(), std::string("f(at(s, 1), (at(s, 2) + 1))").size()) << "as long as in its own line";
}
