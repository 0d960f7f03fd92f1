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

  // Of codes: `data` has code less zero point, exact.
  int64_t piece = 0;          ///< a chain ends at each multiple of so many columns; 0: at the ends of eighths alone
  std::vector<float> scales;  ///< of a line: one, or one for each piece of its columns, [piece][line]
  std::vector<int32_t> order; ///< of the operand's columns; empty: as they are
};

/// out[r, n] = sum over k of a[r, k] * w[n, k] by the tree `split8`. Of codes: their sum times the line's scale; or, in
/// pieces, an eighth is fma(s, c, what there is) of each in ascending order, from 0 on, where c is the chain of a piece
/// from 0, and s its scale.
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
    const uint16_t *data = nullptr;     ///< the whole tensor
    const CodedMatrix *codes = nullptr; ///< in place of it
    std::vector<int64_t> shape;         ///< of the weight, which stands in the tensor at `view`
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
