//===- ElementwiseTest.cpp - activations against their formulas -----------===//
#include "../../../lib/Reference/Tensor.h"
#include "TinyModel.h"
#include <cmath>

using namespace tiny;

namespace {

/// One line of inputs, far into both tails, where a careless formula overflows.
const std::vector<float> inputs = {-200, -90, -20, -4, -1, -0.5f, 0, 0.5f, 1, 4, 20, 90, 200};

class OneLine : public reference::WeightSource {
public:
  OneLine() {
    for (float x : inputs)
      bits.push_back(floatToBf16(x));
  }
  const uint16_t *find(const std::string &, const std::string &, std::vector<int64_t> &shape) override {
    shape = {1, int64_t(bits.size())};
    return bits.data();
  }

private:
  std::vector<uint16_t> bits;
};

/// `call`, which names `inputs` %x, by the reference executor.
std::vector<float> applied(const std::string &call) {
  size_t n = inputs.size();
  ir::Module module = tiny::parse(fmt::format(R"(
module @m {{after = "lower"}} {{
  model @target {{graph = "one", head_dim = 16, hidden = {0}, kv_heads = 1, kv_layers = 1, layers = 1, numerics = "transformers", vocab = {0}}} {{
    weight @embed {{from = "embed", shape = [1, {0}]}}
    segment @forward {{
      %x = embed @embed : [R, {0}] bf16
      %k = const {{value = 0.75}} : f32
      %y = {1} : [R, {0}] f32
      yield(%y)
    }}
  }}
}}
)",
                                              n, call));
  OneLine weights;
  reference::TensorModel model(module, *module.root.region().ops.begin(), weights, 1, 16);
  std::vector<reference::PageTable> tables;
  std::vector<Row> rows = {{.slot = 0,
                            .token = 0,
                            .position = 0,
                            .kvSlot = 0,
                            .visible = 1,
                            .parent = -1,
                            .flags = RowWantsLogits,
                            .result = -1}};
  return model.run(rows, tables).logits.data;
}

} // namespace

TEST(Elementwise, ActivationsAreTheirFormulas) {
  struct Case {
    const char *call;
    double (*formula)(double);
  };
  const Case cases[] = {
      {"silu(%x)", [](double x) { return x / (1 + std::exp(-x)); }},
      {"gelu(%x)", [](double x) { return 0.5 * x * std::erfc(-x / std::sqrt(2.0)); }},
      {"gelu_tanh(%x)",
       [](double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }},
      {"relu(%x)", [](double x) { return x > 0 ? x : 0; }},
      {"softplus(%x)", [](double x) { return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x)); }},
      {"sigmoid(%x)", [](double x) { return 1 / (1 + std::exp(-x)); }},
      {"tanh(%x)", [](double x) { return std::tanh(x); }},
      {"neg(%x)", [](double x) { return -x; }},
      {"add(%x, %k)", [](double x) { return x + 0.75; }},
      {"sub(%k, %x)", [](double x) { return 0.75 - x; }},
      {"mul(%x, %k)", [](double x) { return x * 0.75; }},
      {"div(%x, %k)", [](double x) { return x / 0.75; }},
      {"max(%x, %k)", [](double x) { return x > 0.75 ? x : 0.75; }},
      {"min(%k, %x)", [](double x) { return x < 0.75 ? x : 0.75; }},
  };
  for (const Case &c : cases) {
    std::vector<float> values = applied(c.call);
    ASSERT_EQ(values.size(), inputs.size());
    for (size_t i = 0; i < inputs.size(); ++i) {
      double exact = c.formula(inputs[i]);
      // A few roundings of f32; gelu cancels in its left tail.
      EXPECT_NEAR(values[i], exact, 1e-6 * (1 + std::fabs(exact))) << c.call << " of " << inputs[i];
    }
  }
}

/// The right tail is x itself, the left one the tail of exp: nothing is lost to `1 +`.
TEST(Elementwise, SoftplusKeepsItsTails) {
  std::vector<float> values = applied("softplus(%x)");
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i] >= 20) {
      EXPECT_EQ(values[i], inputs[i]);
    }
    if (inputs[i] == -20) {
      EXPECT_NEAR(values[i] / std::exp(-20.0), 1, 1e-6);
    }
  }
  EXPECT_EQ(values.front(), 0);
  EXPECT_EQ(values[6], std::log(2.0f));
}
