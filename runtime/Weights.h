//===- Weights.h - the tensors of a model, and how they are brought -------===//
//
// A checkpoint is not on the device as a whole. It goes through a small memory, batch by batch: each has pieces of some
// tensors, of at most so many bytes. `megalith_pack` brings what a batch has into the kernel's order
// (device/Packing.cuh), and the memory is free for another one. Both engines load so.
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_RUNTIME_WEIGHTS_H
#define MEGALITH_RUNTIME_WEIGHTS_H

#include "device/Abi.h"
#include "megalith/Checkpoint/Quantisation.h"
#include "megalith/Checkpoint/SafetensorsFile.h"
#include "runtime/Fill.h"
#include "runtime/Manifest.h"
#include <functional>
#include <memory>

namespace megalith::runtime {

/// The checkpoints of a kernel's models, by their numbers. What they refer to must outlive its use.
class Checkpoints {
public:
  Checkpoints(const SafetensorsFile &one) : files{&one} {}
  /// `quantisations`: of each, null where no weight is coded; or none at all.
  Checkpoints(std::vector<const SafetensorsFile *> files, std::vector<const Quantisation *> quantisations = {})
      : files(std::move(files)), quantisations(std::move(quantisations)) {}
  size_t size() const { return files.size(); }
  const SafetensorsFile &operator[](size_t model) const { return *files[model]; }
  const Quantisation *quantisation(size_t model) const {
    return model < quantisations.size() ? quantisations[model] : nullptr;
  }

private:
  std::vector<const SafetensorsFile *> files;
  std::vector<const Quantisation *> quantisations;
};

struct LoadOptions {
  /// Bytes of a batch, and how many may be on their way.
  size_t batchBytes = 32 << 20;
  unsigned batches = 4;
  /// Called now and then with the bytes of tensors that are packed, of how many.
  std::function<void(uint64_t done, uint64_t total)> progress = nullptr;
};

/// What became of a checkpoint.
struct WeightBytes {
  uint64_t read = 0; ///< of the checkpoint; 0 where weights were made
  /// On the device, for the life of the engine: in the kernel's order, and weights of which the kernel reads single
  /// rows.
  uint64_t packed = 0, byRow = 0;
};

/// A tensor that a model names.
struct WeightTensor {
  std::string name;
  uint64_t elements;
  abi::RawType type;
  bool byRow; ///< stays on the device in the checkpoint's order, as bf16
  /// Where its values come from: the checkpoint, or a formula.
  const TensorView *view = nullptr;
  Fill fill = {};
  bool e4m3 = false; ///< bytes of e4m3, none of which may be NaN
  /// Of codes in an order: the column at each place. None: as they are.
  std::vector<int32_t> order = {};
  /// Elements of two bytes, which formulas make.
  uint64_t inHalves(uint64_t elements) const { return (elements * elementBytes() + 1) / 2; }
  uint64_t elementBytes() const { return static_cast<uint64_t>(abi::rawBytes(type)); }
};

/// The tensors of each model of the kernel: findWeights. `checkpoints` has one for each.
Outcome<std::vector<std::vector<WeightTensor>>> findAllWeights(const Manifest &manifest,
                                                               const Checkpoints &checkpoints);
/// All of them in the order of ModelParams::weights. `weight-missing` when one is absent or has another shape or a type
/// that no weight has. `quantisation`: of a model whose weights are codes.
Outcome<std::vector<WeightTensor>> findWeights(const Manifest::Model &model, const SafetensorsFile &weights,
                                               const Quantisation *quantisation = nullptr);
/// The same, made by formulas.
std::vector<WeightTensor> randomWeights(const Manifest::Model &model);
std::vector<std::vector<WeightTensor>> randomWeightsOfAll(const Manifest &manifest);

/// What the packed stream has of orders of columns, at these places, before anything is packed.
struct OrderTable {
  uint64_t offset;
  std::vector<uint16_t> halves;
};
/// Those of a model with these tensors. `weight-order` when weights that are multiplied together differ.
Outcome<std::vector<OrderTable>> orderTables(const Manifest::Model &model, const std::vector<WeightTensor> &tensors);

/// `weight-code`: `bytes` of this tensor have an e4m3 that is NaN, which no conversion knows.
Failure checkCodes(const WeightTensor &tensor, const char *bytes, uint64_t count);

/// What the checkpoint says is wrong with it, as the runtime tells it.
RuntimeError asRuntimeError(const FileError &error);
/// `input-changed` when the files are not what they were when they were opened. To be asked
/// after the last look at a tensor.
Failure whyChanged(const SafetensorsFile &weights);

/// A part of a tensor in a batch.
struct WeightPiece {
  size_t tensor;
  uint64_t begin, end; ///< elements
  size_t offset;       ///< in the batch's memory
};
struct WeightBatch {
  std::vector<WeightPiece> pieces;
  size_t bytes = 0;  ///< of the batch's memory
  uint64_t read = 0; ///< of tensors
};

/// All elements of `tensors` in batches of at most `most` bytes (or one piece of 16 bytes), in the order in which they
/// lie in files. In front of a batch stands a table of abi::RawTensor, which `megalith_pack` takes.
class WeightBatches {
public:
  WeightBatches(std::vector<WeightTensor> tensors, size_t most);
  const std::vector<WeightTensor> &tensors() const { return all; }
  const std::vector<WeightBatch> &list() const { return batches; }
  /// Of the largest batch, and of all tensors.
  size_t mostBytes() const;
  uint64_t totalBytes() const;
  /// Writes the table of a batch that will lie at `address` of the device to `to`.
  void writeTable(const WeightBatch &batch, uint64_t address, void *to) const;

private:
  size_t tableBytes() const;
  std::vector<WeightTensor> all;
  std::vector<WeightBatch> batches;
};

/// Batches of each model. Each model is loaded after the one before.
std::vector<WeightBatches> batchesOf(std::vector<std::vector<WeightTensor>> tensors, size_t most);
/// Of all models.
size_t mostBytes(const std::vector<WeightBatches> &models);
uint64_t totalBytes(const std::vector<WeightBatches> &models);

/// Reads the batches of a checkpoint with some threads, each into one of a few places in turn.
class WeightReader {
public:
  /// `places`: each has room for the largest batch. All of them are free. Everything must outlive the reader.
  WeightReader(const SafetensorsFile &file, const WeightBatches &batches, std::vector<char *> places, unsigned threads);
  ~WeightReader();
  WeightReader(const WeightReader &) = delete;

  /// Waits until batch `number` lies in place `number % places`. Helps to read it. The batches are asked for in order.
  Failure await(size_t number);
  /// The place of the oldest batch that was awaited and not released is free.
  void release();

private:
  struct State;
  std::unique_ptr<State> state;
};

} // namespace megalith::runtime
#endif
