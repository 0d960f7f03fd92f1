#include "TensorEmitter.h"
#include "llvm/ADT/STLExtras.h"
#include <set>

namespace megalith::emit {

using ir::Op;
using ir::Operation;
using ir::Type;
using ir::Value;

void TensorEmitter::declareWeights(const Group &group) {
  std::set<std::string> done;
  for (const Operation &op : group.region.ops) {
    if ((op.op != Op::WeightGet && op.op != Op::Embed) || !done.insert(op.name).second)
      continue;
    if (op.op == Op::WeightGet) {
      const plan::Vector &v = plan.vectorOf(op.name);
      w.line("const WeightVector<{}> {}{{{}}};", v.length, identifier(op.name), vectorAddress(v));
      continue;
    }
    for (const Operation &weight : model.region().ops)
      if (weight.op == Op::Weight && weight.name == op.name)
        w.line("const WeightRows<{}> {}{{weightAt(p, {}{})}};", weight.getInts("shape")[1], identifier(op.name),
               weights.at(op.name), weight.getInt("layers") ? " + layer" : "");
  }
}

void TensorEmitter::declarePosition(const Slice &slice) {
  for (const Operation *op : slice)
    if (op->op == Op::RopeCos || op->op == Op::RopeSin) {
      w.line("const int position = pass.rows[row].position;");
      return;
    }
}

void TensorEmitter::declarePartner(const Slice &slice) {
  for (const Operation *op : slice)
    if (op->op == Op::RotateHalf) {
      w.line("const int partner = partnerColumn<{}>(c);", op->getInt("dim"));
      return;
    }
}

std::vector<TensorEmitter::Sink> TensorEmitter::sinks(const Group &group, const Operation &op) {
  std::vector<Sink> out;
  for (const Operation &inner : group.region.ops) {
    if (inner.op == Op::KvAppend) {
      out.push_back({inner.operands[0], "keys", false, inner.loc});
      out.push_back({inner.operands[1], "values", false, inner.loc});
      const plan::Place::Instance instance = inLayers ? plan::Place::Layer : plan::Place::First;
      out.push_back({inner.operands[0], placeExpr(plan, {plan.newKeys, instance}), false, inner.loc});
      out.push_back({inner.operands[1], placeExpr(plan, {plan.newValues, instance}), false, inner.loc});
    }
    if (inner.op == Op::ArgMax)
      out.push_back({inner.operands[0], "", true, inner.loc});
  }
  for (auto [result, yielded] : llvm::zip(op.results, group.region.ops.back().operands)) {
    auto it = plan.placeOf.find(result.id);
    if (it != plan.placeOf.end())
      out.push_back({yielded, placeExpr(plan, it->second), false, op.loc});
  }
  return out;
}

void TensorEmitter::emitSinkDeclarations(const Group &group) {
  for (const Operation &inner : group.region.ops) {
    if (inner.op == Op::KvAppend) {
      std::string layer = inLayers ? "layer" : "0", kv = typeName(plan.model) + "Kv";
      for (auto [name, cache] : {std::pair("keys", "kCache"), std::pair("values", "vCache")})
        w.line("const KvRows<{0}> {1}{{reinterpret_cast<u16 *>(p.{2}) + kvLayer<{0}>({3}), &pass}};", kv, name,
               cache, layer);
    }
    if (inner.op == Op::ArgMax)
      w.line("Best best[bestsOf(Rows)];");
  }
}

void TensorEmitter::emitMap(const plan::Phase &phase) {
  const Operation &op = *phase.op;
  Group group(module, plan, op.region());
  declareWeights(group);
  emitSinkDeclarations(group);
  for (const Sink &sink : sinks(group, op))
    emitMapChain(group, sink);
}

void TensorEmitter::emitOperand(const plan::Phase &phase) {
  Group group(module, plan, phase.op->region());
  declareWeights(group);
  emitMapChain(group, {operandOf(group, plan.matrices[phase.matrix]), placeExpr(plan, phase.to), false, phase.op->loc}, true);
}

Value TensorEmitter::operandOf(const Group &group, const plan::Matrix &m) {
  return group.def(m.ranges[0].product)->operands[0];
}

void TensorEmitter::emitMapChain(const Group &group, const Sink &sink, bool wholeCta) {
  auto slice = group.slice(sink.value);
  int64_t columns = module.type(sink.value).size, parts = 1;
  for (const Operation *op : slice)
    if (isReduction(op->op))
      parts = std::max(parts, op->getInt("groups", 1));
  wholeCta &= parts == 1;
  const bool quarters = !wholeCta && columns != parts && llvm::none_of(slice, [](const Operation *op) { return isReduction(op->op); });
  auto rows = w.lambda(wholeCta ? "rowsOfCtas(numRows, [&](int row)"
                                : fmt::format("spreadRows(numRows, {}, [&](int row, int part)", quarters ? 4 : parts));
  declarePosition(slice);
  std::map<uint32_t, std::string> scalars;
  // Reductions, and the scalars that follow from them or from stored ones, in order.
  Vectors scalarValues(w, group, Vectors::Scalar, parts, marker());
  auto isScalar = [&](Value v) {
    const Type &t = module.type(v);
    const Operation *def = group.def(v);
    if (def)
      return scalars.count(v.id) || def->op == Op::Const;
    return t.kind == Type::Rows && (t.size == parts || t.size == 1);
  };
  for (const Operation *op : slice) {
    if (op->results.empty())
      continue;
    Value r = op->result();
    if (isReduction(op->op)) {
      std::string name = module.hint(r).empty() ? "sum" : identifier(module.hint(r));
      name += scalars.empty() ? "" : std::to_string(scalars.size() + 1);
      emitReduction(group, *op, module.type(op->operands[0]).size, name, scalars, parts > 1, wholeCta);
      scalars[r.id] = name;
      scalarValues.bind(r, name);
    } else if (!op->operands.empty() && (module.type(r).size == parts || module.type(r).size == 1) &&
               llvm::all_of(op->operands, isScalar)) {
      scalars[r.id] = scalarValues.eval(r);
    }
  }
  if (columns == parts) {
    std::string value = scalarValues.eval(sink.value);
    at(sink.loc);
    {
      auto lane = w.scope("if (laneId() == 0)");
      w.line("{}.store(row, part, {{{{{}}}}});", sink.store, value);
    }
    ours();
    return;
  }
  ours();
  int64_t block = columns / parts;
  auto loop = quarters ? w.lambda(fmt::format("quarterOfRow<{}>(part, [&](int c)", columns))
              : wholeCta
                  ? w.scope(fmt::format("for (int c = partBegin<{0}>() + laneId() * 8; c < partEnd<{0}>(); c += 256)", columns))
              : parts > 1 ? w.scope(fmt::format("for (int c = part * {0} + laneId() * 8; c < (part + 1) * {0}; c += 256)", block))
                          : w.scope(fmt::format("for (int c = laneId() * 8; c < {}; c += 256)", columns));
  declarePartner(slice);
  Vectors vectors(w, group, Vectors::Eight, columns, marker());
  for (auto &[id, expr] : scalars)
    vectors.bind(Value{id}, expr);
  std::string value = vectors.eval(sink.value);
  at(sink.loc);
  w.line("{}.store8(row, c, {});", sink.store, value);
  ours();
}

void TensorEmitter::emitReduction(const Group &group, const Operation &op, int64_t columns, const std::string &name,
                                  const std::map<uint32_t, std::string> &scalars, bool block, bool wholeCta) {
  const bool max = op.op != Op::ReduceSum, byParts = max || op.getString("tree") == "parts8";
  int64_t blockColumns = columns / op.getInt("groups", 1);
  at(op.loc);
  auto sum = w.lambda(wholeCta && byParts
                          ? fmt::format("const float {} = ctaReduce<{}, {}>(shared.scratch, [&](int c)", name, max, blockColumns)
                          : fmt::format("const float {} = {}<{}>([&](int {})", name,
                                        max       ? "warpMax"
                                        : byParts ? "rowSum"
                                                  : "warpSum",
                                        blockColumns, block ? "inBlock" : "c"));
  if (block)
    w.line("const int c = part * {} + inBlock;", blockColumns);
  declarePartner(group.slice(op.operands[0]));
  at(op.loc); // of what it loads
  Vectors vectors(w, group, Vectors::Eight, columns, marker());
  for (auto &[id, expr] : scalars)
    vectors.bind(Value{id}, expr);
  std::string value = vectors.eval(op.operands[0]);
  w.line("return {};", value);
}

} // namespace megalith::emit
