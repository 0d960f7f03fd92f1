#include "Vectors.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

namespace megalith::emit {

using ir::Op;
using ir::Operation;
namespace attr = ir::attr;
using ir::Value;

Group::Group(const ir::Module &module, const plan::ModelPlan &planned, const Names &names, const ir::Region &region)
    : module(module), planned(planned), names(names), region(region), uses(ir::countUses(module, region)) {
  for (const Operation &op : region.ops)
    for (Value r : op.results)
      defs[r.id] = &op;
}

std::vector<const Operation *> Group::slice(Value v) const {
  std::set<uint32_t> needed = {v.id};
  std::vector<const Operation *> ops;
  for (const Operation &op : llvm::reverse(region.ops)) {
    if (!llvm::any_of(op.results, [&](Value r) { return needed.count(r.id); }))
      continue;
    ops.push_back(&op);
    for (Value operand : op.operands)
      needed.insert(operand.id);
  }
  std::reverse(ops.begin(), ops.end());
  return ops;
}

std::string headPairs(const Operation &op) {
  const int64_t dim = op.get<attr::dim>(), turned = op.get<attr::turned>();
  if (op.get<attr::adjacent>())
    return fmt::format("{}, {}, true", dim, turned ? turned : dim);
  return turned ? fmt::format("{}, {}", dim, turned) : std::to_string(dim);
}

const char *elementwiseName(Op op) {
  switch (op) {
#define ELEMENTWISE1(Id, function, name)                                                                               \
  case Op::Id:                                                                                                         \
    return #function;
#define ELEMENTWISE2(Id, function, name)                                                                               \
  case Op::Id:                                                                                                         \
    return #function;
#include "megalith/IR/Elementwise.def"
  default:
    return nullptr;
  }
}

Vectors::Vectors(CodeWriter &w, const Group &group, Width width, int64_t columns, std::function<void(SourceLoc)> at,
                 const Vectors *outer)
    : w(w), group(group), width(width), columns(columns), at(std::move(at)),
      locals(std::make_shared<Locals>(outer ? *outer->locals : group.names.locals)) {}

std::string Vectors::column(bool partner) const {
  if (width == Eight)
    return partner ? "partner" : "c";
  if (width == Scalar)
    return columns == 1 ? "0" : "part";
  return width == Pair ? "c0, c1" : "c0";
}

std::string Vectors::load(Value v, bool partner) {
  auto it = group.planned.placeOf.find(v.id);
  assert(it != group.planned.placeOf.end() && "a value from outside lives in a buffer");
  const plan::Buffer &buffer = group.planned.buffers[it->second.buffer];
  const std::string name = "b." + group.names.rows(group.planned, it->second);
  if (width == Scalar || buffer.columns != columns || columns == 1) {
    std::string first = width == Pair ? "c0" : column(partner);
    std::string index = buffer.columns == 1         ? "0"
                        : buffer.columns == columns ? first
                                                    : fmt::format("{} / {}", first, columns / buffer.columns);
    return fmt::format("{}.load(row, {}).v[0]", name, index);
  }
  const char *method = width == Eight ? "load8" : width == Pair ? "loadPair" : "load";
  return fmt::format("{}.{}(row, {})", name, method, column(partner));
}

std::string Vectors::compute(const Operation &op, bool partner) {
  const char *suffix = width == Eight ? "8" : width == Pair ? "Pair" : "";
  if (const char *name = elementwiseName(op.op)) {
    std::string args;
    for (Value v : op.operands)
      args += (args.empty() ? "" : ", ") + eval(v, partner);
    return fmt::format("{}({})", name, args);
  }
  switch (op.op) {
  case Op::Const:
    return floatLiteral(op.get<attr::value>().real());
  case Op::WeightGet:
    return fmt::format("{}.load{}({}){}", group.names.weights.at(op.name), suffix, column(partner),
                       width == Scalar ? ".v[0]" : "");
  case Op::Embed:
    if (op.get<attr::by>() ==
        ir::By::Position) // that of a draft may lie after the last one: nobody takes what becomes of it
      return fmt::format(
          "{}.load8(min(pass.rows[row].position, {}), {})", group.names.weights.at(op.name),
          ir::storageOf(*group.module.find(Op::Model, group.planned.name), op.name).get<attr::shape>()[0] - 1,
          column(partner));
    return fmt::format("{}.load8(lineOfToken(pass.rows[row].token, {}), {})", group.names.weights.at(op.name),
                       group.module.find(Op::Model, group.planned.name)->get<attr::vocab>(), column(partner));
  case Op::RopeCos:
  case Op::RopeSin: {
    const char *which = op.op == Op::RopeCos ? "cos" : "sin";
    if (width == Pair)
      return fmt::format("rope{}.{}Pair(position, c0, c1)", op.get<attr::dim>(), which);
    return fmt::format("rope{}.{}At<{}>(position, {})", op.get<attr::dim>(), which, int(width), column(partner));
  }
  case Op::RotateHalf:
    if (width == Pair)
      return fmt::format("rotatePair({})", eval(op.operands[0]));
    assert(!partner && "rotate_half of rotate_half is not formed into a map");
    if (op.get<attr::adjacent>())
      return fmt::format("rotatePairs({})", eval(op.operands[0]));
    if (lanes)
      return fmt::format("rotated<{0}>(c, ofPartner<{0}>(c, {1}))", headPairs(op), eval(op.operands[0]));
    return fmt::format("rotated<{}>(c, {})", headPairs(op), eval(op.operands[0], true));
  default:
    llvm_unreachable("not an elementwise operation");
  }
}

std::string Vectors::eval(Value v, bool partner, bool held) {
  auto key = std::make_pair(v.id, partner);
  if (auto it = names.find(key); it != names.end())
    return it->second;
  // A value per row or per block is the same at the partner's column; a weight
  // vector is not.
  const ir::Type &type = group.module.type(v);
  if (partner && type.kind == ir::Type::Rows && type.size != columns)
    if (auto it = names.find({v.id, false}); it != names.end())
      return it->second;
  const Operation *op = group.def(v);
  std::string expr = op ? compute(*op, partner) : load(v, partner);
  bool inlined = op && op->op == Op::Const;
  inlined |= group.uses[v.id] <= 1 && expr.size() < 64;
  if (!inlined || held) {
    const std::string name = variable(v, "t", partner);
    if (op)
      at(op->loc);
    w.line("const auto {} = {};", name, expr);
    expr = name;
  }
  names[key] = expr;
  return expr;
}

} // namespace megalith::emit
