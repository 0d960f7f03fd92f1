//===- LiveLogprobs.cpp - rows of logits, and what is told of them --------===//
#include "Live.h"
#include <algorithm>
#include <cmath>
#include <limits>

namespace megalith::api {

std::optional<int64_t> LineRanges::take(int64_t count) {
  int64_t first = 0;
  for (const auto &[begin, end] : taken) {
    if (begin - first >= count)
      break;
    first = end;
  }
  if (lines - first < count)
    return std::nullopt;
  taken.emplace(first, first + count);
  return first;
}

LiveLogprob logprobOf(std::span<const float> logits, int32_t token, int most) {
  LiveLogprob out;
  if (static_cast<size_t>(token) >= logits.size())
    return out;
  const float greatest = *std::max_element(logits.begin(), logits.end());
  const bool finite = std::isfinite(greatest); // else the greatest ones share all there is
  double sum = 0;
  for (const float logit : logits)
    sum += finite ? std::exp(static_cast<double>(logit) - greatest) : logit == greatest;
  const auto valueOf = [&](int32_t of) {
    if (finite)
      return logits[of] - (greatest + std::log(sum));
    return logits[of] == greatest ? -std::log(sum) : -std::numeric_limits<double>::infinity();
  };
  out.logprob = valueOf(token);
  for (int32_t i = 0; i < std::ssize(logits); ++i)
    out.rank += logits[i] > logits[token] || (logits[i] == logits[token] && i <= token);
  // Those that are kept stand in a heap, the one that goes first on top.
  std::vector<int32_t> kept;
  const auto isBefore = [&](int32_t a, int32_t b) { return logits[a] != logits[b] ? logits[a] > logits[b] : a < b; };
  for (int32_t i = 0; i < std::ssize(logits) && most > 0; ++i) {
    if (std::ssize(kept) == most) {
      if (!isBefore(i, kept.front()))
        continue;
      std::pop_heap(kept.begin(), kept.end(), isBefore);
      kept.pop_back();
    }
    kept.push_back(i);
    std::push_heap(kept.begin(), kept.end(), isBefore);
  }
  std::sort_heap(kept.begin(), kept.end(), isBefore);
  for (const int32_t each : kept)
    out.likeliest.push_back({each, valueOf(each)});
  return out;
}

} // namespace megalith::api
