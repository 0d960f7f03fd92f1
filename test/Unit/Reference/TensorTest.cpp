#include "../../../lib/Reference/Tensor.h"
#include "../../../lib/Reference/Weights.h"
#include "TinyModel.h"
#include <cmath>

using namespace tiny;

/// The tree `split8`, written out for one output.
static float split8(const std::vector<float> &a, const std::vector<float> &w) {
  size_t padded = (a.size() + 255) / 256 * 256;
  float total = 0;
  for (size_t part = 0; part < 8; ++part) {
    float sum = 0;
    for (size_t k = part * padded / 8; k < (part + 1) * padded / 8 && k < a.size(); ++k)
      sum += a[k] * w[k];
    total += sum;
  }
  return total;
}

TEST(Tensor, ProductFollowsTheTree) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  for (int64_t k : {7, 96, 256, 300, 1000})
    for (int64_t n : {1, 32, 45}) {
      reference::PackedWeight w;
      w.n = n;
      w.k = k;
      w.data.resize(size_t((n + 31) / 32 * 32 * k));
      std::vector<std::vector<float>> lines(n, std::vector<float>(k));
      for (int64_t i = 0; i < n; ++i)
        for (int64_t j = 0; j < k; ++j) {
          float value = roundToBf16(normal(random));
          lines[size_t(i)][size_t(j)] = value;
          w.data[size_t((i / 32 * k + j) * 32 + i % 32)] = floatToBf16(value);
        }
      std::vector<std::vector<float>> a(3, std::vector<float>(size_t(k)));
      std::vector<float> flat, out(size_t(3 * n));
      for (auto &row : a)
        for (float &x : row)
          flat.push_back(x = normal(random));
      reference::multiplySplit8(w, flat.data(), 3, out.data());
      for (size_t r = 0; r < 3; ++r)
        for (size_t i = 0; i < size_t(n); ++i)
          EXPECT_EQ(out[r * size_t(n) + i], split8(a[r], lines[i])) << k << " " << n;
    }
}

/// The same of codes whose scales are of `piece` columns.
static float split8(const std::vector<float> &a, const std::vector<float> &w, size_t piece,
                    const std::vector<float> &scales) {
  const size_t eighth = (a.size() + 255) / 256 * 32;
  float total = 0;
  for (size_t part = 0; part < 8; ++part) {
    float whole = 0;
    size_t k = part * eighth;
    while (k < (part + 1) * eighth && k < a.size()) {
      const size_t number = k / piece;
      float sum = 0;
      for (; k < (part + 1) * eighth && k < a.size() && k / piece == number; ++k)
        sum += a[k] * w[k];
      whole = std::fmaf(scales[number], sum, whole);
    }
    total += whole;
  }
  return total;
}

TEST(Tensor, ProductsOfCodesHaveScalesOfTheirPieces) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  // Pieces that end where eighths do, within them, and that have parts in two.
  for (const auto &[k, piece] : {std::pair<int64_t, int64_t>{96, 32}, {768, 128}, {512, 128}, {1376, 32}, {300, 0}}) {
    constexpr int64_t n = 33, padded = 64;
    const int64_t pieces = piece ? (k + piece - 1) / piece : 1;
    reference::PackedWeight w;
    w.n = n;
    w.k = k;
    w.piece = piece;
    w.data.resize(padded * k);
    w.scales.resize(padded * pieces);
    for (int64_t i = 0; i < k; ++i)
      w.order.push_back(int32_t((i * 7 + 1) % k)); // 7 divides none of them
    std::vector<std::vector<float>> lines(n, std::vector<float>(k)), scales(n, std::vector<float>(pieces));
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < k; ++j) {
        lines[i][j] = float(int(random() % 31) - 15);
        w.data[(i / 32 * k + j) * 32 + i % 32] = floatToBf16(lines[i][j]);
      }
      for (int64_t p = 0; p < pieces; ++p)
        w.scales[p * padded + i] = scales[i][p] = normal(random);
    }
    std::vector<float> a(k), inOrder(k), out(n);
    for (float &x : a)
      x = roundToBf16(normal(random));
    for (int64_t i = 0; i < k; ++i)
      inOrder[i] = a[w.order[i]];
    reference::multiplySplit8(w, a.data(), 1, out.data());
    for (int64_t i = 0; i < n; ++i)
      EXPECT_EQ(out[i], piece ? split8(inOrder, lines[i], piece, scales[i]) : split8(inOrder, lines[i]) * scales[i][0])
          << k << " " << piece << " " << i;
  }
}

TEST(Tensor, ProductsBigEnoughForThreadsFollowTheTree) {
  constexpr int64_t n = 1000, k = 1030;
  reference::PackedWeight w;
  w.n = n;
  w.k = k;
  w.data.resize(1024 * k);
  std::mt19937 random(6);
  std::normal_distribution<float> normal;
  for (uint16_t &bits : w.data)
    bits = floatToBf16(normal(random));
  std::vector<float> a(3 * k), out(3 * n);
  for (float &x : a)
    x = normal(random);
  reference::multiplySplit8(w, a.data(), 3, out.data());
  for (int64_t i : {0, 31, 32, 500, 511, 512, 999}) {
    std::vector<float> line;
    for (int64_t j = 0; j < k; ++j)
      line.push_back(bf16ToFloat(w.data[size_t((i / 32 * k + j) * 32 + i % 32)]));
    EXPECT_EQ(out[size_t(2 * n + i)], split8({a.begin() + 2 * k, a.end()}, line)) << i;
  }
}

/// The model's formulas once more, in doubles and without any rounding.
class DoubleModel {
  using Vec = std::vector<double>;

public:
  Vec logits(const std::vector<int32_t> &tokens) {
    std::vector<Vec> x;
    for (int32_t token : tokens)
      x.push_back(line("embed", token, hidden));
    for (int l = 0; l < layers; ++l) {
      prefix = fmt::format("layers.{}.", l);
      std::vector<Vec> q, k, v;
      for (size_t t = 0; t < x.size(); ++t) {
        Vec h = norm(x[t], prefix + "attn_norm");
        q.push_back(rope(multiply(prefix + "wq", h), t));
        k.push_back(rope(multiply(prefix + "wk", h), t));
        v.push_back(multiply(prefix + "wv", h));
      }
      for (size_t t = 0; t < x.size(); ++t) {
        add(x[t], multiply(prefix + "wo", attend(q[t], k, v, t)));
        Vec h = norm(x[t], prefix + "mlp_norm");
        Vec gate = multiply(prefix + "gate", h), up = multiply(prefix + "up", h);
        for (size_t i = 0; i < gate.size(); ++i)
          gate[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
        add(x[t], multiply(prefix + "down", gate));
      }
    }
    return multiply("head", norm(x.back(), "norm"));
  }

private:
  Vec line(const std::string &name, size_t index, size_t width) {
    const auto &data = weights.tensors.at(name).data;
    Vec out;
    for (size_t i = 0; i < width; ++i)
      out.push_back(bf16ToFloat(data[index * width + i]));
    return out;
  }
  Vec multiply(const std::string &name, const Vec &a) {
    Vec out;
    for (int64_t n = 0; n < weights.tensors.at(name).shape[0]; ++n) {
      Vec w = line(name, size_t(n), a.size());
      double sum = 0;
      for (size_t k = 0; k < a.size(); ++k)
        sum += a[k] * w[k];
      out.push_back(sum);
    }
    return out;
  }
  Vec norm(Vec x, const std::string &name) {
    Vec w = line(name, 0, x.size());
    double square = 0;
    for (double value : x)
      square += value * value;
    for (size_t i = 0; i < x.size(); ++i)
      x[i] *= w[i] / std::sqrt(square / double(x.size()) + 1e-5);
    return x;
  }
  static void add(Vec &x, const Vec &y) {
    for (size_t i = 0; i < x.size(); ++i)
      x[i] += y[i];
  }
  static Vec rope(const Vec &a, size_t position) {
    Vec out(a.size());
    for (size_t i = 0; i < a.size(); ++i) {
      size_t c = i % dim, half = dim / 2;
      double angle = double(position) * std::pow(10000.0, -2.0 * double(c % half) / dim);
      double other = c < half ? -a[i + half] : a[i - half];
      out[i] = a[i] * std::cos(angle) + other * std::sin(angle);
    }
    return out;
  }
  static Vec attend(const Vec &q, const std::vector<Vec> &k, const std::vector<Vec> &v, size_t last) {
    Vec out(q.size());
    for (size_t h = 0; h < heads; ++h) {
      size_t from = h * kvHeads / heads * dim;
      Vec p;
      double total = 0;
      for (size_t t = 0; t <= last; ++t) {
        double s = 0;
        for (size_t d = 0; d < dim; ++d)
          s += q[h * dim + d] * k[t][from + d];
        p.push_back(std::exp(s / std::sqrt(double(dim))));
        total += p.back();
      }
      for (size_t t = 0; t <= last; ++t)
        for (size_t d = 0; d < dim; ++d)
          out[h * dim + d] += p[t] / total * v[t][from + d];
    }
    return out;
  }
  Weights weights;
  std::string prefix;
};

TEST(Tensor, LogitsAreThoseOfTheFormulas) {
  auto requests = prompts(3, 30);
  Options options;
  options.keepLogits = true;
  RunResult result = run(speculative({}), requests, options);
  DoubleModel model;
  for (size_t r = 0; r < requests.size(); ++r) {
    std::vector<int32_t> tokens = requests[r].tokens;
    for (size_t i = 0; i < result.requests[r].tokens.size(); ++i) {
      std::vector<double> exact = model.logits(tokens);
      double error = 0, norm = 0;
      for (size_t c = 0; c < vocab; ++c) {
        error += std::pow(exact[c] - result.requests[r].logits[i][c], 2);
        norm += exact[c] * exact[c];
      }
      // bf16 has 8 bits; a few dozen roundings stand between token and logit.
      EXPECT_LT(std::sqrt(error / norm), 0.03) << "request " << r << ", token " << i;
      tokens.push_back(result.requests[r].tokens[i]);
    }
  }
}
