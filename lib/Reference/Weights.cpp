#include "Weights.h"
#include "device/Convert.h"
#include "megalith/Checkpoint/BFloat16.h"
#include "megalith/Checkpoint/SafetensorsFile.h"
#include <algorithm>
#include <cassert>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <system_error>
#include <thread>

using namespace megalith;
using namespace megalith::reference;

Weights::Weights(const ir::Operation &model, WeightSource &source) {
  for (const ir::Operation &op : model.region().ops) {
    if (op.op != ir::Op::Weight)
      continue;
    if (op.has<ir::attr::alias>()) {
      aliases[op.name] = op.get<ir::attr::alias>();
      continue;
    }
    std::vector<Tensor> &list = tensors[op.name];
    const std::vector<int64_t> &shape = op.get<ir::attr::shape>(), &expected = ir::storedShape(op);
    const int64_t layers = ir::tensorsOf(op);
    for (int64_t layer = 0; layer < layers; ++layer) {
      const std::string from = layerTensor(op.get<ir::attr::from>(), layer);
      Tensor tensor;
      std::vector<int64_t> found;
      if (const WeightScheme scheme = ir::schemeOf(op); scheme.quantised()) {
        tensor.codes = source.findCodes(model.name, from);
        if (tensor.codes && tensor.codes->scheme != scheme)
          throw NotExecutable(fmt::format("the codes of `{}` are of another scheme than the model expects", from));
        if (tensor.codes)
          found = {tensor.codes->rows, tensor.codes->columns};
      } else {
        tensor.data = source.find(model.name, from, found);
      }
      if (!tensor.data && !tensor.codes)
        throw NotExecutable(fmt::format("the checkpoint has no tensor `{}`", from));
      if (found != expected)
        throw NotExecutable(fmt::format("tensor `{}` has the shape {}, the model expects {}", from, found, expected));
      tensor.shape = shape;
      tensor.view = ir::viewOf(op);
      list.push_back(std::move(tensor));
    }
  }
}

Weights::Tensor &Weights::find(const std::string &name, int64_t layer) {
  auto alias = aliases.find(name);
  auto it = tensors.find(alias == aliases.end() ? name : alias->second);
  if (it == tensors.end())
    throw NotExecutable(fmt::format("the model has no weight `{}`", name));
  return it->second.size() == 1 ? it->second[0] : it->second.at(layer);
}

const uint16_t *Weights::line(const std::string &name, int64_t layer, int64_t index) {
  Tensor &tensor = find(name, layer);
  return tensor.data + tensor.view.at(index, 0);
}

const uint16_t *Weights::vector(const std::string &name, int64_t layer, int64_t &length) {
  Tensor &tensor = find(name, layer);
  length = tensor.shape.at(0);
  if (tensor.view == WeightView::whole(length, 1))
    return tensor.data;
  for (int64_t i = static_cast<int64_t>(tensor.vector.size()); i < length; ++i)
    tensor.vector.push_back(tensor.data[tensor.view.at(i, 0)]);
  return tensor.vector.data();
}

/// A code less its zero point as bf16.
static uint16_t valueOf(WeightFormat format, uint8_t code, uint8_t zero) {
  return format == WeightFormat::E4m3 ? convert::bf16OfE4m3(code)
                                      : floatToBf16(static_cast<float>(static_cast<int>(code) - zero));
}

static void packCodes(const CodedMatrix &of, const WeightView &view, PackedWeight &p) {
  const WeightScheme &scheme = of.scheme;
  const int64_t scaleRows = scheme.scaleRows ? scheme.scaleRows : of.rows,
                scaleColumns = scheme.scaleColumns ? scheme.scaleColumns : of.columns,
                blocks = (of.columns + scaleColumns - 1) / scaleColumns;
  p.piece = scheme.scaleColumns;
  p.order = of.order;
  const int64_t panels = (p.n + PackedWeight::panel - 1) / PackedWeight::panel;
  p.scales.resize(blocks * panels * PackedWeight::panel);
  for (int64_t n = 0; n < p.n; ++n) {
    uint16_t *out = p.data.data() + n / PackedWeight::panel * p.k * PackedWeight::panel + n % PackedWeight::panel;
    const int64_t row = view.at(n, 0) / of.columns;
    const size_t scalesOfRow = row / scaleRows * blocks;
    for (int64_t k = 0; k < p.k; ++k)
      out[k * PackedWeight::panel] =
          valueOf(scheme.format, of.codes[row * of.columns + (of.order.empty() ? k : of.order[k])],
                  of.zeros[scalesOfRow + k / scaleColumns]);
    for (int64_t block = 0; block < blocks; ++block)
      p.scales[block * panels * PackedWeight::panel + n] = of.scales[scalesOfRow + block];
  }
}

const PackedWeight &Weights::packed(const std::string &name, int64_t layer) {
  Tensor &tensor = find(name, layer);
  PackedWeight &p = tensor.packed;
  if (!p.data.empty())
    return p;
  p.n = tensor.shape.at(0);
  p.k = tensor.shape.at(1);
  int64_t panels = (p.n + PackedWeight::panel - 1) / PackedWeight::panel;
  p.data.resize(panels * p.k * PackedWeight::panel);
  if (tensor.codes) {
    packCodes(*tensor.codes, tensor.view, p);
    return p;
  }
  for (int64_t n = 0; n < p.n; ++n) {
    uint16_t *out = p.data.data() + n / PackedWeight::panel * p.k * PackedWeight::panel + n % PackedWeight::panel;
    const uint16_t *line = tensor.data + tensor.view.at(n, 0);
    for (int64_t k = 0; k < p.k; ++k)
      out[k * PackedWeight::panel] = line[k * tensor.view.columnStride];
  }
  return p;
}

// The same additions in the same order whatever the vector width: wider vectors
// hold more outputs, and contraction is off.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define WIDER_VECTORS __attribute__((target_clones("avx2", "default")))
#else
#define WIDER_VECTORS
#endif

// Most of what the reference executor does. Checked, it takes twenty times as long, so that multiplySplit8 looks at the
// bounds; and what is not checked takes in no function that is.
#if defined(__clang__) && defined(__SANITIZE_ADDRESS__)
#define UNCHECKED __attribute__((no_sanitize("address", "undefined", "coverage")))
#else
#define UNCHECKED
#endif

/// One panel of outputs for all rows.
WIDER_VECTORS UNCHECKED static void multiplyPanel(const uint16_t *w, int64_t k, const float *a, int64_t rows,
                                                  int64_t columns, float *out, int64_t stride) {
  constexpr int64_t panel = PackedWeight::panel;
  // Eight equal parts of k padded to a multiple of 256; the padding adds zeros.
  int64_t part = (k + 255) / 256 * 32;
  for (int64_t r = 0; r < rows; ++r) {
    float total[panel] = {};
    for (int64_t first = 0; first < k; first += part) {
      float sum[panel] = {};
      int64_t last = first + part < k ? first + part : k;
      for (int64_t i = first; i < last; ++i) {
        float x = a[r * k + i];
        const uint16_t *line = w + i * panel;
        for (int64_t c = 0; c < panel; ++c)
          sum[c] += x * __builtin_bit_cast(float, static_cast<uint32_t>(line[c]) << 16);
      }
      for (int64_t c = 0; c < panel; ++c)
        total[c] += sum[c];
    }
    for (int64_t c = 0; c < columns; ++c)
      out[r * stride + c] = total[c];
  }
}

/// The same of codes whose scales are of pieces: `scales` are of this panel's first piece, `next` of the one after it.
WIDER_VECTORS UNCHECKED static void multiplyPieces(const uint16_t *w, int64_t k, int64_t piece, const float *scales,
                                                   int64_t next, const float *a, int64_t rows, int64_t columns,
                                                   float *out, int64_t stride) {
  constexpr int64_t panel = PackedWeight::panel;
  int64_t part = (k + 255) / 256 * 32;
  for (int64_t r = 0; r < rows; ++r) {
    float total[panel] = {};
    for (int64_t first = 0; first < k; first += part) {
      float eighth[panel] = {};
      int64_t last = first + part < k ? first + part : k;
      for (int64_t begin = first; begin < last;) {
        float sum[panel] = {};
        int64_t end = (begin / piece + 1) * piece;
        end = end < last ? end : last;
        for (int64_t i = begin; i < end; ++i) {
          float x = a[r * k + i];
          const uint16_t *line = w + i * panel;
          for (int64_t c = 0; c < panel; ++c)
            sum[c] += x * __builtin_bit_cast(float, static_cast<uint32_t>(line[c]) << 16);
        }
        const float *scale = scales + begin / piece * next;
        for (int64_t c = 0; c < panel; ++c)
          eighth[c] = std::fmaf(scale[c], sum[c], eighth[c]);
        begin = end;
      }
      for (int64_t c = 0; c < panel; ++c)
        total[c] += eighth[c];
    }
    for (int64_t c = 0; c < columns; ++c)
      out[r * stride + c] = total[c];
  }
}

/// The columns of the operand in the order of the weight's groups.
static std::vector<float> gathered(const float *a, int64_t rows, const std::vector<int32_t> &order) {
  const auto k = static_cast<int64_t>(order.size());
  std::vector<float> out(rows * k);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < k; ++i)
      out[r * k + i] = a[r * k + order[i]];
  return out;
}

void reference::multiplySplit8(const PackedWeight &w, const float *a, int64_t rows, float *out) {
  constexpr int64_t panel = PackedWeight::panel;
  int64_t panels = (w.n + panel - 1) / panel;
  assert(int64_t(w.data.size()) == panels * w.k * panel);
  std::vector<float> inOrder;
  if (!w.order.empty()) {
    inOrder = gathered(a, rows, w.order);
    a = inOrder.data();
  }
  auto work = [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      const uint16_t *const data = w.data.data() + p * w.k * panel;
      const int64_t columns = std::min(panel, w.n - p * panel);
      float *const to = out + p * panel;
      if (w.piece) {
        multiplyPieces(data, w.k, w.piece, w.scales.data() + p * panel, panels * panel, a, rows, columns, to, w.n);
        continue;
      }
      multiplyPanel(data, w.k, a, rows, columns, to, w.n);
      for (int64_t r = 0; r < rows && !w.scales.empty(); ++r)
        for (int64_t c = 0; c < columns; ++c)
          to[r * w.n + c] *= w.scales[p * panel + c];
    }
  };
  // Starting a thread costs as much as a small product.
  constexpr int64_t worthThreads = 2 << 20;
  int64_t threads = std::clamp<int64_t>(std::thread::hardware_concurrency(), 1, 16);
  if (rows * w.n * w.k < worthThreads)
    threads = 1;
  std::vector<std::jthread> pool;
  int64_t begin = panels / threads;
  const int64_t first = begin;
  try {
    for (int64_t t = 1; t < threads; ++t) {
      const int64_t end = panels * (t + 1) / threads;
      pool.emplace_back(work, begin, end);
      begin = end;
    }
  } catch (const std::system_error &) { // no more threads (`ulimit -u`, `ulimit -v`): ours does the rest
    work(begin, panels);
  }
  work(0, first);
}
