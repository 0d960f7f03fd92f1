#include "Verifier.h"
#include "megalith/IR/Calls.h"
#include "megalith/IR/Reducers.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>

namespace megalith::ir {

bool Verifier::checkCall(const Operation &op) {
  // The control half of a module can be printed and checked without its models.
  if (!module.all(Op::Model).empty() && !declared(op, Op::Model, op.name))
    return false;
  if (op.op == Op::Pass)
    return op.name.empty() ? fail(op, "a pass names its model") : true;
  if (op.op == Op::Results)
    return checkResults(op);
  const std::vector<Operand> with = op.get<attr::with>();
  if (op.operands.size() != 1 + with.size())
    return fail(op, fmt::format("expected {} operands: tokens and what `with` names, found {}", 1 + with.size(),
                                op.operands.size()));
  if (operandType(op, 0).kind != Type::Seq || operandType(op, 0).elem != Scalar::Token)
    return operandIs(op, 0, Type::seq(0));
  if (with.size() > 1)
    return fail(op, "`with` has one of `parents` and `visible`");
  if (!with.empty() && op.get<attr::chunk>())
    return fail(op, fmt::format("a call with `{}` is indivisible, and has no `chunk`", word(with[0])));
  if (!with.empty() && !(with[0] == Operand::Visible && operandType(op, 1) == i32) && !isNumbers(op, 1))
    return false;
  if (op.regions.size() > 1)
    return fail(op, fmt::format("expected one region of reducers, found {}", op.regions.size()));
  const llvm::ArrayRef<Operation> reducers = reducersOf(op);
  for (const Operation &inner : reducers)
    if (inner.op != Op::Reduce)
      return fail(inner, fmt::format("only `reduce` stands in a `{}`", mnemonic(op.op).str()));
  if (op.has<attr::last_row>() && !checkLastRow(op))
    return false;
  if (op.op == Op::Issue)
    return true;
  if (op.results.size() != reducers.size())
    return fail(op, fmt::format("expected one result per reducer ({}), found {}", reducers.size(), op.results.size()));
  // One result per fed row, of which there are `chunk` at most.
  const int64_t rows = mostRows(operandType(op, 0), op.get<attr::chunk>(), op.get<attr::most>());
  for (size_t i = 0; i < reducers.size(); ++i) {
    const Operation &reduce = reducers[i];
    const Type type = module.type(op.results[i]);
    if (!reducerNamed(reduce.name))
      return checkReduce(reduce);
    if (type != reducedType(reduce, type.size))
      return fail(op, fmt::format("result {} must be {}, found `{}`", i, reducedWords(reduce), type.str()));
    if (type.size != 0 && type.size < rows && llvm::none_of(reduce.get<attr::with>(), choosesRows))
      return fail(op, fmt::format("every result must hold the {} rows of the call", rows));
  }
  return true;
}

/// A call of which only the last row is read.
bool Verifier::checkLastRow(const Operation &op) {
  if (op.operands.size() > 1 || op.get<attr::chunk>() || op.get<attr::kv>() != KvUse::Commit || reducersOf(op).empty())
    return fail(op, "a call with `last_row` is read, and commits a chain at once");
  const auto isLast = [&](Value value) {
    bool is = false;
    walk(module.root.region(), [&](const Operation &other) {
      is |= other.op == Op::Const && other.result() == value && other.get<attr::value>().whole() == -1;
    });
    return is;
  };
  for (const Operation &reduce : reducersOf(op)) {
    const std::vector<Operand> with = reduce.get<attr::with>();
    const Value first = with.size() == reduce.operands.size() ? operandNamed(reduce, Operand::First) : Value();
    if (!first || !isLast(first) || !reduce.get<attr::keep>().empty() || !reduce.get<attr::kept>().empty() ||
        llvm::any_of(with, [](Operand operand) {
          return operand == Operand::Last || operand == Operand::Tokens || operand == Operand::Minus;
        }))
      return fail(reduce, "the reducers of a call with `last_row` read the rows from `first` -1 on, and no others");
  }
  return true;
}

/// A reducer of a call, with the operands that it takes.
bool Verifier::checkReduce(const Operation &op) {
  const ReducerInfo *reducer = reducerNamed(op.name);
  if (!reducer)
    return fail(op, fmt::format("`@{}` is no reducer of logits", op.name));
  const std::vector<Operand> names = op.get<attr::with>();
  if (names.size() != op.operands.size())
    return fail(op, fmt::format("`with` names {} operands, found {}", names.size(), op.operands.size()));
  const bool keeps = !op.get<attr::keep>().empty();
  for (unsigned i = 0; i < names.size(); ++i) {
    if (std::find(names.begin(), names.begin() + i, names[i]) != names.begin() + i)
      return fail(op, fmt::format("`with` names `{}` twice", word(names[i])));
    if (!reducer->takes(names[i], keeps))
      return fail(op, fmt::format("`{}` takes no `{}`", op.name, word(names[i])));
    const Type type = typeOf(names[i]);
    if (type.kind != Type::Seq) {
      const Type given = operandType(op, i);
      if (!(mayBeOfEach(names[i]) && given.kind == Type::Seq && given.elem == type.elem) && !operandIs(op, i, type))
        return false;
    } else if (const Type given = operandType(op, i);
               !alike(given, type) &&
               !(mayBeTable(names[i]) && given.kind == Type::Table && given.elem == Scalar::Token)) {
      return fail(op,
                  fmt::format("operand {} must be a sequence of {}", i, type.elem == Scalar::F32 ? "f32" : "tokens"));
    }
  }
  if (bool(operandNamed(op, Operand::Bias)) != bool(operandNamed(op, Operand::By)))
    return fail(op, "`bias` and `by` stand beside each other");
  if (reducer->takesTokens() && !operandNamed(op, Operand::Tokens))
    return fail(op, fmt::format("`{}` needs `tokens`", op.name));
  for (const auto &[operand, field] : {std::pair<Operand, const std::string &>(Operand::Kept, op.get<attr::kept>()),
                                       {Operand::Minus, op.get<attr::minus>()}})
    if (bool(operandNamed(op, operand)) == field.empty())
      return fail(op, fmt::format("the attribute and the operand `{}` stand beside each other", word(operand)));
  for (const std::string &field : {op.get<attr::kept>(), op.get<attr::minus>(), op.get<attr::keep>()}) {
    if (field.empty())
      continue;
    if (!declared(op, Op::Field, field))
      return false;
    if (!module.find(Op::Field, field)->has<attr::logits>())
      return fail(op, fmt::format("`@{}` keeps no logits", field));
  }
  if (keeps && (reducer->id != Reducer::ArgMax || !op.get<attr::kept>().empty()))
    return fail(op, "what keeps rows of a call is its `argmax`");
  if (op.has<attr::n>() && !reducer->takesCount())
    return fail(op, fmt::format("`{}` has one result for a row, and no `n`", op.name));
  if (op.has<attr::part>() && reducer->id != Reducer::TopK)
    return fail(op, fmt::format("`{}` has one part", op.name));
  return true;
}

/// What a reducer gives for the rows of a call.
std::string Verifier::reducedWords(const Operation &reduce) const {
  const Type type = reducedType(reduce, 0);
  const std::string items = type.elem == Scalar::F32 ? "f32" : "tokens";
  return type.kind == Type::Table ? fmt::format("a table with rows of {} {}", type.inner, items)
                                  : "a sequence of " + items;
}

/// What a call left, of the type that its reducer gives.
bool Verifier::checkResults(const Operation &op) {
  const Type type = module.type(op.result());
  const Operation *issue = nullptr;
  walk(module.root.region(), [&](const Operation &o) {
    if (o.op == Op::Issue && o.get<attr::site>() == op.get<attr::site>())
      issue = &o;
  });
  if (!issue)
    return type.isList() || fail(op, "the result must be a sequence");
  const llvm::ArrayRef<Operation> reducers = reducersOf(*issue);
  const int64_t index = op.get<attr::index>();
  if (index >= static_cast<int64_t>(reducers.size()))
    return fail(op, fmt::format("the call has {} reducers, and none of index {}", reducers.size(), index));
  const Operation &reduce = reducers[index];
  return !reducerNamed(reduce.name) || type == reducedType(reduce, type.size) ||
         fail(op, fmt::format("the result must be {}, found `{}`", reducedWords(reduce), type.str()));
}

} // namespace megalith::ir
