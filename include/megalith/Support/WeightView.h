//===- WeightView.h - where a weight stands in its tensor -----------------===//
#ifndef MEGALITH_SUPPORT_WEIGHTVIEW_H
#define MEGALITH_SUPPORT_WEIGHTVIEW_H

#include <cstdint>

namespace megalith {

/// Where the elements of a matrix or vector stand in a tensor of the checkpoint. A row's number has two digits: rows of
/// one block of `block` rows lie at one distance, the blocks at another. The elements of a vector are rows of one
/// column.
struct WeightView {
  int64_t offset = 0;
  int64_t block = 1, blockStride = 0;
  int64_t rowStride = 0, columnStride = 1;

  int64_t at(int64_t row, int64_t column) const {
    return offset + row / block * blockStride + row % block * rowStride + column * columnStride;
  }
  bool operator==(const WeightView &) const = default;

  /// A tensor of `rows` rows as it is.
  static WeightView whole(int64_t rows, int64_t columns) { return {0, rows, 0, columns, 1}; }
};

} // namespace megalith
#endif
