#include "Layout.h"
#include "llvm/ADT/STLExtras.h"
#include <cmath>
#include <set>

namespace megalith::plan {

using ir::Op;
using ir::Operation;
namespace attr = ir::attr;
using ir::Scalar;

namespace {

/// Bytes of shared memory beside ring and scratch: the launch's parameters, PassShared, RingShared, GridEdges and the
/// warps' places with the gaps between them (11,088 bytes), seats of up to 1,584 bytes, and control's state, of which some
/// words stand for each slot. The
/// emitted source asserts that it suffices.
int64_t controlShared(const ir::Module &module) {
  const int64_t slots = module.param("slots"), gauges = module.all(Op::Gauge).size();
  int64_t ofSlot = (slots <= 64 ? 136 : 92) + 4 * std::max<int64_t>(1, gauges); // ControlState::atHand
  if (llvm::any_of(module.all(Op::Pool), [](const Operation *pool) { return pool->get<attr::on_full>() == "wait"; }))
    ofSlot += 4; // promises
  return 12672 + ofSlot * slots;
}
constexpr int64_t kGroupsAtOnce = 4; ///< of Stream.cuh
constexpr int64_t kChunksTaken = 4;  ///< of Operand.cuh
/// Two buffers of Stream.cuh's sums: of one row for several groups of tiles, of several rows for one.
constexpr int64_t kSumBytesOfOne = 2 * 8 * kGroupsAtOnce * kMostTiles * 8 * 4;
constexpr int64_t kSumBytes = 2 * 8 * kMostTiles * kTileRows * 8 * 4;

class Layout {
public:
  Layout(Plan &plan, const ir::Module &module, Diagnostics &diags) : plan(plan), module(module), diags(diags) {}

  void run(const Operation &model) {
    int64_t offset = 0;
    plan.stageBytes = 4096;
    for (Matrix &m : plan.matrices) {
      m.offset = offset;
      offset += m.bytes * std::max<int64_t>(1, m.layers);
      plan.stageBytes = std::max(plan.stageBytes, m.group * m.chunkBlocks * 4096);
    }
    std::set<std::string> done;
    ir::walk(model.region(), [&](const Operation &op) {
      if (op.op != Op::WeightGet || !done.insert(op.name).second)
        return;
      for (const Operation &weight : model.region().ops)
        if (weight.op == Op::Weight && weight.name == op.name) {
          const int64_t length = weight.get<attr::shape>()[0], layers = weight.get<attr::layers>();
          plan.vectors.push_back({op.name, length, layers, offset, roundUp(length * 2, 128)});
          offset += plan.vectors.back().bytes * std::max<int64_t>(1, layers);
        }
    });
    plan.streamBytes = offset;
    ir::walk(model.region(), [&](const Operation &op) {
      if (op.op != Op::Embed || plan.tokenTable)
        return;
      for (const Operation &weight : model.region().ops)
        if (weight.op == Op::Weight && weight.name == op.name && !weight.get<attr::layers>()) {
          const auto shape = weight.get<attr::shape>();
          plan.tokenTable = {op.name, shape[0], shape[1] * 2};
        }
    });
    ir::walk(model.region(), [&](const Operation &op) { // at least the keys of 32 positions
      if (op.op == Op::Attention)
        plan.stageBytes = std::max(plan.stageBytes, 64 * op.get<attr::dim>());
    });
    offset = 0;
    const auto place = [&](bool windows, bool several) {
      for (Buffer &b : plan.buffers) {
        if (b.windows != windows || b.several != several)
          continue;
        b.offset = offset;
        b.bytes = roundUp(b.stride * (b.dtype == Scalar::F32 ? 4 : 2), 128);
        offset += b.bytes * b.instances;
      }
      return offset;
    };
    // What passes of one row write lies together, and so does what those of more than one row tile write.
    plan.wideBegin = place(true, false);
    plan.narrowBytes = place(false, false);
    plan.wideEnd = place(false, true);
    place(true, true);
    plan.rowBytes = offset;
    plan.setBytes = plan.rowBytes * plan.rowsPerPass;
    plan.workspaceBytes = 2 * plan.setBytes;
    plan.bestOffset = roundUp((1 + 2 * plan.rowsPerPass) * 16, 256); // the words of Pass.cuh
    plan.sumsOffset = plan.bestOffset + roundUp(plan.rowsPerPass * plan.ctas * 16, 256);
    plan.mostUnits = 0;

    int64_t ofOneRow = 0, ofAllRows = 0, unitBytes = 0; // shared memory of attention
    ir::walk(model.region(), [&](const Operation &op) {
      if (op.op != Op::Attention)
        return;
      const int64_t group = op.get<attr::heads>() / op.get<attr::kv_heads>(), dim = op.get<attr::dim>();
      const int64_t tilesOfRows = op.get<attr::kv_heads>() * ((group + 15) / 16), pieces = (dim + 31) / 32;
      // Four units for each CTA beside one of each tile (planRanges of AttentionPlan.cuh).
      plan.mostUnits = std::max(plan.mostUnits, 4 * plan.ctas + plan.rowsPerPass * tilesOfRows);
      unitBytes = std::max(unitBytes, 8 * 16 * (dim + 2));
      // AttentionShape::scratchBytes: queries, maxima and sums, outputs of the leaves, own rows; or
      // 32 nodes of ranges that are put together.
      const int64_t outputs = 8 * 8 * 64 * 4, twoRounds = 2 * ((dim + 63) / 64) * 8 * std::min<int64_t>(group, 16) * 64 * 4;
      const auto scratch = [&](int64_t queries, int64_t pairs, int64_t outputs, int64_t ownRows) {
        return queries * (pieces * 64 + (pieces % 2 ? 0 : 64)) + 4 * pairs * 8 * 4 + outputs + 2 * ownRows * 2 * dim;
      };
      const int64_t together = group <= 4 ? 4 : 2;
      ofOneRow = std::max({ofOneRow, 32 * (dim + 2) * 4,
                           group <= 8 && twoRounds <= 20480 ? scratch(together * group, 8, twoRounds, together)
                                                            : scratch(16, 16, outputs, 1)});
      ofAllRows = std::max({ofAllRows, scratch(16, 16, outputs, plan.rowsPerPass), ofOneRow});
    });
    if (!planScratch(ofOneRow, ofAllRows))
      return;
    planFlight();
    plan.sumsBytes = plan.mostUnits * unitBytes;
    plan.taggedBytes = plan.sumsOffset + roundUp(plan.sumsBytes, 256);
    for (Matrix &m : plan.matrices)
      if (m.unitParts == 1) {
        m.partsOffset = plan.taggedBytes;
        m.partsDone = m.partsOffset + m.units() * 8 * m.group * kMaxRows * 8 * 4;
        plan.taggedBytes = m.partsDone + roundUp(m.sets() * 4, 256);
      }
    planWideAttention(model);
    for (Buffer &b : plan.buffers)
      if (b.windows) {
        b.counterOffset = roundUp(plan.taggedBytes, 256);
        b.imageOffset = b.counterOffset + roundUp(b.instances * kCounterBytes, 256);
        b.imageBytes = roundUp(b.columns, 256) * 2 * kMaxRows * (b.columns % 256 ? 2 : 1); // OperandImage
        plan.taggedBytes = b.imageOffset + b.instances * b.imageBytes;
      }
  }

private:
  Plan &plan;
  const ir::Module &module;
  Diagnostics &diags;

  /// Attention of many rows of a slot, where a thread has registers for it, and shared memory has room for the keys of a
  /// round and the values of a leaf: the conditions of WideTile (device/WideAttention.cuh). Eight units for each CTA, or as
  /// many as the pool's positions make.
  void planWideAttention(const Operation &model) {
    ir::walk(model.region(), [&](const Operation &op) {
      if (op.op != Op::Attention || plan.rowsPerPass <= kTileRows || !plan.knobs.wide)
        return;
      constexpr int64_t round = 256, threads = 256, leaf = 4096, spoiled = 32;
      const int64_t dim = op.get<attr::dim>(), pieces = (dim + 31) / 32, slabs = (dim + 63) / 64;
      int64_t keys = round; // of a chunk
      while (keys * dim * 2 > plan.stageBytes)
        keys /= 2;
      const int64_t left = plan.stages - plan.wideLentStages, room = plan.scratchBytes + plan.wideLentStages * plan.stageBytes;
      const int64_t least = round / 8 * pieces * 512 + spoiled + leaf;
      if (dim > 128 || keys < 64 || round / keys > left || room < least)
        return;
      plan.wideLevels = slabs == 1 && room >= least + threads * 2 * 5 * 16; // what a thread keeps of two pairs
      const int64_t tilesOfRows = op.get<attr::kv_heads>() * ((op.get<attr::heads>() / op.get<attr::kv_heads>() + 15) / 16);
      const Operation *pool = module.find(Op::Pool, model.name);
      const int64_t rounds = pool ? (pool->get<attr::pages>() * pool->get<attr::page_tokens>() + round - 1) / round : 1;
      plan.wideUnits = std::min(8 * plan.ctas, tilesOfRows * plan.rowsPerPass * rounds);
      plan.wideSumsOffset = plan.taggedBytes;
      plan.wideUnitBytes = slabs * kWideUnitBytes;
      plan.taggedBytes += plan.wideUnits * plan.wideUnitBytes;
    });
  }

  /// Bytes that the operands of passes of several rows should have: no more than 16 of the longest rows.
  int64_t operandsWanted() const {
    int64_t longest = 0;
    for (const Matrix &m : plan.matrices)
      longest = std::max(longest, m.kPadded * 2);
    return plan.knobs.operands ? roundUp(plan.knobs.operands, 4096) : std::min<int64_t>(16 * longest, 65536);
  }

  /// What a pass of one row needs: its operand as far as it stays in registers until it is there
  /// (Operand::single), or what is taken of the stream at a time. Several rows need at least a chunk's
  /// columns of 16.
  bool planScratch(int64_t attentionOfOne, int64_t attentionOfAll) {
    int64_t ofOne = 0, ofSeveral = 8 * 64 * kTileRows;
    for (const Matrix &m : plan.matrices) {
      const int64_t taken = std::min(kChunksTaken, m.blocks / m.chunkBlocks) * m.chunkBlocks * 8 * 64;
      ofOne = std::max({ofOne, taken, m.kPadded <= 16384 ? std::min(m.kPadded * 2, operandsWanted()) : 0});
      ofSeveral = std::max(ofSeveral, m.chunkBlocks * 8 * 64 * 16);
    }
    ofOne = roundUp(std::max(kSumBytesOfOne + ofOne, attentionOfOne), 128);
    ofSeveral = roundUp(std::max({kSumBytes + ofSeveral, attentionOfAll}), 128);
    plan.scratchBytes = ofOne;
    if (!planRing(std::max(kSumBytes + operandsWanted(), ofSeveral)))
      return false;
    if (plan.scratchBytes + plan.lentStages * plan.stageBytes < ofSeveral) {
      plan.scratchBytes = std::max(ofOne, ofSeveral); // too few stages to lend
      if (!planRing(kSumBytes + operandsWanted()))
        return false;
    }
    return plan.rowsPerPass <= kTileRows || planWide();
  }

  /// Passes of more than one row tile: as many of their rows at a time as leave the ring half of its stages, for the sums of a unit
  /// and three windows of activations, or two (device/Windows.cuh).
  bool planWide() {
    const auto bytes = [](int64_t rows, int64_t windows) { return rows * (8 * kMostTiles * 8 * 4 + windows * 2 * 64); };
    const int64_t spare = plan.profile.sharedBytes - plan.sharedBytes; // where the ring has all stages that it may have
    const int64_t most = std::max(plan.lentStages, plan.stages - std::max<int64_t>(2, plan.stages / 2)) * plan.stageBytes;
    plan.wideRows = 32;
    while (plan.wideRows < plan.rowsPerPass && plan.wideRows < plan.profile.wideRows)
      plan.wideRows *= 2;
    while (plan.wideRows > 32 && bytes(plan.wideRows, 3) > plan.scratchBytes + most + spare)
      plan.wideRows /= 2;
    const int64_t least = bytes(plan.wideRows, 2), wanted = std::max(least, std::min(bytes(plan.wideRows, 3), plan.scratchBytes + most + spare));
    const int64_t more = roundUp(std::max<int64_t>(0, wanted - plan.scratchBytes - most), 128);
    if (more > spare) {
      plan.scratchBytes = roundUp(least, 128);
      if (!planRing(least))
        return false;
    } else {
      plan.scratchBytes += more;
      plan.sharedBytes += more;
    }
    // Windows are as large in a pass of fewer rows, which have more columns there; but a unit has fewer sums.
    const int64_t ofFew = plan.scratchBytes + plan.lentStages * plan.stageBytes, windows = bytes(plan.wideRows, 3) - bytes(plan.wideRows, 0);
    for (int64_t rows = 32; rows <= plan.wideRows && bytes(rows, 0) + windows <= ofFew; rows *= 2)
      plan.manyRows = rows;
    plan.wideLentStages = std::max(plan.lentStages, (std::max<int64_t>(0, wanted - plan.scratchBytes) + plan.stageBytes - 1) / plan.stageBytes);
    return true;
  }

  /// What is under way is what the memory brings in the time that a copy takes (Little's law): fewer copies bring less, and each one more
  /// delays the words that CTAs wait for. Where a layer fills the rings twice or more the stream counts for more than the words. Both times are
  /// those of whole chunks on an H200 (5 and 4 copies) and an H100 (3 and 2): docs/performance-log.md. Too few cost more than too many. A ring of
  /// smaller chunks, for which no time was measured, has the 4 at least that it had on an H200.
  void planFlight() {
    constexpr int64_t wholeChunk = 16384;
    int64_t ofLayer = 0;
    for (const Matrix &m : plan.matrices)
      ofLayer += m.layers ? m.bytes : 0;
    const bool longLayers = ofLayer >= 2 * plan.stages * plan.stageBytes * plan.ctas;
    const double ns = longLayers ? 2250 : 1600, bytes = plan.profile.bandwidth * ns; // GB/s are bytes per ns
    const int64_t copies = std::lround(bytes / double(plan.profile.smCount * wholeChunk));
    const int64_t least = plan.stageBytes < wholeChunk ? 4 : longLayers ? 3 : 2;
    plan.flight = plan.knobs.flight ? plan.knobs.flight : std::max(least, copies);
  }

  /// The ring, and how much of it is lent so that several rows have `wanted` bytes of scratch: it
  /// keeps half of them, or two. False when there is no room.
  bool planRing(int64_t wanted) {
    const int64_t control = controlShared(module);
    const int64_t beside = control + plan.scratchBytes;
    const int64_t fit = std::min<int64_t>(16, (plan.profile.sharedBytes - beside) / plan.stageBytes);
    plan.stages = plan.knobs.ring ? plan.knobs.ring : fit;
    if (fit < 2) {
      const Operation *cause = module.find(Op::Param, control > plan.scratchBytes ? "slots" : "rows_per_pass");
      diags.report(Diag::PlanRoom, cause ? cause->loc : SourceLoc(), plan.profile.name, plan.profile.sharedBytes,
                   beside + 2 * plan.stageBytes, control, module.param("slots"), module.all(Op::Gauge).size(),
                   plan.scratchBytes, plan.rowsPerPass, 2 * plan.stageBytes,
                   control > plan.scratchBytes ? "slots" : "rows_per_pass");
      return false;
    }
    if (plan.stages < 2 || plan.stages > fit) {
      diags.report(Diag::PlanShared, {}, plan.stages, plan.stageBytes, plan.profile.name, fit);
      return false;
    }
    plan.sharedBytes = plan.stages * plan.stageBytes + beside;
    const int64_t lacking = std::max<int64_t>(0, wanted - plan.scratchBytes);
    plan.lentStages = std::min((lacking + plan.stageBytes - 1) / plan.stageBytes, plan.stages - std::max<int64_t>(2, plan.stages / 2));
    return true;
  }
};

} // namespace

void layOut(Plan &plan, const ir::Module &module, const Operation &model, Diagnostics &diags) {
  Layout(plan, module, diags).run(model);
}

} // namespace megalith::plan
