#include "Verifier.h"

namespace megalith::ir {

const Operation *Verifier::weight(const Operation &op) {
  const Operation *found = nullptr;
  for (const Operation &w : model->region().ops)
    if (w.op == Op::Weight && w.name == op.name)
      found = &w;
  if (!found) {
    fail(op, fmt::format("`@{}` is no weight of the model", op.name));
    return nullptr;
  }
  if (found->has("layers") && found->getInt("layers") != repeatCount) {
    fail(op, fmt::format("`@{}` has one tensor per layer ({}) and must be used in a `repeat` of "
                         "that count",
                         op.name, found->getInt("layers")));
    return nullptr;
  }
  return found;
}

bool Verifier::checkTensorOp(const Operation &op) {
  auto isRows = [&](unsigned i) {
    return operandType(op, i).kind == Type::Rows ||
           fail(op, fmt::format("operand {} must be rows such as `[R, 64] f32`, found `{}`", i,
                                operandType(op, i).str()));
  };
  auto divides = [&](const char *what, int64_t part, int64_t whole) {
    return (part > 0 && whole % part == 0) ||
           fail(op, fmt::format("`{}` = {} must divide {}", what, part, whole));
  };
  auto resultType = [&] { return module.type(op.result()); };
  auto resultRows = [&](int64_t size) {
    Type t = resultType();
    return (t.kind == Type::Rows && t.size == size) ||
           fail(op, fmt::format("the result must be `[R, {}]`, found `{}`", size, t.str()));
  };

  switch (op.op) {
  case Op::Segment:
    return checkSegment(op);
  case Op::Const:
    return checkArithmetic(op);
  case Op::Add:
  case Op::Sub:
  case Op::Mul:
  case Op::Div:
  case Op::Max:
  case Op::Min:
  case Op::Neg:
  case Op::Silu:
  case Op::Gelu:
  case Op::GeluTanh:
  case Op::Relu:
  case Op::Softplus:
  case Op::Sigmoid:
  case Op::Tanh:
  case Op::Exp:
  case Op::Rsqrt:
    return checkElementwise(op);

  case Op::Round: {
    Type from = operandType(op, 0);
    if (from.kind != Type::Rows && from.kind != Type::Vector)
      return isRows(0);
    return resultIs(op, {from.kind, Scalar::BF16, from.size});
  }
  case Op::Embed: {
    const Operation *w = weight(op);
    if (!w)
      return false;
    std::vector<int64_t> shape = w->getInts("shape");
    return (shape.size() == 2 || fail(op, "the weight must have two dimensions")) &&
           resultIs(op, Type::rows(shape[1], Scalar::BF16));
  }
  case Op::WeightGet: {
    const Operation *w = weight(op);
    if (!w)
      return false;
    std::vector<int64_t> shape = w->getInts("shape");
    return (shape.size() == 1 || fail(op, "the weight must have one dimension")) &&
           resultIs(op, Type::vector(shape[0], Scalar::BF16));
  }
  case Op::MatMul: {
    const Operation *w = weight(op);
    if (!w || !isRows(0) || !require(op, {"tree"}))
      return false;
    std::vector<int64_t> shape = w->getInts("shape");
    if (shape.size() != 2 || shape[1] != operandType(op, 0).size)
      return fail(op, fmt::format("the weight `[{}]` does not take rows of {}",
                                  fmt::join(shape, ", "), operandType(op, 0).size));
    return resultIs(op, Type::rows(shape[0], Scalar::F32));
  }
  case Op::ReduceSum:
  case Op::ReduceMax:
    if (op.op == Op::ReduceSum && !require(op, {"tree"}))
      return false;
    return isRows(0) && divides("groups", op.getInt("groups"), operandType(op, 0).size) &&
           resultIs(op, Type::rows(op.getInt("groups"), Scalar::F32));
  case Op::RopeCos:
  case Op::RopeSin:
    return (resultType().kind == Type::Rows || resultRows(op.getInt("dim"))) &&
           divides("dim", op.getInt("dim"), resultType().size) && divides("2", 2, op.getInt("dim"));
  case Op::RotateHalf:
    return isRows(0) && divides("dim", op.getInt("dim"), operandType(op, 0).size) &&
           divides("2", 2, op.getInt("dim")) && resultRows(operandType(op, 0).size);
  case Op::KvAppend: {
    int64_t size = op.getInt("kv_heads") * op.getInt("dim");
    for (unsigned i : {0, 1})
      if (!isRows(i) || (operandType(op, i).size != size &&
                         !operandIs(op, i, Type::rows(size, operandType(op, i).elem))))
        return false;
    return resultIs(op, Type::kv());
  }
  case Op::Attention: {
    int64_t size = op.getInt("heads") * op.getInt("dim");
    if (!require(op, {"scale", "tree"}) || !isRows(0))
      return false;
    if (operandType(op, 0).size != size)
      return operandIs(op, 0, Type::rows(size, operandType(op, 0).elem));
    return divides("kv_heads", op.getInt("kv_heads"), op.getInt("heads")) &&
           operandIs(op, 1, Type::kv()) && resultIs(op, Type::rows(size, Scalar::F32));
  }
  case Op::ArgMax:
    return isRows(0) && resultIs(op, Type::rows(1, Scalar::Token));

  case Op::Repeat: {
    if (op.getInt("count") <= 0)
      return fail(op, "`count` must be a positive integer");
    std::vector<Type> types;
    const std::vector<Value> &args = op.region().args;
    if (args.size() != op.operands.size() || op.results.size() != op.operands.size())
      return fail(op, "as many results and region arguments as operands are needed");
    for (unsigned i = 0; i < args.size(); ++i) {
      types.push_back(module.type(op.results[i]));
      if (!operandIs(op, i, types[i]))
        return false;
      if (args[i].id < module.values.size() && module.type(args[i]) != types[i])
        return fail(op, fmt::format("region argument {} must be `{}`", i, types[i].str()));
    }
    return yields(op, types);
  }
  case Op::Stream:
  case Op::Map: {
    if (!op.region().args.empty())
      return fail(op, "the region takes no arguments");
    std::vector<Type> types;
    for (Value v : op.results)
      types.push_back(module.type(v));
    return yields(op, types);
  }
  default:
    return true;
  }
}

/// Operands of one element per column, or fewer that divide the columns (see docs/ir.md).
bool Verifier::checkElementwise(const Operation &op) {
  Type expected = f32;
  for (unsigned i = 0; i < op.operands.size(); ++i) {
    Type t = operandType(op, i);
    if (t.kind == Type::Kv || t.kind == Type::Seq)
      return fail(op, fmt::format("operand {} has no columns: `{}`", i, t.str()));
    if (t.kind == Type::ScalarKind) {
      if (t != f32)
        return operandIs(op, i, f32);
      continue;
    }
    if (t.kind == Type::Rows || expected.kind == Type::ScalarKind)
      expected.kind = t.kind;
    expected.size = std::max(expected.size, t.size);
  }
  for (unsigned i = 0; i < op.operands.size(); ++i) {
    Type t = operandType(op, i);
    if (t.kind != Type::ScalarKind && expected.size % t.size != 0)
      return fail(op, fmt::format("operand {} `{}` does not divide {} columns", i, t.str(),
                                  expected.size));
  }
  return resultIs(op, expected);
}

/// A segment's arguments are what the segment before it yields.
bool Verifier::checkSegment(const Operation &op) {
  const Operation *before = nullptr;
  for (const Operation &o : model->region().ops) {
    if (&o == &op)
      break;
    if (o.op == Op::Segment)
      before = &o;
  }
  std::vector<Value> passed;
  if (const Operation *end = before ? terminator(*before) : nullptr)
    passed.assign(end->operands.begin(), end->operands.end());
  const std::vector<Value> &args = op.region().args;
  bool same = args.size() == passed.size();
  for (unsigned i = 0; same && i < args.size(); ++i)
    same = args[i].id < module.values.size() && module.type(args[i]) == module.type(passed[i]);
  return same || fail(op, "the arguments must be what the segment before it yields");
}

} // namespace megalith::ir
