#include "Tensor.h"
#include "Vectors.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include <set>

namespace megalith::emit {

using ir::Op;
using ir::Operation;
using ir::Region;
using ir::Type;
using ir::Value;

namespace {

class TensorEmitter {
public:
  TensorEmitter(CodeWriter &w, const ir::Module &module, const plan::Plan &plan, const SourceFiles &files,
                const EmitOptions &options)
      : w(w), module(module), plan(plan), files(files), options(options),
        model(*module.all(Op::Model)[0]), weights(weightIndices(model)), types(matrixTypes(module, plan)),
        functions(phaseFunctions(plan)) {}

  void run() {
    emitPool();
    emitBuffers();
    for (size_t i = 0; i < plan.matrices.size(); ++i)
      emitMatrix(plan.matrices[i], types[i]);
    emitPassStruct();
    for (const plan::Segment &s : plan.segments)
      emitSegment(s);
  }

private:
  CodeWriter &w;
  const ir::Module &module;
  const plan::Plan &plan;
  const SourceFiles &files;
  const EmitOptions &options;
  const Operation &model;
  std::map<std::string, int> weights;
  std::vector<std::string> types; ///< of the matrices
  std::map<const plan::Phase *, std::string> functions;
  bool inLayers = false;

  /// The next line is the user's: blame what follows on it.
  void at(SourceLoc loc) {
    if (options.lineDirectives && loc)
      w.sourceLine(loc.line, files.name(loc.file));
  }
  void ours() {
    if (options.lineDirectives)
      w.resumeLines();
  }
  std::string place(SourceLoc loc) const {
    if (!loc)
      return "";
    return fmt::format(" ({}:{})", files.name(loc.file).rsplit('/').second.empty()
                                       ? files.name(loc.file).str()
                                       : files.name(loc.file).rsplit('/').second.str(),
                       loc.line);
  }

  void emitPool() {
    w.comment("The KV pool of the model, and the shape of its attention.");
    auto s = w.record(fmt::format("struct {}Kv", typeName(plan.model)));
    const Operation *pool = module.find(Op::Pool, plan.model);
    int64_t heads = model.getInt("kv_heads");
    ir::walk(model.region(), [&](const Operation &op) {
      if (op.op == Op::Attention)
        heads = op.getInt("heads");
    });
    w.line("static constexpr int heads = {}, kvHeads = {}, headDim = {};", heads, model.getInt("kv_heads"),
           model.getInt("head_dim"));
    w.line("static constexpr int layers = {}, pages = {}, pageTokens = {};", model.getInt("kv_layers"),
           pool ? pool->getInt("pages") : 0, pool ? pool->getInt("page_tokens") : 1);
    w.line("static constexpr int rows = {};", plan.rowsPerPass);
    w.line("static constexpr long long sums = {};", plan.sumsOffset);
  }

  void emitBuffers() {
    w.line();
    w.comment("Activations of a pass: for each row a record, in which every value has a place of its own.");
    auto s = w.record("struct Buffers");
    w.line("static constexpr long long rowBytes = {}, setBytes = {};", plan.rowBytes, plan.setBytes);
    w.line("template <int Columns> using Bf16 = Bf16Rows<{}, Columns, rowBytes>;", plan.knobs.words ? "ByWords" : "ByBarrier");
    w.line("template <int Columns> using Float = FloatRows<{}, Columns, rowBytes>;", plan.knobs.words ? "ByWords" : "ByBarrier");
    w.line("char *set;");
    w.line("const GridEdges *grid;");
    w.line();
    for (const plan::Buffer &b : plan.buffers)
      w.line("__device__ __forceinline__ auto {}(int instance) const {{ return {}<{}>{{set + {} + instance * {}, {{grid, {}}}}}; }}",
             identifier(b.name), b.dtype == ir::Scalar::F32 ? "Float" : "Bf16", b.columns, b.offset, b.bytes, b.edge);
  }

  void emitMatrix(const plan::Matrix &m, const std::string &type) {
    w.line();
    std::string what;
    for (const plan::PairRange &r : m.ranges)
      what += (what.empty() ? "" : ", ") + r.weight + (r.second.empty() ? "" : " with " + r.second);
    int64_t rounds = (m.groups + plan.ctas - 1) / plan.ctas;
    w.comment(fmt::format("{}{}: {} groups of {} tiles in {} rounds of {} CTAs.", what, place(m.loc), m.groups,
                          m.group, rounds, plan.ctas));
    auto s = w.record("struct " + type);
    w.line("static constexpr int k = {}, kPadded = {}, blocks = {}, chunkBlocks = {};", m.k, m.kPadded, m.blocks,
           m.chunkBlocks);
    w.line("static constexpr int group = {}, groups = {}, firstCta = {};", m.group, m.groups, m.firstCta);
    w.line("static constexpr bool descending = {};", plan.knobs.descending);
    w.line("static constexpr long long offset = {}, layerBytes = {};", m.offset, m.bytes);
  }

  void emitPassStruct() {
    w.line();
    w.line("using WeightRing = Ring<{}, {}, {}>;", plan.stages, plan.stageBytes, plan.knobs.flight);
    w.line("using Stream = Consumer<WeightRing, {}>;", plan.operandBytes);
    w.line();
    w.comment("What a consumer thread carries through a pass.");
    auto s = w.record("struct PassContext");
    w.line("const abi::LaunchParams &p;");
    w.line("PassShared &pass;");
    w.line("Stream &stream;");
    w.line("GridEdges &grid;");
  }

  /// Phases first, each a function of its own: ptxas then gives each the registers
  /// it needs; in one body the largest would spill for all.
  void emitSegment(const plan::Segment &segment) {
    const std::string name = identifier(plan.model) + typeName(segment.name);
    for (const plan::Phase &phase : segment.before)
      emitPhase(phase, false);
    for (const plan::Phase &phase : segment.repeated)
      emitPhase(phase, true);
    for (const plan::Phase &phase : segment.after)
      emitPhase(phase, false);
    w.line();
    w.comment(fmt::format("Segment `{}` of model `{}`. Tiles: row tiles of 16 that this variant handles. False "
                          "when the kernel stops.",
                          segment.name, plan.model));
    w.line("template <int Tiles>");
    auto fn = w.scope(fmt::format("__device__ __noinline__ bool {}(PassContext &context)", name), name);
    emitCalls(segment.before, false);
    if (segment.repeatCount) {
      auto loop = w.scope(fmt::format("for (int layer = 0; layer < {}; ++layer)", segment.repeatCount), "layer");
      emitCalls(segment.repeated, true);
    }
    emitCalls(segment.after, false);
    w.line("return true;");
  }

  void emitCalls(const std::vector<plan::Phase> &phases, bool layers) {
    for (const plan::Phase &phase : phases) {
      const std::string stamp = stampIndex(plan, phase);
      if (!stamp.empty())
        w.line("stampBegin(context.grid, {});", stamp);
      w.line("{}{}(context{});", functions.at(&phase), phase.kind == plan::Phase::Stream ? "<Tiles>" : "",
             layers ? ", layer" : "");
      if (!stamp.empty())
        w.line("stampEnd(context.grid, {});", stamp);
      if (plan.edges[phase.edge].lowering != plan::Edge::Barrier)
        continue; // who reads the words waits for them
      w.line("if (!gridEdge(context.grid, {}))", phase.edge);
      w.line("  return false;");
    }
  }

  void emitPhase(const plan::Phase &phase, bool layers) {
    inLayers = layers;
    const std::string &name = functions.at(&phase);
    w.line();
    emitPhaseComment(phase);
    if (phase.kind == plan::Phase::Stream)
      w.line("template <int Tiles>");
    auto fn = w.scope(fmt::format("__device__ __noinline__ void {}(PassContext &context{})", name,
                                  layers ? ", int layer" : ""),
                      name);
    w.line("const abi::LaunchParams &p = context.p;");
    w.line("PassShared &pass = *inShared(&context.pass);");
    w.line("const Buffers b{p.workspace + pass.set * Buffers::setBytes, &context.grid};");
    w.line("const int numRows = pass.numRows;");
    std::set<int64_t> ropes;
    if (phase.op)
      for (const Region &region : phase.op->regions)
        ir::walk(region, [&](const Operation &op) {
          if (op.op == Op::RopeCos || op.op == Op::RopeSin)
            ropes.insert(op.getInt("dim"));
        });
    for (int64_t dim : ropes)
      w.line("const Rope<{0}> rope{0}{{p.ropeCosSin}};", dim);
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
    }
  }

  void emitPhaseComment(const plan::Phase &phase) {
    switch (phase.kind) {
    case plan::Phase::Stream: {
      std::string outputs;
      for (Value v : phase.op->results)
        if (auto it = plan.placeOf.find(v.id); it != plan.placeOf.end())
          outputs += (outputs.empty() ? "" : ", ") + plan.buffers[it->second.buffer].name;
      w.comment(fmt::format("Streams {}{}{}.", phase.name, place(phase.op->loc),
                            outputs.empty() ? "" : " into " + outputs));
      break;
    }
    case plan::Phase::Map:
      w.comment(fmt::format("{}{}: row by row.", phase.name, place(phase.op->loc)));
      break;
    case plan::Phase::Attention:
      w.comment(fmt::format("Attention{}: {} heads over {} KV heads.", place(phase.op->loc),
                            phase.op->getInt("heads"), phase.op->getInt("kv_heads")));
      break;
    case plan::Phase::Copy:
      w.comment(fmt::format("{} moves to where the layers keep it.", plan.buffers[phase.from.buffer].name));
      break;
    }
  }

  void emitCopy(const plan::Phase &phase) {
    const plan::Buffer &from = plan.buffers[phase.from.buffer];
    auto rows = w.lambda("spreadRows(numRows, 1, [&](int row, int)");
    auto loop = w.scope(fmt::format("for (int c = laneId() * 8; c < {}; c += 256)", from.columns));
    w.line("{}.store8(row, c, {}.load8(row, c));", placeExpr(plan, phase.to), placeExpr(plan, phase.from));
  }

  void emitAttention(const plan::Phase &phase) {
    const Operation &op = *phase.op;
    const std::string layer = inLayers ? "layer" : "0";
    const plan::Place::Instance instance = inLayers ? plan::Place::Layer : plan::Place::First;
    w.line("const auto own = ownRows({}, {});", placeExpr(plan, {plan.newKeys, instance}),
           placeExpr(plan, {plan.newValues, instance}));
    w.line("const auto query = {};", placeExpr(plan, plan.placeOf.at(op.operands[0].id)));
    w.line("const auto out = {};", placeExpr(plan, plan.placeOf.at(op.result().id)));
    at(op.loc); // of each line: directives count on from the last one
    w.line("attend<{}Kv>(context.grid, {}, pass, {}, {}, context.stream, own, query,", typeName(plan.model), phase.edge, layer,
           floatLiteral(op.getFloat("scale")));
    at(op.loc);
    w.line("    [&](int row, int c, Floats<2> v) { out.storePair(row, c, c + 1, v); });");
    ours();
  }

  // --- groups ---------------------------------------------------------------

  /// Weights that a group reads beside its products.
  void declareWeights(const Group &group) {
    std::set<std::string> done;
    for (const Operation &op : group.region.ops) {
      if ((op.op != Op::WeightGet && op.op != Op::Embed) || !done.insert(op.name).second)
        continue;
      const Operation *weight = nullptr;
      for (const Operation &decl : model.region().ops)
        if (decl.op == Op::Weight && decl.name == op.name)
          weight = &decl;
      std::string index = std::to_string(weights.at(op.name));
      if (weight->getInt("layers"))
        index += " + layer";
      auto shape = weight->getInts("shape");
      w.line("const {}<{}> {}{{weightAt(p, {})}};", op.op == Op::Embed ? "WeightRows" : "WeightVector",
             op.op == Op::Embed ? shape[1] : shape[0], identifier(op.name), index);
    }
  }

  void declarePosition(const std::vector<const Operation *> &slice) {
    for (const Operation *op : slice)
      if (op->op == Op::RopeCos || op->op == Op::RopeSin) {
        w.line("const int position = pass.rows[row].position;");
        return;
      }
  }

  std::function<void(SourceLoc)> marker() {
    return [this](SourceLoc loc) { at(loc); };
  }

  static bool isReduction(Op op) { return op == Op::ReduceSum || op == Op::ReduceMax; }

  /// One reduction of columns [0, n) of a row (or of block `part` of a row) by a warp.
  void emitReduction(const Group &group, const Operation &op, int64_t columns, const std::string &name,
                     const std::map<uint32_t, std::string> &scalars, bool block) {
    int64_t blockColumns = columns / op.getInt("groups", 1);
    at(op.loc);
    auto sum = w.lambda(fmt::format("const float {} = {}<{}>([&](int {})", name,
                                    op.op != Op::ReduceSum                ? "warpMax"
                                    : op.getString("tree") == "parts8" ? "rowSum"
                                                                       : "warpSum",
                                    blockColumns,
                                    block ? "inBlock" : "c"));
    if (block)
      w.line("const int c = part * {} + inBlock;", blockColumns);
    declarePartner(group.slice(op.operands[0]));
    Vectors vectors(w, group, Vectors::Eight, columns, marker());
    for (auto &[id, expr] : scalars)
      vectors.bind(Value{id}, expr);
    std::string value = vectors.eval(op.operands[0]);
    w.line("return {};", value);
  }

  // --- stream ---------------------------------------------------------------

  void emitStream(const plan::Phase &phase) {
    const Operation &op = *phase.op;
    const plan::Matrix &m = plan.matrices[phase.matrix];
    Group group(module, plan, op.region());
    declareWeights(group);
    Value value = group.def(m.ranges[0].product)->operands[0];
    auto slice = group.slice(value);
    const Value source = sourceOf(group, value, slice, m);
    w.line("auto operand = operandOf<{}, Tiles>(context.stream, pass, {});", types[phase.matrix],
           source ? placeExpr(plan, plan.placeOf.at(source.id)) : "NoSource{}");
    auto scalars = emitReductions(group, slice, source, m);
    emitSinkDeclarations(group);
    {
      auto lambda = w.record("const auto finish = [&](int row, int c, Words4 words) -> Words4");
      if (value == source) {
        w.line("return keepBelow<{}>(words, c);", m.k);
      } else {
        declarePosition(slice);
        declarePartner(slice);
        Vectors vectors(w, group, Vectors::Eight, m.k, marker());
        if (source)
          vectors.bind(source, "unpack8(words)");
        for (auto &[id, expr] : scalars)
          vectors.bind(Value{id}, expr);
        std::string result = vectors.eval(value);
        w.line("return keepBelow<{}>(pack8({}), c);", m.k, result);
        ours();
      }
    }
    emitEpilogue(group, phase, m);
    w.line("streamProduct<{}>(operand, finish, early, epilogue);", scalars.empty() ? "false" : "true");
    emitBest(group);
  }

  /// The one bf16 buffer that an operand is computed from, read at the operand's columns.
  /// None when there are several, or at other columns, too.
  Value sourceOf(const Group &group, Value value, const std::vector<const Operation *> &slice, const plan::Matrix &m) {
    std::set<uint32_t> sources;
    auto add = [&](Value v) {
      if (auto it = plan.placeOf.find(v.id);
          it != plan.placeOf.end() && !group.def(v) && plan.buffers[it->second.buffer].columns == m.k)
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
    return plan.buffers[plan.placeOf.at(source.id).buffer].dtype == ir::Scalar::BF16 ? source : Value();
  }

  /// Per-row values that the operand needs: each CTA reduces its rows for itself.
  std::map<uint32_t, std::string> emitReductions(const Group &group, const std::vector<const Operation *> &slice,
                                                 Value source, const plan::Matrix &m) {
    std::map<uint32_t, std::string> reduced;
    for (const Operation *op : slice) {
      if (!isReduction(op->op))
        continue;
      if (reduced.empty())
        w.line("operand.begin();");
      const int64_t columns = module.type(op->operands[0]).size;
      at(op->loc);
      {
        auto terms = w.lambda(fmt::format("operand.template reduce<{}, {}>({}, [&](int row, int c, Words4 words)",
                                          op->op == Op::ReduceMax, columns, reduced.size()));
        const auto inner = group.slice(op->operands[0]);
        declarePosition(inner);
        declarePartner(inner);
        Vectors vectors(w, group, Vectors::Eight, columns, marker());
        if (source && columns == m.k)
          vectors.bind(source, "unpack8(words)");
        for (auto &[id, expr] : reduced)
          vectors.bind(Value{id}, expr);
        std::string value = vectors.eval(op->operands[0]);
        w.line("return {};", value);
      }
      ours();
      assert(reduced.size() < 4 && "PassShared keeps four scalars per row");
      reduced[op->result().id] = fmt::format("pass.scalars[{}][row]", reduced.size());
    }
    return reduced;
  }

  void declarePartner(const std::vector<const Operation *> &slice) {
    for (const Operation *op : slice)
      if (op->op == Op::RotateHalf) {
        w.line("const int partner = partnerColumn<{}>(c);", op->getInt("dim"));
        return;
      }
  }

  /// A value that leaves the group, and how it is stored.
  struct Sink {
    Value value;
    std::string store; ///< prefix such as `b.q` or `keys`
    bool best = false;
    SourceLoc loc;
  };

  std::vector<Sink> sinks(const Group &group, const Operation &op) {
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

  void emitSinkDeclarations(const Group &group) {
    for (const Operation &inner : group.region.ops) {
      if (inner.op == Op::KvAppend) {
        std::string layer = inLayers ? "layer" : "0", kv = typeName(plan.model) + "Kv";
        for (auto [name, cache] : {std::pair("keys", "kCache"), std::pair("values", "vCache")})
          w.line("const KvRows<{0}> {1}{{reinterpret_cast<u16 *>(p.{2}) + kvLayer<{0}>({3}), &pass}};", kv, name,
                 cache, layer);
      }
      if (inner.op == Op::ArgMax)
        w.line("Best best[Tiles];");
    }
  }

  /// The sinks that take the products of a range.
  std::vector<Sink> sinksOf(const Group &group, const std::vector<Sink> &all, const plan::PairRange &r) {
    std::vector<Sink> mine;
    for (const Sink &sink : all)
      if (sink.value == r.product || llvm::any_of(group.slice(sink.value), [&](const Operation *op) {
            return llvm::is_contained(op->results, r.product);
          }))
        mine.push_back(sink);
    return mine;
  }

  /// Opens the code of a range, with the columns that the thread holds.
  CodeWriter::Scope emitRange(const plan::PairRange &r) {
    // Whole tiles: the four lanes of a row store together, padding too.
    const int64_t end = r.pairBegin + (r.pairs + 3) / 4 * 4;
    std::string head = r.pairBegin ? fmt::format("if (pair >= {} && pair < {})", r.pairBegin, end)
                                   : fmt::format("if (pair < {})", end);
    auto range = w.scope(head, r.weight + (r.second.empty() ? "" : ", " + r.second));
    std::string local = r.pairBegin ? fmt::format("(pair - {})", r.pairBegin) : "pair";
    switch (r.pairing) {
    case plan::Pairing::Adjacent:
      w.line("const int c0 = 2 * {}, c1 = c0 + 1;", local);
      break;
    case plan::Pairing::Half:
      w.line("const int c0 = {0} / {1} * {2} + {0} % {1}, c1 = c0 + {1};", local, r.dim / 2, r.dim);
      break;
    case plan::Pairing::Dual:
      w.line("const int c0 = {};", local);
      break;
    }
    return range;
  }

  /// A value that an epilogue loads: before the products, into words[at] or values[at].
  struct Early {
    Value value;
    bool words;
    size_t at;
  };
  std::vector<Early> earlyOf(const Group &group, const std::vector<Sink> &mine, const plan::PairRange &r) {
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
          if (auto it = plan.placeOf.find(v.id); it != plan.placeOf.end() && !group.def(v) && r.columns > 1 &&
                                                 plan.buffers[it->second.buffer].columns == r.columns)
            add(v, true);
      }
    }
    return found;
  }

  void emitEpilogue(const Group &group, const plan::Phase &phase, const plan::Matrix &m) {
    const auto all = sinks(group, *phase.op);
    std::vector<std::vector<Sink>> mine;
    std::vector<std::vector<Early>> early;
    size_t words = 0, values = 0;
    for (const plan::PairRange &r : m.ranges) {
      mine.push_back(sinksOf(group, all, r));
      early.push_back(earlyOf(group, mine.back(), r));
      for (const Early &e : early.back())
        (e.words ? words : values) = std::max(e.words ? words : values, e.at + 1);
    }
    const auto widthOf = [](const plan::PairRange &r) {
      return r.pairing == plan::Pairing::Dual ? Vectors::One : Vectors::Pair;
    };
    const auto columnsOf = [](const plan::PairRange &r) {
      return std::string(r.pairing == plan::Pairing::Dual ? "c0" : "c0, c1");
    };

    if (words + values == 0) {
      w.line("const auto early = [](int, int) { return Nothing{}; };");
    } else {
      auto lambda = w.record("const auto early = [&](int row, int pair)");
      w.line("Beside<{}, {}> beside = {{}};", words, values);
      for (auto [r, list] : llvm::zip(m.ranges, early)) {
        if (list.empty())
          continue;
        auto range = emitRange(r);
        std::vector<const Operation *> ops;
        for (const Early &e : list)
          if (const Operation *op = group.def(e.value))
            ops.push_back(op);
        declarePosition(ops);
        for (const Early &e : list)
          if (e.words) {
            w.line("beside.words[{}] = {}.peek{}(row, {});", e.at, placeExpr(plan, plan.placeOf.at(e.value.id)),
                   r.pairing == plan::Pairing::Dual ? "One" : "Pair", columnsOf(r));
          } else {
            Vectors vectors(w, group, widthOf(r), r.columns, marker());
            const std::string value = vectors.expression(e.value);
            w.line("beside.values[{}]{} = {};", e.at, r.pairing == plan::Pairing::Dual ? ".v[0]" : "",
                   value + (r.pairing == plan::Pairing::Dual ? ".v[0]" : ""));
          }
      }
      w.line("return beside;");
    }

    auto lambda = w.record(fmt::format("const auto epilogue = [&](int tile, int row, int pair, float y0, float y1, {})",
                                       words + values ? fmt::format("const Beside<{}, {}> &beside", words, values)
                                                      : std::string("Nothing")));
    for (auto [r, sinks, list] : llvm::zip(m.ranges, mine, early)) {
      auto range = emitRange(r);
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
                                                    placeExpr(plan, plan.placeOf.at(e.value.id)), one ? "One" : "Pair",
                                                    columnsOf(r), e.at)
                              : one   ? fmt::format("Floats<1>{{{{beside.values[{}].v[0]}}}}", e.at)
                                      : fmt::format("beside.values[{}]", e.at));
      }
      for (const Sink &sink : sinks) {
        std::string value = vectors.eval(sink.value);
        at(sink.loc);
        if (sink.best)
          emitTake(value, r);
        else if (widthOf(r) == Vectors::Pair)
          w.line("{}.storePair(row, c0, c1, {});", sink.store, value);
        else
          w.line("{}.storeOne(row, c0, {});", sink.store, value);
      }
      ours();
    }
  }

  /// The argmax over the logits, and the rows of logits when they are wanted.
  void emitTake(const std::string &value, const plan::PairRange &r) {
    w.line("const auto logit = {};", value);
    ours();
    std::optional<CodeWriter::Scope> tail;
    if (r.pairs % 4) // the last tile is not full
      tail.emplace(w.scope(fmt::format("if (c0 < {})", r.columns)));
    w.line("best[tile].take(logit.v[0], c0);");
    std::string second = r.columns % 2 ? fmt::format("if (c1 < {})", r.columns) : "";
    if (!second.empty()) {
      auto guard = w.scope(second);
      w.line("best[tile].take(logit.v[1], c1);");
    } else {
      w.line("best[tile].take(logit.v[1], c1);");
    }
    w.line("storeLogits(p, pass.logitsOf[row], c0, logit, {});", r.columns);
  }

  void emitBest(const Group &group) {
    if (llvm::none_of(group.region.ops, [](const Operation &op) { return op.op == Op::ArgMax; }))
      return;
    w.line("publishBest<Tiles>(best, p, pass, context.stream.scratch,");
    w.line("                   reinterpret_cast<Words4 *>(p.tagged + {}));", plan.bestOffset);
  }

  // --- map --------------------------------------------------------------------

  void emitMap(const plan::Phase &phase) {
    const Operation &op = *phase.op;
    Group group(module, plan, op.region());
    declareWeights(group);
    emitSinkDeclarations(group);
    for (const Sink &sink : sinks(group, op))
      emitMapChain(group, sink);
  }

  /// One stored value: a warp for each row, or for each block of its columns that
  /// is reduced on its own.
  void emitMapChain(const Group &group, const Sink &sink) {
    auto slice = group.slice(sink.value);
    int64_t columns = module.type(sink.value).size, parts = 1;
    for (const Operation *op : slice)
      if (isReduction(op->op))
        parts = std::max(parts, op->getInt("groups", 1));
    auto rows = w.lambda(fmt::format("spreadRows(numRows, {}, [&](int row, int part)", parts));
    declarePosition(slice);
    std::map<uint32_t, std::string> scalars;
    // Reductions, and the scalars that follow from them or from stored ones, in order.
    Vectors scalarValues(w, group, Vectors::Scalar, parts, marker());
    auto isScalar = [&](Value v) {
      const Type &t = module.type(v);
      const Operation *def = group.def(v);
      return scalars.count(v.id) || isConst(group, v) ||
             (!def && t.kind == Type::Rows && (t.size == parts || t.size == 1));
    };
    for (const Operation *op : slice) {
      if (op->results.empty())
        continue;
      Value r = op->result();
      if (isReduction(op->op)) {
        std::string name = module.hint(r).empty() ? "sum" : identifier(module.hint(r));
        name += scalars.empty() ? "" : std::to_string(scalars.size() + 1);
        emitReduction(group, *op, module.type(op->operands[0]).size, name, scalars, parts > 1);
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
    auto loop = w.scope(parts > 1 ? fmt::format("for (int c = part * {0} + laneId() * 8; c < (part + 1) * {0}; c += 256)", block)
                                  : fmt::format("for (int c = laneId() * 8; c < {}; c += 256)", columns));
    declarePartner(slice);
    Vectors vectors(w, group, Vectors::Eight, columns, marker());
    for (auto &[id, expr] : scalars)
      vectors.bind(Value{id}, expr);
    std::string value = vectors.eval(sink.value);
    at(sink.loc);
    w.line("{}.store8(row, c, {});", sink.store, value);
    ours();
  }

  bool isConst(const Group &group, Value v) {
    const Operation *op = group.def(v);
    return op && op->op == Op::Const;
  }
};

} // namespace

void emitTensor(CodeWriter &w, const ir::Module &module, const plan::Plan &plan, const SourceFiles &files,
                const EmitOptions &options) {
  TensorEmitter(w, module, plan, files, options).run();
}

static void emitWeightRow(CodeWriter &w, const Operation &model, const std::map<std::string, int> &index,
                          const std::string &weight, const std::string &row, int64_t rows, int64_t k) {
  bool layered = false;
  for (const Operation &op : model.region().ops)
    if (op.op == Op::Weight && op.name == weight)
      layered = op.getInt("layers") != 0;
  w.line("return {0} < {1} ? weightAt(p, {2}{3}) + (long long)({0}) * {4} : nullptr;", row, rows, index.at(weight),
         layered ? " + layer" : "", k);
}

void emitPack(CodeWriter &w, const ir::Module &module, const plan::Plan &plan) {
  const Operation &model = *module.all(Op::Model)[0];
  auto index = weightIndices(model);
  w.comment("Lays the weights out as the kernel streams them. Packed rows 2j and 2j+1 are the two output "
            "columns that one thread receives together.");
  auto fn = w.scope("extern \"C\" __global__ void __launch_bounds__(256)\n"
                    "megalith_pack(const __grid_constant__ abi::LaunchParams p, char *stream)",
                    "megalith_pack");
  const auto types = matrixTypes(module, plan);
  for (size_t i = 0; i < plan.matrices.size(); ++i) {
    const plan::Matrix &m = plan.matrices[i];
    const std::string &type = types[i];
    auto loop = w.scope(fmt::format("for (int layer = 0; layer < {}; ++layer)", std::max<int64_t>(1, m.layers)));
    auto lambda = w.lambda(fmt::format("packMatrix<{0}>(stream + {0}::offset + layer * {0}::layerBytes, "
                                       "[&](int packedRow) -> const u16 *",
                                       type));
    w.line("const int pair = packedRow / 2, odd = packedRow % 2;");
    for (const plan::PairRange &r : m.ranges) {
      auto range = w.scope(fmt::format("if (pair >= {} && pair < {})", r.pairBegin, r.pairBegin + r.pairs), r.weight);
      w.line("const int j = pair - {};", r.pairBegin);
      switch (r.pairing) {
      case plan::Pairing::Adjacent:
        emitWeightRow(w, model, index, r.weight, "2 * j + odd", r.columns, m.k);
        break;
      case plan::Pairing::Half:
        w.line("const int row = j / {0} * {1} + j % {0} + odd * {0};", r.dim / 2, r.dim);
        emitWeightRow(w, model, index, r.weight, "row", r.columns, m.k);
        break;
      case plan::Pairing::Dual: {
        {
          auto second = w.scope("if (odd)");
          emitWeightRow(w, model, index, r.second, "j", r.columns, m.k);
        }
        emitWeightRow(w, model, index, r.weight, "j", r.columns, m.k);
        break;
      }
      }
    }
    w.line("return nullptr;");
  }
}

void emitProducer(CodeWriter &w, const ir::Module &module, const plan::Plan &plan) {
  const auto types = matrixTypes(module, plan);
  for (const plan::Segment &segment : plan.segments) {
    if (&segment != &plan.segments.front())
      w.line();
    std::string name = "stream" + typeName(segment.name);
    auto fn = w.scope(fmt::format("__device__ __noinline__ bool {}(const abi::LaunchParams &p, const PassShared &pass, Producer<WeightRing> &home)", name),
                      name);
    auto phases = [&](const std::vector<plan::Phase> &list, bool inLayers) {
      for (const plan::Phase &phase : list)
        if (phase.kind == plan::Phase::Attention) {
          w.line("if (!streamKv<{}Kv>(producer, p, pass, {}))", typeName(plan.model), inLayers ? "layer" : "0");
          w.line("  return false;");
        } else if (phase.matrix >= 0) {
          const std::string &type = types[phase.matrix];
          std::string layer = plan.matrices[phase.matrix].layers ? fmt::format(" + layer * {}::layerBytes", type) : "";
          w.line("if (!streamWeights<{0}>(producer, p.stream + {0}::offset{1}))", type, layer);
          w.line("  return false;");
        }
    };
    w.line("Producer<WeightRing> producer = home; // in registers meanwhile");
    {
      auto lambda = w.record("const auto stream = [&]");
      phases(segment.before, false);
      if (segment.repeatCount) {
        auto loop = w.scope(fmt::format("for (int layer = 0; layer < {}; ++layer)", segment.repeatCount), "layer");
        phases(segment.repeated, true);
      }
      phases(segment.after, false);
      w.line("return true;");
    }
    w.line("const bool whole = stream();");
    w.line("home = producer;");
    w.line("return whole;");
  }
}

} // namespace megalith::emit
