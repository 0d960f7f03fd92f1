#include "megalith/IR/IR.h"
#include "megalith/IR/Text.h"
#include <gtest/gtest.h>

using namespace megalith;
using namespace megalith::ir;

namespace {
const Type i32 = Type::scalar(Scalar::I32);
const Type boolean = Type::scalar(Scalar::Bool);

std::optional<Module> parseText(const std::string &text) {
  SourceFiles files;
  Diagnostics diags(files);
  std::optional<Module> m = parse(diags, files.add("t.ir", text));
  EXPECT_TRUE(m) << diags.render();
  return m;
}

/// module { stage { %a = const 1; if(%c) { %b = add(%a, %a) } } }
struct Nested : testing::Test {
  Module m;
  Value a, c, b;
  Region *stage = nullptr;
  void SetUp() override {
    m.root.regions.resize(1);
    Builder top(m, m.root.region());
    Operation &s = top.create(Op::Stage);
    s.name = "s";
    stage = &s.region();
    Builder body(m, *stage);
    a = body.constant(int64_t(1));
    c = body.value(Op::Finished, {}, boolean, "c");
    Operation &branch = body.create(Op::If, {c});
    b = Builder(m, branch.region()).value(Op::Add, {a, a}, i32, "b");
  }
};
} // namespace

TEST(IR, TypeText) {
  EXPECT_EQ(Type::scalar(Scalar::BF16).str(), "bf16");
  EXPECT_EQ(Type::seq(8).str(), "token<8>");
  EXPECT_EQ(Type::seq(0).str(), "token<>");
  EXPECT_EQ(Type::rows(2048, Scalar::F32).str(), "[R, 2048] f32");
  EXPECT_EQ(Type::vector(64, Scalar::BF16).str(), "[64] bf16");
  EXPECT_EQ(Type::kv().str(), "kv");
}

TEST(IR, OpTable) {
  EXPECT_EQ(mnemonic(Op::NgramLookup), "ngram_lookup");
  EXPECT_EQ(opInfo(Op::Select).operands, 3);
  EXPECT_EQ(opInfo(Op::If).regions, -1);
  EXPECT_STREQ(opInfo(Op::Add).levels, "PTN");
}

TEST(IR, FindAndParam) {
  std::optional<Module> m = parseText("module @m {\nparam @slots {type = \"i32\", value = 8}\n"
                                      "state @slots\nstate @B\n}");
  EXPECT_EQ(m->param("slots"), 8);
  EXPECT_EQ(m->find(Op::State, "slots")->op, Op::State);
  EXPECT_EQ(m->find(Op::Pool, "slots"), nullptr);
  EXPECT_EQ(m->all(Op::State).size(), 2u);
}

TEST_F(Nested, WalkVisitsParentsFirst) {
  std::vector<Op> order;
  walk(m.root.region(), [&](Operation &op) { order.push_back(op.op); });
  EXPECT_EQ(order, (std::vector<Op>{Op::Stage, Op::Const, Op::Finished, Op::If, Op::Add}));
}

TEST_F(Nested, ReplaceUsesReachesInnerRegions) {
  Value other = m.newValue(i32, "other");
  replaceUses(m.root.region(), a, other);
  std::vector<unsigned> uses = countUses(m, m.root.region());
  EXPECT_EQ(uses[a.id], 0u);
  EXPECT_EQ(uses[other.id], 2u);
  EXPECT_EQ(uses[c.id], 1u);
  EXPECT_EQ(uses[b.id], 0u);
}

TEST_F(Nested, CloneMakesFreshValues) {
  std::map<Value, Value> map;
  Value other = m.newValue(i32, "other");
  map[a] = other;
  Operation copy = clone(m, stage->ops[2], map);
  ASSERT_TRUE(map.count(b));
  EXPECT_NE(map[b], b);
  EXPECT_EQ(copy.operands[0], c) << "values from outside stay";
  const Operation &add = copy.region().ops[0];
  EXPECT_EQ(add.operands[0], other);
  EXPECT_EQ(add.result(), map[b]);
  EXPECT_EQ(m.hint(map[b]), "b");
}

TEST_F(Nested, PrintOfOneOperation) {
  EXPECT_EQ(print(m, stage->ops[2]), "if(%c) {\n  %b = add(%c1, %c1) : i32\n}\n");
  EXPECT_EQ(printHead(m, stage->ops[0]), "%c1 = const {value = 1} : i32");
}

TEST_F(Nested, HintsBecomeUniqueNames) {
  Builder body(m, *stage);
  body.value(Op::Finished, {}, boolean, "c");
  body.value(Op::Finished, {}, boolean, "c_1");
  body.value(Op::Finished, {}, boolean, "a b.c");
  body.value(Op::Finished, {}, boolean, "9");
  body.value(Op::Finished, {}, boolean);
  std::string once = print(m);
  for (const char *name : {"%c =", "%c_1 =", "%c_1_1 =", "%a_b_c =", "%_9 =", "%0 ="})
    EXPECT_NE(once.find(name), std::string::npos) << name << "\n" << once;
  EXPECT_EQ(print(*parseText(once)), once);
}

TEST(Text, PrintsHalves) {
  std::optional<Module> m = parseText("module @m {\nstate @A\nmodel @t {\n}\n}");
  PrintOptions options;
  options.part = PrintOptions::Control;
  EXPECT_EQ(print(*m, options), "module @m {\n  state @A\n}\n");
  options.part = PrintOptions::Models;
  EXPECT_EQ(print(*m, options), "module @m {\n  model @t {\n  }\n}\n");
}

// A region that begins with an operation that looks like a flag, attributes that look
// like a region, nothing at all.
TEST(Text, AttributesOrRegion) {
  std::optional<Module> m = parseText("module {\nstage {\nyield\n}\nstage {on} {\nyield\n}\n"
                                      "stage {\n}\nstage {\n^(%x : i32):\nyield(%x)\n}\n}");
  auto stages = m->all(Op::Stage);
  ASSERT_EQ(stages.size(), 4u);
  EXPECT_EQ(stages[0]->region().ops.size(), 1u);
  EXPECT_TRUE(stages[1]->has<attr::on>());
  EXPECT_EQ(stages[1]->region().ops.size(), 1u);
  EXPECT_TRUE(stages[2]->region().ops.empty());
  EXPECT_EQ(stages[3]->region().args.size(), 1u);
}

TEST(Text, DeepNestingIsAnError) {
  std::string text;
  for (int i = 0; i < 100000; ++i)
    text += "if {\n";
  SourceFiles files;
  Diagnostics diags(files);
  EXPECT_FALSE(parse(diags, files.add("deep.ir", text)));
  EXPECT_NE(diags.render().find("regions nest deeper than 64"), std::string::npos);
}

// Any prefix of a module either parses or gives one message; nothing crashes.
TEST(Text, TruncatedText) {
  const std::string text = "module @m {after = \"lower\", x = [1, 2], y = [\"a\"], f = 1.5e-3} {\n"
                           "  stage @s {on = \"A\"} @0:1:2 {\n"
                           "    %t = tokens : token<>\n"
                           "    %n = prefix_while(%n0) : i32 {\n      ^(%i : i32):\n    }\n  }\n}\n";
  for (size_t n = 0; n < text.size(); ++n) {
    SourceFiles files;
    Diagnostics diags(files);
    EXPECT_FALSE(parse(diags, files.add("t.ir", text.substr(0, n))));
    EXPECT_EQ(diags.errors(), 1u) << n;
  }
}
