#include "Layout.h"
#include "megalith/IR/Calls.h"
#include "llvm/ADT/STLExtras.h"
#include <cmath>
#include <set>

namespace megalith::plan {

using ir::Op;
using ir::Operation;
namespace attr = ir::attr;
using ir::Scalar;

namespace {

/// Gives all models of a plan their places. A CTA has one ring and one scratch: what the largest of the models needs.
class Layout {
public:
  Layout(Plan &plan, const ir::Module &module, llvm::ArrayRef<const Operation *> models, Diagnostics &diags)
      : plan(plan), module(module), models(models), diags(diags) {}

  void run() {
    plan.ring.stageBytes = kBlockBytes;
    for (auto [planned, model] : llvm::zip(plan.models, models)) {
      planned.draftsContinue = ir::draftsContinue(module, planned.name);
      planned.pathPlaces = plan.asksMore ? pathPlaces(module, planned.name) : 0;
      placeWeights(planned, *model);
      placeBuffers(planned);
    }
    int64_t ofOneRow = 0, ofAllRows = 0; // shared memory of attention
    for (const Operation *model : models)
      ir::walk(model->region(), [&](const Operation &op) {
        if (op.op != Op::Attention)
          return;
        const shape::Attention attention = shapeOf(op);
        ofOneRow = std::max<int64_t>(ofOneRow, attention.scratchBytes(1));
        ofAllRows = std::max<int64_t>({ofAllRows, attention.scratchBytes(plan.rowsAtOnce), ofOneRow});
      });
    chooseWide();
    if (!planScratch(ofOneRow, ofAllRows))
      return;
    planFewRows();
    if (plan.wide() && !planWide()) {
      refuseWide("shared memory has no room for them");
      if (!planScratch(ofOneRow, ofAllRows))
        return;
      planFewRows();
    }
    planFlight();
    plan.flaggedBytes = roundUp(plan.passBytes(), 256);
    for (auto [planned, model] : llvm::zip(plan.models, models))
      placeFlagged(planned, *model);
  }

private:
  Plan &plan;
  const ir::Module &module;
  llvm::ArrayRef<const Operation *> models;
  Diagnostics &diags;

  /// Matrices and vectors in the model's stream.
  void placeWeights(ModelPlan &planned, const Operation &model) {
    int64_t offset = 0;
    for (Matrix &m : planned.matrices) {
      m.offset = offset;
      offset += m.bytes * std::max<int64_t>(1, m.layers);
      plan.ring.stageBytes = std::max(plan.ring.stageBytes, m.chunkBytes());
    }
    std::set<std::string> done;
    ir::walk(model.region(), [&](const Operation &op) {
      if (op.op != Op::WeightGet || !done.insert(op.name).second)
        return;
      for (const Operation &weight : model.region().ops)
        if (weight.op == Op::Weight && weight.name == op.name) {
          const int64_t length = weight.get<attr::shape>()[0], layers = weight.get<attr::layers>();
          planned.vectors.push_back({op.name, length, layers, offset, roundUp(length * 2, 128)});
          offset += planned.vectors.back().bytes * std::max<int64_t>(1, layers);
        }
    });
    planned.streamBytes = offset;
    ir::walk(model.region(), [&](const Operation &op) {
      if (op.op != Op::Embed || op.get<attr::by>() != ir::By::Token || planned.tokenTable)
        return;
      for (const Operation &weight : model.region().ops)
        if (weight.op == Op::Weight && weight.name == op.name && !weight.get<attr::layers>()) {
          const auto &shape = weight.get<attr::shape>();
          planned.tokenTable = {op.name, shape[0], shape[1] * 2};
        }
    });
    ir::walk(model.region(), [&](const Operation &op) {
      if (op.op == Op::Attention)
        plan.ring.stageBytes = std::max<int64_t>(plan.ring.stageBytes, shapeOf(op).leastStageBytes());
    });
  }

  /// Values in the record of a row.
  void placeBuffers(ModelPlan &planned) const {
    int64_t offset = 0;
    const auto place = [&](bool windows, bool several) {
      for (Buffer &b : planned.buffers) {
        if (b.windows != windows || b.several != several)
          continue;
        b.offset = offset;
        b.bytes = roundUp(b.stride * (b.dtype == Scalar::F32 ? 4 : 2), 128);
        offset += b.bytes * b.instances;
      }
      return offset;
    };
    // What passes of one row write lies together, and so does what those of more than one row tile write.
    planned.records.wideBegin = place(true, false);
    planned.records.narrowBytes = place(false, false);
    planned.records.wideEnd = place(false, true);
    place(true, true);
    planned.records.rowBytes = offset;
    planned.records.setBytes = planned.records.rowBytes * plan.rowsAtOnce;
    planned.records.workspaceBytes = 2 * planned.records.setBytes;
  }

  /// What crosses in flagged words and counters, after the words of a pass.
  void placeFlagged(ModelPlan &planned, const Operation &model) {
    planned.bestOffset = plan.flaggedBytes;
    const int64_t lines = plan.rowsAtOnce * planned.results.size();
    planned.attention.offset = planned.bestOffset + roundUp(bestBytes(lines, plan.ctas), 256);
    if (planned.reducing.any) {
      planned.reducing.drawnOffset = planned.attention.offset;
      planned.attention.offset += roundUp(bestBytes(lines, plan.ctas), 256);
      planned.reducing.selectionBytes = selectionBytes(plan.rowsAtOnce * plan.results(), model.get<attr::vocab>(),
                                                       planned.reducing.numberBytes, plan.ctas, ir::mostVocab(module)) +
                                        plan.kept.bytes;
    }
    ir::walk(model.region(), [&](const Operation &op) {
      if (op.op != Op::Attention)
        return;
      const shape::Attention attention = shapeOf(op);
      planned.attention.units =
          std::max<int64_t>(planned.attention.units, attention.mostUnits(plan.rowsAtOnce, plan.ctas));
      planned.attention.unitBytes = std::max<int64_t>(planned.attention.unitBytes, attention.unitBytes());
    });
    plan.flaggedBytes = planned.attention.offset + roundUp(planned.attention.bytes(), 256);
    for (Matrix &m : planned.matrices)
      if (m.unitParts == 1) {
        m.partsOffset = plan.flaggedBytes;
        m.partsDone = m.partsOffset + m.units() * unitPartBytes(m.group);
        plan.flaggedBytes = m.partsDone + roundUp(m.sets() * 4, 256);
      }
    planWideAttention(planned, model);
    for (Buffer &b : planned.buffers)
      if (b.windows) {
        b.counterOffset = roundUp(plan.flaggedBytes, 256);
        b.imageOffset = b.counterOffset + roundUp(b.instances * kCounterBytes, 256);
        b.imageBytes = imageBytes(b.columns);
        plan.flaggedBytes = b.imageOffset + b.instances * b.imageBytes;
      }
    if (plan.wide()) {
      planned.wide.edge = plan.edges.size();
      plan.edges.push_back({"rows of a whole pass", {}, Edge::Count});
      planned.wide.doneOffset = roundUp(plan.flaggedBytes, 256);
      plan.flaggedBytes =
          planned.wide.doneOffset + roundUp(ceilDiv<int64_t>(plan.rowsPerPass, kWideCountedRows) * 4, 256);
      planned.wide.partsOffset = plan.flaggedBytes;
      planned.wide.partBytes = partsOfWide(planned, model);
      plan.flaggedBytes += plan.ctas * planned.wide.partBytes;
      for (Buffer &b : planned.buffers)
        if (b.wideBytes) {
          b.wideOffset = plan.flaggedBytes;
          plan.flaggedBytes += b.wideInstances() * b.wideBytes;
        }
    }
    plan.flaggedBytes = plan.models.size() > 1 ? roundUp(plan.flaggedBytes, 256) : plan.flaggedBytes;
  }

  /// Bytes of a CTA for attention's parts of more than eight rounds in passes that run whole.
  int64_t partsOfWide(const ModelPlan &planned, const Operation &model) const {
    const Operation *pool = module.find(Op::Pool, planned.name);
    const int64_t positions = pool ? pool->get<attr::pages>() * pool->get<attr::page_tokens>() : 0;
    return (partLevels(positions) - 1) * wideLevelBytes(model.get<attr::head_dim>());
  }

  /// Attention of many rows of a slot, where there is room for it: units for each CTA, or as many as the pool's
  /// positions make.
  void planWideAttention(ModelPlan &planned, const Operation &model) {
    ir::walk(model.region(), [&](const Operation &op) {
      if (op.op != Op::Attention || plan.rowsAtOnce <= kTileRows || !plan.knobs.wide)
        return;
      shape::WideAttention wide = {shapeOf(op)};
      wide.of.e4m3 = planned.kvInE4m3;
      const int64_t room = plan.shared.scratchBytes + plan.ring.wideLentStages * plan.ring.stageBytes;
      if (!wide.fits(room, plan.ring.stageBytes, plan.ring.stages - plan.ring.wideLentStages))
        return;
      planned.wideLevels = wide.levels(room);
      const Operation *pool = module.find(Op::Pool, model.name);
      const int64_t rounds =
          pool ? ceilDiv<int64_t>(pool->get<attr::pages>() * pool->get<attr::page_tokens>(), kRound) : 1;
      planned.wideAttention.units =
          std::min<int64_t>(kWideUnits * plan.ctas, wide.of.tilesOfRows() * plan.rowsAtOnce * rounds);
      planned.wideAttention.offset = plan.flaggedBytes;
      planned.wideAttention.unitBytes = wide.unitBytes();
      plan.flaggedBytes += planned.wideAttention.units * planned.wideAttention.unitBytes;
    });
  }

  /// Bytes that the operands of passes of several rows should have: no more than 16 of the longest rows.
  int64_t operandsWanted() const {
    int64_t longest = 0;
    forMatrices([&](const Matrix &m) { longest = std::max(longest, m.kPadded * 2); });
    return plan.knobs.operands ? roundUp(plan.knobs.operands, kBlockBytes)
                               : std::min<int64_t>(kTileRows * longest, 65536);
  }

  /// What a pass of one row needs: its operand as far as it stays in registers until it is there
  /// (Operand::single), or what is taken of the stream at a time. Several rows need at least a chunk's
  /// columns of 16.
  bool planScratch(int64_t attentionOfOne, int64_t attentionOfAll) {
    int64_t ofOne = 0, ofSeveral = operandBytes(1, kTileRows);
    forMatrices([&](const Matrix &m) {
      const int64_t taken = operandBytes(std::min<int64_t>(kChunksTaken, m.blocks / m.chunkBlocks) * m.chunkBlocks, 1);
      ofOne = std::max<int64_t>(
          {ofOne, taken, m.kPadded <= kMostColumnsHeld ? std::min(m.kPadded * 2, operandsWanted()) : 0});
      ofSeveral = std::max<int64_t>(ofSeveral, operandBytes(m.chunkBlocks, kTileRows));
    });
    ofOne = roundUp(std::max(sumBytes(1) + ofOne, attentionOfOne), 128);
    if (plan.reduces())
      ofOne = std::max<int64_t>(ofOne, kSelectionScratchBytes);
    ofSeveral = roundUp(std::max(sumBytes(kTileRows) + ofSeveral, attentionOfAll), 128);
    plan.shared.scratchBytes = ofOne;
    if (!planRing(std::max(sumBytes(kTileRows) + operandsWanted(), ofSeveral)))
      return false;
    if (plan.shared.scratchBytes + plan.ring.lentStages * plan.ring.stageBytes < ofSeveral) {
      plan.shared.scratchBytes = std::max(ofOne, ofSeveral); // too few stages to lend
      if (!planRing(sumBytes(kTileRows) + operandsWanted()))
        return false;
    }
    plan.ring.lentRows = kTileRows;
    return plan.rowsAtOnce <= kTileRows || planWindows();
  }

  /// Bytes of attention's scratch in a pass of so many rows, where parts stand as in one of all rows.
  int64_t needsOfAttention(int64_t rows) const {
    int64_t needs = 0;
    for (const Operation *model : models)
      ir::walk(model->region(), [&](const Operation &op) {
        if (op.op != Op::Attention)
          return;
        const shape::Attention attention = shapeOf(op);
        needs = std::max<int64_t>(
            {needs, attention.nodeBytes(), attention.scratch(plan.rowsAtOnce).ownValues + rows * attention.rowBytes()});
      });
    return needs;
  }
  /// Windows of activations that fit, whatever the rows of a pass: as of Windows of device/Windows.cuh.
  int64_t windows() const {
    int64_t fit = kMostWindows;
    for (int64_t rows = kRowStep; rows <= plan.wideRows; rows *= 2) {
      const int64_t lent = rows > plan.ring.lentRows ? plan.ring.wideLentStages : plan.ring.lentStages;
      fit = std::min<int64_t>(fit, (plan.shared.scratchBytes + lent * plan.ring.stageBytes - unitSumBytes(rows)) /
                                       windowBytes(plan.wideRows));
    }
    return fit;
  }
  /// Passes of 2 to kFewRows rows lend no more stages than they need: for what all passes of up to 16 rows take for
  /// granted, for operands that are all there at a time, and for attention. Those of a row step, neither. Of short
  /// layers a longer ring is slower: what the producer copies ahead delays the words that CTAs wait for.
  ///
  /// Passes of more rows of a row tile lend more, where that lets operands be there at a time. Else each group of tiles
  /// has them brought in windows, once more.
  void planFewRows() {
    plan.ring.fewLentStages = plan.ring.stepLentStages = plan.ring.tallLentStages = plan.ring.lentStages;
    if (plan.knobs.lend == 0 || (plan.knobs.lend == 1 && !hasLongLayers()))
      return;
    const auto room = [&](int64_t lent) {
      return plan.shared.scratchBytes + lent * plan.ring.stageBytes - sumBytes(kTileRows);
    };
    const int64_t all = room(plan.ring.lentStages);
    int64_t needs = 0;
    forMatrices([&](const Matrix &m) {
      const bool fits = operandBytes(m.blocks, kFewRows) <= all;
      needs = std::max<int64_t>(needs, operandBytes(fits ? m.blocks : std::min(m.blocks, 2 * m.chunkBlocks), kFewRows));
    });
    needs = std::max(needs, needsOfAttention(kFewRows) - sumBytes(kTileRows));
    const auto least = [&](int64_t bytes, int64_t most) { // stages
      int64_t lent = 0;
      while (lent < most && room(lent) < bytes)
        ++lent;
      return lent;
    };
    constexpr int64_t leastRing = 3; // stages
    forMatrices([&](const Matrix &m) {
      if (!plan.wideRows) // no pass starts again
        return;
      const int64_t bytes = operandBytes(m.blocks, kTileRows), lent = least(bytes, plan.ring.stages - leastRing);
      if (room(lent) >= bytes)
        plan.ring.tallLentStages = std::max(plan.ring.tallLentStages, lent);
    });
    plan.ring.fewLentStages = least(needs, plan.ring.lentStages);
    if (plan.wideRows)
      plan.ring.stepLentStages =
          least(std::max<int64_t>(needsOfAttention(kRowStep),
                                  unitSumBytes(kRowStep) + windows() * windowBytes(plan.wideRows)) -
                    sumBytes(kTileRows),
                plan.ring.lentStages);
  }

  /// Passes of more than one row tile: as many of their rows at a time as leave the ring half of its stages, for the
  /// sums of a unit and three windows of activations, or two (device/Windows.cuh).
  bool planWindows() {
    const auto bytes = [](int64_t rows, int64_t windows) { return unitSumBytes(rows) + windows * windowBytes(rows); };
    const int64_t spare =
        plan.profile.sharedBytes - plan.shared.bytes; // where the ring has all stages that it may have
    const int64_t most = std::max(plan.ring.lentStages, plan.ring.stages - std::max<int64_t>(2, plan.ring.stages / 2)) *
                         plan.ring.stageBytes;
    plan.wideRows = kRowStep;
    while (plan.wideRows < plan.rowsAtOnce && plan.wideRows < plan.profile.wideRows)
      plan.wideRows *= 2;
    while (plan.wideRows > kRowStep && bytes(plan.wideRows, 3) > plan.shared.scratchBytes + most + spare)
      plan.wideRows /= 2;
    const int64_t least = bytes(plan.wideRows, 2),
                  wanted = std::max(least, std::min(bytes(plan.wideRows, 3), plan.shared.scratchBytes + most + spare));
    const int64_t more = roundUp(std::max<int64_t>(0, wanted - plan.shared.scratchBytes - most), 128);
    if (more > spare) {
      plan.shared.scratchBytes = roundUp(least, 128);
      if (!planRing(least))
        return false;
    } else {
      plan.shared.scratchBytes += more;
      plan.shared.bytes += more;
    }
    // Windows are as large in a pass of fewer rows, which have more columns there; but a unit has fewer sums.
    const int64_t ofFew = plan.shared.scratchBytes + plan.ring.lentStages * plan.ring.stageBytes,
                  windows = bytes(plan.wideRows, 3) - bytes(plan.wideRows, 0);
    for (int64_t rows = kRowStep; rows <= plan.wideRows && bytes(rows, 0) + windows <= ofFew; rows *= 2)
      plan.ring.lentRows = rows;
    plan.ring.wideLentStages = std::max(
        plan.ring.lentStages,
        (std::max<int64_t>(0, wanted - plan.shared.scratchBytes) + plan.ring.stageBytes - 1) / plan.ring.stageBytes);
    return true;
  }

  /// Passes of more than kMaxRows rows that run whole: their shared memory begins after what other passes need again.
  /// After it no pass finds its draws, scratch or ring as they were. False when there is no room.
  bool planWide() {
    const int64_t begin = roundUp(otherSharedBytes(plan) - drawsBytes(plan), kWideAlignment);
    plan.shared.bytes = std::max(plan.shared.bytes, begin + kWideBytes + plan.shared.controlBytes);
    return plan.shared.bytes <= plan.profile.sharedBytes;
  }
  /// Whether the models have such passes: all of them, or none.
  void chooseWide() {
    if (plan.rowsPerPass > kMaxRows)
      for (auto [planned, model] : llvm::zip(plan.models, models))
        planWidePasses(plan, planned, module, *model);
    const auto refused =
        llvm::find_if(plan.models, [](const ModelPlan &planned) { return !planned.wide.refused.empty(); });
    if (refused != plan.models.end())
      refuseWide(fmt::format("those of `{}` do", refused->name));
  }
  void refuseWide(const std::string &why) {
    for (ModelPlan &planned : plan.models)
      if (planned.wide.refused.empty())
        planned.wide.refused = why;
  }

  /// So many copies are under way as the memory brings in the time that a copy takes (Little's law). Fewer bring less,
  /// and each one more delays the words that CTAs wait for. Too few cost more than too many. A ring of smaller chunks,
  /// for which no time was measured, has the 4 at least that it had on an H200.
  void planFlight() {
    constexpr int64_t wholeChunk = 16384;
    const bool longLayers = hasLongLayers();
    const double ns = longLayers ? plan.profile.copyNsOfLongLayers : plan.profile.copyNs,
                 bytes = plan.profile.bandwidth * ns; // GB/s are bytes per ns
    const int64_t copies = std::lround(bytes / double(plan.profile.smCount * wholeChunk));
    const int64_t least = plan.ring.stageBytes < wholeChunk ? 4 : longLayers ? 3 : 2;
    plan.ring.flight = plan.knobs.flight ? plan.knobs.flight : std::max(least, copies);
  }

  /// Whether a layer's weights fill the rings of all CTAs twice.
  bool hasLongLayers() const {
    int64_t ofLayer = 0; // of the largest model: most of the time is its
    for (const ModelPlan &planned : plan.models) {
      int64_t bytes = 0;
      for (const Matrix &m : planned.matrices)
        bytes += m.layers ? m.bytes : 0;
      ofLayer = std::max(ofLayer, bytes);
    }
    return ofLayer >= 2 * plan.ring.stages * plan.ring.stageBytes * plan.ctas;
  }

  template <class Fn> void forMatrices(Fn fn) const {
    for (const ModelPlan &planned : plan.models)
      for (const Matrix &m : planned.matrices)
        fn(m);
  }

  /// The ring, and how much of it is lent so that several rows have `wanted` bytes of scratch: it
  /// keeps half of them, or two. False when there is no room.
  bool planRing(int64_t wanted) {
    plan.shared.controlBytes = controlRoom(module);
    const int64_t control = plan.shared.controlBytes + otherSharedBytes(plan);
    const int64_t beside = control + plan.shared.scratchBytes;
    const int64_t fit = std::min<int64_t>(kMostStages, (plan.profile.sharedBytes - beside) / plan.ring.stageBytes);
    plan.ring.stages = plan.knobs.ring ? plan.knobs.ring : fit;
    if (fit < 2) {
      const Operation *cause = module.find(Op::Param, control > plan.shared.scratchBytes ? "slots" : "rows_per_pass");
      diags.report(Diag::PlanRoom, cause ? cause->loc : SourceLoc(), plan.profile.name, plan.profile.sharedBytes,
                   beside + 2 * plan.ring.stageBytes, control, module.param("slots"), module.all(Op::Gauge).size(),
                   plan.shared.scratchBytes, plan.rowsAtOnce, 2 * plan.ring.stageBytes,
                   control > plan.shared.scratchBytes ? "slots" : "rows_per_pass");
      return false;
    }
    if (plan.ring.stages < 2 || plan.ring.stages > fit) {
      diags.report(Diag::PlanShared, {}, plan.ring.stages, plan.ring.stageBytes, plan.profile.name, fit);
      return false;
    }
    plan.shared.bytes = plan.ring.stages * plan.ring.stageBytes + beside;
    const int64_t lacking = std::max<int64_t>(0, wanted - plan.shared.scratchBytes);
    plan.ring.lentStages = std::min((lacking + plan.ring.stageBytes - 1) / plan.ring.stageBytes,
                                    plan.ring.stages - std::max<int64_t>(2, plan.ring.stages / 2));
    return true;
  }
};

} // namespace

int Plan::ctaThreads() const { return wide() ? shape::kWideCtaThreads : shape::kCtaThreads; }

int64_t Plan::passBytes() const {
  int64_t places = 0; // that the longest path of a row has
  for (const ModelPlan &m : models)
    places = std::max(places, m.pathPlaces);
  return asksMore ? pathsBegin() + pathBytes(rowsAtOnce, places) : shape::passBytes(rowsAtOnce);
}

void layOut(Plan &plan, const ir::Module &module, llvm::ArrayRef<const Operation *> models, Diagnostics &diags) {
  Layout(plan, module, models, diags).run();
}

} // namespace megalith::plan
