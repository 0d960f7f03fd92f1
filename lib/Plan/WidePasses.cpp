//===- WidePasses.cpp - which models' passes of many rows run whole -------===//
//
// A pass of more than kMaxRows rows goes through the first segment's phases up to the last layer (device/wide). What
// that cannot do is said here: such a model's passes run in pieces.
//===----------------------------------------------------------------------===//
#include "Layout.h"
#include "llvm/ADT/STLExtras.h"
#include <set>
#include <tuple>

namespace megalith::plan {

using ir::Op;
using ir::Operation;
namespace attr = ir::attr;
using ir::Scalar;
using ir::Value;

namespace {

/// Pairs of a strip: what a warp ends together is of one epilogue.
constexpr int64_t kStripPairs = 8;

class Widening {
public:
  Widening(const Plan &plan, ModelPlan &planned, const ir::Module &module, const Operation &model)
      : plan(plan), planned(planned), module(module), model(model) {}

  std::string run() {
    if (!plan.profile.widePasses)
      return fmt::format("{} has no code for them", plan.profile.name);
    if (!plan.knobs.wholePasses)
      return "of `--plan passes=pieces`";
    if (plan.knobs.stamps)
      return "of `--plan stamps=1`, which takes the times of phases";
    if (plan.ctas % 2)
      return "their CTAs work in pairs";
    const Segment &body = planned.segments[0];
    if (body.repeated.empty())
      return "the model has no layers";
    const size_t most = kWideSteps - 1 - planned.kvInE4m3; // one stands before them, and one makes codes of K and V
    if (body.repeated.size() > most)
      return fmt::format("a layer has {} phases, more than {}", body.repeated.size(), most);
    std::string why;
    for (const Phase &phase : body.before)
      if (why.empty() && phase.kind != Phase::Map && phase.kind != Phase::Copy)
        why = fmt::format("`{}` stands before the layers", phase.name);
    bool attends = false;
    for (auto [number, phase] : llvm::enumerate(body.repeated))
      if (phase.op && phase.kind != Phase::Operand && phase.kind != Phase::Attention &&
          llvm::any_of(phase.op->region().ops, [](const Operation &op) { return op.op == Op::KvAppend; }))
        planned.wide.stepsOfLast = number + 1;
    for (const std::vector<Phase> *phases : {&body.before, &body.repeated})
      for (const Phase &phase : *phases) {
        attends |= phase.kind == Phase::Attention;
        if (why.empty())
          why = look(phase, phases == &body.repeated);
      }
    if (why.empty() && !attends)
      why = "no layer has attention";
    if (planned.kvInE4m3)
      for (const int buffer : {planned.newKeys, planned.newValues})
        written.insert(buffer);
    planned.wide.late = llvm::all_of(body.before, [&](const Phase &phase) {
      return phase.kind == Phase::Copy
                 ? planned.buffers[phase.to.buffer].carried
                 : llvm::all_of(phase.op->results, [&](Value v) {
                     const auto place = planned.placeOf.find(v.id);
                     return place == planned.placeOf.end() || planned.buffers[place->second.buffer].carried;
                   });
    });
    if (why.empty())
      for (Buffer &b : planned.buffers)
        if (written.count(int(&b - planned.buffers.data())))
          b.wideBytes = b.dtype == Scalar::F32 ? roundUp(plan.rowsPerPass * b.columns * 4, 256)
                                               : wideImageBytes(b.columns, plan.rowsPerPass);
    return why;
  }

private:
  const Plan &plan;
  ModelPlan &planned;
  const ir::Module &module;
  const Operation &model;
  std::set<int> written; ///< buffers
  int firstProduct = -1; ///< its matrix

  int64_t pageTokens() const {
    const Operation *pool = module.find(Op::Pool, model.name);
    return pool ? pool->get<attr::page_tokens>() : 1;
  }

  std::string write(const Place &place) {
    const Buffer &b = planned.buffers[place.buffer];
    written.insert(place.buffer);
    if (place.instance == Place::Next)
      planned.buffers[place.buffer].carried = true;
    return b.dtype == Scalar::BF16 && b.columns % 8
               ? fmt::format("`{}` has {} columns, no multiple of 8", b.name, b.columns)
               : "";
  }

  std::string look(const Phase &phase, bool inLayers) {
    if (phase.kind == Phase::Copy || phase.kind == Phase::Operand || phase.kind == Phase::Order)
      return write(phase.to);
    for (Value v : phase.op->results)
      if (auto place = planned.placeOf.find(v.id); place != planned.placeOf.end())
        if (std::string why = write(place->second); !why.empty())
          return why;
    if (phase.kind == Phase::Attention) {
      const int64_t dim = phase.op->get<attr::dim>();
      return !inLayers        ? "attention outside the layers"
             : !wideDims(dim) ? fmt::format("heads of {} dims", dim)
             : phase.op->get<attr::cap>() != 0 &&
                     (phase.op->get<attr::cap>() < 1 || phase.op->get<attr::cap>() > 0x1p64)
                 ? "its soft cap is not in 1 to 2^64"
             : pageTokens() % 8                                               ? "pages are no multiples of 8 tokens"
             : phase.op->get<attr::heads>() % phase.op->get<attr::kv_heads>() ? "heads in uneven groups"
                                                                              : "";
    }
    return phase.kind == Phase::Stream ? lookAtProducts(phase) : "";
  }

  std::string lookAtProducts(const Phase &phase) {
    const Matrix &m = planned.matrices[phase.matrix];
    if (m.k % 8)
      return fmt::format("`{}` takes {} columns, no multiple of 8", m.name, m.k);
    // One kind of codes (device/wide/WideCodes.cuh).
    const auto kindOf = [](const Matrix &m) {
      return std::tuple(m.format, m.coding.scalesOfTile, m.coding.zeros, m.pieceBlocks, m.rowScales);
    };
    const Matrix &other = planned.matrices[firstProduct < 0 ? firstProduct = phase.matrix : firstProduct];
    if (kindOf(m) != kindOf(other))
      return fmt::format("`{}` is coded in another way than `{}`", m.name, other.name);
    if (m.format != WeightFormat::Bf16 && m.group != 2)
      return fmt::format("codes of `{}` are in groups of one tile", m.name);
    const ir::Region &region = phase.op->region();
    for (const PairRange &r : m.ranges) {
      if (r.pairing == Pairing::Half && (r.turned / 2 % kStripPairs != 0 || (r.dim - r.turned) / 2 % kStripPairs != 0))
        return fmt::format("of each {} columns of `{}` {} turn, and these or the others are no multiple of 16", r.dim,
                           r.weight, r.turned);
      if (r.pairBegin % kStripPairs != 0 || r.pairs % kStripPairs != 0 ||
          (r.pairing == Pairing::Adjacent && r.columns % 2))
        return fmt::format("`{}` has {} columns, which are no multiple of 16", r.weight, r.columns);
      // What is made of the range's products, forward.
      std::set<uint32_t> made = {r.product.id};
      if (r.pairing == Pairing::Dual)
        made.insert(r.secondProduct.id);
      std::set<uint32_t> sinks, beside;
      for (const Operation &op : region.ops) {
        if (op.op == Op::ArgMax)
          return fmt::format("`{}` are logits", m.name);
        const bool isEnd = op.op == Op::KvAppend || op.op == Op::Yield;
        if (op.op == Op::MatMul || !llvm::any_of(op.operands, [&](Value v) { return made.count(v.id) != 0; }))
          continue;
        for (Value v : op.operands)
          if (isEnd && made.count(v.id))
            sinks.insert(v.id);
        if (isEnd)
          continue;
        for (Value v : op.results)
          made.insert(v.id);
      }
      if (sinks.size() != 1)
        return fmt::format("{} values are made of `{}`'s products", sinks.size(), r.weight);
      // And what else it is made of, backward.
      std::set<uint32_t> needed = sinks;
      for (const Operation &op : llvm::reverse(region.ops)) {
        if (op.op == Op::MatMul || op.op == Op::KvAppend || op.op == Op::Yield ||
            !llvm::any_of(op.results, [&](Value v) { return needed.count(v.id) != 0; }))
          continue;
        for (Value v : op.operands)
          needed.insert(v.id);
      }
      for (const Operation &op : region.ops)
        for (Value v : op.results)
          needed.erase(v.id);
      for (uint32_t id : needed)
        if (planned.placeOf.count(id))
          beside.insert(id);
      if (beside.size() > 2)
        return fmt::format("{} buffers are added to `{}`'s products", beside.size(), r.weight);
      for (uint32_t id : beside) {
        const Buffer &b = planned.buffers[planned.placeOf.at(id).buffer];
        if (b.columns != r.columns || b.dtype != Scalar::BF16 || r.pairing != Pairing::Adjacent)
          return fmt::format("`{}` is taken beside `{}`'s products", b.name, r.weight);
      }
      for (Value v : phase.op->results)
        if (auto place = planned.placeOf.find(v.id);
            place != planned.placeOf.end() && planned.buffers[place->second.buffer].dtype != Scalar::BF16)
          return fmt::format("`{}` is kept in f32", planned.buffers[place->second.buffer].name);
    }
    return "";
  }
};

} // namespace

void planWidePasses(const Plan &plan, ModelPlan &planned, const ir::Module &module, const Operation &model) {
  planned.wide.refused = Widening(plan, planned, module, model).run();
}

} // namespace megalith::plan
