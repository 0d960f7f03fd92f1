#include "megalith/IR/Buffers.h"
#include "megalith/IR/Scalar.h"
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <optional>

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

/// What a region of arithmetic on dims yields; nullopt where a step leaves the range of i32.
static std::optional<std::vector<int64_t>> numbersOf(const Region &region, const std::map<std::string, int64_t> &dims) {
  std::map<Value, int64_t> values;
  std::vector<int64_t> numbers;
  for (const Operation &op : region.ops) {
    if (op.op == Op::Yield) {
      for (Value v : op.operands)
        numbers.push_back(values.at(v));
      break;
    }
    int64_t number = 0;
    if (op.op == Op::DimGet) {
      number = dims.at(op.name);
    } else if (op.op == Op::Const) {
      number = op.get<attr::value>().whole();
    } else {
      llvm::SmallVector<ScalarValue, 3> operands;
      for (Value v : op.operands)
        operands.push_back(ScalarValue::whole(values.at(v)));
      number = valueOf(op.op, operands)->i;
    }
    if (number < INT32_MIN || number > INT32_MAX)
      return std::nullopt;
    values[op.result()] = number;
  }
  return numbers;
}

CallShapes shapesOf(const Module &module, std::map<std::string, int64_t> dims) {
  CallShapes call;
  call.dims = std::move(dims);
  const auto fail = [&](const Operation &of, std::string text) {
    call.error = std::move(text);
    call.declaration = of.loc;
    return call;
  };
  for (const Operation *buffer : module.all(Op::Buffer)) {
    auto sizes = numbersOf(buffer->region(), call.dims);
    int64_t elements = 1;
    for (int64_t size : sizes.value_or(std::vector<int64_t>())) {
      if (size < 0 || (size > 0 && elements > (INT64_C(1) << 48) / size))
        return fail(*buffer,
                    fmt::format("buffer `{}` would have the shape [{}]", buffer->name, fmt::join(*sizes, ", ")));
      elements *= size;
    }
    if (!sizes)
      return fail(*buffer, fmt::format("a size of buffer `{}` is beyond {}", buffer->name, INT32_MAX));
    call.shapes[buffer->name] = std::move(*sizes);
  }
  for (const Operation *items : module.all(Op::Items))
    if (!numbersOf(items->region(), call.dims))
      return fail(*items, fmt::format("the number of items of stage `{}` is beyond {}", items->name, INT32_MAX));
  return call;
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
  CallShapes whole = shapesOf(module, std::move(call.dims));
  for (const Operation *buffer : module.all(Op::Buffer)) {
    const auto it = given.find(buffer->name);
    if (whole.error.empty() && it != given.end() && it->second != whole.shapes[buffer->name]) {
      whole.error = fmt::format("buffer `{}` must have the shape [{}], and has [{}]", buffer->name,
                                fmt::join(whole.shapes[buffer->name], ", "), fmt::join(it->second, ", "));
      whole.declaration = buffer->loc;
    }
  }
  return whole;
}

} // namespace megalith::ir
