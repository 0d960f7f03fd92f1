//===- Vectors.h - elementwise operations as C++ expressions --------------===//
#ifndef MEGALITH_LIB_EMIT_VECTORS_H
#define MEGALITH_LIB_EMIT_VECTORS_H

#include "Tensor.h"
#include <functional>
#include <memory>
#include <set>

namespace megalith::emit {

/// What stays the same while one fused group is written.
struct Group {
  const ir::Module &module;
  const plan::ModelPlan &planned;
  const Names &names;
  const ir::Region &region;
  std::map<uint32_t, const ir::Operation *> defs; ///< value -> defining operation in the region
  std::vector<unsigned> uses;

  Group(const ir::Module &module, const plan::ModelPlan &planned, const Names &names, const ir::Region &region);
  const ir::Operation *def(ir::Value v) const {
    auto it = defs.find(v.id);
    return it == defs.end() ? nullptr : it->second;
  }
  /// Operations of the region that `v` depends on, in order, `v`'s own included.
  std::vector<const ir::Operation *> slice(ir::Value v) const;
};

/// Which columns of a head an operation of rotary embedding pairs, as the device code's template arguments.
std::string headPairs(const ir::Operation &op);

/// Writes values of one row at one place: eight columns `c`, `c+1`, ... or the
/// pair (c0, c1), or the single column c0; or plain floats, one for each of `columns`
/// blocks of the row, at block `part`. Single-use values are nested into their user;
/// others get a `const auto`.
class Vectors {
public:
  enum Width { Scalar = 0, One = 1, Pair = 2, Eight = 8 };
  /// `columns`: of the values computed here; narrower rows broadcast in blocks. `outer`: whose scope this one is in.
  Vectors(CodeWriter &w, const Group &group, Width width, int64_t columns, std::function<void(SourceLoc)> at,
          const Vectors *outer = nullptr);

  /// Presets a value: a product, a reduction, a per-row scalar. Variables in `expr` are of this scope or of `outer`.
  void bind(ir::Value v, std::string expr) { names[{v.id, false}] = std::move(expr); }
  /// An expression for `v`; `partner`: at the column rotate_half takes from.
  std::string eval(ir::Value v, bool partner = false) { return eval(v, partner, false); }
  /// The same with a variable for it, here.
  void hold(ir::Value v) { eval(v, false, true); }

  /// Both write into one scope: no name is given twice.
  void shareNames(const Vectors &other) { locals = other.locals; }
  /// A new variable for `v`, which is called `otherwise` where the value has no name.
  std::string variable(ir::Value v, llvm::StringRef otherwise, bool partner = false) {
    return locals->variable(group.module.hint(v), otherwise, partner ? "Partner" : "");
  }

  /// From here on the lanes of a warp have a block of columns at once, and a partner's value comes from its lane.
  void byLanes() { lanes = true; }

  /// The same without a variable for it: of what needs no other values.
  std::string expression(ir::Value v) { return compute(*group.def(v), false); }

private:
  CodeWriter &w;
  const Group &group;
  Width width;
  int64_t columns;
  std::function<void(SourceLoc)> at;
  std::map<std::pair<uint32_t, bool>, std::string> names;
  std::shared_ptr<Locals> locals;
  bool lanes = false;

  std::string eval(ir::Value v, bool partner, bool held);
  std::string column(bool partner) const;
  std::string load(ir::Value v, bool partner);
  std::string compute(const ir::Operation &op, bool partner);
};

/// The device function of an elementwise operation; null for others.
const char *elementwiseName(ir::Op op);

} // namespace megalith::emit
#endif
