// The tensor passes only regroup operations: on random models every pass leaves
// the meaning as it was, and what comes out is what code generation relies on.
#include "Symbolic.h"
#include "megalith/Transforms/Passes.h"
#include <algorithm>
#include <functional>
#include <gtest/gtest.h>
#include <random>

using namespace megalith;
using namespace megalith::ir;

namespace {

/// A random model: operations on values of 16, 32 and 48 columns in any order,
/// a repeat with an attention, a head.
class RandomModel {
public:
  explicit RandomModel(unsigned seed) : random(seed) {
    module.root.regions.resize(1);
    module.root.name = "random";
    module.root.set<attr::after>("lower");
    Operation &model = Builder(module, module.root.region()).create(Op::Model);
    model.name = "m";
    model.set<attr::graph>("random");
    model.set<attr::numerics>(Numerics::Transformers);
    model.set<attr::vocab>(64);
    model.set<attr::hidden>(32);
    model.set<attr::layers>(2);
    model.set<attr::kv_layers>(2);
    model.set<attr::kv_heads>(1);
    model.set<attr::head_dim>(16);
    model.regions.resize(1);
    Operation segment;
    segment.op = Op::Segment;
    segment.name = "forward";
    segment.regions.resize(1);
    Builder b(module, segment.region());
    Operation &embed = b.create(Op::Embed, {}, {Type::rows(32, Scalar::BF16)});
    embed.name = weight({64, 32}, false);
    std::vector<Value> values = {embed.result()};
    grow(b, values, pick(4));
    repeat(b, values);
    grow(b, values, pick(6));
    Value logits = round(b, matmul(b, values.back(), 64));
    b.create(Op::Yield, {logits});
    model.region().ops = weights;
    model.region().ops.push_back(std::move(segment));
  }

  Module module;

private:
  unsigned pick(unsigned n) { return std::uniform_int_distribution<unsigned>(0, n - 1)(random); }
  int64_t columns(Value v) { return module.type(v).size; }

  std::string weight(std::vector<int64_t> shape, bool inRepeat) {
    Operation w;
    w.op = Op::Weight;
    w.name = "w" + std::to_string(weights.size());
    w.set<attr::shape>(shape);
    w.set<attr::from>("t" + w.name + (inRepeat ? "{i}" : ""));
    if (inRepeat)
      w.set<attr::layers>(2);
    weights.push_back(w);
    return w.name;
  }

  Value rows(Builder &b, Op op, llvm::ArrayRef<Value> operands, int64_t n) {
    return b.value(op, operands, Type::rows(n, Scalar::F32));
  }
  Value round(Builder &b, Value v) { return b.value(Op::Round, {v}, Type::rows(columns(v), Scalar::BF16)); }
  Value matmul(Builder &b, Value v, int64_t n) {
    Operation &op = b.create(Op::MatMul, {v}, {Type::rows(n, Scalar::F32)});
    op.name = weight({n, columns(v)}, inRepeat);
    op.set<attr::tree>(SumTree::Split8);
    return op.result();
  }
  Value rope(Builder &b, Value v) {
    auto angle = [&](Op op) {
      Operation &o = b.create(op, {}, {Type::rows(columns(v), Scalar::BF16)});
      o.set<attr::dim>(16);
      return o.result();
    };
    Value direct = round(b, rows(b, Op::Mul, {v, angle(Op::RopeCos)}, columns(v)));
    Operation &rotate = b.create(Op::RotateHalf, {v}, {Type::rows(columns(v), Scalar::F32)});
    rotate.set<attr::dim>(16);
    Value rotated = rotate.result();
    rotated = round(b, rows(b, Op::Mul, {rotated, angle(Op::RopeSin)}, columns(v)));
    return round(b, rows(b, Op::Add, {direct, rotated}, columns(v)));
  }
  Value norm(Builder &b, Value v, int64_t groups) {
    Value square = rows(b, Op::Mul, {v, v}, columns(v));
    Operation &sum = b.create(Op::ReduceSum, {square}, {Type::rows(groups, Scalar::F32)});
    sum.set<attr::groups>(groups);
    sum.set<attr::tree>(SumTree::Lanes32);
    Value scale = rows(b, Op::Rsqrt, {sum.result()}, groups);
    Value normed = round(b, rows(b, Op::Mul, {v, scale}, columns(v)));
    Operation &w = b.create(Op::WeightGet, {}, {Type::vector(16, Scalar::BF16)});
    w.name = weight({16}, inRepeat);
    Value gain = w.result();
    if (pick(3) == 0)
      gain = b.value(Op::Add, {b.constant(1.0), gain}, Type::vector(16, Scalar::F32));
    return round(b, rows(b, Op::Mul, {gain, normed}, columns(v)));
  }

  /// Another value of as many columns, or of one column, or a constant.
  Value partner(Builder &b, const std::vector<Value> &values, Value v) {
    std::vector<Value> candidates;
    for (Value other : values)
      if (columns(other) == columns(v) || columns(other) == 1)
        candidates.push_back(other);
    if (pick(5) == 0)
      return b.constant(0.5);
    return candidates[pick(candidates.size())];
  }

  void grow(Builder &b, std::vector<Value> &values, unsigned count) {
    for (unsigned i = 0; i < count; ++i) {
      // Recent values more often, so that chains form.
      Value v = values[values.size() - 1 - pick(std::min<size_t>(values.size(), pick(2) ? 2 : 8))];
      if (columns(v) == 1)
        v = values[0];
      switch (pick(8)) {
      case 0:
      case 1: {
        // Products of one operand in runs, as projections are.
        unsigned products = 1 + pick(3);
        for (unsigned p = 0; p < products; ++p)
          values.push_back(round(b, matmul(b, v, 16 * (1 + pick(3)))));
        break;
      }
      case 2: {
        Value other = partner(b, values, v);
        values.push_back(round(b, rows(b, pick(2) ? Op::Add : Op::Mul, {v, other}, columns(v))));
        break;
      }
      case 3:
        values.push_back(rope(b, v));
        break;
      case 4:
        values.push_back(norm(b, v, pick(2) ? 1 : columns(v) / 16));
        break;
      case 5: {
        Operation &op = b.create(Op::ReduceMax, {v}, {Type::rows(1, Scalar::F32)});
        op.set<attr::groups>(1);
        values.push_back(op.result());
        break;
      }
      default:
        values.push_back(round(b, rows(b, pick(2) ? Op::Silu : Op::Relu, {v}, columns(v))));
      }
      if (columns(values.back()) == 1 && i + 1 == count)
        values.push_back(round(b, rows(b, Op::Mul, {values[0], values.back()}, columns(values[0]))));
    }
  }

  void repeat(Builder &b, std::vector<Value> &values) {
    Type type = Type::rows(32, Scalar::BF16);
    Value initial = columns(values.back()) == 32 ? values.back() : values[0];
    if (module.type(initial) != type)
      initial = round(b, initial);
    Value argument = module.newValue(type);
    Operation repeat;
    repeat.op = Op::Repeat;
    repeat.operands = {initial};
    repeat.set<attr::count>(2);
    repeat.regions.resize(1);
    repeat.region().args = {argument};
    Builder inner(module, repeat.region());
    inRepeat = true;
    std::vector<Value> own = {argument};
    grow(inner, own, pick(5));
    Value k = round(inner, matmul(inner, own.back(), 16));
    Value v = pick(3) ? round(inner, matmul(inner, own.back(), 16)) : k;
    Operation &append = inner.create(Op::KvAppend, {pick(2) ? rope(inner, k) : k, v}, {Type::kv()});
    append.set<attr::kv_heads>(1);
    append.set<attr::dim>(16);
    Value kv = append.result();
    Value q = own[0];
    Operation &attention = inner.create(Op::Attention, {q, kv}, {Type::rows(32, Scalar::F32)});
    attention.set<attr::heads>(2);
    attention.set<attr::kv_heads>(1);
    attention.set<attr::dim>(16);
    attention.set<attr::scale>(0.25);
    attention.set<attr::tree>(SumTree::Rounds8);
    own.push_back(round(inner, attention.result()));
    grow(inner, own, 2 + pick(10));
    Value last = round(inner, matmul(inner, own.back(), 32));
    last = round(inner, rows(inner, Op::Add, {own[0], last}, 32));
    inner.create(Op::Yield, {last});
    inRepeat = false;
    repeat.results = {module.newValue(type)};
    values.push_back(repeat.results[0]);
    Operation &placed = b.create(Op::Repeat);
    placed = std::move(repeat);
  }

  std::mt19937 random;
  std::vector<Operation> weights;
  bool inRepeat = false;
};

struct Pass {
  const char *name;
  Module (*run)(Module);
  bool mayCopy; ///< it may leave several copies of an operation
};

const Pass tensorPasses[] = {
    {"split-segments", transforms::splitSegments, false},     {"fuse-reducers", transforms::fuseReducers, false},
    {"fuse-projections", transforms::fuseProjections, false}, {"fuse-epilogues", transforms::fuseEpilogues, false},
    {"fuse-prologues", transforms::fusePrologues, true},      {"form-maps", transforms::formMaps, true},
};

std::set<int> distinct(const std::multiset<int> &all) { return {all.begin(), all.end()}; }

void expectValid(const Module &module, const char *pass) {
  SourceFiles files;
  Diagnostics diags(files);
  EXPECT_TRUE(verify(module, diags)) << pass << "\n" << diags.render();
}

TEST(TensorPasses, KeepTheMeaningOfRandomModels) {
  test::Symbolic symbolic;
  for (unsigned seed = 0; seed < 400 && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    Module module = RandomModel(seed).module;
    expectValid(module, "random");
    auto before = symbolic.of(module, *module.find(Op::Model, "m"));
    for (const Pass &pass : tensorPasses) {
      module = pass.run(std::move(module));
      expectValid(module, pass.name);
      auto after = symbolic.of(module, *module.find(Op::Model, "m"));
      EXPECT_EQ(after.logits, before.logits) << pass.name;
      EXPECT_EQ(after.appends, before.appends) << pass.name;
      EXPECT_EQ(distinct(after.plain), distinct(before.plain)) << pass.name;
      EXPECT_TRUE(pass.mayCopy || after.plain == before.plain) << pass.name;
    }
  }
}

TEST(TensorPasses, AreIdempotent) {
  for (unsigned seed = 0; seed < 100 && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    Module module = RandomModel(seed).module;
    for (const Pass &pass : tensorPasses) {
      module = pass.run(std::move(module));
      Module twice = pass.run(module);
      // A second fusion may find more, but must not lose what the first one built.
      EXPECT_TRUE(pass.run == transforms::fuseEpilogues || print(twice) == print(module)) << pass.name;
      expectValid(twice, pass.name);
    }
  }
}

/// What code generation expects of a stream after the last pass.
void checkStream(const Module &module, const Operation &stream) {
  std::vector<const Operation *> products;
  std::map<Value, std::set<size_t>> from; // value -> the products it depends on
  std::set<Value> inner;
  for (const Operation &op : stream.region().ops) {
    if (op.op == Op::Yield)
      break;
    std::set<size_t> of;
    for (Value v : op.operands)
      of.insert(from[v].begin(), from[v].end());
    if (op.op == Op::MatMul) {
      of = {products.size()};
      products.push_back(&op);
      EXPECT_EQ(op.operands[0], products[0]->operands[0]);
    } else if (!of.empty()) {
      int64_t columns = module.type(products[*of.begin()]->result()).size;
      EXPECT_TRUE(op.op != Op::ReduceSum && op.op != Op::ReduceMax) << print(module, op);
      EXPECT_LE(of.size(), 2u);
      for (Value v : op.operands) {
        const Type &type = module.type(v);
        EXPECT_TRUE(type.kind != Type::Rows || op.op == Op::KvAppend || type.size == columns || type.size == 1)
            << print(module, op);
      }
      if (op.op == Op::RotateHalf) {
        EXPECT_EQ(of.size(), 1u);
        EXPECT_EQ(products[*of.begin()]->get<attr::pair>(), Pairing::Half);
        EXPECT_EQ(products[*of.begin()]->get<attr::dim>(), op.get<attr::dim>());
      } else if (op.op == Op::KvAppend) {
        for (Value v : op.operands) {
          ASSERT_EQ(from[v].size(), 1u);
          EXPECT_NE(products[*from[v].begin()]->get<attr::pair>(), Pairing::Dual);
        }
      } else if (of.size() == 2) {
        EXPECT_EQ(products[*of.begin()]->get<attr::partner>(), int64_t(*of.rbegin()));
        EXPECT_EQ(products[*of.rbegin()]->get<attr::partner>(), int64_t(*of.begin()));
        EXPECT_EQ(products[*of.begin()]->get<attr::pair>(), Pairing::Dual);
      }
    } else {
      // Prologue: no reduction of something that depends on a reduction here.
      EXPECT_NE(op.op, Op::RotateHalf);
      if (op.op == Op::ReduceSum || op.op == Op::ReduceMax) {
        EXPECT_EQ(op.get<attr::groups>(), 1);
      }
    }
    for (Value v : op.results)
      from[v] = of;
  }
  ASSERT_FALSE(products.empty());
}

TEST(TensorPasses, LeaveOnlyGroupsAndAttentionInRegions) {
  for (unsigned seed = 0; seed < 200 && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    Module module = RandomModel(seed).module;
    for (const Pass &pass : tensorPasses)
      module = pass.run(std::move(module));
    std::function<void(const Region &)> check = [&](const Region &region) {
      for (const Operation &op : region.ops) {
        EXPECT_TRUE(op.op == Op::Stream || op.op == Op::Map || op.op == Op::Attention || op.op == Op::Repeat ||
                    op.op == Op::Yield)
            << print(module, op);
        if (op.op == Op::Repeat)
          check(op.region());
        if (op.op == Op::Stream)
          checkStream(module, op);
      }
    };
    for (const Operation &child : module.find(Op::Model, "m")->region().ops)
      if (child.op == Op::Segment)
        check(child.region());
  }
}

TEST(TensorPasses, HaveTheSameResultEveryTime) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    Module a = RandomModel(seed).module, b = RandomModel(seed).module;
    for (const Pass &pass : tensorPasses) {
      a = pass.run(std::move(a));
      b = pass.run(std::move(b));
    }
    EXPECT_EQ(print(a), print(b));
  }
}

TEST(TensorPasses, FusedNumericsDropRoundsAndNothingElse) {
  auto count = [](const Module &module, bool rounds) {
    size_t n = 0;
    walk(module.root.region(), [&](const Operation &op) {
      bool plain = op.op != Op::Stream && op.op != Op::Yield;
      n += plain && (op.op == Op::Round) == rounds;
    });
    return n;
  };
  size_t dropped = 0;
  for (unsigned seed = 0; seed < 50 && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    Module exact = transforms::fuseProjections(RandomModel(seed).module);
    Module fused = exact;
    fused.find(Op::Model, "m")->set<attr::numerics>(Numerics::Fused);
    exact = transforms::fuseEpilogues(std::move(exact));
    fused = transforms::fuseEpilogues(std::move(fused));
    expectValid(fused, "fuse-epilogues");
    EXPECT_EQ(count(exact, false), count(fused, false));
    EXPECT_GE(count(exact, true), count(fused, true));
    dropped += count(exact, true) - count(fused, true);
    // Products and the pool still take bf16.
    walk(fused.root.region(), [&](const Operation &op) {
      if (op.op != Op::MatMul && op.op != Op::KvAppend)
        return;
      for (Value v : op.operands)
        EXPECT_EQ(fused.type(v).elem, Scalar::BF16) << print(fused, op);
    });
  }
  EXPECT_GT(dropped, 50u);
}

} // namespace
