//===- Inspect.cpp - what would run of a checkpoint -----------------------===//
#include "State.h"
#include "megalith/Plan/Plan.h"
#include <set>

namespace megalith {

using namespace api;

static constexpr int64_t weightSize = 2; // bf16, as K and V

static Inspection::Shape shapeOf(const CheckedModel &model, const ast::ModelFile &file) {
  Inspection::Shape out;
  out.layers = model.layers;
  out.heads = model.heads;
  out.kvHeads = model.kvHeads;
  out.headDim = model.headDim;
  out.hidden = model.hidden;
  out.vocabulary = model.vocab;
  // What model files call the sizes above.
  static const std::set<std::string> known = {"layers", "heads", "kv_heads", "head_dim", "hidden", "vocab"};
  for (const ast::ConfigEntry &entry : file.config) {
    const auto found = model.config.find(entry.name.text);
    const auto *size = found == model.config.end() ? nullptr : std::get_if<int64_t>(&found->second);
    if (size && !known.count(entry.name.text))
      out.others.push_back({entry.name.text, *size});
  }
  const auto elements = [&](const CheckedWeight &weight) {
    int64_t number = weight.perLayer ? model.layers : 1;
    for (int64_t size : weight.shape)
      number *= size;
    return number;
  };
  std::set<std::string> streamed; // names of storages
  for (const graph::Node &node : model.graph.nodes)
    if (node.kind == graph::Node::MatMul) {
      const CheckedWeight &read = model.weights[node.weights[0]];
      const CheckedWeight &weight = read.part ? model.weights[read.part->of] : read; // all parts of it are read
      streamed.insert(weight.alias.empty() ? weight.name : weight.alias);
    }
  for (const CheckedWeight &weight : model.weights) {
    if (!weight.alias.empty() || !weight.used || weight.part)
      continue;
    out.parameters += elements(weight);
    const int64_t bytes = weight.scheme.quantised() ? bytesOf(weight.scheme, weight.stored[0], weight.stored[1]) *
                                                          (weight.perLayer ? model.layers : 1)
                                                    : weightSize * elements(weight);
    out.weightBytes += bytes;
    if (streamed.count(weight.name))
      out.streamedBytes += bytes;
    if (weight.scheme.quantised())
      out.formats.push_back({weight.name, describe(weight.scheme)});
  }
  out.kvBytesPerToken = 2 * weightSize * model.kvLayers * model.kvHeads * model.headDim;
  return out;
}

static const char *useText(KeyUse::Kind kind) {
  switch (kind) {
  case KeyUse::Read:
    return "read";
  case KeyUse::Required:
    return "required";
  case KeyUse::Harmless:
    return "harmless";
  case KeyUse::Accepted:
    return "accepted";
  case KeyUse::Refused:
    return "refused";
  }
  return "";
}

static const char *placeText(driver::Place::Kind kind) {
  switch (kind) {
  case driver::Place::Named:
    return "graph";
  case driver::Place::Pipeline:
    return "pipeline";
  case driver::Place::Share:
    return "share";
  case driver::Place::Environment:
    return "environment";
  }
  return "";
}

static void fillConfig(Inspection::Model &out, const ConfigFile &config) {
  out.config = config.path();
  out.positions = config.positions();
  if (const auto value = config.find(ast::familyKeys[0]); value && value->is_string())
    out.modelType = value->get<std::string>();
  if (const auto value = config.find(ast::familyKeys[1]); value && value->is_array())
    for (const nlohmann::json &name : *value)
      if (name.is_string())
        out.architectures.push_back(name.get<std::string>());
}

static Inspection::Model modelOf(const driver::ModelFindings &findings) {
  Inspection::Model out;
  out.name = findings.name;
  if (findings.config)
    fillConfig(out, *findings.config);
  if (findings.file) {
    out.file = findings.file->path;
    out.where = placeText(findings.file->where);
    out.candidates = findings.file->candidates;
  }
  if (findings.parsed)
    out.graph = findings.parsed->name.text;
  const ModelReport &report = findings.report;
  if (report.model) {
    out.numerics = report.model->numerics;
    out.shape = shapeOf(*report.model, *findings.parsed);
    if (const auto table = report.model->positionTable) {
      const double rows = double(report.model->weights[*table].shape[0]);
      out.positions = std::min(out.positions.value_or(rows), rows);
    }
  }
  out.accepted = findings.accepted;
  for (const KeyUse &use : report.keys)
    out.keys.push_back({use.key, useText(use.kind), use.reason, use.advice});
  if (!report.tensorTypes.empty() || report.missingWeights)
    out.tensors = {report.tensorTypes,     report.readTensors,    report.harmlessTensors,
                   report.acceptedTensors, report.refusedTensors, report.missingWeights};
  return out;
}

Expected<Inspection> inspect(const ProgramOptions &options) {
  return guarded<Inspection>([&]() -> Expected<Inspection> {
    SourceFiles sources;
    for (const auto &[path, text] : options.texts)
      sources.give(path, text);
    Diagnostics diags(sources);
    std::vector<driver::ModelFindings> findings;
    driver::CompileOptions how = compileOptions(options);
    how.findings = &findings;
    Inspection out;
    out.pipeline = options.file;
    if (options.file.empty()) {
      out.runs = driver::inspectModel(how, diags);
    } else if (const auto compiled = driver::compile(how, diags)) {
      out.runs = driver::makePlan(compiled->module, how, diags) && !diags.hasErrors();
    }
    for (const driver::ModelFindings &model : findings)
      out.models.push_back(modelOf(model));
    out.messages = diags.messages();
    return out;
  });
}

Expected<std::string> stateDiagram(const ProgramOptions &options) {
  return guarded<std::string>([&]() -> Expected<std::string> {
    SourceFiles sources;
    for (const auto &[path, text] : options.texts)
      sources.give(path, text);
    Diagnostics diags(sources);
    if (auto diagram = driver::stateDiagram(options.file, diags))
      return std::move(*diagram);
    return diags.messages();
  });
}

std::vector<std::pair<std::string, double>> memoryBandwidths() {
  std::vector<std::pair<std::string, double>> out;
  for (const std::string &name : plan::profileNames())
    if (const plan::DeviceProfile *profile = plan::findProfile(name); !profile->arch.empty())
      out.push_back({name, profile->bandwidth});
  return out;
}

} // namespace megalith
