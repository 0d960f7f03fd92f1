#include "IndexRanges.h"
#include <algorithm>

namespace megalith::emit {

using ir::Op;
using ir::Operation;
namespace attr = ir::attr;

DimSum DimSum::constant(int64_t value) {
  DimSum sum;
  sum.terms[{}] = value;
  return sum;
}

DimSum DimSum::dim(const std::string &name) {
  DimSum sum;
  sum.terms[{name}] = 1;
  return sum;
}

DimSum DimSum::operator+(const DimSum &other) const {
  DimSum sum = *this;
  for (const auto &[product, factor] : other.terms)
    sum.terms[product] += factor;
  return sum;
}

DimSum DimSum::operator-(const DimSum &other) const { return *this + other * constant(-1); }

DimSum DimSum::operator*(const DimSum &other) const {
  DimSum sum;
  for (const auto &[a, factor] : terms)
    for (const auto &[b, times] : other.terms) {
      std::vector<std::string> product = a;
      product.insert(product.end(), b.begin(), b.end());
      std::sort(product.begin(), product.end());
      sum.terms[product] += factor * times;
    }
  return sum;
}

double DimSum::bound(const ir::Module &module, bool most) const {
  double total = 0;
  for (const auto &[product, factor] : terms) {
    double term = static_cast<double>(factor);
    for (const std::string &name : product) {
      const Operation &dim = *module.find(Op::Dim, name);
      term *= static_cast<double>((factor > 0) == most ? dim.get<attr::most>() : dim.get<attr::least>());
    }
    total += term;
  }
  return total;
}

IndexRanges::IndexRanges(const ir::Module &module, const Operation &items) : module(module) {
  ir::walk(items.region(0), [&](const Operation &op) { look(op); });
  const auto &bounds = items.region(0).ops.back().operands;
  if (!bounds.empty())
    binder(items.region(1), of(bounds[0]), of(bounds[1]));
  ir::walk(items.region(1), [&](const Operation &op) { look(op); });
}

std::optional<IndexRanges::Range> IndexRanges::of(ir::Value v) const {
  const auto it = known.find(v.id);
  return it == known.end() ? std::nullopt : std::optional(it->second);
}

/// The number that a region is evaluated for.
void IndexRanges::binder(const ir::Region &region, const std::optional<Range> &low, const std::optional<Range> &high) {
  if (low && high && !region.args.empty())
    known[region.args[0].id] = {low->low, high->high - DimSum::constant(1)};
}

void IndexRanges::look(const Operation &op) {
  const auto zero = Range{DimSum::constant(0), DimSum::constant(0)};
  if (ir::isOverRange(op.op) || op.op == Op::BufferScan || op.op == Op::BufferSort) {
    const bool scans = op.op == Op::BufferScan || op.op == Op::BufferSort;
    const size_t ends = scans ? 1 : op.operands.size() - (op.op == Op::SeqTop);
    const auto low = ends == 2 ? of(op.operands[0]) : std::optional(zero), high = of(op.operands[ends - 1]);
    binder(op.region(), low, high);
    // As many as the range has numbers, at most: none where it is empty.
    if ((op.op == Op::PrefixWhile || op.op == Op::Count) && low && high)
      if (const DimSum count = high->high - low->low; count.least(module) >= 0)
        known[op.result().id] = {zero.low, count};
    return;
  }
  if (op.results.size() != 1)
    return;
  std::optional<Range> range;
  const auto operand = [&](unsigned i) { return of(op.operands[i]); };
  switch (op.op) {
  case Op::DimGet:
    range = Range{DimSum::dim(op.name), DimSum::dim(op.name)};
    break;
  case Op::Const:
    if (const ir::Number value = op.get<attr::value>(); !value.isReal() && !value.isFlag())
      range = Range{DimSum::constant(value.whole()), DimSum::constant(value.whole())};
    break;
  case Op::Add:
    if (const auto a = operand(0), b = operand(1); a && b)
      range = Range{a->low + b->low, a->high + b->high};
    break;
  case Op::Sub:
    if (const auto a = operand(0), b = operand(1); a && b)
      range = Range{a->low - b->high, a->high - b->low};
    break;
  case Op::Mul:
    if (const auto a = operand(0), b = operand(1); a && b && a->low.least(module) >= 0 && b->low.least(module) >= 0)
      range = Range{a->low * b->low, a->high * b->high};
    break;
  default:
    break;
  }
  // What may wrap can be anything.
  if (range && range->low.least(module) >= INT32_MIN && range->high.most(module) <= INT32_MAX)
    known[op.result().id] = *range;
}

bool IndexRanges::inside(ir::Value index, const Operation &buffer, size_t d) const {
  const auto range = of(index);
  if (!range || range->low.least(module) < 0)
    return false;
  IndexRanges sizes(module);
  ir::walk(buffer.region(), [&](const Operation &op) { sizes.look(op); });
  const auto size = sizes.of(buffer.region().ops.back().operands[d]);
  return size && (size->low - range->high).least(module) >= 1;
}

} // namespace megalith::emit
