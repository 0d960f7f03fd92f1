//===- Buffers.cpp - calls with the tensors of files -----------------------===//
#include "megalith/Reference/Buffers.h"
#include "Calls.h"
#include "FindingText.h"
#include "Schedule.h"
#include "megalith/Checkpoint/SafetensorsFile.h"
#include "megalith/Os/WriteFile.h"
#include "megalith/Tools.h"
#include "runtime/cpu/Explorer.h"
#include <chrono>
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
using Memory = std::vector<std::vector<uint8_t>>; ///< of all buffers, in the order of the module

/// A call with buffers of the host.
class HostCall {
public:
  /// nullopt after an error.
  static std::optional<HostCall> read(const ir::Module &module, const std::string &path, Diagnostics &diags) {
    const auto file = SafetensorsFile::open(path);
    if (!file) {
      driver::reportCheckpoint(diags, file.error);
      return std::nullopt;
    }
    HostCall out(module);
    ir::Shapes given;
    const auto refuse = [&](SourceLoc loc, const std::string &why) {
      diags.report(Diag::CallBuffers, loc, module.root.name, why);
      return std::nullopt;
    };
    for (const auto &[name, tensor] : file->tensors()) {
      given[name] = tensor.shape;
      const ir::Operation *buffer = module.find(ir::Op::Buffer, name);
      if (const auto dtype = buffer ? buffer->get<ir::attr::dtype>() : ir::Scalar::I32;
          buffer && tensor.dtype != tensorType(dtype))
        return refuse(buffer->loc, fmt::format("buffer `{}` is of {}, and the tensor of {}", name, ir::word(dtype),
                                               dtypeName(tensor.dtype)));
    }
    out.call = ir::callShapes(module, given);
    if (!out.call.error.empty())
      return refuse(out.call.declaration, out.call.error);
    for (const ir::Operation *buffer : out.buffers) {
      const std::vector<int64_t> &shape = out.call.shapes.at(buffer->name);
      std::vector<uint8_t> &bytes = out.memory.emplace_back(
          std::accumulate(shape.begin(), shape.end(), ir::bytesOf(buffer->get<ir::attr::dtype>()), std::multiplies()));
      if (const TensorView *tensor = file->find(buffer->name))
        if (const auto error = file->read(*tensor, 0, tensor->size, bytes.data())) {
          driver::reportCheckpoint(diags, *error);
          return std::nullopt;
        }
    }
    return out;
  }

  const ir::Module &module;
  const std::vector<const ir::Operation *> buffers;
  ir::CallShapes call;
  Memory memory;

  /// What stages have written, as a file's tensors.
  std::map<std::string, TensorView> results(const Memory &after) const {
    std::map<std::string, TensorView> out;
    for (size_t b = 0; b < buffers.size(); ++b)
      if (buffers[b]->get<ir::attr::written>())
        out[buffers[b]->name] = {tensorType(buffers[b]->get<ir::attr::dtype>()), call.shapes.at(buffers[b]->name),
                                 after[b].data(), after[b].size()};
    return out;
  }
  /// As kernels take them; `of`: this memory, or a copy of it.
  std::vector<runtime::CallBuffer> arguments(Memory &of) const {
    std::vector<runtime::CallBuffer> out;
    for (size_t b = 0; b < buffers.size(); ++b)
      out.push_back({of[b].data(), call.shapes.at(buffers[b]->name).data()});
    return out;
  }
  std::optional<reference::CallFault> runOnReference(Memory &of) const {
    std::map<std::string, void *> all;
    for (size_t b = 0; b < buffers.size(); ++b)
      all[buffers[b]->name] = of[b].data();
    return reference::runBuffers(module, call, all);
  }

private:
  explicit HostCall(const ir::Module &module) : module(module), buffers(module.all(ir::Op::Buffer)) {}
};
} // namespace

/// One call of any device. False after an error.
static bool callOnce(Kernel::State &state, const HostCall &call, Memory &memory, const tools::FileCall &how,
                     Diagnostics &diags) {
  if (state.device == Device::Reference) {
    if (const auto fault = call.runOnReference(memory))
      reportCallFault(fault->code, fault->numbers, fault->loc, diags);
    return !diags.hasErrors();
  }
  const auto arguments = call.arguments(memory);
  runtime::CallImage &image = state.cudaCalls ? state.cudaCalls->image() : state.cpuCalls->image();
  if (const auto problem = image.prepare(arguments, how.perStage)) {
    reportCallProblem(problem, call.module, nullptr, 0, diags);
    return false;
  }
  std::optional<runtime::CallFault> fault;
  if (state.cudaCalls) {
    runtime::Failure failure = state.gpu->makeCurrent();
    auto ran = failure ? runtime::Outcome<std::optional<runtime::CallFault>>(*failure)
                       : state.cudaCalls->runOnHost(arguments, how.perStage);
    if (!ran) {
      reportRuntime(diags, ran.error);
      return false;
    }
    fault = *ran;
  } else {
    const std::lock_guard<std::mutex> lock(cpuMutex());
    cpu::LaunchOptions launch;
    launch.check = state.checked;
    if (!how.schedule.empty())
      launch.schedule = *parseSchedule(how.schedule);
    auto ran = state.cpuCalls->run(arguments, how.perStage, launch);
    if (!ran) {
      reportRuntime(diags, ran.error);
      return false;
    }
    if (ran->launch.finding) {
      reportFinding(*ran->launch.finding, state.source.manifest, diags);
      if (state.checked)
        diags.note("found with `--schedule=" + cpu::nameOf(launch.schedule) + "`");
      return false;
    }
    fault = ran->fault;
  }
  if (fault)
    reportCallFault(*fault, call.module, diags);
  return !diags.hasErrors();
}

Messages tools::callWithFiles(const Kernel &kernel, const std::string &inputs, const std::string &outputs,
                              const FileCall &how) {
  const auto messages = guarded<bool>([&]() -> Expected<bool> {
    Kernel::State &state = *kernel.internals();
    Diagnostics diags(state.program->sources);
    auto call = HostCall::read(state.program->compiled.module, inputs, diags);
    if (!call)
      return diags.messages();
    Memory memory = call->memory;
    if (!callOnce(state, *call, memory, how, diags))
      return diags.messages();
    for (unsigned i = 1; i < how.repeat; ++i) {
      Memory again = call->memory;
      if (!callOnce(state, *call, again, how, diags))
        return diags.messages();
      for (size_t b = 0; b < memory.size(); ++b)
        if (memory[b] != again[b]) {
          diags.report(Diag::RepeatDiffers, {}, i + 1, fmt::format("buffer `{}` is another", call->buffers[b]->name));
          return diags.messages();
        }
    }
    if (const std::string why = os::writeFile(outputs, safetensorsText(call->results(memory))); !why.empty()) {
      diags.report(Diag::CannotWriteFile, {}, outputs, why);
      return diags.messages();
    }
    return true;
  });
  return messages ? Messages() : messages.errors();
}

namespace {
class ExploringCalls {
public:
  ExploringCalls(const Program &program, const tools::ExploreOptions &options)
      : program(program), options(options), diags(program.internals()->sources) {}

  Expected<tools::Exploration> run(const std::string &inputs) {
    auto call = HostCall::read(program.internals()->compiled.module, inputs, diags);
    if (!call)
      return diags.messages();
    auto kernel = Kernel::load(program, {.device = Device::Cpu,
                                         .sourceFiles = options.sourceFiles,
                                         .cpuArch = options.cpuArch,
                                         .check = true,
                                         .progress = options.progress});
    if (!kernel)
      return kernel.errors();
    expected = call->memory;
    expectedFault = call->runOnReference(expected);
    const auto start = std::chrono::steady_clock::now();
    const std::lock_guard<std::mutex> lock(cpuMutex());
    tools::Exploration out;
    for (uint64_t i = 0; i <= options.schedules && !diags.hasErrors(); ++i) {
      const cpu::Schedule schedule = cpu::scheduleOf(i == 0 ? 0 : options.firstSeed + i - 1);
      // Every eighth one with a launch for each stage.
      attempt(*kernel->internals(), *call, schedule, i % 8 == 1, out);
      tell(options.progress, fmt::format("schedule {} of {}, {:.1f} million steps", i + 1, options.schedules + 1,
                                         double(out.steps) / 1e6));
    }
    tell(options.progress, "");
    if (diags.hasErrors())
      return diags.messages();
    out.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    out.messages = diags.messages();
    return out;
  }

private:
  const Program &program;
  const tools::ExploreOptions &options;
  Diagnostics diags;
  Memory expected;
  std::optional<reference::CallFault> expectedFault;

  void attempt(Kernel::State &state, const HostCall &call, const cpu::Schedule &schedule, bool perStage,
               tools::Exploration &out) {
    Memory memory = call.memory;
    const auto arguments = call.arguments(memory);
    if (const auto problem = state.cpuCalls->image().prepare(arguments, perStage))
      return reportCallProblem(problem, call.module, nullptr, 0, diags);
    cpu::LaunchOptions launch;
    launch.check = true;
    launch.schedule = schedule;
    auto ran = state.cpuCalls->run(arguments, perStage, launch);
    if (!ran)
      return reportRuntime(diags, ran.error);
    ++out.runs;
    out.steps += ran->launch.steps;
    const std::string wrong = ran->launch.finding ? "" : difference(call, memory, ran->fault);
    if (ran->launch.finding)
      reportFinding(*ran->launch.finding, state.source.manifest, diags);
    else if (!wrong.empty())
      diags.report(Diag::ScheduleDiffers, {}, wrong);
    if (diags.hasErrors())
      diags.note(
          fmt::format("found with `--schedule={}`{}", cpu::nameOf(schedule), perStage ? " and `--control=host`" : ""));
  }

  /// From the reference executor.
  std::string difference(const HostCall &call, const Memory &memory,
                         const std::optional<runtime::CallFault> &fault) const {
    if (fault.has_value() != expectedFault.has_value())
      return fault ? "the call ended in a fault, and that of the reference executor did not"
                   : "the call ended without the fault of the reference executor";
    if (fault) {
      const auto code = static_cast<int>(fault->word & (abi::kFaultAtCall - 1));
      const auto line = fault->word >> abi::kFaultPlaceShift;
      bool same = code == expectedFault->code && line == expectedFault->loc.line;
      for (size_t i = 0; i < expectedFault->numbers.size(); ++i)
        same = same && fault->numbers[i] == expectedFault->numbers[i];
      return same ? "" : "the call ended in another fault than that of the reference executor";
    }
    for (size_t b = 0; b < memory.size(); ++b)
      if (memory[b] != expected[b])
        return fmt::format("buffer `{}` is another than the reference executor's", call.buffers[b]->name);
    return "";
  }
};
} // namespace

Expected<tools::Exploration> tools::exploreCalls(const Program &program, const std::string &inputs,
                                                 const ExploreOptions &options) {
  return guarded<Exploration>([&] { return ExploringCalls(program, options).run(inputs); });
}

} // namespace megalith
