#include "Values.h"
#include "device/Exact.h"
#include "megalith/IR/Scalar.h"
#include "llvm/ADT/SmallVector.h"
#include <algorithm>
#include <bit>
#include <fmt/format.h>

using namespace megalith;
using namespace megalith::reference;
using ir::Op;
using ir::Operation;
namespace attr = ir::attr;

/// What a sequence keeps of a scalar.
static int32_t wordOf(const Val &v, bool isF32) { return isF32 ? std::bit_cast<int32_t>(v.f) : v.i; }

/// Element by element, as their type compares them: a NaN is equal to nothing.
static bool equal(const std::vector<int32_t> &a, const std::vector<int32_t> &b, ir::Scalar elem) {
  if (elem != ir::Scalar::F32)
    return a == b;
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](int32_t x, int32_t y) { return std::bit_cast<float>(x) == std::bit_cast<float>(y); });
}

void Values::arithmetic(const Operation &op) {
  if (op.op == Op::Const) {
    result(op) = constantValue(op.get<attr::value>(), module.type(op.result()));
    return;
  }
  if (op.op == Op::Select) { // also of sequences
    Val chosen = operand(op, operand(op, 0).i ? 1 : 2);
    result(op) = std::move(chosen);
    return;
  }
  if (module.type(op.operands.front()).kind == ir::Type::Seq) // `eq` and `ne`
    return set(op,
               equal(operand(op, 0).seq, operand(op, 1).seq, module.type(op.operands[0]).elem) == (op.op == Op::Eq));
  llvm::SmallVector<ir::ScalarValue, 2> operands;
  for (ir::Value v : op.operands)
    operands.push_back({isF32(v), value(v).i, value(v).f});
  const auto made = ir::valueOf(op.op, operands, isF32(op.result()));
  if (!made)
    throw NotExecutable(fmt::format("`{}` is not a control operation", ir::mnemonic(op.op).str()));
  if (made->isReal)
    result(op).f = made->f;
  else
    set(op, ir::wrapped(made->i));
}

/// Of two regions, runs the one whose value is taken.
void Values::choose(const Operation &op) {
  const ir::Region &taken = op.region(operand(op, 0).i ? 0 : 1);
  evaluate(taken);
  Val chosen = value(taken.ops.back().operands[0]);
  result(op) = std::move(chosen);
}

/// Element or row `i` of a list.
Val Values::item(const Operation &op, const Val &list, int64_t i) const {
  const ir::Type &type = module.type(op.operands[0]);
  Val v;
  if (type.kind == ir::Type::Table)
    v.seq = list.rows[i];
  else if (type.elem == ir::Scalar::F32)
    v.f = std::bit_cast<float>(list.seq[i]);
  else
    v.i = list.seq[i];
  return v;
}

template <class List> static List slice(const List &list, int32_t low, int32_t high) {
  const auto length = static_cast<int32_t>(list.size());
  low = std::clamp(low, 0, length);
  high = std::clamp(high, low, length);
  return List(list.begin() + low, list.begin() + high);
}

template <class List> static List joined(List a, const List &b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

void Values::sequence(const Operation &op) {
  const bool table =
      module.type(op.op == Op::SeqLen || op.op == Op::SeqAt ? op.operands[0] : op.result()).kind == ir::Type::Table;
  switch (op.op) {
  case Op::SeqLen:
    return set(op, static_cast<int32_t>(table ? operand(op, 0).rows.size() : operand(op, 0).seq.size()));
  case Op::SeqAt: {
    const Val &list = operand(op, 0);
    const auto length = static_cast<int64_t>(table ? list.rows.size() : list.seq.size());
    int32_t i = operand(op, 1).i;
    if (i < 0 || i >= length)
      throw FaultSignal{Fault::IndexRange, op.loc, {i, static_cast<int32_t>(length)}};
    result(op) = item(op, list, i);
    return;
  }
  case Op::SeqSlice: {
    Val part;
    if (table)
      part.rows = slice(operand(op, 0).rows, operand(op, 1).i, operand(op, 2).i);
    else
      part.seq = slice(operand(op, 0).seq, operand(op, 1).i, operand(op, 2).i);
    result(op) = std::move(part);
    return;
  }
  case Op::SeqConcat: {
    Val both;
    if (table)
      both.rows = joined(operand(op, 0).rows, operand(op, 1).rows);
    else
      both.seq = joined(operand(op, 0).seq, operand(op, 1).seq);
    result(op) = std::move(both);
    return;
  }
  case Op::SeqConst: {
    Val made;
    for (int64_t item : op.get<attr::items>())
      made.seq.push_back(static_cast<int32_t>(item));
    for (double number : op.get<attr::numbers>())
      made.seq.push_back(std::bit_cast<int32_t>(static_cast<float>(number)));
    result(op) = std::move(made);
    return;
  }
  default: { // seq.make
    Val made;
    for (ir::Value v : op.operands)
      if (table)
        made.rows.push_back(value(v).seq);
      else
        made.seq.push_back(wordOf(value(v), isF32(v)));
    result(op) = std::move(made);
  }
  }
}

/// The numbers that an operation goes through: from, to.
std::pair<int32_t, int32_t> Values::range(const Operation &op) {
  const size_t ends = op.operands.size() - (op.op == Op::SeqTop);
  return ends == 1 ? std::pair(0, operand(op, 0).i) : std::pair(operand(op, 0).i, operand(op, 1).i);
}

/// What the region yields for `i`.
const Val &Values::body(const Operation &op, int32_t i, unsigned which) {
  const ir::Region &region = op.region();
  if (which == 0) {
    value(region.args[0]).i = i;
    evaluate(region);
  }
  return value(region.ops.back().operands[which]);
}

/// A place in the order of numbers: greater is later, a NaN after all others in either direction.
static int64_t rankOf(const Val &v, bool isF32, bool descending) {
  if (!isF32)
    return descending ? -int64_t(v.i) : v.i;
  if (exact::isNan(v.f))
    return INT64_MAX;
  const uint32_t bits = exact::bitsOf(v.f == 0 ? 0.0f : v.f);
  const auto rank = int64_t(bits & exact::kSign ? ~bits : bits | exact::kSign);
  return descending ? -rank : rank;
}

void Values::over(const Operation &op) {
  if (op.op == Op::PrefixWhile || op.op == Op::Count)
    set(op, countWhile(op, op.op == Op::PrefixWhile));
  else if (op.op == Op::Fold)
    fold(op);
  else
    stored(op);
}

void Values::fold(const Operation &op) {
  using ir::By;
  const By by = op.get<attr::by>();
  const auto [low, high] = range(op);
  const bool real = isF32(op.region().ops.back().operands[0]);
  if (by == By::All || by == By::Any || by == By::Find) {
    int32_t i = low;
    while (i < high && bool(body(op, i).i) == (by == By::All))
      ++i;
    const bool found = i < high;
    return set(op, by == By::Find ? (found ? i : -1) : by == By::All ? !found : found);
  }
  const bool place = by == By::Argmin || by == By::Argmax;
  Val total, best;
  int32_t at = -1;
  int64_t bestRank = 0;
  for (int32_t i = low; i < high; ++i) {
    const Val &v = body(op, i);
    if (by == By::Sum) {
      total.f = total.f + v.f;
      total.i = ir::wrapped(int64_t(total.i) + v.i);
      continue;
    }
    const int64_t rank = rankOf(v, real, by == By::Max || by == By::Argmax);
    if (i != low && rank >= bestRank)
      continue;
    best = v;
    bestRank = rank;
    at = i;
  }
  if (place)
    return set(op, at);
  const Val &taken = by == By::Sum ? total : best;
  if (real)
    result(op).f = taken.f;
  else
    set(op, taken.i);
}

/// Operations whose result is a sequence or table with one entry for each number.
void Values::stored(const Operation &op) {
  const auto [low, high] = range(op);
  const ir::Type &type = module.type(op.result());
  const int64_t count = std::max<int64_t>(0, int64_t(high) - low);
  if (count > (op.op == Op::SeqTop ? op.get<attr::range>() : type.size))
    throw FaultSignal{Fault::CorruptField, op.loc};
  const std::vector<ir::Value> yields(op.region().ops.back().operands.begin(), op.region().ops.back().operands.end());
  const bool real = isF32(yields[0]);
  Val out, sum;
  std::vector<std::vector<int64_t>> keys;
  for (int32_t i = low; i < high; ++i) {
    const Val &v = body(op, i);
    switch (op.op) {
    case Op::SeqMap:
      if (type.kind == ir::Type::Table)
        out.rows.push_back(v.seq);
      else
        out.seq.push_back(wordOf(v, real));
      break;
    case Op::SeqFilter:
      if (v.i)
        out.seq.push_back(i);
      break;
    case Op::SeqScan:
      sum.f = sum.f + v.f;
      sum.i = ir::wrapped(int64_t(sum.i) + v.i);
      out.seq.push_back(wordOf(sum, real));
      break;
    default: {
      std::vector<int64_t> &key = keys.emplace_back();
      for (unsigned k = 0; k < yields.size(); ++k)
        key.push_back(rankOf(body(op, i, k), isF32(yields[k]), op.op == Op::SeqTop));
    }
    }
  }
  if (op.op == Op::SeqTop || op.op == Op::SeqSort) {
    for (int32_t i = low; i < high; ++i)
      out.seq.push_back(i);
    const auto first = low; // a name that a lambda can have
    std::stable_sort(out.seq.begin(), out.seq.end(),
                     [&](int32_t a, int32_t b) { return keys[a - first] < keys[b - first]; });
  }
  if (op.op == Op::SeqTop)
    out.seq.resize(std::min<int64_t>({count, std::max(0, operand(op, op.operands.size() - 1).i), type.size}));
  result(op) = std::move(out);
}

/// The longest path from `root` on which each row's token is `best` at its parent.
void Values::follow(const Operation &op) {
  const std::vector<int32_t> &rows = operand(op, 0).seq, &parents = operand(op, 1).seq, &best = operand(op, 2).seq;
  const int32_t root = operand(op, 3).i;
  const auto count = static_cast<int32_t>(std::min({rows.size(), parents.size(), best.size()}));
  std::vector<int32_t> depth(count, -1);
  int32_t last = -1;
  for (int32_t i = 0; i < count; ++i) {
    const int32_t parent = parents[i];
    if (i == root)
      depth[i] = 0;
    else if (parent >= 0 && parent < i && depth[parent] >= 0 && rows[i] == best[parent])
      depth[i] = depth[parent] + 1;
    if (depth[i] >= 0 && (last < 0 || depth[i] > depth[last]))
      last = i;
  }
  Val path;
  for (int32_t i = last; i >= 0; i = i == root ? -1 : parents[i])
    path.seq.insert(path.seq.begin(), i);
  result(op) = std::move(path);
}

/// A row for each token of the table's rows, unless its parent has one with that token already.
void Values::tree(const Operation &op) {
  Val rows, parents;
  rows.seq = {operand(op, 0).i};
  parents.seq = {-1};
  for (const std::vector<int32_t> &branch : operand(op, 1).rows) {
    int32_t at = 0;
    for (int32_t token : branch) {
      int32_t child = at + 1;
      const auto count = static_cast<int32_t>(rows.seq.size());
      while (child < count && (parents.seq[child] != at || rows.seq[child] != token))
        ++child;
      if (child == count) {
        rows.seq.push_back(token);
        parents.seq.push_back(at);
      }
      at = child;
    }
  }
  value(op.results[0]) = std::move(rows);
  value(op.results[1]) = std::move(parents);
}

int32_t Values::countWhile(const Operation &op, bool stopAtFirst) {
  const auto [low, high] = range(op);
  int32_t count = 0;
  for (int32_t i = low; i < high; ++i) {
    const bool holds = body(op, i).i;
    if (stopAtFirst && !holds)
      break;
    count += holds;
  }
  return count;
}
