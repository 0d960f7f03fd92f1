#include "ControlBody.h"
#include "Names.h"
#include "Numbers.h"
#include "megalith/IR/Calls.h"
#include "megalith/IR/Effects.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include <fmt/format.h>

namespace megalith::emit {

using namespace ir;

namespace {

/// A value that has no statement of its own yet, or the variable it has.
struct Pending {
  Code expression;
  bool free = false; ///< as short as a variable: written out at every use
  unsigned uses = 0; ///< not yet emitted
  bool variable = false;
  std::string name; ///< hint for the variable
  Type type;
  SourceLoc loc;
};

/// Longer expressions get a variable where one has a name.
constexpr size_t longExpression = 70;

class BodyBuilder {
public:
  BodyBuilder(const Module &module, const ControlLayout &layout, const Region &part)
      : module(module), layout(layout), part(part), uses(countUses(module, part)), intervals(module, part) {}

  std::vector<Statement> run() {
    std::vector<Statement> out;
    statements = &out;
    for (const Operation &op : part.ops)
      emit(op);
    return out;
  }

private:
  // --- values
  void define(const Operation &op, Code e, bool free = false) {
    const Value v = op.result();
    Pending p{std::move(e), free, uses[v.id], false, module.hint(v).str(), module.type(v), op.loc};
    if (p.name.empty())
      p.name = fallbackName(op.op);
    const bool isLong = !free && p.expression.size() > longExpression && !module.hint(v).empty();
    if (p.uses == 0) {
      if (p.expression.mayFault)
        add(p.expression, op.loc);
    } else {
      const bool keep = free || p.uses == 1;
      values[v.id] = std::move(p);
      if (!keep || isLong)
        makeVariable(v.id);
    }
  }

  /// The expression of an operand, for an operation that is about to be emitted.
  Code use(Value v) {
    auto it = values.find(v.id);
    assert(it != values.end() && "the verifier checked definition before use");
    assert(it->second.uses > 0);
    --it->second.uses;
    return it->second.expression;
  }

  void makeVariable(uint32_t id) {
    Pending &p = values[id];
    const std::string name = locals.variable(p.name);
    // Views keep reading what they show; tokens already there do not change.
    Resources reads;
    if (p.type.kind == Type::Seq) {
      reads = p.expression.reads;
      reads.erase("tokens");
    }
    add(Code(fmt::format("const {} {} = ", typeText(p.type), name)).add(p.expression), p.loc);
    setVariable(p, name, std::move(reads));
  }

  static void setVariable(Pending &p, llvm::StringRef name, Resources reads) {
    p.expression = Code(name, Primary, std::move(reads));
    p.free = p.variable = true;
  }

  /// Gives variables to what would not survive `writes`; with `faults`, also to
  /// what may fault, which must happen before any effect or branch.
  void settle(const Resources &writes) {
    for (auto &[id, p] : values)
      if (!p.variable && p.uses > 0 && (p.expression.mayFault || meet(p.expression.reads, writes)))
        makeVariable(id);
  }

  /// Whether a sequence read from a field is still looked at after the field changes.
  bool outlivesField(const Operation &get) const {
    std::map<uint32_t, unsigned> views = {{get.result().id, 0}};
    unsigned position = 0, written = 0;
    bool seen = false, late = false;
    walk(part, [&](const Operation &op) {
      ++position;
      if (&op == &get)
        seen = true;
      if (!seen)
        return;
      for (Value v : op.operands)
        if (views.count(v.id)) {
          late |= written != 0;
          for (Value result : op.results)
            if (module.type(result).kind == Type::Seq)
              views[result.id] = position;
        }
      if (op.op == Op::FieldSet && op.name == get.name)
        written = position;
    });
    return late;
  }

  static const char *fallbackName(Op op) {
    switch (op) {
    case Op::Tokens:
      return "tokens";
    case Op::Budget:
      return "budget";
    case Op::Finished:
      return "finished";
    case Op::Results:
      return "results";
    case Op::SeqLen:
      return "length";
    case Op::SeqAt:
      return "token";
    case Op::SeqSlice:
    case Op::SeqConcat:
    case Op::SeqMake:
      return "sequence";
    case Op::NgramLookup:
      return "found";
    case Op::PrefixWhile:
    case Op::Count:
    case Op::Append:
      return "count";
    case Op::KvLen:
      return "kvLen";
    case Op::KvLag:
      return "lag";
    case Op::Ratio:
      return "rate";
    case Op::Select:
      return "chosen";
    default:
      return "value";
    }
  }

  static std::string typeText(const Type &type) {
    if (type.kind == Type::Seq)
      return "auto";
    switch (type.elem) {
    case Scalar::F32:
      return "float";
    case Scalar::Bool:
      return "bool";
    case Scalar::I64:
      return "long long";
    case Scalar::U32:
      return "unsigned";
    default:
      return "int";
    }
  }

  // --- expressions
  std::string ofPool(const Operation &op) const { return layout.poolArgument(op.name); }
  bool isF32(Value v) const { return module.type(v).is(Scalar::F32); }

  /// An operand that C++ would evaluate only sometimes.
  Code useGuarded(Value v) {
    if (values[v.id].expression.mayFault)
      makeVariable(v.id);
    return use(v);
  }

  Code call(llvm::StringRef function, llvm::ArrayRef<Value> operands) {
    Code code((function + "(").str());
    for (size_t i = 0; i < operands.size(); ++i)
      code.add(i ? ", " : "").add(use(operands[i]));
    return code.add(")");
  }

  /// A function that takes the line of its caller: it may raise a fault.
  Code callWithLine(llvm::StringRef function, const Operation &op) {
    Code code((function + "(").str());
    for (size_t i = 0; i < op.operands.size(); ++i)
      code.add(i ? ", " : "").add(use(op.operands[i]));
    return code.addLine(op.loc.line).add(")");
  }

  Code infix(const Operation &op, const char *symbol, Precedence precedence, bool guarded = false) {
    const Code a = use(op.operands[0]);
    const Code b = guarded ? useGuarded(op.operands[1]) : use(op.operands[1]);
    return Code("", precedence).add(a, precedence).add(fmt::format(" {} ", symbol)).add(b, Precedence(precedence + 1));
  }

  Code arithmetic(const Operation &op, const char *rounded, const char *symbol, const char *wrapping,
                  Precedence precedence) {
    if (isF32(op.operands[0]))
      return call(rounded, op.operands);
    return intervals.fits(op) ? infix(op, symbol, precedence) : call(wrapping, op.operands);
  }

  Code unary(const Operation &op, const char *symbol) { return Code(symbol, Unary).add(use(op.operands[0]), Primary); }

  void constant(const Operation &op) {
    const Type &type = module.type(op.result());
    const Number value = op.get<attr::value>();
    if (type.is(Scalar::F32))
      return define(op, Code::constant(value.real()), true);
    if (type.is(Scalar::Bool))
      return define(op, Code(value.truth() ? "true" : "false"), true);
    constants[op.result().id] = value.whole();
    define(op, Code::constant(static_cast<int32_t>(value.whole())), true);
  }

  Code division(const Operation &op, const char *symbol, const char *function) {
    // A constant divisor above 0 needs no check.
    const auto divisor = constants.find(op.operands[1].id);
    return divisor != constants.end() && divisor->second > 0 ? infix(op, symbol, Product) : call(function, op.operands);
  }

  Code select(const Operation &op) {
    if (module.type(op.result()).kind == Type::Seq) // of two types of C++
      return call("t.either", op.operands);
    const Code b = useGuarded(op.operands[1]), c = useGuarded(op.operands[2]);
    const Code a = use(op.operands[0]);
    return Code("", Ternary).add(a, OrLevel).add(" ? ").add(b, OrLevel).add(" : ").add(c);
  }

  void cast(const Operation &op) {
    const Value from = op.operands[0];
    if (isF32(op.result()) && !isF32(from))
      return define(op, call("float", from));
    if (module.type(from).is(Scalar::Bool) && !module.type(op.result()).is(Scalar::Bool))
      return define(op, call("int", from));
    const bool free = values[from.id].free;
    define(op, use(from), free);
  }

  Code lookup(const Operation &op) {
    const int64_t capacity = module.type(op.result()).size;
    Code code = call(fmt::format("t.ngramLookup<{}, {}>", op.get<attr::ngram>(),
                                 capacity > 0 ? std::to_string(capacity) : "0x7fffffff"),
                     op.operands);
    code.reads.merge(readsOf(op));
    return code;
  }

  Code elementAt(const Operation &op) {
    Code code("t.at(");
    code.add(use(op.operands[0])).add(", ").add(use(op.operands[1])).addLine(op.loc.line).add(")");
    code.mayFault = true;
    return code;
  }

  /// `prefixWhile(t, n, [&](int i) { return ...; })`
  Code loop(const Operation &op, const char *name) {
    // What the test uses from outside is computed once, before it.
    walk(op.region(), [&](const Operation &inner) {
      for (Value v : inner.operands)
        if (auto it = values.find(v.id); it != values.end() && !it->second.free)
          makeVariable(v.id);
    });
    const Code count = use(op.operands[0]);
    const Value index = op.region().args[0];
    const std::string indexName = locals.variable(module.hint(index), "i");
    Pending &p = values[index.id] = {Code(), true, uses[index.id], true, indexName, module.type(index), op.loc};
    setVariable(p, indexName, {});

    std::vector<Statement> body;
    std::vector<Statement> *outer = statements;
    statements = &body;
    Code test;
    bool inTurn = false;
    for (const Operation &inner : op.region().ops) {
      inTurn |= inner.op == Op::NgramLookup || inner.op == Op::PrefixWhile || inner.op == Op::Count;
      if (inner.op == Op::Yield)
        test = use(inner.operands[0]);
      else
        emit(inner);
    }
    statements = outer;
    Code code(fmt::format("t.{}{}(", name, inTurn ? "InTurn" : ""));
    code.add(count).add(fmt::format(", [&](int {}) {{ ", indexName));
    for (const Statement &s : body)
      code.add(s.code).add("; ");
    return code.add("return ").add(test).add("; })");
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
      if (module.type(op.result()).kind == Type::Seq && outlivesField(op))
        return define(op, Code("t.hold(").add(field).add(")"));
      return define(op, field, true);
    }
    case Op::InputGet:
      if (module.type(op.result()).kind != Type::Seq)
        return define(op, Code("t.r.inputs." + layout.names.inputs.at(op.name)), true);
      return define(op, Code("t.input(t.r.inputs." + layout.names.inputs.at(op.name) + ")"));
    case Op::Cast:
      return cast(op);
    case Op::Sampling:
      sampled[op.result().id] = op.get<attr::of>();
      return define(op, expression(op), true);
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
      return infix(op, "==", Equality);
    case Op::Ne:
      return infix(op, "!=", Equality);
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
      return call("t.list", op.operands);
    case Op::NgramLookup:
      return lookup(op);
    case Op::PrefixWhile:
      return loop(op, "prefixWhile");
    case Op::Count:
      return loop(op, "countIf");
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
    return Code(fmt::format("t.results<calls::{}::{}>()", layout.names.sites.at(site.site),
                            site.asks[op.get<attr::index>()].name));
  }

  // --- statements
  void add(Code code, SourceLoc loc) { statements->push_back({std::move(code), loc, false, {}, {}}); }

  void effect(const Operation &op, Code code) {
    settle(writesOf(op));
    add(std::move(code), op.loc);
  }

  /// `function(what, operand)`
  void effect(const Operation &op, llvm::StringRef function, const Code &what) {
    effect(op, Code((function + "(").str()).add(what).add(", ").add(use(op.operands[0])).add(")"));
  }

  void emit(const Operation &op) {
    switch (op.op) {
    case Op::FieldSet:
      return effect(op, "t.set", Code::field(layout.names.fields.at(op.name), {}));
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
    case Op::Goto:
      return go(op);
    case Op::If:
      return branch(op);
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
    if (parents || visible)
      code.add(callWithLine(parents ? "t.onTree" : "t.seeing", op));
    else
      code.add(use(op.operands[0]));
    for (const CallAsk &ask : site.asks)
      code.add(", ").add(asked(*ask.op, type + "::" + ask.name));
    effect(op, code.add(")"));
  }

  /// Whether a reducer's settings are those of the request.
  bool ofRequest(const Operation &reduce) {
    return llvm::all_of(llvm::ArrayRef<const char *>{"temperature", "top_k", "top_p", "min_p"}, [&](const char *name) {
      const Value v = operandNamed(reduce, name);
      const auto it = v ? sampled.find(v.id) : sampled.end();
      return it != sampled.end() && it->second == name;
    });
  }

  Code asked(const Operation &reduce, const std::string &type) {
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

  const Module &module;
  const ControlLayout &layout;
  const Region &part;
  std::vector<unsigned> uses;
  const Intervals intervals;
  std::map<uint32_t, int64_t> constants; ///< of i32
  std::map<uint32_t, std::string> sampled;   ///< the request's settings: which one
  std::map<uint32_t, Pending> values;
  Locals locals = Locals::ofStage();
  std::vector<Statement> *statements = nullptr;
};

} // namespace

std::vector<Statement> partStatements(const Module &module, const ControlLayout &layout, const Region &region) {
  return BodyBuilder(module, layout, region).run();
}

} // namespace megalith::emit
