//===- StageStatements.cpp - statements to operations ----------------------===//
#include "StageBody.h"
#include "llvm/ADT/STLExtras.h"

namespace megalith {

using namespace ir;
using sema::Stmt;

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
  else if (llvm::any_of(regions[0].ops, [](const Operation &inner) {
             return inner.op == Op::Call || (inner.op == Op::For && inner.has<attr::rounds>());
           }))
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
