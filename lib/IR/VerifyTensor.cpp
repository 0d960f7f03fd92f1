#include "Verifier.h"
#include "llvm/ADT/STLExtras.h"
#include <fmt/format.h>

namespace megalith::ir {

const Operation *Verifier::weightNamed(llvm::StringRef name) const {
  for (const Operation &w : model->region().ops)
    if (w.op == Op::Weight && w.name == name)
      return &w;
  return nullptr;
}

const Operation *Verifier::weight(const Operation &op) {
  const Operation *found = weightNamed(op.name);
  if (!found) {
    fail(op, fmt::format("`@{}` is no weight of the model", op.name));
    return nullptr;
  }
  if (found->has<attr::layers>() && found->get<attr::layers>() != repeatCount) {
    fail(op, fmt::format("`@{}` has one tensor per layer ({}) and must be used in a `repeat` of "
                         "that count",
                         op.name, found->get<attr::layers>()));
    return nullptr;
  }
  return found;
}

bool Verifier::checkTensorOp(const Operation &op) {
  auto isRows = [&](unsigned i) {
    return operandType(op, i).kind == Type::Rows ||
           fail(op,
                fmt::format("operand {} must be rows such as `[R, 64] f32`, found `{}`", i, operandType(op, i).str()));
  };
  auto divides = [&](const char *what, int64_t part, int64_t whole) {
    return (part > 0 && whole % part == 0) || fail(op, fmt::format("`{}` = {} must divide {}", what, part, whole));
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
#define ELEMENTWISE1(Id, function, name) case Op::Id:
#define ELEMENTWISE2(Id, function, name) case Op::Id:
#define ROUNDING(Id, function, name)
#include "megalith/IR/Elementwise.def"
    return checkElementwise(op);

  case Op::Round: {
    Type from = operandType(op, 0);
    if (from.kind != Type::Rows && from.kind != Type::Vector)
      return isRows(0);
    return resultIs(op, {from.kind, Scalar::BF16, from.size});
  }
  case Op::Embed:
  case Op::WeightGet:
    return checkWeightRead(op);
  case Op::MatMul:
    return isRows(0) && checkProduct(op);
  case Op::ReduceSum:
  case Op::ReduceMax:
    return isRows(0) && divides("groups", op.get<attr::groups>(), operandType(op, 0).size) &&
           resultIs(op, Type::rows(op.get<attr::groups>(), Scalar::F32));
  case Op::RopeCos:
  case Op::RopeSin:
    return (resultType().kind == Type::Rows || resultRows(op.get<attr::dim>())) &&
           divides("dim", op.get<attr::dim>(), resultType().size) && divides("2", 2, op.get<attr::dim>()) &&
           checkTurned(op);
  case Op::RotateHalf:
    return isRows(0) && divides("dim", op.get<attr::dim>(), operandType(op, 0).size) &&
           divides("2", 2, op.get<attr::dim>()) && resultRows(operandType(op, 0).size) && checkTurned(op);
  case Op::KvAppend: {
    int64_t size = op.get<attr::kv_heads>() * op.get<attr::dim>();
    for (unsigned i : {0, 1})
      if (!isRows(i) ||
          (operandType(op, i).size != size && !operandIs(op, i, Type::rows(size, operandType(op, i).elem))))
        return false;
    return resultIs(op, Type::kv());
  }
  case Op::Attention: {
    int64_t size = op.get<attr::heads>() * op.get<attr::dim>();
    if (!isRows(0))
      return false;
    if (operandType(op, 0).size != size)
      return operandIs(op, 0, Type::rows(size, operandType(op, 0).elem));
    for (int64_t window : op.get<attr::window>())
      if (window < 0 || window > INT32_MAX)
        return fail(op, "a window is from 0 to 2147483647");
    return divides("kv_heads", op.get<attr::kv_heads>(), op.get<attr::heads>()) && operandIs(op, 1, Type::kv()) &&
           resultIs(op, Type::rows(size, Scalar::F32));
  }
  case Op::ArgMax:
    return isRows(0) && resultIs(op, Type::rows(1, Scalar::Token));

  case Op::Repeat:
    return checkRepeat(op);
  case Op::Stream:
  case Op::Map: {
    if (!op.region().args.empty())
      return fail(op, "the region takes no arguments");
    std::vector<Type> types;
    for (Value v : op.results)
      types.push_back(module.type(v));
    return yields(op, types) && checkGroup(op);
  }
  default:
    return true;
  }
}

/// A weight within its tensor, which another one may have, too.
bool Verifier::checkView(const Operation &op) {
  const std::vector<int64_t> &shape = op.get<attr::shape>(), &stored = storedShape(op);
  for (const Operation &other : model->region().ops) {
    if (&other == &op)
      break;
    if (other.op == Op::Weight && other.has<attr::from>() && other.get<attr::from>() == op.get<attr::from>() &&
        (storedShape(other) != stored || other.get<attr::layers>() != op.get<attr::layers>()))
      return fail(
          op, fmt::format("weight `{}` is of the same tensor, and of another shape or number of layers", other.name));
    if (other.op == Op::Weight && other.has<attr::from>() && other.get<attr::from>() == op.get<attr::from>() &&
        schemeOf(other) != schemeOf(op))
      return fail(op, fmt::format("weight `{}` is of the same tensor, and has another format", other.name));
  }
  if (!op.has<attr::stored>() && !op.has<attr::view>())
    return true;
  constexpr int64_t most = limits::weightBytes; // as of all weights: with less, places fit into 64 bits
  double elements = 1;
  for (int64_t size : stored)
    elements *= static_cast<double>(size);
  if (stored.empty() || stored.size() > 4 || llvm::any_of(stored, [](int64_t d) { return d <= 0; }) || elements > most)
    return fail(op, "`stored` must be one to four positive sizes, of at most 2^44 elements");
  if (op.has<attr::view>()) {
    const std::vector<int64_t> &view = op.get<attr::view>();
    if (view.size() != 5 || view[1] < 1 || llvm::any_of(view, [](int64_t n) { return n < 0 || n > most; }))
      return fail(op, "`view` must be offset, rows of a block, and distances of blocks, rows and columns");
  }
  const WeightView view = viewOf(op);
  const int64_t rows = shape[0], columns = shape.size() == 2 ? shape[1] : 1;
  const auto reach = [&](int64_t row) {
    return static_cast<double>(view.offset) +
           static_cast<double>(row / view.block) * static_cast<double>(view.blockStride) +
           static_cast<double>(row % view.block) * static_cast<double>(view.rowStride) +
           static_cast<double>(columns - 1) * static_cast<double>(view.columnStride);
  };
  const int64_t lastBlock = (rows - 1) / view.block * view.block; // the last row of one of the last two goes farthest
  if (std::max(reach(rows - 1), lastBlock > 0 ? reach(lastBlock - 1) : 0.0) >= elements)
    return fail(op, "the weight reaches beyond its tensor");
  return true;
}

/// A line of a matrix for each row, or a vector.
bool Verifier::checkWeightRead(const Operation &op) {
  const Operation *w = weight(op);
  if (!w)
    return false;
  const std::vector<int64_t> &shape = w->get<attr::shape>();
  const Operation *storage = w->has<attr::alias>() ? weightNamed(w->get<attr::alias>()) : w;
  if (op.op == Op::Embed)
    return (shape.size() == 2 || fail(op, "the weight must have two dimensions")) &&
           (!storage || !storage->has<attr::view>() || fail(op, "the weight must be a tensor as it is")) &&
           resultIs(op, Type::rows(shape[1], Scalar::BF16));
  return (shape.size() == 1 || fail(op, "the weight must have one dimension")) &&
         resultIs(op, Type::vector(shape[0], Scalar::BF16));
}

bool Verifier::checkProduct(const Operation &op) {
  const Operation *w = weight(op);
  if (!w)
    return false;
  const std::vector<int64_t> &shape = w->get<attr::shape>();
  if (shape.size() != 2 || shape[1] != operandType(op, 0).size)
    return fail(
        op, fmt::format("the weight `[{}]` does not take rows of {}", fmt::join(shape, ", "), operandType(op, 0).size));
  return resultIs(op, Type::rows(shape[0], Scalar::F32));
}

bool Verifier::checkRepeat(const Operation &op) {
  if (repeatCount)
    return fail(op, "a `repeat` cannot stand in another");
  std::vector<Type> types;
  const std::vector<Value> &args = op.region().args;
  if (args.size() != op.operands.size() || op.results.size() != op.operands.size())
    return fail(op, "as many results and region arguments as operands are needed");
  for (unsigned i = 0; i < args.size(); ++i) {
    types.push_back(module.type(op.results[i]));
    if (types[i].kind != Type::Rows || types[i].elem == Scalar::Token)
      return fail(op, fmt::format("result {} must be rows of numbers, found `{}`", i, types[i].str()));
    if (!operandIs(op, i, types[i]))
      return false;
    if (args[i].id < module.values.size() && module.type(args[i]) != types[i])
      return fail(op, fmt::format("region argument {} must be `{}`", i, types[i].str()));
  }
  return yields(op, types);
}

/// A group holds operations that go through rows one by one, and a stream products of one operand besides.
bool Verifier::checkGroup(const Operation &op) {
  std::vector<const Operation *> products;
  for (const Operation &inner : op.region().ops) {
    if (inner.op == Op::MatMul && op.op == Op::Stream) {
      products.push_back(&inner);
      if (inner.operands[0] != products[0]->operands[0])
        return fail(inner, "the products of a `stream` have one operand");
    } else if (inner.op == Op::MatMul || inner.op == Op::Attention || !inner.regions.empty()) {
      return fail(inner, fmt::format("`{}` cannot stand in `{}`", mnemonic(inner.op).str(), mnemonic(op.op).str()));
    }
  }
  if (op.op == Op::Stream && products.empty())
    return fail(op, "a `stream` has a product");
  for (const Operation *product : products)
    if (!checkPair(*product, products))
      return false;
  return true;
}

bool Verifier::checkTurned(const Operation &op) {
  const int64_t turned = op.get<attr::turned>(), dim = op.get<attr::dim>();
  return (turned <= dim && turned % 2 == 0) || fail(op, "`turned` must be even and at most `dim`");
}

/// Which two columns of a product a thread holds, see `fuse-epilogues`.
bool Verifier::checkPair(const Operation &product, const std::vector<const Operation *> &products) {
  const Pairing pair = product.get<attr::pair>();
  const int64_t columns = module.type(product.result()).size;
  if (pair == Pairing::Half)
    return ((product.get<attr::dim>() > 0 && product.get<attr::dim>() % 2 == 0 &&
             columns % product.get<attr::dim>() == 0) ||
            fail(product, "`dim` must be even and divide the columns")) &&
           checkTurned(product);
  if (pair == Pairing::Adjacent)
    return true;
  const auto partnerOf = [&](const Operation &of) -> const Operation * {
    const size_t number = of.get<attr::partner>();
    return of.get<attr::pair>() == Pairing::Dual && number < products.size() ? products[number] : nullptr;
  };
  const Operation *partner = partnerOf(product);
  return (partner && partner != &product && partnerOf(*partner) == &product &&
          module.type(partner->result()).size == columns) ||
         fail(product, "`partner` must be the number of another product of as many columns, whose partner this one is");
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
      return fail(op, fmt::format("operand {} `{}` does not divide {} columns", i, t.str(), expected.size));
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
    same = args[i].id < module.values.size() && module.type(args[i]) == module.type(passed[i]) &&
           module.type(args[i]).elem != Scalar::Token;
  return same || fail(op, "the arguments must be what the segment before it yields");
}

} // namespace megalith::ir
