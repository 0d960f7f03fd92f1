#include "ControlBody.h"
#include "device/Abi.h"
#include "megalith/Emit/Control.h"
#include "megalith/IR/Calls.h"
#include "megalith/Text/Json.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include <set>

namespace megalith::emit {

using ir::Op;
using ir::Operand;
using ir::Operation;
namespace attr = ir::attr;

std::string ControlLayout::poolSpace(size_t models) { return models > 1 ? "pools" : "controlPools"; }

ControlLayout::ControlLayout(const ir::Module &module)
    : names(module), states(module.all(Op::State)), metrics(module.all(Op::Metric)), gauges(module.all(Op::Gauge)) {
  const std::vector<const Operation *> all = module.all(Op::Pool);
  for (const Operation *op : all)
    pools.push_back({op, module.find(Op::Model, op->name), poolSpace(all.size()) + "::" + names.pools.at(op->name)});
  if (pools.empty())
    pools.push_back({nullptr, nullptr, ""});
  const size_t count = pools.size();
  requestBytes = sizeof(abi::RequestHeader) + count * sizeof(abi::KvOfRequest); // abi::RequestOf
  if (count > 1)
    requestBytes += (count + 1) / 2 * 2 * sizeof(int);
  if (llvm::any_of(all, [](const Operation *op) { return op->get<attr::index_pages>(); })) {
    indexBegin = requestBytes;
    requestBytes += abi::indexedRequestBytes(static_cast<int64_t>(count));
  }
  for (const Operation *op : module.all(Op::Field)) {
    const ir::Type type = ir::declaredType(*op);
    const int64_t words = type.kind == ir::Type::Table   ? 1 + type.size * (1 + type.inner)
                          : type.kind == ir::Type::Seq   ? 1 + type.size
                          : type.elem == ir::Scalar::I64 ? 2
                                                         : 1;
    if (type.is(ir::Scalar::I64))
      requestBytes = (requestBytes + 7) / 8 * 8;
    fields.push_back({op->name, type, requestBytes, op});
    requestBytes += 4 * words;
  }
  const auto declared = module.all(Op::Input);
  // Where a sequence stands in LaunchParams::inputs is said in 8-byte words.
  if (llvm::any_of(declared, [](const Operation *op) { return op->has<attr::capacity>(); }))
    requestBytes = (requestBytes + 7) / 8 * 8;
  for (const Operation *op : declared) {
    const bool isSequence = op->has<attr::capacity>();
    if (isSequence)
      requestBytes = (requestBytes + 7) / 8 * 8;
    inputs.push_back({op->name, ir::declaredType(*op), requestBytes, op});
    requestBytes += isSequence ? sizeof(abi::InputRange) : 4;
  }
  requestBytes = (requestBytes + 7) / 8 * 8;

  for (const Operation *op : gauges)
    gaugeTypes[op->name] = word(op->get<attr::type>());
  std::map<std::pair<std::string, std::string>, int64_t> rowsOfRun; // of a stage and a model
  std::set<std::pair<std::string, std::string>> drafting;
  for (PoolLayout &pool : pools)
    pool.callTokens = ir::callTokens(module, pool.op ? pool.op->name : "");
  const Operation &list = *module.all(Op::Tick).front();
  std::set<int64_t> entered;
  for (const Operation &part : list.region().ops) {
    const Operation *end = part.op == Op::Part ? &part.region().ops.back() : nullptr;
    if (!end || end->op != Op::Enter || !entered.insert(end->get<attr::inside>()).second)
      continue;
    for (const int64_t number : {end->get<attr::inside>(), end->get<attr::outside>()}) {
      CallSite &site = sites.emplace_back();
      site.site = number;
      site.stage = part.get<attr::stage>();
      site.loc = end->loc;
      site.atLoop = true;
    }
  }
  const std::vector<int64_t> rounds = ir::roundsOfEntries(list);
  size_t at = 0;
  for (const Operation &part : list.region().ops) {
    const int64_t often = rounds[at++];
    if (part.op != Op::Part || !part.has<attr::before_site>())
      continue;
    const Operation &issue = part.region().ops.back();
    CallSite site;
    site.site = issue.get<attr::site>();
    site.stage = part.get<attr::stage>();
    site.model = issue.name;
    site.loc = issue.loc;
    site.chunk = issue.get<attr::chunk>();
    site.draft = issue.get<attr::kv>() == ir::KvUse::Draft;
    site.wantsLogits = !ir::reducersOf(issue).empty();
    site.lastRow = issue.has<attr::last_row>();
    site.best = llvm::all_of(ir::reducersOf(issue), [&](const Operation &r) { return ir::isBestOfRows(issue, r); });
    site.ownPass = part.has<attr::loop>();
    rowsOfRun[{site.stage, site.model}] += often * ir::mostRows(module, issue);
    if (site.draft)
      drafting.insert({site.stage, site.model});
    const Operation *model = module.find(Op::Model, issue.name);
    const std::vector<std::string> named = model ? model->get<attr::results>() : std::vector<std::string>();
    results = std::max<int64_t>(results, 1 + named.size());
    for (const auto &[index, reduce] : llvm::enumerate(ir::reducersOf(issue))) {
      const std::string &of = reduce.get<attr::result>();
      site.queries.push_back({&reduce, typeName(reduce.name) + std::to_string(index), static_cast<int64_t>(index), 0, 0,
                              ir::readsLogits(reduce) ? 0 : llvm::find(named, of) - named.begin() + 1});
    }
    sites.push_back(site);
  }
  for (PoolLayout &pool : pools) {
    for (const auto &[run, most] : rowsOfRun)
      if (drafting.count(run) && (!several() || pool.op->name == run.second))
        pool.draftRows = std::max(pool.draftRows, most);
    pool.trees = pool.op && ir::mayBeTrees(module, pool.op->name);
    pool.continues = pool.op && ir::draftsContinue(module, pool.op->name);
    callWords += pool.callWords();
  }
  layOutQueries(module);
  llvm::sort(sites, [](const CallSite &a, const CallSite &b) { return a.site < b.site; });
  for (const Operation &part : module.all(Op::Tick).front()->region().ops) {
    std::vector<Statement> &body = bodies.emplace_back();
    int64_t words = 0;
    if (part.op == Op::Part)
      body = partStatements(module, *this, part.region(), words);
    scratchWords = std::max(scratchWords, words);
  }
}

int64_t ControlLayout::trees() const {
  return llvm::count_if(pools, [](const PoolLayout &pool) { return pool.trees; });
}

int64_t ControlLayout::continuing() const {
  return llvm::count_if(pools, [](const PoolLayout &pool) { return pool.continues; });
}

const PoolLayout &ControlLayout::pool(llvm::StringRef name) const {
  const auto it = llvm::find_if(pools, [&](const PoolLayout &pool) { return pool.op && pool.op->name == name; });
  return it == pools.end() ? pools.front() : *it;
}

std::string ControlLayout::poolArgument(const std::string &of) const {
  return several() ? "<" + pool(of).name + ">" : "";
}

/// Words of a slot for what a reducer is given by hand.
void ControlLayout::layOutHand(const ir::Module &module, CallQuery &query) {
  const auto sizes = [&](Operand operand) -> std::pair<int64_t, int64_t> { // rows and columns
    const ir::Value v = operandNamed(*query.op, operand);
    const ir::Type type = v ? module.type(v) : ir::Type();
    return !v                             ? std::pair<int64_t, int64_t>(0, 0)
           : type.kind == ir::Type::Table ? std::pair(type.size, type.inner)
                                          : std::pair<int64_t, int64_t>(1, type.size);
  };
  const auto [onlyRows, onlyColumns] = sizes(Operand::Only);
  const auto [withoutRows, withoutColumns] = sizes(Operand::Without);
  const auto ofEach = [&](Operand operand) {
    const ir::Value v = operandNamed(*query.op, operand);
    return v && module.type(v).isList() ? module.type(v).size : 0;
  };
  const int64_t biases = sizes(Operand::Bias).second, temperatures = ofEach(Operand::Temperature),
                noises = ofEach(Operand::Noise);
  query.editsByHand = onlyRows + withoutRows + biases > 0;
  if (!query.editsByHand && temperatures + noises == 0)
    return;
  // As HandPlaces has it.
  query.hand = fmt::format("{}, {}, {}, {}, {}, {}, {}, {}", handWords, onlyRows, onlyColumns, withoutRows,
                           withoutColumns, biases, temperatures, noises);
  handWords += abi::kHandRecordWords + onlyRows * (1 + onlyColumns) + withoutRows * (1 + withoutColumns) + 2 * biases +
               temperatures + noises;
  handWords = (handWords + 3) / 4 * 4;
}

void ControlLayout::layOutQueries(const ir::Module &module) {
  const bool any = llvm::any_of(sites, [](const CallSite &site) { return !site.best; });
  for (CallSite &site : sites) {
    if (!any)
      site.queries.clear();
    int64_t words = 0;
    for (CallQuery &query : site.queries) {
      if (query.name == names.sites.at(site.site)) // a member cannot have its struct's name
        query.name += "_";
      query.place = words;
      query.words = query.isBest() ? 0 : query.op->get<attr::n>();
      words += query.words;
    }
    // A row that is taken away is asked for, too.
    const auto takesAway = [](const CallQuery &query) { return !query.op->get<attr::minus>().empty(); };
    queries = std::max<int64_t>(queries, site.queries.size() + llvm::count_if(site.queries, takesAway));
    queryWords = std::max(queryWords, words);
    for (CallQuery &query : site.queries)
      layOutHand(module, query);
    edits |= llvm::any_of(site.queries,
                          [](const CallQuery &query) { return query.op->has<attr::edited>() || query.editsByHand; });
  }
  if (!edits)
    return;
  for (const ir::Operation *field : ir::keptFields(module))
    keptTexts += field->get<attr::capacity>() * module.param("slots");
  for (const PoolLayout &pool : pools)
    if (pool.trees || keptTexts > 0)
      textPath = std::max({textPath, pool.draftRows, int64_t{limits::readRows}});
}

const CallSite &ControlLayout::site(int64_t number) const {
  return *llvm::find_if(sites, [&](const CallSite &site) { return site.site == number; });
}

int64_t ControlLayout::stateIndex(llvm::StringRef name) const {
  const auto it = llvm::find_if(states, [&](const Operation *op) { return op->name == name; });
  assert(it != states.end() && "the verifier checked references to states");
  return it - states.begin();
}

std::string requestLayoutJson(const ir::Module &module) {
  const ControlLayout layout(module);
  nlohmann::ordered_json json;
  json["request_bytes"] = layout.requestBytes;
  if (layout.indexBegin)
    json["index_begin"] = layout.indexBegin;
  json["fields"] = nlohmann::ordered_json::array();
  for (const RequestField &field : layout.fields) {
    nlohmann::ordered_json entry = {{"name", field.irName}, {"type", word(field.type.elem)}, {"offset", field.offset}};
    if (field.type.isList())
      entry["capacity"] = field.type.size;
    else if (field.type.is(ir::Scalar::F32))
      entry["init"] = field.op->get<attr::init>().real();
    else if (field.type.is(ir::Scalar::Bool))
      entry["init"] = field.op->get<attr::init>().truth();
    else
      entry["init"] = field.op->get<attr::init>().whole();
    json["fields"].push_back(std::move(entry));
  }
  for (const RequestField &input : layout.inputs) {
    const Operation &op = *input.op;
    nlohmann::ordered_json entry = {{"name", op.name}, {"type", word(op.get<attr::type>())}, {"offset", input.offset}};
    if (op.has<attr::capacity>())
      entry["capacity"] = op.get<attr::capacity>();
    if (op.has<attr::rows>())
      entry["rows"] = op.get<attr::rows>();
    if (op.get<attr::optional>() && op.has<attr::capacity>() && op.get<attr::type>() == ir::Scalar::F32)
      entry["otherwise"] = op.get<attr::numbers>();
    else if (op.get<attr::optional>() && op.has<attr::capacity>())
      entry["otherwise"] = op.get<attr::items>();
    else if (op.get<attr::optional>())
      entry["otherwise"] = op.get<attr::init>().real();
    json["inputs"].push_back(std::move(entry));
  }
  json["states"] = nlohmann::ordered_json::array();
  for (size_t i = 0; i < layout.states.size(); ++i) {
    const Operation &state = *layout.states[i];
    nlohmann::ordered_json entry = {{"name", state.name}, {"place", module.place(state.loc)}};
    for (const std::string &flag : state.flags())
      entry[flag] = true;
    if (state.get<attr::initial>())
      json["initial_state"] = i;
    json["states"].push_back(std::move(entry));
  }
  // Control code is of one file.
  json["file"] = text::utf8(module.path(layout.sites.empty() ? module.root.loc : layout.sites[0].loc));
  json["calls"] = nlohmann::ordered_json::array();
  for (const CallSite &site : layout.sites)
    json["calls"].push_back(module.place(site.loc));
  json["fault_state"] = layout.stateIndex(module.root.get<attr::fault>());
  json["metrics"] = nlohmann::ordered_json::array();
  for (const Operation *metric : layout.metrics)
    json["metrics"].push_back(metric->name);
  json["gauges"] = nlohmann::ordered_json::array();
  for (const Operation *gauge : layout.gauges)
    json["gauges"].push_back({{"name", gauge->name}, {"type", layout.gaugeTypes.at(gauge->name)}});
  return text::dump(json, 2);
}

} // namespace megalith::emit
