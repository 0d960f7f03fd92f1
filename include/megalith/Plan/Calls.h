//===- Calls.h - how a call of a pipeline of buffers is dealt --------------===//
//
// Sizes are known when a call comes, so a plan has formulas in dims. The runtime evaluates them (CallManifest.h).
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_PLAN_CALLS_H
#define MEGALITH_PLAN_CALLS_H

#include "megalith/Plan/Plan.h"

namespace megalith::plan {

/// Nanoseconds that items take: `first`, and `step` for each step of the ranges that an item goes through, in each
/// round. A round has as many items as the device takes at once.
struct ItemCosts {
  int64_t first, step, stepNumbers; ///< numbers of a range in a step
  int64_t itemsOfSm;                ///< in a round
};
constexpr ItemCosts laneCosts = {600, 45, 1, 2048}, warpCosts = {650, 120, 128, 64};

struct CallStage {
  const ir::Operation *op;
  bool once = false;                   ///< it has no items
  const ir::Operation *scan = nullptr; ///< all that a stage without items does: the next one may do it for itself
  int64_t copies = 0;                  ///< its items copy and do nothing else: copies are dealt by bytes
  ir::Mapping mapping;                 ///< of `auto` without copies by bytes the costs decide
  std::string low, high;               ///< of its items, as ir::polishOf
  std::string span;                    ///< numbers of the ranges that an item goes through
  std::string copyBytes;               ///< of an item's copies, at most
};

struct CallPlan {
  DeviceProfile profile;
  std::vector<CallStage> stages;
  int64_t sortWords = 0; ///< of a CTA's shared memory, for keys
};

/// nullopt where a kernel cannot do it, after an error.
std::optional<CallPlan> makeCallPlan(const ir::Module &module, const DeviceProfile &profile, Diagnostics &diags);
/// Bytes of the kernel's parameter, see device/CallAbi.h.
int64_t callBytes(const ir::Module &module);
/// For `--emit=plan`.
std::string print(const ir::Module &module, const CallPlan &plan);

} // namespace megalith::plan
#endif
