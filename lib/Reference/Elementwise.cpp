#include "Tensor.h"
#include "megalith/Checkpoint/BFloat16.h"
#include <cmath>
#include <fmt/format.h>

using namespace megalith;
using namespace megalith::reference;
using ir::Op;

/// One line of an operand at the width of the result: `[R, G]` stands for blocks,
/// a vector repeats, a constant is the same everywhere.
static const float *widen(const Matrix &m, int64_t r, int64_t columns, std::vector<float> &scratch) {
  const float *line = m.row(r);
  if (m.cols == columns)
    return line;
  scratch.resize(columns);
  for (int64_t c = 0; c < columns; ++c)
    scratch[c] = m.perRow ? line[c / (columns / m.cols)] : line[c % m.cols];
  return scratch.data();
}

/// The operations of Elementwise.def on one value, under the names that they have in device code.
namespace scalar {
static float add(float a, float b) { return a + b; }
static float sub(float a, float b) { return a - b; }
static float mul(float a, float b) { return a * b; }
static float div(float a, float b) { return a / b; }
static float maximum(float a, float b) { return std::fmax(a, b); }
static float minimum(float a, float b) { return std::fmin(a, b); }
static float neg(float a) { return -a; }
static float toBf16(float a) { return roundToBf16(a); }
static float silu(float a) { return a / (1.0f + std::exp(-a)); }
static float gelu(float x) { return 0.5f * x * (1.0f + std::erf(x * 0.70710678118654752f)); }
/// The tanh form of Hendrycks and Gimpel, https://arxiv.org/abs/1606.08415.
static float geluTanh(float x) {
  constexpr float root = 0.7978845608028654f; // sqrt(2 / pi)
  float inner = root * (x + 0.044715f * (x * (x * x)));
  return 0.5f * x * (1.0f + std::tanh(inner));
}
static float relu(float a) { return std::fmax(a, 0.0f); }
/// log(1 + exp(x)), written so that exp cannot overflow.
static float softplus(float x) { return std::fmax(x, 0.0f) + std::log1p(std::exp(-std::fabs(x))); }
static float sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }
static float hyperbolicTangent(float a) { return std::tanh(a); }
static float exponential(float a) { return std::exp(a); }
static float reciprocalSqrt(float a) { return static_cast<float>(1.0 / std::sqrt(double(a))); } // rounded once
} // namespace scalar

Matrix TensorModel::elementwise(const ir::Operation &op) {
  bool perRow = false;
  int64_t columns = 1;
  for (ir::Value v : op.operands) {
    perRow |= get(v).perRow;
    columns = std::max(columns, get(v).cols);
  }
  Matrix out(perRow ? static_cast<int64_t>(rows.size()) : 1, columns);
  out.perRow = perRow;
  std::vector<float> scratchA, scratchB;
  auto unary = [&](auto f) {
    for (int64_t r = 0; r < out.rows; ++r) {
      const float *a = widen(get(op.operands[0]), r, columns, scratchA);
      float *result = out.row(r);
      for (int64_t c = 0; c < columns; ++c)
        result[c] = f(a[c]);
    }
  };
  auto binary = [&](auto f) {
    for (int64_t r = 0; r < out.rows; ++r) {
      const float *a = widen(get(op.operands[0]), r, columns, scratchA);
      const float *b = widen(get(op.operands[1]), r, columns, scratchB);
      float *result = out.row(r);
      for (int64_t c = 0; c < columns; ++c)
        result[c] = f(a[c], b[c]);
    }
  };
  switch (op.op) {
#define ELEMENTWISE1(Id, function, name)                                                                               \
  case Op::Id:                                                                                                         \
    unary([](float a) { return scalar::function(a); });                                                                \
    break;
#define ELEMENTWISE2(Id, function, name)                                                                               \
  case Op::Id:                                                                                                         \
    binary([](float a, float b) { return scalar::function(a, b); });                                                   \
    break;
#include "megalith/IR/Elementwise.def"
  default:
    throw NotExecutable(fmt::format("`{}` is not a tensor operation", ir::mnemonic(op.op).str()));
  }
  return out;
}
