#include "StageBody.h"
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
  case Elem::Logits:
    return Scalar::Token; // logits are no value of the IR's control code
  }
  return Scalar::I32;
}

ir::Type typeOf(const sema::Type &t) {
  if (!t.seq)
    return Type::scalar(scalarOf(t.elem));
  // Capacity 0 means "a view" in the IR; an always empty sequence has room for one.
  return Type::seq(t.capacity > sema::mostCapacity ? 0 : std::max<int64_t>(1, t.capacity), scalarOf(t.elem));
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

Value StageBody::fieldRead(const Expr &e) {
  auto it = known.find(e.name);
  if (it != known.end())
    return it->second;
  Value v = emit(e.kind == Expr::InputRead ? Op::InputGet : Op::FieldGet, e.loc, {}, typeOf(e.type), e.name);
  module.values[v.id].hint = e.name;
  known[e.name] = v;
  return v;
}

/// Reads the fields and inputs of a loop's condition before the loop.
void StageBody::readFieldsOf(const Expr &e) {
  if (e.kind == Expr::FieldRead || e.kind == Expr::InputRead)
    fieldRead(e);
  for (const sema::ExprRef &arg : e.args)
    if (arg)
      readFieldsOf(*arg);
}

Value StageBody::request(const Expr &e) {
  using sema::Predefined;
  switch (e.predefined) {
  case Predefined::Tokens:
    return emit(Op::Tokens, e.loc, {}, Type::seq(0));
  case Predefined::Budget:
    return emit(Op::Budget, e.loc, {}, i32);
  case Predefined::Finished:
    return emit(Op::Finished, e.loc, {}, boolean);
  case Predefined::PromptLen:
    return emit(Op::PromptLen, e.loc, {}, i32);
  case Predefined::Priority:
    return emit(Op::Priority, e.loc, {}, i32);
  case Predefined::Seated:
    return emit(Op::Seated, e.loc, {}, i32);
  case Predefined::Sampling: // no value by itself
  case Predefined::Last:
    break;
  }
  Value tokens = emit(Op::Tokens, e.loc, {}, Type::seq(0));
  Value length = emit(Op::SeqLen, e.loc, {tokens}, i32);
  Value one = builder.constant(INT64_C(1));
  Value index = emit(Op::Sub, e.loc, {length, one}, i32);
  return emit(Op::SeqAt, e.loc, {tokens, index}, Type::scalar(Scalar::Token));
}

Value StageBody::binary(const Expr &e) {
  static const Op ops[] = {Op::Add, Op::Sub, Op::Mul, Op::Div, Op::Mod, Op::Eq, Op::Ne,
                           Op::Lt,  Op::Le,  Op::Gt,  Op::Ge,  Op::And, Op::Or};
  Value a = expression(*e.args[0]), b = expression(*e.args[1]);
  return emit(ops[static_cast<int>(e.binary)], e.loc, {a, b}, typeOf(e.type));
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
  Value length = emit(Op::SeqLen, bound.loc, {base}, i32);
  // Farther than that no sequence reaches; of the least i32 there is no negative.
  Value distance = builder.constant(std::min<int64_t>(-bound.intValue, INT32_MAX));
  return emit(Op::Sub, bound.loc, {length, distance}, i32);
}

Value StageBody::at(const Expr &e) {
  Value base = expression(*e.args[0]);
  Value index = e.loFromEnd ? fromEnd(base, *e.args[1]) : expression(*e.args[1]);
  return emit(Op::SeqAt, e.loc, {base, index}, typeOf(e.type));
}

Value StageBody::slice(const Expr &e) {
  Value base = expression(*e.args[0]), lo, hi;
  builder.loc = e.loc;
  if (!e.args[1])
    lo = builder.constant(INT64_C(0));
  else
    lo = e.loFromEnd ? fromEnd(base, *e.args[1]) : expression(*e.args[1]);
  if (!e.args[2])
    hi = emit(Op::SeqLen, e.loc, {base}, i32);
  else
    hi = e.hiFromEnd ? fromEnd(base, *e.args[2]) : expression(*e.args[2]);
  return emit(Op::SeqSlice, e.loc, {base, lo, hi}, typeOf(e.type));
}

Value StageBody::loop(const Expr &e) {
  Value n = expression(*e.args[0]);
  readFieldsOf(*e.args[1]);
  Region body = inRegion([&](Region &r) {
    r.args.push_back(module.newValue(i32, e.name));
    binders.push_back(r.args[0]);
    yield(expression(*e.args[1]), e.args[1]->loc);
    binders.pop_back();
  });
  builder.loc = e.loc;
  Operation &o = builder.create(e.kind == Expr::CountIf ? Op::Count : Op::PrefixWhile, {n}, {i32});
  o.regions[0] = std::move(body);
  return o.result();
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
  Value fed = expression(*e.args[0]);
  std::vector<Type> results;
  Region reducers;
  for (const sema::Reduction &r : e.reductions->list) {
    Operation reduce;
    reduce.op = Op::Reduce;
    reduce.name = r.name;
    reduce.loc = r.loc;
    std::vector<std::string> names;
    for (const auto &[name, value] : r.with) {
      const bool bound = name == "first" || name == "last";
      reduce.operands.push_back(bound ? rowBound(*value, value->intValue < 0) : expression(*value));
      names.push_back(name);
    }
    if (!names.empty())
      reduce.set<attr::with>(names);
    if (r.n > 0)
      reduce.set<attr::n>(r.n);
    if (!r.part.empty())
      reduce.set<attr::part>(r.part);
    results.push_back(typeOf(r.type));
    reducers.ops.push_back(std::move(reduce));
  }
  assert((e.keepNone || !results.empty()) && "logits that nobody reads are an error");
  builder.loc = e.loc;
  Operation &o = builder.create(Op::Call, {fed}, results);
  o.name = e.name;
  o.set<attr::site>(site++);
  o.set<attr::kv>(std::string(e.draft ? "draft" : "commit"));
  if (results.empty())
    o.regions.clear();
  else
    o.region() = std::move(reducers);
  if (e.chunk)
    o.set<attr::chunk>(e.chunk);
  // The stage is suspended here: what it reads next comes from the request's fields.
  known.clear();
  return calls[&e] = std::vector<Value>(o.results.begin(), o.results.end());
}

Value StageBody::expression(const Expr &e) {
  switch (e.kind) {
  case Expr::Const:
    builder.loc = e.loc;
    return e.type.is(Elem::F32) ? builder.constant(e.floatValue) : builder.constant(e.intValue, scalarOf(e.type.elem));
  case Expr::FieldRead:
  case Expr::InputRead:
    return fieldRead(e);
  case Expr::LocalRead:
    return locals.at(e.index);
  case Expr::BinderRead:
    return binders[e.index];
  case Expr::ObserveArg:
    return observeArgs[e.index];
  case Expr::PolicyState: {
    Operation &read = add(Op::PolicyGet, e.loc, {}, typeOf(e.type), e.name);
    read.set<attr::state>(e.member);
    module.values[read.result().id].hint = e.member;
    return read.result();
  }
  case Expr::PolicyOutput: {
    Operation &read = add(Op::PolicyRead, e.loc, {}, typeOf(e.type), e.name);
    read.set<attr::output>(e.member);
    module.values[read.result().id].hint = e.member;
    return read.result();
  }
  case Expr::Request:
    return request(e);
  case Expr::Pool: {
    static const Op ops[] = {Op::KvLen, Op::KvLag, Op::KvLive, Op::KvPages, Op::KvPressure};
    return emit(ops[static_cast<int>(e.poolName)], e.loc, {}, typeOf(e.type), e.name);
  }
  case Expr::Neg:
  case Expr::Not: {
    Value a = expression(*e.args[0]);
    return emit(e.kind == Expr::Neg ? Op::Neg : Op::Not, e.loc, {a}, typeOf(e.type));
  }
  case Expr::Binary:
    return binary(e);
  case Expr::Select: {
    Value c = expression(*e.args[0]), a = expression(*e.args[1]), b = expression(*e.args[2]);
    return emit(Op::Select, e.loc, {c, a, b}, typeOf(e.type));
  }
  case Expr::MinMax: {
    Value result = expression(*e.args[0]);
    for (size_t i = 1; i < e.args.size(); ++i) {
      Value next = expression(*e.args[i]);
      result = emit(e.function == sema::Function::Min ? Op::Min : Op::Max, e.loc, {result, next}, typeOf(e.type));
    }
    return result;
  }
  case Expr::Ratio: {
    Value a = expression(*e.args[0]), b = expression(*e.args[1]);
    return emit(Op::Ratio, e.loc, {a, b}, typeOf(e.type));
  }
  case Expr::Tiers:
    return tiers(e);
  case Expr::SeqLen: {
    Value s = expression(*e.args[0]);
    return emit(Op::SeqLen, e.loc, {s}, i32);
  }
  case Expr::SeqAt:
    return at(e);
  case Expr::SeqSlice:
    return slice(e);
  case Expr::SeqConcat: {
    Value a = expression(*e.args[0]), b = expression(*e.args[1]);
    // An always empty side has room for one in the IR, which the sum must not count.
    if (e.args[0]->type.capacity == 0 || e.args[1]->type.capacity == 0)
      return e.args[0]->type.capacity == 0 ? b : a;
    return emit(Op::SeqConcat, e.loc, {a, b}, typeOf(e.type));
  }
  case Expr::SeqMake: {
    std::vector<Value> items;
    for (const sema::ExprRef &item : e.args)
      items.push_back(expression(*item));
    return emit(Op::SeqMake, e.loc, items, typeOf(e.type));
  }
  case Expr::NgramLookup: {
    Value s = expression(*e.args[0]), width = expression(*e.args[1]);
    Operation &lookup = add(Op::NgramLookup, e.loc, {s, width}, typeOf(e.type));
    lookup.set<attr::ngram>(e.ngram);
    return lookup.result();
  }
  case Expr::PrefixWhile:
  case Expr::CountIf:
    return loop(e);
  case Expr::Append: {
    Value s = expression(*e.args[0]);
    return emit(Op::Append, e.loc, {s}, i32);
  }
  case Expr::ModelCall:
    call(e);
    return Value();
  case Expr::Reduced:
    return call(*e.args[0])[e.index];
  case Expr::LogitRows:
    break; // only reducers read them
  case Expr::Sampling: {
    Operation &read = add(Op::Sampling, e.loc, {}, typeOf(e.type));
    read.set<attr::of>(e.member);
    module.values[read.result().id].hint = e.member;
    return read.result();
  }
  case Expr::Uniform: {
    Value position = expression(*e.args[0]), lane = expression(*e.args[1]), noise = expression(*e.args[2]);
    return emit(Op::Uniform, e.loc, {position, lane, noise}, typeOf(e.type));
  }
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

void StageBody::statements(const std::vector<Stmt> &body) {
  for (const Stmt &s : body)
    statement(s);
}

void StageBody::statement(const Stmt &s) {
  if (s.kind == Stmt::If)
    return branch(s);
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
      name = s.name;
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
    if (g.condition)
      conditions.push_back(expression(*g.condition));
  }
  builder.loc = stage.goLoc;
  builder.create(Op::Goto, conditions).set<attr::to>(to);
}

} // namespace megalith
