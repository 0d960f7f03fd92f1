//===- Wide.cpp - the unit of passes that run whole -----------------------===//
//
// A pass of more than kMaxRows rows (device/wide) goes through a table of steps: the phases of the first segment's
// layers. Their products end in a struct for each range of columns, which says what becomes of two sums; their maps and
// operands are a function of a row. `wgmma` overlaps in a function alone that calls nothing: so each role is a function
// of its own, in a unit of its own, and the tensor unit calls them.
//===----------------------------------------------------------------------===//
#include "Wide.h"
#include "TensorEmitter.h"
#include "device/Shape.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

namespace megalith::emit {

using ir::Op;
using ir::Operation;
using ir::Value;

static bool isRowWork(const plan::Phase &phase) {
  return phase.kind != plan::Phase::Stream && phase.kind != plan::Phase::Attention;
}

/// A step of a layer: a phase, or what makes codes of the keys and values that a phase gave.
struct WideStep {
  const plan::Phase *phase; ///< null: codes
  int number;               ///< of the phase: its epilogues, or its work on a row
};
constexpr int kCodeKv = -2;

static std::vector<WideStep> wideSteps(const plan::ModelPlan &planned) {
  std::vector<WideStep> steps;
  for (auto [number, phase] : llvm::enumerate(planned.segments[0].repeated)) {
    steps.push_back({&phase, int(number)});
    if (planned.kvInE4m3 && int64_t(steps.size()) == planned.wide.stepsOfLast)
      steps.push_back({nullptr, kCodeKv});
  }
  return steps;
}
static bool isRowWork(const WideStep &step) { return !step.phase || isRowWork(*step.phase); }

/// Work on a row in front of the layers' first step, if that is none itself.
static bool hasOwnBegin(const plan::Segment &body) { return !isRowWork(body.repeated.front()); }

static std::string wideFunction(const Names &names, const char *role) {
  return std::string("megalith_wide_") + (names.number ? std::to_string(names.number) + "_" : "") + role;
}

void TensorEmitter::emitWideBuffers() {
  w.comment("Activations. What a layer hands to the next one has two instances, which alternate; all others have one.");
  auto s = w.record("struct Buffers");
  w.line("char *flagged;");
  for (auto [b, name] : llvm::zip(planned.buffers, names.buffers)) {
    if (!b.wideBytes)
      continue;
    const bool two = b.wideInstances() > 1;
    w.line("__device__ __forceinline__ auto {}(int{}) const {{ return wide::{}<{}>(flagged + {}ll{}); }}", name,
           two ? " instance" : "", b.dtype == ir::Scalar::F32 ? "PlainRows" : "ImageRows", b.columns, b.wideOffset,
           two ? fmt::format(" + instance % 2 * {}ll", b.wideBytes) : "");
  }
}

void TensorEmitter::emitLateBegin(const std::string &name) {
  w.line();
  w.comment("Behind a wide pass: what the last layer takes of rows that ran there.");
  auto fn = w.scope(fmt::format("__device__ __noinline__ void {}()", name), name);
  emitPhaseBegin();
  w.line("const int numRows = pass.numRows;");
  const int64_t last = body().repeatCount - 1;
  for (auto [b, buffer] : llvm::zip(planned.buffers, names.buffers)) {
    if (!b.wideBytes || !b.carried)
      continue;
    w.line("const wide::{}<{}> {}_(p.flagged + {}ll);", b.dtype == ir::Scalar::F32 ? "PlainRows" : "ImageRows",
           b.columns, buffer, b.wideOffset + last % b.wideInstances() * b.wideBytes);
    auto rows = w.lambda("spreadRows(numRows, 4, [&](int row, int part)");
    w.line("const int there = rowOfWidePass(p, row);");
    auto columns = w.lambda(fmt::format("quarterOfRow<{}>(part, [&](int c)", b.columns));
    w.line("b.{}({}).store8(row, c, {}_.load8(there, c));", buffer, last, buffer);
  }
}

void TensorEmitter::emitRowWork(const plan::Phase &phase, const std::string &name) {
  w.line();
  w.comment(fmt::format("{}{}: a row, by a warp.", phase.name, phase.op ? place(phase.op->loc) : ""));
  auto fn = w.scope(fmt::format("__device__ __forceinline__ void {}(int layer, int row)", name), name);
  w.line("const abi::LaunchParams &p = Cta::params();");
  w.line("const Buffers b{p.flagged};");
  Slice slice; // what is made of the row
  if (phase.op) {
    Group group(module, planned, names, phase.op->region());
    if (phase.kind == plan::Phase::Operand)
      slice = group.slice(operandOf(group, planned.matrices[phase.matrix]));
    else
      for (const Operation &op : group.region.ops)
        slice.push_back(&op);
  }
  if (llvm::any_of(slice, [](const Operation *op) {
        return op->op == Op::Embed || op->op == Op::RopeCos || op->op == Op::RopeSin;
      }))
    w.line("const wide::PassOfRuns<Cta> pass;");
  declareRopes(slice);
  if (phase.kind == plan::Phase::Map) {
    emitMap(phase);
  } else if (phase.kind == plan::Phase::Operand) {
    emitOperand(phase);
  } else if (phase.kind == plan::Phase::Order) {
    emitOrder(phase);
  } else {
    auto loop = w.scope(
        fmt::format("for (int c = laneId() * 8; c < {}; c += 256)", planned.buffers[phase.from.buffer].columns));
    w.line("{}.store8(row, c, {}.load8(row, c));", placeExpr(phase.to), placeExpr(phase.from));
  }
}

std::string TensorEmitter::endName(const plan::Phase &phase, const plan::PairRange &r) const {
  return typeName(names.phases.at(&phase)) + typeName(r.weight) + (r.second.empty() ? "" : typeName(r.second));
}

TensorEmitter::Slice TensorEmitter::opsOf(const Group &group, llvm::ArrayRef<Early> early) {
  Slice ops;
  for (const Early &e : early)
    if (!e.words)
      ops.push_back(group.def(e.value));
  return ops;
}

/// Whether some value depends on a row's position.
static bool turnsRows(llvm::ArrayRef<const Operation *> ops) {
  return llvm::any_of(ops, [](const Operation *op) { return op->op == Op::RopeCos || op->op == Op::RopeSin; });
}

/// What the epilogue of a range loads early, and what it makes of two sums.
void TensorEmitter::emitEndValue(const Group &group, const plan::PairRange &r, const Sink &sink,
                                 llvm::ArrayRef<Early> early, const Early *beside) {
  const bool dual = r.pairing == plan::Pairing::Dual;
  const std::string type = fmt::format("Beside<0, {}>", early.size());
  const Slice earlyOps = opsOf(group, early);
  {
    auto load = w.scope(early.empty()
                            ? "__device__ __forceinline__ Nothing early(int, int, int) const"
                            : fmt::format("__device__ __forceinline__ {} early(int row, int c0, int c1) const", type));
    if (early.empty()) {
      w.line("return {};");
    } else {
      if (!earlyOps.empty())
        w.line("const abi::LaunchParams &p = Cta::params();");
      declareWeights(earlyOps);
      if (turnsRows(earlyOps)) {
        declareRopes(earlyOps);
        w.line("const int position = rows.position(row);");
      }
      w.line("{} beside = {{}};", type);
      for (auto [i, e] : llvm::enumerate(early)) {
        if (e.words) {
          w.line("beside.values[{}] = wide::pairOf(second.load(row, c0), c0);", i);
          continue;
        }
        Vectors vectors(w, group, dual ? Vectors::One : Vectors::Pair, r.columns, marker());
        const std::string value = vectors.expression(e.value);
        w.line("beside.values[{}]{} = {}{};", i, dual ? ".v[0]" : "", value, dual ? ".v[0]" : "");
      }
      w.line("return beside;");
    }
  }
  {
    auto value = w.scope(fmt::format("__device__ __forceinline__ Floats<{}> value(int c0, int c1, float y0, float y1, "
                                     "Floats<2> old, const {} &beside) const",
                                     dual ? 1 : 2, early.empty() ? "Nothing" : type));
    Vectors vectors(w, group, dual ? Vectors::One : Vectors::Pair, r.columns, marker());
    if (dual) {
      vectors.bind(r.product, "Floats<1>{{y0}}");
      vectors.bind(r.secondProduct, "Floats<1>{{y1}}");
    } else {
      vectors.bind(r.product, "Floats<2>{{y0, y1}}");
    }
    for (auto [i, e] : llvm::enumerate(early))
      vectors.bind(e.value, dual ? fmt::format("Floats<1>{{{{beside.values[{}].v[0]}}}}", i)
                                 : fmt::format("beside.values[{}]", i));
    if (beside)
      vectors.bind(beside->value, "old");
    const std::string result = vectors.eval(sink.value);
    at(sink.loc);
    w.line("return {};", result);
    ours();
  }
}

void TensorEmitter::emitEnd(const plan::Phase &phase, const plan::PairRange &r, const std::string &name) {
  Group group(module, planned, names, phase.op->region());
  const std::vector<Sink> mine = sinksOf(group, sinks(group, *phase.op), r);
  const std::vector<Early> found = earlyOf(group, mine, r);
  const bool dual = r.pairing == plan::Pairing::Dual, half = r.pairing == plan::Pairing::Half;
  const Early *beside = nullptr; // what stands in another buffer; that of a second one is loaded early
  std::vector<Early> early;
  for (const Early &e : found)
    if (e.words && !beside)
      beside = &e;
    else
      early.push_back(e);
  const bool turns = turnsRows(opsOf(group, early));
  const auto isPool = [](const Sink &sink) { return sink.store == "keys" || sink.store == "values"; };
  const bool places = llvm::any_of(mine, isPool);
  w.line();
  w.comment(fmt::format("{}{}{}: what becomes of its sums.", r.weight, r.second.empty() ? "" : " with " + r.second,
                        place(phase.op->loc)));
  auto s = w.record("struct " + name);
  w.line("static constexpr auto pairs = wide::Pairs::{};", dual ? "One" : half ? "Halves" : "Adjacent");
  w.line("static constexpr bool residual = {};", beside != nullptr);
  w.line("int layer;");
  if (turns || places)
    w.line("wide::TileRows<Cta{}> rows;", places ? ", " + std::string(names.kv()) : "");
  for (auto [i, sink] : llvm::enumerate(mine))
    if (isPool(sink))
      w.line("wide::KvOfTile<{}> {};", names.kv(), sink.store);
    else
      w.line("wide::Image<{}> to{};", r.columns, i ? std::to_string(i) : "");
  if (beside)
    w.line("wide::Image<{}> from;", r.columns);
  if (llvm::any_of(early, [](const Early &e) { return e.words; }))
    w.line("wide::Image<{}> second;", r.columns);
  {
    auto begin = w.scope(
        fmt::format("__device__ __forceinline__ void begin(int firstRow, int *{})", turns || places ? "words" : ""));
    w.line("const abi::LaunchParams &p = Cta::params();");
    if (beside || !llvm::all_of(mine, isPool))
      w.line("const Buffers b{p.flagged};");
    if (turns || places)
      w.line("rows.begin(firstRow, words);");
    for (auto [i, sink] : llvm::enumerate(mine))
      if (isPool(sink))
        w.line("{0}.cache = wide::layerOf<{1}>({2}.{3}, {4});", sink.store, names.kv(), names.params(),
               sink.store == "keys" ? "kCache" : "vCache", inLayers ? "layer" : "0");
      else
        w.line("to{} = {}.tile(firstRow);", i ? std::to_string(i) : "", sink.store);
    if (beside)
      w.line("from = {}.tile(firstRow);", placeExpr(planned.placeOf.at(beside->value.id)));
    for (const Early &e : early)
      if (e.words)
        w.line("second = {}.tile(firstRow);", placeExpr(planned.placeOf.at(e.value.id)));
  }
  {
    auto columns = w.scope("__device__ __forceinline__ wide::Columns columns(int pair) const");
    emitPairColumns(w, r, r.pairBegin ? fmt::format("(pair - {})", r.pairBegin) : "pair");
    w.line("return {{c0, {}}};", dual ? "c0" : "c1");
  }
  const plan::Matrix &m = planned.matrices[phase.matrix];
  if (m.rowScales) {
    const std::string matrix = names.matrix(phase.matrix);
    auto scales = w.scope("__device__ __forceinline__ Floats<2> scales(int pair) const");
    w.line("const abi::LaunchParams &p = Cta::params();");
    w.line("return RowScales{{packedVector({}, {}{}::offset + matrixBytes<{}>())}}.of(pair);", names.params(),
           inLayers ? fmt::format("layer * {}::layerBytes + ", matrix) : "", matrix, matrix);
  }
  emitEndValue(group, r, mine[0], early, beside);
  if (beside)
    w.line("__device__ __forceinline__ Words4 load(int row, int col) const { return from.load(row, col); }");
  if (places)
    w.line("__device__ __forceinline__ int place(int row) const { return rows.place(row); }");
  else
    w.line("__device__ __forceinline__ Nothing place(int) const { return {}; }");
  auto store = w.scope(fmt::format("__device__ __forceinline__ void store(int row, {}, int col, Words4 words) const",
                                   places ? "int place" : "Nothing"));
  for (auto [i, sink] : llvm::enumerate(mine)) {
    at(sink.loc);
    if (isPool(sink))
      w.line("{}.store(place, col, words);", sink.store);
    else
      w.line("to{}.store(row, col, words);", i ? std::to_string(i) : "");
  }
  ours();
}

void TensorEmitter::emitWideSteps(std::vector<plan::Place> &operands) {
  w.line();
  w.comment("The steps of a layer. Each has a number: of its operand, and of its end or its work on rows.");
  auto table = w.record("__constant__ wide::Step kSteps[] =");
  if (hasOwnBegin(body()))
    w.line("wide::rowStep(-1), // what comes before the layers");
  for (const WideStep &step : wideSteps(planned)) {
    if (isRowWork(step)) {
      w.line("wide::rowStep({}), // {}", step.number, step.phase ? step.phase->name : "codes of keys and values");
      continue;
    }
    const plan::Phase &phase = *step.phase;
    if (phase.kind == plan::Phase::Attention) {
      w.line("wide::attentionStep(wide::AttendShape<{}>::tilesOfRow),", names.kv());
    } else {
      const plan::Place place = operandPlace(phase);
      auto known = llvm::find_if(
          operands, [&](const plan::Place &p) { return p.buffer == place.buffer && p.instance == place.instance; });
      const size_t operand = known - operands.begin();
      if (known == operands.end())
        operands.push_back(place);
      w.line("wide::productStep<{}>({}, {}, {}),", names.matrix(phase.matrix),
             planned.matrices[phase.matrix].layers > 0, operand, step.number);
    }
  }
}

void TensorEmitter::emitWideModel(llvm::ArrayRef<plan::Place> operands) {
  w.line();
  w.comment("What the roles (device/wide) take of this model.");
  auto s = w.record("struct Wide : Cta");
  w.line("__device__ __forceinline__ static const wide::Step *steps() { return kSteps; }");
  std::vector<std::string> products;
  for (const plan::Phase &phase : body().repeated)
    if (phase.kind == plan::Phase::Stream)
      products.push_back(names.matrix(phase.matrix));
  w.line("static constexpr wide::Layouts layouts = wide::layoutsOf<{}>();", fmt::join(products, ", "));
  w.line("using Kind = wide::KindOfAll<{}>::Of; // of codes", fmt::join(products, ", "));
  w.line("__device__ __forceinline__ static const char *stream() {{ return Cta::params().models[{}].stream; }}",
         names.number);
  {
    auto fn = w.scope("__device__ __forceinline__ static wide::Operand operand(int number, int layer)");
    w.line("const Buffers b{Cta::params().flagged};");
    for (auto [i, place] : llvm::enumerate(operands)) {
      const std::string rows = placeExpr(place);
      const bool last = i + 1 == operands.size();
      w.line("{}return wide::operandOf({});", last ? "" : fmt::format("if (number == {}) ", i), rows);
    }
  }
  const plan::Phase &attention =
      *llvm::find_if(body().repeated, [](const plan::Phase &phase) { return phase.kind == plan::Phase::Attention; });
  w.line("static constexpr float scale = {};", floatLiteral(attention.op->get<ir::attr::scale>()));
  w.line("__device__ __forceinline__ static const abi::ModelParams &model() {{ return Cta::params().models[{}]; }}",
         names.number);
  w.line("__device__ __forceinline__ static int runs() { return pass().runs; }");
  w.line("__device__ __forceinline__ static const PassRun &run(int i) { return pass().byRuns.run[i]; }");
  for (const auto &[member, place] : {std::pair("queries", planned.placeOf.at(attention.op->operands[0].id)),
                                      std::pair("attended", planned.placeOf.at(attention.op->result().id))})
    w.line("__device__ __forceinline__ static char *{}(int layer) {{ return "
           "Buffers{{Cta::params().flagged}}.{}.image.base; "
           "}}",
           member, names.rows(planned, place));
  w.line("__device__ __forceinline__ static char *parts() {{ return Cta::params().flagged + {}ll + ctaAgain() * "
         "wide::AttendShape<{}>::partBytes; }}",
         planned.wide.partsOffset, names.kv());
  {
    auto fn = w.scope("__device__ __forceinline__ static void row(int number, int layer, int row)");
    if (!body().before.empty()) {
      auto first = w.scope(fmt::format("if (number == {} && layer == 0)", hasOwnBegin(body()) ? -1 : 0));
      for (const plan::Phase &phase : body().before) {
        w.line("{}(layer, row);", names.phases.at(&phase));
        w.line("__syncwarp();");
      }
    }
    for (auto [number, phase] : llvm::enumerate(body().repeated))
      if (isRowWork(phase))
        w.line("if (number == {}) return {}(layer, row);", number, names.phases.at(&phase));
    if (planned.kvInE4m3) {
      w.line("const Buffers b{Cta::params().flagged};");
      w.line("if (number == {}) wide::codeRow<{}>(Cta::params(), Cta::pass(), layer, row, {}, {});", kCodeKv,
             names.kv(), placeExpr({planned.newKeys, plan::Place::Layer}),
             placeExpr({planned.newValues, plan::Place::Layer}));
    }
  }
  w.line("template <class Fn>");
  auto fn = w.scope("__device__ __forceinline__ static void end(int number, int layer, int pair, Fn fn)");
  for (auto [number, phase] : llvm::enumerate(body().repeated)) {
    if (phase.kind != plan::Phase::Stream)
      continue;
    const plan::Matrix &m = planned.matrices[phase.matrix];
    auto step = w.scope(fmt::format("if (number == {})", number), m.name);
    for (const plan::PairRange &r : m.ranges)
      w.line("{}if (pair < {}) fn({}{{layer}});", &r == &m.ranges.front() ? "" : "else ", r.pairBegin + r.pairs,
             endName(phase, r));
  }
}

void TensorEmitter::runWide() {
  wide = true;
  emitPool();
  emitWideBuffers();
  w.line();
  {
    const auto matrices = w.space("matrices");
    for (const plan::Phase &phase : body().repeated)
      if (phase.kind == plan::Phase::Stream)
        emitMatrix(planned.matrices[phase.matrix], names.matrices[phase.matrix]);
  }
  for (const std::vector<plan::Phase> *phases : {&body().before, &body().repeated}) {
    inLayers = phases == &body().repeated;
    for (const plan::Phase &phase : *phases)
      if (isRowWork(phase))
        emitRowWork(phase, names.phases.at(&phase));
      else if (phase.kind == plan::Phase::Stream)
        for (const plan::PairRange &r : planned.matrices[phase.matrix].ranges)
          emitEnd(phase, r, endName(phase, r));
  }
  std::vector<plan::Place> operands;
  emitWideSteps(operands);
  emitWideModel(operands);
}

/// What functions of a wide pass find in the CTA.
static void emitCta(CodeWriter &w, const plan::ModelPlan &planned) {
  w.line();
  w.comment("What the functions below find in the CTA.");
  auto s = w.record("struct Cta");
  w.line("__device__ __forceinline__ static const abi::LaunchParams &params() { return sharedOfCta().params; }");
  w.line("__device__ __forceinline__ static const PassShared &pass() { return sharedOfCta().pass; }");
  w.line("__device__ __forceinline__ static wide::Shared shared() { return sharedOfCta().wide(); }");
  w.line("__device__ __forceinline__ static int rows() { return shared().pass.rows; }");
  w.line("__device__ __forceinline__ static void await(const u32 *counter, u32 least) {{ "
         "awaitCount(sharedOfCta().grid, {}, counter, least); }}",
         planned.wide.edge);
}

void emitWideParts(CodeWriter &w, const plan::Plan &plan, const Names &names) {
  const plan::ModelPlan &planned = plan.models[names.number];
  const plan::Segment &body = planned.segments[0];
  const int64_t begin = hasOwnBegin(body);
  w.line();
  w.comment("Passes that run whole (WidePass.cuh). The roles' functions stand in a unit of their own.");
  auto s = w.record("struct Wide");
  std::vector<std::string> parts;
  const auto kindOf = [](const WideStep &step) {
    return isRowWork(step) ? "OnRows" : step.phase->kind == plan::Phase::Attention ? "Attention" : "Product";
  };
  const std::vector<WideStep> steps = wideSteps(planned);
  if (begin)
    parts.push_back("{wide::Work::OnRows, 0, 1}");
  for (size_t i = 0; i < steps.size();) {
    const size_t first = i;
    const llvm::StringRef kind = kindOf(steps[i]);
    while (i < steps.size() && kindOf(steps[i]) == kind)
      ++i;
    parts.push_back(fmt::format("{{wide::Work::{}, {}, {}}}", kind, first + begin, i + begin));
  }
  w.line("static constexpr int layers = {}, stepsOfLast = {};", body.repeatCount,
         planned.wide.stepsOfLast + begin + planned.kvInE4m3);
  w.line("static constexpr wide::Part parts[] = {{{}}};", fmt::join(parts, ", "));
  const auto role = [&](const char *name, const char *parameters, const char *arguments, const char *function) {
    w.line("__device__ __forceinline__ static void {}({}) {{ {}({}); }}", name, parameters,
           wideFunction(names, function), arguments);
  };
#define WIDE_ROLE(Name, Function, Parameters, Arguments, Attends) role(#Name, Parameters, Arguments, Function);
#include "WideRoles.def"
}

void emitWideDeclarations(CodeWriter &w, const Names &names) {
#define WIDE_ROLE(Name, Function, Parameters, Arguments, Attends)                                                      \
  w.line("extern \"C\" __device__ void {}({});", wideFunction(names, Function), Parameters);
#include "WideRoles.def"
}

void emitWideModelUnit(CodeWriter &w, const ir::Module &module, const plan::Plan &plan, const Names &names,
                       const SourceFiles &files, const EmitOptions &options) {
  const plan::ModelPlan &planned = plan.models[names.number];
  {
    const auto space = w.space("wideUnit" + std::string(names.space.empty() ? "" : "::" + names.space));
    emitCta(w, planned);
    w.line();
    TensorEmitter(w, module, plan, names, files, options).runWide();
  }
  w.line();
  w.comment("The roles.");
  const std::string model = "wideUnit::" + names.outside("Wide"), pool = "wideUnit::" + names.outside(names.kv());
#define WIDE_ROLE(Name, Function, Parameters, Arguments, Attends)                                                      \
  w.line("extern \"C\" __device__ void {}({}) {{ wide::{}<{}{}>({}); }}", wideFunction(names, Function), Parameters,   \
         #Name, model, Attends ? ", " + pool : "", Arguments);
#include "WideRoles.def"
}

} // namespace megalith::emit
