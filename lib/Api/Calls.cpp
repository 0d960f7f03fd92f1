//===- Calls.cpp - Kernel::call --------------------------------------------===//
#include "Calls.h"
#include "FindingText.h"
#include "megalith/Reference/Buffers.h"
#include "runtime/Faults.h"
#include "llvm/ADT/STLExtras.h"
#include <numeric>

namespace megalith::api {

ElementType elementTypeOf(ir::Scalar dtype) {
  switch (dtype) {
  case ir::Scalar::I64:
    return ElementType::I64;
  case ir::Scalar::F32:
    return ElementType::F32;
  case ir::Scalar::Bool:
    return ElementType::Bool;
  case ir::Scalar::F16:
    return ElementType::F16;
  case ir::Scalar::BF16:
    return ElementType::BF16;
  default:
    return ElementType::I32;
  }
}

static const char *nameOf(ElementType type) { return runtime::elementTypes[static_cast<size_t>(type)]; }

static void refuse(const ir::Module &module, SourceLoc loc, const std::string &why, Diagnostics &diags) {
  diags.report(Diag::CallBuffers, loc, module.root.name, why);
}

std::optional<ir::CallShapes> shapesOfCall(const ir::Module &module, const CallBuffer *buffers, size_t count, bool all,
                                           Diagnostics &diags) {
  ir::Shapes given;
  for (size_t i = 0; i < count; ++i) {
    const std::string name(buffers[i].name);
    const ir::Operation *buffer = module.find(ir::Op::Buffer, name);
    if (given.count(name)) {
      refuse(module, buffer ? buffer->loc : SourceLoc(), fmt::format("buffer `{}` is given twice", name), diags);
      return std::nullopt;
    }
    given[name].assign(buffers[i].shape, buffers[i].shape + buffers[i].dimensions);
    if (const auto dtype = buffer ? buffer->get<ir::attr::dtype>() : ir::Scalar::I32;
        buffer && buffers[i].type != elementTypeOf(dtype)) {
      refuse(module, buffer->loc,
             fmt::format("buffer `{}` is of {}, and the tensor of {}", name, ir::word(dtype), nameOf(buffers[i].type)),
             diags);
      return std::nullopt;
    }
  }
  ir::CallShapes call = ir::callShapes(module, given);
  if (!call.error.empty()) {
    refuse(module, call.declaration, call.error, diags);
    return std::nullopt;
  }
  if (all)
    for (const ir::Operation *buffer : module.all(ir::Op::Buffer))
      if (!given.count(buffer->name)) {
        refuse(module, buffer->loc, fmt::format("buffer `{}` is missing: a call makes no memory", buffer->name), diags);
        return std::nullopt;
      }
  return call;
}

void reportCallFault(int code, const FaultNumbers &numbers, SourceLoc loc, Diagnostics &diags) {
  static const struct {
    int32_t code;
    const char *name, *text;
  } all[] = {
#define FAULT(Enum, Code, Name, Text, Numbers) {Code, Name, Text},
#include "megalith/Contract/Faults.def"
  };
  for (const auto &[number, name, text] : all)
    if (number == code) {
      const std::string detail = faultDetail(name, numbers);
      diags.report(Diag::CallFault, loc, name, text + (detail.empty() ? "" : ": " + detail));
    }
}

void reportCallFault(const runtime::CallFault &fault, const ir::Module &module, Diagnostics &diags) {
  SourceLoc loc;
  const unsigned line = fault.word >> abi::kFaultPlaceShift;
  if (line > 0 && module.root.loc)
    loc = placeOf(diags.sources().name(module.root.loc.file).str() + ":" + std::to_string(line), diags.sources());
  reportCallFault(static_cast<int>(fault.word & (abi::kFaultAtCall - 1)),
                  {fault.numbers[0], fault.numbers[1], fault.numbers[2]}, loc, diags);
}

void reportCallProblem(const runtime::CallProblem &problem, const ir::Module &module, const CallBuffer *buffers,
                       size_t count, Diagnostics &diags) {
  using Problem = runtime::CallProblem;
  if (problem.kind == Problem::Shapes) {
    if (shapesOfCall(module, buffers, count, true, diags))
      refuse(module, module.root.loc, "its shapes cannot be", diags); // what is found above is all that can be wrong
    return;
  }
  const auto all = module.all(ir::Op::Buffer);
  const ir::Operation &buffer = *all[problem.which];
  refuse(module, buffer.loc,
         problem.kind == Problem::Missing ? fmt::format("buffer `{}` has elements and no address", buffer.name)
         : problem.kind == Problem::Alignment
             ? fmt::format("the address of buffer `{}` is no multiple of {}, the bytes of an element", buffer.name,
                           ir::bytesOf(buffer.get<ir::attr::dtype>()))
             : fmt::format("buffer `{}`, which a stage writes, overlaps `{}` in memory", buffer.name,
                           all[problem.other]->name),
         diags);
}

bool inOrder(const runtime::CallManifest &manifest, const CallBuffer *buffers, size_t count,
             std::vector<runtime::CallBuffer> &out) {
  if (count != manifest.buffers.size())
    return false;
  out.assign(count, {});
  for (size_t i = 0; i < count; ++i) {
    // Callers give them in the same order each time, most often in that of the file.
    size_t at = i;
    if (manifest.buffers[at].name != buffers[i].name)
      for (at = 0; at < count && manifest.buffers[at].name != buffers[i].name; ++at)
        ;
    if (at == count || out[at].shape || static_cast<int>(buffers[i].type) != manifest.buffers[at].type ||
        buffers[i].dimensions != manifest.buffers[at].shape.size())
      return false;
    out[at] = {buffers[i].data, buffers[i].shape};
  }
  return true;
}

static Messages callOnReference(const Kernel::State &state, const CallBuffer *buffers, size_t count,
                                Diagnostics &diags) {
  const ir::Module &module = state.program->compiled.module;
  const auto call = shapesOfCall(module, buffers, count, true, diags);
  if (!call)
    return diags.messages();
  std::map<std::string, void *> memory;
  std::vector<runtime::CallMemory> ranges;
  for (const ir::Operation *buffer : module.all(ir::Op::Buffer)) {
    const CallBuffer *given = std::find_if(buffers, buffers + count,
                                           [&](const CallBuffer &candidate) { return candidate.name == buffer->name; });
    memory[buffer->name] = given->data;
    const int64_t element = ir::bytesOf(buffer->get<ir::attr::dtype>());
    const std::vector<int64_t> &shape = call->shapes.at(buffer->name);
    ranges.push_back({given->data, std::accumulate(shape.begin(), shape.end(), element, std::multiplies()), element,
                      buffer->get<ir::attr::written>()});
  }
  if (const runtime::CallProblem problem = runtime::checkMemory(ranges)) {
    reportCallProblem(problem, module, buffers, count, diags);
    return diags.messages();
  }
  if (const auto fault = reference::runBuffers(module, *call, memory))
    reportCallFault(fault->code, fault->numbers, fault->loc, diags);
  return diags.messages();
}

/// A call on a GPU that is as it should be. False: callOnKernel() says why.
static bool callAtOnce(Kernel::State &state, const CallBuffer *buffers, size_t count, const CallOptions &options) {
  static thread_local std::vector<runtime::CallBuffer> ordered;
  runtime::CallEngine &engine = *state.cudaCalls;
  return inOrder(engine.manifest(), buffers, count, ordered) && !engine.image().prepare(ordered, options.perStage) &&
         !state.gpu->makeCurrent() && !engine.launch(static_cast<runtime::CUstream>(options.stream));
}

static Messages callOnKernel(Kernel::State &state, const CallBuffer *buffers, size_t count, const CallOptions &options,
                             Diagnostics &diags) {
  const ir::Module &module = state.program->compiled.module;
  runtime::CallImage &image = state.cudaCalls ? state.cudaCalls->image() : state.cpuCalls->image();
  const runtime::CallManifest &manifest = state.cudaCalls ? state.cudaCalls->manifest() : state.cpuCalls->manifest();
  static thread_local std::vector<runtime::CallBuffer> ordered;
  const auto problem = inOrder(manifest, buffers, count, ordered) ? image.prepare(ordered, options.perStage)
                                                                  : runtime::CallProblem{runtime::CallProblem::Shapes};
  if (problem) {
    reportCallProblem(problem, module, buffers, count, diags);
    return diags.messages();
  }
  if (state.cudaCalls) {
    runtime::Failure failure = state.gpu->makeCurrent();
    if (!failure)
      failure = state.cudaCalls->launch(static_cast<runtime::CUstream>(options.stream));
    if (failure)
      reportRuntime(diags, *failure);
    return diags.messages();
  }
  const std::lock_guard<std::mutex> lock(cpuMutex());
  cpu::LaunchOptions how;
  how.check = state.checked;
  const auto outcome = state.cpuCalls->run(ordered, options.perStage, how);
  if (!outcome)
    reportRuntime(diags, outcome.error);
  else if (outcome->launch.finding)
    reportFinding(*outcome->launch.finding, state.source.manifest, diags);
  else if (outcome->fault)
    reportCallFault(*outcome->fault, module, diags);
  return diags.messages();
}

} // namespace megalith::api

namespace megalith {

using namespace api;

Status Kernel::call(const CallBuffer *buffers, size_t count, const CallOptions &options) const {
  return guarded<Done>([&]() -> Status {
    if (state->cudaCalls && callAtOnce(*state, buffers, count, options))
      return Done();
    Diagnostics diags(state->program->sources);
    if (!ir::ofBuffers(state->program->compiled.module))
      return failure(Diag::KernelProgram, "only a pipeline of buffers is called; this one has requests: `run`");
    Messages said = state->device == Device::Reference ? callOnReference(*state, buffers, count, diags)
                                                       : callOnKernel(*state, buffers, count, options, diags);
    if (said.hasErrors())
      return said;
    return Done();
  });
}

Status Kernel::check(void *stream) const {
  return guarded<Done>([&]() -> Status {
    if (!state->cudaCalls)
      return Done();
    Diagnostics diags(state->program->sources);
    if (runtime::Failure failure = state->gpu->makeCurrent())
      reportRuntime(diags, *failure);
    else if (const auto fault = state->cudaCalls->check(static_cast<runtime::CUstream>(stream)); !fault)
      reportRuntime(diags, fault.error);
    else if (*fault)
      reportCallFault(**fault, state->program->compiled.module, diags);
    if (diags.hasErrors())
      return diags.messages();
    return Done();
  });
}

} // namespace megalith
