#include "megalith/IR/Reducers.h"

namespace megalith::ir {

static const ReducerInfo reducerInfos[] = {
#define REDUCER(Id, Name, Result, Arguments, State, Merge, Order, Text)                                                \
  {Reducer::Id, #Id, Name, Scalar::Result, Arguments, State, Merge, Order, Text},
#include "megalith/Contract/Reducers.def"
};

llvm::ArrayRef<ReducerInfo> reducers() { return reducerInfos; }

const ReducerInfo *reducerNamed(llvm::StringRef name) {
  for (const ReducerInfo &info : reducerInfos)
    if (info.name == name)
      return &info;
  return nullptr;
}

namespace {
enum class OperandType { I32, F32, Tokens, Numbers, Sets, I32s, F32s };
struct OperandInfo {
  OperandType type;
  char taken;
};
const OperandInfo &infoOf(Operand operand) {
  static constexpr OperandInfo list[] = {
#define OPERAND(Id, Type, Taken) {OperandType::Type, Taken},
#include "megalith/Contract/Reducers.def"
  };
  return list[static_cast<size_t>(operand) - static_cast<size_t>(Operand::First)];
}
} // namespace

Type typeOf(Operand operand) {
  const OperandType type = infoOf(operand).type;
  using enum OperandType;
  return type == Numbers               ? Type::seq(0, Scalar::F32)
         : type == F32 || type == F32s ? Type::scalar(Scalar::F32)
         : type == I32 || type == I32s ? Type::scalar(Scalar::I32)
                                       : Type::seq(0);
}
bool mayBeOfEach(Operand operand) {
  return infoOf(operand).type == OperandType::I32s || infoOf(operand).type == OperandType::F32s;
}
bool mayBeTable(Operand operand) { return infoOf(operand).type == OperandType::Sets; }

bool ReducerInfo::takes(Operand operand, bool keeps) const {
  const char taken = infoOf(operand).taken;
  return taken == 'a' || (taken == 'k' ? keeps : arguments.contains(taken));
}

const ReducerInfo &reducerOf(const Operation &reduce) {
  const ReducerInfo *info = reducerNamed(reduce.name);
  assert(info && "the verifier checked the name");
  return *info;
}

Type reducedType(const Operation &reduce, int64_t rows) {
  const Scalar scalar = reduce.get<attr::part>() == ReducerPart::Prob ? Scalar::F32 : reducerOf(reduce).result;
  return reduce.has<attr::n>() && reducerOf(reduce).takesCount() ? Type::table(rows, reduce.get<attr::n>(), scalar)
                                                                 : Type::seq(rows, scalar);
}

} // namespace megalith::ir
