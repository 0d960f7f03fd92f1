#include "TensorEmitter.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>
#include <set>

namespace megalith::emit {

using ir::Op;
using ir::Operation;
namespace attr = ir::attr;
using ir::Type;
using ir::Value;

void TensorEmitter::declareWeights(const Group &group) {
  Slice all;
  for (const Operation &op : group.region.ops)
    all.push_back(&op);
  declareWeights(all);
}

void TensorEmitter::declareWeights(const Slice &slice) {
  std::set<std::string> done;
  for (const Operation *each : slice) {
    const Operation &op = *each;
    if ((op.op != Op::WeightGet && op.op != Op::Embed) || !done.insert(op.name).second)
      continue;
    if (op.op == Op::WeightGet) {
      const plan::Vector &v = planned.vectorOf(op.name);
      w.line("const WeightVector<{}> {}{{{}}};", v.length, names.weights.at(op.name), vectorAddress(names, v));
      continue;
    }
    for (const Operation &weight : model.region().ops)
      if (weight.op == Op::Weight && weight.name == op.name)
        w.line("const WeightRows<{}> {}{{weightAt({}, {}{})}};", weight.get<attr::shape>()[1],
               names.weights.at(op.name), names.params(), weights.at(op.name),
               weight.get<attr::layers>() ? " + layer" : "");
  }
}

void TensorEmitter::declareRopes(const Slice &slice) {
  const auto turns =
      llvm::find_if(slice, [](const Operation *op) { return op->op == Op::RopeCos || op->op == Op::RopeSin; });
  if (turns == slice.end())
    return;
  // All of a model have one size and one way.
  const int64_t dim = (*turns)->get<attr::dim>();
  const std::vector<int64_t> &tables = model.get<attr::rope_tables>();
  std::string table;
  if (tables.size() > 1) {
    w.line("constexpr unsigned short ropeTables[] = {{{}}}; // of the layers", fmt::join(tables, ", "));
    table = "ropeTables[layer]";
  } else if (!tables.empty() && tables[0]) {
    table = std::to_string(tables[0]);
  }
  w.line("const Rope<{}> rope{}{{{}}};", headPairs(**turns), dim,
         table.empty() ? names.params() + ".ropeCosSin"
                       : fmt::format("ropeTable<{}>({}, {})", dim, names.params(), table));
}

void TensorEmitter::declareRopes(const Operation &op) {
  Slice all;
  for (const ir::Region &region : op.regions)
    ir::walk(region, [&](const Operation &inner) { all.push_back(&inner); });
  declareRopes(all);
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
    if (op->op == Op::RotateHalf && !op->get<attr::adjacent>()) {
      w.line("const int partner = partnerColumn<{}>(c);", headPairs(*op));
      return;
    }
}

std::vector<TensorEmitter::Sink> TensorEmitter::sinks(const Group &group, const Operation &op) {
  std::vector<Sink> out;
  for (const Operation &inner : group.region.ops) {
    if (inner.op == Op::KvAppend) {
      if (epiloguesKeepKv()) {
        out.push_back({inner.operands[0], "keys", false, inner.loc});
        out.push_back({inner.operands[1], "values", false, inner.loc});
      }
      const plan::Place::Instance instance = inLayers ? plan::Place::Layer : plan::Place::First;
      if (wide && !planned.kvInE4m3) // attention takes them from the pool
        continue;
      out.push_back({inner.operands[0], placeExpr({planned.newKeys, instance}), false, inner.loc});
      out.push_back({inner.operands[1], placeExpr({planned.newValues, instance}), false, inner.loc});
    }
    if (inner.op == Op::ArgMax)
      out.push_back({inner.operands[0], "", true, inner.loc});
  }
  for (auto [result, yielded] : llvm::zip(op.results, group.region.ops.back().operands)) {
    auto it = planned.placeOf.find(result.id);
    if (it != planned.placeOf.end())
      out.push_back({yielded, storeExpr(it->second), false, op.loc});
  }
  return out;
}

void TensorEmitter::emitSinkDeclarations(const Group &group) {
  for (const Operation &inner : group.region.ops) {
    if (inner.op == Op::KvAppend && epiloguesKeepKv()) {
      std::string layer = inLayers ? "layer" : "0", kv = names.kv();
      for (auto [name, cache] : {std::pair("keys", "kCache"), std::pair("values", "vCache")})
        if (wide)
          w.line("const wide::KvOfOneRow<{}> {}(p, Cta::pass(), {}.{}, {}, row);", kv, name, names.params(), cache,
                 layer);
        else
          w.line("const KvRows{5}<{0}> {1}({4}.{2}, {3}, pass);", kv, name, cache, layer, names.params(),
                 planned.bf16Layers ? "OfBf16" : "");
    }
    if (inner.op != Op::ArgMax)
      continue;
    const bool draws = planned.reducing.any;
    if (draws)
      w.line("const Kept kept{{p.selection}};");
    if (!plan.wideRows) {
      w.line("Best best[bestsOf(Rows)]{};", draws ? ", drawn[bestsOf(Rows)]" : "");
      continue;
    }
    // The end of a unit has those of its caller.
    w.line("Best own[bestsOf(Rows)]{};", draws ? ", ownDrawn[bestsOf(Rows)]" : "");
    w.line("if constexpr (Rows == kUnitEnd)");
    w.line(draws ? "  assumeLocal(best), assumeLocal(drawn);" : "  assumeLocal(best);");
    w.line("else");
    w.line(draws ? "  best = own, drawn = ownDrawn;" : "  best = own;");
  }
}

void TensorEmitter::emitMap(const plan::Phase &phase) {
  const Operation &op = *phase.op;
  Group group(module, planned, names, op.region());
  declareWeights(group);
  emitSinkDeclarations(group);
  std::vector<Sink> open = sinks(group, op);
  severalChains = llvm::any_of(open, [&](const Sink &s) { return s.value != open[0].value; });
  while (!open.empty()) { // what is stored in several places is made once
    const auto others =
        std::stable_partition(open.begin(), open.end(), [&](const Sink &s) { return s.value == open[0].value; });
    emitMapChain(group, llvm::ArrayRef(open).take_front(others - open.begin()));
    open.erase(open.begin(), others);
  }
}

void TensorEmitter::emitOperand(const plan::Phase &phase) {
  Group group(module, planned, names, phase.op->region());
  declareWeights(group);
  emitMapChain(group, Sink{operandOf(group, planned.matrices[phase.matrix]), storeExpr(phase.to), false, phase.op->loc},
               !wide);
}

Value TensorEmitter::operandOf(const Group &group, const plan::Matrix &m) {
  return group.def(m.ranges[0].product)->operands[0];
}

void TensorEmitter::emitMapChain(const Group &group, llvm::ArrayRef<Sink> sinks, bool wholeCta) {
  const Value value = sinks[0].value;
  auto slice = group.slice(value);
  int64_t columns = module.type(value).size, parts = 1;
  for (const Operation *op : slice)
    if (isReduction(op->op))
      parts = std::max(parts, op->get<attr::groups>());
  wholeCta &= parts == 1;
  const auto eachRow = [&](int64_t of) -> std::optional<CodeWriter::Scope> {
    if (!wide)
      return w.lambda(fmt::format("spreadRows(numRows, {}, [&](int row, int part)", of));
    if (of > 1)
      return w.scope(fmt::format("for (int part = 0; part < {}; ++part)", of));
    if (severalChains)
      return w.scope("");
    return std::nullopt;
  };
  if (parts > 1 && columns != parts && plan::fitsLanes(module, slice, columns, parts)) {
    const auto rows = eachRow(parts);
    const std::string made = nameMade(emitBlock(group, value, parts), sinks[0].loc);
    auto mine = w.scope(fmt::format("if (isLaneOfBlock<{}>())", columns / parts));
    emitStores(sinks, "store8", "c", made);
    return;
  }
  const bool quarters = !wide && !wholeCta && columns != parts &&
                        llvm::none_of(slice, [](const Operation *op) { return isReduction(op->op); });
  const auto rows = wholeCta ? w.lambda("rowsOfCtas(numRows, [&](int row)") : eachRow(quarters ? 4 : parts);
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
      const std::string name = scalarValues.variable(r, "sum");
      emitReduction(group, *op, module.type(op->operands[0]).size, name, scalarValues, scalars, parts > 1, wholeCta);
      scalars[r.id] = name;
      scalarValues.bind(r, name);
    } else if (!op->operands.empty() && (module.type(r).size == parts || module.type(r).size == 1) &&
               llvm::all_of(op->operands, isScalar)) {
      scalars[r.id] = scalarValues.eval(r);
    }
  }
  if (columns == parts) {
    const std::string made = scalarValues.eval(value);
    auto lane = w.scope("if (laneId() == 0)");
    emitStores(sinks, "store", wide && parts == 1 ? "0" : "part", fmt::format("Floats<1>{{{{{}}}}}", made));
    return;
  }
  ours();
  int64_t block = columns / parts;
  auto loop =
      quarters ? w.lambda(fmt::format("quarterOfRow<{}>(part, [&](int c)", columns))
      : wholeCta
          ? w.scope(fmt::format("for (int c = partBegin<{0}>() + laneId() * 8; c < partEnd<{0}>(); c += 256)", columns))
      : parts > 1
          ? w.scope(fmt::format("for (int c = part * {0} + laneId() * 8; c < (part + 1) * {0}; c += 256)", block))
          : w.scope(fmt::format("for (int c = laneId() * 8; c < {}; c += 256)", columns));
  declarePartner(slice);
  Vectors vectors(w, group, Vectors::Eight, columns, marker(), &scalarValues);
  for (auto &[id, expr] : scalars)
    vectors.bind(Value{id}, expr);
  const std::string made = vectors.eval(value);
  emitStores(sinks, "store8", "c", sinks.size() > 1 ? nameMade(made, sinks[0].loc) : made);
}

std::string TensorEmitter::nameMade(const std::string &value, SourceLoc loc) {
  at(loc);
  w.line("const auto made = {};", value);
  ours();
  return "made";
}

void TensorEmitter::emitStores(llvm::ArrayRef<Sink> sinks, const char *method, const char *column,
                               const std::string &value) {
  for (const Sink &sink : sinks) {
    at(sink.loc);
    w.line("{}.{}(row, {}, {});", sink.store, method, column, value);
  }
  ours();
}

std::string TensorEmitter::emitBlock(const Group &group, Value value, int64_t parts) {
  const auto slice = group.slice(value);
  const int64_t columns = module.type(value).size, block = columns / parts;
  w.line("const int c = part * {0} + columnOfLane<{0}>();", block);
  declarePosition(slice);
  Vectors vectors(w, group, Vectors::Eight, columns, marker());
  vectors.byLanes();
  for (const Operation *op : slice) // on their way while the others are waited for
    if (op->op == Op::RopeCos || op->op == Op::RopeSin ||
        (op->op == Op::WeightGet && module.type(op->result()).size % block == 0))
      vectors.hold(op->result());
  Vectors scalars(w, group, Vectors::Scalar, parts, marker()); // one value for the block
  scalars.shareNames(vectors);
  for (const Operation *op : slice) {
    const Value r = op->result();
    if (isReduction(op->op)) {
      const std::string terms = vectors.eval(op->operands[0]);
      const std::string name = vectors.variable(r, "sum");
      at(op->loc);
      w.line("const float {} = blockReduce<{}, {}>({});", name, op->op == Op::ReduceMax, block, terms);
      scalars.bind(r, name);
    } else if (op->operands.empty() || module.type(r).size == columns || module.type(r).kind == Type::Vector) {
      continue;
    }
    vectors.bind(r, scalars.eval(r));
  }
  std::string result = vectors.eval(value);
  ours();
  return result;
}

void TensorEmitter::emitReduction(const Group &group, const Operation &op, int64_t columns, const std::string &name,
                                  const Vectors &outer, const std::map<uint32_t, std::string> &scalars, bool block,
                                  bool wholeCta) {
  const bool max = op.op != Op::ReduceSum, byParts = max || op.get<attr::tree>() == ir::SumTree::Parts8;
  int64_t blockColumns = columns / op.get<attr::groups>();
  at(op.loc);
  auto sum = w.lambda(wholeCta && byParts ? fmt::format("const float {} = ctaReduce<{}, {}>(shared.scratch, [&](int c)",
                                                        name, max, blockColumns)
                                          : fmt::format("const float {} = {}<{}>([&](int {})", name,
                                                        max       ? "warpMax"
                                                        : byParts ? "rowSum"
                                                                  : "warpSum",
                                                        blockColumns, block ? "inBlock" : "c"));
  if (block)
    w.line("const int c = part * {} + inBlock;", blockColumns);
  declarePartner(group.slice(op.operands[0]));
  at(op.loc); // of what it loads
  Vectors vectors(w, group, Vectors::Eight, columns, marker(), &outer);
  for (auto &[id, expr] : scalars)
    vectors.bind(Value{id}, expr);
  std::string value = vectors.eval(op.operands[0]);
  w.line("return {};", value);
}

} // namespace megalith::emit
