//===- StageBody.cpp - expressions to operations ---------------------------===//
#include "StageBody.h"
#include "megalith/IR/Calls.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>
#include <cassert>

namespace megalith {

using namespace ir;
using sema::Elem;
using sema::Expr;
using sema::Stmt;

Scalar scalarOf(Elem e) {
  switch (e) {
  case Elem::I32:
    return Scalar::I32;
  case Elem::F32:
    return Scalar::F32;
  case Elem::Bool:
    return Scalar::Bool;
  case Elem::Token:
  case Elem::Kept:   // the best tokens
  case Elem::Logits: // no value of the IR's control code
  case Elem::None:   // of an empty sequence
    return Scalar::Token;
  }
  return Scalar::I32;
}

ir::Type typeOf(const sema::Type &t) {
  if (t.table)
    return Type::table(std::max<int64_t>(1, t.rows), std::max<int64_t>(1, t.capacity), scalarOf(t.elem));
  if (!t.seq)
    return Type::scalar(scalarOf(t.elem));
  // Capacity 0 means "a view" in the IR; an always empty sequence has room for one.
  return Type::seq(t.capacity > sema::mostCapacity ? 0 : std::max<int64_t>(1, t.capacity), scalarOf(t.elem));
}

/// A function of the language, and its operation.
static const auto &builtin(sema::Function f) {
  static const struct {
    const char *name;
    Op op;
  } table[] = {
#define FUNCTION(Id, Name, Where, Operation, Params, Result, Text) {Name, Op::Operation},
#include "megalith/Sema/Builtins.def"
  };
  return table[static_cast<size_t>(f)];
}

Operation &StageBody::add(Op op, SourceLoc loc, llvm::ArrayRef<Value> operands, Type type, llvm::StringRef name) {
  builder.loc = loc;
  Operation &o = builder.create(op, operands, {type});
  o.name = name.str();
  return o;
}

/// Runs `lower` with operations going to a fresh region, and returns that region.
Region StageBody::inRegion(llvm::function_ref<void(Region &)> lower) {
  Region fresh, *outer = region;
  region = &fresh;
  builder.setRegion(fresh);
  lower(fresh);
  region = outer;
  builder.setRegion(*outer);
  return fresh;
}

Value StageBody::fieldRead(const Expr &e) {
  const std::string &name = e.name();
  auto it = known.find(name);
  if (it != known.end())
    return it->second;
  // What is known of its length here is no type of the field.
  Type type = typeOf(e.type);
  const bool input = e.kind == Expr::InputRead;
  for (const CheckedField &f : pipeline.fields)
    if (!input && f.name == name)
      type = typeOf(f.type);
  Value v = emit(input ? Op::InputGet : Op::FieldGet, e.loc, {}, type, name);
  module.values[v.id].hint = shortName(name);
  known[name] = v;
  return v;
}

/// Reads the fields and inputs of a loop's condition before the loop.
void StageBody::readFieldsOf(const Expr &e) {
  if (e.kind == Expr::FieldRead || e.kind == Expr::InputRead)
    fieldRead(e);
  if (e.kind == Expr::ModelCall)
    return;
  for (const sema::ExprRef &arg : e.args)
    if (arg)
      readFieldsOf(*arg);
}

Value StageBody::request(const Expr &e) {
  static const struct {
    const char *name;
    Op op;
  } table[] = {
#define PREDEFINED(Id, Name, Type, Values, Operation, Text) {Name, Op::Operation},
#include "megalith/Sema/Builtins.def"
  };
  const auto &[name, op] = table[static_cast<size_t>(e.as<sema::Predefined>())];
  if (op == Op::Host)
    return named<attr::number>(op, e, "", name);
  if (op != Op::SeqAt)
    return emit(op, e.loc, {}, typeOf(e.type));
  // The last token.
  Value tokens = emit(Op::Tokens, e.loc, {}, Type::seq(0));
  Value length = emit(Op::SeqLen, e.loc, {tokens}, i32);
  Value one = builder.constant(INT64_C(1));
  Value index = emit(Op::Sub, e.loc, {length, one}, i32);
  return emit(Op::SeqAt, e.loc, {tokens, index}, typeOf(e.type));
}

/// A read that names what it reads in an attribute.
template <class Attr> Value StageBody::named(Op op, const Expr &e, const std::string &of, const std::string &what) {
  Operation &read = add(op, e.loc, {}, typeOf(e.type), of);
  if constexpr (std::is_enum_v<AttrValue<Attr>>)
    read.setWord<Attr>(what);
  else
    read.set<Attr>(what);
  module.values[read.result().id].hint = what;
  return read.result();
}

Value StageBody::binary(const Expr &e) {
  Value a = expression(*e.args[0]);
  const bool isAnd = e.is(sema::BinaryOp::And);
  if ((isAnd || e.is(sema::BinaryOp::Or)) && mayFault(*e.args[1])) {
    readFieldsOf(*e.args[1]);
    const auto other = [&] { return expression(*e.args[1]); };
    const auto decided = [&] { return builder.constant(int64_t(!isAnd), Scalar::Bool); };
    return isAnd ? choose(e.loc, a, boolean, other, decided) : choose(e.loc, a, boolean, decided, other);
  }
  Value b = expression(*e.args[1]);
  return emit(e.as<sema::BinaryOp>(), e.loc, {a, b}, typeOf(e.type));
}

/// The first value whose threshold is reached; the last one is also the default.
Value StageBody::tiers(const Expr &e) {
  Value x = expression(*e.args[0]);
  std::vector<Value> items;
  // The last threshold decides nothing.
  for (size_t i = 1; i < e.args.size(); ++i)
    items.push_back(i + 2 == e.args.size() ? Value() : expression(*e.args[i]));
  Value result = items.back();
  for (size_t i = items.size() - 2; i >= 2; i -= 2) {
    Value reached = emit(Op::Ge, e.args[i - 1]->loc, {x, items[i - 2]}, boolean);
    result = emit(Op::Select, e.args[i]->loc, {reached, items[i - 1], result}, typeOf(e.type));
  }
  return result;
}

Value StageBody::fromEnd(Value base, const Expr &bound) {
  Value length = emit(Op::SeqLen, bound.loc, {base}, i32), distance;
  if (bound.kind == Expr::Const) {
    // Farther than that no sequence reaches; of the least i32 there is no negative.
    distance = builder.constant(std::min<int64_t>(-bound.as<sema::Number>().intValue, INT32_MAX));
  } else {
    // What is not negative is no distance: nothing comes after the end.
    Value least = builder.constant(-int64_t(INT32_MAX)), zero = builder.constant(INT64_C(0));
    Value below = expression(bound);
    below = emit(Op::Min, bound.loc, {below, zero}, i32);
    below = emit(Op::Max, bound.loc, {below, least}, i32);
    distance = emit(Op::Neg, bound.loc, {below}, i32);
  }
  return emit(Op::Sub, bound.loc, {length, distance}, i32);
}

Value StageBody::at(const Expr &e) {
  Value base = expression(*e.args[0]);
  Value index = e.as<sema::Bounds>().loFromEnd ? fromEnd(base, *e.args[1]) : expression(*e.args[1]);
  return emit(Op::SeqAt, e.loc, {base, index}, module.type(base).item());
}

Value StageBody::slice(const Expr &e) {
  Value base = expression(*e.args[0]), lo, hi;
  builder.loc = e.loc;
  if (!e.args[1])
    lo = builder.constant(INT64_C(0));
  else
    lo = e.as<sema::Bounds>().loFromEnd ? fromEnd(base, *e.args[1]) : expression(*e.args[1]);
  if (!e.args[2])
    hi = emit(Op::SeqLen, e.loc, {base}, i32);
  else
    hi = e.as<sema::Bounds>().hiFromEnd ? fromEnd(base, *e.args[2]) : expression(*e.args[2]);
  Type type = module.type(base);
  type.size = typeOf(e.type).size;
  return emit(Op::SeqSlice, e.loc, {base, lo, hi}, type);
}

/// One of two values, of which only that one is computed.
Value StageBody::choose(SourceLoc loc, Value condition, Type type, llvm::function_ref<Value()> first,
                        llvm::function_ref<Value()> second) {
  std::vector<Region> regions;
  for (auto &side : {first, second}) {
    const auto before = known;
    regions.push_back(inRegion([&](Region &) {
      const Value v = side();
      if (const Type t = module.type(v); t.isList()) { // it has room for both
        type.size = type.size == 0 || t.size == 0 ? 0 : std::max(type.size, t.size);
        type.inner = std::max(type.inner, t.inner);
      }
      yield(v, loc);
    }));
    known = before;
  }
  builder.loc = loc;
  Operation &o = builder.create(Op::Choose, {condition}, {type});
  o.regions = std::move(regions);
  return o.result();
}

Value StageBody::select(const Expr &e) {
  Value c = expression(*e.args[0]);
  if (mayFault(*e.args[1]) || mayFault(*e.args[2])) {
    readFieldsOf(*e.args[1]);
    readFieldsOf(*e.args[2]);
    return choose(
        e.loc, c, typeOf(e.type), [&] { return expression(*e.args[1]); }, [&] { return expression(*e.args[2]); });
  }
  Value a = expression(*e.args[1]), b = expression(*e.args[2]);
  Type type = typeOf(e.type);
  if (type.isList()) {
    const Type x = module.type(a), y = module.type(b);
    type.size = x.size == 0 || y.size == 0 ? 0 : std::max(x.size, y.size);
    type.inner = std::max(x.inner, y.inner);
  }
  return emit(Op::Select, e.loc, {c, a, b}, type);
}

/// `filter(i in a..b, e, c)`: the numbers for which c holds, and e of each of them.
Value StageBody::filter(const Expr &e) {
  const auto &[function, binder, rounds] = e.as<sema::Through>();
  std::vector<Value> operands;
  if (const Expr &low = *e.args[0]; !low.is(sema::Number()))
    operands.push_back(expression(low));
  operands.push_back(expression(*e.args[1]));
  for (size_t i : {2, 3})
    readFieldsOf(*e.args[i]);
  const auto before = known;
  // The value of `body` for a number: the region's argument, or what `numberOf` makes of it.
  const auto regionOf = [&](const Expr &body, auto numberOf) {
    Region region = inRegion([&](Region &r) {
      r.args.push_back(module.newValue(i32, binder.name));
      binders.resize(binder.index);
      binders.push_back(numberOf(r.args[0]));
      const Value v = expression(body);
      binders.pop_back();
      builder.loc = body.loc;
      builder.create(Op::Yield, {v});
    });
    known = before;
    return region;
  };
  const Type type = typeOf(e.type), numbers = Type::seq(type.size, Scalar::I32);
  Region condition = regionOf(*e.args[3], [](Value i) { return i; });
  builder.loc = e.loc;
  Operation &taken = builder.create(Op::SeqFilter, operands, {numbers});
  taken.regions[0] = std::move(condition);
  const Value kept = taken.result();
  if (const Expr &body = *e.args[2]; body.kind == Expr::BinderRead && body.as<sema::Place>().index == binder.index)
    return kept;
  const Value count = emit(Op::SeqLen, e.loc, {kept}, i32);
  Region value = regionOf(*e.args[2], [&](Value i) { return emit(Op::SeqAt, e.loc, {kept, i}, i32); });
  builder.loc = e.loc;
  Operation &made = builder.create(Op::SeqMap, {count}, {type});
  made.regions[0] = std::move(value);
  return made.result();
}

/// `f(i in a..b, ...)`.
Value StageBody::over(const Expr &e) {
  using sema::Function;
  const auto &[function, binder, rounds] = e.as<sema::Through>();
  if (function == Function::Filter)
    return filter(e);
  std::vector<Value> operands;
  if (const Expr &low = *e.args[0]; !low.is(sema::Number()))
    operands.push_back(expression(low));
  operands.push_back(expression(*e.args[1]));
  size_t bodies = e.args.size() - 2;
  if (function == Function::Top)
    operands.push_back(expression(*e.args[2 + --bodies]));
  for (size_t i = 0; i < bodies; ++i)
    readFieldsOf(*e.args[2 + i]);
  Type yields, result = typeOf(e.type);
  const auto before = known;
  Region body = inRegion([&](Region &r) {
    r.args.push_back(module.newValue(i32, binder.name));
    binders.resize(binder.index);
    binders.push_back(r.args[0]);
    std::vector<Value> values;
    for (size_t i = 0; i < bodies; ++i)
      values.push_back(expression(*e.args[2 + i]));
    yields = module.type(values[0]);
    binders.pop_back();
    builder.loc = e.args[2]->loc;
    builder.create(Op::Yield, values);
  });
  known = before;
  // What is the least and the greatest of values, or of rows, is a fold of a range.
  const bool folds = function == Function::Min || function == Function::Max || function == Function::ArgMax;
  const Op op = folds ? Op::Fold : builtin(function).op;
  if (op == Op::SeqMap && yields.kind == Type::Seq)
    result.inner = std::max<int64_t>(1, yields.size);
  builder.loc = e.loc;
  Operation &o = builder.create(op, operands, {result});
  if (op == Op::Fold)
    o.setWord<attr::by>(builtin(function).name);
  if (op == Op::SeqTop)
    o.set<attr::range>(std::max<int64_t>(1, rounds));
  o.regions[0] = std::move(body);
  return o.result();
}

Value StageBody::lookup(const Expr &e) {
  std::vector<Value> operands = {expression(*e.args[0]), expression(*e.args[1])};
  std::vector<Operand> with;
  for (size_t i : {2, 3})
    if (e.args[i]) {
      operands.push_back(expression(*e.args[i]));
      with.push_back(i == 2 ? Operand::From : Operand::Ngram);
    }
  Operation &found = add(Op::NgramLookup, e.loc, operands, typeOf(e.type));
  found.set<attr::ngram>(e.as<sema::Lookup>().ngram);
  if (!with.empty())
    found.set<attr::with>(with);
  return found.result();
}

/// A bound of rows. A written negative one counts from the end of those that are served.
Value StageBody::rowBound(const Expr &e, bool fromEnd) {
  Value v = expression(e);
  if (fromEnd || e.range.lo >= 0)
    return v;
  builder.loc = e.loc;
  Value zero = builder.constant(INT64_C(0));
  return emit(Op::Max, e.loc, {v, zero}, i32);
}

/// A call with all that is made of its logits, wherever that stands in the stage: what the reducers are given is known
/// here.
const std::vector<Value> &StageBody::call(const Expr &e) {
  if (auto it = calls.find(&e); it != calls.end())
    return it->second;
  const auto &call = e.as<sema::Call>();
  const std::vector<Value> operands = arguments(e);
  const Value fed = operands[0];
  std::vector<Type> results;
  Region reducers;
  for (const sema::Reduction &r : call.reductions->list) {
    Operation reduce;
    reduce.op = Op::Reduce;
    reduce.name = r.name;
    reduce.loc = r.loc;
    // One result for each row that there can be by the type of what is fed, unless it reads some of them.
    int64_t rows = mostRows(module.type(fed), call.chunk, call.most);
    std::vector<Operand> names;
    for (const auto &[name, value, fromEnd] : r.with) {
      names.push_back(*wordNamed<Operand>(name));
      const bool bound = names.back() == Operand::First || names.back() == Operand::Last;
      reduce.operands.push_back(bound ? rowBound(*value, fromEnd) : expression(*value));
      if (choosesRows(names.back()))
        rows = 0;
    }
    if (!names.empty())
      reduce.set<attr::with>(names);
    if (r.n > 0)
      reduce.set<attr::n>(r.n);
    if (r.edited)
      reduce.set<attr::edited>(true);
    if (!r.of.empty())
      reduce.set<attr::result>(r.of);
    if (!r.part.empty())
      reduce.setWord<attr::part>(r.part);
    if (!r.kept.empty())
      reduce.set<attr::kept>(r.kept);
    if (!r.minus.empty())
      reduce.set<attr::minus>(r.minus);
    if (!r.keep.empty())
      reduce.set<attr::keep>(r.keep);
    results.push_back(typeOf(r.type));
    results.back().size = std::max(results.back().size, rows);
    reducers.ops.push_back(std::move(reduce));
  }
  assert((call.keepNone || !results.empty()) && "logits that nobody reads are an error");
  builder.loc = e.loc;
  Operation &o = builder.create(Op::Call, operands, results);
  o.name = call.model;
  if (!call.rows.empty())
    o.set<attr::with>({*wordNamed<Operand>(call.rows)});
  o.set<attr::site>(site++);
  o.set<attr::kv>(call.draft ? KvUse::Draft : KvUse::Commit);
  if (results.empty())
    o.regions.clear();
  else
    o.region() = std::move(reducers);
  if (call.chunk)
    o.set<attr::chunk>(call.chunk);
  if (call.most)
    o.set<attr::most>(call.most);
  if (mostRows(module.type(fed), call.chunk, call.most) != 1 && sema::readsLastRow(call))
    o.set<attr::last_row>(true);
  // The stage is suspended here: what it reads next comes from the request's fields.
  known.clear();
  return calls[&e] = std::vector<Value>(o.results.begin(), o.results.end());
}

std::vector<Value> StageBody::arguments(const Expr &e) {
  std::vector<Value> values;
  for (const sema::ExprRef &arg : e.args)
    values.push_back(expression(*arg));
  return values;
}

/// A list of constants.
Value StageBody::constants(const Expr &e) {
  Operation &o = add(Op::SeqConst, e.loc, {}, typeOf(e.type));
  std::vector<int64_t> items;
  std::vector<double> numbers;
  for (const sema::ExprRef &item : e.args) {
    items.push_back(item->as<sema::Number>().intValue);
    numbers.push_back(item->as<sema::Number>().floatValue);
  }
  if (e.type.elem == Elem::F32)
    o.set<attr::numbers>(numbers);
  else
    o.set<attr::items>(items);
  if (e.kind == Expr::SeqConst)
    module.values[o.result().id].hint = e.name();
  return o.result();
}

Value StageBody::expression(const Expr &e) {
  switch (e.kind) {
  case Expr::Const:
    builder.loc = e.loc;
    return e.type.is(Elem::F32) ? builder.constant(e.as<sema::Number>().floatValue)
                                : builder.constant(e.as<sema::Number>().intValue, scalarOf(e.type.elem));
  case Expr::FieldRead:
  case Expr::InputRead:
    return fieldRead(e);
  case Expr::LocalRead:
    return locals.at(e.as<sema::Place>().index);
  case Expr::BinderRead:
    return binders[e.as<sema::Place>().index];
  case Expr::ObserveArg:
    return observeArgs[e.as<sema::Place>().index];
  case Expr::PolicyState:
    return named<attr::state>(Op::PolicyGet, e, e.name(), e.as<sema::Name>().member);
  case Expr::PolicyOutput:
    return named<attr::output>(Op::PolicyRead, e, e.name(), e.as<sema::Name>().member);
  case Expr::Request:
    return request(e);
  case Expr::Pool: {
    static const Op ops[] = {
#define POOL_NAME(Id, Name, Type, Of, Operation, Text) Op::Operation,
#include "megalith/Sema/Builtins.def"
    };
    const auto &[pool, what] = e.as<sema::PoolRead>();
    return emit(ops[static_cast<size_t>(what)], e.loc, {}, typeOf(e.type), pool);
  }
  case Expr::Neg:
    return emit(Op::Neg, e.loc, arguments(e), typeOf(e.type));
  case Expr::Not:
    return emit(Op::Not, e.loc, arguments(e), typeOf(e.type));
  case Expr::Binary:
    return binary(e);
  case Expr::Select:
    return select(e);
  case Expr::Math: {
    const auto function = e.as<sema::Function>();
    const Op op = builtin(function).op;
    if (function != sema::Function::Min && function != sema::Function::Max)
      return emit(op, e.loc, arguments(e), typeOf(e.type));
    Value result = expression(*e.args[0]);
    for (const sema::ExprRef &arg : llvm::drop_begin(e.args)) {
      Value next = expression(*arg);
      result = emit(op, e.loc, {result, next}, typeOf(e.type));
    }
    return result;
  }
  case Expr::Cast:
    return emit(Op::Cast, e.loc, arguments(e), typeOf(e.type));
  case Expr::Tiers:
    return tiers(e);
  case Expr::SeqLen:
    return emit(Op::SeqLen, e.loc, arguments(e), i32);
  case Expr::SeqAt:
    return at(e);
  case Expr::SeqSlice:
    return slice(e);
  case Expr::SeqConcat: {
    Value a = expression(*e.args[0]), b = expression(*e.args[1]);
    // An always empty side has room for one in the IR, which the sum must not count.
    if (e.args[0]->type.length() == 0 || e.args[1]->type.length() == 0)
      return e.args[0]->type.length() == 0 ? b : a;
    const Type x = module.type(a), y = module.type(b);
    Type type = x;
    type.size = x.size && y.size ? x.size + y.size : 0;
    type.inner = std::max(x.inner, y.inner);
    return emit(Op::SeqConcat, e.loc, {a, b}, type);
  }
  case Expr::SeqMake: {
    constexpr size_t fewConstants = 8; // more are a constant themselves
    if (e.args.size() > fewConstants &&
        llvm::all_of(e.args, [](const sema::ExprRef &item) { return item->kind == Expr::Const; }))
      return constants(e);
    const std::vector<Value> items = arguments(e);
    Type type = typeOf(e.type);
    for (Value item : items)
      type.inner = std::max(type.inner, module.type(item).size);
    return emit(Op::SeqMake, e.loc, items, type);
  }
  case Expr::SeqConst:
    return constants(e);
  case Expr::NgramLookup:
    return lookup(e);
  case Expr::Forced: {
    const std::vector<Value> operands = arguments(e);
    return emit(Op::Forced, e.loc, operands, typeOf(e.type));
  }
  case Expr::Over:
    return over(e);
  case Expr::TreeParents: // they stand directly after their rows
    return treeParents;
  case Expr::TreeRows: {
    Value last = expression(*e.args[0]), table = expression(*e.args[1]);
    const int64_t most = 1 + module.type(table).size * module.type(table).inner;
    builder.loc = e.loc;
    Operation &o = builder.create(Op::Tree, {last, table}, {Type::seq(most), Type::seq(most, Scalar::I32)});
    treeParents = o.result(1);
    return o.result();
  }
  case Expr::Append:
    return emit(Op::Append, e.loc, arguments(e), i32);
  case Expr::ModelCall:
    call(e);
    return Value();
  case Expr::Reduced:
    return call(*e.args[0])[e.as<sema::Result>().index];
  case Expr::LogitRows: // only reducers read them
  case Expr::TopParts:
    break;
  case Expr::Sampling:
    return named<attr::setting>(Op::Sampling, e, "", e.name());
  case Expr::DimRead: {
    const Value v = emit(Op::DimGet, e.loc, {}, i32, e.name());
    module.values[v.id].hint = e.name();
    return v;
  }
  case Expr::BufferAt:
    return emit(Op::BufferAt, e.loc, arguments(e), typeOf(e.type), e.name());
  }
  return Value();
}

} // namespace megalith
