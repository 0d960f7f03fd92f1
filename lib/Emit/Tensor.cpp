#include "TensorEmitter.h"
#include "device/Shape.h"
#include "llvm/ADT/StringExtras.h"
#include <set>

namespace megalith::emit {

using ir::Op;
using ir::Operation;
namespace attr = ir::attr;
using ir::Region;
using ir::Value;

void TensorEmitter::run() {
  emitPool();
  emitBuffers();
  w.line();
  {
    const auto matrices = w.space("matrices");
    for (size_t i = 0; i < planned.matrices.size(); ++i)
      emitMatrix(planned.matrices[i], names.matrices[i]);
  }
  w.line();
  emitPlaces();
  if (model.get<attr::kv_layers>() > 0) {
    w.line("static_assert(AttentionShape<{0}>::scratchBytes(1) <= sizeof(Shared::scratch) &&", names.kv());
    w.line("              AttentionShape<{0}>::scratchBytes({0}::rows) <= sizeof(Shared::scratch) + WeightRing::lent * "
           "WeightRing::stageBytes,",
           names.kv());
    w.line("              \"room for attention\");");
  }
  emitImages();
  if (several() || plan.wide()) {
    w.line();
    w.comment("Chunks that the producer of a CTA copies before it knows the pass, at most, when the pass before was of "
              "this model.");
    w.line("__device__ __forceinline__ int chunksAhead() {{ return {}; }}", chunksAhead(planned.segments[0]));
  }
  w.line();
  const auto phases = w.space("phases");
  for (size_t i = 0; i < planned.segments.size(); ++i)
    emitSegment(planned.segments[i], names.segments[i]);
}

std::string TensorEmitter::place(SourceLoc loc) const {
  if (!loc)
    return "";
  return fmt::format(" ({}:{})",
                     files.name(loc.file).rsplit('/').second.empty() ? files.name(loc.file).str()
                                                                     : files.name(loc.file).rsplit('/').second.str(),
                     loc.line);
}

void TensorEmitter::emitSegment(const plan::Segment &segment, const Names::Segment &name) {
  const char *passes = &segment == &planned.segments[0] ? "pass.wide.passes" : "pass.wide.heads";
  widePass = fmt::format("{} - 1", passes);
  wideUse = fmt::format("({} - 1) * {} + layer", passes, segment.repeatCount);
  segment.forEach([&](const plan::Phase &phase, bool) {
    for (const plan::Buffer *image : planned.imagesOf(phase))
      writes[image] = widePass;
  });
  segment.forEach([&](const plan::Phase &phase, bool layers) {
    emitPhase(phase, layers);
    if (phase.kind == plan::Phase::Attention && planned.bf16Layers)
      emitByFormat(names.phases.at(&phase));
  });
  if (plan.wideRows)
    emitWindows(segment, name.windows);
  const bool late = plan.late() && &segment == &planned.segments[0];
  const std::string beginLate = name.function + "Late";
  if (late)
    emitLateBegin(beginLate);
  w.line();
  w.comment(fmt::format("Segment `{}` of model `{}`. Rows: at most so many does this variant handle. False "
                        "when the kernel stops.",
                        segment.name, planned.name));
  w.line("template <int Rows>");
  auto fn = w.scope(fmt::format("__device__ __noinline__ bool {}()", name.function), name.function);
  w.line("Shared &shared = sharedOfCta();");
  // What reads weights alone need not wait for the tables.
  size_t early = 0;
  if (&segment == &planned.segments[0]) {
    w.line("shared.stream().beginPass(shared.pass.numRows, shared.pass.products.lentBefore);");
    if (!segment.before.empty() && planned.readsWeightsAlone(segment.before[0]))
      early = 1;
    if (late) {
      w.line("const bool late = Rows <= kTileRows && (shared.pass.wantLogits & kLastLayer);");
      w.line("if (late)");
      w.line("  {}();", beginLate);
    }
    emitFirst(segment.before, 0, early, late);
    w.line("consumerSync(); // the pass is planned");
    if (several()) {
      w.line("if (shared.pass.guess != {}) // what the producer copies before it knows that", names.number);
      w.line("  dropGuess<Rows>(shared.stream(), chunksAheadOf(shared.pass.guess), shared.pass.products.lent, "
             "shared.pass.products.lentBefore);");
    }
    if (plan.rowsAtOnce > shape::kTileRows) {
      w.line("{}if ({}) // what the producer copies before it knows that", several() ? "else " : "",
             plan.ring.tall() ? "dropsAhead<Rows, Stream>(shared.pass)" : "Rows > kTileRows");
      w.line("  dropAhead(shared.stream(), {}, shared.pass.products.lent, shared.pass.products.lentBefore);",
             chunksAhead(segment));
    }
  }
  if (planned.reducing.any && &segment == &planned.segments.back())
    w.line("takeQueries(shared.grid, Edges::best, shared.pass, shared.draws);");
  emitFirst(segment.before, early, segment.before.size(), late);
  if (segment.repeatCount) {
    w.line("#pragma unroll 1");
    auto loop = w.scope(plan.wideRows ? fmt::format("for (Layer<Rows, Shared> layer{}; layer < {}; ++layer)",
                                                    late ? fmt::format("(late ? {} : 0)", segment.repeatCount - 1) : "",
                                                    segment.repeatCount)
                                      : fmt::format("for (int layer = 0; layer < {}; ++layer)", segment.repeatCount),
                        "layer");
    emitCalls(segment.repeated, true);
  }
  emitCalls(segment.after, false);
  w.line("return true;");
}

void TensorEmitter::emitFirst(llvm::ArrayRef<plan::Phase> phases, size_t from, size_t to, bool late) {
  if (from == to)
    return;
  std::optional<CodeWriter::Scope> first;
  if (late)
    first.emplace(w.scope("if (!late)"));
  emitCalls(phases.slice(from, to - from), false);
}

std::string TensorEmitter::storeExpr(const plan::Place &place) const {
  const plan::Buffer &buffer = planned.buffers[place.buffer];
  const std::string rows = placeExpr(place);
  return buffer.windows && !wide ? fmt::format("forRows<Rows>({}, {})", rows, imageExpr(place)) : rows;
}

std::string TensorEmitter::imageExpr(const plan::Place &place) const {
  return "Images{p.flagged, pass.numRows}." + names.rows(planned, place);
}

std::string TensorEmitter::counterExpr(const plan::Buffer &buffer, const char *params) const {
  return fmt::format("counterAt({}, Counters::{}{})", params, names.buffers[&buffer - planned.buffers.data()],
                     buffer.instances > 1 ? fmt::format(" + layer * {}ll", shape::kCounterBytes) : "");
}

plan::Place TensorEmitter::operandPlace(const plan::Phase &phase) {
  if (phase.operand)
    return *phase.operand;
  const plan::Matrix &m = planned.matrices[phase.matrix];
  Group group(module, planned, names, phase.op->region());
  const Value value = operandOf(group, m);
  return planned.placeOf.at(sourceOf(group, value, group.slice(value), m).id);
}

void TensorEmitter::emitWindows(const plan::Segment &segment, const std::string &name) {
  w.line();
  w.comment(
      fmt::format("The window warp: the operands of the products of segment `{}`, in a pass of more than {} rows.",
                  segment.name, int(shape::kTileRows)));
  auto fn = w.scope(fmt::format("__device__ __noinline__ bool {}(WindowProducer<Stream> &producer)", name), name);
  w.line("const abi::LaunchParams &p = sharedOfCta().params;");
  w.line("const WidePlan &pass = sharedOfCta().sync.wide;");
  const auto bring = [&](const std::vector<plan::Phase> &phases) {
    for (const plan::Phase &phase : phases) {
      if (phase.kind != plan::Phase::Stream)
        continue;
      const plan::Place source = operandPlace(phase);
      const plan::Buffer &buffer = planned.buffers[source.buffer];
      w.line("if (!producer.bring(windowSteps<{}>({}, {}, {}, {})))", names.matrix(phase.matrix), imageExpr(source),
             counterExpr(buffer), writes.at(&buffer), buffer.edge);
      w.line("  return false;");
    }
  };
  bring(segment.before);
  if (segment.repeatCount) {
    w.line("#pragma unroll 1");
    auto loop = w.scope(fmt::format("for (int layer = 0; layer < {}; ++layer)", segment.repeatCount), "layer");
    bring(segment.repeated);
  }
  bring(segment.after);
  w.line("return true;");
}

std::string TensorEmitter::chunksAhead(const plan::Segment &segment) const {
  const auto sum = [&](const std::vector<int> &matrices) {
    std::vector<std::string> chunks;
    for (int matrix : matrices)
      chunks.push_back(fmt::format("chunksOf<{}>()", names.matrix(matrix)));
    return llvm::join(chunks, " + ");
  };
  const plan::AheadOfPlan ahead = segment.ahead();
  const std::string repeated = sum(ahead.repeated);
  llvm::SmallVector<std::string> all = {
      sum(ahead.before),
      ahead.repeatCount == 1 || repeated.empty() ? repeated : fmt::format("{} * ({})", ahead.repeatCount, repeated),
      sum(ahead.after)};
  llvm::erase_if(all, [](const std::string &part) { return part.empty(); });
  return all.empty() ? "0" : llvm::join(all, " + ");
}

std::string TensorEmitter::stampExpr(const plan::Phase &phase) const {
  const plan::StampNumber number = plan::stampOf(plan, names.number, phase);
  return number.ofLayer ? fmt::format("{} + {} * layer", number.first, number.ofLayer) : std::to_string(number.first);
}

void TensorEmitter::emitCalls(llvm::ArrayRef<plan::Phase> phases, bool layers) {
  for (const plan::Phase &phase : phases) {
    const std::string stamp = plan.knobs.stamps ? stampExpr(phase) : "";
    std::optional<CodeWriter::Scope> several;
    if (phase.kind == plan::Phase::Operand || phase.kind == plan::Phase::Order)
      several.emplace(w.scope("if (Rows > kOneRow)"));
    if (phase.several)
      several.emplace(w.scope("if (Rows > kOneRow && !shared.pass.attention.oneRowEach)"));
    if (!stamp.empty())
      w.line("stampBegin(shared.grid, {});", stamp);
    const std::string &name = names.phases.at(&phase), layer = layers ? "layer" : "";
    if (phase.kind == plan::Phase::Attention && planned.wideAttention.units) {
      w.line("if (Rows > kTileRows && shared.pass.attention.wideTiles)");
      w.line("  {}<kMaxRows>({});", name, layer);
      w.line("else");
    }
    if (phase.kind == plan::Phase::Attention)
      w.line("{0}Rows == kOneRow || shared.pass.attention.oneRowEach ? {1}<kOneRow>({2}) : {1}<kTileRows>({2});",
             planned.wideAttention.units ? "  " : "", name, layer);
    else
      w.line("{}{}({});", name, phase.kind == plan::Phase::Stream || !planned.imagesOf(phase).empty() ? "<Rows>" : "",
             layer);
    if (!stamp.empty())
      w.line("stampEnd(shared.grid, {});", stamp);
    for (const plan::Buffer *image : planned.imagesOf(phase)) {
      w.line("if (Rows > kTileRows)");
      w.line("  countOperand({});", counterExpr(*image, "shared.params"));
    }
    if (plan.edges[phase.edge].lowering != plan::Edge::Barrier)
      continue; // who reads the words waits for them
    w.line("if (!gridEdge(shared.grid, {}))", phase.edge);
    w.line("  return false;");
  }
}

void TensorEmitter::emitByFormat(const std::string &name) {
  w.line();
  w.comment("The same, by what K and V of the layer are.");
  w.line("template <int Rows>");
  auto fn = w.scope(fmt::format("__device__ __forceinline__ void {}(int layer)", name), name);
  w.line("if (isInBf16<{}>(layer))", names.kv());
  w.line("  {}<Rows, InBf16<{}>>(layer);", name, names.kv());
  w.line("else");
  w.line("  {}<Rows, {}>(layer);", name, names.kv());
}

void TensorEmitter::emitPhaseBegin() {
  w.line("Shared &shared = sharedOfCta();");
  w.line("const abi::LaunchParams &p = shared.params;");
  w.line("PassShared &pass = shared.pass;");
  w.line("const Buffers b{{{}.workspace + pass.sets.current * Workspace::setBytes, &shared.grid}};", names.params());
}

void TensorEmitter::emitPhase(const plan::Phase &phase, bool layers) {
  inLayers = layers;
  const std::string &name = names.phases.at(&phase);
  if (phase.makes)
    emitMadeRows(phase, names.makers.at(&phase));
  w.line();
  emitPhaseComment(phase);
  if (phase.kind == plan::Phase::Attention && planned.bf16Layers)
    w.line("template <int Rows, class Kv>");
  else if (phase.kind == plan::Phase::Stream || phase.kind == plan::Phase::Attention ||
           !planned.imagesOf(phase).empty())
    w.line("template <int Rows>");
  // What is short and runs once in a pass is not called: a call to code that is not near costs more than the code.
  const char *const inlined = phase.kind == plan::Phase::Map && !layers ? "__forceinline__" : "__noinline__";
  const bool units = phase.kind == plan::Phase::Stream && plan.wideRows;
  const std::string ofUnit =
      units ? std::string(layers ? ", " : "") + "int unit = 0, int firstRow = 0" +
                  (keepsBest(phase) ? planned.reducing.any ? ", Best *best = nullptr, Best *drawn = nullptr"
                                                           : ", Best *best = nullptr"
                                    : "")
            : "";
  auto fn = w.scope(fmt::format("__device__ {} void {}({}{})", inlined, name, layers ? "int layer" : "", ofUnit), name);
  emitPhaseBegin();
  w.line("const int numRows = pass.numRows;");
  if (phase.kind == plan::Phase::Operand) {
    Group group(module, planned, names, phase.op->region());
    declareRopes(group.slice(operandOf(group, planned.matrices[phase.matrix])));
  } else if (phase.op) {
    declareRopes(*phase.op);
  }
  switch (phase.kind) {
  case plan::Phase::Stream:
    emitStream(phase);
    break;
  case plan::Phase::Map:
    emitMap(phase);
    break;
  case plan::Phase::Attention:
    emitAttention(phase);
    break;
  case plan::Phase::Copy:
    emitCopy(phase);
    break;
  case plan::Phase::Operand:
    emitOperand(phase);
    break;
  case plan::Phase::Order:
    emitOrder(phase);
    break;
  }
}

void TensorEmitter::emitPhaseComment(const plan::Phase &phase) {
  switch (phase.kind) {
  case plan::Phase::Stream: {
    std::string outputs;
    for (Value v : phase.op->results)
      if (auto it = planned.placeOf.find(v.id); it != planned.placeOf.end())
        outputs += (outputs.empty() ? "" : ", ") + planned.buffers[it->second.buffer].name;
    w.comment(
        fmt::format("Streams {}{}{}.", phase.name, place(phase.op->loc), outputs.empty() ? "" : " into " + outputs));
    break;
  }
  case plan::Phase::Map:
    w.comment(fmt::format("{}{}: row by row.", phase.name, place(phase.op->loc)));
    break;
  case plan::Phase::Attention:
    w.comment(fmt::format("Attention{}: {} heads over {} KV heads.", place(phase.op->loc), phase.op->get<attr::heads>(),
                          phase.op->get<attr::kv_heads>()));
    break;
  case plan::Phase::Operand:
    w.comment(fmt::format("{}{}: once, where each CTA would make it for itself.", phase.name, place(phase.op->loc)));
    break;
  case plan::Phase::Order:
    w.comment(fmt::format("{}: the operand's columns as the matrix has them.", phase.name));
    break;
  case plan::Phase::Copy:
    w.comment(fmt::format("{} moves to where the layers keep it.", planned.buffers[phase.from.buffer].name));
    break;
  }
}

void TensorEmitter::emitCopy(const plan::Phase &phase) {
  const plan::Buffer &from = planned.buffers[phase.from.buffer];
  auto rows = w.lambda("spreadRows(numRows, 4, [&](int row, int part)");
  auto columns = w.lambda(fmt::format("quarterOfRow<{}>(part, [&](int c)", from.columns));
  w.line("{}.store8(row, c, {}.load8(row, c));", storeExpr(phase.to), placeExpr(phase.from));
}

std::string TensorEmitter::orderExpr(int matrix) const {
  const std::string name = names.matrix(matrix);
  return fmt::format("columnOrder<{}>({}{})", name, names.params(), inLayers ? ", layer" : "");
}

void TensorEmitter::emitOrder(const plan::Phase &phase) {
  w.line("const auto order = {};", orderExpr(phase.matrix));
  if (wide) {
    w.line("order.copyRow({}, {}, row);", storeExpr(phase.to), placeExpr(phase.from));
    return;
  }
  auto parts = w.lambda("spreadRows(numRows, order.parts, [&](int row, int part)");
  w.line("order.copyPart({}, {}, row, part);", storeExpr(phase.to), placeExpr(phase.from));
}

void TensorEmitter::emitMadeRows(const plan::Phase &phase, const std::string &name) {
  const Operation &map = *phase.makes, &attention = *phase.op;
  w.line();
  w.comment(fmt::format("What attention takes{}: head `part` of row `row`, eight columns to a lane. The pool gets keys "
                        "and values, too, to `keep`.",
                        place(map.loc)));
  if (planned.bf16Layers)
    w.line("template <class Kv>");
  auto fn = w.scope(fmt::format("__device__ __forceinline__ Words4 {}({}Made what, int row, int part, bool keep)", name,
                                inLayers ? "int layer, " : ""),
                    name);
  emitPhaseBegin();
  declareRopes(map);
  Group group(module, planned, names, map.region());
  declareWeights(group);
  if (planned.bf16Layers)
    w.line("const auto kv = kvOfLayer<Kv>({}, layer, pass);", names.params());
  else if (planned.kvInE4m3)
    w.line("const CodedKv<{}> coded({}, {}, pass);", names.kv(), names.params(), inLayers ? "layer" : "0");
  else
    emitSinkDeclarations(group);
  const auto emitMade = [&](Value value, int64_t heads, const char *pool, SourceLoc loc) {
    const std::string made = nameMade(emitBlock(group, value, heads), loc);
    if (pool && planned.kvInE4m3) {
      w.line("return {}.made({}, row, part, pack8({}), keep);", planned.bf16Layers ? "kv" : "coded",
             pool == llvm::StringRef("keys"), made);
      return;
    }
    if (pool) {
      w.line("if (keep && isLaneOfBlock<{}>())", module.type(value).size / heads);
      at(loc);
      w.line("  {}.store8(row, c, {});", pool, made);
      ours();
    }
    w.line("return pack8({});", made);
  };
  for (auto [result, value] : llvm::zip(map.results, map.region().ops.back().operands))
    if (result == attention.operands[0]) {
      auto query = w.scope("if (what == Made::Query)");
      emitMade(value, attention.get<attr::heads>(), nullptr, map.loc);
    }
  for (const Operation &op : map.region().ops)
    if (op.op == Op::KvAppend) {
      {
        auto key = w.scope("if (what == Made::Key)");
        emitMade(op.operands[0], attention.get<attr::kv_heads>(), "keys", op.loc);
      }
      emitMade(op.operands[1], attention.get<attr::kv_heads>(), "values", op.loc);
    }
}

void TensorEmitter::emitAttention(const plan::Phase &phase) {
  const Operation &op = *phase.op;
  const std::string layer = inLayers ? "layer" : "0";
  const plan::Place::Instance instance = inLayers ? plan::Place::Layer : plan::Place::First;
  const plan::Place result = planned.placeOf.at(op.result().id);
  const bool windows = planned.buffers[result.buffer].windows; // of passes with a row of each slot, too
  const std::string kv = planned.bf16Layers ? "Kv" : names.kv(), rows = placeExpr(result),
                    scale = floatLiteral(op.get<attr::scale>());
  const auto attend = [&](const char *query) {
    if (windows) {
      auto make = w.lambda(fmt::format("const auto out = lateRows([{}]", inLayers ? "layer" : ""));
      w.line("const abi::LaunchParams &p = sharedOfCta().params;");
      w.line("const PassShared &pass = sharedOfCta().pass;");
      w.line("const Buffers b{{{}.workspace + pass.sets.current * Workspace::setBytes, &sharedOfCta().grid}};",
             names.params());
      w.line("return rowsOrImage({}, {}, pass.numRows);", rows, imageExpr(result));
    } else {
      w.line("const auto out = {};", rows);
    }
    at(op.loc);
    w.line("attend<{}, Rows>(shared.grid, {}, pass, {}, {}, shared.stream(), own, {}, out);", kv, phase.edge, layer,
           scale, query);
    ours();
  };
  std::optional<CodeWriter::Scope> others;
  if (phase.makes) {
    {
      auto one = w.scope("if constexpr (Rows == kOneRow)"); // of each slot
      w.line("const auto own = madeRows([{}](Made what, int row, int head, bool keep) {{ return {}({}what, row, head, "
             "keep); }});",
             inLayers ? "layer" : "", names.makers.at(&phase) + (planned.bf16Layers ? "<Kv>" : ""),
             inLayers ? "layer, " : "");
      attend("Nothing()");
    }
    others.emplace(w.scope("else"));
  }
  if (planned.bf16Layers)
    w.line("const auto own = ownRowsOfLayer<Kv>({}, {}, {}, layer, pass);", placeExpr({planned.newKeys, instance}),
           placeExpr({planned.newValues, instance}), names.params());
  else if (planned.kvInE4m3)
    w.line("const auto own = codedOwnRows({}, {}, CodedKv<{}>({}, {}, pass));", placeExpr({planned.newKeys, instance}),
           placeExpr({planned.newValues, instance}), kv, names.params(), layer);
  else
    w.line("const auto own = ownRows({}, {});", placeExpr({planned.newKeys, instance}),
           placeExpr({planned.newValues, instance}));
  w.line("const auto query = {};", placeExpr(planned.placeOf.at(op.operands[0].id)));
  std::optional<CodeWriter::Scope> several;
  if (planned.wideAttention.units) {
    {
      auto wide = w.scope("if constexpr (Rows > kTileRows)"); // a tile has many rows of a slot
      at(op.loc);                                             // of each line: directives count on from the last one
      w.line("attendWide<{}>(shared.grid, pass, {}, {}, shared.stream(), own, query);", kv, layer, scale);
      ours();
      w.line("// Again: no register is kept for it until here.");
      w.line("const Buffers b{{{}.workspace + pass.sets.current * Workspace::setBytes, &shared.grid}};",
             names.params());
      at(op.loc);
      w.line("mergeWide<{}>(shared.grid, {}, pass, {}, {});", kv, phase.edge, layer,
             windows ? imageExpr(result) : rows);
      ours();
    }
    several.emplace(w.scope("else"));
  }
  attend("query");
}

void emitTensor(CodeWriter &w, const ir::Module &module, const plan::Plan &plan, const Names &names,
                const SourceFiles &files, const EmitOptions &options) {
  TensorEmitter(w, module, plan, names, files, options).run();
}

} // namespace megalith::emit
