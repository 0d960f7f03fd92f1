#include "megalith/IR/Calls.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>

namespace megalith::ir {

int64_t mostRows(const Module &module, const Operation &call) {
  int64_t rows = module.find(Op::Param, "rows_per_pass") ? module.param("rows_per_pass") : INT64_MAX;
  if (const int64_t fed = module.type(call.operands[0]).size; fed > 0) // 0: no bound of its own
    rows = std::min(rows, fed);
  if (const int64_t chunk = call.get<attr::chunk>(); chunk > 0)
    rows = std::min(rows, chunk);
  return rows;
}

llvm::ArrayRef<Operation> reducersOf(const Operation &call) {
  return call.regions.empty() ? llvm::ArrayRef<Operation>() : llvm::ArrayRef<Operation>(call.region().ops);
}

bool isBestOfAllRows(const Operation &reduce) { return reduce.name == "argmax" && reduce.operands.empty(); }

Value operandNamed(const Operation &reduce, llvm::StringRef name) {
  const std::vector<std::string> &names = reduce.get<attr::with>();
  const auto it = llvm::find(names, name);
  return it == names.end() ? Value() : reduce.operands[it - names.begin()];
}

} // namespace megalith::ir
