#include "runtime/Weights.h"
#include <algorithm>
#include <cmath>
#include <numeric>

namespace megalith::runtime {

/// Calls `take(weight, name)` for each tensor of a model, in the order of ModelParams::weights.
template <class Take> static void forEachTensor(const Manifest::Model &model, Take take) {
  for (const Manifest::Weight &w : model.weights)
    for (int64_t layer = 0; layer < std::max<int64_t>(1, w.layers); ++layer)
      take(w, Manifest::tensorName(w, layer));
}

static abi::RawType rawType(DType dtype) {
  return dtype == DType::F16                            ? abi::kRawF16
         : dtype == DType::F32                          ? abi::kRawF32
         : dtype == DType::F8E8M0 || dtype == DType::U8 ? abi::kRawE8m0
                                                        : abi::kRawBf16;
}
static abi::RawType rawType(CodeLayout layout) {
  switch (layout) {
  case CodeLayout::Bytes:
    return abi::kRawCodes;
  case CodeLayout::PackedRows:
    return abi::kRawCodeRows;
  case CodeLayout::PackedAwq:
    return abi::kRawCodeAwq;
  case CodeLayout::PackedGptq:
    return abi::kRawCodeGptq;
  case CodeLayout::PackedGptq1:
    return abi::kRawCodeGptqLess;
  }
  return abi::kRawCodes;
}

/// Codes, scales and zero points, each of all layers; false: one is not there.
static bool findCodes(const Manifest::Weight &w, const SafetensorsFile &weights, const Quantisation &quantisation,
                      std::vector<WeightTensor> &found, std::string &error) {
  std::vector<QuantisedTensor> layers;
  for (int64_t layer = 0; layer < std::max<int64_t>(1, w.layers); ++layer) {
    std::string name = Manifest::tensorName(w, layer);
    name.resize(name.size() - std::min<size_t>(name.size(), 7)); // without `.weight`
    auto coded = quantisation.find(weights, name, w.shape[0], w.shape[1], error);
    if (!coded)
      return false;
    if (coded->scheme != w.scheme) {
      error = "`" + name + "` is coded in another way than the kernel expects";
      return false;
    }
    layers.push_back(std::move(*coded));
  }
  const auto add = [&](const QuantisedTensor &coded, const TensorView *view, abi::RawType type) {
    std::string name = w.from;
    for (const auto &[of, bytes] : coded.tensors)
      if (weights.find(of) == view)
        name = of;
    found.push_back({std::move(name), view->size / abi::rawBytes(type), type, false, view});
  };
  for (const QuantisedTensor &coded : layers) {
    add(coded, coded.codes, rawType(coded.layout));
    found.back().e4m3 = w.scheme.format == WeightFormat::E4m3;
    found.back().order = coded.readOrder();
  }
  for (const QuantisedTensor &coded : layers)
    add(coded, coded.scales, rawType(coded.scales->dtype));
  for (const QuantisedTensor &coded : layers)
    if (w.scheme.zeros)
      add(coded, coded.zeroPoints, rawType(coded.layout));
  return true;
}

Outcome<std::vector<WeightTensor>> findWeights(const Manifest::Model &model, const SafetensorsFile &weights,
                                               const Quantisation *quantisation) {
  std::vector<WeightTensor> found;
  Failure failure;
  forEachTensor(model, [&](const Manifest::Weight &w, std::string name) {
    if (w.scheme.quantised()) {
      std::string error = "config.json says nothing of codes";
      if (!failure && name == Manifest::tensorName(w, 0) &&
          (!quantisation || !findCodes(w, weights, *quantisation, found, error)))
        failure = {"weight-missing",
                   "weight `" + w.name + "` of the manifest is not in " + weights.path() + ": " + error};
      return;
    }
    const TensorView *tensor = weights.find(name);
    if (tensor && tensor->shape == w.shape && isWeightType(tensor->dtype))
      found.push_back({std::move(name), tensor->elements(), rawType(tensor->dtype), w.byRow, tensor});
    else if (!failure)
      failure = {"weight-missing", "tensor `" + name + "` of the manifest is not in " + weights.path()};
  });
  if (failure)
    return *failure;
  return found;
}

/// Of a coded matrix: bytes, or words of 4 bits along columns, and scales of bf16 with which values have the variance
/// of those of bf16.
static void addRandomCodes(const Manifest::Weight &w, std::vector<WeightTensor> &tensors) {
  const auto layers = static_cast<uint64_t>(std::max<int64_t>(1, w.layers));
  const auto rows = static_cast<uint64_t>(w.shape[0]), columns = static_cast<uint64_t>(w.shape[1]);
  const bool four = w.scheme.format == WeightFormat::U4;
  const auto blocks = [](int64_t of, uint64_t size) { return of ? (size + of - 1) / of : 1; };
  const uint64_t down = blocks(w.scheme.scaleRows, rows), across = blocks(w.scheme.scaleColumns, columns);
  const double deviation = four ? 4.6 : w.scheme.format == WeightFormat::U8 ? 74 : 100; // of random codes, about
  const auto mean = static_cast<float>(1 / (deviation * std::sqrt(static_cast<double>(columns))));
  const auto add = [&](const char *what, uint64_t elements, abi::RawType type, float scale, float middle) {
    for (uint64_t layer = 0; layer < layers; ++layer) {
      std::string name = Manifest::tensorName(w, static_cast<int64_t>(layer)) + what;
      const Fill fill{crc32(name), scale, middle};
      tensors.push_back({std::move(name), elements, type, false, nullptr, fill});
    }
  };
  const abi::RawType type = four ? abi::kRawCodeRows : abi::kRawCodes;
  add("", four ? rows * ((columns + 7) / 8) : rows * columns, type, 2, 0);
  if (w.scheme.ordered) // some order, the same of all
    for (size_t t = tensors.size() - layers; t < tensors.size(); ++t)
      for (uint64_t place = 0; place < columns; ++place)
        tensors[t].order.push_back(static_cast<int32_t>((place + 1) * 7919 % columns)); // a prime
  add("_scale", down * across, abi::kRawBf16, mean / 4, mean);
  if (w.scheme.zeros)
    add("_zero", four ? (rows + 7) / 8 * across : rows * across, type, 2, 0);
}

std::vector<WeightTensor> randomWeights(const Manifest::Model &model) {
  std::vector<WeightTensor> tensors;
  forEachTensor(model, [&](const Manifest::Weight &w, std::string name) {
    if (w.scheme.quantised()) {
      if (name == Manifest::tensorName(w, 0))
        addRandomCodes(w, tensors);
      return;
    }
    const uint64_t elements = std::accumulate(w.shape.begin(), w.shape.end(), uint64_t(1), std::multiplies<>());
    const Fill fill = fillOf(name, w.shape);
    tensors.push_back({std::move(name), elements, abi::kRawBf16, w.byRow, nullptr, fill});
  });
  return tensors;
}

Outcome<std::vector<std::vector<WeightTensor>>> findAllWeights(const Manifest &manifest,
                                                               const Checkpoints &checkpoints) {
  std::vector<std::vector<WeightTensor>> all;
  for (size_t i = 0; i < manifest.models.size(); ++i) {
    if (i >= checkpoints.size())
      return RuntimeError{"weight-missing", "there is no checkpoint for model `" + manifest.models[i].name + "`"};
    auto tensors = findWeights(manifest.models[i], checkpoints[i], checkpoints.quantisation(i));
    if (!tensors)
      return tensors.error;
    all.push_back(std::move(*tensors.value));
  }
  return all;
}

std::vector<std::vector<WeightTensor>> randomWeightsOfAll(const Manifest &manifest) {
  std::vector<std::vector<WeightTensor>> all;
  for (const Manifest::Model &model : manifest.models)
    all.push_back(randomWeights(model));
  return all;
}

std::vector<WeightBatches> batchesOf(std::vector<std::vector<WeightTensor>> tensors, size_t most) {
  std::vector<WeightBatches> models;
  for (std::vector<WeightTensor> &of : tensors)
    models.emplace_back(std::move(of), most);
  return models;
}

size_t mostBytes(const std::vector<WeightBatches> &models) {
  size_t most = 0;
  for (const WeightBatches &of : models)
    most = std::max(most, of.mostBytes());
  return most;
}

uint64_t totalBytes(const std::vector<WeightBatches> &models) {
  uint64_t total = 0;
  for (const WeightBatches &of : models)
    total += of.totalBytes();
  return total;
}

Outcome<std::vector<OrderTable>> orderTables(const Manifest::Model &model, const std::vector<WeightTensor> &tensors) {
  std::vector<OrderTable> tables;
  for (const Manifest::Order &order : model.orders)
    for (int64_t layer = 0; layer < std::max<int64_t>(1, order.layers); ++layer) {
      const auto tensorOf = [&](int64_t weight) -> const WeightTensor & {
        return tensors.at(static_cast<size_t>(weight + (order.layers ? layer : 0)));
      };
      const WeightTensor &first = tensorOf(order.weights.at(0));
      for (const int64_t weight : order.weights)
        if (tensorOf(weight).order != first.order)
          return RuntimeError{"weight-order", "`" + first.name + "` and `" + tensorOf(weight).name +
                                                  "` have different orders of columns, and the kernel multiplies them "
                                                  "together; the reference executor has them"};
      const auto columns = static_cast<size_t>(order.columns);
      OrderTable table{static_cast<uint64_t>(order.offset + layer * order.layerBytes),
                       std::vector<uint16_t>(2 * columns)};
      for (size_t place = 0; place < columns; ++place) {
        const size_t column = first.order.empty() ? place : static_cast<size_t>(first.order.at(place));
        table.halves[place] = static_cast<uint16_t>(column);
        table.halves[columns + column] = static_cast<uint16_t>(place);
      }
      tables.push_back(std::move(table));
    }
  return tables;
}

Failure checkCodes(const WeightTensor &tensor, const char *bytes, uint64_t count) {
  if (tensor.e4m3 && std::any_of(bytes, bytes + count, [](char code) { return (code & 0x7f) == 0x7f; }))
    return RuntimeError{"weight-code",
                        "tensor `" + tensor.name + "` has a NaN among its codes; the checkpoint is broken"};
  return std::nullopt;
}

RuntimeError asRuntimeError(const FileError &error) { return {error.kind, error.file + ": " + error.message}; }

Failure whyChanged(const SafetensorsFile &weights) {
  if (auto changed = weights.changed())
    return asRuntimeError(*changed);
  return std::nullopt;
}

//===--- batches --------------------------------------------------------------===//

/// Pieces begin here: the device loads elements at multiples of their size.
static constexpr size_t PieceAlignment = 16;

static size_t aligned(size_t bytes) { return (bytes + PieceAlignment - 1) / PieceAlignment * PieceAlignment; }

size_t WeightBatches::tableBytes() const { return aligned(all.size() * sizeof(abi::RawTensor)); }

WeightBatches::WeightBatches(std::vector<WeightTensor> tensors, size_t most) : all(std::move(tensors)) {
  std::vector<size_t> order(all.size());
  std::iota(order.begin(), order.end(), size_t(0));
  // Mappings of different files lie apart.
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const auto at = [&](size_t i) { return all[i].view ? reinterpret_cast<uintptr_t>(all[i].view->data) : 0; };
    return at(a) < at(b);
  });
  const size_t empty = tableBytes();
  most = std::max(most, empty + PieceAlignment);
  WeightBatch batch;
  batch.bytes = empty;
  const auto close = [&] {
    if (!batch.pieces.empty())
      batches.push_back(std::move(batch));
    batch = {};
    batch.bytes = empty;
  };
  for (size_t t : order)
    for (uint64_t begin = 0; begin < all[t].elements;) {
      const uint64_t room = (most - batch.bytes) / PieceAlignment * PieceAlignment / all[t].elementBytes();
      if (room == 0) {
        close();
        continue;
      }
      const uint64_t end = begin + std::min(room, all[t].elements - begin);
      const uint64_t bytes = (end - begin) * all[t].elementBytes();
      batch.pieces.push_back({t, begin, end, batch.bytes});
      batch.bytes += aligned(bytes);
      batch.read += bytes;
      begin = end;
    }
  close();
}

size_t WeightBatches::mostBytes() const {
  size_t most = 0;
  for (const WeightBatch &batch : batches)
    most = std::max(most, batch.bytes);
  return most;
}

uint64_t WeightBatches::totalBytes() const {
  uint64_t total = 0;
  for (const WeightBatch &batch : batches)
    total += batch.read;
  return total;
}

void WeightBatches::writeTable(const WeightBatch &batch, uint64_t address, void *to) const {
  auto *table = static_cast<abi::RawTensor *>(to);
  // How a tensor that is not there lies says how another one of its matrix does.
  for (size_t i = 0; i < all.size(); ++i)
    table[i] = {nullptr, 0, 0, all[i].type};
  for (const WeightPiece &piece : batch.pieces)
    table[piece.tensor] = {reinterpret_cast<const void *>(address + piece.offset), static_cast<long long>(piece.begin),
                           static_cast<long long>(piece.end), all[piece.tensor].type};
}

} // namespace megalith::runtime
