#include "Layout.h"
#include "llvm/ADT/STLExtras.h"
#include <set>

namespace megalith::plan {

using ir::Op;
using ir::Operation;
using ir::Value;

namespace {

class Verifier {
public:
  Verifier(const Plan &plan, const ModelPlan &planned, Diagnostics &diags)
      : plan(plan), planned(planned), diags(diags) {}

  bool run() {
    return checkEdges() && checkBuffers() && checkMatrices() && checkFlagged() && checkWindows() && checkValues();
  }

private:
  const Plan &plan;
  const ModelPlan &planned;
  Diagnostics &diags;

  bool fail(std::string what, SourceLoc loc) {
    diags.report(Diag::PlanInvalid, loc, what);
    return false;
  }

  bool checkEdges() {
    std::set<int> edges;
    const Phase *wrong = nullptr;
    planned.forEach([&](const Phase &phase, bool) {
      const bool own = phase.edge > 0 && phase.edge < (int)plan.edges.size() && edges.insert(phase.edge).second;
      wrong = wrong || own ? wrong : &phase;
    });
    return !wrong || fail(fmt::format("phase `{}` has no edge of its own", wrong->name), place(*wrong));
  }

  bool checkBuffers() {
    for (size_t i = 0; i < planned.buffers.size(); ++i) {
      const Buffer &a = planned.buffers[i];
      if (a.offset + a.bytes * a.instances > planned.records.rowBytes)
        return fail(fmt::format("buffer `{}` leaves the row's record", a.name), {});
      for (size_t j = i + 1; j < planned.buffers.size(); ++j) {
        const Buffer &b = planned.buffers[j];
        if (a.offset < b.offset + b.bytes * b.instances && b.offset < a.offset + a.bytes * a.instances)
          return fail(fmt::format("buffers `{}` and `{}` overlap", a.name, b.name), {});
      }
    }
    return true;
  }

  bool checkMatrices() {
    for (const Matrix &m : planned.matrices) {
      if (m.chunkBytes() > plan.ring.stageBytes || m.blocks % m.chunkBlocks)
        return fail(fmt::format("chunks of `{}` do not fit the ring", m.name), m.loc);
      int64_t pairs = 0;
      for (const PairRange &r : m.ranges) {
        if (r.pairBegin % kPairsOfTile || r.pairBegin < pairs)
          return fail(fmt::format("pairs of `{}` are not laid out in tiles", r.weight), m.loc);
        pairs = r.pairBegin + r.pairs;
      }
      if (pairs > m.tiles() * kPairsOfTile)
        return fail(fmt::format("`{}` has more rows than its tiles", m.name), m.loc);
      if ((m.unitParts != 0) != (plan.rowsAtOnce > kTileRows) || (m.unitParts == 1) != (m.partsEdge >= 0) ||
          (m.unitParts != 0 && m.unitParts != 1 && m.unitParts != kParts) || m.firstUnitCta >= plan.ctas)
        return fail(fmt::format("`{}` has no units for the rows of a pass", m.name), m.loc);
    }
    return true;
  }

  /// What stands in the flagged words, each in a place of its own.
  bool checkFlagged() {
    struct Range {
      int64_t begin, bytes, alignment;
      std::string what;
    };
    const int64_t maxima = bestBytes(plan.rowsAtOnce * planned.results.size(), plan.ctas);
    std::vector<Range> ranges = {
        {planned.bestOffset, maxima, 16, "the logits' maxima"},
        {planned.reducing.drawnOffset, planned.reducing.any ? maxima : 0, 16, "the maxima of draws"},
        {planned.attention.offset, planned.attention.bytes(), 16, "the sums of attention"},
        {planned.wideAttention.offset, planned.wideAttention.units * planned.wideAttention.unitBytes, 16,
         "the sums of attention of many rows of a slot"}};
    for (const Matrix &m : planned.matrices)
      if (m.unitParts == 1) {
        ranges.push_back(
            {m.partsOffset, m.units() * unitPartBytes(m.group), 16, fmt::format("the sums of `{}`", m.name)});
        ranges.push_back({m.partsDone, m.sets() * 4, 4, fmt::format("the counters of `{}`", m.name)});
      }
    for (const Buffer &b : planned.buffers)
      if (b.windows) {
        const int64_t least = imageBytes(b.columns);
        if (b.imageBytes < least)
          return fail(fmt::format("the image of `{}` has {} bytes of {}", b.name, b.imageBytes, least), {});
        ranges.push_back({b.imageOffset, b.instances * b.imageBytes, 128, fmt::format("the images of `{}`", b.name)});
        ranges.push_back(
            {b.counterOffset, b.instances * kCounterBytes, kCounterBytes, fmt::format("the counters of `{}`", b.name)});
      }
    if (plan.wide()) {
      ranges.push_back({planned.wide.doneOffset, ceilDiv<int64_t>(plan.rowsPerPass, kWideCountedRows) * 4, 256,
                        "the counters of whole passes"});
      ranges.push_back(
          {planned.wide.partsOffset, plan.ctas * planned.wide.partBytes, 256, "the sums of attention of whole passes"});
      for (const Buffer &b : planned.buffers)
        ranges.push_back(
            {b.wideOffset, b.wideInstances() * b.wideBytes, 256, fmt::format("rows of whole passes of `{}`", b.name)});
    }
    llvm::erase_if(ranges, [](const Range &r) { return r.bytes == 0; });
    llvm::sort(ranges, [](const Range &a, const Range &b) { return a.begin < b.begin; });
    int64_t end = plan.passBytes();
    std::string before = "the words of the pass";
    for (const Range &r : ranges) {
      if (r.begin < end)
        return fail(fmt::format("in the flagged words {} and {} overlap", before, r.what), {});
      if (r.begin % r.alignment)
        return fail(fmt::format("byte {} of the flagged words, where {} begin, is no multiple of {}", r.begin, r.what,
                                r.alignment),
                    {});
      if (r.begin + r.bytes > plan.flaggedBytes)
        return fail(fmt::format("{} leave the flagged words", r.what), {});
      end = r.begin + r.bytes;
      before = r.what;
    }
    return true;
  }

  /// Room for a unit's sums and two windows after them in a pass of any number of rows: as of Windows of
  /// device/Windows.cuh.
  bool checkWindows() {
    for (int64_t rows = kRowStep; rows <= plan.wideRows; rows *= 2) {
      const int64_t lent = rows > plan.ring.lentRows ? plan.ring.wideLentStages : plan.ring.lentStages;
      const int64_t room = plan.shared.scratchBytes + lent * plan.ring.stageBytes - unitSumBytes(rows);
      if (room < 2 * windowBytes(plan.wideRows))
        return fail(fmt::format("passes of {} rows have {} bytes for windows of {} rows", rows, room, plan.wideRows),
                    {});
    }
    return true;
  }

  // --- values: the phases in order, every layer ---------------------------------

  /// Buffer and instance of a value in layer `layer`.
  using Spot = std::pair<int, int64_t>;
  Spot spot(const Place &place) const {
    const int64_t last = planned.buffers[place.buffer].instances - 1;
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
    for (const Segment &segment : planned.segments) {
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
      auto it = planned.placeOf.find(name.id);
      if (it == planned.placeOf.end())
        continue;
      if (!written.count(spot(it->second)))
        return fail(fmt::format("the loop or segment reads buffer `{}`, which nothing wrote",
                                planned.buffers[it->second.buffer].name),
                    loc);
      written[spot(it->second)].insert(name.id);
    }
    return true;
  }

  bool checkRead(Value v, const std::string &reader, SourceLoc loc) {
    const Place &place = planned.placeOf.at(v.id);
    auto it = written.find(spot(place));
    if (it != written.end() && (it->second.count(v.id) || it->second.count(kCopied)))
      return true;
    return fail(fmt::format("{} reads buffer `{}`, which {}", reader, planned.buffers[place.buffer].name,
                            it == written.end() ? "nothing wrote" : "holds another value"),
                loc);
  }

  /// What has an image is there for products alone.
  bool checkImage(Value v, const Phase &phase, const Operation &reader) {
    const Buffer &buffer = planned.buffers[planned.placeOf.at(v.id).buffer];
    if (!buffer.windows ||
        (phase.kind == Phase::Stream && (reader.op == Op::Stream || reader.op == Op::MatMul || reader.op == Op::Round)))
      return true;
    return fail(fmt::format("phase `{}` reads buffer `{}`, of which passes of many rows have an image only", phase.name,
                            buffer.name),
                reader.loc);
  }

  bool write(const Place &place, uint32_t value, const std::string &phase, SourceLoc loc) {
    const Buffer &buffer = planned.buffers[place.buffer];
    if (spot(place).second >= buffer.instances)
      return fail(fmt::format("phase `{}` writes after the last instance of buffer `{}`", phase, buffer.name), loc);
    if (!written.try_emplace(spot(place), std::set<uint32_t>{value}).second)
      return fail(fmt::format("phase `{}` writes buffer `{}` a second time in a pass", phase, buffer.name), loc);
    return true;
  }

  bool checkPhases(const std::vector<Phase> &phases) {
    for (size_t i = 0; i < phases.size(); ++i) {
      const Phase &phase = phases[i];
      // What attention makes itself in some passes nobody else may read.
      const bool made = phase.kind == Phase::Attention && phase.makes && i > 0 && phases[i - 1].several &&
                        phases[i - 1].op == phase.makes;
      if (phase.makes && !made)
        return fail(fmt::format("phase `{}` makes what no map in front of it makes", phase.name), place(phase));
      if (phase.several && (i + 1 == phases.size() || phases[i + 1].makes != phase.op))
        return fail(
            fmt::format("phase `{}` does not run in all passes, and nothing after it makes what it makes", phase.name),
            place(phase));
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
    if (phase.kind == Phase::Copy || phase.kind == Phase::Order) {
      if (!written.count(spot(phase.from)))
        return fail(fmt::format("phase `{}` reads what nothing wrote", phase.name), {});
      if (const Buffer &from = planned.buffers[phase.from.buffer]; from.windows)
        return fail(fmt::format("phase `{}` reads buffer `{}`, of which passes of many rows have an image only",
                                phase.name, from.name),
                    {});
      return write(phase.to, kCopied, phase.name, {});
    }
    // Everything read from outside the phase must have been written before it.
    std::set<uint32_t> inside;
    bool ok = true;
    auto check = [&](const Operation &op) {
      for (Value r : op.results)
        inside.insert(r.id);
      for (Value v : op.operands)
        if (ok && !inside.count(v.id) && planned.placeOf.count(v.id))
          ok = checkRead(v, fmt::format("phase `{}`", phase.name), op.loc) && checkImage(v, phase, op) &&
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
      if (auto it = planned.placeOf.find(r.id); ok && it != planned.placeOf.end())
        ok = write(it->second, r.id, phase.name, place(phase));
    return ok;
  }

  static SourceLoc place(const Phase &phase) { return phase.op ? phase.op->loc : SourceLoc(); }
};

} // namespace

bool verify(const Plan &plan, Diagnostics &diags) {
  return llvm::all_of(plan.models, [&](const ModelPlan &model) { return Verifier(plan, model, diags).run(); });
}

} // namespace megalith::plan
