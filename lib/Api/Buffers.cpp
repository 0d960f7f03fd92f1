//===- Buffers.cpp - calls of pipelines of buffers ------------------------===//
#include "megalith/IR/Buffers.h"
#include "State.h"
#include "megalith/Checkpoint/SafetensorsFile.h"
#include "megalith/Os/WriteFile.h"
#include "megalith/Reference/Buffers.h"
#include "megalith/Requests/Trace.h"
#include "megalith/Tools.h"
#include <cstring>
#include <numeric>

namespace megalith {

using namespace api;

bool tools::isOfBuffers(const Program &program) { return ir::ofBuffers(program.internals()->compiled.module); }

static DType tensorType(ir::Scalar dtype) {
  switch (dtype) {
  case ir::Scalar::I64:
    return DType::I64;
  case ir::Scalar::F32:
    return DType::F32;
  case ir::Scalar::Bool:
    return DType::Bool;
  case ir::Scalar::F16:
    return DType::F16;
  case ir::Scalar::BF16:
    return DType::BF16;
  default:
    return DType::I32;
  }
}

namespace {
struct Fault {
  std::string name, text;
};
} // namespace

static Fault faultOf(const reference::CallFault &fault) {
  static const struct {
    int32_t code;
    const char *name, *text;
  } all[] = {
#define FAULT(Enum, Code, Name, Text, Numbers) {Code, Name, Text},
#include "megalith/Contract/Faults.def"
  };
  for (const auto &[code, name, text] : all)
    if (code == fault.code) {
      const std::string detail = faultDetail(name, fault.numbers);
      return {name, text + (detail.empty() ? "" : ": " + detail)};
    }
  return {};
}

/// The reference executor's call; the results stay in `memory`.
static std::map<std::string, TensorView> called(const Program::State &program, const SafetensorsFile &inputs,
                                                std::map<std::string, std::vector<uint8_t>> &memory,
                                                Diagnostics &diags) {
  const ir::Module &module = program.compiled.module;
  const auto refuse = [&](SourceLoc loc, const std::string &why) {
    diags.report(Diag::CallBuffers, loc, module.root.name, why);
    return std::map<std::string, TensorView>();
  };
  ir::Shapes given;
  for (const auto &[name, tensor] : inputs.tensors()) {
    given[name] = tensor.shape;
    const ir::Operation *buffer = module.find(ir::Op::Buffer, name);
    if (const auto dtype = buffer ? buffer->get<ir::attr::dtype>() : ir::Scalar::I32;
        buffer && tensor.dtype != tensorType(dtype))
      return refuse(buffer->loc, fmt::format("buffer `{}` is of {}, and the tensor of {}", name, ir::word(dtype),
                                             dtypeName(tensor.dtype)));
  }
  const ir::CallShapes call = ir::callShapes(module, given);
  if (!call.error.empty())
    return refuse(call.declaration, call.error);
  std::map<std::string, void *> buffers;
  std::map<std::string, TensorView> results;
  for (const ir::Operation *buffer : module.all(ir::Op::Buffer)) {
    const std::vector<int64_t> &shape = call.shapes.at(buffer->name);
    const ir::Scalar dtype = buffer->get<ir::attr::dtype>();
    std::vector<uint8_t> &bytes = memory[buffer->name];
    bytes.resize(std::accumulate(shape.begin(), shape.end(), ir::bytesOf(dtype), std::multiplies()));
    if (const TensorView *tensor = inputs.find(buffer->name))
      if (const auto error = inputs.read(*tensor, 0, tensor->size, bytes.data())) {
        driver::reportCheckpoint(diags, *error);
        return {};
      }
    buffers[buffer->name] = bytes.data();
    if (buffer->get<ir::attr::written>())
      results[buffer->name] = {tensorType(dtype), shape, bytes.data(), bytes.size()};
  }
  if (const auto fault = reference::runBuffers(module, call, buffers)) {
    const auto [name, text] = faultOf(*fault);
    diags.report(Diag::CallFault, fault->loc, name, text);
    return {};
  }
  return results;
}

Messages tools::callWithFiles(const Program &program, const std::string &inputs, const std::string &outputs) {
  const auto messages = guarded<bool>([&]() -> Expected<bool> {
    Program::State &state = *program.internals();
    Diagnostics diags(state.sources);
    const auto file = SafetensorsFile::open(inputs);
    if (!file) {
      driver::reportCheckpoint(diags, file.error);
      return diags.messages();
    }
    std::map<std::string, std::vector<uint8_t>> memory;
    const auto results = called(state, *file, memory, diags);
    if (diags.hasErrors())
      return diags.messages();
    if (const std::string why = os::writeFile(outputs, safetensorsText(results)); !why.empty()) {
      diags.report(Diag::CannotWriteFile, {}, outputs, why);
      return diags.messages();
    }
    return true;
  });
  return messages ? Messages() : messages.errors();
}

} // namespace megalith
