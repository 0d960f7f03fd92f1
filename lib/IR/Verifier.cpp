#include "Verifier.h"
#include "megalith/IR/Text.h"
#include <algorithm>
#include <map>

namespace megalith::ir {

namespace {

/// Where a declaration or container must stand; nullopt for operations of code.
std::optional<Op> requiredParent(Op op) {
  switch (op) {
  case Op::File:
  case Op::Param:
  case Op::Field:
  case Op::State:
  case Op::Pool:
  case Op::Metric:
  case Op::Gauge:
  case Op::Policy:
  case Op::Stage:
  case Op::Tick:
  case Op::Model:
    return Op::Module;
  case Op::PolicyState:
  case Op::PolicyObserve:
  case Op::PolicyOutput:
    return Op::Policy;
  case Op::Part:
  case Op::Pass:
    return Op::Tick;
  case Op::Weight:
  case Op::Segment:
    return Op::Model;
  default:
    return std::nullopt;
  }
}

bool holdsCode(Op op) {
  switch (op) {
  case Op::Module:
  case Op::Policy:
  case Op::Tick:
  case Op::Model:
    return false;
  default:
    return true;
  }
}

bool isTerminator(Op op) { return op == Op::Goto || op == Op::Issue || op == Op::Yield; }

/// The terminators that may end a region of `op`; empty: none.
std::vector<Op> terminators(Op op) {
  switch (op) {
  case Op::Stage:
    return {Op::Goto};
  case Op::Part:
    return {Op::Goto, Op::Issue};
  case Op::PolicyOutput:
  case Op::PrefixWhile:
  case Op::Count:
  case Op::Repeat:
  case Op::Stream:
  case Op::Map:
  case Op::Segment:
    return {Op::Yield};
  default:
    return {};
  }
}

/// Passes after which the module is still at the pipe level.
constexpr const char *pipePasses[] = {"lower", "inline-policies", "fold-constants"};

} // namespace

bool Verifier::run() {
  const Operation &root = module.root;
  if (root.op != Op::Module || root.regions.size() != 1)
    return fail(root, "the root must be one `module` with one region");
  tickLevel = isTickLevel();
  defined.assign(module.values.size(), false);
  seen = defined;
  // Shapes and names first: code refers to declarations in any order.
  bool counted = checkAttributes(root);
  walk(root.region(), [&](const Operation &op) { counted = counted && checkCounts(op); });
  return counted && checkNames() && checkPolicyCycles() && checkRegion(root, root.region());
}

bool Verifier::isTickLevel() const {
  const std::string after = module.after();
  return !after.empty() && llvm::find(pipePasses, after) == std::end(pipePasses);
}

bool Verifier::fail(const Operation &op, std::string text) {
  // A place in the text belongs to the module's own table of files. It can be shown
  // when that very file is loaded at that index.
  SourceLoc loc;
  for (const Operation *file : module.all(Op::File))
    if (op.loc && file->getInt("index", -1) == op.loc.file &&
        op.loc.file < diags.sources().size() &&
        diags.sources().name(op.loc.file) == file->getString("path"))
      loc = op.loc;
  std::string head = printHead(module, op);
  if (head.size() > 200)
    head = head.substr(0, 197) + "...";
  diags.report(Diag::IrInvalid, loc, fmt::format("{}, in `{}`", text, head));
  return false;
}

bool Verifier::checkNames() {
  auto unique = [&](const Region &region) {
    std::set<std::pair<Op, std::string>> names;
    for (const Operation &op : region.ops)
      if (!op.name.empty() && requiredParent(op.op) && op.op != Op::Pass &&
          !names.emplace(op.op, op.name).second)
        return fail(op, fmt::format("`@{}` is declared twice", op.name));
    return true;
  };
  if (!unique(module.root.region()))
    return false;
  for (const Operation &op : module.ops())
    if (!holdsCode(op.op) && !op.regions.empty() && !unique(op.region()))
      return false;
  std::string fault = module.root.getString("fault");
  return fault.empty() || declared(module.root, Op::State, fault);
}

bool Verifier::declared(const Operation &op, Op kind, llvm::StringRef name) {
  return module.find(kind, name) ||
         fail(op, fmt::format("`@{}` is no declared {}", name.str(), mnemonic(kind).str()));
}

bool Verifier::checkCounts(const Operation &op) {
  const OpInfo &info = opInfo(op.op);
  auto count = [&](int expected, size_t found, const char *what) {
    return expected < 0 || static_cast<size_t>(expected) == found ||
           fail(op, fmt::format("expected {} {}{}, found {}", expected, what,
                                expected == 1 ? "" : "s", found));
  };
  return count(info.operands, op.operands.size(), "operand") &&
         count(info.results, op.results.size(), "result") &&
         count(info.regions, op.regions.size(), "region");
}

bool Verifier::checkPlace(const Operation &op, const Operation &parent) {
  std::string name = mnemonic(op.op).str();
  llvm::StringRef levels = opInfo(op.op).levels;
  if (std::optional<Op> required = requiredParent(op.op)) {
    if (*required != parent.op)
      return fail(op, fmt::format("`{}` must stand in `{}`", name, mnemonic(*required).str()));
  } else if (op.op == Op::Module || !holdsCode(parent.op)) {
    return fail(op, fmt::format("`{}` cannot stand in `{}`", name, mnemonic(parent.op).str()));
  }
  if (op.op == Op::Call && parent.op != Op::Stage)
    return fail(op, "a call must stand directly in a stage");
  char level = holdsCode(parent.op) && tensor ? 'N' : tickLevel ? 'T' : 'P';
  if (levels.contains(level) || (levels.contains('S') && !holdsCode(parent.op)))
    return true;
  const char *where = level == 'N'   ? "in a segment"
                      : level == 'T' ? "after `form-ticks`"
                                     : "before `form-ticks`";
  return fail(op, fmt::format("`{}` is not legal {}", name, where));
}

bool Verifier::define(const Operation &op, Value v) {
  if (v.id >= defined.size())
    return fail(op, "a value is not registered in the module");
  if (seen[v.id])
    return fail(op, "a value is defined twice");
  seen[v.id] = defined[v.id] = true;
  return true;
}

/// What kind of value each attribute has; whole numbers are never negative.
bool Verifier::checkAttributes(const Operation &op) {
  enum Kind { Flag, Int, Float, String, Ints, Strings, Any };
  static const std::map<std::string, Kind, std::less<>> kinds = {
      {"accepted", Strings},  {"after", String},     {"after_site", Int},   {"alias", String},         {"before_site", Int},
      {"capacity", Int},      {"chunk", Int},        {"count", Int},            {"dim", Int},
      {"fault", String},      {"from", String},      {"graph", String},         {"groups", Int},
      {"head_dim", Int},      {"heads", Int},        {"hidden", Int},           {"index", Int},
      {"inferred", Flag},     {"init", Any},         {"initial", Flag},         {"kind", String},
      {"kv", String},         {"kv_heads", Int},     {"kv_layers", Int},        {"layers", Int},
      {"next", Strings},      {"ngram", Int},        {"numerics", String},      {"on", String},
      {"on_full", String},    {"output", String},    {"page_tokens", Int},      {"pages", Int},
      {"pair", String},       {"parked", Flag},      {"partner", Int},          {"path", String},
      {"per", String},        {"preemptible", Flag}, {"reduce", Strings},       {"reducer", String},
      {"reserve", Int},       {"rope_factor", Float}, {"rope_high", Float},     {"rope_low", Float},
      {"rope_original", Int}, {"rope_theta", Float}, {"rope_type", String},     {"rows_beyond", Int},
      {"scale", Float},       {"shape", Ints},       {"site", Int},             {"slot", Flag},
      {"stage", String},      {"state", String},     {"terminal", Flag},        {"to", Strings},
      {"tree", String},       {"type", String},      {"value", Any},            {"vocab", Int},
      {"watermark", Int}};
  static const char *const words[] = {"a flag", "a whole number from 0 to 2147483647", "a number", "a string",
                                      "a list of numbers", "a list of strings", "a number"};
  for (const auto &[key, value] : op.attrs) {
    const auto known = kinds.find(key);
    if (known == kinds.end())
      return fail(op, fmt::format("`{}` is no attribute", key));
    const int64_t *whole = std::get_if<int64_t>(&value);
    const bool number = whole || std::holds_alternative<double>(value);
    // An empty list has no type of its own.
    const auto *strings = std::get_if<std::vector<std::string>>(&value);
    const bool fits = known->second == Flag      ? std::holds_alternative<bool>(value)
                      : known->second == Int     ? whole && *whole >= 0 && *whole <= INT32_MAX
                      : known->second == Float   ? number
                      : known->second == String  ? std::holds_alternative<std::string>(value)
                      : known->second == Ints    ? std::holds_alternative<std::vector<int64_t>>(value) ||
                                                    (strings && strings->empty())
                      : known->second == Strings ? strings != nullptr
                                                 : number || std::holds_alternative<bool>(value);
    if (!fits)
      return fail(op, fmt::format("`{}` must be {}", key, words[known->second]));
  }
  return true;
}

/// Regions that are evaluated for their value change nothing, and a request has KV and calls only where it has a slot.
bool Verifier::checkEffects(const Operation &op, const Operation &parent) {
  const std::string name = mnemonic(op.op).str();
  switch (op.op) {
  case Op::FieldSet:
  case Op::KvKeep:
  case Op::Append:
  case Op::CountAdd:
  case Op::Trace:
  case Op::Observe:
  case Op::Results:
    if (pure)
      return fail(op, fmt::format("`{}` cannot stand in `{}`", name, mnemonic(pure->op).str()));
    break;
  case Op::PolicySet:
  case Op::If:
    if (pure && pure->op != Op::PolicyObserve)
      return fail(op, fmt::format("`{}` cannot stand in `{}`", name, mnemonic(pure->op).str()));
    break;
  default:
    break;
  }
  switch (op.op) {
  case Op::KvLen:
  case Op::KvLag:
  case Op::KvKeep:
  case Op::Trace:
  case Op::Call:
  case Op::Issue:
  case Op::Results:
    if (!seated)
      return fail(op, fmt::format("`{}` needs a state with `slot`", name));
    break;
  default:
    break;
  }
  if (op.op == Op::Results && (parent.op != Op::Part || op.getInt("site", -1) != resumed))
    return fail(op, "`results` stand in the part behind their call");
  return true;
}

bool Verifier::checkRegion(const Operation &parent, const Region &region) {
  for (Value v : region.args)
    if (!define(parent, v))
      return false;
  std::vector<Op> ends = terminators(parent.op);
  for (size_t i = 0; i < region.ops.size(); ++i) {
    const Operation &op = region.ops[i];
    bool last = i + 1 == region.ops.size();
    if (isTerminator(op.op) && (!last || llvm::find(ends, op.op) == ends.end()))
      return fail(op, fmt::format("`{}` {}", mnemonic(op.op).str(),
                                  last ? fmt::format("cannot end `{}`", mnemonic(parent.op).str())
                                       : "must be the last operation of its region"));
    if (!checkOp(op, parent))
      return false;
  }
  if (!ends.empty() && (region.ops.empty() || !isTerminator(region.ops.back().op)))
    return fail(parent, fmt::format("`{}` must end in `{}`", mnemonic(parent.op).str(),
                                    mnemonic(ends.front()).str()));
  for (Value v : region.args)
    defined[v.id] = false;
  for (const Operation &op : region.ops)
    for (Value v : op.results)
      defined[v.id] = false;
  return true;
}

bool Verifier::checkOp(const Operation &op, const Operation &parent) {
  bool enteredTensor = op.op == Op::Segment;
  if (!checkPlace(op, parent))
    return false;
  for (size_t i = 0; i < op.operands.size(); ++i)
    if (op.operands[i].id >= defined.size() || !defined[op.operands[i].id])
      return fail(op, fmt::format("operand {} is not defined before its use", i));
  for (Value v : op.results)
    if (v.id >= defined.size() || seen[v.id])
      return define(op, v);
  const Operation *outerModel = model, *outerPure = pure;
  int64_t outerCount = repeatCount;
  if (!checkAttributes(op) || !checkEffects(op, parent))
    return false;
  if (op.op == Op::Model)
    model = &op;
  if (enteredTensor)
    tensor = true;
  if (!(tensor ? checkTensorOp(op) : checkControlOp(op)))
    return false;
  if (op.op == Op::Repeat)
    repeatCount = op.getInt("count");
  if (op.op == Op::Stage || op.op == Op::Part) {
    const Operation *state = module.find(Op::State, op.getString(op.op == Op::Stage ? "on" : "state"));
    seated = state && state->getBool("slot");
    resumed = op.getInt("after_site", -1);
  }
  const bool value = op.op == Op::PrefixWhile || op.op == Op::Count || op.op == Op::PolicyOutput;
  if (value || op.op == Op::PolicyObserve)
    pure = &op;
  for (const Region &region : op.regions)
    if (!checkRegion(op, region))
      return false;
  if (enteredTensor)
    tensor = false;
  model = outerModel;
  pure = outerPure;
  repeatCount = outerCount;
  seated = seated || op.op == Op::Stage || op.op == Op::Part;
  for (Value v : op.results)
    if (!define(op, v))
      return false;
  return true;
}

bool Verifier::require(const Operation &op, std::initializer_list<const char *> keys) {
  for (const char *key : keys)
    if (!op.has(key))
      return fail(op, fmt::format("the attribute `{}` is missing", key));
  return true;
}

bool Verifier::oneOf(const Operation &op, const char *key,
                     std::initializer_list<const char *> values) {
  std::string value = op.getString(key);
  if (llvm::find(values, value) != values.end())
    return true;
  return fail(op, fmt::format("`{}` must be one of {}", key, fmt::join(values, ", ")));
}

bool Verifier::within(const Operation &op, const char *key, int64_t least, int64_t most) {
  return (op.has(key) && op.getInt(key) >= least && op.getInt(key) <= most) ||
         fail(op, fmt::format("`{}` must be a number from {} to {}", key, least, most));
}

bool Verifier::resultIs(const Operation &op, Type type) {
  return module.type(op.result()) == type ||
         fail(op, fmt::format("the result must be `{}`, found `{}`", type.str(),
                              module.type(op.result()).str()));
}

bool Verifier::operandIs(const Operation &op, unsigned i, Type type) {
  return operandType(op, i) == type ||
         fail(op, fmt::format("operand {} must be `{}`, found `{}`", i, type.str(),
                              operandType(op, i).str()));
}

const Operation *Verifier::terminator(const Operation &op, unsigned region) const {
  const std::vector<Operation> &ops = op.region(region).ops;
  return ops.empty() ? nullptr : &ops.back();
}

bool Verifier::yields(const Operation &op, std::vector<Type> types) {
  const Operation *yield = terminator(op);
  if (!yield || yield->op != Op::Yield)
    return fail(op, fmt::format("`{}` must end in `yield`", mnemonic(op.op).str()));
  if (yield->operands.size() != types.size())
    return fail(*yield, fmt::format("expected {} yielded values, found {}", types.size(),
                                    yield->operands.size()));
  for (size_t i = 0; i < types.size(); ++i) {
    Value v = yield->operands[i];
    if (v.id < module.values.size() && module.type(v) != types[i])
      return fail(*yield, fmt::format("operand {} must be `{}`, found `{}`", i, types[i].str(),
                                      module.type(v).str()));
  }
  return true;
}

bool verify(const Module &module, Diagnostics &diags) { return Verifier(module, diags).run(); }
bool verifyWhole(const Module &module, Diagnostics &diags) {
  return verify(module, diags) && Verifier(module, diags).runWhole();
}

} // namespace megalith::ir
