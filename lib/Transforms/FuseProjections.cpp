// Matmuls of one operand become one stream: their weights are read in one go and
// the operand once. Weights of another format are another stream. What only leads to an argmax is a stream of its own:
// a thread keeps the best of one result, and products for other results go first.
#include "TensorUtil.h"
#include "megalith/Transforms/Passes.h"
#include <algorithm>
#include <tuple>

namespace megalith::transforms {

using namespace ir;

/// The products of a region that lead to an argmax and to nothing else, each to one of its own.
static std::vector<bool> leadToArgMax(const Region &region) {
  const RegionIndex index(region);
  constexpr size_t none = SIZE_MAX;
  std::vector<size_t> argmaxOf(region.ops.size(), none);
  std::map<size_t, int> products; // of an argmax
  for (size_t i = region.ops.size(); i-- > 0;) {
    const Operation &op = region.ops[i];
    if (op.op == Op::ArgMax) {
      argmaxOf[i] = i;
    } else if (!op.results.empty()) {
      const std::vector<size_t> &users = index.usersOf(op.result());
      if (!users.empty() && std::all_of(users.begin(), users.end(), [&](size_t user) {
            return argmaxOf[user] == argmaxOf[users[0]] && region.ops[user].op != Op::MatMul;
          }))
        argmaxOf[i] = argmaxOf[users[0]];
    }
    products[argmaxOf[i]] += op.op == Op::MatMul;
  }
  std::vector<bool> lead(region.ops.size(), false);
  for (size_t i = 0; i < region.ops.size(); ++i)
    lead[i] = region.ops[i].op == Op::MatMul && argmaxOf[i] != none && products[argmaxOf[i]] == 1;
  return lead;
}

/// What weights have in common that are packed together.
using Packing = std::tuple<WeightFormat, int64_t, bool, bool>;
static Packing packingOf(const Operation &model, const Operation &product) {
  const WeightScheme scheme = schemeOf(storageOf(model, product.name));
  return {scheme.format, scheme.scaleColumns, scheme.hasGroups(), scheme.zeros};
}

Module fuseProjections(Module module) {
  forEachTensorRegion(module, [&](Operation &model, Region &segment, Region &region) {
    std::map<std::pair<Value, Packing>, size_t> streamOf; // index in `ops`
    std::vector<Operation> ops;
    std::vector<size_t> streams;
    const std::vector<bool> alone = leadToArgMax(region);
    for (size_t i = 0; i < region.ops.size(); ++i) {
      Operation &op = region.ops[i];
      if (op.op != Op::MatMul) {
        ops.push_back(std::move(op));
        continue;
      }
      size_t at = ops.size();
      if (!alone[i])
        at = streamOf.try_emplace({op.operands[0], packingOf(model, op)}, at).first->second;
      if (at == ops.size()) {
        Operation stream;
        stream.op = Op::Stream;
        stream.loc = op.loc;
        stream.regions.resize(1);
        streams.push_back(ops.size());
        ops.push_back(std::move(stream));
      }
      ops[at].region().ops.push_back(std::move(op));
    }
    region.ops = std::move(ops);
    for (size_t i : streams)
      closeGroup(module, segment, region.ops[i]);
  });
  return module;
}

} // namespace megalith::transforms
