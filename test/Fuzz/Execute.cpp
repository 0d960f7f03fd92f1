//===- Execute.cpp - modules on the reference executor --------------------===//
#include "Fuzz.h"
#include "megalith/Checkpoint/BFloat16.h"
#include "megalith/Checkpoint/SafetensorsFile.h"
#include "megalith/Reference/Executor.h"
#include "megalith/Transforms/Passes.h"
#include <fmt/format.h>

namespace megalith::fuzz {

using ir::Op;
namespace attr = ir::attr;

namespace {

/// Tensors of small numbers that follow from their name, the same in each run.
class MadeWeights : public reference::WeightSource {
public:
  explicit MadeWeights(const ir::Module &module) {
    for (const ir::Operation *model : module.all(Op::Model))
      for (const ir::Operation &op : model->region().ops)
        if (op.op == Op::Weight && !op.has<attr::alias>())
          for (int64_t layer = 0; layer < ir::tensorsOf(op); ++layer)
            make(model->name + " " + layerTensor(op.get<attr::from>(), layer), ir::storedShape(op));
  }

  const uint16_t *find(const std::string &model, const std::string &name, std::vector<int64_t> &shape) override {
    auto found = tensors.find(model + " " + name);
    if (found == tensors.end())
      return nullptr;
    shape = found->second.shape;
    return found->second.data.data();
  }

private:
  struct Tensor {
    std::vector<int64_t> shape;
    std::vector<uint16_t> data;
  };

  void make(const std::string &name, const std::vector<int64_t> &shape) {
    Tensor &tensor = tensors[name];
    tensor.shape = shape;
    uint64_t state = std::hash<std::string>()(name);
    int64_t count = 1;
    for (int64_t size : shape)
      count *= size;
    for (int64_t i = 0; i < count; ++i) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      tensor.data.push_back(floatToBf16(static_cast<float>(static_cast<int32_t>(state >> 32)) * 0x1p-32f));
    }
  }

  std::map<std::string, Tensor> tensors;
};

/// Whether a few ticks of it take no more than a moment and a few megabytes.
bool isSmall(const ir::Module &module) {
  double elements = 0;
  for (const ir::Operation *model : module.all(Op::Model)) {
    if (model->get<attr::vocab>() < 8)
      return false;
    for (const ir::Operation &op : model->region().ops) {
      if (op.op != Op::Weight)
        continue;
      for (const auto *shape : {&op.get<attr::shape>(), &ir::storedShape(op)}) {
        double own = ir::tensorsOf(op);
        for (int64_t size : *shape)
          own *= size;
        elements += own;
      }
    }
  }
  for (const ir::Operation *pool : module.all(Op::Pool))
    elements += double(pool->get<attr::pages>()) * pool->get<attr::page_tokens>();
  bool small = elements < 800000 && module.param("slots") <= 64;
  // A range goes round up to 2^16 times; in another one, 2^24 times.
  const auto isRange = [](const ir::Operation &op) { return ir::isOverRange(op.op); };
  ir::walk(module.root.region(), [&](const ir::Operation &op) {
    small &= op.op != Op::Repeat || op.get<attr::count>() <= 16;
    small &= op.op != Op::For || !op.has<attr::rounds>(); // a loop of the tick runs after `form-ticks` only
    if (isRange(op))
      ir::walk(op.region(),
               [&](const ir::Operation &inner) { small &= !isRange(inner) && inner.op != Op::NgramLookup; });
  });
  return small;
}

/// The trace of a few ticks, or why there is none.
reference::RunResult run(const ir::Module &module) {
  static const std::vector<Request> requests = {{"a", {1, 2, 3, 1, 2}, 6, std::vector<int32_t>{5}, 0},
                                                {"b", {4}, 3, {}, 1}};
  MadeWeights weights(module);
  reference::Options options;
  options.maxTicks = 16;
  return reference::run(module, weights, requests, options);
}

} // namespace

std::optional<Trace> traceOf(const ir::Module &module) {
  if (!isSmall(module))
    return std::nullopt;
  reference::RunResult result = run(module);
  if (!result.error.empty())
    finding("a whole module cannot be run: " + result.error);
  return std::move(result.trace);
}

void compareRuns(const Trace &before, const ir::Module &after) {
  for (const ir::Operation *model : after.all(Op::Model))
    if (model->get<attr::numerics>() == ir::Numerics::Fused) // rounds less than before
      return;
  std::optional<Trace> trace = traceOf(after);
  if (!trace)
    return;
  if (std::string difference = compareTraces(before, *trace); !difference.empty())
    finding("the passes changed what the module does: " + difference);
}

} // namespace megalith::fuzz
