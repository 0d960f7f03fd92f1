#include "ControlLayout.h"
#include "Tensor.h"
#include "device/Abi.h"
#include "device/Shape.h"
#include "megalith/Emit/Control.h"
#include "megalith/IR/Calls.h"
#include "megalith/IR/Host.h"
#include "megalith/Text/Json.h"
#include "llvm/ADT/STLExtras.h"
#include <set>

namespace megalith::emit {

using ir::Op;
namespace attr = ir::attr;
using nlohmann::ordered_json;

namespace {

using Place = llvm::function_ref<std::string(SourceLoc)>;

ordered_json poolJson(const ir::Module &module, const ir::Operation &model, Place place) {
  const ir::Operation *pool = module.find(Op::Pool, model.name);
  ordered_json j = {
      {"pages", pool ? pool->get<attr::pages>() : 0}, {"page_tokens", pool ? pool->get<attr::page_tokens>() : 1},
      {"layers", model.get<attr::kv_layers>()},       {"kv_heads", model.get<attr::kv_heads>()},
      {"head_dim", model.get<attr::head_dim>()},      {"rows_beyond", pool ? pool->get<attr::rows_beyond>() : 0},
      {"place", pool ? place(pool->loc) : ""}};
  if (pool && pool->get<attr::format>() != WeightFormat::Bf16)
    j["format"] = ir::word(pool->get<attr::format>());
  if (pool && pool->get<attr::bf16_windows>())
    j["bf16_layers"] = llvm::count(ir::kvFormats(module, model), WeightFormat::Bf16);
  if (pool && pool->get<attr::index_pages>())
    j["index"] = true;
  if (const int64_t spare = pool ? plan::sparePages(module, *pool) : 0)
    j["spare_pages"] = spare;
  return j;
}

/// The settings of requests that change rows of logits, as far as the pipeline has them.
ordered_json editsJson(const ir::Module &module) {
  ordered_json list = ordered_json::array();
  if (ir::whyNoEdits(module, false).empty())
    for (const char *name : {"bias", "banned", "allowed", "min_new_tokens"})
      list.push_back(name);
  if (ir::whyNoEdits(module, true).empty())
    for (const char *name : {"repetition_penalty", "presence_penalty", "frequency_penalty", "format"})
      list.push_back(name);
  return list;
}

ordered_json weightsJson(const ir::Operation &model) {
  ordered_json list = ordered_json::array();
  auto index = weightIndices(model);
  std::set<int> done; // several weights may be views of one tensor
  for (const ir::Operation &op : model.region().ops) {
    if (op.op != Op::Weight || op.has<attr::alias>() || !done.insert(index.at(op.name)).second)
      continue;
    list.push_back({{"name", op.name},
                    {"from", op.get<attr::from>()},
                    {"layers", op.get<attr::layers>()},
                    {"index", index.at(op.name)},
                    {"shape", ir::storedShape(op)}});
    if (isReadByRow(model, op))
      list.back()["by_row"] = true;
    if (const WeightScheme scheme = ir::schemeOf(op); scheme.quantised())
      list.back()["codes"] = {{"format", word(scheme.format)},
                              {"scale_rows", scheme.scaleRows},
                              {"scale_columns", scheme.scaleColumns},
                              {"zeros", scheme.zeros}};
    if (ir::schemeOf(op).ordered)
      list.back()["codes"]["ordered"] = true;
  }
  return list;
}

/// Where the stream has orders of columns, and whose they are.
ordered_json ordersJson(const ir::Operation &model, const plan::ModelPlan &planned) {
  ordered_json list = ordered_json::array();
  const auto index = weightIndices(model);
  for (const plan::Matrix &m : planned.matrices) {
    if (!m.ordered)
      continue;
    std::set<int> weights;
    for (const plan::PairRange &r : m.ranges)
      for (const std::string &name : {r.weight, r.second})
        if (!name.empty())
          weights.insert(index.at(name));
    list.push_back({{"offset", m.offset + m.orderOffset()},
                    {"layer_bytes", m.bytes},
                    {"layers", m.layers},
                    {"columns", m.k},
                    {"weights", weights}});
  }
  return list;
}

ordered_json modelJson(const ir::Module &module, const plan::Plan &plan, int number, Place place) {
  const plan::ModelPlan &planned = plan.models[number];
  const ir::Operation &model = *module.find(Op::Model, planned.name);
  ordered_json j = {{"name", model.name},
                    {"vocab", model.get<attr::vocab>()},
                    {"stream_bytes", planned.streamBytes},
                    {"workspace_bytes", planned.records.workspaceBytes},
                    {"workspace_row_bytes", planned.records.rowBytes}};
  int64_t extraRows = 0;
  ir::walk(module.root.region(), [&](const ir::Operation &op) {
    // A call may commit more than the request has tokens until its stage ends.
    if (op.op == Op::Issue && op.name == model.name)
      extraRows += ir::mostRows(module, op);
  });
  j["extra_rows"] = extraRows;
  j["pool"] = poolJson(module, model, place);
  j["rope"] = {{"theta", model.get<attr::rope_theta>()},   {"type", word(model.get<attr::rope_type>())},
               {"factor", model.get<attr::rope_factor>()}, {"low", model.get<attr::rope_low>()},
               {"high", model.get<attr::rope_high>()},     {"original", model.get<attr::rope_original>()}};
  if (model.has<attr::rope_turned>())
    j["rope"]["turned"] = model.get<attr::rope_turned>();
  if (model.has<attr::rope_frequencies>()) {
    j["rope"]["frequencies"] = model.get<attr::rope_frequencies>();
    j["rope"]["attention"] = model.get<attr::rope_attention>();
  }
  if (model.has<attr::rope_bases>())
    j["rope"]["bases"] = model.get<attr::rope_bases>();
  if (model.has<attr::accepted>())
    j["accepted"] = model.get<attr::accepted>();
  j["weights"] = weightsJson(model);
  if (ordered_json orders = ordersJson(model, planned); !orders.empty())
    j["orders"] = std::move(orders);
  // What stands where, for tools that explain a run: functions of the source, buffers of the workspace.
  j["functions"] = ordered_json::array();
  const Names names(model, plan, number);
  planned.forEach([&](const plan::Phase &phase, bool) {
    j["functions"].push_back(
        {{"name", (names.space.empty() ? "" : names.space + "::") + "phases::" + names.phases.at(&phase)},
         {"what", "phase `" + phase.name + "`"},
         {"place", place(phase.op ? phase.op->loc : SourceLoc())}});
  });
  j["buffers"] = ordered_json::array();
  for (const plan::Buffer &buffer : planned.buffers)
    j["buffers"].push_back(
        {{"name", buffer.name}, {"offset", buffer.offset}, {"bytes", buffer.bytes}, {"instances", buffer.instances}});
  return j;
}

} // namespace

std::string emitManifest(const ir::Module &module, const plan::Plan &plan, const SourceFiles &files) {
  const auto place = [&](SourceLoc loc) { return module.place(loc); };
  const ControlLayout layout(module);
  ordered_json j;
  j["abi"] = abi::kAbiVersion;
  j["megalith"] = MEGALITH_VERSION;
  j["pipeline"] = module.root.name;
  j["launch"] = {{"ctas", plan.ctas},
                 {"threads", plan.ctaThreads()},
                 {"shared_bytes", plan.shared.bytes},
                 {"control_bytes", plan.shared.controlBytes},
                 {"profile", plan.profile.name},
                 {"sm_count", plan.profile.smCount}};
  j["slots"] = module.param("slots");
  j["rows_per_pass"] = plan.rowsAtOnce;
  j["call_tokens"] = layout.callWords;
  if (layout.several()) { // passes that a tick has at most
    const ir::Operation &tick = *module.all(Op::Tick).front();
    // All entries of a loop are repeated together, as often as it and the loops in it have rounds.
    const std::vector<int64_t> rounds = ir::roundsOfEntries(tick);
    std::map<int64_t, int64_t> ofLoop;
    std::set<int64_t> entered;
    size_t at = 0;
    for (const ir::Operation &op : tick.region().ops) {
      const int64_t often = rounds[at++];
      if (const ir::Operation *enter = ir::enterOf(op))
        if (!entered.insert(enter->get<attr::inside>()).second) // the end of a round
          ofLoop[op.get<attr::loop>()] += often;
    }
    int64_t passes = 0;
    for (const ir::Operation &op : tick.region().ops)
      if (op.op == Op::Pass)
        passes += op.has<attr::loop>() ? ofLoop.at(op.get<attr::loop>()) : 1;
    j["tick_passes"] = passes;
  }
  if (layout.pools[0].trees)
    j["draft_lines"] = module.param("slots") * layout.pools[0].draftRows; // of logits, see keepLogits
  bool settings = layout.queries > 0;
  ir::walk(module.root.region(),
           [&](const ir::Operation &op) { settings |= op.op == Op::Sampling || op.op == Op::Uniform; });
  if (settings) {
    int64_t selectionBytes = 0; // passes of all models use the same memory
    for (const plan::ModelPlan &planned : plan.models)
      selectionBytes = std::max(selectionBytes, layout.queries ? planned.reducing.selectionBytes : 0);
    j["reducing"] = {{"query_bytes", layout.queries ? abi::queryBytes(plan.rowsAtOnce, module.param("slots"),
                                                                      layout.queries, plan.results(), layout.handWords)
                                                    : 0},
                     {"words", layout.queryWords},
                     {"selection_bytes", selectionBytes},
                     {"kept_bytes", plan.kept.bytes}};
    if (layout.edits) {
      const int64_t vocab = ir::modelsByNumber(module).front()->get<attr::vocab>();
      j["reducing"]["edits"] = editsJson(module);
      j["reducing"]["text_bytes"] =
          abi::textBytes(std::min<int64_t>(module.param("rows_per_pass"), shape::kMaxRows) + layout.keptTexts,
                         layout.textPath, module.param("slots"), vocab);
    }
  }
  if (ir::readsHost(module))
    j["host"] = true;
  j["scratch_bytes"] = shape::kConsumerWarps * layout.scratchWords * 4;
  j["workspace_ones"] = plan.knobs.words; // what a word is before it is written
  j["flagged_bytes"] = plan.flaggedBytes;
  j["models"] = ordered_json::array();
  for (size_t i = 0; i < plan.models.size(); ++i)
    j["models"].push_back(modelJson(module, plan, i, place));
  j["edges"] = ordered_json::array();
  for (const plan::Edge &edge : plan.edges)
    j["edges"].push_back({{"name", edge.name}, {"place", place(edge.loc)}});
  // Stages are the pipeline's; a phase is its model's.
  j["functions"] = ordered_json::array();
  const std::vector<ir::Operation> &parts = module.all(Op::Tick).front()->region().ops;
  for (size_t i = 0; i < parts.size(); ++i)
    if (!layout.names.parts[i].empty())
      j["functions"].push_back({{"name", "stages::" + layout.names.parts[i]},
                                {"what", "stage `" + parts[i].get<attr::stage>() + "`"},
                                {"place", place(parts[i].loc)}});
  if (plan.knobs.stamps) // of a tick, all models' phases in their order
    for (const plan::ModelPlan &planned : plan.models)
      for (const plan::StampEvent &event : plan::stampEvents(planned))
        j["stamps"].push_back({{"name", event.name}, {"layer", event.layer}});
  j["control"] = ordered_json::parse(requestLayoutJson(module));
  return text::dump(j, 2) + "\n";
}

} // namespace megalith::emit
