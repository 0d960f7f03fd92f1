#include "Verifier.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>
#include <cmath>

namespace megalith::ir {

Type declaredType(const Operation &declaration) {
  const Scalar s = declaration.get<attr::type>();
  if (!declaration.has<attr::capacity>())
    return Type::scalar(s);
  const int64_t capacity = declaration.get<attr::capacity>();
  if (declaration.has<attr::rows>())
    return Type::table(declaration.get<attr::rows>(), capacity, s);
  // A longer one is a view: no value keeps it.
  return Type::seq(capacity > mostCapacity ? 0 : capacity, s);
}

bool holds(Number value, Scalar type) {
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

bool Verifier::checkDeclaration(const Operation &op) {
  auto holdsType = [&](llvm::StringRef key, Number value) {
    const Scalar type = op.get<attr::type>();
    return holds(value, type) || fail(op, fmt::format("`{}` must be a value of type `{}`", key.str(), word(type)));
  };
  switch (op.op) {
  case Op::Param:
    if (!op.has<attr::value>() && !op.has<attr::items>() && !op.has<attr::numbers>())
      return fail(op, "the attribute `value` of `param` is missing");
    return holdsType("value",
                     op.has<attr::value>() || op.get<attr::type>() != Scalar::F32 ? op.get<attr::value>() : 0.0);
  case Op::Field:
  case Op::PolicyState:
    if (op.op == Op::Field && op.has<attr::rows>() && !op.has<attr::capacity>())
      return fail(op, "`rows` stand beside a `capacity`");
    if (op.op == Op::Field && op.has<attr::logits>() &&
        (op.get<attr::type>() != Scalar::Token || !op.has<attr::capacity>() || op.has<attr::rows>()))
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
           (!op.has<attr::reserve>() || op.get<attr::on_full>() == OnFull::Wait ||
            fail(op, "`reserve` is a number of tokens, of a pool with `on_full = \"wait\"`")) &&
           (!op.get<attr::bf16_windows>() || op.get<attr::format>() == WeightFormat::E4m3 ||
            fail(op, "`bf16_windows` is of a pool with `format = \"e4m3\"`")) &&
           (!op.get<attr::index_pages>() || !module.find(Op::Model, op.name) ||
            module.find(Op::Model, op.name)->get<attr::kv_window>() == 0 ||
            fail(op, "`index_pages` is of a pool whose model has a layer without a window"));
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
    if (module.find(Op::State, op.get<attr::state>())->get<attr::slot>() != (op.get<attr::kind>() == PartKind::Slot))
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
    if (!checkScheme(op))
      return false;
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

/// Codes are of a matrix that lies as it is multiplied, and that products alone read.
bool Verifier::checkScheme(const Operation &op) {
  const WeightScheme scheme = schemeOf(op);
  if (!scheme.quantised())
    return scheme == WeightScheme() || fail(op, "`scale_rows`, `scale_columns`, `zeros` and `ordered` are of codes");
  if (op.has<attr::alias>() || op.get<attr::shape>().size() != 2 || storedShape(op).size() != 2 ||
      viewOf(op).columnStride != 1 || op.get<attr::shape>()[1] != storedShape(op)[1])
    return fail(op, "codes are of a matrix whose rows lie together");
  const int64_t columns = storedShape(op)[1];
  const WeightView view = viewOf(op);
  if (view.offset % columns || view.rowStride % columns || view.blockStride % columns)
    return fail(op, "a view of codes has whole rows of the tensor");
  if (scheme.zeros && scheme.format == WeightFormat::E4m3)
    return fail(op, "`e4m3` has no zero points");
  if (scheme.scaleColumns % 32 != 0)
    return fail(op, "`scale_columns` is a multiple of 32");
  if (scheme.ordered && (!scheme.scaleColumns || scheme.scaleRows != 1))
    return fail(op, "`ordered` is of groups of columns, with `scale_rows` 1");
  return true;
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
      if (inner.get<attr::number>() == HostNumber::Tick || inner.get<attr::number>() == HostNumber::NowMs)
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
  const Type type = declaredType(op);
  const std::vector<int64_t> &items = op.get<attr::items>();
  const std::vector<double> &numbers = op.get<attr::numbers>();
  if ((op.has<attr::least>() || op.has<attr::most>()) && type != i32)
    return fail(op, "only an `i32` has `least` and `most`");
  if (op.get<attr::least>() > op.get<attr::most>())
    return fail(op, "`least` is above `most`");
  if (op.has<attr::rows>()) {
    if (!op.has<attr::capacity>() || op.get<attr::capacity>() > mostCapacity)
      return fail(op, fmt::format("the rows of a table have a `capacity` of at most {}", mostCapacity));
    if (op.get<attr::rows>() * op.get<attr::capacity>() > limits::inputCapacity)
      return fail(op, fmt::format("a table has more than {} elements", limits::inputCapacity));
    return (!op.has<attr::init>() && !op.has<attr::items>() && !op.has<attr::numbers>()) ||
           fail(op, "the default of a table has no rows");
  }
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
           fail(op, fmt::format("the default must have values of type `{}`", word(type.elem)));
  }
  const Number init = op.get<attr::init>();
  if (op.has<attr::items>() || op.has<attr::numbers>())
    return fail(op, "the default of a scalar is `init`");
  if (op.has<attr::init>() && !holds(init, type.elem))
    return fail(op, fmt::format("`init` must be a value of type `{}`", word(type.elem)));
  if (type == i32 && (init.whole() < op.get<attr::least>() || init.whole() > op.get<attr::most>()))
    return fail(op, "the default lies outside `least` and `most`");
  return std::isfinite(static_cast<float>(init.real())) || fail(op, "`init` must be finite");
}

} // namespace megalith::ir
