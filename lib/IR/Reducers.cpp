#include "megalith/IR/Reducers.h"

namespace megalith::ir {

static const ReducerInfo reducerInfos[] = {
#define REDUCER(Id, Name, Result, Arguments, State, Merge, Order, Text)                                                \
  {Reducer::Id, #Id, Name, Scalar::Result, Arguments, State, Merge, Order, Text},
#include "megalith/IR/Reducers.def"
};

llvm::ArrayRef<ReducerInfo> reducers() { return reducerInfos; }

const ReducerInfo *reducerNamed(llvm::StringRef name) {
  for (const ReducerInfo &info : reducerInfos)
    if (info.name == name)
      return &info;
  return nullptr;
}

const ReducerInfo &reducerOf(const Operation &reduce) {
  const ReducerInfo *info = reducerNamed(reduce.name);
  assert(info && "the verifier checked the name");
  return *info;
}

Type reducedType(const Operation &reduce, int64_t rows) {
  const Scalar scalar = reduce.get<attr::part>() == "prob" ? Scalar::F32 : reducerOf(reduce).result;
  return reduce.has<attr::n>() && reducerOf(reduce).takesCount() ? Type::table(rows, reduce.get<attr::n>(), scalar)
                                                                 : Type::seq(rows, scalar);
}

} // namespace megalith::ir
