#include "BodyBuilder.h"
#include "Names.h"
#include "megalith/IR/Calls.h"
#include "megalith/IR/Effects.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include <fmt/format.h>

namespace megalith::emit {

void BodyBuilder::define(const Operation &op, Code e, bool free) {
  const Value v = op.result();
  Pending p{std::move(e), free, uses[v.id], false, module.hint(v).str(), module.type(v), op.loc};
  if (p.name.empty())
    p.name = op.op == Op::BufferAt ? op.name : fallbackName(op.op);
  const bool isLong = !free && p.expression.size() > longExpression && !module.hint(v).empty();
  if (p.uses == 0) {
    if (p.expression.mayFault)
      add(p.expression, op.loc);
  } else {
    const bool keep = free || p.uses == 1;
    values[v.id] = std::move(p);
    if (!keep || isLong)
      makeVariable(v.id);
  }
}

Code BodyBuilder::use(Value v) {
  auto it = values.find(v.id);
  assert(it != values.end() && "the verifier checked definition before use");
  assert(it->second.uses > 0);
  --it->second.uses;
  return it->second.expression;
}

void BodyBuilder::makeVariable(uint32_t id) {
  Pending &p = values[id];
  const std::string name = locals.variable(p.name);
  // Views keep reading what they show; tokens already there do not change.
  Resources reads;
  if (p.type.isList()) {
    reads = p.expression.reads;
    reads.erase("tokens");
  }
  add(Code(fmt::format("const {} {} = ", typeText(p.type), name)).add(p.expression), p.loc);
  setVariable(p, name, std::move(reads));
}

void BodyBuilder::setVariable(Pending &p, llvm::StringRef name, Resources reads) {
  p.expression = Code(name, Primary, std::move(reads));
  p.free = p.variable = true;
}

void BodyBuilder::settle(const Resources &writes) {
  for (auto &[id, p] : values)
    if (!p.variable && p.uses > 0 && (p.expression.mayFault || meet(p.expression.reads, writes)))
      makeVariable(id);
}

const char *BodyBuilder::fallbackName(Op op) {
  switch (op) {
  case Op::Tokens:
    return "tokens";
  case Op::Budget:
    return "budget";
  case Op::Finished:
    return "finished";
  case Op::Results:
    return "results";
  case Op::SeqLen:
    return "length";
  case Op::SeqAt:
    return "token";
  case Op::SeqSlice:
  case Op::SeqConcat:
  case Op::SeqMake:
  case Op::SeqConst:
  case Op::SeqMap:
  case Op::SeqFilter:
  case Op::SeqScan:
    return "sequence";
  case Op::SeqTop:
  case Op::SeqSort:
    return "order";
  case Op::Follow:
    return "path";
  case Op::NgramLookup:
    return "found";
  case Op::Forced:
    return "drafts";
  case Op::PrefixWhile:
  case Op::Count:
  case Op::Append:
    return "count";
  case Op::Fold:
    return "total";
  case Op::KvLen:
    return "kvLen";
  case Op::KvLag:
    return "lag";
  case Op::Ratio:
    return "rate";
  case Op::Select:
  case Op::Choose:
    return "chosen";
  default:
    return "value";
  }
}

std::string BodyBuilder::typeText(const Type &type) {
  if (type.isList())
    return "auto";
  switch (type.elem) {
  case Scalar::F32:
    return "float";
  case Scalar::Bool:
    return "bool";
  case Scalar::I64:
    return "long long";
  case Scalar::U32:
    return "unsigned";
  default:
    return "int";
  }
}

Code BodyBuilder::useGuarded(Value v) {
  if (values[v.id].expression.mayFault)
    makeVariable(v.id);
  return use(v);
}

Code BodyBuilder::call(llvm::StringRef function, llvm::ArrayRef<Value> operands) {
  Code code((function + "(").str());
  settleFaults(operands);
  for (size_t i = 0; i < operands.size(); ++i)
    code.add(i ? ", " : "").add(use(operands[i]));
  return code.add(")");
}

Code BodyBuilder::callWithLine(llvm::StringRef function, const Operation &op) {
  Code code((function + "(").str());
  for (size_t i = 0; i < op.operands.size(); ++i)
    code.add(i ? ", " : "").add(use(op.operands[i]));
  return code.addLine(op.loc.line).add(")");
}

void BodyBuilder::settleFaults(llvm::ArrayRef<Value> operands) {
  const auto faults = [&](Value v) {
    const Pending &p = values[v.id];
    return !p.variable && p.expression.mayFault;
  };
  if (!ordersFaults())
    return;
  size_t last = operands.size();
  while (last > 0 && !faults(operands[last - 1]))
    --last;
  for (size_t i = 0; i + 1 < last; ++i)
    if (faults(operands[i]))
      makeVariable(operands[i].id);
}

Code BodyBuilder::infix(const Operation &op, const char *symbol, Precedence precedence, bool guarded) {
  if (!guarded)
    settleFaults(op.operands);
  const Code a = use(op.operands[0]);
  const Code b = guarded ? useGuarded(op.operands[1]) : use(op.operands[1]);
  return Code("", precedence).add(a, precedence).add(fmt::format(" {} ", symbol)).add(b, Precedence(precedence + 1));
}

Code BodyBuilder::arithmetic(const Operation &op, const char *rounded, const char *symbol, const char *wrapping,
                             Precedence precedence) {
  if (isF32(op.operands[0]))
    return call(rounded, op.operands);
  return intervals.fits(op) ? infix(op, symbol, precedence) : call(wrapping, op.operands);
}

void BodyBuilder::constant(const Operation &op) {
  const Type &type = module.type(op.result());
  const Number value = op.get<attr::value>();
  if (type.is(Scalar::F32))
    return define(op, Code::constant(value.real()), true);
  if (type.is(Scalar::Bool))
    return define(op, Code(value.truth() ? "true" : "false"), true);
  constants[op.result().id] = value.whole();
  define(op, Code::constant(static_cast<int32_t>(value.whole())), true);
}

Code BodyBuilder::division(const Operation &op, const char *symbol, const char *function) {
  // A constant divisor above 0 needs no check.
  const auto divisor = constants.find(op.operands[1].id);
  return divisor != constants.end() && divisor->second > 0 ? infix(op, symbol, Product) : call(function, op.operands);
}

Code BodyBuilder::select(const Operation &op) {
  if (module.type(op.result()).isList()) // of two types of C++
    return call("t.either", op.operands);
  const Code b = useGuarded(op.operands[1]), c = useGuarded(op.operands[2]);
  const Code a = use(op.operands[0]);
  return Code("", Ternary).add(a, OrLevel).add(" ? ").add(b, OrLevel).add(" : ").add(c);
}

void BodyBuilder::cast(const Operation &op) {
  const Value from = op.operands[0];
  if (isF32(op.result()) && !isF32(from))
    return define(op, call("float", from));
  if (isF32(from) && !isF32(op.result()))
    return define(op, call("t.toInt", from));
  if (module.type(from).is(Scalar::Bool) && !module.type(op.result()).is(Scalar::Bool))
    return define(op, call("int", from));
  const bool free = values[from.id].free;
  define(op, use(from), free);
}

Code BodyBuilder::comparison(const Operation &op, const char *symbol, Precedence precedence) {
  if (!module.type(op.operands[0]).isList())
    return infix(op, symbol, precedence);
  Code code = call("t.equal", op.operands);
  return op.op == Op::Eq ? code : Code("!", Unary).add(code, Primary);
}

void BodyBuilder::emitValue(const Operation &op) {
  switch (op.op) {
  case Op::Const:
    return constant(op);
  case Op::Cast:
    return cast(op);
  default:
    return define(op, expression(op));
  }
}

Code BodyBuilder::expression(const Operation &op) {
  if (isOverRange(op.op))
    return over(op);
  switch (op.op) {
  case Op::Add:
    return arithmetic(op, "__fadd_rn", "+", "t.wrapAdd", Sum);
  case Op::Sub:
    return arithmetic(op, "__fsub_rn", "-", "t.wrapSub", Sum);
  case Op::Mul:
    return arithmetic(op, "__fmul_rn", "*", "t.wrapMul", Product);
  case Op::Div:
    return isF32(op.operands[0]) ? call("__fdiv_rn", op.operands) : division(op, "/", "t.divide");
  case Op::Mod:
    return division(op, "%", "t.modulo");
  case Op::Min:
    return call("t.min", op.operands);
  case Op::Max:
    return call("t.max", op.operands);
  case Op::Eq:
    return comparison(op, "==", Equality);
  case Op::Ne:
    return comparison(op, "!=", Equality);
  case Op::Lt:
    return infix(op, "<", Relation);
  case Op::Le:
    return infix(op, "<=", Relation);
  case Op::Gt:
    return infix(op, ">", Relation);
  case Op::Ge:
    return infix(op, ">=", Relation);
  case Op::And:
    return infix(op, "&&", AndLevel, true);
  case Op::Or:
    return infix(op, "||", OrLevel, true);
  case Op::Not:
    return unary(op, "!");
  case Op::Neg:
    return isF32(op.operands[0]) || intervals.fits(op) ? unary(op, "-") : call("t.wrapNeg", op.operands);
  case Op::Select:
    return select(op);
  case Op::Ratio:
    return call("t.ratio", op.operands);
  case Op::SeqLen:
    return Code().add(use(op.operands[0]), Primary).add(".size()");
  case Op::SeqAt:
    return elementAt(op);
  case Op::SeqSlice:
    return call("t.slice", op.operands);
  case Op::SeqConcat:
    return call("t.concat", op.operands);
  case Op::SeqMake:
    return make(op);
  case Op::SeqConst:
    return fixed(op);
  case Op::Exp:
    return call("t.exp", op.operands);
  case Op::Log:
    return call("t.log", op.operands);
  case Op::Pow:
    return call("t.pow", op.operands);
  case Op::Sqrt:
    return call("t.sqrt", op.operands);
  case Op::Abs:
    return call("t.abs", op.operands);
  case Op::Choose:
    return choose(op);
  default:
    assert(false && "the verifier checked that this stands in control code");
    return {};
  }
}

} // namespace megalith::emit
