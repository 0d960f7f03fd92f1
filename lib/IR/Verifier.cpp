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
  case Op::Input:
  case Op::State:
  case Op::Pool:
  case Op::Metric:
  case Op::Gauge:
  case Op::Policy:
  case Op::Stage:
  case Op::Tick:
  case Op::Model:
  case Op::Dim:
  case Op::Buffer:
  case Op::Items:
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

/// The terminators that may end a region of `op`; empty: none.
std::vector<Op> terminators(Op op) {
  if (isOverRange(op))
    return {Op::Yield};
  switch (op) {
  case Op::Stage:
    return {Op::Goto};
  case Op::Part:
    return {Op::Goto, Op::Issue, Op::Enter};
  case Op::PolicyOutput:
  case Op::Choose:
  case Op::Order:
  case Op::Repeat:
  case Op::Stream:
  case Op::Map:
  case Op::Segment:
  case Op::Buffer:
  case Op::BufferScan:
  case Op::BufferSort:
    return {Op::Yield};
  default:
    return {};
  }
}

/// Whether a region is evaluated for its value, and so changes nothing.
bool isPure(Op op, size_t region) {
  return hasTrait(op, Trait::ForValue) || ((op == Op::While || op == Op::Items) && region == 0);
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
  walk(root.region(), [&](const Operation &op) { counted = counted && checkAttributes(op) && checkCounts(op); });
  return counted && checkNames() && checkPolicyCycles() && checkRegion(root, root.region());
}

bool Verifier::isTickLevel() const {
  const std::string after = module.after();
  return !after.empty() && llvm::find(pipePasses, after) == std::end(pipePasses);
}

bool Verifier::fail(const Operation &op, std::string text) {
  // The error is one of the text, if the module was read from text. Else the operation has the place of what it was
  // made from, in the module's own table of files: it can be shown when that very file is loaded at that index.
  SourceLoc loc;
  if (op.written && diags.sources().has(op.written))
    loc = op.written;
  else if (op.loc)
    for (const Operation *file : module.all(Op::File))
      if (file->has<attr::index>() && file->has<attr::path>() && file->get<attr::index>() == op.loc.file &&
          op.loc.file < diags.sources().size() && diags.sources().name(op.loc.file) == file->get<attr::path>())
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
      if (!op.name.empty() && requiredParent(op.op) && op.op != Op::Pass && !names.emplace(op.op, op.name).second)
        return fail(op, fmt::format("`@{}` is declared twice", op.name));
    return true;
  };
  if (!unique(module.root.region()))
    return false;
  for (const Operation &op : module.ops())
    if (!holdsCode(op.op) && !op.regions.empty() && !unique(op.region()))
      return false;
  return llvm::all_of(llvm::ArrayRef<std::string>{module.root.get<attr::fault>(), module.root.get<attr::cancel>(),
                                                  module.root.get<attr::deadline>()},
                      [&](const std::string &name) { return name.empty() || declared(module.root, Op::State, name); });
}

bool Verifier::declared(const Operation &op, Op kind, llvm::StringRef name) {
  return module.find(kind, name) || fail(op, fmt::format("`@{}` is no declared {}", name.str(), mnemonic(kind).str()));
}

bool Verifier::checkCounts(const Operation &op) {
  const OpInfo &info = opInfo(op.op);
  auto count = [&](int expected, size_t found, const char *what) {
    return expected < 0 || static_cast<size_t>(expected) == found ||
           fail(op, fmt::format("expected {} {}{}, found {}", expected, what, expected == 1 ? "" : "s", found));
  };
  return count(info.operands, op.operands.size(), "operand") && count(info.results, op.results.size(), "result") &&
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
  if (op.op == Op::Call && parent.op != Op::Stage && (parent.op != Op::For || !parent.has<attr::rounds>()))
    return fail(op, "a call must stand directly in a stage, or in a `for` with `rounds`");
  if (op.op == Op::Order && parent.op != Op::Stage && parent.op != Op::Part)
    return fail(op, "`order` stands in front of all else");
  if (op.op == Op::Reduce && parent.op != Op::Call && parent.op != Op::Issue)
    return fail(op, "`reduce` stands in a call");
  char level = holdsCode(parent.op) && tensor ? 'N' : tickLevel ? 'T' : 'P';
  if (levels.contains(level) || (levels.contains('S') && !holdsCode(parent.op)))
    return true;
  const char *where = level == 'N' ? "in a segment" : level == 'T' ? "after `form-ticks`" : "before `form-ticks`";
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

/// The attributes of Attributes.def, and no others.
bool Verifier::checkAttributes(const Operation &op) {
  const llvm::ArrayRef<AttrInfo> list = attributes(op.op);
  const std::string name = mnemonic(op.op).str();
  for (const auto &[key, value] : op.attrs) {
    const AttrInfo *info = attribute(op.op, key);
    if (!info) {
      fail(op, fmt::format("`{}` is no attribute of `{}`", key, name));
      std::vector<std::string> names;
      for (const AttrInfo &other : list)
        names.push_back(other.name);
      diags.suggest(key, names);
      return false;
    }
    if (const std::string why = info->whyNot(value); !why.empty())
      return fail(op, fmt::format("`{}` {}", key, why));
  }
  for (const AttrInfo &info : list)
    if (info.required && !op.attrs.find(info.name))
      return fail(op, fmt::format("the attribute `{}` of `{}` is missing", info.name, name));
  return true;
}

/// A loop with calls.
bool Verifier::checkRounds(const Operation &op, const Operation &parent) {
  // A part has none: form-ticks has made an entry of the tick of it.
  if (parent.op != Op::Stage && (parent.op != Op::For || !parent.has<attr::rounds>()))
    return fail(op, "a loop with calls stands directly in a stage, or in another such loop");
  return llvm::any_of(op.region().ops,
                      [](const Operation &inner) {
                        return inner.op == Op::Call || (inner.op == Op::For && inner.has<attr::rounds>());
                      }) ||
         fail(op, "`rounds` are those of a loop with calls");
}

/// Regions that are evaluated for their value change nothing, and a request has KV and calls only where it has a slot.
bool Verifier::checkEffects(const Operation &op, const Operation &parent) {
  const std::string name = mnemonic(op.op).str();
  const bool observes = pure && pure->op == Op::PolicyObserve && (op.op == Op::PolicySet || op.op == Op::If);
  if (pure && hasTrait(op.op, Trait::Changes) && !observes)
    return fail(op, fmt::format("`{}` cannot stand in `{}`", name, mnemonic(pure->op).str()));
  if (op.op == Op::For && op.has<attr::rounds>() && !checkRounds(op, parent))
    return false;
  if (!seated && hasTrait(op.op, Trait::InSlot))
    return fail(op, fmt::format("`{}` needs a state with `slot`", name));
  if (op.op == Op::Results && (parent.op != Op::Part || op.get<attr::site>() != resumed))
    return fail(op, "`results` stand in the part after their call");
  return true;
}

bool Verifier::checkRegion(const Operation &parent, const Region &region) {
  for (Value v : region.args)
    if (!define(parent, v))
      return false;
  std::vector<Op> ends = terminators(parent.op);
  if ((parent.op == Op::While || parent.op == Op::Items) && &region == &parent.regions[0]) // the condition, the range
    ends = {Op::Yield};
  for (size_t i = 0; i < region.ops.size(); ++i) {
    const Operation &op = region.ops[i];
    bool last = i + 1 == region.ops.size();
    if (hasTrait(op.op, Trait::Ends) && (!last || llvm::find(ends, op.op) == ends.end()))
      return fail(op, fmt::format("`{}` {}", mnemonic(op.op).str(),
                                  last ? fmt::format("cannot end `{}`", mnemonic(parent.op).str())
                                       : "must be the last operation of its region"));
    if (!checkOp(op, parent))
      return false;
  }
  if (!ends.empty() && (region.ops.empty() || !hasTrait(region.ops.back().op, Trait::Ends)))
    return fail(parent, fmt::format("`{}` must end in `{}`", mnemonic(parent.op).str(), mnemonic(ends.front()).str()));
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
  if (!checkEffects(op, parent))
    return false;
  if (op.op == Op::Model)
    model = &op;
  if (enteredTensor)
    tensor = true;
  if (!(tensor ? checkTensorOp(op) : checkControlOp(op)))
    return false;
  if (op.op == Op::Repeat)
    repeatCount = op.get<attr::count>();
  if (op.op == Op::Stage || op.op == Op::Part) {
    const bool stage = op.op == Op::Stage;
    const Operation *state = module.find(Op::State, stage ? op.get<attr::on>() : op.get<attr::state>());
    seated = state && state->get<attr::slot>();
    resumed = stage ? -1 : op.get<attr::after_site>();
  }
  const Operation *around = pure;
  for (size_t i = 0; i < op.regions.size(); ++i) {
    pure = isPure(op.op, i) || op.op == Op::PolicyObserve ? &op : around;
    if (!checkRegion(op, op.region(i)))
      return false;
  }
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

bool Verifier::resultIs(const Operation &op, Type type) {
  return module.type(op.result()) == type ||
         fail(op, fmt::format("the result must be `{}`, found `{}`", type.str(), module.type(op.result()).str()));
}

bool Verifier::operandIs(const Operation &op, unsigned i, Type type) {
  return operandType(op, i) == type ||
         fail(op, fmt::format("operand {} must be `{}`, found `{}`", i, type.str(), operandType(op, i).str()));
}

const Operation *Verifier::terminator(const Operation &op, unsigned region) const {
  const std::vector<Operation> &ops = op.region(region).ops;
  return ops.empty() ? nullptr : &ops.back();
}

bool Verifier::yields(const Operation &op, std::vector<Type> types, unsigned region) {
  const Operation *yield = terminator(op, region);
  if (!yield || yield->op != Op::Yield)
    return fail(op, fmt::format("`{}` must end in `yield`", mnemonic(op.op).str()));
  if (yield->operands.size() != types.size())
    return fail(*yield, fmt::format("expected {} yielded values, found {}", types.size(), yield->operands.size()));
  for (size_t i = 0; i < types.size(); ++i) {
    Value v = yield->operands[i];
    if (v.id < module.values.size() && module.type(v) != types[i])
      return fail(*yield, fmt::format("operand {} must be `{}`, found `{}`", i, types[i].str(), module.type(v).str()));
  }
  return true;
}

bool verify(const Module &module, Diagnostics &diags) { return Verifier(module, diags).run(); }
bool verifyWhole(const Module &module, Diagnostics &diags) {
  return verify(module, diags) && Verifier(module, diags).runWhole();
}

} // namespace megalith::ir
