#include "ControlBody.h"
#include "Names.h"
#include "Numbers.h"
#include "megalith/IR/Effects.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include <fmt/format.h>

namespace megalith::emit {

using namespace ir;

namespace {

/// C++ precedence, greatest binds tightest.
enum Precedence { Ternary = 3, OrLevel = 4, AndLevel = 5, Equality = 9, Relation = 10, Sum = 12, Product = 13,
                  Unary = 14, Primary = 15 };

struct Expression {
  std::string text;
  int precedence = Primary;
  Resources reads;         ///< of the request
  bool mayFault = false;   ///< must be evaluated exactly where the IR does
  bool wholeWarp = false;  ///< the lanes work together: not inside one lane's code
  bool free = false;       ///< as short as a variable: written out at every use
};

/// A value that has no statement of its own yet, or the variable it has.
struct Pending {
  Expression expression;
  unsigned uses = 0; ///< not yet emitted
  bool variable = false;
  std::string name;  ///< hint for the variable
  Type type;
  SourceLoc loc;
};

/// Longer expressions get a variable where one has a name.
constexpr size_t longExpression = 70;

// A call that may fault takes the line of its statement, which `#line` gives it. Where an operation of another line
// is written out, the number stands there. Which one a statement has is known last: until then this mark does.
constexpr char MarkBegin = '\x01', MarkEnd = '\x02';

std::string lineMark(SourceLoc loc) { return fmt::format("{}{}{}", MarkBegin, loc.line, MarkEnd); }

/// The text with `, LINE` for each mark of another line than `line`; with nothing when that is null.
std::string withoutMarks(llvm::StringRef text, const uint32_t *line) {
  std::string out;
  while (!text.empty()) {
    auto [before, rest] = text.split(MarkBegin);
    auto [number, behind] = rest.split(MarkEnd);
    out += before;
    if (line && !number.empty() && number != std::to_string(*line))
      out += (", " + number).str();
    text = behind;
  }
  return out;
}

void resolveMarks(std::vector<Statement> &statements) {
  for (Statement &s : statements) {
    s.text = withoutMarks(s.text, &s.loc.line);
    resolveMarks(s.body);
    resolveMarks(s.otherwise);
  }
}

class BodyBuilder {
public:
  BodyBuilder(const Module &module, const ControlLayout &layout, const Region &part)
      : module(module), layout(layout), part(part), uses(countUses(module, part)), intervals(module, part) {}

  std::vector<Statement> run() {
    std::vector<Statement> out;
    statements = &out;
    for (const Operation &op : part.ops)
      emit(op);
    resolveMarks(out);
    return out;
  }

private:
  // --- values
  void define(const Operation &op, Expression e) {
    const Value v = op.result();
    Pending p{std::move(e), uses[v.id], false, module.hint(v).str(), module.type(v), op.loc};
    if (p.name.empty())
      p.name = fallbackName(op.op);
    const bool keep = p.expression.free || p.uses == 1;
    const bool isLong = !p.expression.free && withoutMarks(p.expression.text, nullptr).size() > longExpression &&
                        !module.hint(v).empty();
    values[v.id] = std::move(p);
    if (values[v.id].uses == 0) {
      if (values[v.id].expression.mayFault)
        add(values[v.id].expression.text + ";", op.loc);
      return;
    }
    if (!keep || isLong)
      makeVariable(v.id);
  }

  /// The expression of an operand, for an operation that is about to be emitted.
  Expression use(Value v) {
    auto it = values.find(v.id);
    assert(it != values.end() && "the verifier checked definition before use");
    assert(it->second.uses > 0);
    --it->second.uses;
    return it->second.expression;
  }

  void makeVariable(uint32_t id) {
    Pending &p = values[id];
    const std::string name = locals.claim(cppName(p.name));
    add(fmt::format("const {} {} = {};", typeText(p.type), name, p.expression.text), p.loc);
    // Views keep reading what they show; tokens already there do not change.
    Resources reads;
    if (p.type.kind == Type::Seq) {
      reads = p.expression.reads;
      reads.erase("tokens");
    }
    p.expression = {name, Primary, reads, false, false, true};
    p.variable = true;
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
    case Op::Tokens: return "tokens";
    case Op::Budget: return "budget";
    case Op::Finished: return "finished";
    case Op::Results: return "results";
    case Op::SeqLen: return "length";
    case Op::SeqAt: return "token";
    case Op::SeqSlice:
    case Op::SeqConcat:
    case Op::SeqMake: return "sequence";
    case Op::NgramLookup: return "found";
    case Op::PrefixWhile:
    case Op::Count:
    case Op::Append: return "count";
    case Op::KvLen: return "kvLen";
    case Op::KvLag: return "lag";
    case Op::Ratio: return "rate";
    case Op::Select: return "chosen";
    default: return "value";
    }
  }

  static std::string typeText(const Type &type) {
    if (type.kind == Type::Seq)
      return "auto";
    switch (type.elem) {
    case Scalar::F32: return "float";
    case Scalar::Bool: return "bool";
    case Scalar::I64: return "long long";
    case Scalar::U32: return "unsigned";
    default: return "int";
    }
  }

  // --- expressions
  static std::string atLeast(const Expression &e, int precedence) {
    return e.precedence < precedence ? "(" + e.text + ")" : e.text;
  }

  /// Joins what operands read and can do into a new expression.
  static Expression joined(std::string text, int precedence, llvm::ArrayRef<Expression> from) {
    Expression e{std::move(text), precedence, {}, false, false, false};
    for (const Expression &f : from) {
      e.reads.insert(f.reads.begin(), f.reads.end());
      e.mayFault |= f.mayFault;
      e.wholeWarp |= f.wholeWarp;
    }
    return e;
  }

  bool isF32(Value v) const { return module.type(v).is(Scalar::F32); }

  /// An operand that C++ would evaluate only sometimes.
  Expression useGuarded(Value v) {
    Pending &p = values[v.id];
    if (p.expression.mayFault)
      makeVariable(v.id);
    return use(v);
  }

  Expression call(llvm::StringRef function, llvm::ArrayRef<Value> operands) {
    llvm::SmallVector<Expression, 3> args;
    std::string text = function.str() + "(";
    for (Value v : operands) {
      args.push_back(use(v));
      text += (args.size() > 1 ? ", " : "") + args.back().text;
    }
    return joined(text + ")", Primary, args);
  }

  Expression infix(const Operation &op, const char *symbol, int precedence, bool guarded = false) {
    const Expression a = use(op.operands[0]);
    const Expression b = guarded ? useGuarded(op.operands[1]) : use(op.operands[1]);
    return joined(fmt::format("{} {} {}", atLeast(a, precedence), symbol, atLeast(b, precedence + 1)),
                  precedence, {a, b});
  }

  Expression arithmetic(const Operation &op, const char *rounded, const char *symbol, const char *wrapping, int precedence) {
    if (isF32(op.operands[0]))
      return call(rounded, op.operands);
    return intervals.fits(op) ? infix(op, symbol, precedence) : call(wrapping, op.operands);
  }

  Expression constant(const Operation &op) {
    Expression e;
    e.free = true;
    const Type &type = module.type(op.result());
    if (type.is(Scalar::F32)) {
      e.text = floatLiteral(op.get<attr::value>().real());
    } else if (type.is(Scalar::Bool)) {
      e.text = op.get<attr::value>().truth() ? "true" : "false";
    } else {
      e.text = intLiteral(static_cast<int32_t>(op.get<attr::value>().whole()));
      constants[op.result().id] = op.get<attr::value>().whole();
    }
    if (e.text[0] == '-')
      e.precedence = Unary;
    return e;
  }

  Expression member(std::string text, Resources reads, bool free = true) const {
    return {std::move(text), Primary, std::move(reads), false, false, free};
  }

  Expression division(const Operation &op, const char *symbol, const char *function) {
    // A constant divisor above 0 needs no check.
    const auto divisor = constants.find(op.operands[1].id);
    return divisor != constants.end() && divisor->second > 0 ? infix(op, symbol, Product) : call(function, op.operands);
  }

  Expression lookup(const Operation &op) {
    const int64_t capacity = module.type(op.result()).size;
    Expression e = call(fmt::format("t.ngramLookup<{}, {}>", op.get<attr::ngram>(),
                                    capacity > 0 ? std::to_string(capacity) : "0x7fffffff"),
                        op.operands);
    e.reads.merge(readsOf(op));
    e.wholeWarp = true;
    return e;
  }

  /// `prefixWhile(t, n, [&](int i) { return ...; })`
  Expression loop(const Operation &op, const char *name) {
    // What the test uses from outside is computed once, before it.
    walk(op.region(), [&](const Operation &inner) {
      for (Value v : inner.operands)
        if (auto it = values.find(v.id); it != values.end() && !it->second.expression.free)
          makeVariable(v.id);
    });
    const Expression count = use(op.operands[0]);
    const Value index = op.region().args[0];
    const std::string indexName = locals.claim(cppName(module.hint(index).empty() ? "i" : module.hint(index).str()));
    values[index.id] = {member(indexName, {}), uses[index.id], true, indexName, module.type(index), op.loc};

    std::vector<Statement> body;
    std::vector<Statement> *outer = statements;
    statements = &body;
    Expression test;
    bool inTurn = false;
    for (const Operation &inner : op.region().ops) {
      inTurn |= inner.op == Op::NgramLookup || inner.op == Op::PrefixWhile || inner.op == Op::Count;
      if (inner.op == Op::Yield)
        test = use(inner.operands[0]);
      else
        emit(inner);
    }
    statements = outer;
    std::string text = "[&](int " + indexName + ") { ";
    for (const Statement &s : body)
      text += s.text + " ";
    text += "return " + test.text + "; }";
    Expression e = joined(inTurn ? fmt::format("t.{}InTurn({}, {})", name, count.text, text)
                                 : fmt::format("t.{}({}, {})", name, count.text, text),
                          Primary, {count, test});
    e.wholeWarp = true;
    return e;
  }

  Expression expression(const Operation &op) {
    switch (op.op) {
    case Op::Const: return constant(op);
    case Op::Add: return arithmetic(op, "__fadd_rn", "+", "t.wrapAdd", Sum);
    case Op::Sub: return arithmetic(op, "__fsub_rn", "-", "t.wrapSub", Sum);
    case Op::Mul: return arithmetic(op, "__fmul_rn", "*", "t.wrapMul", Product);
    case Op::Div: return isF32(op.operands[0]) ? call("__fdiv_rn", op.operands) : division(op, "/", "t.divide");
    case Op::Mod: return division(op, "%", "t.modulo");
    case Op::Min: return call("t.min", op.operands);
    case Op::Max: return call("t.max", op.operands);
    case Op::Eq: return infix(op, "==", Equality);
    case Op::Ne: return infix(op, "!=", Equality);
    case Op::Lt: return infix(op, "<", Relation);
    case Op::Le: return infix(op, "<=", Relation);
    case Op::Gt: return infix(op, ">", Relation);
    case Op::Ge: return infix(op, ">=", Relation);
    case Op::And: return infix(op, "&&", AndLevel, true);
    case Op::Or: return infix(op, "||", OrLevel, true);
    case Op::Not:
    case Op::Neg: {
      if (op.op == Op::Neg && !isF32(op.operands[0]) && !intervals.fits(op))
        return call("t.wrapNeg", op.operands);
      const Expression a = use(op.operands[0]);
      return joined((op.op == Op::Not ? "!" : "-") + atLeast(a, Primary), Unary, {a});
    }
    case Op::Select: {
      if (module.type(op.result()).kind == Type::Seq) // of two types of C++
        return call("t.either", op.operands);
      const Expression b = useGuarded(op.operands[1]), c = useGuarded(op.operands[2]);
      const Expression a = use(op.operands[0]);
      return joined(fmt::format("{} ? {} : {}", atLeast(a, OrLevel), atLeast(b, OrLevel), c.text), Ternary,
                    {a, b, c});
    }
    case Op::Cast:
      if (isF32(op.result()) && !isF32(op.operands[0]))
        return call("float", op.operands);
      if (module.type(op.operands[0]).is(Scalar::Bool) && !module.type(op.result()).is(Scalar::Bool))
        return call("int", op.operands);
      return use(op.operands[0]);
    case Op::Ratio: return call("t.ratio", op.operands);
    case Op::Tokens: return member("t.tokens()", readsOf(op), false);
    case Op::Budget: return member("t.budget()", readsOf(op), false);
    case Op::Finished: return member("t.finished()", readsOf(op), false);
    case Op::PromptLen: return member("t.promptLen()", {});
    case Op::Priority: return member("t.priority()", {});
    case Op::FieldGet: {
      const RequestField &field = layout.field(op.name);
      if (field.type.kind == Type::Seq && outlivesField(op))
        return member(fmt::format("t.hold(r.{})", field.name), readsOf(op), false);
      return member("r." + field.name, readsOf(op));
    }
    case Op::SeqLen: {
      const Expression s = use(op.operands[0]);
      return joined(atLeast(s, Primary) + ".size()", Primary, {s});
    }
    case Op::SeqAt: {
      Expression e = call("t.at", op.operands);
      e.text.insert(e.text.size() - 1, lineMark(op.loc));
      e.mayFault = true;
      return e;
    }
    case Op::SeqSlice: return call("t.slice", op.operands);
    case Op::SeqConcat: return call("t.concat", op.operands);
    case Op::SeqMake: return call("t.list", op.operands);
    case Op::NgramLookup: return lookup(op);
    case Op::PrefixWhile: return loop(op, "prefixWhile");
    case Op::Count: return loop(op, "countIf");
    case Op::KvLen: return member("t.kvLen()", readsOf(op));
    case Op::KvLag: return member("t.kvLag()", readsOf(op), false);
    case Op::KvLive: return member("t.livePages()", {}, false);
    case Op::KvPages: return member("Config::pages", {});
    case Op::KvPressure: return member("t.pressure()", {}, false);
    case Op::Results: return member("t.results()", {}, false);
    default:
      assert(false && "the verifier checked that this stands in control code");
      return {};
    }
  }

  // --- statements
  void add(std::string text, SourceLoc loc) { statements->push_back({std::move(text), loc, false, {}, {}}); }

  void effect(const Operation &op, const std::string &text) {
    settle(writesOf(op));
    add(text + ";", op.loc);
  }

  void emit(const Operation &op) {
    switch (op.op) {
    case Op::FieldSet:
      return effect(op, fmt::format("t.set(r.{}, {})", layout.field(op.name).name, use(op.operands[0]).text));
    case Op::KvKeep:
      return effect(op, call("t.keepKv", op.operands).text);
    case Op::CountAdd:
      return effect(op, fmt::format("t.count(Metric::{}, {})", layout.metricNames.at(op.name), use(op.operands[0]).text));
    case Op::Trace:
      return effect(op, fmt::format("t.trace(Gauge::{}, {})", layout.gaugeNames.at(op.name), use(op.operands[0]).text));
    case Op::Append:
      return append(op);
    case Op::Issue: {
      const CallSite &site = layout.sites[op.get<attr::site>()];
      return effect(op, fmt::format("t.issue<calls::{}>({})", site.name, use(op.operands[0]).text));
    }
    case Op::Goto:
      return go(op);
    case Op::If:
      return branch(op);
    default:
      define(op, expression(op));
    }
  }

  void append(const Operation &op) {
    const Value v = op.result();
    const std::string text = call("t.append", op.operands).text;
    settle(writesOf(op));
    if (uses[v.id] == 0)
      return add(text + ";", op.loc);
    const std::string name = locals.claim(cppName(module.hint(v).empty() ? "appended" : module.hint(v).str()));
    add(fmt::format("const int {} = {};", name, text), op.loc);
    values[v.id] = {member(name, {}), uses[v.id], true, name, module.type(v), op.loc};
  }

  void go(const Operation &op) {
    const std::vector<std::string> to = op.get<attr::to>();
    std::string text;
    for (size_t i = 0; i < op.operands.size(); ++i) {
      const Expression condition = i == 0 ? use(op.operands[i]) : useGuarded(op.operands[i]);
      text += fmt::format("{} ? {} : ", atLeast(condition, OrLevel), layout.stateName(to[i]));
    }
    effect(op, fmt::format("t.goTo({}{})", text, layout.stateName(to.back())));
  }

  void branch(const Operation &op) {
    const Expression condition = use(op.operands[0]);
    settle(writesBelow(op));
    Statement s{"if (" + condition.text + ")", op.loc, true, {}, {}};
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
  std::map<uint32_t, Pending> values;
  NameSet locals{"t", "r"}; ///< beside the turn and its request's fields
  std::vector<Statement> *statements = nullptr;
};

} // namespace

std::vector<Statement> partStatements(const Module &module, const ControlLayout &layout, const Region &region) {
  return BodyBuilder(module, layout, region).run();
}

} // namespace megalith::emit
