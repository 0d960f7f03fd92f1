#include "ControlLayout.h"
#include "megalith/Emit/Control.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include <nlohmann/json.hpp>

namespace megalith::emit {

using ir::Op;
using ir::Operation;

/// sizeof(megalith::abi::RequestHeader); the emitted source asserts it.
static constexpr int64_t kHeaderBytes = 96;

std::string controlName(llvm::StringRef name) {
  static const std::set<std::string> keywords = {
      "alignas",  "alignof",   "asm",      "auto",     "bool",     "break",     "case",      "catch",
      "char",     "class",     "const",    "constexpr", "continue", "decltype", "default",   "delete",
      "do",       "double",    "else",     "enum",     "explicit", "export",    "extern",    "false",
      "float",    "for",       "friend",   "goto",     "if",       "inline",    "int",       "long",
      "mutable",  "namespace", "new",      "noexcept", "nullptr",  "operator",  "private",   "protected",
      "public",   "register",  "return",   "short",    "signed",   "sizeof",    "static",    "struct",
      "switch",   "template",  "this",     "throw",    "true",     "try",       "typedef",   "typeid",
      "typename", "union",     "unsigned", "using",    "virtual",  "void",      "volatile",  "while",
      // members of the request's header and of its turn
      "state", "fault", "slot", "promptLen", "numTokens", "generated", "maxNewTokens", "eosSeen", "eosBegin",
      "eosCount", "kvLen", "kvEnd", "waitingSite", "waitingSince", "served", "callCount", "callRowBegin",
      "callRowCount", "passes", "rows", "stateBefore", "tokenBegin", "fieldsInRange"};
  std::string out;
  for (char c : name)
    out += llvm::isAlnum(c) || c == '_' ? c : '_';
  if (keywords.count(out))
    out += '_';
  if (out.empty() || llvm::isDigit(out[0]))
    out = std::string(1, '_') + out;
  return out;
}

/// `fill_cache` -> `FillCache`.
static std::string camelCase(llvm::StringRef name) {
  std::string out;
  bool upper = true;
  for (char c : name) {
    if (!llvm::isAlnum(c)) {
      upper = true;
      continue;
    }
    out += upper ? llvm::toUpper(c) : c;
    upper = false;
  }
  return out;
}

static ir::Type declaredType(const Operation &op) {
  std::string text = op.getString("type", "i32");
  ir::Scalar scalar = ir::Scalar::I32;
  for (ir::Scalar s : {ir::Scalar::I32, ir::Scalar::I64, ir::Scalar::U32, ir::Scalar::F32, ir::Scalar::Bool,
                       ir::Scalar::Token})
    if (ir::scalarName(s) == text)
      scalar = s;
  return op.has("capacity") ? ir::Type::seq(op.getInt("capacity"), scalar) : ir::Type::scalar(scalar);
}

static std::string unique(std::string name, std::set<std::string> &taken) {
  std::string candidate = name;
  for (unsigned i = 2; !taken.insert(candidate).second; ++i)
    candidate = name + std::to_string(i);
  return candidate;
}

ControlLayout::ControlLayout(const ir::Module &module)
    : states(module.all(Op::State)), metrics(module.all(Op::Metric)), gauges(module.all(Op::Gauge)) {
  std::set<std::string> taken;
  requestBytes = kHeaderBytes;
  for (const Operation *op : module.all(Op::Field)) {
    const ir::Type type = declaredType(*op);
    const int64_t words = type.kind == ir::Type::Seq ? 1 + type.size : type.elem == ir::Scalar::I64 ? 2 : 1;
    if (type.is(ir::Scalar::I64))
      requestBytes = (requestBytes + 7) / 8 * 8;
    fields.push_back({op->name, unique(controlName(op->name), taken), type, requestBytes, op});
    requestBytes += 4 * words;
  }
  ir::walk(module.root.region(), [&](const Operation &op) {
    if (op.op == Op::Part && op.getString("kind") == "admit")
      ir::walk(op.region(), [&](const Operation &inner) { tracesUnseated |= inner.op == Op::Trace; });
  });
  if (tracesUnseated)
    requestBytes += 4 * (1 + static_cast<int64_t>(gauges.size()));
  requestBytes = (requestBytes + 7) / 8 * 8;

  // States and functions stand in the scope of the file, which has these names already.
  std::set<std::string> functions = {"main", "abi", "megalith", "Config", "State", "Request", "Metric", "Gauge",
                                     "Control", "Turn", "Buffers", "WeightRing", "Stream", "Shared", "sharedOfCta",
                                     "stampBegin", "stampEnd", "kBodySteps", "kHeadSteps", "controlTicks",
                                     "controlOfCta"};
  for (const Operation *op : states)
    stateNames.push_back(unique(controlName(op->name), functions));
  std::set<std::string> takenMetrics, takenGauges;
  for (const Operation *op : metrics)
    metricNames[op->name] = unique(controlName(op->name), takenMetrics);
  for (const Operation *op : gauges)
    gaugeNames[op->name] = unique(controlName(op->name), takenGauges);
  for (const Operation *op : gauges)
    gaugeTypes[op->name] = op->getString("type", "i32");
  const auto ticks = module.all(Op::Tick);
  assert(ticks.size() == 1 && "control is emitted from the tick level");
  const std::vector<Operation> &parts = ticks.front()->region().ops;
  std::map<std::string, unsigned> calls, resumes;
  for (const Operation &part : parts)
    if (part.op == Op::Part && part.has("before_site"))
      ++calls[part.getString("stage")];
  std::map<std::string, unsigned> callNumber;
  for (const Operation &part : parts) {
    partNames.emplace_back();
    if (part.op != Op::Part)
      continue;
    const std::string stage = part.getString("stage");
    std::string name = camelCase(stage);
    name[0] = llvm::toLower(name[0]);
    if (calls[stage] > 0)
      name += part.has("after_site") ? "Resume" : "Issue";
    if (part.has("after_site") && calls[stage] > 1)
      name += std::to_string(++resumes[stage]);
    partNames.back() = unique(controlName(name), functions);
    if (!part.has("before_site"))
      continue;
    const Operation &issue = part.region().ops.back();
    CallSite site;
    site.site = issue.getInt("site");
    site.stage = stage;
    site.name = unique(camelCase(stage) + "Call" + (calls[stage] > 1 ? std::to_string(++callNumber[stage]) : ""),
                       functions);
    site.chunk = issue.getInt("chunk");
    site.draft = issue.getString("kv") == "draft";
    site.wantsLogits = !issue.getStrings("reduce").empty();
    sites.push_back(site);
    callsPerStage = std::max<int64_t>(callsPerStage, calls[stage]);
  }
  llvm::sort(sites, [](const CallSite &a, const CallSite &b) { return a.site < b.site; });
}

const RequestField &ControlLayout::field(llvm::StringRef irName) const {
  const auto it = llvm::find_if(fields, [&](const RequestField &f) { return f.irName == irName; });
  assert(it != fields.end() && "the verifier checked references to fields");
  return *it;
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
  json["fields"] = nlohmann::ordered_json::array();
  for (const RequestField &field : layout.fields) {
    nlohmann::ordered_json entry = {{"name", field.irName},
                                    {"type", ir::scalarName(field.type.elem).str()},
                                    {"offset", field.offset}};
    if (field.type.kind == ir::Type::Seq)
      entry["capacity"] = field.type.size;
    else if (field.type.is(ir::Scalar::F32))
      entry["init"] = field.op->getFloat("init");
    else if (field.type.is(ir::Scalar::Bool))
      entry["init"] = field.op->getBool("init") || field.op->getInt("init");
    else
      entry["init"] = field.op->getInt("init");
    json["fields"].push_back(std::move(entry));
  }
  json["states"] = nlohmann::ordered_json::array();
  for (size_t i = 0; i < layout.states.size(); ++i) {
    const Operation &state = *layout.states[i];
    nlohmann::ordered_json entry = {{"name", state.name}};
    for (const char *flag : {"initial", "terminal", "slot", "parked", "preemptible"})
      if (state.getBool(flag))
        entry[flag] = true;
    if (state.getBool("initial"))
      json["initial_state"] = i;
    json["states"].push_back(std::move(entry));
  }
  json["fault_state"] = layout.stateIndex(module.root.getString("fault"));
  json["metrics"] = nlohmann::ordered_json::array();
  for (const Operation *metric : layout.metrics)
    json["metrics"].push_back(metric->name);
  json["gauges"] = nlohmann::ordered_json::array();
  for (const Operation *gauge : layout.gauges)
    json["gauges"].push_back({{"name", gauge->name}, {"type", layout.gaugeTypes.at(gauge->name)}});
  return json.dump(2);
}

} // namespace megalith::emit
