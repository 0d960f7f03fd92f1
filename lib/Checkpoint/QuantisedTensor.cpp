// The tensors of coded matrices, and what is in them.
#include "device/Convert.h"
#include "megalith/Checkpoint/Quantisation.h"
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace megalith {

/// Endings of tensors that only coded matrices have.
static constexpr const char *CodeEndings[] = {"weight_packed", "qweight", "weight_scale", "weight_scale_inv"};

std::string Quantisation::codesBeside(const SafetensorsFile &file, const std::string &module) {
  for (const char *ending : CodeEndings)
    if (const std::string name = module + "." + ending; file.find(name))
      return name;
  return "";
}

class Quantisation::Finder {
public:
  Finder(const SafetensorsFile &file, const std::string &module, const Group &group, bool byGptqModel, int64_t rows,
         int64_t columns, std::string &error)
      : file(file), module(module), group(group), byGptqModel(byGptqModel), error(error) {
    found.scheme = schemeFor(group.scheme, columns);
    found.layout = group.layout;
    found.rows = rows;
    found.columns = columns;
  }

  std::optional<QuantisedTensor> run() {
    const int64_t perWord = 32 / bitsOf(found.scheme.format);
    switch (found.layout) {
    case CodeLayout::Bytes:
      if (!take(found.codes, "weight", {DType::F8E4M3}, {{found.rows, found.columns}}) || !takeScalesOfBytes())
        return std::nullopt;
      break;
    case CodeLayout::PackedRows:
      if (!takePackedRows(perWord))
        return std::nullopt;
      break;
    case CodeLayout::PackedAwq:
    case CodeLayout::PackedGptq:
    case CodeLayout::PackedGptq1:
      if (!takeAlongOutputs(perWord))
        return std::nullopt;
      break;
    }
    if (found.scheme.hasGroups() && found.layout != CodeLayout::Bytes && found.columns % found.scheme.scaleColumns)
      return fail(module, fmt::format("has {} inputs, which are no whole number of groups of {}", found.columns,
                                      found.scheme.scaleColumns));
    for (const float scale : found.readScales())
      if (!std::isfinite(scale))
        return fail(nameOf(found.scales), "has a scale that is not finite");
    return found;
  }

private:
  using Shapes = std::vector<std::vector<int64_t>>;

  std::nullopt_t fail(const std::string &name, std::string what) {
    error = fmt::format("`{}` {}", name, what);
    return std::nullopt;
  }
  std::string nameOf(const TensorView *view) const {
    for (const auto &[name, bytes] : found.tensors)
      if (file.find(name) == view)
        return name;
    return module;
  }
  bool take(const TensorView *&to, const std::string &ending, std::vector<DType> types, const Shapes &shapes) {
    const std::string name = module + "." + ending;
    to = file.find(name);
    if (!to) {
      error = fmt::format("`{}` is missing", name);
      if (const std::string *shard = file.listedIn(name))
        error += fmt::format("; the index puts it into `{}`, which does not hold it", *shard);
      return false;
    }
    std::vector<std::string_view> names;
    for (const DType type : types)
      names.push_back(dtypeName(type));
    if (std::find(types.begin(), types.end(), to->dtype) == types.end())
      return fail(name, fmt::format("holds {}, not {}", dtypeName(to->dtype), fmt::join(names, " or "))), false;
    if (std::find(shapes.begin(), shapes.end(), to->shape) == shapes.end())
      return fail(name, fmt::format("has the shape {}, not {}", to->shape, fmt::join(shapes, " or "))), false;
    found.tensors.push_back({name, to->size});
    return true;
  }
  static std::vector<DType> scaleTypes() { return {DType::F32, DType::BF16, DType::F16, DType::F8E8M0, DType::U8}; }

  /// Blocks that a scheme has.
  std::pair<int64_t, int64_t> blocks() const { return {found.blockRows(), found.blockColumns()}; }

  bool takeScalesOfBytes() {
    std::string ending;
    for (const char *one : {"weight_scale_inv", "weight_scale", "scale", "qscale_weight"})
      if (file.find(module + "." + one)) {
        if (!ending.empty())
          return fail(module + "." + one, fmt::format("stands beside `{}.{}`: which one counts?", module, ending)),
                 false;
        ending = one;
      }
    if (ending.empty())
      return fail(module + ".weight", "has no scale: there is neither `weight_scale_inv` nor `weight_scale`"), false;
    const std::vector<int64_t> &shape = file.find(module + "." + ending)->shape;
    if (group.openBlocks) { // the shape says it
      const auto is = [&](std::vector<int64_t> other) { return shape == other; };
      const int64_t blockRows = (found.rows + 127) / 128, blockColumns = (found.columns + 127) / 128;
      if (is({found.rows, 1}) || (is({found.rows}) && found.rows > 1))
        found.scheme.scaleRows = 1;
      else if (blockRows * blockColumns > 1 && is({blockRows, blockColumns})) // one block is one scale
        found.scheme.scaleRows = found.scheme.scaleColumns = 128;
    }
    const auto [r, c] = blocks();
    Shapes shapes = {{r, c}};
    if (c == 1)
      shapes.push_back({r});
    if (r == 1 && c == 1)
      shapes.push_back({});
    return take(found.scales, ending, scaleTypes(), shapes);
  }

  bool takePackedRows(int64_t perWord) {
    const int64_t words = (found.columns + perWord - 1) / perWord;
    const auto [r, c] = blocks();
    const TensorView *shape = nullptr;
    if (!take(found.codes, "weight_packed", {DType::I32}, {{found.rows, words}}) ||
        !take(found.scales, "weight_scale", scaleTypes(), {{r, c}}) ||
        !take(shape, "weight_shape", {DType::I64, DType::I32}, {{2}}))
      return false;
    const int size = static_cast<int>(dtypeSize(shape->dtype));
    int64_t stored[2] = {};
    for (int i = 0; i < 2; ++i)
      std::memcpy(&stored[i], shape->data + i * size, size); // little-endian, and not negative
    if (stored[0] != found.rows || stored[1] != found.columns)
      return fail(module + ".weight_shape",
                  fmt::format("says [{}, {}], not [{}, {}]", stored[0], stored[1], found.rows, found.columns)),
             false;
    if (found.scheme.zeros &&
        !take(found.zeroPoints, "weight_zero_point", {DType::I32}, {{(r + perWord - 1) / perWord, c}}))
      return false;
    return takeOrder("weight_g_idx");
  }

  bool takeAlongOutputs(int64_t perWord) {
    const bool awq = found.layout == CodeLayout::PackedAwq;
    const auto [r, c] = blocks();
    if (found.rows % perWord || (!awq && found.columns % perWord))
      return fail(module, fmt::format("[{}, {}] does not fill words of {} codes", found.rows, found.columns, perWord)),
             false;
    const std::vector<int64_t> codes =
        awq ? std::vector{found.columns, found.rows / perWord} : std::vector{found.columns / perWord, found.rows};
    if (!take(found.codes, "qweight", {DType::I32}, {codes}) ||
        !take(found.scales, "scales", {DType::F16, DType::BF16, DType::F32}, {{c, r}}) ||
        !take(found.zeroPoints, "qzeros", {DType::I32}, {{c, r / perWord}}))
      return false;
    if (!checkZeroPoints())
      return false;
    return awq || takeOrder("g_idx");
  }

  /// A symmetric file has the middle everywhere, or it is labelled wrong. Version 1 cannot tell 15 from a borrow.
  bool checkZeroPoints() {
    const int middle = middleOf(found.scheme.format), bits = bitsOf(found.scheme.format);
    const std::string name = module + ".qzeros";
    if (found.layout == CodeLayout::PackedGptq1 && !byGptqModel) {
      const auto highest = static_cast<uint32_t>((1 << bits) - 1);
      for (uint64_t i = 0; i < found.zeroPoints->elements(); ++i) {
        uint32_t word;
        std::memcpy(&word, found.zeroPoints->data + 4 * i, 4);
        for (int shift = 0; shift < 32; shift += bits)
          if ((word >> shift & highest) == highest)
            return fail(name, fmt::format("has a zero point that is stored as {}: tools differ in what version 1 of "
                                          "GPTQ means by it; save it as `gptq_v2`",
                                          highest)),
                   false;
      }
    }
    if (!group.symmetric)
      return true;
    for (const uint8_t zero : found.readZeroPoints())
      if (zero != middle)
        return fail(name,
                    found.layout == CodeLayout::PackedAwq
                        ? fmt::format("has zero point {}, but without `zero_point` all are {}", zero, middle)
                        : fmt::format("has zero point {}, but codes of `sym` have {}: is `checkpoint_format` right?",
                                      zero, middle)),
               false;
    found.zeroPoints = nullptr;
    return true;
  }

  /// Where each column's group stands, if there is a tensor of it.
  bool takeOrder(const std::string &ending) {
    const std::string name = module + "." + ending;
    if (!file.find(name)) {
      if (!found.scheme.ordered)
        return true;
      return fail(name, "is missing: the groups' order of columns"), false;
    }
    const TensorView *order = nullptr;
    if (!take(order, ending, {DType::I32}, {{found.columns}}))
      return false;
    std::vector<int64_t> members(found.blockColumns());
    bool inOrder = true, none = false;
    for (int64_t i = 0; i < found.columns; ++i) {
      int32_t of;
      std::memcpy(&of, order->data + 4 * i, 4);
      const bool isNone = of == -1 && found.layout == CodeLayout::PackedRows; // of old files
      none = none || isNone;
      if (!isNone && (of < 0 || of >= found.blockColumns()))
        return fail(name, fmt::format("has group {}; there are {}", of, found.blockColumns())), false;
      inOrder = inOrder && of == i / found.scaleColumns();
      if (of >= 0)
        ++members[of];
    }
    if (none || !found.scheme.hasGroups()) // old files: in order
      inOrder = true;
    else if (std::any_of(members.begin(), members.end(), [&](int64_t n) { return n != found.scaleColumns(); }))
      return fail(name, fmt::format("does not give each group {} columns", found.scaleColumns())), false;
    if (!inOrder && !found.scheme.ordered)
      return fail(name, "has groups in another order than columns, which config.json does not say"), false;
    if (found.scheme.ordered && !none)
      found.order = order;
    return true;
  }

  const SafetensorsFile &file;
  const std::string &module;
  const Group &group;
  const bool byGptqModel;
  std::string &error;
  QuantisedTensor found;
};

std::optional<QuantisedTensor> Quantisation::find(const SafetensorsFile &file, const std::string &module, int64_t rows,
                                                  int64_t columns, std::string &error) const {
  const Group *group = groupOf(module);
  if (!group) {
    error = fmt::format("`{}` has codes, though `quantization_config` leaves it out", module);
    return std::nullopt;
  }
  return Finder(file, module, *group, ByGptqModel, rows, columns, error).run();
}

static uint32_t wordAt(const TensorView &tensor, int64_t index) {
  uint32_t word;
  std::memcpy(&word, tensor.data + 4 * index, 4); // the format does not promise alignment
  return word;
}
/// Code `number` of those that lie one after the other in words.
static uint8_t codeIn(uint32_t word, int64_t number, int bits) {
  return static_cast<uint8_t>(word >> number * bits & ((1u << bits) - 1));
}
/// Which nibble of a word has output `number` of eight.
static int64_t nibbleOfAwq(int64_t number) { return number / 2 + number % 2 * 4; }

void QuantisedTensor::readCodes(int64_t row, uint8_t *to) const {
  const int bits = bitsOf(scheme.format);
  const int64_t perWord = 32 / bits;
  switch (layout) {
  case CodeLayout::Bytes:
    std::memcpy(to, codes->data + row * columns, columns);
    break;
  case CodeLayout::PackedRows: {
    const int64_t words = (columns + perWord - 1) / perWord;
    for (int64_t k = 0; k < columns; ++k)
      to[k] = codeIn(wordAt(*codes, row * words + k / perWord), k % perWord, bits);
    break;
  }
  case CodeLayout::PackedAwq:
    for (int64_t k = 0; k < columns; ++k)
      to[k] = codeIn(wordAt(*codes, k * (rows / perWord) + row / perWord), nibbleOfAwq(row % perWord), bits);
    break;
  case CodeLayout::PackedGptq:
  case CodeLayout::PackedGptq1:
    for (int64_t k = 0; k < columns; ++k)
      to[k] = codeIn(wordAt(*codes, k / perWord * rows + row), k % perWord, bits);
    break;
  }
}

static float scaleAt(const TensorView &tensor, int64_t index) {
  switch (tensor.dtype) {
  case DType::F32:
    return std::bit_cast<float>(wordAt(tensor, index));
  case DType::F16:
  case DType::BF16: {
    uint16_t bits;
    std::memcpy(&bits, tensor.data + 2 * index, 2);
    return std::bit_cast<float>(tensor.dtype == DType::BF16 ? uint32_t(bits) << 16 : convert::f32OfF16(bits));
  }
  default: // E8M0
    return tensor.data[index] == 255 ? NAN : std::ldexp(1.0f, tensor.data[index] - 127);
  }
}

std::vector<float> QuantisedTensor::readScales() const {
  const int64_t r = blockRows(), c = blockColumns();
  const bool turned =
      layout == CodeLayout::PackedAwq || layout == CodeLayout::PackedGptq || layout == CodeLayout::PackedGptq1;
  std::vector<float> out(r * c);
  for (int64_t i = 0; i < r; ++i)
    for (int64_t j = 0; j < c; ++j)
      out[i * c + j] = scaleAt(*scales, turned ? j * r + i : i * c + j);
  return out;
}

std::vector<uint8_t> QuantisedTensor::readZeroPoints() const {
  const int64_t r = blockRows(), c = blockColumns();
  const int bits = bitsOf(scheme.format);
  const int64_t perWord = 32 / bits;
  if (scheme.format == WeightFormat::E4m3)
    return std::vector<uint8_t>(r * c, 0);
  std::vector<uint8_t> out(r * c, static_cast<uint8_t>(middleOf(scheme.format)));
  if (!zeroPoints)
    return out;
  // Of version 1 the word as a whole was lessened.
  const uint32_t ones = bits == 4 ? 0x11111111u : 0x01010101u;
  for (int64_t i = 0; i < r; ++i)
    for (int64_t j = 0; j < c; ++j) {
      const bool alongRows = layout == CodeLayout::PackedRows;
      uint32_t word = wordAt(*zeroPoints, alongRows ? i / perWord * c + j : j * (r / perWord) + i / perWord);
      if (layout == CodeLayout::PackedGptq1)
        word += ones;
      out[i * c + j] = codeIn(word, layout == CodeLayout::PackedAwq ? nibbleOfAwq(i % perWord) : i % perWord, bits);
    }
  return out;
}

std::vector<int32_t> QuantisedTensor::readOrder() const {
  if (!order)
    return {};
  std::vector<int32_t> groups(columns), columnsInOrder(columns);
  for (int64_t i = 0; i < columns; ++i) {
    std::memcpy(&groups[i], order->data + 4 * i, 4);
    columnsInOrder[i] = static_cast<int32_t>(i);
  }
  std::stable_sort(columnsInOrder.begin(), columnsInOrder.end(),
                   [&](int32_t a, int32_t b) { return groups[a] < groups[b]; });
  return columnsInOrder;
}

} // namespace megalith
