#include "Verifier.h"
#include "megalith/IR/Calls.h"
#include "megalith/IR/Reducers.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>
#include <cmath>
#include <map>

namespace megalith::ir {

static const Type i32 = Type::scalar(Scalar::I32);
static const Type boolean = Type::scalar(Scalar::Bool);

static std::optional<Scalar> scalarNamed(llvm::StringRef name) {
  for (Scalar s : {Scalar::I32, Scalar::F32, Scalar::Bool, Scalar::Token})
    if (scalarName(s) == name)
      return s;
  return std::nullopt;
}

std::optional<Type> declaredType(const Operation &declaration) {
  std::optional<Scalar> s = scalarNamed(declaration.get<attr::type>());
  if (!s)
    return std::nullopt;
  if (!declaration.has<attr::capacity>())
    return Type::scalar(*s);
  const int64_t capacity = declaration.get<attr::capacity>();
  if (declaration.op == Op::Field && declaration.has<attr::rows>())
    return Type::table(declaration.get<attr::rows>(), capacity, *s);
  // A longer one is a view: no value keeps it.
  return Type::seq(capacity > mostCapacity ? 0 : capacity, *s);
}

static bool isNumber(Type t) { return t.is(Scalar::I32) || t.is(Scalar::F32); }

/// A value of this type; a bool is a flag, 0 or 1.
static bool holds(Number value, Scalar type) {
  if (value.isReal())
    return type == Scalar::F32;
  if (value.isFlag())
    return type == Scalar::Bool;
  const int64_t i = value.whole();
  return type == Scalar::Bool    ? i == 0 || i == 1
         : type == Scalar::Token ? i >= 0 && i <= INT32_MAX
         : type == Scalar::I32   ? i >= INT32_MIN && i <= INT32_MAX
                                 : false;
}

/// A sequence or table of type `from` always fits into one of type `to`.
static bool fits(Type from, Type to) {
  return from.isList() && from.kind == to.kind && from.elem == to.elem && from.inner <= to.inner &&
         (to.size == 0 || (from.size != 0 && from.size <= to.size));
}

/// `from` may stand where `to` is wanted.
static bool storable(Type from, Type to) { return from == to || fits(from, to); }

/// Sequences or tables of the same elements, whatever their capacities.
static bool alike(Type a, Type b) { return a.isList() && a.kind == b.kind && a.elem == b.elem; }

static bool isControlScalar(Scalar s) {
  return s == Scalar::I32 || s == Scalar::F32 || s == Scalar::Bool || s == Scalar::Token;
}

bool Verifier::checkControlOp(const Operation &op) {
  if (isOverRange(op.op))
    return checkOver(op);
  if (hasTrait(op.op, Trait::Arithmetic))
    return checkArithmetic(op);
  switch (op.op) {
  case Op::Choose: {
    if (!operandIs(op, 0, boolean))
      return false;
    for (unsigned i : {0, 1}) {
      const auto type = yielded(op, i);
      if (!type || !op.region(i).args.empty())
        return type && fail(op, "a region of `choose` has no arguments");
      if (!storable(*type, module.type(op.result())))
        return fail(op, fmt::format("the result `{}` cannot hold `{}`", module.type(op.result()).str(), type->str()));
    }
    return true;
  }
  case Op::For:
    if (op.region().args.size() != 1 || op.region().args[0].id >= module.values.size() ||
        module.type(op.region().args[0]) != i32)
      return fail(op, "the region must have one argument of type `i32`");
    return operandIs(op, 0, i32) && operandIs(op, 1, i32);
  case Op::While:
    return yields(op, {boolean});

  case Op::Tokens:
    return resultIs(op, Type::seq(0));
  case Op::Sampling:
    return resultIs(op, op.get<attr::of>() == "top_k" ? i32 : f32);
  case Op::Uniform:
    return operandIs(op, 0, i32) && operandIs(op, 1, i32) && operandIs(op, 2, i32) && resultIs(op, f32);
  case Op::Finished:
    return resultIs(op, boolean);
  case Op::Budget:
  case Op::PromptLen:
  case Op::Priority:
  case Op::Seated:
  case Op::Host:
    return resultIs(op, i32);
  case Op::Order:
    return checkOrder(op);
  case Op::FieldGet:
  case Op::FieldSet: {
    if (!declared(op, Op::Field, op.name))
      return false;
    const Operation *field = module.find(Op::Field, op.name);
    std::optional<Type> type = declaredType(*field);
    if (!type)
      return checkDeclaration(*field);
    // A sequence that turns out to be longer than the field faults there.
    if (op.op == Op::FieldGet)
      return resultIs(op, *type);
    return (alike(operandType(op, 0), *type) && operandType(op, 0).size != 0) || operandIs(op, 0, *type);
  }

  case Op::InputGet: {
    if (!declared(op, Op::Input, op.name))
      return false;
    const Operation *input = module.find(Op::Input, op.name);
    std::optional<Type> type = declaredType(*input);
    return type ? resultIs(op, *type) : checkDeclaration(*input);
  }

  case Op::SeqLen:
  case Op::SeqAt:
  case Op::SeqSlice:
  case Op::SeqConcat:
  case Op::SeqMake:
  case Op::SeqConst:
  case Op::NgramLookup:
  case Op::Follow:
  case Op::Tree:
  case Op::Append:
    return checkSequenceOp(op);
  case Op::KvLen:
  case Op::KvLag:
  case Op::KvDrafts:
  case Op::KvLive:
  case Op::KvPages:
    return declared(op, Op::Pool, op.name) && resultIs(op, i32);
  case Op::KvPressure:
    return declared(op, Op::Pool, op.name) && resultIs(op, boolean);
  case Op::KvKeep:
    if (op.operands.empty() || op.operands.size() > 2)
      return fail(op, fmt::format("expected 1 or 2 operands, found {}", op.operands.size()));
    return declared(op, Op::Pool, op.name) && operandIs(op, 0, i32) && (op.operands.size() < 2 || isNumbers(op, 1));

  case Op::CountAdd:
    return declared(op, Op::Metric, op.name) && operandIs(op, 0, i32);
  case Op::Trace: {
    if (!declared(op, Op::Gauge, op.name))
      return false;
    const std::string &type = module.find(Op::Gauge, op.name)->get<attr::type>();
    std::string found = operandType(op, 0).str();
    return (operandType(op, 0).kind == Type::ScalarKind && type == found) ||
           fail(op, fmt::format("operand 0 must be a scalar of the gauge's type `{}`, found `{}`", type, found));
  }
  case Op::If:
    if (op.regions.size() != 1 && op.regions.size() != 2)
      return fail(op, fmt::format("expected 1 or 2 regions, found {}", op.regions.size()));
    return operandIs(op, 0, boolean);
  case Op::Goto:
    return checkGoto(op);
  case Op::Enter:
    return operandIs(op, 0, boolean);
  case Op::Yield:
    return true; // checked by the operation whose region it ends

  case Op::PolicyGet:
  case Op::PolicySet:
  case Op::PolicyRead:
  case Op::Observe:
  case Op::PolicyOutput:
    return checkPolicyOp(op);
  case Op::Call:
  case Op::Issue:
  case Op::Results:
  case Op::Pass:
    return checkCall(op);
  case Op::Reduce:
    return checkReduce(op);
  default:
    return checkDeclaration(op);
  }
}

/// Numbers of rows or positions. Sequences of tokens are such, too.
bool Verifier::isNumbers(const Operation &op, unsigned i) {
  const Type type = operandType(op, i);
  return (type.kind == Type::Seq && (type.elem == Scalar::I32 || type.elem == Scalar::Token)) ||
         fail(op, fmt::format("operand {} must be a sequence of numbers, found `{}`", i, type.str()));
}

bool Verifier::checkDeclaration(const Operation &op) {
  auto holdsType = [&](llvm::StringRef key, Number value) {
    const auto type = scalarNamed(op.get<attr::type>());
    return (type && holds(value, *type)) ||
           fail(op, fmt::format("`{}` must be a value of type `{}`", key.str(), op.get<attr::type>()));
  };
  switch (op.op) {
  case Op::Param:
    if (!op.has<attr::value>() && !op.has<attr::items>() && !op.has<attr::numbers>())
      return fail(op, "the attribute `value` of `param` is missing");
    return holdsType("value", op.has<attr::value>() || op.get<attr::type>() != "f32" ? op.get<attr::value>() : 0.0);
  case Op::Field:
  case Op::PolicyState:
    if (op.op == Op::Field && op.has<attr::rows>() && !op.has<attr::capacity>())
      return fail(op, "`rows` stand beside a `capacity`");
    if (op.op == Op::Field && op.has<attr::logits>() &&
        (op.get<attr::type>() != "token" || !op.has<attr::capacity>() || op.has<attr::rows>()))
      return fail(op, "`logits` stand beside a sequence of tokens");
    return !op.has<attr::init>() ||
           (holdsType("init", op.get<attr::init>()) &&
            (!op.has<attr::capacity>() || fail(op, "a sequence starts empty")) &&
            (std::isfinite(static_cast<float>(op.get<attr::init>().real())) || fail(op, "`init` must be finite")));
  case Op::Input:
    return checkInput(op);
  case Op::State:
    for (const std::string &next : op.get<attr::next>())
      if (!declared(op, Op::State, next))
        return false;
    return true;
  case Op::Pool:
    return (op.get<attr::pages>() <= limits::positions / op.get<attr::page_tokens>() ||
            fail(op, "a pool has 2^30 positions at most")) &&
           (!op.has<attr::reserve>() || op.get<attr::on_full>() == "wait" ||
            fail(op, "`reserve` is a number of tokens, of a pool with `on_full = \"wait\"`"));
  case Op::Stage:
    return declared(op, Op::State, op.get<attr::on>()) && checkAdmission(op, op.get<attr::on>());
  case Op::Tick:
    for (const Operation &part : op.region().ops)
      if (const Operation *end = part.op == Op::Part ? terminator(part) : nullptr; end && end->op == Op::Issue)
        if (llvm::none_of(op.region().ops, [&](const Operation &o) { return o.op == Op::Pass && o.name == end->name; }))
          return fail(*end, fmt::format("the tick has no `pass @{}`", end->name));
    return true;
  case Op::Part:
    if (!declared(op, Op::State, op.get<attr::state>()))
      return false;
    if (module.find(Op::State, op.get<attr::state>())->get<attr::slot>() != (op.get<attr::kind>() == "slot"))
      return fail(op, "a part is of the kind `slot` when its state has a slot, else `admit`");
    if (!checkAdmission(op, op.get<attr::state>()))
      return false;
    if (const Operation *end = terminator(op))
      if ((end->op == Op::Issue) != op.has<attr::before_site>() ||
          (end->op == Op::Issue && end->get<attr::site>() != op.get<attr::before_site>()))
        return fail(op, "a part has the `before_site` of the `issue` that ends it");
    return true;
  case Op::Weight: {
    const std::vector<int64_t> &shape = op.get<attr::shape>();
    if (shape.empty() || shape.size() > 2 || llvm::any_of(shape, [](int64_t d) { return d <= 0; }))
      return fail(op, "`shape` must be one or two positive sizes");
    if (llvm::any_of(shape, [](int64_t d) { return d > INT32_MAX; }))
      return fail(op, "a size of `shape` is 2147483647 at most");
    if (!op.has<attr::alias>())
      return (op.has<attr::from>() || fail(op, "the attribute `from` of `weight` is missing")) && checkView(op);
    if (op.has<attr::stored>() || op.has<attr::view>())
      return fail(op, "`stored` and `view` stand at the weight that has the storage");
    for (const Operation &w : model->region().ops)
      if (w.op == Op::Weight && w.name == op.get<attr::alias>() && w.get<attr::shape>() == shape &&
          !w.has<attr::alias>() && w.get<attr::layers>() == op.get<attr::layers>())
        return true;
    return fail(op, "`alias` must name a weight of the same shape");
  }
  default:
    return true;
  }
}

/// Only requests without slot wait in an order, and so many are looked at in a tick.
bool Verifier::checkAdmission(const Operation &op, const std::string &state) {
  const bool seats = !module.find(Op::State, state)->get<attr::slot>();
  if (op.has<attr::limit>() && !seats)
    return fail(op, "`limit` is of a state without slot");
  for (const Operation &inner : op.region().ops)
    if (inner.op == Op::Order && (!seats || &inner != &op.region().ops.front()))
      return fail(inner, seats ? "`order` stands in front of all else" : "`order` is of a state without slot");
  return true;
}

/// The keys are compared at any time while a request waits, of many requests at once.
bool Verifier::checkOrder(const Operation &op) {
  const Operation *yield = terminator(op);
  if (!yield || yield->op != Op::Yield || yield->operands.empty() || yield->operands.size() > 4)
    return fail(op, "`order` yields 1 to 4 keys");
  for (Value v : yield->operands)
    if (v.id < module.values.size() && module.type(v) != i32 && module.type(v) != f32)
      return fail(*yield, "a key is an `i32` or an `f32`");
  for (const Operation &inner : op.region().ops)
    switch (inner.op) {
    case Op::Host:
      if (inner.get<attr::of>() == "tick" || inner.get<attr::of>() == "now_ms")
        return fail(inner, "a key of `order` stays while the request waits");
      break;
    case Op::FieldGet:
    case Op::InputGet:
      if (module.type(inner.result()).isList())
        return fail(inner, "a key of `order` is made of numbers");
      break;
    default:
      if (inner.op != Op::Yield && !hasTrait(inner.op, Trait::Arithmetic | Trait::Steady))
        return fail(inner, "a key of `order` is made of numbers that stay while the request waits");
    }
  return true;
}

bool Verifier::checkInput(const Operation &op) {
  const Type type = *declaredType(op);
  const std::vector<int64_t> &items = op.get<attr::items>();
  const std::vector<double> &numbers = op.get<attr::numbers>();
  if ((op.has<attr::least>() || op.has<attr::most>()) && type != i32)
    return fail(op, "only an `i32` has `least` and `most`");
  if (op.get<attr::least>() > op.get<attr::most>())
    return fail(op, "`least` is above `most`");
  if (!op.has<attr::optional>())
    return (!op.has<attr::init>() && !op.has<attr::items>() && !op.has<attr::numbers>()) ||
           fail(op, "only what is `optional` has a default");
  if (type.kind == Type::Seq) {
    const bool real = type.elem == Scalar::F32;
    if (op.has<attr::init>() || !(real ? items.empty() : numbers.empty()) ||
        static_cast<int64_t>(items.size() + numbers.size()) > op.get<attr::capacity>())
      return fail(op, fmt::format("the default of a sequence is `{}`, no more than its `capacity`",
                                  real ? "numbers" : "items"));
    return (llvm::all_of(items, [&](int64_t item) { return holds(item, type.elem); }) &&
            llvm::all_of(numbers, [](double number) { return std::isfinite(static_cast<float>(number)); })) ||
           fail(op, fmt::format("the default must have values of type `{}`", op.get<attr::type>()));
  }
  const Number init = op.get<attr::init>();
  if (op.has<attr::items>() || op.has<attr::numbers>())
    return fail(op, "the default of a scalar is `init`");
  if (op.has<attr::init>() && !holds(init, type.elem))
    return fail(op, fmt::format("`init` must be a value of type `{}`", op.get<attr::type>()));
  if (type == i32 && (init.whole() < op.get<attr::least>() || init.whole() > op.get<attr::most>()))
    return fail(op, "the default lies outside `least` and `most`");
  return std::isfinite(static_cast<float>(init.real())) || fail(op, "`init` must be finite");
}

bool Verifier::checkArithmetic(const Operation &op) {
  Type result = module.type(op.result());
  auto operandsAre = [&](Type type) {
    for (unsigned i = 0; i < op.operands.size(); ++i)
      if (!operandIs(op, i, type))
        return false;
    return true;
  };
  switch (op.op) {
  case Op::Const: {
    if (result.kind != Type::ScalarKind)
      return fail(op, fmt::format("a constant is a scalar, found `{}`", result.str()));
    const Number value = op.get<attr::value>();
    bool isFloat = result.elem == Scalar::F32;
    if (!isNumber(result) && !result.is(Scalar::Bool) && !result.is(Scalar::Token))
      return fail(op, fmt::format("a constant is an i32, f32, bool or token, found `{}`", result.str()));
    if (isFloat ? !value.isReal() : value.isReal() || value.isFlag())
      return fail(op, fmt::format("a constant `{}` needs {} as `value`", result.str(),
                                  isFloat ? "a number with a point" : "an integer"));
    if (result.is(Scalar::Bool) && !holds(value, Scalar::Bool))
      return fail(op, "a constant `bool` is 0 or 1");
    // Folding can make an f32 that is no finite number.
    return isFloat || holds(value, result.elem) || fail(op, fmt::format("{} is no `{}`", value.whole(), result.str()));
  }
  case Op::Eq:
  case Op::Ne:
  case Op::Lt:
  case Op::Le:
  case Op::Gt:
  case Op::Ge:
    if (const Type a = operandType(op, 0); a.kind == Type::Seq && (op.op == Op::Eq || op.op == Op::Ne))
      return (alike(a, operandType(op, 1)) || operandIs(op, 1, a)) && resultIs(op, boolean);
    return (operandType(op, 0).kind == Type::ScalarKind || fail(op, "only scalars and sequences can be compared")) &&
           operandIs(op, 1, operandType(op, 0)) && resultIs(op, boolean);
  case Op::And:
  case Op::Or:
  case Op::Not:
    return operandsAre(boolean) && resultIs(op, boolean);
  case Op::Select:
    if (!operandIs(op, 0, boolean))
      return false;
    for (unsigned i : {1, 2})
      if (!storable(operandType(op, i), result))
        return operandIs(op, i, result);
    return true;
  case Op::Cast: {
    Type from = operandType(op, 0);
    auto pair = [&](Scalar a, Scalar b) { return from.is(a) && result.is(b); };
    return pair(Scalar::I32, Scalar::F32) || pair(Scalar::I32, Scalar::Token) || pair(Scalar::Token, Scalar::I32) ||
           pair(Scalar::Bool, Scalar::I32) || pair(Scalar::F32, Scalar::I32) ||
           fail(op, fmt::format("no cast from `{}` to `{}`", from.str(), result.str()));
  }
  case Op::Ratio:
    return operandIs(op, 0, i32) && operandIs(op, 1, i32) && resultIs(op, f32);
  case Op::Exp:
  case Op::Log:
  case Op::Pow:
  case Op::Sqrt:
    return operandsAre(f32) && resultIs(op, f32);
  default:
    if (op.op == Op::Mod && !operandsAre(i32))
      return false;
    return (isNumber(result) || fail(op, fmt::format("arithmetic is on numbers, found `{}`", result.str()))) &&
           operandsAre(result);
  }
}

bool Verifier::checkSequenceOp(const Operation &op) {
  Type result = module.type(op.result());
  auto isList = [&](unsigned i) {
    return (operandType(op, i).isList() && isControlScalar(operandType(op, i).elem)) ||
           fail(op, fmt::format("operand {} must be a sequence, found `{}`", i, operandType(op, i).str()));
  };
  auto isTokens = [&](unsigned i) {
    return operandType(op, i) == Type::seq(operandType(op, i).size) ||
           fail(op, fmt::format("operand {} must be a sequence of tokens, found `{}`", i, operandType(op, i).str()));
  };
  auto resultHolds = [&](Type from) {
    return fits(from, result) || fail(op, fmt::format("the result `{}` cannot hold `{}`", result.str(), from.str()));
  };
  switch (op.op) {
  case Op::SeqLen:
    return isList(0) && resultIs(op, i32);
  case Op::SeqAt:
    return isList(0) && operandIs(op, 1, i32) && resultIs(op, operandType(op, 0).item());
  // What is cut out may be known to be shorter than what it is cut from.
  case Op::SeqSlice: {
    if (!isList(0) || !operandIs(op, 1, i32) || !operandIs(op, 2, i32))
      return false;
    Type part = operandType(op, 0);
    part.size = result.size;
    return resultIs(op, part);
  }
  case Op::SeqConcat: {
    if (!isList(0) || !isList(1))
      return false;
    Type a = operandType(op, 0), b = operandType(op, 1);
    if (!alike(a, b))
      return operandIs(op, 1, a);
    Type both = a;
    both.size = a.size && b.size ? a.size + b.size : 0;
    both.inner = std::max(a.inner, b.inner);
    return resultHolds(both);
  }
  case Op::SeqMake:
    if (!result.isList() || !isControlScalar(result.elem) || result.size < static_cast<int64_t>(op.operands.size()))
      return fail(op, "the result must be a sequence with a place for every operand");
    for (unsigned i = 0; i < op.operands.size(); ++i)
      if (!storable(operandType(op, i), result.item()))
        return operandIs(op, i, result.item());
    return true;
  case Op::SeqConst: {
    const size_t count = result.elem == Scalar::F32 ? op.get<attr::numbers>().size() : op.get<attr::items>().size();
    if (result.kind != Type::Seq || !isControlScalar(result.elem) || count == 0 ||
        result.size != static_cast<int64_t>(count))
      return fail(op, "the result must be a sequence of as many elements");
    for (int64_t item : op.get<attr::items>())
      if (result.elem != Scalar::F32 && !holds(item, result.elem))
        return fail(op, fmt::format("{} is no `{}`", item, scalarName(result.elem).str()));
    return true;
  }
  case Op::NgramLookup: {
    const std::vector<std::string> &with = op.get<attr::with>();
    if (op.operands.size() != 2 + with.size())
      return fail(op, fmt::format("expected {} operands, found {}", 2 + with.size(), op.operands.size()));
    if (with.size() > 1 && with[0] == with[1])
      return fail(op, fmt::format("`with` names `{}` twice", with[0]));
    if (!isTokens(0) || !operandIs(op, 1, i32))
      return false;
    for (unsigned i = 0; i < with.size(); ++i)
      if (!(with[i] == "from" ? isTokens(2 + i) : operandIs(op, 2 + i, i32)))
        return false;
    if (result.kind == Type::Table)
      return result.elem == Scalar::Token || resultIs(op, Type::table(result.size, result.inner, Scalar::Token));
    return resultIs(op, Type::seq(result.size));
  }
  case Op::Follow:
    if (!isTokens(0) || !isTokens(2) || !operandIs(op, 3, i32))
      return false;
    if (operandType(op, 1) != Type::seq(operandType(op, 1).size, Scalar::I32))
      return operandIs(op, 1, Type::seq(operandType(op, 1).size, Scalar::I32));
    return result.size > 0 ? resultIs(op, Type::seq(result.size, Scalar::I32))
                           : fail(op, "the result must have a capacity");
  case Op::Tree: {
    const Type table = operandType(op, 1);
    if (!operandIs(op, 0, Type::scalar(Scalar::Token)))
      return false;
    if (table.kind != Type::Table || table.elem != Scalar::Token)
      return fail(op, fmt::format("operand 1 must be a table of tokens, found `{}`", table.str()));
    const int64_t most = 1 + table.size * table.inner;
    return (result == Type::seq(most) && module.type(op.result(1)) == Type::seq(most, Scalar::I32)) ||
           fail(op, fmt::format("the results must be `token<{0}>` and `i32<{0}>`", most));
  }
  default: // append
    if (op.operands.empty() || op.operands.size() > 2)
      return fail(op, fmt::format("expected 1 or 2 operands, found {}", op.operands.size()));
    return isTokens(0) && (op.operands.size() == 1 || isTokens(1)) && resultIs(op, i32);
  }
}

std::optional<Type> Verifier::yielded(const Operation &op, unsigned region) {
  const Operation *yield = terminator(op, region);
  if (!yield || yield->op != Op::Yield || yield->operands.size() != 1 ||
      yield->operands[0].id >= module.values.size()) {
    fail(op, fmt::format("`{}` must yield one value", mnemonic(op.op).str()));
    return std::nullopt;
  }
  return module.type(yield->operands[0]);
}

/// What goes through the numbers of a range: operands are its end, or begin and end; of `seq.top` then k.
bool Verifier::checkOver(const Operation &op) {
  const Type result = module.type(op.result());
  const size_t more = op.op == Op::SeqTop;
  if (op.operands.size() != 1 + more && op.operands.size() != 2 + more)
    return fail(op, fmt::format("expected {} or {} operands, found {}", 1 + more, 2 + more, op.operands.size()));
  for (unsigned i = 0; i < op.operands.size(); ++i)
    if (!operandIs(op, i, i32))
      return false;
  if (op.region().args.size() != 1 || op.region().args[0].id >= module.values.size() ||
      module.type(op.region().args[0]) != i32)
    return fail(op, "the region must have one argument of type `i32`");
  if (op.op == Op::PrefixWhile || op.op == Op::Count)
    return resultIs(op, i32) && yields(op, {boolean});
  const std::string &by = op.op == Op::Fold ? op.get<attr::by>() : "";
  if (by == "all" || by == "any" || by == "find")
    return resultIs(op, by == "find" ? i32 : boolean) && yields(op, {boolean});
  if (op.op == Op::SeqSort) {
    const Operation *yield = terminator(op);
    if (!yield || yield->op != Op::Yield || yield->operands.empty() || yield->operands.size() > 8)
      return fail(op, "`seq.sort` must yield 1 to 8 keys");
    for (Value v : yield->operands)
      if (v.id < module.values.size() && !isNumber(module.type(v)))
        return fail(op, fmt::format("a key is an i32 or f32, found `{}`", module.type(v).str()));
    return result.size > 0 ? resultIs(op, Type::seq(result.size, Scalar::I32))
                           : fail(op, "the result must have a capacity");
  }
  const auto type = yielded(op);
  if (!type)
    return false;
  if (op.op == Op::SeqMap) {
    const bool row = type->kind == Type::Seq;
    if (result.size < 1 || !isControlScalar(type->elem) || (row && type->size == 0))
      return fail(op, "the result must have a capacity");
    const Type made = row ? Type::table(result.size, result.inner, type->elem) : Type::seq(result.size, type->elem);
    return (type->kind == Type::ScalarKind || row) && result == made && (!row || type->size <= result.inner)
               ? true
               : fail(op, fmt::format("the result `{}` cannot hold `{}`", result.str(), type->str()));
  }
  if (!isNumber(*type))
    return fail(op, fmt::format("`{}` goes by an i32 or f32, found `{}`", mnemonic(op.op).str(), type->str()));
  if (op.op == Op::Fold)
    return resultIs(op, by == "argmin" || by == "argmax" ? i32 : *type);
  if (result.size < 1)
    return fail(op, "the result must have a capacity");
  return resultIs(op, Type::seq(result.size, op.op == Op::SeqScan ? type->elem : Scalar::I32));
}

bool Verifier::checkCall(const Operation &op) {
  // The control half of a module can be printed and checked without its models.
  if (!module.all(Op::Model).empty() && !declared(op, Op::Model, op.name))
    return false;
  if (op.op == Op::Pass)
    return op.name.empty() ? fail(op, "a pass names its model") : true;
  if (op.op == Op::Results)
    return checkResults(op);
  const std::vector<std::string> &with = op.get<attr::with>();
  if (op.operands.size() != 1 + with.size())
    return fail(op, fmt::format("expected {} operands: tokens and what `with` names, found {}", 1 + with.size(),
                                op.operands.size()));
  if (operandType(op, 0).kind != Type::Seq || operandType(op, 0).elem != Scalar::Token)
    return operandIs(op, 0, Type::seq(0));
  if (with.size() > 1)
    return fail(op, "`with` has one of `parents` and `visible`");
  if (!with.empty() && op.get<attr::chunk>())
    return fail(op, fmt::format("a call with `{}` is indivisible, and has no `chunk`", with[0]));
  if (!with.empty() && !(with[0] == "visible" && operandType(op, 1) == i32) && !isNumbers(op, 1))
    return false;
  if (op.regions.size() > 1)
    return fail(op, fmt::format("expected one region of reducers, found {}", op.regions.size()));
  const llvm::ArrayRef<Operation> reducers = reducersOf(op);
  for (const Operation &inner : reducers)
    if (inner.op != Op::Reduce)
      return fail(inner, fmt::format("only `reduce` stands in a `{}`", mnemonic(op.op).str()));
  if (op.op == Op::Issue)
    return true;
  if (op.results.size() != reducers.size())
    return fail(op, fmt::format("expected one result per reducer ({}), found {}", reducers.size(), op.results.size()));
  // One result per fed row, of which there are `chunk` at most.
  int64_t rows = operandType(op, 0).size;
  for (const int64_t bound : {op.get<attr::chunk>(), op.get<attr::most>()})
    if (bound > 0 && (rows == 0 || bound < rows))
      rows = bound;
  for (size_t i = 0; i < reducers.size(); ++i) {
    const Operation &reduce = reducers[i];
    const Type type = module.type(op.results[i]);
    if (!reducerNamed(reduce.name))
      return checkReduce(reduce);
    if (type != reducedType(reduce, type.size))
      return fail(op, fmt::format("result {} must be {}, found `{}`", i, reducedWords(reduce), type.str()));
    const bool some = operandNamed(reduce, "first") || operandNamed(reduce, "last") || operandNamed(reduce, "tokens") ||
                      operandNamed(reduce, "kept");
    if (type.size != 0 && type.size < rows && !some)
      return fail(op, fmt::format("every result must hold the {} rows of the call", rows));
  }
  return true;
}

/// A reducer of a call, with the operands that it takes.
bool Verifier::checkReduce(const Operation &op) {
  const ReducerInfo *reducer = reducerNamed(op.name);
  if (!reducer)
    return fail(op, fmt::format("`@{}` is no reducer of logits", op.name));
  const std::vector<std::string> &names = op.get<attr::with>();
  if (names.size() != op.operands.size())
    return fail(op, fmt::format("`with` names {} operands, found {}", names.size(), op.operands.size()));
  for (unsigned i = 0; i < names.size(); ++i) {
    const std::string &name = names[i];
    if (std::find(names.begin(), names.begin() + i, name) != names.begin() + i)
      return fail(op, fmt::format("`with` names `{}` twice", name));
    const bool taken = name == "first" || name == "last"    ? true
                       : name == "noise" || name == "ahead" ? reducer->draws()
                       : name == "minus"                    ? reducer->takesMinus()
                       : name == "kept"                     ? true
                       : name == "at"                       ? !op.get<attr::keep>().empty()
                       : name == "tokens"                   ? reducer->takesTokens()
                                                            : reducer->takesSettings();
    if (!taken)
      return fail(op, fmt::format("`{}` takes no `{}`", op.name, name));
    if (name == "tokens" || name == "kept" || name == "minus") {
      if (operandType(op, i) != Type::seq(operandType(op, i).size))
        return fail(op, fmt::format("operand {} must be a sequence of tokens", i));
    } else if (!operandIs(op, i, name == "temperature" || name == "top_p" || name == "min_p" ? f32 : i32)) {
      return false;
    }
  }
  if (reducer->takesTokens() && !operandNamed(op, "tokens"))
    return fail(op, fmt::format("`{}` needs `tokens`", op.name));
  for (const auto &[word, field] : {std::pair<const char *, const std::string &>("kept", op.get<attr::kept>()),
                                    {"minus", op.get<attr::minus>()},
                                    {"keep", op.get<attr::keep>()}}) {
    if (word != std::string("keep") && bool(operandNamed(op, word)) == field.empty())
      return fail(op, fmt::format("the attribute and the operand `{}` stand beside each other", word));
    if (field.empty())
      continue;
    if (!declared(op, Op::Field, field))
      return false;
    if (!module.find(Op::Field, field)->has<attr::logits>())
      return fail(op, fmt::format("`@{}` keeps no logits", field));
  }
  if (!op.get<attr::keep>().empty() && (reducer->id != Reducer::ArgMax || !op.get<attr::kept>().empty()))
    return fail(op, "what keeps rows of a call is its `argmax`");
  if (op.has<attr::n>() && !reducer->takesCount())
    return fail(op, fmt::format("`{}` has one result for a row, and no `n`", op.name));
  if (op.has<attr::part>() && reducer->id != Reducer::TopK)
    return fail(op, fmt::format("`{}` has one part", op.name));
  return true;
}

/// What a reducer gives for the rows of a call.
std::string Verifier::reducedWords(const Operation &reduce) const {
  const Type type = reducedType(reduce, 0);
  const std::string items = type.elem == Scalar::F32 ? "f32" : "tokens";
  return type.kind == Type::Table ? fmt::format("a table with rows of {} {}", type.inner, items)
                                  : "a sequence of " + items;
}

/// What a call left, of the type that its reducer gives.
bool Verifier::checkResults(const Operation &op) {
  const Type type = module.type(op.result());
  const Operation *issue = nullptr;
  walk(module.root.region(), [&](const Operation &o) {
    if (o.op == Op::Issue && o.get<attr::site>() == op.get<attr::site>())
      issue = &o;
  });
  if (!issue)
    return type.isList() || fail(op, "the result must be a sequence");
  const llvm::ArrayRef<Operation> reducers = reducersOf(*issue);
  const int64_t index = op.get<attr::index>();
  if (index >= static_cast<int64_t>(reducers.size()))
    return fail(op, fmt::format("the call has {} reducers, and none of index {}", reducers.size(), index));
  const Operation &reduce = reducers[index];
  return !reducerNamed(reduce.name) || type == reducedType(reduce, type.size) ||
         fail(op, fmt::format("the result must be {}, found `{}`", reducedWords(reduce), type.str()));
}

bool Verifier::checkPolicyOp(const Operation &op) {
  if (op.op == Op::PolicyOutput) {
    const Operation *end = terminator(op);
    return !end || end->op != Op::Yield || end->operands.size() == 1 || fail(op, "an output yields one value");
  }
  const Operation *policy = module.find(Op::Policy, op.name);
  if (!policy)
    return declared(op, Op::Policy, op.name);
  auto child = [&](Op kind, llvm::StringRef name) -> const Operation * {
    for (const Operation &o : policy->region().ops)
      if (o.op == kind && o.name == name)
        return &o;
    fail(op, fmt::format("`@{}` has no {} `{}`", op.name, mnemonic(kind).str(), name.str()));
    return nullptr;
  };
  if (op.op == Op::Observe) {
    const Operation *observe = child(Op::PolicyObserve, "");
    if (!observe)
      return false;
    const std::vector<Value> &args = observe->region().args;
    if (args.size() != op.operands.size())
      return fail(op, fmt::format("expected {} operands, found {}", args.size(), op.operands.size()));
    for (unsigned i = 0; i < args.size(); ++i)
      if (!operandIs(op, i, module.type(args[i])))
        return false;
    return true;
  }
  if (op.op == Op::PolicyRead) {
    const Operation *output = child(Op::PolicyOutput, op.get<attr::output>());
    if (!output)
      return false;
    const Operation *end = terminator(*output);
    return !end || end->operands.size() != 1 || end->operands[0].id >= module.values.size() ||
           resultIs(op, module.type(end->operands[0]));
  }
  const Operation *state = child(Op::PolicyState, op.get<attr::state>());
  if (!state)
    return false;
  std::optional<Type> type = declaredType(*state);
  if (!type)
    return checkDeclaration(*state);
  return op.op == Op::PolicyGet ? resultIs(op, *type) : operandIs(op, 0, *type);
}

/// Outputs and observers are inlined where they are used, so none may use itself.
bool Verifier::checkPolicyCycles() {
  using Node = std::pair<std::string, std::string>; // policy, output; "" is the observer
  std::map<Node, std::set<Node>> uses;
  for (const Operation *policy : module.all(Op::Policy))
    for (const Operation &body : policy->region().ops)
      for (const Region &region : body.regions)
        walk(region, [&](const Operation &o) {
          if (o.op == Op::PolicyRead || o.op == Op::Observe)
            uses[{policy->name, body.name}].insert({o.name, o.op == Op::Observe ? "" : o.get<attr::output>()});
        });
  for (const auto &[start, direct] : uses) {
    std::set<Node> reached = direct;
    std::vector<Node> open(direct.begin(), direct.end());
    while (!open.empty()) {
      Node node = open.back();
      open.pop_back();
      if (node == start)
        return fail(*module.find(Op::Policy, start.first),
                    start.second.empty() ? std::string("observing uses itself")
                                         : fmt::format("the output `{}` uses itself", start.second));
      if (auto it = uses.find(node); it != uses.end())
        for (const Node &next : it->second)
          if (reached.insert(next).second)
            open.push_back(next);
    }
  }
  return true;
}

bool Verifier::checkGoto(const Operation &op) {
  const std::vector<std::string> &to = op.get<attr::to>();
  if (to.size() > 1024)
    return fail(op, "a `goto` chooses among 1024 states at most");
  if (to.size() != op.operands.size() + 1)
    return fail(op,
                fmt::format("expected one more state than conditions, found {} and {}", to.size(), op.operands.size()));
  for (unsigned i = 0; i < op.operands.size(); ++i)
    if (!operandIs(op, i, boolean))
      return false;
  for (const std::string &state : to)
    if (!declared(op, Op::State, state))
      return false;
  return true;
}

} // namespace megalith::ir
