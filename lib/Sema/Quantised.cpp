// Which weights of a checkpoint are codes, and how.
#include "ModelConfig.h"
#include "llvm/ADT/STLExtras.h"
#include <fmt/format.h>

namespace megalith {

std::string CheckedWeight::moduleName(int64_t layer) const {
  const std::string name = tensorName(layer);
  return name.ends_with(".weight") ? name.substr(0, name.size() - 7) : "";
}

/// Weights that products alone read, each as a matrix of one row for each output. Others are never coded.
static void markLinear(CheckedModel &model) {
  std::vector<bool> multiplied(model.weights.size()), other(model.weights.size());
  const auto storage = [&](graph::WeightId id) -> size_t {
    const size_t of = model.weights[id].part ? model.weights[id].part->of : id;
    const std::string &alias = model.weights[of].alias;
    return alias.empty() ? of : llvm::find_if(model.weights, [&](const CheckedWeight &w) {
                                  return w.name == alias;
                                }) - model.weights.begin();
  };
  for (const graph::Node &node : model.graph.nodes)
    for (const graph::WeightId id : node.weights)
      (node.kind == graph::Node::MatMul ? multiplied : other)[storage(id)] = true;
  for (size_t i = 0; i < model.weights.size(); ++i) {
    CheckedWeight &weight = model.weights[i];
    weight.isLinear = multiplied[i] && !other[i] && !weight.transposed && weight.stored.size() == 2 &&
                      llvm::all_of(weight.spellings, [](const std::string &s) { return s.ends_with(".weight"); });
  }
}

std::string describe(const WeightScheme &scheme) {
  static constexpr const char *names[] = {"not quantised", "FP8", "4 bits", "8 bits"};
  std::string text = names[static_cast<int>(scheme.format)];
  if (!scheme.quantised())
    return text;
  if (scheme.scaleRows > 1)
    text += fmt::format(" in blocks of {} x {}", scheme.scaleRows, scheme.scaleColumns);
  else if (scheme.scaleColumns)
    text += fmt::format(" in groups of {}", scheme.scaleColumns);
  else
    text += scheme.scaleRows ? " by channel" : " by tensor";
  if (scheme.zeros)
    text += " with zero points";
  if (scheme.ordered)
    text += ", columns in an order";
  return text;
}

bool readSchemes(CheckedModel &model, Diagnostics &diags) {
  markLinear(model);
  if (!model.quantisation)
    return true;
  const unsigned errorsBefore = diags.errors();
  for (CheckedWeight &weight : model.weights) {
    // Who codes the layers mostly leaves the others; then the tensors say it.
    if (!weight.isLinear || !weight.perLayer)
      continue;
    const int64_t columns = weight.stored.back();
    const std::string first = weight.moduleName(0);
    weight.scheme = model.quantisation->schemeOf(first, columns);
    for (int64_t layer = 1; layer < model.layers; ++layer) {
      const std::string module = weight.moduleName(layer);
      if (const WeightScheme scheme = model.quantisation->schemeOf(module, columns); scheme != weight.scheme) {
        diags.report(Diag::QuantisedLayers, weight.loc, weight.name, first, describe(weight.scheme), module,
                     describe(scheme));
        return false; // mostly it is the same of all
      }
    }
  }
  // A view has its weight's.
  for (CheckedWeight &weight : model.weights)
    if (weight.part)
      weight.scheme = model.weights[weight.part->of].scheme;
  return diags.errors() == errorsBefore;
}

} // namespace megalith
