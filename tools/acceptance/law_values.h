//===- law_values.h - what the functions of Sampling.h give ---------------===//
//
// For many numbers and words, on the host and on a GPU.
//===----------------------------------------------------------------------===//
#pragma once

#include "device/Exact.h"
#include "device/Sampling.h"

#ifdef __CUDACC__
#define LAW_DEVICE __device__
#else
#define LAW_DEVICE
#endif

struct Values {
  unsigned unit, gumbel, score, ordered, probability, logSum, entropy, least, scaled, rest;
  unsigned long long mass, depth;
};
constexpr int kLawValues = 1 << 20;

LAW_DEVICE inline Values valuesOf(unsigned i) {
  using namespace megalith::sampling;
  using megalith::exact::bitsOf;
  const u32 word = i * 2654435761u;
  const float y = megalith::exact::mul((float)(int)(word ^ i * 40503u), 9.3e-9f), m = 20.0f,
              w = weight(y, m); // y is from -19.98 to 19.98
  const u64 total = (1ull << 40) + word, depths = (u64)word << 8;
  return {bitsOf(unit(word)),
          bitsOf(gumbel(word)),
          bitsOf(score(y, word)),
          ordered(y),
          bitsOf(probability(w, total)),
          bitsOf(logSumExp(m, total)),
          bitsOf(entropy(total, depths)),
          bitsOf(leastOfMinP(unit(word), m)),
          bitsOf(scaled(y, unit(word))),
          bitsOf(scoreOfRest(unit(word), word)),
          massOf(w),
          massTimesDepth(w, below(y, m))};
}
