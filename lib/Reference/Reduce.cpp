#include "megalith/Reference/Reduce.h"
#include "device/Exact.h"
#include "device/Sampling.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>
#include <bit>
#include <cmath>
#include <fmt/format.h>
#include <map>
#include <optional>
#include <set>

using namespace megalith;
using namespace megalith::sampling;

namespace {

/// A row under settings: its masses, and S.
class RowMasses {
public:
  RowMasses(const RowReduction &with, std::span<const float> raw)
      : row(edit(with.edits, raw)), logits(with.edits.some() ? row.logits : raw),
        settings{with.temperature, with.topK, with.topP, with.minP}, greedy(isGreedy(settings)) {
    keys.resize(logits.size());
    for (size_t i = 0; i < logits.size(); ++i)
      if (row.refused.empty() || !row.refused[i])
        keys[i] = keyOf(logits[i], static_cast<u32>(i));
    best = *std::max_element(keys.begin(), keys.end());
    if (isDead())
      return;
    m = y(tokenOf(best));
    if (!greedy)
      findSet();
  }
  RowMasses(const RowMasses &) = delete; // logits are its own
  RowMasses &operator=(const RowMasses &) = delete;

  bool isGreedyRow() const { return greedy; }
  /// No token is left.
  bool isDead() const { return best == 0; }
  /// That of the edited row; 0: it is left out.
  u64 key(u32 token) const { return keys[token]; }
  float y(u32 token) const { return greedy ? logits[token] : scaled(logits[token], settings.temperature); }
  bool has(u32 token) const { return keys[token] && (greedy || set.has(keys[token], y(token))); }
  float weightOf(u32 token) const { return weight(y(token), m); }
  float prob(u32 token) const {
    if (token >= logits.size() || isDead())
      return 0;
    if (greedy)
      return token == tokenOf(best) ? 1.0f : 0.0f;
    return has(token) ? probability(weightOf(token), total) : 0.0f;
  }
  float logSum() const {
    return isDead() ? -std::numeric_limits<float>::infinity() : greedy ? m + 0.0f : logSumExp(m, total); // never -0
  }
  float entropyOf() const {
    u64 depths = 0;
    for (u32 i = 0; i < logits.size() && !greedy && !isDead(); ++i)
      if (has(i))
        depths += massTimesDepth(weightOf(i), below(y(i), m));
    return greedy || isDead() ? 0.0f : entropy(total, depths);
  }
  u32 bestToken() const { return tokenOf(best); }

  /// The n tokens of S with the greatest keys, `key(token)` being 0 for what is left out.
  template <class Key> std::vector<int32_t> first(int n, Key key) const {
    std::vector<u64> found;
    for (u32 i = 0; i < logits.size(); ++i)
      if (const u64 k = has(i) ? key(i) : 0)
        found.push_back(k);
    const size_t count = std::min<size_t>(n, found.size());
    std::partial_sort(found.begin(), found.begin() + count, found.end(), std::greater<>());
    std::vector<int32_t> tokens;
    for (size_t i = 0; i < count; ++i)
      tokens.push_back(static_cast<int32_t>(tokenOf(found[i])));
    return tokens;
  }

  /// The least logit of S.
  float leastLogit() const {
    float least = logits[bestToken()];
    for (u32 i = 0; i < logits.size(); ++i)
      if (has(i))
        least = std::min(least, logits[i]);
    return least;
  }
  double mass() const { return static_cast<double>(total); }

private:
  void findSet() {
    const bool byTopK = settings.topK > 0 && static_cast<size_t>(settings.topK) < keys.size();
    const bool byTopP = settings.topP < 1.0f;
    std::vector<u64> sorted;
    if (byTopK || byTopP) {
      sorted = keys;
      std::sort(sorted.begin(), sorted.end(), std::greater<>());
    }
    if (byTopK)
      set.border = sorted[settings.topK - 1] >> 32 << 32; // with all that are equal to the k-th
    if (byTopP) {
      const double cut = cutOfTopP(settings.topP, massOfSet());
      u64 before = 0, border = best;
      for (const u64 key : sorted) {
        if (!key || key < set.border || !staysInTopP(before, cut))
          break;
        border = key;
        before += massOf(weightOf(tokenOf(key)));
      }
      set.border = border;
    }
    if (settings.minP > 0.0f)
      set.least = leastOfMinP(settings.minP, m);
    total = massOfSet();
  }

  u64 massOfSet() const {
    u64 sum = 0;
    for (u32 i = 0; i < logits.size(); ++i)
      if (has(i))
        sum += massOf(weightOf(i));
    return sum;
  }

  EditedRow row; ///< empty without edits
  std::span<const float> logits;
  Settings settings;
  bool greedy;
  std::vector<u64> keys; ///< of the logits; 0 of those left out
  u64 best = 0;
  float m = 0;
  TokenSet set;
  u64 total = 0;
};

int32_t bits(float v) { return std::bit_cast<int32_t>(v); }

class Noise {
public:
  explicit Noise(const RowReduction &with) : with(with) {}
  u32 operator()(u32 token) {
    if (token / 4 != quad) {
      quad = token / 4;
      four = words({with.runSeed, with.requestSeed}, with.position, quad, purposeOfDraw(with.noise));
    }
    return four.w[token % 4];
  }

private:
  const RowReduction &with;
  u32 quad = ~0u;
  sampling::Words four = {};
};

/// 0: the token is not drawn.
u64 drawKey(float number, u32 token) { return keyOf(number, token); }

std::vector<int32_t> draw(const RowReduction &with, const RowMasses &row) {
  if (row.isGreedyRow())
    return row.first(with.n, [&](u32 i) { return row.key(i); });
  Noise noise(with);
  if (!with.minus.empty()) {
    RowReduction ofOther = with;
    ofOther.edits = with.minusEdits;
    const RowMasses other(ofOther, with.minus);
    auto found = row.first(with.n, [&](u32 i) -> u64 {
      const float left = rest(row.prob(i), i < with.minus.size() ? other.prob(i) : 0.0f);
      return left > 0.0f ? drawKey(scoreOfRest(left, noise(i)), i) : 0;
    });
    if (!found.empty())
      return found;
  }
  return row.first(with.n, [&](u32 i) { return drawKey(score(row.y(i), noise(i)), i); });
}

} // namespace

EditedRow megalith::edit(const RowEdits &edits, std::span<const float> logits) {
  if (!edits.some())
    return {};
  static const Sampling none;
  const Sampling &s = edits.settings ? *edits.settings : none;
  EditedRow row{{logits.begin(), logits.end()}, std::vector<bool>(logits.size())};
  const auto vocab = static_cast<int32_t>(logits.size());
  const auto isToken = [&](int32_t token) { return token >= 0 && token < vocab; };
  for (const auto &[token, number] : edits.added)
    if (isToken(token)) {
      row.logits[token] = exact::add(row.logits[token], number);
      row.refused[token] = row.refused[token] || std::isnan(row.logits[token]);
    }
  for (const auto &[token, number] : s.bias)
    if (isToken(token))
      row.logits[token] = exact::add(row.logits[token], number);
  if (edits.knowsText) {
    if (s.repetitionPenalty != 1)
      for (const int32_t token : std::set<int32_t>(edits.text.begin(), edits.text.end()))
        if (isToken(token)) {
          float &z = row.logits[token];
          z = z > 0 ? z / s.repetitionPenalty : exact::mul(z, s.repetitionPenalty);
        }
    std::map<int32_t, int32_t> answer;
    for (size_t i = edits.prompt; i < edits.text.size(); ++i)
      if (isToken(edits.text[i]))
        ++answer[edits.text[i]];
    for (const auto &[token, count] : answer) {
      float &z = row.logits[token];
      if (s.frequencyPenalty != 0)
        z = exact::add(z, -exact::mul(s.frequencyPenalty, static_cast<float>(count)));
      if (s.presencePenalty != 0)
        z = exact::add(z, -s.presencePenalty);
    }
  }
  for (const std::optional<std::vector<int32_t>> *only : {&edits.only, &s.allowed})
    if (*only) {
      std::vector<bool> out(logits.size(), true);
      for (const int32_t token : **only)
        if (isToken(token))
          out[token] = row.refused[token];
      row.refused = std::move(out);
    }
  for (const std::vector<int32_t> *tokens : {&edits.without, &s.banned, &edits.early})
    for (const int32_t token : *tokens)
      if (isToken(token))
        row.refused[token] = true;
  if (edits.format) {
    const bool ends = edits.format->isComplete(edits.state) && !edits.format->isFinal(edits.state);
    for (int32_t token = 0; token < vocab; ++token)
      if (llvm::is_contained(edits.eos, token) ? !ends : !edits.format->allows(edits.state, token))
        row.refused[token] = true;
  }
  return row;
}

std::vector<int32_t> megalith::tokensLeft(const RowReduction &with, std::span<const float> logits) {
  const RowMasses row(with, logits);
  std::vector<int32_t> tokens;
  for (u32 i = 0; i < logits.size(); ++i)
    if (row.isGreedyRow() ? i == row.bestToken() : row.has(i))
      tokens.push_back(static_cast<int32_t>(i));
  return tokens;
}

std::vector<int32_t> megalith::reduceRow(const RowReduction &with, std::span<const float> logits) {
  const RowMasses row(with, logits);
  switch (with.reducer) {
  case Reducer::ArgMax:
    return {static_cast<int32_t>(row.bestToken())};
  case Reducer::Sample:
    return draw(with, row);
  case Reducer::MaxProb:
    return {bits(row.isDead() ? 0.0f : row.prob(row.bestToken()))};
  case Reducer::LogSumExp:
    return {bits(row.logSum())};
  case Reducer::Entropy:
    return {bits(row.entropyOf())};
  case Reducer::Prob:
    return {bits(row.prob(static_cast<u32>(with.token)))};
  case Reducer::TopK:
    break;
  }
  std::vector<int32_t> tokens = row.first(with.n, [&](u32 i) { return row.key(i); });
  if (with.probs)
    for (int32_t &token : tokens)
      token = bits(row.prob(static_cast<u32>(token)));
  return tokens;
}

namespace {

/// What a row's values may be when its logits may be wrong by `error`.
class Allowance {
public:
  Allowance(const RowReduction &with, std::span<const float> logits, double error)
      : with(with), logits(logits), error(error), own(with, logits),
        scaledError(own.isGreedyRow() ? error : error / with.temperature), strict(changed(-1), logits),
        loose(changed(1), logits), sureFrom(strict.leastLogit() + 2 * error),
        possibleFrom(loose.leastLogit() - 2 * error) {}

  std::string check(const std::vector<int32_t> &values) const {
    const Reducer reducer = with.reducer;
    const bool top = reducer == Reducer::TopK;
    if (reducer == Reducer::Sample || reducer == Reducer::ArgMax || (top && !with.probs))
      return checkTokens(values);
    const size_t expected = top ? reduceRow(with, logits).size() : 1;
    if (values.size() != expected && !top)
      return fmt::format("{} values, not {}", values.size(), expected);
    std::vector<u64> keys(logits.size());
    for (size_t i = 0; i < logits.size(); ++i)
      keys[i] = keyOf(logits[i], static_cast<u32>(i));
    std::sort(keys.begin(), keys.end(), std::greater<>());
    for (size_t i = 0; i < values.size(); ++i) {
      const float value = std::bit_cast<float>(values[i]);
      const u32 token = reducer == Reducer::Prob ? static_cast<u32>(with.token)
                        : top                    ? tokenOf(keys[std::min(i, keys.size() - 1)])
                                                 : own.bestToken();
      const auto [low, high] = reducer == Reducer::LogSumExp ? sumRange()
                               : reducer == Reducer::Entropy ? entropyRange()
                                                             : probRange(token);
      if (!(value >= low && value <= high))
        return fmt::format("{:.9g}, which is not from {:.9g} to {:.9g}", value, low, high);
    }
    return "";
  }

private:
  using Interval = std::pair<double, double>;

  /// Settings under which S is smaller, or larger, than any error makes it.
  RowReduction changed(int sign) const {
    RowReduction r = with;
    const double factor = std::exp(sign * 4 * scaledError);
    if (r.topP < 1)
      r.topP = static_cast<float>(std::min(1.0, r.topP * factor));
    if (r.minP > 0)
      r.minP = static_cast<float>(std::min(1.0, r.minP / factor));
    return r;
  }
  bool possible(u32 token) const { return own.isGreedyRow() || logits[token] >= possibleFrom; }
  bool sure(u32 token) const { return own.isGreedyRow() || logits[token] >= sureFrom; }

  /// Each as good as what comes at its place, by what the reducer orders.
  std::string checkTokens(const std::vector<int32_t> &values) const {
    if (values.empty() || values.size() > static_cast<size_t>(with.n))
      return fmt::format("{} tokens", values.size());
    const bool draws = with.reducer == Reducer::Sample && !own.isGreedyRow();
    if (draws && !with.minus.empty())
      return checkRest(values);
    Noise noise(with);
    std::vector<double> scores(logits.size()), lows;
    for (u32 i = 0; i < logits.size(); ++i) {
      if (!draws) {
        scores[i] = logits[i];
      } else {
        scores[i] = double(own.y(i)) + gumbel(noise(i));
      }
      if (sure(i))
        lows.push_back(scores[i] - 2 * (draws ? scaledError : error));
    }
    return compare(values, scores, lows);
  }

  /// What another row leaves: as much as the errors of both make of it.
  std::string checkRest(const std::vector<int32_t> &values) const {
    RowReduction plain = with;
    plain.minus = {};
    const auto norm = [](std::span<const float> row) {
      double square = 0;
      for (float z : row)
        square += double(z) * z;
      return std::sqrt(square);
    };
    const double share = norm(logits) > 0 ? norm(with.minus) / norm(logits) : 1;
    const Allowance other(plain, with.minus, error * share);
    Noise noise(with);
    std::vector<double> scores(logits.size()), lows;
    for (u32 i = 0; i < logits.size(); ++i) {
      const auto [low, high] = probRange(i);
      const auto [lowOfOther, highOfOther] = other.probRange(i);
      const double g = gumbel(noise(i));
      scores[i] = std::log(std::max(0.0, high - lowOfOther)) + g; // minus infinity: it cannot be
      if (low > highOfOther)
        lows.push_back(std::log(low - highOfOther) + g);
    }
    const bool perhapsNone = lows.empty();
    std::string wrong = compare(values, scores, lows);
    if (wrong.empty() && std::all_of(values.begin(), values.end(), [&](int32_t v) { return std::isfinite(scores[v]); }))
      return "";
    // Where nothing is left it is a plain draw.
    if (perhapsNone && Allowance(plain, logits, error).check(values).empty())
      return "";
    return wrong.empty() ? "a token of which nothing is left" : wrong;
  }

  /// `scores`: at most; `lows`: at least, of the tokens that are sure to be there.
  std::string compare(const std::vector<int32_t> &values, const std::vector<double> &scores,
                      std::vector<double> &lows) const {
    std::sort(lows.begin(), lows.end(), std::greater<>());
    for (size_t i = 0; i < values.size(); ++i) {
      const auto token = static_cast<u32>(values[i]);
      if (token >= logits.size())
        return fmt::format("token {}, which is none", values[i]);
      if (!possible(token))
        return fmt::format("token {}, which the settings leave out", values[i]);
      if (i < lows.size() && scores[token] < lows[i])
        return fmt::format("token {}, which {:.3g} lies below the best", values[i], lows[i] - scores[token]);
    }
    return "";
  }

  Interval probRange(u32 token) const {
    if (token >= logits.size())
      return {0, 0};
    if (own.isGreedyRow())
      return {token == own.bestToken() && soleBest() ? 1.0 : 0.0,
              logits[own.bestToken()] - logits[token] <= 2 * error ? 1.0 : 0.0};
    const double w = double(own.weightOf(token)) * kUnitMass, slack = std::exp(2 * scaledError) * (1 + 1e-6);
    return {sure(token) ? w / loose.mass() / slack : 0.0,
            possible(token) ? std::min(1.0, w / strict.mass() * slack + 1e-12) : 0.0};
  }
  bool soleBest() const {
    int near = 0;
    for (float z : logits)
      near += logits[own.bestToken()] - z <= 2 * error;
    return near == 1;
  }
  Interval sumRange() const {
    const double slack = 2 * scaledError + 1e-5 * (1 + std::fabs(own.logSum()));
    return {strict.logSum() - slack, loose.logSum() + slack};
  }
  Interval entropyRange() const {
    const double a = strict.entropyOf(), b = loose.entropyOf();
    const double slack = 4 * scaledError * (2 + std::log(double(logits.size()))) + 1e-5;
    return {std::min(a, b) - slack, std::max(a, b) + slack};
  }

  const RowReduction &with;
  std::span<const float> logits;
  double error;
  RowMasses own;
  double scaledError;
  RowMasses strict, loose;
  double sureFrom, possibleFrom;
};

} // namespace

double megalith::errorOfLogits(std::span<const float> logits, double part) {
  constexpr double step = 0x1p-7;
  double square = 0, greatest = 0;
  for (float value : logits) {
    square += double(value) * value;
    greatest = std::max(greatest, std::fabs(double(value)));
  }
  return part > 0 ? part * std::sqrt(square / static_cast<double>(logits.size())) + step * greatest : 0;
}

std::string megalith::whyNotReduced(const RowReduction &with, std::span<const float> logits,
                                    const std::vector<int32_t> &values, double error) {
  if (values == reduceRow(with, logits))
    return "";
  if (with.edits.some()) {
    // The check is of the edited row, in which tokens that are left out are very far from the best.
    RowReduction plain = with;
    EditedRow row = edit(with.edits, logits), minus = edit(with.minusEdits, with.minus);
    for (EditedRow *of : {&row, &minus})
      for (size_t i = 0; i < of->logits.size(); ++i)
        if (of->refused[i])
          of->logits[i] = -std::numeric_limits<float>::infinity();
    const auto isDead = [](const EditedRow &of) {
      return std::all_of(of.refused.begin(), of.refused.end(), [](bool refused) { return refused; });
    };
    if (isDead(row))
      return "no token is left, and it is not what that gives";
    plain.edits = plain.minusEdits = {};
    if (with.minusEdits.some()) {
      plain.minus = minus.logits;
      if (isDead(minus)) // it takes nothing away
        plain.minus = {};
    }
    const float factor = with.edits.settings ? with.edits.settings->repetitionPenalty : 1;
    return whyNotReduced(plain, row.logits, values, error * std::max({1.0f, factor, 1 / factor}));
  }
  return Allowance(with, logits, error).check(values);
}
