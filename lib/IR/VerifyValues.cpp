#include "Verifier.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>

namespace megalith::ir {

static bool isNumber(Type t) { return t.is(Scalar::I32) || t.is(Scalar::F32); }

static bool isControlScalar(Scalar s) {
  return s == Scalar::I32 || s == Scalar::F32 || s == Scalar::Bool || s == Scalar::Token;
}

bool Verifier::checkArithmetic(const Operation &op) {
  Type result = module.type(op.result());
  auto operandsAre = [&](Type type) {
    for (unsigned i = 0; i < op.operands.size(); ++i)
      if (!operandIs(op, i, type))
        return false;
    return true;
  };
  switch (op.op) {
  case Op::Const: {
    if (result.kind != Type::ScalarKind)
      return fail(op, fmt::format("a constant is a scalar, found `{}`", result.str()));
    const Number value = op.get<attr::value>();
    bool isFloat = result.elem == Scalar::F32;
    if (!isNumber(result) && !result.is(Scalar::Bool) && !result.is(Scalar::Token))
      return fail(op, fmt::format("a constant is an i32, f32, bool or token, found `{}`", result.str()));
    if (isFloat ? !value.isReal() : value.isReal() || value.isFlag())
      return fail(op, fmt::format("a constant `{}` needs {} as `value`", result.str(),
                                  isFloat ? "a number with a point" : "an integer"));
    if (result.is(Scalar::Bool) && !holds(value, Scalar::Bool))
      return fail(op, "a constant `bool` is 0 or 1");
    // Folding can make an f32 that is no finite number.
    return isFloat || holds(value, result.elem) || fail(op, fmt::format("{} is no `{}`", value.whole(), result.str()));
  }
  case Op::Eq:
  case Op::Ne:
  case Op::Lt:
  case Op::Le:
  case Op::Gt:
  case Op::Ge:
    if (const Type a = operandType(op, 0); a.kind == Type::Seq && (op.op == Op::Eq || op.op == Op::Ne))
      return (alike(a, operandType(op, 1)) || operandIs(op, 1, a)) && resultIs(op, boolean);
    return (operandType(op, 0).kind == Type::ScalarKind || fail(op, "only scalars and sequences can be compared")) &&
           operandIs(op, 1, operandType(op, 0)) && resultIs(op, boolean);
  case Op::And:
  case Op::Or:
  case Op::Not:
    return operandsAre(boolean) && resultIs(op, boolean);
  case Op::Select:
    if (!operandIs(op, 0, boolean))
      return false;
    for (unsigned i : {1, 2})
      if (!storable(operandType(op, i), result))
        return operandIs(op, i, result);
    return true;
  case Op::Cast: {
    Type from = operandType(op, 0);
    auto pair = [&](Scalar a, Scalar b) { return from.is(a) && result.is(b); };
    return pair(Scalar::I32, Scalar::F32) || pair(Scalar::I32, Scalar::Token) || pair(Scalar::Token, Scalar::I32) ||
           pair(Scalar::Bool, Scalar::I32) || pair(Scalar::F32, Scalar::I32) ||
           fail(op, fmt::format("no cast from `{}` to `{}`", from.str(), result.str()));
  }
  case Op::Ratio:
    return operandIs(op, 0, i32) && operandIs(op, 1, i32) && resultIs(op, f32);
  case Op::Exp:
  case Op::Log:
  case Op::Pow:
  case Op::Sqrt:
    return operandsAre(f32) && resultIs(op, f32);
  default:
    if (op.op == Op::Mod && !operandsAre(i32))
      return false;
    return (isNumber(result) || fail(op, fmt::format("arithmetic is on numbers, found `{}`", result.str()))) &&
           operandsAre(result);
  }
}

bool Verifier::checkSequenceOp(const Operation &op) {
  Type result = module.type(op.result());
  auto isList = [&](unsigned i) {
    return (operandType(op, i).isList() && isControlScalar(operandType(op, i).elem)) ||
           fail(op, fmt::format("operand {} must be a sequence, found `{}`", i, operandType(op, i).str()));
  };
  auto isTokens = [&](unsigned i) {
    return operandType(op, i) == Type::seq(operandType(op, i).size) ||
           fail(op, fmt::format("operand {} must be a sequence of tokens, found `{}`", i, operandType(op, i).str()));
  };
  auto resultHolds = [&](Type from) {
    return fits(from, result) || fail(op, fmt::format("the result `{}` cannot hold `{}`", result.str(), from.str()));
  };
  switch (op.op) {
  case Op::SeqLen:
    return isList(0) && resultIs(op, i32);
  case Op::SeqAt:
    return isList(0) && operandIs(op, 1, i32) && resultIs(op, operandType(op, 0).item());
  // What is cut out may be known to be shorter than what it is cut from.
  case Op::SeqSlice: {
    if (!isList(0) || !operandIs(op, 1, i32) || !operandIs(op, 2, i32))
      return false;
    Type part = operandType(op, 0);
    part.size = result.size;
    return resultIs(op, part);
  }
  case Op::SeqConcat: {
    if (!isList(0) || !isList(1))
      return false;
    Type a = operandType(op, 0), b = operandType(op, 1);
    if (!alike(a, b))
      return operandIs(op, 1, a);
    Type both = a;
    both.size = a.size && b.size ? a.size + b.size : 0;
    both.inner = std::max(a.inner, b.inner);
    return resultHolds(both);
  }
  case Op::SeqMake:
    if (!result.isList() || !isControlScalar(result.elem) || result.size < static_cast<int64_t>(op.operands.size()))
      return fail(op, "the result must be a sequence with a place for every operand");
    for (unsigned i = 0; i < op.operands.size(); ++i)
      if (!storable(operandType(op, i), result.item()))
        return operandIs(op, i, result.item());
    return true;
  case Op::SeqConst: {
    const size_t count = result.elem == Scalar::F32 ? op.get<attr::numbers>().size() : op.get<attr::items>().size();
    if (result.kind != Type::Seq || !isControlScalar(result.elem) || count == 0 ||
        result.size != static_cast<int64_t>(count))
      return fail(op, "the result must be a sequence of as many elements");
    for (int64_t item : op.get<attr::items>())
      if (result.elem != Scalar::F32 && !holds(item, result.elem))
        return fail(op, fmt::format("{} is no `{}`", item, word(result.elem)));
    return true;
  }
  case Op::NgramLookup: {
    const std::vector<Operand> with = op.get<attr::with>();
    if (op.operands.size() != 2 + with.size())
      return fail(op, fmt::format("expected {} operands, found {}", 2 + with.size(), op.operands.size()));
    if (with.size() > 1 && with[0] == with[1])
      return fail(op, fmt::format("`with` names `{}` twice", word(with[0])));
    if (!isTokens(0) || !operandIs(op, 1, i32))
      return false;
    for (unsigned i = 0; i < with.size(); ++i)
      if (!(with[i] == Operand::From ? isTokens(2 + i) : operandIs(op, 2 + i, i32)))
        return false;
    if (result.kind == Type::Table)
      return result.elem == Scalar::Token || resultIs(op, Type::table(result.size, result.inner, Scalar::Token));
    return resultIs(op, Type::seq(result.size));
  }
  case Op::Forced:
    if (!operandIs(op, 0, i32))
      return false;
    return result.size > 0 ? resultIs(op, Type::seq(result.size)) : fail(op, "the result must have a capacity");
  case Op::Follow:
    if (!isTokens(0) || !isTokens(2) || !operandIs(op, 3, i32))
      return false;
    if (operandType(op, 1) != Type::seq(operandType(op, 1).size, Scalar::I32))
      return operandIs(op, 1, Type::seq(operandType(op, 1).size, Scalar::I32));
    return result.size > 0 ? resultIs(op, Type::seq(result.size, Scalar::I32))
                           : fail(op, "the result must have a capacity");
  case Op::Tree: {
    const Type table = operandType(op, 1);
    if (!operandIs(op, 0, Type::scalar(Scalar::Token)))
      return false;
    if (table.kind != Type::Table || table.elem != Scalar::Token)
      return fail(op, fmt::format("operand 1 must be a table of tokens, found `{}`", table.str()));
    const int64_t most = 1 + table.size * table.inner;
    return (result == Type::seq(most) && module.type(op.result(1)) == Type::seq(most, Scalar::I32)) ||
           fail(op, fmt::format("the results must be `token<{0}>` and `i32<{0}>`", most));
  }
  default: // append
    if (op.operands.empty() || op.operands.size() > 2)
      return fail(op, fmt::format("expected 1 or 2 operands, found {}", op.operands.size()));
    return isTokens(0) && (op.operands.size() == 1 || isTokens(1)) && resultIs(op, i32);
  }
}

std::optional<Type> Verifier::yielded(const Operation &op, unsigned region) {
  const Operation *yield = terminator(op, region);
  if (!yield || yield->op != Op::Yield || yield->operands.size() != 1 ||
      yield->operands[0].id >= module.values.size()) {
    fail(op, fmt::format("`{}` must yield one value", mnemonic(op.op).str()));
    return std::nullopt;
  }
  return module.type(yield->operands[0]);
}

/// What goes through the numbers of a range: operands are its end, or begin and end; of `seq.top` then k.
bool Verifier::checkOver(const Operation &op) {
  const Type result = module.type(op.result());
  const size_t more = op.op == Op::SeqTop;
  if (op.operands.size() != 1 + more && op.operands.size() != 2 + more)
    return fail(op, fmt::format("expected {} or {} operands, found {}", 1 + more, 2 + more, op.operands.size()));
  for (unsigned i = 0; i < op.operands.size(); ++i)
    if (!operandIs(op, i, i32))
      return false;
  if (op.region().args.size() != 1 || op.region().args[0].id >= module.values.size() ||
      module.type(op.region().args[0]) != i32)
    return fail(op, "the region must have one argument of type `i32`");
  if (op.op == Op::PrefixWhile || op.op == Op::Count)
    return resultIs(op, i32) && yields(op, {boolean});
  const auto by = [&](auto... words) { return op.op == Op::Fold && ((op.get<attr::by>() == words) || ...); };
  if (by(By::All, By::Any, By::Find))
    return resultIs(op, by(By::Find) ? i32 : boolean) && yields(op, {boolean});
  if (op.op == Op::SeqSort) {
    const Operation *yield = terminator(op);
    if (!yield || yield->op != Op::Yield || yield->operands.empty() || yield->operands.size() > 8)
      return fail(op, "`seq.sort` must yield 1 to 8 keys");
    for (Value v : yield->operands)
      if (v.id < module.values.size() && !isNumber(module.type(v)))
        return fail(op, fmt::format("a key is an i32 or f32, found `{}`", module.type(v).str()));
    return result.size > 0 ? resultIs(op, Type::seq(result.size, Scalar::I32))
                           : fail(op, "the result must have a capacity");
  }
  if (op.op == Op::SeqFilter)
    return result.size > 0 ? resultIs(op, Type::seq(result.size, Scalar::I32)) && yields(op, {boolean})
                           : fail(op, "the result must have a capacity");
  const auto type = yielded(op);
  if (!type)
    return false;
  if (op.op == Op::SeqMap) {
    const bool row = type->kind == Type::Seq;
    if (result.size < 1 || !isControlScalar(type->elem) || (row && type->size == 0))
      return fail(op, "the result must have a capacity");
    const Type made = row ? Type::table(result.size, result.inner, type->elem) : Type::seq(result.size, type->elem);
    return (type->kind == Type::ScalarKind || row) && result == made && (!row || type->size <= result.inner)
               ? true
               : fail(op, fmt::format("the result `{}` cannot hold `{}`", result.str(), type->str()));
  }
  if (!isNumber(*type))
    return fail(op, fmt::format("`{}` goes by an i32 or f32, found `{}`", mnemonic(op.op).str(), type->str()));
  if (op.op == Op::Fold)
    return resultIs(op, by(By::Argmin, By::Argmax) ? i32 : *type);
  if (result.size < 1)
    return fail(op, "the result must have a capacity");
  return resultIs(op, Type::seq(result.size, op.op == Op::SeqScan ? type->elem : Scalar::I32));
}

} // namespace megalith::ir
