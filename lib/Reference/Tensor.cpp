#include "Tensor.h"
#include "device/Convert.h"
#include "megalith/Checkpoint/BFloat16.h"
#include "megalith/Checkpoint/RopeTable.h"
#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <numeric>
#include <utility>

using namespace megalith;
using namespace megalith::reference;
using ir::Op;
using ir::Operation;
namespace attr = ir::attr;

uint64_t KvStore::hash(int32_t page, int64_t offset) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (int64_t layer = 0; layer < layers; ++layer)
    for (const float *line : {key(page, layer, offset), value(page, layer, offset)})
      for (int64_t i = 0; i < width; ++i)
        hash = (hash ^ floatToBf16(line[i])) * 0x100000001b3u;
  return hash;
}

TensorModel::TensorModel(const ir::Module &module, const Operation &model, WeightSource &source, int64_t pages,
                         int64_t pageTokens)
    : module(module), model(model), weights(model, source), vocabulary(model.get<attr::vocab>()),
      store(std::make_unique<KvStore>(pages, pageTokens, model.get<attr::kv_layers>(),
                                      model.get<attr::kv_heads>() * model.get<attr::head_dim>())),
      kvFormats(ir::kvFormats(module, model)) {
  env.resize(module.values.size());
  for (const Operation &segment : model.region().ops) {
    if (segment.op != Op::Segment)
      continue;
    for (const Operation &op : segment.region().ops) {
      bool appends = op.op == Op::KvAppend;
      for (const ir::Region &region : op.regions)
        ir::walk(region, [&](const Operation &inner) { appends |= inner.op == Op::KvAppend; });
      if (appends)
        lastAppend = &op;
    }
  }
}

/// The lowest index wins; -2 when there is a NaN.
static int32_t lowestArgmax(const float *line, int64_t columns) {
  int32_t best = 0;
  for (int64_t c = 0; c < columns; ++c) {
    if (std::isnan(line[c]))
      return RowIsNan;
    if (line[c] > line[best])
      best = static_cast<int32_t>(c);
  }
  return best;
}

PassOutput TensorModel::run(const std::vector<Row> &passRows, const std::vector<PageTable> &pages) {
  rows = passRows;
  tables = &pages;
  paths = pathsOf(rows, pages);
  layer = 0;
  argmaxOperands.clear();
  yielded.clear();
  if (!lastAppend)
    keepWantedRows();
  bool wanted = std::any_of(rows.begin(), rows.end(), [](const Row &row) { return row.flags & RowWantsLogits; });
  for (const Operation &segment : model.region().ops) {
    if (segment.op != Op::Segment)
      continue;
    // A segment's arguments are the results of the one before.
    const ir::Region &region = segment.region();
    std::vector<ir::Value> inputs = yielded;
    for (size_t i = 0; i < region.args.size(); ++i)
      env[region.args[i].id] = get(inputs.at(i));
    for (const Operation &op : region.ops) {
      if (op.op == Op::Yield) {
        yielded.assign(op.operands.begin(), op.operands.end());
        continue;
      }
      runOp(op);
      if (&op != lastAppend)
        continue;
      // What follows the last append concerns rows that want logits only.
      if (!wanted)
        return {};
      keepWantedRows();
    }
  }

  PassOutput output;
  if (yielded.empty())
    throw NotExecutable(fmt::format("model `{}` has no result", model.name));
  const auto resultOf = [&](ir::Value v) {
    const auto it = argmaxOperands.find(v.id);
    return it == argmaxOperands.end() ? get(v) : std::move(it->second);
  };
  output.logits = resultOf(yielded[0]);
  const std::vector<std::string> &names = model.get<ir::attr::results>();
  for (size_t i = 0; i < names.size(); ++i)
    output.others[names[i]] = resultOf(yielded.at(1 + i));
  for (int64_t r = 0; r < output.logits.rows; ++r)
    output.argmax.push_back(lowestArgmax(output.logits.row(r), output.logits.cols));
  return output;
}

void PassOutput::keep(const std::vector<int64_t> &lines) {
  logits = logits.only(lines);
  for (auto &[name, matrix] : others)
    matrix = matrix.only(lines);
  for (size_t i = 0; i < lines.size(); ++i)
    argmax[i] = argmax[lines[i]];
  argmax.resize(lines.size());
}

void TensorModel::keepWantedRows() {
  std::vector<int64_t> kept;
  for (size_t r = 0; r < rows.size(); ++r)
    if (rows[r].flags & RowWantsLogits)
      kept.push_back(static_cast<int64_t>(r));
  for (Matrix &m : env)
    if (m.perRow && m.rows == static_cast<int64_t>(rows.size()))
      m = m.only(kept);
  std::vector<Row> fewer;
  std::vector<RowPath> fewerPaths;
  for (int64_t r : kept) {
    fewer.push_back(rows[r]);
    fewerPaths.push_back(std::move(paths[r]));
  }
  rows = std::move(fewer);
  paths = std::move(fewerPaths);
}

void TensorModel::runRegion(const ir::Region &region) {
  for (const Operation &op : region.ops) {
    if (op.op == Op::Yield)
      yielded.assign(op.operands.begin(), op.operands.end());
    else
      runOp(op);
  }
}

void TensorModel::runRepeat(const Operation &op) {
  const ir::Region &region = op.region();
  std::vector<Matrix> carried;
  for (ir::Value v : op.operands)
    carried.push_back(get(v));
  for (layer = 0; layer < op.get<attr::count>(); ++layer) {
    for (size_t i = 0; i < carried.size(); ++i)
      env[region.args[i].id] = std::move(carried[i]);
    runRegion(region);
    for (size_t i = 0; i < carried.size(); ++i)
      carried[i] = get(yielded.at(i));
  }
  layer = 0;
  for (size_t i = 0; i < op.results.size(); ++i)
    env[op.results[i].id] = std::move(carried[i]);
}

void TensorModel::runOp(const Operation &op) {
  auto R = static_cast<int64_t>(rows.size());
  switch (op.op) {
  case Op::Const: {
    Matrix value(1, 1);
    value.perRow = false;
    value.data[0] = constantValue(op.get<attr::value>(), ir::Type::scalar(ir::Scalar::F32)).f;
    set(op, std::move(value));
    break;
  }
  case Op::WeightGet: {
    int64_t length = 0;
    const uint16_t *data = weights.vector(op.name, layer, length);
    Matrix value(1, length);
    value.perRow = false;
    std::transform(data, data + length, value.data.begin(), bf16ToFloat);
    set(op, std::move(value));
    break;
  }
  case Op::MatMul: {
    const PackedWeight &w = weights.packed(op.name, layer);
    const Matrix &a = get(op.operands[0]);
    if (a.cols != w.k)
      throw NotExecutable(fmt::format("matmul with `{}`: {} columns against {}", op.name, a.cols, w.k));
    assert(int64_t(a.data.size()) == R * w.k);
    Matrix value(R, w.n);
    multiplySplit8(w, a.data.data(), R, value.data.data());
    set(op, std::move(value));
    break;
  }
  case Op::Embed:
    set(op, embed(op));
    break;
  case Op::ReduceSum:
  case Op::ReduceMax:
    set(op, reduce(op));
    break;
  case Op::RopeCos:
  case Op::RopeSin:
    set(op, rope(op));
    break;
  case Op::RotateHalf:
    set(op, rotateHalf(op));
    break;
  case Op::KvAppend:
    append(op);
    break;
  case Op::Attention:
    set(op, attention(op));
    break;
  case Op::ArgMax:
    set(op, argmax(op));
    break;
  case Op::Repeat:
    runRepeat(op);
    break;
  case Op::Stream:
  case Op::Map:
    runRegion(op.region());
    for (size_t i = 0; i < op.results.size(); ++i) {
      const ir::Value inner = yielded.at(i);
      env[op.results[i].id] = get(inner);
      if (auto operand = argmaxOperands.extract(inner.id)) {
        operand.key() = op.results[i].id;
        argmaxOperands.insert(std::move(operand));
      }
    }
    break;
  default:
    set(op, elementwise(op));
  }
}

Matrix TensorModel::embed(const Operation &op) {
  const bool byPosition = op.get<attr::by>() == ir::By::Position;
  int64_t columns = module.type(op.result()).size;
  Matrix out(static_cast<int64_t>(rows.size()), columns);
  for (size_t r = 0; r < rows.size(); ++r) {
    // A draft may come after the last position that a request may have. Nobody takes what becomes of it.
    const int64_t index =
        byPosition ? std::min<int64_t>(rows[r].position, weights.rows(op.name, layer) - 1) : lineOfToken(rows[r].token);
    const uint16_t *line = weights.line(op.name, layer, index);
    std::transform(line, line + columns, out.row(static_cast<int64_t>(r)), bf16ToFloat);
  }
  return out;
}

/// `lanes32`: partial sum j takes columns j*8..j*8+7, 256+j*8.., ascending; the
/// partial sums are added pairwise over distance 16, 8, 4, 2, 1.
static float sumLanes32(const float *x, int64_t columns) {
  float lanes[32] = {};
  for (int64_t c = 0; c < columns; ++c)
    lanes[c / 8 % 32] += x[c];
  for (int distance = 16; distance > 0; distance /= 2)
    for (int j = 0; j < distance; ++j)
      lanes[j] += lanes[j + distance];
  return lanes[0];
}

/// `parts8`: the columns, padded to a multiple of 256, in 8 parts; each as `lanes32`; their
/// sums in ascending order.
static float sumParts8(const float *x, int64_t columns) {
  const int64_t part = (columns + 255) / 256 * 32;
  float sum = sumLanes32(x, std::min(part, columns));
  for (int64_t begin = part; begin < 8 * part; begin += part)
    sum += begin < columns ? sumLanes32(x + begin, std::min(part, columns - begin)) : 0.0f;
  return sum;
}

Matrix TensorModel::reduce(const Operation &op) {
  const bool parts = op.op == Op::ReduceSum && op.get<attr::tree>() == ir::SumTree::Parts8;
  const Matrix &a = get(op.operands[0]);
  int64_t groups = op.get<attr::groups>();
  int64_t width = a.cols / groups;
  Matrix out(static_cast<int64_t>(rows.size()), groups);
  for (int64_t r = 0; r < out.rows; ++r)
    for (int64_t g = 0; g < groups; ++g) {
      const float *x = a.row(r) + g * width;
      out.row(r)[g] = op.op == Op::ReduceSum ? (parts ? sumParts8(x, width) : sumLanes32(x, width))
                                             : std::accumulate(x, x + width, -std::numeric_limits<float>::infinity(),
                                                               [](float m, float v) { return v > m ? v : m; });
    }
  return out;
}

const std::vector<TensorModel::Angles> &TensorModel::anglesOf() {
  if (!angles.empty())
    return angles;
  const int64_t turned = model.get<attr::rope_turned>();
  RopeParams own;
  own.theta = model.get<attr::rope_theta>();
  own.type = word(model.get<attr::rope_type>());
  own.factor = model.get<attr::rope_factor>();
  own.lowFreqFactor = model.get<attr::rope_low>();
  own.highFreqFactor = model.get<attr::rope_high>();
  own.originalMaxPositions = model.get<attr::rope_original>();
  own.attention = model.get<attr::rope_attention>();
  own.headDim = static_cast<int>(turned ? turned : model.get<attr::head_dim>());
  const std::vector<double> &known = model.get<attr::rope_frequencies>();
  own.frequencies.assign(known.begin(), known.end());
  for (const RopeParams &table : ropeTables(own, model.get<attr::rope_bases>()))
    angles.push_back({inverseFrequencies(table), table.attention});
  return angles;
}

namespace {
/// How the columns of a head are turned against each other: neighbours, or of the first `turned` the two halves. The
/// others are paired alike, and turned by no angle.
struct HeadPairs {
  int64_t dim, turned;
  bool adjacent;
  explicit HeadPairs(const Operation &op)
      : dim(op.get<attr::dim>()), turned(op.get<attr::turned>() ? op.get<attr::turned>() : dim),
        adjacent(op.get<attr::adjacent>()) {}

  /// The part of the head that column c of it is in: its first column and half its size.
  std::pair<int64_t, int64_t> partOf(int64_t c) const {
    return c < turned ? std::pair(int64_t(0), turned / 2) : std::pair(turned, (dim - turned) / 2);
  }
  bool isFirst(int64_t column) const {
    const auto [begin, half] = partOf(column % dim);
    return adjacent ? column % 2 == 0 : column % dim - begin < half;
  }
  int64_t partner(int64_t column) const {
    const int64_t distance = adjacent ? 1 : partOf(column % dim).second;
    return isFirst(column) ? column + distance : column - distance;
  }
  /// Of the head's dim / 2.
  int64_t pair(int64_t column) const {
    const int64_t c = column % dim;
    const auto [begin, half] = partOf(c);
    return adjacent ? c / 2 : begin / 2 + (c - begin) % half;
  }
};
} // namespace

Matrix TensorModel::rope(const Operation &op) {
  const HeadPairs pairs(op);
  const std::vector<int64_t> &ofLayers = model.get<attr::rope_tables>();
  const Angles &table = anglesOf()[ofLayers.empty() ? 0 : ofLayers[ofLayers.size() == 1 ? 0 : layer]];
  std::vector<float> cos(pairs.dim / 2, 1.0f), sin(pairs.dim / 2, 0.0f);
  Matrix out(static_cast<int64_t>(rows.size()), module.type(op.result()).size);
  for (int64_t r = 0; r < out.rows; ++r) {
    ropeCosSin(table.frequencies, table.attention, rows[r].position, cos.data(), sin.data());
    for (int64_t c = 0; c < out.cols; ++c)
      out.row(r)[c] = (op.op == Op::RopeCos ? cos : sin)[pairs.pair(c)];
  }
  return out;
}

Matrix TensorModel::rotateHalf(const Operation &op) {
  const Matrix &a = get(op.operands[0]);
  const HeadPairs pairs(op);
  Matrix out(a.rows, a.cols);
  for (int64_t r = 0; r < a.rows; ++r)
    for (int64_t c = 0; c < a.cols; ++c) {
      const float partner = a.row(r)[pairs.partner(c)];
      out.row(r)[c] = pairs.isFirst(c) ? -partner : partner;
    }
  return out;
}

int32_t TensorModel::pageOf(const Row &row, int64_t place) const {
  return (*tables)[row.slot].at(place / store->pageTokens);
}

void TensorModel::move(const PageTable &table, int64_t base, const std::vector<int32_t> &from) {
  const int64_t layers = store->layers, width = store->width, size = store->pageTokens;
  std::vector<std::vector<float>> lines;
  for (int64_t place : from)
    for (int64_t l = 0; l < layers; ++l)
      for (const float *line :
           {store->key(table.at(place / size), l, place % size), store->value(table.at(place / size), l, place % size)})
        lines.emplace_back(line, line + width);
  size_t next = 0;
  for (size_t i = 0; i < from.size(); ++i)
    for (int64_t l = 0; l < layers; ++l)
      for (bool isKey : {true, false}) {
        const int64_t place = base + static_cast<int64_t>(i);
        const int32_t page = table.at(place / size);
        std::copy_n(lines[next++].begin(), width,
                    isKey ? store->key(page, l, place % size) : store->value(page, l, place % size));
      }
}

/// What a pool in e4m3 makes of the values of one head, which are bf16 (docs/ir.md, "KV in e4m3").
static void throughE4m3(float *head, int64_t dim) {
  float most = 0;
  bool finite = true;
  for (int64_t d = 0; d < dim; ++d) {
    finite = finite && std::isfinite(head[d]);
    most = std::max(most, std::abs(head[d]));
  }
  if (!finite) {
    std::fill_n(head, dim, std::numeric_limits<float>::quiet_NaN());
    return;
  }
  // Up to a bf16: the next one, where a bit beyond it is set.
  const uint32_t bits = (std::bit_cast<uint32_t>(most / 448.0f) + 0xffffu) & 0xffff0000u;
  const float scale = std::max(std::bit_cast<float>(bits), 0x1p-126f), inverse = 1.0f / scale;
  for (int64_t d = 0; d < dim; ++d) {
    const uint8_t code = convert::e4m3OfF32(std::bit_cast<uint32_t>(head[d] * inverse));
    head[d] = roundToBf16(bf16ToFloat(convert::bf16OfE4m3(code)) * scale);
  }
}

void TensorModel::append(const Operation &op) {
  const Matrix &k = get(op.operands[0]), &v = get(op.operands[1]);
  const int64_t dim = op.get<attr::dim>();
  const auto put = [&](const float *from, int64_t columns, float *to) {
    std::transform(from, from + columns, to, roundToBf16);
    for (int64_t head = 0; kvFormats[layer] == WeightFormat::E4m3 && head < columns; head += dim)
      throughE4m3(to + head, dim);
  };
  for (int64_t r = 0; r < k.rows; ++r) {
    const Row &row = rows[r];
    int32_t page = pageOf(row, row.kvSlot);
    int64_t offset = row.kvSlot % store->pageTokens;
    put(k.row(r), k.cols, store->key(page, layer, offset));
    put(v.row(r), v.cols, store->value(page, layer, offset));
  }
}

constexpr float log2e = 1.44269504f;
constexpr float lowest = std::numeric_limits<float>::lowest(), nothing = -std::numeric_limits<float>::infinity();

/// exp(x) as attention has it.
static float expOfScore(float x) { return std::exp2(x * log2e); }

/// (m, z, o) over some keys. m is scaled.
struct SoftPart {
  float m = nothing, z = 0;
  std::vector<float> o;

  /// No key in it has a score above minus infinity.
  bool empty() const { return m == nothing && z == 0; }
  void take(const SoftPart &other) {
    if (o.empty() || empty()) {
      *this = other;
      return;
    }
    if (other.empty())
      return;
    const float larger = other.m > m ? other.m : m;
    const float before = expOfScore(m - larger), now = expOfScore(other.m - larger);
    z = z * before + other.z * now;
    for (size_t d = 0; d < o.size(); ++d)
      o[d] = o[d] * before + other.o[d] * now;
    m = larger;
  }
};

/// `rounds8`: round number `index`; eight parts of a level make one of the next.
static void pushPart(std::vector<SoftPart> &open, int64_t index, SoftPart part) {
  for (size_t level = 0;; ++level, index /= 8) {
    if (level == open.size())
      open.emplace_back();
    open[level].take(part);
    if (index % 8 != 7)
      return;
    part = std::exchange(open[level], SoftPart());
  }
}

static SoftPart totalOf(const std::vector<SoftPart> &open) {
  SoftPart sum;
  for (const SoftPart &level : open) {
    const SoftPart lower = std::exchange(sum, level);
    if (!lower.o.empty())
      sum.take(lower);
  }
  return sum;
}

/// q * k: a step adds 16 dims, in this order.
static float dotProduct(const float *query, const float *key, int64_t dim) {
  constexpr std::array<int64_t, 16> order = {0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15};
  float sum = 0;
  for (int64_t step = 0; step < dim; step += 16)
    for (const int64_t d : order)
      if (step + d < dim)
        sum += query[step + d] * key[step + d];
  return sum;
}

Matrix TensorModel::attention(const Operation &op) {
  const Matrix &q = get(op.operands[0]);
  int64_t heads = op.get<attr::heads>(), kvHeads = op.get<attr::kv_heads>();
  int64_t dim = op.get<attr::dim>();
  auto scale = static_cast<float>(op.get<attr::scale>());
  constexpr int64_t round = 256;
  const std::vector<int64_t> windows = op.get<attr::window>();
  const int64_t window = windows.empty() ? 0 : windows[windows.size() == 1 ? 0 : layer];
  const auto cap = static_cast<float>(op.get<attr::cap>());
  // Scores are scaled only on the way to the exponent: unless the greatest would not be the greatest of those scaled.
  const bool scalesLate = cap == 0 && scale > 0;
  const float factor = scalesLate ? scale * log2e : log2e;
  Matrix out(q.rows, heads * dim);
  std::vector<float> query(dim), o(dim), ofLeaf(dim), s(round);
  std::vector<const float *> values(round);
  std::vector<SoftPart> open; // of each level the part that is being put together
  for (int64_t r = 0; r < q.rows; ++r) {
    const Row &row = rows[r];
    const int64_t from = window ? std::max<int64_t>(0, row.visible - window) : 0;
    for (int64_t h = 0; h < heads; ++h) {
      std::transform(q.row(r) + h * dim, q.row(r) + (h + 1) * dim, query.begin(), roundToBf16);
      int64_t column = h / (heads / kvHeads) * dim;
      float *result = out.row(r) + h * dim;
      open.clear();
      for (int64_t first = from / round * round; first < row.visible; first += round) {
        const int64_t begin = std::max<int64_t>(0, from - first), count = std::min<int64_t>(round, row.visible - first);
        float m = nothing, z = 0;
        for (int64_t j = begin; j < count; ++j) {
          const int64_t place = paths[r].at(first + j);
          const int32_t page = pageOf(row, place);
          const int64_t offset = place % store->pageTokens;
          const float *key = store->key(page, layer, offset) + column;
          values[j] = store->value(page, layer, offset) + column;
          s[j] = dotProduct(query.data(), key, dim);
          if (!scalesLate)
            s[j] *= scale;
          if (cap > 0)
            s[j] = std::tanh(s[j] / cap) * cap;
          m = s[j] > m ? s[j] : m;
        }
        // Where no score is above minus infinity, the weights are 0, not NaN.
        const float shift = std::max(m * factor, lowest);
        std::fill(o.begin(), o.end(), 0.0f);
        for (int64_t leaf = 0; leaf < 8; ++leaf) {
          float sums[8] = {};
          std::fill(ofLeaf.begin(), ofLeaf.end(), 0.0f);
          for (int64_t eight = 8 * leaf; eight < count; eight += 64)
            for (int64_t j = std::max(eight, begin); j < std::min(eight + 8, count); ++j) {
              const float p = roundToBf16(std::exp2(std::fma(s[j], factor, -shift)));
              sums[j % 8] += p;
              for (int64_t d = 0; d < dim; ++d)
                ofLeaf[d] += p * values[j][d];
            }
          z += ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
          for (int64_t d = 0; d < dim; ++d)
            o[d] += ofLeaf[d];
        }
        pushPart(open, first / round, {scalesLate ? m * scale : m, z, o});
      }
      const SoftPart sum = totalOf(open);
      for (int64_t d = 0; d < dim; ++d)
        result[d] = sum.o[d] / sum.z;
    }
  }
  return out;
}

/// Remembers its operand: the logits, where the reducer is fused into the head.
Matrix TensorModel::argmax(const Operation &op) {
  const Matrix &operand = argmaxOperands[op.result().id] = get(op.operands[0]);
  Matrix out(static_cast<int64_t>(rows.size()), 1);
  for (int64_t r = 0; r < out.rows; ++r)
    out.row(r)[0] = static_cast<float>(lowestArgmax(operand.row(r), operand.cols));
  return out;
}
