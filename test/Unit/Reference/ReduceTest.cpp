//===- ReduceTest.cpp - what reducers make of a row -----------------------===//
#include "megalith/Reference/Reduce.h"
#include "device/Exact.h"
#include "device/Sampling.h"
#include "test/Unit/Automata/Vocabulary.h"
#include <algorithm>
#include <bit>
#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <map>
#include <random>

using namespace megalith;

namespace {

constexpr float unlimited = std::numeric_limits<float>::infinity();

float one(const RowReduction &with, const std::vector<float> &logits) {
  return std::bit_cast<float>(reduceRow(with, logits).at(0));
}
RowReduction reducer(const char *name, float temperature = 1, int32_t topK = 0, float topP = 1, float minP = 0) {
  RowReduction r;
  static const std::map<std::string, Reducer> named = {
#define REDUCER(Id, Name, ...) {Name, Reducer::Id},
#include "megalith/Contract/Reducers.def"
      {"top_k.prob", Reducer::TopK}};
  r.reducer = named.at(name);
  r.probs = name == std::string("top_k.prob");
  r.temperature = temperature;
  r.topK = topK;
  r.topP = topP;
  r.minP = minP;
  return r;
}
std::vector<float> randomRow(size_t vocab, uint32_t seed, float width = 2) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, width);
  std::vector<float> row(vocab);
  for (float &z : row)
    z = std::round(normal(random) * 32) / 32; // with ties, as bf16 has them
  return row;
}
/// Probabilities in f64, over the tokens that settings leave.
std::vector<double> exactly(const RowReduction &with, const std::vector<float> &logits) {
  std::vector<double> p(logits.size(), 0.0);
  double sum = 0;
  const float m = *std::max_element(logits.begin(), logits.end());
  for (int32_t t : tokensLeft(with, logits))
    sum += p[t] = std::exp((double(logits[t]) - m) / with.temperature);
  for (double &v : p)
    v /= sum;
  return p;
}
/// Chi squared of `counts` against `p`, in standard deviations from its mean. Cells with few are taken together.
double deviation(const std::vector<int> &counts, const std::vector<double> &p) {
  double n = 0, chi = 0, restP = 0, restCount = 0;
  int cells = -1;
  for (int c : counts)
    n += c;
  const auto cell = [&](double count, double expected) {
    chi += (count - expected) * (count - expected) / expected;
    ++cells;
  };
  for (size_t i = 0; i < p.size(); ++i) {
    if (p[i] * n >= 8) {
      cell(counts[i], p[i] * n);
    } else {
      restP += p[i];
      restCount += counts[i];
    }
  }
  if (restP * n >= 1)
    cell(restCount, restP * n);
  else
    EXPECT_LE(restCount, 6);
  return (chi - cells) / std::sqrt(2.0 * cells);
}

TEST(ReduceTest, ValuesOfARow) {
  const std::vector<float> row = {1.0f, 3.0f, 2.0f, 3.0f, -unlimited};
  EXPECT_EQ(reduceRow(reducer("argmax"), row), (std::vector<int32_t>{1}));
  const double sum = std::exp(1.0) + 2 * std::exp(3.0) + std::exp(2.0);
  EXPECT_NEAR(one(reducer("max_prob"), row), std::exp(3.0) / sum, 1e-6);
  EXPECT_NEAR(one(reducer("logsumexp"), row), std::log(sum), 1e-6);
  RowReduction prob = reducer("prob");
  for (auto [token, expected] : std::map<int32_t, double>{{0, std::exp(1.0) / sum}, {4, 0}, {5, 0}, {-1, 0}}) {
    prob.token = token;
    EXPECT_NEAR(one(prob, row), expected, 1e-7) << token;
  }
  double entropy = 0;
  for (double e : {1.0, 3.0, 2.0, 3.0})
    entropy -= std::exp(e) / sum * std::log(std::exp(e) / sum);
  EXPECT_NEAR(one(reducer("entropy"), row), entropy, 1e-6);
  RowReduction top = reducer("top_k");
  top.n = 3;
  EXPECT_EQ(reduceRow(top, row), (std::vector<int32_t>{1, 3, 2}));
  top.probs = true;
  EXPECT_NEAR(std::bit_cast<float>(reduceRow(top, row)[2]), std::exp(2.0) / sum, 1e-7);
}

TEST(ReduceTest, ATemperatureOfZeroIsArgmax) {
  const std::vector<float> row = {1.0f, 3.0f, 2.0f, 3.0f};
  for (float t : {0.0f, -1.0f, 1e-9f, std::nanf("")}) {
    RowReduction sample = reducer("sample", t, 2, 0.1f, 0.9f);
    EXPECT_EQ(reduceRow(sample, row), (std::vector<int32_t>{1}));
    sample.n = 4;
    EXPECT_EQ(reduceRow(sample, row), (std::vector<int32_t>{1, 3, 2, 0})); // the likeliest, in their order
    EXPECT_EQ(one(reducer("max_prob", t), row), 1.0f);
    EXPECT_EQ(one(reducer("entropy", t), row), 0.0f);
    EXPECT_EQ(one(reducer("logsumexp", t), row), 3.0f);
    const float zero = one(reducer("logsumexp", t), {-0.0f, -1.0f}); // as kernels do: their order has one zero
    EXPECT_TRUE(zero == 0.0f && !std::signbit(zero));
    RowReduction prob = reducer("prob", t);
    prob.token = 3; // as good, but not the best
    EXPECT_EQ(one(prob, row), 0.0f);
    prob.token = 1;
    EXPECT_EQ(one(prob, row), 1.0f);
  }
}

TEST(ReduceTest, SettingsLeaveTheTokensThatTheyShould) {
  const std::vector<float> row = {1.0f, 3.0f, 2.0f, 3.0f, 0.0f, 2.0f};
  using Tokens = std::vector<int32_t>;
  EXPECT_EQ(tokensLeft(reducer("sample", 1, 1), row), (Tokens{1, 3})); // all that equal the k-th
  EXPECT_EQ(tokensLeft(reducer("sample", 1, 3), row), (Tokens{1, 2, 3, 5}));
  EXPECT_EQ(tokensLeft(reducer("sample", 1, 6), row).size(), 6u);
  EXPECT_EQ(tokensLeft(reducer("sample", 1, -1), row).size(), 6u);
  // Masses: e^3 twice, e^2 twice, e, 1; sum 58.7. The best has .342.
  EXPECT_EQ(tokensLeft(reducer("sample", 1, 0, 0.3f), row), (Tokens{1}));
  EXPECT_EQ(tokensLeft(reducer("sample", 1, 0, 0.35f), row), (Tokens{1, 3}));
  EXPECT_EQ(tokensLeft(reducer("sample", 1, 0, 0.7f), row), (Tokens{1, 2, 3}));
  EXPECT_EQ(tokensLeft(reducer("sample", 1, 0, 1e-30f), row), (Tokens{1}));
  // top_p of what top_k left: .5 is reached by the first of two.
  EXPECT_EQ(tokensLeft(reducer("sample", 1, 2, 0.5f), row), (Tokens{1}));
  EXPECT_EQ(tokensLeft(reducer("sample", 1, 0, 1, 0.3f), row), (Tokens{1, 2, 3, 5})); // e^-1 = .37
  EXPECT_EQ(tokensLeft(reducer("sample", 1, 0, 1, 0.4f), row), (Tokens{1, 3}));
  EXPECT_EQ(tokensLeft(reducer("sample", 2, 0, 1, 0.4f), row), (Tokens{1, 2, 3, 5})); // of z / T
  EXPECT_EQ(tokensLeft(reducer("sample", 1, 0, 1, 5.0f), row), (Tokens{1, 3}));
  // A token that the settings leave out has no probability, and the others have all.
  RowReduction prob = reducer("prob", 1, 1);
  prob.token = 3;
  EXPECT_EQ(one(prob, row), 0.5f);
  prob.token = 2;
  EXPECT_EQ(one(prob, row), 0.0f);
}

TEST(ReduceTest, LogitsWithoutBounds) {
  const std::vector<float> high = {1.0f, unlimited, unlimited, 0.0f}, low(4, -unlimited);
  EXPECT_EQ(one(reducer("max_prob"), high), 0.5f);
  EXPECT_EQ(one(reducer("max_prob"), low), 0.25f);
  EXPECT_EQ(tokensLeft(reducer("sample", 1, 0, 0.9f), high), (std::vector<int32_t>{1, 2}));
  for (int32_t position = 0; position < 50; ++position) {
    RowReduction sample = reducer("sample");
    sample.position = position;
    const int32_t token = reduceRow(sample, high).at(0);
    EXPECT_TRUE(token == 1 || token == 2);
  }
}

TEST(ReduceTest, DrawsHaveTheirLaw) {
  for (uint32_t seed : {1u, 2u, 3u}) {
    const std::vector<float> row = randomRow(64, seed);
    RowReduction sample = seed == 1   ? reducer("sample", 0.8f)
                          : seed == 2 ? reducer("sample", 1.3f, 20, 0.9f, 0.02f)
                                      : reducer("sample", 1.0f, 0, 0.95f);
    sample.requestSeed = seed;
    std::vector<int> counts(row.size());
    for (sample.position = 0; sample.position < 20000; ++sample.position)
      ++counts[reduceRow(sample, row).at(0)];
    EXPECT_LT(std::fabs(deviation(counts, exactly(sample, row))), 4) << seed;
  }
}

// The first n in the order of the draw: the second has the law of the rest.
TEST(ReduceTest, SeveralDrawsAreWithoutReplacement) {
  const std::vector<float> row = randomRow(6, 5, 1);
  RowReduction sample = reducer("sample");
  sample.n = 2;
  const std::vector<double> p = exactly(sample, row);
  std::vector<int> counts(36);
  std::vector<double> expected(36);
  for (sample.position = 0; sample.position < 20000; ++sample.position) {
    const std::vector<int32_t> two = reduceRow(sample, row);
    ++counts[two.at(0) * 6 + two.at(1)];
  }
  for (int a = 0; a < 6; ++a)
    for (int b = 0; b < 6; ++b)
      expected[a * 6 + b] = a == b ? 0 : p[a] * p[b] / (1 - p[a]);
  EXPECT_LT(std::fabs(deviation(counts, expected)), 4);
  sample.n = 10; // more than there are
  EXPECT_EQ(reduceRow(sample, row).size(), 6u);
}

/// One step of rejection sampling (Leviathan et al.) with its mistakes.
struct Rejection {
  bool reuseNoise = false;   ///< the residual is drawn with the noise of the draft
  bool dropUnlikely = false; ///< drafts of low probability are not verified
  bool oneSided = false;     ///< q is taken without top_p, with which the draft was drawn
  bool roundedDraft = false; ///< the draft is drawn from logits in bf16, q is of those in f32
  bool keyedByRow = false;   ///< noise is keyed by the row of the batch, not by the position
  float temperature = 0.9f, topP = 1;

  double deviationOfLaw() const {
    const std::vector<float> target = randomRow(16, 11, 1.5f);
    std::vector<float> small = randomRow(16, 12, 1.5f), drawnFrom = small;
    if (roundedDraft) {
      for (float &z : small)
        z += 120; // where bf16 has steps of a half
      drawnFrom = small;
      for (float &z : drawnFrom)
        z = std::bit_cast<float>((std::bit_cast<uint32_t>(z) + 0x8000u) & 0xffff0000u);
    }
    const RowReduction law = reducer("sample", temperature, 0, topP);
    std::vector<int> counts(16);
    for (int32_t step = 0; step < 20000; ++step) {
      const int32_t position = keyedByRow ? step % 128 : step;
      RowReduction draft = law;
      draft.position = position;
      draft.noise = 1;
      const int32_t token = reduceRow(draft, drawnFrom).at(0);
      RowReduction prob = law;
      prob.reducer = Reducer::Prob;
      prob.token = token;
      const float p = one(prob, target);
      if (oneSided)
        prob.topP = 1;
      const float q = one(prob, small);
      RowReduction other = law;
      other.position = position;
      other.noise = reuseNoise ? 1 : 2;
      if (dropUnlikely && q < 0.1f) {
        ++counts[reduceRow(other, target).at(0)];
        continue;
      }
      other.minus = small;
      const bool accepted = sampling::uniform({0, 0}, position, 0, 3) * q < p;
      ++counts[accepted ? token : reduceRow(other, target).at(0)];
    }
    return deviation(counts, exactly(law, target));
  }
};

TEST(ReduceTest, RejectionWithResidualHasThePlainLaw) {
  EXPECT_LT(std::fabs(Rejection().deviationOfLaw()), 4);
  Rejection nucleus;
  nucleus.topP = 0.8f;
  EXPECT_LT(std::fabs(nucleus.deviationOfLaw()), 4);
}

// What others got wrong changes the law, and this test would see it.
TEST(ReduceTest, MistakesOfRejectionAreSeen) {
  Rejection reused, dropped, oneSided, rounded, keyedByRow;
  rounded.roundedDraft = true;
  EXPECT_GT(rounded.deviationOfLaw(), 10);
  keyedByRow.keyedByRow = true;
  EXPECT_GT(keyedByRow.deviationOfLaw(), 10);
  reused.reuseNoise = true;
  EXPECT_GT(reused.deviationOfLaw(), 10);
  dropped.dropUnlikely = true;
  EXPECT_GT(dropped.deviationOfLaw(), 10);
  oneSided.temperature = 1.3f;
  oneSided.topP = 0.85f;
  oneSided.oneSided = true;
  EXPECT_GT(oneSided.deviationOfLaw(), 10);
}

/// Two tokens, of which the second depends on the first.
struct Pairs {
  static constexpr int vocab = 5;
  std::vector<std::vector<float>> target, small; ///< row 0, then the row after each token
  Pairs() {
    for (uint32_t i = 0; i <= vocab; ++i) {
      target.push_back(randomRow(vocab, 40 + i, 1.2f));
      small.push_back(randomRow(vocab, 60 + i, 1.2f));
    }
  }
  /// In standard deviations, of `step(position)`: two tokens. The law is that of two draws, one after the other.
  template <class Step> double deviationOfLaw(Step step) const {
    const RowReduction law = reducer("sample");
    std::vector<int> counts(vocab * vocab);
    std::vector<double> p(vocab * vocab);
    for (int32_t i = 0; i < 20000; ++i) {
      const auto [a, b] = step(2 * i);
      ++counts[a * vocab + b];
    }
    const std::vector<double> first = exactly(law, target[0]);
    for (int a = 0; a < vocab; ++a)
      for (int b = 0; b < vocab; ++b)
        p[a * vocab + b] = first[a] * exactly(law, target[1 + a])[b];
    return deviation(counts, p);
  }
  static int drawn(const std::vector<float> &row, int32_t position, int32_t noise, std::span<const float> minus = {}) {
    RowReduction sample = reducer("sample");
    sample.position = position;
    sample.noise = noise;
    sample.minus = minus;
    return reduceRow(sample, row).at(0);
  }
};

// A block of one draft: when it is accepted, the row after it gives a token for nothing.
TEST(ReduceTest, TheTokenAfterADraftIsOfTheRowAfterIt) {
  const Pairs pairs;
  const auto block = [&](int32_t position, bool wrongRow) {
    const int draft = Pairs::drawn(pairs.small[0], position, 1);
    RowReduction prob = reducer("prob");
    prob.token = draft;
    const bool accepted =
        sampling::uniform({0, 0}, position, 0, 3) * one(prob, pairs.small[0]) < one(prob, pairs.target[0]);
    const int first = accepted ? draft : Pairs::drawn(pairs.target[0], position, 2, pairs.small[0]);
    const int row = wrongRow && accepted ? 0 : 1 + first;
    return std::pair(first, Pairs::drawn(pairs.target[row], position + 1, 2));
  };
  EXPECT_LT(std::fabs(pairs.deviationOfLaw([&](int32_t at) { return block(at, false); })), 4);
  EXPECT_GT(pairs.deviationOfLaw([&](int32_t at) { return block(at, true); }), 10);
}

// A head that guesses the token after the next one draws with the noise of that token's position (`ahead=1`).
TEST(ReduceTest, AHeadDoesNotDrawWithTheNoiseOfTheTokenBeforeItsOwn) {
  const Pairs pairs;
  const auto heads = [&](int32_t position, int32_t ahead) {
    const int first = Pairs::drawn(pairs.target[0], position, 0);
    return std::pair(first, Pairs::drawn(pairs.target[1 + first], position + ahead, 0));
  };
  EXPECT_LT(std::fabs(pairs.deviationOfLaw([&](int32_t at) { return heads(at, 1); })), 4);
  EXPECT_GT(pairs.deviationOfLaw([&](int32_t at) { return heads(at, 0); }), 10);
}

// docs/language.md, "Settings that follow the text".
TEST(ReduceTest, EditsComeInTheirOrder) {
  const std::vector<float> row = {1.0f, 3.0f, -2.0f, 4.0f, 2.0f};
  Sampling s;
  s.bias = {{0, 0.5f}, {9, 1.0f}}; // no token of this model
  s.repetitionPenalty = 2;
  s.frequencyPenalty = 0.25f;
  s.presencePenalty = 0.125f;
  s.banned = {3};
  RowEdits edits{&s, true, {0, 2, 1, 1, 4}, 2, {4}};
  EditedRow made = edit(edits, row);
  // 0: biased, then halved. 2: of the prompt, below 0. 1: halved, twice there. 4: halved, once there.
  EXPECT_EQ(made.logits, (std::vector<float>{0.75f, 1.5f - 0.5f - 0.125f, -4.0f, 4.0f, 1.0f - 0.25f - 0.125f}));
  EXPECT_EQ(made.refused, (std::vector<bool>{false, false, false, true, true}));
  edits.knowsText = false; // the text is not known
  EXPECT_EQ(edit(edits, row).logits, (std::vector<float>{1.5f, 3.0f, -2.0f, 4.0f, 2.0f}));
  s.allowed = {3, 1};
  EXPECT_EQ(edit(edits, row).refused, (std::vector<bool>{true, false, true, true, true}));
  EXPECT_TRUE(edit({}, row).logits.empty());
}

TEST(ReduceTest, WhatIsRefusedTakesNoPart) {
  const std::vector<float> row = {1.0f, 3.0f, 2.0f, 4.0f, -1.0f};
  Sampling s;
  s.banned = {3};
  const auto edited = [&](RowReduction with) {
    with.edits.settings = &s;
    return with;
  };
  const std::vector<float> left = {1.0f, 3.0f, 2.0f, -1.0f};
  for (const char *name : {"max_prob", "logsumexp", "entropy"})
    for (const float topP : {1.0f, 0.8f})
      EXPECT_EQ(one(edited(reducer(name, 1, 0, topP)), row), one(reducer(name, 1, 0, topP), left)) << name;
  RowReduction four = edited(reducer("top_k"));
  four.n = 5;
  EXPECT_EQ(reduceRow(four, row), (std::vector<int32_t>{1, 2, 0, 4}));
  four = edited(reducer("sample", 1, 2)); // with the border of what is left
  four.n = 5;
  EXPECT_EQ(reduceRow(four, row).size(), 2u);
  EXPECT_EQ(reduceRow(edited(reducer("sample", 0)), row), (std::vector<int32_t>{1}));
  RowReduction prob = edited(reducer("prob"));
  prob.token = 3;
  EXPECT_EQ(one(prob, row), 0.0f);
  // A replay of other sums: what is near may be there, what is refused may not.
  const RowReduction best = edited(reducer("sample", 0));
  EXPECT_EQ(whyNotReduced(best, row, {2}, 0.6), "");
  EXPECT_NE(whyNotReduced(best, row, {2}, 0.4), "");
  EXPECT_NE(whyNotReduced(best, row, {3}, 0.6), "");
  s.banned = {0, 1, 2, 3, 4};
  EXPECT_TRUE(reduceRow(edited(reducer("sample")), row).empty());
  EXPECT_TRUE(reduceRow(edited(reducer("top_k")), row).empty());
  EXPECT_EQ(one(edited(reducer("max_prob")), row), 0.0f);
  EXPECT_EQ(one(edited(reducer("entropy")), row), 0.0f);
  EXPECT_EQ(one(edited(reducer("logsumexp")), row), -unlimited);
  EXPECT_EQ(whyNotReduced(edited(reducer("sample")), row, {}, 0.1), "");
  EXPECT_NE(whyNotReduced(edited(reducer("sample")), row, {3}, 0.1), "");
}

TEST(ReduceTest, DrawsOfAnEditedRowHaveItsLaw) {
  Sampling s;
  s.bias = {{3, 1.5f}, {7, -0.75f}};
  s.repetitionPenalty = 1.5f;
  s.frequencyPenalty = 0.5f;
  s.banned = {1, 12};
  for (const auto &[temperature, topK, topP] : {std::tuple(1.0f, 0, 1.0f), {0.7f, 0, 0.9f}, {1.3f, 12, 1.0f}}) {
    const std::vector<float> row = randomRow(40, 71);
    RowReduction sample = reducer("sample", temperature, topK, topP);
    sample.edits = {&s, true, {3, 5, 5, 9, 20}, 1, {}};
    const EditedRow made = edit(sample.edits, row);
    std::vector<double> p(row.size());
    double sum = 0;
    for (int32_t t : tokensLeft(sample, row))
      sum += p[t] = std::exp(made.logits[t] / temperature);
    for (double &v : p)
      v /= sum;
    EXPECT_EQ(p[1] + p[12], 0.0);
    std::vector<int> counts(row.size());
    for (sample.position = 0; sample.position < 12000; ++sample.position)
      ++counts[reduceRow(sample, row).at(0)];
    EXPECT_LT(std::fabs(deviation(counts, p)), 4);
  }
}

TEST(ReduceTest, AResidualOfEqualRowsIsAPlainDraw) {
  const std::vector<float> row = randomRow(16, 3);
  for (int32_t position = 0; position < 100; ++position) {
    RowReduction plain = reducer("sample");
    plain.position = position;
    plain.noise = 2;
    RowReduction rest = plain;
    rest.minus = row;
    EXPECT_EQ(reduceRow(rest, row), reduceRow(plain, row));
  }
}

// Where probabilities are equal, so are draws with the same noise; heads look ahead.
TEST(ReduceTest, NoiseIsOfThePositionAndTheToken) {
  const std::vector<float> row = randomRow(64, 9, 0.5f);
  std::vector<float> other = row;
  for (float &z : other)
    z += 1; // the same law
  int same = 0, ahead = 0, noises = 0;
  for (int32_t position = 0; position < 200; ++position) {
    RowReduction sample = reducer("sample");
    sample.position = position;
    const auto drawn = reduceRow(sample, row);
    same += drawn == reduceRow(sample, other);
    RowReduction next = sample;
    next.position = position + 1;
    ahead += drawn == reduceRow(next, row);
    RowReduction noise = sample;
    noise.noise = 1;
    noises += drawn == reduceRow(noise, row);
  }
  EXPECT_GE(same, 198); // z + 1 is rounded
  EXPECT_LT(ahead, 30);
  EXPECT_LT(noises, 30);
}

TEST(ReduceTest, AReplayAllowsWhatAnErrorOfLogitsCanDo) {
  const double error = 0.02;
  std::mt19937 random(4);
  std::uniform_real_distribution<float> wrong(-float(error) * 0.99f, float(error) * 0.99f);
  for (uint32_t seed = 0; seed < 60; ++seed) {
    std::vector<float> row = randomRow(64, seed), other = row;
    for (float &z : other)
      z += wrong(random);
    for (const char *name : {"sample", "max_prob", "logsumexp", "entropy", "prob", "top_k", "top_k.prob", "argmax"}) {
      RowReduction with = seed % 3 == 0   ? reducer(name, 0.7f, 20, 0.9f, 0.01f)
                          : seed % 3 == 1 ? reducer(name, 1.3f, 0, 0.95f)
                                          : reducer(name, 0.0f);
      with.position = static_cast<int32_t>(seed);
      with.token = static_cast<int32_t>(seed);
      with.n = 3;
      EXPECT_EQ(whyNotReduced(with, row, reduceRow(with, other), error), "") << name << " " << seed;
    }
  }
}

TEST(ReduceTest, AReplayAllowsWhatErrorsOfBothRowsCanDoToADifference) {
  const double error = 0.02;
  std::mt19937 random(5);
  std::uniform_real_distribution<float> wrong(-float(error) * 0.9f, float(error) * 0.9f);
  int seen = 0;
  for (uint32_t seed = 0; seed < 200; ++seed) {
    const std::vector<float> row = randomRow(64, seed);
    std::vector<float> small = seed % 5 ? randomRow(64, seed + 1000) : row, otherRow = row, otherSmall = small;
    for (float &z : otherRow)
      z += wrong(random);
    for (float &z : otherSmall)
      z += wrong(random) * 0.5f;
    RowReduction sample = seed % 2 ? reducer("sample", 0.7f, 20, 0.9f, 0.01f) : reducer("sample", 1.3f, 0, 0.95f);
    sample.position = static_cast<int32_t>(seed);
    sample.minus = otherSmall;
    const std::vector<int32_t> drawn = reduceRow(sample, otherRow);
    sample.minus = small;
    EXPECT_EQ(whyNotReduced(sample, row, drawn, error), "") << seed;
    // The likeliest token of the small row is mostly one of which nothing is left.
    const auto best = static_cast<int32_t>(std::max_element(small.begin(), small.end()) - small.begin());
    seen += whyNotReduced(sample, row, {best}, 0.001) != "";
  }
  EXPECT_GT(seen, 100);
}

TEST(ReduceTest, AReplaySeesWhatIsWrong) {
  const std::vector<float> row = {0.0f, 2.0f, 1.0f, -3.0f};
  const auto bits = [](float v) { return std::vector<int32_t>{std::bit_cast<int32_t>(v)}; };
  RowReduction sample = reducer("sample", 1, 2);
  const int32_t right = reduceRow(sample, row).at(0);
  EXPECT_EQ(whyNotReduced(sample, row, {3}, 0.01), "token 3, which the settings leave out");
  EXPECT_NE(whyNotReduced(sample, row, {right == 1 ? 2 : 1}, 0.01), "");
  EXPECT_EQ(whyNotReduced(sample, row, {4}, 0.01), "token 4, which is none");
  EXPECT_NE(whyNotReduced(sample, row, {}, 0.01), "");
  EXPECT_NE(whyNotReduced(reducer("max_prob"), row, bits(0.5f), 0.01), "");
  EXPECT_NE(whyNotReduced(reducer("max_prob"), row, bits(std::nanf("")), 0.01), "");
  EXPECT_NE(whyNotReduced(reducer("entropy"), row, bits(0.2f), 0.01), "");
  EXPECT_NE(whyNotReduced(reducer("logsumexp"), row, bits(2.0f), 0.01), "");
  RowReduction prob = reducer("prob", 1, 2);
  prob.token = 0;
  EXPECT_NE(whyNotReduced(prob, row, bits(0.1f), 0.01), "");
  EXPECT_EQ(whyNotReduced(prob, row, bits(0.0f), 0.01), "");
}

} // namespace

// docs/language.md, "Formats": a model that knows nothing of the format, and a vocabulary as large as a real one.
TEST(ReduceTest, RowsNeverLeaveTheirFormat) {
  const auto tokens = std::make_shared<automata::TokenBytes>(automata::likeARealVocabulary(128256));
  automata::Formats formats(tokens);
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0, 4);
  std::vector<float> row(tokens->tokens.size());
  int complete = 0;
  const char *schema = R"({"json_schema": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 6},
      "is": {"type": "boolean"}, "of": {"type": "array", "items": {"enum": ["a", "bb", 3]}, "maxItems": 2}},
      "required": ["name", "is", "of"], "additionalProperties": false}})";
  for (const char *text :
       {schema, R"({"regex": "[A-Z][a-z]{1,5}( [0-9]{1,3}){0,3}\\."})", R"({"choice": ["né", "no"]})"})
    for (const float temperature : {0.0f, 1.3f}) {
      const auto format = formats.find(text);
      EXPECT_EQ(formats.find(text), format); // kept
      const automata::Automaton &automaton = format->format.automaton;
      Sampling s;
      s.format = text;
      const int32_t eos = 128255;
      std::string answer;
      RowEdits edits{&s, true, {7}, 1, {}, format.get(), automaton.start, {eos}};
      RowReduction draw = reducer("sample");
      draw.temperature = temperature;
      while (!format->isFinal(edits.state)) {
        ASSERT_LT(++draw.position, 300);
        for (float &z : row)
          z = normal(random);
        draw.edits = edits;
        const std::vector<int32_t> drawn = reduceRow(draw, row);
        ASSERT_EQ(drawn.size(), 1u) << answer;
        if (drawn[0] == eos)
          break;
        answer += tokens->tokens[drawn[0]];
        edits.state = format->step(edits.state, drawn[0]);
        ASSERT_NE(edits.state, automata::Automaton::Dead) << answer;
      }
      EXPECT_TRUE(automaton.accepts(answer)) << answer;
      complete += automaton.accepts(answer);

      // Behind the end, and behind what it refuses, nothing comes.
      edits.state = automata::Automaton::Dead;
      draw.edits = edits;
      EXPECT_TRUE(reduceRow(draw, row).empty());
      EXPECT_EQ(whyNotReduced(draw, row, {5}, 0), "no token is left, and it is not what that gives");
      RowReduction sum = reducer("logsumexp");
      sum.edits = edits;
      EXPECT_EQ(one(sum, row), -std::numeric_limits<float>::infinity());
    }
  EXPECT_EQ(complete, 6);
  EXPECT_THROW(formats.find(R"({"regex": "("})"), automata::Refused);
}

// Numbers are added first, so a penalty sees them; a token has to be let through by both.
TEST(ReduceTest, ByHandThenTheRequest) {
  Sampling s;
  s.repetitionPenalty = 2;
  s.allowed = {{1, 2, 3}};
  RowEdits edits;
  edits.byHand = true;
  edits.only = {{2, 3, 4, 77}};
  edits.without = {4, -1};
  edits.added = {{2, 1.5f}, {2, 0.5f}, {9, 1.0f}};
  const std::vector<float> row = {0, 1, -1, 2, 5};
  EditedRow out = edit(edits, row);
  EXPECT_EQ(out.logits, (std::vector<float>{0, 1, 1, 2, 5}));
  EXPECT_EQ(out.refused, (std::vector<bool>{true, true, false, false, true}));
  edits.settings = &s;
  edits.text = {2};
  out = edit(edits, row);
  EXPECT_EQ(out.logits, (std::vector<float>{0, 1, 0.5f, 2, 5}));
  EXPECT_EQ(out.refused, (std::vector<bool>{true, true, false, false, true}));
  s.allowed = {{0, 1}};
  EXPECT_EQ(edit(edits, row).refused, std::vector<bool>(5, true));
}

// An end token may come where the format is complete and goes on, whatever it spells.
TEST(ReduceTest, EndsOfAFormat) {
  const auto tokens = std::make_shared<automata::TokenBytes>(std::vector<std::string>{"a", "b", "ab", "", "b"});
  automata::Formats formats(tokens, 1);
  const auto format = formats.find(R"({"regex": "ab{0,2}"})");
  formats.find(R"({"choice": ["b"]})"); // the other one is let go, and stays with who holds it
  EXPECT_NE(formats.find(R"({"regex": "ab{0,2}"})"), format);
  Sampling s;
  RowEdits edits{&s, true, {}, 0, {}, format.get(), format->format.automaton.start, {4}};
  const std::vector<float> row(6, 1.0f);
  const auto refused = [&](const char *text) {
    edits.state = format->format.automaton.walk(format->format.automaton.start, text);
    return edit(edits, row).refused;
  };
  EXPECT_EQ(refused(""), (std::vector<bool>{false, true, false, true, true, true}));
  EXPECT_EQ(refused("a"), (std::vector<bool>{true, false, true, true, false, true}));
  EXPECT_EQ(refused("ab"), (std::vector<bool>{true, false, true, true, false, true}));
  EXPECT_EQ(refused("abb"), std::vector<bool>(6, true)); // it has ended
  edits.early = {4};
  EXPECT_EQ(refused("a"), (std::vector<bool>{true, false, true, true, true, true}));
  EXPECT_EQ(format->step(format->format.automaton.start, -1), automata::Automaton::Dead);
  EXPECT_EQ(format->step(format->format.automaton.start, 3), automata::Automaton::Dead);
  EXPECT_EQ(format->step(format->format.automaton.start, 9), automata::Automaton::Dead);
}
