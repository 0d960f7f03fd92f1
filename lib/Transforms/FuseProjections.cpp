// Matmuls of one operand become one stream: their weights are read in one go and
// the operand once.
#include "TensorUtil.h"
#include "megalith/Transforms/Passes.h"

namespace megalith::transforms {

using namespace ir;

Module fuseProjections(Module module) {
  forEachTensorRegion(module, [&](Operation &, Region &segment, Region &region) {
    std::map<Value, size_t> streamOf; // operand -> index in `ops`
    std::vector<Operation> ops;
    std::vector<size_t> streams;
    for (Operation &op : region.ops) {
      if (op.op != Op::MatMul) {
        ops.push_back(std::move(op));
        continue;
      }
      auto [found, isNew] = streamOf.try_emplace(op.operands[0], ops.size());
      if (isNew) {
        Operation stream;
        stream.op = Op::Stream;
        stream.loc = op.loc;
        stream.regions.resize(1);
        streams.push_back(ops.size());
        ops.push_back(std::move(stream));
      }
      ops[found->second].region().ops.push_back(std::move(op));
    }
    region.ops = std::move(ops);
    for (size_t i : streams)
      closeGroup(module, segment, region.ops[i]);
  });
  return module;
}

} // namespace megalith::transforms
