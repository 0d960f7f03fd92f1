//===- PageOrder.h - the order of a pool's free list ------------*- C++ -*-===//
#ifndef MEGALITH_REQUESTS_PAGEORDER_H
#define MEGALITH_REQUESTS_PAGEORDER_H

#include <cstdint>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

namespace megalith {

/// 64 bits that look random, of any 64: the output of splitmix64 in the state `x`
/// (https://prng.di.unimi.it/splitmix64.c).
inline uint64_t splitmix64(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

/// The pages of a pool in the order in which a fresh pool hands them out:
/// 0, 1, 2, ... or, with a seed, a Fisher-Yates shuffle driven by splitmix64.
/// Every executor starts with this order, so that page ids in traces agree.
inline std::vector<int32_t> pageOrder(int64_t pages, std::optional<uint64_t> seed = {}) {
  std::vector<int32_t> order(pages);
  std::iota(order.begin(), order.end(), 0);
  if (!seed)
    return order;
  uint64_t state = *seed;
  auto next = [&state] { return splitmix64(std::exchange(state, state + 0x9e3779b97f4a7c15u)); };
  for (int64_t i = pages - 1; i > 0; --i)
    std::swap(order[i], order[next() % static_cast<uint64_t>(i + 1)]);
  return order;
}

} // namespace megalith

#endif
