#include "ControlBody.h"
#include "BodyBuilder.h"
#include "Names.h"
#include "megalith/IR/Calls.h"
#include "megalith/IR/Effects.h"
#include "megalith/IR/Host.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include <fmt/format.h>

namespace megalith::emit {

std::vector<Statement> PartBuilder::order() {
  const Operation &op = *orderOf(part);
  Body body = bodyOf(op.region());
  for (const auto &[i, key] : llvm::enumerate(body.yields))
    body.statements.push_back({Code(fmt::format("key[{}] = orderKey(", i)).add(key).add(")"), op.loc, false, {}, {}});
  return std::move(body.statements);
}

void PartBuilder::emit(const Operation &op) {
  switch (op.op) {
  case Op::FieldSet: {
    const Type type = declaredType(*module.find(Op::Field, op.name));
    if (type.kind != Type::Table && type.size <= mostMoved)
      return effect(op, "t.set", Code::field(layout.names.fields.at(op.name), {}));
    return effect(op, Code("t.set(")
                          .add(Code::field(layout.names.fields.at(op.name), {}))
                          .add(", ")
                          .add(use(op.operands[0]))
                          .add(fmt::format(", {})", scratch(wordsOf(type)))));
  }
  case Op::KvKeep:
    if (op.operands.size() > 1)
      return effect(op, callWithLine("t.keepPath" + ofPool(op), op));
    return effect(op, call("t.keepKv" + ofPool(op), op.operands));
  case Op::CountAdd:
    return effect(op, "t.count", Code("Metric::" + layout.names.metrics.at(op.name)));
  case Op::Trace:
    return effect(op, "t.trace", Code("Gauge::" + layout.names.gauges.at(op.name)));
  case Op::Append:
    return append(op);
  case Op::Issue:
    return issue(op);
  case Op::Enter:
    return effect(op, fmt::format("t.enter<calls::{}, calls::{}>", layout.names.sites.at(op.get<attr::inside>()),
                                  layout.names.sites.at(op.get<attr::outside>())));
  case Op::Goto:
    return go(op);
  case Op::Order: // a function of its own
    return;
  default:
    BodyBuilder::emit(op);
  }
}

void PartBuilder::append(const Operation &op) {
  const Value v = op.result();
  Code code = call("t.append", op.operands);
  settle(writesOf(op));
  if (uses[v.id] == 0)
    return add(std::move(code), op.loc);
  const std::string name = locals.variable(module.hint(v), "appended");
  add(Code(fmt::format("const int {} = ", name)).add(code), op.loc);
  Pending &p = values[v.id] = {Code(), true, uses[v.id], true, name, module.type(v), op.loc};
  setVariable(p, name, {});
}

void PartBuilder::issue(const Operation &op) {
  const CallSite &site = layout.site(op.get<attr::site>());
  const std::string type = "calls::" + layout.names.sites.at(site.site);
  Code code("t.issue<" + type + ">(");
  const Value parents = operandNamed(op, Operand::Parents), visible = operandNamed(op, Operand::Visible);
  Code fed = use(op.operands[0]);
  if (const int64_t most = op.get<attr::most>())
    fed = Code(fmt::format("t.atMost<{}>(", most)).add(fed).addLine(op.loc.line).add(")");
  if (parents || visible)
    fed = Code(parents ? "t.onTree(" : "t.seeing(")
              .add(fed)
              .add(", ")
              .add(use(op.operands[1]))
              .addLine(op.loc.line)
              .add(")");
  code.add(fed);
  for (const CallQuery &query : site.queries)
    code.add(", ").add(logitsQuery(query, type + "::" + query.name));
  effect(op, code.add(")"));
}

bool PartBuilder::ofRequest(const Operation &reduce) {
  return llvm::all_of(ir::settings, [&](Operand setting) {
    const Value v = operandNamed(reduce, setting);
    const auto it = v ? settingOf.find(v.id) : settingOf.end();
    return it != settingOf.end() && it->second == setting;
  });
}

Code PartBuilder::logitsQuery(const CallQuery &query, const std::string &type) {
  const Operation &reduce = *query.op;
  Code code("LogitsQuery<" + type + ">{");
  bool any = reducerOf(reduce).id == Reducer::ArgMax && !query.isBest();
  if (any)
    code.add(".settings = {.temperature = 0.0f}");
  const auto isList = [&](Value v) { return module.type(v).isList(); };
  const auto members = [&](llvm::ArrayRef<Operand> list) {
    bool some = false;
    for (Operand operand : list)
      if (const Value v = operandNamed(reduce, operand); v && !isList(v)) {
        code.add(some || any ? ", " : "").add(fmt::format(".{} = ", functionName(word(operand)))).add(use(v));
        some = true;
      }
    return some;
  };
  if (ofRequest(reduce)) { // so they are numbers for all rows
    for (Operand setting : ir::settings)
      use(operandNamed(reduce, setting));
    code.add(".settings = t.sampling()");
    any = true;
  } else if (llvm::any_of(ir::settings, [&](Operand setting) {
               const Value v = operandNamed(reduce, setting);
               return v && !isList(v);
             })) {
    code.add(".settings = {");
    members(ir::settings);
    code.add("}");
    any = true;
  }
  for (Operand one : {Operand::Noise, Operand::Ahead, Operand::First, Operand::Last, Operand::At})
    any |= members(one);
  if (const Value kept = operandNamed(reduce, Operand::Kept)) // its rows, of which the kernel knows where they stand
    code.add(any ? ", " : "").add(".at = ").add(use(kept), Primary).add(".size()");
  if (const Value minus = operandNamed(reduce, Operand::Minus))
    use(minus);
  code.add("}");
  if (const Value tokens = operandNamed(reduce, Operand::Tokens))
    code.add(".of(").add(use(tokens)).add(")");
  if (query.hand.empty())
    return code;
  Code all = Code("byHand(").add(code);
  for (Operand operand : ir::byHand)
    if (const Value v = operandNamed(reduce, operand))
      all.add(", ").add(use(v));
    else
      all.add(", NotGiven{}");
  for (Operand operand : ir::ofEach)
    if (const Value v = operandNamed(reduce, operand); v && isList(v))
      all.add(", ").add(use(v));
    else
      all.add(", NotGiven{}");
  return all.add(")");
}

void PartBuilder::go(const Operation &op) {
  const std::vector<std::string> &to = op.get<attr::to>();
  Code code("t.goTo(");
  for (size_t i = 0; i < op.operands.size(); ++i)
    code.add(i == 0 ? use(op.operands[i]) : useGuarded(op.operands[i]), OrLevel)
        .add(fmt::format(" ? {} : ", layout.stateName(to[i])));
  effect(op, code.add(layout.stateName(to.back()) + ")"));
}

std::vector<Statement> orderStatements(const Module &module, const ControlLayout &layout, const Region &part) {
  return PartBuilder(module, layout, part).order();
}

std::vector<Statement> partStatements(const Module &module, const ControlLayout &layout, const Region &region,
                                      int64_t &scratch) {
  PartBuilder builder(module, layout, region);
  std::vector<Statement> statements = builder.run();
  scratch = builder.scratchWords;
  return statements;
}

} // namespace megalith::emit
