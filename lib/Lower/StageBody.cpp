#include "StageBody.h"
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

bool mayFault(const Expr &e) {
  if (e.kind == Expr::SeqAt || e.is(sema::Predefined::Last))
    return true;
  if (e.kind == Expr::ModelCall) // it stands elsewhere
    return false;
  for (const sema::ExprRef &arg : e.args)
    if (arg && mayFault(*arg))
      return true;
  return false;
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

static const Type i32 = Type::scalar(Scalar::I32);
static const Type boolean = Type::scalar(Scalar::Bool);

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

/// What a field's name says to a reader: that of a local has its stage in front.
static std::string shortName(llvm::StringRef name) { return name.substr(name.find_last_of('.') + 1).str(); }

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

void StageBody::order(const std::vector<sema::ExprRef> &keys) {
  if (keys.empty())
    return;
  Region region = inRegion([&](Region &) {
    std::vector<Value> values;
    for (const sema::ExprRef &key : keys)
      values.push_back(expression(*key));
    builder.loc = keys.front()->loc;
    builder.create(Op::Yield, values);
  });
  known.clear();
  builder.loc = keys.front()->loc;
  builder.create(Op::Order).regions[0] = std::move(region);
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
    return named<attr::of>(op, e, "", name);
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
  read.set<Attr>(what);
  module.values[read.result().id].hint = what;
  return read.result();
}

Value StageBody::binary(const Expr &e) {
  static const Op ops[] = {Op::Add, Op::Sub, Op::Mul, Op::Div, Op::Mod, Op::Eq, Op::Ne,
                           Op::Lt,  Op::Le,  Op::Gt,  Op::Ge,  Op::And, Op::Or};
  Value a = expression(*e.args[0]);
  const bool isAnd = e.is(sema::BinaryOp::And);
  if ((isAnd || e.is(sema::BinaryOp::Or)) && mayFault(*e.args[1])) {
    readFieldsOf(*e.args[1]);
    const auto other = [&] { return expression(*e.args[1]); };
    const auto decided = [&] { return builder.constant(int64_t(!isAnd), Scalar::Bool); };
    return isAnd ? choose(e.loc, a, boolean, other, decided) : choose(e.loc, a, boolean, decided, other);
  }
  Value b = expression(*e.args[1]);
  return emit(ops[static_cast<int>(e.as<sema::BinaryOp>())], e.loc, {a, b}, typeOf(e.type));
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
    // What is not negative is no distance: nothing stands behind the end.
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

/// `f(i in a..b, ...)`.
Value StageBody::over(const Expr &e) {
  using sema::Function;
  const auto &[function, binder, rounds] = e.as<sema::Through>();
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
    o.set<attr::by>(std::string(builtin(function).name));
  if (op == Op::SeqTop)
    o.set<attr::range>(std::max<int64_t>(1, rounds));
  o.regions[0] = std::move(body);
  return o.result();
}

Value StageBody::lookup(const Expr &e) {
  std::vector<Value> operands = {expression(*e.args[0]), expression(*e.args[1])};
  std::vector<std::string> with;
  for (size_t i : {2, 3})
    if (e.args[i]) {
      operands.push_back(expression(*e.args[i]));
      with.push_back(i == 2 ? "from" : "ngram");
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
    int64_t rows = module.type(fed).size;
    for (int64_t bound : {call.chunk, call.most})
      if (bound)
        rows = rows ? std::min(rows, bound) : bound;
    std::vector<std::string> names;
    for (const auto &[name, value, fromEnd] : r.with) {
      const bool bound = name == "first" || name == "last";
      reduce.operands.push_back(bound ? rowBound(*value, fromEnd) : expression(*value));
      names.push_back(name);
      if (bound || name == "tokens" || name == "kept")
        rows = 0;
    }
    if (!names.empty())
      reduce.set<attr::with>(names);
    if (r.n > 0)
      reduce.set<attr::n>(r.n);
    if (!r.of.empty())
      reduce.set<attr::of>(r.of);
    if (!r.part.empty())
      reduce.set<attr::part>(r.part);
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
    o.set<attr::with>(std::vector<std::string>{call.rows});
  o.set<attr::site>(site++);
  o.set<attr::kv>(std::string(call.draft ? "draft" : "commit"));
  if (results.empty())
    o.regions.clear();
  else
    o.region() = std::move(reducers);
  if (call.chunk)
    o.set<attr::chunk>(call.chunk);
  if (call.most)
    o.set<attr::most>(call.most);
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
    return named<attr::of>(Op::Sampling, e, "", e.name());
  }
  return Value();
}

static void fieldsSet(const std::vector<Stmt> &body, std::vector<std::string> &names) {
  for (const Stmt &s : body) {
    if (s.kind == Stmt::SetField)
      names.push_back(s.name);
    fieldsSet(s.body, names);
    fieldsSet(s.otherwise, names);
  }
}

void StageBody::branch(const Stmt &s) {
  Value condition = expression(*s.values[0]);
  std::vector<Region> regions;
  auto before = known;
  auto lower = [&](const std::vector<Stmt> &body) {
    regions.push_back(inRegion([&](Region &) { statements(body); }));
    known = before;
  };
  lower(s.body);
  if (!s.otherwise.empty())
    lower(s.otherwise);
  std::vector<std::string> changed;
  fieldsSet(s.body, changed);
  fieldsSet(s.otherwise, changed);
  for (const std::string &name : changed)
    known.erase(name);
  builder.loc = s.loc;
  builder.create(Op::If, {condition}).regions = std::move(regions);
}

/// `for` and `while`.
void StageBody::repeat(const Stmt &s) {
  std::vector<Value> operands;
  if (s.kind == Stmt::For)
    operands = {expression(*s.values[0]), expression(*s.values[1])};
  // A round sees what the one before it left.
  std::vector<std::string> changed;
  fieldsSet(s.body, changed);
  for (const std::string &name : changed)
    known.erase(name);
  const auto before = known;
  std::vector<Region> regions;
  if (s.kind == Stmt::While)
    regions.push_back(inRegion([&](Region &) { yield(expression(*s.values[0]), s.values[0]->loc); }));
  known = before;
  regions.push_back(inRegion([&](Region &r) {
    if (s.kind == Stmt::For) {
      r.args.push_back(module.newValue(i32, s.name));
      binders.resize(s.index);
      binders.push_back(r.args[0]);
    }
    statements(s.body);
    if (s.kind == Stmt::For)
      binders.pop_back();
  }));
  known = before;
  builder.loc = s.loc;
  Operation &o = builder.create(s.kind == Stmt::For ? Op::For : Op::While, operands);
  if (s.kind == Stmt::While)
    o.set<attr::bound>(s.bound);
  else if (llvm::any_of(regions[0].ops, [](const Operation &inner) { return inner.op == Op::Call; }))
    o.set<attr::rounds>(s.bound);
  o.regions = std::move(regions);
}

void StageBody::statements(const std::vector<Stmt> &body) {
  for (const Stmt &s : body)
    statement(s);
}

void StageBody::statement(const Stmt &s) {
  if (s.kind == Stmt::If)
    return branch(s);
  if (s.kind == Stmt::For || s.kind == Stmt::While)
    return repeat(s);
  std::vector<Value> values;
  for (const sema::ExprRef &v : s.values)
    values.push_back(expression(*v));
  auto effect = [&](Op op) -> Operation & {
    builder.loc = s.loc;
    Operation &o = builder.create(op, values);
    o.name = s.name;
    return o;
  };
  auto hint = [&] {
    std::string &name = module.values[values[0].id].hint;
    if (name.empty())
      name = shortName(s.name);
  };
  switch (s.kind) {
  case Stmt::SetField:
    hint();
    effect(Op::FieldSet);
    // A shorter sequence would have another type than a read of the field.
    known.erase(s.name);
    for (const CheckedField &f : pipeline.fields)
      if (f.name == s.name && module.type(values[0]) == typeOf(f.type))
        known[s.name] = values[0];
    return;
  case Stmt::SetLocal:
    hint();
    locals[s.index] = values[0];
    return;
  case Stmt::SetPolicyState: {
    Operation &o = effect(Op::PolicySet);
    o.name = policy;
    o.set<attr::state>(s.name);
    return;
  }
  case Stmt::Keep:
    effect(Op::KvKeep);
    return;
  case Stmt::Observe:
    effect(Op::Observe);
    return;
  case Stmt::Count:
    effect(Op::CountAdd);
    return;
  case Stmt::Trace:
    effect(Op::Trace);
    return;
  case Stmt::Effect:
  case Stmt::If:
  case Stmt::For:
  case Stmt::While:
    return;
  }
}

void StageBody::yield(Value v, SourceLoc loc) {
  builder.loc = loc;
  builder.create(Op::Yield, {v});
}

void StageBody::go(const CheckedStage &stage) {
  std::vector<Value> conditions;
  std::vector<std::string> to;
  for (const CheckedGoto &g : stage.go) {
    to.push_back(g.target);
    if (!g.condition)
      continue;
    if (conditions.empty() || !mayFault(*g.condition)) {
      conditions.push_back(expression(*g.condition));
      continue;
    }
    // It is not asked where one before it holds.
    readFieldsOf(*g.condition);
    Value any = conditions[0];
    for (size_t i = 1; i < conditions.size(); ++i)
      any = emit(Op::Or, g.loc, {any, conditions[i]}, boolean);
    conditions.push_back(choose(
        g.loc, any, boolean, [&] { return builder.constant(int64_t(0), Scalar::Bool); },
        [&] { return expression(*g.condition); }));
  }
  builder.loc = stage.goLoc;
  builder.create(Op::Goto, conditions).set<attr::to>(to);
}

} // namespace megalith
