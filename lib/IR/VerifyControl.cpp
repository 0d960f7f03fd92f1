#include "Verifier.h"
#include "megalith/IR/Reducers.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>
#include <map>

namespace megalith::ir {

bool Verifier::checkControlOp(const Operation &op) {
  if (isOverRange(op.op))
    return checkOver(op);
  if (hasTrait(op.op, Trait::Arithmetic))
    return checkArithmetic(op);
  switch (op.op) {
  case Op::Choose: {
    if (!operandIs(op, 0, boolean))
      return false;
    for (unsigned i : {0, 1}) {
      const auto type = yielded(op, i);
      if (!type || !op.region(i).args.empty())
        return type && fail(op, "a region of `choose` has no arguments");
      if (!storable(*type, module.type(op.result())))
        return fail(op, fmt::format("the result `{}` cannot hold `{}`", module.type(op.result()).str(), type->str()));
    }
    return true;
  }
  case Op::For:
    if (op.region().args.size() != 1 || op.region().args[0].id >= module.values.size() ||
        module.type(op.region().args[0]) != i32)
      return fail(op, "the region must have one argument of type `i32`");
    return operandIs(op, 0, i32) && operandIs(op, 1, i32);
  case Op::While:
    return yields(op, {boolean});
  case Op::Dim:
  case Op::Buffer:
  case Op::Items:
  case Op::DimGet:
  case Op::BufferAt:
  case Op::BufferSet:
  case Op::BufferCopy:
  case Op::BufferScan:
  case Op::BufferSort:
    return checkBufferOp(op);

  case Op::Tokens:
  case Op::Eos:
    return resultIs(op, Type::seq(0));
  case Op::IsEos:
    return operandIs(op, 0, Type::scalar(Scalar::Token)) && resultIs(op, boolean);
  case Op::Sampling:
    return resultIs(op, typeOf(op.get<attr::setting>()));
  case Op::Uniform:
    return operandIs(op, 0, i32) && operandIs(op, 1, i32) && operandIs(op, 2, i32) && resultIs(op, f32);
  case Op::Finished:
    return resultIs(op, boolean);
  case Op::Budget:
  case Op::PromptLen:
  case Op::Priority:
  case Op::Seated:
  case Op::Host:
    return resultIs(op, i32);
  case Op::Order:
    return checkOrder(op);
  case Op::FieldGet:
  case Op::FieldSet: {
    if (!declared(op, Op::Field, op.name))
      return false;
    const Type type = declaredType(*module.find(Op::Field, op.name));
    // A sequence that turns out to be longer than the field faults there.
    if (op.op == Op::FieldGet)
      return resultIs(op, type);
    return (alike(operandType(op, 0), type) && operandType(op, 0).size != 0) || operandIs(op, 0, type);
  }

  case Op::InputGet:
    return declared(op, Op::Input, op.name) && resultIs(op, declaredType(*module.find(Op::Input, op.name)));

  case Op::SeqLen:
  case Op::SeqAt:
  case Op::SeqSlice:
  case Op::SeqConcat:
  case Op::SeqMake:
  case Op::SeqConst:
  case Op::NgramLookup:
  case Op::Forced:
  case Op::Follow:
  case Op::Tree:
  case Op::Append:
    return checkSequenceOp(op);
  case Op::KvLen:
  case Op::KvLag:
  case Op::KvDrafts:
  case Op::KvFound:
  case Op::KvLive:
  case Op::KvPages:
    return declared(op, Op::Pool, op.name) && resultIs(op, i32);
  case Op::KvPressure:
    return declared(op, Op::Pool, op.name) && resultIs(op, boolean);
  case Op::KvKeep:
    if (op.operands.empty() || op.operands.size() > 2)
      return fail(op, fmt::format("expected 1 or 2 operands, found {}", op.operands.size()));
    return declared(op, Op::Pool, op.name) && operandIs(op, 0, i32) && (op.operands.size() < 2 || isNumbers(op, 1));

  case Op::CountAdd:
    return declared(op, Op::Metric, op.name) && operandIs(op, 0, i32);
  case Op::Trace: {
    if (!declared(op, Op::Gauge, op.name))
      return false;
    const Scalar type = module.find(Op::Gauge, op.name)->get<attr::type>();
    return operandType(op, 0).is(type) ||
           fail(op, fmt::format("operand 0 must be a scalar of the gauge's type `{}`, found `{}`", word(type),
                                operandType(op, 0).str()));
  }
  case Op::If:
    if (op.regions.size() != 1 && op.regions.size() != 2)
      return fail(op, fmt::format("expected 1 or 2 regions, found {}", op.regions.size()));
    return operandIs(op, 0, boolean);
  case Op::Goto:
    return checkGoto(op);
  case Op::Enter:
    return operandIs(op, 0, boolean);
  case Op::Yield:
    return true; // checked by the operation whose region it ends

  case Op::PolicyGet:
  case Op::PolicySet:
  case Op::PolicyRead:
  case Op::Observe:
  case Op::PolicyOutput:
    return checkPolicyOp(op);
  case Op::Call:
  case Op::Issue:
  case Op::Results:
  case Op::Pass:
    return checkCall(op);
  case Op::Reduce:
    return checkReduce(op);
  default:
    return checkDeclaration(op);
  }
}

/// Numbers of rows or positions. Sequences of tokens are such, too.
bool Verifier::isNumbers(const Operation &op, unsigned i) {
  const Type type = operandType(op, i);
  return (type.kind == Type::Seq && (type.elem == Scalar::I32 || type.elem == Scalar::Token)) ||
         fail(op, fmt::format("operand {} must be a sequence of numbers, found `{}`", i, type.str()));
}

bool Verifier::checkPolicyOp(const Operation &op) {
  if (op.op == Op::PolicyOutput) {
    const Operation *end = terminator(op);
    return !end || end->op != Op::Yield || end->operands.size() == 1 || fail(op, "an output yields one value");
  }
  const Operation *policy = module.find(Op::Policy, op.name);
  if (!policy)
    return declared(op, Op::Policy, op.name);
  auto child = [&](Op kind, llvm::StringRef name) -> const Operation * {
    for (const Operation &o : policy->region().ops)
      if (o.op == kind && o.name == name)
        return &o;
    fail(op, fmt::format("`@{}` has no {} `{}`", op.name, mnemonic(kind).str(), name.str()));
    return nullptr;
  };
  if (op.op == Op::Observe) {
    const Operation *observe = child(Op::PolicyObserve, "");
    if (!observe)
      return false;
    const std::vector<Value> &args = observe->region().args;
    if (args.size() != op.operands.size())
      return fail(op, fmt::format("expected {} operands, found {}", args.size(), op.operands.size()));
    for (unsigned i = 0; i < args.size(); ++i)
      if (!operandIs(op, i, module.type(args[i])))
        return false;
    return true;
  }
  if (op.op == Op::PolicyRead) {
    const Operation *output = child(Op::PolicyOutput, op.get<attr::output>());
    if (!output)
      return false;
    const Operation *end = terminator(*output);
    return !end || end->operands.size() != 1 || end->operands[0].id >= module.values.size() ||
           resultIs(op, module.type(end->operands[0]));
  }
  const Operation *state = child(Op::PolicyState, op.get<attr::state>());
  if (!state)
    return false;
  const Type type = declaredType(*state);
  return op.op == Op::PolicyGet ? resultIs(op, type) : operandIs(op, 0, type);
}

/// Outputs and observers are inlined where they are used, so none may use itself.
bool Verifier::checkPolicyCycles() {
  using Node = std::pair<std::string, std::string>; // policy, output; "" is the observer
  std::map<Node, std::set<Node>> uses;
  for (const Operation *policy : module.all(Op::Policy))
    for (const Operation &body : policy->region().ops)
      for (const Region &region : body.regions)
        walk(region, [&](const Operation &o) {
          if (o.op == Op::PolicyRead || o.op == Op::Observe)
            uses[{policy->name, body.name}].insert({o.name, o.op == Op::Observe ? "" : o.get<attr::output>()});
        });
  for (const auto &[start, direct] : uses) {
    std::set<Node> reached = direct;
    std::vector<Node> open(direct.begin(), direct.end());
    while (!open.empty()) {
      Node node = open.back();
      open.pop_back();
      if (node == start)
        return fail(*module.find(Op::Policy, start.first),
                    start.second.empty() ? std::string("observing uses itself")
                                         : fmt::format("the output `{}` uses itself", start.second));
      if (auto it = uses.find(node); it != uses.end())
        for (const Node &next : it->second)
          if (reached.insert(next).second)
            open.push_back(next);
    }
  }
  return true;
}

bool Verifier::checkGoto(const Operation &op) {
  const std::vector<std::string> &to = op.get<attr::to>();
  if (constexpr size_t most = limits::expressionLevels + 1; to.size() > most) // one more than there are conditions
    return fail(op, fmt::format("a `goto` chooses among {} states at most", most));
  if (to.size() != op.operands.size() + 1)
    return fail(op,
                fmt::format("expected one more state than conditions, found {} and {}", to.size(), op.operands.size()));
  for (unsigned i = 0; i < op.operands.size(); ++i)
    if (!operandIs(op, i, boolean))
      return false;
  for (const std::string &state : to)
    if (!declared(op, Op::State, state))
      return false;
  return true;
}

} // namespace megalith::ir
