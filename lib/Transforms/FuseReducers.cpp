// Nobody reads logits but row reducers: those that calls of a model ask for
// become results of its last segment, so that logits never leave it.
#include "TensorUtil.h"
#include "megalith/IR/Calls.h"
#include "megalith/Transforms/Passes.h"

namespace megalith::transforms {

using namespace ir;

/// Whether some call of `model` reads its logits.
static bool readsLogits(const Module &module, llvm::StringRef model) {
  bool reads = false;
  walk(module.root.region(), [&](const Operation &op) {
    reads |= (op.op == Op::Call || op.op == Op::Issue) && op.name == model && !reducersOf(op).empty();
  });
  return reads;
}

Module fuseReducers(Module module) {
  for (Operation &model : module.ops()) {
    if (model.op != Op::Model)
      continue;
    Operation *last = nullptr;
    for (Operation &child : model.region().ops)
      if (child.op == Op::Segment)
        last = &child;
    if (!last)
      continue;
    Region &region = last->region();
    Operation yield = region.ops.back();
    Value logits = yield.operands[0];
    if (!readsLogits(module, model.name) || module.type(logits).elem == Scalar::Token)
      continue;
    region.ops.pop_back();
    Builder b(module, region);
    b.loc = yield.loc;
    yield.operands = {b.value(Op::ArgMax, {logits}, Type::rows(1, Scalar::Token), "argmax")};
    region.ops.push_back(std::move(yield));
  }
  return module;
}

} // namespace megalith::transforms
