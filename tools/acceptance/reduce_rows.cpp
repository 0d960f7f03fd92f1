//===- reduce_rows.cpp - S and draws of rows, for sets.py and law.py ------===//
//
// Standard input: i32 rows, i32 vocabulary, i32 draws; then of each row f32 temperature, i32 top_k, f32 top_p, f32
// min_p, u32 seed, and its logits in f32. Standard output: of each row, without draws i32 count and the tokens of S;
// else how often each token was drawn at positions 0, 1, ...
//===----------------------------------------------------------------------===//
#include "megalith/Reference/Reduce.h"
#include <cstdio>
#include <cstdlib>

using namespace megalith;

template <class T> static void take(T *to, size_t count) {
  if (std::fread(to, sizeof(T), count, stdin) != count)
    std::exit(1);
}
template <class T> static void give(const T *from, size_t count) {
  if (std::fwrite(from, sizeof(T), count, stdout) != count)
    std::exit(1);
}

int main() {
  int32_t head[3];
  take(head, 3);
  const auto [rows, vocab, draws] = head;
  std::vector<float> logits(vocab);
  for (int32_t r = 0; r < rows; ++r) {
    RowReduction with;
    with.reducer = Reducer::Sample;
    take(&with.temperature, 1);
    take(&with.topK, 1);
    take(&with.topP, 1);
    take(&with.minP, 1);
    take(&with.requestSeed, 1);
    take(logits.data(), logits.size());
    if (draws == 0) {
      const std::vector<int32_t> left = tokensLeft(with, logits);
      const auto count = static_cast<int32_t>(left.size());
      give(&count, 1);
      give(left.data(), left.size());
      continue;
    }
    std::vector<int32_t> counts(vocab);
    for (with.position = 0; with.position < draws; ++with.position)
      ++counts[reduceRow(with, logits).at(0)];
    give(counts.data(), counts.size());
  }
}
