//===- Planner.cpp - phases, matrices, places and edges of a model --------===//
//
// Goes through a model's operations and makes a phase of each: which matrix it streams, where its
// values stand, which edge is after it. Layout.cpp gives everything its place in memory.
//===----------------------------------------------------------------------===//
#include "Layout.h"
#include "megalith/IR/Calls.h"
#include "llvm/ADT/STLExtras.h"
#include <numeric>
#include <set>

namespace megalith::plan {

using ir::Op;
using ir::Operation;
namespace attr = ir::attr;
using ir::Region;
using ir::Scalar;
using ir::Value;

int64_t Matrix::sets() const { return setsOf(groups); }
int64_t Matrix::units() const { return unitParts ? unitsOf(groups, unitParts) : 0; }
int64_t Matrix::chunkBytes() const { return shape::chunkBytes(group, chunkBlocks, coding); }
int64_t Matrix::orderOffset() const { return bytes - orderBytes(k); }

namespace {

/// Plans one model: its phases, matrices and edges.
class Planner {
public:
  Planner(const ir::Module &module, Plan &plan, ModelPlan &planned, Diagnostics &diags)
      : module(module), plan(plan), planned(planned), diags(diags) {}

  bool run(const Operation &model) {
    planned.name = model.name;
    const std::vector<WeightFormat> formats = ir::kvFormats(module, model);
    planned.kvInE4m3 = llvm::is_contained(formats, WeightFormat::E4m3);
    planned.bf16Layers = planned.kvInE4m3 ? llvm::count(formats, WeightFormat::Bf16) : 0;
    if (!checkOperands(model))
      return false;
    for (const Operation &segment : model.region().ops)
      if (segment.op == Op::Segment)
        if (!planSegment(segment, model))
          return false;
    if (planned.segments.size() > 2)
      return unsupported(*planned.segments[2].op, fmt::format("{} segments; 2 at most", planned.segments.size()));
    if (!planResults(model) || !planReducers(model))
      return false;
    spareControl();
    return true;
  }

  /// An edge is flags in data when only maxima cross it: CTA 0 alone reads these, and
  /// the next pass begins after that. Edges of parts come after those of all models.
  void lowerEdges() {
    for (Matrix &m : planned.matrices)
      if (m.unitParts == 1) {
        m.partsEdge = newEdge("parts of " + m.name, m.loc);
        plan.edges[m.partsEdge].lowering = Edge::Count;
      }
    planned.segments.back().forEach([&](const Phase &phase, bool) {
      if (phase.result >= 0 &&
          llvm::none_of(phase.op->results, [&](Value v) { return planned.placeOf.count(v.id) != 0; }))
        plan.edges[phase.edge].lowering = Edge::Flagged;
    });
  }

  /// Offsets in a row's record are ints. (Before, 64 bits: columns and layers have limits.)
  void checkRecords() {
    if (planned.records.rowBytes > INT32_MAX)
      diags.report(
          Diag::PlanUnsupported, place(planned.segments[0]),
          fmt::format("{} bytes of activations for each row; {} at most", planned.records.rowBytes, INT32_MAX));
  }

private:
  const ir::Module &module;
  Plan &plan;
  ModelPlan &planned;
  Diagnostics &diags;
  int64_t nextFirstUnit = 0;
  std::vector<Value> forwarded; ///< body's yields, in order, for the head's arguments

  /// The phases that find the best of each result, and where that crosses.
  bool planResults(const Operation &model) {
    planned.results.push_back({"logits", static_cast<int>(plan.edges.size()) - 1});
    for (const std::string &name : model.get<attr::results>())
      planned.results.push_back({name, planned.results[0].edge});
    Segment &last = planned.segments.back();
    const llvm::ArrayRef<Value> yielded = last.op->region().ops.back().operands;
    for (std::vector<Phase> *phases : {&last.before, &last.repeated, &last.after})
      for (Phase &phase : *phases) {
        if (phase.kind != Phase::Stream)
          continue;
        const auto best = [](const Operation &op) { return op.op == Op::ArgMax; };
        if (llvm::count_if(phase.op->region().ops, best) > 1)
          return unsupported(*phase.op, "two results that come from one product");
        if (llvm::none_of(phase.op->region().ops, best))
          continue;
        phase.result = 0;
        for (size_t i = 1; i < yielded.size(); ++i)
          if (llvm::is_contained(phase.op->results, yielded[i]))
            phase.result = i;
        planned.results[phase.result].edge = phase.edge;
      }
    return true;
  }

  /// What more is asked of a row than its best token: of each model that can answer, if of one.
  bool planReducers(const Operation &model) {
    const Operation *first = firstReducer(module, model.name);
    if (first && planned.segments.size() < 2)
      return unsupported(*first, "a model without a head of its own");
    if (first && plan.ctas > kSelectionBins)
      return unsupported(*first,
                         fmt::format("{} CTAs; {} at most where logits are reduced", plan.ctas, kSelectionBins));
    if (!plan.asksMore || planned.segments.size() < 2 || plan.ctas > kSelectionBins)
      return true;
    planned.reducing.any = first != nullptr;
    ir::walk(model.region(), [&](const Operation &op) {
      if (op.op != Op::ArgMax)
        return;
      planned.reducing.any = true;
      planned.reducing.numberBytes = module.type(op.operands[0]).elem == Scalar::BF16 ? 2 : 4;
    });
    return true;
  }

  bool unsupported(const Operation &op, std::string what) {
    diags.report(Diag::PlanUnsupported, op.loc, what);
    return false;
  }

  /// Tensor cores and the pool take bf16. Lowering rounds; edited IR may not.
  bool checkOperands(const Operation &model) {
    const Operation *wrong = nullptr;
    ir::walk(model.region(), [&](const Operation &op) {
      const unsigned operands = op.op == Op::KvAppend ? 2 : op.op == Op::MatMul || op.op == Op::Attention ? 1 : 0;
      for (unsigned i = 0; i < operands; ++i)
        if (!wrong && module.type(op.operands[i]).elem != Scalar::BF16)
          wrong = &op;
    });
    return !wrong || unsupported(*wrong, fmt::format("`{}` of rows that are not bf16; `round` them",
                                                     ir::mnemonic(wrong->op).str()));
  }

  const Operation *weight(const Operation &model, llvm::StringRef name) {
    for (const Operation &op : model.region().ops)
      if (op.op == Op::Weight && op.name == name)
        return &op;
    return nullptr;
  }

  /// All uses of `v` are `round`: it may be stored rounded.
  bool onlyRounded(Value v) {
    bool only = true;
    ir::walk(module.root.region(), [&](const Operation &op) {
      if (llvm::is_contained(op.operands, v) && op.op != Op::Round)
        only = false;
    });
    return only;
  }

  /// `base`, with a number when a buffer has that name.
  std::string bufferName(const std::string &base) {
    std::string name = base;
    for (int n = 2; llvm::any_of(planned.buffers, [&](const Buffer &other) { return other.name == name; }); ++n)
      name = base + std::to_string(n);
    return name;
  }

  /// How `v` is kept: rounded when nobody reads more of it.
  Scalar storedAs(Value v) {
    const Scalar elem = module.type(v).elem;
    return elem == Scalar::F32 && onlyRounded(v) ? Scalar::BF16 : elem;
  }

  int newBuffer(const std::string &name, Scalar dtype, int64_t columns, int64_t instances) {
    Buffer b;
    b.name = bufferName(name);
    b.dtype = dtype;
    b.columns = columns;
    b.stride = roundUp(columns, 8);
    b.instances = instances;
    planned.buffers.push_back(b);
    return planned.buffers.size() - 1;
  }

  /// A place for `v`, in a buffer named after it, else after the phase that writes it.
  Place newPlace(Value v, const std::string &phase) {
    const std::string name = module.hint(v).empty() ? phase : module.hint(v).str();
    return {newBuffer(name, storedAs(v), module.type(v).size, std::max<int64_t>(1, layerCount)),
            layerCount ? Place::Layer : Place::First};
  }

  int newEdge(std::string name, SourceLoc loc) {
    plan.edges.push_back({std::move(name), loc});
    return plan.edges.size() - 1;
  }

  int64_t layerCount = 0;           ///< of the `repeat` that is being planned; 0 outside
  std::map<uint32_t, int> handedOn; ///< values that a layer hands to the next one: their buffers

  bool planOps(const Region &region, const Operation &model, int64_t layers, std::vector<Phase> &phases,
               Segment *segment) {
    for (const Operation &op : region.ops) {
      switch (op.op) {
      case Op::Yield:
        break;
      case Op::WeightGet:
      case Op::Const:
        return unsupported(op, fmt::format("`{}` outside a fused group", ir::mnemonic(op.op).str()));
      case Op::Repeat: {
        if (!segment || segment->repeatCount)
          return unsupported(op, "more than one `repeat`, or a nested one");
        segment->repeatCount = op.get<attr::count>();
        if (!planRepeat(op, model, *segment))
          return false;
        break;
      }
      case Op::Stream:
      case Op::Map:
      case Op::Attention: {
        // After the repeat, phases go to `after`.
        std::vector<Phase> &target = segment && segment->repeatCount ? segment->after : phases;
        if (!planPhase(op, model, layers, target))
          return false;
        break;
      }
      default:
        return unsupported(
            op, fmt::format("`{}` outside a fused group; run the fusion passes first", ir::mnemonic(op.op).str()));
      }
    }
    return true;
  }

  /// Whether a stream computes its operand, beyond rounding what is kept rounded.
  bool makesOperand(const Operation &op) {
    const auto definition = [&](Value v) {
      return llvm::find_if(op.region().ops,
                           [&](const Operation &inner) { return llvm::is_contained(inner.results, v); });
    };
    const auto product = llvm::find_if(op.region().ops, [](const Operation &inner) { return inner.op == Op::MatMul; });
    const auto made = definition(product->operands[0]), none = op.region().ops.end();
    if (made == none || made->op != Op::Round || definition(made->operands[0]) != none)
      return made != none;
    return planned.buffers[planned.placeOf.at(made->operands[0].id).buffer].dtype != Scalar::BF16;
  }

  /// What a stream that does not make its operand takes as such.
  static Value takenBy(const Operation &op) {
    const auto product = llvm::find_if(op.region().ops, [](const Operation &inner) { return inner.op == Op::MatMul; });
    const Value operand = product->operands[0];
    for (const Operation &inner : op.region().ops)
      if (llvm::is_contained(inner.results, operand))
        return inner.operands[0]; // rounded
    return operand;
  }
  /// Whether nobody reads `v` but products, as it is and in its order, in the region that makes it: what goes from
  /// region to region shares its buffer with other values.
  bool onlyMultiplied(Value v, const Operation &model) {
    bool only = false;
    ir::walk(module.root.region(), [&](const Operation &op) {
      only |= llvm::is_contained(op.results, v) && (op.op == Op::Stream || op.op == Op::Map || op.op == Op::Attention);
    });
    std::set<uint32_t> rounded;
    ir::walk(module.root.region(), [&](const Operation &op) {
      for (auto [number, operand] : llvm::enumerate(op.operands)) {
        if (operand == v && op.op == Op::Round)
          rounded.insert(op.result().id);
        else if (operand == v || rounded.count(operand.id))
          only &= op.op == Op::Stream ||
                  (op.op == Op::MatMul && number == 0 && !ir::schemeOf(ir::storageOf(model, op.name)).ordered);
      }
    });
    return only;
  }

  /// The phase in front of a stream that makes its operand, once for all CTAs.
  Phase operandPhase(const Phase &stream) {
    Phase phase{Phase::Operand, stream.name + " operand"};
    phase.op = stream.op;
    phase.matrix = stream.matrix;
    phase.edge = newEdge(phase.name, stream.op->loc);
    const int64_t columns = planned.matrices[stream.matrix].k;
    phase.to = operandBuffer(stream.name + "_operand", columns, phase.edge);
    planned.buffers[phase.to.buffer].windows = plan.rowsAtOnce > kTileRows && !planned.matrices[stream.matrix].ordered;
    return phase;
  }
  /// The phase between that, or whoever else makes the operand, and the stream: it puts the operand in order.
  Phase orderPhase(const Phase &stream, Place from) {
    Phase phase{Phase::Order, stream.name + " order"};
    phase.matrix = stream.matrix;
    phase.edge = newEdge(phase.name, stream.op->loc);
    phase.from = from;
    phase.to = operandBuffer(stream.name + "_in_order", planned.matrices[stream.matrix].k, phase.edge);
    planned.buffers[phase.to.buffer].windows = plan.rowsAtOnce > kTileRows;
    return phase;
  }
  /// What passes of several rows alone write.
  Place operandBuffer(const std::string &name, int64_t columns, int edge) {
    const Place place = {newBuffer(name, Scalar::BF16, columns, std::max<int64_t>(1, layerCount)),
                         layerCount ? Place::Layer : Place::First};
    planned.buffers[place.buffer].edge = edge;
    planned.buffers[place.buffer].several = true;
    return place;
  }

  /// Of one of the segment's phases.
  static SourceLoc place(const Segment &segment) {
    SourceLoc loc;
    segment.forEach([&](const Phase &phase, bool) {
      if (phase.op && !loc)
        loc = phase.op->loc;
    });
    return loc;
  }

  /// What goes through a row is unrolled, and counts its columns in ints.
  bool checkColumns(const Operation &op, int64_t columns) {
    return columns <= limits::columns ||
           unsupported(op, fmt::format("rows of {} columns; {} at most", columns, limits::columns));
  }

  bool planPhase(const Operation &op, const Operation &model, int64_t layers, std::vector<Phase> &phases) {
    Phase phase;
    phase.op = &op;
    for (Value v : op.results) {
      if (module.type(v).kind == ir::Type::ScalarKind)
        return unsupported(op, "a number that one group hands to another");
      if (!checkColumns(op, module.type(v).size))
        return false;
    }
    if (op.op == Op::Stream) {
      phase.kind = Phase::Stream;
      if (!planMatrix(op, model, layers, phase) || !checkReductions(op) || !checkRotations(op))
        return false;
      phase.name = planned.matrices[phase.matrix].name;
      const bool wide = plan.rowsAtOnce > kTileRows, makes = makesOperand(op);
      const bool ordered = planned.matrices[phase.matrix].ordered;
      if (makes || (wide && !ordered && !onlyMultiplied(takenBy(op), model))) {
        phases.push_back(operandPhase(phase));
        phase.operand = phases.back().to;
      }
      if (ordered) {
        phases.push_back(orderPhase(phase, makes ? *phase.operand : planned.placeOf.at(takenBy(op).id)));
        phase.operand = phases.back().to;
      } else if (wide && !phase.operand) {
        planned.buffers[planned.placeOf.at(takenBy(op).id).buffer].windows = true;
      }
    } else {
      if (op.op == Op::Map && (!checkMap(op) || !checkRotations(op)))
        return false;
      phase.kind = op.op == Op::Map ? Phase::Map : Phase::Attention;
      Value first = op.results.empty() ? Value() : op.results[0];
      phase.name = first && !module.hint(first).empty() ? module.hint(first).str()
                   : op.op == Op::Map                   ? "map"
                                                        : "attention";
    }
    if (op.op == Op::Attention && !phases.empty() && phases.back().kind == Phase::Map &&
        isMadeByAttention(planned, module, *phases.back().op, op))
      leaveToAttention(phases.back(), phase);
    phase.edge = newEdge(phase.name, op.loc);
    for (auto [number, result] : llvm::enumerate(op.results)) {
      const ir::Type &type = module.type(result);
      if (type.kind == ir::Type::Kv || type.elem == Scalar::Token)
        continue;
      auto carried = handedOn.find(result.id);
      Place place = carried != handedOn.end() ? Place{carried->second, Place::Next} : newPlace(result, phase.name);
      // One lane stores one value of a block: a bf16 alone is no word.
      if (plan.knobs.words && op.op == Op::Map && type.size == blocksOf(op, op.region().ops.back().operands[number]))
        planned.buffers[place.buffer].dtype = Scalar::F32;
      planned.buffers[place.buffer].edge = phase.edge;
      planned.placeOf[result.id] = place;
    }
    if (op.op != Op::Attention)
      for (const Operation &inner : op.region().ops)
        if (inner.op == Op::KvAppend && !planAppended(inner, phase.edge))
          return false;
    phases.push_back(std::move(phase));
    return true;
  }

  void leaveToAttention(Phase &map, Phase &attention) {
    map.several = true;
    attention.makes = map.op;
    for (Value v : map.op->results)
      if (auto place = planned.placeOf.find(v.id); place != planned.placeOf.end())
        planned.buffers[place->second.buffer].several = true;
    planned.buffers[planned.newKeys].several = planned.buffers[planned.newValues].several = true;
  }

  /// The blocks of columns that are reduced, each on its own, for a value of `op`'s region.
  static int64_t blocksOf(const Operation &op, Value yielded) {
    int64_t blocks = 1;
    std::set<uint32_t> needed = {yielded.id};
    for (const Operation &inner : llvm::reverse(op.region().ops)) {
      if (!llvm::any_of(inner.results, [&](Value v) { return needed.count(v.id) != 0; }))
        continue;
      for (Value v : inner.operands)
        needed.insert(v.id);
      if (inner.op == Op::ReduceSum || inner.op == Op::ReduceMax)
        blocks = std::max(blocks, inner.get<attr::groups>());
    }
    return blocks;
  }

  /// K and V of the pass's own rows reach its attention in buffers, too: what stands in the
  /// pool becomes visible with the next tick.
  bool planAppended(const Operation &append, int edge) {
    if (planned.newKeys >= 0)
      return unsupported(append, "two appends to one KV pool");
    const int64_t columns = module.type(append.operands[0]).size, instances = std::max<int64_t>(1, layerCount);
    planned.newKeys = newBuffer("new_keys", Scalar::BF16, columns, instances);
    planned.newValues = newBuffer("new_values", Scalar::BF16, columns, instances);
    planned.buffers[planned.newKeys].edge = planned.buffers[planned.newValues].edge = edge;
    return true;
  }

  /// A thread keeps so many results of a row.
  bool checkReductions(const Operation &op) {
    int reductions = 0;
    for (const Operation &inner : op.region().ops)
      if ((inner.op == Op::ReduceSum || inner.op == Op::ReduceMax) && ++reductions > kRowScalars)
        return unsupported(inner, fmt::format("more than {} norms or reductions in front of one product", kRowScalars));
    return true;
  }

  bool checkRotations(const Operation &op) {
    const Operation *rotation = rotationOfScattered(module, op);
    return !rotation ||
           unsupported(*rotation,
                       fmt::format("a rotation of {} of the {} values of a head after a norm of whole rows; a multiple "
                                   "of 16 of them",
                                   rotation->get<attr::turned>(), rotation->get<attr::dim>()));
  }

  /// Maps store eight columns at a time, and keep no best logit.
  bool checkMap(const Operation &op) {
    for (const Operation &inner : op.region().ops) {
      if (inner.op == Op::ArgMax)
        return unsupported(inner, "an `argmax` over logits that come from two products or from none");
      if (inner.op != Op::ReduceSum && inner.op != Op::ReduceMax)
        continue;
      const int64_t groups = inner.get<attr::groups>();
      if (groups > 1 && module.type(inner.operands[0]).size / groups % 8)
        return unsupported(inner,
                           fmt::format("a norm or reduction over blocks of {} columns; blocks must be multiples of 8",
                                       module.type(inner.operands[0]).size / groups));
    }
    return true;
  }

  bool planRepeat(const Operation &op, const Operation &model, Segment &segment) {
    const Region &body = op.region();
    const Operation &yield = body.ops.back();
    const int64_t count = op.get<attr::count>();
    std::set<int> carried;
    const auto copy = [&](std::vector<Phase> &phases, Place from, Place to) {
      Phase phase{Phase::Copy, "copy " + planned.buffers[from.buffer].name};
      phase.from = from;
      phase.to = to;
      phase.edge = newEdge(phase.name, op.loc);
      planned.buffers[to.buffer].edge = phase.edge;
      phases.push_back(std::move(phase));
    };
    for (auto [init, arg, yielded] : llvm::zip(op.operands, body.args, yield.operands)) {
      // The first instance is the initial value's; a value that starts two goes on in a copy.
      Place place = planned.placeOf.at(init.id);
      if (place.instance != Place::First || !carried.insert(place.buffer).second) {
        const Place from = place;
        place = {newBuffer("carried", planned.buffers[from.buffer].dtype, module.type(arg).size, 1), Place::First};
        copy(segment.before, from, place);
        carried.insert(place.buffer);
      }
      Buffer &buffer = planned.buffers[place.buffer];
      buffer.instances = count + 1;
      if (storedAs(arg) == Scalar::F32 || storedAs(yielded) == Scalar::F32)
        buffer.dtype = Scalar::F32;
      planned.placeOf[arg.id] = {place.buffer, Place::Layer};
    }
    for (auto [yielded, arg] : llvm::zip(yield.operands, body.args))
      if (!llvm::is_contained(body.args, yielded))
        handedOn.insert({yielded.id, planned.placeOf.at(arg.id).buffer});
    layerCount = count;
    if (!planOps(body, model, count, segment.repeated, nullptr))
      return false;
    layerCount = 0;
    for (auto [yielded, arg] : llvm::zip(yield.operands, body.args)) {
      const Place from = planned.placeOf.at(yielded.id), to = {planned.placeOf.at(arg.id).buffer, Place::Next};
      if (from.buffer != to.buffer || from.instance != to.instance)
        copy(segment.repeated, from, to);
    }
    for (auto [result, arg] : llvm::zip(op.results, body.args))
      planned.placeOf[result.id] = {planned.placeOf.at(arg.id).buffer, Place::Last};
    return true;
  }

  bool planMatrix(const Operation &op, const Operation &model, int64_t layers, Phase &phase) {
    Matrix m;
    m.loc = op.loc;
    m.layers = 0;
    m.k = 0;
    int64_t pairs = 0;
    std::set<size_t> done; // the second product of a dual range
    std::vector<const Operation *> products;
    for (const Operation &inner : op.region().ops)
      if (inner.op == Op::MatMul)
        products.push_back(&inner);
    for (auto [number, product] : llvm::enumerate(products)) {
      const Operation *w = weight(model, product->name);
      if (!w)
        return unsupported(*product, fmt::format("unknown weight `{}`", product->name));
      if (!takeScheme(*product, ir::storageOf(model, product->name), number == 0, m))
        return false;
      auto shape = w->get<attr::shape>();
      m.k = shape[1];
      if (!checkColumns(*product, m.k))
        return false;
      if (w->get<attr::layers>())
        m.layers = layers;
      m.name += (m.name.empty() ? "" : "_") + product->name;
      if (done.count(number))
        continue;
      PairRange range;
      range.weight = product->name;
      range.product = product->result();
      range.columns = shape[0];
      range.dim = product->get<attr::dim>();
      range.turned = product->get<attr::turned>() ? product->get<attr::turned>() : range.dim;
      range.pairBegin = pairs;
      range.pairing = product->get<attr::pair>();
      if (range.pairing == Pairing::Half) {
        range.pairs = shape[0] / 2;
      } else if (range.pairing == Pairing::Dual) {
        const Operation *second = products.at(product->get<attr::partner>());
        range.second = second->name;
        range.secondProduct = second->result();
        range.pairs = shape[0];
        done.insert(product->get<attr::partner>());
      } else {
        range.pairs = (shape[0] + 1) / 2;
      }
      pairs += roundUp(range.pairs, kPairsOfTile);
      m.ranges.push_back(range);
    }
    m.kPadded = paddedColumns(m.k);
    m.blocks = m.kPadded / kColumnsOfWarps;
    int64_t tiles = pairs / kPairsOfTile, best = INT64_MAX;
    // The group that leaves the slowest CTA the least work; among equals the larger.
    for (int64_t group = kMostTiles; group >= 1; --group) {
      int64_t work = ((tiles + group - 1) / group + plan.ctas - 1) / plan.ctas * group;
      if (work < best) {
        best = work;
        m.group = group;
      }
    }
    m.groups = (tiles + m.group - 1) / m.group;
    m.chunkBlocks = 1;
    while (m.chunkBlocks < (m.format == WeightFormat::Bf16 ? kMostChunkBlocks : kMostCodeBlocks) &&
           2 * kConsumerWarps * codeBytes(m.group, m.chunkBlocks, m.coding) <= plan.knobs.chunk &&
           m.blocks % (m.chunkBlocks * 2) == 0)
      m.chunkBlocks *= 2;
    if (m.coding.scalesOfTile || m.coding.zeros)
      m.coding.scaleBlocks = static_cast<int>(m.pieceBlocks ? std::gcd(m.pieceBlocks, m.chunkBlocks) : m.chunkBlocks);
    if (m.coding.scalesOfTile)
      m.coding.scalesOfTile = scalesOfTile(m, model);
    m.bytes = matrixBytes(m.groups, m.blocks, m.group, m.chunkBlocks, m.coding) +
              (m.rowScales ? rowScaleBytes(m.groups, m.group) : 0) + (m.ordered ? orderBytes(m.k) : 0);
    if (plan.rowsAtOnce > kTileRows)
      planUnits(m);
    // One row is put in order on its way from registers (Operand::single).
    if (m.ordered && (m.kPadded > kMostColumnsHeld ||
                      (plan.knobs.operands && roundUp(plan.knobs.operands, kBlockBytes) < m.kPadded * 2)))
      return unsupported(op, fmt::format("an order of the {} columns of `{}`: {}; the reference executor has it", m.k,
                                         m.name,
                                         m.kPadded > kMostColumnsHeld ? fmt::format("{} at most", kMostColumnsHeld)
                                                                      : "`--plan operands` leaves no room for a row"));
    phase.matrix = planned.matrices.size();
    planned.matrices.push_back(std::move(m));
    return true;
  }

  /// How a weight of the matrix is coded: all weights that are streamed together alike.
  bool takeScheme(const Operation &product, const Operation &w, bool first, Matrix &m) {
    const WeightScheme scheme = ir::schemeOf(w); // of the storage
    const bool rowScales = scheme.quantised() && !scheme.hasGroups();
    if (!first && (m.format != scheme.format || m.pieceBlocks != scheme.scaleColumns / kBlockColumns ||
                   m.rowScales != rowScales || m.coding.zeros != scheme.zeros || m.ordered != scheme.ordered))
      return unsupported(product, fmt::format("weight `{}`, which is coded in another way than `{}`, with which it is "
                                              "streamed; the reference executor has it",
                                              w.name, m.name));
    if (first)
      m.scaleRows = scheme.scaleRows;
    m.format = scheme.format;
    m.pieceBlocks = scheme.scaleColumns / kBlockColumns;
    m.rowScales = rowScales;
    m.ordered = scheme.ordered;
    m.coding.bits = bitsOf(scheme.format);
    m.coding.zeros = scheme.zeros;
    m.coding.scalesOfTile = scheme.hasGroups() ? kTileColumns : 0;
    return true;
  }

  /// Two, where the even and the odd packed rows of each tile have one scale each; else 8.
  int scalesOfTile(const Matrix &m, const Operation &model) {
    for (const PairRange &r : m.ranges)
      for (const std::string &name : {r.weight, r.second}) {
        if (name.empty())
          continue;
        const Operation &w = ir::storageOf(model, name);
        const WeightView view = ir::viewOf(w);
        const int64_t rows = w.get<attr::scale_rows>(), columns = ir::storedShape(w)[1],
                      tileRows = r.pairing == Pairing::Adjacent ? kTileColumns : kPairsOfTile;
        // Four neighbouring pairs are neighbouring rows, which begin at a multiple of their number.
        if (rows % tileRows || (view.offset / columns) % tileRows ||
            (r.columns > view.block && view.block % tileRows) || (view.blockStride / columns) % tileRows ||
            (r.columns > 1 && view.rowStride != columns) ||
            (r.pairing == Pairing::Half && ((r.turned / 2) % kPairsOfTile || (r.dim - r.turned) / 2 % kPairsOfTile)))
          return kTileColumns;
      }
    return 2;
  }

  /// All columns in a unit when that leaves no CTA much more to do than eighths of them would: their sums go
  /// through memory.
  void planUnits(Matrix &m) {
    const auto rounds = [&](int64_t units) { return (units + plan.ctas - 1) / plan.ctas; };
    m.unitParts = rounds(m.sets()) * kParts * 3 <= rounds(m.sets() * kParts) * 4 ? kParts : 1;
    m.firstUnitCta = nextFirstUnit;
    nextFirstUnit = (nextFirstUnit + m.units()) % plan.ctas;
  }

  bool planSegment(const Operation &op, const Operation &model) {
    Segment segment;
    segment.name = op.name;
    segment.op = &op;
    const Region &body = op.region();
    for (auto [index, arg] : llvm::enumerate(body.args)) {
      if (index >= forwarded.size())
        return unsupported(op, "a segment with more arguments than the one before yields");
      // `kv` orders an attention after the append; nothing is stored for it.
      if (module.type(arg).kind != ir::Type::Kv)
        planned.placeOf[arg.id] = planned.placeOf.at(forwarded[index].id);
    }
    if (!planOps(body, model, 0, segment.before, &segment))
      return false;
    const Operation &yield = body.ops.back();
    forwarded.assign(yield.operands.begin(), yield.operands.end());
    planned.segments.push_back(std::move(segment));
    return true;
  }

  /// CTA 0 comes last to a pass's first layer, from control, with the layers' code far away. Where the others then have
  /// no more groups than they had, at most, it has none in the layers: nobody waits for it there.
  void spareControl() {
    const auto rounds = [](const Matrix &m, int64_t ctas) { return (m.groups + ctas - 1) / ctas; };
    const bool spared = plan.ctas > 1 && llvm::all_of(planned.matrices, [&](const Matrix &m) {
                          return !m.layers || rounds(m, plan.ctas - 1) == rounds(m, plan.ctas);
                        });
    for (Matrix &m : planned.matrices)
      m.firstCta = plan.knobs.spare && spared && m.layers;
  }
};

} // namespace

/// Rows of logits that requests keep: how much memory they take.
static bool planKeptRows(Plan &plan, const ir::Module &module, const std::vector<const Operation *> &models,
                         Diagnostics &diags) {
  const std::vector<const Operation *> fields = ir::keptFields(module);
  const auto unsupported = [&](const Operation &op, const std::string &what) {
    diags.report(Diag::PlanUnsupported, op.loc, what);
    return false;
  };
  const Operation *other = nullptr;
  plan.kept.vocab = ir::keptVocab(module, other);
  if (other)
    return unsupported(*other, "kept rows of logits of models that have other numbers of tokens");
  if (plan.kept.vocab == 0)
    plan.kept.vocab = models[0]->get<attr::vocab>();
  if (fields.empty())
    return true;
  int64_t bytes = 0; // of a number
  for (const ModelPlan &planned : plan.models)
    if (firstReducer(module, planned.name)) {
      if (bytes && bytes != planned.reducing.numberBytes)
        return unsupported(*fields[0], "kept rows of logits beside heads that round to different types");
      bytes = planned.reducing.numberBytes;
    }
  if (bytes == 0) // nobody looks at logits
    return true;
  for (const Operation *field : fields)
    plan.kept.rows += module.param("slots") * field->get<attr::capacity>();
  plan.kept.bytes = roundUp(plan.kept.rows * keptRowBytes(plan.kept.vocab, bytes), 256);
  if (plan.kept.bytes <= kMostKeptBytes)
    return true;
  diags.report(Diag::KeptBytes, fields[0]->loc, plan.kept.rows, plan.kept.vocab, plan.kept.bytes, kMostKeptBytes);
  return false;
}

std::optional<Plan> makePlan(const ir::Module &module, const DeviceProfile &profile, const Knobs &knobs,
                             Diagnostics &diags) {
  Plan plan;
  plan.profile = profile;
  plan.knobs = knobs;
  const std::vector<const Operation *> models = ir::modelsByNumber(module);
  if (models.empty() || models.size() > limits::models) {
    const Operation *pool = models.empty() ? nullptr : module.find(Op::Pool, models[limits::models]->name);
    diags.report(Diag::PlanUnsupported, pool ? pool->loc : module.root.loc,
                 fmt::format("a kernel for {} models; a kernel has 1 to {}", models.size(), limits::models));
    return std::nullopt;
  }
  if (auto gauges = module.all(Op::Gauge); gauges.size() > limits::gauges) {
    diags.report(Diag::PlanUnsupported, gauges[limits::gauges]->loc,
                 fmt::format("{} traced gauges; {} at most", gauges.size(), limits::gauges));
    return std::nullopt;
  }
  int64_t callWords = 0; // the kernel counts them in an int
  for (const Operation *model : models)
    callWords += ir::callTokens(module, model->name) * (ir::mayBeTrees(module, model->name) ? 4 : 1);
  if (const int64_t most = INT32_MAX / module.param("slots"); callWords > most) {
    const Operation *pool = module.find(Op::Pool, models.front()->name);
    diags.report(
        Diag::PlanUnsupported, pool ? pool->loc : module.root.loc,
        fmt::format("calls of one run of a stage that may feed {} tokens, `rows_per_pass` in each round of their "
                    "loops; {} at most with so many slots",
                    callWords, most));
    return std::nullopt;
  }
  plan.rowsPerPass = module.param("rows_per_pass");
  plan.rowsAtOnce = std::min<int64_t>(plan.rowsPerPass, kMaxRows);
  plan.asksMore = asksMore(module);
  plan.ctas = knobs.ctas ? knobs.ctas : profile.smCount;
  plan.edges.push_back({"tick plan", {}, Edge::Flagged});
  plan.models.resize(models.size());
  std::vector<Planner> planners;
  for (size_t i = 0; i < models.size(); ++i) {
    planners.emplace_back(module, plan, plan.models[i], diags);
    if (!planners.back().run(*models[i]))
      return std::nullopt;
  }
  if (knobs.words)
    for (Edge &edge : llvm::drop_begin(plan.edges))
      edge.lowering = Edge::Words;
  plan.passEdge = plan.edges.size();
  plan.edges.push_back({"pass", {}, Edge::Leave});
  for (Planner &planner : planners)
    planner.lowerEdges();
  if (!planKeptRows(plan, module, models, diags))
    return std::nullopt;
  layOut(plan, module, models, diags);
  for (Planner &planner : planners)
    if (!diags.hasErrors())
      planner.checkRecords();
  if (diags.hasErrors())
    return std::nullopt;
  return plan;
}

} // namespace megalith::plan
