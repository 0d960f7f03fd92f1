#include "TensorEmitter.h"
#include "device/Shape.h"
#include "megalith/IR/Calls.h"
#include "llvm/ADT/STLExtras.h"
#include <set>

namespace megalith::emit {

using ir::Op;
using ir::Operation;
using ir::Value;

void TensorEmitter::emitStream(const plan::Phase &phase) {
  const Operation &op = *phase.op;
  const plan::Matrix &m = planned.matrices[phase.matrix];
  Group group(module, planned, names, op.region());
  declareWeights(group);
  if (m.rowScales)
    w.line("const RowScales rowScales{{packedVector({}, {}{}::offset + matrixBytes<{}>())}};", names.params(),
           inLayers ? fmt::format("layer * {}::layerBytes + ", names.matrix(phase.matrix)) : "",
           names.matrix(phase.matrix), names.matrix(phase.matrix));
  const auto early = emitEarly(group, phase, m);
  emitSinkDeclarations(group);
  emitEpilogue(group, phase, m, early);
  std::string otherwise;
  if (m.unitParts) {
    const std::string type = names.matrix(phase.matrix), use = inLayers ? wideUse : widePass;
    {
      auto end = w.scope("if constexpr (Rows == kUnitEnd)");
      w.line("endOfUnit<{}>(shared, unit, firstRow, early, epilogue);", type);
    }
    auto wide = w.scope("else if constexpr (Rows > kTileRows)");
    w.line(
        "wideProduct<{}>(shared, {}, {}, [{}](int{}, int unit, int firstRow) {{ {}<kUnitEnd>({}unit, firstRow{}); }});",
        type, inLayers ? "layer" : "0", use,
        !keepsBest(phase)      ? ""
        : planned.reducing.any ? "&own, &ownDrawn"
                               : "&own",
        inLayers ? " layer" : "", names.phases.at(&phase), inLayers ? "layer, " : "",
        !keepsBest(phase)      ? ""
        : planned.reducing.any ? ", own, ownDrawn"
                               : ", own");
    otherwise = "else ";
  }
  if (phase.operand) {
    auto several = w.scope(otherwise + "if constexpr (Rows > kOneRow)");
    emitLeave(phase, m);
    w.line("auto operand = operandOf<{}, Rows>(shared.stream(), pass, {}, NoAside{{}}, early);",
           names.matrix(phase.matrix), placeExpr(*phase.operand));
    w.line("const Unchanged finish;");
    w.line("streamProduct<false>(operand, finish, epilogue);");
    otherwise = "else ";
  }
  {
    std::optional<CodeWriter::Scope> rest;
    if (!otherwise.empty())
      rest.emplace(w.scope("else"));
    emitLeave(phase, m);
    emitOwnOperand(group, phase, m);
  }
  emitBest(phase);
}

void TensorEmitter::emitLeave(const plan::Phase &phase, const plan::Matrix &m) {
  if ((!m.firstCta && m.groups >= plan.ctas) || keepsBest(phase))
    return;
  w.line("if (!CtaGroups<{}>().some())", names.matrix(phase.matrix));
  w.line("  return;");
}

void TensorEmitter::emitOwnOperand(const Group &group, const plan::Phase &phase, const plan::Matrix &m) {
  Value value = operandOf(group, m);
  auto slice = group.slice(value);
  const Value source = sourceOf(group, value, slice, m);
  if (source && group.def(value) && group.def(value)->op == Op::Round && group.def(value)->operands[0] == source)
    value = source; // it is bf16 already
  const auto aside = emitAside(slice);
  w.line("auto operand = operandOf<{}, Rows>(shared.stream(), pass, {}, {}, early);", names.matrix(phase.matrix),
         source ? placeExpr(planned.placeOf.at(source.id)) : "NoSource{}", aside.empty() ? "NoAside{}" : "aside");
  if (m.ordered)
    w.line("operand.order = {};", orderExpr(phase.matrix));
  auto scalars = emitReductions(group, slice, source, m);
  if (value == source) {
    w.line("const Unchanged finish;");
  } else {
    auto lambda =
        w.record(fmt::format("const auto finish = [&](int row, int c, Words4 words, {}) -> Words4",
                             aside.empty() ? "Nothing" : fmt::format("const Aside<{}> &beside", aside.size())));
    declarePosition(slice);
    declarePartner(slice);
    Vectors vectors(w, group, Vectors::Eight, m.k, marker());
    if (source)
      vectors.bind(source, "unpack8(words)");
    for (auto &[id, expr] : scalars)
      vectors.bind(Value{id}, expr);
    for (auto [number, weight] : llvm::enumerate(aside))
      vectors.bind(weight, fmt::format("unpack8(beside.words[{}])", number));
    std::string result = vectors.eval(value);
    w.line("return keepBelow<{}>(pack8({}), c);", m.k, result);
    ours();
  }
  w.line("streamProduct<{}>(operand, finish, epilogue);", scalars.empty() ? "false" : "true");
}

std::vector<Value> TensorEmitter::emitAside(const Slice &slice) {
  std::vector<Value> weights;
  std::string list;
  for (const Operation *op : slice) {
    if (op->op != Op::WeightGet || module.type(op->result()).size % 8)
      continue;
    weights.push_back(op->result());
    list += (list.empty() ? "" : ", ") + names.weights.at(op->name) + ".words(c)";
  }
  if (!weights.empty())
    w.line("const auto aside = [&](int c) {{ return Aside<{}>{{{{{}}}}}; }};", weights.size(), list);
  return weights;
}

Value TensorEmitter::sourceOf(const Group &group, Value value, const Slice &slice, const plan::Matrix &m) {
  std::set<uint32_t> sources;
  auto add = [&](Value v) {
    if (auto it = planned.placeOf.find(v.id);
        it != planned.placeOf.end() && !group.def(v) && planned.buffers[it->second.buffer].columns == m.k)
      sources.insert(v.id);
  };
  add(value);
  for (const Operation *op : slice) {
    if (op->op == Op::RotateHalf)
      return {};
    for (Value v : op->operands)
      add(v);
  }
  if (sources.size() != 1)
    return {};
  Value source{*sources.begin()};
  return planned.buffers[planned.placeOf.at(source.id).buffer].dtype == ir::Scalar::BF16 ? source : Value();
}

/// What follows from a reduction's result and constants alone: of a chain of values that nobody
/// else uses, the last. It is computed once for a row.
Value TensorEmitter::scalarAfter(const Group &group, const Slice &slice, Value result) {
  for (;;) {
    const auto user =
        llvm::find_if(slice, [&](const Operation *op) { return llvm::is_contained(op->operands, result); });
    if (group.uses[result.id] != 1 || user == slice.end())
      return result;
    const Operation &op = **user;
    if (isReduction(op.op) || op.results.size() != 1 || group.module.type(op.result()).size != 1 ||
        !llvm::all_of(op.operands,
                      [&](Value v) { return v == result || (group.def(v) && group.def(v)->op == Op::Const); }))
      return result;
    result = op.result();
  }
}

std::map<uint32_t, std::string> TensorEmitter::emitReductions(const Group &group, const Slice &slice, Value source,
                                                              const plan::Matrix &m) {
  std::map<uint32_t, std::string> reduced;
  for (const Operation *op : slice) {
    if (!isReduction(op->op))
      continue;
    if (reduced.empty()) {
      at(op->loc);
      w.line("operand.begin();");
      ours();
    }
    const int64_t columns = module.type(op->operands[0]).size;
    const std::string number = reduced.empty() ? "" : std::to_string(reduced.size() + 1);
    {
      auto terms = w.record(fmt::format("const auto terms{} = [&](int row, int c, Words4 words)", number));
      const auto inner = group.slice(op->operands[0]);
      declarePosition(inner);
      declarePartner(inner);
      Vectors vectors(w, group, Vectors::Eight, columns, marker());
      if (source && columns == m.k)
        vectors.bind(source, "unpack8(words)");
      for (auto &[id, expr] : reduced)
        vectors.bind(Value{id}, expr);
      std::string value = vectors.eval(op->operands[0]);
      at(op->loc);
      w.line("return {};", value);
      ours();
    }
    const Value scalar = scalarAfter(group, slice, op->result());
    if (scalar != op->result()) {
      auto then = w.record(fmt::format("const auto then{} = [&](int row, float result)", number));
      Vectors values(w, group, Vectors::Scalar, 1, marker());
      values.bind(op->result(), "result");
      const std::string value = values.eval(scalar);
      at(group.def(scalar)->loc);
      w.line("return {};", value);
      ours();
    }
    at(op->loc);
    w.line("operand.template reduce<{}, {}, {}>(terms{}{});", reduced.size(), op->op == Op::ReduceMax, columns, number,
           scalar != op->result() ? ", then" + number : "");
    ours();
    reduced[scalar.id] = fmt::format("operand.scalarOf({}, row)", reduced.size());
  }
  return reduced;
}

std::vector<TensorEmitter::Sink> TensorEmitter::sinksOf(const Group &group, const std::vector<Sink> &all,
                                                        const plan::PairRange &r) {
  std::vector<Sink> mine;
  for (const Sink &sink : all)
    if (sink.value == r.product || llvm::any_of(group.slice(sink.value), [&](const Operation *op) {
          return llvm::is_contained(op->results, r.product);
        }))
      mine.push_back(sink);
  return mine;
}

/// Of a range that begins with the matrix: after its last tile. Whole tiles: the four lanes of a row store together,
/// padding too.
static int64_t endOf(const plan::PairRange &r) { return r.pairBegin + shape::roundUp(r.pairs, shape::kPairsOfTile); }

static bool isAllOf(const plan::PairRange &r, const plan::Matrix &m) {
  return r.pairBegin == 0 && endOf(r) == m.tiles() * shape::kPairsOfTile;
}

std::optional<CodeWriter::Scope> TensorEmitter::emitRange(const plan::PairRange &r, const plan::Matrix &m) {
  std::optional<CodeWriter::Scope> range;
  if (!isAllOf(r, m))
    range.emplace(w.scope(r.pairBegin ? fmt::format("if (pair >= {} && pair < {})", r.pairBegin, endOf(r))
                                      : fmt::format("if (pair < {})", endOf(r)),
                          r.weight + (r.second.empty() ? "" : ", " + r.second)));
  emitPairColumns(w, r, r.pairBegin ? fmt::format("(pair - {})", r.pairBegin) : "pair");
  return range;
}

std::vector<TensorEmitter::Early> TensorEmitter::earlyOf(const Group &group, const std::vector<Sink> &mine,
                                                         const plan::PairRange &r) {
  std::vector<Early> found;
  size_t words = 0, values = 0;
  auto add = [&](Value v, bool inBuffer) {
    if (llvm::none_of(found, [&](const Early &e) { return e.value == v; }))
      found.push_back({v, inBuffer, inBuffer ? words++ : values++});
  };
  // Back from the sinks, but not through the products.
  std::set<uint32_t> needed;
  for (const Sink &sink : mine)
    needed.insert(sink.value.id);
  for (const Operation &inner : llvm::reverse(group.region.ops))
    if (inner.op != Op::MatMul && llvm::any_of(inner.results, [&](Value v) { return needed.count(v.id); }))
      for (Value v : inner.operands)
        needed.insert(v.id);
  for (const Operation &inner : group.region.ops) {
    const Operation *op = &inner;
    if (op->op != Op::MatMul && llvm::any_of(op->results, [&](Value v) { return needed.count(v.id); })) {
      if (op->op == Op::RopeCos || op->op == Op::RopeSin || op->op == Op::WeightGet)
        add(op->result(), false);
      for (Value v : op->operands)
        if (auto it = planned.placeOf.find(v.id); it != planned.placeOf.end() && !group.def(v) && r.columns > 1 &&
                                                  planned.buffers[it->second.buffer].columns == r.columns)
          add(v, true);
    }
  }
  return found;
}

static Vectors::Width widthOf(const plan::PairRange &r) {
  return r.pairing == plan::Pairing::Dual ? Vectors::One : Vectors::Pair;
}

static std::string columnsOf(const plan::PairRange &r) { return r.pairing == plan::Pairing::Dual ? "c0" : "c0, c1"; }

TensorEmitter::EarlyLoads TensorEmitter::emitEarly(const Group &group, const plan::Phase &phase,
                                                   const plan::Matrix &m) {
  const auto all = sinks(group, *phase.op);
  EarlyLoads loads;
  for (const plan::PairRange &r : m.ranges) {
    loads.ofRange.push_back(earlyOf(group, sinksOf(group, all, r), r));
    for (const Early &e : loads.ofRange.back())
      (e.words ? loads.words : loads.values) = std::max(e.words ? loads.words : loads.values, e.at + 1);
  }
  if (m.rowScales)
    loads.scales = loads.values++;
  if (loads.words + loads.values == 0) {
    w.line("const auto early = [](int, int) { return Nothing{}; };");
    return loads;
  }
  auto lambda = w.record("const auto early = [&](int row, int pair)");
  w.line("Beside<{}, {}> beside = {{}};", loads.words, loads.values);
  if (loads.scales)
    w.line("beside.values[{}] = rowScales.of(pair);", *loads.scales);
  for (auto [r, list] : llvm::zip(m.ranges, loads.ofRange)) {
    if (list.empty())
      continue;
    auto range = emitRange(r, m);
    Slice ops;
    for (const Early &e : list)
      if (const Operation *op = group.def(e.value))
        ops.push_back(op);
    declarePosition(ops);
    for (const Early &e : list)
      if (e.words) {
        w.line("beside.words[{}] = {}.peek{}(row, {});", e.at, placeExpr(planned.placeOf.at(e.value.id)),
               r.pairing == plan::Pairing::Dual ? "One" : "Pair", columnsOf(r));
      } else {
        Vectors vectors(w, group, widthOf(r), r.columns, marker());
        const std::string value = vectors.expression(e.value);
        w.line("beside.values[{}]{} = {};", e.at, r.pairing == plan::Pairing::Dual ? ".v[0]" : "",
               value + (r.pairing == plan::Pairing::Dual ? ".v[0]" : ""));
      }
  }
  w.line("return beside;");
  return loads;
}

void TensorEmitter::emitEpilogue(const Group &group, const plan::Phase &phase, const plan::Matrix &m,
                                 const EarlyLoads &early) {
  const auto all = sinks(group, *phase.op);
  // Where a lane has one value, two lanes' make a word: the exchange is short when all lanes of a warp take part.
  const bool byWarps = m.ranges[0].pairing == plan::Pairing::Dual && isAllOf(m.ranges[0], m) &&
                       early.words + early.values == 0 && llvm::none_of(group.region.ops, [](const Operation &inner) {
                         return inner.op == Op::ArgMax || inner.op == Op::KvAppend;
                       });
  auto lambda = w.record(fmt::format(
      "const auto epilogue = [&](int tile, {} row, int pair, float y0, float y1, {})", byWarps ? "RowOfWarp" : "int",
      early.words + early.values ? fmt::format("const Beside<{}, {}> &beside", early.words, early.values)
                                 : std::string("Nothing")));
  if (early.scales)
    for (int i = 0; i < 2; ++i)
      w.line("y{0} = __fmul_rn(y{0}, beside.values[{1}].v[{0}]);", i, *early.scales);
  for (auto [r, list] : llvm::zip(m.ranges, early.ofRange)) {
    auto range = emitRange(r, m);
    Vectors vectors(w, group, widthOf(r), r.columns, marker());
    if (r.pairing == plan::Pairing::Dual) {
      vectors.bind(r.product, "Floats<1>{{y0}}");
      vectors.bind(r.secondProduct, "Floats<1>{{y1}}");
    } else {
      vectors.bind(r.product, "Floats<2>{{y0, y1}}");
    }
    for (const Early &e : list) {
      const bool one = r.pairing == plan::Pairing::Dual;
      vectors.bind(e.value, e.words ? fmt::format("{}.take{}(row, {}, beside.words[{}])",
                                                  placeExpr(planned.placeOf.at(e.value.id)), one ? "One" : "Pair",
                                                  columnsOf(r), e.at)
                            : one   ? fmt::format("Floats<1>{{{{beside.values[{}].v[0]}}}}", e.at)
                                    : fmt::format("beside.values[{}]", e.at));
    }
    for (const Sink &sink : sinksOf(group, all, r)) {
      std::string value = vectors.eval(sink.value);
      at(sink.loc);
      if (sink.best)
        emitTake(value, r, phase);
      else if (widthOf(r) == Vectors::Pair)
        w.line("{}.storePair(row, c0, c1, {});", sink.store, value);
      else
        w.line("{}.storeOne(row, c0, {});", sink.store, value);
    }
    ours();
  }
}

void TensorEmitter::emitTake(const std::string &value, const plan::PairRange &r, const plan::Phase &phase) {
  w.line("const auto logit = {};", value);
  ours();
  std::optional<CodeWriter::Scope> tail;
  if (r.pairs % shape::kPairsOfTile) // the last tile is not full
    tail.emplace(w.scope(fmt::format("if (c0 < {})", r.columns)));
  w.line("best[tile].take(logit.v[0], c0);");
  std::string second = r.columns % 2 ? fmt::format("if (c1 < {})", r.columns) : "";
  if (!second.empty()) {
    auto guard = w.scope(second);
    w.line("best[tile].take(logit.v[1], c1);");
  } else {
    w.line("best[tile].take(logit.v[1], c1);");
  }
  if (planned.reducing.any) {
    const std::string line =
        phase.result > 0 ? fmt::format("{} * Facts::rowsPerPass + row", phase.result) : std::string("row");
    w.line("takeDraws(kept, shared.draws.rows[{}], drawn[tile], c0, logit);", line);
  }
  if (phase.result > 0)
    return;
  const int64_t most = ir::mostVocab(module); // a line of logits has room for those of any model
  w.line("storeLogits(p, pass.logitsOf[row], c0, logit, {}{});", r.columns,
         most != r.columns ? fmt::format(", {}", most) : "");
}

std::string TensorEmitter::flaggedExpr(const plan::Phase &phase, const char *of) const {
  return fmt::format("reinterpret_cast<Words4 *>(p.flagged + Flagged::{}{})", of,
                     phase.result > 0 ? fmt::format(" + {} * Flagged::ofResult", phase.result) : "");
}

void TensorEmitter::emitBest(const plan::Phase &phase) {
  if (!keepsBest(phase))
    return;
  std::optional<CodeWriter::Scope> once;
  if (plan.wideRows)
    once.emplace(w.scope("if constexpr (Rows != kUnitEnd)"));
  w.line("publishBest<Rows>({}, p, pass, shared.scratch, {});", plan.wideRows ? "own" : "best",
         flaggedExpr(phase, "best"));
  if (planned.reducing.any) {
    w.line("consumerSync(); // a CTA without a group of the matrix has met no barrier since takeQueries");
    w.line("if (shared.draws.draws)");
    w.line("  publishBest<Rows>({}, p, pass, shared.scratch, {});", plan.wideRows ? "ownDrawn" : "drawn",
           flaggedExpr(phase, "drawn"));
  }
  if (planned.results.size() > 1) {
    w.line("if constexpr (Rows > kOneRow)");
    w.line("  consumerSync(); // another result may follow: scratch has been read");
  }
}

} // namespace megalith::emit
