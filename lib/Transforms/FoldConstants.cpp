//===- FoldConstants.cpp - evaluate what is known, drop what is unused ----===//
//
// One walk in order replaces operations on constants by constants, `if` on a known
// condition by its body and `goto` by its reachable targets; what is unused then goes.
// Equal constants become one. f32 is rounded once per operation, as in execution.
// Nothing is re-associated.
//===----------------------------------------------------------------------===//
#include "ControlUtil.h"
#include "device/Exact.h"
#include "megalith/Transforms/Passes.h"
#include <bit>
#include <cmath>
#include <tuple>

namespace megalith::transforms {

using namespace ir;

namespace {

/// A constant scalar: `i` for i32, bool and token, `f` for f32.
struct Known {
  Scalar type;
  int64_t i = 0;
  float f = 0;
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
    Known k{type};
    if (type == Scalar::F32)
      k.f = static_cast<float>(op.get<attr::value>().real());
    else if (type == Scalar::I32 || type == Scalar::Bool || type == Scalar::Token)
      k.i = op.get<attr::value>().whole();
    else
      return;
    constants[op.result()] = k;
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
    Type type = module.type(op.result());
    if (op.operands.empty() || type.kind != Type::ScalarKind)
      return std::nullopt;
    llvm::SmallVector<Known, 3> a;
    for (Value v : op.operands) {
      const Known *k = known(v);
      if (!k)
        return std::nullopt;
      a.push_back(*k);
    }
    if (op.op == Op::Ratio)
      return ratio(asFloat(a[0]), asFloat(a[1]));
    if (op.op == Op::Cast)
      return type.elem == Scalar::F32   ? Known{type.elem, 0, asFloat(a[0])}
             : a[0].type == Scalar::F32 ? Known{type.elem, exactInt(a[0].f)}
                                        : Known{type.elem, a[0].i};
    if (!op.regions.empty())
      return std::nullopt;
    if (a[0].type == Scalar::F32)
      return evaluateFloat(op.op, a[0].f, a.size() > 1 ? a[1].f : 0.0f);
    return evaluateInt(op.op, type.elem, a[0].i, a.size() > 1 ? a[1].i : 0);
  }

  static float asFloat(const Known &k) {
    return k.type == Scalar::F32 ? k.f : static_cast<float>(static_cast<int32_t>(k.i));
  }

  static std::optional<Known> number(float f) {
    // What an operation on a NaN gives (min, max, the payload) is the executor's.
    if (std::isnan(f))
      return std::nullopt;
    return Known{Scalar::F32, 0, f};
  }

  static std::optional<Known> ratio(float a, float b) { return number(b == 0 ? 0.0f : a / b); }

  static std::optional<Known> evaluateFloat(Op op, float a, float b) {
    auto truth = [](bool b) { return Known{Scalar::Bool, b}; };
    if (std::isnan(a) || std::isnan(b))
      return std::nullopt;
    switch (op) {
    case Op::Add:
      return number(a + b);
    case Op::Sub:
      return number(a - b);
    case Op::Mul:
      return number(a * b);
    case Op::Div:
      return number(a / b);
    case Op::Min:
      return number(b < a ? b : a);
    case Op::Max:
      return number(a < b ? b : a);
    case Op::Neg:
      return number(-a);
    case Op::Exp:
      return number(exactExp(a));
    case Op::Log:
      return number(exactLog(a));
    case Op::Pow:
      return number(exactPow(a, b));
    case Op::Sqrt:
      return number(exactSqrt(a));
    case Op::Abs:
      return number(exactAbs(a));
    case Op::Eq:
      return truth(a == b);
    case Op::Ne:
      return truth(a != b);
    case Op::Lt:
      return truth(a < b);
    case Op::Le:
      return truth(a <= b);
    case Op::Gt:
      return truth(a > b);
    case Op::Ge:
      return truth(a >= b);
    default:
      return std::nullopt;
    }
  }

  static std::optional<Known> evaluateInt(Op op, Scalar type, int64_t a, int64_t b) {
    // 64 bits hold every exact result; i32 wraps.
    auto number = [&](int64_t v) { return Known{type, static_cast<int32_t>(v)}; };
    switch (op) {
    case Op::Add:
      return number(a + b);
    case Op::Sub:
      return number(a - b);
    case Op::Mul:
      return number(a * b);
    case Op::Div:
      return number(b ? a / b : 0);
    case Op::Mod:
      return number(b ? a % b : 0);
    case Op::Min:
      return number(std::min(a, b));
    case Op::Max:
      return number(std::max(a, b));
    case Op::Neg:
      return number(-a);
    case Op::Abs:
      return number(a < 0 ? -a : a);
    case Op::Eq:
      return number(a == b);
    case Op::Ne:
      return number(a != b);
    case Op::Lt:
      return number(a < b);
    case Op::Le:
      return number(a <= b);
    case Op::Gt:
      return number(a > b);
    case Op::Ge:
      return number(a >= b);
    case Op::And:
      return number(a && b);
    case Op::Or:
      return number(a || b);
    case Op::Not:
      return number(!a);
    default:
      return std::nullopt;
    }
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
