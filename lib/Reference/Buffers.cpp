#include "megalith/Reference/Buffers.h"
#include "Values.h"
#include "megalith/IR/Scalar.h"
#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>

using namespace megalith;
using namespace megalith::reference;
using ir::Op;
using ir::Operation;
namespace attr = ir::attr;

namespace {
class Call : Values {
public:
  Call(const ir::Module &module, const ir::CallShapes &call, const std::map<std::string, void *> &memory)
      : Values(module, env), env(module.values.size()), dims(call.dims) {
    for (const Operation *op : module.all(Op::Buffer))
      buffers[op->name] = {op->get<attr::dtype>(), call.shapes.at(op->name), static_cast<char *>(memory.at(op->name))};
  }

  void run(const Operation &items) {
    runRegion(items.region(0));
    const auto &bounds = items.region(0).ops.back().operands;
    if (bounds.empty())
      return runRegion(items.region(1));
    const int32_t low = value(bounds[0]).i, high = value(bounds[1]).i;
    for (int32_t i = low; i < high; ++i) {
      value(items.region(1).args[0]).i = i;
      runRegion(items.region(1));
    }
  }

private:
  struct Buffer {
    ir::Scalar dtype;
    std::vector<int64_t> shape;
    char *data;
    int64_t bytes() const { return ir::bytesOf(dtype); }
    /// Elements of one number of dimension `d`.
    int64_t stride(size_t d) const {
      return std::accumulate(shape.begin() + d + 1, shape.end(), int64_t(1), std::multiplies());
    }
  };

  void evaluate(const ir::Region &region) override { runRegion(region); }
  void runRegion(const ir::Region &region) {
    for (const Operation &op : region.ops)
      runOp(op);
  }

  void runOp(const Operation &op) {
    if (isOverRange(op.op))
      return over(op);
    switch (op.op) {
    case Op::Yield:
      return;
    case Op::If:
      if (operand(op, 0).i)
        runRegion(op.region(0));
      else if (op.regions.size() > 1)
        runRegion(op.region(1));
      return;
    case Op::Choose:
      return choose(op);
    case Op::DimGet:
      return set(op, static_cast<int32_t>(dims.at(op.name)));
    case Op::BufferAt:
      return load(op);
    case Op::BufferSet:
      return store(op);
    case Op::BufferCopy:
      return copy(op);
    case Op::BufferScan:
      return scan(op);
    case Op::BufferSort:
      return sort(op);
    case Op::SeqConst:
    case Op::SeqMake:
    case Op::SeqLen:
    case Op::SeqAt:
      return sequence(op);
    default:
      return arithmetic(op);
    }
  }

  /// The element where indices that begin at operand `first` lead, counted in the whole buffer.
  int64_t placeOf(const Operation &op, const Buffer &buffer, unsigned first, size_t count) {
    int64_t place = 0;
    for (size_t d = 0; d < count; ++d) {
      const int32_t i = operand(op, first + static_cast<unsigned>(d)).i;
      if (i < 0 || i >= buffer.shape[d])
        throw FaultSignal{Fault::IndexRange, op.loc, {i, static_cast<int32_t>(buffer.shape[d])}};
      place += i * buffer.stride(d);
    }
    return place;
  }

  void load(const Operation &op) {
    const Buffer &buffer = buffers.at(op.name);
    const int64_t place = placeOf(op, buffer, 0, buffer.shape.size());
    const char *from = buffer.data + place * buffer.bytes();
    Val v;
    if (buffer.dtype == ir::Scalar::F32) {
      std::memcpy(&v.f, from, 4);
    } else if (buffer.dtype == ir::Scalar::Bool) {
      v.i = *from != 0;
    } else if (buffer.dtype == ir::Scalar::I64) {
      int64_t wide;
      std::memcpy(&wide, from, 8);
      if (wide != static_cast<int32_t>(wide))
        throw FaultSignal{Fault::ValueRange, op.loc, {static_cast<int32_t>(std::min<int64_t>(place, INT32_MAX))}};
      v.i = static_cast<int32_t>(wide);
    } else {
      std::memcpy(&v.i, from, 4);
    }
    result(op) = std::move(v);
  }

  void put(const Buffer &buffer, int64_t place, const Val &v) {
    char *to = buffer.data + place * buffer.bytes();
    const int64_t wide = v.i;
    if (buffer.dtype == ir::Scalar::F32)
      std::memcpy(to, &v.f, 4);
    else if (buffer.dtype == ir::Scalar::Bool)
      *to = v.i != 0;
    else
      std::memcpy(to, &wide, buffer.bytes()); // little-endian
  }

  void store(const Operation &op) {
    const Buffer &buffer = buffers.at(op.name);
    put(buffer, placeOf(op, buffer, 1, buffer.shape.size()), operand(op, 0));
  }

  /// The bounds of a slice of dimension `d`, which are operands `first` and the next.
  std::pair<int32_t, int32_t> slice(const Operation &op, const Buffer &buffer, unsigned first, size_t d) {
    const int32_t low = operand(op, first).i, high = operand(op, first + 1).i;
    const auto size = static_cast<int32_t>(buffer.shape[d]);
    for (int32_t bound : {low, high})
      if (bound < 0 || bound > size)
        throw FaultSignal{Fault::IndexRange, op.loc, {bound, size}};
    return {low, std::max(low, high)};
  }

  void copy(const Operation &op) {
    const Buffer &to = buffers.at(op.name), &from = buffers.at(op.get<attr::from>());
    const auto lead = static_cast<unsigned>(op.get<attr::lead>()),
               leadFrom = static_cast<unsigned>(op.operands.size()) - lead - 4;
    const int64_t place = placeOf(op, to, 0, lead);
    const auto [low, high] = slice(op, to, lead, lead);
    const int64_t placeFrom = placeOf(op, from, lead + 2, leadFrom);
    const auto [lowFrom, highFrom] = slice(op, from, lead + 2 + leadFrom, leadFrom);
    if (high - low != highFrom - lowFrom)
      throw FaultSignal{Fault::CopySize, op.loc, {high - low, highFrom - lowFrom}};
    std::memcpy(to.data + (place + low * to.stride(lead)) * to.bytes(),
                from.data + (placeFrom + lowFrom * from.stride(leadFrom)) * from.bytes(),
                (high - low) * to.stride(lead) * to.bytes());
  }

  void scan(const Operation &op) {
    const Buffer &buffer = buffers.at(op.name);
    Val sum;
    for (int32_t i = 0; i < operand(op, 0).i; ++i) {
      value(op.region().args[0]).i = i;
      runRegion(op.region());
      sum.i = ir::wrapped(int64_t(sum.i) + value(op.region().ops.back().operands[0]).i);
      put(buffer, i, sum);
    }
  }

  void sort(const Operation &op) {
    const int32_t count = operand(op, 0).i;
    std::vector<std::vector<int32_t>> keys(count);
    std::vector<int32_t> order(count);
    for (int32_t i = 0; i < count; ++i) {
      order[i] = value(op.region().args[0]).i = i;
      runRegion(op.region());
      for (ir::Value v : op.region().ops.back().operands)
        keys[i].push_back(value(v).i);
    }
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return keys[a] < keys[b]; });
    for (int32_t i = 0; i < count; ++i)
      put(buffers.at(op.name), i, Val{order[i], 0, {}, {}});
  }

  std::vector<Val> env;
  const std::map<std::string, int64_t> &dims;
  std::map<std::string, Buffer> buffers;
};
} // namespace

std::optional<CallFault> reference::runBuffers(const ir::Module &module, const ir::CallShapes &call,
                                               const std::map<std::string, void *> &buffers) {
  Call run(module, call, buffers);
  try {
    for (const Operation *items : module.all(Op::Items))
      run.run(*items);
  } catch (const FaultSignal &signal) {
    return CallFault{static_cast<int32_t>(signal.fault), signal.loc, signal.numbers};
  }
  return std::nullopt;
}
