// Nobody reads logits but row reducers: those that calls of a model ask for
// become results of its last segment, so that logits never leave it.
#include "TensorUtil.h"
#include "megalith/Transforms/Passes.h"

namespace megalith::transforms {

using namespace ir;

/// The reducers that calls of `model` name, in order of first appearance.
static std::vector<std::string> reducersOf(const Module &module, llvm::StringRef model) {
  std::vector<std::string> reducers;
  walk(module.root.region(), [&](const Operation &op) {
    if ((op.op != Op::Call && op.op != Op::Issue) || op.name != model)
      return;
    for (const std::string &reducer : op.get<attr::reduce>())
      if (std::find(reducers.begin(), reducers.end(), reducer) == reducers.end())
        reducers.push_back(reducer);
  });
  return reducers;
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
    std::vector<std::string> reducers = reducersOf(module, model.name);
    if (reducers.empty() || module.type(logits).elem == Scalar::Token)
      continue;
    region.ops.pop_back();
    yield.operands.clear();
    Builder b(module, region);
    b.loc = yield.loc;
    for (const std::string &reducer : reducers) {
      assert(reducer == "argmax" && "a reducer without a row operation");
      yield.operands.push_back(b.value(Op::ArgMax, {logits}, Type::rows(1, Scalar::Token), reducer));
    }
    region.ops.push_back(std::move(yield));
  }
  return module;
}

} // namespace megalith::transforms
