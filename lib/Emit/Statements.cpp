#include "BodyBuilder.h"
#include "megalith/IR/Effects.h"
#include "llvm/ADT/StringExtras.h"
#include <fmt/format.h>

namespace megalith::emit {

std::vector<Statement> BodyBuilder::run() {
  std::vector<Statement> out;
  statements = &out;
  for (const Operation &op : part.ops)
    emit(op);
  return out;
}

void BodyBuilder::effect(const Operation &op, Code code) {
  settle(writesOf(op));
  add(std::move(code), op.loc);
}

void BodyBuilder::effect(const Operation &op, const std::string &function) {
  const Code operand = use(op.operands[0]);
  effect(op, Code(function + "(").add(operand).add(")"));
}

void BodyBuilder::effect(const Operation &op, llvm::StringRef function, const Code &what) {
  effect(op, Code((function + "(").str()).add(what).add(", ").add(use(op.operands[0])).add(")"));
}

void BodyBuilder::emit(const Operation &op) {
  switch (op.op) {
  case Op::If:
    return branch(op);
  case Op::For:
  case Op::While:
    return repeat(op);
  default:
    emitValue(op);
  }
}

void BodyBuilder::branch(const Operation &op) {
  const Code condition = use(op.operands[0]);
  settle(writesBelow(op));
  Statement s{Code("if (").add(condition).add(")"), op.loc, true, {}, {}};
  std::vector<Statement> *outer = statements;
  for (size_t i = 0; i < op.regions.size(); ++i) {
    statements = i == 0 ? &s.body : &s.otherwise;
    for (const Operation &inner : op.region(i).ops)
      if (inner.op != Op::Yield)
        emit(inner);
  }
  statements = outer;
  statements->push_back(std::move(s));
}

void BodyBuilder::repeat(const Operation &op) {
  hoist(op, true);
  settle(writesBelow(op));
  const bool isFor = op.op == Op::For;
  for (Value v : op.operands) // once
    if (!values[v.id].free)
      makeVariable(v.id);
  Code head("for (int ");
  if (isFor) {
    const Code low = use(op.operands[0]), high = use(op.operands[1]);
    const std::string index = indexOf(op.region(), op.loc);
    head.add(index + " = ").add(low).add("; " + index + " < ").add(high, Sum).add(" && !t.fault; ++" + index + ")");
  } else {
    const std::string round = locals.variable("", "round");
    head.add(fmt::format("{0} = 0; {0} < {1} && !t.fault; ++{0})", round, op.get<attr::bound>()));
  }
  Statement s{std::move(head), op.loc, true, {}, {}};
  std::vector<Statement> *outer = statements;
  statements = &s.body;
  for (const Region &region : op.regions)
    for (const Operation &inner : region.ops)
      if (inner.op == Op::Yield)
        add(Code("if (!").add(use(inner.operands[0]), Primary).add(") break"), op.loc);
      else
        emit(inner);
  statements = outer;
  statements->push_back(std::move(s));
}

} // namespace megalith::emit
