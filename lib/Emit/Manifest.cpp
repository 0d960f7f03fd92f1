#include "ControlLayout.h"
#include "Tensor.h"
#include "device/Abi.h"
#include "device/Shape.h"
#include "megalith/Emit/Control.h"
#include "megalith/IR/Calls.h"
#include "megalith/Text/Json.h"

namespace megalith::emit {

using ir::Op;
namespace attr = ir::attr;
using nlohmann::ordered_json;

std::string emitManifest(const ir::Module &module, const plan::Plan &plan, const SourceFiles &files) {
  const ir::Operation &model = *module.all(Op::Model)[0];
  const plan::ModelPlan &planned = plan.models[0];
  const ir::Operation *pool = module.find(Op::Pool, planned.name);
  const auto place = [&](SourceLoc loc) { return module.place(loc); };
  ordered_json j;
  j["abi"] = abi::kAbiVersion;
  j["megalith"] = MEGALITH_VERSION;
  j["pipeline"] = module.root.name;
  j["launch"] = {{"ctas", plan.ctas},
                 {"threads", shape::kCtaThreads},
                 {"shared_bytes", plan.shared.bytes},
                 {"profile", plan.profile.name},
                 {"sm_count", plan.profile.smCount}};
  j["slots"] = module.param("slots");
  j["rows_per_pass"] = plan.rowsPerPass;
  j["stream_bytes"] = planned.streamBytes;
  j["workspace_bytes"] = planned.records.workspaceBytes;
  j["workspace_row_bytes"] = planned.records.rowBytes;
  j["workspace_ones"] = plan.knobs.words; // what a word is before it is written
  j["tagged_bytes"] = plan.taggedBytes;
  j["pool"] = {
      {"pages", pool ? pool->get<attr::pages>() : 0}, {"page_tokens", pool ? pool->get<attr::page_tokens>() : 1},
      {"layers", model.get<attr::kv_layers>()},       {"kv_heads", model.get<attr::kv_heads>()},
      {"head_dim", model.get<attr::head_dim>()},      {"place", pool ? place(pool->loc) : ""}};
  j["rope"] = {{"theta", model.get<attr::rope_theta>()},   {"type", model.get<attr::rope_type>()},
               {"factor", model.get<attr::rope_factor>()}, {"low", model.get<attr::rope_low>()},
               {"high", model.get<attr::rope_high>()},     {"original", model.get<attr::rope_original>()}};
  j["model"] = {{"name", model.name}, {"vocab", model.get<attr::vocab>()}};
  if (model.has<attr::accepted>())
    j["accepted"] = model.get<attr::accepted>();
  int64_t extraRows = 0;
  ir::walk(module.root.region(), [&](const ir::Operation &op) {
    // A call may commit more than the request has tokens until its stage ends.
    if (op.op == Op::Issue)
      extraRows += ir::mostRows(module, op);
  });
  j["rows_beyond"] = pool ? pool->get<attr::rows_beyond>() : 0;
  j["call_tokens"] = ControlLayout(module).callsPerStage * plan.rowsPerPass;
  j["extra_rows"] = extraRows;
  j["weights"] = ordered_json::array();
  auto index = weightIndices(model);
  for (const ir::Operation &op : model.region().ops) {
    if (op.op != Op::Weight || op.has<attr::alias>())
      continue;
    j["weights"].push_back({{"name", op.name},
                            {"from", op.get<attr::from>()},
                            {"layers", op.get<attr::layers>()},
                            {"index", index.at(op.name)},
                            {"shape", op.get<attr::shape>()}});
  }
  j["edges"] = ordered_json::array();
  for (const plan::Edge &edge : plan.edges)
    j["edges"].push_back({{"name", edge.name}, {"place", place(edge.loc)}});
  // What stands where, for tools that explain a run: functions of the source, buffers of the workspace.
  j["functions"] = ordered_json::array();
  const ControlLayout layout(module);
  const std::vector<ir::Operation> &parts = module.all(Op::Tick).front()->region().ops;
  for (size_t i = 0; i < parts.size(); ++i)
    if (!layout.names.parts[i].empty())
      j["functions"].push_back({{"name", "stages::" + layout.names.parts[i]},
                                {"what", "stage `" + parts[i].get<attr::stage>() + "`"},
                                {"place", place(parts[i].loc)}});
  const Names names(model, planned);
  planned.forEach([&](const plan::Phase &phase, bool) {
    j["functions"].push_back({{"name", "phases::" + names.phases.at(&phase)},
                              {"what", "phase `" + phase.name + "`"},
                              {"place", place(phase.op ? phase.op->loc : SourceLoc())}});
  });
  j["buffers"] = ordered_json::array();
  for (const plan::Buffer &buffer : planned.buffers)
    j["buffers"].push_back(
        {{"name", buffer.name}, {"offset", buffer.offset}, {"bytes", buffer.bytes}, {"instances", buffer.instances}});
  if (plan.knobs.stamps)
    for (const StampEvent &event : stampEvents(planned))
      j["stamps"].push_back({{"name", event.name}, {"layer", event.layer}});
  j["control"] = ordered_json::parse(requestLayoutJson(module));
  return text::dump(j, 2) + "\n";
}

} // namespace megalith::emit
