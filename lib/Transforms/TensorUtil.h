//===- TensorUtil.h - what the tensor passes share ------------------------===//
//
// Groups (`stream`, `map`) capture values of the regions around them; only the
// values that are used outside become results. A pass opens a group (its inner
// values stand for its results everywhere), moves operations, and closes it.
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_LIB_TRANSFORMS_TENSORUTIL_H
#define MEGALITH_LIB_TRANSFORMS_TENSORUTIL_H

#include "megalith/IR/IR.h"
#include <map>
#include <set>

namespace megalith::transforms {

/// One value per column from the same column of the operands.
inline bool isElementwise(ir::Op op) { return ir::elementwiseOperands(op) > 0; }
/// A reduction over the columns of a row.
bool isReduction(ir::Op op);
/// Costs nothing, or is a vector that is computed of such: each group that uses it holds a copy.
bool isLeaf(const ir::Module &module, const ir::Operation &op);
/// May stand in a `map`.
bool isRowWise(ir::Op op);

/// Calls `f` with every region that holds tensor code (segments, repeats), inner
/// ones first; `segment` is the region of the segment around it.
void forEachTensorRegion(ir::Module &module,
                         llvm::function_ref<void(ir::Operation &model, ir::Region &segment, ir::Region &region)> f);

/// The values that `op` uses, its regions included, but does not define; in order
/// of first use, each once.
std::vector<ir::Value> capturedValues(const ir::Operation &op);

/// For each value defined or used by the operations of `region` directly, where.
struct RegionIndex {
  explicit RegionIndex(const ir::Region &region);
  /// Index of the defining operation in `region.ops`; -1: defined outside.
  int definedAt(ir::Value v) const;
  /// Indices of the operations that use `v`, their regions included; ascending.
  const std::vector<size_t> &usersOf(ir::Value v) const;

private:
  std::map<ir::Value, int> definitions;
  std::map<ir::Value, std::vector<size_t>> users;
};

/// Makes `op`'s results new values of the same types and maps old to new; operands
/// are mapped where `map` has them.
ir::Operation cloneOperation(ir::Module &module, const ir::Operation &op, std::map<ir::Value, ir::Value> &map);

/// Appends a copy of leaf `at` of `region` to `ops`, after copies of the leaves that it uses. `copies` has those that
/// are there already, and takes these.
void copyLeaf(ir::Module &module, const ir::Region &region, const RegionIndex &index, size_t at,
              std::vector<ir::Operation> &ops, std::map<ir::Value, ir::Value> &copies);

/// Appends `op` to the open `group`, with a copy of each leaf of `region` that it
/// uses. `copies` maps leaves (and whatever the caller put there) to what stands
/// in the group.
void appendToGroup(ir::Module &module, const ir::Region &region, const RegionIndex &index, ir::Region &group,
                   ir::Operation op, std::map<ir::Value, ir::Value> &copies);

/// Removes `group`'s yield and results; its inner values take their places.
void openGroup(ir::Region &segment, ir::Operation &group);
/// Gives `group` the results that are used outside of it, in order of definition.
void closeGroup(ir::Module &module, ir::Region &segment, ir::Operation &group);

/// Removes leaves of `region` that nothing uses.
void removeUnusedLeaves(const ir::Module &module, ir::Region &region);

/// Removes the operations whose index is in `gone`.
void eraseOps(ir::Region &region, const std::set<size_t> &gone);

} // namespace megalith::transforms
#endif
