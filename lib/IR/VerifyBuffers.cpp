//===- VerifyBuffers.cpp - buffers of a call ------------------------------===//
#include "Verifier.h"
#include "llvm/ADT/STLExtras.h"

namespace megalith::ir {

/// Its number of dimensions.
static size_t rankOf(const Operation &buffer) { return buffer.region().ops.back().operands.size(); }

/// The declared buffer, whose region ends in a yield; null after a report.
const Operation *Verifier::bufferNamed(const Operation &op, llvm::StringRef name) {
  if (!declared(op, Op::Buffer, name))
    return nullptr;
  const Operation *buffer = module.find(Op::Buffer, name);
  if (buffer->region().ops.empty() || buffer->region().ops.back().op != Op::Yield) {
    fail(*buffer, "`buffer` must yield its sizes");
    return nullptr;
  }
  return buffer;
}

/// The region has one argument, the number.
bool Verifier::checkBufferRange(const Operation &op) {
  return (op.region().args.size() == 1 && op.region().args[0].id < module.values.size() &&
          module.type(op.region().args[0]) == i32) ||
         fail(op, "the region must have one argument of type `i32`");
}

/// What control has of an element.
static std::optional<Type> valueTypeOf(Scalar dtype) {
  switch (dtype) {
  case Scalar::I32:
  case Scalar::I64:
    return i32;
  case Scalar::F32:
    return f32;
  case Scalar::Bool:
    return boolean;
  default:
    return std::nullopt;
  }
}

/// Sizes, and the range of items, are known before anything runs: the region has arithmetic on dims, and no more.
static const Operation *beyondDims(const Module &module, const Region &region) {
  for (const Operation &op : region.ops) {
    const bool known = op.op == Op::Yield || op.op == Op::DimGet || hasTrait(op.op, Trait::Arithmetic);
    const bool whole = llvm::all_of(op.results, [&](Value v) {
      return v.id < module.values.size() && (module.type(v) == i32 || module.type(v) == boolean);
    });
    if (!known || !whole)
      return &op;
  }
  return nullptr;
}

bool Verifier::checkBufferOp(const Operation &op) {
  const auto numbers = [&](size_t first) {
    for (size_t i = first; i < op.operands.size(); ++i)
      if (!operandIs(op, static_cast<unsigned>(i), i32))
        return false;
    return true;
  };
  const auto counted = [&](size_t wanted) {
    return op.operands.size() == wanted ||
           fail(op, fmt::format("expected {} operands, found {}", wanted, op.operands.size()));
  };
  if (op.op == Op::Buffer || op.op == Op::Items)
    if (const Operation *beyond = beyondDims(module, op.region()))
      return fail(*beyond, fmt::format("`{}` is no arithmetic on dims", mnemonic(beyond->op).str()));
  switch (op.op) {
  case Op::Dim:
    return op.get<attr::least>() <= op.get<attr::most>() || fail(op, "`least` is above `most`");
  case Op::Buffer: {
    const Operation *end = terminator(op);
    if (!end || end->op != Op::Yield || end->operands.empty() || end->operands.size() > limits::bufferRank)
      return fail(op, fmt::format("`buffer` must yield 1 to {} sizes", int(limits::bufferRank)));
    return yields(op, std::vector<Type>(end->operands.size(), i32));
  }
  case Op::Items: {
    const Operation *end = terminator(op);
    const size_t bounds = end && end->op == Op::Yield ? end->operands.size() : 1;
    if (bounds != 0 && bounds != 2)
      return fail(op, "the first region of `items` must yield no number or two: from, to");
    if (op.region(1).args.size() != bounds / 2)
      return fail(op, "the second region of `items` has the number of an item as its argument, if there are items");
    for (Value v : op.region(1).args)
      if (v.id >= module.values.size() || module.type(v) != i32)
        return fail(op, "the number of an item is of type `i32`");
    return yields(op, std::vector<Type>(bounds, i32));
  }
  case Op::DimGet:
    return declared(op, Op::Dim, op.name) && resultIs(op, i32);
  case Op::BufferAt: {
    const Operation *buffer = bufferNamed(op, op.name);
    if (!buffer || !counted(rankOf(*buffer)) || !numbers(0))
      return false;
    const auto type = valueTypeOf(buffer->get<attr::dtype>());
    return type ? resultIs(op, *type) : fail(op, "elements of this type are only copied");
  }
  case Op::BufferSet: {
    const Operation *buffer = bufferNamed(op, op.name);
    if (!buffer || !counted(1 + rankOf(*buffer)) || !numbers(1))
      return false;
    const auto type = valueTypeOf(buffer->get<attr::dtype>());
    return type ? operandIs(op, 0, *type) : fail(op, "elements of this type are only copied");
  }
  case Op::BufferCopy: {
    const Operation *to = bufferNamed(op, op.name), *from = bufferNamed(op, op.get<attr::from>());
    if (!to || !from)
      return false;
    const auto lead = static_cast<size_t>(op.get<attr::lead>());
    if (op.operands.size() < lead + 4)
      return fail(op, fmt::format("expected {} operands or more, found {}", lead + 4, op.operands.size()));
    const size_t leadFrom = op.operands.size() - lead - 4;
    if (lead >= rankOf(*to) || leadFrom >= rankOf(*from) || rankOf(*to) - lead != rankOf(*from) - leadFrom)
      return fail(op, "the slices are not of one shape");
    if (to->get<attr::dtype>() != from->get<attr::dtype>())
      return fail(op, "a copy changes no type");
    return numbers(0);
  }
  default: { // buffer.scan, buffer.sort
    const Operation *buffer = bufferNamed(op, op.name);
    if (!buffer || !checkBufferRange(op) || !numbers(0))
      return false;
    if (rankOf(*buffer) != 1 || valueTypeOf(buffer->get<attr::dtype>()) != i32)
      return fail(op, "the buffer must be of i32 or i64, with one dimension");
    const Operation *end = terminator(op);
    const size_t keys = end && end->op == Op::Yield ? end->operands.size() : 0;
    if (keys == 0 || keys > (op.op == Op::BufferScan ? 1 : limits::sortKeys))
      return fail(op, op.op == Op::BufferScan
                          ? "`buffer.scan` must yield a number"
                          : fmt::format("`buffer.sort` must yield 1 to {} keys", int(limits::sortKeys)));
    return yields(op, std::vector<Type>(keys, i32));
  }
  }
}

bool Verifier::checkBuffers() {
  for (const Operation &op : module.ops())
    switch (op.op) {
    case Op::File:
    case Op::Param:
    case Op::Dim:
    case Op::Buffer:
    case Op::Items:
      break;
    default:
      return fail(op, fmt::format("`{}` cannot stand beside `buffer`", mnemonic(op.op).str()));
    }
  for (const Operation *dim : module.all(Op::Dim)) {
    const bool known = llvm::any_of(module.all(Op::Buffer), [&](const Operation *buffer) {
      return llvm::any_of(buffer->region().ops, [&](const Operation &op) {
        return op.op == Op::DimGet && op.name == dim->name &&
               llvm::is_contained(buffer->region().ops.back().operands, op.result());
      });
    });
    if (!known)
      return fail(*dim, "no buffer has this dim alone as a size");
  }
  return true;
}

} // namespace megalith::ir
