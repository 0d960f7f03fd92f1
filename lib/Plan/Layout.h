//===- Layout.h - where the planned values stand in memory ----------------===//
#ifndef MEGALITH_LIB_PLAN_LAYOUT_H
#define MEGALITH_LIB_PLAN_LAYOUT_H

#include "device/Shape.h"
#include "megalith/Plan/Plan.h"

namespace megalith::plan {

using namespace shape;

/// The numbers of an attention.
inline shape::Attention shapeOf(const ir::Operation &attention) {
  return {attention.get<ir::attr::heads>(), attention.get<ir::attr::kv_heads>(), attention.get<ir::attr::dim>()};
}

/// After the plan of phases and matrices: lays matrices and vectors into the stream, buffers into a row's
/// record, flagged words, and a CTA's shared memory. Reports Diag::PlanShared when that has no room.
/// `models` are those of the plan, in its order.
void layOut(Plan &plan, const ir::Module &module, llvm::ArrayRef<const ir::Operation *> models, Diagnostics &diags);

/// Bytes of shared memory beside ring, scratch and control's state: the parameters, and what CTAs keep of the pass, of
/// the ring and of the grid. The emitted source asserts that they suffice, for a scratch of a multiple of 128 bytes.
int64_t otherSharedBytes(const Plan &plan);

/// Of those, in passes that run whole (device/wide), what may be overwritten: draws.
int64_t drawsBytes(const Plan &plan);

/// Whether passes of more than kMaxRows rows of a model need not run in pieces (WidePasses.cpp). Sets planned.wide, and
/// what its buffers are in such passes.
void planWidePasses(const Plan &plan, ModelPlan &planned, const ir::Module &module, const ir::Operation &model);

/// What some call of the model asks for, beyond the best token of each row; null: none does.
const ir::Operation *firstReducer(const ir::Module &module, llvm::StringRef model);

/// Whether all that `map` makes is for `attention`, and that can make it head by head (HeadMaps.cpp). What the map
/// reads has its place in `planned`.
bool isMadeByAttention(const ModelPlan &planned, const ir::Module &module, const ir::Operation &map,
                       const ir::Operation &attention);

} // namespace megalith::plan
#endif
