#include "BodyBuilder.h"
#include "Names.h"
#include "megalith/IR/Calls.h"
#include "megalith/IR/Effects.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include <fmt/format.h>

namespace megalith::emit {

bool PartBuilder::outlivesField(const Operation &get) const {
  std::set<uint32_t> views = {get.result().id};
  bool seen = false, written = false, late = false;
  const auto look = [&](const Operation &op, auto &self) -> void {
    if (&op == &get)
      seen = true;
    if (seen)
      for (Value v : op.operands)
        if (views.count(v.id)) {
          late |= written;
          // A loop or a choice yields what it sees.
          for (Value result : op.op == Op::Yield && around ? around->results : op.results)
            if (module.type(result).isList())
              views.insert(result.id);
        }
    // What stands before a loop is looked at in each round, after all that the round before it wrote.
    const bool loop = op.op == Op::For || op.op == Op::While;
    const bool writes = writesBelow(op).count("." + get.name) != 0;
    if (loop && seen && writes)
      written = true;
    const Operation *outer = around;
    around = &op;
    for (const Region &region : op.regions)
      for (const Operation &inner : region.ops)
        self(inner, self);
    around = outer;
    written |= seen && op.op == Op::FieldSet && op.name == get.name;
  };
  around = nullptr;
  for (const Operation &op : part.ops)
    look(op, look);
  return late;
}

Code PartBuilder::lookup(const Operation &op) {
  const Type &type = module.type(op.result());
  const bool table = type.kind == Type::Table;
  Code code(table ? fmt::format("t.ngramMatches<{}, {}, {}>({}, ", op.get<attr::ngram>(), type.size, type.inner,
                                scratch(wordsOf(type)))
                  : fmt::format("t.ngramLookup<{}, {}>(", op.get<attr::ngram>(),
                                type.size > 0 ? std::to_string(type.size) : "0x7fffffff"));
  const Value from = operandNamed(op, Operand::From), most = operandNamed(op, Operand::Ngram);
  // Without a text of its own, it is looked for where the suffix stands.
  if ((table || most) && !from)
    if (Pending &p = values[op.operands[0].id]; !p.free)
      makeVariable(op.operands[0].id);
  const Code sequence = use(op.operands[0]);
  code.add(sequence).add(", ").add(use(op.operands[1]));
  if (from || table || most)
    code.add(", ").add(from ? use(from) : sequence);
  if (most)
    code.add(", ").add(use(most));
  code.add(")").reads.merge(readsOf(op));
  return code;
}

Code PartBuilder::follow(const Operation &op) {
  const Type &type = module.type(op.result());
  Code code(fmt::format("t.follow<{}>({}", type.size, scratch(type.size)));
  for (Value v : op.operands)
    code.add(", ").add(use(v));
  return code.add(")");
}

void PartBuilder::tree(const Operation &op) {
  const Type &type = module.type(op.result(0));
  Code code = Code(fmt::format("t.tree<{}>({}, ", type.size, scratch(2 * type.size)))
                  .add(use(op.operands[0]))
                  .add(", ")
                  .add(use(op.operands[1]))
                  .add(")");
  const std::string name = locals.variable("", "tree");
  add(Code(fmt::format("const auto {} = ", name)).add(code), op.loc);
  for (unsigned i : {0, 1}) {
    const Value v = op.results[i];
    Pending &p = values[v.id] = {Code(), true, uses[v.id], true, name, module.type(v), op.loc};
    setVariable(p, name + (i ? ".parents" : ".rows"), {});
  }
}

void PartBuilder::emitValue(const Operation &op) {
  // Those that are as short as a variable.
  switch (op.op) {
  case Op::PromptLen:
    return define(op, Code("t.promptLen()"), true);
  case Op::Priority:
    return define(op, Code("t.priority()"), true);
  case Op::Seated:
    return define(op, Code("t.seated()"), true);
  case Op::Host:
    return define(op, Code("t." + functionName(word(op.get<attr::number>())) + "()"), true);
  case Op::KvLen:
    return define(op, Code("t.kvLen" + ofPool(op) + "()", Primary, readsOf(op)), true);
  case Op::KvPages:
    return define(op, Code((layout.several() ? layout.pool(op.name).name : "Config") + "::pages"), true);
  case Op::FieldGet: {
    const Code field = Code::field(layout.names.fields.at(op.name), readsOf(op));
    const Type &type = module.type(op.result());
    if (!type.isList() || !outlivesField(op))
      return define(op, field, true);
    Code copy = Code("t.hold(").add(field);
    if (type.kind == Type::Table || type.size > mostHeld)
      copy.add(", " + scratch(wordsOf(type)));
    // Now, before anything changes it.
    define(op, copy.add(")"));
    if (auto it = values.find(op.result().id); it != values.end() && !it->second.variable && it->second.uses > 0)
      makeVariable(op.result().id);
    return;
  }
  case Op::InputGet:
    if (module.type(op.result()).kind == Type::Table) {
      const Type &type = module.type(op.result());
      const std::string elem = type.elem == Scalar::F32 ? ", float" : type.elem == Scalar::Bool ? ", bool" : "";
      return define(op, Code(fmt::format("t.inputTable<{}{}>(t.r.inputs.{})", type.inner, elem,
                                         layout.names.inputs.at(op.name))));
    }
    if (module.type(op.result()).kind != Type::Seq)
      return define(op, Code("t.r.inputs." + layout.names.inputs.at(op.name)), true);
    return define(op, Code(fmt::format("t.input{}(t.r.inputs.{})",
                                       module.type(op.result()).elem == Scalar::F32    ? "<float>"
                                       : module.type(op.result()).elem == Scalar::Bool ? "<bool>"
                                                                                       : "",
                                       layout.names.inputs.at(op.name))));
  case Op::Sampling:
    settingOf[op.result().id] = op.get<attr::setting>();
    return define(op, expression(op), true);
  case Op::Tree:
    return tree(op);
  default:
    return BodyBuilder::emitValue(op);
  }
}

Code PartBuilder::expression(const Operation &op) {
  switch (op.op) {
  case Op::Tokens:
    return Code("t.tokens()", Primary, readsOf(op));
  case Op::Eos:
    return Code("t.eos()");
  case Op::IsEos:
    return call("t.isEos", op.operands);
  case Op::Budget:
    return Code("t.budget()", Primary, readsOf(op));
  case Op::Finished:
    return Code("t.finished()", Primary, readsOf(op));
  case Op::Follow:
    return follow(op);
  case Op::NgramLookup:
    return lookup(op);
  case Op::Forced: {
    const int64_t most = module.type(op.result()).size;
    Code code(fmt::format("t.forced<{}>({}, ", most, scratch(most)));
    code.add(use(op.operands[0])).add(")").reads.merge(readsOf(op));
    return code;
  }
  case Op::KvDrafts:
    return Code("t.kvDrafts" + ofPool(op) + "()", Primary, readsOf(op));
  case Op::KvLag:
    return Code("t.kvLag" + ofPool(op) + "()", Primary, readsOf(op));
  case Op::KvFound:
    return Code("t.kvFound" + ofPool(op) + "()");
  case Op::KvLive:
    return Code("t.livePages" + ofPool(op) + "()");
  case Op::KvPressure:
    return Code("t.pressure" + ofPool(op) + "()");
  case Op::Results:
    return results(op);
  case Op::Sampling:
    return Code("t.sampling()." + functionName(word(op.get<attr::setting>())));
  case Op::Uniform:
    return call("t.uniform", op.operands);
  default:
    return BodyBuilder::expression(op);
  }
}

Code PartBuilder::results(const Operation &op) {
  const CallSite &site = layout.site(op.get<attr::site>());
  if (site.queries.empty())
    return Code(site.lastRow ? "t.lastResult()" : "t.results()");
  const Type &type = module.type(op.result());
  const std::string of =
      fmt::format("calls::{}::{}", layout.names.sites.at(site.site), site.queries[op.get<attr::index>()].name);
  if (type.kind == Type::Table)
    return Code(fmt::format("t.results<{}, {}>({})", of, type.size, scratch(wordsOf(type))));
  return Code(fmt::format("t.results<{}>()", of));
}

} // namespace megalith::emit
