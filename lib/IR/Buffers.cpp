#include "megalith/IR/Buffers.h"
#include "megalith/IR/Scalar.h"
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <optional>
#include <set>

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

/// In polish text.
static std::string symbolOf(Op op) {
  switch (op) {
  case Op::Add:
    return "+";
  case Op::Sub:
    return "-";
  case Op::Mul:
    return "*";
  case Op::Div:
    return "/";
  case Op::Mod:
    return "%";
  case Op::Min:
    return "min";
  case Op::Max:
    return "max";
  default:
    return "";
  }
}

std::string polishOf(const Region &region, size_t index) {
  std::map<Value, std::string> texts;
  for (const Operation &op : region.ops) {
    if (op.op == Op::Yield)
      return texts.at(op.operands[index]);
    std::string text;
    bool known = op.op == Op::DimGet || op.op == Op::Const || !symbolOf(op.op).empty();
    for (Value v : op.operands) {
      known = known && !texts.at(v).empty();
      text += texts.at(v) + " ";
    }
    if (!known) {
      texts[op.result()] = "";
      continue;
    }
    text += op.op == Op::DimGet  ? op.name
            : op.op == Op::Const ? std::to_string(op.get<attr::value>().whole())
                                 : symbolOf(op.op);
    texts[op.result()] = std::move(text);
  }
  return "0";
}

int64_t mostOf(const Module &module, const Operation &buffer) {
  std::map<Value, Interval> values;
  for (const Operation &op : buffer.region().ops) {
    if (op.op == Op::Yield)
      return values.at(op.operands[0]).hi;
    if (op.op == Op::DimGet) {
      const Operation &dim = *module.find(Op::Dim, op.name);
      values[op.result()] = {dim.get<attr::least>(), dim.get<attr::most>()};
    } else if (op.op == Op::Const) {
      const int64_t value = op.get<attr::value>().whole();
      values[op.result()] = {value, value};
    } else {
      values[op.result()] = exactInterval(op.op, values.at(op.operands[0]),
                                          op.operands.size() > 1 ? values.at(op.operands[1]) : Interval());
    }
  }
  return INT32_MAX;
}

std::string infixOf(llvm::StringRef polish) {
  struct Text {
    std::string text;
    int binds; ///< 0: a sum, 1: a product, 2: a word
  };
  std::vector<Text> stack;
  llvm::SmallVector<llvm::StringRef> words;
  polish.split(words, ' ', -1, false);
  for (llvm::StringRef word : words) {
    const bool isSum = word == "+" || word == "-", isProduct = word == "*" || word == "/" || word == "%";
    const bool isCall = word == "min" || word == "max";
    if (!isSum && !isProduct && !isCall) {
      stack.push_back({word.str(), 2});
      continue;
    }
    const Text right = stack.back();
    stack.pop_back();
    const Text left = stack.back();
    if (isCall) {
      stack.back() = {fmt::format("{}({}, {})", word.str(), left.text, right.text), 2};
      continue;
    }
    const auto side = [&](const Text &of, bool wrapped) { return wrapped ? "(" + of.text + ")" : of.text; };
    stack.back() = {side(left, left.binds < isProduct) + " " + word.str() + " " +
                        side(right, right.binds < isProduct || (word != "+" && word != "*" && right.binds < 2)),
                    isProduct};
  }
  return stack.empty() ? "0" : stack.back().text;
}

std::vector<const Operation *> plainCopies(const Operation &items) {
  std::vector<const Operation *> copies;
  std::set<std::string> written, read;
  bool others = items.region(0).ops.back().operands.empty();
  walk(items.region(1), [&](const Operation &op) {
    if (op.op == Op::BufferCopy) {
      copies.push_back(&op);
      others |= !written.insert(op.name).second;
      read.insert(op.get<attr::from>());
    } else if (op.op == Op::BufferAt) {
      read.insert(op.name);
    }
    others |= op.op == Op::BufferSet || op.op == Op::BufferScan || op.op == Op::BufferSort;
  });
  for (const std::string &name : written)
    others |= read.count(name) != 0;
  return others ? std::vector<const Operation *>() : copies;
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
