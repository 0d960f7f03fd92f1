#include "megalith/IR/Buffers.h"
#include "megalith/IR/Scalar.h"
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace megalith::ir {

bool ofBuffers(const Module &module) { return !module.all(Op::Buffer).empty(); }

int64_t bytesOf(Scalar dtype) {
  switch (dtype) {
  case Scalar::I64:
    return 8;
  case Scalar::F16:
  case Scalar::BF16:
    return 2;
  case Scalar::Bool:
    return 1;
  default:
    return 4;
  }
}

/// The sizes that a buffer has with these dims.
static std::vector<int64_t> sizesOf(const Operation &buffer, const std::map<std::string, int64_t> &dims) {
  std::map<Value, int64_t> values;
  std::vector<int64_t> sizes;
  for (const Operation &op : buffer.region().ops) {
    if (op.op == Op::Yield) {
      for (Value v : op.operands)
        sizes.push_back(values.at(v));
    } else if (op.op == Op::DimGet) {
      values[op.result()] = dims.at(op.name);
    } else if (op.op == Op::Const) {
      values[op.result()] = op.get<attr::value>().whole();
    } else {
      llvm::SmallVector<ScalarValue, 2> operands;
      for (Value v : op.operands)
        operands.push_back(ScalarValue::whole(values.at(v)));
      values[op.result()] = valueOf(op.op, operands)->i;
    }
  }
  return sizes;
}

CallShapes callShapes(const Module &module, const Shapes &given) {
  CallShapes call;
  const auto fail = [&](const Operation &of, std::string text) {
    call.error = std::move(text);
    call.declaration = of.loc;
    return call;
  };
  for (const auto &[name, shape] : given)
    if (!module.find(Op::Buffer, name)) {
      call.error = fmt::format("the pipeline has no buffer `{}`", name);
      return call;
    }
  std::map<std::string, std::string> saidBy; // dim -> buffer
  for (const Operation *buffer : module.all(Op::Buffer)) {
    const auto it = given.find(buffer->name);
    if (it == given.end()) {
      if (!buffer->get<attr::written>())
        return fail(*buffer, fmt::format("buffer `{}` is missing, which no stage writes", buffer->name));
      continue;
    }
    const std::vector<Operation> &ops = buffer->region().ops;
    const auto &sizes = ops.back().operands;
    if (it->second.size() != sizes.size())
      return fail(*buffer, fmt::format("buffer `{}` has {} dimension{}, and {} were given", buffer->name, sizes.size(),
                                       sizes.size() == 1 ? "" : "s", it->second.size()));
    for (size_t i = 0; i < sizes.size(); ++i)
      for (const Operation &op : ops) {
        if (op.op != Op::DimGet || op.result() != sizes[i])
          continue;
        const int64_t size = it->second[i];
        const auto [dim, fresh] = call.dims.emplace(op.name, size);
        if (fresh)
          saidBy[op.name] = buffer->name;
        if (dim->second != size)
          return fail(*buffer, fmt::format("dim `{}` is {} by buffer `{}`, and {} by `{}`", op.name, dim->second,
                                           saidBy[op.name], size, buffer->name));
      }
  }
  for (const Operation *dim : module.all(Op::Dim)) {
    const auto it = call.dims.find(dim->name);
    if (it == call.dims.end())
      return fail(*dim, fmt::format("nothing says what dim `{}` is: give a buffer that has it as a size", dim->name));
    if (it->second < dim->get<attr::least>() || it->second > dim->get<attr::most>())
      return fail(*dim, fmt::format("dim `{}` is {} by buffer `{}`, and must be from {} to {}", dim->name, it->second,
                                    saidBy[dim->name], dim->get<attr::least>(), dim->get<attr::most>()));
  }
  for (const Operation *buffer : module.all(Op::Buffer)) {
    std::vector<int64_t> sizes = sizesOf(*buffer, call.dims);
    int64_t elements = 1;
    for (int64_t size : sizes) {
      if (size < 0 || size > INT32_MAX || (size > 0 && elements > (INT64_C(1) << 48) / size))
        return fail(*buffer,
                    fmt::format("buffer `{}` would have the shape [{}]", buffer->name, fmt::join(sizes, ", ")));
      elements *= size;
    }
    const auto it = given.find(buffer->name);
    if (it != given.end() && it->second != sizes)
      return fail(*buffer, fmt::format("buffer `{}` must have the shape [{}], and has [{}]", buffer->name,
                                       fmt::join(sizes, ", "), fmt::join(it->second, ", ")));
    call.shapes[buffer->name] = std::move(sizes);
  }
  return call;
}

} // namespace megalith::ir
