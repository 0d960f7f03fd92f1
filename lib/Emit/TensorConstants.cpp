//===- TensorConstants.cpp - structs of constants, and shared memory ------===//
#include "TensorEmitter.h"
#include "device/Shape.h"
#include <set>

namespace megalith::emit {

using ir::Op;
using ir::Operation;
namespace attr = ir::attr;

void emitKvPlaces(CodeWriter &w, const std::string &pool, const ir::Module &module, const Operation &model,
                  const char *memory) {
  std::vector<int64_t> places = {0};
  for (const WeightFormat format : ir::kvFormats(module, model))
    places.push_back(places.back() + (format == WeightFormat::Bf16 ? 2 : 1));
  w.comment(
      "Where each layer begins in the pool, and where the last one ends, in layers of codes: one of bf16 is two.");
  w.line("{} int {}Places[] = {{{}}};", memory, pool, fmt::join(places, ", "));
}

void emitKvPlace(CodeWriter &w, const std::string &pool) {
  w.line("__device__ static int place(int layer) {{ return {}Places[layer]; }}", pool);
}

void TensorEmitter::emitPool() {
  w.comment("The KV pool of the model, and the shape of its attention.");
  const auto pools = w.space("pools");
  std::vector<int64_t> windows;
  double cap = 0;
  ir::walk(model.region(), [&](const Operation &op) {
    if (op.op != Op::Attention)
      return;
    windows = op.get<attr::window>();
    cap = op.get<attr::cap>();
  });
  constexpr int64_t none = INT32_MAX;
  for (int64_t &window : windows)
    window = window ? window : none;
  const bool windowed = llvm::any_of(windows, [](int64_t window) { return window != none; });
  const bool byLayer = windowed && !llvm::all_equal(windows);
  if (byLayer) {
    w.comment(fmt::format("Positions that a row sees in each layer; {}: all.", none));
    w.line("__constant__ int {}Windows[] = {{{}}};", names.pool, fmt::join(windows, ", "));
  }
  if (planned.bf16Layers)
    emitKvPlaces(w, names.pool, module, model, "__constant__");
  auto s = w.record("struct " + names.pool);
  const Operation *pool = module.find(Op::Pool, planned.name);
  // Of a model without attention the numbers mean nothing, but code that plans passes divides by them.
  const int64_t kvHeads = std::max<int64_t>(1, model.get<attr::kv_heads>()),
                headDim = std::max<int64_t>(16, model.get<attr::head_dim>());
  int64_t heads = kvHeads;
  ir::walk(model.region(), [&](const Operation &op) {
    if (op.op == Op::Attention)
      heads = op.get<attr::heads>();
  });
  w.line("static constexpr int model = {}; // its number in LaunchParams::models", names.number);
  w.line("static constexpr int heads = {}, kvHeads = {}, headDim = {};", heads, kvHeads, headDim);
  w.line("static constexpr int layers = {}, pages = {}, pageTokens = {};", model.get<attr::kv_layers>(),
         pool ? pool->get<attr::pages>() : 0, pool ? pool->get<attr::page_tokens>() : 1);
  if (const int64_t spare = pool ? plan::sparePages(module, *pool) : 0)
    w.line("static constexpr int sparePages = {}; // after these, for rows of pages that others may read", spare);
  if (planned.kvInE4m3)
    w.line("static constexpr bool e4m3 = true; // keys and values");
  if (planned.bf16Layers)
    emitKvPlace(w, names.pool);
  if (windowed) {
    w.line("static constexpr int mostWindow = {}; // positions that a row sees in a layer, at most",
           *llvm::max_element(windows));
    w.line("__device__ static int window(int layer) {{ return {}; }}",
           byLayer ? names.pool + "Windows[layer]" : std::to_string(windows[0]));
  }
  if (cap > 0)
    w.line("static constexpr float softCap = {}; // of scores", floatLiteral(cap));
  w.line("static constexpr int rows = {};", plan.rowsAtOnce);
  if (plan.asksMore) {
    w.line("static constexpr bool trees = true; // rows of a slot need not be a chain");
    w.line("static constexpr long long paths = {}; // in the flagged words", shape::pathsBegin());
    w.line("static constexpr int pathPlaces = {}; // of rows of earlier calls of a run, at most", planned.pathPlaces);
  }
  w.line("static constexpr long long sums = {};", planned.attention.offset);
  w.line("static constexpr int wideUnits = {}, wideLevels = {}; // of attention of many rows of a slot",
         planned.wideAttention.units, planned.wideLevels);
  const plan::DeviceProfile::WideTiles &cost = headDim > 64 ? plan.profile.longHeads : plan.profile.shortHeads;
  w.line(
      "static constexpr int wideRound = {}, wideUnit = {}, wideParts = {}; // times of it, as planRanges counts them",
      cost.round, cost.unit, cost.parts);
  if (planned.wideAttention.units)
    w.line("static constexpr long long wideSums = {};", planned.wideAttention.offset);
  if (planned.wideAttention.units && plan.knobs.wide > 1)
    w.line("static constexpr bool alwaysWide = true; // --plan wide=2");
}

void TensorEmitter::emitBuffers() {
  w.line();
  w.comment("Activations of a pass: for each row a record, in which every value has a place of its own.");
  const char *const edges = plan.knobs.words ? "ByWords" : "ByBarrier";
  {
    auto s = w.record("struct Workspace");
    w.line("static constexpr long long rowBytes = {}, narrowBytes = {}, setBytes = {};", planned.records.rowBytes,
           planned.records.narrowBytes, planned.records.setBytes);
    if (plan.wideRows && plan.knobs.words)
      w.line("static constexpr int wideBegin = {}, wideEnd = {}; // of a record, what passes of more than {} rows "
             "write there",
             planned.records.wideBegin, planned.records.wideEnd, int(shape::kTileRows));
    w.line("char *set;");
    w.line("const GridEdges *grid;");
    w.line();
    for (auto [name, rows] : {std::pair("bf16", "Bf16Rows"), std::pair("f32", "FloatRows")}) {
      w.line("template <int Columns> __device__ __forceinline__ auto {}(long long at, long long instance, int edge) "
             "const {{",
             name);
      w.line("  return {}<{}, Columns, rowBytes>{{set + at + instance, {{grid, edge}}}};", rows, edges);
      w.line("}");
    }
  }
  auto s = w.record("struct Buffers : Workspace");
  for (size_t i = 0; i < planned.buffers.size(); ++i) {
    const plan::Buffer &b = planned.buffers[i];
    w.line(
        "__device__ __forceinline__ auto {}(int instance) const {{ return Workspace::{}<{}>({}, instance * {}, {}); }}",
        names.buffers[i], b.dtype == ir::Scalar::F32 ? "f32" : "bf16", b.columns, b.offset, b.bytes, b.edge);
  }
}

void TensorEmitter::emitMatrix(const plan::Matrix &m, const std::string &name) {
  w.line();
  std::string what;
  for (const plan::PairRange &r : m.ranges)
    what += (what.empty() ? "" : ", ") + r.weight + (r.second.empty() ? "" : " with " + r.second);
  const int64_t ctas = plan.ctas - m.firstCta, rounds = (m.groups + ctas - 1) / ctas;
  w.comment(fmt::format("{}{}: {} groups of {} tiles in {} rounds of {} CTAs.", what, place(m.loc), m.groups, m.group,
                        rounds, ctas));
  auto s = w.record("struct " + name);
  w.line("static constexpr int k = {}, kPadded = {}, blocks = {}, chunkBlocks = {};", m.k, m.kPadded, m.blocks,
         m.chunkBlocks);
  w.line("static constexpr int group = {}, groups = {}, firstCta = {}, ctas = {};", m.group, m.groups, m.firstCta,
         ctas);
  if (m.format != WeightFormat::Bf16) {
    w.line("static constexpr Codes codes = Codes::{};", m.format == WeightFormat::E4m3 ? "E4m3" : "Unsigned");
    w.line("static constexpr Coding coding = {{.bits = {}, .scaleBlocks = {}, .scalesOfTile = {}, .zeros = {}}};",
           m.coding.bits, m.coding.scaleBlocks, m.coding.scalesOfTile, m.coding.zeros);
    w.line("static constexpr int pieceBlocks = {}; // of columns that a scale is for", m.pieceBlocks);
  }
  if (m.ordered)
    w.line("static constexpr long long order = {}; // of its columns, in a layer", m.orderOffset());
  w.line("static constexpr bool descending = {};", plan.knobs.descending);
  if (m.unitParts)
    w.line("static constexpr int unitParts = {}, firstUnitCta = {}; // of more than {} rows", m.unitParts,
           m.firstUnitCta, int(shape::kTileRows));
  if (m.unitParts == 1) {
    w.line("static constexpr int partsEdge = {};", m.partsEdge);
    w.line("static constexpr long long parts = {}, partsDone = {};", m.partsOffset, m.partsDone);
  }
  w.line("static constexpr long long offset = {}, layerBytes = {};", m.offset, m.bytes);
}

void TensorEmitter::emitPlaces() {
  w.comment("Edges that the resident loop waits at, and places in the flagged words: the logits' maxima, and a counter "
            "for each "
            "operand that passes of many rows have as an image.");
  w.line("struct Edges {{ static constexpr int best = {}; }};", planned.results[0].edge);
  if (planned.reducing.any) {
    const std::string ofResult =
        planned.results.size() > 1 ? fmt::format(", ofResult = {}", shape::bestBytes(plan.rowsAtOnce, plan.ctas)) : "";
    w.line("struct Flagged {{ static constexpr long long best = {}, drawn = {}{}; }};", planned.bestOffset,
           planned.reducing.drawnOffset, ofResult);
    w.line("using Kept = KeptLogits<{}, {}, {}>; // that queries read",
           planned.reducing.numberBytes == 2 ? "unsigned short" : "float", model.get<attr::vocab>(), plan.kept.vocab);
  } else {
    w.line("struct Flagged {{ static constexpr long long best = {}; }};", planned.bestOffset);
  }
  if (!plan.wideRows)
    return;
  auto s = w.record("struct Counters");
  for (size_t i = 0; i < planned.buffers.size(); ++i)
    if (const plan::Buffer &b = planned.buffers[i]; b.windows)
      w.line("static constexpr long long {} = {};", names.buffers[i], b.counterOffset);
}

void emitShared(CodeWriter &w, const ir::Module &module, const plan::Plan &plan) {
  const std::string few = fmt::format(", {}", plan.ring.fewLentStages),
                    wideLent = plan.wideRows
                                   ? fmt::format("{}, {}, {}, {}{}", few, plan.ring.stepLentStages,
                                                 plan.ring.wideLentStages, plan.ring.lentRows,
                                                 plan.ring.tall()
                                                     ? fmt::format(", {}, {}", plan.wide(), plan.ring.tallLentStages)
                                                 : plan.wide() ? ", true"
                                                               : "")
                               : plan.ring.fewLentStages < plan.ring.lentStages ? few
                                                                                : "",
                    wideRows = plan.wideRows ? fmt::format(", {}", plan.wideRows) : "";
  w.line("using WeightRing = Ring<{}, {}, {}, {}{}>;", plan.ring.stages, plan.ring.stageBytes, plan.ring.flight,
         plan.ring.lentStages, wideLent);
  w.line("using Stream = Consumer<WeightRing, {}{}>;", plan.shared.scratchBytes, wideRows);
  w.line();
  w.comment("What the control unit must take for true, too (Units.cuh).");
  {
    auto record = w.record("struct Facts");
    w.line("static constexpr int controlBegin = {}; // byte of shared memory at which its state stands",
           plan.shared.controlBegin());
    w.line("static constexpr int rowsPerPass = {};", plan.rowsAtOnce);
    emitModelFacts(w, module);
    if (plan.wide())
      w.line("static constexpr bool wide = true; // unread rows of a large pass may run as a wide one");
    if (plan.asksMore)
      w.line("static constexpr bool asksMore = true; // than the best token of each row of a chain");
    if (plan.results() > 1)
      w.line("static constexpr int results = {}; // of a model, that calls read", plan.results());
  }
  w.line();
  w.comment("Shared memory of a CTA. The control unit's state comes after it.");
  {
    auto record = w.record("struct Shared");
    w.line("abi::LaunchParams params; // here paramsOfCta() finds them");
    const auto emitRing = [&] {
      w.line("alignas(128) float scratch[{}]; // lent stages go on where it ends", plan.shared.scratchBytes / 4);
      w.line("alignas(128) char ring[WeightRing::stages * WeightRing::stageBytes];");
    };
    if (!plan.wide())
      emitRing();
    w.line("{} pass;", plan.asksMore ? "TreePass" : "PassShared");
    w.line("RingShared sync;");
    w.line("GridEdges grid;");
    const std::string draws = plan.reduces() ? fmt::format("PassDraws<Facts::rowsPerPass{}> draws;",
                                                           plan.results() > 1 ? ", Facts::results" : "")
                                             : "";
    if (!plan.wide() && plan.reduces())
      w.line(draws);
    w.line("StreamPlace places[kConsumerWarps]; // of the warps, between two phases");
    if (plan.wide()) {
      w.line("wide::Sync wideSync; // of passes that run whole");
      w.line("// From here on passes that run whole have their own: no other pass needs again what stands here.");
      if (plan.reduces())
        w.line("alignas(128) " + draws);
      emitRing();
    }
    w.line();
    if (plan.wide())
      w.line("__device__ __forceinline__ wide::Shared wide() {{ return wide::sharedFrom(this, {}, wideSync, pass); }}",
             plan.reduces() ? "&draws" : "scratch");
    w.line("__device__ __forceinline__ Stream stream() { return {ring, &sync, scratch, &places[warpId()]}; }");
  }
  w.line("static_assert(sizeof(Shared) <= Facts::controlBegin, \"the plan reserves this much\");");
  if (plan.wide())
    w.line("static_assert(wide::endFrom(sizeof(Shared) - sizeof(Shared::scratch) - sizeof(Shared::ring){}) <= "
           "Facts::controlBegin);",
           plan.reduces() ? " - sizeof(Shared::draws)" : "");
  w.line("__device__ __forceinline__ Shared &sharedOfCta() { return *reinterpret_cast<Shared *>(dynamicShared()); }");
}

void TensorEmitter::emitImages() {
  if (plan.wideRows) {
    w.line();
    w.comment(fmt::format("Operands of products in passes of more than {} rows, in the flagged words.",
                          int(shape::kTileRows)));
    {
      auto s = w.record("struct FlaggedWords");
      w.line("char *flagged;");
      w.line("int numRows; // of the pass");
      w.line();
      w.line("template <int Columns> __device__ __forceinline__ auto image(long long at, long long instance) const {");
      w.line("  return OperandImage<Columns, Stream>(flagged + at + instance, numRows);");
      w.line("}");
    }
    auto images = w.record("struct Images : FlaggedWords");
    for (size_t i = 0; i < planned.buffers.size(); ++i)
      if (const plan::Buffer &b = planned.buffers[i]; b.windows)
        w.line(
            "__device__ __forceinline__ auto {}(int instance) const {{ return FlaggedWords::image<{}>({}, instance * "
            "{}ll); }}",
            names.buffers[i], b.columns, b.imageOffset, b.imageBytes);
  }
}

} // namespace megalith::emit
