#include "Numbers.h"
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <fmt/format.h>

namespace megalith::emit {

using ir::isOverRange;
using ir::Op;
using ir::Operation;
namespace attr = ir::attr;
using ir::Type;
using ir::Value;

std::string floatLiteral(double value) {
  const float f = static_cast<float>(value);
  if (!std::isfinite(f))
    return fmt::format("__int_as_float({:#x})", std::isnan(f) ? 0x7fffffffu : std::bit_cast<uint32_t>(f));
  // The shortest text, unless a compiler that goes by way of double would round it to another number.
  std::string text = fmt::format("{}", f);
  if (std::bit_cast<uint32_t>(static_cast<float>(std::strtod(text.c_str(), nullptr))) != std::bit_cast<uint32_t>(f))
    text = fmt::format("{:.9g}", f);
  if (text.find_first_of(".e") == std::string::npos)
    text += ".0";
  return text + "f";
}

std::string intLiteral(int32_t value) {
  // 2147483648 is no int.
  return value == INT32_MIN ? "(-2147483647 - 1)" : std::to_string(value);
}

/// Positions of a request, at most: a pool has no more.
constexpr int64_t kMostPositions = int64_t(1) << 30;

Intervals::Intervals(const ir::Module &module, const ir::Region &part) : module(module) {
  for (const Operation *items : module.all(Op::Items))
    if (const auto &bounds = items->region(0).ops.back().operands; &items->region(1) == &part && !bounds.empty()) {
      ir::walk(items->region(0), [&](const Operation &op) { look(op); });
      const Interval low = of(bounds[0]), high = of(bounds[1]);
      known[part.args[0].id] = {low.lo, std::max(low.lo, high.hi - 1)};
    }
  ir::walk(part, [&](const Operation &op) { look(op); });
}

ir::Interval Intervals::of(Value v) const {
  const auto it = known.find(v.id);
  return it == known.end() ? Interval() : it->second;
}

ir::Interval Intervals::exact(const Operation &op) const {
  return ir::exactInterval(op.op, of(op.operands[0]), op.operands.size() > 1 ? of(op.operands[1]) : Interval());
}

void Intervals::look(const Operation &op) {
  const auto index = [&](Interval low, Interval high) {
    known[op.region().args[0].id] = {low.lo, std::max(low.lo, high.hi - 1)};
  };
  if (isOverRange(op.op)) {
    const size_t ends = op.operands.size() - (op.op == Op::SeqTop);
    const Interval low = ends == 2 ? of(op.operands[0]) : Interval{0, 0}, high = of(op.operands[ends - 1]);
    index(low, high);
    if (op.op == Op::PrefixWhile || op.op == Op::Count)
      known[op.result().id] = {0, std::clamp<int64_t>(high.hi - low.lo, 0, INT32_MAX)};
    return;
  }
  if (op.op == Op::For)
    return index(of(op.operands[0]), of(op.operands[1]));
  if (op.results.size() != 1 || !module.type(op.result()).is(ir::Scalar::I32))
    return;
  Interval i;
  switch (op.op) {
  case Op::Const:
    i = {op.get<attr::value>().whole(), op.get<attr::value>().whole()};
    break;
  case Op::DimGet: {
    const Operation &dim = *module.find(Op::Dim, op.name);
    i = {dim.get<attr::least>(), dim.get<attr::most>()};
    break;
  }
  case Op::SeqLen: {
    const int64_t capacity = module.type(op.operands[0]).size;
    i = {0, capacity > 0 ? std::min(capacity, kMostPositions) : kMostPositions};
    break;
  }
  case Op::Budget:
  case Op::PromptLen:
  case Op::KvLen:
  case Op::KvFound:
  case Op::KvLive:
  case Op::KvPages:
  case Op::Append:
    i = {0, kMostPositions};
    break;
  case Op::Host:
    i = {0, INT32_MAX};
    break;
  case Op::Seated:
    i = {0, module.param("slots")};
    break;
  case Op::InputGet: {
    const Operation *input = module.find(Op::Input, op.name);
    i = {input->get<attr::least>(), input->get<attr::most>()};
    break;
  }
  case Op::KvLag:
    i = {-kMostPositions, kMostPositions};
    break;
  case Op::Select:
    i = hull(of(op.operands[1]), of(op.operands[2]));
    break;
  case Op::Cast:
    if (module.type(op.operands[0]).is(ir::Scalar::Bool))
      i = {0, 1};
    break;
  default:
    if (hasTrait(op.op, ir::Trait::Arithmetic) && fits(op))
      i = exact(op);
    break;
  }
  known[op.result().id] = i;
}

} // namespace megalith::emit
