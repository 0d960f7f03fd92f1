#include "megalith/Plan/Plan.h"
#include "llvm/ADT/STLExtras.h"
#include <set>

namespace megalith::plan {

using ir::Op;
using ir::Operation;
using ir::Value;

namespace {

class Verifier {
public:
  Verifier(const Plan &plan, const ir::Module &module, Diagnostics &diags)
      : plan(plan), module(module), diags(diags) {}

  bool run() { return checkEdges() && checkBuffers() && checkMatrices() && checkValues(); }

private:
  const Plan &plan;
  const ir::Module &module;
  Diagnostics &diags;

  bool fail(std::string what, SourceLoc loc) {
    diags.report(Diag::PlanInvalid, loc, what);
    return false;
  }

  bool checkEdges() {
    std::set<int> edges;
    for (const Segment &segment : plan.segments)
      for (const auto *phases : {&segment.before, &segment.repeated, &segment.after})
        for (const Phase &phase : *phases)
          if (phase.edge <= 0 || phase.edge >= (int)plan.edges.size() || !edges.insert(phase.edge).second)
            return fail(fmt::format("phase `{}` has no edge of its own", phase.name), place(phase));
    return true;
  }

  bool checkBuffers() {
    for (size_t i = 0; i < plan.buffers.size(); ++i) {
      const Buffer &a = plan.buffers[i];
      if (a.offset + a.bytes * a.instances > plan.rowBytes)
        return fail(fmt::format("buffer `{}` leaves the row's record", a.name), {});
      for (size_t j = i + 1; j < plan.buffers.size(); ++j) {
        const Buffer &b = plan.buffers[j];
        if (a.offset < b.offset + b.bytes * b.instances && b.offset < a.offset + a.bytes * a.instances)
          return fail(fmt::format("buffers `{}` and `{}` overlap", a.name, b.name), {});
      }
    }
    return true;
  }

  bool checkMatrices() {
    int64_t lastParts = plan.sumsOffset;
    for (const Matrix &m : plan.matrices) {
      if (m.group * m.chunkBlocks * 4096 > plan.stageBytes || m.blocks % m.chunkBlocks)
        return fail(fmt::format("chunks of `{}` do not fit the ring", m.name), m.loc);
      int64_t pairs = 0;
      for (const PairRange &r : m.ranges) {
        if (r.pairBegin % 4 || r.pairBegin < pairs)
          return fail(fmt::format("pairs of `{}` are not laid out in tiles", r.weight), m.loc);
        pairs = r.pairBegin + r.pairs;
      }
      if (pairs > m.groups * m.group * 4)
        return fail(fmt::format("`{}` has more rows than its tiles", m.name), m.loc);
      if ((m.unitParts != 0) != (plan.rowsPerPass > kTileRows) || (m.unitParts == 1) != (m.partsEdge >= 0))
        return fail(fmt::format("`{}` has no units for the rows of a pass", m.name), m.loc);
      if (m.unitParts == 1 && (m.partsOffset < lastParts || m.partsDone < m.partsOffset + m.units() * 8 * m.group * kMaxRows * 32))
        return fail(fmt::format("the sums of `{}` overlap others", m.name), m.loc);
      if (m.unitParts != 1)
        continue;
      lastParts = m.partsDone + m.sets() * 4;
      if (lastParts > plan.taggedBytes)
        return fail(fmt::format("the sums of `{}` leave the tagged words", m.name), m.loc);
    }
    for (const Buffer &b : plan.buffers)
      if (b.windows && (b.counterOffset < lastParts || b.imageOffset < b.counterOffset + b.instances * kCounterBytes || b.imageOffset + b.instances * b.imageBytes > plan.taggedBytes))
        return fail(fmt::format("the image of `{}` overlaps others, or leaves the tagged words", b.name), {});
    if (plan.wideUnits && (plan.wideSumsOffset < lastParts || plan.wideSumsOffset <= plan.sumsOffset ||
                           plan.wideSumsOffset + plan.wideUnits * plan.wideUnitBytes > plan.taggedBytes))
      return fail("the sums of attention of many rows overlap others, or leave the tagged words", {});
    return true;
  }

  // --- values: the phases in order, every layer ---------------------------------

  /// Buffer and instance of a value in layer `layer`.
  using Spot = std::pair<int, int64_t>;
  Spot spot(const Place &place) const {
    const int64_t last = plan.buffers[place.buffer].instances - 1;
    return {place.buffer, place.instance == Place::First   ? 0
                          : place.instance == Place::Layer ? layer
                          : place.instance == Place::Next  ? layer + 1
                                                           : last};
  }
  /// What this pass wrote, and the values that it is.
  std::map<Spot, std::set<uint32_t>> written;
  int64_t layer = 0;

  bool checkValues() {
    llvm::ArrayRef<Value> yielded;
    for (const Segment &segment : plan.segments) {
      const ir::Region &body = segment.op->region();
      if (!bind(body.args, yielded, segment.op->loc) || !checkPhases(segment.before))
        return false;
      auto repeat = llvm::find_if(body.ops, [](const Operation &op) { return op.op == Op::Repeat; });
      if (segment.repeatCount && repeat != body.ops.end()) {
        llvm::ArrayRef<Value> carried = repeat->operands;
        for (layer = 0; layer < segment.repeatCount; ++layer) {
          if (!bind(repeat->region().args, carried, repeat->loc) || !checkPhases(segment.repeated))
            return false;
          carried = repeat->region().ops.back().operands;
        }
        if (!bind(repeat->results, carried, repeat->loc))
          return false;
        layer = 0;
      }
      if (!checkPhases(segment.after))
        return false;
      yielded = body.ops.back().operands;
    }
    return true;
  }

  /// From here on `names` stand for `values`: in the same place, whatever both call it.
  bool bind(llvm::ArrayRef<Value> names, llvm::ArrayRef<Value> values, SourceLoc loc) {
    for (auto [name, value] : llvm::zip(names, values)) {
      auto it = plan.placeOf.find(name.id);
      if (it == plan.placeOf.end())
        continue;
      if (!written.count(spot(it->second)))
        return fail(fmt::format("the loop or segment reads buffer `{}`, which nothing wrote",
                                plan.buffers[it->second.buffer].name),
                    loc);
      written[spot(it->second)].insert(name.id);
    }
    return true;
  }

  bool checkRead(Value v, const std::string &reader, SourceLoc loc) {
    const Place &place = plan.placeOf.at(v.id);
    auto it = written.find(spot(place));
    if (it != written.end() && (it->second.count(v.id) || it->second.count(kCopied)))
      return true;
    return fail(fmt::format("{} reads buffer `{}`, which {}", reader, plan.buffers[place.buffer].name,
                            it == written.end() ? "nothing wrote" : "holds another value"),
                loc);
  }

  bool write(const Place &place, uint32_t value, const std::string &phase, SourceLoc loc) {
    const Buffer &buffer = plan.buffers[place.buffer];
    if (spot(place).second >= buffer.instances)
      return fail(fmt::format("phase `{}` writes behind the last instance of buffer `{}`", phase, buffer.name), loc);
    if (!written.try_emplace(spot(place), std::set<uint32_t>{value}).second)
      return fail(fmt::format("phase `{}` writes buffer `{}` a second time in a pass", phase, buffer.name), loc);
    return true;
  }

  bool checkPhases(const std::vector<Phase> &phases) {
    for (size_t i = 0; i < phases.size(); ++i) {
      const Phase &phase = phases[i];
      // What attention makes itself in some passes nobody else may read.
      const bool made = phase.kind == Phase::Attention && phase.makes && i > 0 && phases[i - 1].several && phases[i - 1].op == phase.makes;
      if (phase.makes && !made)
        return fail(fmt::format("phase `{}` makes what no map in front of it makes", phase.name), place(phase));
      if (phase.several && (i + 1 == phases.size() || phases[i + 1].makes != phase.op))
        return fail(fmt::format("phase `{}` does not run in all passes, and nothing behind it makes what it makes", phase.name), place(phase));
      if (phase.several)
        ofSeveral.insert(phase.op);
      if (!checkPhase(phase))
        return false;
    }
    return true;
  }

  std::set<const Operation *> ofSeveral; ///< maps that do not run in all passes
  bool isOfSeveral(Value v) const {
    return llvm::any_of(ofSeveral, [&](const Operation *map) { return llvm::is_contained(map->results, v); });
  }

  static constexpr uint32_t kCopied = ~0u;

  bool checkPhase(const Phase &phase) {
    if (phase.kind == Phase::Copy) {
      if (!written.count(spot(phase.from)))
        return fail(fmt::format("phase `{}` reads what nothing wrote", phase.name), {});
      return write(phase.to, kCopied, phase.name, {});
    }
    // Everything read from outside the phase must have been written before it.
    std::set<uint32_t> inside;
    bool ok = true;
    auto check = [&](const Operation &op) {
      for (Value r : op.results)
        inside.insert(r.id);
      for (Value v : op.operands)
        if (ok && !inside.count(v.id) && plan.placeOf.count(v.id))
          ok = checkRead(v, fmt::format("phase `{}`", phase.name), op.loc) &&
               (phase.makes || !isOfSeveral(v) ||
                fail(fmt::format("phase `{}` reads what is not made in all passes", phase.name), op.loc));
    };
    check(*phase.op);
    for (const ir::Region &region : phase.op->regions)
      ir::walk(region, check);
    if (phase.kind == Phase::Operand)
      return ok && write(phase.to, kCopied, phase.name, place(phase));
    if (ok && phase.operand && !written.count(spot(*phase.operand)))
      return fail(fmt::format("phase `{}` reads its operand, which nothing wrote", phase.name), place(phase));
    for (Value r : phase.op->results)
      if (auto it = plan.placeOf.find(r.id); ok && it != plan.placeOf.end())
        ok = write(it->second, r.id, phase.name, place(phase));
    return ok;
  }

  static SourceLoc place(const Phase &phase) { return phase.op ? phase.op->loc : SourceLoc(); }
};

} // namespace

bool verify(const Plan &plan, const ir::Module &module, Diagnostics &diags) {
  return Verifier(plan, module, diags).run();
}

} // namespace megalith::plan
