//===- IndexRanges.h - indices that are known to be inside a buffer --------===//
#ifndef MEGALITH_LIB_EMIT_INDEXRANGES_H
#define MEGALITH_LIB_EMIT_INDEXRANGES_H

#include "megalith/IR/IR.h"
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace megalith::emit {

/// A polynomial in dims. No dim is negative.
class DimSum {
public:
  DimSum() = default;
  static DimSum constant(int64_t value);
  static DimSum dim(const std::string &name);
  DimSum operator+(const DimSum &other) const;
  DimSum operator-(const DimSum &other) const;
  DimSum operator*(const DimSum &other) const;
  /// Bounds by the ranges of the dims. They may be wider than what can be.
  double least(const ir::Module &module) const { return bound(module, false); }
  double most(const ir::Module &module) const { return bound(module, true); }

private:
  double bound(const ir::Module &module, bool most) const;
  std::map<std::vector<std::string>, int64_t> terms; ///< by the dims of a product, in order
};

/// What the indices of a stage can be, in dims.
class IndexRanges {
public:
  IndexRanges(const ir::Module &module, const ir::Operation &items);
  /// Whether the value is a number of dimension `d` of the buffer, whatever the dims are.
  bool inside(ir::Value index, const ir::Operation &buffer, size_t d) const;

private:
  explicit IndexRanges(const ir::Module &module) : module(module) {}
  /// Both are among the values.
  struct Range {
    DimSum low, high;
  };
  std::optional<Range> of(ir::Value v) const;
  void look(const ir::Operation &op);
  void binder(const ir::Region &region, const std::optional<Range> &low, const std::optional<Range> &high);

  const ir::Module &module;
  std::map<uint32_t, Range> known;
};

} // namespace megalith::emit
#endif
