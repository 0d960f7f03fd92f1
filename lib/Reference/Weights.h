//===- Weights.h - weights and products with them ---------------*- C++ -*-===//
#ifndef MEGALITH_LIB_REFERENCE_WEIGHTS_H
#define MEGALITH_LIB_REFERENCE_WEIGHTS_H

#include "Program.h"
#include "megalith/Reference/Executor.h"

namespace megalith::reference {

/// A matrix [n, k] in panels of 32 lines, each panel [k][32]: the inner loop of a
/// product runs over 32 outputs, one chain of additions for each.
struct PackedWeight {
  static constexpr int64_t panel = 32;
  int64_t n = 0, k = 0;
  std::vector<uint16_t> data; ///< lines beyond n are zero
};

/// out[r, n] = sum over k of a[r, k] * w[n, k] by the tree `split8`.
void multiplySplit8(const PackedWeight &w, const float *a, int64_t rows, float *out);

/// The weights of one model.
class Weights {
public:
  Weights(const ir::Operation &model, WeightSource &source);

  /// Of a 2-D weight: one line, as bf16.
  const uint16_t *line(const std::string &name, int64_t layer, int64_t index);
  int64_t rows(const std::string &name, int64_t layer) { return find(name, layer).shape.at(0); }
  /// A 1-D weight, as bf16; sets its length.
  const uint16_t *vector(const std::string &name, int64_t layer, int64_t &length);
  /// Packed at first use.
  const PackedWeight &packed(const std::string &name, int64_t layer);

private:
  struct Tensor {
    const uint16_t *data = nullptr; ///< the whole tensor
    std::vector<int64_t> shape;     ///< of the weight, which stands in the tensor at `view`
    WeightView view;
    std::vector<uint16_t> vector; ///< a copy of a vector that does not lie together
    PackedWeight packed;
  };
  Tensor &find(const std::string &name, int64_t layer);

  std::map<std::string, std::vector<Tensor>> tensors; ///< by name, then layer
  std::map<std::string, std::string> aliases;
};

} // namespace megalith::reference
#endif
