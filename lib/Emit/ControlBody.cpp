#include "BodyBuilder.h"
#include "Names.h"
#include "megalith/IR/Calls.h"
#include "megalith/IR/Effects.h"
#include "llvm/ADT/STLExtras.h"
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
  case Op::FieldSet: {
    const Type type = *declaredType(*module.find(Op::Field, op.name));
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
                                  layout.names.sites.at(op.get<attr::behind>())));
  case Op::Goto:
    return go(op);
  case Op::If:
    return branch(op);
  case Op::For:
  case Op::While:
    return repeat(op);
  default:
    emitValue(op);
  }
}

void BodyBuilder::append(const Operation &op) {
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

void BodyBuilder::issue(const Operation &op) {
  const CallSite &site = layout.site(op.get<attr::site>());
  const std::string type = "calls::" + layout.names.sites.at(site.site);
  Code code("t.issue<" + type + ">(");
  const Value parents = operandNamed(op, "parents"), visible = operandNamed(op, "visible");
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
  for (const CallAsk &ask : site.asks)
    code.add(", ").add(asked(*ask.op, type + "::" + ask.name));
  effect(op, code.add(")"));
}

bool BodyBuilder::ofRequest(const Operation &reduce) {
  return llvm::all_of(llvm::ArrayRef<const char *>{"temperature", "top_k", "top_p", "min_p"}, [&](const char *name) {
    const Value v = operandNamed(reduce, name);
    const auto it = v ? settingOf.find(v.id) : settingOf.end();
    return it != settingOf.end() && it->second == name;
  });
}

Code BodyBuilder::asked(const Operation &reduce, const std::string &type) {
  Code code("Ask<" + type + ">{");
  bool any = false;
  const auto members = [&](std::initializer_list<std::pair<const char *, const char *>> list) {
    bool some = false;
    for (auto [operand, member] : list)
      if (const Value v = operandNamed(reduce, operand)) {
        code.add(some || any ? ", " : "").add(fmt::format(".{} = ", member)).add(use(v));
        some = true;
      }
    return some;
  };
  const auto named = [&](const char *name) { return bool(operandNamed(reduce, name)); };
  if (ofRequest(reduce)) {
    for (const char *name : {"temperature", "top_k", "top_p", "min_p"})
      use(operandNamed(reduce, name));
    code.add(".settings = t.sampling()");
    any = true;
  } else if (named("temperature") || named("top_k") || named("top_p") || named("min_p")) {
    code.add(".settings = {");
    members({{"temperature", "temperature"}, {"top_k", "topK"}, {"top_p", "topP"}, {"min_p", "minP"}});
    code.add("}");
    any = true;
  }
  for (auto one : {"noise", "ahead", "first", "last"})
    any |= members({{one, one}});
  code.add("}");
  if (const Value tokens = operandNamed(reduce, "tokens"))
    code.add(".of(").add(use(tokens)).add(")");
  return code;
}

void BodyBuilder::go(const Operation &op) {
  const std::vector<std::string> &to = op.get<attr::to>();
  Code code("t.goTo(");
  for (size_t i = 0; i < op.operands.size(); ++i)
    code.add(i == 0 ? use(op.operands[i]) : useGuarded(op.operands[i]), OrLevel)
        .add(fmt::format(" ? {} : ", layout.stateName(to[i])));
  effect(op, code.add(layout.stateName(to.back()) + ")"));
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
<<<<<<< HEAD
  statements = outer;
  statements->push_back(std::move(s));
}
=======
    statements = outer;
    return body;
  }
  static Code lambda(const std::string &parameter, const Body &body, const Code &value) {
    Code code(fmt::format("[&]{} {{ ", parameter.empty() ? "" : "(int " + parameter + ")"));
    for (const Statement &s : body.statements)
      code.add(s.code).add("; ");
    return code.add("return ").add(value).add("; }");
  }

  /// `t.prefixWhile(n, [&](int i) { return ...; })`
  Code loop(const Operation &op, const char *name) {
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

  /// `t.sum(low, high, [&](int i) { return ...; })`, and others whose result may stand in scratch.
  Code over(const Operation &op) {
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
      static const std::pair<const char *, const char *> names[] = {
          {"sum", "sum"}, {"min", "least"}, {"max", "greatest"}, {"argmin", "argLeast"}, {"argmax", "argGreatest"},
          {"all", "all"}, {"any", "any"},   {"find", "find"}};
      for (const auto &[by, function] : names)
        if (op.get<attr::by>() == by)
          code.add(fmt::format("t.{}(", function));
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

  /// One side alone is evaluated: `a ? b : c`, or a function for each side where that takes more.
  Code choose(const Operation &op) {
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

  /// Two values, members of one variable.
  void tree(const Operation &op) {
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

  void emitValue(const Operation &op) {
    // Those that are as short as a variable.
    switch (op.op) {
    case Op::Const:
      return constant(op);
    case Op::PromptLen:
      return define(op, Code("t.promptLen()"), true);
    case Op::Priority:
      return define(op, Code("t.priority()"), true);
    case Op::Seated:
      return define(op, Code("t.seated()"), true);
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
      if (module.type(op.result()).kind != Type::Seq)
        return define(op, Code("t.r.inputs." + layout.names.inputs.at(op.name)), true);
      return define(op, Code(fmt::format("t.input{}(t.r.inputs.{})",
                                         module.type(op.result()).elem == Scalar::F32    ? "<float>"
                                         : module.type(op.result()).elem == Scalar::Bool ? "<bool>"
                                                                                         : "",
                                         layout.names.inputs.at(op.name))));
    case Op::Cast:
      return cast(op);
    case Op::Sampling:
      settingOf[op.result().id] = op.get<attr::of>();
      return define(op, expression(op), true);
    case Op::Tree:
      return tree(op);
    default:
      return define(op, expression(op));
    }
  }

  Code expression(const Operation &op) {
    switch (op.op) {
    case Op::Add:
      return arithmetic(op, "__fadd_rn", "+", "t.wrapAdd", Sum);
    case Op::Sub:
      return arithmetic(op, "__fsub_rn", "-", "t.wrapSub", Sum);
    case Op::Mul:
      return arithmetic(op, "__fmul_rn", "*", "t.wrapMul", Product);
    case Op::Div:
      return isF32(op.operands[0]) ? call("__fdiv_rn", op.operands) : division(op, "/", "t.divide");
    case Op::Mod:
      return division(op, "%", "t.modulo");
    case Op::Min:
      return call("t.min", op.operands);
    case Op::Max:
      return call("t.max", op.operands);
    case Op::Eq:
      return comparison(op, "==", Equality);
    case Op::Ne:
      return comparison(op, "!=", Equality);
    case Op::Lt:
      return infix(op, "<", Relation);
    case Op::Le:
      return infix(op, "<=", Relation);
    case Op::Gt:
      return infix(op, ">", Relation);
    case Op::Ge:
      return infix(op, ">=", Relation);
    case Op::And:
      return infix(op, "&&", AndLevel, true);
    case Op::Or:
      return infix(op, "||", OrLevel, true);
    case Op::Not:
      return unary(op, "!");
    case Op::Neg:
      return isF32(op.operands[0]) || intervals.fits(op) ? unary(op, "-") : call("t.wrapNeg", op.operands);
    case Op::Select:
      return select(op);
    case Op::Ratio:
      return call("t.ratio", op.operands);
    case Op::Tokens:
      return Code("t.tokens()", Primary, readsOf(op));
    case Op::Budget:
      return Code("t.budget()", Primary, readsOf(op));
    case Op::Finished:
      return Code("t.finished()", Primary, readsOf(op));
    case Op::SeqLen:
      return Code().add(use(op.operands[0]), Primary).add(".size()");
    case Op::SeqAt:
      return elementAt(op);
    case Op::SeqSlice:
      return call("t.slice", op.operands);
    case Op::SeqConcat:
      return call("t.concat", op.operands);
    case Op::SeqMake:
      return make(op);
    case Op::SeqConst:
      return fixed(op);
    case Op::Exp:
      return call("t.exp", op.operands);
    case Op::Log:
      return call("t.log", op.operands);
    case Op::Pow:
      return call("t.pow", op.operands);
    case Op::Sqrt:
      return call("t.sqrt", op.operands);
    case Op::Abs:
      return call("t.abs", op.operands);
    case Op::Choose:
      return choose(op);
    case Op::Fold:
    case Op::SeqMap:
    case Op::SeqScan:
    case Op::SeqTop:
    case Op::SeqSort:
      return over(op);
    case Op::Follow: {
      const Type &type = module.type(op.result());
      Code code(fmt::format("t.follow<{}>({}", type.size, scratch(type.size)));
      for (Value v : op.operands)
        code.add(", ").add(use(v));
      return code.add(")");
    }
    case Op::NgramLookup:
      return lookup(op);
    case Op::PrefixWhile:
      return loop(op, "prefixWhile");
    case Op::Count:
      return loop(op, "countIf");
    case Op::KvDrafts:
      return Code("t.kvDrafts" + ofPool(op) + "()", Primary, readsOf(op));
    case Op::KvLag:
      return Code("t.kvLag" + ofPool(op) + "()", Primary, readsOf(op));
    case Op::KvLive:
      return Code("t.livePages" + ofPool(op) + "()");
    case Op::KvPressure:
      return Code("t.pressure" + ofPool(op) + "()");
    case Op::Results:
      return results(op);
    case Op::Sampling: {
      const std::string &of = op.get<attr::of>();
      return Code("t.sampling()." + std::string(of == "top_k"   ? "topK"
                                                : of == "top_p" ? "topP"
                                                : of == "min_p" ? "minP"
                                                                : "temperature"));
    }
    case Op::Uniform:
      return call("t.uniform", op.operands);
    default:
      assert(false && "the verifier checked that this stands in control code");
      return {};
    }
  }

  Code results(const Operation &op) {
    const CallSite &site = layout.site(op.get<attr::site>());
    if (site.asks.empty())
      return Code("t.results()");
    const Type &type = module.type(op.result());
    const std::string of =
        fmt::format("calls::{}::{}", layout.names.sites.at(site.site), site.asks[op.get<attr::index>()].name);
    if (type.kind == Type::Table)
      return Code(fmt::format("t.results<{}, {}>({})", of, type.size, scratch(wordsOf(type))));
    return Code(fmt::format("t.results<{}>()", of));
  }

  // --- statements
  /// Lists of at most so many elements are copied into registers, longer ones by way of scratch.
  static constexpr int64_t mostHeld = 64, mostMoved = 256;

  void add(Code code, SourceLoc loc) { statements->push_back({std::move(code), loc, false, {}, {}}); }

  void effect(const Operation &op, Code code) {
    settle(writesOf(op));
    add(std::move(code), op.loc);
  }

  /// `function(operand)`
  void effect(const Operation &op, const std::string &function) {
    const Code operand = use(op.operands[0]);
    effect(op, Code(function + "(").add(operand).add(")"));
  }

  /// `function(what, operand)`
  void effect(const Operation &op, llvm::StringRef function, const Code &what) {
    effect(op, Code((function + "(").str()).add(what).add(", ").add(use(op.operands[0])).add(")"));
  }

  void emit(const Operation &op) {
    switch (op.op) {
    case Op::FieldSet: {
      const Type type = *declaredType(*module.find(Op::Field, op.name));
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
                                    layout.names.sites.at(op.get<attr::behind>())));
    case Op::Goto:
      return go(op);
    case Op::If:
      return branch(op);
    case Op::For:
    case Op::While:
      return repeat(op);
    default:
      emitValue(op);
    }
  }

  void append(const Operation &op) {
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

  /// `t.issue<calls::Next>(feed, Ask<calls::Next::Sample0>{...})`
  void issue(const Operation &op) {
    const CallSite &site = layout.site(op.get<attr::site>());
    const std::string type = "calls::" + layout.names.sites.at(site.site);
    Code code("t.issue<" + type + ">(");
    const Value parents = operandNamed(op, "parents"), visible = operandNamed(op, "visible");
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
    for (const CallAsk &ask : site.asks)
      code.add(", ").add(asked(ask, type + "::" + ask.name));
    effect(op, code.add(")"));
  }

  /// Whether a reducer's settings are those of the request.
  bool ofRequest(const Operation &reduce) {
    return llvm::all_of(llvm::ArrayRef<const char *>{"temperature", "top_k", "top_p", "min_p"}, [&](const char *name) {
      const Value v = operandNamed(reduce, name);
      const auto it = v ? settingOf.find(v.id) : settingOf.end();
      return it != settingOf.end() && it->second == name;
    });
  }

  Code asked(const CallAsk &ask, const std::string &type) {
    const Operation &reduce = *ask.op;
    Code code("Ask<" + type + ">{");
    bool any = reduce.name == "argmax" && !ask.isBest();
    if (any)
      code.add(".settings = {.temperature = 0.0f}");
    const auto members = [&](std::initializer_list<std::pair<const char *, const char *>> list) {
      bool some = false;
      for (auto [operand, member] : list)
        if (const Value v = operandNamed(reduce, operand)) {
          code.add(some || any ? ", " : "").add(fmt::format(".{} = ", member)).add(use(v));
          some = true;
        }
      return some;
    };
    const auto named = [&](const char *name) { return bool(operandNamed(reduce, name)); };
    if (ofRequest(reduce)) {
      for (const char *name : {"temperature", "top_k", "top_p", "min_p"})
        use(operandNamed(reduce, name));
      code.add(".settings = t.sampling()");
      any = true;
    } else if (named("temperature") || named("top_k") || named("top_p") || named("min_p")) {
      code.add(".settings = {");
      members({{"temperature", "temperature"}, {"top_k", "topK"}, {"top_p", "topP"}, {"min_p", "minP"}});
      code.add("}");
      any = true;
    }
    for (auto one : {"noise", "ahead", "first", "last"})
      any |= members({{one, one}});
    code.add("}");
    if (const Value tokens = operandNamed(reduce, "tokens"))
      code.add(".of(").add(use(tokens)).add(")");
    return code;
  }

  void go(const Operation &op) {
    const std::vector<std::string> &to = op.get<attr::to>();
    Code code("t.goTo(");
    for (size_t i = 0; i < op.operands.size(); ++i)
      code.add(i == 0 ? use(op.operands[i]) : useGuarded(op.operands[i]), OrLevel)
          .add(fmt::format(" ? {} : ", layout.stateName(to[i])));
    effect(op, code.add(layout.stateName(to.back()) + ")"));
  }

  void branch(const Operation &op) {
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

  /// `for (int i = 0; i < n && !t.fault; ++i)`
  void repeat(const Operation &op) {
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

  const Module &module;
  const ControlLayout &layout;
  const Region &part;
  mutable const Operation *around = nullptr; ///< of outlivesField
  std::vector<unsigned> uses;
  const Intervals intervals;
  std::map<uint32_t, int64_t> constants;     ///< of i32
  std::map<uint32_t, std::string> settingOf; ///< the request's settings: which one
  std::map<uint32_t, Pending> values;
  Locals locals = Locals::ofStage();
  std::vector<Statement> *statements = nullptr;
};

} // namespace
>>>>>>> 426f00d (WIP named results in the kernel)

std::vector<Statement> partStatements(const Module &module, const ControlLayout &layout, const Region &region,
                                      int64_t &scratch) {
  BodyBuilder builder(module, layout, region);
  std::vector<Statement> statements = builder.run();
  scratch = builder.scratchWords;
  return statements;
}

} // namespace megalith::emit
