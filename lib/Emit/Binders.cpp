#include "BodyBuilder.h"
#include "Names.h"
#include "megalith/IR/Calls.h"
#include "megalith/IR/Effects.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include <fmt/format.h>

namespace megalith::emit {

std::string BodyBuilder::scratch(int64_t words) {
  const std::string at = fmt::format("t.scratch({})", scratchWords);
  scratchWords += words;
  return at;
}

int64_t BodyBuilder::wordsOf(const Type &type) {
  return type.kind == Type::Table ? type.size * (1 + type.inner) : type.size;
}

const char *BodyBuilder::elementType(const Type &type) {
  return type.elem == Scalar::F32 ? "float" : type.elem == Scalar::Bool ? "bool" : "";
}

Code BodyBuilder::elementAt(const Operation &op) {
  Code code("t.at(");
  code.add(use(op.operands[0])).add(", ").add(use(op.operands[1])).addLine(op.loc.line).add(")");
  code.mayFault = true;
  return code;
}

Code BodyBuilder::make(const Operation &op) {
  const Type &type = module.type(op.result());
  const std::string element = elementType(type);
  const std::string of = element.empty() ? "" : "<" + element + ">";
  if (op.operands.empty())
    return Code(
        fmt::format("{}{}{}()", of.empty() ? "t." : templated(), type.kind == Type::Table ? "noRows" : "list", of));
  if (type.kind != Type::Table)
    return call("t.list", op.operands);
  Code code(fmt::format("t.table<{}, {}>({}", type.size, type.inner, scratch(wordsOf(type))));
  for (Value v : op.operands)
    code.add(", ").add(use(v));
  return code.add(")");
}

/// Constants of a list that are compared with the index one after the other.
static constexpr int64_t mostInRegisters = 8;

Code BodyBuilder::fixed(const Operation &op) {
  const Type &type = module.type(op.result());
  std::string items;
  for (int64_t item : op.get<attr::items>())
    items += (items.empty() ? "" : ", ") + (type.elem == Scalar::Bool ? std::string(item ? "true" : "false")
                                                                      : intLiteral(static_cast<int32_t>(item)));
  for (double number : op.get<attr::numbers>())
    items += (items.empty() ? "" : ", ") + floatLiteral(number);
  if (type.size <= mostInRegisters)
    return Code("t.list(" + items + ")");
  // In memory, where an index that is not known costs nothing more.
  const char *element = type.elem == Scalar::F32 ? "float" : type.elem == Scalar::Bool ? "bool" : "int";
  const std::string name = locals.variable(module.hint(op.result()), "constants");
  add(Code(fmt::format("static constexpr {} {}[] = {{{}}}", type.elem == Scalar::Bool ? "int" : element, name, items)),
      op.loc);
  return Code(fmt::format("{}constants<{}>({})", templated(), element, name));
}

bool BodyBuilder::takesWarp(const Region &region) {
  bool takes = false;
  walk(region, [&](const Operation &inner) {
    takes |= inner.op == Op::NgramLookup || inner.op == Op::Forced || inner.op == Op::Follow || inner.op == Op::Tree ||
             (inner.op != Op::Choose && !inner.regions.empty());
  });
  return takes;
}

bool BodyBuilder::takesWarpFor(const Region &region) const {
  bool takes = takesWarp(region);
  walk(region, [&](const Operation &inner) {
    takes |= inner.op == Op::SeqMake && module.type(inner.result()).kind == Type::Table;
  });
  return takes;
}

void BodyBuilder::hoist(const Operation &op, bool all) {
  for (const Region &region : op.regions)
    walk(region, [&](const Operation &inner) {
      for (Value v : inner.operands)
        if (auto it = values.find(v.id);
            it != values.end() && !it->second.free && (all || it->second.expression.mayFault))
          makeVariable(v.id);
    });
}

std::string BodyBuilder::indexOf(const Region &region, SourceLoc loc) {
  const Value index = region.args[0];
  const std::string name = locals.variable(module.hint(index), "i");
  Pending &p = values[index.id] = {Code(), true, uses[index.id], true, name, module.type(index), loc};
  setVariable(p, name, {});
  return name;
}

BodyBuilder::Body BodyBuilder::bodyOf(const Region &region) {
  Body body;
  std::vector<Statement> *outer = statements;
  statements = &body.statements;
  for (const Operation &inner : region.ops)
    if (inner.op == Op::Yield)
      for (Value v : inner.operands)
        body.yields.push_back(use(v));
    else
      emit(inner);
  statements = outer;
  return body;
}

Code BodyBuilder::lambda(const std::string &parameter, const Body &body, const Code &value) {
  Code code(fmt::format("[&]{} {{ ", parameter.empty() ? "" : "(int " + parameter + ")"));
  for (const Statement &s : body.statements)
    code.add(s.code).add("; ");
  return code.add("return ").add(value).add("; }");
}

Code BodyBuilder::loop(const Operation &op, const char *name) {
  hoist(op, true);
  const Code count = use(op.operands[0]);
  const bool both = op.operands.size() == 2;
  const Code high = both ? use(op.operands[1]) : Code();
  const bool inTurn = takesWarpFor(op.region());
  const std::string index = indexOf(op.region(), op.loc);
  const Body body = bodyOf(op.region());
  const Code test = lambda(index, body, body.yields[0]);
  Code code(fmt::format("t.{}{}(", name, inTurn && !both ? "InTurn" : ""));
  code.add(count);
  if (both)
    code.add(", ").add(high);
  code.add(", ").add(inTurn && both ? Code("t.inTurn(").add(test).add(")") : test);
  return code.add(")");
}

Code BodyBuilder::over(const Operation &op) {
  if (op.op == Op::PrefixWhile || op.op == Op::Count)
    return loop(op, op.op == Op::Count ? "countIf" : "prefixWhile");
  hoist(op, true);
  const bool top = op.op == Op::SeqTop;
  const Type &type = module.type(op.result());
  const size_t ends = op.operands.size() - top;
  const Code low = ends == 2 ? use(op.operands[0]) : Code("0");
  const Code high = use(op.operands[ends - 1]);
  const Code k = top ? use(op.operands.back()) : Code();
  const bool rows = op.op == Op::SeqMap && type.kind == Type::Table;
  const bool inTurn = !rows && takesWarpFor(op.region());
  Code code;
  switch (op.op) {
  case Op::SeqMap:
    code.add(rows ? fmt::format("t.mapRows<{}, {}>({}, ", type.size, type.inner, scratch(wordsOf(type)))
                  : fmt::format("t.map<{}>({}, ", type.size, scratch(type.size)));
    break;
  case Op::SeqFilter:
    code.add(fmt::format("t.filter<{}>({}, ", type.size, scratch(type.size)));
    break;
  case Op::SeqScan:
    code.add(fmt::format("t.scan<{}>({}, ", type.size, scratch(type.size)));
    break;
  case Op::SeqTop:
    code.add(fmt::format("t.top<{}, {}>({}, ", op.get<attr::range>(), type.size,
                         scratch(type.size + op.get<attr::range>())));
    break;
  case Op::SeqSort:
    code.add(
        fmt::format("t.sort<{}>({}, ", type.size, scratch(type.size * (1 + op.region().ops.back().operands.size()))));
    break;
  default: {
    const By by = op.get<attr::by>();
    code.add(fmt::format("t.{}(", by == By::Min      ? "least"
                                  : by == By::Max    ? "greatest"
                                  : by == By::Argmin ? "argLeast"
                                  : by == By::Argmax ? "argGreatest"
                                                     : word(by)));
  }
  }
  code.add(low).add(", ").add(high);
  if (top)
    code.add(", ").add(k);
  const std::string index = indexOf(op.region(), op.loc);
  const Body body = bodyOf(op.region());
  for (const Code &value : body.yields) {
    const Code function = lambda(index, body, value);
    code.add(", ").add(inTurn ? Code("t.inTurn(").add(function).add(")") : function);
  }
  return code.add(")");
}

Code BodyBuilder::choose(const Operation &op) {
  hoist(op, false);
  const Type &type = module.type(op.result());
  const Code condition = use(op.operands[0]);
  const Body first = bodyOf(op.region(0)), second = bodyOf(op.region(1));
  const auto constant = [](const Region &region, bool v) {
    const Operation &def = region.ops.front();
    return region.ops.size() == 2 && def.op == Op::Const && region.ops[1].operands[0] == def.result() &&
           def.get<attr::value>().truth() == v;
  };
  const bool simple = first.statements.empty() && second.statements.empty();
  if (type.is(Scalar::Bool) && simple && constant(op.region(1), false))
    return Code("", AndLevel).add(condition, AndLevel).add(" && ").add(first.yields[0], Equality);
  if (type.is(Scalar::Bool) && simple && constant(op.region(0), true))
    return Code("", OrLevel).add(condition, OrLevel).add(" || ").add(second.yields[0], AndLevel);
  if (type.isList())
    return Code("t.choose(")
        .add(condition)
        .add(", ")
        .add(lambda("", first, first.yields[0]))
        .add(", ")
        .add(lambda("", second, second.yields[0]))
        .add(")");
  const auto side = [](const Body &body) {
    return body.statements.empty() ? body.yields[0] : lambda("", body, body.yields[0]).add("()");
  };
  return Code("", Ternary).add(condition, OrLevel).add(" ? ").add(side(first), OrLevel).add(" : ").add(side(second));
}

} // namespace megalith::emit
