//===- Ready.h - threads that could go on ---------------------------------===//
#ifndef MEGALITH_RUNTIME_CPU_READY_H
#define MEGALITH_RUNTIME_CPU_READY_H

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace megalith::cpu {

/// First in, first out; or any.
class ReadyQueue {
  std::vector<uint32_t> ring;
  size_t head = 0, held = 0, mask = 0;

public:
  void start(size_t most) {
    size_t size = 1;
    while (size < most)
      size *= 2;
    ring.resize(size);
    mask = size - 1;
    head = held = 0;
  }
  size_t count() const { return held; }
  void push(uint32_t i) { ring[(head + held++) & mask] = i; }
  uint32_t pop() {
    const uint32_t i = ring[head & mask];
    ++head, --held;
    return i;
  }
  /// The `at`-th from the front; the front takes its place.
  uint32_t popAt(size_t at) {
    std::swap(ring[head & mask], ring[(head + at) & mask]);
    return pop();
  }
};

/// By the rank of their warp, then by lane. Rank 0 goes first.
class ReadyRanks {
  std::vector<uint32_t> rankOf, warpOf; ///< of a warp; of a rank (~0u: nobody's any more)
  std::vector<uint32_t> lanes;          ///< of a warp, ready
  std::vector<uint64_t> bits;           ///< of ranks with ready lanes
  size_t held = 0, firstWord = 0;

public:
  void start(std::vector<uint32_t> order) {
    warpOf = std::move(order);
    rankOf.resize(warpOf.size());
    for (size_t i = 0; i < warpOf.size(); ++i)
      rankOf[warpOf[i]] = i;
    lanes.assign(warpOf.size(), 0);
    bits.assign(warpOf.size() / 64 + 1, 0);
    held = firstWord = 0;
  }
  size_t count() const { return held; }
  void push(uint32_t warp, uint32_t lane) {
    lanes[warp] |= 1u << lane;
    const uint32_t r = rankOf[warp];
    bits[r / 64] |= 1ull << r % 64;
    if (r / 64 < firstWord)
      firstWord = r / 64;
    ++held;
  }
  /// Warp and lane of the first. There must be one.
  std::pair<uint32_t, uint32_t> first() {
    while (!bits[firstWord])
      ++firstWord;
    const uint32_t warp = warpOf[firstWord * 64 + __builtin_ctzll(bits[firstWord])];
    return {warp, (uint32_t)__builtin_ctz(lanes[warp])};
  }
  std::pair<uint32_t, uint32_t> pop() {
    const auto result = first();
    const auto [warp, lane] = result;
    --held;
    if (!(lanes[warp] &= lanes[warp] - 1))
      bits[rankOf[warp] / 64] &= ~(1ull << rankOf[warp] % 64);
    return result;
  }
  /// Whether the first goes before this one.
  bool before(uint32_t warp, uint32_t lane) {
    if (!held)
      return false;
    const auto [w, l] = first();
    return w == warp ? l < lane : rankOf[w] < rankOf[warp];
  }
  /// Below all others.
  void demote(uint32_t warp) {
    const uint32_t from = rankOf[warp], to = warpOf.size();
    warpOf[from] = ~0u;
    warpOf.push_back(warp);
    rankOf[warp] = to;
    if (to / 64 >= bits.size())
      bits.push_back(0);
    if (bits[from / 64] >> from % 64 & 1) {
      bits[from / 64] &= ~(1ull << from % 64);
      bits[to / 64] |= 1ull << to % 64;
    }
  }
};

} // namespace megalith::cpu
#endif
