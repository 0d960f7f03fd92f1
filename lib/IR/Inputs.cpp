#include "megalith/IR/Inputs.h"

namespace megalith::ir {

static InputValue defaultOf(const Operation &op) {
  if (op.has<attr::rows>()) // it has no rows
    return std::vector<std::vector<int32_t>>();
  if (op.has<attr::capacity>() && op.get<attr::type>() == Scalar::F32) {
    const std::vector<double> &numbers = op.get<attr::numbers>();
    return std::vector<float>(numbers.begin(), numbers.end());
  }
  if (op.has<attr::capacity>()) {
    const std::vector<int64_t> &items = op.get<attr::items>();
    return std::vector<int32_t>(items.begin(), items.end());
  }
  const Number init = op.get<attr::init>();
  if (op.get<attr::type>() == Scalar::F32)
    return init.real();
  if (op.get<attr::type>() == Scalar::Bool)
    return init.truth();
  return init.whole();
}

std::vector<Input> inputsOf(const Module &module) {
  std::vector<Input> inputs;
  for (const Operation *op : module.all(Op::Input)) {
    Input &input = inputs.emplace_back();
    input.name = op->name;
    input.type = word(op->get<attr::type>());
    if (op->has<attr::capacity>())
      input.capacity = op->get<attr::capacity>();
    if (op->has<attr::rows>())
      input.rows = op->get<attr::rows>();
    input.least = op->get<attr::least>();
    input.most = op->get<attr::most>();
    if (op->get<attr::optional>())
      input.otherwise = defaultOf(*op);
  }
  return inputs;
}

} // namespace megalith::ir
