//===- Layout.h - where the planned values stand in memory ----------------===//
#ifndef MEGALITH_LIB_PLAN_LAYOUT_H
#define MEGALITH_LIB_PLAN_LAYOUT_H

#include "megalith/Plan/Plan.h"

namespace megalith::plan {

inline int64_t roundUp(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

/// Tiles of a group, at most (kMostTiles of Stream.cuh).
constexpr int64_t kMostTiles = 2;

/// Behind the plan of phases and matrices: lays matrices and vectors into the stream, buffers into a row's
/// record, tagged words, and a CTA's shared memory. Reports Diag::PlanShared when that has no room.
void layOut(Plan &plan, const ir::Module &module, const ir::Operation &model, Diagnostics &diags);

/// Whether all that `map` makes is for `attention`, and that can make it head by head (HeadMaps.cpp). What the map reads
/// has its place in `plan`.
bool isMadeByAttention(const Plan &plan, const ir::Module &module, const ir::Operation &map, const ir::Operation &attention);

} // namespace megalith::plan
#endif
