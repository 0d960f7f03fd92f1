//===- LiveLogprobs.cpp - rows of logits, and what is told of them --------===//
#include "Live.h"
#include <algorithm>
#include <cmath>

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
  double sum = 0;
  for (const float logit : logits)
    sum += std::exp(static_cast<double>(logit) - greatest);
  const double norm = greatest + std::log(sum);
  out.logprob = logits[token] - norm;
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
    out.likeliest.push_back({each, logits[each] - norm});
  return out;
}

} // namespace megalith::api
