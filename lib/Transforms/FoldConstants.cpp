//===- FoldConstants.cpp - evaluate what is known, drop what is unused ----===//
//
// One walk in order replaces operations on constants by constants, `if` on a known
// condition by its body and `goto` by its reachable targets; what is unused then goes.
// Equal constants become one. f32 is rounded once per operation, as in execution.
// Nothing is re-associated.
//===----------------------------------------------------------------------===//
#include "ControlUtil.h"
#include "megalith/IR/Scalar.h"
#include "megalith/Transforms/Passes.h"
#include <bit>
#include <cmath>
#include <tuple>

namespace megalith::transforms {

using namespace ir;

namespace {

struct Known : ScalarValue {
  Scalar type;
};

class Folder {
public:
  explicit Folder(Module &module) : module(module) {}

  void run() {
    fold(module.root.region(), /*isControl=*/true, {});
    dropUnused(module);
  }

private:
  const Known *known(Value v) const {
    auto it = constants.find(v);
    return it == constants.end() ? nullptr : &it->second;
  }

  /// Constants that stand in this region or around it.
  using Pool = std::map<std::tuple<Scalar, int64_t, uint32_t>, Value>;

  void fold(Region &region, bool isControl, Pool pool) {
    std::vector<Operation> out;
    for (Operation &op : region.ops) {
      for (Value &v : op.operands)
        if (auto it = replaced.find(v); it != replaced.end())
          v = it->second;
      for (Region &inner : op.regions)
        fold(inner, isControl && op.op != Op::Segment, pool);
      if (op.op == Op::If) {
        foldIf(op, out);
        continue;
      }
      if (op.op == Op::Choose && foldChoose(op, out))
        continue;
      if (op.op == Op::Goto)
        foldGoto(op);
      if (op.results.size() == 1 && op.op != Op::Const) {
        if (std::optional<Value> same = simplify(op)) {
          replaced[op.result()] = *same;
          continue;
        }
        if (std::optional<Known> result = evaluate(op))
          makeConstant(op, *result);
      }
      if (op.op == Op::Const) {
        remember(op);
        // Control code has each constant once; tensor passes want them next to their uses.
        if (const Known *k = known(op.result()); k && isControl) {
          auto [first, isNew] = pool.try_emplace({k->type, k->i, std::bit_cast<uint32_t>(k->f)}, op.result());
          if (!isNew) {
            replaced[op.result()] = first->second;
            continue;
          }
        }
      }
      out.push_back(std::move(op));
    }
    region.ops = std::move(out);
  }

  void remember(const Operation &op) {
    Scalar type = module.type(op.result()).elem;
    const Number value = op.get<attr::value>();
    if (type == Scalar::F32)
      constants[op.result()] = {ScalarValue::real(static_cast<float>(value.real())), type};
    else if (type == Scalar::I32 || type == Scalar::Bool || type == Scalar::Token)
      constants[op.result()] = {ScalarValue::whole(value.whole()), type};
  }

  static void makeConstant(Operation &op, const Known &k) {
    op.op = Op::Const;
    op.name.clear();
    op.operands.clear();
    op.regions.clear();
    op.attrs.clear();
    if (k.type == Scalar::F32)
      op.set<attr::value>(static_cast<double>(k.f));
    else
      op.set<attr::value>(k.i);
  }

  /// The body of an `if` on a constant takes its place; its values are not used elsewhere.
  void foldIf(Operation &op, std::vector<Operation> &out) {
    const Known *condition = known(op.operands[0]);
    if (!condition) {
      out.push_back(std::move(op));
      return;
    }
    size_t taken = condition->i ? 0 : 1;
    if (taken < op.regions.size())
      for (Operation &inner : op.region(taken).ops)
        out.push_back(std::move(inner));
  }

  /// The side that a constant chooses takes its place, unless the result has room for more than its value.
  bool foldChoose(Operation &op, std::vector<Operation> &out) {
    const Known *condition = known(op.operands[0]);
    if (!condition)
      return false;
    Region &taken = op.region(condition->i ? 0 : 1);
    const Value value = taken.ops.back().operands[0];
    if (module.type(value) != module.type(op.result()))
      return false;
    replaced[op.result()] = value;
    taken.ops.pop_back();
    for (Operation &inner : taken.ops)
      out.push_back(std::move(inner));
    return true;
  }

  void foldGoto(Operation &op) {
    std::vector<std::string> to = op.get<attr::to>(), reachable;
    llvm::SmallVector<Value, 3> conditions;
    for (size_t i = 0; i < to.size(); ++i) {
      const Known *condition = i < op.operands.size() ? known(op.operands[i]) : nullptr;
      if (condition && !condition->i)
        continue;
      reachable.push_back(to[i]);
      if (condition || i == op.operands.size())
        break;
      conditions.push_back(op.operands[i]);
    }
    op.operands = conditions;
    op.set<attr::to>(reachable);
  }

  /// Results that are one of the operands.
  std::optional<Value> simplify(const Operation &op) const {
    if (op.op == Op::Select)
      if (const Known *condition = known(op.operands[0])) {
        Value taken = op.operands[condition->i ? 1 : 2];
        // A select may widen a sequence's capacity; then it stays.
        if (module.type(taken) == module.type(op.result()))
          return taken;
      }
    if (op.op == Op::And || op.op == Op::Or)
      for (unsigned i : {0, 1})
        if (const Known *k = known(op.operands[i]))
          return (k->i != 0) == (op.op == Op::Or) ? op.operands[i] : op.operands[1 - i];
    return std::nullopt;
  }

  std::optional<Known> evaluate(const Operation &op) const {
    const Type type = module.type(op.result());
    if (!hasTrait(op.op, Trait::Arithmetic) || type.kind != Type::ScalarKind)
      return std::nullopt;
    llvm::SmallVector<ScalarValue, 3> operands;
    for (Value v : op.operands) {
      const Known *k = known(v);
      // What comes of a NaN (min, max, the payload) is the executor's.
      if (!k || std::isnan(k->f))
        return std::nullopt;
      operands.push_back(*k);
    }
    std::optional<ScalarValue> value = valueOf(op.op, operands, type.elem == Scalar::F32);
    if (!value || std::isnan(value->f))
      return std::nullopt;
    value->i = wrapped(value->i);
    if (type.elem == Scalar::Token && value->i < 0) // there is no such constant
      return std::nullopt;
    return Known{*value, type.elem};
  }

  Module &module;
  std::map<Value, Known> constants;
  std::map<Value, Value> replaced;
};

} // namespace

Module foldConstants(Module module) {
  Folder(module).run();
  return module;
}

} // namespace megalith::transforms
