//===- Tensor.h - the interpreter of model segments -------------*- C++ -*-===//
#ifndef MEGALITH_LIB_REFERENCE_TENSOR_H
#define MEGALITH_LIB_REFERENCE_TENSOR_H

#include "Paths.h"
#include "Weights.h"
#include <algorithm>
#include <memory>
#include <optional>

namespace megalith::reference {

/// A dense value, row-major. A weight vector and a constant have one line that
/// stands for every row.
struct Matrix {
  int64_t rows = 0, cols = 0;
  std::vector<float> data;
  bool perRow = true;

  Matrix() = default;
  Matrix(int64_t rows, int64_t cols) : rows(rows), cols(cols), data(rows * cols) {}
  /// These rows, of a dense one.
  Matrix only(const std::vector<int64_t> &kept) const {
    Matrix fewer(static_cast<int64_t>(kept.size()), cols);
    for (size_t i = 0; i < kept.size(); ++i)
      std::copy_n(row(kept[i]), cols, fewer.row(static_cast<int64_t>(i)));
    return fewer;
  }
  float *row(int64_t r) { return data.data() + (perRow ? r * cols : 0); }
  const float *row(int64_t r) const { return data.data() + (perRow ? r * cols : 0); }
};

/// K and V of a pool's pages: [page][layer][offset][kv_heads * head_dim].
class KvStore {
public:
  KvStore(int64_t pages, int64_t pageTokens, int64_t layers, int64_t width)
      : pageTokens(pageTokens), layers(layers), width(width), k(pages), v(pages) {}

  float *key(int32_t page, int64_t layer, int64_t offset) { return at(k, page, layer, offset); }
  float *value(int32_t page, int64_t layer, int64_t offset) { return at(v, page, layer, offset); }
  /// FNV-1a over K and V of one position in all layers.
  uint64_t hash(int32_t page, int64_t offset);

  const int64_t pageTokens, layers, width;

private:
  /// Pages get memory when they are first touched.
  float *at(std::vector<std::vector<float>> &store, int32_t page, int64_t layer, int64_t offset) {
    std::vector<float> &data = store[page];
    if (data.empty())
      data.resize(layers * pageTokens * width);
    return data.data() + (layer * pageTokens + offset) * width;
  }
  std::vector<std::vector<float>> k, v;
};

/// What a pass gives back: one line per row that wants logits, in row order.
struct PassOutput {
  Matrix logits;
  std::vector<int32_t> argmax;               ///< -2: the row has a NaN
  std::map<std::string, Matrix> others = {}; ///< the model's other results

  /// Of these lines only, which ascend.
  void keep(const std::vector<int64_t> &lines);
};

class TensorModel {
public:
  /// `pages`, `pageTokens`: of the model's pool.
  TensorModel(const ir::Module &module, const ir::Operation &model, WeightSource &weights, int64_t pages,
              int64_t pageTokens);

  /// Runs the segments on `rows`; `tables[slot]`: of the slot.
  PassOutput run(const std::vector<Row> &rows, const std::vector<PageTable> &tables);

  /// Moves the K and V of place from[i] to place `base` + i, of all layers: as if all were read before any is written.
  void move(const PageTable &table, int64_t base, const std::vector<int32_t> &from);

  int64_t vocab() const { return vocabulary; }
  /// The line of a token in an embedding. One that the model lacks has the first line.
  int64_t lineOfToken(int64_t token) const { return token >= 0 && token < vocabulary ? token : 0; }
  KvStore &kv() { return *store; }

private:
  void runRegion(const ir::Region &region);
  void runOp(const ir::Operation &op);
  void runRepeat(const ir::Operation &op);
  void keepWantedRows();

  Matrix elementwise(const ir::Operation &op);
  Matrix embed(const ir::Operation &op);
  Matrix reduce(const ir::Operation &op);
  Matrix rope(const ir::Operation &op);
  Matrix rotateHalf(const ir::Operation &op);
  struct Angles {
    std::vector<float> frequencies;
    double attention;
  };
  const std::vector<Angles> &anglesOf();
  void append(const ir::Operation &op);
  Matrix attention(const ir::Operation &op);
  Matrix argmax(const ir::Operation &op);
  int32_t pageOf(const Row &row, int64_t place) const;

  Matrix &set(const ir::Operation &op, Matrix value) { return env[op.result().id] = std::move(value); }
  const Matrix &get(ir::Value v) const { return env[v.id]; }

  const ir::Module &module;
  const ir::Operation &model;
  Weights weights;
  int64_t vocabulary;
  std::unique_ptr<KvStore> store;
  std::vector<WeightFormat> kvFormats;       ///< by layer: of codes the pool has the values
  std::vector<Angles> angles;                ///< of the model's tables
  const ir::Operation *lastAppend = nullptr; ///< top-level operation that holds it

  // Of the present pass.
  std::vector<Matrix> env; ///< by value id
  std::vector<ir::Value> yielded;
  std::vector<Row> rows;
  std::vector<RowPath> paths; ///< of the rows
  const std::vector<PageTable> *tables = nullptr;
  int64_t layer = 0;
  std::map<uint32_t, Matrix> argmaxOperands; ///< by the value that `argmax` made of them
};

} // namespace megalith::reference
#endif
